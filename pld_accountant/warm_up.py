"""`warm_up`: compile every kernel for this machine, or find that it is on disk already."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

__all__ = ["warm_up"]

# the slowest to compile come first
_MODULES = (
    *("characterise", "invert", "dominate", "convolve", "envelope", "contour", "count", "nonuniform"),
    *("discretise", "tilt", "charge", "interpolate", "credit"),
)
_COMPILE = "from pld_accountant.kernels import {}, _jit; _jit.compile_all()"


def warm_up(progress: Callable[[int, int], None] | None = None) -> tuple[str, bool]:
    """Compile all kernels, in one process a core.

    Parameters
    ----------
    progress : callable, optional
        Called as ``progress(done, total)``, counted in modules of kernels.

    Returns
    -------
    folder : str
        The folder of the machine code.
    compiled : bool
        Whether there was anything to compile.

    Raises
    ------
    OSError
        If no folder for machine code can be written to.
    RuntimeError
        If a module cannot be compiled.
    """
    from .kernels._jit import cache_folder, thread_limit

    folder = cache_folder()
    if folder is None:
        raise OSError("no folder for machine code can be written to; set NUMBA_CACHE_DIR")
    root = os.path.dirname(os.path.dirname(__file__))
    # numba compiles one function at a time in a process
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])}

    before = _names(folder)

    def compile_one(module: str) -> None:
        command = [sys.executable, "-c", _COMPILE.format(module)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the kernels of {module} could not be compiled: {done.stderr.strip()}")

    with ThreadPoolExecutor(min(thread_limit(), len(_MODULES))) as pool:
        for number, _ in enumerate(pool.map(compile_one, _MODULES), 1):
            if progress is not None:
                progress(number, len(_MODULES))
    return folder, _names(folder) != before


def _names(folder: str) -> set[str]:
    """The files below a folder."""
    return {name for *_, names in os.walk(folder) for name in names}
