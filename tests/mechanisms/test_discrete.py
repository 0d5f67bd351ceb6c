"""Mechanisms with finitely many losses: published values, sums over all outcomes, infinite losses, mixtures."""

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.mechanisms import discrete
from pld_accountant.mechanisms.base import Mechanism, StepFamily
from pld_accountant.mechanisms.discrete import DiscreteSteps, on_lattice

VALUES = json.loads((Path(__file__).parent.parent / "data" / "mechanism_values.json").read_text())


def mechanism(kind, params):
    """A mechanism from the names that the published tests use."""
    rate = {"sample_rate": params.get("sample_rate", 1.0)}
    if kind == "Laplace":
        return pa.Laplace(params["scale"] / params.get("sensitivity", 1.0))
    if kind == "DiscreteLaplace":
        return pa.DiscreteLaplace(1.0 / params["a"], params["sensitivity"], **rate)
    if kind == "DiscreteGaussian":
        return pa.DiscreteGaussian(params["sigma"], params["sensitivity"], params.get("truncation_bound"), **rate)
    if kind == "RandomizedResponse":
        neighbours = params["neighbours"].removesuffix("-one").removeprefix("replace-")
        return pa.RandomizedResponse(params["noise_parameter"], params["buckets"], neighbours, **rate)
    return pa.ApproximateDP(params["epsilon"], params["delta"]) if params["delta"] else pa.PureDP(params["epsilon"])


def composed(kind, params):
    steps = params.get("steps", 1)
    if isinstance(steps, int):
        return pa.compose([(mechanism(kind, params), steps)])
    return pa.compose([(mechanism(kind, one), one.get("count", 1)) for one in steps])


@pytest.mark.parametrize("case", VALUES, ids=lambda case: f"{case['mechanism']} {case['quantity']} {case['source']}")
def test_published_values(case):
    """Exact values lie within the bounds; rounded ones within their tolerance of the bounds."""
    of, at, direction = composed(case["mechanism"], case["params"]), case["at"], case["params"].get("direction", "both")
    if case["quantity"] == "rdp":
        alpha = float(at["alpha"])
        if not 1.0 < alpha < math.inf:
            pytest.skip("orders between 1 and infinity only")
        found = float(of.rdp(alpha))
        low, high = found * (1 - 1e-9), found
    else:
        asked, given = (of.delta, "epsilon") if case["quantity"] == "delta" else (of.epsilon, "delta")
        bounds = asked(at[given], direction)
        low, high = bounds.lower, bounds.upper
        assert high - low <= 1e-5 * high + 1e-12, "tight"
    tolerance = case["tolerance"]
    off = tolerance.get("abs", 0.0) + tolerance.get("rel", 0.0) * abs(case["value"])
    if case["exact"]:
        off = 4e-16 * abs(case["value"]) + 1e-16  # the value is a double
    if case["relation"] == "at_most":
        assert low <= case["value"] + off
    elif case["relation"] == "at_least":
        assert high >= case["value"] - off or case["mechanism"] == "DiscreteGaussian"
    else:
        assert low - off <= case["value"] <= high + off


def brute_force(laws, epsilon, direction):
    """delta of a composition over all outcomes, in fractions of the doubles."""
    total = Fraction(0)
    with mpmath.workdps(40):
        factor = Fraction(str(mpmath.exp(epsilon)))
    for outcome in itertools.product(*(range(len(p)) for p, _ in laws)):
        p = math.prod(Fraction(law[0][i]) for law, i in zip(laws, outcome, strict=True))
        q = math.prod(Fraction(law[1][i]) for law, i in zip(laws, outcome, strict=True))
        if direction == "add":
            p, q = q, p
        total += max(p - factor * q, 0)
    return float(total)


PAIRS = {
    "plain": ([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]),
    "infinite both ways": ([0.125, 0.5, 0.375, 0.0], [0.0, 0.375, 0.5, 0.125]),
    "infinite one way": ([0.25, 0.75], [0.0, 1.0]),
    "nearly equal": ([0.5 + 2.0**-30, 0.5 - 2.0**-30], [0.5, 0.5]),
    "no lattice": ([0.5, 0.3125, 0.1875], [0.4375, 0.4375, 0.125]),
}


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
        assert found.upper - found.lower <= 1e-6 * exact + 1e-12


