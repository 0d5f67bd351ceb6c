"""The log of a run: whole up to its last whole step, whatever stops the writer."""

import copy
import json
import multiprocessing
import os
import pickle
import struct

import numpy as np
import pytest
from killed_processes import killing

import pld_accountant as pa
from pld_accountant.files.store import StoreError
from pld_accountant.training import journal as journal_module
from pld_accountant.training.individual import IndividualSteps
from pld_accountant.training.journal import Journal, ledger_of, relative

RUN = {"noise_multiplier": 1.5, "sample_rate": 0.02, "max_grad_norm": 2.0}
NORMS = np.array([0.0, 0.3, 1.0, 5.0])


def written(path, steps=25, keep=None):
    with Journal(path, 4, max_grad_norm=2.0) as journal:
        run = IndividualSteps(4, **RUN, refresh=10, journal=journal, keep=keep)
        for step in range(steps):
            if run.due:
                run.refresh(NORMS * (1 + step / 40))
            run.begin(1.5 if step < 18 else 1.2, 2.0 if step < 22 else 1.7)
        return run


def test_a_journal_gives_the_ledger_of_its_run(tmp_path):
    run = written(tmp_path / "log")
    ledger, message = ledger_of(tmp_path / "log")
    assert message == "" and ledger.steps == 25 and ledger.schedule == run.ledger.schedule
    np.testing.assert_array_equal(ledger.counts, run.ledger.counts)
    # three refreshes, and a row when the clipping norm changes the caps
    assert (tmp_path / "log").stat().st_size < 4 * 60 + 25 * 40 + 150
    assert (tmp_path / "log").stat().st_mode & 0o77 == 0


def test_every_cut_loads_up_to_its_last_whole_step(tmp_path):
    written(tmp_path / "log", 12)
    content = (tmp_path / "log").read_bytes()
    seen = set()
    for length in range(len(content)):
        (tmp_path / "cut").write_bytes(content[:length])
        try:
            ledger, message = ledger_of(tmp_path / "cut")
        except StoreError as error:
            assert "holds no step" in str(error)
            continue
        seen.add(ledger.steps)
        assert bool(message) == ("half-written" in message)
        with Journal(tmp_path / "cut", 4, max_grad_norm=2.0) as journal:
            assert journal.steps == ledger.steps and bool(journal.message) == bool(message)
            journal.step(1.5, 0.02, 2.0)
        again, message = ledger_of(tmp_path / "cut")
        assert (again.steps, message) == (ledger.steps + 1, "")
    assert seen == set(range(1, 12))


def test_a_changed_byte_is_found(tmp_path):
    written(tmp_path / "log", 12)
    content = (tmp_path / "log").read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 0x10
        (tmp_path / "changed").write_bytes(changed)
        try:
            ledger, message = ledger_of(tmp_path / "changed")
        except StoreError:
            continue
        # a changed record at the end looks like one that was cut; the steps before it are whole
        assert message and ledger.steps == 11 and place >= len(content) - 37


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_open_journal_is_not_copied(tmp_path, again):
    """A copy would share the number of the open file, which is another file's after one of them is closed."""
    with Journal(tmp_path / "log", 4, max_grad_norm=2.0) as journal, pytest.raises(TypeError, match="open it anew"):
        again(journal)


def test_the_second_writer_is_refused(tmp_path):
    pytest.importorskip("fcntl")
    with Journal(tmp_path / "log", 4, max_grad_norm=2.0) as journal:
        with pytest.raises(BlockingIOError, match="another process"):
            Journal(tmp_path / "log", 4, max_grad_norm=2.0)
        journal.row(NORMS)
        journal.step(1.5, 0.02, 2.0)
    with Journal(tmp_path / "log", 4, max_grad_norm=2.0) as journal:
        assert journal.steps == 1


def test_what_does_not_belong_is_refused(tmp_path):
    written(tmp_path / "log")
    with pytest.raises(StoreError, match="is of a run with"):
        Journal(tmp_path / "log", 5, max_grad_norm=2.0)
    (tmp_path / "text").write_text("step,norm\n1,2\n")
    for read in (ledger_of, lambda path: Journal(path, 4, max_grad_norm=2.0)):
        with pytest.raises(StoreError, match="not a journal"):
            read(tmp_path / "text")
    assert (tmp_path / "text").read_text() == "step,norm\n1,2\n"
    with Journal(tmp_path / "new", 4, max_grad_norm=2.0) as journal:
        with pytest.raises(RuntimeError, match="row before"):
            journal.step(1.5, 0.02, 2.0)
        with pytest.raises(ValueError, match="example 1"):
            journal.row([0.0, np.nan, 0.0, 0.0])
        with pytest.raises(ValueError, match="shape"):
            journal.row([[0.0] * 4] * 2)
        with pytest.raises(ValueError, match="of 3 people"):
            IndividualSteps(3, **RUN, journal=journal)
    with pytest.raises(StoreError, match="no step"):
        ledger_of(tmp_path / "new")


