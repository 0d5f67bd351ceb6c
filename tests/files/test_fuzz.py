"""Readers of damaged and of crafted files: each gives its one class of error, or what the file says, and never crashes.

A saved state has a checksum: a damaged file is refused, or loads as the original.  A crafted file has the right
checksum and wrong content: it is refused, or loads as an object that saves the same header and arrays again.  A norm
log or a file of groups has no checksum (but .npz has one for each array), so damaged numbers may pass as numbers.

`PLD_FUZZ_FILES` sets the number of damaged files of the slow test.
"""

import contextlib
import functools
import io
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from pld_accountant import (
    ApproximateDPFilter,
    GaussianFilter,
    GaussianOdometer,
    Laplace,
    Ledger,
    MechanismLedger,
    PLDFilter,
    PureDPFilter,
    RenyiFilter,
    RenyiOdometer,
    TruncatedPoisson,
    ZCDPFilter,
    read_results,
)
from pld_accountant.cli.kinds import _facts_in_schema
from pld_accountant.files import store
from pld_accountant.files.formats import ReadError
from pld_accountant.files.groups import read_labels
from pld_accountant.files.norm_log import open_norms
from pld_accountant.ledger_file import KIND, VERSION

PEOPLE, FILES, CRAFTED = 3, 120, 40
MANY = int(os.environ.get("PLD_FUZZ_FILES", "100000"))
NORMS = np.array([1.0, 0.5, 0.0])
SAMPLED = {"noise_multiplier": 2.0, "sample_rate": 0.01, "max_grad_norm": 1.0}
STEP = {"num_examples": PEOPLE, "noise_multiplier": 4.0, "max_grad_norm": 1.0}


def ledger():
    book = Ledger(PEOPLE, **SAMPLED, buckets=4)
    book.record(NORMS, repeat=20)
    book.record(NORMS, noise_multiplier=0.5)
    return book


def mechanisms():
    book = MechanismLedger(PEOPLE, buckets=4)
    book.record(Laplace(4.0), [1, 2, 0])
    book.record_norms(TruncatedPoisson(1.0, 0.1, 9, 20), NORMS, times=3)
    return book


def filter_of(kind, *budget, **step):
    def make():
        f = kind(*budget, num_examples=PEOPLE, **step)
        book = f.admit if hasattr(f, "admit") else f.record
        for _ in range(3):
            book(NORMS / 8)
        return f

    return make


FULL = {"noise_multiplier": 4.0, "max_grad_norm": 1.0}
STATES = {
    "ledger": ledger,
    "mechanisms": mechanisms,
    "gaussian": filter_of(GaussianFilter, 0.5, **FULL),
    "for all": filter_of(ZCDPFilter, 0.5, **FULL, individual=False),
    "renyi": filter_of(RenyiFilter, [0.5], [2.0], **SAMPLED),
    "pure": filter_of(ApproximateDPFilter, 1.0, 1e-5),
    "sum of pure": filter_of(PureDPFilter, [1.0, 0.5, 2.0]),
    "pld": filter_of(PLDFilter, 0.5, 1e-5, **SAMPLED, buckets=4),
    "gaussian odometer": filter_of(GaussianOdometer, [0.5, 0.4], **FULL),
    "renyi odometer": filter_of(RenyiOdometer, 0.5, 2.0, **FULL),
}


@functools.cache
def original(name):
    """An object that no test changes."""
    return STATES[name]()


def state_of(thing):
    """The header and the arrays that an object saves."""
    file = io.BytesIO()
    if isinstance(thing, Ledger):
        thing.save(file)
    else:
        store.save(file, *kind_of(thing), thing_header(thing), thing._state())
    with np.load(io.BytesIO(file.getvalue())) as members:
        arrays = {name: members[name] for name in members.files if name != "sha256"}
    header = json.loads(arrays.pop("header").tobytes())
    assert header.pop("sensitive") == store.SENSITIVE  # a sentence that decides nothing
    return header, arrays


