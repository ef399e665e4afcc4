"""What keeps the embedded broker from starting is said in words, with the way out, and nothing is left behind."""

import socket
import subprocess
import tempfile

import pytest

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing import EmbeddedKafka
from eos_client.testing import embedded_kafka as embedded_kafka_module
from eos_client.testing.free_ports import free_ports
from eos_client.testing.java_runtime import java_major


@pytest.fixture
def nothing_left(tmp_path, monkeypatch):
    """Temporary directories go below tmp_path, and none is there at the end; nor does a broker's process run."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert list(tmp_path.glob("eos-client-kafka-*")) == []
    running = subprocess.run(["ps", "-eo", "args", "-ww"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in running


@pytest.fixture
def fake_java(tmp_path):
    """A function that makes a home of a Java which says that it is of the given version."""

    def make(version_line):
        home = tmp_path / "java-home"
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        java.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
        java.chmod(0o755)
        return home

    return make


@pytest.mark.usefixtures("nothing_left")
def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as occupant:
        port = occupant.getsockname()[1]
        with pytest.raises(EmbeddedKafkaError, match=f"port {port} is in use"):
            EmbeddedKafka(port=port).start()


@pytest.mark.kafka
@pytest.mark.usefixtures("nothing_left")
def test_a_crash_at_start_shows_the_end_of_the_brokers_log():
    broker = EmbeddedKafka(properties={"metric.reporters": "no.such.Reporter"})
    with pytest.raises(EmbeddedKafkaError, match=r"ended while starting \(exit code 1\)[\s\S]*no\.such\.Reporter"):
        broker.start()
    assert "no.such.Reporter" in broker.log_tail(60)
    assert not broker.running


@pytest.mark.kafka
@pytest.mark.usefixtures("nothing_left")
def test_a_property_that_kafka_does_not_accept_is_shown_with_kafkas_words():
    with pytest.raises(
        EmbeddedKafkaError, match=r"does not accept its settings.*exit code 1[\s\S]*Invalid value a-week"
    ):
        EmbeddedKafka(properties={"log.retention.hours": "a-week"}).start()


@pytest.mark.kafka
@pytest.mark.usefixtures("nothing_left")
def test_a_broker_that_is_not_ready_in_time_is_ended():
    with pytest.raises(EmbeddedKafkaError, match=r"was not ready after 0\.01 s\. The end of its log"):
        EmbeddedKafka(start_timeout_s=0.01).start()


@pytest.mark.kafka
@pytest.mark.usefixtures("nothing_left")
def test_a_broker_that_cannot_serve_groups_is_not_ready(asked_in_vain):
    asked_in_vain(embedded_kafka_module)
    broker = EmbeddedKafka(properties={"offsets.topic.replication.factor": "3"}, start_timeout_s=600)
    with pytest.raises(EmbeddedKafkaError, match=r"was not ready after 600 s\. [\s\S]*__consumer_offsets"):
        broker.start()


@pytest.mark.parametrize("name", ["listeners", "log.dirs", "process.roles"])
def test_a_property_on_which_the_broker_itself_depends_is_refused(name):
    with pytest.raises(EmbeddedKafkaError, match=f"{name}='x' is set by the embedded broker itself"):
        EmbeddedKafka(properties={name: "x"})


@pytest.mark.parametrize("attribute", ["bootstrap_servers", "pid", "log_path", "port"])
def test_what_only_a_started_broker_has_is_refused_before(attribute):
    with pytest.raises(EmbeddedKafkaError, match=r"call start\(\) first"):
        getattr(EmbeddedKafka(), attribute)


@pytest.mark.kafka
def test_data_of_an_earlier_broker_are_never_removed_by_accident(tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(EmbeddedKafkaError, match="keep_directory=True"):
        EmbeddedKafka(directory=tmp_path).start()
    assert (tmp_path / "data").is_dir()


def test_a_java_too_old_is_named_with_where_it_was_found(fake_java, monkeypatch):
    home = fake_java('openjdk version "11.0.22" 2024-01-16')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(home / "bin"), prepend=":")
    with pytest.raises(EmbeddedKafkaError, match=r"Java 11 .*from PATH.*Java 17 or newer.*openjdk-17-jre-headless"):
        EmbeddedKafka().start()


def test_java_home_goes_before_the_path(fake_java, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java('java version "1.8.0_392"')))
    with pytest.raises(EmbeddedKafkaError, match=r"Java 8 .*from JAVA_HOME"):
        EmbeddedKafka().start()


def test_a_java_home_without_java_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EmbeddedKafkaError, match=f"JAVA_HOME is {tmp_path}, but there is no bin/java"):
        EmbeddedKafka().start()


def test_a_missing_java_is_said_with_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedKafkaError, match=r"no java on PATH and JAVA_HOME is not set.*apt-get install"):
        EmbeddedKafka().start()


def test_a_java_that_does_not_say_its_version_is_refused(fake_java, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java("not quite a Java")))
    with pytest.raises(EmbeddedKafkaError, match="names no version: 'not quite a Java'"):
        EmbeddedKafka().start()


@pytest.mark.parametrize(
    ("line", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "22-ea" 2024-03-19', 22),
        ("The operation couldn't be completed", None),
    ],
)
def test_the_major_version_is_read_from_every_form(line, major):
    assert java_major(line) == major
