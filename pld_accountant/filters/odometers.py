"""Odometers: nobody is left out of a step; each person can be given a bound on their spent privacy.

The bound for a person is computed from that person's record.  It is sensitive: show it to that person only.  Do not
publish a mean, a maximum or a histogram of such bounds without noise.

`PotentialOdometer` shows one of some fixed epsilons, the lowest whose budget holds what was spent.  It is proven at
every moment, also at one that is chosen from the releases: each level is a filter, and the deltas of the levels add.

`RenyiOdometer` and `GaussianOdometer` run filters of given budgets one after another, for each person.  If a step does
not fit into the rest of the current budget, that budget counts as spent, and the next budget is opened with this step
[1]_ [2]_.  Their bound is proven at restarts only.  For every m, the releases up to the m-th restart of a person's
budgets are bounded by the sum of m budgets.  It is not claimed that the bound given *now* covers the releases up to
now, because now is not a restart.

Several threads may use one odometer: each call holds the odometer's lock.  A copy has budgets of its own.

References
----------
.. [1] Feldman and Zrnic, "Individual privacy accounting via a Renyi filter" (2021), Algorithm 4, Proposition B.1.
.. [2] Koskela, Tobaben and Honkela, "Individual privacy accounting with Gaussian differential privacy" (2023),
   Appendix C.5.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from .. import validate
from ..files.saved_state import SavedArrays, SavedState
from ..kernels.charge import BUDGET
from ..notions import gdp, rdp
from ..results import Guarantee
from .gaussian import GaussianFilter
from .potential import PotentialFilter
from .renyi import RenyiFilter

__all__ = ["GaussianOdometer", "PotentialOdometer", "RenyiOdometer"]

_BETWEEN = (
    "Each budget is met to a relative 1e-12. Nothing is claimed for moments between restarts. The values are "
    "sensitive: for their owner only."
)


class _Odometer(SavedState):
    """A sequence of budgets for each person: one filter for each increment; `_level` counts fully spent budgets."""

    def __init__(self, increment: Any, num_examples: int, parameters: dict[str, Any]) -> None:
        values = np.atleast_1d(validate.numbers(increment, "increment"))
        if values.ndim > 1 or not values.size or not np.all((values > 0) & (values < np.inf)):
            raise ValueError(f"increment must be a number above 0 or a list of such, got {increment!r}")
        self._increments = values
        super().__init__({"increment": float(values[0]) if np.ndim(increment) == 0 else values, **parameters})
        self._num_examples = validate.count(num_examples, "num_examples", least=1)
        self._filters = [self._filter(float(b), self._num_examples) for b in self._increments]
        self._smallest = self._filter(float(self._increments.min()), 1)
        self._level = np.zeros(self._num_examples, dtype=np.int64)

    @abstractmethod
    def _filter(self, budget: float, num_examples: int) -> Any:
        """A filter with this budget."""

    @abstractmethod
    def _total(self, count: np.ndarray) -> np.ndarray:
        """The sum of each person's first `count` budgets: (num_examples,)."""

    @property
    def num_examples(self) -> int:
        """Number of people."""
        return self._num_examples

    @property
    def restarts(self) -> np.ndarray:
        """Number of fully spent budgets of each person: (num_examples,) int64.  Sensitive."""
        return self._level.copy()

    def _places(self) -> np.ndarray:
        """The index of each person's current filter; the last increment repeats."""
        return np.minimum(self._level, len(self._filters) - 1)

    def record(self, norms: Any, **step: Any) -> None:
        """Book one step of everybody before it is released.

        Parameters
        ----------
        norms : array_like, (num_examples,)
            As in `admit` of the filter with the same notion.
        **step
            noise_multiplier, max_grad_norm (and sample_rate) of this step, as in `admit`.

        Raises
        ------
        ValueError
            For a norm that is NaN, infinite or negative, for a wrong shape, or if a step costs more than a whole
            increment; nothing is booked then.
        """
        if "steps" in step:
            raise TypeError("an odometer books one step at a time; call record for each of them")
        array = validate.step_norms(norms, self._num_examples)
        # The largest possible norm, if it is known: an error must not depend on the present people.
        norm = step.get("max_grad_norm") or self._smallest.max_grad_norm or float(array.max())
        self._smallest._renew()
        if not self._smallest.admit([norm], **step)[0]:
            raise ValueError(f"increment must pay for any single step, the smallest does not for norm {norm:g}")
        refused = self._book(array, np.ones(array.size, np.bool_), step)
        self._level[refused] += 1
        for place in np.unique(self._places()[refused]):
            self._filters[place]._renew(refused & (self._places() == place))
        self._book(array, refused, step)

    def _book(self, norms: np.ndarray, who: np.ndarray, step: dict[str, Any]) -> np.ndarray:
        """Book the norms of some people in their current filters; return the people whose step did not fit."""
        places, refused = self._places(), np.zeros(norms.size, np.bool_)
        for place in np.unique(places[who]):
            here = who & (places == place)
            mask = self._filters[place].admit(np.where(here, norms, 0), **step)
            refused |= here & ~mask & (norms > 0)
        return refused

    def _index(self) -> np.ndarray:
        """Number of budgets that bound each person's spending: the fully spent ones, and the current one if begun."""
        begun = np.zeros(self._num_examples, np.bool_)
        places = self._places()
        for place, f in enumerate(self._filters):
            begun |= (places == place) & np.any(f.units_left.reshape(self._num_examples, -1) < BUDGET, axis=1)
        return self._level + begun

    def spent(self) -> np.ndarray:
        """The bound for each person: the sum of the begun budgets, (num_examples,).

        Sensitive; the module's text says what is proven.
        """
        return self._total(self._index())

    def _state(self) -> dict[str, np.ndarray]:
        return {"level": self._level, "left": np.stack([f.units_left for f in self._filters])}

    def _restore(self, saved: SavedArrays) -> None:
        self._level = saved.take("level", np.int64, self._level.shape, least=0, most=2**53)
        each = self._filters[0].units_left.shape
        for f, units in zip(self._filters, saved.take("left", np.int64, (len(self._filters), *each)), strict=True):
            f.take_units(units)

    @classmethod
    def _numbers(cls, parameters: dict[str, Any]) -> int:
        return super()._numbers(parameters) * np.size(parameters["increment"])


