"""Direct convolution: on whatever grid, one law above and one below; and every term of its budget is needed."""

from fractions import Fraction

import mpmath
import numpy as np
import oracle_few
import pytest

from pld_accountant import deadline
from pld_accountant.engine import convolution
from pld_accountant.engine.convolution import ConvolvedLoss, roundoff_pairs
from pld_accountant.engine.convolution_tree import discrete_loss, plant
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.kernels import convolve as kernel
from pld_accountant.kernels import discretise
from pld_accountant.mechanisms.base import MASS_ERROR
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps

SIGN = {"remove": 1.0, "add": -1.0}
CASES = [
    ([(1.0, 0.01, 2)], 1e-5),
    ([(0.3, 1e-6, 2)], 1e-10),
    ([(0.5, 1e-3, 2)], 1e-100),
    ([(0.2, 0.03, 2)], 1e-30),
    ([(4.0, 1e-4, 2)], 1e-30),
    ([(2.0, 0.3, 2)], 1e-100),
    ([(0.7, 0.001, 1), (3.0, 0.02, 1)], 1e-12),
    ([(1.0, 0.5, 1), (5.0, 1.0, 1)], 1e-8),
]


def composed(parts, direction):
    sigma, q, n = (np.array(v) for v in zip(*parts, strict=True))
    return ConvolvedLoss(SampledGaussianSteps(sigma, q, direction), n)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("parts", "delta"), CASES)
def test_two_steps_contain_the_nested_quadrature(parts, delta, direction):
    truth = oracle_few.direct_epsilon(parts, delta, direction)
    lower, upper = composed(parts, direction).bounds(EpsilonAt(delta), 5e-7, 1e8)
    own = truth.value * (truth.agreement + 2.0**-53)
    assert lower <= truth.value + own
    assert upper >= truth.value - own
    assert upper - lower <= 5e-7 * upper


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_delta_contains_the_nested_quadrature(direction):
    for parts, delta in CASES:
        if direction == "add" and delta < 1e-12 and parts[0][0] <= 0.5:
            continue  # epsilon is its limit to all digits: delta is not a function of it in double precision
        epsilon = oracle_few.direct_epsilon(parts, delta, direction).value
        exact = np.log(oracle_few.direct(parts, epsilon, direction, 1e-19 * delta))
        lower, upper = composed(parts, direction).bounds(DeltaAt(epsilon), 1e-4, 1e8)
        assert lower <= exact + 1e-11  # the quadrature's own error
        assert upper >= exact - 1e-11
        assert upper - lower <= 1e-4


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_bounds_hold_on_any_grid(monkeypatch, direction):
    """The grids decide the width alone: on random ones truth still lies between."""
    rng = np.random.default_rng(5)

    def anywhere(whole, rest, aim, ends, points):
        inner = ends[0] + (ends[1] - ends[0]) * rng.random(40) ** rng.integers(1, 12)
        return np.unique(np.concatenate([ends, np.clip(inner, *ends)]))

    monkeypatch.setattr(convolution, "place", anywhere)
    monkeypatch.setattr(convolution, "_ROUGH", 20)
    for parts, delta in [CASES[0], CASES[2], CASES[6]]:
        truth = oracle_few.direct_epsilon(parts, delta, direction).value
        for _ in range(5):
            it = composed(parts, direction)
            it._rough(np.log(delta), True)
            it._pass(40, it._aim(0.0, 1.0, np.log(delta), True), True)
            lower, upper = it._answer(np.log(delta), True)
            assert lower < truth < upper


def test_the_width_falls_like_the_square_of_the_number_of_points():
    parts, delta = [(1.0, 0.05, 6)], 1e-8
    width = []
    for points in (700, 1400, 2800):
        it = composed(parts, "remove")
        lower, upper = it.bounds(EpsilonAt(delta), 1e-12, 2.0 * it.tree.sums * points**2)
        width.append(upper - lower)
    assert width[0] > width[1] > width[2]
    assert 0.5 * np.log2(width[0] / width[2]) == pytest.approx(2.0, abs=0.3)


