"""What is kept between processes: the same bits as without, and nothing believed that fails a check."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pld_accountant.files import kept, store
from pld_accountant.mechanisms import sampled_gaussian
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.tables import spectra
from pld_accountant.tables.spectra import Spectra, envelope_frequencies

ROOT = Path(__file__).parent.parent.parent
SIGMA, Q = np.array([4.0, 3.0, 2.5, 2.0]), np.full(4, 0.02)
THETA, SPACING, M = 6.0, 1.5, 24
TILTS = np.array([1.0, THETA])
ROWS = np.array([3, 0, 2])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder, and files of whatever was computed."""
    monkeypatch.setenv("PLD_ACCOUNTANT_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(spectra, "_WORTH", 0.0)
    return tmp_path / "kept"


@pytest.fixture
def computed(monkeypatch):
    """The rows whose spectra and the tilts whose log-moments were computed."""
    calls = []
    spectrum, moments = SampledGaussianSteps.spectrum, sampled_gaussian.quadrature.log_moments

    def one(self, theta, spacing, m, rows, columns, work):
        calls.extend((m, int(row)) for row in rows)
        return spectrum(self, theta, spacing, m, rows, columns, work)

    def other(losses, *rest):
        calls.extend(dict.fromkeys(losses.theta.tolist()))
        return moments(losses, *rest)

    monkeypatch.setattr(SampledGaussianSteps, "spectrum", one)
    monkeypatch.setattr(sampled_gaussian.quadrature, "log_moments", other)
    return calls


def steps(**changes):
    return SampledGaussianSteps(**{"sigma": SIGMA, "q": Q, "direction": "remove", **changes})


def answers(source, rows=ROWS):
    """All that a family computes, as one array."""
    levels = envelope_frequencies(*source.steps.envelope_levels(THETA))
    found = source.spectrum(THETA, SPACING, M, rows, np.inf)
    parts = [getattr(found, name) for name in type(found).__dataclass_fields__]
    parts += [source.log_moments(TILTS), source.log_envelope(THETA, levels, rows)]
    return np.concatenate([part.ravel() for part in parts])


def fresh(**changes):
    return Spectra(steps(**changes), keep=True)


def file_of(folder):
    (path,) = folder.iterdir()
    return path


def test_a_second_process_has_the_same_bits_and_computes_nothing_but_its_checks(folder, computed):
    plain = answers(Spectra(steps()))
    assert not folder.exists()
    first = fresh()
    assert answers(first).tobytes() == plain.tobytes()
    first.keep()
    computed.clear()
    again = fresh()
    assert answers(again).tobytes() == plain.tobytes()
    # an envelope is computed from one frequency
    assert computed.count(THETA) + computed.count(1.0) <= spectra._CHECKED
    assert [m for m, _ in (c for c in computed if isinstance(c, tuple))] == [M] * 3 + [1] * 3
    path = file_of(folder)
    before = path.stat().st_mtime_ns
    again.keep()
    assert path.stat().st_mtime_ns == before, "nothing new, nothing written"


def test_further_rows_are_added(folder):
    first = fresh()
    answers(first, np.array([1]))
    first.keep()
    second = fresh()
    assert answers(second, np.arange(4)).tobytes() == answers(Spectra(steps()), np.arange(4)).tobytes()
    second.keep()
    held = store.load(file_of(folder), "tables", 1)[1]
    assert held["rows"].size == 4 * 2 + 2 * 4  # two tilts of log-moments, one spectrum, one envelope


def test_a_row_that_was_kept_costs_as_much_work(folder):
    """Whether a table is refused must not depend on what an earlier process computed."""
    cost = steps().spectrum(THETA, SPACING, M, ROWS, 4, np.inf).cost
    work = float(cost.sum())
    for known in ([], [3], [3, 0], [3, 0, 2]):
        for share, served in ((1.0, True), (0.999, False), (0.1, False)):
            source = fresh()
            source.spectrum(THETA, SPACING, M, np.array(known, dtype=np.int64), np.inf)
            assert (source.spectrum(THETA, SPACING, M, ROWS, share * work) is not None) == served
            assert (Spectra(steps()).spectrum(THETA, SPACING, M, ROWS, share * work) is not None) == served


@pytest.mark.parametrize(
    "change",
    [
        {"sigma": SIGMA * (1.0 + 2e-16)},
        {"q": Q * 1.5},
        {"direction": "add"},
        {"end": 5.0},
        {"end": 5.0, "infinite": False},
    ],
    ids=str,
)
def test_other_steps_have_other_files(folder, change):
    first, other = fresh(), fresh(**change)
    answers(first)
    first.keep()
    assert other._path != first._path
    os.replace(first._path, other._path)  # as if the names were the same
    assert other._read() == {}
    assert answers(other).tobytes() == answers(Spectra(steps(**change))).tobytes()


@pytest.mark.parametrize(
    "change",
    [
        {"q": np.ones(4)},
        {"q": np.array([1.0, 0.9, 1e-6, 1e-3])},
        {"direction": "add"},
        {"sigma": np.geomspace(0.2, 900, 4)},
    ],
    ids=str,
)
def test_a_right_file_is_believed(change):
    first = fresh(**change)
    right = answers(first)
    first.keep()
    again = fresh(**change)
    assert again._read()
    assert answers(again).tobytes() == right.tobytes()


def test_other_code_has_other_files(monkeypatch):
    path = fresh()._path
    monkeypatch.setattr(kept, "code_of", lambda *modules: "another digest")
    assert fresh()._path != path
    monkeypatch.setattr(kept, "code_of", lambda *modules: None)  # the sources cannot be read
    assert fresh()._path is None


def at(kind, column, change):
    """Change a column of all rows of a kind; `column` -1 is the last one."""

    def do(arrays):
        start = 0
        for key, number in zip(arrays["keys"], arrays["numbers"], strict=True):
            width = spectra._columns((int(key[0]), key[1], key[2], int(key[3])))
            if key[0] == kind:
                block = arrays["values"][start : start + number * width].reshape(number, width)
                block[:, column] = change(block[:, column])
            start += number * width

    return do


def put(name, change):
    def do(arrays):
        arrays[name] = change(arrays[name])

    return do


def second_row(values):
    values[1] = values[0]
    return values


S, E, M_ = spectra._SPECTRUM, spectra._ENVELOPE, spectra._MOMENT
CHANGES = {
    "log-moments too small": at(M_, 0, lambda x: x * (1 - 1e-6)),
    "a log-moment that is not a number": at(M_, 0, lambda x: x * np.nan),
    "a spectrum's log-moment": at(S, 0, lambda x: x * (1 - 1e-6)),
    "a spectrum's mean": at(S, 1, lambda x: x * (1 - 1e-6)),
    "an error of K of 0": at(S, 2, lambda x: 0.0 * x),
    "an error of phi of 0": at(S, 3, lambda x: 0.0 * x),
    "half of an error's slope": at(S, 4, lambda x: 0.5 * x),
    "negative errors": at(S, 3, lambda x: -x),
    "useless errors": at(S, 3, lambda x: x + 1.0),
    "no nodes": at(S, 5, lambda x: 0.0 * x),
    "fewer nodes": at(S, 5, lambda x: x - 1.0),
    "a span the wrong way": at(S, 6, lambda x: x + 1e6),
    "a modulus above 1": at(S, spectra._HEAD, lambda x: x + 1.0),
    "a modulus too small": at(S, spectra._HEAD, lambda x: x - 1e-6),
    "another phase": at(S, -1, lambda x: x + 1e-6),
    "an envelope too low": at(E, -1, lambda x: x - 1e-6),
    "an envelope that rises": at(E, 0, lambda x: x - 30.0),
    "an envelope above 1": at(E, 0, lambda x: x + 1.0),
    "a missing array": lambda a: a.pop("rows"),
    "an unknown array": lambda a: a.update(more=np.zeros(1)),
    "other types": put("rows", lambda x: x.astype(np.int32)),
    "other shapes": put("values", lambda x: x[:, None]),
    "values too short": put("values", lambda x: x[:-1]),
    "values too long": put("values", lambda x: np.append(x, 0.0)),
    "rows too long": put("rows", lambda x: np.append(x, 0)),
    "rows out of range": put("rows", lambda x: x + 4),
    "negative rows": put("rows", lambda x: x - 1),
    "a row twice": put("rows", second_row),
    "an unknown kind": put("keys", lambda x: x + np.array([3.0, 0, 0, 0])),
    "half a frequency": put("keys", lambda x: x + np.array([0, 0, 0, 0.5])),
    "a frequency more": put("keys", lambda x: x + np.array([0, 0, 0, 1.0])),
    "negative frequencies": put("keys", lambda x: x * [1, 1, 1, -1]),
    "another tilt": put("keys", lambda x: x * [1, 1.5, 1, 1]),
    "another spacing": put("keys", lambda x: x * [1, 1, 1.5, 1]),
    "a key twice": put("keys", second_row),
    "no rows": put("numbers", lambda x: x * 0),
    "many rows": put("numbers", lambda x: x * 2**40),
    "other steps": put("of_q", lambda x: x * 1.5),
    "more steps": put("of_sigma", lambda x: np.append(x, 1.0)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_altered_file_is_not_believed(folder, change):
    """The checksum is right, so the other checks decide."""
    first = fresh()
    right = answers(first)
    first.keep()
    path = file_of(folder)
    arrays = store.load(path, "tables", 1)[1]
    change(arrays)
    store.save(path, "tables", 1, {}, arrays)
    again = fresh()
    assert again._read() == {}
    assert answers(again).tobytes() == right.tobytes()
    again.keep()
    assert fresh()._read(), "the new file is right"


def test_what_a_checksum_finds_and_what_belongs_to_somebody_else_is_computed(folder, monkeypatch):
    first = fresh()
    right = answers(first)
    first.keep()
    path = file_of(folder)
    whole, rng = path.read_bytes(), np.random.default_rng(4)
    for count in range(30):
        cut = bytearray(whole)
        cut[int(rng.integers(len(cut)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(cut) if count % 3 else whole[: int(rng.integers(len(whole)))])
        assert answers(fresh()).tobytes() == right.tobytes()
    path.write_bytes(whole)
    assert fresh()._read()
    if hasattr(os, "getuid"):
        own = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: own + 1)
        assert fresh()._read() == {}
        assert answers(fresh()).tobytes() == right.tobytes()


def test_memory_and_file_have_a_limit(folder, monkeypatch):
    monkeypatch.setattr(spectra, "_MOST_BYTES", 1_000)
    source = fresh()
    right = answers(Spectra(steps()))
    for _ in range(2):
        assert answers(source).tobytes() == right.tobytes()
    assert 0 < source._held <= 1_000
    source.keep()
    assert file_of(folder).stat().st_size < 10_000
    removed = []
    monkeypatch.setattr(kept, "remove_oldest", lambda *limits: removed.append(limits))
    monkeypatch.setattr(spectra, "_MOST_BYTES", 1_500)
    source.log_moments(np.array([2.0]))
    source.keep()
    assert removed == [("tables", 1 << 28)]


def test_what_takes_no_time_is_not_worth_a_file(folder, monkeypatch):
    monkeypatch.setattr(spectra, "_WORTH", 60.0)
    source = fresh()
    answers(source)
    source.keep()
    assert not folder.exists()


def test_without_a_folder_nothing_is_remembered(monkeypatch):
    monkeypatch.setenv("PLD_ACCOUNTANT_CACHE", "")
    source = fresh()
    answers(source)
    source.keep()
    assert source._memory is None


def test_a_fork_while_another_thread_computes_locks_nobody_out(monkeypatch):
    source = fresh()
    right = answers(source)
    source._lock.acquire()
    next(iter(source._memory.values())).place[:] = 99  # half of a change
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    assert answers(source).tobytes() == right.tobytes()


def test_threads_share_what_is_remembered():
    source, size = fresh(sigma=np.linspace(4.0, 2.0, 40), q=np.full(40, 0.02)), 40
    plain = Spectra(source.steps)
    parts = [np.arange(first, size, 7) for first in range(7)] * 3
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda rows: answers(source, rows), parts))
    assert all(a.tobytes() == answers(plain, rows).tobytes() for a, rows in zip(found, parts, strict=True))
    source.keep()
    assert Spectra(source.steps, keep=True)._read()


LEDGER = """
import hashlib, sys
import numpy as np
import pld_accountant as pa
from pld_accountant.tables import spectra

spectra._WORTH = 0.0
rng = np.random.default_rng(0)
norms = (rng.uniform(0.0, 1.2, (40, 12)) * rng.random(12)).astype(np.float32)
ledger = pa.Ledger.from_norms(norms, noise_multiplier=2.0, sample_rate=0.01, max_grad_norm=1.0, buckets=12)
found = [ledger.epsilon(1e-5), ledger.delta(0.05)]
digest = hashlib.sha256(b"".join(x.tobytes() for b in found for x in (b.lower, b.estimate, b.upper)))
sources = [makers._kept["spectra"] for makers in ledger._makers.values()]
there = [source._path is not None and bool(source._read()) for source in sources]
print(digest.hexdigest(), all(there))
"""


def run(**environment):
    command = [sys.executable, "-c", LEDGER]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **environment})


def test_a_ledger_has_the_same_bits_in_every_process(folder):
    """Without files; two processes at once that write the same files; a third that reads them."""
    plain = run(PLD_ACCOUNTANT_CACHE="").communicate()[0].split()
    both = [run(), run()]
    found = [process.communicate()[0].split() for process in both]
    found.append(run().communicate()[0].split())
    assert plain[1] == "False"
    assert [digest for digest, _ in found] == [plain[0]] * 3
    assert [there for _, there in found] == ["True"] * 3
    assert not list(folder.glob(".*.part"))
