"""Trade-off functions: the errors of any test whether one person's record was used, from every notion of privacy.

A test sees the output and decides between "the record is not there" (the null hypothesis) and "it is there".  alpha is
its type I error, the rate of false positives.  The trade-off function f(alpha) is the smallest type II error that a
test can have; 1 - f(alpha) is the largest rate of true positives.  The larger f, the more privacy.

Every function here rounds f down, so that its promise holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import validate
from ._rounding import LARGEST, in_range, plain

__all__ = ["Curve", "ProfileCurve", "tradeoff_of_dp", "tradeoff_of_gdp", "tradeoff_of_rdp", "tradeoff_of_zcdp"]

_UNIT = 2.0**-50
_FARTHEST = 700.0  # epsilons at which exp neither overflows nor underflows
_MOST = 60  # rounds of evaluations
_CLOSE = 1e-5  # the wanted relative distance of the bounds
_LOOSE = 1e-3  # bounds this far apart have their maxima at different places
_NEAR = 1e-7  # relative distance of two points below which nothing is gained
_HALVINGS = 60
_OFFSETS = 0, 1, 2, 3, 8, 32, 128, 512  # of points that are looked at beside the best one
_SEARCHES = 9  # halvings of intervals of several epsilons: the last ones are a hundredth wide
_SHARES = (0.25, 0.5, 1.0)  # of -log alpha: epsilons that a search begins with
_BEGINNINGS = 4  # alphas whose epsilons these are, of several
_LITTLE = 1e-3  # of alpha: a delta that changes nothing
_ORDERS = 1.0 + 2.0 ** (0.25 * np.arange(-48, 81))

Curve = Callable[[list[float], bool], Sequence[tuple[float, float]]]
"""Lower and upper delta at several epsilons; the second argument says whether wider bounds are enough."""


def _levels(alpha: Any) -> NDArray:
    a = validate.numbers(alpha, "alpha") + 0.0  # no -0
    if not np.all((a >= 0.0) & (a <= 1.0)):
        raise ValueError(f"alpha must lie in [0, 1], got {alpha!r}")
    return a


def _inside(a: NDArray) -> NDArray:
    """alpha, or any number where it is 0 or 1."""
    return np.where((a > 0.0) & (a < 1.0), a, 0.5)


def _with_ends(a: NDArray, found: NDArray) -> Any:
    """The trade-off at alpha: 1 at 0, where no loss is infinite, and 0 at 1."""
    return plain(np.where(a == 0.0, 1.0, np.where(a == 1.0, 0.0, found)))


def tradeoff_of_dp(alpha: Any, epsilon: Any, delta: Any = 0.0) -> Any:
    """The trade-off function that (epsilon, delta)-DP guarantees.

    Parameters
    ----------
    alpha : float or ndarray
        Rates of false positives, in [0, 1].
    epsilon : float or ndarray
        At least 0, inf allowed; broadcast.  The upper bounds of many people are taken as they are.
    delta : float or ndarray
        In [0, 1); broadcast.

    Returns
    -------
    float or ndarray
        max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)): a lower bound of the smallest type II
        error, which some (epsilon, delta)-DP mechanism attains.

    Raises
    ------
    ValueError
        For arguments outside their ranges.

    **Error**: rounded down, by about 1e-15 of its largest term.

    References
    ----------
    Wasserman and Zhou (2010); Kairouz, Oh and Viswanath (2015), Theorem 2.1; Dong, Roth and Su (2022), Proposition 3.

    Examples
    --------
    >>> f"{1 - tradeoff_of_dp(0.01, 1.0, 1e-5):.5f}"
    '0.02719'
    """
    a, e = _levels(alpha), _any(epsilon)
    rest = 1.0 - in_range(delta, "delta", 0, 1)
    with np.errstate(over="ignore"):
        grown = np.exp(e) * np.where(a > 0.0, a, 1.0) * (1.0 + _UNIT * (1.0 + np.minimum(e, 1e9)))
        first = rest - np.where((a > 0.0) | (e == np.inf), grown, 0.0) - _UNIT
    second = np.exp(-e) * (1.0 - _UNIT * (1.0 + np.minimum(e, 1e9))) * (rest - a - _UNIT)
    return plain(np.maximum(np.maximum(first, second), 0.0))


def _any(epsilon: Any) -> NDArray:
    e = validate.numbers(epsilon, "epsilon")
    if not np.all(e >= 0):
        raise ValueError(f"epsilon must be at least 0, got {epsilon!r}")
    return e


def tradeoff_of_gdp(alpha: Any, mu: Any) -> Any:
    """The trade-off function of mu-Gaussian DP, Phi(Phi^-1(1 - alpha) - mu), rounded down.

    Parameters
    ----------
    alpha : float or ndarray
        In [0, 1].
    mu : float or ndarray
        At least 0; broadcast.

    References
    ----------
    Dong, Roth and Su (2022), Definition 3.

    Examples
    --------
    >>> f"{1 - tradeoff_of_gdp(0.01, 1.0):.4f}"
    '0.0924'
    """
    from scipy import special

    a, m = _levels(alpha), in_range(mu, "mu", 0)
    z = -special.ndtri(_inside(a))
    # ndtri and ndtr are good to a few units; 1e-12 is the margin of `gdp` too
    return _with_ends(a, special.ndtr(z - m - 1e-12 * (1.0 + np.abs(z) + m)) * (1.0 - 1e-12))


def tradeoff_of_rdp(alpha: Any, order: Any, rho: Any) -> Any:
    """A trade-off function that Renyi DP guarantees: both directions of (order, rho)-RDP.

    Parameters
    ----------
    alpha : float or ndarray
        In [0, 1].
    order : float or ndarray
        Above 1; broadcast.  The largest result over several orders also holds.
    rho : float or ndarray
        Renyi divergence of that order in both directions, at least 0; broadcast.

    Returns
    -------
    float or ndarray
        The smallest type II error whose Bernoulli laws have a Renyi divergence of at most rho, rounded down.

    Raises
    ------
    ValueError
        For arguments outside their ranges.

    Notes
    -----
    A test is post-processing of the output into one bit.  The Renyi divergence of the bit's two laws,
    Bernoulli(1 - beta) and Bernoulli(alpha), is then at most rho, and so is the reversed one.  At one order nothing
    is lost: each pair of such laws is itself a mechanism.

    **Error**: rounded down; relative about 1e-12.

    References
    ----------
    van Erven and Harremoes (2014), Theorem 9 (data processing); Asoodeh, Liao, Calmon, Kosut and Sankar (2021).

    Examples
    --------
    >>> f"{1 - tradeoff_of_rdp(0.01, 8.0, 8 * 0.5):.4f}"
    '0.5889'
    """
    levels, r = _levels(alpha), in_range(rho, "rho", 0)
    x = in_range(order, "alpha", 1, open_low=True)
    a, x, r = np.broadcast_arrays(_inside(levels), x, r)
    goal = (x - 1.0) * r
    log_a, log_rest = np.log(a), np.log1p(-a)

    def excluded(beta: NDArray) -> NDArray:
        """Whether some direction's divergence surely exceeds rho."""
        b, c = np.log(beta), np.log1p(-beta)
        size = 2.0**-46 * (1.0 + x * (np.abs(b) + np.abs(c) + np.abs(log_a) + np.abs(log_rest)))
        forth = np.logaddexp(x * c + (1.0 - x) * log_a, x * b + (1.0 - x) * log_rest)
        back = np.logaddexp(x * log_a + (1.0 - x) * c, x * log_rest + (1.0 - x) * b)
        return np.maximum(forth, back) - size > goal

    low, high = np.full(a.shape, 1e-300), 1.0 - a
    for _ in range(_HALVINGS):
        middle = np.clip(np.sqrt(low) * np.sqrt(high), 1e-300, 1.0 - 2.0**-53)
        out = excluded(middle)
        low, high = np.where(out, middle, low), np.where(out, high, middle)
    return _with_ends(np.broadcast_to(levels, a.shape), np.where(low > 1e-300, np.minimum(low, 1.0 - a), 0.0))


