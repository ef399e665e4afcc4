# Everything a checkout needs: Python 3.10+ and Java 17+; the rest is set up here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
KAFKA_VERSION ?= 4.3.1
# Most tests wait for brokers, not for processors.
WORKERS ?= 3

.PHONY: demo test check bench soak kafka-image clean help

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' $(MAKEFILE_LIST)

$(READY): pyproject.toml scripts/require.sh
	@sh scripts/require.sh $(PYTHON)
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "installing eos-client and its tools into $(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY) ## the main job on a real embedded Kafka, with a verdict
	@$(BIN)/eos-client demo $(DEMO)

test: $(READY) ## all tests, on real Kafka
	@$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile $(TESTS)

check: $(READY) ## ruff, mypy, pyright, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pyright
	@$(BIN)/lint-imports

bench: $(READY) ## every figure the docs claim, as tables
	@$(BIN)/python -m tests.benchmarks $(BENCH)

soak: $(READY) ## 60 s of faults for each broker version and protocol
	@$(BIN)/python tests/verification/soak.py $(SOAK)

kafka-image: $(READY) ## build the broker image where no registry has it
	@PYTHON=$(BIN)/python scripts/kafka_image.sh $(KAFKA_VERSION)

clean: ## remove what make has made, but for the downloaded brokers
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .runs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
