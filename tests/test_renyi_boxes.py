"""Black boxes with Renyi guarantees: upper bounds hold for every mechanism that satisfies them, mixed with any step."""

import copy
import itertools

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.notions import rdp, zcdp


@pytest.mark.parametrize("rho", [1e-4, 0.021, 0.5, 20.0])
def test_zcdp_alone_is_the_conversion_at_the_best_order(rho):
    run = pa.compose([(pa.ZeroConcentratedDP(rho / 4), 4)])
    found = run.epsilon(1e-6)
    assert found.upper == pytest.approx(zcdp.zcdp_epsilon(rho, 1e-6), rel=1e-9)
    assert run.delta(1.0).upper == pytest.approx(zcdp.zcdp_delta(rho, 1.0), rel=1e-8)
    # Gaussian noise is one of these mechanisms
    exact = pa.compose([(pa.Gaussian((2 * rho) ** -0.5), 1)]).epsilon(1e-6)
    assert found.lower <= exact.upper <= found.upper
    assert found.lower == pytest.approx(exact.lower, rel=1e-9)
    assert (found.status, found.method) == (pa.Status.RENYI_ONLY, pa.Method.RENYI)


OTHERS = {
    "Laplace": pa.Laplace(3.0),
    "sampled": pa.SampledGaussian(2.0, 0.1),
    "discrete": pa.RandomizedResponse(0.5, 3),
    "infinite losses": pa.ApproximateDP(0.3, 1e-7),
    "enclosed": pa.RandomAllocation(2.0, 10),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_bound_holds_for_the_gaussian_in_the_box(name):
    """The box is used by a mechanism that we can compose exactly: the bound of the box is above its epsilon."""
    other = (OTHERS[name], 5)
    inside = pa.compose([other, (pa.Gaussian(4.0), 3)])
    for box in (pa.ZeroConcentratedDP(1 / 32), pa.RenyiDP([2, 4, 8, 16, 64], np.array([2, 4, 8, 16, 64]) / 32)):
        run = pa.compose([other, (box, 3)])
        for delta in (1e-3, 4e-6):
            assert run.epsilon(delta).lower <= inside.epsilon(delta).upper <= run.epsilon(delta).upper
        assert inside.delta(0.7).upper <= run.delta(0.7).upper <= 1.0
        assert inside.delta(-0.5).upper <= run.delta(-0.5).upper <= 1.0
        if name == "sampled":  # thirty deltas, of which one takes a second for other mechanisms
            assert inside.tradeoff(0.1).lower >= run.tradeoff(0.1).lower


def test_a_delta_below_every_double_is_not_0():
    for box in (pa.ZeroConcentratedDP(0.1), pa.RenyiDP([2.0, 1e6], [0.1, 0.2])):
        assert pa.compose([(box, 1)]).delta(100.0).upper > 0.0


def test_boxes_are_read_where_they_say_something():
    orders, known = [2.0, 5.0, 20.0], [0.1, 0.4, 3.0]
    run = pa.compose([(pa.RenyiDP(orders, known), 1)])
    at_orders = min(rdp.rdp_epsilon(k, a, 1e-5) for a, k in zip(orders, known, strict=True))
    assert run.epsilon(1e-5).upper <= at_orders * (1 + 1e-12)
    assert np.allclose(run.rdp(orders), known, rtol=1e-13)
    assert np.all(run.rdp(orders) >= known)
    assert run.rdp(20.1) == np.inf
    # between orders, a chord of (alpha - 1) D: 1 * 0.1 at 2 and 4 * 0.4 at 5
    assert float(run.rdp(3.5)) == pytest.approx(min((0.1 + 1.6) / 2 / 2.5, 0.4))
    assert run.epsilon(0.0).upper == np.inf


def test_no_chord_is_below_the_divergence_it_stands_for():
    """A two-point mechanism at three orders: its divergence at all other orders lies below the box's."""
    step = pa.compose([(pa.RandomizedResponse(0.3, 2), 1)])
    orders = [1.5, 3.0, 30.0]
    box = pa.compose([(pa.RenyiDP(orders, step.rdp(orders)), 1)])
    between = np.linspace(1.01, 30, 500)
    assert np.all(step.rdp(between) <= box.rdp(between))


def test_an_order_at_infinity_is_pure_dp():
    box = pa.RenyiDP([2.0, np.inf], [0.5, 1.5])
    assert pa.compose([(box, 2), (pa.PureDP(0.5), 1)]).epsilon(0.0).upper == pytest.approx(3.5)
    assert float(pa.compose([(box, 1)]).rdp(50.0)) == pytest.approx(1.5)
    assert pa.compose([(box, 1)]).delta(1.6).upper < 1e-9


def test_infinite_losses_beyond_delta_are_not_certified():
    run = pa.compose([(pa.ApproximateDP(1.0, 0.01), 1), (pa.ZeroConcentratedDP(0.1), 1)])
    found = run.epsilon(1e-3)
    assert found.upper == np.inf and found.status == pa.Status.NOT_CERTIFIED
    assert 0.01 <= run.delta(50.0).upper <= 0.0101


def test_the_words_of_a_composition():
    run = pa.compose([(pa.ZeroConcentratedDP(0.1), 2), (pa.Laplace(2.0), 3), (pa.ZeroConcentratedDP(0.1), 1)])
    assert run.steps == 6
    assert "(ZeroConcentratedDP(rho=0.1, xi=0.0), 3)" in repr(run)
    assert copy.deepcopy(run).epsilon(1e-5) == run.epsilon(1e-5)
    assert run.epsilon(1e-5).upper == pytest.approx(run.rdp_epsilon(1e-5))
    assert not run.mu().certified
    orders = [
        pa.compose(list(p)) for p in itertools.permutations([(pa.ZeroConcentratedDP(0.1), 3), (pa.Laplace(2.0), 3)])
    ]
    assert {one.epsilon(1e-5).upper for one in orders} == {run.epsilon(1e-5).upper}
    assert pa.compose([(pa.ZeroConcentratedDP(0.1), 0)]).epsilon(1e-5).upper == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: pa.ZeroConcentratedDP(0.0),
        lambda: pa.ZeroConcentratedDP(0.1, -1.0),
        lambda: pa.RenyiDP([2, 3], [0.1]),
        lambda: pa.RenyiDP([], []),
        lambda: pa.RenyiDP([3, 2], [0.1, 0.1]),
        lambda: pa.RenyiDP([1.0], [0.1]),
        lambda: pa.RenyiDP([1e17], [0.1]),
        lambda: pa.RenyiDP([2.0], [np.inf]),
        lambda: pa.RenyiDP([2.0], [-0.1]),
    ],
)
def test_bad_arguments_are_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()


@pytest.mark.parametrize("rho", [1e-300, 1e-250, 1e250, 1e300])
def test_extreme_rho_has_bounds(rho):
    found = pa.compose([(pa.ZeroConcentratedDP(rho), 2)]).epsilon(1e-5)
    assert found.lower <= found.upper and (found.upper > rho if rho > 1.0 else found.upper < 1e-12)
