"""The report: everything that a page about a ledger's people tells, `gather`, and what writes the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from .histogram import Quantiles, quantiles
from .html.page import page
from .individuals import Individuals
from .outputs import Writer
from .summary import Summary, summarise

if TYPE_CHECKING:
    from ..ledger import Ledger

__all__ = ["AtDelta", "Extremes", "Report", "gather", "page_writer"]

_FACTORS = (1e2, 1.0, 1e-1, 1e-3, 1e-5)
_PROBABILITIES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_SHOWN = 10


@dataclass(frozen=True)
class AtDelta:
    """Upper bounds at one delta.

    Attributes
    ----------
    delta : float
    worst_case, worst_case_rdp : float
        Of a person clipped at every step, by PLD and by Renyi accounting.
    quantiles : Quantiles
        Those of 5, 50 and 95 percent.
    """

    delta: float
    worst_case: float
    worst_case_rdp: float
    quantiles: Quantiles


@dataclass(frozen=True)
class Extremes:
    """Who has the largest and who the smallest epsilon, by index; of equal ones those of the lowest index.

    Attributes
    ----------
    largest, smallest : ndarray of int
        From the end inwards.  `smallest` is empty where `largest` holds everybody.
    tied_largest, tied_smallest : int
        How many people share the largest and the smallest epsilon.
    """

    largest: np.ndarray
    smallest: np.ndarray
    tied_largest: int
    tied_smallest: int


@dataclass(frozen=True)
class Report:
    """What the page tells.

    Attributes
    ----------
    summary : Summary
    extremes : Extremes
    at_deltas : tuple of AtDelta
        From the largest delta to the smallest.
    schedule : tuple of (noise multiplier, sample rate, steps)
    max_grad_norm : float
    buckets : int
    """

    summary: Summary
    extremes: Extremes
    at_deltas: tuple[AtDelta, ...]
    schedule: tuple[tuple[float, float, int], ...]
    max_grad_norm: float
    buckets: int


def gather(
    ledger: Ledger,
    individuals: Individuals,
    deltas: Sequence[float] | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Everything for the page.

    Parameters
    ----------
    individuals : Individuals
        What `assess` found out about the ledger's people.
    deltas : sequence of float, optional
        Where else to ask for upper bounds; by default a hundred times the individuals' delta down to a
        hundred-thousandth of it, where that lies in (0, 1).
    progress : callable, optional
        Called with (done, total).

    **Cost**: as `Ledger.epsilon` with ``bounds="upper"`` for every further delta.
    """
    main = individuals.delta
    if deltas is None:
        deltas = [float(f"{main * factor:.12g}") for factor in _FACTORS]
        deltas = [delta for delta in deltas if 0 < delta < 1]
    wanted = sorted({main, *deltas}, reverse=True)
    others = [delta for delta in wanted if delta != main]
    direction = individuals.parameters.get("direction", "both")
    upper = {main: individuals.epsilon.upper}
    if others:
        found = ledger.epsilon(others, direction, bounds="upper", progress=progress)
        upper.update(zip(others, found.upper, strict=True))
    worst = ledger.worst_case()
    rows = tuple(
        AtDelta(
            delta,
            worst.epsilon(delta, direction).upper,
            worst.rdp_epsilon(delta),
            quantiles(upper[delta], (0.05, 0.5, 0.95)),
        )
        for delta in wanted
    )
    return Report(
        summarise(individuals, _PROBABILITIES),
        _extremes(individuals.epsilon.upper),
        rows,
        ledger.schedule,
        ledger.max_grad_norm,
        ledger.buckets,
    )


def _extremes(upper: np.ndarray) -> Extremes:
    everybody = len(upper) <= 2 * _SHOWN
    largest = np.argsort(-upper, kind="stable")[: None if everybody else _SHOWN]
    smallest = np.argsort(upper, kind="stable")[: 0 if everybody else _SHOWN]
    tied = [int(np.count_nonzero(upper == end)) for end in (upper.max(), upper.min())]
    return Extremes(largest, smallest, *tied)


def page_writer(report: Report, title: str = "Individual privacy loss") -> Writer:
    """What writes the report as one HTML page that needs nothing else: no script, no font, no network."""
    data = page(report, title).encode()

    def write(file: BinaryIO) -> None:
        file.write(data)

    return write
