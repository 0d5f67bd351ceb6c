"""Result files: Parquet with a row per person, typed columns, and what the numbers mean in the schema's metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..events import ids
from ..files.atomic import atomic_file
from ..files.formats import ReadError, require
from ..report.provenance import provenance
from ..results import Bounds, Guarantee, Method, Status

__all__ = ["KEY", "VERSION", "Results", "about_results", "read_results", "results_table", "write_table"]

VERSION = 1
"""Of the columns and of the metadata."""
KEY = b"pld_accountant.results"

_SENSITIVE = (
    "Sensitive personal data: a row says something about one person's data. Every number is a function of the data and "
    "is not released privately."
)
_UNITS = {
    "epsilon_lower": "nats",
    "epsilon_estimate": "nats",
    "epsilon_upper": "nats",
    "rdp_epsilon": "nats",
    "mu": "standard deviations",
}


@dataclass(frozen=True)
class Results:
    """Everybody's numbers, read from a result file.

    Attributes
    ----------
    people : ndarray of int64 or str, shape (people,)
    epsilon : Bounds
        Arrays of shape (people,).
    rdp_epsilon : ndarray of float64
        The Renyi bound.
    mu : ndarray of float64 or None
        Upper bound of the mu of the dominating Gaussian curve.
    labels : ndarray or None
        The group of every person.
    about : mapping
        The metadata: delta, direction, parameters, schedule, guarantee, worst case, units, provenance.
    """

    people: NDArray
    epsilon: Bounds
    rdp_epsilon: NDArray
    mu: NDArray | None
    labels: NDArray | None
    about: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.people)


def about_results(
    ledger: Any, delta: float, direction: str, *, min_delta: float | None = None, source: Any = None
) -> dict[str, Any]:
    """The metadata of the results of a ledger at one delta; the same for all parts of a job."""
    worst = ledger.worst_case().epsilon(delta, direction=direction)
    return {
        "schema_version": VERSION,
        "sensitive": True,
        "sensitivity": _SENSITIVE,
        "delta": delta,
        "direction": direction,
        "neighbours": "add or remove one person",
        "units": _UNITS,
        "mu_min_delta": min_delta,
        "parameters": {
            name: getattr(ledger, name) for name in ("noise_multiplier", "sample_rate", "max_grad_norm", "buckets")
        },
        "schedule": [{"noise_multiplier": s, "sample_rate": q, "steps": n} for s, q, n in ledger.schedule],
        "worst_case": {"lower": worst.lower, "upper": worst.upper if np.isfinite(worst.upper) else None},
        "guarantee": asdict(ledger.guarantee),
        "status": {one.name: one.sentence for one in Status},
        "method": {one.name: one.sentence for one in Method},
        "provenance": provenance(source),
    }


def results_table(
    people: Any,
    epsilon: Bounds,
    rdp_epsilon: NDArray,
    about: Mapping[str, Any],
    *,
    mu: NDArray | None = None,
    labels: NDArray | None = None,
) -> Any:
    """The Arrow table of a result file.

    The columns are ``id`` (int64 or large_string), ``group`` (dictionary of string; null without groups),
    ``epsilon_lower``, ``epsilon_estimate``, ``epsilon_upper`` (float64), ``status``, ``method`` (dictionary of string),
    ``rdp_epsilon`` (float64) and ``mu`` (float64; null if it was not asked for).
    """
    pa = require("pyarrow", "parquet", "writing results")
    word = pa.dictionary(pa.int32(), pa.string())
    names = ids.as_ids(people)
    number = len(names)

    def words(codes: Any, kind: Any) -> Any:
        codes = np.broadcast_to(np.asarray(codes, dtype=np.int32), number)
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([one.name for one in kind])).cast(word)

    nothing = pa.nulls(number, pa.float64())
    group = pa.nulls(number, pa.string()) if labels is None else pa.array(np.asarray(labels).astype(str).tolist())
    columns = {
        "id": names,
        "group": group.cast(pa.string()).dictionary_encode().cast(word),
        **{f"epsilon_{name}": pa.array(getattr(epsilon, name)) for name in ("lower", "estimate", "upper")},
        "status": words(epsilon.status, Status),
        "method": words(epsilon.method, Method),
        "rdp_epsilon": pa.array(rdp_epsilon),
        "mu": nothing if mu is None else pa.array(mu),
    }
    meta = {KEY: json.dumps(dict(about), allow_nan=False).encode(), b"sensitive": b"true"}
    return pa.table(columns).replace_schema_metadata(meta)


def write_table(table: Any, path: str | os.PathLike[str]) -> None:
    """Write an Arrow table as Parquet, whole or not at all, for its owner only."""
    parquet = require("pyarrow.parquet", "parquet", f"writing {os.fspath(path)}")
    with atomic_file(path) as file:
        parquet.write_table(table, file, compression="zstd")


def _facts(schema: Any, path: Path) -> dict[str, Any]:
    text = (schema.metadata or {}).get(KEY)
    if text is None:
        raise ReadError(f"{path} holds no results of pld_accountant: its metadata has no {KEY.decode()!r}")
    facts = json.loads(text)
    if facts.get("schema_version") != VERSION:
        raise ReadError(f"{path} has results of schema version {facts.get('schema_version')}, not {VERSION}")
    return dict(facts)


def read_results(path: str | os.PathLike[str]) -> Results:
    """Read a result file, or a folder of result files of one job.

    Parameters
    ----------
    path : path
        Written by `write_table` of a `results_table`.

    Returns
    -------
    Results

    Raises
    ------
    FileNotFoundError
    ReadError
        A ValueError: if a file is cut or holds no results, the files are of different jobs, or a person
        is in two of them.  A missing part is not noticed.
    """
    parquet = require("pyarrow.parquet", "parquet", f"reading {os.fspath(path)}")
    root = Path(path)
    if not root.exists():
        raise FileNotFoundError(2, "no such file or folder", os.fspath(root))
    files = sorted(root.glob("*.parquet")) if root.is_dir() else [root]
    if not files:
        raise ReadError(f"{root} holds no Parquet files")
    tables, facts = [], []
    for file in files:
        try:
            table = parquet.read_table(file, partitioning=None)
        except (OSError, ValueError) as error:
            raise ReadError(f"{file} cannot be read as Parquet: {error}") from error
        tables.append(table)
        facts.append(_facts(table.schema, file))
    if any(_of_job(one) != _of_job(facts[0]) for one in facts):
        raise ReadError(f"the files in {root} are results of different jobs")
    return _read(tables, facts[0], root)


def _of_job(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in ("provenance", "part")}


def _read(tables: list[Any], facts: dict[str, Any], root: Path) -> Results:
    import pyarrow as pa

    table = pa.concat_tables([one.replace_schema_metadata(None) for one in tables], promote_options="none")
    try:
        people = ids.distinct(table.column("id"), "the ids")
    except ValueError as error:
        raise ReadError(f"{root}: {error}") from error

    def numbers(name: str) -> NDArray:
        return np.asarray(table.column(name).to_numpy())

    def codes(name: str, kind: Any) -> NDArray:
        names = np.asarray(table.column(name).to_pylist(), dtype=object)
        return np.array([kind[one] for one in np.unique(names)], np.uint8)[np.unique(names, return_inverse=True)[1]]

    bounds = Bounds(
        numbers("epsilon_lower"),
        numbers("epsilon_estimate"),
        numbers("epsilon_upper"),
        codes("status", Status),
        codes("method", Method),
    )
    group, mu = table.column("group"), table.column("mu")
    return Results(
        ids.as_numpy(people),
        bounds,
        numbers("rdp_epsilon"),
        None if mu.null_count == len(mu) else numbers("mu"),
        None if group.null_count == len(group) else np.asarray(group.to_pylist()),
        {**facts, "guarantee": Guarantee(**facts["guarantee"])},
    )
