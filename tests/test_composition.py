"""One worst-case person: closed forms, invariances, and what is refused."""

import math
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from scipy import special, stats

import pld_accountant as pa
from pld_accountant import deadline
from pld_accountant.composition.enclosed import Widening
from pld_accountant.composition.known import KnownComposition
from pld_accountant.engine import contour, renyi, schedule
from pld_accountant.engine.convolution import ConvolvedLoss
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.engine.transform import Transform
from pld_accountant.notions import gdp

SAMPLED = pa.SampledGaussian(2.0, 0.01)


def test_nothing_costs_nothing():
    nothing = pa.compose([])
    assert tuple(nothing.epsilon(1e-5)) == (0.0, 0.0, 0.0)
    assert tuple(nothing.delta(0.0)) == (0.0, 0.0, 0.0)
    assert tuple(nothing.mu()) == (0.0, 0.0, 0.0)
    assert nothing.rdp_epsilon(1e-5) == 0.0
    assert pa.compose([(SAMPLED, 0)]).epsilon(1e-5).upper == 0.0


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-100])
def test_full_batch_steps_are_one_gaussian(delta):
    composed = pa.compose([(pa.Gaussian(30.0), 40), (pa.SampledGaussian(50.0, 1.0), 7)])
    mu = np.sqrt(40 / 900 + 7 / 2500)
    bounds = composed.epsilon(delta)
    assert bounds.lower <= gdp.epsilon(delta, mu) * (1 + 1e-13)
    assert bounds.upper >= gdp.epsilon(delta, mu) * (1 - 1e-13)
    assert bounds.width <= 1e-12 * bounds.upper
    assert composed.mu().lower <= mu * (1 + 2**-52)
    assert composed.mu().upper >= mu * (1 - 2**-52)


@pytest.mark.parametrize("sigma", [1e-9, 1e-30, 1e-90])
def test_hardly_any_noise_on_everybody(sigma):
    """Phi(-t) is delta to many digits there, so that epsilon = mu^2 / 2 + mu t."""
    composed = pa.compose([(pa.Gaussian(sigma), 10)])
    mu = np.sqrt(10.0) / sigma
    bounds = composed.epsilon(1e-5)
    exact = mu * (mu / 2 + 4.264890793922825)  # Phi(-4.26...) = 1e-5
    assert bounds.lower <= exact * (1 + 1e-10)
    assert exact * (1 - 1e-10) <= bounds.upper <= bounds.lower * (1 + 1e-10)
    assert composed.delta(10.0).upper == 1.0


def test_order_and_grouping_do_not_matter():
    other = pa.SampledGaussian(5.0, 0.02)
    a = pa.compose([(SAMPLED, 300), (other, 500)])
    b = pa.compose([(other, 200), (SAMPLED, 100), (other, 300), (SAMPLED, 200)])
    for direction in ("remove", "add", "both"):
        first, second = a.epsilon(1e-6, direction), b.epsilon(1e-6, direction)
        assert first.lower <= second.upper
        assert second.lower <= first.upper
        np.testing.assert_allclose(first.upper, second.upper, rtol=1e-8)


def test_both_directions_are_the_larger():
    composed = pa.compose([(SAMPLED, 400)])
    both = composed.epsilon(1e-5)
    one, two = composed.epsilon(1e-5, "remove"), composed.epsilon(1e-5, "add")
    assert both.upper == max(one.upper, two.upper)
    assert both.lower == max(one.lower, two.lower)


def test_no_method_is_tried_in_a_direction_that_is_surely_below(monkeypatch):
    asked, improve = [], Transform.improve

    def spy(self, job, working, who):
        asked.append(job.makers.steps.direction)
        improve(self, job, working, who)

    monkeypatch.setattr(Transform, "improve", spy)
    rare = pa.compose([(pa.SampledGaussian(0.6, 1e-4), 600)])
    for ask, target in ((rare.epsilon, 1e-20), (rare.delta, 5.0)):
        asked.clear()
        both = ask(target)
        assert set(asked) == {"remove"}
        assert ask(target, "add").upper < both.lower
        assert tuple(both) == tuple(ask(target, "remove"))
    asked.clear()
    pa.compose([(pa.SampledGaussian(2.0, 0.005), 10_000)]).epsilon(1e-5)
    assert set(asked) == {"remove", "add"}


def test_the_larger_direction_is_the_answer():
    """Two outcomes whose ratio is farther from 1 if the record is not there."""
    pair = pa.DiscretePair([0.2, 0.8], [0.5, 0.5])
    run = pa.compose([(pair, 3), (pa.Gaussian(20.0), 2)])
    remove, add, both = (run.epsilon(1e-3, direction) for direction in ("remove", "add", "both"))
    assert add.lower > remove.upper
    assert add.lower <= both.upper <= add.upper * (1.0 + 1e-9)
    assert run.delta(0.3).upper >= run.delta(0.3, "add").lower > run.delta(0.3, "remove").upper


def test_more_steps_more_noise_and_smaller_rates_go_the_right_way():
    def upper(sigma, rate, steps):
        return pa.compose([(pa.SampledGaussian(sigma, rate), steps)]).epsilon(1e-6).upper

    base = upper(2.0, 0.01, 1000)
    assert upper(2.0, 0.01, 1001) > base > upper(2.0, 0.01, 999)
    assert upper(2.001, 0.01, 1000) < base < upper(1.999, 0.01, 1000)
    assert upper(2.0, 0.00999, 1000) < base < upper(2.0, 0.01001, 1000)


