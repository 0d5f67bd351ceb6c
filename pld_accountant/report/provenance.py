"""Where an output comes from: the program and its version, the time, and the input file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from ..files.fingerprint import Source, fingerprint
from ..version import __version__

__all__ = ["provenance", "provenance_line"]

_PACKAGE = "individual-pld-accountant"


def provenance(source: Source | str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """The package, its version, the time in UTC, and the name and SHA-256 digest of the input file.

    Parameters
    ----------
    source : Source or path, optional
        The input: a path is read once for its digest.  None: the output says that no input file was named.

    Notes
    -----
    The environment variable ``SOURCE_DATE_EPOCH`` (seconds since 1970), if it is set, replaces the time, so that equal
    inputs give equal files.

    Examples
    --------
    >>> provenance(Source("norms.npy", "ba78"))["source"]
    {'name': 'norms.npy', 'sha256': 'ba78'}
    """
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    time = datetime.now(timezone.utc) if not fixed else datetime.fromtimestamp(int(fixed), timezone.utc)
    if source is not None and not isinstance(source, Source):
        source = fingerprint(source)
    return {
        "package": _PACKAGE,
        "version": __version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "source": None if source is None else asdict(source),
    }


def provenance_line(found: Mapping[str, Any]) -> str:
    """The result of `provenance` in one line of text."""
    source = found["source"]
    of = f"; {source['name']}, sha256 {source['sha256']}" if source else ""
    return f"{found['package']} {found['version']}, {found['time']}{of}"
