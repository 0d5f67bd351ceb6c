"""Characteristic functions of weighted losses: sums of exponentials at equally spaced frequencies.

The losses d_j have the weights p_j, which add up to at most 1.  The sum of p_j (exp(i omega d_j) - 1) is wanted at
omega = spacing, 2 spacing, ..., m spacing.  Its errors are relative to omega |d|, so that they shrink with the losses.

**Few products of nodes and frequencies** are one matrix product: with f = B a + b, exp(i f y) - 1 is the product of
exp(i B a y) and exp(i b y) - 1, plus exp(i B a y) - 1.

a. The powers of exp(i y) - 1 come by doubling from the first one.  With e and e' those of j y and k y, that of
   (j + k) y is e (1 + e') + e'.  As |1 + e| = 1, the errors of both are added; rounding adds five units of 2^-53 of
   (j + k) |y|.  The first one has twelve.
b. A complex sum of n products loses at most 2 sqrt(2) n units of the sum of their moduli.

**Many products** are a Fourier transform:

1. Near losses, |d| <= D = 2 / (m spacing), have a Taylor series in omega, of 24 terms: its coefficients are moments.
2. The far weights are spread over a grid of M points on the circle by a Gaussian window, transformed, and divided by
   the window's own transform (Greengard and Lee 2004).  In the units of the circle, x_j = spacing d_j, the window is
   exp(-x^2 / (4 tau)) with tau = a / M^2, its transform is proportional to exp(-tau f^2), f = 1..m.

Error of step 2, relative to the far mass; h = 2 pi / M, g = h^2 / (4 tau) = pi^2 / a:

c. Frequencies f + l M, l not 0, fold into f: sum of exp(-tau ((f + l M)^2 - f^2)) <= 2.1 exp(-a (1 - 2 m / M)).
d. The window is cut off at W grid points: 2 exp(-g W^2) / (1 - exp(-2 g W)), times the factor c of step 2's division,
   c = sqrt(pi / a) exp(a (m / M)^2).
e. Round-off, in units of 2^-53.  A spread weight is a product of 2 W + 8 rounded numbers.  The sums at each grid point
   are compensated.  Each entry of the transform is a sum over the grid whose terms pass log2(M) stages.  The spread
   window adds up to S = sqrt(pi / g) + 1 at most.
f. Low frequencies have fewer far losses: they are computed again, in levels, as the first frequencies of a smaller
   problem.  So the error falls with omega, as that of a direct sum does.
g. The place of d_j on the circle is rounded, which turns exp(i omega d_j) by at most three units of omega |d_j|.

References
----------
Greengard and Lee, "Accelerating the nonuniform fast Fourier transform", SIAM Review 46 (2004).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .. import deadline

__all__ = ["excess_at", "excess_of_row", "log_of_excess", "products", "products_of_transform"]

_UNIT = 2.0**-53
_TERMS = 24
_FACTORIALS = np.cumprod(np.arange(1.0, _TERMS + 1.0))
_NEAR = 2.0  # largest omega |d| of the Taylor series
_OVERSAMPLED = 6  # grid points a frequency, at least
_LEAST_GRID = 32  # points, as many as the widest window has: `kernels.nonuniform.spread` needs them
_LOG_ERROR = 39.0  # of folding and cutting off: e^-39 is 1e-17
_LEVEL, _FEW = 8, 64  # each level serves the frequencies from an eighth on, the last one all
_DIRECT = 1e5  # products of nodes and frequencies for which a matrix product is as fast as a transform
_CHUNK = 256  # nodes that a matrix product adds up
_FAST = 150.0, 60.0  # cost of a node and of a frequency, in such products
_STAGE = 7.0  # units that one stage of a transform loses, see `fft.roundoff`

_SLOPE = 150.0
"""Round-off of the sum, in units of 2^-53 of omega E|d|.

