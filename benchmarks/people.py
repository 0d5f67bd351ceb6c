"""Individuals per second, memory, growth, and other accountants on the same norms: prints tables, writes people.json.

Run from the repository's root: ``python benchmarks/people.py [--people 1000000] [--part speed,peers,growth,hard]``.
Every measurement of the package is made in a process of its own, without tables on disk, so that peak memory and cold
starts are its own.

The norms are those of a training run: log-normal scales that decay over training, a tenth of the people always clipped,
a tenth nearly silent; each of 40 recorded rows stands for a fortieth of the steps.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import peers
from appendix import individual_by_inverse_fft

RESULTS = Path(__file__).parent / "results" / "people.json"
ROWS = 40
SETTING = {"noise_multiplier": 2.0, "sample_rate": 0.005, "max_grad_norm": 1.0}
BASE = {"people": 100_000, "steps": 10_000, "buckets": 256, "delta": 1e-5}
WIDTHS = ("certified", "widest_of_worst", "median_relative_width")
DELTAS = [1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8]
PEERS = ("dp-accounting", "dp-accounting 1e-5", "prv-accountant 0.1")


def norm_rows(people: int, rows: int = ROWS, seed: int = 0) -> Any:
    """Yield one float32 row of norms after another; clipping norm 1."""
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.normal(-1.0, 0.8, people))
    kind = rng.random(people)
    for t in range(rows):
        row = scale * np.exp(-1.5 * t / rows) * np.exp(rng.normal(0.0, 0.35, people))
        row[kind < 0.1] = 2.0
        row[kind > 0.9] *= 0.003
        yield row.astype(np.float32)


def worker(question: dict) -> dict:
    """Everything measured in one process."""
    import pld_accountant as pa

    people, delta = question["people"], question["delta"]
    ledger = pa.Ledger(people, buckets=question["buckets"], **SETTING)
    rows = min(question["steps"], ROWS)
    repeat, seconds = question["steps"] // rows, []
    for row in norm_rows(people, rows):
        start = time.perf_counter()
        ledger.record(row, repeat=repeat)
        seconds.append(time.perf_counter() - start)
    result: dict[str, Any] = {"record_seconds": sum(seconds), "first_record_seconds": seconds[0]}
    # without the first row: it loads the kernels, places the buckets and meets the counters' memory for the first time
    result["norms_per_second"] = (rows - 1) * people / sum(seconds[1:])
    if question.get("blocks"):
        log = np.stack(list(norm_rows(people)))
        # the better of two: a virtual machine may have to ask its host for memory that it never used before
        for _ in range(2):
            whole = None
            start = time.perf_counter()
            whole = pa.Ledger.from_norms(log, buckets=question["buckets"], **SETTING)
            speed = log.size / (time.perf_counter() - start)
            result["norms_per_second_in_blocks"] = max(speed, result.get("norms_per_second_in_blocks", 0.0))
        if not np.array_equal(whole.counts * np.uint16(repeat), ledger.counts):
            raise SystemExit("blocks and rows were counted differently")
        del log, whole
    for ask in question["ask"]:
        start = time.perf_counter()
        if ask == "upper":
            bounds = ledger.epsilon(delta, bounds="upper")
        elif ask == "all":
            bounds = ledger.epsilon(delta)
        elif ask == "delta":
            bounds = ledger.delta(1.0)
        elif ask == "deltas":
            bounds = ledger.epsilon(DELTAS, bounds="upper")
        elif ask == "each delta":
            for one in DELTAS:
                bounds = ledger.epsilon(one, bounds="upper")
        elif ask == "rdp":
            ledger.rdp_epsilon(delta)
        elif ask == "mu":
            ledger.mu(delta)
        result.setdefault(ask, []).append(time.perf_counter() - start)
        if ask == "all":
            certified = np.asarray(bounds.status) == pa.Status.CERTIFIED
            worst = bounds.upper.max()
            width = (bounds.upper - bounds.lower)[certified]
            relative = width / np.maximum(bounds.upper[certified], 1e-300)
            result["certified"] = float(certified.mean())
            result["widest_of_worst"] = float(width.max() / worst)
            result["median_relative_width"] = float(np.median(relative))
    result["peak_megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return result


def measure(ask: list[str], **changes: Any) -> dict:
    """A worker's answer; it finds no tables on disk."""
    question = {**BASE, **changes, "ask": ask}
    command = [sys.executable, __file__, "--worker", json.dumps(question)]
    alone = {**os.environ, "PLD_ACCOUNTANT_CACHE": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


def speed(people: int) -> dict:
    """First and second query of a process: the upper bound alone, and all three numbers."""
    table: dict[str, Any] = {"people": people, **{k: v for k, v in BASE.items() if k != "people"}}
    measure(["upper", "all"], people=1000)  # compiles the kernels, once and for all
    for name in ("upper", "all"):
        ask = [name, name]
        found = measure(ask, people=people)
        table[name] = {
            "cold": found[name][0],
            "at_hand": found[name][1],
            "peak_megabytes": found["peak_megabytes"],
        }
        if name == "all":
            for key in WIDTHS:
                table[key] = found[key]
        best, line = table[name]["at_hand"], table[name]
        print(
            f"{name:>6}: cold {line['cold']:7.2f} s, "
            f"tables at hand {best:7.2f} s = {people / best:,.0f} people/s, peak {line['peak_megabytes']:,} MB"
        )
    found = measure([], people=people, blocks=True)
    for key in ("norms_per_second", "norms_per_second_in_blocks", "first_record_seconds"):
        table[key] = found[key]
    found = measure(["deltas", "rdp", "rdp", "mu", "delta"], people=people)
    table["six_deltas"], table["rdp"], table["mu"] = found["deltas"][0], found["rdp"][1], found["mu"][0]
    table["six_deltas_one_by_one"] = measure(["each delta"], people=people)["each delta"][0]
    table["delta_of_one"] = found["delta"][0]
    print(
        f"six deltas at once, upper: {table['six_deltas']:.2f} s, one by one {table['six_deltas_one_by_one']:.2f} s; "
        f"Renyi epsilon: {table['rdp']:.2f} s; "
        f"mu: {table['mu']:.2f} s; delta(1), all three: {table['delta_of_one']:.2f} s; "
        f"recording: {table['norms_per_second'] / 1e6:,.0f} million norms/s row by row, "
        f"{table['norms_per_second_in_blocks'] / 1e6:,.0f} in blocks; the first row "
        f"{table['first_record_seconds']:.2f} s"
    )
    print(
        f"certified: {table['certified']:.4%}; widest {table['widest_of_worst']:.3%} of the worst case's epsilon; "
        f"median relative width {table['median_relative_width']:.3%}"
    )
    return table


def compare(individuals: int) -> dict:
    """Epsilon of a few people from the same norms, by all accountants."""
    import pld_accountant as pa

    steps, delta = BASE["steps"], BASE["delta"]
    rows = np.stack(list(norm_rows(2000)))
    chosen = np.linspace(0, 1999, individuals).astype(int)
    ledger = pa.Ledger(2000, buckets=BASE["buckets"], **SETTING)
    for row in rows:
        ledger.record(row, repeat=steps // ROWS)
    ours = ledger.epsilon(delta).upper
    table: dict[str, Any] = {name: [] for name in (*PEERS, "inverse FFT")}
    exact = []
    for person in chosen:
        ratios = SETTING["noise_multiplier"] / np.minimum(rows[:, person].astype(float), 1.0)
        parts = [[float(s), SETTING["sample_rate"], steps // ROWS] for s in ratios]
        composition = pa.compose([(pa.SampledGaussian(s, q), n) for s, q, n in parts])
        exact.append(composition.epsilon(delta).estimate)
        for name in PEERS:
            table[name].append(peers.ask(name, parts, delta, seconds=150.0))
        table["inverse FFT"].append(individual_by_inverse_fft(parts, delta))
    error = np.max(np.abs(ours[chosen] / np.array(exact) - 1.0))
    print(f"{'this package, 256 buckets, upper':>34}: worst error {error:.1e} relative")
    result: dict[str, Any] = {"individuals": individuals, "exact": exact, "ours_worst_error": float(error)}
    for name, answers in table.items():
        good = [(a, x) for a, x in zip(answers, exact, strict=True) if a.get("epsilon") is not None]
        line = {"answers": answers}
        if good:
            line["seconds_per_person"] = float(np.mean([a["seconds"] for a, _ in good]))
            line["worst_error"] = float(max(abs(a["epsilon"] / x - 1.0) for a, x in good))
            print(
                f"{name:>34}: {line['seconds_per_person']:8.2f} s a person, worst error {line['worst_error']:.1e} "
                f"relative ({len(good)} of {individuals} answered)"
            )
        else:
            print(f"{name:>34}: {answers[0]['status']}")
        result[name] = line
    return result


def growth() -> dict:
    """One parameter varied at a time; tables at hand."""
    changes: dict[str, list] = {
        "people": [10_000, 100_000, 400_000],
        "steps": [400, 10_000, 1_000_000],
        "buckets": [64, 256, 1024],
        "delta": [1e-3, 1e-5, 1e-10, 1e-20],
    }
    table: dict[str, Any] = {"base": BASE}
    for key, values in changes.items():
        for value in values:
            found = measure(["upper", "upper", "all"], **{key: value})
            entry = {
                "upper_cold": found["upper"][0],
                "upper": found["upper"][1],
                "all": found["all"][0],
                "certified": found["certified"],
                "peak_megabytes": found["peak_megabytes"],
            }
            table.setdefault(key, {})[str(value)] = entry
            print(
                f"{key:>8} = {value:<10g} upper {entry['upper']:7.2f} s (first time {entry['upper_cold']:.2f} s), "
                f"all {entry['all']:7.2f} s, certified {entry['certified']:.4%}"
            )
    return table


def hard() -> dict:
    """Few steps, and deltas far out in the tail, which need more frequencies: lower, estimate and upper, cold."""
    cases = [{"steps": steps} for steps in (2, 3, 5, 10, 30)]
    cases += [{"delta": delta} for delta in (1e-30, 1e-60, 1e-80, 1e-100)]
    cases.append({"steps": 1000, "delta": 1e-20})
    table: dict[str, Any] = {"people": 10_000}
    for case in cases:
        found = measure(["all"], people=10_000, **case)
        name = ", ".join(f"{key} = {value:g}" for key, value in case.items())
        table[name] = {"all_cold": found["all"][0], **{key: found[key] for key in WIDTHS}}
        print(
            f"{name:>28}: {found['all'][0]:7.2f} s, widest {found['widest_of_worst']:.3%} of the largest epsilon, "
            f"median relative width {found['median_relative_width']:.3%}"
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--individuals", type=int, default=4, help="people for whom the other accountants are timed")
    parser.add_argument("--part", default="speed,peers,growth,hard")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(worker(json.loads(options.worker))))
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["machine"] = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    parts = {
        "speed": lambda: speed(options.people),
        "peers": lambda: compare(options.individuals),
        "growth": growth,
        "hard": hard,
    }
    for part in options.part.split(","):
        print(f"-- {part}")
        if part == "peers":
            results["versions"] = peers.versions()
        results[part] = parts[part]()
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
