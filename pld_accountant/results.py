"""Results: the `Bounds` of a quantity, the `Status` and the `Method` of each element, and a number's `Guarantee`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NoReturn

import numpy as np

from .rounding import rounded_down, rounded_up

__all__ = ["Bounds", "Guarantee", "Method", "Status", "everybody", "joined", "shaped", "stacked"]


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
        "No tight method finished within its limits: the upper bound is the Renyi bound, or that of the worst case if "
        "it is smaller. It is certified but may be loose. Ask for a larger delta, or allow more "
        "seconds, to get tight bounds."
    ),
    Status.NOT_CERTIFIED: (
        "No bound could be certified within the limits of work and precision, so (0, inf) is returned. "
        "Ask for a larger delta, or allow more seconds."
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
    LATTICE = 7
    CONJUGATE = 8
    CONTOUR = 9

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
    Method.LATTICE: "Sum over finitely many losses, on a few lattices.",
    Method.CONTOUR: "Integral along a bent contour in the complex plane.",
    Method.CONJUGATE: "Convex conjugate of the curve of delta.",
}


@dataclass(frozen=True, repr=False, eq=False)
class Bounds:
    """A certified enclosure ``lower <= true value <= upper`` with a best guess between the two.

    Bounds unpack as ``lower, estimate, upper = bounds``.  ``bounds[index]`` takes an integer, a slice, a mask or an
    array of integers and gives the bounds of these elements; ``len(bounds)`` counts the elements along the first axis.

    Attributes
    ----------
    lower, estimate, upper : float or ndarray of float64
        All of one shape; arrays are read-only.  `lower` and `estimate` are NaN where only the upper bound was asked
        for.  Whether `upper` may be promised, the `guarantee` of a ledger or a run says.
    status : Status or ndarray of uint8
        One `Status` per element.  An element that is `Status.NOT_CERTIFIED` has upper = inf, and lower = 0 unless a
        larger lower bound is proven, as of a largest loss.
    method : Method or ndarray of uint8
        One `Method` per element: the method that proved `upper`.

    Examples
    --------
    >>> b = Bounds(0.9, 1.0, 1.1)
    >>> round(b.width, 12)
    0.2
    >>> many = Bounds(np.array([0.1, 0.4]), np.array([0.2, 0.5]), np.array([0.3, 0.6]))
    >>> many
    Bounds(2 elements: upper 0.3000 to 0.6000, median 0.3000; all certified)
    >>> len(many), many[1] == Bounds(0.4, 0.5, 0.6)
    (2, True)
    """

    lower: Any
    estimate: Any
    upper: Any
    status: Any = Status.CERTIFIED
    method: Any = Method.CLOSED_FORM

    def __post_init__(self) -> None:
        for name in _PARTS:
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                view = value.view()
                view.flags.writeable = False
                object.__setattr__(self, name, view)

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

    def __len__(self) -> int:
        """The number of elements along the first axis; `TypeError` for the bounds of one number."""
        if np.ndim(self.upper) == 0:
            raise TypeError("the bounds of one number have no length")
        return len(self.upper)

    def __bool__(self) -> bool:
        return True  # not by length: the bounds of one number have none

    def __array__(self, *arguments: Any, **options: Any) -> NoReturn:
        raise TypeError("bounds are several arrays: take bounds.lower, bounds.estimate or bounds.upper")

    def __getitem__(self, index: Any) -> Bounds:
        """The bounds of some of the elements."""
        lower, estimate, upper, status, method = (part[index] for part in self._whole())
        if np.ndim(status) == 0:
            return Bounds(float(lower), float(estimate), float(upper), Status(int(status)), Method(int(method)))
        return Bounds(lower, estimate, upper, status, method)

    def __eq__(self, other: object) -> bool:
        """Whether all five parts agree in every element; NaN equals NaN."""
        if not isinstance(other, Bounds):
            return NotImplemented
        return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(self._whole(), other._whole(), strict=True))

    __hash__ = None  # type: ignore[assignment]  # arrays have none

    def _whole(self) -> list[np.ndarray]:
        """The five parts as arrays of one shape."""
        return [np.broadcast_to(getattr(self, name), np.shape(self.upper)) for name in _PARTS]

    def _certified_in_words(self) -> str:
        status = self._whole()[3]
        counts = {kind: int(np.count_nonzero(status == kind)) for kind in Status}
        found = [f"{counts[kind]:,} {kind.name}" for kind in Status if counts[kind]]
        return "all certified" if counts[Status.CERTIFIED] == status.size else ", ".join(found)

    def __repr__(self) -> str:
        if np.ndim(self.upper) == 0:
            parts = ", ".join(f"{name}={float(getattr(self, name))!r}" for name in _PARTS[:3])
            return f"Bounds({parts}, status={Status(self.status).name}, method={Method(self.method).name})"
        size = " x ".join(f"{length:,}" for length in np.shape(self.upper))
        if not np.size(self.upper):
            return f"Bounds({size} elements)"
        low, middle, high = (rounded_up(value) for value in _spread(self.upper))
        return f"Bounds({size} elements: upper {low} to {high}, median {middle}; {self._certified_in_words()})"

    def _repr_html_(self) -> str:
        """A small table for notebooks: smallest, median and largest of each part."""
        rows = []
        for name, rounded in (("lower", rounded_down), ("estimate", "{:.4g}".format), ("upper", rounded_up)):
            value = np.asarray(getattr(self, name))
            if value.size and not np.isnan(value).all():
                rows.append((name, *(rounded(v) for v in _spread(value))))
        heads = "".join(f"<th>{head}</th>" for head in ("", "smallest", "median", "largest"))
        lines = "".join(f"<tr><th>{name}</th>{''.join(f'<td>{v}</td>' for v in cells)}</tr>" for name, *cells in rows)
        size = " x ".join(f"{length:,}" for length in np.shape(self.upper)) or "1"
        caption = f"Bounds of {size} {'element' if size == '1' else 'elements'}, {self._certified_in_words()}"
        return f"<table><caption>{caption}</caption><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"

    def to_pandas(self) -> Any:
        """A data frame with a row for each element: lower, estimate, upper, status, method.

        Returns
        -------
        pandas.DataFrame
            Indexed from 0; status and method are categories, by name.

        Raises
        ------
        ImportError
            If pandas is not installed.
        ValueError
            For bounds with more than one axis; choose a row, as in ``bounds[0]``.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install 'individual-pld-accountant[pandas]'") from None
        if np.ndim(self.upper) > 1:
            raise ValueError(f"bounds of shape {np.shape(self.upper)} are no table; choose a row, as in bounds[0]")
        columns = {name: np.atleast_1d(part).copy() for name, part in zip(_PARTS, self._whole(), strict=True)}
        for name, kind in (("status", Status), ("method", Method)):
            columns[name] = pandas.Categorical.from_codes(columns[name], [one.name for one in kind])
        return pandas.DataFrame(columns)


