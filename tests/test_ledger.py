"""The ledger: what is booked, what is refused, and bounds that hold the exact privacy loss of the very norms."""

import copy
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant import ledger as ledger_module
from pld_accountant.counting.buckets import Buckets
from pld_accountant.files.store import StoreError
from pld_accountant.kernels import count
from pld_accountant.notions import gdp

OPTIONS = {"noise_multiplier": 2.0, "sample_rate": 0.02, "max_grad_norm": 5.0}


def ledger(people, **more):
    return pa.Ledger(people, **{**OPTIONS, **more})


def exact(pairs, **question):
    """The exact bounds of one person: pairs of (relative norm over noise multiplier = 1 / ratio, rate, steps)."""
    steps = [(pa.SampledGaussian(1.0 / inverse, q), n) for inverse, q, n in pairs if inverse > 0.0]
    composed = pa.compose(steps)
    return composed.epsilon(question["delta"]) if "delta" in question else composed.delta(question["epsilon"])


# ------------------------------------------------------------------------------------------------ booking


def test_record_counts_every_person_in_one_bucket():
    book = ledger(4, buckets=16)
    book.record([0.0, 0.1, 5.0, 70.0])
    assert book.counts.sum(axis=1).tolist() == [0, 1, 1, 1]
    assert book.counts[2, -1] == book.counts[3, -1] == 1
    book.record(np.array([1.0, 1.0, 1.0, 0.0], dtype=np.float32), repeat=9)
    assert book.counts.sum(axis=1).tolist() == [9, 10, 10, 1]
    assert book.steps == 10
    assert book.counts.dtype == np.uint16
    assert repr(book).startswith(
        "Ledger(4, noise_multiplier=2.0, sample_rate=0.02, max_grad_norm=5.0, buckets=16; 10 st"
    )


def test_counts_are_a_view_that_cannot_be_written():
    book = ledger(1)
    book.record([1.0])
    with pytest.raises(ValueError, match="read-only"):
        book.counts[0, 0] = 7


def test_a_block_equals_its_steps_and_blocks_of_a_log(monkeypatch):
    rng = np.random.default_rng(1)
    log = rng.lognormal(1, 1, (50, 9)) * (rng.random((50, 9)) < 0.9)
    one = ledger(9)
    for row in log:
        one.record(row)
    block = ledger(9)
    block.record(log)
    monkeypatch.setattr("pld_accountant.people_counts._BLOCK_BYTES", 8 * 9 * 7)
    told = []
    whole = pa.Ledger.from_norms(log, **OPTIONS, progress=lambda done, total: told.append((done, total)))
    assert np.array_equal(one.counts, block.counts)
    assert np.array_equal(one.counts, whole.counts)
    assert one.steps == block.steps == whole.steps == 50
    assert told == [(7, 50), (14, 50), (21, 50), (28, 50), (35, 50), (42, 50), (49, 50), (50, 50)]


@pytest.mark.parametrize(
    "kind",
    ["list", "float16", "float32", "longdouble", "big-endian", "int", "uint", "fortran", "read-only", "unaligned",
     "memmap"],
)  # fmt: skip
def test_logs_of_any_kind(tmp_path, kind):
    log = np.array([[1.0, 2.0, 7.0], [0.0, 3.0, 4.0]])
    expected = pa.Ledger.from_norms(log, **OPTIONS).counts
    if kind == "list":
        given = log.tolist()
    elif kind == "memmap":
        np.save(tmp_path / "log.npy", log)
        given = np.load(tmp_path / "log.npy", mmap_mode="r")
    elif kind == "fortran":
        given = np.asfortranarray(log)
    elif kind == "unaligned":
        given = np.frombuffer(b"-" + log.tobytes(), dtype=np.uint8)[1:].view(np.float64).reshape(log.shape)
        assert not given.flags.aligned
    else:
        kinds = {"big-endian": ">f8", "int": np.int32, "uint": np.uint8, "read-only": np.float64}
        given = log.astype(kinds.get(kind, kind))
    if kind == "read-only":
        given.flags.writeable = False
    assert np.array_equal(pa.Ledger.from_norms(given, **OPTIONS).counts, expected)
    by_step = ledger(3)
    for row in given:
        by_step.record(row)
    assert np.array_equal(by_step.counts, expected)
    assert np.array_equal(np.asarray(given), log)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_a_mapped_log_is_let_go_of_and_what_was_written_into_it_is_not(tmp_path, mode):
    """Of 8 MiB of norms not half may stay."""
    log = np.random.default_rng(0).uniform(0, 5, (512, 4096)).astype(np.float32)
    np.save(tmp_path / "log.npy", log)
    mapped = np.load(tmp_path / "log.npy", mmap_mode=mode)
    if mode != "r":
        mapped[0] = log[0] = 3.0
    expected = pa.Ledger.from_norms(log, **OPTIONS).counts
    before = mapped_kilobytes()
    made = pa.Ledger.from_norms(mapped, **OPTIONS)
    if mode == "r" and before is not None:
        assert mapped_kilobytes() < before + 4096
    assert np.array_equal(mapped, log)
    assert np.array_equal(made.counts, expected)


