"""Caps, steps and the ledger of a run, without a training library."""

import copy
import os
import pickle
import threading

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.files import store
from pld_accountant.files.store import StoreError
from pld_accountant.training.individual import IndividualSteps, refresh_schedule
from pld_accountant.training.journal import Journal, relative

RUN = {"noise_multiplier": 1.5, "sample_rate": 0.02, "max_grad_norm": 2.0}
OTHER = {"noise_multiplier": 3.0, "sample_rate": 0.02, "max_grad_norm": 2.0}
NORMS = np.array([0.0, 0.3, 1.0, 5.0])


def steps_of(**options):
    return IndividualSteps(4, **{**RUN, **options})


def test_the_ledger_counts_exactly_the_caps_that_were_returned():
    run, by_hand, rng = steps_of(refresh=3, slack=1.25), pa.Ledger(4, **RUN), np.random.default_rng(0)
    for _ in range(20):
        if run.due:
            run.refresh(NORMS * rng.uniform(0.5, 2, 4))
        by_hand.record(run.begin())
    assert run.refreshes == 7 and run.steps == run.ledger.steps == 20
    np.testing.assert_array_equal(run.ledger.counts, by_hand.counts)
    assert run.epsilon(1e-5) == by_hand.epsilon(1e-5)


def test_caps_are_slack_times_the_norm_and_at_most_the_clipping_norm():
    run = steps_of(slack=1.5)
    run.refresh(NORMS)
    np.testing.assert_array_equal(run.begin(), [0.0, 0.3 * 1.5, 1.5, 2.0])


@pytest.mark.parametrize("clip", [0.5, 2.0, 8.0, 1 / 3])
def test_a_changed_clipping_norm_counts_as_the_same_relative_cap(clip):
    """Noise is sigma times the new clipping norm, so the relative cap decides; it is never rounded down."""
    run, reference = steps_of(), pa.Ledger(4, **{**RUN, "max_grad_norm": clip})
    run.refresh(NORMS)
    for _ in range(50):
        caps = run.begin(1.2, clip)
        reference.record(caps, noise_multiplier=1.2)
    assert caps.max() <= clip
    found, true = run.epsilon(1e-5), reference.epsilon(1e-5)
    assert np.all(found.upper >= true.lower) and np.all(found.lower <= true.upper)
    assert np.all(found.upper <= true.upper * (1 + 1e-9) + 1e-12)


def test_a_step_before_the_first_refresh_is_refused():
    with pytest.raises(RuntimeError, match="needs a refresh"):
        steps_of().begin()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_a_bad_norm_changes_nothing(bad):
    run = steps_of()
    run.refresh(NORMS)
    before = run.caps
    with pytest.raises(ValueError, match="example 2"):
        run.refresh([0.1, 0.1, bad, 0.1])
    np.testing.assert_array_equal(run.caps, before)


def test_modes_and_their_guarantees():
    exact = steps_of(mode="exact")
    for _ in range(3):
        assert exact.due
        exact.refresh(NORMS)
        np.testing.assert_array_equal(exact.begin(), np.minimum(NORMS, 2.0))
    assert not exact.guarantee.proven_adaptive and "diagnostic" in exact.guarantee.sentence
    fixed = steps_of(refresh=[0])
    fixed.refresh(NORMS)
    for _ in range(3):
        fixed.begin()
        assert not fixed.due
    assert fixed.guarantee.proven_adaptive and "did not depend on the data" in fixed.guarantee.sentence


@pytest.mark.parametrize("other", [{"noise_multiplier": 0.7}, {"max_grad_norm": 1.0}])
@pytest.mark.parametrize("restart", ["none", "checkpoint", "journal"])
def test_other_noise_or_clipping_may_depend_on_releases(other, restart, tmp_path):
    """The theorem of fixed caps is one of steps that were fixed beforehand."""
    with Journal(tmp_path / "log", 4, max_grad_norm=2.0) as journal:
        run = steps_of(refresh=[0], journal=journal)
        run.refresh(NORMS)
        run.begin()
        run.begin()
        assert run.guarantee.proven_adaptive
        run.begin(**other)
        run.save(tmp_path / "run")
    with Journal(tmp_path / "log", 4, max_grad_norm=2.0) as journal:
        if restart != "none":
            run = steps_of(refresh=[0], journal=journal)
        if restart == "checkpoint":
            run.load(tmp_path / "run")
        assert not run.guarantee.proven_adaptive and "may have depended" in run.guarantee.sentence
        assert run.steps == 3


