"""Methods of the schedules are needed: without one of them some bounds are wider."""

from dataclasses import replace

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import schedule, transform
from pld_accountant.engine.contour import Contour
from pld_accountant.engine.convolution import Convolution
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.engine.rare_losses.split import RareLosses
from pld_accountant.engine.solver import bounds, solve
from pld_accountant.engine.transform import GridTransform
from pld_accountant.tables.makers import TableMakers


def without(methods, number):
    return methods[:number] + methods[number + 1 :]


_, NARROW, CONTOUR, RARE, LAST = schedule.SINGLE


@pytest.mark.parametrize(
    ("method", "mechanism", "steps", "delta", "wider"),
    [
        # many rare steps, whose tails are cut
        (NARROW, pa.SampledGaussian(1.6, 0.00014), 4_415, 1.4e-13, 1e3),
        # few steps, and rarer ones
        (CONTOUR, pa.SampledGaussian(0.64, 3.3e-6), 22, 5e-6, 1e3),
        (CONTOUR, pa.SampledGaussian(0.91, 3.1e-5), 32_774, 1e-14, 1e3),
        # mixtures of Gaussians
        (CONTOUR, pa.ReplaceOneSampledGaussian(1.0, 0.001), 40, 1e-8, 100.0),
        (CONTOUR, pa.GroupGaussian(1.58, 1.5e-6, 2), 41_039, 3.7e-15, 1e3),
        # tiny deltas of rare steps, split
        (RARE, pa.SampledGaussian(1.51, 0.00048), 20_317, 1.1e-38, 5.0),
        # what nothing else serves
        (LAST, pa.SampledGaussian(1.245, 1.07e-6), 45, 9e-42, 1e3),
    ],
)
def test_without_a_method_one_composition_is_wider(method, mechanism, steps, delta, wider):
    """Wider than 1e-6, after all methods before this one."""
    counts, width = WholeCounts(np.array([[steps]])), []
    before = schedule.SINGLE[: schedule.SINGLE.index(method)]
    for methods in ((*before, method), before):
        found = solve(counts, TableMakers(mechanism.steps([mechanism], "remove")), EpsilonAt(delta), methods=methods)
        width.append((found.upper[0] - found.lower[0]) / found.upper[0])
    assert width[0] <= 1e-6
    assert width[1] > max(1e-6, wider * width[0])


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "delta"), [(0.743, 8.1e-6, 2669, 2e-14), (1.17, 1e-6, 12, 5e-14), (2.0, 0.01, 3_000, 1e-5)]
)
def test_a_tolerance_is_kept(sigma, q, steps, delta):
    exact = pa.compose([(pa.SampledGaussian(sigma, q), steps)]).epsilon(delta)
    rough = pa.compose([(pa.SampledGaussian(sigma, q), steps)]).epsilon(delta, tolerance=5e-3)
    assert max(rough.lower, exact.lower) <= min(rough.upper, exact.upper)
    assert rough.upper - rough.lower <= 5e-3 * rough.upper


@pytest.mark.parametrize(
    ("mechanism", "steps", "method"),
    [
        (pa.Laplace(3.0), 5, pa.Method.RENYI),  # nearly the largest loss
        (pa.Laplace(3.0), 50, pa.Method.GRID),
        (pa.PoissonSampled(pa.Laplace(2.0), 0.01), 30, pa.Method.GRID),
        (pa.PoissonSampled(pa.Laplace(2.0), 0.01), 100, pa.Method.TRANSFORM),
        (pa.PoissonSampled(pa.DiscreteGaussian(3.0), 0.01), 50, pa.Method.TRANSFORM),
        (pa.FixedSizeBatch(2.0, 10, 1000), 2, pa.Method.GRID),
        (pa.FixedSizeBatch(2.0, 10, 1000), 300, pa.Method.GRID),
        (pa.RandomAllocation(2.0, 100), 100, pa.Method.GRID),
    ],
)
def test_mechanisms_between_others_take_the_quick_method(mechanism, steps, method):
    """The other one would take ten times as long."""
    assert pa.compose([(mechanism, steps)]).epsilon(1e-6).method == method


def test_a_tolerance_of_a_millionth_is_worth_more_time():
    run = pa.compose([(pa.PoissonSampled(pa.Laplace(3.65), 0.044), 8)])
    quick, close = run.epsilon(9.5e-9), run.epsilon(9.5e-9, tolerance=1e-6)
    assert 1e-6 * quick.upper < quick.width <= 1e-5 * quick.upper
    assert close.width <= 1e-6 * close.upper
    assert quick.lower <= close.lower <= close.upper <= quick.upper


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