def mapped_kilobytes():
    """What of mapped files counts as memory of this process, where the system says so."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("RssFile")), None)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e-9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_bad_norm_books_nothing_and_is_named(bad, dtype):
    bad = dtype(bad)
    book = ledger(3)
    book.record([1.0, 2.0, 3.0], repeat=4)
    before = book.counts.copy()
    with pytest.raises(ValueError, match=rf"norms must be finite and at least 0, got {bad} at step 4, example 2"):
        book.record(np.array([1.0, 1.0, bad], dtype=dtype))
    log = np.ones((6, 3), dtype=dtype)
    log[5, 1] = bad
    with pytest.raises(ValueError, match=rf"got {bad} at step 9, example 1"):
        book.record(log)
    assert np.array_equal(book.counts, before)
    assert book.steps == 4


def test_a_bad_norm_in_a_later_block_makes_no_ledger(monkeypatch):
    monkeypatch.setattr("pld_accountant.people_counts._BLOCK_BYTES", 8 * 3 * 2)
    log = np.ones((9, 3))
    log[7, 2] = -1.0
    with pytest.raises(ValueError, match=r"got -1\.0 at step 7, example 2"):
        pa.Ledger.from_norms(log, **OPTIONS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: b.record(np.ones(4)), r"norms must have shape \(3,\) or \(steps, 3\), got \(4,\)"),
        (lambda b: b.record(np.ones((3, 4))), "a log with a row per person must be transposed"),
        (lambda b: b.record(np.ones((1, 1, 3))), "norms must have shape"),
        (lambda b: b.record(["a", "b", "c"]), "norms must be real numbers"),
        (lambda b: b.record(np.ones(3, dtype=complex)), "norms must be real numbers"),
        (lambda b: b.record(np.ones(3), repeat=0), "repeat must be a whole number of at least 1, got 0"),
        (lambda b: b.record(np.ones(3), repeat=1.5), "repeat must be a whole number of at least 1, got 1.5"),
        (lambda b: b.record(np.ones(3), noise_multiplier=0.0), "noise_multiplier must be a finite number above 0"),
        (lambda b: b.record(np.ones(3), sample_rate=np.nan), r"sample_rate must lie in \(0, 1\], got nan"),
        (lambda b: b.record(np.ones(3), repeat=2**32), "a ledger holds at most 4294967295 steps"),
        (lambda b: b.epsilon(0.0), r"delta must lie in \(0, 1\), got 0.0"),
        (lambda b: b.epsilon([1e-5, 1.0]), r"delta must lie in \(0, 1\), got 1.0"),
        (lambda b: b.epsilon([]), "several values must form a sequence of numbers"),
        (lambda b: b.epsilon(1e-5, "sideways"), "direction must be 'remove', 'add' or 'both', got 'sideways'"),
        (lambda b: b.epsilon(1e-5, bounds="lower"), "bounds must be 'all' or 'upper', got 'lower'"),
        (lambda b: b.delta(-1.0), "epsilon must be a finite number of at least 0, got -1.0"),
        (lambda b: b.merge(ledger(4)), "other must be a ledger of the same 3 people"),
        (lambda b: b.merge(None), "other must be a Ledger, as this ledger is"),
    ],
)
def test_what_is_refused_books_nothing(call, message):
    book = ledger(3)
    book.record(np.ones(3))
    before = book.counts.copy()
    with pytest.raises(ValueError, match=message):
        call(book)
    assert np.array_equal(book.counts, before)
    assert book.steps == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_examples": 0}, "num_examples must be a whole number of at least 1, got 0"),
        ({"num_examples": 2.5}, "num_examples must be a whole number"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be a finite number above 0"),
        ({"sample_rate": 1.5}, r"sample_rate must lie in \(0, 1\]"),
        ({"max_grad_norm": np.inf}, "max_grad_norm must be a finite number above 0"),
        ({"max_grad_norm": 1.7e308}, "max_grad_norm must lie between 1e-100 and 1e100"),
        ({"max_grad_norm": 1e-310}, "max_grad_norm must lie between 1e-100 and 1e100"),
        ({"buckets": 1}, "buckets must be a whole number of at least 2"),
        ({"buckets": 4097}, "buckets must be at most 4096"),
    ],
)
def test_a_bad_parameter_makes_no_ledger(changed, message):
    people = changed.pop("num_examples", 3)
    with pytest.raises(ValueError, match=message):
        ledger(people, **changed)


def test_counters_widen_before_they_overflow():
    book = ledger(2, buckets=4)
    book.record([5.0, 0.0], repeat=65_535)
    assert book.counts.dtype == np.uint16
    assert book.counts[0, -1] == 65_535
    book.record([5.0, 1.0])
    assert book.counts.dtype == np.uint32
    assert book.counts[0, -1] == 65_536
    book.record([5.0, 5.0], repeat=2**31)
    assert book.counts[0, -1] == 2**31 + 65_536
    with pytest.raises(ValueError, match="at most 4294967295 steps"):
        book.record([5.0, 5.0], repeat=2**31)
    assert book.counts[0, -1] == 2**31 + 65_536


# ------------------------------------------------------------------------------------------------ bounds


@pytest.mark.parametrize("delta", [1e-2, 1e-30])
def test_the_exact_loss_of_the_very_norms_lies_between(delta):
    rng = np.random.default_rng(3)
    norms = np.minimum(rng.lognormal(0.5, 1.0, (3, 5)), 20.0)
    norms[0, 0] = 0.0
    book = ledger(5)
    for row, repeat in zip(norms, (100, 700, 2000), strict=True):
        book.record(row, repeat=repeat)
    found = book.epsilon(delta)
    assert found.certified.all()
    for person in range(5):
        inverse = np.minimum(norms[:, person], 5.0) / 5.0 / 2.0
        true = exact([(v, 0.02, n) for v, n in zip(inverse, (100, 700, 2000), strict=True)], delta=delta)
        assert found.lower[person] <= true.upper
        assert true.lower <= found.upper[person]
        assert found.upper[person] <= true.upper + 0.02 * book.worst_case().epsilon(delta).upper
    at = float(np.median(found.upper))
    found = book.delta(at)
    for person in range(5):
        inverse = np.minimum(norms[:, person], 5.0) / 5.0 / 2.0
        true = exact([(v, 0.02, n) for v, n in zip(inverse, (100, 700, 2000), strict=True)], epsilon=at)
        assert found.lower[person] <= true.upper
        assert true.lower <= found.upper[person]


@pytest.mark.parametrize("ulps", [-2, 0, 2])
def test_norms_at_the_edges_lie_between_too(ulps):
    """Where rounding decides the bucket the bounds must hold on both sides."""
    edges = Buckets.make(2.0, 0.02, 16).edges[[3, 9, 14]]
    norms = 5.0 * edges
    for _ in range(abs(ulps)):
        norms = np.nextafter(norms, np.inf if ulps > 0 else 0.0)
    book = ledger(3, buckets=16)
    book.record(norms, repeat=3000)
    for delta in (1e-5, 1e-100):
        found = book.epsilon(delta)
        for person, norm in enumerate(norms):
            true = exact([(norm / 5.0 / 2.0, 0.02, 3000)], delta=delta)
            assert found.lower[person] <= true.upper
            assert true.lower <= found.upper[person]


@pytest.mark.parametrize("direction", ["both", "remove"])
@pytest.mark.parametrize("steps", [100, 400])
def test_nobody_s_upper_bound_exceeds_the_worst_case_s(direction, steps):
    """Exactly; without the cap people who are clipped at every step exceed it, by the error of their buckets."""
    book = ledger(4, buckets=8)
    book.record([5.0, 4.999, 9.0, 0.5], repeat=steps)
    book.record([5.0, 4.0, 7.0, 0.0], noise_multiplier=1.7, sample_rate=0.01)
    worst = book.worst_case()
    deltas = (1e-3, 1e-5)
    for row, delta in zip(book.epsilon(deltas, direction, bounds="upper").upper, deltas, strict=True):
        assert np.all(row <= worst.epsilon(delta, direction).upper)
    assert np.all(book.delta(0.3, direction, bounds="upper").upper <= worst.delta(0.3, direction).upper)


def test_without_the_cap_a_clipped_person_would_exceed_the_worst_case(monkeypatch):
    monkeypatch.setattr(ledger_module, "_joined", lambda found, *_: found[0])
    book = ledger(1, buckets=8)
    book.record([5.0], repeat=40)
    book.record([5.0], noise_multiplier=1.7, sample_rate=0.01)
    assert book.epsilon(1e-5, "remove").upper[0] > book.worst_case().epsilon(1e-5, "remove").upper


def test_the_worst_case_follows_the_schedule():
    book = ledger(2)
    book.record([5.0, 1.0], repeat=20)
    before = book.worst_case()
    assert book.worst_case() is before  # with its tables
    book.record([5.0, 1.0])
    assert (before.steps, book.worst_case().steps) == (20, 21)


def test_whoever_is_always_clipped_has_the_worst_case():
    book = ledger(2)
    book.record([5.0, 9.0], repeat=1000)
    worst = book.worst_case().epsilon(1e-5)
    np.testing.assert_allclose(book.epsilon(1e-5).upper, worst.upper, rtol=1e-8)
    assert book.worst_case().steps == 1000


def test_zero_norms_and_no_steps_cost_nothing():
    book = ledger(2)
    for found in (book.epsilon(1e-5), book.delta(0.0)):
        assert found.upper.tolist() == [0.0, 0.0]
        assert found.certified.all()
    assert book.rdp_epsilon(1e-5).tolist() == [0.0, 0.0]
    book.record([0.0, 1.0], repeat=500)
    assert book.epsilon(1e-5).upper[0] == 0.0
    assert book.delta(0.0).upper[0] == 0.0
    assert book.epsilon(1e-5).upper[1] > 0.0
    assert book.epsilon(1e-5).lower[0] == 0.0


def test_one_step():
    book = ledger(3)
    book.record([0.5, 5.0, 0.0])
    found = book.epsilon(1e-6)
    for person, inverse in enumerate((0.05, 0.5, 0.0)):
        true = exact([(inverse, 0.02, 1)], delta=1e-6)
        assert found.lower[person] <= true.upper
        assert true.lower <= found.upper[person]
    beyond = book.delta(3.0, "add")
    assert beyond.upper.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "schedule", [[(2.0, 0.02), (0.9, 0.02), (0.5, 0.02)], [(0.5, 0.02), (9.0, 0.05), (30.0, 0.05)]]
)
def test_a_schedule_that_changes(schedule):
    """Falling and rising noise, changing rates: every step is counted at its own."""
    steps = (1500, 30, 4) if schedule[0][0] > 1.0 else (4, 2000, 9000)
    book = ledger(3)
    norms = np.array([0.7, 2.5, 6.0])
    for (sigma, rate), n in zip(schedule, steps, strict=True):
        book.record(norms, repeat=n, noise_multiplier=sigma, sample_rate=rate)
    assert book.steps == sum(steps)
    assert np.all(book.counts.sum(axis=1) == sum(steps))
    worst = book.worst_case().epsilon(1e-5).upper
    found = book.epsilon(1e-5)
    for person, norm in enumerate(norms):
        s = min(norm, 5.0) / 5.0
        true = exact([(s / sigma, q, n) for (sigma, q), n in zip(schedule, steps, strict=True)], delta=1e-5)
        assert found.lower[person] <= true.upper
        assert true.lower <= found.upper[person]
        assert found.upper[person] - found.lower[person] <= 0.025 * worst


def test_a_slow_schedule_makes_few_groups():
    book = ledger(1, buckets=8)
    for sigma in np.concatenate([np.linspace(4.0, 1.0, 40), np.linspace(1.0, 8.0, 40)]):
        book.record([1.0], noise_multiplier=float(sigma))
    assert book.counts.shape[1] <= 8 * 8
    assert book.counts.sum() == 80


def test_more_buckets_are_never_much_wider():
    norms = np.linspace(0.2, 5.0, 12)
    widths = []
    for buckets in (8, 32, 128):
        book = ledger(12, buckets=buckets)
        book.record(norms, repeat=1000)
        found = book.epsilon(1e-5)
        widths.append(np.max(found.upper - found.lower))
    assert np.all(np.diff(widths) < 0.0)
    assert widths[-1] < 0.2 * widths[0]
    # the promise for 256 buckets, at 128: one percent of the worst case
    assert widths[2] < 0.012 * book.worst_case().epsilon(1e-5).upper


def test_several_deltas_and_one():
    book = ledger(3)
    book.record([1.0, 2.0, 0.0], repeat=1000)
    several = book.epsilon([1e-3, 1e-6])
    assert several.upper.shape == several.lower.shape == several.status.shape == (2, 3)
    for row, delta in enumerate((1e-3, 1e-6)):
        one = book.epsilon(delta)
        np.testing.assert_allclose(several.upper[row], one.upper, rtol=1e-8)
        # the lower bounds pay for the tails of the smallest delta
        assert np.all(several.lower[row] <= one.lower * (1.0 + 1e-8))
        np.testing.assert_allclose(several.lower[row], one.lower, rtol=5e-3)
    assert book.delta([0.1, 0.5]).upper.shape == (2, 3)


def test_upper_only_is_the_same_upper():
    book = ledger(3)
    book.record([1.0, 2.0, 0.0], repeat=1000)
    both, upper = book.epsilon(1e-5), book.epsilon(1e-5, bounds="upper")
    assert np.array_equal(both.upper, upper.upper)
    assert np.isnan(upper.lower).all()
    assert np.isnan(upper.estimate).all()


def test_directions():
    book = ledger(3)
    book.record([1.0, 2.0, 5.0], repeat=1000)
    remove, add, both = (book.epsilon(1e-5, d) for d in ("remove", "add", "both"))
    assert np.array_equal(both.upper, np.maximum(remove.upper, add.upper))
    assert np.all(add.lower <= add.upper)
    assert np.all(remove.upper >= add.upper)


def test_renyi_accounting_is_never_tighter():
    book = ledger(20)
    book.record(np.linspace(0.1, 5.0, 20), repeat=3000)
    assert np.all(book.rdp_epsilon(1e-5) >= book.epsilon(1e-5).upper)


def test_progress_reaches_the_end():
    book = ledger(5)
    book.record(np.linspace(0.0, 5.0, 5), repeat=1000)
    told = []
    book.epsilon(1e-5, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (15, 15)  # five people, two directions and the lower bound


# ------------------------------------------------------------------------------------------------ merge and files


def test_merging_equals_recording_both():
    first, second, whole = ledger(3), ledger(3), ledger(3)
    one, two = np.array([1.0, 2.0, 9.0]), np.array([0.3, 0.0, 4.0])
    first.record(one, repeat=40_000)
    second.record(two, repeat=30_000)
    second.record(two, repeat=100, sample_rate=0.5, noise_multiplier=30.0)
    for book, repeats in ((whole, (40_000, 30_000)),):
        book.record(one, repeat=repeats[0])
        book.record(two, repeat=repeats[1])
        book.record(two, repeat=100, sample_rate=0.5, noise_multiplier=30.0)
    first.merge(second)
    assert first.steps == whole.steps == 70_100
    assert first.counts.dtype == np.uint32
    assert np.array_equal(first.counts, whole.counts)
    np.testing.assert_allclose(first.epsilon(1e-5).upper, whole.epsilon(1e-5).upper, rtol=1e-12)
    assert first.worst_case().epsilon(1e-5).upper == whole.worst_case().epsilon(1e-5).upper
    assert second.steps == 30_100


def test_merging_with_oneself_and_with_other_buckets():
    book = ledger(2)
    book.record([1.0, 5.0], repeat=300)
    book.merge(book)
    assert book.steps == 600
    assert book.counts.sum(axis=1).tolist() == [600, 600]
    other = ledger(2, buckets=16, max_grad_norm=1.0)
    other.record([0.2, 1.0], repeat=400)
    book.merge(other)
    assert book.steps == 1000
    assert book.counts.sum(axis=1).tolist() == [1000, 1000]
    true = exact([(0.2 / 2.0, 0.02, 1000)], delta=1e-5)
    found = book.epsilon(1e-5)
    assert found.lower[0] <= true.upper
    assert true.lower <= found.upper[0]


def test_a_ledger_comes_back_as_it_was(tmp_path):
    book = ledger(3, buckets=32)
    book.record([0.0, 1.0, 7.0], repeat=66_000)
    book.record([1.0, 0.1, 0.0], noise_multiplier=0.7, sample_rate=0.1, repeat=300)
    book.save(tmp_path / "book.npz")
    back = pa.Ledger.load(tmp_path / "book.npz")
    assert repr(back) == repr(book)
    assert np.array_equal(back.counts, book.counts)
    assert back.counts.dtype == book.counts.dtype
    assert np.array_equal(back.epsilon(1e-5).upper, book.epsilon(1e-5).upper)
    assert back.worst_case().epsilon(1e-5) == book.worst_case().epsilon(1e-5)
    for one in (back, book):  # and goes on counting in the same buckets
        one.record([2.0, 2.0, 2.0])
    assert np.array_equal(back.counts, book.counts)
    empty = ledger(2)
    empty.save(tmp_path / "empty.npz")
    assert pa.Ledger.load(tmp_path / "empty.npz").epsilon(1e-5).upper.tolist() == [0.0, 0.0]


def test_a_ledger_whose_record_was_interrupted_comes_back(tmp_path, monkeypatch):
    book = ledger(3)
    book.record([0.0, 1.0, 7.0])

    def interrupted(*arguments, counted=count.count_down):
        counted(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(count, "count_down", interrupted)
    with pytest.raises(KeyboardInterrupt):
        book.record([0.0, 1.0, 7.0])
    assert book.steps == 2
    book.save(tmp_path / "book.npz")
    assert np.array_equal(pa.Ledger.load(tmp_path / "book.npz").counts, book.counts)


def test_a_damaged_or_foreign_file_is_refused(tmp_path):
    book = ledger(3)
    book.record([0.0, 1.0, 7.0])
    path = tmp_path / "book.npz"
    book.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(StoreError):
        pa.Ledger.load(path)
    np.savez(path, counts=np.ones(3))
    with pytest.raises(StoreError, match="is not a whole pld-accountant ledger file"):
        pa.Ledger.load(path)
    with pytest.raises(FileNotFoundError):
        pa.Ledger.load(tmp_path / "absent.npz")


def test_the_guarantee_says_what_is_not_promised():
    assert not ledger(1).guarantee.proven_adaptive
    assert "diagnostic" in ledger(1).guarantee.sentence


@pytest.mark.parametrize("wants_epsilon", [True, False])
def test_the_lower_bound_gives_back_what_counting_raised(monkeypatch, wants_epsilon):
    """A norm just below an edge is raised past it, and its lower edge is then above the norm.

    The solver is replaced by one without any error, whose own room would hide this.
    """
    sigma, bucket = 0.01, 13
    edge = float(Buckets.make(sigma, 1.0, 16).edges[bucket])
    norms = [math.nextafter(edge, 0.0)]
    norms += [math.nextafter(norms[0], 0.0)]
    book = pa.Ledger(2, noise_multiplier=sigma, sample_rate=1.0, max_grad_norm=1.0, buckets=16)
    book.record(norms)
    np.testing.assert_array_equal(np.argmax(book.counts, axis=1), bucket + 1)
    target = 1e-5 if wants_epsilon else 0.5 * (edge / sigma) ** 2 + 4.0 * edge / sigma

    def value(norm):
        """epsilon at delta, or delta at epsilon, of one full batch, in sixty digits."""
        mu = mpmath.mpf(float(norm)) / mpmath.mpf(sigma)

        def delta(epsilon):
            far = mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)
            return mpmath.ncdf(-epsilon / mu + mu / 2) - far

        if not wants_epsilon:
            return delta(mpmath.mpf(target))
        low, high = mu**2 / 2, mu**2 / 2 + 6 * mu
        for _ in range(120):
            middle = (low + high) / 2
            low, high = (middle, high) if delta(middle) > target else (low, middle)
        return low

    def without_error(counts, makers, questions, *, whole=None, **_):
        row, _, _ = (counts if whole is None else whole).single_steps(np.arange(len(counts)))
        found = np.array([float(value(edge)) for edge in sigma / makers.steps.sigma[row]])
        nothing = np.zeros(found.size, dtype=np.uint8)
        return [pa.Bounds(found, found, found, status=nothing, method=nothing)]

    monkeypatch.setattr("pld_accountant.ledger.solve_bounds", without_error)
    with mpmath.workdps(60):
        found = book.epsilon(target) if wants_epsilon else book.delta(target)
        for lower, upper, norm in zip(found.lower, found.upper, norms, strict=True):
            assert lower <= value(norm) <= upper
            # and what is given back is little
            assert lower >= value(edge) * (1 - mpmath.mpf(2) ** -35)


def test_a_limit_of_time_leaves_renyi_bounds():
    ledger = pa.Ledger(20, noise_multiplier=1.0, sample_rate=0.01, max_grad_norm=1.0)
    ledger.record(np.linspace(0.1, 1.0, 20), repeat=200)
    exact, found = ledger.epsilon(1e-6), ledger.epsilon(1e-6, seconds=1e-9)
    assert np.all(found.status[:-1] == pa.Status.RENYI_ONLY)
    assert np.all((exact.lower <= found.upper) & (found.lower <= exact.upper))
    np.testing.assert_allclose(ledger.epsilon(1e-6, seconds=1e4).upper, exact.upper, rtol=1e-9)


def test_a_limit_of_time_leaves_the_mu_of_steps_without_sampling():
    ledger = pa.Ledger(20, noise_multiplier=1.0, sample_rate=0.01, max_grad_norm=1.0)
    norms = np.linspace(0.1, 1.0, 20)
    ledger.record(norms, repeat=200)
    exact, found = ledger.mu(1e-6), ledger.mu(1e-6, seconds=1e-9)
    assert np.all(found.method == pa.Method.CLOSED_FORM) and np.all(found.status == pa.Status.CERTIFIED)
    assert np.all((norms * 200**0.5 <= found.upper) & (found.upper <= 1.02 * norms * 200**0.5))
    assert np.all((exact.lower <= found.upper) & (found.lower <= exact.upper))
    assert np.all(exact.method == pa.Method.TRANSFORM) and np.all(exact.upper < 0.2 * found.upper)
    np.testing.assert_allclose(ledger.mu(1e-6, seconds=1e4).upper, exact.upper, rtol=1e-9)


@pytest.mark.parametrize("direction", ["both", "remove", "add"])
def test_a_renyi_bound_alone_is_the_one_of_renyi_accounting(direction):
    """Where the time is up, the bound has the closest orders; it used to be the worst case's."""
    ledger = pa.Ledger(40, noise_multiplier=1.0, sample_rate=0.01, max_grad_norm=1.0)
    for row in np.random.default_rng(0).random((50, 40)):
        ledger.record(row)
    cut, whole = ledger.epsilon(1e-5, direction, seconds=1e-9), ledger.epsilon(1e-5, direction)
    assert np.all(cut.status == pa.Status.RENYI_ONLY)
    assert np.all(cut.upper <= ledger.rdp_epsilon(1e-5)) and np.all(cut.upper >= whole.lower)
    assert np.all(cut.lower <= cut.upper)
    if direction != "add":
        np.testing.assert_allclose(cut.upper, ledger.rdp_epsilon(1e-5), rtol=1e-9)
    above = ledger.epsilon(1e-5, direction, bounds="upper", seconds=1e-9)
    assert np.array_equal(above.upper, cut.upper) and np.all(np.isnan(above.lower)) and np.all(np.isnan(above.estimate))


