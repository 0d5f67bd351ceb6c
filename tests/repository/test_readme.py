"""What the README shows as printed is what is printed."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
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


class Refuses:
    """A filter that has spent everybody's budget, and the names that the loop of the README uses."""

    def __init__(self, *_, **__):
        pass

    def admit(self, norms):
        return np.zeros(len(norms), dtype=bool)


def test_the_loop_with_a_filter_neither_ends_early_nor_lets_refused_people_in():
    (loop,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.S) if ".admit(" in block]
    calls = []

    def everybody(model):
        calls.append(model)
        return np.full((4, 2), 9.0), np.full(4, 9.0 * 2**0.5)

    names = {"pa": SimpleNamespace(PotentialFilter=Refuses), "np": np, "n": 4, "steps": 7, "rate": 0.1}
    silent = SimpleNamespace(random=np.zeros, normal=lambda mean, deviation, shape: np.zeros(shape))
    exec(loop, names := {**names, "everybody": everybody, "rng": silent, "model": np.zeros(2)})
    assert len(calls) == 7 and not names["model"].any()
