"""Powers, their sums, and the bounds of rules in compiled code, against many digits and plain formulas."""

import mpmath
import numpy as np
import pytest

from pld_accountant.kernels import contour

UNIT = 2.0**-53


def test_exponentials_err_by_four_units_at_most():
    """Also between two multiples of log 2, where the remainder is largest."""
    rng = np.random.default_rng(1)
    halves = np.log(2.0) * (np.arange(-1000, 1000) + 0.5)
    x = np.concatenate([rng.uniform(-708.0, 709.0, 2000), rng.uniform(-1.0, 1.0, 2000), halves, [0.0, -0.0]])
    with mpmath.workdps(40):
        off = [abs(mpmath.mpf(contour.exponential(v)) / mpmath.exp(mpmath.mpf(v)) - 1) / UNIT for v in x.tolist()]
    assert 1.0 < max(off) < 4.0


@pytest.mark.parametrize("size", [1.0, 100.0, 2.0**20])
def test_cosines_and_sines_err_by_three_units_at_most(size):
    """Also at and between multiples of a quarter turn."""
    rng = np.random.default_rng(2)
    quarters = np.pi / 4.0 * np.round(rng.uniform(-size, size, 500) / (np.pi / 4.0))
    with mpmath.workdps(40):
        for y in np.concatenate([rng.uniform(-size, size, 2000), quarters, [0.0]]).tolist():
            cosine, sine = contour.cosine_and_sine(y)
            assert abs(mpmath.mpc(cosine, sine) - mpmath.expj(y)) < 3.0 * UNIT


def test_exponentials_beyond_the_range_of_doubles():
    found = [contour.exponential(x) for x in (-np.inf, -1e300, -709.0, 710.0, 1e300, np.inf, np.nan)]
    np.testing.assert_array_equal(found, [0.0, 0.0, 0.0, np.inf, np.inf, np.inf, np.nan])


def test_exponentials_less_one_err_by_four_units_of_themselves():
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.uniform(-1.0, 1.0, 2000), 10.0 ** rng.uniform(-300, -1, 200), [-30.0, -700.0, 30.0, 700.0]])
    with mpmath.workdps(400):
        for v in x.tolist():
            truth = mpmath.expm1(mpmath.mpf(v))
            assert abs(contour.exponential_less_one(v) - truth) < 4.0 * UNIT * abs(truth)
    assert [contour.exponential_less_one(x) for x in (-1e3, 0.0, 1e3)] == [-1.0, 0.0, np.inf]


@pytest.mark.parametrize("size", [1.0, 1e-5])
def test_mixtures_less_one(size):
    """To some units of the sum of the terms' moduli, at small places, too."""
    centre, weight = np.array([0.0, 0.8, 2.0, 3.5]), np.array([0.7, 0.2, 0.09, 0.01])
    rng = np.random.default_rng(4)
    x, y = size * rng.uniform(-9.0, 9.0, 300), size * rng.uniform(-1.0, 1.0, 300)
    less = np.empty((2, x.size))
    contour.mixture_less_one(centre, weight, x, y, less)
    with mpmath.workdps(40):
        for real, imaginary, *place in zip(*less.tolist(), x.tolist(), y.tolist(), strict=True):
            z = mpmath.mpc(*place)
            exponents = [mpmath.mpf(c) * (z - mpmath.mpf(c) / 2) for c in centre.tolist()]
            terms = [w * mpmath.expm1(e) for w, e in zip(weight.tolist(), exponents, strict=True)]
            lost = sum(abs(w * mpmath.exp(e) * e) for w, e in zip(weight.tolist(), exponents, strict=True))
            allowed = 20.0 * sum(abs(t) for t in terms) + 4.0 * lost
            assert abs(mpmath.mpc(real, imaginary) - mpmath.fsum(terms)) <= UNIT * allowed


def moments(a, loss, weight):
    """The sum of w e^(A l) over large losses."""
    nodes = np.stack([loss.real, loss.imag, weight.real, weight.imag, np.abs(weight), np.zeros(loss.size)])
    found = np.empty((6, a.size))
    contour.moments(a.real.copy(), a.imag.copy(), nodes, 0, 0, loss.size, np.zeros(2) + 0j, np.zeros(3), found)
    return found[0] + 1j * found[1], found[2] / UNIT


