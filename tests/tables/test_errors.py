"""Error terms that all tables share, each in a case where it alone acts: the error stays below, and not far below."""

import numpy as np
import pytest

from pld_accountant.tables import errors


@pytest.mark.parametrize("steps", [1, 3, 50, 10_000])
def test_errors_relative_to_phi_bound_the_error_of_a_product(steps):
    """Against errors of full size, aligned with phi: the worst there is."""
    rng = np.random.default_rng(steps)
    known = rng.uniform(0.05, 1.0, 40) ** (1.0 / steps) * np.exp(1j * rng.uniform(-3.0, 3.0, 40))
    error = 1e-6 / steps
    bound = errors.relative(np.array([[error, 3.0 * error]]), np.log(np.abs(known))[None])
    assert bound.shape == (1, 2)
    assert bound[0, 1] == pytest.approx(3.0 * bound[0, 0])
    least = np.argmin(np.abs(known))
    off = np.expm1(steps * np.log1p(error / np.abs(known)))  # of phi~ (1 + error / |phi~|), relative
    assert np.all(off <= np.expm1(steps * bound[0, 0]) * (1.0 + 1e-9))
    assert off[least] == pytest.approx(np.expm1(steps * bound[0, 0]), rel=1e-4)


def test_errors_relative_to_phi_are_useless_where_phi_has_vanished():
    assert errors.relative(np.array([[1e-16, 0.0]]), np.array([[-1.0, -600.0]])).min() == 1e200
    # no frequency at all: phi(0) = 1
    assert errors.relative(np.array([[1e-16, 1e-15]]), np.empty((1, 0))).tolist() == [[1e-16, 1e-15]]


@pytest.mark.parametrize(("theta", "period", "m"), [(0.5, 20.0, 10), (30.0, 2.0, 3), (2.0, 8.0, 400)])
def test_the_dropped_weights_sum_to_at_most_the_band_coefficient(theta, period, m):
    spacing = 2.0 * np.pi / period
    f = np.arange(m + 1, m + 2_000_000)
    z = theta + 1j * spacing * f
    dropped = np.sum(2.0 / (period * np.abs(z * (1.0 + z))))
    bound = errors.band_coefficient(m * spacing)
    assert dropped <= bound
    if m * spacing > 100.0 * theta:
        assert dropped >= 0.99 * bound


def test_the_error_of_an_interpolated_step():
    rng = np.random.default_rng(3)
    x = rng.normal(0.0, 1.0, 20_000) + 1j * rng.uniform(-3.0, 3.0, 20_000)
    x[::2] *= rng.choice([1e-3, 0.1, 1.0], 10_000)
    w = rng.random(20_000)
    w[:2000] = 0.5
    error = np.abs(np.log(1.0 - w + w * np.exp(x)) - w * x)
    assert np.all(error <= errors.interpolation(x) * (1.0 + 1e-12) + 1e-15)
    # at the worst it is all of the bound
    assert errors.interpolation(np.array([0.01 + 0.0j]))[0] == pytest.approx(np.log(np.cosh(0.005)), rel=1e-4)
    big = np.array([50.0])
    assert np.log1p(0.5 * np.expm1(50.0)) - 25.0 <= errors.interpolation(big)[0] <= 50.0
    assert errors.interpolation(np.array([3.1j]))[0] == errors.USELESS
    assert errors.interpolation(np.array([0.1j]), 0.1)[0] >= errors.interpolation(np.array([0.2j]))[0]


def test_the_error_of_an_interpolated_step_beyond_its_variance_term():
    rng = np.random.default_rng(5)
    x = rng.normal(0.0, 0.5, 20_000) + 1j * rng.uniform(-2.9, 2.9, 20_000)
    x[::2] *= rng.choice([1e-2, 0.1, 1.0], 10_000)
    w = rng.random(20_000)
    apart = np.abs(np.log(1.0 - w + w * np.exp(x)) - w * x - 0.5 * w * (1.0 - w) * x**2)
    bound = errors.interpolation_beyond_variance(x, np.zeros(x.size))
    assert np.all(apart <= bound * (1.0 + 1e-12) + 1e-15)
    # w (1 - w) (1 - 2 w) is at most 1 / (6 sqrt(3)): the bound is tight for a small real x
    at, small = 0.5 - np.sqrt(1.0 / 12.0), np.array([0.01 + 0.0j])
    third = abs(np.log(1.0 - at + at * np.exp(0.01)) - at * 0.01 - 0.5 * at * (1.0 - at) * 1e-4)
    assert third >= 0.95 * errors.interpolation_beyond_variance(small, np.zeros(1))[0]
    assert errors.interpolation_beyond_variance(np.array([3.1j]), np.zeros(1))[0] == errors.USELESS
    # an error of x moves the variance term
    moved = errors.interpolation_beyond_variance(np.array([0.1 + 0.0j]), np.array([0.01]))[0]
    assert moved >= 0.125 * (0.11**2 - 0.1**2)
