"""Steps of several kinds in one family: each row is a row of one of its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from .base import Direction, StepFamily

__all__ = ["MixedSteps"]


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

    def _joined(self, value: Callable[[StepFamily], NDArray]) -> NDArray:
        return np.concatenate([value(p) for p in self._parts])

    def _at(self, row: int) -> tuple[StepFamily, int]:
        part = int(np.searchsorted(self._first, row, side="right")) - 1
        return self._parts[part], row - int(self._first[part])

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """See `base.StepFamily`."""
        return self._joined(lambda p: p.log_moments(theta, exact=exact))

    def _of_steps(
        self, name: str, value: NDArray, row: NDArray, lower_row: NDArray | None, weight: NDArray | None
    ) -> tuple[NDArray, NDArray]:
        low, high = np.empty(row.size), np.empty(row.size)
        for part, first, last in zip(self._parts, self._first[:-1], self._first[1:], strict=True):
            some = (first <= row) & (row < last)
            lower = None if lower_row is None else np.where(lower_row[some] < 0, -1, lower_row[some] - first)
            drawn = None if weight is None else weight[some]
            low[some], high[some] = getattr(part, name)(value[some], row[some] - first, lower, drawn)
        return low, high

    def log_delta_of_step(
        self, epsilon: NDArray, row: NDArray, lower_row: NDArray | None = None, weight: NDArray | None = None
    ) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`."""
        return self._of_steps("log_delta_of_step", epsilon, row, lower_row, weight)

    def epsilon_of_step(
        self, delta: NDArray, row: NDArray, lower_row: NDArray | None = None, weight: NDArray | None = None
    ) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`."""
        return self._of_steps("epsilon_of_step", delta, row, lower_row, weight)

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

    def range_of_losses(self, row: int, reach: float, theta: float) -> tuple[float, float]:
        """See `base.StepFamily`."""
        part, at = self._at(row)
        return part.range_of_losses(at, reach, theta)

    def loss_roundoff(self, counts: NDArray, depth: int) -> tuple[float, float]:
        """The largest factor and the sum of the additive errors of the parts."""
        pieces = np.split(counts, self._first[1:-1])
        found = [p.loss_roundoff(n, depth) for p, n in zip(self._parts, pieces, strict=True) if n.any()]
        scale = max(factor for factor, _ in found)
        # a part's factor applies to its own sum, which the sum of all may cancel: no loss is below minus its cap
        return scale, sum(offset for _, offset in found) + 3.0 * scale * self._negative(counts)

    def _negative(self, counts: NDArray) -> float:
        used = np.flatnonzero(counts)
        return float(sum(counts[k] * max(-self.range_of_losses(int(k), 38.0, 1.0)[0], 0.0) for k in used))

    def truncated(self, reach: float) -> StepFamily:
        """See `base.StepFamily`."""
        return MixedSteps([p.truncated(reach) for p in self._parts])
