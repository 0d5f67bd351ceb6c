"""`Game`: the charges of the steps and certified potentials in both directions, built once for a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..mechanisms.base import Direction
from ..threads import in_order
from .multipliers import Law, log_moments
from .norms import NORMS
from .order import best_theta, saddle_point
from .series import charges
from .supersolution import Cell, Grid, Potential, build_potential

__all__ = ["Game", "build_game"]

_DIRECTIONS: tuple[Direction, Direction] = ("remove", "add")
_COARSE = Grid(step=0.4, smoothing=1e-3)
_HALVINGS = 60


@dataclass(frozen=True)
class Game:
    """The adaptive game of steps with one noise multiplier and some sample rates.

    Attributes
    ----------
    noise_multiplier : float
    sample_rates : tuple of float
        Descending.
    theta : float
        Order minus 1 of the charges.
    unit : float
        Renyi cost K(theta) of a full-norm step at the first rate: the unit of charges and budgets.
    charges : ndarray, shape (rates, norms)
        Charge of a step at each of `norms.NORMS`, ascending, rounded up.
    potentials : tuple of Potential
        For removal and for addition.
    """

    noise_multiplier: float
    sample_rates: tuple[float, ...]
    theta: float
    unit: float
    charges: NDArray
    potentials: tuple[Potential, Potential]

    def budget(self, epsilon: float, delta: float) -> float:
        """The certified budget, in charges of full-norm steps, rounded down."""
        return min(p.budget(epsilon, delta) for p in self.potentials) * (1.0 - 1e-9)

    def log_delta(self, epsilon: float, budget: float) -> float:
        """Certified upper bound of log delta(epsilon) for every run within a budget; epsilon >= 0."""
        return min(max(p.log_delta(epsilon, budget) for p in self.potentials), 0.0)

    def epsilon(self, delta: float, budget: float) -> float:
        """Certified upper bound of epsilon(delta) for every run within a budget."""
        goal = math.log(delta)
        if self.log_delta(0.0, budget) <= goal:
            return 0.0
        high = 1.0
        while self.log_delta(high, budget) > goal:
            high *= 2.0
        low = 0.0
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.log_delta(middle, budget) > goal else (low, middle)
        return high

    def arrays(self) -> dict[str, NDArray]:
        """All of it, for a file."""
        arrays = {"charges": self.charges}
        for name, p in zip(_DIRECTIONS, self.potentials, strict=True):
            arrays[f"{name}_scalars"] = np.array([p.theta, p.kappa, p.period])
            arrays[f"{name}_drift"] = p.drift
            arrays[f"{name}_cells"] = np.array([(c.tau, c.width, c.start.size) for c in p.cells])
            arrays[f"{name}_start"] = np.concatenate([c.start for c in p.cells])
            arrays[f"{name}_extra"] = np.concatenate([c.extra for c in p.cells])
        return arrays

    @classmethod
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, NDArray]) -> Game:
        """The game of a file."""
        potentials = []
        for name in _DIRECTIONS:
            theta, kappa, period = arrays[f"{name}_scalars"].tolist()
            table = arrays[f"{name}_cells"]
            cuts = np.cumsum(table[:, 2].astype(np.int64))[:-1]
            parts = zip(
                table, np.split(arrays[f"{name}_start"], cuts), np.split(arrays[f"{name}_extra"], cuts), strict=True
            )
            cells = [Cell(float(row[0]), float(row[1]), start, extra) for row, start, extra in parts]
            potentials.append(Potential(theta, kappa, period, arrays[f"{name}_drift"], cells))
        return cls(
            float(header["noise_multiplier"]),
            tuple(header["sample_rates"]),
            float(header["theta"]),
            float(header["unit"]),
            arrays["charges"],
            (potentials[0], potentials[1]),
        )


def build_game(
    noise_multiplier: float,
    sample_rates: Sequence[float],
    targets: Sequence[tuple[float, float]],
    theta: float | None = None,
) -> Game:
    """Choose the order and build both potentials.

    Parameters
    ----------
    sample_rates : sequence of float
        Below 1.
    targets : sequence of (epsilon, delta)
        Whose budgets are wanted.  The order is chosen for the first.
    theta : float, optional
        Order minus 1 of the charges; None: the one for which full-norm steps get the largest budget.

    Raises
    ------
    ValueError
        If no budget of at least one full-norm step can be certified for some target.

    **Cost**: 2 to 20 seconds; half a second if theta is given.
    """
    rates = tuple(sorted(set(sample_rates), reverse=True))
    law = Law(noise_multiplier, rates[0], "remove", 1.0)
    guesses = [saddle_point(law, *target) for target in targets]
    steps = max(count for _, count in guesses)
    if theta is None:
        theta, steps = _choose(law, guesses[0], targets[0])
        steps *= max(count for _, count in guesses) / guesses[0][1]

    def build(direction: Direction) -> Potential:
        return build_potential(noise_multiplier, rates, theta, direction, targets, steps)

    potentials = tuple(p for _, p in in_order(build, _DIRECTIONS))
    unit = float(log_moments(law._replace(theta=theta), np.ones(1))[0])
    table = np.stack([charges(law._replace(theta=theta, sample_rate=rate), unit) for rate in rates])
    game = Game(noise_multiplier, rates, theta, unit, table, (potentials[0], potentials[1]))
    for epsilon, delta in targets:
        if not game.budget(epsilon, delta) >= 1.0:
            raise ValueError(_refusal(epsilon, delta))
    return game


def _choose(law: Law, guess: tuple[float, float], target: tuple[float, float]) -> tuple[float, float]:
    """The order minus 1, and about the number of full-norm steps."""
    found: dict[float, float] = {}
    steps = guess[1]

    def budget(theta: float) -> float:
        try:
            rough = build_potential(
                law.noise_multiplier, [law.sample_rate], theta, "remove", [target], max(steps, *found.values(), 1.0), _COARSE
            )
        except (ValueError, OverflowError):
            return 0.0
        found[theta] = rough.budget(*target)
        return found[theta]

    try:
        theta = best_theta(guess[0], budget)
    except ValueError:
        raise ValueError(_refusal(*target)) from None
    return theta, max(found.values())


def _refusal(epsilon: float, delta: float) -> str:
    return (
        f"no budget of even one full-norm step can be certified for epsilon = {epsilon!r} at delta = {delta!r}; "
        "add noise, lower the sample rate, or raise epsilon or delta"
    )