def kind_of(thing):
    return (KIND, VERSION) if isinstance(thing, Ledger) else ("accounting state", 1)


def thing_header(thing):
    return {"class": type(thing).__name__, "parameters": thing._parameters}


def same(state, other):
    header, arrays = state
    return (
        header == other[0]
        and arrays.keys() == other[1].keys()
        and all(a.dtype == other[1][n].dtype and np.array_equal(a, other[1][n]) for n, a in arrays.items())
    )


@pytest.fixture(scope="module", params=STATES)
def saved(request, tmp_path_factory):
    """An object, and a path to its file."""
    thing = original(request.param)
    path = tmp_path_factory.mktemp("saved") / "state"
    thing.save(path)
    return thing, path


def damaged(rng, data):
    """The bytes of a file with a few bits flipped, cut, with bytes inserted, removed or replaced."""
    place, size = int(rng.integers(len(data))), int(rng.integers(1, 17))
    match rng.integers(5):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + rng.bytes(size) + data[place:]
        case 2:
            return data[:place] + data[place + size :]
        case 3:
            return data[:place] + rng.bytes(size) + data[place + size :]
    flipped = bytearray(data)
    for at in rng.integers(len(data), size=rng.integers(1, 4)):
        flipped[at] ^= 1 << int(rng.integers(8))
    return bytes(flipped)


def check_damaged_states(thing, path, files):
    whole, original = path.read_bytes(), state_of(thing)
    rng, refused, other = np.random.default_rng(0), 0, path.with_name("damaged")
    for _ in range(files):
        other.write_bytes(damaged(rng, whole))
        try:
            loaded = type(thing).load(other)
        except store.StoreError:
            refused += 1
        else:
            assert same(state_of(loaded), original)
    assert refused > 0.6 * files


def test_a_damaged_state_is_refused_or_the_original(saved):
    check_damaged_states(*saved, FILES)


