# Everything runs in .venv, which the first target that needs it builds from the hash-pinned lock files.
# Needed on the machine: Python 3.11 or newer, git and make. Nothing here needs an AWS account or Docker.

PYTHON ?= python3
# The sample event that `make invoke` sends.
EVENT ?= events/nightly.json
# The seeds that `make soak` plays: first:end, or one to replay.
SEEDS ?= 0:2000
# Further arguments: `make demo ARGS="--seed 7 --json"`, `make test ARGS="-k lease"`.
ARGS ?=

# The product's own environment, and a second one for the emulator and the SAM CLI, which bind other versions of botocore.
DEV := .venv/.installed
EMULATOR := .venv/emulator/.installed
# What the job is measured against, installed only for that.
BENCH := .venv/bench/.installed
# What `sam build` bundles, kept here so that the rehearsal needs no network.
WHEELS := .venv/wheels/.downloaded
UV_VERSION := 0.13.9

export SAM_CLI_TELEMETRY := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo picture local test sweep soak chaos rehearse check validate build invoke costs bench install lock clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEV) $(EMULATOR)  ## Play a killed, delayed, repeated and resumed night against the local emulator
	PYTHONPATH=src .venv/bin/python -m tools.demo $(ARGS)

picture: $(DEV) $(EMULATOR)  ## Draw docs/timeline.svg, the README's picture, from a run of the demo
	PYTHONPATH=src .venv/bin/python -m tools.demo --accounts 4000 --kill-after-range 36 --timeline docs/timeline.svg

test: $(DEV) $(EMULATOR) $(WHEELS)  ## Run the test suite, but for the rehearsal (ARGS="-k ...")
	.venv/bin/python -m pytest -n auto --dist worksteal --ignore=tests/rehearsal $(ARGS)

sweep: $(DEV)  ## Disturb every AWS call in every way, and write the figures into docs/guarantees.json (minutes)
	PYTHONPATH=src .venv/bin/python -m tests.sweep $(ARGS)

soak: $(DEV)  ## Interleave real workers in 2,000 seeded orders (SEEDS=17 to replay one), and keep the figures (minutes)
	PYTHONPATH=src .venv/bin/python -m tests.simulator --write $(SEEDS)

chaos: $(DEV) $(EMULATOR)  ## Race, freeze and kill real processes on a bad network, and keep the figures (minutes)
	PYTHONPATH=src .venv/bin/python -m tests.chaos $(ARGS)

rehearse: $(DEV) $(EMULATOR) $(WHEELS)  ## Deploy, kill, update, roll back and delete against the local emulator (needs python3.13, as sam build does)
	@.venv/bin/python -m tools.interpreter > /dev/null
	.venv/bin/python -m pytest tests/rehearsal $(ARGS)

check: $(DEV)  ## Lint, formatting and types
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy src tools tests bench

validate: $(EMULATOR)  ## Validate the template
	.venv/emulator/bin/sam validate --lint

build: $(DEV) $(EMULATOR)  ## Build the deployment package (needs python3.13, the version of the Lambda runtime)
	@found=$$(.venv/bin/python -m tools.interpreter) && PATH="$$found:$$PATH" .venv/emulator/bin/sam build

local: $(DEV) $(EMULATOR)  ## Keep an emulator with tables and accounts, for invoke and reconcilectl --local, until Ctrl-C
	@.venv/bin/python -m tools.local $(ARGS)

invoke: $(DEV) $(EMULATOR)  ## Run one sample event through the real handler (EVENT=events/tick.json)
	.venv/bin/python -m tools.invoke $(EVENT) $(ARGS)

costs: $(DEV) $(EMULATOR)  ## Compute what a stack costs a month (ARGS=--measure to run the measured nights again)
	@.venv/bin/python -m tools.costs $(ARGS)

bench: $(DEV) $(EMULATOR) $(BENCH)  ## Measure speed and memory against what else there is, for docs/performance.md (about an hour; ARGS=--resume goes on)
	PYTHONPATH=src .venv/bin/python -m bench $(ARGS)

install: $(DEV) $(EMULATOR) $(WHEELS)  ## Install everything that the other targets need, and stop

lock:  ## Write the lock files anew from pyproject.toml and the requirements-*.in (ARGS=--upgrade for newer versions)
	@mkdir -p .venv
	$(PYTHON) -m venv .venv/lock
	.venv/lock/bin/python -m pip install --quiet uv==$(UV_VERSION)
	.venv/lock/bin/uv pip compile $(LOCK_OPTIONS) $(ARGS) --extra dev pyproject.toml --output-file requirements-dev.lock
	.venv/lock/bin/uv pip compile $(LOCK_OPTIONS) $(ARGS) requirements-emulator.in --output-file requirements-emulator.lock
	.venv/lock/bin/uv pip compile $(LOCK_OPTIONS) $(ARGS) requirements-bench.in --constraint requirements-dev.lock --output-file requirements-bench.lock

LOCK_OPTIONS := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock"

clean:  ## Remove the environments, builds and caches
	rm -rf .venv .aws-sam .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment is complete when its stamp is there: an interrupted installation is started again. A lock lists every package,
# so nothing is left for pip to resolve (--no-deps).
define install_environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is not Python 3.11 or newer: try make PYTHON=python3.13" >&2; exit 1; }
@echo "Installing $< into $(@D) (only the first time)"
@$(PYTHON) -m venv $(@D)
@$(@D)/bin/python -m pip install -qq --no-compile --require-hashes --no-deps --requirement $<
@touch $@
endef

$(DEV): requirements-dev.lock
	$(install_environment)

$(EMULATOR): requirements-emulator.lock | $(DEV)
	$(install_environment)

$(BENCH): requirements-bench.lock | $(DEV)
	$(install_environment)

$(WHEELS): src/requirements.txt | $(DEV)
	@rm -rf $(@D)
	@.venv/bin/python -m pip download -qq --no-deps --only-binary :all: --requirement $< --dest $(@D)
	@touch $@
