"""How long one `admit` of each filter takes: prints a table and writes results/filters.json.

Run it from the repository's root: ``python benchmarks/filters.py``.  Times are the median of many steps
over people far from and near the end of their budgets; `targets` are those of the project, on two cores.

`PLDFilter` takes most steps on credit and evaluates some people now and then, so for it the time is that of one
process over a whole run, by the step; and how long its budget lasts is compared with that of the proven `RenyiFilter`
which promises the (epsilon, delta) that the paper derives from it.
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
    "RenyiFilter, one order, sampled": lambda n: pa.RenyiFilter.for_epsilon(0.2, 1e-5, num_examples=n, **SAMPLED),
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


LONG = {"noise_multiplier": 2.0, "max_grad_norm": 1.0, "sample_rate": 0.005}
LONG_TARGET_MS = 50.0  # on average over 10,000 steps of 60,000 people


def long_run(people: int, steps: int, mu: float = 0.2, min_delta: float = 1e-5) -> dict[str, Any]:
    """Processor time of `PLDFilter.admit` by the step, over a whole run.

    Everybody has a size of their own, and each norm scatters around it; at the end a quarter have been refused.
    """
    rng = np.random.default_rng(0)
    accountant = pa.PLDFilter(mu, min_delta, num_examples=people, **LONG)
    size = np.exp(rng.normal(np.log(0.4), 0.8, people))
    times, admitted = [], 1.0
    for _ in range(steps):
        norms = size * np.exp(0.3 * rng.standard_normal(people))
        start = time.process_time()
        mask = accountant.admit(norms)
        times.append(1e3 * (time.process_time() - start))
        admitted = float(mask.mean())
    spent = accountant.spent()
    assert spent.max() <= mu
    return {
        "filter": "PLDFilter, a whole run",
        "people": people,
        "steps": steps,
        "mu": mu,
        "min_delta": min_delta,
        "admit": float(np.mean(times)),
        "median": float(np.median(times)),
        "slowest": float(np.max(times)),
        "refused_at_the_end": 1.0 - admitted,
        "target_ms": LONG_TARGET_MS,
    }


def admitted_steps(accountant: Any, norms: np.ndarray) -> list[int]:
    """Steps of these norms that everybody is admitted to, until nobody is."""
    count = np.zeros(norms.size, dtype=np.int64)
    while (mask := accountant.admit(norms)).any():
        count += mask
    return [int(n) for n in count]


def comparison(mu: float, min_delta: float, delta: float = 1e-5) -> list[dict[str, Any]]:
    """Steps that a budget admits: by the dominating mu filter, and by the proven filter of the epsilon it implies."""
    norms = np.array([1.0, 0.7, 0.5, 0.35])
    approximate = pa.PLDFilter(mu, min_delta, num_examples=norms.size, **LONG)
    epsilon = approximate.epsilon(delta)
    proven = pa.RenyiFilter.for_epsilon(epsilon, delta, num_examples=norms.size, **LONG)
    both = [admitted_steps(f, norms) for f in (approximate, proven)]
    held = {"mu": mu, "min_delta": min_delta, "epsilon": epsilon, "delta": delta}
    return [
        {"norm": float(n), "pld_filter": a, "renyi_filter": b, **held} for n, a, b in zip(norms, *both, strict=True)
    ]


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
    for people, steps in ((1_000, 10_000), (60_000, 10_000)):
        measured = long_run(people, steps)
        rows.append(measured)
        print(
            f"{measured['filter']:34}{people:>10,}{measured['admit']:>11.3f}{measured['slowest']:>10.3f}"
            f"{'':>10}{measured['target_ms']:>8g}"
        )
    compared = [row for mu in (0.1, 0.2) for min_delta in (1e-5, 1e-10) for row in comparison(mu, min_delta)]
    print(f"\n{'mu':>6}{'min_delta':>11}{'epsilon':>9}{'norm':>6}{'PLDFilter':>11}{'RenyiFilter':>13}   steps admitted")
    for row in compared:
        print(
            f"{row['mu']:>6g}{row['min_delta']:>11g}{row['epsilon']:>9.4f}{row['norm']:>6g}"
            f"{row['pld_filter']:>11,}{row['renyi_filter']:>13,}"
        )
    path = Path(__file__).parent / "results" / "filters.json"
    path.parent.mkdir(exist_ok=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__}
    whole = {"unit": "ms", "machine": machine, "rows": rows, "steps_admitted": compared}
    path.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
