"""The accountants of Opacus's registry side by side; writes results/opacus_accountants.json.

Run it from the repository's root: ``python benchmarks/opacus_accountants.py`` (seconds; needs the extra ``opacus``).

Each accountant gets the same history and one call of ``get_epsilon``, the first for this history.  ``pld`` gives an
upper bound, with its lower bound beside it.  ``rdp`` is an upper bound, ``prv`` an estimate plus its own error of 0.01,
and ``gdp`` an approximation for many steps without a bound.
"""

from __future__ import annotations

import json
import platform
import time
import warnings
from pathlib import Path

import opacus
from opacus.accountants import create_accountant

import pld_accountant.training.opacus  # noqa: F401  registers "pld"

SIGMAS = (0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0)
RATE, STEPS, DELTA = 0.005, 2000, 1e-5
NAMES = ("pld", "rdp", "prv", "gdp")
OUT = Path(__file__).parent / "results" / "opacus_accountants.json"


def main() -> None:
    """Ask every accountant, print the table, write the results."""
    warnings.simplefilter("ignore")
    table = []
    first = create_accountant(mechanism="pld")
    first.history = [(5.0, 0.01, 10)]
    first.get_epsilon(DELTA)  # machine code is loaded or compiled
    for sigma in SIGMAS:
        row: dict[str, object] = {"noise_multiplier": sigma}
        for name in NAMES:
            accountant = create_accountant(mechanism=name)
            accountant.history = [(sigma, RATE, STEPS)]
            start = time.perf_counter()
            row[name] = float(accountant.get_epsilon(DELTA))
            row[f"{name}_seconds"] = time.perf_counter() - start
            if name == "pld":
                row["pld_lower"] = float(accountant.bounds(DELTA).lower)
        table.append(row)
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    results = {
        "machine": platform.processor() or platform.machine(),
        "versions": {"opacus": opacus.__version__, "python": platform.python_version()},
        "run": {"sample_rate": RATE, "steps": STEPS, "delta": DELTA},
        "table": table,
    }
    OUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
