"""`LaplaceLedger`: counts of every person's L1 norms, and the privacy loss under Laplace noise that follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from . import ledger_file, validate
from .counting.counts import WholeCounts
from .counting.tally import Tally
from .engine.question import Question
from .engine.schedule import GRID_OF_MANY
from .engine.solver import bounds as solve_bounds
from .ledger import Ledger
from .mechanisms.base import Direction, Mechanism, StepFamily, directions
from .mechanisms.laplace import Laplace, LaplaceSteps
from .mechanisms.mixed import mixed
from .mechanisms.poisson_sampled import SampledBounded, SampledBoundedSteps
from .results import Bounds, everybody
from .tables.makers import TableMakers

__all__ = ["LaplaceLedger", "ledger_of"]

_LEAST_NOISE = 0.01  # a group of buckets may begin at half of it; sampled losses are at most 300
_ROUNDING = 2.0**-36


class LaplaceLedger(Ledger):
    """Counts of many people's contributions to queries with Laplace noise, and their individual privacy loss.

    It is used as `Ledger`: `record`, `from_norms`, `from_events`, `merge`, `save` and all questions.  Norms are L1
    norms: the sum of the absolute values by which a person changes the answers of a query.

    Parameters
    ----------
    num_examples : int
        Number of people, at least 1.
    noise_multiplier : float
        Scale of the Laplace noise over `max_grad_norm`, for all steps unless `record` is given another; at least 0.01.
    sample_rate : float
        Poisson sampling rate in (0, 1]; 1 for queries to everybody.
    max_grad_norm : float
        Largest L1 norm: a person's contribution to a query is clipped to it.
    buckets : int
        Number of buckets of relative norms, 2 to 4096.

    Raises
    ------
    ValueError
        For a parameter out of range.

    Notes
    -----
    A step counts whole at the upper edge of its bucket for the upper bounds, and at the lower edge for the lower ones:
    the Laplace mechanism's curve grows with the norm.  With 256 buckets both are 0.6 % of epsilon apart for somebody
    with the largest norm, 1.5 % at a third of it, and 11 % at a hundredth; buckets of a quarter of the width have a
    quarter of this.

    **One answer or several.**  The upper bound holds however a norm is spread over the answers of a query.  The lower
    bound and the estimate are those of somebody who changes *one* answer by the whole norm; who changes several by less
    each has a smaller epsilon.

    `epsilon` takes delta = 0, alone: the sum of a person's own losses, as pure DP adds them up.

    **Cost**: one to three milliseconds for each distinct row of counts, after some seconds for tables if steps are
    sampled; people with equal counts share a row, and further questions share the tables.

    References
    ----------
    Zhu, Dong and Wang (2022), Table 1, for the pair; Feldman and Zrnic (2021), after Definition 2.5, for individual
    losses of norms that were fixed beforehand.

    Examples
    --------
    >>> ledger = LaplaceLedger(3, noise_multiplier=10, sample_rate=1, max_grad_norm=1)
    >>> ledger.record([0.0, 0.25, 3.0], repeat=40)
    >>> ledger.epsilon(0).upper.round(2), ledger.epsilon(1e-6).upper.round(2)
    (array([0., 1., 4.]), array([0.  , 0.62, 2.73]))
    """

    noise: ClassVar = "laplace"
    _KIND: ClassVar = ledger_file.LAPLACE_KIND
    _NEAR_UPPER: ClassVar = 0.5

    def __init__(self, num_examples: int, **parameters: Any) -> None:
        super().__init__(num_examples, **parameters)
        _checked(self.noise_multiplier)

    def record(
        self,
        norms: Any,
        repeat: int = 1,
        *,
        noise_multiplier: float | None = None,
        sample_rate: float | None = None,
    ) -> None:
        """Count one step, or a block of steps; as `Ledger.record`, with L1 norms."""
        if noise_multiplier is not None:
            _checked(validate.noise_multiplier(noise_multiplier))
        super().record(norms, repeat, noise_multiplier=noise_multiplier, sample_rate=sample_rate)

    def epsilon(
        self,
        delta: Any,
        direction: str = "both",
        *,
        bounds: str = "all",
        progress: Callable[[int, int], None] | None = None,
        seconds: float | None = None,
    ) -> Bounds:
        """Bounds of every person's epsilon(delta); as `Ledger.epsilon`, and also for delta = 0."""
        if np.ndim(delta) == 0 and delta == 0:
            return self._pure(direction, lower_wanted=validate.wants_lower(bounds))
        return super().epsilon(delta, direction, bounds=bounds, progress=progress, seconds=seconds)

    def mu(
        self,
        min_delta: float = 1e-10,
        direction: str = "both",
        *,
        progress: Callable[[int, int], None] | None = None,
        seconds: float | None = None,
    ) -> Bounds:
        """Bounds of the smallest mu whose Gaussian curve lies above the person's wherever delta >= min_delta.

        A step of pure DP implies a mu (`notions.dp.pure_mu`), and the root of the sum of squares holds for all steps,
        at any delta (Dong, Roth and Su 2022).  It is about a quarter above the smallest mu, and more for sampled steps,
        whose sampling it does not count.  The upper bound is this, or the worst case's mu if that is smaller; the lower
        bound is 0.

        **Cost**: that of the worst case's `Composition.mu`.
        """
        validate.delta(min_delta, "min_delta")
        directions(direction)
        tally = self._unpacked()
        upper = np.zeros(self.num_examples)
        if tally.groups:
            square = self._of("remove").steps.gaussian_mu()[:, None] ** 2
            upper = np.sqrt(tally.whole().times(square)[:, 0]) * (1.0 + _ROUNDING)
            upper = np.minimum(upper, self.worst_case().mu(min_delta, direction, seconds=seconds).upper)
        return Bounds(np.zeros(upper.shape), upper, upper, np.zeros(upper.shape, dtype=np.uint8))

    @staticmethod
    def _clipped(noise_multiplier: float, sample_rate: float) -> Mechanism:
        step = Laplace(noise_multiplier)
        return step if sample_rate == 1.0 else SampledBounded(step, sample_rate)

    def _pure(self, direction: str, *, lower_wanted: bool) -> Bounds:
        """The sum of everybody's largest losses."""
        wanted = directions(direction)
        tally = self._unpacked()
        if not tally.groups:
            return everybody(Bounds(0.0, 0.0, 0.0), self.num_examples)
        upper = np.zeros(self.num_examples)
        lower = np.zeros(self.num_examples)
        for way in wanted:
            largest = self._of(way).steps.largest_loss()[:, None]
            upper = np.maximum(upper, tally.whole().times(largest)[:, 0] * (1.0 + _ROUNDING))
            lower = np.maximum(lower, tally.whole(lower=True).times(largest)[:, 0] * (1.0 - _ROUNDING))
        upper = np.minimum(upper, self.worst_case().epsilon(0.0, direction).upper)
        lower = np.minimum(lower, upper) if lower_wanted else np.full(self.num_examples, np.nan)
        return Bounds(lower, 0.5 * (lower + upper), upper, status=np.zeros(self.num_examples, dtype=np.uint8))

    @staticmethod
    def _tables(tally: Tally, direction: Direction) -> TableMakers:
        families: list[StepFamily] = []
        for group in tally.groups:
            if group.sample_rate == 1.0:
                families.append(LaplaceSteps(group.sigma, direction))
            else:
                rows = [LaplaceSteps(group.sigma[k : k + 1], "remove") for k in range(group.size)]
                families.append(SampledBoundedSteps(rows, np.full(group.size, group.sample_rate), direction))
        return TableMakers(mixed(families))

    def _sides(
        self,
        tally: Tally,
        questions: Sequence[Question],
        wanted: Sequence[Direction],
        lower: bool,
        report: Callable[[int], None],
    ) -> list[list[Bounds]]:
        # without sampling the two directions are one
        ways = wanted if any(group.sample_rate < 1.0 for group in tally.groups) else wanted[:1]
        distinct, place = np.unique(tally.counts, axis=0, return_inverse=True)
        place = place.reshape(-1)
        counts = WholeCounts(distinct)
        jobs = [(d, counts) for d in ways]
        if lower:
            jobs.append((ways[0], WholeCounts(distinct, tally.whole(lower=True).at)))
        found = []
        for direction, some in jobs:
            sides = solve_bounds(some, self._of(direction), questions, methods=GRID_OF_MANY)
            found.append([one[place] for one in sides])
            report(self.num_examples * len(questions))
        return found


def ledger_of(noise: str) -> type[Ledger]:
    """The class of ledger that counts steps with this noise, "gaussian" or "laplace"."""
    kinds = {kind.noise: kind for kind in (Ledger, LaplaceLedger)}
    if noise not in kinds:
        raise ValueError(f"noise must be {' or '.join(map(repr, kinds))}, got {noise!r}")
    return kinds[noise]


def _checked(noise_multiplier: float) -> None:
    if not noise_multiplier >= _LEAST_NOISE:
        raise ValueError(f"noise_multiplier must be at least {_LEAST_NOISE}, got {noise_multiplier!r}")
