"""Poisson samples of mechanisms with a symmetric pair of bounded losses: Laplace, exponential mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .. import deadline, validate
from .base import DeltaSteps, Direction, StepFamily, sampled_loss
from .bounded_law import BoundedLaw, BoundedSteps
from .bounded_range import ExponentialMechanism
from .laplace import Laplace, LaplaceSteps

__all__ = ["SampledBounded", "SampledBoundedSteps"]

_SLACK = 1e-10  # relative, above `base.MASS_ERROR` and the round-off of a few sums
_MOVED = 2.0**-48  # relative, by which a knot may lie beside the loss that it stands for
_CELLS = 4096  # of the chords that bound a log-moment
_MOST_RANGE = 300.0


@dataclass(frozen=True)
class SampledBounded:
    """A Laplace or exponential mechanism on a Poisson sample; `PoissonSampled` makes it.

    Parameters
    ----------
    mechanism : Laplace or ExponentialMechanism
        Its losses are at most 300.
    sample_rate : float
        In (0, 1].

    Raises
    ------
    ValueError
        For a rate out of range or losses above 300.

    Notes
    -----
    With (P, Q) the mechanism's pair and l its loss, removal is dominated by ((1 - q) Q + q P, Q), whose loss is
    log(1 - q + q exp(l)); addition by the same pair in the other order.

    References
    ----------
    Zhu, Dong and Wang (2022), Theorem 11.
    """

    mechanism: Laplace | ExponentialMechanism
    sample_rate: float
    neighbours: ClassVar = "added or removed"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sample_rate", validate.sample_rate(self.sample_rate))
        if not 1.0 / self.mechanism.noise_multiplier <= _MOST_RANGE:
            raise ValueError(f"a sampled mechanism's losses must be at most 300, got {self.mechanism}")

    def __repr__(self) -> str:
        return f"PoissonSampled({self.mechanism}, {self.sample_rate})"

    @property
    def noise_multiplier(self) -> float:
        """That of the mechanism."""
        return self.mechanism.noise_multiplier

    @staticmethod
    def steps(mechanisms: Sequence[SampledBounded], direction: Direction) -> StepFamily:
        """The family with one row for each of these mechanisms."""
        parts = [m.mechanism.steps([m.mechanism], "remove") for m in mechanisms]  # type: ignore[list-item]
        return SampledBoundedSteps(parts, np.array([m.sample_rate for m in mechanisms]), direction)


class SampledBoundedSteps(DeltaSteps, BoundedSteps):
    """Sampled steps, from the masses of the losses without sampling.

    Parameters
    ----------
    parts : sequence of LaplaceSteps
        One row each.
    rates : ndarray, shape (size,)
    direction : {"remove", "add"}
    """

    whole = True

    def __init__(self, parts: Sequence[LaplaceSteps], rates: NDArray, direction: Direction) -> None:
        self._parts, self._rates = list(parts), rates
        self.direction: Direction = direction
        self._cap = np.array([float(p.largest_loss()[0]) for p in parts])
        self._chords: dict[int, tuple[NDArray, NDArray]] = {}

    @property
    def size(self) -> int:
        """Number of rows."""
        return self._rates.size

    def law(self, row: int) -> BoundedLaw:
        """See `LawSteps`."""
        law = self._parts[row].law(0)
        return law._replace(rate=float(self._rates[row]), remove=self.direction == "remove")

    def _unsampled(self, row: int, loss: NDArray) -> NDArray:
        """l of a loss under removal, clipped beyond the largest and smallest.

        It is that of a loss within a relative `_MOVED`: 1 - q is exact from 1/2 on, and below that the division by q is
        that of the loss itself.  Close to the largest loss under addition, l moves much further.
        """
        q = self._rates[row]
        with np.errstate(over="ignore", divide="ignore"):
            excess = np.expm1(loss) / q
            rest = np.maximum(1.0 + excess if q < 0.5 else (np.exp(loss) - (1.0 - q)) / q, 0.0)
            found = np.where(excess > -0.5, np.log1p(np.maximum(excess, -0.5)), np.log(rest))
        return np.clip(found, -self._cap[row] - 1.0, self._cap[row] + 1.0)

    def masses(self, row: int, knots: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`.

        A cell of l from a to b has p and u of P, and Q mass m.  Under removal its mass is (1 - q) m + q p, and u
        becomes q u.  Under addition -l has the law of l, so that its cells from a to b have mass p, and u becomes
        q u / (q + (1 - q) e^a).  Both are relative to the loss at a.  A knot k below all losses lies further down: u
        then becomes p - (p - u) e^(k - loss).
        """
        q, part = self._rates[row], self._parts[row]
        if self.direction == "remove":
            ends = self._unsampled(row, knots)
            p, u = part.masses(0, ends)
            mass, above = (1.0 - q) * self._other_masses(row, ends) + q * p, q * u
            least = sampled_loss(ends[:-1], q)
        else:
            ends = -self._unsampled(row, -knots)
            mass, u = part.masses(0, ends)
            above = q * u / (q + (1.0 - q) * np.exp(ends[:-1]))
            least = -sampled_loss(-ends[:-1], q)
        further = ends[:-1] <= -self._cap[row] - 1.0
        lost = np.where(further, -np.expm1(np.minimum(knots[:-1] - least, 0.0)), 0.0)
        return mass, np.clip(above + (mass - above) * lost, 0.0, mass)

    def _other_masses(self, row: int, ends: NDArray) -> NDArray:
        """Q masses of cells of l: P masses of the mirror images.

        (p - u) e^-a would lose all digits in a wide cell.  `masses` gives an atom at a knot to the cell on its right,
        which is the left one of the mirror image unless the knot is moved.
        """
        part, mirrored = self._parts[row], -ends[::-1]
        at_atom = np.abs(mirrored[1:]) == part.typical_loss(0)
        mirrored[1:] = np.where(at_atom, np.nextafter(mirrored[1:], np.inf), mirrored[1:])
        return part.masses(0, mirrored)[0][::-1]

    def _upper_law(self, row: int) -> tuple[NDArray, NDArray]:
        """Losses and masses of the chords of the curve, which lies below theirs."""
        if row not in self._chords:
            low, high = self.range_of_losses(row, 38.0)
            knots = np.linspace(low, high, _CELLS + 1)
            p, u = self.masses(row, knots)
            right = np.clip(u / -np.expm1(-np.diff(knots)), 0.0, p)
            mass = np.zeros(knots.size)
            mass[1:] += right
            mass[:-1] += p - right
            self._chords[row] = knots, mass
        return self._chords[row]

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """K of the chords, an upper bound: a Renyi divergence keeps the order of curves; (size, tilts)."""
        found = np.empty((self.size, theta.size))
        for row in range(self.size):
            loss, mass = self._upper_law(row)
            exponent = np.multiply.outer(theta, loss)
            small = np.abs(exponent).max(axis=1) < 30.0
            moved = np.expm1(exponent[small])
            total = np.maximum(moved @ mass, -0.99)
            found[row, small] = np.log1p(total) + 1e-11 * (np.abs(moved) @ mass) / (1.0 + total)
            large = exponent[~small]
            top = large.max(axis=1, initial=-np.inf, where=mass > 0.0)
            far = top + np.log(np.exp(np.minimum(large - top[:, None], 0.0)) @ mass)
            found[row, ~small] = far + 1e-11 + 1e-14 * (np.abs(far) + np.abs(top))
        return np.minimum(found, np.multiply.outer(self.largest_loss(), theta))

    def log_delta_of_step(self, epsilon: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        low, high = np.empty((2, row.size))
        for i, (e, k) in enumerate(zip(epsilon.tolist(), row.tolist(), strict=True)):
            deadline.check()
            low[i], high[i] = (self._delta(at, k) for at in (e * (1.0 + _MOVED), e * (1.0 - _MOVED)))
        with np.errstate(divide="ignore"):
            return np.log(low * (1.0 - _SLACK)), np.minimum(np.log(high * (1.0 + _SLACK) + 1e-300), 0.0)

    def _delta(self, epsilon: float, row: int) -> float:
        """delta of one step, but for `_SLACK` and a relative change of epsilon by less than `_MOVED`."""
        top = self.range_of_losses(row, 38.0)[1]
        if epsilon >= top:
            return 0.0
        # knots no further apart than masses are accurate
        knots = np.linspace(epsilon, top, 65 + int(top - epsilon))
        p, u = self.masses(row, knots)
        left = -np.expm1(epsilon - knots[:-1])
        return float((p * left + u * (1.0 - left)).sum())

    def largest_loss(self) -> NDArray:
        """log(1 + q (e^c - 1)) under removal, -log(1 - q + q e^-c) under addition, rounded up."""
        sign = 1.0 if self.direction == "remove" else -1.0
        return sign * sampled_loss(sign * self._cap, self._rates) * (1.0 + 2.0**-46)

    def surely_lost(self, deviations: NDArray) -> NDArray:
        """From the losses without sampling: the mechanism runs on the record with chance q.

        Under removal the chance q Phi(-s) is Phi(-r), and if that is too large, the smallest loss is sure.  Under
        addition the masses are those without the record, which the symmetric pair has at the opposite losses.
        """
        from scipy import special

        found = np.empty((self.size, deviations.size))
        for row, (part, q) in enumerate(zip(self._parts, self._rates, strict=True)):
            if self.direction == "add":
                found[row] = -sampled_loss(-part.surely_lost(deviations)[0], q)
                continue
            log_share = special.log_ndtr(-deviations) - np.log(q)
            known = part.surely_lost(-special.ndtri_exp(np.minimum(log_share, -1e-9)))[0]
            found[row] = sampled_loss(np.where(log_share < -1e-9, known, -self._cap[row]), q)
        return found - 1e-12 * (1.0 + np.abs(found))

    def gaussian_mu(self) -> NDArray:
        """That of the mechanism without sampling, of which the sampled one is a post-processing."""
        return np.array([float(p.gaussian_mu()[0]) for p in self._parts])

    def losses(self, row: int, reach: float, number: int) -> NDArray:
        """Losses even between the smallest and the largest."""
        return np.linspace(*self.range_of_losses(row, reach), number)

    def typical_loss(self, row: int) -> float:
        """Where most of the mass without the record lies."""
        loss = float(sampled_loss(-self._cap[row], self._rates[row]))
        return loss if self.direction == "remove" else -loss

    def range_of_losses(self, row: int, reach: float) -> tuple[float, float]:
        """All losses."""
        low, high = sampled_loss(np.array([-1.0, 1.0]) * self._cap[row], self._rates[row])
        ends = (low, high) if self.direction == "remove" else (-high, -low)
        room = 1e-9 * (ends[1] - ends[0])
        return float(ends[0] - room), float(ends[1] + room)

    def loss_roundoff(self, counts: NDArray, depth: int) -> tuple[float, float]:
        """See `base.StepFamily`: a few units of the loss without sampling, and the sums' as in `LaplaceSteps`."""
        rounding = 2.0**-53 * (4.0 * depth + 64.0)
        return rounding, 3.0 * rounding * float(counts @ self._cap)

    def truncated(self, reach: float) -> StepFamily:
        """The steps themselves: their losses are bounded."""
        return self
