"""`eos-client redrive` on the simulated cluster: letters go back once, and what is not sent waits for the next run."""

import re
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from structlog.testing import capture_logs

from eos_client.cli.failures import CommandLineError
from eos_client.cli.logs import log_throttling
from eos_client.cli.redrive import Redrive, RedriveOptions, client_config
from eos_client.cli.redrive import redrive as redrive_letters
from eos_client.cli.redriven_letters import can_be_sent_to
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError
from eos_client.testing.simulator.brokers.model import PartitionKey
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from tests.clients.simulated_stage import SINK, SOURCE, SimulatedStage

DEAD = "orders.dead"
SMALL = "small"


class RedriveStage:
    """Records that a block has dead-lettered, and runs that send them back."""

    def __init__(self, *values: bytes, partitions: int = 1, settings: BrokerSettings | None = None) -> None:
        self.stage = SimulatedStage(partitions=partitions, records=0, settings=settings)
        self.cluster = self.stage.cluster
        self.cluster.create_topic(DEAD)
        self.producer, self.consumer = self.stage.producer(), self.stage.subscribed()
        self.fail(*values)

    def fail(self, *values: bytes, error: str = "bad", partition: int = 0) -> None:
        """Write records and dead-letter them."""
        self.cluster.write(SOURCE, values, partition=partition)
        self.fail_again(len(values), error)

    def fail_again(self, count: int, error: str = "bad") -> None:
        """Dead-letter the next ``count`` records of the source."""
        with self.producer.transaction(self.consumer) as txn:
            for message in self.stage.collect(self.consumer, count):
                txn.dead_letter(message, ValueError(error), topic=DEAD)

    def run(self, *, topic: str = DEAD, last: int | None = None, stop_after: int = 10**9, **options: Any) -> Any:
        """One run, as a process of its own would do it."""
        consumer = self.stage.consumer(group_id="redrive")
        producer = self.stage.producer(transactional_id="redrive-0", delivery_report_only_error=True)
        brokers = self.cluster.brokers
        logs = [brokers.log(PartitionKey(topic, number)) for number in range(brokers.partition_count(topic))]
        lasts = {n: max(r.offset for r in log.records if r.marker is None) for n, log in enumerate(logs)}
        asked = RedriveOptions(bootstrap_servers="simulated", topic=topic, group_id="redrive", **options)
        run = Redrive(consumer, producer, asked, lasts if last is None else {0: last}, self.cluster.clock)
        looks = iter(range(stop_after))
        try:
            return run.run(lambda: next(looks, None) is None)
        finally:
            consumer.close()
            producer.close()

    def write_letters(self, *letters: bytes | tuple[bytes, dict[str, Any]]) -> None:
        """Write letters as something else may do it: the value, and headers that are others, or missing where empty."""
        with self.producer.transaction(self.consumer) as txn:
            for letter in letters:
                value, told = letter if isinstance(letter, tuple) else (letter, {})
                of_the_letter = {"eos.error": "bad", "eos.topic": SOURCE, "eos.partition": "0", "eos.offset": "1"}
                headers = {**told, **of_the_letter, **told}
                txn.produce(DEAD, value, headers={name: text for name, text in headers.items() if text})

    def values(self, topic: str = SOURCE) -> list[Any]:
        return self.cluster.values(topic)


def test_letters_go_back_to_their_partition_as_the_records_that_they_were():
    redrive = RedriveStage(*[b"a"] * 5, partitions=2)
    redrive.fail(*[b"b"] * 5, partition=1)
    tally = redrive.run()
    assert dict(tally.sent) == {SOURCE: 10}
    records = redrive.cluster.read(SOURCE)  # partition by partition
    assert [record.value for record in records] == [b"a"] * 10 + [b"b"] * 10
    before, after = records[0:5] + records[10:15], records[5:10] + records[15:20]
    assert [(r.value, r.key, r.timestamp_ms) for r in after] == [(r.value, r.key, r.timestamp_ms) for r in before]
    assert dict(after[0].headers) == {
        "eos.redrives": b"1",
        "eos.redriven.origin": b"orders[0]@0",
        "eos.redriven.error": b"ValueError: bad",
    }


