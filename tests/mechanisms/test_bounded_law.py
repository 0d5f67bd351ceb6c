"""Characteristic functions of bounded losses and of atoms, against integrals and sums in high precision."""

from dataclasses import replace
from functools import cache

import mpmath
import numpy as np
import pytest
from highprecision import gauss_legendre

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import schedule, solver
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.mechanisms import bounded_law, discrete
from pld_accountant.mechanisms.bounded_law import BoundedLaw
from pld_accountant.mechanisms.discrete import DiscreteLaw, DiscreteSteps
from pld_accountant.mechanisms.mixed import mixed
from pld_accountant.results import Method
from pld_accountant.tables.makers import TableMakers

LAWS = {
    "Laplace": BoundedLaw(0.3, atoms=True),
    "little noise": BoundedLaw(4.0, atoms=True),
    "exponential": BoundedLaw(1.0, atoms=False),
    "sampled": BoundedLaw(2.0, atoms=True, rate=0.01),
    "sampled, added": BoundedLaw(5.0, atoms=True, rate=0.2, remove=False),
    "sampled exponential": BoundedLaw(2.0, atoms=False, rate=0.3, remove=False),
    "rare": BoundedLaw(3.0, atoms=True, rate=1e-4),
    "rare, added": BoundedLaw(3.0, atoms=True, rate=1e-4, remove=False),
}
NUMBER = 64


@cache
def exact(law, theta, omegas):
    """K, and phi at some frequencies, not centred.

    Gauss and Legendre's 24 nodes on panels in which the integrand turns by 6 to either side err by less than 1e-30.
    All moments share the nodes, and the law at them.
    """
    with mpmath.workdps(30):
        c, q = mpmath.mpf(law.cap), mpmath.mpf(law.rate)
        scale = 1 if law.atoms else -2 / mpmath.expm1(-c)
        turn = np.hypot(theta, max(omegas)) * min(law.rate * np.exp(law.cap), 1.0) + 3.0
        panels = int(law.cap * turn / 6.0) + 2
        half = c / panels
        middles = [(2 * k + 1 - panels) * half for k in range(panels)]
        masses = [
            (m + half * x, scale * half * w * mpmath.exp((m + half * x - c) / 2) / 4)
            for m in middles
            for x, w in gauss_legendre(4)
        ]
        if law.atoms:
            masses += [(c, mpmath.mpf(1) / 2), (-c, mpmath.exp(-c) / 2)]
        terms = [(mass * mpmath.exp(-x), mpmath.log(1 - q + q * mpmath.exp(x))) for x, mass in masses]

        def moment(z):
            exponent = 1 + z if law.remove else -z
            return mpmath.fsum(mass * mpmath.exp(exponent * log_ratio) for mass, log_ratio in terms)

        whole = moment(mpmath.mpf(theta))
        return mpmath.log(whole), [moment(mpmath.mpc(theta, omega)) / whole for omega in omegas]


def excess_of_errors(found, k, phi, spacing, places):
    """By how much K and phi are further from the truth than their bounds say, the largest."""
    worst = abs(float(k - mpmath.mpf(float(found.log_moment)))) - float(found.log_moment_error)
    for i, true in zip(places, phi, strict=True):
        omega = spacing * (i + 1)
        with mpmath.workdps(30):
            ours = mpmath.exp(
                mpmath.mpc(float(found.re[i]), float(found.im[i]) + omega * mpmath.mpf(float(found.mean)))
            )
            worst = max(worst, float(abs(ours - true)) - float(found.error + found.error_slope * omega))
    return worst


def excess(law, theta, spacing, places=(0, 20, NUMBER - 1)):
    found = law.spectrum(theta, spacing, NUMBER, 2, np.inf)
    return excess_of_errors(found, *exact(law, theta, tuple(spacing * (i + 1) for i in places)), spacing, places)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("theta, spacing", [(0.02, 0.3), (3.0, 2.5), (60.0, 0.4)])
def test_characteristic_functions_are_within_their_errors(name, theta, spacing):
    assert excess(LAWS[name], theta, spacing) <= 0.0


