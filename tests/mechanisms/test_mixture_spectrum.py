"""Characteristic functions of Gaussian mixtures against sums in extended precision; bounds beyond the band."""

from dataclasses import replace

import mpmath
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import schedule, solver
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.engine.tilting import Limits
from pld_accountant.engine.transform import GridTransform, Transform
from pld_accountant.mechanisms import exponential_sums, mixture_spectrum, weighted_nodes
from pld_accountant.mechanisms.base import CharacteristicSteps
from pld_accountant.mechanisms.mixture_spectrum import TiltedMixture, log_moments, log_quotient_and_slope
from pld_accountant.notions import gdp
from pld_accountant.results import Method
from pld_accountant.tables.makers import TableMakers

STEP = {
    "group": pa.GroupGaussian(2.0, 0.01, 6),
    "little noise": pa.GaussianMixture(0.5, [0.0, 0.4, 1.0], [0.9, 0.06, 0.04]),
    "replace-one": pa.ReplaceOneSampledGaussian(1.0, 0.02),
    "replaced for certain": pa.ReplaceOneSampledGaussian(4.0, 1.0),
    "never idle": pa.GaussianMixture(3.0, [1.0, 2.0], [0.5, 0.5]),
}
LAWS = [(name, direction, theta) for name in STEP for direction in ("remove", "add") for theta in (0.3, 6.0)]
SPACING, NUMBER = 1.1, 90
FINE = 2_000  # points of the reference per standard deviation


def law_of(name, direction, theta):
    return STEP[name].steps([STEP[name]], direction)._tilted(0, theta)


def moments(law, omegas):
    """K and phi, not centred, at some frequencies: plain sums in extended precision on a fine grid."""
    x = np.arange(-40 * FINE, 40 * FINE + 1).astype(np.longdouble) / FINE
    logs = []
    for centres, weights in law[:2]:
        c, w = centres.astype(np.longdouble), weights.astype(np.longdouble)
        t = np.multiply.outer(x, c) - 0.5 * c**2
        logs.append(t.max(axis=1) + np.log(np.exp(t - t.max(axis=1)[:, None]) @ w))
    a, b = logs
    exponent = (1 + law.theta) * a - law.theta * b - 0.5 * x * x
    weight = np.exp(exponent - exponent.max())
    total = weight.sum()
    k = exponent.max() + np.log(total / FINE) - 0.5 * np.log(2 * np.longdouble(np.pi))
    return k, [(np.exp(1j * omega * (a - b)) @ weight) / total for omega in omegas]


def excess_of_errors(law, places, spacing=SPACING):
    """By how much K and phi are further from the truth than their bounds say, the largest."""
    found = law.spectrum(spacing, NUMBER, 1, 1e12)
    omegas = [spacing * (i + 1) for i in places]
    k, phi = moments(law, omegas)
    worst = abs(float(found.log_moment - k)) - float(found.log_moment_error)
    for i, omega, true in zip(places, omegas, phi, strict=True):
        ours = np.exp(found.re[i] + 1j * (found.im[i] + omega * np.longdouble(found.mean)))
        worst = max(worst, float(abs(ours - true)) - float(found.error + found.error_slope * omega))
    return worst


@pytest.mark.parametrize("name, direction, theta", LAWS)
def test_characteristic_functions_are_within_their_errors(name, direction, theta):
    assert excess_of_errors(law_of(name, direction, theta), [0, 12, NUMBER - 1]) <= 0.0


@pytest.mark.parametrize("name, value", [("_LOG_ERROR", 1.5), ("_REACH", 2.0), ("UNIT", 2.0**-60)])
def test_a_rule_that_is_too_rough_is_found(name, value, monkeypatch):
    """At frequencies close to 0, where the growth that the rule allows for is nearly the true one."""
    law = law_of("little noise", "remove", 6.0)
    assert excess_of_errors(law, [0, 40], 1e-4) <= 0.0
    for module in (mixture_spectrum, weighted_nodes):
        monkeypatch.setattr(module, name, value, raising=module is mixture_spectrum)
    monkeypatch.setattr(exponential_sums, "_UNIT", value if name == "UNIT" else exponential_sums._UNIT)
    monkeypatch.setattr(mixture_spectrum, "_TRUNCATED", mixture_spectrum._TRUNCATED if name != "UNIT" else 0.0)
    assert excess_of_errors(law, [0, 40], 1e-4) > 0.0


TILTS = np.array([0.01, 0.3, 1.0, 1.1, 1.9, 2.0, 4.1, 7.9])


