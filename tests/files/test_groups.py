"""Group labels: one per person, in order, or an error that says what is missing."""

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet as pq

from pld_accountant.files.cells import no_formula
from pld_accountant.files.formats import ReadError
from pld_accountant.files.groups import read_labels


@pytest.mark.parametrize("labels", [np.array([3, 1, 2]), np.array(["b", "a", "c"]), np.array([True, False, True])])
def test_npy(tmp_path, labels):
    np.save(tmp_path / "labels.npy", labels)
    assert np.array_equal(read_labels(tmp_path / "labels.npy", 3), labels)


@pytest.mark.parametrize(
    ("ending", "text", "expected"),
    [
        (".txt", "3\n1\n2\n", [3, 1, 2]),
        (".txt", "3\n1\n2\n\n\n", [3, 1, 2]),
        (".txt", "  west\neast side\n2", ["west", "east side", "2"]),
        (".csv", "3\r\n1\r\n2\r\n", [3, 1, 2]),
        (".csv", "digit\n3\n1\n2\n", [3, 1, 2]),
        (".csv", 'name,group,id\n"Alpha, A",b,0\nBeta,a,1\nGamma,b,2\n', ["b", "a", "b"]),
        (".csv", "ID,Group\n2,c\n0,a\n7,x\n1,b\n", ["a", "b", "c"]),
        (".csv", "group;size\na\nb\nc\n", ["a", "b", "c"]),
        (".csv", "group\na\nb\nc\n\n", ["a", "b", "c"]),
        (".csv", "\ufeffgroup\na\nb\nc\n", ["a", "b", "c"]),
        (".txt", "7\n007\n-1\n", ["7", "007", "-1"]),
        (".txt", "1_0\n10\n3\n", ["1_0", "10", "3"]),
    ],
)
def test_text(tmp_path, ending, text, expected):
    file = tmp_path / f"labels{ending}"
    file.write_text(text, encoding="utf-8")
    assert read_labels(file, 3).tolist() == expected


@pytest.mark.parametrize(
    ("ending", "text", "message"),
    [
        (".txt", "a\nb\n", "2 labels, but there are 3 people"),
        (".csv", "a\nb\nc\nd\ne\n", "5 labels, but there are 3 people"),
        (".txt", "a\n\nc\n", "person 1 has no label"),
        (".csv", "", "is empty"),
        (".csv", "a,1\nb,2\nc,3\n", "one column, or a header line with a column 'group'"),
        (".csv", "name,group\na,1\nb\nc,3\n", "row of person 1 has 1 fields, not 2"),
        (".csv", "index,group\n0,a\n2,b\n1,c\n", "a column 'id' or 'person' beside 'group'"),
        (".csv", "id,group\n0,a\n0,b\n1,c\n", "'0' has two groups, 'a' and 'b'"),
        (".csv", "id,group\n0,a\n2,b\n", "no group of 1 people, for example 1"),
        (".csv", "id;group\n0;a\n1;b\n2;c\n", "separated by commas"),
        (".csv", "id\tgroup\n0\ta\n1\tb\n2\tc\n", "separated by commas"),
        (".csv", "id,ID,group\n0,0,a\n1,1,b\n2,2,c\n", "two columns 'id'"),
        (".csv", "group,group\na,1\nb,1\nc,1\n", "two columns 'group'"),
        (".csv", "group\n", "holds 0 labels"),
        (".json", "[1, 2, 3]", "must end in"),
    ],
)
def test_bad_text(tmp_path, ending, text, message):
    file = tmp_path / f"labels{ending}"
    file.write_text(text)
    with pytest.raises(ReadError, match=message):
        read_labels(file, 3)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.ones((3, 2), dtype=int), "one label per person"),
        (np.ones(3), "integers or strings"),
        (np.array([None, 1, 2]), "cannot be read"),
        (np.arange(4), "4 labels"),
        (np.array(["a", "", "b"]), "person 1 has no label"),
    ],
)
def test_bad_npy(tmp_path, labels, message):
    np.save(tmp_path / "labels.npy", labels, allow_pickle=True)
    with pytest.raises(ReadError, match=message):
        read_labels(tmp_path / "labels.npy", 3)


def test_not_utf8_and_not_there(tmp_path):
    (tmp_path / "labels.npy").write_bytes(b"a\nb\n")
    with pytest.raises(ReadError, match="does not begin like one"):
        read_labels(tmp_path / "labels.npy", 2)
    (tmp_path / "labels.txt").write_bytes(b"\xff\xfe\n")
    with pytest.raises(ReadError, match="cannot be read as labels"):
        read_labels(tmp_path / "labels.txt", 1)
    with pytest.raises(FileNotFoundError):
        read_labels(tmp_path / "absent.txt", 1)


@pytest.mark.parametrize("name", ["id", "person"])
def test_people_are_matched_by_id(tmp_path, name):
    """In a table of results or of events, in any order, with rows of others."""
    table = {name: ["c", "a", "b", "a", "x"], "group": ["y", "x", "y", "x", "z"]}
    pq.write_table(pyarrow.table(table), tmp_path / "labels.parquet")
    people = np.array(["a", "b", "c"])
    assert read_labels(tmp_path / "labels.parquet", 3, people=people).tolist() == ["x", "y", "y"]
    with pytest.raises(ReadError, match="no group of 1 people, for example 'q'"):
        read_labels(tmp_path / "labels.parquet", 2, people=np.array(["a", "q"]))
    pq.write_table(pyarrow.table({name: ["a", "a"], "group": [1, 2]}), tmp_path / "labels.parquet")
    with pytest.raises(ReadError, match="'a' has two groups, 1 and 2"):
        read_labels(tmp_path / "labels.parquet", 1, people=np.array(["a"]))


def test_ids_in_csv_are_matched_and_numbers_of_people_too(tmp_path):
    (tmp_path / "labels.csv").write_text("id,group\nb,2\na,1\n")
    assert read_labels(tmp_path / "labels.csv", 2, people=np.array(["a", "b"])).tolist() == [1, 2]
    with pytest.raises(ReadError, match="no group of 2 people, for example 0"):
        read_labels(tmp_path / "labels.csv", 2)
    pq.write_table(pyarrow.table({"id": [1, 0], "group": [5, 4]}), tmp_path / "labels.parquet")
    assert read_labels(tmp_path / "labels.parquet", 2).tolist() == [4, 5]


@pytest.mark.parametrize("name", ["id", "person"])
def test_the_tables_of_this_package_are_matched_whatever_their_order(tmp_path, name):
    """Also ids and labels that have an apostrophe in CSV, because a spreadsheet would take them for formulas."""
    people = np.array(["=sum", "+c10", "-", "plain"])
    labels = np.array(["@home", "away", "@home", "away"])
    rows = [f"{no_formula(one)},{no_formula(label)}" for one, label in zip(people, labels, strict=True)]
    (tmp_path / "labels.csv").write_text("\n".join([f"{name},group", *rows[::-1]]) + "\n")
    assert rows[0] == "'=sum,'@home"
    assert read_labels(tmp_path / "labels.csv", 4, people=people).tolist() == labels.tolist()


def test_parquet_without_groups(tmp_path):
    pq.write_table(pyarrow.table({"id": [1, 0]}), tmp_path / "labels.parquet")
    with pytest.raises(ReadError, match="a column 'group'"):
        read_labels(tmp_path / "labels.parquet", 2)
    (tmp_path / "labels.parquet").write_bytes(b"PAR1")
    with pytest.raises(ReadError, match="cannot be read as labels"):
        read_labels(tmp_path / "labels.parquet", 2)
