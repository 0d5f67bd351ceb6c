"""How far the bounds of epsilon lie apart, against processor time: prints tables, writes cost.json.

Run from the repository's root: ``python benchmarks/cost.py``.  For many steps and for a few: this package's spectral
tables at several allowed errors, its lattice at several sizes (the papers' grid, tilted), prv-accountant at several
errors, and dp-accounting's pessimistic and optimistic estimates at several intervals (which bound no round-off).  All
tables are made anew; both directions, the larger epsilon counts.  The time is the least of three.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import peers

from pld_accountant.engine.plancherel import Solution, solve
from pld_accountant.engine.tilting import Limits
from pld_accountant.tables.characteristic import SpectralMaker
from pld_accountant.tables.grid import LatticeMaker

RESULTS = Path(__file__).parent / "results" / "cost.json"
DELTA = 1e-5
CASES = {"many steps": [[2.0, 0.005, 10_000]], "few steps": [[1.0, 0.1, 5]]}
ERRORS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)  # relative, of delta
SIZES = tuple(2**k for k in range(10, 19, 2))
INTERVALS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
PRV_ERRORS = (1.0, 0.1, 0.01, 0.001)
FEW = Limits(tilts=16, frequencies=1 << 21, least_expectation=1e-5, work=3e9)


def ask(maker: Any, count: int, limits: Limits) -> Solution:
    """One person's bounds by one maker's tables."""
    return solve(np.array([[count]]), maker, np.array([np.log(DELTA)]), solve_epsilon=True, limits=limits)


def spectral(part: list, error: float) -> list[Solution]:
    """Removal and addition."""
    sigma, q, count = part
    limits = replace(FEW, error=error)
    makers = [SpectralMaker(np.array([sigma]), np.array([q]), d) for d in ("remove", "add")]
    return [ask(maker, count, limits) for maker in makers]


def lattice(part: list, size: int) -> list[Solution]:
    """Removal and addition, each with tables for the upper and for the lower bound."""
    sigma, q, count = part
    found = []
    for direction in ("remove", "add"):
        law = SpectralMaker(np.array([sigma]), np.array([q]), direction)
        above, below = (ask(LatticeMaker(law, side, size), count, FEW) for side in ("upper", "lower"))
        above.lower, above.solved = below.lower, above.solved & below.solved
        found.append(above)
    return found


def timed(run: Callable[[], list[Solution]]) -> dict:
    """The larger of two directions, and the least processor time of three."""
    least = np.inf
    for _ in range(3):
        start = time.process_time()
        found = run()
        least = min(least, time.process_time() - start)
    if not all(one.solved[0] for one in found):
        return {"status": "not certified", "seconds": least}
    lower, upper = (max(float(getattr(one, side)[0]) for one in found) for side in ("lower", "upper"))
    return {"lower": lower, "upper": upper, "seconds": least}


def routes(part: list) -> Iterable[tuple[str, float, dict]]:
    """Name, setting, answer."""
    timed(partial(spectral, part, 1e-3))  # compiles
    timed(partial(lattice, part, 1024))
    for error in ERRORS:
        yield "spectral", error, timed(partial(spectral, part, error))
    for size in SIZES:
        yield "lattice", size, timed(partial(lattice, part, size))
    for interval in INTERVALS:
        yield "dp-accounting", interval, peers.ask(f"dp-accounting both {interval:g}", [part], DELTA)
    for error in PRV_ERRORS:
        yield "prv-accountant", error, peers.ask(f"prv-accountant {error:g}", [part], DELTA)


def main() -> None:
    os.environ["PLD_ACCOUNTANT_CACHE"] = ""  # no tables from the disk
    results: dict[str, Any] = {"delta": DELTA, "peers": peers.versions(), "numpy": np.__version__}
    for name, parts in CASES.items():
        print(f"-- {name}: noise multiplier, sample rate, steps {parts[0]}")
        table: dict[str, Any] = {}
        for route, setting, answer in routes(parts[0]):
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
