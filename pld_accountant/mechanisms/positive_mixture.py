"""A mixture of Gaussians over one Gaussian, at complex places: its logarithm, and bounds of it on boxes.

Notation: h(x) = sum_j w_j exp(c_j x - c_j^2 / 2) is the density of sum_j w_j N(c_j, 1) over that of N(0, 1), with
c_j >= 0 and weights that add up to 1.

**Turn.**  h is a product of d factors that are mixtures as well, up to a constant.  The centres of each go from 0 or
above to t at most.  So all terms of a factor at x + i y have an argument between 0 and t y, and h has no zero while
t |y| < pi.  Every mixture is one factor, t the largest c_j.  A binomial mixture of centres 0, t, ..., d t has d factors
with two centres, 0 and t.  For in terms of exp(t x) the binomial (1 - q + q z)^d has only real zeros, and keeps real
zeros if its coefficients are multiplied by exp(-(j t)^2 / 2) (Laguerre; Polya and Schur 1914, "Ueber zwei Arten von
Faktorenfolgen"); the zeros are negative, because the coefficients are positive.

Bounds on a box [left, right] x [bottom, top]; each holds for every factor, and so for h:

1. |h|^2 = sum_jk (positive) cos((c_j - c_k) y) falls with |y|.  While t |y| <= pi / 2 it rises with x.  So |h| is at
   most its value at the right end, at the smallest |y| or at pi / (2 t), whichever is less.
2. |h| is smallest at the largest |y|.  If t |y| <= pi / 2, at the left end.  Beyond, turning a factor by pi / 2 - t y
   makes all real parts positive.  Let the factor's smallest centre be 0; another one is divided out first.  Then the
   real part of that term is at least sin(t y) times the term.  Turning the factor by -t y / 2 makes each real part at
   least cos(t y / 2) times the term's modulus.  And |h| is at least Re h: a term with a positive cosine is smallest at
   the left end, one with a negative cosine at the right end.
3. If y > 0, arg h rises with x: its derivative is that of -log |h| by y.  While t y <= pi / 2 it rises with y, too,
   because log |h| rises with x.  From b to y, Im h falls to r = sin(t y) / sin(t b) times its value at least, because
   sin(c_j y) / sin(c_j b) falls with c_j, and Re h falls.  So arg h falls to r times its value at least.
4. If y < 0, -arg h is at most that at the right end and the bottom, or c |y|, c the largest c_j.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BINOMIAL",
    "WIDEST",
    "MixtureBoxes",
    "PositiveMixture",
    "complex_expm1",
    "complex_expm1_less",
    "complex_log1p",
]

_UNIT = 2.0**-53
_FAR = 36.0  # exponents beyond are taken out of the sum
_NEAR_ZERO = 0.25  # a sum below it is made of its terms, not of 1 plus an excess
_SERIES, _TERMS = 0.06, 10  # exponents up to which a power series serves, and its last power
_SLACK = 1e-12  # relative, for round-off
_TURNED = 3.0  # argument between two places that are compared, at most; below pi

BINOMIAL = 16.0
"""Units of 2^-53 by which ratios of neighbouring weights may differ from those of binomial weights."""

WIDEST = 3.0
"""Angle t |y| of a box, at most; below pi."""


def complex_log1p(y: NDArray) -> NDArray:
    """log(1 + y) of complex y, of which numpy's loses the digits of a small one, or of real y above -1."""
    if np.isrealobj(y):
        return np.log1p(y)
    size = 2.0 * y.real + y.real**2 + y.imag**2
    real, small = 0.5 * np.log1p(np.maximum(size, -0.5)), size <= -0.5
    if np.any(small):
        real = np.where(small, np.log(np.maximum(np.abs(1.0 + y), 1e-300)), real)
    return real + 1j * np.arctan2(y.imag, 1.0 + y.real)


def complex_expm1(u: NDArray) -> NDArray:
    """exp(u) - 1 of complex u, accurate where u is small."""
    grown, half = np.expm1(u.real), np.sin(0.5 * u.imag)
    return grown - 2.0 * half * half * (1.0 + grown) + 1j * (1.0 + grown) * np.sin(u.imag)


def complex_expm1_less(u: NDArray) -> NDArray:
    """exp(u) - 1 - u of complex u, accurate where u is small."""
    series = np.ones(u.shape, dtype=complex)
    for k in range(_TERMS, 2, -1):
        series = 1.0 + u * series / k
    return np.where(np.abs(u) > _SERIES, complex_expm1(u) - u, 0.5 * u * u * series)


