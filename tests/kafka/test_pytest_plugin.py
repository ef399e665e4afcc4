"""An application team's own tests get real brokers from our fixtures, and the terminal says which."""

import re

import pytest

USES_A_BROKER = """
from confluent_kafka.admin import AdminClient

def cluster(broker):
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=60).cluster_id

def test_one(kafka_broker):
    print("kind", kafka_broker.kind, "version", kafka_broker.version)
    assert cluster(kafka_broker)

def test_the_same_for_the_whole_session_and_others_on_request(kafka_broker, make_kafka_broker):
    other = make_kafka_broker(properties={"auto.create.topics.enable": "false"})
    assert len({cluster(kafka_broker), cluster(other)}) == 2
    test_the_same_for_the_whole_session_and_others_on_request.broker = other

def test_which_stop_with_the_test():
    assert not test_the_same_for_the_whole_session_and_others_on_request.broker.running
"""


@pytest.mark.kafka
@pytest.mark.soak
def test_process_is_what_was_asked_for(run_pytest):
    exit_code, said = run_pytest(USES_A_BROKER, "--eos-kafka=process", "--eos-kafka-version=4.1.2")
    assert exit_code == 0, said
    assert "kind process version 4.1.2" in said
    assert said.count("kafka: process, Kafka 4.1.2 (--eos-kafka=process)") == 2, "at the start and in the summary"


@pytest.mark.kafka
def test_auto_takes_a_process_where_no_engine_answers_and_says_so(run_pytest, tmp_path):
    exit_code, said = run_pytest(USES_A_BROKER, DOCKER_HOST=f"unix://{tmp_path}/nowhere.sock")
    assert exit_code == 0, said
    assert "kafka: process, Kafka 4.3.1 (--eos-kafka=auto: no Docker engine answers)" in said


def test_container_without_an_engine_is_an_error_and_no_skip(run_pytest, tmp_path):
    nowhere = f"unix://{tmp_path}/nowhere.sock"
    exit_code, said = run_pytest(USES_A_BROKER, "--eos-kafka=container", "-k", "test_one", DOCKER_HOST=nowhere)
    assert exit_code == 1, said
    assert "1 error" in said
    assert said.count("\nno Docker engine answers: start one, or use --eos-kafka=process.") == 1, said
    assert not {"urllib3", "pytest_plugin.py"} & set(re.findall(r"[\w.]+", said)), said


EXPECTS_NO_BROKER = """
import pytest
from eos_client.errors import EmbeddedKafkaError

def test_one(make_kafka_broker):
    with pytest.raises(EmbeddedKafkaError, match="no Docker engine answers"):
        make_kafka_broker()
"""


def test_a_broker_that_a_test_cannot_start_is_an_error_that_the_test_may_expect(run_pytest, tmp_path):
    nowhere = f"unix://{tmp_path}/nowhere.sock"
    exit_code, said = run_pytest(EXPECTS_NO_BROKER, "--eos-kafka=container", DOCKER_HOST=nowhere)
    assert exit_code == 0, said


LOOKS_FOR_AN_ENGINE = """
import gc
from eos_client.errors import EmbeddedKafkaError
from eos_client.testing import ContainerKafka
from eos_client.testing.docker_engine import engine_version

def test_one():
    assert engine_version() is None
    try:
        ContainerKafka().start()
    except EmbeddedKafkaError:
        pass
    gc.collect()
"""


def test_looking_for_an_engine_leaves_nothing_open_for_a_run_whose_warnings_are_errors(run_pytest, tmp_path):
    nowhere = f"unix://{tmp_path}/nowhere.sock"
    exit_code, said = run_pytest(LOOKS_FOR_AN_ENGINE, "-W", "error", DOCKER_HOST=nowhere)
    assert exit_code == 0, said


def test_a_session_without_brokers_hears_nothing_of_kafka(run_pytest):
    exit_code, said = run_pytest("def test_nothing(): pass", "--eos-kafka=container")
    assert exit_code == 0, said
    assert "kafka:" not in said
