"""Training runs that are killed at any moment; `test_journal.py` and `benchmarks/kills.py` run this file as a script.

    python killed_runs.py FOLDER KILLS

A run books each step in its journal and its filter, releases it, and saves a checkpoint after some steps.  It is
killed, and the next run takes up the checkpoint and the journal.  Each process to be killed is forked from here.

Prints one JSON object: the kills; where they came; the steps released; the released steps that journal, checkpoint or
filter lost; the steps that the journal holds and that were not released; the journals with a half-written record, and
the checkpoints that could not be read.
"""

import json
import mmap
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from pld_accountant.files.store import StoreError
from pld_accountant.filters.renyi import RenyiFilter
from pld_accountant.training.individual import IndividualSteps
from pld_accountant.training.journal import Journal, ledger_of

RUN = {"noise_multiplier": 5.0, "sample_rate": 0.01, "max_grad_norm": 1.0}
PEOPLE = 20_000  # so that a row takes some time to write
NORMS = np.linspace(0.1, 0.5, PEOPLE)
PLACES = ("resuming", "refreshing", "booking", "releasing", "saving")


def started(folder, checkpoint=True):
    journal = Journal(folder / "journal", PEOPLE, max_grad_norm=1.0)
    keep = RenyiFilter.for_epsilon(10.0, 1e-5, num_examples=PEOPLE, **RUN)
    run = IndividualSteps(PEOPLE, **RUN, refresh=3, journal=journal, keep=keep)
    if checkpoint and (folder / "checkpoint").exists():
        run.load(folder / "checkpoint")
    run.due  # noqa: B018  reads the journal
    return run


def train_for_ever(folder, place, ready, save_every):
    """Book a step, then release it: one byte in a file."""
    run = started(folder)
    os.write(ready, b"x")
    with open(folder / "releases", "ab", buffering=0) as file:
        while True:
            if run.due:
                place[0] = 1
                run.refresh(NORMS * (1 + run.steps % 7 / 10))
            place[0] = 2
            run.begin()
            place[0] = 3
            file.write(b"x")
            if run.steps % save_every == 0:
                place[0] = 4
                run.save(folder / "checkpoint")


def killed(folder, rng):
    """Start a run, kill it, and return where it was."""
    ready, tell = os.pipe()
    place = mmap.mmap(-1, 1)
    # a checkpoint takes far longer than a step: if all runs saved often, nearly all kills would hit a save
    save_every = 2 if rng.random() < 0.3 else 40
    process = os.fork()
    if not process:
        try:
            train_for_ever(folder, place, tell, save_every)
        finally:
            os._exit(1)
    os.close(tell)
    if rng.random() < 0.8:  # otherwise it may still be reading its files
        assert os.read(ready, 1), "the run did not start"
    os.close(ready)
    time.sleep(rng.uniform(0, 0.1))
    os.kill(process, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(process, 0)[1]), "the run ended before it was killed"
    return PLACES[place[0]]


def main(folder, kills):
    run = started(folder)  # compiled before the processes are forked
    run.refresh(NORMS)
    run.begin()
    run.save(folder / "checkpoint")
    run.journal.close()
    rng, before, total = random.Random(0), 0, 0
    places, found = dict.fromkeys(PLACES, 0), {"lost": 0, "over": 0, "torn": 0, "unreadable": 0}

    def fresh():
        for name in ("journal", "checkpoint"):
            (folder / name).unlink(missing_ok=True)
        (folder / "releases").write_bytes(b"")

    fresh()
    for _ in range(kills):
        places[killed(folder, rng)] += 1
        released = (folder / "releases").stat().st_size
        if not released:
            continue
        ledger, message = ledger_of(folder / "journal")
        found["torn"] += bool(message)
        found["lost"] += max(0, released - ledger.steps)
        # the steps that earlier kills over-counted stay in the journal
        new = ledger.steps - released - before
        assert new <= 1, "a kill over-counts one step at most"
        found["over"], before = found["over"] + max(new, 0), max(before, ledger.steps - released)
        try:
            resumed = started(folder)
        except StoreError:
            found["unreadable"] += 1
            continue
        resumed.journal.close()
        twin = started(folder, checkpoint=False)
        twin.journal.close()
        found["lost"] += max(0, ledger.steps - resumed.ledger.steps)
        assert np.array_equal(resumed.ledger.counts, twin.ledger.counts)
        assert np.array_equal(resumed.keep.spent(), twin.keep.spent())
        if rng.random() < 0.1:
            total, before = total + released, 0
            fresh()
    released = total + (folder / "releases").stat().st_size
    print(json.dumps({"kills": kills, "places": places, "released": released, **found}))


main(Path(sys.argv[1]), int(sys.argv[2]))
