# What people type; CONTRIBUTING.md has the longer commands. A checkout needs Python 3.10+ and, for what runs a broker,
# Java 17; the rest is set up here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# An environment of its own: Quix Streams requires an older confluent-kafka.
PEERS := .runs/bench-peers
PEERS_READY := $(PEERS)/.ready
# The pages are made from the sources, not from an installed package: neither Spark nor the tools of the tests are needed.
DOCS := .runs/docs
DOCS_READY := $(DOCS)/.ready
PEERS_NEED := tests/benchmarks/contenders/peers.txt
KAFKA_VERSION ?= 4.3.1
# More workers than the two processors of a small machine, because tests wait: most of all for brokers.
WORKERS ?= 3
BROKER_WORKERS ?= 7
SPARK_WORKERS ?= 4
# The only places that have such tests, which spares each worker the collection of all others.
BROKER_TESTS := @tests/broker_tests.txt
SPARK_TESTS := tests/spark
# Every rule, the loop, the adapters, the parsers, the house rules, and what finds most on the simulated cluster. Left
# out: random applications, exceptions at every step, the pages, the commands, the packages, the databases.
FAST_TESTS := tests/core tests/listeners tests/loop tests/confluent tests/fuzz $(wildcard tests/test_*.py) \
    tests/simulator/test_simulated_cluster.py \
    $(addprefix tests/clients/test_, testing_your_loop.py stories.py loop_start.py)
# What pytest ends with where TESTS has none of a kind.
NO_TESTS := 5

# Each worker, and each program that a test starts, would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast check check-style check-mypy check-pyright docs bench mutants soak kafka-image clean \
    help java

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' $(MAKEFILE_LIST)

# uv takes half of pip's time, and does not read pip's configuration: a mirror that only pip knows is asked by pip.
$(READY): pyproject.toml scripts/require.sh
	@sh scripts/require.sh python $(PYTHON)
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "installing eos-client and its tools into $(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check 'uv>=0.9'
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev]' \
	    || $(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

java:
	@sh scripts/require.sh java

demo: java $(READY) ## the main job on a real embedded Kafka, with a verdict
	@$(BIN)/eos-client demo $(DEMO)

test: java $(READY) ## all tests, on real Kafka
	@$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder \
	    -m "not soak and not spark and not kafka" $(TESTS) || test $$? -eq $(NO_TESTS)
	@$(BIN)/python -m tests.support.first_broker
	@$(BIN)/pytest --numprocesses $(BROKER_WORKERS) --dist loadfile --no-loadscope-reorder \
	    -m "kafka and not soak and not spark" $(or $(TESTS),$(BROKER_TESTS)) || test $$? -eq $(NO_TESTS)
	@$(BIN)/pytest --numprocesses $(SPARK_WORKERS) --dist loadfile --no-loadscope-reorder -m "spark and not soak" \
	    $(or $(TESTS),$(SPARK_TESTS)) || test $$? -eq $(NO_TESTS)

test-fast: $(READY) ## what decides, without broker and Spark, in under two minutes
	@$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder \
	    -m "not soak and not spark and not kafka" $(or $(TESTS),$(FAST_TESTS))

check: check-style check-mypy check-pyright ## ruff, mypy, pyright, import-linter

check-style: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

check-mypy: $(READY)
	@$(BIN)/mypy

check-pyright: $(READY)
	@$(BIN)/pyright

$(DOCS_READY): pyproject.toml
	@$(PYTHON) -m venv $(DOCS)
	@echo "installing what builds the documentation into $(DOCS)"
	@$(DOCS)/bin/pip install --quiet --disable-pip-version-check 'uv>=0.9'
	@$(DOCS)/bin/uv pip install --quiet --python $(DOCS)/bin/python --editable '.[docs]' \
	    || $(DOCS)/bin/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

docs: $(DOCS_READY) ## the documentation as a site, in build/site; a broken link or anchor fails
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet

$(PEERS_READY): $(PEERS_NEED) $(READY)
	@$(BIN)/python -m venv $(PEERS)
	@echo "installing the clients that the benchmark compares with into $(PEERS)"
	@$(PEERS)/bin/pip install --quiet --disable-pip-version-check --requirement $(PEERS_NEED)
	@touch $@

bench: $(PEERS_READY) ## every figure the docs claim, as tables; some: BENCH="throughput latency", briefly: BENCH=--quick
	@$(BIN)/python -m tests.benchmarks $(BENCH)

mutants: $(READY) ## mistakes put into the client on purpose, and whether simulated stories catch them
	@$(BIN)/python -m tests.clients.mutants $(MUTANTS)

soak: $(READY) ## 60 s of faults for each broker version and protocol
	@$(BIN)/python tests/verification/soak.py $(SOAK)

kafka-image: $(READY) ## build the broker image where no registry has it
	@PYTHON=$(BIN)/python scripts/kafka_image.sh $(KAFKA_VERSION)

clean: ## remove what make has made, but for the downloaded brokers
	rm -rf $(VENV) build dist mutants .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .runs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