def test_a_checkpoint_that_does_not_say_whether_steps_varied_claims_nothing(tmp_path):
    run = steps_of(refresh=[0])
    run.refresh(NORMS)
    run.begin()
    run.save(tmp_path / "run")
    again = steps_of(refresh=[0])
    again.load(tmp_path / "run")
    assert again.guarantee.proven_adaptive
    header, arrays = store.load(tmp_path / "run", "pld-accountant training run", 1)
    del header["setting"], header["varied"]
    store.save(tmp_path / "run", "pld-accountant training run", 1, header, arrays)
    again.load(tmp_path / "run")
    assert not again.guarantee.proven_adaptive


def test_people_drawn_anew_do_not_take_over_the_journal_of_others(tmp_path):
    """Of a process that was killed before its first checkpoint."""

    def run(journal, **options):
        return IndividualSteps(1000, **RUN, mode="watched", journal=journal, **options)

    path = tmp_path / "log"
    with Journal(path, 5, max_grad_norm=2.0) as journal:
        first = run(journal, watched=5)
        first.refresh(np.linspace(0.1, 1.0, 5))
        first.begin()
        expected = first.epsilon(1e-5).upper
    with Journal(path, 5, max_grad_norm=2.0) as journal:
        with pytest.raises(ValueError, match="drawn at random"):
            run(journal, watched=5).epsilon(1e-5)
        named = run(journal, watched=first.people)
        np.testing.assert_array_equal(named.epsilon(1e-5).upper, expected)
    with Journal(tmp_path / "other", 5, max_grad_norm=2.0) as journal:
        for _ in range(2):  # a seed draws the same people
            seeded = run(journal, watched=5, seed=3)
            if not seeded.steps:
                seeded.refresh(np.ones(5))
                seeded.begin()


def test_watched_people_are_exact_and_the_others_are_clipped_at_the_clipping_norm():
    run = steps_of(mode="watched", watched=[2, 1])
    np.testing.assert_array_equal(run.people, [1, 2])
    run.refresh(NORMS[run.people])
    np.testing.assert_array_equal(run.begin(), [2.0, 0.3, 1.0, 2.0])
    assert len(run.epsilon(1e-5)) == 2
    chosen = IndividualSteps(100, **RUN, mode="watched", watched=10, seed=3).people
    assert len(np.unique(chosen)) == 10
    for bad in ([0, 0], [4], [-1], [0.5], 0, []):
        with pytest.raises(ValueError, match="watched"):
            steps_of(mode="watched", watched=bad)


def test_observed_norms_give_an_estimate_and_no_bounds():
    run = steps_of(mode="observed")
    assert not run.due
    np.testing.assert_array_equal(run.begin(), np.full(4, 2.0))  # nobody is clipped differently
    run.observe([1, 3], [0.25, 9.0])
    for _ in range(9):
        run.begin()
    by_hand = pa.Ledger(4, **RUN)
    by_hand.record(np.full(4, 2.0))
    by_hand.record([2.0, 0.25, 2.0, 2.0], repeat=9)
    np.testing.assert_array_equal(run.estimate(1e-5), by_hand.epsilon(1e-5, bounds="upper").upper)
    with pytest.raises(RuntimeError, match="estimates only"):
        run.epsilon(1e-5)
    assert run.guarantee.kind == "estimate" and "not bounds" in run.guarantee.sentence
    with pytest.raises(RuntimeError, match="who was sampled"):
        steps_of().observe([1], [0.1])
    with pytest.raises(RuntimeError, match="call epsilon"):
        steps_of().estimate(1e-5)


