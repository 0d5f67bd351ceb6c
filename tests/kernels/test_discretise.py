"""One step on a grid: its curve lies above (below) the true one everywhere, and comes nearer like h^2."""

import highprecision as hp
import numpy as np
import pytest

from pld_accountant.engine.plancherel import solve
from pld_accountant.engine.tilting import Limits
from pld_accountant.kernels import discretise
from pld_accountant.tables.characteristic import SpectralMaker
from pld_accountant.tables.grid import LatticeMaker
from pld_accountant.tables.table import COLUMNS

THETA = 4.0
LAWS = [(2.0, 0.005), (0.3, 1e-5), (1.0, 0.5), (0.5, 0.9), (5.0, 1.0 - 1e-9)]
HERE = np.array([True])


@pytest.fixture(autouse=True)
def no_disk(monkeypatch):
    monkeypatch.setenv("PLD_ACCOUNTANT_CACHE", "")


def lattice(sigma, q, direction, side, size=1 << 14):
    spectral = SpectralMaker(np.array([sigma]), np.array([q]), direction)
    return LatticeMaker(spectral, side, size)


def grid(sigma, q, direction, side, h):
    """Losses, masses and the mass at infinity, as a table uses them: what round-off made negative is dropped."""
    start, mass, beyond = lattice(sigma, q, direction, side)._discretised(0, THETA, h)
    assert mass.min() > -1e-18
    return start + np.arange(mass.size) * h, np.maximum(mass, 0.0), beyond


def spread(sigma, q, direction):
    """Standard deviation of one step's loss."""
    weight, loss = hp.double_law(sigma, q, direction, 1e-9, 0.0)
    return float(np.sqrt(weight @ loss**2 - (weight @ loss) ** 2))


def steps(sigma, q, direction):
    """Fine, middling and far too coarse."""
    s = spread(sigma, q, direction)
    return [max(s / 8.0, 2e-3), 3.0 * max(s, 1e-3), 2.0]


def places(loss, mass, h):
    """Epsilon at knots and between them, around the middle, in the tail and below the support."""
    heavy = np.flatnonzero(mass > 0.0)
    knots = loss[heavy[np.unique(np.geomspace(1, heavy.size, 14).astype(int)) - 1]]
    knots = np.concatenate([knots, loss[np.abs(loss).argsort()[:3]]])
    return np.unique((knots[:, None] + h * np.array([-0.5, -0.13, 0.0, 0.37, 0.9])).ravel())


def curve(loss, mass, beyond, epsilon, h):
    """H of the grid at each epsilon, and how far its knots' round-off may move it."""
    gap = loss[:, None] - epsilon
    terms = mass[:, None] * np.where(gap > 0.0, -np.expm1(-np.maximum(gap, 0.0)), 0.0)
    slack = 2.0**-50 * (1.0 + np.abs(loss).max()) * (mass[:, None] * (gap > -h)).sum(axis=0)
    return terms.sum(axis=0) + beyond, 1e-13 * terms.sum(axis=0) + slack + 1e-300


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "q"), LAWS)
@pytest.mark.parametrize("fineness", [0, 1, 2])
def test_up_lies_above_the_curve_and_down_below(sigma, q, direction, fineness):
    h = steps(sigma, q, direction)[fineness]
    up, down = (grid(sigma, q, direction, side, h) for side in ("upper", "lower"))
    epsilon = places(*up[:2], h)
    exact = np.array([float(hp.one_step(e, sigma, q, direction)) for e in epsilon])
    above, slack_above = curve(*up, epsilon, h)
    below, slack_below = curve(*down, epsilon, h)
    assert np.all(above >= exact - slack_above)
    assert np.all(below <= exact + slack_below)
    # neither is idle
    near = np.argmin(np.abs(epsilon))
    if fineness == 0 and q > 1e-3:
        assert above[near] <= 1.2 * exact[near]
        assert below[near] >= 0.8 * exact[near]


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "q"), LAWS)
@pytest.mark.parametrize("fineness", [0, 1, 2])
def test_masses_form_a_law(sigma, q, direction, fineness):
    h = steps(sigma, q, direction)[fineness]
    loss, mass, beyond = grid(sigma, q, direction, "upper", h)
    assert 0.0 <= beyond < 1e-300
    assert 1.0 <= mass.sum() + beyond + 2e-14 <= 1.0 + 6e-14
    assert mass @ np.exp(-loss) <= 1.0 + 1e-12 + 2e-14 * np.exp(-loss[0])
    # below, the mass under Q may exceed 1: only the curve counts
    loss, mass, beyond = grid(sigma, q, direction, "lower", h)
    assert beyond == 0.0
    assert mass.sum() <= 1.0 + 1e-13


def log_moment(loss, mass, theta):
    exponent = np.log(np.maximum(mass, 1e-320)) + theta * loss
    return float(exponent.max() + np.log(np.sum(np.exp(exponent - exponent.max()))))


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "q"), [(2.0, 0.005), (1.0, 0.5)])
def test_the_log_moment_errs_like_h_squared(sigma, q, direction):
    exact = float(hp.law(sigma, q, direction, THETA).k)
    widths = 0.25 * spread(sigma, q, direction) * 0.5 ** np.arange(4)
    up, down = (
        np.array([log_moment(*grid(sigma, q, direction, side, h)[:2], THETA) for h in widths]) - exact
        for side in ("upper", "lower")
    )
    assert np.all(up > 0.0)
    assert np.all(down < 0.0)
    assert np.all(up <= THETA * (THETA + 1.0) * widths**2 / 8.0)
    # connecting dots adds theta (theta + 1) h^2 / 12 where the grid is finer than the law
    assert up[-1] == pytest.approx(THETA * (THETA + 1.0) * widths[-1] ** 2 / 12.0, rel=0.05)
    for error in (up, down):
        order = np.log2(error[:-1] / error[1:])
        assert order[-1] == pytest.approx(2.0, abs=0.3)
    assert -down[-1] < 3.0 * up[-1]


