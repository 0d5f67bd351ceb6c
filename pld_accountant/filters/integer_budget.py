"""Filters whose budgets are integers: the base class, and the filters of clipped sums with Gaussian noise.

A budget is 2**62 units.  Each step costs a whole number of units, rounded up.  A sum over millions of steps is
therefore exact and never below the true sum.  For each step it exceeds the true sum by at most one unit (2e-19 of the
budget) plus 2**-49 of the charge.

A budget is met to a relative `TOLERANCE` of 2**-40, about 9e-13.  The reason: budget and charge are rounded to doubles,
and without a tolerance the last bit of the budget would decide whether the 420th of 420 equal steps is admitted.  Only
one step, the last, can use the tolerance.  A step clipped to `headroom` stays strictly within the budget.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from .. import validate
from ..files.saved_state import SavedArrays, belongs
from ..files.store import StoreError
from ..kernels.charge import BUDGET, SLACK, admit_square
from ..rounding import exact
from .base import Filter, NoisySteps

__all__ = ["TOLERANCE", "IntegerBudgetFilter", "NoisyStepFilter", "SquareFilter", "own_shares", "round_up"]

TOLERANCE = SLACK / BUDGET

_SMALLEST_SHARE = 1e-6


def round_up(value: Fraction) -> float:
    """The smallest double not below an exact number."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if nearest == math.inf or Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def own_shares(epsilon: Any, budget: Callable[[float], float]) -> tuple[float, dict[str, Any]]:
    """The largest of some epsilons, and the argument `shares` if they are one for each person.

    Parameters
    ----------
    epsilon : float or array_like, (num_examples,)
        Above 0.
    budget : callable
        From an epsilon to the budget that implies it.

    Raises
    ------
    ValueError
        If somebody's epsilon is not above 0, or implies less than 1e-6 of the largest one's budget.
    """
    validate.in_order(epsilon, "epsilon")
    values = validate.numbers(epsilon, "epsilon")
    if values.ndim == 0:
        return validate.positive(epsilon, "epsilon"), {}
    if values.ndim > 1 or not values.size:
        raise ValueError("epsilon must be a number above 0, or one for each person")
    if not np.all((values > 0) & (values < np.inf)):
        person = int(np.argmin((values > 0) & (values < np.inf)))
        raise ValueError(
            f"epsilon must be above 0 and finite for everybody, got {values[person]} for person {person}; leave "
            "people without a budget out of the filter and of every release"
        )
    each, place = np.unique(values, return_inverse=True)
    budgets = np.array([budget(one) for one in each.tolist()])
    if not budgets[0] > _SMALLEST_SHARE * budgets[-1]:
        raise ValueError(
            f"the smallest epsilon, {float(each[0])!r}, has no budget, or less than {_SMALLEST_SHARE:g} of that of the "
            f"largest, {float(each[-1])!r}: take a filter for each group of people"
        )
    return float(each[-1]), {"shares": np.minimum(budgets / budgets[-1], 1.0)[place]}