def test_the_filter_is_charged_with_the_caps_and_its_refusals_are_caps_of_zero():
    keep = pa.RenyiFilter.for_epsilon(0.5, 1e-5, num_examples=4, **RUN)
    twin = pa.RenyiFilter.for_epsilon(0.5, 1e-5, num_examples=4, **RUN)
    run = steps_of(keep=keep, refresh=10)
    for _ in range(200):
        if run.due:
            run.refresh(NORMS)
        caps = run.begin()
        full = np.minimum(NORMS * 1.1, 2.0)
        np.testing.assert_array_equal(caps, np.where(twin.admit(full), full, 0.0))
    assert caps[3] == 0 < caps[1]
    assert np.all(run.epsilon(1e-5).upper <= 0.5)
    assert run.guarantee.proven_adaptive


FILTERS = {
    "Renyi": lambda: pa.RenyiFilter.for_epsilon(0.5, 1e-5, num_examples=4, **RUN),
    "potential": lambda: pa.PotentialFilter([0.5, 0.6, 0.5, 0.7], 1e-5, num_examples=4, alpha=12.0, **RUN),
}


@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.parametrize("seed", range(3))
def test_stretches_admit_and_charge_what_single_steps_do(kind, seed, tmp_path):
    """Refreshes, changes of noise and clipping norm, answers and checkpoints at any step."""
    keep, twin, rng = FILTERS[kind](), FILTERS[kind](), np.random.default_rng(seed)
    run, noise, clip, by_hand = steps_of(keep=keep, refresh=7), None, None, pa.Ledger(4, **RUN)
    for step in range(150):
        if run.due:
            run.refresh(NORMS * rng.uniform(0.5, 2))
        if rng.random() < 0.1:
            noise, clip = rng.choice([1.5, 1.6]), rng.choice([1.0, 2.0])
        full = np.minimum(run._norms, 2.0 if clip is None else clip)
        mask = twin.admit(full, noise_multiplier=noise, max_grad_norm=clip)
        caps = run.begin(noise, clip)
        np.testing.assert_array_equal(caps, np.where(mask, full, 0.0), err_msg=str(step))
        by_hand.record(relative(caps, clip or 2.0, 2.0), noise_multiplier=noise)
        assert np.all(keep.units_left <= twin.units_left)  # charged beforehand, never afterwards
        if rng.random() < 0.1:
            assert run.ledger.steps == step + 1
            np.testing.assert_array_equal(run.ledger.counts, by_hand.counts)
            np.testing.assert_array_equal(keep.units_left, twin.units_left)
        if rng.random() < 0.05:
            run.save(tmp_path / "run")
            keep = FILTERS[kind]()
            run = steps_of(keep=keep, refresh=7)
            run.load(tmp_path / "run")
    assert not mask[3] and not twin.admit(np.full(4, 2.0))[3]  # the budget of somebody was spent on the way


def test_charges_from_elsewhere_are_not_given_back():
    keep = FILTERS["Renyi"]()
    run = steps_of(keep=keep, refresh=100)
    run.refresh(NORMS)
    run.begin()
    keep.admit(NORMS)
    spent = keep.units_left
    run.ledger  # noqa: B018
    np.testing.assert_array_equal(keep.units_left, spent)


def test_charges_of_another_thread_meanwhile_are_not_given_back(monkeypatch):
    keep, twin = FILTERS["Renyi"](), FILTERS["Renyi"]()
    run = steps_of(keep=keep, refresh=100)
    run.refresh(NORMS)
    other = threading.Thread(target=keep.admit, args=(NORMS,))

    def meanwhile(*row, admitted=run._admitted, **steps):
        found = admitted(*row, **steps)
        other.start()
        other.join(0.2)  # it waits until the stretch has been charged
        return found

    monkeypatch.setattr(run, "_admitted", meanwhile)
    run.begin()
    other.join()
    run.ledger  # noqa: B018
    twin.admit(np.minimum(NORMS * 1.1, 2.0))
    twin.admit(NORMS)
    assert np.all(keep.units_left <= twin.units_left)


