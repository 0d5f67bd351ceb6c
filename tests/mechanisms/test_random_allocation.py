"""Random allocation against integrals by the trapezoidal rule, exact moments, and samples; shares no code with ours."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy.special import ndtr

import pld_accountant as pa
from pld_accountant.kernels.convolve import add_participations, add_values
from pld_accountant.mechanisms import lognormal_sums
from pld_accountant.mechanisms.lognormal_sums import Side, mean_of_lognormals
from pld_accountant.mechanisms.participations import several_participations
from pld_accountant.mechanisms.random_allocation import AllocationSide

SPACING = {1: 0.002, 2: 0.025, 3: 0.12}  # of the trapezoidal rule in so many dimensions
WAYS = ("remove", "add")


def stop_loss(constant, slope, alpha, sigma, direction):
    """E[(a + b Y - alpha)+] or E[(1 - e (a + b Y))+] with e = alpha, Y lognormal of mean 1: closed form."""
    s = 1.0 / sigma
    strike = alpha - constant if direction == "remove" else 1.0 / alpha - constant
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.log(np.maximum(strike, 1e-300) / slope) / s
    # the Q mass and the mean of b Y below the strike
    below, mean = ndtr(z + 0.5 * s), slope * ndtr(z - 0.5 * s)
    if direction == "remove":
        return np.where(strike > 0, slope - mean - strike * (1 - below), slope - strike)
    return np.where(strike > 0, alpha * (strike * below - mean), 0.0)


def of_ratio(makers, sigma, epsilon, direction):
    """delta and its error, the ratio being a + b Y; `makers` gives a and b of arrays of independent lognormals.

    Two trapezoidal rules, half a step apart: the function is smooth, and their mean errs by less than they differ.
    """
    number, build = makers
    found = []
    for offset in (0.0, 0.5):
        x = np.arange(-9.0, 9.0, SPACING[number]) + offset * SPACING[number]
        weight = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi) * SPACING[number]
        y = np.exp(x / sigma - 0.5 / sigma**2)
        a, b = build(*np.meshgrid(*[y] * number, indexing="ij", sparse=True))
        value = stop_loss(*np.broadcast_arrays(a, b), math.exp(epsilon), sigma, direction)
        for _ in range(number):
            value = weight @ value
        found.append(float(value))
    return 0.5 * (found[0] + found[1]), abs(found[0] - found[1]) + 1e-13


ONE_OF_TWO = (1, lambda y: (y / 2, 0.5 + 0 * y))
ONE_OF_THREE = (2, lambda y, w: ((y + w) / 3, 1 / 3 + 0 * y * w))
TWO_OF_THREE = (2, lambda y, w: (y * w / 3, (y + w) / 3))
TWO_EPOCHS_OF_TWO = (3, lambda y, w, v: ((y + w) / 2 * v / 2, (y + w) / 4 + 0 * v))
ONE_OF_TWO_AND_GAUSSIAN = (2, lambda y, w: (0 * y * w, (y + w) / 2))
CASES = {
    "1 of 2": (lambda s: [(pa.RandomAllocation(s, 2), 1)], ONE_OF_TWO),
    "1 of 3": (lambda s: [(pa.RandomAllocation(s, 3), 1)], ONE_OF_THREE),
    "2 of 3": (lambda s: [(pa.RandomAllocation(s, 3, 2), 1)], TWO_OF_THREE),
    "1 of 2, Gaussian": (lambda s: [(pa.RandomAllocation(s, 2), 1), (pa.Gaussian(s), 1)], ONE_OF_TWO_AND_GAUSSIAN),
}


@pytest.mark.parametrize("direction", WAYS)
@pytest.mark.parametrize("sigma", [0.8, 3.0])
@pytest.mark.parametrize("name", CASES)
def test_bounds_enclose_the_integral(name, sigma, direction):
    steps, makers = CASES[name]
    found = pa.compose(steps(sigma))
    for epsilon in (0.0, 0.3 / sigma, 1.5 / sigma, 4.0 / sigma):
        exact, error = of_ratio(makers, sigma, epsilon, direction)
        assert error <= 1e-3 * exact + 1e-12
        bounds = found.delta(epsilon, direction)
        assert bounds.status == pa.Status.CERTIFIED
        assert bounds.lower - error <= exact <= bounds.upper + error
        if name == "2 of 3":
            assert bounds.lower >= 0.75 * exact - 1e-9
        else:
            assert bounds.upper <= bounds.lower * 1.005 + 1e-9
        assert found.epsilon(exact + error, direction).lower <= epsilon + 1e-12
        assert found.epsilon(exact - error, direction).upper >= epsilon


@pytest.mark.parametrize("direction", WAYS)
def test_two_epochs_enclose_the_integral(direction):
    found = pa.compose([(pa.RandomAllocation(1.5, 2), 2)])
    for epsilon in (0.2, 1.0, 2.5):
        exact, error = of_ratio(TWO_EPOCHS_OF_TWO, 1.5, epsilon, direction)
        assert error <= 1e-4 * exact
        bounds = found.delta(epsilon, direction)
        assert bounds.lower - error <= exact <= bounds.upper + error
        assert bounds.upper <= bounds.lower * 1.002 + 1e-9


def test_one_batch_and_all_batches_are_the_gaussian_mechanism():
    once, gaussian = (pa.compose([(m, 3)]).epsilon(1e-6) for m in (pa.RandomAllocation(2.0, 1), pa.Gaussian(2.0)))
    assert once.lower <= gaussian.upper and gaussian.lower <= once.upper <= once.lower * (1 + 1e-12)
    every = pa.compose([(pa.RandomAllocation(2.0, 3, 3), 1)]).epsilon(1e-6)
    assert every.lower <= gaussian.upper and gaussian.lower <= every.upper <= every.lower * (1 + 1e-9)


@pytest.mark.parametrize("sigma", [0.7, 1.0, 3.0])
@pytest.mark.parametrize("terms", [1, 2, 5, 100, 4097])
def test_moments_of_the_sides_enclose_the_exact_ones(sigma, terms):
    """Mean 1; second and third moments in closed form: both are means of convex functions."""
    s = 1.0 / sigma
    a, b = (mean_of_lognormals(s, terms, side) for side in (Side.LOWER, Side.UPPER))
    slack = 1e-11 + 3.0 * b.slack
    for law in (a, b):
        assert abs(law.masses.sum() - 1.0) <= slack
        assert abs(law.masses @ law.values + law.infinite - 1.0) <= slack
    second, third = math.exp(s * s), math.exp(3 * s * s)
    mean_square = 1.0 + (second - 1.0) / terms
    mean_cube = (terms * third + 3 * terms * (terms - 1) * second + terms * (terms - 1) * (terms - 2)) / terms**3
    for power, exact in ((2, mean_square), (3, mean_cube)):
        low, high = a.masses @ a.values**power, b.masses @ b.values**power
        assert low <= exact * (1 + slack) and high >= exact * (1 - slack)
        assert high - low <= 3e-3 * (exact - 1.0)


def test_one_law_serves_all_numbers_next_to_its_own(monkeypatch):
    """Both sides of a law are made for numbers beyond those that share it."""
    made, one = [], lognormal_sums._one
    monkeypatch.setattr(lognormal_sums, "_one", lambda s, side, cells: made.append((s, side)) or one(s, side, cells))
    share = 1.0 + 2.0**-40
    for s in np.random.default_rng(5).uniform(1e-3, 2.0, 40):
        made.clear()
        lognormal_sums._both.cache_clear()
        mean_of_lognormals(s, 1, Side.UPPER, 20)
        ends = {side: number for number, side in made}
        assert ends[Side.LOWER] <= s / share < s * share <= ends[Side.UPPER] <= ends[Side.LOWER] * (1.0 + 1e-11)


def test_an_edge_of_two_buckets_has_one_law_which_is_rough():
    lognormal_sums._both.cache_clear()
    ledger = pa.MechanismLedger(40, buckets=10)
    ledger.record_norms(pa.RandomAllocation(1.3, 8), np.arange(40) / 37.0, times=3)
    found = ledger.epsilon(1e-6)
    assert lognormal_sums._both.cache_info().misses == 11  # ten edges, and the worst case once more, closely
    for person in (5, 20, 36, 37, 39):
        exact = pa.compose([(pa.RandomAllocation(1.3 * 37.0 / min(person, 37), 8), 3)]).epsilon(1e-6)
        assert found.lower[person] <= exact.upper and exact.lower <= found.upper[person]
    clipped = found.lower[-1], found.upper[-1]
    assert 0.99 * clipped[1] < clipped[0] < exact.lower


def test_coarse_cells_lie_outside_of_fine_ones():
    """The stop-loss curves of 60 cells lie around those of 2,500."""
    for terms in (3, 300):
        alphas = np.exp(np.linspace(-1.0, 1.5, 41))
        curves = {
            (side, cells): [float(np.maximum(law.values - alpha, 0.0) @ law.masses) + law.infinite for alpha in alphas]
            for side in Side
            for cells in (60, 2500)
            for law in [mean_of_lognormals(1.0, terms, side, cells)]
        }
        order = [(Side.LOWER, 60), (Side.LOWER, 2500), (Side.UPPER, 2500), (Side.UPPER, 60)]
        for one, two in itertools.pairwise(order):
            assert np.all(np.array(curves[one]) <= np.array(curves[two]) * (1 + 1e-9) + 1e-15), (terms, one, two)


@pytest.mark.parametrize("direction", WAYS)
def test_samples_agree(direction):
    """20 batches, two epochs: the bounds lie within five standard errors of a Monte Carlo estimate."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((400_000, 2, 20))
    ratio = np.exp(x - 0.5).mean(axis=2).prod(axis=1)
    value = np.maximum(ratio - math.exp(0.3), 0) if direction == "remove" else np.maximum(1 - math.exp(0.3) * ratio, 0)
    error = 5 * value.std() / math.sqrt(value.size)
    bounds = pa.compose([(pa.RandomAllocation(1.0, 20), 2)]).delta(0.3, direction)
    assert bounds.lower - error <= value.mean() <= bounds.upper + error


