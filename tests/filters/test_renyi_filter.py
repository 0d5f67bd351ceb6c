"""The Renyi filter on sampled steps: charges against 40 digits, headroom, and the choice of the order."""

import mpmath
import numpy as np
import pytest

from pld_accountant.filters.gaussian import GaussianFilter
from pld_accountant.filters.renyi import RenyiFilter
from pld_accountant.filters.renyi_charges import best_order
from pld_accountant.notions.rdp import rdp_budget


def exact_divergence(alpha, sigma, rate):
    """log E[g**alpha] / (alpha - 1) over N(0, sigma**2), by the trapezoidal rule with 40 digits."""
    with mpmath.workdps(40):
        a, s, q = mpmath.mpf(alpha), mpmath.mpf(sigma), mpmath.mpf(rate)
        step = min(s * mpmath.mpf("0.35"), mpmath.pi**2 * s**2 / (48 + mpmath.pi**2 * s**2 / 4))
        count = int((a + 28 * s) / step) + 1
        total = mpmath.mpf(0)
        for k in range(count + 1):
            x = k * step - 14 * s
            g = 1 - q + q * mpmath.exp((2 * x - 1) / (2 * s * s))
            total += mpmath.exp(-x * x / (2 * s * s)) * g**a
        return mpmath.log(total * step / (s * mpmath.sqrt(2 * mpmath.pi))) / (a - 1)


def test_the_oracle_agrees_with_the_binomial_sum():
    alpha, sigma, rate = 7, 1.3, 0.02
    with mpmath.workdps(40):
        q, s = mpmath.mpf(rate), mpmath.mpf(sigma)
        total = sum(
            mpmath.binomial(alpha, k) * (1 - q) ** (alpha - k) * q**k * mpmath.exp((k * k - k) / (2 * s * s))
            for k in range(alpha + 1)
        )
        exact = mpmath.log(total) / (alpha - 1)
        assert abs(exact_divergence(alpha, sigma, rate) / exact - 1) < 1e-25


@pytest.mark.parametrize(
    ("alpha", "sigma", "rate"),
    [
        (2, 1.0, 0.01),
        (16.3, 2.0, 0.005),
        (1.2, 0.8, 0.1),
        (33.5, 1.0, 0.03),
        (64, 0.7, 0.001),
        (5.5, 4.0, 0.9),
    ],
)
def test_a_charge_lies_above_the_exact_divergence_and_close(alpha, sigma, rate):
    rng = np.random.default_rng(8)
    norms = np.concatenate([[1.0, 0.5, 0.02, 1e-3], rng.uniform(0.05, 1, 4), np.sqrt(rng.uniform(0, 1, 4))])
    budget = float(exact_divergence(alpha, sigma, rate)) * 3
    f = RenyiFilter(
        budget,
        alpha,
        num_examples=norms.size,
        noise_multiplier=sigma,
        max_grad_norm=1.0,
        sample_rate=rate,
    )
    f.admit(norms)
    for norm, spent in zip(norms, f.spent(), strict=True):
        exact = exact_divergence(alpha, sigma / norm, rate)
        assert exact <= spent
        assert spent <= float(exact) * (1 + 1e-3) + 1e-15 * budget
    assert f.spent()[0] <= float(exact_divergence(alpha, sigma, rate)) * (1 + 1e-9)


def test_log_moment_is_convex_in_the_squared_norm():
    """What the chord between two table points rests on; also for orders that are not whole."""
    square = np.arange(1, 33) / 32  # exactly equidistant
    for alpha, sigma, rate in ((1.01, 0.6, 0.3), (1.5, 0.5, 0.05), (2.7, 0.5, 0.5), (40.3, 0.8, 0.01)):
        with mpmath.workdps(40):
            log_moment = [exact_divergence(alpha, sigma / mpmath.sqrt(v), rate) * (alpha - 1) for v in square]
            second = np.array([float(x) for x in np.diff(log_moment, 2)])
        assert np.all(second > -1e-25)
        assert second.max() > 0


