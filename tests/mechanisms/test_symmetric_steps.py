"""Characteristic functions of symmetric losses, against integrals with 30 digits."""

from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest
from highprecision import gauss_legendre
from scipy.stats import norm

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import schedule, solver
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.mechanisms import symmetric_steps
from pld_accountant.mechanisms.symmetric_steps import SymmetricSteps, _Law
from pld_accountant.results import Method
from pld_accountant.tables.makers import TableMakers

NUMBER = 64
ROW = np.zeros(1, dtype=np.int64)

LAWS = {
    "much noise": _Law(0.2, 0.05, np.inf),
    "little noise": _Law(3.0, 0.3, np.inf),
    "full": _Law(1.0, 1.0, np.inf),
    "rare": _Law(0.7, 1e-5, np.inf),
    "truncated": _Law(0.7, 1e-3, 4.0),
}


@cache
def exact(law, theta, omegas):
    """K, and phi at some frequencies, not centred.

    Gauss and Legendre's 24 nodes on panels in which the integrand turns by 6 to either side err by less than 1e-25.
    The integrals end 13 standard deviations beyond the maxima, where 1e-30 is left.
    """
    with mpmath.workdps(30):
        mu, q = mpmath.mpf(law.mu), mpmath.mpf(law.rate)

        def terms(top, sign):
            slope = min(law.rate * np.exp(min(top, 600.0)), 1.0)
            turn = np.hypot(theta + 2.0, max(omegas)) * slope + 14.0 / law.mu + theta + 2.0
            panels = int(0.5 * top * turn / 6.0) + 4
            half = mpmath.mpf(top) / (2 * panels)
            for k in range(panels):
                for x, w in gauss_legendre(4):
                    l = (2 * k + 1 + x) * half
                    loss = mpmath.log1p(q * mpmath.expm1(l))
                    mass = half * w * mpmath.npdf(l, -mu * mu / 2, mu)
                    yield (mass * mpmath.exp(loss), loss) if sign > 0 else (mass, -loss)

        top = min((theta + 0.5) * law.mu**2 + 13.0 * law.mu, law.end)
        atom = (1 - q) * mpmath.erf(mu / mpmath.sqrt(8))
        parts = [*terms(top, 1), *terms(13.0 * law.mu, -1), (atom, mpmath.mpf(0))]

        def moment(z):
            return mpmath.fsum(mass * mpmath.exp(z * loss) for mass, loss in parts)

        whole = moment(mpmath.mpf(theta))
        return mpmath.log(whole), [moment(mpmath.mpc(theta, omega)) / whole for omega in omegas]


def excess(law, theta, spacing, places=(0, NUMBER - 1)):
    """By how much K and phi are further from the truth than their bounds say, the largest."""
    _Law._panels.cache_clear()  # constants may have changed
    found = law.spectrum(theta, spacing, NUMBER, 2, np.inf)
    k, phi = exact(law, theta, tuple(spacing * (i + 1) for i in places))
    worst = abs(float(k - mpmath.mpf(float(found.log_moment)))) - float(found.log_moment_error)
    for i, true in zip(places, phi, strict=True):
        omega = spacing * (i + 1)
        with mpmath.workdps(30):
            angle = float(found.im[i]) + omega * mpmath.mpf(float(found.mean))
            ours = mpmath.exp(mpmath.mpc(float(found.re[i]), angle))
            worst = max(worst, float(abs(ours - true)) - float(found.error + found.error_slope * omega))
    return worst


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize(("theta", "spacing"), [(0.02, 0.3), (3.0, 1.5), (12.0, 0.4)])
def test_characteristic_functions_are_within_their_errors(name, theta, spacing):
    assert excess(LAWS[name], theta, spacing) <= 0.0


def test_panels_that_are_too_wide_and_tails_that_are_too_short_are_found(monkeypatch):
    law = LAWS["little noise"]
    assert excess(law, 3.0, 1.5) <= 0.0
    for name, value in (("_STEEPEST", 150.0), ("_TAIL", 4.0)):
        with monkeypatch.context() as patch:
            patch.setattr(symmetric_steps, name, value)
            assert excess(law, 3.0, 1.5) > 0.0


