"""Mechanisms with finitely many privacy losses: a user's own two laws, and the named ones made of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import deadline, validate
from ..notions.dp import mu_of_pure
from .base import DeltaSteps, Direction, Spectrum, StepFamily
from .exponential_sums import products
from .weighted_nodes import UNIT, WeightedNodes, join

__all__ = ["MASS_SLACK", "Discrete", "DiscreteLaw", "DiscretePair", "DiscreteSteps", "merged", "named_pair"]

MASS_SLACK = 2.0**-42
"""Relative error of a sum of masses of a law."""

_SUM = 1e-12  # how far the sum of a user's masses may be from 1
_DERIVED = ("_hash", "_laws", "noise_multiplier")  # cached properties, which are not pickled
_ROUND_OFF = 2.0**-50  # of a sum that is left as it is
_ADDED = 32  # masses that are added one by one
_LEAST_LOG = -746.0
_ELEMENTS = 1 << 20  # of exponents at a time


@dataclass(frozen=True, eq=False)
class DiscreteLaw:
    """Privacy losses of one step under P, in one direction.

    Attributes
    ----------
    losses : ndarray, shape (atoms,)
        Finite losses, ascending.
    masses : ndarray, shape (atoms,)
        Their P masses, above 0.
    infinite : float
        The P mass of outcomes that Q never gives.
    excluded : bool
        Whether Q gives outcomes that P never gives.
    loss_error : ndarray, shape (atoms,), or float
        Error of each loss, absolute.
    mass_error : ndarray, shape (atoms,), or float
        Error of each mass, relative.
    infinite_error : float, optional
        Error of `infinite`, absolute; by default `MASS_SLACK` of it.
    """

    losses: NDArray
    masses: NDArray
    infinite: float
    excluded: bool
    loss_error: NDArray | float = 2.0 * MASS_SLACK
    mass_error: NDArray | float = MASS_SLACK
    infinite_error: float | None = None

    @property
    def infinite_ends(self) -> tuple[float, float]:
        """Bounds of the mass of infinite losses."""
        error = MASS_SLACK * self.infinite if self.infinite_error is None else self.infinite_error
        return max(self.infinite - error, 0.0), min(self.infinite + error, 1.0)

    @property
    def largest_loss_error(self) -> float:
        """The largest error of a loss."""
        return float(np.max(self.loss_error, initial=0.0))


class Discrete(ABC):
    """A mechanism with finitely many losses: every class that has the method `law`."""

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        return hasattr(other, "law") if cls is Discrete else NotImplemented

    @abstractmethod
    def law(self, direction: Direction) -> DiscreteLaw:
        """The losses in one direction."""

    @staticmethod
    def steps(mechanisms: Sequence[Discrete], direction: Direction) -> StepFamily:
        """The family with one row for each of these mechanisms, given that no loss is infinite."""
        return DiscreteSteps([m.law(direction) for m in mechanisms], direction)


@dataclass(frozen=True)
class DiscretePair(Discrete):
    """A mechanism given by two discrete laws on the same outcomes.

    Parameters
    ----------
    with_record, without_record : sequence of float, shape (outcomes,)
        Probabilities of the outcomes if the record is there and if it is not.  An outcome of probability 0 on one side
        only has an infinite loss.  The numbers are taken as exact; sums further than 2^-50 from 1 are scaled to 1.
    sample_rate : float
        Probability with which the record enters the step, in (0, 1].

    Raises
    ------
    ValueError
        If the laws differ in length, hold a negative number or one that is not finite, or do not add up to 1 within
        1e-12 (they are then scaled to add up to 1); or for a sample rate out of range.

    Notes
    -----
    With P and Q the two laws, removal is dominated by ((1 - q) Q + q P, Q), addition by the same pair in the other
    order.  If other data sets change the laws, the pair given must be a dominating pair for all of them.

    References
    ----------
    Zhu, Dong and Wang (2022), Theorem 11.

    Examples
    --------
    >>> step = DiscretePair([0.75, 0.25], [0.25, 0.75])
    >>> from pld_accountant.composition import compose
    >>> f"{compose([(step, 2)]).delta(1.0).upper:.6f}"
    '0.392607'
    """

    with_record: Sequence[float]
    without_record: Sequence[float]
    sample_rate: float = 1.0
    name: str = field(default="", compare=False, repr=False)
    rho: float | None = field(default=None, init=False, repr=False)
    exact: bool = field(default=True, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        given = [getattr(self, at) for at in ("with_record", "without_record")]
        laws = [_law(law, at) for law, at in zip(given, ("with_record", "without_record"), strict=True)]
        scaled = not all(np.array_equal(law, one) for law, one in zip(laws, given, strict=True))
        object.__setattr__(self, "exact", not (self.name or scaled))
        if laws[0].size != laws[1].size:
            raise ValueError(f"the two laws must have one length, got {laws[0].size} and {laws[1].size}")
        object.__setattr__(self, "with_record", tuple(laws[0].tolist()))
        object.__setattr__(self, "without_record", tuple(laws[1].tolist()))
        object.__setattr__(self, "sample_rate", validate.sample_rate(self.sample_rate))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _DERIVED}

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.with_record, self.without_record, self.sample_rate))

    def __repr__(self) -> str:
        if self.name:
            return self.name if self.sample_rate == 1.0 else f"PoissonSampled({self.name}, {self.sample_rate})"
        rate = "" if self.sample_rate == 1.0 else f", sample_rate={self.sample_rate}"
        return f"DiscretePair({len(self.with_record)} outcomes{rate})"

    @cached_property
    def noise_multiplier(self) -> float:
        """1 over the largest finite loss, by which compositions sort."""
        largest = max(float(np.abs(self.law(d).losses).max(initial=0.0)) for d in ("remove", "add"))
        return 1.0 / max(largest, 1e-300)

    @property
    def symmetric(self) -> bool:
        """Whether the outcomes can be paired so that each has the other's probabilities."""
        if self.sample_rate < 1.0:
            return False
        p, q = np.array(self.with_record), np.array(self.without_record)
        one, two = np.lexsort((q, p)), np.lexsort((p, q))
        return np.array_equal(p[one], q[two]) and np.array_equal(q[one], p[two])

    @property
    def neighbours(self) -> str | None:
        """See `base.Mechanism`."""
        return "added or removed" if self.sample_rate < 1.0 else None

    def sampled(self, rate: float) -> DiscretePair:
        """The same mechanism on a Poisson sample; rates of repeated samples multiply."""
        rate = validate.sample_rate(rate) * self.sample_rate
        return DiscretePair(self.with_record, self.without_record, rate, self.name)

    def law(self, direction: Direction) -> DiscreteLaw:
        """The losses in one direction."""
        return self._laws[direction]

    @cached_property
    def _laws(self) -> dict[Direction, DiscreteLaw]:
        return {"remove": self._law("remove"), "add": self._law("add")}

    def _law(self, direction: Direction) -> DiscreteLaw:
        p, q = np.array(self.with_record), np.array(self.without_record)
        rate = self.sample_rate
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # log((1 - rate) + rate p / q), without cancellation where p is close to q
            change = rate * (p - q)
            mixed = (1.0 - rate) * q + rate * p if rate < 1.0 else p
            # a ratio keeps the digits that a difference of logarithms of tiny probabilities loses
            ratio = p / q
            kept = (rate < 1.0) & np.isfinite(ratio)
            far = np.where(kept, np.log((1.0 - rate) + rate * ratio), np.log(mixed) - np.log(q))
            loss = np.where(np.abs(change) < 0.5 * q, np.log1p(change / q), far)
            # an error of log(p / q) changes the loss by its product with the chance that the record took part
            chance = np.clip(rate * p / mixed, 0.0, 1.0)
        units = _units(p), _units(q)
        of_loss = chance * (units[0] + units[1]) + 8.0 * np.abs(loss)
        if direction == "add":
            loss, mass, other, of_mass = -loss, q, mixed, units[1]
        else:
            mass, other, of_mass = mixed, q, np.maximum(*units) + 4.0
        lost, finite = (mass > 0.0) & (other == 0.0), (mass > 0.0) & (other > 0.0)
        losses, masses, index = merged(loss[finite], mass[finite])
        errors = np.zeros((2, losses.size))
        np.maximum.at(errors[0], index, of_loss[finite])
        np.maximum.at(errors[1], index, of_mass[finite])
        known = self.exact and rate == 1.0 and np.count_nonzero(lost) <= 1
        return DiscreteLaw(
            losses,
            masses,
            infinite=float(mass[lost].sum()),
            excluded=bool(np.any((mass == 0.0) & (other > 0.0))),
            loss_error=UNIT * errors[0],
            mass_error=UNIT * (errors[1] + _ADDED),
            infinite_error=0.0 if known else None,
        )


