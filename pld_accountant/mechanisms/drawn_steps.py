"""`DrawnSteps`: steps whose kind is drawn openly, with known probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from .. import deadline
from .base import CharacteristicSteps, DeltaSteps, Direction, Spectrum, StepFamily
from .exponential_sums import log_of_excess
from .weighted_nodes import UNIT, join

__all__ = ["DrawnSteps"]

_ROW = np.zeros(1, dtype=np.int64)  # the only row of a kind


class DrawnSteps(DeltaSteps):
    """Steps of several kinds, drawn with known probabilities; which kind was drawn is public.

    Parameters
    ----------
    rows : sequence of (list of CharacteristicSteps, list of float)
        Families of one row each, and their probabilities.
    direction : {"remove", "add"}
    """

    atomic = False

    def __init__(self, rows: Sequence[tuple[list[CharacteristicSteps], list[float]]], direction: Direction) -> None:
        self.direction: Direction = direction
        self._rows = list(rows)
        self._parts = [part for parts, _ in self._rows for part in parts]

    @property
    def whole(self) -> bool:
        """Whether all kinds are whole."""
        return all(part.whole for part in self._parts)

    @property
    def decays(self) -> bool:
        """Whether those of all kinds fall to 0."""
        return all(part.decays for part in self._parts)

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """log of the mean of exp(K), rounded up, shape (size, tilts)."""
        found = np.empty((self.size, theta.size))
        for row, (parts, weights) in enumerate(self._rows):
            k = np.array([part.log_moments(theta, exact=exact)[0] for part in parts])
            share = np.array(weights)[:, None]
            near = np.log1p((np.expm1(np.minimum(k, 30.0)) * share).sum(axis=0))
            far = np.logaddexp.reduce(k + np.log(share), axis=0)
            value = np.where(k.max(axis=0) < 30.0, near, far)
            found[row] = value + 1e-13 * np.abs(value) + 1e-16
        return found

    def spectrum(
        self, theta: float, spacing: float, m: int, rows: NDArray, columns: int, work: float
    ) -> Spectrum | None:
        """See `base.CharacteristicSteps`."""

        def of(parts: Sequence[CharacteristicSteps], weights: Sequence[float]) -> Spectrum | None:
            share = work / (rows.size * len(parts))
            found = (part.spectrum(theta, spacing, m, _ROW, columns, share) for part in parts)
            kinds = join(one.of(0) if one else None for one in found)
            return None if kinds is None else _mean(kinds, np.log(weights), spacing, columns)

        return join(of(*self._rows[row]) for row in rows)

    def envelope_levels(self, theta: float) -> tuple[int, int]:
        """From the lowest to the highest of the kinds' levels."""
        lowest, highest = zip(*(part.envelope_levels(theta) for part in self._parts), strict=True)
        return min(lowest), max(highest)

    def log_envelope(self, theta: float, levels: NDArray, rows: NDArray, found: Spectrum) -> NDArray:
        """See `base.CharacteristicSteps`; the mean of the kinds' envelopes, by their shares of the tilted mass."""
        out = np.zeros((rows.size, levels.size))
        least = found.log_moment - found.log_moment_error
        for i, row in enumerate(rows):
            total = np.full(levels.size, -np.inf)
            for part, weight in zip(*self._rows[row], strict=True):
                # few frequencies: only the moments count
                own = part.spectrum(theta, float(levels[0]), 1, _ROW, 1, np.inf)
                if own is None:  # even the least band needs too many nodes
                    break
                share = math.log(weight) + own.log_moment + own.log_moment_error - least[i] + 1e-13
                total = np.logaddexp(total, share + part.log_envelope(theta, levels, _ROW, own)[0])
            else:
                out[i] = np.minimum(total, 0.0)
        return out

    def infinite_mass(self) -> NDArray:
        """Means of the kinds' masses at +infinity."""
        masses = [float(np.dot(w, [float(p.infinite_mass()[0]) for p in parts])) for parts, w in self._rows]
        return np.array(masses) * (1.0 + 1e-12)

    def log_delta_of_step(self, epsilon: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        low, high = np.empty((2, row.size))
        for i, (e, k) in enumerate(zip(epsilon, row, strict=True)):
            deadline.check()
            ends = [part.log_delta_of_step(np.array([e]), _ROW) for part in self._rows[k][0]]
            log_weight = np.log(self._rows[k][1])
            low[i] = np.logaddexp.reduce([w + float(a[0]) for w, (a, _) in zip(log_weight, ends, strict=True)])
            high[i] = np.logaddexp.reduce([w + float(b[0]) for w, (_, b) in zip(log_weight, ends, strict=True)])
        slack = 1e-14 * (1.0 + np.abs(np.nan_to_num(high, neginf=0.0)))
        return low - slack, np.minimum(high + slack, 0.0)

    def _most(self, delta: NDArray, row: NDArray) -> NDArray:
        """The largest epsilon of a kind."""
        return np.array(
            [
                max(float(part.epsilon_of_step(np.array([d]), _ROW)[1][0]) for part in self._rows[k][0])
                for d, k in zip(delta, row, strict=True)
            ]
        )

    def largest_loss(self) -> NDArray:
        """The largest of the kinds'."""
        return np.array([max(float(part.largest_loss()[0]) for part in parts) for parts, _ in self._rows])

    def surely_lost(self, deviations: NDArray) -> NDArray:
        """The smallest of the kinds': each has enough mass above it."""
        return np.array([np.min([p.surely_lost(deviations)[0] for p in parts], axis=0) for parts, _ in self._rows])

    def gaussian_mu(self) -> NDArray:
        """The largest of the kinds': its curve lies above each."""
        return np.array([max(float(part.gaussian_mu()[0]) for part in parts) for parts, _ in self._rows])

    def masses(self, row: int, knots: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`; means of the kinds' masses."""
        parts, weights = self._rows[row]
        p, u = np.zeros((2, knots.size - 1))
        for part, weight in zip(parts, weights, strict=True):
            one, two = part.masses(0, knots)
            p += weight * one
            u += weight * two
        return p, np.clip(u, 0.0, p)

    def losses(self, row: int, reach: float, number: int) -> NDArray:
        """Losses of all kinds."""
        loss = np.sort(np.concatenate([part.losses(0, reach, number) for part in self._rows[row][0]]))
        return loss[np.rint(np.linspace(0, loss.size - 1, number)).astype(np.int64)]

    def typical_loss(self, row: int) -> float:
        """That of the likeliest kind."""
        parts, weights = self._rows[row]
        return parts[int(np.argmax(weights))].typical_loss(0)

    def range_of_losses(self, row: int, reach: float) -> tuple[float, float]:
        """The hull of the kinds' ranges."""
        ends = [part.range_of_losses(0, reach) for part in self._rows[row][0]]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def loss_roundoff(self, counts: NDArray, depth: int) -> tuple[float, float]:
        """The largest factor, and the sum of the largest additive errors; a kind's losses below 0 count as added."""
        factor, offset = 0.0, 0.0
        for (parts, _), n in zip(self._rows, counts, strict=True):
            if n:
                found = [part.loss_roundoff(np.array([n]), depth) for part in parts]
                factor = max(factor, *(f for f, _ in found))
                offset += max(o for _, o in found)
        negative = sum(n * max(-self.range_of_losses(k, 38.0)[0], 0.0) for k, n in enumerate(counts) if n)
        return factor, offset + 3.0 * factor * float(negative)

    def truncated(self, reach: float) -> StepFamily:
        """See `base.StepFamily`; each kind ends where Phi(-reach) of its own P is left."""
        rows = [([part.truncated(reach) for part in parts], weights) for parts, weights in self._rows]
        if all(new is old for new, old in zip(chain(*(parts for parts, _ in rows)), self._parts, strict=True)):
            return self
        return DrawnSteps(rows, self.direction)  # type: ignore[arg-type]


def _mean(kinds: Spectrum, log_weight: NDArray, spacing: float, columns: int) -> Spectrum:
    """The spectrum of one step whose kind is drawn, from those of the kinds, which have a row each.

    With the kinds' shares s of the tilted mass, phi - 1 is the sum of s (phi_k exp(i omega (m_k - m)) - 1), m the mean
    of the kinds' means m_k.

    1. The kinds' errors enter with their shares.
    2. A share has the relative error of exp(K), which multiplies the modulus of its term; so does the round-off of the
       exponential.  At each frequency of the table this is at most the largest such term over omega, times omega.
    3. m_k - m is rounded, and adds to E|d|, which the round-off of the matrix product multiplies (`quadrature`).
    """
    k, error_k, means = log_weight + kinds.log_moment, kinds.log_moment_error, kinds.mean
    log_moment = float(np.logaddexp.reduce(k))
    share = np.exp(k - log_moment)
    mean = float(share @ means)
    apart = means - mean
    omega = spacing * np.arange(1, kinds.re.shape[1] + 1)
    terms = np.expm1(kinds.re + 1j * (kinds.im + np.multiply.outer(apart, omega)))
    re, im = log_of_excess(share @ terms)
    relative = 2.0 * float(error_k.max()) + UNIT * (4.0 * np.abs(k) + 8.0 * abs(log_moment) + 64.0)
    of_terms = float((((share * relative) @ np.abs(terms)) / omega).max())
    of_means = (5.0 * columns + 40.0) * np.abs(apart) + 4.0 * (np.abs(means) + abs(mean))
    return Spectrum(
        log_moment=np.array(log_moment),
        mean=np.array(mean),
        log_moment_error=np.array(error_k.max() + UNIT * ((columns + 16.0) * abs(log_moment) + 16.0)),
        error=np.array(share @ kinds.error),
        error_slope=np.array(share @ (kinds.error_slope + UNIT * of_means) + of_terms),
        re=re,
        im=im,
        span=np.zeros(2),
        cost=np.array(kinds.cost.sum()),
    )
