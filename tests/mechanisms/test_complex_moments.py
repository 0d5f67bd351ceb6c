"""Moments at complex exponents: the bounds of the path's rule, ends and moduli, each against many digits or samples."""

import mpmath
import numpy as np
import pytest

from pld_accountant.mechanisms import complex_moments
from pld_accountant.mechanisms.complex_moments import ComplexLaw, ComplexMoments, _Boxes, _log_g

LAWS = [(0.5, 1e-3), (1.0, 1e-5), (1.0, 0.3), (2.5, 0.01), (0.3, 0.05)]


def exact(sigma, q, a, low=-mpmath.inf, high=mpmath.inf):
    """Integral of N g^A over the real line from `low` to `high`, to 30 digits."""
    s, rate, power = mpmath.mpf(sigma), mpmath.mpf(q), mpmath.mpc(a)

    def density(x):
        g = 1 + rate * mpmath.expm1((2 * x - 1) / (2 * s * s))
        return mpmath.npdf(x, 0, s) * g**power

    ends = [max(low, -14 * s), min(high, 16 * s + 4)]
    places = [ends[0] + (ends[1] - ends[0]) * i / 30 for i in range(31)]
    found = mpmath.quad(density, places)
    return found.real if isinstance(a, float) else found


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(30):
        yield


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("a", [1.5 + 0j, -0.7 + 2j, 3.0 + 30j])
def test_moments_are_within_the_bounds_of_rule_ends_and_round_off(law, a):
    sigma, q = law
    step = ComplexLaw(sigma, q, True)
    low, high = step.loss_at(0.8 * sigma), step.loss_at(2.5 * sigma)
    far = 12.0 * sigma + max(a.real, 0.0)
    for low_, high_, end in ((-np.inf, np.inf, far), (low, np.inf, far), (low, high, np.inf)):
        if a.real < 0.0 and low_ > -np.inf:
            continue
        m = ComplexMoments(step, low_, high_, 9.0, end)
        less, off, mid, of_mid = (v[0] for v in m.values(np.array([a])))
        errors = m.log_errors(a)
        rule, rule_mid = m.rule_errors(errors, errors)
        left, right = m.outside(a.real)
        top = mpmath.mpf(step.place(high) if high_ < np.inf else end)
        truth = exact(sigma, q, a, high=top)
        assert float(abs(mpmath.mpc(complex(less)) + 1 - truth)) <= off + rule + left + right
        if low_ > -np.inf:
            truth = exact(sigma, q, a, mpmath.mpf(step.place(low)), top)
            assert float(abs(mpmath.mpc(complex(mid)) - truth)) <= of_mid + rule_mid + right
        assert off + rule + left + right < 1e-11


def test_the_error_of_the_rule_is_not_idle(monkeypatch):
    """With five points a panel the rule errs by 1e-9 to 1e-4, and the bound is above that but not by a million."""
    monkeypatch.setattr(complex_moments, "_POINTS", 5)
    node, weight = np.polynomial.legendre.leggauss(5)
    monkeypatch.setattr(complex_moments, "_NODE", node)
    monkeypatch.setattr(complex_moments, "_WEIGHT", weight)
    shares = []
    for sigma, q in LAWS[:3]:
        for a in (1.5 + 0j, 3.0 + 30j):
            m = ComplexMoments(ComplexLaw(sigma, q, True), -np.inf, np.inf, 9.0, 12.0 * sigma + 1.0)
            truth = exact(sigma, q, a, high=mpmath.mpf(12.0 * sigma + 1.0))
            off = float(abs(mpmath.mpc(complex(m.values(np.array([a]))[0][0])) + 1 - truth))
            errors = m.log_errors(a)
            bound = m.rule_errors(errors, errors)[0]
            assert off <= bound + sum(m.outside(a.real))
            shares.append(off / bound)
    assert max(shares) > 1e-6 and np.median(shares) > 1e-12


@pytest.mark.parametrize("law", LAWS)
def test_what_the_path_leaves_out_is_bounded_and_not_idle(law):
    """A path from -2 to 2 standard deviations: everything that is missing lies beyond its ends."""
    sigma, q = law
    step = ComplexLaw(sigma, q, True)
    m = ComplexMoments(step, -np.inf, np.inf, 2.0, 2.0 * sigma)
    for a in (1.5 + 0j, 2.0 + 20j, -0.4 + 3j):
        truth = exact(sigma, q, a, high=mpmath.mpf(2.0 * sigma))
        off = float(abs(mpmath.mpc(complex(m.values(np.array([a]))[0][0])) + 1 - truth))
        assert off <= sum(m.outside(a.real))
        assert off >= 1e-4 * sum(m.outside(a.real))


