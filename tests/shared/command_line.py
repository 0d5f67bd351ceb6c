"""The command line in one process, for tests."""

import os

from click.testing import CliRunner

from pld_accountant.cli.commands import main


def run(*words):
    """Run the program with these words."""
    return CliRunner().invoke(main, [str(word) for word in words])


def fails(*words):
    """Run what must fail as a mistake of the user's, and give the one line."""
    before = sorted(os.listdir())
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    assert line.startswith("pld-accountant: ")
    assert result.stdout == ""
    assert sorted(os.listdir()) == before, "something was written"
    return line
