"""Repeated selection: exact laws lie below the bound; the numbers of runs have the law that the theorem asks for."""

import math

import numpy as np
import pytest

import pld_accountant as pa

SHAPES = [-0.5, 0.0, 1.0, 3.0, math.inf]


def masses(selection, most=20_000):
    """P(K = k), k = 0 .. most - 1: Papernot and Steinke, Definitions 1 and 4."""
    k = np.arange(most)
    if math.isinf(selection.shape):
        logs = k * math.log(selection.mean) - selection.mean - np.array([math.lgamma(i + 1.0) for i in k])
        return np.exp(logs)
    s, g = selection.shape, selection.gamma
    steps = np.log1p(-g) + np.log(np.abs(k[1:] - 1 + s) if s else np.maximum(k[1:] - 1, 1)) - np.log(k[1:])
    steps[0] = math.log1p(-g)  # the first is 1 up to a factor
    found = np.concatenate([[0.0], np.exp(np.cumsum(steps))])
    return found / found.sum()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [1.0, 1.5, 20.0])
def test_the_mean_and_the_draws(shape, mean):
    selection = pa.RepeatedSelection(pa.compose([(pa.PureDP(0.5), 1)]), mean, shape)
    p = masses(selection)
    assert p @ np.arange(p.size) == pytest.approx(mean, rel=1e-6)
    rng = np.random.default_rng(20_220_425)
    drawn = np.bincount([selection.draw(rng) for _ in range(20_000)], minlength=4)[:4] / 20_000
    assert np.all(np.abs(drawn - p[:4]) <= 5.0 * np.sqrt(p[:4] * (1.0 - p[:4]) / 20_000) + 1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [1.0, 3.0, 30.0])
@pytest.mark.parametrize("epsilon", [0.2, 1.5])
def test_exact_laws_lie_below(shape, mean, epsilon):
    """Randomised response, of which the best of K answers, 0, 1 or none, is published: all probabilities are known."""
    run = pa.compose([(pa.PureDP(epsilon), 1)])
    selection = pa.RepeatedSelection(run, mean, shape)
    p = masses(selection)
    k = np.arange(p.size)
    laws = []
    for best in (1.0 / (1.0 + math.exp(epsilon)), 1.0 / (1.0 + math.exp(-epsilon))):
        worst = float(p[1:] @ (1.0 - best) ** k[1:])
        laws.append([worst, float(p[1:] @ (1.0 - (1.0 - best) ** k[1:])), float(p[0])])
    whole = pa.compose([(selection, 1)])
    for a, b in (laws, laws[::-1]):
        seen = [(x, y) for x, y in zip(a, b, strict=True) if x > 1e-300]
        for alpha in (1.1, 2.0, 7.0, 50.0):
            terms = [alpha * math.log(x) + (1.0 - alpha) * math.log(y) for x, y in seen]
            truth = np.logaddexp.reduce(terms) / (alpha - 1.0)
            assert truth <= whole.rdp([alpha])[0] * (1 + 1e-9) + 1e-9
        for at in (0.1, 0.5, 1.0, 2.0):
            assert (
                sum(max(x - math.exp(at) * y, 0.0) for x, y in zip(a, b, strict=True)) <= whole.delta(at).upper + 1e-9
            )
        assert max(math.log(x / y) for x, y in seen) <= whole.epsilon(0.0).upper + 1e-9


@pytest.mark.parametrize(("shape", "gamma", "alpha"), [(0.0, 0.1, 2.0), (1.0, 0.01, 10.0), (5.0, 0.1, 100.0)])
def test_the_formula_with_gaussian_noise(shape, gamma, alpha):
    """eps(a) = a rho, so the minimum over b of (b - 1) rho + log(1 / gamma) / b is known."""
    rho = 0.3
    mean = 1 / gamma if shape == 1 else shape * (1 - gamma) / (gamma * (1 - gamma**shape)) if shape else 0.0
    mean = mean or (1 / gamma - 1) / math.log(1 / gamma)
    selection = pa.RepeatedSelection(pa.compose([(pa.Gaussian(1 / math.sqrt(2 * rho)), 1)]), mean, shape)
    assert selection.gamma == pytest.approx(gamma, rel=1e-9)
    b = max(math.sqrt(math.log(1 / gamma) / rho), 1.0)
    constant = (1 + shape) * ((b - 1) * rho + math.log(1 / gamma) / b)
    later = max(math.sqrt(math.log(mean) / rho), alpha - 1)  # the best order that is not smaller
    truth = (1 + later) * rho + constant + math.log(mean) / later
    assert truth <= pa.compose([(selection, 1)]).rdp([alpha])[0] <= truth * (1 + 1e-7)


