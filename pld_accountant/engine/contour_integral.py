"""delta(epsilon) as an integral along a bent contour in the complex plane, with a bound of its error.

In terms of A = 1 + z (removal) or A = -z (addition), with the moments M_k(A) of `mechanisms.complex_moments`,

    delta(epsilon) = 1 / (2 pi i) integral of prod M_k(A)^c_k exp(-epsilon z) / (A (A - 1)) dA

upwards along Re A = c, c > 1 or c < 0.  docs/how/contour.rst derives what follows:

1. **Parts.**  delta is a sum over ranges of the largest loss of any step.  The part of the range (low, high] has
   prod M_high^c - prod M_low^c in place of prod M^c, and a tilt of its own.
2. **Contour.**  It starts at the tilt and bends to the right, where exp(-epsilon z) falls, and ends in a vertical line.
3. **Error.**  What the sums for M leave out; the rules on both planes; the vertical line; the round-off.

All numbers are relative to a given delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import deadline
from ..gauss_legendre import gauss_legendre
from ..mechanisms.complex_moments import ComplexMoments
from ..mechanisms.positive_mixture import complex_expm1, complex_log1p
from .contour_parts import Part, Steps, choose_parts

__all__ = ["Integral", "integrate"]

_NODE, _WEIGHT = gauss_legendre(32)
_RHO = 2.3  # sum of the half-axes of a panel's ellipse
_WIDE, _TALL = 0.5 * (_RHO + 1.0 / _RHO), 0.5 * (_RHO - 1.0 / _RHO)
_LOG_RULE = math.log(64.0 / 15.0 / (1.0 - _RHO**-2)) - (2.0 * _NODE.size - 2.0) * math.log(_RHO)

_LEAST_PANELS, _MOST_PANELS, _SHRINKS = 16, 120, 16
_SHORTEST = 0.02  # length of a panel over the tilt; shorter ones would be too many
_GROWS = 0.3  # a panel may grow with this power of |A|, beside what its own bound leaves room for
_TRIES = 4  # a panel is shortened so often at most because of the paths' rule
_STEEPEST = 0.45  # Re A over Im A along the contour
_USELESS = 1e-2  # error that ends the attempt
_ACCEPTED = 10.0  # tolerances: bound of the vertical line that is accepted if further panels do not lower it much:
_SLOW, _RESTS = 0.2, 7  # by less than this factor; after so many, an attempt may end
_TAKEN = 1e3  # tolerances: bound of the vertical line that is accepted at the end
_HOPELESS = 60.0  # log of the integrand at the tilt, relative to delta: beyond, no digit is left
_MOST_WORK = 2e7  # products of nodes of the paths and of the contour in one part: half a second
_LEAST = -600.0  # log delta below which numbers relative to it leave the range of doubles
_UNIT = 2.0**-53


@dataclass(frozen=True)
class Integral:
    """delta, or a part of it, relative to exp(log_delta), as a function of epsilon near one epsilon.

    Attributes
    ----------
    own : float
        That epsilon.
    z, terms : ndarray, shape (nodes,)
        Nodes, and the integrand there times the weight.
    bound : float
        Bound of the error at its own epsilon.
    left, right : float
        Range of Re z of all that was bounded.
    beyond : float
        What upper bounds add for losses beyond the ends.
    small, theta : float
        Chernoff's bound of steps without a large loss, at its own epsilon, and its tilt.  Upper bounds add it.
    """

    own: float
    z: NDArray
    terms: NDArray
    bound: float
    left: float
    right: float
    beyond: float = 0.0
    small: float = 0.0
    theta: float = 0.0

    @classmethod
    def of(cls, parts: Sequence[Integral]) -> Integral:
        """The sum of these parts at one epsilon."""
        z, terms = (np.concatenate([getattr(part, name) for part in parts]) for name in ("z", "terms"))
        left, right = min(part.left for part in parts), max(part.right for part in parts)
        return cls(parts[0].own, z, terms, sum(part.bound for part in parts), left, right)

    def relative_to(self, own: float, log_delta: float) -> Integral:
        """The integral relative to exp(log_delta) in place of exp(own)."""
        f = float(np.exp(own - log_delta))
        return replace(self, terms=f * self.terms, bound=f * self.bound, beyond=f * self.beyond, small=f * self.small)

    def value(self, epsilon: float) -> tuple[float, float]:
        """delta and minus its derivative; NaN too far away."""
        with np.errstate(over="ignore", invalid="ignore"):
            t = self.terms * np.exp(-(epsilon - self.own) * self.z)
            return float(t.imag.sum()) / math.pi, float((t * self.z).imag.sum()) / math.pi

    def error(self, epsilon: float) -> float:
        """Bound of the error of `value`: every bound grows by at most exp(-(epsilon - own epsilon) Re z)."""
        moved = epsilon - self.own
        with np.errstate(over="ignore"):
            return self.bound * float(np.exp(max(-moved * self.left, -moved * self.right)))

    def above(self, epsilon: float) -> float:
        """Bound of the part of delta that was not integrated: an upper bound adds it to `value` and `error`."""
        with np.errstate(over="ignore"):
            return self.beyond + self.small * float(np.exp(self.theta * (self.own - epsilon)))


def integrate(steps: Steps, epsilon: float, peaks: tuple[tuple[float, int], ...]) -> Integral | None:
    """The integral at epsilon >= 0; None if no contour was found that bounds it well.

    peaks: what `choose_parts` takes, one after the other until an integral is found.

    **Cost**: about a dozen panels of 32 nodes for each part, each a sum over some 800 nodes for each law: 5 to 15 ms.
    """
    if steps.log_delta < _LEAST:
        return None
    known: dict[Part, Integral | None] = {}
    for peak in peaks:
        deadline.check()
        chosen = choose_parts(steps, epsilon, *peak)
        if chosen is None:
            continue
        parts, theta = chosen
        for part in parts:
            deadline.check()
            if part not in known:
                known[part] = _Contour(steps, part, epsilon).integrate()
            if known[part] is None:
                break
        found = [one for part in parts if (one := known.get(part)) is not None]
        if len(found) == len(parts):
            small = _chernoff(steps, parts[-1].low, theta, epsilon)
            beyond = steps.beyond / math.exp(steps.log_delta)
            return replace(Integral.of(found), beyond=beyond, small=small, theta=theta)
    return None


def _chernoff(steps: Steps, low: float, theta: float, epsilon: float) -> float:
    """Chernoff's bound, at `theta`, of steps without a loss above `low`."""
    if low == -np.inf:
        return 0.0
    c = float(steps.exponent(np.array(theta)))
    k = float(steps.counts @ [law.log_moment(c, float(law.places(np.array(low)))) for law in steps.laws])
    return math.exp(k - theta * epsilon - steps.log_delta)


