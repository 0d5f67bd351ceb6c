"""Everybody's epsilon on a Dask cluster: `write_epsilons` runs a `PartitionJob` for each partition of the events.

1. Inspect: each input file is opened and digested.  A cut file, a missing column or the same file twice is found now.
2. Shuffle, unless the events are partitioned by person: Dask brings all events of a person together, and writes them to
   the folder ``_events``.
3. Solve: one task for each partition.  It reads a file, writes a part of the results, then a record of it
   (`report.folder`).  A worker that dies costs the partitions it was working on.
4. Check that nobody is in two partitions, and complete the manifest.

A run that was cut off begins again after the last step that was complete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .events.ids import as_ids
from .events.source import COLUMNS, column_names
from .files.fingerprint import Source, fingerprint
from .files.formats import ReadError, require
from .partitions import PartitionJob
from .report.folder import ResultFolder, digest_of
from .report.provenance import provenance

__all__ = ["PartitionError", "write_epsilons"]

_EVENTS = "_events"
_ROWS = 2_000_000  # events of a partition after a shuffle, unless told

Progress = Callable[[int, int], None]
Record = dict[str, Any]


class PartitionError(RuntimeError):
    """Some partitions could not be done; the others are kept.

    Attributes
    ----------
    failed : dict of str to str
        The reason for each partition, by the name of its file.
    """

    def __init__(self, failed: Mapping[str, str], total: int) -> None:
        self.failed = dict(failed)
        name, reason = next(iter(self.failed.items()))
        super().__init__(
            f"{len(self.failed)} of {total} partitions failed; the others are kept, and the same call does the rest.  "
            f"{name}: {reason}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.failed, str(self))


def _again(failed: Mapping[str, str], message: str) -> PartitionError:
    error = PartitionError(failed, len(failed))
    error.args = (message,)
    return error


def write_epsilons(
    job: PartitionJob,
    events: Any,
    out: str | os.PathLike[str],
    *,
    partitioned: bool = False,
    partitions: int | None = None,
    client: Any = None,
    progress: Progress | None = None,
) -> Path:
    """Write everybody's epsilon to a folder of Parquet files, in parallel and so that it can be continued.

    Parameters
    ----------
    job : PartitionJob
        The delta, the clipping norm and the schedule.
    events : path, dask.dataframe.DataFrame or dask.array.Array
        A Parquet file, a folder of Parquet files, or a data frame, with the columns of `Ledger.from_events`; or norms
        of shape (steps, people), an array or a Zarr store (a path that ends in .zarr), if all steps have one noise
        multiplier and one sample rate.  People of an array have their column's number as their id.
    out : path
        The folder of the results, on a disk that all workers share.  It is made, readable by its owner only.
    partitioned : bool
        Whether all events of a person are in one file (one partition of the data frame) already.  Otherwise Dask
        shuffles the events, and `out` needs room for all of them.
    partitions : int, optional
        Number of partitions after a shuffle; by default one for two million events, or those of the data frame.
    client : distributed.Client, optional
        By default the current one.
    progress : callable, optional
        Called as ``progress(partitions_done, partitions)``.

    Returns
    -------
    Path
        `out`, which `read_results` reads.

    Raises
    ------
    ReadError
        A ValueError: a file is cut, is no Parquet or lacks a column; or there is no file.
    ValueError
        If two files are equal, somebody is in two partitions, `out` belongs to another job or to other events, or there
        is no client.
    PartitionError
        If partitions could not be done.  The others are kept: the same call does the rest.

    Notes
    -----
    Call it again after whatever stopped it, with the same arguments.  Finished partitions are kept if their checksum
    and that of their input hold.  A file whose partition has not been done may have been replaced in the meantime.

    Give each worker one thread: a task uses one, and each thread keeps tables of its own.
    """
    distributed = require("distributed", "dask", "running on a cluster")
    if client is None:
        try:
            client = distributed.get_client()
        except ValueError:
            raise ValueError("there is no Dask client: make one first, for example distributed.Client()") from None
    folder = ResultFolder(out)
    folder.path.mkdir(mode=0o700, exist_ok=True)
    run = _Run(job, folder, client, distributed)
    norms = _norms(events)
    if norms is not None:
        events, partitioned = _by_columns(norms, job), True
    source, files = run.source(events, partitioned)
    about = {"job": run.parameters, "events": source, "partitioned": partitioned}
    manifest = folder.manifest()
    if manifest is None and any(path.name != _EVENTS for path in folder.path.iterdir()):
        raise ValueError(f"{folder.path} is not empty, and holds no results: choose another folder")
    _check_same(folder, manifest, about)
    split = manifest.get("partitions") if manifest else None
    direct = partitioned and files is not None
    if direct:
        split = source
    elif split is None:
        folder.write_manifest({**about, "complete": False})
        split = run.shuffled(events if files is None else files, partitioned, partitions, source)
    folder.write_manifest({**about, "partitions": split, "complete": False})
    root = _root(events) if direct else folder.path / _EVENTS
    whole = None if files is None else digest_of(source, Path(events).name)
    records = run.solve(split, root, None if direct else whole, progress)
    if partitioned:
        run.check_nobody_twice(records)
    parts = [one for one in records if one["people"]]
    folder.write_manifest({
        **about,
        "partitions": split,
        "parts": parts,
        "num_examples": sum(one["people"] for one in parts),
        "source": None if whole is None else asdict(whole),
        "complete": True,
    })  # fmt: skip
    shutil.rmtree(folder.path / _EVENTS, ignore_errors=True)
    folder.remove_strays([one["part"] for one in parts])
    return folder.path


def _norms(events: Any) -> Any:
    """The Dask array of norms that is given, or is in a Zarr store; None for a table."""
    if isinstance(events, (str, os.PathLike)) and Path(events).suffix == ".zarr":
        require("zarr", "zarr", f"reading {events}")
        if not Path(events).exists():
            raise FileNotFoundError(2, "no such folder", os.fspath(events))
        return require("dask.array", "dask", f"reading {events}").from_zarr(os.path.abspath(events))
    return events if hasattr(events, "chunks") and hasattr(events, "rechunk") else None


def _by_columns(norms: Any, job: PartitionJob) -> Any:
    """A data frame of events, partitioned by person, of norms of shape (steps, people)."""
    frames = require("dask.dataframe", "dask", "reading norms")
    if len(job.schedule) != 1:
        raise ValueError("norms in an array need a schedule of one noise multiplier and one sample rate")
    steps = job.schedule[0][2]
    if norms.ndim != 2 or norms.shape[0] != steps:
        raise ValueError(
            f"norms must have shape (steps, people), with the {steps} steps of the schedule: {norms.shape}"
        )
    people = max(_ROWS // steps, 1)
    blocks = norms.rechunk((steps, people)).to_delayed().reshape(-1)
    delayed = require("dask", "dask", "reading norms").delayed
    names = {name: (job.columns or {}).get(name, name) for name in ("person", "norm")}
    parts = [delayed(_columns, pure=True)(block, number * people, names) for number, block in enumerate(blocks)]
    empty = _columns(np.zeros((steps, 0)), 0, names)
    return frames.from_delayed(parts, meta=empty, prefix=f"events-{norms.name}", verify_meta=False)


def _columns(norms: NDArray, first: int, names: Mapping[str, str]) -> Any:
    """An event for each norm of a block of people, of whom the first has this number."""
    import pandas

    steps, people = norms.shape
    person = np.repeat(np.arange(first, first + people), steps)
    return pandas.DataFrame({names["person"]: person, names["norm"]: np.asarray(norms, dtype=np.float64).T.reshape(-1)})


def _root(path: Any) -> Path:
    root = Path(path)
    return root if root.is_dir() else root.parent


def _files(path: Any) -> list[Path]:
    root = Path(path)
    if not root.exists():
        raise FileNotFoundError(2, "no such file or folder", os.fspath(root))
    found = [root] if root.is_file() else sorted(root.rglob("*.parquet"), key=Path.as_posix)
    found = [one for one in found if not any(p.startswith((".", "_")) for p in one.relative_to(root).parts)]
    if not found:
        raise ReadError(f"{root} holds no Parquet files")
    return found


def _check_folders(files: Sequence[Path], root: Path, columns: Mapping[str, str] | None) -> None:
    """Raise `ReadError` if a column of events is written as the name of a folder, such as ``step=7``."""
    names = {(columns or {}).get(name, name) for name in COLUMNS}
    for one in files:
        inside = {part.partition("=")[0] for part in one.relative_to(root).parts[:-1] if "=" in part}
        if found := sorted(inside & names):
            raise ReadError(f"{one} has the column {found[0]!r} in the name of its folder; write it as a column")


def _check_same(folder: ResultFolder, manifest: Mapping[str, Any] | None, about: Mapping[str, Any]) -> None:
    """Raise `ValueError` if the folder was begun with other parameters, or finished partitions with other events."""
    if manifest is None:
        return
    again = f"; choose another folder, or remove {folder.path} to begin anew"
    if manifest["job"] != about["job"] or manifest["partitioned"] != about["partitioned"]:
        names = [name for name in about["job"] if manifest["job"].get(name) != about["job"][name]] or ["partitioned"]
        raise ValueError(f"{folder.path} was begun with another {' and '.join(names)}{again}")
    before, now = manifest["events"], about["events"]
    if before == now or (not manifest.get("partitions")):
        return
    files = isinstance(now, list) and isinstance(before, list) and about["partitioned"]
    if not files or [one["name"] for one in before] != [one["name"] for one in now]:
        raise ValueError(f"{folder.path} was begun with other events{again}")
    for number, (old, new) in enumerate(zip(before, now, strict=True)):
        if old["sha256"] != new["sha256"] and folder.noted(number) is not None:
            raise ValueError(f"{new['name']} has changed since its partition was done{again}")


# ----------------------------------------------------------------------------------------------- tasks of the workers


def _inspect(path: str, name: str, columns: Mapping[str, str] | None) -> Record:
    """Name, digest, rows, columns and kind of ids of a file of events."""
    pa = require("pyarrow", "dask", f"reading {path}")
    parquet = require("pyarrow.parquet", "dask", f"reading {path}")
    try:
        found = parquet.read_metadata(path)
    except (OSError, ValueError) as error:
        raise ReadError(f"{path} cannot be read as Parquet: {error}") from error
    schema, person = found.schema.to_arrow_schema(), dict(columns or {}).get("person", "person")
    names = column_names(schema.names, columns, path)
    return {
        "name": name,
        "sha256": fingerprint(path).sha256,
        "rows": found.num_rows,
        "columns": names,
        "ids": str(as_ids(pa.array([], type=schema.field(person).type), person).type),
    }


def _pieces(path: str) -> list[tuple[str, list[int]]]:
    """A file and row groups of at most two million rows together, if one row group has no more."""
    about = require("pyarrow.parquet", "dask", f"reading {path}").read_metadata(path)
    found: list[tuple[str, list[int]]] = []
    room = 0
    for group in range(about.num_row_groups):
        rows = about.row_group(group).num_rows
        if rows > room or not found:
            found.append((path, []))
            room = _ROWS
        found[-1][1].append(group)
        room -= rows
    return found


def _rows(piece: tuple[str, list[int]], schema: Any, person: str) -> Any:
    """Row groups of a file of events as a data frame, whose ids are integers or texts."""
    path, groups = piece
    file = require("pyarrow.parquet", "dask", f"reading {path}").ParquetFile(path)
    table = file.read_row_groups(groups, columns=schema.names).select(schema.names)
    ids = as_ids(table.column(person), person)
    return _frame(table.set_column(schema.get_field_index(person), person, ids).cast(schema))


def _frame(table: Any) -> Any:
    """A data frame of pandas whose texts stay those of Arrow."""
    import pandas
    import pyarrow as pa

    texts = {pa.string(): pandas.StringDtype("pyarrow"), pa.large_string(): pandas.StringDtype("pyarrow")}
    return table.to_pandas(types_mapper=texts.get)


def _solve_part(job: PartitionJob, out: str, number: int, path: str, one: Record, source: Source | None) -> Record:
    """The record of a partition, which is done if it has not been."""
    folder = ResultFolder(out)
    done = folder.record(number)
    if done is not None and done["input_sha256"] == one["sha256"]:
        return done
    if not os.path.exists(path):
        raise ValueError(f"{path} is gone, and its part of the results is missing or altered: begin anew")
    if fingerprint(path).sha256 != one["sha256"]:
        raise ValueError(f"{path} has changed since the run began")
    source = source or Source(one["name"], one["sha256"])
    part = folder.new_part(number)
    people = job.write(path, part, source=source)
    done = folder.record(number)
    if done is not None and done["input_sha256"] == one["sha256"]:
        # somebody else has done it meanwhile, for example a worker that was believed dead
        part.unlink(missing_ok=True)
        return done
    return folder.note(number, part if people else None, people, name=one["name"], sha256=one["sha256"])


def _twice(frame: Any) -> Any:
    """The first row of a partition that repeats an id."""
    return frame[frame["id"].duplicated()].head(1)


# ------------------------------------------------------------------------------------------------------------ the run


class _Run:
    """The steps of one call."""

    def __init__(self, job: PartitionJob, folder: ResultFolder, client: Any, distributed: Any) -> None:
        self._job, self._folder, self._client, self._distributed = job, folder, client, distributed
        self.parameters = {
            **asdict(job),
            "schedule": [list(step) for step in job.schedule],
            "version": provenance()["version"],
        }

    def source(self, events: Any, partitioned: bool) -> tuple[Any, list[Path] | None]:
        """The manifest's entry on the events, and their files; None for a data frame."""
        if not isinstance(events, (str, os.PathLike)):
            if not hasattr(events, "to_parquet") or not hasattr(events, "npartitions"):
                raise ValueError(
                    f"events must be a path, a Dask data frame or a Dask array, got {type(events).__name__}"
                )
            return str(events._name), None
        files = _files(events)
        _check_folders(files, _root(events), self._job.columns)
        found = self.inspect(files, _root(events))
        seen: dict[str, str] = {}
        for one in found:
            if one["rows"] and (other := seen.setdefault(one["sha256"], one["name"])) != one["name"]:
                raise ValueError(f"{one['name']} and {other} are equal: their events would be counted twice")
        return found, files

    def inspect(self, files: Sequence[Path], root: Path) -> list[Record]:
        names = [path.relative_to(root).as_posix() for path in files]
        paths = [os.path.abspath(path) for path in files]
        columns = self._job.columns
        futures = self._client.map(_inspect, paths, names, columns=columns, pure=False)
        return list(self._client.gather(futures))

    def shuffled(self, events: Any, partitioned: bool, partitions: int | None, source: Any) -> list[Record]:
        """Write the events by person, and return what `inspect` finds of the files."""
        frames = require("dask.dataframe", "dask", "shuffling events")
        where = self._folder.path / _EVENTS
        shutil.rmtree(where, ignore_errors=True)
        if isinstance(events, list):
            frame = self._read(frames, events, source)
            partitions = partitions or max(1, -(-sum(one["rows"] for one in source) // _ROWS))
        else:
            frame = events[column_names(list(events.columns), self._job.columns, "the data frame")]
        if not partitioned:
            person = dict(self._job.columns or {}).get("person", "person")
            frame = frame.shuffle(person, npartitions=partitions or frame.npartitions, ignore_index=True)
        frame.to_parquet(os.path.abspath(where), write_index=False, compute_kwargs={"scheduler": self._client})
        return self.inspect(_files(where), where)

    def _read(self, frames: Any, files: Sequence[Path], source: Sequence[Record]) -> Any:
        """A data frame of the events of all files, which must have the same columns."""
        pa = require("pyarrow", "dask", "reading events")
        parquet = require("pyarrow.parquet", "dask", "reading events")
        first, person = source[0], dict(self._job.columns or {}).get("person", "person")
        for one in source:
            if sorted(one["columns"]) != sorted(first["columns"]) or one["ids"] != first["ids"]:
                what = "other columns" if one["ids"] == first["ids"] else "ids of another kind"
                raise ReadError(f"{one['name']} has {what} than {first['name']}")
        schema = parquet.read_schema(files[0])
        types = {name: schema.field(name).type for name in first["columns"]}
        plain = {name: t.value_type if pa.types.is_dictionary(t) else t for name, t in types.items()}
        plain[person] = as_ids(pa.array([], type=types[person])).type
        schema = pa.schema(plain)
        pieces = self._client.gather(self._client.map(_pieces, [os.path.abspath(path) for path in files], pure=False))
        return frames.from_map(
            _rows,
            [piece for of_file in pieces for piece in of_file],
            schema=schema,
            person=person,
            meta=_frame(schema.empty_table()),
        )

    def solve(
        self, split: Sequence[Record], root: Path, source: Source | None, progress: Progress | None
    ) -> list[Record]:
        """The records of all partitions."""
        out = os.path.abspath(self._folder.path)
        futures = {}
        for number, one in enumerate(split):
            path = os.path.abspath(root / one["name"])
            arguments = self._job, out, number, path, one, source
            futures[self._client.submit(_solve_part, *arguments, pure=False)] = number
        records: dict[int, Record] = {}
        failed: dict[str, str] = {}
        try:
            for done, future in enumerate(self._distributed.as_completed(list(futures)), 1):
                number = futures.pop(future)
                if future.status == "finished":
                    records[number] = future.result()
                else:
                    error = future.exception()
                    failed[split[number]["name"]] = f"{type(error).__name__}: {error}"
                if progress is not None:
                    progress(done, len(split))
        finally:
            self._client.cancel(list(futures))
        if failed:
            raise PartitionError(dict(sorted(failed.items())), len(split))
        return [records[number] for number in range(len(split))]

    def check_nobody_twice(self, records: Sequence[Record]) -> None:
        """Raise `ValueError` if somebody is in two partitions."""
        parts = [os.path.abspath(self._folder.path / one["part"]) for one in records if one["people"]]
        if len(parts) < 2:
            return
        frames = require("dask.dataframe", "dask", "checking ids")
        found = frames.read_parquet(parts, columns=["id"]).shuffle("id", ignore_index=True).map_partitions(_twice)
        twice = self._client.compute(found, sync=True)
        if len(twice):
            name = twice["id"].tolist()[0]
            raise ValueError(
                f"{name!r} is in two partitions, although the events are said to be partitioned by person; "
                "call it with partitioned=False and another folder, or remove the file that is there twice"
            )
