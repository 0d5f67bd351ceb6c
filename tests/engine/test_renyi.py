"""Renyi divergences against the binomial sum, high precision and the closed form; the order that accounting picks."""

import highprecision as hp
import mpmath
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import renyi
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.mechanisms.renyi_divergence import rdp
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps

LAWS = [(2.0, 0.005), (0.5, 0.01), (1.0, 0.9), (10.0, 0.2), (0.3, 1e-4)]


def binomial_sum(alpha, sigma, q):
    """Mironov, Talwar and Zhang (2019), equation for integer orders, in forty digits."""
    with mpmath.workdps(40):
        s, r = mpmath.mpf(sigma), mpmath.mpf(q)
        terms = (
            mpmath.binomial(alpha, k) * (1 - r) ** (alpha - k) * r**k * mpmath.exp((k * k - k) / (2 * s * s))
            for k in range(alpha + 1)
        )
        return float(mpmath.log(mpmath.fsum(terms)) / (alpha - 1))


@pytest.mark.parametrize(("sigma", "q"), LAWS)
@pytest.mark.parametrize("alpha", [2, 3, 8, 32, 100])
def test_integer_orders_equal_the_binomial_sum(sigma, q, alpha):
    exact = binomial_sum(alpha, sigma, q)
    found = float(rdp(alpha, sigma, q))
    assert exact * (1.0 - 2.0**-50) <= found <= exact * (1.0 + 1e-12) + 1e-14 / (alpha - 1)


@pytest.mark.parametrize(("sigma", "q"), LAWS)
@pytest.mark.parametrize("alpha", [1.000001, 1.25, 2.5, 17.3, 63.99])
def test_fractional_orders_equal_high_precision(sigma, q, alpha):
    """Rounded up; both directions, of which removal's is the larger."""
    theta = alpha - 1.0
    exact = float(hp.law(sigma, q, "remove", theta).k / mpmath.mpf(theta))
    found = float(rdp(alpha, sigma, q))
    assert exact * (1.0 - 2.0**-50) <= found <= exact * (1.0 + 1e-12) + 1e-14 / theta
    assert float(hp.law(sigma, q, "add", theta).k / mpmath.mpf(theta)) <= found


@pytest.mark.parametrize("sigma", [0.1, 1.0, 100.0])
def test_full_batch_is_the_closed_form(sigma):
    alpha = np.array([1.0001, 2.0, 32.5, 1e5])
    assert rdp(alpha, sigma, 1.0) == pytest.approx(alpha / (2.0 * sigma**2), rel=1e-12)


def test_high_orders_are_exact_too():
    # far beyond the phase transition the divergence is the Gaussian's less log(1 / q) alpha / (alpha - 1)
    alpha, sigma, q = 3e4, 2.0, 0.005
    assert float(rdp(alpha, sigma, q)) == pytest.approx(
        alpha / (2.0 * sigma**2) + np.log(q) * alpha / (alpha - 1.0), rel=1e-9
    )


def test_shapes_and_infinite_noise():
    found = rdp([[2.0, 3.0, 4.0]], [1.0, np.inf], 0.1)
    assert found.shape == (2, 1, 3)
    assert np.all(found[0] > 0.0)
    assert np.all(found[1] == 0.0)
    assert rdp(2.0, np.inf, 0.1) == 0.0


@pytest.mark.parametrize("alpha", [1.0, 0.5, np.nan, np.inf, [2.0, 1.0]])
def test_bad_orders_are_refused(alpha):
    with pytest.raises(ValueError, match="alpha must be finite and above 1"):
        rdp(alpha, 1.0, 0.1)


@pytest.mark.parametrize("noise", [0.0, -1.0, np.nan])
def test_bad_noise_is_refused(noise):
    with pytest.raises(ValueError, match="noise_multiplier must be above 0"):
        rdp(2.0, noise, 0.1)


def test_a_composition_adds_up():
    mixed = pa.compose([(pa.SampledGaussian(2.0, 0.005), 300), (pa.Gaussian(50.0), 2)])
    for alpha in (2, 16):
        exact = 300 * binomial_sum(alpha, 2.0, 0.005) + 2 * alpha / (2 * 50.0**2)
        assert float(mixed.rdp(alpha)) == pytest.approx(exact, rel=1e-12)
    assert mixed.rdp([2.0, 3.0]).shape == (2,)


# ------------------------------------------------------------------------------------------------ the best order