def test_few_rare_steps_are_closer_with_grids_and_with_contours():
    """Of whole counts; people with the same counts are asked about once by contours."""
    ledger = pa.Ledger(20, noise_multiplier=0.55, sample_rate=5e-5, max_grad_norm=1.0, buckets=32)
    ledger.record(np.repeat(np.linspace(0.3, 1.0, 10), 2), repeat=6)
    counts, makers = ledger._tally.whole(), ledger._of("remove")
    *transforms, coarse, fine, contour, _ = schedule.WHOLE
    found = [
        solve(counts, makers, EpsilonAt(1e-8), methods=methods)
        for methods in ((*transforms, contour), (*transforms, coarse, fine), transforms)
    ]
    close, near, apart = ((one.upper - one.lower) / one.upper.max() for one in found)
    assert close.max() < 1e-4 and near.max() < 0.2 and apart.max() > 0.5
    assert np.all(found[1].method == pa.Method.GRID)
    np.testing.assert_array_equal(found[0].upper[::2], found[0].upper[1::2])
    for one in found[1:]:
        assert np.all(found[0].lower <= one.upper) and np.all(one.lower <= found[0].upper)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("noise", "rate", "steps", "delta"), [(1.0, 1e-3, 9, 1e-10), (0.5, 1e-3, 8, 1e-6)])
def test_truncated_grids_contain_the_exact_answer(noise, rate, steps, delta, direction):
    """Lone people are bounded to 1e-6; what lies beyond the end, and the cells, widen the grid's bounds only."""
    ledger = pa.Ledger(4, noise_multiplier=noise, sample_rate=rate, max_grad_norm=1.0, buckets=16)
    for norms in np.linspace((0.5, 0.6, 0.8, 1.0), (1.0, 0.7, 0.8, 1.0), steps):
        ledger.record(norms)
    counts, makers = ledger._tally.whole(), ledger._of(direction)
    exact = solve(counts, makers, EpsilonAt(delta), methods=schedule.SINGLE)
    assert np.all(exact.upper - exact.lower <= 2e-6 * exact.upper)
    for points in (1 << 12, 1 << 14):
        method = replace(schedule._NEAR_GRID, points=points, narrow=points)
        found = solve(counts, makers, EpsilonAt(delta), methods=[method])
        assert np.all(found.method == pa.Method.GRID)
        assert np.all(found.lower <= exact.upper) and np.all(exact.lower <= found.upper)
    assert np.all(found.upper - found.lower <= 2e-3 * found.upper)


def test_the_mass_beyond_a_truncated_grid_counts(monkeypatch):
    """If half of delta lies beyond the end, an upper bound without it is too small."""
    ledger = pa.Ledger(1, noise_multiplier=1.0, sample_rate=1e-3, max_grad_norm=1.0, buckets=16)
    ledger.record([1.0], repeat=9)
    counts, makers = ledger._tally.whole(), ledger._of("remove")
    exact = solve(counts, makers, EpsilonAt(1e-8), methods=schedule.SINGLE)
    near = replace(schedule._NEAR_GRID, width=1.0, width_of_largest=0.0)
    for width, close in ((5.0, False), (np.inf, False), (0.1, True)):  # a hundredth of it times delta lies beyond
        found = solve(counts, makers, EpsilonAt(1e-8), methods=[replace(near, width=width)])
        assert found.lower[0] <= exact.upper[0] and exact.lower[0] <= found.upper[0]
        assert (found.upper[0] - found.lower[0] < 0.01 * exact.upper[0]) == close


def test_contours_of_too_many_different_counts_are_not_tried():
    ledger = pa.Ledger(20, noise_multiplier=0.55, sample_rate=5e-5, max_grad_norm=1.0, buckets=32)
    ledger.record(np.linspace(0.3, 1.0, 20), repeat=6)
    counts, makers = ledger._tally.whole(), ledger._of("remove")
    different = np.unique([counts.of_rows(person) for person in range(20)], axis=0).shape[0]
    for most, solved in ((different - 1, False), (different, True)):
        found = solve(counts, makers, EpsilonAt(1e-8), methods=[Contour(0.0, most=most)])
        assert bool(np.all(found.method == pa.Method.CONTOUR)) == solved


