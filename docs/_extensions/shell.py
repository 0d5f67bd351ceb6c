"""The directive ``shell``: commands with their output, run while the pages are read.

Each line that begins with ``$ `` is a command; the lines up to the next one are its output, in which ``...`` stands for
any text.  The commands of one build share a folder that ``example_norms.py`` has filled.  A command that fails or
prints something else is a warning, and warnings are errors.
"""

from __future__ import annotations

import doctest
import os
import runpy
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

EXAMPLE = Path(__file__).parents[1] / "example_norms.py"
_FOLDER = tempfile.TemporaryDirectory(prefix="pld-accountant-docs-")
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@contextmanager
def _inside(folder: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _run(words: list[str]) -> tuple[int, str]:
    from click.testing import CliRunner

    from pld_accountant.cli.commands import main

    with _inside(_FOLDER.name):
        if not os.listdir():
            runpy.run_path(str(EXAMPLE))
        result = CliRunner().invoke(main, words, catch_exceptions=False)
    return result.exit_code, result.output


class Shell(Directive):
    """Commands of ``pld-accountant`` and what they print."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        problems: list[nodes.Node] = []
        for command, wanted in self._commands():
            program, *words = shlex.split(command)
            status, output = _run(words) if program == "pld-accountant" else (127, "")
            if status or not doctest.OutputChecker().check_output(wanted, output, _FLAGS):
                message = f"`{command}` gave status {status} and\n{output}"
                problems.append(self.state.document.reporter.warning(message, line=self.lineno))
        text = "\n".join(self.content)
        block = nodes.literal_block(text, text)
        block["language"] = "console"
        return [block, *problems]

    def _commands(self) -> Iterator[tuple[str, str]]:
        command, wanted = "", ""
        for line in [*self.content, "$ "]:
            if command.endswith("\\"):
                command = command[:-1] + line
            elif line.startswith("$ "):
                if command:
                    yield command, wanted
                command, wanted = line[2:], ""
            else:
                wanted += line + "\n"


class CommandOptions(Directive):
    """The options of one command, from the program."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        status, output = _run([self.arguments[0], "--help"])
        block = nodes.literal_block(output, output.strip())
        block["language"] = "text"
        problem = self.state.document.reporter.warning(f"status {status}", line=self.lineno) if status else None
        return [block, problem] if problem is not None else [block]


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("shell", Shell)
    app.add_directive("command-options", CommandOptions)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