def test_no_steps_change_nothing():
    ledger = pa.Ledger(2, noise_multiplier=2.0, sample_rate=0.05, max_grad_norm=1.0)
    ledger.record(np.ones((0, 2)))
    assert ledger.steps == 0 and np.all(ledger.epsilon(1e-5).upper == 0.0)


def test_a_ledger_takes_over_what_was_saved(tmp_path):
    made = {"noise_multiplier": 2.0, "sample_rate": 0.01, "max_grad_norm": 1.0}
    saved, path = pa.Ledger(3, **made), tmp_path / "book.npz"
    saved.record([0.1, 0.5, 1.0], repeat=7)
    saved.save(path)
    resumed = pa.Ledger(3, **made)
    assert resumed.load(path) is resumed
    assert resumed.steps == 7 and resumed.epsilon(1e-5) == saved.epsilon(1e-5)
    assert pa.Ledger.load(path, noise_multiplier=2.0).steps == 7
    other = pa.Ledger(3, **{**made, "noise_multiplier": 3.0})
    with pytest.raises(StoreError, match=r"was saved with noise_multiplier=2\.0, not 3\.0"):
        other.load(path)
    assert other.steps == 0
    with pytest.raises(TypeError, match="has no parameter 'sigma'"):
        pa.Ledger.load(path, sigma=2.0)
    with pytest.raises(TypeError):
        pa.Ledger.load(3)


