"""epsilon(delta) of one person, down to delta = 1e-100 and in the corners: prints tables, writes accuracy.json.

Run from the repository's root: ``python benchmarks/accuracy.py [--part tail,widths,extremes,rare]``.  The exact values
are those of tests/data/exact.json, which share no code with the package; the larger of removal and addition.  An
accountant that is not installed is shown as missing.  Errors are relative to the exact value, or to this package's
where that is not known (marked ~); a negative one of an upper bound means that it is none.  Seconds are processor time.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import peers

import pld_accountant as pa

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "accuracy.json"
EXACT = HERE.parent / "tests" / "data" / "exact.json"
DELTAS = (1e-5, 1e-10, 1e-15, 1e-30, 1e-100)
# Dense where the others end, sparse below.
TAIL = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 30, 40, 50, 60, 70, 80, 90, 100)
CASES = {
    "tail": [((2.0, 0.005, 10_000), tuple(float(f"1e-{k}") for k in TAIL))],
    "widths": [((2.0, 0.005, 10_000), DELTAS), ((1.0, 0.01, 10_000), DELTAS)],
    "extremes": [
        ((1.0, 1e-5, 10_000), (1e-5,)), ((0.3, 0.01, 10_000), (1e-5,)), ((0.3, 0.01, 1000), (1e-5,)),
        ((0.3, 1e-5, 10_000), (1e-5,)), ((30.0, 0.005, 10_000), (1e-5,)), ((100.0, 0.005, 10_000), (1e-5,)),
        ((100.0, 1e-5, 10_000), (1e-10,)), ((2.0, 0.005, 1_000_000), (1e-5,)), ((0.5, 0.1, 10_000), (1e-5,)),
        ((0.3, 0.1, 10_000), (1e-5,)),
    ],
    "rare": [
        ((0.247, 1.6e-4, 325), (2e-10,)), ((0.29, 6.5e-5, 288), (6e-18,)), ((1.0, 1e-5, 100_000), (1e-15,)),
        ((1.24, 1.3e-5, 479_233), (5e-15,)), ((0.913, 1.3e-6, 393_572), (6e-34,)), ((0.426, 1.1e-6, 95_633), (2e-44,)),
    ],
}  # fmt: skip
TITLES = {
    "tail": "from delta = 1e-2 to 1e-100",
    "widths": "epsilon and the distance of its bounds",
    "extremes": "extremes: few are sampled, little noise, much noise, a million steps, epsilon above 745",
    "rare": "a few rare steps decide: little noise, and hardly anybody is sampled",
}


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
        start = time.process_time()
        composition = pa.compose([(pa.SampledGaussian(s, q), n) for s, q, n in parts])
        bounds = composition.epsilon(delta)
        seconds = time.process_time() - start
    result = {"epsilon": bounds.estimate, "lower": bounds.lower, "upper": bounds.upper, "seconds": seconds}
    return result if bounds.certified else {"status": pa.Status(bounds.status).name, "seconds": seconds}


@cache
def everybody(question: str) -> dict[str, dict]:
    """All accountants' answers to [parts, delta]; asked once, whichever tables want them."""
    parts, delta = json.loads(question)
    return {"this package": ours(parts, delta)} | {name: peers.ask(name, parts, delta) for name in peers.NAMES}


def error(answer: dict, truth: float | None, near: float | None) -> str:
    """Relative error in words; nothing where the answer is what the others are measured by."""
    value = truth or near
    if value is None or (truth is None and answer["epsilon"] == near):
        return ""
    relative = answer["epsilon"] / value - 1.0
    size = "0" if abs(relative) < 5e-16 else f"{relative:+.0e}" if relative < 1.0 else f"x {1.0 + relative:.3g}"
    return f"{'' if truth else '~'}{size}"


def show(name: str, answer: dict, truth: float | None, near: float | None) -> None:
    """One line: epsilon, its error, the bounds and their distance, seconds."""
    if answer.get("epsilon") is None:
        print(f"    {name:<20} {answer['status']}")
        return
    line = f"    {name:<20} {answer['epsilon']:<14.9g} {error(answer, truth, near):>7}"
    bounds, wrong = "", ""
    if "upper" in answer:
        low, high = answer["lower"], answer["upper"]
        bounds = f"[{low:.7g}, {high:.7g}] width {high - low:.0e}"
        value = truth or near
        # The exact value itself is rounded to a double.
        if value is not None and not low * (1 - 2**-52) <= value <= high * (1 + 2**-52):
            wrong = "  DOES NOT CONTAIN IT"
    print(f"{line}  {bounds:<38} {answer['seconds']:8.3f} s{wrong}")


def table(cases: list, exact: dict[str, float]) -> list[dict[str, Any]]:
    """Everybody's answers for every case."""
    rows = []
    for part, deltas in cases:
        for delta in deltas:
            question = json.dumps([[list(part)], delta])
            truth, answers = exact.get(question), everybody(question)
            print(f"noise multiplier {part[0]:g}, sample rate {part[1]:g}, {part[2]:,} steps, delta {delta:g}: "
                  f"exact {'not known' if truth is None else format(truth, '.12g')}")  # fmt: skip
            for name, answer in answers.items():
                show(name, answer, truth, answers["this package"].get("epsilon"))
            rows.append({"steps": [list(part)], "delta": delta, "exact": truth, "answers": answers})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default=",".join(CASES))
    exact = exact_values()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part in parser.parse_args().part.split(","):
        print(f"-- {TITLES[part]}")
        results |= {part: table(CASES[part], exact), "peers": peers.versions(), "numpy": np.__version__}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
