"""Filters whose budgets are integers, and among them those for clipped sums with Gaussian noise.

A budget is 2**62 units, of which each step costs a whole number, rounded up.  So a sum over millions of
steps is exact and never below the truth; it lies above it by at most one unit (2e-19 of the budget) and
2**-49 of the charge for each step.

A budget is met to a relative `TOLERANCE` of 2**-40, about 9e-13.  A budget and a charge are themselves
rounded to doubles, and without a tolerance the last bit of the budget would decide whether the 420th of 420
equal steps is admitted.  Only a last step can use it up, once; a step clipped to `headroom` stays strictly
within the budget.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np

from .. import validate
from ..files.store import StoreError
from ..kernels.charge import BUDGET, SLACK, admit_square
from .base import Filter

__all__ = ["TOLERANCE", "NoisyStepFilter", "SquareFilter", "UnitFilter", "round_up"]

TOLERANCE = SLACK / BUDGET


def round_up(value: Fraction) -> float:
    """The smallest double not below an exact number."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if nearest == math.inf or Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


class UnitFilter(Filter):
    """A filter whose budgets are counted down in integer units, one or several (one an order) a person."""

    def __init__(self, num_examples: int, individual: bool, parameters: dict[str, Any], orders: int = 0) -> None:
        super().__init__(num_examples, individual, parameters)
        people = self._num_examples if self._individual else 1
        self._left = np.full((people, orders) if orders else people, BUDGET, dtype=np.int64)

    def _each(self, values: np.ndarray) -> np.ndarray:
        """A value for each person from one for each budget."""
        shape = (self._num_examples, *values.shape[1:])
        return values if self._individual else np.broadcast_to(values, shape).copy()

    @property
    def active(self) -> np.ndarray:
        """Who has budget left: (num_examples,) bool.  Sensitive, like every value kept for a person."""
        left = self._left if self._left.ndim == 1 else self._left.min(axis=1)
        return self._each(left > 0) & (not self._halted)

    def _share_spent(self) -> np.ndarray:
        """Spent over budget, rounded up but never above 1."""
        used = BUDGET - self._left
        return self._each(np.where(used > 0, np.minimum(np.nextafter(used / BUDGET, 1), 1), 0.0))

    def _share_left(self) -> np.ndarray:
        """Left over budget, rounded down."""
        return self._each(np.where(self._left < BUDGET, np.nextafter(self._left / BUDGET, 0), 1.0))

    def _state(self) -> dict[str, np.ndarray]:
        return {"left": self._left, "halted": np.array(self._halted)}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        left = arrays["left"]
        if left.shape != self._left.shape or not np.all((left >= 0) & (left <= BUDGET)):
            raise StoreError("the budgets in the file do not belong to a filter with these parameters")
        self._left = np.ascontiguousarray(left, dtype=np.int64)
        self._halted = bool(arrays["halted"])


class NoisyStepFilter(UnitFilter):
    """A filter for steps that add up the people's vectors, each clipped, and Gaussian noise.

    The noise of a step has standard deviation noise_multiplier * max_grad_norm in every coordinate.  Without
    max_grad_norm the vectors are not clipped, and noise_multiplier is the standard deviation itself.
    """

    def __init__(
        self,
        parameters: dict[str, Any],
        *,
        num_examples: int,
        noise_multiplier: float,
        max_grad_norm: float | None,
        individual: bool,
        orders: int = 0,
    ) -> None:
        self._noise_multiplier = validate.noise_multiplier(noise_multiplier)
        self._clip = None if max_grad_norm is None else validate.positive(max_grad_norm, "max_grad_norm")
        step = {"noise_multiplier": self._noise_multiplier, "max_grad_norm": self._clip}
        super().__init__(num_examples, individual, {**parameters, **step}, orders)

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of a step's noise over max_grad_norm, where a step does not say otherwise."""
        return self._noise_multiplier

    @property
    def max_grad_norm(self) -> float | None:
        """Clipping norm, where a step does not say otherwise."""
        return self._clip

    @property
    def sample_rate(self) -> float:
        """Poisson sampling rate, where a step does not say otherwise."""
        return 1.0

    def _step(self, noise_multiplier: float | None, max_grad_norm: float | None) -> tuple[float, float | None]:
        """The coming step's noise multiplier and clip: the filter's own unless given."""
        noise, clip = self._noise_multiplier, self._clip
        if noise_multiplier is not None:
            noise = validate.noise_multiplier(noise_multiplier)
        if max_grad_norm is not None:
            clip = validate.positive(max_grad_norm, "max_grad_norm")
        return noise, clip

    @staticmethod
    def _clipping(clip: float | None) -> tuple[float, float]:
        """The largest norm and the reciprocal of the clipping norm, rounded up."""
        return (math.inf, 1.0) if clip is None else (clip, round_up(1 / Fraction(clip)))


