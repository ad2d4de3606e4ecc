# Everything a developer or a newcomer runs, and what CI runs. `make` alone lists the targets.
# Nothing here asks a question, needs a terminal, or needs HOME.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
TORCH ?= torch==2.13.0
WIRE_BASE ?= HEAD
MINUTES ?= 5
SEED ?=
BIN := $(CURDIR)/.venv/bin
STAMP := .venv/.installed
PROTOC := PATH="$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -I proto
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export DO_NOT_TRACK := 1
# Where it is set, each of the hundreds of processes that the tests start compiles the packages anew: a third of their
# CPU time (user s of test_ends.py and test_interrupted.py: 13.6, without it 8.7).
unexport PYTHONDONTWRITEBYTECODE
# pip, pyright and hypothesis keep caches under HOME; a service account may have none.
ifeq ($(strip $(HOME)),)
export HOME := $(CURDIR)/build/home
endif

.PHONY: help install format lint types deploy-check test test-slow test-clickhouse test-gpu chaos coverage bench bench-peers proto up demo clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

install: $(STAMP) ## make .venv with everything: the tiers, the embedded store, torch, the checks

# torch goes first, alone: its version decides which build comes, and a dependency of ours must not.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"rankscope needs Python 3.11 or newer and $(PYTHON) is {v.major}.{v.minor}: make PYTHON=/path/to/python3.11")'
	@echo "installing into .venv: a few minutes the first time"
	@mkdir -p build
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet "$(TORCH)"
	@$(BIN)/python -m pip install --quiet --editable '.[all,dev]'
	@touch $@

format: install ## put imports and layout in order
	$(BIN)/ruff check --fix-only --quiet . && $(BIN)/ruff format --quiet .

lint: install types deploy-check ## every check that runs nothing: style, types, layers, wire, deployment files
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/buf lint proto && $(BIN)/buf breaking proto --against '.git#ref=$(WIRE_BASE),subdir=proto'
	$(BIN)/shellcheck .ci/run

types: install ## pyright strict over source and tests, mypy over a program that uses the SDK
	$(BIN)/pyright --pythonpath $(BIN)/python --warnings
	$(BIN)/mypy

deploy-check: install ## Dockerfile and compose file, without a Docker engine
	$(BIN)/hadolint deploy/Dockerfile
	"$$($(BIN)/python -c 'import compose, pathlib; print(pathlib.Path(compose.__file__).with_name("docker-compose"))')" -f deploy/compose.yaml config --quiet

test: install lint ## lint, then the default tests in random order, four files at a time
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder --cov --cov-report= -m 'not slow and not chaos and not bench and not clickhouse and not gpu' $(PYTEST_ARGS)
	$(BIN)/coverage report --format=total

test-slow: install ## what takes minutes
	$(BIN)/pytest -m slow $(PYTEST_ARGS)

test-clickhouse: install ## the store's tests against the server at RANKSCOPE_TEST_CLICKHOUSE_URL
	: "$${RANKSCOPE_TEST_CLICKHOUSE_URL:?name a ClickHouse server, for example http://default:@127.0.0.1:8123}"
	$(BIN)/pytest -m clickhouse $(PYTEST_ARGS)

test-gpu: install ## what only a CUDA device shows; without one, each test says why it does not run
	$(BIN)/pytest -m gpu $(PYTEST_ARGS)

chaos: install ## kill, cut and empty while data flows, then the defects that must be found (MINUTES=5 SEED=7)
	CHAOS_MINUTES="$(MINUTES)" CHAOS_SEED="$(SEED)" $(BIN)/pytest -m chaos -p no:randomly -o faulthandler_timeout=0 $(PYTEST_ARGS)

coverage: install ## the lines no default test runs, after `make test`
	$(BIN)/coverage report

bench: install ## measure, write build/bench.json, print a table
	$(BIN)/pytest -m bench -p no:randomly -s $(PYTEST_ARGS)

# In an environment of its own: the peers ask for another protobuf than our floor.
bench-peers: install ## what wandb, TensorBoard and .item() hooks add to a step beside us
	@test -x build/peers/bin/python || $(PYTHON) -m venv build/peers
	@build/peers/bin/python -m pip install --quiet "$(TORCH)"
	@build/peers/bin/python -m pip install --quiet --editable '.[torch]' wandb tensorboard
	build/peers/bin/python -m tests.bench.peers

proto: install ## render the contract from columns.py, run protoc; git shows what changed
	$(BIN)/python -m rankscope_proto.render
	$(PROTOC) --python_out=proto --mypy_out=quiet:proto proto/rankscope_proto/v1/*.proto
	$(PROTOC) --grpc_python_out=proto --mypy_grpc_out=quiet:proto proto/rankscope_proto/v1/ingest.proto
	git --no-pager diff --stat -- proto

up: install ## start everything with embedded defaults
	$(BIN)/rankscope up $(UP_ARGS)

demo: install ## train 4 ranks for real and find what went wrong (DEMO_ARGS="--exit --seed 7")
	@$(BIN)/rankscope demo $(DEMO_ARGS)

clean: ## remove what the targets made, .venv included
	rm -rf .venv build dist .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