@pytest.mark.parametrize("counts", [[2], [3], [100], [1, 1], [0, 7, 0, 1], [1, 10_000], [5, 6, 7, 8]])
def test_the_tree_holds_every_step_once(counts):
    tree = plant(np.array(counts))
    held = np.zeros(len(counts), dtype=int)
    for (a, b), uses in zip(tree.nodes, tree.uses, strict=True):
        if a < 0:
            held[b] += uses
        else:
            assert max(a, b) < tree.nodes.index((a, b))
    assert held.tolist() == counts
    assert tree.sums <= 2 * sum(max(n, 1).bit_length() for n in counts)


# the kernels


def exact_cell(sigma, q, sign, low, high):
    """p and u of the losses in [low, high], to forty digits."""
    with mpmath.workdps(60):
        s, r, a, b = (mpmath.mpf(float(v)) for v in (sigma, q, low, high))

        def place(loss):
            odds = (mpmath.exp(loss) - (1 - r)) / r
            return s * s * mpmath.log(odds) + mpmath.mpf(1) / 2 if odds > 0 else -mpmath.inf

        x = sorted(place(v) for v in ((a, b) if sign > 0 else (-a, -b)))

        def between(mean):
            z = [(v - mean) / s for v in x]
            if z[0] > 0:
                z = [-z[1], -z[0]]
            return mpmath.ncdf(z[1]) - mpmath.ncdf(z[0])

        plain, mixed = between(0), (1 - r) * between(0) + r * between(1)
        p, other = (mixed, plain) if sign > 0 else (plain, mixed)
        return p, p - mpmath.exp(a) * other


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "q"), [(0.2, 1e-6), (0.5, 0.01), (1.0, 0.9), (3.0, 1e-4), (100.0, 0.2)])
def test_masses_of_one_step(sigma, q, direction):
    """Within `MASS_ERROR`, and what the knots' own rounding can do."""
    sign = SIGN[direction]
    x = np.linspace(-25.0 * sigma, 25.0 * sigma + 1.0, 40)
    loss = np.empty(x.size)
    discretise.losses(sigma, q, sign, x, loss)
    knots = np.unique(loss)
    p, u = np.empty((2, knots.size - 1))
    discretise.masses(sigma, q, sign, knots, p, u)
    scale, offset = SampledGaussianSteps([sigma], [q], "remove").loss_roundoff(np.array([1]), 1)
    for k in range(p.size):
        near = scale * (np.abs(knots[k]) + np.abs(knots[k + 1])) + offset
        if knots[k + 1] - knots[k] < 4.0 * near:
            continue
        inner, outer = (exact_cell(sigma, q, sign, knots[k] + e, knots[k + 1] - e) for e in (near, -near))
        assert inner[0] * (1.0 - MASS_ERROR) <= p[k] <= outer[0] * (1.0 + MASS_ERROR)
        assert inner[1] * (1.0 - MASS_ERROR) <= u[k] <= outer[1] * (1.0 + MASS_ERROR)


def test_the_error_of_masses_is_not_idle():
    """Far out the exponent's rounding alone is more than a thousandth of `MASS_ERROR`."""
    sigma = q = 1.0
    knots = np.arange(-30.0, 30.0, 0.5)  # of a plain Gaussian's loss, x = loss + 1 / 2 exactly
    p, u = np.empty((2, knots.size - 1))
    discretise.masses(sigma, q, 1.0, knots, p, u)
    off = [float(abs(p[k] / exact_cell(sigma, q, 1.0, knots[k], knots[k + 1])[0] - 1)) for k in range(p.size)]
    assert 1e-3 * MASS_ERROR < max(off) < MASS_ERROR


def test_the_error_of_losses_is_not_idle():
    """At a rate of 1e-14 the loss is about q e^t with t up to 36: an ulp of t is many of the loss."""
    sigma, q = 0.2, 1e-14
    x = np.random.default_rng(2).uniform(1.6, 1.93, 200)
    loss = np.empty(x.size)
    discretise.losses(sigma, q, 1.0, x, loss)
    with mpmath.workdps(60):
        s, r = mpmath.mpf(sigma), mpmath.mpf(q)
        exact = [mpmath.log(1 - r + r * mpmath.exp((2 * mpmath.mpf(v) - 1) / (2 * s * s))) for v in x]
        off = max(float(abs(a / b - 1)) for a, b in zip(loss, exact, strict=True))
    scale, _ = SampledGaussianSteps([sigma], [q], "remove").loss_roundoff(np.array([1]), 1)
    assert 1e-3 * scale < off < scale


