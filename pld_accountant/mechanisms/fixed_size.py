"""Batches of one size drawn without replacement, when neighbours differ by one record replaced by another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .. import validate
from .base import Direction, Enclosure, StepFamily
from .sampled_gaussian import SampledGaussian, SampledGaussianSteps

__all__ = ["FixedSizeBatch", "RemovedSampledGaussian", "SymmetricSampledGaussian", "SymmetricSteps"]

_CELLS = 4096  # of the bound of a log-moment
_WIDEST = 0.5  # of a cell: beyond, the difference of two masses would lose digits
_REACH = 38.0
_ERROR = 1e-11  # of sums of masses and of their differences


@dataclass(frozen=True)
class FixedSizeBatch:
    """A Gaussian step on a batch of one size, drawn without replacement; neighbours *replace* one record.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by one record's largest contribution (the clipping norm); above 0.  A
        replaced record moves the sum by up to twice that: with all records in the batch, this is the Gaussian mechanism
        of half the noise multiplier.
    batch_size : int
        Different records in the step, drawn uniformly; at least 1.
    records : int
        Records of the data set, at least `batch_size`.

    Raises
    ------
    ValueError
        For a parameter out of range.

    Notes
    -----
    Each step draws anew.  With s = noise_multiplier / 2 and g = batch_size / records, one step's delta at an epsilon of
    at least 0 is that of ((1 - g) N(0, s^2) + g N(1, s^2), N(0, s^2)), in both directions.

    **Upper bound**: a pair with this curve for P against Q and for Q against P.  Its loss has the law of that pair's
    above 0, the mirror image exp(-l) times as heavy below 0, and the rest of its mass at 0.

    **Lower bound**: ((1 - g) N(0, s^2) + g N(1, s^2), N(0, s^2)) itself at every step, which data sets attain whose
    other records all contribute the same as the replaced one.

    So both bound the mechanism.  They are equal for one step, and a tenth to a third apart for many.  In the limit of
    many rare steps both are Gaussian mechanisms.  With x = 2 / noise_multiplier, their mu are in the ratio of
    sqrt(2 (exp(x^2) Phi(3 x / 2) + 3 Phi(-x / 2) - 2)) to sqrt(exp(x^2) - 1): 1.05 at a noise multiplier of 16, 1.18
    at 4, 1.30 at 2, and 1.41 at 1 and below.

    A batch of one size does not protect a record that is added or removed: the data set's size is known.  Nothing is
    proven here for that relation.

    References
    ----------
    Zhu, Dong and Wang (2022), "Optimal accounting of differential privacy via characteristic function", for subsampling
    without replacement; Dong, Roth and Su (2022), "Gaussian differential privacy", for the limit of the upper bound.

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> from pld_accountant.mechanisms.sampled_gaussian import SampledGaussian
    >>> step = FixedSizeBatch(4.0, 10, 1000)
    >>> [f"{compose([(one, 1)]).delta(0.1).upper:.6e}" for one in (step, SampledGaussian(2.0, 0.01))]
    ['1.599633e-09', '1.599633e-09']
    """

    noise_multiplier: float
    batch_size: int
    records: int
    neighbours: ClassVar = "replaced"

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", validate.noise_multiplier(self.noise_multiplier))
        size = validate.count(self.batch_size, "batch_size", least=1)
        records = validate.count(self.records, "records", least=1)
        if size > records:
            raise ValueError(f"batch_size must be at most records, got {size} of {records}")
        object.__setattr__(self, "batch_size", size)
        object.__setattr__(self, "records", records)

    @property
    def sample_rate(self) -> float:
        """batch_size / records."""
        return self.batch_size / self.records

    def below(self) -> Enclosure:
        """See `base.Enclosed`."""
        rate = self.sample_rate * (1.0 - 2.0**-53)
        return Enclosure([(RemovedSampledGaussian(0.5 * self.noise_multiplier, rate), 1)])

    def above(self) -> Enclosure:
        """See `base.Enclosed`."""
        rate = min(self.sample_rate * (1.0 + 2.0**-52), 1.0)
        return Enclosure([(SymmetricSampledGaussian(0.5 * self.noise_multiplier, rate), 1)])


@dataclass(frozen=True)
class RemovedSampledGaussian(SampledGaussian):
    """The pair of `SampledGaussian` under removal, in both directions.

    Neighbours that differ by a replaced record have no order: either of the two records may be the one whose
    contribution differs from all others.
    """

    symmetric: ClassVar = True

    @staticmethod
    def steps(mechanisms: Sequence[SampledGaussian], direction: Direction) -> StepFamily:
        """The family with one row for each of these mechanisms."""
        return SampledGaussian.steps(mechanisms, "remove")


@dataclass(frozen=True)
class SymmetricSampledGaussian:
    """A pair whose curve at epsilons of at least 0, both ways, is that of `SampledGaussian` under removal."""

    noise_multiplier: float
    sample_rate: float
    symmetric: ClassVar = True

    @staticmethod
    def steps(mechanisms: Sequence[SymmetricSampledGaussian], direction: Direction) -> StepFamily:
        """The family with one row for each of these mechanisms."""
        sigma, rate = np.array([(m.noise_multiplier, m.sample_rate) for m in mechanisms]).T
        return SymmetricSteps(sigma, rate, direction)


class SymmetricSteps:
    """Steps whose curve at epsilons of at least 0, both ways, is that of the sampled Gaussian under removal.

    Parameters
    ----------
    sigma, q : ndarray, shape (size,)
        Noise multipliers and sample rates of the sampled Gaussian.
    direction : {"remove", "add"}
        Both are alike.
    """

    whole = True

    def __init__(self, sigma: NDArray, q: NDArray, direction: Direction) -> None:
        self.direction: Direction = direction
        self._half = SampledGaussianSteps(sigma, q, "remove")
        self._tables: dict[int, tuple[NDArray, ...]] = {}

    @property
    def size(self) -> int:
        """Number of rows."""
        return self._half.size

    def _at_zero(self, row: int) -> float:
        """1 - P(L > 0) - Q(L > 0) of the half, the mass of the loss 0: (1 - q) (2 Phi(1 / (2 sigma)) - 1)."""
        return float((1.0 - self._half.q[row]) * math.erf(0.5 * math.sqrt(0.5) / float(self._half.sigma[row])))

    def masses(self, row: int, knots: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`.

        A cell of the half from a to b >= a >= 0 has masses p under P and m = (p - u) e^-a under Q.  Its mirror image,
        from -b to -a, has p' = m and u' = m - e^-b p.
        """
        pieces = [knots[:-1]]
        wide = np.diff(knots) > _WIDEST
        for left, right in zip(knots[:-1][wide], knots[1:][wide], strict=True):
            if right > -_REACH * 20.0 and np.isfinite(right):
                pieces.append(np.linspace(left, right, min(math.ceil((right - left) / _WIDEST), 1 << 14) + 1)[:-1])
        ends = np.unique(np.concatenate([*pieces, knots[-1:], [0.0] if knots[0] < 0.0 < knots[-1] else []]))
        p, u = np.zeros((2, ends.size - 1))
        positive = ends[ends >= 0.0]
        if positive.size > 1:
            p[-(positive.size - 1) :], u[-(positive.size - 1) :] = self._half.masses(row, positive)
        mirrored = -ends[ends <= 0.0][::-1]
        if mirrored.size > 1:
            own, above = self._half.masses(row, mirrored)
            below = np.maximum(own - above, 0.0) * np.exp(-mirrored[:-1])
            width = np.diff(mirrored)
            rest = (own * -np.expm1(-width) - above) * np.exp(-mirrored[:-1])
            p[: mirrored.size - 1] = below[::-1]
            u[: mirrored.size - 1] = np.clip(rest, 0.0, below)[::-1]
        if ends[0] <= 0.0 <= ends[-1]:
            at = min(int(np.searchsorted(ends, 0.0)), p.size - 1)
            p[at] += self._at_zero(row)
            u[at] += self._at_zero(row) * -math.expm1(min(float(ends[at]), 0.0))
        cell = np.searchsorted(knots, ends[:-1], side="right") - 1
        fall = np.exp(knots[cell] - ends[:-1])
        mass = np.bincount(cell, p, knots.size - 1)
        above = np.bincount(cell, p * -np.expm1(knots[cell] - ends[:-1]) + u * fall, knots.size - 1)
        return mass, np.clip(above, 0.0, mass)

    def _table(self, row: int) -> tuple[NDArray, ...]:
        """What `log_moments` needs of the half, in cells: five arrays.

        Below 0: the P mass of each cell, and the log of its P mass over its Q mass.  Computed losses near the infimum,
        log(1 - q), are equal to it, so that the cells miss their mass; a last cell at the infimum holds it.
        Above 0: the knots, the Q mass of each cell, and the share of it that a chord puts at the right end.
        """
        if row not in self._tables:
            # even in the Gaussian's own variable, where the half's loss is 0 at 1/2
            reach = _REACH * float(self._half.sigma[row])
            x = np.concatenate([np.linspace(-reach, 0.5, _CELLS), np.linspace(0.5, 1.0 + reach, _CELLS)[1:]])
            loss = np.unique(np.concatenate([self._half.losses_at(row, x), [0.0]]))
            below, above = loss[loss <= 0.0], loss[loss >= 0.0]
            # a cell from a to b has the Q mass e^-a (p - u)
            p, u = self._half.masses(row, below)
            some = p > u
            sigma, q = float(self._half.sigma[row]), float(self._half.q[row])
            tail = 0.5 * math.erfc(0.5 * math.sqrt(0.5) / sigma)  # Phi(-1 / (2 sigma))
            lacking = max((1.0 - q) * (1.0 - tail) + q * tail - float(p[some].sum()), 0.0)
            ratio = np.append(below[:-1][some] - np.log1p(-u[some] / p[some]), np.log1p(-q) if q < 1.0 else -np.inf)
            p_above, u_above = self._half.masses(row, above)
            q_above = np.maximum(p_above - u_above, 0.0) * np.exp(-above[:-1])
            held = q_above > 0.0
            # the mean of exp(l) under Q in the cell is e^a p / (p - u)
            with np.errstate(over="ignore"):
                share = u_above[held] / (p_above - u_above)[held] / np.expm1(np.diff(above)[held])
            right = np.zeros(q_above.size)
            right[held] = np.clip(share, 0.0, 1.0)
            self._tables[row] = np.append(p[some], lacking), ratio, above, q_above, right
        return self._tables[row]

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """K, rounded up, shape (size, tilts).

        exp(K) - 1 is that of the half, less E_P[exp(theta l) - 1; l < 0], plus E_Q[exp(-theta l) - 1; l > 0].  With
        exp(theta l) convex in exp(-l), a cell's mean bounds the first from below; with exp(-theta l) convex in exp(l),
        a chord bounds the second from above.  Both are cut off on their safe side.
        """
        found = self._half.log_moments(theta, exact=exact).copy()
        for row in range(self.size):
            p, ratio, above, q_above, right = self._table(row)
            for i, t in enumerate(theta.tolist()):
                first = np.expm1(t * np.minimum(ratio, 0.0)) * p
                at = np.expm1(-t * above)
                second = ((1.0 - right) * at[:-1] + right * at[1:]) * q_above
                change = float(second.sum() - first.sum())
                change += _ERROR * float(np.abs(first).sum() + np.abs(second).sum()) + 1e-15
                k = found[row, i]
                if k > 30.0:
                    found[row, i] = k + max(change, 0.0) * math.exp(-k) + 1e-14 * k
                else:
                    total = math.expm1(k) + change
                    found[row, i] = max(math.log1p(max(total, 0.0)), 0.0) * (1.0 + 1e-14) + 1e-15
        return found

    def log_delta_of_step(self, epsilon: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`; that of the half, as epsilon is at least 0."""
        return self._half.log_delta_of_step(epsilon, row)

    def epsilon_of_step(self, delta: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`."""
        return self._half.epsilon_of_step(delta, row)

    def largest_loss(self) -> NDArray:
        """inf."""
        return self._half.largest_loss()

    def surely_lost(self, deviations: NDArray) -> NDArray:
        """None is known."""
        return np.full((self.size, deviations.size), -np.inf)

    def gaussian_mu(self) -> NDArray:
        """That of the half, whose Gaussian curve is symmetric."""
        return self._half.gaussian_mu()

    def losses(self, row: int, reach: float, number: int) -> NDArray:
        """The half's positive losses, and their mirror images."""
        # the half's loss is 0 at x = 1/2
        top = 1.0 + min(reach, _REACH) * self._half.sigma[row]
        loss = self._half.losses_at(row, np.linspace(0.5, top, number // 2 + 1)[1:])
        return np.concatenate([-loss[::-1], [0.0] if number % 2 else [], loss])

    def typical_loss(self, row: int) -> float:
        """0, which has a mass of its own."""
        return 0.0

    def range_of_losses(self, row: int, reach: float) -> tuple[float, float]:
        """The half's largest loss, both ways."""
        top = max(self._half.range_of_losses(row, reach)[1], 1e-12)
        return -top, top

    def loss_roundoff(self, counts: NDArray, depth: int) -> tuple[float, float]:
        """That of the half, whose bound of losses below 0 becomes T, at which the grid ends."""
        t = 39.0 / self._half.sigma + 1.0 / self._half.sigma**2
        factor, offset = self._half.loss_roundoff(counts, depth)
        return factor, offset + 3.0 * factor * float(counts @ t)

    def truncated(self, reach: float) -> StepFamily:
        """The steps themselves."""
        return self
