"""Copies and pickles of everything public, before and after use: equal at first, independent afterwards."""

import copy
import pickle

import numpy as np
import pytest
from scipy import stats

import pld_accountant as pa
from pld_accountant.locked import held

STEP = {"noise_multiplier": 2.0, "sample_rate": 0.02, "max_grad_norm": 1.0}
FULL = {"noise_multiplier": 4.0, "max_grad_norm": 1.0}
THREE = {"num_examples": 3}
NORMS = [0.2, 0.6, 1.0]


def ask(book):
    """Bounds, which fill the memory of a ledger or a composition."""
    return np.asarray(book.epsilon(1e-3).upper)


def written(book):
    return [book.steps, repr(book), np.asarray(book.rdp_epsilon(1e-3)).tolist()]


def state(keep):
    return [np.asarray(part).tolist() for part in (keep.spent(), keep.headroom(), keep.active, keep.halted)]


def told(odometer):
    return [odometer.spent().tolist(), odometer.restarts.tolist(), odometer.epsilon(1e-5).tolist()]


def admit(keep):
    keep.admit(NORMS)


def record(book):
    book.record(NORMS)


def idle(_):
    """Objects without a state."""


BOOKS = {
    "Ledger": (lambda: pa.Ledger(3, buckets=4, **STEP), lambda b: (b.record(NORMS, repeat=999), ask(b)), written),
    "LaplaceLedger": (
        lambda: pa.LaplaceLedger(3, buckets=4, **STEP),
        lambda b: b.record(NORMS, repeat=9),
        lambda b: [b.epsilon(0).upper.tolist(), b.rdp_epsilon(1e-5).tolist()],
    ),
    "MechanismLedger": (
        lambda: pa.MechanismLedger(3),
        lambda b: b.record(pa.Laplace(9.0), [1, 2, 3]),
        lambda b: [b.epsilon(1e-5).upper.tolist(), b.steps],
    ),
    "Composition": (lambda: pa.compose([(pa.SampledGaussian(2.0, 0.1), 99)]), ask, written),
    "GaussianFilter": (lambda: pa.GaussianFilter(0.5, **THREE, **FULL), admit, state),
    "ZCDPFilter": (lambda: pa.ZCDPFilter(0.125, individual=False, **THREE, **FULL), admit, state),
    "RenyiFilter": (lambda: pa.RenyiFilter([0.1, 0.4], [2, 8], **THREE, **STEP), admit, state),
    "PureDPFilter": (lambda: pa.PureDPFilter([8.0, 4.0, 6.0], **THREE), admit, state),
    "ApproximateDPFilter": (lambda: pa.ApproximateDPFilter(8.0, 1e-5, **THREE), admit, state),
    "PLDFilter": (lambda: pa.PLDFilter(0.3, 1e-5, **THREE, **STEP), admit, lambda f: f._pld_state._counts.tolist()),
    "GaussianOdometer": (lambda: pa.GaussianOdometer([0.3, 0.4], **THREE, **FULL), record, told),
    "RenyiOdometer": (lambda: pa.RenyiOdometer(0.3, 8.0, **THREE, **FULL), record, told),
    "PotentialFilter": (lambda: pa.PotentialFilter(1.0, 1e-5, alpha=8.0, **THREE, **STEP), admit, state),
    "PotentialOdometer": (
        lambda: pa.PotentialOdometer([0.5, 1.0], 1e-5, alpha=8.0, **THREE, **STEP),
        record,
        lambda o: [o.epsilon().tolist(), o.spent().tolist()],
    ),
    "LinearQueries": (
        lambda: pa.LinearQueries(9.0, 0.5, **THREE, rng=np.random.default_rng(1)),
        lambda q: q.answer(NORMS),
        lambda q: [q.filter.spent().tolist(), q.noise, q.epsilon(1e-5)],
    ),
}
VALUES = {
    "PartitionJob": lambda: pa.PartitionJob(1e-5, 1.0, [(2.0, 0.01, 10)], columns={"person": "user"}),
    "Bounds": lambda: pa.compose([(pa.Gaussian(3.0), 2)]).epsilon(1e-5),
    "Gaussian": lambda: pa.Gaussian(2.0),
    "DiscretePair": lambda: pa.DiscretePair([0.5, 0.5], [0.25, 0.75]),
    "DensityPair": lambda: pa.DensityPair(stats.logistic(1.0), stats.logistic(0.0), 0.5),
    "ExponentialMechanism": lambda: pa.ExponentialMechanism(0.5),
    "GaussianMixture": lambda: pa.GaussianMixture(1.0, [0.0, 1.0], [0.5, 0.5]),
    "ReplaceOneSampledGaussian": lambda: pa.ReplaceOneSampledGaussian(2.0, 0.1),
    "LossDistribution": lambda: pa.LossDistribution([0.5, -0.5], [0.6, 0.3]),
    "RepeatedSelection": lambda: pa.RepeatedSelection(pa.compose([(pa.Laplace(2.0), 3)]), 4.0),
    "RenyiDP": lambda: pa.RenyiDP([2.0, 8.0], [0.1, 0.5]),
    "ZeroConcentratedDP": lambda: pa.ZeroConcentratedDP(0.1),
    "FixedSizeBatch": lambda: pa.FixedSizeBatch(2.0, 10, 100),
    "RandomAllocation": lambda: pa.RandomAllocation(2.0, 10, 2),
    "TruncatedPoisson": lambda: pa.TruncatedPoisson(2.0, 0.1, 20, 100),
    "Release": lambda: pa.Release(np.array([0.5]), ("everybody",), np.array([[3, 4]]), 1e-5, 1.0, 1.0),
    "Guarantee": lambda: pa.Ledger(1, **STEP).guarantee,
    "Laplace": lambda: pa.Laplace(3.0),
    "Method": lambda: pa.Method.TRANSFORM,
    "SampledGaussian": lambda: pa.SampledGaussian(2.0, 0.1),
    "Status": lambda: pa.Status.RENYI_ONLY,
}
COPIES = {"copy": copy.copy, "deepcopy": copy.deepcopy}
for protocol in (0, 2, pickle.HIGHEST_PROTOCOL):
    COPIES[f"pickle {protocol}"] = lambda one, protocol=protocol: pickle.loads(pickle.dumps(one, protocol))


