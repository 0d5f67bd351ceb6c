"""Characteristic functions of the losses of Gaussian mixtures: a trapezoidal rule in the noise's own variable.

Notation: the noise is x ~ N(0, 1).  A and B are the mixtures' densities over that of x, A that of P; the centres of one
of them are all at least those of the other.  The loss L = log A - log B has the tilted density proportional to
f = A^(1 + theta) B^-theta times that of x, and phi(omega) = E[exp(i omega L)] under it.

1. The slope of log f lies between l - x and u - x, l = (1 + theta) min A - theta max B and
   u = (1 + theta) max A - theta min B, minima and maxima of the centres.  So f falls beyond u + r at least as fast as a
   normal density, and f(u + r) is at most exp((1 - r^2) / 2) times the mass of f in [u, u + 1]; likewise below l.
   With r = 9 the tails hold 1e-18 of the mass, as integrals or as sums.
2. On the line Im x = y the modulus of A is at most its value at Re x.  Each mixture is a product of m factors, m = 1
   but for binomial mixtures (`positive_mixture`), the centres of each at most s apart.  The modulus of B is at least
   cos(y s / 2)^m times its value at Re x.  The argument of A / B lies between 0 and y D, D the largest distance of two
   centres.  So f exp(i omega L) grows by at most exp(y^2 / 2 + omega |y| D) cos(y s / 2)^(-m theta).
3. The rule of step h errs by at most 2 M / (exp(2 pi d / h) - 1) if this growth times the mass is at most M for
   |y| < d (Trefethen and Weideman 2014, Theorem 5.1).  For B's own s and m, d s / 2 <= 1 / sqrt(m (1 + theta)): the
   cosine adds at most exp(0.62).  For A's, d s <= 2 < pi: A has no zero there.
4. Beyond the band: on that line |f exp(i omega L)| is |f| exp(-omega arg), arg that of A / B or of B / A, whichever
   is positive for this sign of y.  The integral of this falls with omega, so its value at one frequency bounds |phi|
   at all higher ones.  Here s is the largest distance of two centres of one mixture.  The arguments of A and of B
   grow with Re x while |y| s <= pi: the derivative of arg A is a sum of (c_j - c_k) sin(y (c_j - c_k)) with positive
   weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import deadline
from .base import Spectrum
from .exponential_sums import products
from .positive_mixture import BINOMIAL
from .weighted_nodes import UNIT, WeightedNodes

__all__ = ["TiltedMixture", "log_moments", "log_quotient", "log_quotient_and_slope", "log_ratio"]

_REACH = 9.0  # r of step 1
_TRUNCATED = 2e-17  # both tails, both as integrals and as sums, and the error of the rule, with room
_LOG_ERROR = 47.0  # of the rule, relative to its growth
_WIDEST = 6.0  # of the strip
_NEGLIGIBLE = 1e-24  # share of a node that is left out
_ELEMENTS = 1 << 18  # nodes times tilts of log-moments at a time
_TERM = 200.0  # cost of a Gaussian at a node, in products of nodes and frequencies
_CELLS = 700  # of the envelope
_OUTSIDE = 1e-17  # twice the tilted mass outside of the cells, at least
_SHIFTS = np.concatenate([np.geomspace(0.003, 0.3, 6), np.linspace(0.5, 3.0, 5)])  # y, over 1 / s or 1
_LIGHT = -50.0  # log mass of a cell that is moved to the mass outside
_NEAR = 0.01  # losses below this are differences of close logarithms
_ROUND = 1e-9  # absorbs the round-off of a cell's quantities


def log_ratio(x: NDArray, centres: NDArray, weights: NDArray) -> NDArray:
    """log of a mixture's density over that of N(0, 1); the weights add up to 1."""
    if centres.size == 1:
        return centres[0] * x - 0.5 * centres[0] ** 2
    t = _exponents(x, centres)
    top = t.max(axis=0)
    near = top < 30.0
    excess = np.full(top.size, -1.0)
    excess[near] = weights @ np.expm1(t[:, near])
    # an excess close to -1 has lost the digits of the density, which the sum of exponentials keeps
    far = excess <= -0.5
    log = np.log1p(np.where(far, 0.0, excess))
    with np.errstate(under="ignore"):
        log[far] = top[far] + np.log(weights @ np.exp(t[:, far] - top[far]))
    return log.reshape(x.shape)