@pytest.mark.parametrize(("place", "name"), [(pa.Ledger, "record"), (pa.RenyiFilter, "admit")])
def test_an_interrupted_answer_loses_no_step(place, name, tmp_path, monkeypatch):
    keep, twin = FILTERS["Renyi"](), FILTERS["Renyi"]()
    run, path = steps_of(keep=keep, refresh=100), tmp_path / "run"
    run.refresh(NORMS)
    caps = [run.begin() for _ in range(40)]
    twin.admit(caps[0], steps=40)

    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.ledger  # noqa: B018
    run.save(path)
    again = steps_of(keep=FILTERS["Renyi"](), refresh=100)
    again.load(path)
    for one in (run, again):
        assert one.ledger.steps >= one.steps == 40
        assert np.all(one.ledger.counts.sum(axis=1) >= [0, 40, 40, 1])
        assert np.all(one.keep.units_left <= twin.units_left)


def test_a_full_disk_charges_no_step_that_was_not_taken(tmp_path, monkeypatch):
    keep, twin = FILTERS["Renyi"](), FILTERS["Renyi"]()
    journal = Journal(tmp_path / "journal", 4, max_grad_norm=2.0)
    run = steps_of(keep=keep, refresh=100, journal=journal)
    run.refresh(NORMS)
    run.begin()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_disk)
        with pytest.raises(OSError, match="No space"):
            run.begin()
    size = os.path.getsize(tmp_path / "journal")
    run.begin()
    assert os.path.getsize(tmp_path / "journal") == size + 37  # a step, and no second row
    assert run.ledger.steps == 2
    twin.admit(np.minimum(NORMS * 1.1, 2.0), steps=2)
    np.testing.assert_array_equal(keep.units_left, twin.units_left)


def full_disk(*_arguments):
    raise OSError(28, "No space left on device")


def test_arguments_are_checked():
    keep = pa.RenyiFilter.for_epsilon(1.0, 1e-5, num_examples=4, **RUN)
    one_for_all = pa.RenyiFilter.for_epsilon(1.0, 1e-5, num_examples=4, individual=False, **RUN)
    full_batch = pa.GaussianFilter(1.0, num_examples=4, noise_multiplier=1.0, max_grad_norm=2.0)
    for options, words in [
        ({"mode": "cap"}, "mode must be"),
        ({"slack": 0.9}, "slack"),
        ({"slack": np.nan}, "slack"),
        ({"refresh": 0}, "refresh"),
        ({"refresh": [1, 2]}, "step 0"),
        ({"refresh": lambda step: False}, "step 0"),
        ({"mode": "exact", "refresh": 5}, "refresh"),
        ({"keep": keep, "mode": "observed"}, "keep"),
        ({"keep": full_batch}, "sampled steps"),
        ({"keep": one_for_all}, "individual=True"),
        ({"keep": pa.PureDPFilter(1.0, num_examples=4)}, "sampled steps, such as RenyiFilter, got PureDPFilter"),
        (
            {"keep": pa.PotentialFilter(1.0, 1e-5, num_examples=4, alpha=8.0, **OTHER)},
            "noise_multiplier must be at least",
        ),
    ]:
        with pytest.raises(ValueError, match=words):
            steps_of(**options)
    with pytest.raises(ValueError, match="same 5 people"):
        IndividualSteps(5, **RUN, keep=keep)


def test_a_run_of_full_batches_takes_a_filter_of_full_batches():
    keep = pa.GaussianFilter(1.0, num_examples=4, noise_multiplier=4.0, max_grad_norm=2.0)
    step = {"noise_multiplier": 4.0, "sample_rate": 1.0, "max_grad_norm": 2.0}
    run = IndividualSteps(4, **step, refresh=[0], slack=1.0, keep=keep)
    run.refresh([0.0, 1.0, 2.0, 9.0])
    caps = np.array([run.begin() for _ in range(20)])
    run.ledger  # settles what is booked  # noqa: B018
    assert (caps > 0.0).sum(axis=0).tolist() == [0, 20, 16, 16]
    assert keep.spent() == pytest.approx([0.0, np.sqrt(20) / 8, 1.0, 1.0])
    with pytest.raises(ValueError, match="Gaussian steps, such as RenyiFilter, got PureDPFilter"):
        IndividualSteps(4, **step, keep=pa.PureDPFilter(1.0, num_examples=4))


