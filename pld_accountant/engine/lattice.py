"""Compositions of finitely many losses on a few lattices: tilted Fourier transforms, without a grid of their own.

The sum of n steps whose losses are o_i + g k, k whole, lies on the lattice sum n_i o_i + g k.  Its masses, tilted by
exp(theta l), are an inverse Fourier transform of the product of the steps' transforms.  Masses outside of a window
of the tilted sum wrap into it, and have a Chernoff bound of 1e-16.  delta is then a finite sum.  The tilt is the Renyi
order's, so that a delta of 1e-100 keeps its digits.

Steps of other lattices have sums of their own.  The points x of all sums but the longest, with their products of tilted
masses, are atoms: delta(epsilon) is the sum over the atoms of the longest sum's delta at epsilon - x.

Error: the losses are moved onto the lattices by at most `shift` in all, which moves epsilon by as much.  The masses'
relative error multiplies delta.  If a computed transform phi_i is wrong by eta_i, the product of the powers is wrong by
at most sum n_i (eta_i + 16 units) (|phi_i| + eta_i)^(n_i - 1) times the other factors.  The mean of this over the
frequencies bounds the error of each mass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import deadline
from ..fft import roundoff
from ..mechanisms.discrete import MASS_SLACK, DiscreteLaw
from .discrete_sum import DiscreteSum, FiniteDelta

__all__ = ["LatticeSum"]

_MOST = 1 << 22  # points of a window, and of one step
_FARTHEST_WINDOW = 1 << 25
_FARTHEST = 1e12  # points of a sum
_NEAR = 1e-9  # distance from a lattice, relative to its step, at which a loss counts as on it
_TILTS = 2.0 ** np.arange(-24.0, 42.0, 0.5)
_SOME_TILTS = 2.0 ** np.arange(-6.0, 10.0, 2.0)
_TAUS = 2.0 ** np.arange(-24.0, 42.0, 1.0)
_LOG_WRAPPED, _WRAPPED = 40.0, 1e-16  # 2 exp(-40) is 8.5e-18; the rest is for the round-off of log-moments
_UNIT = 2.0**-53
_MOST_ATOMS = 1 << 17
_FINER = 8.0  # lattices that share only a much finer one are kept apart
_ELEMENTS = 1 << 18  # exponents of log-moments at a time
_EXPONENT = 64.0  # largest exponent within a block of tail sums


class _Lattice:
    """The sum of steps on one lattice; `of` returns None where there is none.

    Parameters
    ----------
    laws : sequence of DiscreteLaw
    counts : sequence of int
    step : float
        g, the step of the lattice.
    """

    def __init__(self, laws: Sequence[DiscreteLaw], counts: Sequence[int], step: float) -> None:
        self.step, self.counts, self.given = step, list(counts), list(laws)
        self._laws, moved = [], 0.0
        self.start, self.points = 0.0, 1
        for law, n in zip(laws, counts, strict=True):
            place = np.rint((law.losses - law.losses[0]) / step)
            moved += n * float(np.abs(law.losses[0] + step * place - law.losses).max())
            masses = np.bincount(place.astype(np.int64), law.masses)
            self._laws.append((law.losses[0], masses))
            self.start += n * law.losses[0]
            self.points += n * (masses.size - 1)
        self.size = sum(n * float(np.abs(law.losses).max()) for law, n in zip(laws, counts, strict=True))
        # beside the distance from the lattice: the errors of the losses, and the round-off of start + step k
        of_losses = sum(n * law.largest_loss_error for law, n in zip(laws, counts, strict=True))
        self.shift = moved * 1.001 + of_losses + 2.0**-50 * self.size

    @staticmethod
    def of(laws: Sequence[DiscreteLaw], counts: Sequence[int]) -> _Lattice | None:
        """The sum, if the losses have a common lattice that is coarse enough."""
        if any(not law.losses.size for law in laws):
            return None
        step = 0.0
        for law in laws:
            span = float(law.losses[-1] - law.losses[0])
            even = span / max(law.losses.size - 1, 1)
            gaps = np.diff(law.losses)
            alike = gaps.size > 1 and float(np.abs(gaps - even).max()) <= max(_NEAR * even, 4.0 * MASS_SLACK)
            for gap in (even,) if alike else np.sort(gaps)[::-1]:
                # the gaps of one law and of all: Euclid's algorithm, up to round-off
                step = _common(step, float(gap))
                if step and span / step > _MOST:
                    return None
        if step == 0.0:
            step = 1.0
        # the largest span tells the step best
        span = max(float(law.losses[-1] - law.losses[0]) for law in laws)
        step = span / max(round(span / step), 1) if span > 0.0 else step
        if span / step > _MOST:
            return None  # a later law made the step too small for an earlier one
        points = 0.0
        for law, n in zip(laws, counts, strict=True):
            places = (law.losses - law.losses[0]) / step
            near = np.maximum(_NEAR * np.maximum(places, 1.0), 4.0 * MASS_SLACK / step)
            if np.any(np.abs(places - np.rint(places)) > near):
                return None
            points += n * round(places[-1])
        if points >= _FARTHEST:
            return None
        found = _Lattice(laws, counts, step)
        return found if found.widest <= _MOST else None

    def _atoms(self) -> Iterator[tuple[NDArray, NDArray, int]]:
        """Losses and log masses of each law, and its count."""
        for (start, masses), n in zip(self._laws, self.counts, strict=True):
            place = np.flatnonzero(masses)
            yield start + self.step * place, np.log(masses[place]), n

    def log_moment(self, theta: NDArray) -> NDArray:
        """log E[exp(theta L)] of the sum L at each tilt."""
        total = np.zeros(theta.size)
        for loss, log_mass, n in self._atoms():
            for some in np.array_split(np.arange(theta.size), math.ceil(theta.size * loss.size / _ELEMENTS)):
                exponent = np.multiply.outer(theta[some], loss) + log_mass
                top = exponent.max(axis=1)
                total[some] += n * (top + np.log(np.exp(exponent - top[:, None]).sum(axis=1)))
        return total

    def window(self, theta: float) -> tuple[int, int]:
        """First point and length of a window of the lattice outside of which the tilted sum has `_WRAPPED` at most.

        The Chernoff bounds of the tilted sum at tau: exp(K(theta + tau) - K(theta) - tau l) above l, and the same with
        -tau below.
        """
        here = float(self.log_moment(np.array([theta]))[0])
        above = self.log_moment(theta + _TAUS) - here
        below = self.log_moment(theta - _TAUS) - here
        top = float(np.min((above + _LOG_WRAPPED) / _TAUS))
        bottom = float(np.max(-(below + _LOG_WRAPPED) / _TAUS))
        first = max(math.floor((bottom - self.start) / self.step) - 1, 0)
        last = min(math.ceil((top - self.start) / self.step) + 2, self.points)
        return first, max(last - first, 1)

    def tilted(self, theta: float, first: int, points: int) -> tuple[int, NDArray, float, float, float]:
        """First point, tilted masses, the error of each, the log of what they were divided by, their relative error.

        The window is that of `window`.
        """
        from scipy import fft as transforms

        length = transforms.next_fast_len(points, real=True)
        product, log_scale, relative = np.ones(length // 2 + 1, dtype=complex), 0.0, 0.0
        size, error = np.ones(product.size), np.zeros(product.size)
        for (start, masses), n in zip(self._laws, self.counts, strict=True):
            exponent = np.full(masses.size, -np.inf)
            some = masses > 0.0
            exponent[some] = np.log(masses[some]) + theta * self.step * np.flatnonzero(some)
            top = float(exponent.max())
            tilted = np.exp(exponent - top)
            total = float(tilted.sum())
            tilted /= total
            log_scale += n * (top + math.log(total) + theta * start)
            # a tilted mass carries the round-off of its exponent
            weight = float(tilted[some] @ np.abs(exponent[some] - top))
            moment = theta * self.step * float(tilted @ np.arange(masses.size))
            units = 64.0 + 4.0 * weight + 4.0 * moment + np.count_nonzero(some)
            folded = np.bincount(np.arange(masses.size) % length, tilted, length)
            phi = transforms.rfft(folded)
            eta = roundoff(max(length, 2), float(np.linalg.norm(folded))) + units * _UNIT
            magnitude = np.minimum(np.abs(phi) + eta, 1.0)
            power = magnitude ** max(n - 1, 0)
            error = error * magnitude * power + size * n * (eta + 16.0 * _UNIT * magnitude) * power
            size = size * magnitude * power
            product *= phi**n
            relative += n * units * _UNIT + 4.0 * n * _UNIT * (abs(top) + abs(math.log(total)) + abs(theta * start))
        masses = np.roll(transforms.irfft(product, length), -(first % length))
        inverse = 2.0 * roundoff(max(length, 2), float(np.linalg.norm(product))) / length
        each = 2.0 * float(error.mean()) + 2.0 * inverse + 4.0 * _UNIT * float(np.abs(product).mean())
        return first, masses, each, log_scale, relative

    @cached_property
    def widest(self) -> float:
        """An estimate of the longest window's points: that of a Gaussian with the largest variance at some tilts."""
        variance = np.zeros(_SOME_TILTS.size)
        for loss, log_mass, n in self._atoms():
            for k, theta in enumerate(_SOME_TILTS.tolist()):
                exponent = theta * loss + log_mass
                share = np.exp(exponent - exponent.max())
                share /= share.sum()
                variance[k] += n * float(share @ (loss - share @ loss) ** 2)
        return min(self.points, 2.0 * math.sqrt(2.0 * _LOG_WRAPPED * float(variance.max())) / self.step + 3.0)


