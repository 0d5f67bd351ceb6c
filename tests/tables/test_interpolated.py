"""Tables for steps interpolated between neighbouring buckets: exact products of mixtures against the tables."""

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.buckets import Buckets
from pld_accountant.counting.counts import InterpolatedCounts
from pld_accountant.counting.interpolation import UNITS
from pld_accountant.engine.plancherel import solve
from pld_accountant.engine.question import DeltaAt
from pld_accountant.engine.tilting import Limits
from pld_accountant.kernels import _columns as c
from pld_accountant.kernels import invert
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.tables import interpolated
from pld_accountant.tables.makers import TableMakers
from pld_accountant.tables.table import Table


def logs(table: Table) -> np.ndarray:
    """log M at every frequency, of each bucket."""
    assert table.plain is not None
    return table.plain[:, [c.LOG_MOMENT]] + 1j * table.plain[:, [c.MEAN]] * table.omega + table.log_phi()


def neighbours_of(*groups: Buckets) -> np.ndarray:
    """Between which rows the steps of these groups may be interpolated."""
    counts = np.zeros((1, sum(g.size for g in groups)), dtype=np.uint16)
    return InterpolatedCounts(counts, counts.astype(np.int32), groups).neighbours()


def makers_of(group: Buckets, direction: str = "remove") -> TableMakers:
    steps = SampledGaussianSteps(group.sigma, np.full(group.size, group.sample_rate), direction)
    return TableMakers(steps, neighbours_of(group))


def table_of(group: Buckets, theta: float = 20.0, period: float = 2.0, width: float = 40.0) -> Table:
    maker = makers_of(group).characteristic(interpolated=True)
    table = maker.table(theta, period, width, np.ones(group.size, dtype=bool))
    assert table is not None
    return table


def test_a_table_has_room_for_interpolated_steps():
    """Exact products of mixtures against fractional powers, where nothing else errs: few buckets, many steps."""
    group = Buckets.make(0.8, 0.05, 12)
    table = table_of(group)
    log = logs(table)
    rng = np.random.default_rng(4)
    used = 0.0
    for _ in range(30):
        exact, counts = np.zeros(table.weight.size, dtype=complex), np.zeros(group.size)
        for bucket in rng.integers(1, group.size, 20):
            w = rng.choice([0.5, rng.random()])
            exact += np.log1p(w * np.expm1(log[bucket] - log[bucket - 1])) + log[bucket - 1]
            counts[bucket] += w
            counts[bucket - 1] += 1.0 - w
        room = counts @ table.interpolation
        growth, room = room[1], np.append(room[0], room[2:])
        apart = exact - counts @ log
        apart = apart.real + 1j * (apart.imag - 2.0 * np.pi * np.round(apart.imag / (2.0 * np.pi)))
        assert np.all(np.abs(apart) <= room)
        assert apart.real.max() <= growth
        used = max(used, float((np.abs(apart) / room).max()))
    assert used > 0.2


@pytest.mark.parametrize("alone", [True, False])
def test_the_variance_term_leaves_an_error_of_third_order(alone):
    """Exact products of mixtures against the exponents: single steps in their buckets, or several, in doubt."""
    group = Buckets.make(2.0, 0.01, 12)
    maker = makers_of(group).characteristic(interpolated=True, variance=True)
    table = maker.table(20.0, 2.0, 40.0, np.ones(group.size, dtype=bool))
    log, (_, block, extra, _) = logs(table), c.blocks(table.frequencies)
    rng, used = np.random.default_rng(4), 0.0
    for _ in range(30):
        exact, counts, number, won, variance = np.zeros(log.shape[1], dtype=complex), *np.zeros((4, group.size))
        chosen = rng.permutation(np.arange(1, group.size))[:6] if alone else rng.integers(1, group.size, 10)
        for bucket in chosen:
            w = rng.choice([0.0, 0.5, 1.0, rng.random()])
            exact += np.log1p(w * np.expm1(log[bucket] - log[bucket - 1])) + log[bucket - 1]
            counts[bucket] += w
            counts[bucket - 1] += 1.0 - w
            number[bucket] += 1.0
            won[bucket] += w
            variance[bucket] += w * (1.0 - w)
        most = won * (number - won) / np.maximum(number, 1.0)
        once = number == 1.0
        middle, doubt = np.where(once, most, 0.5 * most), np.where(once, 0.0, 0.5 * most)
        assert np.all(np.abs(variance - middle) <= doubt + 1e-15)
        row = (counts @ table.columns)[None]
        interpolated.add_variance(row, table, number[None], middle[None], doubt[None])
        known = np.full(log.shape[1], row[0, c.LOG_MOMENT], dtype=complex)
        known[1:] += row[0, c.HEAD : block] + 1j * row[0, block:extra]
        known += 1j * (counts @ table.plain[:, c.MEAN]) * table.omega
        room = np.append(row[0, extra], row[0, extra + 2 :])
        apart = exact - known
        apart = np.abs(apart.real + 1j * (apart.imag - 2.0 * np.pi * np.round(apart.imag / (2.0 * np.pi))))
        assert np.all(apart <= room * (1.0 + 1e-9))
        used = max(used, float((apart / room).max()))
    assert used > 0.05


