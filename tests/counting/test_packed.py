"""Packed counts are the counts: after packing, merging, selecting, saving and reading, for any types and groups."""

import copy

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting import packed
from pld_accountant.files.store import StoreError, header, load, save

STEP = {"noise_multiplier": 2.0, "sample_rate": 0.01, "max_grad_norm": 1.0}
KIND = "pld-accountant ledger"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(packed, "BLOCK", 7)


def ledger(people=23, seed=0, repeat=3, **changes):
    rng = np.random.default_rng(seed)
    found = pa.Ledger(people, **{**STEP, "buckets": 20, **changes})
    norms = rng.gamma(1.0, 0.4, (9, people)) * (rng.random((9, people)) < 0.5)
    norms[:, 3] = 0.0
    found.record(norms, repeat=repeat)
    found.record(norms[:2], sample_rate=0.5)
    found.people = [f"p{i}" for i in range(people)]
    return found


def compressed(found):
    other = copy.deepcopy(found)
    other.compress()
    assert other.compressed and not found.compressed
    return other


def weights(found):
    tally = found._tally.dense() if found.compressed else found._tally
    assert tally.counts.dtype == (np.uint16 if tally.steps < 2**16 else np.uint32)
    return tally.lower_weights


def equal(a, b):
    counts, others = weights(a), weights(b)
    assert counts.dtype == others.dtype
    groups = [[(g.noise_multiplier, g.sample_rate, g.size) for g in x._tally.groups] for x in (a, b)]
    return (
        np.array_equal(a.counts, b.counts)
        and np.array_equal(counts, others)
        and groups[0] == groups[1]
        and a.schedule == b.schedule
        and a.people.tolist() == b.people.tolist()
    )


@pytest.mark.parametrize("repeat", [3, 9_000, 10_000_000])
def test_compression_changes_no_count_and_no_bound_beyond_its_width(repeat):
    dense = ledger(15, repeat=repeat)
    small = compressed(dense)
    assert equal(dense, small)
    a, b = dense.epsilon(1e-5), small.epsilon(1e-5)
    assert np.all(a.lower <= b.upper) and np.all(b.lower <= a.upper)
    assert np.all(np.abs(a.upper - b.upper) <= np.maximum(a.width, b.width))
    assert np.array_equal(dense.rdp_epsilon(1e-5, orders=[2, 8]), small.rdp_epsilon(1e-5, orders=[2, 8]))
    assert np.allclose(dense.rdp_epsilon(1e-5), small.rdp_epsilon(1e-5), rtol=1e-3)
    assert np.all(small.mu(1e-5).lower <= dense.mu(1e-5).upper)
    several = small.epsilon([1e-5, 1e-6])
    assert several.upper.shape == (2, 15)
    assert small.compressed
    small.record(np.ones(15))
    dense.record(np.ones(15))
    assert not small.compressed and equal(dense, small)


def test_a_ledger_without_steps_and_one_bucket_more_than_a_byte():
    for book in (pa.Ledger(10, buckets=9, **STEP), ledger(10, buckets=9)):
        book.people = range(10)
        small = compressed(book)
        assert equal(book, small)
        assert np.array_equal(small.epsilon(1e-5).upper > 0, book.epsilon(1e-5).upper > 0)


def test_nobody_loses_anything_in_a_compressed_ledger_without_steps():
    book = compressed(pa.Ledger(3, **STEP))
    assert book.mu() == pa.Bounds(*np.zeros((3, 3)))
    assert book.epsilon([1e-5, 1e-6]) == pa.Bounds(*np.zeros((3, 2, 3)))


def test_a_person_costs_what_is_used():
    dense = pa.Ledger(1000, **STEP)
    for norm in np.linspace(0.1, 1.0, 30):
        dense.record(np.full(1000, norm))
    small = copy.copy(dense)
    small.compress()
    assert dense.nbytes == 1000 * 256 * 6
    assert small.nbytes <= 1000 * (32 + 30 * 2)


def test_merging_selecting_and_adding_people_as_dense_ledgers_do():
    for same_steps in (False, True):
        a, b = ledger(seed=0), ledger(seed=1)
        first = 23 if same_steps else 11
        b.people = [f"p{i}" for i in range(first, first + 23)]
        for left, right in ((compressed(a), compressed(b)), (compressed(a), b), (copy.copy(a), compressed(b))):
            left.merge(right, same_steps=same_steps)
            expected = copy.copy(a)
            expected.merge(b, same_steps=same_steps)
            assert left.compressed and equal(left, expected)
    some = ["p20", "p3", "p8"]
    small = compressed(a)
    assert small.select(some).compressed and equal(small.select(some), a.select(some))
    for book in (a, small):
        book.add_people(["new", "newer"])
    assert small.compressed and equal(small, a)
    other = pa.Ledger(5, **{**STEP, "noise_multiplier": 7.0}, buckets=20)
    other.record(np.linspace(0.1, 1.0, 5))
    other.people = ["p1", "x", "y", "new", "z"]
    small.merge(other)
    a.merge(other)
    assert small.compressed and equal(small, a)


