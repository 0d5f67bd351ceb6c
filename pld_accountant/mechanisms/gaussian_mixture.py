"""Mixtures of Gaussians: user level, groups, replace-one; two mixtures of one noise whose likelihood ratio rises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import deadline, validate
from ..gauss_legendre import gauss_legendre
from .base import DeltaSteps, Direction, Enclosure, Spectrum, StepFamily
from .complex_law import ComplexLaw
from .gaussian import full_batch_epsilon
from .mixture_spectrum import TiltedMixture, log_moments, log_quotient, log_quotient_and_slope, log_ratio
from .positive_mixture import PositiveMixture
from .weighted_nodes import join

__all__ = [
    "GaussianMixture",
    "GaussianMixtureSteps",
    "GroupGaussian",
    "ReplaceOneSampledGaussian",
    "UnderflowingGroup",
]

_LEAST = float(np.finfo(np.float64).tiny)
_REACH = 38.0  # standard deviations; a double's smallest mass lies there
_MOST_SENSITIVITY = 60.0  # over the standard deviation
_MOST_SHIFT = 20.0  # of a law that contours serve, without centres of little weight: paths would be long
_LITTLE = 1e-25  # that weight: the method that is chosen depends on it, and no bound
_PLACED = 1e-8  # step of Newton's method after which none is needed, relative to 1 + |x|
_NODES = 1 << 13  # of a log-moment; beyond, the Gaussian's is an upper bound
_NODES_EXACT = 4_000_000
_CHUNK = 1 << 15
_SLACK = 1e-10
_ROUNDED = 2.0**-40  # relative round-off of a loss
_KEPT = 0.005  # half of the loss up to which `log_quotient` keeps relative digits
_UNIT = 2.0**-53
_TAIL = 9.5  # standard deviations after which cells end
_PIECE = 2.0, 0.5  # width of a piece of a rule, over 1 / (40 + shift), for few and for many pieces between knots
_RULE = tuple(gauss_legendre(n) for n in (10, 5))
_MANY_KNOTS = 1_000
_TABLE = 2_001  # losses between which Newton's method begins


@dataclass(frozen=True)
class GaussianMixture:
    """Gaussian noise on a sum that a user changes by a random amount: the pair (sum_i p_i N(c_i, s^2), N(0, s^2)).

    Parameters
    ----------
    noise_multiplier : float
        s, the standard deviation of the noise, above 0.
    sensitivities : sequence of float, shape (k,)
        c_i, in the unit of the noise: norms by which the user changes the sum, at least 0 and at most 60 s.
    probabilities : sequence of float, shape (k,)
        p_i; they add up to 1 within 1e-12 and are then scaled to.

    Raises
    ------
    ValueError
        For an argument out of range.

    Notes
    -----
    Removal is dominated by this pair, addition by the same pair in the other order.

    References
    ----------
    Choquette-Choo, Ganesh, Steinke and Thakurta (2023), "Privacy amplification for matrix mechanisms".

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> round(compose([(GaussianMixture(1.0, [0.0, 1.0, 2.0], [0.2, 0.6, 0.2]), 1)]).delta(1.0).upper, 6)
    0.157683
    """

    noise_multiplier: float
    sensitivities: Sequence[float]
    probabilities: Sequence[float]
    # of probabilities that underflow: their sum, at most, and their largest centre over the noise
    lost: tuple[float, float] = field(default=(0.0, 0.0), init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        sigma = validate.noise_multiplier(self.noise_multiplier)
        c = np.asarray(validate.numbers(self.sensitivities, "sensitivities"))
        p = np.asarray(validate.numbers(self.probabilities, "probabilities"))
        if c.ndim != 1 or c.shape != p.shape or not c.size:
            raise ValueError(
                f"sensitivities and probabilities must be lists of one length, got {c.shape} and {p.shape}"
            )
        if not (np.all(c >= 0.0) and np.all(c <= _MOST_SENSITIVITY * sigma)):
            raise ValueError("sensitivities must be at least 0 and at most 60 times noise_multiplier")
        if not (np.all(p >= 0.0) and abs(float(p.sum()) - 1.0) <= 1e-12):
            raise ValueError(f"probabilities must be at least 0 and add up to 1, got a sum of {float(p.sum())!r}")
        some = p > 0.0
        if not c[some].any():
            raise ValueError("a sensitivity above 0 must have a probability above 0")
        object.__setattr__(self, "noise_multiplier", sigma)
        object.__setattr__(self, "sensitivities", tuple(c[some].tolist()))
        object.__setattr__(self, "probabilities", tuple((p[some] / p.sum()).tolist()))

    @property
    def pair(self) -> Pair:
        """The two mixtures, with and without the user, at noise of standard deviation 1."""
        c = np.array(self.sensitivities) / self.noise_multiplier
        return Pair(c, np.array(self.probabilities), np.zeros(1), np.ones(1))

    @staticmethod
    def steps(mechanisms: Sequence[GaussianMixture], direction: Direction) -> StepFamily:
        """The family with one row for each of these mechanisms."""
        return GaussianMixtureSteps([m.pair for m in mechanisms], direction, [m.lost for m in mechanisms])


@dataclass(frozen=True, repr=False)
class UnderflowingGroup:
    """A `GroupGaussian` that draws few records so seldom that no double holds the probability.

    It lies between two mixtures (`base.Enclosed`), because more records lose more.
    """

    noise_multiplier: float
    sample_rate: float
    records: int
    close: ClassVar = True

    def __repr__(self) -> str:
        return f"GroupGaussian({self.noise_multiplier!r}, {self.sample_rate!r}, {self.records!r})"

    def below(self) -> Enclosure:
        """See `base.Enclosed`: what is lost counts as no record."""
        p = _binomial(self.records, self.sample_rate)
        p[0] = _LEAST * float((p < _LEAST).sum())
        return Enclosure([(_group(self.noise_multiplier, p), 1)])

    def above(self) -> Enclosure:
        """See `base.Enclosed`: what is lost counts as more records."""
        return Enclosure([(_group(self.noise_multiplier, _binomial(self.records, self.sample_rate)), 1)])


def GroupGaussian(noise_multiplier: float, sample_rate: float, records: int) -> GaussianMixture | UnderflowingGroup:
    """A group or user of several records under Poisson sampling: a binomial number of them enters each step.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by one record's largest contribution; above 0.
    sample_rate : float
        Probability with which each record enters the step, independently, in (0, 1].
    records : int
        Records of the user, at least 1 and at most 60 times the noise multiplier.

    Returns
    -------
    GaussianMixture or UnderflowingGroup
        The latter if the probability of no record is below 2.3e-308.

    Raises
    ------
    ValueError
        For an argument out of range.

    References
    ----------
    Ganesh (2024), "Tight group-level DP guarantees for DP-SGD with sampling via mixture of Gaussians mechanisms".

    Examples
    --------
    >>> GroupGaussian(4.0, 0.5, 2)
    GaussianMixture(noise_multiplier=4.0, sensitivities=(0.0, 1.0, 2.0), probabilities=(0.25, 0.5, 0.25))
    """
    sigma, rate = validate.noise_multiplier(noise_multiplier), validate.sample_rate(sample_rate)
    k = validate.count(records, "records", least=1)
    if k > _MOST_SENSITIVITY * sigma:
        raise ValueError(f"records must be at most 60 times the noise multiplier, got {k} at {sigma}")
    p = _binomial(k, rate) if rate < 1.0 else np.append(np.zeros(k), 1.0)
    if rate < 1.0 and p[0] < _LEAST:
        return UnderflowingGroup(sigma, rate, k)
    return _group(sigma, p)


def _group(sigma: float, p: NDArray) -> GaussianMixture:
    """The mixture of these numbers of records without the probabilities that are less than doubles hold in full."""
    found = GaussianMixture(sigma, tuple(map(float, range(p.size))), tuple(np.where(p < _LEAST, 0.0, p).tolist()))
    if p[-1] < _LEAST:
        lost = p[int(np.argmax(p)) :] < _LEAST
        object.__setattr__(found, "lost", (_LEAST * int(lost.sum()), (p.size - 1) / sigma))
    return found


def _binomial(number: int, rate: float) -> NDArray:
    """Masses of the binomial law, rate below 1: products of ratios outwards from the mode, in long doubles."""
    i = np.arange(number, dtype=np.longdouble)
    ratios = (number - i) / (i + 1) * (np.longdouble(rate) / (1 - np.longdouble(rate)))
    mode = min(int((number + 1) * rate), number)
    below = np.cumprod(1 / ratios[:mode][::-1])[::-1]
    p = np.concatenate([below, [np.longdouble(1)], np.cumprod(ratios[mode:])])
    return (p / p.sum()).astype(np.float64)


@dataclass(frozen=True)
class ReplaceOneSampledGaussian:
    """The Gaussian mechanism on a Poisson sample when neighbours differ by one record *replaced* by another.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by one record's largest contribution s (the clipping norm), at least
        1 / 30.  A replaced record moves the sum by up to 2 s: without sampling this is the Gaussian mechanism of half
        the noise multiplier.  Other libraries' "sensitivity" may be s or 2 s.
    sample_rate : float
        In (0, 1].

    Raises
    ------
    ValueError
        For a parameter out of range.

    Notes
    -----
    The pair is ((1 - q) N(0) + q N(s), (1 - q) N(0) + q N(-s)); both directions are alike.  It dominates all records
    x and y of norm at most s: take a set of any probability under N(0), and the half-line of this probability.  The
    set's probability under N(x) is at most the half-line's under N(s), and under N(y) at least the half-line's under
    N(-s) (Neyman and Pearson).

    References
    ----------
    Koskela, Jaelkoe and Honkela (2020), for the pair.

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> round(compose([(ReplaceOneSampledGaussian(2.0, 0.8), 1)]).delta(1.0).upper, 9)
    0.058086657
    """

    noise_multiplier: float
    sample_rate: float
    symmetric: ClassVar = True
    neighbours: ClassVar = "replaced"

    def __post_init__(self) -> None:
        sigma = validate.noise_multiplier(self.noise_multiplier)
        if not 2.0 / sigma <= _MOST_SENSITIVITY:
            raise ValueError(f"noise_multiplier must be at least 1/30, got {sigma}")
        object.__setattr__(self, "noise_multiplier", sigma)
        object.__setattr__(self, "sample_rate", validate.sample_rate(self.sample_rate))

    @property
    def pair(self) -> Pair:
        """The two mixtures at noise of standard deviation 1, moved by s."""
        s, q = 1.0 / self.noise_multiplier, self.sample_rate
        weights, some = np.array([1.0 - q, q]), [q < 1.0, True]
        return Pair(np.array([s, 2.0 * s])[some], weights[some], np.array([s, 0.0])[some], weights[some])

    @staticmethod
    def steps(mechanisms: Sequence[ReplaceOneSampledGaussian], direction: Direction) -> StepFamily:
        """The family with one row for each of these mechanisms; its sums converge faster under removal."""
        return GaussianMixtureSteps([m.pair for m in mechanisms], "remove")


class Pair(NamedTuple):
    """Centres and weights of the mixtures with and without the record: 0 <= other centres <= centres."""

    centres: NDArray
    weights: NDArray
    other_centres: NDArray
    other_weights: NDArray

    @property
    def shift(self) -> float:
        """The largest distance between two centres, one of each mixture."""
        return float(max(self.centres.max() - self.other_centres.min(), self.other_centres.max() - self.centres.min()))

    @property
    def top(self) -> float:
        return float(max(self.centres.max(), self.other_centres.max()))


def _beside(k: NDArray, theta: NDArray, log_weight: float, centre: float) -> NDArray:
    """log E_Q[(P / Q)^(1 + theta)], rounded up, of a P with a further component N(centre, 1); Q is N(0, 1).

    Minkowski's inequality: the norm of order 1 + theta of the density ratio is at most the sum of two norms.
    """
    own, other = k / (1.0 + theta), log_weight + 0.5 * theta * centre**2
    more = np.logaddexp(0.0, np.where(own < np.inf, other - own, 0.0))
    return k + (1.0 + theta) * more * (1.0 + 1e-12 + 1e-15 * np.abs(other - own))


class GaussianMixtureSteps(DeltaSteps):
    """Steps with mixtures of Gaussians on both sides, one `Pair` in each row.

    The loss rises in the noise's own variable x under removal and falls under addition, so that cells of the loss are
    intervals of x.

    Parameters
    ----------
    pairs : sequence of Pair
    direction : {"remove", "add"}
    lost : sequence of (float, float), optional
        Mass that P has beside its mixture, at most, and the largest centre of that mass.
    """

    whole = True
    decays = True
    atomic = False

    def __init__(
        self, pairs: Sequence[Pair], direction: Direction, lost: Sequence[tuple[float, float]] | None = None
    ) -> None:
        self._pairs, self._lost = list(pairs), list(lost or [(0.0, 0.0)] * len(pairs))
        self.direction: Direction = direction
        self._sign = 1.0 if direction == "remove" else -1.0
        most = max((weight for weight, _ in self._lost), default=0.0)
        self.log_unseen = math.log(most) if most and direction == "remove" else -math.inf
        self._moments: dict[tuple[int, bool], dict[float, float]] = {}
        self._factors: dict[int, tuple[int, int]] = {}
        self._tables: dict[int, tuple[NDArray, NDArray]] = {}

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self._pairs)

    def _loss(self, row: int, x: NDArray) -> NDArray:
        pair = self._pairs[row]
        return self._sign * log_quotient(x, pair[:2], pair[2:])

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """K at each tilt, rounded up, shape (size, tilts), at most that of the Gaussian of the largest shift.

        The latter alone where K costs too many nodes.
        """
        found = np.empty((self.size, theta.size))
        for row, (pair, largest) in enumerate(zip(self._pairs, self.largest_loss(), strict=True)):
            known = self._moments.setdefault((row, exact), {})
            new = np.array([t for t in theta.tolist() if t not in known])
            if new.size:
                weight, centre = self._lost[row]
                square = max(pair.shift, centre) ** 2 * (1.0 + 1e-14)
                bound = np.minimum(0.5 * new * (1.0 + new) * square, new * largest)
                k = log_moments(self._tilted(row, 0.0), new, _NODES_EXACT if exact else _NODES)
                if weight and self.direction == "remove":
                    k = _beside(k, new, math.log(weight), centre)
                known.update(zip(new.tolist(), np.minimum(k, bound).tolist(), strict=True))
            found[row] = [known[t] for t in theta.tolist()]
        return found

    def _tilted(self, row: int, theta: float) -> TiltedMixture:
        c, p, d, q = self._pairs[row]
        if row not in self._factors:
            self._factors[row] = (
                PositiveMixture.of(c, p).factored().factors,
                PositiveMixture.of(d, q).factored().factors,
            )
        of_p, of_q = self._factors[row]
        if self._sign > 0:
            return TiltedMixture((c, p), (d, q), theta, (of_p, of_q))
        return TiltedMixture((d, q), (c, p), theta, (of_q, of_p))

    def spectrum(
        self, theta: float, spacing: float, m: int, rows: NDArray, columns: int, work: float
    ) -> Spectrum | None:
        """See `base.CharacteristicSteps`."""
        share = work / rows.size
        return join(self._tilted(row, theta).spectrum(spacing, m, columns, share) for row in rows.tolist())

    def envelope_levels(self, theta: float) -> tuple[int, int]:
        """From below every band of this tilt up to where one step's density decays."""
        slopes = [float(c @ p - d @ q) for c, p, d, q in self._pairs]
        lowest = math.floor(2.0 * math.log2(0.05 * theta))
        return lowest, math.ceil(2.0 * math.log2(64.0 / min(slopes) + theta)) + 8

    def log_envelope(self, theta: float, levels: NDArray, rows: NDArray, found: Spectrum) -> NDArray:
        """See `base.CharacteristicSteps`."""
        bounds = [
            self._tilted(int(row), theta).log_envelope(levels, float(k))
            for row, k in zip(rows, found.log_moment - found.log_moment_error, strict=True)
        ]
        return np.stack(bounds)

    def complex_law(self, row: int) -> ComplexLaw | None:
        """See `complex_moments.ContourSteps`; none for little noise, nor under addition for losses without end."""
        c, p, d, q = self._pairs[row]
        many, some = p > _LITTLE, q > _LITTLE
        if c.max() == d.max() or Pair(c[many], p[many], d[some], q[some]).shift > _MOST_SHIFT:
            return None
        law = ComplexLaw((c, p), (d, q), self._sign > 0)
        return law if law.served else None

    def infinite_mass(self) -> NDArray:
        """None: both mixtures have the same support."""
        return np.zeros(self.size)

    def log_delta_of_step(self, epsilon: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """Integral over the losses above epsilon.

        Its slope in epsilon is at most the mass of these losses.  So that mass times the round-off of a loss near
        epsilon is an error, too.  Next to the largest loss it exceeds the error of the rule.
        """
        top = np.array([self._pairs[int(k)].top for k in row])
        # small losses keep their digits (`log_quotient`), larger ones are a difference of two logarithms
        rounded = np.where(epsilon > _KEPT, _UNIT * (32.0 * (_REACH * top + 0.5 * top * top) + 64.0), 0.0)
        room = _ROUNDED * epsilon + rounded
        # losses next below epsilon count as well: just below the largest loss there may be none above
        knots = np.stack([epsilon - room, epsilon, np.full(epsilon.shape, np.inf)], axis=1)
        cells = [self.masses(int(k), three) for three, k in zip(knots, row, strict=True)]
        mass, value = np.array([[float(p.sum()), float(u[1])] for p, u in cells]).reshape(-1, 2).T
        off = mass * room
        with np.errstate(divide="ignore"):
            low = np.log(np.maximum(value * (1.0 - _SLACK) - off, 0.0))
            high = np.log(value * (1.0 + _SLACK) + off + 1e-300)
        return low, np.minimum(high, 0.0)

    def _most(self, delta: NDArray, row: NDArray) -> NDArray:
        """At most the epsilon of the Gaussian mechanism with the largest shift."""
        mu = self.gaussian_mu()[row]
        top = np.array([full_batch_epsilon(float(m), float(d))[1] for m, d in zip(mu, delta, strict=True)])
        return np.minimum(top, super()._most(delta, row))

    def largest_loss(self) -> NDArray:
        """The limit of the loss at the end where the mixtures share their outermost centre, rounded up; else inf."""
        found = np.full(self.size, np.inf)
        for i, (c, p, d, q) in enumerate(self._pairs):
            at, other = (c.max(), d.max()) if self._sign > 0 else (c.min(), d.min())
            if at == other:
                ratio = float(p[c == at].sum()) / float(q[d == at].sum())
                found[i] = self._sign * math.log(ratio) + 1e-14 * (1.0 + abs(math.log(ratio)))
        return found

    def surely_lost(self, deviations: NDArray) -> NDArray:
        """None is known."""
        return np.full((self.size, deviations.size), -np.inf)

    def gaussian_mu(self) -> NDArray:
        """The largest shift: a hockey-stick divergence is convex in the pair (Zhu, Dong and Wang 2022)."""
        return np.array([pair.shift * (1.0 + 1e-14) for pair in self._pairs])

    def _places(self, row: int, losses: NDArray) -> NDArray:
        """x at which the loss, times the sign, has these values, clipped to 38 standard deviations: Newton's method."""
        pair, goal = self._pairs[row], self._sign * losses
        if row not in self._tables:
            x = np.linspace(-_REACH, pair.top + _REACH, _TABLE)
            self._tables[row] = x, np.maximum.accumulate(self._sign * self._loss(row, x))
        x, values = self._tables[row]
        inside = (goal > values[0]) & (goal < values[-1])
        found = np.where(goal >= values[-1], x[-1], x[0])
        asked = goal[inside]
        place = np.searchsorted(values, asked)
        low, high = x[place - 1], x[np.minimum(place, x.size - 1)]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (asked - values[place - 1]) / (values[np.minimum(place, x.size - 1)] - values[place - 1])
        at = low + np.where(share <= 1.0, share, 0.5) * (high - low)
        left = np.arange(at.size)
        for _ in range(8):
            deadline.check()
            here = at[left]
            loss, slope = log_quotient_and_slope(here, pair[:2], pair[2:])
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                moved = here - (loss - asked[left]) / slope
            at[left] = np.clip(np.where(np.isfinite(moved), moved, here), low[left], high[left])
            left = left[np.abs(at[left] - here) > _PLACED * (1.0 + np.abs(here))]
            if not left.size:
                break
        found[inside] = at
        return found

    def masses(self, row: int, knots: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`; Gauss rules on pieces of the noise's variable.

        **Error**: relative 1e-12: with ten points on pieces of 2 / (40 + shift) standard deviations, or five on pieces
        of a quarter of that, the rule is exact to 1e-15.  The outermost cells end `_TAIL` standard deviations beyond
        the next place and all centres: what lies farther out is 1e-17 of either of their masses.
        """
        pair = self._pairs[row]
        x = self._places(row, knots)[:: int(self._sign)]
        x[0] = max(x[0], min(x[1], 0.0) - _TAIL)
        x[-1] = min(x[-1], max(x[-2], pair.top) + _TAIL)
        many = x.size > _MANY_KNOTS
        node, weight = _RULE[many]
        breaks = np.arange(x[0], x[-1], _PIECE[many] / (_REACH + 2.0 + pair.top))
        ends = np.sort(np.concatenate([x, breaks]))
        cell = np.minimum(np.searchsorted(x, ends[:-1], side="right") - 1, x.size - 2)
        left = (knots[:-1] if self._sign > 0 else knots[:-1][::-1])[cell]
        p, u = np.zeros((2, x.size - 1))
        own = pair[:2] if self._sign > 0 else pair[2:]
        for begin in range(0, cell.size, _CHUNK):
            deadline.check()
            some = slice(begin, begin + _CHUNK)
            a, b = ends[:-1][some, None], ends[1:][some, None]
            at = 0.5 * (a + b) + 0.5 * (b - a) * node
            density = np.exp(log_ratio(at, *own) - 0.5 * at * at) / math.sqrt(2.0 * math.pi)
            mass = density * weight * 0.5 * (b - a)
            with np.errstate(over="ignore"):
                above = -np.expm1(np.minimum(left[some, None] - self._loss(row, at), 0.0))
            p += np.bincount(cell[some], mass.sum(axis=1), p.size)
            u += np.bincount(cell[some], (mass * above).sum(axis=1), p.size)
        return (p, u) if self._sign > 0 else (p[::-1].copy(), u[::-1].copy())

    def losses(self, row: int, reach: float, number: int) -> NDArray:
        """Losses at x even, `reach` standard deviations beyond the centres, ascending."""
        reach = min(reach, _REACH)
        return np.sort(self._loss(row, np.linspace(-reach, self._pairs[row].top + reach, number)))

    def typical_loss(self, row: int) -> float:
        """The loss at the likeliest centre of P."""
        pair = self._pairs[row]
        centres, weights = pair[:2] if self._sign > 0 else pair[2:]
        return float(self._loss(row, centres[[int(np.argmax(weights))]])[0])

    def range_of_losses(self, row: int, reach: float) -> tuple[float, float]:
        """See `base.StepFamily`."""
        reach = min(reach, _REACH)
        ends = np.sort(self._loss(row, np.array([-reach, self._pairs[row].top + reach])))
        return float(ends[0]), float(ends[1])

    def loss_roundoff(self, counts: NDArray, depth: int) -> tuple[float, float]:
        """See `SampledGaussianSteps.loss_roundoff`: exponents are at most T = 39 c + c^2, c the outermost centre."""
        t = np.array([39.0 * pair.top + pair.top**2 for pair in self._pairs])
        c = 2.0**-53 * (8.0 * (4.0 * float(t[counts > 0].max()) + 8.0) + 4.0 * depth + 8.0)
        return c, 3.0 * c * float(counts @ t)

    def truncated(self, reach: float) -> StepFamily:
        """The steps themselves."""
        return self
