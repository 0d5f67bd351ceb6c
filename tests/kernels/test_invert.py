"""kernels/invert.py: the error that a short period adds, sums over the frequencies, and people with equal exponents."""

import math

import mpmath
import numpy as np
import pytest

from pld_accountant.kernels import _columns as c
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


@pytest.mark.parametrize("m", [3, 127, 128, 143, 144, 145, 1000, 20_000])
def test_inner_products_of_few_and_many_frequencies(m):
    """The sum and its derivative, within the round-off that the error budget allows; the lanes end at a multiple."""
    rng = np.random.default_rng(m)
    a = np.zeros(m + invert._LANES, dtype=complex)
    a[: m + 1] = rng.normal(size=m + 1) + 1j * rng.normal(size=m + 1)
    f, angle = np.arange(m + 1), 0.7
    terms = a[: m + 1] * np.exp(1j * f * angle)
    found = invert._inner_product(a.real.copy(), a.imag.copy(), m, angle)
    unit = 2.0**-53
    size = 160.0 * np.abs(a).sum() + 32.0 * (f * np.abs(a[: m + 1])).sum()
    assert abs(found[0] - terms.sum().real) <= unit * size
    assert abs(found[1] - (f * terms).sum().imag) <= unit * m * size


def test_equal_people_next_to_others():
    """The amplitudes of a person are those of the person before only if all exponents are equal."""
    m, people = 5, 4
    rng = np.random.default_rng(0)
    exponents = np.zeros((people, c.HEAD + 2 * m))
    exponents[:, c.HEAD :] = 0.1 * rng.normal(size=(people, 2 * m))
    exponents[1], exponents[3, :-1] = exponents[0], exponents[2, :-1]
    weight = np.ones(m + 1, dtype=complex)
    setting = np.zeros(c.SETTINGS)
    setting[[c.THETA, c.SPACING, c.PERIOD]] = 1.0, 0.3, 2.0 * math.pi / 0.3
    helper = np.tile([2.0, -5.0, 0.5, -5.0], (people, 1))

    def bound(rows):
        out = np.empty((len(rows), c.RESULTS))
        target = np.full(len(rows), 0.4)
        invert.bound_people(exponents[rows], weight, setting, helper[rows], target, False, False, target, out)
        return out

    every = bound(np.arange(people))
    assert np.array_equal(every, np.vstack([bound(np.array([k])) for k in range(people)]))
    assert np.array_equal(every[0], every[1]) and not np.array_equal(every[2], every[3])
