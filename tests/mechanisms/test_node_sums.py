"""Sums of complex exponentials and their round-off against many digits, and their bounds around an exponent."""

import mpmath
import numpy as np
import pytest

from pld_accountant.mechanisms import node_sums
from pld_accountant.mechanisms.node_sums import NodeSums, PathNodes

UNIT = 2.0**-53
EXPONENTS = np.array([1.5, 3.0 + 4.0j, 0.2 + 90.0j, 40.0 + 1e3j])


def path(rng, n, size):
    """Random nodes: losses with a positive imaginary part, as on a path above the real line, exact but for rounding."""
    loss = size * (rng.normal(0.0, 1.0, n) + 1j * rng.uniform(0.0, 1.5, n))
    weight = rng.dirichlet(np.ones(n)) * np.exp(1j * rng.normal(0.0, 0.3, n))
    with mpmath.workdps(60):
        rise = [mpmath.expm1(mpmath.mpc(x)) for x in loss.tolist()]
        bent = np.array([complex(r - mpmath.mpc(x)) for r, x in zip(rise, loss.tolist(), strict=True)])
    rise = np.array([complex(r) for r in rise])
    return PathNodes(loss, rise, bent, weight, 8.0 * np.abs(loss), np.abs(rise), np.abs(bent), np.zeros(n))


def exact(nodes, a):
    """Both sums over some nodes, and the sizes of their terms."""
    a = mpmath.mpc(a)
    losses, weights = ([mpmath.mpc(x) for x in v.tolist()] for v in (nodes.loss, nodes.weight))
    whole = [w * (mpmath.expm1(a * x) - a * mpmath.expm1(x)) for w, x in zip(weights, losses, strict=True)]
    power = [w * mpmath.exp(a * x) for w, x in zip(weights, losses, strict=True)]
    return [(mpmath.fsum(terms), np.array([float(abs(t)) for t in terms])) for terms in (whole, power)]


def off_by(found, truth):
    return float(abs(truth - mpmath.mpc(complex(found))))


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(60):
        yield


def joined(*paths):
    return PathNodes(*map(np.concatenate, zip(*paths, strict=True)))


def sums_of(paths):
    """The sums of one path, or of three: M_mid is a sum over the first two, M over the last two."""
    sizes = [path.loss.size for path in paths]
    return NodeSums(joined(*paths), *((sizes[0], sizes[0] + sizes[1]) if len(paths) > 1 else (0, 0)))


@pytest.mark.parametrize("size", [1e-6, 1e-2, 1.0])
def test_sums_are_within_their_round_off(size):
    """Small and large losses, in one path and in three; the error is above the true one, and of the size of units."""
    rng = np.random.default_rng(int(-np.log10(size)))
    low, middle, tail = (path(rng, 100, each) for each in (1.0, 1.0, size))
    for paths, whole, mid in (
        ([tail], tail, None),
        ([low, middle, tail], joined(middle, tail), joined(low, middle)),
    ):
        sums = sums_of(paths)
        for a in EXPONENTS:
            found, error, of_mid, error_of_mid = (v[0] for v in sums.at(np.array([a])))
            truth, terms = exact(whole, a)[0]
            assert off_by(found, truth) <= error
            lost = np.where(np.abs(a * whole.loss) > 1.0, 1.0, np.abs(a * whole.loss) ** 2) + np.abs(a * whole.bent)
            turned = 1.0 + np.abs(a * whole.loss)
            assert error <= 300.0 * UNIT * ((terms + np.abs(whole.weight) * lost) * turned).sum()
            if mid is not None:
                truth, terms = exact(mid, a)[1]
                assert (
                    off_by(of_mid, truth) <= error_of_mid <= 100.0 * UNIT * (terms * (1.0 + np.abs(a * mid.loss))).sum()
                )


@pytest.mark.parametrize("size", [1e-4, 0.03, 0.5, 0.99, 1.01])
def test_small_exponents_lose_no_digits(size):
    """exp(u) - 1 - u to some units of itself: as a difference it would be wrong by 1e-13 at 0.03."""
    for loss in size * np.exp(1j * np.linspace(0.0, 6.2, 25)):
        one, zero = np.array([loss]), np.zeros(1)
        found, error, *_ = NodeSums(PathNodes(one, one, zero, zero + 1.0, zero, zero, zero, zero)).at(np.ones(1) + 0j)
        truth = mpmath.expm1(mpmath.mpc(loss)) - mpmath.mpc(loss)
        assert off_by(found[0], truth) <= error[0] <= 5e-14 * float(abs(truth))
        if size < 1.0:
            assert off_by(found[0], truth) <= 24.0 * UNIT * float(abs(truth))