@pytest.mark.parametrize("name", STEP)
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_log_moments_of_tilts_that_share_nodes(name, direction, monkeypatch):
    """They are rounded up, by little; a tilt's number does not depend on which others are asked for."""
    law = law_of(name, direction, 0.0)
    found = log_moments(law, TILTS, 1 << 20)
    exact = [moments(law._replace(theta=theta), [])[0] for theta in TILTS.tolist()]
    room = [float(k - true) for k, true in zip(found, exact, strict=True)]
    assert min(room) >= 0.0 and max(room) <= 1e-12
    monkeypatch.setattr(mixture_spectrum, "_ELEMENTS", 1)
    assert log_moments(law, TILTS[::-1], 1 << 20).tolist() == found[::-1].tolist()
    monkeypatch.setattr(mixture_spectrum, "_LOG_ERROR", 1.0)
    rough = log_moments(law, TILTS, 1 << 20)
    assert max(abs(float(k - true)) for k, true in zip(rough, exact, strict=True)) > 1e-6


def test_what_is_left_out_is_in_the_error(monkeypatch):
    law = law_of("group", "remove", 6.0)
    monkeypatch.setattr(mixture_spectrum, "_NEGLIGIBLE", 1e-4)
    assert law._weigh(*law.nodes(0.0)).truncated > 1e-9 and excess_of_errors(law, [40]) <= 0.0
    monkeypatch.setattr(weighted_nodes.WeightedNodes, "truncated", mixture_spectrum._TRUNCATED)
    assert excess_of_errors(law, [40]) > 0.0


@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_the_ratio_keeps_its_digits_where_it_is_small(shift):
    """One Gaussian at a distance: log ratios are linear, and the deltas of both directions are the closed form."""
    x = np.linspace(-12.0, 4.0, 1_001)
    found = mixture_spectrum.log_ratio(x, np.array([shift]), np.ones(1))
    assert np.abs(found - (shift * x - 0.5 * shift**2)).max() <= 1e-14 * 40.0
    step = pa.compose([(pa.GaussianMixture(1.0, [shift], [1.0]), 1)])
    for epsilon in (22.9, 23.04872846, 29.0):
        exact = gdp.delta(epsilon, shift)
        for direction in ("remove", "add"):
            bounds = step.delta(epsilon, direction)
            assert bounds.lower <= exact <= bounds.upper


@pytest.mark.parametrize("name, direction, theta", LAWS)
def test_beyond_the_band_phi_is_at_most_its_envelope(name, direction, theta):
    law = law_of(name, direction, theta)
    family = STEP[name].steps([STEP[name]], direction)
    levels = 2.0 ** (0.5 * np.arange(*family.envelope_levels(theta)))
    spacing = levels[4]
    found = law.spectrum(spacing, 4_000, 1, 1e12)
    bound = law.log_envelope(levels, float(found.log_moment - found.log_moment_error))
    omega = spacing * np.arange(1, 4_001)
    size = np.exp(found.re) - (found.error + found.error_slope * omega)
    for level, most in zip(levels, bound, strict=True):
        beyond = omega >= level
        assert not beyond.any() or size[beyond].max() <= np.exp(most)
    assert np.all(np.diff(bound) <= 1e-12) and bound[0] > -0.5 and bound[-1] < -1.5


def test_an_envelope_of_masses_beyond_the_range_of_doubles():
    """Some cells' masses are infinite, and their falls 0: the products are not."""
    step = pa.GroupGaussian(0.5, 1e-4, 6)
    family = step.steps([step], "add")
    k = float(family.log_moments(np.array([30.0]))[0, 0])
    bound = family._tilted(0, 30.0).log_envelope(2.0 ** np.arange(-2.0, 14.0), k)
    assert np.all(np.isfinite(bound)) and np.all(bound <= 0.0)


@pytest.mark.parametrize("factor, found", [(1.0, False), (1.5, True)])
def test_an_envelope_of_too_large_arguments_is_found(factor, found, monkeypatch):
    law = law_of("replaced for certain", "remove", 6.0)
    levels = 2.0 ** (0.5 * np.arange(0, 16))
    spectrum = law.spectrum(levels[0], 256, 1, 1e12)
    at = mixture_spectrum._Line.at

    def turned(line, y):
        modulus, argument, slope = at(line, y)
        return modulus, factor * argument, slope

    monkeypatch.setattr(mixture_spectrum._Line, "at", turned)
    bound = np.exp(law.log_envelope(levels, float(spectrum.log_moment)))
    whole = np.arange(0, 16, 2)  # levels that are multiples of the first
    size = np.exp(spectrum.re)[levels[whole].astype(int) - 1]
    assert np.any((size > bound[whole]) & (size > 1e-9)) == found


