"""A budget of dominating mu (down to min_delta): the approximate filter of the reference, Section 5.

References
----------
Koskela, Tobaben and Honkela (2023), "Individual privacy accounting with Gaussian differential privacy".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import validate
from ..files.saved_state import SavedArrays
from ..notions import gdp, zcdp
from ..results import Guarantee
from .base import NoisySteps
from .pld_state import PLDState

__all__ = ["PLDFilter"]


class PLDFilter(NoisySteps):
    """Keeps everybody's dominating mu within a budget.

    This is not proven for adaptive runs of sampled steps; see `guarantee`.

    Take the privacy curve of a person's admitted steps.  The person's dominating mu (down to min_delta) is the smallest
    mu whose Gaussian curve lies above this curve at every epsilon >= 0 at which the curve's delta is at least
    min_delta, for the adding and for the removing of the person.  A step is admitted if the dominating mu with this
    step is proven to be at most `mu`.  A refused step costs nothing, and a person may be admitted again with a smaller
    norm.

    Parameters
    ----------
    mu : float
        The budget, above 0.
    min_delta : float
        Least delta at which the curves are compared, in (0, 1).
    num_examples : int
    noise_multiplier, sample_rate : float
        Parameters of the steps; `admit` can take others.  If sample_rate is 1, all steps must be full-batch, and the
        filter is a `GaussianFilter` with norms rounded up to a bucket.  Use `GaussianFilter` then.
    max_grad_norm : float
        Clipping norm, between 1e-100 and 1e100.
    buckets : int
        Buckets of relative norms, 2 to 4096.  The relative norm of a step is rounded up to the edge of its bucket.
        More buckets are tighter and cost memory, 4 bytes a bucket and person.
    individual : bool
        True: a budget for each person, charged with their own norms.  False: one budget for all, charged with the
        largest norm given; the first step that does not fit halts the filter.  The norms must then bound those of
        every *possible* record, as a public clipping norm does; the largest of the present people's does not.

    References
    ----------
    Koskela, Tobaben and Honkela (2023), Section 5 and Appendix D.

    Examples
    --------
    >>> f = PLDFilter(0.05, 1e-5, num_examples=2, noise_multiplier=2.0, sample_rate=0.005, max_grad_norm=1.0)
    >>> masks = np.array([f.admit([1.0, 0.5]) for step in range(1000)])
    >>> masks.sum(axis=0), f.spent().round(4)
    (array([ 317, 1000]), array([0.0499, 0.0407]))
    """

    def __init__(
        self,
        mu: float,
        min_delta: float,
        *,
        num_examples: int,
        noise_multiplier: float,
        sample_rate: float,
        max_grad_norm: float,
        buckets: int = 256,
        individual: bool = True,
    ) -> None:
        self._mu, self._min_delta = validate.positive(mu, "mu"), validate.delta(min_delta, "min_delta")
        self._noise_multiplier = validate.noise_multiplier(noise_multiplier)
        self._sample_rate = validate.sample_rate(sample_rate)
        self._clip = validate.clipping_norm(max_grad_norm)
        self._buckets = validate.buckets(buckets)
        parameters = {"mu": self._mu, "min_delta": self._min_delta, "noise_multiplier": self._noise_multiplier}
        parameters |= {"sample_rate": self._sample_rate, "max_grad_norm": self._clip, "buckets": self._buckets}
        super().__init__(num_examples, individual, parameters)
        people = self._num_examples if self._individual else 1
        self._pld_state = PLDState(
            self._mu, self._min_delta, people, self._noise_multiplier, self._sample_rate, self._buckets
        )

    @property
    def mu(self) -> float:
        """The budget."""
        return self._mu

    @property
    def min_delta(self) -> float:
        """Least delta at which the curves are compared."""
        return self._min_delta

    # ------------------------------------------------------------------ steps

    def admit(
        self,
        norms: Any,
        *,
        noise_multiplier: float | None = None,
        max_grad_norm: float | None = None,
        sample_rate: float | None = None,
    ) -> np.ndarray:
        """Decide who takes part in the coming step, and book it.

        Parameters
        ----------
        norms : array_like, (num_examples,)
            Norms of everybody before clipping.  Draw the sample afterwards, among the admitted people.  If there is one
            budget for all, one number is enough, a public bound.
        noise_multiplier, max_grad_norm, sample_rate : float, optional
            For this step only, if they differ from the filter's.

        Returns
        -------
        ndarray, (num_examples,) bool
            True: the step is booked and the person takes part.  False: nothing is booked; leave the person out.
            Sensitive.

        Raises
        ------
        ValueError
            For a norm that is NaN, infinite or negative, or a wrong shape; nothing is booked then.

        **Error**: the relative norm is rounded up to the edge of its bucket, and a step that is not proven to fit is
        refused.  Up to 1e-4 of mu may stay unused in addition to the loss by buckets.

        **Cost**: about 90 nanoseconds for a person whose coming step was proven to fit earlier; about 0.1 milliseconds
        for every other person.
        """
        step = {"noise_multiplier": noise_multiplier, "max_grad_norm": max_grad_norm, "sample_rate": sample_rate}
        return self._admit(norms, None, **step)

    def _book(self, norms: np.ndarray, count: int, **step: Any) -> np.ndarray:
        del count  # `admit` offers no stretches
        return self._pld_state.admit(norms, *self._step(**step))

    def headroom(
        self,
        *,
        noise_multiplier: float | None = None,
        max_grad_norm: float | None = None,
        sample_rate: float | None = None,
    ) -> np.ndarray:
        """The largest norm that each person can still spend in the coming step, at most max_grad_norm.  Sensitive.

        Returns
        -------
        ndarray, (num_examples,) float64
            The upper end of a bucket; 0 if not even the lowest bucket is proven to fit.

        **Error**: rounded down to a bucket; a person whose norm is clipped to it is admitted.

        **Cost**: about 0.1 milliseconds for a person far from their budget, 1 millisecond near it.
        """
        step = self._step(noise_multiplier, max_grad_norm, sample_rate)
        if self._halted:
            return np.zeros(self._num_examples)
        return self._each(self._pld_state.largest_norm(*step))

    def spent(self) -> np.ndarray:
        """An upper bound of each person's dominating mu, at most the budget: (num_examples,).  Sensitive.

        **Error**: for a person with fewer than 20 steps, the bound is the dominating mu of a multiple of these steps.

        **Cost**: about 0.15 milliseconds a person.
        """
        return self._each(np.minimum(self._pld_state.spent(), self._mu))

    @property
    def active(self) -> np.ndarray:
        """Whether each person has not yet been refused the smallest step: (num_examples,) bool.  Sensitive."""
        return self._each(self._pld_state.open & (not self._halted))

    # ------------------------------------------------------------------ promises

    def epsilon(self, delta: float, *, conversion: str = "best") -> float:
        """The epsilon at `delta` of mu**2 / 2-zCDP, which the paper derives from mu; of mu-GDP if no step is sampled.

        For sampled steps it would be a guarantee if the Gaussian's curve lay above at *every* epsilon.  Here the curves
        are compared down to min_delta only, so nothing is proven by it; see `guarantee`.
        """
        if self._sample_rate == 1:
            return float(gdp.epsilon(validate.delta(delta), self._mu))
        return float(zcdp.zcdp_epsilon(self._mu**2 / 2, validate.delta(delta), conversion=conversion))

    @property
    def guarantee(self) -> Guarantee:
        """The proven statements, and the unproven ones."""
        mu, least = self._mu, self._min_delta
        if self._sample_rate == 1:
            return Guarantee(
                "adaptive, Gaussian DP",
                True,
                f"Everything released is mu-GDP with mu = {mu!r}, for the adding or removing of one person; "
                "GaussianFilter gives the same and rounds no norms." + self._condition(),
                f"Koskela, Tobaben and Honkela (2023), Theorem {'4.1' if self._individual else '3.2'}",
            )
        return Guarantee(
            "dominating mu, not adaptive",
            False,
            f"Nothing is proven for a run whose steps depend on earlier releases. For norms fixed beforehand, "
            f"everything released is (epsilon, delta_Gauss(epsilon; mu) + {least!r})-DP for every epsilon >= 0, mu = "
            f"{mu!r}, for the adding or removing of one person, under Poisson sampling. The mu**2 / 2-zCDP derived in "
            f"the reference needs the Gaussian's curve above at every epsilon, and for sampled steps only mu = "
            f"sqrt(sum of 1 / sigma**2) has that; here the curves are compared where delta >= {least!r}. "
            "PotentialFilter is proven.",
            "Koskela, Tobaben and Honkela (2023), Section 5, (5.1) to (5.3)",
        )

    # ------------------------------------------------------------------ state

    def _state(self) -> dict[str, np.ndarray]:
        return {**self._pld_state.state(), "halted": np.array(self._halted)}

    def _restore(self, saved: SavedArrays) -> None:
        self._pld_state.restore(saved)
        self._restore_halted(saved)