def test_contours_serve_people_with_many_kinds_of_few_rare_steps():
    """Without contours of more than four kinds, the bounds of 24 steps of six kinds are far apart."""
    ledger = pa.Ledger(3, noise_multiplier=0.54, sample_rate=1e-4, max_grad_norm=1.0, buckets=32)
    for norms in np.linspace((0.4, 0.5, 0.45), (1.0, 0.9, 0.95), 6):
        ledger.record(norms, repeat=4)
    counts, makers = ledger._tally.whole(), ledger._of("remove")
    kinds = [np.count_nonzero(counts.of_rows(person)) for person in range(3)]
    assert min(kinds) > 4
    for most, solved in ((sum(kinds) - 1, False), (sum(kinds), True)):
        found = solve(counts, makers, EpsilonAt(2e-12), methods=[Contour(0.0, most=most, most_kinds=max(kinds))])
        assert bool(np.all(found.method == pa.Method.CONTOUR)) == solved
    methods = [m for m in schedule.WHOLE if not isinstance(m, GridTransform)]
    fewer = [replace(m, most_kinds=4) if isinstance(m, Contour) else m for m in methods]
    close, apart = (solve(counts, makers, EpsilonAt(2e-12), methods=some) for some in (methods, fewer))
    assert np.max(close.upper - close.lower) < 1e-3 * close.upper.max()
    assert np.max(apart.upper - apart.lower) > 1e-2 * apart.upper.max()
    assert np.all(close.lower <= apart.upper) and np.all(apart.lower <= close.upper)


def test_clipped_steps_count_nearly_exactly_where_they_count_whole():
    """If the last bucket were as wide as the others, the bounds would lie 2.6 % of the worst case's epsilon apart."""
    ledger = pa.Ledger(1, noise_multiplier=0.6, sample_rate=1e-4, max_grad_norm=1.0)
    for norm, repeat in ((0.2, 1), (0.4, 2), (1.0, 5)):
        ledger.record([norm], repeat)
    found, worst = ledger.epsilon(1e-12), ledger.worst_case().epsilon(1e-12)
    exact = pa.compose([(pa.SampledGaussian(0.6 / norm, 1e-4), n) for norm, n in ((0.2, 1), (0.4, 2), (1.0, 5))])
    assert found.upper[0] - found.lower[0] < 1e-4 * worst.lower
    assert found.lower[0] <= exact.epsilon(1e-12).upper and exact.epsilon(1e-12).lower <= found.upper[0]


def test_tiny_deltas_of_a_handful_of_people_are_not_worth_the_time(monkeypatch):
    """RareLosses and Convolution took 25 seconds for deltas of 1e-149 and 1e-39."""
    tried = []
    for kind in (RareLosses, Convolution):
        monkeypatch.setattr(kind, "improve", lambda self, job, working, who: tried.append(who))
    ledger = pa.Ledger(5, noise_multiplier=2.0, sample_rate=0.01, max_grad_norm=5.0)
    ledger.record([0.0, 0.5, 1.0, 2.0, 5.0], repeat=100)
    found, clipped = ledger.delta(0.5), pa.compose([(pa.SampledGaussian(2.0, 0.01), 100)]).delta(0.5)
    assert not tried
    assert np.all(found.upper[:4] < 1e-38) and found.upper[0] == 0.0
    assert found.lower[4] <= clipped.lower * (1 + 1e-9) and clipped.upper <= found.upper[4] * (1 + 1e-9)
    assert found.upper[4] < 1.001 * found.lower[4]


def test_tiny_deltas_of_many_people_are_not_worth_the_time(monkeypatch):
    """Grids took fifty times as long as all other methods, for lower bounds of deltas below 1e-26."""
    tried = []
    monkeypatch.setattr(GridTransform, "improve", lambda self, job, working, who: tried.append(who))
    ledger = pa.Ledger(400, noise_multiplier=2.0, sample_rate=0.005, max_grad_norm=1.0)
    ledger.record(np.geomspace(1e-2, 1.0, 400), repeat=10_000)
    found = ledger.delta(1.0)
    assert not tried
    assert np.mean(found.upper < 1e-26) > 0.5
    assert np.all(found.upper <= 2.0 * found.lower, where=found.upper > 1e-15)


def test_many_steps_are_left_to_rare_losses(monkeypatch):
    """At delta 1e-60, grids and contours took half of the time and gave wider bounds."""
    tried = {RareLosses: 0, GridTransform: 0, Contour: 0}
    for kind in tried:

        def count(self, job, working, who, kind=kind):
            tried[kind] += who.size

        monkeypatch.setattr(kind, "improve", count)
    ledger = pa.Ledger(400, noise_multiplier=2.0, sample_rate=0.005, max_grad_norm=1.0)
    ledger.record(np.geomspace(0.1, 1.0, 400), repeat=10_000)
    ledger.epsilon(1e-60)
    assert tried[RareLosses] > 0 and tried[GridTransform] == tried[Contour] == 0


