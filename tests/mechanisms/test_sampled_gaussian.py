"""Steps of the sampled Gaussian: log-moments, parts of the losses, and single steps in closed form."""

import itertools

import highprecision as hp
import mpmath
import numpy as np
import pytest
from scipy import special

from pld_accountant.mechanisms import hockey_stick
from pld_accountant.mechanisms.base import CharacteristicSteps, SplittableSteps, StepFamily
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps


def one(value):
    return np.array([float(value)])


def transform(steps, theta, spacing, m):
    """exp(K) times the characteristic function at m frequencies, not centred: (rows, m)."""
    found = steps.spectrum(theta, spacing, m, np.arange(steps.size), steps.size, np.inf)
    omega = spacing * np.arange(1, m + 1)
    return np.exp(found.log_moment[:, None] + found.re + 1j * found.im + 1j * found.mean[:, None] * omega)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_family_has_what_the_engine_asks_for(direction):
    steps = SampledGaussianSteps(one(2.0), one(0.01), direction)
    assert isinstance(steps, StepFamily)
    assert isinstance(steps, CharacteristicSteps)
    assert isinstance(steps, SplittableSteps)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_log_moments_are_never_below_the_truth(direction):
    sigma, q = np.array([0.4, 2.0, 10.0, 1.0]), np.array([0.1, 0.005, 0.9, 1.0])
    steps = SampledGaussianSteps(sigma, q, direction)
    theta = np.array([2.0**-18, 0.3, 7.0, 60.0])
    found = steps.log_moments(theta)
    for i in range(4):
        for j, t in enumerate(theta):
            exact = hp.law(sigma[i], q[i], direction, t).k
            assert exact <= found[i, j] <= float(exact) * (1.0 + 1e-9) + 1e-13
    # remembered values are the same values, in the order that is asked for
    assert np.array_equal(steps.log_moments(theta[::-1]), found[:, ::-1])


def test_where_nodes_run_out_the_gaussian_bounds_the_log_moment():
    sigma = 0.3
    steps = SampledGaussianSteps(one(sigma), one(0.5), "remove")
    assert steps.log_moments(one(2.0**30))[0, 0] >= 2.0**30 * (2.0**30 + 1.0) / (2.0 * sigma**2)


def test_parts_that_adjoin_add_up_to_the_whole():
    sigma, q = np.array([0.4, 2.0]), np.array([1e-5, 0.005])
    ends = [-np.inf, 4.0, 7.0, 30.0]
    whole = SampledGaussianSteps(sigma, q, "remove")
    parts = [
        SampledGaussianSteps(sigma, q, "remove", begin=begin, end=end, infinite=False)
        for begin, end in itertools.pairwise(ends)
    ]
    assert all(p.whole for p in parts)
    theta, spacing, m = 3.0, 0.5 * np.pi, 11
    exact = transform(whole, theta, spacing, m)
    assert np.sum([transform(p, theta, spacing, m) for p in parts], axis=0) == pytest.approx(
        exact, rel=0.0, abs=1e-12 * np.abs(exact).max()
    )
    assert min(np.abs(transform(p, theta, spacing, m)).max() for p in parts) > 0.0


def test_a_split_has_two_parts_that_adjoin():
    sigma, q = np.array([0.4, 2.0, 1.0]), np.array([1e-5, 0.005, 1.0])
    whole = SampledGaussianSteps(sigma, q, "remove")
    small, large = whole.split(4.0, 30.0)
    np.testing.assert_array_equal(small.part[:2, 1], large.part[:2, 0])
    assert whole.has_large_losses().tolist() == [True, True, False]
    # full batches are not split
    assert small.part[2].tolist() == [-np.inf, np.inf]
    theta, spacing, m = 3.0, 0.5 * np.pi, 11
    exact, low, high = (transform(s, theta, spacing, m)[:2] for s in (whole, small, large))
    assert low + high == pytest.approx(exact, rel=0.0, abs=1e-12 * np.abs(exact).max())
    assert np.all(small.mass_beyond()[:2] >= special.ndtr(-4.0))
    assert small.mass_beyond()[:2] == pytest.approx(special.ndtr(-4.0), rel=1e-9)
    assert small.mass_beyond()[2] == 0.0


