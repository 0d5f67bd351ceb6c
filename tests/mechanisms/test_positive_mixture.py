"""A mixture over one Gaussian at complex places: its logarithm, its round-off and its bounds on boxes."""

import math

import mpmath
import numpy as np
import pytest
from scipy import special

from pld_accountant.mechanisms.gaussian_mixture import GroupGaussian
from pld_accountant.mechanisms.positive_mixture import PositiveMixture, complex_expm1_less


def group(noise, rate, records):
    c, p, _, _ = GroupGaussian(noise, rate, records).pair
    return PositiveMixture.of(c, p).factored()


MIXTURES = {
    "rare": PositiveMixture.of(np.array([0.0, 2.0]), np.array([1.0 - 1e-5, 1e-5])),
    "frequent": PositiveMixture.of(np.array([0.0, 0.7]), np.array([0.6, 0.4])),
    "three": PositiveMixture.of(np.array([0.0, 1.0, 2.5]), np.array([0.9, 0.09, 0.01])),
    "without zero": PositiveMixture.of(np.array([0.4, 3.0]), np.array([0.25, 0.75])),
    "nearly full": PositiveMixture.of(np.array([0.0, 1.5]), np.array([1.0 - 0.9999, 0.9999])),
    "group, far apart": group(0.6, 1e-3, 5),
    "group, close": group(5.0, 0.3, 9),
}
mixtures = pytest.mark.parametrize("h", MIXTURES.values(), ids=MIXTURES)


def exact(h, x):
    """log h at a complex place, to 40 digits; the first weight is what the others leave of 1."""
    z = mpmath.mpc(x)
    terms = [mpmath.exp(mpmath.mpf(c) * z - mpmath.mpf(c) ** 2 / 2) for c in h.centres.tolist()]
    rest = zip(h.weights.tolist()[1:], terms[1:], strict=True)
    value = terms[0] + mpmath.fsum(mpmath.mpf(w) * (t - terms[0]) for w, t in rest)
    turns = round((float(followed(h, np.array(x)).imag) - float(mpmath.arg(value))) / (2.0 * math.pi))
    return mpmath.log(value) + 2j * mpmath.pi * turns


def followed(h, x):
    """log h from its terms; the argument is followed from the real line up in a hundred steps."""
    y = np.linspace(0.0, x.imag, 101)
    t = np.multiply.outer(h.centres, x.real + 1j * y)
    t += (np.log(h.weights) - 0.5 * h.centres**2).reshape(-1, *[1] * y.ndim)
    top = t.real.max(axis=0)
    value = np.exp(t - top).sum(axis=0)
    return top[-1] + np.log(np.abs(value[-1])) + 1j * np.angle(value[1:] / value[:-1]).sum(axis=0)


def test_binomial_mixtures_are_products():
    assert [h.factors for h in MIXTURES.values()] == [1, 1, 1, 1, 1, 5, 9]
    c, p, _, _ = GroupGaussian(2.0, 0.1, 3).pair
    assert PositiveMixture.of(c, p).factors == 1
    assert PositiveMixture.of(c, p).factored().turn == pytest.approx(0.5)
    for some in (p * [1.0, 1.0, 1.0, 1.0 + 1e-12], p[[0, 2, 1, 3]]):
        assert PositiveMixture.of(c, some / some.sum()).factored().factors == 1
    assert PositiveMixture.of(c * [1.0, 1.0, 1.0, 1.01], p).factored().factors == 1
    assert PositiveMixture.of(np.maximum(c, 0.1), p).factored().factors == 1


def test_zeros_of_binomial_mixtures_lie_on_one_line():
    """Roots of the polynomial in exp(t x), found by mpmath: all negative, so that Im x = pi / t."""
    for records, step, odds in ((4, 0.9, 0.4), (7, 0.25, 3.0), (9, 2.0, 1e-4)):
        a = [
            math.comb(records, j) * mpmath.mpf(odds) ** j * mpmath.exp(-((j * step) ** 2) / 2)
            for j in range(records + 1)
        ]
        with mpmath.workdps(60):
            for root in mpmath.polyroots(a, maxsteps=500, extraprec=2000, asc=True):
                assert root.real < 0.0
                assert abs(root.imag) < 1e-30 * abs(root.real)


@mixtures
def test_logarithms_are_within_their_round_off(h):
    rng = np.random.default_rng(1)
    x = rng.uniform(-9.0, 25.0, 200) + 1j * rng.uniform(-1.57, 1.57, 200) / h.turn
    found = h.log(x)
    units = h.units(x, np.zeros(200), found)
    with mpmath.workdps(40):
        for place, value, unit in zip(x.tolist(), found.tolist(), units.tolist(), strict=True):
            off = float(abs(mpmath.mpc(value) - exact(h, place)))
            assert off <= 2.0**-53 * unit
    small = np.abs(x) < 3.0
    assert np.all(units[small] < 1e4)


