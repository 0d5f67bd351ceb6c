"""Tables on a grid: what they hold, what lies beyond the grid and the band, and the same bounds as other tables."""

import mpmath
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant import deadline
from pld_accountant.composition.known import family_of
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine.plancherel import solve
from pld_accountant.engine.question import EpsilonAt
from pld_accountant.engine.tilting import Limits
from pld_accountant.kernels import _columns as c
from pld_accountant.mechanisms import hockey_stick
from pld_accountant.mechanisms.base import MASS_ERROR
from pld_accountant.mechanisms.drawn_steps import DrawnSteps
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.mechanisms.symmetric_steps import SymmetricSteps
from pld_accountant.tables import grid
from pld_accountant.tables.makers import TableMakers

THETA = 4.0
REACH = np.sqrt(1400.0)  # exp(-700) of the mass lies beyond
NEAR = np.sqrt(80.0)  # exp(-40) of the mass lies beyond
HERE = np.array([True])


def made(sigma, q, direction, side, points=1 << 14, reach=REACH, **others):
    steps = SampledGaussianSteps(np.array([sigma]), np.array([q]), direction)
    return TableMakers(steps).grid(side, points, reach, **others)


def discretised(maker, span, step):
    """First knot, masses on the knots, and the mass beyond, of the first row."""
    start, log_mass, beyond = maker._discretised(0, span, step)
    return start, np.exp(log_mass), beyond


@pytest.mark.parametrize(
    ("sigma", "q", "direction"),
    [(2.0, 0.3, "remove"), (1.0, 0.05, "remove"), (1.0, 1.0, "remove"), (4.0, 0.3, "add"), (1.0, 1.0, "add")],
)
def test_the_mass_beyond_the_grid_is_part_of_the_upper_bound(sigma, q, direction):
    """At the upper end of the grid delta is what lies beyond it: the masses on the grid alone are too little."""
    step = 1e-4
    maker = made(sigma, q, direction, "upper", 1 << 12, NEAR)
    start, mass, beyond = discretised(maker, maker._span(0, THETA), step)
    losses = start + np.arange(mass.size) * step
    epsilon = losses[-1] - 2.0 * step
    truth = float(np.exp(hockey_stick.log_delta(np.array([epsilon]), np.array([sigma]), np.array([q]), direction)[0]))
    on_grid = float(mass @ np.maximum(-np.expm1(epsilon - losses), 0.0))
    assert on_grid < 0.5 * truth
    assert truth <= on_grid + beyond
    assert beyond == pytest.approx(np.exp(-40.0), rel=1e-12)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("side", ["upper", "lower"])