def test_a_history_has_the_bytes_that_the_letter_had():
    redrive = RedriveStage()
    history = {"eos.redrives": b"3", "eos.redriven.origin": b"orders\xff[1]@2"}
    redrive.write_letters((b"a", {**history, "eos.error": b"no \xff\0text"}))
    assert dict(redrive.run().sent) == {SOURCE: 1}
    (record,) = redrive.cluster.read(SOURCE)
    assert dict(record.headers) == {**history, "eos.redrives": b"4", "eos.redriven.error": b"no \xff\0text"}


def test_a_second_run_sends_nothing_twice():
    redrive = RedriveStage(b"a", b"b")
    redrive.run()
    assert dict(redrive.run().sent) == {}
    assert redrive.values() == [b"a", b"b"] * 2


def test_a_record_that_fails_again_tells_its_history_and_is_not_sent_in_the_same_run():
    redrive = RedriveStage(b"a")
    last = redrive.cluster.read(DEAD)[-1].offset
    redrive.run()
    redrive.fail_again(1, "worse")
    assert dict(redrive.run(last=last).sent) == {}, "it ends where the letters ended when it began"
    _first, letter = redrive.cluster.read(DEAD)
    headers = dict(letter.headers)
    assert (headers["eos.redrives"], headers["eos.redriven.error"]) == (b"1", b"ValueError: bad")
    assert (headers["eos.error"], headers["eos.offset"]) == (b"ValueError: worse", b"1")
    assert dict(redrive.run().sent) == {SOURCE: 1}
    headers = dict(redrive.cluster.read(SOURCE)[-1].headers)
    assert (headers["eos.redrives"], headers["eos.redriven.origin"]) == (b"2", b"orders[0]@0")
    assert headers["eos.redriven.error"] == b"ValueError: worse"


def test_letters_go_to_the_topic_that_is_named():
    redrive = RedriveStage(b"a")
    assert dict(redrive.run(target=SINK).sent) == {SINK: 1}
    assert redrive.values(SINK) == [b"a"]


def test_a_limit_is_kept_to_the_letter_and_the_next_run_goes_on_behind_it():
    redrive = RedriveStage(b"a", b"b", b"c", b"d", b"e")
    assert dict(redrive.run(count_max=2).sent) == {SOURCE: 2}
    assert redrive.values()[5:] == [b"a", b"b"]
    assert dict(redrive.run().sent) == {SOURCE: 3}
    assert redrive.values()[5:] == [b"a", b"b", b"c", b"d", b"e"]


def test_letters_that_do_not_match_are_kept_unchanged_for_a_later_run():
    redrive = RedriveStage(b"a", b"b")
    redrive.fail(b"c", error="no route to host")
    before = [(r.value, r.key, r.headers, r.timestamp_ms) for r in redrive.cluster.read(DEAD)]
    tally = redrive.run(match="no route")
    assert (dict(tally.sent), tally.kept) == ({SOURCE: 1}, 2)
    assert redrive.values()[3:] == [b"c"]
    assert [(r.value, r.key, r.headers, r.timestamp_ms) for r in redrive.cluster.read(DEAD)[3:]] == before[:2]
    assert dict(redrive.run().sent) == {SOURCE: 2}
    assert redrive.values()[3:] == [b"c", b"a", b"b"]


def test_a_letter_without_its_value_is_refused_by_name_and_stays_and_the_others_go():
    redrive = RedriveStage(b"a")
    with redrive.producer.transaction(redrive.consumer) as txn:
        txn.produce(DEAD, b"", headers={"eos.topic": SOURCE, "eos.omitted": "value"})
    redrive.fail(b"b")
    tally = redrive.run()
    assert dict(tally.sent) == {SOURCE: 2}
    (why,) = tally.not_sent
    assert why.startswith("the letter at orders.dead[0]@2 stays: it lacks the record's value, which did not")
    assert redrive.values(DEAD)[-1:] == [b""]
    assert len(redrive.run().not_sent) == 1, "whoever runs it again is told again"


