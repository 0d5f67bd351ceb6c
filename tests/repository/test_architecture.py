"""Which room may import which, read from every import statement; and what is imported or installed nowhere.

A room is a folder of the package, or a module at its top level.  `figures` and `benchmarks` are rooms too.  The checks
are functions of the repository's root: the last tests plant violations in a copy and see the checks fail.
"""

import ast
import configparser
import functools
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGE = "pld_accountant"

# -------------------------------------------------------------------------------------------------------- the table

# what every room may import
EVERYBODY = {"results", "rounding", "validate", "locked", "fft", "deadline", "gauss_legendre"}
QUESTIONS = {"engine", "counting", "tables.makers", "mechanisms", "notions", "files"}
PUBLIC = {"__init__", "adaptive", "calibration", "composition", "filters", "ledger", "mechanisms", "notions"}
PUBLIC |= {"laplace_ledger", "mechanism_ledger", "partitions", "publishing", "report"}

# An entry is a room, or one module of a room; a line is for a room, or for one script of a room.
ALLOWED = {
    "kernels": set(),
    "rounding": set(),
    "fft": set(),
    "gauss_legendre": set(),
    "version": set(),
    "checkout": set(),  # finds the kernels, and imports nothing by name
    "results": {"rounding"},
    "validate": set(),
    "locked": set(),
    "deadline": {"validate"},
    "threads": {"kernels", "deadline"},
    "warm_up": {"kernels"},
    "files": EVERYBODY,
    "events": EVERYBODY | {"files"},
    "notions": EVERYBODY,
    "mechanisms": EVERYBODY | {"notions", "threads", "kernels"},
    "counting": EVERYBODY | {"mechanisms", "threads", "kernels"},
    "tables": EVERYBODY | {"files", "mechanisms", "threads", "kernels"},
    "engine": EVERYBODY | {"tables", "counting", "mechanisms", "notions", "threads", "kernels"},
    "engine.rare_losses": EVERYBODY
    | {"engine.method", "engine.plancherel", "engine.question", "engine.tilting", "engine.working"}
    | {"tables", "counting", "mechanisms", "threads", "kernels"},
    "composition": EVERYBODY | QUESTIONS,
    "named_people": EVERYBODY | {"events"},
    "people_counts": EVERYBODY | {"counting", "events", "files", "ledger_file", "named_people"},
    "ledger": EVERYBODY | QUESTIONS | {"composition", "people_counts"},
    "laplace_ledger": EVERYBODY | QUESTIONS | {"ledger", "ledger_file"},
    "mechanism_ledger": EVERYBODY | QUESTIONS | {"composition", "events", "named_people"},
    "ledger_file": EVERYBODY | {"counting", "files"},
    "calibration": EVERYBODY | {"composition", "mechanisms", "notions"},
    "potential": EVERYBODY | {"mechanisms", "files", "threads", "kernels"},
    "filters": EVERYBODY | QUESTIONS | {"potential", "kernels"},
    "adaptive": EVERYBODY | {"filters", "notions"},
    "report": EVERYBODY
    | {"notions", "files", "mechanisms", "ledger", "mechanism_ledger", "composition", "report.html", "version"},
    "publishing": EVERYBODY | {"files", "notions", "ledger", "report"},
    "dask": EVERYBODY | {"events", "files", "partitions", "report"},
    "partitions": EVERYBODY | {"events", "files", "laplace_ledger", "mechanisms", "report", "threads"},
    "report.html": EVERYBODY | {"notions", "report", "version"},
    "demo": EVERYBODY | PUBLIC | {"report.html", "files"},
    "training": EVERYBODY | {"composition", "files", "filters", "ledger", "mechanisms"},
    "cli": EVERYBODY
    | PUBLIC
    | {"report.html", "events", "files", "demo", "threads", "warm_up"}
    | {"ledger_file", "training.journal"},
    "__init__": EVERYBODY | PUBLIC | {"version", "checkout"},
    "__main__": {"cli"},
    # the stages and checkpoints of the scripts are files of the package's own format
    "figures": {"__init__", "report", "notions", "demo", "files.store"},
    "benchmarks": {"__init__", "report", "notions", "demo", "training"},
    "benchmarks.jobs": {"dask"},
    # measures two kinds of tables by themselves, which no public name offers
    "benchmarks.cost": {"mechanisms", "counting.counts", "tables.makers", "tables.table", "engine"},
}
ABSENT: set[str] = set()  # rooms that need not be there yet
DOORS = {"engine.rare_losses": "engine.schedule"}  # rooms that one module imports, and nobody else
BY_NAME = {"__init__", "files.formats"}  # modules that import a module whose name is not written out
SCRIPTS = ("figures", "benchmarks")
FOR_KERNELS = {"numpy", "numba", "math", "os", "stat", "tempfile", "collections", "typing", "contextlib"}
FOR_KERNELS |= {"functools", "gc", "hashlib", "logging", "time", "types"}
PICKLES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "jsonpickle", "marshal", "shelve"}