class IntegerBudgetFilter(Filter):
    """A filter whose budgets are counted down in integer units; a person has one budget, or one for each order.

    Parameters
    ----------
    orders : int
        0: one budget a person.
    shares : array_like, (num_examples,), optional
        The part of the budget that each person has, above 0 and at most 1; None: everybody has all of it.
    """

    def __init__(
        self,
        num_examples: int,
        individual: bool,
        parameters: dict[str, Any],
        orders: int = 0,
        shares: Any = None,
    ) -> None:
        validate.in_order(shares, "shares")
        self._shares = None if shares is None else validate.numbers(shares, "shares").copy()
        given = {} if self._shares is None else {"shares": self._shares}
        super().__init__(num_examples, individual, {**parameters, **given})
        people = self._num_examples if self._individual else 1
        full: Any = BUDGET
        if self._shares is not None:
            if not self._individual:
                raise ValueError("shares need a budget for each person; individual is False")
            validate.array_shape(self._shares, (self._num_examples,), "epsilon or shares")
            if not np.all((self._shares > _SMALLEST_SHARE) & (self._shares <= 1.0)):
                raise ValueError(f"shares must be above {_SMALLEST_SHARE:g} and at most 1")
            # a part of the budget keeps its own tolerance: the slack of the whole one is taken off beforehand
            full = np.where(self._shares < 1.0, np.floor(self._shares * (1 - 2.0**-50) * BUDGET), BUDGET)
            full = full.astype(np.int64) - np.where(self._shares < 1.0, SLACK, 0)
        self._full = np.empty(people, dtype=np.int64)
        self._full[:] = full
        if orders:
            self._full = np.repeat(self._full[:, None], orders, axis=1)
        self._left = self._full.copy()

    @property
    def active(self) -> np.ndarray:
        """Whether each person has budget left: (num_examples,) bool.  Sensitive, like every value kept for a person."""
        left = self._left if self._left.ndim == 1 else self._left.min(axis=1)
        return self._each(left > 0) & (not self._halted)

    @property
    def units_left(self) -> np.ndarray:
        """The units left of each budget, of 2**62: (budgets,) or (budgets, orders) int64.  Sensitive."""
        return self._left.copy()

    def _renew(self, budgets: Any = slice(None)) -> None:
        """Refill some budgets, by default all; a boolean mask or an index selects them.  A halted filter stays halted.

        The filter's guarantee then holds between two renewals only: for odometers, which add it up.
        """
        self._left[budgets] = self._full[budgets]

    def take_units(self, left: np.ndarray) -> None:
        """Take over saved `units_left`; raise `StoreError` if they do not belong to a filter with these parameters."""
        belongs(left, "left", np.int64, self._left.shape, 0, BUDGET)
        _check_left(left, self._full)
        self._left = np.array(left, order="C")

    def _share_spent(self) -> np.ndarray:
        """Each person's spent part of the whole budget, rounded up, at most 1."""
        used = self._full - self._left
        return self._each(np.where(used > 0, np.minimum(np.nextafter(used / BUDGET, 1), 1), 0.0))

    def _share_left(self) -> np.ndarray:
        """Each person's remaining part of the whole budget, rounded down."""
        return self._each(np.where(self._left < BUDGET, np.nextafter(self._left / BUDGET, 0), 1.0))

    def _by_share(self, epsilon: Callable[[float], float]) -> Any:
        """The epsilon that the whole budget implies, or (num_examples,) if people have parts of it."""
        if self._shares is None:
            return epsilon(1.0)
        shares, place = np.unique(self._shares, return_inverse=True)
        return np.array([epsilon(share) for share in shares.tolist()])[place]

    def _parts(self) -> str:
        """The sentence of the guarantee about people with a part of the budget."""
        if self._shares is None:
            return ""
        least, most = self._shares.min(), self._shares.max()
        return f" Each person has a part of this budget of their own, from {exact(least)} to {exact(most)} of it."

    def _state(self) -> dict[str, np.ndarray]:
        return {"left": self._left, "halted": np.array(self._halted)}

    def _restore(self, saved: SavedArrays) -> None:
        self._left = self._saved_left(saved, self._full)
        self._restore_halted(saved)

    def _saved_left(self, saved: SavedArrays, full: np.ndarray) -> np.ndarray:
        """The saved units left, of those of full budgets."""
        left = saved.take("left", np.int64, self._left.shape, least=0, most=BUDGET)
        _check_left(left, full)
        return left


def _check_left(left: np.ndarray, full: np.ndarray) -> None:
    """Raise `StoreError` if somebody has more units left than their full budget."""
    if np.any(left > full):
        raise StoreError("somebody has more left than their budget")


class NoisyStepFilter(IntegerBudgetFilter, NoisySteps):
    """A filter of noisy steps whose budgets are integers."""

    def __init__(
        self,
        parameters: dict[str, Any],
        *,
        num_examples: int,
        noise_multiplier: float,
        max_grad_norm: float | None,
        individual: bool,
        orders: int = 0,
        shares: Any = None,
    ) -> None:
        self._noise_multiplier = validate.noise_multiplier(noise_multiplier)
        self._clip = None if max_grad_norm is None else validate.clipping_norm(max_grad_norm)
        step = {"noise_multiplier": self._noise_multiplier, "max_grad_norm": self._clip}
        super().__init__(num_examples, individual, {**parameters, **step}, orders, shares)

    @staticmethod
    def _clipping(clip: float | None) -> tuple[float, float]:
        """The largest norm and the reciprocal of the clipping norm, rounded up."""
        return (math.inf, 1.0) if clip is None else (clip, round_up(1 / Fraction(clip)))


