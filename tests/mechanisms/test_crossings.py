"""Where bounds of log delta cross a goal: certified, close, and with few evaluations."""

from collections.abc import Callable
from typing import NamedTuple

import mpmath
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.mechanisms.base import crossings

GAP = 1e-11  # of a bound from the curve


class Curve(NamedTuple):
    """log delta, where it crosses a goal, minus its slope there, and the largest epsilon."""

    log_delta: Callable
    crossing: Callable
    slope: Callable
    most: float


CURVES = {
    "a parabola": Curve(lambda e: -1.0 - e * e, lambda g: np.sqrt(-1.0 - g), lambda e: 2.0 * e, 1_000.0),
    "a line": Curve(lambda e: -3.0 * e, lambda g: g / -3.0, lambda e: 3.0, 1e6),
    "an end at 1": Curve(lambda e: np.log1p(-e), lambda g: -np.expm1(g), lambda e: 1.0 / (1.0 - e), 1.0),
    "nearly a step": Curve(
        lambda e: -30.0 - 25.0 * np.tanh(1e3 * (e - 2.0)),
        lambda g: 2.0 + 1e-3 * np.arctanh((-30.0 - g) / 25.0),
        lambda e: 25e3 / np.cosh(1e3 * (e - 2.0)) ** 2,
        9.0,
    ),
}


def with_bounds(curve, noise=0.0):
    """Bounds of a curve, with noise within their gap, and a list of what was asked."""
    asked = []

    def bounds(epsilon):
        asked.append(epsilon)
        value = curve(epsilon) + noise * np.sin(1e15 * epsilon)
        return value - GAP, value + GAP

    return bounds, asked


@pytest.mark.parametrize("noise", [0.0, 0.5 * GAP])
@pytest.mark.parametrize("name", CURVES)
def test_bounds_contain_the_crossing_and_are_close(name, noise):
    curve, goal = CURVES[name], np.array([-5.5, -12.0, -30.0])
    bounds, asked = with_bounds(curve.log_delta, noise)
    with np.errstate(divide="ignore"):
        low, high = crossings(bounds, goal, np.zeros(3), np.full(3, curve.most))
    exact = curve.crossing(goal)
    assert np.all(low <= exact)
    assert np.all(exact <= high)
    assert np.all(high - low <= 6.0 * GAP / curve.slope(exact) + 2.0**-44 * exact)
    assert len(asked) <= 60


def test_a_curve_that_begins_below_the_goal_crosses_it_at_the_beginning():
    bounds, asked = with_bounds(lambda e: -10.0 - e)
    low, high = crossings(bounds, np.full(2, -9.0), np.array([0.0, 1.0]), np.array([5.0, 7.0]))
    assert low.tolist() == high.tolist() == [0.0, 1.0]
    assert len(asked) == 2


def test_a_goal_that_bounds_do_not_reach_leaves_what_was_certain():
    bounds, _ = with_bounds(lambda e: -1.0 - e)
    low, high = crossings(bounds, np.array([-9.0]), np.array([0.0]), np.array([5.0]))
    assert low == high == 5.0


@pytest.mark.parametrize("delta", [8.57183685598591e-18, 1e-16, 1e-12])
def test_one_step_next_to_its_largest_loss(delta):
    """There epsilon has fewer digits than delta: the round-off of a loss is a large part of its distance to the end."""
    sigma, q, k = 0.36618734169337847, 0.00012622871, 5
    found = pa.compose([(pa.GroupGaussian(sigma, q, k), 1)]).epsilon(delta, "add")
    with mpmath.workdps(60):
        weights = [mpmath.binomial(k, j) * mpmath.mpf(q) ** j * (1 - mpmath.mpf(q)) ** (k - j) for j in range(k + 1)]

        def loss(x):
            terms = (w * mpmath.exp(j * x / sigma - mpmath.mpf(j) ** 2 / sigma**2 / 2) for j, w in enumerate(weights))
            return -mpmath.log(mpmath.fsum(terms))

        def exact(epsilon):
            low, high = mpmath.mpf(-100), mpmath.mpf(100)
            for _ in range(220):
                middle = (low + high) / 2
                low, high = (middle, high) if loss(middle) > epsilon else (low, middle)
            with_record = mpmath.fsum(w * mpmath.ncdf(low - j / sigma) for j, w in enumerate(weights))
            return mpmath.ncdf(low) - mpmath.exp(epsilon) * with_record

        assert exact(mpmath.mpf(found.upper)) <= delta <= exact(mpmath.mpf(found.lower))
    assert found.upper - found.lower <= 1e-11 * found.upper


@pytest.mark.parametrize("mechanism", [pa.GroupGaussian(0.9, 0.01, 4), pa.ReplaceOneSampledGaussian(0.8, 0.01)])
def test_one_step_needs_few_evaluations(mechanism):
    """Each integrates over the noise; two bisections asked 160 times."""
    family = mechanism.steps([mechanism], "remove")
    asked, masses = [], family.masses
    family.masses = lambda row, knots: asked.append(knots) or masses(row, knots)
    low, high = family.epsilon_of_step(np.array([1e-6]), np.zeros(1, dtype=np.int64))
    assert 0.0 < low < high < low * (1.0 + 1e-9)
    assert len(asked) <= 20