def test_people_with_rare_steps_are_within_a_percent_of_the_worst_case():
    """Two people of many buckets, whom neither interpolated counts nor a handful's methods serve, and two others."""
    draw, people = np.random.default_rng(0), np.array([15, 30, 27, 28])
    own = np.exp(draw.normal(-1.0, 1.0, 500))
    ledger = pa.Ledger(people.size, noise_multiplier=0.8, sample_rate=5e-4, max_grad_norm=1.0, buckets=128)
    for step in range(200):
        norms = np.minimum(own * np.exp(draw.normal(0.0, 0.5, 500)), 3.0)
        ledger.record(norms[people], repeat=2 if step < 100 else 1)
    found, worst = ledger.epsilon(1e-7), ledger.worst_case().epsilon(1e-7).upper
    assert np.all(found.upper - found.lower <= 0.01 * worst)
    assert np.all(found.lower > 0.0)


@pytest.mark.parametrize(
    ("mechanism", "first"),
    [
        (pa.PoissonSampled(pa.DiscreteGaussian(2.0), 0.1), True),
        (pa.PoissonSampled(pa.Laplace(1.0), 0.1), True),
        (pa.SampledGaussian(1.0, 0.1), False),
    ],
)
def test_wide_answers_of_losses_with_atoms_come_from_a_grid(mechanism, first):
    run = pa.compose([(mechanism, 50)])
    close, wide = run.epsilon(1e-6), run.epsilon(1e-6, tolerance=1e-3)
    assert (wide.method == pa.Method.GRID) == first and close.method == pa.Method.TRANSFORM
    assert wide.lower <= close.lower and close.upper <= wide.upper <= wide.lower * (1.0 + 1e-3)


def test_a_grid_needs_no_lower_bound_of_an_answer_below_what_is_known(monkeypatch):
    mechanism, solved, solve_one = pa.PoissonSampled(pa.DiscreteGaussian(2.0), 0.1), [], transform.solve
    counts, grid = WholeCounts(np.array([[40]])), (schedule.GRID[1],)

    def counting(*given, **more):
        solved.append(given)
        return solve_one(*given, **more)

    monkeypatch.setattr(transform, "solve", counting)

    def found(known):
        solved.clear()
        makers = TableMakers(mechanism.steps([mechanism], "remove"))
        least = None if known is None else [np.array([known])]
        return bounds(counts, makers, [EpsilonAt(1e-6)], methods=grid, known=least)[0]

    close = found(None)
    assert len(solved) == 2 and close.lower[0] > 0.0
    below = found(1.0001 * close.upper[0])
    assert len(solved) == 1 and below.lower[0] == 0.0 and below.upper[0] == close.upper[0]
    above = found(0.99 * close.lower[0])
    assert len(solved) == 2 and above.lower[0] == pytest.approx(close.lower[0], rel=1e-6)


@pytest.mark.parametrize("question", [EpsilonAt(1e-6), DeltaAt(0.5)])
def test_a_known_answer_of_zero_is_no_hint(question):
    mechanism = pa.SampledGaussian(1.0, 0.01)
    makers = TableMakers(mechanism.steps([mechanism], "remove"))
    alone, known = (
        bounds(WholeCounts(np.array([[900]])), makers, [question], known=least)[0] for least in (None, [np.zeros(1)])
    )
    assert known.method == alone.method == pa.Method.TRANSFORM
    assert known.upper[0] == pytest.approx(alone.upper[0], rel=1e-5)
    assert known.lower[0] == pytest.approx(alone.lower[0], rel=1e-5)


def test_rare_groups_beside_atoms_need_no_convolution(monkeypatch):
    """A wider band serves removal.  Under addition the best order tells the largest loss; what is known is nearer."""
    run = pa.compose([(pa.PoissonSampled(pa.Laplace(11.6), 3.4e-4), 1), (pa.GroupGaussian(1.86, 4.4e-4, 4), 37)])
    exact = run.epsilon(2.4e-5, "add")
    assert exact.method == pa.Method.CONVOLUTION
    monkeypatch.setattr(Convolution, "improve", lambda *_: None)
    found = run.epsilon(2.4e-5, "remove")
    assert found.method == pa.Method.TRANSFORM and found.width <= 1e-6 * found.upper
    both = run.epsilon(2.4e-5)
    assert (both.lower, both.upper) == (found.lower, found.upper) and exact.upper < both.lower
    assert run.epsilon(2.4e-5, "add").upper > found.upper, "nothing else is close enough without a hint"


def test_small_deltas_of_atoms_need_no_convolution(monkeypatch):
    """Losses must reach as far as a delta of 3e-34 needs; where nothing is known of delta, they would end before."""
    monkeypatch.setattr(Convolution, "improve", lambda *_: None)
    found = pa.compose([(pa.PoissonSampled(pa.DiscreteGaussian(3.0), 0.02), 100)]).delta(1.0, "remove")
    assert found.method == pa.Method.TRANSFORM and found.width <= 1e-3 * found.upper
