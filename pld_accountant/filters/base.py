"""The interface of all filters: people, with a budget for each person or one budget for all."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from .. import validate
from ..files.saved_state import SavedArrays, SavedState
from ..results import Guarantee

__all__ = ["Filter", "NoisySteps"]

_CONDITION_EACH = (
    " It holds for steps chosen from past releases, as long as each {} depends on the person's own record "
    "and on past releases only, and a person changes nothing else than their own term of the sum: no divisor, "
    "other person's term or stopping time depends on who takes part."
)
_CONDITION_ALL = (
    " It holds for steps chosen from past releases, as long as the {} given is a public bound for every "
    "possible record; the largest one among the present people is not such a bound."
)

_ROUNDING = 1e-12  # to which every budget is met, relative
_MOST_STEPS = 2**53  # above this, a double does not hold every whole number


class Filter(SavedState):
    """Decides who takes part in the coming step, and books the step before anything is released.

    Parameters
    ----------
    num_examples : int
        Number of people.
    individual : bool
        True: a budget for each person, charged with their own norms.  False: one budget for all, charged with the
        largest norm given; the first step that does not fit halts the filter permanently.

    Notes
    -----
    With one budget for all, the norms given to `admit` must bound the norm of every *possible* record, as a public
    clipping norm does; one number is enough.  The largest norm of the present people is not such a bound: halting
    because of it would reveal information about a person.

    Several threads may use one filter: each call holds the filter's lock, so no budget is spent twice.  A copy
    (`copy.copy`, `copy.deepcopy`, `pickle`, or a forked process) has budgets of its own, and the guarantee then covers
    the releases under each copy by themselves.
    """

    _asked: tuple[float, float] | None = None  # the (epsilon, delta) that was asked for
    _given = "norms"  # what `admit` takes

    def __init__(self, num_examples: int, individual: bool, parameters: dict[str, Any]) -> None:
        self._num_examples = validate.count(num_examples, "num_examples", least=1)
        self._individual = validate.flag(individual, "individual")
        self._halted = False
        people = {"num_examples": self._num_examples, "individual": self._individual}
        super().__init__({**parameters, **people})

    @property
    def num_examples(self) -> int:
        """Number of people."""
        return self._num_examples

    @property
    def individual(self) -> bool:
        """Whether each person has their own budget."""
        return self._individual

    @property
    def halted(self) -> bool:
        """True after a filter with one budget for all has refused a step."""
        return self._halted

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """The theorem about everything released under this filter, with its conditions."""

    @abstractmethod
    def admit(self, norms: Any) -> np.ndarray:
        """Decide who takes part in the coming step, and book it: (num_examples,) bool.  Sensitive.

        **Never** let the mask decide when a run ends (``if not mask.any(): break`` reveals private budgets): leave
        refused people out of the batch and of the sum, and take the number of steps that was fixed beforehand.
        """

    def __init_subclass__(cls, **options: Any) -> None:
        """Put the second paragraph of the text of `admit` above into the text of the subclass's `admit`."""
        super().__init_subclass__(**options)
        own, general = cls.__dict__.get("admit"), Filter.admit.__doc__
        if own is not None and own.__doc__ and general:  # python -OO has no texts
            summary, _, details = own.__doc__.partition("\n\n")
            own.__doc__ = "\n\n".join([summary, general.split("\n\n")[1].rstrip(), details])

    @abstractmethod
    def headroom(self) -> np.ndarray:
        """The largest norm each person can still spend in the coming step: (num_examples,).  Sensitive."""

    @abstractmethod
    def spent(self) -> np.ndarray:
        """The spent part of each person's budget, rounded up, at most the budget.  Sensitive."""

    @property
    @abstractmethod
    def active(self) -> np.ndarray:
        """Whether each person has budget left: (num_examples,) bool.  Sensitive, like every value kept for a person."""

    @abstractmethod
    def _book(self, norms: np.ndarray, count: int, **step: Any) -> np.ndarray:
        """Admit and book some equal charges for each budget, or raise and book nothing; how many were admitted."""

    def _restore_halted(self, saved: SavedArrays) -> None:
        self._halted = bool(saved.take("halted", np.bool_, (), least=False, most=not self._individual))

    def _each(self, values: np.ndarray) -> np.ndarray:
        """A value for each person, from a value for each budget."""
        shape = (self._num_examples, *values.shape[1:])
        return values if self._individual else np.broadcast_to(values, shape).copy()

    def _admit(self, norms: Any, steps: int | None = None, **step: Any) -> np.ndarray:
        count = 1 if steps is None else validate.count(steps, "steps", least=1, most=_MOST_STEPS)
        if self._individual:
            if np.shape(norms) != (self._num_examples,):
                raise ValueError(f"{self._given} must have shape ({self._num_examples},), got {np.shape(norms)}")
            array = validate.norms(norms, self._num_examples)
            admitted = self._book(array, count, **step)
        else:
            one = np.ndim(norms) == 0
            array = validate.step_norms(np.reshape(norms, 1) if one else norms, 1 if one else self._num_examples)
            fit = 0 if self._halted else int(self._book(array.max(keepdims=True), count, **step)[0])
            self._halted = fit < count
            admitted = np.full(self._num_examples, fit)
        return admitted > 0 if steps is None else admitted

    def _aim(self, target: Any, implied: Any) -> dict[str, Any]:
        """Keep the (epsilon, delta) for which the budget was chosen, for the guarantee; return it as a parameter.

        Parameters
        ----------
        target : (epsilon, delta) or None
        implied : callable
            From delta to the epsilon that the budget implies.

        Raises
        ------
        ValueError
            If the budget does not imply it.
        """
        if target is None:
            return {}
        if np.ndim(target) != 1 or len(target) != 2:
            raise ValueError(f"target must be a pair (epsilon, delta), got {target!r}")
        self._asked = validate.positive(target[0], "epsilon"), validate.delta(target[1])
        if not implied(self._asked[1]) <= self._asked[0] * (1 + _ROUNDING):
            raise ValueError(f"target must be implied by the budget, got (epsilon, delta) = {self._asked}")
        return {"target": self._asked}

    def _promise(self, notion: str) -> str:
        """The beginning of the guarantee, led by the (epsilon, delta) that was asked for."""
        if self._asked is None:
            return f"Everything released is {notion}"
        epsilon, delta = self._asked
        asked = f"(epsilon, delta)-DP, epsilon = {epsilon!r}, delta = {delta!r}"
        return f"Everything released is {asked}, because it is {notion}"

    def _condition(self, charged: str = "norm") -> str:
        """The conditions that the caller must meet for the guarantee."""
        condition = _CONDITION_EACH if self._individual else _CONDITION_ALL
        return condition.format(charged) + " The budget is met to a relative 1e-12."


