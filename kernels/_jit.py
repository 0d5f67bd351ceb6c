"""The one place where numba's options are chosen.

``jit`` compiles with explicit signatures, because a lazily typed kernel would sum float32 in float32.  It omits
``fastmath``, which deletes compensated sums and NaN checks.  It keeps the machine code on disk.

No kernel starts threads.  numba's threading layers do not survive a fork: a child that uses GNU OpenMP after its parent
did is killed, and the workqueue layer aborts if two threads call it at once.  Kernels run without the GIL instead, and
`pld_accountant.threads` calls them for blocks of people or buckets from several threads.
"""

import os
import stat
import tempfile
from collections.abc import Callable
from typing import Any

import numba
from numba.core import cgutils, types
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

_JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")


def _disk_cache_works() -> bool:
    """Whether numba finds a writable folder for this package's machine code; a read-only install has none."""
    if not _JIT:
        return False
    try:
        FunctionCache(_disk_cache_works)
    except RuntimeError:
        return False
    return True


def _is_private(folder: str) -> bool:
    """Whether this is a folder of this user that nobody else can write to; machine code in it can be trusted."""
    found = os.lstat(folder)  # a link of another user is not followed
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _prepare_cache() -> bool:
    """Find a folder for machine code: numba's own choice, else a private temporary folder of this user."""
    if _disk_cache_works():
        return True
    if "NUMBA_CACHE_DIR" not in os.environ and hasattr(os, "getuid"):
        folder = os.path.join(tempfile.gettempdir(), f"pld-accountant-numba-{os.getuid()}")
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if not _is_private(folder):
                return False
        except OSError:
            return False
        os.environ["NUMBA_CACHE_DIR"] = folder
        numba.config.reload_config()
        return _disk_cache_works()
    return False


_CACHE = _prepare_cache()


def jit(*signatures: str) -> Callable[[Any], Any]:
    """Compile a kernel for exactly these argument types."""
    return numba.njit(list(signatures), cache=_CACHE, error_model="numpy", nogil=True)


def inline(function: Any) -> Any:
    """Compile a scalar helper that is called from kernels of the same file only."""
    return numba.njit(cache=_CACHE, error_model="numpy", nogil=True)(function)


def thread_limit() -> int:
    """How many threads the calling thread may use: `numba.set_num_threads`, else ``NUMBA_NUM_THREADS``.

    `numba.get_num_threads` would start numba's threading layer, unless `set_num_threads` has started it.
    """
    try:
        numba.threading_layer()
    except ValueError:
        return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    return int(numba.get_num_threads())


def _prefetch(_context: Any, array: Any, row: Any, column: Any) -> Any:
    """Start to load one element of a matrix, which will soon be written, into the cache; do not wait for it."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        ir = cgutils.ir
        matrix = context.make_array(array)(context, builder, given[0])
        index = [context.cast(builder, g, t, types.intp) for g, t in zip(given[1:], (row, column), strict=True)]
        place = cgutils.get_item_pointer(context, builder, array, matrix, index, wraparound=False)
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        ask = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        # the constants mean: for writing, into the nearest cache, data and not instructions
        builder.call(ask, [builder.bitcast(place, byte), word(1), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, row, column), write


prefetch: Any = intrinsic(_prefetch) if _JIT else lambda array, row, column: None
