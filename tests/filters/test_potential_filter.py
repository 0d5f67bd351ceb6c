"""PotentialFilter and PotentialOdometer: bookkeeping against fractions, stretches, own epsilons, schedules, files."""

import math
from fractions import Fraction

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.files import store
from pld_accountant.filters.integer_budget import TOLERANCE
from pld_accountant.filters.potential import PotentialFilter
from pld_accountant.kernels.charge import BUDGET
from pld_accountant.potential import game
from pld_accountant.potential.game import Game
from pld_accountant.potential.norms import NORMS

STEP = {"noise_multiplier": 2.0, "sample_rate": 0.03, "max_grad_norm": 2.0}
KNOWN = {"alpha": 8.0, **STEP}


def make(people=4, epsilon=1.0, **more):
    return PotentialFilter(epsilon, 1e-5, num_examples=people, **{**KNOWN, **more})


def charge(keep, norm, rate=0.03, noise=2.0, clip=2.0):
    """The charge of one step in full-norm steps, exact, by the table."""
    if norm == 0:
        return Fraction(0)
    ratio = min(norm / clip, 1.0) * 2.0 / noise
    game = keep._game
    return Fraction(float(game.charges.table[game.charges.rates.index(rate), np.searchsorted(NORMS, ratio)]))


def exactly_spent(keep):
    """What each person has spent, in full-norm steps: `spent` rounds it up, by more or less than a unit."""
    return [Fraction(BUDGET - units, BUDGET) * Fraction(keep.budget) for units in keep.units_left.tolist()]


def test_a_million_random_sequences_stay_within_the_budget():
    rng = np.random.default_rng(7)
    people = 200_000
    keep = make(people)
    levels = NORMS[rng.integers(NORMS.size, size=12)] * 2.0
    charges = np.array([float(charge(keep, norm)) for norm in levels.tolist()])
    spent = np.zeros(people)
    for _ in range(40):
        which = rng.integers(levels.size, size=people)
        steps = int(rng.integers(1, 120))
        booked = keep.admit(levels[which], steps=steps)
        assert np.all((booked >= 0) & (booked <= steps))
        spent += booked * charges[which]
    assert spent.max() <= keep.budget * (1 + TOLERANCE + 1e-12)
    assert np.mean(spent > 0.9 * keep.budget) > 0.5
    assert np.all(keep.spent() >= np.minimum(spent, keep.budget) * (1 - 1e-14))


def test_a_sequence_against_fractions():
    rng = np.random.default_rng(8)
    keep, spent = make(1), Fraction(0)
    budget = Fraction(keep.budget)
    for _ in range(600):
        norm = float(rng.choice([0.0, 2.0, 9.0, rng.uniform(0, 2), keep.headroom()[0]]))
        cost = charge(keep, norm)
        admitted = bool(keep.admit([norm])[0])
        smallest = Fraction(float(keep._game.charges.table.min()))
        if admitted:
            spent += cost
        else:
            assert spent + cost > budget * (1 - Fraction(1, 10**9)) or budget - spent < smallest
        assert spent <= budget * (1 + Fraction(TOLERANCE))
        assert keep.spent()[0] >= min(spent, budget)
        assert keep.remaining[0] <= max(budget - spent, 0)
    assert not keep.active[0]


@pytest.mark.parametrize("kind", ["potential", "renyi", "renyi orders", "gaussian", "zcdp", "pure"])
def test_a_stretch_is_as_many_calls(kind, makers):
    name = {"renyi": "sampled", "renyi orders": "orders"}.get(kind, kind)
    rng = np.random.default_rng(9)
    at_once, one_by_one = makers[name](), makers[name]()
    scale = 0.05 if kind == "pure" else 1.0
    for _ in range(60):
        norms, steps = scale * rng.uniform(0, 2.5, 5), int(rng.integers(1, 400))
        counts = sum(one_by_one.admit(norms).astype(int) for _ in range(steps))
        np.testing.assert_array_equal(at_once.admit(norms, steps=steps), counts)
        np.testing.assert_array_equal(at_once.units_left, one_by_one.units_left)
    assert np.all(counts < steps), "everybody was refused in the end"


def test_a_stretch_halts_one_budget_for_all():
    keep = make(individual=False)
    whole = int(keep.admit(2.0, steps=10**6)[0])
    assert whole == math.floor(keep.budget) and keep.halted
    assert not keep.admit(0.1).any()
    with pytest.raises(ValueError, match="steps must be"):
        keep.admit(2.0, steps=0)