def _sum(values: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The sum of the first `count` values, rounded up; the last value repeats."""
    listed = np.minimum(count, values.size)
    total = np.concatenate([[0.0], np.cumsum(values)])[listed] + (count - listed) * values[-1]
    return total * (1 + (values.size + 3) * 2.0**-52)


class RenyiOdometer(_Odometer):
    """Gives each person a bound on their Renyi divergence, proven at restarts only; nobody is left out.

    Parameters
    ----------
    increment : float or array_like
        The consecutive budgets, Renyi divergences in nats; the last one repeats.  Each must pay for any single step.
        The bound exceeds the spent divergence by at most one budget plus the unused rest of each earlier budget, so
        very small budgets make it loose.
    alpha : float
        Order, above 1.
    num_examples, noise_multiplier, max_grad_norm, sample_rate
        As in `RenyiFilter`.

    References
    ----------
    Feldman and Zrnic (2021), Algorithm 4 and Proposition B.1.

    Examples
    --------
    >>> o = RenyiOdometer(0.1, 2, num_examples=2, noise_multiplier=5.0, max_grad_norm=1.0)
    >>> for step in range(3):
    ...     o.record([1.0, 0.5])
    >>> o.spent(), o.restarts
    (array([0.2, 0.1]), array([1, 0]))
    """

    def __init__(
        self,
        increment: Any,
        alpha: float,
        *,
        num_examples: int,
        noise_multiplier: float,
        max_grad_norm: float | None = None,
        sample_rate: float = 1.0,
    ) -> None:
        self._alpha = validate.positive(alpha, "alpha")
        self._step: dict[str, Any] = {
            "noise_multiplier": noise_multiplier,
            "max_grad_norm": max_grad_norm,
            "sample_rate": sample_rate,
        }
        parameters = {"alpha": self._alpha, "num_examples": num_examples, **self._step}
        super().__init__(increment, num_examples, parameters)

    def _filter(self, budget: float, num_examples: int) -> RenyiFilter:
        return RenyiFilter(budget, self._alpha, num_examples=num_examples, **self._step)

    def _total(self, count: np.ndarray) -> np.ndarray:
        return _sum(self._increments, count)

    def epsilon(self, delta: float, *, conversion: str = "best") -> np.ndarray:
        """`spent` as an epsilon at `delta`: (num_examples,).  Sensitive; proven at restarts only, as `spent`."""
        spent = self.spent()
        epsilon = rdp.rdp_epsilon(spent, self._alpha, validate.delta(delta), conversion=conversion)
        return np.where(spent > 0, epsilon, 0.0)

    @property
    def guarantee(self) -> Guarantee:
        """The theorem at each restart."""
        return Guarantee(
            "adaptive, Renyi DP at restarts",
            True,
            "For every m, everything released up to a person's m-th restart is (alpha, B)-Renyi DP for them, "
            f"alpha = {self._alpha!r} and B the sum of the first m increments. " + _BETWEEN,
            "Feldman and Zrnic (2021), Algorithm 4 and Proposition B.1",
        )


class GaussianOdometer(_Odometer):
    """Gives each person a bound on their mu over full-batch steps, proven at restarts only; nobody is left out.

    Parameters
    ----------
    increment : float or array_like
        The consecutive budgets, each a mu; the last one repeats, and their squares add.  Each must pay for any
        single step.
    num_examples, noise_multiplier, max_grad_norm
        As in `GaussianFilter`.

    References
    ----------
    Koskela, Tobaben and Honkela (2023), Appendix C.5.

    Examples
    --------
    >>> o = GaussianOdometer([0.3, 0.4], num_examples=2, noise_multiplier=5.0, max_grad_norm=1.0)
    >>> for step in range(3):
    ...     o.record([1.0, 0.5])
    >>> o.spent(), o.restarts
    (array([0.5, 0.3]), array([1, 0]))
    """

    def __init__(
        self,
        increment: Any,
        *,
        num_examples: int,
        noise_multiplier: float,
        max_grad_norm: float | None = None,
    ) -> None:
        self._step: dict[str, Any] = {"noise_multiplier": noise_multiplier, "max_grad_norm": max_grad_norm}
        super().__init__(increment, num_examples, {"num_examples": num_examples, **self._step})

    def _filter(self, budget: float, num_examples: int) -> GaussianFilter:
        return GaussianFilter(budget, num_examples=num_examples, **self._step)

    def _total(self, count: np.ndarray) -> np.ndarray:
        return np.sqrt(_sum(self._increments**2, count))

    def epsilon(self, delta: float) -> np.ndarray:
        """`spent` as an epsilon at `delta`: (num_examples,).  Sensitive; proven at restarts only, as `spent`."""
        return gdp.epsilon(validate.delta(delta), self.spent())

    @property
    def guarantee(self) -> Guarantee:
        """The theorem at each restart."""
        return Guarantee(
            "adaptive, Gaussian DP at restarts",
            True,
            "For every m, everything released up to a person's m-th restart is mu-GDP for them, mu the root "
            "of the sum of the squares of the first m increments. " + _BETWEEN,
            "Koskela, Tobaben and Honkela (2023), Appendix C.5",
        )


class PotentialOdometer(SavedState):
    """Gives each person an epsilon of Poisson-sampled Gaussian steps that is proven at every moment.

    Parameters
    ----------
    levels : array_like
        The epsilons that can be shown, ascending.
    delta : float
        Each level gets an equal part of it.
    num_examples, noise_multiplier, sample_rate, max_grad_norm, alpha
        As in `PotentialFilter`; the best order is chosen for the highest level.

    Raises
    ------
    ValueError
        If the levels do not ascend, or no budget of at least one full-norm step can be certified for the highest.

    Notes
    -----
    Let ``S_m`` be the budget of level m at delta / M, M the number of levels.  A run that is cut off before ``S_m`` is
    exceeded is (level m, delta / M)-DP by the theorem of `PotentialFilter`.  Whether a run stops at level m is an
    event of this cut-off run.  The sum over the levels gives, for every set O of outcomes on which the shown epsilon
    is at most e, P(O) <= exp(e) Q(O) + delta, for adding and for removing the person.

    Examples
    --------
    >>> o = PotentialOdometer(
    ...     [0.5, 0.75, 1.0], 1e-5, num_examples=3, noise_multiplier=2.0, sample_rate=0.03, max_grad_norm=1.0, alpha=8.0
    ... )
    >>> o.record([1.0, 0.5, 0.0], steps=100)
    >>> o.epsilon()
    array([0.75, 0.5 , 0.  ])
    """

    def __init__(
        self,
        levels: Any,
        delta: float,
        *,
        num_examples: int,
        noise_multiplier: float,
        sample_rate: Any,
        max_grad_norm: float,
        alpha: float | None = None,
    ) -> None:
        values = np.atleast_1d(validate.numbers(levels, "levels"))
        if values.ndim > 1 or not values.size or not np.all((values > 0) & (values < np.inf)):
            raise ValueError(f"levels must be numbers above 0, got {levels!r}")
        if np.any(np.diff(values) <= 0):
            raise ValueError(f"levels must ascend, got {levels!r}")
        part = validate.delta(delta) / values.size
        part -= 2.0**-52 * part
        self._filter = PotentialFilter(
            float(values[-1]),
            part,
            num_examples=num_examples,
            noise_multiplier=noise_multiplier,
            sample_rate=sample_rate,
            max_grad_norm=max_grad_norm,
            alpha=alpha,
        )
        kept = self._filter.parameters
        del kept["epsilon"], kept["individual"]
        super().__init__({**kept, "levels": values, "delta": delta})
        budgets = np.array([self._filter.budget_of(level, part) for level in values.tolist()])
        self._budgets = np.minimum.accumulate(budgets[::-1])[::-1]
        self._levels = np.append(values, np.inf)
        self._beyond = np.zeros(self._filter.num_examples, dtype=np.bool_)

    @property
    def num_examples(self) -> int:
        """Number of people."""
        return self._filter.num_examples

    def record(self, norms: Any, *, steps: int = 1, **step: Any) -> None:
        """Book a step of everybody, or a stretch of equal steps, before it is released.

        Parameters
        ----------
        norms : array_like, (num_examples,)
        steps : int
            A stretch of so many steps, for all of which the norms hold.
        **step
            noise_multiplier, max_grad_norm and sample_rate, as in `PotentialFilter.admit`.

        Raises
        ------
        ValueError
            As `PotentialFilter.admit`; nothing is booked then.
        """
        refused = self._filter.admit(norms, steps=steps, **step) < steps
        # a step that costs nothing is refused, too, once the budget is spent
        self._beyond |= refused & (np.asarray(norms) > 0)

    def spent(self) -> np.ndarray:
        """Each person's charges, in full-norm steps, at most the budget of the highest level: (num_examples,).

        Sensitive.
        """
        return self._filter.spent()

    def epsilon(self) -> np.ndarray:
        """Each person's epsilon at the odometer's delta, one of the levels: (num_examples,).  Sensitive.

        0 for a person who spent nothing; inf beyond the highest level.
        """
        spent = self._filter.spent()
        place = np.where(self._beyond, self._budgets.size, np.searchsorted(self._budgets, spent))
        return np.where((spent > 0) | self._beyond, self._levels[place], 0.0)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP at every stopping time, proven for adaptive steps."""
        delta = self._parameters["delta"]
        return Guarantee(
            "adaptive, approximate DP of sampled Gaussian steps, at every moment",
            True,
            "Everything released up to a moment that is chosen from the releases is (epsilon, delta)-DP for a person, "
            f"epsilon the one shown to them at this moment, delta = {delta!r}: a set of outcomes on which at most "
            "epsilon is shown obeys the inequality of (epsilon, delta)-DP, for the adding or removing of this person. "
            + self._filter.conditions(),
            self._filter.guarantee.reference,
        )

    def _state(self) -> dict[str, np.ndarray]:
        return {**self._filter._state(), "beyond": self._beyond}

    def _restore(self, saved: SavedArrays) -> None:
        beyond = saved.take("beyond", np.bool_, self._beyond.shape)
        self._beyond = beyond | self._filter._restore_spent(saved)
        self._filter._restore_halted(saved)
