"""A process that is killed while it saves leaves the old or the new file, whole, and no budget is spent twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


def survive(folder, kills):
    script = Path(__file__).with_name("killed.py")
    done = subprocess.run(
        [sys.executable, script, folder, str(kills)],
        capture_output=True,
        text=True,
        check=False,
        cwd=script.parents[2],
        env={**os.environ, "PYTHONPATH": str(script.parents[2]), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_a_killed_process_leaves_the_old_or_the_new_state(tmp_path):
    survive(tmp_path, 40)


@pytest.mark.slow
def test_many_killed_processes_leave_the_old_or_the_new_state(tmp_path):
    states, _ = survive(tmp_path, 500)
    assert states == 2, "only one of the two states was ever found"
