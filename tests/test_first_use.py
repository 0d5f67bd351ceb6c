"""What the first use costs: the imports, the kernels that are compiled, the notice, the warm-up, the buckets filled."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant import warm_up
from pld_accountant.mechanisms import sampled_gaussian

ROOT = Path(__file__).parent.parent
KERNELS = {p.stem: p.read_text() for p in (ROOT / "kernels").glob("*.py") if "@jit(" in p.read_text()}
needs_jit = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")

COMPOSE = "pa.compose([(pa.SampledGaussian(2, 0.005), 10_000)]).epsilon(1e-5)"
LIST = "import json, sys; print(json.dumps(sorted(sys.modules)))"
COUNT = "from pld_accountant.kernels import count; import numpy as np; count.all_norms(np.ones((2, 2)))"


def python(code, **environment):
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, **environment}
    )


def test_importing_the_package_imports_neither_numba_nor_scipy():
    found = set(json.loads(python(f"import pld_accountant; {LIST}").stdout))
    assert not {"numba", "scipy", "scipy.special", "matplotlib", "pandas"} & found


@needs_jit
def test_a_composition_imports_five_modules_of_kernels_and_no_optimiser():
    found = set(json.loads(python(f"import pld_accountant as pa; {COMPOSE}; {LIST}").stdout))
    kernels = {name.rpartition(".")[2] for name in found if name.startswith("pld_accountant.kernels.")}
    assert kernels & KERNELS.keys() == {"tilt", "characterise", "nonuniform", "envelope", "invert"}
    assert not {"scipy.special", "scipy.optimize", "scipy.fft", "matplotlib", "pandas"} & found


@needs_jit
def test_the_first_composition_after_an_install_compiles_nothing(tmp_path):
    """Its kernels are interpreted: ten seconds of compiling would be spent on an answer of half a second."""
    question = ["--noise-multiplier", "2", "--sample-rate", "0.005", "--steps", "10000", "--delta", "1e-5"]
    # a slow machine is given time
    code = (
        "from pld_accountant.kernels import _jit; from pld_accountant.cli.commands import main; "
        f"_jit._PATIENCE = 1e9; main({['epsilon-of', *question]!r})"
    )
    done = python(code, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.stdout.startswith("epsilon <= 1.004113 ")
    assert done.stderr == ""
    assert not list(tmp_path.rglob("*.nbc"))


def test_the_warm_up_knows_every_module_of_kernels():
    assert sorted(warm_up._MODULES) == sorted(KERNELS)


def test_no_kernel_calls_a_kernel():
    """A kernel is typed when it is called from Python; what kernels share is a helper."""
    for name, text in KERNELS.items():
        functions = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
        kernels = {f.name for f in functions if any("jit(" in ast.unparse(d) for d in f.decorator_list)}
        for function in functions:
            called = {getattr(n.func, "id", "") for n in ast.walk(function) if isinstance(n, ast.Call)}
            assert not called & kernels, name


@needs_jit
def test_a_kernel_compiles_only_the_signatures_that_it_is_called_with(tmp_path):
    count = f"{COUNT}; print(len(count.all_norms._compiled.signatures))"
    assert python(count, NUMBA_CACHE_DIR=str(tmp_path)).stdout.split() == ["1"]
    refused = "from pld_accountant.kernels import count; import numpy as np; count.all_norms(np.ones((2, 2), 'i4'))"
    with pytest.raises(subprocess.CalledProcessError, match="exit status 1") as failed:
        python(refused, NUMBA_CACHE_DIR=str(tmp_path))
    assert "TypeError: all_norms has no signature" in failed.value.stderr


@needs_jit
def test_kernels_on_disk_are_loaded_without_what_only_compiling_needs(tmp_path):
    """A further kernel can be compiled afterwards, and numba's own way follows if the short one fails."""
    after = "count.all_norms(np.ones((2, 2), 'f4')); print(count.all_norms(np.full((2, 2), 2.0)))"
    imported = "import sys; print('numba.np.linalg' in sys.modules)"
    fail = "from pld_accountant.kernels import _jit; del _jit.rtsys"

    def said(code):
        return python(code, NUMBA_CACHE_DIR=str(tmp_path)).stdout.split()

    assert said(f"{COUNT}; {imported}") == ["True"]
    assert said(f"{COUNT}; {imported}") == ["False"]
    assert said(f"{COUNT}; {imported}; {after}; {imported}") == ["False", "True", "True"]
    assert said(f"{fail}; {COUNT}; {imported}") == ["True"]
    assert said(f"{COUNT}; {after}; {imported}") == ["True", "False"]


