"""Tables from characteristic functions: exact ones, made at once or row by row."""

import itertools

import highprecision as hp
import mpmath
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine.question import EpsilonAt
from pld_accountant.engine.schedule import SINGLE
from pld_accountant.engine.solver import solve
from pld_accountant.engine.transform import Transform
from pld_accountant.kernels import _columns as c
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.tables.makers import TableMakers

ALL = np.array([True, True, True])
SIGMA, Q = np.array([2.0, 0.7, 30.0]), np.array([0.005, 0.3, 0.05])


def made(sigma, q, direction, reach=np.inf):
    """A maker of tables with a cache of its own."""
    return TableMakers(SampledGaussianSteps(sigma, q, direction)).characteristic(reach, interpolated=False)


def direct(sigma, q, direction, theta):
    """K and phi by mpmath's own adaptive quadrature, to some twenty digits."""
    s, r = mpmath.mpf(sigma), mpmath.mpf(q)
    power = mpmath.mpf(1 + theta if direction == "remove" else -theta)
    ends = [min(power, 0) - 12 * s, min(power, 0), max(power, 0) + s, max(power, 0) + 12 * s]

    def log_g(x):
        return mpmath.log(1 - r + r * mpmath.exp((2 * x - 1) / (2 * s * s)))

    def integral(omega):
        turn = 1j * omega if direction == "remove" else -1j * omega
        return mpmath.quad(lambda x: mpmath.npdf(x, 0, s) * mpmath.exp((power + turn) * log_g(x)), ends)

    return integral


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("bucket", [0, 1])
def test_spectrum_against_adaptive_quadrature(direction, bucket):
    theta, period, width = 3.0, 16.0, 8.0
    maker = made(SIGMA, Q, direction)
    table = maker.table(theta, period, width, ALL)
    row = table.columns[bucket]
    with mpmath.workdps(25):
        integral = direct(SIGMA[bucket], Q[bucket], direction, theta)
        mass = integral(0).real
        assert abs(mpmath.log(mass) - row[c.LOG_MOMENT]) <= row[c.LOG_MOMENT_ERROR]
        for f in (1, table.frequencies):
            omega = 2 * mpmath.pi * f / period
            value = mpmath.exp(mpmath.mpc(table.re[bucket, f - 1], table.im[bucket, f - 1]))
            exact = integral(omega) / mass * mpmath.expj(-omega * row[c.MEAN])
            assert abs(value - exact) <= row[c.ERROR] + row[c.ERROR_SLOPE] * omega


def test_the_mean_is_the_tilted_mean():
    table = made(SIGMA, Q, "remove").table(3.0, 16.0, 8.0, ALL)
    for bucket in (0, 1):
        mean = float(hp.law(SIGMA[bucket], Q[bucket], "remove", 3.0).mean)
        assert table.columns[bucket, c.MEAN] == pytest.approx(mean, rel=1e-13)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_full_batch_is_the_gaussian(direction):
    theta, period, width = 4.0, 4.0, 32.0
    table = made(np.array([0.5, 2.0]), np.ones(2), direction).table(theta, period, width, ALL[:2])
    omega = 2.0 * np.pi / period * np.arange(1, table.frequencies + 1)
    for k, mu in enumerate((2.0, 0.5)):
        assert table.columns[k, c.LOG_MOMENT] == theta * (theta + 1.0) * mu**2 / 2.0
        assert table.columns[k, c.MEAN] == pytest.approx((theta + 0.5) * mu**2, rel=1e-15)
        assert table.re[k] == pytest.approx(-0.5 * (mu * omega) ** 2, rel=1e-14)
        assert not table.im[k].any()


def test_a_sample_rate_near_one_is_continuous():
    theta, period, width = 4.0, 4.0, 16.0
    for direction in ("remove", "add"):
        pair = made(np.array([1.0, 1.0]), np.array([1.0 - 2.0**-50, 1.0]), direction)
        table = pair.table(theta, period, width, ALL[:2])
        near, full = table.columns
        assert near[c.LOG_MOMENT] == pytest.approx(full[c.LOG_MOMENT], rel=1e-12)
        assert near[c.MEAN] == pytest.approx(full[c.MEAN], rel=1e-12)
        phi = np.exp(table.log_phi())
        assert np.abs(phi[0] - phi[1]).max() < 1e-11


def test_rows_filled_on_demand_equal_rows_filled_at_once():
    theta, period, width = 2.0, 8.0, 16.0
    at_once = made(SIGMA, Q, "remove").table(theta, period, width, ALL)
    maker = made(SIGMA, Q, "remove")
    first = maker.table(theta, period, width, np.array([False, True, False]))
    assert first.filled.tolist() == [False, True, False]
    assert not first.columns[0].any()
    then = maker.table(theta, period, width, np.array([True, False, True]))
    assert then is first
    assert then.filled.all()
    assert np.array_equal(then.columns, at_once.columns)
    assert np.array_equal(then.weight, at_once.weight)