@pytest.mark.parametrize("value", ["no", "False", 1, None, float("nan")])
def test_yes_or_no_is_true_or_false(value):
    ledger = pa.Ledger(2, noise_multiplier=2, sample_rate=0.01, max_grad_norm=1)
    with pytest.raises(ValueError, match="same_steps must be True or False"):
        ledger.merge(ledger, same_steps=value)
    with pytest.raises(ValueError, match="individual must be True or False"):
        pa.GaussianFilter(1.0, num_examples=2, noise_multiplier=2.0, individual=value)
    with pytest.raises(ValueError, match="compressed must be True or False"):
        pa.Ledger.from_events({}, max_grad_norm=1.0, compressed=value)


@pytest.mark.parametrize("step", [{"noise_multiplier": 1.0}, {"sample_rate": 0.9}])
def test_a_ledger_that_was_asked_before_takes_over_other_steps(tmp_path, step):
    made = {"noise_multiplier": 5.0, "sample_rate": 0.1, "max_grad_norm": 1.0}
    saved, asked = pa.Ledger(3, **made), pa.Ledger(3, **made)
    saved.record([0.1, 0.5, 1.0], repeat=20, **step)
    saved.save(tmp_path / "book")
    asked.record([0.1, 0.5, 1.0], repeat=20)
    asked.epsilon(1e-5), asked.rdp_epsilon(1e-5), asked.worst_case()
    asked.load(tmp_path / "book")
    assert asked.epsilon(1e-5) == saved.epsilon(1e-5)
    np.testing.assert_array_equal(asked.rdp_epsilon(1e-5), saved.rdp_epsilon(1e-5))
    assert asked.worst_case() == saved.worst_case()


