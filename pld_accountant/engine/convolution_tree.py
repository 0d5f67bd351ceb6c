"""Partial sums of losses: the tree of sums, their discrete distributions and their grids."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Aim", "DiscreteLoss", "Tree", "discrete_loss", "place", "plant", "thinned"]

_STEPS = 400  # additional cells, which keep cells from being too steep (`kernels.convolve.partition`)


@dataclass(frozen=True)
class Tree:
    """Partial sums, each of two earlier nodes; the two nodes in `root` add up to the whole sum.

    Attributes
    ----------
    nodes : list of (int, int)
        Children of each node; (-1, k) for one step in bucket k.
    uses : list of int
        How often each node enters the whole sum.
    depth : int
        Number of additions on the longest path.
    """

    nodes: list[tuple[int, int]]
    root: tuple[int, int]
    uses: list[int]
    depth: int

    @property
    def sums(self) -> int:
        return sum(a >= 0 for a, _ in self.nodes)


def plant(counts: NDArray) -> Tree:
    """The tree for these numbers of steps in each bucket, at least two in all: by halving, then bucket by bucket."""
    nodes: list[tuple[int, int]] = []
    known: dict[tuple[int, int], int] = {}

    def power(k: int, n: int) -> int:
        if (k, n) not in known:
            half = n // 2 if n % 2 == 0 else 1
            nodes.append((-1, k) if n == 1 else (power(k, n - half), power(k, half)))
            known[k, n] = len(nodes) - 1
        return known[k, n]

    parts = [power(int(k), int(counts[k])) for k in np.flatnonzero(counts)]
    while len(parts) > 1:
        nodes.append((parts.pop(0), parts.pop(0)))
        parts.append(len(nodes) - 1)
    root = nodes.pop()
    uses, depth = [0] * len(nodes), [0] * len(nodes)
    for a in root:
        uses[a] += 1
    for i in range(len(nodes) - 1, -1, -1):
        for child in nodes[i] if nodes[i][0] >= 0 else ():
            uses[child] += uses[i]
    for i, (a, b) in enumerate(nodes):
        depth[i] = 1 + max(depth[a], depth[b]) if a >= 0 else 0
    return Tree(nodes, root, uses, 1 + max(depth))


@dataclass(frozen=True)
class DiscreteLoss:
    """A loss on a grid: (losses, masses) of the upper and of the lower distribution, and the lower masses by cells."""

    knots: NDArray
    up: tuple[NDArray, NDArray]
    down: tuple[NDArray, NDArray]
    cells: NDArray

    @cached_property
    def below(self) -> NDArray:
        return np.concatenate([[0.0], np.cumsum(self.cells)])

    @cached_property
    def above(self) -> NDArray:
        return np.concatenate([np.cumsum(self.cells[::-1])[::-1], [0.0]])


def discrete_loss(knots: NDArray, up: NDArray, down: NDArray, error: float) -> DiscreteLoss:
    """Make a loss from (p, u) of the cells of the upper and of the lower side; `error` is the relative error of each.

    The upper masses carry it once.  The lower losses depend on u / p, which carries that of both.
    """
    from ..kernels import convolve

    mass, loss, merged = np.empty((3, knots.size))
    convolve.spread_up(knots, up[0], up[1], mass)
    n = convolve.merge_down(knots, down[0], down[1], 2.0 * error, loss, merged)
    return DiscreteLoss(knots, (knots, mass), (loss[:n].copy(), merged[:n].copy()), down[0])


@dataclass(frozen=True)
class Aim:
    """What grids are placed for: candidates of epsilon, and a mass that is negligible."""

    epsilons: NDArray
    least: float


def thinned(full: DiscreteLoss, points: int) -> tuple[NDArray, NDArray]:
    """Some of a loss's knots, and the masses between neighbours."""
    some = np.unique(np.linspace(0, full.cells.size, points + 1).astype(int))
    return full.knots[some[:-1]], np.add.reduceat(full.cells, some[:-1])


def place(whole: DiscreteLoss, rest: DiscreteLoss, aim: Aim, ends: tuple[float, float], points: int) -> NDArray:
    """A grid for a partial sum: the cells' cube roots of E (`kernels.convolve`) are about equal."""
    from ..kernels import convolve

    right, harm = np.empty((2, min(points, 6_000) // 6 + _STEPS))
    known = whole.knots, whole.below, whole.above, rest.knots, rest.below, rest.above, aim.epsilons, *ends

    def cells(log_most: float, least: float = aim.least) -> int:
        return convolve.partition(*known, math.exp(log_most), least, right, harm)

    too_fine, fine = -700.0, 5.0
    for _ in range(40):
        middle = 0.5 * (too_fine + fine)
        n = cells(middle)
        too_fine, fine = (middle, fine) if n == 0 else (too_fine, middle)
        if n > 0.7 * right.size:
            break
    n = cells(fine) or cells(fine, np.inf)
    edges = np.concatenate([ends[:1], right[:n], ends[1:]])
    weight = np.concatenate([[0.0], np.cumsum(np.cbrt(harm[:n]))])
    if weight[-1] > 0.0:
        inner = np.interp(np.linspace(0.0, weight[-1], max(points - n, points // 2)), weight, edges[: n + 1])
    else:
        inner = np.linspace(*ends, points)
    return np.unique(np.concatenate([edges, inner]))
