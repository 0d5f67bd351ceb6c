"""Tables of any kind as an Arrow table with the columns of events."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..files.formats import ReadError, require

__all__ = ["COLUMNS", "REQUIRED", "arrow_events", "column_names", "is_events_file", "own_names"]

COLUMNS = ("person", "norm", "sensitivity", "count", "noise_multiplier", "sample_rate", "step", "group")
REQUIRED = ("person",)
_NORMS = ("norm", "sensitivity")
_TEXTS = ("person", "step", "group")
_SYNONYMS = {
    "repeat": "count",
    "repetition": "count",
    "noise": "noise_multiplier",
    "sigma": "noise_multiplier",
}


def arrow_events(
    source: Any, columns: Mapping[str, str] | None = None, progress: Callable[[int, int], None] | None = None
) -> Any:
    """The events of a CSV or Parquet file, of a folder of Parquet files, or of a table in memory: a `pyarrow.Table`.

    Parameters
    ----------
    source : path, table or mapping of arrays
        Tables: pyarrow.Table, RecordBatch, RecordBatchReader or Dataset, pandas.DataFrame, polars.DataFrame.
    columns : mapping of str to str, optional
        The source's name of a column of events, where it is another one, for example ``{"person": "user_id"}``.
    progress : callable, optional
        Called with (events read, events in all) while files are read.

    Raises
    ------
    ReadError
        If a file is cut or is of another kind, or a column is missing.
    """
    pa = require("pyarrow", "parquet", "reading events")
    names = own_names(columns)
    if isinstance(source, (str, os.PathLike)):
        return _from_files(Path(source), names, progress)
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    elif isinstance(source, Mapping):
        source = pa.table(dict(source))
    elif hasattr(source, "to_arrow"):  # polars
        source = source.to_arrow()
    elif isinstance(source, pa.RecordBatchReader):
        source = source.read_all()
    elif isinstance(source, require("pyarrow.dataset", "parquet", "reading events").Dataset):
        there = column_names(source.schema.names, columns, "the data set")
        source = source.to_table(columns=there)
    elif not isinstance(source, pa.Table):
        if hasattr(source, "collect"):
            raise ValueError(f"events must be in memory: call collect() of the {type(source).__name__} first")
        if not hasattr(source, "columns") or not hasattr(source, "to_numpy"):
            raise ValueError(f"events must be a path or a table (Arrow, pandas, polars), got {type(source).__name__}")
        source = _from_pandas(source, names)
    return _chosen(source, names, "the table")


def own_names(columns: Mapping[str, str] | None) -> dict[str, str]:
    """The source's name of each column of events."""
    if not isinstance(columns, Mapping | None):
        raise ValueError(f"columns must map names of columns to the table's own, got {columns!r}")
    given = dict(columns or {})
    unknown = sorted(set(given) - set(COLUMNS))
    if unknown:
        raise ValueError(f"columns must name some of {', '.join(COLUMNS)}, got {unknown[0]!r}")
    found = {name: given.get(name, name) for name in COLUMNS}
    twice = [own for own in given.values() if list(found.values()).count(own) > 1]
    if twice and twice[0] in COLUMNS:
        raise ValueError(f"{twice[0]!r} is the name of another column of events: rename it in the table")
    if twice:
        raise ValueError(f"columns must name different columns, got {twice[0]!r} twice")
    return found


def column_names(there: list[str], columns: Mapping[str, str] | None, where: str) -> list[str]:
    """The source's names of the columns of events that are there; `ReadError` if one is missing."""
    names = own_names(columns)
    _check_names(there, names, where)
    return [own for own in names.values() if own in there]


def _chosen(table: Any, names: Mapping[str, str], where: str) -> Any:
    """The columns of events, under their own names."""
    _check_names(table.schema.names, names, where)
    found = {name: table.column(own) for name, own in names.items() if own in table.schema.names}
    return require("pyarrow", "parquet", "reading events").table(found)


def _check_names(there: list[str], names: Mapping[str, str], where: str) -> None:
    for name, own in names.items():
        if there.count(own) > 1:
            raise ReadError(f"{where} has two columns {own!r}")
        if own not in there and (name in REQUIRED or own != name):
            raise ReadError(f"{where} has no column {own!r}; it has {', '.join(there)}")
    for name in COLUMNS:
        # a misspelt column would be ignored, and a person's steps or groups with it
        alike = [] if names[name] in there else [c for c in there if c not in names.values() and _alike(c, name)]
        if alike and not (name in _NORMS and any(names[n] in there for n in _NORMS)):
            raise ReadError(f"{where} has a column {alike[0]!r} but no {name!r}: rename it, or leave it out")
    if "mechanism" in there:
        raise ReadError(
            f"{where} has a column 'mechanism', which would be ignored: events are of the Gaussian mechanism. Leave "
            "out the events of others, and the column; `LaplaceLedger` counts Laplace noise"
        )
    both = [names[n] for n in _NORMS if names[n] in there]
    if len(both) != 1:
        found = " and ".join(repr(b) for b in both) if both else "neither"
        raise ReadError(f"{where} must have one of the columns 'norm' and 'sensitivity', it has {found}")


