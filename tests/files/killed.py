"""Processes that are killed while they save; `test_killed.py` runs this file as a script.

    python killed.py FOLDER KILLS

Imports are done once; each process to be killed is forked from here.  No thread has started then.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from pld_accountant.files import store
from pld_accountant.filters.gaussian import GaussianFilter

NORM, NOISE = 0.5, 4.0
STATES = [{"a": np.full(200_000, i), "b": np.arange(10) + i} for i in range(2)]


def killed(work, seconds):
    """Run `work` in a process of its own and kill it after some time."""
    process = os.fork()
    if not process:
        try:
            work()
        finally:
            os._exit(1)  # an error, because the work has no end
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(process, 0)[1]), "the process ended before it was killed"


def save_for_ever(path):
    while True:
        for i, arrays in enumerate(STATES):
            store.save(path, "killed", 1, {"number": i}, arrays)


def spend_for_ever(path, releases):
    """Book a step, save the filter, then release: one byte in a file."""
    f = GaussianFilter.load(path)
    with open(releases, "ab", buffering=0) as file:
        while True:
            if not f.admit([NORM])[0]:
                f._renew()
                os.truncate(releases, 0)  # before the save: a kill in between only over-counts
                f.save(path)
                continue
            f.save(path)
            file.write(b"x")


def main(folder, kills):
    state, budget, releases = folder / "state", folder / "budget", folder / "releases"
    store.save(state, "killed", 1, {"number": 0}, STATES[0])
    f = GaussianFilter(1.0, num_examples=1, noise_multiplier=NOISE)
    f.admit([0.0])  # compiled before the processes are forked
    f.save(budget)
    step = (NORM / NOISE) ** 2
    rng, seen = random.Random(0), set()
    for kill in range(kills):
        seconds = rng.uniform(0.001, 0.04)
        if kill % 2:
            killed(lambda: save_for_ever(state), seconds)
            header, arrays = store.load(state, "killed", 1)
            expected = STATES[header["number"]]
            assert all(np.array_equal(arrays[name], expected[name]) for name in expected)
            seen.add(header["number"])
        else:
            killed(lambda: spend_for_ever(budget, releases), seconds)
            released = releases.stat().st_size if releases.exists() else 0
            spent = GaussianFilter.load(budget).spent()[0] ** 2
            assert spent >= released * step * (1 - 1e-9), (spent, released)
    left = [path.name for path in folder.iterdir() if path.name.endswith(".part")]
    for path in (state, budget):
        store.save(path, "killed", 1, {}, {})
    assert sorted(os.listdir(folder)) == ["budget", "releases", "state"]
    print(len(seen), len(left))


main(Path(sys.argv[1]), int(sys.argv[2]))
