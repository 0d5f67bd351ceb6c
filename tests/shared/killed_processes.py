"""Scripts that kill processes of their own, for tests."""

import os
import subprocess
import sys
from pathlib import Path


def killing(test, name, folder, kills):
    """What the script beside a test file prints, after it has killed so many processes."""
    script = Path(test).with_name(name)
    root = script.parents[2]
    done = subprocess.run(
        [sys.executable, script, folder, str(kills)],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
