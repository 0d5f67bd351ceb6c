"""Sums of complex exponentials over the nodes of paths, their round-off, and how they move around one exponent.

With the weights w, losses l = log g and exponents A of `complex_moments`, two sums over nodes are wanted: that of
w (exp(A l) - 1 - A (g - 1)), whose terms are of second order in small losses, and that of w exp(A l).

**Small losses**, |A l| <= 1 for all exponents asked: the sum of w (exp(A l) - 1 - A l) is a Taylor series in A, whose
coefficients are moments, and that of w A (g - 1 - l) is linear in A.

**Large losses**: `kernels.contour` adds up the terms.  A block of descending losses is large if its first one is.

Round-off, in units of 2^-53:

1. A loss is wrong by `of_loss`.  exp(A l) passes this on times |A exp(A l)|, and the series times 1.72 |A|^2 |l|,
   because |exp(u) - 1| <= (e - 1) |u| for |u| <= 1.  A weight is wrong by `of_weight` times itself.
2. A term w exp(A l) costs 24 units of itself: four of the exponential, four of the cosine and the sine, and a dozen
   operations.  A power below exp(-708) counts as 0; what that leaves out is far below the round-off of delta.
3. A sum over n nodes is one of sums over 32 of them, and of up to four such sums: 36 + n / 32 units of that of moduli.
4. Moment k costs 4 k units, and Horner's rule 4 k + 4.  For x <= 1 the sum over k >= 2 of x^k / k! is at most 0.72 x^2,
   and that of k x^k / k! at most 1.72 x^2.  The remainder of the series is below a tenth of a unit of x^2.

**Around an exponent.**  M_low = M - M_mid is a constant plus the sum of w exp(A l) over the nodes from `last` on, less
that over the nodes before `first`.  The constant is a node of loss 0.  Let M_low(A) and m be the computed sum and its
computed logarithmic derivative, and p = w exp(A l) / M_low(A), with the sign.  Then the sum of p is 1 + s and that of
p (l - m) is t, both s and t only round-off, and

    M_low(A + d) = M_low(A) exp(d m) (1 + s + d t + sum of p (exp(d (l - m)) - 1 - d (l - m))).

a. |exp(u) - 1 - u| <= |u|^2 / 2 max(1, exp(Re u)).  Re d (l - m) is linear in d, so its maximum is at a corner.
b. The sum of |p| exp(Re d (l - m)) is convex in d, so its maximum is at a corner, too, and bounds the same factor.
c. A term is wrong by n + 24 + 4 |A l| units of itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Around", "NodeSums", "PathNodes"]

_UNIT = 2.0**-53
_TERM = 24.0  # step 2
_ADDED = 36.0  # step 3
_BLOCK = 32
_LAST = 18  # power of the series
_SERIES = 8.0 * 1.72 + 4.0 * 0.72 + 0.1  # step 4


class PathNodes(NamedTuple):
    """The nodes of paths, and their round-off in units of 2^-53.

    Attributes
    ----------
    loss, rise, bent : ndarray of complex, shape (nodes,)
        log g, g - 1, and g - 1 - log g.
    weight : ndarray of complex, shape (nodes,)
        Density times the weight of the rule.
    of_loss, of_rise, of_bent, of_weight : ndarray, shape (nodes,)
        Round-off; that of `weight` is relative to it.
    """

    loss: NDArray
    rise: NDArray
    bent: NDArray
    weight: NDArray
    of_loss: NDArray
    of_rise: NDArray
    of_bent: NDArray
    of_weight: NDArray


class Around(NamedTuple):
    """M_low = M - M_mid, and M_mid, at all exponents A + d, d in a polygon around 0.

    Attributes
    ----------
    log_size : float
        log |M_low(A)|; inf if M_low(A) is 0.
    mean : complex
        m, about the logarithmic derivative of M_low at A.
    bound, bound_mid : float
        Bounds of |M_low(A + d) / (M_low(A) exp(d m))| and of |M_mid(A + d) / (M_low(A) exp(d m))|.
    """

    log_size: float
    mean: complex
    bound: float
    bound_mid: float


class NodeSums:
    """Sums for M, over the nodes from `first` on, and for M_mid, over the nodes before `last`.

    Parameters
    ----------
    nodes : PathNodes
        Of all paths.
    first, last : int
    mass : float
        M is about this, plus the sum of w (exp(A l) - 1).

    Attributes
    ----------
    loss : ndarray of complex, shape (nodes,)
        Losses before `last` as they were given, then the others, the largest ones first.
    """

    def __init__(self, nodes: PathNodes, first: int = 0, last: int = 0, mass: float = 1.0) -> None:
        self.first, self.last = first, last
        order = np.arange(nodes.loss.size)
        order[last:] = last + np.argsort(-np.abs(nodes.loss[last:]), kind="stable")
        nodes = PathNodes(*(values[order] for values in nodes))
        tail = PathNodes(*(values[last:] for values in nodes))
        self.loss = nodes.loss
        self._falling = size = np.abs(tail.loss)  # in descending order
        powers = np.empty((_LAST - 1, size.size), dtype=complex)
        power = tail.loss
        for k, row in enumerate(powers, 2):
            power = np.multiply(power, tail.loss / k, out=row)
        share, added = np.abs(nodes.weight), nodes.of_weight + _ADDED + nodes.loss.size / _BLOCK
        # the last two are errors of large losses, over |exp(A l)| and over that times |A|
        of_power = share * (added + _TERM), share * nodes.of_loss
        self._nodes = np.stack([*_parts(nodes.loss), *_parts(nodes.weight), *of_power])
        of_rise = share * ((added + 4.0) * np.abs(nodes.rise) + nodes.of_rise)
        large = np.stack([nodes.weight * nodes.rise, nodes.weight, share * added, of_rise])
        of_bent = share * ((added + 4.0) * np.abs(nodes.bent) + nodes.of_bent)
        of_series = share[self.last :] * size * ((0.72 * added[self.last :] + _SERIES) * size + 1.72 * tail.of_loss)
        small = np.stack([*(powers * tail.weight), tail.weight * tail.bent, of_bent[self.last :], of_series])
        # for each number of blocks with large losses: sums over these, and over the blocks of small losses
        large, middle = _of_blocks(large[:, self.last :]), large[:, self.first : self.last].sum(axis=1, keepdims=True)
        small = _of_blocks(small)[:, ::-1].cumsum(axis=1)[:, ::-1]
        none = np.zeros((small.shape[0], 1))
        (rise, one, of_one, of_rise), small = np.hstack([middle, large]).cumsum(axis=1), np.hstack([small, none])
        *series, bent, of_bent, of_series = small
        self._small = np.stack([*series, rise + bent, one], axis=1)
        self._units = np.stack([of_one, of_rise + of_bent, of_series], axis=1).real.copy()
        # for `around`: those of M_mid come first, those of M_low last, with the constant as the last one
        both = np.r_[first:last, :first, last : nodes.loss.size]
        weight = np.append(nodes.weight, mass - nodes.weight[first:].sum())
        weight[:first] *= -1.0
        weight, loss = weight[np.append(both, -1)], np.append(nodes.loss[both], 0.0)
        size = np.abs(weight)
        with np.errstate(divide="ignore"):
            log_weight = np.log(size)
        turn = weight / np.maximum(size, np.finfo(float).tiny)
        self._around = np.stack([*_parts(loss), log_weight, *_parts(turn)])

    def at(self, a: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """The sum for M and its round-off, and the sum for M_mid and its round-off, at each exponent.

        The round-off of sums beyond the range of doubles is not finite.
        """
        from ..kernels import contour

        blocks = -(-int(np.count_nonzero(self._falling * float(np.abs(a).max()) > 1.0)) // _BLOCK)
        end = min(self.last + blocks * _BLOCK, self.loss.size)
        found = np.empty((6, a.size))
        parts, ends = (a.real.copy(), a.imag.copy()), (self.first, self.last, end)
        contour.moments(*parts, self._nodes, *ends, self._small[blocks], self._units[blocks], found)
        return found[0] + 1j * found[1], found[2], found[3] + 1j * found[4], found[5]

    def modulus_mid(self, a: complex) -> float:
        """The sum of the moduli of the terms of M_mid."""
        loss, turn, log_weight = self._around[:3, : self.last]
        with np.errstate(over="ignore"):
            return float(np.exp(a.real * loss - a.imag * turn + log_weight).sum())

    def around(self, a: complex, corners: NDArray) -> Around:
        """Bounds for all d in the polygon with these corners around 0."""
        from ..kernels import contour

        found = np.empty(5)
        first = self.last - self.first
        contour.around(a.real, a.imag, _parts(corners), self._around, first, self.last, found)
        log_size, real, imaginary, bound, bound_mid = found.tolist()
        return Around(log_size, complex(real, imaginary), bound, bound_mid)


def _of_blocks(values: NDArray) -> NDArray:
    """Sums of rows over blocks of nodes, (rows, blocks)."""
    return np.add.reduceat(values, np.arange(0, values.shape[1], _BLOCK), axis=1)


def _parts(z: NDArray) -> NDArray:
    """Real and imaginary parts, (2, ...)."""
    return np.stack([z.real, z.imag])
