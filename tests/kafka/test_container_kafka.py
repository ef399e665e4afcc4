"""The broker in a container does what the one in a process does; what is missing for it is said, never skipped."""

import pytest
from docker import from_env

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing import ContainerKafka
from eos_client.testing.broker_settings import as_environment, as_properties_file
from eos_client.testing.docker_engine import IMAGE_VARIABLE, engine_version, tagged
from eos_client.testing.free_ports import free_ports, is_free
from tests.kafka.round_trips import read_committed, write_in_transaction
from tests.support.protocols import BY_COORDINATOR

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def engine(pytestconfig):
    """A Docker engine; only where the run was told to use containers is a missing one an error."""
    if engine_version() is None and pytestconfig.getoption("--eos-kafka") != "container":
        pytest.skip("no Docker engine answers; --eos-kafka=container makes that an error")
    client = from_env()
    yield client
    client.close()


@pytest.fixture
def no_engine(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nowhere.sock")


def test_runs_transactions_and_both_group_protocols(engine, create_topic):
    with ContainerKafka() as broker:
        topic = create_topic(broker, partitions=1)
        write_in_transaction(broker.bootstrap_servers, topic, b"exactly once")
        for group_protocol in BY_COORDINATOR:
            assert read_committed(broker.bootstrap_servers, topic, group_protocol=group_protocol) == [b"exactly once"]
        port = int(broker.bootstrap_servers.rsplit(":", 1)[1])
        assert not is_free(port)
    assert is_free(port)


def test_killed_and_restarted_it_has_its_data_on_the_same_port(engine, create_topic):
    with ContainerKafka() as broker:
        topic = create_topic(broker, partitions=1)
        address = broker.bootstrap_servers
        write_in_transaction(address, topic, b"before")
        assert read_committed(address, topic) == [b"before"]
        broker.kill()
        assert not broker.running
        broker.restart()
        assert broker.bootstrap_servers == address
        write_in_transaction(address, topic, b"after")
        assert read_committed(address, topic, count=2) == [b"before", b"after"]


def containers_of(engine, broker):
    """Its containers among those of everybody: other tests start and remove theirs meanwhile."""
    mine = f"CLUSTER_ID={broker._cluster_id}"
    return [c for c in engine.containers.list(all=True, ignore_removed=True) if mine in c.attrs["Config"]["Env"]]


def test_stop_removes_the_container_and_keeps_the_end_of_the_log(engine):
    broker = ContainerKafka().start()
    assert len(containers_of(engine, broker)) == 1
    broker.stop()
    assert containers_of(engine, broker) == []
    assert not broker.running
    assert "App info kafka.server for 1 unregistered" in broker.log_tail(1)
    broker.stop()


def test_a_crash_at_start_shows_the_end_of_the_brokers_log_and_leaves_no_container(engine):
    broker = ContainerKafka(properties={"metric.reporters": "no.such.Reporter"})
    with pytest.raises(EmbeddedKafkaError, match=r"ended while starting[\s\S]*no\.such\.Reporter"):
        broker.start()
    assert containers_of(engine, broker) == []


def test_a_port_in_use_is_said_in_the_engines_words(engine):
    with ContainerKafka(port=free_ports(1)[0]) as broker:
        taken = int(broker.bootstrap_servers.rsplit(":", 1)[1])
        with pytest.raises(EmbeddedKafkaError, match=rf"could not be started.*{taken}"):
            ContainerKafka(port=taken).start()


def test_an_image_that_cannot_be_had_is_an_error_with_the_ways_out(engine, monkeypatch):
    monkeypatch.setenv(IMAGE_VARIABLE, "127.0.0.1:9/no/such-kafka")
    ways_out = (
        r"image 127\.0\.0\.1:9/no/such-kafka:4\.3\.1 is missing.*make kafka-image.*EOS_CLIENT_KAFKA_IMAGE.*process"
    )
    with pytest.raises(EmbeddedKafkaError, match=ways_out):
        ContainerKafka().start()


@pytest.mark.usefixtures("no_engine")
def test_an_engine_that_does_not_answer_is_an_error():
    assert engine_version() is None
    with pytest.raises(EmbeddedKafkaError, match="no Docker engine answers"):
        ContainerKafka().start()


def test_what_only_a_started_broker_has_is_refused_before():
    with pytest.raises(EmbeddedKafkaError, match=r"call start\(\) first"):
        _ = ContainerKafka().bootstrap_servers


@pytest.mark.parametrize(
    ("image", "used"),
    [
        ("apache/kafka", "apache/kafka:4.3.1"),
        ("registry.example:5000/kafka", "registry.example:5000/kafka:4.3.1"),
        ("registry.example:5000/kafka:4.2", "registry.example:5000/kafka:4.2"),
        ("kafka@sha256:0123", "kafka@sha256:0123"),
    ],
)
def test_the_version_is_the_tag_unless_the_image_has_one(image, used):
    assert tagged(image, "4.3.1") == used


def test_settings_become_the_official_images_variables():
    settings = {"node.id": "1", "a_b.c-d": "x", "log.dirs": "/d"}
    assert as_environment(settings) == {"KAFKA_NODE_ID": "1", "KAFKA_A__B_C___D": "x", "KAFKA_LOG_DIRS": "/d"}


def test_settings_survive_the_properties_format():
    assert as_properties_file({"a": "C:\\x\ny\u00e9"}) == "a=C:\\\\x\\ny\\u00e9\n"


def test_auto_takes_a_container_where_an_engine_answers_and_says_so(engine, run_pytest):
    exit_code, said = run_pytest("def test_one(kafka_broker): print('kind', kafka_broker.kind)")
    assert exit_code == 0, said
    assert "kind container" in said
    assert f"(--eos-kafka=auto: Docker engine {engine_version()} answers)" in said