@pytest.mark.parametrize("compressed", [False, True])
def test_full_batches_have_a_closed_form(compressed):
    rng = np.random.default_rng(4)
    people, noises = 600, (5.0, 2.5)
    book = pa.Ledger(people, noise_multiplier=noises[0], sample_rate=1.0, max_grad_norm=1.0)
    square = np.zeros(people)
    for step in range(12):
        norms = np.minimum(rng.lognormal(-1.5, 1.5, people), 1.3) * (rng.random(people) < 0.7)
        noise = noises[step % 2]
        book.record(norms, noise_multiplier=noise)
        square += (np.minimum(norms, 1.0) / noise) ** 2
    if compressed:
        book.compress()
    mu, worst = np.sqrt(square), book.worst_case()
    for delta in (1e-15, 1e-5, 0.05):
        found, exact = book.epsilon(delta), gdp.epsilon(delta, mu)
        some = exact > 0.0  # bounds that are wrong by a thousandth do not pass
        assert np.min(found.upper[some] / exact[some]) < 1.001
        assert np.max(found.lower[some] / exact[some]) > 0.999
        assert np.all(found.lower <= exact * (1 + 1e-11)) and np.all(exact <= found.upper * (1 + 1e-11))
        assert np.all(found.status == pa.Status.CERTIFIED) and np.all(found.method == pa.Method.CLOSED_FORM)
        assert np.max(found.upper - found.lower) <= 3e-4 * worst.epsilon(delta).upper
        one = book.epsilon(delta, direction="add")
        np.testing.assert_array_equal(one.upper, found.upper)
    found, exact = book.delta(1.0), gdp.delta(1.0, mu)
    assert np.all(found.lower <= exact * (1 + 1e-9)) and np.all(exact <= found.upper * (1 + 1e-9))
    found = book.mu()
    assert np.all(found.lower <= mu * (1 + 1e-12)) and np.all(mu <= found.upper * (1 + 1e-12))
    assert np.max(found.upper - found.lower) <= 3e-4 * worst.mu().upper
    assert found.method[0] == pa.Method.CLOSED_FORM
    quiet = pa.Ledger(1, noise_multiplier=5.0, sample_rate=1.0, max_grad_norm=1.0)
    quiet.record([1e-3], repeat=2)
    assert quiet.mu(0.5).lower[0] == 0.0 < quiet.mu(0.5).upper[0]


