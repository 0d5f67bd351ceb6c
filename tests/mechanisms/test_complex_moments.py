"""Moments at complex exponents: the bounds of the path's rule and ends and of round-off, each against many digits."""

import math
from functools import cache
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from highprecision import gauss_legendre

from pld_accountant.kernels import contour
from pld_accountant.mechanisms import complex_moments
from pld_accountant.mechanisms.complex_law import ComplexLaw
from pld_accountant.mechanisms.complex_moments import ComplexMoments, boxes_of
from pld_accountant.mechanisms.gaussian_mixture import GroupGaussian

NONE = (np.zeros(1), np.ones(1))


def sampled(sigma, q):
    return (np.array([0.0, 1.0 / sigma]), np.array([1.0 - q, q])), NONE


def replaced(sigma, q):
    weights = np.array([1.0 - q, q])
    return (np.array([1.0, 2.0]) / sigma, weights), (np.array([1.0, 0.0]) / sigma, weights)


LAWS = {
    "little noise": sampled(0.5, 1e-3),
    "rare": sampled(1.0, 1e-5),
    "frequent": sampled(1.0, 0.3),
    "much noise": sampled(2.5, 0.01),
    "very little noise": sampled(0.3, 0.05),
    "group": ((np.arange(4.0) / 1.5, np.array([0.969, 0.03, 9.9e-4, 1e-5])), NONE),
    "binomial": (GroupGaussian(1.3, 0.02, 4).pair[:2], NONE),
    "replaced": replaced(0.8, 1e-3),
    "often replaced": replaced(1.5, 0.4),
}
law = pytest.mark.parametrize("pair", LAWS.values(), ids=LAWS)


@cache
def panel(pair, left, right):
    """Q's mass and log(P / Q) at the 96 nodes of Gauss and Legendre between two places; see `exact`."""
    origin = max(pair[1][0])

    def mixture(x, centres, weights):
        terms = [mpmath.npdf(x, mpmath.mpf(c) - origin) for c in centres]
        return terms[0] + mpmath.fsum(w * (t - terms[0]) for w, t in zip(weights[1:], terms[1:], strict=True))

    found, half = [], (right - left) / 2
    for node, weight in gauss_legendre(6):
        p, q = (mixture(left + half * (1 + node), *law) for law in pair)
        found.append((weight * half * q, mpmath.log(p / q)))
    return found


def exact(pair, a, low=-mpmath.inf, high=mpmath.inf):
    """Integral of Q's density times (P / Q)^A over the real line from `low` to `high`, to more than 25 digits.

    The origin is Q's largest centre.  The first weights are what the others leave of 1.  Integrals share the panels,
    and the densities in them, between the whole numbers that lie in both ranges.
    """
    power, numbers = mpmath.mpc(a), tuple(tuple(tuple(v.tolist()) for v in law) for law in pair)
    ends = max(low, -mpmath.mpf(16)), min(high, mpmath.mpf(24))
    whole = [mpmath.mpf(k) for k in range(-16, 25) if ends[0] < k < ends[1]]
    panels = pairwise([ends[0], *whole, ends[1]])
    terms = (term for left, right in panels for term in panel(numbers, left, right))
    return mpmath.fsum(mass * mpmath.exp(power * log_ratio) for mass, log_ratio in terms)


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(30):
        yield


def off_by(found, truth):
    return float(abs(mpmath.mpc(complex(found)) - truth))


@law
@pytest.mark.parametrize("a", [1.5 + 0j, -0.7 + 2j, 3.0 + 30j])
def test_moments_are_within_the_bounds_of_rule_ends_and_round_off(pair, a):
    step = ComplexLaw(*pair, True)
    far = 12.0 + 3.0 * step.ratio.top
    below = {top: exact(pair, a, high=mpmath.mpf(top)) - 1 for top in ([far] if a.real < 0.0 else [far, 2.5])}
    for low, high in ((-np.inf, np.inf), (0.8, np.inf), (0.8, 2.5)):
        if a.real < 0.0 and (low > -np.inf or not step.ratio.q.trivial):
            continue
        m = ComplexMoments(step.ratio, low, high, 9.0, far)
        less, off, mid, of_mid = (v[0] for v in m.values(np.array([a])))
        rule, rule_mid = m.rule_errors(a, a)
        left, right = m.outside(a.real)
        top = min(high, far)
        assert off_by(less, below[top]) <= off + rule + left + right
        if low > -np.inf:
            assert off_by(mid, exact(pair, a, mpmath.mpf(low), mpmath.mpf(top))) <= of_mid + rule_mid + right
        assert off + rule + left + right < 1e-11


