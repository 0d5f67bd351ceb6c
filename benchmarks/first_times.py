"""What a process pays before it answers: prints a table, writes first_times.json.

Run from the repository's root: ``python benchmarks/first_times.py [--large]``.  Each question is asked in a process of
its own: first with an empty folder of machine code; then in a second process, which finds the machine code and the
tables on disk; then in one without tables on disk.  "warm" is a second time in the same process, by a new ledger of the
same norms, which has no tables in memory.  "again" asks the same ledger, which has all tables.  Wall seconds and
processor seconds are of the call alone; "process" is the whole process, with the imports and the norms.  The later
processes are the best of three.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "first_times.json"
STEPS, DELTA = 200, 1e-5
PEOPLE = {"small": 300, "medium": 60_000, "large": 1_000_000}
QUESTION = "--noise-multiplier 2 --sample-rate 0.005 --steps 10000 --delta 1e-5"
COMMAND = ["-m", "pld_accountant", "epsilon-of", *QUESTION.split()]


def measured(call: Any) -> tuple[Any, dict[str, float]]:
    """What a call returns, and its seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = call()
    return found, {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def ask(people: int) -> dict[str, dict[str, float]]:
    """The seconds of a process that counts random norms and asks for everybody's epsilon three times."""
    import numpy as np

    import pld_accountant as pa

    rng = np.random.default_rng(0)
    norms = rng.uniform(0.0, 1.2, (STEPS, people)).astype(np.float32) * rng.random(people, dtype=np.float32)

    def count() -> pa.Ledger:
        return pa.Ledger.from_norms(norms, noise_multiplier=2.0, sample_rate=0.01, max_grad_norm=1.0)

    ledger, counting = measured(count)
    _, first = measured(lambda: ledger.epsilon(DELTA))
    other = count()
    _, warm = measured(lambda: other.epsilon(DELTA))
    _, again = measured(lambda: other.epsilon(DELTA))
    return {"count": counting, "epsilon": first, "warm": warm, "again": again}


def process(words: list[str], folder: str, tables: bool) -> tuple[str, dict[str, float]]:
    """The output of a Python process, and its seconds; all that it keeps lies in `folder`."""
    kept = {
        "NUMBA_CACHE_DIR": f"{folder}/numba",
        "PYTHONPYCACHEPREFIX": f"{folder}/python",
        "PLD_ACCOUNTANT_CACHE": f"{folder}/tables" if tables else "",
    }
    environment = {**os.environ, **kept, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *words], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, {"wall": time.perf_counter() - wall, "cpu": cpu}


def ledgers(people: int, folder: str, runs: int, tables: bool = True) -> dict[str, dict[str, float]]:
    """The seconds of the fastest of some processes."""
    found = []
    for _ in range(runs):
        out, whole = process([__file__, str(people)], folder, tables)
        found.append({**json.loads(out), "process": whole})
    return min(found, key=lambda one: one["epsilon"]["wall"])


def show(case: str, state: str, what: str, seconds: dict[str, float]) -> None:
    """One line of the table."""
    print(
        f"{case:>8} {state:<16} {what:<8} {seconds['wall']:8.2f} s wall {seconds['cpu']:8.2f} s processor", flush=True
    )


def main() -> None:
    """Measure every case."""
    results: dict[str, Any] = {"steps": STEPS, "delta": DELTA, "cores": os.cpu_count(), "people": PEOPLE}
    for case in ("small", "medium", *(["large"] if "--large" in sys.argv else [])):
        with tempfile.TemporaryDirectory() as folder:
            found = {
                "empty folder": ledgers(PEOPLE[case], folder, 1),
                "second process": ledgers(PEOPLE[case], folder, 3),
                "without tables": ledgers(PEOPLE[case], folder, 3, tables=False),
            }
            kept = sum(path.stat().st_size for path in Path(folder, "tables").iterdir())
        print(f"{case:>8} tables on disk {kept / 1e6:.1f} MB")
        results[case] = {**found, "bytes of tables": kept}
        for state, parts in found.items():
            for what, seconds in parts.items():
                show(case, state, what, seconds)
    with tempfile.TemporaryDirectory() as folder:
        first = process(COMMAND, folder, True)[1]
        second = min((process(COMMAND, folder, True)[1] for _ in range(5)), key=lambda one: one["wall"])
        warming = process(["-m", "pld_accountant", "warm-up", "--quiet"], folder, True)[1]
        warmed = min((process(COMMAND, folder, True)[1] for _ in range(5)), key=lambda one: one["wall"])
    results["epsilon-of"] = {"empty folder": first, "second process": second, "after warm-up": warmed}
    results["warm-up"] = {"empty folder": warming}
    show("warm-up", "empty folder", "process", warming)
    for state, seconds in results["epsilon-of"].items():
        show("command", state, "process", seconds)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].isdigit():
        print(json.dumps(ask(int(sys.argv[1]))))
    else:
        main()
