"""What is asked: each target keeps its digits, and a person's own target is as good as one for all."""

import numpy as np
import pytest

from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import solver
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.results import Method, Status
from pld_accountant.tables.makers import TableMakers

COUNTS = WholeCounts(np.array([[0, 0], [0, 1], [1, 0], [5, 800], [0, 3000]]))
TARGETS = {EpsilonAt: (1e-5, 1e-12, 1e-100), DeltaAt: (0.3, 1.0, 2.5)}


@pytest.fixture(scope="module", params=["remove", "add"])
def makers(request):
    return TableMakers(SampledGaussianSteps([2.0, 4.0], [0.01, 0.02], request.param))


@pytest.mark.parametrize("kind", [EpsilonAt, DeltaAt])
def test_each_persons_own_target_equals_one_for_all(makers, kind):
    """To the last bit if all targets are equal; else each person's bounds contain what the person gets alone."""
    for target in TARGETS[kind]:
        one, each = (solver.solve(COUNTS, makers, kind(t)) for t in (target, np.full(5, target)))
        for name in ("lower", "estimate", "upper", "method"):
            np.testing.assert_array_equal(getattr(each, name), getattr(one, name))
    own = np.resize(TARGETS[kind], 5)
    found = solver.solve(COUNTS, makers, kind(own))
    assert found.solved.all()
    for person, target in enumerate(own):
        alone = solver.solve(COUNTS.of(np.array([person])), makers, kind(float(target)))
        assert max(found.lower[person], alone.lower[0]) <= min(found.upper[person], alone.upper[0])
        np.testing.assert_allclose(found.upper[person], alone.upper[0], rtol=1e-6)


def test_the_questions_to_some_people_are_those_that_were_put_to_them():
    own = np.array([1e-3, 1e-5, 1e-7])
    some = np.array([2, 0])
    assert EpsilonAt(own).of(some).delta.tolist() == [1e-7, 1e-3]
    assert DeltaAt(own).of(some).epsilon.tolist() == [1e-7, 1e-3]
    assert EpsilonAt(1e-5).of(some) == EpsilonAt(1e-5)
    assert DeltaAt(2.0).targets(3).tolist() == [2.0] * 3


@pytest.mark.parametrize("delta", [0.9, 1e-5, 1e-100, 5e-324, 1.0 - 2.0**-53])
def test_a_delta_keeps_its_digits(delta):
    """The question holds delta itself, whose logarithm loses digits when it is close to 0 or far from it."""
    assert EpsilonAt(delta).delta == delta
    assert EpsilonAt(delta).target == np.log(delta)
    assert EpsilonAt(delta).targets(2).tolist() == [np.log(delta)] * 2
    assert EpsilonAt(delta).loosened(0.0).delta == delta
    assert EpsilonAt(delta).loosened(1e-12).delta >= delta


@pytest.mark.parametrize("share", [1e-15, 1e-13, 1e-9])
def test_one_step_keeps_the_digits_of_a_delta_just_below_the_sample_rate(share):
    """With hardly any noise epsilon is log(1 + share q / (q - share q)) or so: the last digits of delta decide it."""
    q = 1e-30
    makers = TableMakers(SampledGaussianSteps([0.02], [q], "remove"))
    delta = q * (1.0 - share)
    one = solver.solve(WholeCounts(np.array([[1]])), makers, EpsilonAt(delta))
    each = solver.solve(WholeCounts(np.array([[1], [1]])), makers, EpsilonAt(np.array([delta, delta])))
    assert each.lower.tolist() == [one.lower[0]] * 2
    assert each.upper.tolist() == [one.upper[0]] * 2


def test_an_epsilon_keeps_its_digits_and_a_tiny_delta_is_not_0(makers):
    steps, person = makers.steps, np.array([[0, 1]])
    tiny, near = (solver.bounds(WholeCounts(person), makers, [DeltaAt(e)])[0] for e in (0.5, np.nextafter(0.5, 1.0)))
    assert near.upper[0] <= tiny.upper[0]
    if steps.direction == "remove":
        (far,) = solver.bounds(WholeCounts(person), makers, [DeltaAt(3.0)])
        assert 0.0 < far.lower[0] <= far.upper[0] < 1e-150


def test_bounds_of_delta_are_rounded_outwards():
    log_delta = np.array([-1.0, -700.0, -740.0, -800.0, -np.inf, 0.0, np.inf])
    status, method = np.zeros(7, dtype=np.uint8), np.full(7, Method.TRANSFORM, dtype=np.uint8)
    found = DeltaAt(1.0).bounds(log_delta, log_delta, log_delta, status, method)
    with np.errstate(over="ignore"):
        exact = np.exp(np.minimum(log_delta, 0.0))
    assert np.all(found.lower <= exact)
    assert np.all(found.upper >= exact)
    assert np.all((found.lower < exact) | (exact == 0.0))
    assert found.lower[3] == found.lower[4] == found.upper[4] == 0.0
    assert found.upper[3] > 0.0
    assert found.upper[5] == 1.0
    assert found.upper[6] == np.inf
    assert found.status.tolist() == [Status.CERTIFIED] * 7