def test_panels_that_are_too_wide_are_found(monkeypatch):
    assert excess(LAWS["little noise"], 3.0, 2.5) <= 0.0
    monkeypatch.setattr(bounded_law, "_STEEPEST", 150.0)
    assert excess(LAWS["little noise"], 3.0, 2.5) > 0.0
    # the logarithm of a sampled loss ends at a distance of pi from the real line, however slowly the integrand turns
    law = BoundedLaw(40.0, atoms=False, rate=0.5, remove=False)
    assert excess(law, 0.5, 1e-3) <= 0.0
    for widest in (0.68, 40.0), (40.0, 0.16):
        monkeypatch.setattr(bounded_law, "_WIDEST", widest)
        assert excess(law, 0.5, 1e-3) > 0.0


@pytest.mark.parametrize("name", ["rare", "rare, added"])
def test_rare_steps_need_few_panels(name, monkeypatch):
    """Their frequencies are large, but the phase of a panel turns as little as that of the sampled loss."""
    law, theta, spacing = LAWS[name], 2_000.0, 4_000.0
    assert law._panels(theta, NUMBER * spacing) < 0.01 * law.cap * NUMBER * spacing / bounded_law._STEEPEST
    assert excess(law, theta, spacing) <= 0.0
    monkeypatch.setattr(bounded_law, "_ASIDE", 0.1)
    assert excess(law, theta, spacing) > 0.0


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("theta", [0.1, 5.0])
def test_nothing_exceeds_the_envelope(name, theta, monkeypatch):
    law = LAWS[name]
    powers = 2.0 ** np.arange(-4, 24)
    k = float(law.nodes(theta, 1.0).log_moment)
    bound = law.log_envelope(theta, powers, k)
    assert np.all(np.diff(bound) <= 0.0)
    levels = powers[np.argmax(bound < 0.0) :][:4]
    omegas = np.outer(levels, np.linspace(1.0, 2.0, 25)).ravel()
    nodes = law.nodes(theta, omegas.max())
    size = np.log(np.abs(np.exp(1j * np.multiply.outer(omegas, nodes.loss)) @ nodes.share))
    assert np.all(size <= law.log_envelope(theta, levels, k).repeat(25))
    monkeypatch.setattr(BoundedLaw, "_log_density", lambda self, loss: np.full(2, -690.0))
    assert not np.all(size <= law.log_envelope(theta, levels, k).repeat(25)), "the density counts"


def test_a_spectrum_that_costs_too_much_is_refused():
    assert BoundedLaw(1e9, atoms=True).spectrum(1.0, 1.0, 16, 1, 1e9) is None
    one = DiscreteLaw(np.linspace(-1.0, 1.0, 10_001), np.full(10_001, 1.0 / 10_001), 0.0, False)
    rows = np.zeros(1, dtype=np.int64)
    assert DiscreteSteps([one], "remove").spectrum(1.0, 1.0, 1 << 12, rows, 1, 1e4) is None


@pytest.mark.parametrize("theta", [0.05, 4.0, 300.0])
def test_characteristic_functions_of_atoms(theta):
    """Masses and losses are known to within their errors only, and those of the transform include them."""
    rng = np.random.default_rng(8)
    losses, masses = np.sort(rng.normal(0.0, 0.5, 40)), rng.dirichlet(np.ones(40))
    off = rng.choice([-1.0, 1.0], 40)
    known = DiscreteLaw(
        losses + 2.0 * discrete.MASS_SLACK * off, masses * (1.0 + discrete.MASS_SLACK * off), 0.0, False
    )
    spacing, places = 0.8, (0, 30, NUMBER - 1)
    with mpmath.workdps(30):
        pairs = [(mpmath.mpf(float(m)), mpmath.mpf(float(x))) for m, x in zip(masses, losses, strict=True)]

        def moment(z):
            return mpmath.fsum(m * mpmath.exp(z * x) for m, x in pairs)

        k = mpmath.log(moment(mpmath.mpf(theta)))
        phi = [moment(mpmath.mpc(theta, spacing * (i + 1))) / mpmath.exp(k) for i in places]

    def found(law):
        steps = DiscreteSteps([law], "remove")
        one = steps.spectrum(theta, spacing, NUMBER, np.zeros(1, dtype=np.int64), 1, np.inf)
        return type(one)(*(getattr(one, name)[0] for name in type(one).__dataclass_fields__))

    assert excess_of_errors(found(known), k, phi, spacing, places) <= 0.0
    if theta > 1.0:  # at a small tilt the masses are the larger error
        exact_losses = found(replace(known, loss_error=1e-3 * known.loss_error))
        assert excess_of_errors(exact_losses, k, phi, spacing, places) > 0.0
    exact = replace(known, loss_error=0.0, mass_error=0.0)
    assert excess_of_errors(found(exact), k, phi, spacing, places) > 0.0


