"""Mechanisms whose loss has one law in both directions: one direction is asked, and the other gives the same."""

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.composition.known import KnownComposition
from pld_accountant.mechanisms.fixed_size import RemovedSampledGaussian, SymmetricSampledGaussian

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
