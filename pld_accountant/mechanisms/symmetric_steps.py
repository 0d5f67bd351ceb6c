"""Steps whose losses are symmetric around 0, as those of batches of one size, and their characteristic functions.

Let l ~ N(-mu^2 / 2, mu^2) under Q, mu = 1 / sigma, with the density psi, and L = log(1 - q + q e^l).  For every l > 0
there are two losses: L with the density e^L psi(l) under P, and -L with the density psi(l).  The rest of the mass is an
atom at 0, of (1 - q) (2 Phi(mu / 2) - 1).  With z = theta + i omega,

    M(z) = atom + the integral over l > 0 of psi(l) (exp((1 + z) L) + exp(-z L)).

1. **Quadrature**: on panels of half width w, with the rule and the ellipse of `bounded_law`, step 1.  The largest l is
   T, and G = T / mu^2 + 1/2 is the largest slope of -log psi.

   a. A step aside by x and y multiplies psi by at most exp(G |x| + y^2 / (2 mu^2)), and y <= 2.92 w.  So with
      w (theta + omega + 2 + G) <= 14, w <= 0.68 and w <= mu, the error is below 1e-17 of the panel's mass: the
      exponents add up to at most 4.09 * 14 + 12.4 + 4.3, less log(6^64 / 2.2) = 113.9.
   b. Rare steps: with w <= 0.16 and s as there, w (s (theta + omega) + 2 + G) <= 14.

2. **Tails**: let u = (theta + 1/2) mu^2.  The slope of the log of the first integrand is at most -(l - u) / mu^2.  So
   beyond u + 9 mu lie exp(-40) / 9 of the mass between u and u + mu.  The second integrand falls faster, and has
   T = 9 mu.  If L is much smaller than l, as that of rare steps, T is less: in a cell from a to b the exponent of the
   first integrand is at most (1 + theta) L(b) - (a + mu^2 / 2)^2 / (2 mu^2).  T is the end of the last cell in which
   this exceeds -45 less the log of the number of mu up to u + 9 mu.  As M >= 1, less than exp(-45) of M lies beyond.
3. **Beyond the band**: in the variable L both densities have the slope of a falling line and a sigmoid in log h over l,
   which has three zeros at most.  So the total variation and the ends of each add up to at most 4 sup h, and the
   integral of h exp(i omega L) is at most 4 sup h / omega; that of both is at most 8 sup h / omega.  The atom keeps its
   modulus.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..gauss_legendre import gauss_legendre
from .base import Direction, Spectrum, StepFamily, sampled_loss
from .exponential_sums import products
from .sampled_gaussian import SampledGaussianSteps
from .weighted_nodes import UNIT, LawSteps, WeightedNodes

__all__ = ["SymmetricSteps"]

_WIDEST_CELL = 0.5  # beyond, the difference of two masses would lose digits
_REACH = 38.0
_NODES = 32  # of a panel
_STEEPEST = 14.0  # steps 1a and 1b
_WIDEST = 0.68, 0.16
_ASIDE = 1.7  # s over L'(T)
_TAIL = 9.0
_LOG_LEFT_OUT = -45.0  # step 2
_CELLS = 600  # in the search for T
_SHORT = 12.0  # a T of so many mu is not made smaller
_TRUNCATED = 2e-17  # steps 1 and 2, as a share of the mass
_NODE_TO_PEAK = 0.8  # log of the largest density over that at a node beside it: the slope times half of their distance
_FARTHEST = 64.0  # the last level of the envelope, over theta + 1 / (q mu)
_NEAREST = 1e-12  # end of the losses above 0, in the variable of the noise
_MOST, _MOST_EXACT = 1 << 14, 1 << 20  # nodes of log-moments
_SHARED = 1 << 14  # nodes, at most, that several tilts share
_SMALL = 30.0  # exponents up to which a log-moment is that of an excess over 1


class _Law(NamedTuple):
    """One step: mu, q, and the l beyond which losses are at +infinity."""

    mu: float
    rate: float
    end: float

    @property
    def at_zero(self) -> float:
        """The atom's mass."""
        return (1.0 - self.rate) * math.erf(0.5 * math.sqrt(0.5) * self.mu)

    def _tops(self, theta: float) -> tuple[float, float]:
        """T of the two integrands: step 2."""
        top = (theta + 0.5) * self.mu**2 + _TAIL * self.mu
        if top <= _SHORT * self.mu:
            return min(top, self.end), _TAIL * self.mu
        ends = self.mu * np.sinh(np.linspace(0.0, math.asinh(top / self.mu), _CELLS + 1))
        exponent = (1.0 + theta) * sampled_loss(ends[1:], self.rate) - 0.5 * (ends[:-1] / self.mu + 0.5 * self.mu) ** 2
        much = np.flatnonzero(exponent > _LOG_LEFT_OUT - math.log(top / self.mu))
        return min(float(ends[much[-1] + 1]) if much.size else float(ends[1]), self.end), _TAIL * self.mu

    def _slope(self, l: NDArray | float) -> NDArray:
        """L' at l."""
        at = np.asarray(l, dtype=np.float64)
        return np.exp(math.log(self.rate) + at - sampled_loss(at, self.rate))

    @lru_cache(maxsize=4096)  # noqa: B019 (laws are small, and equal ones share their panels)
    def _panels(self, theta: float, width: float) -> list[tuple[float, int]]:
        """T and the number of panels of each integrand: step 1."""
        found = []
        for top in self._tops(theta):
            steep, slopes = top / self.mu**2 + 2.5, (1.0, _ASIDE * float(self._slope(top)))
            widths = [
                min(_STEEPEST / (slope * (theta + width) + steep), widest, self.mu)
                for slope, widest in zip(slopes, _WIDEST, strict=True)
            ]
            found.append((top, math.ceil(min(0.5 * top / max(widths), 2.0**40))))
        return found

    def _number(self, theta: float, width: float) -> int:
        """Number of nodes."""
        return _NODES * sum(panels for _, panels in self._panels(theta, width)) + 1

    def _nodes(self, theta: float, width: float) -> tuple[NDArray, NDArray, NDArray, NDArray, NDArray]:
        """Losses, logs of their P masses and of their P densities in L, and the round-off of the first two in units.

        The atom comes last.  A node l is wrong by four units of T.
        """
        x, weight = gauss_legendre(_NODES)
        parts = []
        for sign, (top, panels) in zip((1.0, -1.0), self._panels(theta, width), strict=True):
            half = 0.5 * top / panels
            l = ((2.0 * np.arange(panels) + 1.0)[:, None] * half + half * x).ravel()
            loss, slope = sampled_loss(l, self.rate), self._slope(l)
            z = l / self.mu + 0.5 * self.mu
            log_density = -0.5 * z * z - math.log(self.mu * math.sqrt(2.0 * math.pi)) + max(sign, 0.0) * loss
            log_mass = log_density + np.tile(np.log(half * weight), panels)
            of_loss = 4.0 * top * slope + 6.0 * loss
            units = 4.0 * top * z / self.mu + max(sign, 0.0) * of_loss + 8.0 * (z * z + np.abs(log_mass)) + 64.0
            parts.append((sign * loss, log_mass, log_density - np.log(slope), of_loss, units))
        with np.errstate(divide="ignore"):
            atom = np.log([self.at_zero])
        parts.append((np.zeros(1), atom, np.full(1, -np.inf), np.zeros(1), np.full(1, 64.0)))
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))  # type: ignore[return-value]

    def log_moments(self, theta: NDArray, most: int) -> NDArray:
        """K at each tilt, rounded up; that of the Gaussian mechanism where it takes more nodes than `most`.

        Tilts up to 1, and those of three octaves beyond, share the nodes of the largest of them unless these are many.
        """
        largest = float(sampled_loss(np.array(self.end), self.rate)) if self.end < np.inf else np.inf
        found = np.minimum(0.5 * theta * (theta + 1.0) * self.mu**2, theta * largest) * (1.0 + 2.0**-40)
        levels = 2.0 ** (3.0 * np.ceil(np.log2(np.maximum(theta, 1.0)) / 3.0))
        shared = {level: self._number(level, 0.0) <= _SHARED for level in np.unique(levels).tolist()}
        highest = np.where([shared[level] for level in levels.tolist()], levels, theta)
        for one in np.unique(highest).tolist():
            if self._number(one, 0.0) > most:
                continue
            at = np.flatnonzero(highest == one)
            loss, log_mass, _, of_loss, units = self._nodes(one, 0.0)
            for some in np.array_split(at, math.ceil(at.size * loss.size / (1 << 18))):
                k = _log_moments(theta[some], loss, log_mass, of_loss, units)
                found[some] = np.minimum(found[some], np.maximum(k + 4.0 * _TRUNCATED, 0.0))
        return found

    def spectrum(self, theta: float, spacing: float, m: int, columns: int, work: float) -> Spectrum | None:
        """See `WeightedNodes.spectrum`."""
        cost = products(self._number(theta, m * spacing), m)
        if float(cost) > work:
            return None
        loss, log_mass, _, of_loss, units = self._nodes(theta, m * spacing)
        exponent = log_mass + theta * loss
        top = float(exponent.max())
        mass = np.exp(exponent - top)
        total, kept = float(mass.sum()), mass > 0.0
        share, below = mass[kept] / total, top - exponent[kept]
        of_share = below + units[kept] + theta * of_loss[kept]
        of_moment = float(share @ of_share) + loss.size + abs(top)
        nodes = WeightedNodes(
            share, loss[kept], top + math.log(total), of_loss[kept], of_share, of_moment, 2.0 * _TRUNCATED
        )
        return nodes.spectrum(spacing, m, columns, cost)

    def log_envelope(self, theta: float, levels: NDArray, log_moment: float) -> NDArray:
        """log of a bound of |phi| at and beyond each frequency: step 3."""
        loss, log_mass, log_density, _, _ = self._nodes(theta, 0.0)
        largest = float((log_density + theta * loss).max()) + _NODE_TO_PEAK - log_moment
        falling = 8.0 * math.exp(min(largest, 600.0)) / levels
        atom = math.exp(min(float(log_mass[-1]) - log_moment, 0.0))
        return np.minimum(np.log((falling + atom + _TRUNCATED) * (1.0 + 1e-9)), 0.0)


