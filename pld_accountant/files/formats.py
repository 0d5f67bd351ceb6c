"""The file formats of a norm log, each opened as a `Table` whose rows or columns can be read.

Every opener takes a path and the name of the array inside the file, or None.  Optional libraries are imported on first
use; if one is missing, the error names the extra that installs it.
"""

from __future__ import annotations

import importlib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from .npy import NpyHeader, read_header, read_npy

__all__ = ["OPENERS", "ReadError", "Table", "require"]

# Bytes of a Parquet or .npz file that are decoded at once.
_BATCH_BYTES = 16 * 2**20
_LONGEST_WORD = 4096  # bytes of the .npz member that states the orientation


class ReadError(ValueError):
    """A file that cannot be read in the expected format; the message names the file and the remedy."""


def require(module: str, extra: str, purpose: str) -> Any:
    """Import an optional library, or raise `ReadError` with the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        library = module.partition(".")[0]
        raise ReadError(f"{purpose} needs {library}: pip install 'individual-pld-accountant[{extra}]'") from None


@dataclass(frozen=True)
class Table:
    """An opened file: a table whose ranges of rows or of columns can be read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rows: Callable[[int, int], np.ndarray]
    columns: Callable[[int, int], np.ndarray]
    orientation: str | None = None  # as stated in the file
    direct: bool = False  # True: every block of rows costs the same, so no slab is kept
    close: Callable[[], None] = lambda: None


def _chosen(names: Sequence[str], dataset: str | None, file: Path, what: str) -> str:
    if dataset is not None:
        if dataset not in names:
            raise ReadError(f"{file} has no {what} {dataset!r}; it has {', '.join(names) or 'none'}")
        return dataset
    if "norms" in names:
        return "norms"
    if len(names) == 1:
        return names[0]
    if not names:
        raise ReadError(f"{file} has no {what}")
    raise ReadError(f"{file} holds {len(names)} {what}s; name the one to read (dataset): {', '.join(names)}")


def _of_array(array: Any, *, stated: Any = None, direct: bool = False, close: Any = None) -> Table:
    """The table of an object that is sliced like an array."""
    return Table(
        shape=tuple(array.shape),
        dtype=np.dtype(array.dtype),
        rows=lambda a, b: np.asarray(array[a:b]),
        columns=lambda a, b: np.asarray(array[:, a:b]),
        orientation=None if stated is None else str(stated),
        direct=direct,
        close=close or (lambda: None),
    )


def _open_npy(file: Path, dataset: str | None) -> Table:
    if dataset is not None:
        raise ReadError(f"{file} holds one array without a name, not {dataset!r}")
    with file.open("rb") as raw:
        header = read_header(raw, file.stat().st_size)
    order = "F" if header.columns_first else "C"
    array = np.memmap(file, header.dtype, "r", header.offset, header.shape, order)  # type: ignore[call-overload]
    return _of_array(array, direct=True)


def _open_npz(file: Path, dataset: str | None) -> Table:
    archive = zipfile.ZipFile(file)
    try:
        members = {m.filename.removesuffix(".npy"): m for m in archive.infolist()}
        stated = members.pop("orientation", None)
        word = None
        if stated is not None:
            if stated.file_size > _LONGEST_WORD:
                raise ValueError("its orientation is not a word")
            with archive.open(stated) as raw:
                word = read_npy(raw, stated.file_size).item()
        member = members[_chosen(list(members), dataset, file, "array")]
        return _of_member(archive, member, word)
    except BaseException:
        archive.close()
        raise


def _of_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, stated: Any) -> Table:
    """The table of an array in a zip archive, read in blocks along the axis in which it is stored."""
    with archive.open(member) as raw:
        header = read_header(raw, member.file_size)

    def lines() -> Iterator[np.ndarray]:
        with archive.open(member) as raw:
            yield from _lines(raw, header)

    along = _Sequential(lines).read

    def across(start: int, stop: int) -> np.ndarray:
        return _cut(lines(), start, stop)

    return Table(
        shape=header.shape,
        dtype=header.dtype,
        rows=(lambda a, b: across(a, b).T) if header.columns_first else along,
        columns=(lambda a, b: along(a, b).T) if header.columns_first else across,
        orientation=None if stated is None else str(stated),
        close=archive.close,
    )