# What the present rebuilding removes.  A test fails if one of these is not found any more.
KNOWN_VIOLATIONS: set[str] = set()


# ---------------------------------------------------------------------------------------------- reading the imports


class Import(NamedTuple):
    """One name that a module imports: `module` is dotted, and absolute."""

    importer: str
    module: str
    name: str | None


parsed = functools.cache(ast.parse)  # most files of a copy are as they were


@functools.cache
def walked(tree: ast.Module) -> list[ast.AST]:
    """All nodes of a tree, which is not changed."""
    return list(ast.walk(tree))


class House:
    """The modules under a root and their imports."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = {}
        for folder, prefix in ((PACKAGE, PACKAGE), ("kernels", f"{PACKAGE}.kernels"), *((s, s) for s in SCRIPTS)):
            for path in sorted((root / folder).rglob("*.py")):
                inside = path.relative_to(root / folder).with_suffix("").parts
                if not (folder == PACKAGE and inside[0] == "kernels"):  # a link to the folder of that name
                    self.paths[".".join((prefix, *inside))] = path
        self.trees = {name: parsed(path.read_text()) for name, path in self.paths.items()}
        self.rooms = {self.folder(name) for name in self.paths}
        self.imports = [i for name in self.paths for i in self._imports(name)]

    def folder(self, module: str) -> str:
        """The room of a module that is there: its folder, or itself if it lies at the package's top level."""
        first, *inside = module.split(".")
        if first in SCRIPTS:
            return first
        return ".".join(inside[:-1]) or inside[0]

    def found(self, dotted: str) -> str | None:
        """The module of that name, in full; a folder is its `__init__`."""
        return next((m for m in (dotted, f"{dotted}.__init__") if m in self.paths), None)

    def edges(self) -> Iterator[tuple[Import, str]]:
        """Every import of a module that lies under the root, and that module."""
        for one in self.imports:
            whole = f"{one.module}.{one.name}" if one.name else one.module
            target = self.found(whole) or self.found(one.module) or self._nearest(one.module)
            if target is not None:
                yield one, target

    def _nearest(self, dotted: str) -> str | None:
        """For a module that is not there, the deepest folder above it, so that it is judged as if it were there."""
        while "." in dotted:
            dotted = dotted.rpartition(".")[0]
            if (target := self.found(dotted)) is not None:
                return target
        return None

    def _imports(self, importer: str) -> Iterator[Import]:
        package = importer.split(".")[:-1]
        for node in walked(self.trees[importer]):
            if isinstance(node, ast.ImportFrom):
                base = ".".join([*package[: len(package) - node.level + 1], *(node.module or "").split(".")])
                module = base.rstrip(".") if node.level else node.module or ""
                for alias in node.names:
                    yield self._script(Import(importer, module, alias.name))
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    yield self._script(Import(importer, alias.name, None))
            elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
                yield self._script(Import(importer, self._by_name(importer, node), None))
        for name in later(self.trees[importer]) if importer == f"{PACKAGE}.__init__" else ():
            yield Import(importer, f"{PACKAGE}.{name}", None)

    def _by_name(self, importer: str, node: ast.Call) -> str:
        """The module that a call imports; `?` if the name is not written out."""
        if not (node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)):
            return "?"
        name = node.args[0].value
        level = len(name) - len(name.lstrip("."))
        package = importer.split(".")[:-1]
        return ".".join([*package[: len(package) - level + 1], name[level:]]) if level else name

    def _script(self, one: Import) -> Import:
        """Scripts import their neighbours by the bare name."""
        folder = one.importer.split(".")[0]
        if folder in SCRIPTS and f"{folder}.{one.module}" in self.paths:
            return one._replace(module=f"{folder}.{one.module}")
        return one


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def later(tree: ast.Module) -> list[str]:
    """The modules of the `_LATER` table, which are imported when one of their names is first used."""
    for node in walked(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Name) and t.id == "_LATER" for t in targets):
                return [ast.literal_eval(value).lstrip(".") for value in node.value.values]
    return []


