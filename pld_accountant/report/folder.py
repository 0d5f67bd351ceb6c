"""Results in parts: a folder with a result file for each partition, and a manifest that binds them to their inputs.

    _manifest.json               parameters, inputs, and when all is done the list of parts with their digests
    _done/00000.json             the record of a finished partition: its part, digests, number of people
    part-00000-1b2c3d4e.parquet  a result file like any other

A record is written after its part, and the list of parts after the last record.  A run that is cut off in between
leaves a partition to be done again, and never a part that is read twice or half.  Each attempt writes a part of its own
name: a worker that was believed dead cannot change what a record has digested.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files.atomic import atomic_file
from ..files.fingerprint import Source, fingerprint
from ..files.formats import ReadError

__all__ = ["MANIFEST", "ResultFolder", "digest_of"]

KIND, VERSION = "pld-accountant results in parts", 1
MANIFEST = "_manifest.json"
_DONE = "_done"
_RECORD = {"part", "sha256", "people", "input", "input_sha256"}

Record = dict[str, Any]


def digest_of(sources: Sequence[Mapping[str, Any]], name: str) -> Source:
    """The digest of a folder from those of its files, as `fingerprint` gives it."""
    import hashlib

    lines = "".join(f"{one['sha256']}  {one['name']}\n" for one in sources)
    return Source(name, hashlib.sha256(lines.encode()).hexdigest())


class ResultFolder:
    """A folder of results, whole or not yet."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    # ------------------------------------------------------------------ the manifest

    def manifest(self) -> dict[str, Any] | None:
        """The manifest; None if there is none.

        Raises
        ------
        ReadError
            If it is damaged, or of another kind or version.
        """
        file = self.path / MANIFEST
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            kind = found["kind"], found["version"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ReadError(f"{file} is no manifest of results: {error}") from error
        if kind != (KIND, VERSION):
            raise ReadError(f"{file} has kind and version {kind}; this release reads {(KIND, VERSION)}")
        return found

    def write_manifest(self, facts: Mapping[str, Any]) -> None:
        """Replace the manifest."""
        _write_json(self.path / MANIFEST, {"kind": KIND, "version": VERSION, **facts})

    # ------------------------------------------------------------------ the parts

    def new_part(self, number: int) -> Path:
        """A new name for the result file of a partition."""
        return self.path / f"part-{number:05d}-{secrets.token_hex(4)}.parquet"

    def record(self, number: int) -> Record | None:
        """The note on a finished partition; None if it is not finished, or its part is missing or altered."""
        found = self.noted(number)
        if found is None or found["part"] is None:
            return found
        try:
            whole = fingerprint(self.path / found["part"]).sha256 == found["sha256"]
        except OSError:
            return None
        return found if whole else None

    def noted(self, number: int) -> Record | None:
        """As `record`, without a look at the part."""
        try:
            found = json.loads(self._record(number).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) and found.keys() >= _RECORD else None

    def note(self, number: int, part: Path | None, people: int, *, name: str, sha256: str) -> Record:
        """Note a partition as finished; its part is on disk, or it has nobody and no part."""
        self._record(number).parent.mkdir(mode=0o700, exist_ok=True)
        found = {
            "part": None if part is None else part.name,
            "sha256": None if part is None else fingerprint(part).sha256,
            "people": people,
            "input": name,
            "input_sha256": sha256,
        }
        _write_json(self._record(number), found)
        return found

    def remove_strays(self, parts: Sequence[str]) -> None:
        """Remove files of attempts that were cut off or repeated; `parts` are those that count."""
        for path in [*self.path.glob("part-*.parquet"), *self.path.glob(".part-*.part")]:
            if path.name not in parts:
                path.unlink(missing_ok=True)

    def _record(self, number: int) -> Path:
        return self.path / _DONE / f"{number:05d}.json"

    # ------------------------------------------------------------------ reading

    def parts(self) -> list[Path]:
        """The parts of a whole folder, checked.

        Raises
        ------
        ReadError
            If the results are not complete, or a part is missing or altered.
        """
        found = self.manifest()
        if found is None:
            raise ReadError(f"{self.path} holds no results: it has no {MANIFEST}")
        if not found.get("complete"):
            raise ReadError(f"{self.path} is not complete: run the job again, and only the rest is done")
        paths = []
        for one in found["parts"]:
            path = self.path / str(one["part"])
            if path.parent != self.path or not path.is_file():
                raise ReadError(f"{path} is missing")
            if fingerprint(path).sha256 != one["sha256"]:
                raise ReadError(f"{path} was altered or damaged: its checksum does not match")
            paths.append(path)
        return paths


def _write_json(path: Path, facts: Mapping[str, Any]) -> None:
    text = json.dumps(facts, indent=1, allow_nan=False) + "\n"
    with atomic_file(path) as file:
        file.write(text.encode())