class LatticeSum(DiscreteSum):
    """The sum of steps on a few lattices; `of` returns None where they are too many.

    Parameters
    ----------
    lattices : sequence of _Lattice
        The longest sum is the last one.
    laws : sequence of DiscreteLaw
    counts : sequence of int
    """

    def __init__(self, lattices: Sequence[_Lattice], laws: Sequence[DiscreteLaw], counts: Sequence[int]) -> None:
        super().__init__(laws, counts)
        self._lattices = list(lattices)
        self._last: tuple[float, FiniteDelta] | None = None
        self._shift = sum(lattice.shift for lattice in lattices)
        self._factor = math.exp(min(sum(counts) * 2.0 * MASS_SLACK, 1.0))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}

    @staticmethod
    def of(laws: Sequence[DiscreteLaw], counts: Sequence[int]) -> LatticeSum | None:
        """The sum, if the losses lie on a few coarse lattices, of which all but the longest make few atoms together."""
        for finer in (_FINER, np.inf):
            found = _lattices(laws, counts, finer)
            if found:
                return LatticeSum(found, laws, counts)
        return None

    @property
    def largest(self) -> float:
        """The largest finite loss, rounded up."""
        return sum(x.start + x.step * (x.points - 1) for x in self._lattices) + self._shift

    def _log_moment(self, theta: NDArray) -> NDArray:
        return np.sum([lattice.log_moment(theta) for lattice in self._lattices], axis=0)

    @cached_property
    def _chernoff(self) -> tuple[NDArray, NDArray]:
        """Tilts that see no distance below the shift, which bounds leave open; log of their bounds of delta(0)."""
        tilts = _TILTS[0.1 / self._shift >= _TILTS]
        return tilts, self._log_moment(tilts) + _penalty(tilts)

    def _near_epsilon(self, epsilon: float) -> FiniteDelta:
        tilts, bound = self._chernoff
        return self._near_tilt(float(tilts[np.argmin(bound - tilts * epsilon)]))

    def _near_delta(self, delta: float) -> FiniteDelta:
        tilts, bound = self._chernoff
        with np.errstate(over="ignore"):
            best = np.argmin((bound - math.log(delta)) / tilts)
        return self._near_tilt(float(tilts[best]))

    def _near_tilt(self, theta: float) -> FiniteDelta:
        """Bounds that are tight near the epsilon of a tilt; those of the last tilt are kept."""
        last = self._last
        if last is None or last[0] != theta:
            last = self._last = theta, self._at_tilt(theta)
        return last[1]

    def _at_tilt(self, theta: float) -> FiniteDelta:
        windows = [lattice.window(theta) for lattice in self._lattices]
        if max(points for _, points in windows) > _FARTHEST_WINDOW:
            return lambda epsilon, sign: 1.0 if sign > 0.0 else 0.0  # far beyond the estimate `widest`
        sums = [x.tilted(theta, *window) for x, window in zip(self._lattices, windows, strict=True)]
        *others, (longest, end) = zip(self._lattices, sums, strict=True)
        atoms, masses, errors = np.zeros(1), np.ones(1), np.zeros(1)
        log_scale, relative, size = end[3], end[4], longest.size
        for lattice, (first, tilted, each, scale, of_sum) in others:
            points = lattice.start + lattice.step * np.arange(first, first + tilted.size)
            atoms = np.add.outer(atoms, points).ravel()
            errors = (np.multiply.outer(errors, np.abs(tilted) + each) + each * np.abs(masses)[:, None]).ravel()
            masses = np.multiply.outer(masses, tilted).ravel()
            log_scale, relative, size = log_scale + scale, relative + of_sum, size + lattice.size
        tails = _Tails(longest.start + longest.step * end[0], longest.step, end[1], end[2], theta)
        # an atom's place is rounded, and exp(-theta x) with it
        factor = self._factor * math.exp(min(relative + 2.0**-50 * theta * size, 1.0))
        wrapped = _WRAPPED * len(self._lattices)

        def finite(epsilon: float, sign: float) -> float:
            epsilon -= sign * self._shift
            some, wrong = tails.at(epsilon - atoms)
            if sign < 0.0 and not some.any():
                return 0.0
            value = float(masses @ some)
            error = float((np.abs(masses) + errors) @ wrong + errors @ np.abs(some))
            error += (atoms.size + 8.0) * _UNIT * float(np.abs(masses) @ np.abs(some))
            value += sign * (error + wrapped)
            value += 1e-300 if sign > 0 else 0.0
            if value <= 0.0:
                return 0.0
            exponent = log_scale - theta * epsilon + math.log(value)
            # one double outwards, because the exponential may underflow
            found = math.nextafter(math.exp(min(exponent, 0.0)) * factor**sign, sign * math.inf)
            return min(max(found, 0.0), 1.0)

        return finite


