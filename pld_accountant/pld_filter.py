"""The approximate filter of Koskela, Tobaben and Honkela, Section 5: a budget on the range-mu of what was admitted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import conversions, validate
from .buckets import Buckets, choose_group
from .filter_base import Filter
from .guarantee import Guarantee
from .range_budget import RangeBudget, class_buckets, plan_steps
from .store import StoreError

__all__ = ["PLDFilter"]

# Shares of what seems to be left, or of the whole budget, that are asked for at once; 0: the coming step alone.
# A few steps can be harder to bound than many, so whoever has few is asked about many before they are refused.
_QUESTIONS = (
    *(("rest", share) for share in (0.8, 0.5, 0.2, 0.0)),
    *(("all", share) for share in (0.9, 0.75, 0.6, 0.45, 0.3, 0.15)),
)
_FEW = 40
_NONE = np.iinfo(np.int16).max
_BLOCK = 16_384


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
    >>> f = PLDFilter(0.02, 1e-5, num_examples=2, noise_multiplier=2.0, sample_rate=0.005, max_grad_norm=1.0)
    >>> masks = np.array([f.admit([1.0, 0.5]) for step in range(100)])
    >>> masks.sum(axis=0), f.spent().round(4)
    (array([ 52, 100]), array([0.0199, 0.0125]))
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
        self._groups: list[Buckets] = []
        self._counts = np.zeros((people, 0), dtype=np.int32)
        self._credit = np.zeros((people, 0), dtype=np.int32)
        self._refused = np.zeros((0, people), dtype=np.int16)
        self._sure = np.zeros((0, people), dtype=np.int16)
        # guessed shares of the budget: the most that was proven to fit, the least that was not
        self._range = np.tile([[0.0], [1.02]], people)
        self._append(Buckets.make(self._noise_multiplier, self._sample_rate, self._buckets))

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

        **Cost**: 20 nanoseconds a person whose coming steps were proven to fit before; about 0.1 milliseconds for the
        few others.
        """
        step = {"noise_multiplier": noise_multiplier, "max_grad_norm": max_grad_norm, "sample_rate": sample_rate}
        return self._admit(norms, **step)

    def _book(self, norms: np.ndarray, **step: Any) -> np.ndarray:
        from .kernels import count, credit

        if not count.all_norms(norms[None]):
            raise validate.norm_error(norms)
        noise, clip, rate = self._step(**step)
        g = self._group(noise, rate)
        group, classes = self._groups[g], self._credit[:, self._class_columns(g)]
        bucket, status = np.empty(norms.size, dtype=np.int16), np.empty(norms.size, dtype=np.int8)
        count.place_down(norms, clip, group.scale(noise, clip), group.edges, group.first, bucket)
        credit.sort_out(bucket, self._cover[g], classes, self._sure[g], self._refused[g], status)
        unknown = np.flatnonzero(status == credit.UNKNOWN)
        found = [self._evaluate(unknown[a : a + _BLOCK], bucket, g) for a in range(0, unknown.size, _BLOCK)]
        # from here on nothing fails
        for who, fits, plan in found:
            status[who] = np.where(fits, credit.UNKNOWN, credit.REFUSED)
            self._refused[g, who[~fits]] = np.minimum(self._refused[g, who[~fits]], bucket[who[~fits]])
            self._credit[who[fits]] = 0
            classes[who[fits]] = plan[fits]
        # what was proven of several steps together says nothing once another one was taken
        self._credit[status == credit.SURE] = 0
        credit.book(bucket, self._cover[g], status, classes, self._counts, self._offset(g))
        self._sure[:, (status != credit.REFUSED) & (bucket >= 0)] = -1
        return status != credit.REFUSED

    def _evaluate(self, who: NDArray, bucket: NDArray, g: int) -> tuple[NDArray, NDArray, NDArray]:
        """Who fits, and steps that fit on top, for as many as seem to: who, (people,) bool, (people, classes)."""
        counts, ends = self._counts[who], self._ends[g]
        column = self._offset(g) + bucket[who].astype(np.int64)
        history = np.add.reduceat(
            counts[:, self._offset(g) : self._offset(g) + self._groups[g].size],
            np.concatenate([[0], ends[:-1] + 1]), axis=1,
        )  # fmt: skip
        history[np.arange(who.size), self._cover[g][bucket[who]]] += 1
        counts[np.arange(who.size), column] += 1
        weight = self._budget.weight
        now = counts.astype(np.float64) @ weight
        inside = self._offset(g) + ends.astype(np.int64)
        fits, plan = np.zeros(who.size, dtype=bool), np.zeros(history.shape, dtype=np.int32)
        few = counts.sum(axis=1) < _FEW
        low, high = self._range[:, who]
        left = np.arange(who.size)
        for part, share in _QUESTIONS:
            room = share * ((high[left] if part == "rest" else 1.0) - now[left])
            steps = plan_steps(history[left], weight[inside], room)
            # nothing beyond the coming step, or a plan that holds at least two more
            asks = (steps.sum(axis=1) > 1) | (share == 0.0)
            asks &= few[left] | (part == "rest")
            some, steps = left[asks], steps[asks]
            trial = counts[some]
            trial[:, inside] += steps
            held = self._budget.holds(trial)
            total = trial.astype(np.float64) @ weight
            low[some] = np.where(held, np.maximum(low[some], total), low[some])
            high[some] = np.where(held, np.maximum(high[some], 1.01 * total), np.minimum(high[some], total))
            fits[some], plan[some[held]] = held, steps[held]
            left = left[~fits[left]]
            if not left.size:
                break
        self._range[:, who] = low, high
        return who, fits, plan

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
        from .kernels import count

        noise, clip, rate = self._step(noise_multiplier, max_grad_norm, sample_rate)
        g = self._group(noise, rate)
        group = self._groups[g]
        scale = group.scale(noise, clip)
        top = np.empty(1, dtype=np.int16)
        count.place_down(np.array([clip]), clip, scale, group.edges, group.first, top)
        if not self._halted:
            self._search(g, int(top[0]))
        sure = np.minimum(self._sure[g], top[0])
        norm = np.where(sure >= 0, group.edges[np.maximum(sure, 0)] / scale * (1.0 - 2.0**-46), 0.0)
        norm = np.where(sure >= top[0], clip, np.minimum(norm, clip))
        return self._each(np.where(self._halted, 0.0, norm))

    def _search(self, g: int, top: int) -> None:
        """Raise `sure` and lower `refused` until they meet below `top`; what is on credit is known."""
        sure, refused = self._sure[g], self._refused[g]
        on_credit = self._credit[:, self._class_columns(g)] > 0
        highest = self._ends[g][on_credit.shape[1] - 1 - np.argmax(on_credit[:, ::-1], axis=1)]
        np.maximum(sure, np.where(on_credit.any(axis=1), highest, -1), out=sure)
        probe = np.full(sure.size, top)  # most people can still take any step
        while True:
            left = np.flatnonzero((sure < top) & (refused > sure + 1))
            if not left.size:
                return
            for who in np.array_split(left, -(-left.size // _BLOCK)):
                trial = self._counts[who]
                asked = np.minimum(probe[who], refused[who] - 1)
                trial[np.arange(who.size), self._offset(g) + asked] += 1
                held = self._budget.holds(trial)
                sure[who[held]] = asked[held]
                refused[who[~held]] = asked[~held]
            probe = (sure.astype(np.int64) + np.minimum(refused, top + 1)) // 2

    def spent(self) -> np.ndarray:
        """An upper bound of each person's range-mu, at most the budget: (num_examples,).  Sensitive.

        **Cost**: about 0.15 milliseconds a person.
        """
        parts = [self._budget.spent(self._counts[a : a + _BLOCK]) for a in range(0, len(self._counts), _BLOCK)]
        return self._each(np.minimum(np.concatenate(parts), self._mu))

    @property
    def active(self) -> np.ndarray:
        """Who has not been refused the smallest of steps: (num_examples,) bool.  Sensitive."""
        return self._each((self._refused[0] > 0) & (not self._halted))

    # ------------------------------------------------------------------ promises

    def epsilon(self, delta: float, *, conversion: str = "best") -> float:
        """The epsilon at `delta` of mu**2 / 2-zCDP, which the paper derives from mu.

        It would be a guarantee if the Gaussian's curve lay above at *every* epsilon.  Where it was compared down to
        min_delta only, as here, nothing is proven by it, except where all steps are full-batch; see `guarantee`.
        """
        return float(conversions.zcdp_epsilon(self._mu**2 / 2, validate.delta(delta), conversion=conversion))

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

    def _offset(self, g: int) -> int:
        return sum(group.size for group in self._groups[:g])

    def _class_columns(self, g: int) -> slice:
        start = sum(ends.size for ends in self._ends[:g])
        return slice(start, start + self._ends[g].size)

    def _group(self, noise: float, rate: float) -> int:
        """The number of the buckets that can count this step, made if need be."""
        number, lowest = choose_group(self._groups, noise, rate)
        if number < 0:
            self._append(Buckets.make(lowest, rate, self._buckets))
        return number if number >= 0 else len(self._groups) - 1

    def _append(self, group: Buckets) -> None:
        """Room for the steps of another group."""
        people = len(self._counts)
        groups = [*self._groups, group]
        budget = RangeBudget(self._mu, self._min_delta, groups)
        ends = [class_buckets(g) for g in groups]
        cover = [np.searchsorted(e, np.arange(g.size)).astype(np.int16) for e, g in zip(ends, groups, strict=True)]
        counts, credit = (
            np.concatenate([old, np.zeros((people, n), dtype=np.int32)], axis=1)
            for old, n in ((self._counts, group.size), (self._credit, ends[-1].size))
        )
        refused, sure = (
            np.concatenate([old, np.full((1, people), value, dtype=np.int16)])
            for old, value in ((self._refused, _NONE), (self._sure, -1))
        )
        self._counts, self._credit, self._refused, self._sure = counts, credit, refused, sure
        self._cover, self._ends, self._groups, self._budget = cover, ends, groups, budget

    def _state(self) -> dict[str, np.ndarray]:
        groups = np.array([[g.noise_multiplier, g.sample_rate] for g in self._groups])
        edges = {f"edges{i}": g.edges for i, g in enumerate(self._groups)}
        whole = {"counts": self._counts, "credit": self._credit, "refused": self._refused, "sure": self._sure}
        return {**edges, **whole, "groups": groups, "range": self._range, "halted": np.array(self._halted)}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        names = ("_counts", "_credit", "_refused", "_sure")
        first = self._groups[0]
        pairs = arrays["groups"].tolist()
        if pairs[0] != [first.noise_multiplier, first.sample_rate]:
            raise StoreError("the buckets in the file do not belong to a filter with these parameters")
        self._groups, self._counts, self._credit = [], self._counts[:, :0], self._credit[:, :0]
        self._refused, self._sure = self._refused[:0], self._sure[:0]
        for i, (noise, rate) in enumerate(pairs):
            self._append(Buckets(rate, noise, arrays[f"edges{i}"]))
        for name in names:
            own, saved = getattr(self, name), arrays[name[1:]]
            if saved.shape != own.shape or saved.dtype != own.dtype:
                raise StoreError("the counts in the file do not belong to a filter with these parameters")
            setattr(self, name, np.ascontiguousarray(saved).copy())
        self._range, self._halted = arrays["range"].copy(), bool(arrays["halted"])


def _clip(value: float) -> float:
    clip = validate.positive(value, "max_grad_norm")
    if not 1e-100 <= clip <= 1e100:
        raise ValueError(f"max_grad_norm must lie between 1e-100 and 1e100, got {value!r}")
    return clip
