r"""What one step does to the potential, for all norms at once: two Chebyshev series in the squared norm.

Between two knots the potential flows by exp(tau R) (`supersolution`), and a step of norm s and charge w multiplies the
Fourier coefficient at omega by

    a_s = B_s(z) exp(-w (kappa + R)),    z = theta + i omega.

The series stand for the generator rho_s = (a_s - 1) / w and for the jump a_s - 1.  They are measured, not assumed: at
each of `norms.NORMS` the difference between the series and the value enters `error`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.typing import NDArray

from .multipliers import Law, Multipliers
from .norms import NORMS, PARTS

__all__ = ["ChargeTable", "Series", "fit_series"]

_DEGREES = (48, 96)  # numbers of Chebyshev points that are tried
_UNIT = 2.0**-53
_LEAST = float(NORMS[0]) ** 2


@dataclass(frozen=True)
class Series:
    """Generator and jump of the steps of one law.

    Attributes
    ----------
    generator, jump : ndarray, shape (terms, m + 1)
        Chebyshev coefficients for each frequency.
    generator_error, jump_error : ndarray, shape (m + 1,)
        Largest difference to the true value at any of `NORMS`.
    amplitude : ndarray, shape (m + 1,)
        Largest |a_s| at any of `NORMS` over the smallest a_s at omega = 0, at least 1.
    """

    generator: NDArray
    jump: NDArray
    generator_error: NDArray
    jump_error: NDArray
    amplitude: NDArray

    def at(self, norms: NDArray) -> tuple[NDArray, NDArray]:
        """Generator and jump at some relative norms, both (norms, m + 1)."""
        x = _place(norms)
        return _sum(self.generator, x), _sum(self.jump, x)


class ChargeTable(NamedTuple):
    """The charges of a run, in units of a full-norm step at the first of its sample rates.

    Attributes
    ----------
    unit : float
        The Renyi cost K(theta) of that step.
    rates : tuple of float
        Sample rates, descending.
    table : ndarray, shape (rates, norms)
        Charge at each of `norms.NORMS`, rounded up.  A charge of a full norm may exceed 1 in the last digits.
    """

    unit: float
    rates: tuple[float, ...]
    table: NDArray

    @classmethod
    def make(cls, laws: Sequence[Law]) -> ChargeTable:
        """The charges of laws with descending sample rates."""
        unit = float(laws[0].cost(np.ones(1))[0])
        table = [np.maximum.accumulate(law.cost(NORMS)) / unit * (1.0 + 4.0 * _UNIT) for law in laws]
        return cls(unit, tuple(law.sample_rate for law in laws), np.array(table))

    def of(self, law: Law) -> NDArray:
        """The charges at the sample rate of a law."""
        return self.table[self.rates.index(law.sample_rate)]


def fit_series(multipliers: Multipliers, drift: NDArray, charges: NDArray, kappa: float, weight: NDArray) -> Series:
    """The series of one law.

    Parameters
    ----------
    drift : ndarray, shape (m + 1,)
        R at each frequency.
    charges : ndarray, shape (norms,)
        Of `NORMS`.
    kappa : float
        The growth of the potential for each unit of charge.
    weight : ndarray, shape (m + 1,)
        Moduli of the potential's first coefficients over the error that matters; terms below 1 are left out.
    """
    best: Series | None = None
    for degree in _DEGREES:
        found = _fit(multipliers, drift, charges, kappa, weight, degree)
        if best is None or weight @ found.generator_error < weight @ best.generator_error:
            best = found
        if weight @ best.generator_error <= 10.0:
            break
    assert best is not None
    return best


def _fit(
    multipliers: Multipliers, drift: NDArray, charges: NDArray, kappa: float, weight: NDArray, degree: int
) -> Series:
    angles = np.pi * (np.arange(degree) + 0.5) / degree
    norms = np.sqrt(_LEAST + (1.0 - _LEAST) * 0.5 * (np.cos(angles) + 1.0))
    norms = np.clip(norms, NORMS[0], 1.0)
    charge = multipliers.law.cost(norms) / multipliers.law.cost(np.ones(1)) * charges[-1]
    jump, _ = _jump(multipliers, drift, norms, charge, kappa)
    cosines = np.cos(np.outer(np.arange(degree), angles)) * 2.0 / degree
    cosines[0] *= 0.5
    of_jump, of_generator = _cut(cosines @ jump, weight), _cut(cosines @ (jump / charge[:, None]), weight)
    frequencies = drift.size
    generator_error, jump_error, largest = np.zeros((3, frequencies))
    smallest = np.inf
    for start in range(0, NORMS.size, PARTS):  # an octave at a time, for memory
        some = slice(start, start + PARTS)
        w = charges[some, None]
        exact, error = _jump(multipliers, drift, NORMS[some], charges[some], kappa)
        x = _place(NORMS[some])
        np.maximum(jump_error, (np.abs(_sum(of_jump, x) - exact) + error).max(axis=0), out=jump_error)
        missed = (np.abs(_sum(of_generator, x) - exact / w) + error / w).max(axis=0)
        np.maximum(generator_error, missed, out=generator_error)
        np.maximum(largest, (np.abs(1.0 + exact) + error).max(axis=0), out=largest)
        smallest = min(smallest, float((1.0 + exact[:, 0].real - error[:, 0]).min()))
    if not smallest > 0.0:
        raise ValueError(f"the multipliers of {multipliers.law} are known too badly")
    amplitude = np.maximum(largest / smallest, 1.0)
    return Series(of_generator, of_jump, generator_error * 1.001, jump_error * 1.001, amplitude)


def _jump(
    multipliers: Multipliers, drift: NDArray, norms: NDArray, charge: NDArray, kappa: float
) -> tuple[NDArray, NDArray]:
    """a_s - 1 and a bound of its error, both (norms, m + 1)."""
    values, error = multipliers.at(norms)
    less = np.expm1(-charge[:, None] * (kappa + drift))
    jump = values * (1.0 + less) + less
    error = error * np.abs(1.0 + less) + 16.0 * _UNIT * (np.abs(values) * np.abs(1.0 + less) + np.abs(less))
    return jump, error


def _cut(coefficients: NDArray, weight: NDArray) -> NDArray:
    """The coefficients up to the last one that matters; at omega = 0 they are real."""
    coefficients[:, 0] = coefficients[:, 0].real
    matters = np.abs(coefficients) @ weight > 1.0
    return np.ascontiguousarray(coefficients[: max(int(np.flatnonzero(matters).max(initial=0)) + 1, 2)])


def _place(norms: NDArray) -> NDArray:
    """x in [-1, 1], linear in the squared norm."""
    return np.clip(2.0 * (norms**2 - _LEAST) / (1.0 - _LEAST) - 1.0, -1.0, 1.0)


def _sum(coefficients: NDArray, x: NDArray) -> NDArray:
    return chebvander(x, coefficients.shape[0] - 1) @ coefficients
