"""What the engine needs of a mechanism: the protocols `Mechanism`, `StepFamily` and `CharacteristicSteps`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MASS_ERROR",
    "CharacteristicSteps",
    "DeltaSteps",
    "Direction",
    "Enclosed",
    "Enclosure",
    "LastingSteps",
    "Mechanism",
    "ScalableMechanism",
    "Spectrum",
    "SplittableSteps",
    "StepFamily",
    "crossings",
    "directions",
    "noise_of_share",
    "sampled_loss",
]

Direction = Literal["remove", "add"]

MASS_ERROR = 1e-12
"""Largest relative error of the masses that a family computes (`StepFamily.masses`)."""

_EVALUATIONS = 80  # of bounds of log delta, at most, to find where they cross a goal
_SHARE = 0.1  # of the distance of two bounds from their mean, to which the mean's crossing is found
_FARTHER = (1.1, 4.0, 64.0)  # times the expected distance of a bound's crossing from the mean's: evaluated there
_APART = 2.0**-46  # relative width of a bracket that is narrow enough


def directions(direction: str) -> tuple[Direction, ...]:
    """("remove", "add") for "both"; raises ValueError for any other word than the three."""
    known: dict[str, tuple[Direction, ...]] = {"both": ("remove", "add"), "remove": ("remove",), "add": ("add",)}
    if not isinstance(direction, str) or direction not in known:
        raise ValueError(f"direction must be 'remove', 'add' or 'both', got {direction!r}")
    return known[direction]


@runtime_checkable
class Mechanism(Protocol):
    """One step with fixed parameters; hashable, so that equal steps are counted together.

    Attributes
    ----------
    noise_multiplier : float
        Standard deviation or scale of the noise, relative to the sensitivity.  A composition sorts steps of one kind
        by it.
    symmetric : bool, optional
        Whether the loss has the same law in both directions; False if the attribute is missing.  If all steps of a
        composition are symmetric, one direction is computed.
    neighbours : str or None, optional
        Of a sample: what happens to the record in which neighbours differ, "added or removed" or "replaced".  A
        mechanism on everybody has the relation in which its sensitivity was taken.
    """

    @property
    def noise_multiplier(self) -> float: ...

    @staticmethod
    def steps(mechanisms: Sequence[Any], direction: Direction) -> StepFamily:
        """The family with one row for each of these mechanisms, all of this kind."""
        ...


class Enclosure(NamedTuple):
    """A list of steps whose delta, in any composition, bounds that of a mechanism.

    Attributes
    ----------
    parts : list of (Mechanism, int)
    slack : float
        The smaller of the two deltas is at most exp(slack) times the larger one.
    ratio : float
        Log-probabilities of events differ by at most this, for both data sets, between the mechanism and another one.
        The parts dominate that other one (`above`), or it dominates them (`below`).
    """

    parts: list[tuple[Mechanism, int]]
    slack: float = 0.0
    ratio: float = 0.0


@runtime_checkable
class Enclosed(Protocol):
    """A mechanism that is known by two lists of others only; hashable, and passed to `compose` like any other.

    Attributes
    ----------
    noise_multiplier : float
        As for `Mechanism`.
    unbounded : bool, optional
        Whether there is no largest loss, although `above` may count the last ones as infinite; False by default.
    close : bool, optional
        Whether the two lists are so close that the slower methods are worth their time; False by default.
    rho : float or None, optional
        Divergences of order alpha are at most rho alpha; None, the default, if none is known.
    rough : Enclosed, optional
        The same mechanism between lists that are farther apart and made sooner, for ledgers of many people.
    """

    @property
    def noise_multiplier(self) -> float: ...

    def below(self) -> Enclosure:
        """Mechanisms whose delta is at most this one's."""
        ...

    def above(self) -> Enclosure:
        """Mechanisms whose delta is at least this one's."""
        ...


