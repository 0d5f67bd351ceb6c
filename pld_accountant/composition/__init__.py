"""Compositions: the privacy loss of one worst-case person over a list of mechanisms.

In: mechanisms and how often each runs.  Out: `Bounds` of epsilon, delta, mu, trade-off functions and attacks.

    base.py            `Composition`: the questions, and what their answers mean
    known.py           mechanisms whose losses are known, composed by the engine
    enclosed.py        mechanisms that lie between others
    several_pairs.py   mechanisms whose worst pair depends on the question
    black_box.py       mechanisms of which only Renyi divergences are known
    many.py            many compositions of the same mechanisms, which share tables
    counted_rows.py    many people's compositions, of which equal ones are answered once

May import: engine, counting, tables.makers, mechanisms, notions.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from .. import validate
from ..mechanisms.base import Enclosed, Mechanism
from ..mechanisms.gaussian import Gaussian
from ..mechanisms.renyi_boxes import RenyiBox
from ..mechanisms.sampled_gaussian import SampledGaussian
from .base import Composition
from .black_box import BlackBoxComposition
from .several_pairs import of_mechanisms

__all__ = ["Composition", "compose"]

_MOST_STEPS = 2**53  # above this, a double does not hold every whole number


def compose(steps: Iterable[tuple[Mechanism | Enclosed | RenyiBox | Composition, int]]) -> Composition:
    """Compose mechanisms that are fixed in advance.

    Parameters
    ----------
    steps : iterable of (mechanism, count)
        Each mechanism and how often it runs, in any order.  A composition stands for all of its mechanisms.

    Returns
    -------
    Composition
        About the neighbours of the steps' own relation: a record that is added or removed, or one that is replaced.

    Raises
    ------
    ValueError
        If an entry is not a mechanism, a count is not a whole number of at least 0, or there are more than 2^53 steps
        in all.

    Warns
    -----
    UserWarning
        If samples of both relations are composed, such as `SampledGaussian` with `FixedSizeBatch`: the answers then
        hold for neither.

    Examples
    --------
    >>> c = compose([(SampledGaussian(2, 0.005), 10_000)])
    >>> round(c.epsilon(1e-5).upper, 6)
    1.004113
    >>> compose([(c, 2), (SampledGaussian(2, 0.01), 5)]).steps
    20005
    """
    counts: dict[Mechanism | Enclosed, int] = {}
    boxes: dict[RenyiBox, int] = {}
    if not isinstance(steps, Iterable) or isinstance(steps, (str, bytes, Mapping)):
        raise ValueError(f"steps must be a list of pairs (mechanism, count), got {steps!r}")
    for entry in steps:
        try:
            mechanism, number = entry
        except (TypeError, ValueError):
            raise ValueError(f"steps must hold pairs (mechanism, count), got {entry!r}") from None
        number = validate.count(number, "count")
        parts = mechanism.counts.items() if isinstance(mechanism, Composition) else [(mechanism, 1)]
        for part, times in parts:
            if isinstance(part, RenyiBox):
                boxes[part] = boxes.get(part, 0) + number * times
                continue
            if isinstance(part, list):
                raise ValueError(f"steps must hold mechanisms: a list stands for one as compose(list), got {part!r}")
            if not isinstance(part, (Mechanism, Enclosed)) or isinstance(part, type):
                raise ValueError(f"steps must hold mechanisms such as SampledGaussian, got {part!r}")
            step = SampledGaussian(part.noise_multiplier, 1.0) if isinstance(part, Gaussian) else part
            counts[step] = counts.get(step, 0) + number * times
    total = sum(counts.values()) + sum(boxes.values())
    if total > _MOST_STEPS:
        raise ValueError(f"steps must be at most {_MOST_STEPS} in all, got {total}")
    others = {step: n for step, n in counts.items() if n}
    black = {box: n for box, n in boxes.items() if n}
    _warn_of_relations([*others, *black])
    return BlackBoxComposition(others, black) if black else of_mechanisms(others)


def _warn_of_relations(steps: Iterable[Any]) -> None:
    """Warn if some steps are about records that are added or removed, and others about records that are replaced."""
    kinds = {relation: type(step).__name__ for step in steps if (relation := getattr(step, "neighbours", None))}
    if len(kinds) > 1:
        (one, first), (other, second) = sorted(kinds.items())
        warnings.warn(
            f"{first} is about a record that is {one}, {second} about one that is {other}: their composition holds for "
            "neither. ReplaceOneSampledGaussian is a Poisson sample with replaced records",
            stacklevel=3,
        )
