"""One step on a grid: its curve lies above (below) the true one everywhere, and comes nearer like h^2."""

import highprecision as hp
import mpmath
import numpy as np
import pytest

from pld_accountant.kernels import discretise
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.tables.makers import TableMakers

THETA = 4.0
LAWS = [(2.0, 0.005), (0.3, 1e-5), (1.0, 0.5), (0.5, 0.9), (5.0, 1.0 - 1e-9)]
REACH = np.sqrt(1400.0)  # exp(-700) of the mass lies beyond


def discretised(sigma, q, direction, side, h):
    """First knot, masses and the mass at infinity of one step, as a table of the grid uses them."""
    steps = SampledGaussianSteps(np.array([sigma]), np.array([q]), direction)
    maker = TableMakers(steps).grid(side, 1 << 14, REACH)
    start, log_mass, beyond = maker._discretised(0, maker._span(0, THETA), h)
    return start, np.exp(log_mass), beyond


def grid(sigma, q, direction, side, h):
    """Losses, masses and the mass at infinity."""
    start, mass, beyond = discretised(sigma, q, direction, side, h)
    return start + np.arange(mass.size) * h, mass, beyond


def spread(sigma, q, direction):
    """Standard deviation of one step's loss."""
    weight, loss = hp.double_law(sigma, q, direction, 1e-9, 0.0)
    return float(np.sqrt(weight @ loss**2 - (weight @ loss) ** 2))


def steps(sigma, q, direction):
    """Fine, middling and far too coarse."""
    s = spread(sigma, q, direction)
    return [max(s / 8.0, 2e-3), 3.0 * max(s, 1e-3), 2.0]


def exact_cell(left, right, sigma, q, direction):
    """P mass of the losses between two, and the part of it that connecting the dots moves to the right end."""
    with mpmath.workdps(400):
        s, r = mpmath.mpf(sigma), mpmath.mpf(q)

        def x_at(loss):
            odds = (mpmath.exp(loss if direction == "remove" else -loss) - (1 - r)) / r
            return s * s * mpmath.log(odds) + mpmath.mpf(1) / 2 if odds > 0 else -mpmath.inf

        low, high = sorted((x_at(mpmath.mpf(left)), x_at(mpmath.mpf(right))))
        idle = mpmath.ncdf(high / s) - mpmath.ncdf(low / s)
        mixed = (1 - r) * idle + r * (mpmath.ncdf((high - 1) / s) - mpmath.ncdf((low - 1) / s))
        p, under_q = (mixed, idle) if direction == "remove" else (idle, mixed)
        moved = (p - mpmath.exp(mpmath.mpf(left)) * under_q) / -mpmath.expm1(mpmath.mpf(left) - mpmath.mpf(right))
        return float(p), float(moved)


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
@pytest.mark.parametrize(("sigma", "q"), [(0.1, 0.9), (0.02, 0.5), (0.1, 1e-6)])
@pytest.mark.parametrize("h", [8.0, 14.0, 25.0, 45.0, 80.0, 213.0, 600.0])
def test_bounds_hold_on_cells_of_many_nats(sigma, q, direction, h):
    """There the Q mass of a cell is less than the round-off of its P mass, at the left end's likelihood ratio."""
    up, down = (grid(sigma, q, direction, side, h) for side in ("upper", "lower"))
    epsilon = np.linspace(up[0][0], up[0][-1], 60)
    exact = np.array([float(hp.one_step(e, sigma, q, direction)) for e in epsilon])
    above, slack_above = curve(*up, epsilon, h)
    below, slack_below = curve(*down, epsilon, h)
    assert np.all(above >= exact - slack_above)
    assert np.all(below <= exact + slack_below)
    if direction == "remove":
        assert below.max() >= 0.3 * q, "the lower bound is not idle"


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "q"), LAWS)
@pytest.mark.parametrize("fineness", [0, 1, 2])
def test_masses_form_a_law(sigma, q, direction, fineness):
    h = steps(sigma, q, direction)[fineness]
    loss, mass, beyond = grid(sigma, q, direction, "upper", h)
    assert 0.0 <= beyond < 1e-300
    assert 1.0 <= mass.sum() + beyond + 2e-14 <= 1.0 + 3e-12
    assert mass @ np.exp(-loss) <= 1.0 + 1e-12 + 3e-12 * np.exp(-loss[0])
    # below, the mass under Q may exceed 1: only the curve counts
    loss, mass, beyond = grid(sigma, q, direction, "lower", h)
    assert beyond == 0.0
    assert mass.sum() <= 1.0 + 1e-13


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "q"), LAWS)
def test_lowered_masses_are_negative_by_round_off_only(sigma, q, direction):
    """A table takes 0 in place of a negative mass, which raises the curve."""
    for h in steps(sigma, q, direction):
        ends = -3.0 + 0.5 * h * np.arange(2 * round(6.0 / h) + 1)
        p, u = SampledGaussianSteps(np.array([sigma]), np.array([q]), direction).masses(0, ends)
        cells = p.size // 2
        whole, b, gap, mass = np.empty(cells), np.empty(cells), np.empty((cells, 4)), np.empty(cells + 1)
        discretise.join_halves(p, u, h, whole, b, gap)
        discretise.connect_down(whole, b, gap, h, mass)
        assert mass.min() > -1e-18


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
        makers = TableMakers(SampledGaussianSteps(np.array([sigma]), np.array([q]), "remove"))
        knot = makers.grid("upper", 1 << 14, REACH)._barycentre(0, 0.5)
        assert knot == pytest.approx(loss[mass.argmax()], abs=1e-12)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "q"), LAWS)
