"""Characteristic functions of losses that are weighted nodes: atoms, or the nodes of a quadrature rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .base import Spectrum
from .exponential_sums import excess_of_row, log_of_excess

__all__ = ["UNIT", "LawSteps", "WeightedNodes", "join"]

UNIT = 2.0**-53
"""Unit round-off."""


class WeightedNodes(NamedTuple):
    """The tilted loss of one step as nodes, and their round-off in units of 2^-53.

    Attributes
    ----------
    share, loss : ndarray, shape (nodes,)
        Shares of the tilted mass, which add up to 1, and losses.
    log_moment : float
        K, the log of the tilted mass.
    units_of_loss : ndarray, shape (nodes,)
        Round-off of a loss, absolute.
    units : ndarray, shape (nodes,)
        Round-off of a share, relative.
    units_of_moment : float
        Round-off of K.
    truncated : float
        Share of the mass that the nodes leave out or add, at most; also that of the rule's error.
    """

    share: NDArray
    loss: NDArray
    log_moment: float
    units_of_loss: NDArray
    units: NDArray
    units_of_moment: float
    truncated: float

    def spectrum(self, spacing: float, m: int, columns: int, cost: NDArray) -> Spectrum:
        """See `base.CharacteristicSteps.spectrum`; of one row, whose arrays have no first axis."""
        p, k = self.share, self.log_moment
        mean = float(p @ self.loss)
        d = self.loss - mean
        excess, constant, of_sums = excess_of_row(p, d, spacing, m)
        re, im = log_of_excess(excess)
        apart = np.abs(d)
        slope = (2.5 * columns + 16.0) * float(p @ apart)
        # a share is divided by the sum of all: with its error e, the sum of p |e - mean of e| |d| is at most 3 E[e |d|]
        slope += 1.5 * float(p @ (self.units * apart)) + 2.0 * float(p @ self.units_of_loss)
        return Spectrum(
            log_moment=np.array(k),
            mean=np.array(mean),
            log_moment_error=np.array(self.truncated + UNIT * (self.units_of_moment + (columns + 8.0) * abs(k))),
            error=np.array(2.0 * self.truncated + constant),
            error_slope=np.array(2.0 * UNIT * slope + of_sums),
            re=re,
            im=im,
            span=np.zeros(2),
            cost=cost,
        )


def join(rows: Iterable[Spectrum | None]) -> Spectrum | None:
    """Spectra of single rows as one of all; None, and no further row is made, if one is None."""
    found = []
    for row in rows:
        if row is None:
            return None
        found.append(row)
    return Spectrum(*(np.stack([getattr(row, name) for row in found]) for name in Spectrum.__dataclass_fields__))


class _Law(Protocol):
    """The loss of one step."""

    def spectrum(self, theta: float, spacing: float, m: int, columns: int, work: float) -> Spectrum | None: ...

    def log_envelope(self, theta: float, levels: NDArray, log_moment: float) -> NDArray: ...


class LawSteps(ABC):
    """The characteristic functions of a family whose rows are laws; see `base.CharacteristicSteps`."""

    @abstractmethod
    def law(self, row: int) -> _Law:
        """The law of a row."""

    def spectrum(
        self, theta: float, spacing: float, m: int, rows: NDArray, columns: int, work: float
    ) -> Spectrum | None:
        """See `base.CharacteristicSteps`."""
        share = work / rows.size
        return join(self.law(row).spectrum(theta, spacing, m, columns, share) for row in rows.tolist())

    def log_envelope(self, theta: float, levels: NDArray, rows: NDArray, found: Spectrum) -> NDArray:
        """See `base.CharacteristicSteps`."""
        moments = found.log_moment - found.log_moment_error
        bounds = [
            self.law(int(row)).log_envelope(theta, levels, float(k)) for row, k in zip(rows, moments, strict=True)
        ]
        return np.stack(bounds)
