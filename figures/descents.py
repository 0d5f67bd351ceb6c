"""Full-batch private gradient descent under a filter, with notes between steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from datasets import Data

import pld_accountant as pa
from pld_accountant.demo.network import Network

__all__ = ["Descent"]


class Descent:
    """A descent in pieces, with a note after each piece.

    Parameters
    ----------
    keep : GaussianFilter or RenyiFilter
    look : callable
        From parameters (single precision) and filter to a note: names and values.
    step : int
        Steps already taken.
    every : int
        Steps between two notes.
    """

    def __init__(
        self,
        network: Network,
        data: Data,
        keep: Any,
        learning_rate: float,
        look: Callable[[np.ndarray, Any], dict[str, Any]],
        *,
        step: int = 0,
        every: int = 5,
    ) -> None:
        self._network, self._data, self._keep, self._rate = network, data, keep, learning_rate
        self._look, self._step, self._every = look, step, every
        self._notes: list[dict[str, Any]] = []

    def notes(self) -> dict[str, np.ndarray]:
        """The step and the values of all notes, an array for each name."""
        return {name: np.array([note[name] for note in self._notes]) for name in self._notes[0]}

    def look(self, theta: np.ndarray) -> None:
        """Add a note."""
        self._notes.append({"steps": self._step, **self._look(theta.astype(np.float32), self._keep)})

    def run(self, theta: np.ndarray, last: int, rng: np.random.Generator, beside: Any = None) -> np.ndarray:
        """Run to step `last`; the second filter `beside` books the same steps, which must fit its budgets."""

        def gradient(at: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
            found = self._network.example_gradients(at.astype(np.float32), self._data.x, self._data.y)
            norms = found.norms
            if beside is not None and not beside.admit(norms).all():
                raise RuntimeError("the second filter refused a step")
            return norms, lambda weights: found.weighted_sum(weights.astype(np.float32))

        while self._step < last:
            piece = min(self._every - self._step % self._every, last - self._step)
            done = pa.descend(gradient, theta, self._keep, learning_rate=self._rate, steps=piece, rng=rng)
            theta = done.parameters
            self._step += piece
            self.look(theta)
        return theta
