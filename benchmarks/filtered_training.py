"""What proven filters are worth in training: MNIST at one epsilon for everybody; writes results/filtered_training.json.

Run it from the repository's root: ``python benchmarks/filtered_training.py --data FOLDER`` with the four ``.gz`` files
of MNIST.  It needs the extra ``opacus`` and trains a network 784-64-10 with two clipping norms and three seeds: ten
minutes on one core.

Every run is (epsilon, delta)-DP for everybody.  ``no filter`` is plain DP-SGD: everybody is clipped at max_grad_norm,
and all steps are taken that the worst case allows.  A filter charges everybody with the caps of mode ``caps``, and the
run goes on to twice as many steps; whoever has spent the budget contributes nothing more.  Accuracy is that on the test
set, without noise.  The looks are at steps that are fixed beforehand; `best` picks one afterwards, and the learning
rates were chosen for plain DP-SGD.
"""

from __future__ import annotations

import argparse
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
from training import BATCH, DELTA, HERE, NOISE, SEEDS, keep_memory, mnist

import pld_accountant as pa
from pld_accountant.training.opacus import IndividualAccounting

EPSILON = 0.3
SAMPLE_RATE = BATCH / 60_000
CLIPS = {5.0: 0.05, 15.0: 0.02}  # clipping norm: learning rate
LOOKS = (0.5, 1.0, 1.25, 1.5, 2.0)  # over the steps that the worst case allows
STEP = {"noise_multiplier": NOISE, "sample_rate": SAMPLE_RATE}


def filter_of(name: str, people: int, clip: float) -> Any:
    """A filter that keeps everybody within EPSILON, or None."""
    if name == "no filter":
        return None
    make = pa.RenyiFilter.for_epsilon if name == "RenyiFilter" else pa.PotentialFilter
    return make(EPSILON, DELTA, num_examples=people, max_grad_norm=clip, **STEP)


def train(data: Any, name: str, looks: list[int], clip: float, seed: int) -> dict[str, Any]:
    """Accuracy and the share of people with budget left after some numbers of steps."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    engine = PrivacyEngine(accountant="pld")
    model, optimizer, criterion, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), CLIPS[clip]),
        criterion=nn.CrossEntropyLoss(),
        data_loader=DataLoader(TensorDataset(*data["train"]), batch_size=BATCH),
        noise_multiplier=NOISE,
        max_grad_norm=clip,
        grad_sample_mode="ghost",
    )
    x, y = data["t10k"]
    keep, individual = filter_of(name, len(data["train"][0]), clip), None
    if keep is not None:
        individual = IndividualAccounting(model, optimizer, loader, criterion, keep=keep)
        loader = individual.loader
    found: dict[str, Any] = {"accuracy": [], "taking part": []}
    steps, start = 0, time.perf_counter()
    while steps < looks[-1]:
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()
            steps += 1
            if steps in looks:
                with torch.no_grad():
                    found["accuracy"].append(float((model(x).argmax(1) == y).float().mean()))
                found["taking part"].append(1.0 if individual is None else float(individual.taking_part.mean()))
            if steps == looks[-1]:
                break
    found["seconds"] = time.perf_counter() - start
    if individual is not None:
        largest = float(individual.epsilon(DELTA).upper.max())
        assert largest <= EPSILON, largest
        found["largest epsilon"] = largest
    return found


def main() -> None:
    """Train, print the table, write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "filtered_training.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    keep_memory()
    data = mnist(options.data)
    worst = int(pa.calibrate_steps(EPSILON, DELTA, noise_multiplier=NOISE, sample_rate=SAMPLE_RATE))
    looks = [round(part * worst) for part in LOOKS]
    table = []
    for clip, rate in CLIPS.items():
        for name in ("no filter", "RenyiFilter", "PotentialFilter"):
            one = filter_of(name, 1, clip)
            full = worst if one is None else int(one.admit([clip], steps=10**6)[0])
            steps = [step for step in looks if one is not None or step <= worst]
            runs = [train(data, name, steps, clip, seed) for seed in SEEDS]
            mean = {key: np.mean([run[key] for run in runs], axis=0).tolist() for key in runs[0]}
            place = int(np.argmax(mean["accuracy"]))
            row = {
                "max_grad_norm": clip,
                "learning rate": rate,
                "filter": name,
                "full-norm steps": full,
                "steps": steps,
                **mean,
                "accuracies": [run["accuracy"] for run in runs],
                "best": {key: mean[key][place] for key in ("accuracy", "taking part")} | {"steps": steps[place]},
            }
            table.append(row)
            looked = zip(steps, mean["accuracy"], mean["taking part"], strict=True)
            shown = "  ".join(f"{step}: {accuracy:.4f} ({part:.0%})" for step, accuracy, part in looked)
            print(f"clip {clip:g}  {name:16} {full} full-norm steps, {mean['seconds']:3.0f} s;  {shown}", flush=True)
    results = {
        "machine": {"processors": platform.processor() or platform.machine(), "threads": 1},
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "run": {**STEP, "epsilon": EPSILON, "delta": DELTA, "seeds": SEEDS},
        "worst-case steps": worst,
        "table": table,
    }
    options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
