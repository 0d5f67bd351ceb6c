"""From counts to `Bounds`: closed forms first, then the methods of a schedule, then the Renyi bound."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from .. import deadline
from ..counting.counts import Counts, InterpolatedCounts, WholeCounts
from ..mechanisms.base import CharacteristicSteps
from ..results import Bounds
from ..results import Method as Proof
from ..tables.makers import TableMakers
from . import schedule
from .closed_forms import (
    cap_delta,
    cap_epsilon,
    full_batches,
    largest_loss,
    least_epsilon,
    single_steps,
    surely_zero,
)
from .method import HANDFUL, Job, Method, Progress, report
from .question import DeltaAt, EpsilonAt, Question
from .renyi import renyi_bounds
from .working import WorkingBounds

__all__ = ["bounds", "methods_for", "several", "solve"]

_NEAR_CAP = 0.1  # share of the largest loss below which epsilon may be told by the Renyi bound and a lower bound
_CLOSE = 1e-6  # relative: bounds this close are enough
_VISIBLE = 30.0  # log of delta over the mass that no method sees: from there on, that mass is less than round-off

Schedule = Sequence[Method]


def bounds(
    counts: Counts,
    makers: TableMakers,
    questions: Sequence[Question],
    *,
    whole: WholeCounts | None = None,
    methods: Schedule | None = None,
    progress: Progress | None = None,
    width: float = 0.0,
    known: Sequence[NDArray] | None = None,
) -> list[Bounds]:
    """Bounds for every person and question, in one direction.

    Parameters
    ----------
    counts : Counts
    makers : TableMakers
        Of the steps that the counts' rows stand for.
    questions : sequence of Question
        All of one kind, each with one target for everybody.
    whole : WholeCounts, optional
        The same steps counted whole, for people whose interpolated `counts` give loose bounds.  If `counts` are those
        of the lower bound, only the lower bounds of the result hold for the steps; otherwise only the upper bounds.
    methods : sequence of Method, optional
        The schedule; chosen by the number of people and the kind of counts if not given.
    progress : callable, optional
        Called with the number of people and questions done since the last call.
    width : float
        Bounds this close are close enough (`Method.width`).
    known : sequence of ndarray, shape (people,), optional
        One for each question, in the unit of the answer.  Only the larger of the answer and this is wanted: an upper
        bound below it is close enough.

    Returns
    -------
    list of Bounds
        One for each question, arrays of shape (people,); of epsilon, or of delta itself.
    """
    asked = [q.loosened(counts.log_loss) if isinstance(q, EpsilonAt) else q for q in questions]
    least: list[NDArray | None] = [None] * len(questions)
    if known is not None:
        least = [_in_unit(k, q) for k, q in zip(known, questions, strict=True)]
    found = _solve(counts, makers, asked, methods, progress, whole, width, least)
    for question, working, one in zip(questions, found, least, strict=True):
        if whole is not None:
            _solve_loose(working, counts, whole, makers, question, width, one)
    return [working.answer(question) for question, working in zip(questions, found, strict=True)]


def solve(counts: Counts, makers: TableMakers, question: Question, *, methods: Schedule | None = None) -> WorkingBounds:
    """Working bounds for one question, whose target may be each person's own."""
    return _solve(counts, makers, [question], methods, None, None)[0]


def several(
    counts: WholeCounts,
    makers: TableMakers,
    question: Question,
    *,
    methods: Schedule | None = None,
    width: float = 0.0,
    known: NDArray | None = None,
) -> tuple[Bounds, NDArray]:
    """Bounds for several questions about the same counts, from the methods that share work between questions.

    Parameters
    ----------
    counts : WholeCounts
        As many equal rows as there are questions, at most `HANDFUL` over the number of kinds of steps.
    makers, methods, width
        As for `bounds`.
    question : Question
        A target for each row.
    known : ndarray, shape (people,), optional
        As for `bounds`.

    Returns
    -------
    Bounds
        Arrays of shape (people,).
    ndarray of bool, shape (people,)
        Whether the other methods of the schedule might tighten these bounds.
    """
    chosen = _relaxed(methods_for(counts, makers, True, width) if methods is None else methods, width)
    least, steps = None if known is None else _in_unit(known, question), counts.steps()
    # a method without shared work is often quicker than those after it
    tried = [method.of_several() for method in chosen if np.any(method.serves(steps))]
    shared = [one for one in takewhile(bool, tried) if one is not None]
    working = _solve(counts, makers, [question], shared, None, None, known=[least])[0]
    job, people = Job(counts, makers, question, steps, True, known=least), np.arange(len(counts))
    left = np.zeros(len(counts), dtype=bool)
    for method in chosen:
        if method.of_several() not in shared:
            left[replace(method, most_people=np.inf).left_open(job, working, people)] = True
    return working.answer(question), left