def _lattices(laws: Sequence[DiscreteLaw], counts: Sequence[int], finer: float) -> list[_Lattice]:
    """Lattices of all laws, the longest sum last; none if some law has none, or all but the last have many atoms.

    A law joins a lattice unless this takes more than `finer` times as many points as the longer of both.
    """
    found: list[_Lattice] = []
    for law, n in zip(laws, counts, strict=True):
        deadline.check()
        alone = _Lattice.of([law], [n])
        if alone is None:
            return []
        for k, lattice in enumerate(found):
            joined = _Lattice.of([*lattice.given, law], [*lattice.counts, n])
            if joined is not None and joined.widest <= finer * max(lattice.widest, alone.widest):
                found[k] = joined
                break
        else:
            found.append(alone)
        found.sort(key=lambda lattice: lattice.widest)
        if math.prod(lattice.widest for lattice in found[:-1]) > _MOST_ATOMS:
            return []  # further laws only add to them
    return found


class _Tails:
    """G(t), the sum over the points y > t of r exp(-theta (y - t)) (1 - exp(-(y - t))), r the tilted masses.

    The sums with exp(-theta (y - t)) and with exp(-(1 + theta) (y - t)) are known at the points.  Their difference
    cancels at most a part 1 / (1 + theta) of its digits.

    Parameters
    ----------
    start, step : float
        The points.
    masses : ndarray, shape (points,)
    each : float
        The error of a mass.
    theta : float
    """

    def __init__(self, start: float, step: float, masses: NDArray, each: float, theta: float) -> None:
        self._start, self._step, self._theta = start, step, theta
        self._sums = [_tail_sums(masses, rate * step) for rate in (theta, 1.0 + theta)]
        self._sizes, units = _tail_sums(np.abs(masses), theta * step)[0], max(found[1] for found in self._sums)
        self._units = _UNIT * units
        # a weight rises and falls once: its sum over the points is at most its integral and its maximum
        largest = math.exp(float(_penalty(np.array([theta]))[0]))
        self._each = each * min(1.0 / (step * theta * (1.0 + theta)) + largest, masses.size * largest)

    def at(self, t: NDArray) -> tuple[NDArray, NDArray]:
        """G and the bound of its error at each t."""
        place = np.ceil((t - self._start) / self._step)
        inside = place < self._sizes.size
        next_point = np.clip(place, 0.0, self._sizes.size - 1.0)
        apart = np.maximum(self._start + self._step * next_point - t, 0.0)
        k = next_point.astype(np.int64)
        near = np.where(inside, np.exp(-self._theta * apart), 0.0)
        (first, _), (second, _) = self._sums
        return near * (first[k] - np.exp(-apart) * second[k]), self._units * near * self._sizes[k] + self._each