@pytest.mark.parametrize("steps", [2, 7])
def test_the_mass_outside_of_the_grids_is_accounted_for(steps):
    beyond = steps * float(mpmath.ncdf(-38))
    outside = ConvolvedLoss(SampledGaussianSteps([1.0], [0.1], "remove"), np.array([steps]))._outside
    assert 1e-3 * outside < 2.0 * beyond < outside


def atoms(rng, n, scale):
    loss = np.unique(np.round(np.sort(rng.gamma(0.5, scale, n) - 0.1 * scale), 12))
    return loss, np.exp(-rng.uniform(0.0, 60.0, loss.size))


def exact_sum(one, two, knots):
    p, u = ([mpmath.mpf(0)] * (knots.size - 1) for _ in range(2))
    for x, m in zip(*one, strict=True):
        for y, r in zip(*two, strict=True):
            s = x + y  # rounded, as in the kernel: that error belongs to the losses
            k = min(max(int(np.searchsorted(knots, s)) - 1, 0), knots.size - 2)
            mass = mpmath.mpf(m) * mpmath.mpf(r)
            p[k] += mass
            u[k] += mass * -mpmath.expm1(mpmath.mpf(knots[k]) - mpmath.mpf(s))
    return p, u


@pytest.mark.parametrize("scale", [1e-6, 0.1, 30.0])
def test_pairs_are_added_in_their_cells(scale):
    rng = np.random.default_rng(1)
    one, two = atoms(rng, 40, scale), atoms(rng, 50, scale)
    low, high = one[0][0] + two[0][0], one[0][-1] + two[0][-1]
    for cells in (1, 2, 3, 30, 200):
        knots = np.unique(np.concatenate([[low, high], rng.uniform(low, high, cells - 1)]))
        p, u = np.empty((2, knots.size - 1))
        kernel.compose(*one, *two, knots, p, u)
        exact_p, exact_u = exact_sum(one, two, knots)
        error = roundoff_pairs(one[0].size, two[0].size)
        # a sum at a knot may fall to either cell, where the first and the last take it
        assert abs(sum(p) / float(sum(exact_p)) - 1.0) <= error
        shift = 4.0 * 2.0**-53 * max(abs(low), abs(high))
        for k in range(p.size):
            assert abs(p[k] - exact_p[k]) <= error * exact_p[k]
            assert abs(u[k] - exact_u[k]) <= error * exact_u[k] + shift * p[k]


def test_the_error_of_pairs_is_not_idle():
    """Masses each too small to move the sum that they are added to, one by one: a chain of 16 n lost additions."""
    n = 2000
    one = np.arange(16.0), np.ones(16)
    two = 1e-7 * np.arange(float(n)), np.concatenate([[1.0], np.full(n - 1, 0.49 * 2.0**-52)])
    one[0][:] *= 1e-9
    one[1][1:] = 1.0 / 16.0
    knots = np.array([0.0, 1e-12, 2.0, 3.0]) - 1e-13
    p, u = np.empty((2, 3))
    kernel.compose(*one, *two, knots, p, u)
    exact = sum(Fraction(v) for v in one[1]) * sum(Fraction(v) for v in two[1])
    off = abs(float((Fraction(float(p.sum())) - exact) / exact))
    error = roundoff_pairs(16, n)
    assert 1e-3 * error < off < error