def _in_unit(known: NDArray, question: Question) -> NDArray:
    """Epsilons as they are, and deltas as their logs."""
    with np.errstate(divide="ignore"):
        return known if question.wants_epsilon else np.log(known)


def _solve(
    counts: Counts,
    makers: TableMakers,
    questions: Sequence[Question],
    methods: Schedule | None,
    progress: Progress | None,
    whole: WholeCounts | None,
    width: float = 0.0,
    known: Sequence[NDArray | None] = (None,),
) -> list[WorkingBounds]:
    people, steps = len(counts), counts.steps()
    exact = whole if isinstance(counts, InterpolatedCounts) else counts
    cap = np.full(people, np.inf) if exact is None else largest_loss(exact, makers.steps)
    many = np.flatnonzero(steps > 1)
    few = _handful(counts, many)
    if whole is not None and few and isinstance(counts, InterpolatedCounts):
        # whole counts serve these people more exactly (`_solve_loose`)
        many = many[~counts.whole()[many]]
    chosen = methods_for(counts, makers, few and whole is None, width) if methods is None else methods
    chosen = _relaxed(chosen, width)
    found = []
    for question, least in zip(questions, known, strict=True):
        working = WorkingBounds.unknown(people, question)
        working.settle(np.flatnonzero(steps == 0), *(question.floor,) * 3, Proof.CLOSED_FORM)
        once = np.flatnonzero(steps == 1)
        if once.size:
            single_steps(counts, makers.steps, question, working, once)
        if isinstance(question, EpsilonAt):
            # Not of interpolated counts: total variation is concave in a full batch's precision.  Not if epsilon is
            # positive in the other direction: delta(0) is the same in both.
            if exact is not None and (least is None or not np.all(least > 0.0)):
                zero = many[surely_zero(exact, makers.steps, question, many)]
                working.settle(zero, 0.0, 0.0, 0.0, Proof.CLOSED_FORM)
            if least is not None:
                below = many[~working.solved[many] & (cap[many] <= least[many])]
                working.settle(below, 0.0, np.nan, cap[below], Proof.CLOSED_FORM)
        elif isinstance(question, DeltaAt):
            cap_delta(question, working, cap, many)
        full_batches(counts, makers.steps, question, working, many[~working.solved[many]])
        left = many[~working.solved[many]]
        report(progress, people - left.size)
        found.append(working)
        job = Job(counts, makers, question, steps, few, progress, least)
        if few and isinstance(question, EpsilonAt) and exact is counts:
            _settle_at_cap(job, working, left[np.isfinite(cap[left])], cap)
        _run(job, working, left, chosen)
        if isinstance(question, EpsilonAt) and exact is not None:
            cap_epsilon(exact, makers.steps, question, working, cap)
    return found


def _relaxed(methods: Schedule, width: float) -> Schedule:
    """The methods, if bounds this close are close enough; some are equal then, and are tried once."""
    return list(dict.fromkeys(method.relaxed(width) for method in methods)) if width else methods


def methods_for(counts: Counts, makers: TableMakers, few: bool, width: float = 0.0) -> Schedule:
    """The schedule for this kind of steps, counts and number of people, if bounds this close are close enough."""
    if not (isinstance(makers.steps, CharacteristicSteps) and makers.steps.decays):
        chosen = schedule.GRID
        if isinstance(makers.steps, CharacteristicSteps):
            chosen = schedule.ATOMS if makers.steps.atomic else schedule.MIXED
            if getattr(makers.steps, "partly_decays", False):
                chosen = schedule.BESIDE_NOISE
        return (schedule.ROUGH, *chosen) if width >= schedule.ROUGH_WIDTH else chosen
    if few:
        return schedule.HANDFUL if isinstance(counts, WholeCounts) and counts.at is not None else schedule.SINGLE
    return schedule.INTERPOLATED if isinstance(counts, InterpolatedCounts) else schedule.WHOLE


