"""`DensityPair`: a user's own two laws on the line whose privacy loss is monotone, enclosed by discrete laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import validate
from .base import Direction, Enclosure, sampled_loss
from .discrete import Discrete, DiscreteLaw, merged
from .lognormal_sums import Side

__all__ = ["DensityPair", "DensitySide"]

_ERROR = 1e-12  # of the logs that the user's functions return
_ROUND = 1e-13  # relative error of the few sums and exponentials made of them
_LOG_TAIL = -80.6  # log(1e-35): knots end where this much of either law is left
_MOST_LOSS = 700.0
_LEVELS, _BULK, _WIDE = 128, 4096, 1024  # knots at quantiles, and even in the loss over the bulk and over all
_LOG_BULK = -18.0
_FAR = 700.0  # of t, where x is 5e303
_NONE = -750.0  # P has no mass, in doubles, at losses below this
_RELATIVE = 4e-15
_HALVINGS = 64
_DENSER = 1e3  # a cell's mass may not fall short of its density times its width by this factor


@dataclass(frozen=True)
class DensityPair:
    """A mechanism given by two laws on the real line, the ratio of whose densities is monotone.

    Parameters
    ----------
    with_record, without_record : object
        The laws of the output if the record is there and if it is not.  Each has the methods ``logpdf``, ``logcdf`` and
        ``logsf`` of an array, such as a frozen distribution of ``scipy.stats``.  They are called here only, and not
        kept.
    sample_rate : float
        Probability with which the record enters the step, in (0, 1].

    Raises
    ------
    ValueError
        If a law lacks a method or a method returns what it cannot; if the ratio of the densities is not monotone at the
        knots; if masses and densities contradict each other; if no output is possible under both laws; or for a sample
        rate out of range.

    Notes
    -----
    **What is trusted**: that the log of the ratio of the densities is monotone on the line (a difference of two
    locations of log-concave noise is one such case), and that the logs of the tails and densities are right to 1e-12
    plus a relative 4e-15.  Both are checked at about 6,000 knots, and cannot be proven there.  If other data sets
    change the laws, the pair given must be a dominating pair for all of them.

    With P and Q the two laws, removal is dominated by ((1 - q) Q + q P, Q), addition by the same pair in the other
    order.  The line is cut into cells, in each of which the loss lies between those of its ends.

    **Lower bound**: the discrete pair of the masses of the cells, a post-processing of the output.

    **Upper bound**: each cell's two masses are kept and moved to the losses of its ends.  The curve of delta is then
    the chord, in exp(epsilon), of the true one, which is convex.

    Masses of 1e-35 beyond the last knot count as an infinite loss, unless the loss is bounded by the sampling.  ``rdp``
    is therefore infinite.

    **Cost**: about 100 calls of each method with up to 5,000 numbers, when it is made.

    References
    ----------
    Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), "Connect the dots: tighter discrete approximations of
    privacy loss distributions", for the upper bound; Zhu, Dong and Wang (2022), Theorem 11, for sampling.

    Examples
    --------
    >>> from scipy import stats
    >>> from pld_accountant.composition import compose
    >>> step = DensityPair(stats.logistic(1.0), stats.logistic(0.0))
    >>> bounds = compose([(step, 10)]).epsilon(1e-5)
    >>> f"{bounds.lower:.4f} {bounds.upper:.4f}"
    '7.6256 7.6256'
    """

    sample_rate: float
    name: str = field(compare=False, repr=False)
    _cells: bytes = field(repr=False)
    close: ClassVar = True

    def __init__(self, with_record: Any, without_record: Any, sample_rate: float = 1.0) -> None:
        rate = validate.sample_rate(sample_rate)
        laws = [_checked(law, at) for law, at in ((with_record, "with_record"), (without_record, "without_record"))]
        with np.errstate(all="ignore"):
            cells = _cut(*laws)
        self._set(rate, f"{_shown(with_record)}, {_shown(without_record)}", cells.stack().tobytes())

    def _set(self, rate: float, name: str, cells: bytes) -> None:
        for key, value in (("sample_rate", rate), ("name", name), ("_cells", cells)):
            object.__setattr__(self, key, value)

    def __repr__(self) -> str:
        rate = "" if self.sample_rate == 1.0 else f", sample_rate={self.sample_rate}"
        return f"DensityPair({self.name}{rate})"

    @property
    def noise_multiplier(self) -> float:
        """1 over the largest loss at a knot, by which compositions sort."""
        high = Cells.read(self._cells).high
        return 1.0 / max(float(np.abs(high[np.isfinite(high)]).max(initial=0.0)), 1e-300)

    @property
    def neighbours(self) -> str | None:
        """See `base.Mechanism`."""
        return "added or removed" if self.sample_rate < 1.0 else None

    def sampled(self, rate: float) -> DensityPair:
        """The same mechanism on a Poisson sample; rates of repeated samples multiply."""
        other = object.__new__(DensityPair)
        other._set(validate.sample_rate(rate) * self.sample_rate, self.name, self._cells)
        return other

    def below(self) -> Enclosure:
        """See `base.Enclosed`."""
        return Enclosure([(DensitySide(self, Side.LOWER), 1)])

    def above(self) -> Enclosure:
        """See `base.Enclosed`."""
        return Enclosure([(DensitySide(self, Side.UPPER), 1)])


@dataclass(frozen=True)
class DensitySide(Discrete):
    """A discrete law on one side of a `DensityPair`, which makes it."""

    pair: DensityPair
    side: Side

    @property
    def noise_multiplier(self) -> float:
        """That of the pair."""
        return self.pair.noise_multiplier

    def law(self, direction: Direction) -> DiscreteLaw:
        """The losses in one direction."""
        cells = Cells.read(self.pair._cells)
        with np.errstate(all="ignore"):
            made = _upper if self.side is Side.UPPER else _lower
            return made(cells, self.pair.sample_rate, direction)


class Cells(NamedTuple):
    """The line in cells of ascending loss, each number between two bounds.

    The first knot has the loss -inf and the last +inf; n knots are between, and n + 1 cells.

    Attributes
    ----------
    low, high : ndarray, shape (n + 2,)
        Bounds of the losses of the knots.
    p, q : ndarray, shape (2, n + 2)
        Bounds of the masses of the cell that begins at a knot; the last entry is 0.
    p_above, q_above, p_below, q_below : ndarray, shape (2, n + 2)
        Bounds of the masses on either side of a knot.
    """

    low: NDArray
    high: NDArray
    p: NDArray
    q: NDArray
    p_above: NDArray
    q_above: NDArray
    p_below: NDArray
    q_below: NDArray

    def stack(self) -> NDArray:
        """All rows."""
        return np.concatenate([np.atleast_2d(part) for part in self])

    @classmethod
    def read(cls, data: bytes) -> Cells:
        """The inverse of the bytes of `stack`."""
        rows = np.frombuffer(data).reshape(14, -1)
        return cls(rows[0], rows[1], *(rows[k : k + 2] for k in range(2, 14, 2)))


# ------------------------------------------------------------------------------------------------ the two discrete laws


def _sampled(loss: NDArray, rate: float) -> NDArray:
    return loss if rate == 1.0 else sampled_loss(loss, rate)


def _widened(loss: NDArray, sign: float) -> NDArray:
    return loss + sign * (4.0 * _ROUND + _ROUND * np.abs(np.where(np.isfinite(loss), loss, 0.0)))


def _upper(cells: Cells, rate: float, direction: Direction) -> DiscreteLaw:
    """Each cell's masses on the losses of its ends.

    With A <= B the bounds of a cell's losses, b = (P - e^A Q) / (1 - e^(A - B)) of its mass goes to B.  So the mass at
    losses of at least a knot's is that above the knot and b of the cell below it; an upper bound of this survival
    function moves masses to larger losses only.
    """
    low, high = cells.low[:-1], cells.high[1:]  # of the cells
    shrink = -np.expm1(low - high)
    if direction == "remove":
        # sampling changes b of the mixture's mass by the factor e^B' / e^B
        part = (cells.p[1, :-1] - np.exp(low) * cells.q[0, :-1] * (1.0 - _ROUND)) / shrink
        part = part * (rate + (1.0 - rate) * np.exp(-high))
        mass = (1.0 - rate) * cells.q[1, :-1] + rate * cells.p[1, :-1]
        above = ((1.0 - rate) * cells.q_above[1] + rate * cells.p_above[1])[1:]
        loss = _sampled(cells.high, rate)[1:]
    else:
        part = (cells.q[1, :-1] - np.exp(-high) * cells.p[0, :-1] * (1.0 - _ROUND)) / shrink
        part, mass = part[::-1], cells.q[1, -2::-1]
        above = cells.q_below[1, -2::-1]
        loss = -_sampled(cells.low, rate)[-2::-1]
    survival = (above + np.clip(part * (1.0 + _ROUND), 0.0, mass)) * (1.0 + _ROUND)
    survival = np.minimum(np.maximum.accumulate(survival[::-1])[::-1], 1.0)
    if direction == "remove" and rate < 1.0:
        loss, survival = np.append(np.log1p(-rate), loss), np.append(1.0, survival)
    survival[0] = 1.0  # what lies below the first knot is moved to it
    return _law(_widened(loss, 1.0), survival)


def _lower(cells: Cells, rate: float, direction: Direction) -> DiscreteLaw:
    """The masses of the cells, of which the two that hold the smallest losses are one."""
    p, q = cells.p[:, :-1], cells.q[:, :-1]
    if direction == "remove":
        p, q = _joined(p), _joined(q)
        mean = np.where(p[0] > 0.0, np.log(p[0]) - np.log(q[1]), -np.inf)
        loss = _sampled(np.maximum(mean, np.append(-np.inf, cells.low[2:-1])), rate)
        above = ((1.0 - rate) * cells.q_above[0] + rate * cells.p_above[0])[2:-1]
    else:
        p, q = _joined(p[:, ::-1]), _joined(q[:, ::-1])
        mean = np.where(q[0] > 0.0, np.log(p[1]) - np.log(q[0]), np.inf)
        loss = -_sampled(np.minimum(mean, np.append(np.inf, cells.high[-3:0:-1])), rate)
        above = cells.q_below[0, -3:0:-1]
    survival = np.append(1.0, np.maximum.accumulate((above * (1.0 - _ROUND))[::-1])[::-1])
    loss = np.maximum(np.minimum.accumulate(loss[::-1])[::-1], _NONE)
    return _law(_widened(loss, -1.0), survival)


def _joined(masses: NDArray) -> NDArray:
    """The first two cells as one."""
    return np.concatenate([masses[:, :1] + masses[:, 1:2], masses[:, 2:]], axis=1)


def _law(losses: NDArray, survival: NDArray) -> DiscreteLaw:
    """The law whose mass at losses of at least the k-th is the k-th number; both are monotone.

    The masses of the other law need not add up to 1, so that outcomes count as excluded.
    """
    masses = survival - np.append(survival[1:], 0.0)
    infinite = float(masses[np.isinf(losses)].sum())
    kept = np.isfinite(losses) & (masses > 0.0)
    values, added, _ = merged(losses[kept], masses[kept])
    return DiscreteLaw(values, added, infinite, True)


# ----------------------------------------------------------------------------------------------------------- the cells


def _checked(law: Any, name: str) -> Any:
    for method in ("logpdf", "logcdf", "logsf"):
        if not callable(getattr(law, method, None)):
            raise ValueError(f"{name} must have the methods logpdf, logcdf and logsf, got {law!r}")
    return law


def _shown(law: Any) -> str:
    """A name for `repr`: the family of a distribution of scipy with its arguments, else the class."""
    family = getattr(getattr(law, "dist", None), "name", None)
    if family is None:
        return type(law).__name__
    given = [*map(repr, law.args), *(f"{key}={value!r}" for key, value in law.kwds.items())]
    return f"{family}({', '.join(given)})"


class _Line(NamedTuple):
    """Two laws on the line, read from left to right, or from right to left so that their loss rises.

    Places on the line are t with x = sinh(t): halvings of t reach all doubles.
    """

    laws: tuple[Any, Any]
    sign: float

    def log_density(self, k: int, t: NDArray) -> NDArray:
        return _logs(self.laws[k].logpdf, self.sign * np.sinh(t), "logpdf", np.inf)

    def log_above(self, k: int, t: NDArray) -> NDArray:
        name = "logsf" if self.sign > 0.0 else "logcdf"
        return _logs(getattr(self.laws[k], name), self.sign * np.sinh(t), name, 1e-9)

    def log_below(self, k: int, t: NDArray) -> NDArray:
        return _Line(self.laws, -self.sign).log_above(k, -t)

    def loss(self, t: NDArray) -> NDArray:
        """log of the ratio of the densities; nan where both are 0."""
        return self.log_density(0, t) - self.log_density(1, t)


def _logs(function: Callable[[NDArray], Any], x: NDArray, name: str, most: float) -> NDArray:
    found = np.asarray(function(x), dtype=np.float64)
    if found.shape != x.shape or np.any(np.isnan(found)) or np.any(found > most) or np.any(found == np.inf):
        raise ValueError(f"{name} must return the log of a density or of a probability for each number of an array")
    return found


def _crossings(reached: Callable[[NDArray], NDArray], low: NDArray, high: NDArray) -> tuple[NDArray, NDArray]:
    """The two ends of the last bracket of where a condition begins to hold; it holds at the second."""
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        yes = reached(middle)
        low, high = np.where(yes, low, middle), np.where(yes, middle, high)
    return low, high


def _quantiles(line: _Line) -> NDArray:
    """Places where each law has certain masses on its left, and on its right."""
    levels = np.linspace(_LOG_TAIL, np.log(0.5), _LEVELS)
    ends = np.full((2, _LEVELS), [[-_FAR], [_FAR]])
    found = []
    for k in (0, 1):
        found.append(_crossings(lambda t, k=k: line.log_below(k, t) >= levels, *ends)[1])  # type: ignore[misc]
        found.append(_crossings(lambda t, k=k: line.log_above(k, t) < levels, *ends)[0])  # type: ignore[misc]
    return np.sort(np.concatenate(found))


def _knots(line: _Line, places: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Places of knots: those with losses below -700, if any; those between; those above 700.

    Between lie quantiles, and places where the loss takes values that lie evenly.
    """
    ends = np.full((2, 2), [[places[0]], [places[-1]]])
    limits = np.array([-_MOST_LOSS, _MOST_LOSS])
    if np.any(np.isnan(line.loss(places))):
        raise ValueError("both densities are 0 between places of which one or the other is possible")
    outer, inner = _crossings(lambda t: line.loss(t) > limits, *ends)
    first = places[0] if line.loss(places[:1])[0] > -_MOST_LOSS else inner[0]
    last = places[-1] if line.loss(places[-1:])[0] <= _MOST_LOSS else outer[1]
    if not (first <= last and np.all(np.abs(line.loss(np.array([first, last]))) <= _MOST_LOSS)):
        raise ValueError("no output is possible under both laws, so that every loss is infinite")
    inside = np.clip(places, first, last)
    bulk = np.concatenate([line.log_below(0, inside), line.log_above(0, inside)]).reshape(2, -1)
    middle = line.loss(inside[np.all(bulk > _LOG_BULK, axis=0)])
    whole = line.loss(np.array([first, last]))
    targets = np.linspace(whole[0], whole[1], _WIDE)
    if middle.size:
        targets = np.append(targets, np.linspace(middle[0], middle[-1], _BULK))
    even = _crossings(lambda t: line.loss(t) >= targets, np.full(targets.size, first), np.full(targets.size, last))[1]
    ends = np.array([outer[0], inner[1]])
    before, after = ends[:1][line.loss(ends[:1]) <= -_MOST_LOSS], ends[1:][line.loss(ends[1:]) > _MOST_LOSS]
    return before, np.unique(np.concatenate([inside, even])), after