def test_the_mass_beyond_an_end():
    sigma, q, reach = 1.5, 0.01, 6.0
    steps = SampledGaussianSteps(one(sigma), one(q), "remove", end=reach)
    assert not steps.whole
    with mpmath.workdps(25):
        x = mpmath.mpf(float(steps.part[0, 1]))
        mass = (1 - mpmath.mpf(q)) * mpmath.ncdf(-x / sigma) + q * mpmath.ncdf((1 - x) / sigma)
        assert float(mass) == pytest.approx(float(mpmath.ncdf(-reach)), rel=1e-9)
    assert mass <= steps.infinite_mass()[0] <= mass * (1.0 + 1e-9)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_an_interpolated_step_is_the_mixture_of_its_outcomes(direction):
    sigma, q, weight = np.array([3.0, 2.0, 2.0, 1.0]), np.array([0.02, 0.02, 0.3, 0.3]), np.array([0.3, 0.8])
    steps, lower, upper = SampledGaussianSteps(sigma, q, direction), np.array([0, 2]), np.array([1, 3])
    epsilon = np.full(2, 0.013)
    low, high = steps.log_delta_of_drawn_step(epsilon, upper, lower, weight)
    parts = [np.exp(hockey_stick.log_delta(epsilon, sigma[row], q[row], direction)) for row in (lower, upper)]
    exact = np.log((1.0 - weight) * parts[0] + weight * parts[1])
    assert np.all((low <= exact) & (exact <= high) & (high - low < 1e-9))
    a, b = steps.epsilon_of_drawn_step(np.exp(exact), upper, lower, weight)
    assert np.all((a <= epsilon) & (epsilon <= b) & (b - a < 1e-6 * epsilon))


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("lower_row", "weight"), [(0, 0.3), (0, 0.999), (-1, 0.3), (0, 0.0), (0, 1.0)])
def test_the_mixture_lies_between_its_bounds(direction, lower_row, weight):
    """Against a hundred digits, from the middle to the far tail."""
    sigma, q = np.array([3.0, 2.0]), np.full(2, 0.3)
    steps = SampledGaussianSteps(sigma, q, direction)
    given = np.array([1]), np.array([lower_row]), one(weight)
    for epsilon in (1e-9, 0.05, 0.2, 0.3 if direction == "add" else 3.0):
        below = hp.one_step(epsilon, 3.0, 0.3, direction) if lower_row >= 0 else 0
        with mpmath.workdps(60):
            exact = (1 - mpmath.mpf(weight)) * below + weight * hp.one_step(epsilon, 2.0, 0.3, direction)
            low, high = steps.log_delta_of_drawn_step(one(epsilon), *given)
            if exact > 0:
                assert low[0] <= mpmath.log(exact) <= high[0]
        if 0 < exact < 0.5:
            a, b = steps.epsilon_of_drawn_step(one(exact), *given)
            assert a[0] <= epsilon * (1.0 + 1e-12)
            assert epsilon * (1.0 - 1e-12) <= b[0]
            assert b[0] - a[0] <= 1e-6 * epsilon + 1e-11


def test_a_lower_outcome_that_costs_nothing():
    steps = SampledGaussianSteps(one(1.0), one(0.02), "remove")
    low, high = steps.epsilon_of_drawn_step(one(1e-3), np.array([0]), np.array([-1]), one(0.5))
    half = steps.epsilon_of_step(one(2e-3), np.array([0]))
    assert low[0] == pytest.approx(half[0][0], rel=1e-8)
    assert high[0] == pytest.approx(half[1][0], rel=1e-8)


