"""How many steps the filters admit: prints tables and writes results/potential.json.

Run it from the repository's root: ``python benchmarks/potential.py``.  It takes about fifteen minutes.  Compared are

- `pld`: the steps for which the non-adaptive epsilon stays below the target, certified, both directions.  No filter for
  adaptive runs can promise more;
- `potential`: `PotentialFilter`, proven for adaptive runs, and the seconds that its budget takes;
- `renyi`: `RenyiFilter.for_epsilon`, proven, at its best order;
- `approximate`: the rule of Koskela, Tobaben and Honkela (2023), Section 5, as in `PLDFilter`: not proven.  Its mu is
  the one that implies the target with min_delta = delta / 10.

Equal steps of a norm are counted first; then streams of norms, until the first refusal.  Files of budgets are not used.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ["PLD_ACCOUNTANT_CACHE"] = ""

import numpy as np

import pld_accountant as pa
from pld_accountant.notions import gdp


@dataclass(frozen=True)
class Case:
    """A target is an epsilon, or the epsilon of `steps` non-adaptive steps."""

    noise_multiplier: float
    sample_rate: float
    delta: float
    epsilon: float | None = None
    steps: int = 0


MAIN = Case(2.0, 0.005, 1e-5, steps=10_000)
CASES = (
    MAIN,
    Case(2.0, 0.005, 1e-6, epsilon=1.0),
    Case(2.0, 0.005, 1e-10, steps=10_000),
    Case(2.0, 0.005, 1e-10, epsilon=1.0),
    Case(4.0, 0.05, 1e-5, epsilon=3.0),
    Case(2.0, 0.03, 1e-5, steps=300),
    Case(1.0, 0.01, 1e-5, steps=1_000),
    Case(1.0, 0.001, 1e-6, epsilon=1.0),
    # twenty more over the whole range
    Case(1.0, 0.01, 1e-10, steps=1_000),
    Case(0.8, 0.01, 1e-5, steps=5_000),
    Case(1.0, 0.03, 1e-5, steps=300),
    Case(1.5, 0.01, 1e-8, steps=2_000),
    Case(0.8, 0.005, 1e-6, steps=4_000),
    Case(0.6, 0.01, 1e-12, steps=10_000),
    Case(0.6, 0.1, 1e-5, steps=100),
    Case(0.6, 0.1, 1e-12, steps=100),
    Case(0.6, 0.0001, 1e-6, steps=10_000),
    Case(0.6, 0.001, 1e-12, steps=10_000),
    Case(0.7, 0.001, 1e-5, steps=3_000),
    Case(1.0, 0.001, 1e-5, steps=100),
    Case(1.0, 0.1, 1e-3, steps=100),
    Case(1.0, 0.02, 1e-5, steps=100),
    Case(1.0, 0.001, 1e-12, steps=100_000),
    Case(2.0, 0.005, 1e-12, steps=10_000),
    Case(2.0, 0.001, 1e-5, steps=1_000_000),
    Case(4.0, 0.1, 1e-5, steps=100),
    Case(10.0, 0.1, 1e-3, steps=1_000_000),
    Case(10.0, 0.1, 1e-12, steps=100),
    Case(10.0, 0.0001, 1e-8, steps=1_000_000),
)
NORMS = (1.0, 0.5, 0.25, 0.125)


def most(fits: Callable[[int], bool], guess: int) -> int:
    """The largest number of steps that fits."""
    low, high = 0, max(guess, 1)
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def composed(case: Case, norm: float, steps: int) -> Any:
    return pa.compose([(pa.SampledGaussian(case.noise_multiplier / norm, case.sample_rate), steps)])


def measure(case: Case) -> dict[str, Any]:
    """One row of the first table."""
    delta = case.delta
    epsilon = case.epsilon
    if epsilon is None:
        epsilon = float(composed(case, 1.0, case.steps).epsilon(delta).upper)
    step = {
        "num_examples": len(NORMS),
        "noise_multiplier": case.noise_multiplier,
        "sample_rate": case.sample_rate,
        "max_grad_norm": 1.0,
    }
    start = time.perf_counter()
    potential = pa.PotentialFilter(epsilon, delta, **step)
    seconds = time.perf_counter() - start
    some = 2**40
    by_potential = potential.admit(NORMS, steps=some)
    by_renyi = pa.RenyiFilter.for_epsilon(epsilon, delta, **step).admit(NORMS, steps=some)
    mu, min_delta = gdp.mu(epsilon, 0.9 * delta), 0.1 * delta
    pld, approximate = [], []
    for norm, reached in zip(NORMS, by_potential.tolist(), strict=True):
        pld.append(most(lambda n, s=norm: composed(case, s, n).epsilon(delta).upper <= epsilon, reached))
        if norm in (1.0, 0.125):
            approximate.append(most(lambda n, s=norm: composed(case, s, n).mu(min_delta).upper <= mu, reached))
    wider = pa.PotentialFilter(1.25 * epsilon, delta, alpha=potential.alpha, **step)
    adaptive = smallest(lambda e: wider.budget_of(e, delta) >= pld[0], epsilon, 1.25 * epsilon)
    return {
        **asdict(case),
        "epsilon": epsilon,
        "alpha": potential.alpha,
        "seconds": seconds,
        "norms": NORMS,
        "pld": pld,
        "potential": by_potential.tolist(),
        "renyi": by_renyi.tolist(),
        "approximate": approximate,
        "epsilon_of_the_pld_steps": {
            "potential": adaptive if adaptive < math.inf else None,
            "renyi": composed(case, 1.0, pld[0]).rdp_epsilon(delta),
        },
    }


def smallest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest number for which something holds, to a relative 1e-6; inf if it does not hold at `high`."""
    if not holds(high):
        return math.inf
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def streams(steps: int) -> dict[str, np.ndarray]:
    """Norms of one person at each step."""
    rng = np.random.default_rng(0)
    at = np.arange(steps)
    return {
        "1": np.ones(steps),
        "lognormal(ln 0.2, 0.6), at most 1": np.minimum(np.exp(rng.normal(np.log(0.2), 0.6, steps)), 1.0),
        "lognormal(ln 0.5, 0.8), at most 1": np.minimum(np.exp(rng.normal(np.log(0.5), 0.8, steps)), 1.0),
        "uniform(0, 1)": rng.uniform(0, 1, steps),
        "1 or 0.1, even odds": np.where(rng.random(steps) < 0.5, 1.0, 0.1),
        "5,000 of 0.3, then 1": np.where(at < 5000, 0.3, 1.0),
        "beta(2, 8)": rng.beta(2, 8, steps),
        "1 falling to 0.1 over 20,000, then 0.1": np.maximum(1.0 - 0.9 * at / 20_000, 0.1),
    }


