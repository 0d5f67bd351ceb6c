"""The schedule: which methods are tried, in which order, and the measured reason for each.

Each method gets the people that the methods before it could not bound tightly enough.  The reasons are ablations
over 250 random compositions (`SINGLE`: noise multiplier 0.5 to 5, sample rate 1e-6 to 0.1, 2 to 300,000 steps, delta
1e-60 to 1e-4), and over ledgers of 2,000 people (2 to 100,000 steps, delta 1e-5 to 1e-100).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .contour import Contour
from .convolution import Convolution
from .method import Method
from .rare_losses.split import RareLosses
from .smoothed import Smoothed
from .tilting import Limits
from .transform import GridTransform, Transform

__all__ = [
    "ATOMS",
    "BESIDE_NOISE",
    "CURVE",
    "GRID",
    "GRID_OF_MANY",
    "HANDFUL",
    "INTERPOLATED",
    "LOOSE",
    "MIXED",
    "RARE_POINTS",
    "ROUGH",
    "ROUGH_WIDTH",
    "SINGLE",
    "TINY",
    "WHOLE",
    "for_points",
]

_SOME = 17  # steps from which on another tilt helps; fewer steps need more frequencies
_PLACES = (0.79, 0.89, 0.99, 1.09)  # where steps are split if thousandths are enough

_FEW = Convolution(1e-6, most_steps=16, most_people=4, wanted=7e-7, pairs=3e7)

_AFTER_GRID = 1e-5  # few steps of atoms beside noise, at deltas of 1e-15 and above


def _for_wider(methods: Sequence[Method]) -> tuple[Method, ...]:
    """The methods for what those before leave wider than `_AFTER_GRID`, which is worth their time."""
    return tuple(replace(method, width_near=max(method.width_near, _AFTER_GRID)) for method in methods)


_AFTER_CONTOUR = 1e-5  # contours that end below are seldom improved, at deltas of 1e-15 and above, in 0.2 to 1 second

_LAST = Convolution(_AFTER_CONTOUR, most_people=4, wanted=7e-7, pairs=5e8)

_TRANSFORMS = (
    # most compositions, in milliseconds and within 1e-9; more frequencies take longer than the contour that serves
    # otherwise; the work of a table is limited for mixtures of many Gaussians
    Transform(0.0, limits=Limits(frequencies=1 << 13, work=2e7, useful=1e-6)),
    # rare steps, in 5 milliseconds: without it 44 of 182 take more than 50 milliseconds in place of 8
    Transform(1e-6, limits=Limits(tilts=16, frequencies=1 << 12, least_expectation=1e-2, useful=1e-6), truncated=True),
)

SINGLE: tuple[Method, ...] = (
    *_TRANSFORMS,
    # few steps and rare steps, in 5 to 40 milliseconds: without it the slowest 5 % take ten times as long, and
    # mixtures of Gaussians a hundred times
    Contour(1e-6, most_people=4),
    # deltas below 1e-20: without it 60 compositions take 34 s in place of 11, and 7 in place of 4 are wider than 1e-6;
    # a quick convolution before it did not help
    RareLosses(
        1e-6,
        width_near=_AFTER_CONTOUR,
        least_steps=9,
        limits=Limits(tilts=16, frequencies=1 << 15, least_expectation=1e-7),
        places=tuple(0.1 * np.arange(4, 13)),
        nearer=1,
    ),
    # what no tilt serves, in about five seconds at most
    _LAST,
)
"""For one composition, or a handful of people: within 1e-6 where that takes seconds."""

_GRID = GridTransform(1e-6, points=1 << 17, limits=Limits(tilts=4, least_expectation=1e-5, work=3e8))

_FIRST_GRID = replace(_GRID, points=1 << 15)

_FINE_GRID = replace(_GRID, width=1e-4, points=1 << 20, limits=replace(_GRID.limits, work=3e9))

# dozens of kinds of steps, whose tables are more than the work of the grids before: some seconds
_MANY_KINDS = replace(_FIRST_GRID, width=1e-2, limits=replace(_GRID.limits, work=1e10))

GRID: tuple[Method, ...] = (
    # few steps, whose losses may have atoms or edges
    _FEW,
    # from 10 milliseconds to a second each
    _FIRST_GRID,
    _GRID,
    _FINE_GRID,
    # a single large loss among many small ones
    _LAST,
)
"""For a user's family without characteristic functions; all families of this package have them."""

_SMOOTHED = Smoothed(
    1e-6,
    most_people=4,
    least_steps=7,
    limits=Limits(tilts=4, frequencies=1 << 20, least_expectation=1e-7, work=1e8),
)

