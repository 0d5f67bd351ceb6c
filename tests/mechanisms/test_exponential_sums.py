"""mechanisms/exponential_sums.py: sums agree with sums node by node in higher precision, within errors not idle."""

import math

import numpy as np
import pytest

from pld_accountant.kernels import nonuniform
from pld_accountant.mechanisms import exponential_sums
from pld_accountant.mechanisms.exponential_sums import excess_at, excess_of_row, log_of_excess, products

UNIT = 2.0**-53


def nodes(number, skew, seed=1):
    """Weights and centred losses with a long tail on one side, as a rare step has them."""
    rng = np.random.default_rng(seed)
    d = np.sort(1e-3 * np.expm1(skew * rng.normal(size=number)))
    p = rng.random(number)
    p /= p.sum()
    return p, d - p @ d


def exact(p, d, omega):
    """The sum in extended precision."""
    turn = np.multiply.outer(omega.astype(np.longdouble), d.astype(np.longdouble))
    half = np.sin(0.5 * turn)
    return ((-2.0 * half * half) @ p.astype(np.longdouble)).astype(float) + 1j * (np.sin(turn) @ p).astype(float)


def transformed(p, d, spacing, m):
    """The sums of one row by a transform, and their error."""
    (found,), (error,), (slope,) = excess_at(p[None], d[None], spacing, m)
    return found, error, slope


CASES = [(2000, 1.5, 0.3, 5000), (500, 0.5, 0.02, 700), (3000, 2.5, 1.2, 3000), (50, 1.0, 5.0, 64), (40, 0.1, 1e-3, 9)]


@pytest.mark.parametrize("sums", [excess_of_row, transformed])
@pytest.mark.parametrize(("number", "skew", "turns", "m"), [*CASES, (2, 1.0, 0.3, 200_000), (1, 1.0, 0.4, 1)])
def test_sums_err_by_at_most_their_error(number, skew, turns, m, sums):
    """`turns`: how often the farthest loss turns around the circle from one frequency to the next."""
    p, d = nodes(number, skew) if number > 1 else (np.ones(1), np.ones(1))
    spacing = 2.0 * np.pi * turns / np.abs(d).max()
    found, error, slope = sums(p, d, spacing, m)
    j = np.unique(np.geomspace(1, m, 60).astype(int))
    omega = spacing * j
    off = np.abs(found[j - 1] - exact(p, d, omega))
    assert np.all(off <= error + slope * omega)
    # low frequencies keep their digits: the error is relative to omega E|d|
    assert np.all(error + slope * omega <= 1e4 * UNIT * omega * (p @ np.abs(d)) + 1e-13)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_few_frequencies_have_a_grid_as_long_as_the_window(m, monkeypatch):
    """Half a million nodes at one frequency: a window that is longer than its grid was written beyond the end."""
    sizes = []
    spread = nonuniform.spread

    def watched(p, d, reach, scale, decay, half, grid):
        sizes.append((2 * half, grid.shape[1]))
        spread(p, d, reach, scale, decay, half, grid)

    monkeypatch.setattr(nonuniform, "spread", watched)
    p, d = nodes(3000, 1.5)
    spacing = 2.0 * np.pi * 0.9 / np.abs(d).max()
    found, error, slope = transformed(p, d, spacing, m)
    assert sizes and all(window <= size for window, size in sizes)
    omega = spacing * np.arange(1, m + 1)
    assert np.all(np.abs(found - exact(p, d, omega)) <= error + slope * omega)


def test_small_losses_have_an_error_of_their_own_size():
    p, d = nodes(1000, 0.5)
    spacing = 1e-9 / np.abs(d).max()
    found, error, slope = transformed(p, d, spacing, 100)
    omega = spacing * np.arange(1, 101)
    assert error == 0.0
    assert slope * omega[-1] < 1e-21
    assert np.all(np.abs(found - exact(p, d, omega)) <= slope * omega)


@pytest.mark.parametrize(("name", "value"), [("_LOG_ERROR", 10.0), ("_TERMS", 8), ("_OVERSAMPLED", 3)])
def test_each_error_shows_when_its_cause_grows(monkeypatch, name, value):
    """Folding and cutting off are bounded by what they do: a worse window has a larger error, which still holds."""
    p, d = nodes(400, 1.5)
    spacing, m = 2.0 * np.pi * 0.7 / np.abs(d).max(), 512
    omega = spacing * np.arange(1, m + 1)
    truth = exact(p, d, omega)
    monkeypatch.setattr(exponential_sums, name, value)
    monkeypatch.setattr(exponential_sums, "_FACTORIALS", np.cumprod(np.arange(1.0, exponential_sums._TERMS + 1.0)))
    found, error, slope = transformed(p, d, spacing, m)
    off = np.abs(found - truth)
    if name == "_LOG_ERROR":
        assert np.all(off <= error + slope * omega)
        assert off.max() > 1e-9
        assert off.max() > 1e-3 * (error + slope * omega).max()
    elif name == "_TERMS":
        # the series is not cut off unseen: fewer terms than 24 break the bound
        assert np.any(off > error + slope * omega)
    else:
        assert np.all(off <= error + slope * omega)


