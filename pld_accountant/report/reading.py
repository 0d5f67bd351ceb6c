"""Results read back from the Parquet files that the package writes: `read_results`."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..files.formats import ReadError, require
from ..results import Bounds, Guarantee, Method, Status
from .comparison import Comparison, with_mu
from .folder import ResultFolder
from .individuals import Individuals
from .outputs import DIGEST, SCHEMA_VERSION, digest
from .summary import Summary, schedule_of, summarise

__all__ = ["read_results"]


def read_results(path: str | os.PathLike[str]) -> Summary | Comparison:
    """Read everybody's results from a Parquet file of `write_results` or of the command line.

    Parameters
    ----------
    path : path
        Written with ``out="....parquet"``, or a folder of results that a cluster wrote.

    Returns
    -------
    Summary or Comparison
        Equal to what was written, with the provenance of then.  ``.individuals.people`` has the ids.

    Raises
    ------
    FileNotFoundError
    ReadError
        A ValueError: the file is cut, is no result file, or is of another version of the columns; the folder is not
        complete, or one of its parts was altered.

    **Error**: none; each number is the one that was written.  The file of a comparison holds no lower bound of mu.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from pld_accountant import Ledger, summarise, write_results
    >>> events = {"person": ["ann", "bob"], "norm": [0.3, 1.0], "count": [100, 50]}
    >>> ledger = Ledger.from_events(events, noise_multiplier=2, sample_rate=0.01, max_grad_norm=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = write_results(summarise(ledger, 1e-5), out=pathlib.Path(folder, "eps.parquet"))
    ...     read_results(files[0]).individuals.people.tolist()
    ['ann', 'bob']
    """
    name = os.fspath(path)
    if os.path.isdir(path):
        return _from_parts(ResultFolder(path))
    table, facts = _read(name)
    return _made(name, table, facts)


def _from_parts(folder: ResultFolder) -> Summary | Comparison:
    name, manifest = os.fspath(folder.path), folder.manifest()
    pa = require("pyarrow", "parquet", f"reading {name}")
    read = [_read(os.fspath(part)) for part in folder.parts()]
    if not read:
        raise ReadError(f"{name} holds the results of nobody")
    same = ("delta", "steps", "parameters", "schedule", "worst_case", "guarantee")
    first = read[0][1]
    for _, facts in read:
        if any(facts.get(key) != first.get(key) for key in same):
            raise ReadError(f"{name} holds parts of different jobs")
    try:
        table = pa.concat_tables([table for table, _ in read]).unify_dictionaries()
    except ValueError as error:
        raise ReadError(f"{name} holds parts that do not fit together: {error}") from error
    provenance = {**first["provenance"], "source": (manifest or {}).get("source")}
    return _made(name, table, {**first, "num_examples": table.num_rows, "provenance": provenance})


def _read(name: str) -> tuple[Any, dict[str, Any]]:
    """The table of a file, and its facts."""
    if Path(name).suffix.lower() in (".csv", ".npz", ".json", ".html"):
        raise ReadError(
            f"{name} cannot be read: results are read from .parquet, which write_results and --out write too"
        )
    parquet = require("pyarrow.parquet", "parquet", f"reading {name}")
    arrow_error = require("pyarrow", "parquet", f"reading {name}").ArrowException
    try:
        with open(name, "rb") as file:
            table = parquet.read_table(file, use_threads=False)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, arrow_error) as error:
        raise ReadError(f"{name} cannot be read as Parquet: {error}") from error
    text = (table.schema.metadata or {}).get(b"pld_accountant")
    if text is None:
        raise ReadError(f"{name} holds no results: its metadata has no 'pld_accountant'")
    try:
        facts = json.loads(text)
        version = facts.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(f"its columns have version {version}; this release reads version {SCHEMA_VERSION}")
        written = table.schema.metadata.get(DIGEST.encode())
        columns = {name: _values(table.column(name)) for name in table.schema.names}
        if written is None:
            raise ValueError("its digest is missing, so that it was altered")
        if written != digest(columns, text.decode()).encode():
            raise ValueError("it was altered or damaged")
        return table, facts
    except (TypeError, ValueError, AttributeError, RecursionError, arrow_error) as error:
        raise ReadError(f"{name} holds no results that can be read: {error}") from error


def _made(name: str, table: Any, facts: Mapping[str, Any]) -> Summary | Comparison:
    try:
        return _results(table, facts)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ReadError(f"{name} holds no results that can be read: {what}") from error


def _results(table: Any, facts: Mapping[str, Any]) -> Summary | Comparison:
    columns = {name: _values(table.column(name)) for name in table.schema.names}
    bounds = [columns[f"epsilon_{name}"] for name in ("lower", "estimate", "upper")]
    if np.any(bounds[0] > bounds[2]):
        raise ValueError("a lower bound exceeds its upper bound")
    codes = [_codes(columns["status"], Status), _codes(columns["method"], Method)]
    worst = facts["worst_case"]
    people = Individuals(
        delta=float(facts["delta"]),
        epsilon=Bounds(*bounds, *codes),
        rdp_epsilon=columns["rdp_epsilon"],
        worst_case=Bounds(
            # JSON has no infinity
            _or(worst["lower"], math.inf),
            _or(worst["estimate"], math.inf if worst["lower"] is None else math.nan),
            _or(worst["upper"], math.inf),
            Status[worst["status"]],
            Method[worst["method"]],
        ),
        worst_case_rdp=_or(worst["rdp_epsilon"], math.inf),
        guarantee=_guarantee(facts["guarantee"]),
        steps=int(facts["steps"]),
        labels=columns.get("group"),
        people=columns["id"],
        parameters=facts["parameters"],
        schedule=schedule_of(facts["schedule"]),
        schedule_from_events=bool(facts.get("schedule_from_events", False)),
        looks_sampled=bool(facts.get("looks_sampled", False)),
        min_group=int(facts["min_group"]),
        provenance=facts["provenance"],
    )
    if people.num_examples != facts["num_examples"]:
        raise ValueError(f"it has {people.num_examples} rows for {facts['num_examples']} people")
    probabilities = tuple(one["probability"] for one in facts["quantiles"])
    if "mu" not in columns:
        return summarise(people, probabilities)
    worst_mu = _or(facts["worst_case_mu"], math.inf)
    upper = columns["mu"]
    nothing, known = np.full(upper.shape, np.nan), np.isfinite(upper)
    status = np.where(known, np.uint8(Status.CERTIFIED), np.uint8(Status.NOT_CERTIFIED))
    method = np.where(known, np.uint8(Method.TRANSFORM), np.uint8(Method.NONE))
    mu = Bounds(nothing, nothing, upper, status, method)
    return with_mu(people, mu, worst_mu, facts["min_delta"], probabilities)


def _guarantee(facts: Mapping[str, Any]) -> Guarantee:
    promise = facts.get("promise")
    return Guarantee(**{**facts, "promise": None if promise is None else (float(promise[0]), float(promise[1]))})


def _values(column: Any) -> np.ndarray:
    if column.null_count:
        raise ValueError("a value is missing")
    values = np.asarray(column.to_numpy())
    return values.astype(np.str_) if values.dtype.kind == "O" else values


def _codes(names: np.ndarray, kind: type[Status] | type[Method]) -> np.ndarray:
    found, place = np.unique(names, return_inverse=True)
    return np.array([kind[name] for name in found.tolist()], dtype=np.uint8)[place.reshape(-1)]


def _or(value: float | None, instead: float) -> float:
    return instead if value is None else float(value)
