"""Spectral tables: exact characteristic functions, made at once or row by row."""

import highprecision as hp
import mpmath
import numpy as np
import pytest
from scipy import special

from pld_accountant.engine.schedule import FEW, Tables
from pld_accountant.kernels import characterise
from pld_accountant.tables.characteristic import SpectralMaker
from pld_accountant.tables.table import COLUMNS

ALL = np.array([True, True, True])
SIGMA, Q = np.array([2.0, 0.7, 30.0]), np.array([0.005, 0.3, 0.05])


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
    maker = SpectralMaker(SIGMA, Q, direction)
    table = maker.table(theta, period, width, ALL)
    m, row = table.frequencies, table.columns[bucket]
    with mpmath.workdps(25):
        integral = direct(SIGMA[bucket], Q[bucket], direction, theta)
        mass = integral(0).real
        assert abs(mpmath.log(mass) - row[0]) <= row[4]
        for f in (1, m):
            omega = 2 * mpmath.pi * f / period
            value = mpmath.exp(mpmath.mpc(row[COLUMNS + f - 1], row[COLUMNS + m + f - 1]))
            assert abs(value - integral(omega) / mass * mpmath.expj(-omega * row[1])) <= row[3] + row[7] * omega


def test_the_mean_is_the_tilted_mean():
    table = SpectralMaker(SIGMA, Q, "remove").table(3.0, 16.0, 8.0, ALL)
    for bucket in (0, 1):
        mean = float(hp.law(SIGMA[bucket], Q[bucket], "remove", 3.0).mean)
        assert table.columns[bucket, 1] == pytest.approx(mean, rel=1e-13)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_full_batch_is_the_gaussian(direction):
    theta, period, width = 4.0, 4.0, 32.0
    table = SpectralMaker(np.array([0.5, 2.0]), np.ones(2), direction).table(theta, period, width, ALL[:2])
    omega = 2.0 * np.pi / period * np.arange(1, table.frequencies + 1)
    for row, mu in zip(table.columns, (2.0, 0.5), strict=True):
        assert row[0] == theta * (theta + 1.0) * mu**2 / 2.0
        assert row[1] == pytest.approx((theta + 0.5) * mu**2, rel=1e-15)
        assert row[COLUMNS : COLUMNS + omega.size] == pytest.approx(-0.5 * (mu * omega) ** 2, rel=1e-14)
        assert not row[COLUMNS + omega.size :].any()


def test_a_sample_rate_near_one_is_continuous():
    theta, period, width = 4.0, 4.0, 16.0
    for direction in ("remove", "add"):
        pair = SpectralMaker(np.array([1.0, 1.0]), np.array([1.0 - 2.0**-50, 1.0]), direction)
        near, full = pair.table(theta, period, width, ALL[:2]).columns
        m = (near.size - COLUMNS) // 2
        assert near[0] == pytest.approx(full[0], rel=1e-12)
        assert near[1] == pytest.approx(full[1], rel=1e-12)
        phi = np.exp(near[COLUMNS : COLUMNS + m] + 1j * near[COLUMNS + m :])
        assert np.abs(phi - np.exp(full[COLUMNS : COLUMNS + m])).max() < 1e-11


def test_rows_filled_on_demand_equal_rows_filled_at_once():
    theta, period, width = 2.0, 8.0, 16.0
    at_once = SpectralMaker(SIGMA, Q, "remove").table(theta, period, width, ALL)
    maker = SpectralMaker(SIGMA, Q, "remove")
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
    together = SpectralMaker(SIGMA, Q, "add").table(theta, period, width, ALL).columns[1]
    alone = SpectralMaker(SIGMA[1:2], Q[1:2], "add").table(theta, period, width, ALL[:1]).columns[0]
    same = np.ones(alone.size, dtype=bool)
    same[[2, 4, 7, 9]] = False  # envelope (its ladder reaches further for other buckets) and the round-off columns
    assert np.array_equal(together[same], alone[same])
    assert np.all(together[[4, 7, 9]] >= alone[[4, 7, 9]])


def test_what_would_cost_too_much_is_refused():
    maker = SpectralMaker(np.array([0.3]), np.array([1e-5]), "remove")
    assert maker.table(1.0, 32.0, 2.0**14, ALL[:1]) is None


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_log_moments_are_never_below_the_truth(direction):
    sigma, q = np.array([0.4, 2.0, 10.0, 1.0]), np.array([0.1, 0.005, 0.9, 1.0])
    maker = SpectralMaker(sigma, q, direction)
    theta = np.array([2.0**-18, 0.3, 7.0, 60.0])
    found = maker.log_moments(theta)
    for i in range(4):
        for j, t in enumerate(theta):
            exact = hp.law(sigma[i], q[i], direction, t).k
            assert exact <= found[i, j] <= float(exact) * (1.0 + 1e-9) + 1e-13
    # remembered values are the same values, in the order that is asked for
    assert np.array_equal(maker.log_moments(theta[::-1]), found[:, ::-1])


