"""Odometers: nobody is ever left out; each person can be told a bound on what they have spent.

An odometer runs filters of given budgets back to back, for each person.  When a step does not fit into what
is left of the current budget, that budget is counted as spent and the next one is opened with this step
[1]_ [2]_.

What a person is told is computed from their own record: it is sensitive, and may be shown to that person
and to nobody else; no mean, maximum or histogram of it may be published without noise.  And it is no
promise about any moment: "what was released up to the m-th restart of this person's budgets is bounded by
the sum of m budgets" holds for every m; that the number told *now* bounds what was released until now is
not claimed, because now is not one of those restarts.

References
----------
.. [1] Feldman and Zrnic, "Individual privacy accounting via a Renyi filter" (2021), Algorithm 4,
Proposition B.1. .. [2] Koskela, Tobaben and Honkela, "Individual privacy accounting with Gaussian
differential privacy" (2023),
   Appendix C.5.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from .. import validate
from ..files.saved_state import Stored
from ..files.store import StoreError
from ..kernels.charge import BUDGET
from ..notions import gdp, rdp
from ..results import Guarantee
from .gaussian import GaussianFilter, RenyiFilter

__all__ = ["GaussianOdometer", "RenyiOdometer"]

_BETWEEN = "Nothing is claimed for moments between restarts. The values are sensitive: for their owner only."


class _Odometer(Stored):
    """People on a ladder of budgets: `_level` counts whole budgets spent, one filter a different budget."""

    def __init__(self, increment: Any, num_examples: int, parameters: dict[str, Any]) -> None:
        values = np.atleast_1d(np.asarray(increment, dtype=np.float64))
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
    def _total(self) -> np.ndarray:
        """The sum of the first m budgets, m = 0, 1, ... up to one more than anybody has restarted."""

    @property
    def num_examples(self) -> int:
        """How many people."""
        return self._num_examples

    @property
    def restarts(self) -> np.ndarray:
        """How many budgets each person has left behind: (num_examples,) int64.  Sensitive."""
        return self._level.copy()

    def _places(self) -> np.ndarray:
        """Which of the filters each person is in: the last increment repeats."""
        return np.minimum(self._level, len(self._filters) - 1)

    def record(self, norms: Any, **step: Any) -> None:
        """Book one step, in which everybody takes part, before it is released.

        Parameters
        ----------
        norms : array_like, (num_examples,)
            As in the `admit` of the filter of the same name.
        **step
            noise_multiplier, max_grad_norm (and sample_rate) of this step, as there.

        Raises
        ------
        ValueError
            For a norm that is NaN, infinite or negative, for a wrong shape, or where a step costs more than a
            whole increment; nothing is booked then.
        """
        array = validate.norms(norms, self._num_examples)
        validate.array_shape(array, (self._num_examples,), "norms")
        if not np.all((array >= 0) & (array < np.inf)):
            raise validate.norm_error(array)
        # The largest norm that may occur, where it is known: an error must not depend on the people at hand.
        norm = step.get("max_grad_norm") or self._smallest.max_grad_norm or float(array.max())
        self._smallest._left[:] = BUDGET
        if not self._smallest.admit([norm], **step)[0]:
            raise ValueError(f"increment must pay for any one step, the smallest does not for norm {norm:g}")
        refused = self._book(array, np.ones(array.size, np.bool_), step)
        self._level[refused] += 1
        for place in np.unique(self._places()[refused]):
            self._filters[place]._left[refused & (self._places() == place)] = BUDGET
        self._book(array, refused, step)

    def _book(self, norms: np.ndarray, who: np.ndarray, step: dict[str, Any]) -> np.ndarray:
        """Book the norms of some people in the filters they are in; returns those that did not fit."""
        places, refused = self._places(), np.zeros(norms.size, np.bool_)
        for place in np.unique(places[who]):
            here = who & (places == place)
            mask = self._filters[place].admit(np.where(here, norms, 0), **step)
            refused |= here & ~mask & (norms > 0)
        return refused

    def _index(self) -> np.ndarray:
        """How many budgets bound what each person has spent: those left behind, and the one begun."""
        begun = np.zeros(self._num_examples, np.bool_)
        places = self._places()
        for place, f in enumerate(self._filters):
            begun |= (places == place) & (f._left.reshape(self._num_examples, -1)[:, 0] < BUDGET)
        return self._level + begun

    def spent(self) -> np.ndarray:
        """What each person may be told they have spent: the sum of the budgets begun, (num_examples,).

        Sensitive; see the module's text for what it means.
        """
        return self._total()[self._index()]

    def _state(self) -> dict[str, np.ndarray]:
        return {"level": self._level, "left": np.stack([f._left for f in self._filters])}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        level, left = arrays["level"], arrays["left"]
        if level.shape != self._level.shape or not np.all(level >= 0) or len(left) != len(self._filters):
            raise StoreError("the state in the file does not belong to an odometer with these parameters")
        self._level = np.ascontiguousarray(level, dtype=np.int64)
        for f, units in zip(self._filters, left, strict=True):
            f._restore({"left": units, "halted": np.array(False)})

    def _steps_of(self, values: np.ndarray) -> np.ndarray:
        """0 and the running sums of the increments, the last one repeated as often as anybody needs."""
        count = int(self._level.max()) + 2
        each = np.concatenate([values, np.full(max(count - values.size, 0), values[-1])])
        return np.concatenate([[0.0], np.cumsum(each) * (1 + each.size * 2.0**-52)])


class RenyiOdometer(_Odometer):
    """Tells each person a bound on their Renyi divergence; nobody is left out.

    Parameters
    ----------
    increment : float or array_like
        The budgets that are run back to back, Renyi divergence in nats; the last one repeats.  Each must
        pay for any single step.  What is told overstates by one of them at most; with too small ones their
        leftovers add up.
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

    def _total(self) -> np.ndarray:
        return self._steps_of(self._increments)

    def epsilon(self, delta: float, *, conversion: str = "best") -> np.ndarray:
        """`spent` as an epsilon at `delta`: (num_examples,).  Sensitive, no more of a promise than that."""
        spent = self.spent()
        epsilon = rdp.rdp_epsilon(spent, self._alpha, validate.delta(delta), conversion=conversion)
        return np.where(spent > 0, epsilon, 0.0)

    @property
    def guarantee(self) -> Guarantee:
        """What is proven at each restart."""
        return Guarantee(
            "adaptive, Renyi DP at restarts",
            True,
            "For every m, what was released up to a person's m-th restart is (alpha, B)-Renyi DP for them, "
            f"alpha = {self._alpha!r} and B the sum of the first m increments. " + _BETWEEN,
            "Feldman and Zrnic (2021), Algorithm 4 and Proposition B.1",
        )


class GaussianOdometer(_Odometer):
    """Tells each person a bound on their mu of Gaussian DP over full-batch steps; nobody is left out.

    Parameters
    ----------
    increment : float or array_like
        The budgets that are run back to back, each a mu; they add in squares, and the last one repeats.
        Each must pay for any single step.
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

    def _total(self) -> np.ndarray:
        return np.sqrt(self._steps_of(self._increments**2))

    def epsilon(self, delta: float) -> np.ndarray:
        """`spent` as an epsilon at `delta`: (num_examples,).  Sensitive, no more of a promise than that."""
        return gdp.epsilon(validate.delta(delta), self.spent())

    @property
    def guarantee(self) -> Guarantee:
        """What is proven at each restart."""
        return Guarantee(
            "adaptive, Gaussian DP at restarts",
            True,
            "For every m, what was released up to a person's m-th restart is mu-GDP for them, mu the root "
            "of the sum of the squares of the first m increments. " + _BETWEEN,
            "Koskela, Tobaben and Honkela (2023), Appendix C.5",
        )
