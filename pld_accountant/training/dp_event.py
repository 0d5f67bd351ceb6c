"""Events of dp-accounting: an accountant for libraries that use them, such as jax_privacy, and the event of a run.

>>> import dp_accounting
>>> step = dp_accounting.PoissonSampledDpEvent(0.005, dp_accounting.GaussianDpEvent(2.0))
>>> round(PLDAccountant().compose(step, 10_000).get_epsilon(1e-5), 6)
1.004113
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dp_accounting
import numpy as np

from ..composition import Composition, compose
from ..mechanisms.base import Mechanism
from ..mechanisms.gaussian import Gaussian
from ..mechanisms.laplace import Laplace
from ..mechanisms.sampled_gaussian import SampledGaussian
from ..results import Bounds

__all__ = ["PLDAccountant", "event_of"]


class PLDAccountant(dp_accounting.PrivacyAccountant):
    """Certified bounds for events of dp-accounting, when one record is added or removed.

    It takes Gaussian events, Poisson-sampled Gaussian events, Laplace events, compositions of them, and events that
    release nothing.  A non-private event makes epsilon infinite.  Other events are refused with
    `dp_accounting.UnsupportedEventError`.
    """

    def __init__(self, neighboring_relation: Any = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE) -> None:
        super().__init__(neighboring_relation)
        self._counts: dict[Mechanism, int] = {}
        self._open = False

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        if self._neighboring_relation != dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE:
            return self.CompositionErrorDetails(event, "only adding or removing one record is supported")
        if isinstance(event, dp_accounting.NoOpDpEvent):
            return None
        if isinstance(event, dp_accounting.NonPrivateDpEvent):
            self._open = self._open or (do_compose and count > 0)
            return None
        if isinstance(event, dp_accounting.SelfComposedDpEvent):
            return self._maybe_compose(event.event, event.count * count, do_compose)
        if isinstance(event, dp_accounting.ComposedDpEvent):
            found = (self._maybe_compose(part, count, do_compose) for part in event.events)
            return next((error for error in found if error is not None), None)
        try:
            mechanism = _mechanism(event)
        except ValueError as error:
            return self.CompositionErrorDetails(event, str(error))
        if do_compose and count > 0:
            if mechanism is None:
                self._open = True
            else:
                self._counts[mechanism] = self._counts.get(mechanism, 0) + count
        return None

    @property
    def composition(self) -> Composition:
        """Everything composed so far but non-private events."""
        return compose(self._counts.items())

    def bounds(self, target_delta: float) -> Bounds:
        """Bounds of epsilon."""
        if self._open:
            return Bounds(np.inf, np.inf, np.inf)
        return self.composition.epsilon(target_delta)

    def get_epsilon(self, target_delta: float) -> float:
        """The upper bound of epsilon: the true value is not larger."""
        return float(self.bounds(target_delta).upper)

    def get_delta(self, target_epsilon: float) -> float:
        """The upper bound of delta: the true value is not larger."""
        return 1.0 if self._open else float(self.composition.delta(target_epsilon).upper)


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


def _mechanism(event: Any) -> Mechanism | None:
    """The mechanism of an event; None if it has no noise.

    Raises
    ------
    ValueError
        If there is none.
    """
    if isinstance(event, dp_accounting.GaussianDpEvent):
        return Gaussian(event.noise_multiplier) if event.noise_multiplier != 0 else None
    if isinstance(event, dp_accounting.LaplaceDpEvent):
        return Laplace(event.noise_multiplier) if event.noise_multiplier != 0 else None
    if isinstance(event, dp_accounting.PoissonSampledDpEvent) and isinstance(
        event.event, dp_accounting.GaussianDpEvent
    ):
        sigma = event.event.noise_multiplier
        return SampledGaussian(sigma, event.sampling_probability) if sigma != 0 else None
    raise ValueError(f"{type(event).__name__} is not supported")
