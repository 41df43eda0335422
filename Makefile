# Everything here works from a fresh clone: the first target that needs it makes `.venv`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV := $(VENV)/.dev-ready
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
WORKERS ?= 4
PYTEST := $(BIN)/python -m pytest --quiet -n $(WORKERS) --dist worksteal

# The package is installed in place and compiled on first use; every start would pay for it anew otherwise.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run tour test check check-models check-clients check-hermes lint format promises bench bundle constraints clean

help:  ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(READY)  ## Serve a few example memories over HTTP, from a temporary home (HOME_DIR=... for another)
	@$(BIN)/python tools/run.py "$(HOME_DIR)"

tour: $(READY)  ## Take a guided tour of the command line, in a temporary home
	@$(BIN)/python tools/tour.py

test: $(DEV)  ## Run every test (ARGS="-k words" for some)
	@tools/system-packages
	@$(PYTEST) $(ARGS)

check: lint  ## Lint and the fast tests, on SQLite
	@$(PYTEST) -m "not slow" -k "not postgres" $(ARGS)

check-models:  ## Test the embedder on sentence-transformers, with torch (1.5 GB, in .venv-models)
	@tools/check-models $(PYTHON) $(ARGS)

check-clients: $(DEV)  ## Test with real agents and the conformance suite of MCP (npm, 1 GB, in .clients)
	@tools/check-clients $(ARGS)

check-hermes: $(DEV)  ## Test with the real Hermes from PyPI (300 MB, in .hermes; HERMES_VERSION=... for another)
	@PYTHON=$(PYTHON) tools/check-hermes $(ARGS)

lint: $(DEV)  ## Rules, format, types, import arrows, words, and a test for each promise
	@$(BIN)/ruff check --quiet --output-format concise .
	@$(BIN)/ruff format --quiet --check . || { echo "make format puts the files right" >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/python tools/check_style.py
	@$(BIN)/python tools/check_words.py
	@$(BIN)/python tools/promises.py --check
	@out=$$($(BIN)/lint-imports --no-logo 2>&1) || { printf '%s\n' "$$out" >&2; exit 1; }

format: $(DEV)  ## Format the code, and mend what ruff can
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

promises: $(READY)  ## List the tests of each promise of the pages (ARGS=sessions for some)
	@$(BIN)/python tools/promises.py $(ARGS)

bench: $(DEV)  ## Measure, each figure beside its reference
	@$(BIN)/python -m benchmarks $(ARGS)

bundle: $(READY)  ## Build the bundle for Claude Desktop, in dist
	@$(BIN)/python tools/make_mcpb.py

constraints:  ## Pin the newest versions that the project allows
	@tools/pin-versions $(PYTHON)

clean:  ## Remove everything that was made here
	@rm -rf $(VENV) .venv-models .clients .hermes build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Installing into $(VENV), once for each change of pyproject.toml ..." >&2
	@$(PIP) --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || \
	  { echo "on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(PIP) install --root-user-action=ignore --constraint constraints.txt --editable '.[server]'
	@touch $@

$(DEV): $(READY)
	@echo "Adding what the tests and linters need, once ..." >&2
	@$(PIP) install --root-user-action=ignore --constraint constraints.txt --editable '.[dev]'
	@touch $@
