"""Output files: all are written, or none.

`check` runs before the long work and raises if a file cannot be written.  `write_all` writes temporary files in the
same folders and moves them into place when all are on disk (`files.atomic`).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np

from ..files.atomic import atomic_files, destination
from ..files.cells import no_formula
from ..files.formats import require
from ..files.store import SENSITIVE
from ..results import Method, Status
from .individuals import Individuals

__all__ = [
    "COLUMNS",
    "DIGEST",
    "FIGURE_ENDINGS",
    "PAGE_ENDINGS",
    "SCHEMA_VERSION",
    "TABLE_ENDINGS",
    "OutputError",
    "arrow_table",
    "check",
    "check_folder",
    "companion",
    "empty_table",
    "json_text",
    "json_writer",
    "table_facts",
    "table_writer",
    "text_writer",
    "write_all",
]

TABLE_ENDINGS = (".parquet", ".csv", ".npz")
FIGURE_ENDINGS = (".png", ".pdf")
PAGE_ENDINGS = (".html", ".htm")


Writer = Callable[[BinaryIO], Any]

SCHEMA_VERSION = 1
"""Version of the columns and the facts of a table with a row per person."""
DIGEST = "pld_accountant_sha256"
"""Key of the digest of such a table."""
COLUMNS: dict[str, dict[str, str]] = {
    "id": {"meaning": "the person: the id in the events, else the number of the column in the log, from 0"},
    "group": {"meaning": "the label that was given for the person"},
    "epsilon_lower": {"unit": "nats", "meaning": "certified lower bound of epsilon"},
    "epsilon_estimate": {"unit": "nats", "meaning": "estimate between the bounds; NaN without a finite upper bound"},
    "epsilon_upper": {"unit": "nats", "meaning": "certified upper bound of epsilon; infinite if there is none"},
    "status": {"meaning": "what is proven of the bounds"},
    "method": {"meaning": "what proved the upper bound"},
    "rdp_epsilon": {"unit": "nats", "meaning": "upper bound of epsilon by Renyi accounting"},
    "mu": {
        "unit": "1",
        "meaning": "upper bound of mu; its Gaussian curve lies above the person's if delta >= min_delta",
    },
    "gaussian_epsilon": {"unit": "nats", "meaning": "epsilon of the Gaussian curve of mu at delta"},
}
"""The columns of a table with a row per person, in order, with units."""
_WORDS = ("group", "status", "method")


class OutputError(ValueError):
    """An output file that cannot be written, with the reason; nothing was written."""


def check(outputs: Iterable[tuple[Path, Sequence[str]]], *, inputs: Iterable[Path] = ()) -> None:
    """Raise unless every file can be written.

    Parameters
    ----------
    outputs : iterable of (path, sequence of str)
        The files, each with its allowed endings; an empty sequence allows any.
    inputs : iterable of path
        Files that no output may replace.

    Raises
    ------
    OutputError
    """
    taken = {os.path.realpath(path) for path in inputs}
    for path, endings in outputs:
        if endings and path.suffix.lower() not in endings:
            raise OutputError(f"{path} must end in {' or '.join(endings)}")
        try:
            target = destination(path)
        except OSError as error:
            raise OutputError(f"{path}: {error.strerror}") from error
        if os.path.realpath(path) in taken:
            raise OutputError(f"{path} is named twice, or is an input")
        taken.add(os.path.realpath(path))
        if target is not None:
            check_folder(target.parent)
        if path.suffix.lower() == ".parquet":
            require("pyarrow", "parquet", f"writing {path}")


def check_folder(folder: Path) -> None:
    """Raise `OutputError` unless a file can be made in `folder`."""
    if not folder.is_dir():
        raise OutputError(f"the folder {folder} does not exist")
    try:
        # Trying is the only test that holds on every file system and for every user.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"the folder {folder} cannot be written: {error.strerror}") from error


def write_all(outputs: Mapping[Path, Writer]) -> None:
    """Write files, and move them into place when all are complete and on disk.

    New files can be read by their owner only; a file that is replaced keeps its permissions.

    Raises
    ------
    OSError
        If one file cannot be written; then none is.
    """
    with atomic_files(list(outputs)) as files:
        for writer, file in zip(outputs.values(), files, strict=True):
            writer(file)


def companion(table: Path) -> Path | None:
    """The file beside a table that holds its facts as JSON: ``eps.csv.meta.json`` for ``eps.csv``, else None.

    A comment at the head of the CSV itself would be read as data by spreadsheets and by the defaults of pandas and R.
    """
    return table.with_name(f"{table.name}.meta.json") if table.suffix.lower() == ".csv" else None


def table_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts about a table with a row per person: those given, the version and meaning of the columns, a warning."""
    return {"schema_version": SCHEMA_VERSION, "sensitive": SENSITIVE, "columns": COLUMNS, **facts}