ATOMS: tuple[Method, ...] = (
    # in 10 to 60 milliseconds in place of 0.1 to 5 seconds, and 1e-6 wide in place of 1e-4
    replace(_SMOOTHED, wanted=5e-7, limits=replace(_SMOOTHED.limits, frequencies=1 << 17, work=2e7), coarser=2),
    # 7 to 16 steps that need more frequencies: 20 of few rare atoms take 4 seconds in place of 15
    replace(_FEW, pairs=1e7),
    *_for_wider(
        [
            # rare atoms, in 0.2 to 1 second in place of 5 to 10
            _SMOOTHED,
            # three steps at delta 1e-100, in milliseconds: without it they have no close bounds
            _FIRST_GRID,
            # rarer ones, in seconds; finer grids before it changed no bound of 150 compositions
            replace(_LAST, wanted=np.inf),
            # losses of less than their round-off in a convolution: a sampling rate of 1e-14
            _FINE_GRID,
            _MANY_KINDS,
        ]
    ),
)
"""For families of atoms alone."""

_BEFORE_ATOMS: tuple[Method, ...] = (
    # atoms beside noise that spreads them, in 10 to 40 milliseconds in place of seconds
    *(replace(method, limits=replace(method.limits, work=4e6)) for method in _TRANSFORMS),
    # few steps, in 10 to 25 milliseconds in place of 15 to 40: without it 20 in place of 10 of 100 take more than 50
    replace(_GRID, points=1 << 16, least_steps=5, most_steps=64),
)

MIXED: tuple[Method, ...] = (*_BEFORE_ATOMS, *_for_wider(ATOMS))
"""For families with atoms, whose characteristic functions do not fall to 0."""

BESIDE_NOISE: tuple[Method, ...] = (
    *_BEFORE_ATOMS,
    # noise that spreads them at high frequencies, as that of rare groups: without it 39 of 990 pairs of kinds of steps,
    # those above 0.25 s, take 59 seconds in place of 30
    Transform(1e-6, limits=Limits(tilts=4, frequencies=1 << 16, least_expectation=1e-6, work=3e8, useful=1e-6)),
    *_for_wider(ATOMS),
)
"""For families with atoms and with others, whose characteristic functions fall to 0."""

ROUGH = _FIRST_GRID
"""Tried first for losses with atoms or edges where bounds `ROUGH_WIDTH` apart are close enough.

120 compositions of batches of one size take 4.8 s in place of 5.6, and random allocations half of the time.
"""

ROUGH_WIDTH = 1e-4

_POINT = 3e-4  # width of the points of a curve

_SMALL = -70.0  # log delta below which most methods for many people take the Renyi bound as the answer: 1e-30

_OF_MANY = replace(
    _GRID,
    width=np.inf,
    points=1 << 13,
    limits=Limits(1e-4, tilts=1, periods=2, least_expectation=1e-5, work=3e9, least_log_delta=_SMALL),
    narrow=1 << 8,
    least_log_delta=_SMALL,
)

GRID_OF_MANY: tuple[Method, ...] = (
    # a millisecond a person; the buckets keep the bounds of 300 steps 1.5 % apart, and this grid adds 0.1 %
    _OF_MANY,
    # thousands of steps, whose losses are smaller than the cells of the first grid
    replace(_OF_MANY, width=1e-2, width_of_largest=5e-3, points=1 << 15, limits=replace(_OF_MANY.limits, work=1e10)),
)
"""For many people's whole counts in a `MechanismLedger` or a `LaplaceLedger`."""

TINY = -160.0
"""log delta below which the Renyi bound is the answer for many people: 1e-70."""

_FIRST = Transform(
    0.0,
    limits=Limits(1e-8, frequencies=256, least_expectation=1e-6, least_log_delta=TINY),
    least_log_delta=TINY,
)
_WIDE = Transform(
    1e-3,
    3e-4,
    most_steps=100,
    # with more periods, the tables for the deltas of 300 people do not fit into the memory for tables, and each further
    # question takes 15 seconds in place of half of one
    limits=Limits(1e-4, frequencies=1 << 11, least_expectation=1e-6, periods=1, least_log_delta=TINY, work=3e9),
    least_log_delta=TINY,
    variance=True,
)
_CUT = Transform(
    1e-4,
    3e-4,
    least_steps=_SOME,
    limits=Limits(1e-6, frequencies=512, least_expectation=1e-12, tilts=4, least_log_delta=_SMALL),
    truncated=True,
    least_log_delta=_SMALL,
)

_RARE = RareLosses(
    1e-3,
    3e-4,
    least_steps=_SOME,
    delta=False,
    least_log_delta=TINY,
    limits=Limits(1e-6, frequencies=1 << 10, least_expectation=1e-6, tilts=4, periods=2, least_log_delta=TINY),
    places=_PLACES,
    nearer=1,
)