def _cut(with_record: Any, without_record: Any) -> Cells:
    """The cells of two laws."""
    line = _Line((with_record, without_record), 1.0)
    places = _quantiles(line)
    losses = line.loss(places)
    if np.nanmax(losses[-8:]) < np.nanmin(losses[:8]):
        line, places = _Line(line.laws, -1.0), -places[::-1]
    before, t, after = _knots(line, places)
    log_p, log_q = line.log_density(0, t), line.log_density(1, t)
    _check_monotone(line, t)
    size = _ERROR + _RELATIVE * (np.abs(log_p) + np.abs(log_q))
    low = np.maximum.accumulate(log_p - log_q - size)
    high = np.minimum.accumulate((log_p - log_q + size)[::-1])[::-1]
    # a knot where a density ends: beyond it the loss is infinite
    most = np.full(after.size, _MOST_LOSS - 1e-9)
    low = np.concatenate([[-np.inf], np.full(before.size, -np.inf), low, most, [np.inf]])
    high = np.concatenate(
        [[-np.inf], np.full(before.size, 1e-9 - _MOST_LOSS), high, np.full(after.size, np.inf), [np.inf]]
    )
    t = np.concatenate([before, t, after])
    tails = []
    masses = []
    for k in (0, 1):
        above, below = _bounded(line.log_above(k, t), 1.0, 0.0), _bounded(line.log_below(k, t), 0.0, 1.0)
        rises, falls = below[:, 1:] - below[::-1, :-1], above[:, :-1] - above[::-1, 1:]
        inside = np.array([np.maximum(rises[0], falls[0]).clip(0.0), np.minimum(rises[1], falls[1])])
        masses.append(np.append(inside, np.zeros((2, 1)), axis=1))
        tails += [above, below]
    cells = Cells(
        low,
        high,
        masses[0],
        masses[1],
        tails[0],
        tails[2],
        tails[1],
        tails[3],
    )
    _check_masses(cells, np.sinh(t) * line.sign, np.stack([line.log_density(k, t) for k in (0, 1)]))
    return cells