@pytest.mark.parametrize("name, steps", [*((name, 40) for name in STEP), ("group", 2), ("replace-one", 3_000)])
def test_compositions_agree_with_the_grid(name, steps):
    """Two routes that share only the log-moments: their intervals overlap."""
    one = pa.compose([(STEP[name], steps)])
    # more frequencies than a single composition takes before its contour
    many = [replace(method.limits, frequencies=1 << 15) for method in schedule.SINGLE if isinstance(method, Transform)]
    transforms = [Transform(0.0, limits=limits) for limits in many]
    coarse = [GridTransform(0.0, points=1 << 13, limits=Limits(tilts=4, least_expectation=1e-5, work=3e9))]
    for direction, question in (("remove", EpsilonAt(1e-6)), ("add", EpsilonAt(1e-6)), ("remove", DeltaAt(0.4))):
        makers = one._of(direction)
        assert isinstance(makers.steps, CharacteristicSteps)
        a, b = (solver.bounds(one._row, makers, [question], methods=m)[0][0] for m in (transforms, coarse))
        assert max(a.lower, b.lower) <= min(a.upper, b.upper)
        assert steps == 2 or a.upper - a.lower <= 1e-6 * a.upper


def test_two_kinds_of_steps_in_one_composition():
    """A sampled Gaussian written as a mixture, beside sampled Gaussians."""
    as_mixture = pa.GaussianMixture(2.0, [0.0, 1.0], [0.99, 0.01])
    plain = pa.compose([(pa.SampledGaussian(2.0, 0.01), 700), (pa.SampledGaussian(3.0, 0.02), 300)])
    both = pa.compose([(as_mixture, 400), (pa.SampledGaussian(2.0, 0.01), 300), (pa.SampledGaussian(3.0, 0.02), 300)])
    for delta in (1e-3, 1e-9, 1e-20):
        a, b = plain.epsilon(delta), both.epsilon(delta)
        assert b.method == Method.TRANSFORM
        assert max(a.lower, b.lower) <= min(a.upper, b.upper) and b.upper - b.lower < 1e-8


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_strip_is_as_wide_as_the_factors_allow(direction):
    """Two factors are a binomial mixture's own; a rule for a hundred has nodes too far apart."""
    step = pa.GroupGaussian(0.3, 0.5, 2)
    law = step.steps([step], direction)._tilted(0, 0.3)
    assert max(law.factors) == 2 and min(law.factors) == 1
    assert law.nodes(0.0)[2] < 0.75 * law._replace(factors=(1, 1)).nodes(0.0)[2]
    assert excess_of_errors(law, [0, 12], 0.01) <= 0.0
    assert excess_of_errors(law._replace(factors=(100, 100)), [0, 12], 0.01) > 0.0


def test_a_spectrum_that_costs_too_much_is_not_made():
    law = law_of("group", "remove", 6.0)
    assert law.spectrum(1e6, 1_000, 1, 1e7) is None
    assert np.isinf(log_moments(law, np.array([6.0]), 10)[0])
    assert np.isinf(log_moments(law, np.array([1e12]), 1 << 14)[0])


@pytest.mark.parametrize(
    ("sigma", "rate", "records", "steps", "delta"),
    [(3.35, 0.00035, 2, 2_053, 8e-9), (3.65, 5.4e-6, 3, 57_697, 5.7e-11)],
)
def test_tiny_losses_have_large_tilts(sigma, rate, records, steps, delta):
    """At such tilts powers of the cosine leave the range of doubles; the bound there says nothing, and no more."""
    mechanism = pa.GroupGaussian(sigma, rate, records)
    makers = TableMakers(mechanism.steps([mechanism], "add"))
    found = solver.solve(WholeCounts(np.array([[steps]])), makers, EpsilonAt(delta), methods=schedule.SINGLE[:2])
    assert 0.0 <= found.lower[0] <= found.upper[0] < 0.1


def test_the_slope_of_terms_with_the_smallest_weights():
    """A user of 97 records has weights down to 1e-309, and the terms without them overflow far out."""
    x = np.array([-3.0, 0.5, 60.0, 90.0])
    user, nobody = (np.array([0.0, 1.0, 50.0]), np.array([1.0 - 1e-3, 1e-3, 1e-310])), (np.zeros(1), np.ones(1))
    loss, slope = log_quotient_and_slope(x, user, nobody)
    assert slope[-1] == pytest.approx(50.0, rel=1e-12)  # there, the last term is all
    near = log_quotient_and_slope(x + 1e-6, user, nobody)[0]
    assert (near - loss) / 1e-6 == pytest.approx(slope, rel=1e-3, abs=1e-6)


def test_round_off_of_the_logarithm_is_that_of_its_terms():
    """In the middle between two centres their exponents are differences of large numbers."""
    own, other = (np.array([0.0, 13.0]), np.array([0.5, 0.5])), (np.zeros(1), np.ones(1))
    x, log_a, _, units = TiltedMixture(own, other, 0.0)._logs(6.2, 0.003, 200)
    with mpmath.workdps(40):
        exact = [mpmath.log1p(0.5 * mpmath.expm1(13 * mpmath.mpf(v) - mpmath.mpf(169) / 2)) for v in x.tolist()]
        off = np.array([float(abs(e - mpmath.mpf(f))) for e, f in zip(exact, log_a.tolist(), strict=True)]) * 2.0**53
    assert np.all(off <= units)
    assert off.max() > 4.0 * np.abs(13.0 * x - 84.5).min() + 8.0