@pytest.mark.parametrize("n", [1, 31, 32, 33, 500])
def test_sums_of_powers(n):
    """Over whole blocks and over a part of one; the error is the sum of the moduli."""
    rng = np.random.default_rng(n)
    loss, weight = rng.normal(0.0, 1.0, n) + 1j * rng.uniform(0.0, 1.5, n), rng.normal(0.0, 1.0, n) + 0.5j
    a = np.array([1.5 + 0j, 3.0 + 4.0j, -2.0 + 30.0j])
    terms = np.exp(np.multiply.outer(a, loss)) * weight
    found, size = moments(a, loss, weight)
    np.testing.assert_allclose(size, np.abs(terms).sum(axis=1), rtol=1e-13)
    assert np.all(np.abs(found - terms.sum(axis=1)) <= 1e-13 * size)


def test_a_power_whose_argument_is_too_large_makes_a_sum_infinite_unless_it_is_zero():
    one = np.ones(1) + 0j
    assert not np.isfinite(moments(np.array([1.0 + 2e6j]), one, one)[1][0])
    assert moments(np.array([-1e3 + 2e6j]), one, one) == (0.0, 0.0)
    assert np.isfinite(moments(np.array([1.0 + 1e6j]), one, one)[1][0])


def boxes_and_rates(rng, shape):
    """Random boxes, upper bounds above lower ones."""
    boxes = rng.normal(0.0, 2.0, (*shape, 6))
    for high, low in ((1, 2), (4, 5)):
        boxes[..., low] = boxes[..., high] - rng.uniform(0.0, 1.0, shape)
    return boxes, rng.normal(-20.0, 3.0, shape[:2])


def bound(boxes, a):
    """log of the bound of |f|: each modulus at the end that its exponent asks for."""
    height, high, low, turn, q_high, q_low = np.moveaxis(boxes, -1, 0)
    p = np.where(a.real > 0.0, high, low) * a.real
    return height + p - a.imag * turn + np.where(a.real < 1.0, q_high, q_low) * (1.0 - a.real)


@pytest.mark.parametrize("ends", [(1.5 + 0j, 1.5 + 3j), (0.5 + 1j, 4.0 + 2j), (-2.0 + 0j, -3.0 + 5j)])
def test_errors_of_rules(ends):
    """The best ellipse of a panel, the worst box, end and term on it, times 2."""
    boxes, rate = boxes_and_rates(np.random.default_rng(3), (7, 4, 6))
    worst = np.maximum.reduce([bound(boxes, ends[0]), bound(boxes, ends[1]), boxes[..., 0] + boxes[..., 4]])
    wanted = 2.0 * np.exp((worst.max(axis=2) + rate).min(axis=1)).sum()
    numbers = (v for a in ends for v in (a.real, a.imag))
    assert contour.rule_error(boxes, rate, *numbers) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("lost", [np.inf, np.nan])
def test_an_ellipse_without_a_bound_does_not_serve(lost):
    boxes, rate = boxes_and_rates(np.random.default_rng(4), (1, 2, 3))
    kept = contour.rule_error(boxes[:, 1:].copy(), rate[:, 1:].copy(), 1.5, 1.0, 1.5, 2.0)
    boxes[0, 0, 1, 0] = lost
    assert contour.rule_error(boxes, rate, 1.5, 1.0, 1.5, 2.0) == kept
    boxes[0, 1, 0, 3] = lost if np.isnan(lost) else -np.inf
    assert contour.rule_error(boxes, rate, 1.5, 1.0, 1.5, 2.0) == np.inf


def test_sums_of_upper_bounds():
    boxes = boxes_and_rates(np.random.default_rng(5), (20, 1, 1))[0].reshape(20, 6)
    size = np.linspace(0.1, 2.0, 20)
    for a in (1.5 + 1j, 3.0 + 9j):
        wanted = float(size @ np.exp(bound(boxes, a)))
        assert contour.upper_sum(boxes, size, a.real, a.imag) == pytest.approx(wanted, rel=1e-12)
