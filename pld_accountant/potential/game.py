"""`Game`: the charges of the steps and certified potentials in both directions, built once for a run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..files.saved_state import SavedArrays
from ..mechanisms.base import Direction
from ..threads import in_order
from .multipliers import Law, log_moments
from .norms import NORMS
from .order import Guess, best_theta, saddle_point
from .series import ChargeTable
from .supersolution import LARGEST_GROWTH, Cell, Grid, Potential, build_potential

__all__ = ["Game", "Run", "build_game"]

_DIRECTIONS: tuple[Direction, Direction] = ("remove", "add")
_COARSE = Grid(step=0.4, smoothing=1e-3, share=0.004, frequencies=1024, points=6, norms=4)
_MARGIN = 1e-9
"""Taken off every budget.  A filter's last step may exceed its budget by 1e-12 of it, see `kernels.charge`."""

_HALVINGS = 60


class Run(NamedTuple):
    """The facts that are fixed before a run.

    Attributes
    ----------
    noise_multiplier : float
        The smallest of the run.
    sample_rates : tuple of float
        All that steps may have, descending, below 1.
    targets : tuple of (epsilon, delta)
        Whose budgets are wanted, for different people.
    theta : float or None
        Order minus 1 of the charges; None: about the one with the largest budget for the first target.
    """

    noise_multiplier: float
    sample_rates: tuple[float, ...]
    targets: tuple[tuple[float, float], ...]
    theta: float | None = None

    def laws(self, direction: Direction, theta: float) -> list[Law]:
        """One for each sample rate."""
        return [Law(self.noise_multiplier, rate, direction, theta) for rate in self.sample_rates]


class Game(NamedTuple):
    """The adaptive game of a run.

    Attributes
    ----------
    run : Run
    theta : float
        Order minus 1 of the charges.
    charges : ChargeTable
    potentials : tuple of Potential
        For removal and for addition.
    """

    run: Run
    theta: float
    charges: ChargeTable
    potentials: tuple[Potential, Potential]

    def budget(self, epsilon: float, delta: float) -> float:
        """The certified budget, in charges of full-norm steps, rounded down."""
        return min(p.budget(epsilon, delta) for p in self.potentials) * (1.0 - _MARGIN)

    def log_delta(self, epsilon: float, budget: float) -> float:
        """Certified upper bound of log delta(epsilon) for every run within a budget; epsilon >= 0."""
        return min(max(p.log_delta(epsilon, budget) for p in self.potentials), 0.0)

    def epsilon(self, delta: float, budget: float) -> float:
        """Certified upper bound of epsilon(delta) for every run within a budget."""
        goal = math.log(delta)
        budget /= 1.0 - _MARGIN
        if self.log_delta(0.0, budget) <= goal:
            return 0.0
        low, high = 0.0, 1.0
        while not self.log_delta(high, budget) <= goal:
            low, high = high, 2.0 * high
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.log_delta(middle, budget) <= goal else (middle, high)
        return high

    def header(self) -> dict[str, Any]:
        """The numbers of a file."""
        return {"run": self.run._asdict(), "theta": self.theta, "unit": self.charges.unit}

    def arrays(self) -> dict[str, NDArray]:
        """The arrays of a file."""
        arrays = {"charges": self.charges.table}
        for name, p in zip(_DIRECTIONS, self.potentials, strict=True):
            arrays[f"{name}_scalars"] = np.array([p.kappa, p.period])
            arrays[f"{name}_drift"] = p.drift.view(np.float64)
            arrays[f"{name}_cells"] = np.array([(c.tau, c.width, c.start.size) for c in p.cells])
            arrays[f"{name}_start"] = np.concatenate([c.start for c in p.cells]).view(np.float64)
            arrays[f"{name}_extra"] = np.concatenate([c.extra for c in p.cells]).view(np.float64)
        return arrays

    @classmethod
    def from_file(cls, run: Run, header: dict[str, Any], arrays: dict[str, NDArray]) -> Game:
        """The game of a file; raise an error if it is not of this run, or cannot be one."""
        if header["run"] != json.loads(json.dumps(run._asdict())):  # tuples are lists there
            raise ValueError("it is of another run")
        theta, saved = float(header["theta"]), SavedArrays(arrays)
        shape = (len(run.sample_rates), NORMS.size)
        table = saved.take("charges", float, shape, least=1e-300)
        charges = ChargeTable(float(header["unit"]), run.sample_rates, table)
        potentials = []
        for name in _DIRECTIONS:
            kappa, period = saved.take(f"{name}_scalars", float, (2,), least=1e-300).tolist()
            places = saved.take(f"{name}_cells", float, (None, 3), least=0.0)
            sizes = places[:, 2].astype(np.int64)
            numbers = 2 * int(sizes.sum())
            kept = {
                part: saved.take(f"{name}_{part}", float, (size,)).view(np.complex128)
                for part, size in (("drift", None), ("start", numbers), ("extra", numbers))
            }
            if sizes.max() > kept["drift"].size or sizes.min() < 2:
                raise ValueError("a cell has a wrong number of frequencies")
            ends = places[:, 0] + places[:, 1]
            if places[0, 0] != 0.0 or np.any(places[1:, 0] != ends[:-1]) or np.any(places[:, 1] < table.max()):
                raise ValueError("the cells do not follow each other, or are narrower than a charge")
            cuts = np.cumsum(sizes)[:-1]
            parts = zip(places.tolist(), np.split(kept["start"], cuts), np.split(kept["extra"], cuts), strict=True)
            cells = [Cell(tau, width, start, extra) for (tau, width, _), start, extra in parts]
            potentials.append(Potential(theta, kappa, period, kept["drift"], cells))
        saved.finish()
        return cls(run, theta, charges, (potentials[0], potentials[1]))