def test_a_row_is_the_transform_of_its_masses(direction, side):
    sigma, q, size, period = 1.0, 0.2, 1 << 12, 16.0
    maker = made(sigma, q, direction, side, size)
    table = maker.table(THETA, period, 1e9, HERE)
    m, row = table.frequencies, table.columns[0]
    assert m == size // 2
    start, mass, beyond = discretised(maker, maker._span(0, THETA), period / size)
    loss = np.longdouble(start) + np.arange(mass.size) * np.longdouble(period / size)
    weight = mass * np.exp(THETA * loss)
    k = float(np.log(weight.sum()))
    assert abs(row[c.LOG_MOMENT] - k) <= row[c.LOG_MOMENT_ERROR]
    assert -np.expm1(-row[c.INFINITE]) == pytest.approx(beyond, rel=1e-12)
    assert row[c.OFFSET] == start
    weight /= weight.sum()
    assert row[c.MEAN] == pytest.approx(float(weight @ loss), rel=1e-12)
    for f in (1, 7, m // 2, m):
        angle = 2 * np.longdouble("3.14159265358979323846264338328") * f / period * (loss - np.longdouble(row[c.MEAN]))
        exact = complex(float(weight @ np.cos(angle)), float(weight @ np.sin(angle)))
        assert abs(np.exp(table.re[0, f - 1] + 1j * table.im[0, f - 1]) - exact) <= row[c.ERROR]
    assert row[c.ERROR] < 1e-11


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_error_of_the_masses_is_part_of_a_row(direction, monkeypatch):
    """Masses that are too large above the mean and too small below move phi by more than every other error."""
    exact = made(1.0, 0.2, direction, "upper", 1 << 12).table(THETA, 16.0, 1e9, HERE)
    maker = made(1.0, 0.2, direction, "upper", 1 << 12)
    masses, mean, error = maker.steps.masses, exact.columns[0, c.MEAN], exact.columns[0, c.ERROR]

    def wrong(row, knots):
        factor = 1.0 + MASS_ERROR * np.sign(0.5 * (knots[1:] + knots[:-1]) - mean)
        return tuple(factor * m for m in masses(row, knots))

    monkeypatch.setattr(maker.steps, "masses", wrong)
    table = maker.table(THETA, 16.0, 1e9, HERE)
    moved = np.abs(np.exp(table.re[0] + 1j * table.im[0]) - np.exp(exact.re[0] + 1j * exact.im[0]))
    assert error - MASS_ERROR < 0.2 * MASS_ERROR < moved.max() < error


@pytest.mark.parametrize("m", [40, 300])
def test_the_band_of_a_grid_bounds_what_it_leaves_out(m):
    """A band that is wider than the narrow one is the whole transform."""
    sigma, q, size, period = 1.0, 0.2, 1 << 12, 16.0
    maker = made(sigma, q, "remove", "upper", size, narrow=m)
    whole = maker.table(THETA, period, 1e9, HERE)
    part = maker.table(THETA, period, 2.0 * np.pi / period * (m - 0.5), HERE)
    assert part.frequencies == m and maker.table(THETA, period, 2.0 * np.pi / period * (m + 1), HERE) is whole
    left_out = np.exp(whole.re[0, m:])
    assert np.all(left_out <= np.exp(part.columns[0, c.ENVELOPE]))
    rest = np.abs(whole.weight[m + 1 :]).sum()
    assert rest <= part.band_coefficient <= (1.0 + 2.0 / m) * rest
    assert np.array_equal(whole.weight[: m + 1], part.weight)
    assert whole.band_coefficient < 1e-18


@pytest.mark.parametrize(("theta", "step"), [(1e-3, 1e-2), (1.0, 1e-6), (30.0, 0.01), (4.0, 1.5), (1e5, 1e-3)])
def test_weights_left_out_are_bounded_for_every_tilt_and_step(theta, step):
    points = 1 << 10
    whole = np.abs(grid._weights(theta, step, points, points // 2)[0])
    for m in (1, 7, 200, points // 2 - 1):
        assert whole[m + 1 :].sum() <= grid._weights(theta, step, points, m)[1]


@pytest.mark.parametrize(("theta", "step"), [(1e-3, 1e-2), (1.0, 1e-6), (6e10, 2e-14), (1e60, 1e-65), (6e10, 8e-306)])
def test_weights_of_tiny_losses_keep_their_digits(theta, step):
    points, m = 1 << 10, 5
    found = grid._weights(theta, step, points, m)[0]
    with mpmath.workdps(400):
        h = mpmath.mpf(step)
        for k in range(m + 1):
            z = theta + 2j * mpmath.pi * k / (points * h)
            exact = (1 / (1 - mpmath.exp(-z * h)) - 1 / (1 - mpmath.exp(-(1 + z) * h))) / points * (2 if k else 1)
            assert abs(mpmath.mpc(found[k]) / exact - 1) < 1e-14


@pytest.mark.parametrize("points", [1 << 4, 1 << 12, 1 << 17])
def test_a_transform_with_heavy_masses_is_within_its_error(points):
    """A spike, its neighbours and a mass of 1e-12: each frequency is that of the direct sum."""
    rng = np.random.default_rng(points)
    masses = 1e-12 * rng.random(points)
    masses[[0, 1, 5, points - 1]] += 0.9, 0.05, 0.03, 0.02
    phi, norm = grid._transform(masses)
    error = grid.fft.roundoff(points, norm) + 16.0 * 2.0**-53
    for f in (0, 1, 3, points // 2):
        turns = np.arange(points) * f % points * (2.0 * np.longdouble("3.14159265358979323846264338328") / points)
        assert abs(phi[f] - complex(float(masses @ np.cos(turns)), float(masses @ np.sin(turns)))) <= error
    assert error < MASS_ERROR


@pytest.mark.parametrize("size", [3, 8, 21])
def test_masses_are_folded_around_one_of_them(size):
    masses = np.arange(1.0, size + 1.0)
    for first in range(size):
        expected = np.zeros(8)
        np.add.at(expected, (np.arange(size) - first) % 8, masses)
        np.testing.assert_array_equal(grid._folded(masses, first, 8), expected)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_grids_and_characteristic_functions_agree(direction):
    """Two ways to the same number: they overlap, and finer grids come nearer."""
    sigma, q = np.array([1.0, 2.0]), np.array([0.05, 0.02])
    counts = WholeCounts(np.array([[60, 200], [400, 0]]))
    makers, question = TableMakers(SampledGaussianSteps(sigma, q, direction)), EpsilonAt(1e-5)
    sharp = solve(counts, makers.characteristic(interpolated=False), question, limits=Limits())
    assert sharp.solved.all()
    last = np.inf
    for points in (1 << 10, 1 << 12, 1 << 14):
        limits = Limits(frequencies=points)
        up, down = (
            solve(counts, makers.grid(side, points, REACH), question, limits=limits, hint=sharp.estimate)
            for side in ("upper", "lower")
        )
        assert up.solved.all()
        assert down.solved.all()
        assert np.all(up.upper >= sharp.lower)
        assert np.all(down.lower <= sharp.upper)
        width = np.max((up.upper - down.lower) / sharp.estimate)
        assert width < 0.2 * last
        last = width
    assert last < 1e-4


@pytest.mark.parametrize(("sigma", "q", "direction"), [(0.5, 0.9, "remove"), (0.5, 0.5, "add"), (1.0, 1.0, "remove")])
def test_the_mass_below_the_grid_is_part_of_the_upper_bound(sigma, q, direction):
    """A steep tilt leaves almost nothing below the grid; without the tilt, much of the mass lies there."""
    step, theta = 1e-3, 60.0
    upper, lower = (made(sigma, q, direction, side) for side in ("upper", "lower"))
    start, mass, beyond = discretised(upper, upper._span(0, theta), step)
    assert start > -1.2
    assert 1.0 <= mass.sum() + beyond <= 1.0 + 3.0 * MASS_ERROR
    below = 1.0 - discretised(lower, lower._span(0, theta), step)[1].sum()
    assert below > 0.01
    assert mass[0] >= 0.9 * below
    # delta at the lower end of the grid is at least that of the mechanism
    losses = start + np.arange(mass.size) * step
    epsilon = losses[0] - 0.5 * step
    other = {"remove": "add", "add": "remove"}[direction]
    far = np.exp(hockey_stick.log_delta(np.array([-epsilon]), np.array([sigma]), np.array([q]), other)[0])
    truth = -np.expm1(epsilon) + np.exp(epsilon) * far
    found = float(mass @ -np.expm1(epsilon - losses)) + beyond
    assert truth <= found + 1e-14
    assert found - float(mass[0] * -np.expm1(epsilon - losses[0])) < truth


@pytest.mark.parametrize("side", ["upper", "lower"])
def test_rows_filled_on_demand_equal_rows_filled_at_once(side):
    sigma, q = np.array([1.0, 2.0, 1.0]), np.array([0.05, 0.02, 1.0])
    both = [TableMakers(SampledGaussianSteps(sigma, q, "remove")).grid(side, 1 << 10, REACH) for _ in range(2)]
    first = both[0].table(THETA, 16.0, 1e9, np.array([False, True, False]))
    assert first.filled.tolist() == [False, True, False]
    then = both[0].table(THETA, 16.0, 1e9, np.ones(3, dtype=bool))
    assert then is first
    np.testing.assert_array_equal(then.columns, both[1].table(THETA, 16.0, 1e9, np.ones(3, dtype=bool)).columns)


def test_a_grid_that_would_cost_too_much_is_refused():
    tables = made(1.0, 0.2, "remove", "upper")
    assert tables.table(THETA, 16.0, 1e9, HERE, 1e3) is None
    with deadline.limited(1e-6):
        assert tables.table(THETA, 16.0, 1e9, HERE) is None
    assert tables.table(THETA, 16.0, 1e9, HERE) is not None


def test_a_grid_whose_steps_overflow_is_refused():
    tables = made(1.0, 0.2, "remove", "upper")
    with np.errstate(over="raise"):
        assert tables.table(THETA, 2_000.0 * tables.points, 1e9, HERE) is None


@pytest.mark.parametrize("theta", [0.01, 4.0, 25.0])
@pytest.mark.parametrize("side", ["upper", "lower"])
def test_the_grid_serves_small_and_large_tilts(side, theta):
    """K of a table is that of the mechanism but for the spread above, and for what the lower bound loses."""
    for sigma, q, direction in [(1.0, 0.2, "remove"), (2.0, 0.005, "remove"), (1.0, 0.2, "add")]:
        maker = made(sigma, q, direction, side, 1 << 14)
        table = maker.table(theta, 16.0, 1e9, HERE)
        k, off = table.columns[0, [c.LOG_MOMENT, c.LOG_MOMENT_ERROR]]
        exact = maker.log_moments(np.array([theta]))[0, 0]
        if side == "upper":
            # 2e-12 of the mass is added at the lowest loss
            assert exact - 1e-12 - off <= k <= exact + theta * (theta + 1.0) * table.spread + off + 1e-12
        else:
            assert k <= exact + off
            assert k >= exact - 8.0 * theta * (theta + 1.0) * table.grid_step**2 - off - 1e-12


@pytest.mark.parametrize("side", ["upper", "lower"])
def test_losses_far_below_the_step_leave_a_table(side):
    """The masses of the lower side vanish in round-off; they were NaN, and the question failed."""
    steps = family_of([pa.PoissonSampled(pa.Laplace(4e30), 0.5)], "add")
    table = TableMakers(steps).grid(side, 1 << 17, REACH).table(THETA, 16.0, 1e9, HERE)
    assert np.all(np.isfinite(table.columns[0]))
    assert abs(table.columns[0, c.MEAN]) <= table.grid_step
    assert table.columns[0, c.LOG_MOMENT] >= 0.0 if side == "upper" else table.columns[0, c.LOG_MOMENT] <= 0.0


@pytest.mark.parametrize("side", ["upper", "lower"])
@pytest.mark.parametrize("kind", ["sampled", "fixed size", "drawn"])
def test_truncated_losses_end_on_the_grid_where_their_log_moments_do(kind, side):
    """K bounds the wrapped mass at every tilt; with whole last cells, that of the masses exceeds it at large ones."""
    sigma, q = np.array([1.0]), np.array([1e-3])
    steps = {
        "sampled": SampledGaussianSteps(sigma, q, "remove"),
        "fixed size": SymmetricSteps(sigma, q, "remove"),
        "drawn": DrawnSteps(
            [([SampledGaussianSteps(s * sigma, q, "remove") for s in (0.6, 1.0)], [0.01, 0.99])], "remove"
        ),
    }[kind]
    maker = TableMakers(steps).grid(side, 1 << 12, 5.0, truncated=True)
    for theta in (1.0, 10.0, 40.0, 160.0):
        table = maker.table(theta, 200.0, 1e9, HERE)
        k, off = table.columns[0, [c.LOG_MOMENT, c.LOG_MOMENT_ERROR]]
        assert k <= maker.log_moments(np.array([theta]))[0, 0] + theta * (theta + 1.0) * table.spread + off + 1e-6
