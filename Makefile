# Everything starts from Debian's python3 and make; the rest is fetched or built once and kept in ~/.cache/draftmill.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
DEV := PYTHONPATH=dev $(PYTHON) -m draftmill_dev
BIN := .venv/bin

# Tests start many Pythons: each would compile all of its imports again where the environment forbids to keep that.
export PYTHONDONTWRITEBYTECODE :=

##@ Try it
.PHONY: demo
demo: ## A SynthRun from `kubectl apply` to a finished dataset, on a real Kubernetes on this machine (CLUSTER=current: on yours)
	@$(DEV) demo $(if $(CLUSTER),--cluster "$(CLUSTER)") $(if $(IMG_PREFIX),--image-prefix "$(IMG_PREFIX)") $(if $(STORAGE_CLASS),--storage-class "$(STORAGE_CLASS)")

.PHONY: demo-pipeline
demo-pipeline: ## Three runs on that Kubernetes: prompts, answers, hidden states, a drafter that is measured at work
	@$(DEV) demo-pipeline

##@ The local Kubernetes
.PHONY: cluster-up cluster-down cluster-status
cluster-up: ## Start it, or repair it
	@$(DEV) cluster-up

cluster-down: ## Stop it; nothing of it stays but what was built
	@$(DEV) cluster-down

cluster-status: ## Say whether it runs, and how to use it
	@$(DEV) cluster-status

##@ Test
.PHONY: test test-unit test-jobs test-api test-e2e test-life test-chaos lint bench bench-generator bench-resume bench-tail bench-cluster bench-extract bench-train
test: venv ## All tests but the two below; starts what they need (needs root)
	@failed=0; \
	$(MAKE) --no-print-directory test-unit || failed=1; \
	$(BIN)/pytest --numprocesses 2 --dist loadfile tests/jobs tests/api || failed=1; \
	$(BIN)/pytest --numprocesses 2 --dist loadscope tests/chart tests/e2e || failed=1; \
	exit $$failed

test-unit: venv ## Tests without any service, three at a time: less than a minute
	@$(BIN)/pytest --numprocesses 3 --dist worksteal tests/unit

test-jobs: venv ## Tests of jobs at work: whole workers, kills, training
	@$(BIN)/pytest --numprocesses 2 --dist worksteal tests/jobs

test-api: venv ## Tests against a real control plane
	@$(BIN)/pytest tests/api

test-e2e: venv ## Tests on a real node with a real model server (needs root)
	@$(BIN)/pytest --numprocesses 2 --dist loadscope tests/chart tests/e2e

test-life: venv ## Long ways: a run lives through everything, two are applied together, the demo twice, prompts become a drafter: an hour (needs root)
	@$(BIN)/pytest -m life tests/chaos

test-chaos: venv ## The killing tests, five times over (needs root)
	@$(BIN)/pytest -m chaos tests/chaos

lint: venv ## Style, types, import rules, generated files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@PYTHONPATH=dev $(BIN)/python -m draftmill_dev.generate --check

bench: bench-generator bench-resume bench-tail bench-cluster bench-extract bench-train ## All benchmarks

bench-generator: venv ## The generator beside datatrove, a bare loop and vLLM's own benchmark; memory, CPU for a request
	@$(BIN)/python benchmarks/generator.py

bench-resume: venv ## Going on where a million records end: seconds and memory
	@$(BIN)/python benchmarks/resume.py

bench-tail: venv ## Places that stand idle while the last answers come, by the order of the rows
	@$(BIN)/python benchmarks/tail.py

bench-train: venv ## Speed of training beside SpecForge, speculators and a plain loop
	@$(BIN)/python benchmarks/train.py

bench-cluster: venv ## Seconds until a control plane, and a cluster that runs already, can be used
	@PYTHONPATH=dev $(BIN)/python benchmarks/cluster.py

bench-extract: venv ## The store of hidden states beside the disk and the memory under it, extraction beside prefill
	@$(BIN)/python benchmarks/extract_store.py; store=$$?; $(BIN)/python benchmarks/extract_run.py && exit $$store

##@ Make
.PHONY: generate requirements images venv clean help
generate: venv ## Write crds/, the chart's CRDs and docs/reference from the API types
	@PYTHONPATH=dev $(BIN)/python -m draftmill_dev.generate

requirements: ## Resolve requirements/*.txt anew, with hashes
	@$(DEV) requirements

images: ## Build the container images
	@$(DEV) images

venv: ## Make .venv for tests and tools
	@$(DEV) venv

clean: ## Remove what was made in this checkout (not ~/.cache/draftmill)
	@rm -rf .venv .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