def test_epsilon_falls_with_noise_and_batches_and_rises_with_participations():
    @cache
    def epsilon(*parameters, count=1):
        return pa.compose([(pa.RandomAllocation(*parameters), count)]).epsilon(1e-6)

    for lower, higher in (
        ((1.1, 100), (1.0, 100)),
        ((1.0, 110), (1.0, 100)),
        ((1.0, 10_000), (1.0, 1_000)),
        ((2.0, 100), (2.0, 100, 4)),
    ):
        assert epsilon(*lower).upper < epsilon(*higher).lower
    assert epsilon(1.0, 100).upper < epsilon(1.0, 100, count=2).lower


@pytest.mark.parametrize("sigma", [4.0, 50.0, 0.5])
def test_many_participations_lie_between_a_gaussian_and_the_blocks(sigma):
    found = pa.compose([(pa.RandomAllocation(sigma, 103, 10), 1)]).epsilon(1e-6)
    below = pa.compose([(pa.Gaussian(sigma * math.sqrt(103) / 10), 1)]).epsilon(1e-6)
    above = pa.compose([(pa.RandomAllocation(sigma, 10), 7), (pa.RandomAllocation(sigma, 11), 3)]).epsilon(1e-6)
    assert below.lower * (1.0 - 1e-9) <= found.lower <= above.upper
    assert found.upper == pytest.approx(above.upper, rel=1e-6)
    assert found.upper < (1.02 if sigma > 1.0 else 1.25) * found.lower


