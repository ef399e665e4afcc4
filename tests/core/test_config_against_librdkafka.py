"""What a configuration says is what the installed client library does: it is asked, not believed."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from hypothesis import example, given
from hypothesis import settings as run_with
from hypothesis import strategies as st

from eos_client.config import EosConfig
from eos_client.config.client_settings import (
    CONSUMER_ONLY,
    PRODUCER_ONLY,
    check_ids_in_transactions,
    idempotent_producer_settings,
    safe_consumer_settings,
    safe_producer_settings,
)
from eos_client.config.setting_names import COMMON
from eos_client.confluent.callback_guard import built
from eos_client.confluent.ledger.slot_producer import SlotProducer
from eos_client.core.model import ProducerLimits
from eos_client.errors import ConfigurationError

KAFKA = {"bootstrap.servers": "127.0.0.1:1"}
VALUES: dict[str, Any] = {
    "acks": "all",
    "auto.commit.enable": "false",
    "auto.offset.reset": "earliest",
    "check.crcs": "true",
    "compression.codec": "gzip",
    "compression.type": "gzip",
    "compression.level": "1",
    "delivery.report.only.error": True,
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "true",
    "enable.gapless.guarantee": "false",
    "enable.idempotence": "true",
    "enable.partition.eof": "true",
    "fetch.max.bytes": "60000000",
    "group.protocol": "classic",
    "group.protocol.type": "consumer",
    "isolation.level": "read_committed",
    "max.poll.interval.ms": "400000",
    "on_commit": print,
    "on_delivery": print,
    "partition.assignment.strategy": "range",
    "partitioner": "random",
    "request.required.acks": "all",
}


class Heard(logging.Handler):
    """Keeps what the client library logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def heard(client: type, settings: Mapping[str, Any]) -> list[str]:
    """Build ``client`` and return what it says about its configuration."""
    logger, ear = logging.getLogger("tests.librdkafka"), Heard()
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.handlers[:] = [ear]
    made = client({**settings, "debug": "conf", "log_level": 7, "logger": logger})
    made.poll(0.01)
    made.close()
    return ear.lines