def test_what_interpolation_multiplies_phi_by():
    """The growth column bounds Re E where the error itself is useless: phases of neighbours half a turn apart."""
    group = Buckets.make(0.8, 0.3, 6)
    table = table_of(group, theta=2.0, period=4.0, width=60.0)
    log = logs(table)
    w = np.linspace(0.0, 1.0, 101)[1:-1, None]
    needed, useless = 0.0, False
    for k in range(1, group.size):
        x = log[k] - log[k - 1]
        with np.errstate(divide="ignore"):
            real = np.log(np.abs(1.0 - w + w * np.exp(x))) - w * x.real
        growth = (1.0 - w[:, 0]) * table.interpolation[k - 1, 1] + w[:, 0] * table.interpolation[k, 1]
        assert np.all(real <= growth[:, None] + 1e-12)
        needed = max(needed, float((real / growth[:, None]).max()))
        useless |= bool(table.interpolation[k, 2:].max() >= 1e4)
    assert needed > 0.2
    assert useless


def test_neighbours_that_are_filled_later_are_interpolated_too():
    group = Buckets.make(2.0, 0.01, 10)
    maker = makers_of(group).characteristic(interpolated=True)
    table = maker.table(20.0, 2.0, 40.0, np.arange(10) % 2 == 0)
    assert not table.interpolation.any()
    table = maker.table(20.0, 2.0, 40.0, np.ones(10, dtype=bool))
    np.testing.assert_allclose(table.columns, table_of(group).columns, rtol=1e-12, atol=1e-300)


def test_groups_and_full_batches_are_not_interpolated():
    near, other, full = Buckets.make(2.0, 0.01, 3), Buckets.make(3.0, 0.02, 2), Buckets.make(3.0, 1.0, 2)
    assert neighbours_of(near, other, full).tolist() == [True, True, False, True, False, False]
    assert not neighbours_of(full).any()


def test_without_interpolation_a_table_has_no_room_for_it():
    group = Buckets.make(2.0, 0.01, 5)
    makers, every = makers_of(group), np.ones(5, dtype=bool)
    table = makers.characteristic(interpolated=False).table(20.0, 2.0, 40.0, every)
    assert table.interpolation.shape[1] == 0
    assert table.plain is None
    between = makers.characteristic(interpolated=True).table(20.0, 2.0, 40.0, every)
    np.testing.assert_array_equal(between.plain, table.columns[:, : c.HEAD])
    np.testing.assert_array_equal(between.re, table.re)


def test_log_moments_have_room_for_interpolated_steps():
    group = Buckets.make(0.8, 0.05, 6)
    theta = np.array([0.5, 4.0, 30.0])
    plain, roomy = (makers_of(group).characteristic(interpolated=i).log_moments(theta) for i in (False, True))
    w = np.linspace(0.0, 1.0, 41)[:, None]
    for k in range(1, 6):
        exact = np.logaddexp(np.log1p(-w[1:-1]) + plain[k - 1], np.log(w[1:-1]) + plain[k])
        assert np.all((1.0 - w[1:-1]) * roomy[k - 1] + w[1:-1] * roomy[k] >= exact - 1e-12)
        # the bucket of clipped steps is too narrow to need room
        assert k == 5 or np.any((1.0 - w[1:-1]) * plain[k - 1] + w[1:-1] * plain[k] < exact - 1e-6)


