"""`Journal`: a log of norms that a training run appends to before every step.

A file is a header and a sequence of records.  A *row* holds a norm for each person, and a *step* says that the last row
served one more step, with its noise multiplier, sample rate and clipping norm.  A stretch between two refreshes is one
row and a few bytes for each step.

Every record has a checksum.  A process that is killed leaves at most one record half-written, at the end of the file.
Readers stop before it and say so; the next writer cuts it off.  A step is in the file before its noise is drawn, so no
released step is missing.  (Parquet and Zarr keep a table of contents that is rewritten at every append, so a crash can
lose the whole file or leave a row without content.)
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from .. import validate
from ..files.store import SENSITIVE, StoreError
from ..ledger import Ledger

try:
    import fcntl
except ImportError:  # Windows: two writers are not noticed
    fcntl = None  # type: ignore[assignment]

__all__ = ["Journal", "JournalRow", "is_journal", "ledger_of"]

_MAGIC = b"pld-accountant journal 1\n"
_HEAD = struct.Struct("<BIQ")  # kind, checksum, length of the content
_STEP = struct.Struct("<ddd")
_HEADER, _ROW, _STEPPED = 0, 1, 2
_LONGEST_HEADER = 1 << 16


@dataclass(frozen=True)
class JournalRow:
    """A row and the steps that it served under one noise multiplier, rate and clipping norm.

    Attributes
    ----------
    norms : ndarray
    steps : int
    noise_multiplier, sample_rate, max_grad_norm : float
    start : int
        Number of the first of these steps, from 0.
    new : bool
        Whether the row was written for this step: it did not serve the step before.
    """

    norms: np.ndarray
    steps: int
    noise_multiplier: float
    sample_rate: float
    max_grad_norm: float
    start: int = 0
    new: bool = True


class Journal:
    """A log of norms, opened for appending; made if it does not exist.

    Parameters
    ----------
    path : path
    num_examples : int
        Number of people.
    max_grad_norm : float
        Clipping norm, in the unit of the norms; steps may have another.
    sync : bool
        Wait at every step until the record is on the disk.  Without it, a killed process loses nothing, but a machine
        that loses power may lose the last seconds.

    Raises
    ------
    BlockingIOError
        If another process has the journal open for appending.
    StoreError
        If the file is no journal, is of other people, or is damaged before its end.

    Notes
    -----
    **Cost**: 8 bytes a person for every row, 37 bytes for every step; some microseconds a step without `sync`.

    **Fork**: a forked child shares the open file.  There, `row` and `step` raise RuntimeError.
    """

    def __init__(
        self, path: str | os.PathLike[str], num_examples: int, *, max_grad_norm: float, sync: bool = False
    ) -> None:
        self.path = os.fspath(path)
        self.num_examples = validate.count(num_examples, "num_examples", least=1)
        self.max_grad_norm = validate.clipping_norm(max_grad_norm)
        self.sync = validate.flag(sync, "sync")
        self.steps = 0
        self.message = ""
        self._has_row = False
        self._process = os.getpid()
        # a new file can be read by its owner only: its numbers are sensitive
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        try:
            self._lock()
            self._end = self._resume()
        except BaseException:
            os.close(self._file)
            raise

    def __repr__(self) -> str:
        return f"Journal({self.path!r}, {self.num_examples}, max_grad_norm={self.max_grad_norm}; {self.steps} steps)"

    def __reduce__(self) -> tuple[Any, ...]:
        # a copy would write to the same open file, and after its end to another one with the same number
        raise TypeError("a Journal is an open file, which cannot be copied or pickled; open it anew from its path")

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(f"{self.path} is being written by another process, or by another Journal") from None

    def _resume(self) -> int:
        """Read the records that are there, cut off a half-written one, and return the length of the file."""
        header = {"num_examples": self.num_examples, "max_grad_norm": self.max_grad_norm}
        with open(self.path, "rb") as file:
            if not _begun(file, self.path):
                self._end = 0
                os.ftruncate(self._file, 0)
                self._write(_MAGIC + _record(_HEADER, json.dumps(header | {"sensitive": SENSITIVE}).encode()))
                return self._end
            reader = _Reader(file, self.path)
            if reader.header != header:
                raise StoreError(f"{self.path} is of a run with {reader.header}, not {header}")
            for kind, _ in reader.records():
                self._has_row = True
                self.steps += kind == _STEPPED
        self.message = reader.message
        os.ftruncate(self._file, reader.whole)
        return reader.whole

    def _write(self, content: bytes) -> None:
        """Append a whole record, or nothing."""
        if os.getpid() != self._process:
            # the parent does not know of the child's records, and would write over them
            raise RuntimeError(f"{self.path} was opened before a fork, and only the process that opened it can write")
        try:
            os.lseek(self._file, self._end, os.SEEK_SET)
            view = memoryview(content)
            while view:
                view = view[os.write(self._file, view) :]
            if self.sync:
                os.fsync(self._file)
        except BaseException:
            os.ftruncate(self._file, self._end)  # a full disk: the part that was written
            raise
        self._end += len(content)

    def row(self, norms: np.ndarray) -> None:
        """Append the norms that the coming steps are charged with.

        Raises
        ------
        OSError
            If the disk is full or read-only.  The journal then ends with the record before.
        """
        array = validate.step_norms(norms, self.num_examples, first_row=self.steps)
        self._write(_record(_ROW, array.astype("<f8").tobytes()))
        self._has_row = True

    def step(self, noise_multiplier: float, sample_rate: float, max_grad_norm: float) -> None:
        """Append one step with the last row; errors as `row`."""
        if not self._has_row:
            raise RuntimeError("a step needs a row before it")
        values = (
            validate.noise_multiplier(noise_multiplier),
            validate.sample_rate(sample_rate),
            validate.clipping_norm(max_grad_norm),
        )
        self._write(_record(_STEPPED, _STEP.pack(*values)))
        self.steps += 1

    def rows(self, first: int = 0) -> Iterator[JournalRow]:
        """The rows that served the steps from number `first` on."""
        with open(self.path, "rb") as file:
            yield from _Reader(file, self.path).rows(first)

    def close(self) -> None:
        """Release the file and its lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def is_journal(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins like a journal."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def ledger_of(path: str | os.PathLike[str], *, buckets: int = 256) -> tuple[Ledger, str]:
    """The ledger of all whole steps of a journal, and a sentence if its end was half-written (else an empty string).

    Raises
    ------
    FileNotFoundError
    StoreError
        If the file is no journal, is damaged before its end, or holds no step.
    """
    with open(path, "rb") as file:
        if not _begun(file, os.fspath(path)):
            raise StoreError(f"{os.fspath(path)} holds no step")
        reader = _Reader(file, os.fspath(path))
        people, clip = int(reader.header["num_examples"]), float(reader.header["max_grad_norm"])
        ledger: Ledger | None = None
        for row in reader.rows():
            if ledger is None:
                ledger = Ledger(
                    people,
                    noise_multiplier=row.noise_multiplier,
                    sample_rate=row.sample_rate,
                    max_grad_norm=clip,
                    buckets=buckets,
                )
            ledger.record(
                relative(row.norms, row.max_grad_norm, clip),
                repeat=row.steps,
                noise_multiplier=row.noise_multiplier,
                sample_rate=row.sample_rate,
            )
    if ledger is None:
        raise StoreError(f"{os.fspath(path)} holds no step")
    return ledger, reader.message


def relative(norms: np.ndarray, clip: float, base: float) -> np.ndarray:
    """Norms for a ledger with clipping norm `base`, of steps with clipping norm and noise relative to `clip`; up."""
    if clip == base:
        return norms
    scaled = np.minimum(np.nextafter(norms * (base / clip), np.inf), base)
    # two roundings, one step up each
    return np.where(norms > 0, np.minimum(np.nextafter(scaled, np.inf), base), 0.0)


def _record(kind: int, content: bytes) -> bytes:
    return _HEAD.pack(kind, _checksum(kind, content), len(content)) + content


def _checksum(kind: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(bytes([kind])))


def _begun(file: BinaryIO, path: str) -> bool:
    """Whether a file has a whole header; False for a file that was killed while its header was written."""
    start = file.read(len(_MAGIC) + _HEAD.size + _LONGEST_HEADER)
    file.seek(0)
    if not _MAGIC.startswith(start[: len(_MAGIC)]):
        raise StoreError(f"{path} is not a journal")
    if len(start) < len(_MAGIC) + _HEAD.size:
        return False
    _, _, length = _HEAD.unpack_from(start, len(_MAGIC))
    content = start[len(_MAGIC) + _HEAD.size :]
    if length > _LONGEST_HEADER or (len(content) < length and b"}" in content):
        # a header that was written to its end has a wrong length
        raise StoreError(f"{path} is not a journal: its header is damaged")
    return len(content) >= length


class _Reader:
    """The whole records of a journal."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file, self._path = file, path
        self._size = os.fstat(file.fileno()).st_size
        self.message = ""
        self._lengths: dict[int, int] = {}
        file.seek(len(_MAGIC))
        self.whole = len(_MAGIC)
        first = self._next()
        if first is None or first[0] != _HEADER:
            raise StoreError(f"{path} is not a journal: its header is damaged")
        try:
            self.header = dict(json.loads(first[1]))
            self.header.pop("sensitive", None)
            people = validate.count(self.header["num_examples"], "num_examples", least=1)
            self._lengths = {_ROW: 8 * people, _STEPPED: _STEP.size}
            validate.clipping_norm(self.header["max_grad_norm"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreError(f"{path} is not a journal: its header is damaged") from error

    def _next(self) -> tuple[int, bytes] | None:
        """The next record; None at the end, or if the last record is half-written."""
        head = self._file.read(_HEAD.size)
        if not head:
            return None
        if len(head) == _HEAD.size:
            kind, checksum, length = _HEAD.unpack(head)
            if self._lengths.get(kind, length) != length:
                raise StoreError(f"{self._path} is damaged at byte {self.whole}: a record has a wrong length")
            end = self.whole + _HEAD.size + length
            if end <= self._size:
                content = self._file.read(length)
                if _checksum(kind, content) == checksum:
                    self.whole = end
                    return kind, content
                if end < self._size:
                    raise StoreError(f"{self._path} is damaged at byte {self.whole}: a checksum does not match")
        self.message = (
            f"{self._path} ends with a record that was half-written when its process stopped; "
            "everything before it was read"
        )
        return None

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Rows and steps, checked."""
        seen = False
        while (record := self._next()) is not None:
            kind, _ = record
            if kind not in self._lengths or (kind == _STEPPED and not seen):
                raise StoreError(f"{self._path} is damaged: it holds a record that does not belong there")
            seen = True
            yield record

    def rows(self, first: int = 0) -> Iterator[JournalRow]:
        """Rows with the number of steps they served, from step number `first` on."""
        norms, key, number, step, new = np.empty(0), None, 0, 0, False
        for kind, content in self.records():
            own = _STEP.unpack(content) if kind == _STEPPED else None
            if number and own != key:
                yield self._checked(norms, number, key, step - number, new)
                number, new = 0, False
            if kind == _ROW:
                norms, new = np.frombuffer(content, dtype="<f8"), True
                continue
            key, number, step = own, number + (step >= first), step + 1
            new = new and number > 0
        if number:
            yield self._checked(norms, number, key, step - number, new)

    def _checked(
        self, norms: np.ndarray, steps: int, key: tuple[float, ...] | None, start: int, new: bool
    ) -> JournalRow:
        assert key is not None
        try:
            noise, rate, clip = key
            return JournalRow(
                validate.step_norms(norms, norms.size),
                steps,
                validate.noise_multiplier(noise),
                validate.sample_rate(rate),
                validate.clipping_norm(clip),
                start,
                new,
            )
        except ValueError as error:
            raise StoreError(f"{self._path} is damaged: {error}") from error
