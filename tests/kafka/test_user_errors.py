"""The errors that users make: each has its class and the words that help, within seconds."""

import socket
import time

import pytest

from eos_client import EosConfig, EosConsumer, EosProducer, ExactlyOnceLoop, OutputRecord
from eos_client.errors import (
    ClusterUnavailableError,
    ClusterUnfitError,
    ConfigurationError,
    TransformError,
)
from tests.kafka.loop_support import COOPERATIVE, EAGER, KIP_848, EventLog, Job
from tests.support.waiting import wait_for

SECONDS = 30.0  # on a machine with other things to do; a call without its limit never ends


def loop_on(bootstrap, topics=("in",), transform=lambda record: None, *, output_topic=None, kafka=None, **options):
    settings = {"bootstrap.servers": bootstrap, "log_level": 0, **(kafka or {})}
    config = EosConfig(settings, group_id="billing", **options)
    return ExactlyOnceLoop(config, list(topics), transform, output_topic=output_topic, hook=EventLog())


@pytest.fixture
def refusing_address():
    """An address where nobody listens, and nobody else can meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


# -- the cluster that is not there ------------------------------------------------------------------------------------


def test_an_unreachable_bootstrap_server_is_named_within_seconds(refusing_address):
    began_at = time.monotonic()
    with pytest.raises(ClusterUnavailableError, match=f"{refusing_address}' within 3 s") as caught:
        loop_on(refusing_address, start_timeout_s=3).run()
    assert time.monotonic() - began_at < SECONDS
    assert "Connection refused" in str(caught.value)
    assert str(caught.value).count("Check the address") == 1


def test_a_producer_whose_brokers_refuse_says_once_what_to_check(refusing_address):
    producer = EosProducer({"bootstrap.servers": refusing_address, "transactional.id": "billing-1", "log_level": 0})
    with pytest.raises(ClusterUnavailableError, match="asked directly: no broker answered") as caught:
        producer.init_transactions(2)
    producer.close()
    assert "Connection refused" in str(caught.value)
    assert str(caught.value).count("Check the address") == 1


def test_a_bootstrap_server_that_never_answers_is_named_within_seconds():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began_at = time.monotonic()
        with pytest.raises(ClusterUnavailableError, match=f"{address}' within 3 s"):
            loop_on(address, start_timeout_s=3).run()
        assert time.monotonic() - began_at < SECONDS


def test_a_host_name_that_does_not_resolve_is_named():
    with pytest.raises(ClusterUnavailableError, match=r"no-such-host\.invalid:9092") as caught:
        loop_on("no-such-host.invalid:9092", start_timeout_s=3).run()
    assert "resolve" in str(caught.value)


# -- topics -----------------------------------------------------------------------------------------------------------


def test_a_missing_input_topic_is_named_with_the_one_that_was_meant(kafka_broker):
    with Job(kafka_broker) as job:
        typo = job.source + "x"
        with pytest.raises(ClusterUnfitError) as caught:
            loop_on(job.bootstrap, [typo]).run()
        assert f"the input topic '{typo}' does not exist" in str(caught.value)
        assert f"did you mean '{job.source}'?" in str(caught.value)


@pytest.mark.soak
def test_missing_output_topics_are_named_where_the_broker_creates_none(make_kafka_broker):
    broker = make_kafka_broker(properties={"auto.create.topics.enable": "false"})
    with Job(broker) as job:
        job.load(4)
        with pytest.raises(ClusterUnfitError, match="the output topic 'invoices' does not exist"):
            loop_on(job.bootstrap, [job.source], output_topic="invoices").run()
        letters = {"on_error": "dead_letter", "dead_letter_topic": "letters"}
        with pytest.raises(ClusterUnfitError, match="the output topic 'letters' does not exist"):
            loop_on(job.bootstrap, [job.source], output_topic=job.sink, **letters).run()

        # One that only the transform names cannot be known before the first record.
        began_at = time.monotonic()
        error = job.start(
            lambda record: [OutputRecord("unknown-topic", value=record.value()), record.value()], commit_interval_s=0.5
        ).ended(90)
        assert isinstance(error, ClusterUnfitError), repr(error)
        assert "unknown-topic" in str(error)
        assert time.monotonic() - began_at < 60
        assert job.values() == []
        assert job.committed() == 0


# -- a group that does not admit the consumer ------------------------------------------------------------------------


def test_a_session_longer_than_the_broker_admits_is_named_with_the_limits(kafka_broker):
    too_long = {"session.timeout.ms": 1_800_001, "max.poll.interval.ms": 1_800_001}
    with Job(kafka_broker) as job, pytest.raises(ClusterUnfitError) as caught:
        loop_on(job.bootstrap, [job.source], kafka=too_long).run()
    assert "INVALID_SESSION_TIMEOUT" in str(caught.value)
    assert "group.max.session.timeout.ms" in str(caught.value)


def test_a_pattern_that_the_brokers_refuse_is_named_with_what_re2_lacks_by_the_loop_and_by_a_block(kafka_broker):
    with Job(kafka_broker) as job:
        pattern = r"^(in)-(a|b)\2"
        error = job.start(topics=[pattern], kafka=KIP_848).ended()
        assert isinstance(error, ClusterUnfitError), repr(error)
        settings = {"bootstrap.servers": job.bootstrap, "group.id": job.group, **KIP_848}
        consumer, producer = EosConsumer(settings), EosProducer({"bootstrap.servers": job.bootstrap})
        with consumer, producer:
            producer.init_transactions()
            consumer.subscribe([pattern])
            with pytest.raises(ClusterUnfitError) as caught:
                blocks_until_error(consumer, producer)
        for told in (str(error), str(caught.value)):
            assert "INVALID_REGULAR_EXPRESSION" in told
            assert repr(pattern) in told
            assert "back-reference" in told


def blocks_until_error(consumer, producer):
    began_at = time.monotonic()
    while time.monotonic() < began_at + SECONDS:
        with producer.transaction(consumer):
            consumer.consume(1, 0.2)


def test_an_assignor_that_the_group_does_not_share_is_named_by_the_loop_and_by_a_block(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(4)
        first = job.start(kafka=EAGER)
        wait_for(lambda: job.committed() == 4, "the first member works")
        error = job.start(kafka=COOPERATIVE).ended()
        assert isinstance(error, ClusterUnfitError), repr(error)
        assert "INCONSISTENT_GROUP_PROTOCOL" in str(error)
        assert "partition.assignment.strategy" in str(error)
        settings = {"bootstrap.servers": job.bootstrap, "log_level": 0}
        producer = EosProducer(settings | {"transactional.id": f"{job.group}-block"})
        producer.init_transactions()
        consumer = EosConsumer(settings | {"group.id": job.group} | COOPERATIVE)
        consumer.subscribe([job.source])
        with pytest.raises(ClusterUnfitError, match="INCONSISTENT_GROUP_PROTOCOL"):
            read_in_blocks(producer, consumer)
        consumer.close()
        producer.close()
        assert first.error is None


def read_in_blocks(producer, consumer):
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with producer.transaction(consumer):
            consumer.consume(10, 0.2)


# -- the transform ----------------------------------------------------------------------------------------------------


def test_a_raising_transform_shows_nothing_of_its_transaction_and_names_the_record(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(40)

        def transform(record):
            if record.value() == b"33":
                raise KeyError("customer")
            return [record.value()]

        error = job.start(transform, commit_interval_s=60).ended()
        assert type(error) is TransformError
        assert (error.topic, error.partition, error.offset) == (job.source, 1, 8)
        assert isinstance(error.__cause__, KeyError)
        assert job.values() == []
        assert job.committed() == 0


# -- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("enable.auto.commit", True, "outside the transaction"),
        ("enable.auto.commit", "true", "outside the transaction"),
        ("isolation.level", "read_uncommitted", "aborted input"),
        ("enable.idempotence", False, "doubled"),
        ("acks", 1, "lost"),
        ("acks", "0", "lost"),
        ("transaction.timeout.ms", 1000, "shorter than a transaction may stay open"),
    ],
)
def test_a_setting_that_would_break_exactly_once_is_refused_with_key_value_and_reason(key, value, reason):
    with pytest.raises(ConfigurationError) as caught:
        loop_on("127.0.0.1:9092", kafka={key: value})
    assert key in str(caught.value)
    assert repr(value) in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize("where", ["kafka", "consumer", "producer"])
def test_a_property_that_librdkafka_does_not_know_is_named(where):
    with pytest.raises(ConfigurationError, match=r"sesion\.timeout\.ms"):
        loop_on("127.0.0.1:9092", **{where: {"sesion.timeout.ms": 6000}})


def test_a_value_that_librdkafka_does_not_accept_is_named_with_its_property():
    with pytest.raises(ConfigurationError, match=r"socket\.timeout\.ms"):
        loop_on("127.0.0.1:9092", kafka={"socket.timeout.ms": "often"})


@pytest.mark.parametrize("topics", ["orders", []])
def test_topics_that_are_no_list_of_names_are_refused(topics):
    config = EosConfig({"bootstrap.servers": "127.0.0.1:9092"}, group_id="billing")
    with pytest.raises(ConfigurationError, match="topics"):
        ExactlyOnceLoop(config, topics, lambda record: None)


# -- the cluster that cannot do it ------------------------------------------------------------------------------------


@pytest.mark.soak  # test_broker_and_doctor.py has such a broker, too
def test_a_transaction_log_that_the_cluster_cannot_replicate_is_the_reason_not_a_time_out(make_kafka_broker):
    broker = make_kafka_broker(
        properties={"transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2"}
    )
    with Job(broker) as job:
        job.load(1)
        began_at = time.monotonic()
        error = job.start(start_timeout_s=4).ended()
        assert isinstance(error, ClusterUnfitError), repr(error)
        assert time.monotonic() - began_at < SECONDS
        assert "transaction.state.log.replication.factor=3" in str(error)
        assert "1 broker(s)" in str(error)
        assert job.committed() == 0
