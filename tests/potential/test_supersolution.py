"""The certified inequalities at single points, an adversary's best play, and what happens when a rule is broken."""

import math

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

import pld_accountant as pa
from pld_accountant.potential import supersolution
from pld_accountant.potential.check import is_supersolution, potential_at, step_excess
from pld_accountant.potential.game import Run, build_game
from pld_accountant.potential.norms import NORMS
from pld_accountant.potential.series import ChargeTable

NAMES = ["noisy", "little noise", "two rates", "one step"]
DIRECTIONS = ("remove", "add")


def excesses(game, rng, points, factor=1.0):
    """`step_excess` at random places; charges are multiplied by a factor."""
    found = []
    for p, direction in zip(game.potentials, DIRECTIONS, strict=True):
        for law in game.run.laws(direction, game.theta):
            table = game.charges.of(law)
            knots = [cell.tau for cell in p.cells]
            for _ in range(points):
                place = int(rng.choice([NORMS.size - 1, 0, int(rng.integers(NORMS.size))]))
                charge = factor * float(table[place])
                tau = float(rng.uniform(charge, p.end))
                if rng.random() < 0.5:  # across a knot, or from it
                    tau = max(float(rng.choice(knots)) + charge * rng.choice([0.0, 1e-9, rng.random()]), charge)
                y = float(p.period * rng.uniform(-0.35, 0.35))
                found.append(step_excess(p, law, charge, float(NORMS[place]), min(tau, p.end), y))
    return np.array(found)


@pytest.mark.parametrize("name", NAMES)
def test_no_step_raises_the_potential(games, name):
    assert excesses(games(name), np.random.default_rng(4), 60).max() <= 0.0


@pytest.mark.parametrize("name", NAMES[:3])
def test_charges_that_are_too_small_by_three_per_cent_are_found(games, name):
    assert excesses(games(name), np.random.default_rng(4), 60, factor=0.97).max() > 0.0


@pytest.mark.parametrize("name", NAMES)
def test_the_potential_begins_above_the_payoff(games, name):
    for p in games(name).potentials:
        y = np.concatenate([np.linspace(-0.5, 0.5, 4001) * p.period, np.geomspace(1e-6, 1, 200)])
        start = potential_at(p, 0.0, y)
        assert np.all(start >= np.maximum(-np.expm1(-np.maximum(y, -700)), 0))
        assert start[y == 0] < 0.5, "it is a bound of the payoff, not of everything"


@pytest.mark.parametrize("repair", [True, False])
def test_the_certificate_repairs_any_construction(monkeypatch, repair):
    """The construction of E needs no proof: a bad one costs budget.  Without the certificate the bound is wrong."""
    monkeypatch.setattr(supersolution._Builder, "_extra", lambda self, c, width: np.zeros(c.size, np.complex128))
    if not repair:
        monkeypatch.setattr(supersolution._Builder, "_missing", lambda *args: 0.0)
    game = build_game(Run(1.0, (0.02,), ((2.0, 1e-5),), 5.0))
    assert is_supersolution(game, np.random.default_rng(5), 40) == repair
    if repair:
        assert game.budget(2.0, 1e-5) < 215, "222.8 with the construction"


