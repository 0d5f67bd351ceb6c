"""Small losses and large ones: each piece of the second part's table against sums over a fine grid, and in bounds."""

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import plancherel, schedule
from pld_accountant.engine.method import Job
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.engine.rare_losses import split as splitting
from pld_accountant.engine.rare_losses.split import RareLosses, _Parts
from pld_accountant.engine.rare_losses.tables import _mixture_error
from pld_accountant.engine.tilting import Limits
from pld_accountant.engine.transform import Transform
from pld_accountant.engine.working import WorkingBounds
from pld_accountant.kernels import _columns as c
from pld_accountant.kernels import invert as kernels
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.tables.makers import TableMakers
from pld_accountant.tables.table import log_expm1

SIGMA = np.array([2.2, 2.15, 2.1, 2.05, 2.0])
Q = np.full(5, 0.005)
REACH, FAR = 13.0, 20.0
THETA, PERIOD, WIDTH = 36.0, 4.0, 64.0
EVERY = np.ones(5, dtype=bool)
LIMITS = Limits(1e-9, frequencies=1 << 12, least_expectation=1e-6, tilts=16)


def parted(sigma=SIGMA, q=Q, interpolated=False, reach=REACH):
    """The tables of the part with large losses; those of the small losses are its `small`."""
    makers = TableMakers(SampledGaussianSteps(sigma, q, "remove"), np.ones(len(sigma) - 1, dtype=bool))
    return _Parts.of(makers, reach, FAR, interpolated).large


def generating(sigma, q, low, high, z):
    """E[exp(z L); low < x < high] under removal for complex z (frequencies,), by Simpson's rule."""
    x = np.linspace(max(low, -10.0 * sigma), high, 120_001)
    weight = np.full(x.size, 2.0)
    weight[1::2] = 4.0
    weight[[0, -1]] = 1.0
    weight *= (x[1] - x[0]) / 3.0
    log_g = np.log1p(q * np.expm1((2.0 * x - 1.0) / (2.0 * sigma**2)))
    log_density = -0.5 * (x / sigma) ** 2 - np.log(sigma * np.sqrt(2.0 * np.pi)) + log_g
    return np.array([np.sum(weight * np.exp(log_density + one * log_g)) for one in np.atleast_1d(z)])


def parts(large, bucket, z):
    """M_s and M_l of a bucket."""
    small, big = large.small.steps, large.large.steps
    law = small.sigma[bucket], small.q[bucket]
    return tuple(generating(*law, *of.part[bucket], z) for of in (small, big))


def blocks_of(table):
    """log(1 + rho), its error, and the bound beyond the band, of a table of the second part."""
    *_, large = c.blocks(table.frequencies)
    more = table.columns[:, large:]
    re, im, error = np.split(more[:, :-1], 3, axis=1)
    return re + 1j * im, error, more[:, -1]


