"""Bounds by a small Gaussian mechanism beside the steps, against sums of two-point laws and against the lemma."""

import math

import mpmath
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import plancherel, schedule, smoothed, solver
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.engine.smoothed import Smoothed
from pld_accountant.engine.tilting import Limits
from pld_accountant.notions import gdp
from pld_accountant.tables.makers import TableMakers

STEP = pa.PureDP(0.25)
METHOD = Smoothed(1e-6, limits=Limits(tilts=4, frequencies=1 << 18, least_expectation=1e-5, work=3e8))


def exact_delta(loss, steps, epsilon):
    """delta of so many steps of pure DP at that loss."""
    with mpmath.workdps(40):
        loss, epsilon = mpmath.mpf(loss), mpmath.mpf(epsilon)
        p = 1 / (1 + mpmath.exp(-loss))
        total = mpmath.mpf(0)
        for k in range(steps + 1):
            sum_of_losses = (2 * k - steps) * loss
            if sum_of_losses > epsilon:
                mass = mpmath.binomial(steps, k) * p**k * (1 - p) ** (steps - k)
                total += mass * (1 - mpmath.exp(epsilon - sum_of_losses))
        return total


def ask(question, mechanism=STEP, steps=200, method=METHOD):
    makers = TableMakers(mechanism.steps([mechanism], "remove"))
    return solver.bounds(WholeCounts(np.array([[steps]])), makers, [question], methods=(method,))[0][0]


@pytest.mark.parametrize("epsilon", [0.0, 3.3, 7.5, 12.9, 20.1])
def test_deltas_lie_between_the_bounds(epsilon):
    """At 7.5 an atom lies exactly at epsilon."""
    found, truth = ask(DeltaAt(epsilon)), exact_delta(0.25, 200, epsilon)
    assert found.lower <= truth <= found.upper
    assert found.upper - found.lower <= 1e-4 * found.upper


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-12])
def test_epsilons_lie_between_the_bounds(delta):
    found = ask(EpsilonAt(delta))
    assert exact_delta(0.25, 200, found.lower) >= delta >= exact_delta(0.25, 200, found.upper)
    assert 0.0 < found.upper - found.lower <= 1e-5 * found.upper
    assert found.lower <= found.estimate <= found.upper


def test_the_lower_bound_needs_its_share(monkeypatch):
    """With a thousandth of what is subtracted, a lower bound exceeds the truth."""
    makers = TableMakers(STEP.steps([STEP], "remove"))
    one = smoothed._Curves(makers, math.inf, np.array([[200]]), DeltaAt(7.5), METHOD.limits)
    truth, share = float(mpmath.log(exact_delta(0.25, 200, 7.5))), smoothed._share

    def lower():
        return one.bounds(np.array([6]), np.array([np.nan]))[0][0]

    assert lower() <= truth
    monkeypatch.setattr(smoothed, "_share", lambda level: 1e-3 * share(level))
    assert lower() > truth


def test_the_ratio_of_two_small_gaussians_is_largest_at_0():
    """H_s / H_2s falls with epsilon, and at 0 it is r."""
    for level in (1, 3, 6, 10):
        s = float(smoothed._MU[level])
        y = s * np.linspace(0.0, 8.0, 400)
        ratio = gdp.delta(y, s) / gdp.delta(y, 2.0 * s)
        assert np.all(np.diff(ratio) <= 1e-9)
        r = float(ratio[0])
        assert math.isclose(smoothed._share(np.array([level]))[0], r / (1.0 - r), rel_tol=1e-9)


def test_steps_without_atoms_are_served_too():
    step = pa.SampledGaussian(1.0, 0.01)
    found, exact = ask(EpsilonAt(1e-5), step, 300), pa.compose([(step, 300)]).epsilon(1e-5, "remove")
    assert found.lower <= exact.lower and exact.upper <= found.upper and found.upper - found.lower < 1e-4


def test_few_frequencies_leave_wide_bounds_that_hold():
    """A mu whose band is too wide is not tried: the bounds of a larger mu stay."""
    few = Smoothed(1e-6, limits=Limits(tilts=4, frequencies=1 << 10, least_expectation=1e-5))
    found, closer = ask(DeltaAt(7.6), method=few), ask(DeltaAt(7.6))
    assert found.lower <= closer.lower and closer.upper <= found.upper
    assert found.upper - found.lower > 10.0 * (closer.upper - closer.lower)


def test_the_estimate_is_closer_than_the_bounds():
    """Many losses of hundreds of steps have a nearly smooth density: the excess is a third of the width."""
    step = pa.PoissonSampled(pa.DiscreteGaussian(3.0), 0.1)
    few = Smoothed(1e-6, limits=Limits(tilts=4, frequencies=1 << 13, least_expectation=1e-5))
    wide, truth = ask(DeltaAt(4.0), step, 500, few), ask(DeltaAt(4.0), step, 500).estimate
    width = wide.upper - wide.lower
    assert width > 1e-5 * wide.upper
    assert abs(wide.estimate - truth) < 0.01 * width


