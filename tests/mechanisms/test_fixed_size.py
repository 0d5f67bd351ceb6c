"""Batches of one size: the symmetric pair against sums over both of its signs, and the mechanism's own lower bound."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

import pld_accountant as pa
from pld_accountant.mechanisms.base import StepFamily
from pld_accountant.mechanisms.symmetric_steps import SymmetricSteps

GRID = np.array([-3.0, -0.31, -0.02, -1e-9, 0.0, 0.003, 0.2, 1.0, 2.5, 40.0])


def family(sigma, q):
    return SymmetricSteps(np.array([sigma]), np.array([q]), "remove")


def half(sigma, q, low, high):
    """Masses of the losses in [low, high], low >= 0, of the sampled Gaussian under P and Q: closed form."""

    def place(loss):
        return sigma**2 * math.log1p(math.expm1(loss) / q) + 0.5

    a, b = place(low), place(high)
    under_q = norm.sf(a / sigma) - norm.sf(b / sigma)
    return (1 - q) * under_q + q * (norm.sf((a - 1) / sigma) - norm.sf((b - 1) / sigma)), under_q


@pytest.mark.parametrize(("sigma", "q"), [(0.5, 0.3), (2.0, 0.01), (1.0, 1.0)])
def test_masses_are_those_of_the_half_its_mirror_image_and_an_atom(sigma, q):
    p, u = family(sigma, q).masses(0, GRID)
    for k, (left, right) in enumerate(itertools.pairwise(GRID)):
        if left >= 0:
            mass, other = half(sigma, q, left, right)
        else:
            other, mass = half(sigma, q, -right, -left)
        if left == 0:
            atom = (1 - q) * (2 * ndtr(0.5 / sigma) - 1)
            mass, other = mass + atom, other + atom
        assert p[k] == pytest.approx(mass, rel=1e-9, abs=1e-14)
        assert u[k] == pytest.approx(mass - math.exp(left) * other, rel=1e-6, abs=1e-13)
    assert p.sum() <= 1.0 + 1e-12
    # cells do not change sums, nor do cells around 0 that do not end there
    for knots in (GRID[[0, -1]], GRID[[0, 2, 6, -1]]):
        first, above = family(sigma, q).masses(0, knots)
        assert first.sum() == pytest.approx(p.sum(), rel=1e-12)
        cell = np.searchsorted(knots, GRID[:-1], side="right") - 1
        parts = p * -np.expm1(knots[cell] - GRID[:-1]) + u * np.exp(knots[cell] - GRID[:-1])
        assert np.allclose(above, np.bincount(cell, parts), rtol=1e-9, atol=1e-14)


LITTLE = [(0.05, 0.95, 0.001), (0.1, 0.95, 0.001), (0.1, 0.999, 0.001), (0.1, 0.999, 0.1)]
"""Most losses below 0 are log(1 - q) but for the round-off of doubles."""


@pytest.mark.parametrize(
    ("sigma", "q", "theta"),
    [*itertools.product([0.7, 2.0, 4.0], [0.3], [0.5, 3.0, 10.0]), (2.0, 0.01, 3.0), (4.0, 0.02, 0.5), *LITTLE],
)
def test_log_moments_are_above_the_integral_and_close(sigma, q, theta):
    x, step = np.linspace(0.5, 1 + theta + 12 * sigma, 2_000_001, retstep=True)
    loss = np.log1p(q * np.expm1((x - 0.5) / sigma**2))
    value = norm.pdf(x, scale=sigma) * (np.exp(loss) * np.expm1(theta * loss) + np.expm1(-theta * loss))
    exact = math.log1p(np.trapezoid(value, dx=step))
    found = float(family(sigma, q).log_moments(np.array([theta]), exact=True)[0, 0])
    assert exact * (1 - 1e-8) <= found <= exact * (1 + 1e-3)


def test_one_step_is_the_sampled_gaussian_and_all_records_are_the_gaussian_mechanism():
    one = pa.compose([(pa.FixedSizeBatch(2.0, 10, 100), 1)]).epsilon(1e-6)
    poisson = pa.compose([(pa.SampledGaussian(1.0, 0.1), 1)]).epsilon(1e-6, "remove")
    assert one.lower <= poisson.upper and poisson.lower <= one.upper <= one.lower * (1 + 1e-9)
    full = pa.compose([(pa.FixedSizeBatch(8.0, 7, 7), 30)]).epsilon(1e-6)
    gaussian = pa.compose([(pa.Gaussian(4.0), 30)]).epsilon(1e-6)
    assert full.lower <= gaussian.upper and gaussian.lower <= full.upper <= full.lower * (1 + 1e-3)


def test_directions_are_alike():
    """A replaced record has no order; alone and beside another mechanism whose directions are alike."""
    for other, near in (([], 1e-9), ([(pa.Gaussian(3.0), 1)], 1e-3)):
        found = pa.compose([(pa.FixedSizeBatch(2.0, 10, 100), 1), *other])
        removed, *alike = (found.delta(0.1, direction) for direction in ("remove", "add", "both"))
        assert all(tuple(one) == pytest.approx(tuple(removed), rel=near) for one in alike)
    one = pa.compose([(pa.FixedSizeBatch(2.0, 10, 100), 1)])
    for epsilon in (-0.3, 0.0, 2.0):
        bounds = one.delta(epsilon, "add")
        assert bounds.upper <= bounds.lower * (1 + 1e-9)
    # besides a mechanism whose directions differ, the lower bound keeps the other's direction
    with pytest.warns(UserWarning, match="holds for neither"):
        mixed = pa.compose([(pa.FixedSizeBatch(4.0, 1, 10**6), 1), (pa.SampledGaussian(1.0, 0.3), 2)])
    alone = pa.compose([(pa.SampledGaussian(1.0, 0.3), 2)])
    for direction in ("remove", "add"):
        low, high = mixed.delta(0.2, direction), alone.delta(0.2, direction)
        assert high.lower <= low.upper and low.lower <= high.upper * (1 + 1e-4)


def test_two_steps_enclose_attainable_orders():
    """Removal twice, addition twice, and one of each are data sets' own curves; the upper bound is above them all."""
    found = pa.compose([(pa.FixedSizeBatch(2.0, 30, 100), 2)])
    x = np.arange(-9.0, 10.0, 0.005)
    density = norm.pdf(x) * 0.005
    loss = np.log(0.7 + 0.3 * np.exp(x - 0.5))
    under_p = density * np.exp(loss)
    for epsilon in (0.1, 1.0, 2.0):
        bounds = found.delta(epsilon)
        for one, first, two, second in (
            (under_p, loss, under_p, loss),
            (under_p, loss, density, -loss),
            (density, -loss, density, -loss),
        ):
            rest = epsilon - np.add.outer(first, second)
            exact = float(one @ np.maximum(-np.expm1(rest), 0.0) @ two)
            assert exact <= bounds.upper * (1 + 1e-6)
        assert bounds.lower <= bounds.upper <= 1.3 * bounds.lower


