"""Random compositions and ledgers against the oracle, for as long as one likes: prints violations, exits with 1 if any.

Run from the repository's root, with python-flint installed::

    python tests/oracles/sweep.py --compositions 10000 --ledgers 1000 --seed 1 --out sweep.json

A case is checked in both directions: epsilon at a delta between 1e-2 and 1e-100, then delta at that epsilon, and for
every person of a ledger the epsilon of the very norms.  A case that the oracle cannot settle in the time allowed is
counted as undecided.  A value must lie between the bounds up to the oracle's own error of 1e-11.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]  # beside the oracle's folder, where Python has found this script

from make_reference import do, late  # noqa: E402

import pld_accountant as pa  # noqa: E402

SLACK = 1e-11  # of the oracle, relative


def composition(rng: np.random.Generator) -> tuple[list, float]:
    """One to three kinds of steps, one step to a million, and a delta."""
    parts = []
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        sigma = float(f"{np.exp(rng.uniform(np.log(0.2), np.log(50.0))):.3g}")
        rate = float(f"{10.0 ** rng.uniform(-6.0, 0.0):.2g}") if rng.random() < 0.9 else 1.0
        parts.append((sigma, rate, int(np.exp(rng.uniform(0.0, np.log(rng.choice([30.0, 1e3, 1e6])))))))
    return parts, float(f"{10.0 ** -rng.uniform(2.0, rng.choice([6.0, 15.0, 100.0])):.2g}")


def ledger(rng: np.random.Generator) -> tuple[pa.Ledger, list[list], float]:
    """A ledger of five people, and everybody's own steps."""
    sigma, rate = float(f"{np.exp(rng.uniform(-0.5, 2.0)):.3g}"), float(f"{10.0 ** rng.uniform(-4.0, 0.0):.2g}")
    made = pa.Ledger(5, noise_multiplier=sigma, sample_rate=rate, max_grad_norm=1.0, buckets=int(rng.choice([16, 256])))
    people: list[list] = [[] for _ in range(5)]
    for _ in range(int(rng.integers(1, 4))):
        norms = np.round(np.minimum(rng.lognormal(-0.7, 0.7, 5), 1.0), 3)
        repeat = int(np.exp(rng.uniform(0.0, np.log(3000.0))))
        made.record(norms, repeat=repeat)
        for parts, norm in zip(people, norms, strict=True):
            if norm > 0.0:
                parts.append((sigma / float(norm), rate, repeat))
    return made, people, float(f"{10.0 ** -rng.uniform(2.0, 15.0):.2g}")


def outside(value: float, bounds: pa.Bounds) -> bool:
    """Whether a value of the oracle lies outside of certified bounds."""
    return not bounds.lower * (1.0 - SLACK) - 1e-300 <= value <= bounds.upper * (1.0 + SLACK) + 1e-300


def check_composition(rng: np.random.Generator, seconds: int) -> dict:
    """One composition: what was asked, how wide the bounds are, and what is wrong."""
    parts, delta = composition(rng)
    truth = do(("sweep", parts, delta), seconds)["epsilon"]
    composed = pa.compose([(pa.SampledGaussian(s, q), n) for s, q, n in parts])
    wrong, start = [], time.process_time()
    widths = []
    for direction, value in truth.items():
        bounds = composed.epsilon(delta, direction)
        widths.append((bounds.upper - bounds.lower) / bounds.upper if bounds.upper > 0.0 else 0.0)
        if value is None:
            continue
        if outside(value, bounds):
            wrong.append(["epsilon", direction, value, bounds.lower, bounds.upper])
        if value > 0.0:
            # delta falls by a factor of e^(theta SLACK epsilon) over the oracle's error, theta below 1e6
            back = composed.delta(value, direction)
            if not back.lower * (1.0 - 1e-4) <= delta <= back.upper * (1.0 + 1e-4):
                wrong.append(["delta", direction, delta, back.lower, back.upper])
    undecided = sum(value is None for value in truth.values())
    used = time.process_time() - start
    return {"asked": [parts, delta], "undecided": undecided, "width": max(widths), "seconds": used, "wrong": wrong}


def check_ledger(rng: np.random.Generator, seconds: int) -> dict:
    """One ledger: the largest width relative to the worst case, and what is wrong."""
    made, people, delta = ledger(rng)
    start = time.process_time()
    bounds = made.epsilon(delta)
    used, wrong, undecided = time.process_time() - start, [], 0
    for i, parts in enumerate(people):
        truth = do(("sweep", parts, delta), seconds)["epsilon"] if parts else {"remove": 0.0}
        if None in truth.values():
            undecided += 1
        elif outside(max(truth.values()), bounds[i]):
            wrong.append([i, parts, max(truth.values()), bounds[i].lower, bounds[i].upper])
    width = float(np.max(bounds.upper - bounds.lower)) / max(float(made.worst_case().epsilon(delta).upper), 1e-300)
    return {"asked": [people, delta], "undecided": undecided, "width": width, "seconds": used, "wrong": wrong}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compositions", type=int, default=100)
    parser.add_argument("--ledgers", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=20, help="of the oracle for one value")
    parser.add_argument("--out", type=Path, help="file for the results of every case")
    given = parser.parse_args()
    signal.signal(signal.SIGPROF, late)
    results: dict[str, list[dict]] = {}
    for name, number, check in (
        ("compositions", given.compositions, check_composition),
        ("ledgers", given.ledgers, check_ledger),
    ):
        rows = results[name] = []
        for i in range(number):
            rows.append(check(np.random.default_rng((given.seed, i)), given.seconds))
            if rows[-1]["wrong"]:
                print(f"WRONG {rows[-1]}", flush=True)
            if given.out:
                given.out.write_text(json.dumps(results) + "\n")
        if rows:
            widths, times = ([row[key] for row in rows] for key in ("width", "seconds"))
            print(
                f"{name}: {number}, values that the oracle could not settle {sum(row['undecided'] for row in rows)}, "
                f"wrong {sum(bool(row['wrong']) for row in rows)}, width median {np.median(widths):.1e} largest "
                f"{np.max(widths):.1e}, seconds median {np.median(times):.3f} largest {np.max(times):.1f}"
            )
    return int(any(row["wrong"] for rows in results.values() for row in rows))


if __name__ == "__main__":
    sys.exit(main())
