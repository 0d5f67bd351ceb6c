"""Each person's epsilon at one delta, by PLD and by Renyi accounting: `Individuals`, which `assess` makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..results import Bounds, Guarantee, Status

if TYPE_CHECKING:
    from ..ledger import Ledger

__all__ = ["Individuals", "assess"]


@dataclass(frozen=True)
class Individuals:
    """Each person's epsilon at one delta, beside the worst case.

    Attributes
    ----------
    delta : float
    epsilon : Bounds of ndarray of shape (num_examples,)
        By privacy loss distributions, exactly as `Ledger.epsilon` gives it.
    rdp_epsilon : ndarray of shape (num_examples,)
        Upper bound by Renyi accounting.
    worst_case, worst_case_rdp : Bounds of float, float
        The same for a person clipped at every step.
    guarantee : Guarantee
    steps : int
    labels : ndarray of shape (num_examples,) or None
        The group of every person.
    parameters : mapping
        Further parameters of the run, under the names of the command line.
    """

    delta: float
    epsilon: Bounds
    rdp_epsilon: np.ndarray
    worst_case: Bounds
    worst_case_rdp: float
    guarantee: Guarantee
    steps: int
    labels: np.ndarray | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_examples(self) -> int:
        """Number of people."""
        return len(self.rdp_epsilon)

    @property
    def not_certified(self) -> int:
        """Number of people without a certified bound."""
        return self._number(Status.NOT_CERTIFIED)

    @property
    def renyi_only(self) -> int:
        """Number of people whose upper bound is the Renyi bound and whose lower bound is 0."""
        return self._number(Status.RENYI_ONLY)

    def caveats(self) -> list[str]:
        """A sentence with the number of people for each status below `Status.CERTIFIED` that occurs."""
        found = (
            ("Not certified", self.not_certified, Status.NOT_CERTIFIED),
            ("Renyi bound only", self.renyi_only, Status.RENYI_ONLY),
        )
        people = f"of {self.num_examples:,} people"
        return [f"{name}: {count:,} {people}. {status.sentence}" for name, count, status in found if count]

    def _number(self, status: Status) -> int:
        return int(np.count_nonzero(np.broadcast_to(self.epsilon.status, self.num_examples) == status))


def assess(
    ledger: Ledger,
    delta: float,
    *,
    direction: str = "both",
    labels: np.ndarray | None = None,
    parameters: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Individuals:
    """Compute every person's epsilon from a ledger, by privacy loss distributions and by Renyi accounting.

    No bound is changed here: the numbers are those of `Ledger.epsilon` and `Ledger.rdp_epsilon`.

    Parameters
    ----------
    progress : callable, optional
        Called with (people done, people in all).
    """
    worst = ledger.worst_case()
    return Individuals(
        delta=delta,
        epsilon=ledger.epsilon(delta, direction=direction, progress=progress),
        rdp_epsilon=ledger.rdp_epsilon(delta),
        worst_case=worst.epsilon(delta, direction=direction),
        worst_case_rdp=worst.rdp_epsilon(delta),
        guarantee=ledger.guarantee,
        steps=ledger.steps,
        labels=labels,
        parameters={**(parameters or {}), "direction": direction},
    )