def test_the_envelope_has_room_for_interpolated_steps():
    group = Buckets.make(1.0, 0.05, 8)
    table = table_of(group, theta=4.0)
    assert table.plain is not None
    top = table.plain[:, c.LOG_MOMENT] + table.plain[:, c.ENVELOPE]  # log sup |M| beyond the band
    w = np.linspace(0.0, 1.0, 41)[1:-1]
    needed = False
    for k in range(1, 8):
        exact = np.logaddexp(np.log1p(-w) + top[k - 1], np.log(w) + top[k])
        base = (1.0 - w) * table.plain[k - 1, c.LOG_MOMENT] + w * table.plain[k, c.LOG_MOMENT]
        found = (1.0 - w) * table.columns[k - 1, c.ENVELOPE] + w * table.columns[k, c.ENVELOPE]
        assert np.all(found >= exact - base - 1e-12)
        needed |= bool(np.any((1.0 - w) * top[k - 1] + w * top[k] < exact - 1e-9))
    assert needed


def test_errors_of_fractional_powers():
    """(1 + e)^c for a fraction c of a step: relative errors, which are all that a power without a first factor has."""
    group = Buckets.make(2.0, 0.01, 6)
    table = table_of(group)
    assert table.plain is not None
    table.plain[:, c.RELATIVE_SLOPE] = 0.0
    table.plain[:, c.RELATIVE_ERROR] = [1e-9, 0.3, 0.5, 0.6, 1e-12, 1e-3]
    table.plain[:, c.LOG_MOMENT_ERROR] = [1e-16, 1e-12, 1e-16, 1e-16, 1e-10, 1e-16]
    interpolated.interpolate(table, neighbours_of(group))
    assert np.all(table.columns[:, [c.ERROR, c.ERROR_SLOPE]] >= 1e200)
    relative = table.columns[:, c.RELATIVE_ERROR]
    for k, e in enumerate(table.plain[:, c.RELATIVE_ERROR]):
        for power in (0.1, 0.5, 1.0):
            allowed = np.expm1(min(power * relative[k], 700.0))
            assert np.expm1(-power * np.log1p(-e)) <= allowed * (1.0 + 1e-12)
            assert -np.expm1(power * np.log1p(-e)) <= allowed
    assert relative[3] >= 1e200  # nothing is proven with an error of more than a half
    # either edge's round-off of K may be an interpolated step's
    np.testing.assert_array_equal(table.columns[:, c.LOG_MOMENT_ERROR], [1e-12, 1e-12, 1e-12, 1e-10, 1e-10, 1e-10])


def test_an_error_of_phi_is_an_error_of_the_difference_of_neighbours():
    """The error of x = log(M_b / M_a) moves the error of an interpolated step, at every frequency."""
    group = Buckets.make(2.0, 0.01, 6)
    table = table_of(group)
    assert table.plain is not None
    exact = table.interpolation.copy()
    off = 0.01
    table.plain[2, c.RELATIVE_ERROR] = off
    interpolated.interpolate(table, neighbours_of(group))
    apart = np.abs(np.diff(logs(table), axis=0))
    for pair in (1, 2):
        # (|x| + e)^2 / 8 at least, e the error of either logarithm, -log(1 - off) at most
        least = (apart[pair] - np.log1p(-off)) ** 2 / 8.0
        assert np.all(table.interpolation[pair, 2:] >= np.minimum(least[1:], 1.0))
    np.testing.assert_array_equal(table.interpolation[5], exact[5])


def test_round_off_of_phases_beyond_pi():
    """A matrix product's error grows with its terms, which are beyond pi where phases are followed."""
    group = Buckets.make(0.5, 0.1, 40)
    table = table_of(group, theta=3.0, period=8.0, width=256.0)
    im = np.abs(table.im)
    assert im.max() > 2.0 * np.pi
    assert np.all(table.interpolation[:, 2:] >= (group.size + 8) * 2.0**-52 * (im - np.pi))


def test_round_off_of_phases_beyond_pi_acts_alone():
    """Neighbours that hardly differ, several turns off: nothing else errs."""
    group = Buckets(0.1, 4.0, np.array([0.3, 1.0 - 1e-12, 1.0]))
    table = table_of(group, theta=1.0, period=8.0, width=4.0)
    near = table.interpolation[2, 2:].copy()
    assert near.max() < 1e-20
    table.im[1:] += 6.0 * np.pi
    interpolated.interpolate(table, np.array([False, True]))
    im = np.abs(table.im[2])
    assert im.min() > 4.0 * np.pi
    room = table.interpolation[2, 2:]
    assert np.all(room >= (group.size + 8) * 2.0**-52 * (im - np.pi))
    assert np.all(room <= (group.size + 8) * 2.0**-50 * im)


