"""About epsilon or delta of a composition, by one Fourier transform: where a certified search begins.

Nothing here is a bound.  The losses of each step are spread over a grid, each over three points that keep its mean and
its second moment, so that the many tiny losses of rare steps add up rightly.  A loss far beyond the range counts alone,
as if no other step lost anything.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..mechanisms.complex_law import ComplexLaw

__all__ = ["RoughComposition"]

_POINTS = 4096  # of the grid, which reaches from -4 to 4 times the scale
_EPSILONS = 1024  # points of it up to twice the scale
_TILTS = 2.0 ** np.arange(-6.0, 9.0, 0.5)  # over the inverse scale
_SCALES = 12  # tried at most
_REFINED = 4  # tilts for an epsilon found before
_COARSE = 16.0  # the scale over an epsilon, at most


class RoughComposition:
    """One person's steps in one direction.

    Parameters
    ----------
    laws : list of ComplexLaw
    counts : ndarray, shape (laws,)
    """

    def __init__(self, laws: list[ComplexLaw], counts: NDArray) -> None:
        self._parts = [(float(n), *law.rough_losses) for n, law in zip(counts, laws, strict=True)]

    def epsilon(self, log_delta: float) -> float:
        """About epsilon at a delta; 0 if delta(0) is about as small."""
        scale, least, found = self._rare(log_delta), 0.0, 0.0
        for _ in range(_SCALES):
            scale = self._wide(scale)
            epsilon, curve = self._curve(scale, None, log_delta)
            if curve[-1] > log_delta:
                least = scale = 3.0 * scale
                continue
            found = float(np.interp(-log_delta, -curve, epsilon)) if curve[0] > log_delta else 0.0
            smaller = max(least, self._wide(0.25 * scale))
            if found > scale / _COARSE or smaller >= scale:
                break
            scale = smaller
        for _ in range(_REFINED):
            if found == 0.0:
                break
            before, (epsilon, curve) = found, self._curve(scale, found, 0.0)
            found = float(np.interp(-log_delta, -curve, epsilon)) if curve[0] > log_delta else 0.0
            if abs(found - before) < 0.01 * before:
                break
        return found

    def log_delta(self, epsilon: float) -> float:
        """About log delta at an epsilon."""
        at, curve = self._curve(self._wide(max(epsilon, 1e-12)), epsilon, 0.0)
        return float(np.interp(epsilon, at, curve))

    def _rare(self, log_delta: float) -> float:
        """About the loss beyond which a step contributes as much as delta."""
        found = 1e-12
        for n, loss, mass in self._parts:
            beyond = np.cumsum((n * mass * np.minimum(np.maximum(loss, 0.0), 1.0))[::-1])[::-1]
            enough = np.flatnonzero((np.log(beyond + 1e-320) >= log_delta) & (loss > 0.0))
            if enough.size:
                found = max(found, float(loss[enough[-1]]))
        return found

    def _wide(self, scale: float) -> float:
        """The scale, or a larger one that holds most sums of the losses it does not cut off."""
        for _ in range(60):
            near = [(n, np.where(np.abs(x) < 4.0 * scale, x, 0.0), p) for n, x, p in self._parts]
            mean = abs(sum(n * float(p @ x) for n, x, p in near))
            if mean + 6.0 * math.sqrt(sum(n * float(p @ (x * x)) for n, x, p in near)) <= 3.5 * scale:
                break
            scale *= 2.0
        return scale

    def _curve(self, scale: float, epsilon: float | None, target: float) -> tuple[NDArray, NDArray]:
        """Epsilons up to twice the scale, and log delta there; tilted for one epsilon, or for a target of log delta."""
        step, tilts = 8.0 * scale / _POINTS, _TILTS / scale
        near = [(n, x[np.abs(x) < 4.0 * scale], p[np.abs(x) < 4.0 * scale]) for n, x, p in self._parts]
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            k, mean, square = np.zeros((3, tilts.size))
            for n, x, p in near:
                grown = np.exp(np.multiply.outer(tilts, x)) * p
                total = grown.sum(axis=1)
                k += n * np.log(total)
                mean += n * (grown @ x) / total
                square += n * (grown @ (x * x)) / total
            # sums of tilted losses must stay in the range, which is a circle
            aim = (k - target) / tilts if epsilon is None else k - tilts * epsilon
            best = int(np.nanargmin(np.where(mean + 3.0 * np.sqrt(square) < 4.0 * scale, aim, np.inf)))
            tilt, transform = tilts[best], np.ones(_POINTS // 2 + 1, dtype=complex)
            for n, x, p in near:
                tilted = p * np.exp(tilt * x)
                transform *= np.fft.rfft(_spread(x, tilted / tilted.sum(), step)) ** n
            mass = np.maximum(np.fft.irfft(transform, _POINTS)[: _POINTS // 2], 0.0)
            t = step * np.arange(mass.size)
            # delta' = -exp(epsilon) Q(loss > epsilon), from the right, in logs: epsilon may be hundreds
            log_beyond = _log_sums(np.log(mass) - (1.0 + tilt) * t)
            log_delta = _log_sums(t[:-1] + log_beyond[1:])[:_EPSILONS] + math.log(math.expm1(min(step, 500.0)))
            far = sum(
                n * float(p[x >= 4.0 * scale] @ -np.expm1(scale - x[x >= 4.0 * scale])) for n, x, p in self._parts
            )
            return t[:_EPSILONS], np.logaddexp(log_delta + k[best], math.log(far + 1e-320))


def _log_sums(log_terms: NDArray) -> NDArray:
    """The log of the sum of each term and those on its right."""
    return np.logaddexp.accumulate(log_terms[::-1])[::-1]


def _spread(x: NDArray, mass: NDArray, step: float) -> NDArray:
    """The masses on the grid, on a circle: three points for each, by Lagrange's polynomial of second degree."""
    at = np.rint(x / step)
    u, at = x / step - at, at.astype(np.int64)
    parts = (-1, 0.5 * u * (u - 1.0)), (0, 1.0 - u * u), (1, 0.5 * u * (u + 1.0))
    return np.sum([np.bincount((at + i) % _POINTS, mass * w, _POINTS) for i, w in parts], axis=0)
