"""Steps interpolated between the edges of their bucket: what they dominate, what dominates them, and the bounds."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import special

import pld_accountant as pa
from pld_accountant.counting.buckets import Buckets
from pld_accountant.counting.interpolation import UNITS, lower_weight_line, upper_weight_bound, weight_rounding
from pld_accountant.mechanisms import hockey_stick

SETTINGS = [(2.0, 0.005), (0.3, 0.01), (1.0, 0.5), (20.0, 0.1), (0.7, 1e-5)]
EPSILON = np.concatenate([np.geomspace(1e-7, 30.0, 400), [0.0]])


def lower_weights(group: Buckets, s: np.ndarray, bucket: np.ndarray) -> np.ndarray:
    slope, offset = lower_weight_line(group)
    return np.floor(np.maximum((group.edges[bucket] - s) * slope[bucket] - offset[bucket], 0.0))


def divergence(epsilon: np.ndarray, sigma: float, q: float, direction: str) -> np.ndarray:
    """One step's delta(epsilon) for epsilon of either sign: that of -epsilon is the other direction's."""
    other = "add" if direction == "remove" else "remove"
    out = np.empty_like(epsilon)
    for sign, way in ((1, direction), (-1, other)):
        part = sign * epsilon >= 0.0
        size = np.abs(epsilon[part])
        with np.errstate(under="ignore"):
            out[part] = np.exp(hockey_stick.log_delta(size, np.full(size.shape, sigma), np.full(size.shape, q), way))
    low = epsilon < 0.0
    out[low] = -np.expm1(epsilon[low]) + np.exp(epsilon[low]) * out[low]
    return out


def steps_inside(group: Buckets, seed: int) -> list[tuple[int, float]]:
    rng = np.random.default_rng(seed)
    found = []
    for bucket in rng.choice(np.arange(1, group.size), 12, replace=False):
        a, b = group.edges[bucket - 1], group.edges[bucket]
        found += [(int(bucket), float(a + (b - a) * place)) for place in (1e-6, 0.03, rng.random(), 0.5, 0.97)]
    return found


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "q"), SETTINGS)
def test_the_mixture_dominates_its_step(sigma, q, direction):
    group = Buckets.make(sigma, q, 24)
    epsilon = np.concatenate([-EPSILON[::-1], EPSILON])
    tight = False
    for bucket, s in steps_inside(group, 1):
        w = 1.0 - float(lower_weights(group, np.array([s]), np.array([bucket]))[0]) / UNITS
        low, high = (divergence(epsilon, sigma / group.edges[k], q, direction) for k in (bucket - 1, bucket))
        step = divergence(epsilon, sigma / s, q, direction)
        room = 1e-10 * step + 1e-15
        assert np.all((1.0 - w) * low + w * high >= step - room)
        # three units less would not do
        less = max(w - 3.0 / UNITS, 0.0)
        tight = tight or bool(np.any((1.0 - less) * low + less * high < step - room))
    assert tight


@pytest.mark.parametrize("log_tail", [-25.0, -90.0])
@pytest.mark.parametrize(("sigma", "q"), SETTINGS)
def test_a_step_dominates_its_smaller_mixture_within_the_ends(sigma, q, log_tail):
    group = Buckets.make(sigma, q, 256)
    (rho, scale), rounding = upper_weight_bound(group, log_tail), weight_rounding(group)
    z = -float(special.ndtri_exp(log_tail))
    useful, tight = 0, False
    for bucket, s in steps_inside(group, 2):
        w = 1.0 - float(lower_weights(group, np.array([s]), np.array([bucket]))[0]) / UNITS
        share = scale[bucket] * np.expm1(rho[bucket] * max(w - rounding[bucket], 0.0))
        u = group.edges[bucket]
        end = z * u / sigma + 0.5 * (u / sigma) ** 2
        t = np.linspace(-end, end, 401)
        low, high, step = (np.exp(pa_gaussian_log_delta(t, x / sigma)) for x in (group.edges[bucket - 1], u, s))
        assert np.all((1.0 - share) * low + share * high <= step + 1e-10 * step + 1e-300)
        useful += share > 0.0
        more = 1.1 * share
        tight = tight or bool(np.any((1.0 - more) * low + more * high > step * (1.0 + 1e-10)))
    assert useful > 10
    assert tight
    assert scale[0] == 0.0  # the first bucket's lower edge costs nothing


def test_the_least_share_of_a_growing_density():
    """r(l) >= (exp(rho l) - 1) / (exp(rho) - 1) where r(0) = 0, r(1) = 1 and log r' grows by at most rho."""
    rng = np.random.default_rng(11)
    place = np.linspace(0.0, 1.0, 201)
    for rho in (0.01, 1.0, 7.0, 60.0):
        least = np.expm1(rho * place) / np.expm1(rho)
        for _ in range(50):
            density = np.exp(np.cumsum(rng.choice([-30.0, 0.0, 1.0], 200, p=[0.02, 0.2, 0.78]) * rho / 200))
            share = np.concatenate([[0.0], np.cumsum(density)]) / density.sum()
            assert np.all(share >= least - 1e-12)


