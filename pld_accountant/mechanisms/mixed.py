"""Steps of several kinds in one family: each row is a row of one of its parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .base import CharacteristicSteps, Direction, Spectrum, StepFamily
from .complex_law import ComplexLaw, ContourSteps

__all__ = ["MixedCharacteristicSteps", "MixedSteps", "mixed"]


def mixed(parts: Sequence[StepFamily]) -> StepFamily:
    """One family of all parts' rows, with characteristic functions if all parts have them."""
    if len(parts) == 1:
        return parts[0]
    return (
        MixedCharacteristicSteps(parts) if all(isinstance(p, CharacteristicSteps) for p in parts) else MixedSteps(parts)
    )


class MixedSteps:
    """The rows of several families, one family after another.

    Parameters
    ----------
    parts : sequence of StepFamily
        All in one direction.
    """

    def __init__(self, parts: Sequence[StepFamily]) -> None:
        self._parts = list(parts)
        self._first = np.cumsum([0, *(p.size for p in self._parts)])
        self.direction: Direction = self._parts[0].direction

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self._first[-1])

    @property
    def whole(self) -> bool:
        """Whether all parts are whole."""
        return all(p.whole for p in self._parts)

    @property
    def log_unseen(self) -> float:
        """See `base.StepFamily`; the largest one of all parts."""
        return max(getattr(p, "log_unseen", -math.inf) for p in self._parts)

    def _joined(self, value: Callable[[StepFamily], NDArray]) -> NDArray:
        return np.concatenate([value(p) for p in self._parts])

    def _at(self, row: int) -> tuple[StepFamily, int]:
        part = int(np.searchsorted(self._first, row, side="right")) - 1
        return self._parts[part], row - int(self._first[part])

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """See `base.StepFamily`."""
        return self._joined(lambda p: p.log_moments(theta, exact=exact))

    def _of_steps(self, name: str, value: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        low, high = np.empty(row.size), np.empty(row.size)
        for part, first, last in zip(self._parts, self._first[:-1], self._first[1:], strict=True):
            some = (first <= row) & (row < last)
            low[some], high[some] = getattr(part, name)(value[some], row[some] - first)
        return low, high

    def log_delta_of_step(self, epsilon: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`."""
        return self._of_steps("log_delta_of_step", epsilon, row)

    def epsilon_of_step(self, delta: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`."""
        return self._of_steps("epsilon_of_step", delta, row)

    def largest_loss(self) -> NDArray:
        """See `base.StepFamily`."""
        return self._joined(lambda p: p.largest_loss())

    def surely_lost(self, deviations: NDArray) -> NDArray:
        """See `base.StepFamily`."""
        return self._joined(lambda p: p.surely_lost(deviations))

    def gaussian_mu(self) -> NDArray:
        """See `base.StepFamily`."""
        return self._joined(lambda p: p.gaussian_mu())

    def masses(self, row: int, knots: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`."""
        part, at = self._at(row)
        return part.masses(at, knots)

    def losses(self, row: int, reach: float, number: int) -> NDArray:
        """See `base.StepFamily`."""
        part, at = self._at(row)
        return part.losses(at, reach, number)

    def typical_loss(self, row: int) -> float:
        """See `base.StepFamily`."""
        part, at = self._at(row)
        return part.typical_loss(at)

    def range_of_losses(self, row: int, reach: float) -> tuple[float, float]:
        """See `base.StepFamily`."""
        part, at = self._at(row)
        return part.range_of_losses(at, reach)

    def loss_roundoff(self, counts: NDArray, depth: int) -> tuple[float, float]:
        """The largest factor and the sum of the additive errors of the parts."""
        pieces = np.split(counts, self._first[1:-1])
        found = [p.loss_roundoff(n, depth) for p, n in zip(self._parts, pieces, strict=True) if n.any()]
        scale = max(factor for factor, _ in found)
        # a part's factor applies to its own sum, which the sum of all may cancel: no loss is below minus its cap
        return scale, sum(offset for _, offset in found) + 3.0 * scale * self._negative(counts)

    def _negative(self, counts: NDArray) -> float:
        used = np.flatnonzero(counts)
        return float(sum(counts[k] * max(-self.range_of_losses(int(k), 38.0)[0], 0.0) for k in used))

    def truncated(self, reach: float) -> StepFamily:
        """See `base.StepFamily`."""
        return mixed([p.truncated(reach) for p in self._parts])


class MixedCharacteristicSteps(MixedSteps):
    """The rows of several families that all compute their characteristic functions."""

    _parts: list[CharacteristicSteps]  # type: ignore[assignment]

    @property
    def decays(self) -> bool:
        """Whether those of all parts fall to 0."""
        return all(p.decays for p in self._parts)

    @property
    def partly_decays(self) -> bool:
        """Whether those of some parts do."""
        return any(p.decays for p in self._parts)

    @property
    def atomic(self) -> bool:
        """Whether all losses of all parts are atoms."""
        return all(p.atomic for p in self._parts)

    def _rows(self, rows: NDArray) -> Iterator[tuple[CharacteristicSteps, NDArray, NDArray]]:
        """Each part with the places among `rows` that are its own, and its own numbers of these rows."""
        for part, first, last in zip(self._parts, self._first[:-1], self._first[1:], strict=True):
            at = np.flatnonzero((first <= rows) & (rows < last))
            if at.size:
                yield part, at, rows[at] - first

    def spectrum(
        self, theta: float, spacing: float, m: int, rows: NDArray, columns: int, work: float
    ) -> Spectrum | None:
        """See `base.CharacteristicSteps`."""
        found: dict[str, NDArray] = {}
        for part, at, own in self._rows(rows):
            some = part.spectrum(theta, spacing, m, own, columns, work)
            if some is None:
                return None
            for name in Spectrum.__dataclass_fields__:
                value = getattr(some, name)
                found.setdefault(name, np.empty((rows.size, *value.shape[1:])))[at] = value
        return Spectrum(**found)

    def envelope_levels(self, theta: float) -> tuple[int, int]:
        """From the lowest to the highest of the parts' levels."""
        lowest, highest = zip(*(p.envelope_levels(theta) for p in self._parts), strict=True)
        return min(lowest), max(highest)

    def log_envelope(self, theta: float, levels: NDArray, rows: NDArray, found: Spectrum) -> NDArray:
        """See `base.CharacteristicSteps`."""
        out = np.empty((rows.size, levels.size))
        for part, at, own in self._rows(rows):
            some = found.of(at)
            out[at] = part.log_envelope(theta, levels, own, some)
        return out

    def infinite_mass(self) -> NDArray:
        """See `base.CharacteristicSteps`."""
        return np.concatenate([p.infinite_mass() for p in self._parts])

    def complex_law(self, row: int) -> ComplexLaw | None:
        """See `complex_moments.ContourSteps`; none if the part has no such laws."""
        part, at = self._at(row)
        return part.complex_law(at) if isinstance(part, ContourSteps) else None
