"""The Laplace mechanism: the route of families without characteristic functions, by grids and by convolution."""

from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy import stats

import pld_accountant as pa
from pld_accountant.composition.known import KnownComposition
from pld_accountant.engine import schedule
from pld_accountant.engine.smoothed import Smoothed
from pld_accountant.mechanisms.base import CharacteristicSteps, StepFamily
from pld_accountant.mechanisms.laplace import LaplaceSteps
from pld_accountant.mechanisms.mixed import MixedSteps, mixed
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps


def exact_delta(noise, steps, epsilon, theta):
    """delta by the number of losses that are no atoms: none and one in closed form, more by a trapezoidal sum.

    The transform of an atom does not decay, that of the density does like 1 / |z|: the integrand along Re z = theta, of
    which the first two terms are subtracted, decays like 1 / |z|^4.
    """
    c = 1.0 / noise
    delta = 0.0
    for n, factor in ((steps, 1.0), (steps - 1, steps)):
        k = np.arange(n + 1)
        losses = (n - 2 * k) * c
        masses = factor * np.exp(stats.binom.logpmf(k, n, 0.5) - k * c)
        if n == steps:
            rest = np.maximum(-np.expm1(epsilon - losses), 0.0)
        else:
            low = np.clip(epsilon - losses, -c, c)
            rest = 0.5 * -np.expm1(0.5 * (low - c))
            rest += 0.5 * np.exp(epsilon - losses - 0.5 * c) * (np.exp(-0.5 * c) - np.exp(-0.5 * low))
        delta += float(masses @ rest)
    period = 60.0 / theta + 4.0 * steps * c
    omega = 2.0 * np.pi / period * np.arange(400_000)
    z = theta + 1j * omega
    atoms = 0.5 * (np.exp(z * c) + np.exp(-(1.0 + z) * c))
    between = ((1.0 + z) * np.exp(z * c) + z * np.exp(-(1.0 + z) * c)) / (1.0 + 2.0 * z) - atoms
    power = (atoms + between) ** steps - atoms**steps - steps * atoms ** (steps - 1) * between
    terms = power * np.exp(-z * epsilon) / (z * (1.0 + z))
    return delta + float((2.0 * terms.sum() - terms[0]).real / period)


def two_step_delta(noise, epsilon):
    """delta of two steps from the density, atom by atom, with mpmath."""
    c = mpmath.mpf(1) / noise
    end = mpmath.exp(-c) / 2

    def once(t):
        """E[(1 - exp(t - L))+] of one step."""
        if t >= c:
            return mpmath.mpf(0)
        return 1 - mpmath.exp((t - c) / 2) if t > -c else 1 - mpmath.exp(t)

    inside = mpmath.quad(lambda x: mpmath.exp((x - c) / 2) / 4 * once(epsilon - x), [-c, epsilon - c, c])
    return once(epsilon - c) / 2 + end * once(epsilon + c) + inside


@pytest.mark.parametrize("noise", [0.5, 1.0, 10.0])
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-9])
def test_one_step_is_the_closed_form(noise, delta):
    found = pa.compose([(pa.Laplace(noise), 1)]).epsilon(delta)
    exact = max(1.0 / noise + 2.0 * np.log1p(-delta), 0.0)
    assert found.lower <= exact <= found.upper
    assert found.upper - found.lower <= 1e-12 * (1.0 + exact)
    assert found.method == pa.Method.CLOSED_FORM


@pytest.mark.parametrize(("noise", "epsilon"), [(1.0, 0.5), (1.0, 1.7), (4.0, 0.2)])
def test_two_steps_enclose_the_integral_over_the_density(noise, epsilon):
    found = pa.compose([(pa.Laplace(noise), 2)]).delta(epsilon)
    exact = two_step_delta(noise, epsilon)
    assert found.lower <= exact <= found.upper
    assert found.upper - found.lower <= 1e-5 * found.upper


@pytest.mark.parametrize(("noise", "steps", "epsilon", "theta"), [(10.0, 100, 2.0, 2.0), (20.0, 200, 2.0, 3.0)])
@pytest.mark.parametrize("methods", [None, tuple(m for m in schedule.MIXED if isinstance(m, Smoothed))])
def test_many_steps_enclose_the_inverse_transform(noise, steps, epsilon, theta, methods):
    composition = KnownComposition({pa.Laplace(noise): steps}, methods)
    exact = exact_delta(noise, steps, epsilon, theta)
    found = composition.delta(epsilon)
    assert found.lower <= exact <= found.upper
    assert found.method == pa.Method.TRANSFORM
    found = composition.epsilon(exact)
    assert found.lower <= epsilon <= found.upper
    assert found.upper - found.lower <= 1e-6 * epsilon


def test_laplace_and_gaussian_steps_compose_in_one_family():
    alone = pa.compose([(pa.SampledGaussian(2, 0.005), 10_000)]).epsilon(1e-5)
    free = pa.compose([(pa.SampledGaussian(2, 0.005), 10_000), (pa.Laplace(1e6), 3)]).epsilon(1e-5)
    # three steps of 1e-6-DP cost at most 3e-6
    assert alone.lower <= free.upper <= alone.upper + 3e-6 + 1e-4 * alone.upper
    assert free.lower <= alone.upper + 3e-6


@pytest.mark.parametrize("noise", [0.2, 1.0, 50.0, 1e6])
def test_log_moments_are_above_the_exact_ones_and_close(noise):
    theta = np.array([1e-3, 0.5, 3.0, 100.0, 1e4])
    found = LaplaceSteps(np.array([noise]), "remove").log_moments(theta)[0]
    with mpmath.workdps(60):
        for t, value in zip(theta, found, strict=True):
            a, c = 1 + mpmath.mpf(t), 1 / mpmath.mpf(noise)
            exact = mpmath.log((a * mpmath.exp(t * c) + t * mpmath.exp(-a * c)) / (2 * a - 1))
            assert exact <= value
            assert value <= exact * (1 + mpmath.mpf(1e-11)) + mpmath.mpf(1e-14) * (1 + t) / noise + 1e-12 * (
                t * c > 500
            )