@pytest.mark.parametrize("law", LAWS)
def test_boxes_bound_the_integrand(law):
    sigma, q = law
    rng = np.random.default_rng(3)
    left = rng.uniform(-3.0, 8.0, 200) * sigma
    right = left + rng.uniform(0.01, 1.0, 200) * sigma
    bottom = rng.uniform(-0.9, 2.0, 200) * sigma**2
    top = bottom + rng.uniform(0.01, 0.9, 200) * sigma**2
    boxes = _Boxes.of(law, left, right, bottom, top)
    closest = -np.inf
    for a in (1.5 + 0j, -2.0 + 1j, 4.0 + 60j):
        u, v = rng.uniform(0, 1, (2, 400))
        u[:4], v[:4] = [0, 0, 1, 1], [0, 1, 0, 1]
        x = (left[:, None] + (right - left)[:, None] * u) + 1j * (bottom[:, None] + (top - bottom)[:, None] * v)
        value = (-0.5 * (x / sigma) ** 2).real - np.log(sigma * np.sqrt(2 * np.pi)) + (a * _log_g(x, sigma, q)).real
        apart = boxes.log_bound(a)[:, None] - value
        assert apart.min() >= -1e-9
        closest = max(closest, -apart.min())
    assert closest > -0.5  # nats


@pytest.mark.parametrize("law", LAWS)
def test_the_integral_of_moduli_bounds_what_lies_above_a_loss(law):
    sigma, q = law
    step = ComplexLaw(sigma, q, True)
    low = step.loss_at(1.0 * sigma)
    m = ComplexMoments(step, low, np.inf, 8.0, 9.0 * sigma)
    for a in (1.5 + 5j, 3.0 + 40j):
        bound = m.above(a, low, step)
        whole = ComplexMoments(step, -np.inf, np.inf, 8.0, 9.0 * sigma)
        assert whole.above(a, low, step) == pytest.approx(bound, rel=1e-9)
        for more in (0.0, 1.0, 100.0):
            mid = abs(m.values(np.array([a + 1j * more]))[2][0])
            assert mid <= bound
        assert bound < 1e3 * abs(m.values(np.array([a]))[2][0]) + 1e-12


@pytest.mark.parametrize("law", LAWS)
def test_moments_of_small_losses_are_bounded_beyond_a_width(law):
    sigma, q = law
    step = ComplexLaw(sigma, q, True)
    loss, end = step.loss_at(1.5 * sigma), mpmath.mpf(step.place(step.loss_at(1.5 * sigma)))
    for c, omega in ((1.5, 0.0), (1.5, 30.0), (3.0, 3.0)):
        bound = step.log_moment(c, loss, omega)
        truth = float(mpmath.log(abs(exact(sigma, q, complex(c, omega * 1.2), high=end))))
        assert truth <= bound
    assert step.log_moment(3.0, loss) == pytest.approx(float(mpmath.log(exact(sigma, q, 3.0, high=end))), abs=1e-12)
    assert step.log_moment(-0.5) == pytest.approx(float(mpmath.log(exact(sigma, q, -0.5))), abs=1e-12)
    with pytest.raises(ValueError, match="exponent"):
        step.log_moment(0.5)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("remove", [True, False])
def test_the_mass_beyond_a_place_is_rounded_up(law, remove):
    sigma, q = law
    step = ComplexLaw(sigma, q, remove)
    for mass in (1e-3, 1e-12, 1e-40):
        x = step.end(mass)
        with mpmath.workdps(30):
            truth = mpmath.ncdf(-mpmath.mpf(x) / sigma)
            if remove:
                truth = (1 - mpmath.mpf(q)) * truth + q * mpmath.ncdf((1 - mpmath.mpf(x)) / sigma)
        assert truth <= step.mass_beyond(x) <= mass
        assert step.mass_beyond(x) >= 0.9 * mass


def test_places_and_losses_are_inverse():
    for sigma, q in LAWS:
        step = ComplexLaw(sigma, q, True)
        for x in (-2.0 * sigma, 0.5, 3.0 * sigma, 40.0 * sigma):
            assert step.place(step.loss_at(x)) == pytest.approx(x, rel=1e-6, abs=1e-6)