@law
def test_real_moments_are_rounded_up(pair):
    step = ComplexLaw(*pair, True)
    for c, stop in ((1.5, 1.5), (3.0, 4.0), (1.0, -1.0), (20.0, 1.0)):
        truth = mpmath.log(exact(pair, c, high=mpmath.mpf(stop)).real)
        bound = step.log_moment(c, stop)
        assert truth <= bound
        assert bound == pytest.approx(float(truth), abs=1e-11)


def test_the_error_of_the_rule_is_not_idle(monkeypatch):
    """With five points a panel the rule errs by 1e-9 to 1e-4, and the bound is above that but not by a million."""
    monkeypatch.setattr(complex_moments, "_POINTS", 5)
    node, weight = np.polynomial.legendre.leggauss(5)
    monkeypatch.setattr(complex_moments, "_NODE", node)
    monkeypatch.setattr(complex_moments, "_WEIGHT", weight)
    shares = []
    for pair in list(LAWS.values())[::2]:
        for a in (1.5 + 0j, 3.0 + 30j):
            step = ComplexLaw(*pair, True)
            far = 12.0 + step.ratio.top
            m = ComplexMoments(step.ratio, -np.inf, np.inf, 9.0, far)
            bound = m.rule_errors(a, a)[0]
            off = off_by(m.values(np.array([a]))[0][0], exact(pair, a, high=mpmath.mpf(far)) - 1)
            assert off <= bound + sum(m.outside(a.real))
            shares.append(off / bound)
            # and of the losses between two places
            m = ComplexMoments(step.ratio, 0.8, 2.5, 9.0, far)
            off = off_by(m.values(np.array([a]))[2][0], exact(pair, a, mpmath.mpf(0.8), mpmath.mpf(2.5)))
            assert 1e-17 < off <= m.rule_errors(a, a)[1]
            # and of the mean of g - 1, which is added from its closed form
            mean = m._sums._small[-1][-2]  # no loss counts as small
            assert 0.0 < abs(mean - m._linear[0]) <= m._linear_rule + 1e-16
            assert m.rule_errors(a, a)[0] >= abs(a) * m._linear_rule
    assert max(shares) > 1e-6 and np.median(shares) > 1e-12


@law
def test_the_mean_of_g_less_one_along_a_path_is_within_its_round_off(pair):
    ratio = ComplexLaw(*pair, True).ratio
    for start, stop in (
        (-9.0 + 1j * ratio.height, 2.0 + 0j),
        (-8.0 + 0.3j, 9.0 + 1j * ratio.height),
        (-9.0 + 0.1j, 0.5 + 0j),
    ):
        found, units = ratio.difference(start, stop)

        def below(z, mixture, sign):
            terms = [
                mpmath.erfc((sign * mpmath.mpf(c) - mpmath.mpc(z)) / mpmath.sqrt(2)) / 2
                for c in mixture.centres.tolist()
            ]
            return mpmath.fsum(w * (t - terms[0]) for w, t in zip(mixture.weights.tolist()[1:], terms[1:], strict=True))

        truth = mpmath.mpc(0)
        for z, sign in ((stop, 1), (start, -1)):
            truth += sign * (below(z, ratio.p, 1) - below(z, ratio.q, -1))
        assert off_by(found, truth) <= 2.0**-53 * units
        assert 2.0**-53 * units <= 1e-10 * (abs(found) + 1e-4)


@law
def test_what_the_path_leaves_out_is_bounded_and_not_idle(pair):
    """A path from -2 to 2 standard deviations: everything that is missing lies beyond its ends."""
    step = ComplexLaw(*pair, True)
    m = ComplexMoments(step.ratio, -np.inf, np.inf, 2.0, 2.0)
    for a in (1.5 + 0j, 2.0 + 20j, -0.4 + 3j):
        if a.real < 0.0 and not step.ratio.q.trivial:
            continue
        off = off_by(m.values(np.array([a]))[0][0], exact(pair, a, high=mpmath.mpf(2.0)) - 1)
        assert off <= sum(m.outside(a.real))
        assert off >= 1e-4 * sum(m.outside(a.real))


@law
def test_boxes_bound_the_integrand(pair):
    ratio = ComplexLaw(*pair, True).ratio
    rng = np.random.default_rng(3)
    left = rng.uniform(-3.0, 8.0, 200)
    right = left + rng.uniform(0.01, 1.0, 200)
    bottom = rng.uniform(-0.9, 2.0, 200) / ratio.turn
    top = bottom + rng.uniform(0.01, 0.9, 200) / ratio.turn
    boxes = boxes_of(ratio, left, right, bottom, top)
    closest = -np.inf
    for a in (1.5 + 0j, -2.0 + 1j, 4.0 + 60j):
        u, v = rng.uniform(0, 1, (2, 400))
        u[:4], v[:4] = [0, 0, 1, 1], [0, 1, 0, 1]
        x = (left[:, None] + (right - left)[:, None] * u) + 1j * (bottom[:, None] + (top - bottom)[:, None] * v)
        p, q = ratio.logs(x)
        value = (-0.5 * x**2).real - 0.5 * np.log(2 * np.pi) + (a * p + (1 - a) * q).real
        bound = [math.log(contour.upper_sum(boxes[i : i + 1], np.ones(1), a.real, a.imag)) for i in range(len(boxes))]
        apart = np.array(bound)[:, None] - value
        assert apart.min() >= -1e-9
        closest = max(closest, -apart.min())
    assert closest > -0.5  # nats