def test_errors_of_nodes_are_passed_on():
    """Losses, weights and the linear terms that are as wrong as they may be move both sums by a part of their errors.

    Each node is wrong by 2^20 units, far more than what the sums lose; each kind of error alone is seen.
    """
    rng = np.random.default_rng(8)
    off = 2.0**20
    for size, unused in ((1e-4, "rise"), (1.0, "bent")):
        low, middle, tail = (path(rng, 60, each) for each in (1.0, 1.0, size))
        for name in ("loss", "weight", "rise", "bent"):

            def moved(nodes, name=name):
                value = getattr(nodes, name)
                turn = off * UNIT * np.exp(1j * rng.uniform(0.0, 6.28, value.size))
                wrong = value * (1.0 + turn)
                of = np.full(value.size, off) if name == "weight" else off * np.abs(value)
                return nodes._replace(**{name: wrong, f"of_{name}": of + getattr(nodes, f"of_{name}")})

            for paths in ([tail], [low, middle, tail]):
                good, bad = sums_of(paths), sums_of([moved(p) for p in paths])
                for a in EXPONENTS[:3]:
                    true, wrong = (s.at(np.array([a])) for s in (good, bad))
                    for k in (0, 2):
                        moved_by = abs(wrong[k][0] - true[k][0])
                        assert moved_by <= wrong[k + 1][0]
                        if k == 0 and paths == [tail] and name != unused:
                            assert moved_by > 1e-3 * wrong[k + 1][0]


def test_a_wrong_weight_moves_the_one_of_its_term():
    """Far below 0 neither the power nor the linear term is as large as the 1 that is subtracted."""
    loss, a, off = np.array([-10.0 + 0j]), np.array([0.3 + 0j]), 2.0**20
    rise, zero = np.expm1(loss), np.zeros(1)
    good = PathNodes(loss, rise, rise - loss, zero + 1.0, zero, zero, zero, zero + off)
    (true, error, *_), (wrong, *_) = (
        NodeSums(nodes).at(a) for nodes in (good, good._replace(weight=np.ones(1) + off * UNIT))
    )
    assert 0.4 * error[0] <= abs(wrong[0] - true[0]) <= error[0]


def test_the_end_of_the_series_is_negligible(monkeypatch):
    """Three powers more change nothing; three less than half of them are seen."""
    one, zero = np.array([1.0 + 0j]), np.zeros(1)
    node = PathNodes(one, one, zero, zero + 1.0, zero, zero, zero, zero)
    truth = float(mpmath.e - 2)
    for last, goal in ((18, 1e-15), (21, 1e-15)):
        monkeypatch.setattr(node_sums, "_LAST", last)
        assert abs(NodeSums(node).at(one)[0][0] - truth) < goal
    monkeypatch.setattr(node_sums, "_LAST", 8)
    found, error, *_ = NodeSums(node).at(one)
    assert abs(found[0] - truth) > error[0]


def test_huge_and_tiny_powers_are_no_warnings():
    """Powers beyond the range of doubles: an error that is not finite ends an attempt, and a tiny term is 0."""
    rng = np.random.default_rng(1)
    nodes = path(rng, 20, 1.0)
    _, error, *_ = NodeSums(nodes).at(np.array([100.0 + 0j, 1e5 + 0j]))
    assert np.isfinite(error[0]) and not np.isfinite(error[1])
    tiny = nodes._replace(loss=-np.abs(nodes.loss) - 1.0)
    found, error, *_ = NodeSums(tiny).at(np.array([1e4 + 0j]))
    assert np.all(np.isfinite(found)) and np.all(np.isfinite(error))


def around(a, corners, constant, loss, weight, first=0, last=0):
    """`NodeSums.around` of nodes whose sum for M has this constant."""
    zero = np.zeros(loss.size)
    nodes = PathNodes(loss, loss, loss, weight, zero, zero, zero, zero)
    return NodeSums(nodes, first, last, constant + weight[first:].sum()).around(a, corners)


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
        found = around(a, v, constant, loss, weight, first, last)
        inside = reach * turn * (rng.uniform(-2, 2, 500) + 1j * rng.uniform(-1, 1, 500))
        powers = np.exp(np.multiply.outer(a + np.append(inside, v), loss))
        mid = powers[:, :last] @ weight[:last]
        moments = powers[:, first:] @ weight[first:] + constant - mid
        at = np.exp(found.log_size + (np.append(inside, v) * found.mean).real)
        assert np.all(np.abs(moments) <= found.bound * at * (1.0 + 1e-12))
        assert np.all(np.abs(mid) <= found.bound_mid * at * (1.0 + 1e-12))
        closest.append(np.max(np.abs(moments) / (found.bound * at)))
    centre = np.exp(a * loss[last:]) @ weight[last:] + constant - np.exp(a * loss[:first]) @ weight[:first]
    assert abs(found.log_size - np.log(abs(centre))) < 1e-12
    assert closest[0] > 0.5