@pytest.mark.parametrize("h", [1e-3, 0.1, 2.0])
def test_masses_of_halves_join_to_masses_of_cells(sigma, q, direction, h):
    """p and b of cells from their halves, against four hundred digits; p against the cells as a whole, too."""
    sign = 1.0 if direction == "remove" else -1.0
    cells = 12
    knots = h * (np.arange(2 * cells + 1) / 2.0 - 0.5 * cells + 0.3)
    halves, cell = np.empty((2, 2 * cells)), np.empty((3, cells))
    discretise.masses(sigma, q, sign, knots, *halves)
    discretise.join_halves(*halves, h, cell[0], cell[1], np.empty((cells, 4)))
    discretise.masses(sigma, q, sign, knots[::2].copy(), cell[2], np.empty(cells))
    assert cell[0] == pytest.approx(cell[2], rel=1e-12, abs=1e-300)
    for m in range(cells):
        left, right = knots[2 * m], knots[2 * m + 2]
        p, moved = exact_cell(left, right, sigma, q, direction)
        assert cell[0, m] == pytest.approx(p, rel=1e-12, abs=1e-300)
        assert cell[1, m] == pytest.approx(moved, rel=1e-10, abs=1e-300)


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


@pytest.mark.parametrize("h", [1e-16, 1e-8, 0.1, 5.0])
def test_gaps_keep_the_digits_of_tiny_losses(h):
    """Where exp(h) is 1 in doubles, only u holds the digits: g and t are those of many digits."""
    rng = np.random.default_rng(1)
    p = rng.uniform(0.5, 1.0, 16)
    u = p * -np.expm1(-rng.uniform(0.0, 0.5 * h, 16))  # losses anywhere in each half
    mass, b, gap = np.empty(8), np.empty(8), np.empty((8, 4))
    discretise.join_halves(p, u, h, mass, b, gap)
    with mpmath.workdps(60):
        width, half = mpmath.mpf(h), mpmath.mpf(h) / 2
        for m in range(8):
            p1, p2, u1, own = (mpmath.mpf(float(v)) for v in (p[2 * m], p[2 * m + 1], u[2 * m], u[2 * m + 1]))
            # of the right half, referred to the left end of the cell and to its own
            q1, q2, own_q = p1 - u1, (p2 - own) * mpmath.exp(-half), p2 - own
            top = (p1 + p2 - q1 - q2) / -mpmath.expm1(-width)
            r1, r2 = p1 / q1, p2 / own_q
            shares = (r1 - 1) / mpmath.expm1(width), (p2 / q2 - 1) / mpmath.expm1(width)
            gaps = top * (1 - r1 * mpmath.exp(-width)) - (p2 - r1 * q2), top * (1 - r2 * mpmath.exp(-half))
            assert b[m] == pytest.approx(float(top), rel=1e-13, abs=0.0)
            assert gap[m, [1, 3]] == pytest.approx([float(share) for share in shares], rel=1e-12, abs=0.0)
            for found, exact in zip(gap[m, [0, 2]], gaps, strict=True):
                assert 0.0 <= found - float(exact) <= 1e-9 * float(top)