def test_delta_and_epsilon_are_inverse():
    composed = pa.compose([(SAMPLED, 2000)])
    epsilon = composed.epsilon(1e-7)
    assert composed.delta(epsilon.upper).lower <= 1e-7 <= composed.delta(epsilon.lower).upper
    assert composed.delta(0.0).upper < 1.0
    assert composed.epsilon(composed.delta(0.0).upper * 1.01).upper == 0.0


def test_few_steps_are_answered():
    for steps in (1, 10):
        bounds = pa.compose([(pa.SampledGaussian(1.0, 0.1), steps)]).epsilon(1e-5)
        assert bounds.status == pa.Status.CERTIFIED
        assert bounds.width <= 1e-6 * bounds.upper


@pytest.mark.parametrize("bad", [1.5, -1e-5, float("nan"), float("inf")])
def test_a_delta_outside_of_its_range_is_refused(bad):
    with pytest.raises(ValueError, match=r"delta must lie in \[0, 1\]"):
        pa.compose([(SAMPLED, 10)]).epsilon(bad)


def test_other_nonsense_is_refused():
    composed = pa.compose([(SAMPLED, 10)])
    with pytest.raises(ValueError, match="direction"):
        composed.epsilon(1e-5, "sideways")
    with pytest.raises(ValueError, match="epsilon"):
        composed.delta(float("nan"))
    with pytest.raises(ValueError, match="count must be a whole number of at least 0, got -1"):
        pa.compose([(SAMPLED, -1)])
    for number in (2**53, 10**30):
        with pytest.raises(ValueError, match="steps must be at most 9007199254740992 in all"):
            pa.compose([(SAMPLED, number), (pa.Gaussian(1.0), 1)])
    with pytest.raises(ValueError, match="noise_multiplier must lie between 1e-100 and 1e100"):
        pa.SampledGaussian(1e-101, 0.1)
    with pytest.raises((ValueError, TypeError)):
        pa.compose([(SAMPLED, 1.5)])


@pytest.mark.parametrize(
    ("sigma", "rate", "steps"), [(1.0, 0.1, 1_000_000), (0.6, 0.01, 1_000_000), (0.3, 0.5, 50), (1.0, 0.01, 10_000)]
)
def test_delta_from_zero_to_far_beyond_the_mean_loss(sigma, rate, steps):
    """Far below the mean loss the saddle point is at the pole 0: a tilt near the Renyi bound's serves nothing."""
    composed = pa.compose([(pa.SampledGaussian(sigma, rate), steps)])
    largest = composed.epsilon(1e-10).upper
    before = 1.0
    for share in (0.0, 1e-9, 1e-3, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.2):
        found = composed.delta(share * largest)
        assert found.certified
        assert found.upper - found.lower <= 1e-8 * found.upper
        assert found.lower <= before * (1.0 + 1e-9)
        before = found.upper
    assert composed.delta(1e6 * largest).upper < 1e-300


def test_delta_near_one_agrees_with_sampled_losses():
    sigma, rate, steps = 0.3, 0.5, 50
    found = pa.compose([(pa.SampledGaussian(sigma, rate), steps)])
    losses = np.random.default_rng(5)
    x = losses.normal(0.0, sigma, (20_000, steps)) + (losses.random((20_000, steps)) < rate)
    loss = np.sum(np.logaddexp(np.log1p(-rate), np.log(rate) + (2.0 * x - 1.0) / (2.0 * sigma**2)), axis=1)
    for epsilon in (0.0, 50.0, 90.0, 120.0):
        sampled = np.maximum(-np.expm1(epsilon - loss), 0.0)
        error = 5.0 * sampled.std() / np.sqrt(loss.size) + 1e-6
        bounds = found.delta(epsilon, direction="remove")
        assert bounds.lower - error <= sampled.mean() <= bounds.upper + error


@pytest.mark.parametrize("seconds", [1e-9, 1.0, 100.0])
def test_a_limit_of_time_gives_wider_bounds_that_hold(seconds):
    composed = pa.compose([(pa.SampledGaussian(0.6, 0.02), 4)])
    exact = composed.epsilon(1e-10)
    found = composed.epsilon(1e-10, seconds=seconds)
    assert found.lower <= exact.upper
    assert exact.lower <= found.upper < np.inf
    assert (found.status == pa.Status.RENYI_ONLY) == (seconds == 1e-9)
    less = composed.delta(exact.upper, seconds=seconds)
    assert less.lower <= 1e-10 * (1.0 + 1e-4)
    assert less.upper >= 1e-10 * (1.0 - 1e-4)


@pytest.mark.parametrize("seconds", [0.0, -1.0, np.nan, "1"])
def test_a_limit_of_time_is_above_0(seconds):
    with pytest.raises((ValueError, TypeError), match="seconds"):
        pa.compose([(pa.SampledGaussian(1.0, 0.1), 5)]).epsilon(1e-5, seconds=seconds)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 1e300])