def test_a_gaussian_is_the_lower_bound_where_cells_lose_more():
    """At noise 0.05 the likelihood ratios of nine participations are beyond all doubles."""
    found = pa.compose([(pa.RandomAllocation(0.05, 10, 9), 1)]).epsilon(1e-5)
    below = pa.compose([(pa.Gaussian(0.05 * math.sqrt(10) / 9), 1)]).epsilon(1e-5)
    assert found.lower == pytest.approx(below.lower, rel=1e-9)


PARTICIPATIONS = [
    (1.0, 3, 2),
    (0.5, 10, 2),
    (1.0, 100, 2),
    (2.0, 20, 5),
    (1.0, 37, 9),
    (0.3, 1_000, 3),
    (1.0, 10**6, 4),
]


@pytest.mark.parametrize(("sigma", "batches", "k"), PARTICIPATIONS)
def test_several_participations_have_the_moments_of_a_law_below(sigma, batches, k):
    """The mean of the ratio is 1, and its second moment at most E exp(s^2 J), J the participations two draws share."""
    law = several_participations(1.0 / sigma, batches, k)
    slack = 1e-11 + 3.0 * law.slack
    assert abs(law.masses.sum() - 1.0) <= slack and abs(law.masses @ law.values - 1.0) <= slack
    shared = [math.comb(k, j) * math.comb(batches - k, k - j) / math.comb(batches, k) for j in range(k + 1)]
    exact = sum(chance * math.exp(j / sigma**2) for j, chance in enumerate(shared))
    found = law.masses @ law.values**2
    assert found <= exact * (1.0 + slack)
    assert found - 1.0 >= 0.9 * (exact - 1.0) or sigma < 1.0


