"""Openers and idioms that our prose does without, in docstrings, comments, messages and pages of text."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
OPENERS = (
    r"Whom|Whoever|But for|Of(?! course)|(?:Who|What)(?!\b(?:[^.!\n]|\n(?!\s*\n))*[?:])"  # not: a question, a label
)
IDIOMS = r"next\s+to\s+nothing|past\s+every\s+use|of\s+no\s+account|will\s+do|by\s+far|hardly|mostly|lottery|lotteries"
FORBIDDEN = re.compile(rf"(?:^|[.!?:]\s+|\n\s*\n\s*)(?:{OPENERS})\b|(?i:\b(?:{IDIOMS})\b)")
FILES = [p for f in ("pld_accountant", "kernels", "docs") for p in (ROOT / f).rglob("*.*")] + list(ROOT.glob("*.md"))
READ = sorted(p.relative_to(ROOT) for p in FILES if p.suffix in (".py", ".md", ".rst"))


def prose(text: str, suffix: str) -> str:
    """The text of a page without code and headings; of a module its comments and strings, each a paragraph."""
    if suffix == ".rst":
        return re.sub(r"^[^\n]+\n([=~-])\1{2,}$|`+[^`]*`+", "", text, flags=re.M)
    if suffix != ".py":
        return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S)
    strings = [n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    comments = re.findall(r"^[ \t]*#[^\n]*(?:\n[ \t]*#[^\n]*)*|  # [^\n]*", text, flags=re.M)
    return "\n\n".join(s.strip() for s in (*strings, *(re.sub(r"^[ \t]*#[ \t]*", "", c, flags=re.M) for c in comments)))


def faults(text: str, suffix: str) -> list[str]:
    read = prose(text, suffix)
    return [" ".join(read[max(m.start() - 30, 0) : m.end() + 30].split()) for m in FORBIDDEN.finditer(read)]


@pytest.mark.parametrize("path", [p for p in READ if p.parts[:2] != ("pld_accountant", "kernels")], ids=str)
def test_prose_is_plain(path):
    assert faults((ROOT / path).read_text(encoding="utf-8"), path.suffix) == []


@pytest.mark.parametrize(
    "text", ["Whom nothing serves gets 0.", "All of it. But for that, none.", "It is Next to\nNothing."]
)
@pytest.mark.parametrize("form", ["x = f('{}')", "# {}", "x = 1  # {}", 'def f():\n    """{}"""', "# One\n# line. {}"])
def test_a_planted_sentence_is_found(text, form):
    planted = form.format(text if '"""' in form else text.replace("\n", " "))
    assert len(faults(planted, ".py")) == len(faults(text, ".md")) == 1
    assert faults("What is proven? What is not: this. It is good of course; the will is done.", ".md") == []
