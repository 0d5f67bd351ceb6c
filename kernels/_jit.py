"""The one place where numba's options are chosen.

``jit`` compiles with explicit signatures, because a lazily typed kernel would sum float32 in float32.  It omits
``fastmath``, which deletes compensated sums and NaN checks.  It keeps the machine code on disk.  Nothing is compiled or
loaded before the first call that needs it.

Compiling a kernel takes about two seconds.  One composition needs calls so small that Python interprets them in a tenth
of that time.  So Python interprets small calls of some kernels while two conditions hold: no machine code is on disk,
and the process has spent less than `_PATIENCE` on interpreting.  Python and machine code do the same operations in the
same order.

No kernel starts threads.  numba's threading layers do not survive a fork: a child that uses GNU OpenMP after its parent
did is killed, and the workqueue layer aborts if two threads call it at once.  Kernels run without the GIL instead, and
`pld_accountant.threads` calls them for blocks of people or buckets from several threads.
"""

import contextlib
import functools
import gc
import hashlib
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, ClassVar

import numba
import numpy as np
from numba.core import cgutils, event, sigutils, types
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.runtime.nrt import rtsys
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


_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True}

KERNELS: list["Kernel"] = []
"""Every kernel of the modules that have been imported."""

_PATIENCE = 2.0  # seconds of processor time that a process interprets kernels before it compiles them
_SMALL = 6000  # numbers in the arrays of an interpreted call


@functools.cache
def _plain(function: Any) -> Any:
    """A function whose helpers are Python functions instead of compiled ones."""
    names = dict(function.__globals__)
    for name in function.__code__.co_names:
        helper = getattr(names.get(name), "py_func", None)
        if helper is not None:
            names[name] = _plain(helper)
    return FunctionType(function.__code__, names, function.__name__)


@functools.cache
def _sources() -> bytes:
    """A digest of all kernels and their helpers."""
    found = hashlib.sha256()
    folder = os.path.dirname(__file__)
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".py")):
        with open(os.path.join(folder, name), "rb") as file:
            found.update(file.read())
    return found.digest()


