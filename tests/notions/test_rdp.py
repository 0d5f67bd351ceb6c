"""rdp.py against its formulas in 60 digits and against the Chernoff inequality that it rests on."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pld_accountant.notions import rdp

CONVERSIONS = ["best", "simple"]
deltas = st.floats(-230, -0.05).map(lambda x: float(np.exp(x)))
orders = st.floats(-2, 4).map(lambda x: 1 + 10.0**x)
rhos = st.floats(-12, 2).map(lambda x: 10.0**x)
thetas = st.floats(-8, 8).map(lambda x: 10.0**x)


def exact_extra(alpha, delta, conversion):
    """What the conversion adds to rho."""
    a, d = mpmath.mpf(alpha), mpmath.mpf(delta)
    if conversion == "simple":
        return mpmath.log(1 / d) / (a - 1)
    return mpmath.log((a - 1) / a) - (mpmath.log(d) + mpmath.log(a)) / (a - 1)


@settings(max_examples=200, deadline=None)
@given(rho=rhos, alpha=orders, delta=deltas, conversion=st.sampled_from(CONVERSIONS))
def test_rdp_epsilon_is_the_formula_rounded_up(rho, alpha, delta, conversion):
    with mpmath.workdps(60):
        exact = mpmath.mpf(rho) + exact_extra(alpha, delta, conversion)
        value = rdp.rdp_epsilon(rho, alpha, delta, conversion=conversion)
        scale = rho + abs(np.log(delta)) / (alpha - 1) + np.log(alpha / (alpha - 1)) + 10
        assert exact <= value <= max(exact, 0) + 1e-14 * scale


@settings(max_examples=200, deadline=None)
@given(epsilon=st.floats(0, 50), alpha=orders, delta=deltas, conversion=st.sampled_from(CONVERSIONS))
def test_a_budget_never_promises_more_than_it_keeps(epsilon, alpha, delta, conversion):
    rho = rdp.rdp_budget(epsilon, alpha, delta, conversion=conversion)
    with mpmath.workdps(60):
        exact = mpmath.mpf(epsilon) - exact_extra(alpha, delta, conversion)
        assert rho <= max(exact, 0)
        scale = epsilon + abs(np.log(delta)) / (alpha - 1) + np.log(alpha / (alpha - 1)) + 10
        assert rho >= exact - 1e-14 * scale


@settings(max_examples=200, deadline=None)
@given(rho=rhos, alpha=st.floats(1.01, 200), epsilon=st.floats(0, 20), conversion=st.sampled_from(CONVERSIONS))
def test_rdp_delta_is_the_formula_rounded_up(rho, alpha, epsilon, conversion):
    value = rdp.rdp_delta(rho, alpha, epsilon, conversion=conversion)
    with mpmath.workdps(60):
        a = mpmath.mpf(alpha)
        exact = mpmath.exp((a - 1) * (mpmath.mpf(rho) - epsilon))
        if conversion == "best":
            exact *= (1 - 1 / a) ** a / (a - 1)
        exact = min(exact, 1)
        assert exact <= value <= exact * (1 + mpmath.mpf(10) ** -10) + mpmath.mpf(10) ** -300


@settings(max_examples=200, deadline=None)
@given(theta=thetas)
def test_the_chernoff_constant_is_the_maximum_of_its_definition(theta):
    """c is the largest value of (1 - u) u**theta on (0, 1), taken at u = theta / (1 + theta) and nowhere else."""
    with mpmath.workdps(60):
        t = mpmath.mpf(theta)
        u = t / (1 + t)
        exact = mpmath.log(1 - u) + t * mpmath.log(u)
        assert abs(rdp.log_c(theta) - exact) <= 2.0**-50 * abs(exact)
        for beside in (u * (1 - mpmath.mpf("1e-9")), u + (1 - u) * mpmath.mpf("1e-9")):
            assert mpmath.log(1 - beside) + t * mpmath.log(beside) < exact


@settings(max_examples=200, deadline=None)
@given(rho=rhos, alpha=orders, delta=deltas)
def test_the_epsilon_of_a_log_moment_is_the_best_conversion(rho, alpha, delta):
    theta = alpha - 1
    epsilon = rdp.epsilon_of_log_moment(theta * rho, theta, np.log(delta))
    scale = rho + abs(np.log(delta)) / theta + np.log(alpha / theta) + 10
    assert abs(max(epsilon, 0) - rdp.rdp_epsilon(rho, alpha, delta)) <= 1e-14 * scale


def test_log_moments_are_broadcast():
    theta = np.array([0.5, 2.0, 31.0])
    k = np.array([[0.1], [0.2]])
    rows = rdp.epsilon_of_log_moment(k, theta, -11.0)
    assert rows.shape == (2, 3)
    assert rows[1, 2] == rdp.epsilon_of_log_moment(0.2, 31.0, -11.0)
    assert rdp.log_c(theta)[1] == rdp.log_c(2.0)


def test_shapes_are_broadcast():
    assert rdp.rdp_epsilon(np.ones((2, 1)), np.full(3, 2.0), 1e-5).shape == (2, 3)


@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_no_delta_overflows(conversion):
    for rho in (-0.0, 5e-324, 1e-300, 1.0, 9e99):
        for epsilon in (-0.0, 5e-324, 1.0, 9e99):
            assert 0 <= rdp.rdp_delta(rho, 9e99, epsilon, conversion=conversion) <= 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: rdp.rdp_epsilon(-1.0, 2.0, 1e-5),
        lambda: rdp.rdp_epsilon(1.0, 1.0, 1e-5),
        lambda: rdp.rdp_epsilon(1.0, 2.0, 0.0),
        lambda: rdp.rdp_epsilon(1.0, 2.0, np.nan),
        lambda: rdp.rdp_epsilon(1.0, 2.0, 1e-5, conversion="other"),
    ],
)
def test_bad_arguments_are_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()


def test_terms_that_cancel_are_rounded_to_the_safe_side():
    """Orders 1 + x with log(1 + x) near -log(delta), where the two terms leave a difference of round-off."""
    draw = np.random.default_rng(3)
    with mpmath.workdps(60):
        for _ in range(300):
            delta = float(np.exp(-draw.uniform(0.1, 35)))
            alpha = 1 + (1 / delta - 1) * (1 + draw.normal() * 10 ** draw.uniform(-16, -8))
            rho = float(np.exp(draw.uniform(-40, 0)))
            extra = exact_extra(alpha, delta, "best")
            assert rdp.rdp_epsilon(rho, alpha, delta) >= max(mpmath.mpf(rho) + extra, 0)
            assert rdp.rdp_budget(rho, alpha, delta) <= max(mpmath.mpf(rho) - extra, 0)