@runtime_checkable
class SeveralPairs(Protocol):
    """A mechanism whose worst pair depends on the question.

    Its `steps` are those of a pair that dominates all of them, whose curve one step alone attains.
    """

    def above(self, steps: int) -> list[tuple[Mechanism, int]]:
        """Mechanisms that dominate this number of steps in any composition."""
        ...

    def pair(self, share: float) -> Mechanism:
        """One of the pairs, by the share of the range that its largest loss under removal has, in (0, 1)."""
        ...


@runtime_checkable
class ScalableMechanism(Protocol):
    """A mechanism that also knows the step of a person who contributes less than others may."""

    def scaled(self, share: float) -> Any | None:
        """The step of a person whose contributions are at most this share, in [0, 1], of the largest that is allowed.

        A larger share dominates a smaller one.  None: the step costs nothing.
        """
        ...


@runtime_checkable
class StepFamily(Protocol):
    """The privacy losses of several steps, one in each row, all in one direction.

    A loss L has the distribution of log(dP/dQ) under P, (P, Q) a dominating pair of the step.  Every bound of an
    epsilon or a delta holds for the composition of any numbers of these steps.

    Attributes
    ----------
    direction : {"remove", "add"}
    size : int
        Number of rows.
    whole : bool
        True if `log_moments` bound the losses of the mechanism itself; False if they bound a truncated distribution
        whose rest is at +infinity.
    log_unseen : float, optional
        log of the mass of a step that only `log_moments` and `log_delta_of_step` know of; -inf, the default, if none.
    """

    @property
    def direction(self) -> Direction: ...

    @property
    def size(self) -> int: ...

    @property
    def whole(self) -> bool: ...

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """Upper bounds of K(theta) = log E[exp(theta L)], shape (size, tilts); tight even where costly if `exact`."""
        ...

    def log_delta_of_step(self, epsilon: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """Lower and upper log delta(epsilon) of single steps."""
        ...

    def epsilon_of_step(self, delta: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """Lower and upper epsilon(delta) of single steps."""
        ...

    def largest_loss(self) -> NDArray:
        """Upper bounds of the largest losses, shape (size,); inf where they are unbounded."""
        ...

    def surely_lost(self, deviations: NDArray) -> NDArray:
        """Losses l with P(L >= l) >= Phi(-deviations), shape (size, deviations); -inf where none is known."""
        ...

    def gaussian_mu(self) -> NDArray:
        """mu of a Gaussian mechanism that dominates the step, shape (size,); inf where there is none."""
        ...

    def masses(self, row: int, knots: NDArray) -> tuple[NDArray, NDArray]:
        """P mass p of the cells between ascending losses, and p - exp(left end) times their Q mass, both at least 0.

        **Error**: at most `MASS_ERROR`, relative.
        """
        ...

    def losses(self, row: int, reach: float, number: int) -> NDArray:
        """Ascending losses that are even in the mechanism's own variable, `reach` standard deviations far."""
        ...

    def typical_loss(self, row: int) -> float:
        """The loss around which most of P lies; a knot of the grid is placed there."""
        ...

    def range_of_losses(self, row: int, reach: float) -> tuple[float, float]:
        """An interval of losses outside of which at most exp(-reach^2 / 2) of P lies."""
        ...

    def loss_roundoff(self, counts: NDArray, depth: int) -> tuple[float, float]:
        """Error of a sum of losses in a tree of this depth: the first times the sum, plus the second."""
        ...

    def truncated(self, reach: float) -> StepFamily:
        """The steps whose losses end where Phi(-reach) of P is left; the rest is at +infinity."""
        ...


@dataclass(frozen=True)
class Spectrum:
    """The tilted loss of one step in each of some rows.

    Attributes
    ----------
    log_moment, mean, log_moment_error : ndarray, shape (rows,)
        K(theta), the tilted mean, and the error of K.
    error, error_slope : ndarray, shape (rows,)
        |phi - computed phi| <= error + error_slope omega.
    re, im : ndarray, shape (rows, m)
        log phi at omega = spacing, 2 spacing, ..., centred at the mean.
    span : ndarray, shape (rows, 2)
        For the family's own `log_envelope`: an interval of its variable that holds the tilted distribution up to 1e-11;
        0 if it asks for none.
    cost : ndarray, shape (rows,)
        In products of nodes and frequencies.
    """

    log_moment: NDArray
    mean: NDArray
    log_moment_error: NDArray
    error: NDArray
    error_slope: NDArray
    re: NDArray
    im: NDArray
    span: NDArray
    cost: NDArray

    def of(self, rows: NDArray | int) -> Spectrum:
        """Some rows, or one as arrays without the first axis."""
        return Spectrum(*(getattr(self, name)[rows] for name in Spectrum.__dataclass_fields__))


@runtime_checkable
class CharacteristicSteps(StepFamily, Protocol):
    """A family that computes its characteristic functions itself, without a grid on the loss.

    Attributes
    ----------
    decays : bool
        Whether every row's characteristic function falls to 0.  That of atoms does not.
    partly_decays : bool, optional
        Whether some rows' characteristic functions do; False by default.
    atomic : bool
        Whether all losses are atoms.
    """

    @property
    def decays(self) -> bool: ...

    @property
    def atomic(self) -> bool: ...

    def spectrum(
        self, theta: float, spacing: float, m: int, rows: NDArray, columns: int, work: float
    ) -> Spectrum | None:
        """The tilted losses of some rows; None if they would cost more than `work` products of nodes and frequencies.

        columns: how many rows a matrix product adds up, which enters the round-off.
        """
        ...

    def envelope_levels(self, theta: float) -> tuple[int, int]:
        """j of the first and the last frequency 2^(j / 2) that `log_envelope` should serve."""
        ...

    def log_envelope(self, theta: float, levels: NDArray, rows: NDArray, found: Spectrum) -> NDArray:
        """log sup |phi(omega)| over omega >= level, shape (rows, levels)."""
        ...

    def infinite_mass(self) -> NDArray:
        """Mass of one step at +infinity, rounded up, shape (size,)."""
        ...


@runtime_checkable
class LastingSteps(CharacteristicSteps, Protocol):
    """A family that names all that its tables depend on, so that they can be kept between processes."""

    def parameters(self) -> dict[str, NDArray]:
        """The family's parameters, by name; families of one class with equal parameters are equal."""
        ...


@runtime_checkable
class SplittableSteps(CharacteristicSteps, Protocol):
    """A family whose losses can be split into small and large ones (`engine.rare_losses`); under removal only."""

    def split(self, reach: float, far: float) -> tuple[SplittableSteps, SplittableSteps]:
        """The losses up to where Phi(-reach) of P is left, and those from there up to Phi(-far)."""
        ...

    def mass_beyond(self) -> NDArray:
        """Mass of a step beyond the end of its part, rounded up, shape (size,)."""
        ...

    def has_large_losses(self) -> NDArray:
        """Which rows have losses beyond a split, shape (size,) bool."""
        ...


class DeltaSteps(ABC):
    """Epsilon of single steps, for a family that gives `log_delta_of_step` and `largest_loss` of its rows."""

    @abstractmethod
    def log_delta_of_step(self, epsilon: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """See `StepFamily`."""

    @abstractmethod
    def largest_loss(self) -> NDArray:
        """See `StepFamily`."""

    def _most(self, delta: NDArray, row: NDArray) -> NDArray:
        """Upper bounds of epsilon(delta) of single steps, at least 0."""
        return np.maximum(self.largest_loss()[row], 0.0)

    def epsilon_of_step(self, delta: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """See `StepFamily`."""
        top = self._most(delta, row)

        def bounds(epsilon: NDArray) -> tuple[NDArray, NDArray]:
            return self.log_delta_of_step(epsilon, row)

        return crossings(bounds, np.log(delta), np.zeros(top.shape), top)


def noise_of_share(noise: float, share: float) -> float:
    """noise / share, rounded down, of a share above 0; at most 1e100, which is as good as no loss."""
    found = min(noise / share, 1e100)
    return found if Fraction(found) * Fraction(share) <= Fraction(noise) else math.nextafter(found, 0.0)


def sampled_loss(loss: NDArray, rate: float | NDArray) -> NDArray:
    """log(1 - rate + rate e^loss): the loss of a Poisson sample under removal, of that without sampling.

    The pair (P, Q) becomes ((1 - rate) Q + rate P, Q) (Zhu, Dong and Wang 2022, Theorem 11).
    """
    excess = rate * np.expm1(np.minimum(loss, 700.0))
    # close to -1, the excess has lost the digits of the sum
    near = (excess > -0.5) & (loss <= 700.0)
    with np.errstate(divide="ignore"):
        far = np.logaddexp(np.log1p(-rate), np.log(rate) + loss)
    return np.where(near, np.log1p(np.maximum(excess, -0.5)), far)


def crossings(
    log_delta: Callable[[NDArray], tuple[NDArray, NDArray]], log_goal: NDArray, low: NDArray, high: NDArray
) -> tuple[NDArray, NDArray]:
    """Lower and upper epsilon at which bounds of log delta cross `log_goal`, in [low, high].

    low and high are certified bounds of the result.  A lower bound of log delta above the goal proves that epsilon is
    larger; an upper bound at most the goal proves that epsilon is at most that.  The mean of both bounds is followed to
    its crossing (Chandrupatla 1997: inverse quadratic interpolation, or the middle of a bracket where that is safer).
    Then each bound is evaluated a little beyond its own crossing, whose place follows from its distance to the mean.
    """
    proven = [low, high]

    def ask(x: NDArray) -> tuple[NDArray, NDArray]:
        """The mean of the bounds, less the goal, and half their distance."""
        lower, upper = log_delta(x)
        proven[0] = np.where(lower > log_goal, np.maximum(proven[0], x), proven[0])
        proven[1] = np.where(upper <= log_goal, np.minimum(proven[1], x), proven[1])
        return 0.5 * (lower + upper) - log_goal, np.where(np.isneginf(upper), 0.0, 0.5 * (upper - lower))

    with np.errstate(invalid="ignore", divide="ignore"):
        (at_low, _), (at_high, gap) = ask(low), ask(high)
        # the crossing lies between a and b; c is where one of them was before
        a, b, fa, fb = np.where(at_low > 0.0, high, low), np.where(at_high > 0.0, high, low), at_high, at_low
        c, fc, offset = b, fb, np.zeros(low.shape)
        for _ in range(_EVALUATIONS):
            apart = np.abs(b - a)
            # from the mean's crossing to those of the bounds; closer brackets differ by round-off
            offset = np.where(np.abs(fb - fa) > 4.0 * gap, gap * apart / np.abs(fb - fa), offset)
            enough = _APART * np.maximum(a, b) + _SHARE * offset
            if np.all(apart <= enough):
                break
            x, y = (a - b) / (c - b), (fa - fb) / (fc - fb)
            share = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
            share = np.where((y * y < x) & ((1.0 - y) ** 2 < 1.0 - x), share, 0.5)
            least = np.minimum(0.5 * enough / apart, 0.5)
            here = np.where(apart <= enough, a, a + np.clip(share, least, 1.0 - least) * (b - a))
            f, gap = ask(here)
            same = (f > 0.0) == (fa > 0.0)
            c, fc = np.where(same, a, b), np.where(same, fa, fb)
            b, fb = np.where(same, b, a), np.where(same, fb, fa)
            a, fa = here, f
        for times in _FARTHER:
            reach = enough + times * offset
            ends = np.maximum(np.minimum(a, b) - reach, low), np.minimum(np.maximum(a, b) + reach, high)
            if np.any(proven[0] < ends[0]):
                ask(ends[0])
            if np.any(proven[1] > ends[1]):
                ask(ends[1])
    return proven[0], proven[1]
