"""Mechanisms: what one step does to one person, with its sensitivity scaled to 1."""

from __future__ import annotations

from dataclasses import dataclass

from .. import validate

__all__ = ["Gaussian", "Mechanism", "SampledGaussian"]


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
    Zhu, Dong and Wang (2022), Theorem 11; Koskela, Tobaben and Honkela (2023), Lemma 8.

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


Mechanism = Gaussian | SampledGaussian