def test_a_bucket_does_not_depend_on_its_neighbours_except_for_the_product_round_off():
    theta, period, width = 2.0, 8.0, 16.0
    together = made(SIGMA, Q, "add").table(theta, period, width, ALL).columns[1]
    alone = made(SIGMA[1:2], Q[1:2], "add").table(theta, period, width, ALL[:1]).columns[0]
    same = np.ones(alone.size, dtype=bool)
    # the ladder of envelopes reaches further for other buckets
    round_off = [c.LOG_MOMENT_ERROR, c.ERROR_SLOPE, c.RELATIVE_SLOPE]
    same[[c.ENVELOPE, *round_off]] = False
    assert np.array_equal(together[same], alone[same])
    assert np.all(together[round_off] >= alone[round_off])


def test_what_would_cost_too_much_is_refused():
    maker = made(np.array([0.3]), np.array([1e-5]), "remove")
    assert maker.table(1.0, 32.0, 2.0**14, ALL[:1], work=1e6) is None
    assert maker.table(1.0, 32.0, 2.0**24, ALL[:1]) is None


def test_a_law_that_ends_is_the_whole_one_but_for_what_goes_to_infinity():
    sigma, q, theta, reach = 1.5, 0.01, 3.0, 6.0
    makers = TableMakers(SampledGaussianSteps(np.array([sigma]), np.array([q]), "remove"))
    whole, short = (makers.characteristic(r, interpolated=False) for r in (np.inf, reach))
    assert makers.characteristic(reach, interpolated=False) is short
    assert whole.whole
    assert not short.whole
    top = float(short.steps.part[0, 1])
    with mpmath.workdps(25):
        beyond = float((1 - mpmath.mpf(q)) * mpmath.ncdf(-top / sigma) + q * mpmath.ncdf((1 - top) / sigma))
        assert beyond == pytest.approx(float(mpmath.ncdf(-reach)), rel=1e-9)
    long, table = (m.table(theta, 8.0, 16.0, ALL[:1]) for m in (whole, short))
    row = table.columns[0]
    assert beyond <= -np.expm1(-row[c.INFINITE]) <= beyond * (1.0 + 1e-9)
    assert long.columns[0, c.INFINITE] == 0.0
    # E[exp(theta L)] beyond the end, by mpmath
    with mpmath.workdps(25):
        tail = mpmath.quad(
            lambda x: (
                mpmath.npdf(x, 0, sigma)
                * (1 - mpmath.mpf(q) + q * mpmath.exp((2 * x - 1) / (2 * sigma**2))) ** (1 + theta)
            ),
            [top, top + 3 * sigma, top + 20 * sigma],
        )
        kept = mpmath.log(mpmath.exp(hp.law(sigma, q, "remove", theta).k) - tail)
    assert abs(float(kept - row[c.LOG_MOMENT])) <= row[c.LOG_MOMENT_ERROR]
    assert float(kept) <= short.log_moments(np.array([theta]))[0, 0] <= float(kept) + 1e-13
    phi, long_phi = (np.exp(t.log_phi()[0]) for t in (table, long))
    assert 1e-12 < np.abs(phi - long_phi).max() < 1e-3


def test_addition_is_not_cut():
    makers = TableMakers(SampledGaussianSteps(np.array([1.5]), np.array([0.01]), "add"))
    assert makers.truncated(6.0) is makers.steps
    assert makers.characteristic(6.0, interpolated=False).whole


def test_the_envelope_of_a_wider_band_is_lower_and_above_phi():
    """The ladder of envelopes belongs to the tilt: a table takes the level at its own width."""
    maker = made(SIGMA, Q, "remove")
    tables = [maker.table(3.0, 16.0, width, ALL) for width in (2.0, 4.0, 8.0, 64.0)]
    envelopes = [t.columns[:, c.ENVELOPE] for t in tables]
    assert all(np.all(b <= a) for a, b in itertools.pairwise(envelopes))
    assert np.all(envelopes[0] > envelopes[-1])
    widest = tables[-1]
    for table in tables[:-1]:
        beyond = widest.re[:, table.frequencies :]
        assert np.all(beyond <= table.columns[:, [c.ENVELOPE]] + 1e-12)


def test_few_steps_of_a_law_that_ends_lie_between_the_same_bounds():
    """The truncated tables and the grid share nothing but the mechanism."""
    makers = TableMakers(SampledGaussianSteps(np.array([2.0]), np.array([0.005]), "remove"))
    # few steps would not come to the truncated tables
    methods = [m for m in SINGLE if isinstance(m, Transform) and m.truncated]
    found = solve(WholeCounts(np.array([[3]])), makers, EpsilonAt(1e-3), methods=methods)
    assert found.method[0] == pa.Method.TRANSFORM
    lower, upper = found.lower[0], found.upper[0]
    assert upper - lower <= 2e-7 * upper
    assert max(lower, 0.0022588202825) <= min(upper, 0.0022588203435)  # a grid of 2^20 points
