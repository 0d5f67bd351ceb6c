"""Truncated Poisson batches: the two kinds of steps, their chances, and the limits of large and small batches."""

import math
from fractions import Fraction

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.mechanisms.base import StepFamily
from pld_accountant.mechanisms.truncated_poisson import TruncatedPoisson, _tail


@pytest.mark.parametrize(("n", "rate", "least"), [(1, 0.3, 1), (9, 0.25, 0), (40, 0.125, 17), (700, 0.5, 349)])
def test_tails_of_the_binomial_are_exact(n, rate, least):
    p = Fraction(rate)
    terms = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    for found, exact in zip(_tail(n, rate, least), (sum(terms[:least]), sum(terms[least:])), strict=True):
        assert found == pytest.approx(float(exact), rel=4e-16)


def parts(step, direction):
    """Its two kinds and their chances, from binomial sums in fractions."""
    p, n, b = Fraction(step.sample_rate), step.records, step.batch_size

    def beyond(m, least):
        return sum(math.comb(m, k) * p**k * (1 - p) ** (m - k) for k in range(least, m + 1))

    full = beyond(n - 1, b)
    rate = beyond(n, b + 1) * b / (full * n)
    swapped = pa.ReplaceOneSampledGaussian(step.noise_multiplier / 2, float(rate))
    return float(full), swapped, pa.SampledGaussian(step.noise_multiplier, step.sample_rate)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_compositions_are_sums_over_how_often_the_batch_is_full(direction):
    step = pa.TruncatedPoisson(2.0, 0.25, 3, 10)
    full, swapped, plain = parts(step, direction)
    for epsilon in (0.3, 1.5):
        low = high = 0.0
        for k in range(4):
            chance = math.comb(3, k) * full**k * (1 - full) ** (3 - k)
            one = pa.compose([(swapped, k), (plain, 3 - k)]).delta(epsilon, direction)
            low, high = low + chance * one.lower, high + chance * one.upper
        found = pa.compose([(step, 3)]).delta(epsilon, direction)
        assert found.lower <= high * (1 + 1e-12) and low <= found.upper * (1 + 1e-12)
        assert found.upper <= found.lower * (1 + 1e-4)


def test_epsilon_lies_between_poisson_and_more_noise_as_the_batch_grows():
    epsilons = [pa.compose([(pa.TruncatedPoisson(2.0, 0.1, b, 50), 1)]).epsilon(1e-6) for b in (6, 12, 50)]
    poisson = pa.compose([(pa.SampledGaussian(2.0, 0.1), 1)]).epsilon(1e-6)
    assert epsilons[0].lower > epsilons[1].upper > poisson.lower
    assert epsilons[2].lower <= poisson.upper and poisson.lower <= epsilons[2].upper


def test_rdp_is_the_mean_of_the_kinds_and_the_family_keeps_its_protocol():
    step = pa.TruncatedPoisson(2.0, 0.25, 3, 10)
    full, swapped, plain = parts(step, "remove")
    alpha = 4.0
    moments = [math.exp(3 * float(pa.compose([(m, 1)]).rdp(alpha))) for m in (plain, swapped)]
    mean = math.log((1 - full) * moments[0] + full * moments[1]) / 3
    found = float(pa.compose([(step, 1)]).rdp(alpha))
    assert mean * (1 - 1e-9) <= found <= mean * (1 + 1e-6)
    steps = TruncatedPoisson.steps([step], "remove")
    assert isinstance(steps, StepFamily)
    for number in (2, 3, 300):
        assert steps.losses(0, 10.0, number).size == number
    p, _ = steps.masses(0, np.array([-40.0, 0.0, 300.0]))
    assert p.sum() == pytest.approx(1.0, rel=1e-10)


@pytest.mark.parametrize(
    "parameters", [(0.05, 0.1, 5, 50), (1.0, 0.0, 5, 50), (1.0, 0.1, 0, 50), (1.0, 0.1, 5, 0), (1.0, 0.1, 5, 10**10)]
)
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ValueError, match="must"):
        pa.TruncatedPoisson(*parameters)