def test_schedules():
    early = [step for step in range(1200) if refresh_schedule()(step)]
    assert early == [0, 5, 10, 20, 30, 45, 70, 100, 150, 200, 250, 300, 500, 750, 1000]
    assert [s for s in range(9) if refresh_schedule(4)(s)] == [0, 4, 8]
    assert [s for s in range(9) if refresh_schedule([0, 7])(s)] == [0, 7]


@pytest.mark.parametrize("mode", ["caps", "exact", "watched", "observed"])
def test_a_resumed_run_goes_on_like_one_that_was_never_stopped(tmp_path, mode):
    def make():
        keep = pa.RenyiFilter.for_epsilon(0.5, 1e-5, num_examples=4, **RUN) if mode in ("caps", "exact") else None
        return steps_of(mode=mode, keep=keep, **({"watched": [0, 3]} if mode == "watched" else {}))

    def go(run, first, last):
        for step in range(first, last):
            if run.due:
                run.refresh((NORMS * (1 + step / 50))[run.people])
            caps = run.begin()
            if mode == "observed":
                run.observe([step % 4], [1.0 + step / 100])
        return caps

    whole, stopped, resumed = make(), make(), make()
    expected = go(whole, 0, 60)
    go(stopped, 0, 37)
    stopped.save(tmp_path / "run")
    resumed.load(tmp_path / "run")
    np.testing.assert_array_equal(go(resumed, 37, 60), expected)
    assert (resumed.steps, resumed.refreshes) == (whole.steps, whole.refreshes)
    for run in (whole, resumed):
        run.numbers = run.estimate(1e-5) if mode == "observed" else run.epsilon(1e-5).upper
    np.testing.assert_array_equal(resumed.numbers, whole.numbers)


def test_a_file_of_another_run_is_refused_and_changes_nothing(tmp_path):
    run = steps_of()
    run.refresh(NORMS)
    run.begin()
    run.save(tmp_path / "run")
    other = steps_of(slack=2.0)
    with pytest.raises(StoreError, match="slack"):
        other.load(tmp_path / "run")
    assert other.steps == 0
    content = bytearray((tmp_path / "run").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "run").write_bytes(content)
    with pytest.raises(StoreError):
        steps_of().load(tmp_path / "run")


def test_files_with_right_checksums_and_wrong_content_are_refused_or_whole(tmp_path):
    """One class of error, and a run that was refused its file is unchanged."""

    def make():
        return steps_of(keep=FILTERS["Renyi"](), refresh=5)

    run, fresh, rng, path = make(), make(), np.random.default_rng(0), tmp_path / "run"
    for _ in range(8):
        if run.due:
            run.refresh(NORMS)
        run.begin()
    run.save(path)
    header, arrays = store.load(path, "pld-accountant training run", 1)
    refused = 0
    for _ in range(300):
        changed, parts = dict(header), {name: array.copy() for name, array in arrays.items()}
        name = rng.choice(list(changed) if rng.random() < 0.5 else list(parts))
        if name in changed:
            values = [None, -1, 0, 1, 10**30, 0.5, "x", [], {}, True, False]
            changed[name] = values[rng.integers(len(values))]
        elif rng.random() < 0.3:
            parts[name] = parts[name][: rng.integers(len(parts[name]) + 1)].astype(rng.choice(["f4", "f8", "i8", "u1"]))
        else:
            place = rng.integers(parts[name].size)
            values = [0, 1, 255] if parts[name].dtype == np.uint8 else [-1, 0, 5]
            values += [np.nan, np.inf] if parts[name].dtype.kind == "f" else []
            parts[name].flat[place] = values[rng.integers(len(values))]
        store.save(path, "pld-accountant training run", 1, changed, parts)
        other = copy.deepcopy(fresh)
        try:
            other.load(path)
        except StoreError:
            refused += 1
            assert other.steps == 0 and other.keep.spent().max() == 0
            other.refresh(NORMS)
        else:
            other.due  # noqa: B018
            other.save(tmp_path / "again")
    assert 100 < refused < 300


@pytest.mark.parametrize("refresh", [None, 7, [0, 3], abs])
def test_schedules_of_refreshes_are_pickled(refresh):
    schedule = refresh_schedule(refresh)
    again = pickle.loads(pickle.dumps(schedule))
    assert [again(step) for step in range(400)] == [schedule(step) for step in range(400)]