class SquareFilter(NoisyStepFilter):
    """A filter for noisy steps whose charge is proportional to the square of the norm."""

    def __init__(self, parameters: dict[str, Any], **arguments: Any) -> None:
        super().__init__(parameters, **arguments)
        self._scales: dict[float, float] = {}

    @abstractmethod
    def _share(self, noise_multiplier: Fraction) -> Fraction:
        """The share of the budget that one full-norm step costs."""

    def _scale_up(self, noise: float) -> float:
        """Units that one full-norm step costs."""
        if noise not in self._scales:
            scale = round_up(self._share(Fraction(noise)) * BUDGET)
            if not scale < math.inf:
                raise ValueError(f"noise_multiplier must be larger for this budget, got {noise!r}")
            self._scales[noise] = scale
        return self._scales[noise]

    def admit(
        self, norms: Any, *, noise_multiplier: float | None = None, max_grad_norm: float | None = None
    ) -> np.ndarray:
        """Say who takes part in the coming step, and book it.

        Parameters
        ----------
        norms : array_like, (num_examples,)
            Norms before clipping, float32 or float64; those above max_grad_norm count as clipped.  Each
            person's must depend on their own record and on past releases only.  For all together also one
            number.
        noise_multiplier, max_grad_norm : float, optional
            Of this step alone, where they differ from the filter's.

        Returns
        -------
        ndarray, (num_examples,) bool
            True: the step is booked and the person takes part.  False: it would exceed the budget, or
            nothing is left of it; nothing is booked, and the person must be left out of the release.
            Sensitive.

        Raises
        ------
        ValueError
            For a norm that is NaN, infinite or negative, or of a wrong shape; nothing is booked then.

        **Error**: charges are rounded up; see `unit_filter` for the tolerance.

        **Cost**: about a nanosecond a person.
        """
        return self._admit(norms, noise_multiplier=noise_multiplier, max_grad_norm=max_grad_norm)

    def _book(self, norms: np.ndarray, **step: Any) -> np.ndarray:
        noise, clip = self._step(**step)
        mask = np.empty(norms.size, dtype=np.bool_)
        top, inverse = self._clipping(clip)
        if admit_square(norms, top, inverse, self._scale_up(noise), self._left, mask) >= 0:
            raise validate.norm_error(norms)
        return mask

    def headroom(self, *, noise_multiplier: float | None = None, max_grad_norm: float | None = None) -> np.ndarray:
        """The largest norm that each person can still spend in the coming step, at most max_grad_norm.

        Clip to it (Feldman and Zrnic, Algorithm 3) and a person's last step spends exactly what is left.

        Returns
        -------
        ndarray, (num_examples,) float64
            0 for whoever has spent the budget.  Sensitive.

        **Error**: rounded down: whoever is clipped to it is admitted, and stays within the budget.
        """
        noise, clip = self._step(noise_multiplier, max_grad_norm)
        scale = self._scale_up(noise)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            ratio = np.sqrt(np.maximum(self._left - 1, 0) / scale) * (1 - 2.0**-48)
        ratio = np.where(self._halted, 0.0, ratio)
        # A whole step that fits is given as max_grad_norm itself, not as something a rounding below it.
        norm = ratio if clip is None else np.minimum(ratio, 1.0) * clip
        return self._each(norm)
