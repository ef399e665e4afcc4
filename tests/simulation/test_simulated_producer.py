"""Records of a simulated producer: batches, reports, repetitions, what is lost and what is not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException

from eos_client.confluent.client_log import ClientLog
from eos_client.testing.simulated_cluster import SimulatedCluster
from eos_client.testing.simulation.model import PartitionKey
from eos_client.testing.simulation.settings import BrokerSettings, ProducerStateKind

TOPIC = "outputs"
IDEMPOTENT = {"enable.idempotence": True}


class Reports(list[tuple[str | None, bytes | None, int | None]]):
    """What the delivery reports said."""

    def __call__(self, error: Any, message: Any) -> None:
        self.append((error and error.name(), message.value(), message.offset()))


def running(*, partitions: Any = 1, seed: Any = 0, **settings: Any) -> tuple[SimulatedCluster, Any, Reports]:
    cluster, reports = SimulatedCluster(seed), Reports()
    cluster.create_topic(TOPIC, partitions)
    return cluster, cluster.producer({"on_delivery": reports, **settings}), reports


def served(cluster: SimulatedCluster, request: str) -> list[str]:
    return [each.result for each in cluster.history if each.request == request]


def refused_with(call: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(KafkaException) as raised:
        call(*arguments)
    name: str = raised.value.args[0].name()
    return name


# -- sending ---------------------------------------------------------------------------------------------------------


def test_records_of_one_partition_keep_their_order_and_their_reports_tell_the_offsets():
    cluster, producer, reports = running()
    for value in (b"a", b"b", b"c"):
        producer.produce(TOPIC, value)
    assert len(producer) == 3
    assert producer.flush() == 0
    assert reports == [(None, b"a", 0), (None, b"b", 1), (None, b"c", 2)]
    assert cluster.values(TOPIC) == [b"a", b"b", b"c"]
    assert len(producer) == 0


def test_a_report_carries_the_record_but_not_its_headers():
    cluster, producer, _ = running()
    messages = []
    producer.produce(
        TOPIC, "value", "key", 0, headers={"h": "x"}, timestamp=7, on_delivery=lambda _, m: messages.append(m)
    )
    producer.flush()
    (message,) = messages
    assert (message.topic(), message.partition(), message.offset()) == (TOPIC, 0, 0)
    assert (message.key(), message.value(), message.headers()) == (b"key", b"value", None)
    assert message.timestamp() == (1, 7)
    assert message.latency() == pytest.approx(0.001)
    (stored,) = cluster.read(TOPIC)
    assert (stored.headers, stored.timestamp_ms) == ((("h", b"x"),), 7)


def test_the_background_sends_once_records_have_lingered():
    cluster, producer, reports = running(**{"linger.ms": 50})
    producer.produce(TOPIC, b"first")
    cluster.advance(0.04)
    producer.produce(TOPIC, b"second")
    assert cluster.values(TOPIC) == []
    cluster.advance(0.02)
    assert cluster.values(TOPIC) == [b"first", b"second"]
    assert served(cluster, "Produce") == ["ok"]
    assert reports == []
    producer.poll(0)
    assert len(reports) == 2


def test_a_full_batch_does_not_linger():
    cluster, producer, _ = running(**{"linger.ms": 1000, "batch.num.messages": 2})
    for value in (b"a", b"b", b"c"):
        producer.produce(TOPIC, value)
    cluster.advance(0.01)
    assert cluster.values(TOPIC) == [b"a", b"b"]
    cluster.advance(1.0)
    assert cluster.values(TOPIC) == [b"a", b"b", b"c"]


def test_a_batch_ends_before_it_grows_too_large():
    cluster, producer, _ = running(**{"batch.size": 10})
    for value in (b"x" * 4, b"y" * 4, b"z" * 4, b"w" * 20):
        producer.produce(TOPIC, value)
    producer.flush()
    assert [len(value or b"") for value in cluster.values(TOPIC)] == [4, 4, 4, 20]
    assert served(cluster, "Produce") == ["ok"] * 3


def test_poll_waits_for_the_first_event_and_no_longer():
    cluster, producer, reports = running(**{"linger.ms": 5})
    producer.produce(TOPIC, b"value")
    assert producer.poll(10) == 1
    assert reports
    assert cluster.clock() < 0.01
    assert producer.poll(0.5) == 0
    assert cluster.clock() == pytest.approx(0.506, abs=0.002)


def test_a_loop_that_only_polls_without_waiting_gets_on():
    _, producer, reports = running(**{"linger.ms": 50})
    producer.produce(TOPIC, b"value")
    while not reports:
        producer.poll(0)


def test_a_full_queue_has_room_again_after_a_poll():
    _, producer, reports = running(**{"queue.buffering.max.messages": 2})
    producer.produce(TOPIC, b"a")
    producer.produce(TOPIC, b"b")
    with pytest.raises(BufferError):
        producer.produce(TOPIC, b"c")
    producer.poll(1)
    producer.produce(TOPIC, b"c")
    producer.flush()
    assert [value for _, value, _ in reports] == [b"a", b"b", b"c"]


def test_a_full_queue_is_told_after_a_record_too_large_and_before_a_partition_that_is_not_there():
    _, producer, _ = running(**{"queue.buffering.max.messages": 1, "message.max.bytes": 2000})
    producer.produce(TOPIC, b"a")
    assert refused_with(producer.produce, TOPIC, b"x" * 3000) == "MSG_SIZE_TOO_LARGE"
    with pytest.raises(BufferError):
        producer.produce(TOPIC, b"b", partition=9)
    producer.flush()
    assert refused_with(lambda: producer.produce(TOPIC, b"b", partition=9)) == "_UNKNOWN_PARTITION"


def test_the_nearest_callback_gets_the_report_even_if_it_is_falsy():
    cluster, producer, reports = running()
    nearest = Reports()
    producer.produce(TOPIC, b"a", on_delivery=nearest)
    producer.produce_batch(TOPIC, [{"value": b"b"}], on_delivery=nearest)
    producer.flush()
    assert reports == []
    assert nearest == [(None, b"a", 0), (None, b"b", 1)]
    assert cluster.values(TOPIC) == [b"a", b"b"]


def test_without_acknowledgements_sent_is_as_good_as_delivered():
    cluster, producer, reports = running(acks=0)
    cluster.lose_request("Produce")
    producer.produce(TOPIC, b"lost")
    producer.flush()
    producer.produce(TOPIC, b"next")
    producer.flush()
    assert reports == [(None, b"lost", None), (None, b"next", None)]
    assert cluster.values(TOPIC) == [b"next"]


def test_a_callback_under_an_unknown_name_is_refused():
    assert refused_with(SimulatedCluster().producer, {"stats.cb": print}) == "_INVALID_ARG"


def test_successes_are_not_reported_where_only_errors_are_wanted():
    _, producer, reports = running(**{"delivery.report.only.error": True})
    producer.produce(TOPIC, b"fine")
    producer.flush()
    producer.produce(TOPIC, b"dropped")
    producer.purge()
    producer.poll(0)
    assert reports == [("_PURGE_QUEUE", b"dropped", None)]


def test_what_a_delivery_callback_raises_comes_out_of_poll_and_the_other_reports_wait():
    _, producer, reports = running()

    def stumble(*_: Any) -> None:
        raise ZeroDivisionError

    producer.produce(TOPIC, b"a", on_delivery=stumble)
    producer.produce(TOPIC, b"b")
    with pytest.raises(ZeroDivisionError):
        producer.flush()
    assert reports == []
    producer.flush()
    assert reports == [(None, b"b", 1)]


# -- partitions and topics -------------------------------------------------------------------------------------------


def test_a_key_always_goes_to_one_partition_and_records_without_a_key_spread_by_the_seed():
    def places(seed: int) -> list[tuple[bytes | None, int]]:
        _, producer, _ = running(partitions=4, seed=seed)
        found: list[tuple[bytes | None, int]] = []
        for number in range(40):
            producer.produce(
                TOPIC,
                b"",
                b"key" if number % 2 else None,
                on_delivery=lambda _, m: found.append((m.key(), m.partition())),
            )
        producer.flush()
        return found

    assert len({partition for key, partition in places(1) if key}) == 1
    assert len({partition for key, partition in places(1) if key is None}) == 4
    assert places(1) == places(1)
    assert places(1) != places(2)


def test_a_record_for_an_unknown_topic_waits_for_it():
    cluster, producer, reports = running()
    producer.produce("later", b"early")
    cluster.advance(1)
    cluster.create_topic("later")
    producer.flush()
    assert reports == [(None, b"early", 0)]


def test_a_record_for_a_topic_that_never_comes_fails():
    cluster, producer, reports = running(**{"topic.metadata.propagation.max.ms": 2000})
    producer.produce("never", b"lost")
    producer.flush()
    assert reports == [("UNKNOWN_TOPIC_OR_PART", b"lost", None)]
    assert cluster.clock() == pytest.approx(2.0, abs=0.2)


def test_a_topic_that_was_waited_for_in_vain_is_refused_at_once_until_it_is_there():
    cluster, producer, reports = running(**{"topic.metadata.propagation.max.ms": 2000})
    producer.produce("never", b"lost")
    producer.flush()
    assert refused_with(producer.produce, "never", b"refused") == "_UNKNOWN_TOPIC"
    cluster.create_topic("never")
    producer.produce("never", b"late")
    producer.flush()
    assert reports == [("UNKNOWN_TOPIC_OR_PART", b"lost", None), (None, b"late", 0)]


def test_a_record_gets_too_old_while_it_waits_for_its_topic():
    cluster, producer, reports = running(**{"message.timeout.ms": 1500})
    producer.produce("never", b"lost")
    producer.flush()
    assert reports == [("_MSG_TIMED_OUT", b"lost", None)]
    assert cluster.clock() == pytest.approx(1.5, abs=0.2)


def test_a_record_that_waited_for_its_topic_fails_if_its_partition_is_not_there():
    cluster, producer, reports = running()
    producer.produce("later", b"lost", partition=3)
    cluster.create_topic("later", 2)
    producer.flush()
    assert reports == [("_UNKNOWN_PARTITION", b"lost", None)]


# -- what the network does -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ProducerStateKind)
@pytest.mark.parametrize("lose", [SimulatedCluster.lose_reply, SimulatedCluster.lose_request])
def test_an_idempotent_producer_repeats_an_unanswered_batch_and_it_is_written_once(lose, kind):
    cluster, reports = SimulatedCluster(settings=BrokerSettings(producer_state=kind)), Reports()
    cluster.create_topic(TOPIC)
    producer = cluster.producer({**IDEMPOTENT, "on_delivery": reports, "socket.timeout.ms": 2000})
    lose(cluster, "Produce")
    producer.produce(TOPIC, b"once")
    producer.flush()
    assert cluster.values(TOPIC) == [b"once"]
    assert reports == [(None, b"once", 0)]
    assert cluster.clock() == pytest.approx(2.0, abs=0.1)


def test_without_idempotence_a_lost_reply_doubles_the_batch():
    cluster, producer, _ = running(**{"socket.timeout.ms": 2000})
    cluster.lose_reply("Produce")
    producer.produce(TOPIC, b"twice")
    producer.flush()
    assert cluster.values(TOPIC) == [b"twice", b"twice"]


def test_a_batch_that_is_late_is_neither_doubled_nor_overtaken():
    cluster, producer, _ = running(**IDEMPOTENT, **{"socket.timeout.ms": 2000, "batch.num.messages": 1})
    cluster.delay("Produce", 5)
    for value in (b"a", b"b", b"c"):
        producer.produce(TOPIC, value)
    producer.flush()
    cluster.advance(10)
    assert cluster.values(TOPIC) == [b"a", b"b", b"c"]
    assert served(cluster, "Produce") == ["ok"] * 4


def test_only_the_log_tells_that_a_request_was_repeated():
    watch = ClientLog({"log_level": 3})
    cluster, producer, _ = running(**IDEMPOTENT, **{"socket.timeout.ms": 2000, "logger": watch})
    producer.produce(TOPIC, b"a")
    producer.flush()
    assert watch.losses == 0
    cluster.lose_reply("Produce")
    producer.produce(TOPIC, b"b")
    producer.flush()
    producer.poll(0)
    assert watch.losses > 0


def test_a_repeated_loss_is_told_by_the_brokers_state_alone():
    lines: list[tuple[str, str]] = []

    class Logger:
        def log(self, *line: Any) -> None:
            lines.append((line[2], line[-1]))

    heard = {"socket.timeout.ms": 2000, "debug": "broker", "logger": Logger()}
    cluster, producer, _ = running(**IDEMPOTENT, **heard)
    for value in (b"a", b"b", b"c"):
        cluster.lose_reply("Produce")
        producer.produce(TOPIC, value)
        producer.flush()
    producer.poll(0)
    public = [line for facility, line in lines if facility == "FAIL"]
    assert [", 1 identical error(s) suppressed)" in line for line in public] == [False, True]
    assert [facility for facility, line in lines if line.endswith("UP -> DOWN")] == ["STATE"] * 3


def test_a_log_line_comes_as_confluent_kafka_gives_it():
    lines: list[tuple[Any, ...]] = []

    class Logger:
        def log(self, *line: Any) -> None:
            lines.append(line)

    cluster, producer, _ = running(**IDEMPOTENT, **{"socket.timeout.ms": 2000, "client.id": "me", "logger": Logger()})
    cluster.lose_reply("Produce")
    producer.produce(TOPIC, b"a")
    producer.flush()
    producer.poll(0)
    level, text, facility, name, line = lines[0]
    assert (level, text, facility, name) == (30, "%s [%s] %s", "REQTMOUT", "me#producer-1")
    assert line == "[thrd:main]: Timed out ProduceRequest in flight (after 2000ms, timeout #0)"


def test_a_record_that_is_not_written_in_time_fails_and_the_next_ones_are_written():
    cluster, producer, reports = running(
        **IDEMPOTENT, **{"message.timeout.ms": 3000, "socket.timeout.ms": 2000, "batch.num.messages": 1}
    )
    cluster.lose_request("Produce")
    cluster.lose_request("Produce")
    producer.produce(TOPIC, b"late")
    cluster.advance(3.5)
    producer.produce(TOPIC, b"next")
    producer.flush()
    assert reports == [("_MSG_TIMED_OUT", b"late", None), (None, b"next", 0)]


@pytest.mark.parametrize("code", ["NOT_ENOUGH_REPLICAS", "NOT_LEADER_FOR_PARTITION", "REQUEST_TIMED_OUT"])
def test_a_refusal_that_passes_is_tried_again_inside(code):
    cluster, producer, reports = running(**IDEMPOTENT)
    cluster.refuse("Produce", code)
    producer.produce(TOPIC, b"value")
    producer.flush()
    assert reports == [(None, b"value", 0)]


def test_a_refusal_that_stays_is_reported():
    cluster, producer, reports = running()
    cluster.refuse("Produce", "TOPIC_AUTHORIZATION_FAILED")
    producer.produce(TOPIC, b"value")
    producer.flush()
    assert reports == [("TOPIC_AUTHORIZATION_FAILED", b"value", None)]


# -- idempotence -----------------------------------------------------------------------------------------------------


def test_an_unknown_producer_id_has_the_records_numbered_anew_under_the_next_epoch():
    """P3: a non-transactional idempotent producer bumps its epoch locally and re-numbers."""
    cluster, producer, reports = running(**IDEMPOTENT, **{"batch.num.messages": 1})
    producer.produce(TOPIC, b"a")
    producer.flush()
    cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    producer.produce(TOPIC, b"b")
    producer.produce(TOPIC, b"c")
    producer.flush()
    assert [error for error, _, _ in reports] == [None] * 3
    numbers = [(r.value, r.producer_epoch, r.sequence) for r in cluster.read(TOPIC)]
    assert numbers == [(b"a", 0, 0), (b"b", 1, 0), (b"c", 1, 1)]
    assert served(cluster, "InitProducerId") == ["ok"]


def test_other_partitions_wait_for_the_epoch_bump_until_nothing_of_the_old_one_is_on_its_way():
    cluster, producer, _ = running(partitions=2, **IDEMPOTENT, **{"batch.num.messages": 1})
    for partition in (0, 1):
        producer.produce(TOPIC, b"first", partition=partition)
    producer.flush()
    cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    cluster.delay("Produce", 0.5)
    for partition in (0, 1):
        producer.produce(TOPIC, b"second", partition=partition)
    producer.flush()
    by_partition = [(r.producer_epoch, r.sequence) for r in cluster.read(TOPIC)]
    assert by_partition == [(0, 0), (1, 0), (0, 0), (0, 1)]
    assert served(cluster, "Produce") == ["ok", "ok", "UNKNOWN_PRODUCER_ID", "ok", "ok"]


def test_an_unknown_producer_id_after_a_lost_reply_is_fatal_as_nobody_knows_what_was_written():
    cluster, producer, _ = running(**IDEMPOTENT, **{"socket.timeout.ms": 1000})
    cluster.lose_reply("Produce")
    producer.produce(TOPIC, b"a")
    cluster.after(0.5, lambda: cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID"))
    with pytest.raises(KafkaException) as raised:
        producer.flush()
    assert raised.value.args[0].fatal()
    assert raised.value.args[0].name() == "UNKNOWN_PRODUCER_ID"


def test_a_gap_that_nothing_explains_is_fatal_once_and_for_all():
    cluster, producer, reports = running(**IDEMPOTENT)
    producer.produce(TOPIC, b"fine")
    producer.flush()
    cluster.refuse("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER")
    producer.produce(TOPIC, b"a")
    with pytest.raises(KafkaException) as raised:
        producer.flush()
    assert raised.value.args[0].fatal()
    assert producer.poll(0) == 0
    assert refused_with(producer.produce, TOPIC, b"b") == "_FATAL"
    assert reports == [(None, b"fine", 0), ("OUT_OF_ORDER_SEQUENCE_NUMBER", b"a", None)]


def test_a_failed_batch_leaves_a_gap_and_the_next_records_get_the_next_epoch():
    cluster, producer, reports = running(**IDEMPOTENT)
    cluster.refuse("Produce", "INVALID_RECORD")
    producer.produce(TOPIC, b"bad")
    producer.flush()
    producer.produce(TOPIC, b"good")
    producer.flush()
    assert [error for error, _, _ in reports] == ["INVALID_RECORD", None]
    assert [(r.producer_epoch, r.sequence) for r in cluster.read(TOPIC)] == [(1, 0)]


def test_sequences_go_on_at_zero_behind_the_largest_one():
    """P5: next expected = last + 1, wrapping from 2^31-1 to 0."""
    cluster, producer, reports = running(partitions=2, **IDEMPOTENT)
    producer.produce(TOPIC, b"", partition=0)
    producer.flush()
    queue = producer._sender.accumulator.queue(PartitionKey(TOPIC, 1))
    queue.identity, queue.next_sequence, queue.next_acknowledged = producer._sender.identity, 2**31 - 2, 2**31 - 2
    for _ in range(2):
        producer.produce(TOPIC, b"", partition=1)
        producer.produce(TOPIC, b"", partition=1)
        producer.flush()
    assert [error for error, _, _ in reports] == [None] * 5
    assert [record.sequence for record in cluster.read(TOPIC)][1:] == [2**31 - 2, 2**31 - 1, 0, 1]
    cluster.refuse("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER")
    producer.produce(TOPIC, b"", partition=1)
    assert refused_with(producer.flush) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


@pytest.mark.parametrize("kind", ProducerStateKind)
def test_a_duplicate_counts_as_delivered_at_no_known_offset(kind):
    """P5: DUPLICATE_SEQUENCE_NUMBER: the client drops the batch and moves on."""
    cluster, reports = SimulatedCluster(settings=BrokerSettings(producer_state=kind)), Reports()
    cluster.create_topic(TOPIC)
    producer = cluster.producer({**IDEMPOTENT, "on_delivery": reports})
    cluster.refuse("Produce", "DUPLICATE_SEQUENCE_NUMBER")
    producer.produce(TOPIC, b"written before")
    producer.flush()
    assert reports == [(None, b"written before", None)]


# -- purge, close, freeze --------------------------------------------------------------------------------------------


def test_purged_records_fail_by_where_they_were():
    _, producer, reports = running(**{"batch.num.messages": 1, "linger.ms": 0})
    producer.produce(TOPIC, b"in flight")
    producer.produce(TOPIC, b"queued")
    producer.purge()
    producer.poll(0)
    assert sorted(reports) == [("_PURGE_INFLIGHT", b"in flight", None), ("_PURGE_QUEUE", b"queued", None)]
    assert len(producer) == 0


def test_only_the_queue_is_purged_where_that_is_asked_for():
    cluster, producer, reports = running(**{"batch.num.messages": 1})
    producer.produce(TOPIC, b"in flight")
    producer.produce(TOPIC, b"queued")
    producer.purge(in_flight=False)
    producer.flush()
    assert sorted(reports, key=str) == [("_PURGE_QUEUE", b"queued", None), (None, b"in flight", 0)]
    assert cluster.values(TOPIC) == [b"in flight"]


def test_close_delivers_what_is_queued_and_a_with_block_closes():
    cluster, producer, reports = running(**{"linger.ms": 1000})
    with producer as same:
        assert same is producer
        producer.produce(TOPIC, b"value")
    assert cluster.values(TOPIC) == [b"value"]
    assert reports == [(None, b"value", 0)]
    with pytest.raises(RuntimeError, match="closed"):
        producer.poll(0)
    assert producer.close() is True


def test_a_handle_that_is_left_from_any_thread_sends_and_says_nothing_any_more():
    def history(leave_after_s: float) -> list[object]:
        cluster, producer, reports = running(**{"linger.ms": 100})
        producer.produce(TOPIC, b"abandoned")

        def leave() -> None:
            thread = threading.Thread(target=lambda: (producer.purge(), producer.close()))
            thread.start()
            thread.join()

        cluster.after(leave_after_s, leave)
        cluster.advance(1)
        assert len(producer) == 0
        assert reports == []
        return list(cluster.history)

    assert history(0.0) == history(0.05) == []
    assert len(history(0.1005)) == len(history(0.9)) == 1


def test_a_frozen_producer_sends_nothing_and_cannot_be_called_until_it_is_thawed():
    cluster, producer, reports = running(**{"client.id": "stopped", "linger.ms": 10})
    producer.produce(TOPIC, b"value")
    with cluster.zombie("stopped"):
        with pytest.raises(RuntimeError, match="producer-1 is frozen"):
            producer.poll(0)
        cluster.advance(1)
        assert cluster.values(TOPIC) == []
    producer.flush()
    assert reports == [(None, b"value", 0)]


# -- the rest of the surface -----------------------------------------------------------------------------------------


def test_list_topics_shows_the_cluster_and_names_an_unknown_topic():
    cluster, producer, _ = running(partitions=2)
    cluster.create_topic("other")
    metadata = producer.list_topics()
    assert {name: len(topic.partitions) for name, topic in metadata.topics.items()} == {TOPIC: 2, "other": 1}
    assert producer.list_topics("no such").topics["no such"].error.name() == "UNKNOWN_TOPIC_OR_PART"
    assert producer.cluster_id() == metadata.cluster_id
    cluster.lose_reply("Metadata")
    assert refused_with(producer.list_topics, None, 0.5) == "_TRANSPORT"


def test_statistics_tell_the_producers_identity():
    texts: list[str] = []
    _, producer, _ = running(**IDEMPOTENT, **{"statistics.interval.ms": 1000, "stats_cb": texts.append})
    producer.poll(1.5)
    producer.produce(TOPIC, b"value")
    producer.flush()
    producer.poll(1.5)
    identities = [json.loads(text)["eos"] for text in texts]
    assert [(eos["producer_id"] >= 0, eos["producer_epoch"]) for eos in identities] == [(False, -1), (True, 0)]


def test_one_seed_gives_one_story():
    def story(seed: int) -> list[object]:
        cluster, producer, reports = running(partitions=3, seed=seed, **IDEMPOTENT, **{"socket.timeout.ms": 500})
        for number in range(50):
            producer.produce(TOPIC, str(number))
            if number % 7 == 0:
                cluster.lose_reply("Produce")
            producer.poll(0)
        producer.flush()
        return [*cluster.history, *reports, *cluster.read(TOPIC)]

    assert story(5) == story(5)
    assert story(5) != story(6)