def _lines(raw: IO[bytes], header: NpyHeader) -> Iterator[np.ndarray]:
    """The rows of a stored table in blocks; its columns if it is stored by columns."""
    lines, width = header.shape[::-1] if header.columns_first else header.shape
    raw.read(header.offset)
    length = width * header.dtype.itemsize
    block = max(1, _BATCH_BYTES // length)
    for start in range(0, lines, block):
        number = min(block, lines - start)
        yield np.frombuffer(raw.read(number * length), header.dtype).reshape(number, width)


def _open_zarr(file: Path, dataset: str | None) -> Table:
    zarr = require("zarr", "zarr", f"reading {file}")
    node = zarr.open(str(file), mode="r")
    stated = node.attrs.get("orientation")
    if not hasattr(node, "dtype"):
        node = node[_chosen(sorted(node.array_keys()), dataset, file, "array")]
        stated = node.attrs.get("orientation", stated)
    return _of_array(node, stated=stated)


def _open_hdf5(file: Path, dataset: str | None) -> Table:
    h5py = require("h5py", "hdf5", f"reading {file}")
    handle = h5py.File(file, "r")
    try:
        names: list[str] = []
        handle.visititems(lambda name, node: names.append(name) if isinstance(node, h5py.Dataset) else None)
        array = handle[_chosen(names, dataset, file, "dataset")]
        stated = array.attrs.get("orientation", handle.attrs.get("orientation"))
        return _of_array(array, stated=stated, close=handle.close)
    except BaseException:
        handle.close()
        raise


class _Sequential:
    """Ranges of rows from an iterator of arrays.  Reading forward costs one pass; going back starts again."""

    def __init__(self, make: Callable[[], Iterator[np.ndarray]]) -> None:
        self._make = make
        self._restart()

    def _restart(self) -> None:
        self._arrays = self._make()
        self._rest: np.ndarray | None = None
        self._at = 0

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` (at least one)."""
        if start < self._at:
            self._restart()
        parts = []
        while self._at < stop:
            if self._rest is None or not len(self._rest):
                self._rest = next(self._arrays)
            piece, self._rest = np.split(self._rest, [stop - self._at])
            if self._at + len(piece) > start:  # an empty part would keep its block in memory
                parts.append(piece[max(0, start - self._at) :])
            self._at += len(piece)
        return np.concatenate(parts)


def _cut(blocks: Iterator[np.ndarray], start: int, stop: int) -> np.ndarray:
    """A range of columns of a table that comes in blocks of rows; a view would keep its block in memory."""
    return np.concatenate([block[:, start:stop].copy() for block in blocks])


def _list_rows(column: Any, width: int, compute: Any) -> np.ndarray:
    """The rows of an Arrow list column as an array (rows, width)."""
    lengths = compute.list_value_length(column)
    if column.null_count or compute.min(lengths).as_py() != width or compute.max(lengths).as_py() != width:
        raise ReadError(f"the lists of a Parquet norm log must all have one length, {width} as in the first row")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, width)


def _open_parquet_lists(parquet: Any, name: str, dtype: np.dtype[Any], stated: str | None) -> Table:
    compute = require("pyarrow.compute", "parquet", "reading Parquet")
    rows = parquet.metadata.num_rows
    first = next(parquet.iter_batches(batch_size=1, columns=[name])).column(0)
    width = len(first[0].as_py() or [])

    def arrays() -> Iterator[np.ndarray]:
        size = max(1, _BATCH_BYTES // max(1, width * dtype.itemsize))
        for batch in parquet.iter_batches(batch_size=size, columns=[name]):
            yield _list_rows(batch.column(0), width, compute)

    return Table(
        shape=(rows, width),
        dtype=dtype,
        rows=_Sequential(arrays).read,
        columns=lambda a, b: _cut(arrays(), a, b),
        orientation=stated,
        close=parquet.close,
    )


def _open_parquet_wide(parquet: Any, names: Sequence[str], dtype: np.dtype[Any], stated: str | None) -> Table:
    def stacked(table: Any) -> np.ndarray:
        return np.column_stack([np.asarray(column) for column in table.columns]).astype(dtype, copy=False)

    def arrays() -> Iterator[np.ndarray]:
        size = max(1, _BATCH_BYTES // (len(names) * dtype.itemsize))
        return (stacked(batch) for batch in parquet.iter_batches(batch_size=size))

    return Table(
        shape=(parquet.metadata.num_rows, len(names)),
        dtype=dtype,
        rows=_Sequential(arrays).read,
        columns=lambda a, b: stacked(parquet.read(columns=list(names[a:b]))),
        orientation=stated,
        close=parquet.close,
    )


def _numpy_type(arrow_type: Any, file: Path) -> np.dtype[Any]:
    """The type of an Arrow column of numbers; Arrow's own `to_pandas_dtype` may need pandas."""
    types = require("pyarrow", "parquet", f"reading {file}").types
    for kind, is_kind in (
        ("f", types.is_floating),
        ("i", types.is_signed_integer),
        ("u", types.is_unsigned_integer),
    ):
        if is_kind(arrow_type):
            return np.dtype(f"{kind}{arrow_type.bit_width // 8}")
    raise ReadError(f"{file} must hold real numbers, got {arrow_type}")


def _open_parquet(file: Path, dataset: str | None) -> Table:
    arrow = require("pyarrow", "parquet", f"reading {file}")
    parquet = require("pyarrow.parquet", "parquet", f"reading {file}").ParquetFile(
        file,
        pre_buffer=False,  # else the whole file is fetched before the first row
        page_checksum_verification=True,  # of pages that have one
    )
    schema = parquet.schema_arrow
    stated = (schema.metadata or {}).get(b"orientation")
    stated = None if stated is None else stated.decode()
    if len(set(schema.names)) < len(schema.names):
        raise ReadError(f"{file} has columns of the same name")
    lists = [
        f.name for f in schema if isinstance(f.type, (arrow.ListType, arrow.LargeListType, arrow.FixedSizeListType))
    ]
    if not parquet.metadata.num_rows:
        raise ReadError(f"{file} holds no norms: it has no rows")
    if lists or dataset is not None:
        name = _chosen(lists, dataset, file, "list column")
        return _open_parquet_lists(parquet, name, _numpy_type(schema.field(name).type.value_type, file), stated)
    other = [f"{f.name} ({f.type})" for f in schema if not arrow.types.is_floating(f.type)]
    if other:
        # A column of step numbers would otherwise count as a person.
        raise ReadError(
            f"{file}: every column must hold one example's floating-point norms, or one column lists; "
            f"other columns: {', '.join(other[:5])}. An event table has a column 'person', or names it "
            "(--columns person=NAME)"
        )
    if all(name.isdecimal() for name in schema.names):
        numbers = [int(name) for name in schema.names]
        if numbers != sorted(numbers):
            raise ReadError(f"{file}: columns are read by position, but their numbers do not ascend; sort the columns")
    dtype = np.result_type(*{_numpy_type(f.type, file) for f in schema})
    return _open_parquet_wide(parquet, schema.names, dtype, stated)


OPENERS: dict[str, Callable[[Path, str | None], Table]] = {
    ".npy": _open_npy,
    ".npz": _open_npz,
    ".parquet": _open_parquet,
    ".zarr": _open_zarr,
    ".h5": _open_hdf5,
    ".hdf5": _open_hdf5,
}