def until_refused(keep: Any, table: np.ndarray) -> list[int]:
    """Steps of each column before the first one that is refused."""
    counts = np.full(table.shape[1], len(table))
    for i, row in enumerate(table):
        refused = ~keep.admit(row)
        counts[refused] = np.minimum(counts[refused], i)
    return counts.tolist()


def pld_of_stream(norms: np.ndarray, case: Case, epsilon: float, guess: int) -> int:
    """Steps of a stream for which the non-adaptive epsilon stays below the target."""

    def fits(count: int) -> bool:
        book = pa.Ledger(
            1, noise_multiplier=case.noise_multiplier, sample_rate=case.sample_rate, max_grad_norm=1.0, buckets=1024
        )
        values, counts = np.unique(np.ceil(norms[:count] * 4096) / 4096, return_counts=True)
        for value, number in zip(values.tolist(), counts.tolist(), strict=True):
            book.record([value], repeat=number)
        return bool(book.epsilon(case.delta).estimate[0] <= epsilon)

    return most(lambda n: n <= norms.size and fits(n), guess)


def measure_streams(case: Case) -> list[dict[str, Any]]:
    """The second table."""
    epsilon = float(composed(case, 1.0, case.steps).epsilon(case.delta).upper)
    named = streams(400_000)
    table = np.stack(list(named.values()), axis=1)
    step = {
        "num_examples": len(named),
        "noise_multiplier": case.noise_multiplier,
        "sample_rate": case.sample_rate,
        "max_grad_norm": 1.0,
    }
    both = [
        until_refused(keep, table)
        for keep in (
            pa.PotentialFilter(epsilon, case.delta, **step),
            pa.RenyiFilter.for_epsilon(epsilon, case.delta, **step),
        )
    ]
    return [
        {
            "norms": name,
            "epsilon": epsilon,
            "pld": pld_of_stream(norms, case, epsilon, potential),
            "potential": potential,
            "renyi": renyi,
        }
        for (name, norms), potential, renyi in zip(named.items(), *both, strict=True)
    ]


def main() -> None:
    """Measure, print and write."""
    heads = ("norm 1", "norm 1/8", "Renyi", "1/8", "approx.", "1/8")
    print(f"{'sigma':>6}{'q':>8}{'delta':>8}{'epsilon':>10}{'PLD steps':>11}{'seconds':>9}", end="")
    print("".join(f"{head:>10}" for head in heads), "  epsilon of the PLD steps: potential, Renyi")
    rows = []
    for case in CASES:
        row = measure(case)
        rows.append(row)
        shares = [row[kind][i] / row["pld"][j] for kind in ("potential", "renyi") for i, j in ((0, 0), (3, 3))]
        shares += [row["approximate"][0] / row["pld"][0], row["approximate"][1] / row["pld"][3]]
        over = [
            (math.inf if value is None else value / row["epsilon"] - 1)
            for value in row["epsilon_of_the_pld_steps"].values()
        ]
        print(
            f"{case.noise_multiplier:>6g}{case.sample_rate:>8g}{case.delta:>8g}{row['epsilon']:>10.5f}"
            f"{row['pld'][0]:>11,}{row['seconds']:>9.1f}" + "".join(f"{share:>10.4f}" for share in shares),
            f"{over[0]:>+12.2%}{over[1]:>+9.2%}" if over[0] < math.inf else f"{'over +25%':>12}{over[1]:>+9.2%}",
            flush=True,
        )
    flowing = measure_streams(MAIN)
    print(f"\n{'stream of norms':42}{'PLD':>10}{'potential':>11}{'share':>9}{'Renyi':>9}")
    for row in flowing:
        print(
            f"{row['norms']:42}{row['pld']:>10,}{row['potential']:>11,}{row['potential'] / row['pld']:>9.4f}"
            f"{row['renyi'] / row['pld']:>9.4f}"
        )
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__}
    path = Path(__file__).parent / "results" / "potential.json"
    path.write_text(json.dumps({"machine": machine, "cases": rows, "streams": flowing}, indent=1) + "\n")


if __name__ == "__main__":
    main()
