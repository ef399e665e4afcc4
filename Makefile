# Everything a checkout needs: Python 3.10+ and Java 17; the rest is set up here.
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
MUTATION_READY := .runs/mutation.ready
PEERS_NEED := tests/benchmarks/contenders/peers.txt
KAFKA_VERSION ?= 4.3.1
# More workers than the two processors of a small machine, because tests wait: most of all for brokers.
WORKERS ?= 3
BROKER_WORKERS ?= 7
SPARK_WORKERS ?= 4
# The only folders that have such tests, which spares each worker the collection of all others.
BROKER_TESTS := tests/applications tests/benchmarks tests/cli tests/conformance tests/databases tests/faults tests/kafka tests/recovery
SPARK_TESTS := tests/spark
# What pytest ends with where TESTS has none of a kind.
NO_TESTS := 5
N ?= 20
APPLICATIONS ?= 100000
APPLICATIONS_REAL ?= 300

# Each worker, and each program that a test starts, would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

# One of each minor version that pyproject.toml admits.
CLIENT_VERSIONS ?= 2.15.0 2.16.1
# Those of `[spark]` beside the one of `[dev]`, which make test runs.
SPARK_VERSIONS ?= 4.1.1 4.3.0

.PHONY: demo demo-spark test docs support-matrix coverage conformance flaky check check-style check-mypy \
    check-pyright client-versions spark-versions bench bench-peers bench-spark mutants core-mutants applications \
    application-mutants applications-real soak soak-steps soak-brokers soak-recovery soak-spark schema-registry kafka-image clean help

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' $(MAKEFILE_LIST)

# uv takes half of pip's time, and does not read pip's configuration: a mirror that only pip knows is asked by pip.
$(READY): pyproject.toml scripts/require.sh
	@sh scripts/require.sh $(PYTHON)
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "installing eos-client and its tools into $(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check 'uv>=0.9'
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev]' \
	    || $(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY) ## the main job on a real embedded Kafka, with a verdict
	@$(BIN)/eos-client demo $(DEMO)

demo-spark: $(READY) ## a Spark stream that loses an executor and its driver, with a verdict
	@$(BIN)/eos-client demo-spark $(DEMO)

test: $(READY) ## all tests, on real Kafka
	@$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder \
	    -m "not soak and not spark and not kafka" $(TESTS) || test $$? -eq $(NO_TESTS)
	@$(BIN)/pytest --numprocesses $(BROKER_WORKERS) --dist loadfile --no-loadscope-reorder \
	    -m "kafka and not soak and not spark" $(or $(TESTS),$(BROKER_TESTS)) || test $$? -eq $(NO_TESTS)
	@$(BIN)/pytest --numprocesses $(SPARK_WORKERS) --dist loadfile --no-loadscope-reorder -m "spark and not soak" \
	    $(or $(TESTS),$(SPARK_TESTS)) || test $$? -eq $(NO_TESTS)

support-matrix: $(READY) ## the wheel's tests on each Python that is claimed, with the oldest and newest dependencies
	@$(BIN)/pytest --numprocesses $(WORKERS) -m "soak or not soak" tests/packaging

coverage: $(READY) ## lines that the tests without a broker run, by package
	@$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile -m "not soak and not spark and not kafka" \
	    --cov --cov-report=json:.runs/coverage.json $(TESTS); status=$$?; \
	    $(BIN)/python -m tests.support.coverage_by_package .runs/coverage.json && exit $$status

conformance: $(READY) ## the simulated cluster against real brokers: each test on each version
	@$(BIN)/pytest --numprocesses $(BROKER_WORKERS) --dist loadfile -m "kafka or soak" tests/conformance

flaky: $(READY) ## repeat TESTS N times beside two busy processes: how often each test fails
	@$(BIN)/python -m tests.support.flaky --runs $(N) -- $(TESTS)

spark-versions: $(READY) ## the Spark sink's tests with what [spark] brings, and the other versions of PySpark
	@sh scripts/spark_versions.sh $(BIN) $(SPARK_VERSIONS)

client-versions: $(READY) ## lost connections and late requests with each version of confluent-kafka
	@sh scripts/client_versions.sh $(BIN)/python $(CLIENT_VERSIONS)

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

bench-peers: $(PEERS_READY) ## install the clients that the benchmark compares with

bench: $(PEERS_READY) ## every figure the docs claim, as tables; some: BENCH="throughput latency", briefly: BENCH=--quick
	@$(BIN)/python -m tests.benchmarks $(BENCH)

bench-spark: $(READY) ## the Spark sink against Spark's own Kafka sink
	@$(BIN)/python -m tests.benchmarks.spark_sink $(BENCH)

mutants: $(READY) ## mistakes put into the client on purpose, and whether simulated stories catch them
	@$(BIN)/python -m tests.clients.mutants $(MUTANTS)

$(MUTATION_READY): pyproject.toml $(READY)
	@echo "installing mutmut into $(VENV)"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[mutation]' \
	    || $(BIN)/pip install --quiet --disable-pip-version-check --editable '.[mutation]'
	@mkdir -p $(@D)
	@touch $@

core-mutants: $(MUTATION_READY) ## each line of the core's machines changed in turn: those that its tests do not notice
	@$(BIN)/mutmut run > .runs/core-mutants.log || { tail -n 40 .runs/core-mutants.log; false; }
	@$(BIN)/mutmut results

applications: $(READY) ## generated applications on the simulated cluster: nothing lost, doubled or told wrongly
	@$(BIN)/python -m tests.applications --count $(APPLICATIONS) --jobs 2 --shrink 1 $(SEARCH)

application-mutants: $(READY) ## repairs undone on purpose, and whether a generated application finds each
	@$(BIN)/python -m tests.applications.mutants $(MUTANTS)

applications-real: $(READY) ## the same applications on a real broker, and compared
	@$(BIN)/python -m tests.applications --real --count $(APPLICATIONS_REAL) $(SEARCH)

soak: $(READY) ## 60 s of faults for each broker version and protocol
	@$(BIN)/python tests/verification/soak.py $(SOAK)

soak-steps: $(READY) ## more stories, and exceptions and signal handlers at more steps, than in make test
	@$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile -m soak tests/clients tests/simulator

soak-brokers: $(READY) ## the tests on real brokers that make test leaves out, but for those of conformance
	@$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile -m "soak and kafka and not spark" \
	    $(filter-out tests/conformance,$(BROKER_TESTS))

soak-recovery: $(READY) ## two hundred forced recoveries of producers in a row
	@$(BIN)/python -m tests.recovery.soak $(SOAK)

soak-spark: $(READY) ## the Spark sink under 50 kills and zombies, beside Spark's own
	@$(BIN)/pytest -m soak tests/spark
	@$(BIN)/python -m tests.verification.spark_soak $(SOAK)

schema-registry: $(READY) ## the serialisers with a real Schema Registry that refuses, stops and comes back
	@$(BIN)/pytest -m soak tests/schema_registry

kafka-image: $(READY) ## build the broker image where no registry has it
	@PYTHON=$(BIN)/python scripts/kafka_image.sh $(KAFKA_VERSION)

clean: ## remove what make has made, but for the downloaded brokers
	rm -rf $(VENV) build dist mutants .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .runs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
