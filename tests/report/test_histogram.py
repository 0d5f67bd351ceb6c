"""Statistics of many epsilons against plain counting."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pld_accountant.report.histogram import bin_edges, groups, histogram, quantiles, share_under

EPSILONS = st.lists(st.one_of(st.floats(0, 50), st.just(math.inf)), min_size=1, max_size=40).map(np.array)


@given(EPSILONS, st.integers(1, 30))
def test_every_person_is_in_one_bin_or_outside(epsilon, bins):
    edges = np.linspace(0.0, np.max(epsilon[np.isfinite(epsilon)], initial=1.0), bins + 1)
    counted = histogram(epsilon, edges)
    assert len(counted.counts) == bins
    assert counted.outside == np.count_nonzero(np.isinf(epsilon))
    assert counted.counts.sum() + counted.outside == len(epsilon)
    for i, count in enumerate(counted.counts):
        inside = ((edges[i] <= epsilon) if i == 0 else (edges[i] < epsilon)) & (epsilon <= edges[i + 1])
        assert count == np.count_nonzero(inside)


def test_people_beyond_the_edges_are_counted_outside():
    counted = histogram(np.array([0.5, 1.0, 1.5, np.inf]), np.array([0.0, 0.5, 1.0]))
    assert counted.counts.tolist() == [1, 1]
    assert counted.outside == 2


@given(st.floats(1e-3, 1e3), st.integers(1, 100), st.floats(0, 1e4))
def test_bins_have_one_width_reach_the_top_and_end_at_the_mark(top, bins, mark):
    width = top / bins
    edges = bin_edges(top, width, mark)
    assert edges[0] == 0 and edges[-1] >= top
    assert len(edges) <= bins + 3
    widths = np.diff(edges)
    assert np.all(widths > 0) and widths[0] <= width * (1 + 1e-9)
    assert np.allclose(widths[1:], width, rtol=1e-9)
    if mark <= top:
        assert np.abs(edges - mark).min() <= 1e-12 * top


def test_edges_without_a_finite_mark():
    assert bin_edges(1.0, 0.5, np.inf).tolist() == [0.0, 0.5, 1.0]
    assert bin_edges(1.0, 0.5, 0.0).tolist() == [0.0, 0.5, 1.0]


@given(EPSILONS, st.floats(0, 1))
def test_a_quantile_is_the_smallest_own_value_that_so_many_do_not_exceed(epsilon, probability):
    value = quantiles(epsilon, (probability,)).values[0]
    enough = [v for v in sorted(epsilon) if np.mean(epsilon <= v) >= probability - 1e-9 / len(epsilon)]
    assert value == enough[0]


def test_quantiles_at_the_ends_and_with_rounding():
    assert quantiles(np.arange(1.0, 31.0), (0.0, 0.1, 0.5, 1.0)).values.tolist() == [1, 3, 15, 30]
    assert quantiles(np.array([np.inf, 1.0]), (0.5, 0.6)).values.tolist() == [1.0, math.inf]


@pytest.mark.parametrize("bad", [[-0.1], [1.1], [math.nan]])
def test_probabilities_outside_the_unit_interval_are_refused(bad):
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        quantiles(np.ones(3), bad)


@given(EPSILONS, st.floats(0, 60))
def test_the_share_is_strictly_under(epsilon, threshold):
    share = share_under(epsilon, threshold)
    assert share.count == sum(e < threshold for e in epsilon.tolist())
    assert share.fraction == share.count / len(epsilon)


@given(st.lists(st.tuples(st.floats(0, 9), st.integers(-2, 2)), min_size=1, max_size=40))
def test_groups_are_the_statistics_of_their_members(people):
    epsilon, labels = np.array([p[0] for p in people]), np.array([p[1] for p in people])
    found = groups(epsilon, labels, worst_case=4.0, probabilities=(0.5,))
    assert [g.label for g in found] == sorted(set(labels.tolist()))
    for group in found:
        members = epsilon[labels == group.label]
        assert group.people == len(members)
        assert math.isclose(group.mean, math.fsum(members) / len(members), rel_tol=1e-14, abs_tol=1e-300)
        assert group.quantiles.values == quantiles(members, (0.5,)).values
        assert group.under_half == share_under(members, 2.0)


def test_groups_of_strings_are_ordered_and_plain():
    found = groups(np.array([1.0, 2.0, 3.0]), np.array(["west", "east", "west"]), worst_case=10.0)
    assert [(g.label, type(g.label), g.people) for g in found] == [("east", str, 1), ("west", str, 2)]


def test_bad_arrays_are_refused():
    with pytest.raises(ValueError, match="labels must have shape"):
        groups(np.ones(3), np.arange(2), 1.0)
    with pytest.raises(ValueError, match="person 1 is"):
        quantiles(np.array([1.0, math.nan]))
    with pytest.raises(ValueError, match="at least one person"):
        share_under(np.array([]), 1.0)
    with pytest.raises(ValueError, match="one-dimensional"):
        histogram(np.ones((2, 2)), np.array([0.0, 1.0]))