def everybody(bounds: Bounds, people: int) -> Bounds:
    """The bounds of one number as those of so many people."""
    return shaped([bounds], (1,))[np.zeros(people, dtype=np.int64)]


def joined(parts: Sequence[Bounds]) -> Bounds:
    """Bounds of more and more elements, along the last axis."""
    return Bounds(*(np.concatenate(arrays, axis=-1) for arrays in zip(*(b._whole() for b in parts), strict=True)))


def stacked(parts: Sequence[Bounds]) -> Bounds:
    """Bounds of the same elements at several arguments, along a new first axis."""
    return Bounds(*(np.stack(arrays) for arrays in zip(*(b._whole() for b in parts), strict=True)))


def shaped(parts: Sequence[Bounds], shape: tuple[int, ...]) -> Bounds:
    """Bounds of single numbers, as arrays of this shape."""
    values = (np.array([getattr(b, name) for b in parts], np.float64).reshape(shape) for name in _PARTS[:3])
    kinds = (np.array([getattr(b, name) for b in parts], np.uint8).reshape(shape) for name in _PARTS[3:])
    return Bounds(*values, *kinds)


_PARTS = ("lower", "estimate", "upper", "status", "method")


def _spread(values: np.ndarray) -> tuple[float, float, float]:
    """The smallest, the median and the largest value but NaN; the median is one of the values."""
    array = np.sort(values[~np.isnan(values)], axis=None)
    return float(array[0]), float(array[(len(array) - 1) // 2]), float(array[-1])


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
    promise : (float, float), optional
        The largest epsilon, and the delta, of a budget that a filter keeps for everybody.
    """

    kind: str
    proven_adaptive: bool
    sentence: str
    reference: str
    promise: tuple[float, float] | None = None

    def __str__(self) -> str:
        return f"{self.sentence} [{self.reference}]"
