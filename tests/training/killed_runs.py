"""Training runs that are killed between and inside of steps; `test_journal.py` runs this file as a script.

    python killed_runs.py FOLDER KILLS

Prints the kills, the steps released, the released steps that the journal lost, the steps that it holds and that were
not released, and the records that were found half-written.  Each process to be killed is forked from here.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from pld_accountant.filters.renyi import RenyiFilter
from pld_accountant.training.individual import IndividualSteps
from pld_accountant.training.journal import Journal, ledger_of

RUN = {"noise_multiplier": 5.0, "sample_rate": 0.01, "max_grad_norm": 1.0}
PEOPLE = 20_000  # so that a row takes some time to write
NORMS = np.linspace(0.1, 0.5, PEOPLE)


def started(path):
    journal = Journal(path, PEOPLE, max_grad_norm=1.0)
    keep = RenyiFilter.for_epsilon(10.0, 1e-5, num_examples=PEOPLE, **RUN)
    return IndividualSteps(PEOPLE, **RUN, refresh=3, journal=journal, keep=keep), keep


def train_for_ever(path, releases, ready):
    """Book a step, then release it: one byte in a file."""
    run, _ = started(path)
    os.write(ready, b"x")
    with open(releases, "ab", buffering=0) as file:
        while True:
            if run.due:
                run.refresh(NORMS * (1 + run.steps % 7 / 10))
            run.begin()
            file.write(b"x")


def main(folder, kills):
    path, releases = folder / "journal", folder / "releases"
    run, _ = started(path)  # compiled before the processes are forked
    run.refresh(NORMS)
    run.begin()
    run.journal.close()
    os.unlink(path)
    releases.touch()
    rng, lost, over, torn, before, total = random.Random(0), 0, 0, 0, 0, 0
    for _ in range(kills):
        ready, tell = os.pipe()
        process = os.fork()
        if not process:
            try:
                train_for_ever(path, releases, tell)
            finally:
                os._exit(1)
        os.close(tell)
        assert os.read(ready, 1), "the run did not start"
        os.close(ready)
        time.sleep(rng.uniform(0, 0.1))
        os.kill(process, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(process, 0)[1]), "the run ended before it was killed"
        released = releases.stat().st_size
        if not released:
            continue
        ledger, message = ledger_of(path)
        torn += bool(message)
        lost += max(0, released - ledger.steps)
        # the steps that earlier kills over-counted stay in the journal
        new = ledger.steps - released - before
        assert new in (0, 1), "a kill over-counts one step at most"
        over, before = over + new, before + new
        if rng.random() < 0.1:
            total += released
            resumed, keep = started(path)
            assert resumed.ledger.steps == ledger.steps
            twin = RenyiFilter.for_epsilon(10.0, 1e-5, num_examples=PEOPLE, **RUN)
            for row in resumed.journal.rows():
                for _ in range(row.steps):
                    twin.admit(row.norms)
            assert np.array_equal(keep.spent(), twin.spent())
            resumed.journal.close()
            os.unlink(path)
            os.truncate(releases, 0)
            before = 0
    print(kills, total + releases.stat().st_size, lost, over, torn)


main(Path(sys.argv[1]), int(sys.argv[2]))
