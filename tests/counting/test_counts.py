"""Counts, whole and interpolated, against plain loops over people and buckets."""

from dataclasses import replace

import numpy as np
import pytest

from pld_accountant.counting.buckets import Buckets
from pld_accountant.counting.counts import JOINED, Counts, InterpolatedCounts, WholeCounts, lower_edges
from pld_accountant.counting.interpolation import UNITS, upper_weight_bound, weight_rounding

GROUPS = [Buckets.make(2.0, 0.01, 8), Buckets.make(1.0, 0.02, 8)]
PEOPLE, BUCKETS = 40, 16
FREE = (0, 8)  # buckets whose lower edge costs nothing
LOG_DELTA = -11.5


def recorded(kind=np.uint16, units=np.int32):
    """Steps and lower weights of forty people in two groups; a few of them took a single step, or none."""
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 50, (PEOPLE, BUCKETS)) * (rng.random((PEOPLE, BUCKETS)) < 0.6)
    counts[:6] = 0
    for person, bucket in ((1, 5), (2, 0), (3, 8), (4, 15), (5, 9)):
        counts[person, bucket] = 1
    weights = np.floor(counts * rng.integers(0, UNITS, counts.shape))
    weights[:, FREE] = 0
    return counts.astype(kind), weights.astype(units)


def interpolated(log_delta=None, **kinds):
    counts, weights = recorded(**kinds)
    return InterpolatedCounts(counts, weights, GROUPS, log_delta)