def test_delta_at_the_ends_warns_of_nothing(epsilon):
    """log delta is 0 or -inf there, and a product of a tilt and epsilon overflows."""
    for steps in ([(pa.Laplace(1.0), 2000)], [(pa.SampledGaussian(1.0, 0.1), 1_000_000)]):
        upper = pa.compose(steps).delta(epsilon).upper
        assert upper == 1.0 if epsilon < 2.0 else upper <= 5e-324


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(2.0, 1e-3, 60), (0.8, 1e-3, 70), (0.6, 1e-4, 600)])
def test_a_tolerance_gives_wider_bounds_of_the_same_number(sigma, rate, steps):
    run = pa.compose([(pa.SampledGaussian(sigma, rate), steps)])
    for ask, at in ((run.epsilon, 1e-7), (run.delta, run.epsilon(1e-10).upper)):
        close = ask(at)
        for tolerance in (1e-2, 1e-4):
            wide = ask(at, tolerance=tolerance)
            assert wide.certified
            # both hold the number, so they overlap
            assert wide.lower <= close.upper and close.lower <= wide.upper
            size = wide.upper if ask == run.epsilon else -wide.upper * np.log(wide.upper)
            assert wide.upper - wide.lower <= tolerance * size
    assert run.epsilon(1e-7, tolerance=1e-9) == run.epsilon(1e-7)


def test_methods_that_stop_early_do_so_only_with_a_tolerance(monkeypatch):
    passes = []
    step = ConvolvedLoss._pass

    def spy(self, points, aim, final):
        passes.append(points)
        step(self, points, aim, final)

    monkeypatch.setattr(ConvolvedLoss, "_pass", spy)
    run = KnownComposition({pa.ReplaceOneSampledGaussian(1.0, 1e-3): 13}, methods=(schedule.SINGLE[-1],))
    run.epsilon(1e-12, tolerance=1e-3)
    few, passes[:] = sum(passes), []
    run.epsilon(1e-12)
    assert sum(passes) > 3 * few


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -1e-3, np.nan, "a"])
def test_a_bad_tolerance_is_refused(tolerance):
    run = pa.compose([(pa.SampledGaussian(2.0, 0.01), 10)])
    for ask in (run.epsilon, run.delta):
        with pytest.raises(ValueError, match="tolerance"):
            ask(0.5, tolerance=tolerance)


@pytest.mark.parametrize("steps", [None, pa.Gaussian(1.0), 3])
def test_steps_that_are_no_list(steps):
    with pytest.raises(ValueError, match="steps must be a list of pairs"):
        pa.compose(steps)


@pytest.mark.parametrize(
    ("epsilon", "said"),
    [(None, "a number or an array"), ("x", "a number or an array"), (float("nan"), "a number, got nan")],
)
def test_epsilons_that_are_no_numbers(epsilon, said):
    with pytest.raises(ValueError, match=f"epsilon must be {said}"):
        pa.compose([(pa.Gaussian(1.0), 1)]).delta(epsilon)


ENDS = [
    (pa.Gaussian(1e-5), 0.0),
    (SAMPLED, 0.0),
    (pa.Laplace(1.0), 0.0),
    (pa.ApproximateDP(1.0, 0.1), 0.1),
    (pa.DiscreteGaussian(1.0, 2, truncation_bound=1), 1.0 - 1.0 / (2.0 + math.exp(0.5))),
    (pa.RandomAllocation(1.0, 100, 3), 0.0),
    (pa.DensityPair(stats.expon(1.0), stats.expon(0.0)), -math.expm1(-1.0)),
    (pa.DensityPair(stats.uniform(0.1), stats.uniform(0.0)), 0.1),
    (pa.DensityPair(stats.norm(1.0), stats.norm(0.0)), 0.0),
    (pa.ZeroConcentratedDP(0.1), 0.0),
]


@pytest.mark.parametrize(("mechanism", "infinite"), ENDS, ids=str)
def test_the_curve_at_its_ends(mechanism, infinite):
    """No delta exceeds 1, and beyond every epsilon is left what only one of two data sets can give."""
    run = pa.compose([(mechanism, 1)])
    assert tuple(run.epsilon([0.5, 1.0]))[2][1] == run.epsilon(1.0).upper == 0.0
    assert tuple(run.delta(-math.inf)) == (1.0, 1.0, 1.0)
    last = run.delta(math.inf)
    # the logs of a density pair are trusted to 1e-12
    assert infinite - 3e-12 <= last.lower <= infinite <= last.upper <= infinite + 3e-12
    # without false positives only these outcomes tell
    assert run.tradeoff(0.0).lower >= 1.0 - infinite - 3e-12


@pytest.mark.parametrize("failure", [1e-12, 1e-7, 0.3])
@pytest.mark.parametrize("direction", ["remove", "add", "both"])
def test_a_chance_of_failure_costs_itself_alone(failure, direction):
    """delta = D + (1 - D) delta' of the other steps, which are answered as if they were alone."""
    plain = pa.compose([(pa.SampledGaussian(2.0, 1e-4), 1_000)])
    found = pa.compose([(pa.SampledGaussian(2.0, 1e-4), 1_000), (pa.ApproximateDP(0.0, failure), 5)])
    chance = -math.expm1(5 * math.log1p(-failure))
    for rest in (1e-7, 1e-4):
        alone = plain.epsilon(rest, direction)
        bounds = found.epsilon(chance + (1.0 - chance) * rest, direction)
        assert bounds.status == pa.Status.CERTIFIED and bounds.method != pa.Method.RENYI
        assert bounds.lower <= alone.upper * (1 + 1e-9) and alone.lower <= bounds.upper * (1 + 1e-9)
        assert bounds.upper - bounds.lower <= 1e-5 * bounds.upper
        delta = found.delta(alone.estimate, direction)
        assert delta.lower * (1 - 1e-6) <= chance + (1.0 - chance) * rest <= delta.upper * (1 + 1e-6)
    assert found.rdp_epsilon(0.9) == math.inf


