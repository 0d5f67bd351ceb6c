"""A distribution of losses as a mechanism: it equals the pair that it comes from; others are refused."""

import math

import mpmath
import numpy as np
import pytest

import pld_accountant as pa

WITH, WITHOUT = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.2, 0.3, 0.3, 0.2])
LOSSES = np.log(WITH / WITHOUT)


def overlap(a, b):
    return a.lower <= b.upper and b.lower <= a.upper


@pytest.mark.parametrize("direction", ["remove", "add", "both"])
@pytest.mark.parametrize("count", [1, 7, 200])
def test_it_equals_the_pair(direction, count):
    pair = pa.compose([(pa.DiscretePair(WITH, WITHOUT), count)])
    for law in (
        pa.LossDistribution(LOSSES, WITH),
        pa.LossDistribution(LOSSES[::-1], WITH[::-1], add=(-LOSSES, WITHOUT)),
    ):
        own = pa.compose([(law, count)])
        assert overlap(own.epsilon(1e-6, direction), pair.epsilon(1e-6, direction))
        assert overlap(own.delta(0.4, direction), pair.delta(0.4, direction))
        assert own.rdp([3.0])[0] == pytest.approx(pair.rdp([3.0])[0], rel=1e-9)
        assert overlap(own.epsilon(0.0, direction), pair.epsilon(0.0, direction))


def test_infinite_losses_of_both_directions():
    """Outcomes that one side alone gives: the rest of the masses, and the rest of the masses times e^-loss."""
    p, q = np.array([0.1, 0.6, 0.3, 0.0]), np.array([0.0, 0.5, 0.3, 0.2])
    pair = pa.compose([(pa.DiscretePair(p, q), 1)])
    law = pa.compose([(pa.LossDistribution(np.log(p[1:3] / q[1:3]), p[1:3]), 1)])
    for direction, lost in (("remove", 0.1), ("add", 0.2)):
        assert law.delta(5.0, direction).upper == pytest.approx(lost, rel=1e-9)
        assert overlap(law.delta(0.1, direction), pair.delta(0.1, direction))
        assert law.epsilon(0.0, direction).upper == math.inf


def test_masses_above_1_are_lowered_where_no_delta_falls():
    more = WITH * (1.0 + 5e-10)
    law = pa.compose([(pa.LossDistribution(LOSSES, more), 1)])
    for epsilon in (0.0, 0.3, 0.8):
        truth = float(np.maximum(WITH - np.exp(epsilon) * WITHOUT, 0.0).sum())
        assert truth <= law.delta(epsilon, "remove").upper <= truth * (1.0 + 2e-9)


def test_a_step_without_loss():
    nothing = pa.compose([(pa.LossDistribution([0.0], [1.0]), 10)])
    assert nothing.delta(0.1).upper <= 1e-10
    assert nothing.epsilon(1e-6).upper <= 1e-9


@pytest.mark.parametrize(
    ("losses", "masses", "add"),
    [
        ([1.0, 2.0], [0.5], None),
        ([], [], None),
        ([1.0, -1.0], [0.9, 0.2], None),
        ([1.0, -1.0], [1.1, -0.1], None),
        ([np.nan, 0.0], [0.5, 0.5], None),
        ([np.inf, 0.0], [0.5, 0.5], None),
        ([-2.0, 0.0], [0.5, 0.5], None),  # the mass without the record would be e^2 / 2 + 1 / 2
        ([0.0], [1.0], ([0.0], [1.0], [1.0])),
        ([0.0], [1.0], ([-1.0], [1.0])),
    ],
)
def test_what_is_no_distribution_of_losses(losses, masses, add):
    with pytest.raises(ValueError):
        pa.LossDistribution(losses, masses, add=add)


def test_the_rest_of_the_masses_has_an_infinite_loss():
    law = pa.LossDistribution([0.0, 1.0], [0.5, 0.5 - 1e-13])
    rest = 1.0 - 0.5 - (0.5 - 1e-13)
    one = pa.compose([(law, 1)])
    bounds = one.delta(2.0, "remove")
    assert bounds.lower <= rest <= bounds.upper <= rest * (1 + 1e-6)
    assert np.isinf(one.epsilon(1e-14, "remove").upper) and np.isinf(one.epsilon(0.0, "remove").upper)
    many = pa.compose([(law, 10**9)]).delta(1e12, "remove")
    assert many.lower <= -math.expm1(1e9 * math.log1p(-rest)) <= many.upper


def test_a_rest_that_is_round_off_is_none():
    masses = np.full(10, 0.1)
    masses[0] -= 2.0**-52
    run = pa.compose([(pa.LossDistribution(np.linspace(0.1, 1.0, 10), masses), 3)])
    assert np.isfinite(run.epsilon(0.0, "remove").upper)


@pytest.mark.parametrize("way", ["derived", "beside"])
def test_the_round_off_of_a_derived_rest_is_counted(way, monkeypatch):
    """The other law's infinite mass is 1 less a sum, so that its error is relative to 1; against 40 digits."""
    rng, apart = np.random.default_rng(1), []
    for exponent in np.linspace(-14.4, -9.0, 40):
        masses = rng.dirichlet(np.ones(3)) * (1.0 - 10.0**exponent)
        losses = np.sort(rng.normal(0.0, 1.0, 3))
        losses -= max(np.log((masses * np.exp(losses)).sum()), 0.0) + 0.01
        with mpmath.workdps(40):
            given = masses * np.exp(losses)
            parts = zip(given.tolist(), losses.tolist(), strict=True)
            rest = float(1 - mpmath.fsum(mpmath.mpf(m) * mpmath.exp(-mpmath.mpf(x)) for m, x in parts))
        if rest < 2.0**-49:
            continue
        step = pa.LossDistribution(losses, given)
        if way == "derived":
            found = pa.compose([(step, 1)]).delta(50.0, "add")
        else:
            found = pa.compose([(step, 1), (pa.Gaussian(10.0), 1)]).delta(50.0, "add")
        assert found.lower <= rest <= found.upper
        law = step.law("add")
        apart.append(abs(law.infinite - rest) / (law.infinite_ends[1] - law.infinite))
    # a tenth of what is counted occurs
    assert len(apart) > 30 and 0.05 < max(apart) <= 1.0