# more steps have closer bounds from rare losses; with the grids, 2,000 people of 10,000 steps take 98 seconds in place
# of 42 at delta 1e-60
_FEW_RARE = 100

_NEAR_GRID = GridTransform(
    1e-3,
    1e-3,
    most_steps=_FEW_RARE,
    limits=Limits(tilts=4, periods=1, least_expectation=1e-8, least_log_delta=TINY, work=1e11),
    points=1 << 14,
    narrow=1 << 14,
    truncated=True,
    # smaller deltas of 10,000 people of 10,000 steps took 100 seconds in place of 4
    least_log_delta=-40.0,
)

INTERPOLATED: tuple[Method, ...] = (
    # serves nearly everybody
    _FIRST,
    # few steps: without it 52 of 1,000 people have no lower bound; if the variance term is an error, the bounds of
    # four steps of little noise are 3 % of one's own epsilon wide in the median instead of 0.2 %; half of the
    # frequencies leave 13 of 1,000 people of these more than 0.5 % of the worst case wide, twice as many take 100
    # people of 14 rare steps 23 seconds in place of 10
    _WIDE,
    # deltas below 1e-12 and little noise: truncated tails allow larger tilts
    _CUT,
    # rare steps: without it 112 of 1,000 people have no lower bound at rate 1e-5 and delta 1e-15
    _RARE,
)
"""For interpolated counts of many people, whose bounds the buckets keep apart by a thousandth."""

WHOLE: tuple[Method, ...] = (
    # whole counts at the edges have no interpolation error, which few steps of little noise need
    _FIRST,
    # without it 774 of 792 deltas stay open
    replace(_CUT, width_of_largest=0.0),
    # few rare steps, in milliseconds a person and seconds for the tables: without the two grids 100 people take 46
    # seconds in place of 5 at 14 steps of rate 1e-3, noise multiplier 1 and delta 1e-10
    _NEAR_GRID,
    # rarer ones and smaller losses: without it 49 in place of 27 of 60 people need a contour at 16 steps of noise
    # multiplier 0.5, rate 1e-4 and delta 1e-10
    replace(_NEAR_GRID, points=1 << 15, narrow=1 << 15),
    # masses of less than the grid's round-off, in 30 to 90 milliseconds for each person and kind; it narrowed no delta
    # of 100 to 400 people, which took up to fifteen times as long; at 1e-3 of the largest in place of 5e-3, 1,000
    # people of 100 steps (noise multiplier 0.6, rate 1e-4, delta 1e-6) take 102 seconds in place of 50, and the buckets
    # still keep their bounds 2e-2 apart
    Contour(1e-3, 5e-3, most_steps=_FEW_RARE, most_people=10_000, most=1_200, most_kinds=16, delta=False),
    # rare steps whose Q is less than the round-off of masses: without it nobody has a lower bound at 1,000 steps of
    # rate 1e-5, noise multiplier 1 and delta 1e-15
    replace(_RARE, width=2e-2, width_of_largest=1e-2, limits=replace(_RARE.limits, tilts=16), nearer=0),
)
"""For whole counts of many people, whose bounds the buckets keep apart by a percent."""

HANDFUL: tuple[Method, ...] = tuple(replace(method, least_log_delta=_SMALL) for method in SINGLE)
"""For lower bounds of a handful of people: without the limit, five people's deltas take 28 seconds in place of 2."""

LOOSE = Transform(3e-3, 3e-4, least_log_delta=_SMALL)
"""People whose interpolated bounds are wider than this are solved again with whole counts."""

CURVE: tuple[Method, ...] = (
    Transform(np.inf, limits=Limits(least_expectation=1e-6)),
    *(Transform(np.inf, limits=Limits(tilts=16, least_expectation=e)) for e in (1e-2, 1e-4, 1e-7)),
)
"""For single points of a curve, of which only a bound is needed: a method is tried only if no bound is known."""

RARE_POINTS: tuple[Method, ...] = (_FIRST, replace(WHOLE[-1], delta=True, least_steps=_FEW_RARE + 1))
"""For points of many people's curves that no other method bounds closely: more than a hundred rare steps.

Without it the mu of one person of 8 is three times too large, at 9,973 steps of rate 2e-4 and different norms.
"""


def for_points(methods: Sequence[Method]) -> tuple[Method, ...]:
    """These methods, without large grids, for the points of one curve; mu is then known within about 5e-4.

    A grid of a million points takes a second for each point of the curve.  Without it, mu of sampled exponential steps
    beside Gaussian ones takes 8 seconds in place of 90.
    """
    quick = [one for one in methods if not (isinstance(one, GridTransform) and one.points > _GRID.points)]
    return tuple(method.relaxed(_POINT) for method in (quick if _GRID in quick else [*quick, _GRID]))