def _slope(x: NDArray, log: NDArray, centres: NDArray, weights: NDArray) -> NDArray:
    """The derivative of `log_ratio`, which is the mean of the centres that are likely at x."""
    # the logs of the weights first: the quotient of a term by the whole overflows without a weight below 1e-308
    with np.errstate(under="ignore"):
        share = np.exp(_exponents(x, centres) + np.log(weights)[:, None] - log.reshape(-1))
    return (centres @ share).reshape(x.shape)


def _exponents(x: NDArray, centres: NDArray) -> NDArray:
    """Exponents of the terms, (centres, places): reductions over a short last axis take three times as long."""
    return np.multiply.outer(centres, x.reshape(-1)) - 0.5 * centres[:, None] ** 2


def log_quotient_and_slope(
    x: NDArray, own: tuple[NDArray, NDArray], other: tuple[NDArray, NDArray]
) -> tuple[NDArray, NDArray]:
    """`log_quotient` and its derivative."""
    first, second = log_ratio(x, *own), log_ratio(x, *other)
    return _quotient(x, first, second, own, other), _slope(x, first, *own) - _slope(x, second, *other)


def log_quotient(x: NDArray, own: tuple[NDArray, NDArray], other: tuple[NDArray, NDArray]) -> NDArray:
    """log of one mixture's density over the other's; terms that both share do not lose its digits.

    The difference of the densities over that of the other is summed for each centre, with the difference of weights.
    """
    return _quotient(x, log_ratio(x, *own), log_ratio(x, *other), own, other)


def _quotient(
    x: NDArray, first: NDArray, second: NDArray, own: tuple[NDArray, NDArray], other: tuple[NDArray, NDArray]
) -> NDArray:
    found = first - second
    near = np.abs(found) < _NEAR
    if np.any(near):
        centres, index = np.unique(np.concatenate([own[0], other[0]]), return_inverse=True)
        change = np.bincount(index.reshape(-1), np.concatenate([own[1], -other[1]]))
        centres, change = centres[change != 0.0, None], change[change != 0.0, None]
        # the changes add up to 0
        excess = np.expm1(np.minimum(centres * x[near] - 0.5 * centres**2 - second[near], 700.0))
        found[near] = np.log1p((change * excess).sum(axis=0))
    return found


