"""Discrete Gaussian noise on several integers, or of a large sigma: exact sums, exact compositions, theta sums."""

import itertools
import math

import mpmath
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.mechanisms.base import Enclosure
from pld_accountant.mechanisms.discrete_gaussian_vector import DiscreteGaussianVector
from pld_accountant.notions import zcdp
from pld_accountant.results import Method, Status


def exact_delta(sigma, s, epsilon):
    """delta of one integer, by the sum over all outcomes."""
    k = np.arange(-int(14 * sigma), int(14 * sigma) + s)
    p, q = (np.exp(-0.5 * ((k - c) / sigma) ** 2) for c in (s, 0))
    return math.fsum(np.maximum(p - math.exp(epsilon) * q, 0.0)) / math.fsum(q)


@pytest.mark.parametrize("sigma", [5001.0, 9000.0, 30_000.0])
@pytest.mark.parametrize("share", [0.2, 1.0, 3.0])
def test_one_large_sigma_contains_the_sum_over_all_outcomes(sigma, share):
    s = round(share * sigma)
    run = pa.compose([(pa.DiscreteGaussian(sigma, s), 1)])
    for epsilon in (0.0, share, 3.0 * share):
        found, exact = run.delta(epsilon), exact_delta(sigma, s, epsilon)
        assert found.lower * (1 - 1e-12) <= exact <= found.upper * (1 + 1e-12)
        assert found.upper - found.lower <= 1e-5 * exact


@pytest.mark.parametrize(("sigma", "s", "steps"), [(4.0, 1, 20), (9.0, 3, 5), (20.0, 7, 100), (300.0, 100, 10)])
@pytest.mark.parametrize("delta", [1e-2, 1e-10, 1e-25])
def test_one_integer_contains_the_exact_losses(sigma, s, steps, delta):
    found = pa.compose([(DiscreteGaussianVector(sigma, s), steps)]).epsilon(delta)
    table = pa.compose([(pa.DiscreteGaussian(sigma, s), steps)]).epsilon(delta)
    assert found.lower <= table.upper
    assert table.lower <= found.upper
    assert found.upper - found.lower <= 8.0 / sigma**2 * found.upper


def test_a_smaller_noise_between_them_is_caught(monkeypatch):
    monkeypatch.setattr(DiscreteGaussianVector, "_shrunk", 1.0)
    run = pa.compose([(DiscreteGaussianVector(4.0, 2), 1)])
    assert not all(run.delta(e).lower <= exact_delta(4.0, 2, e) <= run.delta(e).upper for e in np.linspace(0, 3, 20))


@pytest.mark.parametrize("square", [1, 2, 4, 5])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 1.0])
def test_two_integers_contain_every_change(square, epsilon):
    found = pa.compose([(pa.DiscreteGaussian(5.0, math.sqrt(square), coordinates=2), 3)]).delta(epsilon)
    changes = [pair for pair in itertools.product(range(3), repeat=2) if 0 < sum(x * x for x in pair) <= square]
    exact = []
    for pair in changes:
        exact.append(pa.compose([(pa.DiscreteGaussian(5.0, x), 3) for x in pair if x]).delta(epsilon))
    assert max(one.lower for one in exact) <= found.upper
    assert found.lower <= max(one.upper for one in exact)


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_a_sample_contains_that_of_the_exact_losses(epsilon, direction):
    rate, steps = 0.1, 50
    vector = pa.PoissonSampled(DiscreteGaussianVector(10.0, 3), rate)
    found = pa.compose([(vector, steps)]).delta(epsilon, direction)
    table = pa.compose([(pa.PoissonSampled(pa.DiscreteGaussian(10.0, 3), rate), steps)]).delta(epsilon, direction)
    assert found.lower <= table.upper
    assert table.lower <= found.upper
    assert found.upper - found.lower <= 0.2 * found.upper


def test_factors_of_the_densities_are_those_of_theta_sums():
    mpmath.mp.dps = 60
    sigma, t2 = mpmath.mpf(4), mpmath.mpf(4)
    u2 = sigma**2 * t2 / (sigma**2 - t2)
    n = range(-120, 121)
    masses = [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * sigma**2)) for k in n]
    total = mpmath.fsum(masses)
    rounder = mpmath.sqrt(2 * mpmath.pi * u2)
    most = 0
    for x in mpmath.linspace(0, 3, 25):
        density = mpmath.fsum(m * mpmath.exp(-((x - k) ** 2) / (2 * u2)) for m, k in zip(masses, n, strict=True))
        gaussian = mpmath.npdf(x, 0, mpmath.sqrt(sigma**2 + u2))
        most = max(most, abs(mpmath.log(density / total / rounder / gaussian)))
    ratio = DiscreteGaussianVector(4.0, 1).below().ratio
    assert ratio / 3 <= most <= ratio
    assert DiscreteGaussianVector(4.0, 1, 7).above().ratio == pytest.approx(7 * ratio, rel=1e-12, abs=0.0)


