"""Sums of complex exponentials: round-off of both kinds of terms, and of the linear ones, against many digits."""

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


def joined(one, two):
    return PathNodes(*map(np.concatenate, zip(one, two, strict=True)))


@pytest.mark.parametrize("size", [1e-6, 1e-2, 1.0])
def test_sums_are_within_their_round_off(size):
    """Small and large losses, in one path and in three; the error is above the true one, and of the size of units."""
    rng = np.random.default_rng(int(-np.log10(size)))
    low, middle, tail = (path(rng, 100, each) for each in (1.0, 1.0, size))
    for paths, whole, mid in (
        ([tail], tail, None),
        ([low, middle, tail], joined(middle, tail), joined(low, middle)),
    ):
        sums = NodeSums(paths)
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
        found, error, *_ = NodeSums([PathNodes(one, one, zero, zero + 1.0, zero, zero, zero, zero)]).at(np.ones(1) + 0j)
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
                good, bad = NodeSums(paths), NodeSums([moved(p) for p in paths])
                for a in EXPONENTS[:3]:
                    true, wrong = (s.at(np.array([a])) for s in (good, bad))
                    for k in (0, 2):
                        moved_by = abs(wrong[k][0] - true[k][0])
                        assert moved_by <= wrong[k + 1][0]
                        if k == 0 and paths == [tail] and name != unused:
                            assert moved_by > 1e-3 * wrong[k + 1][0]


def test_the_end_of_the_series_is_negligible(monkeypatch):
    """Three powers more change nothing; three less than half of them are seen."""
    one, zero = np.array([1.0 + 0j]), np.zeros(1)
    node = PathNodes(one, one, zero, zero + 1.0, zero, zero, zero, zero)
    truth = float(mpmath.e - 2)
    for last, goal in ((18, 1e-15), (21, 1e-15)):
        monkeypatch.setattr(node_sums, "_LAST", last)
        assert abs(NodeSums([node]).at(one)[0][0] - truth) < goal
    monkeypatch.setattr(node_sums, "_LAST", 8)
    found, error, *_ = NodeSums([node]).at(one)
    assert abs(found[0] - truth) > error[0]


def test_huge_and_tiny_powers_are_no_warnings():
    """Powers beyond the range of doubles: an error that is not finite ends an attempt, and a tiny term is 0."""
    rng = np.random.default_rng(1)
    nodes = path(rng, 20, 1.0)
    _, error, *_ = NodeSums([nodes]).at(np.array([100.0 + 0j, 1e5 + 0j]))
    assert np.isfinite(error[0]) and not np.isfinite(error[1])
    tiny = nodes._replace(loss=-np.abs(nodes.loss) - 1.0)
    found, error, *_ = NodeSums([tiny]).at(np.array([1e4 + 0j]))
    assert np.all(np.isfinite(found)) and np.all(np.isfinite(error))