def short(module: str) -> str:
    """Without the package's name, and a folder's `__init__` without its own."""
    return re.sub(rf"^{PACKAGE}\.", "", module).replace(".__init__", "")


# ----------------------------------------------------------------------------------------------------- the checks


def forbidden(house: House) -> set[str]:
    """Imports that the table does not allow, as 'importer -> imported'."""
    bad = set()
    for one, target in house.edges():
        own, other = house.folder(one.importer), house.folder(target)
        if own == other:
            continue
        door = DOORS.get(other)
        allowed = {other, short(target)} & (ALLOWED.get(own, set()) | ALLOWED.get(short(one.importer), set()))
        if short(one.importer) != door if door else not allowed:
            bad.add(f"{short(one.importer)} -> {short(target)}")
    return bad


def hidden(house: House) -> set[str]:
    """Modules that import by a name which is not written out."""
    return {short(i.importer) for i in house.imports if i.module == "?"}


def circles(house: House) -> set[str]:
    """Modules, and rooms, that import each other in a circle; a room behind a door is part of its folder."""
    modules: dict[str, set[str]] = {}
    rooms: dict[str, set[str]] = {}
    for one, target in house.edges():
        own, other = one.importer, target
        if own != other:
            modules.setdefault(own, set()).add(other)
        own, other = (house.folder(name).split(".")[0] for name in (own, other))
        if own != other:
            rooms.setdefault(own, set()).add(other)
    return {", ".join(sorted(map(short, around))) for graph in (modules, rooms) for around in components(graph)}


