"""Odometers: what each person may be told, against a plain simulation, and the bound at the restarts."""

from fractions import Fraction

import numpy as np
import pytest

from pld_accountant.files import store
from pld_accountant.filters.odometers import GaussianOdometer, RenyiOdometer
from pld_accountant.notions import gdp, rdp


def plain(costs, increments):
    """(restarts, budgets begun) of one person, by the algorithm as it is printed, in exact fractions."""
    level, used, begun = 0, Fraction(0), False
    for cost in costs:
        if used + cost > increments[min(level, len(increments) - 1)]:
            level, used = level + 1, Fraction(0)
        used += cost
        begun = used > 0
    return level, level + begun


@pytest.mark.parametrize("increments", [0.0217, [0.0217, 0.053, 0.0213]])
@pytest.mark.parametrize("kind", ["renyi", "gaussian"])
def test_a_plain_simulation_agrees(kind, increments):
    rng = np.random.default_rng(6)
    people, steps, sigma, clip, alpha = 40, 60, 10.0, 2.0, 3
    if kind == "renyi":
        o = RenyiOdometer(increments, alpha, num_examples=people, noise_multiplier=sigma, max_grad_norm=clip)
        budgets = [Fraction(float(b)) for b in np.atleast_1d(increments)]
        factor = Fraction(alpha) / (2 * Fraction(sigma) ** 2)
    else:
        increments = np.sqrt(increments)
        o = GaussianOdometer(increments, num_examples=people, noise_multiplier=sigma, max_grad_norm=clip)
        budgets = [Fraction(float(b)) ** 2 for b in np.atleast_1d(increments)]
        factor = 1 / Fraction(sigma) ** 2
    norms = rng.uniform(0, 3, (steps, people)) * rng.integers(0, 2, (1, people))
    for row in norms:
        o.record(row)
    for person in range(people):
        costs = [min(Fraction(x) / 2, Fraction(1)) ** 2 * factor for x in norms[:, person].tolist()]
        level, begun = plain(costs, budgets)
        assert o.restarts[person] == level
        total = sum(budgets[min(j, len(budgets) - 1)] for j in range(begun))
        told = Fraction(o.spent()[person]) ** (2 if kind == "gaussian" else 1)
        assert total <= told <= total * (1 + Fraction(1, 10**13))
        assert told >= sum(costs), "what is told bounds what was spent"
    assert o.restarts.max() > 5


def test_epsilon_is_the_conversion_of_what_was_spent():
    arguments = {"num_examples": 2, "noise_multiplier": 5.0, "max_grad_norm": 1.0}
    o = RenyiOdometer(0.4, 8, **arguments)
    g = GaussianOdometer(0.4, **arguments)
    for _ in range(7):
        o.record([1.0, 0.0])
        g.record([1.0, 0.0])
    assert o.epsilon(1e-5).tolist() == [rdp.rdp_epsilon(o.spent()[0], 8, 1e-5), 0.0]
    assert g.epsilon(1e-5).tolist() == [gdp.epsilon(1e-5, g.spent()[0]), 0.0]
    assert o.spent()[1] == g.spent()[1] == 0


def test_sampled_steps_cost_their_divergence():
    from pld_accountant.mechanisms.renyi_divergence import rdp

    one = float(rdp(6, 1.0, 0.01))
    o = RenyiOdometer(3 * one, 6, num_examples=1, noise_multiplier=1.0, max_grad_norm=1.0, sample_rate=0.01)
    told = []
    for _ in range(7):
        o.record([1.0])
        told.append(o.spent()[0] / one)
    np.testing.assert_allclose(told, [3, 3, 3, 6, 6, 6, 9], rtol=1e-12)


def test_the_bound_holds_at_a_restart_of_an_adaptive_run():
    """Randomised response whose strength follows the outcomes: all sequences to the third restart."""
    steps, increment, alpha = 12, 0.02, 4
    paths = np.arange(2**steps)
    o = RenyiOdometer(increment, alpha, num_examples=paths.size, noise_multiplier=1.0)
    loss_p, loss_q = np.zeros(paths.size), np.zeros(paths.size)
    running = np.ones(paths.size, bool)
    lead = np.zeros(paths.size)
    for step in range(steps):
        epsilon = np.where(lead > 0, 0.085, np.where(lead < 0, 0.03, 0.06))
        o.record(epsilon)
        # The m-th restart happens before the step that did not fit is released.
        running &= o.restarts < 3
        epsilon = np.where(running, epsilon, 0.0)
        sign = np.where((paths >> step) & 1, 1.0, -1.0)
        loss_p -= np.logaddexp(0, -sign * epsilon)
        loss_q -= np.logaddexp(0, sign * epsilon)
        lead += sign
    assert 0.2 < np.mean(~running) < 1
    for p, q in ((loss_p, loss_q), (loss_q, loss_p)):
        divergence = np.logaddexp.reduce(alpha * p + (1 - alpha) * q) / (alpha - 1)
        assert 0.5 * 3 * increment < divergence <= 3 * increment


def test_bad_records_book_nothing(tmp_path):
    o = GaussianOdometer(0.5, num_examples=3, noise_multiplier=4.0, max_grad_norm=1.0)
    o.record([1.0, 0.5, 0.0])

    def state():
        o.save(tmp_path / "state")
        return store.load(tmp_path / "state", "accounting state", 1)[1]

    before = state()
    for norms in ([np.nan, 0, 0], [0, -1, 0], [0, 0, np.inf], [0.0], np.zeros((2, 3))):
        with pytest.raises(ValueError, match="norms"):
            o.record(norms)
    with pytest.raises(ValueError, match="increment"):
        o.record(np.zeros(3), noise_multiplier=1.0)
    with pytest.raises(TypeError, match="one step at a time"):
        o.record([1.0, 0.5, 0.0], steps=10)
    for name, array in state().items():
        np.testing.assert_array_equal(array, before[name])
    with pytest.raises(ValueError, match="increment"):
        RenyiOdometer(-0.1, 2, num_examples=1, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="increment"):
        GaussianOdometer([], num_examples=1, noise_multiplier=1.0)


def test_files(tmp_path):
    path = tmp_path / "odometer"
    arguments = {"num_examples": 3, "noise_multiplier": 5.0, "max_grad_norm": 1.0}
    o = GaussianOdometer([0.3, 0.5], **arguments)
    for _ in range(9):
        o.record([1.0, 0.5, 0.1])
    o.save(path)
    for loaded in (
        GaussianOdometer.load(path),
        GaussianOdometer([0.3, 0.5], **arguments).load(path),
    ):
        loaded.record([1.0, 0.5, 0.1])
        fresh = GaussianOdometer.load(path)
        fresh.record([1.0, 0.5, 0.1])
        np.testing.assert_array_equal(loaded.spent(), fresh.spent())
        np.testing.assert_array_equal(loaded.restarts, fresh.restarts)
    with pytest.raises(store.StoreError, match="increment"):
        GaussianOdometer([0.3, 0.6], **arguments).load(path)
    with pytest.raises(store.StoreError, match="GaussianOdometer"):
        RenyiOdometer.load(path)


def test_the_guarantee_claims_no_more_than_restarts():
    o = GaussianOdometer(0.3, num_examples=1, noise_multiplier=5.0)
    r = RenyiOdometer(0.3, 2, num_examples=1, noise_multiplier=5.0)
    for g in (o.guarantee, r.guarantee):
        assert "Nothing is claimed for moments between restarts" in g.sentence and "sensitive" in g.sentence