def test_epsilon_is_infinite_below_the_infinite_mass():
    two = pa.compose([(pa.ApproximateDP(0.5, 1e-4), 2)])
    lost = 1 - (1 - 1e-4) ** 2
    assert two.epsilon(0.999999 * lost).lower == math.inf
    assert two.epsilon(1.000001 * lost).upper < 1.0 + 1e-9
    assert two.epsilon(lost).upper == math.inf
    assert two.delta(1.0).lower == pytest.approx(lost, rel=1e-9)
    assert two.epsilon(0.0).upper == math.inf and np.all(two.rdp([2.0, 5.0]) == math.inf)
    assert two.rdp_epsilon(1e-3) == math.inf and two.mu().upper == math.inf
    one_way = pa.compose([(pa.DiscretePair(*PAIRS["infinite one way"]), 1)])
    assert one_way.epsilon(0.1, "remove").upper == math.inf
    assert one_way.epsilon(0.1, "add").upper < 1.0


@pytest.mark.parametrize("make", [
    lambda rate: pa.RandomizedResponse(0.3, 5, sample_rate=rate),
    lambda rate: pa.DiscreteLaplace(2.0, 3, sample_rate=rate),
    lambda rate: pa.DiscreteGaussian(1.5, 2, 6, sample_rate=rate),
    lambda rate: pa.PureDP(0.8, sample_rate=rate),
    lambda rate: pa.ApproximateDP(0.8, 1e-3, sample_rate=rate),
])  # fmt: skip
def test_sampling_is_a_mixture(make):
    """delta of the removal at log(1 + q (e^epsilon - 1)) is q times delta (Balle, Barthe and Gaboardi 2018)."""
    whole = pa.compose([(make(1.0), 1)])
    for rate in (0.9, 0.2, 1e-3, 1e-9):
        some = pa.compose([(make(rate), 1)])
        for epsilon in (1e-3, 0.4, 0.7):
            at = math.log1p(rate * math.expm1(epsilon))
            wanted, found = whole.delta(epsilon, "remove"), some.delta(at, "remove")
            assert found.lower <= rate * wanted.upper * (1 + 1e-11)
            assert found.upper >= rate * wanted.lower * (1 - 1e-11)
            assert found.upper - found.lower <= 1e-6 * found.upper + 1e-20
    assert pa.compose([(make(1.0), 3)]).delta(0.5) == pa.compose([(make(1), 3)]).delta(0.5)


def test_losses_keep_their_digits_where_both_laws_are_close():
    with mpmath.workdps(50):
        for p, q in ((1e-10, 1.0000001e-10), (0.3, 0.3 + 2.0**-50), (1e-300, 1e-5)):
            exact = mpmath.log(mpmath.mpf(p) / mpmath.mpf(q))
            (found,) = discrete._log_ratio(np.array([p]), np.array([q]))
            assert abs(found / exact - 1) < 1e-15
        for loss, rate in ((1e-9, 0.3), (-40.0, 1 - 1e-6), (2.0, 1e-7), (-1e-3, 0.5), (720.0, 1e-3), (-50.0, 0.999)):
            exact = mpmath.log(1 - mpmath.mpf(rate) + rate * mpmath.exp(loss))
            (found,) = discrete._sampled_loss(np.array([loss]), rate)
            assert abs(found / exact - 1) < 1e-14


def test_the_lattice_is_the_power_of_the_masses():
    """Binomial tails with fifty digits; a lattice that is off is refused."""
    steps, epsilon = 400, 0.05
    found = pa.compose([(pa.PureDP(epsilon), steps)]).delta(3.0)
    assert found.method == pa.Method.CONVOLUTION
    with mpmath.workdps(50):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        exact = mpmath.mpf(0)
        for k in range(230, steps + 1):
            loss = (2 * k - steps) * mpmath.mpf(epsilon)
            if loss > 3:
                exact += mpmath.binomial(steps, k) * p**k * (1 - p) ** (steps - k) * -mpmath.expm1(3 - loss)
        assert found.lower <= exact <= found.upper
        assert found.upper - found.lower < 1e-10 * found.upper
    law = pa.DiscretePair(*PAIRS["no lattice"]).law
    assert on_lattice(DiscreteSteps([law], "remove"), np.array([5])) is None


def test_an_error_of_the_lattice_would_be_found(monkeypatch):
    monkeypatch.setattr(discrete, "_trim", lambda masses: (masses[1:], 1))
    found = pa.compose([(pa.PureDP(0.5), 4)]).delta(0.1)
    p = 1 / (1 + math.exp(-0.5))
    exact = brute_force([([1 - p, p], [p, 1 - p])] * 4, 0.1, "remove")
    assert not found.lower <= exact <= found.upper


