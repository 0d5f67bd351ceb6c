"""Tables on disk: keyed by a hash of everything that determines them, checked when read, never trusted otherwise.

The folder is ``$PLD_ACCOUNTANT_CACHE``, else ``$XDG_CACHE_HOME/pld-accountant``, else ``~/.cache/pld-accountant``; an
empty ``PLD_ACCOUNTANT_CACHE`` switches the cache off.  Files are written whole or not at all, so processes may share
the folder; a file that is damaged or foreign is treated as absent and rewritten.  A folder that cannot be written is no
error: the tables are then made anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import store

__all__ = ["folder", "key", "read_arrays", "write_arrays"]

_KIND, _VERSION = "pld-accountant tables", 1
_LIMIT_BYTES = 2 << 30


def folder() -> Path | None:
    """Where the tables are kept; None where the cache is off."""
    chosen = os.environ.get("PLD_ACCOUNTANT_CACHE")
    if chosen is not None:
        return Path(chosen) if chosen else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "pld-accountant"


def key(*parts: Any) -> str:
    """A name that depends on every part (numbers, strings, arrays) and on the code that makes the tables."""
    h = hashlib.sha256(f"{_KIND} {_VERSION} {_code()}".encode())
    for part in parts:
        if isinstance(part, np.ndarray):
            h.update(f"|{part.dtype.str}{part.shape}|".encode() + np.ascontiguousarray(part).tobytes())
        else:
            h.update(f"|{part!r}|".encode())
    return h.hexdigest()


@lru_cache(maxsize=1)
def _code() -> str:
    """Digest of the sources that determine a table: another release's tables are never taken for this one's."""
    here = Path(__file__).parents[1]
    h = hashlib.sha256()
    for name in (
        "tables/grid.py", "tables/characteristic.py", "tables/errors.py", "tables/table.py", "tables/fft.py",
        "kernels/discretise.py",
    ):
        h.update((here / name).read_bytes())
    return h.hexdigest()


def read_arrays(name: str) -> dict[str, NDArray] | None:
    """The arrays stored under `name`; None where they are absent, damaged or of another version."""
    where = folder()
    if where is None:
        return None
    try:
        header, arrays = store.load(where / f"{name}.npz", _KIND, _VERSION)
    except (OSError, store.StoreError):
        return None
    return arrays if header.get("name") == name else None


def write_arrays(name: str, arrays: Mapping[str, NDArray]) -> None:
    """Keep the arrays under `name` if the folder can be written; the oldest files go when it grows over 2 GiB."""
    where = folder()
    if where is None:
        return
    try:
        where.mkdir(parents=True, exist_ok=True)
        store.save(where / f"{name}.npz", _KIND, _VERSION, {"name": name}, arrays)
        _prune(where)
    except OSError:
        return


def _prune(where: Path) -> None:
    files = sorted((f.stat().st_mtime, f.stat().st_size, f) for f in where.glob("*.npz"))
    held = sum(size for _, size, _ in files)
    for _, size, file in files:
        if held <= _LIMIT_BYTES:
            return
        file.unlink(missing_ok=True)
        held -= size
