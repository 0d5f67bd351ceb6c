"""DP-SGD runs whose gradient norms the figures account for; kept in the work folder, resumed where they stopped."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import common
import numpy as np
from datasets import Data

import pld_accountant as pa
from pld_accountant.demo.dp_sgd import train, train_watched
from pld_accountant.demo.network import Network
from pld_accountant.files import store

__all__ = ["ADULT", "FASHION", "MNIST", "Run", "Settings", "run", "watch"]

_CHUNK = 250  # steps between two checkpoints


@dataclass(frozen=True)
class Settings:
    """A run of DP-SGD: 50 epochs of batches of 300 where nothing else is said."""

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
        """The part of the settings that privacy depends on, besides the number of steps."""
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
    """What is left of a run.

    Attributes
    ----------
    ledger : Ledger
        All training examples' norms at every step.
    watched : ndarray of int, shape (watched,)
        Examples drawn at random whose norms were kept one by one.
    log : ndarray of float32, shape (steps, watched)
    accuracy : float
        On the test examples.
    """

    ledger: pa.Ledger
    watched: np.ndarray
    log: np.ndarray
    accuracy: float


def run(settings: Settings, data: Data, work: Path) -> Run:
    """Train, or go on training, or read what was trained.

    Each step computes the gradient norm of *every* training example.  They are of single precision, with an
    error of about 1e-6 relative that the bounds do not cover.
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
    """The watched examples, their log of norms and the accuracy, of a run that computes no other norms but those
    of the sampled: a minute instead of half an hour, and the same training but for the rounding of sums."""
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
    """Network, parameters, watched examples and the generator of the training."""
    network = Network((data.x.shape[1], *settings.hidden, len(data.classes)))
    start, choice, rng = (np.random.default_rng(s) for s in np.random.SeedSequence(settings.seed).spawn(3))
    watched = np.sort(choice.choice(len(data.y), settings.watched, replace=False))
    return network, network.initial(start).astype(np.float32), watched, rng


@dataclass
class _State:
    """Everything that a run needs to go on."""

    theta: np.ndarray
    ledger: pa.Ledger
    log: np.ndarray
    step: int = 0

    def keep(self, folder: Path, settings: Settings, rng: np.random.Generator) -> None:
        """The ledger goes first, under the step's name: a checkpoint always finds the ledger that belongs to it."""
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
