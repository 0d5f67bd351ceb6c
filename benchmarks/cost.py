"""How far the bounds of epsilon lie apart, against processor time: prints tables, writes cost.json.

Run from the repository's root: ``NUMBA_NUM_THREADS=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python
benchmarks/cost.py``; with more threads, processor time would include that of threads that wait.  It measures two
compositions, of many steps and of few, by four routes: this package's characteristic tables at several allowed errors;
its grid tables at several sizes; prv-accountant at several errors; and dp-accounting's pessimistic and optimistic
estimates, which do not bound round-off, at several intervals.  All tables are made anew.  The larger epsilon of the two
directions counts.  Each time is the least of several runs.  If another accountant is not installed, its earlier results
are kept.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import peers

from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine.plancherel import solve
from pld_accountant.engine.question import EpsilonAt
from pld_accountant.engine.tilting import Limits
from pld_accountant.engine.working import WorkingBounds
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.tables.makers import TableMakers
from pld_accountant.tables.table import TableMaker

RESULTS = Path(__file__).parent / "results" / "cost.json"
DELTA = 1e-5
CASES = {"many steps": [[2.0, 0.005, 10_000]], "few steps": [[1.0, 0.1, 5]]}
ERRORS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)  # relative, of delta
SIZES = tuple(2**k for k in range(10, 19, 2))
INTERVALS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
PRV_ERRORS = (1.0, 0.1, 0.01, 0.001)
NEGLIGIBLE = 1e-14  # mass of all steps outside of the grid, relative to delta
LIMITS = Limits(tilts=16, frequencies=1 << 21, least_expectation=1e-5, work=3e9)


def ask(maker: TableMaker, count: int, limits: Limits) -> WorkingBounds:
    """One person's bounds by one maker's tables."""
    return solve(WholeCounts(np.array([[count]])), maker, EpsilonAt(DELTA), limits=limits)


def makers_of(sigma: float, q: float) -> Iterator[TableMakers]:
    """New makers of tables for removal and for addition."""
    for direction in ("remove", "add"):
        yield TableMakers(SampledGaussianSteps(np.array([sigma]), np.array([q]), direction))


def characteristic(part: list, error: float) -> list[WorkingBounds]:
    """Removal and addition."""
    sigma, q, count = part
    limits = replace(LIMITS, error=error)
    return [ask(makers.characteristic(interpolated=False), count, limits) for makers in makers_of(sigma, q)]


def grid(part: list, points: int) -> list[WorkingBounds]:
    """Removal and addition, each with tables for the upper and for the lower bound."""
    sigma, q, count = part
    reach = math.sqrt(2.0 * math.log(count / (NEGLIGIBLE * DELTA)))
    found = []
    for makers in makers_of(sigma, q):
        above, below = (ask(makers.grid(side, points, reach), count, LIMITS) for side in ("upper", "lower"))
        above.lower, above.solved = below.lower, above.solved & below.solved
        found.append(above)
    return found


def timed(run: Callable[[], list[WorkingBounds]]) -> dict:
    """The larger of two directions, and the least processor time of the runs in two seconds, or of three."""
    least, begun, runs = np.inf, time.monotonic(), 0
    while runs < 3 or time.monotonic() < begun + 2.0:
        runs += 1
        start = time.process_time()
        found = run()
        least = min(least, time.process_time() - start)
    if not all(one.solved[0] for one in found):
        return {"status": "not certified", "seconds": least}
    lower, upper = (max(float(getattr(one, side)[0]) for one in found) for side in ("lower", "upper"))
    return {"lower": lower, "upper": upper, "seconds": least}


def routes(part: list) -> Iterable[tuple[str, float, dict]]:
    """Name, setting, answer."""
    timed(partial(characteristic, part, 1e-3))  # compiles
    timed(partial(grid, part, 1024))
    for error in ERRORS:
        yield "characteristic", error, timed(partial(characteristic, part, error))
    for size in SIZES:
        yield "grid", size, timed(partial(grid, part, size))
    for interval in INTERVALS:
        yield "dp-accounting", interval, peers.ask(f"dp-accounting both {interval:g}", [part], DELTA)
    for error in PRV_ERRORS:
        yield "prv-accountant", error, peers.ask(f"prv-accountant {error:g}", [part], DELTA)


def main() -> None:
    earlier = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    versions = {**earlier.get("peers", {}), **{name: v for name, v in peers.versions().items() if v != "missing"}}
    results: dict[str, Any] = {"delta": DELTA, "peers": versions, "numpy": np.__version__}
    for name, parts in CASES.items():
        print(f"-- {name}: noise multiplier, sample rate, steps {parts[0]}")
        table: dict[str, Any] = {}
        old = earlier.get(name, {}).get("routes", {})
        for route, setting, found in routes(parts[0]):
            answer = found
            if answer.get("status") == "missing":
                kept = [one for one in old.get(route, []) if one["setting"] == setting]
                answer = {k: v for k, v in kept[0].items() if k != "setting"} if kept else answer
            table.setdefault(route, []).append({"setting": setting, **answer})
            if "upper" in answer:
                low, high = answer["lower"], answer["upper"]
                width = f"{low:.10g} to {high:.10g}, {high - low:.1e} apart"
            else:
                width = answer["status"]
            print(f"{route:>16} {setting:<8g} {width:<55} {answer.get('seconds', np.nan):9.4f} s")
        results[name] = {"steps": parts, "routes": table}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
