"""Closed forms: people with a single step get exactly what their step has at their own target."""

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine.closed_forms import single_steps
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.engine.working import WorkingBounds
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps


def settled(steps, counts, question):
    working = WorkingBounds.unknown(len(counts), question)
    single_steps(WholeCounts(counts), steps, question, working, np.arange(len(counts)))
    return working


@pytest.mark.parametrize("q", [1e-300, 1e-5, 0.3])
def test_each_persons_delta_keeps_all_its_digits(q):
    """Just below q, where one step's epsilon begins, the last digits of delta decide: a logarithm would lose them."""
    steps = SampledGaussianSteps(np.array([0.05]), np.array([q]), "remove")
    delta = q * (1.0 - 1e-12 * np.random.default_rng(0).uniform(0.5, 2.0, 50))
    found = settled(steps, np.ones((50, 1), dtype=np.uint16), EpsilonAt(delta))
    lower, upper = steps.epsilon_of_step(delta, np.zeros(50, dtype=int))
    np.testing.assert_array_equal(found.lower, lower)
    np.testing.assert_array_equal(found.upper, upper)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("question", [EpsilonAt(1e-5), EpsilonAt(np.array([1e-5, 1e-9, 1e-5])), DeltaAt(0.01)])
def test_people_with_one_step_are_settled_one_by_one(direction, question):
    steps = SampledGaussianSteps(np.array([2.0, 1.0]), np.array([0.01, 0.01]), direction)
    counts = np.array([[1, 0], [0, 1], [0, 1]], dtype=np.uint16)
    found = settled(steps, counts, question)
    assert found.solved.all()
    for i, row in enumerate((0, 1, 1)):
        here = np.array([row])
        if isinstance(question, EpsilonAt):
            lower, upper = steps.epsilon_of_step(np.broadcast_to(question.delta, 3)[[i]], here)
        else:
            lower, upper = steps.log_delta_of_step(np.array([question.epsilon]), here)
        assert found.lower[i] == pytest.approx(lower[0], rel=1e-12)
        assert found.upper[i] == pytest.approx(upper[0], rel=1e-12)


@pytest.mark.parametrize(
    ("steps", "most"),
    [([(pa.Laplace(1.0), 3), (pa.Laplace(2.0), 2)], 4.0), ([(pa.PoissonSampled(pa.Laplace(1.0), 0.1), 9)], None)],
)
def test_delta_at_the_largest_loss_needs_no_method(steps, most):
    """Convolution spent ten seconds on telling it from 0."""
    run = pa.compose(steps)
    found = run.delta(run.epsilon(0.0).estimate if most is None else most)
    assert found.lower == 0.0 and found.upper <= 1e-11
    assert found.method == pa.Method.CLOSED_FORM


@pytest.mark.parametrize("below", [1e-13, 5e-13, 1.5e-12])
def test_delta_just_below_the_largest_loss_is_bounded(below):
    """The largest loss of two Laplace steps, 2, has the probability 1 / 4."""
    found = pa.compose([(pa.Laplace(1.0), 2)]).delta(2.0 * (1.0 - below))
    assert found.lower <= 0.25 * 2.0 * below <= found.upper <= 2e-11