@needs_jit
def test_kernels_are_compiled_again_if_a_helper_changes(tmp_path):
    """A kernel's machine code holds that of the helpers in other files."""
    imported = "import sys; print('numba.np.linalg' in sys.modules)"
    other = "from pld_accountant.kernels import _jit; _jit._sources = lambda: b'another version'"

    def said(code):
        return python(code, NUMBA_CACHE_DIR=str(tmp_path)).stdout.split()

    assert said(f"{COUNT}; {imported}") == ["True"]
    assert said(f"{COUNT}; {imported}") == ["False"]
    assert said(f"{other}; {COUNT}; {imported}") == ["True"]
    assert said(f"{other}; {COUNT}; {imported}") == ["False"]


@needs_jit
def test_compiling_is_announced_once_and_loading_is_silent(tmp_path):
    twice = f"{COUNT}; count.all_norms(np.ones((2, 2), 'f4'))"
    (line,) = python(twice, NUMBA_CACHE_DIR=str(tmp_path)).stderr.splitlines()
    assert "compiling kernels" in line
    assert "warm-up" in line
    assert python(twice, NUMBA_CACHE_DIR=str(tmp_path)).stderr == ""


@needs_jit
def test_the_warm_up_compiles_each_module_and_says_where(tmp_path, monkeypatch):
    monkeypatch.setattr(warm_up, "_MODULES", ("count", "credit"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    seen = []
    folder, compiled = warm_up.warm_up(lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]
    assert folder and compiled
    written = sorted(tmp_path.rglob("*.nb[ic]"))
    assert any("count_down" in path.name for path in written)
    assert warm_up.warm_up() == (folder, False)
    assert sorted(tmp_path.rglob("*.nb[ic]")) == written, "nothing is compiled a second time"
    assert python(COUNT).stderr == ""


@needs_jit
def test_a_module_that_cannot_be_compiled_is_named(monkeypatch):
    monkeypatch.setattr(warm_up, "_MODULES", ("nothing",))
    with pytest.raises(RuntimeError, match="nothing could not be compiled"):
        warm_up.warm_up()


@pytest.mark.slow
@needs_jit
def test_after_the_warm_up_nothing_is_compiled(tmp_path):
    for said in ("All kernels are compiled, in", "All kernels were compiled before;"):
        done = subprocess.run(
            [sys.executable, "-m", "pld_accountant", "warm-up"],
            capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        )  # fmt: skip
        assert said in done.stdout
    assert python(f"import pld_accountant as pa; {COMPOSE}", NUMBA_CACHE_DIR=str(tmp_path)).stderr == ""


def test_only_used_buckets_are_filled(monkeypatch):
    rows = []
    original = sampled_gaussian.SampledGaussianSteps.spectrum

    def spectrum(self, theta, spacing, m, some, *others):
        rows.extend(some if self.size == 256 else [])
        return original(self, theta, spacing, m, some, *others)

    monkeypatch.setattr(sampled_gaussian.SampledGaussianSteps, "spectrum", spectrum)
    ledger = pa.Ledger(300, noise_multiplier=2, sample_rate=0.01, max_grad_norm=1)
    ledger.record(np.full(300, 0.5), repeat=200)
    ledger.epsilon(1e-5)
    (bucket,) = np.flatnonzero(ledger.counts.any(axis=0))
    assert set(rows) <= {bucket - 1, bucket}
    assert bucket in rows