def pa_gaussian_log_delta(t: np.ndarray, mu: float) -> np.ndarray:
    """log of N(mu, 1)'s divergence from N(0, 1) at t of either sign."""
    from scipy.special import log_ndtr

    a, b = log_ndtr(-t / mu + mu / 2.0), t + log_ndtr(-t / mu - mu / 2.0)
    return a + np.log(-np.expm1(np.minimum(b - a, -1e-300)))


def test_the_excess_of_a_falling_density_is_at_most_an_eighth_of_its_slope():
    place = np.linspace(0.0, 1.0, 2001)
    for rho in np.geomspace(1e-4, 200.0, 60):
        excess = np.expm1(-rho * place) / np.expm1(-rho) - place
        assert excess.max() <= rho / 8.0 + 1e-13
    assert excess.min() >= -1e-15


@pytest.mark.parametrize("norm_type", [np.float32, np.float64])
def test_lower_weights_are_counted(norm_type):
    rng = np.random.default_rng(6)
    norms = (rng.lognormal(-1.0, 1.0, (5, 700))).astype(norm_type)
    norms[0, :10] = 0.0
    ledger = pa.Ledger(700, noise_multiplier=1.5, sample_rate=0.02, max_grad_norm=2.0, buckets=40)
    ledger.record(norms, repeat=3)
    group = Buckets.make(1.5, 0.02, 40)
    s = np.minimum(norms.astype(float) / 2.0, 1.0)
    expected, steps = np.zeros((700, 40)), np.zeros((700, 40))
    for row in s:
        bucket = np.minimum(np.searchsorted(group.edges, row), 39)
        who = np.flatnonzero(row > 0.0)
        np.add.at(expected, (who, bucket[who]), 3.0 * lower_weights(group, row, bucket)[who])
        np.add.at(steps, (who, bucket[who]), 3.0)
    np.testing.assert_array_equal(ledger.counts, steps)
    # a norm is raised by round-off before it is counted, which may cost a unit
    assert np.all((expected - 3.0 * steps <= ledger._tally.lower_weights) & (ledger._tally.lower_weights <= expected))
    assert np.mean(ledger._tally.lower_weights == expected) > 0.99


def test_units_fit_any_number_of_steps():
    ledger = pa.Ledger(2, noise_multiplier=2.0, sample_rate=0.01, max_grad_norm=1.0)
    norms = np.array([0.4321, 1.0])
    ledger.record(norms)
    one = int(ledger._tally.lower_weights[0].sum())
    assert one > 0
    ledger.record(norms, repeat=2**31)
    assert ledger._tally.lower_weights.dtype == np.int64
    assert int(ledger._tally.lower_weights[0].sum()) == one * (2**31 + 1)
    assert not ledger._tally.lower_weights[1].any()  # a clipped norm lies on an edge