@pytest.mark.parametrize("options", [{}, {"match": "no such error"}, {"target": SINK}])
def test_a_record_that_is_no_letter_is_named_and_neither_sent_nor_written_again(options: dict[str, Any]):
    redrive = RedriveStage()
    redrive.write_letters(b"a", (b"no letter", {"eos.topic": ""}), b"b")
    redrive.cluster.write(DEAD, [b"order"])
    tally = redrive.run(**options)
    assert (tally.sent.total(), tally.kept) == ((0, 2) if "match" in options else (2, 0))
    first, second = tally.not_sent
    assert first == "the record at orders.dead[0]@1 is no dead letter: it has no header eos.topic"
    assert "the record at orders.dead[0]@4" in second, "a marker lies before it"
    assert [redrive.values(DEAD).count(value) for value in (b"no letter", b"order")] == [1, 1]
    assert not {b"no letter", b"order"} & {*redrive.values(SOURCE), *redrive.values(SINK)}


def test_a_letter_that_the_target_does_not_take_stays():
    redrive = RedriveStage(b"a")
    tally = redrive.run(target="no such topic")
    (why,) = tally.not_sent
    assert "the name of a topic has" in why
    assert redrive.values(DEAD) == [b"a", b"a"]


def test_what_an_abort_takes_back_is_sent_once_and_counted_once():
    redrive = RedriveStage(b"a", b"b", b"c")
    redrive.cluster.refuse("TxnOffsetCommit", "ILLEGAL_GENERATION")
    with capture_logs() as logged:
        assert dict(redrive.run(count_max=2).sent) == {SOURCE: 2}
    (aborted,) = [entry for entry in logged if entry["event"] == "transaction_aborted"]
    assert "ILLEGAL_GENERATION" in aborted["reason"]
    assert redrive.values()[3:] == [b"a", b"b"]


def test_a_run_whose_transactions_are_always_aborted_ends_with_the_reason():
    redrive = RedriveStage(b"a")
    for _ in range(12):
        redrive.cluster.refuse("TxnOffsetCommit", "ILLEGAL_GENERATION")
    with pytest.raises(ClusterUnavailableError, match="10 transactions in a row were aborted"):
        redrive.run()
    assert redrive.values() == [b"a"]


def test_a_run_that_is_stopped_leaves_the_rest_to_the_next():
    redrive = RedriveStage(b"a")
    assert dict(redrive.run(stop_after=0).sent) in ({}, {SOURCE: 1})
    redrive.run()
    assert redrive.values() == [b"a", b"a"]


@pytest.mark.parametrize(
    "settings", [{"auto.offset.reset": "latest"}, {"default.topic.config": {"auto.offset.reset": "end"}}]
)
def test_settings_of_a_job_neither_skip_the_first_letters_nor_keep_large_ones_out(settings: Any):
    config = client_config(
        RedriveOptions(
            bootstrap_servers="localhost:9092",
            topic=DEAD,
            group_id="redrive",
            settings={"message.max.bytes": "2000", **settings},
        )
    )
    assert config.consumer_config()["auto.offset.reset"] == "earliest"
    producer = Producer(config.producer_config())
    try:
        producer.produce(DEAD, b"x" * 20_000_000)
    finally:
        producer.purge()


def test_both_clients_of_a_run_report_that_a_broker_makes_them_wait():
    config = client_config(RedriveOptions(bootstrap_servers="localhost:9092", topic=DEAD, group_id="redrive"))
    assert config.consumer_config()["throttle_cb"] is config.producer_config()["throttle_cb"] is log_throttling


def beside_a_topic_for_small_records() -> RedriveStage:
    """A stage whose topic ``SMALL`` takes batches of 2,000 bytes."""
    redrive = RedriveStage()
    redrive.cluster.brokers.settings = BrokerSettings(message_max_bytes=2000)
    redrive.cluster.create_topic(SMALL)
    return redrive


def test_letters_that_the_broker_refuses_are_named_and_the_others_go():
    redrive = beside_a_topic_for_small_records()
    good, bad = [b"%d" % n for n in range(600)], b"x" * 3000
    redrive.write_letters(*good[:3], bad, *good[3:550], bad, bad, *good[550:])
    tally = redrive.run(target=SMALL)
    assert dict(tally.sent) == {SMALL: 600}
    assert redrive.values(SMALL) == good
    assert [why.split(" stays: ")[0] for why in tally.not_sent] == [
        f"the letter at orders.dead[0]@{offset}" for offset in (3, 551, 552)
    ]
    assert all(f"the output to {SMALL}[0]: MSG_SIZE_TOO_LARGE" in why for why in tally.not_sent)
    assert redrive.values(DEAD)[603:] == [bad] * 3


