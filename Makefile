# Ratchet's commands. `make demo` and `make test` work from a fresh clone on Debian 12.
#
#   make setup      .venv with Ratchet, Java, Delta's jars, Java's class archive
#   make demo       the whole story on private servers
#   make check      lint, types, and the quick tests of pure code: a minute or two
#   make test       lint, types and all tests but the long ones, on real servers
#   make test-long  the long tests
#   make fuzz       every parser of bytes from outside, FUZZ_SECONDS (300) each
#   make fuzz-sql   statements of a grammar on a real server, its mirror compared (FUZZ_SQL_ARGS: --server mysql --seed N ...)
#   make soak       a long run under load, with kills, its rows compared at the end (SOAK_ARGS: --hours H --tables N ...)
#   make faults     servers, lines, disks, clocks, processes and a cluster fail, one by one (FAULTS_ARGS: --only TEXT ...)
#   make mutants    each rule of order broken on purpose: a test must notice (MUTANTS: modules)
#   make bench      every benchmark
#   make bench-peers  what people would pick instead, in one run (PEERS_ARGS: --rows N ...)
#   make lint       ruff and mypy
#   make lock       write requirements*.txt anew from pyproject.toml
#   make sbom       ratchet.cdx.json: what Ratchet is made of, with digests (CycloneDX)
#   make clean      remove what the others made here (not the download cache)
#
# Each finished step leaves a stamp in .venv, so a repeated run takes no time. Downloads are kept
# in ~/.cache/ratchet (or $RATCHET_CACHE) and Ivy's and pip's own caches.

.DELETE_ON_ERROR:
.PHONY: setup dev servers demo check test test-long fuzz fuzz-sql soak faults mutants bench bench-peers lint \
	lock sbom clean help

VENV := .venv
PYTHON_BIN := $(VENV)/bin/python
STAMPS := $(VENV)/.stamps
PIP := $(PYTHON_BIN) -m pip --disable-pip-version-check --no-input -q
# --no-build-isolation: the one build tool is pinned like everything else.
INSTALL := $(PIP) install --no-build-isolation --use-pep517 --require-hashes
CHECKED := ratchet lab scripts bench $(wildcard tests/conftest.py tests/fix_*.py)
BENCHES := $(wildcard bench/*.py)
PYTEST_ARGS ?=
FUZZ_SECONDS ?= 300
FUZZ_TARGETS ?= all
FUZZ_SQL_ARGS ?= --server mariadb --seed 1 --statements 2000 --every 50
SOAK_ARGS ?=
FAULTS_ARGS ?=
PEERS_ARGS ?=
PEERS_VENV := $(or $(RATCHET_CACHE),$(HOME)/.cache/ratchet)/peers/venv
MUTANTS ?=
# Three workers, each with its own servers and its own Spark, as many tests wait (two cores). A file's
# tests stay together, and the files in their order: those that take longest (e2e, integration) come
# first. The long tests load the machine by themselves.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder
# The tests start well over a thousand processes. Without kept byte code, as some shells are set up,
# each of them would compile all modules again: half a second.
unexport PYTHONDONTWRITEBYTECODE

help:
	@sed -n 's/^#   \(make.*\)/\1/p' Makefile

setup: $(STAMPS)/project $(STAMPS)/jars $(STAMPS)/classes

dev: setup $(STAMPS)/dev

$(STAMPS)/venv: scripts/python.sh
	python=$$(sh scripts/python.sh) && "$$python" -m venv $(VENV)
	mkdir -p $(STAMPS) && touch $@

$(STAMPS)/runtime: requirements-build.txt requirements.txt $(STAMPS)/venv
	@echo "Installing the pinned packages (PySpark alone is some 400 MB) ..."
	$(INSTALL) -r requirements-build.txt
	$(INSTALL) -r requirements.txt
	touch $@

$(STAMPS)/project: pyproject.toml $(STAMPS)/runtime
	$(PIP) install --no-build-isolation --no-deps -e .
	touch $@

$(STAMPS)/dev: requirements-dev.txt $(STAMPS)/runtime
	$(INSTALL) -r requirements-dev.txt
	touch $@

$(STAMPS)/jars: scripts/fetch_jars.py $(STAMPS)/runtime
	$(PYTHON_BIN) -m lab.provision java
	@echo "Fetching Delta's jars ..."
	$(PYTHON_BIN) scripts/fetch_jars.py 2> $(STAMPS)/jars.log || { cat $(STAMPS)/jars.log; exit 1; }
	touch $@

# What halves the start of every command.
$(STAMPS)/classes: jobs/engine/classcache.py $(STAMPS)/project $(STAMPS)/jars
	@echo "Rehearsing with Spark once, so that it starts fast from now on (a minute; several on a busy machine) ..."
	$(PYTHON_BIN) -m ratchet.jobs.engine.classcache
	touch $@

servers: setup
	@echo "Finding MariaDB and MySQL, and building Vitess where there is Go (some minutes, once) ..."
	$(PYTHON_BIN) -m lab.provision mariadb new-mariadb mysql vitess

demo: setup
	$(PYTHON_BIN) -m lab.provision mariadb
	$(VENV)/bin/ratchet demo

lint: dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy $(CHECKED)

check: dev lint
	$(PYTHON_BIN) -m pytest -n 2 --dist loadfile -m "not long and not slow and not servers and not spark" \
		tests/unit tests/model $(PYTEST_ARGS)

test: dev servers lint
	$(PYTHON_BIN) -m pytest $(PARALLEL) -m "not long" $(PYTEST_ARGS)

test-long: dev servers
	$(PYTHON_BIN) -m pytest -m long $(PYTEST_ARGS)

fuzz: dev
	$(PYTHON_BIN) -m tests.fuzz $(FUZZ_TARGETS) --seconds $(FUZZ_SECONDS)

fuzz-sql: dev servers
	$(PYTHON_BIN) -m tests.fuzz_sql $(FUZZ_SQL_ARGS)

soak: dev servers
	$(PYTHON_BIN) -m bench.soak $(SOAK_ARGS)

faults: dev servers
	$(PYTHON_BIN) -m bench.faults $(FAULTS_ARGS)

mutants: dev
	$(PYTHON_BIN) scripts/mutate.py $(MUTANTS)

bench: dev servers
	@test -n "$(BENCHES)" || { echo "no benchmark in bench/"; exit 1; }
	@set -e; for program in $(BENCHES); do echo "== $$program"; $(PYTHON_BIN) $$program; done

# An environment of their own: what they need is none of Ratchet's business.
$(PEERS_VENV)/.stamp: bench/peers/requirements.txt scripts/python.sh
	python=$$(sh scripts/python.sh) && "$$python" -m venv $(PEERS_VENV)
	@echo "Installing the peers' pinned packages ..."
	$(PEERS_VENV)/bin/python -m pip --disable-pip-version-check --no-input -q install -r $<
	touch $@

bench-peers: setup $(PEERS_VENV)/.stamp
	$(PYTHON_BIN) -m lab.provision mariadb
	@echo "Fetching the peers' jars (300 MB, once) ..."
	$(PYTHON_BIN) -m bench.peers.sparkpeer
	-$(PYTHON_BIN) -m bench.peers.java_peers.prepare
	$(PYTHON_BIN) -m bench.peers $(PEERS_ARGS)

sbom: dev
	$(PYTHON_BIN) scripts/bill_of_materials.py --output ratchet.cdx.json

lock: $(STAMPS)/venv requirements-dev.txt
	$(INSTALL) -r requirements-dev.txt
	sh scripts/lock.sh $(VENV)/bin/pip-compile

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
