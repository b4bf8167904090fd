# The loop of this project. `make up` runs Tilewatch, `make test` says whether a change is good, `make help` lists it all.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Some machines set it. A suite starts hundreds of processes, and each would compile all of our modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help free-port up install dev test test-quick test-changed test-debian lint figures figures-gpu chaos test-torch test-gpu test-release mutants smoke-compose lock clean

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile

free-port: ## Say whether the dashboard's port is in use, before the first install
	@[ -e $(BIN)/tilewatch ] || $(PYTHON) -c 'import os, socket; \
	  socket.create_server(("127.0.0.1", int(os.environ.get("TILEWATCH_PORT") or 8501)))' 2>/dev/null || \
	  { echo "port $${TILEWATCH_PORT:-8501} cannot be used for the dashboard; set TILEWATCH_PORT to another"; exit 1; }

up: free-port install ## Install what is missing, then run everything on this machine until Ctrl-C
	@exec $(BIN)/tilewatch up

install: ## Install the product into .venv (with the GPU packages where there is an NVIDIA GPU)
	@$(PYTHON) requirements/install.py product

dev: ## Install the product and the development tools into .venv
	@$(PYTHON) requirements/install.py dev
	@$(BIN)/python tools/check_commits.py --install

lint: dev ## Check style, types, the import rules between the rooms and the messages of new commits
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tools/check_commits.py

# One process more than cores, because tests also wait for programs to start. Each has servers of its own. With two more
# the suite took 11 min 51 s instead of 10 min 6 s on two cores (2026-11-23). More than four gain little: the longest
# tests then decide.
PARALLEL = -n $(shell expr $$(nproc) + 1) --maxprocesses 4 --dist worksteal

test: dev ## Check everything that needs no GPU, against a real Postgres and a real Valkey (SEED=5 draws the order of tests)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint test-debian
	@$(BIN)/pytest $(PARALLEL) --durations=10 $(if $(SEED),--order-seed $(SEED))

test-quick: dev ## Check what starts no worker, browser, dashboard or compiler (at most 3 minutes on two cores)
	@$(BIN)/pytest -q $(PARALLEL) -m "not slow"

# test_embedded.py starts servers of its own, so it says nothing of Debian's.
test-debian: dev ## Run the tests of db/ against the oldest servers that are supported: Debian's Postgres 15 and Redis 7
	@$(BIN)/python tests/debian_servers.py $(BIN)/pytest -q -n auto --maxprocesses 4 --dist loadfile tests/db \
		--ignore tests/db/server/test_embedded.py

test-changed: ## Run the tests of the modules that differ from main (ONLY="worker/run_job.py ..." for others)
	@tests="$$($(BIN)/python -m tools.changed_tests $(ONLY))"; \
		if [ -z "$$tests" ]; then echo "no module with tests of its own was changed"; else $(BIN)/pytest -q $$tests; fi

# Figures are taken on a machine that does nothing else: 6 hours on two cores (benchmarks/bounds.toml has the minutes).
figures: dev ## Take the figures of docs/develop/measurements.md that need no GPU (ONLY="judge api" for some; CHECK=1 runs nothing)
	@$(BIN)/python -m tools.figures $(if $(CHECK),--check) $(ONLY)

figures-gpu: dev ## Take those that need an NVIDIA GPU (25 minutes on one H100)
	@$(BIN)/python -m tools.figures --gpu $(if $(CHECK),--check) $(ONLY)

# Each benchmark prints its figures beside their bounds and ends with 1 when one is missed (ARGS=--report-only: with 0).
bench-%: dev
	@$(BIN)/python -m benchmarks.$(subst -,_,$*) $(ARGS)

chaos: dev ## Kill workers and restart servers under 300 jobs, three times over, and count lost jobs (20 minutes)
	@for seed in 1 2 3; do $(BIN)/python -m benchmarks.jobs chaos --seed $$seed || exit 1; done

# In a folder of its own: no other test is to find PyTorch.
test-torch: dev ## Run the tests that need PyTorch with its CPU build (190 MB), where pip's own sources have it
	@$(BIN)/pip install --quiet --no-deps --require-hashes --target .torch --upgrade --requirement requirements/torch.txt
	@PYTHONPATH=.torch $(BIN)/pytest -q -m torch

test-gpu: dev ## Run the tests that need an NVIDIA GPU
	@$(BIN)/pytest -m gpu

test-release: dev ## Run the tests that only a release needs: every kernel compiled on every problem for every architecture (3 minutes)
	@$(BIN)/pytest -m release

smoke-compose: dev ## Run docker compose once with all it can do (10 minutes; LOCAL=FOLDER where no container registry is reached)
	@$(BIN)/python -m tools.smoke.compose $(if $(LOCAL),--local "$(LOCAL)")

mutants: dev ## Draw faults from the modules that decide and count those that tests notice (SEED=1 COUNT=300; LISTED=1 for the lists)
	@$(BIN)/python -m tests.mutants.run $(if $(LISTED),,--drawn $(or $(COUNT),60) $(if $(SEED),--seed $(SEED)))

# uv reads neither pip's settings nor its environment, and no settings of its own here: a list must not depend on the
# machine it was made on. `make lock UPGRADE=--upgrade` takes newer releases; without it what is pinned stays pinned.
LOCK = env -u PIP_FIND_LINKS -u PIP_EXTRA_INDEX_URL -u UV_FIND_LINKS $(BIN)/uv pip compile --no-config --quiet \
	--universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	--custom-compile-command "make lock" $(UPGRADE)

lock: dev ## Write requirements/*.txt again from pyproject.toml
	@$(LOCK) requirements/build.in -o requirements/build.txt >/dev/null
	@$(LOCK) pyproject.toml -o requirements/base.txt >/dev/null
	@$(LOCK) pyproject.toml -c requirements/base.txt --extra s3 --group dev -o requirements/dev.txt >/dev/null
	@$(LOCK) pyproject.toml -c requirements/dev.txt --extra s3 -o requirements/s3.txt >/dev/null
	@$(LOCK) pyproject.toml -c requirements/base.txt --extra gpu -o requirements/gpu.txt >/dev/null
	@$(LOCK) pyproject.toml -c requirements/gpu.txt -c requirements/build.txt --override requirements/overrides.txt \
		--extra gpu --extra deepgemm -o requirements/deepgemm.txt >/dev/null
	@$(LOCK) -c requirements/base.txt --group dashboard -o requirements/dashboard.txt >/dev/null
	@$(LOCK) -c requirements/s3.txt --group worker -o requirements/worker.txt >/dev/null
	@$(LOCK) -c requirements/worker.txt -c requirements/deepgemm.txt --override requirements/overrides.txt \
		--group gpu-worker -o requirements/gpu-worker.txt >/dev/null

clean: ## Remove .venv and every cache from the checkout (never the data of `make up`)
	@rm -rf $(VENV) build dist tilewatch.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
