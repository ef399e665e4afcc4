"""Fixtures of the tests against real brokers: names of one's own, and topics."""

import time
import uuid
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka.kafka_support import ONE_ON_A_BROKER, Stage
from tests.verification.topics import await_topics

WAIT_S = 60.0
_ASKED_MAX = 30
_FOR_EVER_S = 1e9


@pytest.fixture
def unique_name():
    """A function that makes names which no other test uses, for topics, groups and transactional ids."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def jars(tmp_path):
    """An empty folder for the jars of a Kafka version."""
    folder = tmp_path / "jars"
    folder.mkdir()
    return folder


@pytest.fixture
def create_topic(unique_name):
    """A function that creates a topic on a broker and returns its name."""

    def create(broker, partitions=4, prefix="topic"):
        name = unique_name(prefix)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_S)
        await_topics(admin, {name: partitions})
        return name

    return create


@pytest.fixture
def asked_in_vain(monkeypatch):
    """A function for a module that starts brokers: its start limit is over once no group was served some times.

    So the limit itself may be longer than any start takes on a busy machine, and nobody waits for it.
    """

    def hasten(module):
        serve_groups, asked = module.serve_groups, []

        def counted(*arguments, **options):
            asked.append(arguments)
            return serve_groups(*arguments, **options)

        def clock():
            return time.monotonic() + (_FOR_EVER_S if len(asked) > _ASKED_MAX else 0.0)

        monkeypatch.setattr(module, "serve_groups", counted)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))

    return hasten


@pytest.fixture
def stage(kafka_broker):
    with Stage(kafka_broker.bootstrap_servers) as made:
        yield made


@pytest.fixture(params=ONE_ON_A_BROKER, ids=lambda protocol: protocol.value)
def any_stage(kafka_broker, request):
    with Stage(kafka_broker.bootstrap_servers, request.param) as made:
        yield made
