"""Discrete laws against sums over all outcomes in fractions, binomial sums, and the rule for Poisson samples."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import pld_accountant as pa

PAIRS = {
    "plain": ([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]),
    "infinite both ways": ([0.125, 0.5, 0.375, 0.0], [0.0, 0.375, 0.5, 0.125]),
    "infinite one way": ([0.25, 0.75], [0.0, 1.0]),
    "nearly equal": ([0.5 + 2.0**-30, 0.5 - 2.0**-30], [0.5, 0.5]),
    "no lattice": ([0.5, 0.3125, 0.1875], [0.4375, 0.4375, 0.125]),
}


def brute_force(laws, epsilon, direction):
    """delta of a composition over all outcomes, in fractions of the doubles."""
    with mpmath.workdps(40):
        factor = Fraction(str(mpmath.exp(epsilon)))
    total = Fraction(0)
    for outcome in itertools.product(*(range(len(p)) for p, _ in laws)):
        p = math.prod(Fraction(law[0][i]) for law, i in zip(laws, outcome, strict=True))
        q = math.prod(Fraction(law[1][i]) for law, i in zip(laws, outcome, strict=True))
        total += max(p - factor * q, 0) if direction == "remove" else max(q - factor * p, 0)
    return float(total)


@pytest.mark.parametrize("direction", ["remove", "add", "both"])
@pytest.mark.parametrize("epsilon", [-0.4, 0.0, 1e-9, 0.3, 1.1])
@pytest.mark.parametrize("name", PAIRS)
def test_a_composition_is_the_sum_over_all_outcomes(name, epsilon, direction):
    p, q = PAIRS[name]
    for steps in (1, 3):
        found = pa.compose([(pa.DiscretePair(p, q), steps)]).delta(epsilon, direction)
        ways = ("remove", "add") if direction == "both" else (direction,)
        exact = max(brute_force([(p, q)] * steps, epsilon, way) for way in ways)
        assert found.lower * (1 - 1e-15) <= exact <= found.upper * (1 + 1e-15) + 1e-17
        assert found.upper - found.lower <= 1e-6 * exact + 1e-11


def test_epsilon_is_infinite_below_the_infinite_mass():
    two = pa.compose([(pa.ApproximateDP(0.5, 1e-4), 2)])
    lost = 1 - (1 - 1e-4) ** 2
    assert two.epsilon(0.999999 * lost).lower == math.inf
    assert two.epsilon(1.000001 * lost).upper < 1.0 + 1e-9
    assert two.delta(1.0).lower == pytest.approx(lost, rel=1e-6)
    assert two.epsilon(0.0).upper == math.inf and np.all(two.rdp([2.0, 5.0]) == math.inf)
    one_way = pa.compose([(pa.DiscretePair(*PAIRS["infinite one way"]), 1)])
    assert one_way.epsilon(0.1, "remove").upper == math.inf
    assert one_way.epsilon(0.1, "add").upper < 1.0


@pytest.mark.parametrize("make", [
    lambda: pa.RandomizedResponse(0.3, 5), lambda: pa.DiscreteLaplace(0.5, 3), lambda: pa.PureDP(0.8),
    lambda: pa.ApproximateDP(0.8, 1e-3), lambda: pa.DiscreteGaussian(1.5, 2),
])  # fmt: skip
def test_sampling_is_a_mixture(make):
    """delta of the removal at log(1 + q (e^epsilon - 1)) is q times delta (Balle, Barthe and Gaboardi 2018)."""
    whole = pa.compose([(make(), 1)])
    for rate in (1 - 1e-9, 0.9, 0.2, 1e-3):
        some = pa.compose([(pa.PoissonSampled(make(), rate), 1)])
        for epsilon in (1e-3, 0.4, 0.7):
            at = math.log1p(rate * math.expm1(epsilon))
            wanted, found = whole.delta(epsilon, "remove"), some.delta(at, "remove")
            assert found.lower <= rate * wanted.upper * (1 + 1e-11) + 1e-15
            assert found.upper >= rate * wanted.lower * (1 - 1e-11) - 1e-15


def test_a_lattice_is_the_power_of_the_masses():
    steps, epsilon = 400, 0.05
    found = pa.compose([(pa.PureDP(epsilon), steps)]).delta(3.0)
    assert found.method == pa.Method.LATTICE
    with mpmath.workdps(50):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        exact = mpmath.mpf(0)
        for k in range(230, steps + 1):
            loss = (2 * k - steps) * mpmath.mpf(epsilon)
            if loss > 3:
                exact += mpmath.binomial(steps, k) * p**k * (1 - p) ** (steps - k) * -mpmath.expm1(3 - loss)
        assert found.lower <= exact <= found.upper
        assert found.upper - found.lower < 1e-8 * found.upper


def test_no_gaussian_dominates_excluded_outcomes():
    kind = pa.DiscretePair
    for p, q in ([0.5, 0.5, 0.0], [0.25, 0.5, 0.25]), ([0.5, 0.5], [0.25, 0.75]):
        pair = kind(p, q)
        mu = kind.steps([pair], "remove").gaussian_mu()[0]
        assert (mu == math.inf) == (p[-1] == 0.0)


def test_the_largest_loss_at_delta_zero():
    assert pa.compose([(pa.PureDP(1.0), 3), (pa.Laplace(2.0), 2)]).epsilon(0).upper == pytest.approx(4.0)
    assert pa.compose([(pa.SampledGaussian(2.0, 0.1), 3)]).epsilon(0.0).lower == math.inf
    bounded = pa.compose([(pa.SampledGaussian(2.0, 0.1), 3)]).epsilon(0.0, "add")
    assert bounded.lower <= -3 * math.log1p(-0.1) <= bounded.upper
    assert pa.compose([]).epsilon(0).upper == 0.0


def test_negative_epsilons_of_gaussians():
    from scipy.special import ndtr

    found = pa.compose([(pa.Gaussian(1.0), 1)]).delta(-1.0)
    exact = ndtr(1.0 + 0.5) - math.exp(-1.0) * ndtr(1.0 - 0.5)
    assert found.lower * (1 - 1e-14) <= exact <= found.upper * (1 + 1e-14)
    assert pa.compose([(pa.SampledGaussian(1.0, 0.1), 5)]).delta(-50.0).lower == pytest.approx(1.0)
