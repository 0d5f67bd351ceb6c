"""Characteristic functions at many frequencies: sums over many nodes, with one fast Fourier transform.

The nodes have the weights p_j, which add up to at most 1, and the losses d_j, which are not equally spaced.  The sum
of p_j (exp(i omega d_j) - 1) is wanted at omega = spacing, 2 spacing, ..., m spacing.  Added up node by node this costs
m products a node, which few or rare steps make thousands of millions.

1. Near losses, |d| <= D = 2 / (m spacing), have a Taylor series in omega, of 24 terms: its coefficients are moments.
   The error is relative to omega |d|, as that of the sum itself.
2. The far weights are spread over a grid of M points on the circle by a Gaussian window, transformed, and divided by
   the window's own transform (Greengard and Lee 2004).  In the units of the circle, x_j = spacing d_j, the window is
   exp(-x^2 / (4 tau)) with tau = a / M^2, its transform is proportional to exp(-tau f^2), f = 1..m.

Error of step 2, relative to the far mass; h = 2 pi / M, g = h^2 / (4 tau) = pi^2 / a:

a. Frequencies f + l M, l not 0, fold into f: sum of exp(-tau ((f + l M)^2 - f^2)) <= 2.1 exp(-a (1 - 2 m / M)).
b. The window is cut off at W grid points: 2 exp(-g W^2) / (1 - exp(-2 g W)), times the factor c of step 2's division,
   c = sqrt(pi / a) exp(a (m / M)^2).
c. Round-off, in units of 2^-53.  A spread weight is a product of 2 W + 8 rounded numbers.  The sums at each grid point
   are compensated.  Each entry of the transform is a sum over the grid whose terms pass log2(M) stages.  The spread
   window adds up to S = sqrt(pi / g) + 1 at most.
d. Low frequencies have fewer far losses: they are computed again, in levels, as the first frequencies of a smaller
   problem.  So the error falls with omega, as that of a direct sum does.
e. The place of d_j on the circle is rounded, which turns exp(i omega d_j) by at most three units of omega |d_j|.

References
----------
Greengard and Lee, "Accelerating the nonuniform fast Fourier transform", SIAM Review 46 (2004).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .. import fft

__all__ = ["are_many", "excess_at", "log_of_excess", "products"]

_UNIT = 2.0**-53
_TERMS = 24
_FACTORIALS = np.cumprod(np.arange(1.0, _TERMS + 1.0))
_NEAR = 2.0  # largest omega |d| of the Taylor series
_OVERSAMPLED = 6  # grid points a frequency, at least
_LEAST_GRID = 32  # points, as many as the widest window has: `kernels.nonuniform.spread` needs them
_LOG_ERROR = 39.0  # of folding and cutting off: e^-39 is 1e-17
_LEVEL, _FEW = 8, 64  # each level serves the frequencies from an eighth on, the last one all
_DIRECT = 4e5  # products of nodes and frequencies
_FAST = 150.0, 60.0  # cost of a node and of a frequency, in such products
_STAGE = 7.0  # units that one stage of a transform loses, see `fft.roundoff`

_SLOPE = 150.0
"""Round-off of the sum, in units of 2^-53 of omega E|d|.

A moment of order k is rounded 3 k + 4 times, its sum is compensated, and the series at z = omega D adds 2 k + 4.  With
|z d / D| <= 2, sum over k of (5 k + 8) |omega d|^k / k! is at most (5 e^2 + 8 (e^2 - 1) / 2) |omega d|, below 63.  The
remainder of the series is below 1e-18 omega |d|.  Step e. adds 3.  The rest is room.
"""


def are_many(nodes: NDArray | int, m: int) -> NDArray:
    """Whether fast sums take less time than adding up m frequencies node by node."""
    return np.asarray(nodes) * float(m) > _DIRECT


def products(nodes: NDArray | int, m: int) -> NDArray:
    """The cost of the sums, in products of nodes and frequencies."""
    direct, fast = np.asarray(nodes) * float(m), _FAST[0] * np.asarray(nodes) + _FAST[1] * m
    return np.where(are_many(nodes, m), np.minimum(direct, fast), direct)


def excess_at(p: NDArray, d: NDArray, spacing: float, m: int) -> tuple[NDArray, float, float]:
    """phi - 1, the sum of p_j (exp(i omega d_j) - 1), at omega = spacing, ..., m spacing, and its error.

    Parameters
    ----------
    p, d : ndarray, shape (nodes,)
        Weights, at least 0, and losses.

    Returns
    -------
    excess : ndarray of complex, shape (m,)
    error, slope : float
        The error is at most error + slope omega, beside that of the weights.
    """
    excess = np.empty(m, dtype=complex)
    own, of_far = _SLOPE * _UNIT * float(p @ np.abs(d)), 0.0
    while True:
        error = _fill(p, d, spacing, excess[:m])
        if m <= _FEW or not error.any():
            return excess, float(error.max(initial=0.0)), own + of_far
        below = m // _LEVEL
        of_far = max(of_far, float((error[below:] / (spacing * np.arange(below + 1, m + 1))).max()))
        m = below


def _fill(p: NDArray, d: NDArray, spacing: float, excess: NDArray) -> NDArray:
    """Fill phi - 1 at the first frequencies; return the error of the far losses at each of them."""
    from ..kernels import nonuniform

    m = excess.size
    reach = _NEAR / (m * spacing)
    moments, (re, im) = np.empty(_TERMS), np.empty((2, m))
    far = nonuniform.near_moments(p, d, reach, moments)
    nonuniform.taylor(moments / _FACTORIALS, _NEAR / m, re, im)
    excess.real, excess.imag = re, im
    if far == 0.0:
        return np.zeros(m)
    size = max(1 << math.ceil(math.log2(_OVERSAMPLED * m)), _LEAST_GRID)
    share = m / size
    a = _LOG_ERROR / (1.0 - 2.0 * share)
    decay = math.pi**2 / a
    half = math.ceil(math.sqrt((_LOG_ERROR + a * share * share) / decay))
    grid = np.empty(size)
    nonuniform.spread(p, d, reach, spacing * size / (2.0 * math.pi), decay, half, grid)
    factor = math.sqrt(math.pi / a) * np.exp(a * (np.arange(1, m + 1) / size) ** 2)
    excess += factor * np.conj(fft.rfft(grid)[1 : m + 1]) - far
    folded = 2.1 * math.exp(-a * (1.0 - 2.0 * share))
    cut = 2.0 * math.exp(-decay * half**2) / (1.0 - math.exp(-2.0 * decay * half))
    window = math.sqrt(math.pi / decay) + 1.0
    units = window * (_STAGE * math.log2(size) + 4.0 * half + 32.0)
    return far * (folded + factor * (cut + _UNIT * units) + 8.0 * _UNIT)


def log_of_excess(excess: NDArray) -> tuple[NDArray, NDArray]:
    """Real and imaginary part of log (1 + excess), exact for a small excess and for one close to -1."""
    near = np.abs(excess) < 0.5
    small = np.where(near, excess, 0.0)
    with np.errstate(divide="ignore"):
        re = np.where(near, 0.5 * np.log1p(2.0 * small.real + np.abs(small) ** 2), np.log(np.abs(1.0 + excess)))
    return np.maximum(re, -700.0), np.arctan2(excess.imag, 1.0 + excess.real)