def _columns(individuals: Individuals, more: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    people = individuals.num_examples
    group = {} if individuals.labels is None else {"group": individuals.labels}
    columns: dict[str, np.ndarray] = {
        "id": np.arange(people) if individuals.people is None else individuals.people,
        **group,
        "epsilon_lower": individuals.epsilon.lower,
        "epsilon_estimate": individuals.epsilon.estimate,
        "epsilon_upper": individuals.epsilon.upper,
        "status": _names(individuals.epsilon.status, Status, people),
        "method": _names(individuals.epsilon.method, Method, people),
        "rdp_epsilon": individuals.rdp_epsilon,
        **more,
    }
    # texts of numpy's own kind: no file may need pickled objects
    return {name: c.astype(np.str_) if c.dtype.kind == "O" else c for name, c in columns.items()}


def _names(codes: Any, kind: type[Status] | type[Method], people: int) -> np.ndarray:
    """The name of each person's status or method: (people,) strings."""
    names = np.array([one.name for one in kind])
    return names[np.broadcast_to(np.asarray(codes, dtype=np.intp), people)]


def table_writer(
    individuals: Individuals,
    ending: str,
    facts: Mapping[str, Any],
    *,
    more: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Writer:
    """A writer of one row per person with the columns `COLUMNS`; group, mu and gaussian_epsilon only if there are any.

    Status and method are written by name.

    Parameters
    ----------
    ending : str
        One of `TABLE_ENDINGS`.
    facts : mapping
        Facts about the whole table (the summary, with the provenance, the guarantee, and a sentence for each status and
        method).  With those of `table_facts`, Parquet holds them as JSON in its metadata under ``pld_accountant``,
        ``.npz`` in the member ``summary``.  CSV has no place for them: see `companion`.  A text that a spreadsheet
        would take for a formula has an apostrophe in front of it in CSV.
    more : mapping of str to ndarray
        Further columns.
    """
    columns = _columns(individuals, more)
    about = _about(facts)
    if ending == ".parquet":
        return lambda file: _write_parquet(file, columns, about)
    if ending == ".npz":
        return lambda file: np.savez(file, summary=np.array(about), **columns)  # type: ignore[arg-type]
    return lambda file: _write_csv(file, columns)


def _about(facts: Mapping[str, Any]) -> str:
    return json.dumps(table_facts(facts), allow_nan=False)


def arrow_table(individuals: Individuals, facts: Mapping[str, Any]) -> Any:
    """A `pyarrow.Table` with the columns and the metadata of a Parquet file of `table_writer`."""
    return _arrow(_columns(individuals, {}), _about(facts))


def empty_table(person: Any, grouped: bool) -> Any:
    """A `pyarrow.Table` with the columns of nobody; `person` is the type of the ids."""
    import pyarrow

    nobody = np.zeros(0)
    columns = {name: nobody for name in COLUMNS if name not in ("mu", "gaussian_epsilon")}
    columns |= {name: nobody.astype(np.str_) for name in _WORDS}
    columns["id"] = nobody.astype(np.int64 if pyarrow.types.is_integer(person) else np.str_)
    if not grouped:
        del columns["group"]
    return _arrow(columns, _about({}))


def _write_parquet(file: BinaryIO, columns: Mapping[str, np.ndarray], about: str) -> None:
    from pyarrow import parquet

    table = _arrow(columns, about)
    table = table.replace_schema_metadata({**table.schema.metadata, DIGEST: digest(columns, about)})
    parquet.write_table(table, file, compression="zstd")


def digest(columns: Mapping[str, np.ndarray], about: str) -> str:
    """SHA-256 of the metadata and of every column: Parquet itself would read a damaged number without a word."""
    found = hashlib.sha256(about.encode())
    for name in sorted(columns):
        found.update(f"\0{name}\0".encode())
        values = columns[name]
        number = {"f": "<f8", "i": "<i8", "u": "<i8"}.get(values.dtype.kind)
        found.update(values.astype(number).tobytes() if number else "\0".join(values.astype(np.str_).tolist()).encode())
    return found.hexdigest()


def _arrow(columns: Mapping[str, np.ndarray], about: str) -> Any:
    import pyarrow

    arrays, fields = [], []
    for name, column in columns.items():
        array = pyarrow.array(column)
        if name in _WORDS and not pyarrow.types.is_integer(array.type):
            array = array.cast(pyarrow.string()).dictionary_encode()
        arrays.append(array)
        fields.append(pyarrow.field(name, array.type, nullable=False, metadata=COLUMNS.get(name)))
    schema = pyarrow.schema(fields, metadata={"pld_accountant": about, "sensitive": "true"})
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def _write_csv(file: BinaryIO, columns: Mapping[str, np.ndarray]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    # texts in quotes: a carriage return in a label would end its row
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(columns)
    # Python floats, whose shortest decimal form reads back as the same number.
    cells = [column.tolist() for column in columns.values()]
    texts = [[no_formula(cell) for cell in c] if c and isinstance(c[0], str) else c for c in cells]
    writer.writerows(zip(*texts, strict=True))
    text.flush()
    text.detach()


def json_text(facts: Mapping[str, Any]) -> str:
    """`facts` as indented JSON."""
    return json.dumps(facts, indent=2, allow_nan=False) + "\n"


def json_writer(facts: Mapping[str, Any]) -> Writer:
    """A writer of `facts` as indented JSON."""
    return text_writer(json_text(facts))


def text_writer(text: str) -> Writer:
    """A writer of a text."""
    return lambda file: file.write(text.encode())