def rows_of(counts: Counts) -> np.ndarray:
    """The fractional counts at each row of the table, by plain loops: (people, rows)."""
    if isinstance(counts, WholeCounts):
        return whole_rows(counts)
    assert isinstance(counts, InterpolatedCounts)
    out = np.zeros(counts.counts.shape)
    most = int(counts.counts.astype(np.int64).sum(axis=1).max())
    for i, (steps, weights) in enumerate(zip(counts.counts.tolist(), counts.lower_weights.tolist(), strict=True)):
        for k in range(BUCKETS):
            if not steps[k]:
                continue
            if counts.log_delta is None:
                lower = weights[k] / UNITS
                upper = steps[k] - lower
            else:
                group, bucket = GROUPS[k // 8], k % 8
                rho, scale = upper_weight_bound(group, counts.log_delta + np.log(JOINED / (2.0 * most)))
                place = max(1.0 - weights[k] / UNITS / steps[k] - weight_rounding(group)[bucket], 0.0)
                upper = steps[k] * scale[bucket] * np.expm1(rho[bucket] * place)
                lower = steps[k] - upper
            out[i, k] += upper
            if k not in FREE:
                out[i, k - 1] += lower
    return out if counts.people is None else out[counts.people]


def whole_rows(counts: WholeCounts) -> np.ndarray:
    out = np.zeros(counts.counts.shape)
    for i, steps in enumerate(counts.counts.tolist()):
        for k, number in enumerate(steps):
            row = k if counts.at is None else int(counts.at[k])
            if row >= 0:
                out[i, row] += number
    return out if counts.people is None else out[counts.people]


ALL = {
    "upper edges": lambda: WholeCounts(recorded()[0]),
    "lower edges": lambda: WholeCounts(recorded()[0], lower_edges(GROUPS)),
    "interpolated, upper bound": interpolated,
    "interpolated, lower bound": lambda: interpolated(LOG_DELTA),
}
SELECTIONS = [
    *(np.s_[:], np.s_[3:17], np.s_[30:], np.array([7, 3, 30, 3]), np.array([], dtype=np.int64)),
    np.arange(200) % 31,  # more people than those for whom columns are selected
]


@pytest.fixture(params=ALL, ids=list(ALL))
def counts(request):
    return ALL[request.param]()


def test_lower_edges_by_a_loop():
    expected = []
    for start, group in zip((0, 8), GROUPS, strict=True):
        expected += [-1 if k == 0 else start + k - 1 for k in range(group.size)]
    assert lower_edges(GROUPS).tolist() == expected


@pytest.mark.parametrize("selection", SELECTIONS, ids=str)
def test_products_with_values(counts, selection):
    values = np.random.default_rng(1).normal(size=(BUCKETS, 5))
    expected = rows_of(counts)[selection] @ values
    assert counts.rows == BUCKETS
    np.testing.assert_allclose(counts.times(values, selection), expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(counts.times(values), rows_of(counts) @ values, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("people", [0, 3, 20_000])
def test_sums_are_products_of_all_people_in_order(people):
    rng = np.random.default_rng(people)
    counts, values = WholeCounts(rng.integers(0, 9, (people, BUCKETS))), rng.normal(size=(BUCKETS, 2))
    some = rng.permutation(people)[: people // 2]
    np.testing.assert_allclose(counts.sums(values), counts.counts @ values, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(counts.sums(values, some), counts.counts[some] @ values, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("people", [3, 200])
def test_values_of_steps_that_cost_nothing_do_not_matter(people, value):
    """The last row of the table is not taken for the row -1."""
    steps = np.zeros((people, BUCKETS), dtype=np.uint16)
    steps[:, FREE] = 4
    values = np.ones((BUCKETS, 2))
    values[-1] = value
    product = WholeCounts(steps, lower_edges(GROUPS)).times(values)
    np.testing.assert_array_equal(product, 0.0)


@pytest.mark.parametrize("selection", SELECTIONS[:-1], ids=str)
def test_rows_in_use(counts, selection):
    """Every row with a step is in use; an interpolated step may leave one of its two edges without a share."""
    used = counts.used(selection)
    taken = (rows_of(counts)[selection] > 0.0).any(axis=0)
    assert np.all(used[taken])
    if isinstance(counts, WholeCounts):
        np.testing.assert_array_equal(used, taken)
    few = np.array([1])  # a single step in bucket 5
    assert set(np.flatnonzero(counts.used(few)).tolist()) in ({4}, {5}, {4, 5})


def test_numbers_of_steps(counts):
    lower = isinstance(counts, WholeCounts) and counts.at is not None
    lower |= isinstance(counts, InterpolatedCounts) and counts.log_delta is not None
    expected = []
    for steps in counts.counts.tolist():
        expected.append(sum(n for k, n in enumerate(steps) if not (lower and k in FREE)))
    found = counts.steps()
    assert found.dtype == np.int64
    assert found.tolist() == expected


def test_some_people_are_the_rows_of_all(counts):
    values = np.random.default_rng(2).normal(size=(BUCKETS, 3))
    who = np.array([7, 3, 30, 12])
    some = counts.of(who)
    assert len(counts) == PEOPLE
    assert len(some) == 4
    np.testing.assert_array_equal(some.times(values), counts.times(values, who))
    np.testing.assert_array_equal(some.times(values, np.s_[1:3]), counts.times(values, who[1:3]))
    np.testing.assert_array_equal(some.steps(), counts.steps()[who])
    np.testing.assert_array_equal(some.used(), counts.used(who))
    np.testing.assert_array_equal(some.used(np.array([1])), counts.used(np.array([3])))
    of_some = some.of(np.array([2, 0]))
    assert len(of_some) == 2
    np.testing.assert_array_equal(of_some.times(values), counts.times(values, np.array([30, 7])))
    assert of_some.log_loss == counts.log_loss


def test_a_selection_is_no_copy(counts):
    some = counts.of(np.array([7, 3]))
    assert some.counts is counts.counts


@pytest.mark.parametrize("selected", [False, True])
def test_single_steps(counts, selected):
    """The row, the other outcome's row and the weight give the fractional counts of the only step back."""
    expected = rows_of(counts)
    # people 2 and 3 took their only step in a first bucket, which costs nothing at its lower edge
    single = np.flatnonzero(counts.steps() == 1)
    lower = counts.log_loss > 0.0 or (isinstance(counts, WholeCounts) and counts.at is not None)
    assert single.tolist() == ([1, 4, 5] if lower else [1, 2, 3, 4, 5])
    some, who = (counts.of(single[::-1].copy()), np.arange(single.size)[::-1]) if selected else (counts, single)
    row, other, weight = some.single_steps(who)
    for j, person in enumerate(single):
        found = np.zeros(BUCKETS)
        if other is None:
            found[row[j]] = 1.0
        else:
            found[row[j]] = weight[j]
            if other[j] >= 0:
                found[other[j]] += 1.0 - weight[j]
        np.testing.assert_allclose(found, expected[person], rtol=1e-12, atol=1e-15)


def test_a_single_step_beside_steps_that_cost_nothing():
    """The bucket with the step that costs something is found, wherever the free steps lie."""
    steps, weights = np.zeros((2, BUCKETS), dtype=np.uint16), np.zeros((2, BUCKETS), dtype=np.int32)
    steps[0, [0, 8, 11]] = 7, 9, 1
    steps[1, [0, 3, 8]] = 7, 1, 9
    for counts in (WholeCounts(steps, lower_edges(GROUPS)), InterpolatedCounts(steps, weights, GROUPS, LOG_DELTA)):
        assert counts.steps().tolist() == [1, 1]
        row, other, _ = counts.single_steps(np.arange(2))
        assert row.tolist() == ([10, 2] if other is None else [11, 3])


def test_steps_at_each_row_of_one_person():
    for at in (None, lower_edges(GROUPS)):
        counts = WholeCounts(recorded()[0], at)
        for some, person, place in ((counts, 17, 17), (counts.of(np.array([9, 17])), 1, 17)):
            found = some.of_rows(person)
            assert found.dtype == np.int64
            np.testing.assert_array_equal(found, whole_rows(counts)[place])


def test_more_steps_than_the_counters_type_can_add_up():
    steps = np.full((2, BUCKETS), 65_000, dtype=np.uint16)
    assert WholeCounts(steps).steps().tolist() == [BUCKETS * 65_000] * 2
    assert WholeCounts(steps).times(np.ones((BUCKETS, 1)))[0, 0] == BUCKETS * 65_000
    weights = np.zeros(steps.shape, dtype=np.int32)
    assert InterpolatedCounts(steps, weights, GROUPS).matrix().sum(axis=1).tolist() == [BUCKETS * 65_000] * 2


# ------------------------------------------------------------------------------------------------ interpolated counts


@pytest.mark.parametrize(("kind", "units"), [(np.uint16, np.int32), (np.uint32, np.int32), (np.uint32, np.int64)])
@pytest.mark.parametrize("log_delta", [None, LOG_DELTA])
def test_the_matrix_of_interpolated_counts(kind, units, log_delta):
    counts = interpolated(log_delta, kind=kind, units=units)
    expected = rows_of(counts)
    np.testing.assert_allclose(counts.matrix(), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(counts.matrix(np.s_[3:7]), counts.matrix()[3:7])
    np.testing.assert_array_equal(counts.matrix(np.array([5, 1])), counts.matrix()[[5, 1]])


def test_interpolated_counts_of_the_upper_bound_are_all_the_steps():
    counts = interpolated()
    rows = counts.matrix()
    lower = counts.lower_weights / UNITS
    expected = counts.counts - lower
    expected[:, :-1] += lower[:, 1:]
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(rows.sum(axis=1), counts.counts.sum(axis=1))
    assert counts.log_loss == 0.0


def test_interpolated_counts_of_the_lower_bound():
    counts = interpolated(LOG_DELTA)
    rows = counts.matrix()
    assert np.all(rows >= 0.0)
    # the first bucket of each group costs nothing, and nothing crosses from one group into the other
    np.testing.assert_allclose(rows.sum(axis=1), counts.steps())
    np.testing.assert_allclose(rows[:, :8].sum(axis=1), counts.counts[:, 1:8].sum(axis=1))
    # each edge holds less than in the upper bound, from the top
    above = interpolated().matrix()
    for columns in (slice(0, 8), slice(8, 16)):
        from_top = [np.cumsum(r[:, columns][:, ::-1], axis=1) for r in (rows, above)]
        assert np.all(from_top[0] <= from_top[1] + 1e-9)


@pytest.mark.parametrize("log_delta", [-11.5, -60.0])
def test_steps_of_one_bucket_count_for_at_least_as_many_at_their_mean_place(log_delta):
    """Only the sum of places in a bucket is known: as many steps at their mean place count for no more."""
    group = Buckets.make(2.0, 0.01, 8)
    steps, weights = np.zeros((2, 8), dtype=np.uint16), np.zeros((2, 8), dtype=np.int32)
    steps[:, 5] = 1, 4
    weights[:, 5] = 0, 3 * UNITS
    alone, together = InterpolatedCounts(steps, weights, [group], log_delta).matrix()[:, 5]
    # one at the upper edge and three at the lower
    assert 0.0 < together <= alone
    rho, scale = upper_weight_bound(group, log_delta + np.log(JOINED / 8.0))
    place = 0.25 - weight_rounding(group)[5]
    assert together == pytest.approx(4.0 * scale[5] * np.expm1(rho[5] * place), rel=1e-12)


def test_the_lower_bound_pays_for_the_joined_outcomes():
    counts = interpolated(LOG_DELTA)
    assert counts.log_loss == pytest.approx(np.log1p(JOINED), rel=1e-12)
    assert replace(counts, log_delta=None).log_loss == 0.0


def test_every_step_may_fall_where_outcomes_were_joined():
    """The tail is shared by the steps of whoever has most of them, also if only others are asked for."""
    counts = interpolated(LOG_DELTA)
    most = int(counts.counts.sum(axis=1, dtype=np.int64).max())
    bounds = [upper_weight_bound(g, LOG_DELTA + np.log(JOINED / (2.0 * most))) for g in GROUPS]
    rho, scale = np.hstack(bounds)
    few = counts.of(np.array([1]))
    for some in (counts, few, few.of(np.array([0]))):
        np.testing.assert_allclose(some._down[0], rho, rtol=1e-12)
        np.testing.assert_allclose(some._down[1], scale, rtol=1e-12)


def test_people_whose_interpolated_counts_are_whole():
    counts = interpolated()
    expected = (counts.lower_weights == 0).all(axis=1)
    assert 0 < expected.sum() < PEOPLE
    np.testing.assert_array_equal(counts.whole(), expected)
    np.testing.assert_array_equal(counts.of(np.array([0, 20])).whole(), expected[[0, 20]])
    assert not interpolated(LOG_DELTA).whole().any()
    whole = np.flatnonzero(expected)
    np.testing.assert_array_equal(counts.matrix(whole), WholeCounts(counts.counts).of(whole).counts[whole])


def test_rows_between_which_steps_are_interpolated():
    assert interpolated().neighbours().tolist() == [True] * 7 + [False] + [True] * 7
    full = [GROUPS[0], Buckets.make(1.0, 1.0, 8)]
    counts = replace(interpolated(), groups=full)
    assert counts.neighbours().tolist() == [True] * 7 + [False] * 8


@pytest.mark.parametrize("log_delta", [None, LOG_DELTA])
def test_variances_lie_within_their_ranges_and_are_known_for_single_steps(log_delta):
    counts = interpolated(log_delta)
    number, middle, doubt = counts.variances()
    steps = counts.counts.astype(np.float64)
    assert np.all((number == steps) | (number == 0.0))
    assert np.all(doubt[steps == 1.0] == 0.0)
    assert np.all(middle >= doubt)
    assert np.all(middle + doubt <= 0.25 * steps + 1e-12)
    _, _, weight = counts.single_steps(np.array([1]))
    assert middle[1].sum() == pytest.approx(float(weight[0] * (1.0 - weight[0])), rel=1e-12)
    # the other extreme: steps that count whole at either edge have no variance at all
    assert np.all(middle[steps > 1.0] - doubt[steps > 1.0] == 0.0)
