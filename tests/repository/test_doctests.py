"""The examples in the docstrings give what they say."""

import doctest
import importlib
import pkgutil

import pytest

import pld_accountant

MODULES = ["pld_accountant", *(f"pld_accountant.{m.name}" for m in pkgutil.iter_modules(pld_accountant.__path__))]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).failed == 0
