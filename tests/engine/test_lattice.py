"""Discrete losses on one lattice or a few, against sums over all outcomes in high precision."""

import itertools
import math

import mpmath
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.engine import lattice
from pld_accountant.engine.discrete_sum import _root
from pld_accountant.engine.lattice import LatticeSum

SUMS = {
    "two lattices": [(0.25, 60), (0.0731, 45)],
    "steps of one size and another": [(1.1, 12), (0.01, 200)],
    "three lattices": [(0.5, 14), (0.31, 17), (0.0123, 19)],
}


def binomials(sums):
    """All losses of compositions of two-point laws, and their masses."""
    parts = []
    for c, n in sums:
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(c)))
        parts.append(
            [((2 * k - n) * mpmath.mpf(c), mpmath.binomial(n, k) * p**k * (1 - p) ** (n - k)) for k in range(n + 1)]
        )
    return [(sum(x for x, _ in some), math.prod(m for _, m in some)) for some in itertools.product(*parts)]


def exact_delta(atoms, epsilon):
    return mpmath.fsum(m * -mpmath.expm1(epsilon - x) for x, m in atoms if x > epsilon)


@pytest.mark.parametrize("name", SUMS)
def test_lattices_contain_the_sum_over_all_outcomes(name):
    steps = pa.compose([(pa.PureDP(c), n) for c, n in SUMS[name]])
    with mpmath.workdps(50):
        atoms = binomials(SUMS[name])
        top = float(max(x for x, _ in atoms))
        for share in (0.0, 0.03, 0.2, 0.6, 0.95, 0.999):
            true, found = exact_delta(atoms, mpmath.mpf(share * top)), steps.delta(share * top)
            assert found.method == pa.Method.LATTICE
            assert found.lower <= true <= found.upper and found.upper - found.lower <= 1e-7 * true
            back = steps.epsilon(float(true)) if true < 1 else None
            if back is not None and share > 0.0:
                assert back.lower <= share * top * (1 + 1e-15) and share * top * (1 - 1e-15) <= back.upper
                assert back.upper - back.lower <= 1e-7


def laws(steps):
    return [pa.PureDP(c).law("remove") for c, _ in steps], [n for _, n in steps]


@pytest.mark.parametrize("epsilon", [180.0, 187.7445])
def test_a_delta_below_every_double_is_not_zero(epsilon):
    step = pa.DiscretePair([17 / 32, 15 / 32], [15 / 32, 17 / 32])  # all 1500 lose 187.7447 at most
    found = pa.compose([(step, 1500)]).delta(epsilon)
    assert found.lower == 0.0 < found.upper


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_errors_of_masses_are_in_the_bounds(name, sign, monkeypatch):
    """Masses that are wrong by what is said of them, all to one side; and by more than that."""
    with mpmath.workdps(50):
        atoms = binomials(SUMS[name])
        epsilon = 0.4 * float(max(x for x, _ in atoms))
        true = exact_delta(atoms, mpmath.mpf(epsilon))
    original, wrong = lattice._Lattice.tilted, 1e-7

    def tilted(told):
        def found(self, theta, *window):
            first, masses, _, *scales = original(self, theta, *window)
            return first, masses + sign * wrong, told, *scales

        return found

    for told, holds in ((wrong * 1.001, True), (wrong / 1_000.0, False)):
        monkeypatch.setattr(lattice._Lattice, "tilted", tilted(told))
        lower, upper = LatticeSum.of(*laws(SUMS[name])).delta(epsilon)
        assert (lower <= true <= upper) == holds


def test_laws_that_are_nearly_on_a_lattice_are_moved_onto_it():
    """A loss may lie 2^-40 beside its place; the bounds of epsilon are as much wider, step by step."""
    rng = np.random.default_rng(2)
    exact = pa.PureDP(0.3).law("remove")
    off = 2.0**-41 * rng.uniform(-1.0, 1.0, 5)
    losses = np.array([-0.3, -0.15, 0.0, 0.15, 0.3])
    law = type(exact)(losses + off, np.full(5, 0.2), 0.0, True)
    found = LatticeSum.of([law], [50])
    assert found is not None and len(found._lattices) == 1 and found._shift >= 50 * np.abs(np.diff(off)).max()
    lower, upper = found.delta(1.0)
    ends = [LatticeSum.of([type(law)(losses + s * 2.0**-41, law.masses, 0.0, True)], [50]).delta(1.0) for s in (-1, 1)]
    assert lower <= ends[0][1] and ends[1][0] <= upper
    apart = type(exact)(losses + np.array([0.0, 1e-6, 0.0, 0.0, 0.0]), np.full(5, 0.2), 0.0, True)
    assert len(apart.losses) == 5 and LatticeSum.of([apart], [50]) is None


def test_too_many_atoms_are_left_to_other_methods():
    many = [pa.DiscreteGaussian(20.0 + k).law("remove") for k in range(3)]
    assert LatticeSum.of(many, [20_000] * 3) is None
    assert LatticeSum.of(many[:1], [20_000]) is not None


@pytest.mark.parametrize("decay", [1e-9, 3e-3, 0.7, 90.0])
def test_tail_sums_are_within_their_errors(decay):
    """Added up block by block; the number of blocks depends on the decay."""
    masses = np.random.default_rng(5).exponential(size=3_001) * np.exp(-0.01 * np.arange(3_001))
    found, units = lattice._tail_sums(masses, decay)
    with mpmath.workdps(40):
        factor, total, exact = mpmath.exp(-mpmath.mpf(decay)), mpmath.mpf(0), []
        for mass in masses[::-1].tolist():
            total = total * factor + mass
            exact.append(total)
    for k, true in enumerate(exact[::-1]):
        assert abs(found[k] - true) <= units * 2.0**-53 * true


