"""The filters of steps that are pure DP."""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np

from .. import validate
from ..kernels.charge import BUDGET, admit_square
from ..notions import dp, zcdp
from ..results import Guarantee
from .integer_budget import IntegerBudgetFilter, own_shares, round_up

__all__ = ["ApproximateDPFilter", "PureDPFilter"]

_DOWN, _UP = 1 - 2.0**-51, 1 + 2.0**-51


class PureStepFilter(IntegerBudgetFilter):
    """A filter of steps that are pure DP."""

    _given = "epsilons"

    def __init__(self, num_examples: int, individual: bool, parameters: dict[str, Any], **own: Any) -> None:
        super().__init__(num_examples, individual, parameters, **own)
        # units of one of the budget
        self._scale = round_up(BUDGET / Fraction(self._budget)) if self._budget > 0.0 else math.inf
        if not self._scale < math.inf:
            raise ValueError(f"epsilon must be larger, got one that allows {self._budget!r}")

    @property
    @abstractmethod
    def _budget(self) -> float:
        """The budget of a person who has all of it."""

    @abstractmethod
    def _root_of_charge(self, epsilons: np.ndarray) -> np.ndarray:
        """The root of what steps cost of the budget, within 2^-50; NaN for a negative epsilon."""

    @abstractmethod
    def _affordable(self, left: np.ndarray) -> np.ndarray:
        """The largest epsilon that costs so much of the budget, rounded down."""

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
        with np.errstate(invalid="ignore"):
            # the kernel rounds up by more than the round-off of a root and its square, and it finds a NaN
            root = self._root_of_charge(norms.astype(np.float64))
        if admit_square(root, math.inf, 1.0, self._scale, count, self._left, admitted) >= 0:
            person = int(np.argmin((norms >= 0) & (norms < np.inf)))
            raise ValueError(f"epsilons must be finite and at least 0, got {norms[person]} for person {person}")
        return admitted

    def headroom(self) -> np.ndarray:
        """The largest pure-DP epsilon that each person can still spend, rounded down.  Sensitive."""
        left = np.maximum(self._left - 1, 0) / self._scale * (1 - 2.0**-48)
        return self._each(np.where(self._halted, 0.0, self._affordable(left)))

    def spent(self) -> np.ndarray:
        """Each person's spent budget, rounded up, at most the budget: (num_examples,).  Sensitive."""
        return np.minimum(self._budget * self._share_spent() * _UP, self._budget)

    @property
    def remaining(self) -> np.ndarray:
        """Each person's remaining budget, rounded down: (num_examples,).  Sensitive."""
        return self._budget * self._share_left() * _DOWN


class PureDPFilter(PureStepFilter):
    """Keeps everybody within (epsilon, 0)-DP over steps that are pure DP: the epsilons of a person's steps add up.

    `spent` and `remaining` are epsilons.

    Parameters
    ----------
    epsilon : float or array_like, (num_examples,)
        The budget, one for everybody or one for each person.
    num_examples : int
    individual : bool
        True: a budget for each person, charged with their own epsilons.  False: one budget for all, charged with the
        largest epsilon given; the first step that does not fit halts the filter.  The epsilons must then bound those of
        every *possible* record, as a public bound does; the largest of the present people's does not.

    References
    ----------
    Feldman and Zrnic (2021), Theorems 4.3 and 4.5: an e-DP step has divergences of at most e at every order.  Ebadi,
    Sands and Schneider (2015), "Differential privacy: now it's getting personal", introduced a budget for each person.

    Examples
    --------
    >>> f = PureDPFilter(1.0, num_examples=2)
    >>> f.admit([0.5, 0.3]), f.admit([0.6, 0.3]), f.remaining.round(4)
    (array([ True,  True]), array([False,  True]), array([0.5, 0.4]))
    """

    def __init__(self, epsilon: Any, *, num_examples: int, individual: bool = True) -> None:
        self._epsilon, own = own_shares(epsilon, lambda one: one)
        given = validate.numbers(epsilon, "epsilon") if own else self._epsilon
        super().__init__(num_examples, individual, {"epsilon": given}, **own)
        self._parameters.pop("shares", None)  # they follow from epsilon

    @property
    def _budget(self) -> float:
        return self._epsilon

    def _root_of_charge(self, epsilons: np.ndarray) -> np.ndarray:
        return np.sqrt(epsilons)

    def _affordable(self, left: np.ndarray) -> np.ndarray:
        return left

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, 0)-DP, proven for adaptive steps."""
        return Guarantee(
            "adaptive, pure DP",
            True,
            f"Everything released is (epsilon, 0)-DP, epsilon = {self._epsilon!r}, for the adding or removing of one "
            "person, when every step is pure DP with the epsilons given." + self._parts() + self._condition("epsilon"),
            f"Feldman and Zrnic (2021), Theorem {'4.5' if self._individual else '4.3'}, at every order",
            (self._epsilon, 0.0),
        )


class ApproximateDPFilter(PureStepFilter):
    """Keeps everybody within (epsilon, delta)-DP over steps that are pure DP.

    A step that is e-DP is e tanh(e / 2)-zCDP, which is less than e**2 / 2; the budget is the largest rho that implies
    (epsilon, delta).  `spent` and `remaining` are parts of rho.  For few or large steps `PureDPFilter`, which adds
    epsilons up, admits more.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee.
    num_examples : int
    individual : bool
        True: a budget for each person, charged with their own epsilons.  False: one budget for all, charged with the
        largest epsilon given; the first step that does not fit halts the filter.  The epsilons must then bound those of
        every *possible* record, as a public bound does; the largest of the present people's does not.
    conversion : {"best", "simple"}
        The conversion to rho: see `zcdp.zcdp_rho`.  The paper uses "simple".

    References
    ----------
    Feldman and Zrnic (2021), Theorem 4.8, which charges e**2 / 2; Steinke (2024), "Sharp RDP & zCDP from pure DP",
    Theorem 5, for e tanh(e / 2).

    Examples
    --------
    >>> f = ApproximateDPFilter(1.0, 1e-5, num_examples=2)
    >>> f.admit([0.2, 0.3]), f.headroom().round(4)
    (array([ True, False]), array([0.1459, 0.2478]))
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
        parameters = {"epsilon": self._target[0], "delta": self._target[1], "conversion": conversion}
        super().__init__(num_examples, individual, parameters)

    @property
    def rho(self) -> float:
        """The zCDP budget that implies (epsilon, delta)."""
        return self._rho

    @property
    def _budget(self) -> float:
        return self._rho

    def _root_of_charge(self, epsilons: np.ndarray) -> np.ndarray:
        return np.sqrt(epsilons) * np.sqrt(np.tanh(0.5 * epsilons))

    def _affordable(self, left: np.ndarray) -> np.ndarray:
        return np.asarray(dp.pure_epsilon(rho=left))

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
            "Feldman and Zrnic (2021), Theorem 4.8, with rho by Steinke (2024), Theorem 5",
            self._target,
        )
