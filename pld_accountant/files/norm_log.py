"""Norm logs on disk, read in blocks of steps: `open_norms`.

A log is a table of gradient norms before clipping.  Its orientation says what a row is: ``steps`` (a row per step and
a column per person) or ``people``.  It is stated as an argument or in the file: as attribute ``orientation`` of the
Zarr or HDF5 array or file, as key ``orientation`` of the Parquet metadata, or as member ``orientation`` of the
``.npz``.  If both are stated, they must agree.  If neither is, the number of people decides where it is given and fits
one side only.  Otherwise a Parquet file is refused, because data frames commonly hold a row per person; of the other
formats a row is a step, and `NormLog.assumed` is True.  Nothing else is inferred from the shape.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from .. import validate
from .formats import OPENERS, ReadError, Table

__all__ = ["ORIENTATIONS", "NormLog", "ReadError", "open_norms"]

ORIENTATIONS = ("steps", "people")
_LONG = {"steps-by-examples": "steps", "examples-by-steps": "people"}  # as files may state it, too

# Bytes that are read at once if small blocks are slow: compressed chunks, Parquet pages, columns of a row-major file.
_SLAB_BYTES = 64 * 2**20


class NormLog:
    """A norm log opened for reading: a shape, a type, and slices of steps.

    Attributes
    ----------
    name : str
        The file's name.
    shape : tuple of int
        (steps, num_examples), for both orientations of the file.
    dtype : numpy.dtype
    orientation : str
        The meaning of a row of the file, one of `ORIENTATIONS`.
    assumed : bool
        True if nothing stated the orientation.

    Notes
    -----
    ``log[a:b]`` is an array of shape (b - a, num_examples).  The memory is one block, or one slab of 64 MiB if the
    format makes small blocks slow.
    """

    def __init__(self, path: Path, table: Table, orientation: str, *, assumed: bool = False) -> None:
        self.name = path.name
        self.orientation = orientation
        self.assumed = assumed
        self.dtype = table.dtype
        self._table = table
        transposed = orientation == "people"
        self.shape = table.shape[::-1] if transposed else table.shape
        self._read = (lambda a, b: table.columns(a, b).T) if transposed else table.rows
        self._direct = table.direct and not transposed
        self._slab_steps = max(1, _SLAB_BYTES // (self.shape[1] * table.dtype.itemsize))
        self._first = 0
        self._slab = np.empty((0, self.shape[1]), table.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def hint(self, people: int) -> str:
        """For a log that should be of so many people: what to do if it is this log transposed, else nothing."""
        if people not in self.shape or people == self.shape[1]:
            return ""
        other = next(name for name in ORIENTATIONS if name != self.orientation)
        return f"; with the orientation {other} the log has {people} people"

    def __getitem__(self, steps: slice) -> np.ndarray:
        """The norms of a range of steps."""
        if not isinstance(steps, slice) or steps.step not in (None, 1):
            raise TypeError("a norm log is read by slices of steps, log[a:b]")
        start, stop, _ = steps.indices(self.shape[0])
        stop = max(start, stop)
        if self._direct:
            return self._checked_read(start, stop)
        if not (self._first <= start and stop <= self._first + len(self._slab)):
            self._advance(start, stop)
        return self._slab[start - self._first : stop - self._first]

    def _advance(self, start: int, stop: int) -> None:
        """Move the slab to `start`; steps already in it are kept, so reading forward reads every step once."""
        end = self._first + len(self._slab)
        overlap = self._first <= start < end
        kept = self._slab[start - self._first :] if overlap else self._slab[:0]
        begin = end if overlap else start
        fresh = self._checked_read(begin, min(max(stop, start + self._slab_steps), self.shape[0]))
        # C order: after a transposed read every later block would be strided otherwise.
        self._slab = np.ascontiguousarray(np.concatenate([kept, fresh]) if len(kept) else fresh)
        self._first = start

    def _checked_read(self, start: int, stop: int) -> np.ndarray:
        try:
            return self._read(start, stop)
        except ReadError:
            raise
        except Exception as error:  # a damaged chunk: each library has its own exceptions
            raise ReadError(f"{self.name}: steps {start} to {stop - 1} cannot be read: {error}") from error

    def close(self) -> None:
        """Release the file."""
        self._table.close()

    def __enter__(self) -> NormLog:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def open_norms(
    path: str | os.PathLike[str],
    *,
    orientation: str | None = None,
    dataset: str | None = None,
    people: int | None = None,
) -> NormLog:
    """Open a norm log for reading in blocks of steps.

    Parameters
    ----------
    path : path
        ``.npy`` (memory-mapped), ``.npz``, ``.parquet``, ``.zarr``, ``.h5`` or ``.hdf5``.
    orientation : {"steps", "people"}, optional
        What a row of the file is; the longer names "steps-by-examples" and "examples-by-steps" mean the same.
        By default as stated in the file; see the text of the module for files that do not state it.
    dataset : str, optional
        The array inside an ``.npz``, Zarr group or HDF5 file, or the list column of a Parquet file.  By default the
        array ``norms``, else the only array.
    people : int, optional
        Number of people; a log of another number is refused.

    Returns
    -------
    NormLog
        Its ``shape`` is (steps, num_examples); slice it by steps, or give it to `Ledger.from_norms`.

    Raises
    ------
    FileNotFoundError
    ReadError
        If the file is not a two-dimensional table of real numbers, states the other orientation, states none although
        it must, has another number of people, or needs a library that is not installed.

    Notes
    -----
    Parquet has two layouts.  Wide: every column holds floating-point numbers and is one person (one step if a row is a
    person).  Lists: a column ``norms`` of lists of equal length, a list per row; other columns are then
    ignored.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/log.npy", np.ones((3, 5)))
    ...     open_norms(f"{folder}/log.npy").shape
    (3, 5)
    """
    file = Path(path)
    opener = OPENERS.get(file.suffix.lower())
    orientation = _LONG.get(orientation or "", orientation)
    if orientation is not None and orientation not in ORIENTATIONS:
        raise ReadError(f"orientation must be one of {', '.join(ORIENTATIONS)}, got {orientation!r}")
    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist")
    if opener is None:
        raise ReadError(f"{file} must end in one of {' '.join(OPENERS)}; a .csv is read as a table of events")
    try:
        table = opener(file, dataset)
    except ReadError:
        raise
    except Exception as error:  # another kind of file: each library has its own exceptions
        raise ReadError(f"{file} cannot be read as a {file.suffix} file: {error}") from error
    try:
        _check(table, file)
        agreed = _agreed_orientation(orientation, table.orientation, file)
        log = NormLog(file, table, agreed or _by_people(table, file, people), assumed=agreed is None)
        if people is not None and log.shape[1] != people:
            raise ReadError(f"{file} holds {log.shape[1]} people, not {people}{log.hint(people)}")
        log.assumed = log.assumed and people is None
        return log
    except ReadError:
        table.close()
        raise


class PeopleSubset:
    """A norm log of some people of another log.

    Parameters
    ----------
    log : NormLog
    index : ndarray of int
        Numbers of these people, in this order.
    """

    def __init__(self, log: NormLog, index: np.ndarray) -> None:
        self._log, self._index = log, index

    @property
    def shape(self) -> tuple[int, int]:
        """(steps, people)."""
        return self._log.shape[0], len(self._index)

    def __getitem__(self, steps: slice) -> np.ndarray:
        return self._log[steps][:, self._index]


def _check(table: Table, file: Path) -> None:
    if table.dtype.kind not in "fiu":
        raise ReadError(f"{file} must hold real numbers, got {validate.not_real(table.dtype)}")
    if len(table.shape) != 2:
        raise ReadError(f"{file} must hold a two-dimensional table (steps, num_examples), got {table.shape}")
    if 0 in table.shape:
        raise ReadError(f"{file} holds no norms: its shape is {table.shape}")


def _agreed_orientation(given: str | None, stated: str | None, file: Path) -> str | None:
    stated = _LONG.get(stated or "", stated)
    if stated is not None and stated not in ORIENTATIONS:
        raise ReadError(f"{file} states the orientation {stated!r}; it must be one of {', '.join(ORIENTATIONS)}")
    if given is not None and stated is not None and given != stated:
        raise ReadError(f"{file} states the orientation {stated}, but {given} was given")
    return given or stated


def _by_people(table: Table, file: Path, people: int | None) -> str:
    """The orientation of a file that does not state it."""
    rows, columns = table.shape
    if people is not None and rows != columns and people in table.shape:
        return "steps" if people == columns else "people"
    if file.suffix.lower() == ".parquet":
        raise ReadError(
            f"{file} does not say whether a row is a step or a person, and it has {rows} rows and {columns} columns; "
            "state the orientation, steps or people"
        )
    return "steps"
