"""Exponential mechanisms that are chosen adaptively, against strategies in which each step depends on those before."""

import math
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

import pld_accountant as pa
from pld_accountant.composition.base import between
from pld_accountant.composition.enclosed import EnclosedComposition
from pld_accountant.composition.several_pairs import SeveralPairsComposition
from pld_accountant.mechanisms import bounded_range, bounded_range_run
from pld_accountant.mechanisms.bounded_range import TwoPoints
from pld_accountant.mechanisms.bounded_range_run import BoundedRangeRun
from pld_accountant.results import Method


def test_the_log_of_a_hyperbolic_sine_has_all_digits():
    x = np.concatenate([np.geomspace(1e-8, 1.0, 50), [1.0 - 1e-9, 1.01, 3.0, 800.0]])
    with mp.workdps(40):
        exact = [mp.log(mp.sinh(mp.mpf(one)) / mp.mpf(one)) for one in x.tolist()]
    np.testing.assert_allclose(bounded_range._log_sinhc(x), [float(one) for one in exact], rtol=3e-15)


def strategies(c, points, steps):
    """Deltas of the best strategies whose losses are multiples of c / points, at the multiples from -n c to n c."""
    h, top = c / points, points * steps
    t = h * np.arange(points + 1)
    high = np.exp(t - c) * np.expm1(-t) / np.expm1(-c)
    low = np.expm1(t - c) / np.expm1(-c)
    now = np.maximum(-np.expm1(h * (np.arange(2 * (top + points) + 1) - top - points)), 0.0)
    for _ in range(steps):
        best = now.copy()
        for i in range(points + 1):
            inside = np.arange(points, now.size - points)
            value = low[i] * now[inside - i] + high[i] * now[inside - i + points]
            best[inside] = np.maximum(best[inside], value)
        now = best
    return h * (np.arange(2 * top + 1) - top), now[points:-points]


def curve(law, x):
    """delta of a discrete law at some epsilons."""
    return np.maximum(-np.expm1(np.minimum(x[:, None] - law.losses, 0.0)), 0.0) @ law.masses


@pytest.mark.parametrize("c", [1e-6, 0.1, 1.0, 8.0, 40.0])
@pytest.mark.parametrize("length", [2, 3, 12])
def test_no_strategy_beats_a_run_and_the_best_come_near(c, length):
    """The strategies' lattice is another one than the run's."""
    law = BoundedRangeRun(c, length).law("remove")
    x, reached = strategies(c, 48 if length == 12 else 144, length)
    found = curve(law, x)
    assert np.all(found >= reached * (1.0 - 1e-12))
    inside = reached > 1e-12
    # as an epsilon: the run's curve, moved by 1 % of a step for each step, is no longer above
    assert np.all(curve(law, x + 0.01 * c * length)[inside] <= reached[inside] * (1.0 + 1e-12))
    assert abs(law.masses.sum() - 1.0) < 1e-12
    assert abs(law.masses @ np.exp(-law.losses) - 1.0) < 1e-12


@pytest.mark.parametrize("c", [0.5, 5.0])
def test_two_steps_by_maximisation(c):
    """D_2 from the closed form of D_1."""

    def one(x):
        if abs(x) >= c:
            return max(-np.expm1(x), 0.0)
        return np.expm1(0.5 * (x - c)) ** 2 / -np.expm1(-c)

    law = BoundedRangeRun(c, 2).law("add")
    for x in np.linspace(-1.5, 1.9, 18) * c:

        def of(t, x=x):
            low, high = (np.exp(c) - np.exp(t)) / np.expm1(c), np.expm1(t) / np.expm1(c)
            return low * one(x - t) + high * one(x - t + c)

        cells = np.linspace(0.0, c, 41)
        best = max(-minimize_scalar(lambda t: -of(t), bounds=ends, method="bounded").fun for ends in pairwise(cells))
        found = float(curve(law, np.array([x]))[0])
        assert best * (1.0 - 1e-9) <= found <= best * 1.005 + 1e-6


def test_a_run_without_the_bend_of_its_chords_would_be_too_small(monkeypatch):
    monkeypatch.setattr(bounded_range_run.math, "expm1", lambda x: 0.0 if 0.0 < x < 0.01 else np.expm1(x))
    bounded_range_run._law.cache_clear()
    law = BoundedRangeRun(1.0, 2).law("remove")
    bounded_range_run._law.cache_clear()
    x, reached = strategies(1.0, 1009, 2)
    assert np.any(curve(law, x) < reached * (1.0 - 1e-9))


def test_a_step_chosen_after_another_mechanism():
    """After the outcome of a randomized response, the t of a step of bounded range may be the best one for it."""
    c, answer = 0.8, pa.RandomizedResponse(0.7, 2)
    law = answer.law("remove")
    run = pa.compose([(answer, 1), (pa.ExponentialMechanism(c), 3)])
    x, after = strategies(c, 96, 3)
    for epsilon in (0.1, 0.5, 1.5, 2.5):
        reached = law.masses @ np.interp(epsilon - law.losses, x, after)
        assert reached * (1.0 - 1e-3) <= run.delta(epsilon).upper <= reached * 1.02