@pytest.mark.parametrize("theta", [0.1, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("h", [1e-2, 0.3, 3.0])
def test_the_grid_adds_at_most_its_spread_to_a_log_moment(theta, h):
    """Whatever the grid: connected dots have a loss range of h, hence h^2 / 8-zCDP."""
    for sigma, q, direction in [(2.0, 0.005, "remove"), (1.0, 0.5, "add"), (0.5, 0.9, "remove")]:
        loss, mass, _ = grid(sigma, q, direction, "upper", h)
        exact = float(hp.law(sigma, q, direction, theta).k)
        assert log_moment(loss, mass, theta) <= exact + theta * (theta + 1.0) * h * h / 8.0 + 1e-10


def test_a_law_narrower_than_a_cell_keeps_its_mean():
    # the knot is put where the spike sits, so a coarse grid does not move it
    for sigma, q in [(2.0, 1e-6), (50.0, 1e-3)]:
        loss, mass, _ = grid(sigma, q, "remove", "upper", 0.5)
        assert np.abs(loss[mass.argmax()]) < 1e-4
        assert mass.max() > 0.99
        assert discretise.barycentre(sigma, q, 1.0, 0.5) == pytest.approx(loss[mass.argmax()], abs=1e-12)


def test_negative_masses_are_removed_downwards():
    """A curve with kinks that bend the wrong way: the repaired one is convex and nowhere higher."""
    rng = np.random.default_rng(3)
    h = 0.2
    loss = h * np.arange(12)
    for _ in range(200):
        mass = rng.normal(0.3, 0.4, 12)
        mass[-1] = 3.0  # the total stays positive
        repaired = mass.copy()
        discretise._convex(repaired, h)
        assert np.all(repaired >= -1e-15)
        epsilon = np.linspace(-0.5, loss[-1], 60)
        gain = np.maximum(-np.expm1(epsilon - loss[:, None]), 0.0)
        assert np.all(repaired @ gain <= mass @ gain + 1e-12)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("side", ["upper", "lower"])
def test_a_row_is_the_transform_of_its_masses(direction, side):
    sigma, q, size, period = 1.0, 0.2, 1 << 12, 16.0
    maker = lattice(sigma, q, direction, side, size)
    table = maker.table(THETA, period, 1e9, HERE)
    m, row = table.frequencies, table.columns[0]
    assert m == size // 2
    start, mass, beyond = maker._discretised(0, THETA, period / size)
    loss = np.longdouble(start) + np.arange(mass.size) * np.longdouble(period / size)
    weight = mass * np.exp(THETA * loss)
    k = float(np.log(weight.sum()))
    assert abs(row[0] - k) <= row[4]
    assert -np.expm1(-row[5]) == pytest.approx(beyond, rel=1e-12)
    assert row[6] == start
    weight /= weight.sum()
    assert row[1] == pytest.approx(float(weight @ loss), rel=1e-12)
    for f in (1, 7, m // 2, m):
        angle = 2 * np.longdouble("3.14159265358979323846264338328") * f / period * (loss - np.longdouble(row[1]))
        exact = complex(float(weight @ np.cos(angle)), float(weight @ np.sin(angle)))
        assert abs(np.exp(row[COLUMNS + f - 1] + 1j * row[COLUMNS + m + f - 1]) - exact) <= row[3]
    assert row[3] < 1e-11


@pytest.mark.parametrize("m", [40, 300])
def test_the_band_of_a_lattice_bounds_what_it_leaves_out(m):
    sigma, q, size, period = 1.0, 0.2, 1 << 12, 16.0
    maker = lattice(sigma, q, "remove", "upper", size)
    whole = maker.table(THETA, period, 1e9, HERE)
    part = maker.table(THETA, period, 2.0 * np.pi / period * (m - 0.5), HERE)
    assert part.frequencies == m
    left_out = np.exp(whole.columns[0, COLUMNS + m : COLUMNS + whole.frequencies])
    assert np.all(left_out <= np.exp(part.columns[0, 2]))
    assert np.abs(whole.weight[m + 1 :]).sum() == pytest.approx(part.remainder)
    assert np.array_equal(whole.weight[: m + 1], part.weight)
    assert whole.remainder == 0.0


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_lattice_and_spectral_bounds_contain_each_other(direction):
    """Two ways to the same number: they overlap, and finer grids come nearer."""
    sigma, q, counts = np.array([1.0, 2.0]), np.array([0.05, 0.02]), np.array([[60, 200], [400, 0]])
    goal = np.full(2, np.log(1e-5))
    maker = SpectralMaker(sigma, q, direction)
    sharp = solve(counts, maker, goal, solve_epsilon=True)
    assert sharp.solved.all()
    last = np.inf
    for size in (1 << 10, 1 << 12, 1 << 14):
        limits = Limits(frequencies=size)
        up, down = (
            solve(counts, LatticeMaker(maker, side, size), goal, solve_epsilon=True, hint=sharp.estimate, limits=limits)
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
