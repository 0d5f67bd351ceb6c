"""Methods of the schedules are needed: without one of them some bounds are wider."""

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import schedule
from pld_accountant.engine.question import EpsilonAt
from pld_accountant.engine.solver import solve
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.tables.makers import TableMakers


def without(methods, number):
    return methods[:number] + methods[number + 1 :]


@pytest.mark.parametrize(
    ("number", "sigma", "q", "steps", "delta", "direction", "wider"),
    [
        # tails cut, which allows larger tilts
        (1, 1.488, 0.0076, 177, 6e-47, "remove", 10.0),
        # rare steps, split
        (2, 1.0, 1e-4, 1_000, 1e-12, "remove", 100.0),
        # thirteen rare steps, convolved
        (3, 1.0, 1e-3, 13, 1e-12, "remove", 10.0),
        # three rarer ones
        (3, 1.096, 0.0002, 3, 3e-34, "remove", 1e6),
    ],
)
def test_without_a_method_one_composition_is_wider(number, sigma, q, steps, delta, direction, wider):
    """The convolution would tighten what the others leave, but not as much, and in seconds."""
    counts, width = WholeCounts(np.array([[steps]])), []
    several = schedule.SINGLE[: max(number, 2) + 1]
    for methods in (several, without(several, number)):
        makers = TableMakers(SampledGaussianSteps([sigma], [q], direction))
        found = solve(counts, makers, EpsilonAt(delta), methods=methods)
        width.append((found.upper[0] - found.lower[0]) / found.upper[0])
    assert width[0] < 1e-6
    assert width[1] > wider * width[0]


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
