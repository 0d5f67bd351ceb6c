"""Bounds of sums of complex exponentials around a point, against samples and many digits."""

import mpmath
import numpy as np
import pytest

from pld_accountant.kernels import contour


def sample(rng, n, size, mid):
    """Random nodes: losses with a positive imaginary part, as on a path above the real line."""
    loss = rng.normal(0.0, 1.0, n) + 1j * rng.uniform(0.0, 1.5, n)
    loss *= size
    weight = rng.dirichlet(np.ones(n)) * np.exp(1j * rng.normal(0.0, 0.3, n))
    return loss, weight, mid


@pytest.mark.parametrize("seed", range(6))
def test_bounds_around_a_point_hold_in_the_polygon(seed):
    """And in some direction they are reached to a factor of two, where the polygon is small."""
    rng = np.random.default_rng(seed)
    loss, weight, first = sample(rng, 60, 10.0 ** rng.uniform(-2, 0), 20)
    constant, last = complex(rng.normal(0.0, 1e-3)), 40
    a = complex(rng.uniform(-0.5, 3.0), rng.uniform(0.0, 4.0))
    closest = []
    for reach in (0.05, 0.5, 3.0):
        turn = np.exp(1j * rng.uniform(0.0, 6.3))
        v = reach * turn * np.array([2.0 + 1.0j, 2.0 - 1.0j, -2.0 + 1.0j, -2.0 - 1.0j])
        out = np.empty(5)
        contour.around(a, v, constant, loss, weight, np.log(np.abs(weight)), first, last, out)
        m = complex(out[1], out[2])
        inside = reach * turn * (rng.uniform(-2, 2, 500) + 1j * rng.uniform(-1, 1, 500))
        moments = np.exp(np.multiply.outer(a + np.append(inside, v), loss[first:])) @ weight[first:] + constant
        mid = np.exp(np.multiply.outer(a + np.append(inside, v), loss[:last])) @ weight[:last]
        at = np.exp(out[0] + (np.append(inside, v) * m).real)
        assert np.all(np.abs(moments) <= out[3] * at * (1.0 + 1e-12))
        assert np.all(np.abs(mid) <= out[4] * at * (1.0 + 1e-12))
        closest.append(np.max(np.abs(moments) / (out[3] * at)))
    centre = np.exp(a * loss[first:]) @ weight[first:] + constant
    assert abs(out[0] - np.log(abs(centre))) < 1e-12
    assert closest[0] > 0.5


@pytest.mark.parametrize("rare", [-70.0, -90.0, -110.0])
def test_bounds_around_a_point_hold_where_rare_losses_are_large(rare):
    """Powers of g beyond exp(60) with weights below exp(-60): nearly all of the sum is in other terms."""
    rng = np.random.default_rng(3)
    loss = np.append(rng.normal(0.0, 1e-3, 40), np.linspace(20.0, 25.0, 20)) + 1j * rng.uniform(0.0, 1e-2, 60)
    weight = np.append(rng.dirichlet(np.ones(40)), np.full(20, np.exp(rare))) * np.exp(1j * rng.normal(0.0, 0.3, 60))
    a = 4.0 + 1.0j
    for reach in (0.01, 0.1, 1.0):
        v, out = reach * np.array([2.0 + 1.0j, 2.0 - 1.0j, -2.0 + 1.0j, -2.0 - 1.0j]), np.empty(5)
        contour.around(a, v, 0j, loss, weight, np.log(np.abs(weight)), 0, 0, out)
        d = reach * (rng.uniform(-2, 2, 500) + 1j * rng.uniform(-1, 1, 500))
        moments = np.abs(np.exp(np.multiply.outer(a + d, loss)) @ weight)
        assert np.all(moments <= out[3] * np.exp(out[0] + (d * complex(out[1], out[2])).real) * (1.0 + 1e-12))
    assert abs(out[0] - np.log(np.abs(np.exp(a * loss) @ weight))) < 1e-12


def test_round_off_of_the_sum_around_a_point_is_part_of_its_bound():
    """Terms of size 1 whose sum is 1e-14: the computed sum, and its logarithmic derivative, are wrong by percents."""
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(50):
        loss = rng.normal(0.0, 0.5, 40) + 1j * rng.uniform(0.0, 1.5, 40)
        weight, a = rng.normal(0.0, 1.0, 40) + 1j * rng.normal(0.0, 1.0, 40), 2.0 + 3.0j
        weight[-1] -= (np.exp(a * loss) @ weight * (1.0 - 1e-14)) / np.exp(a * loss[-1])
        v, out = 1e-30 * np.array([1.0 + 1.0j, 1.0 - 1.0j, -1.0 + 1.0j, -1.0 - 1.0j]), np.empty(5)
        contour.around(a, v, 0j, loss, weight, np.log(np.abs(weight)), 0, 0, out)
        with mpmath.workdps(40):
            nodes = [(mpmath.mpc(w), mpmath.mpc(x)) for w, x in zip(weight.tolist(), loss.tolist(), strict=True)]
            truth = abs(mpmath.fsum(w * mpmath.exp(a * x) for w, x in nodes))
        found += truth > mpmath.exp(out[0])
        assert truth <= out[3] * mpmath.exp(out[0])
    assert found > 5


def test_a_constant_of_zero_has_no_part_in_the_bound():
    """Its factor exp(d m) is beyond all doubles."""
    v, out = 1e3 * np.array([1.0 + 1.0j, 1.0 - 1.0j, -1.0 + 1.0j, -1.0 - 1.0j]), np.empty(5)
    contour.around(0.1 + 0j, v, 0j, np.array([1e3 + 0j]), np.array([0.5 + 0j]), np.log(np.array([0.5])), 0, 0, out)
    assert out[0] == pytest.approx(100.0 + np.log(0.5)) and out[3] == pytest.approx(1.0)


def test_a_sum_of_zero_has_no_bounds():
    out = np.empty(5)
    loss, weight = np.array([0j, 0j]), np.array([1.0 + 0j, -1.0 + 0j])
    contour.around(1.0 + 0j, np.ones(4, dtype=complex), 0j, loss, weight, np.zeros(2), 0, 2, out)
    assert np.all(np.isinf(out))