def test_own_epsilons():
    epsilons = [1.0, 0.5, 0.75, 1.0]
    keep = make(epsilon=epsilons)
    counts = keep.admit(np.full(4, 2.0), steps=10**4)
    for epsilon, count in zip(epsilons, counts.tolist(), strict=True):
        alone = make(1, epsilon=epsilon)
        # the potentials are built for other targets, so their budgets differ a little
        assert count == pytest.approx(math.floor(alone.budget), abs=1 + 0.01 * alone.budget)
        assert pa.compose([(pa.SampledGaussian(2.0, 0.03), count)]).epsilon(1e-5).upper <= epsilon
    np.testing.assert_array_less(keep.epsilon(1e-5), np.array(epsilons) * (1 + 1e-9))
    np.testing.assert_allclose(keep.epsilon(1e-5), epsilons, rtol=1e-6)
    assert "own smaller epsilon" in keep.guarantee.sentence
    assert "epsilon=[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, ...]" in repr(make(1000, epsilon=[1.0] * 1000))
    with pytest.raises(ValueError, match=r"shape|num_examples"):
        make(3, epsilon=epsilons)
    with pytest.raises(ValueError, match="budget for each person"):
        make(epsilon=epsilons, individual=False)


def test_every_delta_from_one_budget():
    keep = make()
    deltas = [1e-2, 1e-3, 1e-5, 1e-7]
    told = [keep.epsilon(delta) for delta in deltas]
    whole = pa.compose([(pa.SampledGaussian(2.0, 0.03), math.floor(keep.budget))])
    for delta, epsilon in zip(deltas, told, strict=True):
        assert whole.epsilon(delta).upper <= epsilon <= 1.2 * whole.epsilon(delta).upper + 0.02
    assert told[2] == pytest.approx(1.0, rel=1e-6) and told[2] <= 1.0 + 1e-9
    assert keep.budget_of(1.0, 1e-5) == keep.budget
    assert keep.budget_of(0.5, 1e-5) < keep.budget
    assert keep.budget_of(1e-3, 1e-300) == 0.0


def test_more_noise_is_a_smaller_norm():
    keep = make(2)
    keep.admit([2.0, 1.0], noise_multiplier=4.0)
    twice = make(2)
    twice.admit([1.0, 0.5])
    np.testing.assert_allclose(keep.spent(), twice.spent(), rtol=1e-9)
    other = make(2)
    other.admit([6.0, 3.0], max_grad_norm=6.0)
    third = make(2)
    third.admit([2.0, 1.0])
    np.testing.assert_allclose(other.spent(), third.spent(), rtol=1e-9)
    with pytest.raises(ValueError, match="noise_multiplier must be at least the filter's"):
        keep.admit([1.0, 1.0], noise_multiplier=1.9)


