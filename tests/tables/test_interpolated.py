"""Tables for lotteries between neighbouring buckets: exact products against what the tables say, to either order."""

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.buckets import Buckets
from pld_accountant.counting.interpolation import UNITS, Shares
from pld_accountant.engine.plancherel import solve
from pld_accountant.engine.tilting import Limits
from pld_accountant.tables import errors
from pld_accountant.tables.characteristic import SpectralMaker
from pld_accountant.tables.interpolated import add_second_order, join
from pld_accountant.tables.table import COLUMNS, Table


def logs(table: Table) -> np.ndarray:
    """log M at every frequency, of each bucket."""
    assert table.own is not None
    m = table.frequencies
    log = table.own[:, :1] + 1j * table.own[:, 1:2] * (2.0 * np.pi / table.period * np.arange(m + 1))
    log[:, 1:] += table.columns[:, COLUMNS : COLUMNS + m] + 1j * table.columns[:, COLUMNS + m : COLUMNS + 2 * m]
    return log


def test_error_of_a_lottery():
    rng = np.random.default_rng(3)
    x = rng.normal(0.0, 1.0, 20_000) + 1j * rng.uniform(-3.0, 3.0, 20_000)
    x[::2] *= rng.choice([1e-3, 0.1, 1.0], 10_000)
    w = rng.random(20_000)
    w[:2000] = 0.5
    error = np.abs(np.log(1.0 - w + w * np.exp(x)) - w * x)
    assert np.all(error <= errors.lottery(x) * (1.0 + 1e-12) + 1e-15)
    # at the worst it is all of the bound
    assert errors.lottery(np.array([0.01 + 0.0j]))[0] == pytest.approx(np.log(np.cosh(0.005)), rel=1e-4)
    big = np.array([50.0])
    assert np.log1p(0.5 * np.expm1(50.0)) - 25.0 <= errors.lottery(big)[0] <= 50.0
    assert errors.lottery(np.array([3.1j]))[0] == 1e4
    assert errors.lottery(np.array([0.1j]), 0.1)[0] >= errors.lottery(np.array([0.2j]))[0]


def test_error_of_a_lottery_beyond_the_second_order():
    rng = np.random.default_rng(8)
    x = rng.normal(0.0, 1.0, 20_000) + 1j * rng.uniform(-3.0, 3.0, 20_000)
    x[::2] *= rng.choice([0.01, 0.1, 1.0], 10_000)
    w = rng.random(20_000)
    error = np.abs(np.log(1.0 - w + w * np.exp(x)) - w * x - 0.5 * w * (1.0 - w) * x**2)
    bound = errors.lottery_beyond(x, np.zeros(x.size))
    assert np.all(error <= bound * (1.0 + 1e-12) + 1e-15)
    assert (error / bound)[np.abs(x) > 0.05].max() > 0.3
    # an error of x: the second order of x + e is within the bound for x
    e = 0.1 * np.abs(x) * np.exp(2j * np.pi * rng.random(x.size))
    apart = np.abs(np.log(1.0 - w + w * np.exp(x)) - w * x - 0.5 * w * (1.0 - w) * (x + e) ** 2)
    assert np.all(apart <= errors.lottery_beyond(x + e, np.abs(e)) * (1.0 + 1e-12) + 1e-15)
    assert errors.lottery_beyond(np.array([3.1j]), np.zeros(1))[0] == 1e4


def table_of(group: Buckets, theta: float = 20.0, period: float = 2.0, width: float = 40.0, lotteries: int = 1):
    made = SpectralMaker(group.sigma, np.full(group.size, group.sample_rate), "remove", lotteries=lotteries)
    return made, made.table(theta, period, width, np.ones(group.size, dtype=bool))


