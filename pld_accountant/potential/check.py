"""Checks of a potential at single points, by quadrature of its definition: no characteristic function, no series."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .game import Game
from .multipliers import Law
from .norms import NORMS
from .supersolution import Potential

__all__ = ["is_supersolution", "step_excess"]

_REACH = 13.0  # standard deviations
_FEWEST = 0.08  # standard deviations between two nodes, at most
_TOLERANCE = 1e-10
_SOME = 0.35  # of the period: how far from 0 losses are tried


def potential_at(p: Potential, tau: float, y: NDArray) -> NDArray:
    """V(tau, y) at some losses less epsilon."""
    c = p.coefficients(tau)
    waves = np.exp(1j * np.multiply.outer(y, 2.0 * np.pi / p.period * np.arange(1, c.size)))
    return np.exp(p.theta * y + p.kappa * tau) * (c[0].real + 2.0 * (waves @ c[1:]).real)


def step_excess(p: Potential, law: Law, charge: float, norm: float, tau: float, y: float) -> float:
    """The excess of the mean of V after a step over V before it, relative to V, less the precision of both.

    At most 0 if the inequality holds.
    """
    c = p.coefficients(tau - charge)
    slope = norm / law.noise_multiplier
    highest = 2.0 * np.pi / p.period * c.size
    gap = min(_FEWEST, 1.0 / (highest * slope))
    u = np.arange(-_REACH, _REACH + (2.0 + p.theta) * slope, gap)
    loss = np.logaddexp(np.log1p(-law.sample_rate), np.log(law.sample_rate) + slope * u - 0.5 * slope**2)
    weight = np.exp(-0.5 * u**2) * gap / np.sqrt(2.0 * np.pi)
    if law.direction == "remove":
        weight *= np.exp(loss)
    else:
        loss = -loss
    after = float(weight @ potential_at(p, tau - charge, y + loss))
    before = float(potential_at(p, tau, np.array([y]))[0])
    scale = np.exp(p.theta * y + p.kappa * tau) * np.abs(c).sum()
    return (after - before) / before - _TOLERANCE * (1.0 + scale / before)


def is_supersolution(game: Game, rng: np.random.Generator, points: int) -> bool:
    """Whether the inequalities hold at random budgets, losses and norms, for both directions and all sample rates.

    Losses are drawn one from each of `points` equal intervals, because a charge that is too small shows at low losses
    only; every other one is tried with the largest norm.
    """
    for p, direction in zip(game.potentials, ("remove", "add"), strict=True):
        y = p.period * _SOME * (2.0 * (np.arange(points) + rng.random(points)) / points - 1.0)
        if not np.all(potential_at(p, 0.0, y) >= -np.expm1(-y)):
            return False
        for law in game.run.laws(direction, game.theta):  # type: ignore[arg-type]
            table = game.charges.of(law)
            for count, one in enumerate(y.tolist()):
                place = int(rng.integers(NORMS.size)) if count % 2 else NORMS.size - 1
                tau = float(rng.uniform(table[place], p.end))
                if not step_excess(p, law, table[place], float(NORMS[place]), tau, one) <= 0.0:
                    return False
    return True