def adversary(law, charges, norms, tau):
    """delta, a function of epsilon, of the best adaptive play: at every loss the best of some norms, or to stop."""
    spread = 9.0 + 0.5 / law.noise_multiplier**2
    y = np.linspace(-spread, spread, 3001)
    u = np.linspace(-8.0, 8.0, 161)
    weight = np.exp(-0.5 * u**2)
    weight /= weight.sum()
    memory = {}

    def value(left):
        key = round(left, 9)
        if key not in memory:
            best = np.maximum(-np.expm1(-y), 0.0)
            for norm, charge in zip(norms, charges, strict=True):
                if charge <= left + 1e-12:
                    after = CubicSpline(y, value(max(left - charge, 0.0)))
                    slope = norm / law.noise_multiplier
                    loss = np.log1p(law.sample_rate * np.expm1(slope * u - 0.5 * slope**2))
                    tilt = weight * np.exp(loss) if law.direction == "remove" else weight
                    loss = loss if law.direction == "remove" else -loss
                    mean = sum(w * after(np.clip(y + s, y[0], y[-1])) for w, s in zip(tilt, loss, strict=True))
                    best = np.maximum(best, mean)
            memory[key] = best
        return memory[key]

    curve = CubicSpline(y, value(tau))
    return lambda epsilon: float(curve(-epsilon))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_best_of_all_decision_trees_stays_below(games, direction):
    """Three full-norm steps, or more steps of half the norm, in any order that the losses suggest."""
    game = games("little noise")
    p = game.potentials[DIRECTIONS.index(direction)]
    (law,) = game.run.laws(direction, game.theta)
    places = [NORMS.size - 1, int(np.flatnonzero(NORMS == 0.5)[0])]
    charges = game.charges.of(law)[places]
    budget = 3.0 + 1e-6
    played = adversary(law, charges, NORMS[places], budget)
    certified = {epsilon: math.exp(p.log_delta(epsilon, budget)) for epsilon in (0.3, 1.0)}
    for epsilon, bound in certified.items():
        assert played(epsilon) * (1 - 1e-6) <= bound
    if direction == "remove":
        steady = pa.compose([(pa.SampledGaussian(1.0, 0.02), 3)]).delta(1.0, direction="remove").upper
        assert played(1.0) >= steady * 0.99, "no choice is one of the plays"
        cheaper = adversary(law, charges * [0.6, 1.0], NORMS[places], budget)
        assert cheaper(1.0) > certified[1.0], "with a charge that is too small the adversary wins"


@pytest.mark.parametrize("name", NAMES[:3])
def test_the_budget_is_within_ten_per_cent_of_steady_play(games, name):
    game = games(name)
    epsilon, delta = game.run.targets[0]
    step = pa.SampledGaussian(game.run.noise_multiplier, game.run.sample_rates[0])
    whole = math.floor(game.budget(epsilon, delta))
    assert pa.compose([(step, whole)]).delta(epsilon).upper <= delta
    assert pa.compose([(step, math.ceil(1.1 * whole))]).delta(epsilon).lower > delta


@pytest.mark.parametrize("name", NAMES)
def test_one_budget_bounds_every_delta(games, name):
    game = games(name)
    epsilon, delta = game.run.targets[0]
    budget = game.budget(epsilon, delta)
    assert game.epsilon(delta, budget) <= epsilon * (1 + 1e-9)
    curve = [game.epsilon(d, budget) for d in (1e-2, 1e-4, 1e-6, 1e-9)]
    assert np.all(np.diff(curve) > 0)
    step = pa.SampledGaussian(game.run.noise_multiplier, game.run.sample_rates[0])
    whole = pa.compose([(step, math.floor(budget))])
    for d, bound in zip((1e-2, 1e-4, 1e-6, 1e-9), curve, strict=True):
        assert whole.epsilon(d).upper <= bound
    assert game.epsilon(0.9, budget) == 0.0


def test_a_budget_outside_of_the_cells_is_refused(games):
    p = games("noisy").potentials[0]
    for tau in (-1e-9, p.end * 1.001, math.nan):
        with pytest.raises(ValueError, match="budget must be between"):
            p.log_delta(1.0, tau)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (Run(0.6, (0.5,), ((0.1, 1e-9),)), "no budget of even one full-norm step"),
        (Run(1.0, (0.01,), ((1.0, 1e-5), (1e-3, 1e-12)), 5.0), "no budget of even one full-norm step"),
    ],
)
def test_a_target_that_cannot_be_certified_is_refused(run, message):
    with pytest.raises(ValueError, match=message):
        build_game(run)


def test_a_second_rate_has_charges_of_its_own(games):
    game = games("two rates")
    fast, slow = game.charges.table
    assert np.all(slow < fast)
    alone = ChargeTable.make([law._replace(sample_rate=0.01) for law in game.run.laws("remove", game.theta)[:1]])
    np.testing.assert_allclose(slow, alone.table[0] * alone.unit / game.charges.unit, rtol=1e-12)
