"""Files of arrays and a JSON header, with checksum and version, written whole or not at all.

The container is numpy's ``.npz``, uncompressed and without pickled objects.  The member ``header`` holds UTF-8 JSON
with the kind and version of the file; the member ``sha256`` holds the digest of all other members.  A file that was
truncated, altered or written by another program is refused with `StoreError`.  Nothing is allocated for arrays that are
larger than the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, BinaryIO

import numpy as np

from .atomic import atomic_file
from .npy import read_npy

__all__ = ["SENSITIVE", "StoreError", "header", "load", "refuse_invalid", "save"]

SENSITIVE = (
    "Sensitive personal data: each row is computed from one person's data, and nothing here was made private by noise."
)
"""The header of every file with a value for each person says this."""


class StoreError(ValueError):
    """A file that lacks a part, was altered, has another kind or version, or holds no valid state."""


@contextmanager
def refuse_invalid(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turn every error of the block into a `StoreError` that names the file; a missing file stays missing."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:  # numpy, zipfile, json and the constructors have many kinds of errors
        why = f"it has no part {error}" if isinstance(error, KeyError) else f"{error or type(error).__name__}"
        raise StoreError(f"{os.fspath(path)} is not a whole {what} file: {why}") from error


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
    *,
    sensitive: bool = True,
) -> None:
    """Write `arrays` and a JSON-able `header` to one file, atomically.

    Parameters
    ----------
    path : path or file opened for writing bytes
        If it is an open file, the caller must make it whole.
    kind, version : str, int
        `load` needs the same kind and version.
    sensitive : bool
        Whether the arrays hold values of people, which the header then says.
    """
    about = {"kind": kind, "version": version, **({"sensitive": SENSITIVE} if sensitive else {})}
    text = json.dumps({**header, **about}, allow_nan=False)
    members = {**arrays, "header": np.frombuffer(text.encode(), dtype=np.uint8)}
    if any(a.dtype.hasobject for a in members.values()):
        raise TypeError("arrays of Python objects cannot be stored")
    with atomic_file(path) if isinstance(path, (str, os.PathLike)) else nullcontext(path) as file:
        np.savez(file, **members, sha256=_digest(members))  # type: ignore[arg-type]


def load(
    path: str | os.PathLike[str], kind: str, version: int, *, private: bool = False
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a file that `save` wrote.

    Parameters
    ----------
    path : path
    kind, version : str, int
    private : bool
        Whether the file must be a regular one that belongs to this user and that nobody else may write to.

    Returns
    -------
    header, arrays : dict, dict

    Raises
    ------
    FileNotFoundError
    StoreError
        If the file is not whole, not of this `kind`, of another `version`, or not `private`.
    """
    path = os.fspath(path)  # a number would be taken for an open file, and closed
    with refuse_invalid(path, kind):
        arrays = _members(path, private)
        expected = arrays.pop("sha256")
        whole = expected.tobytes() == _digest(arrays).tobytes()
        header = json.loads(arrays.pop("header").tobytes(), parse_constant=_no_number)
        found = header.pop("kind"), header.pop("version")
        header.pop("sensitive", None)
    if not whole:
        raise StoreError(f"{os.fspath(path)} was altered or damaged: its checksum does not match")
    if found[0] != kind:
        raise StoreError(f"{os.fspath(path)} is a {found[0]!r} file, not a {kind!r} file")
    if found[1] != version:
        raise StoreError(f"{os.fspath(path)} has format version {found[1]}; this release reads version {version}")
    return header, arrays


def header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The header of a file of any kind and version, without its arrays and without a check of the checksum.

    Raises
    ------
    FileNotFoundError
    StoreError
        If the file has no header.
    """
    path = os.fspath(path)
    with refuse_invalid(path, "pld-accountant"), zipfile.ZipFile(path) as archive:
        member = archive.getinfo("header.npy")
        if member.file_size > os.path.getsize(path):
            raise ValueError("its header is larger than the file")
        with archive.open(member) as file:
            found = json.loads(read_npy(file, member.file_size).tobytes(), parse_constant=_no_number)
        if not isinstance(found, dict) or not {"kind", "version"} <= found.keys():
            raise ValueError("its header states no kind and version")
        return found


def _members(path: str | os.PathLike[str], private: bool) -> dict[str, np.ndarray]:
    """All arrays of an uncompressed ``.npz``."""
    with open(path, "rb", opener=_open_private if private else None) as raw:
        if raw.read(2) != b"PK":
            raise ValueError("it does not begin like one")
        with zipfile.ZipFile(raw) as archive:
            members = archive.infolist()
            if sum(m.file_size for m in members) > os.fstat(raw.fileno()).st_size:
                raise ValueError("its parts are larger than the file")
            arrays = {}
            for member in members:
                with archive.open(member) as file:
                    arrays[member.filename.removesuffix(".npy")] = read_npy(file, member.file_size)
    if len(arrays) < len(members):
        raise ValueError("two parts have one name")
    return arrays


def _open_private(path: str, flags: int) -> int:
    """Open a file that nobody else has written; the open file is looked at, so that none can take its place."""
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe is refused, not waited for
    found = os.fstat(descriptor)
    foreign = hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o022)
    if foreign or not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise PermissionError("somebody else may have written it")
    return descriptor


def _no_number(text: str) -> float:
    raise ValueError(f"its header holds {text}")
