"""Moments M(A) = E[g(x)^A] of a sampled Gaussian step at complex A, of all losses or of those between two losses.

Notation: x ~ N(0, sigma^2) with density N(x), g(x) = 1 - q + q exp((2 x - 1) / (2 sigma^2)), q < 1.  Under removal
E[exp(z L)] = M(1 + z), under addition M(-z).  Im A >= 0 throughout, because M(conj A) = conj M(A).  In this module a
"loss" is a value of log g.

**Path.**  N g^A is analytic for |Im x| < pi sigma^2, where g has no zero.  So the integral over the real line is that
over a line Im x = y, 0 < y < pi sigma^2 / 2.  There arg g > 0, so |g^A| = |g|^Re(A) exp(-Im(A) arg g) falls with Im A.
An integral that begins or ends at a real place has a vertical leg there.  Gauss-Legendre panels on the path make M a
finite sum of weight exp(A loss), an entire function of A.

**Error of the rule.**  On a panel of half-width r the n-point rule errs by at most
(64 / 15) r S rho^(2 - 2 n) / (1 - rho^-2), if the integrand is at most S in modulus on the ellipse with foci at the
panel's ends and half-axes r (rho +- 1 / rho) / 2 (Trefethen, "Approximation Theory and Approximation Practice", Theorem
19.3).  The ellipse lies in boxes [left, right] x [bottom, top], on each of which:

1. |N| <= exp((max Im^2 - min Re^2) / (2 sigma^2)) / (sigma sqrt(2 pi)).
2. |g|^2 is a convex parabola in exp(Re x / sigma^2) and falls with |Im x|.  So |g| is largest at the left or the right
   end, at the smallest |Im x|.
3. If the angle t = |Im x| / sigma^2 is at least pi / 2, |g| >= (1 - q) sin t.  At a smaller angle |g| grows with Re x,
   so it is smallest at the left end, at the largest |Im x|.
4. If Im x > 0, arg g grows with Re x.  At a fixed Re x it grows with Im x up to a point and falls from there.  So it is
   smallest at the left end, at the bottom or the top.  If Im x < 0, -arg g is at most `_turn` at the right end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from . import quadrature
from .base import CharacteristicSteps

__all__ = ["ComplexLaw", "ComplexMoments", "ContourSteps", "complex_expm1", "complex_log1p"]

_UNIT = 2.0**-53
_POINTS = 20
_NODE, _WEIGHT = np.polynomial.legendre.leggauss(_POINTS)
_PANEL, _PANEL_OF_SIGMA = 1.4, 0.9  # width of a panel over sigma^2, and over sigma
_LEG = np.array([0.0, 0.06, 0.15, 0.3, 0.55, 1.0])  # edges of the panels of a leg, from the real axis
_ELLIPSES = np.array([1.5, 2.0, 2.6, 3.3, 4.2, 5.5])
_SLICES = 6  # boxes around an ellipse
_ANGLE, _GROWTH = 1.5, 1.7  # y / sigma^2 at most, below pi / 2, and y / sigma at most
_WIDEST = 3.0  # angle up to which ellipses are used, below pi
_CELLS = 8  # parts of a panel, for sums of upper bounds
_MOST_NODES = 40_000  # of a moment that bounds a line; with more, the bound of an unsampled step serves
_ENVELOPE_CELLS = 768
_ROUGH = 400  # nodes of a rough moment


def complex_log1p(y: NDArray) -> NDArray:
    """log(1 + y) of complex y; numpy's loses the digits of a small y."""
    size = 2.0 * y.real + y.real**2 + y.imag**2
    real = np.where(size > -0.5, 0.5 * np.log1p(np.maximum(size, -0.5)), np.log(np.maximum(np.abs(1.0 + y), 1e-300)))
    return real + 1j * np.arctan2(y.imag, 1.0 + y.real)