def _log_moments(theta: NDArray, loss: NDArray, log_mass: NDArray, of_loss: NDArray, units: NDArray) -> NDArray:
    """K of nodes at each tilt, rounded up."""
    exponent = np.multiply.outer(theta, loss)
    tilted = log_mass + exponent
    top = tilted.max(axis=1)
    share = np.exp(tilted - top[:, None])
    total, of_losses = share.sum(axis=1), theta * (share @ of_loss)
    k = top + np.log(total)
    error = (share @ units + of_losses) / total + np.abs(k) + loss.size
    # the exact mass 1 never enters the excess over it, whose error shrinks with the losses
    near = top < _SMALL
    small = np.exp(log_mass) * np.expm1(np.minimum(exponent[near], 1.0))
    terms = np.where(exponent[near] < 1.0, small, np.exp(tilted[near]) - np.exp(log_mass))
    excess, size = terms.sum(axis=1), np.abs(terms) @ (units + loss.size)
    k[near] = np.log1p(excess)
    error[near] = (size + np.exp(top[near]) * of_losses[near]) / (1.0 + excess) + np.abs(k[near])
    return k + UNIT * error


class SymmetricSteps(LawSteps):
    """Steps whose curve at epsilons of at least 0, both ways, is that of the sampled Gaussian under removal.

    Parameters
    ----------
    sigma, q : ndarray, shape (size,)
        Noise multipliers and sample rates of the sampled Gaussian.
    direction : {"remove", "add"}
        Both are alike.
    end : float
        Losses beyond the place where Phi(-end) of the sampled Gaussian's mass lies are at +infinity.
    """

    decays = False
    atomic = False

    def __init__(self, sigma: NDArray, q: NDArray, direction: Direction, end: float = np.inf) -> None:
        self.direction: Direction = direction
        self._half = SampledGaussianSteps(sigma, q, "remove", end=end)
        self._mirrored = SampledGaussianSteps(sigma, q, "remove")
        mu, x = 1.0 / self._half.sigma, self._half.part[:, 1]
        # l at x
        ends = np.where(np.isinf(x), np.inf, np.maximum(x - 0.5, _NEAREST) * mu * mu)
        self._laws = [_Law(*law) for law in zip(mu.tolist(), self._half.q.tolist(), ends.tolist(), strict=True)]

    @property
    def whole(self) -> bool:
        """Whether no mass is at +infinity."""
        return self._half.whole

    @property
    def size(self) -> int:
        """Number of rows."""
        return self._half.size

    # ------------------------------------------------------------------ log-moments and characteristic functions

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """K, rounded up, shape (size, tilts); the Gaussian's where that takes too many nodes."""
        return np.stack([law.log_moments(theta, _MOST_EXACT if exact else _MOST) for law in self._laws])

    def law(self, row: int) -> _Law:
        """See `LawSteps`."""
        return self._laws[row]

    def envelope_levels(self, theta: float) -> tuple[int, int]:
        """From below every band of this tilt up to where the atom is all that is left."""
        lowest = math.floor(2.0 * math.log2(0.05 * theta))
        least = min(law.mu * law.rate for law in self._laws)
        return lowest, max(math.ceil(2.0 * math.log2(_FARTHEST * (theta + 1.0 + 1.0 / least))), lowest)

    def infinite_mass(self) -> NDArray:
        """Mass of one step at +infinity, rounded up, shape (size,)."""
        return self._half.infinite_mass()

    def truncated(self, reach: float) -> StepFamily:
        """See `base.StepFamily`."""
        return SymmetricSteps(self._half.sigma, self._half.q, self.direction, reach) if reach < np.inf else self

    # ------------------------------------------------------------------ one step, and discrete distributions

    def log_delta_of_step(self, epsilon: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`; that of the half, as epsilon is at least 0."""
        return self._half.log_delta_of_step(epsilon, row)

    def epsilon_of_step(self, delta: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`."""
        return self._half.epsilon_of_step(delta, row)

    def largest_loss(self) -> NDArray:
        """inf."""
        return self._half.largest_loss()

    def surely_lost(self, deviations: NDArray) -> NDArray:
        """None is known."""
        return np.full((self.size, deviations.size), -np.inf)

    def gaussian_mu(self) -> NDArray:
        """That of the half, whose Gaussian curve is symmetric."""
        return self._half.gaussian_mu()

    def masses(self, row: int, knots: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`.

        A cell of the half from a to b >= a >= 0 has masses p under P and m = (p - u) e^-a under Q.  Its mirror image,
        from -b to -a, has p' = m and u' = m - e^-b p.
        """
        pieces = [knots[:-1]]
        wide = np.diff(knots) > _WIDEST_CELL
        for left, right in zip(knots[:-1][wide], knots[1:][wide], strict=True):
            if right > -_REACH * 20.0 and np.isfinite(right):
                pieces.append(np.linspace(left, right, min(math.ceil((right - left) / _WIDEST_CELL), 1 << 14) + 1)[:-1])
        ends = np.unique(np.concatenate([*pieces, knots[-1:], [0.0] if knots[0] < 0.0 < knots[-1] else []]))
        p, u = np.zeros((2, ends.size - 1))
        positive = ends[ends >= 0.0]
        if positive.size > 1:
            p[-(positive.size - 1) :], u[-(positive.size - 1) :] = self._half.masses(row, positive)
        mirrored = -ends[ends <= 0.0][::-1]
        if mirrored.size > 1:
            own, above = self._mirrored.masses(row, mirrored)
            below = np.maximum(own - above, 0.0) * np.exp(-mirrored[:-1])
            width = np.diff(mirrored)
            rest = (own * -np.expm1(-width) - above) * np.exp(-mirrored[:-1])
            p[: mirrored.size - 1] = below[::-1]
            u[: mirrored.size - 1] = np.clip(rest, 0.0, below)[::-1]
        if ends[0] <= 0.0 <= ends[-1]:
            at = min(int(np.searchsorted(ends, 0.0)), p.size - 1)
            p[at] += self._laws[row].at_zero
            u[at] += self._laws[row].at_zero * -math.expm1(min(float(ends[at]), 0.0))
        cell = np.searchsorted(knots, ends[:-1], side="right") - 1
        fall = np.exp(knots[cell] - ends[:-1])
        mass = np.bincount(cell, p, knots.size - 1)
        above = np.bincount(cell, p * -np.expm1(knots[cell] - ends[:-1]) + u * fall, knots.size - 1)
        return mass, np.clip(above, 0.0, mass)

    def losses(self, row: int, reach: float, number: int) -> NDArray:
        """The half's positive losses, and their mirror images."""
        # the half's loss is 0 at x = 1/2
        top = 1.0 + min(reach, _REACH) * self._half.sigma[row]
        loss = self._half.losses_at(row, np.linspace(0.5, top, number // 2 + 1)[1:])
        return np.concatenate([-loss[::-1], [0.0] if number % 2 else [], loss])

    def typical_loss(self, row: int) -> float:
        """0, which has a mass of its own."""
        return 0.0

    def range_of_losses(self, row: int, reach: float) -> tuple[float, float]:
        """The half's largest loss, both ways."""
        top = max(self._half.range_of_losses(row, reach)[1], 1e-12)
        return -top, top

    def loss_roundoff(self, counts: NDArray, depth: int) -> tuple[float, float]:
        """As the half's; losses below 0 reach the end of the grid, T, which adds to the second error."""
        t = 39.0 / self._half.sigma + 1.0 / self._half.sigma**2
        factor, offset = self._half.loss_roundoff(counts, depth)
        return factor, offset + 3.0 * factor * float(counts @ t)