def test_the_upper_bound_is_above_another_data_set():
    """Others contribute nothing, the two records C and -C."""
    found = pa.compose([(pa.FixedSizeBatch(4.0, 20, 100), 500)])
    other = pa.compose([(pa.ReplaceOneSampledGaussian(4.0, 0.2), 500)])
    assert other.delta(2.0).lower <= found.delta(2.0).upper
    mu = found.mu(1e-6)
    assert 0 < mu.lower <= mu.upper < np.inf


def test_the_family_keeps_its_protocol():
    steps = family(1.0, 0.1)
    assert isinstance(steps, StepFamily)
    for number in (2, 3, 300):
        losses = steps.losses(0, 10.0, number)
        assert losses.size == number and np.all(np.diff(losses) > 0)


@pytest.mark.parametrize("parameters", [(0.0, 1, 2), (1.0, 0, 2), (1.0, 3, 2), (1.0, 1.5, 2), (1.0, 1, 0)])
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ValueError, match="must be"):
        pa.FixedSizeBatch(*parameters)


def test_the_upper_end_is_as_close_as_the_distance_of_the_ends_asks_for():
    """For many steps a grid's answer, within a tenth of the distance; for two steps a closer one."""
    far = pa.compose([(pa.FixedSizeBatch(2.48, 50, 20_000), 1_342)]).epsilon(2.6e-9)
    assert far.method == pa.Method.GRID  # a convolution, which takes 20 times as long, finds 0.58702
    assert 0.58692 <= far.upper <= 0.58702 + 0.1 * (far.upper - far.lower)
    near = pa.compose([(pa.FixedSizeBatch(2.0, 50, 20_000), 2)]).epsilon(1e-8)
    assert near.width < 5e-4 * near.upper
