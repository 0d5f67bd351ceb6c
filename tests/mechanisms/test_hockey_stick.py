"""One step in closed form: containment against a hundred digits, both directions, down to the last double."""

import highprecision as hp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pld_accountant as pa
from pld_accountant.mechanisms import hockey_stick

SIGMA = st.floats(-1.5, 2.5).map(lambda x: 10.0**x)
Q = st.one_of(st.floats(-8, 0).map(lambda x: 10.0**x), st.floats(-12, -0.5).map(lambda x: 1.0 - 10.0**x))


def one(value):
    return np.array([float(value)])


def log_bounds(epsilon, sigma, q, direction):
    low, high = hockey_stick.log_delta_bounds(one(epsilon), one(sigma), one(q), direction)
    return float(low[0]), float(high[0])


def check_delta(epsilon, sigma, q, direction):
    exact = hp.one_step(epsilon, sigma, q, direction)
    low, high = log_bounds(epsilon, sigma, q, direction)
    if exact == 0:
        assert low == -np.inf
        return
    with mpmath.workdps(30):
        assert low <= mpmath.log(exact) <= high


@settings(max_examples=60, deadline=None)
@given(sigma=SIGMA, q=Q, z=st.floats(0.0, 30.0), direction=st.sampled_from(["remove", "add"]))
def test_delta_lies_between_its_bounds(sigma, q, z, direction):
    """z = how many standard deviations out the threshold lies, so that log delta reaches -450."""
    t = z / sigma + 0.5 / sigma**2
    epsilon = float(np.log1p(q * np.expm1(t))) if t < 600.0 else t + float(np.log(q))
    if direction == "add":
        share = q * -np.expm1(-t)
        epsilon = -float(np.log1p(-share)) if share < 1.0 else t
    check_delta(max(epsilon, 0.0), sigma, q, direction)


@pytest.mark.parametrize("q", [0.005, 0.3, 0.9, 1.0 - 1e-9])
@pytest.mark.parametrize("distance", [1e-2, 1e-6, 1e-10, 1e-13, 0.0, -1e-10])
def test_addition_near_its_largest_loss(q, distance):
    check_delta(-float(np.log1p(-q)) * (1.0 - distance), 2.0, q, "add")


@pytest.mark.parametrize("epsilon", [700.0, 745.0, 746.0, 1e4, 1e6])
def test_addition_of_a_full_batch_beyond_the_range_of_exp(epsilon):
    mu = float(np.sqrt(2.0 * epsilon + 16.0) - 4.0)  # epsilon is about four standard deviations above the mean loss
    with mpmath.workdps(40):
        beyond = [mpmath.ncdf(sign * mpmath.mpf(mu) / 2 - mpmath.mpf(epsilon) / mu) for sign in (1, -1)]
        exact = mpmath.log(beyond[0] - mpmath.exp(epsilon) * beyond[1])
        low, high = log_bounds(epsilon, 1.0 / mpmath.mpf(mu), 1.0, "add")
        assert low <= exact <= high
    ledger = pa.Ledger(1, noise_multiplier=1.0 / mu, sample_rate=1.0, max_grad_norm=1.0)
    ledger.record([1.0])
    found = [ledger.epsilon(1e-5, direction).upper[0] for direction in ("add", "remove")]
    assert found[0] > epsilon and np.isclose(*found, rtol=1e-9)


def test_beyond_additions_largest_loss_delta_is_zero():
    assert log_bounds(1.0, 2.0, 0.005, "add") == (-np.inf, -np.inf)
    found = pa.compose([(pa.SampledGaussian(2.0, 0.005), 1)]).delta(1.0, "add")
    assert (found.lower, found.estimate, found.upper) == (0.0, 0.0, 0.0)
    both = pa.compose([(pa.SampledGaussian(2.0, 0.005), 1)]).delta(1.0)
    assert 0.0 < both.lower <= both.upper < 1e-30


def check_epsilon(delta, sigma, q, direction):
    """The curve falls: the lower end's delta is at least `delta`, the upper end's at most."""
    low, high = (float(v[0]) for v in hockey_stick.epsilon_bounds(one(delta), one(sigma), one(q), direction))
    assert 0.0 <= low <= high
    assert hp.one_step(high, sigma, q, direction) <= delta
    if low > 0.0:
        assert hp.one_step(low, sigma, q, direction) >= delta
    return low, high


@settings(max_examples=60, deadline=None)
@given(
    sigma=SIGMA,
    q=Q,
    tens=st.one_of(st.floats(-5, -0.01), st.floats(-300, -5)),
    direction=st.sampled_from(["remove", "add"]),
)
def test_epsilon_lies_between_its_bounds(sigma, q, tens, direction):
    check_epsilon(10.0**tens, sigma, q, direction)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("share", [1e-3, 1e-9, 1e-13, 1e-15])
@pytest.mark.parametrize(("sigma", "q"), [(2.0, 0.005), (0.5, 0.9), (30.0, 1e-4)])
def test_epsilon_where_it_is_almost_zero(direction, share, sigma, q):
    """delta just below delta(0): the smallest error of delta moves epsilon by much."""
    check_epsilon(float(hp.one_step(0.0, sigma, q, direction)) * (1.0 - share), sigma, q, direction)


@pytest.mark.parametrize("delta", [1e-4, 1.0000001e-5, 1e-5, 0.99999e-5])
def test_epsilon_is_zero_from_delta_q_on_even_at_tiny_noise(delta):
    low, high = check_epsilon(delta, 0.05, 1e-5, "remove")
    if delta >= 1e-5:
        assert low == 0.0
    if delta > 1.00000001e-5:
        assert high == 0.0


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_bounds_are_tight(direction):
    sigma, q = np.array([0.5, 2.0, 10.0]), np.array([0.5, 0.005, 0.1])
    for delta in (1e-6, 1e-30, 1e-200):
        low, high = hockey_stick.epsilon_bounds(np.full(3, delta), sigma, q, direction)
        assert np.all(high - low <= 1e-9 * high)
    low, high = hockey_stick.log_delta_bounds(np.full(3, 1e-3), sigma, q, direction)
    assert np.all(high - low <= 1e-10 * (1.0 - high))


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_many_buckets_equal_one_at_a_time_up_to_round_off(direction):
    sigma, q = np.geomspace(0.3, 30.0, 12), np.linspace(0.001, 1.0, 12)
    together = np.stack(hockey_stick.epsilon_bounds(np.full(12, 1e-5), sigma, q, direction))
    alone = [
        np.ravel(hockey_stick.epsilon_bounds(one(1e-5), s, r, direction))
        for s, r in zip(sigma[:, None], q[:, None], strict=True)
    ]
    assert together == pytest.approx(np.stack(alone, axis=1), rel=1e-12)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_a_sample_rate_of_one_is_the_gaussian(direction):
    full = pa.compose([(pa.Gaussian(0.8), 1)])
    for delta in (0.5, 1e-5, 1e-50):
        low, high = (float(v[0]) for v in hockey_stick.epsilon_bounds(one(delta), one(0.8), one(1.0), direction))
        bounds = full.epsilon(delta)
        assert max(low, bounds.lower) <= min(high, bounds.upper)
