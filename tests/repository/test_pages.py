"""The pages at the top of the repository agree with the package and with each other."""

import re
from pathlib import Path

import pytest
import yaml

import pld_accountant as pa

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), ROOT / "figures" / "README.md"])
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def headings(path: Path) -> set[str]:
    """The names by which the headings of a page are linked."""
    text = path.read_text(encoding="utf-8")
    pattern = r"^#+ (.+)$" if path.suffix == ".md" else r"^(.+)\n[=~-]{3,}$"
    return {slug(heading) for heading in re.findall(pattern, text, re.M)}


def broken(path: Path) -> list[str]:
    """The links of a page to files, or to headings of files, that are not there."""
    bad = []
    for file, heading in LINK.findall(path.read_text(encoding="utf-8")):
        target = path.parent / file if file else path
        if not target.exists() or (heading and heading not in headings(target)):
            bad.append(f"{file}#{heading}")
    return bad


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_of_the_repository(path):
    assert broken(path) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One two\n[a](page.md) [b](#one-two) [c](none.md) [d](page.md#three) ![e](f.png)\n")
    assert broken(page) == ["none.md#", "page.md#three", "f.png#"]


def missing(text: str) -> list[str]:
    """The files and names that a page of the documentation shows as sources, and that are not there."""
    bad = []
    for file, name in re.findall(r":source:`([^`:]+)(?:::([^`]+))?`", text):
        source = ROOT / file
        if not source.is_file() or not re.search(rf"\b{re.escape(name)}\b", source.read_text(encoding="utf-8")):
            bad.append(f"{file}::{name}")
    return bad


def test_every_source_that_the_documentation_names_is_there():
    """`make docs` checks the same, but only where Sphinx is installed."""
    pages = sorted((ROOT / "docs").glob("[!_]*/*.rst")) + sorted((ROOT / "docs").glob("*.rst"))
    texts = [page.read_text(encoding="utf-8") for page in pages]
    assert sum(text.count(":source:`") for text in texts) > 100
    assert [bad for text in texts for bad in missing(text)] == []
    assert missing(":source:`setup.cfg::none_such` :source:`none.py` :source:`setup.cfg`") == [
        "setup.cfg::none_such",
        "none.py::",
    ]


def test_the_changelog_begins_with_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(.+)\] - (?:\d{4}-\d\d-\d\d|not yet released)$", text, re.M)
    assert len(versions) == text.count("\n## ") and versions[0] == pa.__version__
    kinds = re.findall(r"^### (.+)$", text, re.M)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["cff-version"], citation["version"]) == ("1.2.0", pa.__version__)
    assert citation["license"] == "Apache-2.0" and citation["message"] and citation["title"]
    assert citation["authors"] == [{"name": "The pld_accountant developers"}]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert all(reference["title"] in readme for reference in citation["references"])


def test_the_version_is_stated_once_for_packaging_and_once_in_the_package():
    assert re.findall(r"^version = (.+)$", (ROOT / "setup.cfg").read_text(), re.M) == [pa.__version__]
