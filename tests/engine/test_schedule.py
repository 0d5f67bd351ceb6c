"""Methods of the schedules are needed: without one of them some bounds are wider."""

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import schedule
from pld_accountant.engine.convolution import Convolution
from pld_accountant.engine.question import EpsilonAt
from pld_accountant.engine.solver import solve
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.tables.makers import TableMakers


def without(methods, number):
    return methods[:number] + methods[number + 1 :]


FIRST, TWO, _, FEW, TRUNCATED, RARE, LAST = schedule.SINGLE


@pytest.mark.parametrize(
    ("method", "sigma", "q", "steps", "delta", "direction", "wider"),
    [
        # tails cut, which allows larger tilts
        (TRUNCATED, 1.488, 0.0076, 177, 6e-47, "remove", 10.0),
        # rare steps, split
        (RARE, 1.0, 1e-4, 1_000, 1e-12, "remove", 100.0),
        # four rare steps, convolved
        (FEW, 0.566, 8.3e-5, 4, 3e-15, "remove", 1e3),
        # three rarer ones
        (FEW, 1.096, 0.0002, 3, 3e-34, "remove", 1e6),
        # two
        (TWO, 0.77, 5.5e-6, 2, 2e-6, "remove", 1e3),
        # twenty-two
        (LAST, 0.64, 3.3e-6, 22, 5e-6, "remove", 1e3),
    ],
)
def test_without_a_method_one_composition_is_wider(method, sigma, q, steps, delta, direction, wider):
    """Of the methods that compute the same thing one alone is tried: the other would do it, in more time."""
    counts, width = WholeCounts(np.array([[steps]])), []
    several = tuple(m for m in schedule.SINGLE if m is method or type(m) is not Convolution)
    for methods in (several, tuple(m for m in several if m is not method)):
        makers = TableMakers(SampledGaussianSteps([sigma], [q], direction))
        found = solve(counts, makers, EpsilonAt(delta), methods=methods)
        width.append((found.upper[0] - found.lower[0]) / found.upper[0])
    assert width[0] < 1e-6
    assert width[1] > wider * width[0]


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "delta"), [(0.743, 8.1e-6, 2669, 2e-14), (1.17, 1e-6, 12, 5e-14), (2.0, 0.01, 3_000, 1e-5)]
)
def test_a_rough_answer_takes_rough_methods(sigma, q, steps, delta, monkeypatch):
    """They lead to bounds within the tolerance, and the methods of exact answers are not reached."""
    tried = []
    for kind in {type(method) for method in schedule.ROUGH}:

        def improve(self, job, working, who, own=kind.improve):
            tried.append(self)
            own(self, job, working, who)

        monkeypatch.setattr(kind, "improve", improve)
    exact = pa.compose([(pa.SampledGaussian(sigma, q), steps)]).epsilon(delta)
    tried.clear()
    rough = pa.compose([(pa.SampledGaussian(sigma, q), steps)]).epsilon(delta, tolerance=5e-3)
    assert tried
    assert not any(method.relaxed(5e-3) in tried for method in schedule.SINGLE[4:])
    assert max(rough.lower, exact.lower) <= min(rough.upper, exact.upper)
    assert rough.upper - rough.lower <= 5e-3 * rough.upper


@pytest.mark.parametrize(
    ("mechanism", "steps", "method"),
    [
        (pa.FixedSizeBatch(2.0, 10, 1000), 2, pa.Method.CONVOLUTION),
        (pa.FixedSizeBatch(2.0, 10, 1000), 300, pa.Method.GRID),
        (pa.RandomAllocation(2.0, 100), 5, pa.Method.CONVOLUTION),
        (pa.RandomAllocation(2.0, 100), 100, pa.Method.GRID),
    ],
)
def test_mechanisms_between_others_take_the_quick_method(mechanism, steps, method):
    """The other one would take ten times as long."""
    assert pa.compose([(mechanism, steps)]).epsilon(1e-6).method == method


def widths(methods, sigma, q, steps, delta):
    """Widths of twenty people with norms of their own, counted in fractions, relative to each upper bound."""
    ledger = pa.Ledger(20, noise_multiplier=sigma, sample_rate=q, max_grad_norm=1.0, buckets=32)
    for row in np.random.default_rng(1).uniform(0.3, 1.0, (8, 20)):
        ledger.record(row, repeat=steps // 8)
    counts = ledger._tally.interpolated()
    found = solve(counts, ledger._of("remove"), EpsilonAt(delta), methods=methods)
    return (found.upper - found.lower) / found.upper


@pytest.mark.parametrize(
    ("number", "sigma", "q", "steps", "delta", "wider"),
    [
        # many steps, which one narrow band serves
        (0, 2.0, 0.01, 3_000, 1e-5, 1.2),
        # few steps need a wide band
        pytest.param(1, 2.0, 0.01, 16, 1e-6, 10.0, marks=pytest.mark.slow),
    ],
)
def test_without_a_method_some_interpolated_people_are_wider(number, sigma, q, steps, delta, wider):
    everything = widths(schedule.INTERPOLATED, sigma, q, steps, delta)
    less = widths(without(schedule.INTERPOLATED, number), sigma, q, steps, delta)
    assert np.max(less / everything) > wider
