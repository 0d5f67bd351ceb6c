"""Characteristic functions of bounded losses: those of the Laplace and exponential mechanisms, and of their samples.

Without sampling, the loss l under P has the density s exp((l - c) / 2) / 4 on (-c, c), and P over Q is e^l.  The
Laplace mechanism has s = 1, and two atoms: c with mass 1/2 and -c with mass e^-c / 2.  The exponential mechanism has no
atoms, and the s that makes the mass 1.  On a Poisson sample of rate q the losses are L = log(1 - q + q e^l) under
removal and -L under addition.  With z = theta + i omega, the tilted densities in l are exp((1 + z) L) and exp(-z L),
both times s exp(-(l + c) / 2) / 4.

1. **Quadrature**: panels of half width w have the 32 nodes of Gauss and Legendre.  A panel's error is at most
   (64 / 15) w M / (r^64 (1 - r^-2)), M the largest modulus on the ellipse around the panel whose half axes are
   w (r + 1/r) / 2 and w (r - 1/r) / 2 (Trefethen 2013, Theorem 19.3); r = 6.

   a. At l = x + i y with |y| <= 2, the modulus of 1 - q + q e^l is between cos(y / 2) and 1 times that at x, and its
      argument at most |y|.  So a step aside by x and y multiplies the modulus by at most
      exp((theta + 2) |x| + omega |y|) cos(y / 2)^-theta.  With w (theta + omega + 2) <= 14 and w <= 0.68, the error is
      below 1e-18 of the panel's mass.
   b. Rare steps need fewer panels, for L changes little.  With p the L' at x, the modulus of 1 - q + q e^l is
      (1 - 4 p (1 - p) sin(y / 2)^2)^(1/2) times that at x, and its argument at most p |y| / cos(y / 2).  A step of x
      changes p by a factor of at most e^|x|.  Let w <= 0.16, so that |x| <= 0.5 and |y| <= 0.47 on the ellipse, and
      s = 1.7 L'(c).  A step aside then multiplies the modulus by at most exp((s theta + 2) |x| + s omega |y|) and
      exp(0.3 s theta |y|).  With w (s (theta + omega) + 2) <= 14, the error is below 1e-18 again.

2. **Beyond the band**: in the variable L the tilted density h falls and then rises under removal, and falls under
   addition: the slope of log h is (2 + theta) L' - 3/2, where L' grows with l, or (1 - theta) L' - 3/2.  Its total
   variation is at most h(-c) + h(c), and so the integral with exp(i omega L) is at most 2 (h(-c) + h(c)) / omega.  The
   atoms keep their moduli.

References
----------
Trefethen, "Approximation Theory and Approximation Practice", SIAM (2013).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..gauss_legendre import gauss_legendre
from .base import Spectrum, sampled_loss
from .exponential_sums import products
from .weighted_nodes import LawSteps, WeightedNodes

__all__ = ["BoundedLaw", "BoundedSteps"]

_NODES = 32  # of a panel
_STEEPEST = 14.0  # w (theta + omega + 2), at most
_WIDEST = 0.68, 0.16  # w, at most: steps 1a and 1b
_ASIDE = 1.7  # s over L'(c) of step 1b
_TRUNCATED = 1e-17
_FARTHEST = 64.0  # the last level of the envelope, over 1 / c + theta


class BoundedLaw(NamedTuple):
    """The loss of one step.

    Attributes
    ----------
    cap : float
        c.
    atoms : bool
        Whether there are atoms at -c and c.
    rate : float
        q.
    remove : bool
    """

    cap: float
    atoms: bool
    rate: float = 1.0
    remove: bool = True

    def sampled(self, loss: NDArray) -> NDArray:
        """L at each l."""
        return loss if self.rate == 1.0 else sampled_loss(loss, self.rate)

    def _tilted(self, loss: NDArray, log_mass: NDArray, theta: float) -> NDArray:
        """log of the tilted mass at each l, from the P mass without sampling."""
        exponent = 1.0 + theta if self.remove else -theta
        return log_mass - loss + exponent * self.sampled(loss)

    def _log_density(self, loss: NDArray) -> NDArray:
        """log of the P density of l."""
        log_scale = 0.0 if self.atoms else math.log(-2.0 / math.expm1(-self.cap))
        return 0.5 * (loss - self.cap) - math.log(4.0) + log_scale

    def nodes(self, theta: float, width: float) -> WeightedNodes:
        """Atoms, and nodes of the density that serve frequencies up to `width`: step 1."""
        panels, (x, weight) = self._panels(theta, width), gauss_legendre(_NODES)
        half = self.cap / panels
        loss = ((2.0 * np.arange(panels) + 1.0 - panels)[:, None] * half + half * x).ravel()
        log_mass = self._log_density(loss) + np.tile(np.log(half * weight), panels)
        if self.atoms:
            loss = np.concatenate([loss, [self.cap, -self.cap]])
            log_mass = np.concatenate([log_mass, math.log(0.5) - np.array([0.0, self.cap])])
        exponent = self._tilted(loss, log_mass, theta)
        top = float(exponent.max())
        mass = np.exp(exponent - top)
        total = float(mass.sum())
        share, of_loss = mass / total, 6.0 * self.cap + 6.0 * np.abs(loss)
        # a log mass and 1 + theta losses, each with the round-off of l
        units = top - exponent + 8.0 * np.abs(log_mass) + (2.0 + theta) * of_loss + 64.0
        of_moment = float(share @ units) + math.log2(loss.size) + 16.0 + abs(top)
        found = self.sampled(loss) if self.remove else -self.sampled(loss)
        return WeightedNodes(share, found, top + math.log(total), of_loss, units, of_moment, _TRUNCATED)

    def _panels(self, theta: float, width: float) -> int:
        largest_slope = self.rate * math.exp(self.cap - float(self.sampled(np.array([self.cap]))[0]))
        per_cap = [
            max((slope * (theta + width) + 2.0) / _STEEPEST, 1.0 / widest)
            for slope, widest in zip((1.0, _ASIDE * largest_slope), _WIDEST, strict=True)
        ]
        return math.ceil(min(self.cap * min(per_cap), 2.0**40))

    def spectrum(self, theta: float, spacing: float, m: int, columns: int, work: float) -> Spectrum | None:
        """See `WeightedNodes.spectrum`."""
        cost = products(_NODES * self._panels(theta, m * spacing) + 2, m)
        if float(cost) > work:
            return None
        return self.nodes(theta, m * spacing).spectrum(spacing, m, columns, cost)

    def log_envelope(self, theta: float, levels: NDArray, log_moment: float) -> NDArray:
        """log of a bound of |phi| at and beyond each frequency: step 2."""
        ends = np.array([-self.cap, self.cap])
        slope = np.exp(math.log(self.rate) + ends - self.sampled(ends))
        tilted = self._tilted(ends, self._log_density(ends), theta) - log_moment
        falling = 2.0 * float(np.sum(np.exp(np.minimum(tilted, 600.0)) / slope)) / levels
        atoms = 0.0
        if self.atoms:
            log_mass = math.log(0.5) + 0.5 * (ends - self.cap)
            atoms = float(np.exp(self._tilted(ends, log_mass, theta) - log_moment).sum())
        return np.minimum(np.log((falling + atoms) * (1.0 + 1e-9)), 0.0)


class BoundedSteps(LawSteps):
    """The characteristic functions of a family whose rows are such laws; see `base.CharacteristicSteps`."""

    decays = False
    atomic = False

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of rows."""

    @abstractmethod
    def law(self, row: int) -> BoundedLaw:
        """See `LawSteps`."""

    def envelope_levels(self, theta: float) -> tuple[int, int]:
        """From below every band of this tilt up to where the atoms' part is all that is left."""
        least = min(self.law(k).cap * self.law(k).rate for k in range(self.size))
        lowest = math.floor(2.0 * math.log2(0.05 * theta))
        return lowest, max(math.ceil(2.0 * math.log2(_FARTHEST * (theta + 1.0 / least))), lowest)

    def infinite_mass(self) -> NDArray:
        """None: the losses are bounded."""
        return np.zeros(self.size)
