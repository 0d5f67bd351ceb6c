"""The demonstration: a small network trained with DP-SGD on handwritten digits, and every example's own epsilon.

`train_digits` trains, `run` also records the norms and computes the epsilons, `outputs` gives the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..files.formats import require
from ..ledger import Ledger
from ..report.content import Report, gather
from ..report.figures import draw_histogram, write_figure
from ..report.html.page import page_writer
from ..report.individuals import Individuals, assess
from ..report.outputs import Writer, json_writer, table_writer
from ..report.summary import Summary, summarise
from .dp_sgd import train
from .network import Network

__all__ = [
    "DELTA",
    "SETTINGS",
    "DigitsRun",
    "announcement",
    "check_libraries",
    "outputs",
    "report",
    "run",
    "train_digits",
]

DELTA = 1e-5
_TRAINING_EXAMPLES = 1500
_NETWORK = Network((64, 64, 10))
_LEARNING_RATE = 0.5
_STEPS = 1000

# The expected batch size is 64.
SETTINGS: Mapping[str, Any] = {
    "noise_multiplier": 1.5,
    "sample_rate": 64 / _TRAINING_EXAMPLES,
    "max_grad_norm": 1.0,
}

# A function of a description and a unit; the context manager yields a function of (done, total).
Progress = Callable[[str, str], AbstractContextManager[Callable[[int, int], None]]]


@dataclass(frozen=True)
class DigitsRun:
    """The results of a training run.

    Attributes
    ----------
    norms : ndarray of shape (steps, 1500)
        The gradient norm of every training example at every step, before clipping.
    labels : ndarray of int of shape (1500,)
        The digit of each example.
    train_accuracy, test_accuracy : float
        On the 1,500 training examples and on the 297 others.  No noise is added, so they are not for release.
    individuals : Individuals
    report : Report
        The content of the HTML page.
    ledger : Ledger
    """

    norms: np.ndarray
    labels: np.ndarray
    train_accuracy: float
    test_accuracy: float
    individuals: Individuals
    report: Report
    ledger: Ledger

    @property
    def summary(self) -> Summary:
        """The summary, with the ten digits as groups."""
        return summarise(self.individuals)


def _quiet(description: str, unit: str) -> AbstractContextManager[Callable[[int, int], None]]:
    return nullcontext(lambda done, total: None)


def check_libraries() -> None:
    """Raise `formats.ReadError`, with the extra to install, if a library of the demonstration is missing."""
    require("sklearn", "demo", "the demo")
    require("pyarrow", "demo", "the demo")


def announcement(steps: int) -> str:
    """The sentence that the terminal shows before the training."""
    return (
        f"Training a network of {_NETWORK.num_parameters:,} parameters with DP-SGD for {steps:,} steps\n"
        f"on {_TRAINING_EXAMPLES:,} of scikit-learn's handwritten digits."
    )


def report(done: DigitsRun) -> str:
    """The results as text for the terminal."""
    here, there = (f"{100 * accuracy:.1f} %" for accuracy in (done.train_accuracy, done.test_accuracy))
    return f"The network reads {here} of them correctly, and {there} of 297 others.\n\n{done.summary.text()}"


def train_digits(
    seed: int,
    steps: int,
    on_step: Callable[[int, np.ndarray], None],
) -> tuple[np.ndarray, float, float]:
    """Train on 1,500 of scikit-learn's 1,797 digits.

    Returns
    -------
    labels : ndarray of int of shape (1500,)
    train_accuracy, test_accuracy : float
        On the training examples and on the 297 others.
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    shuffle, start, training = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
    order = shuffle.permutation(len(labels))
    x, y = images[order] / 16, labels[order]
    here, there = slice(None, _TRAINING_EXAMPLES), slice(_TRAINING_EXAMPLES, None)
    parameters = train(
        lambda theta: _NETWORK.example_gradients(theta, x[here], y[here]),
        _NETWORK.initial(start),
        steps=steps,
        learning_rate=_LEARNING_RATE,
        rng=training,
        on_step=on_step,
        **SETTINGS,
    )
    return y[here], *(_NETWORK.accuracy(parameters, x[part], y[part]) for part in (here, there))


def run(seed: int = 0, steps: int = _STEPS, progress: Progress = _quiet) -> DigitsRun:
    """Train, record every norm, and compute every example's epsilon at delta = 1e-5.

    Parameters
    ----------
    seed : int
        Equal seeds give equal runs on one machine.
    progress : callable, optional
        Makes progress bars.
    """
    ledger = Ledger(_TRAINING_EXAMPLES, **SETTINGS)
    norms = np.empty((steps, _TRAINING_EXAMPLES))
    with progress("Training", "steps") as show:

        def on_step(step: int, found: np.ndarray) -> None:
            norms[step] = found
            ledger.record(found)
            show(step + 1, steps)

        labels, train_accuracy, test_accuracy = train_digits(seed, steps, on_step)
    with progress("Accounting", "people") as show:  # the digits are public, so nothing is hidden
        individuals = assess(ledger, DELTA, labels=labels, parameters=SETTINGS, min_group=1, progress=show)
    with progress("Further deltas", "people") as show:
        gathered = gather(ledger, individuals, progress=show)
    return DigitsRun(norms, labels, train_accuracy, test_accuracy, individuals, gathered, ledger)


def facts(done: DigitsRun) -> dict[str, Any]:
    """The summary of a run for JSON."""
    return {
        **done.summary.as_dict(),
        "train_accuracy": done.train_accuracy,
        "test_accuracy": done.test_accuracy,
    }


def outputs(done: DigitsRun, folder: Path) -> dict[Path, Writer]:
    """The output files of a run, each with its writer."""
    summary = facts(done)
    figure = draw_histogram(done.individuals)
    return {
        folder / "epsilon.parquet": table_writer(done.individuals, ".parquet", summary),
        folder / "norms.npy": lambda file: np.save(file, done.norms),
        folder / "labels.npy": lambda file: np.save(file, done.labels),
        folder / "histogram.png": lambda file: write_figure(figure, file, ".png"),
        folder / "histogram.pdf": lambda file: write_figure(figure, file, ".pdf"),
        folder / "summary.json": json_writer(summary),
        folder / "ledger.npz": done.ledger.save,
        folder / "report.html": page_writer(done.report, "Individual privacy loss: handwritten digits"),
    }