class SquareFilter(NoisyStepFilter):
    """A filter of noisy steps whose charge is proportional to the square of the norm."""

    def __init__(self, parameters: dict[str, Any], **arguments: Any) -> None:
        super().__init__(parameters, **arguments)
        self._scales: dict[float, float] = {}

    @abstractmethod
    def _share(self, noise_multiplier: Fraction) -> Fraction:
        """The charge of one full-norm step, as a share of the budget."""

    def _scale_up(self, noise: float) -> float:
        """The charge of one full-norm step in units, rounded up."""
        if noise not in self._scales:
            scale = round_up(self._share(Fraction(noise)) * BUDGET)
            if not scale < math.inf:
                raise ValueError(f"noise_multiplier must be larger for this budget, got {noise!r}")
            self._scales[noise] = scale
        return self._scales[noise]

    def admit(
        self,
        norms: Any,
        *,
        steps: int | None = None,
        noise_multiplier: float | None = None,
        max_grad_norm: float | None = None,
    ) -> np.ndarray:
        """Decide who takes part in the coming step, and book it.

        Parameters
        ----------
        norms : array_like, (num_examples,)
            Norms before clipping, float32 or float64; a norm above max_grad_norm counts as max_grad_norm.  Each
            person's norm must depend on this person's record and on past releases only.  If there is one budget for
            all, one number is enough.
        steps : int, optional
            A stretch of so many steps, for all of which the norms hold.
        noise_multiplier, max_grad_norm : float, optional
            For this step or stretch only, if they differ from the filter's.

        Returns
        -------
        ndarray, (num_examples,) bool
            True: the step is booked and the person takes part.  False: the step exceeds the remaining budget, or no
            budget is left; nothing is booked, and the person must be left out of the release.  Sensitive.
        ndarray, (num_examples,) int64
            If `steps` is given: how many of them are booked.  The person takes part in the first so many.

        Raises
        ------
        ValueError
            For a norm that is NaN, infinite or negative, or of a wrong shape; nothing is booked then.

        **Error**: charges are rounded up; see the module's text for the tolerance.

        **Cost**: about four nanoseconds a person.
        """
        return self._admit(norms, steps, noise_multiplier=noise_multiplier, max_grad_norm=max_grad_norm)

    def _book(self, norms: np.ndarray, count: int, **step: Any) -> np.ndarray:
        noise, clip, _ = self._step(**step)
        admitted = np.empty(norms.size, dtype=np.int64)
        top, inverse = self._clipping(clip)
        if admit_square(norms, top, inverse, self._scale_up(noise), count, self._left, admitted) >= 0:
            raise validate.norm_error(norms)
        return admitted

    def headroom(self, *, noise_multiplier: float | None = None, max_grad_norm: float | None = None) -> np.ndarray:
        """The largest norm that each person can still spend in the coming step, at most max_grad_norm.

        If norms are clipped to it (Feldman and Zrnic, Algorithm 3), a person's last step spends exactly the remaining
        budget.

        Returns
        -------
        ndarray, (num_examples,) float64
            0 for a person without budget.  Sensitive.

        **Error**: rounded down.  A person whose norm is clipped to it is admitted and stays within the budget.
        """
        noise, clip, _ = self._step(noise_multiplier, max_grad_norm)
        scale = self._scale_up(noise)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            ratio = np.sqrt(np.maximum(self._left - 1, 0) / scale) * (1 - 2.0**-48)
        ratio = np.where(self._halted, 0.0, ratio)
        # If a full-norm step fits, the result is max_grad_norm itself and not a rounding below it.
        norm = ratio if clip is None else np.minimum(ratio, 1.0) * clip
        return self._each(norm)