def test_bounds_around_a_point_are_reached_at_a_corner():
    """Real losses and positive weights: all terms have one phase."""
    rng = np.random.default_rng(9)
    loss, weight, a = rng.normal(0.0, 1.0, 60) + 0j, rng.dirichlet(np.ones(60)) + 0j, 1.5 + 0j
    found = around(a, 0.7 * np.array([1.0 + 0j, -1.0 + 0j, 1j, -1j]), 0j, loss, weight, 0, 40)
    ends = [
        np.exp(np.multiply.outer(a + np.array([0.7, -0.7]), loss[part])) @ weight[part]
        for part in (slice(40, None), slice(40))
    ]
    at = np.exp(found.log_size + np.array([0.7, -0.7]) * found.mean)
    whole, mid = (float(np.max(np.abs(end / at))) for end in ends)
    assert whole <= found.bound * (1.0 + 1e-12)
    assert found.bound_mid == pytest.approx(mid, rel=1e-12)


@pytest.mark.parametrize("rare", [-70.0, -90.0, -110.0])
def test_bounds_around_a_point_hold_where_rare_losses_are_large(rare):
    """Powers of g beyond exp(60) with weights below exp(-60): nearly all of the sum is in other terms."""
    rng = np.random.default_rng(3)
    loss = np.append(rng.normal(0.0, 1e-3, 40), np.linspace(20.0, 25.0, 20)) + 1j * rng.uniform(0.0, 1e-2, 60)
    weight = np.append(rng.dirichlet(np.ones(40)), np.full(20, np.exp(rare))) * np.exp(1j * rng.normal(0.0, 0.3, 60))
    a = 4.0 + 1.0j
    for reach in (0.01, 0.1, 1.0):
        v = reach * np.array([2.0 + 1.0j, 2.0 - 1.0j, -2.0 + 1.0j, -2.0 - 1.0j])
        found = around(a, v, 0j, loss, weight)
        d = reach * (rng.uniform(-2, 2, 500) + 1j * rng.uniform(-1, 1, 500))
        moments = np.abs(np.exp(np.multiply.outer(a + d, loss)) @ weight)
        assert np.all(moments <= found.bound * np.exp(found.log_size + (d * found.mean).real) * (1.0 + 1e-12))
    assert abs(found.log_size - np.log(np.abs(np.exp(a * loss) @ weight))) < 1e-12


def test_round_off_of_the_sum_around_a_point_is_part_of_its_bound():
    """Terms of size 1 whose sum is 1e-14: the computed sum, and its logarithmic derivative, are wrong by percents."""
    rng = np.random.default_rng(5)
    above = 0
    for _ in range(50):
        loss = rng.normal(0.0, 0.5, 40) + 1j * rng.uniform(0.0, 1.5, 40)
        weight, a = rng.normal(0.0, 1.0, 40) + 1j * rng.normal(0.0, 1.0, 40), 2.0 + 3.0j
        weight[-1] -= (np.exp(a * loss) @ weight * (1.0 - 1e-14)) / np.exp(a * loss[-1])
        found = around(a, 1e-30 * np.array([1.0 + 1.0j, 1.0 - 1.0j, -1.0 + 1.0j, -1.0 - 1.0j]), 0j, loss, weight)
        with mpmath.workdps(40):
            nodes = [(mpmath.mpc(w), mpmath.mpc(x)) for w, x in zip(weight.tolist(), loss.tolist(), strict=True)]
            truth = abs(mpmath.fsum(w * mpmath.exp(a * x) for w, x in nodes))
        above += truth > mpmath.exp(found.log_size)
        assert truth <= found.bound * mpmath.exp(found.log_size)
    assert above > 5


def test_a_constant_of_zero_has_no_part_in_the_bound():
    """Its factor exp(d m) is beyond all doubles."""
    v = 1e3 * np.array([1.0 + 1.0j, 1.0 - 1.0j, -1.0 + 1.0j, -1.0 - 1.0j])
    found = around(0.1 + 0j, v, 0j, np.array([1e3 + 0j]), np.array([0.5 + 0j]))
    assert found.log_size == pytest.approx(100.0 + np.log(0.5)) and found.bound == pytest.approx(1.0)


def test_a_sum_of_zero_has_no_bounds():
    loss, weight = np.array([0j, 0j]), np.array([1.0 + 0j, -1.0 + 0j])
    found = around(1.0 + 0j, np.ones(4, dtype=complex), 0j, loss, weight)
    assert np.isinf(found.log_size) and np.isinf(found.bound) and np.isinf(found.bound_mid)
