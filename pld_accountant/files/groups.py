"""The group of every person, read from a file: `read_labels`."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .cells import with_formula
from .formats import ReadError, require
from .npy import read_npy

__all__ = ["read_labels"]

_IDS = "id", "person"
_OTHER_SEPARATOR = re.compile("[;\t]")


def read_labels(
    path: str | os.PathLike[str],
    num_examples: int,
    *,
    people: Any = None,
    hint: Callable[[int], str] = lambda people: "",
) -> np.ndarray:
    r"""Read one label per person.

    Parameters
    ----------
    path : path
        ``.npy`` (one-dimensional, integers, booleans or strings), ``.txt`` (a label per line) or ``.csv``
        (one column in the order of the people, or a header line with the columns ``group`` and ``id`` or ``person``,
        separated by commas), or ``.parquet`` (a column ``group`` and a column ``id`` or ``person``: results, or an
        event table).  With a column ``id`` or ``person`` people are matched by id, and others are ignored.
    num_examples : int
        Number of people.
    people : ndarray, optional
        Ids of the people; by default their numbers 0, 1, 2, ...
    hint : callable
        From another number of people to what to do about it: see `NormLog.hint`.

    Returns
    -------
    ndarray of shape (num_examples,)
        Integers if every label is an integer, else strings.

    Raises
    ------
    FileNotFoundError
    ReadError
        If a label is missing, or the number of labels is not `num_examples`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "labels.txt")
    ...     _ = file.write_text("west\neast\nwest\n")
    ...     read_labels(file, 3).tolist()
    ['west', 'east', 'west']
    """
    file = Path(path)
    everybody = np.arange(num_examples) if people is None else np.asarray(people)
    if file.suffix.lower() == ".parquet" and file.exists():
        return _by_id(file, everybody)
    reader = {".npy": _from_npy, ".csv": _from_csv, ".txt": _from_text}.get(file.suffix.lower())
    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist")
    if reader is None:
        raise ReadError(f"{file} must end in .npy, .csv, .txt or .parquet")
    try:
        labels = reader(file, everybody)
    except ReadError:
        raise
    except Exception as error:  # numpy, csv and the decoding of text have many kinds of errors
        raise ReadError(f"{file} cannot be read as labels: {error}") from error
    if len(labels) != num_examples:
        raise ReadError(f"{file} holds {len(labels)} labels, but there are {num_examples} people{hint(len(labels))}")
    return labels


def _from_npy(file: Path, _people: np.ndarray) -> np.ndarray:
    with file.open("rb") as raw:
        labels = read_npy(raw, file.stat().st_size)
    if labels.ndim != 1:
        raise ReadError(f"{file} must hold one label per person, got an array of shape {labels.shape}")
    if labels.dtype.kind not in "iubU":
        raise ReadError(f"{file} must hold integers or strings, got {labels.dtype}")
    if labels.dtype.kind == "U" and np.any(labels == ""):
        raise ReadError(f"{file}: person {int(np.argmax(labels == ''))} has no label")
    return labels


def _from_text(file: Path, _people: np.ndarray) -> np.ndarray:
    return _typed(file.read_text(encoding="utf-8-sig").rstrip().splitlines(), file)


def _from_csv(file: Path, people: np.ndarray) -> np.ndarray:
    with file.open(newline="", encoding="utf-8-sig") as lines:
        rows = list(csv.reader(lines))
    while rows and not rows[-1]:
        rows.pop()
    if not rows:
        raise ReadError(f"{file} is empty")
    header = [name.strip().lower() for name in rows[0]]
    for name in ("group", *_IDS):
        if header.count(name) > 1:
            raise ReadError(f"{file} has two columns {name!r}")
    if "group" in header:
        column, rows = header.index("group"), rows[1:]
    elif len(header) != 1:
        raise ReadError(f"{file} must have one column, or a header line with a column 'group'")
    elif all(len(row) == 1 and _OTHER_SEPARATOR.search(row[0]) for row in rows):
        raise ReadError(f"{file} must be separated by commas, not by semicolons or tabs")
    else:
        # If there is one line more than people, the first line is a header.
        column, rows = 0, rows[len(rows) == len(people) + 1 :]
    if any(len(row) != len(header) for row in rows):
        number = next(i for i, row in enumerate(rows) if len(row) != len(header))
        raise ReadError(f"{file}: the row of person {number} has {len(rows[number])} fields, not {len(header)}")
    labels = [with_formula(row[column].strip()) for row in rows]
    if len(header) > 1:
        own = next((name for name in _IDS if name in header), None)
        if own is None:
            raise ReadError(
                f"{file} must have a column 'id' or 'person' beside 'group'; "
                "or 'group' alone, with the labels in the order of the people"
            )
        ids = [with_formula(row[header.index(own)].strip()) for row in rows]
        labels = _matched(ids, labels, people, file)
    return _typed(labels, file)


def _by_id(file: Path, people: np.ndarray) -> np.ndarray:
    parquet = require("pyarrow.parquet", "parquet", f"reading {file}")
    try:
        table = parquet.read_table(file)
    except Exception as error:  # Arrow has many kinds of errors
        raise ReadError(f"{file} cannot be read as labels: {error}") from error
    own = next((name for name in _IDS if name in table.column_names), None)
    if own is None or "group" not in table.column_names:
        raise ReadError(f"{file} must have a column 'group' and a column 'id' or 'person'")
    if table.column("group").null_count or table.column(own).null_count:
        raise ReadError(f"{file} has missing ids or labels")
    pairs = table.group_by([own, "group"]).aggregate([])
    return np.array(_matched(pairs.column(own).to_pylist(), pairs.column("group").to_pylist(), people, file))


def _matched(ids: Sequence[Any], labels: Sequence[Any], people: np.ndarray, file: Path) -> list[Any]:
    """The label of everybody, found by id; ids of others are ignored."""
    label_of: dict[str, Any] = {}
    for one, label in zip(ids, labels, strict=True):
        if label_of.setdefault(str(one), label) != label:
            raise ReadError(f"{file}: {one!r} has two groups, {label_of[str(one)]!r} and {label!r}")
    missing = [one for one in people.tolist() if str(one) not in label_of]
    if missing:
        raise ReadError(f"{file} has no group of {len(missing)} people, for example {missing[0]!r}")
    return [label_of[str(one)] for one in people.tolist()]


def _typed(texts: list[str], file: Path) -> np.ndarray:
    """The labels as integers if all are in plain form (not 007 or 1_0, which would become 7 and 10), else as text."""
    labels = [text.strip() for text in texts]
    if "" in labels:
        raise ReadError(f"{file}: person {labels.index('')} has no label")
    try:
        numbers = [int(label) for label in labels]
        if [str(number) for number in numbers] == labels:
            return np.array(numbers, dtype=np.int64)
    except (ValueError, OverflowError):
        pass
    return np.array(labels, dtype=np.str_)
