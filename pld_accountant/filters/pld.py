"""The approximate filter of Koskela, Tobaben and Honkela, Section 5: a budget on the range-mu of what was admitted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import validate
from ..notions import rdp
from ..results import Guarantee
from .base import Filter
from .pld_state import RangeBooks

__all__ = ["PLDFilter"]


class PLDFilter(Filter):
    """Keeps everybody's range-mu within a budget: not proven for adaptive runs of sampled steps; see `guarantee`.

    A person's range-mu is the smallest mu whose Gaussian curve lies above the curve of the steps they were admitted to,
    at every epsilon >= 0 at which that curve's delta is at least min_delta, for the adding and the removing of the
    person.  A step is admitted if with it the range-mu is still proven to be at most `mu`.  A rejected step costs
    nothing, and a person may be admitted again later with a smaller norm.

    Parameters
    ----------
    mu : float
        The budget, above 0.
    min_delta : float
        Down to where the curves are compared, in (0, 1).
    num_examples : int
    noise_multiplier, sample_rate : float
        Of the steps; `admit` can take others.  With sample_rate=1 all steps must be full-batch, and the filter is
        `GaussianFilter` with norms rounded up to a bucket: use that one.
    max_grad_norm : float
        Clipping norm, between 1e-100 and 1e100.
    buckets : int
        Buckets of noise ratios, 2 to 4096: the ratio of a step is rounded down to its bucket's.  More lose less, and
        cost memory (4 bytes each a person).
    individual : bool
        See `Filter`.

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
        self._clip = _clip(max_grad_norm)
        self._buckets = validate.count(buckets, "buckets", least=2)
        if self._buckets > 4096:
            raise ValueError(f"buckets must be at most 4096, got {buckets}")
        parameters = {"mu": self._mu, "min_delta": self._min_delta, "noise_multiplier": self._noise_multiplier}
        parameters |= {"sample_rate": self._sample_rate, "max_grad_norm": self._clip, "buckets": self._buckets}
        super().__init__(num_examples, individual, parameters)
        people = self._num_examples if self._individual else 1
        self._books = RangeBooks(
            self._mu, self._min_delta, people, self._noise_multiplier, self._sample_rate, self._buckets
        )  # fmt: skip

    @property
    def mu(self) -> float:
        """The budget."""
        return self._mu

    @property
    def min_delta(self) -> float:
        """Down to where the curves are compared."""
        return self._min_delta

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of a step's noise over max_grad_norm, where a step does not say otherwise."""
        return self._noise_multiplier

    @property
    def sample_rate(self) -> float:
        """Poisson sampling rate, where a step does not say otherwise."""
        return self._sample_rate

    @property
    def max_grad_norm(self) -> float:
        """Clipping norm, where a step does not say otherwise."""
        return self._clip

    # ------------------------------------------------------------------ steps

    def admit(
        self,
        norms: Any,
        *,
        noise_multiplier: float | None = None,
        max_grad_norm: float | None = None,
        sample_rate: float | None = None,
    ) -> np.ndarray:
        """Say who takes part in the coming step, and book it.

        Parameters
        ----------
        norms : array_like, (num_examples,)
            Norms before clipping, of everybody, whether they will be sampled or not; sample after this, among those
            admitted.  For all together also one number, a public bound.
        noise_multiplier, max_grad_norm, sample_rate : float, optional
            Of this step alone, where they differ from the filter's.

        Returns
        -------
        ndarray, (num_examples,) bool
            True: booked, the person takes part.  False: nothing is booked, leave the person out.  Sensitive.

        Raises
        ------
        ValueError
            For a norm that is NaN, infinite or negative, or a wrong shape; nothing is booked then.

        **Error**: the noise ratio is rounded down to its bucket's, and a step that is not proven to fit is refused:
        up to 1e-4 of mu may be left unused beside what the buckets lose.

        **Cost**: some 90 nanoseconds a person whose coming steps were proven to fit before; about 0.1 milliseconds for
        the few others.
        """
        step = {"noise_multiplier": noise_multiplier, "max_grad_norm": max_grad_norm, "sample_rate": sample_rate}
        return self._admit(norms, **step)

    def _book(self, norms: np.ndarray, **step: Any) -> np.ndarray:
        return self._books.admit(norms, *self._step(**step))

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
            The upper end of a bucket; 0 for whom not even the lowest one is proven to fit.

        **Error**: rounded down to a bucket; whoever is clipped to it is admitted.

        **Cost**: about 0.1 milliseconds a person far from their budget, ten times as much near it.
        """
        step = self._step(noise_multiplier, max_grad_norm, sample_rate)
        if self._halted:
            return np.zeros(self._num_examples)
        return self._each(self._books.largest_norm(*step))

    def spent(self) -> np.ndarray:
        """An upper bound of each person's range-mu, at most the budget: (num_examples,).  Sensitive.

        **Error**: whoever has taken fewer than 20 steps is told the range-mu of a multiple of them.

        **Cost**: about 0.15 milliseconds a person.
        """
        return self._each(np.minimum(self._books.spent(), self._mu))

    @property
    def active(self) -> np.ndarray:
        """Who has not been refused the smallest of steps: (num_examples,) bool.  Sensitive."""
        return self._each(self._books.open & (not self._halted))

    # ------------------------------------------------------------------ promises

    def epsilon(self, delta: float, *, conversion: str = "best") -> float:
        """The epsilon at `delta` of mu**2 / 2-zCDP, which the paper derives from mu.

        It would be a guarantee if the Gaussian's curve lay above at *every* epsilon.  Where it was compared down to
        min_delta only, as here, nothing is proven by it, except where all steps are full-batch; see `guarantee`.
        """
        return float(rdp.zcdp_epsilon(self._mu**2 / 2, validate.delta(delta), conversion=conversion))

    @property
    def guarantee(self) -> Guarantee:
        """What holds, and what does not."""
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
            "range-mu, not adaptive",
            False,
            f"Nothing is proven for a run whose steps depend on what was released before. For norms fixed beforehand "
            f"everything released is (epsilon, delta_Gauss(epsilon; mu) + {least!r})-DP for every epsilon >= 0, mu = "
            f"{mu!r}, for the adding or removing of one person, under Poisson sampling. The mu**2 / 2-zCDP derived in "
            f"the reference needs the Gaussian's curve above at every epsilon, and for sampled steps only mu = "
            f"sqrt(sum of 1 / sigma**2) has that; here the curves are compared where delta >= {least!r}. RenyiFilter "
            "is proven.",
            "Koskela, Tobaben and Honkela (2023), Section 5, (5.1) to (5.3)",
        )

    # ------------------------------------------------------------------ state

    def _each(self, values: NDArray) -> NDArray:
        return values if self._individual else np.broadcast_to(values, (self._num_examples,)).copy()

    def _step(
        self,
        noise_multiplier: float | None = None,
        max_grad_norm: float | None = None,
        sample_rate: float | None = None,
    ) -> tuple[float, float, float]:
        """The coming step's noise multiplier, clip and sample rate: the filter's own unless given."""
        noise, clip, rate = self._noise_multiplier, self._clip, self._sample_rate
        if noise_multiplier is not None:
            noise = validate.noise_multiplier(noise_multiplier)
        if max_grad_norm is not None:
            clip = _clip(max_grad_norm)
        if sample_rate is not None:
            rate = validate.sample_rate(sample_rate)
        if rate < 1 == self._sample_rate:
            raise ValueError("a filter made with sample_rate=1 takes full-batch steps only")
        return noise, clip, rate

    def _state(self) -> dict[str, np.ndarray]:
        return {**self._books.state(), "halted": np.array(self._halted)}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        self._halted = bool(arrays.pop("halted"))
        self._books.restore(arrays)


def _clip(value: float) -> float:
    clip = validate.positive(value, "max_grad_norm")
    if not 1e-100 <= clip <= 1e100:
        raise ValueError(f"max_grad_norm must lie between 1e-100 and 1e100, got {value!r}")
    return clip