def test_a_schedule_that_was_counted_from_events_is_told(tmp_path):
    events = {"person": ["ann", "ann", "bob"], "norm": [1.0, 1.0, 0.5]}
    step = {"noise_multiplier": 10.0, "sample_rate": 1.0, "max_grad_norm": 1.0}
    counted = pa.Ledger.from_events(events, **step)
    stated = pa.Ledger.from_events(events, schedule=[(10.0, 1.0, 12)], **step)
    assert counted.schedule_from_events and not stated.schedule_from_events
    for name, book in (("counted", counted), ("stated", stated)):
        path = tmp_path / f"{name}.npz"
        book.save(path)
        for other in (pa.Ledger.load(path), pa.Ledger(2, **step).load(path), book.select(["bob"]), copy.deepcopy(book)):
            assert other.schedule_from_events == book.schedule_from_events
        merged = pa.Ledger.from_events(events, schedule=[(10.0, 1.0, 12)], **step)
        merged.merge(book)
        assert merged.schedule_from_events == book.schedule_from_events
        found = pa.summarise(book, 1e-5, min_group=1)
        assert found.as_dict()["schedule_from_events"] == book.schedule_from_events
        text = " ".join(found.text().split())
        assert ("the worst case depends on people's data and is no guarantee" in text) == book.schedule_from_events
        page = pa.write_report(book, tmp_path / f"{name}.html", 1e-5, min_group=1).read_text()
        assert ("may be published. The other" in " ".join(page.split())) != book.schedule_from_events
        assert ("No number of this page is a guarantee" in page) == book.schedule_from_events
        assert "none: everybody takes part" in page and "Poisson" not in page
        assert ("It holds for everybody." in page) != book.schedule_from_events
        pa.write_results(found, out=tmp_path / f"{name}.parquet")
        again = pa.read_results(tmp_path / f"{name}.parquet")
        assert again.individuals.schedule_from_events == book.schedule_from_events