@pytest.mark.parametrize(("sigma", "failure"), [(1_000.0, 1e-12), (150.0, 1e-12), (300.0, 1e-3)])
def test_few_small_losses_beside_a_large_one_and_a_failure(sigma, failure):
    """One step of each: a mixture of two Gaussian curves, moved by the loss of the other step."""

    def gaussian(epsilon):
        a, b = -epsilon * sigma + 0.5 / sigma, -epsilon * sigma - 0.5 / sigma
        return special.ndtr(a) - math.exp(epsilon) * special.ndtr(b)

    found = pa.compose([(pa.Gaussian(sigma), 1), (pa.ApproximateDP(1.0, failure), 1)])
    likely = 1.0 / (1.0 + math.exp(-1.0))
    for epsilon in (0.999, 1.0, 1.0 + 0.5 / sigma, 1.0 + 2.0 / sigma):
        rest = likely * gaussian(epsilon - 1.0) + (1.0 - likely) * gaussian(epsilon + 1.0)
        exact = failure + (1.0 - failure) * rest
        bounds = found.delta(epsilon)
        assert bounds.lower * (1 - 1e-9) <= exact <= bounds.upper * (1 + 1e-9) and bounds.upper < 1.001 * bounds.lower
        asked = found.epsilon(exact)
        assert asked.status == pa.Status.CERTIFIED
        assert asked.lower - 1e-9 <= epsilon <= asked.upper + 1e-9 and asked.upper - asked.lower < 1e-5


def test_renyi_divergences_of_order_one_and_infinity():
    """Order 1: the Kullback-Leibler divergence in closed form; infinity: the largest loss."""
    for scale, steps in ((100.0, 1), (1.0, 3), (0.05, 2)):
        first, second, last = pa.compose([(pa.Laplace(scale), steps)]).rdp([1.0, 2.0, math.inf])
        exact = steps * (1.0 / scale + math.expm1(-1.0 / scale))
        assert exact <= first <= exact * (1 + 1e-5) and first < second < last
        assert steps / scale <= last <= steps / scale * (1 + 1e-9)
    gaussian = pa.compose([(pa.Gaussian(5.0), 10)])
    assert 0.2 <= gaussian.rdp(1.0) <= 0.2 * (1 + 1e-5)
    assert gaussian.rdp(math.inf) == math.inf
    both = pa.compose([(pa.Laplace(1.0), 1), (pa.ZeroConcentratedDP(0.1), 1)]).rdp([1.0, 1.5])
    assert math.exp(-1.0) + 0.1 <= both[0] <= both[1]
    with pytest.raises(ValueError, match="alpha must be at least 1"):
        gaussian.rdp([2.0, 0.9])


@pytest.mark.parametrize(
    "steps",
    [
        [(pa.SampledGaussian(0.9, 0.01), 40), (pa.GroupGaussian(2.0, 0.05, 3), 10)],
        [(pa.DiscretePair([0.5, 0.3, 0.2, 0.0], [0.2, 0.2, 0.5, 0.1]), 3), (pa.Gaussian(3.0), 2)],
        [(pa.PoissonSampled(pa.RandomizedResponse(0.4, 3), 0.2), 9), (pa.Laplace(4.0), 5)],
    ],
)
def test_total_variation_is_asked_of_one_direction(steps):
    """It is the same in both: the other direction's interval overlaps, and costs no time."""
    both, remove, add = (pa.compose(steps).delta(0.0, direction) for direction in ("both", "remove", "add"))
    assert both == remove
    assert max(remove.lower, add.lower) <= min(remove.upper, add.upper)
    one = pa.LossDistribution([-0.3, 0.2], [0.3, 0.7], add=([-0.2, 0.3], [0.3, 0.7]))
    apart = [pa.compose([(one, 2)]).delta(0.0, direction).upper for direction in ("both", "remove", "add")]
    assert apart[0] == max(apart[1:]) and apart[1] != apart[2], "here the two directions are two laws"


@pytest.mark.parametrize("more", [1.0001, 1.05])
def test_a_lower_bound_at_a_larger_delta_follows_from_convexity(more):
    """From epsilon at one delta to that of a larger delta, against the engine's own answer there."""
    steps = pa.compose([(pa.ApproximateDP(0.3, 1e-9), 30), (pa.SampledGaussian(1.0, 0.1), 20)])
    exact = pa.compose([(pa.PureDP(0.3), 30), (pa.SampledGaussian(1.0, 0.1), 20)])
    for delta in (1e-9, 1e-4, 0.2):
        near, truth = exact.epsilon(delta, "remove"), exact.epsilon(more * delta, "remove")
        found = steps._lower_at("remove", more * delta, near.lower, EpsilonAt(delta))
        assert found <= truth.lower
        assert near.lower - 1e-3 * (near.lower - found) > truth.upper, "a thousandth of the way is too little"
        assert near.lower - found <= 20.0 * (near.lower - truth.lower)