@pytest.mark.parametrize(("epsilon", "steps"), [(0.01, 500), (0.1, 100), (0.1, 10_000), (1.0, 30), (1.0, 10_000)])
def test_the_upper_bound_is_below_that_of_zero_concentrated_dp(epsilon, steps):
    """Steps of bounded range epsilon are epsilon^2 / 8 zero-concentrated DP (Cesar and Rogers 2021)."""
    run = pa.compose([(pa.ExponentialMechanism(epsilon), steps)])
    known = pa.compose([(pa.ZeroConcentratedDP(epsilon**2 / 8.0), steps)])
    for delta in (1e-3, 1e-6, 1e-12):
        found = run.epsilon(delta)
        assert found.upper < known.epsilon(delta).upper
        assert found.upper < found.lower * 1.03
    assert run.rdp(2.0) <= known.rdp(2.0)


@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 200.0])
def test_the_renyi_divergence_is_that_of_the_worst_two_points(epsilon, steps):
    orders = np.array([1.0 + 1e-9, 1.5, 2.0, 8.0, 300.0])
    found = pa.compose([(pa.ExponentialMechanism(epsilon), steps)]).rdp(orders)
    with mp.workdps(40):
        for order, value in zip(orders.tolist(), found.tolist(), strict=True):
            theta, c = mp.mpf(order) - 1, mp.mpf(epsilon)

            def divergence(t, theta=theta, c=c):
                likely = mp.expm1(t - c) / mp.expm1(-c)
                return mp.log(likely * mp.exp(theta * t) + (1 - likely) * mp.exp(theta * (t - c))) / theta

            low, high = mp.mpf(0), c
            for _ in range(150):
                a, b = low + (high - low) / 3, high - (high - low) / 3
                low, high = (a, high) if divergence(a) < divergence(b) else (low, b)
            exact = steps * divergence((low + high) / 2)
            assert exact <= value <= exact * (1 + 1e-9)
    ratio = epsilon / math.expm1(epsilon)
    assert found[0] == pytest.approx(steps * (ratio - 1.0 - math.log(ratio)), rel=1e-6)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("epsilon", [0.3, 30.0, 1000.0])
def test_two_points_are_a_pair(epsilon, direction):
    """The masses add up to 1, and so do the other law's, which the losses give; the directions change places."""
    law = TwoPoints(epsilon, 0.75).law(direction)
    assert abs(law.masses.sum() - 1.0) < 1e-14
    assert abs(law.masses @ np.exp(-(law.losses - law.losses[0])) - np.exp(law.losses[0])) < 1e-14
    np.testing.assert_allclose(
        law.losses, [-0.25 * epsilon, 0.75 * epsilon] if direction == "remove" else [-0.75 * epsilon, 0.25 * epsilon]
    )


@pytest.mark.parametrize("epsilon", [800.0, 1e6, 1e100])
def test_bounds_of_huge_ranges(epsilon):
    """The likelihood ratios underflow.

    Two losses t = epsilon - u, each with the chance 1 - exp(-u), have delta (1 - exp(-u))^2 (1 - exp(x - 2 t)) at x.
    """
    found = pa.compose([(pa.ExponentialMechanism(epsilon), 2)]).epsilon(1e-6)
    u = np.linspace(0.0011, 0.1, 10_000)
    fixed = float(np.max(np.log1p(-1e-6 / np.expm1(-u) ** 2) - 2.0 * u))
    assert found.lower <= 2.0 * epsilon + fixed <= found.upper <= 2.0 * epsilon * (1.0 + 1e-9)
    assert found.lower >= 2.0 * min(epsilon, 1e6) * 0.9997


@pytest.mark.parametrize("direction", ["remove", "add", "both"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 30.0])
def test_the_largest_loss_is_the_sum_of_the_ranges(epsilon, direction):
    """The range of a run's steps is rounded up, which may not reach the lower bound."""
    for others, loss in (([], 0.0), ([(pa.PureDP(0.5), 2)], 1.0)):
        found = pa.compose([(pa.ExponentialMechanism(epsilon), 3), *others]).epsilon(0.0, direction)
        assert found.lower <= 3.0 * epsilon + loss <= found.upper
        assert found.upper - found.lower <= 1e-8 * found.upper


def test_ends_that_contradict_each_other_certify_nothing():
    with pytest.warns(RuntimeWarning, match="contradict"):
        assert between(1.001, 1.0, pa.Status.CERTIFIED, Method.GRID).status == pa.Status.NOT_CERTIFIED
    found = between(1.0 + 1e-12, 1.0, pa.Status.CERTIFIED, Method.GRID)
    assert (found.lower, found.upper, found.status) == (1.0, 1.0, pa.Status.CERTIFIED)


@pytest.mark.parametrize("min_delta", [0.11, 0.25, 0.4])
def test_mu_looks_at_no_delta_below_the_least(min_delta):
    """delta(0) is at most 0.304, so that mu of a larger least delta is 0."""
    found = pa.compose([(pa.ExponentialMechanism(1.0), 2)]).mu(min_delta)
    assert found.status == pa.Status.CERTIFIED and found.lower <= found.upper < 0.8
    if min_delta == 0.4:
        assert found.upper == 0.0


