"""Conversions from pure and approximate DP against high precision, their inverses, and group privacy."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.notions import dp, gdp

EPSILONS = [1e-9, 1e-4, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0, 100.0, 600.0]


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(400):
        yield


def pair(epsilon, delta):
    """The laws of the dominating pair: infinite loss, loss epsilon, loss -epsilon."""
    e, d = mpmath.mpf(epsilon), mpmath.mpf(delta)
    up, down = mpmath.exp(e) / (1 + mpmath.exp(e)), 1 / (1 + mpmath.exp(e))
    return [(d, 0), ((1 - d) * up, (1 - d) * down), ((1 - d) * down, (1 - d) * up), (0, d)]


def hockey_stick(epsilon, delta, at):
    return sum(max(p - mpmath.exp(mpmath.mpf(at)) * q, 0) for p, q in pair(epsilon, delta))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [0.0, 1e-300, 1e-9, 0.3])
def test_the_curve_of_a_statement(epsilon, delta):
    for share in (-1.5, -1.0, -0.3, 0.0, 0.2, 0.999999, 1.0, 1.1):
        at = share * epsilon
        if abs(at) < 700:
            truth, found = hockey_stick(epsilon, delta, at), dp.dp_delta(epsilon, delta, at)
            assert truth <= found <= truth * (1 + mpmath.mpf(1e-12)) + mpmath.mpf("1e-320")


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_epsilon_at_another_delta(epsilon):
    for delta in (0.0, 1e-9, 0.3):
        for goal in (1e-300, 1e-12, 1e-9, 1.1e-9, 1e-3, 0.3, 0.31, 0.9):
            found = dp.dp_epsilon(epsilon, delta, goal)
            if goal < delta:
                assert found == np.inf
                continue
            assert hockey_stick(epsilon, delta, found) <= goal * (1 + mpmath.mpf(2) ** -60)
            less = mpmath.mpf(found) - mpmath.mpf(3e-13) * (1 + epsilon)
            assert less <= 0 or hockey_stick(epsilon, delta, less) >= goal


def renyi(epsilon, alpha):
    e, a = mpmath.mpf(epsilon), mpmath.mpf(alpha)
    return mpmath.log((mpmath.exp(a * e) + mpmath.exp((1 - a) * e)) / (1 + mpmath.exp(e))) / (a - 1)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_renyi_divergences(epsilon):
    for alpha in (1.0000001, 1.01, 1.5, 2.0, 10.0, 1e4):
        truth, found = renyi(epsilon, alpha), dp.pure_rdp(epsilon, alpha)
        assert truth <= found <= truth * (1 + mpmath.mpf(1e-12)) + mpmath.mpf(2e-15) / (alpha - 1)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_rho_is_the_smallest(epsilon):
    """No order exceeds rho, and orders near 1 reach it."""
    rho = mpmath.mpf(dp.pure_rho(epsilon))
    near = renyi(epsilon, 1 + mpmath.mpf(10) ** -40)
    assert near <= rho <= near * (1 + mpmath.mpf(1e-13))
    for alpha in (1.0001, 1.1, 2.0, 30.0):
        assert renyi(epsilon, alpha) <= alpha * rho
    assert rho <= mpmath.mpf(epsilon) ** 2 / 2 * (1 + mpmath.mpf(1e-14))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_mu_is_the_smallest(epsilon):
    """The Gaussian trade-off function passes through the corner (a, a), a = 1 / (1 + e^epsilon)."""
    mu, corner = mpmath.mpf(dp.pure_mu(epsilon)), 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
    assert mpmath.ncdf(-mu / 2) <= corner
    assert mpmath.ncdf(-mu * (1 - mpmath.mpf(4e-12)) / 2) >= corner


def test_the_gaussian_curve_lies_above():
    for epsilon in (0.1, 1.0, 4.0):
        at = np.linspace(0.0, epsilon, 50)
        assert np.all(gdp.delta(at, dp.pure_mu(epsilon)) >= dp.dp_delta(epsilon, 0.0, at) * (1 - 1e-9))


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.3, 1.0, 3.0, 12.0, 60.0])
def test_budgets_invert(epsilon):
    by_rho = dp.pure_epsilon(rho=dp.pure_rho(epsilon))
    assert epsilon * (1 - 1e-10) <= by_rho and dp.pure_rho(by_rho) <= dp.pure_rho(epsilon)
    if epsilon <= 30.0:
        by_mu = dp.pure_epsilon(mu=dp.pure_mu(epsilon))
        assert epsilon * (1 - 1e-4) - 1e-11 <= by_mu
        assert dp.pure_mu(by_mu) <= dp.pure_mu(epsilon) * (1 + 1e-15)
    e, d = dp.member_dp(epsilon, 1e-7, 5)
    back = dp.group_dp(e, d, 5)
    assert back[0] <= epsilon and back[1] <= 1e-7
    assert back[0] >= epsilon * (1 - 1e-14) and back[1] >= 1e-7 * (1 - 1e-10)


@pytest.mark.parametrize("epsilon", [0.0, 1e-14, 1e-9, 0.2, 3.0, 200.0])
def test_the_growth_of_a_group(epsilon):
    for records in (1, 2, 7, 1000):
        if epsilon * records < 600:
            growth = mpmath.fsum(mpmath.exp(i * mpmath.mpf(epsilon)) for i in range(records))
            found = dp.group_dp(epsilon, 1e-300, records)[1]
            truth = mpmath.mpf(1e-300) * growth
            assert truth <= found <= truth * (1 + mpmath.mpf(1e-9)) or found == 1.0 <= truth


def test_a_group_of_a_mechanism_is_below():
    """Three records of one person in every step of Gaussian noise: the mechanism's own curve lies below."""
    one = pa.compose([(pa.Gaussian(6.0), 10)])
    three = pa.compose([(pa.Gaussian(2.0), 10)])
    epsilon = 0.7
    e, d = dp.group_dp(epsilon, one.delta(epsilon).upper, 3)
    assert three.delta(e).lower < d
    # one record alone would not do
    assert three.delta(epsilon).lower > one.delta(epsilon).upper


