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