def test_pure_dp_is_2_plus_shape_times():
    run = pa.compose([(pa.PureDP(1.0), 1)])
    for shape in (0.0, 1.0, 2.5):
        whole = pa.compose([(pa.RepeatedSelection(run, 1e6, shape), 1)])
        assert 2.0 + shape <= whole.epsilon(0.0).upper <= (2.0 + shape) * (1 + 1e-9)
        assert whole.epsilon(1e-12).upper <= (2.0 + shape) * (1 + 1e-9)


@pytest.mark.parametrize("mean", [2.0, 30.0])
def test_poisson_numbers_between_the_orders_that_are_kept(mean):
    run = pa.compose([(pa.SampledGaussian(1.0, 0.01), 200)])
    selection = pa.RepeatedSelection(run, mean, math.inf)
    whole = pa.compose([(selection, 1)])
    for order in selection.corners()[0] * np.array([1.3, 2.71, 14.9]) + 1.0:
        truth = run.rdp(order) + mean * run.delta(math.log1p(1 / (order - 1))).upper + math.log(mean) / (order - 1)
        assert truth <= whole.rdp(order) <= truth * (1 + 2e-5)


@pytest.mark.parametrize(("epsilon", "mean"), [(1.0, 1.0), (0.1, 2.0), (0.001, 100.0), (2.0, 1000.0), (1.0, 1e10)])
def test_poisson_numbers_where_the_delta_of_one_run_reaches_0(epsilon, mean):
    """Of the order whose epsilon' is the largest loss, nothing is lost to delta', however large the mean."""
    alpha = 1.0 + 1.0 / math.expm1(epsilon)
    run = pa.compose([(pa.Laplace(1.0 / epsilon), 1)])
    exact = run.rdp(alpha) + math.log(mean) * math.expm1(epsilon)
    found = pa.compose([(pa.RepeatedSelection(run, mean, math.inf), 1)]).rdp(alpha)
    assert exact * (1.0 - 1e-12) <= found <= exact * (1.0 + 1e-3)


def published(p, order, selection):
    """The law of what is published if outcomes are better in this order, from the generating function of K."""
    below = np.minimum(np.concatenate([[0.0], np.cumsum(p[order])]), 1.0)
    s, g, m = selection.shape, selection.gamma, selection.mean
    if math.isinf(s):
        chance = np.exp(m * (below - 1.0))
    elif s == 0.0:
        chance = np.log1p(-(1.0 - g) * below) / math.log(g)
    else:
        chance = np.expm1(-s * np.log1p(-(1.0 - g) * below)) / math.expm1(-s * math.log(g))
    law = np.empty(p.size + 1)
    law[order], law[-1] = np.diff(chance), chance[0]
    return law


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@pytest.mark.parametrize("shape", SHAPES)
def test_the_curve_lies_above_exact_laws_and_close_to_the_worst(shape):
    """Random pairs and orders, alone and beside another step; the worst comes within a tenth of the bound."""
    rng, closest = np.random.default_rng(3), 0.0
    other = np.array([0.6, 0.3, 0.1]), np.array([0.5, 0.3, 0.2])
    for trial in range(40 if shape < math.inf else 12):  # others take a tenth of the time
        n = int(rng.integers(2, 5))
        p = rng.dirichlet(np.ones(n))
        q = p * np.exp(rng.normal(size=n) * rng.uniform(0.02, 1.5))
        q /= q.sum()
        run = pa.compose([(pa.DiscretePair(p, q), 1)])
        selection = pa.RepeatedSelection(run, float(np.exp(rng.uniform(0.05, 4.0))), shape)
        alone = pa.compose([(selection, 1)])
        both = pa.compose([(selection, 1), (pa.DiscretePair(*other), 1)])
        for order in (np.argsort(p / q), np.argsort(q / p)):
            a, b = (published(law, order, selection) for law in (p, q))
            for at in (0.01, 1.5):
                for direction, pair in (("remove", (a, b)), ("add", (b, a))):
                    exact, bound = hockey_stick(*pair, at), alone.delta(at, direction).upper
                    assert exact <= bound * (1 + 1e-9) + 1e-15
                    closest = max(closest, exact / bound if exact > 1e-12 else 0.0)
                    if trial > 4:
                        continue
                    beside = other if direction == "remove" else other[::-1]
                    exact = hockey_stick(*(np.outer(x, y).ravel() for x, y in zip(pair, beside, strict=True)), at)
                    assert exact <= both.delta(at, direction).upper * (1 + 1e-9) + 1e-15
    assert closest > (0.85 if shape < math.inf else 0.5)