@pytest.mark.parametrize("interpolated", [False, True])
def test_log_of_one_plus_rho_keeps_its_digits(interpolated):
    large = parted(interpolated=interpolated)
    table = large.table(THETA, PERIOD, WIDTH, EVERY)
    r, error, _ = blocks_of(table)
    at = [0, 1, 5, table.frequencies // 2, table.frequencies]
    z = THETA + 2j * np.pi / PERIOD * np.array(at)
    for bucket in range(5):
        small, big = parts(large, bucket, z)
        rho = big / small
        true = 0.5 * np.log1p(2.0 * rho.real + np.abs(rho) ** 2) + 1j * np.arctan2(rho.imag, 1.0 + rho.real)
        off = np.abs(r[bucket, at] - true)
        # Simpson's rule is exact to about 1e-11
        assert np.all(off <= error[bucket, at] + 1e-10 * np.abs(rho[0]))
        # between buckets, interpolation has an error of its own
        assert interpolated or np.all(error[bucket, at] <= 1e-8 * np.abs(rho[0]))
    assert np.abs(r[0, 0]) < np.abs(r[4, 0]) < 1e-3


def filled(interpolated=False):
    """Both parts' tables, and the maker of the second."""
    large = parted(interpolated=interpolated)
    return *(of.table(THETA, PERIOD, WIDTH, EVERY) for of in (large.small, large.large)), large


@pytest.mark.parametrize("kind", ["of M_s", "of M_s per frequency", "K of M_s", "K of M_l", "M_l", "M_l per frequency"])
def test_what_is_said_of_the_errors_of_both_parts_is_allowed_for(kind):
    """Each alone: something is off by as much as it may be, and log(1 + rho) by no more than is said."""
    e = 1e-3
    small, big, large = filled()
    m, omega = small.frequencies, 2.0 * np.pi / PERIOD * np.arange(1, small.frequencies + 1)
    before, _, _ = blocks_of(large._combined(small, big))
    turn = np.exp(1j * np.linspace(0.0, 20.0, m))
    part, known = (small, 1.0) if "M_s" in kind else (big, np.exp(big.log_phi()[:, 1:]))
    if kind.startswith("K"):
        part.columns[:, c.LOG_MOMENT_ERROR] = e
        part.columns[:, c.LOG_MOMENT] += 0.99 * e if part is big else -0.99 * e
    else:
        column, rate = (1, omega / omega[-1]) if "per" in kind else (0, np.ones(m))
        # of M_s relative to itself
        which = [c.ERROR, c.ERROR_SLOPE] if part is big else [c.RELATIVE_ERROR, c.RELATIVE_SLOPE]
        part.columns[:, which[column]] = e / (omega[-1] if column else 1.0)
        off = np.log1p(0.99 * e * rate * turn / known) * np.ones((5, 1))
        part.re[:] += off.real
        part.im[:] += off.imag
    after, error, _ = blocks_of(large._combined(small, big))
    assert np.all(np.abs(after - before) <= error)
    assert np.max(np.abs(after - before)[:, 1:] / error[:, 1:]) > 0.5


def test_between_buckets_the_least_neighbour_counts_beyond_the_band():
    small, big, large = filled(interpolated=True)
    _, _, before = blocks_of(large._combined(small, big))
    small.plain[2, c.ENVELOPE] -= 3.0
    _, _, after = blocks_of(large._combined(small, big))
    assert np.all(after[1:4] > 2.0 * before[1:4])
    assert np.all(after[[0, 4]] == before[[0, 4]])


def test_rows_that_are_asked_for_later_are_added():
    large = parted(interpolated=True)
    first = large.table(THETA, PERIOD, WIDTH, np.arange(5) < 2)
    later = large.table(THETA, PERIOD, WIDTH, EVERY)
    assert first.filled.tolist() == [True, True, False, False, False]
    assert later.filled.all()
    assert large.table(THETA, PERIOD, WIDTH, np.arange(5) < 2) is later


def test_what_is_known_absolutely_of_the_first_part_is_not_used():
    table = parted().table(THETA, PERIOD, WIDTH, EVERY)
    assert np.all(table.columns[:, [c.ERROR, c.ERROR_SLOPE]] >= 1e100)


def test_where_large_losses_are_not_rare_nothing_is_proven():
    table = parted().table(50.0, PERIOD, WIDTH, EVERY)
    _, error, _ = blocks_of(table)
    assert np.all(error[2:, 0] >= 1e4)
    nothing = np.zeros((2, 1))
    for x, r, past in ((0.0, 1e-3, False), (0.6, 1e-3, True), (0.0, 0.7, True)):
        log, rho = np.array([[0.0], [x]], dtype=complex), np.array([[1e-3], [r]], dtype=complex)
        error = _mixture_error(log, nothing, rho, nothing, np.array([0]))
        assert (error[0, 0] >= 1e4) == past


def test_log_moments_of_the_second_part():
    large = parted()
    theta = np.array([5.0, 20.0, 30.0, 38.0])
    counts = np.array([[100.0, 0.0, 50.0, 0.0, 9.0]])
    found = large.composed(counts @ large.log_moments(theta))[0]
    for t, k in zip(theta, found, strict=True):
        small, big = np.array([[p[0].real for p in parts(large, b, t)] for b in range(5)]).T
        true = counts[0] @ np.log(small) + log_expm1(counts[0] @ np.log1p(big / small))
        assert true - 1e-9 * abs(true) <= k <= true + 0.01 + 1e-6 * abs(true)


def test_log_moments_have_room_for_interpolated_steps():
    large = parted(interpolated=True)
    theta = np.array([20.0, 38.0])
    n = 1000.0
    for w in (0.1, 0.5, 0.9):
        counts = np.array([[0.0, 0.0, 0.0, n * (1.0 - w), n * w]])
        found = large.composed(counts @ large.log_moments(theta))[0]
        for t, k in zip(theta, found, strict=True):
            (s1, b1), (s2, b2) = ([p[0].real for p in parts(large, b, t)] for b in (3, 4))
            small, big = (1.0 - w) * s1 + w * s2, (1.0 - w) * b1 + w * b2
            assert k >= n * np.log(small) + log_expm1(n * np.log1p(big / small)) - 1e-9


@pytest.mark.parametrize("theta", [20.0, 30.0, 36.0, 42.0])
def test_the_log_of_interpolated_steps_lies_within_its_error(theta):
    """log(1 + rho) of the mixture of two buckets differs from the mean of theirs by no more than the error allows."""
    large = parted(SIGMA[1:3], Q[1:3], interpolated=True)
    table = large.table(theta, PERIOD, WIDTH, EVERY[1:3])
    r, error, _ = blocks_of(table)
    at = np.arange(0, table.frequencies + 1, 7)
    z = theta + 2j * np.pi / PERIOD * at
    (s1, b1), (s2, b2) = (parts(large, b, z) for b in (0, 1))
    largest = 0.0
    for w in (0.05, 0.3, 0.5, 0.8):
        rho = ((1.0 - w) * b1 + w * b2) / ((1.0 - w) * s1 + w * s2)
        true = 0.5 * np.log1p(2.0 * rho.real + np.abs(rho) ** 2) + 1j * np.arctan2(rho.imag, 1.0 + rho.real)
        off = np.abs(true - (1.0 - w) * r[0, at] - w * r[1, at])
        room = (1.0 - w) * error[0, at] + w * error[1, at]
        assert np.all(off <= room + 1e-10 * np.abs(rho[0]))
        largest = max(largest, float(np.max(off / room)))
    assert largest > 0.5


@pytest.mark.parametrize(("n", "theta"), [(30.0, 36.0), (3_000.0, 36.0), (30_000.0, 34.0), (800.0, 42.0)])
def test_a_persons_second_part_errs_by_no_more_than_is_said(n, theta):
    """n steps interpolated between two buckets with one weight: the amplitudes against the product of mixtures."""
    sigma = np.array([2.1, 2.0])
    large = parted(sigma, Q[:2], interpolated=True)
    table = large.table(theta, PERIOD, WIDTH, np.ones(2, dtype=bool))
    m, w = table.frequencies, 0.4
    row, z = (n * np.array([[1.0 - w, w]]) @ table.columns)[0], theta + 1j * table.omega
    (s1, b1), (s2, b2) = (parts(large, b, z) for b in (0, 1))
    small, rho = (1.0 - w) * s1 + w * s2, ((1.0 - w) * b1 + w * b2) / ((1.0 - w) * s1 + w * s2)
    r = n * (0.5 * np.log1p(2.0 * rho.real + np.abs(rho) ** 2) + 1j * np.arctan2(rho.imag, 1.0 + rho.real))
    true = np.exp(n * np.log(small) - row[c.LOG_MOMENT] - 1j * row[c.MEAN] * z.imag) * np.expm1(r)
    a_re, a_im, sizes = np.empty(m + 1), np.empty(m + 1), np.empty(3)
    kernels._amplitudes(row, np.ones(m + 1), np.zeros(m + 1), m, True, a_re, a_im, sizes)
    _, _, extra, last = c.blocks(m)
    a, phi = a_re + 1j * a_im, np.exp(np.append(0.0, row[c.HEAD : c.HEAD + m] + 1j * row[c.HEAD + m : extra]))
    more = np.expm1(np.append(row[extra], row[extra + 2 : last]))
    off = np.expm1(row[last + 2 * (m + 1) : -1])
    whole = np.abs(a + phi)
    room = np.abs(a) * more + (1.0 + more) * whole * off + 1e-8 * np.abs(a) + 1e-9 * whole * np.abs(r[0])
    few = more < 1.0
    assert few[:3].all()
    assert np.all(np.abs(true - a)[few] <= room[few])
    assert np.max((np.abs(true - a) / room)[few]) > 0.05


def test_beyond_the_band_nothing_is_larger_than_it_is_said():
    large = parted(interpolated=True)
    table = large.table(THETA, PERIOD, WIDTH, EVERY)
    _, _, beyond = blocks_of(table)
    counts = np.array([0.0, 0.0, 0.0, 400.0, 300.0])
    first, ladder = table.ladder
    levels = np.arange(2.0 * np.log2(WIDTH), 2.0 * np.log2(2048.0)).astype(int)
    at = [(WIDTH, table.columns[:, c.ENVELOPE], beyond)]
    at += [(2.0 ** (0.5 * j), ladder[:, j - first], table.large_ladder[:, j - first]) for j in levels]
    z = THETA + 1j * np.geomspace(65.0, 4000.0, 24)
    w = 3.0 / 7.0
    (s1, b1), (s2, b2) = (parts(large, b, z) for b in (3, 4))
    small, big = (1.0 - w) * s1 + w * s2, (1.0 - w) * b1 + w * b2
    scale = np.exp(counts @ table.columns[:, c.LOG_MOMENT])
    second_part = np.abs(small**700 * np.expm1(700.0 * np.log1p(big / small))) / scale
    close = 0.0
    for level, envelope, ratio in at:
        bound = np.exp(counts @ envelope) * np.expm1(counts @ ratio)
        most = np.max(second_part[z.imag >= level])
        # the ladder, which only chooses bands, has no room for interpolation
        assert most <= bound * (1.0 + (1e-9 if level == WIDTH else 1e-6))
        close = max(close, most / max(bound, 1e-300))
    assert close >= 1e-5


def test_amplitudes_and_what_may_be_off():
    """The kernel's sums of a row against numpy's; an error of R inside of what is allowed stays within `sizes`."""
    rng = np.random.default_rng(5)
    m = 6
    re, im, extra, large = c.blocks(m)
    weight = rng.normal(size=m + 1) + 1j * rng.normal(size=m + 1)
    row = np.zeros(large + 3 * (m + 1) + 1)
    row[re:im], row[im:extra] = -rng.random(m), rng.normal(size=m)
    interpolated = 0.03 * rng.random(m + 2)
    interpolated[1] = 1e4
    row[extra:large] = interpolated
    r = rng.normal(size=m + 1) * 0.3 + 1j * rng.normal(size=m + 1)
    off = 0.05 * rng.random(m + 1)
    row[large:-1] = np.concatenate([r.real, r.imag, off])
    a_re, a_im, sizes = np.empty(m + 1), np.empty(m + 1), np.empty(3)
    kernels._amplitudes(row, weight.real.copy(), weight.imag.copy(), m, True, a_re, a_im, sizes)
    product = weight * np.exp(np.append(0.0, row[re:im] + 1j * row[im:extra]))
    a = product * np.expm1(r)
    assert np.allclose(a_re + 1j * a_im, a, rtol=1e-13, atol=1e-15)
    assert sizes[0] == pytest.approx(np.sum(np.abs(a.real) + np.abs(a.imag)), rel=1e-12)
    assert sizes[1] == pytest.approx(np.sum(np.arange(m + 1) * (np.abs(a.real) + np.abs(a.imag))), rel=1e-12)
    most = np.append(interpolated[0], interpolated[2:])
    worst = 0.0
    for _ in range(200):
        p, e = (size * np.exp(2j * np.pi * rng.random(m + 1)) for size in (most, off))
        changed = np.sum(np.abs(product * np.exp(p) * np.expm1(r + e) - a))
        assert changed <= sizes[2]
        worst = max(worst, changed)
    assert worst >= 0.3 * sizes[2]
    quiet = row.copy()
    quiet[extra:large] = quiet[large + 2 * (m + 1) : -1] = 0.0
    kernels._amplitudes(quiet, weight.real.copy(), weight.imag.copy(), m, True, a_re, a_im, sizes)
    assert sizes[2] == 0.0


def test_tiny_shares_keep_their_digits():
    *_, large = c.blocks(0)
    row, weight = np.zeros(large + 4), np.ones(1)
    row[large], row[large + 1] = 1e-40, 2e-40
    a_re, a_im, sizes = np.empty(1), np.empty(1), np.empty(3)
    kernels._amplitudes(row, weight, np.zeros(1), 0, True, a_re, a_im, sizes)
    assert (a_re[0], a_im[0]) == pytest.approx((1e-40, 2e-40), rel=1e-14)


@pytest.mark.parametrize("reach", [10.0, 11.5, 13.0, 14.5])
def test_wherever_the_law_is_split_delta_is_the_same(reach):
    """Both parts' bounds at an epsilon where no tilt serves the whole, which direct sums know."""
    sigma, q, steps, log_delta = 2.0, 0.005, 10_000, np.log(1e-60)
    exact = pa.compose([(pa.SampledGaussian(sigma, q), steps)]).epsilon(1e-60, direction="remove")
    large = parted([sigma], [q], reach=reach)
    counts = WholeCounts(np.array([[steps]]))
    ends = []
    for one in (large.small, large):
        found = plancherel.solve(counts, one, DeltaAt(exact.estimate), limits=LIMITS)
        assert found.solved.all()
        assert 0.0 <= found.upper[0] - found.lower[0] < 1e-4
        ends.append((found.lower[0], found.upper[0]))
    lower, upper = (np.logaddexp(one, other) for one, other in zip(*ends, strict=True))
    room = 100.0 * float(exact.upper - exact.lower)
    assert lower - room <= log_delta <= upper + room
    assert min(e[0] for e in ends) > -200.0  # neither part is nothing


def split(counts, sigma, q, delta, places=(0.8,), far=None, width=1e-5, at=None, **more):
    """`RareLosses` with reaches at these places, and the far end 3 beyond the place 1."""
    makers = TableMakers(SampledGaussianSteps(sigma, q, "remove"))
    root = np.sqrt(-2.0 * np.log(delta))
    far = root + 3.0 if far is None else far
    some = [_Parts.of(makers, place * root, far, False) for place in places if place * root <= far - 1.0]
    method = RareLosses(5.0 * width, limits=LIMITS, **more)
    return method._solve(WholeCounts(np.asarray(counts), at), EpsilonAt(delta), some)


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "delta"),
    [(2.0, 0.005, 10_000, 1e-60), (2.0, 0.005, 10_000, 1e-100), (1.0, 1e-4, 1000, 1e-20), (0.5, 1e-3, 100, 1e-8)],
)
def test_epsilon_is_that_of_the_composition(sigma, q, steps, delta):
    exact = pa.compose([(pa.SampledGaussian(sigma, q), steps)]).epsilon(delta, direction="remove")
    found = split(np.array([[steps]]), np.array([sigma]), np.array([q]), delta)
    assert found.solved.all()
    assert found.lower[0] <= exact.upper
    assert found.upper[0] >= exact.lower
    assert 0.0 <= found.upper[0] - found.lower[0] <= 3e-5 * found.upper[0]


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "epsilon"),
    [
        (2.0, 0.005, 10_000, 4.6),
        pytest.param(1.0, 1e-4, 1000, 0.4, marks=pytest.mark.slow),
        pytest.param(0.9, 5e-6, 6_000_000, 1.2, marks=pytest.mark.slow),
    ],
)
def test_delta_is_that_of_the_composition(sigma, q, steps, epsilon):
    """Also where Renyi accounting's delta, from which the places are chosen at first, is far too large."""
    counts, question = WholeCounts(np.array([[steps]])), DeltaAt(epsilon)
    makers = TableMakers(SampledGaussianSteps([sigma], [q], "remove"))
    job = Job(counts, makers, question, np.array([steps]), True)
    solution, person = WorkingBounds.unknown(1, question), np.arange(1)
    Transform(0.0, limits=Limits(frequencies=256, least_expectation=1e-2)).improve(job, solution, person)
    assert not solution.solved[0]
    for method in schedule.SINGLE:
        if isinstance(method, RareLosses):
            method.improve(job, solution, person)
    lower, upper = solution.lower[0], solution.upper[0]
    assert 0.0 <= upper - lower <= 1e-4
    ends = [pa.compose([(pa.SampledGaussian(sigma, q), steps)]).epsilon(float(np.exp(x)), direction="remove")
            for x in (upper + 1e-4, lower - 1e-4)]  # fmt: skip
    assert ends[0].lower <= epsilon <= ends[1].upper


