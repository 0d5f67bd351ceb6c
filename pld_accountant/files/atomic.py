"""Output files that are whole or absent: written beside their place, flushed to disk, then renamed.

A new file can be read by its owner only, because the numbers in it are sensitive.  A file that is replaced keeps its
permissions.  A symbolic link to a regular file is followed.  Pipes and ``/dev/stdout`` receive the bytes when the
content is complete.

A run that is killed leaves a temporary file ``.NAME.xxxxxxxx.part``.  The next write of the same output removes it.
Every writer holds a lock on its temporary file, so those of living runs stay.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, cast

try:
    import fcntl
except ImportError:  # Windows: temporary files of killed runs stay
    fcntl = None  # type: ignore[assignment]

__all__ = ["atomic_file", "atomic_files", "destination"]

_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


def destination(path: str | os.PathLike[str]) -> Path | None:
    """The regular file that a write to `path` makes or replaces, links followed; None if it is a stream.

    Raises
    ------
    OSError
        If `path` is a folder, a device or a socket, or a link in a circle.
    """
    if _descriptor(path) is not None:
        return None
    target = Path(os.path.realpath(path) if os.path.islink(path) else path)
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return target
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder", os.fspath(path))
    if stat.S_ISFIFO(mode):
        return None
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is neither a file nor a pipe", os.fspath(path))
    return target


def _descriptor(path: str | os.PathLike[str]) -> int | None:
    """The open file of this process that a path names, such as ``/dev/stdout``; it may be redirected to a file."""
    name = os.path.abspath(path)
    number = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", name)
    return int(number[1]) if number else _STANDARD.get(name)


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file for writing that replaces `path` when it is complete and on disk; errors as `atomic_files`."""
    with atomic_files([path]) as (file,):
        yield file


@contextmanager
def atomic_files(paths: Sequence[str | os.PathLike[str]]) -> Iterator[list[BinaryIO]]:
    """Open a new file for each path; they replace the paths when all are complete and on disk.

    Raises
    ------
    OSError
        If a folder is missing or cannot be written, or a path is a folder or a device (see `destination`), or the disk
        is full.  All paths are then unchanged; only a failure between two renames can leave some of them replaced.
    """
    with ExitStack() as stack:
        parts = []
        for path in paths:
            if not os.fspath(path):
                raise ValueError("a path must not be empty")
            target = destination(path)
            parts.append(_Stream(path) if target is None else _Part(target))
            stack.callback(parts[-1].close)
        try:
            yield [cast(BinaryIO, part.file) for part in parts]
            for part in parts:
                part.complete()
        except OSError as error:
            if error.filename is None:  # a full disk does not say what it has no room for
                error.filename = ", ".join(str(os.fspath(path)) for path in paths)
            raise
        # a pipe can still fail, a rename practically cannot
        for part in sorted(parts, key=lambda part: isinstance(part, _Part)):
            part.place()
        for folder in {part.target.parent for part in parts if isinstance(part, _Part)}:
            _flush_folder(folder)


class _Part:
    """A temporary file beside its target, locked while its writer lives."""

    def __init__(self, target: Path) -> None:
        self.target = target
        _remove_leftovers(target)
        while True:
            try:
                descriptor, self._name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
            except OSError as error:
                error.filename = str(target)  # the caller does not know the temporary file
                raise
            self.file = os.fdopen(descriptor, "wb")
            _lock(self.file, wait=True)
            # another run may have removed the file before it was locked
            if os.path.exists(self._name):
                return
            self.file.close()

    def complete(self) -> None:
        """Bring the content to disk."""
        self.file.flush()
        with suppress(FileNotFoundError):
            os.chmod(self._name, stat.S_IMODE(os.stat(self.target).st_mode) & 0o777)
        os.fsync(self.file.fileno())

    def place(self) -> None:
        if fcntl is None:
            self.file.close()  # Windows renames no open file
        os.replace(self._name, self.target)

    def close(self) -> None:
        """Remove the temporary file if it has not been placed."""
        with suppress(OSError):  # a full disk, again
            self.file.close()
        with suppress(FileNotFoundError):
            os.unlink(self._name)


class _Stream:
    """The content for a pipe or an open file, kept until it is complete."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115

    def complete(self) -> None:
        self.file.seek(0)

    def place(self) -> None:
        opened = _descriptor(self._path)
        with open(self._path if opened is None else os.dup(opened), "wb") as stream:
            shutil.copyfileobj(self.file, stream)

    def close(self) -> None:
        self.file.close()


def _lock(file: IO[bytes], *, wait: bool) -> bool:
    """Lock a file for this process; False if another one holds it, or if the file system has no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _remove_leftovers(target: Path) -> None:
    """Remove the temporary files of this target that no living writer has locked."""
    name = re.compile(rf"{re.escape(f'.{target.name}.')}[a-z0-9_]{{8}}\.part")
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if fcntl is not None and name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError), open(entry.path, "r+b") as file:
                    if _lock(file, wait=False):
                        os.unlink(entry.path)


def _flush_folder(folder: Path) -> None:
    """Bring the names in a folder to disk; Windows has no means for it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