def _law(values: Sequence[float], name: str) -> NDArray:
    law = np.array(validate.numbers(values, name), dtype=np.float64)
    if law.ndim != 1 or not law.size or not np.all(np.isfinite(law)) or np.any(law < 0.0):
        raise ValueError(f"{name} must be a list of probabilities, each at least 0")
    total = float(law.sum())
    if not abs(total - 1.0) <= _SUM:
        raise ValueError(f"{name} must add up to 1, got {total!r}")
    return law if abs(total - 1.0) <= _ROUND_OFF else law / total


def _units(law: NDArray) -> NDArray:
    """Relative round-off of probabilities, in units of 2^-53.

    A named mechanism computes exp(x), where x is rounded three times: 3 |x| units.  Two sums of at most 2^20 masses
    divide it.  Pairwise summation costs each of them less than 32 units.
    """
    return np.where(law > 0.0, 72.0 - 3.0 * np.log(np.maximum(law, 1e-320)), 0.0)


def merged(losses: NDArray, masses: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """The distinct losses, ascending, the sum of the masses at each, and the place of each given loss among them.

    A sum loses at most `_ADDED` units of 2^-53: longer ones are added exactly.
    """
    values, place, number = np.unique(losses, return_inverse=True, return_counts=True)
    place = place.reshape(-1)
    sums = np.bincount(place, masses, values.size)
    many = np.flatnonzero(number > _ADDED)
    if many.size:
        order, ends = np.argsort(place, kind="stable"), np.cumsum(number)
        for k in many:
            sums[k] = math.fsum(masses[order[ends[k] - number[k] : ends[k]]])
    return values, sums, place


def named_pair(
    name: str, with_record: NDArray, without_record: NDArray, rho: float | None = None, *, exact: bool = False
) -> DiscretePair:
    """A pair that is shown under a name.

    rho: that of zero-concentrated DP, of the law that the pair stands for.
    exact: whether the mass of its infinite loss has no round-off.
    """
    pair = DiscretePair(tuple(with_record.tolist()), tuple(without_record.tolist()), 1.0, name)
    object.__setattr__(pair, "rho", rho)
    object.__setattr__(pair, "exact", exact)
    return pair


class DiscreteSteps(DeltaSteps):
    """Steps of finitely many losses, one law in each row, given that no loss is infinite.

    P is divided by its mass at finite losses, 1 - infinite, and a loss becomes l - log(1 - infinite).  `composition`
    takes the condition back.

    Parameters
    ----------
    laws : sequence of DiscreteLaw
    direction : {"remove", "add"}
    """

    decays = False
    atomic = True

    def __init__(self, laws: Sequence[DiscreteLaw], direction: Direction) -> None:
        self.direction: Direction = direction
        self._laws = [
            (x.losses - np.log1p(-x.infinite), x.masses / (1.0 - x.infinite)) if x.masses.size else (np.zeros(1),) * 2
            for x in laws
        ]
        # the finite mass, by which P is divided, has the error of the infinite one
        by_division = [2.0 * (x.infinite_ends[1] - x.infinite) / max(1.0 - x.infinite, MASS_SLACK) for x in laws]
        self._errors = [
            tuple(np.broadcast_to(error + more if x.masses.size else 0.0, loss.shape) for error in errors)
            for x, more, (loss, _), errors in zip(
                laws, by_division, self._laws, [(x.loss_error, x.mass_error) for x in laws], strict=True
            )
        ]
        self._of_losses = np.array([of_loss.max() for of_loss, _ in self._errors])
        self._of_masses = MASS_SLACK + np.array([of_mass.max() for _, of_mass in self._errors])
        self._excluded = np.array([x.excluded for x in laws])
        self._beyond = np.zeros(len(laws))

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self._laws)

    @property
    def whole(self) -> bool:
        """Whether no mass is at +infinity."""
        return not self._beyond.any()

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """K(theta) = log sum of mass exp(theta loss), rounded up; (size, tilts)."""
        found = np.empty((self.size, theta.size))
        for k, (loss, mass) in enumerate(self._laws):
            for some in np.array_split(np.arange(theta.size), math.ceil(theta.size * loss.size / _ELEMENTS)):
                deadline.check()
                exponent = np.multiply.outer(theta[some], loss)
                small = np.abs(exponent).max(axis=1, initial=0.0) < 600.0
                moved = np.expm1(np.where(small[:, None], exponent, 0.0)) * mass
                total = np.maximum(moved.sum(axis=1), -0.999999)
                value = np.log1p(total) + (1e-14 + 2.0 * self._of_masses[k]) * np.abs(moved).sum(axis=1) / (1.0 + total)
                large = np.flatnonzero(~(small & (value < 30.0)))
                far = np.logaddexp.reduce(exponent[large] + np.log(np.maximum(mass, 1e-320)), axis=1) + 1e-12
                value[large] = far * (1.0 + np.sign(far) * 1e-14)
                found[k, some] = value + self._of_losses[k] * theta[some]
        return found

    def spectrum(
        self, theta: float, spacing: float, m: int, rows: NDArray, columns: int, work: float
    ) -> Spectrum | None:
        """See `base.CharacteristicSteps`."""
        if sum(float(products(self._laws[k][0].size, m)) for k in rows) > work:
            return None
        laws = (self._weigh(row, theta) for row in rows.tolist())
        return join(law.spectrum(spacing, m, columns, products(law.loss.size, m)) for law in laws)

    def _weigh(self, row: int, theta: float) -> WeightedNodes:
        """The tilted law."""
        loss, mass = self._laws[row]
        exponent = np.log(np.maximum(mass, 1e-320)) + theta * loss
        top = float(exponent.max())
        weight = np.exp(exponent - top)
        total = float(weight.sum())
        of_loss, of_mass = (error[: loss.size] / UNIT for error in self._errors[row])
        share, of_loss = weight / total, np.abs(loss) + of_loss
        units = top - exponent + 2.0 * np.abs(exponent) + theta * (of_loss + np.abs(loss)) + of_mass + 16.0
        of_moment = float(share @ units) + math.log2(loss.size) + 16.0 + abs(top)
        return WeightedNodes(share, loss, top + math.log(total), of_loss, units, of_moment, 0.0)

    def envelope_levels(self, theta: float) -> tuple[int, int]:
        """One level, below every band of this tilt."""
        level = math.floor(2.0 * math.log2(0.05 * theta))
        return level, level

    def log_envelope(self, theta: float, levels: NDArray, rows: NDArray, found: Spectrum) -> NDArray:
        """0: the moduli of atoms come back."""
        return np.zeros((rows.size, levels.size))

    def infinite_mass(self) -> NDArray:
        """The mass of truncated losses; none but these, given that the loss is finite."""
        return self._beyond

    def log_delta_of_step(self, epsilon: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """Sum over the losses above epsilon."""
        ends = np.empty((2, row.size))
        for i, (e, k) in enumerate(zip(epsilon, row, strict=True)):
            deadline.check()
            loss, mass = self._laws[k]
            for side, sign in enumerate((-1.0, 1.0)):
                above = np.maximum(-np.expm1(np.minimum(e - loss - sign * self._of_losses[k], 0.0)), 0.0)
                value = float(mass @ above) * (1.0 + sign * self._of_masses[k])
                ends[side, i] = np.log(value) if value > 0.0 else -np.inf
        return ends[0], np.minimum(ends[1], 0.0)

    def largest_loss(self) -> NDArray:
        """The largest of a row's losses, rounded up."""
        return np.array([max(loss[-1], 0.0) for loss, _ in self._laws]) + self._of_losses

    def surely_lost(self, deviations: NDArray) -> NDArray:
        """The largest loss whose tail holds Phi(-r)."""
        from scipy import special

        wanted = special.ndtr(-deviations)
        found = np.full((self.size, deviations.size), -np.inf)
        for k, (loss, mass) in enumerate(self._laws):
            tail = np.cumsum(mass[::-1])[::-1] * (1.0 - self._of_masses[k])
            place = np.searchsorted(-tail, -wanted, side="right") - 1
            # a mass of about 1 lies at the smallest loss and above
            least = -np.inf if tail[0] < 1.0 - 1e-9 else loss[0]
            found[k] = np.where(place >= 0, loss[np.maximum(place, 0)], least) - self._of_losses[k]
        return found

    def gaussian_mu(self) -> NDArray:
        """That of a mechanism of pure DP whose epsilon is the largest |loss|, rounded up.

        inf if Q gives outcomes that P never gives: no Gaussian curve lies above theirs at the far negative epsilons.
        """
        largest = np.array([np.abs(loss).max() for loss, _ in self._laws])
        return np.where(self._excluded, np.inf, mu_of_pure(largest + self._of_losses))

    def masses(self, row: int, knots: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`; an atom at a knot belongs to the cell on its right, the last knot to the last cell."""
        loss, mass = self._laws[row]
        inside = (loss >= knots[0]) & (loss <= knots[-1])
        cell = np.minimum(np.searchsorted(knots, loss[inside], side="right") - 1, knots.size - 2)
        p = np.bincount(cell, mass[inside], knots.size - 1)
        u = np.bincount(cell, mass[inside] * -np.expm1(knots[cell] - loss[inside]), knots.size - 1)
        return p, np.clip(u, 0.0, p)

    def losses(self, row: int, reach: float, number: int) -> NDArray:
        """Losses even in the range of this reach."""
        low, high = self.range_of_losses(row, reach)
        return np.linspace(low, high, number)

    def typical_loss(self, row: int) -> float:
        """The likeliest loss."""
        loss, mass = self._laws[row]
        return float(loss[int(np.argmax(mass))])

    def range_of_losses(self, row: int, reach: float) -> tuple[float, float]:
        """The losses but for half of the mass that may be left out at either end."""
        loss, mass = self._laws[row]
        least = 0.5 * math.exp(-0.5 * reach**2) * (1.0 - 2.0 * MASS_SLACK)
        some = np.flatnonzero((np.cumsum(mass) > least) & (np.cumsum(mass[::-1])[::-1] > least))
        low, high = float(loss[some[0]]), float(loss[some[-1]])
        room = 1e-9 * (1.0 + high - low)
        return low - room, high + room

    def loss_roundoff(self, counts: NDArray, depth: int) -> tuple[float, float]:
        """See `base.StepFamily`: the losses' errors, and the round-off of the sums as in `LaplaceSteps`."""
        rounding = 2.0**-53 * (4.0 * depth + 16.0)
        size = np.array([np.abs(loss).max() for loss, _ in self._laws])
        return rounding, 3.0 * rounding * float(counts @ size) + 2.0 * float(counts @ self._of_losses)

    def truncated(self, reach: float) -> StepFamily:
        """See `base.StepFamily`; losses of addition are not cut."""
        from scipy import special

        if self.direction == "add":
            return self
        laws, beyond = [], np.zeros(self.size)
        for k, (loss, mass) in enumerate(self._laws):
            tail = np.append(np.cumsum(mass[::-1])[::-1], 0.0)  # of the losses from this one on
            kept = max(int(np.count_nonzero(tail > special.ndtr(-reach))), 1)
            laws.append((loss[:kept], mass[:kept]))
            beyond[k] = tail[min(kept, loss.size)] * (1.0 + self._of_masses[k] + loss.size * UNIT)
        if not beyond.any():
            return self
        found = copy(self)
        found._laws, found._beyond = laws, beyond
        return found
