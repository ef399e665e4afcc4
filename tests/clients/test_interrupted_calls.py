"""Whatever a callback raises, and wherever an asynchronous exception strikes: the next record is the first unseen."""

from contextlib import suppress

import pytest
from confluent_kafka import TopicPartition

from eos_client import EosConsumer, EosProducer, Outcome
from eos_client.errors import TransactionStateError
from eos_client.testing.simulator import SimulatedCluster
from tests.clients.struck_steps import StrikeError, strides, struck_calls, struck_runs
from tests.support.protocols import BY_COORDINATOR

PARTITIONS, EACH = 2, 40
EVERY_STEP = 3989
"""One step in so many is struck: a prime, so that the steps of one round are not always the same."""


class ReadingApplication:
    """One consumer of one topic, an application that goes on after every exception, and what it was given."""

    def __init__(self, factory=lambda client: client, **settings):
        self.cluster = SimulatedCluster(seed=5)
        self.cluster.create_topic("in", PARTITIONS)
        for partition in range(PARTITIONS):
            self.write(EACH, partition)
        self.seen: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.raised = []
        given = {k.replace("_", ".") if not k.endswith("_cb") else k: v for k, v in settings.items()}
        self.consumer = EosConsumer(
            {"bootstrap.servers": "simulated", "group.id": "g", "auto.offset.reset": "earliest", **given},
            factory=factory(self.cluster.consumer),
            clock=self.cluster.clock,
            hook=lambda _: None,
        )
        self.subscribes()

    def subscribes(self):
        self.consumer.subscribe(["in"])

    def write(self, number, partition):
        self.cluster.write("in", [b"v"] * number, partition=partition)

    def take(self, messages):
        for message in messages:
            assert message.error() is None
            self.seen[message.partition()].append(message.offset())

    def does(self, *acts):
        """Do each of ``acts``; the application survives what they raise."""
        for act in acts:
            self._does(act)

    def _does(self, act):
        try:
            act()
        except (StrikeError, OwnError, TransactionStateError) as error:
            self.raised.append(error)

    def consumes(self, number, timeout=0.05):
        def act():
            batch = self.consumer.consume(number, timeout)
            self.take(batch)

        return act

    def polls(self):
        message = self.consumer.poll(0.05)
        if message is not None:
            self.take([message])

    def reads_to_the_end(self):
        for _ in range(200):
            if all(len(offsets) >= EACH for offsets in self.seen.values()):
                break
            self.does(self.consumes(7))
        self.does(self.consumes(7), self.consumes(7))

    def is_gapless(self):
        return all(offsets == list(range(EACH)) for offsets in self.seen.values())


class OwnError(Exception):
    """What the application raises in its callback."""


def every_way_to_fetch(reader):
    """Everything that takes records from the client library, or changes which of them comes next."""
    consumer = reader.consumer
    reader.does(reader.polls, reader.consumes(3), reader.polls)
    reader.does(
        consumer.adapter.fetching.prefetch,
        reader.consumes(2),
        lambda: consumer.adapter.fetching.serve_callbacks(drain=True),
        reader.polls,
    )
    reader.does(
        lambda: consumer.adapter.fetching.wait_while_paused(0.05),
        consumer.adapter.fetching.serve_callbacks,
        reader.consumes(4),
    )
    reader.does(reader.consumes(5), reader.polls, lambda: consumer.commit(asynchronous=False), reader.consumes(3))
    assert committed_is_seen(reader)
    reader.does(lambda: consumer.position([TopicPartition("in", p) for p in range(PARTITIONS)]), reader.consumes(3))


def committed_is_seen(reader):
    committed = reader.cluster.committed("g")
    return all(offset <= len(reader.seen[key.partition]) for key, offset in committed.items())


@strides(EVERY_STEP)
@pytest.mark.parametrize("protocol", BY_COORDINATOR)
def test_wherever_an_exception_strikes_the_next_record_is_the_first_that_was_not_handed_over(protocol, first):
    def fetched(strike, steps=None):
        reader = ReadingApplication(group_protocol=protocol)
        with strike.armed(steps):
            every_way_to_fetch(reader)
        return reader

    for reader, strike in struck_runs(fetched, EVERY_STEP, first=first):
        reader.reads_to_the_end()
        assert reader.is_gapless(), f"step {strike.number}, {strike.struck}: {reader.seen}"


@pytest.mark.parametrize("protocol", BY_COORDINATOR)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_whichever_call_of_the_library_is_struck_no_record_is_lost_or_doubled(protocol, after):
    def made(strike):
        return ReadingApplication(factory=strike.around, group_protocol=protocol)

    for reader, strike in struck_calls(made, after=after, calls_min=20):
        every_way_to_fetch(reader)
        reader.reads_to_the_end()
        assert reader.is_gapless(), f"call {strike.number}, {strike.struck}: {reader.seen}"


