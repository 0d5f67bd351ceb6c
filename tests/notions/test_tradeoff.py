"""Trade-off functions: bounds enclose the truth, each side fails without its bound, promises are rounded down."""

import mpmath
import numpy as np
import pytest
from scipy import stats

import pld_accountant as pa
from pld_accountant.composition.known import KnownComposition
from pld_accountant.notions import gdp, zcdp
from pld_accountant.notions.tradeoff import (
    ProfileCurve,
    _envelope,
    _Maximum,
    tradeoff_of_dp,
    tradeoff_of_gdp,
    tradeoff_of_rdp,
    tradeoff_of_zcdp,
)

ALPHAS = [1e-9, 1e-5, 0.01, 0.3, 0.9, 0.9999]


def gaussian(alpha, mu):
    """The smallest type II error for N(mu, 1) against N(0, 1), in 40 digits."""
    with mpmath.workdps(40):
        z = -mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(alpha) - 1)
        return mpmath.ncdf(z - mu)


def of_each(curve):
    """A curve of several epsilons from one of single epsilons."""
    return lambda epsilons, wide: [curve(epsilon, wide) for epsilon in epsilons]


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", [0.3, 1.0, 20.0])
def test_bounds_enclose_the_gaussian_curve(alpha, sigma):
    run = pa.compose([(pa.Gaussian(sigma), 1)])
    exact = gaussian(alpha, 1 / mpmath.mpf(sigma))
    found, success = run.tradeoff(alpha), run.attack_success(alpha)
    assert found.lower <= exact <= found.upper
    assert success.lower <= 1 - exact <= success.upper
    assert found.upper - found.lower <= 1.2e-5 * found.upper
    assert found.method == pa.Method.CONJUGATE


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_errors_far_below_the_round_off_of_one_are_found(alpha):
    """Near loss 0 both bounds of such a curve are 0 and its round-off."""
    exact, found = gaussian(alpha, 20), pa.compose([(pa.Gaussian(0.05), 1)]).tradeoff(alpha)
    assert found.lower <= exact <= found.upper <= found.lower * (1 + 2e-5)
    lie, found = 0.5e-9, pa.compose([(pa.RandomizedResponse(1e-9), 2)]).tradeoff(alpha)
    exact = lie**2 * (1 - alpha)  # only two lies are taken for the truth: a part alpha of them is not
    assert found.lower <= exact * (1 + 1e-8)
    assert exact * (1 - 1e-8) <= found.upper <= found.lower * (1 + 2e-5)


@pytest.mark.parametrize("alpha", [0.001, 0.1, 0.5, 0.95])
def test_bounds_enclose_a_curve_with_corners_in_each_direction(alpha):
    # a likelihood-ratio test over three outcomes, drawn as the curve through its corners
    with_record, without = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.3, 0.6])
    corners = np.cumsum([0, *without]), 1 - np.cumsum([0, *with_record])
    run = pa.compose([(pa.DiscretePair(with_record, without), 1)])
    forth = np.interp(alpha, *corners)
    back = np.interp(alpha, corners[1][::-1], corners[0][::-1])
    for direction, exact in (("remove", forth), ("add", back), ("both", min(forth, back))):
        found = run.tradeoff(alpha, direction)
        assert found.lower <= exact * (1 + 1e-14) <= found.upper * (1 + 4e-14)
        assert found.width <= 1.2e-5 * found.upper + 1e-12


@pytest.mark.parametrize("question", ["type_two", "true_positives"])
@pytest.mark.parametrize("mu", [0.02, 1.0, 4.0])
def test_many_alphas_share_their_questions(question, mu):
    """Each bound holds and is close, at a third of the questions that they take one by one."""
    calls, epsilons = [0], []

    def curve(asked, wide):
        calls[0] += 1
        epsilons.extend(asked)
        return [(d * (1.0 - 1e-9), d * (1.0 + 1e-9)) for d in gdp.delta(np.array(asked), mu).tolist()]

    alphas = [0.5, *np.linspace(0.005, 0.995, 100).tolist(), 0.5]
    found = getattr(ProfileCurve(curve, curve), question)(alphas)
    assert len(found) == len(alphas) and found[-1] == found[0]
    for alpha, (low, high) in zip(alphas, found, strict=True):
        exact = gaussian(alpha, mu) if question == "type_two" else 1 - gaussian(alpha, mu)
        assert low <= exact <= high <= low + 1.2e-5 * high
    assert calls[0] <= 60 and len(epsilons) <= 9 * len(alphas)