def _bounded(logs: NDArray, first: float, last: float) -> NDArray:
    """Bounds of the masses, with those of the two outermost knots."""
    error = np.where(np.isfinite(logs), _ERROR + _RELATIVE * np.abs(logs), 0.0)
    both = np.minimum(np.exp(np.stack([logs - error, logs + error])), 1.0)
    return np.concatenate([np.full((2, 1), first), both, np.full((2, 1), last)], axis=1)


def _check_monotone(line: _Line, t: NDArray) -> None:
    """At the knots and between them."""
    dense = np.sort(np.append(t, 0.5 * (t[1:] + t[:-1])))
    log_p, log_q = line.log_density(0, dense), line.log_density(1, dense)
    size = 2.0 * (_ERROR + _RELATIVE * (np.abs(log_p) + np.abs(log_q)))
    loss = log_p - log_q
    wrong = ~(loss[1:] + size[1:] + size[:-1] >= loss[:-1])
    if np.any(wrong):
        x = np.sort(line.sign * np.sinh(dense[int(np.argmax(wrong)) :][:2]))
        raise ValueError(
            f"the ratio of the densities is not monotone, such as between {x[0]:g} and {x[1]:g}: "
            "no bound follows from these laws"
        )


def _check_masses(cells: Cells, x: NDArray, log_densities: NDArray) -> None:
    """The masses of a cell have a ratio between those of the densities at its ends, and about the densities' size."""
    low, high = np.exp(cells.low[:-1]), np.exp(-cells.high[1:])
    p, q = cells.p[:, :-1], cells.q[:, :-1]
    wrong = (p[1] < low * q[0]) | (high * p[0] > q[1])
    width = np.abs(np.diff(x))
    for mass, logs in ((p, log_densities[0]), (q, log_densities[1])):
        least, most = np.minimum(logs[1:], logs[:-1]), np.maximum(logs[1:], logs[:-1])
        wrong[1:-1] |= mass[1, 1:-1] * _DENSER < np.exp(least) * width
        wrong[1:-1] |= mass[0, 1:-1] > np.exp(most) * width * _DENSER
    if np.any(wrong):
        knot = min(max(int(np.argmax(wrong)), 1), x.size) - 1
        raise ValueError(
            f"logpdf, logcdf and logsf of the two laws contradict each other near {x[knot]:g}, or the ratio of the "
            "densities is not monotone there; the logs of small tails must keep their digits"
        )