def test_places_before_the_best():
    proven = np.array([[3.0, 2.0], [2.0, 1.0], [1.0, 1.009], [1.5, 3.0]])
    # the second person's best place is as good as the one that serves both
    assert splitting._best(proven, 0).tolist() == [2, 2]
    assert splitting._best(proven, 1).tolist() == [1, 1]
    assert splitting._best(-proven[::-1], 9).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "delta", "lower", "upper"),
    [
        # by pairs of atoms and the lattice, in a minute
        pytest.param(0.29, 6.5e-5, 288, 6e-18, 29.224850716, 29.224868022, marks=pytest.mark.slow),
        pytest.param(0.438, 2.6e-5, 1214, 4e-36, 22.037954573, 22.037963049, marks=pytest.mark.slow),
        (0.247, 0.00016, 325, 2e-10, 28.586727284, 28.586745197),
        (0.426, 1.1e-6, 95633, 2e-44, 22.677554728, 22.677604689),
    ],
)
def test_little_noise_and_few_large_losses(sigma, q, steps, delta, lower, upper):
    """The sum of the losses has modes far apart, between which no tilt puts weight."""
    found = pa.compose([(pa.SampledGaussian(sigma, q), steps)]).epsilon(delta, "remove")
    assert max(lower, found.lower) <= min(upper, found.upper)
    assert found.upper - found.lower <= 1e-5 * found.upper


