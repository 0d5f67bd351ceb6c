"""Random compositions of Gaussian steps: time and width; prints a table, writes its results.

Run from the repository's root: ``python benchmarks/random_compositions.py``; the extra ``peers`` adds dp-accounting.
Noise multiplier, sample rate, number of steps and delta are drawn log-uniformly: one range that DP-SGD uses, and one of
few and rare steps.  From the latter range also come steps with a group of 2 to 8 records, and steps whose neighbours
replace a record.  Seconds are wall time of the first answer of a composition in a warm process, both directions;
dp-accounting runs at its default (connect the dots, grid 1e-4), and has no sampled Gaussian whose record is replaced.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from peers import dp_accounting_pld

import pld_accountant as pa

RESULTS = Path(__file__).parent / "results" / "random_compositions.json"
_RARE = ((0.5, 5.0), (1e-6, 0.1), (2.0, 3e5), (1e-15, 1e-4))
RANGES = {  # noise multiplier, sample rate, steps, delta
    "DP-SGD": ((0.5, 5.0), (1e-4, 0.2), (50.0, 1e6), (1e-10, 1e-4)),
    "rare": _RARE,
    "groups": _RARE,
    "replaced": _RARE,
}
REPLACED = 0  # records of a step whose neighbours replace one

Case = tuple[float, float, int, int, float]


def draw(rng: np.random.Generator, name: str) -> Case:
    """One composition: noise multiplier, sample rate, records, steps, delta."""
    sigma, rate, steps, delta = (math.exp(rng.uniform(*np.log(ends))) for ends in RANGES[name])
    records = int(rng.integers(2, 9)) if "groups" in name else REPLACED if "replaced" in name else 1
    return round(sigma, 2), float(f"{rate:.2g}"), records, int(steps), float(f"{delta:.2g}")


def ask(case: Case, tolerance: float | None) -> dict[str, Any]:
    """This package's bounds and seconds."""
    sigma, rate, records, steps, delta = case
    mechanism: Any = pa.SampledGaussian(sigma, rate)
    if records == REPLACED:
        mechanism = pa.ReplaceOneSampledGaussian(sigma, rate)
    elif records > 1:
        mechanism = pa.GroupGaussian(sigma, rate, records)
    run = pa.compose([(mechanism, steps)])
    start = time.perf_counter()
    bounds = run.epsilon(delta, tolerance=tolerance)
    seconds = time.perf_counter() - start
    width = (bounds.upper - bounds.lower) / bounds.upper if bounds.upper > 0.0 else 0.0
    ends = {"lower": bounds.lower, "upper": bounds.upper, "width": width}
    return {**ends, "seconds": seconds, "method": bounds.method.name}


def ask_peer(case: Case) -> dict[str, Any]:
    """dp-accounting's epsilon and seconds."""
    sigma, rate, records, steps, delta = case
    start = time.perf_counter()
    try:
        if records == 1:
            epsilon = dp_accounting_pld([(sigma, rate, steps)], delta, 1e-4)["epsilon"]
        else:
            from dp_accounting.pld import privacy_loss_distribution as pld

            group = pa.GroupGaussian(sigma, rate, records)
            one = pld.from_mixture_gaussian_mechanism(sigma, list(group.sensitivities), list(group.probabilities))
            epsilon = float(one.self_compose(steps).get_epsilon_for_delta(delta))
    except (ValueError, MemoryError) as error:
        return {"error": str(error)[:80], "seconds": time.perf_counter() - start}
    return {"epsilon": epsilon, "seconds": time.perf_counter() - start}


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Median, 95 %, maximum, and the share above 50 milliseconds."""
    s = np.array(seconds)
    shares = {"median": np.median(s), "p95": np.quantile(s, 0.95), "most": s.max(), "above 50 ms": np.mean(s > 0.05)}
    return {name: float(value) for name, value in shares.items()}


def show(name: str, who: str, found: dict[str, float], more: str) -> None:
    """One line of the table."""
    print(f"{name:16}{who:28}{1e3 * found['median']:9.1f}{1e3 * found['p95']:9.1f}{1e3 * found['most']:9.0f}", end="")
    print(f"{found['above 50 ms']:9.1%}   {more}", flush=True)


def main() -> None:
    """Ask, print the table, write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--peer", type=int, default=100, help="of how many dp-accounting is asked")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    peer = options.peer if find_spec("dp_accounting") else 0
    ask((2.0, 0.005, 1, 1_000, 1e-5), None)
    ask((0.9, 3e-5, 2, 3_000, 1e-12), None)
    if peer:
        ask_peer((2.0, 0.005, 1, 1_000, 1e-5))
    print(f"{'range':16}{'accountant':28}{'median':>9}{'95 %':>9}{'most':>9}{'> 50 ms':>9}   milliseconds")
    results = {}
    for name in RANGES:
        rng = np.random.default_rng(options.seed)
        cases = [draw(rng, name) for _ in range(options.number)]
        ours, rough = ([ask(case, tolerance) for case in cases] for tolerance in (None, 1e-3))
        others = [ask_peer(case) for case in cases[:peer] if case[2] != REPLACED]
        rows = []
        for who, found in (("this package", ours), ("this package, tolerance 1e-3", rough)):
            times = quantiles([one["seconds"] for one in found])
            times["widest"] = max(one["width"] for one in found)
            show(name, who, times, f"widest {times['widest']:.0e}")
            rows.append({"accountant": who, **times})
        if others:
            times = quantiles([one["seconds"] for one in others])
            pairs = list(zip(ours, others, strict=False))
            times["faster than ours"] = float(np.mean([b["seconds"] < a["seconds"] for a, b in pairs]))
            errors = [b.get("epsilon", math.inf) / a["upper"] - 1.0 if a["upper"] > 0.0 else 0.0 for a, b in pairs]
            times["off_by_a_percent"] = float(np.mean(np.array(errors) > 0.01))
            times["below_the_truth"] = int(sum(b.get("epsilon", math.inf) < a["lower"] for a, b in pairs))
            more = f"faster in {times['faster than ours']:.0%}, 1 % too large in {times['off_by_a_percent']:.0%}"
            show(name, "dp-accounting", times, f"{more}, below the truth in {times['below_the_truth']}")
            rows.append({"accountant": "dp-accounting", **times})
        answers = [{"case": c, "default": a, "tolerance 1e-3": b} for c, a, b in zip(cases, ours, rough, strict=True)]
        for answer, other in zip(answers, others, strict=False):
            answer["dp-accounting"] = other
        results[name] = {"summary": rows, "answers": answers}
    for block in results.values():
        block["answers"] = sorted(block["answers"], key=lambda one: -one["default"]["seconds"])[:20]
    options.out.write_text(json.dumps({"number": options.number, "peer": peer, **results}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