A moment of order k is rounded 4 k + 4 times, its sum is compensated, and the series at z = omega D adds 4 k + 4.  With
|z d / D| <= 2, sum over k of (8 k + 8) |omega d|^k / k! is at most (8 e^2 + 8 (e^2 - 1) / 2) |omega d|, below 85.  The
remainder of the series is below 2e-18 omega |d|, 18 units.  Step g. adds 3.  The rest is room.
"""


def products(nodes: NDArray | int, m: int) -> NDArray:
    """The cost of the sums, in products of nodes and frequencies."""
    return np.minimum(np.asarray(nodes) * float(m), products_of_transform(nodes, m))


def products_of_transform(nodes: NDArray | int, m: int) -> NDArray:
    """The cost of the sums by a transform, in the same unit."""
    return _FAST[0] * np.asarray(nodes) + _FAST[1] * m


def excess_of_row(p: NDArray, d: NDArray, spacing: float, m: int) -> tuple[NDArray, float, float]:
    """`excess_at` of one row, whose arrays have no first axis; few products are matrix products."""
    nodes = p.size
    if nodes * m > max(_DIRECT, float(products_of_transform(nodes, m))):
        (excess,), (error,), (slope,) = excess_at(p[None], d[None], spacing, m)
        return excess, float(error), float(slope)
    units = 3.0 * _CHUNK + nodes / _CHUNK + 5.0 * math.log2(m + 1.0) + 40.0
    return _product(p, d, spacing, m), 0.0, units * _UNIT * float(p @ np.abs(d))


def excess_at(p: NDArray, d: NDArray, spacing: float, m: int) -> tuple[NDArray, NDArray, NDArray]:
    """phi - 1, the sum of p_j (exp(i omega d_j) - 1), at omega = spacing, ..., m spacing, and its error.

    A row's numbers do not depend on the rows beside it, nor on nodes of weight 0 at its end.

    Parameters
    ----------
    p, d : ndarray, shape (rows, nodes)
        Weights, at least 0, and losses.

    Returns
    -------
    excess : ndarray of complex, shape (rows, m)
    error, slope : ndarray, shape (rows,)
        The error is at most error + slope omega, beside that of the weights.
    """
    rows = np.arange(len(p))
    excess, error, of_far = np.empty((len(p), m), dtype=complex), *np.zeros((2, len(p)))
    own = _SLOPE * _UNIT * (p * np.abs(d)).cumsum(axis=1)[:, -1]
    while rows.size:
        excess[rows, :m], far, of_unit = _sums(p[rows], d[rows], spacing, m)
        error[rows] = far * of_unit.max()
        below = m // _LEVEL
        if m <= _FEW:
            break
        of_level = float((of_unit[below:] / (spacing * np.arange(below + 1, m + 1))).max())
        of_far[rows] = np.maximum(of_far[rows], far * of_level)
        rows, m = rows[far > 0.0], below
    return excess, error, own + of_far


def _product(p: NDArray, d: NDArray, spacing: float, m: int) -> NDArray:
    """phi - 1 of one row by matrix products."""
    block = 1 << math.ceil(0.5 * math.log2(m + 1.0))
    found = np.zeros((m // block + 1, block), dtype=complex)
    for begin in range(0, d.size, _CHUNK):
        deadline.check()
        share, angle = p[begin : begin + _CHUNK], spacing * d[begin : begin + _CHUNK]
        half = np.sin(0.5 * angle)
        within, following = _powers(-2.0 * half * half + 1j * np.sin(angle), block)
        beyond, _ = _powers(following, len(found))
        found += (share * (1.0 + beyond)) @ within.T + (beyond @ share)[:, None]
    return found.ravel()[1 : m + 1]


def _powers(first: NDArray, number: int) -> tuple[NDArray, NDArray]:
    """From exp(i y) - 1: exp(i j y) - 1 at j = 0, ..., number - 1, and at the least power of two from `number` on."""
    found = np.zeros((number, first.size), dtype=complex)
    size, last = 1, first
    while size < number:
        following = found[size : 2 * size]
        np.multiply(found[: len(following)], 1.0 + last, out=following)
        following += last
        size, last = 2 * size, last * (2.0 + last)
    return found, last


def _sums(p: NDArray, d: NDArray, spacing: float, m: int) -> tuple[NDArray, NDArray, NDArray]:
    """phi - 1 at the first m frequencies by one transform, the mass of the far losses, and the error of a mass of 1."""
    from ..kernels import nonuniform

    rows = len(p)
    reach = _NEAR / (m * spacing)
    moments, far, (re, im) = np.empty((rows, _TERMS)), np.empty(rows), np.empty((2, rows, m))
    nonuniform.near_moments(p, d, reach, moments, far)
    nonuniform.taylor(moments / _FACTORIALS, _NEAR / m, re, im)
    excess = re + 1j * im
    size = max(1 << math.ceil(math.log2(_OVERSAMPLED * m)), _LEAST_GRID)
    share = m / size
    a = _LOG_ERROR / (1.0 - 2.0 * share)
    decay = math.pi**2 / a
    half = math.ceil(math.sqrt((_LOG_ERROR + a * share * share) / decay))
    factor = math.sqrt(math.pi / a) * np.exp(a * (np.arange(1, m + 1) / size) ** 2)
    some = np.flatnonzero(far)
    if some.size:
        grid = np.empty((some.size, size))
        nonuniform.spread(p[some], d[some], reach, spacing * size / (2.0 * math.pi), decay, half, grid)
        # numpy's transform: short ones gain nothing from pyFFTW, whose import takes a tenth of a second
        excess[some] += factor * np.conj(np.fft.rfft(grid, axis=1)[:, 1 : m + 1]) - far[some, None]
    folded = 2.1 * math.exp(-a * (1.0 - 2.0 * share))
    cut = 2.0 * math.exp(-decay * half**2) / (1.0 - math.exp(-2.0 * decay * half))
    window = math.sqrt(math.pi / decay) + 1.0
    units = window * (_STAGE * math.log2(size) + 4.0 * half + 32.0)
    return excess, far, folded + factor * (cut + _UNIT * units) + 8.0 * _UNIT


def log_of_excess(excess: NDArray) -> tuple[NDArray, NDArray]:
    """Real and imaginary part of log (1 + excess), exact for a small excess and for one close to -1."""
    near = np.abs(excess) < 0.5
    small = np.where(near, excess, 0.0)
    with np.errstate(divide="ignore"):
        re = np.where(near, 0.5 * np.log1p(2.0 * small.real + np.abs(small) ** 2), np.log(np.abs(1.0 + excess)))
    return np.maximum(re, -700.0), np.arctan2(excess.imag, 1.0 + excess.real)