def test_infinite_losses_ask_one_question_unless_they_hide_delta(monkeypatch):
    asked = []
    finite = KnownComposition._finite

    def counted(self, direction, questions, width, known=None):
        asked.extend(questions)
        return finite(self, direction, questions, width, known)

    monkeypatch.setattr(KnownComposition, "_finite", counted)
    steps = pa.compose([(pa.ApproximateDP(0.3, 1e-9), 30), (pa.SampledGaussian(1.0, 0.1), 20)])
    assert steps.epsilon(1e-6, "remove").width < 1e-5 and len(asked) == 1
    hidden = pa.compose([(pa.ApproximateDP(0.3, 1e-2), 30), (pa.SampledGaussian(1.0, 0.1), 20)])
    asked.clear()
    # the chance of an infinite loss is known to 1e-13, a ten-thousandth of what is left for the finite ones
    delta = -math.expm1(30.0 * math.log1p(-1e-2)) + 1e-9
    assert hidden.epsilon(delta, "remove").width < 1e-2 and len(asked) == 2


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("q", [1e-15, 1e-30, 1e-50, 1e-160, 1e-200, 1e-300, 2.3e-308])
def test_rates_as_small_as_numbers_are(q, direction):
    """To first order in q, delta(0) of two steps is q E[(e^s + e^t - 2)_+], with s and t of the law N(-1/2, 1)."""
    expected = 0.5955244503871239225104235  # by quadrature over s of the closed form over t, 25 digits
    found = pa.compose([(pa.SampledGaussian(1.0, q), 2)]).delta(0.0, direction)
    assert found.lower <= expected * q * (1.0 + 4.0 * q) and expected * q * (1.0 - 4.0 * q) <= found.upper
    assert found.width <= 3e-5 * found.upper
    if q not in (1e-15, 1e-200):
        return  # many steps take seconds at each rate, and below 1e-200 minutes: sums with denormal numbers
    many = pa.compose([(pa.SampledGaussian(1.0, q), 1_000)]).delta(0.0, direction)
    # the sum of a thousand is nearly normal, of variance (e - 1) q^2 each
    assert many.width <= 1e-4 * many.upper
    assert many.upper == pytest.approx(q * math.sqrt(1_000 * (math.e - 1.0) / (2.0 * math.pi)), rel=3e-3)


@pytest.mark.parametrize(
    ("sigma", "q", "epsilon"),
    [(0.03, 1e-300, 20.0), (0.03, 1e-300, 29.9), (0.03, 1e-290, 31.0), (0.03, 1e-150, 3.0), (1.0, 1e-300, 0.0)],
)
def test_one_step_at_rates_as_small_as_numbers_are(sigma, q, epsilon):
    with mpmath.workdps(60):
        t, s = mpmath.log1p(mpmath.expm1(mpmath.mpf(epsilon)) / mpmath.mpf(q)), mpmath.mpf(sigma)
        plain = mpmath.ncdf(0.5 / s - t * s) - mpmath.exp(t) * mpmath.ncdf(-0.5 / s - t * s)
        true = mpmath.mpf(q) * plain
    found = pa.compose([(pa.SampledGaussian(sigma, q), 1)]).delta(epsilon, "remove")
    assert found.lower <= true <= found.upper and found.width <= 1e-7 * found.upper


ARRAYS = {
    "epsilon": ([[1e-5, 0.0], [0.5, 1e-12]], [1e-5, 1.5]),
    "delta": ([[1.0, -1.0], [0.0, 30.0]], [1.0, np.nan]),
    "bayes_risk": ([[0.1, 0.5], [0.9, 1e-6]], [0.5, 1.0]),
    "tradeoff": ([[0.0, 0.01], [0.5, 1.0]], [0.5, 1.1]),
    "attack_success": ([[0.0, 0.01], [0.5, 1.0]], [0.5, np.nan]),
}


@pytest.mark.parametrize("question", ARRAYS)
def test_an_array_has_the_answers_of_its_numbers_and_its_own_shape(question):
    values, bad = ARRAYS[question]
    ask = getattr(pa.compose([(SAMPLED, 500), (pa.Gaussian(10.0), 3)]), question)
    found = ask(np.array(values))
    assert found.lower.shape == found.estimate.shape == found.status.shape == (2, 2)
    for row, column in np.ndindex(2, 2):
        alone = ask(values[row][column])
        assert isinstance(alone.upper, float)
        for part, one in zip(found[row, column], alone, strict=True):
            # points of a curve that are asked together are not those that are asked alone
            np.testing.assert_allclose(part, one, rtol=1e-5)
    assert len(ask([])) == 0
    with pytest.raises(ValueError, match="must"):
        ask(bad)


def test_the_numbers_of_an_array_share_the_time():
    composition = pa.compose([(pa.SampledGaussian(1.0, 1e-3), 20)])
    found = composition.epsilon(np.full(10, 1e-30), seconds=1e-9)
    assert np.all(found.status == pa.Status.RENYI_ONLY)
    assert np.all(np.isfinite(found.upper))
    # the search for the best order, which takes most of the time of a Renyi bound, is left out
    assert np.all(found.upper > 1.01 * composition.rdp_epsilon(1e-30))


