# Every target sets up what it needs in .venv. PYTHON is 3.11 or newer; WORKERS is how many processes run the tests.
PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
PLUGINS := $(wildcard examples/*/pyproject.toml)
SMOKE := $(wildcard benchmarks/speed.py benchmarks/paper.py)

# One thread for each worker: the models in the tests are small, and the workers share the cores.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test lint docs bench-smoke

demo: .venv/demo-ready
	$(BIN)/macem demo

test: .venv/all-ready
	$(BIN)/python -m pytest -n $(WORKERS)

lint: .venv/all-ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python benchmarks/readme.py --check

docs: .venv/all-ready
	$(BIN)/mkdocs build --strict

bench-smoke: .venv/all-ready
	for script in $(SMOKE); do $(BIN)/python $$script --quick || exit 1; done

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "macem needs Python 3.11 or newer; name one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/demo-ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[plot]'
	@touch $@

.venv/all-ready: pyproject.toml $(PLUGINS) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[all]' $(PLUGINS:%/pyproject.toml=--editable ./%)
	@touch $@ .venv/demo-ready
