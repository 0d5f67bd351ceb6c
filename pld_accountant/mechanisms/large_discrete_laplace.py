"""Discrete Laplace noise on an integer whose sensitivity is too large for a table of outcomes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import validate
from .base import Enclosure
from .discrete import DiscretePair, named_pair
from .laplace import Laplace
from .poisson_sampled import SampledBounded

__all__ = ["MOST_OUTCOMES", "LargeDiscreteLaplace", "discrete_laplace_pair"]

MOST_OUTCOMES = 1 << 14
_WIDTHS = 1 << 12  # candidates for the number of integers that become one
_MOST_EXACT = 1 << 19  # integers that may stay as they are if no width is suitable
_EXCESS = 1.0 + 1e-7  # of a sensitivity that was rounded up
_UP = 1.0 + 2.0**-50


def discrete_laplace_pair(a: float, s: int) -> DiscretePair:
    """The losses of the discrete Laplace mechanism; a s at most 300."""
    # outcomes at most 0, then 1, 2, ..., s - 1, then s and above, the noise added to s or to 0
    k = np.arange(1, s)
    tail, scale = 1.0 / (1.0 + math.exp(-a)), math.tanh(0.5 * a)
    p = np.concatenate([[tail * math.exp(-a * s)], scale * np.exp(-a * (s - k)), [tail]])
    return named_pair(f"DiscreteLaplace({a}, {s})", p, p[::-1])


@dataclass(frozen=True)
class LargeDiscreteLaplace:
    """The discrete Laplace mechanism with a sensitivity above 16,384; `statistics.DiscreteLaplace` makes it.

    Parameters
    ----------
    a : float
        Inverse scale; a times the sensitivity is at most 300.
    sensitivity : int
    sample_rate : float
        Probability with which the record enters the step, in (0, 1].

    Raises
    ------
    ValueError
        For a parameter out of range.

    Notes
    -----
    Let c = a s.  At the losses c - 2 a j, j from 0 to s, delta is that of the Laplace mechanism of scale 1 / c,
    1 - exp(-a j) where the loss is at least 0 (the sum over the outcomes beyond).  Between them delta is the chord in
    exp(epsilon), and the Laplace mechanism's lies below, as it is convex.

    **Lower bound**: the Laplace mechanism of scale 1 / c.

    **Upper bound**: the discrete Laplace mechanism of inverse scale a w and sensitivity s / w, whose chords join every
    w-th of these points.  If no suitable w divides s, w is 1 up to a sensitivity of 2^19; beyond, the sensitivity is
    first rounded up, by about a millionth.

    The two epsilons are about 1e-6 apart at most, relative, in all cases tried.
    """

    a: float
    sensitivity: int
    sample_rate: float = 1.0
    close: ClassVar = True

    def __post_init__(self) -> None:
        a, s = validate.positive(self.a, "a"), validate.count(self.sensitivity, "sensitivity", least=1)
        if not 1e-100 <= a * s <= 300.0:
            raise ValueError(f"a times sensitivity must be from 1e-100 to 300, got {a} and {s}")
        object.__setattr__(self, "a", a)
        object.__setattr__(self, "sensitivity", s)
        object.__setattr__(self, "sample_rate", validate.sample_rate(self.sample_rate))

    def __repr__(self) -> str:
        step = f"DiscreteLaplace({self.a}, {self.sensitivity})"
        return step if self.sample_rate == 1.0 else f"PoissonSampled({step}, {self.sample_rate})"

    @property
    def noise_multiplier(self) -> float:
        """See `base.Enclosed`."""
        return 1.0 / (self.a * self.sensitivity)

    @property
    def neighbours(self) -> str | None:
        """See `base.Mechanism`."""
        return "added or removed" if self.sample_rate < 1.0 else None

    def sampled(self, rate: float) -> LargeDiscreteLaplace:
        """The same mechanism on a Poisson sample; rates of repeated samples multiply."""
        return LargeDiscreteLaplace(self.a, self.sensitivity, validate.sample_rate(rate) * self.sample_rate)

    def _points(self) -> tuple[int, int]:
        """How many integers become one, and how many of these are at least the sensitivity."""
        s, least = self.sensitivity, -(-self.sensitivity // MOST_OUTCOMES)
        widths = range(least, min(2 * least, least + _WIDTHS) + 1)
        width = min(widths, key=lambda w: -(-s // w) * w)
        points = -(-s // width)
        return (1, s) if width * points > s * _EXCESS and s <= _MOST_EXACT else (width, points)

    def below(self) -> Enclosure:
        """See `base.Enclosed`."""
        step: Any = Laplace(self.noise_multiplier * _UP)
        return Enclosure([(step if self.sample_rate == 1.0 else SampledBounded(step, self.sample_rate), 1)])

    def above(self) -> Enclosure:
        """See `base.Enclosed`."""
        width, points = self._points()
        return Enclosure([(discrete_laplace_pair(self.a * width * _UP, points).sampled(self.sample_rate), 1)])