def test_where_nodes_run_out_the_gaussian_bounds_the_log_moment():
    sigma, theta = 0.3, 50.0
    maker = SpectralMaker(np.array([sigma]), np.array([0.5]), "remove")
    assert maker.log_moments(np.array([2.0**30]))[0, 0] >= 2.0**30 * (2.0**30 + 1.0) / (2.0 * sigma**2)
    k = np.empty(1)
    nothing = np.zeros(1, dtype=np.int64)
    law = maker.sigma, maker.q, 1.0, theta, maker.part, 0.0
    characterise.log_moments(*law, np.zeros((1, 2)), np.zeros((2, 0)), nothing, k, k.copy())
    assert k[0] == theta * (theta + 1.0) / (2.0 * sigma**2)
    assert k[0] >= hp.law(sigma, 0.5, "remove", theta).k


def test_many_frequencies_keep_their_digits():
    """The recurrence over frequencies: the last of four thousand against the closed form of a lattice-free Gaussian."""
    n, m = 400, 4096
    d = np.linspace(-9.0, 9.0, n)
    weight = np.exp(-0.5 * d * d)
    re, im = np.empty(m), np.empty(m)
    characterise._harmonics(weight, d, weight.sum(), 1e-3, re, im)
    omega = 1e-3 * np.arange(1, m + 1)
    assert np.abs(np.exp(re + 1j * im) - np.exp(-0.5 * omega**2)).max() < 6.0 * 32 * 2.0**-53


@pytest.mark.parametrize(
    ("sigma", "q", "theta"),
    [(0.3, 0.5, 3.0), (2.0, 0.005, 1e3), (100.0, 1e-5, 4e6), (0.2, 1e-6, 1e4), (1.0, 0.999, 7.0)],
)
def test_the_ends_hold_the_one_maximum_of_addition(sigma, q, theta):
    ends = np.empty((1, 2))
    law = np.array([sigma]), np.array([q]), -1.0, theta, np.array([[-np.inf, np.inf]]), 0.0
    characterise.interval(*law, 10.0, ends)
    low, high = ends[0] + 10.0 * sigma * np.array([1.0, -1.0])

    def slope(x):
        return -theta * special.expit((2 * x - 1) / (2 * sigma**2) + special.logit(q)) - x

    assert slope(low) > 0.0 > slope(high)
    assert high - low < 0.1 * sigma


def test_a_law_that_ends_is_the_whole_one_but_for_what_goes_to_infinity():
    sigma, q, theta, reach = 1.5, 0.01, 3.0, 6.0
    whole = SpectralMaker(np.array([sigma]), np.array([q]), "remove")
    short = whole.variant(reach)
    assert short.variant(np.inf).whole
    assert not short.whole
    top = float(short.part[0, 1])
    with mpmath.workdps(25):
        beyond = float((1 - mpmath.mpf(q)) * mpmath.ncdf(-top / sigma) + q * mpmath.ncdf((1 - top) / sigma))
        assert beyond == pytest.approx(float(mpmath.ncdf(-reach)), rel=1e-9)
    long_row, row = (m.table(theta, 8.0, 16.0, ALL[:1]).columns[0] for m in (whole, short))
    assert beyond <= -np.expm1(-row[5]) <= beyond * (1.0 + 1e-9)
    assert long_row[5] == 0.0
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
    assert abs(float(kept - row[0])) <= row[4]
    assert float(kept) <= short.log_moments(np.array([theta]))[0, 0] <= float(kept) + 1e-13
    phi, long_phi = (np.exp(r[COLUMNS : COLUMNS + 20] + 1j * r[COLUMNS + 20 : COLUMNS + 40]) for r in (row, long_row))
    assert 1e-12 < np.abs(phi - long_phi).max() < 1e-3


def test_few_steps_of_a_law_that_ends_lie_between_the_same_bounds(monkeypatch):
    """The truncated tables and the lattice share nothing but the mechanism."""
    import pld_accountant as pa

    # few steps would not come to the truncated tables
    monkeypatch.setattr("pld_accountant.engine.solver.FEW", [a for a in FEW if isinstance(a, Tables) and a.ends])
    composed = pa.compose([(pa.SampledGaussian(2.0, 0.005), 3)])
    bounds = composed.epsilon(1e-3, "remove")
    assert bounds.upper - bounds.lower <= 1e-8 * bounds.upper
    assert 0.0022588202825 <= bounds.lower <= bounds.upper <= 0.0022588203435  # a lattice of 2^20 points