class ByHand:
    """A consumer with `latest` that assigns an empty log by hand; what it was given while that was being written."""

    def __init__(self):
        self.cluster = SimulatedCluster(seed=5)
        self.cluster.create_topic("in")
        settings = {"bootstrap.servers": "simulated", "group.id": "g", "auto.offset.reset": "latest"}
        self.consumer = EosConsumer(settings, factory=self.cluster.consumer, clock=self.cluster.clock)
        self.consumer.assign([TopicPartition("in", 0)])
        for number in range(20):
            self.cluster.after(0.05 * number, lambda: self.cluster.write("in", [b"v"]))
        self.seen = []

    def reads(self, times):
        for _ in range(times):
            with suppress(StrikeError):
                self.seen += [message.offset() for message in self.consumer.consume(5, 0.05)]


def test_a_struck_consumer_that_assigned_by_hand_does_not_look_up_another_end_of_the_log():
    def read(strike, steps=None):
        by_hand = ByHand()
        with strike.armed(steps):
            by_hand.reads(1)
        return by_hand

    for by_hand, strike in struck_runs(read, 11):
        by_hand.reads(25)
        assert by_hand.seen == list(range(20)), f"step {strike.number}, {strike.struck}"


@pytest.mark.parametrize("protocol", BY_COORDINATOR)
@pytest.mark.parametrize("kind", ["stats_cb", "error_cb", "throttle_cb"])
def test_what_a_callback_raises_costs_no_record(protocol, kind):
    errors: list[OwnError] = []

    def callback(_):
        errors.append(OwnError(len(errors)))
        raise errors[-1]

    reader = ReadingApplication(group_protocol=protocol, statistics_interval_ms=10, **{kind: callback})
    for step in (0.01, 0.02, 0.03, 0.3):
        reader.cluster.after(step, lambda: reader.cluster.report_error("_TRANSPORT"))
        reader.cluster.after(step, lambda: reader.cluster.report_throttle(0.1))
    every_way_to_fetch(reader)
    reader.reads_to_the_end()
    assert reader.is_gapless()
    assert reader.raised
    assert all(any(raised is error for error in errors) for raised in reader.raised)


class Copying:
    """An application that copies topic to topic in blocks, and goes on after every exception."""

    def __init__(self, on_delivery=None, producer_factory=lambda client: client, **settings):
        self.reader = ReadingApplication(**settings)
        reports = {} if on_delivery is None else {"on_delivery": on_delivery}
        cluster = self.reader.cluster
        cluster.create_topic("out")
        self.producer = EosProducer(
            {"bootstrap.servers": "simulated", "transactional.id": "t", **reports},
            factory=producer_factory(cluster.producer),
            clock=cluster.clock,
            hook=lambda _: None,
        )
        self.producer.init_transactions()
        self.reader.consumer.adapter.fetching.wait_while_paused(0.05)  # so that there is a group to rebalance

    def block(self, number=6):
        self.txn = self.producer.transaction(self.reader.consumer)
        with self.txn:
            for message in self.reader.consumer.consume(number, 0.05):
                self.txn.produce("out", f"{message.partition()}:{message.offset()}")

    def story(self):
        self.reader.does(self.block, self.block)
        self.reader.cluster.rebalance()
        self.reader.does(self.block, self.block, self.block)

    def copies_the_rest(self):
        for _ in range(200):
            if len(self.copied()) >= PARTITIONS * EACH:
                break
            self.reader.does(lambda: self.block(20))
        self.reader.does(self.block, self.block)

    def copied(self):
        return self.reader.cluster.values("out")

    def is_exact(self):
        return sorted(self.copied()) == sorted(f"{p}:{n}".encode() for p in range(PARTITIONS) for n in range(EACH))


def test_a_raising_on_delivery_does_not_change_the_outcome_of_a_commit():
    errors: list[OwnError] = []

    def on_delivery(*_):
        errors.append(OwnError(len(errors)))
        raise errors[-1]

    cluster = SimulatedCluster(seed=5)
    cluster.create_topic("out")
    producer = EosProducer(
        {"bootstrap.servers": "simulated", "transactional.id": "t"}, factory=cluster.producer, clock=cluster.clock
    )
    producer.init_transactions()
    for number in range(3):
        producer.begin_transaction()
        producer.produce("out", f"{number}", on_delivery=on_delivery)
        with pytest.raises(OwnError) as raised:
            producer.commit_transaction()
        assert raised.value is errors[-1]
    assert cluster.values("out") == [b"0", b"1", b"2"]


def test_a_block_whose_on_delivery_raises_tells_its_outcome():
    error = OwnError()

    def on_delivery(*_):
        raise error

    copying = Copying(on_delivery=on_delivery)
    with pytest.raises(OwnError) as raised:
        copying.block()
    assert raised.value is error
    assert copying.txn.outcome is Outcome.COMMITTED
    assert len(copying.copied()) == 6
    copying.copies_the_rest()
    assert copying.is_exact()