def test_rare_steps_need_few_panels(monkeypatch):
    """Their frequencies are large, but the phase of a panel turns as little as that of the sampled loss."""
    law, theta, spacing = LAWS["truncated"], 40.0, 50.0
    (_, panels), _ = law._panels(theta, NUMBER * spacing)
    assert panels < 0.05 * law.end * NUMBER * spacing / symmetric_steps._STEEPEST
    assert excess(law, theta, spacing) <= 0.0
    monkeypatch.setattr(symmetric_steps, "_ASIDE", 0.1)
    monkeypatch.setattr(symmetric_steps, "_WIDEST", (0.68, 0.68))
    assert excess(law, theta, spacing) > 0.0


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("theta", [0.1, 2.0])
def test_nothing_exceeds_the_envelope(name, theta, monkeypatch):
    law = LAWS[name]
    powers = 2.0 ** np.arange(-4, 24)
    k = float(law.spectrum(theta, 1.0, 8, 1, np.inf).log_moment)
    bound = law.log_envelope(theta, powers, k)
    assert np.all(np.diff(bound) <= 0.0)
    levels = powers[np.argmax(bound < -1e-9) :][:2]
    size = [law.spectrum(theta, level / 32.0, 96, 1, np.inf).re[31:].max() for level in levels]
    assert np.all(size <= law.log_envelope(theta, levels, k))
    if name == "truncated":
        nodes = _Law._nodes

        def lighter(self, *given):
            loss, log_mass, log_density, *rest = nodes(self, *given)
            return loss, log_mass, log_density - np.log(1e3), *rest

        monkeypatch.setattr(_Law, "_nodes", lighter)
        assert not np.all(size <= law.log_envelope(theta, levels, k)), "the densities count"


@pytest.mark.parametrize("name", ["much noise", "rare", "full"])
@pytest.mark.parametrize("theta", [0.1, 2.0, 20.0])
def test_the_envelope_counts_how_much_the_densities_vary(name, theta, monkeypatch):
    """Partial integration: beyond omega, |phi| is at most their total variation and ends over omega, and the atom."""
    monkeypatch.setattr(symmetric_steps, "_NODE_TO_PEAK", 0.01)  # nodes lie closer to the peaks than is proven
    law = LAWS[name]
    l = law.mu * np.linspace(0.0, (theta + 1.0) * law.mu + 10.0, 200_001)
    loss, slope = np.log1p(law.rate * np.expm1(np.minimum(l, 300.0))), law._slope(l)
    log_moment, varied = float(law.log_moments(np.array([theta]), 1 << 14)[0]), 0.0
    for exponent in (1.0 + theta, -theta):
        density = norm.pdf(l, -0.5 * law.mu**2, law.mu) / slope * np.exp(exponent * loss - log_moment)
        varied += float(np.abs(np.diff(density)).sum() + density[0] + density[-1])
    level = 1e3 * varied
    bound = np.exp(law.log_envelope(theta, np.array([level]), log_moment)[0]) - law.at_zero * np.exp(-log_moment)
    assert bound >= varied / level * (1.0 - 1e-4)


@pytest.mark.parametrize("name", ["much noise", "rare", "truncated", "full"])
def test_log_moments_are_above_the_integral_and_close(name):
    law, theta = LAWS[name], np.array([0.01, 0.5, 3.0, 12.0])
    for found, t in zip(law.log_moments(theta, 1 << 14), theta.tolist(), strict=True):
        with mpmath.workdps(30):
            # the mass beyond the end is infinite, and log-moments are those of what is left and of 1 together
            whole = float(mpmath.expm1(exact(law, t, (1.0,))[0]) - mpmath.expm1(exact(law, 0.0, (1.0,))[0]))
        assert np.log1p(whole) <= found <= np.log1p(whole) * (1.0 + 1e-6) + 2e-16
    # too many nodes: those of the Gaussian mechanism
    (gaussian,) = law.log_moments(np.array([3.0]), 10)
    assert gaussian == pytest.approx(min(6.0 * law.mu**2, 3.0 * np.log1p(law.rate * np.expm1(min(law.end, 500.0)))))


def test_large_tilts_of_rare_steps_need_few_nodes(monkeypatch):
    """Their losses are much smaller than the noise's variable, so that the tilted mass stays where the noise is."""
    law, theta = _Law(0.1, 1e-4, np.inf), 1_000.0
    assert law._tops(theta)[0] < 12.0 * law.mu < 0.2 * theta * law.mu**2
    l, step = np.linspace(0.0, 2.0, 400_001, retstep=True)
    loss, density = np.log1p(law.rate * np.expm1(l)), norm.pdf(l, -0.5 * law.mu**2, law.mu)
    values = density * (np.exp(loss) * np.expm1(theta * loss) + np.expm1(-theta * loss))
    true = np.log1p(np.trapezoid(values, dx=step))
    (found,) = law.log_moments(np.array([theta]), 1 << 12)
    assert true * (1.0 - 1e-8) <= found <= true * (1.0 + 1e-8)
    _Law._panels.cache_clear()
    monkeypatch.setattr(symmetric_steps, "_LOG_LEFT_OUT", -6.0)
    assert law.log_moments(np.array([theta]), 1 << 12)[0] < true * (1.0 - 1e-8)
    _Law._panels.cache_clear()


