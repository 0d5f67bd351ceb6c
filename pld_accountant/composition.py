"""`compose`: the privacy loss of one worst-case person over a list of mechanisms."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import validate
from .engine import dominating_mu, renyi
from .engine.solver import people_bounds
from .engine.tilting import renyi_bounds
from .mechanisms.base import Gaussian, Mechanism, SampledGaussian
from .notions import gdp
from .results import Bounds, Status
from .tables.characteristic import SpectralMaker

__all__ = ["Composition", "compose"]

_LARGEST_MU = 1e100  # beyond, the closed form's squares overflow
_MOST_STEPS = 2**53  # a double counts no further


def directions(direction: str) -> tuple[str, ...]:
    """("remove", "add") for "both"; raises ValueError for anything else than the three."""
    if direction not in ("remove", "add", "both"):
        raise ValueError(f"direction must be 'remove', 'add' or 'both', got {direction!r}")
    return ("remove", "add") if direction == "both" else (direction,)


def larger(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of the larger of two quantities."""
    lower, estimate, upper = (np.maximum(x, y) for x, y in zip(a, b, strict=True))
    return Bounds(lower, estimate, upper, status=np.maximum(a.status, b.status))


def compose(steps: Iterable[tuple[Mechanism, int]]) -> Composition:
    """Compose mechanisms that are fixed beforehand.

    Parameters
    ----------
    steps : iterable of (mechanism, count)
        Each mechanism and how often it runs; the order does not matter.

    Returns
    -------
    Composition

    Raises
    ------
    ValueError
        For something that is not a mechanism, a count that is not a whole number of at least 0, or more than 2^53
        steps in all.

    Examples
    --------
    >>> c = compose([(SampledGaussian(2, 0.005), 10_000)])
    >>> round(c.epsilon(1e-5).upper, 6)
    1.004113
    """
    counts: dict[tuple[float, float], int] = {}
    for entry in steps:
        try:
            mechanism, number = entry
        except (TypeError, ValueError):
            raise ValueError(f"steps must hold pairs (mechanism, count), got {entry!r}") from None
        if not isinstance(mechanism, (Gaussian, SampledGaussian)):
            raise ValueError(f"steps must hold mechanisms such as SampledGaussian, got {mechanism!r}")
        key = (mechanism.noise_multiplier, mechanism.sample_rate)
        counts[key] = counts.get(key, 0) + validate.count(number, "count")
    if sum(counts.values()) > _MOST_STEPS:
        raise ValueError(f"steps must be at most {_MOST_STEPS} in all, got {sum(counts.values())}")
    return Composition({key: n for key, n in counts.items() if n})