CASES = [
    (1.0, 1.0, 1e-6, 1, 256), (2.0, 0.02, 1e-5, 2, 6), (2.0, 0.05, 1e-5, 4, 256), (2.0, 0.005, 1e-5, 400, 256),
    (5.0, 1.0, 1e-6, 50, 6), (2.0, 0.01, 1e-20, 3000, 256),
]  # fmt: skip
OTHERS = [
    (2.0, 0.005, 1e-5, 1, 256), (1.0, 1.0, 1e-6, 3, 256), (1.5, 0.1, 1e-5, 20, 6), (2.0, 0.005, 1e-5, 1, 6),
    (1.0, 1.0, 1e-6, 1, 6), (2.0, 0.02, 1e-5, 2, 256), (2.0, 0.05, 1e-5, 4, 6), (1.0, 1.0, 1e-6, 3, 6),
    (1.5, 0.1, 1e-5, 20, 256), (2.0, 0.005, 1e-5, 400, 6), (5.0, 1.0, 1e-6, 50, 256), (2.0, 0.01, 1e-20, 3000, 6),
]  # fmt: skip


def contained(sigma, q, delta, steps, buckets, looked_at):
    """The bounds of 270 people, of whom some are compared with the composition of their very norms."""
    rng = np.random.default_rng(steps)
    people, rows = 270, min(steps, 4)
    group = Buckets.make(sigma, q, buckets)
    norms = rng.uniform(0.02, 1.1, (rows, people))
    # just above and just below edges, and between them all the time
    norms[:, 0] = group.edges[buckets // 2] * (1.0 + 1e-12)
    norms[:, 1] = group.edges[buckets // 2]
    norms[:, 2] = 0.5 * (group.edges[-1] + group.edges[-2])
    norms[:, 3] = 1.0
    ledger = pa.Ledger(people, noise_multiplier=sigma, sample_rate=q, max_grad_norm=1.0, buckets=buckets)
    for row in norms:
        ledger.record(row, repeat=steps // rows)
    found = ledger.epsilon(delta)
    for i in looked_at:
        exact = pa.compose([(pa.SampledGaussian(sigma / min(s, 1.0), q), steps // rows) for s in norms[:, i]])
        truth = exact.epsilon(delta)
        assert found.lower[i] <= truth.upper
        assert truth.lower <= found.upper[i]
    assert found.upper.max() > 0.0
    if buckets == 256:
        assert np.max(found.upper - found.lower) <= 0.005 * found.upper.max()


@pytest.mark.parametrize(("sigma", "q", "delta", "steps", "buckets"), CASES)
def test_bounds_contain_the_truth(sigma, q, delta, steps, buckets):
    contained(sigma, q, delta, steps, buckets, (0, 2, 150))


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "q", "delta", "steps", "buckets"), CASES + OTHERS)
def test_bounds_contain_the_truth_of_more_people(sigma, q, delta, steps, buckets):
    contained(sigma, q, delta, steps, buckets, (0, 1, 2, 3, 150))


def test_delta_is_bounded_above_by_interpolated_counts_too():
    ledger = pa.Ledger(300, noise_multiplier=2.0, sample_rate=0.01, max_grad_norm=1.0, buckets=20)
    norms = np.linspace(0.05, 1.0, 300)
    ledger.record(norms, repeat=1000)
    found = ledger.delta(0.1)
    for i in (151, 230, 280):
        truth = pa.compose([(pa.SampledGaussian(2.0 / norms[i], 0.01), 1000)]).delta(0.1)
        assert found.lower[i] <= truth.upper
        assert truth.lower <= found.upper[i] <= 1.05 * truth.upper


def test_people_on_edges_and_others_at_several_targets():
    """A handful, some of them bounded in whole steps: everybody's numbers are their own."""
    ledger = pa.Ledger(4, noise_multiplier=1.0, sample_rate=0.01, max_grad_norm=1.0, buckets=32)
    ledger.record([1.0, 0.0301, 0.97, 0.5003], repeat=3000)
    deltas, epsilons = [1e-5, 1e-6], [0.5, 2.0]
    several, other = ledger.epsilon(deltas), ledger.delta(epsilons)
    for j in range(2):
        one, alone = ledger.epsilon(deltas[j]), ledger.delta(epsilons[j])
        np.testing.assert_allclose(several.upper[j], one.upper, rtol=1e-6)
        np.testing.assert_allclose(other.upper[j], alone.upper, rtol=1e-6, atol=1e-300)


def test_a_single_step_beside_steps_that_cost_nothing():
    ledger = pa.Ledger(2, noise_multiplier=1.0, sample_rate=0.5, max_grad_norm=1.0, buckets=16)
    ledger.record([0.9, 0.9])
    ledger.record([1e-9, 0.0], repeat=5)
    found = ledger.epsilon(1e-5)
    assert found.lower[0] == pytest.approx(found.lower[1], rel=1e-2)
    assert found.lower[1] > 0.9


def test_lower_weights_are_rounded_down():
    """In exact arithmetic no step has a larger lower weight than its distance from the edge."""
    group = Buckets.make(2.0, 1.0, 24)  # full batches: nothing but the place counts
    units = np.arange(1, UNITS)
    for bucket in range(1, 24):
        a, b = Fraction(float(group.edges[bucket - 1])), Fraction(float(group.edges[bucket]))
        s = np.array([float(b - (b - a) * int(j) / UNITS) for j in units])
        for near in (s, np.nextafter(s, 2.0)):
            found = lower_weights(group, near, np.full(near.size, bucket))
            assert all(int(f) <= (b - Fraction(x)) / (b - a) * UNITS for f, x in zip(found, near.tolist(), strict=True))


def test_the_first_bucket_has_no_lower_weight():
    for group in (Buckets.make(2.0, 0.01, 24), Buckets.make(2.0, 1.0, 24)):
        small = np.linspace(1e-6, 1.0, 50) * group.edges[0]
        assert not lower_weights(group, small, np.zeros(50, dtype=int)).any()


def test_steps_in_a_narrow_bucket_count_at_its_edges():
    """There a place is a matter of round-off."""
    for q in (0.01, 1.0):
        group = Buckets(q, 2.0, np.array([0.5, 0.5 * (1.0 + 1e-6), 1.0]))
        slope, (_, scale) = lower_weight_line(group)[0], upper_weight_bound(group, -30.0)
        assert slope[1] == scale[1] == 0.0
        assert slope[2] > 0.0
        assert scale[2] > 0.0


@pytest.mark.parametrize(("sigma", "q"), SETTINGS)
def test_the_growth_allowed_for_reaches_as_far_as_joined_outcomes(sigma, q):
    group = Buckets.make(sigma, q, 300)
    log_tail = -30.0
    z = -float(special.ndtri_exp(log_tail))
    a, b = group.edges[:-1], group.edges[1:]
    t = z * b / sigma + b**2 / (2.0 * sigma**2) + np.log1p(b / (sigma * z))
    least = (b - a) * t**2 * sigma**2 / a**3
    rho, scale = (x[1:] for x in upper_weight_bound(group, log_tail))
    some = scale > 0.0
    assert some.sum() > 200
    assert np.all(rho[some] >= least[some] * (1.0 - 1e-9))
    # and not by much further
    assert np.all(rho[some] <= 1.1 * least[some])
    # the bucket of clipped steps is narrow, and counted whole for that reason
    assert not some[-1] and np.all(least[:-1][~some[:-1]] > 600.0)
    np.testing.assert_allclose((scale * np.expm1(rho))[some], 1.0, rtol=1e-11)
