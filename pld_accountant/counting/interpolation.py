"""Steps between two edges, counted as lotteries between them: what makes the buckets cost next to nothing.

A step whose relative norm s lies between the edges a and b of its bucket could be counted as one at b for the upper
bound, and as one at a for the lower: the bounds then lie a bucket apart.  Instead it counts as the mechanism that
draws, openly, whether it is the one at b (with probability w) or the one at a.

**Which w is enough.**  A step with the mean u of the sampled Gaussian has, at every epsilon, the hockey-stick
divergence q H(t; u) with H that of N(u, sigma^2) and N(0, sigma^2), and t real (or one that does not depend on u).  As
dH/du = phi(x) / sigma, x = u / (2 sigma) - t sigma / u, log phi(x) changes with u by

    d log phi(x) / du = t^2 sigma^2 / u^3 - u / (4 sigma^2),

which is least at t = 0.  So r(t) = (H(t; s) - H(t; a)) / (H(t; b) - H(t; a)) is largest at t = 0, and with
r' falling by at most rho = (b - a) b / (4 sigma^2) in its logarithm, r(0) <= l + rho / 8, l = (s - a) / (b - a).  With
w that large the lottery's divergence is nowhere below the step's: it dominates the step (Zhu, Dong and Wang 2022,
Definition 7), and a composition of lotteries dominates the steps' (Theorem 10), both directions alike.

**Which w is few enough.**  Where |t| <= z b / sigma + b^2 / (2 sigma^2), r' grows in its logarithm by at most
rho = (b - a) (z b + b^2 / (2 sigma))^2 / a^3 from a to b: it is exp(rho l) times something that does not grow, and that
has no smaller mean over a lower part of the bucket than over all of it.  So r(t) >= g(l), g(l) = (exp(rho l) - 1) /
(exp(rho) - 1), and there a lottery with w <= g(l) lies nowhere above the step.  Join the lottery's outcomes beyond each
end.  That is post-processing; the joined outcome's t lies beyond its end by at most log(1 + b / (sigma z)), which
z + 1 / z in place of z allows for; and as the tangent of a convex function lies below it, the joined lottery is nowhere
above the step at all.  With probability at most 2 Phi(-z) a step falls where something was joined, so n steps have a
delta of at least the lotteries' less 2 n Phi(-z).  g is convex: steps have together at least the g of their mean l,
each (Jensen's inequality), and only the sum of their l need be known.

**Full batches** (q = 1) need no lottery: Gaussian mechanisms compose to the one whose squared mean is the sum of
theirs, for fractional counts too.  There w = (s^2 - a^2) / (b^2 - a^2) is exact; it lies between l and
l - (b - a) / (4 (a + b)).

**How they are composed.**  Of a person only the number n of steps in a bucket and the sum W of their w is kept.  With
x = log(M_b / M_a), M the moment generating functions at one argument, the n lotteries multiply to

    M_a^(n - W) M_b^W exp(E),   |E| <= n |x|^2 / (8 cos^2(Im(x) / 2)):

the product that fractional counts of the two edges' logarithms give, and an error of second order; or that order
added up, and one of the third (`joining`).

References
----------
Zhu, Dong and Wang (2022), "Optimal accounting of differential privacy via characteristic function".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri_exp

from ..threads import blocks
from .buckets import Buckets

__all__ = ["UNITS", "Counts", "Shares", "least_share", "lost_below", "slope_and_offset"]

UNITS = 256
"""What a step wins, 1 - w, is kept in this many parts of a step."""

_SLACK = 2.0**-20  # units: the round-off of a place in a bucket, whose width is at least 1e-5 of its edge or free
_TAIL = 1e-3  # share of delta that the joined outcomes may cost, all steps together


def _lower_edges(group: Buckets) -> NDArray:
    return np.concatenate([[0.0], group.edges[:-1]])


def _curvature(group: Buckets) -> NDArray:
    """rho / 8: what w needs beyond l."""
    a, b = _lower_edges(group), group.edges
    return np.zeros(b.size) if group.sample_rate == 1.0 else 0.125 * (b - a) * b / (4.0 * group.noise_multiplier**2)


def slope_and_offset(group: Buckets) -> NDArray:
    """What a step at s wins, in units: max((edge - s) slope - offset, 0), rounded down; shape (2, buckets).

    Nothing in the first bucket, whose steps count in whole at its edge.
    """
    a, b = _lower_edges(group), group.edges
    slope = UNITS / (b - a)
    offset = UNITS * _curvature(group) + _SLACK
    narrow = b - a < 1e-5 * b
    slope[0] = slope[narrow] = 0.0
    return np.stack([slope, offset])


def lost_below(group: Buckets) -> NDArray:
    """By how much a step's w may exceed l, or what a full batch needs: (buckets,)."""
    a, b = _lower_edges(group), group.edges
    excess = 0.25 * (b - a) / (a + b) if group.sample_rate == 1.0 else _curvature(group)
    return excess + (1.0 + 2.0**-10) / UNITS


def least_share(group: Buckets, log_tail: float) -> tuple[NDArray, NDArray]:
    """rho and c of w <= c (exp(rho l) - 1), for steps of whose laws exp(log_tail) may lie beyond either end.

    Shape (buckets,) each.
    """
    a, b = _lower_edges(group), group.edges
    z = max(-float(ndtri_exp(log_tail)), 1.0)
    z += 1.0 / z
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        rho = (b - a) * (z * b + b**2 / (2.0 * group.noise_multiplier)) ** 2 / a**3
    if group.sample_rate == 1.0:
        rho = np.where(a > 0.0, 0.0, np.inf)
    # a narrow bucket's steps are counted as if they won nothing
    nothing = (rho >= 700.0) | (b - a < 1e-5 * b)
    rho = np.where(nothing, 0.0, np.maximum(rho, 1e-9))
    return rho, np.where(nothing, 0.0, (1.0 - 1e-12) / np.expm1(np.where(nothing, 1.0, rho)))


