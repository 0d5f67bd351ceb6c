"""The examples in the docstrings give what they say."""

import doctest
import importlib
import pkgutil

import pytest

import pld_accountant

FOUND = pkgutil.walk_packages(pld_accountant.__path__, "pld_accountant.")
MODULES = ["pld_accountant", *(m.name for m in FOUND if ".kernels" not in m.name)]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).failed == 0