def test_a_table_has_room_for_lotteries():
    """Exact products of lotteries against fractional powers, where nothing else errs: few buckets, many steps."""
    group = Buckets.make(0.8, 0.05, 12)
    _, table = table_of(group)
    m = table.frequencies
    log = logs(table)
    rng = np.random.default_rng(4)
    used = 0.0
    for _ in range(30):
        exact, counts = np.zeros(m + 1, dtype=complex), np.zeros(group.size)
        for bucket in rng.integers(1, group.size, 20):
            w = rng.choice([0.5, rng.random()])
            exact += np.log1p(w * np.expm1(log[bucket] - log[bucket - 1])) + log[bucket - 1]
            counts[bucket] += w
            counts[bucket - 1] += 1.0 - w
        room = counts @ table.columns[:, COLUMNS + 2 * m :]
        room = np.append(room[0], room[2:])
        apart = exact - counts @ log
        apart = apart.real + 1j * (apart.imag - 2.0 * np.pi * np.round(apart.imag / (2.0 * np.pi)))
        assert np.all(np.abs(apart) <= room)
        used = max(used, float((np.abs(apart) / room).max()))
    assert used > 0.2


def test_neighbours_that_are_filled_later_are_joined():
    group = Buckets.make(2.0, 0.01, 10)
    made = SpectralMaker(group.sigma, np.full(10, 0.01), "remove", lotteries=1)
    some = np.arange(10) % 2 == 0
    table = made.table(20.0, 2.0, 40.0, some)
    m = table.frequencies
    assert not table.columns[:, COLUMNS + 2 * m :].any()
    table = made.table(20.0, 2.0, 40.0, np.ones(10, dtype=bool))
    _, whole = table_of(group)
    np.testing.assert_allclose(table.columns, whole.columns, rtol=1e-12, atol=1e-300)


def test_groups_are_not_joined():
    sigma, q = np.array([8.0, 4.0, 2.0, 6.0, 3.0]), np.array([0.01, 0.01, 0.01, 0.02, 0.02])
    assert SpectralMaker(sigma, q, "remove", lotteries=1).neighbours.tolist() == [True, True, False, True]
    assert not SpectralMaker(sigma, q, "remove").neighbours.any()
    assert not SpectralMaker(sigma[:3], np.ones(3), "remove", lotteries=1).neighbours.any()


def test_log_moments_have_room_for_lotteries():
    group = Buckets.make(0.8, 0.05, 6)
    sigma, q = group.sigma, np.full(6, 0.05)
    theta = np.array([0.5, 4.0, 30.0])
    plain = SpectralMaker(sigma, q, "remove").log_moments(theta)
    roomy = SpectralMaker(sigma, q, "remove", lotteries=1).log_moments(theta)
    w = np.linspace(0.0, 1.0, 41)[:, None]
    for k in range(1, 6):
        exact = np.logaddexp(np.log1p(-w[1:-1]) + plain[k - 1], np.log(w[1:-1]) + plain[k])
        assert np.all((1.0 - w[1:-1]) * roomy[k - 1] + w[1:-1] * roomy[k] >= exact - 1e-12)
        assert np.any((1.0 - w[1:-1]) * plain[k - 1] + w[1:-1] * plain[k] < exact - 1e-6)


def test_exponents_to_the_second_order():
    """What is summed up, what the variances may do and what is left make up for all that lotteries add."""
    group = Buckets.make(2.0, 0.01, 12)
    _, table = table_of(group, lotteries=2)
    assert table.second is not None
    m, log = table.frequencies, logs(table)
    rng = np.random.default_rng(4)
    used = 0.0
    for _ in range(30):
        exact, counts, number, won, variance = np.zeros(m + 1, dtype=complex), *np.zeros((4, group.size))
        for bucket in rng.integers(1, group.size, 10):
            w = rng.choice([0.0, 0.5, 1.0, rng.random()])
            exact += np.log1p(w * np.expm1(log[bucket] - log[bucket - 1])) + log[bucket - 1]
            counts[bucket] += w
            counts[bucket - 1] += 1.0 - w
            number[bucket] += 1.0
            won[bucket] += w
            variance[bucket] += w * (1.0 - w)
        half = 0.5 * won * (number - won) / np.maximum(number, 1.0)
        exponents = (counts @ table.columns)[None]
        add_second_order(exponents, table, number[None] * (half > 0.0), half[None])
        row = exponents[0]
        known = np.full(m + 1, row[0], dtype=complex)
        known[1:] += row[COLUMNS : COLUMNS + m] + 1j * row[COLUMNS + m : COLUMNS + 2 * m]
        known += 1j * (counts @ table.own[:, 1]) * (2.0 * np.pi / table.period * np.arange(m + 1))
        room = np.expm1(np.minimum(np.append(row[COLUMNS + 2 * m], row[COLUMNS + 2 * m + 2 :]), 700.0))
        apart = np.abs(np.expm1(exact - known) - (variance - half) @ table.second)
        assert np.all(apart <= room * (1.0 + 1e-9))
        used = max(used, float((apart / room).max()))
    assert used > 0.1