@mixtures
def test_boxes_bound_modulus_and_argument(h):
    """At random places of random boxes, also beyond the angle pi / 2 and across the real line."""
    rng = np.random.default_rng(2)
    left = rng.uniform(-6.0, 9.0, 300)
    right = left + rng.uniform(0.01, 1.5, 300)
    bottom = rng.uniform(-2.9, 2.2, 300) / h.turn
    top = bottom + rng.uniform(0.01, 0.75, 300) / h.turn
    boxes = h.boxes(left, right, bottom, top)
    u, v = rng.uniform(0.0, 1.0, (2, 300))
    u[:4], v[:4] = [0, 0, 1, 1], [0, 1, 0, 1]
    x = (left[:, None] + (right - left)[:, None] * u) + 1j * (bottom[:, None] + (top - bottom)[:, None] * v)
    value = followed(h, x)
    room = (
        boxes.high - value.real.max(axis=1),
        value.real.min(axis=1) - boxes.low,
        value.imag.min(axis=1) - boxes.argument,
    )
    for apart in room:
        assert apart.min() >= -1e-10
        assert np.median(apart) < 0.5


def by_coefficients(records, step, rate, x):
    """log |h| of a binomial mixture at complex x, to 60 digits."""
    with mpmath.workdps(60):
        odds = mpmath.mpf(rate) / (1 - mpmath.mpf(rate))
        a = [
            math.comb(records, j) * odds**j * mpmath.exp(-((j * mpmath.mpf(step)) ** 2) / 2) for j in range(records + 1)
        ]
        value = mpmath.polyval(a, mpmath.exp(step * mpmath.mpc(x)), asc=True) * (1 - mpmath.mpf(rate)) ** records
        return float(mpmath.log(abs(value)))


@pytest.mark.parametrize(
    ("records", "step", "rate", "x", "angle"),
    [
        # exponents beyond 700; a real part that is all round-off; many factors close to the angle pi / 2
        (20, 1.0, 6e-11, 45.797, 2.95),
        (20, 1.0, 6e-11, 45.797, 2.35),
        (20, 0.02, 0.5, 0.5273, 2.9875),
        (20, 0.02, 0.5, 1.8641, 2.99199),
        (30, 0.1, 0.5, 0.2, 2.5),
        (40, 0.05, 0.5, 0.5, 1.5),
        (100, 0.5, 0.01, 3.0, 0.4),
    ],
)
def test_boxes_of_many_factors_are_below_the_modulus(records, step, rate, x, angle):
    h = PositiveMixture(step * np.arange(records + 1.0), special.binom(records, np.arange(records + 1)), records)
    h = h._replace(weights=h.weights * rate ** np.arange(records + 1) * (1.0 - rate) ** np.arange(records, -1, -1))
    at, y = np.array([x]), np.array([angle / step])
    box, truth = h.boxes(at, at, y, y), by_coefficients(records, step, rate, complex(x, angle / step))
    assert box.low[0] <= truth <= box.high[0]
    # the round-off of a point is small where the arguments of the terms are
    assert angle > 1.0 or box.high[0] - box.low[0] < 1e-9


def test_a_lower_bound_stays_near_one_where_the_large_term_is_rare():
    """Beyond the angle pi / 2: sines and cosines of the angle alone would be 0.14 and 0.07 here."""
    h = MIXTURES["rare"]
    box = h.boxes(np.array([-0.5]), np.array([0.5]), np.array([2.0 / h.top]), np.array([2.9 / h.top]))
    assert box.low[0] > -1e-4


def test_a_single_gaussian_is_one():
    one = PositiveMixture.of(np.zeros(1), np.ones(1))
    assert one.trivial
    assert not one.log(np.array([3.0 + 1j])).any()
    assert not np.any(one.boxes(*np.ones((4, 2))).high)


@mixtures
def test_masses_on_both_sides_add_up(h):
    for x in (-3.0, 0.0, 2.0):
        assert h.mass_beyond(x) + h.mass_below(x) == pytest.approx(1.0, rel=1e-14)
    assert h.mass_beyond(30.0) < 1e-100


@pytest.mark.parametrize("size", [1e-9, 1e-3, 0.05, 0.07, 2.0])
def test_the_exponential_less_its_first_terms_keeps_its_digits(size):
    u = size * np.exp(1j * np.linspace(0.0, 6.0, 20))
    with mpmath.workdps(40):
        for z, found in zip(u.tolist(), complex_expm1_less(u).tolist(), strict=True):
            truth = mpmath.expm1(mpmath.mpc(z)) - mpmath.mpc(z)
            assert float(abs(mpmath.mpc(found) - truth)) <= 2.0**-53 * (24.0 * abs(found) + 16.0 * size * (size > 0.05))
