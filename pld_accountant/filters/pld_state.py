"""Everybody's counts of admitted steps under a budget of the dominating mu, and proofs about steps to come.

One evaluation of mu costs about 0.1 milliseconds.  It therefore tests the coming step together with a plan of further
steps, made from the person's past.  If all of it fits, later steps are admitted from the plan without an evaluation
(`kernels.credit`).

Notation, for one person.  B is the budget.  m(c) is the dominating mu (down to min_delta) of counts c.  Two facts:

(a) m does not decrease if a step is added.
(b) m does not decrease if a step moves to a higher bucket of its group.

"Proven" means that `PLDBudget.holds` returned True for these counts, or for counts above them by (a) and (b).

State:

    counts   (people, buckets)  admitted steps in each bucket of each group
    credit   (people, classes)  further steps, by class: a run of buckets of one group, represented by its last bucket
    cover    (buckets,)         for each group: the class of a bucket, the first whose last bucket is not below it
    sure     (groups, people)   bucket of one further step, or -1
    refused  (groups, people)   lowest refused bucket, or a number above all buckets
    high     (people,)          least guessed share of B that was not proven to fit

Invariants, for each person between two calls:

1. m(counts) <= B is proven.  Only steps proven by 2, by 3 or by a new evaluation are booked.
2. m(counts + credit) <= B is proven.  A step of bucket b on credit removes one step of class k >= cover[b] from credit
   and adds one step of bucket b, not above the last bucket of k, to counts.  By (b) the bound still holds.  Every other
   booked step sets credit to 0, or to a plan that was proven on top of the new counts, because the old proof did not
   include this step.
3. If sure[g] >= 0, m(counts + one step of bucket sure[g] of group g) <= B is proven; by (b) the same holds for lower
   buckets.  Every booked step of a norm above 0 resets sure to -1 in all groups, because the proof did not include it.
4. A step of bucket refused[g] of group g was tested without any further step, and was not proven to fit.  By (a) and
   (b) steps of higher buckets and later steps do not fit better, so they are refused without an evaluation.  A refusal
   books nothing and is always safe.
5. high only chooses the sizes of plans.  No decision to admit depends on it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .. import validate
from ..counting.buckets import Buckets, choose_group
from ..files.saved_state import SavedArrays
from ..files.store import StoreError
from .pld_budget import PLDBudget, class_buckets, plan_steps

__all__ = ["PLDState"]

# Sizes of the plans that are tested, in this order: shares of the remaining or of the whole budget.  0 is the coming
# step alone.  The mu of few steps can be harder to bound than that of many, so a person with few steps is refused only
# after larger plans have failed too.
_PLAN_SIZES = (
    *(("rest", share) for share in (0.8, 0.5, 0.2, 0.0)),
    *(("all", share) for share in (0.9, 0.75, 0.6, 0.45, 0.3, 0.15)),
)
_FEW = 40  # steps
_ARRAYS = ("_counts", "_credit", "_refused", "_sure", "_high")
_NONE = np.iinfo(np.int16).max  # a bucket above all buckets: nothing is refused
_MOST = 10**9  # steps of a person in a file: with a plan on top, 32 bits hold them
_BLOCK = 16_384  # people in one evaluation


class PLDState:
    """Counts, credits and refusals of people; the module's text states the invariants.

    Parameters
    ----------
    mu, min_delta : float
        See `PLDBudget`.
    people : int
        Number of budgets.
    noise_multiplier, sample_rate : float
        Parameters of the first group of buckets.
    buckets : int
        Number of buckets of each group.
    """

    def __init__(
        self, mu: float, min_delta: float, people: int, noise_multiplier: float, sample_rate: float, buckets: int
    ) -> None:
        self._mu, self._min_delta, self._buckets = mu, min_delta, buckets
        self._high = np.full(people, 1.02)  # guesses by `PLDBudget.weight`: a little above the whole budget
        self._clear(people)
        self._append(Buckets.make(noise_multiplier, sample_rate, buckets))

    def _clear(self, people: int) -> None:
        """Remove all groups of buckets."""
        self._groups: list[Buckets] = []
        self._counts, self._credit = (np.zeros((people, 0), dtype=np.int32) for _ in range(2))
        self._refused, self._sure = (np.zeros((0, people), dtype=np.int16) for _ in range(2))

    @property
    def open(self) -> NDArray:
        """Whether a step of the lowest bucket of the first group has not been refused: (people,) bool."""
        return self._refused[0] > 0

    def spent(self) -> NDArray:
        """Upper bound of each person's dominating mu: (people,)."""
        parts = [self._budget.spent(self._counts[a : a + _BLOCK]) for a in range(0, len(self._counts), _BLOCK)]
        return np.concatenate(parts)

    def admit(self, norms: NDArray, noise: float, clip: float, rate: float) -> NDArray:
        """Book each step that is proven to fit, and return the mask: (people,) bool; or raise and book nothing."""
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
        # nothing below raises: all or nothing is booked
        for who, fits, plan in found:
            status[who] = np.where(fits, credit.UNKNOWN, credit.REFUSED)
            self._refused[g, who[~fits]] = np.minimum(self._refused[g, who[~fits]], bucket[who[~fits]])
            self._credit[who[fits]] = 0
            classes[who[fits]] = plan[fits]
        self._credit[status == credit.SURE] = 0  # invariant 2
        # invariant 3; first, so that it holds after an interrupt, too
        self._sure[:, (status != credit.REFUSED) & (bucket >= 0)] = -1
        credit.book(bucket, self._cover[g], status, classes, self._counts, self._offset(g))
        return status != credit.REFUSED

    def _evaluate(self, who: NDArray, bucket: NDArray, g: int) -> tuple[NDArray, NDArray, NDArray]:
        """Test the coming step of some people in group g, with a plan of further steps that probably fit too.

        Returns
        -------
        who : (people,)
        fits : (people,) bool
            Whether the coming step is proven to fit.
        plan : (people, classes) int32
            Further steps that are proven to fit on top of it.
        """
        counts = self._counts[who]
        counts[np.arange(who.size), self._offset(g) + bucket[who].astype(np.int64)] += 1
        history, last = self._history(counts, g), self._offset(g) + self._ends[g].astype(np.int64)
        weight = self._budget.weight
        now = counts.astype(np.float64) @ weight
        fits, plan = np.zeros(who.size, dtype=bool), np.zeros(history.shape, dtype=np.int32)
        few = counts.sum(axis=1) < _FEW
        high = self._high[who]
        left = np.arange(who.size)
        for part, share in _PLAN_SIZES:
            room = share * ((high[left] if part == "rest" else 1.0) - now[left])
            steps = plan_steps(history[left], weight[last], room)
            # either the coming step alone, or a plan of at least two further steps
            worth = (steps.sum(axis=1) > 1) | (share == 0.0)
            worth &= few[left] | (part == "rest")
            some, steps = left[worth], steps[worth]
            trial = counts[some]
            trial[:, last] += steps
            held = self._budget.holds(trial)
            total = trial.astype(np.float64) @ weight
            high[some] = np.where(held, np.maximum(high[some], 1.01 * total), np.minimum(high[some], total))
            fits[some], plan[some[held]] = held, steps[held]
            left = left[~fits[left]]
            if not left.size:
                break
        self._high[who] = high
        return who, fits, plan

    def _history(self, counts: NDArray, g: int) -> NDArray:
        """Steps in each class of group g: (people, classes)."""
        start = self._offset(g)
        firsts = np.concatenate([[0], self._ends[g][:-1] + 1])
        return np.add.reduceat(counts[:, start : start + self._groups[g].size], firsts, axis=1)

    def largest_norm(self, noise: float, clip: float, rate: float) -> NDArray:
        """The largest norm, at most clip, of a coming step that is proven to fit: (people,)."""
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
        """Raise `sure` and lower `refused` by bisection until they are adjacent or `sure` reaches `top`.

        By (a) every class with credit proves a step of its last bucket.
        """
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
                tested = np.minimum(probe[who], refused[who] - 1)
                trial[np.arange(who.size), self._offset(g) + tested] += 1
                held = self._budget.holds(self._budget.repeated(trial))
                again = np.flatnonzero(~held)  # few steps may fit although their multiple does not
                held[again] = self._budget.holds(trial[again])
                sure[who[held]] = tested[held]
                refused[who[~held]] = tested[~held]
            probe = (sure.astype(np.int64) + np.minimum(refused, top + 1)) // 2

    def _offset(self, g: int) -> int:
        """The first column of group g in counts."""
        return sum(group.size for group in self._groups[:g])

    def _class_columns(self, g: int) -> slice:
        """The columns of group g in credit."""
        start = sum(ends.size for ends in self._ends[:g])
        return slice(start, start + self._ends[g].size)

    def _group(self, noise: float, rate: float) -> int:
        """The index of the group of buckets that can count this step; a new group is made if necessary."""
        number, lowest = choose_group(self._groups, noise, rate)
        if number < 0:
            self._append(Buckets.make(lowest, rate, self._buckets))
        return number if number >= 0 else len(self._groups) - 1

    def _append(self, group: Buckets) -> None:
        """Add a group of buckets."""
        people = len(self._counts)
        groups = [*self._groups, group]
        budget = PLDBudget(self._mu, self._min_delta, groups)
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
        """The whole state, as arrays."""
        groups = np.array([[g.noise_multiplier, g.sample_rate] for g in self._groups])
        edges: dict[str, NDArray] = {f"edges{i}": g.edges for i, g in enumerate(self._groups)}
        whole: dict[str, NDArray] = {name[1:]: getattr(self, name) for name in _ARRAYS}
        return {**edges, **whole, "groups": groups}

    def restore(self, saved: SavedArrays) -> None:
        """Take over a saved state, or raise `StoreError` or `ValueError`."""
        first, people = self._groups[0], len(self._counts)
        pairs = saved.take("groups", np.float64, (None, 2)).tolist()
        if pairs[0] != [first.noise_multiplier, first.sample_rate]:
            raise StoreError("groups do not belong here: the first one is of other parameters")
        if first.sample_rate == 1.0 and any(rate != 1.0 for _, rate in pairs):
            raise StoreError("groups do not belong here: a filter of full batches has no sampled steps")
        self._clear(people)
        for i, (noise, rate) in enumerate(pairs):
            self._append(Buckets(rate, noise, saved.take(f"edges{i}", np.float64, (self._buckets,))))
        self._counts = saved.take("counts", np.int32, self._counts.shape, least=0, most=_MOST)
        self._credit = saved.take("credit", np.int32, self._credit.shape, least=0, most=_MOST)
        self._refused = saved.take("refused", np.int16, self._refused.shape, least=0, most=_NONE)
        self._sure = saved.take("sure", np.int16, self._sure.shape, least=-1, most=self._buckets - 1)
        self._high = saved.take("high", np.float64, self._high.shape, least=0.0, most=2.0**100)
        if self._counts.sum(axis=1).max() > _MOST:
            raise StoreError(f"counts do not belong here: a person has more than {_MOST} steps")