@pytest.mark.parametrize(("failure", "shares"), [(1e-8, [1e-60]), (0.3, [1e-13, 1e-15, 1e-60])])
def test_far_beyond_the_finite_losses_the_chance_of_failure_is_the_answer(failure, shares):
    plain = pa.compose([(pa.SampledGaussian(2.0, 0.01), 500)])
    both = pa.compose([(pa.SampledGaussian(2.0, 0.01), 500), (pa.ApproximateDP(0.0, failure), 1)])
    for share in shares:
        epsilon = plain.epsilon(share * failure).lower
        found = both.delta(epsilon)
        rest = mpmath.mpf(1.0 - failure) * plain.delta(epsilon).lower
        assert found.method == pa.Method.RENYI and found.status == pa.Status.CERTIFIED
        assert found.lower <= failure
        assert failure + rest <= mpmath.mpf(found.upper) <= failure * (1 + 2e-10)


def test_samples_of_different_relations_are_told_apart():
    fixed, sampled = (pa.FixedSizeBatch(1.0, 100, 10_000), 1), (pa.SampledGaussian(1.0, 0.01), 1000)
    with pytest.warns(
        UserWarning, match="SampledGaussian is about a record that is added or removed, FixedSizeBatch about one"
    ):
        pa.compose([fixed, sampled])
    pa.compose([fixed, (pa.ReplaceOneSampledGaussian(1.0, 0.01), 10), (pa.Gaussian(1.0), 2), (pa.Laplace(2.0), 1)])
    pa.compose([sampled, (pa.RandomAllocation(1.0, 10), 1), (pa.PoissonSampled(pa.Laplace(2.0), 0.1), 1)])
    for step in (pa.PureDP(1.0), pa.DensityPair(stats.logistic(1.0), stats.logistic(0.0))):
        pa.compose([fixed, (step, 1)])  # on everybody
        with pytest.warns(UserWarning, match=f"{type(step).__name__} is about a record that is added or removed"):
            pa.compose([fixed, (pa.PoissonSampled(step, 0.1), 1)])


def test_divergences_do_not_depend_on_what_was_asked_before():
    first, second = (pa.compose([(pa.SampledGaussian(0.5, 0.01), 100)]) for _ in range(2))
    first.epsilon(1e-5)  # takes looser log-moments at large orders
    assert first.rdp(1025.0) == second.rdp(1025.0)


def test_the_curve_near_delta_1_is_certified():
    run = pa.compose([(pa.SampledGaussian(1.0, 0.01), 1000)])
    assert run.delta(8.0, "add").upper == 5e-324
    found = run.tradeoff(np.linspace(0.0, 1.0, 8))
    assert np.all(found.status == pa.Status.CERTIFIED)
    assert run.delta(-8.0).status == pa.Status.CERTIFIED


@pytest.mark.parametrize("zero", [False, "0", None])
def test_what_is_no_number_is_no_delta(zero):
    with pytest.raises(ValueError, match="delta"):
        pa.compose([(pa.Laplace(2.0), 1)]).epsilon(zero)
    with pytest.raises(ValueError, match="delta"):
        pa.calibrate(lambda b: [(pa.Laplace(b), 1)], 1.0, zero, between=(0.1, 10.0))
    with pytest.raises(ValueError, match="epsilon"):
        pa.ApproximateDP(zero, 1e-5)


@pytest.mark.parametrize("seconds", [1e-9, 10.0])
def test_chances_of_failure_alone_need_no_time(seconds):
    run, chance = pa.compose([(pa.ApproximateDP(0.0, 1e-5), 10)]), -math.expm1(10 * math.log1p(-1e-5))
    assert run.epsilon(1e-4, seconds=seconds).upper <= 1e-12 and run.epsilon(9e-5, seconds=seconds).lower == np.inf
    for epsilon in (0.0, 1.0, 50.0):
        found = run.delta(epsilon, seconds=seconds)
        assert found.lower <= chance * (1 + 1e-15) and chance * (1 - 1e-15) <= found.upper <= chance * (1 + 1e-8)


@pytest.mark.parametrize("epsilon", [-50.0, -800.0])
def test_a_delta_at_a_negative_epsilon_is_at_most_1_if_nothing_is_known(epsilon):
    found = pa.compose([(pa.Gaussian(1e-100), 10**10)]).delta(epsilon)
    assert 0.0 <= found.lower <= found.estimate <= found.upper == 1.0


def test_a_level_of_a_curve_has_its_own_status():
    run = pa.compose([(pa.SampledGaussian(0.4, 1e-3), 8), (pa.Laplace(2.0), 5)])
    found = run.tradeoff([1.0, 1e-12], seconds=1e-3)
    assert found[0] == run.tradeoff(1.0)


def test_nothing_is_asked_after_the_time_of_an_array(monkeypatch):
    clock = [0.0]

    def answer(*_):
        clock[0] += 1.0
        return pa.Bounds(0.1, 0.1, 0.1)

    run = pa.compose([(SAMPLED, 10)])
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(run, "_answer", answer)
    monkeypatch.setattr(run, "_together", lambda questions, *_: [None] * len(questions))
    found = run.epsilon(np.full(100, 1e-5), seconds=2.0)
    assert clock[0] <= 4.0
    assert np.count_nonzero(found.status == pa.Status.NOT_CERTIFIED) == 100 - clock[0]


