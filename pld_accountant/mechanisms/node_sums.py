"""Sums of complex exponentials over the nodes of paths, their round-off, and how they move around one exponent.

With the weights w, losses l = log g and exponents A of `complex_moments`, two sums over nodes are wanted: that of
w (exp(A l) - 1 - A (g - 1)), whose terms are of second order in small losses, and that of w exp(A l).

**Small losses**, |A l| <= 1 for all exponents asked: the sum of w (exp(A l) - 1 - A l) is a Taylor series in A, whose
coefficients are moments, and that of w A (g - 1 - l) is linear in A.

**Large losses**: exp(i y) is (1 + i t) / (1 - i t) with t = tan(y / 2).  Where numpy has vector instructions for the
tangent, it takes a tenth of the time of a sine and a cosine.

Round-off, in units of 2^-53:

1. A loss is wrong by `of_loss`.  exp(A l) passes this on times |A exp(A l)|, and the series times 1.72 |A|^2 |l|,
   because |exp(u) - 1| <= (e - 1) |u| for |u| <= 1.  A weight is wrong by `of_weight` times itself.
2. A term w exp(A l) costs 24 units of itself: four of the exponential, four of the tangent, whose error turns the term
   by no more, and a dozen operations.  numpy's vector functions err by at most four (its pull request 19478).
3. numpy adds up a row in pairs of blocks, a block of 128 numbers as 8 sums: 28 + log2(n) units of the sum of moduli.
4. Moment k costs 4 k units, and Horner's rule 4 k + 4.  For x <= 1 the sum over k >= 2 of x^k / k! is at most 0.72 x^2,
   and that of k x^k / k! at most 1.72 x^2.  The remainder of the series is below a tenth of a unit of x^2.

**Around an exponent.**  M is a constant plus the sum of w exp(A l), and the constant is a node of loss 0.  Let M(A) and
m be the computed sum and its computed logarithmic derivative, and p = w exp(A l) / M(A).  Then the sum of p is 1 + s
and that of p (l - m) is t, both s and t only round-off, and

    M(A + d) = M(A) exp(d m) (1 + s + d t + sum of p (exp(d (l - m)) - 1 - d (l - m))).

a. |exp(u) - 1 - u| <= |u|^2 / 2 max(1, exp(Re u)).  Re d (l - m) is linear in d, so its maximum is at a corner.
b. The sum of |p| exp(Re d (l - m)) is convex in d, so its maximum is at a corner, too, and bounds the same factor.
c. A term is wrong by n + 24 + 4 |A l| units of itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Around", "NodeSums", "PathNodes"]

_UNIT = 2.0**-53
_TERM = 24.0  # step 2
_ADDED = 28.0  # step 3
_ROWS = 16  # exponents at a time
_LAST = 18  # power of the series
_SERIES = 8.0 * 1.72 + 4.0 * 0.72 + 0.1  # step 4


class PathNodes(NamedTuple):
    """The nodes of a path, and their round-off in units of 2^-53.

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
    """M and M_mid at all exponents A + d, d in a polygon around 0.

    Attributes
    ----------
    log_size : float
        log |M(A)|; inf if M(A) is 0.
    mean : complex
        m, about the logarithmic derivative of M at A.
    bound, bound_mid : float
        Bounds of |M(A + d) / (M(A) exp(d m))| and of |M_mid(A + d) / (M(A) exp(d m))|.
    """

    log_size: float
    mean: complex
    bound: float
    bound_mid: float


