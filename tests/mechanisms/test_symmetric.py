"""Mechanisms whose loss has one law in both directions: one direction is asked, and the other gives the same."""

from dataclasses import replace

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.composition.known import KnownComposition
from pld_accountant.mechanisms.fixed_size import RemovedSampledGaussian, SymmetricSampledGaussian
from pld_accountant.mechanisms.gaussian_mixture import GaussianMixtureSteps

SYMMETRIC = [
    pa.Laplace(2.0),
    pa.ReplaceOneSampledGaussian(1.0, 0.1),
    RemovedSampledGaussian(1.0, 0.1),
    SymmetricSampledGaussian(1.0, 0.1),
]


@pytest.mark.parametrize("mechanism", SYMMETRIC)
def test_both_directions_give_the_same(mechanism):
    assert mechanism.symmetric
    theta = np.array([0.5, 2.0, 9.0])
    removed, added = (type(mechanism).steps([mechanism], d) for d in ("remove", "add"))
    np.testing.assert_allclose(removed.log_moments(theta), added.log_moments(theta), rtol=1e-9)
    zero = np.zeros(1, dtype=np.int64)
    for epsilon in (0.0, 0.05, 0.3, 1.0):
        (low, high), (least, most) = (f.log_delta_of_step(np.array([epsilon]), zero) for f in (removed, added))
        assert low <= most
        assert least <= high
    run = pa.compose([(mechanism, 3)])
    first, second = run.delta(0.3, "remove"), run.delta(0.3, "add")
    assert first.lower <= second.upper
    assert second.lower <= first.upper


def test_the_pair_of_a_replaced_record_is_the_same_both_ways():
    pair = pa.ReplaceOneSampledGaussian(0.7, 0.1).pair
    removed, added = (GaussianMixtureSteps([pair], d) for d in ("remove", "add"))
    theta = np.array([0.5, 2.0, 9.0])
    np.testing.assert_allclose(removed.log_moments(theta), added.log_moments(theta), rtol=1e-9)
    delta, zero = np.array([1e-5]), np.zeros(1, dtype=np.int64)
    np.testing.assert_allclose(removed.epsilon_of_step(delta, zero), added.epsilon_of_step(delta, zero), rtol=1e-9)


@pytest.mark.parametrize("mechanism", [pa.ReplaceOneSampledGaussian(1.6, 3e-6), pa.FixedSizeBatch(2.0, 10, 100)])
def test_a_question_of_one_direction_is_that_of_removal(mechanism):
    """The sums of some families converge badly under addition: such a question took 14 seconds."""
    added, removed = (pa.compose([(mechanism, 1_000)]).epsilon(1e-6, d) for d in ("add", "remove"))
    assert added == removed


def test_the_directions_of_ends_of_which_one_alone_is_symmetric():
    """Removal may stand for addition at the symmetric end only."""
    run = pa.compose([(pa.FixedSizeBatch(2.0, 10, 100), 3)])
    assert run._distinct(("add",)) == ("remove",)
    run._below = replace(run._below, composition=pa.compose([(pa.SampledGaussian(2.0, 0.1), 3)]))
    assert run._distinct(("add",)) == ("add",)


@pytest.mark.parametrize("other, asked", [(None, ["remove"]), (pa.SampledGaussian(1.0, 0.1), ["remove", "add"])])
def test_one_direction_is_asked_if_all_steps_are_symmetric(monkeypatch, other, asked):
    seen = []
    original = KnownComposition._one

    def one(self, direction, question, effort, known=None):
        seen.append(direction)
        return original(self, direction, question, effort, known)

    monkeypatch.setattr(KnownComposition, "_one", one)
    pa.compose([(pa.Laplace(20.0), 2), *([] if other is None else [(other, 1)])]).delta(0.1)
    assert seen == asked


@pytest.mark.parametrize(
    "mechanism, alike",
    [(pa.Laplace(2.0), True), (pa.FixedSizeBatch(2.0, 10, 100), True), (pa.SampledGaussian(1.0, 0.1), False)],
)
def test_the_trade_off_function_of_symmetric_steps_is_computed_once(monkeypatch, mechanism, alike):
    asked = []
    original = KnownComposition._answer

    def answer(self, *given):
        asked.append(given)
        return original(self, *given)

    monkeypatch.setattr(KnownComposition, "_answer", answer)
    run = pa.compose([(mechanism, 1)])
    both = run.tradeoff(0.1)
    number = len(asked)
    one, other = run.tradeoff(0.1, "remove"), run.tradeoff(0.1, "add")
    assert (len(asked) - number == 2 * number) == alike
    assert max(both.lower, one.lower, other.lower) <= min(both.upper, one.upper, other.upper) or not alike
    assert both.lower <= min(one.upper, other.upper)