class NoisySteps(Filter):
    """A filter of steps that release the sum of the people's clipped vectors with Gaussian noise.

    The noise of a step has standard deviation noise_multiplier * max_grad_norm in every coordinate.  If max_grad_norm
    is None, the vectors are not clipped, and noise_multiplier is the standard deviation itself.
    """

    _noise_multiplier: float
    _clip: float | None
    _sample_rate = 1.0

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the noise over max_grad_norm, unless a step gives its own."""
        return self._noise_multiplier

    @property
    def max_grad_norm(self) -> float | None:
        """Clipping norm, unless a step gives its own."""
        return self._clip

    @property
    def sample_rate(self) -> float:
        """Poisson sampling rate, unless a step gives its own."""
        return self._sample_rate

    def _step(
        self,
        noise_multiplier: float | None = None,
        max_grad_norm: float | None = None,
        sample_rate: float | None = None,
    ) -> tuple[float, Any, float]:
        """Noise multiplier, clipping norm and sample rate of the coming step: the filter's own unless given."""
        noise, clip, rate = self._noise_multiplier, self._clip, self._sample_rate
        if noise_multiplier is not None:
            noise = validate.noise_multiplier(noise_multiplier)
        if max_grad_norm is not None:
            clip = validate.clipping_norm(max_grad_norm)
        if sample_rate is not None:
            rate = validate.sample_rate(sample_rate)
        if rate < 1 == self._sample_rate:
            raise ValueError("a filter made with sample_rate=1 takes full-batch steps only")
        return noise, clip, rate
