"""Mechanisms whose privacy loss takes finitely many values, and the family of such steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import validate
from .base import Direction, StepFamily, mixture_epsilon, mixture_log_delta

__all__ = [
    "ApproximateDP",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DiscreteMechanism",
    "DiscretePair",
    "DiscreteSteps",
    "PureDP",
    "RandomizedResponse",
    "on_lattice",
]

_UNIT = 2.0**-52
_SLACK = 2.0**-44  # relative width given to losses and sums, above their round-off
_MOST_ATOMS = 1_000_000
_SUM_ERROR = 1e-9
_MOST_LOSS = 600.0
_FAR = 38.7  # standard deviations beyond which exp(-x^2 / 2) is no double
_TINY = 1e-300  # mass that stands for what lies beyond


@dataclass(frozen=True)
class _Law:
    """A pair of distributions over finitely many outcomes.

    Attributes
    ----------
    loss : ndarray, shape (atoms,)
        log of the ratio of the masses with and without the record, ascending.
    with_record, without_record : ndarray, shape (atoms,)
        Both above 0.
    only_with, only_without : float
        Mass of the outcomes that are impossible in the other case.
    """

    loss: NDArray
    with_record: NDArray
    without_record: NDArray
    only_with: float = 0.0
    only_without: float = 0.0

    def reversed(self) -> _Law:
        """The pair with the two cases exchanged."""
        masses = self.without_record[::-1], self.with_record[::-1]
        return _Law(-self.loss[::-1], *masses, self.only_without, self.only_with)

    def sampled(self, rate: float) -> _Law:
        """The pair in which the record takes part with probability `rate` (Zhu, Dong and Wang 2022, Theorem 11)."""
        if rate == 1.0:
            return self
        loss = _sampled_loss(self.loss, rate)
        mixed = self.with_record * rate + self.without_record * (1.0 - rate)
        alone = self.without_record
        if self.only_without:  # without the record, or with it but not sampled
            loss = np.insert(loss, 0, np.log1p(-rate))
            mixed, alone = np.insert(mixed, 0, (1.0 - rate) * self.only_without), np.insert(alone, 0, self.only_without)
        return _Law(loss, mixed, alone, rate * self.only_with, 0.0)

    def merged(self) -> _Law:
        """The same with equal losses put together."""
        order = np.argsort(self.loss, kind="stable")
        loss, first = np.unique(self.loss[order], return_index=True)
        with_record, without = (np.add.reduceat(m[order], first) for m in (self.with_record, self.without_record))
        return _Law(loss, with_record, without, self.only_with, self.only_without)


def _sampled_loss(loss: NDArray, rate: float) -> NDArray:
    """log(1 - rate + rate exp(loss)), to a few units in the last place."""
    small = rate * np.expm1(np.minimum(loss, 700.0))
    with np.errstate(divide="ignore"):
        far_down = np.log((1.0 - rate) + rate * np.exp(np.minimum(loss, 0.0)))
    near = np.where(small > -0.5, np.log1p(np.maximum(small, -0.5)), far_down)
    far_up = loss + math.log(rate) + np.log1p((1.0 - rate) / rate * np.exp(-np.maximum(loss, 700.0)))
    return np.where(loss < 700.0, near, far_up)


def _log_ratio(p: NDArray, q: NDArray) -> NDArray:
    """log(p / q), to a few units in the last place also where both are close."""
    close = (p < 2.0 * q) & (q < 2.0 * p)
    return np.where(close, np.log1p(np.where(close, (p - q) / q, 0.0)), np.log(p) - np.log(q))


def _law_of(with_record: NDArray, without_record: NDArray) -> _Law:
    """The law of two lists of masses of the same outcomes."""
    both = (with_record > 0) & (without_record > 0)
    p, q = with_record[both], without_record[both]
    only = float(with_record[without_record == 0].sum()), float(without_record[with_record == 0].sum())
    return _Law(_log_ratio(p, q), p, q, *only).merged()


class DiscreteMechanism:
    """What mechanisms with finitely many losses share: a pair of laws, sampled or not.

    Every such mechanism has the parameter `sample_rate`: the record takes part with this probability, by a coin of its
    own (Poisson sampling).
    """

    sample_rate: float

    def _unsampled(self) -> _Law:
        raise NotImplementedError

    @cached_property
    def law(self) -> _Law:
        """The pair of distributions, with and without the record."""
        found = self._unsampled()
        if found.loss.size > _MOST_ATOMS:
            raise ValueError(f"{self!r} has more than {_MOST_ATOMS} outcomes; take a continuous mechanism instead")
        return found.sampled(self.sample_rate)

    @property
    def noise_multiplier(self) -> float:
        """The reciprocal of the largest finite loss, by which compositions sort their steps."""
        largest = float(np.abs(self.law.loss).max(initial=0.0))
        return 1.0 / largest if largest > 0 else math.inf

    def infinite_mass(self, direction: Direction) -> float:
        """Mass of one step at an infinite loss, in this direction."""
        return self.law.only_with if direction == "remove" else self.law.only_without

    @staticmethod
    def steps(mechanisms: Sequence[DiscreteMechanism], direction: Direction) -> StepFamily:
        """The family with one row for each of these mechanisms."""
        laws = [m.law if direction == "remove" else m.law.reversed() for m in mechanisms]
        return DiscreteSteps(laws, direction)


def _at_most(loss: float, name: str) -> float:
    """A loss that is small enough for its masses to be doubles."""
    if loss > _MOST_LOSS:
        raise ValueError(f"{name} must be at most {_MOST_LOSS:g}, got {loss!r}")
    return loss


def _checked_rate(mechanism: Any) -> None:
    object.__setattr__(mechanism, "sample_rate", validate.sample_rate(mechanism.sample_rate))


@dataclass(frozen=True)
class DiscretePair(DiscreteMechanism):
    """A mechanism given by two distributions over the same finitely many outcomes.

    Parameters
    ----------
    with_record, without_record : array_like, shape (outcomes,)
        Masses of the outcomes in both cases, at least 0.  They must be a dominating pair of the mechanism: of every two
        neighbours, no other pair has a larger hockey-stick divergence at any epsilon, in either direction.
    sample_rate : float
        Poisson sampling rate.

    Raises
    ------
    ValueError
        For a bad mass, or masses that do not add up to 1 within 1e-9; they are divided by their sum.

    References
    ----------
    Zhu, Dong and Wang (2022), Definition 7 for dominating pairs and Theorem 11 for sampling.

    Examples
    --------
    >>> DiscretePair([0.5, 0.3, 0.2], [0.4, 0.4, 0.2]).law.loss.round(4)
    array([-0.2877,  0.    ,  0.2231])
    """

    with_record: tuple[float, ...]
    without_record: tuple[float, ...]
    sample_rate: float = 1.0

    def __post_init__(self) -> None:
        _checked_rate(self)
        for name in ("with_record", "without_record"):
            masses = np.asarray(getattr(self, name), dtype=np.float64)
            if masses.ndim != 1 or not np.all((masses >= 0) & (masses <= 1)):
                raise ValueError(f"{name} must be a list of masses between 0 and 1")
            if not abs(float(masses.sum()) - 1.0) <= _SUM_ERROR:
                raise ValueError(f"{name} must add up to 1, got {float(masses.sum())!r}")
            object.__setattr__(self, name, tuple((masses / masses.sum()).tolist()))
        if len(self.with_record) != len(self.without_record):
            raise ValueError("with_record and without_record must be of one length")

    def _unsampled(self) -> _Law:
        return _law_of(np.array(self.with_record), np.array(self.without_record))


@dataclass(frozen=True)
class RandomizedResponse(DiscreteMechanism):
    """Randomized response among k answers: a uniform answer with probability `noise`, else the true one.

    Parameters
    ----------
    noise : float
        Probability of a uniform answer, above 0 and at most 1.
    answers : int
        k, at least 2.
    neighbours : {"replace", "special"}
        "replace": one answer is replaced by another.  "special": the record is present or its answer is uniform.
    sample_rate : float
        Poisson sampling rate.

    Notes
    -----
    The true answer has mass 1 - noise + noise / k, each other one noise / k.

    References
    ----------
    Warner (1965); Mironov (2017), Proposition 5.

    Examples
    --------
    >>> RandomizedResponse(0.5).law.loss.round(4)
    array([-1.0986,  1.0986])
    """

    noise: float
    answers: int = 2
    neighbours: str = "replace"
    sample_rate: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", validate.positive(self.noise, "noise"))
        object.__setattr__(self, "answers", validate.count(self.answers, "answers", least=2))
        if self.noise > 1.0:
            raise ValueError(f"noise must be at most 1, got {self.noise!r}")
        if self.neighbours not in ("replace", "special"):
            raise ValueError(f"neighbours must be 'replace' or 'special', got {self.neighbours!r}")
        _checked_rate(self)

    def _unsampled(self) -> _Law:
        k, other = self.answers, self.noise / self.answers
        true = 1.0 - self.noise + other
        if self.neighbours == "special":
            # the true answer against a uniform one, and k - 1 other answers
            present, uniform = np.array([(k - 1) * other, true]), np.array([(k - 1) / k, 1.0 / k])
            loss = np.array([math.log(self.noise), math.log1p((1.0 - self.noise) * (k - 1))])
            return _Law(loss, present, uniform).merged()
        c = math.log1p((1.0 - self.noise) * k / self.noise)
        masses = np.array([other, (k - 2) * other, true])
        some = masses > 0
        return _Law(np.array([-c, 0.0, c])[some], masses[some], masses[::-1][some]).merged()


@dataclass(frozen=True)
class PureDP(DiscreteMechanism):
    """Any mechanism of which nothing is known but (epsilon, 0)-DP.

    Parameters
    ----------
    epsilon : float
        Above 0.
    sample_rate : float
        Poisson sampling rate.

    References
    ----------
    Kairouz, Oh and Viswanath (2015), Theorem 3.3; Murtagh and Vadhan (2016): randomized response dominates.

    Examples
    --------
    >>> PureDP(1.0).law.with_record.round(4)
    array([0.2689, 0.7311])
    """

    epsilon: float
    sample_rate: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _at_most(validate.positive(self.epsilon, "epsilon"), "epsilon"))
        _checked_rate(self)

    def _unsampled(self) -> _Law:
        return _two_points(self.epsilon, 0.0)


@dataclass(frozen=True)
class ApproximateDP(DiscreteMechanism):
    """Any mechanism of which nothing is known but (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        At least 0.
    delta : float
        In (0, 1).
    sample_rate : float
        Poisson sampling rate.

    References
    ----------
    Kairouz, Oh and Viswanath (2015), Theorem 3.3; Murtagh and Vadhan (2016).

    Examples
    --------
    >>> ApproximateDP(1.0, 1e-6).infinite_mass("remove")
    1e-06
    """

    epsilon: float
    delta: float
    sample_rate: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _at_most(validate.nonnegative(self.epsilon, "epsilon"), "epsilon"))
        object.__setattr__(self, "delta", validate.delta(self.delta))
        _checked_rate(self)

    def _unsampled(self) -> _Law:
        return _two_points(self.epsilon, self.delta)


def _two_points(epsilon: float, delta: float) -> _Law:
    """Mass delta at infinity, and epsilon or -epsilon otherwise."""
    masses = (1.0 - delta) / (1.0 + np.exp([epsilon, -epsilon]))
    return _Law(np.array([-epsilon, epsilon]), masses, masses[::-1], delta, delta).merged()


@dataclass(frozen=True)
class DiscreteLaplace(DiscreteMechanism):
    """A whole number plus discrete Laplace (geometric) noise.

    Parameters
    ----------
    scale : float
        Noise k has mass tanh(1 / (2 scale)) exp(-abs(k) / scale).
    sensitivity : int
        The most by which one record changes the number; at least 1.
    sample_rate : float
        Poisson sampling rate.

    References
    ----------
    Ghosh, Roughgarden and Sundararajan (2012).

    Examples
    --------
    >>> DiscreteLaplace(2.0, sensitivity=2).law.loss
    array([-1.,  0.,  1.])
    """

    scale: float
    sensitivity: int = 1
    sample_rate: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", validate.positive(self.scale, "scale"))
        object.__setattr__(self, "sensitivity", validate.count(self.sensitivity, "sensitivity", least=1))
        _at_most(self.sensitivity / self.scale, "sensitivity / scale")
        _checked_rate(self)

    def _unsampled(self) -> _Law:
        a, s = 1.0 / self.scale, self.sensitivity
        k = np.arange(s + 1)
        # without the record the noise is k, with it k - s; everything at most 0, and everything at least s, is one loss
        end = 1.0 / (1.0 + math.exp(-a))
        without = math.tanh(0.5 * a) * np.exp(-a * k)
        without[0], without[-1] = end, end * math.exp(-a * s)
        return _Law(a * (2.0 * k - s), without[::-1].copy(), without).merged()


@dataclass(frozen=True)
class DiscreteGaussian(DiscreteMechanism):
    """A whole number plus discrete Gaussian noise.

    Parameters
    ----------
    noise_scale : float
        sigma: noise k has a mass proportional to exp(-k^2 / (2 sigma^2)).
    sensitivity : int
        The most by which one record changes the number; at least 1.
    bound : int, optional
        Noise beyond it does not occur; None: no bound.
    sample_rate : float
        Poisson sampling rate.

    Notes
    -----
    Without a bound, noise beyond 38.7 sigma is replaced by a mass of 1e-300 at an infinite loss.

    References
    ----------
    Canonne, Kamath and Steinke (2020).

    Examples
    --------
    >>> DiscreteGaussian(1.0, bound=2).infinite_mass("remove").__round__(4)
    0.0545
    """

    noise_scale: float
    sensitivity: int = 1
    bound: int | None = None
    sample_rate: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_scale", validate.positive(self.noise_scale, "noise_scale"))
        object.__setattr__(self, "sensitivity", validate.count(self.sensitivity, "sensitivity", least=1))
        if self.bound is not None:
            object.__setattr__(self, "bound", validate.count(self.bound, "bound", least=1))
        _checked_rate(self)

    def _unsampled(self) -> _Law:
        sigma, s = self.noise_scale, self.sensitivity
        far = math.ceil(_FAR * sigma) + s if self.bound is None else self.bound
        if 2 * far + 1 <= s:
            raise ValueError(f"bound must leave a common value to both cases, got {self.bound} for sensitivity {s}")
        if 2 * far + 1 > _MOST_ATOMS:
            raise ValueError(f"noise_scale and bound must give at most {_MOST_ATOMS} values, got {2 * far + 1}")
        k = np.arange(-far, far + 1)
        mass = np.exp(-0.5 * (k / sigma) ** 2)
        mass /= mass.sum()
        both = slice(s, None)  # values that both cases can take: with the record the noise is k - s
        p, q, at = mass[:-s], mass[both], k[both]
        some = (p > 0) & (q > 0)
        only = float(mass[max(mass.size - s, 0) :].sum())
        only = max(only, _TINY) if self.bound is None else only
        loss = (2.0 * at[some] - s) * (s / (2.0 * sigma**2))
        return _Law(loss, p[some], q[some], only, only)


class DiscreteSteps:
    """Steps with finitely many losses, given that none is infinite.

    Let m be the mass at an infinite loss.  A row is the pair under the condition that the loss is finite: its masses
    with the record are divided by 1 - m, so that its losses grow by -log(1 - m).  `Composition` adds m.

    Parameters
    ----------
    laws : sequence of _Law
        With the record first, in the direction of removal; the other way round for addition.
    direction : {"remove", "add"}
    """

    whole = True

    def __init__(self, laws: Sequence[_Law], direction: Direction) -> None:
        self.direction: Direction = direction
        self._loss, self._p, self._q, self._lost = [], [], [], []
        for law in laws:
            self._loss.append(law.loss - math.log1p(-law.only_with))
            self._p.append(law.with_record / (1.0 - law.only_with))
            self._q.append(law.without_record)
            self._lost.append(law.only_without)

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self._loss)

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """K(theta) = log1p of the sum of p expm1(theta l), rounded up, shape (size, tilts)."""
        found = np.empty((self.size, theta.size))
        for i, (loss, p) in enumerate(zip(self._loss, self._p, strict=True)):
            for j, t in enumerate(theta.tolist()):
                top = max(t * float(loss[-1]), 0.0)
                if top < 600.0:
                    terms = p * np.expm1(t * loss)
                    size = float((np.abs(terms) + p * np.abs(t * loss)).sum())
                    found[i, j] = np.log1p(terms.sum() + (16.0 + np.log2(loss.size + 1)) * _UNIT * size)
                else:
                    value = top + np.log((p * np.exp(t * loss - top)).sum())
                    found[i, j] = value + 8.0 * _UNIT * (top + loss.size)
                found[i, j] = min(found[i, j] + 8.0 * _UNIT * abs(found[i, j]), top * (1.0 + 8.0 * _UNIT))
        return found

    def _delta(self, epsilon: float, row: int, side: float) -> float:
        """sum p (1 - exp(epsilon - l))+, rounded down or up by `side`."""
        start = int(np.searchsorted(self._loss[row], epsilon - max(side, 0.0) * 4.0 * _SLACK * abs(epsilon)))
        loss = self._loss[row][start:]
        exponent = np.minimum(epsilon - loss - side * _SLACK * (abs(epsilon) + np.abs(loss)), 0.0)
        total = float((self._p[row][start:] * -np.expm1(exponent)).sum())
        return min(total * (1.0 + side * _SLACK), 1.0)

    def _log_delta(self, epsilon: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        pairs = list(zip(epsilon.tolist(), row.tolist(), strict=True))
        with np.errstate(divide="ignore"):
            lower, upper = (np.log([self._delta(e, i, side) for e, i in pairs]) for side in (-1.0, 1.0))
        return lower, upper

    def log_delta_of_step(
        self, epsilon: NDArray, row: NDArray, lower_row: NDArray | None = None, weight: NDArray | None = None
    ) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`."""
        if lower_row is None or weight is None:
            return self._log_delta(epsilon, row)
        lower, upper = (self._log_delta(epsilon, at) for at in (lower_row, row))
        return mixture_log_delta(lower, upper, weight, lower_row >= 0)

    def epsilon_of_step(
        self, delta: NDArray, row: NDArray, lower_row: NDArray | None = None, weight: NDArray | None = None
    ) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`."""
        top = np.maximum(self.largest_loss()[row], 0.0)

        def bounds(epsilon: NDArray) -> tuple[NDArray, NDArray]:
            return self.log_delta_of_step(epsilon, row, lower_row, weight)

        return mixture_epsilon(bounds, np.log(delta), np.zeros(top.shape), top)

    def largest_loss(self) -> NDArray:
        """The last loss, rounded up."""
        last = np.array([loss[-1] for loss in self._loss])
        return last + _SLACK * np.abs(last)

    def surely_lost(self, deviations: NDArray) -> NDArray:
        """The largest loss l with P(L >= l) >= Phi(-deviations)."""
        from scipy import special

        found = np.empty((self.size, deviations.size))
        needed = special.ndtr(-deviations) * (1.0 + 1e-9)
        for i, (loss, p) in enumerate(zip(self._loss, self._p, strict=True)):
            above = np.cumsum(p[::-1])
            place = np.minimum(np.searchsorted(above, needed), loss.size - 1)
            found[i] = loss[::-1][place] - _SLACK * np.abs(loss).max()
        return found

    def gaussian_mu(self) -> NDArray:
        """2 Phi^-1(1 / (1 + exp(-c))), c the largest absolute loss; inf if an outcome cannot occur with the record."""
        from scipy import special

        c = np.array([np.abs(loss).max() for loss in self._loss])
        mu = -2.0 * special.ndtri(1.0 / (1.0 + np.exp(np.minimum(c, 700.0)))) * (1.0 + 1e-12) + 1e-300
        return np.where((np.array(self._lost) > 0.0) | (c > 700.0), np.inf, mu)

    def masses(self, row: int, knots: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`; an atom at a knot belongs to the cell on its right, the last knot to the last cell."""
        ends = np.searchsorted(self._loss[row], [knots[0], np.nextafter(knots[-1], np.inf)])
        loss, p = (array[slice(*ends)] for array in (self._loss[row], self._p[row]))
        cell = np.minimum(np.searchsorted(knots, loss, side="right") - 1, knots.size - 2)
        of_u = p * -np.expm1(np.minimum(knots[cell] - loss, 0.0))
        whole, part = (np.bincount(cell, weights=w, minlength=knots.size - 1) for w in (p, of_u))
        return whole, np.clip(part, 0.0, whole)

    def losses(self, row: int, reach: float, number: int) -> NDArray:
        """Losses even between the smallest and the largest."""
        return np.linspace(*self.range_of_losses(row, reach, 1.0), number)

    def typical_loss(self, row: int) -> float:
        """The loss with the largest mass."""
        return float(self._loss[row][int(np.argmax(self._p[row]))])

    def range_of_losses(self, row: int, reach: float, theta: float) -> tuple[float, float]:
        """All losses."""
        loss = self._loss[row]
        wider = _SLACK * float(np.abs(loss).max()) + 1e-12
        return float(loss[0]) - wider, float(loss[-1]) + wider

    def loss_roundoff(self, counts: NDArray, depth: int) -> tuple[float, float]:
        """See `base.StepFamily`; no loss is below -c, so that sum |l_i| <= |sum l_i| + 2 sum c_i."""
        rounding = 2.0**-53 * (4.0 * depth + 64.0)
        c = np.array([np.abs(loss).max() for loss in self._loss])
        return rounding, 3.0 * rounding * float(counts @ c)

    def truncated(self, reach: float) -> StepFamily:
        """The steps themselves: their losses are bounded."""
        return self


_MOST_POINTS = 60_000  # of a composed law: about a second
_TRIMMED = 1e-130  # mass of a point at an end that is left out
_LEFT_OUT = 1e-110  # more than all masses that are left out
_OFF = 1e-9  # of the spacing: how far a loss may lie from the lattice


class LatticeLaw:
    """The composition of steps whose losses lie on one lattice: its masses are sums of products, without a grid.

    Attributes
    ----------
    steps : DiscreteSteps
        One row: the composed loss.
    shift : float
        How far a composed loss may lie from the true one.
    error : float
        Relative error of the masses.
    """

    def __init__(self, steps: DiscreteSteps, shift: float, error: float) -> None:
        self._steps, self._shift, self._error = steps, shift, error

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Lower and upper delta(epsilon)."""
        lower = self._steps._delta(epsilon + self._shift, 0, -1.0) * (1.0 - self._error)
        upper = self._steps._delta(epsilon - self._shift, 0, 1.0) * (1.0 + self._error) + _LEFT_OUT
        return lower, min(upper, 1.0)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Lower and upper epsilon(delta); an upper one of inf if delta is too small."""
        top = float(self._steps.largest_loss()[0]) + self._shift
        ends = []
        for side in (0, 1):
            low, high = 0.0, max(top, 0.0)
            if self.delta(low)[side] <= delta:
                high = low
            elif self.delta(high)[side] > delta:
                low, high = high, math.inf
            for _ in range(60):
                middle = 0.5 * (low + high)
                if not low < middle < high or high == math.inf:
                    break
                low, high = (middle, high) if self.delta(middle)[side] > delta else (low, middle)
            ends.append((low, high)[side])
        return ends[0], ends[1]


def on_lattice(steps: DiscreteSteps, counts: NDArray) -> LatticeLaw | None:
    """The composition of `counts` steps of each row, or None if it has no common lattice or too many points."""
    used = np.flatnonzero(counts)
    gaps = [np.diff(steps._loss[i]).min(initial=np.inf) for i in used]
    spacing = float(min(gaps, default=np.inf))
    spacing = 1.0 if spacing == np.inf else spacing  # no step has two losses
    masses, base, off, points = np.ones(1), 0.0, 0.0, 1
    for i, n in zip(used.tolist(), counts[used].tolist(), strict=True):
        loss, p = steps._loss[i], steps._p[i]
        place = np.rint((loss - loss[0]) / spacing).astype(np.int64)
        missed = float(np.abs(loss - loss[0] - place * spacing).max())
        if missed > _OFF * spacing or int(place[-1]) * n > 50 * _MOST_POINTS:
            return None
        one = np.zeros(int(place[-1]) + 1)
        one[place] = p
        whole, start = _power(one, n)
        if whole.size + masses.size > _MOST_POINTS:
            return None
        masses = np.convolve(masses, whole)
        base += n * float(loss[0]) + start * spacing
        off += n * (missed + _SLACK * float(np.abs(loss).max()))
        points += int(place[-1]) * n
    some = np.flatnonzero(masses)
    shift = off + _SLACK * (abs(base) + points * spacing)
    composed = DiscreteSteps([_Law(base + spacing * some, masses[some], masses[some])], steps.direction)
    # relative errors add in products: n of them, and the length of the sums at each doubling
    error = _UNIT * (points + 16.0 * float(counts.sum())) * (4.0 + math.log2(float(counts.max())))
    return LatticeLaw(composed, shift, error)


def _power(one: NDArray, n: int) -> tuple[NDArray, int]:
    """The n-fold convolution of masses without its negligible ends, and the place of its first element."""
    whole, start, square, first = np.ones(1), 0, one, 0
    while True:
        if n & 1:
            whole, cut = _trim(np.convolve(whole, square))
            start += first + cut
        n >>= 1
        if not n:
            return whole, start
        if square.size > _MOST_POINTS:
            return np.zeros(_MOST_POINTS + 1), 0
        square, cut = _trim(np.convolve(square, square))
        first = 2 * first + cut


def _trim(masses: NDArray) -> tuple[NDArray, int]:
    kept = np.flatnonzero(masses > _TRIMMED)
    return masses[kept[0] : kept[-1] + 1], int(kept[0])
