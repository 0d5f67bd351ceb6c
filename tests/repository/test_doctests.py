"""The examples in the docstrings give what they say."""

import doctest
import importlib
import pkgutil

import pytest

import pld_accountant

FOUND = pkgutil.walk_packages(pld_accountant.__path__, "pld_accountant.")
MODULES = ["pld_accountant", *(m.name for m in FOUND if ".kernels" not in m.name)]


# modules for libraries that are extras of their own; the job of the extra runs their examples
LIBRARIES = {
    "dp_event": "dp_accounting",
    "jax": "optax",
    "opacus": "opacus",
    "people_loader": "torch",
    "pytorch": "torch",
}


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples(name):
    room, _, module = name.rpartition(".")
    if room == "pld_accountant.training" and module in LIBRARIES:
        pytest.importorskip(LIBRARIES[module])
    assert doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).failed == 0