class PositiveMixture(NamedTuple):
    """A mixture of Gaussians of standard deviation 1.

    Attributes
    ----------
    centres, weights : ndarray, shape (k,)
        Centres, ascending from 0 or above.
    factors : int
        d, the number of factors.
    """

    centres: NDArray
    weights: NDArray
    factors: int

    @classmethod
    def of(cls, centres: NDArray, weights: NDArray) -> PositiveMixture:
        """The mixture with these centres, at least 0, in any order, as one factor."""
        order = np.argsort(centres)
        return cls(centres[order], weights[order], 1)

    def factored(self) -> PositiveMixture:
        """This mixture, or, if it is a binomial one but for round-off, that one as a product."""
        c, w, k = *self[:2], self.centres.size - 1
        if k < 2 or c[0] != 0.0:
            return self
        j = np.arange(k)
        even = np.abs(c[1:] - c[-1] / k * (j + 1.0)) <= 4.0 * _UNIT * c[1:]
        odds = w[1:] / w[:-1] * (j + 1.0) / (k - j)
        binomial = even.all() and np.ptp(odds) <= BINOMIAL * _UNIT * odds.min()
        return self._replace(factors=k) if binomial else self

    @property
    def _weight_units(self) -> float:
        """Units by which weights may differ from binomial ones."""
        return BINOMIAL * self.factors if self.factors > 1 else 0.0

    @property
    def top(self) -> float:
        """c, the largest centre."""
        return float(self.centres[-1])

    @property
    def turn(self) -> float:
        """t, the largest centre of a factor."""
        return self.top / self.factors

    @property
    def trivial(self) -> bool:
        """Whether h is 1."""
        return self.top == 0.0

    def exponents(self, x: NDArray) -> NDArray:
        """Exponents of the terms: (centres, places)."""
        return np.multiply.outer(self.centres, x) - 0.5 * self.centres[:, None] ** 2

    def log(self, x: NDArray) -> NDArray:
        """log h at complex x, t |Im x| <= pi / 2, or at real x; arg h is 0 on the real line and continuous."""
        found = self._principal(x)
        # the argument lies between 0 and c y
        if self.top * float(np.abs(x.imag).max(initial=0.0)) > math.pi:
            turns = np.rint((self._rough_argument(x.ravel()) - found.imag.ravel()) / (2.0 * math.pi))
            found += 2j * math.pi * turns.reshape(x.shape)
        return found

    def _principal(self, x: NDArray) -> NDArray:
        """`log`, but for multiples of 2 pi in the argument."""
        if self.trivial:
            return np.zeros(x.shape, dtype=x.dtype)
        from ..kernels import contour

        flat = x.ravel()
        less = np.empty((2, flat.size))
        contour.mixture_less_one(self.centres, self.weights, flat.real.copy(), flat.imag.copy(), less)
        some = self.top * flat.real - 0.5 * self.top**2 > _FAR
        with np.errstate(over="ignore", invalid="ignore"):
            some |= (1.0 + less[0]) ** 2 + less[1] ** 2 < _NEAR_ZERO**2
        less[:, some] = 0.0
        found = complex_log1p(less[0] + 1j * less[1] if np.iscomplexobj(x) else less[0])
        if some.any():
            u = self.exponents(flat[some]) + np.log(self.weights)[:, None]
            highest = u.real.max(axis=0)
            with np.errstate(under="ignore"):
                found[some] = highest + np.log(np.exp(u - highest).sum(axis=0))
        return found.reshape(x.shape)

    def _rough_argument(self, x: NDArray) -> NDArray:
        """About arg h, in steps up from the real line: the argument of each factor changes by at most t |y| in all."""
        steps = max(math.ceil(self.top * float(np.abs(x.imag).max(initial=0.0)) / _TURNED), 1)
        t = self.exponents(x.real) + np.log(self.weights)[:, None]
        terms = np.exp(t - t.max(axis=0)) + 0j
        by = np.exp(np.multiply.outer(self.centres, x.imag * 1j / steps))
        found, before = np.zeros(x.size), terms.sum(axis=0)
        for _ in range(steps):
            terms *= by
            after = terms.sum(axis=0)
            found += np.angle(after * before.conj())
            before = after
        return found

    def units(self, x: NDArray, moved: NDArray, log: NDArray) -> NDArray:
        """Round-off of `log` in units of 2^-53, if x is wrong by |x| + `moved` such units.

        1. An exponent is wrong by 4 c (|x| + moved + c).  In the sum made of terms, log w and the highest exponent add
           4 |log w| + 4 |u|, u the exponent with log w.
        2. An excess has this times the modulus of the term.  A term costs 20 units of itself: four of the
           exponential, eight of the turn, from half of its angle, and eight operations.  The sum costs k.
        3. log(1 + y) divides by |h|, and its real part is half the logarithm of 1 + 2 Re y + |y|^2.
        4. Weights that count as binomial may be `_weight_units` away from them.
        """
        if self.trivial:
            return np.zeros(x.shape)
        t, k = self.exponents(x), self.centres.size
        c, w = self.centres[:, None], self.weights[:, None]
        logs = np.log(w)
        share = np.exp(np.minimum(t.real + logs - log.real, 700.0))
        size = np.exp(np.clip(log.real, -300.0, 300.0))
        own = 4.0 * c * (np.abs(x) + moved + c) + 20.0 + k + self._weight_units
        # which sum was made is not asked where it is a matter of round-off: both are paid for
        direct, near = (t[-1].real > _FAR) | (size < 1.1 * _NEAR_ZERO), (t[-1].real <= _FAR) & (size > 0.9 * _NEAR_ZERO)
        own = np.where(direct, own + 4.0 * np.abs(logs) + 4.0 * np.abs(t.real + logs), np.where(c > 0.0, own, 0.0))
        y = np.where(near, np.where(c > 0.0, w + share * size, 0.0).sum(axis=0), 0.0)
        of_excess = np.where(near, (5.0 + k + self._weight_units) * float(w[c > 0.0].sum()) / size, 0.0)
        return (share * own).sum(axis=0) + of_excess + 3.0 * (2.0 * y + y * y) / (size * size) + 8.0 * np.abs(log)

    def mass_beyond(self, x: float) -> float:
        """Mass of the mixture beyond x."""
        return sum(
            0.5 * w * math.erfc((x - c) * math.sqrt(0.5)) for c, w in zip(self.centres, self.weights, strict=True)
        )

    def mass_below(self, x: float) -> float:
        """Mass of the mixture below x."""
        return sum(
            0.5 * w * math.erfc((c - x) * math.sqrt(0.5)) for c, w in zip(self.centres, self.weights, strict=True)
        )

    def boxes(self, left: NDArray, right: NDArray, bottom: NDArray, top: NDArray) -> MixtureBoxes:
        """Bounds on [left, right] x [bottom, top]; no bounds where t |Im| exceeds `WIDEST`."""
        if self.trivial:
            zero = np.zeros(left.shape)
            return MixtureBoxes(zero, zero, zero)
        turn, quarter, d = self.turn, 0.5 * math.pi / self.turn, self.factors
        most = np.maximum(np.abs(bottom), np.abs(top))
        inside = most * turn < WIDEST
        most, bottom, top = (np.where(inside, y, 0.0) for y in (most, bottom, top))
        least = np.where((bottom < 0.0) & (top > 0.0), 0.0, np.minimum(np.abs(bottom), np.abs(top)))
        start = np.minimum(np.maximum(bottom, 0.0), quarter)
        places = right + 1j * np.minimum(least, quarter), left + 1j * np.minimum(most, quarter)
        high, low = self._principal(np.stack(places)).real
        wide = most > quarter
        if wide.any():
            angle = turn * most[wide]
            first = self.centres[0] * left[wide] - 0.5 * self.centres[0] ** 2 + math.log(self.weights[0])
            rotated = (
                first + d * np.log(np.sin(angle)),
                self.log(left[wide]) + d * np.log(np.cos(0.5 * angle)),
            )
            low[wide] = np.maximum(np.maximum(*rotated), self._log_real_part(left[wide], right[wide], most[wide]))
        # beyond the angle pi / 2, the argument of a factor may fall again
        end = np.sin(turn * np.maximum(top, quarter))
        turned = self.log(left + 1j * start).imag * np.minimum(end / np.maximum(np.sin(turn * start), end), 1.0)
        below = bottom < 0.0
        if below.any():
            down = -bottom[below]
            near = self.log(right[below] + 1j * np.minimum(down, quarter)).imag
            turned[below] = -np.where(down <= quarter, near, self.top * down)
        # the terms of a factor have arguments between 0 and a = t |Im|, so that the sum of their moduli is at most
        # 1 / cos(a / 2) times the factor's modulus: sqrt(2) times at a = pi / 2
        slack = _SLACK * np.cos(0.5 * turn * np.minimum(most, quarter)) ** -float(d)
        return MixtureBoxes(
            high + slack * (1.0 + np.abs(high)),
            low - slack * (1.0 + np.abs(low)),
            turned - slack * (1.0 if d > 1 else np.abs(turned)),
        )

    def _log_real_part(self, left: NDArray, right: NDArray, most: NDArray) -> NDArray:
        """log of a lower bound of Re h, -inf if that is negative; less the round-off of its terms."""
        cosine = np.cos(self.centres[:, None] * most)
        x, c = np.where(cosine > 0.0, left, right), self.centres[:, None]
        exponents = c * x - 0.5 * c * c + np.log(self.weights)[:, None]
        top = exponents.max(axis=0)
        size = np.exp(exponents - top)
        off = (
            4.0
            * _UNIT
            * (size * (np.abs(c * x) + c * c + c * most + self.centres.size + self._weight_units)).sum(axis=0)
        )
        with np.errstate(divide="ignore"):
            return top + np.log(np.maximum((size * cosine).sum(axis=0) - off, 0.0))


class MixtureBoxes(NamedTuple):
    """Bounds of log |h| on boxes, and the least argument."""

    high: NDArray
    low: NDArray
    argument: NDArray