def build_game(run: Run, report: Callable[[float], None] | None = None) -> Game:
    """Choose the order and build both potentials.

    Parameters
    ----------
    report : callable, optional
        Called from several threads with the part of the work that is done, about.

    Raises
    ------
    ValueError
        If no budget of at least one full-norm step can be certified for some target.

    **Cost**: 2 to 60 seconds, half of it for the order.
    """
    report = report or _silent
    law = run.laws("remove", 1.0)[0]
    guesses = [saddle_point(law, *target) for target in run.targets]
    steps, theta = max(guess.steps for guess in guesses), run.theta
    if theta is None:
        theta, found = _choose(run, guesses[0], report)
        steps = found * max(1.0, steps / max(guesses[0].steps, 1.0))
    laws = {direction: run.laws(direction, theta) for direction in _DIRECTIONS}
    if not max(float(log_moments(law, np.ones(1))[0]) for law in laws["remove"]) < LARGEST_GROWTH:
        raise ValueError(f"alpha = {1.0 + theta:g} is too large for these steps; choose a smaller order")
    charges = ChargeTable.make(laws["remove"])

    def build(direction: Direction) -> Potential:
        def progress(tau: float) -> None:
            report(0.5 + 0.5 * min(math.log1p(tau) / math.log1p(max(steps, 1.0)), 0.99))

        return build_potential(laws[direction], charges, run.targets, steps, report=progress)

    potentials = [p for _, p in in_order(build, _DIRECTIONS)]
    game = Game(run, theta, charges, (potentials[0], potentials[1]))
    for target in run.targets:
        if not game.budget(*target) >= 1.0:
            raise ValueError(_refusal(*target))
    return game


def _silent(_part: float) -> None:
    """Report to nobody."""


def _choose(run: Run, guess: Guess, report: Callable[[float], None]) -> tuple[float, float]:
    """The order minus 1, and about the number of full-norm steps."""
    found: dict[float, float] = {}

    def budget(theta: float) -> float:
        report(0.5 * len(found) / (len(found) + 4))
        laws = run.laws("remove", theta)[:1]
        steps = max(guess.steps, *found.values(), 1.0)
        try:
            rough = build_potential(laws, ChargeTable.make(laws), run.targets[:1], steps, _COARSE)
            found[theta] = rough.budget(*run.targets[0])
        except (ValueError, ArithmeticError):
            found[theta] = 0.0
        return found[theta]

    theta = best_theta(guess, budget)
    if theta is None:
        raise ValueError(_refusal(*run.targets[0]))
    return theta, max(found.values())


def _refusal(epsilon: float, delta: float) -> str:
    return (
        f"no budget of even one full-norm step can be certified for epsilon = {epsilon!r} at delta = {delta!r}; "
        "add noise, lower the sample rate, or raise epsilon or delta"
    )
