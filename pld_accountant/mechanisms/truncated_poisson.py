"""Poisson batches that are cut to a largest size, as fixed shapes need; and steps whose kind is drawn openly."""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import ClassVar

from .. import validate
from .base import Direction, Enclosure, noise_of_share
from .drawn_steps import DrawnSteps
from .sampled_gaussian import SampledGaussian

__all__ = ["DrawnSampledGaussian", "TruncatedPoisson"]

_MOST_RECORDS = 10**9
_LEAST_NORM = 2.0**-20  # a smaller one counts as this in the upper bound
_DIGITS = 60
_UP = 1.0 + 2.0**-50
_BERNOULLI = ("1/12", "-1/360", "1/1260", "-1/1680", "1/1188", "-691/360360", "1/156")


@dataclass(frozen=True)
class TruncatedPoisson:
    """A Gaussian step on a Poisson sample of which at most `batch_size` records, chosen uniformly, are kept.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the largest contribution of any record; at least 1 / 15.
    sample_rate : float
        Probability with which each record is drawn, in (0, 1].
    batch_size : int
        The largest size of a batch, at least 1.
    records : int
        Records of the data set, the record that is added or removed among them; at least 1 and at most 10^9.
    norm : float
        The largest contribution of the record that is added or removed, relative to that of the others; in [0, 1].

    Raises
    ------
    ValueError
        For a parameter out of range.

    Notes
    -----
    The number of records counts as known.

    **Upper bound**: let t be the probability that the other records fill the batch.  Whether they do counts as known.
    If they do not, the step is `SampledGaussian(noise_multiplier / norm, sample_rate)`.  If they do, the batch without
    the record is a random set of batch_size others.  With the record it is that, or, with probability r =
    P(Bin(records, sample_rate) > batch_size) batch_size / (t records), such a set of which a random member gives its
    place to the record.  A hockey-stick divergence is convex in the pair of laws, so the worst set and the worst member
    dominate: the contributions of the member and the record differ by 1 + norm at most, and the step is
    `SampledGaussian(noise_multiplier / (1 + norm), r)`.  So a record of norm 0 has a loss, too.

    **Lower bound**: `SampledGaussian(noise_multiplier / norm, (1 - t) sample_rate + t r)`, which a data set attains
    whose other records contribute nothing.

    So both bound the mechanism.  They are close where the batch is rarely full.

    References
    ----------
    Ganesh (2025), "Tighter privacy analysis for truncated Poisson sampling", for the condition on the others and r.

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> f"{compose([(TruncatedPoisson(1.0, 0.5, 2, 3), 1)]).delta(1.0).upper:.6f}"
    '0.051910'
    """

    noise_multiplier: float
    sample_rate: float
    batch_size: int
    records: int
    norm: float = 1.0
    neighbours: ClassVar = "added or removed"

    def __post_init__(self) -> None:
        sigma = validate.noise_multiplier(self.noise_multiplier)
        if not sigma * 15.0 >= 1.0:
            raise ValueError(f"noise_multiplier must be at least 1/15, got {sigma}")
        object.__setattr__(self, "noise_multiplier", sigma)
        object.__setattr__(self, "sample_rate", validate.sample_rate(self.sample_rate))
        object.__setattr__(self, "batch_size", validate.count(self.batch_size, "batch_size", least=1))
        records = validate.count(self.records, "records", least=1)
        if records > _MOST_RECORDS:
            raise ValueError(f"records must be at most {_MOST_RECORDS}, got {records}")
        object.__setattr__(self, "records", records)
        object.__setattr__(self, "norm", validate.share(self.norm, "norm"))

    def scaled(self, share: float) -> TruncatedPoisson:
        """See `base.ScalableMechanism`; a record without a contribution still displaces others."""
        share = validate.share(share)
        return replace(self, norm=share if self.norm == 1.0 else math.nextafter(self.norm * share, 1.0))

    @property
    def _own_noise(self) -> float:
        """Noise over the record's own contribution, rounded down."""
        return noise_of_share(self.noise_multiplier, max(self.norm, _LEAST_NORM))

    def _chances(self) -> tuple[float, float, float]:
        """The probabilities that the others do not fill the batch, that they do, and that the record enters it then."""
        others, full = _tail(self.records - 1, self.sample_rate, self.batch_size)
        beyond = _tail(self.records, self.sample_rate, self.batch_size + 1)[1]
        return others, full, beyond * self.batch_size / self.records

    def below(self) -> Enclosure:
        """See `base.Enclosed`."""
        if self.norm < _LEAST_NORM:
            return Enclosure([])
        others, _, displaces = self._chances()
        noise = self._own_noise if self.norm == 1.0 else self._own_noise * _UP
        return Enclosure([(SampledGaussian(noise, (others * self.sample_rate + displaces) / _UP), 1)])

    def above(self) -> Enclosure:
        """See `base.Enclosed`."""
        others, full, displaces = self._chances()
        plain = SampledGaussian(self._own_noise, self.sample_rate), others
        if not full:
            return Enclosure([(plain[0], 1)])
        # r is at most the sample rate, and that where its numerator underflows
        rate = min(displaces / full * _UP, self.sample_rate) if displaces else self.sample_rate
        swapped = (
            SampledGaussian(noise_of_share(self.noise_multiplier, math.nextafter(1.0 + self.norm, 2.0)), rate),
            full,
        )
        return Enclosure([(DrawnSampledGaussian((plain, swapped)) if others else swapped[0], 1)])