def test_a_full_disk_keeps_the_whole_records(tmp_path, monkeypatch):
    """A write that fails half-way is cut off, the step is not taken, and the run can go on later."""
    with Journal(tmp_path / "log", 4, max_grad_norm=2.0) as journal:
        run = IndividualSteps(4, **RUN, journal=journal)
        run.refresh(NORMS)
        run.begin()
        write, room = os.write, 10

        def until_full(file, content):
            nonlocal room
            if not room:
                raise OSError(28, "No space left on device")
            written = write(file, bytes(content)[:room])
            room -= written
            return written

        monkeypatch.setattr(os, "write", until_full)
        with pytest.raises(OSError, match="No space"):
            run.begin()
        monkeypatch.undo()
        assert ledger_of(tmp_path / "log")[0].steps == run.steps == 1
        run.begin()
    ledger, message = ledger_of(tmp_path / "log")
    assert (ledger.steps, message) == (2, "")


def test_a_file_that_may_not_grow_keeps_the_whole_records(tmp_path):
    """The same with a limit of the system's own, which cuts a write in the middle."""
    resource = pytest.importorskip("resource")
    with Journal(tmp_path / "log", 4, max_grad_norm=2.0) as journal:
        run = IndividualSteps(4, **RUN, journal=journal)
        run.refresh(NORMS)
        run.begin()
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "log").stat().st_size + 20, before[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                run.begin()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert ledger_of(tmp_path / "log")[0].steps == run.steps == 1
        run.begin()
    assert ledger_of(tmp_path / "log")[0].steps == 2


def test_a_path_that_cannot_be_written(tmp_path):
    with pytest.raises(FileNotFoundError):
        Journal(tmp_path / "missing" / "log", 4, max_grad_norm=2.0)


def test_a_run_counts_the_steps_that_only_its_journal_holds(tmp_path):
    """Checkpoint at step 12, crash at step 25: what was released in between counts, in the ledger and in the filter."""

    def filter_of_the_run():
        return pa.RenyiFilter.for_epsilon(0.6, 1e-5, num_examples=4, **RUN)

    keep = filter_of_the_run()
    whole = written(tmp_path / "log", 25, keep)
    early = written(tmp_path / "early", 12, filter_of_the_run())
    early.save(tmp_path / "checkpoint")
    for checkpoint in (False, True):
        own = filter_of_the_run()
        with Journal(tmp_path / "log", 4, max_grad_norm=2.0) as journal:
            run = IndividualSteps(4, **RUN, refresh=10, journal=journal, keep=own)
            if checkpoint:
                run.load(tmp_path / "checkpoint")
            np.testing.assert_array_equal(run.ledger.counts, whole.ledger.counts)
            assert run.steps == 25
            np.testing.assert_array_equal(own.spent(), keep.spent())
    other = pa.RenyiFilter.for_epsilon(0.01, 1e-5, num_examples=4, **RUN)
    with Journal(tmp_path / "log", 4, max_grad_norm=2.0) as journal, pytest.raises(ValueError, match="another filter"):
        IndividualSteps(4, **RUN, journal=journal, keep=other).due  # noqa: B018
    with Journal(tmp_path / "new", 4, max_grad_norm=2.0) as journal:
        run = IndividualSteps(4, **RUN, journal=journal, keep=filter_of_the_run())
        run.load(tmp_path / "checkpoint")
        with pytest.raises(ValueError, match="not that of this run"):
            run.begin()


def test_a_relative_norm_is_never_rounded_down():
    from fractions import Fraction

    rng = np.random.default_rng(0)
    norms, clip, base = rng.uniform(0, 1, 2000), 0.7, 1.3
    scaled = relative(norms, clip, base)
    for norm, found in zip(norms, scaled, strict=True):
        exact = min(Fraction(float(norm)) * Fraction(base) / Fraction(clip), Fraction(base))
        assert Fraction(float(found)) >= exact and found <= float(exact) * (1 + 2**-50)


def test_records_with_right_checksums_and_wrong_content_are_refused_or_read(tmp_path):
    """Whatever a file holds: one class of error, or a ledger; and a writer that is refused changes nothing."""
    rng, refused = np.random.default_rng(0), 0
    numbers = [0.0, 1.0, -1.0, 0.5, 2.0, np.nan, np.inf, 1e300, 5e-324]
    headers = [
        {"num_examples": n, "max_grad_norm": c} for n in (4, 0, -1, 2**70, "4", None) for c in (2.0, 0, "x", 1e999)
    ]
    for _ in range(400):
        header = headers[0] if rng.random() < 0.7 else headers[rng.integers(len(headers))]
        content = journal_module._MAGIC + journal_module._record(0, json.dumps(header).encode())
        for _ in range(rng.integers(1, 6)):
            kind = int(rng.choice([0, 1, 1, 1, 2, 2, 2, 3]))
            size = {1: 4, 2: 3}.get(kind, 1) + int(rng.random() < 0.1)
            values = rng.choice(numbers[:2] if rng.random() < 0.6 else numbers, size)
            content += journal_module._record(kind, np.asarray(values, "<f8").tobytes())
        (tmp_path / "log").write_bytes(content)
        for read in (ledger_of, counted):
            try:
                read(tmp_path / "log")
            except StoreError:
                refused += 1
                assert (tmp_path / "log").read_bytes() == content
    assert 100 < refused < 800
    deep = b"[" * 60_000
    (tmp_path / "log").write_bytes(journal_module._MAGIC + journal_module._record(0, deep))
    with pytest.raises(StoreError, match="header is damaged"):
        ledger_of(tmp_path / "log")


def test_a_damaged_length_of_the_header_does_not_clear_the_file(tmp_path):
    """Only a header that was killed before its end is written anew."""
    path = tmp_path / "log"
    written(path, 1)
    whole = path.read_bytes()
    place = len(journal_module._MAGIC) + 5
    for bit in range(64):
        content = bytearray(whole)
        content[place + bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        for read in (ledger_of, counted):
            with pytest.raises(StoreError):
                read(path)
            assert path.read_bytes() == content
    begun = whole.index(b"}")
    for kept in (len(journal_module._MAGIC), place, place + 8, begun):
        path.write_bytes(whole[:kept])
        assert counted(path) == []


_SHARED: list[Journal] = []


def _row_in_child():
    _SHARED[0].row(NORMS)


def _step_in_child():
    _SHARED[0].step(1.5, 0.02, 2.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_write_to_the_journal_of_its_parent(tmp_path):
    context = multiprocessing.get_context("fork")
    with Journal(tmp_path / "log", 4, max_grad_norm=2.0) as journal:
        journal.row(NORMS)
        content = (tmp_path / "log").read_bytes()
        with context.Pool(1, initializer=_SHARED.append, initargs=(journal,)) as pool:
            for call in (_row_in_child, _step_in_child):
                with pytest.raises(RuntimeError, match="only the process that opened it"):
                    pool.apply(call)
        assert (tmp_path / "log").read_bytes() == content
        journal.step(1.5, 0.02, 2.0)
    assert counted(tmp_path / "log") == [1]


def counted(path):
    with Journal(path, 4, max_grad_norm=2.0) as journal:
        return [row.steps for row in journal.rows()]


def killed(folder, kills):
    return json.loads(killing(__file__, "killed_runs.py", folder, kills))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_killed_run_loses_no_released_step(tmp_path):
    found = killed(tmp_path, 15)
    assert found["lost"] == found["unreadable"] == 0 and found["released"] > 10


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_many_killed_runs_lose_no_released_step(tmp_path):
    found = killed(tmp_path, 500)
    assert found["lost"] == found["unreadable"] == 0 and found["over"] <= found["kills"]
    assert found["places"]["booking"] and found["places"]["saving"] and found["torn"]


def test_the_layout_of_a_record_is_that_of_the_text(tmp_path):
    """Other programs may read the format: kind, CRC-32 and length, little-endian."""
    written(tmp_path / "log", 1)
    content = (tmp_path / "log").read_bytes()
    assert content.startswith(b"pld-accountant journal 1\n")
    assert struct.unpack("<ddd", content[-24:]) == (1.5, 0.02, 2.0)


def test_a_journal_says_that_it_is_sensitive_and_those_before_are_continued(tmp_path):
    path = tmp_path / "run.journal"
    with Journal(path, 2, max_grad_norm=1.0) as journal:
        journal.row(np.ones(2))
        journal.step(2.0, 0.1, 1.0)
    content = path.read_bytes()
    assert journal_module.SENSITIVE.encode() in content
    old = json.dumps({"num_examples": 2, "max_grad_norm": 1.0}).encode()
    rest = content[content.index(journal_module._record(1, np.ones(2).tobytes())) :]
    path.write_bytes(journal_module._MAGIC + journal_module._record(0, old) + rest)
    with Journal(path, 2, max_grad_norm=1.0) as journal:
        assert journal.steps == 1


def resumed(folder, refreshes, checkpoint):
    """The guarantee of a run with caps of so many models, killed after 35 steps and resumed."""
    due = [10 * k for k in range(refreshes)]
    folder.mkdir()
    for steps in (5, 35):
        with Journal(folder / f"{steps}", 4, max_grad_norm=2.0) as journal:
            run = IndividualSteps(4, **RUN, refresh=due, journal=journal)
            for _ in range(steps):
                if run.due:
                    run.refresh(NORMS * (1 + run.steps / 40))
                run.begin()
            if steps == 5:
                run.save(folder / "checkpoint")
    with Journal(folder / "35", 4, max_grad_norm=2.0) as journal:
        again = IndividualSteps(4, **RUN, refresh=due, journal=journal)
        if checkpoint:
            again.load(folder / "checkpoint")
        if again.due:
            again.refresh(NORMS)
        again.begin()
        assert again.steps == 36
        return run.guarantee, again.guarantee


def test_a_resumed_run_promises_no_more_than_the_run_itself(tmp_path):
    for checkpoint in (False, True):
        before, after = resumed(tmp_path / f"moved{checkpoint}", 4, checkpoint)
        assert not before.proven_adaptive and not after.proven_adaptive
    before, after = resumed(tmp_path / "fixed", 1, True)
    assert before.proven_adaptive and after.proven_adaptive
    # without the checkpoint there is a second refresh, at another model
    assert not resumed(tmp_path / "lost", 1, False)[1].proven_adaptive


def test_a_filter_without_stretches_is_charged_with_the_steps_of_a_journal(tmp_path):
    def filter_of_the_run():
        return pa.PLDFilter(1.0, 1e-5, num_examples=4, **RUN)

    keep, own = filter_of_the_run(), filter_of_the_run()
    whole = written(tmp_path / "log", 12, keep)
    with Journal(tmp_path / "log", 4, max_grad_norm=2.0) as journal:
        run = IndividualSteps(4, **RUN, refresh=10, journal=journal, keep=own)
        np.testing.assert_array_equal(run.ledger.counts, whole.ledger.counts)
        np.testing.assert_array_equal(own.spent(), keep.spent())


@pytest.mark.parametrize("norms", [[2.0, 3.0, 1.0, 5.0], [0.2, 0.3, 0.1, 0.5]])
def test_refreshes_with_equal_caps_are_several(tmp_path, norms):
    with Journal(tmp_path / "log", 4, max_grad_norm=1.0) as journal:
        run = IndividualSteps(4, **{**RUN, "max_grad_norm": 1.0}, refresh=5, journal=journal)
        for _ in range(12):
            if run.due:
                run.refresh(norms)
            run.begin()
    with Journal(tmp_path / "log", 4, max_grad_norm=1.0) as journal:
        again = IndividualSteps(4, **{**RUN, "max_grad_norm": 1.0}, refresh=5, journal=journal)
        assert not again.guarantee.proven_adaptive  # before anything else is asked
        assert again.refreshes == run.refreshes == 3


def test_the_rows_of_a_journal_say_where_they_begin(tmp_path):
    with Journal(tmp_path / "log", 2, max_grad_norm=1.0) as journal:
        for norms, noises in (([0.1, 0.2], [1.5, 1.5, 1.2]), ([0.1, 0.2], [1.2]), ([0.3, 0.2], [1.2, 1.5])):
            journal.row(np.array(norms))
            for noise in noises:
                journal.step(noise, 0.02, 1.0)
        told = [(row.start, row.steps, row.new) for row in journal.rows()]
        assert told == [(0, 2, True), (2, 1, False), (3, 1, True), (4, 1, True), (5, 1, False)]
        later = [[(row.start, row.steps, row.new) for row in journal.rows(first)] for first in (1, 3, 5)]
        assert later[0] == [(1, 1, False), *told[1:]]
        assert later[1:] == [told[2:], told[4:]]
