# The loop of this project. `make up` runs Tilewatch, `make test` says whether a change is good, `make help` lists it all.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Some machines set it. A suite starts hundreds of processes, and each would compile all of our modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help up install dev test test-quick test-changed test-debian lint bench bench-api bench-checks bench-code-diff bench-compare bench-dashboard bench-gpu bench-jobs bench-judge bench-mechanisms bench-night bench-restore bench-scale bench-tell bench-toolchains bench-tuned bench-watch chaos test-gpu test-release mutants smoke-compose lock clean

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile

up: install ## Install what is missing, then run everything on this machine until Ctrl-C
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

test: dev ## Check everything that needs no GPU, against a real Postgres and a real Valkey
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint test-debian
	@$(BIN)/pytest $(PARALLEL) --durations=10

test-quick: dev ## Check what starts no worker, browser, dashboard or compiler (at most 3 minutes on two cores)
	@$(BIN)/pytest -q $(PARALLEL) -m "not slow"

# test_embedded.py starts servers of its own, so it says nothing of Debian's.
test-debian: dev ## Run the tests of db/ against the oldest servers that are supported: Debian's Postgres 15 and Redis 7
	@$(BIN)/python tests/debian_servers.py $(BIN)/pytest -q -n auto --maxprocesses 4 --dist loadfile tests/db \
		--ignore tests/db/server/test_embedded.py

test-changed: ## Run the tests of the modules that differ from main (ONLY="worker/run_job.py ..." for others)
	@tests="$$($(BIN)/python -m tools.changed_tests $(ONLY))"; \
		if [ -z "$$tests" ]; then echo "no module with tests of its own was changed"; else $(BIN)/pytest -q $$tests; fi

# Each benchmark prints its figures beside their bounds and ends with 1 when one is missed; REPORT_ONLY=1 ends with 0.
ONLY_REPORT = $(if $(REPORT_ONLY),--report-only)

bench: dev ## Measure the cost of a nightly on this machine without a GPU (10 minutes)
	@$(BIN)/python -m benchmarks.nightly $(ONLY_REPORT)

bench-api: dev ## Measure the answers of the HTTP API over 10 million trials (10 minutes, 4 GB; NIGHTS=38 for a million)
	@$(BIN)/python -m benchmarks.api --nights $(or $(NIGHTS),385) $(ONLY_REPORT)

bench-gpu: dev ## Measure the sweep and the stopwatch on this machine's GPU (6 minutes)
	@$(BIN)/python -m benchmarks.gpu.sweep $(ONLY_REPORT)

bench-night: dev ## Measure two whole nights by `tilewatch up` on this machine's GPUs (15 minutes on one, 5 on four)
	@$(BIN)/python -m benchmarks.night $(ONLY_REPORT)

bench-code-diff: dev ## Score the code diff: lines blamed for planted and for harmless changes, time of a diff (10 minutes; ALL=1 compiles every change)
	@$(BIN)/python -m benchmarks.code_diff $(if $(ALL),--all) $(ONLY_REPORT)

bench-mechanisms: dev ## Score what is said of 24 planted mechanisms by which a kernel is slower, without a GPU (4 minutes)
	@$(BIN)/python -m benchmarks.mechanisms $(ONLY_REPORT)

bench-compare: dev ## Score `tilewatch compare`: wrong verdicts, coverage, steps found, time of an answer (2 minutes; WORLDS=100 for less)
	@$(BIN)/python -m benchmarks.compare --worlds $(or $(WORLDS),1000) $(ONLY_REPORT)

bench-checks: dev ## Submit 20 checks at once to one simulated GPU beside a nightly: order, nothing lost, the nightly's share (20 minutes)
	@$(BIN)/python -m benchmarks.checks $(ONLY_REPORT)

bench-watch: dev ## Count the public cuTile kernels that watch files reach (TILEGYM=clone CUTILE=clone; with PyTorch, 30 minutes)
	@if [ ! -d "$(TILEGYM)" ] || [ ! -d "$(CUTILE)" ]; then \
		echo "bench-watch needs clones: make bench-watch TILEGYM=... CUTILE=... (github.com/NVIDIA/TileGym, .../cutile-python)"; exit 2; fi
	@$(BIN)/python -m benchmarks.watch_coverage --tilegym "$(TILEGYM)" --cutile "$(CUTILE)" $(ONLY_REPORT)

bench-dashboard: dev ## Measure the dashboard's queries and pages with a simulated year of a fleet (minutes, several GB)
	@$(BIN)/python -m benchmarks.dashboard $(ONLY_REPORT)

test-gpu: dev ## Run the tests that need an NVIDIA GPU
	@$(BIN)/pytest -m gpu

test-release: dev ## Run the tests that only a release needs: every kernel compiled on every problem for every architecture (3 minutes)
	@$(BIN)/pytest -m release

smoke-compose: dev ## Run docker compose once with all it can do (10 minutes; LOCAL=FOLDER where no container registry is reached)
	@$(BIN)/python -m tools.smoke.compose $(if $(LOCAL),--local "$(LOCAL)")

mutants: dev ## Draw faults from the modules that decide and count those that tests notice (SEED=1 COUNT=300; LISTED=1 for the lists)
	@$(BIN)/python -m tests.mutants.run $(if $(LISTED),,--drawn $(or $(COUNT),60) $(if $(SEED),--seed $(SEED))) $(ONLY_REPORT)

chaos: dev ## Kill workers and restart servers under 300 jobs, three times over, and count lost jobs (20 minutes)
	@for seed in 1 2 3; do $(BIN)/python -m benchmarks.jobs chaos --seed $$seed $(ONLY_REPORT) || exit 1; done

bench-jobs: dev ## Measure the cost of the queue and the database: a job, a trial, a full database (15 minutes, 6 GB of disk)
	@$(BIN)/python -m benchmarks.jobs overhead $(ONLY_REPORT)
	@$(BIN)/python -m benchmarks.storage rate $(ONLY_REPORT)
	@$(BIN)/python -m benchmarks.storage month $(ONLY_REPORT)

bench-judge: dev ## Score the judge on simulated histories: false alarms, recall, delay, replays (some half an hour; WORLDS=1 for less)
	@$(BIN)/python -m benchmarks.judge --worlds $(or $(WORLDS),3) $(ONLY_REPORT)

bench-tell: dev ## Measure the delay from a confirmed regression to its message, and a check for alarms (a minute)
	@$(BIN)/python -m benchmarks.notification_delay $(ONLY_REPORT)

bench-restore: dev ## Time the documented backup and restore of a database of 3 GB (10 minutes, 8 GB of disk)
	@$(BIN)/python -m benchmarks.restore $(ONLY_REPORT)

bench-scale: dev ## Measure queue, leases and connections with 1,000 simulated workers (10 minutes; WORKERS=200 GPUS=100 for less; PGBOUNCER=program)
	@$(BIN)/python -m benchmarks.scale --workers $(or $(WORKERS),1000) --gpus $(or $(GPUS),500) \
		$(if $(PGBOUNCER),--pgbouncer "$(PGBOUNCER)") $(ONLY_REPORT)

bench-toolchains: dev ## Score the comparison of toolchains on equal ones and on 12 with a planted fault (10 minutes; WHOLE=1 TIMES=5 for the whole library)
	@$(BIN)/python -m benchmarks.toolchains --times $(or $(TIMES),1) $(if $(WHOLE),--whole) $(ONLY_REPORT)

bench-tuned: dev ## Measure what tuned tables lose on other GPUs and problems, from recordings, and the time of a lookup (seconds)
	@$(BIN)/python -m benchmarks.tuned $(ONLY_REPORT)

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