def test_places_beyond_the_far_end_are_left_out():
    counts, law = np.array([[10_000]]), (np.array([2.0]), np.array([0.005]))
    found = split(counts, *law, 1e-60, places=(0.8, 1.18, 1.3))
    alone = split(counts, *law, 1e-60, places=(0.8,))
    assert (found.lower[0], found.upper[0]) == (alone.lower[0], alone.upper[0])


def test_several_people_and_places_and_full_batches():
    sigma, q = np.array([30.0, 2.4, 2.0]), np.array([1.0, 0.005, 0.005])
    counts = np.array([[0, 9_000, 1_000], [40, 0, 8_000], [100, 3_000, 0], [0, 0, 10_000]])
    found = split(counts, sigma, q, 1e-60, places=(0.7, 0.8, 0.9))
    assert found.solved.all()
    assert np.all(found.upper - found.lower <= 3e-5 * found.upper)
    for person in range(4):
        alone = split(counts[[person]], sigma, q, 1e-60, places=(0.85,))
        assert max(alone.lower[0], found.lower[person]) <= min(alone.upper[0], found.upper[person])
        steps = [(pa.SampledGaussian(s, r), int(n)) for s, r, n in zip(sigma, q, counts[person], strict=True) if n]
        exact = pa.compose(steps).epsilon(1e-60, direction="remove")
        assert max(float(exact.lower), found.lower[person]) <= min(float(exact.upper), found.upper[person])