def test_a_composition_stands_for_its_mechanisms():
    allocation, box = pa.RandomAllocation(2.0, 10), pa.ZeroConcentratedDP(0.01)
    parts = [
        [(pa.SampledGaussian(2.0, 0.01), 100), (pa.Laplace(5.0), 2)],
        [(pa.SampledGaussian(2.0, 0.01), 50), (pa.ApproximateDP(0.1, 1e-9), 1)],
        [(allocation, 2)],
        [(box, 3)],
        [(pa.ExponentialMechanism(0.1), 4)],
        [],
    ]
    for one in parts:
        for other in parts:
            nested = pa.compose([(pa.compose(one), 1), (pa.compose(other), 2)])
            assert nested == pa.compose([*one, *other, *other])
    first, second = (pa.compose(one) for one in parts[:2])
    both = pa.compose([(first, 1), (second, 1)])
    assert both.epsilon(1e-6) == pa.compose([*parts[0], *parts[1]]).epsilon(1e-6)
    assert both.counts == {**dict(parts[0]), pa.SampledGaussian(2.0, 0.01): 150, parts[1][1][0]: 1}
    with pytest.raises(ValueError, match="count"):
        pa.compose([(first, -1)])


@pytest.mark.parametrize("direction", ["remove", "add", "both"])
def test_a_trade_off_near_1_is_as_close_as_the_true_positives(direction):
    """Of Gaussian noise in closed form: type II error Phi(Phi^-1(1 - alpha) - mu)."""
    run = pa.compose([(pa.Gaussian(2.0), 1)])
    for alpha in (1e-3, 1e-6, 1e-12):
        success = stats.norm.sf(stats.norm.isf(alpha) - 0.5)
        found, rate = run.tradeoff(alpha, direction), run.attack_success(alpha, direction)
        assert found.lower <= 1.0 - success * (1.0 - 1e-12) and 1.0 - success * (1.0 + 1e-12) <= found.upper
        assert 1.0 - found.lower == pytest.approx(rate.upper, rel=1e-3 if alpha < 1e-9 else 1e-9)
        assert 1.0 - found.lower <= success * (1.0 + 1e-3)
    # with much less noise the test finds nearly everybody, and the error itself is what is close
    alpha = 1e-4
    error = stats.norm.cdf(stats.norm.isf(alpha) - 10.0)
    found = pa.compose([(pa.Gaussian(0.1), 1)]).tradeoff(alpha, direction)
    assert error * (1.0 - 1e-4) <= found.lower <= found.upper <= error * (1.0 + 1e-4)


TOGETHER = {
    "sampled": [(pa.SampledGaussian(1.0, 0.01), 1000), (pa.SampledGaussian(2.0, 0.02), 300)],
    "rare": [(pa.SampledGaussian(1.0, 0.001), 20)],
    "groups": [(pa.GroupGaussian(1.0, 0.01, 4), 300)],
    "replaced": [(pa.ReplaceOneSampledGaussian(1.5, 0.002), 60)],
    "few": [(pa.SampledGaussian(0.8, 0.3), 2), (pa.Gaussian(3.0), 1)],
    "laplace": [(pa.Laplace(5.0), 20)],
    "many laplace": [(pa.Laplace(20.0), 300)],
    "beside noise": [(pa.Laplace(10.0), 40), (pa.Gaussian(5.0), 3)],
    "sampled laplace": [(pa.PoissonSampled(pa.Laplace(1.0), 0.01), 500)],
    "atoms": [(pa.RandomizedResponse(0.2, 2), 40), (pa.SampledGaussian(1.0, 0.01), 100)],
    "infinite losses": [(pa.ApproximateDP(0.1, 1e-7), 3), (pa.SampledGaussian(1.0, 0.01), 100)],
    "once": [(pa.SampledGaussian(1.0, 0.01), 1)],
    "shuffled": [(pa.RandomAllocation(1.0, 20), 3)],
    "largest batch": [(pa.TruncatedPoisson(1.0, 0.01, 20, 1000), 100)],
    "batches of one size": [(pa.FixedSizeBatch(2.0, 50, 2000), 40)],
    "sampled atoms": [(pa.PoissonSampled(pa.DiscreteGaussian(2.0), 0.05), 60)],
}


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        *((name, "both") for name in TOGETHER),
        *((name, "add") for name in ("sampled", "replaced", "many laplace", "atoms")),
    ],
)
def test_questions_that_are_asked_together_have_the_bounds_of_each(name, direction):
    """Their bounds overlap and are as close; the order of the questions does not matter."""
    run, rng = pa.compose(TOGETHER[name]), np.random.default_rng(3)
    least = 1e-6 if name == "infinite losses" else 1e-12
    top = run.epsilon(least, direction).upper
    for ask, values in ((run.delta, np.linspace(-0.1 * top, top, 12)), (run.epsilon, np.geomspace(least, 0.1, 9))):
        found, order = ask(values, direction), rng.permutation(values.size)
        assert ask(values[order], direction) == found[order]
        for k, value in enumerate(values.tolist()):
            one, alone = found[k], ask(value, direction)
            assert one.lower <= alone.upper * (1.0 + 1e-12) and alone.lower <= one.upper * (1.0 + 1e-12)
            assert one.status == alone.status == pa.Status.CERTIFIED
            close = 2e-6 * max(-np.log(one.upper), 1.0) if ask == run.delta else 1e-6
            assert one.width <= max(2.0 * alone.width, close * one.upper)