@dataclass(frozen=True)
class Shares:
    """How many of everybody's steps count at each edge, in fractions; rows are made when they are asked for.

    Takes the place of an array of counts of shape (people, buckets) where nothing but rows of it are used.

    Attributes
    ----------
    counts : ndarray of integers, shape (people, buckets)
        Steps in each bucket.
    short : ndarray of integers, shape (people, buckets)
        What they win, in units.
    groups : sequence of Buckets
        One after another along the columns.
    log_delta : float, optional
        For the lower bound, the smallest delta that will be asked for; without it the shares are the upper bound's.
    people : ndarray of int, optional
        The rows that are meant; all of them otherwise.
    """

    counts: NDArray
    short: NDArray
    groups: Sequence[Buckets]
    log_delta: float | None = None
    people: NDArray | None = None

    def __len__(self) -> int:
        return len(self.counts) if self.people is None else self.people.size

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.counts.shape[1]

    def of(self, who: NDArray) -> Shares:
        """The same of some people, without a copy."""
        some = replace(self, people=self._places(who))
        if self.log_delta is not None:
            some.__dict__["_below"] = self._below  # which looks at everybody's counts
        return some

    def _places(self, who: slice | NDArray) -> NDArray:
        index = np.arange(*who.indices(len(self))) if isinstance(who, slice) else np.asarray(who, dtype=np.int64)
        return index if self.people is None else self.people[index]

    def goal(self, log_delta: float) -> float:
        """What to ask of the shares in place of a delta of the steps."""
        return log_delta if self.log_delta is None else log_delta + float(np.log1p(_TAIL))

    def whole(self, who: NDArray) -> NDArray:
        """Which of these people's shares are their counts."""
        if self.log_delta is not None:
            return np.zeros(who.size, dtype=bool)
        return ~self.short[self._places(who)].any(axis=1)

    def used(self, who: NDArray) -> NDArray:
        """Which buckets hold a share of any of these people: (buckets,)."""
        used = self.counts[self._places(who)].any(axis=0)
        used[:-1] |= used[1:]
        return used

    def one_step(self, who: NDArray) -> tuple[NDArray, NDArray]:
        """The bucket of the only step of these people that costs anything, and its share at the upper edge."""
        place = self._places(who)
        steps = self.counts[place] > 0
        if self.log_delta is not None:
            steps &= ~self.free
        bucket = np.argmax(steps, axis=1)
        won = self.short[place, bucket] / UNITS
        if self.log_delta is None:
            return bucket, 1.0 - won
        return bucket, self._at_upper_edge(np.ones(who.size), won, bucket)

    def _at_upper_edge(self, steps: NDArray, won: NDArray, bucket: slice | NDArray = np.s_[:]) -> NDArray:
        """Of so many steps in these buckets, how many count at the upper edge for the lower bound."""
        rho, scale, lost, _ = self._below
        place = np.maximum(1.0 - lost[bucket] - won / np.maximum(steps, 1.0), 0.0)
        return steps * scale[bucket] * np.expm1(rho[bucket] * place)

    @cached_property
    def free(self) -> NDArray:
        """Whether there is nothing below a bucket: (buckets,)."""
        return np.concatenate([np.arange(g.size) == 0 for g in self.groups])

    @cached_property
    def _tail(self) -> float:
        """Log of the mass that a step's law may have beyond either end."""
        assert self.log_delta is not None
        most = max(int(self.counts[b].sum(axis=1, dtype=np.int64).max()) for b in blocks(len(self.counts)))
        return self.log_delta + float(np.log(_TAIL / (2.0 * max(most, 1))))

    @cached_property
    def _below(self) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        rho, scale = np.hstack([least_share(g, self._tail) for g in self.groups])
        return rho, scale, np.concatenate([lost_below(g) for g in self.groups]), self.free

    def __getitem__(self, who: slice | NDArray) -> NDArray:
        from ..kernels import interpolate

        place = self._places(who)
        out = np.empty((place.size, self.shape[1]))
        if self.log_delta is None:
            interpolate.shares_up(self.counts, self.short, place, 1.0 / UNITS, out)
        else:
            interpolate.shares_down(self.counts, self.short, place, 1.0 / UNITS, *self._below, out)
        return out

    def lotteries(self, who: NDArray) -> tuple[NDArray, NDArray]:
        """Of each bucket's lotteries, how many there are and half of the most that their variances, w (1 - w), sum to.

        Shape (people, buckets) each.  W (n - W) / n is the most, W the sum of n chances w.
        """
        place = self._places(who)
        steps, won = self.counts[place].astype(np.float64), self.short[place] / UNITS
        above = steps - won if self.log_delta is None else self._at_upper_edge(steps, won)
        half = 0.5 * above * (steps - above) / np.maximum(steps, 1.0)
        return np.where(half > 0.0, steps, 0.0), half

    def take(self, who: NDArray, axis: int = 0) -> NDArray:
        """As ``ndarray.take``, of rows."""
        return self[who]


Counts: TypeAlias = NDArray | Shares
"""Steps in each bucket, whole or in fractions: (people, buckets)."""