def complex_expm1(u: NDArray) -> NDArray:
    """exp(u) - 1 of complex u, accurate where u is small."""
    half, grown = np.sin(0.5 * u.imag), np.expm1(u.real)
    return grown - 2.0 * half * half * (1.0 + grown) + 1j * (1.0 + grown) * np.sin(u.imag)


def _log_g(x: NDArray, sigma: float, q: float) -> NDArray:
    """log g at complex x, |Im x| < pi sigma^2."""
    t = (2.0 * x - 1.0) / (2.0 * sigma * sigma)
    far = t.real > 36.0
    near = complex_log1p(q * complex_expm1(np.where(far, 0.0, t)))
    if not far.any():
        return near
    beyond = t + math.log(q) + complex_log1p((1.0 - q) / q * np.exp(np.where(far, -t, 0.0)))
    return np.where(far, beyond, near)


def _real_log_g(x: NDArray, sigma: float, q: float) -> NDArray:
    return _log_g(np.asarray(x) + 0j, sigma, q).real


def _turn(x: NDArray, angle: NDArray, sigma: float, q: float) -> NDArray:
    """Upper bound of |arg g| left of x and up to an angle below pi off the real line."""
    t = (2.0 * x - 1.0) / (2.0 * sigma * sigma) + math.log(q) - math.log1p(-q)
    s = np.exp(np.minimum(t, 700.0))
    # the angle of 1 + s exp(i p) grows with s, and with p until cos p = -s; there it is arcsin(s)
    return np.where(
        np.cos(angle) >= -s,
        np.arctan2(s * np.sin(angle), 1.0 + s * np.cos(angle)),
        np.arcsin(np.minimum(s, 1.0)),
    )


class _Boxes(NamedTuple):
    """Bounds on boxes: |N g^A| <= exp(height + max(Re A high, Re A low) - Im A angle)."""

    height: NDArray
    high: NDArray
    low: NDArray
    angle: NDArray

    @classmethod
    def of(cls, law: tuple[float, float], left: NDArray, right: NDArray, bottom: NDArray, top: NDArray) -> _Boxes:
        """Bounds on [left, right] x [bottom, top]; infinite where a box comes near the zeros of g."""
        sigma, q = law
        nearest = np.where((left < 0.0) & (right > 0.0), 0.0, np.minimum(np.abs(left), np.abs(right)))
        most = np.maximum(np.abs(bottom), np.abs(top))
        height = (most**2 - nearest**2) / (2.0 * sigma**2) - math.log(sigma * math.sqrt(2.0 * math.pi))
        inside = most < _WIDEST * sigma**2
        most, bottom, top = (np.where(inside, y, 0.0) for y in (most, bottom, top))
        least = np.where((bottom < 0.0) & (top > 0.0), 0.0, np.minimum(np.abs(bottom), np.abs(top)))
        high = np.maximum(_log_g(left + 1j * least, sigma, q).real, _log_g(right + 1j * least, sigma, q).real)
        angle = most / sigma**2
        floor = np.log((1.0 - q) * np.sin(np.maximum(angle, 0.5 * math.pi)))
        low = np.where(angle < 0.5 * math.pi, _log_g(left + 1j * most, sigma, q).real, floor)
        above = [_log_g(left + 1j * np.maximum(y, 0.0), sigma, q).imag for y in (bottom, top)]
        turned = np.where(bottom < 0.0, -_turn(right, np.abs(bottom) / sigma**2, sigma, q), np.minimum(*above))
        slack = 1e-13
        return cls(
            np.where(inside, height, np.inf),
            high + slack * (1.0 + np.abs(high)),
            low - slack * (1.0 + np.abs(low)),
            np.where(bottom < 0.0, turned * (1.0 + slack), turned * (1.0 - slack)),
        )

    def log_bound(self, a: complex) -> NDArray:
        """log of the bound of |N g^A| on each box."""
        return self.height + np.maximum(a.real * self.high, a.real * self.low) - a.imag * self.angle


