"""Records of a simulated producer: batches, reports, partitions and topics, purges, and the end."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from eos_client.testing.simulator import SimulatedCluster
from tests.simulator.delivery_reports import IDEMPOTENT, TOPIC, refused_with, running, served

# -- sending ---------------------------------------------------------------------------------------------------------


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


def test_a_full_queue_is_told_after_a_record_too_large_and_before_a_partition_that_is_not_there():
    _, producer, _ = running(**{"queue.buffering.max.messages": 1, "message.max.bytes": 2000})
    producer.produce(TOPIC, b"a")
    assert refused_with(producer.produce, TOPIC, b"x" * 3000) == "MSG_SIZE_TOO_LARGE"
    with pytest.raises(BufferError):
        producer.produce(TOPIC, b"b", partition=9)
    producer.flush()
    assert refused_with(lambda: producer.produce(TOPIC, b"b", partition=9)) == "_UNKNOWN_PARTITION"


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


def test_a_topic_that_was_waited_for_in_vain_is_refused_at_once_until_it_is_there():
    cluster, producer, reports = running(**{"topic.metadata.propagation.max.ms": 2000})
    producer.produce("never", b"lost")
    producer.flush()
    assert refused_with(producer.produce, "never", b"refused") == "_UNKNOWN_TOPIC"
    cluster.create_topic("never")
    producer.produce("never", b"late")
    producer.flush()
    assert reports == [("UNKNOWN_TOPIC_OR_PART", b"lost", None), (None, b"late", 0)]


def test_a_record_that_waited_for_its_topic_fails_if_its_partition_is_not_there():
    cluster, producer, reports = running()
    producer.produce("later", b"lost", partition=3)
    cluster.create_topic("later", 2)
    producer.flush()
    assert reports == [("_UNKNOWN_PARTITION", b"lost", None)]


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