def test_arrays_and_wrong_arguments():
    assert dp.dp_delta(np.ones((3, 1)), [0.0, 1e-5], 0.5).shape == (3, 2)
    assert dp.pure_rho([0.0, 1.0])[0] == 0.0
    assert dp.group_dp([0.1, 0.2], 1e-6, 2)[0].shape == (2,)
    for bad in (
        lambda: dp.dp_delta(-1.0, 0.0, 0.5),
        lambda: dp.dp_delta(1.0, 1.5, 0.5),
        lambda: dp.pure_rdp(1.0, 1.0),
        lambda: dp.pure_rho(np.nan),
        lambda: dp.group_dp(1.0, 0.1, 1.5),
        lambda: dp.group_dp(1.0, 0.1, 0),
        dp.pure_epsilon,
        lambda: dp.pure_epsilon(rho=1.0, mu=1.0),
        lambda: dp.pure_epsilon(mu=-1.0),
    ):
        with pytest.raises(ValueError):
            bad()


def test_the_epsilon_of_a_group_is_rounded_up():
    rng = np.random.default_rng(0)
    for epsilon, records in zip(10.0 ** rng.uniform(-9, 2, 300), rng.integers(1, 400, 300), strict=True):
        found = dp.group_dp(epsilon, 0.1, int(records))[0]
        assert Fraction(float(epsilon)) * int(records) <= Fraction(found)
    assert dp.group_dp(0.5, 0.0, 4)[0] == 2.0


def test_subnormal_deltas_of_members_are_rounded_down():
    for whole, least, records in ((54.95394419382132, 6.669861399546967e-300, 3), (1.0, 5e-324, 1), (1.0, 1e-322, 1)):
        epsilon, delta = dp.member_dp(whole, least, records)
        with mpmath.workdps(60):
            growth = sum(mpmath.exp(mpmath.mpf(epsilon) * i) for i in range(records))
            assert mpmath.mpf(delta) * growth <= least
