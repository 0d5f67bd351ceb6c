"""Every bound against a truth in closed form and sixty digits: one that is a thousandth too small fails here."""

from functools import cache

import highprecision as hp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pld_accountant as pa
from pld_accountant.adaptive.stopping import ActiveCount
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine.closed_forms import surely_zero
from pld_accountant.engine.question import EpsilonAt
from pld_accountant.filters.integer_budget import round_up
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps

SIGMA, STEPS, DELTA = 3.0, 50, 1e-5


def gaussian_delta(epsilon, mu):
    with mpmath.workdps(60):
        e, m = mpmath.mpf(float(epsilon)), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


def renyi_epsilon(rho, delta):
    """Canonne, Kamath and Steinke's conversion of rho-zCDP at its best order alpha = 1 + x."""
    with mpmath.workdps(60):
        r, d = mpmath.mpf(rho), mpmath.mpf(delta)
        x = mpmath.findroot(lambda x: x * x * r + mpmath.log1p(x) + mpmath.log(d), mpmath.sqrt(-mpmath.log(d) / r))
        return r * (1 + x) - mpmath.log1p(1 / x) - (mpmath.log(d) + mpmath.log1p(x)) / x


full_batches = st.lists(
    st.tuples(st.floats(-1, 2).map(lambda x: 10.0**x), st.integers(1, 10**6)), min_size=1, max_size=4
)


@settings(max_examples=100, deadline=None)
@given(steps=full_batches, tens=st.floats(-200, -0.1), epsilon=st.floats(0, 20))
def test_full_batch_steps_enclose_the_gaussian_of_the_exact_mu(steps, tens, epsilon):
    composed, delta = pa.compose([(pa.Gaussian(s), n) for s, n in steps]), 10.0**tens
    with mpmath.workdps(60):
        mu = mpmath.sqrt(mpmath.fsum(n / mpmath.mpf(s) ** 2 for s, n in steps))
        found = composed.mu()
        assert found.upper == 0.0 or found.lower <= mu <= found.upper
        if mu < 30:
            found = composed.epsilon(delta)
            assert gaussian_delta(found.upper, mu) <= delta
            assert found.lower == 0.0 or gaussian_delta(found.lower, mu) >= delta
            found = composed.delta(epsilon)
            assert found.lower <= gaussian_delta(epsilon, mu) <= found.upper


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("share", [0.5, 1e-3, 1e-9, 1e-12])
def test_one_step_whose_epsilon_is_almost_zero_at_a_tiny_delta(direction, share):
    """The logarithm of delta, through which it is passed on, is known to some hundred units only."""
    sigma, q = 0.04, 1e-90
    delta = float(hp.one_step(0.0, sigma, q, direction)) * (1.0 - share)
    found = pa.compose([(pa.SampledGaussian(sigma, q), 1)]).epsilon(delta, direction)
    assert hp.one_step(found.upper, sigma, q, direction) <= delta
    assert found.lower == 0.0 or hp.one_step(found.lower, sigma, q, direction) >= delta


@pytest.mark.parametrize("steps", [10, 100])
def test_addition_up_to_its_largest_loss(steps):
    """With hardly any noise every step loses log 2 but for a chance below 1e-30: epsilon is all of it but for delta."""
    found = pa.compose([(pa.SampledGaussian(0.03, 0.5), steps)]).epsilon(1e-9, "add")
    assert found.upper >= steps * np.log(2.0) + np.log1p(-1e-9) - 1e-12
    assert found.lower <= steps * np.log(2.0)


@pytest.mark.parametrize(("share", "zero"), [(1 - 1e-3, False), (1 - 2e-6, False), (1.0 + 1e-9, True)])
def test_total_variation_says_zero_only_where_it_is(share, zero):
    """The event that some x lies above 1/2 has probability 1 - (1 - q)^2 with the record and 1e-20 without."""
    q, counts = 1e-6, WholeCounts(np.array([[2]]))
    delta_at_zero = 1 - (1 - mpmath.mpf(q)) ** 2
    delta = share * float(2 * q)
    assert zero == (delta > delta_at_zero)
    found = surely_zero(counts, SampledGaussianSteps([0.05], [q], "remove"), EpsilonAt(delta), np.array([0]))
    assert found.tolist() == [zero]


def test_where_renyi_accounting_answers_it_is_not_less_than_renyi_accounting():
    composed = pa.compose([(pa.SampledGaussian(1e-5, 0.01), 1000)])
    found = composed.epsilon(1e-5)
    never_sampled = -1000 * np.log1p(-0.01)  # what a person who is added loses at most
    assert found.lower == pytest.approx(never_sampled, rel=1e-6)
    assert found.lower <= never_sampled
    assert found.upper >= composed.rdp_epsilon(1e-5) * (1 - 1e-12)