def test_every_public_class_is_tried():
    assert BOOKS.keys() | VALUES.keys() == {name for name in pa.__all__ if isinstance(getattr(pa, name), type)}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", VALUES)
def test_a_copy_of_a_value_is_equal(name, how):
    one = VALUES[name]()
    assert type(one) is getattr(pa, name)
    assert COPIES[how](one) == one


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("name", BOOKS)
def test_a_copy_is_equal_at_first_and_independent_afterwards(name, used, how):
    make, use, read = BOOKS[name]
    one = make()
    if used:
        use(one)
    before = read(one)
    other = COPIES[how](one)
    assert type(other) is type(one)
    assert read(other) == before
    use(other)
    assert read(one) == before
    after, again = read(other), COPIES[how](one)
    assert name == "Composition" or after != before
    use(one)
    assert read(one) == after
    assert read(again) == before


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", ["Ledger", "Composition"])
def test_a_copy_gives_the_same_bounds(name, how):
    make, use, _ = BOOKS[name]
    one = make()
    use(one)
    assert ask(COPIES[how](one)) == pytest.approx(ask(one), rel=1e-3)


@pytest.mark.parametrize("how", COPIES)
def test_no_array_of_a_copy_is_shared(how):
    book = pa.Ledger(3, **STEP)
    book.record(NORMS)
    assert not np.shares_memory(COPIES[how](book).counts, book.counts)


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_has_a_lock_of_its_own(how):
    keep = pa.GaussianFilter(0.5, **THREE, **FULL)
    with held(keep):
        other = COPIES[how](keep)
        assert other._lock is not keep._lock
        assert other._lock.acquire(blocking=False)


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_queries_draws_other_noise(how):
    """Equal noise in two answers would cancel in their difference."""
    one = pa.LinearQueries(9.0, 0.5, **THREE, rng=np.random.default_rng(1))
    other = COPIES[how](one)
    assert one.answer(NORMS)[0] != other.answer(NORMS)[0]


def test_a_container_with_one_object_twice_stays_so():
    keep = pa.GaussianFilter(0.5, **THREE, **FULL)
    for how in (copy.deepcopy, COPIES["pickle 2"]):
        first, second = how([keep, keep])
        assert first is second
        assert first is not keep


def test_a_copy_that_was_loaded_from_a_file_keeps_its_lock(tmp_path):
    keep = pa.GaussianFilter(0.5, **THREE, **FULL)
    keep.admit(NORMS)
    keep.save(tmp_path / "state")
    other = pa.GaussianFilter(0.5, **THREE, **FULL)
    lock = other._lock
    other.load(tmp_path / "state")
    assert other._lock is lock
    assert state(other) == state(keep)


@pytest.mark.parametrize("how", COPIES)
def test_a_composition_of_discrete_losses_is_copied_after_use(how):
    one = pa.compose([(pa.RandomizedResponse(0.5), 9)])
    found = one.epsilon(1e-3)
    assert COPIES[how](one).epsilon(1e-3) == found


def test_what_follows_from_a_pair_is_not_pickled():
    step = pa.DiscreteGaussian(50.0)
    size = len(pickle.dumps(step))
    hash(step), step.law("remove"), step.noise_multiplier  # kept by the object
    assert len(pickle.dumps(step)) == size and pickle.loads(pickle.dumps(step)) == step
