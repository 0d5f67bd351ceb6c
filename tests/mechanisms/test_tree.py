"""Binary trees with several participations against all patterns, one by one."""

import itertools

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.mechanisms import tree
from pld_accountant.mechanisms.tree import tree_squared_sensitivity


def nodes_of(steps):
    """The leaves below each node of the complete trees, the largest first."""
    start = 0
    for level in reversed(range(steps.bit_length())):
        if steps >> level & 1:
            for height in range(level + 1):
                for first in range(start, start + (1 << level), 1 << height):
                    yield range(first, first + (1 << height))
            start += 1 << level


def largest(steps, k, gap):
    nodes, best = [np.array(node) for node in nodes_of(steps)], 0
    for n in range(1, k + 1):
        for pattern in itertools.combinations(range(steps), n):
            if all(b - a > gap for a, b in itertools.pairwise(pattern)):
                taken = np.zeros(steps)
                taken[list(pattern)] = 1.0
                best = max(best, int(sum(taken[node].sum() ** 2 for node in nodes)))
    return best


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 11, 13])
@pytest.mark.parametrize("gap", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("k", [1, 2, 3, 13])
def test_the_search_finds_the_best_pattern(monkeypatch, steps, gap, k):
    exact = largest(steps, k, gap)
    assert tree_squared_sensitivity(steps, k, gap) == exact
    monkeypatch.setattr(tree, "_MOST_WORK", 0.0)
    assert exact <= tree_squared_sensitivity(steps, k, gap) <= 1.5 * exact


@pytest.mark.parametrize(
    ("k", "gap", "steps", "square"),
    [(1, 7, 8, 4), (8, 2, 24, 88), (3, 0, 3, 7), (2, 0, 3, 6), (8, 0, 8, 120), (11, 0, 11, 127), (2, 0, 19, 18)],
)
def test_known_values(k, gap, steps, square):
    """Of tensorflow_privacy's tree_aggregation_accountant_test.py, as facts."""
    assert tree_squared_sensitivity(steps, k, gap) == square
    ((step, count),) = pa.TreeAggregation(3.0, steps, 5, max_participations=k, min_separation=gap)
    assert count == 5 and step.noise_multiplier == pytest.approx(3.0 / square**0.5)


def test_long_runs_are_bounded_by_levels():
    """Two epochs of 1,000 batches in one tree: the two participations share the upper nodes only."""
    assert 4 * 11 > tree_squared_sensitivity(2_000, 2, 999) >= 2 * 9 + 4 * 1
    assert tree_squared_sensitivity(2_000, 2, 1_999) == 11
    assert tree_squared_sensitivity(10**6, 1_000, 0) > 1_000**2


@pytest.mark.parametrize("parameters", [(0,), (8, 0), (8, 1, -1), (8.5,), (8, 1, "x")])
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ValueError, match="must be"):
        tree_squared_sensitivity(*parameters)