@pytest.mark.parametrize("off", [-6, 5, 20])
def test_points_where_the_upper_bound_is_largest_are_looked_at(off):
    """The largest lower bound lies `off` points away, and some points between are not looked at at first."""
    points = np.linspace(-3.0, 3.0, 121)
    truth = 1.0 - np.array([float(gdp.delta(max(e, 0.0), 1.0)) if e >= 0 else 0.0 for e in points])
    truth[points < 0.0] = np.exp(points[points < 0.0]) * (1.0 - gdp.delta(-points[points < 0.0], 1.0))
    best = int(np.argmax(truth - np.exp(points) * 0.3))
    values = np.stack([truth - 0.05, truth + 1e-3], axis=1)
    values[best + off, 0] = truth[best + off]
    found = _Maximum(points, values, 0.3, 0.0)
    after = int(np.searchsorted(points, found.place))
    assert {points[after - 1], points[after]} <= set(found.epsilons)
    assert found.lower <= gaussian(0.3, 1) <= found.upper


@pytest.mark.parametrize("alpha", [1e-6, 0.01, 0.5])
def test_far_tails_are_not_asked_for(alpha):
    """A delta of 1e-30 may cost a hundred times as much as the others and changes nothing."""
    asked = []

    def curve(epsilon, wide):
        asked.append(float(gdp.delta(epsilon, 0.3)))
        return asked[-1] * (1.0 - 1e-9), asked[-1] * (1.0 + 1e-9)

    low, high = ProfileCurve(of_each(curve), of_each(curve)).type_two([alpha])[0]
    assert low <= gaussian(alpha, 0.3) <= high <= low * (1.0 + 2e-5)
    # the last one on each side is the first that changes nothing
    assert sum(delta < 1e-4 * alpha for delta in asked) <= 2


@pytest.mark.parametrize("alpha", ALPHAS)
def test_loose_curves_give_bounds_of_what_they_enclose(alpha):
    """The curves are certified only: a search that took them for the truth would give bounds that miss it."""

    def loose(epsilon, wide):
        d = float(gdp.delta(epsilon, 1.0))
        return d * (0.97 + 0.02 * np.sin(40 * epsilon)), d * (1.03 + 0.02 * np.sin(70 * epsilon))

    exact = gaussian(alpha, 1)
    curve = ProfileCurve(of_each(loose), of_each(loose))
    low, high = curve.type_two([alpha])[0]
    assert low <= exact <= high
    low, high = curve.true_positives([alpha])[0]
    assert low <= 1 - exact <= high


@pytest.mark.parametrize("alpha", [1e-9, 1e-6, 1e-3, 0.1])
def test_the_promised_side_of_loose_curves_is_the_best_that_they_give(alpha):
    """Where upper and lower bounds of delta are a factor apart, their best epsilons are apart, too."""

    def loose(epsilon, wide):
        d = float(gdp.delta(epsilon, 0.5))
        return 0.2 * d, min(1.5 * d, 1.0)

    curve = ProfileCurve(of_each(loose), of_each(loose))
    epsilon = np.linspace(0.0, 8.0, 8001)
    best = np.min(np.minimum(1.5 * gdp.delta(epsilon, 0.5), 1.0) + np.exp(epsilon) * alpha)
    for promised, more in ((curve.true_positives([alpha])[0][1], 0.0), (1.0 - curve.type_two([alpha])[0][0], 1e-5)):
        assert best * (1 - 1e-5) - 1e-15 <= promised <= best * 1.01 + more


@pytest.mark.parametrize("alpha", [1e-5, 0.01, 0.3])
def test_close_bounds_take_the_place_of_wide_ones_where_they_decide(alpha):
    asked = []

    def curve(epsilon, wide):
        asked.append(wide)
        d, width = float(gdp.delta(epsilon, 1.0)), 0.05 if wide else 1e-9
        return d * (1.0 - width), d * (1.0 + width)

    low, high = ProfileCurve(of_each(curve), of_each(curve)).type_two([alpha])[0]
    assert low <= gaussian(alpha, 1) <= high <= low * (1.0 + 1e-5)
    assert 0 < asked.count(False) < asked.count(True)


def test_sampled_steps_lie_between_their_directions():
    run = pa.compose([(pa.SampledGaussian(1.0, 0.1), 50)])
    both, remove, add = (run.tradeoff([0.01, 0.2], d) for d in ("both", "remove", "add"))
    assert np.all(both.lower == np.minimum(remove.lower, add.lower))
    # the two curves are inverses of each other
    back = run.tradeoff(float(remove.estimate[1]), "add")
    assert back.lower * (1 - 1e-4) <= 0.2 <= back.upper * (1 + 1e-4)