@pytest.mark.parametrize("theta, step", [(0.01, 1e-3), (3.0, 0.02), (40.0, 0.3)])
def test_tails_between_points(theta, step):
    masses, each = np.random.default_rng(4).dirichlet(np.ones(400)), 1e-9
    places = 0.7 + step * np.arange(400)
    found = lattice._Tails(0.7, step, masses + each, each, theta)
    # with the true masses
    t = np.concatenate([[-1.0], places[[0, 7, 399]], places[:399:37] + 0.3 * step, [places[-1] + 1e-9]])
    value, error = found.at(t)
    past = np.maximum(places - t[:, None], 0.0)
    true = (masses * np.exp(-theta * past) * -np.expm1(-past)).sum(axis=1)
    assert np.all(np.abs(value - true) <= error * (1.0 + 1e-9))
    assert np.abs(value - true).max() > 1e-3 * error.max(), "the error is not far too large"


def test_symmetric_pairs_are_computed_once():
    for step in (
        pa.RandomizedResponse(0.3, 7),
        pa.DiscreteGaussian(3.0, 2),
        pa.DiscreteLaplace(0.2, 3),
        pa.PureDP(1.0),
    ):
        assert step.symmetric
        one, two = step.law("remove"), step.law("add")
        np.testing.assert_allclose(one.losses, two.losses, atol=1e-12)
        np.testing.assert_allclose(one.masses, two.masses, rtol=1e-12)
    other = pa.DiscretePair([0.5, 0.3, 0.2], [0.2, 0.5, 0.3])
    assert not other.symmetric and not pa.PoissonSampled(pa.PureDP(1.0), 0.5).symmetric
    found = pa.compose([(other, 3)])
    assert found.delta(0.5, "remove").upper != found.delta(0.5, "add").upper
    assert found.delta(0.5).upper == max(found.delta(0.5, d).upper for d in ("remove", "add"))


def test_a_root_lies_between_its_ends():
    calls: list[float] = []

    def falls(x):
        calls.append(x)
        return math.exp(-x - 0.01 * x * x)

    for goal, top in ((0.3, 50.0), (1e-12, 60.0), (1e-200, 700.0), (1.0 - 1e-12, 3.0)):
        calls.clear()
        low, high = _root(falls, goal, 0.0, top)
        assert len(calls) < 60
        assert falls(low) > goal >= falls(high) and high - low <= 2e-14 * (high + 1e-3 * top)
    low, high = _root(lambda x: 1.0 if x < 0.7 else 0.0, 0.5, 0.0, 9.0)
    assert low < 0.7 <= high <= low + 1e-13


def test_a_window_longer_than_expected_leaves_everything_open(monkeypatch):
    assert LatticeSum.of(*laws(SUMS["two lattices"])).delta(1.0)[1] < 1.0
    monkeypatch.setattr(lattice, "_FARTHEST_WINDOW", 10)
    assert LatticeSum.of(*laws(SUMS["two lattices"])).delta(1.0) == (0.0, 1.0)


def test_a_later_law_does_not_make_the_step_of_an_earlier_one_too_small(monkeypatch):
    one, two = pa.PureDP(1.0).law("remove"), pa.PureDP(1.1e-9).law("remove")
    with monkeypatch.context() as patch:
        patch.setattr(lattice._Lattice, "__init__", None)  # no array of 10^9 cells is made to find out
        assert lattice._Lattice.of([one, two], [1, 1]) is None
    found = pa.compose([(pa.PureDP(1.0), 1), (pa.PureDP(1.1e-9), 1)])
    assert len(found._lattice("remove")._lattices) == 2
    alone = pa.compose([(pa.PureDP(1.0), 1)]).delta(0.3)
    assert alone.lower <= found.delta(0.3).upper <= alone.upper + 1e-8


def test_losses_beside_the_lattice_move_epsilon():
    """The middle one of three losses lies 1e-10 beside its place: thirty steps are wrong by more than their masses."""
    n, losses, masses = 30, [-0.3, 1e-10, 0.3], [0.2, 0.5, 0.3]
    law = type(pa.PureDP(0.3).law("remove"))(np.array(losses), np.array(masses), 0.0, True)
    with mpmath.workdps(40):
        x, m = [mpmath.mpf(v) for v in losses], [mpmath.mpf(v) for v in masses]
        true = mpmath.mpf(0)
        for i in range(n + 1):
            for j in range(n + 1 - i):
                k = n - i - j
                total = i * x[0] + j * x[1] + k * x[2]
                ways = mpmath.binomial(n, i) * mpmath.binomial(n - i, j)
                true += ways * m[0] ** i * m[1] ** j * m[2] ** k * max(-mpmath.expm1(1.05 - total), 0)
    lower, upper = LatticeSum.of([law], [n]).delta(1.05)
    assert lower <= true <= upper <= lower + 1e-7


def test_many_laws_of_their_own_lattices_are_given_up_early(monkeypatch):
    """Whether laws share lattices is tried only until the lattices have too many atoms together."""
    tried, of = [], lattice._Lattice.of
    monkeypatch.setattr(lattice._Lattice, "of", staticmethod(lambda laws, counts: tried.append(1) or of(laws, counts)))
    laws = [pa.DiscreteGaussian(20.0 + 0.1 * i).law("remove") for i in range(60)]
    assert lattice.LatticeSum.of(laws, [1] * 60) is None
    assert len(tried) < 60
