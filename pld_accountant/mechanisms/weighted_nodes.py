"""Characteristic functions of losses that are weighted nodes: atoms, or the nodes of a quadrature rule."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import deadline
from .base import Spectrum
from .exponential_sums import are_many, excess_at, log_of_excess

__all__ = ["UNIT", "WeightedNodes", "join"]

UNIT = 2.0**-53
"""Unit round-off."""

_BLOCK = 64  # frequencies whose phases are products of two
_CHUNK = 256  # nodes that a matrix product adds up


class WeightedNodes(NamedTuple):
    """The tilted loss of one step as nodes, and their round-off in units of 2^-53.

    Attributes
    ----------
    share, loss : ndarray, shape (nodes,)
        Shares of the tilted mass, which add up to 1, and losses.
    log_moment : float
        K, the log of the tilted mass.
    units_of_log : ndarray, shape (nodes,)
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
    units_of_log: NDArray
    units: NDArray
    units_of_moment: float
    truncated: float

    def spectrum(self, spacing: float, m: int, columns: int, span: tuple[float, float], cost: NDArray) -> Spectrum:
        """See `base.CharacteristicSteps.spectrum`; of one row, whose arrays have no first axis.

        Round-off: phi - 1 is summed as it stands.  With d the loss less its mean, exp(i (a + b) d) - 1 is the product
        of exp(i a d) and exp(i b d) - 1, plus exp(i a d) - 1.  Each has a few units of 2^-53 of omega |d|, and each sum
        as many as it has terms.
        """
        p, k = self.share, self.log_moment
        mean = float(p @ self.loss)
        d = self.loss - mean
        if are_many(p.size, m):
            excess, constant, of_sums = excess_at(p, d, spacing, m)
        else:
            excess, constant = _phi_less_one(p, d, spacing, m), 0.0
            of_sums = 2.0 * UNIT * (2.0 * _CHUNK + p.size / _CHUNK + 32.0) * float(p @ np.abs(d))
        re, im = log_of_excess(excess)
        apart = np.abs(d)
        slope = (2.5 * columns + 16.0) * float(p @ apart)
        slope += float(p @ (self.units * apart)) + 2.0 * float(p @ self.units_of_log)
        return Spectrum(
            log_moment=np.array(k),
            mean=np.array(mean),
            log_moment_error=np.array(self.truncated + UNIT * (self.units_of_moment + (columns + 8.0) * abs(k))),
            error=np.array(2.0 * self.truncated + constant),
            error_slope=np.array(2.0 * UNIT * slope + of_sums),
            re=re,
            im=im,
            span=np.array(span),
            cost=cost,
        )


def join(rows: list[Spectrum]) -> Spectrum:
    """Spectra of single rows as one of all."""
    return Spectrum(*(np.stack([getattr(row, name) for row in rows]) for name in Spectrum.__dataclass_fields__))


def _phi_less_one(p: NDArray, d: NDArray, spacing: float, m: int) -> NDArray:
    """Sum of p_j (exp(i omega d_j) - 1) at the frequencies spacing, ..., m spacing."""
    blocks = m // _BLOCK + 1
    found = np.zeros((blocks, _BLOCK), dtype=complex)
    near, far = spacing * np.arange(_BLOCK), spacing * _BLOCK * np.arange(blocks)
    for begin in range(0, d.size, _CHUNK):
        deadline.check()
        q, e = p[begin : begin + _CHUNK], d[begin : begin + _CHUNK]
        within, beyond = _turn_less_one(np.multiply.outer(e, near)), _turn_less_one(np.multiply.outer(far, e))
        found += (q * (1.0 + beyond)) @ within + (beyond @ q)[:, None]
    return found.ravel()[1 : m + 1]


def _turn_less_one(angle: NDArray) -> NDArray:
    """exp(i angle) - 1."""
    half = np.sin(0.5 * angle)
    return -2.0 * half * half + 1j * np.sin(angle)
