# Everything runs in a virtual environment of this folder's own, .venv, made on first use and made anew
# when the packaging changes.  Needed beforehand: make and Python 3.10 or newer with its venv module.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11 python3.10,\
            $(shell $(p) -c 'import sys; print("$(p)" if sys.version_info >= (3, 10) else "")' 2>/dev/null)))
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST_ARGS ?=

.PHONY: help demo test test-extras lint style types figures docs clean

help:
	@echo "make demo     train on handwritten digits and account for every example, into demo-output/"
	@echo "make test     run the tests on all cores: 10 to 20 minutes on two cores, less on more"
	@echo "make test-extras  install opacus, jax, release and peers, one after the other, and run their tests: 5 GB, half an hour"
	@echo "make lint     check style and types"
	@echo "make figures  make the pictures that need no data but what is installed"
	@echo "make docs     build the documentation into docs/_build/html and run its examples"
	@echo "make clean    remove the virtual environment and everything made"

demo: $(VENV)/demo.made
	$(BIN)/pld-accountant demo --out demo-output

# One process a core; each may use two threads, which the tests of threads need, and one for each matrix product.
# Every process that finds no machine code compiles all kernels, at the same time as the others: to compile in one process
# first would take as long.
test: $(VENV)/test.made
	@echo "Tests: 10 to 20 minutes on two cores, less on more, and half a minute more when the kernels are compiled anew"
	NUMBA_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto $(PYTEST_ARGS)

# The tests that `make test` skips, because their libraries are large: torch alone takes 5 GB with its default wheels.
# Each extra gets an environment of its own, so that none leans on a library of another's; EXTRAS="jax" tests one only.
EXTRAS ?= opacus jax release peers

test-extras: $(EXTRAS:%=.venv-%/tested)

.PHONY: $(EXTRAS:%=.venv-%/tested)
$(EXTRAS:%=.venv-%/tested): .venv-%/tested: .venv-%/made
	NUMBA_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1 .venv-$*/bin/python -m pytest $(PYTEST_ARGS) $(TESTS_OF_$*)

TESTS_OF_opacus := tests/training/test_opacus.py tests/training/test_pytorch.py tests/training/test_journal.py
TESTS_OF_jax := tests/training/test_jax.py tests/training/test_dp_event.py
TESTS_OF_release := tests/test_publishing.py
TESTS_OF_peers := tests/training/test_histories.py

.venv-%/made: setup.cfg pyproject.toml
	rm -rf .venv-$*
	$(PYTHON) -m venv .venv-$*
	@echo "Installing the extra $* into .venv-$* ..."
	.venv-$*/bin/python -m pip --disable-pip-version-check --quiet install --editable '.[$*]' pytest hypothesis mpmath
	touch $@

lint: style types

style: $(VENV)/test.made
	$(BIN)/ruff check .

types: $(VENV)/test.made
	$(BIN)/mypy

figures: $(VENV)/demo.made
	$(BIN)/python figures/histogram.py
	$(BIN)/python figures/koskela_steps.py
	$(BIN)/python figures/widths.py
	$(BIN)/python figures/tails.py
	$(BIN)/python figures/cost.py
	$(BIN)/python figures/speed.py
	$(BIN)/python figures/training.py
	$(BIN)/python figures/potential.py
	$(BIN)/python figures/batches.py

# Warnings are errors; the examples on the pages are run as well.
docs: $(VENV)/docs.made
	$(BIN)/python -m sphinx -W --keep-going -d docs/_build/doctrees -b html docs docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -d docs/_build/doctrees -b doctest docs docs/_build/doctest
	@echo "Open docs/_build/html/index.html"

$(VENV)/base.made: setup.cfg pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python 3.10 or newer was found" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  echo "make: $(PYTHON) cannot make virtual environments; on Debian: apt install python3-venv (or python$$version-venv)" >&2; \
	  exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	touch $@

# An editable install: the sources stay where they are, and changing them needs no new install.
$(VENV)/demo.made: $(VENV)/base.made
	@echo "Installing into $(VENV), about half a minute ..."
	$(PIP) install --editable '.[demo]'
	touch $@

$(VENV)/test.made: $(VENV)/base.made
	@echo "Installing into $(VENV), about half a minute ..."
	$(PIP) install --editable '.[test]'
	touch $@

$(VENV)/docs.made: $(VENV)/base.made
	@echo "Installing into $(VENV), about half a minute ..."
	$(PIP) install --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) .venv-* docs/_build docs/api/generated demo-output build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
