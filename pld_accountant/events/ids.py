"""Ids of people: an Arrow array of distinct int64 or texts.

UUIDs and other objects become texts.  Arrow keeps ten million texts in their own length, without an object for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files.formats import require

__all__ = ["ARRAYS", "as_ids", "as_numpy", "coded", "distinct", "from_arrays", "joined", "positions", "to_arrays"]

ARRAYS = ("ids", "id_ends", "id_text")
"""Names of the arrays in a file."""

Ids = Any
"""A `pyarrow.Array` of int64 or large_string without nulls."""


def _arrow() -> Any:
    return require("pyarrow", "parquet", "naming people by id")


def as_ids(values: Any, name: str = "people") -> Ids:
    """Ids as an Arrow array of int64 or large_string; they need not be distinct.

    Raises
    ------
    ValueError
        If an id is missing, or is neither an integer nor a text nor a UUID.
    """
    pa = _arrow()
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        values = np.asarray(values) if not hasattr(values, "to_numpy") else values.to_numpy()
        if values.ndim != 1:
            raise ValueError(f"{name} must have one dimension, got shape {values.shape}")
        if values.dtype.kind == "O":
            values = _from_objects(values, name)
        elif values.dtype.kind not in "iuUT":
            raise ValueError(f"{name} must be integers, texts or UUIDs, got {values.dtype}")
        else:
            values = pa.array(values if values.dtype.kind != "T" else values.tolist())
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.null_count:
        raise ValueError(f"{name} has {values.null_count} missing ids; every event belongs to somebody")
    return _plain(values, name)


def _from_objects(values: NDArray, name: str) -> Any:
    import uuid

    pa = _arrow()
    kinds = {type(value) for value in values}
    missing = {type(None), float}
    if kinds & missing:
        raise ValueError(f"{name} holds missing ids or fractions; ids are integers, texts or UUIDs")
    if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
        return pa.array([int(value) for value in values], type=pa.int64())
    if not all(issubclass(kind, (str, uuid.UUID)) for kind in kinds):
        raise ValueError(f"{name} must be integers, or texts and UUIDs, got {sorted(kind.__name__ for kind in kinds)}")
    return pa.array([str(value) for value in values], type=pa.large_string())


def _plain(values: Any, name: str) -> Ids:
    """An Arrow array of any kind of id as int64 or large_string."""
    import uuid

    pa = _arrow()
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):  # Arrow's own UUIDs
        values, kind = values.storage, values.storage.type
    if pa.types.is_integer(kind):
        try:
            return values.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise ValueError(f"{name} must lie within 64-bit signed integers: {error}") from error
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return values.cast(pa.large_string())
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return pa.array([str(uuid.UUID(bytes=value.as_py())) for value in values], type=pa.large_string())
    raise ValueError(f"{name} must be integers, texts or UUIDs, got {kind}")


def coded(column: Any, name: str) -> Any:
    """A chunked column as an Arrow array with a dictionary of distinct values.

    A column that comes with a dictionary is coded anew: a dictionary may repeat values, or hold a missing one.
    """
    pa = _arrow()
    array = column.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count:
        raise ValueError(f"{name} has {array.null_count} missing values")
    return array.dictionary_encode()


def distinct(values: Any, name: str = "people") -> Ids:
    """As `as_ids`, for ids that must not repeat."""
    import pyarrow.compute as pc

    ids = as_ids(values, name)
    if len(pc.unique(ids)) < len(ids):
        counted = pc.value_counts(ids)
        twice = counted.filter(pc.greater(counted.field("counts"), 1)).field("values")[0].as_py()
        raise ValueError(f"{name} must be distinct, but {twice!r} occurs twice")
    return ids


def _same_kind(ids: Ids, others: Ids) -> None:
    if len(ids) and len(others) and ids.type != others.type:
        raise ValueError(f"ids of one kind cannot be compared with ids of another: {ids.type} and {others.type}")


def positions(ids: Ids, among: Ids) -> NDArray[np.int64]:
    """Where each id stands in `among`; -1 for ids that do not."""
    import pyarrow.compute as pc

    _same_kind(ids, among)
    if not len(ids) or not len(among):
        return np.full(len(ids), -1, dtype=np.int64)
    found = pc.index_in(ids, value_set=among)
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)


def joined(ids: Ids, others: Ids) -> Ids:
    """The ids, followed by those of the others that are new; both distinct."""
    pa = _arrow()
    new = others.filter(pa.array(positions(others, ids) < 0))
    return pa.concat_arrays([ids if len(ids) else ids.cast(new.type), new]) if len(new) else ids


def as_numpy(ids: Ids) -> NDArray:
    """int64, or an object array of str."""
    return np.asarray(ids.to_numpy(zero_copy_only=False))


def to_arrays(ids: Ids) -> dict[str, NDArray]:
    """Arrays without objects, for files: the integers, or the UTF-8 bytes and where each text ends."""
    pa = _arrow()
    if pa.types.is_int64(ids.type):
        return {"ids": as_numpy(ids)}
    import pyarrow.compute as pc

    ends = np.cumsum(pc.binary_length(ids).to_numpy(zero_copy_only=False), dtype=np.int64)
    whole = pa.array(ids.to_pylist(), type=pa.large_string()) if ids.offset else ids
    raw = whole.buffers()[2]
    size = int(ends[-1]) if ends.size else 0
    text = np.frombuffer(raw, dtype=np.uint8, count=size) if size else np.zeros(0, np.uint8)
    return {"id_ends": ends, "id_text": text}


def from_arrays(arrays: dict[str, NDArray], people: int) -> Ids:
    """The reverse of `to_arrays`; `ValueError` if the arrays are not ids of that many people."""
    pa = _arrow()
    if "ids" in arrays:
        found = distinct(pa.array(arrays["ids"]))
    else:
        ends = arrays["id_ends"].astype(np.int64)
        text = arrays["id_text"].astype(np.uint8)
        if ends.ndim != 1 or np.any(np.diff(ends, prepend=0) < 0) or (ends[-1] if ends.size else 0) != text.size:
            raise ValueError("its ids do not fit their text")
        offsets = np.concatenate([[0], ends]).astype(np.int64)
        found = pa.LargeStringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(text.tobytes()))
        found.validate(full=True)
        found = distinct(found)
    if len(found) != people:
        raise ValueError(f"it has {len(found)} ids for {people} people")
    return found
