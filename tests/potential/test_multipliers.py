"""Characteristic functions between the norms, and their series, against forty digits."""

import highprecision as hp
import mpmath
import numpy as np
import pytest

from pld_accountant.potential import series as series_module
from pld_accountant.potential.multipliers import Law, Multipliers, log_moments
from pld_accountant.potential.norms import NORMS, OCTAVES
from pld_accountant.potential.series import ChargeTable, fit_series

LAWS = [Law(2.0, 0.03, "remove", 7.0), Law(1.0, 0.01, "add", 5.0), Law(0.6, 0.1, "remove", 1.5)]
SPACING, MOST = 0.7, 60


def true_jump(law, norm, omega):
    """B - 1, a complex number of forty digits."""
    exact = hp.law(law.noise_multiplier / norm, law.sample_rate, law.direction, law.theta, omega)
    with mpmath.workdps(hp.DIGITS):
        return mpmath.exp(exact.k) * exact.phi(omega) - 1


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_interpolation_is_within_its_error(law):
    multipliers = Multipliers(law, SPACING, MOST)
    rng = np.random.default_rng(2)
    norms = np.concatenate([[1.0, NORMS[0], 0.5], np.exp(rng.uniform(np.log(NORMS[0]), 0, 3))])
    values, error = multipliers.at(norms)
    for i, norm in enumerate(norms.tolist()):
        for k in (0, 1, int(rng.integers(2, MOST)), MOST):
            missed = abs(mpmath.mpc(complex(values[i, k])) - true_jump(law, norm, float(multipliers.omega[k])))
            assert missed <= error[i, k]
            assert error[i, k] < 1e-9 * norm**2


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("octave", [0, 3, OCTAVES - 1])
def test_the_slope_in_time_is_bounded(law, octave):
    """By differences of forty digits; the bound is used for the rounding of times, which others would hide."""
    multipliers = Multipliers(law, SPACING, MOST)
    first = 4.0 ** (octave - OCTAVES) / law.noise_multiplier**2
    bound, step = multipliers._slope(first), 1e-8
    for time in (first, 2.3 * first, 4.0 * first):
        norms = np.sqrt(time * np.array([1.0, 1.0 + step])) * law.noise_multiplier
        for k in (0, 1, 20, MOST):
            below, above = (true_jump(law, norm, float(multipliers.omega[k])) for norm in norms.tolist())
            slope = float(abs(above - below) / (time * step))
            assert slope <= bound[k] * 1.001
            assert k or octave or bound[0] <= 20 * slope


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_charges_are_not_below_the_truth(law):
    norms = np.array([1.0, 0.37, NORMS[0]])
    remove = law._replace(direction="remove")
    for norm, cost in zip(norms.tolist(), law.cost(norms).tolist(), strict=True):
        exact = hp.law(law.noise_multiplier / norm, law.sample_rate, "remove", law.theta).k
        assert exact <= cost <= exact * (1 + mpmath.mpf(10) ** -10)
    assert np.all(log_moments(remove, norms) == law.cost(norms))
    table = ChargeTable.make([remove]).table
    assert np.all(np.diff(table[0]) >= 0) and table[0, -1] == pytest.approx(1.0, rel=1e-14)


@pytest.mark.parametrize("degrees", [(48, 96), (4,), (8,)])
def test_the_series_is_within_its_error_at_every_norm(degrees, monkeypatch):
    """Also if the series is much too short: the error is measured, not assumed."""
    monkeypatch.setattr(series_module, "_DEGREES", degrees)
    law = LAWS[0]
    multipliers, charges = Multipliers(law, SPACING, MOST), ChargeTable.make([law])
    kappa, drift = 1.01 * float(charges.unit), np.zeros(MOST + 1, dtype=np.complex128)
    found = fit_series(multipliers, drift, charges.of(law), kappa, np.ones(MOST + 1))
    rng = np.random.default_rng(3)
    worst = 0.0
    for place in [0, NORMS.size - 1, *rng.integers(NORMS.size, size=3).tolist()]:
        norm, charge = float(NORMS[place]), float(charges.of(law)[place])
        generator, jump = found.at(np.array([norm]))
        for k in (0, 5, MOST):
            exact = (1 + true_jump(law, norm, float(multipliers.omega[k]))) * mpmath.exp(-charge * kappa) - 1
            missed = abs(exact - mpmath.mpc(complex(jump[0, k])))
            assert missed <= found.jump_error[k]
            assert abs(exact / charge - mpmath.mpc(complex(generator[0, k]))) <= found.generator_error[k]
            worst = max(worst, float(missed))
    if degrees == (4,):
        assert worst > 1e-6, "the error is not idle"
