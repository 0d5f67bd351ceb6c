"""DP-SGD with caps in plain PyTorch: ``python examples/mnist_pytorch.py --data FOLDER --out FOLDER``.

FOLDER holds the four ``.gz`` files of MNIST.  Needs torch.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from reading import mnist
from torch import nn

import pld_accountant as pa
from pld_accountant.training.individual import IndividualSteps
from pld_accountant.training.pytorch import PerExample

NOISE, RATE, CLIP, DELTA = 2.0, 0.005, 5.0, 1e-5

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--out", type=Path, default=Path("mnist-pytorch"))
parser.add_argument("--steps", type=int, default=400)
options = parser.parse_args()
options.out.mkdir(exist_ok=True)

x, y, x_test, y_test = (torch.from_numpy(part) for part in mnist(options.data))
model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
each = PerExample(model, nn.functional.cross_entropy)
run = IndividualSteps(len(x), noise_multiplier=NOISE, sample_rate=RATE, max_grad_norm=CLIP, refresh=100)
coins = np.random.default_rng()

for _ in range(options.steps):
    if run.due:
        run.refresh(each.norms(x, y))  # of everybody, at a released model
    caps = run.begin()  # books the step before anything is released
    batch = torch.from_numpy(np.flatnonzero(coins.random(len(x)) < RATE))
    total = each.clipped_sum(x[batch], y[batch], caps[batch.numpy()])
    with torch.no_grad():
        for parameter, part in zip(model.parameters(), total, strict=True):
            noisy = part + NOISE * CLIP * torch.randn_like(part)  # the same noise whatever the caps are
            parameter.sub_(0.05 * noisy / (RATE * len(x)))  # a public constant, not the size of the batch

with torch.no_grad():
    print(f"accuracy {(model(x_test).argmax(1) == y_test).float().mean():.4f}")
print(run.epsilon(DELTA))
print(run.guarantee)
print(pa.write_report(run.ledger, options.out / "report.html", DELTA, labels=y.numpy(), guarantee=run.guarantee))
