"""Results that take long to compute, kept in files between processes.

The files lie in ``$PLD_ACCOUNTANT_CACHE``, or else in ``pld_accountant`` of the user's cache folder; an empty variable
means no files.  A file is read only if its checksum is right, it belongs to this user, and nobody else may write to it.
The reader judges its content.  A file is whole or absent, so processes may read and write it at once: the
last one that writes it decides what it holds.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from . import store

__all__ = ["cache_folder", "code_of", "file_of", "read", "remove_oldest", "write"]


def cache_folder() -> Path | None:
    """Where the files lie; None: nowhere."""
    named = os.environ.get("PLD_ACCOUNTANT_CACHE")
    if named is not None:
        return Path(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "pld_accountant"


@cache
def code_of(*modules: ModuleType) -> str | None:
    """The digest of the sources of modules, and of all in packages; None if they cannot be read."""
    digest = hashlib.sha256()
    try:
        for module in modules:
            folders = getattr(module, "__path__", None)
            if folders is None:
                paths = [Path(module.__file__ or "")]
            else:
                paths = sorted(path for folder in folders for path in Path(folder).glob("*.py"))
            for path in paths:
                digest.update(path.name.encode() + path.read_bytes())
    except OSError:
        return None
    return digest.hexdigest()


def file_of(kind: str, code: str | None, parameters: Any) -> Path | None:
    """The file for what this code computes from these parameters, which JSON can write; None if no files are kept."""
    folder = cache_folder() if code else None
    digest = hashlib.sha256(json.dumps([code, parameters]).encode()).hexdigest()
    return folder and folder / f"{kind}-{digest[:24]}.npz"


def read(path: Path, kind: str, version: int) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """Header and arrays of a file; None if there is none that can be trusted."""
    try:
        found = store.load(path, kind, version, private=True)
        os.utime(path)  # it is in use: `remove_oldest` takes others first
    except (OSError, store.StoreError):
        return None
    return found


def write(path: Path, kind: str, version: int, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Keep a file, if its folder can be written to."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        store.save(path, kind, version, header, arrays, sensitive=False)


def remove_oldest(kind: str, most: int) -> None:
    """Remove the files of a kind that were not used for the longest time, until the rest have `most` bytes at most."""
    folder = cache_folder()
    if folder is None:
        return
    with suppress(OSError):
        found = [(path, path.lstat()) for path in folder.glob(f"{kind}-*.npz")]
        held = 0
        for path, state in sorted(found, key=lambda one: -one[1].st_mtime_ns):
            held += state.st_size
            if held > most:
                path.unlink(missing_ok=True)