def _is_too_slow(sizes: list[float], end: float) -> bool:
    """Whether the integrand, of these sizes at the ends of the panels, would need more panels than `_MOST_PANELS`.

    It is assumed to fall four times as fast as on the last two panels.  Without this, contours that fail take half as
    long again.
    """
    if len(sizes) < _LEAST_PANELS or sizes[-1] < end:
        return False
    rate = 4.0 * 0.5 * math.log(max(sizes[-3], 1e-300) / sizes[-1])
    return rate * (_MOST_PANELS - len(sizes)) < math.log(sizes[-1] / end)


class _Bound(NamedTuple):
    """Bounds on a polygon around the centre of a panel.

    Attributes
    ----------
    log_sup : float
        log of the supremum of prod B_k^c_k |exp(-epsilon z) / (A (A - 1))| over exp(log_delta); B_k bounds |M_low|, and
        |M| of a part without `low`.
    log_centre : float
        About log_sup for the centre alone.
    log_more : float
        log of the largest ratio of |prod M_high^c - prod M_low^c| to prod B^c; 0 for a part without `low`.
    relative : ndarray, shape (laws,)
        An error of 1 in M_low is at most this, relative to B_k.
    base, mid : ndarray, shape (laws,)
        B_k, and the bound of |M_mid|, both over |M_low(centre) exp(d m_k)|.
    """

    log_sup: float
    log_centre: float
    log_more: float
    relative: NDArray
    base: NDArray
    mid: NDArray