@pytest.mark.parametrize("prior", [1e-6, 0.1, 0.5, 0.8])
def test_bayes_risk_is_the_smallest_mean_of_the_two_errors(prior):
    run = pa.compose([(pa.Gaussian(0.7), 1)])
    alphas = np.concatenate([np.logspace(-12, -1, 400), np.linspace(0.1, 0.99999, 1000)])
    errors = (1 - prior) * alphas + prior * stats.norm.cdf(-stats.norm.ppf(alphas) - 1 / 0.7)
    best = min(errors.min(), prior, 1 - prior)
    found = run.bayes_risk(prior)
    assert found.lower <= best * (1 + 1e-12)
    assert best <= found.upper * (1 + 1e-4)


def test_advantage_is_the_total_variation():
    found = pa.compose([(pa.DiscretePair([0.75, 0.25], [0.25, 0.75]), 1)]).advantage()
    assert found.lower <= 0.5 <= found.upper <= 0.5 + 1e-9


@pytest.mark.parametrize("alpha", ALPHAS)
def test_promises_of_notions_are_below_their_mechanisms(alpha):
    for mu in (0.0, 0.1, 1.0, 5.0):
        exact = gaussian(alpha, mpmath.mpf(mu))
        assert tradeoff_of_gdp(alpha, mu) <= exact <= tradeoff_of_gdp(alpha, mu) * (1 + 1e-8) + 1e-300
        # a Gaussian mechanism satisfies all of these
        for order in (1.001, 2.0, 40.0):
            assert tradeoff_of_rdp(alpha, order, order * mu**2 / 2) <= exact
        assert tradeoff_of_zcdp(alpha, mu**2 / 2) <= exact
        for epsilon in (0.0, 0.5, 3.0):
            assert tradeoff_of_dp(alpha, epsilon, float(gdp.delta(epsilon, mu)) if mu else 0.0) <= exact


def test_renyi_promise_is_tight_for_one_order():
    """At the returned error the Bernoulli laws have the divergence rho: any larger promise would be false."""
    a, order, rho = 0.05, 3.0, 0.4
    b = float(tradeoff_of_rdp(a, order, rho))
    forth = np.log((1 - b) ** order * a ** (1 - order) + b**order * (1 - a) ** (1 - order)) / (order - 1)
    back = np.log(a**order * (1 - b) ** (1 - order) + (1 - a) ** order * b ** (1 - order)) / (order - 1)
    assert max(forth, back) == pytest.approx(rho, rel=1e-9)
    assert max(forth, back) >= rho


def test_the_test_of_bits_beats_the_way_through_delta():
    grid = np.linspace(0, 20, 2001)
    through = np.max(tradeoff_of_dp(0.01, grid, zcdp.zcdp_delta(0.5, grid)))
    assert tradeoff_of_zcdp(0.01, 0.5) > through


def test_pure_dp_attains_its_promise():
    found = pa.compose([(pa.PureDP(1.0), 1)]).tradeoff([0.01, 0.4])
    promised = tradeoff_of_dp([0.01, 0.4], 1.0)
    assert np.all(promised <= found.upper)
    assert np.all(found.lower <= promised + 1e-11)
    assert tradeoff_of_dp(0.3, np.inf) == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: tradeoff_of_dp(-0.1, 1.0),
        lambda: tradeoff_of_dp(0.1, -1.0),
        lambda: tradeoff_of_dp(0.1, np.nan),
        lambda: tradeoff_of_dp(0.1, 1.0, 1.0),
        lambda: tradeoff_of_gdp(1.1, 1.0),
        lambda: tradeoff_of_rdp(0.1, 1.0, 1.0),
        lambda: tradeoff_of_zcdp(0.1, -1.0),
        lambda: pa.compose([]).tradeoff(-0.1),
        lambda: pa.compose([]).attack_success([0.1, 1.1]),
        lambda: pa.compose([]).bayes_risk(1.0),
        lambda: pa.compose([]).tradeoff(0.1, "left"),
    ],
)
def test_bad_arguments_are_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()


def test_trade_off_functions_have_ends():
    """Without false positives only infinite losses are detected; a test that accuses everybody misses nobody."""
    ends = np.array([0.0, 0.3, 1.0])
    for of, zero in (
        (lambda a: tradeoff_of_gdp(a, 1.0), 1.0),
        (lambda a: tradeoff_of_rdp(a, 2.0, 0.5), 1.0),
        (lambda a: tradeoff_of_zcdp(a, 0.5), 1.0),
        (lambda a: tradeoff_of_dp(a, 1.0, 0.25), 0.75),
        (lambda a: tradeoff_of_dp(a, 1e4, 0.25), 0.75),
        (lambda a: tradeoff_of_dp(a, np.inf, 0.25), 0.0),
    ):
        found = of(ends)
        assert zero - 1e-14 <= found[0] <= zero and found[2] == 0.0
        assert found.tolist() == [of(a) for a in ends.tolist()]
    for bad in (-1e-300, 1.5, float("nan")):
        with pytest.raises(ValueError, match="alpha must lie in"):
            tradeoff_of_gdp(bad, 1.0)


