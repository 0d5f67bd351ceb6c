"""The inner product against a plain convolution, and what must not change the result."""

import dataclasses

import numba
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import plancherel
from pld_accountant.engine.plancherel import curves
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.engine.tilting import Limits, make_plan
from pld_accountant.engine.working import WorkingBounds
from pld_accountant.kernels import _columns as c
from pld_accountant.kernels import invert as kernel
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.tables import errors
from pld_accountant.tables.makers import TableMakers

SIGMA = 2.0 / np.array([0.25, 0.5, 0.75, 1.0])
Q = np.full(4, 0.02)
COUNTS = np.random.default_rng(7).integers(0, 900, (30, 4)) + 1
GOAL = EpsilonAt(1e-5)
GRID_REACH = np.sqrt(1400.0)  # exp(-700) of a step lies beyond


def makers_of(sigma, q, direction="remove"):
    return TableMakers(SampledGaussianSteps(sigma, q, direction))


def solve(counts, maker, question, limits=None, **more):
    """`plancherel.solve` for whole counts, with the usual limits."""
    return plancherel.solve(WholeCounts(counts), maker, question, limits=limits or Limits(), **more)


@pytest.fixture(scope="module")
def maker():
    return makers_of(SIGMA, Q).characteristic(interpolated=False)


@pytest.fixture(scope="module")
def solution(maker):
    return solve(COUNTS, maker, GOAL)


def values(found):
    return found.lower, found.estimate, found.upper


# ------------------------------------------------------------------------------------------------ the inner product


def test_the_polynomial_and_its_derivative():
    rng = np.random.default_rng(1)
    m = 37
    a = rng.normal(size=m + 1) + 1j * rng.normal(size=m + 1)
    for angle in (0.0, 0.3, -2.0, 50.0):
        turn = np.exp(1j * np.arange(m + 1) * angle)
        value, slope = kernel._inner_product(a.real.copy(), a.imag.copy(), m, angle)
        assert value == pytest.approx(np.sum(a * turn).real, abs=1e-12)
        assert slope == pytest.approx(np.sum(np.arange(m + 1) * a * turn).imag, abs=1e-10)


@pytest.mark.parametrize("points", [1, 7, 8, 33])
def test_several_angles_at_once_are_each_by_itself(points):
    """To the last bit: the same operations in the same order."""
    rng = np.random.default_rng(points)
    m = 61
    re, im = rng.normal(size=(2, m + 1))
    angle, out = rng.uniform(-50, 50, points), np.empty(points)
    kernel._inner_products(re, im, m, angle, np.empty((3, points)), out)
    assert out.tolist() == [kernel._inner_product(re, im, m, x)[0] for x in angle]


def test_a_curve_holds_the_bounds_found_point_by_point(maker):
    some = COUNTS[:4]
    far = solve(some, maker, GOAL).upper
    epsilon = far[:, None] * np.linspace(0.0, 1.0, 11)
    curve = curves(WholeCounts(some), maker, epsilon)
    # one tilt for the whole range: at its ends some digits are lost
    width = 1e-5
    for j in range(11):
        found = solve(some, maker, DeltaAt(epsilon[:, j].copy()))
        assert found.solved.all()
        assert np.all((found.lower <= curve[:, j, 1]) & (curve[:, j, 1] < found.upper + width))
        assert np.all((found.lower - width < curve[:, j, 0]) & (curve[:, j, 0] <= found.upper))


