"""The role ``source``: a file of this repository, and a name in it, which must exist.

``:source:`tests/tables/test_errors.py::test_nodes_meet_the_tolerance``` is shown as the name and the file.  If the file
or the name is gone, the build fails: a page cannot name a function or a test that no longer exists.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes

ROOT = Path(__file__).parents[2]


def _found(path: str, name: str) -> bool:
    file = ROOT / path
    if not file.is_file():
        return False
    defined = rf"^\s*(?:def|class) {re.escape(name)}\b|^{re.escape(name)}\s*[:=]"
    return not name or re.search(defined, file.read_text(encoding="utf-8"), re.MULTILINE) is not None


def source(role: str, rawtext: str, text: str, lineno: int, inliner: Any, options: Any = None, content: Any = None):
    """Show ``path::name`` as literal text; report a path or a name that does not exist."""
    path, _, name = text.partition("::")
    if not _found(path, name):
        message = inliner.reporter.error(f"{text} is not in the repository", line=lineno)
        return [inliner.problematic(rawtext, rawtext, message)], [message]
    shown: list[nodes.Node] = [nodes.literal(rawtext, name or path)]
    if name:
        shown += [nodes.Text(" in "), nodes.literal(rawtext, path)]
    return shown, []


def setup(app: Any) -> dict[str, bool]:
    app.add_role("source", source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
