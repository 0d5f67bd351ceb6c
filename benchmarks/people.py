"""Everybody's epsilon: how fast, in how much memory, and beside it what others need for single people.

Prints a table and writes results/people.json.  Run it from the repository's root: ``python benchmarks/people.py``
(``--people 100000`` for a shorter run).  dp-accounting takes part where it is installed (extra ``peers``); the plain way
of the papers' appendix, one inverse FFT a person on a grid of 2,000,000 points, always does.

The norms are those of a made-up training run of 10,000 steps: each person has a log-normal scale that decays over the
run, with log-normal noise around it; one in a hundred is always clipped, one in a hundred nearly silent.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
from scipy.stats import norm

import pld_accountant as pa

SIGMA, RATE, STEPS, DELTA = 2.0, 0.005, 10_000, 1e-5
BLOCKS = 40  # the norms change this often, so that a million people can be made up in a minute


def made_up_ledger(people: int, steps: int = STEPS, buckets: int = 256) -> pa.Ledger:
    """A ledger of the made-up run."""
    rng = np.random.default_rng(1)
    ledger = pa.Ledger(people, noise_multiplier=SIGMA, sample_rate=RATE, max_grad_norm=1.0, buckets=buckets)
    scale = np.exp(rng.normal(np.log(0.3), 0.8, people))
    scale[: people // 100] = 5.0
    scale[people // 100 : people // 50] = 0.002
    for block in range(BLOCKS):
        noise = np.exp(rng.normal(0.0, 0.4, people))
        ledger.record(scale * np.exp(-1.5 * block / BLOCKS) * noise, repeat=steps // BLOCKS)
    return ledger


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def ours(people: int) -> dict[str, Any]:
    """Cold (tables made) and warm, upper alone and all three, Renyi, recording; peak memory of the process."""
    made_up_ledger(200).epsilon(DELTA)  # compiled kernels are loaded, no table is kept
    fill, ledger = seconds(lambda: made_up_ledger(people))
    block = np.random.default_rng(0).uniform(0.0, 1.0, (50, min(people, 200_000)))
    counted = pa.Ledger(block.shape[1], noise_multiplier=SIGMA, sample_rate=RATE, max_grad_norm=1.0)
    counted.record(block)
    record, _ = seconds(lambda: counted.record(block))
    cold, _ = seconds(lambda: ledger.epsilon(DELTA, bounds="upper"))
    warm, _ = seconds(lambda: ledger.epsilon(DELTA, bounds="upper"))
    full_cold, bounds = seconds(lambda: ledger.epsilon(DELTA))
    full, _ = seconds(lambda: ledger.epsilon(DELTA))
    to_delta, _ = seconds(lambda: ledger.delta(0.5, bounds="upper"))
    renyi, loose = seconds(lambda: ledger.rdp_epsilon(DELTA))
    worst = ledger.worst_case().epsilon(DELTA).upper
    width = bounds.upper - bounds.lower
    return {
        "people": people,
        "norms_recorded_per_second": block.size / record,
        "fill_seconds": fill,
        "upper_cold_seconds": cold,
        "upper_warm_seconds": warm,
        "all_cold_seconds": full_cold,
        "all_warm_seconds": full,
        "delta_upper_seconds": to_delta,
        "renyi_seconds": renyi,
        "people_per_second_upper_warm": people / warm,
        "peak_memory_GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "certified": int(np.sum(bounds.status == pa.Status.CERTIFIED)),
        "worst_case_epsilon": worst,
        "largest_width_over_worst_case": float((width / worst).max()),
        "median_relative_width": float(np.median(width / bounds.upper)),
        "median_renyi_over_upper": float(np.median(loose / bounds.upper)),
    }


def some_people(count: int) -> list[list[tuple[float, int]]]:
    """Noise multipliers and counts of a few people, from buckets of their own (100 different ones each)."""
    rng = np.random.default_rng(5)
    out = []
    for _ in range(count):
        sigma = np.sort(np.round(rng.uniform(2.0, 30.0, 100), 3))
        counts = rng.multinomial(STEPS, rng.dirichlet(np.ones(100)))
        out.append([(float(s), int(n)) for s, n in zip(sigma, counts, strict=True) if n])
    return out


def plain_fourier(person: list[tuple[float, int]], points: int = 2_000_000, half: float = 10.0) -> float:
    """The papers' appendix read directly: densities at grid points, product of FFTs, an inverse FFT, bisection."""
    s = -half + 2 * half / points * np.arange(points)
    product = np.ones(points // 2 + 1, dtype=complex)
    for sigma, n in person:
        ratio = np.exp(s) - (1 - RATE)
        inside = ratio > 0
        x = sigma**2 * np.log(ratio[inside] / RATE) + 0.5
        density = np.zeros(points)
        mixture = (1 - RATE) * norm.pdf(x, 0, sigma) + RATE * norm.pdf(x, 1, sigma)
        density[inside] = mixture * sigma**2 * np.exp(s[inside]) / ratio[inside]
        product *= scipy.fft.rfft(np.fft.fftshift(density) * (2 * half / points)) ** n
    b = np.fft.fftshift(scipy.fft.irfft(product, points))
    low, high = 0.0, half
    for _ in range(60):
        e = 0.5 * (low + high)
        above = s > e
        low, high = (e, high) if np.sum(-np.expm1(e - s[above]) * b[above]) > DELTA else (low, e)
    return high


def dp_accounting(person: list[tuple[float, int]], interval: float) -> float:
    from dp_accounting import dp_event
    from dp_accounting.pld import pld_privacy_accountant

    accountant = pld_privacy_accountant.PLDAccountant(value_discretization_interval=interval)
    for sigma, n in person:
        accountant.compose(dp_event.PoissonSampledDpEvent(RATE, dp_event.GaussianDpEvent(sigma)), n)
    return float(accountant.get_epsilon(DELTA))


def single_people(count: int) -> list[dict[str, Any]]:
    """Seconds a person, and the result against ours, for each way."""
    people = some_people(count)
    steps = [[(pa.SampledGaussian(s, RATE), n) for s, n in person] for person in people]
    exact = [pa.compose(p).epsilon(DELTA) for p in steps]
    ways: dict[str, Callable[[int], float]] = {
        "pld_accountant, compose": lambda i: pa.compose(steps[i]).epsilon(DELTA).upper,
        "appendix, 2,000,000 points, inverse FFT": lambda i: plain_fourier(people[i]),
        "dp-accounting, 1e-4": lambda i: dp_accounting(people[i], 1e-4),
        "dp-accounting, 1e-5": lambda i: dp_accounting(people[i], 1e-5),
    }
    rows = []
    for name, way in ways.items():
        try:
            took, values = seconds(lambda way=way: [way(i) for i in range(count)])  # type: ignore[misc]
        except ImportError:
            rows.append({"way": name, "seconds_a_person": None, "largest_excess": None})
            continue
        excess = [v - b.estimate for v, b in zip(values, exact, strict=True)]
        rows.append({
            "way": name,
            "seconds_a_person": took / count,
            "largest_excess": max(excess),
            "smallest_excess": min(excess),
        })  # fmt: skip
    return rows


def growth() -> list[dict[str, Any]]:
    """Warm seconds for `upper` as people, steps, buckets and delta change one at a time."""
    rows = []
    base = {"people": 20_000, "steps": STEPS, "buckets": 256, "delta": DELTA}
    for change in (
        {}, {"people": 5_000}, {"people": 80_000}, {"steps": 1_000}, {"steps": 1_000_000}, {"buckets": 64},
        {"buckets": 1024}, {"delta": 1e-2}, {"delta": 1e-10}, {"delta": 1e-30}, {"delta": 1e-100},
    ):  # fmt: skip
        case = {**base, **change}
        ledger = made_up_ledger(case["people"], case["steps"], case["buckets"])
        ledger.epsilon(case["delta"], bounds="upper")
        took, bounds = seconds(lambda ledger=ledger, d=case["delta"]: ledger.epsilon(d, bounds="upper"))  # type: ignore[misc]
        certified = int(np.sum(bounds.status == pa.Status.CERTIFIED))
        rows.append(
            {**case, "seconds": took, "microseconds_a_person": 1e6 * took / case["people"], "certified": certified}
        )
    return rows


def table(rows: list[dict[str, Any]]) -> None:
    names = list(rows[0])
    cells = [[_text(row.get(n)) for n in names] for row in rows]
    widths = [max(len(n), *(len(c[i]) for c in cells)) for i, n in enumerate(names)]
    for line in [names, *cells]:
        print("  ".join(text.rjust(w) for text, w in zip(line, widths, strict=True)))
    print()


def _text(value: Any) -> str:
    return "missing" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--singles", type=int, default=2, help="people that every other way computes too")
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "load_before": os.getloadavg()[0]},
        "setting": {"noise_multiplier": SIGMA, "sample_rate": RATE, "steps": STEPS, "delta": DELTA, "buckets": 256},
    }
    result["ours"] = ours(arguments.people)
    for name, value in result["ours"].items():
        print(f"{name:>34}  {_text(value)}")
    print()
    result["single_people"] = single_people(arguments.singles)
    table(result["single_people"])
    result["growth"] = growth()
    table(result["growth"])
    result["machine"]["load_after"] = os.getloadavg()[0]
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "people.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {folder / 'people.json'}")


if __name__ == "__main__":
    main()
