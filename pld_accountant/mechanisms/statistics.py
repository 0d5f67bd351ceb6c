"""Mechanisms of statistics by their usual names, each made of a general kind: two discrete laws, or a Laplace pair."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import validate
from .bounded_range import ExponentialMechanism
from .density_pair import DensityPair
from .discrete import DiscretePair, named_pair
from .discrete_gaussian_vector import DiscreteGaussianVector
from .gaussian import Gaussian, full_batch_mu
from .laplace import Laplace
from .large_discrete_laplace import MOST_OUTCOMES, LargeDiscreteLaplace, discrete_laplace_pair
from .poisson_sampled import SampledBounded
from .sampled_gaussian import SampledGaussian

__all__ = [
    "ApproximateDP",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "PermuteAndFlip",
    "PoissonSampled",
    "PureDP",
    "RandomizedResponse",
]

_REACH = 37.0  # standard deviations of the discrete Gaussian's table
_LEAST = 1e-290  # masses below this count as 0 on the side that is certified: of Q, and not of P
_MOST_SENSITIVITY = 12.0  # over sigma
_MOST_SIGMA = 5e3  # of a table: above, `DiscreteGaussianVector` is as close, and holds for deltas down to 1e-120
_MOST_BOUND = 370_000
_LEAST_CHANCE = 1e-300  # below, probabilities lose their digits


def PureDP(epsilon: float) -> DiscretePair:
    """Any mechanism that is (epsilon, 0)-DP: its worst pair, randomized response of two answers.

    Parameters
    ----------
    epsilon : float
        Above 0 and at most 300, in nats.

    Returns
    -------
    DiscretePair

    Raises
    ------
    ValueError
        For an epsilon out of range.

    Notes
    -----
    Losses epsilon with mass 1 / (1 + exp(-epsilon)) and -epsilon with the rest.

    References
    ----------
    Kairouz, Oh and Viswanath (2015), Theorem 3.3.

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> round(compose([(PureDP(0.1), 100)]).epsilon(1e-5).upper, 3)
    4.307
    """
    return _black_box(_epsilon(epsilon), 0.0, f"PureDP({float(epsilon)})")


def ApproximateDP(epsilon: float, delta: float) -> DiscretePair:
    """Any mechanism that is (epsilon, delta)-DP: `PureDP` with probability 1 - delta, else an infinite loss.

    Parameters
    ----------
    epsilon : float
        At least 0 and at most 300, in nats.
    delta : float
        In [0, 1).

    Returns
    -------
    DiscretePair

    Raises
    ------
    ValueError
        For an epsilon or delta out of range.

    References
    ----------
    Kairouz, Oh and Viswanath (2015), Theorem 3.3; Murtagh and Vadhan (2016).

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> round(compose([(ApproximateDP(1.0, 0.1), 1), (ApproximateDP(2.0, 0.2), 1)]).delta(3.0).upper, 9)
    0.28
    """
    delta = validate.nonnegative(delta, "delta")
    if not delta < 1.0:
        raise ValueError(f"delta must be at least 0 and below 1, got {delta}")
    value = validate.nonnegative(epsilon, "epsilon") and _epsilon(epsilon)
    return _black_box(value, delta, f"ApproximateDP({float(epsilon)}, {delta})")


def _epsilon(value: Any) -> float:
    value = validate.positive(value, "epsilon")
    if value > 300.0:
        raise ValueError(f"epsilon must be at most 300, got {value}")
    return value


def _black_box(epsilon: float, delta: float, name: str) -> DiscretePair:
    high, low = 1.0 / (1.0 + math.exp(-epsilon)), 1.0 / (1.0 + math.exp(epsilon))
    with_record = np.array([delta, (1.0 - delta) * high, (1.0 - delta) * low, 0.0])
    return named_pair(name, with_record, with_record[::-1], exact=True)


def RandomizedResponse(noise: float, buckets: int = 2, *, neighbours: str = "replace-one") -> DiscretePair:
    """Randomized response over k answers: the true one, replaced by a uniform answer with probability `noise`.

    Parameters
    ----------
    noise : float
        Probability of a uniform answer, in [0, 1]: no epsilon, and 1 tells nothing.  The true answer has probability
        1 - noise + noise / buckets.  A noise of buckets / (buckets - 1 + exp(epsilon)) makes one answer epsilon-DP.
    buckets : int
        Number of answers, at least 2.
    neighbours : {"replace-one", "replace-special"}
        Whether one record takes the place of another, or is removed: nobody's answer is uniform.

    Returns
    -------
    DiscretePair

    Raises
    ------
    ValueError
        For an argument out of range.

    References
    ----------
    Warner (1965); Mironov (2017), Proposition 5.

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> round(compose([(RandomizedResponse(0.5), 1)]).epsilon(1e-9).upper, 6)
    1.098612
    """
    noise = validate.nonnegative(noise, "noise")
    k = validate.count(buckets, "buckets", least=2)
    if noise > 1.0:
        raise ValueError(f"noise must be in [0, 1], got {noise}")
    if neighbours not in ("replace-one", "replace-special"):
        raise ValueError(f"neighbours must be 'replace-one' or 'replace-special', got {neighbours!r}")
    other, true = noise / k, 1.0 - noise + noise / k
    if 0.0 < other < _LEAST_CHANCE:
        raise ValueError(f"noise / buckets must be 0 or at least {_LEAST_CHANCE:g}, got {noise} / {k}")
    if neighbours == "replace-one":
        p = np.array([true, other, (k - 2) * other])
        q = np.array([other, true, (k - 2) * other])
    else:
        p, q = np.array([true, (k - 1) * other]), np.array([1.0 / k, (k - 1) / k])
    return named_pair(f"RandomizedResponse({noise}, {k}, neighbours={neighbours!r})", p, q)


def DiscreteLaplace(a: float, sensitivity: int = 1) -> DiscretePair | LargeDiscreteLaplace:
    """The discrete Laplace (geometric) mechanism: masses tanh(a / 2) exp(-a abs(k)) on the integers.

    Parameters
    ----------
    a : float
        Inverse scale, above 0; a times the sensitivity is at most 300.  One step is (a sensitivity, 0)-DP.
    sensitivity : int
        Largest change of the integer that is released, at least 1.

    Returns
    -------
    DiscretePair
        For a sensitivity of at most 16,384: its losses, exactly.
    LargeDiscreteLaplace
        For a larger one: it lies between two mechanisms, whose epsilons are about 1e-6 apart at most, relative, in all
        cases tried.

    Raises
    ------
    ValueError
        For an argument out of range.

    Notes
    -----
    The loss lies on a lattice of step 2 a between -a sensitivity and a sensitivity, whose ends hold the tails.

    References
    ----------
    Ghosh, Roughgarden and Sundararajan (2012).

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> round(compose([(DiscreteLaplace(0.1), 100)]).epsilon(1e-5).upper, 3)
    4.307
    """
    a = validate.positive(a, "a")
    s = validate.count(sensitivity, "sensitivity", least=1)
    if s > MOST_OUTCOMES:
        return LargeDiscreteLaplace(a, s)
    if a * s > 300.0:
        raise ValueError(f"a times sensitivity must be at most 300, got {a} and {s}")
    return discrete_laplace_pair(a, s)


def DiscreteGaussian(
    sigma: float, sensitivity: float = 1, *, truncation_bound: int | None = None, coordinates: int = 1
) -> DiscretePair | DiscreteGaussianVector:
    """The discrete Gaussian mechanism: masses proportional to exp(-k^2 / (2 sigma^2)) on the integers.

    Parameters
    ----------
    sigma : float
        At least sensitivity / 12 for one integer, and at least 4 for several.
    sensitivity : int or float
        Largest change of the integer that is released, at least 1; of several integers, the largest Euclidean norm of
        their change, which need not be an integer.
    truncation_bound : int, optional
        The noise is conditioned on abs(k) at most this bound, from `sensitivity` / 2 to 370,000; the ends then have
        infinite losses.  For one integer only.
    coordinates : int
        Number of integers that are released, each with its own noise.

    Returns
    -------
    DiscretePair
        For one integer and a sigma of at most 5,000: its losses, exactly.
    DiscreteGaussianVector
        For several integers, or a larger sigma: it lies between two Gaussian mechanisms.  Their epsilons are at most
        1e-6 apart, relative, from a sigma of 2,500 on, and about 4 / sigma^2 below.

    Raises
    ------
    ValueError
        For an argument out of range.

    Notes
    -----
    Without a bound the table of one integer ends at 37 sigma, and outcomes whose mass without the record is below
    1e-290 count as infinite losses, in upper bounds only.  These have a mass of at most 1e-130, so that no delta above
    1e-120 changes, of up to 10^9 steps.  Without a bound, ``rdp`` is that of the Gaussian of this sigma,
    alpha s^2 / (2 sigma^2), which the divergence misses by a factor of about exp(-2 pi^2 sigma^2) at most.

    Several integers are not equivalent to one with the same norm, but both lie between the two Gaussian mechanisms.
    `DiscreteGaussianVector` has the proof.  A person who changes k integers by 1 each has the norm sqrt(k).

    References
    ----------
    Canonne, Kamath and Steinke (2020), Proposition 5 and Theorem 4.

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> round(compose([(DiscreteGaussian(10.0), 100)]).epsilon(1e-5).upper, 3)
    4.377

    A histogram of 1,000 cells, in five of which a person may count:

    >>> histogram = DiscreteGaussian(50.0, 5**0.5, coordinates=1_000)
    >>> bounds = compose([(histogram, 12)]).epsilon(1e-10)
    >>> f"{bounds.lower:.4f} {bounds.upper:.4f}"
    '0.9047 0.9062'
    """
    sigma = validate.positive(sigma, "sigma")
    several = validate.count(coordinates, "coordinates", least=1) > 1
    if several or (sigma > _MOST_SIGMA and truncation_bound is None):
        if truncation_bound is not None:
            raise ValueError("truncation_bound is for one integer; leave it out with several coordinates")
        norm = sensitivity if several else validate.count(sensitivity, "sensitivity", least=1)
        return DiscreteGaussianVector(sigma, norm, coordinates)
    s = validate.count(sensitivity, "sensitivity", least=1)
    if not s / _MOST_SENSITIVITY <= sigma:
        raise ValueError(f"sigma must be at least sensitivity / 12, got {sigma} at sensitivity {s}")
    end = math.ceil(_REACH * sigma)
    if truncation_bound is not None:
        bound = validate.count(truncation_bound, "truncation_bound", least=1)
        if not s <= 2 * bound <= 2 * _MOST_BOUND:
            raise ValueError(f"truncation_bound must be from sensitivity / 2 to {_MOST_BOUND:,}, got {bound} at {s}")
        end = min(end, bound)
    k = np.arange(-end, end + s + 1)
    inside = [np.abs(k - c) <= end for c in (s, 0)]
    p, q = (np.where(at, np.exp(-0.5 * ((k - c) / sigma) ** 2), 0.0) for at, c in zip(inside, (s, 0), strict=True))
    p, q = (np.where(x < _LEAST, 0.0, x) / x.sum() for x in (p, q))
    bounded = "" if truncation_bound is None else f", truncation_bound={truncation_bound}"
    rho = 0.5 * (s / sigma) ** 2 if truncation_bound is None else None
    return named_pair(f"DiscreteGaussian({sigma}, {s}{bounded})", p, q, rho)


def PermuteAndFlip(epsilon: float) -> Laplace:
    """Permute-and-flip at epsilon: the dominating pair is that of the Laplace mechanism of scale 1 / epsilon.

    Parameters
    ----------
    epsilon : float
        Above 0.

    Returns
    -------
    Laplace

    Raises
    ------
    ValueError
        For an epsilon out of range.

    Notes
    -----
    It publishes the answer of the largest score plus exponential noise.  In units of the noise, neighbours move scores
    by epsilon / 2 at most.  Let A be the largest noisy score in a set of answers, B that of the others, and H the law
    of B - A.  Exponential noise has a hazard rate of at most 1, and so has the largest of several.  The density of
    B - A is therefore at most min(H, 1 - H), which that of Laplace noise equals.  So H(0), the chance of the set, moves
    to H(epsilon) at most as Laplace noise's does, and two answers attain it.

    References
    ----------
    McKenna and Sheldon (2020); Ding et al. (2021), "The permute-and-flip mechanism is identical to report-noisy-max
    with exponential noise".

    Examples
    --------
    >>> PermuteAndFlip(0.5)
    Laplace(noise_multiplier=2.0)
    """
    return Laplace(1.0 / validate.positive(epsilon, "epsilon"))


def PoissonSampled(mechanism: Any, sample_rate: float) -> Any:
    """A mechanism on a Poisson sample, when neighbours differ by one record added or removed.

    Parameters
    ----------
    mechanism : Gaussian, Laplace, ExponentialMechanism, DiscretePair or DensityPair
        Discrete pairs are also what `RandomizedResponse`, `DiscreteLaplace`, `DiscreteGaussian`, `PureDP` and
        `ApproximateDP` return.  Several outputs of one sample are a list of pairs (Gaussian, count), or what `compose`
        makes of it; they count as one Gaussian step.
    sample_rate : float
        Probability with which each person enters the step, independently, in (0, 1].

    Returns
    -------
    mechanism
        For `compose`; `SampledGaussian` for Gaussian noise.

    Raises
    ------
    ValueError
        For another kind of mechanism, or a rate out of range.

    References
    ----------
    Zhu, Dong and Wang (2022), Theorem 11.

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> round(compose([(PoissonSampled(PureDP(1.0), 0.1), 1)]).epsilon(1e-9).upper, 6)
    0.158565
    >>> round(PoissonSampled([(Gaussian(3.0), 1), (Gaussian(4.0), 1)], 0.1).noise_multiplier, 6)
    2.4
    """
    outputs = getattr(mechanism, "counts", mechanism)
    if isinstance(outputs, (dict, list, tuple)):
        return SampledGaussian(_joint_noise(outputs.items() if isinstance(outputs, dict) else outputs), sample_rate)
    if isinstance(mechanism, (DiscretePair, DensityPair, DiscreteGaussianVector, LargeDiscreteLaplace)):
        return mechanism.sampled(sample_rate)
    if isinstance(mechanism, Gaussian):
        return SampledGaussian(mechanism.noise_multiplier, sample_rate)
    if not isinstance(mechanism, (Laplace, ExponentialMechanism)):
        raise ValueError(f"PoissonSampled takes mechanisms such as Laplace(1.0) or PureDP(1.0), got {mechanism!r}")
    return mechanism if validate.sample_rate(sample_rate) == 1.0 else SampledBounded(mechanism, sample_rate)


def _joint_noise(outputs: Iterable[tuple[Any, int]]) -> float:
    """The noise multiplier of one Gaussian that tells as much as several outputs of one sample, rounded down."""
    noise, counts = [], []
    for entry in outputs:
        try:
            one, number = entry
        except (TypeError, ValueError):
            raise ValueError(f"outputs of one sample must be pairs (Gaussian, count), got {entry!r}") from None
        if not (isinstance(one, (Gaussian, SampledGaussian)) and one.sample_rate == 1.0):
            raise ValueError(f"of several outputs of one sample, each must be Gaussian, got {one!r}")
        noise.append(one.noise_multiplier)
        counts.append(validate.count(number, "count"))
    if not any(counts):
        raise ValueError("a sample must have an output")
    return (1.0 - 2.0**-48) / full_batch_mu(np.array(noise), np.array(counts))
