"""Everything that was found out about a ledger's people at one delta: `assess` asks, `Individuals` holds
the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..results import Bounds, Guarantee

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
        By privacy loss distributions.
    rdp_epsilon : ndarray of shape (num_examples,)
        By Renyi accounting, an upper bound too.
    worst_case, worst_case_rdp : Bounds of float, float
        The same for a person clipped at every step.
    guarantee : Guarantee
    steps : int
    labels : ndarray of shape (num_examples,) or None
        The group of every person.
    parameters : mapping
        What else the run was described by, in the words of the command line.
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
        """How many people there are."""
        return len(self.rdp_epsilon)

    @property
    def not_certified(self) -> int:
        """How many people have no certified bound."""
        certified = np.broadcast_to(self.epsilon.certified, self.num_examples)
        return self.num_examples - int(np.count_nonzero(certified))


def assess(
    ledger: Ledger,
    delta: float,
    *,
    direction: str = "both",
    labels: np.ndarray | None = None,
    parameters: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Individuals:
    """Ask a ledger for every person's epsilon, by privacy loss distributions and by Renyi accounting.

    Parameters
    ----------
    progress : callable, optional
        Called with (people done, people in all).
    """
    worst = ledger.worst_case()
    most = worst.epsilon(delta, direction=direction)
    found = ledger.epsilon(delta, direction=direction, progress=progress)
    return Individuals(
        delta=delta,
        # nobody loses more than the worst case, which is known more exactly
        epsilon=replace(
            found, estimate=np.minimum(found.estimate, most.upper), upper=np.minimum(found.upper, most.upper)
        ),
        rdp_epsilon=ledger.rdp_epsilon(delta),
        worst_case=most,
        worst_case_rdp=worst.rdp_epsilon(delta),
        guarantee=ledger.guarantee,
        steps=ledger.steps,
        labels=labels,
        parameters={**(parameters or {}), "direction": direction},
    )
