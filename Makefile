# Two commands set up everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
# Tests of peers and of clusters wait for deadlines: another worker computes meanwhile, on one thread.
WORKERS ?= 3
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(WORKERS) --no-loadscope-reorder

# What was tested together is what is installed; see `make test-lowest` and `test-newest` for the ends.
INSTALL := -m pip install --quiet --constraint constraints.txt --editable
LOWEST := .venv-lowest/bin
NEWEST := .venv-newest/bin
# Flower pins versions that the rest has left behind, so its tests have an environment of their own.
FLOWER := .venv-flower/bin
FLOWER_EXTRAS := '.[flower,peers,reports]' 'flwr[simulation]' pytest pytest-xdist scikit-learn

.PHONY: demo test check lint browser promtool bench docs docs-site clean
.PHONY: chaos fuzz test-lowest test-newest constraints audit-dependencies

demo: .venv/.runtime
	$(BIN)/pdlrecover demo

test: .venv/.dev .venv-flower/.installed lint browser promtool
	$(PYTEST)
	OMP_NUM_THREADS=1 $(FLOWER)/pytest tests/flower

check: .venv/.dev .venv-flower/.installed lint browser promtool
	$(PYTEST) -m "not slow"
	OMP_NUM_THREADS=1 $(FLOWER)/pytest tests/flower -m "not slow"

lint: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/tables.py --check
	$(BIN)/python docs/results.py --check
	$(BIN)/python docs/peers_states.py --check
	$(BIN)/python docs/cli_reference.py --check
	$(BIN)/python docs/notebook.py --check

browser:
	@bash tests/chromium.sh

promtool:
	@bash tests/promtool.sh

bench: .venv/.dev
	$(BIN)/python benchmarks/sharing.py --record results/benchmarks/sharing.json
	$(BIN)/python benchmarks/simulation.py --record results/benchmarks/simulation.json
	$(BIN)/python benchmarks/history.py --record results/benchmarks/history.json
	$(BIN)/python benchmarks/peers.py --record results/benchmarks/peers.json
	$(BIN)/python benchmarks/large.py --record results/benchmarks/large.json

# Real peers under faults, then under cheats; an hour each: make chaos DURATION=3600
DURATION ?= 300
chaos: .venv/.runtime
	$(BIN)/pdlrecover peer chaos --peers 5 --duration $(DURATION)
	$(BIN)/pdlrecover peer chaos --peers 5 --duration $(DURATION) --beyond
	$(BIN)/pdlrecover peer chaos --peers 7 --duration $(DURATION) --cheats all

fuzz: .venv/.runtime
	$(BIN)/pdlrecover peer fuzz

docs: .venv/.runtime
	$(BIN)/python docs/tables.py
	$(BIN)/python docs/results.py
	$(BIN)/python docs/peers_states.py
	$(BIN)/python docs/cli_reference.py
	$(BIN)/python docs/notebook.py

docs-site: .venv/.dev
	$(BIN)/python docs/build_site.py

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/.runtime: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python $(INSTALL) '.[peers,reports]'
	touch $@

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python $(INSTALL) '.[dev]'
	touch $@ .venv/.runtime

.venv-flower/.installed: pyproject.toml constraints-flower.txt
	$(PYTHON) -m venv --clear .venv-flower
	$(FLOWER)/python -m pip install --quiet --upgrade pip
	$(FLOWER)/python -m pip install --quiet --constraint constraints-flower.txt --editable $(FLOWER_EXTRAS)
	touch $@

# The fast tests at both ends of what pyproject.toml allows, each in an environment of its own: the
# lowest version of every direct dependency, and the newest. Another Python: PYTHON=python3.13.
test-lowest: .venv-lowest/.dev browser promtool
	OMP_NUM_THREADS=1 $(LOWEST)/pytest --numprocesses $(WORKERS) --no-loadscope-reorder -m "not slow"

test-newest: .venv-newest/.dev browser promtool
	OMP_NUM_THREADS=1 $(NEWEST)/pytest --numprocesses $(WORKERS) --no-loadscope-reorder -m "not slow"

.venv-lowest/.dev: pyproject.toml .ci/lowest_versions.py
	$(PYTHON) -m venv --clear .venv-lowest
	$(LOWEST)/python .ci/lowest_versions.py > .venv-lowest/lowest.txt
	$(LOWEST)/python -m pip install --quiet --constraint .venv-lowest/lowest.txt --editable '.[dev]'
	touch $@

.venv-newest/.dev: pyproject.toml
	$(PYTHON) -m venv --clear .venv-newest
	$(NEWEST)/python -m pip install --quiet --editable '.[dev]'
	touch $@

# Takes the newest versions that pyproject.toml allows; run the tests with them before committing.
constraints:
	$(PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/python -m pip install --quiet --editable '.[dev]'
	echo '# What CI and `make` install: versions that were tested together. Written by `make constraints`.' > constraints.txt
	.venv-newest/bin/python -m pip freeze --all --exclude pip --exclude-editable | sed 's/+cpu$$//' >> constraints.txt
	$(PYTHON) -m venv --clear .venv-newest
	grep '^torch==' constraints.txt > .venv-newest/torch.txt
	.venv-newest/bin/python -m pip install --quiet --constraint .venv-newest/torch.txt \
		--editable $(FLOWER_EXTRAS)
	echo "# What Flower's tests are run with: it allows older typer, rich and packaging. Written by \`make constraints\`." > constraints-flower.txt
	.venv-newest/bin/python -m pip freeze --all --exclude pip --exclude-editable | sed 's/+cpu$$//' >> constraints-flower.txt
	rm -r .venv-newest

audit-dependencies: .venv-audit/.installed
	.venv-audit/bin/python .ci/audit_dependencies.py

.venv-audit/.installed:
	$(PYTHON) -m venv --clear .venv-audit
	.venv-audit/bin/python -m pip install --quiet 'pip-audit>=2.10'
	touch $@

clean:
	rm -rf .tools .venv .venv-flower .venv-lowest .venv-newest .venv-audit .mypy_cache .pytest_cache .ruff_cache .hypothesis