@pytest.mark.parametrize("scale", [1e-6, 0.1, 30.0])
def test_up_lies_above_and_down_below(scale):
    """The hockey-stick curve of the cells' two laws, in exact sums, against that of the pairs."""
    rng = np.random.default_rng(3)
    one, two = atoms(rng, 30, scale), atoms(rng, 30, scale)
    low, high = one[0][0] + two[0][0], one[0][-1] + two[0][-1]
    knots = np.unique(np.concatenate([[low, high], rng.uniform(low, high, 12)]))
    p, u = np.empty((2, knots.size - 1))
    kernel.compose(*one, *two, knots, p, u)
    up, loss, mass = np.empty((3, knots.size))
    kernel.spread_up(knots, p, u, up)
    n = kernel.merge_down(knots, p, u, 1e-13, loss, mass)
    sums = np.add.outer(one[0], two[0]).ravel(), np.multiply.outer(one[1], two[1]).ravel()
    apart = []
    for epsilon in rng.uniform(low - 0.1 * scale, high, 60):
        above, exact, below = (
            float(mpmath.fsum(m * max(-mpmath.expm1(mpmath.mpf(epsilon) - v), 0) for v, m in zip(*some, strict=True)))
            for some in ((knots, up), sums, (loss[:n], mass[:n]))
        )
        assert below <= exact * (1.0 + 1e-12)
        assert above >= exact * (1.0 - 1e-12)
        apart.append(above - below)
    assert max(apart) > 0.0


def test_lower_losses_allow_for_the_errors_of_both_masses():
    """p rounded down and u rounded up: each has the largest error."""
    knots, error = np.array([-1.0, 0.5, 4.0, 30.0]), 1e-6
    p, loss = np.array([0.5, 0.3, 0.2]), np.array([0.2, 3.0, 12.0])
    u = p * -np.expm1(knots[:-1] - loss)
    off = np.stack([p * (1.0 - error), u * (1.0 + error)])
    found, _ = discrete_loss(knots, off, off, error).down
    assert np.all(found <= loss)
    assert np.all(found >= loss - 4.0 * error * np.exp(loss - knots[:-1]))


def test_the_curve_of_a_sum():
    rng = np.random.default_rng(4)
    one, two = atoms(rng, 30, 1.0), atoms(rng, 40, 1.0)
    curve, beyond = np.empty((2, two[0].size))
    kernel.tails(*two, curve, beyond)
    for epsilon in rng.uniform(-1.0, 8.0, 40):
        exact = mpmath.fsum(
            mpmath.mpf(m) * mpmath.mpf(r) * max(-mpmath.expm1(mpmath.mpf(epsilon) - x - y), 0)
            for x, m in zip(*one, strict=True)
            for y, r in zip(*two, strict=True)
        )
        found = kernel.hockey_stick(*one, two[0], curve, beyond, epsilon)
        assert found == pytest.approx(float(exact), rel=1e-12, abs=0.0)


def test_no_pass_begins_that_would_end_too_late(monkeypatch):
    """By a clock on which a pass takes the square of its points: the bounds hold, as close as the time allows."""
    now, points = [0.0], []
    own = ConvolvedLoss._pass

    def run(self, number, aim, final):
        points.append(number)
        now[0] += number**2
        own(self, number, aim, final)

    monkeypatch.setattr(ConvolvedLoss, "_pass", run)
    monkeypatch.setattr(convolution.time, "monotonic", lambda: now[0])
    exact = oracle_few.direct_epsilon(CASES[0][0], 1e-5, "remove").value
    before = np.inf
    for limit in (2e5, 1e6, 1e7):
        now[0], points[:] = 0.0, []
        with deadline.limited(limit), deadline.strict():
            lower, upper = composed(CASES[0][0], "remove").bounds(EpsilonAt(1e-5), 1e-9, 1e9)
        assert lower <= exact <= upper
        assert upper - lower < before
        assert now[0] <= limit + points[0] ** 2
        before = upper - lower
    assert len(points) > 2


def test_passes_that_do_not_close_the_bounds_are_the_last(monkeypatch):
    """Far out, the sum of hundreds of steps stays 90 nats wide on any grid; larger ones would take a minute."""
    points = []
    own = ConvolvedLoss._pass

    def run(self, number, aim, final):
        points.append(number)
        own(self, number, aim, final)

    monkeypatch.setattr(ConvolvedLoss, "_pass", run)
    lower, upper = composed([(6.96, 0.0135, 317)], "remove").bounds(DeltaAt(1.0), 0.03, 5e8)
    assert -np.inf < lower < upper - 10.0 and upper < 0.0
    assert len(points) >= 2 and max(points) <= 1_200