def test_a_schedule_of_rates():
    keep = make(2, sample_rate=[0.01, 0.03])
    assert keep.sample_rate == 0.01
    keep.admit([2.0, 0.0])
    cheap = keep.spent()[0]
    keep.admit([0.0, 2.0], sample_rate=0.03)
    assert keep.spent()[1] == pytest.approx(1.0) and cheap < 0.2
    before = keep.spent()
    keep.admit([2.0, 0.0], sample_rate=0.02)
    assert keep.spent()[0] - before[0] == pytest.approx(1.0), "as the next larger rate"
    with pytest.raises(ValueError, match="sample_rate must be at most the filter's largest"):
        keep.admit([1.0, 1.0], sample_rate=0.04)
    steps = [(pa.SampledGaussian(2.0, 0.03), 150)]
    slow = make(1, sample_rate=[0.03, 0.01])
    assert slow.admit([2.0], steps=150)[0] == 150
    count = int(slow.admit([2.0], steps=10**6, sample_rate=0.01)[0])
    assert pa.compose([*steps, (pa.SampledGaussian(2.0, 0.01), count)]).epsilon(1e-5).upper <= 1.0
    assert pa.compose([*steps, (pa.SampledGaussian(2.0, 0.01), int(1.15 * count))]).epsilon(1e-5).lower > 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sample_rate": 1.0}, "GaussianFilter is exact"),
        ({"sample_rate": []}, "sample_rate must be"),
        ({"sample_rate": 0.0}, "sample_rate"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": [1.0, -1.0, 1.0, 1.0]}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"alpha": 1.0}, "alpha"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"max_grad_norm": math.inf}, "max_grad_norm"),
        ({"epsilon": 1e-4}, "no budget of even one full-norm step"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


def test_a_file_of_another_release_keeps_what_was_spent(tmp_path, monkeypatch):
    """The budget of a new release may differ: what was spent counts in full-norm steps."""
    keep = make()
    keep.admit([2.0, 1.0, 0.5, 0.0], steps=100)
    spent = exactly_spent(keep)
    keep.save(tmp_path / "state")
    game = type(keep._game)
    own = game.budget
    monkeypatch.setattr(game, "budget", lambda self, *target: 0.9 * own(self, *target))
    later = PotentialFilter.load(tmp_path / "state")
    assert later.budget == pytest.approx(0.9 * keep.budget)
    assert all(now >= before for now, before in zip(exactly_spent(later), spent, strict=True))
    np.testing.assert_allclose(later.spent(), keep.spent(), rtol=1e-12)


def test_an_order_that_was_chosen_is_saved(tmp_path):
    keep = PotentialFilter(1.0, 1e-5, num_examples=2, **STEP)
    keep.admit([2.0, 0.3])
    keep.save(tmp_path / "state")
    later = PotentialFilter.load(tmp_path / "state")
    assert later.alpha == keep.alpha and later.parameters == keep.parameters
    np.testing.assert_array_equal(later.units_left, keep.units_left)
    with pytest.raises(store.StoreError, match="delta"):
        PotentialFilter.load(tmp_path / "state", delta=1e-6)


# The odometer


def odometer(people=3, **more):
    arguments = {"num_examples": people, **KNOWN, **more}
    return pa.PotentialOdometer([0.5, 0.75, 1.0], 3e-5, **arguments)


def test_levels_are_reached_in_order():
    meter = odometer()
    told = [meter.epsilon()]
    for _ in range(60):
        meter.record([2.0, 1.0, 0.0], steps=10)
        told.append(meter.epsilon())
    told = np.array(told)
    assert np.all(told[1:] >= told[:-1])
    assert told[:, 0].tolist()[-1] == math.inf and told[:, 2].max() == 0.0
    assert sorted(set(told[:, 0])) == [0.0, 0.5, 0.75, 1.0, math.inf]
    for level in (0.5, 0.75, 1.0):
        steps = 10 * int(np.flatnonzero(told[:, 0] == level)[-1])
        assert steps <= make(1, epsilon=level).budget, "each level is a filter at a third of delta"
        whole = pa.compose([(pa.SampledGaussian(2.0, 0.03), steps)]).epsilon(1e-5)
        assert 0.8 * level < whole.upper <= level


def test_a_step_that_costs_nothing_is_not_beyond_a_spent_budget():
    meter = odometer(2)
    meter.record([1 / 64, 0.0], steps=int(odometer(2)._filter.admit([1 / 64, 0.0], steps=10**7)[0]))
    assert not meter._filter.admit([0.0, 0.0])[0]  # not one unit is left
    meter.record([0.0, 0.0])
    assert meter.epsilon().tolist() == [1.0, 0.0]


def test_nobody_returns_from_beyond(tmp_path):
    meter = odometer()
    meter.record([2.0, 2.0, 0.0], steps=10**6)
    meter.record([0.0, 0.0, 0.0])
    assert meter.epsilon().tolist() == [math.inf, math.inf, 0.0]
    meter.save(tmp_path / "state")
    later = pa.PotentialOdometer.load(tmp_path / "state")
    assert later.epsilon().tolist() == [math.inf, math.inf, 0.0]
    assert later.parameters == meter.parameters
    assert "at this moment" in later.guarantee.sentence and later.guarantee.proven_adaptive


def test_a_stop_at_a_good_moment_stays_within_delta():
    """Full-norm steps that stop at the first moment at which the loss exceeds the level shown then.

    The mass of P less exp(level) Q of these stops must stay below delta.
    """
    meter = odometer(1)
    law = pa.SampledGaussian(2.0, 0.03)
    cell, half = 1e-3, 4096
    y = cell * (np.arange(2 * half) - half)
    moments, shown = [], []
    for _ in range(40):
        meter.record([2.0], steps=5)
        moments.append(5)
        shown.append(float(meter.epsilon()[0]))
    lost = five_steps(law, y, cell)
    mass = np.zeros(y.size)
    mass[half] = 1.0
    excess = 0.0
    for level in shown:
        if level == math.inf:
            break
        mass = np.clip(np.fft.irfft(np.fft.rfft(np.roll(mass, -half)) * lost, y.size), 0, None)
        mass = np.roll(mass, half)
        stop = y > level
        excess += float((mass * -np.expm1(np.minimum(level - y, 0)))[stop].sum())
        mass[stop] = 0.0
    assert 0.2e-5 < excess <= 3e-5


def five_steps(law, y, cell):
    """The transform of five steps' loss under P, on a grid, rounded down to it."""
    from scipy.special import ndtr

    sigma, q = law.noise_multiplier, law.sample_rate
    with np.errstate(divide="ignore", invalid="ignore"):
        x = sigma**2 * np.log((np.exp(np.append(y, y[-1] + cell)) - (1 - q)) / q) + 0.5
    x = np.where(np.isnan(x), -np.inf, x)
    below = (1 - q) * ndtr(x / sigma) + q * ndtr((x - 1) / sigma)
    return np.fft.rfft(np.roll(np.diff(below), -(y.size // 2))) ** 5


@pytest.mark.parametrize("levels", [[], [1.0, 0.5], [0.5, 0.5], [-1.0], [math.nan], [[1.0]]])
def test_bad_levels_are_refused(levels):
    with pytest.raises(ValueError, match="levels must"):
        pa.PotentialOdometer(levels, 1e-5, num_examples=1, **KNOWN)


def test_the_budget_has_a_limit_of_time(monkeypatch):
    monkeypatch.setenv("PLD_ACCOUNTANT_CACHE", "")
    run = {"num_examples": 2, "noise_multiplier": 2.0, "sample_rate": 0.0123, "max_grad_norm": 1.0}
    with pytest.raises(ValueError, match="within 1e-06 seconds"):
        pa.PotentialFilter(1.0, 1e-5, seconds=1e-6, **run)


def test_epsilons_of_another_number_of_people_are_refused_before_the_work(monkeypatch):
    monkeypatch.setattr("pld_accountant.filters.potential.kept_game", None)
    run = {"num_examples": 3, "noise_multiplier": 2.0, "sample_rate": 0.0123, "max_grad_norm": 1.0}
    with pytest.raises(ValueError, match="one number or 3"):
        pa.PotentialFilter([1.0, 2.0], 1e-5, **run)


@pytest.mark.parametrize("alpha", [1e3, 1e6, 1e9, 1e300])
def test_an_order_that_is_too_large_is_refused_before_anything_is_built(alpha, monkeypatch):
    monkeypatch.setattr(game, "build_potential", None)
    run = {"num_examples": 2, "noise_multiplier": 2.0, "sample_rate": 0.05, "max_grad_norm": 1.0}
    with pytest.raises(ValueError, match="too large for these steps"):
        pa.PotentialFilter(1.0, 1e-5, alpha=alpha, **run)


@pytest.mark.parametrize("factors", [(1.0, 1.0), (1.01, 0.99), (0.97, 1.02)])
def test_what_was_spent_stays_spent_under_other_certified_budgets(tmp_path, monkeypatch, factors):
    """Another release certifies other budgets: one factor for the largest epsilon, another for the smaller ones."""
    keep = make(3, np.array([1.0, 0.6, 0.8]))
    keep.admit([2.0, 1.5, 2.0], steps=3)
    before = exactly_spent_of(keep)
    keep.save(tmp_path / "state")
    own = Game.budget

    def other(game, epsilon, delta):
        return own(game, epsilon, delta) * (factors[0] if epsilon == 1.0 else factors[1])

    monkeypatch.setattr(Game, "budget", other)
    again = PotentialFilter.load(tmp_path / "state")
    assert [a >= b for a, b in zip(exactly_spent_of(again), before, strict=True)] == [True] * 3
    np.testing.assert_allclose(again.spent(), np.array(before, dtype=float), rtol=1e-9)


def test_an_odometer_beyond_its_budget_stays_beyond_if_budgets_shrink(tmp_path, monkeypatch):
    run = {"num_examples": 2, "noise_multiplier": 2.0, "sample_rate": 0.03, "max_grad_norm": 1.0, "alpha": 8.0}
    o = pa.PotentialOdometer([0.5, 1.0], 1e-5, **run)
    o.record([1.0, 0.9], steps=217)
    assert o.epsilon().tolist() == [1.0, 1.0]
    o.save(tmp_path / "state")
    own = Game.budget
    monkeypatch.setattr(Game, "budget", lambda *target: 0.9 * own(*target))
    again = pa.PotentialOdometer.load(tmp_path / "state")
    assert again.epsilon().tolist() == [np.inf, 1.0]


def exactly_spent_of(keep):
    """As `exactly_spent`, for people with budgets of their own."""
    used = (keep._full - keep.units_left).tolist()
    return [Fraction(units, BUDGET) * Fraction(keep.budget) for units in used]
