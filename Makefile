# Two commands matter to a newcomer: `make demo` and `make test`. Both set up what they need.

PYTHON ?= python3
VENV := .venv/bin
SOURCES := daemon schemas tests
# Another interpreter makes another environment.
INSTALLED := .venv/.installed-by-$(subst /,-,$(PYTHON))

.DEFAULT_GOAL := help
# Set-up steps may both call apt-get.
.NOTPARALLEL:
.PHONY: help setup rabbitmq demo test lint format bench bench-cosyvoice chaos soak soak-cosyvoice audit sbom clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 18

demo: setup ## speak two sentences through a private RabbitMQ and S3 server
	@$(VENV)/python -m utterd demo

test: lint ## lint, check types, run every test
	$(VENV)/python -m pytest --numprocesses 2 --dist loadfile --durations=10

lint: setup ## ruff and mypy
	$(VENV)/ruff check $(SOURCES)
	$(VENV)/ruff format --check $(SOURCES)
	$(VENV)/mypy

format: setup ## let ruff fix and format the code
	$(VENV)/ruff check --fix $(SOURCES)
	$(VENV)/ruff format $(SOURCES)

bench: setup ## measure; writes docs/performance.md
	$(VENV)/python tests/bench/run.py

bench-cosyvoice: setup ## measure CosyVoice at full size on random weights; takes some minutes
	PYTHONPATH=tests $(VENV)/python tests/bench/cosyvoice.py

chaos: CHAOS_SEED ?= $(shell date +%s)
chaos: setup ## 500 jobs through a random schedule of faults (CHAOS_SEED=... repeats one)
	CHAOS_JOBS=500 CHAOS_SEED=$(CHAOS_SEED) $(VENV)/python -m pytest tests/chaos

soak: setup ## 5,000 jobs through one daemon; fails when anything leaks
	PYTHONPATH=tests $(VENV)/python -m chaos.soak

soak-cosyvoice: setup ## 2,000 segments through CosyVoice at full size; fails when memory grows
	PYTHONPATH=tests $(VENV)/python tests/bench/cosyvoice_memory.py

setup: rabbitmq $(INSTALLED) ## virtual environment and RabbitMQ (PYTHON=... chooses the interpreter)

$(INSTALLED): pyproject.toml constraints.txt .ci/setup-python
	@.ci/setup-python "$(PYTHON)"
	@touch $@

rabbitmq:
	@test -x /usr/lib/rabbitmq/bin/rabbitmq-server || command -v rabbitmq-server >/dev/null \
		|| .ci/apt-install rabbitmq-server

audit: setup ## known vulnerabilities of the pinned packages
	@$(VENV)/python .ci/audit

sbom: setup ## dist/sbom.json: what an installation holds, in CycloneDX
	$(VENV)/pip install --quiet cyclonedx-bom
	@rm -rf dist/installed && mkdir -p dist && $(VENV)/python -m venv dist/installed
	dist/installed/bin/pip install --quiet --constraint constraints.txt .
	$(VENV)/cyclonedx-py environment dist/installed --pyproject pyproject.toml --output-file dist/sbom.json

clean: ## remove the environment, the sandbox's data, caches and builds
	rm -rf .venv .sandbox .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