class _Path:
    """Panels along corners in the complex plane, each segment parallel to an axis."""

    def __init__(self, law: tuple[float, float], corners: Sequence[complex]) -> None:
        self._law = sigma, _ = law
        width = min(_PANEL * sigma * sigma, _PANEL_OF_SIGMA * sigma)
        edges = [np.array(corners[:1])]
        for a, b in pairwise(corners):
            # towards the real axis, legs have ever smaller panels, because the integrand falls ever faster
            if a.imag == b.imag:
                share = np.linspace(0.0, 1.0, max(math.ceil(abs(b - a) / width), 1) + 1)
            else:
                share = _LEG if b.imag > a.imag else 1.0 - _LEG[::-1]
            edges.append((a + (b - a) * share)[1:])
        places = np.concatenate(edges)
        self.centre, self.half = 0.5 * (places[1:] + places[:-1]), 0.5 * (places[1:] - places[:-1])

    def nodes(self) -> tuple[NDArray, NDArray, NDArray]:
        """log g, weights, and what `kernels.contour.sums` takes as units.

        Round-off, in units of 2^-53:

        1. t has 4 (|t| + 1 / sigma^2), and 4 r / sigma^2 from the rule's abscissas.
        2. y = q expm1(t) passes on q |exp(t)| times these, and has 4 |y| of its own.
        3. log(1 + y) divides by |g|, and its real part is half the logarithm of 1 + 2 Re y + |y|^2.
        4. A exponent A log g costs 4 |A log g|, and log g itself 4 of |log g|.
        """
        sigma, q = self._law
        x = (self.centre[:, None] + self.half[:, None] * _NODE).ravel()
        weight = (self.half[:, None] * _WEIGHT).ravel() * np.exp(-0.5 * (x / sigma) ** 2)
        weight /= sigma * math.sqrt(2.0 * math.pi)
        loss = _log_g(x, sigma, q)
        t = (2.0 * x - 1.0) / (2.0 * sigma * sigma)
        r, size = np.repeat(np.abs(self.half), _POINTS), np.exp(np.minimum(loss.real, 300.0))
        share = np.exp(t.real + math.log(q) - loss.real)
        y = np.minimum(share * size + q, 1e100)
        of_loss = share * (4.0 * np.abs(t) + (4.0 + 4.0 * r) / sigma**2 + 8.0) + 4.0 * (share + q / size)
        of_loss += 3.0 * (2.0 * y + y * y) / (size * size) + 8.0 * np.abs(loss)
        of_weight = 2.5 * np.abs(x / sigma) ** 2 + 4.0 * r * np.abs(x) / sigma**2 + 16.0
        return loss, weight, np.stack([of_loss, of_weight, np.abs(weight)])

    def log_errors(self, a: complex) -> NDArray:
        """log of bounds of the rule's error of the integral of N g^A, or of N (g^A - 1): (panels, ellipses)."""
        grown = np.logaddexp(self._boxes.log_bound(a), self._boxes.height).max(axis=2)
        return grown + self._rate

    def around_ellipses(self) -> _Path:
        """This path, with the boxes around the ellipses of its panels."""
        r, level = np.abs(self.half)[:, None], np.abs(self.half.imag)[:, None] == 0.0
        along, off = r * (_ELLIPSES + 1.0 / _ELLIPSES) / 2.0, r * (_ELLIPSES - 1.0 / _ELLIPSES) / 2.0
        wide, tall = np.where(level, along, off)[..., None], np.where(level, off, along)[..., None]
        x, y = self.centre.real[:, None, None], self.centre.imag[:, None, None]
        slices = np.linspace(-1.0, 1.0, _SLICES + 1)
        low, high = (np.broadcast_to(y + sign * tall, (*tall.shape[:2], _SLICES)) for sign in (-1.0, 1.0))
        self._boxes = _Boxes.of(self._law, x + wide * slices[:-1], x + wide * slices[1:], low, high)
        self._rate = np.log(64.0 / 15.0 * r / (1.0 - _ELLIPSES**-2)) - (2.0 * _POINTS - 2.0) * np.log(_ELLIPSES)
        return self

    def upper(self, a: complex) -> float:
        """Bound of the integral of |N g^A| along the path, also for every larger Im A."""
        part = (np.arange(_CELLS) - 0.5 * (_CELLS - 1)) * 2.0 / _CELLS
        centre = (self.centre[:, None] + self.half[:, None] * part).ravel()
        half = np.repeat(self.half / _CELLS, _CELLS)
        wide, tall = np.abs(half.real), np.abs(half.imag)
        x, y = centre.real, centre.imag
        boxes = _Boxes.of(self._law, x - wide, x + wide, np.maximum(y - tall, 0.0), y + tall)
        with np.errstate(over="ignore"):
            return 1.0001 * float((2.0 * np.abs(half) * np.exp(boxes.log_bound(a))).sum())