# ------------------------------------------------------------------------- equal histories, and logs of sampled people


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", [pa.Ledger, pa.LaplaceLedger])
def test_people_with_equal_counts_are_solved_once(monkeypatch, kind, compressed):
    rng, rows = np.random.default_rng(0), []
    which = rng.integers(0, 7, 600)
    book = kind(600, noise_multiplier=1.0, sample_rate=0.2, max_grad_norm=1.0, buckets=16)
    for _ in range(9):
        book.record(rng.uniform(0.0, 1.2, 7)[which])
    alone = [book.select([int(np.flatnonzero(which == k)[0])]).epsilon(1e-4) for k in range(7)]
    if compressed:
        book.compress()
    solve = kind._sides

    def counted(self, tally, *more):
        rows.append(len(tally.counts))
        return solve(self, tally, *more)

    monkeypatch.setattr(kind, "_sides", counted)
    told = []
    found = book.epsilon(1e-4, progress=lambda done, total: told.append((done, total)))
    assert rows == [7] and told[-1][0] == told[-1][1]
    for person, k in enumerate(which.tolist()):
        assert found.upper[person] == pytest.approx(alone[k].upper[0], rel=1e-6)
        assert alone[k].lower[0] <= found.upper[person] and found.lower[person] <= alone[k].upper[0]
    deltas = book.delta([0.5, 1.0]).upper
    assert deltas.shape == (2, 600) and all(np.unique(deltas[:, which == k], axis=1).shape == (2, 1) for k in range(7))


