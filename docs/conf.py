"""How the documentation is built: pages in reStructuredText, API from the docstrings, no network."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_extensions"))

project = "individual-pld-accountant"
author = "The authors of individual-pld-accountant"
html_title = "individual-pld-accountant"
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "numpydoc",
    "mathml",
    "measured",
    "shell",
    "source",
]
exclude_patterns = ["_build", "_extensions"]
templates_path = ["_templates"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_math_renderer = "mathml"

autosummary_generate = True
autosummary_imported_members = False
numpydoc_show_class_members = False  # the template of a class lists them
autodoc_typehints = "none"  # types stand in the docstrings
autodoc_member_order = "bysource"
autodoc_mock_imports = ["dp_accounting", "jax", "opacus", "optax", "torch"]  # the training loops' own libraries

doctest_global_setup = f"""
import os, runpy, tempfile
import numpy as np
import pld_accountant as pa
if not os.path.exists("norms.npy"):
    os.chdir(tempfile.mkdtemp(prefix="pld-accountant-docs-"))
    runpy.run_path({str(DOCS / "example_norms.py")!r})
"""
doctest_test_doctest_blocks = ""  # only the pages' own examples: the test suite runs those of the docstrings

_PARAGRAPHS = re.compile(r"^\*\*(Error|Cost)\*\*")
_UNDERLINE = re.compile(r"^-{3,}$")


def move_paragraphs_to_notes(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Move the paragraphs on error and cost to the section Notes: numpydoc would read them as entries of a list."""
    kept: list[str] = []
    moved: list[str] = []
    taking = False
    for number, line in enumerate(lines):
        heading = number + 1 < len(lines) and _UNDERLINE.match(lines[number + 1]) and line.strip()
        if _PARAGRAPHS.match(line):
            moved += ["", line]
            taking = True
        elif taking and line.strip() and not heading:
            moved.append(line)
        else:
            taking = False
            kept.append(line)
    if not moved:
        return
    if "Notes" in kept:
        place = kept.index("Notes") + 2
        kept[place:place] = [*moved[1:], ""]
    else:
        kept += ["", "Notes", "-----", *moved[1:]]
    lines[:] = kept


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", move_paragraphs_to_notes, priority=400)