@pytest.mark.parametrize("coordinates", [1, 2, 3, 4, 9])
def test_a_vector_of_integers_attains_the_norm_of_the_lower_bound(coordinates):
    squares = {sum(x * x for x in v) for v in itertools.product(range(6), repeat=min(coordinates, 4))}
    for norm in (1.0, 1.5, math.sqrt(3), math.sqrt(5), 2.9, math.sqrt(18), math.sqrt(23)):
        attained = DiscreteGaussianVector(50.0, norm, coordinates)._attained() ** 2
        assert any(abs(square - attained) <= 1e-12 for square in squares)
        assert attained <= norm**2
        if coordinates >= 4:
            assert attained > round(norm**2, 9) // 1 - 1e-9


@pytest.mark.parametrize(("norm", "changes"), [(1.9, [1]), (1.7, [1, 1])])
def test_the_lower_bound_is_that_of_a_change_of_integers(norm, changes):
    found = pa.compose([(DiscreteGaussianVector(50.0, norm, len(changes)), 4)]).epsilon(1e-5)
    exact = pa.compose([(pa.DiscreteGaussian(50.0, x), 4) for x in changes]).epsilon(1e-5)
    assert exact.lower * 0.99 <= found.lower <= exact.upper < found.upper


class Perturbed:
    """A mechanism of two outcomes that is known by another, whose probabilities are within exp(+-ratio)."""

    noise_multiplier = 1.0
    law = (0.7, 0.3)
    ratio = math.log(0.32 / 0.3)

    def below(self):
        return Enclosure([(pa.DiscretePair((0.68, 0.32), (0.32, 0.68)), 1)], ratio=self.ratio)

    def above(self):
        return self.below()


def test_ratios_of_probabilities_count(monkeypatch):
    steps = 3
    exact = pa.compose([(pa.DiscretePair((0.7, 0.3), (0.3, 0.7)), steps)])

    def holds():
        run = pa.compose([(Perturbed(), steps)])
        for epsilon in np.linspace(0.0, 2.5, 30):
            found, truth = run.delta(epsilon), exact.delta(epsilon)
            if not found.lower <= truth.upper or not truth.lower <= found.upper:
                return False
        return True

    assert holds()
    orders = np.array([1.5, 4.0])
    assert np.all(pa.compose([(Perturbed(), steps)]).rdp(orders) >= exact.rdp(orders))
    monkeypatch.setattr(Perturbed, "ratio", 1e-3 * Perturbed.ratio)
    assert not holds()
    monkeypatch.setattr(Perturbed, "ratio", 10.0)
    assert pa.compose([(Perturbed(), steps)]).epsilon(0.1).status == pa.Status.NOT_CERTIFIED


def test_divergences_are_those_of_canonne_kamath_and_steinke():
    vector = pa.DiscreteGaussian(6.0, math.sqrt(2), coordinates=2)
    orders = np.array([1.5, 2.0, 32.0])
    assert pa.compose([(vector, 3)]).rdp(orders) == pytest.approx(3 * orders / 36, rel=1e-12)
    beside = pa.compose([(vector, 3), (pa.Gaussian(2.0), 1)]).rdp(orders)
    assert beside == pytest.approx(3 * orders / 36 + orders / 8, rel=1e-12)
    sampled = pa.compose([(pa.PoissonSampled(DiscreteGaussianVector(6.0, 1), 0.2), 3)]).rdp(orders)
    k = np.arange(-120, 121)
    with_record, q = (np.exp(-0.5 * ((k - c) / 6.0) ** 2) / np.exp(-0.5 * (k / 6.0) ** 2).sum() for c in (1, 0))
    p = 0.2 * with_record + 0.8 * q
    exact = [3 * math.log(math.fsum(p**alpha * q ** (1 - alpha))) / (alpha - 1) for alpha in orders[:2]]
    assert np.all(sampled[:2] >= exact)
    assert np.all(sampled[:2] <= 1.2 * np.array(exact))


