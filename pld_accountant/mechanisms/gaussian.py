"""The Gaussian mechanism on everybody (full batches), whose composition has a closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import validate
from ..notions import gdp
from .base import Direction, StepFamily, noise_of_share
from .sampled_gaussian import SampledGaussianSteps

__all__ = ["Gaussian", "full_batch_delta", "full_batch_epsilon", "full_batch_mu"]

_WIDEN = 2.0**-48  # relative; mu carries a relative error of a few units of 2^-53
_CLOSED_FORM = 2.0**-46  # error of `gdp.log_delta`, relative to 1 + |log delta|


@dataclass(frozen=True)
class Gaussian:
    """The Gaussian mechanism on everybody: a full-batch step, (1 / noise_multiplier)-GDP.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the person's largest contribution; above 0.

    Examples
    --------
    >>> Gaussian(100)
    Gaussian(noise_multiplier=100.0)
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", validate.noise_multiplier(self.noise_multiplier))

    @property
    def sample_rate(self) -> float:
        """1: everybody takes part."""
        return 1.0

    def scaled(self, share: float) -> Gaussian | None:
        """See `base.ScalableMechanism`."""
        share = validate.share(share)
        return Gaussian(noise_of_share(self.noise_multiplier, share)) if share else None

    @staticmethod
    def steps(mechanisms: Sequence[Gaussian], direction: Direction) -> StepFamily:
        """The family with one row for each of these mechanisms."""
        sigma = np.array([m.noise_multiplier for m in mechanisms])
        return SampledGaussianSteps(sigma, np.ones_like(sigma), direction)


def full_batch_mu(sigma: NDArray, counts: NDArray) -> float:
    """sqrt(sum counts / sigma^2), without overflow or underflow before the root."""
    with np.errstate(over="ignore"):
        parts = np.sqrt(counts) / sigma
    most = float(parts.max())
    return most * float(np.linalg.norm(parts / most)) if np.isfinite(most) else most


def full_batch_epsilon(mu: float, delta: float) -> tuple[float, float]:
    """Lower and upper epsilon(delta) of mu-GDP, mu known to a relative 2^-48."""
    upper = gdp.epsilon(delta, mu * (1.0 + _WIDEN)) * (1.0 + _WIDEN)
    lower = gdp.epsilon(delta, mu * (1.0 - _WIDEN), rounding="down") * (1.0 - _WIDEN)
    return lower, upper


def full_batch_delta(mu: float, epsilon: float) -> tuple[float, float, float] | None:
    """Lower, nearest and upper delta(epsilon) of mu-GDP, mu known to a relative 2^-48; None if it cannot be bounded."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        logs = [gdp.log_delta(epsilon, mu * factor) for factor in (1.0 - _WIDEN, 1.0, 1.0 + _WIDEN)]
    if np.isnan(logs).any():
        return None
    if np.isneginf(logs[2]):  # (epsilon / mu)^2 overflows: delta is below the least double
        return 0.0, 0.0, float(np.nextafter(0.0, 1.0))
    slack = _CLOSED_FORM * (1.0 + abs(logs[1]))
    low, middle, high = (float(np.exp(min(v, 0.0))) for v in (logs[0] - slack, logs[1], logs[2] + slack))
    return float(np.nextafter(low, 0.0)), middle, min(float(np.nextafter(high, np.inf)), 1.0)