@pytest.mark.parametrize("orders", [4.5, [2, 4.5, 20]])
def test_headroom_spends_what_is_left_of_a_sampled_budget(orders):
    count = np.size(orders)
    f = RenyiFilter(
        [4e-4, 2e-3, 3e-2][:count] if count > 1 else 2e-3,
        orders,
        num_examples=200,
        noise_multiplier=1.1,
        max_grad_norm=2.5,
        sample_rate=0.02,
    )
    rng = np.random.default_rng(4)
    for _ in range(200):
        norms = np.minimum(rng.uniform(0, 4, 200), f.headroom())
        assert np.array_equal(f.admit(norms), f.active | (norms > 0))
    assert not f.active.any()
    full = RenyiFilter(f.budget, f.alpha, num_examples=1, noise_multiplier=1.1, max_grad_norm=2.5, sample_rate=0.02)
    assert (full.headroom()[0] == 2.5) == (count == 1), "order 20 cannot pay for a whole step"


def test_equal_sampled_steps_fill_a_budget_made_for_them():
    from pld_accountant.mechanisms.renyi_divergence import rdp

    for alpha in (8, 16.3):
        one = float(rdp(alpha, 2.0, 0.005))
        for steps in (1, 7, 1000):
            f = RenyiFilter(
                steps * one,
                alpha,
                num_examples=1,
                noise_multiplier=2.0,
                max_grad_norm=3.0,
                sample_rate=0.005,
            )
            assert sum(bool(f.admit([3.0])[0]) for _ in range(steps + 5)) == steps


@pytest.mark.parametrize(
    ("epsilon", "delta", "sigma", "rate"),
    [(1.0986, 1e-5, 2.0, 0.005), (0.107, 1e-5, 16.0, 0.005), (8.0, 1e-5, 0.6, 0.01), (1.0, 1e-5, 50.0, 1.0)],
)
def test_the_order_chosen_admits_most_steps(epsilon, delta, sigma, rate):
    from pld_accountant.mechanisms.renyi_divergence import rdp as divergence

    best = best_order(epsilon, delta, sigma, rate)

    def steps(alpha):
        return rdp_budget(epsilon, alpha, delta) / divergence(alpha, sigma, rate)

    grid = 1 + np.geomspace(0.05, 1000, 400)
    assert steps(best) >= steps(grid).max() * (1 - 1e-12)
    assert best_order(epsilon, delta, sigma, rate, orders=[2, 8, best, 300]) == best


def test_values_of_the_papers():
    """q = 0.005, sigma = 2, delta = 1e-5: 10,000 steps need 1.098637 at order 16.3."""
    arguments = {"num_examples": 1, "noise_multiplier": 2.0, "max_grad_norm": 1.0, "sample_rate": 0.005}
    f = RenyiFilter.for_epsilon(1.098638, 1e-5, **arguments)
    assert f.alpha == pytest.approx(16.3, abs=0.05)
    assert sum(bool(f.admit([1.0])[0]) for _ in range(10_500)) == 10_000
    assert f.epsilon(1e-5) == pytest.approx(1.098638, rel=1e-9)
    orders = RenyiFilter.for_epsilon(1.09889, 1e-5, orders=np.arange(2, 33), **arguments)
    assert orders.alpha == 16
    assert sum(bool(orders.admit([1.0])[0]) for _ in range(10_500)) == 10_000


def test_budgets_given_as_mu():
    """Every order keeps the divergence of mu-GDP; full-batch, that is the zCDP filter."""
    orders = np.arange(2, 33)
    f = RenyiFilter.for_mu(0.3, orders, num_examples=1, noise_multiplier=20.0, max_grad_norm=1.0)
    g = GaussianFilter(0.3, num_examples=1, noise_multiplier=20.0, max_grad_norm=1.0)
    for _ in range(40):
        assert f.admit([0.9]) == g.admit([0.9])
    np.testing.assert_allclose(f.spent()[0], orders * g.spent()[0] ** 2 / 2, rtol=1e-9)
    sampled = RenyiFilter.for_mu(
        0.26943, np.arange(2, 17), num_examples=1, noise_multiplier=2.0, max_grad_norm=1.0, sample_rate=0.005
    )
    # The smallest mu for 10,000 steps and orders up to 16, to five digits.
    assert 9_990 < sum(bool(sampled.admit([1.0])[0]) for _ in range(10_500)) < 10_010


def test_a_schedule_that_never_repeats_does_not_fill_the_memory():
    f = RenyiFilter(1.0, 4, num_examples=1, noise_multiplier=2.0, max_grad_norm=1.0, sample_rate=0.1)
    for k in range(80):
        f.admit([0.1], noise_multiplier=2.0 + k / 100)
    assert len(f._tables) <= 64
