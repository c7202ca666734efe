# One command each. Needed: make, and Python 3.11 or newer with its venv module.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?=
UV ?= uv
# Tests of the networks need torch and are slow tests. DEEP=0 leaves it out and skips them.
DEEP ?= 1

# Byte code is left to the first import: most of it is never needed, and it is half of the time of an installation.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check --quiet install --no-compile
LOCKING := --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command "make lock" \
	--extra parquet --group build
LOCK := $(UV) pip compile pyproject.toml $(LOCKING)
LOCK_SITES := $(UV) pip compile pyproject.toml sites/pyproject.toml $(LOCKING) --no-emit-package multicentre

CREATED := $(VENV)/created.stamp
CORE := $(VENV)/core.stamp
TOOLS := $(VENV)/tools.stamp
TORCH := $(VENV)/torch.stamp
FLOWER := $(VENV)/flower.stamp
MUTATION := $(VENV)/mutation.stamp
DOCS := $(VENV)/docs.stamp
# Packages to compare with are in an environment on top of the locked one, which they leave as it is.
PEERS := $(VENV)/peers
BENCH := $(VENV)/bench.stamp
NETWORKS := $(if $(filter 0,$(DEEP)),,$(TORCH))

# The matrices of tests are small: more threads would slow them down.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
# Files, not single tests, are dealt to the workers, so that what a file starts is started once.
WORKERS := --numprocesses auto --dist loadfile
KERNELS := $(wildcard tests/unit/*/kernels)
PAPERS := $(VENV)/papers.stamp
SITES := $(VENV)/sites.stamp

# Byte code is kept for the next run, and for the many processes that tests start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo consortium dissolve test test-all test-rest test-exhaustive soak mutate bench docs check \
	lint types imports format wheel dossier lock clean
.NOTPARALLEL:

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' Makefile

demo: $(CORE) ## six simulated hospitals: Table 1, survival curves, tests, Cox and logistic regression, a report
	@$(BIN)/multicentre demo

consortium: $(FLOWER) ## a coordinator and three hospitals as processes of this machine, and a study over them (minutes)
	@$(BIN)/python examples/consortium/consortium.py up

dissolve: ## end the processes of `make consortium`; ledgers and report only go where that is confirmed, or with YES=1
	@if [ -x $(BIN)/python ]; then $(BIN)/python examples/consortium/consortium.py down $(if $(YES),--delete); \
	else echo "Nothing to end: there is no $(VENV)."; fi

test: lint imports ## all checks, then the quick tests
	@# Types take one processor and the compilation of kernels another: side by side, before the workers need both.
	@$(BIN)/mypy & $(PYTEST) -q $(KERNELS); kernels=$$?; wait $$! && exit $$kernels
	$(PYTEST) $(WORKERS) -m "not slow" $(addprefix --ignore=,$(KERNELS))

test-all: test test-rest ## everything

test-rest: $(NETWORKS) $(TOOLS) ## what make test leaves out: slow tests, more examples, docstrings (DEEP=0: without torch)
	$(PYTEST) $(WORKERS) --hypothesis-profile=full -m "slow or hypothesis" --durations=20
	$(PYTEST) $(WORKERS) --doctest-modules src papers/src sites/src

test-exhaustive: $(NETWORKS) $(TOOLS) ## slow tests of contracts in every combination, of which make test-rest runs a part (hours)
	$(PYTEST) $(WORKERS) --every-combination -m "slow" tests/contracts tests/guarantees

soak: $(FLOWER) ## 10,000 rounds over three processes with losses and restarts, then 600 over Flower: nothing may grow (an hour)
	$(BIN)/python benchmarks/soak.py --flower 600 --json benchmarks/results/soak.json

mutate: $(MUTATION) ## mutation testing of PACKAGE=core or PACKAGE=privacy (long; ONLY='*terms*', SAMPLE=100, JOBS=2)
	@OMP_NUM_THREADS=1 $(BIN)/python tests/mutation/mutate.py $(or $(PACKAGE),core) \
		$(if $(ONLY),--only '$(ONLY)') $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(JOBS),--jobs $(JOBS))

bench: $(BENCH) ## times beside other packages, into benchmarks/results and docs/benchmarks.md (about 12 min; QUICK=1: 90 s)
	@$(PEERS)/bin/python benchmarks/run.py $(if $(QUICK),--quick)

docs: $(DOCS) ## the website in build/docs, with every warning an error (minutes); open build/docs/index.html
	@$(BIN)/python docs/build.py

check: lint types imports ## lint, types and imports

lint: $(TOOLS) ## style and format
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet

types: $(TOOLS) ## static types
	$(BIN)/mypy

imports: $(TOOLS) ## check that packages import only the layers below them
	$(BIN)/lint-imports --no-logo

format: $(TOOLS) ## apply ruff's fixes and formatting
	$(BIN)/ruff check --quiet --fix
	$(BIN)/ruff format --quiet

wheel: $(CORE) ## build sdists and wheels into dist; install and try them on each of PYTHONS (newest dependencies, minutes)
	@$(BIN)/python deploy/try_wheel.py dist $(PYTHONS)

dossier: $(TOOLS) ## run all comparisons with oracles and write docs/validation.md (minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/oracles --dossier docs/validation.json
	$(BIN)/python docs/validation.py

lock: ## resolve the locked dependencies anew (needs uv; UPGRADE=--upgrade takes newer versions)
	$(LOCK_SITES) $(UPGRADE) --extra boost --extra polars --extra dp --extra codes --extra word \
		--group test --group torch-needs --output-file requirements/test.lock
	$(LOCK) $(UPGRADE) --constraint requirements/test.lock --output-file requirements/core.lock
	$(LOCK_SITES) $(UPGRADE) --constraint requirements/test.lock --output-file requirements/flower.lock
	$(LOCK_SITES) $(UPGRADE) --extra boost --extra bench --group test \
		--constraint requirements/test.lock --output-file requirements/bench.lock
	$(LOCK) $(UPGRADE) --group mutation --constraint requirements/test.lock --output-file requirements/mutation.lock
	$(LOCK) $(UPGRADE) --group docs --constraint requirements/test.lock --output-file requirements/docs.lock

clean: YES := 1
clean: dissolve ## remove the environment, every cache, dist, and build with what is in it, ledgers included
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(CREATED):
	@recent=no; for candidate in "$(PYTHON)" python3.13 python3.12 python3.11 python3; do \
		if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			recent=yes; \
			if "$$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
				echo "Creating $(VENV) with $$candidate"; \
				"$$candidate" -m venv $(VENV) && touch $@; exit; \
			fi; \
		fi; \
	done; \
	if [ "$$recent" = yes ]; then \
		echo "Python is recent enough but comes without venv: install it (Debian, Ubuntu: apt install python3-venv)." >&2; \
	else \
		echo "Python 3.11 or newer is needed and none was found. Name one: make PYTHON=/path/to/python3" >&2; \
	fi; \
	exit 1

$(CORE): requirements/core.lock pyproject.toml | $(CREATED)
	@echo "Installing the package and its locked dependencies into $(VENV) (once; about half a minute)"
	@$(INSTALL) --no-deps --require-hashes -r requirements/core.lock
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(PAPERS): papers/pyproject.toml $(CORE)
	@echo "Installing the reproductions of the papers into $(VENV)"
	@$(INSTALL) --no-deps --no-build-isolation --editable papers
	@touch $@

$(SITES): sites/pyproject.toml $(CORE)
	@echo "Installing the distribution for real sites into $(VENV)"
	@$(INSTALL) --no-deps --no-build-isolation --editable sites
	@touch $@

$(TOOLS): requirements/test.lock $(PAPERS) $(SITES)
	@echo "Installing the locked test tools into $(VENV) (once; about a minute)"
	@$(INSTALL) --no-deps --require-hashes -r requirements/test.lock
	@touch $@

$(FLOWER): requirements/flower.lock $(SITES)
	@echo "Installing Flower into $(VENV) (once; about half a minute)"
	@$(INSTALL) --no-deps --require-hashes -r requirements/flower.lock
	@touch $@

$(MUTATION): requirements/mutation.lock $(TOOLS)
	@echo "Installing mutmut into $(VENV) (once)"
	@$(INSTALL) --no-deps --require-hashes -r requirements/mutation.lock
	@touch $@

$(BENCH): requirements/bench.lock $(TOOLS)
	@echo "Installing the packages to compare with into $(PEERS) (once; about a minute)"
	@$(BIN)/python -m venv $(PEERS)
	@# With byte code: processes of ray give up where imports take long.
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> $$($(PEERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/locked.pth
	@$(PEERS)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --require-hashes \
		-r requirements/bench.lock
	@touch $@

$(DOCS): requirements/docs.lock $(TOOLS)
	@echo "Installing Sphinx and its extensions into $(VENV) (once; about half a minute)"
	@$(INSTALL) --no-deps --require-hashes -r requirements/docs.lock
	@touch $@

$(TORCH): requirements/deep.txt $(TOOLS)
	@echo "Installing torch into $(VENV) (once; DEEP=0 leaves it out)"
	@$(INSTALL) -r requirements/deep.txt
	@touch $@
