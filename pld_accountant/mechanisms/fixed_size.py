"""Batches of one size drawn without replacement, when neighbours differ by one record replaced by another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .. import validate
from .base import Direction, Enclosure
from .sampled_gaussian import SampledGaussian, SampledGaussianSteps
from .symmetric_steps import SymmetricSteps

__all__ = ["FixedSizeBatch", "RemovedSampledGaussian", "SymmetricSampledGaussian"]


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
    def steps(mechanisms: Sequence[SampledGaussian], direction: Direction) -> SampledGaussianSteps:
        """The family with one row for each of these mechanisms."""
        return SampledGaussian.steps(mechanisms, "remove")


@dataclass(frozen=True)
class SymmetricSampledGaussian:
    """A pair whose curve at epsilons of at least 0, both ways, is that of `SampledGaussian` under removal."""

    noise_multiplier: float
    sample_rate: float
    symmetric: ClassVar = True

    @staticmethod
    def steps(mechanisms: Sequence[SymmetricSampledGaussian], direction: Direction) -> SymmetricSteps:
        """The family with one row for each of these mechanisms."""
        sigma, rate = np.array([(m.noise_multiplier, m.sample_rate) for m in mechanisms]).T
        return SymmetricSteps(sigma, rate, direction)