def test_the_grid_holds_each_far_weight_with_its_window():
    p, d, decay, half, size = np.array([[0.25, 0.0]]), np.array([[-1.3, 9.0]]), 0.2, 12, 64
    grid = np.empty((1, size))
    nonuniform.spread(p, d, 0.5, 4.0, decay, half, grid)
    place = -1.3 * 4.0
    points = np.arange(math.floor(place) - half + 1, math.floor(place) + half + 1)
    expected = np.zeros(size)
    expected[points % size] = 0.25 * np.exp(-decay * (points - place) ** 2)
    assert grid[0] == pytest.approx(expected, rel=1e-14)
    nonuniform.spread(p, d, 1.3, 4.0, decay, half, grid)
    assert not grid.any()


def test_the_sums_of_near_losses_are_compensated():
    """A million equal terms: a plain sum would lose four digits."""
    p, d = np.full((1, 1_000_000), 0.1), np.full((1, 1_000_000), 0.3)
    moments, far = np.empty((1, 2)), np.empty(1)
    nonuniform.near_moments(p, d, 1.0, moments, far)
    assert far[0] == 0.0 and abs(moments[0, 0] / (0.1 * 0.3 * 1e6) - 1.0) < 4e-16
    nonuniform.near_moments(p, d, 0.1, moments, far)
    assert far[0] == pytest.approx(1e5, rel=4e-16)


def test_errors_grow_with_what_they_count():
    """The numbers that the module derives: random losses show a thirtieth of them."""
    p, d = nodes(600, 0.5)
    spacing, m = 1e-3 / np.abs(d).max(), 100
    loss = UNIT * (p @ np.abs(d))
    assert transformed(p, d, spacing, m)[1:] == pytest.approx((0.0, 150.0 * loss), rel=1e-12, abs=0.0)
    units = 3 * 256 + 600 / 256 + 5.0 * math.log2(101) + 40.0
    assert excess_of_row(p, d, spacing, m)[1:] == pytest.approx((0.0, units * loss), rel=1e-12, abs=0.0)


def test_low_frequencies_of_a_higher_level_have_its_error(monkeypatch):
    """The far losses of 512 frequencies are near for the first 64 of them, whose level has no error."""
    monkeypatch.setattr(exponential_sums, "_LOG_ERROR", 10.0)
    p, d = np.full(3, 1.0 / 3.0), np.array([-1.0, 0.3, 0.7])
    spacing, m = 10.0 / 512, 512
    omega = spacing * np.arange(1, m + 1)
    found, error, slope = transformed(p, d, spacing, m)
    off = np.abs(found - exact(p, d, omega))
    assert error == 0.0 and off.max() > 1e-9 and np.all(off <= slope * omega)


def test_the_digits_of_a_matrix_product():
    """Its error is a few units of omega E|d|, far below what a thousandth of its bound allows for more."""
    p, d = nodes(300, 0.5)
    spacing, m = 2.0 / np.abs(d).max(), 256
    found, error, slope = excess_of_row(p, d, spacing, m)
    omega = spacing * np.arange(1, m + 1)
    off = np.abs(found - exact(p, d, omega)) / omega
    assert error == 0.0 and 1e-3 * slope <= off.max() <= slope


def test_rows_of_other_lengths_end_with_zeros():
    p, d = nodes(300, 1.5)
    spacing, m = 1.0 / np.abs(d).max(), 64
    padded = [np.stack([np.concatenate([row, np.zeros(50)]), np.zeros(350)]) for row in (p, d)]
    found, error, slope = excess_at(*padded, spacing, m)
    of_row = transformed(p, d, spacing, m)
    assert np.all(found[0] == of_row[0]) and (error[0], slope[0]) == of_row[1:]
    assert not found[1].any() and error[1] == slope[1] == 0.0 < error[0]


def test_the_logarithm_near_one_and_near_zero():
    excess = np.array([1e-20 + 3e-21j, -1.0 + 1e-9j, -0.3 + 0.2j, -1.0])
    re, im = log_of_excess(excess)
    assert re[0] == pytest.approx(1e-20, rel=1e-15)
    assert im[0] == pytest.approx(3e-21, rel=1e-15)
    assert (re[1], im[1]) == (pytest.approx(math.log(1e-9)), pytest.approx(0.5 * math.pi))
    assert complex(re[2], im[2]) == pytest.approx(np.log(0.7 + 0.2j))
    assert re[3] == -700.0


def test_many_products_cost_less_than_they_count():
    assert products(20, 50) == 1000.0
    assert products(100_000, 50_000) < 0.01 * 100_000 * 50_000
    assert np.all(products(np.array([2.0, 1e6]), 10_000) == [products(2, 10_000), products(10**6, 10_000)])