@pytest.mark.slow
def test_many_damaged_states_are_refused_or_the_original(saved):
    check_damaged_states(*saved, MANY // len(STATES))


# ------------------------------------------------------------------------------------------------- crafted states

VALUES = (None, True, "x", "1", -1, 0, 1.5, 1e-300, 1e300, 10**15, 2**64, 10**400, [], {}, [1.0, 2.0], [None], {"a": 1})


def crafted_headers(value):
    """A JSON value with one part replaced, removed, added or repeated, everywhere."""
    if isinstance(value, dict):
        for key in value:
            yield {k: v for k, v in value.items() if k != key}
            yield from ({**value, key: other} for other in crafted_headers(value[key]))
        yield {**value, "extra": 1}
    elif isinstance(value, list):
        yield from (
            [*value[:i], other, *value[i + 1 :]] for i in range(len(value)) for other in crafted_headers(value[i])
        )
        yield from (value[:-1], value * 2, [*value, None])
    yield from VALUES


def crafted_arrays(arrays):
    """A set of arrays with one of another type, shape or content, or with one more or one less."""
    yield {**arrays, "extra": np.zeros(3)}
    for name, array in arrays.items():
        rest = {n: a for n, a in arrays.items() if n != name}
        yield rest
        kinds = ("f8", "f4", "i8", "i4", "i2", "u2", "u8", "?", ">i8", ">f8", "c16", "U3", "M8[s]")
        changed = [array.astype(kind) for kind in kinds if array.dtype.kind != "b" or kind != "M8[s]"]
        changed += [
            array[None],
            array[..., None],
            array.ravel()[:0],
            np.repeat(array.ravel(), 2),
            np.zeros((0, 10**12)),
        ]
        if array.ndim:
            changed += [array[1:], array[:-1], array[:, :0] if array.ndim > 1 else array[:1], array[::-1]]
            changed += [np.repeat(array, 2, axis=0), array.T]
        floats = array.dtype.kind == "f"
        limits = np.finfo(array.dtype) if floats else np.iinfo("i1" if array.dtype == bool else array.dtype)
        for value in (limits.min, limits.max, 0, 1, *([np.nan, np.inf, -1.0, 1e-300] if floats else [])):
            for at in ((0,) * array.ndim, (-1,) * array.ndim):
                other = array.copy()
                other[at] = value
                changed.append(other)
        yield from ({**rest, name: other} for other in changed)


def use(thing):
    """Reach the kernels; tiny budgets refuse every step, by a `ValueError`."""
    if isinstance(thing, Ledger):
        thing.record(NORMS)
    else:
        with contextlib.suppress(ValueError):
            (thing.record if hasattr(thing, "record") else thing.admit)(np.zeros(min(thing.num_examples, PEOPLE)))


def check_crafted_states(thing, path, pairs):
    """Each pair of a header and arrays, written with the right checksum."""
    refused, crafted = 0, path.with_name("crafted")
    for header, arrays in pairs:
        told = {name: value for name, value in header.items() if name not in ("kind", "version")}
        store.save(crafted, *kind_of(thing), told, arrays)
        try:
            loaded = type(thing).load(crafted)
        except store.StoreError:
            refused += 1
        else:
            found = state_of(loaded)
            assert same(found, ({**told, "kind": found[0]["kind"], "version": found[0]["version"]}, arrays))
            use(loaded)
    assert refused > 0.6 * len(pairs)


def crafted_pairs(thing):
    header, arrays = state_of(thing)
    headers = [(other, arrays) for other in crafted_headers(header) if isinstance(other, dict)]
    return headers + [(header, other) for other in crafted_arrays(arrays)]


def test_a_crafted_state_is_refused_or_means_what_it_says(saved):
    thing, path = saved
    pairs = crafted_pairs(thing)
    some = np.random.default_rng(0).choice(len(pairs), CRAFTED, replace=False)
    names = [pair for pair in pairs if pair[1].keys() != pairs[0][1].keys()]  # one array more or less
    check_crafted_states(thing, path, [pairs[i] for i in some] + names)


@pytest.mark.slow
def test_every_crafted_state_is_refused_or_means_what_it_says(saved):
    thing, path = saved
    check_crafted_states(thing, path, crafted_pairs(thing))


def changed(array, value, dtype=None):
    """A copy whose first element is another one."""
    other = array.astype(dtype or array.dtype)
    other.flat[0] = value
    return other


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("extra", lambda header: 1, "unknown parts"),
        ("num_examples", lambda header: "3", "num_examples must be a number"),
        ("groups", lambda header: header["groups"][:1], "do not match"),
        ("schedule", lambda header: header["schedule"][:1], "do not match"),
        ("schedule", lambda header: header["schedule"] * 2, "unknown parts"),
        ("schedule", lambda header: [[2.0, 0.01, 70_000], header["schedule"][1]], "more steps than its counters hold"),
        ("schedule", lambda header: [[2.0, 0.01, 19], header["schedule"][1]], "more steps for a person"),
    ],
)
def test_a_ledger_whose_header_disagrees_with_its_counts_is_refused(part, change, message, tmp_path):
    header, arrays = state_of(original("ledger"))
    arrays["edges1"] = arrays["edges0"]
    store.save(tmp_path / "state", KIND, VERSION, {**header, part: change(header)}, arrays)
    with pytest.raises(store.StoreError, match=message):
        Ledger.load(tmp_path / "state")


