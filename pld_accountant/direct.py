"""Few steps composed without a transform: pairs of atoms on grids placed where the answer is decided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Direct"]

_UNIT = 2.0**-53
_OUTSIDE = 1e-300  # of one step's law, above its mass beyond 38 standard deviations


@dataclass(frozen=True)
class _Law:
    """A partial sum's loss on a grid: an upper law, a lower law, and the masses of the cells for placing grids."""

    up: tuple[NDArray, NDArray]
    down: tuple[NDArray, NDArray]
    knots: NDArray
    below: NDArray
    above: NDArray


def _law(knots: NDArray, up_cells: tuple, down_cells: tuple, error: float) -> _Law:
    from .kernels import direct

    upper, loss, mass = np.empty(knots.size), np.empty(knots.size), np.empty(knots.size)
    direct.spread_up(knots, *up_cells, upper)
    n = direct.merge_down(knots, *down_cells, error, loss, mass)
    p = down_cells[0]
    below = np.concatenate([[0.0], np.cumsum(p)])
    above = np.concatenate([np.cumsum(p[::-1])[::-1], [0.0]])
    return _Law((knots, upper), (loss[:n].copy(), mass[:n].copy()), knots, below, above)


class Direct:
    def __init__(self, sigma, q, counts, direction) -> None:
        self.sign = 1.0 if direction == "remove" else -1.0
        self.leaves: list[tuple[float, float]] = []
        self.nodes: list[tuple[int, int]] = []  # children; (-1, leaf)
        tops = []
        for s, r, n in zip(sigma, q, counts):
            if n:
                self.leaves.append((float(s), float(r)))
                self.nodes.append((-1, len(self.leaves) - 1))
                tops.append((len(self.nodes) - 1, int(n)))
        self.root = self._tree(tops)
        self.laws: list[_Law] = []
        self.steps = int(np.sum(counts))

    def _tree(self, tops) -> tuple[int, int]:
        whole = []
        for k, (leaf, n) in enumerate(tops):
            alone = len(tops) == 1
            whole.append(self._power(leaf, n, {1: leaf}, alone))
        if len(tops) == 1:
            return whole[0]
        while len(whole) > 2:
            a, b = whole.pop(0), whole.pop(0)
            whole.append(self._add(a, b))
        return whole[0], whole[1]

    def _add(self, a, b) -> int:
        self.nodes.append((a, b))
        return len(self.nodes) - 1

    def _power(self, leaf, n, memo, apart=False):
        if n in memo and not apart:
            return memo[n]
        a, b = (n // 2, n // 2) if n % 2 == 0 else (n - 1, 1)
        pair = self._power(leaf, a, memo), self._power(leaf, b, memo)
        if apart:
            return pair
        memo[n] = self._add(*pair)
        return memo[n]

    @property
    def sums(self) -> int:
        return sum(a >= 0 for a, _ in self.nodes)

    # -- grids
    def _span(self, i) -> tuple[float, float]:
        a, b = self.nodes[i]
        if a < 0:
            s, r = self.leaves[b]
            return tuple(sorted(self.sign * _log_g(x, s, r) for x in (-38 * s, 38 * s + 1)))
        raise AssertionError

    def first(self, points: int, reach: float, target: float, solve_epsilon: bool) -> None:
        laws, tilted = [], []
        for i, (a, b) in enumerate(self.nodes):
            if a < 0:
                s, r = self.leaves[b]
                x = np.linspace(-reach * s, 1 + reach * s, points)
                knots = np.unique(np.concatenate([self._span(i), [self.sign * _log_g(v, s, r) for v in x]]))
                laws.append(self._leaf(b, knots))
        theta = 2.0 ** np.arange(-4.0, 45.0, 0.5)
        k = np.zeros(theta.size)
        counts = self._multiplicity()
        least = 0.0
        j = 0
        for i, (a, b) in enumerate(self.nodes):
            if a < 0:
                knots, mass = laws[j].up
                j += 1
                with np.errstate(divide="ignore"):
                    w = np.multiply.outer(theta, knots) + np.log(mass)
                k += counts[i] * np.logaddexp.reduce(w, axis=1)
                least += counts[i] * knots[0]
        log_c = theta * np.log(theta) - (1.0 + theta) * np.log1p(theta)
        if solve_epsilon:
            e = (k + log_c - target) / theta
            t = theta[np.argmin(e)]
            self.cap = max(float(e.min()), 0.0)
        else:
            t = theta[np.argmin(k + log_c - theta * target)]
            self.cap = target
        self.theta = t
        leaves, laws = laws, []
        for i, (a, b) in enumerate(self.nodes):
            if a < 0:
                laws.append(leaves.pop(0))
            else:
                laws.append(self._sum(laws[a], laws[b], self._rough_knots(laws[a], laws[b], points, t, self.cap - least)))
        self.laws = laws
        self.rest = self.complements(lambda i, one, two: self._rough_knots(one, two, points, t, self.cap - least))

    def _rough_knots(self, one, two, points, t, top):
        """The sum on a grid from the pairs of knots: some by their number, some by their tilted mass."""
        sums = np.add.outer(one.knots, two.knots).ravel()
        order = np.argsort(sums)
        sums = sums[order]
        w = np.add.outer(*[_tilted(x, t) for x in (one, two)]).ravel()[order]
        w = np.cumsum(np.exp((w - w.max()) / 3.0))
        few = points // 2
        some = sums[: max(int(np.searchsorted(sums, top)), 1)]
        knots = [sums[:1], some[:: max(some.size // few, 1)], sums[np.searchsorted(w, np.linspace(0, w[-1], few)[1:-1])], sums[-1:]]
        return np.unique(np.concatenate(knots))

    def _multiplicity(self):
        out = np.zeros(len(self.nodes))
        for c in self.root:
            out[c] += 1
        for i in range(len(self.nodes) - 1, -1, -1):
            for c in self.nodes[i]:
                if self.nodes[i][0] >= 0:
                    out[c] += out[i]
        return out

    def _leaf(self, b, knots) -> _Law:
        from .kernels import discretise

        s, r = self.leaves[b]
        p, u = np.empty((2, knots.size - 1))
        discretise.masses(s, r, self.sign, knots, p, u)
        return _law(knots, (p, u), (p, u), 1e-13)

    def _sum(self, one: _Law, two: _Law, knots: NDArray) -> _Law:
        from .kernels import direct

        up, down = np.empty((2, knots.size - 1)), np.empty((2, knots.size - 1))
        direct.compose(*one.up, *two.up, knots, up[0], up[1])
        direct.compose(*one.down, *two.down, knots, down[0], down[1])
        return _law(knots, tuple(up), tuple(down), (one.knots.size + two.knots.size) * 4 * _UNIT)

    def complements(self, place) -> list[_Law]:
        """Of every node, the law of all the other steps; `place(i, one, two)` gives the grid of node i's."""
        out: list[_Law | None] = [None] * len(self.nodes)
        a, b = self.root
        out[a], out[b] = self.laws[b], self.laws[a]
        for i in range(len(self.nodes) - 1, -1, -1):
            a, b = self.nodes[i]
            for child, other in ((a, b), (b, a)):
                if a >= 0 and out[child] is None:
                    out[child] = self._sum(out[i], self.laws[other], place(child, out[i], self.laws[other]))
        return out

    def refine(self, points, epsilons, last=False) -> None:
        old, rest, laws = self.laws, self.rest, []
        eps = np.asarray(epsilons)
        for i, (a, b) in enumerate(self.nodes):
            low, high = self._span(i) if a < 0 else (laws[a].knots[0] + laws[b].knots[0], laws[a].knots[-1] + laws[b].knots[-1])
            knots = _place(old[i], rest[i], eps, low, high, points)
            laws.append(self._leaf(b, knots) if a < 0 else self._sum(laws[a], laws[b], knots))
        self.laws = laws
        if not last:
            self.rest = self.complements(
                lambda i, one, two: _place(
                    rest[i], old[i], eps, one.knots[0] + two.knots[0], one.knots[-1] + two.knots[-1], points
                )
            )

    # -- answers
    def delta(self, epsilon, side) -> float:
        from .kernels import direct

        one, two = (getattr(self.laws[i], side) for i in self.root)
        curve, beyond = np.empty((2, two[0].size))
        direct.tails(*two, curve, beyond)
        return direct.hockey_stick(*one, two[0], curve, beyond, epsilon)

    def epsilon(self, delta, side, top) -> float:
        from .kernels import direct

        one, two = (getattr(self.laws[i], side) for i in self.root)
        curve, beyond = np.empty((2, two[0].size))
        direct.tails(*two, curve, beyond)
        f = lambda e: direct.hockey_stick(*one, two[0], curve, beyond, e) - delta
        lo, hi = 0.0, top
        if f(0.0) <= 0: return 0.0
        while f(hi) > 0: lo, hi = hi, 2 * hi
        for _ in range(200):
            mid = 0.5 * (lo + hi)
            if not lo < mid < hi or hi - lo < 1e-13 * hi: break
            if f(mid) > 0: lo = mid
            else: hi = mid
        return hi if side == "up" else lo


def _tilted(law, t):
    p = np.diff(law.below)
    p = np.where(law.below[:-1] < law.above[1:], p, -np.diff(law.above))
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(np.maximum(np.append(p, 0.0), 1e-320)), -1e4) + t * law.knots


def _place(law, rest, epsilon, low, high, points) -> NDArray:
    from .kernels import direct

    ends, harm = np.empty((2, points))
    args = (law.knots, law.below, law.above, rest.knots, rest.below, rest.above, epsilon, low, high)
    # the geometric bisection of the threshold
    a, b = -700.0, 5.0
    best = 0
    for _ in range(24):
        most = 0.5 * (a + b)
        n = direct.partition(*args, math.exp(most), ends, harm)
        if n == 0 or n > points // 2:
            a = most
        else:
            b = most
            if n > points // 3:
                break
    n = direct.partition(*args, math.exp(b), ends, harm)
    edges = np.concatenate([[low], ends[:n]])
    weight = np.concatenate([[0.0], np.cumsum(np.cbrt(harm[:n]))])
    if weight[-1] == 0.0:
        return np.linspace(low, high, points)
    inner = np.interp(np.linspace(0, weight[-1], points - n), weight, edges)
    return np.unique(np.concatenate([edges, inner]))


def _log_g(x, sigma, q):
    t = (2.0 * x - 1.0) / (2.0 * sigma * sigma)
    if q == 1.0 or t > 36.0:
        return t + math.log(q) + (math.log1p((1 - q) / q * math.exp(-t)))
    y = q * math.expm1(t)
    return math.log1p(y) if y > -0.5 else math.log((1.0 - q) + q * math.exp(t))
