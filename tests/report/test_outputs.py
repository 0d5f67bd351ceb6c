"""Output files read back as what was computed, and are written all or none."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pld_accountant.report.outputs import OutputError, check, json_writer, table_writer, write_all
from pld_accountant.report.summary import summarise
from pld_accountant.results import Method, Status

UPPER = np.array([0.1, 1 / 3, np.inf, 2.0])
LABELS = np.array(["b", "a", "b", "a"])
NAMES = ["id", "group", "epsilon_lower", "epsilon_estimate", "epsilon_upper", "status", "method", "rdp_epsilon"]


def columns_of(path):
    """The table of a file as lists."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pydict()
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name].tolist() for name in file.files if name != "summary"}
    with path.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    kinds = {"id": int, "status": str, "method": str, "group": str}
    return {name: [kinds.get(name, float)(row[name]) for row in rows] for name in rows[0]}


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".npz"])
def test_a_row_per_person_reads_back_exactly(tmp_path, make_individuals, ending):
    people = make_individuals(UPPER, labels=LABELS)
    path = tmp_path / f"eps{ending}"
    write_all({path: table_writer(people, ending, {"guarantee": {}})})
    columns = columns_of(path)
    assert list(columns) == NAMES
    status = ["CERTIFIED" if np.isfinite(upper) else "NOT_CERTIFIED" for upper in UPPER]
    expected = [range(4), LABELS, *people.epsilon, status, ["CLOSED_FORM"] * 4, people.rdp_epsilon]
    for name, values in zip(NAMES, expected, strict=True):
        assert np.array_equal(columns[name], list(values), equal_nan=name == "epsilon_estimate"), name


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".npz"])
def test_without_groups_there_is_no_column_for_them(tmp_path, make_individuals, ending):
    path = tmp_path / f"eps{ending}"
    write_all({path: table_writer(make_individuals(UPPER), ending, {})})
    assert list(columns_of(path)) == [name for name in NAMES if name != "group"]


def test_parquet_and_npz_carry_the_guarantee(tmp_path, make_individuals):
    facts = summarise(make_individuals(UPPER)).as_dict()
    for ending in (".parquet", ".npz"):
        write_all({tmp_path / f"eps{ending}": table_writer(make_individuals(UPPER), ending, facts)})
    with np.load(tmp_path / "eps.npz") as file:
        texts = [str(file["summary"]), pq.read_schema(tmp_path / "eps.parquet").metadata[b"pld_accountant"]]
    for text in texts:
        told = json.loads(text)
        assert told["guarantee"] == facts["guarantee"]
        assert told["status"] == {status.name: status.sentence for status in Status}
        assert told["method"] == {method.name: method.sentence for method in Method}


def test_json_refuses_what_is_not_a_number():
    with pytest.raises(ValueError, match="Out of range float"):
        json_writer({"epsilon": float("nan")})


def fails(file):
    file.write(b"half")
    raise OSError(28, "No space left on device")


def test_all_files_are_written_or_none(tmp_path):
    old = tmp_path / "old.json"
    old.write_text("as it was")
    outputs = {old: json_writer({}), tmp_path / "new.json": json_writer({}), tmp_path / "full.json": fails}
    with pytest.raises(OSError, match="No space"):
        write_all(outputs)
    assert os.listdir(tmp_path) == ["old.json"]
    assert old.read_text() == "as it was"
    del outputs[tmp_path / "full.json"]
    write_all(outputs)
    assert sorted(os.listdir(tmp_path)) == ["new.json", "old.json"]
    assert old.read_text() == "{}\n"


def test_check_finds_every_mistake_before_the_work(tmp_path):
    there = tmp_path / "there.csv"
    there.write_text("")
    check([(there, (".csv",)), (tmp_path / "any", ())])
    for outputs, inputs, message in [
        ([(tmp_path / "x.txt", (".csv", ".npz"))], [], "must end in .csv or .npz"),
        ([(tmp_path / "absent" / "x.csv", ())], [], "does not exist"),
        ([(there / "x.csv", ())], [], "does not exist"),
        ([(tmp_path, ())], [], "is a folder"),
        ([(there, ()), (tmp_path / "." / "there.csv", ())], [], "named twice"),
        ([(there, ())], [there], "is an input"),
    ]:
        with pytest.raises(OutputError, match=message):
            check(outputs, inputs=inputs)
    assert os.listdir(tmp_path) == ["there.csv"]


def test_a_folder_that_cannot_be_written_is_found(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    # The tests may run as root, to whom every folder is open.
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(OutputError, match="cannot be written: Permission denied"):
        check([(tmp_path / "x.csv", ())])


DANGEROUS = ["=1+1", "+A1", "-A1", "@SUM(A1)", "\tx", "\rx", "\uff1dx", '=cmd|" /C calc"!A0']
HARMLESS = ["-1", "+2.5e-3", "a=1", "'", " ", "007"]


def test_no_cell_of_a_csv_file_is_a_formula_and_numbers_stay_numbers(tmp_path, make_individuals):
    labels = [*DANGEROUS, *HARMLESS]
    people = make_individuals(np.full(len(labels), 0.25), labels=np.array(labels))
    path = tmp_path / "eps.csv"
    write_all({path: table_writer(people, ".csv", {}, more={"change": np.full(len(labels), -1.5)})})
    columns = columns_of(path)
    assert columns["group"] == [*(f"'{label}" for label in DANGEROUS), *HARMLESS]
    assert columns["change"] == [-1.5] * len(labels)
    numbers = make_individuals(UPPER, labels=np.array([-1, 2, -1, 2]))
    write_all({path: table_writer(numbers, ".csv", {})})
    assert columns_of(path)["group"] == ["-1", "2", "-1", "2"]


def test_a_full_disk_at_the_last_moment_leaves_no_new_file(tmp_path, monkeypatch):
    """The content of all files is complete; bringing the second one to disk fails."""
    (tmp_path / "a.json").write_text("as it was")
    synced = []

    def full(descriptor):
        synced.append(descriptor)
        if len(synced) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_all({tmp_path / "a.json": json_writer({}), tmp_path / "b.json": json_writer({})})
    assert os.listdir(tmp_path) == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "as it was"


@pytest.mark.skipif(os.name != "posix", reason="links and pipes")
def test_check_follows_links_and_refuses_devices(tmp_path):
    (tmp_path / "norms.npy").write_text("")
    (tmp_path / "to-norms").symlink_to(tmp_path / "norms.npy")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    os.mkfifo(tmp_path / "pipe")
    check([(tmp_path / "to-norms", ()), (tmp_path / "pipe", ()), (Path("/dev/stdout"), ())])
    for path, message in [
        (tmp_path / "to-norms", "is an input"),
        (tmp_path / "circle", "symbolic links"),
        (Path("/dev/null"), "neither a file nor a pipe"),
    ]:
        with pytest.raises(OutputError, match=message):
            check([(path, ())], inputs=[tmp_path / "norms.npy"])
