"""What the README shows as printed is what is printed."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import pld_accountant as pa
from pld_accountant.cli.commands import main

README = (Path(__file__).parent.parent.parent / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^\$ pld-accountant (.+)\n(.+)$", README, re.M)
NUMBERS = re.findall(r"^(pa\.calibrate_\w+\(.+\)) +# ([\d.]+)$", README, re.M)


@pytest.mark.parametrize(("words", "line"), SHOWN)
def test_a_command_and_its_answer(words, line):
    result = CliRunner().invoke(main, words.split())
    assert (result.exit_code, result.stdout) == (0, line + "\n")


@pytest.mark.parametrize(("call", "number"), NUMBERS)
def test_a_call_and_its_answer(call, number):
    value = repr(eval(call, {"pa": pa}))
    assert value.startswith(number.rstrip("."))


def test_nothing_is_overlooked():
    assert len(SHOWN) == README.count("\n$ ") == 2
    assert len(NUMBERS) == README.count("\npa.calibrate_") == 3
