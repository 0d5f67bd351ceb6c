"""The direction of imports, read from the import statements; and what must not be imported or installed at all."""

import ast
import configparser
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
MODULES = {p.stem: p for p in (ROOT / "pld_accountant").glob("*.py")}
KERNELS = {p.stem: p for p in (ROOT / "kernels").glob("*.py")}
SCRIPTS = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "figures").glob("*.py")]


def imports(path):
    """(dots, module, names) of every import statement, at any depth."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", [a.name for a in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield 0, alias.name, []


def inner(path):
    """The package's own modules that a module imports."""
    for level, module, names in imports(path):
        if level == 1 and not module:
            yield from (n for n in names if n in MODULES)
        elif level == 1 and module.split(".")[0] in MODULES:
            yield module.split(".")[0]


STAGES = [
    {"bounds", "guarantee", "validate", "store", "mechanisms"},
    {"gaussian", "tables", "error_budget", "cache", "fourier"},
    {"spectral", "large_losses", "one_step", "tilts", "plancherel", "partial_sums"},
    {"lattice", "splitting", "direct", "renyi", "buckets", "attempts", "coarse_bounds"},
    {"solver"},
    {"range_mu"},
    {"composition"},
    {"ledger"},
    {"histogram", "summary", "individuals", "pictures", "report", "comparison"},
    {"cli", "demo"},
]


def test_modules_import_from_earlier_stages_only():
    stage = {name: number for number, names in enumerate(STAGES) for name in names}
    assert stage.keys() <= MODULES.keys()
    for name, number in stage.items():
        for other in inner(MODULES[name]):
            assert stage.get(other, number) <= number, f"{name} imports {other}"


def test_no_module_imports_itself_through_others():
    stages = {name: set(inner(path)) for name, path in MODULES.items() if name not in ("__init__", "__main__")}
    assert len(list(TopologicalSorter(stages).static_order())) == len(stages)  # else CycleError


def test_the_inner_product_does_not_know_who_makes_its_tables():
    for name in ("tilts", "plancherel"):
        assert not {"spectral", "lattice", "solver"} & set(inner(MODULES[name]))


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_kernels_are_leaves(name):
    allowed = {"numpy", "numba", "math", "os", "tempfile", "collections", "typing"}
    for level, module, names in imports(KERNELS[name]):
        if level:
            assert level == 1
            assert (module or names[0]) in KERNELS
        else:
            assert module.split(".")[0] in allowed, module


def test_numba_is_imported_by_kernels_only_and_pickle_by_nobody():
    for path in [*MODULES.values(), *KERNELS.values(), *SCRIPTS]:
        for level, module, names in imports(path):
            top = module.split(".")[0]
            assert level or top not in ("pickle", "dill", "cloudpickle", "shelve", "marshal"), path
            if path.parent.name == "pld_accountant":
                assert level or top != "numba", path
            assert not (top == "joblib" and names), path


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_figures_use_public_names_only(path):
    if path.parent.name == "figures":
        for level, module, names in imports(path):
            assert not level
            used = [n for n in (*module.split("."), *names) if n != "__future__"]
            assert not any(n.startswith("_") for n in used), used


def test_kernels_are_installed_inside_of_the_package_only():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    packages = config["options"]["packages"].split()
    assert sorted(packages) == ["pld_accountant", "pld_accountant.kernels"]
    folders = dict(line.split(" = ") for line in config["options"]["package_dir"].strip().splitlines())
    assert folders["pld_accountant.kernels"] == "kernels"
