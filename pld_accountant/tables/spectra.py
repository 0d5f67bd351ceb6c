"""`Spectra`: what a step family computes for its tables, remembered in memory and in a file between processes.

A family computes three kinds of numbers for a row: log-moments, spectra and envelopes.  Each depends on the family, the
row and a few scalars, and on nothing that was asked before.  So a number from a file is the number that would be
computed: whether there is a file decides no bit of a bound on one machine.

A file is believed only if all checks pass; otherwise everything is computed, and the file is replaced:

1. `files.kept` trusts it: checksum, owner, version.
2. It is of the same family, to the last bit, and of the same code: the digest of the sources that compute it.
3. Shapes fit, no row is there twice, errors are at least 0 and below those of a useful bound, and moduli at most 1.
4. Some of its rows, chosen at random, are computed anew and agree within their errors.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .. import gauss_legendre, kernels, mechanisms, tables
from ..files import kept, store
from ..mechanisms.base import CharacteristicSteps, LastingSteps, Spectrum

__all__ = ["Spectra", "envelope_frequencies"]

_KIND, _FILE_VERSION = "tables", 1
_MOST_BYTES = 1 << 25  # of one family; what is computed beyond is not remembered
_MOST_ON_DISK = 1 << 28  # of all families
_WORTH = 0.1  # seconds of computing that are worth a file: about three times what writing it takes
_CHECKED = 3  # rows of each kind that are computed anew when a file is read

_MOMENT, _SPECTRUM, _ENVELOPE = range(3)
_Key = tuple[int, float, float, int]  # kind, tilt, spacing of the frequencies, and their number

# Columns of a remembered spectrum; Re log phi and Im log phi at the m frequencies follow.
_SCALARS = ("log_moment", "mean", "log_moment_error", "error", "error_slope", "cost")
_ERRORS = slice(2, 5)
_COST = 5
_LOW = len(_SCALARS)  # the two ends of the span
_HEAD = _LOW + 2
_AGREE = 1e-9  # relative; other processors and libraries round otherwise
_USELESS = 1e-3  # no spectrum has so large an error of phi or K; those of use are below 1e-9


class Spectra:
    """The log-moments, spectra and envelopes of a family.

    Parameters
    ----------
    steps : CharacteristicSteps
    keep : bool
        Whether to remember them, in memory and in a file, if the family names its parameters.
    """

    def __init__(self, steps: CharacteristicSteps, *, keep: bool = False) -> None:
        self.steps = steps
        self._path = _file_of(steps) if keep and isinstance(steps, LastingSteps) else None
        self._begin()

    def _begin(self) -> None:
        """Remember nothing yet."""
        self._memory: dict[_Key, _Rows] | None = None
        self._held, self._seconds = 0, 0.0
        self._lock, self._process = threading.Lock(), os.getpid()

    def _alone(self) -> threading.Lock:
        """The lock; a fork may have come while another thread held it and had changed half of the memory."""
        if self._process != os.getpid():
            self._begin()
        return self._lock

    def log_moments(self, theta: NDArray) -> NDArray:
        """See `StepFamily.log_moments`."""
        if self._path is None:
            return self.steps.log_moments(theta)
        every = np.arange(self.steps.size)
        columns = []
        for tilt in (float(t) for t in theta):
            found = self._complete((_MOMENT, tilt, 0.0, 0), every, partial(self._moment, tilt))
            assert found is not None
            columns.append(found)
        return np.hstack(columns)

    def _moment(self, theta: float, rows: NDArray, _: NDArray | None = None) -> NDArray:
        return self.steps.log_moments(np.array([theta]))[rows]

    def spectrum(self, theta: float, spacing: float, m: int, rows: NDArray, work: float) -> Spectrum | None:
        """See `CharacteristicSteps.spectrum`; what is remembered costs as much work as if it were computed."""
        size = self.steps.size
        if self._path is None:
            return self.steps.spectrum(theta, spacing, m, rows, size, work)

        def compute(new: NDArray, there: NDArray) -> NDArray | None:
            left = work - float(there[:, _COST].sum())
            found = self.steps.spectrum(theta, spacing, m, new, size, left) if left >= 0.0 else None
            return None if found is None else _values(found)

        values = self._complete((_SPECTRUM, theta, spacing, m), rows, compute)
        return None if values is None or float(values[:, _COST].sum()) > work else _spectrum(values, m)

    def log_envelope(self, theta: float, levels: NDArray, rows: NDArray) -> NDArray:
        """See `CharacteristicSteps.log_envelope`; the levels are those that the family serves at this tilt."""
        if self._path is None:
            return self._envelope(theta, levels, rows)
        key = _ENVELOPE, theta, 0.0, levels.size
        found = self._complete(key, rows, partial(self._envelope, theta, levels))
        assert found is not None
        return found

    def _envelope(self, theta: float, levels: NDArray, rows: NDArray, _: NDArray | None = None) -> NDArray:
        """The envelope from a spectrum of its own, so that it does not depend on the table that asks first."""
        found = self.steps.spectrum(theta, float(levels[0]), 1, rows, self.steps.size, np.inf)
        if found is None:  # even the least band needs too many nodes
            return np.zeros((rows.size, levels.size))
        return self.steps.log_envelope(theta, levels, rows, found)

    # ------------------------------------------------------------------ memory

    def _complete(
        self, key: _Key, rows: NDArray, compute: Callable[[NDArray, NDArray], NDArray | None]
    ) -> NDArray | None:
        """The values of some rows: remembered, or from ``compute(new rows, values of the others)``; None: refused."""
        with self._alone():
            if self._memory is None:
                self._memory = self._read()
                self._held = sum(held.values.nbytes for held in self._memory.values())
            held = self._memory.setdefault(key, _Rows(self.steps.size, _columns(key)))
            at = held.place[rows]
            there = at >= 0
            if there.all():
                return held.values[at]
            begun = time.perf_counter()
            new = compute(rows[~there], held.values[at[there]])
            if new is None:
                return None
            out = np.empty((rows.size, new.shape[1]))
            out[there], out[~there] = held.values[at[there]], new
            if self._held + new.nbytes <= _MOST_BYTES:
                held.add(rows[~there], new)
                self._held += new.nbytes
                self._seconds += time.perf_counter() - begun
            return out

    def keep(self) -> None:
        """Write the file if it is worth it: if what was computed since it was read or written took a while."""
        with self._alone():
            if self._path is None or not self._memory or self._seconds <= _WORTH:
                return
            self._seconds = 0.0
            kept.write(self._path, _KIND, _FILE_VERSION, {}, {**self._named(), **_packed(self._memory)})
        kept.remove_oldest(_KIND, _MOST_ON_DISK)

    # ------------------------------------------------------------------ the file

    def _named(self) -> dict[str, NDArray]:
        """The arrays that tell whose file it is."""
        assert isinstance(self.steps, LastingSteps)
        return {f"of_{name}": value for name, value in self.steps.parameters().items()}

    def _read(self) -> dict[_Key, _Rows]:
        """The content of the file; nothing if a check fails."""
        assert self._path is not None
        found = kept.read(self._path, _KIND, _FILE_VERSION)
        if found is None:
            return {}
        try:
            with store.refuse_invalid(self._path, _KIND):
                arrays = found[1]
                for name, value in self._named().items():
                    if not _same(arrays.pop(name), value):
                        raise ValueError("it is of other steps")
                memory = _unpacked(arrays, self.steps.size)
                self._recompute(memory, np.random.default_rng())
        except store.StoreError:
            return {}
        return memory

    def _recompute(self, memory: dict[_Key, _Rows], rng: np.random.Generator) -> None:
        """Compute some rows of each kind anew; raise ValueError if one disagrees."""
        for kind in (_MOMENT, _SPECTRUM, _ENVELOPE):
            keys = [key for key, held in memory.items() if key[0] == kind and len(held.values)]
            for n in rng.integers(len(keys), size=_CHECKED if keys else 0):
                key = keys[n]
                row = rng.choice(np.flatnonzero(memory[key].place >= 0), 1)
                if not self._agrees(key, row, memory[key].values[memory[key].place[row]]):
                    raise ValueError("its numbers are not those of its steps")

    def _agrees(self, key: _Key, row: NDArray, values: NDArray) -> bool:
        kind, theta, spacing, m = key
        if kind == _MOMENT:
            return bool(np.allclose(values, self._moment(theta, row), rtol=_AGREE, atol=1e-15))
        if kind == _ENVELOPE:
            lowest, highest = self.steps.envelope_levels(theta)
            levels = envelope_frequencies(lowest, highest)
            return values.shape[1] == levels.size and bool(
                np.allclose(values, self._envelope(theta, levels, row), rtol=_AGREE, atol=1e-15)
            )
        new = self.steps.spectrum(theta, spacing, m, row, self.steps.size, np.inf)
        if new is None:
            return False
        old = _spectrum(values, m)
        omega = spacing * np.arange(1, m + 1)
        apart = np.abs(np.exp(old.re + 1j * old.im) - np.exp(new.re + 1j * new.im))
        found = _values(new)
        return bool(
            np.allclose(values[:, :_LOW], found[:, :_LOW], rtol=_AGREE, atol=1e-15)
            and np.allclose(values[:, _ERRORS], found[:, _ERRORS], rtol=1e-6, atol=0.0)
            and np.all(apart <= 4.0 * (new.error + new.error_slope * omega) + 1e-15)
        )


class _Rows:
    """Values of some rows of a family, in the order in which they came."""

    def __init__(self, size: int, columns: int) -> None:
        self.place = np.full(size, -1)
        self.values = np.empty((0, columns))

    def add(self, rows: NDArray, values: NDArray) -> None:
        """Take the values of further rows."""
        self.place[rows] = len(self.values) + np.arange(rows.size)
        self.values = np.concatenate([self.values, values])


def envelope_frequencies(lowest: int, highest: int) -> NDArray:
    """The frequencies 2^(j / 2), j from the lowest to the highest."""
    return 2.0 ** (0.5 * np.arange(lowest, highest + 1))


def _columns(key: _Key) -> int:
    kind, _, _, m = key
    return {_MOMENT: 1, _SPECTRUM: _HEAD + 2 * m, _ENVELOPE: m}[kind]


def _values(found: Spectrum) -> NDArray:
    scalars = np.stack([getattr(found, name) for name in _SCALARS], axis=1)
    return np.hstack([scalars, found.span, found.re, found.im])


def _spectrum(values: NDArray, m: int) -> Spectrum:
    scalars = dict(zip(_SCALARS, values[:, :_LOW].T, strict=True))
    re, im = values[:, _HEAD : _HEAD + m], values[:, _HEAD + m :]
    return Spectrum(**scalars, span=values[:, _LOW:_HEAD], re=re, im=im)


def _packed(memory: dict[_Key, _Rows]) -> dict[str, NDArray]:
    """Arrays for a file."""
    some = {key: held for key, held in memory.items() if len(held.values)}
    rows = [np.argsort(held.place)[-len(held.values) :] for held in some.values()]
    return {
        "keys": np.array(list(some), dtype=np.float64).reshape(-1, 4),
        "numbers": np.array([r.size for r in rows], dtype=np.int64),
        "rows": np.concatenate(rows),
        "values": np.concatenate([held.values.ravel() for held in some.values()]),
    }


def _unpacked(arrays: dict[str, NDArray], size: int) -> dict[_Key, _Rows]:
    """The inverse of `_packed`; raises ValueError for arrays that cannot be those of a family of this size."""
    wanted = {"keys": (np.float64, 2), "numbers": (np.int64, 1), "rows": (np.int64, 1), "values": (np.float64, 1)}
    if arrays.keys() != wanted.keys() or any((arrays[n].dtype, arrays[n].ndim) != w for n, w in wanted.items()):
        raise ValueError("its arrays are of other types")
    keys, numbers, rows, values = (arrays[name] for name in wanted)
    if keys.shape != (numbers.size, 4) or not np.all(np.isfinite(keys)) or np.any(numbers < 1):
        raise ValueError("its keys are wrong")
    memory: dict[_Key, _Rows] = {}
    first = start = 0
    for (kind, theta, spacing, m), number in zip(keys.tolist(), numbers.tolist(), strict=True):
        key = int(kind), theta, spacing, int(m)
        if kind not in (_MOMENT, _SPECTRUM, _ENVELOPE) or m != key[3] or m < 0 or key in memory or number > size:
            raise ValueError("its keys are wrong")
        held = memory[key] = _Rows(size, _columns(key))
        some = rows[first : first + number]
        end = start + number * _columns(key)
        if some.size < number or end > values.size or some.min() < 0 or some.max() >= size:
            raise ValueError("its arrays are too short")
        held.add(some, values[start:end].reshape(number, -1))
        if np.count_nonzero(held.place >= 0) < number or not _possible(key, held.values):
            raise ValueError("its numbers are impossible")
        first, start = first + number, end
    if first < rows.size or start < values.size:
        raise ValueError("its arrays are too long")
    return memory


def _possible(key: _Key, values: NDArray) -> bool:
    """Whether these can be the values of a kind: finite, errors from 0 to the useful, moduli at most 1."""
    if not np.all(np.isfinite(values)):
        return False
    if key[0] == _MOMENT:
        return True
    if key[0] == _ENVELOPE:
        return bool(np.all(values <= 0.0) and np.all(np.diff(values, axis=1) <= 0.0))
    found = _spectrum(values, key[3])
    bad = np.any((values[:, _ERRORS] < 0.0) | (values[:, _ERRORS] > _USELESS))
    return not bad and bool(
        np.all(found.re <= 1e-9)
        and np.all(np.abs(found.im) <= 4.0)
        and np.all(np.diff(found.span) >= 0.0)  # a full batch has none
        and np.all(found.cost >= 1.0)
    )


def _same(a: NDArray, b: NDArray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _file_of(steps: LastingSteps) -> Path | None:
    digest = hashlib.sha256()
    for name, value in sorted(steps.parameters().items()):
        digest.update(f"{name}|{value.dtype.str}|{value.shape}|".encode() + value.tobytes())
    code = kept.code_of(kernels, mechanisms, tables, gauss_legendre)
    return kept.file_of(_KIND, code, [_FILE_VERSION, type(steps).__name__, digest.hexdigest()])
