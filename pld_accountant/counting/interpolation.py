"""Interpolation of steps between bucket edges: it reduces the cost of bucketing about tenfold.

A step whose relative norm s lies between the edges a and b of its bucket could be counted at b for the upper bound and
at a for the lower bound; the bounds then lie a bucket apart.  Instead it is counted as the mechanism that draws openly
whether it is the one at b (with probability w, the weight of the upper edge) or the one at a (with the lower weight
1 - w).  Notation: H(t; u) is the hockey-stick divergence of N(u, sigma^2) and N(0, sigma^2) at e^t; l = (s - a) /
(b - a) is the place of the step in its bucket.

**Claim 1: the mixture dominates the step if w >= l + rho / 8, rho = (b - a) b / (4 sigma^2).**

1. At every real epsilon, a step with mean u of the sampled Gaussian has either a divergence that does not depend on u,
   or c H(t; u), with c = q under removal and c = q e^(epsilon - t) under addition.  The real t and the factor c depend
   on epsilon, q and the direction, but not on u: it is enough to compare H(t; s) with the mixture for all real t.
2. dH/du = phi(x) / sigma, x = u / (2 sigma) - t sigma / u, and log phi(x) changes with u by

       d log phi(x) / du = t^2 sigma^2 / u^3 - u / (4 sigma^2),

   which is least at t = 0.
3. So r(t) = (H(t; s) - H(t; a)) / (H(t; b) - H(t; a)) is largest at t = 0.  As log r' falls by at most rho there,
   r(0) <= l + rho / 8.
4. With w >= r(0) the mixture's divergence is nowhere below the step's: it dominates the step (Zhu, Dong and Wang 2022,
   Definition 7), and a composition of mixtures dominates the composition of the steps (Theorem 10), in both directions.

**Claim 2: a composition of n mixtures with w <= g(l), g(l) = (exp(rho l) - 1) / (exp(rho) - 1) and
rho = (b - a) (z b + b^2 / (2 sigma))^2 / a^3, has a delta of at most the steps' plus 2 n Phi(-z).**

1. If |t| <= z b / sigma + b^2 / (2 sigma^2), log r' grows by at most rho from a to b.  So r' is exp(rho l) times a
   function that does not grow, and its mean over a lower part of the bucket is at least g(l) of its mean over all of
   it: r(t) >= g(l).  There a mixture with w <= g(l) lies nowhere above the step.
2. Join the mixture's outcomes beyond each end of that range of t.  That is post-processing.  The joined outcome's t
   lies beyond its end by at most log(1 + b / (sigma z)), which z + 1 / z in place of z allows for.  As the tangent of
   a convex function lies below it, the joined mixture is nowhere above the step.
3. With probability at most 2 Phi(-z) a step falls where outcomes were joined.
4. g is convex, so n steps together have at least n times g of their mean l (Jensen): only the sum of their l is needed.

**Full batches** (q = 1) need no mixture: Gaussian mechanisms compose to the Gaussian mechanism whose squared mean is
the sum of theirs, for fractional counts too.  The weight w = (s^2 - a^2) / (b^2 - a^2) loses nothing.  It lies between
l and l - (b - a) / (4 (a + b)), so w = l is enough for the upper bound.  Only l is stored; the lower bound subtracts
(b - a) / (4 (a + b)).

**Composition.**  For each person and bucket the number n of steps and the sum W of their w are kept.  With
x = log(M_b / M_a), M the moment generating functions at one argument, the n mixtures multiply to

    M_a^(n - W) M_b^W exp(E),   |E| <= n |x|^2 / (8 cos^2(Im(x) / 2)):

the product that fractional counts of the two edges give, and an error of second order (`tables.errors.interpolation`).

References
----------
Zhu, Dong and Wang (2022), "Optimal accounting of differential privacy via characteristic function".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .buckets import Buckets

__all__ = ["UNITS", "lower_weight_line", "upper_weight_bound", "weight_rounding"]

UNITS = 256
"""Resolution of the stored lower weight 1 - w: one step is divided into this many units."""

_SLACK = 2.0**-20  # units: round-off of a place in a bucket whose width is at least 1e-5 of its edge
_NARROW = 1e-5  # relative width below which a bucket's steps are counted whole


def _lower_edges(group: Buckets) -> NDArray:
    return np.concatenate([[0.0], group.edges[:-1]])


def _curvature(group: Buckets) -> NDArray:
    """rho / 8 of claim 1."""
    a, b = _lower_edges(group), group.edges
    return np.zeros(b.size) if group.sample_rate == 1.0 else 0.125 * (b - a) * b / (4.0 * group.noise_multiplier**2)


def lower_weight_line(group: Buckets) -> NDArray:
    """A step at s has the lower weight max((edge - s) slope - offset, 0) in units, rounded down; shape (2, buckets).

    The steps of the first bucket are counted whole at its edge.
    """
    a, b = _lower_edges(group), group.edges
    slope = UNITS / (b - a)
    offset = UNITS * _curvature(group) + _SLACK
    slope[0] = slope[b - a < _NARROW * b] = 0.0
    return np.stack([slope, offset])


def weight_rounding(group: Buckets) -> NDArray:
    """How far a step's stored w may exceed its place l, or what a full batch needs: (buckets,)."""
    a, b = _lower_edges(group), group.edges
    excess = 0.25 * (b - a) / (a + b) if group.sample_rate == 1.0 else _curvature(group)
    return excess + (1.0 + 2.0**-10) / UNITS


def upper_weight_bound(group: Buckets, log_tail: float) -> tuple[NDArray, NDArray]:
    """rho and c of w <= c (exp(rho l) - 1) (claim 2), if exp(log_tail) of a step may lie beyond either end.

    Shape (buckets,) each.  c = 0: steps are counted at the lower edge.
    """
    from scipy.special import ndtri_exp

    a, b = _lower_edges(group), group.edges
    z = max(-float(ndtri_exp(log_tail)), 1.0)
    z += 1.0 / z
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        rho = (b - a) * (z * b + b**2 / (2.0 * group.noise_multiplier)) ** 2 / a**3
    if group.sample_rate == 1.0:
        rho = np.where(a > 0.0, 0.0, np.inf)
    whole = (rho >= 700.0) | (b - a < _NARROW * b)
    rho = np.where(whole, 0.0, np.maximum(rho, 1e-9))
    return rho, np.where(whole, 0.0, (1.0 - 1e-12) / np.expm1(np.where(whole, 1.0, rho)))