def test_different_counts_with_one_hash_are_not_taken_for_equal(monkeypatch):
    book = ledger(50)
    for _ in range(3):
        book.record(np.linspace(0.1, 1.0, 50))
    expected = book.epsilon(1e-5).upper
    monkeypatch.setattr(type(book._tally), "_hashes", lambda self, who: np.zeros(len(self.counts[who])))
    assert book._tally.distinct() is None
    assert book.epsilon(1e-5).upper == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("alike", "compared"), [(30, False), (60, True)])
def test_everybody_is_compared_only_if_most_are_alike(alike, compared):
    """A copy of the counts of nearly everybody would take more time and memory than it saves."""
    book = ledger(100)
    book.record(np.where(np.arange(100) < alike, 5.0, np.linspace(0.1, 0.9, 100)))
    assert (book._tally.distinct() is not None) == compared


@pytest.mark.parametrize("compressed", [False, True])
def test_a_log_of_sampled_people_only_is_told(tmp_path, compressed):
    rng = np.random.default_rng(0)
    step = {"noise_multiplier": 1.2, "sample_rate": 0.05, "max_grad_norm": 1.0}
    norms = rng.uniform(0.1, 1.2, (120, 80))
    sampled = pa.Ledger.from_norms(np.where(rng.random(norms.shape) < 0.05, norms, 0.0), **step)
    if compressed:
        sampled.compress()
    assert sampled.looks_sampled
    with pytest.warns(UserWarning, match="as if only sampled people had been recorded"):
        sampled.epsilon(1e-4)
    with pytest.warns(UserWarning, match="as if only sampled people"):
        found = pa.summarise(sampled, 1e-4)
    text = " ".join(found.text().split())
    assert "a ledger needs everybody's norm at every step" in text and found.as_dict()["looks_sampled"]
    pa.write_results(found, out=tmp_path / "eps.parquet")
    assert pa.read_results(tmp_path / "eps.parquet").individuals.looks_sampled


def test_whole_logs_full_batches_and_few_norms_are_not_taken_for_samples():
    rng = np.random.default_rng(0)
    norms = rng.uniform(0.1, 1.2, (120, 80))
    half = np.where(np.arange(80) < 40, norms, 0.0)
    for log, rate in ((norms, 0.05), (half, 0.05), (norms, 1.0), (half, 0.6), (norms[:1] * (norms[:1] > 1.1), 0.05)):
        book = pa.Ledger.from_norms(log, noise_multiplier=1.2, sample_rate=rate, max_grad_norm=1.0)
        assert not book.looks_sampled
