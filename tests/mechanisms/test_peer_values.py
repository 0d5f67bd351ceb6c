"""Values of other libraries' own tests, of compositions and of Renyi divergences: ours contain them, or are tighter.

`tests/data/peer_values.json` names the source of each, whose digits or error are `within`.  "at_most" marks those that
are upper bounds or of a looser analysis.  Where a source tests functions against each other, mpmath gives the values.
"""

import json
from pathlib import Path

import pytest

import pld_accountant as pa

VALUES = json.loads((Path(__file__).parent.parent / "data" / "peer_values.json").read_text())


def label(value):
    steps = " ".join(f"{number}*{name}{args}" for name, args, number in value["steps"])
    return f"{value['ask']}({value['at']}) {steps}"[:120]


@pytest.mark.parametrize("value", VALUES, ids=label)
def test_a_value_of_another_library(value):
    run = pa.compose([(getattr(pa, name)(*args), number) for name, args, number in value["steps"]])
    at, expected, within = float(value["at"]), float(value["expected"]), value["within"]
    direction = [value["direction"]] if "direction" in value else []
    found = getattr(run, value["ask"])(at, *direction)
    lower, upper = (found.lower, found.upper) if isinstance(found, pa.Bounds) else (float(found), float(found))
    assert lower <= upper
    assert lower - within <= expected
    if value["relation"] == "equal":
        # the expected value is a double
        assert expected * (1.0 - 2.0**-52) <= upper + within
