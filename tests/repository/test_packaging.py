"""The package is found by interpreters and static checkers, from a checkout, a wheel or a source distribution."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
IMPORTED = "import pld_accountant, pld_accountant.kernels.count as c; print(pld_accountant.__file__); print(c.__file__)"
DEVELOPED = ("__pycache__", ".*cache*", ".venv*", ".git", "*.egg-info", "_build", "generated", "work", "build", "dist")


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def checkout(tmp_path):
    """A copy of the repository as git writes it without symbolic links: a small file instead of the link."""
    copied = shutil.copytree(ROOT, tmp_path / "checkout", symlinks=True, ignore=shutil.ignore_patterns(*DEVELOPED))
    link = copied / "pld_accountant" / "kernels"
    link.unlink()
    link.write_text("../kernels")
    return copied


def imported(folder: Path) -> list[Path]:
    """The files of the package and of one kernel, imported from a folder; no machine code is made."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_DISABLE_JIT": "1"}
    printed = run(sys.executable, "-c", IMPORTED, cwd=folder, env=environment)
    return [Path(line).relative_to(folder) for line in printed.splitlines()]


@pytest.mark.parametrize("left", ["a small file", "nothing"])
def test_a_checkout_without_links_is_imported(checkout, left):
    if left == "nothing":
        (checkout / "pld_accountant" / "kernels").unlink()
    assert imported(checkout) == [Path("pld_accountant/__init__.py"), Path("kernels/count.py")]


@pytest.mark.slow
def test_wheel_and_source_distribution_hold_what_they_need(checkout, tmp_path):
    """Needs the network, or wheels at hand, for setuptools."""
    code = "from setuptools.build_meta import *; build_{0}('{1}')"
    clean = tmp_path / "builder"
    venv.create(clean, with_pip=True)
    python = clean / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", "setuptools>=77")

    run(python, "-c", code.format("sdist", tmp_path), cwd=checkout)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    for folder in ("tests", "docs", "figures", "benchmarks", "kernels", "pld_accountant", ".ci"):
        files = {p.relative_to(checkout) for p in (checkout / folder).rglob("*") if p.is_file()}
        missing = {p for p in files if p.suffix not in (".pyc", ".nbi", ".nbc") and not (source / p).exists()}
        assert missing - {Path("pld_accountant/kernels")} == set()
    assert imported(source)[1] == Path("kernels/count.py")

    run(python, "-c", code.format("wheel", tmp_path), cwd=source)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        (metadata,) = (file.read(name).decode() for name in names if name.endswith("/METADATA"))
        file.extractall(tmp_path / "installed")
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pld_accountant"}
    assert {f"pld_accountant/kernels/{p.name}" for p in (ROOT / "kernels").glob("*.py")} <= names
    # an index shows the README alone: no picture and no link that needs the repository
    assert "# individual-pld-accountant" in metadata and not re.search(r"\]\((?!https?:)", metadata)
    assert "pld_accountant/py.typed" in names and "pld_accountant/report/html/report.html" in names
    assert imported(tmp_path / "installed")[1] == Path("pld_accountant/kernels/count.py")


@pytest.mark.slow
def test_mypy_sees_the_types_of_an_editable_install(checkout, tmp_path):
    """Needs the network, or wheels at hand, for setuptools."""
    user = tmp_path / "user"
    venv.create(user, with_pip=True)
    python = user / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", checkout)
    script = tmp_path / "script.py"
    script.write_text("import pld_accountant as pa\n\nreveal_type(pa.Ledger.epsilon)\n")
    found = run(sys.executable, "-m", "mypy", f"--python-executable={python}", script, cwd=tmp_path)
    assert "pld_accountant.ledger.Ledger" in found
