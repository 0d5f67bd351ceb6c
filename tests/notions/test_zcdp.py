"""zcdp.py against its formulas in 60 digits, against its inverses, against rdp.py, and the exact Gaussian curve."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pld_accountant.notions import gdp, rdp, zcdp

CONVERSIONS = ["best", "simple"]
deltas = st.floats(-230, -0.05).map(lambda x: float(np.exp(x)))
rhos = st.floats(-12, 2).map(lambda x: 10.0**x)


@settings(max_examples=100, deadline=None)
@given(rho=rhos, delta=deltas)
def test_zcdp_epsilon_is_the_smallest_over_all_orders(rho, delta):
    best = zcdp.zcdp_epsilon(rho, delta)
    alpha = 1 + np.logspace(-6, 9, 3000)
    on_grid = rdp.rdp_epsilon(alpha * rho, alpha, delta)
    assert best <= on_grid.min() * (1 + 1e-12)
    assert best >= on_grid.min() * (1 - 1e-3) - 1e-12
    assert best <= zcdp.zcdp_epsilon(rho, delta, conversion="simple")


@settings(max_examples=100, deadline=None)
@given(rho=rhos.filter(lambda r: r > 1e-8), epsilon=st.floats(0, 50), conversion=st.sampled_from(CONVERSIONS))
def test_zcdp_delta_is_the_smallest_over_all_orders(rho, epsilon, conversion):
    best = zcdp.zcdp_delta(rho, epsilon, conversion=conversion)
    alpha = 1 + np.logspace(-6, 9, 3000)
    on_grid = rdp.rdp_delta(alpha * rho, alpha, epsilon, conversion=conversion).min()
    assert best <= on_grid * (1 + 1e-9)
    assert best >= 0.98 * on_grid


@settings(max_examples=100, deadline=None)
@given(mu=st.floats(-4, 1).map(lambda x: 10.0**x), delta=deltas, conversion=st.sampled_from(CONVERSIONS))
def test_never_below_the_exact_gaussian(mu, delta, conversion):
    """mu-GDP is mu**2 / 2-zCDP, so every conversion must lie above its exact curve."""
    rho = mu * mu / 2 * (1 + 1e-15)
    epsilon = zcdp.zcdp_epsilon(rho, delta, conversion=conversion)
    assert epsilon >= gdp.epsilon(delta, mu) * (1 - 1e-10)
    assert zcdp.zcdp_delta(rho, epsilon, conversion=conversion) >= gdp.delta(epsilon, mu)


@settings(max_examples=200, deadline=None)
@given(epsilon=st.floats(-4, 2).map(lambda x: 10.0**x), delta=deltas, conversion=st.sampled_from(CONVERSIONS))
def test_zcdp_rho_implies_its_target_and_little_more_would_not(epsilon, delta, conversion):
    rho = zcdp.zcdp_rho(epsilon, delta, conversion=conversion)
    assert 0 < zcdp.zcdp_epsilon(rho * (1 - 1e-12), delta, conversion=conversion) <= epsilon
    assert zcdp.zcdp_epsilon(rho * (1 + 1e-9), delta, conversion=conversion) > epsilon


def test_values_of_the_papers():
    """Feldman and Zrnic, Theorem 4.8 and their table; Koskela, Tobaben and Honkela, Figures 3 to 5."""
    rho = zcdp.zcdp_rho([1.0, 0.5], 1e-5)
    np.testing.assert_allclose(rho, [0.030557, 0.008506], atol=5.1e-7)
    rho = zcdp.zcdp_rho([1.0, 0.5], 1e-5, conversion="simple")
    np.testing.assert_allclose(rho, [0.020820, 0.005314], atol=5.1e-7)
    sigma, steps = np.array([170, 130, 100]), np.array([112, 180, 420])
    rho = steps / (2 * sigma**2)
    simple = zcdp.zcdp_epsilon(rho, 1e-5, conversion="simple")
    np.testing.assert_allclose(simple, [0.30066, 0.50055, 1.00441], atol=5.1e-6)
    np.testing.assert_allclose(zcdp.zcdp_epsilon(rho, 1e-5), [0.2249, 0.3883, 0.8156], atol=5.1e-5)
    steps = np.array([100, 200, 300, 400, 500, 600, 900])
    expected = [0.37526, 0.54573, 0.67962, 0.79431, 0.89661, 0.99005, 1.23493]
    np.testing.assert_allclose(zcdp.zcdp_epsilon(steps / 2e4, 1e-5), expected, atol=5.1e-6)
    delta = zcdp.zcdp_delta(0.021, np.array([0.2, 0.4, 0.5, 0.6, 0.8]))
    np.testing.assert_allclose(np.log10(delta), [-1.4076, -2.2020, -2.7278, -3.3452, -4.8650], atol=5.1e-5)
    golden = zcdp.zcdp_epsilon(0.021, [1e-5, 1e-10, 1e-30, 1e-100])
    np.testing.assert_allclose(golden, [0.815623, 1.271070, 2.340585, 4.364680], atol=5.1e-7)


def test_corners():
    for conversion in CONVERSIONS:
        assert zcdp.zcdp_epsilon(0.0, 1e-5, conversion=conversion) == 0
        assert zcdp.zcdp_delta(0.0, 1.0, conversion=conversion) == 0
        assert zcdp.zcdp_rho(0.0, 1e-5, conversion=conversion) == 0
        assert zcdp.zcdp_delta(1e6, 0.0, conversion=conversion) == 1
    assert zcdp.zcdp_rho(np.ones((2, 1)), np.full(3, 1e-5)).shape == (2, 3)


@settings(max_examples=200, deadline=None)
@given(
    rho=st.floats(-90, 99).map(lambda x: 10.0**x),
    delta=deltas,
    epsilon=st.floats(-8, 99).map(lambda x: 10.0**x),
)
def test_the_simple_forms_are_the_formulas_rounded_to_the_safe_side(rho, delta, epsilon):
    with mpmath.workdps(250):
        r, e, goal = mpmath.mpf(rho), mpmath.mpf(epsilon), -mpmath.log(delta)
        exact = r + 2 * mpmath.sqrt(r * goal)
        assert exact <= zcdp.zcdp_epsilon(rho, delta, conversion="simple") <= exact * (1 + 1e-14)
        exact = (mpmath.sqrt(goal + e) - mpmath.sqrt(goal)) ** 2
        assert exact * (1 - 1e-13) <= zcdp.zcdp_rho(epsilon, delta, conversion="simple") <= exact
        exact = mpmath.exp(-(max(e - r, 0) ** 2) / (4 * r))
        assert exact <= zcdp.zcdp_delta(rho, epsilon, conversion="simple") <= 1


@settings(max_examples=60, deadline=None)
@given(rho=rhos, delta=deltas, epsilon=st.floats(-4, 2).map(lambda x: 10.0**x))
def test_the_best_forms_are_never_below_the_optimum_in_60_digits(rho, delta, epsilon):
    """The optimum over all real orders alpha = 1 + x, from its own stationary equation."""
    with mpmath.workdps(60):
        r, d, e = mpmath.mpf(rho), mpmath.mpf(delta), mpmath.mpf(epsilon)
        x = root(lambda x: x * x * r + mpmath.log1p(x) + mpmath.log(d), mpmath.mpf("1e-30"), mpmath.mpf("1e30"))
        least = r * (1 + x) - mpmath.log1p(1 / x) - (mpmath.log(d) + mpmath.log1p(x)) / x
        assert max(least, 0) <= zcdp.zcdp_epsilon(rho, delta) <= max(least, 0) * (1 + 1e-9) + 1e-9
        x = root(lambda x: (2 * x + 1) * r - mpmath.log1p(1 / x) - e, mpmath.mpf("1e-30"), mpmath.mpf("1e30"))
        least = mpmath.exp(x * (r * (1 + x) - e) - x * mpmath.log1p(1 / x) - mpmath.log1p(x))
        assert min(least, 1) <= zcdp.zcdp_delta(rho, epsilon) <= min(least, 1) * (1 + 1e-6) + 1e-300


def root(increasing, low, high):
    """Bisection on a logarithmic scale."""
    for _ in range(110):
        middle = mpmath.sqrt(low * high)
        low, high = (low, middle) if increasing(middle) > 0 else (middle, high)
    return low


def test_the_largest_and_the_smallest_arguments():
    """No overflow on the way, and never a bound that underflowed to 0."""
    for conversion in CONVERSIONS:
        for rho in (-0.0, 5e-324, 1e-300, 1.0, 9e99):
            for epsilon in (-0.0, 5e-324, 1.0, 9e99):
                assert zcdp.zcdp_epsilon(rho, 5e-324, conversion=conversion) >= rho
                assert (zcdp.zcdp_delta(rho, epsilon, conversion=conversion) > 0) == (rho > 0)
                assert 0 <= zcdp.zcdp_rho(epsilon, 1 - 2.0**-53, conversion=conversion) < np.inf
    with pytest.raises(ValueError, match="rho must lie in"):
        zcdp.zcdp_epsilon(1e100, 1e-5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: zcdp.zcdp_rho("1", 1e-5),
        lambda: zcdp.zcdp_rho(1j, 1e-5),
        lambda: zcdp.zcdp_rho(None, 1e-5),
        lambda: zcdp.zcdp_rho(np.ma.array([1.0], mask=True), 1e-5),
        lambda: zcdp.zcdp_rho(10**400, 1e-5),
        lambda: zcdp.zcdp_epsilon([0.1, np.inf], 1e-5),
        lambda: zcdp.zcdp_delta(np.nan, 1.0),
        lambda: zcdp.zcdp_rho(1.0, 1.0),
    ],
)
def test_bad_arguments_are_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()