@pytest.mark.parametrize("delta", [1e-6, 1e-12])
def test_no_bound_exceeds_the_renyi_bound_of_the_worst_pairs(delta):
    """The divergences of a step's worst pair at each order add up, whatever the adversary does."""
    run, bounded = pa.compose([(pa.ExponentialMechanism(0.5), 5)]), 0.5
    theta = np.geomspace(0.1, 400.0, 4000)
    at = np.linspace(1e-4, 1.0 - 1e-4, 2001)[:, None] * bounded  # the larger loss; the other is smaller by the range
    high = np.expm1(bounded - at) / np.expm1(bounded)  # its chance without the record
    moments = high * np.exp((1.0 + theta) * at) + (1.0 - high) * np.exp((1.0 + theta) * (at - bounded))
    constant = np.log1p(-1.0 / (1.0 + theta)) - np.log((1.0 + theta) * delta) / theta
    exact = (5.0 * np.log(moments.max(axis=0)) / theta + constant).min()
    assert run.rdp_epsilon(delta) == pytest.approx(exact, rel=1e-5)
    found = run.epsilon(delta)
    assert found.lower <= found.upper <= run.rdp_epsilon(delta)


@pytest.mark.parametrize(("epsilon", "theta"), [(1.0, 1e17), (1e6, 4.8e10), (1e100, 2.0)])
def test_moments_keep_a_distance_below_the_round_off_of_the_range(epsilon, theta):
    """The best pair is so far from the largest loss: log(1 + 1 / theta), where sums with the range round to it."""
    found = bounded_range._two_point_moments(np.array([theta]), np.array([[epsilon]]))[0, 0]
    with mp.workdps(150):
        c, order = mp.mpf(epsilon), mp.mpf(theta)
        t = c - mp.log1p(1 / order)
        share = mp.exp(t - c) * mp.expm1(-t) / mp.expm1(-c)
        exact = order * t + mp.log1p(mp.expm1(-order * c) * share)
        assert exact <= found <= exact * (1 + mp.mpf(1e-13))


@pytest.mark.parametrize(("epsilon", "steps"), [(1.0, 2), (0.5, 10), (0.1, 100), (2.0, 5), (5.0, 3)])
def test_the_lower_bound_of_equal_steps_is_the_best_of_pairs_fixed_in_advance(epsilon, steps):
    """The optimum of Dong, Durfee and Rogers (2020): of a fine grid of t, and of their stationary points alone."""
    run = pa.compose([(pa.ExponentialMechanism(epsilon), steps)])

    def best(x, t):
        high = np.expm1(t - epsilon)[:, None] / np.expm1(-epsilon)
        i = np.arange(steps + 1)
        loss = i * t[:, None] + (steps - i) * (t[:, None] - epsilon)
        gain = np.maximum(-np.expm1(np.minimum(x - loss, 0.0)), 0.0)
        return float((stats.binom.pmf(i, steps, high) * gain).sum(axis=1).max())

    for share in (0.0, 0.1, 0.4, 0.6, 0.9):
        x = share * steps * epsilon
        stationary = (x + np.arange(1, steps + 1) * epsilon) / (steps + 1)
        exact = best(x, stationary[stationary < epsilon])
        assert best(x, epsilon * np.linspace(1e-4, 1.0 - 1e-4, 2_001)) <= exact * (1.0 + 1e-9)
        found = run.delta(x)
        # a lower bound is asked for to a thousandth
        assert exact * (1.0 - 1e-3) <= found.lower <= exact * (1.0 + 1e-9)
        assert exact <= found.upper


def test_renyi_bounds_beside_other_steps_are_computed_where_they_may_help(monkeypatch):
    asked, own = [], SeveralPairsComposition._capped
    monkeypatch.setattr(SeveralPairsComposition, "_capped", lambda *given: asked.append(given) or own(*given))
    close = pa.compose([(pa.ExponentialMechanism(0.1), 20), (pa.Gaussian(5.0), 10)]).epsilon(1e-6)
    assert not asked and 0.9 * close.upper < close.lower < close.upper
    apart = pa.compose([(pa.ExponentialMechanism(0.1), 3), (pa.TruncatedPoisson(1.5, 0.02, 1001, 50_000), 15)]).epsilon(
        1e-10
    )
    assert len(asked) == 1 and apart.lower < 0.9 * apart.upper


def test_the_search_for_a_lower_bound_asks_for_no_upper_bound(monkeypatch):
    """Beside truncated batches, whose bounds are those of two compositions, a pair takes the one below only."""
    answered = []
    own = EnclosedComposition._between

    def between_both(self, question, wanted, width):
        answered.append(question)
        return own(self, question, wanted, width)

    monkeypatch.setattr(EnclosedComposition, "_between", between_both)
    run = pa.compose([(pa.TruncatedPoisson(1.0, 0.01, 34, 475), 1), (pa.ExponentialMechanism(0.1), 20)])
    found = run.epsilon(1e-6, tolerance=1e-4)
    assert 0.0 < found.lower < found.upper < 2.0
    assert len(answered) == 1