class TiltedMixture(NamedTuple):
    """The tilted loss of one step: centres and weights of A and of B, theta, and how many factors A and B have."""

    own: tuple[NDArray, NDArray]
    other: tuple[NDArray, NDArray]
    theta: float
    factors: tuple[int, int] = (1, 1)

    @property
    def _outermost(self) -> tuple[float, float, float, float]:
        """The smallest and the largest centre of A, and of B."""
        # python is five times as fast as numpy for a few numbers
        a, b = self.own[0].tolist(), self.other[0].tolist()
        return min(a), max(a), min(b), max(b)

    @property
    def _spread(self) -> float:
        """s, the largest distance of two centres of one mixture."""
        least_a, most_a, least_b, most_b = self._outermost
        return max(most_a - least_a, most_b - least_b)

    @property
    def _distance(self) -> float:
        """D, the largest distance of two centres, one of each mixture."""
        least_a, most_a, least_b, most_b = self._outermost
        return max(most_a - least_b, most_b - least_a)

    @property
    def _ends(self) -> tuple[float, float]:
        """The ends for all tilts from 0 to theta."""
        least_a, most_a, least_b, most_b = self._outermost
        low = least_a + self.theta * min(least_a - most_b, 0.0) - _REACH
        return low, most_a + self.theta * max(most_a - least_b, 0.0) + _REACH

    def nodes(self, width: float) -> tuple[float, float, int]:
        """The first node, the step and the number of nodes for frequencies up to `width`."""
        (low, high), (least_a, most_a, least_b, most_b) = self._ends, self._outermost
        own, other = self.factors
        spread = max((most_a - least_a) / own, (most_b - least_b) * math.sqrt((1.0 + self.theta) / other))
        d = _WIDEST if spread * _WIDEST <= 2.0 else 2.0 / spread
        step = 2.0 * math.pi * d / (_LOG_ERROR + 0.5 * d * d + width * d * self._distance)
        # a step of almost 0 overflows to more nodes than any limit allows
        with np.errstate(over="ignore"):
            return low, step, math.ceil(min((high - low) / step, 2.0**60)) + 2

    def spectrum(self, spacing: float, m: int, columns: int, work: float) -> Spectrum | None:
        """See `WeightedNodes.spectrum`."""
        low, step, number = self.nodes(m * spacing)
        cost = products(number, m) + _TERM * number * (self.own[0].size + self.other[0].size)
        if float(cost) > work:
            return None
        return self._weigh(low, step, number).spectrum(spacing, m, columns, cost)

    def _weigh(self, low: float, step: float, number: int) -> WeightedNodes:
        """The rule's nodes with their shares of the tilted mass."""
        x, log_a, log_b, of_log = self._logs(low, step, number)
        exponent = (1.0 + self.theta) * log_a - self.theta * log_b - 0.5 * x * x
        top = float(exponent.max())
        weight = np.exp(exponent - top)
        total = float(weight.sum())
        kept = weight > _NEGLIGIBLE * total
        share, of_log = weight[kept] / total, of_log[kept]
        units = _units(self.theta, x[kept], of_log, top - exponent[kept])
        return WeightedNodes(
            share,
            (log_a - log_b)[kept],
            top + math.log(total * step / math.sqrt(2.0 * math.pi)),
            of_log,
            units,
            float(share @ units) + math.log2(number) + 16.0 + abs(top),
            _TRUNCATED + 2.0 * float(weight[~kept].sum()) / total,
        )

    def log_envelope(self, levels: NDArray, log_moment: float) -> NDArray:
        """log of bounds of |phi| at and beyond each frequency: step 4, the best of `_SHIFTS`.

        In a cell of width h the second derivative of log |f| is at most c = 1 + (1 + 2 theta) s^2 / (2 cos(y s / 2)^2).
        With the slope b in the middle, the mean of |f| is at most its value there times exp(b^2 h^2 / 24 + c h^2 / 8).
        The argument of A / B is at least that of A at the left end less that of B at the right end.
        """
        low, high = self._ends
        edges = np.linspace(low, high, _CELLS + 1)
        middle, h, spread, theta = 0.5 * (edges[:-1] + edges[1:]), (high - low) / _CELLS, self._spread, self.theta
        above, below = (self.own, self.other) if self.own[0].max() > self.other[0].min() else (self.other, self.own)
        log_scale = math.log(h) - log_moment - 0.5 * math.log(2.0 * math.pi) + _ROUND
        bound = np.zeros(levels.size)
        laws = [_Line.of(middle, *law) for law in (self.own, self.other)]
        ends = _Line.of(edges[:-1], *above), _Line.of(edges[1:], *below)
        for y in _SHIFTS / max(spread, 1.0 / 3.0):
            least = math.cos(0.5 * y * spread)
            log_outside = math.log(_OUTSIDE) + 0.5 * y * y - theta * math.log(least)
            if log_outside > 0.0:
                break  # |phi| <= 1 says more, for larger y too
            outside = math.exp(log_outside) + _CELLS * math.exp(_LIGHT)
            bent = 1.0 + (1.0 + 2.0 * theta) * 0.5 * (spread / least) ** 2
            (log_a, _, slope_a), (log_b, _, slope_b) = (law.at(y) for law in laws)
            slope = (1.0 + theta) * slope_a - theta * slope_b - middle
            log_mass = (1.0 + theta) * log_a - theta * log_b - 0.5 * middle**2 + slope**2 * h * h / 24.0
            log_mass += log_scale + bent * h * h / 8.0 + 0.5 * y * y
            held = log_mass > _LIGHT
            larger, smaller = (end.at(y)[1] for end in ends)
            argument = np.maximum(larger - smaller - 2.0**-45 * (larger + smaller), 0.0)[held]
            # the mass alone, or the fall alone, may leave the range of doubles
            with np.errstate(over="ignore", under="ignore"):
                mass = np.exp(log_mass[held] - np.multiply.outer(levels, argument))
            bound = np.minimum(bound, np.log(mass.sum(axis=1) + outside))
        return bound

    def _logs(self, low: float, step: float, number: int) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Nodes, log A and log B there, and their round-off in units of 2^-53.

        It is at most 4 T + 8, T the largest |c x| + c^2 / 2 of a centre c: the exponent is their difference.  The
        weights of m factors may be `BINOMIAL` m units away from binomial ones.
        """
        x = low + step * np.arange(number)
        most = max(map(abs, self._outermost))
        units = 4.0 * (most * np.abs(x) + 0.5 * most**2) + 8.0
        if max(self.factors) > 1:
            units += BINOMIAL * max(self.factors)
        return x, log_ratio(x, *self.own), log_ratio(x, *self.other), units


def _units(theta: float | NDArray, x: NDArray, of_log: NDArray, below: NDArray) -> NDArray:
    """Round-off of a node's share in units of 2^-53; `below` is how far the log of its mass lies below the largest."""
    return (1.0 + 2.0 * theta) * of_log + 2.0 * x * x + below + 16.0


