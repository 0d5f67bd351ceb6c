"""The exponential mechanism, by its bounded range, and the family of such steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import validate
from .base import Direction, Mechanism
from .bounded_law import BoundedLaw
from .bounded_range_run import BoundedRangeRun
from .discrete import Discrete, DiscreteLaw
from .laplace import LaplaceSteps

__all__ = ["BoundedRangeSteps", "ExponentialMechanism"]

_UNIT = 2.0**-52
_SLACK = 2.0**-44
_LARGEST_RANGE = 1e6  # of the two-point pairs; a shorter range gives a valid lower bound
_NEARER = 2.0**-40  # by which the two-point pairs' range is shorter, for its round-off


@dataclass(frozen=True)
class ExponentialMechanism:
    """The exponential mechanism, or any other whose losses lie in an interval of length epsilon (bounded range).

    Parameters
    ----------
    epsilon : float
        The range, between 1e-100 and 1e100: its likelihood ratios of one outcome and another differ by exp(epsilon) at
        most.  With scores of sensitivity s, probabilities proportional to exp(epsilon score / (2 s)) have it; for
        scores that change in one direction only, exp(epsilon score / s).

    Raises
    ------
    ValueError
        For an epsilon out of range.

    Notes
    -----
    For one step, delta(x) = (1 - exp((x - epsilon) / 2))^2 / (1 - exp(-epsilon)): the largest over the two-point pairs
    with losses t and t - epsilon, which are the worst (Dong, Durfee and Rogers).  The pair with this curve has a loss l
    of density exp((l - epsilon) / 2) / (2 - 2 exp(-epsilon)) on [-epsilon, epsilon].

    Upper bounds of several steps are those of the worst adaptive choice of t in up to 128 steps (`bounded_range_run`),
    composed; they hold for steps that are chosen after the outcomes of others.  Lower bounds are those of a two-point
    pair with the same t in every step, the best t that a search finds: what steps fixed in advance may cost.  For n
    equal steps alone it looks at the stationary t = (x + j epsilon) / (n + 1) of Dong, Durfee and Rogers, too.  In all
    cases tried, from 2 to 10^5 steps with epsilon up to 100, the two bounds of epsilon are at most 8 % apart; in most
    of them, 1 to 2 %.

    References
    ----------
    Durfee and Rogers (2019); Dong, Durfee and Rogers (2020), Section 4; Zhu, Dong and Wang (2022), Theorem 10; Vadhan
    and Zhang (2023).

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> round(compose([(ExponentialMechanism(1.0), 1)]).delta(0.0).upper, 6)
    0.244919
    """

    epsilon: float
    symmetric = True

    def __post_init__(self) -> None:
        epsilon = validate.positive(self.epsilon, "epsilon")
        if not 1e-100 <= epsilon <= 1e100:
            raise ValueError(f"epsilon must lie between 1e-100 and 1e100, got {epsilon}")
        object.__setattr__(self, "epsilon", epsilon)

    @property
    def noise_multiplier(self) -> float:
        """1 / epsilon, by which compositions sort."""
        return 1.0 / self.epsilon

    def above(self, steps: int) -> list[tuple[Mechanism, int]]:
        """See `base.SeveralPairs`: runs of equal lengths, or lengths that differ by one."""
        runs = math.ceil(steps / max(BoundedRangeRun.longest(self.epsilon), 1))
        size, rest = divmod(steps, runs)
        lengths = [(size, runs - rest), (size + 1, rest)]
        return [(BoundedRangeRun(self.epsilon, n) if n > 1 else self, count) for n, count in lengths if count]

    def pair(self, share: float) -> TwoPoints:
        """See `base.SeveralPairs`."""
        return TwoPoints(min(self.epsilon * (1.0 - _NEARER), _LARGEST_RANGE), share)

    @staticmethod
    def steps(mechanisms: Sequence[ExponentialMechanism], direction: Direction) -> BoundedRangeSteps:
        """The family with one row for each of these mechanisms."""
        return BoundedRangeSteps(1.0 / np.array([m.epsilon for m in mechanisms]), direction)


@dataclass(frozen=True)
class TwoPoints(Discrete):
    """The pair with losses t and t - epsilon under removal, t a share of epsilon; `ExponentialMechanism` makes it."""

    epsilon: float
    share: float

    @property
    def noise_multiplier(self) -> float:
        """1 over the larger loss, by which compositions sort."""
        return 1.0 / (self.epsilon * max(self.share, 1.0 - self.share))

    def law(self, direction: Direction) -> DiscreteLaw:
        """The loss is t with mass (1 - e^(t - c)) / (1 - e^-c); in the other direction t is c - t."""
        c, t = self.epsilon, self.epsilon * (self.share if direction == "remove" else 1.0 - self.share)
        low, high = math.exp(t - c) * math.expm1(-t), math.expm1(t - c)
        return DiscreteLaw(np.array([t - c, t]), np.array([low, high]) / math.expm1(-c), 0.0, False)


class BoundedRangeSteps(LaplaceSteps):
    """The Laplace mechanism's losses between its atoms, scaled to a mass of 1; see `ExponentialMechanism`.

    Parameters
    ----------
    noise_multiplier : ndarray, shape (size,)
        1 / epsilon.
    direction : {"remove", "add"}
        Without effect on the losses.
    """

    def law(self, row: int) -> BoundedLaw:
        """See `LawSteps`."""
        return BoundedLaw(float(self._cap[row]), atoms=False)

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """K(theta) = f((theta + 1/2) c) - f(c / 2), f(x) = log(sinh(x) / x), rounded up: (size, tilts).

        If `exact`, the largest of the two-point pairs at each order, which is smaller than that of the pair above.
        """
        c = self._cap[:, None]
        if exact:
            return np.minimum(_two_point_moments(theta, c), self.log_moments(theta))
        high, low = _log_sinhc((theta + 0.5) * c), _log_sinhc(0.5 * c)
        return np.minimum(high - low + 32.0 * _UNIT * (high + low), theta * c * (1.0 + 4.0 * _UNIT))

    def epsilon_of_step(self, delta: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`."""
        c = self._cap[row]
        change = 2.0 * np.log1p(-np.minimum(np.sqrt(delta * -np.expm1(-c)), 1.0 - _UNIT))
        error = _SLACK * (c - change)
        return np.maximum(c + change - error, 0.0), np.maximum(c + change + error, 0.0)

    def log_delta_of_step(self, epsilon: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        ends, cap = [], self._cap[row]
        for side in (-1.0, 1.0):
            exponent = 0.5 * (epsilon - cap) - side * _SLACK * (epsilon + cap)
            with np.errstate(divide="ignore"):
                value = 2.0 * np.log(np.maximum(-np.expm1(np.minimum(exponent, 0.0)), 0.0)) - np.log(-np.expm1(-cap))
            finite = np.isfinite(value)
            ends.append(np.where(finite, value + side * _SLACK * (1.0 + np.abs(np.where(finite, value, 0.0))), value))
        return ends[0], np.minimum(ends[1], 0.0)

    def surely_lost(self, deviations: NDArray) -> NDArray:
        """l with P(L >= l) = (1 - exp((l - c) / 2)) / (1 - exp(-c)) = Phi(-r)."""
        from scipy import special

        c = self._cap[:, None]
        loss = c + 2.0 * np.log1p(np.maximum(special.ndtr(-deviations) * np.expm1(-c), -1.0 + _UNIT))
        return np.maximum(loss, -c) - _SLACK * (c + np.abs(loss))

    def masses(self, row: int, knots: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`."""
        p, u = self._between_atoms(row, knots)
        scale = -2.0 / np.expm1(-self._cap[row])
        return p * scale, np.clip(u, 0.0, p) * scale

    def typical_loss(self, row: int) -> float:
        """c, where the density is largest."""
        return float(self._cap[row])


def _two_point_moments(theta: NDArray, c: NDArray) -> NDArray:
    """The largest log E[exp(theta loss)] of the pairs with losses t and t - c, rounded up.

    It is theta t + log(1 - (1 - e^(-theta c)) (e^t - 1) / (e^c - 1)), concave in t and largest where
    (1 + theta) e^(t - c) = theta (1 + (1 - e^-c) / (e^(theta c) - 1)).  c - t is computed, because it may be less than
    the round-off of c.  If it is wrong by its own round-off, this costs a second-order term.
    """
    with np.errstate(over="ignore"):
        rest = -np.expm1(-c) / np.expm1(theta * c)
        apart = np.clip(np.log1p(1.0 / theta) - np.log1p(rest), 0.0, c)
        t = c - apart
        # two parts of 1, each from what keeps its digits
        share, other = np.exp(-apart) * np.expm1(-t) / np.expm1(-c), np.expm1(-apart) / np.expm1(-c)
        less = -np.expm1(-theta * c) * share
        near = less < 0.5  # beyond, 1 - share, which is `other`, may have lost its digits
        far = np.log(np.where(near, 1.0, other + np.exp(-theta * c) * share))
        second = np.where(near, np.log1p(-np.where(near, less, 0.0)), far)
    size = theta * (t + c) + np.abs(second)
    return theta * t + second + 32.0 * _UNIT * size


def _log_sinhc(x: NDArray) -> NDArray:
    """log(sinh(x) / x) for x > 0."""
    y, rest = np.minimum(x, 1.0) ** 2, 1.0
    for k in range(9, 1, -1):
        rest = 1.0 + y / (2.0 * k * (2.0 * k + 1.0)) * rest
    near = np.log1p(y / 6.0 * rest)
    far = np.maximum(x, 1.0)
    return np.where(x < 1.0, near, far + np.log1p(-np.exp(-2.0 * far)) - np.log(2.0 * far))