def test_ledgers_without_ids_merge_too():
    a, b = (pa.Ledger(23, buckets=20, **STEP) for _ in range(2))
    b.record(np.linspace(0.0, 1.0, 23))
    small = copy.copy(a)
    small.compress()
    small.merge(b)
    a.merge(b)
    assert equal(small, a)


@pytest.mark.parametrize("repeat", [1, 300, 9_000])
def test_a_saved_compressed_ledger_is_smaller_and_reads_back(tmp_path, repeat):
    dense = ledger(2000, repeat=repeat, buckets=256)
    small = compressed(dense)
    dense.save(tmp_path / "dense.npz")
    small.save(tmp_path / "small.npz")
    again = pa.Ledger.load(tmp_path / "small.npz")
    assert again.compressed and equal(again, small) and equal(again, dense)
    assert (tmp_path / "small.npz").stat().st_size < 0.6 * (tmp_path / "dense.npz").stat().st_size
    some = ["p0", "p500", "p1999"]
    both = [book.select(some).rdp_epsilon(1e-5, orders=[2, 8]) for book in (again, small)]
    assert np.array_equal(*both) and np.all(both[0] > 0.0)


def test_events_are_counted_into_compressed_blocks(monkeypatch):
    from pld_accountant import people_counts as module

    monkeypatch.setattr(module, "BLOCK", 7)
    rng = np.random.default_rng(0)
    events = {"person": rng.integers(0, 30, 500), "norm": rng.gamma(1.0, 0.4, 500)}
    dense = pa.Ledger.from_events(events, **STEP)
    small = pa.Ledger.from_events(events, compressed=True, **STEP)
    assert small.compressed and equal(small, dense)
    assert len(small._tally.blocks) == 5


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("bits1", lambda a: a[:-1]),
        ("bits0", lambda a: np.bitwise_or(a, 1)),
        ("bits0", lambda a: a[:, :2]),
        ("bits2", None),
        ("counts0", lambda a: a[:-1]),
        ("counts0", lambda a: a * 0),
        ("counts0", lambda a: np.where(np.arange(a.size) == 5, 200, a).astype(a.dtype)),
        ("counts1", lambda a: a.astype(np.float64)),
        ("short1", lambda a: a.astype(np.int64) - 1_000_000),
        ("short1", lambda a: a.astype(np.int64) + 1_000_000),
        ("short3", lambda a: a[:-1]),
    ],
)
def test_what_no_ledger_can_hold_is_refused(tmp_path, name, change):
    path = tmp_path / "ledger.npz"
    compressed(ledger()).save(path)
    about = {k: v for k, v in header(path).items() if k not in ("kind", "version")}
    _, arrays = load(path, KIND, 2)
    if change is None:
        del arrays[name]
    else:
        arrays[name] = np.ascontiguousarray(change(arrays[name]))
    save(path, KIND, 2, about, arrays)
    with pytest.raises(StoreError):
        pa.Ledger.load(path)


def test_progress_ends_with_everybody_and_seconds_are_those_of_all_blocks():
    seen = []
    dense = ledger(9)
    small = compressed(dense)
    small.epsilon(1e-5, progress=lambda *both: seen.append(both))
    assert seen[-1] == (9, 9) and seen == sorted(seen)
    assert np.all(small.epsilon(1e-5, seconds=1e-9).upper >= dense.epsilon(1e-5).lower)


@pytest.mark.parametrize("norms", [None, [0.0, 0.0, 0.0], [0.0, 0.0, 0.7]])
def test_people_without_steps_are_saved_and_loaded(tmp_path, monkeypatch, norms):
    monkeypatch.setattr("pld_accountant.counting.packed.BLOCK", 2)
    ledger = pa.Ledger(3, noise_multiplier=2, sample_rate=0.01, max_grad_norm=1)
    if norms is not None:
        ledger.record(norms, repeat=5)
    ledger.compress()
    ledger.save(tmp_path / "book")
    back = pa.Ledger.load(tmp_path / "book")
    assert back.compressed and back.steps == ledger.steps
    assert back.epsilon(1e-5) == ledger.epsilon(1e-5)
