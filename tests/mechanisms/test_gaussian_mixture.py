"""Masses of mixtures of Gaussians against closed forms in extended precision."""

import mpmath as mp
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.mechanisms import gaussian_mixture
from pld_accountant.mechanisms.mixture_spectrum import log_quotient_and_slope


def delta_of_step(group, epsilon, direction):
    """delta of one step to 30 digits: the losses above epsilon lie on one side of a place, found by bisection."""
    with mp.workdps(60):
        centres = [mp.mpf(s) / mp.mpf(group.noise_multiplier) for s in group.sensitivities]
        weights = [mp.mpf(w) for w in group.probabilities]
        weights[0] = 1 - mp.fsum(weights[1:])
        p = list(zip(centres, weights, strict=True))
        q, sign = [(mp.mpf(0), mp.mpf(1))], 1
        if direction == "add":
            p, q, sign = q, p, -1

        def loss(x):
            a, b = (mp.fsum(w * mp.exp(c * x - c * c / 2) for c, w in law) for law in (p, q))
            return mp.log(a / b)

        low, high = mp.mpf(-200), mp.mpf(200)
        if loss(sign * high) <= epsilon:
            return mp.mpf(0)
        for _ in range(180):
            middle = (low + high) / 2
            low, high = (low, middle) if (loss(middle) > epsilon) == (sign > 0) else (middle, high)
        own, other = (mp.fsum(w * mp.ncdf(sign * (c - low)) for c, w in law) for law in (p, q))
        return own - mp.exp(epsilon) * other


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "q", "k"), [(2.0, 1e-3, 4), (5.0, 1e-6, 2), (0.5, 1e-5, 8), (0.35, 0.5, 20)])
def test_masses_are_those_of_the_closed_form(sigma, q, k, direction):
    """With few knots and with many, which have rules of their own."""
    group = pa.GroupGaussian(sigma, q, k)
    for epsilon in (0.0, 0.3, 2.0):
        exact = float(delta_of_step(group, mp.mpf(epsilon), direction))
        steps = group.steps([group], direction)
        found = steps.masses(0, np.array([epsilon, np.inf]))[1]
        assert found[0] == pytest.approx(exact, rel=1e-12, abs=1e-290)
        knots = np.append(np.linspace(epsilon, epsilon + 6.0, gaussian_mixture._MANY_KNOTS + 10), np.inf)
        p, u = steps.masses(0, knots)
        # a loss above a knot exceeds epsilon by more: 1 - exp(epsilon - L) = 1 - e^-a + e^-a (1 - exp(knot - L))
        less = np.exp(epsilon - knots[:-1])
        total = float(p @ (1.0 - less) + u @ less)
        assert total == pytest.approx(exact, rel=1e-12, abs=1e-290)


@pytest.mark.parametrize(
    ("rate", "records"), [(0.1, 6000), (1e-6, 1200), (0.5, 3), (0.9999, 3000), (0.37, 1000), (1e-300, 5)]
)
def test_binomial_probabilities(rate, records):
    found = pa.GroupGaussian(100.0, rate, records)
    group = found if isinstance(found, pa.GaussianMixture) else found.above().parts[0][0]
    with mp.workdps(40):
        for number, found in zip(group.sensitivities[::7], group.probabilities[::7], strict=True):
            i, q = int(number), mp.mpf(rate)
            exact = mp.binomial(records, i) * q**i * (1 - q) ** (records - i)
            assert exact < 1e-300 or abs(found / exact - 1) < 2e-12  # 1e-15 where long doubles are longer than doubles


def test_more_records_than_the_noise_serves():
    with pytest.raises(ValueError, match=r"records must be at most 60 times the noise multiplier, got 1000000 at 1\.0"):
        pa.GroupGaussian(1.0, 0.1, 10**6)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("reach", [3.0, 8.0])
def test_the_range_of_losses_leaves_out_no_more_than_its_share(reach, direction):
    step = pa.ReplaceOneSampledGaussian(1.0, 0.3)
    steps = step.steps([step], direction)
    low, high = steps.range_of_losses(0, reach)
    p, _ = steps.masses(0, np.array([low, 0.0, high]))
    inside, _ = steps.masses(0, np.array([-40.0, low, high, 40.0]))
    assert inside[0] + inside[2] <= np.exp(-0.5 * reach**2)
    assert inside[1] == pytest.approx(p.sum(), rel=1e-9)


@pytest.mark.parametrize(
    ("sigma", "q", "epsilon"), [(10.0, 1e-6, 1e-6), (3.0, 1e-8, 1e-7), (50.0, 1e-8, 1e-9), (0.3, 1e-8, 1e-12)]
)
def test_a_replaced_record_at_tiny_rates(sigma, q, epsilon):
    """The loss is a difference of logarithms that agree to ten digits, or of densities that share their first term."""
    with mp.workdps(80):
        s, rate, factor = 1 / mp.mpf(sigma), mp.mpf(q), mp.exp(mp.mpf(epsilon))
        laws = [[(0, 1 - rate), (sign * s, rate)] for sign in (1, -1)]

        def excess(x):
            own, other = (mp.fsum(w * mp.exp(c * x - c * c / 2) for c, w in law) for law in laws)
            return own - factor * other

        low, high = mp.mpf(0), mp.mpf(1)
        while excess(high) < 0:
            low, high = high, 2 * high
        for _ in range(250):
            middle = (low + high) / 2
            low, high = (low, middle) if excess(middle) > 0 else (middle, high)
        own, other = (mp.fsum(w * mp.ncdf(c - low) for c, w in law) for law in laws)
        exact = own - factor * other
    found = pa.compose([(pa.ReplaceOneSampledGaussian(sigma, q), 1)]).delta(epsilon)
    assert found.lower <= exact <= found.upper <= found.lower * (1 + 1e-8)


def test_the_loss_of_a_replaced_record_far_away():
    """Where the densities agree to ten digits and more, exponentials of the terms need not be doubles."""
    x = np.array([-98.0, 0.1, 40.0, 55.0, 62.0, 63.5, 97.0])
    own, other = (np.array([20.0, 40.0]), np.array([1 - 1e-300, 1e-300])), (np.array([20.0]), np.array([1.0]))
    loss, _ = log_quotient_and_slope(x, own, other)
    exact = [mp.log1p(mp.mpf(10) ** -300 * mp.expm1(20 * mp.mpf(v) - 600)) for v in x.tolist()]
    assert loss == pytest.approx([float(v) for v in exact], rel=1e-12, abs=1e-299)


def test_a_largest_loss_whose_probability_underflows_is_not_known():
    """600 log(1e5) = 6908: the chance of drawing none of 600 records is about 1e-3000."""
    group = pa.GroupGaussian(10.0, 0.99999, 600)
    found = pa.compose([(group, 1)]).epsilon(0.0, "add")
    assert found.lower <= 600 * np.log(1e5) and found.status == pa.Status.NOT_CERTIFIED
    assert pa.compose([(group, 1)]).epsilon(0.0).lower == np.inf, "removal has no largest loss"
    assert pa.compose([(pa.GroupGaussian(10.0, 0.9, 300), 1)]).epsilon(0.0, "add").upper < 691.0