def test_variances_at_their_ends():
    """Many lotteries with small differences, none of them in doubt: what is left is of second order in V."""
    group = Buckets.make(2.0, 0.01, 40)
    _, table = table_of(group, lotteries=2)
    assert table.second is not None
    m, log = table.frequencies, logs(table)
    bucket = 20
    n = 0.5 * 8.0 / np.abs(table.second[bucket]).max()
    counts, number, half = np.zeros((3, 1, group.size))
    counts[0, bucket - 1] = counts[0, bucket] = n / 2
    number[0, bucket], half[0, bucket] = n, n / 8
    exponents = counts @ table.columns
    add_second_order(exponents, table, number, half)
    room = np.expm1(np.append(exponents[0, COLUMNS + 2 * m], exponents[0, COLUMNS + 2 * m + 2 :]))
    # all lotteries are 0 or 1: exactly the two edges' product
    shift = -half[0, bucket] * table.second[bucket]
    apart = np.abs(np.expm1(shift) - shift)
    assert np.all(apart <= room)
    assert (apart / room).max() > 0.5
    assert np.ptp(log[bucket].real) > 0.0


def test_the_envelope_has_room_for_lotteries():
    group = Buckets.make(1.0, 0.05, 8)
    for lotteries in (1, 2):
        _, table = table_of(group, theta=4.0, lotteries=lotteries)
        assert table.own is not None
        top = table.own[:, 0] + table.own[:, 2]  # log sup |M| beyond the band
        w = np.linspace(0.0, 1.0, 41)[1:-1]
        needed = False
        for k in range(1, 8):
            exact = np.logaddexp(np.log1p(-w) + top[k - 1], np.log(w) + top[k])
            base = (1.0 - w) * table.own[k - 1, 0] + w * table.own[k, 0]
            assert np.all((1.0 - w) * table.columns[k - 1, 2] + w * table.columns[k, 2] >= exact - base - 1e-12)
            needed |= bool(np.any((1.0 - w) * top[k - 1] + w * top[k] < exact - 1e-9))
        assert needed


def test_errors_of_fractional_powers():
    """(1 + e)^c for a fraction c of a step: relative errors, which are all that a power without a first factor has."""
    group = Buckets.make(2.0, 0.01, 6)
    made, table = table_of(group)
    assert table.own is not None
    table.own[:, 9] = 0.0
    table.own[:, 8] = [1e-9, 0.3, 0.5, 0.6, 1e-12, 1e-3]
    table.own[:, 4] = [1e-16, 1e-12, 1e-16, 1e-16, 1e-10, 1e-16]
    join(table, made.neighbours)
    assert np.all(table.columns[:, [3, 7]] >= 1e200)
    for k, e in enumerate(table.own[:, 8]):
        for c in (0.1, 0.5, 1.0):
            allowed = np.expm1(min(c * table.columns[k, 8], 700.0))
            assert np.expm1(-c * np.log1p(-e)) <= allowed * (1.0 + 1e-12)
            assert -np.expm1(c * np.log1p(-e)) <= allowed
    assert table.columns[3, 8] >= 1e200  # nothing is proven with an error of more than a half
    # either edge's round-off of K may be a lottery's
    np.testing.assert_array_equal(table.columns[:, 4], [1e-12, 1e-12, 1e-12, 1e-10, 1e-10, 1e-10])


