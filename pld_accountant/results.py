"""Results: the `Bounds` of a quantity, the `Status` and the `Method` of each element, and a number's `Guarantee`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

__all__ = ["Bounds", "Guarantee", "Method", "Status"]


class Status(IntEnum):
    """How much is known about one element of a batch; the larger the value, the less.

    Examples
    --------
    >>> Status.CERTIFIED.sentence
    'Both bounds are certified.'
    """

    CERTIFIED = 0
    RENYI_ONLY = 1
    NOT_CERTIFIED = 2

    @property
    def sentence(self) -> str:
        """The status in one sentence, which also says what to do."""
        return _STATUS_SENTENCES[self]


_STATUS_SENTENCES = {
    Status.CERTIFIED: "Both bounds are certified.",
    Status.RENYI_ONLY: (
        "No tight method finished within its limits: the upper bound is the Renyi bound, which is certified but may be "
        "loose, and the lower bound is 0. Ask for a larger delta to get tight bounds."
    ),
    Status.NOT_CERTIFIED: (
        "No bound could be certified within the limits of work and precision, so (0, inf) is returned. "
        "Ask for a larger delta."
    ),
}


class Method(IntEnum):
    """The method that proved the upper bound of one element.

    Examples
    --------
    >>> Method.TRANSFORM.sentence
    'Inner product with the characteristic function of the summed losses.'
    """

    CLOSED_FORM = 0
    TRANSFORM = 1
    RARE_LOSSES = 2
    CONVOLUTION = 3
    GRID = 4
    RENYI = 5
    NONE = 6

    @property
    def sentence(self) -> str:
        """The method in one sentence."""
        return _METHOD_SENTENCES[self]


_METHOD_SENTENCES = {
    Method.CLOSED_FORM: "Closed form.",
    Method.TRANSFORM: "Inner product with the characteristic function of the summed losses.",
    Method.RARE_LOSSES: "Inner products for small and for large losses, each with a tilt of its own.",
    Method.CONVOLUTION: "Direct convolution of discrete losses.",
    Method.GRID: "Inner product with Fourier transforms of losses on a grid.",
    Method.RENYI: "Renyi (Chernoff) bound.",
    Method.NONE: "No method.",
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
        One `Status` per element.  An element that is `Status.NOT_CERTIFIED` has lower = 0 and upper = inf.
    method : Method or ndarray of uint8
        One `Method` per element: the method that proved `upper`.

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
    method: Any = Method.CLOSED_FORM

    @property
    def width(self) -> Any:
        """upper - lower."""
        return self.upper - self.lower

    @property
    def certified(self) -> Any:
        """True where the bounds are proven, tight or not: a bool, or an array of bool."""
        proven = np.asarray(self.status) != Status.NOT_CERTIFIED
        return proven if proven.ndim else bool(proven)

    def __iter__(self) -> Any:
        """Unpack as ``lower, estimate, upper``."""
        return iter((self.lower, self.estimate, self.upper))

    def __getitem__(self, index: Any) -> Bounds:
        """The bounds of some of the elements."""
        lower, estimate, upper = (np.asarray(v)[index] for v in self)
        status = np.broadcast_to(self.status, np.shape(self.upper))[index]
        method = np.broadcast_to(self.method, np.shape(self.upper))[index]
        if np.ndim(status) == 0:
            return Bounds(float(lower), float(estimate), float(upper), Status(int(status)), Method(int(method)))
        return Bounds(lower, estimate, upper, status, method)


@dataclass(frozen=True)
class Guarantee:
    """The guarantee of a number: what is proven about it.

    Attributes
    ----------
    kind : str
        A short name for programs, for example ``"fixed norms"`` or ``"adaptive, Gaussian DP"``.
    proven_adaptive : bool
        True if the promise holds although each step's norms depend on earlier releases.
    sentence : str
        One or two sentences for the person who reads the number.
    reference : str
        The theorem behind the promise.
    """

    kind: str
    proven_adaptive: bool
    sentence: str
    reference: str

    def __str__(self) -> str:
        return f"{self.sentence} [{self.reference}]"