def test_full_batches_have_at_least_the_moments_of_the_gaussian_mechanism():
    rng = np.random.default_rng(3)
    for sigma, theta in zip(rng.uniform(0.5, 8.0, 100).tolist(), rng.uniform(0.1, 40.0, 100).tolist(), strict=True):
        (found,) = SymmetricSteps(np.array([sigma]), np.ones(1), "remove").log_moments(np.array([theta]))[0]
        t = Fraction(theta)
        true = t * (t + 1) / (2 * Fraction(sigma) ** 2)
        assert true <= Fraction(float(found)) <= true * (1 + Fraction(1, 10**12))


def test_an_end_below_all_losses_above_zero_leaves_the_atom_and_the_losses_below():
    """Little noise and tiny rates: Phi(-5.2) of the mass lies beyond a place where the loss is negative."""
    cut = SymmetricSteps(np.array([0.05]), np.array([1e-9]), "remove", 5.2)
    assert 0.0 <= cut.log_moments(np.array([1.0]))[0, 0] <= 1e-15
    found = cut.spectrum(1.0, 1.0, 8, ROW, 1, np.inf)
    assert np.abs(found.re).max() < 1e-8 and cut.infinite_mass()[0] < 1e-7
    run = pa.compose([(pa.FixedSizeBatch(0.1, 1, 10**12), 2), (pa.Laplace(10.0), 10)])
    alone = pa.compose([(pa.Laplace(10.0), 10)])
    assert alone.epsilon(0.1).lower <= run.epsilon(0.1).upper <= alone.epsilon(0.1).upper * (1.0 + 1e-3)


def test_losses_end_where_they_are_told_to():
    """The mass beyond is infinite; the rest has the same characteristic function, up to that mass."""
    whole = SymmetricSteps(np.array([1.5]), np.array([1e-3]), "remove")
    cut = whole.truncated(6.0)
    assert whole.whole and not cut.whole and whole.infinite_mass()[0] == 0.0
    beyond = cut.infinite_mass()[0]
    assert norm.sf(6.0) * (1.0 - 1e-9) <= beyond <= norm.sf(6.0) * (1.0 + 1e-6)
    a, b = (one.spectrum(1.0, 2.0, 16, ROW, 1, np.inf) for one in (whole, cut))
    left = 1.0 - np.exp(b.log_moment[0] - a.log_moment[0])
    assert beyond < left < 1e3 * beyond  # the tilt makes them heavier
    apart = np.abs(
        np.exp(a.re + 1j * (a.im + a.mean[0] * 2.0 * np.arange(1, 17)))
        - (1.0 - left) * np.exp(b.re + 1j * (b.im + b.mean[0] * 2.0 * np.arange(1, 17)))
    )
    assert apart.max() <= left * (1.0 + 1e-6)
    assert whole.truncated(np.inf) is whole


def test_losses_below_zero_do_not_end():
    knots = np.linspace(-1.0, 0.0, 41)
    whole = SymmetricSteps(np.array([1.0]), np.array([1e-2]), "remove")
    cut = whole.truncated(2.0)
    assert cut.range_of_losses(0, 38.0)[1] < 0.1
    for one, two in zip(whole.masses(0, knots), cut.masses(0, knots), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(("sigma", "rate", "steps", "delta"), [(2.0, 0.1, 400, 1e-9), (0.7, 0.3, 60, 1e-6)])
def test_transforms_agree_with_the_grid(sigma, rate, steps, delta):
    """The grid knows only the masses of cells."""
    makers = TableMakers(SymmetricSteps(np.array([sigma]), np.array([rate]), "remove"))
    row = WholeCounts(np.array([[steps]]))
    for question in (EpsilonAt(delta), DeltaAt(1.0)):
        a, b = (solver.bounds(row, makers, [question], methods=m)[0][0] for m in (schedule.SINGLE[:1], schedule.GRID))
        assert a.method == Method.TRANSFORM and b.method in (Method.GRID, Method.CONVOLUTION)
        assert max(a.lower, b.lower) <= min(a.upper, b.upper)
        assert a.upper - a.lower <= 1e-7 * a.upper