def in_force(client: type, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return every property that differs from librdkafka's default, as librdkafka lists them."""
    found = (re.search(r":   ([\w.]+) = (.*)$", line) for line in heard(client, settings))
    return {match[1]: match[2] for match in found if match}


def test_the_safe_defaults_are_in_force():
    config = EosConfig(KAFKA, group_id="billing", transactional_id="billing-0")
    consumer = in_force(Consumer, config.consumer_config())
    assert consumer["enable.auto.commit"] == "false"
    assert consumer["auto.offset.reset"] in {"earliest", "smallest"}
    assert consumer["fetch.queue.backoff.ms"] == "10"
    producer = in_force(Producer, config.producer_config())
    assert producer["enable.idempotence"] == "true"
    assert producer["transaction.timeout.ms"] == "10000"
    assert producer["retry.backoff.ms"] == "10"


@pytest.mark.parametrize("key", ["enable.auto.commit", "auto.commit.enable"])
def test_automatic_commits_are_off_whichever_way_the_user_says_so(key):
    config = EosConfig({**KAFKA, key: False}, group_id="billing")
    assert in_force(Consumer, config.consumer_config()).get("enable.auto.commit") == "false"


def test_the_users_values_are_in_force():
    config = EosConfig({**KAFKA, "fetch.queue.backoff.ms": 77, "linger.ms": 3}, group_id="billing")
    assert in_force(Consumer, config.consumer_config())["fetch.queue.backoff.ms"] == "77"
    producer = {**config.producer_config(), "transactional.id": "billing-0"}
    assert in_force(Producer, producer)["queue.buffering.max.ms"] == "3"


def stranger_to(client: type, key: str) -> bool:
    """Whether ``client`` ignores ``key`` as the other client's, or does not know it at all."""
    settings: dict[str, Any] = {**KAFKA, key: VALUES.get(key, "1000")}
    if client is Consumer:
        settings.setdefault("group.id", "billing")
    try:
        return any("will be ignored by this" in line for line in heard(client, settings))
    except KafkaException as error:
        return "No such configuration property" in str(error)


@pytest.mark.parametrize("key", sorted(PRODUCER_ONLY))
def test_a_consumer_does_not_know_producer_only_properties(key):
    assert stranger_to(Consumer, key)


@pytest.mark.parametrize("key", sorted(CONSUMER_ONLY))
def test_a_producer_does_not_know_consumer_only_properties(key):
    assert stranger_to(Producer, key)


@pytest.mark.parametrize("key", ["retry.backoff.ms", "reconnect.backoff.ms", "client.id", "message.max.bytes"])
def test_both_clients_know_their_common_properties(key):
    assert not stranger_to(Consumer, key)
    assert not stranger_to(Producer, key)


def properties() -> dict[str, str]:
    """Return every property that librdkafka documents, with C, P or * for whom it concerns."""
    library = next(Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*"), None)
    if library is None:
        pytest.skip("confluent_kafka was not installed from a wheel with its own librdkafka")
    libc, librdkafka = ctypes.CDLL(None), ctypes.CDLL(str(library))
    libc.fdopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = [ctypes.c_void_p]
    librdkafka.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    with tempfile.TemporaryFile() as shown:
        stream = libc.fdopen(os.dup(shown.fileno()), b"w")
        librdkafka.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        shown.seek(0)
        return dict(re.findall(r"^([\w.]+)\s*\|\s*([CP*]+)\s*\|", shown.read().decode(), re.MULTILINE))


# Deprecated, of the share consumer, or function pointers that Python has other names for.
NOT_LISTED = {"offset.store.method", "offset.store.path", "offset.store.sync.interval.ms", "produce.offset.report"}
NOT_LISTED |= {"queuing.strategy", "max.poll.records", "share.acknowledgement.mode", "msg_order_cmp"}


@pytest.mark.parametrize(
    ("kind", "listed", "callback"), [("C", CONSUMER_ONLY, "on_commit"), ("P", PRODUCER_ONLY, "on_delivery")]
)
def test_no_property_that_only_one_client_knows_is_forgotten(kind, listed, callback):
    known = {name for name, whose in properties().items() if whose == kind and not name.endswith("_cb")}
    assert len(known) > 15
    assert (known - NOT_LISTED) - listed == set()
    assert listed - known == {callback}


def test_no_property_that_both_clients_know_is_forgotten():
    known = {name for name, whose in properties().items() if whose == "*" and "_" not in name}
    assert known - COMMON == set()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lingre.ms", "linger.ms"),
        ("sasl_username", "sasl.username"),
        ("session.timeout", "session.timeout.ms"),
        ("bootstrap.server", "bootstrap.servers"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_one_that_was_meant(typed, meant):
    with pytest.raises(ConfigurationError, match=f'property: "{typed}"; did you mean "{meant}"'):
        built("consumer", Consumer, {**KAFKA, "group.id": "billing", typed: "1"})


def test_a_name_like_no_setting_is_refused_without_a_suggestion():
    with pytest.raises(ConfigurationError, match=r'property: "zzzz"\. Correct or remove'):
        built("consumer", Consumer, {**KAFKA, "group.id": "billing", "zzzz": "1"})


def test_neither_client_complains_about_what_it_is_given():
    own = {key: VALUES.get(key, "1000") for key in CONSUMER_ONLY | PRODUCER_ONLY}
    # Old or experimental names, and those that other settings rule out.
    for key in ("auto.commit.enable", "enable.gapless.guarantee", "queue.buffering.backpressure.threshold"):
        del own[key]
    own |= {"group.id": "billing", "transactional.id": "billing-0", "transaction.timeout.ms": "20000"}
    own |= {"session.timeout.ms": "45000", "heartbeat.interval.ms": "3000"}
    own |= {"linger.ms": "5", "queue.buffering.max.ms": "5", "sticky.partitioning.linger.ms": "5"}
    config = EosConfig({**KAFKA, **own}, group_id="billing", transactional_id="billing-0")
    for client, settings in ((Consumer, config.consumer_config()), (Producer, config.producer_config())):
        assert [line for line in heard(client, settings) if "CONFWARN" in line] == []


# -- a default of ours never makes a valid setting fail ---------------------------------------------------------------

SHARED_CHOICES: dict[str, list[Any]] = {
    "socket.timeout.ms": [10, 1000, 10_100, 10_101, 60_000],
    "reconnect.backoff.ms": [0, 5, 10, 11, 500, 1000, 1001, 9000],
    "reconnect.backoff.max.ms": [0, 5, 9, 10, 100, 999, 1000, 20_000],
    "retry.backoff.ms": [1, 10, 500],
    "retry.backoff.max.ms": [1, 9, 10, 1000],
    "metadata.recovery.strategy": ["none", "rebootstrap"],
}
PRODUCER_CHOICES: dict[str, list[Any]] = SHARED_CHOICES | {
    "acks": ["all", -1],
    "request.required.acks": ["all", -1],
    "batch.num.messages": [1, 10_000],
    "delivery.timeout.ms": [0, 1, 20, 21, 10_001, 60_000],
    "enable.idempotence": [True],
    "linger.ms": [0, 0.5, 5, 20, 900],  # all below transaction.timeout.ms, which bounds the delivery, too
    "max.in.flight": [1, 5],
    "message.timeout.ms": [0, 1, 5, 10, 20, 21, 9999, 10_001, 60_000],
    "queue.buffering.max.ms": [0, 5, 900],
    "retries": [1, 100],
    "sticky.partitioning.linger.ms": [0, 10, 1000],
    "topic.metadata.propagation.max.ms": [0, 30_000],
    "transaction.timeout.ms": [1000, 5000, 60_000],
}
CONSUMER_CHOICES: dict[str, list[Any]] = SHARED_CHOICES | {
    "auto.commit.enable": [False],
    "auto.offset.reset": ["latest", "error"],
    "enable.auto.commit": [False],
    "fetch.error.backoff.ms": [0, 500],
    "fetch.queue.backoff.ms": [0, 5, 1000],
    "fetch.wait.max.ms": [0, 5, 1000],
    "group.protocol": ["classic", "consumer"],
    "heartbeat.interval.ms": [100, 3000],
    "isolation.level": ["read_committed"],
    "max.poll.interval.ms": [1, 6000, 300_000],
    "queued.min.messages": [1, 100_000],
    "session.timeout.ms": [1, 6000, 45_000],
}


def some_of(choices: Mapping[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Settings of a user: some properties, as numbers or as texts or taken back with None, some of them per topic."""
    spelled = {key: st.sampled_from([*values, *map(str, values), None]) for key, values in choices.items()}
    given_ones = st.fixed_dictionaries({}, optional=spelled)
    return st.tuples(given_ones, st.booleans()).map(lambda pair: nested(*pair))


def nested(chosen: dict[str, Any], per_topic: bool) -> dict[str, Any]:
    topic = {k: v for k, v in chosen.items() if k in {"acks", "message.timeout.ms", "auto.offset.reset"}}
    if not (per_topic and topic):
        return chosen
    return {k: v for k, v in chosen.items() if k not in topic} | {"default.topic.config": topic}


def is_valid(client: type, settings: dict[str, Any]) -> bool:
    """Whether the client library builds ``client`` from ``settings``."""
    unheard = logging.getLogger("tests.unheard")
    unheard.propagate = False
    unheard.handlers[:] = [logging.NullHandler()]
    try:
        client({**settings, "logger": unheard}).close()
    except KafkaException:
        return False
    return True


@run_with(max_examples=150)
@given(some_of(PRODUCER_CHOICES))
@example({"message.timeout.ms": 10})
@example({"default.topic.config": {"message.timeout.ms": "20"}})
@example({"delivery.timeout.ms": "20"})
@example({"socket.timeout.ms": 60_000})
@example({"message.timeout.ms": 60_000})
@example({"reconnect.backoff.ms": 1001})
@example({"message.timeout.ms": 0, "delivery.timeout.ms": 1})
def test_settings_that_are_valid_for_their_producer_are_valid_for_ours(chosen):
    if is_valid(Producer, {**KAFKA, **chosen, "enable.idempotence": True}):
        assert is_valid(Producer, idempotent_producer_settings({**KAFKA, **chosen})), chosen
    if is_valid(Producer, {**KAFKA, **chosen, "enable.idempotence": True, "transactional.id": "t"}):
        assert is_valid(Producer, safe_producer_settings({**KAFKA, **chosen, "transactional.id": "t"})), chosen
        try:
            config = EosConfig(KAFKA, group_id="billing", producer=chosen, transactional_id="t")
        except ConfigurationError as error:
            assert "is shorter than a transaction may stay open" in str(error)  # noqa: PT017  # one refusal is right
        else:
            assert is_valid(Producer, config.producer_config()), chosen


@run_with(max_examples=150)
@given(some_of(CONSUMER_CHOICES))
def test_settings_that_are_valid_for_their_consumer_are_valid_for_ours(chosen):
    if is_valid(Consumer, {**KAFKA, "group.id": "g", **chosen}):
        assert is_valid(Consumer, safe_consumer_settings({**KAFKA, "group.id": "g", **chosen})), chosen


def test_a_short_delivery_timeout_is_taken_by_a_slots_producer_too():
    SlotProducer({**KAFKA, "message.timeout.ms": 10}, "slot-0", limits=ProducerLimits()).close()


@pytest.mark.parametrize("text", ["größe", "a\tb", "a\x7f", "my app 1", "~!*", ""])
def test_ids_are_refused_whose_offsets_the_client_library_sends_in_no_transaction(text):
    producer = Producer({**KAFKA, "transactional.id": "t", "log_level": 0})
    metadata = b"CGMDv2:\x01\x00\x00\x00" + b"\0".join([b"group", text.encode() + b"-1"]) + b"\0\1"
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition("orders", 0, 1)], metadata, 0)
    is_unsafe = refused.value.args[0].name() == "_BAD_MSG"
    assert is_unsafe == bool(text and text not in {"my app 1", "~!*"}), refused.value
    for named in ({"group.id": text}, {"group.instance.id": text}, {"client.id": text}):
        settings = {"group.id": "group", **named}
        if is_unsafe:
            with pytest.raises(ConfigurationError, match=f"{next(iter(named))}=.*printable ASCII"):
                check_ids_in_transactions(settings)
        else:
            check_ids_in_transactions(settings)


@pytest.mark.parametrize("settings", [{"group.protocol": "consumer"}, {"group.instance.id": "one"}])
def test_a_client_id_that_is_in_no_member_id_may_be_any_text(settings):
    check_ids_in_transactions({"group.id": "group", "client.id": "größe", **settings})
