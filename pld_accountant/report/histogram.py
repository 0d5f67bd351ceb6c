"""Statistics of many people's epsilons: bins, quantiles, groups, and the share under half the worst case.

All are pure functions of arrays.  A person without a certified bound has epsilon = inf.  Quantiles sort this person
above everybody else; histograms count this person outside the bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .. import validate

__all__ = [
    "Group",
    "Histogram",
    "Quantiles",
    "Share",
    "aligned_histogram",
    "bin_edges",
    "checked",
    "groups",
    "hidden_people",
    "histogram",
    "is_far",
    "largest",
    "quantiles",
    "share_under",
    "shown_histograms",
]


_FAR = 8.0  # times the largest epsilon


@dataclass(frozen=True)
class Histogram:
    """Numbers of people in bins.

    Attributes
    ----------
    edges : ndarray of shape (bins + 1,)
    counts : ndarray of int64 of shape (bins,)
    outside : int
        People in no bin: those without a finite epsilon, and those beyond the edges.
    hidden : int
        People in bins of too few people, which count 0 instead: see `shown_histograms`.
    """

    edges: np.ndarray
    counts: np.ndarray
    outside: int
    hidden: int = 0


@dataclass(frozen=True)
class Quantiles:
    """Quantiles of epsilon.  Each value is one person's: the smallest that at least this share of people do not exceed.

    Attributes
    ----------
    probabilities, values : ndarray of one shape
    """

    probabilities: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Share:
    """`count` of `total` people."""

    count: int
    total: int

    @property
    def fraction(self) -> float:
        """count / total."""
        return self.count / self.total

    @property
    def percent(self) -> str:
        """The fraction in print, in percent."""
        return f"{100 * self.fraction:.1f} %"


@dataclass(frozen=True)
class Group:
    """The people of one label.

    Attributes
    ----------
    label : int or str
    people : int
    mean : float
    quantiles : Quantiles
    under_half : Share or None
        The people with less than half the worst case; None if they are not shown (`share_under`).
    """

    label: int | str
    people: int
    mean: float
    quantiles: Quantiles
    under_half: Share | None


def _values(values: np.ndarray) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"epsilons must be a one-dimensional array of at least one person, got {array.shape}")
    if np.isnan(array).any():
        raise ValueError(f"epsilons must not be NaN; person {int(np.flatnonzero(np.isnan(array))[0])} is")
    return array


def largest(values: np.ndarray) -> float:
    """The largest finite value, 1 if there is none above 0."""
    return float(np.max(values, initial=0.0, where=np.isfinite(values))) or 1.0


def is_far(worst_case: float, top: float) -> bool:
    """Whether a chart up to the worst case would leave the people, who end at `top`, a sliver of its axis."""
    return bool(_FAR * top < worst_case < np.inf)


def bin_edges(top: float, width: float, mark: float) -> np.ndarray:
    """Edges of bins of equal width from 0 to at least `top`; one bin ends at `mark`, the first may be narrower.

    Parameters
    ----------
    mark : float
        For example the worst case: no bar then extends beyond it.

    Examples
    --------
    >>> bin_edges(top=2.0, width=0.5, mark=1.75).tolist()
    [0.0, 0.25, 0.75, 1.25, 1.75, 2.25]
    """
    first = mark % width if np.isfinite(mark) else 0.0
    edges = first + width * np.arange(max(1, int(np.ceil((top - first) / width))) + 1)
    edges[-1] = max(edges[-1], top)
    return np.concatenate([[0.0], edges]) if first > 0 else edges


def histogram(epsilon: np.ndarray, edges: np.ndarray) -> Histogram:
    """Count people in bins (edge, next edge]; the first bin includes its left edge.

    Examples
    --------
    >>> histogram(np.array([0.1, 0.5, 0.9, np.inf]), np.array([0.0, 0.5, 1.0])).counts.tolist()
    [2, 1]
    """
    array = _values(epsilon)
    inside = array[(array >= edges[0]) & (array <= edges[-1])]
    place = np.maximum(np.searchsorted(edges, inside, side="left") - 1, 0)
    counts = np.bincount(place, minlength=len(edges) - 1)
    return Histogram(np.asarray(edges, dtype=np.float64), counts, len(array) - len(inside))


def aligned_histogram(epsilon: np.ndarray, mark: float, top: float, bins: int) -> Histogram:
    """Count people in `bins` bins of equal width up to `top`; no bin extends across `mark`.

    Parameters
    ----------
    mark : float
        The worst case.  An edge lies 1e-6 above it, relative, so round-off of an epsilon moves nobody beyond it.

    Examples
    --------
    >>> counted = aligned_histogram(np.array([0.2, 1.0, 1.2]), mark=1.0, top=1.2, bins=4)
    >>> counted.edges.round(3).tolist(), counted.counts.tolist()
    ([0.0, 0.1, 0.4, 0.7, 1.0, 1.3], [0, 1, 0, 1, 1])
    """
    return histogram(epsilon, bin_edges(top, top / bins, mark * (1 + 1e-6)))


def shown_histograms(
    people: Sequence[tuple[np.ndarray, float]], top: float, bins: int, least: int
) -> tuple[Histogram, ...]:
    """Aligned histograms with bins of one width, in which no bin shows fewer than `least` people.

    Parameters
    ----------
    people : sequence of (epsilon, mark)
        See `aligned_histogram`; for example PLD and Renyi accounting of the same people.
    bins : int
        Number of bins, at most.  It is reduced by a third while a tenth of the people or more lie in bins of too few
        people.  Bins that still have too few count 0, and their people are counted in `Histogram.hidden`.

    Examples
    --------
    >>> values = np.array([0.1, 0.2, 0.3, 0.4, 0.9])
    >>> (counted,) = shown_histograms([(values, 1.0)], top=1.0, bins=4, least=2)
    >>> counted.counts.tolist(), counted.hidden
    ([0, 5], 0)
    """
    while True:
        found = [aligned_histogram(epsilon, mark, top, bins) for epsilon, mark in people]
        hidden = [int(one.counts[one.counts < least].sum()) for one in found]
        few = all(10 * lost < len(epsilon) for lost, (epsilon, _) in zip(hidden, people, strict=True))
        if few or bins == 1:
            break
        bins = max(1, 2 * bins // 3)
    return tuple(
        Histogram(one.edges, np.where(one.counts < least, 0, one.counts), one.outside, lost)
        for one, lost in zip(found, hidden, strict=True)
    )


def hidden_people(number: int, least: int) -> str:
    """A sentence on the bins of too few people to be shown; empty if nobody is in one.

    It does not give the number of these people, which would tell the count of a single hidden bin.
    """
    return f"Bins of fewer than {least} people are shown empty." if number else ""


def quantiles(epsilon: np.ndarray, probabilities: Sequence[float] = (0.0, 0.1, 0.5, 0.9, 1.0)) -> Quantiles:
    """Quantiles without interpolation: the value of the next person up.

    Parameters
    ----------
    probabilities : sequence of float in [0, 1]

    Examples
    --------
    >>> quantiles(np.array([3.0, 1.0, 2.0, np.inf]), (0.0, 0.5, 1.0)).values.tolist()
    [1.0, 2.0, inf]
    """
    array, p = np.sort(_values(epsilon)), checked(probabilities)
    # The smallest k with k / n >= p, less one.  The last term corrects products such as 0.1 * 30 = 3.0000000000000004.
    place = np.ceil(p * len(array) - 1e-9).astype(np.int64) - 1
    return Quantiles(p, array[np.maximum(place, 0)])


def checked(probabilities: Sequence[float]) -> np.ndarray:
    """Probabilities of quantiles as an array, (quantiles,); `ValueError` for others."""
    p = validate.numbers(probabilities, "probabilities")
    if p.ndim != 1 or not np.all((p >= 0) & (p <= 1)):
        raise ValueError(f"probabilities must be a list of numbers in [0, 1], got {probabilities!r}")
    return p


def share_under(epsilon: np.ndarray, threshold: float, least: int = 1) -> Share | None:
    """The share of people whose epsilon is below `threshold`.

    None if the threshold is not finite, or if these people, or the others, are some but fewer than `least`.

    Examples
    --------
    >>> share_under(np.array([0.1, 0.5, 0.9]), 0.5)
    Share(count=1, total=3)
    """
    array = _values(epsilon)
    share = Share(int(np.count_nonzero(array < threshold)), len(array))
    shown = all(n == 0 or n >= least for n in (share.count, share.total - share.count))
    return share if np.isfinite(threshold) and shown else None


def groups(
    epsilon: np.ndarray,
    labels: np.ndarray,
    worst_case: float,
    probabilities: Sequence[float] = (0.0, 0.5, 0.9, 1.0),
    least: int = 1,
) -> tuple[Group, ...]:
    """Summarise the people of every label, in the order of the labels.

    Parameters
    ----------
    labels : ndarray of shape (people,)
        Integers or strings.
    worst_case : float
        `Group.under_half` counts people below half of this epsilon.
    least : int
        The fewest people whom `Group.under_half` counts.

    Examples
    --------
    >>> for group in groups(np.array([0.1, 0.2, 0.9]), np.array(["a", "a", "b"]), worst_case=1.0):
    ...     print(group.label, group.people, group.under_half.count)
    a 2 2
    b 1 0
    """
    array, names = _values(epsilon), np.asarray(labels)
    if names.shape != array.shape:
        raise ValueError(f"labels must have shape {array.shape}, got {names.shape}")
    kinds, member = np.unique(names, return_inverse=True)
    order = np.argsort(member, kind="stable")
    parts = np.split(array[order], np.cumsum(np.bincount(member, minlength=len(kinds)))[:-1])
    return tuple(
        Group(
            label=kind.item(),
            people=len(part),
            mean=float(part.mean()),
            quantiles=quantiles(part, probabilities),
            under_half=share_under(part, worst_case / 2, least),
        )
        for kind, part in zip(kinds, parts, strict=True)
    )
