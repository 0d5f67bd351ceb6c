"""Norm logs on disk, read in blocks of steps: `open_norms`.

A log is a table of gradient norms before clipping.  Its default orientation is a row per step and a column per example
(``steps-by-examples``).  The orientation of a log with a row per example must be stated, as an argument or in the file:
as attribute ``orientation`` of the Zarr or HDF5 array or file, as key ``orientation`` of the Parquet metadata, or as
member ``orientation`` of the ``.npz``.  If both are stated, they must agree.  Nothing is inferred from the shape.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

import numpy as np

from .formats import OPENERS, ReadError, Table

__all__ = ["ORIENTATIONS", "NormLog", "ReadError", "open_norms"]

ORIENTATIONS = ("steps-by-examples", "examples-by-steps")

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
        The orientation of the file, one of `ORIENTATIONS`.

    Notes
    -----
    ``log[a:b]`` is an array of shape (b - a, num_examples).  The memory is one block, or one slab of 64 MiB if the
    format makes small blocks slow.
    """

    def __init__(self, path: Path, table: Table, orientation: str) -> None:
        self.name = path.name
        self.orientation = orientation
        self.dtype = table.dtype
        self._table = table
        transposed = orientation == "examples-by-steps"
        self.shape = table.shape[::-1] if transposed else table.shape
        self._read = (lambda a, b: table.columns(a, b).T) if transposed else table.rows
        self._direct = table.direct and not transposed
        self._slab_steps = max(1, _SLAB_BYTES // (self.shape[1] * table.dtype.itemsize))
        self._first = 0
        self._slab = np.empty((0, self.shape[1]), table.dtype)

    def __len__(self) -> int:
        return self.shape[0]

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_norms(path: str | os.PathLike[str], *, orientation: str | None = None, dataset: str | None = None) -> NormLog:
    """Open a norm log for reading in blocks of steps.

    Parameters
    ----------
    path : path
        ``.npy`` (memory-mapped), ``.npz``, ``.parquet``, ``.zarr``, ``.h5`` or ``.hdf5``.
    orientation : {"steps-by-examples", "examples-by-steps"}, optional
        Whether a row of the file is a step or an example.  By default as stated in the file, else
        ``steps-by-examples``.
    dataset : str, optional
        The array inside an ``.npz``, Zarr group or HDF5 file, or the list column of a Parquet file.  By default the
        array ``norms``, else the only array.

    Returns
    -------
    NormLog
        Its ``shape`` is (steps, num_examples); slice it by steps, or give it to `Ledger.from_norms`.

    Raises
    ------
    FileNotFoundError
    ReadError
        If the file is not a two-dimensional table of real numbers, states the other orientation, or needs a
        library that is not installed.

    Notes
    -----
    Parquet has two layouts.  Wide: every column holds floating-point numbers and is one example (one step under
    ``examples-by-steps``).  Lists: a column ``norms`` of lists of equal length, a list per row; other columns are then
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
    if orientation is not None and orientation not in ORIENTATIONS:
        raise ReadError(f"orientation must be one of {', '.join(ORIENTATIONS)}, got {orientation!r}")
    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist")
    if opener is None:
        raise ReadError(f"{file} must end in one of {' '.join(OPENERS)}")
    try:
        table = opener(file, dataset)
    except ReadError:
        raise
    except Exception as error:  # another kind of file: each library has its own exceptions
        raise ReadError(f"{file} cannot be read as a {file.suffix} file: {error}") from error
    try:
        _check(table, file)
        return NormLog(file, table, _agreed_orientation(orientation, table.orientation, file))
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
        raise ReadError(f"{file} must hold real numbers, got {table.dtype}")
    if len(table.shape) != 2:
        raise ReadError(f"{file} must hold a two-dimensional table (steps, num_examples), got {table.shape}")
    if 0 in table.shape:
        raise ReadError(f"{file} holds no norms: its shape is {table.shape}")


def _agreed_orientation(given: str | None, stated: str | None, file: Path) -> str:
    if stated is not None and stated not in ORIENTATIONS:
        raise ReadError(f"{file} states the orientation {stated!r}; it must be one of {', '.join(ORIENTATIONS)}")
    if given is not None and stated is not None and given != stated:
        raise ReadError(f"{file} states the orientation {stated}, but {given} was given")
    return given or stated or ORIENTATIONS[0]
