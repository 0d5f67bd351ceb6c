"""The filter of steps that are pure DP."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from .. import validate
from ..kernels.charge import BUDGET, admit_square
from ..notions import zcdp
from ..results import Guarantee
from .integer_budget import IntegerBudgetFilter, round_up

__all__ = ["ApproximateDPFilter"]


class ApproximateDPFilter(IntegerBudgetFilter):
    """Keeps everybody within (epsilon, delta)-DP over steps that are pure DP.

    A step that is e-DP is e**2 / 2-zCDP; the budget is the largest rho that implies (epsilon, delta).

    Parameters
    ----------
    epsilon, delta : float
        The guarantee.
    num_examples : int
    individual : bool
        See `Filter`.
    conversion : {"best", "simple"}
        The conversion to rho: see `zcdp.zcdp_rho`.  The paper uses "simple".

    References
    ----------
    Feldman and Zrnic (2021), Theorem 4.8.

    Examples
    --------
    >>> f = ApproximateDPFilter(1.0, 1e-5, num_examples=2)
    >>> f.admit([0.2, 0.3]), f.headroom().round(4)
    (array([ True, False]), array([0.1453, 0.2472]))
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        num_examples: int,
        individual: bool = True,
        conversion: str = "best",
    ) -> None:
        self._target = validate.positive(epsilon, "epsilon"), validate.delta(delta)
        self._rho = zcdp.zcdp_rho(*self._target, conversion=conversion)
        self._scale = round_up(BUDGET / (2 * Fraction(self._rho)))
        parameters = {"epsilon": self._target[0], "delta": self._target[1], "conversion": conversion}
        super().__init__(num_examples, individual, parameters)

    @property
    def rho(self) -> float:
        """The zCDP budget that implies (epsilon, delta)."""
        return self._rho

    def admit(self, epsilons: Any, *, steps: int | None = None) -> np.ndarray:
        """Decide who takes part in the coming step, and book it.

        Parameters
        ----------
        epsilons : array_like, (num_examples,)
            The pure-DP epsilon of the coming step for each person, in nats.  It must depend on this person's record
            and on past releases only.  If there is one budget for all, one number is enough.
        steps : int, optional
            A stretch of so many steps, for all of which the epsilons hold.

        Returns
        -------
        ndarray, (num_examples,) bool
            True: the step is booked and the person takes part.  False: nothing is booked; leave the person out.
        ndarray, (num_examples,) int64
            If `steps` is given: how many of them are booked.

        Raises
        ------
        ValueError
            For an epsilon that is NaN, infinite or negative, or a wrong shape; nothing is booked then.

        **Error**: charges are rounded up; see `integer_budget` for the tolerance.
        """
        return self._admit(epsilons, steps)

    def _book(self, norms: np.ndarray, count: int, **step: Any) -> np.ndarray:
        admitted = np.empty(norms.size, dtype=np.int64)
        if admit_square(norms, math.inf, 1.0, self._scale, count, self._left, admitted) >= 0:
            raise validate.norm_error(norms)
        return admitted

    def headroom(self) -> np.ndarray:
        """The largest pure-DP epsilon that each person can still spend, rounded down.  Sensitive."""
        ratio = np.sqrt(np.maximum(self._left - 1, 0) / self._scale) * (1 - 2.0**-48)
        return self._each(np.where(self._halted, 0.0, ratio))

    def spent(self) -> np.ndarray:
        """Each person's spent rho, rounded up, at most the budget: (num_examples,).  Sensitive."""
        return np.minimum(self._rho * self._share_spent() * (1 + 2.0**-51), self._rho)

    @property
    def remaining(self) -> np.ndarray:
        """Each person's remaining rho, rounded down: (num_examples,).  Sensitive."""
        return self._rho * self._share_left() * (1 - 2.0**-51)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP, proven for adaptive steps."""
        epsilon, delta = self._target
        return Guarantee(
            "adaptive, approximate DP of pure-DP steps",
            True,
            f"Everything released is (epsilon, delta)-DP, epsilon = {epsilon!r}, delta = {delta!r}, for the "
            "adding or removing of one person, when every step is pure DP with the epsilons given."
            + self._condition("epsilon"),
            "Feldman and Zrnic (2021), Theorem 4.8",
        )
