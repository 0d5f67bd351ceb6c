"""Full batches: the closed form of their composition contains the truth."""

import mpmath
import numpy as np
import pytest

from pld_accountant.mechanisms.gaussian import Gaussian, full_batch_delta, full_batch_epsilon, full_batch_mu


def exact_delta(epsilon, mu):
    with mpmath.workdps(80):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


def test_squares_of_the_steps_add_up():
    sigma, counts = np.array([2.0, 0.5, 30.0]), np.array([4, 1, 900])
    assert full_batch_mu(sigma, counts) == pytest.approx(np.sqrt(1.0 + 4.0 + 1.0), rel=2.0**-50)
    # no overflow and no underflow before the root
    assert full_batch_mu(np.array([1e-200]), np.array([4])) == pytest.approx(2e200, rel=1e-15)
    assert full_batch_mu(np.array([1e200, 1e200]), np.array([9, 16])) == pytest.approx(5e-200, rel=1e-15)


@pytest.mark.parametrize("mu", [1e-3, 0.2, 1.0, 10.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 3.0])
def test_delta_lies_between_its_bounds(mu, epsilon):
    found = full_batch_delta(mu, epsilon)
    assert found is not None
    lower, middle, upper = found
    exact = exact_delta(epsilon, mu)
    # mu may be off by a relative 2^-48, either way
    for off in (1.0 - 2.0**-49, 1.0, 1.0 + 2.0**-49):
        assert lower <= exact_delta(epsilon, mpmath.mpf(mu) * off) <= upper
    assert lower <= middle <= upper
    assert upper - lower <= 1e-9 * float(exact) + 1e-300 or exact < 1e-300


@pytest.mark.parametrize("mu", [1e-3, 0.2, 1.0, 10.0])
@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-100])
def test_epsilon_lies_between_its_bounds(mu, delta):
    lower, upper = full_batch_epsilon(mu, delta)
    for off in (1.0 - 2.0**-49, 1.0, 1.0 + 2.0**-49):
        assert exact_delta(upper, mpmath.mpf(mu) * off) <= delta
        if lower > 0.0:
            assert exact_delta(lower, mpmath.mpf(mu) * off) >= delta
    assert upper - lower <= 1e-9 * (upper + mu)


def test_a_delta_below_every_double():
    assert full_batch_delta(1e-200, 1.0) == (0.0, 0.0, np.nextafter(0.0, 1.0))


def test_full_batches_are_steps_with_a_sample_rate_of_one():
    steps = Gaussian.steps([Gaussian(2.0), Gaussian(3.0)], "add")
    assert steps.size == 2
    assert Gaussian(2.0).sample_rate == 1.0
    np.testing.assert_array_equal(steps.gaussian_mu(), [0.5, 1.0 / 3.0])