def _tail_sums(masses: NDArray, decay: float) -> tuple[NDArray, float]:
    """Sums over k >= j of masses[k] exp(-decay (k - j)), and their round-off in units of 2^-53 of the sum of moduli.

    Block by block, from the last one: a block's weights range over a factor of e^64 at most.
    """
    length = int(min(max(_EXPONENT / decay, 1.0), masses.size))
    blocks = -(-masses.size // length)
    held = np.zeros(blocks * length)
    held[: masses.size] = masses
    falls = np.exp(-decay * np.arange(length))
    sums = np.cumsum((held.reshape(blocks, length) * falls)[:, ::-1], axis=1)[:, ::-1] / falls
    after = 0.0
    for k in range(blocks - 1, -1, -1):
        sums[k] += after * falls[::-1] * math.exp(-decay)
        after = sums[k, 0]
    return sums.ravel()[: masses.size], 2.0 * length + 4.0 * _EXPONENT + 4.0 * blocks + 64.0


def _penalty(theta: NDArray) -> NDArray:
    """log of the largest of exp(-theta x) (1 - exp(-x))."""
    return theta * np.log(theta / (1.0 + theta)) - np.log1p(theta)


def _common(a: float, b: float) -> float:
    """The largest number of which both are multiples, up to round-off."""
    if a == 0.0 or b == 0.0:
        return a + b
    least = _NEAR * max(a, b)
    while b > least:
        rest = a - b * round(a / b)
        a, b = b, abs(rest)
    return a
