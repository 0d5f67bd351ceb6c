"""Each person's epsilon at one delta, by PLD and by Renyi accounting: `Individuals`, which `assess` makes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .. import validate
from ..files.fingerprint import Source
from ..mechanisms.base import directions
from ..results import Bounds, Guarantee, Status
from ..rounding import exact
from .provenance import provenance

if TYPE_CHECKING:
    from ..ledger import Ledger
    from ..mechanism_ledger import MechanismLedger

    AnyLedger: TypeAlias = Ledger | MechanismLedger

__all__ = ["MIN_GROUP", "QUANTILES", "Individuals", "assess"]

MIN_GROUP = 10  # people
_ROUNDING = 1e-9  # relative, of a budget
_MORE = "A min_group of 1 shows everything."
_COUNTED = (
    "The schedule was counted from records: the worst case depends on people's data and is no guarantee, as a step "
    "may have left no record. Give the schedule that was planned."
)
_SAMPLED = (
    "About as many norms are above 0 as people are sampled. If only sampled people were recorded, the epsilons are "
    "too small: a ledger needs everybody's norm at every step, sampled or not."
)
_DIAGNOSTIC = (
    "The numbers of single people are a diagnostic, not a guarantee, unless their norms were fixed or capped "
    "beforehand. They depend on the data and are themselves sensitive."
)
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True, eq=False)
class Individuals:
    """Each person's epsilon at one delta, beside the worst case.

    Attributes
    ----------
    delta : float
    epsilon : Bounds of ndarray of shape (num_examples,)
        By privacy loss distributions, exactly as `Ledger.epsilon` gives it.
    rdp_epsilon : ndarray of shape (num_examples,)
        Upper bound by Renyi accounting.
    worst_case, worst_case_rdp : Bounds of float, float
        The same for a person of the largest norm at every step.
    guarantee : Guarantee
    steps : int
    labels : ndarray of shape (num_examples,) or None
        The group of every person.
    people : ndarray of shape (num_examples,) or None
        Everybody's id, an integer or a text; None for the numbers from 0.
    parameters : mapping
        Further parameters of the run, under the names of the command line.
    schedule : tuple of (noise multiplier, sample rate, steps), or of (mechanism, steps)
        As the ledger's.
    schedule_from_events : bool
        Whether its steps were counted from people's records.
    looks_sampled : bool
        Whether only the norms of sampled people may have been recorded.
    min_group : int
        Summaries, pictures and pages show nothing about fewer people than this.  Tables with a row per person are
        not affected.
    provenance : mapping
        The result of `provenance.provenance`.
    """

    delta: float
    epsilon: Bounds
    rdp_epsilon: np.ndarray
    worst_case: Bounds
    worst_case_rdp: float
    guarantee: Guarantee
    steps: int
    labels: np.ndarray | None = None
    people: np.ndarray | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    schedule: tuple[tuple[Any, ...], ...] = ()
    schedule_from_events: bool = False
    looks_sampled: bool = False
    min_group: int = MIN_GROUP
    provenance: Mapping[str, Any] = field(default_factory=provenance)

    def __repr__(self) -> str:
        # not everybody's numbers, which are sensitive
        return f"Individuals(delta={self.delta:g}, steps={self.steps}, epsilon={self.epsilon!r})"

    @property
    def num_examples(self) -> int:
        """Number of people."""
        return len(self.rdp_epsilon)

    @property
    def not_certified(self) -> int:
        """Number of people without a certified bound."""
        return self.by_status()[Status.NOT_CERTIFIED]

    @property
    def renyi_only(self) -> int:
        """Number of people whose upper bound is the Renyi bound."""
        return self.by_status()[Status.RENYI_ONLY]

    def caveats(self) -> list[str]:
        """A sentence for each status below `Status.CERTIFIED` that occurs, and for what a reader must know besides."""
        found = (
            ("Not certified", self.not_certified, Status.NOT_CERTIFIED),
            ("Renyi bound only", self.renyi_only, Status.RENYI_ONLY),
        )
        people = f"of {self.num_examples:,} people"
        told = [f"{name}: {count:,} {people}. {status.sentence}" for name, count, status in found if count]
        if self.few:
            told.append(
                f"There are fewer than {self.min_group} people in all, so only the worst case is shown. {_MORE}"
            )
        if self.schedule_from_events:
            told.append(_COUNTED)
        if self.looks_sampled:
            told.append(_SAMPLED)
        if self.delta * self.num_examples >= 1.0:
            told.append(
                f"delta = {exact(self.delta)} is not below 1 / {self.num_examples:,}, one over the number of people: "
                "to publish one person's record as it is has no larger delta."
            )
        return told

    @property
    def full_batches(self) -> bool:
        """Whether everybody takes part in every step."""
        return bool(self.schedule) and not self.of_mechanisms and all(rate == 1.0 for _, rate, _ in self.schedule)

    @property
    def of_mechanisms(self) -> bool:
        """Whether the schedule names mechanisms in place of noise and sample rates."""
        return any(isinstance(first, str) for first, *_ in self.schedule)

    @property
    def worst_person(self) -> str:
        """The worst case as a person, in words."""
        return "in every step" if self.of_mechanisms else "clipped at every step"

    @property
    def worst_label(self) -> str:
        """The name of the worst case in a table."""
        return f"worst case: {self.worst_person}{'' if self.guarantee.promise is None else ', no filter'}"

    @property
    def proven(self) -> str:
        """The guarantee in words, and what the numbers of single people are beside it."""
        # the guarantee of a ledger says both
        return f"{self.guarantee.sentence} {_DIAGNOSTIC}" if self.guarantee.proven_adaptive else self.guarantee.sentence

    @property
    def few(self) -> bool:
        """Whether there are fewer people in all than may be shown."""
        return self.num_examples < self.min_group

    def shown(self, probabilities: Sequence[float]) -> Sequence[float]:
        """Those quantiles that may be shown: none of few people."""
        return () if self.few else probabilities

    def by_status(self) -> list[int]:
        """Number of people of each `Status`."""
        status = np.broadcast_to(np.asarray(self.epsilon.status, dtype=np.intp), self.num_examples)
        return [int(count) for count in np.bincount(status, minlength=len(Status))]


def assess(
    ledger: AnyLedger,
    delta: float,
    direction: str = "both",
    *,
    labels: Any = None,
    index: np.ndarray | None = None,
    parameters: Mapping[str, Any] | None = None,
    source: Source | str | os.PathLike[str] | None = None,
    min_group: int = MIN_GROUP,
    seconds: float | None = None,
    guarantee: Guarantee | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Individuals:
    """Compute every person's epsilon from a ledger, by privacy loss distributions and by Renyi accounting.

    No bound is changed here: the numbers are those of `Ledger.epsilon` and `Ledger.rdp_epsilon`.

    Parameters
    ----------
    ledger, delta, direction, labels, parameters, source, min_group, seconds, guarantee, progress
        As in `calls.summarise`.
    index : ndarray of int, optional
        Each person's number in the log; by default the ids of the ledger.

    Raises
    ------
    ValueError
        For a bad argument, or a `guarantee` whose promise a person's epsilon exceeds.
    """
    if not hasattr(ledger, "schedule"):
        raise TypeError(f"ledger must be a ledger, such as Ledger, got {type(ledger).__name__}")
    validate.delta(delta)
    directions(direction)
    least = validate.count(min_group, "min_group", least=1)
    if not isinstance(guarantee, Guarantee | None):
        raise TypeError(f"guarantee must be a Guarantee, as filters have, got {type(guarantee).__name__}")
    if seconds is not None:
        validate.positive(seconds, "seconds")
    if not isinstance(parameters, Mapping | None):
        raise TypeError(f"parameters must be a mapping of names to values, got {parameters!r}")
    labels = None if labels is None else _checked_labels(labels, ledger.num_examples)
    worst = ledger.worst_case()
    own = ledger.run_parameters
    given = {**own, **(parameters or {})}
    if changed := sorted(name for name, value in own.items() if not np.array_equal(given[name], value)):
        raise ValueError(f"parameters must not contradict the ledger's {', '.join(changed)}, got {parameters}")
    epsilon = ledger.epsilon(delta, direction=direction, progress=progress, seconds=seconds)
    guarantee = guarantee or ledger.guarantee
    if guarantee.promise is not None and delta >= guarantee.promise[1]:
        above = int((epsilon.lower > guarantee.promise[0] * (1.0 + _ROUNDING)).sum())
        if above:
            raise ValueError(
                f"guarantee promises an epsilon of {guarantee.promise[0]:g}, and {above} of {ledger.num_examples} "
                "people have a larger one: the ledger holds steps that the filter did not admit"
            )
    return Individuals(
        delta=delta,
        epsilon=epsilon,
        rdp_epsilon=ledger.rdp_epsilon(delta),
        worst_case=worst.epsilon(delta, direction=direction),
        worst_case_rdp=worst.rdp_epsilon(delta),
        guarantee=guarantee,
        steps=ledger.steps,
        labels=labels,
        people=ledger.people if index is None else index,
        parameters={**given, "direction": direction, **({} if seconds is None else {"seconds": seconds})},
        schedule=ledger.schedule,
        schedule_from_events=ledger.schedule_from_events,
        looks_sampled=ledger.looks_sampled,
        min_group=least,
        provenance=provenance(source),
    )


def _checked_labels(labels: Any, people: int) -> np.ndarray:
    validate.in_order(labels, "labels")
    given = np.ma.asarray(labels)
    validate.array_shape(given, (people,), "labels")
    missing = np.ma.getmaskarray(given) | np.array([_is_missing(label) for label in given.data.tolist()])
    if missing.any():
        raise ValueError(f"labels has {int(missing.sum())} missing values; every person has a group")
    return np.asarray(labels)


def _is_missing(label: Any) -> bool:
    return label is None or label == "nan" or (isinstance(label, float) and math.isnan(label))
