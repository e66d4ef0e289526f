# The only list of commands. Every target prepares .venv first when the lock files changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
DEMO_DIR ?= .mitosis/demo
UP_DIR ?= .mitosis/up
PYTEST_ARGS ?=
# Each process starts stores of its own; a file stays in one process, so that its fixtures are shared.
# Files come in the order of tests/conftest.py, the long ones first.
TEST_PROCESSES ?= 3
PYTEST := $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --durations=25

.DEFAULT_GOAL := help
.PHONY: help setup demo up down test e2e check fmt schema docs bench chaos lock release release-check audit clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create or update .venv from the lock file

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Mitosis needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	  || { echo "Could not create $(VENV); on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "Installing the locked packages into $(VENV) (a minute the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP) ## start everything, show it at work, stop it
	@$(BIN)/python -m mitosis_stack.demo --data-dir $(DEMO_DIR)

up: $(STAMP) ## run the stack in the foreground; Ctrl-C stops it
	@exec $(BIN)/mitosis up --data-dir $(UP_DIR)

down: $(STAMP) ## stop a stack that runs in the background
	@$(BIN)/mitosis down --data-dir $(UP_DIR)

test: $(STAMP) ## the whole test suite on real PostgreSQL, Valkey, S3 and a browser
	@$(BIN)/python -m tests.browser_setup
	@$(BIN)/python -m tests.promtool_setup
	@$(BIN)/python -m tests.debian_setup
	@$(PYTEST) $(PYTEST_ARGS)

e2e: $(STAMP) ## only the tests that start real processes
	@$(BIN)/python -m tests.browser_setup
	@$(BIN)/python -m tests.debian_setup
	@$(PYTEST) -m "e2e or browser" $(PYTEST_ARGS)

check: $(STAMP) ## ruff, mypy, import contracts, migrations, schema drift
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/lint-imports
	$(BIN)/mypy
	# Without a database only the history check is impossible; the warning about that is noise.
	MITOSIS_LOG_LEVEL=ERROR $(BIN)/python -W ignore manage.py makemigrations --check --dry-run --settings mitosis_site.settings.test
	$(BIN)/python manage.py check --settings mitosis_site.settings.test
	$(BIN)/python -m mitosis_protocol.schema --check
	MITOSIS_LOG_LEVEL=ERROR $(BIN)/python -W ignore manage.py spectacular --validate --fail-on-warn --file /dev/null --settings mitosis_site.settings.test

fmt: $(STAMP) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

schema: $(STAMP) ## write docs/protocol and the state diagrams
	$(BIN)/python -m mitosis_protocol.schema
	$(BIN)/python -m tests.architecture.state_diagrams

docs: $(STAMP) ## the documentation as a site in site/, offline, warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: $(STAMP) ## measure ours, the machine's limit and the peers in one run; BENCH=name for one
	@$(BIN)/python -m benchmarks $(BENCH)

chaos: $(STAMP) ## the long fault-injection run
	@$(BIN)/python -m tests.chaos

# One resolution for all: the smaller files are constrained by the largest.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
LOCK := $(COMPILE) pyproject.toml
PEER_LOCKS := $(patsubst %.in,%.txt,$(wildcard benchmarks/peers/requirements/*.in))
lock: $(STAMP) ## resolve the dependencies again
	$(LOCK) --all-extras -o requirements/dev.txt
	$(LOCK) -c requirements/dev.txt -o requirements/agent.txt
	$(LOCK) -c requirements/dev.txt --extra server -o requirements/server.txt
	$(LOCK) -c requirements/dev.txt --extra server --extra embedded -o requirements/embedded.txt
	# Peers of the benchmarks live in environments of their own.
	for lock in $(PEER_LOCKS); do $(COMPILE) $${lock%.txt}.in -o $$lock || exit 1; done

release: $(STAMP) ## wheel and sdist in dist/
	@$(BIN)/python -m build --no-isolation

release-check: $(STAMP) ## the wheel in a clean environment runs a stack, an agent and a suite
	@$(BIN)/python -m tests.release.check_wheel

audit: $(STAMP) ## known vulnerabilities and licences of what an installation brings along
	@$(BIN)/python -m tests.release.licences
	@$(BIN)/pip-audit --strict --require-hashes --disable-pip --requirement requirements/embedded.txt

clean: ## remove .venv and the demo's data (not the data of `make up`)
	rm -rf $(VENV) $(DEMO_DIR)