@pytest.mark.parametrize(
    ("step", "steps", "question", "tries"),
    [
        (pa.PoissonSampled(pa.DiscreteGaussian(3.12), 8.3e-4), 238, EpsilonAt(2.7e-13), 1),
        (pa.PoissonSampled(pa.DiscreteGaussian(3.12), 8.3e-4), 238, DeltaAt(0.0278), 1),
        (pa.PoissonSampled(pa.Laplace(8.7), 0.0052), 57, EpsilonAt(1.3e-13), 1),
        # an edge near the answer: the second try shows that no mu will do
        (pa.PoissonSampled(pa.Laplace(0.67), 0.092), 8, EpsilonAt(1e-14), 2),
    ],
)
def test_a_hint_tells_mu(step, steps, question, tries, monkeypatch):
    """The methods before leave an estimate of the answer, from which the first mu follows."""
    asked, of_level = [], smoothed._Curves.bounds

    def bounds(self, level, hint):
        asked.append(level)
        return of_level(self, level, hint)

    monkeypatch.setattr(smoothed._Curves, "bounds", bounds)
    place = next(i for i, method in enumerate(schedule.MIXED) if isinstance(method, Smoothed))
    makers = TableMakers(step.steps([step], "remove"))
    found = solver.bounds(WholeCounts(np.array([[steps]])), makers, [question], methods=schedule.MIXED[: place + 1])[0]
    assert 1 <= len(asked) <= tries
    size = -math.log(found.upper[0]) if isinstance(question, DeltaAt) else 1.0
    assert tries > 1 or found.upper[0] - found.lower[0] <= 1e-6 * size * found.upper[0]


@pytest.mark.parametrize("refused", [1, 2, 3])
def test_a_lower_epsilon_is_proven_or_looked_for_farther_down(refused, monkeypatch):
    """It is proven if the lower bound of delta there exceeds delta."""
    asked = []
    log_delta = smoothed._Curves.log_delta

    def refusing(self, level, hint):
        asked.append(float(self.question.target[0]))
        return (np.array([-np.inf]), np.zeros(1)) if len(asked) <= refused else log_delta(self, level, hint)

    makers = TableMakers(STEP.steps([STEP], "remove"))
    one = smoothed._Curves(makers, math.inf, np.array([[200]]), EpsilonAt(1e-5), METHOD.limits)
    near, _ = one.bounds(np.array([8]), np.array([np.nan]))
    monkeypatch.setattr(smoothed._Curves, "log_delta", refusing)
    far, upper = one.bounds(np.array([8]), np.array([np.nan]))
    assert asked == sorted(asked, reverse=True) and len(asked) == min(refused + 1, 3)
    assert far == (asked[-1] if refused < 3 else 0.0) and far < near < upper


@pytest.mark.parametrize("question", [EpsilonAt(1e-5), DeltaAt(0.8)])
def test_an_answer_below_a_known_one_gets_a_rough_upper_bound_that_holds(question, monkeypatch):
    step = pa.PoissonSampled(pa.RandomizedResponse(0.3, 5), 0.01)
    counts = WholeCounts(np.array([[200]]))

    def found(known):
        makers = TableMakers(step.steps([step], "add"))
        return solver.bounds(counts, makers, [question], methods=(METHOD,), known=known)[0]

    close, asked = found(None), []
    monkeypatch.setattr(smoothed._Curves, "bounds", lambda *given: asked.append(given))
    rough = found([np.full(1, 1.01 * close.upper[0])])
    assert not asked
    assert close.lower[0] < rough.upper[0] <= 1.01 * close.upper[0]
    assert rough.upper[0] >= close.upper[0] * (1.0 - 1e-9) and rough.lower[0] == 0.0
    monkeypatch.undo()
    # not below: close bounds, as without anything known
    near = found([np.full(1, 0.99 * close.lower[0])])
    assert near.lower[0] == pytest.approx(close.lower[0], rel=1e-6)


@pytest.mark.parametrize("ask", ["epsilon", "delta"])
def test_questions_that_are_asked_together_share_their_transforms(ask, monkeypatch):
    """Each has a mu of its own, whose curve is solved beside those of the others."""
    made = []

    def counting(*given, **more):
        made.append(len(given[0]))
        return plancherel.solve(*given, **more)

    monkeypatch.setattr(smoothed, "solve", counting)
    run = pa.compose([(pa.Laplace(20.0), 300)])
    found = getattr(run, ask)(np.geomspace(1e-9, 1e-2, 40) if ask == "epsilon" else np.linspace(0.5, 5.0, 40))
    assert sum(made) >= 80 and len(made) <= 20
    assert np.all(found.method == pa.Method.TRANSFORM)
    assert np.all(found.upper <= found.lower * (1.0 + 2e-5))
