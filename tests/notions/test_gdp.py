"""gaussian.py against 60-digit arithmetic, and the sides its inverses promise."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pld_accountant.notions import gdp


def exact_delta(epsilon, mu):
    """The closed form with enough digits that its cancellation does not matter."""
    with mpmath.workdps(400):
        e, m = mpmath.mpf(float(epsilon)), mpmath.mpf(float(mu))
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


def exact_log_delta(epsilon, mu):
    with mpmath.workdps(400):
        return mpmath.log(exact_delta(epsilon, mu))


mus = (st.floats(-7, 1.5) | st.floats(-300, 1.5)).map(lambda x: 10.0**x)


@settings(max_examples=300, deadline=None)
@given(mu=mus, t=st.floats(-15, 37))
def test_log_delta_is_accurate_everywhere(mu, t):
    epsilon = mu * (t + mu / 2)
    value = gdp.log_delta(epsilon, mu)
    assert abs(mpmath.mpf(value) - exact_log_delta(epsilon, mu)) <= 2.0**-52 * 8 * (4 + abs(value) + t * t)


@pytest.mark.parametrize("mu", [0.3999999, 0.4, 0.4000001, 2.0, 2.1])
@pytest.mark.parametrize("t", [-1.0000001, -1, 3.9, 4.0, 4.1])
def test_log_delta_where_the_formula_changes(mu, t):
    epsilon = mu * (t + mu / 2)
    assert abs(gdp.log_delta(epsilon, mu) - float(exact_log_delta(epsilon, mu))) < 1e-13


def test_corners():
    assert gdp.delta(0.0, 0.0) == 0
    assert gdp.delta(1.0, 0.0) == 0
    assert gdp.delta(np.inf, 1.0) == 0
    assert gdp.delta(-np.inf, 1.0) == 1
    assert gdp.delta(-1.0, 0.0) == pytest.approx(-np.expm1(-1))
    assert gdp.epsilon(1e-5, 0.0) == 0
    assert gdp.log_delta(1e4, 1.0) < -4e7
    assert gdp.delta(np.zeros((2, 1)), np.ones(3)).shape == (2, 3)
    assert gdp.epsilon(np.full((2, 1), 1e-5), np.ones(3)).shape == (2, 3)
    assert isinstance(gdp.delta(1, 1), float)
    assert isinstance(gdp.mu(1, 1e-5), float)


@pytest.mark.parametrize(
    "call",
    [
        lambda: gdp.delta(np.nan, 1.0),
        lambda: gdp.delta(1.0, -1.0),
        lambda: gdp.delta(1.0, np.inf),
        lambda: gdp.epsilon(0.0, 1.0),
        lambda: gdp.epsilon(1.0, 1.0),
        lambda: gdp.epsilon([1e-5, np.nan], 1.0),
        lambda: gdp.mu(-0.1, 1e-5),
        lambda: gdp.mu(np.inf, 1e-5),
        lambda: gdp.mu(1.0, 0.0),
        lambda: gdp.mu(1.0, 1e-5, rounding="nearest"),
        lambda: gdp.epsilon(1e-5, 1.0, rounding="nearest"),
        lambda: gdp.delta("1", 1.0),
        lambda: gdp.delta(1.0, 1j),
        lambda: gdp.delta(None, 1.0),
        lambda: gdp.delta(np.ma.array([1.0, 2.0], mask=[False, True]), 1.0),
        lambda: gdp.mu(True, 1e-5),
    ],
)
def test_bad_arguments_are_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()


@settings(max_examples=80, deadline=None)
@given(mu=mus, log_delta=st.floats(-690, -0.01))
def test_epsilon_is_on_the_safe_side_and_close(mu, log_delta):
    delta = float(np.exp(log_delta))
    epsilon = gdp.epsilon(delta, mu)
    assert exact_delta(epsilon, mu) <= delta
    if epsilon > 0:
        assert exact_delta(epsilon * (1 - 1e-11) - 1e-11 * mu, mu) > delta
    below = gdp.epsilon(delta, mu, rounding="down")
    assert below == 0 or exact_delta(below, mu) >= delta
    assert below >= epsilon - 2e-11 * (epsilon + mu)


@pytest.mark.parametrize("wants_epsilon", [True, False])
@settings(max_examples=50, deadline=None)
@given(size=st.floats(1.5, 150).map(lambda x: 10.0**x), log_delta=st.floats(-690, -0.01))
def test_both_inverses_are_on_the_safe_side_at_any_size(wants_epsilon, size, log_delta):
    delta = float(np.exp(log_delta))
    if wants_epsilon:
        down, up = gdp.epsilon(delta, size, rounding="down"), gdp.epsilon(delta, size)
        assert exact_delta(up, size) <= delta <= exact_delta(down, size)
    else:
        down, up = gdp.mu(size, delta), gdp.mu(size, delta, rounding="up")
        assert exact_delta(size, down) <= delta <= exact_delta(size, up)
    assert 0.0 < up - down <= 1e-10 * up


@pytest.mark.parametrize("exponent", [0, 5, 6, 10, 30, 100])
def test_the_inverses_are_continuous_where_the_formula_changes(exponent):
    """No gap at mu = 1e6, where the closed form takes over, and none elsewhere."""
    mu = 10.0**exponent * np.array([0.999999, 1.0, 1.000001])
    epsilon = gdp.epsilon(1e-5, mu)
    assert np.all(np.diff(epsilon) > 0)
    np.testing.assert_allclose(gdp.mu(epsilon, 1e-5), mu, rtol=1e-11)


def test_limits_of_the_doubles():
    """Whatever overflows on the way, the answer is a number on the right side, without a warning."""
    values = [0.0, 5e-324, 1e-300, 1e-8, 1.0, 1e10, 1e100, 1e160, 1e308]
    epsilon, mu = np.array(values)[:, None], np.array(values[1:])
    log_delta = gdp.log_delta(epsilon, mu)
    assert np.all(log_delta <= 0)
    assert log_delta[-1, -1] == 0  # epsilon is far below mu**2 / 2
    assert log_delta[-1, 3] == -np.inf
    assert gdp.log_delta(2.0**64, 1.0) == pytest.approx(-(2.0**127), rel=1e-15)
    deltas = np.array([5e-324, 1e-300, 1e-5, 0.5, 1 - 1e-10, 1 - 2.0**-53])[:, None]
    for rounding in ("up", "down"):
        assert np.all(gdp.epsilon(deltas, mu, rounding=rounding) >= 0)
        assert np.all(gdp.mu(epsilon.T, deltas, rounding=rounding) > 0)
    assert gdp.epsilon(1e-5, 1e160) == np.inf
    assert gdp.epsilon(1e-5, 1e160, rounding="down") < np.inf
    assert gdp.mu(1.0, 1 - 2.0**-53, rounding="up") == np.inf
    assert exact_delta(1.0, gdp.mu(1.0, 1 - 2.0**-53)) <= 1 - 2.0**-53


@settings(max_examples=40, deadline=None)
@given(mu=mus, small=st.floats(-15.9, -2).map(lambda x: 10.0**x))
def test_both_sides_hold_for_delta_near_one(mu, small):
    up, down = gdp.epsilon(1 - small, mu), gdp.epsilon(1 - small, mu, rounding="down")
    assert exact_delta(up, mu) <= 1 - small
    assert down == 0 or exact_delta(down, mu) >= 1 - small


@settings(max_examples=80, deadline=None)
@given(epsilon=st.floats(0, 50) | st.floats(-8, 0).map(lambda x: 10.0**x), log_delta=st.floats(-690, -0.01))
def test_mu_lies_on_the_side_that_was_asked_for(epsilon, log_delta):
    delta = float(np.exp(log_delta))
    down, up = gdp.mu(epsilon, delta), gdp.mu(epsilon, delta, rounding="up")
    assert exact_delta(epsilon, down) <= delta <= exact_delta(epsilon, up)
    assert up - down <= 1e-10 * up


@pytest.mark.parametrize("log_delta", [-345.58, -612.5847102118565, -639.92466654916, -690.0, -700.0])
@pytest.mark.parametrize("epsilon", [0.0, 2.3e-308, 1e-200])
def test_the_rounding_of_the_logarithms_is_allowed_for(epsilon, log_delta):
    """For a tiny mu delta is about mu / sqrt(2 pi), and a logarithm near 700 is known to 1e-13 only."""
    delta = float(np.exp(log_delta))
    for rounding, side in (("down", -1), ("up", 1)):
        assert side * (exact_delta(epsilon, gdp.mu(epsilon, delta, rounding=rounding)) - delta) >= 0
        for factor in (2.6, 3.0, 20.0):
            found = gdp.epsilon(delta, factor * delta, rounding=rounding)
            assert side * (exact_delta(found, factor * delta) - delta) <= 0


def test_batch_equals_single_elements():
    rng = np.random.default_rng(1)
    mu, delta = 10 ** rng.uniform(-6, 1, 50), 10 ** rng.uniform(-300, -0.01, 50)
    epsilon = gdp.epsilon(delta, mu)
    np.testing.assert_array_equal(epsilon, [gdp.epsilon(d, m) for d, m in zip(delta, mu, strict=True)])
    both = [gdp.mu(e, d) for e, d in zip(epsilon, delta, strict=True)]
    np.testing.assert_array_equal(gdp.mu(epsilon, delta), both)


def test_values_of_the_papers():
    """Koskela, Tobaben and Honkela: Figures 3 to 5 (sigma = 100, delta = 1e-5) and the MIMIC experiment."""
    steps = np.array([100, 200, 300, 400, 500, 600, 900, 420])
    expected = [0.34067, 0.49698, 0.62000, 0.72552, 0.81973, 0.90584, 1.13177, 0.74514]
    np.testing.assert_allclose(gdp.epsilon(1e-5, np.sqrt(steps) / 100), expected, atol=5.1e-6)
    log10_delta = gdp.log_delta([0.2, 0.4, 0.5, 0.6, 0.8], np.sqrt(420) / 100) / np.log(10)
    np.testing.assert_allclose(log10_delta, [-1.7058, -2.6187, -3.1994, -3.8679, -5.4790], atol=5.1e-5)
    assert gdp.epsilon(1e-5, np.sqrt(50) / 10.614652581338738) == pytest.approx(2.75102, abs=5.1e-6)
    golden = gdp.epsilon([1e-5, 1e-10, 1e-30, 1e-100], np.sqrt(420) / 100)
    np.testing.assert_allclose(golden, [0.745138236, 1.21207799, 2.29787822, 4.33586889], rtol=1e-8)