@cache
def full_batch_ledger():
    """One person at a bucket's lower edge, one clipped at every step."""
    book = pa.Ledger(1, noise_multiplier=SIGMA, sample_rate=1.0, max_grad_norm=1.0, buckets=64)
    book.record([1.0])
    edge = float(book._tally.groups[0].edges[40])
    book = pa.Ledger(2, noise_multiplier=SIGMA, sample_rate=1.0, max_grad_norm=1.0, buckets=64)
    book.record([edge, 1.0], repeat=STEPS)
    return book, [mpmath.sqrt(STEPS) * edge / SIGMA, mpmath.sqrt(STEPS) / SIGMA]


def test_a_ledger_of_full_batches():
    """The one person's lower bound and the other's upper bound are tight; all others hold."""
    book, mu = full_batch_ledger()
    found = book.epsilon(DELTA)
    assert all(gaussian_delta(e, m) <= DELTA for e, m in zip(found.upper, mu, strict=True))
    assert all(gaussian_delta(e, m) >= DELTA for e, m in zip(found.lower, mu, strict=True))
    found = book.delta(5.0)
    assert all(gaussian_delta(5.0, m) <= d for d, m in zip(found.upper, mu, strict=True))
    assert all(gaussian_delta(5.0, m) >= d for d, m in zip(found.lower, mu, strict=True))
    found = book.mu(DELTA)
    assert all(low <= m <= high for low, m, high in zip(found.lower, mu, found.upper, strict=True))


def test_renyi_accounting_of_full_batches():
    book, mu = full_batch_ledger()
    exact = [renyi_epsilon(m * m / 2, DELTA) for m in mu]
    assert all(found >= truth for found, truth in zip(book.rdp_epsilon(DELTA), exact, strict=True))
    assert exact[1] <= book.worst_case().rdp_epsilon(DELTA) <= exact[1] * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-12), (8.0, 1e-3)])
def test_what_filters_admit_keeps_their_epsilon(epsilon, delta):
    """All steps that a filter admits, composed in sixty digits."""
    people = {"num_examples": 1}
    gauss = pa.GaussianFilter.for_epsilon(epsilon, delta, noise_multiplier=30.0, **people)
    zcdp = pa.ZCDPFilter.for_epsilon(epsilon, delta, noise_multiplier=30.0, **people)
    renyi = pa.RenyiFilter.for_epsilon(epsilon, delta, noise_multiplier=30.0, **people)
    pure = pa.ApproximateDPFilter(epsilon, delta, **people)
    squares = []
    for keep in (gauss, zcdp, renyi, pure):
        spent = mpmath.mpf(0)
        for share in (0.9, 1.0):  # then exactly what is left
            norm = float(keep.headroom()[0]) * share
            assert keep.admit([norm])[0]
            spent += 2 * rho_of_pure(norm) if keep is pure else mpmath.mpf(norm) ** 2
        squares.append(spent)
    assert gaussian_delta(epsilon, mpmath.sqrt(squares[0]) / 30) <= delta
    assert renyi_epsilon(squares[1] / 1800, delta) <= epsilon
    assert renyi_epsilon(squares[2] / 1800, delta) <= epsilon
    assert renyi_epsilon(squares[3] / 2, delta) <= epsilon
    assert gaussian_delta(gauss.epsilon(delta), gauss.mu) <= delta
    assert renyi_epsilon(zcdp.rho, delta) <= zcdp.epsilon(delta)
    with mpmath.workdps(60):
        alpha, d = mpmath.mpf(renyi.alpha), mpmath.mpf(delta)
        implied = renyi.budget + mpmath.log(1 - 1 / alpha) - mpmath.log(d * alpha) / (alpha - 1)
    assert implied <= renyi.epsilon(delta) <= epsilon * (1 + 1e-12)
    assert renyi_epsilon(pure.rho, delta) <= epsilon


def rho_of_pure(epsilon):
    """The zCDP of an epsilon-DP step."""
    return mpmath.mpf(epsilon) * mpmath.tanh(mpmath.mpf(epsilon) / 2)


