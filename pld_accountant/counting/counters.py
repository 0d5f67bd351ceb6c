"""Memory for everybody's counters."""

from __future__ import annotations

import contextlib
import math
import mmap
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["zeros"]

_LARGE = 1 << 24  # bytes


def zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """As ``numpy.zeros``, in large pages if the system has them.

    Counters of many people are visited in random order.  With pages of 4 KiB, the first visits cost more time than all
    the counting.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < _LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(shape, dtype=dtype)
    room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        room.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(room, dtype=dtype).reshape(shape)
