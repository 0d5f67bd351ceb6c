"""epsilon(delta) of one person, down to delta = 1e-100 and in the corners: prints tables, writes accuracy.json.

Run from the repository's root: ``python benchmarks/accuracy.py``.  The exact values are those of tests/data/exact.json,
which share no code with the package; the larger of removal and addition.  An accountant that is not installed is shown
as missing.  Errors are relative to the exact value; a negative one of an upper bound means that it is none.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import peers

import pld_accountant as pa

HERE = Path(__file__).parent
EXACT = HERE.parent / "tests" / "data" / "exact.json"
DELTAS = (1e-5, 1e-10, 1e-15, 1e-30, 1e-100)
SMALL_DELTAS = [((2.0, 0.005, 10_000), DELTAS), ((1.0, 0.01, 10_000), DELTAS)]
EXTREMES = [
    ((1.0, 1e-5, 10_000), (1e-5,)), ((0.3, 0.01, 10_000), (1e-5,)), ((0.3, 1e-5, 10_000), (1e-5,)),
    ((100.0, 1e-5, 10_000), (1e-10,)), ((2.0, 0.005, 1_000_000), (1e-5,)), ((0.5, 0.1, 10_000), (1e-5,)),
    ((0.3, 0.01, 1000), (1e-5,)),
]  # fmt: skip


def exact_values() -> dict[str, float]:
    """Composition and delta to epsilon."""
    found = {}
    for case in json.loads(EXACT.read_text())["cases"]:
        if None not in case["epsilon"].values():
            found[json.dumps([case["steps"], case["delta"]])] = max(case["epsilon"].values())
    return found


def ours(parts: list, delta: float) -> dict:
    """The bounds of this package; the time is that of a second composition, tables made anew."""
    for _ in range(2):
        start = time.perf_counter()
        composition = pa.compose([(pa.SampledGaussian(s, q), n) for s, q, n in parts])
        bounds = composition.epsilon(delta)
        seconds = time.perf_counter() - start
    result = {"epsilon": bounds.estimate, "lower": bounds.lower, "upper": bounds.upper, "seconds": seconds}
    return result if bounds.certified else {"status": pa.Status(bounds.status).name, "seconds": seconds}


def show(name: str, answer: dict, exact: float | None) -> None:
    """One line."""
    if answer.get("epsilon") is None:
        print(f"    {name:<22} {answer['status']}")
        return
    text = f"    {name:<22} {answer['epsilon']:<14.9g}"
    if exact is not None:
        text += f" error {answer['epsilon'] / exact - 1.0:+9.1e}"
    if "upper" in answer:
        low, high = answer["lower"], answer["upper"]
        text += f"  [{low:.6g}, {high:.6g}] width {high - low:.1e}"
        if exact is not None and not low <= exact * (1 + 1e-15) <= high * (1 + 2e-15):
            text += "  DOES NOT CONTAIN THE EXACT VALUE"
    print(f"{text}  {answer['seconds']:.3g} s")


def table(cases: list, exact: dict[str, float]) -> list[dict[str, Any]]:
    """Everybody's answers for every case."""
    rows = []
    for part, deltas in cases:
        for delta in deltas:
            parts = [list(part)]
            truth = exact.get(json.dumps([parts, delta]))
            print(f"noise multiplier {part[0]:g}, sample rate {part[1]:g}, {part[2]:,} steps, delta {delta:g}: "
                  f"exact {'unknown' if truth is None else format(truth, '.12g')}")  # fmt: skip
            answers = {"this package": ours(parts, delta)}
            answers |= {name: peers.ask(name, parts, delta) for name in peers.NEEDS}
            for name, answer in answers.items():
                show(name, answer, truth)
            rows.append({"steps": parts, "delta": delta, "exact": truth, "answers": answers})
    return rows


def main() -> None:
    exact = exact_values()
    results = {"peers": peers.versions(), "numpy": np.__version__}
    print("-- down to delta = 1e-100")
    results["small deltas"] = table(SMALL_DELTAS, exact)
    print("-- extremes")
    results["extremes"] = table(EXTREMES, exact)
    (HERE / "results" / "accuracy.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
