"""Outputs for partitions that the cluster has and the client does not know, because its metadata are older."""

from itertools import cycle

import pytest

from eos_client import EosConsumer, EosProducer, OutputRecord
from eos_client.core.model import Outcome
from eos_client.errors import AbortableError, OutputRefusedError
from eos_client.observe import RecordDeadLettered, RecordSkipped, TransactionAborted
from tests.loop.bench import BROKERS, LETTERS, Bench, numbers

ADDED_AT = 5
POLICIES = [{"on_error": "stop"}, {"on_error": "skip"}, LETTERS]


class Metadata:
    """What a simulated producer knows of `invoices` until it asks: one partition, while the cluster has four.

    ``is_late``: the producer knows nothing at first, takes the output, and its delivery report refuses it.
    """

    def __init__(self, link, *, is_late):
        self.clock, self.random, self.brokers, self._brokers = link.clock, link.random, self, link.brokers
        self._known = cycle([0, 1] if is_late else [1])
        self.is_fresh = True

    def partition_count(self, topic):
        return next(self._known) if topic == "invoices" and not self.is_fresh else self._brokers.partition_count(topic)


class Library:
    """The clients of a simulated cluster, with a producer whose metadata age when the test says so."""

    def __init__(self, cluster, *, is_late=False):
        self.clock, self.consumer, self._cluster = cluster.clock, cluster.consumer, cluster
        self._is_late = is_late
        self.questions = 0

    def producer(self, config):
        made = self._cluster.producer(config)
        placing, list_topics = made._background.placing, made.list_topics
        self.metadata = placing._link = Metadata(placing._link, is_late=self._is_late)

        def ask(topic=None, timeout=-1.0):
            self.questions += 1
            answer = list_topics(topic, timeout)
            self.metadata.is_fresh = True
            return answer

        made.list_topics = ask
        return made


class Work(Bench):
    """A loop that copies ten orders, the last five to partition `target`, where `added` is done first."""

    def __init__(self, cluster, *, is_late=False, target=3, added=lambda: None, **options):
        self.library = Library(cluster, is_late=is_late)
        super().__init__(cluster, self.transform, output_partitions=4, clients=self.library, **options)
        self.target, self.added, self.is_added = target, added, False

    def transform(self, record):
        if int(record.value()) < ADDED_AT:
            return [OutputRecord(value=record.value(), partition=0)]
        if not self.is_added:
            self.is_added, self.library.metadata.is_fresh, self.library.questions = True, False, 0
            self.added()
        return [OutputRecord(value=record.value(), partition=self.target)]


ALL = numbers(2 * ADDED_AT)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["on_error"])
def test_an_output_for_a_new_partition_is_written_whatever_on_error_says(simulated_cluster, policy):
    work = Work(simulated_cluster, **policy)
    assert work.run_all(ALL) == ALL
    assert work.events(RecordSkipped, RecordDeadLettered, TransactionAborted) == []
    assert work.library.questions == 1
    assert simulated_cluster.values("letters") == []


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["on_error"])
def test_a_delivery_report_that_knows_no_such_partition_only_repeats_the_transaction(simulated_cluster, policy):
    work = Work(simulated_cluster, is_late=True, **policy)
    assert work.run_all(ALL) == ALL
    assert work.events(RecordSkipped, RecordDeadLettered) == []
    assert 1 <= len(work.events(TransactionAborted)) <= 3
    assert simulated_cluster.values("letters") == []


@pytest.mark.parametrize("is_late", [False, True], ids=["by the call", "by its report"])
def test_a_partition_that_the_cluster_does_not_have_is_refused_as_it_always_was(simulated_cluster, is_late):
    work = Work(simulated_cluster, is_late=is_late, target=9, on_error="skip")
    assert work.run_all(ALL) == ALL[:ADDED_AT]
    assert {event.offset for event in work.events(RecordSkipped)} == set(range(ADDED_AT, 2 * ADDED_AT))
    assert all("Unknown partition" in event.error for event in work.events(RecordSkipped))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["on_error"])
