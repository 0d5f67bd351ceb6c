"""Other ledgers than those of people.py: rare steps, Laplace noise, any mechanisms.  Prints and writes ledgers.json.

Run from the repository's root: ``python benchmarks/ledgers.py``.  Every case is measured in a process of its own,
without tables on disk: the first epsilon, which makes the tables, and the second.  dp-accounting composes the norms
of one person, at its default.  The norms of a person are log-normal around a scale that is log-normal, too.

"Balls in bins" are epochs, in each of which a record picks one of 1 / rate batches; "largest batch" cuts Poisson
batches of 60,000 records at 760; "releases" are four mechanisms, in each of which a person takes part at random.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import peers

RESULTS = Path(__file__).parent / "results" / "ledgers.json"
ROWS = 20  # of different norms a person
CASES = [
    # noise, noise multiplier, sample rate, steps, delta, people
    ("gaussian", 1.0, 1e-3, 14, 1e-10, 100),
    ("gaussian", 1.0, 4e-5, 5, 1e-7, 100),
    ("gaussian", 0.54, 1e-4, 33, 2e-12, 100),
    ("gaussian", 1.0, 1e-5, 14, 1e-6, 100),
    ("gaussian", 0.8, 1e-4, 2_000, 1e-8, 2_000),
    ("gaussian", 1.0, 1e-3, 2_000, 1e-6, 10_000),
    ("gaussian", 5.0, 1.0, 12, 1e-10, 100_000),
    ("laplace", 10.0, 1.0, 40, 1e-6, 10_000),
    ("laplace", 20.0, 1.0, 300, 1e-6, 10_000),
    ("laplace", 5.0, 1e-2, 1_000, 1e-6, 10_000),
    ("laplace", 1.0, 1e-3, 200, 1e-7, 10_000),
    ("balls in bins", 1.0, 1e-2, 20, 1e-6, 10_000),
    ("largest batch", 1.0, 1e-2, 2_000, 1e-6, 10_000),
    ("releases", 20.0, 1.0, 40, 1e-6, 10_000),
]


def norms(people: int, rows: int) -> np.ndarray:
    """Norms over the clipping norm, shape (rows, people); log-normal scales of a median of 0.3."""
    rng = np.random.default_rng(0)
    scale = 0.3 * np.exp(rng.normal(0.0, 0.8, people))
    return np.minimum(scale * np.exp(rng.normal(0.0, 0.5, (rows, people))), 1.0)


def worker(case: list[Any]) -> dict[str, Any]:
    """A ledger asked twice."""
    import pld_accountant as pa

    noise, sigma, rate, steps, delta, people = case
    ledger: Any
    if noise in ("gaussian", "laplace"):
        kind = {"gaussian": pa.Ledger, "laplace": pa.LaplaceLedger}[noise]
        ledger = kind(people, noise_multiplier=sigma, sample_rate=rate, max_grad_norm=1.0)
        for row, repeat in zip(norms(people, ROWS), repeats(steps), strict=False):
            ledger.record(row, repeat=repeat)
    else:
        ledger = pa.MechanismLedger(people)
        if noise == "releases":
            kinds = pa.DiscreteGaussian(sigma), pa.DiscreteLaplace(1.0 / sigma), pa.RandomizedResponse(0.8, 4)
            for step, times in zip((*kinds, pa.Laplace(sigma)), releases(people, steps), strict=True):
                ledger.record(step, times)
        else:
            epoch = pa.RandomAllocation(sigma, round(1.0 / rate))
            step = epoch if noise == "balls in bins" else pa.TruncatedPoisson(sigma, rate, 760, 60_000)
            for row, repeat in zip(norms(people, ROWS), repeats(steps), strict=False):
                ledger.record_norms(step, row, times=repeat)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        found = ledger.epsilon(delta)
        seconds.append(time.perf_counter() - start)
    width = found.upper - found.lower
    worst = ledger.worst_case().epsilon(delta).upper
    return {
        "cold": seconds[0],
        "at_hand": seconds[1],
        "certified": float((found.status == pa.Status.CERTIFIED).mean()),
        "median_of_worst": float(np.median(width) / worst),
        "widest_of_worst": float(width.max() / worst),
        "upper_of_first": float(found.upper[0]),
    }


def releases(people: int, steps: int) -> np.ndarray:
    """How often each person took part in each of four mechanisms, shape (4, people)."""
    rng = np.random.default_rng(0)
    return rng.binomial(steps // 4, rng.uniform(0.1, 0.9, people), (4, people))


def repeats(steps: int) -> list[int]:
    """How many steps each row of norms stands for."""
    return [n for n in np.diff(np.linspace(0, steps, ROWS + 1).astype(int)).tolist() if n]


def measure(case: tuple[Any, ...]) -> dict[str, Any]:
    command = [sys.executable, __file__, "--worker", json.dumps(case)]
    alone = {**os.environ, "PLD_ACCOUNTANT_CACHE": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    noise, sigma, rate, steps, delta, people = case
    own = norms(people, ROWS)[:, 0]
    parts = [[sigma / norm, rate, n] for norm, n in zip(own.tolist(), repeats(steps), strict=False)]
    if noise == "releases":
        parts = [[sigma, 1.0, int(times)] for times in releases(people, steps)[:, 0]]
    names = {"gaussian": "dp-accounting", "laplace": "dp-accounting Laplace", "releases": "dp-accounting releases"}
    # it has no balls in bins, and counts the displaced record of a full batch by the person's own norm, which is wrong
    found["peer"] = peers.ask(names[noise], parts, delta) if noise in names else {"status": "has none"}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(worker(json.loads(args.worker))))
        return
    measure(("laplace", 10.0, 0.1, 40, 1e-6, 100))  # compiles the kernels, once and for all
    measure(("gaussian", 1.0, 1e-3, 14, 1e-10, 20))
    print(
        f"{'noise':>13} {'multiplier':>10} {'rate':>6} {'steps':>6} {'delta':>6} {'people':>7} {'cold':>8} "
        f"{'at hand':>8} {'certified':>9} {'median':>7} {'widest':>7} {'dp-accounting, a person':>24}"
    )
    lines = []
    for case in CASES:
        noise, sigma, rate, steps, delta, people = case
        found = measure(case)
        lines.append({
            "noise": noise, "noise_multiplier": sigma, "sample_rate": rate, "steps": steps, "delta": delta,
            "people": people, **found,
        })  # fmt: skip
        peer = found["peer"]
        told = f"{peer['seconds']:.2f} s, {peer['epsilon']:.4g}" if peer.get("epsilon") is not None else peer["status"]
        print(
            f"{noise:>13} {sigma:>10g} {rate:>6g} {steps:>6,} {delta:>6g} {people:>7,} {found['cold']:>6.1f} s "
            f"{found['at_hand']:>6.1f} s {found['certified']:>9.1%} {found['median_of_worst']:>7.2%} "
            f"{found['widest_of_worst']:>7.2%} {told:>24}; ours {found['upper_of_first']:.4g}",
            flush=True,
        )
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "peers": peers.versions()}
    RESULTS.write_text(json.dumps({"machine": machine, "cases": lines}, indent=1) + "\n")


if __name__ == "__main__":
    main()