class NodeSums:
    """Sums over one path, or over three: one for M over the last two, and one for M_mid over the first two.

    Parameters
    ----------
    paths : sequence of PathNodes
    mass : float
        M is about this, plus the sum of w (exp(A l) - 1).

    Attributes
    ----------
    loss, weight : ndarray of complex, shape (nodes,)
        Of all paths; the last path begins with its largest losses.
    first, last : int
        M is a sum over the nodes from `first` on.  M_mid is a sum over the nodes before `last`; with one path there
        are none.
    """

    def __init__(self, paths: Sequence[PathNodes], mass: float = 1.0) -> None:
        *others, tail = paths
        order = np.argsort(-np.abs(tail.loss), kind="stable")
        tail = PathNodes(*(values[order] for values in tail))
        nodes = PathNodes(*map(np.concatenate, zip(*others, tail, strict=True)))
        self.loss, self.weight = nodes.loss, nodes.weight
        self.first, self.last = (others[0].loss.size if others else 0), nodes.loss.size - tail.loss.size
        self._plane, self._weights = (np.stack([z.real, z.imag]) for z in (nodes.loss, nodes.weight))
        self._rise, self._bent = nodes.weight * nodes.rise, nodes.weight * nodes.bent
        self._falling = size = np.abs(tail.loss)  # in descending order
        powers = np.empty((_LAST - 1, size.size), dtype=complex)
        power = tail.loss
        for k, row in enumerate(powers, 2):
            power = np.multiply(power, tail.loss / k, out=row)
        self._moments = powers * tail.weight
        share, added = np.abs(nodes.weight), nodes.of_weight + _ADDED + math.log2(nodes.loss.size)
        # errors of large losses, over |exp(A l)| and over that times |A|
        self._of_power = np.stack([share * (added + _TERM), share * nodes.of_loss], axis=1)
        # over 1 and |A|
        of_rise = share * ((added + 4.0) * np.abs(nodes.rise) + nodes.of_rise)
        self._of_large = np.stack([share * added, of_rise], axis=1)
        # errors of small losses, over |A| and |A|^2
        of_bent = share * ((added + 4.0) * np.abs(nodes.bent) + nodes.of_bent)
        of_series = share[self.last :] * size * ((0.72 * added[self.last :] + _SERIES) * size + 1.72 * tail.of_loss)
        self._of_small = np.stack([of_bent[self.last :], of_series], axis=1)
        # for `around`, with the constant as the last node
        weight = np.append(nodes.weight, mass - nodes.weight[self.first :].sum())
        self._loss = np.append(nodes.loss, 0.0)
        with np.errstate(divide="ignore"):
            self._log_weight = np.log(np.abs(weight))
        self._turn = weight / np.maximum(np.abs(weight), np.finfo(float).tiny)

    def at(self, a: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """The sum for M and its round-off, and the sum for M_mid and its round-off, at each exponent.

        The round-off of sums beyond the range of doubles is not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            size = np.abs(a)
            large = int(np.count_nonzero(self._falling * size.max() > 1.0))
            end = self.last + large
            whole, mid = np.empty((2, a.size), dtype=complex)
            errors, errors_mid = np.empty((2, a.size, 2))
            for begin in range(0, a.size, _ROWS):
                rows = slice(begin, begin + _ROWS)
                modulus, real, imag = self._terms(a[rows], end)
                whole[rows] = real[:, self.first :].sum(axis=1) + 1j * imag[:, self.first :].sum(axis=1)
                mid[rows] = real[:, : self.last].sum(axis=1) + 1j * imag[:, : self.last].sum(axis=1)
                errors[rows] = modulus[:, self.first :] @ self._of_power[self.first : end]
                errors_mid[rows] = modulus[:, : self.last] @ self._of_power[: self.last]
            series = np.zeros(a.size, dtype=complex)
            for moment in self._moments[::-1, large:].sum(axis=1):
                series = series * a + moment
            linear = self._rise[self.first : end].sum() + self._bent[end:].sum()
            whole += series * a * a - a * linear - self.weight[self.first : end].sum()
            of_one, of_rise = self._of_large[self.first : end].sum(axis=0)
            of_bent, of_series = self._of_small[large:].sum(axis=0)
            (own, passed), (own_mid, passed_mid) = errors.T, errors_mid.T
            error = own + of_one + size * (passed + of_rise + of_bent) + size * size * of_series
            return whole, _UNIT * error, mid, _UNIT * (own_mid + size * passed_mid)

    def _terms(self, a: NDArray, end: int) -> tuple[NDArray, NDArray, NDArray]:
        """|exp(A l)| and the terms w exp(A l) of the nodes before `end`: (exponents, nodes).

        The arrays are used again: new ones, and more rows than the cache holds, take twice the time.
        """
        modulus = np.stack([a.real, -a.imag], axis=1) @ self._plane[:, :end]
        np.exp(modulus, out=modulus)
        tangent = np.stack([a.imag, a.real], axis=1) @ (0.5 * self._plane[:, :end])
        np.tan(tangent, out=tangent)
        square = tangent * tangent
        scale = 1.0 + square
        np.divide(modulus, scale, out=scale)
        cosine = np.subtract(1.0, square, out=square)
        cosine *= scale  # and the sine: times the modulus
        sine = np.multiply(tangent, 2.0, out=tangent)
        sine *= scale
        u, v = self._weights[:, :end]
        real = cosine * u
        real -= np.multiply(sine, v, out=scale)
        imag = np.multiply(cosine, v, out=cosine)
        imag += np.multiply(sine, u, out=sine)
        return modulus, real, imag

    def modulus_mid(self, a: complex) -> float:
        """The sum of the moduli of the terms of M_mid."""
        with np.errstate(over="ignore"):
            return float(np.exp((a * self._loss[: self.last]).real + self._log_weight[: self.last]).sum())

    def around(self, a: complex, corners: NDArray) -> Around:
        """Bounds for all d in the polygon with these corners around 0."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            loss, exponent, inside = self._loss, a * self._loss, slice(self.first, None)
            log_size, tangent = exponent.real + self._log_weight, 1j * np.tan(0.5 * exponent.imag)
            top = float(log_size[inside].max())
            term = (np.exp(log_size - top) * self._turn * (1.0 + tangent) / (1.0 - tangent))[inside]
            total = complex(term.sum())
            if not abs(total) > 0.0:
                return Around(math.inf, 0j, math.inf, math.inf)
            mean, log_total = complex((term * loss[inside]).sum()) / total, top + math.log(abs(total))
            apart, log_share = loss - mean, log_size - log_total
            share = np.exp(log_share)
            moved = np.exp(
                log_share + np.multiply.outer(corners.real, apart.real) - np.multiply.outer(corners.imag, apart.imag)
            )
            off = _UNIT * share * (loss.size + 24.0 + 4.0 * np.abs(exponent))
            reach = float(np.abs(corners).max())
            second = (apart.real**2 + apart.imag**2) * np.maximum(share, moved.max(axis=0))
            bent = off * (1.0 + reach * (np.abs(loss) + abs(mean))) + 0.5 * reach * reach * second
            bound = min(1.0 + float(bent[inside].sum()), float(moved[:, inside].sum(axis=1).max()))
            return Around(log_total, mean, bound, float(moved[:, : self.last].sum(axis=1).max()))