def test_letters_that_the_broker_refuses_only_together_all_go():
    redrive = beside_a_topic_for_small_records()
    values = [b"%d" % n * 300 for n in range(9)]
    redrive.write_letters(*values)
    assert dict(redrive.run(target=SMALL).sent) == {SMALL: 9}
    assert redrive.values(SMALL) == values


def test_letters_that_their_own_topic_takes_only_one_by_one_are_all_kept():
    redrive = RedriveStage()
    redrive.cluster.brokers.settings = BrokerSettings(message_max_bytes=2000)
    redrive.cluster.create_topic(SMALL, partitions=2)
    headers = {"eos.topic": SOURCE, "eos.partition": "0", "eos.offset": "1", "eos.error": "bad"}
    for n in range(8):
        with redrive.producer.transaction(redrive.consumer) as txn:
            txn.produce(SMALL, b"%d" % n * 1400, partition=n % 2, headers={**headers, "eos.offset": str(n)})
    tally = redrive.run(topic=SMALL, match="no such error")
    assert tally.kept == 8
    assert len(redrive.values(SMALL)) == 16


def test_a_letter_that_can_be_neither_sent_nor_kept_is_named():
    redrive = RedriveStage(b"a")
    redrive.cluster.refuse("Produce", "INVALID_RECORD")
    with pytest.raises(ClusterUnfitError, match=r"the letter at orders.dead\[0\]@0 .*INVALID_RECORD"):
        redrive.run(match="no such error")
    assert redrive.values(DEAD) == [b"a"]


def test_a_refusal_that_is_told_between_two_letters_of_a_transaction_is_as_good(monkeypatch: pytest.MonkeyPatch):
    redrive = RedriveStage(b"a", b"b", b"c")

    def slowly(_letter: Any) -> str:
        redrive.cluster.advance(1.0)
        return "bad"

    monkeypatch.setattr("eos_client.cli.redrive.error_of", slowly)
    redrive.cluster.refuse("Produce", "INVALID_RECORD")
    assert dict(redrive.run(match="bad").sent) == {SOURCE: 3}
    assert redrive.values()[3:] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("option", "name"), [("topic", "__consumer_offsets"), ("topic", "^orders"), ("target", "a b"), ("target", "__x")]
)
def test_a_name_that_no_topic_of_records_has_is_a_wrong_command_line(option: str, name: str):
    asked: dict[str, Any] = {"topic": DEAD, option: name}
    with pytest.raises(CommandLineError, match=re.escape(repr(name))):
        redrive_letters(RedriveOptions(bootstrap_servers="127.0.0.1:1", group_id="redrive", **asked))


def test_whatever_ends_a_run_says_what_was_sent_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    redrive = RedriveStage()
    redrive.write_letters(b"sent", b"kept")

    def error_of(letter: Any) -> str:
        if letter.value() == b"kept":
            redrive.cluster.advance(1.0)  # the letter before it is written by now
            redrive.cluster.refuse("Produce", "INVALID_RECORD")
        return str(letter.value())

    parts = {
        "error_of": error_of,
        "_last_letters": lambda *_: ({0: 1}, 0),
        "EosConsumer": lambda *_, **__: redrive.stage.consumer(group_id="redrive"),
        "EosProducer": lambda *_, **__: redrive.stage.producer(delivery_report_only_error=True),
    }
    for name, part in parts.items():
        monkeypatch.setattr(f"eos_client.cli.redrive.{name}", part)
    with capture_logs(), pytest.raises(ClusterUnfitError, match="cannot be kept"):
        redrive_letters(RedriveOptions(bootstrap_servers="simulated", topic=DEAD, group_id="redrive", match="sent"))
    assert capsys.readouterr().out == f"1 sent to {SOURCE}\n"


