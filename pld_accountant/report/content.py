"""The content of the report on a ledger's people: `Report`, which `gather` makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .. import validate
from .histogram import Quantiles, quantiles
from .individuals import Individuals
from .summary import Summary, summarise

if TYPE_CHECKING:
    from .individuals import AnyLedger

__all__ = ["AtDelta", "Extremes", "Report", "gather"]

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
        The epsilon of a person of the largest norm at every step, by PLD and by Renyi accounting.
    quantiles : Quantiles
        At 5, 50 and 95 percent.
    loose : int
        Number of people without a tight bound.
    """

    delta: float
    worst_case: float
    worst_case_rdp: float
    quantiles: Quantiles
    loose: int


@dataclass(frozen=True)
class Extremes:
    """The people with the largest and the smallest epsilons, by index; ties are ordered by index.

    Attributes
    ----------
    largest, smallest : ndarray of int
        Each starts with the extreme person.  `smallest` is empty if `largest` holds everybody.
    tied_largest, tied_smallest : int
        Numbers of people who share the largest and the smallest epsilon.
    """

    largest: np.ndarray
    smallest: np.ndarray
    tied_largest: int
    tied_smallest: int


@dataclass(frozen=True)
class Report:
    """The content of the page.

    Attributes
    ----------
    summary : Summary
    extremes : Extremes
    at_deltas : tuple of AtDelta
        From the largest delta to the smallest.
    """

    summary: Summary
    extremes: Extremes
    at_deltas: tuple[AtDelta, ...]


def gather(
    ledger: AnyLedger,
    individuals: Individuals,
    deltas: Sequence[float] | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    seconds: float | None = None,
) -> Report:
    """Collect the content of the page.

    Parameters
    ----------
    individuals : Individuals
        The result of `assess` for the same ledger.
    deltas : sequence of float, optional
        Further deltas at which to compute upper bounds.  By default the individuals' delta times 1e2, 1e-1, 1e-3 and
        1e-5, as far as the products lie in (0, 1).
    progress : callable, optional
        Called with (done, total).
    seconds : float, optional
        A limit of time for the bounds at the further deltas.

    Raises
    ------
    ValueError
        If there are fewer people than `Individuals.min_group`.

    **Cost**: the cost of `Ledger.epsilon` with ``bounds="upper"`` for every further delta.
    """
    if individuals.few:
        people, least = individuals.num_examples, individuals.min_group
        raise ValueError(f"a page about {people} people, fewer than min_group={least}, would show single people")
    main = individuals.delta
    if deltas is None:
        more = [float(f"{main * factor:.12g}") for factor in _FACTORS]
        more = [delta for delta in more if 0 < delta < 1]
    else:
        more = np.atleast_1d(validate.numbers(deltas, "deltas")).ravel().tolist()
    wanted = sorted({main, *(validate.delta(delta, "deltas") for delta in more)}, reverse=True)
    others = [delta for delta in wanted if delta != main]
    direction = individuals.parameters.get("direction", "both")
    bounds = {main: individuals.epsilon}
    if others:
        found = ledger.epsilon(others, direction, bounds="upper", progress=progress, seconds=seconds)
        bounds.update((delta, found[k]) for k, delta in enumerate(others))
    worst = ledger.worst_case()
    rows = tuple(
        AtDelta(
            delta,
            worst.epsilon(delta, direction).upper,
            worst.rdp_epsilon(delta),
            quantiles(bounds[delta].upper, (0.05, 0.5, 0.95)),
            int(np.count_nonzero(bounds[delta].status)),
        )
        for delta in wanted
    )
    return Report(
        summarise(individuals, _PROBABILITIES),
        _extremes(individuals.epsilon.upper),
        rows,
    )


def _extremes(upper: np.ndarray) -> Extremes:
    everybody = len(upper) <= 2 * _SHOWN
    largest = np.argsort(-upper, kind="stable")[: None if everybody else _SHOWN]
    smallest = np.argsort(upper, kind="stable")[: 0 if everybody else _SHOWN]
    tied = [int(np.count_nonzero(upper == end)) for end in (upper.max(), upper.min())]
    return Extremes(largest, smallest, *tied)
