# Two commands matter to a newcomer: `make quickstart` and `make test`. `make help` lists all.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

# Any Python 3.11 or newer.
PYTHON ?= python3
# Installed before anything that depends on it, so that no resolver pulls in another build. Without an NVIDIA
# GPU it must be a CPU build (a CUDA build is some 3 GB): `+cpu` if the configured index has it, else the plain
# version if that needs no CUDA packages, else a stop with advice. pip options may follow the version.
TORCH ?= torch==2.13.0
# More arguments for pytest, e.g. `make pytest ARGS='-m "not slurm" -x'`.
ARGS ?=
# Processes for the tests, whatever the machine: two do those that need a cluster, which mostly wait, and two the
# rest meanwhile (tests/conftest.py). With more the clusters would take as long, and this may be a login node.
WORKERS ?= 4

# The tests start thousands of Pythons: each would compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
SOURCES := jobspec launchers runtime tests benchmarks examples
SHELL_SCRIPTS := .ci/run .ci/debian-packages $(wildcard tests/slurm/*.sh)
SERVER := .cache/language-server
CLUSTER := $(BIN)/python -m tests.slurm.cluster

.PHONY: help quickstart test check lint format types contracts shellcheck pytest coverage nightly packages \
        language-server cluster cluster-stop bench site man clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

quickstart: $(VENV)/.local ## train a tiny model on this machine and judge the run (2 minutes after downloads)
	if ! command -v g++ >/dev/null; then .ci/debian-packages compiler; fi
	$(BIN)/python examples/make_tiny_model.py
	$(BIN)/jobspec run examples/quickstart.yaml

test: packages check language-server pytest ## everything CI runs; as root on Debian it installs the packages it needs

check: lint types contracts shellcheck ## what needs no test run

lint: $(VENV)/.dev ## ruff: rules and format
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

format: $(VENV)/.dev ## ruff, rewriting files
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

# setuptools' `package-dir` maps launchers/ and runtime/ into the package `jobspec`; an editable install
# hides that from tools that read folders. They get a copy laid out as it is installed.
define TREE
rm -rf .cache/tree
mkdir -p .cache/tree
cp -R jobspec .cache/tree/
cp -R launchers runtime templates clusters .cache/tree/jobspec/
endef

types: $(VENV)/.dev ## mypy --strict over jobspec, launchers and runtime
	$(TREE)
	MYPYPATH=.cache/tree $(BIN)/mypy --cache-dir .cache/mypy -p jobspec \
	  | sed -E 's#^\.cache/tree/jobspec/(launchers|runtime|templates|clusters)/#\1/#; s#^\.cache/tree/##'

contracts: $(VENV)/.dev ## import-linter: which part may import which
	$(TREE)
	# From inside the copy: lint-imports looks into the current folder first.
	cd .cache/tree
	PYTHONPATH=. $(CURDIR)/$(BIN)/lint-imports --no-cache --config $(CURDIR)/.importlinter

shellcheck: ## shell scripts of this repository (rendered ones are checked by the tests)
	if command -v shellcheck >/dev/null; then shellcheck $(SHELL_SCRIPTS); else echo "shellcheck: not installed, skipped"; fi

pytest: $(VENV)/.dev ## the tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder --durations=10 $(ARGS)

coverage: override ARGS += --cov --cov-report=term:skip-covered
coverage: pytest ## the tests with a coverage figure; takes twice as long

nightly: override ARGS += --nightly
nightly: coverage ## that with more tries and examples: for a timer, not for each commit

# Only with npm: without it the tests of the editor's view are skipped here, and fail in CI.
language-server: ## the YAML language server that tests check the job schema with, in .cache; takes npm
	if ! command -v npm >/dev/null; then echo "npm: not installed, no language server"; exit 0; fi
	if cmp -s tests/spec/language_server/package-lock.json $(SERVER)/installed; then exit 0; fi
	mkdir -p $(SERVER)
	cp tests/spec/language_server/* $(SERVER)
	npm ci --prefix $(SERVER) --ignore-scripts --no-audit --no-fund
	cp $(SERVER)/package-lock.json $(SERVER)/installed

packages: ## Debian packages for the tests (as root; elsewhere it names what will be skipped)
	.ci/debian-packages

cluster: $(VENV)/.local ## a real 4-node Slurm cluster on this machine (root on Debian)
	$(CLUSTER) start
	@echo "try: $(CLUSTER) in ctl sinfo"
	echo "     $(CLUSTER) in ctl jobspec run --cluster lab $(CURDIR)/examples/quickstart.yaml"

cluster-stop: ## end it; nothing is left behind
	$(CLUSTER) stop

bench: $(VENV)/.dev ## the figures of the README: command line speed, Ray bring-up on the test cluster; pages in Chromium
	$(BIN)/python benchmarks/cli.py
	$(BIN)/python benchmarks/bringup.py
	$(BIN)/python benchmarks/page.py

site: $(VENV)/.dev ## the documentation as a site, in .cache/site, with llms.txt and each page's Markdown; needs no network
	$(BIN)/zensical build --strict
	$(BIN)/python -m jobspec.reference.machine_pages

man: $(VENV)/.dev ## the manual page, docs/jobspec.1: wheels have it, here `man -l docs/jobspec.1` shows it
	$(BIN)/python -m jobspec.reference.man > docs/jobspec.1

clean: ## caches and build output; runs and .venv stay
	rm -rf .cache build dist *.egg-info .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	find jobspec launchers runtime templates clusters tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/bin/python:
	if ! $(PYTHON) -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))'; then
	  echo "$(PYTHON) must be Python 3.11 or newer with venv; name another by PYTHON=, on Debian 12 install python3-venv" >&2
	  exit 1
	fi
	$(PYTHON) -m venv $(VENV)

$(VENV)/.local: $(VENV)/bin/python pyproject.toml
	pip=$(BIN)/pip
	if [[ $$(uname -s) != Linux ]] || nvidia-smi -L >/dev/null 2>&1; then
	  $$pip install -q $(TORCH)
	elif ! $$pip install -q $(firstword $(TORCH))+cpu 2>/dev/null; then
	  if $$pip install -q --dry-run --report - $(TORCH) | grep -q '"name": "nvidia-'; then
	    echo "your package index has only a CUDA build of torch, and there is no GPU here:" \
	      "run make TORCH='$(firstword $(TORCH)) --index-url URL' with the URL of PyTorch's CPU wheels" >&2
	    exit 1
	  fi
	  $$pip install -q $(TORCH)
	fi
	$(BIN)/pip install -q -e '.[local]'
	touch $@

$(VENV)/.dev: $(VENV)/.local
	$(BIN)/pip install -q -e '.[local,dev]'
	touch $@