def test_a_full_batch_between_two_edges_is_one_gaussian():
    steps, weight = SampledGaussianSteps(np.array([2.0, 1.0]), np.ones(2), "remove"), one(0.4)
    between = np.array([1]), np.array([0]), weight
    low, high = steps.epsilon_of_drawn_step(one(1e-5), *between)
    exact = hockey_stick.epsilon_bounds(one(1e-5), one(1.0 / np.sqrt(0.6 / 4.0 + 0.4)), one(1.0), "remove")
    assert low[0] == pytest.approx(exact[0][0], rel=1e-9)
    assert high[0] == pytest.approx(exact[1][0], rel=1e-9)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_range_of_losses_holds_all_but_its_share(direction):
    """The mass above the range of a grid; below it the mass is moved up."""
    sigma, q, reach = 1.5, 0.2, 6.0
    steps = SampledGaussianSteps(one(sigma), one(q), direction)
    bottom, top = steps.range_of_losses(0, reach)
    assert bottom < steps.typical_loss(0) < top
    with mpmath.workdps(30):
        # x at which the loss is at the top, and the mass of P beyond it
        x = sigma**2 * mpmath.log(1 + (mpmath.exp(top if direction == "remove" else -top) - 1) / mpmath.mpf(q)) + 0.5
        beyond = (1 - q) * mpmath.ncdf(-x / sigma) + q * mpmath.ncdf((1 - x) / sigma)
        beyond = beyond if direction == "remove" else mpmath.ncdf(x / sigma)
    assert 1e-30 < beyond <= np.exp(-0.5 * reach**2)


@pytest.mark.parametrize(("sigma", "q"), [(1.0, 0.3), (0.01, 0.3), (3.0, 0.9)])
@pytest.mark.parametrize("delta", [5e-324, 1e-320, 1e-310])
def test_epsilon_of_deltas_below_the_ordinary_doubles(sigma, q, delta):
    """Their quotient by the rate has few digits."""
    low, high = (end.item() for end in hockey_stick.epsilon_bounds(*np.array([[delta], [sigma], [q]]), "remove"))
    with mpmath.workdps(60):
        s, share = mpmath.mpf(sigma), mpmath.mpf(delta) / mpmath.mpf(q)

        def exceeds(side):
            loss = mpmath.log1p(mpmath.expm1(mpmath.mpf(side)) / mpmath.mpf(q))
            return mpmath.ncdf(0.5 / s - loss * s) - mpmath.exp(loss) * mpmath.ncdf(-0.5 / s - loss * s) >= share

        assert exceeds(low) and not exceeds(high)


def test_the_largest_loss_is_that_of_addition():
    q = np.array([0.01, 0.9, 1.0])
    assert np.isinf(SampledGaussianSteps(np.ones(3), q, "remove").largest_loss()).all()
    most = SampledGaussianSteps(np.ones(3), q, "add").largest_loss()
    for found, rate in zip(most[:2], q[:2], strict=True):
        with mpmath.workdps(40):
            exact = -mpmath.log(1 - mpmath.mpf(rate))
            assert exact <= found <= exact * (1 + 1e-14)
    assert most[2] == np.inf


def test_the_largest_loss_bounds_the_log_moment_where_nodes_run_out():
    steps, theta = SampledGaussianSteps(one(0.3), one(1e-5), "add"), 2.0**30
    k = steps.log_moments(one(theta))[0, 0]
    # K tends to -log(1 - q) theta from below
    assert 0.9 * theta * 1e-5 <= k <= theta * steps.largest_loss()[0]


def test_losses_that_are_surely_reached():
    steps = SampledGaussianSteps(np.array([0.7, 3.0]), np.array([0.3, 1.0]), "add")
    deviations = np.array([-2.0, 0.0, 1.0, 9.0])
    found = steps.surely_lost(deviations)
    for k in range(2):
        x = -deviations * steps.sigma[k]
        exact = -np.log1p(steps.q[k] * np.expm1((2.0 * x - 1.0) / (2.0 * steps.sigma[k] ** 2)))
        assert found[k] == pytest.approx(exact, rel=1e-12)
    assert np.isneginf(SampledGaussianSteps(np.ones(1), np.ones(1), "remove").surely_lost(deviations)).all()


def test_losses_that_are_surely_reached_at_a_rate_near_one():
    """1 + q (e^t - 1) has lost the digits of 1 - q, which decide how large the loss is."""
    q, sigma, deviations = 1.0 - 2.0**-40, 0.2, np.array([0.0, 2.0, 20.0])
    found = SampledGaussianSteps(np.array([sigma]), np.array([q]), "add").surely_lost(deviations)[0]
    with mpmath.workdps(40):
        for r, loss in zip(deviations, found, strict=True):
            t = -mpmath.mpf(float(r)) / sigma - mpmath.mpf(1) / (2 * mpmath.mpf(sigma) ** 2)
            assert loss == pytest.approx(float(-mpmath.log(mpmath.mpf(2) ** -40 + q * mpmath.exp(t))), rel=1e-12)