def components(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The largest sets of names each of which leads to every other."""
    reached = {}
    for start in graph:
        reached[start], waiting = set(), [start]
        while waiting:
            new = graph.get(waiting.pop(), set()) - reached[start]
            reached[start] |= new
            waiting += new
    both = {a: frozenset(b for b in reached[a] if a in reached.get(b, ())) for a in reached}
    return {around for around in both.values() if around}


def unlisted(house: House) -> set[str]:
    """Rooms on disk without a line in the table, and lines without a room."""
    scripts = {name for name in house.paths if name.split(".")[0] in SCRIPTS}
    return house.rooms ^ (ALLOWED.keys() - (ABSENT - house.rooms) - scripts)


def foreign(house: House) -> set[str]:
    """Packages from elsewhere that do not belong where they are imported."""
    bad = set()
    for one in house.imports:
        top, room = one.module.split(".")[0], house.folder(one.importer)
        kernels = room == "kernels" and top not in FOR_KERNELS | {PACKAGE}
        numba = top == "numba" and room != "kernels"
        # imported as `kernels` they would be compiled, and kept, a second time
        second = top == "kernels"
        if kernels or numba or second or top in PICKLES:
            bad.add(f"{short(one.importer)} -> {one.module}")
    for name, tree in house.trees.items():
        for node in walked(tree):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
                bad.add(f"{short(name)} -> allow_pickle")
    return bad


def private(house: House) -> set[str]:
    """Names of the package that figures and benchmarks use and that are not public."""
    listed = [
        ast.literal_eval(node.value)
        for node in house.trees[f"{PACKAGE}.__init__"].body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    ]
    public = {"__version__", *listed[0]}
    bad = set()
    for one, target in house.edges():
        if house.folder(one.importer) in SCRIPTS and target.startswith(PACKAGE):
            used = [*one.module.split("."), *([one.name] if one.name else [])]
            if any(n.startswith("_") for n in used) or (
                target == f"{PACKAGE}.__init__" and {one.name} - public - {None}
            ):
                bad.add(f"{short(one.importer)} -> {'.'.join(used)}")
    for name, tree in house.trees.items():
        if house.folder(name) not in SCRIPTS:
            continue
        nodes = walked(tree)
        package = {a.asname or a.name for n in nodes if isinstance(n, ast.Import) for a in n.names if a.name == PACKAGE}
        for node in nodes:
            if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)):
                continue
            of = node.value.id if isinstance(node.value, ast.Name) else ""
            own = of in ("self", "cls") or node.attr.startswith("__")
            if (node.attr.startswith("_") and not own) or (of in package and node.attr not in public):
                bad.add(f"{short(name)} -> {ast.unparse(node)}")
    return bad


def uninstalled(house: House) -> set[str]:
    """Differences between the folders of the package and those that setup.cfg installs."""
    config = configparser.ConfigParser()
    config.read(house.root / "setup.cfg")
    packages = config["options"]["packages"].split()
    folders = {name.rpartition(".")[0] for name in house.paths if name.startswith(PACKAGE)}
    bad = folders ^ set(packages) | {p for p in packages if packages.count(p) > 1}
    bad |= {folder for folder in folders if f"{folder}.__init__" not in house.paths}
    # one folder on the path: an import hook, which any other entry needs, hides the package from static checkers
    if config["options"]["package_dir"].split() != ["=", "."]:
        bad.add("package_dir")
    data = {
        f"{package}/{pattern}": list((house.root / package.replace(".", "/")).glob(pattern))
        for package, patterns in config["options.package_data"].items()
        for pattern in patterns.split()
    }
    bad |= {name for name, files in data.items() if not files}
    installed = {file for files in data.values() for file in files}
    others = {p for p in (house.root / PACKAGE).rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")}
    others.discard(house.root / PACKAGE / "kernels")  # a file if git cannot write links
    return bad | {str(path.relative_to(house.root)) for path in others - installed}


# ------------------------------------------------------------------------------------------------------- the tests


@pytest.fixture(scope="module")
def house():
    return House(ROOT)


def test_every_room_has_a_line_in_the_table(house):
    assert unlisted(house) == set()
    assert DOORS.keys() <= ALLOWED.keys()


def test_every_import_is_allowed(house):
    assert forbidden(house) - KNOWN_VIOLATIONS == set()


def test_there_is_no_circle_of_modules_or_rooms(house):
    assert circles(house) - KNOWN_VIOLATIONS == set()


def test_modules_are_imported_by_names_that_can_be_read(house):
    assert hidden(house) <= BY_NAME


def test_numba_is_imported_by_kernels_only_and_pickle_by_nobody(house):
    assert foreign(house) == set()


def test_figures_and_benchmarks_use_public_names_only(house):
    assert private(house) == set()


def test_every_folder_is_installed_and_nothing_else(house):
    assert uninstalled(house) - KNOWN_VIOLATIONS == set()


def test_known_violations_are_taken_off_the_list_once_they_are_gone(house):
    assert KNOWN_VIOLATIONS - forbidden(house) - circles(house) - uninstalled(house) == set()


@pytest.fixture
def copy(tmp_path):
    """A copy of what is checked, to be broken."""
    ignored = shutil.ignore_patterns("__pycache__", "*.json", "*.png", "*.pdf", "*.npz", "results")
    for folder in (PACKAGE, "kernels", *SCRIPTS):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    return tmp_path


@functools.cache
def intact(check):
    """What a check says about the repository, and so about each copy before anything is planted in it."""
    return check(House(ROOT))


def plant(root: Path, file: str, text: str) -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() if path.exists() else ""
    path.write_text(f"{before}\n{text}\n")


def test_a_copy_is_judged_like_the_original(house, copy):
    other = House(copy)
    for check in (unlisted, forbidden, hidden, circles, foreign, private, uninstalled):
        assert check(other) == check(house)


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("pld_accountant/report/histogram.py", "from .. import cli", "report.histogram -> cli"),
        ("pld_accountant/report/histogram.py", "from ..cli import options", "report.histogram -> cli.options"),
        ("pld_accountant/report/histogram.py", "from ..cli.options import _x", "report.histogram -> cli.options"),
        ("pld_accountant/report/histogram.py", "from pld_accountant import cli", "report.histogram -> cli"),
        ("pld_accountant/report/histogram.py", "import pld_accountant.cli.options", "report.histogram -> cli.options"),
        ("pld_accountant/report/histogram.py", "import pld_accountant as pa", "report.histogram -> __init__"),
        ("pld_accountant/report/histogram.py", "from .. import Ledger", "report.histogram -> __init__"),
        ("pld_accountant/report/html/page.py", "from ...engine import solver", "report.html.page -> engine.solver"),
        ("pld_accountant/notions/gdp.py", "def f():\n    from ..ledger import Ledger", "notions.gdp -> ledger"),
        ("pld_accountant/notions/gdp.py", "def f():\n    import pld_accountant.ledger", "notions.gdp -> ledger"),
        ("pld_accountant/notions/gdp.py", "class A:\n  def f(s):\n    from .. import ledger", "notions.gdp -> ledger"),
        (
            "pld_accountant/notions/gdp.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..composition import Composition",
            "notions.gdp -> composition",
        ),
        (
            "pld_accountant/notions/gdp.py",
            "import importlib\nimportlib.import_module('pld_accountant.composition')",
            "notions.gdp -> composition",
        ),
        (
            "pld_accountant/notions/gdp.py",
            "from importlib import import_module\nimport_module('..composition', __package__)",
            "notions.gdp -> composition",
        ),
        ("pld_accountant/notions/gdp.py", "from ..engine.new import f", "notions.gdp -> engine"),
        ("pld_accountant/results.py", "from . import validate", "results -> validate"),
        ("pld_accountant/filters/base.py", "from ..ledger import Ledger", "filters.base -> ledger"),
        ("pld_accountant/ledger.py", "from .engine.rare_losses import split", "ledger -> engine.rare_losses.split"),
        (
            "pld_accountant/engine/renyi.py",
            "from .rare_losses.split import solve_split",
            "engine.renyi -> engine.rare_losses.split",
        ),
        (
            "pld_accountant/engine/rare_losses/split.py",
            "from ..solver import people_bounds",
            "engine.rare_losses.split -> engine.solver",
        ),
        ("pld_accountant/__init__.py", "_LATER = {'f': 'engine.solver'}", "__init__ -> engine.solver"),
        ("kernels/count.py", "from ..validate import delta", "kernels.count -> validate"),
        ("figures/common.py", "from pld_accountant.engine import solver", "figures.common -> engine.solver"),
        ("benchmarks/peers.py", "import pld_accountant.kernels.count", "benchmarks.peers -> kernels.count"),
    ],
)
def test_a_planted_import_is_found(copy, file, text, found):
    if "_LATER" in text:
        path = copy / file
        path.write_text(path.read_text().replace("_LATER", "_EARLIER"))
    plant(copy, file, text)
    assert forbidden(House(copy)) - intact(forbidden) == {found}


@pytest.mark.parametrize(
    ("check", "file", "text", "found"),
    [
        (unlisted, "pld_accountant/attic/__init__.py", "", "attic"),
        (unlisted, "pld_accountant/engine/attic/tilts.py", "", "engine.attic"),
        (unlisted, "pld_accountant/attic.py", "", "attic"),
        (uninstalled, "pld_accountant/attic/__init__.py", "", "pld_accountant.attic"),
        (uninstalled, "pld_accountant/cli/words.txt", "", "pld_accountant/cli/words.txt"),
        (hidden, "pld_accountant/validate.py", "import importlib\nimportlib.import_module('.' + x)", "validate"),
        (foreign, "pld_accountant/threads.py", "import numba", "threads -> numba"),
        (foreign, "pld_accountant/threads.py", "from numba import njit", "threads -> numba"),
        (foreign, "pld_accountant/threads.py", "def f():\n    import pickle", "threads -> pickle"),
        (foreign, "figures/common.py", "from joblib import dump", "figures.common -> joblib"),
        (foreign, "figures/common.py", "f = np.load(f, allow_pickle=True)", "figures.common -> allow_pickle"),
        (foreign, "kernels/count.py", "from scipy import special", "kernels.count -> scipy"),
        (foreign, "pld_accountant/threads.py", "from kernels import count", "threads -> kernels"),
        (foreign, "benchmarks/peers.py", "import kernels.count", "benchmarks.peers -> kernels.count"),
        (private, "figures/common.py", "import pld_accountant as pa\npa._LATER", "figures.common -> pa._LATER"),
        (private, "figures/common.py", "import pld_accountant as pa\npa.engine", "figures.common -> pa.engine"),
        (private, "figures/common.py", "x._counts", "figures.common -> x._counts"),
        (
            private,
            "figures/common.py",
            "from pld_accountant.report.figures import _style",
            "figures.common -> pld_accountant.report.figures._style",
        ),
        (
            private,
            "benchmarks/peers.py",
            "from pld_accountant import import_module",
            "benchmarks.peers -> pld_accountant.import_module",
        ),
    ],
)
def test_what_else_is_planted_is_found(copy, check, file, text, found):
    plant(copy, file, text)
    assert check(House(copy)) - intact(check) == {found}


@pytest.mark.parametrize(
    ("listed", "instead", "found"),
    [
        ("    pld_accountant.cli\n", "", "pld_accountant.cli"),
        ("    pld_accountant.cli\n", "    pld_accountant.cli\n    pld_accountant.attic\n", "pld_accountant.attic"),
        ("    = .\n", "    pld_accountant.kernels = kernels\n", "package_dir"),
    ],
)
def test_a_wrong_list_of_folders_is_found(copy, listed, instead, found):
    path = copy / "setup.cfg"
    path.write_text(path.read_text().replace(listed, instead))
    assert uninstalled(House(copy)) - intact(uninstalled) == {found}


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("pld_accountant/engine/dominating_mu.py", "from . import quick_bounds\nfrom .solver import f", None),
        ("pld_accountant/results.py", "from .validate import delta", None),
        (
            "pld_accountant/engine/working.py",
            "from .plancherel import solve",
            "engine.method, engine.plancherel, engine.working",
        ),
        (
            "pld_accountant/results.py",
            "def f():\n    from .threads import blocks",
            None,
        ),
        (
            "pld_accountant/threads.py",
            "def f():\n    import pld_accountant.counting.counters as c",
            "counting, threads",
        ),
    ],
)
def test_a_planted_circle_is_found(copy, file, text, found):
    before = intact(circles)
    plant(copy, file, text)
    after = circles(House(copy))
    assert after == before if found is None else found in after - before