@pytest.mark.parametrize(
    "name", ["infinite losses", "shuffled", "largest batch", "batches of one size", "sampled atoms"]
)
def test_few_deltas_of_a_curve_are_asked_alone(name, monkeypatch):
    run, alone = pa.compose(TOGETHER[name]), []
    answer = type(run)._answer

    def counting(self, *given):
        alone.append(given)
        return answer(self, *given)

    monkeypatch.setattr(type(run), "_answer", counting)
    run.delta(np.linspace(0.1, 2.0, 8))
    assert len(alone) <= 4


def test_questions_that_no_end_can_be_asked_have_an_answer():
    """Beside two lists of mechanisms that differ, a delta of almost 1 is asked of neither, alone or together."""
    run = pa.compose(TOGETHER["shuffled"])
    found = run.epsilon([1.0 - 1e-13, 1.0 - 1e-14])
    assert list(found.lower) == [0.0, 0.0] and found[0] == run.epsilon(1.0 - 1e-13)


def test_the_distance_of_enclosing_lists_widens_answers_that_are_asked_together(monkeypatch):
    """Each bound moves by the slack and the rest of its own side, as if asked alone."""
    monkeypatch.setattr(Widening, "of", lambda *_: Widening(0.1, 1e-3))
    run, both = pa.compose(TOGETHER["largest batch"]), ("remove", "add")
    for one, found in (
        *((run.delta(e), run._together([DeltaAt(e)], both, 0.0)) for e in (0.01, 0.1)),
        *((run.epsilon(d), run._together([EpsilonAt(d)], both, 0.0)) for d in (0.01, 0.1)),
    ):
        assert list(found[0])[::2] == pytest.approx([one.lower, one.upper], rel=1e-3)


def test_deltas_whose_bounds_are_at_two_epsilons_are_asked_alone():
    """Where the chance of an infinite loss is large, its round-off moves epsilon."""
    run = pa.compose([(pa.ApproximateDP(0.1, 0.3), 2), (pa.SampledGaussian(1.0, 0.01), 50)])
    assert all(len(run._asked("remove", e)[0]) == 2 for e in (1e-3, 0.5))
    assert run._together([DeltaAt(1e-3), DeltaAt(0.5)], ("remove", "add"), 0.0) == [None, None]


def test_questions_about_one_curve_share_their_integrals(monkeypatch):
    made, integrate = [], contour.integrate
    monkeypatch.setattr(contour, "integrate", lambda *given: made.append(given) or integrate(*given))
    run = pa.compose(TOGETHER["groups"])
    epsilon = np.linspace(7.0, 12.0, 60)
    found = run.delta(epsilon, "remove")
    assert 0 < len(made) <= 20
    assert np.all(found.upper <= found.lower * (1.0 + 2e-5))
    # each integral is used within the range of its bounds
    exact = [pa.compose(TOGETHER["groups"]).delta(e, "remove") for e in epsilon[::6].tolist()]
    assert all(found.lower[6 * k] <= one.upper and one.lower <= found.upper[6 * k] for k, one in enumerate(exact))


@pytest.mark.parametrize("counts", [{pa.SampledGaussian(0.5, 1e-4): 300}, {pa.Laplace(3.0): 40}])
def test_who_has_a_renyi_bound_alone_has_that_of_the_best_order(counts):
    """Of a number, and of each in an array."""
    run = KnownComposition(counts, methods=())
    best = [run.rdp_epsilon(delta) for delta in (1e-6, 1e-4)]
    found = run.epsilon([1e-6, 1e-4], "remove")
    assert found.upper.tolist() == pytest.approx(best, rel=1e-12)
    assert np.all(found.status == pa.Status.RENYI_ONLY)
    assert run.epsilon(1e-6, "remove").upper == pytest.approx(best[0], rel=1e-12)


def test_a_renyi_bound_at_a_lower_bound_is_left_alone(monkeypatch):
    """No order is better: the bounds are closer than a millionth."""
    monkeypatch.setattr(renyi, "optimal_epsilon", None)
    found = pa.compose([(pa.Laplace(1.0), 8)]).epsilon([1e-9, 1e-5, 1e-4])
    assert pa.Method.RENYI in found.method
    assert np.all(found.upper <= found.lower * (1.0 + 2e-5))


def test_an_epsilon_of_0_beside_others():
    """The integral at 0, which proves it, is none for the others."""
    run = pa.compose([(pa.ReplaceOneSampledGaussian(1.0, 1e-4), 50)])
    delta = np.geomspace(1e-8, 1e-2, 7)
    found = run.epsilon(delta, "remove")
    assert found.upper[-1] == 0.0 < found.lower[0]
    assert all(found.upper[k] == pytest.approx(run.epsilon(d, "remove").upper, rel=1e-6) for k, d in enumerate(delta))


def test_tests_without_time_are_not_certified(monkeypatch):
    run = pa.compose([(pa.SampledGaussian(0.4, 1e-3), 8), (pa.Laplace(2.0), 5)])
    for ask in (run.tradeoff, run.attack_success):
        found = ask([0.1, 0.3], seconds=1e-9)
        assert np.all(found.status != pa.Status.CERTIFIED) and np.all(found.lower < found.upper)

    def late(*_, **__):
        raise deadline.OutOfTime

    monkeypatch.setattr(run, "delta", late)
    found = run.tradeoff([0.3, 1.0])
    assert list(found.status) == [pa.Status.NOT_CERTIFIED, pa.Status.CERTIFIED]
    assert found.lower[0] == 0.0 and found.upper[0] >= 0.7
