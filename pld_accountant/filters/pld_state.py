"""Everybody's counts of admitted steps under a budget of range-mu, and what is known of the steps to come.

An evaluation costs a tenth of a millisecond, so it asks about many steps at once: a plan made from the person's past
on top of the counts.  If all of it fits, the steps are taken from it one by one, without another evaluation
(`kernels.credit`).  Only the coming step's refusal, asked alone, is a refusal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .. import validate
from ..counting.buckets import Buckets, choose_group
from ..files.store import StoreError
from .pld_budget import RangeBudget, class_buckets, plan_steps

__all__ = ["RangeBooks"]

# Shares of what seems to be left, or of the whole budget, that are asked for at once; 0: the coming step alone.
# A few steps can be harder to bound than many, so whoever has few is asked about many before they are refused.
_QUESTIONS = (
    *(("rest", share) for share in (0.8, 0.5, 0.2, 0.0)),
    *(("all", share) for share in (0.9, 0.75, 0.6, 0.45, 0.3, 0.15)),
)
_FEW = 40
_ARRAYS = ("_counts", "_credit", "_refused", "_sure", "_high")
_NONE = np.iinfo(np.int16).max
_BLOCK = 16_384


class RangeBooks:
    """Counts, credits and refusals.

    Parameters
    ----------
    mu, min_delta : float
        See `RangeBudget`.
    people : int
        Budgets.
    noise_multiplier, sample_rate : float
        Of the first group of buckets.
    buckets : int
        Of each group.
    """

    def __init__(
        self, mu: float, min_delta: float, people: int, noise_multiplier: float, sample_rate: float, buckets: int
    ) -> None:
        self._mu, self._min_delta, self._buckets = mu, min_delta, buckets
        # the least share of the budget, as guessed by `RangeBudget.weight`, that was not proven to fit
        self._high = np.full(people, 1.02)
        self._clear(people)
        self._append(Buckets.make(noise_multiplier, sample_rate, buckets))

    def _clear(self, people: int) -> None:
        """No groups of buckets."""
        self._groups: list[Buckets] = []
        self._counts, self._credit = (np.zeros((people, 0), dtype=np.int32) for _ in range(2))
        self._refused, self._sure = (np.zeros((0, people), dtype=np.int16) for _ in range(2))

    @property
    def open(self) -> NDArray:
        """Who has not been refused the smallest of steps: (people,) bool."""
        return self._refused[0] > 0

    def spent(self) -> NDArray:
        """Upper bound of everybody's range-mu: (people,)."""
        parts = [self._budget.spent(self._counts[a : a + _BLOCK]) for a in range(0, len(self._counts), _BLOCK)]
        return np.concatenate(parts)

    def admit(self, norms: NDArray, noise: float, clip: float, rate: float) -> NDArray:
        """Who may take a step with these norms, which is booked: (people,) bool; or raise and book nothing."""
        from ..kernels import count, credit

        if not count.all_norms(norms[None]):
            raise validate.norm_error(norms)
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
        high = self._high[who]
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
            high[some] = np.where(held, np.maximum(high[some], 1.01 * total), np.minimum(high[some], total))
            fits[some], plan[some[held]] = held, steps[held]
            left = left[~fits[left]]
            if not left.size:
                break
        self._high[who] = high
        return who, fits, plan

    def largest_norm(self, noise: float, clip: float, rate: float) -> NDArray:
        """The largest norm that fits the coming step, at most clip: (people,)."""
        from ..kernels import count

        g = self._group(noise, rate)
        group = self._groups[g]
        scale = group.scale(noise, clip)
        top = np.empty(1, dtype=np.int16)
        count.place_down(np.array([clip]), clip, scale, group.edges, group.first, top)
        self._search(g, int(top[0]))
        sure = np.minimum(self._sure[g], top[0])
        norm = np.where(sure >= 0, group.edges[np.maximum(sure, 0)] / scale * (1.0 - 2.0**-46), 0.0)
        return np.where(sure >= top[0], clip, np.minimum(norm, clip))

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
                held = self._budget.holds(self._budget.repeated(trial))
                again = np.flatnonzero(~held)  # whoever has few steps may fit although their multiple does not
                held[again] = self._budget.holds(trial[again])
                sure[who[held]] = asked[held]
                refused[who[~held]] = asked[~held]
            probe = (sure.astype(np.int64) + np.minimum(refused, top + 1)) // 2

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

    def state(self) -> dict[str, NDArray]:
        """Everything, as arrays."""
        groups = np.array([[g.noise_multiplier, g.sample_rate] for g in self._groups])
        edges: dict[str, NDArray] = {f"edges{i}": g.edges for i, g in enumerate(self._groups)}
        whole: dict[str, NDArray] = {name[1:]: getattr(self, name) for name in _ARRAYS}
        return {**edges, **whole, "groups": groups}

    def restore(self, arrays: dict[str, NDArray]) -> None:
        """Take over what `state` gave, or raise `StoreError`."""
        first = self._groups[0]
        pairs = arrays["groups"].tolist()
        if pairs[0] != [first.noise_multiplier, first.sample_rate]:
            raise StoreError("the buckets in the file do not belong to a filter with these parameters")
        self._clear(len(self._counts))
        for i, (noise, rate) in enumerate(pairs):
            self._append(Buckets(rate, noise, arrays[f"edges{i}"]))
        for name in _ARRAYS:
            own, saved = getattr(self, name), arrays[name[1:]]
            if saved.shape != own.shape or saved.dtype != own.dtype:
                raise StoreError("the counts in the file do not belong to a filter with these parameters")
            setattr(self, name, np.ascontiguousarray(saved).copy())
