"""The package works without what only POSIX has: user numbers, locks of files, flushing of folders."""

import subprocess
import sys

ABSENT = """
import os, sys
for name in ("getuid", "geteuid", "fork", "mkfifo", "fchmod", "O_DIRECTORY", "O_NOFOLLOW"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("fcntl", "pwd", "grp", "resource", "termios"):
    sys.modules[name] = None
import mmap
for name in ("MADV_DONTNEED", "MADV_HUGEPAGE"):
    if hasattr(mmap, name):
        delattr(mmap, name)
"""

WORK = """
import importlib, pkgutil, tempfile
from pathlib import Path
import pld_accountant as pa
for module in pkgutil.walk_packages(pa.__path__, "pld_accountant."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            # the library of an extra
            assert error.name in ("torch", "opacus", "jax", "optax", "dp_accounting"), error
from pld_accountant.kernels import _jit
with tempfile.TemporaryDirectory() as folder:
    f = pa.GaussianFilter(0.5, num_examples=2, noise_multiplier=4.0)
    f.admit([1.0, 0.5])
    for _ in range(2):
        f.save(Path(folder, "state"))
    assert pa.GaussianFilter.load(Path(folder, "state")).spent().tolist() == f.spent().tolist()
    assert [path.name for path in Path(folder).iterdir()] == ["state"]
_jit._disk_cache_works = lambda: False
assert not _jit._prepare_cache()
"""


def test_everything_is_imported_and_saved_without_posix():
    done = subprocess.run([sys.executable, "-c", ABSENT + WORK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
