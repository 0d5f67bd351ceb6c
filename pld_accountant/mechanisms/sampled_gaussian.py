"""The Gaussian mechanism on a Poisson sample: DP-SGD's step, and the family of such steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import validate
from ..threads import for_blocks
from . import complex_law, hockey_stick, quadrature
from .base import Direction, Spectrum, StepFamily, crossings, noise_of_share, sampled_loss

__all__ = ["SampledGaussian", "SampledGaussianSteps"]

_NODES_FOR_MOMENTS = 4_000
_NODES_AT_MOST = 4_000_000
_LAST_LEVEL = 2_046  # of a frequency that is still a number
_GRID_REACH = 38.0  # standard deviations; a double's smallest mass lies there
_ENVELOPE_CELLS = 384  # twice as many make 1 % less of log |phi|
_LEAST_NOISE, _MOST_RATE = 0.2, 1.0 - 1e-6  # of steps for contours
_FEW_CELLS = 512  # whose masses take about 0.2 milliseconds


@dataclass(frozen=True)
class SampledGaussian:
    """The Gaussian mechanism on a Poisson sample: DP-SGD's step.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the person's largest contribution (the clipping norm); above 0.
    sample_rate : float
        Probability with which each person enters the step, independently, in (0, 1].

    Raises
    ------
    ValueError
        For a parameter out of range.

    Notes
    -----
    Neighbours differ in one record, added or removed.  Removal is dominated by the pair
    ((1 - q) N(0, s^2) + q N(1, s^2), N(0, s^2)), addition by the same pair in the other order.

    References
    ----------
    Zhu, Dong and Wang (2022), Theorem 11.

    Examples
    --------
    >>> SampledGaussian(2, 0.005)
    SampledGaussian(noise_multiplier=2.0, sample_rate=0.005)
    """

    noise_multiplier: float
    sample_rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", validate.noise_multiplier(self.noise_multiplier))
        object.__setattr__(self, "sample_rate", validate.sample_rate(self.sample_rate))

    @property
    def symmetric(self) -> bool:
        """Whether everybody takes part."""
        return self.sample_rate == 1.0

    @property
    def neighbours(self) -> str | None:
        """See `base.Mechanism`."""
        return "added or removed" if self.sample_rate < 1.0 else None

    def scaled(self, share: float) -> SampledGaussian | None:
        """See `base.ScalableMechanism`."""
        share = validate.share(share)
        return SampledGaussian(noise_of_share(self.noise_multiplier, share), self.sample_rate) if share else None

    @staticmethod
    def steps(mechanisms: Sequence[SampledGaussian], direction: Direction) -> SampledGaussianSteps:
        """The family with one row for each of these mechanisms."""
        sigma, rate = np.array([(m.noise_multiplier, m.sample_rate) for m in mechanisms]).T
        return SampledGaussianSteps(sigma, rate, direction)


class SampledGaussianSteps:
    """Steps of the sampled Gaussian, one (noise multiplier, sample rate) in each row, or a part of their losses.

    Parameters
    ----------
    sigma, q : array_like, shape (size,)
        Noise multipliers and sample rates.
    direction : {"remove", "add"}
    begin, end : float
        Removal only: the part of a step's losses between the places beyond which Phi(-begin) and Phi(-end) of its mass
        lie.
    infinite : bool
        True: mass beyond the end is at +infinity in upper bounds and dropped from lower ones.  False: the caller
        accounts for the mass outside of the part.

    Attributes
    ----------
    part : ndarray, shape (size, 2)
        Where the part begins and ends, in the Gaussian's own variable (see `kernels.characterise`).
    """

    decays = True
    atomic = False

    def __init__(
        self,
        sigma: NDArray,
        q: NDArray,
        direction: Direction,
        *,
        begin: float = -np.inf,
        end: float = np.inf,
        infinite: bool = True,
    ) -> None:
        self.sigma = np.ascontiguousarray(sigma, dtype=np.float64)
        self.q = np.ascontiguousarray(q, dtype=np.float64)
        self.direction: Direction = direction
        self.sign = 1.0 if direction == "remove" else -1.0
        self._infinite = infinite and end < np.inf
        low = np.full(self.size, -np.inf) if begin == -np.inf else self._places(begin)
        self.part = np.stack([low, self._places(end)], axis=1)
        self._panels = end < np.inf
        self._moments: dict[tuple[float, bool], NDArray] = {}

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.sigma.size

    @property
    def whole(self) -> bool:
        """Whether no mass is at +infinity."""
        return not self._infinite

    def parameters(self) -> dict[str, NDArray]:
        """See `base.LastingSteps`."""
        scalars = {"sign": self.sign, "infinite": float(self._infinite)}
        arrays = {"sigma": self.sigma, "q": self.q, "part": self.part}
        return {**arrays, **{name: np.array([value]) for name, value in scalars.items()}}

    # ------------------------------------------------------------------ parts of the losses

    def truncated(self, reach: float) -> StepFamily:
        """The steps whose losses end where Phi(-reach) of P is left; addition has bounded losses and is not cut."""
        if self.direction == "add" or reach == np.inf:
            return self
        return SampledGaussianSteps(self.sigma, self.q, self.direction, end=reach)

    def split(self, reach: float, far: float) -> tuple[SampledGaussianSteps, SampledGaussianSteps]:
        """The small losses, up to `reach`, and the large ones, from there up to `far`; removal only."""
        small = SampledGaussianSteps(self.sigma, self.q, self.direction, end=reach, infinite=False)
        large = SampledGaussianSteps(self.sigma, self.q, self.direction, begin=reach, end=far, infinite=False)
        return small, large

    def _places(self, reach: float) -> NDArray:
        """Where Phi(-reach) of a step's mass under removal lies beyond, by bisection; inf for full batches."""
        if reach == np.inf:
            return np.full(self.size, np.inf)
        from scipy import special

        log_mass = special.log_ndtr(-reach)
        low, high = np.full(self.size, -45.0), np.full(self.size, 45.0)
        for _ in range(50):
            middle = 0.5 * (low + high)
            more = self._log_beyond(1.0 + middle * self.sigma) > log_mass
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return np.where(self.q == 1.0, np.inf, 1.0 + high * self.sigma)

    def _log_beyond(self, end: NDArray) -> NDArray:
        """log of a step's mass beyond an end."""
        from scipy import special

        with np.errstate(divide="ignore"):
            idle = np.log1p(-self.q) + special.log_ndtr(-end / self.sigma)
            return np.logaddexp(idle, np.log(self.q) + special.log_ndtr((1.0 - end) / self.sigma))

    def mass_beyond(self) -> NDArray:
        """Mass of a step beyond the part's end, rounded up, shape (size,); 0 for full batches."""
        mass = np.exp(self._log_beyond(self.part[:, 1])) * (1.0 + 1e-10) + 1e-300
        return np.where(self.q == 1.0, 0.0, mass)

    def has_large_losses(self) -> NDArray:
        """All rows but full batches, whose losses are not split."""
        return self.q < 1.0

    def infinite_mass(self) -> NDArray:
        """Mass of one step at +infinity, rounded up, shape (size,)."""
        return self.mass_beyond() if self._infinite else np.zeros(self.size)

    # ------------------------------------------------------------------ one step in closed form

    def log_delta_of_step(self, epsilon: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`."""
        return hockey_stick.log_delta_bounds(epsilon, self.sigma[row], self.q[row], self.direction)

    def epsilon_of_step(self, delta: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`."""
        return hockey_stick.epsilon_bounds(delta, self.sigma[row], self.q[row], self.direction)

    def log_delta_of_drawn_step(
        self, epsilon: NDArray, row: NDArray, lower_row: NDArray, weight: NDArray
    ) -> tuple[NDArray, NDArray]:
        """Lower and upper log delta of steps drawn openly: `row` with probability `weight`, else `lower_row`.

        A lower row of -1 costs nothing.  A full batch is not drawn: its precision is the mean of the outcomes'
        precisions (`counting.interpolation`).
        """
        noise, sigma, costly = self._outcomes(row, lower_row, weight)
        q, direction = self.q[row], self.direction
        first, second = (hockey_stick.log_delta_bounds(epsilon, s, q, direction) for s in (noise, sigma))
        with np.errstate(divide="ignore", invalid="ignore"):
            log_weight, log_rest = np.log(weight), np.where(costly, np.log1p(-weight), -np.inf)
            low, high = (np.logaddexp(log_rest + a, log_weight + b) for a, b in zip(first, second, strict=True))
        return low, high

    def epsilon_of_drawn_step(
        self, delta: NDArray, row: NDArray, lower_row: NDArray, weight: NDArray
    ) -> tuple[NDArray, NDArray]:
        """Lower and upper epsilon of steps drawn openly, as for `log_delta_of_drawn_step`."""
        noise, sigma, costly = self._outcomes(row, lower_row, weight)
        q, direction = self.q[row], self.direction
        bottom = np.where(costly, hockey_stick.epsilon_bounds(delta, noise, q, direction)[0], 0.0)
        top = hockey_stick.epsilon_bounds(delta, sigma, q, direction)[1]

        def bounds(epsilon: NDArray) -> tuple[NDArray, NDArray]:
            return self.log_delta_of_drawn_step(epsilon, row, lower_row, weight)

        return crossings(bounds, np.log(delta), bottom, top)

    def _outcomes(self, row: NDArray, lower_row: NDArray, weight: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """Noise multipliers of the lower and the upper outcome, and whether the lower one costs anything."""
        costly = lower_row >= 0
        noise, sigma = np.where(costly, self.sigma[lower_row], 1.0), self.sigma[row]
        full = (self.q[row] == 1.0) & costly
        mean = 1.0 / np.sqrt((1.0 - weight) / noise**2 + weight / sigma**2)
        return np.where(full, mean, noise), np.where(full, mean, sigma), costly

    def largest_loss(self) -> NDArray:
        """-log(1 - q) under addition, rounded up; inf under removal and for full batches."""
        if self.direction == "remove":
            return np.full(self.size, np.inf)
        with np.errstate(divide="ignore"):
            return -np.log1p(-self.q) * (1.0 + 2.0**-50)

    def surely_lost(self, deviations: NDArray) -> NDArray:
        """Under addition the loss falls in x ~ N(0, sigma^2): its value at x = -deviations sigma; else -inf."""
        if self.direction == "remove":
            return np.full((self.size, deviations.size), -np.inf)
        t = -np.multiply.outer(1.0 / self.sigma, deviations) - 0.5 / self.sigma[:, None] ** 2
        return -sampled_loss(t, self.q[:, None])

    def gaussian_mu(self) -> NDArray:
        """1 / sigma: a sampled step is a post-processing of the same step without sampling."""
        return 1.0 / self.sigma

    # ------------------------------------------------------------------ log-moments and characteristic functions

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """K at each tilt, rounded up, shape (size, tilts).

        Unless `exact`, the unsampled Gaussian's K, an upper bound, replaces a K that needs more than 4,000 nodes.
        """
        most = _NODES_AT_MOST if exact else _NODES_FOR_MOMENTS
        new = [t for t in dict.fromkeys(theta.tolist()) if (t, exact) not in self._moments]
        if new:
            losses = self._tilted(np.repeat(new, self.size))
            largest = np.tile(self.largest_loss(), len(new))
            found = quadrature.log_moments(losses, most, self._panels, largest, self.size)
            self._moments.update(zip([(t, exact) for t in new], found.reshape(len(new), -1), strict=True))
        return np.stack([self._moments[t, exact] for t in theta.tolist()], axis=1)

    def complex_law(self, row: int) -> complex_law.ComplexLaw | None:
        """See `complex_law.ContourSteps`; none for nearly full batches, nor for little noise (long paths)."""
        sigma, q = float(self.sigma[row]), float(self.q[row])
        if q > _MOST_RATE or sigma < _LEAST_NOISE:
            return None
        p = np.array([0.0, 1.0 / sigma]), np.array([1.0 - q, q])
        return complex_law.ComplexLaw(p, (np.zeros(1), np.ones(1)), self.direction == "remove")

    def spectrum(
        self, theta: float, spacing: float, m: int, rows: NDArray, columns: int, work: float
    ) -> Spectrum | None:
        """See `base.CharacteristicSteps`."""
        return quadrature.spectrum(
            self._tilted(np.full(self.size, theta)).of(rows),
            spacing,
            m,
            columns,
            work,
            _NODES_AT_MOST,
            panels=self._panels,
        )

    def envelope_levels(self, theta: float) -> tuple[int, int]:
        """From below every band of this tilt up to where one step's density, at most about sigma / q, decays."""
        lowest = math.floor(2.0 * np.log2(0.05 * theta))
        decay = 6.0 + float(np.max(np.log2(self.sigma) - np.log2(self.q)))
        highest = math.ceil(2.0 * np.logaddexp2(decay, np.log2(theta))) + 8
        return lowest, min(highest, _LAST_LEVEL)

    def log_envelope(self, theta: float, levels: NDArray, rows: NDArray, found: Spectrum) -> NDArray:
        """See `base.CharacteristicSteps`; `kernels.envelope` has the proof."""
        from ..kernels import envelope

        tilted = self._tilted(np.full(self.size, theta)).of(rows)
        fresh = np.empty((rows.size, levels.size))
        log_moment, span = np.ascontiguousarray(found.log_moment), np.ascontiguousarray(found.span)

        def fill(some: slice) -> None:
            law = (*tilted.of(some), log_moment[some], span[some])
            envelope.envelope(*law, _ENVELOPE_CELLS, levels, fresh[some])

        for_blocks(fill, rows.size, 2)
        return fresh

    def _tilted(self, theta: NDArray) -> quadrature.TiltedLosses:
        """All rows at each tilt: theta holds the tilts of all rows, one round after another."""
        rounds = theta.size // self.size
        sigma, q, part = np.tile(self.sigma, rounds), np.tile(self.q, rounds), np.tile(self.part, (rounds, 1))
        return quadrature.TiltedLosses(sigma, q, self.sign, theta, part)

    # ------------------------------------------------------------------ discrete distributions

    def masses(self, row: int, knots: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`; losses beyond the part's end have no mass.

        **Error**: relative 1e-12; a Gaussian density at 38 standard deviations carries 1,500 units, the additions as
        many, the quadrature less.
        """
        from ..kernels import discretise

        p, u = np.empty((2, knots.size - 1))
        if self.part[row, 1] < np.inf:
            knots = np.minimum(knots, self.losses_at(row, self.part[row, 1:])[0])

        def fill(cells: slice) -> None:
            ends = knots[cells.start : cells.stop + 1]
            discretise.masses(self.sigma[row], self.q[row], self.sign, ends, p[cells], u[cells])

        for_blocks(fill, p.size, _FEW_CELLS)
        return p, u

    def losses(self, row: int, reach: float, number: int) -> NDArray:
        """Losses at x even on [-reach sigma, 1 + reach sigma], ascending."""
        reach = min(reach, _GRID_REACH) * self.sigma[row]
        return np.sort(self.losses_at(row, np.linspace(-reach, 1.0 + reach, number)))

    def typical_loss(self, row: int) -> float:
        """The loss at x = 0, where the mass of the unsampled steps lies."""
        return float(self.losses_at(row, np.zeros(1))[0])

    def range_of_losses(self, row: int, reach: float) -> tuple[float, float]:
        """See `base.StepFamily`; a part that ends does so at its end."""
        far = reach * self.sigma[row]
        ends = np.sort(self.losses_at(row, np.array([-far, min(1.0 + far, self.part[row, 1])])))
        return float(ends[0]), float(ends[1])

    def losses_at(self, row: int, x: NDArray) -> NDArray:
        """The loss at places of the Gaussian's own variable."""
        from ..kernels import discretise

        loss = np.empty(x.size)
        discretise.losses(self.sigma[row], self.q[row], self.sign, x, loss)
        return loss

    def loss_roundoff(self, counts: NDArray, depth: int) -> tuple[float, float]:
        """See `base.StepFamily`.

        One step: with t = (2 x - 1) / (2 sigma^2), at most T = 39 / sigma + 1 / sigma^2 on the grid, log g is computed
        from t, and t from log g, with an error of t below (4 T + 8) units; d log g <= 8 dt (|log g| + N),
        N = -log(1 - q).

        A partial sum is rounded once at every one of `depth` levels, relative to itself, and again when cells are
        merged.  In all, the errors are at most c sum |l_i| + c sum N_i.  Under removal no loss is below -N, under
        addition none is above N, so that sum |l_i| <= |sum l_i| + 2 sum N_i if the sum is positive.
        """
        t = 39.0 / self.sigma + 1.0 / self.sigma**2
        with np.errstate(divide="ignore"):
            n = np.minimum(-np.log1p(-self.q), t)
        used = counts > 0
        c = 2.0**-53 * (8.0 * (4.0 * float(t[used].max()) + 8.0) + 4.0 * depth + 8.0)
        return c, 3.0 * c * float(counts[used] @ n[used])