@law
@pytest.mark.parametrize("stop", [np.inf, 2.0])
def test_integrals_of_moduli_bound_all_larger_frequencies(pair, stop):
    """|M_mid| by its path, |M_low| and |M| by theirs; within a factor of a thousand of what they are."""
    m = ComplexMoments(ComplexLaw(*pair, True).ratio, 1.0, stop, 9.0, 9.0)
    whole = ComplexMoments(ComplexLaw(*pair, True).ratio, -np.inf, stop, 9.0, 9.0)
    for a in (1.5 + 5j, 3.0 + 40j):
        mid, low, all_ = m.above(a), m.beyond(a), whole.beyond(a)
        for more in (0.0, 1.0, 100.0):
            less, _, of_mid, _ = (v[0] for v in m.values(np.array([a + 1j * more])))
            assert abs(of_mid) <= mid
            assert abs(1.0 + less - of_mid) <= low
            assert abs(1.0 + less) <= all_
            if more == 0.0:
                assert mid < 1e3 * abs(of_mid) + 1e-12
                assert low < 3.0 * abs(1.0 + less - of_mid) + 1e-9
                assert all_ < 3.0 * abs(1.0 + less) + 1e-9


def test_what_does_not_fall_with_the_exponent_is_part_of_the_bound_beyond():
    """Far up, nothing is left of M but what the path leaves out of the integral of N h_Q."""
    m = ComplexMoments(ComplexLaw(*sampled(0.5, 0.9), True).ratio, -np.inf, np.inf, 6.0, 9.0)
    a = 20.0 + 200.0j
    less, error, *_ = (v[0] for v in m.values(np.array([a])))
    assert error < 0.1 * abs(1.0 + less)
    assert abs(1.0 + less) <= m.beyond(a)
    assert abs(1.0 + less) > 10.0 * (m.beyond(a) - m._off_left - m._off_end)


@law
@pytest.mark.parametrize(("cells", "room"), [(24, 2.0), (1_024, 1.1)])
def test_the_low_line_is_bounded_cell_by_cell(pair, cells, room, monkeypatch):
    """Against the sum of |f| along the line, near the real axis and high above it; few cells need the curvature."""
    monkeypatch.setattr(complex_moments, "_ENVELOPE_CELLS", cells)
    m = ComplexMoments(ComplexLaw(*pair, True).ratio, -np.inf, np.inf, 9.0, 9.0)
    for a in (1.0 + 0j, 4.0 + 0j, 4.0 + 3j):
        for y in (1e-3, m._above.imag):
            x = np.linspace(-9.0 - m._law.q.top, 1.0, 20_001)
            z = x + 1j * y
            p, q = m._law.logs(z)
            truth = np.trapezoid(np.exp((a * (p - q) + q - 0.5 * z * z).real) / np.sqrt(2.0 * np.pi), x)
            assert truth * (1.0 - 1e-9) <= m._along(a, 1.0, y)
            if a.imag == 0.0 and y < 0.1:
                assert m._along(a, 1.0, y) <= room * truth


@law
@pytest.mark.parametrize("remove", [True, False])
def test_the_mass_beyond_a_place_is_rounded_up(pair, remove):
    step = ComplexLaw(*pair, remove)
    centres, weights = pair[0 if remove else 1]
    for mass in (1e-3, 1e-12, 1e-40):
        x = step.end(mass)
        with mpmath.workdps(30):
            at = mpmath.mpf(x) + float(pair[1][0].max())
            truth = mpmath.fsum(w * mpmath.ncdf(c - at) for c, w in zip(centres, weights, strict=True))
        assert truth <= step.mass_beyond(x) <= mass
        assert step.mass_beyond(x) >= 0.9 * mass


@law
def test_places_and_losses_are_inverse(pair):
    step = ComplexLaw(*pair, True)
    x = np.array([0.5, 3.0, 20.0])
    losses = np.array([step.loss_at(v) for v in x])
    assert step.places(losses) == pytest.approx(x, abs=1e-2)
    assert step.places(np.array([-np.inf, np.inf])).tolist() == [-np.inf, np.inf]