def test_atoms_beside_a_gaussian_are_a_sum_of_closed_forms():
    """Binomially many losses of 0.3 beside one Gaussian of mu = 0.6, at deltas down to 1e-40."""
    n, mu = 40, 0.6
    steps = [(pa.PureDP(0.3), n), (pa.Gaussian(5.0), 9)]
    with mpmath.workdps(60):
        c, p = mpmath.mpf(0.3), 1 / (1 + mpmath.exp(-mpmath.mpf(0.3)))

        def gaussian(epsilon):
            return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)

        def delta(epsilon):
            weights = (mpmath.binomial(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1))
            return mpmath.fsum(w * gaussian(epsilon - (2 * k - n) * c) for k, w in enumerate(weights))

        for epsilon in (0.5, 4.0, 9.0, 13.0):
            found, true = pa.compose(steps).delta(epsilon), delta(mpmath.mpf(epsilon))
            assert found.method == Method.TRANSFORM
            assert found.lower <= true <= found.upper and found.upper - found.lower <= 1e-7 * true
            back = pa.compose(steps).epsilon(float(true))
            assert back.lower <= epsilon * (1 + 1e-15) and epsilon * (1 - 1e-15) <= back.upper
            assert back.upper - back.lower <= 1e-8


STEPS = {
    "Laplace": [(pa.Laplace(3.0), 200)],
    "Laplace and Gaussian": [(pa.Laplace(5.0), 20), (pa.SampledGaussian(1.5, 0.05), 300)],
    "sampled": [(pa.PoissonSampled(pa.Laplace(0.8), 0.1), 400), (pa.Gaussian(9.0), 7)],
    "discrete": [(pa.RandomizedResponse(0.4, 5), 30), (pa.SampledGaussian(1.1, 0.02), 800)],
    "exponential": [(pa.PoissonSampled(pa.ExponentialMechanism(1.0), 0.2), 100), (pa.SampledGaussian(2.0, 0.1), 90)],
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_transforms_agree_with_the_grid(name, direction):
    """Two routes that share only the log-moments: their intervals overlap, and the transform's is narrow.

    The grids' own are within 1e-4; the convolution of the schedule, which comes after them, takes ten seconds.
    """
    grids = schedule.GRID[:4]
    mechanisms, counts = zip(*STEPS[name], strict=True)
    makers = TableMakers(mixed([m.steps([m], direction) for m in mechanisms]))
    row = WholeCounts(np.array([counts]))
    for question in (EpsilonAt(1e-9), DeltaAt(1.0)):
        a, b = (solver.bounds(row, makers, [question], methods=m)[0][0] for m in (schedule.SINGLE[:1], grids))
        assert a.method == Method.TRANSFORM and b.method in (Method.GRID, Method.CONVOLUTION)
        assert max(a.lower, b.lower) <= min(a.upper, b.upper)
        assert a.upper - a.lower <= 1e-7 * a.upper


def test_the_limits_of_sampling():
    """Whoever is always in the sample has the law without sampling."""
    law = LAWS["Laplace"]
    one, two = (x.spectrum(2.0, 0.5, NUMBER, 1, np.inf) for x in (law, law._replace(rate=1.0 - 2.0**-50)))
    assert np.abs(one.re - two.re).max() <= 1e-12 and abs(float(one.log_moment - two.log_moment)) <= 1e-13