def test_the_envelope_lies_above_all_that_the_bounds_allow():
    """Between two places: the lines from the left and from the right, and the largest value, on a dense grid."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        places = np.concatenate([[0.0], np.sort(rng.uniform(0.0, 4.0, 4))])
        top = rng.uniform(0.3, 2.0)
        curve = np.minimum.reduce([places, 0.4 + 0.5 * places, np.full(5, top)])  # concave, rises by at most 1 a unit
        low, high = curve - rng.uniform(0.0, 0.05, 5), curve + rng.uniform(0.0, 0.05, 5)
        alpha = rng.uniform(0.0, 1.0)
        bound = _envelope(places, low, high, alpha, top)[0]
        for i in range(4):
            x, y = places[i], places[i + 1]
            slope = 1.0 if i == 0 else np.clip((high[i] - low[i - 1]) / (x - places[i - 1]), 0.0, 1.0)
            back = max((low[i + 2] - high[i + 1]) / (places[i + 2] - y), 0.0) if i < 3 else 0.0
            z = np.linspace(x, y, 2001)
            allowed = np.minimum(np.minimum(high[i] + slope * (z - x), high[i + 1] - back * (y - z)), top) - z * alpha
            assert bound >= allowed.max() - 1e-12


@pytest.mark.parametrize("direction", ["both", "remove", "add"])
def test_the_ends_of_the_curve(direction):
    """Without false positives nothing but infinite losses is detected; with all of them, everything."""
    for steps, missed in (
        ([(pa.SampledGaussian(1.0, 0.1), 30)], 1.0),
        ([], 1.0),
        ([(pa.ApproximateDP(1.0, 0.2), 1), (pa.Gaussian(3.0), 2)], 0.8),
        ([(pa.RandomizedResponse(0.0), 1)], 0.0),
    ):
        run = pa.compose(steps)
        found, hits = run.tradeoff([0.0, 1.0], direction), run.attack_success([0.0, 1.0], direction)
        assert found.lower[0] <= missed <= found.upper[0] and found.lower[0] >= missed - 1e-9
        assert hits.lower[0] - 1e-15 <= 1.0 - missed <= hits.upper[0] + 1e-15
        assert found.lower[1] == found.upper[1] == 0.0 and hits.lower[1] == hits.upper[1] == 1.0


STEPS = [
    (pa.PoissonSampled(pa.DiscreteGaussian(3.0), 0.01), 1_000),
    (pa.ApproximateDP(0.1, 1e-9), 20),
    (pa.Laplace(2.0), 9),
    (pa.GroupGaussian(1.0, 0.01, 3), 20),
    (pa.RandomizedResponse(1.0, 4), 3),
]


@pytest.mark.parametrize("steps", [[one] for one in STEPS] + [STEPS[:2]], ids=str)
def test_a_rough_delta_is_an_upper_bound(steps):
    run = pa.compose(steps)
    for direction in ("remove", "add"):
        for epsilon in (0.05, 0.5, 3.0):
            assert run._rough_delta(direction, epsilon) >= run.delta(epsilon, direction).lower


def test_a_tiny_delta_is_not_asked_for(monkeypatch):
    """Delta at 1.15 is 1e-25: other methods took three seconds for it, and no trade-off at 0.01 depends on it."""
    asked = []
    answer = KnownComposition._answer
    monkeypatch.setattr(
        KnownComposition, "_answer", lambda self, *given: (asked.append(given[0]), answer(self, *given))[1]
    )
    found = pa.compose(STEPS[:1]).tradeoff(0.01)
    assert found.upper - found.lower < 1e-5
    assert max(question.epsilon for question in asked) < 1.0


def test_the_smallest_doubles_are_rounded_outwards():
    """The risk of the smallest prior lies strictly between 0 and the prior, where there is no double."""
    found = pa.compose([(pa.Gaussian(0.025), 1)]).bayes_risk(5e-324)
    assert found.lower == 0.0 and found.upper >= 5e-324
    found = pa.compose([]).delta(-1e-310)  # 1 - exp(-1e-310), which is less than 1e-310
    assert found.lower < 1e-310 <= found.upper