def tradeoff_of_zcdp(alpha: Any, rho: Any) -> Any:
    """A trade-off function that rho-zCDP guarantees: the largest of `tradeoff_of_rdp` over many orders, rounded down.

    Parameters
    ----------
    alpha : float or ndarray
        In [0, 1].
    rho : float or ndarray
        At least 0; broadcast.

    Notes
    -----
    Each order gives a bound, and so does their largest.  It may lie below the best bound: a test must satisfy all
    orders at once, and only a grid of them is tried.

    References
    ----------
    Bun and Steinke (2016), Definition 1.1; `tradeoff_of_rdp`.

    Examples
    --------
    >>> f"{1 - tradeoff_of_zcdp(0.01, 0.5):.4f} {1 - tradeoff_of_gdp(0.01, 1.0):.4f}"
    '0.1247 0.0924'
    """
    a, r = np.broadcast_arrays(_levels(alpha), in_range(rho, "rho", 0))
    found = tradeoff_of_rdp(a[..., None], _ORDERS, np.minimum(_ORDERS * r[..., None] * (1.0 + _UNIT), LARGEST / 2))
    return plain(np.max(found, axis=-1))


class ProfileCurve:
    """The trade-off function of one pair (P, Q), from two-sided bounds of its hockey-stick curve.

    Parameters
    ----------
    forth, back : callable
        Give lower and upper delta at several epsilons >= 0, of (P, Q) and of (Q, P); the second argument says whether
        wider bounds, which are there sooner, are enough.

    Notes
    -----
    With lambda = e^epsilon and H the hockey-stick divergence of P from Q, convex duality (Dong, Roth and Su 2022,
    Proposition 6) gives, over all real epsilons,

        f(alpha) = max of 1 - H(lambda) - lambda alpha.

    - A maximum over some epsilons, with upper bounds of H, is a lower bound of f.
    - H is convex in lambda, so it lies above the extensions of its chords.  Between two epsilons the extensions from
      both sides, with lower bounds of H inside and upper bounds outside, bound the maximum from above.  The next
      epsilon is where this upper bound is largest.
    - Wide bounds of H come first.  Close ones take their place next to the maximum if the wide ones decide the width.

    A rate of true positives, the minimum of H(lambda) + lambda alpha, is computed in the same way.

    **Error**: bounds are a relative 1e-5 apart, or twice as far as those of the curve where these are further apart; an
    absolute 2^-50 (1 + epsilon) for rates of true positives.
    """

    def __init__(self, forth: Curve, back: Curve) -> None:
        self._forth, self._back = forth, back
        self._found: dict[float, tuple[float, float]] = {}
        self._wide: set[float] = set()

    def type_two(self, alphas: Sequence[float]) -> list[tuple[float, float]]:
        """Lower and upper bound of f at each of several alphas in (0, 1)."""
        found = self._largest(alphas, self._one_minus, 0.0)
        return [(max(low, 0.0), min(max(high, 0.0), 1.0 - a + _UNIT, 1.0)) for a, (low, high) in found]

    def true_positives(self, alphas: Sequence[float]) -> list[tuple[float, float]]:
        """Lower and upper bound of 1 - f at each of several alphas in (0, 1)."""
        found = self._largest(alphas, self._negated, -1.0)
        return [(max(-high, a * (1.0 - _UNIT)), min(-low, 1.0)) for a, (low, high) in found]

    def _ask(self, epsilons: Iterable[float], *, wide: bool) -> None:
        """Bounds of delta at these epsilons: wide ones where nothing is known, or close ones."""
        new = {e for e in epsilons if e not in self._found} if wide else set(epsilons)
        for curve, some in ((self._forth, {e for e in new if e >= 0.0}), (self._back, {e for e in new if e < 0.0})):
            order = sorted(some)
            for e, (low, high) in zip(order, curve([abs(e) for e in order], wide) if order else [], strict=True):
                self._found[e] = max(low, 0.0), min(high, 1.0)
        self._wide = self._wide | new if wide else self._wide - new

    def _one_minus(self, epsilon: float) -> tuple[float, float]:
        """1 - H: concave, and lambda times its slope is at most itself, so the rounding of lambda is relative."""
        low, high = self._found[epsilon]
        scale = np.exp(min(epsilon, 0.0))
        slack = _UNIT * (2.0 + abs(epsilon))
        return scale * (1.0 - high) * (1.0 - slack), scale * (1.0 - low) * (1.0 + slack)

    def _negated(self, epsilon: float) -> tuple[float, float]:
        """-H; lambda times its slope is a probability of Q times lambda, at most 1."""
        low, high = self._found[epsilon]
        slack = _UNIT * (1.0 + abs(epsilon))
        if epsilon < 0.0:
            rest, scale = -np.expm1(epsilon), np.exp(epsilon)
            low, high = rest + scale * low, rest + scale * high
        return -high - slack, -low + slack

    def _begin(self, alphas: Sequence[float]) -> None:
        """Ask where searches begin: on both sides, as far as delta is not far below alpha, for some of the alphas."""
        self._ask([0.0], wide=True)
        some = sorted(alphas)[:: max(len(alphas) // _BEGINNINGS, 1)]
        far = {(side * min(max(-math.log(a), 1.0), _FARTHEST), a) for a in some for side in (-1.0, 1.0)}
        for share in _SHARES:
            self._ask([share * end for end, _ in far], wide=True)
            far = {(end, a) for end, a in far if self._found[share * end][1] > _LITTLE * a}

    def _largest(
        self, alphas: Sequence[float], at: Callable[[float], tuple[float, float]], start: float
    ) -> list[tuple[float, tuple[float, float]]]:
        """Each alpha, with bounds of the largest A(lambda) - lambda alpha, A concave with A(0) = start, A <= start + 1.

        The searches for all alphas go on side by side, so that their epsilons are asked together.
        """
        if not alphas:
            return []
        self._begin(alphas)
        found: dict[float, tuple[float, float]] = {}
        left = sorted(set(alphas))
        for rounds in range(_MOST):
            points = np.array(sorted(self._found))
            values = np.array([at(e) for e in points.tolist()])
            new: set[float] = set()
            wide: set[float] = set()
            for alpha in left:
                one = _Maximum(points, values, alpha, start)
                if not one.close and rounds < _MOST - 1:
                    if one.goes_on:
                        # another search's point serves as well
                        if all(abs(one.place - e) >= _NEAR for e in new):
                            new.add(one.place)
                        continue
                    if some := self._wide.intersection(one.nearest):
                        wide |= some
                        continue
                # bounds of the curve that lie far apart have their maxima at different places
                lower = max(one.lower, self._searched(one.epsilons, alpha, at)) if one.loose else one.lower
                found[alpha] = lower, one.rounded_up()
            left = [alpha for alpha in left if alpha not in found]
            if not left:
                break
            self._ask(new, wide=True)
            self._ask(wide, wide=False)
        return [(alpha, found[alpha]) for alpha in alphas]

    def _searched(self, epsilons: list[float], alpha: float, at: Callable[[float], tuple[float, float]]) -> float:
        """The largest lower bound found by halving the intervals beside the largest known one."""

        def value(epsilon: float) -> float:
            self._ask([epsilon], wide=True)
            return at(epsilon)[0] - float(np.exp(epsilon)) * alpha * (1.0 + _UNIT)

        known = {epsilon: value(epsilon) for epsilon in epsilons}
        for _ in range(_SEARCHES):
            best = max(known, key=known.__getitem__)
            order = sorted(known)
            place = order.index(best)
            beside = [order[i] for i in (place - 1, place + 1) if 0 <= i < len(order)]
            known |= {middle: value(middle) for middle in (0.5 * (best + other) for other in beside)}
        best = max(known, key=known.__getitem__)
        self._ask(self._wide.intersection([best]), wide=False)
        return max(known[best], value(best))


class _Maximum:
    """Bounds of the largest A(lambda) - lambda alpha from bounds of A at some points, and where to ask next.

    Parameters
    ----------
    points, values : ndarray, shapes (points,) and (points, 2)
        Ascending log lambda, and bounds of A there.
    alpha, start : float

    Attributes
    ----------
    epsilons : list of float
        The points beside the largest lower bound, fewer of the far ones, from which the upper bound follows.
    lower, upper : float
    place : float
        The point at which `upper` is reached; -inf at lambda = 0.
    nearest : list of float
        The known points on both sides of it, or one.
    """

    def __init__(self, points: NDArray, values: NDArray, alpha: float, start: float) -> None:
        shifted = values[:, 0] - np.exp(points) * alpha * (1.0 + _UNIT)
        best, last = int(np.argmax(shifted)), points.size - 1
        chosen = {min(max(best + side * offset, 0), last) for side in (-1, 1) for offset in _OFFSETS}
        while True:
            some = sorted(chosen)
            places = np.concatenate([[0.0], np.exp(points[some])])
            ends = np.concatenate([[(start, start)], values[some]])
            self._given = places.tolist(), ends[:, 0].tolist(), ends[:, 1].tolist(), alpha, start + 1.0
            self.upper, place = _envelope(*self._given)
            self.place = float(np.clip(np.log(place), -_FARTHEST, _FARTHEST)) if place > 0.0 else -np.inf
            after = int(np.searchsorted(points, self.place))
            beside = {min(max(after - 1, 0), last), min(after, last)}
            if beside <= chosen:
                break
            chosen |= beside
        self.epsilons = points[some].tolist()
        self.lower = max(start, float(shifted[best]))
        near = [1 + some.index(k) for k in sorted(beside)]
        self.nearest = [self.epsilons[i - 1] for i in near]
        apart = self.upper - self.lower
        size = min(abs(self.lower), abs(self.upper))
        self.close, self.loose = apart <= _CLOSE * size, apart > _LOOSE * size
        stuck = apart <= 2.0 * float(np.max(ends[near, 1] - ends[near, 0]))
        # at far smaller lambda, A may be known to more digits than its round-off at these points
        below = self.lower == start and self.place < points[0]
        self.goes_on = (below or not stuck) and place > 0.0 and float(np.min(np.abs(points - self.place))) >= _NEAR

    def rounded_up(self) -> float:
        """The upper bound without the round-off of doubles, which lose digits where two lines meet."""
        *lines, alpha, top = self._given
        x, low, high = ([Fraction(number) for number in numbers] for numbers in lines)
        upper = float(_envelope(x, low, high, Fraction(alpha), Fraction(top))[0])
        return upper + _UNIT * abs(upper)


_Number = TypeVar("_Number", float, Fraction)


def _envelope(
    places: Sequence[_Number], low: Sequence[_Number], high: Sequence[_Number], alpha: _Number, top: _Number
) -> tuple[_Number, _Number]:
    """The largest upper bound of A(lambda) - lambda alpha, and the lambda at which it is reached.

    A is concave and rises by at most 1 a unit and to `top`; places ascend from 0.  Fractions give it without round-off.
    """
    zero = places[0]
    best, where, one = top - 2, zero, zero + 1

    def keep(value: _Number, z: _Number) -> None:
        nonlocal best, where
        if value > best:
            best, where = value, z

    last = len(places) - 1
    for i, x in enumerate(places):
        slope = one
        if i:
            slope = max(min((high[i] - low[i - 1]) / (x - places[i - 1]), one), zero)
        if i == last:
            keep(high[i] - x * alpha, x)
            if slope > alpha:
                reach = x + (top - high[i]) / slope
                keep(top - reach * alpha, reach)
            break
        y, back = places[i + 1], zero
        if i + 1 < last:
            back = max((low[i + 2] - high[i + 1]) / (places[i + 2] - y), zero)
        corners = [x, y]  # and where two of the three lines meet
        if slope > back:
            corners.append((high[i + 1] - back * y - high[i] + slope * x) / (slope - back))
        if slope > 0:
            corners.append(x + (top - high[i]) / slope)
        if back > 0:
            corners.append(y - (high[i + 1] - top) / back)
        for corner in corners:
            z = min(max(corner, x), y)
            keep(min(high[i] + slope * (z - x), high[i + 1] - back * (y - z), top) - z * alpha, z)
    return best, where