def test_a_run_whose_letters_another_run_has_passed_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    redrive = RedriveStage(b"a")
    redrive.run(match="no such error")
    parts = {
        "_last_letters": lambda *_: ({0: 0}, 0),  # as the run has found it before the other one began
        "EosConsumer": lambda *_, **__: redrive.stage.consumer(group_id="redrive"),
        "EosProducer": lambda *_, **__: redrive.stage.producer(delivery_report_only_error=True),
    }
    for name, part in parts.items():
        monkeypatch.setattr(f"eos_client.cli.redrive.{name}", part)
    redrive_letters(RedriveOptions(bootstrap_servers="simulated", topic=DEAD, group_id="redrive"))
    said = capsys.readouterr().out
    assert "another run of the group redrive has passed the letters" in said
    assert "no letter" not in said


def test_a_run_that_waits_for_another_member_of_its_group_says_so_once(capsys: pytest.CaptureFixture[str]):
    redrive = RedriveStage(b"a")
    other = redrive.stage.consumer(group_id="redrive")
    other.subscribe([DEAD])
    redrive.stage.collect(other, 1)
    assert dict(redrive.run(stop_after=50).sent) == {}
    said = "waits for partitions [0] of orders.dead, which another member of the group redrive holds"
    assert capsys.readouterr().err.count(said) == 1
    other.close()
    assert dict(redrive.run().sent) == {SOURCE: 1}
    assert capsys.readouterr().err == ""


def killed_before_its_commit(redrive: RedriveStage, timeout_s: int) -> None:
    """A run that has sent its offsets, in a transaction of ``timeout_s``, and is killed."""
    consumer = redrive.stage.consumer(group_id="redrive", client_id="killed")
    timeout_ms = str(timeout_s * 1000)
    producer = redrive.stage.producer(transactional_id="killed", transaction_timeout_ms=timeout_ms, client_id="killed")
    consumer.subscribe([DEAD])
    redrive.stage.collect(consumer, 1)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(DEAD, 0, 1)], consumer.consumer_group_metadata())
    redrive.cluster.kill("killed")


def test_a_run_after_one_that_was_killed_waits_for_its_member_and_its_transaction_and_says_so(
    capsys: pytest.CaptureFixture[str],
):
    redrive = RedriveStage(b"a")
    killed_before_its_commit(redrive, timeout_s=80)
    assert dict(redrive.run().sent) == {SOURCE: 1}
    first, second = capsys.readouterr().err.splitlines()
    assert "waits for partitions [0] of orders.dead, which another member of the group redrive holds" in first
    assert "waits for a transaction with offsets of the group redrive that is still open" in second
    assert redrive.values() == [b"a", b"a"]


def test_a_transaction_that_stays_open_for_longer_than_one_of_its_own_may_is_named():
    redrive = RedriveStage(b"a")
    killed_before_its_commit(redrive, timeout_s=900)
    with pytest.raises(
        ClusterUnavailableError, match=r"the group redrive has not answered .* transaction .* still open"
    ):
        redrive.run()
    assert redrive.values() == [b"a"]


def letter_of_a_letter(redrive: RedriveStage, topic: str, **own: str) -> None:
    """Write the letter of a worker that has failed with the letter that something of its own had written."""
    redrive.cluster.create_topic(topic)
    redrive.write_letters((b"a", own))
    worker = redrive.stage.consumer(group_id=f"worker of {topic}")
    worker.subscribe([DEAD])
    with redrive.producer.transaction(worker) as txn:
        (letter,) = redrive.stage.collect(worker, 1)
        txn.dead_letter(letter, ValueError("worse"), topic=topic)
    worker.close()


@pytest.mark.parametrize(
    "more", [{}, {"eos.omitted": "value", "eos.value.bytes": "7"}], ids=["whole", "without its value"]
)
def test_a_letter_of_a_letter_goes_back_as_the_letter_that_it_was(more: dict[str, str]):
    redrive = RedriveStage()
    letter_of_a_letter(redrive, "dead2", mine="1", **more)
    (own, *_rest) = [record.headers for record in redrive.cluster.read(DEAD)]
    assert dict(redrive.run(topic="dead2").sent) == {DEAD: 1}
    headers = redrive.cluster.read(DEAD)[-1].headers
    assert headers[: len(own)] == own
    assert dict(headers[len(own) :])["eos.redriven.error"] == b"ValueError: worse"
    sent = redrive.run(topic=DEAD)
    if more:
        assert all("it lacks the record's value" in why for why in sent.not_sent)
        return
    assert dict(sent.sent) == {SOURCE: 2}
    assert redrive.cluster.read(SOURCE)[1].headers == redrive.cluster.read(SOURCE)[0].headers, "one level is gone"


