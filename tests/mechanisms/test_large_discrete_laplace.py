"""Discrete Laplace noise of a large sensitivity, against exact sums and the table of all outcomes."""

import math

import mpmath
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.mechanisms import large_discrete_laplace
from pld_accountant.mechanisms.large_discrete_laplace import LargeDiscreteLaplace, discrete_laplace_pair


def exact_delta(a, s, epsilon):
    """delta by the sum over all outcomes."""
    mpmath.mp.dps = 40
    a = mpmath.mpf(a)
    scale = mpmath.tanh(a / 2)
    end = int(200 / a)
    total = mpmath.mpf(0)
    for k in range(-end, end + s):
        p, q = (scale * mpmath.exp(-a * abs(k - c)) for c in (s, 0))
        total += max(p - mpmath.exp(epsilon) * q, 0)
    return total


@pytest.mark.parametrize("s", [5, 6])
@pytest.mark.parametrize("place", [0.0, 0.25, 0.5, 1.0, 2.3])
def test_delta_is_that_of_laplace_at_the_losses_and_a_chord_between_them(s, place):
    a = 0.4
    epsilon = a * (s - 2.0 * place)
    exact = exact_delta(a, s, epsilon)
    laplace = -mpmath.expm1(-a * place)
    if place == int(place):
        assert exact == pytest.approx(laplace, rel=1e-14, abs=1e-14)
    else:
        assert exact > laplace
    coarse = pa.compose([(discrete_laplace_pair(a * s / (s // 2), s // 2), 1)]).delta(epsilon)
    assert coarse.upper >= exact


@pytest.mark.parametrize(("a", "s", "steps"), [(1e-4, 20_000, 1), (1e-5, 100_000, 10), (3e-5, 17_017, 40)])
@pytest.mark.parametrize("delta", [1e-2, 1e-9])
def test_it_contains_the_table_of_all_outcomes(a, s, steps, delta):
    run = pa.compose([(pa.DiscreteLaplace(a, s), steps)])
    table = pa.compose([(discrete_laplace_pair(a, s), steps)])
    found, exact = run.epsilon(delta), table.epsilon(delta)
    assert found.lower <= exact.upper
    assert exact.lower <= found.upper
    assert found.upper - found.lower <= 1e-6 * found.upper
    found = run.delta(0.7 * exact.upper)
    exact = table.delta(0.7 * exact.upper)
    assert found.lower <= exact.upper
    assert exact.lower <= found.upper


def test_a_sample_contains_that_of_the_table():
    a, s = 2e-5, 50_000
    found = pa.compose([(pa.PoissonSampled(pa.DiscreteLaplace(a, s), 0.1), 20)]).epsilon(1e-6)
    exact = pa.compose([(discrete_laplace_pair(a, s).sampled(0.1), 20)]).epsilon(1e-6)
    assert found.lower <= exact.upper
    assert exact.lower <= found.upper
    assert found.upper - found.lower <= 1e-6 * found.upper


@pytest.mark.parametrize("s", [16_385, 65_536, 99_991, 200_000, 524_287, 1_000_000, 1_000_003, 10**9, 2**52 + 1])
def test_the_sensitivity_is_hardly_rounded_up(s):
    width, points = LargeDiscreteLaplace(1e-18, s)._points()
    assert s <= width * points <= s * (1 + (1e-7 if s <= 2**19 else 5e-6))
    assert points <= 2**14 or (width, points) == (1, s)


def test_a_sensitivity_rounded_down_is_caught(monkeypatch):
    monkeypatch.setattr(LargeDiscreteLaplace, "_points", lambda self: (2, self.sensitivity // 2 - 8))
    run = pa.compose(LargeDiscreteLaplace(1e-4, 20_000).above().parts)
    exact = pa.compose([(discrete_laplace_pair(1e-4, 20_000), 1)])
    assert run.delta(1.0).upper < exact.delta(1.0).lower


def test_dollars_beside_counts():
    run = pa.compose([(pa.DiscreteLaplace(1e-6, 1_000_000), 1), (pa.DiscreteLaplace(0.1), 11), (pa.PureDP(0.1), 3)])
    found = run.epsilon(1e-10)
    parts = pa.compose([(pa.Laplace(1.0), 1), (pa.DiscreteLaplace(0.1), 11), (pa.PureDP(0.1), 3)]).epsilon(1e-10)
    assert found.lower <= parts.upper * (1 + 1e-9)
    assert found.upper == pytest.approx(parts.upper, rel=1e-4)
    assert run.epsilon(0.0).upper == pytest.approx(2.4, rel=1e-9)
    assert run.mu(1e-2).upper < np.inf
    assert np.all(np.isfinite(run.rdp([2.0, 8.0])))


def test_its_words_and_its_limits():
    step = pa.DiscreteLaplace(1e-6, 500_000)
    assert repr(step) == "DiscreteLaplace(1e-06, 500000)"
    assert repr(pa.PoissonSampled(pa.PoissonSampled(step, 0.5), 0.5)) == f"PoissonSampled({step!r}, 0.25)"
    assert isinstance(pa.DiscreteLaplace(1e-6, large_discrete_laplace.MOST_OUTCOMES), pa.DiscretePair)
    for a, s in ((1.0, 20_000), (0.0, 20_000), (math.nan, 20_000), (1e-6, 20_000.5), (1.0, 400)):
        with pytest.raises(ValueError, match=r"a |sensitivity"):
            pa.DiscreteLaplace(a, s)
