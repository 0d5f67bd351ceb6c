"""Discrete Gaussian noise on many integers, or with a standard deviation too large for a table of outcomes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from .. import validate
from .base import Enclosure
from .sampled_gaussian import SampledGaussian

__all__ = ["LEAST_SIGMA", "DiscreteGaussianVector"]

LEAST_SIGMA = 4.0
_MOST_SIGMA = 1e99
_VARIANCE = 4.0  # of the Gaussian that rounds: e^(-2 pi^2 4) is 5e-35
_MOST_VARIANCE = 64.0  # e^(-2 pi^2 64) is 1e-548
_SHARE = 6.4e-7  # of sigma^2: where the variance above is no more than that, it costs less than 1e-6 of epsilon
_DOWN, _UP = 1.0 - 2.0**-50, 1.0 + 2.0**-50


@dataclass(frozen=True)
class DiscreteGaussianVector:
    """Independent discrete Gaussian noise on several integers; `statistics.DiscreteGaussian` makes it.

    Parameters
    ----------
    sigma : float
        From 4 to 1e99.
    sensitivity : float
        Largest Euclidean norm of the change, from 1 to 1e99.  The square root of an integer may be off by 2^-51.
    coordinates : int
        At least 1.
    sample_rate : float
        Probability with which the record enters the step, in (0, 1].

    Raises
    ------
    ValueError
        For a parameter out of range.

    Notes
    -----
    Let t < sigma.  A Gaussian x of variance sigma^2 - t^2 that is rounded to the integer n with a chance proportional
    to exp(-(n - x)^2 / (2 t^2)) is the discrete Gaussian of sigma, but for factors of the masses; the discrete Gaussian
    with a Gaussian of variance t^2 added to it is the Gaussian of variance sigma^2 + t^2, but for such factors of the
    density.  All of them are ratios of theta sums, 1 + 2 sum_k e^(-2 pi^2 t^2 k^2) cos(2 pi k x) by Poisson's formula.
    With an integer added to the data, x and n are moved alike, so that both data sets, and their mixtures, keep the
    factors.  Delta therefore lies between those of two Gaussian mechanisms.  Their epsilons are about t^2 / sigma^2
    apart, relative.  No upper bound exceeds the Renyi bound from ``rho``, which is closer for little noise.

    Here t^2 is 4 up to a sigma of 2,500, and the factors add 1e-33 to delta for each coordinate and step: without
    sampling smaller deltas have the Renyi bound alone, with sampling none.  From a sigma of 10,000 on t^2 is 64,
    and the factors add nothing that a double can tell.

    References
    ----------
    Peikert (2010), "An efficient and parallel Gaussian sampler for lattices", Theorem 3.1, for the rounding; Canonne,
    Kamath and Steinke (2020), Theorem 4, for ``rho``.
    """

    sigma: float
    sensitivity: float
    coordinates: int = 1
    sample_rate: float = 1.0
    close: ClassVar = True

    def __post_init__(self) -> None:
        sigma = validate.positive(self.sigma, "sigma")
        if not LEAST_SIGMA <= sigma <= _MOST_SIGMA:
            raise ValueError(
                f"sigma must be from {LEAST_SIGMA:g} to {_MOST_SIGMA:g} for several coordinates, got {sigma}; "
                "somebody who counts at most once in each of k cells has k steps of one coordinate, of any sigma; and "
                "ZeroConcentratedDP(sensitivity**2 / (2 * sigma**2)) is a bound for any sigma"
            )
        object.__setattr__(self, "sigma", sigma)
        norm = validate.positive(self.sensitivity, "sensitivity")
        if not 1.0 <= norm <= _MOST_SIGMA:
            raise ValueError(f"sensitivity must be from 1 to {_MOST_SIGMA:g}, got {norm}")
        object.__setattr__(self, "sensitivity", norm)
        object.__setattr__(self, "coordinates", validate.count(self.coordinates, "coordinates", least=1))
        object.__setattr__(self, "sample_rate", validate.sample_rate(self.sample_rate))
        SampledGaussian(self.noise_multiplier, 1.0)

    def __repr__(self) -> str:
        several = "" if self.coordinates == 1 else f", coordinates={self.coordinates}"
        step = f"DiscreteGaussian({self.sigma}, {self.sensitivity}{several})"
        return step if self.sample_rate == 1.0 else f"PoissonSampled({step}, {self.sample_rate})"

    @property
    def noise_multiplier(self) -> float:
        """See `base.Enclosed`."""
        return self.sigma / self.sensitivity

    @property
    def neighbours(self) -> str | None:
        """See `base.Mechanism`."""
        return "added or removed" if self.sample_rate < 1.0 else None

    @property
    def rho(self) -> float | None:
        """rho of zero-concentrated differential privacy, rounded up; None of a sample."""
        return 0.5 / self.noise_multiplier**2 * _UP if self.sample_rate == 1.0 else None

    def sampled(self, rate: float) -> DiscreteGaussianVector:
        """The same mechanism on a Poisson sample; rates of repeated samples multiply."""
        rate = validate.sample_rate(rate) * self.sample_rate
        return DiscreteGaussianVector(self.sigma, self.sensitivity, self.coordinates, rate)

    def _enclosure(self, noise: float) -> Enclosure:
        # two theta sums a coordinate, each within 1 +- 2.01 exp(-2 pi^2 t^2)
        ratio = 4.1 * self.coordinates * math.exp(-2.0 * math.pi**2 * self._variance)
        return Enclosure([(SampledGaussian(noise, self.sample_rate), 1)], ratio=ratio)

    @property
    def _variance(self) -> float:
        return min(max(_SHARE * self.sigma**2, _VARIANCE), _MOST_VARIANCE)

    @property
    def _shrunk(self) -> float:
        """Square root of 1 - t^2 / sigma^2."""
        return math.sqrt(1.0 - self._variance / self.sigma**2)

    def _attained(self) -> float:
        """Norm of a vector of integers, at most the sensitivity, rounded down.

        Every integer is a sum of four squares.  A sum of fewer squares is made of the largest ones.
        """
        square = math.floor(Fraction(self.sensitivity) ** 2 * Fraction(_UP))
        if self.coordinates < 4:
            rest = square
            for _ in range(self.coordinates):
                rest -= math.isqrt(rest) ** 2
            square -= rest
        return min(math.sqrt(square), self.sensitivity) * _DOWN

    def below(self) -> Enclosure:
        """See `base.Enclosed`.

        Noise of variance u^2 is added with 1 / u^2 + 1 / sigma^2 = 1 / t^2, so that the theta sum is that of t.
        """
        return self._enclosure(self.sigma / self._attained() / self._shrunk * _UP)

    def above(self) -> Enclosure:
        """See `base.Enclosed`."""
        return self._enclosure(self.noise_multiplier * self._shrunk * _DOWN)