@pytest.mark.parametrize(
    ("name", "part", "change", "message"),
    [
        ("ledger", "counts", lambda a: changed(a, 22), "more steps for a person"),
        ("ledger", "short", lambda a: changed(a, 2**20), "exceeds the weight"),
        ("ledger", "short", lambda a: changed(a, -1), "short does not belong here"),
        ("ledger", "short", lambda a: a.astype(np.int64), "do not occur together"),
        ("ledger", "edges0", lambda a: a[::-1], "edges must ascend"),
        ("gaussian", "left", lambda a: changed(a, -1), "left does not belong here"),
        ("gaussian", "halted", lambda a: changed(a, True), "halted does not belong here"),
        ("gaussian odometer", "level", lambda a: changed(a, 2**60), "level does not belong here"),
        ("gaussian odometer", "left", lambda a: changed(a, -1), "left does not belong here"),
        ("pld", "sure", lambda a: changed(a, 4), "sure does not belong here"),
        ("pld", "high", lambda a: changed(a, np.nan), "high does not belong here"),
        ("pld", "counts", lambda a: changed(a, 2**30), "counts does not belong here"),
        ("pld", "groups", lambda a: changed(a, 3.0), "groups do not belong here"),
        ("pld", "edges0", lambda a: changed(a, np.nan), "edges0 does not belong here"),
    ],
)
def test_numbers_that_no_object_can_hold_are_refused(name, part, change, message, tmp_path):
    thing = original(name)
    header, arrays = state_of(thing)
    store.save(tmp_path / "state", *kind_of(thing), header, {**arrays, part: change(arrays[part])})
    with pytest.raises(store.StoreError, match=message):
        type(thing).load(tmp_path / "state")


@pytest.mark.parametrize("name", ["counts", "short", "edges1"])
def test_counters_of_another_shape_do_not_reach_the_kernels(name, tmp_path):
    header, arrays = state_of(original("ledger"))
    for other in (
        arrays[name][:1],
        arrays[name][..., :1],
        np.repeat(arrays[name], 2, axis=-1),
        arrays[name].ravel()[:0],
    ):
        store.save(tmp_path / "state", KIND, VERSION, header, {**arrays, name: other})
        with pytest.raises(store.StoreError):
            Ledger.load(tmp_path / "state")


@pytest.mark.parametrize("name", ["gaussian", "renyi odometer", "pld"])
def test_a_state_of_more_people_than_the_file_holds_is_refused_before_memory_is_taken(name, tmp_path):
    thing = original(name)
    header = thing_header(thing)
    header["parameters"] = {**header["parameters"], "num_examples": 10**8}
    store.save(tmp_path / "state", "accounting state", 1, header, thing._state())
    assert peak_of_refusal(lambda: type(thing).load(tmp_path / "state"), store.StoreError) < 2**24