@pytest.mark.parametrize("lotteries", [1, 2])
def test_round_off_of_phases_that_went_round(lotteries):
    """A matrix product's error grows with its terms, which are beyond pi where phases are followed."""
    group = Buckets.make(0.5, 0.1, 40)
    _, table = table_of(group, theta=3.0, period=8.0, width=256.0, lotteries=lotteries)
    m = table.frequencies
    im = np.abs(table.columns[:, COLUMNS + m : COLUMNS + 2 * m])
    assert im.max() > 2.0 * np.pi
    room = table.columns[:, COLUMNS + 2 * m + 2 :]
    assert np.all(room >= (group.size + 8) * 2.0**-52 * (im - np.pi))


def log_delta_of(table: Table, exponent: np.ndarray, epsilon: float) -> float:
    omega = 2.0 * np.pi / table.period * np.arange(table.frequencies + 1)
    terms = table.weight * np.exp(exponent - exponent[0] - 1j * omega * epsilon)
    return float(exponent[0].real - table.theta * epsilon + np.log(terms.sum().real))


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_bounds_hold_whatever_the_variances(direction):
    """The same numbers of steps and wins: chances of one half, of 0 and 1, and the bounds of both at once."""
    group = Buckets.make(1.0, 0.02, 16)
    q = np.full(group.size, group.sample_rate)
    counts, short = np.zeros((1, group.size), dtype=np.uint16), np.zeros((1, group.size), dtype=np.int32)
    counts[0, [9, 14]] = 400, 1000
    short[0, [9, 14]] = 200 * UNITS, 500 * UNITS
    made = SpectralMaker(group.sigma, q, direction, lotteries=2)
    epsilon = 3.0 if direction == "remove" else 1.5
    limits = Limits(frequencies=1 << 12)
    found = solve(Shares(counts, short, [group]), made, np.array([epsilon]), solve_epsilon=False, limits=limits)
    assert found.solved[0]
    table = made.table(2.0 if direction == "remove" else 8.0, 64.0, 128.0, np.ones(group.size, dtype=bool))
    assert table is not None
    log = logs(table)
    apart = np.diff(log, axis=0)
    pair = np.array([8, 13])
    n = np.array([400.0, 1000.0])
    whole = n / 2 @ (log[pair] + log[pair + 1])
    even = n @ (log[pair] + np.log1p(0.5 * np.expm1(apart[pair])))
    least, most = log_delta_of(table, whole, epsilon), log_delta_of(table, even, epsilon)
    assert found.lower[0] <= least
    assert most <= found.upper[0]
    # which is all of the room that there is
    assert most > least
    assert found.upper[0] - found.lower[0] < 1.3 * (most - least)


def test_far_tails_are_served_by_shares():
    """Where a few large losses decide, the tilted law falls into two, and Q is too small for the first order."""
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
    """Where a lottery's exponent is past every use there is no bound, rather than one that was cut off."""
    from pld_accountant.kernels import invert as kernel

    group = Buckets.make(2.0, 0.01, 64)
    _, table = table_of(group, theta=8.0, period=16.0, width=64.0)
    row = np.full((1, 64), 20.0) @ table.columns
    m = table.frequencies
    helper = np.array([[40.0, 10.0, 10.0, 1.0]])
    for exponent, proven in ((row[:, COLUMNS + 2 * m :].copy(), True), (5000.0, False)):
        row[:, COLUMNS + 2 * m :] = exponent
        out = np.empty((1, 5))
        kernel.bound_people(
            row, table.weight, table.setting(4), helper, np.array([-11.5]), True, np.array([1.0]), out
        )  # fmt: skip
        assert np.isfinite(out[0, 2]) == proven
