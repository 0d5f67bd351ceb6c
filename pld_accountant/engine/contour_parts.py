"""Parts of delta by the largest loss of any step, and the tilt of each part (docs/how/contour.rst, step 2).

What is chosen here from rough moments proves nothing: whatever the choice, `engine.contour_integral` bounds the error.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..mechanisms.complex_law import ComplexLaw

__all__ = ["TOLERANCE", "Part", "Steps", "choose_parts"]

TOLERANCE = 1e-8
"""A term of the error may be this large at least, relative to delta; the round-off may be larger."""

_BEYOND = -30.0  # log of the mass at the end of the losses, relative to delta
_NEGLIGIBLE = -24.0  # log of the part of small losses that is bounded instead of integrated, relative to delta
_CROWDED = 2.5  # sum of the moduli of M_mid of all steps, at most
_SMALL_LOSSES = 0.12  # a part of all losses below this share of epsilon may be integrated like the whole
_MOST_PARTS = 4
_OCTAVE = 4  # tilts in an octave
_TILTS = 2.0 ** (np.arange(-3 * _OCTAVE, 30 * _OCTAVE) / _OCTAVE)
_LEVELS = 0.45 * 0.75 ** np.arange(14)  # candidates of where losses are split, over epsilon: two of them stay below it
_FARTHEST = 5.0  # log g where paths end, at most, unless the losses go on


class Steps:
    """One person's steps in one direction.

    Parameters
    ----------
    laws : sequence of ComplexLaw
    counts : ndarray, shape (laws,)
        At least one of each.
    remove : bool
    log_delta : float
        About log delta, which all results are relative to.
    tolerance : float
        A term of the error may be this large.
    """

    def __init__(
        self,
        laws: list[ComplexLaw],
        counts: NDArray,
        remove: bool,
        log_delta: float,
        tolerance: float = TOLERANCE,
    ) -> None:
        self.tolerance = tolerance
        self.laws, self.counts, self.remove, self.log_delta = laws, counts.astype(np.float64), remove, log_delta
        self.total = float(self.counts.sum())
        mass = math.exp(max(log_delta + _BEYOND, -700.0)) / self.total
        self.ends = np.array([law.end(mass) for law in laws])
        self.beyond = float(self.counts @ [law.mass_beyond(x) for law, x in zip(laws, self.ends, strict=True)])

    def exponent(self, theta: NDArray) -> NDArray:
        """A on the real axis at a tilt."""
        return 1.0 + theta if self.remove else -theta

    def z(self, a: NDArray) -> NDArray:
        """z of A."""
        return a - 1.0 if self.remove else -a

    def rough_log_moments(self, losses: NDArray, theta: NDArray) -> NDArray:
        """About the log of prod M^c up to each loss: (losses, tilts)."""
        found = np.zeros((losses.size, theta.size))
        for n, law, end in zip(self.counts, self.laws, self.ends, strict=True):
            found += n * law.rough_log_moments(law.places(losses), self.exponent(theta), end)
        return found

    def far_ends(self, theta: NDArray, epsilon: float) -> tuple[NDArray, NDArray]:
        """Ends at which what paths leave out at each tilt is negligible, and log g there: (laws, tilts)."""
        c = self.exponent(theta)
        log_goal = theta * epsilon + self.log_delta + math.log(self.tolerance / self.total) - 6.0
        found = [law.far_ends(c, log_goal, x) for law, x in zip(self.laws, self.ends, strict=True)]
        return np.stack([x for x, _ in found]), np.stack([loss for _, loss in found])


class Part(NamedTuple):
    """Compositions whose largest loss lies in (low, high], and the tilt at which their contour starts."""

    low: float
    high: float
    theta: float


def choose_parts(steps: Steps, epsilon: float, peak: float, reach: int) -> tuple[list[Part], float] | None:
    """The parts, and the tilt of Chernoff's bound of what is left; by rough moments, which prove nothing.

    peak: log of the integrand at the tilt, relative to delta, at most; at 12 five of sixteen digits are lost.
    reach: by how many quarter octaves of the tilt to its right the integrand is judged.
    """
    near = np.array([law.loss_at(x) for law, x in zip(steps.laws, steps.ends, strict=True)])
    levels = np.array([np.inf])
    if steps.remove and epsilon > 0.0:
        # no law's losses end before the first level
        levels = np.append(levels, epsilon * _LEVELS[_LEVELS * epsilon < 0.9 * near.min()])
    theta = _TILTS[_TILTS * epsilon < 300.0]
    if not theta.size:
        return None
    # the bounds on panels depend on moments at larger tilts
    k, wide = (steps.rough_log_moments(levels, t) for t in (theta, 2.0 ** (reach / _OCTAVE) * theta))
    crowd = steps.counts @ np.stack([law.moduli(law.places(levels)) for law in steps.laws])
    scale = theta * epsilon + steps.log_delta
    far = steps.far_ends(theta, epsilon)[1]
    reached = np.all(far <= np.maximum(1.3 * near[:, None], _FARTHEST), axis=0)

    def peaks(high: int, low: int | None) -> NDArray:
        """log of the integrand at each tilt, relative to delta."""
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = 0.0 if low is None else np.log(-np.expm1(np.minimum(wide[low] - wide[high], -1e-18)))
            found = wide[high] + apart - scale - np.log(theta * (1.0 + theta))
        return np.where(reached | (high > 0), np.nan_to_num(found, nan=np.inf), np.inf)

    def part(high: int, low: int | None) -> Part:
        found = peaks(high, low)
        first = int(np.argmax(found <= max(float(found.min()) + 1.0, peak)))
        return Part(-np.inf if low is None else float(levels[low]), float(levels[high]), float(theta[first]))

    if levels.size == 1 or peaks(0, None).min() <= peak:
        return [part(0, None)], 0.0
    found: list[Part] = []
    high = 0
    while len(found) < _MOST_PARTS:
        left = k[high] - scale
        if found and left.min() < _NEGLIGIBLE:
            return found, float(theta[np.argmin(left)])
        if found and levels[high] <= _SMALL_LOSSES * epsilon and peaks(high, None).min() <= peak:
            return [*found, part(high, None)], 0.0
        low = high + 1
        if low == levels.size:
            return None
        while low + 1 < levels.size and crowd[low + 1] < _CROWDED and peaks(high, low + 1).min() <= peak:
            low += 1
        found.append(part(high, low))
        high = low
    return None