def test_other_questions_are_answered():
    vector = pa.DiscreteGaussian(50.0, math.sqrt(5), coordinates=1000)
    run = pa.compose([(vector, 12)])
    gaussian = pa.compose([(pa.Gaussian(50.0 / math.sqrt(5)), 12)])
    for name, arguments in (("mu", ()), ("tradeoff", (0.01,)), ("attack_success", (0.01,)), ("advantage", ())):
        found, near = getattr(run, name)(*arguments), getattr(gaussian, name)(*arguments)
        assert found.lower <= near.upper
        assert near.lower <= found.upper
        assert found.upper - found.lower <= 0.005 * found.upper
    assert run.epsilon(0.0).lower == np.inf
    boxes = pa.compose([(vector, 12), (pa.ZeroConcentratedDP(0.01), 1)]).epsilon(1e-6)
    assert run.epsilon(1e-6).upper < boxes.upper < np.inf
    tiny = pa.compose([(pa.DiscreteGaussian(50.0, coordinates=2), 1)]).epsilon(1e-60)
    assert tiny.status == Status.RENYI_ONLY and tiny.upper == pytest.approx(zcdp.zcdp_epsilon(2e-4, 1e-60), rel=1e-6)


def test_it_is_hashable_and_told_by_its_own_call():
    one, same = (pa.DiscreteGaussian(60_000.0, 10, coordinates=n) for n in (1, 1))
    assert one == same
    assert hash(one) == hash(same)
    assert repr(one) == "DiscreteGaussian(60000.0, 10.0)"
    sampled = pa.PoissonSampled(pa.PoissonSampled(pa.DiscreteGaussian(60.0, 1.5, coordinates=3), 0.5), 0.5)
    assert repr(sampled) == "PoissonSampled(DiscreteGaussian(60.0, 1.5, coordinates=3), 0.25)"
    assert pa.compose([(one, 2), (same, 3)]).steps == 5


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((3.0, 1), {"coordinates": 2}, "sigma must be from 4"),
        ((1e101, 1), {}, "sigma must be from 4"),
        ((50.0, 0.9), {"coordinates": 2}, "sensitivity must be from 1"),
        ((50.0, float("nan")), {"coordinates": 2}, "sensitivity"),
        ((60_000.0, 1.5), {}, "sensitivity"),
        ((50.0, 1), {"coordinates": 0}, "coordinates"),
        ((50.0, 1), {"coordinates": 2, "truncation_bound": 10}, "one integer"),
        ((60_000.0, 1), {"truncation_bound": 400_000}, "370,000"),
    ],
)
def test_bad_arguments_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        pa.DiscreteGaussian(*arguments, **options)


@pytest.mark.parametrize("others", [[], [(pa.Laplace(2.0), 3)]])
def test_no_bound_exceeds_the_renyi_bound_of_the_whole_law(others):
    """Of little noise: the Gaussian above is farther away than zero-concentrated differential privacy."""
    run = pa.compose([(pa.DiscreteGaussian(4.0, 6.0, coordinates=50), 2), *others])
    rho = 2 * 36 / 32
    alone = pa.compose([(pa.ZeroConcentratedDP(rho), 1), *others])
    for delta in (1e-5, 1e-10):
        found = run.epsilon(delta)
        assert found.lower < found.upper == pytest.approx(alone.epsilon(delta).upper, rel=1e-6)
        assert found.method == Method.RENYI and found.certified
        assert run.rdp_epsilon(delta) == pytest.approx(found.upper, rel=1e-9)
    epsilon = 1.1 * run.epsilon(1e-10).lower
    assert run.delta(epsilon).upper == pytest.approx(alone.delta(epsilon).upper, rel=1e-6)
    ledger = pa.MechanismLedger(12)
    for mechanism, number in run.counts.items():
        ledger.record(mechanism, number * np.arange(12))
    upper = ledger.epsilon(1e-10).upper
    assert (
        np.all(upper <= ledger.rdp_epsilon(1e-10))
        and upper[2] < ledger.composition(2)._above.composition.epsilon(1e-10).upper
    )


def test_what_is_too_far_away_has_the_renyi_bound():
    run = pa.compose([(pa.DiscreteGaussian(4.0, 2.0, coordinates=10**34), 1)])
    found = run.epsilon(1e-5)
    assert found.status == Status.RENYI_ONLY and found.lower == 0.0
    assert found.upper == pytest.approx(zcdp.zcdp_epsilon(0.125, 1e-5), rel=1e-6)
