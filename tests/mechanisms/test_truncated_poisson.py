"""Truncated Poisson batches: the two kinds of steps, their chances, and the limits of large and small batches."""

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.mechanisms.base import StepFamily
from pld_accountant.mechanisms.truncated_poisson import _tail


@pytest.mark.parametrize(("n", "rate", "least"), [(1, 0.3, 1), (9, 0.25, 0), (40, 0.125, 17), (700, 0.5, 349)])
def test_tails_of_the_binomial_are_exact(n, rate, least):
    p = Fraction(rate)
    terms = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    for found, exact in zip(_tail(n, rate, least), (sum(terms[:least]), sum(terms[least:])), strict=True):
        assert found == pytest.approx(float(exact), rel=4e-16)


def parts(step):
    """The chance of a full batch, and the two kinds of steps, from binomial sums in fractions."""
    p, n, b = Fraction(step.sample_rate), step.records, step.batch_size

    def beyond(m, least):
        return sum(math.comb(m, k) * p**k * (1 - p) ** (m - k) for k in range(least, m + 1))

    full = beyond(n - 1, b)
    rate = beyond(n, b + 1) * b / (full * n)
    swapped = pa.SampledGaussian(step.noise_multiplier / 2, float(rate))
    return float(full), swapped, pa.SampledGaussian(step.noise_multiplier, step.sample_rate)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_upper_bound_is_the_sum_over_how_often_the_batch_is_full(direction):
    step = pa.TruncatedPoisson(2.0, 0.25, 3, 10)
    full, swapped, plain = parts(step)
    for epsilon in (0.3, 1.5):
        low = high = 0.0
        for k in range(4):
            chance = math.comb(3, k) * full**k * (1 - full) ** (3 - k)
            one = pa.compose([(swapped, k), (plain, 3 - k)]).delta(epsilon, direction)
            low, high = low + chance * one.lower, high + chance * one.upper
        found = pa.compose([(step, 3)]).delta(epsilon, direction)
        assert low <= found.upper <= high * (1 + 3e-4)


def laws(step, others):
    """Shifts of the sum with and without a record of contribution `norm`, and their chances, over all draws."""
    p, b = Fraction(step.sample_rate), step.batch_size
    found = []
    for records in ((*others, Fraction(step.norm)), others):
        law = defaultdict(Fraction)
        for size in range(len(records) + 1):
            for drawn in itertools.combinations(range(len(records)), size):
                chance = p**size * (1 - p) ** (len(records) - size)
                kept = list(itertools.combinations(drawn, min(size, b)))
                for batch in kept:
                    law[sum((records[i] for i in batch), Fraction(0))] += chance / len(kept)
        found.append(law)
    return found


def delta_of_laws(own, other, sigma, epsilon):
    """Integral of (P - e^epsilon Q)+ for mixtures of Gaussians, on a fine grid."""
    x = np.linspace(-12.0 * sigma - 8.0, 12.0 * sigma + 8.0, 200_001)
    p, q = (
        sum(float(w) * np.exp(-0.5 * ((x - float(c)) / sigma) ** 2) for c, w in law.items()) for law in (own, other)
    )
    return float(np.maximum(p - np.exp(epsilon) * q, 0.0).sum() * (x[1] - x[0]) / (sigma * math.sqrt(2.0 * math.pi)))


@pytest.mark.parametrize(
    "parameters",
    [
        (1.0, 0.5, 2, 3),
        (2.0, 0.9, 3, 6),
        (0.7, 0.3, 1, 5),
        (1.5, 1.0, 2, 5),
        (0.5, 0.5, 2, 4, 0.25),
        (1.0, 0.9, 1, 4, 0),
    ],
)
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_data_sets_lie_below_the_upper_bound_and_one_reaches_the_lower(parameters, direction):
    """Every draw of small data sets, enumerated: others that pull against the record, none, or at random."""
    step = pa.TruncatedPoisson(*parameters)
    n = step.records - 1
    rng = np.random.default_rng(0)
    sets = [(Fraction(c),) * n for c in (-1, 0, 1)]
    sets += [tuple(Fraction(int(v), 8) for v in rng.integers(-8, 9, n)) for _ in range(4)]
    largest = 0.0
    for epsilon in (0.0, 0.5, 1.5):
        found = pa.compose([(step, 1)]).delta(epsilon, direction)
        for others in sets:
            with_record, without = laws(step, others)
            pair = (with_record, without) if direction == "remove" else (without, with_record)
            value = delta_of_laws(*pair, step.noise_multiplier, epsilon)
            assert value <= found.upper * (1 + 1e-4) + 1e-9
            if not any(others):
                assert found.lower == pytest.approx(value, rel=1e-3, abs=1e-9)
            largest = max(largest, value / found.upper if found.upper > 1e-6 else 0.0)
    # only a direction across the others' would bring a small record nearer
    assert largest > (0.6 if step.norm == 1.0 else 0.4), "a bound that is far above all data sets is a mistake"


def test_a_peer_is_above():
    """dp-accounting's pair counts a displaced record against the whole step: jax_privacy's 6.87451 for this loop."""
    found = pa.compose([(pa.TruncatedPoisson(4.0, 0.02048, 1024, 50_000), 10_000)]).epsilon(1e-5)
    assert 2.0 < found.lower < found.upper < 3.7


def test_epsilon_lies_between_poisson_and_more_noise_as_the_batch_grows():
    epsilons = [pa.compose([(pa.TruncatedPoisson(2.0, 0.1, b, 50), 1)]).epsilon(1e-6) for b in (6, 12, 50)]
    poisson = pa.compose([(pa.SampledGaussian(2.0, 0.1), 1)]).epsilon(1e-6)
    assert epsilons[0].upper > epsilons[1].upper > poisson.lower
    assert epsilons[0].lower < epsilons[1].lower < poisson.upper
    assert epsilons[2].lower <= poisson.upper and poisson.lower <= epsilons[2].upper


def test_rdp_is_the_mean_of_the_kinds_and_the_family_keeps_its_protocol():
    step = pa.TruncatedPoisson(2.0, 0.25, 3, 10)
    full, swapped, plain = parts(step)
    alpha = 4.0
    moments = [math.exp(3 * float(pa.compose([(m, 1)]).rdp(alpha))) for m in (plain, swapped)]
    mean = math.log((1 - full) * moments[0] + full * moments[1]) / 3
    found = float(pa.compose([(step, 1)]).rdp(alpha))
    assert mean * (1 - 1e-9) <= found <= mean * (1 + 1e-6)
    ((pair, _),) = step.above().parts
    steps = pair.steps([pair], "remove")
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


def test_dozens_of_kinds_have_more_than_the_renyi_bound():
    """Close to each other: the bounds of one kind's steps are those of all."""
    kinds = [(pa.TruncatedPoisson(1.0, 0.02, 60, 2000, norm=1.0 - k * 1e-9), 1) for k in range(60)]
    found = pa.compose(kinds).epsilon(1e-5)
    alike = pa.compose([(pa.TruncatedPoisson(1.0, 0.02, 60, 2000), 60)]).epsilon(1e-5)
    assert found.status == pa.Status.CERTIFIED
    assert 0.999 * alike.upper <= found.upper <= 1.001 * alike.upper
    assert 0.999 * alike.lower <= found.lower <= 1.001 * alike.lower
