"""Random allocation: each record takes part in a random few of many Gaussian steps, as in balls-in-bins batches."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .. import validate
from .base import Direction, Enclosure, Mechanism, noise_of_share
from .discrete import Discrete, DiscreteLaw, merged
from .lognormal_sums import CELLS, Ratio, Side, mean_of_lognormals
from .participations import MOST_PARTICIPATIONS, several_participations
from .sampled_gaussian import SampledGaussian

__all__ = ["AllocationSide", "RandomAllocation"]

_LEAST_NOISE = 0.05  # likelihood ratios reach exp(s^2 / 2 + 14 s), s = 1 / noise
_MOST_NOISE = 1e12  # above, ratios of cells differ by round-off
_MOST_BATCHES = 10**9
_WIDEN = 1.0 + 2.0**-50
_SMALLEST = 1e-290  # mass of an infinite loss that may be lost to underflow


@dataclass(frozen=True)
class RandomAllocation:
    """One epoch of Gaussian steps, of which each record takes part in a few: balls-in-bins batches.

    Each record draws its own `participations` steps, uniformly among all sets of so many different steps, independently
    of the other records.  Batches then differ in size.  An epoch is one mechanism; several epochs are a count.

    **Not this sampling**: records that are shuffled and cut into batches of one size.  There, one record's place moves
    the others, and the epsilon is much larger at little noise; see the guide on batches.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of each step's noise divided by the record's largest contribution; from 0.05 to 10^12.
    batches : int
        Steps of an epoch, at least 1 and at most 10^9.
    participations : int
        In how many of them a record takes part, from 1 to `batches`.

    Raises
    ------
    ValueError
        For a parameter out of range.

    Notes
    -----
    With one participation, removal is dominated by the pair (mean over i of N(e_i, sigma^2 I), N(0, sigma^2 I)),
    addition by the same pair in the other order, also if each step is chosen after seeing the ones before.  Both bounds
    are those of this pair, and of compositions of it.

    With k participations in t batches, the upper bound is that of k epochs of floor(t / k) and ceil(t / k) batches, t
    in all, with one participation each.  For a random partition of the batches into blocks of these sizes, and a
    random batch of each block, is a random set of k batches; and a hockey-stick divergence is convex in the pair.  The
    lower bound is that of cells of the outputs (`participations`), or of the sum of all outputs, a Gaussian mechanism
    of noise multiplier sigma sqrt(t) / k.  So both bound the mechanism itself.  They are 1 to 8 % apart
    in most cases, and further at noise multipliers below 1.

    ``rdp`` is infinite: a mass of 1e-35 or less is counted as an infinite loss.

    References
    ----------
    Feldman and Shenfeld (2025), "Privacy amplification by random allocation"; Chua, Ghazi, Harrison, Leeman, Kamath,
    Kumar, Manurangsi, Sinha and Zhang (2024), "Balls-and-bins sampling for DP-SGD", for the pair.  The documentation
    of batches holds a proof for adaptive steps.

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> b = compose([(RandomAllocation(1.0, 2), 1)]).delta(1.0)
    >>> bool(b.lower <= 0.0592065010872353 <= b.upper)
    True
    """

    noise_multiplier: float
    batches: int
    participations: int = 1
    unbounded: ClassVar = True
    neighbours: ClassVar = "added or removed"
    _cells: ClassVar = CELLS

    def __post_init__(self) -> None:
        sigma = validate.noise_multiplier(self.noise_multiplier)
        if not _LEAST_NOISE <= sigma <= _MOST_NOISE:
            raise ValueError(f"noise_multiplier must be from {_LEAST_NOISE} to {_MOST_NOISE:g}, got {sigma}")
        object.__setattr__(self, "noise_multiplier", sigma)
        batches = validate.count(self.batches, "batches", least=1)
        if batches > _MOST_BATCHES:
            raise ValueError(f"batches must be at most {_MOST_BATCHES}, got {batches}")
        k = validate.count(self.participations, "participations", least=1)
        if k > batches:
            raise ValueError(f"participations must be at most batches, got {k} of {batches}")
        object.__setattr__(self, "batches", batches)
        object.__setattr__(self, "participations", k)

    def scaled(self, share: float) -> RandomAllocation | None:
        """See `base.ScalableMechanism`."""
        share = validate.share(share)
        return replace(self, noise_multiplier=noise_of_share(self.noise_multiplier, share)) if share else None

    @property
    def rough(self) -> RandomAllocation:
        """See `base.Enclosed`."""
        return _RoughAllocation(self.noise_multiplier, self.batches, self.participations)

    def _blocks(self) -> list[tuple[int, int]]:
        """Sizes of the blocks with one participation each, and how many there are of a size."""
        size, rest = divmod(self.batches, self.participations)
        return [(n, count) for n, count in ((size, self.participations - rest), (size + 1, rest)) if count]

    def _side(self, side: Side) -> Enclosure:
        found: list[tuple[Mechanism, int]] = []
        slack = 0.0
        for size, count in self._blocks():
            if size == 1:
                found.append((SampledGaussian(self.noise_multiplier, 1.0), count))
            else:
                part = AllocationSide(self.noise_multiplier, size, side, self._cells)
                found.append((part, count))
                # a mass of P is a mass of Q times the value
                slack += count * (part.ratio.slack + 2.0 * part.ratio.moved)
        return Enclosure(found, slack * _WIDEN)

    def below(self) -> Enclosure:
        """See `base.Enclosed`."""
        if self.participations == 1:
            return self._side(Side.LOWER)
        noise = self.noise_multiplier * math.sqrt(self.batches) / self.participations
        if self.participations < min(self.batches, MOST_PARTICIPATIONS + 1):
            part = AllocationSide(self.noise_multiplier, self.batches, Side.LOWER, self._cells, self.participations)
            # of two bounds that hold, the one that keeps more of the divergence
            if part.ratio.divergence > 0.5 / noise**2:
                return Enclosure([(part, 1)], (part.ratio.slack + 2.0 * part.ratio.moved) * _WIDEN)
        return Enclosure([(SampledGaussian(noise * _WIDEN, 1.0), 1)])

    def above(self) -> Enclosure:
        """See `base.Enclosed`."""
        return self._side(Side.UPPER)


class _RoughAllocation(RandomAllocation):
    """Bounds about 0.2 % apart, in 0.1 seconds in place of half a second."""

    _cells: ClassVar = 1000


@dataclass(frozen=True)
class AllocationSide(Discrete):
    """A pair of discrete laws on one side of an epoch; `RandomAllocation` makes it.

    With several participations there is a lower side only.
    """

    noise_multiplier: float
    batches: int
    side: Side
    cells: int
    participations: int = 1

    @property
    def ratio(self) -> Ratio:
        """The law of the likelihood ratio."""
        if self.participations > 1:
            return several_participations(1.0 / self.noise_multiplier, self.batches, self.participations, self.cells)
        return mean_of_lognormals(1.0 / self.noise_multiplier, self.batches, self.side, self.cells)

    def law(self, direction: Direction) -> DiscreteLaw:
        """The losses in one direction, moved by the error of the ratio's values."""
        ratio, upper = self.ratio, self.side is Side.UPPER
        some = (ratio.values > 0.0) & (ratio.masses > 0.0)
        value, mass = ratio.values[some], ratio.masses[some]
        loss = np.log(value)
        infinite = ratio.infinite
        if direction == "remove":
            mass = mass * value
        else:
            loss, mass = -loss[::-1], mass[::-1]
            infinite = float(ratio.masses[~some].sum())
        kept = mass > 0.0
        moved = ratio.moved * 1.01 + 2.0**-50 * np.abs(loss)
        loss = loss + (moved if upper else -moved)
        return _merged(loss[kept], mass[kept], max(infinite, _SMALLEST) if upper else 0.0)


def _merged(loss: NDArray, mass: NDArray, infinite: float) -> DiscreteLaw:
    """The law with losses that ascend; equal ones are one atom.

    No outcome counts as excluded: only bounds of mu need that, and no side is asked for its mu.
    """
    losses, masses, _ = merged(loss, mass)
    return DiscreteLaw(losses, masses, infinite, False)
