"""Public objects in several threads: no step is lost and no budget is spent twice; and the lock itself."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.adaptive.stopping import TrainingAccuracy
from pld_accountant.locked import Locked, held, unlocked

STEP = {"noise_multiplier": 2.0, "sample_rate": 0.02, "max_grad_norm": 1.0}
FULL = {"noise_multiplier": 4.0, "max_grad_norm": 1.0}


@pytest.fixture
def switch_often():
    """Let the interpreter change threads a hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(threads, work):
    """Results of `work(number)` of threads that begin together."""
    meeting = threading.Barrier(threads, timeout=60)

    def begin(number):
        meeting.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


# -------------------------------------------------------------------------------------------------- filters, odometers

FILTERS = {
    "gaussian": lambda people, steps: pa.GaussianFilter((steps / 16) ** 0.5, num_examples=people, **FULL),
    "zcdp": lambda people, steps: pa.ZCDPFilter(steps / 32, num_examples=people, **FULL),
    "renyi": lambda people, steps: pa.RenyiFilter(steps / 4, 8, num_examples=people, **FULL),
    "orders": lambda people, steps: pa.RenyiFilter(
        [steps * 2e-3, steps * 8e-3], [2, 8], num_examples=people, **{**STEP, "noise_multiplier": 1.0}
    ),
    "one budget": lambda people, steps: pa.GaussianFilter(
        (steps / 16) ** 0.5, num_examples=people, individual=False, **FULL
    ),
}


def admitted(keep, norms, threads, calls):
    """Number of admissions of each person, over `calls` steps in each thread."""

    def work(_):
        return sum(keep.admit(norms).astype(int) for _ in range(calls))

    return sum(in_threads(threads, work))