def test_what_filters_say_is_spent_and_left():
    """Two steps, added up in sixty digits: spent is rounded up, what remains and the headroom down, and little."""
    one = {"num_examples": 1}
    pure = pa.ApproximateDPFilter(8.0, 1e-5, **one)
    norms = [0.7, 0.3]
    with mpmath.workdps(60):
        rho = mpmath.mpf(pure.rho)
        square = mpmath.fsum(mpmath.mpf(norm) ** 2 for norm in norms)
        rho_spent = mpmath.fsum(rho_of_pure(norm) for norm in norms)
        largest = mpmath.findroot(lambda e: rho_of_pure(e) - (rho - rho_spent), 4.0)
        for keep, budget, spent, left, headroom in (
            (pa.GaussianFilter(1.0, noise_multiplier=2.0, **one), 1, lambda s: mpmath.sqrt(s) / 2, mpmath.sqrt, 2.0),
            (pa.ZCDPFilter(1.0, noise_multiplier=2.0, **one), 1, lambda s: s / 8, lambda r: r, mpmath.sqrt(8)),
            (pa.RenyiFilter(2.0, 8.0, noise_multiplier=2.0, **one), 2, lambda s: s, lambda r: 2 * r, mpmath.sqrt(2)),
            (pure, rho, lambda s: rho_spent, lambda r: rho * r, largest / mpmath.sqrt(1 - rho_spent / rho)),
        ):
            for norm in norms:
                assert keep.admit([norm])[0]
            used = spent(square)
            share = (used / budget) ** 2 if keep.__class__ is pa.GaussianFilter else used / budget
            assert used <= keep.spent()[0] <= used * (1 + 1e-12)
            assert left(1 - share) * (1 - 1e-12) <= keep.remaining[0] <= left(1 - share)
            room = mpmath.sqrt(1 - share) * headroom
            assert room * (1 - 1e-12) <= keep.headroom()[0] <= room


def test_what_odometers_tell():
    """The sums of the increments begun, and their conversion, in sixty digits."""
    steps = {"num_examples": 1, "noise_multiplier": 2.0, "max_grad_norm": 1.0}
    renyi, gauss = pa.RenyiOdometer(1.1, 8.0, **steps), pa.GaussianOdometer(0.7, **steps)
    for _ in range(7):
        renyi.record([1.0])
        gauss.record([1.0])
    with mpmath.workdps(60):
        # a step is 1 of Renyi divergence at order 8, and 1/4 of mu^2
        total = 7 * mpmath.mpf(1.1)
        assert total <= renyi.spent()[0] <= total * (1 + 1e-12)
        truth = total + mpmath.log(mpmath.mpf(7) / 8) - mpmath.log(8 * mpmath.mpf(1e-5)) / 7
        assert truth <= renyi.epsilon(1e-5)[0] <= truth * (1 + 1e-12)
        mu = 0.7 * mpmath.sqrt(7)
        assert mu <= gauss.spent()[0] * (1 + mpmath.mpf(2) ** -51)
        assert gauss.spent()[0] <= mu * (1 + 1e-12)
        assert gaussian_delta(gauss.epsilon(1e-5)[0], mpmath.mpf(gauss.spent()[0])) <= 1e-5


def test_odometers_never_tell_less_than_was_used():
    """Two steps that almost, but not quite, fit into one increment."""
    steps = {"num_examples": 1, "noise_multiplier": 2.0, "max_grad_norm": 1.0}
    renyi, gauss = pa.RenyiOdometer(1.9995, 8.0, **steps), pa.GaussianOdometer(0.4999**0.5, **steps)
    for number in range(1, 9):
        renyi.record([1.0])
        gauss.record([1.0])
        assert renyi.spent()[0] >= number
        assert gauss.spent()[0] >= (number / 4) ** 0.5


class Told:
    """In place of a random generator: no noise, and how much was asked for."""

    def __init__(self):
        self.scales = []

    def normal(self, mean, scale, size=None):
        assert mean == 0.0
        self.scales.append(scale)
        return np.zeros(size) if size else 0.0


def test_the_noise_drawn_is_the_noise_charged_for():
    told = Told()
    pa.LinearQueries(3.0, 0.5, num_examples=2, rng=told).answer([1.0, 0.5])
    assert told.scales == [pytest.approx(3.0**0.5, rel=1e-15)]
    told, keep = Told(), pa.GaussianFilter(1.0, num_examples=2, noise_multiplier=5.0, max_grad_norm=2.0)
    rule = ActiveCount(least=1, noise=40.0)
    pa.descend(lambda p: p - np.ones((2, 1)), [0.0], keep, learning_rate=0.1, steps=1, stopping=[rule], rng=told)
    assert told.scales == [10.0, 40.0]
    # a gradient of norm 1 at noise 10 on the sum, and a count of 1 at noise 40
    assert keep.spent() == pytest.approx([(1 / 100 + 1 / 1600) ** 0.5] * 2, rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(value=st.fractions(min_value=0, max_value=10**30))
def test_what_is_charged_is_rounded_up_to_the_next_double(value):
    found = round_up(value)
    assert np.nextafter(found, -np.inf) < value <= found