class _Contour:
    """The contour of one part."""

    def __init__(self, steps: Steps, part: Part, epsilon: float) -> None:
        self._steps, self._part, self._epsilon = steps, part, epsilon
        self._split = part.low > -np.inf
        self._c = float(steps.exponent(np.array(part.theta)))
        # exp(-epsilon z - log_delta) = exp(offset - kappa A)
        self._kappa = epsilon if steps.remove else -epsilon
        self._offset = (epsilon if steps.remove else 0.0) - steps.log_delta

    def integrate(self) -> Integral | None:
        """The integral of this part; None if the bounds fail."""
        error = self._open()
        if not error < math.inf:
            return None
        a, step, first = complex(self._c), self._part.theta, 0.0
        tolerance, small = self._steps.tolerance, 0.1 * self._steps.tolerance
        panels: list[Integral] = []
        ends: list[float] = []
        rests = [math.inf]
        best = math.inf, 0  # the error if the vertical line begins after so many panels, and that number
        work = _NODE.size * sum(m.nodes for m in self._moments)
        for _ in range(int(min(_MOST_PANELS, _MOST_WORK / work))):
            if ends and ends[-1] < small:
                rest = self._rest(a)
                if rest < _TAKEN * tolerance:
                    best = min(best, (error + rest, len(panels)))
                if rest < tolerance or _SLOW * rests[-1] < rest < _ACCEPTED * tolerance:
                    break
                if len(rests) > _RESTS and rest > 0.7 * rests[-1]:
                    break
                rests.append(rest)
                skipped = self._skipped(a, step)
                if skipped.bound < small:
                    panels.append(skipped)
                    error += skipped.bound
                    a, step = a + step * self._direction, 2.0 * step
                    continue
            step, lost, longer = self._fit(a, step)
            if not (lost < _USELESS and step > _SHORTEST * self._part.theta):
                break
            z, terms, off = self._panel(a, step)
            reach = 0.5 * step * math.hypot(_WIDE, _TALL)
            left, right = float(z.real.min()) - reach, float(z.real.max()) + reach
            panels.append(Integral(self._epsilon, z, terms, lost + off, left, right))
            error += lost + off
            with np.errstate(invalid="ignore"):
                sizes = np.abs(terms) / step
            first = first or float(sizes.max())
            if not (float(sizes.max()) <= 1e3 * first and error < _USELESS):
                break
            a, before = a + step * self._direction, abs(a)
            step *= min(longer * (abs(a) / before) ** _GROWS, 2.0)
            ends.append(float(sizes[-1]) * abs(a))
            if _is_too_slow(ends, small):
                break
        error, number = best
        return replace(Integral.of(panels[:number]), bound=error) if number else None

    def _open(self) -> float:
        """Make the moments and the contour's direction; bound what the paths leave out, on the line Re A = c.

        Both M_high and M_low are at most exp(K(c)) there in modulus.  An error of M_mid counts for M_low, too.  The
        integral of 1 / |A (A - 1)| over half of the line is at most pi / (2 theta).
        """
        steps, part, c = self._steps, self._part, self._c
        low, high = (np.array([law.places(np.array(x)) for law in steps.laws]) for x in (part.low, part.high))
        theta, rest = np.array([part.theta]), -part.theta * self._epsilon - steps.log_delta - math.log(2.0 * part.theta)
        ends = steps.far_ends(theta, self._epsilon)[0][:, 0]
        scale = float(steps.rough_log_moments(np.array([part.high]), theta)[0, 0]) + rest
        if not (scale < _HOPELESS and np.isfinite(ends).all()):
            return math.inf
        begin = math.sqrt(
            2.0 * (max(scale, math.log(1e3 * steps.tolerance)) - math.log(steps.tolerance / steps.total) + 7.0)
        )
        laws = zip(steps.laws, low.tolist(), high.tolist(), ends.tolist(), strict=True)
        self._moments = [ComplexMoments(law.ratio, x, y, begin, end) for law, x, y, end in laws]
        k = np.array([m.log_moment(c) for m in self._moments])
        scale = float(steps.counts @ k) + rest
        shift = 0.0 if steps.remove else self._epsilon / steps.total
        slope = min(_STEEPEST, 0.5 * min(m.slope(shift) for m in self._moments))
        self._direction = complex(slope, 1.0) / math.hypot(slope, 1.0)
        left, right = np.array([m.outside(c) for m in self._moments]).T
        missing = 2.0 * left + 3.0 * right if self._split else left + right
        relative = float(steps.counts @ (missing * np.exp(-k)))
        # (1 + x)^n is at most 1 + 1.01 n x for so small an n x
        return math.exp(min(scale, 700.0)) * relative * 1.01 if relative < 1e-2 else math.inf

    def _fit(self, a: complex, step: float) -> tuple[float, float, float]:
        """The length of a panel from A whose rules err by little, their errors, and a factor for the next length.

        The log of the integrand's bound grows with the length, between linearly and quadratically.
        """
        goal, tries = math.log(0.05 * self._steps.tolerance), 0
        for _ in range(_SHRINKS):
            bound = self._bound(a, step)
            if bound is None:
                step *= 0.8
                continue
            log_error = bound.log_sup + bound.log_more + math.log(0.5 * step) + _LOG_RULE
            growth = max(bound.log_sup - bound.log_centre, 1e-3)
            longer = 0.97 * max(1.0 + (goal - log_error) / growth, 0.0) ** 0.6
            if log_error > goal:
                step *= min(max(longer, 0.6), 0.9)
                continue
            lost = self._of_paths(a, step, bound)
            tries += 1
            if lost < 0.1 * self._steps.tolerance or tries == _TRIES:
                return step, math.exp(log_error) + lost, longer
            step *= 0.4
        return step, math.inf, 1.0

    def _skipped(self, a: complex, step: float) -> Integral:
        """A panel from A without nodes: all of its integral is the error."""
        bound = self._bound(a, step, line=True)
        lost = math.inf
        if bound is not None:
            lost = math.exp(min(bound.log_sup + bound.log_more, 700.0)) * step / math.pi
            lost += self._of_paths(a, step, bound)
        left, right = sorted(self._steps.z(np.array([a, a + step * self._direction])).real.tolist())
        return Integral(self._epsilon, np.zeros(0), np.zeros(0), lost, left, right)

    def _bound(self, a: complex, step: float, *, line: bool = False) -> _Bound | None:
        """Bounds on the rectangle around the ellipse of a panel, or on its line; None if it comes near 0 or 1.

        With d = A - centre, |M_low| is at most |M_low(centre) exp(d m_k)| times what `NodeSums.around` bounds.
        prod (M_low + M_mid)^c - prod M_low^c is a polynomial with positive coefficients, so that moduli may replace all
        terms.
        """
        counts, half, direction = self._steps.counts, 0.5 * step, self._direction
        wide, tall = (1.0, 0.0) if line else (_WIDE, _TALL)
        centre, reach = a + direction * half, half * math.hypot(wide, tall)
        near = (abs(centre) - reach) * (abs(centre - 1.0) - reach)
        if min(abs(centre), abs(centre - 1.0)) <= 1.05 * reach:
            return None
        corners = (
            half * direction * np.array([complex(i * wide, j * tall) for i in (-1, 1) for j in (-1, 1)[: 2 - line]])
        )
        size, mean, base, mid = map(np.array, zip(*(m.around(centre, corners) for m in self._moments), strict=True))
        base, mid = base * (1.0 + 1e-9), mid * (1.0 + 1e-9)
        turned = np.multiply.outer(mean, corners).real
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            log_centre = float(counts @ size) + self._offset - self._kappa * centre.real
            log_sup = log_centre + float(counts @ np.log(base) + np.max(counts @ turned - self._kappa * corners.real))
            log_sup += 1e-3 - math.log(near)  # room for round-off
            log_centre -= math.log(abs(centre) * abs(centre - 1.0))
            log_more = float(np.log(np.expm1(counts @ np.log1p(mid / base)))) if self._split else 0.0
            relative = np.exp(-size - turned.min(axis=1)) / base
        if not (math.isfinite(log_sup) and log_more < 700.0):
            return None
        return _Bound(log_sup, log_centre, log_more, relative, base, mid)

    def _of_paths(self, a: complex, step: float, bound: _Bound) -> float:
        """Bound of the error of the integral over a panel from A by the paths' rule."""
        rule = np.array([m.rule_errors(a, a + step * self._direction) for m in self._moments])
        return self._rule(bound, rule) * step / math.pi

    def _rule(self, bound: _Bound, rule: NDArray) -> float:
        """Bound of the integrand's error by errors of M and M_mid, (laws, 2), at the places of a panel.

        With G = prod (M_low + M_mid)^c - prod M_low^c, the derivative by M_low is at most c / B times the bound of G,
        and that by M_mid c prod (B + N)^c / (B + N).
        """
        counts, relative = self._steps.counts, rule * bound.relative[:, None]
        with np.errstate(over="ignore"):
            if not float(counts @ relative.sum(axis=1)) < 1e-2:
                return math.inf
            lost = math.exp(bound.log_more) * float(counts @ (relative.sum(axis=1) if self._split else relative[:, 0]))
            if self._split:
                lost += (math.exp(bound.log_more) + 1.0) * float(
                    counts @ (relative[:, 1] * bound.base / (bound.base + bound.mid))
                )
            return lost * math.exp(min(bound.log_sup, 700.0)) * 1.02

    def _panel(self, a: complex, step: float) -> tuple[NDArray, NDArray, float]:
        """z and the terms at a panel's nodes, and the round-off of their sum."""
        steps, half = self._steps, 0.5 * step
        nodes = a + self._direction * half * (1.0 + _NODE)
        z = steps.z(nodes)
        log_sum, relative, parted, of_parted = np.zeros((4, nodes.size), dtype=complex)
        relative += _UNIT * (4.0 * (np.abs(self._epsilon * z) + abs(steps.log_delta)) + 60.0)
        # a moment of 0 makes the error infinite, and the attempt fails
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for n, m in zip(steps.counts, self._moments, strict=True):
                less, error, mid, of_mid = m.values(nodes)
                log_m, size = complex_log1p(less), np.abs(1.0 + less)
                log_sum += n * log_m
                relative += n * (error / size + 4.0 * _UNIT * np.abs(log_m))
                if self._split:
                    share = mid * np.exp(-log_m)
                    parted += n * complex_log1p(-share)
                    of_share = of_mid / size + np.abs(share) * (error / size + 4.0 * _UNIT)
                    of_parted += n * of_share / np.abs(1.0 - share)
            value = np.exp(log_sum - self._epsilon * z - steps.log_delta)
            off = np.abs(value) * relative.real
            if self._split:
                # prod M^c less prod M_low^c, without a loss of digits if M_mid is small
                low = np.exp(log_sum + parted - self._epsilon * z - steps.log_delta)
                close = parted.real < 1.0
                value = np.where(close, -value * complex_expm1(np.where(close, parted, 0.0)), value - low)
                off = np.where(close, np.abs(value) * relative.real, off)
                off += np.abs(low) * (of_parted.real + np.where(close, 0.0, relative.real))
            weight = half * _WEIGHT * self._direction / (nodes * (nodes - 1.0))
            return z, value * weight, float(off @ np.abs(weight)) / math.pi * 1.01

    def _rest(self, a: complex) -> float:
        """A bound of the integral along the vertical line from A on, or a rough estimate if that is too large."""
        if a.real < 1.0:
            return math.inf
        rough = self._line(a, *np.array([m.rough_beyond(a) for m in self._moments]).T)
        if not rough < _TAKEN * self._steps.tolerance:
            return rough
        return self._line(
            a,
            np.array([m.beyond(a) for m in self._moments]),
            np.array([m.above(a) for m in self._moments if self._split]),
        )

    def _line(self, a: complex, low: NDArray, mid: NDArray) -> float:
        """Bound of the integral along the vertical line from A on, by bounds of |M| and of |M_mid| there."""
        counts = self._steps.counts
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            both = float(counts @ np.log(low))
            if self._split:
                both += float(np.log(np.expm1(counts @ np.log1p(mid / low))))
            found = float(np.exp(both - self._kappa * a.real + self._offset)) / (math.pi * a.imag) * 1.01
        return math.inf if math.isnan(found) else found