def test_phases_of_neighbours_are_less_than_half_a_turn_apart():
    group = Buckets.make(0.5, 0.1, 40)
    table = table_of(group, theta=3.0, period=8.0, width=256.0)
    plain = makers_of(group).characteristic(interpolated=False).table(3.0, 8.0, 256.0, np.ones(40, dtype=bool))
    apart = np.diff(logs(table).imag, axis=0)
    assert np.abs(apart).max() <= np.pi * (1.0 + 1e-12)
    # only whole turns are added
    turns = (table.im - plain.im) / (2.0 * np.pi)
    assert np.abs(turns - np.round(turns)).max() < 1e-12
    assert np.abs(turns).max() > 0.5
    before = np.diff(plain.im, axis=0) + np.diff(plain.columns[:, c.MEAN])[:, None] * table.omega[1:]
    assert np.abs(before).max() > 1.5 * np.pi


def log_delta_of(table: Table, exponent: np.ndarray, epsilon: float) -> float:
    terms = table.weight * np.exp(exponent - exponent[0] - 1j * table.omega * epsilon)
    return float(exponent[0].real - table.theta * epsilon + np.log(terms.sum().real))


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_bounds_hold_whatever_the_weights(direction):
    """The same numbers of steps and sums of weights: weights of one half, and of 0 and 1, between the same bounds."""
    group = Buckets.make(1.0, 0.02, 16)
    counts, lower = np.zeros((1, group.size), dtype=np.uint16), np.zeros((1, group.size), dtype=np.int32)
    counts[0, [9, 14]] = 400, 1000
    lower[0, [9, 14]] = 200 * UNITS, 500 * UNITS
    maker = makers_of(group, direction).characteristic(interpolated=True)
    epsilon = 3.0 if direction == "remove" else 1.5
    limits = Limits(frequencies=1 << 12)
    found = solve(InterpolatedCounts(counts, lower, [group]), maker, DeltaAt(epsilon), limits=limits)
    assert found.solved[0]
    table = maker.table(2.0 if direction == "remove" else 8.0, 64.0, 128.0, np.ones(group.size, dtype=bool))
    assert table is not None
    log = logs(table)
    apart = np.diff(log, axis=0)
    pair = np.array([8, 13])
    n = np.array([400.0, 1000.0])
    whole = n / 2 @ (log[pair] + log[pair + 1])
    even = n @ (log[pair] + np.log1p(0.5 * np.expm1(apart[pair])))
    least, most = log_delta_of(table, whole, epsilon), log_delta_of(table, even, epsilon)
    assert least < most
    assert found.lower[0] <= least
    assert most <= found.upper[0]


@pytest.mark.slow
def test_far_tails_are_bounded_by_interpolated_counts():
    """Where a few large losses decide, the tilted distribution falls into two parts, and Q is small."""
    rng = np.random.default_rng(9)
    people = 300
    norms = rng.lognormal(-1.3, 0.5, (20, people))
    norms[0] = rng.uniform(0.7, 1.0, people)
    ledger = pa.Ledger(people, noise_multiplier=2.0, sample_rate=0.005, max_grad_norm=1.0)
    for row in norms:
        ledger.record(row, repeat=50)
    found = ledger.epsilon(1e-20)
    for i in (int(np.argmax(norms[0])), 7):
        parts = [(pa.SampledGaussian(2.0 / min(s, 1.0), 0.005), 50) for s in norms[:, i]]
        truth = pa.compose(parts).epsilon(1e-20)
        assert found.lower[i] <= truth.upper
        assert truth.lower <= found.upper[i] <= truth.upper * 1.001
    worst = ledger.worst_case().epsilon(1e-20).upper
    # in whole steps it is 0.5 %
    assert np.max(found.upper - found.lower) <= 0.003 * worst


def test_a_table_whose_phases_cannot_be_followed_proves_nothing():
    """If an interpolated step's exponent is useless there is no bound, rather than one that was cut off."""
    group = Buckets.make(2.0, 0.01, 64)
    table = table_of(group, theta=8.0, period=16.0, width=64.0)
    row = np.full((1, 64), 20.0) @ table.columns
    _, _, first, last = c.blocks(table.frequencies)
    helper = np.array([[40.0, 10.0, 10.0, 1.0]])
    for exponent, proven in ((row[:, first:last].copy(), True), (5000.0, False)):
        row[:, first:last] = exponent
        out = np.empty((1, c.RESULTS))
        start = np.array([1.0])
        invert.bound_people(row, table.weight, table.setting(), helper, np.array([-11.5]), True, False, start, out)
        assert np.isfinite(out[0, c.UPPER]) == proven
