"""What individual accounting costs in training: MNIST under Opacus on the CPU; writes results/training.json.

Run it from the repository's root: ``python benchmarks/training.py --data FOLDER`` with the four ``.gz`` files of MNIST.
It needs the extra ``opacus``, and trains a network 784-64-10 ten times, most of the runs for 10,000
steps: a quarter of an hour.

Every run reports wall and processor seconds of the training loop alone.  ``plain`` is Opacus without this package.
``exact`` is the certified epsilon from the norms of 500 people at every step (mode ``watched``).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gzip
import json
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pld_accountant.training.opacus import IndividualAccounting

NOISE, CLIP, BATCH, EPOCHS, DELTA, RATE = 2.0, 5.0, 300, 50, 1e-5, 0.05
SEEDS = (0, 1, 2)
WATCHED = 500
# name: options of the accounting, seeds, how Opacus computes gradients, epochs
RUNS: dict[str, tuple[dict[str, Any] | None, tuple[int, ...], str, int]] = {
    "plain": (None, SEEDS, "ghost", EPOCHS),
    "caps": ({"mode": "caps"}, SEEDS, "ghost", EPOCHS),
    "watched": ({"mode": "watched", "watched": WATCHED, "seed": 0}, (0,), "ghost", EPOCHS),
    "observed": ({"mode": "observed"}, (0,), "ghost", EPOCHS),
    "plain, hooks": (None, (0,), "hooks", 10),
    "caps, hooks": ({"mode": "caps"}, (0,), "hooks", 10),
}
HERE = Path(__file__).parent


def keep_memory() -> None:
    """Let the C library keep freed memory: else most of a step is spent on fetching the same pages anew."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
        mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD


def read(path: Path, offset: int) -> np.ndarray:
    """The bytes of a file in the format IDX behind its header."""
    return np.frombuffer(gzip.decompress(path.read_bytes()), dtype=np.uint8, offset=offset)


def mnist(folder: Path) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Pixels in 0 to 1 and labels of the training and the test set."""
    parts = {}
    for name in ("train", "t10k"):
        pixels = read(folder / f"{name}-images-idx3-ubyte.gz", 16).reshape(-1, 784).astype(np.float32) / 255
        labels = read(folder / f"{name}-labels-idx1-ubyte.gz", 8).astype(np.int64)
        parts[name] = torch.from_numpy(pixels), torch.from_numpy(labels)
    return parts


def train(
    data: Any, options: dict[str, Any] | None, seed: int, epochs: int, gradients: str = "ghost"
) -> dict[str, Any]:
    """One run: its times, its accuracy and, unless it is plain, everybody's epsilon."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    loader, criterion = DataLoader(TensorDataset(*data["train"]), batch_size=BATCH), nn.CrossEntropyLoss()
    engine = PrivacyEngine(accountant="pld")
    model, optimizer, *wrapped, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        criterion=criterion,
        data_loader=loader,
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        grad_sample_mode=gradients,
    )
    criterion = wrapped[0] if wrapped else criterion
    individual = None
    if options is not None:
        individual = IndividualAccounting(model, optimizer, loader, criterion, **options)
        loader = individual.loader
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    with torch.no_grad():
        x, y = data["t10k"]
        accuracy = float((model(x).argmax(1) == y).float().mean())
    found = {
        "seed": seed,
        "steps": len(engine.accountant),
        "seconds": wall,
        "processor_seconds": processor,
        "accuracy": accuracy,
        "worst_case": engine.get_epsilon(DELTA),
    }
    if individual is not None:
        start = time.perf_counter()
        estimated = individual.mode == "observed"
        epsilon = individual.estimate(DELTA) if estimated else individual.epsilon(DELTA).upper
        found |= {"median": float(np.median(epsilon)), "seconds_of_epsilon": time.perf_counter() - start}
        found |= {"people": individual.people, "epsilon": epsilon, "guarantee": individual.guarantee.kind}
    return found


def ratio(runs: list[dict[str, Any]], plain: list[dict[str, Any]], name: str) -> float:
    """The median over the seeds of a time over that of the plain run."""
    return float(np.median([one[name] / other[name] for one, other in zip(runs, plain, strict=False)]))


def main() -> None:
    """Train, print the table, write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "training.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    keep_memory()
    data = mnist(options.data)
    runs: dict[str, list[dict[str, Any]]] = {}
    # the runs of one seed follow each other, so that all modes meet the same load of the machine
    for seed in SEEDS:
        for name, (mode, seeds, gradients, epochs) in RUNS.items():
            if seed in seeds:
                one = train(data, mode, seed, min(epochs, options.epochs), gradients)
                runs.setdefault(name, []).append(one)
                print(f"{name:16} seed {seed}: {one['seconds']:6.1f} s, accuracy {one['accuracy']:.4f}", flush=True)
    people = runs["watched"][0]["people"]
    whole = {name: found[0] for name, found in runs.items() if found[0]["steps"] == runs["plain"][0]["steps"]}
    same = {name: found["epsilon"] for name, found in whole.items() if "epsilon" in found}
    pictured = {name: [round(float(v), 6) for v in (e if name == "watched" else e[people])] for name, e in same.items()}
    exact = float(np.median(pictured["watched"]))
    table = []
    for name, found in runs.items():
        steps = found[0]["steps"]
        plain = runs["plain, hooks" if name.endswith("hooks") else "plain"]
        row = {
            "run": name,
            "steps": steps,
            "milliseconds_a_step": 1e3 * float(np.median([one["seconds"] / steps for one in found])),
            "processor_milliseconds_a_step": 1e3
            * float(np.median([one["processor_seconds"] / steps for one in found])),
            "times_plain": ratio(found, plain, "seconds"),
            "processor_times_plain": ratio(found, plain, "processor_seconds"),
            "accuracy": float(np.mean([one["accuracy"] for one in found])),
            "accuracies": [one["accuracy"] for one in found],
        }
        if name in pictured:
            row["median"] = float(np.median(found[0]["epsilon"]))
            row["median_of_watched_people"] = float(np.median(pictured[name]))
            row["over_exact"] = row["median_of_watched_people"] / exact - 1
            row["guarantee"] = found[0]["guarantee"]
        table.append(row)
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})
    results = {
        "machine": {"processors": platform.processor() or platform.machine(), "threads": options.threads},
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "run": {"noise_multiplier": NOISE, "max_grad_norm": CLIP, "sample_rate": 1 / 200, "delta": DELTA},
        "steps": runs["plain"][0]["steps"],
        "worst_case": runs["plain"][0]["worst_case"],
        "exact_median": exact,
        "table": table,
        "people": pictured,
    }
    options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
