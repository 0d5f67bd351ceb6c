"""kernels/invert.py: the error that a short period adds, and exponents that prove nothing."""

import mpmath
import numpy as np
import pytest

from pld_accountant.kernels import invert


def gaussian_sum(mu, theta, period, epsilon):
    """S: the sum over all frequencies of the Gaussian's transform, and K(theta)."""
    f = np.arange(0, int(12.0 * period / mu) + 20)
    z = theta + 2j * np.pi * f / period
    terms = np.exp(0.5 * mu**2 * z * (1.0 + z) - z * epsilon) / (z * (1.0 + z)) * np.where(f == 0, 1.0, 2.0) / period
    return terms.real.sum(), np.abs(terms).sum(), 0.5 * mu**2 * theta * (1.0 + theta)


def gaussian_delta(mu, epsilon):
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return float(mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2))


@pytest.mark.parametrize(
    ("mu", "theta", "epsilon"), [(1.0, 2.0, 2.0), (1.0, 4.0, 1.0), (0.2, 20.0, 0.8), (3.0, 0.5, 4.0)]
)
def test_a_short_period_adds_at_most_the_alias(mu, theta, epsilon):
    """With period P the sum is delta and the aliases; the bound comes from tilts on both sides of theta."""

    def k(t):
        return 0.5 * mu**2 * t * (1.0 + t)

    def chernoff(t):
        """K + log c, c(t) the least constant with (1 - exp(-x))+ <= c exp(t x)."""
        return k(t) - np.log1p(t) - t * np.log1p(1.0 / t) if t > 0.0 else 0.0

    delta, sharp = gaussian_delta(mu, epsilon), []
    for period in np.array([2.0, 3.0, 4.0, 6.0, 8.0, 12.0]) * mu:
        total, size, k_theta = gaussian_sum(mu, theta, period, epsilon)
        assert total >= delta - 1e-14 * size
        for above, below in ((1.3, 0.0), (1.6, 0.5), (2.5, 0.8), (4.0, 0.0)):
            helper = np.array([above * theta, chernoff(above * theta), below * theta, chernoff(below * theta)])
            bound = np.exp(k_theta - theta * epsilon) * invert._alias(helper, theta, period, k_theta, epsilon)
            assert total - delta <= bound + 1e-14 * size
            if total - delta > 1e-12 * size:
                sharp.append(bound / (total - delta))
    assert len(sharp) > 3
    assert min(sharp) < 30.0


def test_no_alias_is_certified_without_helpers_on_both_sides():
    assert invert._alias(np.array([2.0, 1.0, 2.0, 1.0]), 2.0, 5.0, 1.0, 1.0) == np.inf
