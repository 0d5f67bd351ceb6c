"""Friends that speak dp-accounting: an accountant for its events, events of runs, and its privacy loss distributions.

>>> import dp_accounting
>>> step = dp_accounting.PoissonSampledDpEvent(0.005, dp_accounting.GaussianDpEvent(2.0))
>>> round(PLDAccountant().compose(step, 10_000).get_epsilon(1e-5), 6)
1.004113
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import dp_accounting
import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from numpy.typing import NDArray

from .. import validate
from ..composition import Composition, compose
from ..composition.base import UNKNOWN
from ..mechanisms.bounded_range import ExponentialMechanism
from ..mechanisms.fixed_size import FixedSizeBatch
from ..mechanisms.gaussian import Gaussian
from ..mechanisms.gaussian_mixture import GaussianMixture, ReplaceOneSampledGaussian
from ..mechanisms.laplace import Laplace
from ..mechanisms.loss_distribution import LossDistribution
from ..mechanisms.matrix import TreeAggregation
from ..mechanisms.random_allocation import RandomAllocation
from ..mechanisms.renyi_boxes import ZeroConcentratedDP
from ..mechanisms.repeated_selection import RepeatedSelection
from ..mechanisms.statistics import (
    ApproximateDP,
    DiscreteGaussian,
    DiscreteLaplace,
    PermuteAndFlip,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
)
from ..mechanisms.truncated_poisson import TruncatedPoisson
from ..results import Bounds

__all__ = ["PLDAccountant", "event_of", "mechanism_of", "pld_of"]

_UNBOUNDED = object()
"""In place of a mechanism: a step without noise that may still hide a record, as it may leave the record out."""


class PLDAccountant(dp_accounting.PrivacyAccountant):
    """Certified bounds for events of dp-accounting.

    Parameters
    ----------
    neighboring_relation : dp_accounting.NeighboringRelation
        ADD_OR_REMOVE_ONE by default.

    Notes
    -----
    ======================================  ==================================================================
    Event                                   Relations
    ======================================  ==================================================================
    Gaussian, Poisson-sampled Gaussian      all; if one record takes the place of another, the sum moves by
                                            twice the norm of one, as in dp-accounting's own PLD accountant
    Laplace                                 all, as above
    Poisson-sampled Laplace                 add or remove, replace special
    discrete Laplace, sampled or not        add or remove, replace special
    mixture of Gaussians                    add or remove, replace special
    truncated sampled Gaussian              add or remove, replace special
    randomized response                     replace one, replace special
    Gaussian, sampled without replacement   replace one
    tree aggregation of one epoch           replace special
    zCDP, repeat and select                 all; upper bounds are those of Renyi DP
    (epsilon, delta), exponential           all
    mechanism, permute and flip
    discrete Gaussian                       add or remove, replace special; of an unknown dimension as zCDP
    random allocation of a Gaussian         add or remove, replace special
    ======================================  ==================================================================

    and compositions of them.  Several Gaussians on one sample are one of less noise.  Events that release nothing cost
    nothing; a non-private event, or noise 0, makes epsilon infinite.  No bound is known of samples without noise, or of
    the best of such runs: upper bounds are infinite, lower ones 0.  Other events are refused with
    `dp_accounting.UnsupportedEventError`.
    """

    def __init__(self, neighboring_relation: Any = NeighboringRelation.ADD_OR_REMOVE_ONE) -> None:
        super().__init__(neighboring_relation)
        self._counts: dict[Any, int] = {}
        self._open = self._unbounded = False

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        try:
            steps = _steps(event, self._neighboring_relation)
        except ValueError as error:
            return self.CompositionErrorDetails(event, str(error))
        if do_compose and count > 0:
            for mechanism, number in steps:
                if mechanism is None or mechanism is _UNBOUNDED:
                    self._open |= number > 0 and mechanism is None
                    self._unbounded |= number > 0
                else:
                    self._counts[mechanism] = self._counts.get(mechanism, 0) + number * count
        return None

    @property
    def composition(self) -> Composition:
        """Everything composed so far but events without noise."""
        return compose(self._counts.items())

    def bounds(self, target_delta: float) -> Bounds:
        """Bounds of epsilon."""
        if self._open:
            return Bounds(np.inf, np.inf, np.inf)
        return UNKNOWN if self._unbounded else self.composition.epsilon(target_delta)

    def get_epsilon(self, target_delta: float) -> float:
        """The upper bound of epsilon: the true value is not larger."""
        return float(self.bounds(target_delta).upper)

    def get_delta(self, target_epsilon: float) -> float:
        """The upper bound of delta: the true value is not larger."""
        return 1.0 if self._unbounded else float(self.composition.delta(target_epsilon).upper)


def event_of(schedule: Sequence[tuple[float, float, int]]) -> Any:
    """The event of a run's worst case, for another accountant.

    Parameters
    ----------
    schedule : sequence of (noise multiplier, sample rate, steps)
        `Ledger.schedule`, or the history of an Opacus accountant.

    Examples
    --------
    >>> event_of([(2.0, 0.005, 10_000)]).events[0].count
    10000
    """
    events = []
    for sigma, rate, steps in schedule:
        event: Any = dp_accounting.GaussianDpEvent(sigma)
        if rate < 1:
            event = dp_accounting.PoissonSampledDpEvent(rate, event)
        events.append(dp_accounting.SelfComposedDpEvent(event, steps))
    return dp_accounting.ComposedDpEvent(events)


def mechanism_of(pld: Any) -> LossDistribution:
    """A privacy loss distribution of dp-accounting as a mechanism for `compose`.

    Parameters
    ----------
    pld : dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution
        A pessimistic estimate.

    Raises
    ------
    ValueError
        For an optimistic estimate: upper bounds would not hold.

    Notes
    -----
    The masses of a composed or sampled estimate are rounded: some are negative, and their sum and that of
    masses * exp(-loss) exceed 1.  Negative ones become 0.  The excess is taken from the smallest losses: in terms of
    x = e^epsilon that is the chord of delta from 1 at x = 0, and the convex delta of the mechanism lies below it.  Then
    all losses move up by the log of the other sum, if it exceeds 1.  No step lowers delta below the mechanism's.

    Examples
    --------
    >>> from dp_accounting.pld import privacy_loss_distribution
    >>> theirs = privacy_loss_distribution.from_laplace_mechanism(10.0)
    >>> round(compose([(mechanism_of(theirs), 20), (Gaussian(5.0), 1)]).epsilon(1e-5).upper, 2)
    1.83
    """
    sides = []
    for pmf in (pld._pmf_remove, pld._pmf_add):
        if not pmf._pessimistic_estimate:
            raise ValueError("pld must be a pessimistic estimate: an optimistic one gives no upper bounds")
        dense = pmf.to_dense_pmf()
        losses = (dense._lower_loss + np.arange(dense._probs.size)) * dense._discretization
        sides.append(_law_above(losses, dense._probs, dense._infinity_mass))
    return LossDistribution(*sides[0], add=sides[1])


def _law_above(losses: NDArray, masses: NDArray, infinite: float) -> tuple[NDArray, NDArray]:
    """Losses and masses of a law whose curve of delta is not below that of the rounded masses, see `mechanism_of`."""
    masses = np.maximum(masses, 0.0)
    # a mass at infinity below the round-off of the others would be lost
    finite = 1.0 - (max(infinite, 2.0**-49) if infinite > 0.0 else 0.0)
    below = math.fsum([*masses.tolist(), -finite])
    if below > 0.0:
        masses = np.diff(np.maximum(np.cumsum(masses) - below, 0.0), prepend=0.0)
    other = float(masses @ np.exp(-losses))
    return losses + max(math.log(other), 0.0) * (1.0 + 2.0**-40), masses


def pld_of(composition: Composition, *, interval: float = 0.02, least_delta: float = 1e-12) -> Any:
    """The privacy loss distribution of a composition for dp-accounting: a pessimistic estimate.

    Parameters
    ----------
    composition : Composition
    interval : float
        Distance of the losses, above 0; a smaller one is tighter and takes longer.
    least_delta : float
        The losses end where delta is this small; it becomes the mass of an infinite loss.

    Returns
    -------
    dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution

    Raises
    ------
    ValueError
        If an argument is out of range, or epsilon is not bounded at `least_delta`.

    Notes
    -----
    The curve of delta over e^epsilon is convex.  Its upper bounds at the multiples of `interval` are lowered to the
    greatest convex function below them, which is not below the curve, and joined by chords.

    **Cost**: two evaluations of `Composition.delta` for each multiple.

    References
    ----------
    Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), Algorithm 1.

    Examples
    --------
    >>> theirs = pld_of(compose([(Gaussian(2.0), 1)]))
    >>> round(theirs.self_compose(10).get_epsilon_for_delta(1e-5), 2)
    7.51
    """
    interval = validate.positive(interval, "interval")
    top = composition.epsilon(validate.delta(least_delta, "least_delta")).upper
    if not np.isfinite(top):
        raise ValueError(f"epsilon is not bounded at delta={least_delta:g}")
    if not top <= 10_000 * interval:
        raise ValueError(f"interval must be at least {top / 10_000:.3g}: losses reach {top:.3g}")
    last = max(int(np.ceil(top / interval)), 1)
    places = np.arange(-last, last + 1)
    sides = []
    for direction in ("remove", "add"):
        above = [min(composition.delta(float(e), direction).upper, 1.0) for e in places * interval]
        convex = _convex_below(np.exp(places * interval), np.array(above))
        sides.append(pld_pmf.create_pmf_pessimistic_connect_dots(interval, places, convex))
    return privacy_loss_distribution.PrivacyLossDistribution(*sides)


def _convex_below(x: NDArray, y: NDArray) -> NDArray:
    """The greatest convex function below the points, and below 1 at x = 0, at the places x."""
    corners = [(0.0, 1.0)]
    for point in zip(x.tolist(), y.tolist(), strict=True):
        while len(corners) > 1 and _turns_down(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    at, value = np.array(corners).T
    rounded = np.interp(x, at, value) * (1.0 + 2.0**-40)
    return np.minimum.accumulate(np.minimum(rounded, 1.0))


def _turns_down(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


def _steps(event: Any, relation: Any) -> list[tuple[Any, int]]:
    """The mechanisms of an event and how often each runs; None instead of a mechanism without privacy, or `_UNBOUNDED`.

    Raises
    ------
    ValueError
        If there is none for this event or relation.
    """
    kind = type(event).__name__.removesuffix("DpEvent")
    if _releases_nothing(event):
        return []
    if kind == "NonPrivate":
        return [(None, 1)]
    if kind == "SelfComposed":
        return [(mechanism, number * event.count) for mechanism, number in _steps(event.event, relation)]
    if kind == "Composed":
        return [step for part in event.events for step in _steps(part, relation)]
    if kind == "RepeatAndSelect":
        inside = _steps(event.event, relation)
        if any(mechanism in (None, _UNBOUNDED) for mechanism, _ in inside):
            return [(_UNBOUNDED, 1)]
        return [(RepeatedSelection(compose(inside), event.mean, event.shape), 1)]
    if kind == "SingleEpochTreeAggregation" and relation == NeighboringRelation.REPLACE_SPECIAL:
        if event.noise_multiplier == 0:
            return [(None, 1)]
        # a record is in one tree; the deepest costs most
        return list(TreeAggregation(event.noise_multiplier, int(np.max(event.step_counts))))
    if kind == "PoissonSampled":
        inside = _merged(event.event)
        step = _mechanism(inside, relation)
        if event.sampling_probability == 1:
            return [(step, 1)]
        if step in (None, _UNBOUNDED):
            return [(_UNBOUNDED, 1)]
        if relation != NeighboringRelation.REPLACE_ONE:
            return [(PoissonSampled(step, event.sampling_probability), 1)]
        if isinstance(inside, dp_accounting.GaussianDpEvent):
            return [(ReplaceOneSampledGaussian(inside.noise_multiplier, event.sampling_probability), 1)]
        raise _unsupported(event, relation)
    if kind == "ZC":
        return [(ZeroConcentratedDP(event.rho, event.xi) if max(event.rho, event.xi) < np.inf else _UNBOUNDED, 1)]
    return [(_mechanism(event, relation), 1)]


def _releases_nothing(event: Any) -> bool:
    """Whether an event costs nothing in any relation."""
    nothing = {
        "NoOp": lambda e: True,
        "PoissonSampled": lambda e: e.sampling_probability == 0 or _releases_nothing(e.event),
        "SampledWithoutReplacement": lambda e: e.sample_size == 0 or _releases_nothing(e.event),
        "RandomAllocation": lambda e: e.num_selected == 0 or _releases_nothing(e.event),
        "ZC": lambda e: not e.rho and not e.xi,
        "TruncatedSubsampledGaussian": lambda e: 0 in (e.sampling_probability, e.truncated_batch_size, e.dataset_size),
        "RandomizedResponse": lambda e: e.num_buckets == 1 or e.noise_parameter == 1,
        "MixtureOfGaussians": lambda e: not np.any(np.multiply(e.sensitivities, e.sampling_probs)),
        "SingleEpochTreeAggregation": lambda e: not np.max(e.step_counts),
        "DiscreteLaplace": lambda e: e.sensitivity == 0,
        "DiscreteGaussian": lambda e: e.sensitivity == 0,
        "EpsilonDelta": lambda e: not e.epsilon and not e.delta,
        "ExponentialMechanism": lambda e: not e.epsilon,
        "PermuteAndFlip": lambda e: not e.epsilon,
    }
    kind = type(event).__name__.removesuffix("DpEvent")
    return kind in nothing and bool(nothing[kind](event))


def _merged(event: Any) -> Any:
    """One Gaussian instead of several that see the same sample; any other event as it is."""
    if isinstance(event, dp_accounting.GaussianDpEvent):
        return event
    precision = _precision(event)
    if precision is None or precision == 0.0:
        return event
    return dp_accounting.GaussianDpEvent(precision**-0.5 * (1.0 - 2.0**-48) if precision < np.inf else 0.0)


def _precision(event: Any) -> float | None:
    """The sum of 1 / sigma^2 of an event that consists of Gaussians; None for others."""
    if isinstance(event, dp_accounting.GaussianDpEvent):
        return float(event.noise_multiplier**-2.0) if event.noise_multiplier else math.inf
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        one = _precision(event.event)
        return None if one is None else one * event.count
    if isinstance(event, dp_accounting.ComposedDpEvent):
        parts = [_precision(part) for part in event.events]
        return None if None in parts else math.fsum(part for part in parts if part is not None)
    return 0.0 if isinstance(event, dp_accounting.NoOpDpEvent) else None


def _mechanism(event: Any, relation: Any) -> Any:
    """The mechanism of one event; None or `_UNBOUNDED` if it has no noise."""
    kind, replaced = type(event).__name__.removesuffix("DpEvent"), relation == NeighboringRelation.REPLACE_ONE
    if kind == "NonPrivate":
        return None
    if kind == "EpsilonDelta":
        if event.delta == 1 or event.epsilon == np.inf:
            return None
        return ApproximateDP(event.epsilon, event.delta) if event.delta else PureDP(event.epsilon)
    if kind in ("ExponentialMechanism", "PermuteAndFlip"):
        return (ExponentialMechanism if kind == "ExponentialMechanism" else PermuteAndFlip)(event.epsilon)
    if kind in ("Gaussian", "Laplace"):
        noise = event.noise_multiplier / (2.0 if replaced else 1.0)
        if noise == 0:
            return None
        return Gaussian(noise) if kind == "Gaussian" else Laplace(noise)
    if kind == "RandomizedResponse" and relation != NeighboringRelation.ADD_OR_REMOVE_ONE:
        way = "replace-one" if replaced else "replace-special"
        return RandomizedResponse(event.noise_parameter, event.num_buckets, neighbours=way)
    if kind in ("SampledWithoutReplacement", "RandomAllocation"):
        inside, one_way = _merged(event.event), kind == "RandomAllocation"
        if isinstance(inside, dp_accounting.GaussianDpEvent) and one_way != replaced:
            sigma = inside.noise_multiplier
            if one_way:
                return RandomAllocation(sigma, event.num_steps, event.num_selected) if sigma else None
            return FixedSizeBatch(sigma, event.sample_size, event.source_dataset_size) if sigma else _UNBOUNDED
    if not replaced and kind == "DiscreteGaussian":
        if not event.sigma:
            return None
        if event.dimension is None:
            return ZeroConcentratedDP(0.5 * (event.sensitivity / event.sigma) ** 2 * (1.0 + 2.0**-50))
        return DiscreteGaussian(event.sigma, event.sensitivity, coordinates=event.dimension)
    if not replaced and kind == "DiscreteLaplace":
        return DiscreteLaplace(event.noise_parameter, event.sensitivity) if event.noise_parameter else _UNBOUNDED
    if not replaced and kind == "MixtureOfGaussians":
        if not event.standard_deviation:
            return _UNBOUNDED
        return GaussianMixture(event.standard_deviation, event.sensitivities, event.sampling_probs)
    if not replaced and kind == "TruncatedSubsampledGaussian":
        if not event.noise_multiplier:
            return _UNBOUNDED
        return TruncatedPoisson(
            event.noise_multiplier, event.sampling_probability, event.truncated_batch_size, event.dataset_size
        )
    raise _unsupported(event, relation)


def _unsupported(event: Any, relation: Any) -> ValueError:
    return ValueError(f"{type(event).__name__} is not supported for the relation {relation.name}")
