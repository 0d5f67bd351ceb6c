"""Methods that answer the same question must not contradict each other: random compositions, deltas down to 1e-100."""

import math

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import schedule
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.engine.solver import solve
from pld_accountant.tables.makers import TableMakers

FIRST, NARROW, CONTOUR, RARE, _ = schedule.SINGLE


def draw(rng):
    """Mechanism, steps and delta: all ranges are those of logarithms."""
    sigma, q, steps, delta = (
        math.exp(rng.uniform(*np.log(ends))) for ends in ((0.45, 4.0), (1e-6, 0.05), (3.0, 1e5), (1e-80, 1e-4))
    )
    kind = rng.integers(4)
    if kind == 0:
        return pa.GroupGaussian(sigma, q, int(rng.integers(2, 9))), int(steps), delta
    if kind == 1:
        return pa.ReplaceOneSampledGaussian(sigma, q), int(steps), delta
    return pa.SampledGaussian(sigma, q), int(steps), delta


def agree(mechanism, steps, delta, direction):
    """To how many of two questions two methods at least gave bounds from both sides."""
    makers, counts, known = TableMakers(mechanism.steps([mechanism], direction)), WholeCounts(np.array([[steps]])), 0
    epsilon = float(solve(counts, makers, EpsilonAt(delta), methods=(FIRST, NARROW, CONTOUR)).upper[0])
    questions = [EpsilonAt(delta)] + [DeltaAt(epsilon)] * (0.0 < epsilon < math.inf)
    for question in questions:
        lows, highs = [], []
        for method in (FIRST, NARROW, CONTOUR, RARE):
            one = solve(counts, makers, question, methods=(method,))
            assert not one.contradicted[0]
            if one.solved[0] and one.lower[0] > question.floor:
                lows.append(one.lower[0])
                highs.append(one.upper[0])
        if lows:
            assert max(lows) <= min(highs) + 1e-11 * (1.0 + abs(min(highs))), (mechanism, steps, delta, lows, highs)
        known += len(lows) > 1
    return known


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(s, marks=pytest.mark.slow) for s in range(4, 60))])
def test_methods_do_not_contradict_each_other(seed):
    rng = np.random.default_rng(seed)
    answers = 0
    for _ in range(8):
        mechanism, steps, delta = draw(rng)
        answers += agree(mechanism, steps, delta, "remove" if rng.random() < 0.8 else "add")
    assert answers > 1
