"""Publishing how much privacy people lose: `release`, a table of counts with the noise of OpenDP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import validate
from .files.formats import require
from .ledger import Ledger
from .notions.dp import mu_of_pure
from .report.provenance import provenance
from .rounding import exact, rounded_up

__all__ = ["ORDERS", "OTHERS", "Release", "booked_mu", "release"]

ORDERS = tuple((1.0 + 2.0 ** (np.arange(-16, 81) / 8.0)).tolist())
"""The public orders at which the released epsilons are bounded: 1.25 to 1025, eight an octave of the order less 1."""
OTHERS = "(others)"
"""The group of people whose label is not in the public list."""

_LEAST_COST, _MOST_COST = 1e-6, 1e3  # of epsilon; further out counts do not fit, or have no noise
_SENTENCE = (
    "The counts are released with {epsilon}-differential privacy, when neighbouring data differ by one person added "
    "or removed. All other numbers are computed from the counts. Each person's epsilon is the Renyi bound at public "
    "orders. The guarantee needs the conditions of the page on publishing: the edges, the groups, delta and the "
    "schedule were chosen without the data, and a person's norms depend on that person's data and on published values "
    "only."
)


@dataclass(frozen=True, eq=False)
class Release:
    """Noisy counts of people by epsilon and group, and what follows from them.

    Attributes
    ----------
    edges : ndarray, shape (cells,)
        The cells are [0, edges[0]], (edges[0], edges[1]], ..., (edges[-1], inf).
    groups : tuple
        Public names of groups; the last is `OTHERS` unless there are no groups.
    counts : ndarray of int64, shape (groups, cells + 1)
        With noise: any integer, also negative.
    delta : float
        At which the people's epsilons were computed.
    epsilon : float
        The cost to everybody: the release is epsilon-differentially private.
    scale : float
        Of the discrete Laplace noise of each count.
    """

    edges: NDArray
    groups: tuple[Any, ...]
    counts: NDArray
    delta: float
    epsilon: float
    scale: float
    provenance: dict[str, Any] = field(default_factory=provenance)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Release) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]

    @property
    def rho(self) -> float:
        """epsilon^2 / 2: the release is rho-zCDP (Bun and Steinke 2016, Proposition 3.3)."""
        return self.epsilon**2 / 2.0 * (1.0 + 2.0**-50)

    @property
    def mu(self) -> float:
        """`booked_mu` of the cost: the release is mu-GDP."""
        return booked_mu(self.epsilon)

    @property
    def sentence(self) -> str:
        """The guarantee and its conditions."""
        return _SENTENCE.format(epsilon=exact(self.epsilon))

    def histogram(self) -> NDArray:
        """Noisy number of people in each cell, (cells + 1,) integers."""
        return np.asarray(self.counts.sum(axis=0))

    def error(self, confidence: float = 0.95) -> int:
        """The largest error of one count of one group, at this confidence: ``P(|noise| <= error) >= confidence``."""
        if not 0.0 < confidence < 1.0:
            raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}")
        a = math.exp(-1.0 / self.scale)
        # P(|noise| > t) = 2 a^(t + 1) / (1 + a)
        return max(math.ceil(self.scale * math.log(2.0 / ((1.0 + a) * (1.0 - confidence))) - 1.0), 0)

    def share_below(self, threshold: float) -> float:
        """The share of people with an epsilon of at most `threshold`, one of the edges; NaN if nobody is left."""
        place = np.flatnonzero(self.edges == threshold)
        if not place.size:
            raise ValueError(f"threshold must be one of the edges, got {threshold!r}")
        below, total = np.cumsum(self._people())[[int(place[0]), -1]]
        return float(below / total) if total else math.nan

    def quantiles(self, probabilities: Sequence[float]) -> NDArray:
        """The smallest edges below which these shares of people lie; infinite beyond the last edge."""
        wanted = np.asarray(probabilities, dtype=np.float64)
        if not np.all((wanted >= 0.0) & (wanted <= 1.0)):
            raise ValueError(f"probabilities must lie in [0, 1], got {probabilities!r}")
        shares = np.cumsum(self._people())
        if not shares[-1]:
            return np.full(wanted.shape, math.nan)
        place = np.searchsorted(shares, wanted * shares[-1], side="left")
        return np.append(self.edges, math.inf)[place]

    def means(self) -> NDArray:
        """The mean of each group, (groups,), of epsilons raised to the edge of their cell and cut at the last edge."""
        people = np.maximum(self.counts, 0)
        at, total = np.append(self.edges, self.edges[-1]), people.sum(axis=1)
        return np.where(total > 0, people @ at / np.maximum(total, 1), math.nan)

    def _people(self) -> NDArray:
        return np.maximum(self.histogram(), 0)

    def as_dict(self) -> dict[str, Any]:
        """A mapping for JSON: counts, cost, noise, and what is guaranteed."""
        means = [None if math.isnan(mean) else mean for mean in self.means().tolist()]
        return {
            "provenance": dict(self.provenance),
            "delta": self.delta,
            "cost": {"epsilon": self.epsilon, "rho": self.rho, "mu": self.mu, "neighbours": "add or remove one person"},
            "noise": {"law": "discrete Laplace", "scale": self.scale, "error_95": self.error()},
            "edges": self.edges.tolist(),
            "groups": [
                {"group": name, "counts": row, "mean": mean}
                for name, row, mean in zip(self.groups, self.counts.tolist(), means, strict=True)
            ],
            "counts": self.histogram().tolist(),
            "guarantee": self.sentence,
        }

    def text(self) -> str:
        """Text for the terminal."""
        from .report.summary import columns, wrapped

        names = [f"{group}" for group in self.groups]
        head = (f"epsilon at delta = {exact(self.delta)}", "people", *(names if len(names) > 1 else []))
        cells = [*(f"at most {exact(edge)}" for edge in self.edges), f"above {exact(self.edges[-1])}"]
        rows: list[Sequence[str]] = [head]
        for cell, total, of in zip(cells, self.histogram().tolist(), self.counts.T.tolist(), strict=True):
            rows.append((cell, f"{total:,}", *([f"{n:,}" for n in of] if len(names) > 1 else [])))
        cost = (
            f"Cost to everybody: epsilon {exact(self.epsilon)} (mu {rounded_up(self.mu)}, rho {rounded_up(self.rho)}). "
            f"Each count of one group has noise of at most {self.error()} with probability 0.95."
        )
        return "\n\n".join([columns(rows), wrapped(cost), wrapped(self.sentence)])


def booked_mu(epsilon: float) -> float:
    """The smallest mu such that epsilon-differential privacy implies mu-GDP, rounded up.

    It is `notions.dp.pure_mu`, for any epsilon.

    Examples
    --------
    >>> round(booked_mu(1.0), 4)
    1.232
    """
    return float(mu_of_pure(np.array(validate.positive(epsilon, "epsilon"))))


def release(
    ledger: Ledger,
    delta: float,
    *,
    epsilon: float | None = None,
    rho: float | None = None,
    edges: Any,
    labels: Any = None,
    groups: Sequence[Any] | None = None,
    book: bool = False,
) -> Release:
    """Release how many people have which epsilon, with noise: a differentially private summary that may be published.

    Parameters
    ----------
    ledger : Ledger
    delta : float
        In (0, 1), at which each person's epsilon is computed.
    epsilon, rho : float
        The most that the release may cost; one of the two.  A release within rho-zCDP is that of
        epsilon = sqrt(2 rho).  It is (epsilon, delta)-DP for every delta.  The epsilon must lie between 1e-6, where a
        count is wrong by millions, and 1000.
    edges : sequence of float
        Ends of the cells, ascending, above 0 and finite; chosen without the data.  The worst case's epsilon and
        fractions of it are public.
    labels : array_like of shape (num_examples,), optional
        The group of every person.
    groups : sequence, optional
        The public list of groups; needed with labels.  People with another label are counted together.
    book : bool
        Whether to add the cost to everybody's ledger, as one full-batch Gaussian step with mu = `booked_mu`.

    Returns
    -------
    Release
        Counts by cell and group; its histogram, quantiles, shares and means cost nothing more.

    Raises
    ------
    ValueError
        For a bad argument.  `ReadError`, a ValueError, without OpenDP (extra ``release``).

    Notes
    -----
    One person is in one cell of one group, and no other person's value depends on that person, so that adding or
    removing a person changes one count by one.  Discrete Laplace noise of scale 1 / epsilon makes the counts
    epsilon-DP.  The page on publishing derives this, with its conditions.

    Each call is a new release with its own cost.
    """
    if not isinstance(ledger, Ledger):
        raise ValueError(f"ledger must be a Ledger or a LaplaceLedger, got {ledger!r}")
    if book and ledger.noise != "gaussian":
        raise ValueError(f"a {type(ledger).__name__} cannot book a release, whose cost is that of a Gaussian step")
    dp = require("opendp.prelude", "release", "a release")
    cost, ends = _cost(epsilon, rho), np.asarray(edges, dtype=np.float64)
    if not (ends.ndim == 1 and ends.size and ends[0] > 0.0 and np.all(np.diff(ends) > 0.0) and np.isfinite(ends[-1])):
        raise ValueError(f"edges must be finite numbers above 0 in ascending order, got {edges!r}")
    if (labels is None) != (groups is None):
        raise ValueError("labels and groups must be given together: the list of groups must be public")
    names: tuple[Any, ...] = ("everybody",) if groups is None else (*groups, OTHERS)
    if len(set(map(str, names))) < len(names):
        raise ValueError(f"groups must be distinct, and none may be {OTHERS!r}, got {groups!r}")
    group = np.zeros(ledger.num_examples, dtype=np.int64) if labels is None else _places(labels, names, ledger)
    cell = np.searchsorted(ends, ledger.rdp_epsilon(delta, orders=ORDERS), side="left")
    cells = ends.size + 1
    exact = np.bincount(group * cells + cell, minlength=len(names) * cells)
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    noise = dp.binary_search_chain(lambda s: dp.m.make_laplace(*space, scale=s), d_in=1, d_out=cost)
    scale = dp.binary_search_param(lambda s: dp.m.make_laplace(*space, scale=s), d_in=1, d_out=cost)
    noisy = np.array(noise(exact.tolist()), dtype=np.int64).reshape(len(names), cells)
    found = Release(ends, names, noisy, float(delta), float(noise.map(1)), float(scale))
    if book:
        clipped = np.full(ledger.num_examples, ledger.max_grad_norm)
        ledger.record(clipped, noise_multiplier=math.nextafter(1.0 / found.mu, 0.0), sample_rate=1.0)
    return found


def _cost(epsilon: float | None, rho: float | None) -> float:
    """The epsilon of a release; from rho by the converse of epsilon^2 / 2, rounded down."""
    if (epsilon is None) == (rho is None):
        raise ValueError("give one of epsilon and rho, the most that the release may cost")
    if epsilon is not None:
        cost = validate.positive(epsilon, "epsilon")
    else:
        cost = math.sqrt(2.0 * validate.positive(rho, "rho")) * (1.0 - 2.0**-48)
    if not _LEAST_COST <= cost <= _MOST_COST:
        what = "epsilon" if rho is None else "the epsilon of rho, sqrt(2 rho),"
        raise ValueError(f"{what} must lie between {_LEAST_COST:g} and {_MOST_COST:g}, got {cost!r}")
    return cost


def _places(labels: Any, names: Sequence[Any], ledger: Ledger) -> NDArray:
    """The place of everybody's label in the names; the last for others."""
    validate.in_order(labels, "labels")
    given = np.asarray(labels)
    validate.array_shape(given, (ledger.num_examples,), "labels")
    place = {str(name): i for i, name in enumerate(names[:-1])}
    found, back = np.unique(given.astype(str), return_inverse=True)
    return np.array([place.get(str(label), len(names) - 1) for label in found])[back.reshape(-1)]