def log_moments(law: TiltedMixture, theta: NDArray, most: int) -> NDArray:
    """K at each of these tilts, rounded up; inf where it takes more nodes than `most`.  The law's own tilt is not used.

    All tilts up to 1, and those of three octaves beyond, share the nodes of the largest of them; those of one octave
    where these are too many.  For the others these lie closer together, and further out, than the rule needs.
    """
    found = np.full(theta.shape, np.inf)
    octaves = np.ceil(np.log2(np.maximum(theta, 1.0)))
    for shared in (3.0, 1.0):
        levels = shared * np.ceil(octaves / shared)
        for level in np.unique(levels[np.isinf(found)]):
            low, step, number = law._replace(theta=float(2.0**level)).nodes(0.0)
            if number > most:
                break  # larger tilts take more
            x, log_a, log_b, of_log = law._logs(low, step, number)
            at = np.flatnonzero((levels == level) & np.isinf(found))
            for some in np.array_split(at, math.ceil(at.size * number / _ELEMENTS)):
                deadline.check()
                exponent = np.multiply.outer(theta[some], log_a - log_b) + (log_a - 0.5 * x * x)
                top = exponent.max(axis=1)
                below = top[:, None] - exponent
                weight = np.exp(-below)
                total = weight.sum(axis=1)
                # the mean of `_units`; not by a matrix product, whose rows depend on how many there are
                fixed, of_theta = (np.einsum("ij,j->i", weight, v) for v in (of_log + 2.0 * x * x + 16.0, 2.0 * of_log))
                units = (fixed + theta[some] * of_theta + (weight * below).sum(axis=1)) / total
                units += math.log2(number) + 16.0 + np.abs(top)
                k = top + np.log(total * step / math.sqrt(2.0 * math.pi))
                found[some] = k + _TRUNCATED + UNIT * (units + np.abs(k))
    return found


class _Line(NamedTuple):
    """A mixture at real places: the largest exponent at each place, and the exponentials relative to it."""

    centres: NDArray
    weights: NDArray
    top: NDArray
    terms: NDArray

    @classmethod
    def of(cls, x: NDArray, centres: NDArray, weights: NDArray) -> _Line:
        """The mixture at these places."""
        t = _exponents(x, centres)
        top = t.max(axis=0)
        with np.errstate(under="ignore"):
            return cls(centres, weights, top, np.exp(t - top))

    def at(self, y: float) -> tuple[NDArray, NDArray, NDArray]:
        """Its density over that of N(0, 1) at x + i y: log modulus, argument, and the slope of the log modulus."""
        least = self.centres.min()
        turned = self.weights * np.exp(1j * y * (self.centres - least))
        value, moment = np.stack([turned, self.centres * turned]) @ self.terms
        return self.top + np.log(np.abs(value)), y * least + np.angle(value), (moment / value).real
