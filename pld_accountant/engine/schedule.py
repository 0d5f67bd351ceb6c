"""The ways of answering a question, in the order in which they are tried on those whom the ways before left open.

The order is that of cost.  Data only: `solver` carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from .tilting import Limits

__all__ = [
    "FEW", "FIRST", "LOOSE", "MANY", "MANY_DELTA", "SHARES", "SHARES_DELTA", "Attempt", "Split", "Sums", "Tables",
]  # fmt: skip


@dataclass(frozen=True)
class Attempt:
    """Whom it is worth asking.

    Attributes
    ----------
    width : float
        Bounds as close as this are good enough: relative for epsilon; times -log delta, absolute for log delta.
    least_steps, most_steps : float
        Only people with so many steps are asked.
    least_people, most_people : float
        With fewer people left open the attempt is left out, as they were asked before; with more, as it would take too
        long.
    most_people_delta : float
        The same where delta is wanted: each person then has a tilt of their own.
    """

    width: float
    least_steps: float = 2
    most_steps: float = np.inf
    least_people: float = 1
    most_people: float = np.inf
    most_people_delta: float = np.inf


@dataclass(frozen=True)
class Tables(Attempt):
    """The inner product with tables.

    Attributes
    ----------
    limits : Limits
    ends : {"", "far", "near"}
        Where the laws of removal end: nowhere; where what is left of a step is a millionth of a millionth of delta,
        shared by all steps; where that is a millionth.  The far tails would keep larger tilts from being used.
    lattice : int
        Points of the lattice, 0 for spectral tables.
    second : bool
        Lotteries are composed to second order (see `joining`).
    """

    limits: Limits = field(default_factory=Limits)
    ends: str = ""
    lattice: int = 0
    second: bool = False


@dataclass(frozen=True)
class Split(Attempt):
    """Small losses and large ones, each with a tilt of their own (`splitting`), under removal.

    Attributes
    ----------
    limits : Limits
    places : tuple of float
        Where a step's law may be split: at these multiples of sqrt(-2 log delta) standard deviations.
    nearer : int
        How many places before the best one.
    alone : bool
        The place is where small losses alone are nothing.
    blur : float
        How softly laws are split, in standard deviations of the noise.
    wanted : float
        How close to the best the ends are sought, relative to epsilon.
    log_delta : tuple of float
        Only a delta between these is asked for.
    """

    limits: Limits = field(default_factory=Limits)
    places: tuple[float, ...] = ()
    nearer: int = 0
    alone: bool = False
    blur: float = 0.0
    wanted: float = 2.5e-4
    log_delta: tuple[float, float] = (-np.inf, np.inf)


@dataclass(frozen=True)
class Sums(Attempt):
    """Direct composition.

    Attributes
    ----------
    wanted : float
        The width at which it stops, as for `width`.
    pairs : float
        How many pairs of atoms may be added up, all people together.
    least_log_delta : float
        As in `Limits`.
    """

    wanted: float = 1e-4
    pairs: float = 8e8
    least_log_delta: float = Limits.least_log_delta


_SOME = 17  # fewer steps ask for more frequencies, not for other tilts


def _deep(width: float, least: float, ends: str) -> Tables:
    """Spectral tables of any size for few people, down to this expectation."""
    return Tables(width, limits=Limits(tilts=16, frequencies=1 << 17, least_expectation=least, work=3e9), ends=ends)


def _lattice(size: int) -> Tables:
    limits = Limits(tilts=16, frequencies=size, least_expectation=1e-5, work=3e9)
    return Tables(1e-6, limits=limits, ends="far", lattice=size)


_SPLIT = Split(
    3e-7,
    least_steps=_SOME,
    limits=Limits(tilts=16, frequencies=1 << 13, least_expectation=1e-7),
    wanted=1e-8,
)

FEW: tuple[Tables | Sums | Split, ...] = (
    Tables(0.0),
    Sums(1e-7, most_steps=128, most_people=4, wanted=2e-7, pairs=3e8),
    Tables(3e-7, limits=Limits(tilts=16, frequencies=1 << 13, least_expectation=1e-2), ends="far"),
    replace(_SPLIT, places=tuple(0.05 * np.arange(6, 20)), alone=True, blur=1.0 / 16.0),
    replace(_SPLIT, places=tuple(0.05 * np.arange(13, 26)), nearer=1),
    _deep(3e-7, 1e-2, "far"),
    _deep(3e-7, 1e-7, "near"),
    Sums(3e-7, least_steps=129, most_people=4, wanted=2e-7, pairs=8e8),
    _deep(3e-7, 1e-4, "far"),
    Sums(1e-6, least_people=5, wanted=2e-7),
    _lattice(1 << 17),
    _lattice(1 << 20),
    Sums(1e-6, most_people=1, wanted=5e-7, pairs=3e9),
)
"""For a composition or a handful of people: as exact as it gets."""

# log delta below which Renyi accounting's upper bound will do for many people: 1e-70, and 1e-30 where two attempts
# left a person open
_TINY, _SMALL = -160.0, -70.0
# what round-off adds at such expectations is nothing beside the rounding to buckets
_LEAST = 1e-12
FIRST = Tables(0.0, limits=Limits(1e-8, frequencies=256, least_expectation=1e-6, least_log_delta=_TINY))
"""What serves nearly everybody of many."""

MANY: tuple[Tables | Sums, ...] = (
    FIRST,
    Sums(1e-3, most_steps=2, most_people=200, least_log_delta=_TINY),
    Tables(
        1e-3,
        most_steps=100,
        limits=Limits(1e-4, frequencies=1 << 13, least_expectation=1e-6, least_log_delta=_TINY, work=3e9),
    ),
    Tables(
        1e-4,
        least_steps=_SOME,
        limits=Limits(1e-6, frequencies=512, least_expectation=_LEAST, tilts=8, least_log_delta=_TINY),
        ends="near",
    ),
    Tables(
        1e-3,
        least_steps=_SOME,
        limits=Limits(1e-6, frequencies=512, least_expectation=_LEAST, tilts=16, least_log_delta=_SMALL),
        ends="near",
    ),
    Tables(
        1e-3,
        least_steps=_SOME,
        most_people_delta=64,
        limits=Limits(1e-5, frequencies=1 << 12, least_expectation=_LEAST, tilts=16, least_log_delta=_SMALL),
        ends="near",
    ),
    Sums(1e-2, most_people=100, least_log_delta=_SMALL),
)
"""For ledgers, where the rounding to buckets costs a percent."""

_TABLES = [attempt for attempt in MANY if isinstance(attempt, Tables)]

_BY_PARTS = tuple(
    Split(
        1e-3,
        least_steps=_SOME,
        limits=Limits(1e-6, frequencies=1 << 10, least_expectation=1e-6, tilts=16, least_log_delta=_TINY),
        places=(0.79, 0.89, 0.99, 1.09),
        nearer=nearer,
    )
    for nearer in (1, 0)
)
# In nearer tails large losses are seldom rare, and wide bands are quicker.
_FAR = -25.0

SHARES: tuple[Tables | Sums | Split, ...] = (
    FIRST,
    *(replace(attempt, second=True) for attempt in _TABLES[1:3]),
    *(replace(attempt, log_delta=(-np.inf, _FAR)) for attempt in _BY_PARTS),
    *(replace(attempt, second=True) for attempt in _TABLES[3:]),
    *(replace(attempt, log_delta=(_FAR, 0.0)) for attempt in _BY_PARTS),
)
"""For fractions of steps: only tables can tell them."""


def _of_delta(attempts: tuple[Tables | Sums | Split, ...]) -> tuple[Tables | Sums | Split, ...]:
    """Where delta is wanted everybody's tilt is another: fewer of them to choose from make fewer tables."""
    return tuple(
        replace(a, limits=replace(a.limits, tilts=min(a.limits.tilts, 4))) if isinstance(a, Tables) else a
        for a in attempts
    )


_NEAR = replace(_TABLES[2], second=True, limits=replace(_TABLES[2].limits, least_log_delta=_SMALL))
MANY_DELTA, SHARES_DELTA = _of_delta(MANY), _of_delta((FIRST, SHARES[1], _NEAR))
"""The same where delta is wanted."""

LOOSE = Tables(3e-3, limits=Limits(least_log_delta=_SMALL))
"""Whom these leave further apart is asked about again, in whole steps."""