def scanned(counts, family, delta):
    """The optimum over orders, from the conversion as Canonne, Kamath and Steinke write it.

    Each set of orders is denser than the one before, and reaches three orders past the best of that one.
    """
    theta = np.geomspace(2.0**-12, 2.0**14, 400)
    for ratio in (1.15, 1.01, 1.001, None):
        alpha = 1.0 + theta
        k = (counts @ family.log_moments(theta))[0]
        epsilon = k / theta + np.log1p(-1.0 / alpha) - (np.log(delta) + np.log(alpha)) / theta
        if ratio is not None:
            theta = theta[np.argmin(epsilon)] * np.geomspace(1.0 / ratio, ratio, 61)
    return max(float(epsilon.min()), 0.0)


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "delta", "tolerance"),
    [
        (2.0, 0.005, 10_000, 1e-5, 1e-4),
        (100.0, 1.0, 420, 1e-5, 1e-4),
        (1.0, 0.01, 1000, 1e-30, 2e-4),
        (20.0, 0.1, 500, 1e-8, 1e-4),
        (5.35, 0.0019, 936, 2.4e-9, 0.02),  # the divergence bends sharply at the best order
        (2.7, 0.0006, 2, 6e-7, 0.02),
    ],
)
def test_the_best_order_is_found(sigma, q, steps, delta, tolerance):
    family = SampledGaussianSteps([sigma], [q], "remove")
    counts = WholeCounts(np.array([[steps]]))
    best = scanned(counts.counts, family, delta)
    grid = renyi.best_epsilon(counts, family.log_moments, delta)[0]
    assert best * (1.0 - 1e-6) <= grid <= best * (1.0 + tolerance)
    one = renyi.optimal_epsilon(counts, family, delta)
    assert best * (1.0 - 1e-4) <= one <= best * (1.0 + 1e-7)
    assert one <= grid
    # what is reported is a valid bound: not below the certified privacy loss
    exact = pa.compose([(pa.SampledGaussian(sigma, q), steps)])
    if steps > 100:
        assert exact.epsilon(delta).lower <= one
    assert exact.rdp_epsilon(delta) == pytest.approx(one, rel=1e-6)


def test_the_papers_number():
    # Feldman and Zrnic's run with sigma = 100, 420 steps: 0.8156 by this conversion
    assert pa.compose([(pa.Gaussian(100), 420)]).rdp_epsilon(1e-5) == pytest.approx(0.815623, abs=1e-6)


def test_everybody_at_once_equals_one_by_one_up_to_the_grid():
    rng = np.random.default_rng(4)
    family = SampledGaussianSteps(2.0 / np.array([0.1, 0.4, 1.0]), np.full(3, 0.01), "remove")
    counts = rng.integers(0, 3000, (40, 3)) * rng.integers(0, 2, (40, 3))
    counts[0] = 0
    together = renyi.best_epsilon(WholeCounts(counts), family.log_moments, 1e-5)
    alone = [renyi.best_epsilon(WholeCounts(row[None]), family.log_moments, 1e-5)[0] for row in counts]
    np.testing.assert_allclose(together, alone, rtol=1e-6)
    assert together[0] < 1e-4
    assert renyi.best_epsilon(WholeCounts(counts[:0]), family.log_moments, 1e-5).shape == (0,)


@pytest.mark.parametrize("question", [EpsilonAt(1e-6), EpsilonAt(0.5), DeltaAt(0.0), DeltaAt(3.0)])
def test_orders_far_beyond_the_best_one_are_left_out_and_change_nothing(question):
    """Log-moments at theta = 1e10 may take seconds."""
    for sigma, steps in ((0.5, 1), (5.0, 2), (3e5, 3)):
        asked = []

        def log_moments(theta, rho=0.5 * steps / sigma**2, asked=asked):
            asked.append(theta.max())
            return rho * theta * (1.0 + theta)

        theta = 2.0 ** np.arange(-20.0, 35.501, 1e-3)
        best = question.chernoff(log_moments(theta), theta, question.target).min()
        del asked[:]
        found = renyi.optimum(log_moments, question)
        assert best - 1e-6 * abs(best) - 1e-12 <= found <= best + 1e-6 * abs(best) + 1e-12
        assert sigma > 10.0 or max(asked) < 2.0**20


def test_the_best_orders_of_different_people_are_all_reached():
    """One million steps have their best order near 2, and one step of much noise near 1e8."""
    counts = WholeCounts(np.array([[1_000_000, 0], [0, 1], [1, 0]]))
    together = renyi.best_epsilon(counts, lambda theta: np.outer([1e-6, 1e-16], theta * (1.0 + theta)), 1e-5)
    for row, rho in enumerate((1.0, 1e-16, 1e-6)):
        best = renyi.optimum(lambda theta, rho=rho: rho * theta * (1.0 + theta), EpsilonAt(1e-5))
        assert max(best, 0.0) * (1 - 1e-9) <= together[row] <= max(best, 0.0) * (1 + 1e-4)
