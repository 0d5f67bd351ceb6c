"""Files that are whole or absent: numpy arrays and a JSON header, with checksum and version, written atomically.

The container is numpy's ``.npz``, without pickled objects.  The member ``header`` holds UTF-8 JSON with the kind and
version of the file; the member ``sha256`` holds the digest of all other members.  A file that was truncated, altered or
written by another program is refused with `StoreError`.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

__all__ = ["StoreError", "atomic_file", "load", "save"]


class StoreError(ValueError):
    """A file that lacks a part, was altered, or has another kind or version."""


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file for writing that replaces `path` when it is complete and on disk.

    Raises
    ------
    OSError
        If the folder is missing or cannot be written; `path` is then unchanged.
    """
    target = Path(path)
    temporary = target.parent / f".{target.name}.{secrets.token_hex(8)}.part"
    # with the permissions of an ordinary new file
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _digest(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    h = hashlib.sha256()
    for name in sorted(arrays):
        a = np.ascontiguousarray(arrays[name])
        h.update(f"{name}|{a.dtype.str}|{a.shape}|".encode())
        h.update(a.reshape(-1).view(np.uint8).data)
    return np.frombuffer(h.digest(), dtype=np.uint8)


def save(
    path: str | os.PathLike[str] | BinaryIO,
    kind: str,
    version: int,
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Write `arrays` and a JSON-able `header` to one file, atomically.

    Parameters
    ----------
    path : path or file opened for writing bytes
        If it is an open file, the caller must make it whole.
    kind, version : str, int
        `load` needs the same kind and version.
    """
    text = json.dumps({**header, "kind": kind, "version": version}, allow_nan=False)
    members = {**arrays, "header": np.frombuffer(text.encode(), dtype=np.uint8)}
    if any(a.dtype.hasobject for a in members.values()):
        raise TypeError("arrays of Python objects cannot be stored")
    with atomic_file(path) if isinstance(path, (str, os.PathLike)) else nullcontext(path) as file:
        np.savez(file, **members, sha256=_digest(members))  # type: ignore[arg-type]


def load(path: str | os.PathLike[str], kind: str, version: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a file that `save` wrote.

    Returns
    -------
    header, arrays : dict, dict

    Raises
    ------
    FileNotFoundError
    StoreError
        If the file is not whole, not of this `kind`, or of another `version`.
    """
    try:
        with open(path, "rb") as raw:
            if raw.read(2) != b"PK":
                raise ValueError("it does not begin like one")
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        expected = arrays.pop("sha256")
        whole = expected.tobytes() == _digest(arrays).tobytes()
        header = json.loads(arrays.pop("header").tobytes())
    except FileNotFoundError:
        raise
    except (OSError, KeyError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        why = f"it has no part {error}" if isinstance(error, KeyError) else str(error)
        raise StoreError(f"{os.fspath(path)} is not a whole {kind} file: {why}") from error
    if not whole:
        raise StoreError(f"{os.fspath(path)} was altered or damaged: its checksum does not match")
    if header.get("kind") != kind:
        raise StoreError(f"{os.fspath(path)} is a {header.get('kind')!r} file, not a {kind!r} file")
    if header.get("version") != version:
        raise StoreError(
            f"{os.fspath(path)} has format version {header.get('version')}; this release reads version {version}"
        )
    return header, arrays
