"""Characteristic functions of steps whose kind is drawn openly: means of the kinds', with 40 digits."""

import highprecision
import mpmath
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.mechanisms import drawn_steps
from pld_accountant.mechanisms.base import CharacteristicSteps, Spectrum
from pld_accountant.mechanisms.drawn_steps import DrawnSteps

ROW = np.zeros(1, dtype=np.int64)
KINDS = [(1.5, 0.02, 0.7), (0.6, 0.3, 0.3)]


def family(kinds=KINDS, direction="remove"):
    steps = [pa.SampledGaussian(sigma, q) for sigma, q, _ in kinds]
    return DrawnSteps([([one.steps([one], direction) for one in steps], [w for *_, w in kinds])], direction)


def excess(kinds, direction, theta, spacing, m=48, places=(0, 47)):
    """By how much K and phi are further from the truth than their bounds say, the largest."""
    found = family(kinds, direction).spectrum(theta, spacing, m, ROW, 3, np.inf)
    laws = [highprecision.law(sigma, q, direction, theta, spacing * m) for sigma, q, _ in kinds]
    with mpmath.workdps(40):
        masses = [mpmath.mpf(w) * mpmath.exp(law.k) for law, (*_, w) in zip(laws, kinds, strict=True)]
        k, mean = mpmath.log(mpmath.fsum(masses)), mpmath.mpf(float(found.mean[0]))
        worst = abs(float(k - mpmath.mpf(float(found.log_moment[0])))) - float(found.log_moment_error[0])
        for i in places:
            omega = spacing * (i + 1)
            phi = [mass * law.phi(omega, mean) for mass, law in zip(masses, laws, strict=True)]
            true = mpmath.fsum(phi) / mpmath.fsum(masses)
            ours = mpmath.exp(mpmath.mpc(float(found.re[0, i]), float(found.im[0, i])))
            allowed = float(found.error[0] + found.error_slope[0] * omega)
            worst = max(worst, float(abs(ours - true)) - allowed)
    return worst


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("theta", "spacing"), [(0.1, 0.5), (4.0, 2.0), (30.0, 0.3)])
@pytest.mark.parametrize("kinds", [KINDS, [(4.0, 1e-4, 1.0 - 1e-6), (2.0, 1e-5, 1e-6)]])
def test_characteristic_functions_are_within_their_errors(kinds, direction, theta, spacing):
    assert excess(kinds, direction, theta, spacing) <= 0.0


def test_errors_of_the_kinds_enter_with_their_shares():
    """Far above round-off: those of phi as means, and that of a kind's K by what it moves the shares."""
    spacing, m, weights = 0.5, 8, np.array([0.7, 0.3])
    omega = spacing * np.arange(1, m + 1)
    k, means, moved = np.array([0.2, 1.5]), np.array([0.1, 2.0]), np.array([0.0, 1e-6])
    log_phi = np.multiply.outer([0.3, 0.8], -0.5 * omega**2) + 0.0j

    def mean_of(log_moment, error=(0.0, 0.0), slope=(0.0, 0.0)):
        rows = [np.asarray(x) for x in (log_moment, means, moved, error, slope, log_phi.real, log_phi.imag)]
        return drawn_steps._mean(Spectrum(*rows, np.zeros((2, 2)), np.zeros(2)), np.log(weights), spacing, 2)

    found, true = mean_of(k), mean_of(k + moved)
    share = weights * np.exp(k) / (weights @ np.exp(k))
    worse = mean_of(k, error=(1e-3, 2e-3), slope=(3e-3, 5e-3))
    assert worse.error == pytest.approx(share @ [1e-3, 2e-3], rel=1e-9)
    assert worse.error_slope - found.error_slope == pytest.approx(share @ [3e-3, 5e-3], rel=1e-9)
    assert 0.0 < true.log_moment - found.log_moment <= found.log_moment_error
    # centred alike
    phi, other = (np.exp(x.re + 1j * (x.im + x.mean * omega)) for x in (found, true))
    assert np.all(np.abs(phi - other) <= found.error + found.error_slope * omega)
    assert np.abs(phi - other).max() > 1e-8


def test_means_that_are_far_apart_turn_phi_by_their_round_off():
    spacing, m, weights, means = 0.5, 8, np.array([0.4, 0.6]), np.array([0.1, 1e6 + 0.7])
    omega = spacing * np.arange(1, m + 1)
    rows = [np.array([0.0, 0.3]), means, *np.zeros((3, 2)), *np.zeros((2, 2, m)), np.zeros((2, 2)), np.zeros(2)]
    found = drawn_steps._mean(Spectrum(*rows), np.log(weights), spacing, 2)
    worst = 0.0
    with mpmath.workdps(40):
        share = [mpmath.mpf(float(w)) * mpmath.exp(k) for w, k in zip(weights, rows[0].tolist(), strict=True)]
        for re, im, at in zip(found.re, found.im, omega.tolist(), strict=True):
            turns = [mpmath.expj(at * (mpmath.mpf(x) - float(found.mean))) for x in means.tolist()]
            apart = abs(mpmath.fdot(share, turns) / mpmath.fsum(share) - mpmath.exp(mpmath.mpc(float(re), float(im))))
            worst = max(worst, float(apart))
            assert apart <= found.error + found.error_slope * at
    assert worst > 1e-12


def test_a_kind_that_is_left_out_is_found(monkeypatch):
    mean = drawn_steps._mean
    monkeypatch.setattr(drawn_steps, "_mean", lambda kinds, w, *more: mean(kinds, w + np.array([0.0, -1e-9]), *more))
    assert excess(KINDS, "remove", 4.0, 2.0) > 0.0


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_nothing_exceeds_the_envelope(direction):
    steps, theta = family(direction=direction), 2.0
    levels = 2.0 ** np.arange(-1.0, 6.0)
    found = steps.spectrum(theta, 0.25, 512, ROW, 1, np.inf)
    bound = steps.log_envelope(theta, levels, ROW, found)[0]
    assert np.all(np.diff(bound) <= 0.0)
    beyond = np.array([found.re[0, round(level / 0.25) - 1 :].max() for level in levels])
    assert np.all(beyond <= bound) and bound[-1] < -0.05
    # of the second kind alone it is not one
    alone = family([(1.5, 0.02, 0.7), (0.6, 0.3, 1e-9)], direction).log_envelope(theta, levels, ROW, found)[0]
    assert not np.all(beyond <= alone)


def test_the_family_has_characteristic_functions_and_ends():
    steps = family()
    assert isinstance(steps, CharacteristicSteps) and steps.decays and not steps.atomic
    assert steps.whole and steps.infinite_mass()[0] == 0.0
    cut = steps.truncated(5.0)
    assert not cut.whole
    # each kind ends where Phi(-5) of its own mass is left
    assert cut.infinite_mass()[0] == pytest.approx(2.8665e-7, rel=1e-4)
    a, b = (one.spectrum(1.0, 1.0, 8, ROW, 1, np.inf) for one in (steps, cut))
    assert 0.0 < a.log_moment[0] - b.log_moment[0] < 1e-3
    assert steps.spectrum(1.0, 1.0, 8, ROW, 1, 10.0) is None, "too costly"
    added = family(direction="add")
    assert added.truncated(5.0) is added, "its losses are bounded"