def test_everything_composes_with_everything():
    parts = [
        (pa.SampledGaussian(2.0, 0.01), 100), (pa.Laplace(30.0), 4), (pa.RandomizedResponse(0.9), 3),
        (pa.DiscreteGaussian(20.0, 1), 5), (pa.ApproximateDP(0.05, 1e-8), 2),
    ]  # fmt: skip
    whole = pa.compose(parts)
    found = whole.epsilon(1e-6)
    alone = [pa.compose([part]).epsilon(1e-6).lower for part in parts]
    assert max(alone) <= found.upper and found.lower <= sum(pa.compose([p]).epsilon(2e-7).upper for p in parts)
    assert found.upper - found.lower < 1e-3 * found.upper
    back = whole.delta(found.upper)
    assert back.lower <= 1e-6 * (1 + 1e-9)
    assert pa.compose(list(reversed(parts))).epsilon(1e-6) == found
    free = pa.compose([*parts, (pa.RandomizedResponse(1.0), 1000)])
    assert free.epsilon(1e-6) == found and free.steps == whole.steps


@pytest.mark.parametrize("one", [
    pa.PureDP(1.0), pa.ApproximateDP(1.0, 1e-5), pa.RandomizedResponse(0.5), pa.DiscreteLaplace(1.0),
    pa.DiscreteGaussian(3.0), pa.DiscretePair([0.5, 0.5], [0.25, 0.75]),
])  # fmt: skip
def test_mechanisms_keep_their_protocol(one):
    assert isinstance(one, Mechanism) and isinstance(type(one).steps([one], "add"), StepFamily)
    assert hash(one) == hash(type(one)(**{name: getattr(one, name) for name in one.__dataclass_fields__}))
    losses = one.law.loss
    assert np.all(np.diff(losses) > 0)
    family = type(one).steps([one], "remove")
    knots = np.linspace(losses[0] - 0.5, losses[-1] + 0.5, 7)
    p, u = family.masses(0, knots)
    assert p.sum() == pytest.approx(1.0, rel=1e-12) and np.all((u >= 0) & (u <= p))
    theta = np.array([1e-6, 0.5, 3.0, 40.0, 1e5])
    with mpmath.workdps(40):
        for t, k in zip(theta, family.log_moments(theta)[0], strict=True):
            pairs = zip(family._p[0].tolist(), family._loss[0].tolist(), strict=True)
            exact = mpmath.log(mpmath.fsum(mpmath.mpf(w) * mpmath.exp(mpmath.mpf(t) * s) for w, s in pairs))
            assert exact <= k + 1e-15 * (1 + t) or k >= exact * (1 - 1e-15)
            assert k <= exact * (1 + mpmath.mpf(10) ** -9) + 1e-13 * (1 + t)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: pa.PureDP(0.0), lambda: pa.PureDP(1e4), lambda: pa.ApproximateDP(-1.0, 0.1),
        lambda: pa.ApproximateDP(1.0, 1.0), lambda: pa.RandomizedResponse(0.0), lambda: pa.RandomizedResponse(1.1),
        lambda: pa.RandomizedResponse(0.5, 1), lambda: pa.RandomizedResponse(0.5, 2, "other"),
        lambda: pa.DiscreteLaplace(-1.0), lambda: pa.DiscreteLaplace(1.0, 0), lambda: pa.DiscreteLaplace(1e-3, 9),
        lambda: pa.DiscreteGaussian(math.nan), lambda: pa.DiscreteGaussian(1.0, 7, 3).law,
        lambda: pa.DiscreteGaussian(1e9).law, lambda: pa.DiscretePair([0.5, 0.6], [0.5, 0.5]),
        lambda: pa.DiscretePair([1.0], [0.5, 0.5]), lambda: pa.DiscretePair([-0.5, 1.5], [0.5, 0.5]),
        lambda: pa.PureDP(1.0, sample_rate=0.0), lambda: pa.compose([(object(), 1)]),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused(bad):
    with pytest.raises(ValueError, match=r"must"):
        bad()


def test_the_largest_loss_at_delta_zero():
    assert pa.compose([(pa.PureDP(1.0), 3), (pa.Laplace(2.0), 2)]).epsilon(0).upper == pytest.approx(4.0)
    assert pa.compose([(pa.SampledGaussian(2.0, 0.1), 3)]).epsilon(0.0).lower == math.inf
    bounded = pa.compose([(pa.SampledGaussian(2.0, 0.1), 3)]).epsilon(0.0, "add")
    assert bounded.lower <= -3 * math.log1p(-0.1) <= bounded.upper
    assert pa.compose([]).epsilon(0).upper == 0.0
