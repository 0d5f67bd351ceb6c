"""Stopping rules for noisy gradient descent: noisy counts over people, charged to the budgets of the steps.

Feldman and Zrnic (2021), Section 5, stop by the number of active people or by the accuracy on the training set.  Both
are sums over people of numbers in [0, 1].  Each is released with Gaussian noise, as one more step of the filter, and
only the noisy sum decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import validate
from ..filters.integer_budget import NoisyStepFilter
from ..locked import Locked, held

__all__ = ["ActiveCount", "StoppingRule", "TrainingAccuracy", "count_step", "noisy_count"]


def count_step(filter: NoisyStepFilter, noise: float) -> dict[str, Any]:
    """A noisy count over everybody, as a step of the filter."""
    step: dict[str, Any] = {"noise_multiplier": noise, "max_grad_norm": 1.0}
    if filter.sample_rate < 1:
        step["sample_rate"] = 1.0
    return step


def noisy_count(
    contributions: np.ndarray, filter: NoisyStepFilter, noise: float, rng: np.random.Generator
) -> tuple[np.ndarray, Callable[[], float]]:
    """Book the noisy sum over people of numbers in [0, 1]; a call of the second result draws the noise.

    Parameters
    ----------
    contributions : ndarray, (num_examples,)
        Numbers in [0, 1]; each is reduced to the person's headroom.
    filter : NoisyStepFilter
    noise : float
        Standard deviation of the noise on the sum.

    Returns
    -------
    counted : ndarray, (num_examples,)
        Each person's contribution to the sum.  Sensitive.
    answer : callable
        Draws the noise and returns the noisy sum.
    """
    step = count_step(filter, noise)
    with held(filter):
        room = filter.headroom(**step)
        values = np.minimum(np.asarray(contributions, dtype=np.float64), room)
        # With one budget for all, the charge is that of every possible record, not of the present people.
        admitted = filter.admit(values if filter.individual else min(1.0, float(room[0])), **step)
    counted = np.where(admitted, values, 0.0)
    return counted, lambda: float(counted.sum() + rng.normal(0.0, noise))


class StoppingRule(Locked, ABC):
    """A rule that is evaluated after every `every`-th step; its noisy sum is booked before the noise is drawn.

    Parameters
    ----------
    noise : float
        Standard deviation of the noise on the sum over people.  An evaluation costs each person as much as a gradient
        of full norm at noise multiplier `noise`.
    every : int
        Steps between two evaluations.
    """

    def __init__(self, noise: float, every: int) -> None:
        self.noise = validate.positive(noise, "noise")
        self.every = validate.count(every, "every", least=1)

    def begin(self) -> None:
        """Forget the readings of earlier runs."""

    @abstractmethod
    def contributions(self, parameters: np.ndarray, filter: NoisyStepFilter) -> np.ndarray:
        """A number in [0, 1] for each person."""

    @abstractmethod
    def decide(self, reading: float) -> bool:
        """Whether to stop after this noisy sum."""


class ActiveCount(StoppingRule):
    """Stop when the noisy number of people with budget left is below `least`.

    Examples
    --------
    >>> rule = ActiveCount(least=1000, noise=50.0, every=20)
    >>> rule.decide(1200.5), rule.decide(998.0)
    (False, True)
    """

    def __init__(self, least: float, noise: float, every: int = 1) -> None:
        super().__init__(noise, every)
        self.least = validate.positive(least, "least")

    def contributions(self, parameters: np.ndarray, filter: NoisyStepFilter) -> np.ndarray:
        """1 for each person with budget left, else 0."""
        return filter.active.astype(np.float64)

    def decide(self, reading: float) -> bool:
        """Whether to stop after this noisy sum."""
        return reading < self.least


class TrainingAccuracy(StoppingRule):
    """Stop when the noisy number of correct people reaches a target, or has not grown for some evaluations.

    Each run of `descend` forgets the readings of the runs before it.

    Parameters
    ----------
    correct : callable
        From the parameters to (num_examples,) numbers in [0, 1]: 1 for a person whose record is predicted correctly.
    target : float, optional
        Number of people at which to stop.
    patience : int, optional
        Number of evaluations without a new largest sum after which the run stops.

    Examples
    --------
    >>> rule = TrainingAccuracy(lambda parameters: np.ones(10), noise=1.0, patience=2)
    >>> [rule.decide(reading) for reading in (5.0, 6.0, 5.5, 5.9)]
    [False, False, False, True]
    """

    def __init__(
        self,
        correct: Callable[[np.ndarray], Any],
        noise: float,
        every: int = 1,
        *,
        target: float | None = None,
        patience: int | None = None,
    ) -> None:
        super().__init__(noise, every)
        if target is None and patience is None:
            raise ValueError("target or patience must be given")
        self._correct = correct
        self._target = None if target is None else validate.positive(target, "target")
        self._patience = None if patience is None else validate.count(patience, "patience", least=1)
        self.begin()

    def begin(self) -> None:
        """Forget the readings of earlier runs."""
        self._best, self._since = -np.inf, 0

    def contributions(self, parameters: np.ndarray, filter: NoisyStepFilter) -> np.ndarray:
        """1 for each person whose record is predicted correctly."""
        values = np.asarray(self._correct(parameters), dtype=np.float64)
        if values.shape != (filter.num_examples,) or not np.all((values >= 0) & (values <= 1)):
            raise ValueError(f"correct must return {filter.num_examples} numbers in [0, 1]")
        return values

    def decide(self, reading: float) -> bool:
        """Whether to stop after this noisy sum."""
        self._since = 0 if reading > self._best else self._since + 1
        self._best = max(self._best, reading)
        enough = self._target is not None and reading >= self._target
        return enough or (self._patience is not None and self._since >= self._patience)