@pytest.mark.parametrize("threads", [2, 8])
@pytest.mark.parametrize("kind", FILTERS)
def test_no_budget_is_spent_twice(kind, threads, switch_often):
    """2,000 people with budgets for 50 steps: 1e5 admissions."""
    norms = np.full(2_000, 1.0)
    alone, together = FILTERS[kind](norms.size, 50), FILTERS[kind](norms.size, 50)
    expected = sum(alone.admit(norms).astype(int) for _ in range(240))
    assert 0 < expected.min() <= expected.max() < 240
    assert np.array_equal(admitted(together, norms, threads, 240 // threads), expected)
    assert np.array_equal(together.spent(), alone.spent())


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("kind", FILTERS)
def test_no_budget_is_spent_twice_in_a_million_admissions(kind, threads, switch_often):
    norms = np.full(2_000, 1.0)
    alone, together = FILTERS[kind](norms.size, 500), FILTERS[kind](norms.size, 500)
    expected = sum(alone.admit(norms).astype(int) for _ in range(2_400))
    assert np.array_equal(admitted(together, norms, threads, 2_400 // threads), expected)


def test_no_budget_of_pure_steps_is_spent_twice(switch_often):
    alone, together = (pa.ApproximateDPFilter(1.0, 1e-5, num_examples=5_000) for _ in range(2))
    norms = np.full(5_000, 0.05)
    expected = sum(alone.admit(norms).astype(int) for _ in range(80))
    assert 0 < expected[0] < 80
    assert np.array_equal(admitted(together, norms, 4, 20), expected)


def test_no_budget_of_mu_is_spent_twice():
    alone, together = (pa.PLDFilter(0.2, 1e-5, num_examples=200, **STEP) for _ in range(2))
    norms = np.linspace(0.5, 1.0, 200)
    expected = sum(alone.admit(norms).astype(int) for _ in range(400))
    assert 0 < expected.min() < 400
    assert np.array_equal(admitted(together, norms, 4, 100), expected)


@pytest.mark.parametrize("make", [
    lambda: pa.RenyiOdometer(1.0, 8.0, num_examples=2_000, **FULL),
    lambda: pa.GaussianOdometer(0.5, num_examples=2_000, **FULL),
])  # fmt: skip
def test_no_step_of_an_odometer_is_lost(make, switch_often):
    alone, together, norms = make(), make(), np.linspace(0.0, 1.0, 2_000)
    for _ in range(160):
        alone.record(norms)

    def work(_):
        for _ in range(40):
            together.record(norms)

    in_threads(4, work)
    assert np.array_equal(together.restarts, alone.restarts)
    assert np.array_equal(together.spent(), alone.spent())


def test_no_query_is_forgotten(switch_often):
    ask = pa.LinearQueries(400.0, 0.5, num_examples=3_000)
    in_threads(4, lambda _: [ask.answer(np.ones(3_000)) for _ in range(50)])
    assert ask.filter.spent() == pytest.approx(np.full(3_000, 0.25), rel=1e-9)


def test_two_runs_under_one_filter_stay_within_it(switch_often):
    """The headroom that a step is clipped to is that of the moment of booking: no step is refused, or halts all."""
    keep = pa.GaussianFilter(2.0, num_examples=1_000, individual=False, **FULL)

    def work(number):
        rng = np.random.default_rng(number)
        gradients = np.ones((1_000, 1))
        return pa.descend(lambda p: gradients, [0.0], keep, learning_rate=0.1, steps=32, rng=rng)

    in_threads(2, work)
    assert keep.spent() == pytest.approx(np.full(1_000, 2.0), rel=1e-9)
    assert not keep.halted


def test_a_stopping_rule_counts_every_evaluation(switch_often):
    rule = TrainingAccuracy(lambda _: np.ones(1), noise=1.0, patience=10**9)
    in_threads(4, lambda _: [rule.decide(-1.0) for _ in range(5_000)])
    assert rule._since == 20_000 - 1  # the first was a new largest sum


# ---------------------------------------------------------------------------------------------------------- the ledger


def test_no_step_of_a_ledger_is_lost(switch_often):
    """Threads with noise multipliers of their own make groups of buckets for each other meanwhile."""
    book = pa.Ledger(20_000, buckets=16, **STEP)
    norms = np.full((3, 20_000), 0.7)

    def work(number):
        for _ in range(20):
            book.record(norms, noise_multiplier=2.0 * 3.0**number)

    in_threads(6, work)
    assert book.steps == 6 * 60
    assert sorted(steps for _, _, steps in book.schedule) == [60] * 6
    assert np.all(book.counts.sum(axis=1, dtype=np.int64) == 6 * 60)


def test_counters_are_widened_once(switch_often):
    book = pa.Ledger(20_000, buckets=4, **STEP)
    in_threads(4, lambda _: [book.record(np.ones(20_000), repeat=6_000) for _ in range(4)])
    assert np.all(book.counts.sum(axis=1, dtype=np.int64) == 96_000)


def test_bounds_of_a_ledger_are_those_of_some_moment():
    """Between two calls of `record`, of which each doubles the steps."""
    book, alone = (pa.Ledger(100, buckets=16, **STEP) for _ in range(2))
    norms = np.linspace(0.5, 1.0, 100)
    book.record(norms, repeat=100)
    alone.record(norms, repeat=100)
    moments = [alone.epsilon(1e-5).upper]
    for k in range(4):
        alone.record(norms, repeat=100 * 2**k)
        moments.append(alone.epsilon(1e-5).upper)

    def work(number):
        if number:
            return [book.epsilon(1e-5).upper for _ in range(3)]
        for k in range(4):
            book.record(norms, repeat=100 * 2**k)
        return []

    # the upper bounds also depend on earlier questions, by less than 2 %
    for found in [upper for some in in_threads(3, work) for upper in some]:
        assert any(np.all(abs(found / moment - 1.0) < 0.05) for moment in moments)
    assert book.epsilon(1e-5).upper == pytest.approx(moments[-1], rel=0.05)


def test_two_ledgers_that_are_merged_into_each_other_do_not_wait_for_ever(switch_often):
    first, second = (pa.Ledger(2_000, buckets=16, **STEP) for _ in range(2))
    for book in (first, second):
        book.record(np.ones(2_000))

    def work(number):
        for _ in range(8):
            first.merge(second) if number else second.merge(first)

    in_threads(2, work)
    for book in (first, second):
        assert np.all(book.counts.sum(axis=1, dtype=np.int64) == book.steps)


def test_a_ledger_can_be_merged_into_itself():
    book = pa.Ledger(3, **STEP)
    book.record([0.1, 0.5, 1.0])
    book.merge(book)
    assert book.steps == 2
    assert book.counts.sum(axis=1).tolist() == [2, 2, 2]


def test_one_composition_answers_several_threads():
    deltas = [1e-3, 1e-4, 1e-5, 1e-6]
    alone, together = (pa.compose([(pa.SampledGaussian(1.0, 0.01), 500)]) for _ in range(2))
    expected = [alone.epsilon(delta).upper for delta in deltas]
    assert in_threads(4, lambda k: together.epsilon(deltas[k]).upper) == pytest.approx(expected, rel=1e-9)


# ------------------------------------------------------------------------------------------------------------ the lock


class Counter(Locked):
    def __init__(self):
        self._value = 0

    def add(self):
        value = self._value
        os.sched_yield()
        self._value = value + 1

    @property
    def busy(self):
        """Whether the lock is held; always."""
        return not is_free(self)

    def _inside(self):
        return not is_free(self)

    @unlocked
    def free(self):
        return is_free(self)


class Twice(Counter):
    def add(self):
        super().add()
        super().add()


def is_free(one):
    """Whether another thread could take the lock."""
    return in_threads(1, lambda _: one._lock.acquire(blocking=False) and (one._lock.release() or True))[0]


def test_public_methods_and_properties_hold_the_lock_and_others_do_not():
    one = Counter()
    assert one.busy
    assert Counter.busy.__doc__ == "Whether the lock is held; always."
    assert not one._inside()
    assert one.free()
    with held(one):
        assert one._inside()


@pytest.mark.parametrize(("make", "each"), [(Counter, 1), (Twice, 2)])
def test_calls_do_not_overlap(make, each, switch_often):
    one = make()
    in_threads(4, lambda _: [one.add() for _ in range(500)])
    assert one._value == 2_000 * each


def test_the_lock_is_free_after_an_error():
    book = pa.Ledger(2, **STEP)
    with pytest.raises(ValueError, match="nan"):
        book.record([1.0, np.nan])
    assert is_free(book)


@pytest.mark.parametrize("name", sorted(pa.__all__))
def test_every_public_object_with_a_state_has_a_lock(name):
    one = getattr(pa, name)
    stateless = {
        "Bounds",
        "DensityPair",
        "DiscretePair",
        "ExponentialMechanism",
        "FixedSizeBatch",
        "Gaussian",
        "GaussianMixture",
        "Guarantee",
        "Laplace",
        "LossDistribution",
        "Method",
        "PartitionJob",
        "RandomAllocation",
        "Release",
        "RenyiDP",
        "RepeatedSelection",
        "ReplaceOneSampledGaussian",
        "SampledGaussian",
        "Status",
        "TruncatedPoisson",
        "ZeroConcentratedDP",
    }
    assert not isinstance(one, type) or issubclass(one, Locked) == (name not in stateless)


def test_what_an_object_was_made_with_stays():
    ledger = pa.Ledger(3, **STEP)
    for name, value in (("num_examples", 2), ("max_grad_norm", 5.0), ("noise_multiplier", 9.0)):
        with pytest.raises(AttributeError):
            setattr(ledger, name, value)
    ledger.people = ["a", "b", "c"]
    ledger.add_people(["d"])
    assert ledger.num_examples == 4 and ledger.max_grad_norm == 1.0
    with pytest.raises(AttributeError):
        pa.GaussianFilter(1.0, num_examples=3, **FULL).individual = False