def convolved(maker, table, row, epsilon):
    """delta by raising the transforms of the untilted masses to the counts and going back: no tilt, no band, no log."""
    long, step = 1 << 16, table.grid_step
    transform, first, mean, beyond = np.ones(long // 2 + 1, dtype=complex), 0.0, 0.0, 0.0
    for bucket, n in enumerate(row):
        start, log_mass, infinite = maker._discretised(bucket, maker._span(bucket, table.theta), step)
        mass = np.exp(log_mass)
        transform *= np.fft.rfft(np.bincount(np.arange(mass.size) % long, weights=mass, minlength=long)) ** n
        first += n * start
        mean += n * np.sum(mass * (start + step * np.arange(mass.size)))
        beyond += n * infinite
    loss = first + step * np.arange(long)
    loss += step * long * np.round((mean - loss) / (step * long))
    return np.sum(np.fft.irfft(transform, long) * -np.expm1(np.minimum(epsilon - loss, 0.0))) + beyond


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("row", [(12, 30), (40, 1), (1, 2)])
def test_delta_is_that_of_the_convolved_grid(direction, row):
    sigma, q, size = np.array([1.0, 2.0]), np.array([0.1, 0.05]), 1 << 12
    makers = makers_of(sigma, q, direction)
    for epsilon in (0.0, 0.0377):
        for side in ("upper", "lower"):
            maker = makers.grid(side, size, GRID_REACH)
            found = solve(np.array([row]), maker, DeltaAt(epsilon), limits=Limits(frequencies=size))
            assert found.solved[0]
            table = list(maker._tables._values.values())[-1]
            delta = convolved(maker, table, row, epsilon)
            assert np.exp(found.estimate[0]) == pytest.approx(delta, rel=1e-8, abs=1e-14)
            assert np.exp(found.lower[0]) <= delta + 1e-14
            assert np.exp(found.upper[0]) >= delta - 1e-14


def test_delta_and_epsilon_are_inverse(maker, solution):
    goal = np.log(1e-5)
    back = solve(COUNTS, maker, DeltaAt(solution.estimate))
    assert back.solved.all()
    assert np.abs(back.estimate - goal).max() < 1e-8
    over = solve(COUNTS, maker, DeltaAt(solution.upper))
    under = solve(COUNTS, maker, DeltaAt(solution.lower))
    assert np.all(over.lower <= goal)
    assert np.all(under.upper >= goal)


def test_bounds_are_ordered_and_narrow(solution):
    assert solution.solved.all()
    assert np.all(solution.lower <= solution.estimate)
    assert np.all(solution.estimate <= solution.upper)
    assert np.all(solution.upper - solution.lower < 1e-8 * solution.estimate)


class Wrong:
    """A maker whose phi is off by so much at every frequency, and by so much per unit of frequency, and says so.

    steps : for how many an error relative to phi is to be believed; for fewer the absolute one is to serve.
    """

    size, whole = 4, True

    def __init__(self, maker, at_all, per_unit, direction, relative=True):
        self.maker, self.at_all, self.per_unit, self.direction = maker, at_all, per_unit, direction
        self.log_moments, self.composed, self.relative = maker.log_moments, maker.composed, relative

    def table(self, theta, period, width, needed, work):
        right = self.maker.table(theta, period, width, needed, work)
        wrong = dataclasses.replace(right, columns=right.columns.copy())
        error = self.at_all + self.per_unit * right.omega[1:]
        off = np.log1p(self.direction * error / np.exp(right.re))
        wrong.re[:] += off.real
        wrong.im[:] += off.imag
        wrong.columns[:, [c.ERROR, c.ERROR_SLOPE]] = self.at_all, self.per_unit
        relative = errors.relative(wrong.columns[:, [c.ERROR, c.ERROR_SLOPE]], wrong.re)
        wrong.columns[:, [c.RELATIVE_ERROR, c.RELATIVE_SLOPE]] = relative if self.relative else 1e200
        return wrong


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize(("at_all", "per_unit"), [(1e-7, 0.0), (0.0, 1e-8)])
@pytest.mark.parametrize("direction", [1.0, -1.0, 1j])
def test_what_is_said_of_the_error_of_phi_is_allowed_for(maker, solution, at_all, per_unit, direction, relative):
    """Errors a million times larger than true ones, all on one side: the answer moves, and stays within its bounds."""
    found = solve(COUNTS, Wrong(maker, at_all, per_unit, direction, relative), GOAL)
    assert found.solved.all()
    assert np.abs(found.estimate - solution.estimate).max() > 1e-9
    assert np.all(found.lower <= solution.lower)
    assert np.all(found.upper >= solution.upper)
    if relative:
        moved = np.abs(found.estimate - solution.estimate)
        assert np.median((found.upper - found.lower) / moved) < 100.0


# ------------------------------------------------------------------------------------------------ invariances


def test_the_same_question_has_the_same_answer_to_the_last_bit(maker, solution):
    for a, b in zip(values(solution), values(solve(COUNTS, maker, GOAL)), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one core")
def test_the_number_of_threads_changes_nothing(maker, monkeypatch):
    monkeypatch.setattr("pld_accountant.threads._FEW", 0)
    monkeypatch.setattr("pld_accountant.threads._BLOCK", 32)
    counts = np.random.default_rng(8).integers(0, 900, (700, 4)) + 1
    before, found = numba.get_num_threads(), []
    try:
        for threads in (1, 2):
            numba.set_num_threads(threads)
            found.append(solve(counts, maker, EpsilonAt(np.exp(-10.0))))
    finally:
        numba.set_num_threads(before)
    for a, b in zip(*map(values, found), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("size", [1, 7])
def test_a_batch_equals_its_parts(maker, solution, size):
    """Up to the order in which a matrix product adds up: a few units in the last place, within both bounds."""
    parts = [solve(COUNTS[i : i + size], maker, GOAL) for i in range(0, 30, size)]
    for name in ("lower", "estimate", "upper"):
        together = np.concatenate([getattr(p, name) for p in parts])
        np.testing.assert_allclose(together, getattr(solution, name), rtol=1e-9)
    assert np.all(np.concatenate([p.lower for p in parts]) <= solution.upper)
    assert np.all(np.concatenate([p.upper for p in parts]) >= solution.lower)


def test_questions_to_the_same_steps_share_a_row_of_exponents(maker, monkeypatch):
    epsilon, kernel, rows = np.linspace(0.5, 6.0, 7), plancherel._kernel, []

    def counting(exponents, *more):
        rows.append(len(exponents))
        return kernel(exponents, *more)

    monkeypatch.setattr(plancherel, "_kernel", counting)
    together = solve(np.tile(COUNTS[:1], (7, 1)), maker, DeltaAt(epsilon))
    assert set(rows) == {1}
    for i, one in enumerate(epsilon):
        alone = solve(COUNTS[:1], maker, DeltaAt(np.array([one])))
        assert [v[i] for v in values(together)] == pytest.approx([v[0] for v in values(alone)], rel=1e-9)
    # one other person among them: everybody has a row
    rows.clear()
    mixed = solve(np.vstack([np.tile(COUNTS[:1], (3, 1)), COUNTS[:1] + 1]), maker, DeltaAt(np.full(4, 2.0)))
    assert max(rows) > 1 and mixed.upper[3] != mixed.upper[2] == mixed.upper[0]


def test_curves_of_people_with_the_same_steps(maker):
    alike = WholeCounts(np.tile(COUNTS[:1], (3, 1)))
    found = curves(alike, maker, np.tile(np.linspace(0.5, 4.0, 5), (3, 1)))
    np.testing.assert_array_equal(found[1:], found[:2])
    assert np.all(found[..., 0] <= found[..., 1]) and np.all(np.isfinite(found))


def test_a_band_goes_as_far_as_it_is_told_to(maker, solution, monkeypatch):
    """The period is then the least one, and the bounds are those of any other tilt."""
    widths, table = [], type(maker).table

    def noting(self, theta, period, width, *more):
        widths.append(width)
        return table(self, theta, period, width, *more)

    monkeypatch.setattr(type(maker), "table", noting)
    usual = solve(COUNTS, maker, GOAL)
    assert min(widths) < 100.0
    widths.clear()
    found = solve(COUNTS, maker, GOAL, band=np.full(30, 100.0))
    assert min(widths) >= 100.0
    assert np.all(found.lower <= usual.upper) and np.all(usual.lower <= found.upper) and np.all(found.solved)


def test_the_order_of_people_and_buckets_does_not_matter(maker, solution):
    people, buckets = np.random.default_rng(2).permutation(30), [2, 0, 3, 1]
    moved = solve(COUNTS[people], maker, GOAL)
    turned = solve(COUNTS[:, buckets], makers_of(SIGMA[buckets], Q).characteristic(interpolated=False), GOAL)
    for a, b, d in zip(values(solution), values(moved), values(turned), strict=True):
        np.testing.assert_allclose(b, a[people], rtol=1e-9)
        np.testing.assert_allclose(d, a, rtol=1e-9)


def test_columns_may_count_at_any_row_and_minus_one_costs_nothing(maker, solution):
    """The first and the last column count at one row, and the third one's million steps count nowhere."""
    half = COUNTS[:, 3] // 3
    counts = WholeCounts(
        np.stack([half, COUNTS[:, 1], np.full(30, 10**6), COUNTS[:, 3] - half], axis=1), at=np.array([3, 1, -1, 3])
    )
    found = plancherel.solve(counts, maker, GOAL, limits=Limits())
    same = solve(COUNTS * np.array([0, 1, 0, 1]), maker, GOAL)
    for a, b in zip(values(same), values(found), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9)
    assert np.all(found.upper < solution.lower)


def test_splitting_a_bucket_changes_nothing(maker, solution):
    twice = makers_of(np.concatenate([SIGMA, SIGMA]), np.concatenate([Q, Q])).characteristic(interpolated=False)
    half = COUNTS // 3
    split = solve(np.concatenate([half, COUNTS - half], axis=1), twice, GOAL)
    for a, b in zip(values(solution), values(split), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9)


def test_a_hint_changes_the_work_and_not_the_answer(maker, solution):
    for hint in (solution.estimate, solution.estimate * 1.05):
        found = solve(COUNTS, maker, GOAL, hint=hint)
        keep = found.solved
        assert keep.any()
        assert np.all(found.lower[keep] <= solution.upper[keep])
        assert np.all(found.upper[keep] >= solution.lower[keep])


def test_more_noise_and_fewer_steps_never_cost_more(maker, solution):
    fewer = solve(np.maximum(COUNTS - 5, 0), maker, GOAL)
    assert np.all(fewer.lower <= solution.upper)
    below = WholeCounts(COUNTS, at=np.array([-1, 0, 1, 2]))
    shifted = plancherel.solve(below, maker, GOAL, limits=Limits())
    assert np.all(shifted.upper < solution.lower)


# ------------------------------------------------------------------------------------------------ corners


def test_a_large_delta_needs_no_epsilon(maker):
    found = solve(np.array([[1, 1, 1, 1]]), maker, EpsilonAt(0.9))
    assert found.solved[0]
    assert (found.lower[0], found.estimate[0], found.upper[0]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("question", [GOAL, DeltaAt(1.0)])
def test_a_person_who_needs_too_many_frequencies_stays_unsolved(maker, question):
    few = np.array([[0, 0, 0, 2], [500, 500, 500, 500]])
    found = solve(few, maker, question, limits=Limits(frequencies=100))
    assert found.solved.tolist() == [False, True]
    assert found.upper[0] == np.inf
    assert found.lower[0] == question.floor


@pytest.mark.parametrize(
    ("step", "number", "delta", "limits", "tables", "width"),
    [
        # four steps: the widest band leaves out 4e-6, which may be useful
        ((1.0, 0.01), 4, 1e-5, Limits(frequencies=4096), 2, 1e-5),
        ((1.0, 0.01), 4, 1e-5, Limits(frequencies=4096, useful=1e-6), 1, np.inf),
        # rare steps: the first band leaves out more than Q, and no other one within the limits would be useful
        ((1.0, 1e-3), 12, 1e-7, Limits(frequencies=1 << 15), 1, np.inf),
    ],
)
def test_a_band_without_use_costs_no_table(monkeypatch, step, number, delta, limits, tables, width):
    maker = makers_of(*np.array(step)[:, None]).characteristic(interpolated=False)
    made, table = [], maker.table
    monkeypatch.setattr(maker, "table", lambda *of, **more: made.append(of) or table(*of, **more))
    found = solve(np.array([[number]]), maker, EpsilonAt(delta), limits=limits)
    assert len(made) == tables
    assert not found.solved[0] or found.upper[0] - found.lower[0] <= width * found.upper[0]


def test_unknown_is_unsolved():
    found = WorkingBounds.unknown(3, GOAL)
    assert not found.solved.any()
    assert np.all(found.lower == 0.0)
    assert np.all(np.isinf(found.upper))
    assert np.all(np.isneginf(WorkingBounds.unknown(3, DeltaAt(1.0)).lower))


def test_progress_counts_everybody_once(maker):
    done = []
    counts = np.concatenate([COUNTS, np.ones((2, 4), dtype=COUNTS.dtype)])
    goal = EpsilonAt(np.append(np.full(30, 1e-5), [0.9, 0.9]))
    found = solve(counts, maker, goal, progress=done.append)
    assert found.solved.all()
    assert sum(done) == 32


@pytest.mark.parametrize("delta", [1e-2, 1e-12, 1e-30])
def test_any_delta_is_as_sharp(maker, delta):
    found = solve(COUNTS[:5], maker, EpsilonAt(delta))
    assert found.solved.all()
    assert np.all(found.upper - found.lower < 1e-6 * found.upper)


def test_ten_million_steps_keep_their_digits(maker):
    """Error terms grow with the number of steps; the width must still say something."""
    counts = np.array([[0, 0, 0, 10**7]])
    found = solve(counts, maker, GOAL)
    assert found.solved[0]
    assert found.upper[0] - found.lower[0] < 1e-6 * found.upper[0]
    # so many steps are all but Gaussian: 1 / mu^2 = sigma^2 / (n q^2) to first order
    mu = 0.02 * np.sqrt(1e7 * np.expm1(0.25))
    assert found.estimate[0] == pytest.approx(mu * mu / 2.0 + 4.265 * mu, rel=0.05)


def test_a_hint_far_below_the_renyi_bound_moves_the_tilt():
    """Under addition the best Renyi order is that of the largest loss, which says nothing of a smaller epsilon."""
    mechanism = pa.GroupGaussian(1.86, 4.4e-4, 4)
    maker = TableMakers(mechanism.steps([mechanism], "add")).characteristic(interpolated=False)
    counts, limits = WholeCounts(np.array([[37]])), Limits(tilts=4)
    alone, hinted = (make_plan(counts, maker, EpsilonAt(2.4e-5), np.array([hint]), limits) for hint in (np.nan, 0.0165))
    assert hinted.renyi[0] == pytest.approx(alone.renyi[0], rel=1e-2)
    # four octaves are candidates in any case
    assert hinted.theta[hinted.tilt[0]] < 0.05 * alone.theta[alone.tilt[0]]
