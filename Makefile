# Every task of the project is a target here; all of them but `install` and `clean` run inside .venv.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=
# Half of what the integration tests do is waiting: three of them keep two cores busy. Files stay whole, so that each
# has one cluster. In the order of the folders: the long integration tests come before the many short unit tests.
WORKERS ?= 3
IN_PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
BENCH_ARGS ?=
SEEDS ?= 10000
SEED_START ?= 0

.PHONY: help install lock lint test demo demo-kafka bench bench-operators bench-state chaos fuzz simulate simulate-bugs clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | awk -F ':.*?## ' '{printf "  make %-15s %s\n", $$1, $$2}'

install: $(STAMP) ## Build .venv from the locked requirements and install the project into it

$(STAMP): requirements/dev.txt pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "[1/3] virtual environment in $(VENV)"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@echo "[2/3] locked requirements (some 250 MB the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@echo "[3/3] headrace itself, editable"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
	@echo "done: $(BIN)/headrace"

lock: install ## Write requirements/*.txt again from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links --python $(BIN)/python pyproject.toml -o requirements/runtime.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links --python $(BIN)/python --group dev pyproject.toml -o requirements/dev.txt

lint: install ## ruff (rules and format) and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One broker for all workers: one for each would cost as much as a minute of tests.
test: lint ## Everything: lint, types, import law, all tests with a real Kafka
	$(BIN)/python -m tests.support.kafka -- $(BIN)/python -m pytest -m "not chaos and not fuzz" $(IN_PARALLEL) $(PYTEST_ARGS)

demo: install ## A standalone cluster, a live windowed query over the built-in nexmark source
	@$(BIN)/python -m server.demo nexmark

demo-kafka: install ## Kafka to Kafka exactly once, with a TaskManager killed half way
	@$(BIN)/python -m tests.support.kafka -- $(BIN)/python -m server.demo kafka

bench: install ## Rows per CPU second, Kafka to Kafka, beside the raw cost of the libraries
	@$(BIN)/python -m benchmarks.bench $(BENCH_ARGS)

bench-operators: install ## Each join, set operation, ranking and UNNEST by itself: CPU per row, without source and sink
	@for module in joins timed_joins lookups ranks unnest; do $(BIN)/python -m benchmarks.$$module $(BENCH_ARGS); done

bench-state: install ## Keyed state by itself and in a slot: 5 million keys in memory, ten times managed memory on disk
	@$(BIN)/python -m benchmarks.state $(BENCH_ARGS)
	@$(BIN)/python -m benchmarks.state_snapshots $(BENCH_ARGS)
	@$(BIN)/python -m benchmarks.state_slot $(BENCH_ARGS)

chaos: install ## The long crash runs (kill -9 of every kind of process, full size)
	$(BIN)/python -m pytest -m chaos --timeout 3600 $(PYTEST_ARGS)

fuzz: install ## The random tests with thousands of new examples each
	$(BIN)/python -m pytest -m "hypothesis or fuzz" --hypothesis-profile fuzz --timeout 3600 $(PYTEST_ARGS)

simulate: install ## Whole clusters in one thread from seeds: SEEDS=10000 SEED_START=0; the last line counts violations
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --start $(SEED_START)

simulate-bugs: install ## Every planted bug must be caught by the simulation within 2,000 seeds
	@$(BIN)/python -m tests.simulation --bugs

clean: ## Remove caches and build products (not .venv)
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
