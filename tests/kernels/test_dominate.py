"""The Gaussian curve in double precision, with its round-off."""

import mpmath
import numpy as np

from pld_accountant.kernels import dominate


def test_the_gaussian_curve_lies_between_its_bounds():
    """Also near epsilon = mu^2 / 2 of a large mu, where the difference of the two has the round-off of either."""
    rng = np.random.default_rng(0)
    for _ in range(400):
        mu = 10.0 ** rng.uniform(-1, 6)
        near = rng.normal() * 10.0 ** rng.uniform(-4, 0.5) if rng.uniform() < 0.7 else 0.0
        epsilon = mu * (0.5 * mu + near)
        if epsilon < 0.0:
            continue
        low, high, *_ = dominate._gauss(epsilon, mu, 0.0)
        with mpmath.workdps(60):
            t = mpmath.mpf(epsilon) / mpmath.mpf(mu) - mpmath.mpf(mu) / 2
            far = (t + mpmath.mpf(mu)) / mpmath.sqrt(2)
            mills = mpmath.exp(far**2) * mpmath.erfc(far) / 2  # that of t + mu, over phi(t) times sqrt(2 pi)
            exact = mpmath.ncdf(-t) - mpmath.exp(-t * t / 2) * mills
        assert low <= exact <= high
        assert high - low <= 1e-8 * exact