@pytest.mark.parametrize("noise", [0.5, 3.0])
def test_masses_of_cells_add_up_and_are_those_of_the_density(noise):
    steps = LaplaceSteps(np.array([noise]), "add")
    cap = 1.0 / noise
    knots = np.unique(np.concatenate([np.linspace(-1.3 * cap, 1.4 * cap, 40), [-cap, cap]]))
    p, u = steps.masses(0, knots)
    assert p.sum() == pytest.approx(1.0, rel=1e-13)
    for k, (left, right) in enumerate(pairwise(knots)):
        low, high = max(left, -cap), min(right, cap)
        exact_p = exact_u = mpmath.mpf(0)
        if high > low:
            exact_p = mpmath.quad(lambda x: mpmath.exp((x - cap) / 2) / 4, [low, high])
            exact_u = mpmath.quad(
                lambda x, left=left: mpmath.exp((x - cap) / 2) / 4 * -mpmath.expm1(left - x), [low, high]
            )
        for at, mass in ((cap, 0.5), (-cap, 0.5 * np.exp(-cap))):
            if left <= at < right:
                exact_p, exact_u = exact_p + mass, exact_u - mass * mpmath.expm1(left - at)
        assert p[k] == pytest.approx(float(exact_p), rel=1e-11, abs=1e-18)
        assert u[k] == pytest.approx(float(exact_u), rel=1e-10, abs=1e-18)


def test_families_keep_their_protocols():
    laplace, gaussian = LaplaceSteps(np.ones(2), "remove"), SampledGaussianSteps(np.ones(1), np.ones(1), "remove")
    for family in (laplace, gaussian, MixedSteps([laplace, gaussian])):
        assert isinstance(family, StepFamily)
    assert gaussian.decays and not laplace.decays
    assert mixed([gaussian, gaussian]).decays and not mixed([gaussian, laplace]).decays
    assert isinstance(gaussian, CharacteristicSteps) and isinstance(laplace, CharacteristicSteps)
    assert not isinstance(MixedSteps([laplace, gaussian]), CharacteristicSteps)


def test_rows_of_a_mixed_family_are_those_of_its_parts():
    laplace = LaplaceSteps(np.array([2.0, 5.0]), "add")
    gaussian = SampledGaussianSteps(np.array([1.5]), np.array([0.1]), "add")
    both, theta = MixedSteps([laplace, gaussian]), np.array([0.5, 4.0])
    np.testing.assert_array_equal(both.log_moments(theta)[2], gaussian.log_moments(theta)[0])
    np.testing.assert_array_equal(both.largest_loss(), [*laplace.largest_loss(), *gaussian.largest_loss()])
    row, epsilon = np.array([2, 0, 1]), np.array([0.01, 0.2, 0.1])
    found = both.log_delta_of_step(epsilon, row)
    for i, (family, at) in enumerate(((gaussian, 0), (laplace, 0), (laplace, 1))):
        alone = family.log_delta_of_step(epsilon[i : i + 1], np.array([at]))
        assert [found[0][i], found[1][i]] == [alone[0][0], alone[1][0]]


def binomial_delta(n, epsilon, c):
    """delta of n steps of randomized response with losses c and -c, which dominate Laplace steps of scale 1 / c."""
    with mpmath.workdps(40):
        p, total = mpmath.e**c / (1 + mpmath.e**c), mpmath.mpf(0)
        first = int((n + epsilon / c) / 2)
        chance = mpmath.binomial(n, first) * p**first * (1 - p) ** (n - first)
        for k in range(first, min(n, first + 1_500) + 1):
            loss = (2 * k - n) * c
            if loss > epsilon:
                total += chance * (1 - mpmath.e ** (epsilon - loss))
            chance *= (n - k) * mpmath.e**c / (k + 1)  # p / (1 - p) is e^c
        return float(total)


def test_losses_below_the_unit_of_doubles():
    """Where exp(loss) is 1 in doubles; the lower bound of delta was 12 times too large.

    Bounds that are closer than the tolerance take half a minute more of convolution.
    """
    n, noise = 10_000, 1e16
    composed = pa.compose([(pa.Laplace(noise), n)])
    found = composed.delta(3e-14, tolerance=1e-3)
    most = binomial_delta(n, mpmath.mpf(3e-14), mpmath.mpf(1.0 / noise))
    assert found.lower <= most * (1.0 + 1e-12)
    assert found.upper >= most * (1.0 - 1e-3), "nearly all of the loss is at -c and c"
    found = composed.epsilon(1e-15, tolerance=1e-3)
    assert found.lower <= found.upper
    assert binomial_delta(n, mpmath.mpf(found.lower), mpmath.mpf(1.0 / noise)) >= 1e-15
    mu = composed.mu(1e-15, seconds=1.0)
    assert mu.lower <= mu.upper


def test_the_gaussian_that_dominates_keeps_its_digits():
    noise = np.array([0.03, 0.3, 1.0, 3.0, 1e5, 1e8, 1e15, 1e16, 1e30])
    found = LaplaceSteps(noise, "remove").gaussian_mu()
    with mpmath.workdps(60):
        for value, sigma in zip(found, noise, strict=True):
            c = 1 / mpmath.mpf(sigma)
            exact = 2 * mpmath.sqrt(2) * mpmath.erfinv(mpmath.tanh(c / 2))
            assert exact <= value <= exact * (1 + mpmath.mpf(10) ** -10)
