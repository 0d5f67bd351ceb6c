"""`IndividualSteps`: the caps, the steps and the ledger of one training run, for any training library.

Between two refreshes every person is clipped at a cap of their own.  ``docs/how/caps.rst`` proves that a step then
costs a person no more than a Poisson-sampled Gaussian step with their cap as sensitivity, and lists the conditions.
"""

from __future__ import annotations

import copy
import inspect
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .. import validate
from ..files import store
from ..files.saved_state import SavedArrays
from ..filters.base import Filter
from ..filters.integer_budget import IntegerBudgetFilter
from ..ledger import Ledger
from ..locked import held
from ..results import Bounds, Guarantee
from .journal import Journal, JournalRow, relative

__all__ = ["BELOW_CAP", "MODES", "IndividualSteps", "refresh_schedule"]

BELOW_CAP = 1 - 1e-5
"""The share of a cap at which gradients are clipped: norms are sums of single-precision squares, and rounding must not
lift a clipped norm over the cap."""

MODES = ("caps", "exact", "watched", "observed")

# Gradients change fastest at the beginning of a run, so the first refreshes lie close together.
_EARLY = frozenset((0, 5, 10, 20, 30, 45, 70, 100, 150, 200, 300))
_LATE = 250
_LONGEST = 1000  # steps that a filter is asked for at once

_KIND, _VERSION = "pld-accountant training run", 1

_SAMPLED = (
    "Batches must be drawn by Poisson sampling, the noise must be noise_multiplier * max_grad_norm whatever the caps "
    "are, and the sum must be divided by a public constant. The numbers depend on the data and are themselves "
    "sensitive."
)
_REFERENCE = "Zhu, Dong and Wang (2022), Theorem 10; docs/how/caps.rst"
_CAPS = (
    "Each number bounds the privacy loss of that person for this sequence of caps, and every step was clipped at its "
    "cap. "
)
_ADAPTIVE = (
    "The caps, noise multipliers or clipping norms of later steps may have depended on earlier releases: for the run "
    "as a whole the number is a diagnostic, not a guarantee. "
)
_FIXED = (
    "All caps came from the model at the start, and all steps had one noise multiplier and one clipping norm: if that "
    "model did not depend on the data, and the number of steps was fixed beforehand, the upper bound may be promised "
    "to the person, although the steps are adaptive. "
)
_ESTIMATE = (
    "Estimates, not bounds: a person's norm is known only at the steps for which they were sampled, and the last known "
    "norm stands for the steps in between. The true number may be larger. "
)


def refresh_schedule(refresh: Any = None) -> Callable[[int], bool]:
    """Whether a step, counted from 0, begins with a refresh.

    Parameters
    ----------
    refresh : None, int, iterable of int, or callable
        None: at steps 0, 5, 10, 20, 30, 45, 70, 100, 150, 200, 250, 300, and then at every 250th.  A number: every so
        many steps.  Some step numbers, which must hold 0.  A function of the step number.  The schedule must be public:
        it must not depend on the data.

    Examples
    --------
    >>> [step for step in range(1600) if refresh_schedule()(step)][-4:]
    [750, 1000, 1250, 1500]
    """
    if refresh is None:
        return _early_and_late
    if callable(refresh):
        return partial(_asked, refresh)
    if np.ndim(refresh) == 0:
        return partial(_every, validate.count(refresh, "refresh", least=1))
    steps = frozenset(validate.count(step, "refresh") for step in refresh)
    if 0 not in steps:
        raise ValueError("refresh must hold step 0: before the first refresh nobody has a cap")
    return steps.__contains__


# functions with names, because runs are pickled


def _early_and_late(step: int) -> bool:
    return step in _EARLY or (step > 0 and step % _LATE == 0)


def _asked(refresh: Callable[[int], Any], step: int) -> bool:
    return bool(refresh(step))


def _every(steps: int, step: int) -> bool:
    return step % steps == 0