def claiming(count):
    """A .npy file of three numbers that claims `count`."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": (count,)})
    return file.getvalue() + bytes(24)


def peak_of_refusal(read, error):
    tracemalloc.start()
    try:
        with pytest.raises(error):
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [10**8, 10**15, 2**62])
def test_a_header_that_claims_too_much_is_refused_before_memory_is_taken(count, tmp_path):
    (tmp_path / "log.npy").write_bytes(claiming(count))
    with zipfile.ZipFile(tmp_path / "log.npz", "w") as archive:
        archive.writestr("norms.npy", claiming(count))
    assert peak_of_refusal(lambda: store.load(tmp_path / "log.npz", "x", 1), store.StoreError) < 2**24
    assert peak_of_refusal(lambda: read_labels(tmp_path / "log.npy", 3), ReadError) < 2**24
    for name in ("log.npy", "log.npz"):
        assert peak_of_refusal(lambda name=name: open_norms(tmp_path / name), ReadError) < 2**24


def test_a_compressed_bomb_is_refused_before_memory_is_taken(tmp_path):
    np.savez_compressed(tmp_path / "bomb", header=np.zeros(2**26, np.uint8), sha256=np.zeros(32, np.uint8))
    assert peak_of_refusal(lambda: store.load(tmp_path / "bomb.npz", "x", 1), store.StoreError) < 2**24


# ------------------------------------------------------------------------------------------- norm logs and groups

TABLE = np.random.default_rng(1).random((6, PEOPLE))


def parquet(table):
    return lambda path: pq.write_table(table, path)


LOGS = {
    "log.npy": lambda path: np.save(path, TABLE),
    "stored.npz": lambda path: np.savez(path, norms=TABLE, orientation="steps-by-examples"),
    "packed.npz": lambda path: np.savez_compressed(path, norms=TABLE),
    "wide.parquet": parquet(pa.table({f"p{i}": TABLE[:, i] for i in range(PEOPLE)})),
    "lists.parquet": parquet(pa.table({"norms": TABLE.tolist()})),
    "log.csv": lambda path: path.write_text("0,1\n"),
}
GROUPS = {
    "labels.npy": lambda path: np.save(path, np.array([3, 1, 2])),
    "words.npy": lambda path: np.save(path, np.array(["a", "bc", "d"])),
    "labels.csv": lambda path: path.write_text("id,group\n0,a\n1,b\n2,c\n"),
    "labels.txt": lambda path: path.write_text("a\nb\n7\n"),
}


def read_log(path):
    with open_norms(path) as log:
        return log[:]


def check_damaged_tables(name, write, read, path, files):
    write(path / name)
    whole, original = (path / name).read_bytes(), None
    if name.endswith(".npz"):
        original = read(path / name)
    rng = np.random.default_rng(0)
    for _ in range(files):
        (path / name).write_bytes(damaged(rng, whole))
        try:
            found = read(path / name)
        except ReadError:
            continue
        assert isinstance(found, np.ndarray)
        assert original is None or np.array_equal(found, original)


@pytest.mark.parametrize("name", LOGS)
def test_a_damaged_norm_log_is_refused_or_a_table(name, tmp_path):
    check_damaged_tables(name, LOGS[name], read_log, tmp_path, FILES)


@pytest.mark.parametrize("name", GROUPS)
def test_damaged_groups_are_refused_or_labels(name, tmp_path):
    check_damaged_tables(name, GROUPS[name], lambda path: read_labels(path, PEOPLE), tmp_path, FILES)


EVENTS = {"person": pa.array(["a", "b", "a"]), "norm": pa.array([0.5, 1.0, 0.2]), "count": pa.array([1, 2, 30])}
TABLES = {
    "events.parquet": lambda path: pq.write_table(pa.table(EVENTS), path),
    "events.csv": lambda path: csv.write_csv(pa.table(EVENTS), path),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_damaged_event_table_is_refused_or_counted(name, tmp_path):
    """What is wrong with the content is a ValueError, as in memory; what cannot be read is its subclass `ReadError`."""
    TABLES[name](tmp_path / name)
    whole, rng, refused = (tmp_path / name).read_bytes(), np.random.default_rng(0), 0
    for _ in range(FILES):
        (tmp_path / name).write_bytes(damaged(rng, whole))
        try:
            assert isinstance(Ledger.from_events(tmp_path / name, **SAMPLED), Ledger)
        except ValueError:
            refused += 1
    assert refused > FILES // 4


@pytest.mark.parametrize("read", ["events", "groups", "results", "describe"])
def test_what_arrow_has_not_implemented_is_refused(read, tmp_path, monkeypatch):
    """One flipped bit made integers of more than 64 bits, at which Arrow raises a NotImplementedError."""
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table(EVENTS), path)

    def fail(*_, **__):
        raise pa.ArrowNotImplementedError("Integers with more than 64 bits not implemented")

    for name in ("read_table", "read_schema"):
        monkeypatch.setattr(pq, name, fail)
    monkeypatch.setattr("pyarrow.dataset.dataset", fail)
    ask = {
        "events": lambda: Ledger.from_events(path, **SAMPLED),
        "groups": lambda: read_labels(path, 2, people=np.array(["a", "b"])),
        "results": lambda: read_results(path),
        "describe": lambda: _facts_in_schema(path),
    }
    with pytest.raises(ReadError, match=r"table\.parquet.*64 bits"):
        ask[read]()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LOGS, *GROUPS])
def test_many_damaged_tables_are_refused_or_read(name, tmp_path):
    write = {**LOGS, **GROUPS}[name]
    read = read_log if name in LOGS else lambda path: read_labels(path, PEOPLE)
    check_damaged_tables(name, write, read, tmp_path, MANY // 10)