def test_a_bucket_at_minus_one_costs_nothing():
    law = np.array([3.0, 2.0]), np.array([0.005, 0.005])
    found = split([[7, 8_000]], *law, 1e-60, at=np.array([-1, 1]))
    alone = split([[0, 8_000]], *law, 1e-60)
    assert max(found.lower[0], alone.lower[0]) <= min(found.upper[0], alone.upper[0])


def test_what_lies_beyond_the_far_end_is_at_infinity():
    """With an end that leaves out a tenth of delta the upper bound pays for it and the lower one does not have it."""
    sigma, q, steps, delta = np.array([2.0]), np.array([0.005]), 10_000, 1e-60
    family = SampledGaussianSteps(sigma, q, "remove")
    low, high = REACH, FAR
    for _ in range(60):
        far = 0.5 * (low + high)
        lost = steps * family.split(REACH, far)[1].mass_beyond()[0]
        low, high = (far, high) if lost > 0.1 * delta else (low, far)
    exact = split(np.array([[steps]]), sigma, q, delta)
    cut = split(np.array([[steps]]), sigma, q, delta, far=far)
    assert cut.lower[0] < exact.lower[0]
    # a tenth of delta, at a slope of some 50
    assert 1e-3 < cut.upper[0] - exact.upper[0] < 4e-3


