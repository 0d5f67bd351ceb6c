"""How long one `admit` of each filter takes: prints a table and writes results/filters.json.

Run it from the repository's root: ``python benchmarks/filters.py``.  Times are the median of many steps
over people far from and near the end of their budgets; `targets` are those of the project, on two cores.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pld_accountant as pa

SIZES = (1_000, 60_000, 1_000_000)
STEP = {"noise_multiplier": 100.0, "max_grad_norm": 1.0}
SAMPLED = {"noise_multiplier": 2.0, "max_grad_norm": 1.0, "sample_rate": 0.005}
TARGETS_MS = {
    ("GaussianFilter", 60_000): 2.0,
    ("ZCDPFilter", 60_000): 2.0,
    ("RenyiFilter, one order", 60_000): 2.0,
    ("RenyiFilter, orders 2 to 32", 60_000): 2.0,
    ("RenyiFilter, one order, sampled", 60_000): 2.0,
    ("GaussianFilter", 1_000_000): 30.0,
}

ORDERS = np.arange(2, 33)
MAKERS: dict[str, Callable[[int], Any]] = {
    "GaussianFilter": lambda n: pa.GaussianFilter(0.2, num_examples=n, **STEP),
    "GaussianFilter, one for all": lambda n: pa.GaussianFilter(0.2, num_examples=n, individual=False, **STEP),
    "ZCDPFilter": lambda n: pa.ZCDPFilter(0.021, num_examples=n, **STEP),
    "RenyiFilter, one order": lambda n: pa.RenyiFilter(0.44, 21, num_examples=n, **STEP),
    "RenyiFilter, orders 2 to 32": lambda n: pa.RenyiFilter.for_mu(0.2, ORDERS, num_examples=n, **STEP),
    "RenyiFilter, one order, sampled": lambda n: pa.RenyiFilter.for_epsilon(
        0.2, 1e-5, num_examples=n, **SAMPLED
    ),
    "RenyiFilter, 8 orders, sampled": lambda n: pa.RenyiFilter.for_mu(
        0.05, np.arange(2, 18, 2), num_examples=n, **SAMPLED
    ),
    "ApproximateDPFilter": lambda n: pa.ApproximateDPFilter(3.0, 1e-5, num_examples=n),
}


def milliseconds(make: Callable[[int], Any], people: int, steps: int) -> dict[str, float]:
    """Median and slowest of `steps` calls of admit, and one call of headroom."""
    rng = np.random.default_rng(0)
    norms = [rng.uniform(0, 0.05, people) ** 0.5 for _ in range(4)]
    accountant = make(people)
    accountant.admit(norms[0])
    times = []
    for k in range(steps):
        start = time.perf_counter()
        accountant.admit(norms[k % 4])
        times.append(1e3 * (time.perf_counter() - start))
    start = time.perf_counter()
    accountant.headroom()
    return {
        "admit": float(np.median(times)),
        "slowest": float(np.max(times)),
        "headroom": 1e3 * (time.perf_counter() - start),
    }


def main() -> None:
    """Measure, print and write."""
    rows = []
    print(f"{'filter':34}{'people':>10}{'admit ms':>11}{'slowest':>10}{'headroom':>10}{'target':>8}")
    for name, make in MAKERS.items():
        for people in SIZES:
            measured = milliseconds(make, people, 300 if people < 1_000_000 else 30)
            target = TARGETS_MS.get((name, people))
            rows.append({"filter": name, "people": people, "target_ms": target, **measured})
            print(
                f"{name:34}{people:>10,}{measured['admit']:>11.3f}{measured['slowest']:>10.3f}"
                f"{measured['headroom']:>10.3f}{'' if target is None else f'{target:g}':>8}"
            )
    path = Path(__file__).parent / "results" / "filters.json"
    path.parent.mkdir(exist_ok=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__}
    path.write_text(json.dumps({"unit": "ms", "machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
