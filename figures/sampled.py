"""DP-SGD runs whose gradient norms the figures account for.  The work folder keeps them; `run` resumes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import common
import numpy as np
from datasets import Data

import pld_accountant as pa
from pld_accountant.demo.dp_sgd import Gradients, clipping_factors, train
from pld_accountant.demo.network import Network
from pld_accountant.files import store

__all__ = ["ADULT", "FASHION", "MNIST", "Run", "Settings", "run", "train_watched", "watch"]

_CHUNK = 250  # steps between two checkpoints


@dataclass(frozen=True)
class Settings:
    """The settings of a DP-SGD run; by default 50 epochs of batches of 300."""

    data: str
    hidden: tuple[int, ...]
    learning_rate: float
    steps: int = 10_000
    sample_rate: float = 0.005
    noise_multiplier: float = 2.0
    max_grad_norm: float = 5.0
    watched: int = 1_000
    seed: int = 0

    @property
    def accounting(self) -> dict[str, float]:
        """The settings that privacy depends on, without the number of steps."""
        return {
            "noise_multiplier": self.noise_multiplier,
            "sample_rate": self.sample_rate,
            "max_grad_norm": self.max_grad_norm,
        }


# Koskela et al., Figure 1: noise 2, clipping norm 5, rate 300 / 60,000.
MNIST = Settings("mnist", (64,), learning_rate=0.05)
FASHION = Settings("fashion-mnist", (64,), learning_rate=0.05)
ADULT = Settings("adult", (16,), learning_rate=0.05, max_grad_norm=2.0)


@dataclass(frozen=True)
class Run:
    """The results of a run.

    Attributes
    ----------
    ledger : Ledger
        All training examples' norms at every step.
    watched : ndarray of int, shape (watched,)
        Examples drawn at random, whose norms the log keeps.
    log : ndarray of float32, shape (steps, watched)
    accuracy : float
        On the test examples.
    """

    ledger: pa.Ledger
    watched: np.ndarray
    log: np.ndarray
    accuracy: float


def run(settings: Settings, data: Data, work: Path) -> Run:
    """Train, resume a training, or read a finished one.

    Each step computes the gradient norm of *every* training example in single precision.  The bounds do not cover the
    rounding error of the norms, about 1e-6 relative.
    """
    network, start, watched, rng = _begin(settings, data)
    state = _State(
        theta=start,
        ledger=pa.Ledger(len(data.y), **settings.accounting),
        log=np.zeros((settings.steps, settings.watched), dtype=np.float32),
    )
    folder = work / f"{settings.data}-sampled"
    folder.mkdir(exist_ok=True)
    state.restore(folder, settings, rng)
    while state.step < settings.steps:

        def on_step(step: int, norms: np.ndarray, begun: int = state.step) -> None:
            state.ledger.record(norms)
            state.log[begun + step] = norms[watched]

        chunk = min(_CHUNK, settings.steps - state.step)
        state.theta = train(
            lambda theta: network.example_gradients(theta, data.x, data.y),
            state.theta,
            steps=chunk,
            learning_rate=settings.learning_rate,
            rng=rng,
            on_step=on_step,
            **settings.accounting,
        )
        state.step += chunk
        state.keep(folder, settings, rng)
        print(f"{settings.data}: {state.step:,} of {settings.steps:,} steps", flush=True)
    return Run(state.ledger, watched, state.log, network.accuracy(state.theta, data.x_test, data.y_test))


def watch(settings: Settings, data: Data, work: Path) -> tuple[np.ndarray, np.ndarray, float]:
    """The watched examples, their log of norms and the accuracy, of a run by `train_watched`.

    The training is that of `run` up to the rounding of sums.  It takes a minute instead of half an hour.
    """
    network, start, watched, rng = _begin(settings, data)

    def make() -> dict[str, Any]:
        log = np.zeros((settings.steps, settings.watched), dtype=np.float32)
        theta = train_watched(
            lambda theta, rows: network.example_gradients(theta, data.x[rows], data.y[rows]),
            start,
            watched,
            num_examples=len(data.y),
            steps=settings.steps,
            learning_rate=settings.learning_rate,
            rng=rng,
            on_step=log.__setitem__,
            **settings.accounting,
        )
        return {"log": log, "accuracy": network.accuracy(theta, data.x_test, data.y_test)}

    done = common.stage(work / f"{settings.data}-watched.npz", asdict(settings), make)
    return watched, done["log"], float(done["accuracy"])


def _begin(settings: Settings, data: Data) -> tuple[Network, np.ndarray, np.ndarray, np.random.Generator]:
    """The network, its parameters, the watched examples and the random generator of the training."""
    network = Network((data.x.shape[1], *settings.hidden, len(data.classes)))
    start, choice, rng = (np.random.default_rng(s) for s in np.random.SeedSequence(settings.seed).spawn(3))
    watched = np.sort(choice.choice(len(data.y), settings.watched, replace=False))
    return network, network.initial(start).astype(np.float32), watched, rng


def train_watched(
    gradients: Callable[[np.ndarray, np.ndarray], Gradients],
    parameters: np.ndarray,
    watched: np.ndarray,
    *,
    num_examples: int,
    steps: int,
    sample_rate: float,
    noise_multiplier: float,
    max_grad_norm: float,
    learning_rate: float,
    rng: np.random.Generator,
    on_step: Callable[[int, np.ndarray], None],
) -> np.ndarray:
    """Run DP-SGD as `train`, but compute gradients of the watched and of the sampled examples only.

    Parameters
    ----------
    gradients : callable
        From parameters and ascending row numbers to the gradients of these examples.
    watched : ndarray of int
        Ascending row numbers without repeats, chosen without regard to the data.
    num_examples : int
        Number of examples; public.
    on_step : callable
        As in `train`, with the norms of the watched examples only, shape (len(watched),).

    Returns
    -------
    ndarray
        The parameters that `train` returns with the same `rng`, up to the rounding of sums.

    Notes
    -----
    The recorded norms bound the losses of the watched examples, and of no others.
    """
    deviation = noise_multiplier * max_grad_norm
    theta = np.asarray(parameters)
    for step in range(steps):
        sampled = np.flatnonzero(rng.random(num_examples) < sample_rate)
        rows = np.union1d(sampled, watched)
        found = gradients(theta, rows)
        norms = found.norms
        on_step(step, norms[np.searchsorted(rows, watched)])
        taken = np.isin(rows, sampled, assume_unique=True)
        total = found.weighted_sum(taken * clipping_factors(norms, max_grad_norm))
        noisy = total + rng.normal(0.0, deviation, theta.shape)
        theta = theta - (learning_rate / (sample_rate * num_examples) * noisy).astype(theta.dtype)
    return theta


@dataclass
class _State:
    """The state from which a run is resumed."""

    theta: np.ndarray
    ledger: pa.Ledger
    log: np.ndarray
    step: int = 0

    def keep(self, folder: Path, settings: Settings, rng: np.random.Generator) -> None:
        """Save the ledger first, under the step's number, so that every checkpoint finds its own ledger."""
        old = sorted(folder.glob("ledger-*.npz"))
        self.ledger.save(folder / f"ledger-{self.step}.npz")
        header = {"settings": _as_json(settings), "step": self.step, "rng": rng.bit_generator.state}
        store.save(folder / "checkpoint.npz", "training run", 1, header, {"theta": self.theta, "log": self.log})
        for path in old:
            path.unlink()

    def restore(self, folder: Path, settings: Settings, rng: np.random.Generator) -> None:
        try:
            header, arrays = store.load(folder / "checkpoint.npz", "training run", 1)
            if header["settings"] != _as_json(settings):
                return
            self.ledger = pa.Ledger.load(folder / f"ledger-{header['step']}.npz")
        except (FileNotFoundError, store.StoreError):
            return
        self.theta, self.log, self.step = arrays["theta"], arrays["log"], header["step"]
        rng.bit_generator.state = header["rng"]


def _as_json(settings: Settings) -> Any:
    return json.loads(json.dumps(asdict(settings)))