def test_the_curve_is_that_of_the_runs_moved_and_scaled():
    run, noise = pa.compose([(pa.SampledGaussian(2.0, 0.01), 500)]), (pa.Laplace(10.0), 3)
    one, two = pa.RepeatedSelection(run, 5.0), pa.RepeatedSelection(run, 4.0, 0.0)
    (log_factor, shift), (more, further) = one.profile(), two.profile()
    found = pa.compose([(one, 2), (two, 1), noise]).epsilon(1e-6)
    runs = pa.compose([(run, 3), noise]).epsilon(1e-6 * math.exp(-2 * log_factor - more))
    assert found.upper == pytest.approx(runs.upper + 2 * shift + further, rel=1e-5)
    assert found.method == runs.method
    # a black box beside them keeps its Renyi bound, composed with the runs
    box = pa.ZeroConcentratedDP(0.01)
    found = pa.compose([(one, 1), (box, 2)]).epsilon(1e-6)
    runs = pa.compose([(run, 1), (box, 2)]).epsilon(1e-6 * math.exp(-log_factor))
    assert found.upper == pytest.approx(runs.upper + shift, rel=1e-5)
    at = 2.0 * shift
    runs = run.delta(at - shift)
    assert pa.compose([(one, 1)]).delta(at).upper == pytest.approx(runs.upper * 5.0, rel=1e-4)
    assert 1.0 <= math.exp(log_factor) / 5.0 <= 1.0 + 1e-9 and 1.0 <= math.exp(more) / 4.0 <= 1.0 + 1e-9
    # nothing is published with chance exp(-mean)
    poisson = pa.RepeatedSelection(run, 1.5, math.inf).profile()
    assert math.exp(poisson[0]) >= 1.5 + math.exp(-1.5) and poisson[1] >= 1.5 * run.delta(0.0).lower
    # the root M: at the ratio of the weights the curve meets the line
    ratio, odds = math.exp(shift / 2.0), one.gamma / (1.0 - one.gamma)
    assert run.delta(math.log(ratio)).upper == pytest.approx(odds * (ratio - 1.0), rel=1e-4)


def test_a_run_whose_losses_may_be_infinite():
    """No Renyi divergence is finite; the curve is that of one run."""
    for mechanism in (pa.ApproximateDP(1.0, 1e-9), pa.RandomAllocation(2.0, 50)):
        run = pa.compose([(mechanism, 1)])
        found = pa.compose([(pa.RepeatedSelection(run, 10.0), 1)])
        assert run.epsilon(1e-6).upper < found.epsilon(1e-6).upper < 3.0 * run.epsilon(1e-7).upper
        assert found.rdp(2.0) == math.inf
        assert found.epsilon(1e-9).upper == math.inf or mechanism.participations


def test_it_composes_with_other_steps():
    run = pa.compose([(pa.SampledGaussian(2.0, 0.01), 500)])
    tuned = pa.RepeatedSelection(run, 5.0)
    alone = pa.compose([(tuned, 1)]).epsilon(1e-6)
    both = pa.compose([(tuned, 1), (pa.Laplace(10.0), 3)]).epsilon(1e-6)
    assert run.epsilon(1e-6).upper < alone.upper < both.upper
    assert alone.status == pa.Status.RENYI_ONLY


def test_wrong_arguments():
    run = pa.compose([(pa.PureDP(1.0), 1)])
    for mean, shape in ((0.5, 1.0), (np.nan, 1.0), (1e13, 1.0), (2.0, -1.0), (2.0, np.nan), (2.0, 1e7)):
        with pytest.raises(ValueError):
            pa.RepeatedSelection(run, mean, shape)
    with pytest.raises(ValueError, match=r"-0\.999 is too close to -1 for a mean of 3"):
        pa.RepeatedSelection(run, 3, -0.999)
    assert 0.0 < pa.RepeatedSelection(run, 1.5, -0.999).gamma < 1e-100


def test_a_list_of_steps_is_no_run():
    with pytest.raises(TypeError, match="what compose returns"):
        pa.RepeatedSelection([(pa.Gaussian(5.0), 1)], 10.0)


def test_the_relation_is_that_of_the_run():
    tuned = pa.RepeatedSelection(pa.compose([(pa.Gaussian(5.0), 1), (pa.SampledGaussian(5.0, 0.1), 3)]), 2.0)
    assert tuned.neighbours == "added or removed"
    assert pa.RepeatedSelection(pa.compose([(pa.Gaussian(5.0), 1)]), 2.0).neighbours is None
    with pytest.warns(UserWarning, match="RepeatedSelection is about .* added or removed, FixedSizeBatch"):
        pa.compose([(tuned, 1), (pa.FixedSizeBatch(4.0, 1, 100), 1)])