@pytest.mark.parametrize("direction", WAYS)
@pytest.mark.parametrize(("sigma", "batches", "k"), [(1.0, 10, 2), (0.7, 5, 3), (1.0, 20, 5)])
def test_samples_of_several_participations_agree(sigma, batches, k, direction):
    """The bounds lie within five standard errors of a Monte Carlo estimate, and 12 % of each other."""
    rng = np.random.default_rng(7)
    y = np.exp(rng.standard_normal((200_000, batches)) / sigma - 0.5 / sigma**2)
    polynomials = np.zeros((k + 1, len(y)))
    polynomials[0] = 1.0
    for i in range(batches):
        polynomials[1:] += polynomials[:-1] * y[:, i]
    ratio = polynomials[k] / math.comb(batches, k)
    value = np.maximum(ratio - math.exp(0.5), 0) if direction == "remove" else np.maximum(1 - math.exp(0.5) * ratio, 0)
    error = 5 * value.std() / math.sqrt(value.size)
    bounds = pa.compose([(pa.RandomAllocation(sigma, batches, k), 1)]).delta(0.5, direction)
    assert bounds.lower - error <= value.mean() <= bounds.upper + error
    assert bounds.upper <= 1.12 * bounds.lower


def test_the_errors_of_participations_cover_the_round_off_of_the_kernel():
    """A cell's masses against sums in higher precision over pairs of cells, one by one."""
    rng = np.random.default_rng(3)
    a, b, knots = (
        np.sort(rng.random(90)),
        np.sort(rng.random(70)),
        np.concatenate([[0.0], np.sort(rng.random(25)) * 2.0]),
    )
    pa_, pb, chance = rng.random((90, 4)), rng.random((70, 4)), rng.random((4, 4))
    masses = np.full((26, 4), np.nan)
    add_participations(a, pa_, b, pb, chance, knots, masses)
    cell = np.searchsorted(knots, np.add.outer(a, b), side="right") - 1
    for k, j in itertools.product(range(26), range(4)):
        both = [(x, y) for x, y in np.argwhere(cell == k)]
        terms = (pa_[x, i] * pb[y, j - i] * chance[i, j - i] for x, y in both for i in range(j + 1))
        assert masses[k, j] == pytest.approx(math.fsum(terms), rel=(90 + 70 + 4) * 2.0**-53)


def test_round_off_of_participations_is_counted():
    """For each doubling twice the error of its terms, and the units of the kernel."""
    slack = [several_participations(0.5, t, 2).slack for t in (4, 8, 16)]
    for one, two in itertools.pairwise(slack):
        assert two >= 2 * one + 2 * 400 * 2.0**-53
    law = several_participations(0.5, 16, 2)
    # both masses of a ratio err
    assert law.moved >= 2 * law.slack
    assert pa.RandomAllocation(2.0, 16, 2).below()[1] >= law.slack + 2 * law.moved


def test_the_tail_is_counted_as_infinite(monkeypatch):
    """With cells that end early, the bounds are wide and true."""
    monkeypatch.setattr(lognormal_sums, "_REACH", 2.6)
    monkeypatch.setattr(lognormal_sums, "_NEAR", 2.0)
    lognormal_sums._both.cache_clear()
    try:
        found = pa.compose([(pa.RandomAllocation(0.8, 2), 1)])
        for direction in WAYS:
            for epsilon in (0.1, 1.0, 3.5):
                exact, error = of_ratio(ONE_OF_TWO, 0.8, epsilon, direction)
                bounds = found.delta(epsilon, direction)
                assert bounds.lower <= exact + error and exact - error <= bounds.upper
        assert pa.compose([(pa.RandomAllocation(0.8, 2), 1)]).epsilon(1e-6).upper == math.inf
    finally:
        lognormal_sums._both.cache_clear()


def test_the_error_of_values_moves_losses_outwards_and_that_of_masses_widens_delta(monkeypatch):
    plain = {way: pa.compose([(pa.RandomAllocation(1.0, 7), 1)]).delta(0.4, way) for way in WAYS}
    true_ratio = AllocationSide.ratio.fget

    def wrong(moved, slack):
        def ratio(self):
            r = true_ratio(self)
            return lognormal_sums.Ratio(r.terms, r.values, r.masses, r.infinite, moved, slack)

        return property(ratio)

    monkeypatch.setattr(AllocationSide, "ratio", wrong(0.01, 0.0))
    moved = pa.compose([(pa.RandomAllocation(1.0, 7), 1)])
    for way in WAYS:
        assert moved.delta(0.4, way).upper > plain[way].upper * 1.005
        assert moved.delta(0.4, way).lower < plain[way].lower * 0.995
    found = {}
    for slack in (0.0, 0.1):
        monkeypatch.setattr(AllocationSide, "ratio", wrong(0.0, slack))
        two = pa.compose([(pa.RandomAllocation(1.0, 7), 2)])
        found[slack] = [(two.delta(0.4, way), two.epsilon(1e-3, way)) for way in WAYS]
    for (delta, epsilon), (wide_delta, wide_epsilon) in zip(found[0.0], found[0.1], strict=True):
        assert wide_delta.upper >= delta.upper * math.exp(0.2) and wide_delta.lower <= delta.lower * math.exp(-0.2)
        assert wide_epsilon.upper > epsilon.upper + 1e-3 and wide_epsilon.lower < epsilon.lower - 1e-3


