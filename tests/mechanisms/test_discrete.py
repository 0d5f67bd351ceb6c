"""Discrete mechanisms against sums over all outcomes in high precision; limits, symmetry, mixtures, bad input."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import lattice, schedule, smoothed, solver
from pld_accountant.engine.method import Job
from pld_accountant.engine.question import DeltaAt
from pld_accountant.mechanisms.base import StepFamily
from pld_accountant.mechanisms.discrete import MASS_SLACK, DiscreteLaw, DiscreteSteps, _units
from pld_accountant.mechanisms.weighted_nodes import UNIT
from pld_accountant.tables.makers import TableMakers


def brute_delta(pairs, epsilon):
    """delta of the product of pairs of laws, outcome by outcome."""
    mpmath.mp.dps = 40
    outcomes = {(mpmath.mpf(1), mpmath.mpf(1)): 1}
    for p, q in pairs:
        new = {}
        for (a, b), n in outcomes.items():
            for x, y in zip(p, q, strict=True):
                key = (a * mpmath.mpf(x), b * mpmath.mpf(y))
                new[key] = new.get(key, 0) + n
        outcomes = new
    e = mpmath.exp(epsilon)
    return sum((n * max(a - e * b, 0) for (a, b), n in outcomes.items()), mpmath.mpf(0))


RNG = np.random.default_rng(3)
LAWS = [
    ([0.75, 0.25], [0.25, 0.75]),
    ([0.5, 0.25, 0.25, 0.0], [0.25, 0.25, 0.25, 0.25]),
    ([0.5, 0.375, 0.125], [0.0, 0.5, 0.5]),
    tuple(RNG.dirichlet(np.ones(4), 2).tolist()),
]


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.3])
@pytest.mark.parametrize("chosen", [(0, 0, 0, 0), (1, 1, 1), (2, 2), (3, 3, 3, 3), (0, 1, 2), (1, 2, 3, 3), (0, 3)])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_delta_contains_the_sum_over_all_outcomes(chosen, epsilon, direction):
    pairs = [LAWS[k] if direction == "remove" else LAWS[k][::-1] for k in chosen]
    exact = brute_delta(pairs, epsilon)
    found = pa.compose([(pa.DiscretePair(*LAWS[k]), 1) for k in chosen]).delta(epsilon, direction)
    assert found.lower * (1 - 1e-14) <= exact <= found.upper * (1 + 1e-14)
    assert found.upper - found.lower <= 1e-4 * found.upper
    if exact > 1e-3:
        bounds = pa.compose([(pa.DiscretePair(*LAWS[k]), 1) for k in chosen]).epsilon(float(exact), direction)
        assert bounds.lower <= epsilon + 1e-9
        assert epsilon - 1e-9 <= bounds.upper


@pytest.mark.parametrize("delta", [1e-5, 1e-15, 1e-60])
def test_many_steps_on_a_lattice_contain_the_binomial_sum(delta):
    mpmath.mp.dps = 100
    n, c = 200, mpmath.mpf("0.25")
    found = pa.compose([(pa.PureDP(0.25), n)]).epsilon(delta)
    p = 1 / (1 + mpmath.exp(-c))

    def exact(epsilon):
        return sum(
            mpmath.binomial(n, k) * p**k * (1 - p) ** (n - k) * max(1 - mpmath.exp(epsilon - (2 * k - n) * c), 0)
            for k in range(n + 1)
        )

    assert exact(found.lower) >= delta >= exact(found.upper)
    assert found.upper - found.lower <= 1e-9 * found.upper
    assert found.method == pa.Method.LATTICE


def test_a_lattice_without_its_errors_is_caught(monkeypatch):
    monkeypatch.setattr(lattice.LatticeSum, "_near_tilt", lambda self, theta: lambda epsilon, sign: 0.0)
    found = pa.compose([(pa.PureDP(0.25), 20)]).delta(1.0)
    assert not found.upper >= brute_delta([LAWS[0]], 1.0) > 0.0


def test_infinite_losses_are_exact():
    steps = pa.compose([(pa.ApproximateDP(0.0, 1e-7), 10_000)])
    exact = -np.expm1(10_000 * np.log1p(-1e-7))
    found = steps.delta(0.0)
    # each step's losses may be wrong by 2^-41
    assert found.lower <= exact <= found.upper <= exact + 10_000 * 2.0**-40
    assert steps.epsilon(1e-4).lower == np.inf
    mixed = pa.compose([(pa.ApproximateDP(0.0, 1e-3), 2), (pa.Gaussian(4.0), 3)])
    alone = pa.compose([(pa.Gaussian(4.0), 3)]).delta(0.5)
    found = mixed.delta(0.5)
    lost = 1 - (1 - 1e-3) ** 2
    assert found.lower <= lost + (1 - lost) * alone.upper
    assert lost + (1 - lost) * alone.lower <= found.upper
    assert found.upper - found.lower <= 1e-4 * found.upper
    assert mixed.epsilon(1e-3).upper == np.inf
    assert np.isinf(mixed.rdp([2.0])).all()
    assert mixed.mu().certified and mixed.mu().lower == np.inf


def test_disjoint_laws_cost_everything():
    found = pa.compose([(pa.DiscretePair([1.0, 0.0], [0.0, 1.0]), 1)])
    assert found.delta(3.0).lower >= 1.0 - 1e-11
    assert found.epsilon(0.5).lower == np.inf


@pytest.mark.parametrize("rate", [1.0, 0.3, 1e-3])
def test_sampled_pure_dp_has_the_amplified_epsilon(rate):
    most = np.log1p(rate * np.expm1(1.0))
    found = pa.compose([(pa.PoissonSampled(pa.PureDP(1.0), rate), 1)]).epsilon(1e-13)
    assert found.lower <= most * (1 + 1e-12)
    assert abs(found.upper - most) <= 1e-8


def test_groups_of_one_are_sampled_gaussians_and_bounds_rise_with_the_group():
    steps = pa.compose([(pa.GroupGaussian(1.0, 0.01, 1), 100)]).epsilon(1e-5)
    same = pa.compose([(pa.SampledGaussian(1.0, 0.01), 100)]).epsilon(1e-5)
    assert steps.lower <= same.upper
    assert same.lower <= steps.upper
    assert steps.width <= 1e-4 * steps.upper
    assert pa.compose([(pa.GroupGaussian(1.0, 0.01, 2), 100)]).epsilon(1e-5).lower > steps.upper


def test_replace_one_without_sampling_is_a_gaussian_of_half_the_noise():
    replaced = pa.compose([(pa.ReplaceOneSampledGaussian(3.0, 1.0), 1)]).delta(0.3)
    gaussian = pa.compose([(pa.Gaussian(1.5), 1)]).delta(0.3)
    assert replaced.lower <= gaussian.upper
    assert gaussian.lower <= replaced.upper


def two_point_delta(epsilon, steps, at):
    """delta(at) of steps whose loss is t or t - epsilon, the largest of all t: one of n stationary points.

    The masses follow from E[e^-loss] = 1.
    """
    t = (at + np.arange(1, steps + 1)[:, None] * epsilon) / (steps + 1)
    t = t[t[:, 0] < epsilon]
    p = np.expm1(t - epsilon) / np.expm1(-epsilon)
    i = np.arange(steps + 1)
    loss = i * t + (steps - i) * (t - epsilon)
    found = stats.binom.pmf(i, steps, p) * np.maximum(-np.expm1(np.minimum(at - loss, 0.0)), 0.0)
    return float(found.sum(axis=1).max())


@pytest.mark.parametrize("direction", ["both", "remove", "add"])
@pytest.mark.parametrize(("epsilon", "steps"), [(0.1, 2), (0.1, 100), (1.0, 3), (1.0, 30), (3.0, 10)])
def test_exponential_mechanisms_fixed_in_advance_lie_between_the_bounds(epsilon, steps, direction):
    """The optimum over one t for all steps (Dong, Durfee and Rogers 2020), from binomial sums."""
    run = pa.compose([(pa.ExponentialMechanism(epsilon), steps)])
    for delta in (1e-3, 1e-6, 1e-10):
        at = run.epsilon(delta, direction)
        above, below = (two_point_delta(epsilon, steps, x) for x in (at.lower, at.upper))
        assert below <= delta <= above * (1 + 1e-5)
        assert at.upper < at.lower * 1.06
        found = run.delta(at.lower, direction)
        assert found.lower <= above * (1 + 1e-5)
        assert above <= found.upper


def test_the_exponential_mechanism_beside_others():
    for others in ([(pa.Gaussian(5.0), 3)], [(pa.FixedSizeBatch(4.0, 1, 100), 1)]):
        without = pa.compose(others).epsilon(1e-5)
        run = pa.compose([*others, (pa.ExponentialMechanism(0.4), 2)])
        assert without.upper < run.epsilon(1e-5).lower
        assert run.epsilon(1e-5).upper < without.lower + 0.8
        assert run.rdp(2.0) > pa.compose(others).rdp(2.0)
    run = pa.compose([(pa.Gaussian(5.0), 1), (pa.ExponentialMechanism(0.4), 2)])
    assert pa.compose([(pa.Gaussian(5.0), 1)]).mu().upper < run.mu().lower < run.mu().upper
    boxed = pa.compose([(pa.ExponentialMechanism(0.4), 3), (pa.ZeroConcentratedDP(0.02), 1)]).epsilon(1e-5)
    plain = pa.compose([(pa.ExponentialMechanism(0.4), 3), (pa.Gaussian(5.0), 1)]).epsilon(1e-5)
    assert boxed.lower <= plain.lower * (1 + 1e-4)
    assert boxed.lower < boxed.upper


def test_the_exponential_mechanism_costs_less_than_pure_dp():
    for delta in (1e-2, 1e-6):
        ours = pa.compose([(pa.ExponentialMechanism(0.5), 10)]).epsilon(delta)
        pure = pa.compose([(pa.PureDP(0.5), 10)]).epsilon(delta)
        assert ours.upper < pure.lower
    one = pa.compose([(pa.ExponentialMechanism(0.5), 1)]).delta(0.2)
    t = np.linspace(-0.5, 0.0, 100_001)
    p = np.expm1(t) / np.expm1(-0.5)
    worst = np.max(p * np.maximum(-np.expm1(0.2 - t - 0.5), 0.0))
    assert one.upper >= worst
    assert one.lower <= worst * (1 + 1e-6)


def test_any_object_with_the_protocol_is_composed_and_others_are_refused():
    class Mine:
        noise_multiplier = 3.0

        @staticmethod
        def steps(mechanisms, direction) -> StepFamily:
            return pa.Laplace.steps([pa.Laplace(3.0)] * len(mechanisms), direction)

    found = pa.compose([(Mine(), 1)]).epsilon(1e-5)
    assert found == pa.compose([(pa.Laplace(3.0), 1)]).epsilon(1e-5)
    for wrong in (3, "Laplace", pa.Laplace, None):
        with pytest.raises(ValueError, match="must hold mechanisms"):
            pa.compose([(wrong, 1)])
    with pytest.raises(ValueError, match=r"a list stands for one as compose\(list\)"):
        pa.compose([(pa.TreeAggregation(4.0, 8), 1)])


@pytest.mark.parametrize("answers", [2, 10])
def test_the_noise_of_randomized_response_for_an_epsilon(answers):
    epsilon = 0.9
    noise = answers / (answers - 1 + np.exp(epsilon))
    for neighbours, least in (("replace-one", epsilon - 1e-9), ("replace-special", 0.0)):
        step = pa.RandomizedResponse(noise, answers, neighbours=neighbours)
        assert least <= pa.compose([(step, 1)]).epsilon(0.0).upper <= epsilon + 1e-9


def test_poisson_samples_take_a_sample_rate():
    assert pa.PoissonSampled(pa.Laplace(5.0), sample_rate=0.1) == pa.PoissonSampled(pa.Laplace(5.0), 0.1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pa.DiscretePair([0.5, 0.5], [1.0]),
        lambda: pa.DiscretePair([0.5, 0.4], [0.5, 0.5]),
        lambda: pa.DiscretePair([1.5, -0.5], [0.5, 0.5]),
        lambda: pa.PureDP(0.0),
        lambda: pa.PureDP(301.0),
        lambda: pa.ApproximateDP(1.0, 1.0),
        lambda: pa.RandomizedResponse(1.1),
        lambda: pa.RandomizedResponse(0.5, 1),
        lambda: pa.RandomizedResponse(1.5e-323),  # a probability without digits
        lambda: pa.RandomizedResponse(1e-305, 10**8),
        lambda: pa.DiscreteGaussian(0.01),
        lambda: pa.DiscreteGaussian(1.0, 9, truncation_bound=4),
        lambda: pa.GaussianMixture(1.0, [1.0], [0.5]),
        lambda: pa.GaussianMixture(1.0, [-1.0], [1.0]),
        lambda: pa.GaussianMixture(1.0, [0.0, 1.0], [1.0, 0.0]),
        lambda: pa.RandomAllocation(1e13, 10),
        lambda: pa.ExponentialMechanism(-1.0),
        lambda: pa.PoissonSampled(pa.SampledGaussian(1.0, 0.1), 0.1),
        lambda: pa.PoissonSampled(pa.PureDP(1.0), 0.0),
    ],
)
def test_bad_input_is_an_error_at_once(make):
    with pytest.raises(ValueError):
        make()


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_discrete_gaussian_far_out(direction):
    """At the largest sensitivity, a delta of 1e-110 from sums over the integers in high precision."""
    with pytest.raises(ValueError, match="sigma must be at least sensitivity / 12"):
        pa.DiscreteGaussian(1.0, 13)
    bounds = pa.compose([(pa.DiscreteGaussian(1.0, 12), 1)]).delta(290.0, direction)
    with mpmath.workdps(200):
        mass = {k: mpmath.exp(-mpmath.mpf(k * k) / 2) for k in range(-80, 81)}
        total = mpmath.fsum(mass.values())
        exact = mpmath.fsum(
            max(mass[k] - mpmath.exp(290) * mass.get(k + 12, mpmath.mpf(0)), 0) for k in mass if k + 12 <= 80
        )
        assert bounds.lower * (1 - 1e-9) <= exact / total <= bounds.upper * (1 + 1e-9)
    assert bounds.lower > 1e-115


@pytest.mark.parametrize("others", [[], [(pa.Laplace(1.0), 2)]], ids=["exact sum", "grid"])
def test_losses_whose_probabilities_underflow_are_infinite_in_upper_bounds_only(others):
    """A loss above 1e4 - 2 needs noise of 800 sigma, of a mass below 1e-100,000."""
    step = pa.compose([(pa.DiscreteGaussian(1.0, 12), 1), *others])
    delta, epsilon = step.delta(1e4), step.epsilon(1e-140)
    assert delta.lower == 0.0 < delta.upper < 1e-130
    assert (epsilon.lower, epsilon.upper, epsilon.status) == (0.0, np.inf, pa.Status.NOT_CERTIFIED)
    found = step.epsilon(1e-100)
    assert found.width < 1e-6 * found.upper


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("rate", [1.0, 0.3, 1e-4])
def test_the_errors_of_losses_cover_those_of_the_probabilities(rate, direction):
    """Probabilities that are off by their errors, up on one side and down on the other, move a loss by its error."""
    p, q = LAWS[3]
    law = pa.DiscretePair(p, q).sampled(rate).law(direction)
    sign = 1 if direction == "remove" else -1
    with mpmath.workdps(40):
        ratio = [mpmath.mpf(a) / mpmath.mpf(b) for a, b in zip(p, q, strict=True)]
        off = [[mpmath.mpf(float(e)) for e in UNIT * _units(np.array(side))] for side in (p, q)]
        for way in (-1, 1):
            moved = [r * (1 + way * a) / (1 - way * b) for r, a, b in zip(ratio, *off, strict=True)]
            losses = sorted(sign * mpmath.log(1 - mpmath.mpf(rate) + mpmath.mpf(rate) * r) for r in moved)
            apart = np.array([float(abs(a - mpmath.mpf(b))) for a, b in zip(losses, law.losses, strict=True)])
            error = law.loss_error
            assert np.all(apart <= 1.03 * error + 2.0**-51 * np.abs(law.losses))  # beside their rounding
            assert np.all(apart >= 0.9 * (error - 2.0**-50 * np.abs(law.losses)) - 2.0**-51 * np.abs(law.losses))


@pytest.mark.parametrize("share", [0.55, 0.7, 0.9])
def test_a_million_equal_losses_are_added_exactly(share):
    """Added one by one, they would lose 1e-11 of their sum, and bounds with it."""
    n = 1_000_000
    p, q = (np.append(np.full(n, one), 1.0 - n * one) for one in (share / n, 0.25 * share / n))
    found = pa.compose([(pa.DiscretePair(p, q), 1)]).delta(0.5, "remove")
    with mpmath.workdps(40):
        first, last = ([mpmath.mpf(float(law[k])) for law in (p, q)] for k in (0, -1))
        whole = [n * a + b for a, b in zip(first, last, strict=True)]
        true = n * (first[0] / whole[0] - mpmath.exp(0.5) * first[1] / whole[1])
    assert found.lower <= true <= found.upper and found.width <= 1e-11
    given = pa.LossDistribution([1.3] * n + [-0.5], [share / n] * n + [0.09])
    found = pa.compose([(given, 1)]).delta(0.5, "remove")
    with mpmath.workdps(40):
        mass = n * mpmath.mpf(share / n)
        true = mass * (1 - mpmath.exp(mpmath.mpf(0.5) - mpmath.mpf(1.3))) + 1 - mass - mpmath.mpf(0.09)
    assert found.lower <= true <= found.upper


@pytest.mark.parametrize("epsilon", [2.0, 8.0, 9.0, 12.0])
def test_sums_with_an_exact_infinite_mass_are_rounded_outwards(epsilon):
    """Where the finite losses' part is below the last digit of the infinite losses'."""
    found = pa.compose([(pa.ApproximateDP(0.0, 0.1), 1), (pa.Gaussian(1.0), 1)]).delta(epsilon)
    lattice = pa.compose([(pa.ApproximateDP(0.0, 0.1), 1), (pa.PureDP(0.5), 100)]).delta(49.0)
    with mpmath.workdps(40):
        e = mpmath.mpf(epsilon)
        gaussian = mpmath.ncdf(0.5 - e) - mpmath.exp(e) * mpmath.ncdf(-0.5 - e)
        true = mpmath.mpf(0.1) + (1 - mpmath.mpf(0.1)) * gaussian
    assert found.lower <= true <= found.upper and found.width <= 1e-10
    # the finite losses add about 1e-21
    assert lattice.lower <= 0.1 < lattice.upper < 0.1 + 1e-15
    assert pa.compose([(pa.ApproximateDP(1.0, 1e-20), 1)]).tradeoff(0.0).lower < 1.0


@pytest.mark.parametrize(
    ("pair", "true"),
    [
        (pa.DiscreteGaussian(2.3, 3), lambda k, c: mpmath.exp(-((k - c) ** 2) / (2 * mpmath.mpf(2.3) ** 2))),
        (pa.DiscreteGaussian(0.3), lambda k, c: mpmath.exp(-((k - c) ** 2) / (2 * mpmath.mpf(0.3) ** 2))),
    ],
)
def test_the_discrete_gaussian_has_the_errors_it_claims(pair, true):
    """Against 40 digits; a tenth of what is claimed is reached."""
    p = np.array(pair.with_record)
    shift = 3 if len(p) > 100 else 1
    end = (len(p) - shift - 1) // 2
    with mpmath.workdps(40):
        law = [true(mpmath.mpf(k), shift) for k in range(-end, end + shift + 1)]
        total = mpmath.fsum(law)
        apart = np.array([float(abs(x * total / y - 1)) for x, y in zip(p, law, strict=True)])
    some = p > 0.0
    assert np.all(apart[some] <= UNIT * _units(p)[some])
    assert np.any(apart[some] > 0.1 * UNIT * _units(p)[some])


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_the_errors_of_losses_cover_the_division_by_the_finite_mass(rate):
    p, q = LAWS[2]
    step = pa.DiscretePair(p, q).sampled(rate)
    family = step.steps([step], "remove")
    (losses, _), error = family._laws[0], family._errors[0][0]
    with mpmath.workdps(40):
        rate, apart = mpmath.mpf(rate), []
        infinite = rate * mpmath.mpf(p[0]) * (1 + mpmath.mpf(MASS_SLACK if rate < 1 else 0))
        for a, b in sorted(zip(p[1:], q[1:], strict=True)):
            up, down = (mpmath.mpf(float(e)) for e in UNIT * _units(np.array([a, b])))
            ratio = mpmath.mpf(a) / mpmath.mpf(b) * (1 + up) / (1 - down)
            apart.append(float(mpmath.log(1 - rate + rate * ratio) - mpmath.log(1 - infinite)))
        moved = np.array(apart) - losses
    assert np.all(moved <= 1.005 * error + 2.0**-51) and np.all(moved >= 0.5 * error)
    # without the division's part, or a thousandth of it; a mass that is given is exact
    assert rate == 1.0 or np.all(moved > 1.1 * step.law("remove").loss_error)


def test_losses_beyond_an_end_are_infinite():
    step = pa.PoissonSampled(pa.DiscreteGaussian(1.5), 0.01)
    family, law = step.steps([step], "remove"), step.law("remove")
    cut = family.truncated(3.0)
    last = int(np.flatnonzero(law.losses <= cut.largest_loss()[0])[-1])
    beyond = law.masses[last + 1 :].sum()
    assert beyond <= stats.norm.cdf(-3.0) < beyond + law.masses[last]
    assert beyond <= cut.infinite_mass()[0] <= beyond * (1.0 + 1e-9)
    assert family.whole and not cut.whole and family.infinite_mass()[0] == 0.0
    assert family.truncated(40.0) is family
    added = step.steps([step], "add")
    assert added.truncated(3.0) is added


@pytest.mark.parametrize("reach", [2.5, 3.5])
def test_bounds_of_truncated_losses_contain_those_of_all(reach, monkeypatch):
    """Even where the losses left out are a large share of delta; without them, the upper bound is too small."""
    step = pa.PoissonSampled(pa.DiscreteGaussian(1.5), 0.01)
    truth = pa.compose([(step, 60)]).delta(0.6, "remove")
    monkeypatch.setattr(Job, "near_reach", lambda self, working, who: np.full(who.size, reach))

    def found():
        makers = TableMakers(step.steps([step], "remove"))
        method = next(m for m in reversed(schedule.MIXED) if isinstance(m, smoothed.Smoothed))
        return solver.bounds(WholeCounts(np.array([[60]])), makers, [DeltaAt(0.6)], methods=(method,))[0][0]

    wide = found()
    assert wide.lower <= truth.lower and truth.upper <= wide.upper < np.inf
    monkeypatch.setattr(DiscreteSteps, "infinite_mass", lambda self: np.zeros(self.size))
    assert found().upper < truth.lower


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("rate", [1e-4, 0.3, 0.5000001, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("least", [1e-3, 1e-60, 1e-280])
def test_losses_of_tiny_probabilities_keep_their_digits(least, rate, direction):
    """A sampled loss below 0 does not depend on them, and its error is no more than round-off."""
    p, q = (0.2, 0.1, 0.7 - 1.001 * least, least, 1e-3 * least), (least, 0.2, 0.5, 0.3 - 2.0 * least, least)
    law = pa.DiscretePair(p, q).sampled(rate).law(direction)
    with mpmath.workdps(40):
        r = mpmath.mpf(rate)
        mixed = [1 - r + r * mpmath.mpf(a) / mpmath.mpf(b) for a, b in zip(p, q, strict=True)]
        losses = sorted((1 if direction == "remove" else -1) * mpmath.log(x) for x in mixed)
        apart = np.array([float(abs(a - mpmath.mpf(b))) for a, b in zip(losses, law.losses, strict=True)])
    assert np.all(apart <= law.loss_error)
    if rate < 1.0:
        # the round-off alone, without what is kept for errors of the probabilities
        assert np.all(apart <= 2.0**-50 * np.abs(law.losses) + 2.0**-52)


def test_a_full_batch_is_exact_beside_atoms_that_need_many_frequencies():
    """Against a binomial sum of Laplace steps; more than 200,000 frequencies are asked for."""
    small, rate, scale, steps, epsilon = 1.1426291772405993e-05, 0.3, 3.8172250388200535, 35, 0.9882765631502272
    step = pa.DiscretePair((0.0, 1.0), (small, 1.0 - small), rate)
    found = pa.compose([(step, steps), (pa.Laplace(scale), 1)]).delta(epsilon, "add")
    with mpmath.workdps(40):
        c, a, q = 1 / mpmath.mpf(scale), mpmath.mpf(small), mpmath.mpf(rate)
        high, low = -mpmath.log1p(-q), mpmath.log((1 - a) / ((1 - q) * (1 - a) + q))

        def laplace(y):
            return 0 if y >= c else 1 - mpmath.exp(y) if y <= -c else 1 - mpmath.exp((y - c) / 2)

        exact = mpmath.fsum(
            mpmath.binomial(steps, j) * a**j * (1 - a) ** (steps - j) * laplace(epsilon - j * high - (steps - j) * low)
            for j in range(steps + 1)
        )
    assert found.lower <= exact <= found.upper
    assert found.width <= 1e-4 * found.upper


@pytest.mark.parametrize("reach", [1.0, 6.0, 20.0])
def test_the_range_of_losses_leaves_out_no_more_than_its_share(reach):
    step = pa.DiscreteGaussian(1.0, 12)
    family, law = step.steps([step], "remove"), step.law("remove")
    low, high = family.range_of_losses(0, reach)
    outside = law.masses[(law.losses < low) | (law.losses > high)].sum()
    assert outside <= np.exp(-0.5 * reach**2)
    assert high < law.losses.max() and low > law.losses.min()


@pytest.mark.parametrize("sigma, s, order", [(5.0, 2, 3.14159), (0.6, 1, 2.5), (1.3, 3, 40.0), (20.0, 1, 1.0001)])
def test_renyi_divergences_of_the_discrete_gaussian(sigma, s, order):
    """Above the sum over the integers, by little: the exponent is that of a Gaussian around order times s."""
    with mpmath.workdps(40):
        places = [mpmath.mpf(k) for k in range(-int(60 * sigma) - 3, int(60 * sigma) + int(order * s) + 3)]
        total = mpmath.fsum(mpmath.exp(-(k**2) / (2 * mpmath.mpf(sigma) ** 2)) for k in places)
        around = mpmath.fsum(mpmath.exp(-((k - order * s) ** 2) / (2 * mpmath.mpf(sigma) ** 2)) for k in places)
        alpha = mpmath.mpf(order)
        exact = alpha * s**2 / (2 * mpmath.mpf(sigma) ** 2) + mpmath.log(around / total) / (alpha - 1)
    found = pa.compose([(pa.DiscreteGaussian(sigma, s), 1)]).rdp(order)
    assert exact <= found * (1 + 1e-15) and found <= order * s**2 / (2 * sigma**2) * (1 + 1e-12)
    assert found - exact <= (1e-4 if sigma < 1 else 1e-9) * found * 100


def test_the_discrete_gaussian_beside_other_renyi_guarantees():
    noise, box = pa.DiscreteGaussian(5.0), pa.ZeroConcentratedDP(0.01)
    both = pa.compose([(noise, 10), (pa.Laplace(4.0), 3), (pa.ApproximateDP(0.0, 0.0), 1)])
    alone = [pa.compose([step]).rdp(3.0) for step in ((noise, 10), (pa.Laplace(4.0), 3))]
    assert both.rdp(3.0) == pytest.approx(sum(alone), rel=1e-12)
    assert both.rdp_epsilon(1e-6) >= both.epsilon(1e-6).upper
    as_box = pa.compose([(box, 1), (pa.ZeroConcentratedDP(0.5 / 25.0), 10)])
    assert pa.compose([(box, 1), (noise, 10)]).epsilon(1e-6).upper == pytest.approx(
        as_box.epsilon(1e-6).upper, rel=1e-9
    )
    # a law that ends has infinite losses, and so has one with them beside it
    assert pa.compose([(pa.DiscreteGaussian(5.0, truncation_bound=20), 1)]).rdp(3.0) == np.inf
    assert pa.compose([(noise, 1), (pa.ApproximateDP(0.1, 1e-9), 1)]).rdp(3.0) == np.inf
    by_hand = pa.DiscretePair(noise.with_record, noise.without_record)
    assert by_hand != noise and pa.compose([(by_hand, 1)]).rdp(3.0) == np.inf


def test_no_gaussian_reaches_below_the_chance_of_an_infinite_loss():
    steps = pa.compose([(pa.ApproximateDP(1.0, 1e-3), 2), (pa.Gaussian(4.0), 1)])
    below, above = steps.mu(1e-3), steps.mu(1e-2)
    assert below.certified and below.lower == below.upper == np.inf
    assert above.certified and above.upper < 10.0


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.1])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.7])
def test_a_black_box_at_its_own_delta(epsilon, delta):
    """The chance of the infinite loss is the number given, so that epsilon is the largest finite loss."""
    found = pa.compose([(pa.ApproximateDP(epsilon, delta), 1)]).epsilon(delta)
    assert found.status == pa.Status.CERTIFIED and found.lower <= epsilon <= found.upper
    assert found.width <= 1e-9 * epsilon
    beside = pa.compose([(pa.ApproximateDP(epsilon, delta), 1), (pa.Laplace(2.0), 3)]).epsilon(delta)
    assert beside.status == pa.Status.CERTIFIED and epsilon + 1.5 <= beside.upper <= (epsilon + 1.5) * (1.0 + 1e-9)
    unbounded = pa.compose([(pa.ApproximateDP(epsilon, delta), 1), (pa.Gaussian(2.0), 1)]).epsilon(delta)
    assert unbounded.lower == unbounded.upper == np.inf
    assert np.isinf(pa.compose([(pa.ApproximateDP(epsilon, delta), 1)]).epsilon(delta * (1.0 - 1e-15)).lower)


def test_an_infinite_mass_that_was_computed_is_not_taken_as_exact():
    step = pa.DiscreteGaussian(2.0, truncation_bound=5)
    infinite = step.law("remove").infinite
    found = pa.compose([(step, 1)]).epsilon(infinite)
    assert (found.lower, found.upper, found.status) == (0.0, np.inf, pa.Status.NOT_CERTIFIED)


def test_a_mass_that_was_scaled_is_not_taken_as_exact():
    given, scaled = ([0.1, 0.9], [0.0, 1.0]), ([0.1, 0.9 + 1e-13], [0.0, 1.0])
    assert pa.DiscretePair(*given).law("remove").infinite_ends == (0.1, 0.1)
    low, high = pa.DiscretePair(*scaled).law("remove").infinite_ends
    with mpmath.workdps(40):
        true = mpmath.mpf(0.1) / mpmath.fsum(mpmath.mpf(p) for p in scaled[0])
    assert low < true < high


def test_the_error_of_an_infinite_mass_near_one_is_that_of_the_others():
    """A law is divided by the rest of the mass, which here has an error of a ten thousandth."""
    infinite, shares, epsilon = 1.0 - 1e-9, np.array([0.7, 0.3]), 30.0
    law = DiscreteLaw(np.array([0.5, 60.0]), 1e-9 * shares, infinite, False)
    steps = DiscreteSteps([law], "remove")
    low, high = (float(end[0]) for end in steps.log_delta_of_step(np.array([epsilon]), np.array([0])))
    ends = [math.log(1e-9 * shares[1] / (1.0 - one)) for one in law.infinite_ends]
    assert low <= ends[0] < ends[1] <= high
    theta = 0.1
    # the mean of exp(theta loss), less 1, by the smallest rest
    rest = 1.0 - law.infinite_ends[1]
    total = 1e-9 * shares / rest @ np.expm1(theta * (law.losses - math.log(rest)))
    assert steps.log_moments(np.array([theta]))[0, 0] >= math.log1p(total)