@dataclass
class _Stretch:
    """Steps with the same caps that a filter has admitted: person i takes part in the first ``most[i]`` of them."""

    caps: np.ndarray
    key: tuple[float, float]  # noise multiplier, clipping norm
    length: int
    most: np.ndarray
    before: np.ndarray  # units left in the filter before and after it was charged
    after: np.ndarray
    taken: int = 0

    def row(self) -> np.ndarray:
        """The caps of the coming step."""
        return np.where(self.most > self.taken, self.caps, 0.0)

    def rows(self) -> Iterator[tuple[np.ndarray, int]]:
        """A few rows, each with a number of steps, in which everybody has as many steps as they took.

        Parts 1, 2, 4, ... and a last one add up to all steps taken, and some of them to every smaller number.  People
        drop out at many different steps, and a row for each of these would cost more than the training.
        """
        left, part = np.minimum(self.most, self.taken), 1
        parts: list[int] = []
        while sum(parts) < self.taken:
            parts.append(min(part, self.taken - sum(parts)))
            part *= 2
        for steps in sorted(parts, reverse=True):
            takes = left >= steps
            left = left - steps * takes
            yield np.where(takes, self.caps, 0.0), steps


class IndividualSteps:
    """The caps of all people, and the ledger that counts them.

    Parameters
    ----------
    num_examples : int
        Number of people.
    noise_multiplier, sample_rate, max_grad_norm : float
        As for `Ledger`.  A step may have another noise multiplier or clipping norm.
    mode : {"caps", "exact", "watched", "observed"}
        ``caps``: between two refreshes everybody is clipped at min(max_grad_norm, slack * norm at the refresh).
        ``exact``: a refresh before every step, without slack.  ``watched``: the same for some people; the others are
        clipped at max_grad_norm, and nothing is said about them.  ``observed``: norms of sampled people only, which
        gives *estimates*, no bounds.
    refresh : optional
        For ``caps``: see `refresh_schedule`.
    slack : float
        For ``caps``: at least 1.  More slack clips less and costs more.
    watched : int or array_like of int
        For ``watched``: the numbers of these people, or how many to choose at random.  The choice must be public and
        must not depend on the data.  ``run.ledger.people = run.people`` names them in tables.
    seed : int, optional
        Of the random choice.
    keep : Filter, optional
        A person whose budget does not hold the coming step has a cap of 0 at this step.  The filter is charged
        beforehand for the steps until the next refresh.  Those that are not taken, because the noise changes or the
        run ends, are given back by `ledger`, `epsilon` and `save`: ask for one of them before ``keep.spent()``.
    journal : Journal, optional
        Receives every step before it is taken, with the caps that it is charged with.  If the journal already holds
        more steps than this run, for example after a crash, they are counted first: they may have been released.
    """

    def __init__(
        self,
        num_examples: int,
        *,
        noise_multiplier: float,
        sample_rate: float,
        max_grad_norm: float,
        mode: str = "caps",
        refresh: Any = None,
        slack: float = 1.1,
        watched: Any = 1000,
        seed: int | None = None,
        keep: Filter | None = None,
        journal: Journal | None = None,
    ) -> None:
        for name, value, kind in (("keep", keep, Filter), ("journal", journal, Journal)):
            if value is not None and not isinstance(value, kind):
                raise ValueError(f"{name} must be a {kind.__name__}, got {value!r}")
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        self.mode = mode
        self.num_examples = validate.count(num_examples, "num_examples", least=1)
        self.sample_rate = validate.sample_rate(sample_rate)
        self.max_grad_norm = validate.clipping_norm(max_grad_norm)
        self.slack = validate.positive(slack, "slack")
        if self.slack < 1:
            raise ValueError(f"slack must be at least 1, got {slack!r}")
        if mode == "caps":
            self._due = refresh_schedule(refresh)
            if not self._due(0):
                raise ValueError("refresh must hold step 0: before the first refresh nobody has a cap")
        elif refresh is not None:
            raise ValueError(f"refresh is for mode 'caps'; mode {mode!r} has its own times")
        everybody = np.arange(self.num_examples)
        self.people = self._chosen(watched, seed) if mode == "watched" else everybody
        # another process would draw other people
        self._drawn_anew = mode == "watched" and np.ndim(watched) == 0 and seed is None
        if keep is not None and (mode not in ("caps", "exact") or keep.num_examples != self.num_examples):
            raise ValueError(
                f"keep needs mode 'caps' or 'exact' and a filter of the same {self.num_examples} people, "
                f"got mode {mode!r} and {keep!r}"
            )
        if keep is not None and not keep.individual:
            raise ValueError(
                "keep must have a budget for each person, individual=True: the largest cap of the people is no bound "
                "for every possible record"
            )
        if journal is not None and mode == "observed":
            raise ValueError("a journal holds norms of bounds; mode 'observed' has only estimates")
        if journal is not None and journal.num_examples != len(self.people):
            raise ValueError(f"the journal must be of {len(self.people)} people, got {journal.num_examples}")
        self.keep = keep
        self.journal = journal
        self._ledger = Ledger(
            len(self.people), noise_multiplier=noise_multiplier, sample_rate=sample_rate, max_grad_norm=max_grad_norm
        )
        self._rated = False  # whether the filter takes sample rates
        if keep is not None:
            self._check_filter(keep, noise_multiplier)
        self.steps = 0
        self.refreshes = 0
        start = self.max_grad_norm if mode == "observed" else np.nan
        self._norms = np.full(len(self.people), start)
        self._row: np.ndarray | None = None
        self._row_steps = 0
        self._row_key: tuple[float, float] = (0.0, 0.0)
        self._setting: tuple[float, float] | None = None  # noise multiplier and clipping norm of the first step
        self._varied = False  # whether a later step had others
        self._written: np.ndarray | None = None  # the last row of the journal
        self._caught_up = journal is None
        self._stretch: _Stretch | None = None

    def __repr__(self) -> str:
        return (
            f"IndividualSteps({self.num_examples}, sample_rate={self.sample_rate}, max_grad_norm={self.max_grad_norm}, "
            f"mode={self.mode!r}; {self.steps} steps, {self.refreshes} refreshes)"
        )

    def _chosen(self, watched: Any, seed: int | None) -> np.ndarray:
        if np.ndim(watched) == 0:
            number = min(validate.count(watched, "watched", least=1), self.num_examples)
            return np.sort(np.random.default_rng(seed).choice(self.num_examples, number, replace=False))
        people = np.unique(np.asarray(watched))
        if people.dtype.kind not in "iu" or len(people) != np.size(watched) or not len(people):
            raise ValueError(f"watched must name people by different whole numbers, got {watched!r}")
        if people[0] < 0 or people[-1] >= self.num_examples:
            raise ValueError(f"watched must lie in 0 to {self.num_examples - 1}, got {people[0]} to {people[-1]}")
        return people

    # ------------------------------------------------------------------ the run

    @property
    def due(self) -> bool:
        """Whether the coming step begins with a refresh."""
        if self.mode == "observed":
            return False
        self._catch_up()
        return self.mode != "caps" or self._due(self.steps) or bool(np.isnan(self._norms).any())

    def _catch_up(self) -> None:
        """Count the steps that the journal holds and this run does not."""
        if self._caught_up:
            return
        assert self.journal is not None
        if self.journal.steps < self.steps:
            raise ValueError(
                f"{self.journal.path} holds {self.journal.steps} steps, but this run has taken {self.steps}: "
                "the journal is not that of this run"
            )
        if self.journal.steps and self._drawn_anew:
            raise ValueError(
                f"{self.journal.path} holds steps of people who were drawn at random, and other people have been drawn "
                "now; load a checkpoint of the run, or name its people in `watched`"
            )
        self._flush_row()
        for row in self.journal.rows(self.steps):
            # a refresh writes a row; the one before the first step may have been counted by a checkpoint
            self.refreshes += row.new and (row.start > 0 or not self.refreshes)
            self._replay(row)
        self._caught_up, self._written = True, None

    def _replay(self, row: JournalRow) -> None:
        """Count the steps of a row of the journal, and charge the filter with them."""
        if row.sample_rate != self.sample_rate:
            raise ValueError(
                f"the journal has a step with sample_rate={row.sample_rate!r}, this run has {self.sample_rate!r}"
            )
        noise, clip = row.noise_multiplier, row.max_grad_norm
        self._note(noise, clip)
        if self.keep is not None:
            admitted = self._admitted(row.norms, noise, clip, steps=row.steps)
            if np.any(admitted[row.norms > 0] < row.steps):
                raise ValueError("the journal holds a step that the filter refuses: it is of a run with another filter")
        self._count(row.norms, noise, clip, row.steps)
        self.steps += row.steps

    def refresh(self, norms: Any) -> None:
        """Take the norms of `people` at the present model, which must have been released.

        Parameters
        ----------
        norms : array_like, shape (len(people),)
            Gradient norms before clipping.  A wrong norm makes the caps looser or tighter than intended, but never
            wrong, because every gradient is clipped at the cap.

        Raises
        ------
        ValueError
            For a norm that is NaN, infinite or negative; the caps are unchanged then.
        """
        array = validate.step_norms(norms, len(self.people), first_row=self.steps)
        self._settle()
        self._norms = array * self.slack if self.mode == "caps" else array.copy()
        self._written = None  # the journal tells refreshes apart, even if their caps are equal
        self.refreshes += 1

    def begin(self, noise_multiplier: float | None = None, max_grad_norm: float | None = None) -> np.ndarray:
        """Book the coming step, before anything is released, and return the clipping norm of every person for it.

        Returns
        -------
        ndarray, shape (num_examples,)
            At most max_grad_norm.  0 for a person whom the filter refuses: this person must contribute nothing.

        Raises
        ------
        RuntimeError
            If a refresh is due and was not made.
        """
        self._catch_up()
        noise = validate.noise_multiplier(
            self._ledger.noise_multiplier if noise_multiplier is None else noise_multiplier
        )
        clip = validate.clipping_norm(self.max_grad_norm if max_grad_norm is None else max_grad_norm)
        if np.isnan(self._norms).any():
            raise RuntimeError("the first step needs a refresh before it")
        self._note(noise, clip)
        row = np.minimum(self._norms, clip)
        if self.keep is not None:
            row = self._kept(row, noise, clip)
        if self.journal is not None:
            self._write(row, noise, clip)
        if self._stretch is None:
            self._count(row, noise, clip)
        else:
            self._stretch.taken += 1
        self.steps += 1
        if self.mode == "observed":
            return np.full(self.num_examples, clip)
        caps = np.full(self.num_examples, clip)
        caps[self.people] = row
        return caps

    def _note(self, noise: float, clip: float) -> None:
        """Note the noise multiplier and the clipping norm of a step."""
        self._setting = self._setting or (noise, clip)
        self._varied |= self._setting != (noise, clip)

    def _kept(self, row: np.ndarray, noise: float, clip: float) -> np.ndarray:
        """The caps of the coming step, 0 for those whom the filter refuses."""
        if not isinstance(self.keep, IntegerBudgetFilter):
            return np.where(self._admitted(row, noise, clip), row, 0.0)
        now = self._stretch
        if now is None or now.key != (noise, clip) or now.taken == now.length:
            self._settle()
            with held(self.keep):  # between before and after nobody else may charge it
                length, before = self._until_due(), self.keep.units_left
                most = self._admitted(row, noise, clip, steps=length)
                self._stretch = now = _Stretch(row, (noise, clip), length, most, before, self.keep.units_left)
        return now.row()

    def _until_due(self) -> int:
        """Number of steps, at least 1, until the next refresh."""
        if self.mode != "caps":
            return 1
        return next((n for n in range(1, _LONGEST) if self._due(self.steps + n)), _LONGEST)

    def _settle(self) -> None:
        """Count the steps of the present stretch that were taken, and give the others back to the filter.

        If it is interrupted, steps may be counted twice, or not given back; none is lost.
        """
        now = self._stretch
        if now is None:
            return
        for row, steps in now.rows():
            self._count(row, *now.key, steps)
        self._stretch = None
        if now.taken == now.length:
            return
        assert isinstance(self.keep, IntegerBudgetFilter)
        with held(self.keep):
            if not np.array_equal(self.keep.units_left, now.after):
                return  # charged elsewhere since: to give back steps would give back those charges, too
            charged = copy.copy(self.keep)
            charged.take_units(now.before)
            if now.taken:
                charged.admit(now.caps, **self._arguments(*now.key, steps=now.taken))
            self.keep.take_units(charged.units_left)

    def _check_filter(self, keep: Filter, noise_multiplier: float) -> None:
        """Raise `ValueError` unless the filter takes the steps of the run."""
        takes = inspect.signature(keep.admit).parameters
        self._rated = "sample_rate" in takes
        if "max_grad_norm" not in takes or not (self._rated or self.sample_rate == 1.0):
            kind = "Gaussian" if self.sample_rate == 1.0 else "sampled"
            raise ValueError(f"keep must be a filter of {kind} steps, such as RenyiFilter, got {type(keep).__name__}")
        # norms of 0 cost nobody anything
        self._admitted(np.zeros(self.num_examples), noise_multiplier, self.max_grad_norm)

    def _admitted(self, row: np.ndarray, noise: float, clip: float, **steps: int) -> np.ndarray:
        assert self.keep is not None
        if steps and not isinstance(self.keep, IntegerBudgetFilter):
            step = self._arguments(noise, clip)
            return np.sum([self.keep.admit(row, **step) for _ in range(steps["steps"])], axis=0)
        return self.keep.admit(row, **self._arguments(noise, clip, **steps))

    def _arguments(self, noise: float, clip: float, **steps: int) -> dict[str, Any]:
        """The arguments of a step or stretch for the filter."""
        rate = {"sample_rate": self.sample_rate} if self._rated else {}
        return {"noise_multiplier": noise, "max_grad_norm": clip, **rate, **steps}

    def _write(self, row: np.ndarray, noise: float, clip: float) -> None:
        assert self.journal is not None
        if self._written is None or not np.array_equal(row, self._written):
            self.journal.row(row)
            self._written = row
        self.journal.step(noise, self.sample_rate, clip)

    def _count(self, row: np.ndarray, noise: float, clip: float, steps: int = 1) -> None:
        same = self._row is not None and self._row_key == (noise, clip) and np.array_equal(row, self._row)
        if not same:
            self._flush_row()
            self._row, self._row_key = row, (noise, clip)
        self._row_steps += steps

    def _flush(self) -> None:
        """Bring the ledger and the filter up to the present step."""
        self._catch_up()
        self._settle()
        self._flush_row()

    def _flush_row(self) -> None:
        """Count the steps of the present row in the ledger."""
        if self._row is None or not self._row_steps:
            return
        noise, clip = self._row_key
        row = relative(self._row, clip, self.max_grad_norm)
        self._ledger.record(row, repeat=self._row_steps, noise_multiplier=noise, sample_rate=self.sample_rate)
        self._row_steps = 0

    def observe(self, people: Any, norms: Any) -> None:
        """Take the norms of the sampled people, for mode ``observed``."""
        if self.mode != "observed":
            raise RuntimeError("caps must not depend on who was sampled: only mode 'observed' takes norms of batches")
        self._norms = self._norms.copy()
        self._norms[np.asarray(people)] = np.minimum(np.asarray(norms, dtype=np.float64), self.max_grad_norm)

    # ------------------------------------------------------------------ the answers

    @property
    def caps(self) -> np.ndarray:
        """The cap of each of `people` before the filter, at most max_grad_norm; NaN before the first refresh."""
        return np.minimum(self._norms, self.max_grad_norm)

    @property
    def ledger(self) -> Ledger:
        """The ledger of all steps so far, with a row for each of `people`.

        Raises
        ------
        RuntimeError
            In mode ``observed``, which has no bounds: `estimate` has its numbers.
        """
        if self.mode == "observed":
            raise RuntimeError("mode 'observed' has estimates only, no bounds: call estimate(delta)")
        self._flush()
        return self._ledger

    def epsilon(self, delta: Any, **options: Any) -> Bounds:
        """Bounds of the epsilon of each of `people`, as `Ledger.epsilon`; `guarantee` says what they promise."""
        return self.ledger.epsilon(delta, **options)

    def estimate(self, delta: float) -> np.ndarray:
        """Everybody's *estimated* epsilon in mode ``observed``, shape (num_examples,); no bound in either direction"""
        if self.mode != "observed":
            raise RuntimeError(f"mode {self.mode!r} has bounds: call epsilon(delta)")
        self._flush()
        return self._ledger.epsilon(delta, bounds="upper").upper.copy()

    def worst_case(self) -> Any:
        """The composition of the steps for a person who is clipped at max_grad_norm at every step."""
        self._flush()
        return self._ledger.worst_case()

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of `epsilon`, or of `estimate`; with a filter that of its budget, and not of `epsilon`."""
        if self.mode == "observed":
            return Guarantee("estimate", False, _ESTIMATE + _SAMPLED, "Yu et al. (2022), arXiv 2206.02617")
        self._catch_up()
        if self.keep is not None:
            return self.keep.guarantee
        if self.mode == "caps" and self.refreshes <= 1 and not self._varied:
            return Guarantee("fixed caps", True, _CAPS + _FIXED + _SAMPLED, _REFERENCE)
        return Guarantee("caps", False, _CAPS + _ADAPTIVE + _SAMPLED, _REFERENCE)

    # ------------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ledger, the caps and the filter's state to one file, completely or not at all.

        Save it with every checkpoint of the model.  Steps after the last checkpoint are released, too: if a run is
        resumed at an older checkpoint, count them as well (`journal` keeps them).
        """
        self._flush()
        parts = {"ledger": _file(self._ledger.save)}
        if self.keep is not None:
            parts["keep"] = _file(self.keep.save)
        header = {**self._identity(), "steps": self.steps, "refreshes": self.refreshes}
        header["before_first_refresh"] = bool(np.isnan(self._norms).any())
        header |= {"setting": self._setting, "varied": self._varied}
        norms = np.where(np.isnan(self._norms), 0.0, self._norms)
        store.save(path, _KIND, _VERSION, header, {**parts, "norms": norms, "people": self.people})

    def load(self, path: str | os.PathLike[str]) -> None:
        """Take over the state of a run with the same parameters.

        Raises
        ------
        FileNotFoundError
        StoreError
            If the file was cut or altered, or is of a run with other parameters.  This run is unchanged then.
        """
        header, arrays = store.load(path, _KIND, _VERSION)
        with store.refuse_invalid(path, _KIND):
            steps = validate.count(header.pop("steps"), "steps")
            refreshes = validate.count(header.pop("refreshes"), "refreshes")
            before = bool(header.pop("before_first_refresh"))
            # files of older versions do not say whether it varied
            setting, varied = header.pop("setting", None), validate.flag(header.pop("varied", True), "varied")
            if setting is not None:
                noise, clip = setting
                setting = validate.noise_multiplier(noise), validate.clipping_norm(clip)
            if header != self._identity():
                own = self._identity()
                other = next((name for name in own if own[name] != header.get(name)), "header")
                raise ValueError(f"it is of a run with {other}={header.get(other)!r}, not {own.get(other)!r}")
            saved = SavedArrays(arrays)
            people = saved.take("people", np.int64, (len(self.people),), least=0, most=self.num_examples - 1)
            norms = saved.take("norms", np.float64, (len(self.people),), least=0)
            with tempfile.TemporaryDirectory() as folder:
                ledger = Ledger.load(_unpacked(folder, saved, "ledger"))
                kept = None if self.keep is None else _unpacked(folder, saved, "keep")
                saved.finish()
                # more steps, if some were counted twice after an interrupt
                if ledger.steps < steps or ledger.num_examples != len(people):
                    raise ValueError("its ledger and its header disagree")
                if self.keep is not None and kept is not None:  # last, because nothing may fail after it
                    self.keep.load(kept)
        self._ledger, self.people, self.steps, self.refreshes = ledger, people, steps, refreshes
        self._setting, self._varied, self._drawn_anew = setting, varied, False
        self._norms = np.full(len(people), np.nan) if before else norms
        self._row, self._row_steps, self._written, self._stretch = None, 0, None, None
        self._caught_up = self.journal is None

    def _identity(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "num_examples": self.num_examples,
            "sample_rate": self.sample_rate,
            "max_grad_norm": self.max_grad_norm,
            "slack": self.slack,
            "filter": None if self.keep is None else type(self.keep).__name__,
        }


def _file(save: Callable[[BinaryIO], None]) -> np.ndarray:
    """The bytes that a `save` writes."""
    file = BytesIO()
    save(file)
    return np.frombuffer(file.getbuffer(), dtype=np.uint8)


def _unpacked(folder: str, saved: SavedArrays, name: str) -> Path:
    path = Path(folder) / name
    path.write_bytes(saved.take(name, np.uint8, (None,)).tobytes())
    return path
