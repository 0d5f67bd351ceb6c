"""Training runs that are killed by SIGKILL, and what is lost; writes results/kills.json.

Run it from the repository's root: ``python benchmarks/kills.py`` (about 10 minutes; POSIX only).

Each run books its steps in a journal and a Renyi filter, releases them, and saves checkpoints, for 20,000 people.  A
process that is killed is followed by one that takes up what it left (``tests/training/killed_runs.py``).
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

KILLS = 500
HERE = Path(__file__).parent
OUT = HERE / "results" / "kills.json"


def main() -> None:
    """Kill, print the table, write the results."""
    script = HERE.parent / "tests" / "training" / "killed_runs.py"
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, script, folder, str(KILLS)], capture_output=True, text=True, check=True, env=environment
        )
    found = json.loads(done.stdout)
    rows = {
        "kills": found["kills"],
        **{f"  while {place}": number for place, number in found["places"].items()},
        "steps released": found["released"],
        "released steps lost": found["lost"],
        "steps counted that were not released": found["over"],
        "journals with a half-written end": found["torn"],
        "checkpoints that could not be read": found["unreadable"],
    }
    for name, number in rows.items():
        print(f"{name:40s}{number:8d}")
    results = {"machine": platform.processor() or platform.machine(), "python": platform.python_version(), **found}
    OUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
