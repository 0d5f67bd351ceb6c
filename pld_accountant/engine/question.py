"""`Question`: what is asked of everybody, epsilon at a delta or delta at an epsilon, made once at the door.

Internally the answer to the second question is log delta, so that 1e-100 keeps its digits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..notions.rdp import epsilon_of_log_moment, log_c
from ..results import Bounds

__all__ = ["DeltaAt", "EpsilonAt", "Question", "together"]


class Question(ABC):
    """One question to everybody.

    Attributes
    ----------
    wants_epsilon : bool
        Whether the answer is epsilon; otherwise it is log delta.
    floor : float
        The smallest answer: 0 for epsilon, -inf for log delta.
    target : float or ndarray, shape (people,)
        The other of the two: *log* delta if the answer is epsilon, else epsilon.
    """

    wants_epsilon: bool
    floor: float

    @property
    @abstractmethod
    def target(self) -> float | NDArray: ...

    @abstractmethod
    def of(self, who: NDArray) -> Question:
        """The question to some of the people."""

    @abstractmethod
    def chernoff(self, k: NDArray, theta: NDArray, target: NDArray | float) -> NDArray:
        """Chernoff (Renyi) bounds of the answer: k (..., tilts) are log-moments, `target` broadcasts against k."""

    def integrand(self, k: NDArray, theta: NDArray, target: NDArray | float) -> NDArray:
        """The function of the tilt that is smallest at the saddle point, the best tilt; arguments as for `chernoff`."""
        return self.chernoff(k, theta, target)

    @abstractmethod
    def bounds(self, lower: NDArray, estimate: NDArray, upper: NDArray, status: NDArray, method: NDArray) -> Bounds:
        """The answer as `Bounds` of epsilon, or of delta itself."""

    def targets(self, people: int) -> NDArray:
        """`target` for each of the people: (people,) contiguous."""
        return np.array(np.broadcast_to(self.target, (people,)), dtype=np.float64)


def _some(value: float | NDArray, who: NDArray) -> float | NDArray:
    return value[who] if isinstance(value, np.ndarray) and value.ndim else value


@dataclass(frozen=True)
class EpsilonAt(Question):
    """epsilon at a delta in (0, 1), one for all or one for each person."""

    delta: float | NDArray
    wants_epsilon = True
    floor = 0.0

    @property
    def target(self) -> float | NDArray:
        """log delta."""
        return np.log(self.delta) if isinstance(self.delta, np.ndarray) else float(np.log(self.delta))

    def of(self, who: NDArray) -> EpsilonAt:
        """See `Question`."""
        return EpsilonAt(_some(self.delta, who))

    def loosened(self, log_factor: float) -> EpsilonAt:
        """The same at a delta that is larger by exp(log_factor)."""
        return self if log_factor == 0.0 else EpsilonAt(self.delta * float(np.exp(log_factor)) * (1.0 + 2.0**-50))

    def chernoff(self, k: NDArray, theta: NDArray, target: NDArray | float) -> NDArray:
        """See `Question`."""
        return np.asarray(epsilon_of_log_moment(k, theta, target))

    def bounds(self, lower: NDArray, estimate: NDArray, upper: NDArray, status: NDArray, method: NDArray) -> Bounds:
        """See `Question`."""
        return Bounds(lower, estimate, upper, status, method)


@dataclass(frozen=True)
class DeltaAt(Question):
    """delta at an epsilon of at least 0, one for all or one for each person."""

    epsilon: float | NDArray
    wants_epsilon = False
    floor = -np.inf

    @property
    def target(self) -> float | NDArray:
        """epsilon."""
        return self.epsilon

    def of(self, who: NDArray) -> DeltaAt:
        """See `Question`."""
        return DeltaAt(_some(self.epsilon, who))

    def chernoff(self, k: NDArray, theta: NDArray, target: NDArray | float) -> NDArray:
        """See `Question`."""
        return k - theta * target + log_c(theta)

    def integrand(self, k: NDArray, theta: NDArray, target: NDArray | float) -> NDArray:
        """The integrand of the inverse transform on the real axis; its pole keeps the tilt away from 0."""
        with np.errstate(over="ignore"):
            return k - theta * target - np.log(theta * (1.0 + theta))

    def bounds(self, lower: NDArray, estimate: NDArray, upper: NDArray, status: NDArray, method: NDArray) -> Bounds:
        """See `Question`; exp rounds to nearest, so each bound moves one double outwards."""
        low = np.nextafter(np.exp(np.minimum(lower, 0.0)), 0.0)
        above = np.minimum(np.nextafter(np.exp(np.minimum(upper, 0.0)), 2.0), 1.0)
        high = np.where(np.isinf(upper), np.where(upper > 0.0, np.inf, 0.0), above)
        return Bounds(low, np.exp(np.minimum(estimate, 0.0)), high, status, method)


def together(questions: Sequence[Question]) -> Question:
    """Questions of one kind, each with one target, as one question with a target for each of as many people."""
    targets = np.array([q.delta if isinstance(q, EpsilonAt) else q.target for q in questions])
    return EpsilonAt(targets) if questions[0].wants_epsilon else DeltaAt(targets)
