"""Moments M(A) = E[g^A] of a step with Gaussian noise at complex A, of all losses or of those between two losses.

Notation: P and Q are mixtures of Gaussians of standard deviation 1, no centre of Q above one of P.  The origin is at
the largest centre of Q.  h_P(x) and h_Q(-x) are their densities over N(x), that of N(0, 1) (`positive_mixture`), and
g(x) = h_P(x) / h_Q(-x) rises.  M(A) is the mean under Q, the integral of f = N h_P(x)^A h_Q(-x)^(1 - A).  Under removal
E[exp(z L)] = M(1 + z), under addition M(-z).  Im A >= 0 throughout, because M(conj A) = conj M(A).  In this module a
"loss" is a value of log g.

**Path.**  With t as in `positive_mixture`, f is analytic for |Im x| < pi / t.  So the integral over the real line is
that over a line Im x = y, 0 < y < pi / (2 t).  There arg g > 0, so |g^A| = |g|^Re(A) exp(-Im(A) arg g) falls with Im A.
An integral that begins or ends at a real place has a vertical leg there.
Gauss-Legendre panels on the path make M a finite sum of weight exp(A loss), an entire function of A.

**Error of the rule.**  On a panel of half-width r the n-point rule errs by at most
(64 / 15) r S rho^(2 - 2 n) / (1 - rho^-2), if the integrand is at most S in modulus on the ellipse with foci at the
panel's ends and half-axes r (rho +- 1 / rho) / 2 (Trefethen, "Approximation Theory and Approximation Practice", Theorem
19.3).  The ellipse lies in boxes, on which `PositiveMixture.boxes` bounds the mixtures, and N is at most
exp((max Im^2 - min Re^2) / 2) / sqrt(2 pi) in modulus.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..gauss_legendre import gauss_legendre
from .node_sums import Around, NodeSums, PathNodes
from .positive_mixture import WIDEST, PositiveMixture, complex_expm1, complex_expm1_less

__all__ = ["LOG_DENSITY", "ComplexMoments", "LikelihoodRatio"]

_UNIT = 2.0**-53
_POINTS = 24
_NODE, _WEIGHT = gauss_legendre(_POINTS)
LOG_DENSITY = 0.5 * math.log(2.0 * math.pi)
"""Minus log N(0)."""

_PANEL = 1.4, 1.0  # width of a panel, at most, times the largest centre, if Q is one Gaussian and if not
_ANGLE = 1.5, 1.0  # the same of y, below pi / 2; beyond pi / 2, negative powers of h_Q are large
_WIDEST_PANEL, _HIGHEST = 0.9, 1.7  # of a panel and of y, at most
_FACTOR_PANEL, _FACTOR_ANGLE = 0.9, 0.5  # the same of products of mixtures, times t; higher paths cost digits
_FACTOR_WIDEST, _FACTOR_HIGHEST = 0.5, 0.5  # width of a panel of these, and y, at most
_LEG = np.array([0.0, 0.06, 0.15, 0.3, 0.55, 1.0])  # edges of the panels of a leg, from the real axis
_ELLIPSES = np.array([1.5, 2.0, 2.8, 4.2])
_SLICES = 6  # boxes around an ellipse
_CELLS = 8  # parts of a panel, for sums of upper bounds
_PLACES = 150  # candidates of where a path rises from its low line
_HEIGHTS = 0.5 ** np.arange(1.0, 6.0)  # candidates of heights of a path where most of the mass is, over y
_ENVELOPE_CELLS = 512
_KEEP = 1e-9  # absorbs the round-off of a cell's quantities


class LikelihoodRatio(NamedTuple):
    """g, as the two mixtures: `p` is h_P and `q` is h_Q, which has one factor."""

    p: PositiveMixture
    q: PositiveMixture

    @property
    def turn(self) -> float:
        """t, the larger of the two of `positive_mixture`."""
        return max(self.p.turn, self.q.turn)

    @property
    def top(self) -> float:
        """The largest distance of a centre from the origin."""
        return max(self.p.top, self.q.top)

    @property
    def height(self) -> float:
        """y."""
        of_product = min(_FACTOR_ANGLE / self.turn, _FACTOR_HIGHEST)
        return max(min(_ANGLE[not self.q.trivial] / self.top, _HIGHEST), of_product)

    @property
    def panel(self) -> float:
        """The width of a panel, at most."""
        of_product = min(_FACTOR_PANEL / self.turn, _FACTOR_WIDEST)
        return max(min(_PANEL[not self.q.trivial] / self.top, _WIDEST_PANEL), of_product)

    def logs(self, x: NDArray) -> tuple[NDArray, NDArray]:
        """log h_P(x) and log h_Q(-x) at complex or real x."""
        return self.p.log(x), self.q.log(-x)

    def log(self, x: NDArray) -> NDArray:
        """log g at complex or real x."""
        p, q = self.logs(x)
        return p - q

    def difference(self, start: complex, stop: complex) -> tuple[complex, float]:
        """The integral of N (h_P - h_Q) from a place far on the left to another, and its round-off in units of 2^-53.

        With N's distribution function F it is the sum of w (F(z - c) - F(z)) over the terms of h_P, less that of
        w (F(z + c) - F(z)) over those of h_Q.  On the right 1 - F serves as well.
        """
        from scipy.special import erfc

        def below(z: complex, sign: float) -> tuple[complex, float]:
            """sign F, up to a constant, and its round-off."""
            at = z if z.imag else z.real
            # SciPy's function of a complex argument is good to 1e-13; a rounded argument costs its square
            units = (2e3 if z.imag else 8.0) + 8.0 * abs(z) ** 2
            found, size = 0.0 + 0.0j, 0.0
            for (centres, weights, _), side in ((self.p, 1.0), (self.q, -1.0)):
                for c, w in zip(centres.tolist(), weights.tolist(), strict=True):
                    moved, own = (0.5 * erfc(-sign * math.sqrt(0.5) * v) for v in (at - side * c, at))
                    found += side * w * (moved - own)
                    size += w * (abs(moved) + abs(own)) * (c > 0.0)
            return complex(found), units * size

        (left, of_left), (right, of_right) = below(start, 1.0), below(stop, -1.0)
        return -right - left, of_left + of_right


def boxes_of(law: LikelihoodRatio, left: NDArray, right: NDArray, bottom: NDArray, top: NDArray) -> NDArray:
    """Bounds on boxes [left, right] x [bottom, top], (..., 6); infinite where one comes near the zeros of a mixture.

    They are of log |N|, from above, of log |h_P|, from above and from below, of the argument of g, from below, and of
    log |h_Q(-x)|, from above and from below.
    """
    nearest = np.where((left < 0.0) & (right > 0.0), 0.0, np.minimum(np.abs(left), np.abs(right)))
    most = np.maximum(np.abs(bottom), np.abs(top))
    height = np.where(most * law.turn < WIDEST, 0.5 * (most**2 - nearest**2) - LOG_DENSITY, np.inf)
    high, low, up = law.p.boxes(left, right, bottom, top)
    # h_Q(-x) has the argument of h_Q at the mirror image -conj x, with the other sign
    q_high, q_low, q_up = law.q.boxes(-right, -left, bottom, top)
    return np.stack([height, high, low, up + q_up, q_high, q_low], axis=-1)


class _Paths:
    """Panels of paths along corners in the complex plane, each segment parallel to an axis.

    Attributes
    ----------
    centre, half : ndarray of complex, shape (panels,)
        Centres of the panels of all paths, one path after the other, and halves of their extents.
    ends : list of int
        Where each path ends among the panels.
    """

    def __init__(self, law: LikelihoodRatio, *paths: Sequence[complex]) -> None:
        self._law = law
        left, right = [], []
        self.ends = []
        for corners in paths:
            for a, b in pairwise(corners):
                # towards the real axis, legs have ever smaller panels, because the integrand falls ever faster
                if a.imag == b.imag:
                    share = np.linspace(0.0, 1.0, max(math.ceil(abs(b - a) / law.panel), 1) + 1)
                else:
                    share = _LEG if b.imag > a.imag else 1.0 - _LEG[::-1]
                places = a + (b - a) * share
                left.append(places[:-1])
                right.append(places[1:])
            self.ends.append(sum(places.size for places in left))
        start, stop = np.concatenate(left), np.concatenate(right)
        self.centre, self.half = 0.5 * (stop + start), 0.5 * (stop - start)

    def nodes(self) -> PathNodes:
        """The nodes of the rule.

        Round-off, in units of 2^-53: x is wrong by |x| and 4 r from the rule's abscissas, and log h as
        `PositiveMixture.units` says.  An exponent A log g costs 4 |A log g|, and log g itself 4 of |log g|.
        """
        x = (self.centre[:, None] + self.half[:, None] * _NODE).ravel()
        p, q = self._law.logs(x)
        weight = (self.half[:, None] * _WEIGHT).ravel() * np.exp(q - 0.5 * x * x - LOG_DENSITY)
        moved, loss = 4.0 * np.repeat(np.abs(self.half), _POINTS), p - q
        of_q = self._law.q.units(-x, moved, q)
        of_loss = self._law.p.units(x, moved, p) + of_q + 8.0 * np.abs(loss)
        of_weight = 2.5 * np.abs(x) ** 2 + moved * np.abs(x) + of_q + np.abs(q) + 16.0
        bent, less = complex_expm1_less(loss), complex_expm1(loss)
        of_bent = (
            np.abs(less) * of_loss
            + 24.0 * np.abs(bent)
            + np.where(np.abs(loss) > 0.05, 8.0 * (np.abs(less) + np.abs(loss)), 0.0)
        )
        of_rise = (1.0 + np.abs(less)) * of_loss + 24.0 * np.abs(less)
        return PathNodes(loss, less, bent, weight, of_loss, of_rise, of_bent, of_weight)

    def ellipses(self) -> tuple[NDArray, NDArray]:
        """Boxes around ellipses of the panels, and the log of the rule's error over twice the integrand's bound there.

        See `kernels.contour.rule_error`.
        """
        r, level = np.abs(self.half)[:, None], np.abs(self.half.imag)[:, None] == 0.0
        along, off = r * (_ELLIPSES + 1.0 / _ELLIPSES) / 2.0, r * (_ELLIPSES - 1.0 / _ELLIPSES) / 2.0
        wide, tall = np.where(level, along, off)[..., None], np.where(level, off, along)[..., None]
        x, y = self.centre.real[:, None, None], self.centre.imag[:, None, None]
        slices = np.linspace(-1.0, 1.0, _SLICES + 1)
        low, high = (np.broadcast_to(y + sign * tall, (*tall.shape[:2], _SLICES)) for sign in (-1.0, 1.0))
        boxes = boxes_of(self._law, x + wide * slices[:-1], x + wide * slices[1:], low, high)
        return boxes, np.log(64.0 / 15.0 * r / (1.0 - _ELLIPSES**-2)) - (2.0 * _POINTS - 2.0) * np.log(_ELLIPSES)

    def upper(self, a: complex, paths: int) -> float:
        """Bound of the integral of |f| along the first paths, also for every larger Im A."""
        from ..kernels import contour

        some = slice(self.ends[paths - 1])
        part = (np.arange(_CELLS) - 0.5 * (_CELLS - 1)) * 2.0 / _CELLS
        centre = (self.centre[some, None] + self.half[some, None] * part).ravel()
        half = np.repeat(self.half[some] / _CELLS, _CELLS)
        wide, tall = np.abs(half.real), np.abs(half.imag)
        x, y = centre.real, centre.imag
        boxes = boxes_of(self._law, x - wide, x + wide, np.maximum(y - tall, 0.0), y + tall)
        return 1.0001 * contour.upper_sum(boxes, 2.0 * np.abs(half), a.real, a.imag)


class ComplexMoments:
    """M(A) of one step: of all its losses up to `high`, and M_mid(A) of those between `low` and `high`.

    Parameters
    ----------
    ratio : LikelihoodRatio
    low, high : float
        Places x at which the losses are these; -inf and inf are no limits.
    begin : float
        Where the path begins, in standard deviations left of the smallest centre of Q.
    end : float
        Where the path, and the losses, end if `high` is inf, as a place x.
    """

    def __init__(self, ratio: LikelihoodRatio, low: float, high: float, begin: float, end: float) -> None:
        self._law = ratio
        self._begin, self._low, self._finite = -begin - ratio.q.top, low, high < np.inf
        self._above = 1j * ratio.height
        self._end = high if self._finite else end
        self._ends = tail = [self._end + self._above, complex(self._end)][: 1 + self._finite]
        first = self._begin + self._above
        if low == -np.inf:
            self._paths = _Paths(ratio, [first, *tail])
            self._first, self._last = 0, 0
        else:
            at_low = low + self._above
            self._paths = _Paths(ratio, [complex(low), at_low], [at_low, *tail], [first, at_low])
            self._first, self._last = self._paths.ends[:2]
        self._beyond = ratio.q.mass_below(-self._end) if self._finite else 0.0
        first_node, last_node = _POINTS * self._first, _POINTS * self._last
        self._sums = NodeSums(self._paths.nodes(), first_node, last_node, 1.0 - self._beyond)
        self._boxes, self._rate = self._paths.ellipses()
        self._linear = ratio.difference(first, tail[-1])
        self._linear_rule = self._rule_error(slice(self._first, None), complex(1.0), complex(1.0))

    @property
    def nodes(self) -> int:
        """Number of nodes of all paths."""
        return self._sums.loss.size

    def values(self, a: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """M - 1 and its round-off, M_mid and its round-off, at each A.

        M - 1 is of second order in small losses, because g - 1 has the mean 0.  So the sum is one of terms
        g^A - 1 - A (g - 1), and A times the integral of N h_Q (g - 1) along the path is added from its closed form.
        """
        whole, error, mid, of_mid = self._sums.at(a)
        linear, of_linear = self._linear
        error += _UNIT * (8.0 * self._beyond + np.abs(a) * (of_linear + 8.0 * abs(linear)))
        return whole + a * linear - self._beyond, error, mid, of_mid

    def log_moment(self, c: float) -> float:
        """log of M at a real exponent, rounded up."""
        a = complex(c)
        less, off = (v[0] for v in self.values(np.array([a]))[:2])
        x = float(less.real + off) + self.rule_errors(a, a)[0] + sum(self.outside(c))
        return math.log1p(x) if x > -0.5 else math.log(1.0 + x + 2.0**-52)

    def around(self, a: complex, corners: NDArray) -> Around:
        """See `NodeSums.around`."""
        return self._sums.around(a, corners)

    def rule_errors(self, one: complex, two: complex) -> tuple[float, float]:
        """Bounds of the rule's errors of M and of M_mid for all A between two.

        The linear term of M is at most |A| times its bound at A = 1.
        """
        linear = max(abs(one), abs(two)) * self._linear_rule
        whole = self._rule_error(slice(self._first, None), one, two)
        return whole + linear, self._rule_error(slice(self._last), one, two)

    def _rule_error(self, panels: slice, one: complex, two: complex) -> float:
        """Bound of the rule's error of the integral of f, or of f - N h_Q, over some panels for all A between two.

        The log of the bound of a panel's error is convex in A, so that its maximum is at an end.
        """
        from ..kernels import contour

        return contour.rule_error(self._boxes[panels], self._rate[panels], one.real, one.imag, two.real, two.imag)

    def outside(self, c: float) -> tuple[float, float]:
        """Bounds of what the path leaves out of M or M_mid on its left and, if `high` is inf, at its end.

        They hold wherever Re A = c, c < 0 or c >= 1.  With y the path's height, t y <= pi / 2, so |h_P| rises along the
        line and |h_Q(-x)| falls.

        1. On the left see `_left` and `_off_left`.
        2. At the end the integral of f - N h_Q over the leg down to the real axis is left out, and that of N h_Q
           beyond.  On the leg both moduli are smallest at its upper end and largest at its lower one.
        """
        y = self._above.imag
        left = self._off_left + self._left(c, y)
        if self._finite:
            return left, 0.0
        end = np.array([self._end + 0j, self._end + self._above])
        (low_p, high_p), (low_q, high_q) = ((v.real[::-1]) for v in self._law.logs(end))
        power = c * (high_p - low_q if c > 0.0 else low_p - high_q)
        return left, self._off_end + self._density_at_end * y * _exp(power)

    @property
    def _off_left(self) -> float:
        """Bound of the integral of |N h_Q| along the path's line left of its beginning."""
        y = self._above.imag
        return math.exp(0.5 * y * y) * self._law.q.mass_beyond(-self._begin)

    @property
    def _density_at_end(self) -> float:
        """Bound of |N h_Q| on the leg down from the end."""
        y = self._above.imag
        log_q = float(self._law.q.log(np.array([-self._end + 0j])).real[0])
        return math.exp(0.5 * y * y + log_q - 0.5 * self._end**2 - LOG_DENSITY)

    @property
    def _off_end(self) -> float:
        """Bound of the integrals of N h_Q over the leg down from the end and beyond the end; 0 if `high` is finite."""
        return 0.0 if self._finite else self._density_at_end * (self._above.imag + 1.0 / self._end)

    def _left(self, c: float, y: float) -> float:
        """Bound of the integral of |f| along Im x = y left of the beginning, Re A = c.

        |N h_Q| is at most exp(y^2 / 2) times its value at Re x, and |g| at most its value at the beginning, and at
        least w_P if h_Q = 1 and h_P's smallest centre is 0, as it is where c < 0.
        """
        at_begin = float(self._law.log(np.array(self._begin + 1j * y)).real)
        power = c * (at_begin if c > 0.0 else math.log(self._law.p.weights[0]))
        return math.exp(0.5 * y * y) * self._law.q.mass_beyond(-self._begin) * _exp(power)

    def _leg_at_begin(self, c: float) -> float:
        """Bound of the integral of |f| from the beginning of the path down to the real axis, Re A = c >= 1."""
        y = self._above.imag
        (p, q), (_, least_q) = ((v.real for v in self._law.logs(np.array(self._begin + z))) for z in (0j, self._above))
        log_size = 0.5 * (y * y - self._begin**2) - LOG_DENSITY + float(q + c * (p - least_q))
        return y * _exp(log_size)

    def slope(self, shift: float) -> float:
        """Along a ray of A with Re A / Im A below this, |g^A| exp(A shift) falls along the line; judged by samples."""
        line = self._law.log(np.linspace(self._begin, self._end, 2 * self._paths.centre.size + 50) + self._above)
        line = line[line.real + shift > 0.0]
        return float(np.min(line.imag / (line.real + shift), initial=10.0))

    def above(self, a: complex) -> float:
        """Bound of |M_mid| at this and every larger Im A: the integral of |f| along its path."""
        return self._paths.upper(a, 2)

    def beyond(self, a: complex) -> float:
        """Bound of |M|, or of |M_low| if there is a `low`, at this and every larger Im A; Re A >= 1.

        The path runs low where most of the mass is, because there |f| grows with the height and does not fall, and
        rises where arg g is large.  |M| has its leg at the best of some places, and |M_low| goes down at `low`.
        M is the integral of f - N h_Q along the path, and 1 less the mass beyond `high`.  So what the path leaves out
        of the integral of N h_Q is a part of M that does not fall with Im A.
        """
        _, y, place = self._rise(a)
        ends = [complex(place)] if self._low > -np.inf else [place + self._above, *self._ends]
        rising = _Paths(self._law, [place + 1j * y, *ends])
        return self._along(a, place, y) + rising.upper(a, 1) + self._off_left + self._off_end

    def rough_beyond(self, a: complex) -> tuple[float, float]:
        """About `beyond` and `above`, from samples."""
        return math.exp(min(self._rise(a)[0], 700.0)), self._sums.modulus_mid(a)

    def _rise(self, a: complex) -> tuple[float, float, float]:
        """The best candidate for the path of `beyond`: log of the integral of |f|, the lower height, where it rises."""
        x, slope, loss, log_density = self._lines
        log_step = math.log(x[1] - x[0])
        log_size = (a * loss + log_density).real
        after = np.logaddexp.accumulate(log_size[0, ::-1])[::-1] + log_step
        best = np.inf, 0.0, 0
        for y, line in zip(self._above.imag * _HEIGHTS, log_size[1:], strict=True):
            before = np.logaddexp.accumulate(line) + log_step
            # arg g grows along a leg like the slope of log g along the line
            if self._low > -np.inf:
                total = np.logaddexp(before[-1:], line[-1] - math.log(1.0 / y + a.imag * slope[-1]))
            else:
                leg = line - np.log(1.0 / (self._above.imag - y) + a.imag * slope)
                total = np.logaddexp(np.logaddexp(before, after), leg)
            best = min(best, (float(total.min()), float(y), int(total.argmin())))
        total, y, at = best
        return total, y, self._low if self._low > -np.inf else float(x[at])

    @cached_property
    def _lines(self) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Candidates of where a path rises, and the slope of the loss there; the loss and log(N h_Q) above them.

        The last two have a row for the path's line, and one for each candidate of a lower line.
        """
        x = np.linspace(self._begin, self._end if self._low == -np.inf else self._low, _PLACES)
        z = x + 1j * self._above.imag * np.append(1.0, _HEIGHTS)[:, None]
        p, q = self._law.logs(z)
        return x, np.gradient(self._law.log(x), x), p - q, q - 0.5 * z * z - LOG_DENSITY

    def _along(self, a: complex, stop: float, y: float) -> float:
        """Bound of the integral of |f| along Im x = y up to `stop`, also for every larger Im A.

        It includes what lies left of the line, and the leg that joins the line to the path.

        With c = Re A >= 1, w the share of all but the first term of h_Q(-x), and d the largest centre of h_Q:

        1. f on the real line is at most its log-linear chord in a cell of width h, times exp(b h^2 / 8), where -b
           bounds the second derivative of log f.  log h_P is convex, and (log h_Q)'' at most d^2 min(w, 1 / 4).
        2. Off the line |N| grows by exp(y^2 / 2), |h_P| falls, and |h_Q| is at least 1 - w (1 - cos(d y)) times h_Q.
        3. arg h_P is least at the left edge, -arg h_Q(-x) at the right one.
        """
        law, c = self._law, a.real
        x, step = np.linspace(self._begin, stop, _ENVELOPE_CELLS + 1, retstep=True)
        (p, q), (turned_p, turned_q) = law.logs(x), law.logs(x + 1j * y)
        f = np.exp(c * p + (1.0 - c) * q - 0.5 * x * x - LOG_DENSITY)
        argument = turned_p.imag[:-1] - turned_q.imag[1:]
        share = -np.expm1(np.minimum(math.log(law.q.weights[0]) - q[:-1], 0.0))
        bent = 1.0 + (c - 1.0) * law.q.top**2 * np.minimum(share, 0.25)
        fewer = (1.0 - c) * np.log1p(-share * (1.0 - math.cos(law.q.top * y)))
        with np.errstate(over="ignore", under="ignore"):
            mass = (f[1:] + f[:-1]) * np.exp(bent * step * step / 8.0 + fewer - (1.0 - _KEEP) * a.imag * argument)
        cells = math.exp(0.5 * y * y) * 0.5 * step * float(mass.sum()) * (1.0 + _KEEP)
        return cells + self._left(c, y) + self._leg_at_begin(c)


def _exp(x: float) -> float:
    """exp(x), infinite where it is large."""
    return math.exp(x) if x < 700.0 else math.inf