def _alike(one: str, name: str) -> bool:
    """Whether a name is another one in a different spelling, or a synonym: Count, counts, sampling_rate, sigma."""
    plain = re.sub("[^a-z]", "", one.lower().replace("sampling", "sample")).removesuffix("s")
    return plain == name.replace("_", "") or _SYNONYMS.get(plain) == name


def _from_pandas(frame: Any, names: Mapping[str, str]) -> Any:
    """The columns of a pandas data frame; ids that are objects become integers or texts first."""
    import pyarrow as pa

    from .ids import as_ids

    _check_names([str(own) for own in frame.columns], names, "the table")
    found = {}
    for own in frame.columns:
        if own in names.values():
            is_id = own == names["person"]
            if is_id and (missing := int(frame[own].isna().sum())):
                raise ValueError(f"the column {own!r} has {missing} missing ids")
            found[own] = as_ids(frame[own].to_numpy(), own) if is_id else pa.Array.from_pandas(frame[own])
    return pa.table(found)


def is_events_file(path: Path, columns: Mapping[str, str] | None = None) -> bool:
    """Whether a file is a CSV, or a Parquet file with the column of people, or a folder whose first file is one."""
    person = own_names(columns)["person"]
    if path.is_dir():
        files = sorted(p for p in path.rglob("*.parquet") if not p.name.startswith((".", "_")))
        return bool(files) and is_events_file(files[0], columns)
    if path.suffix.lower() == ".csv" and path.is_file():
        return True
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return False
    parquet = require("pyarrow.parquet", "parquet", f"reading {path}")
    try:
        return person in parquet.read_schema(path).names
    except (OSError, ValueError):
        return False


def _from_csv(path: Path, names: Mapping[str, str], progress: Callable[[int, int], None] | None) -> Any:
    """The events of a CSV file with a header; ids, steps and groups are texts, so that 007 is not 7."""
    pa, compute = (require(f"pyarrow{part}", "parquet", f"reading {path}") for part in ("", ".compute"))
    arrow_csv = require("pyarrow.csv", "parquet", f"reading {path}")
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            there = next(csv.reader(lines), [])
        _check_names(there, names, os.fspath(path))
        types = {own: pa.string() if name in _TEXTS else pa.float64() for name, own in names.items()}
        chosen = [own for own in names.values() if own in there]
        # an empty cell is missing, in a column of texts, too
        convert = arrow_csv.ConvertOptions(
            column_types=types, include_columns=chosen, strings_can_be_null=True, null_values=[""]
        )
        table = arrow_csv.read_csv(path, convert_options=convert)
    except ReadError:
        raise
    except Exception as error:  # Arrow has many kinds of errors
        raise ReadError(f"{path} cannot be read as CSV: {error}") from error
    for own in (names[name] for name in _TEXTS if names[name] in there):
        padded = compute.not_equal(table.column(own), compute.utf8_trim_whitespace(table.column(own)))
        if compute.any(padded).as_py():
            one = table.column(own).filter(padded)[0].as_py()
            raise ReadError(f"{path}: the column {own!r} has a space before or behind a text, {one!r}; remove it")
    if progress is not None:
        progress(table.num_rows, table.num_rows)
    return _chosen(table, names, os.fspath(path))


def _from_files(path: Path, names: Mapping[str, str], progress: Callable[[int, int], None] | None) -> Any:
    dataset = require("pyarrow.dataset", "parquet", f"reading {path}")
    if not path.exists():
        raise FileNotFoundError(2, "no such file or folder", os.fspath(path))
    if path.suffix.lower() == ".csv":
        return _from_csv(path, names, progress)
    try:
        found = dataset.dataset(path, format="parquet", partitioning="hive" if path.is_dir() else None)
        if not found.files:
            raise ReadError(f"{path} holds no Parquet files")
        _check_names(found.schema.names, names, os.fspath(path))
        there = [own for own in names.values() if own in found.schema.names]
        if progress is None:
            return _chosen(found.to_table(columns=there), names, os.fspath(path))
        scanner = found.scanner(columns=there)
        batches, done, total = [], 0, found.count_rows()
        for batch in scanner.to_batches():
            batches.append(batch)
            done += batch.num_rows
            progress(done, total)
        table = require("pyarrow", "parquet", "reading events").Table.from_batches(batches, scanner.projected_schema)
        return _chosen(table, names, os.fspath(path))
    except ReadError:
        raise
    except Exception as error:  # Arrow has many kinds of errors
        raise ReadError(f"{path} cannot be read as Parquet: {error}") from error