class ComplexMoments:
    """M(A) of one step: of all its losses up to `high`, and M_mid(A) of those between `low` and `high`.

    Parameters
    ----------
    law : ComplexLaw
    low, high : float
        log g; -inf and inf are no limits.
    begin : float
        Where the path begins, in standard deviations left of 0.
    end : float
        Where the path, and the losses, end if `high` is inf, as a place x.
    """

    def __init__(self, law: ComplexLaw, low: float, high: float, begin: float, end: float) -> None:
        self._law = sigma, _ = law.sigma, law.q
        self._begin, self._finite = begin, high < np.inf
        self._above = 1j * min(_ANGLE * sigma * sigma, _GROWTH * sigma)
        self._end = law.place(high) if self._finite else end
        self._tail = [self._end + self._above, complex(self._end)][: 1 + self._finite]
        first = -begin * sigma + self._above
        if low == -np.inf:
            self._paths = [_Path(self._law, [first, *self._tail]).around_ellipses()]
        else:
            x = law.place(low)
            corners = [complex(x), x + self._above], [x + self._above, *self._tail], [first, x + self._above]
            self._paths = [_Path(self._law, line).around_ellipses() for line in corners]
        nodes = [path.nodes() for path in self._paths]
        self._loss, self._weight, self._units = (np.concatenate(parts, axis=-1) for parts in zip(*nodes, strict=True))
        ends = np.cumsum([loss.size for loss, *_ in nodes])
        # M is the integral over the last two paths, M_mid that over the first two
        self._first, self._last = (int(ends[0]), int(ends[1])) if len(ends) > 1 else (0, int(ends[0]))
        # M = 1 - beyond + sum of weight (g^A - 1); for `around`, the part without g^A is a node of loss 0
        self._beyond = 0.5 * math.erfc(self._end / sigma * math.sqrt(0.5)) if self._finite else 0.0
        self._constant = complex(1.0 - self._beyond) - self._weight[self._first :].sum()

    def values(self, a: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """M - 1 and its round-off, M_mid and its round-off, at each A."""
        from ..kernels import contour

        total, error = np.empty((2, a.size), dtype=complex), np.empty((2, a.size))
        contour.sums(a, self._loss, self._weight, self._units, self._first, self._last, total, error)
        return total[0] - self._beyond, _UNIT * (error[0] + 8.0 * self._beyond), total[1], _UNIT * error[1]

    def around(self, a: complex, corners: NDArray, out: NDArray) -> None:
        """See `kernels.contour.around`."""
        from ..kernels import contour

        contour.around(a, corners, self._constant, self._loss, self._weight, self._first, self._last, out)

    def log_errors(self, a: complex) -> list[NDArray]:
        """The numbers that `rule_errors` takes for each end of a segment."""
        return [path.log_errors(a) for path in self._paths]

    def rule_errors(self, one: list[NDArray], two: list[NDArray]) -> tuple[float, float]:
        """Bounds of the rule's errors of M and of M_mid for all A between two, whose `log_errors` these are.

        The log of each bound is convex in A, so that its maximum is at an end.
        """
        with np.errstate(over="ignore"):
            found = [float(np.exp(np.maximum(a, b).min(axis=1)).sum()) for a, b in zip(one, two, strict=True)]
        return (found[0], found[0]) if len(found) == 1 else (found[1] + found[2], found[0] + found[1])

    def outside(self, c: float) -> tuple[float, float]:
        """Bounds of what the path leaves out of M or M_mid on its left and, if `high` is inf, at its end.

        They hold wherever Re A = c.  On the left |g^A - 1| <= 1 + (1 - q)^min(c, 0).  At the end the integral of
        N (g^A - 1) over the leg down to the real axis is left out, and that of N beyond.
        """
        sigma, q = self._law
        grown = math.exp(0.5 * (self._above.imag / sigma) ** 2)
        smallest = math.exp(min(min(c, 0.0) * math.log1p(-q), 700.0))
        left = grown * 0.5 * math.erfc(self._begin * math.sqrt(0.5)) * (1.0 + smallest)
        if self._finite:
            return left, 0.0
        log_g = float(_real_log_g(np.array(self._end), sigma, q))
        density = math.exp(-0.5 * (self._end / sigma) ** 2) / (sigma * math.sqrt(2.0 * math.pi))
        leg = self._above.imag * (1.0 + smallest * math.exp(min(max(c * log_g, 0.0), 700.0)))
        return left, grown * density * (leg + sigma**2 / self._end)

    def slope(self, shift: float) -> float:
        """Along a ray of A with Re A / Im A below this, |g^A| exp(A shift) falls at every node of the line."""
        path = self._paths[-1 if len(self._paths) == 1 else 1]
        x = np.linspace(-self._begin * self._law[0], self._end, 2 * path.centre.size + 50)
        line = _log_g(x + self._above, *self._law)
        line = line[line.real + shift > 0.0]
        return float(np.min(line.imag / (line.real + shift), initial=10.0))

    def above(self, a: complex, low: float, law: ComplexLaw) -> float:
        """Bound of the integral of |N g^A| from the loss `low` on, also for every larger Im A."""
        if len(self._paths) > 1:
            return self._paths[0].upper(a) + self._paths[1].upper(a)
        x = law.place(low)
        return _Path(self._law, [complex(x), x + self._above, *self._tail]).upper(a)


class ComplexLaw:
    """One step, as `engine.contour` needs it: its moments, and the rough numbers that choose contours.

    Parameters
    ----------
    sigma, q : float
        Noise multiplier, and a sample rate below 1.
    remove : bool
        Whether the loss is log g under (1 - q) N(0) + q N(1), or -log g under N(0).
    """

    def __init__(self, sigma: float, q: float, remove: bool) -> None:
        self.sigma, self.q, self._remove = sigma, q, remove
        self.least = math.log1p(-q)  # the infimum of log g

    def place(self, loss: float) -> float:
        """The x at which log g is `loss`."""
        y = math.expm1(loss) / self.q if loss < 36.0 else math.inf
        return self.sigma**2 * (math.log1p(y) if y < math.inf else loss - math.log(self.q)) + 0.5

    def loss_at(self, x: float) -> float:
        """log g at x."""
        return float(_real_log_g(np.array(x), self.sigma, self.q))

    def mass_beyond(self, x: float) -> float:
        """Mass of the step beyond x, rounded up."""
        mass = 0.5 * math.erfc(x / self.sigma * math.sqrt(0.5))
        if self._remove:
            mass += self.q * (0.5 * math.erfc((x - 1.0) / self.sigma * math.sqrt(0.5)) - mass)
        return mass * (1.0 + 1e-10) + 1e-300

    def end(self, mass: float) -> float:
        """About the x beyond which at most `mass` lies."""
        low, high = 0.0, 1.0 + 38.0 * self.sigma
        for _ in range(30):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.mass_beyond(middle) <= mass else (middle, high)
        return high

    def far_ends(self, c: NDArray, log_goal: NDArray, end: float) -> tuple[NDArray, NDArray]:
        """Places from `end` on where N max(g^c, 1) falls below each goal, and log g there; inf if none does."""
        x = end + self.sigma * np.linspace(0.0, 15.0, 61)
        loss = _real_log_g(x, self.sigma, self.q)
        small = np.maximum(np.multiply.outer(c, loss), 0.0) - 0.5 * (x / self.sigma) ** 2 + 4.0 < log_goal[:, None]
        at = np.where(small.any(axis=1), small.argmax(axis=1), x.size - 1)
        return x[at], np.where(small.any(axis=1), loss[at], np.inf)

    def moduli(self, losses: NDArray) -> NDArray:
        """About the sum of the moduli of M_mid's terms for each `low`."""
        from scipy.special import ndtr

        x = 0.5 + self.sigma**2 * np.log1p(np.expm1(np.minimum(losses, 500.0)) / self.q)
        return ndtr(-x / self.sigma) * math.exp(0.5 * min(_ANGLE * self.sigma, _GROWTH) ** 2)

    def rough_log_moments(self, losses: NDArray, c: NDArray, end: float) -> NDArray:
        """About log of the integral of N g^c up to `end` and each loss, (losses, exponents); no bound."""
        x = np.linspace(-8.0 * self.sigma, end, _ROUGH)
        loss = _real_log_g(x, self.sigma, self.q)
        exponent = np.multiply.outer(c, loss) - 0.5 * (x / self.sigma) ** 2
        below = np.logaddexp.accumulate(exponent, axis=1)
        at = np.minimum(np.searchsorted(loss, losses), x.size - 1)
        return below[:, at].T + math.log((x[1] - x[0]) / (self.sigma * math.sqrt(2.0 * math.pi)))

    def log_moment(self, c: float, loss: float = np.inf, width: float = 0.0) -> float:
        """log of a bound of |M(A)| of the losses up to `loss`, for Re A = c, c < 0 or c >= 1, and |Im A| >= `width`.

        If c < 0, of all losses and all Im A.
        """
        sigma, q, one = np.array([self.sigma]), np.array([self.q]), np.ones(1)
        theta = (c - 1.0 if c >= 1.0 else -c) * one
        if not (c < 0.0 or c >= 1.0):
            raise ValueError(f"the exponent must be below 0, or at least 1, got {c}")
        if c < 0.0:
            part = np.array([[-np.inf, np.inf]])
            losses = quadrature.TiltedLosses(sigma, q, -1.0, theta, part)
            return float(quadrature.log_moments(losses, _MOST_NODES, False, -self.least * one, 1)[0])
        losses = quadrature.TiltedLosses(sigma, q, 1.0, theta, np.array([[-np.inf, self.place(loss)]]))
        if width == 0.0:
            return float(quadrature.log_moments(losses, _MOST_NODES, True, 1e300 * one, 1)[0])
        from ..kernels import envelope

        found = quadrature.spectrum(losses, 1e-6, 1, 1, np.inf, _MOST_NODES, panels=True)
        if found is None:
            return np.inf
        beyond = np.empty((1, 1))
        k, span = np.ascontiguousarray(found.log_moment), np.ascontiguousarray(found.span)
        envelope.envelope(*losses, k, span, _ENVELOPE_CELLS, np.array([width]), beyond)
        return float(k[0] + found.log_moment_error[0] + min(beyond[0, 0], 0.0))


@runtime_checkable
class ContourSteps(CharacteristicSteps, Protocol):
    """A family of steps whose moments at complex exponents are known."""

    def complex_law(self, row: int) -> ComplexLaw | None:
        """The law of one step; None if contours do not serve it."""
        ...