@pytest.mark.parametrize("delta", [1e-50, pytest.param(1e-90, marks=pytest.mark.slow)])
def test_a_ledgers_far_tails(delta):
    """Everybody within half a percent of the largest epsilon; and it is the epsilon of the norms that were recorded."""
    rng = np.random.default_rng(3)
    scale = rng.lognormal(0.0, 0.5, (6, 1)) * rng.lognormal(-0.8, 0.8, 30)
    norms = np.minimum(scale * rng.lognormal(0.0, 0.3, (6, 30)), 1.0)
    ledger = pa.Ledger(30, noise_multiplier=2.0, sample_rate=0.005, max_grad_norm=1.0)
    for row in norms:
        ledger.record(row, repeat=1_500)
    found = ledger.epsilon(delta, direction="remove")
    assert np.all(found.upper - found.lower <= 5e-3 * found.upper.max())
    for person in np.argsort(-found.upper)[[0, 5, 15]]:
        sigma, steps = np.unique(2.0 / norms[:, person], return_counts=True)
        exact = split(1_500 * steps[None, :], sigma, np.full(sigma.size, 0.005), delta, places=(0.75, 0.8, 0.85))
        assert exact.upper[0] - exact.lower[0] <= 1e-4 * exact.upper[0]
        assert found.lower[person] <= exact.upper[0]
        assert found.upper[person] >= exact.lower[0]
