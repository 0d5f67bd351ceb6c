"""`Lattices`: discrete losses beside a few others, whose steps are put on a grid; all are summed as lattices.

Discrete losses keep their own lattices (`engine.lattice`), however many steps there are.  Every other step becomes the
two discrete laws of `tables.grid`, one whose curve lies above and one below.  Their grid spans one step only, not the
sum, so that h is small: log delta changes by about n theta (theta + 1) h^2 / 12 after n of these steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .. import deadline
from ..counting.counts import WholeCounts
from ..mechanisms.base import MASS_ERROR, StepFamily
from ..mechanisms.discrete import DiscreteLaw, DiscreteRows
from ..results import Method as Proof
from ..tables.grid import discretised
from .lattice import LatticeSum, is_lattice
from .method import Job, Method
from .working import WorkingBounds

__all__ = ["Lattices"]

_MOST_REACH = 38.0
_LEAST = -660.0  # log delta, far above where doubles end
_ERROR = 8.0 * MASS_ERROR  # of a grid's masses: each is a difference of four numbers that err by `MASS_ERROR`

Side = Literal["upper", "lower"]
_SIDES: tuple[Side, Side] = ("lower", "upper")


@dataclass(frozen=True)
class Lattices(Method):
    """Sums of lattices, person by person, for whole counts of discrete and other steps.

    Attributes
    ----------
    points : int
        Cells of the grid of the other steps; the widest of their ranges of losses takes this number.
    most : int
        The largest number of other steps.
    atoms : int
        The largest number of atoms, as for `LatticeSum.of`.  Each takes about 0.1 microseconds for a delta, and thirty
        times that for an epsilon.
    """

    points: int = 1 << 13
    most: int = 64
    atoms: int = 1 << 15

    def improve(self, job: Job, working: WorkingBounds, who: NDArray) -> None:
        """See `Method`."""
        steps = job.makers.steps
        if not isinstance(steps, DiscreteRows) or not isinstance(job.counts, WholeCounts):
            return
        reach = np.minimum(job.far_reach(working, who), _MOST_REACH)
        for person, far in zip(who.tolist(), reach.tolist(), strict=True):
            counts = job.counts.of_rows(person)
            rows = np.flatnonzero(counts)
            discrete = {int(k): steps.discrete_law(int(k)) for k in rows}
            laws = {k: law for k, law in discrete.items() if law is not None and is_lattice(law, int(counts[k]))}
            others = [int(k) for k in rows if int(k) not in laws]
            if not laws or counts[others].sum() > self.most:
                continue
            at = np.array([person])
            question = job.question.of(at)
            target = float(np.ravel(question.target)[0])
            if question.wants_epsilon and target < _LEAST:
                continue
            ends: list[float] = []
            for side in _SIDES:
                deadline.check()
                gridded = self._on_grid(steps, others, far, side)
                chosen = [laws[int(k)] if int(k) in laws else gridded[int(k)] for k in rows]
                total = LatticeSum.of(chosen, counts[rows].tolist(), self.atoms)
                if total is None:
                    break
                lower, upper = total.epsilon(float(np.exp(target))) if question.wants_epsilon else total.delta(target)
                ends.append(lower if side == "lower" else upper)
            if len(ends) < 2 or not np.isfinite(ends[1]):
                continue
            if not question.wants_epsilon:
                with np.errstate(divide="ignore"):
                    ends = [float(np.log(x)) + room for x, room in zip(ends, (-1e-15, 1e-15), strict=True)]
            one = WorkingBounds.unknown(1, question)
            middle = 0.5 * (ends[0] + ends[1]) if np.isfinite(ends[0]) else ends[1]
            one.settle(np.array([0]), ends[0], middle, ends[1], Proof.LATTICE)
            working.merge(at, one)

    def _on_grid(self, steps: StepFamily, rows: list[int], reach: float, side: Side) -> dict[int, DiscreteLaw]:
        """The discrete laws of some rows, above or below."""
        spans = {k: steps.range_of_losses(k, reach) for k in rows}
        step = max((top - bottom for bottom, top in spans.values()), default=0.0) / self.points
        found = {}
        for k, span in spans.items():
            start, mass, beyond = discretised(steps, k, span, step, side, reach)
            # the error of a mass is relative to those of the cells around it
            error = _ERROR * np.convolve(np.abs(mass), np.ones(5), "same")
            mass = np.maximum(mass + error if side == "upper" else mass - error, 0.0)
            found[k] = DiscreteLaw(start + step * np.arange(mass.size), mass, beyond, False)
        return found
