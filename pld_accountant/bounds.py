"""`Bounds`: what every question about privacy loss is answered with; `Status`: what became of one person's answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

__all__ = ["Bounds", "Status"]


class Status(IntEnum):
    """What became of one element of a batch; `sentence` says it in words.

    Examples
    --------
    >>> Status.CERTIFIED.sentence
    'The bounds are certified.'
    """

    CERTIFIED = 0
    NOT_CERTIFIED = 1

    @property
    def sentence(self) -> str:
        """The status in one sentence that also says what to do."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.CERTIFIED: "The bounds are certified.",
    Status.NOT_CERTIFIED: (
        "No bound could be certified within the limits of work and precision, so (0, inf) is returned; "
        "ask for a larger delta, or use rdp_epsilon, which is a looser upper bound."
    ),
}


@dataclass(frozen=True)
class Bounds:
    """A certified enclosure ``lower <= true value <= upper`` with a best guess between the two.

    Attributes
    ----------
    lower, estimate, upper : float or ndarray of float64
        All of one shape.  `upper` is what may be promised to a person.  `lower` and `estimate` are NaN where only the
        upper bound was asked for.
    status : Status or ndarray of uint8
        One `Status` per element; an element that is not `Status.CERTIFIED` has lower = 0 and upper = inf.

    Examples
    --------
    >>> b = Bounds(0.9, 1.0, 1.1)
    >>> round(b.width, 12)
    0.2
    """

    lower: Any
    estimate: Any
    upper: Any
    status: Any = Status.CERTIFIED

    @property
    def width(self) -> Any:
        """upper - lower."""
        return self.upper - self.lower

    @property
    def certified(self) -> Any:
        """True where the element is certified: a bool, or an array of bool."""
        return np.asarray(self.status) == Status.CERTIFIED if np.ndim(self.status) else self.status == 0

    def __iter__(self) -> Any:
        """Unpack as ``lower, estimate, upper``."""
        return iter((self.lower, self.estimate, self.upper))

    def __getitem__(self, index: Any) -> Bounds:
        """The bounds of some of the people."""
        status = np.asarray(self.status)[index]
        lower, estimate, upper = (np.asarray(v)[index] for v in self)
        return Bounds(lower, estimate, upper, status=Status(int(status)) if status.ndim == 0 else status)