def _run(job: Job, working: WorkingBounds, people: NDArray, methods: Schedule) -> None:
    """Method after method for the people left open, then the Renyi bound."""
    if not people.size:
        return
    told, reporting = 0, True

    def tell(number: int) -> None:
        nonlocal told
        told += number
        report(job.progress, number)

    # a small delta of atoms needs losses that reach far; methods of infinite width leave alone whoever has a bound
    far = not job.question.wants_epsilon and getattr(job.makers.steps, "atomic", False)
    if (
        job.few
        and (far or job.known is not None or deadline.left() < np.inf)
        and any(np.isfinite(m.width) for m in methods)
    ):
        _cap_by_renyi(job, working, people)
    if job.known is not None:
        # tilts for what is known prove soonest that the answer lies below it; there is none for 0
        some = people[np.isfinite(job.known[people]) & (job.known[people] != job.question.floor)]
        working.estimate[some] = np.fmin(working.estimate[some], job.known[some])
    unseen = getattr(job.makers.steps, "log_unseen", -np.inf) + np.log(job.steps[people]) + _VISIBLE
    seen = people
    if job.question.wants_epsilon:
        seen = people[job.question.targets(len(job.counts))[people] > unseen]
    with suppress(deadline.OutOfTime), deadline.strict():
        for method in methods:
            left = method.left_open(job, working, seen)
            if left.size:
                deadline.check()
                method.improve(replace(job, progress=tell if reporting else None), working, left)
            reporting = False
    if not job.question.wants_epsilon:
        working.upper[people] = np.maximum(working.upper[people], unseen)
    _cap_by_renyi(job, working, people)
    report(job.progress, people.size - told)


def _solve_loose(
    working: WorkingBounds,
    counts: Counts,
    whole: WholeCounts,
    makers: TableMakers,
    question: Question,
    width: float,
    known: NDArray | None,
) -> None:
    """Solve people whose interpolated bounds are loose again with whole counts, and keep the tighter side."""
    steps = whole.steps()
    many = np.flatnonzero(steps > 1)
    job = Job(counts, makers, question, steps, False, known=known)
    if not question.wants_epsilon:
        # the deltas that the Renyi bound shows to be tiny are not worth the time
        _cap_by_renyi(job, working, many)
    loose = schedule.LOOSE.left_open(job, working, many)
    if loose.size and deadline.left() > 0.0:
        methods = methods_for(whole, makers, _handful(whole, many))
        least = None if known is None else known[loose]
        again = _solve(whole.of(loose), makers, [question.of(loose)], methods, None, None, width, [least])[0]
        working.take_side(loose, again, lower=counts.log_loss > 0.0)


def _handful(counts: Counts, who: NDArray) -> bool:
    """Whether there are so few people and buckets that each may cost some seconds."""
    return who.size <= HANDFUL and who.size * int(counts.used(who).sum()) <= HANDFUL


def _settle_at_cap(job: Job, working: WorkingBounds, people: NDArray, cap: NDArray) -> None:
    """Settle people whose epsilon is nearly their largest loss, as for few steps and a delta below its mass."""
    question = job.question
    assert isinstance(question, EpsilonAt)
    least = least_epsilon(job.counts, job.makers.steps, question, people)
    near = least >= (1.0 - _NEAR_CAP) * cap[people]
    people, least = people[near], least[near]
    if people.size:
        counts, asked = job.of(people)
        renyi = working.renyi[people] = renyi_bounds(counts, job.makers.any(interpolated=False), asked)
        upper = np.fmin(cap[people], renyi)
        close = least >= (1.0 - _CLOSE) * upper
        who, method = people[close], np.where(renyi < cap[people], Proof.RENYI, Proof.CLOSED_FORM)
        working.settle(who, least[close], upper[close], upper[close], method[close])


def _cap_by_renyi(job: Job, working: WorkingBounds, people: NDArray) -> None:
    """Cap every upper bound with the Renyi bound, computed where it is not known yet."""
    unknown = people[~working.solved[people] & np.isnan(working.renyi[people])]
    if unknown.size:
        counts, question = job.of(unknown)
        working.renyi[unknown] = renyi_bounds(counts, job.makers.any(interpolated=job.interpolated), question)
    renyi = working.renyi[people]
    most = np.maximum(renyi, 0.0) if job.question.wants_epsilon else np.minimum(renyi, 0.0)
    working.cap(people, most, Proof.RENYI)
