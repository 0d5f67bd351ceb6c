"""MNIST under Opacus with everybody's own epsilon: ``python examples/mnist_opacus.py --data FOLDER --out FOLDER``.

FOLDER holds the four ``.gz`` files of MNIST.  With ``--budget 0.5`` a filter keeps everybody within epsilon 0.5:
whoever has spent theirs contributes nothing more.  Needs the extra ``opacus``.
"""

import argparse
import warnings
from pathlib import Path

import torch
from opacus import PrivacyEngine
from reading import mnist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pld_accountant as pa
from pld_accountant.training.opacus import IndividualAccounting

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--out", type=Path, default=Path("mnist-opacus"))
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--budget", type=float)
options = parser.parse_args()
options.out.mkdir(exist_ok=True)
warnings.filterwarnings("ignore", message="Secure RNG|Full backward hook")

x, y, x_test, y_test = (torch.from_numpy(part) for part in mnist(options.data))
model, criterion = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)), nn.CrossEntropyLoss()
engine = PrivacyEngine(accountant="pld")
model, optimizer, criterion, loader = engine.make_private(
    module=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
    criterion=criterion,
    data_loader=DataLoader(TensorDataset(x, y), batch_size=300),
    noise_multiplier=2.0,
    max_grad_norm=5.0,
    grad_sample_mode="ghost",
)

keep = options.budget and pa.PotentialFilter(
    options.budget, 1e-5, num_examples=len(x), noise_multiplier=2.0, sample_rate=loader.sample_rate, max_grad_norm=5.0
)
individual = IndividualAccounting(model, optimizer, loader, criterion, keep=keep)
loader = individual.loader

for epoch in range(options.epochs):
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()
    with torch.no_grad():
        accuracy = (model(x_test).argmax(1) == y_test).float().mean()
    print(f"epoch {epoch + 1}: accuracy {accuracy:.4f}, worst case epsilon <= {engine.get_epsilon(1e-5):.4f}")

print(individual.epsilon(1e-5))
print(individual.guarantee)
if keep:
    print(f"{keep.active.sum():,} of {len(x):,} people have budget left")  # sensitive, like every number of a person
print(
    pa.write_report(
        individual.ledger, options.out / "report.html", 1e-5, labels=y.numpy(), guarantee=individual.guarantee
    )
)