def test_the_errors_of_sums_cover_the_round_off_of_the_kernel():
    """A cell's number is at most a.size + b.size units away from the sum in higher precision."""
    rng = np.random.default_rng(1)
    for twice in (False, True):
        a, pa_ = np.sort(rng.lognormal(size=300)), rng.random(300)
        b, pb = (a, pa_) if twice else (np.sort(rng.lognormal(size=200)), rng.random(200))
        knots = np.concatenate([[0.0], np.sort(rng.lognormal(0.7, 0.7, 50))])
        mass, moment = np.empty(51), np.empty(51)
        add_values(a, pa_, b, pb, twice, knots, mass, moment)
        sums, masses = np.add.outer(a, b).ravel(), np.multiply.outer(pa_, pb).ravel()
        cell = np.searchsorted(knots, sums, side="right") - 1
        for k in range(51):
            inside = cell == k
            assert mass[k] == pytest.approx(math.fsum(masses[inside]), rel=600 * 2.0**-53)
            exact = math.fsum(masses[inside] * (sums[inside] - knots[k]))
            assert moment[k] == pytest.approx(exact, rel=600 * 2.0**-53, abs=1e-13)


@pytest.mark.parametrize("side", Side)
def test_round_off_of_every_sum_is_counted(side):
    """Of the units of the kernel for each doubling, twice those of its terms."""
    cells, unit = 200, 2.0**-53
    slack, moved = (
        [getattr(mean_of_lognormals(0.5, n, side, cells), at) for n in (1, 2, 4)] for at in ("slack", "moved")
    )
    atoms = [mean_of_lognormals(0.5, n, side, cells).values.size for n in (1, 2)]
    for k in (0, 1):
        assert slack[k + 1] >= 2 * slack[k] + 2 * atoms[k] * unit
        assert moved[k + 1] >= moved[k] + 4 * atoms[k] * unit
    # 8 points' masses: exponents of up to (reach + s)^2 / 2
    assert slack[0] >= 0.5 * 14.5**2 * unit and moved[0] >= 2 * slack[0]


def test_corners_are_true_and_in_bounded_time():
    for sigma, batches in ((0.05, 2), (0.1, 1000), (100.0, 10**6), (1.0, 10**9)):
        found = pa.compose([(pa.RandomAllocation(sigma, batches), 1)]).epsilon(1e-6)
        once = pa.compose([(pa.Gaussian(sigma), 1)]).epsilon(1e-6)
        assert 0.0 <= found.lower <= found.upper <= once.upper * (1 + 1e-9)


def test_what_is_not_bounded_says_so():
    found = pa.compose([(pa.RandomAllocation(1.0, 10), 2), (pa.SampledGaussian(2.0, 0.1), 5)])
    assert np.all(found.rdp([2.0, 8.0]) == math.inf) and found.rdp_epsilon(1e-5) == math.inf
    assert found.epsilon(0.0).upper == math.inf
    assert found.steps == 7 and "batches=10" in repr(found)
    negative = found.delta(-0.5)
    assert 1 - math.exp(-0.5) < negative.lower <= negative.upper < 1.0


@pytest.mark.parametrize(
    "parameters", [(0.0, 5), (0.04, 5), (1.0, 0), (1.0, 2.5), (1.0, 5, 0), (1.0, 5, 6), (1.0, 10**10)]
)
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ValueError, match="must be"):
        pa.RandomAllocation(*parameters)


def test_what_round_off_makes_useless_is_not_certified():
    """10^6 epochs of 10^9 batches: the slack of the two sides is a factor beyond all doubles."""
    run = pa.compose([(pa.RandomAllocation(1.0, 10**9), 10**6)])
    for bounds in (run.delta(0.0), run.epsilon(1e-6)):
        assert bounds.status == pa.Status.NOT_CERTIFIED and bounds.lower == 0.0


@pytest.mark.filterwarnings("error")
def test_tiny_losses():
    """At noise 10^6 the losses are below 1e-9: the two sides do not contradict each other."""
    bounds = pa.compose([(pa.RandomAllocation(1e6, 10**9), 3)]).epsilon(1e-30)
    assert bounds.status == pa.Status.CERTIFIED and 0.0 < bounds.lower < bounds.upper < 1e-9
