"""Counts and quantiles of many people: `Summary`, as text for the terminal and as a mapping for JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..results import Bounds, Method, Status
from ..rounding import exact, finite_or_none, people_and_steps, quantile_name, rounded_up
from .histogram import Group, Quantiles, Share, groups, quantiles, share_under
from .individuals import QUANTILES, Individuals
from .provenance import provenance_line

__all__ = ["Summary", "bounds_facts", "columns", "schedule_facts", "schedule_of", "summarise", "wrapped"]

_WIDTH = 108
_GROUPS_SHOWN = 24
_OF_STEPS, _OF_RUNS = ("noise_multiplier", "sample_rate", "steps"), ("mechanism", "steps")


@dataclass(frozen=True, eq=False)
class Summary:
    """Quantiles, groups and shares of individuals.

    Attributes
    ----------
    individuals : Individuals
    by_pld, by_renyi : Quantiles
    under_half : Share or None
        People with less than half the worst case; None if the worst case has no certified bound, or if these people
        or the others are fewer than `Individuals.min_group`.
    groups : tuple of Group
        Those of at least `Individuals.min_group` people.
    hidden_groups : int
        Number of smaller groups.
    """

    individuals: Individuals
    by_pld: Quantiles
    by_renyi: Quantiles
    under_half: Share | None
    groups: tuple[Group, ...]
    hidden_groups: int = 0

    def __repr__(self) -> str:
        return f"Summary({self.individuals!r})"

    @property
    def hidden_sentence(self) -> str:
        """A sentence on the groups that are too small to be shown; empty if there are none."""
        if not self.hidden_groups:
            return ""
        groups = "1 group" if self.hidden_groups == 1 else f"{self.hidden_groups:,} groups"
        verb, least = "is" if self.hidden_groups == 1 else "are", self.individuals.min_group
        return f"{groups} of fewer than {least} people {verb} not shown; min_group sets the minimum."

    def as_dict(self) -> dict[str, Any]:
        """A mapping for JSON; a bound that is not finite (not certified) becomes None."""
        people = self.individuals
        return {
            "provenance": dict(people.provenance),
            "delta": people.delta,
            "num_examples": people.num_examples,
            "steps": people.steps,
            "parameters": dict(people.parameters),
            "schedule": schedule_facts(people.schedule),
            "schedule_from_events": people.schedule_from_events,
            "looks_sampled": people.looks_sampled,
            "neighbours": "as the mechanisms say" if people.of_mechanisms else "add or remove one record",
            "guarantee": asdict(people.guarantee),
            "meaning": people.proven,
            "worst_case": {
                **bounds_facts(people.worst_case),
                "rdp_epsilon": finite_or_none(people.worst_case_rdp),
            },
            "quantiles": [
                {"probability": p, "epsilon": finite_or_none(a), "rdp_epsilon": finite_or_none(b)}
                for p, a, b in zip(
                    self.by_pld.probabilities.tolist(), self.by_pld.values, self.by_renyi.values, strict=True
                )
            ],
            "under_half_the_worst_case": _share(self.under_half),
            "groups": [
                {
                    "group": group.label,
                    "people": group.people,
                    "mean": finite_or_none(group.mean),
                    "quantiles": [
                        {"probability": p, "epsilon": finite_or_none(value)}
                        for p, value in zip(group.quantiles.probabilities.tolist(), group.quantiles.values, strict=True)
                    ],
                    "under_half_the_worst_case": _share(group.under_half),
                }
                for group in self.groups
            ],
            "min_group": people.min_group,
            "groups_not_shown": self.hidden_groups,
            "not_certified": people.not_certified,
            "renyi_only": people.renyi_only,
            **{kind.__name__.lower(): {one.name: one.sentence for one in kind} for kind in (Status, Method)},
        }

    def text(self) -> str:
        """Text for the terminal.  Printed epsilons are upper bounds, rounded up."""
        people = self.individuals
        promise = people.guarantee.promise
        blocks = [self.heading()]
        if promise is not None:
            blocks.append(f"Promised to everybody: epsilon <= {rounded_up(promise[0])} at delta = {exact(promise[1])}")
        blocks.append(self._quantile_table())
        if self.under_half is not None:
            share = self.under_half
            people_in = f"{share.count:,} of {share.total:,} people ({share.percent})"
            blocks.append(f"{people_in} have less than half the worst case.")
        if self.groups:
            blocks.append(self._group_table())
        blocks += [wrapped(self.hidden_sentence)] if self.hidden_groups else []
        blocks += [wrapped(sentence) for sentence in people.caveats()]
        blocks.append(wrapped(f"What is proven: {people.proven}") + "\n" + wrapped(f"[{people.guarantee.reference}]"))
        blocks.append(wrapped(provenance_line(people.provenance)))
        return "\n\n".join(blocks)

    def heading(self) -> str:
        """Numbers of people and steps, and the parameters."""
        people = self.individuals
        sizes = people_and_steps(people.num_examples, people.steps)
        parameters = [
            f"{name.replace('_', ' ')} {value if isinstance(value, str) else exact(value)}"
            for name, value in people.parameters.items()
        ]
        return wrapped(f"{sizes}; {', '.join(parameters)}" if parameters else sizes)

    def _quantile_table(self) -> str:
        people = self.individuals
        rows = [
            (quantile_name(p), rounded_up(a), rounded_up(b))
            for p, a, b in zip(self.by_pld.probabilities, self.by_pld.values, self.by_renyi.values, strict=True)
        ]
        worst = (people.worst_label, people.worst_case.upper, people.worst_case_rdp)
        rows.append((worst[0], rounded_up(worst[1]), rounded_up(worst[2])))
        heading = (f"epsilon at delta = {exact(people.delta)}", "PLD", "Renyi")
        return columns([heading, *rows])

    def _group_table(self) -> str:
        names = [quantile_name(p) for p in self.groups[0].quantiles.probabilities]
        rows = [("group", "people", *names, "under half")]
        for group in self.groups[:_GROUPS_SHOWN]:
            values = [rounded_up(v) for v in group.quantiles.values]
            half = group.under_half.percent if group.under_half else "-"
            rows.append((str(group.label), f"{group.people:,}", *values, half))
        more = len(self.groups) - _GROUPS_SHOWN
        return columns(rows) + (f"\n({more} more groups are in the JSON summary)" if more > 0 else "")


def summarise(individuals: Individuals, probabilities: Sequence[float] = QUANTILES) -> Summary:
    """Summarise individuals by the upper bound of their epsilon.

    Parameters
    ----------
    probabilities : sequence of float in [0, 1]
        Quantiles to report; 0 is the smallest, 1 the largest epsilon.  None are reported about fewer people than
        `Individuals.min_group`.
    """
    probabilities = individuals.shown(probabilities)
    upper, worst = individuals.epsilon.upper, float(individuals.worst_case.upper)
    found = () if individuals.labels is None else groups(upper, individuals.labels, worst, least=individuals.min_group)
    shown = tuple(group for group in found if group.people >= individuals.min_group)
    return Summary(
        individuals,
        by_pld=quantiles(upper, probabilities),
        by_renyi=quantiles(individuals.rdp_epsilon, probabilities),
        under_half=None if individuals.few else share_under(upper, worst / 2, individuals.min_group),
        groups=shown,
        hidden_groups=len(found) - len(shown),
    )


def schedule_facts(schedule: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """The parts of a schedule as mappings for JSON."""
    return [dict(zip(_OF_STEPS if len(part) == len(_OF_STEPS) else _OF_RUNS, part, strict=True)) for part in schedule]


def schedule_of(facts: Iterable[Mapping[str, Any]]) -> tuple[tuple[Any, ...], ...]:
    """The schedule of the result of `schedule_facts`."""
    return tuple(tuple(part[name] for name in (_OF_RUNS if "mechanism" in part else _OF_STEPS)) for part in facts)


def bounds_facts(bounds: Bounds) -> dict[str, Any]:
    """One person's bounds as a mapping for JSON; a bound that is not finite becomes None."""
    return {
        **{name: finite_or_none(getattr(bounds, name)) for name in ("lower", "estimate", "upper")},
        "status": Status(bounds.status).name,
        "method": Method(bounds.method).name,
    }


def _share(share: Share | None) -> dict[str, Any] | None:
    return None if share is None else {**asdict(share), "fraction": share.fraction}


def wrapped(text: str) -> str:
    """A paragraph for the terminal."""
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, the first to the left and the others to the right, with a rule under the heading."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "   ".join(cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    lines.insert(1, "   ".join("-" * w for w in widths))
    return "\n".join(line.rstrip() for line in lines)
