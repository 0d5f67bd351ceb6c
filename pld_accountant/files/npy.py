"""Arrays in numpy's ``.npy`` format: the header is compared with the number of bytes before memory is allocated."""

from __future__ import annotations

import math
import mmap
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

__all__ = ["NpyHeader", "read_header", "read_npy", "release_pages"]

_BLOCK_BYTES = 16 * 2**20


class NpyHeader(NamedTuple):
    """What stands before the elements: `offset` is their place, `columns_first` the order of a Fortran array."""

    shape: tuple[int, ...]
    columns_first: bool
    dtype: np.dtype[Any]
    offset: int


def read_header(file: IO[bytes], size: int) -> NpyHeader:
    """Read the header of a ``.npy`` file of `size` bytes, from its beginning.

    Raises
    ------
    ValueError
        If the file is of another kind, holds Python objects, or is not exactly as long as its header says.
    """
    magic = file.read(npy_format.MAGIC_LEN)
    if magic[: len(npy_format.MAGIC_PREFIX)] != npy_format.MAGIC_PREFIX:
        raise ValueError("it does not begin like one")
    readers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
    version = tuple(magic[len(npy_format.MAGIC_PREFIX) :])
    if version not in readers:
        raise ValueError(f"its format version {version} is unknown")
    shape, columns_first, dtype = readers[version](file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    offset = file.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != size - offset:
        raise ValueError(f"{dtype} of shape {shape} does not fill its {size - offset} bytes")
    return NpyHeader(shape, columns_first, dtype, offset)


def read_npy(file: IO[bytes], size: int) -> np.ndarray:
    """Read an array from a ``.npy`` file of `size` bytes, from its beginning; `ValueError` as `read_header`."""
    header = read_header(file, size)
    content = np.empty(size - header.offset, dtype=np.uint8)
    view = content.data
    for start in range(0, content.size, _BLOCK_BYTES):
        block = view[start : start + _BLOCK_BYTES]
        if file.readinto(block) != len(block):  # type: ignore[attr-defined]
            raise ValueError("it is cut")
    return content.view(header.dtype).reshape(header.shape, order="F" if header.columns_first else "C")


def release_pages(array: Any) -> None:
    """Release the pages of a file that is mapped for reading: they would count as memory of this process."""
    mapped = False
    while isinstance(array, np.ndarray):
        # a writable map keeps its pages, which may hold the only copy of the data
        mapped = mapped or (isinstance(array, np.memmap) and array.mode == "r")
        array = array.base
    if mapped and isinstance(array, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        array.madvise(mmap.MADV_DONTNEED)
