# Two commands set up everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
# Some tests wait for deadlines: a second worker computes meanwhile, each with one thread.
WORKERS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(WORKERS) --no-loadscope-reorder

.PHONY: demo test check lint browser bench docs clean

demo: .venv/.runtime
	$(BIN)/pdlrecover demo

test: .venv/.dev lint browser
	$(PYTEST)

check: .venv/.dev lint browser
	$(PYTEST) -m "not slow"

lint: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/tables.py --check
	$(BIN)/python docs/results.py --check
	$(BIN)/python docs/peers_states.py --check

browser:
	@bash tests/chromium.sh

bench: .venv/.dev
	$(BIN)/python benchmarks/sharing.py --record results/benchmarks/sharing.json
	$(BIN)/python benchmarks/simulation.py --record results/benchmarks/simulation.json
	$(BIN)/python benchmarks/history.py --record results/benchmarks/history.json
	$(BIN)/python benchmarks/peers.py --record results/benchmarks/peers.json

docs: .venv/.runtime
	$(BIN)/python docs/tables.py
	$(BIN)/python docs/results.py
	$(BIN)/python docs/peers_states.py

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/.runtime: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ .venv/.runtime

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