class Kernel:
    """A kernel for exactly the types of its signatures; each is compiled, or loaded, when a call first needs it.

    If `rows` is not 0, the kernel has one signature and returns nothing.  A call is small if its first array has at
    most `rows` rows, and all arrays together have at most `_SMALL` numbers.
    """

    __name__: str
    seconds_interpreted: ClassVar = 0.0

    def __init__(self, function: Any, signatures: tuple[str, ...], rows: int) -> None:
        functools.update_wrapper(self, function)
        self._compiled = numba.njit(**_OPTIONS, cache=_CACHE)(function)
        if _CACHE:
            # numba asks for a kernel's own source only, but its code holds that of its helpers
            file = self._compiled._cache._cache_file
            file._source_stamp = (file._source_stamp, _sources())
        self._signatures = signatures
        self._rows = rows
        self._ready: set[tuple[Any, ...]] = set()
        KERNELS.append(self)

    def __call__(self, *args: Any) -> Any:
        # a kernel of one signature needs no look at the types: numba refuses those that do not fit
        kinds = tuple(getattr(a, "dtype", None) for a in args) if len(self._signatures) > 1 else ()
        if kinds not in self._ready:
            if self._rows and self._interpreted(args):
                return None
            self._prepare(args)
            self._ready.add(kinds)
        return self._compiled(*args)

    @functools.cached_property
    def _on_disk(self) -> bool:
        with global_compiler_lock:
            return _CACHE and self._load(self._signatures[0])

    def _interpreted(self, args: tuple[Any, ...]) -> bool:
        """Interpret a small call if no machine code is on disk and time is left; return whether it was done."""
        arrays = [a for a in args if isinstance(a, np.ndarray)]
        small = len(arrays[0]) <= self._rows and sum(a.size for a in arrays) <= _SMALL
        if not small or Kernel.seconds_interpreted > _PATIENCE or self._on_disk:
            return False
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        begin = time.thread_time()
        try:
            with np.errstate(all="ignore"):
                _plain(self._compiled.py_func)(*copies)
        except (ArithmeticError, ValueError):
            # Python raises where machine code writes inf or NaN
            return False
        finally:
            Kernel.seconds_interpreted += time.thread_time() - begin
        for array, copy in zip(args, copies, strict=True):
            if isinstance(array, np.ndarray):
                array[...] = copy
        return True

    def _prepare(self, args: tuple[Any, ...]) -> None:
        """Compile, or load, the signature whose arrays have the types of these arguments."""
        for signature in self._signatures:
            wanted, _ = sigutils.normalize_signature(signature)
            if len(self._signatures) == 1 or all(
                getattr(a, "dtype", None) == np.dtype(str(w.dtype))
                for a, w in zip(args, wanted, strict=False)
                if isinstance(w, types.Array)
            ):
                self._compile(signature)
                return
        raise TypeError(f"{self.__name__} has no signature for arrays of these types")

    def _compile(self, signature: str) -> None:
        with global_compiler_lock:
            try:
                if not (_CACHE and self._load(signature)):
                    self._compiled.disable_compile(False)
                    with _without_collection():
                        self._compiled.compile(signature)
            finally:
                self._compiled.disable_compile(bool(self._compiled.signatures))

    def _load(self, signature: str) -> bool:
        """Load a signature from disk as numba does, without the declarations that only compiling needs.

        Their import takes 0.2 seconds.  If this version of numba does it in another way, numba's own way follows.
        """
        dispatcher = self._compiled
        try:
            arguments, _ = sigutils.normalize_signature(signature)
            if tuple(arguments) in dispatcher.overloads:
                return True
            rtsys.initialize(dispatcher.targetctx)
            found = dispatcher._cache._load_overload(signature, dispatcher.targetctx)
            if found is None or found.objectmode:
                return False
            dispatcher.targetctx.insert_user_function(found.entry_point, found.fndesc, [found.library])
            dispatcher.add_overload(found)
        except Exception:
            return False
        return True

    def warm_up(self) -> None:
        """Compile, or load, every signature."""
        for signature in self._signatures:
            self._compile(signature)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Switch the garbage collector off: numba makes so many objects that it takes an eighth of the compile time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def jit(*signatures: str, interpreted: int = 0) -> Callable[[Any], Any]:
    """Compile a kernel for exactly these argument types, at the first call with each of them.

    Before that, Python interprets calls of at most `interpreted` rows, see `Kernel`.
    """
    return (lambda function: Kernel(function, signatures, interpreted)) if _JIT else (lambda function: function)


def inline(function: Any) -> Any:
    """Compile a helper with the kernels that call it; the machine code on disk is that of the kernels."""
    return numba.njit(**_OPTIONS)(function)


class _Notice(event.Listener):
    """Says once a process that kernels are being compiled; kernels that are found on disk are not."""

    def __init__(self) -> None:
        self._said = False

    def on_start(self, event: Any) -> None:
        """Speak before the first compilation of a kernel of this package."""
        if self._said or not event.data["dispatcher"].py_func.__module__.startswith(__package__):
            return
        self._said = True
        if _CACHE:
            kept = "they stay on disk; `pld-accountant warm-up` compiles all of them, in half a minute"
        else:
            kept = "again in every process, because no folder for machine code can be written to"
        _LOG.warning("pld-accountant: compiling kernels for their first use: %s", kept)

    def on_end(self, event: Any) -> None:
        """Nothing to do."""


_LOG = logging.getLogger("pld_accountant")
if _JIT:
    event.register("numba:compile", _Notice())


def compile_all() -> None:
    """Compile, or load, every kernel of the modules that have been imported; no notice is given."""
    _LOG.disabled = True
    for kernel in KERNELS:
        kernel.warm_up()


def cache_folder() -> str | None:
    """The folder that holds the machine code, one folder in it for each module's; None if there is none."""
    if not _CACHE:
        return None
    return str(FunctionCache(_disk_cache_works).cache_path)


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