class Composition:
    """The privacy loss of one person over a fixed list of mechanisms.  Made by `compose`."""

    def __init__(self, counts: dict[tuple[float, float], int]) -> None:
        self._counts = dict(sorted(counts.items()))
        self._makers: dict[str, SpectralMaker] = {}

    def __repr__(self) -> str:
        inside = ", ".join(f"({SampledGaussian(s, q)}, {n})" for (s, q), n in self._counts.items())
        return f"compose([{inside}])"

    @property
    def steps(self) -> int:
        """Number of mechanisms run in all."""
        return sum(self._counts.values())

    @cached_property
    def _sigma(self) -> NDArray:
        return np.array([s for s, _ in self._counts])

    @cached_property
    def _rate(self) -> NDArray:
        return np.array([q for _, q in self._counts])

    @cached_property
    def _row(self) -> NDArray:
        return np.array([list(self._counts.values())], dtype=np.int64)

    def _maker(self, direction: str) -> SpectralMaker:
        if direction not in self._makers:
            self._makers[direction] = SpectralMaker(self._sigma, self._rate, direction)
        return self._makers[direction]

    def epsilon(self, delta: float, direction: str = "both") -> Bounds:
        """Bounds of epsilon(delta).

        Parameters
        ----------
        delta : float
            In (0, 1); 1e-100 is as welcome as 1e-5.
        direction : {"both", "remove", "add"}
            Which neighbours: the record is removed, added, or the larger of the two.

        Returns
        -------
        Bounds
            Of floats, in nats; (0, inf) with a status where nothing could be certified.

        Raises
        ------
        ValueError
            For a delta outside (0, 1) or an unknown direction.

        **Error**: the true value lies between the bounds; their relative distance is typically 1e-9.
        **Cost**: a few milliseconds.

        Examples
        --------
        >>> b = compose([(Gaussian(100), 420)]).epsilon(1e-5)
        >>> round(b.estimate, 6)
        0.745138
        """
        delta = validate.delta(delta)
        return self._answer(float(np.log(delta)), direction, solve_epsilon=True)

    def delta(self, epsilon: float, direction: str = "both") -> Bounds:
        """Bounds of delta(epsilon), epsilon >= 0 and finite; otherwise as `epsilon`.

        Examples
        --------
        >>> b = compose([(SampledGaussian(2, 0.005), 10_000)]).delta(1.0)
        >>> f"{b.estimate:.4e}"
        '1.0630e-05'
        """
        return self._answer(validate.nonnegative(epsilon, "epsilon"), direction, solve_epsilon=False)

    def _answer(self, target: float, direction: str, *, solve_epsilon: bool) -> Bounds:
        first, *others = directions(direction)
        found = self._one_direction(target, first, solve_epsilon)
        for one in others:
            if not self._surely_below(found.lower, target, one, solve_epsilon):
                found = larger(found, self._one_direction(target, one, solve_epsilon))
        lower, estimate, upper = (float(np.ravel(v)[0]) for v in found)
        return Bounds(lower, estimate, upper, status=Status(int(np.ravel(found.status)[0])))

    def _surely_below(self, least: NDArray, target: float, direction: str, solve_epsilon: bool) -> bool:
        """Whether Renyi accounting alone proves that this direction's answer is below another one's."""
        if not self._counts or np.all(self._rate == 1.0):
            return False
        most = renyi_bounds(self._row, self._maker(direction), None, np.array([target]), solve_epsilon)[0]
        return bool((most if solve_epsilon else np.exp(most)) < np.ravel(least)[0])

    def _one_direction(self, target: float, direction: str, solve_epsilon: bool) -> Bounds:
        if not self._counts:
            return Bounds(0.0, 0.0, 0.0)
        if np.all(self._rate == 1.0):
            mu = self._full_batch_mu()
            if not mu < _LARGEST_MU:
                return Bounds(0.0, np.nan, np.inf, status=Status.NOT_CERTIFIED)
            return _gaussian_bounds(mu, target, solve_epsilon)
        return people_bounds(self._row, self._maker(direction), [target], direction, solve_epsilon=solve_epsilon)[0]

    def mu(self, min_delta: float = 1e-10, direction: str = "both") -> Bounds:
        """The smallest mu whose Gaussian curve lies above delta for every epsilon >= 0 with delta >= min_delta.

        Parameters
        ----------
        min_delta : float
            Down to where the curves are compared, in (0, 1).
        direction : {"both", "remove", "add"}

        Returns
        -------
        Bounds
            Of floats.

        Notes
        -----
        A description of the curve, not mu-GDP: below min_delta the subsampled Gaussian's curve leaves every small mu's.
        For mechanisms fixed beforehand it implies (epsilon, delta_Gauss(epsilon; mu) + min_delta)-DP.

        Examples
        --------
        >>> round(compose([(Gaussian(100), 420)]).mu().upper, 6)
        0.204939
        >>> round(compose([(SampledGaussian(2, 0.005), 10_000)]).mu(1e-5).upper, 3)
        0.269
        """
        min_delta = validate.delta(min_delta, "min_delta")
        wanted = directions(direction)
        if not self._counts:
            return Bounds(0.0, 0.0, 0.0)
        if np.all(self._rate == 1.0):
            mu = self._full_batch_mu()
            if gdp.delta(0.0, mu * (1.0 + 2.0**-48)) < min_delta:
                return Bounds(0.0, 0.0, 0.0)
            return Bounds(mu * (1.0 - 2.0**-48), mu, mu * (1.0 + 2.0**-48))
        above = np.zeros(1)
        for d in wanted:
            above = dominating_mu.mu_upper(self._row, self._maker(d), d, min_delta, floor=above)
        upper = float(above[0])
        if not np.isfinite(upper):
            return Bounds(0.0, np.nan, np.inf, status=Status.NOT_CERTIFIED)
        lower = max(float(dominating_mu.mu_lower(self._row, self._maker(d), d, min_delta)[0]) for d in wanted)
        return Bounds(lower, 0.5 * (lower + upper), upper)

    def _full_batch_mu(self) -> float:
        """sqrt(sum n / sigma^2), without overflow or underflow before the root."""
        with np.errstate(over="ignore"):
            parts = np.sqrt(self._row[0]) / self._sigma
        most = float(parts.max())
        return most * float(np.linalg.norm(parts / most)) if np.isfinite(most) else most

    def rdp(self, alpha: Any) -> NDArray:
        """Exact Renyi divergence of the composition at orders alpha > 1, integer or not; the larger direction.

        Examples
        --------
        >>> compose([(Gaussian(100), 420)]).rdp([2.0, 21.5]).round(6)
        array([0.042 , 0.4515])
        """
        orders = np.asarray(alpha, dtype=np.float64)
        total = np.zeros(orders.shape)
        for (sigma, rate), n in self._counts.items():
            total = total + n * renyi.rdp(orders, sigma, rate)
        return total

    def rdp_epsilon(self, delta: float) -> float:
        """The epsilon that Renyi accounting reports at `delta`, order optimised; an upper bound, looser than `epsilon`.

        Examples
        --------
        >>> round(compose([(Gaussian(100), 420)]).rdp_epsilon(1e-5), 4)
        0.8156
        """
        delta = validate.delta(delta)
        if not self._counts:
            return 0.0
        return renyi.optimal_epsilon(self._row[0], self._maker("remove"), delta)


def _gaussian_bounds(mu: float, target: float, solve_epsilon: bool) -> Bounds:
    """Full-batch steps only: the sum of squares is exact and the Gaussian closed form answers.

    mu carries a relative error of a few units; both ends are taken at mu widened by 2^-48.
    """
    widen = 2.0**-48
    if not solve_epsilon:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            logs = [gdp.log_delta(target, mu * factor) for factor in (1.0 - widen, 1.0, 1.0 + widen)]
        if np.isnan(logs).any():
            return Bounds(0.0, np.nan, np.inf, status=Status.NOT_CERTIFIED)
        if np.isneginf(logs[2]):  # (epsilon / mu)^2 overflows: delta is below the least double
            return Bounds(0.0, 0.0, float(np.nextafter(0.0, 1.0)))
        # the closed form's own error, relative to its exponent
        slack = 2.0**-46 * (1.0 + abs(logs[1]))
        low, middle, high = (float(np.exp(min(v, 0.0))) for v in (logs[0] - slack, logs[1], logs[2] + slack))
        return Bounds(float(np.nextafter(low, 0.0)), middle, min(float(np.nextafter(high, np.inf)), 1.0))
    delta = float(np.exp(target))
    upper = gdp.epsilon(delta, mu * (1.0 + widen)) * (1.0 + widen)
    lower = gdp.epsilon(delta, mu * (1.0 - widen), rounding="down") * (1.0 - widen)
    return Bounds(lower, 0.5 * (lower + upper), upper)