NO_NUMBERS = ["-1", "abc", "99999999999", "\u0661", "1_0", " 1 ", "9" * 5000]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        *(("eos.topic", name) for name in ("a/b", "..", "x" * 300, "t\u00ebst", "nl\nx", "__consumer_offsets")),
        *(("eos.partition", number) for number in (*NO_NUMBERS, "")),
        *(("eos.redrives", number) for number in NO_NUMBERS),
        *(("eos.timestamp", number) for number in ("abc", "9" * 5000, "0", "-5")),
    ],
)
def test_a_letter_with_a_header_that_cannot_be_meant_is_named_and_the_others_go(header: str, value: str):
    redrive = RedriveStage()
    redrive.write_letters(b"a", (b"bad", {header: value}), b"b")
    tally = redrive.run()
    assert dict(tally.sent) == {SOURCE: 2}
    (why,) = tally.not_sent
    assert why.startswith("the letter at orders.dead[0]@1 stays: ")
    assert header in why
    assert not value or repr(value)[:50] in why
    assert len(why) < 1000


def test_a_letter_without_a_partition_goes_to_a_topic_that_is_named():
    redrive = RedriveStage()
    redrive.write_letters((b"a", {"eos.partition": "", "eos.topic": "a/b"}))
    assert dict(redrive.run(target=SINK).sent) == {SINK: 1}


def test_what_a_letter_does_not_tell_of_its_origin_is_a_question_mark():
    redrive = RedriveStage()
    redrive.write_letters((b"a", {"eos.offset": ""}))
    redrive.run()
    assert dict(redrive.cluster.read(SOURCE)[-1].headers)["eos.redriven.origin"] == b"orders[0]@?"


@pytest.mark.parametrize("target", [None, DEAD])
def test_a_letter_is_not_sent_to_the_topic_of_the_letters_where_it_would_be_none_any_more(target: str | None):
    redrive = RedriveStage()
    redrive.write_letters((b"a", {"eos.topic": DEAD}))
    (why,) = redrive.run(target=target).not_sent
    assert "orders.dead is the topic of the letters itself" in why
    before, after = redrive.cluster.read(DEAD)
    assert after.headers == before.headers


@pytest.mark.parametrize("none", ["-1", ""])
def test_a_record_without_a_timestamp_of_its_own_gets_the_time_at_which_it_is_sent(none: str):
    redrive = RedriveStage()
    redrive.write_letters((b"a", {"eos.timestamp": none}))
    assert dict(redrive.run().sent) == {SOURCE: 1}
    (letter,), (sent,) = redrive.cluster.read(DEAD), redrive.cluster.read(SOURCE)
    assert sent.timestamp_ms >= letter.timestamp_ms > 1


def test_only_topics_that_letters_can_go_to_must_be_there():
    names = ["", "a/b", "__consumer_offsets", "orders", "gone"]
    assert [name for name in names if can_be_sent_to(name)] == ["orders", "gone"]


def test_a_clock_that_is_wrong_ends_the_run_and_the_next_one_sends_the_letters():
    redrive = RedriveStage(settings=BrokerSettings(log_message_timestamp_after_max_s=3600))
    redrive.write_letters(b"a", b"b")
    redrive.cluster.after(0.01, lambda: redrive.cluster.set_clock_ahead(7200, "redrive-0"))
    with pytest.raises(ClusterUnfitError, match="this host's clock"):
        redrive.run()
    assert redrive.values() == []
    assert dict(redrive.run().sent) == {SOURCE: 2}
    assert redrive.values() == [b"a", b"b"]


def test_letters_that_a_client_quota_holds_back_go_in_smaller_transactions():
    redrive = RedriveStage(settings=BrokerSettings(message_max_bytes=1_000_000))
    values = [b"%d " % n + b"x" * 10_000 for n in range(400)]
    redrive.write_letters(*values)
    redrive.cluster.advance(10.0)
    redrive.cluster.brokers.settings = BrokerSettings(producer_byte_rate=200_000)
    assert dict(redrive.run(target=SINK).sent) == {SINK: 400}
    assert redrive.values(SINK) == values
    assert len(redrive.stage.named("transaction_aborted")) < 5