@dataclass(frozen=True)
class DrawnSampledGaussian:
    """One of several sampled Gaussians, drawn with known probabilities; which one was drawn is public."""

    kinds: tuple[tuple[SampledGaussian, float], ...]

    @property
    def noise_multiplier(self) -> float:
        """The smallest."""
        return min(kind.noise_multiplier for kind, _ in self.kinds)

    @staticmethod
    def steps(mechanisms: Sequence[DrawnSampledGaussian], direction: Direction) -> DrawnSteps:
        """The family with one row for each of these mechanisms."""
        return DrawnSteps(
            [
                ([kind.steps([kind], direction) for kind, _ in m.kinds], [chance for _, chance in m.kinds])
                for m in mechanisms
            ],
            direction,
        )


@lru_cache(maxsize=64)
def _tail(n: int, rate: float, least: int) -> tuple[float, float]:
    """P(X < least) and P(X >= least) of X binomial (n, rate), each correct to the last digits of a double."""
    if least > n:
        return 1.0, 0.0
    if rate == 1.0:
        return 0.0, 1.0
    with decimal.localcontext() as context:
        context.prec, context.Emin = _DIGITS, decimal.MIN_EMIN
        p = Decimal(rate)
        odds = p / (1 - p)
        log_ways = _log_factorial(n) - _log_factorial(least) - _log_factorial(n - least)
        start = (log_ways + least * p.ln() + (n - least) * (1 - p).ln()).exp()
        # terms fall away from the mode: the sum on the far side of `least` from there, and the rest of 1
        if least > n * p:
            above, term, k = start, start, least
            while k < n and term > above * Decimal("1e-25"):
                term *= (n - k) * odds / (k + 1)
                above, k = above + term, k + 1
            return float(1 - above), float(above)
        below, term, k = Decimal(0), start, least
        while k > 0 and term > below * Decimal("1e-25"):
            term *= k / ((n - k + 1) * odds)
            below, k = below + term, k - 1
        return float(below), float(1 - below)


def _log_factorial(n: int) -> Decimal:
    """ln n!, by Stirling's series at n + 200 or more."""
    z = Decimal(n + 1)
    down = Decimal(1)
    while z < 200:
        down *= z
        z += 1
    two_pi = 2 * Decimal("3.14159265358979323846264338327950288419716939937510582097494")
    series = Decimal(0)
    for i, fraction in enumerate(_BERNOULLI):
        over, under = fraction.split("/")
        series += Decimal(over) / Decimal(under) / z ** (2 * i + 1)
    return (z - Decimal("0.5")) * z.ln() - z + two_pi.ln() / 2 + series - down.ln()
