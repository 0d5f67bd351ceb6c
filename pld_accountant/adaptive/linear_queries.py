"""Linear queries with a norm budget for each person; each query may depend on all earlier answers.

A query maps a record to a vector.  Its answer is the sum over people plus Gaussian noise of a fixed standard deviation.
A person is counted while the sum of the squared norms of the person's own vectors stays within the budget.  A query
therefore costs only people with a vector other than 0 [1]_.

References
----------
.. [1] Feldman and Zrnic, "Individual privacy accounting via a Renyi filter" (2021), Section 4.2, Corollary 4.7 and
   Theorem 1.2.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from .. import validate
from ..filters.gaussian import ZCDPFilter
from ..locked import Locked
from ..notions import zcdp
from ..results import Guarantee

__all__ = ["LinearQueries"]


def row_norms(values: np.ndarray) -> np.ndarray:
    """Euclidean norm of each row, (n, d) to (n,), rounded up."""
    largest = np.abs(values).max(axis=1, initial=0.0)
    scale = np.where((largest > 0) & (largest < np.inf), largest, 1.0)
    squares = np.square(values / scale[:, None]).sum(axis=1)
    return scale * np.sqrt(squares) * (1 + (values.shape[1] + 4) * 2.0**-53)


class LinearQueries(Locked):
    """Answers any number of linear queries; all answers together are rho-zCDP.

    Parameters
    ----------
    norm_budget : float
        Sum of squared norms that each person may spend.  For queries with values 0 and 1, it is the number of times
        that a person may be counted.
    rho : float
        zCDP parameter of all answers together.
    num_examples : int
    rng : numpy.random.Generator, optional
        Source of the noise; None: a new one from the system's entropy.  Its seed must be secret.
    journal : path, optional
        File to which the budgets are saved before each answer is released (see `SavedState.save`).  If it exists,
        the charges there count.

    Notes
    -----
    The noise has standard deviation sqrt(norm_budget / (2 rho)) in each coordinate.  The round-off of
    the sum and of the noise is not accounted for.

    Several threads may ask; their queries are answered one after another.  A copy (`copy.copy`, `copy.deepcopy`,
    `pickle`) has budgets of its own and no journal, and draws its noise from the system's entropy: equal noise in two
    answers would cancel in their difference.  A forked process has the same generator as its parent: it must not
    answer.

    Examples
    --------
    >>> q = LinearQueries(norm_budget=2, rho=0.5, num_examples=1000, rng=np.random.default_rng(1))
    >>> old = np.arange(1000) < 300
    >>> [bool(abs(q.answer(old)[0] - 300) < q.error_bound(1, 1e-3)) for repeat in range(2)]
    [True, True]
    >>> bool(abs(q.answer(old)[0]) < q.error_bound(1, 1e-3))  # all of these people have spent their budget
    True
    >>> bool(abs(q.answer(~old)[0] - 700) < q.error_bound(1, 1e-3))
    True
    """

    def __init__(
        self,
        norm_budget: float,
        rho: float,
        *,
        num_examples: int,
        rng: np.random.Generator | None = None,
        journal: str | os.PathLike[str] | None = None,
    ) -> None:
        self._norm_budget = validate.positive(norm_budget, "norm_budget")
        self._rho = validate.positive(rho, "rho")
        self._noise = math.sqrt(self._norm_budget / (2 * self._rho))
        self._filter = ZCDPFilter(self._rho, num_examples=num_examples, noise_multiplier=self._noise)
        self._rng = validate.generator(rng)
        self._journal = None if journal is None else os.fspath(journal)
        if self._journal is not None and os.path.exists(self._journal):
            self._filter.load(self._journal)

    def __repr__(self) -> str:
        return f"LinearQueries({self._norm_budget}, {self._rho}, num_examples={self._filter.num_examples})"

    def _copied(self) -> dict[str, Any]:
        return {**super()._copied(), "_rng": np.random.default_rng(), "_journal": None}

    @property
    def filter(self) -> ZCDPFilter:
        """The budgets.  Sensitive."""
        return self._filter

    @property
    def noise(self) -> float:
        """Standard deviation of the noise in each coordinate of an answer."""
        return self._noise

    @property
    def guarantee(self) -> Guarantee:
        """rho-zCDP of all answers together, proven for adaptive queries."""
        return self._filter.guarantee

    def answer(self, values: Any) -> np.ndarray:
        """The noisy sum over the people who are still counted.

        Parameters
        ----------
        values : array_like, (num_examples,) or (num_examples, d)
            The query's value for each person's record.  The query may depend on all earlier answers.  Each row may
            depend on earlier answers and on that person's record only.

        Returns
        -------
        ndarray, (d,)

        Raises
        ------
        ValueError
            For a value that is not finite, or a wrong shape; nothing is booked then.
        """
        validate.in_order(values, "values", axis=0)
        given = np.ma.asanyarray(values)
        rows = validate.numbers(given.astype(np.int8) if given.dtype == np.bool_ else given, "values")
        if rows.ndim == 1:
            rows = rows[:, None]
        if rows.ndim != 2 or len(rows) != self._filter.num_examples:
            raise ValueError(
                f"values must have shape ({self._filter.num_examples},) or ({self._filter.num_examples}, d), "
                f"got {np.shape(values)}"
            )
        if not np.isfinite(rows).all():
            raise ValueError("values must be finite")
        counted = self._filter.admit(row_norms(rows))
        if self._journal is not None:
            self._filter.save(self._journal)
        return counted @ rows + self._rng.normal(0.0, self._noise, rows.shape[1])

    def error_bound(self, dimension: int, failure: float) -> float:
        """A bound on the error of all coordinates of an answer, which holds with probability at least 1 - `failure`.

        Parameters
        ----------
        dimension : int
            Coordinates of the query.
        failure : float
            In (0, 1).

        Notes
        -----
        The error is the distance from the sum over the counted people.  A person is counted if the sum of the squared
        norms, this query included, stays within the budget.

        Examples
        --------
        >>> round(LinearQueries(100, 0.5, num_examples=1).error_bound(10, 0.05), 3)
        32.552
        """
        d = validate.count(dimension, "dimension", least=1)
        beta = validate.delta(failure, "failure")
        return math.sqrt(self._norm_budget * math.log(d / beta) / self._rho)

    def epsilon(self, delta: float) -> float:
        """The epsilon at `delta` that rho-zCDP implies.

        Examples
        --------
        >>> f"{LinearQueries(100, 0.03, num_examples=1).epsilon(1e-5):.3f}"
        '0.990'
        """
        return zcdp.zcdp_epsilon(self._rho, validate.delta(delta))