def test_a_cluster_that_does_not_answer_is_no_failure_of_the_record(simulated_cluster, policy):
    work = Work(simulated_cluster, added=lambda: simulated_cluster.lose_request("Metadata"), **policy)
    assert work.run_all(ALL) == ALL
    assert work.events(RecordSkipped, RecordDeadLettered) == []
    (aborted,) = work.events(TransactionAborted)
    assert "the client does not know partition 3 of topic 'invoices', and no broker has said" in aborted.reason


class Clients:
    """A consumer and a producer whose metadata are as old as a block, with one order read."""

    def __init__(self, cluster):
        self.library = Library(cluster)
        cluster.create_topic("orders")
        cluster.create_topic("invoices", 4)
        self.consumer = EosConsumer(
            {**BROKERS, "group.id": "billing"}, factory=self.library.consumer, clock=cluster.clock
        )
        self.producer = EosProducer(BROKERS, factory=self.library.producer, clock=cluster.clock)
        self.consumer.subscribe(["orders"])
        self.producer.init_transactions()
        cluster.write("orders", [b"0"])

    def age(self):
        self.library.metadata.is_fresh, self.library.questions = False, 0


@pytest.mark.parametrize("writer", ["txn", "producer"])
def test_a_block_asks_the_cluster_before_it_refuses_an_output(simulated_cluster, writer):
    clients = Clients(simulated_cluster)
    with clients.producer.transaction(clients.consumer) as txn:
        clients.consumer.consume(1, 10.0)
        clients.age()
        write = txn.produce if writer == "txn" else clients.producer.produce
        write("invoices", b"new", partition=3)
        assert clients.library.questions == 1
        with pytest.raises(OutputRefusedError, match=r"partition 9, 3 bytes\) cannot be written: .*_UNKNOWN_PARTITION"):
            write("invoices", b"not", partition=9)
    assert txn.outcome is Outcome.COMMITTED
    assert simulated_cluster.values("invoices") == [b"new"]


def test_a_block_ends_as_aborted_when_nobody_says_whether_there_is_the_partition(simulated_cluster):
    clients = Clients(simulated_cluster)
    with clients.producer.transaction(clients.consumer) as txn:
        clients.consumer.consume(1, 10.0)
        clients.age()
        simulated_cluster.lose_request("Metadata")
        txn.produce("invoices", b"new", partition=3)
    assert txn.outcome is Outcome.ABORTED
    assert "no broker has said within 4 s whether there is one" in txn.reason


def test_outside_of_a_block_produce_asks_nobody_as_confluent_kafkas(simulated_cluster):
    clients = Clients(simulated_cluster)
    clients.producer.begin_transaction()
    clients.age()
    with pytest.raises(OutputRefusedError):
        clients.producer.produce("invoices", b"new", partition=3)
    assert clients.library.questions == 0


def test_a_delivery_callback_cannot_ask_so_its_output_is_refused(simulated_cluster):
    clients = Clients(simulated_cluster)
    refused = []

    def on_delivery(_error, _message):
        clients.age()
        with pytest.raises(OutputRefusedError) as caught:
            clients.producer.produce("invoices", b"new", partition=3)
        refused.append(caught.value)

    with clients.producer.transaction(clients.consumer):
        clients.consumer.consume(1, 10.0)
        clients.producer.produce("invoices", b"0", partition=0, on_delivery=on_delivery)
        clients.producer.flush(10.0)
    assert len(refused) == 1
    assert clients.library.questions == 0
    assert simulated_cluster.values("invoices") == [b"0"]


def test_a_client_that_knows_no_better_after_the_answer_repeats_the_transaction(simulated_cluster, monkeypatch):
    clients = Clients(simulated_cluster)
    with clients.producer.transaction(clients.consumer) as txn:
        clients.consumer.consume(1, 10.0)
        clients.age()
        monkeypatch.setattr(Metadata, "is_fresh", property(lambda _: False, lambda *_: None), raising=False)
        with pytest.raises(AbortableError, match="the client does not know its partition yet"):
            txn.produce("invoices", b"new", partition=3)
    assert txn.outcome is Outcome.ABORTED
