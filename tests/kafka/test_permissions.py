"""What a loop must be allowed (docs/how-to/secure-clusters.md), and how it ends without that: nothing is lost."""

import re
from contextlib import ExitStack, closing, suppress
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Message

from eos_client import EosConsumer, EosProducer
from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.failures import exit_code_of
from eos_client.errors import ClusterUnfitError, CommitRefusedError, EosError
from tests.kafka.loop_support import COOPERATIVE, KIP_848, Job, copy
from tests.support.secured_broker import SHORT_CLASSIC_SESSION, Op, Permission, on_group, on_id, on_topic
from tests.support.waiting import WAIT_S, wait_for

NEEDED = {
    "read the input": lambda job: on_topic(job.source, Op.READ),
    "write the output": lambda job: on_topic(job.sink, Op.WRITE),
    "read the group": lambda job: on_group(job.group, Op.READ),
    "write the transactional id": lambda job: on_id(job.transactional_id, Op.WRITE),
}
NAMED = {
    "read the input": "source",
    "write the output": "sink",
    "read the group": "group",
    "write the transactional id": "transactional_id",
}
PROTOCOLS = [
    pytest.param(KIP_848, id="kip848"),
    pytest.param(COOPERATIVE | SHORT_CLASSIC_SESSION, id="cooperative", marks=pytest.mark.soak),
]


@pytest.fixture
def job(secured_broker):
    with Job(secured_broker, partitions=2) as made:
        made.user = f"user-{uuid4().hex[:8]}"
        made.transactional_id = f"id-{uuid4().hex[:8]}"
        yield made


def start(job, broker, *, protocol=KIP_848, **options):
    """A loop as the job's user, who has only what was granted."""
    login = broker.login("OAUTHBEARER", job.user)
    options = {"transactional_id": job.transactional_id, "start_timeout_s": 30.0, **options}
    return job.start(options.pop("transform", copy), kafka={**login, **protocol}, **options)


def assert_refused(job, error, needed):
    assert isinstance(error, ClusterUnfitError), repr(error)
    assert exit_code_of(error) is ExitCode.CLUSTER_UNFIT
    assert getattr(job, NAMED[needed]) in str(error)
    assert re.search(r"[Aa]llow|permission", str(error))


def go_on(job, broker, *granted):
    broker.grant(job.user, *granted)
    running = start(job, broker)
    wait_for(lambda: running.error or job.committed() == job.loaded, "all inputs committed")
    running.stop()
    job.assert_exactly_once()


@pytest.mark.parametrize(
    # test_doctor_and_run.py has a run without each of them.
    "missing",
    [pytest.param(name, marks=[] if name == "read the group" else pytest.mark.soak) for name in NEEDED],
)
def test_a_permission_that_is_missing_at_the_start_is_told_with_its_resource(missing, job, secured_broker):
    secured_broker.grant(job.user, *(each for name in NEEDED if name != missing for each in NEEDED[name](job)))
    job.load(20)
    assert_refused(job, start(job, secured_broker).ended(), missing)
    assert job.values() == []
    assert job.committed() == 0
    go_on(job, secured_broker, *NEEDED[missing](job))


def losses():
    """In each run that of the group under either protocol, and that of the output; blocks have the others."""
    cooperative = COOPERATIVE | SHORT_CLASSIC_SESSION
    for lost in NEEDED:
        of_group = [] if lost == "read the group" else [pytest.mark.soak]
        within = [] if lost in {"read the group", "write the output"} else [pytest.mark.soak]
        yield pytest.param(lost, KIP_848, False, id=f"kip848, between-{lost}", marks=pytest.mark.soak)
        yield pytest.param(lost, KIP_848, True, id=f"kip848, within-{lost}", marks=within)
        yield pytest.param(lost, cooperative, True, id=f"cooperative, within-{lost}", marks=of_group)


@pytest.mark.parametrize(("lost", "protocol", "in_a_transaction"), list(losses()))
def test_a_permission_that_is_taken_away_ends_the_loop_with_its_resource_and_nothing_is_lost(
    lost, protocol, in_a_transaction, job, secured_broker
):
    secured_broker.grant(job.user, *(each for permissions in NEEDED.values() for each in permissions(job)))
    to_take_away: list[Permission] = []

    def transform(record):
        while to_take_away:
            secured_broker.take_away(job.user, to_take_away.pop())
        return [record.value()]

    job.load(20)
    running = start(job, secured_broker, protocol=protocol, transform=transform)
    job.await_committed()
    if in_a_transaction:
        to_take_away += NEEDED[lost](job)
    else:
        secured_broker.take_away(job.user, *NEEDED[lost](job))
    job.load(20)
    assert_refused(job, running.ended(), lost)
    go_on(job, secured_broker, *NEEDED[lost](job))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_idle_member_that_may_not_read_its_group_any_more_names_it(protocol, job, secured_broker):
    secured_broker.grant(job.user, *(each for permissions in NEEDED.values() for each in permissions(job)))
    job.load(20)
    running = start(job, secured_broker, protocol=protocol)
    job.await_committed()
    secured_broker.take_away(job.user, *NEEDED["read the group"](job))
    assert_refused(job, running.ended(), "read the group")
    job.load(20)
    go_on(job, secured_broker, *NEEDED["read the group"](job))


def test_a_member_that_was_given_up_before_a_rewind_names_its_group_all_the_same(job, secured_broker):
    """A later output is refused, so the transaction is aborted. librdkafka refuses the seeks, and an event says why."""
    secured_broker.grant(job.user, *(each for permissions in NEEDED.values() for each in permissions(job)))
    loops: list[Any] = []

    def transform(_record):
        library = loops[0].loop._consumer.adapter.library
        secured_broker.take_away(job.user, *NEEDED["read the group"](job))
        wait_for(lambda: is_given_up(library.raw), "the member is given up")
        return [b"0", b"0" * 2_000_000]

    loops.append(start(job, secured_broker, transform=transform, on_error="skip"))
    job.load(20)
    assert_refused(job, loops[0].ended(), "read the group")
    go_on(job, secured_broker, *NEEDED["read the group"](job))


def is_given_up(consumer):
    with pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=[], asynchronous=False)
    return refused.value.args[0].name() == "_FATAL"


def read_one(login, job):
    """Consume and commit a record as a plain consumer does; raises what it is refused with."""
    with closing(EosConsumer({**login, "group.id": job.group, "auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe([job.source])
        got: list[Message] = []
        wait_for(lambda: got, "a record or an error", lambda: got.extend(consumer.consume(1, 0.2)))
        if got[0].error() is not None:
            raise KafkaException(got[0].error())
        consumer.commit(got[0], asynchronous=False)


def write_one(login, job):
    """Write a record as a producer without transactions does; raises what it is refused with."""
    reports = []
    with closing(EosProducer(login)) as producer:
        producer.produce(job.sink, b"0", on_delivery=lambda error, _: reports.append(error))
        producer.flush(WAIT_S)
    (error,) = reports
    if error is not None:
        raise KafkaException(error)


PLAIN = {
    "a consumer that reads the input": (read_one, "read the input", "read the group"),
    "a consumer that reads in the group": (read_one, "read the group", "read the input"),
    "a producer": (write_one, "write the output", None),
}


@pytest.mark.parametrize("client", PLAIN)
def test_a_client_without_transactions_needs_its_topic_and_its_group(client, job, secured_broker):
    act, missing, granted = PLAIN[client]
    login = secured_broker.login("OAUTHBEARER", job.user)
    job.load(1)
    if granted:
        secured_broker.grant(job.user, *NEEDED[granted](job))
    with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
        act(login, job)
    secured_broker.grant(job.user, *NEEDED[missing](job))
    act(login, job)


def test_an_output_topic_is_named_although_only_the_log_of_the_client_library_names_it(job, secured_broker):
    secured_broker.grant(job.user, *on_topic(job.sink, Op.DESCRIBE), *NEEDED["write the transactional id"](job))
    login = secured_broker.login("OAUTHBEARER", job.user)
    with closing(EosProducer({**login, "transactional.id": job.transactional_id})) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(job.sink, b"0")
        with pytest.raises(ClusterUnfitError, match=f'partition "{job.sink}"'):
            producer.commit_transaction()


# -- taken away from a client that runs ------------------------------------------------------------------------------


class Blocks:
    """A consumer and a producer that copy in ``with`` blocks, as the job's user; a context manager."""

    def __init__(self, job, broker, protocol=KIP_848):
        login = broker.login("OAUTHBEARER", job.user)
        self._job, self._ending = job, ExitStack()
        self._consumer = EosConsumer({**login, **protocol, "group.id": job.group, "auto.offset.reset": "earliest"})
        self._ending.callback(self._consumer.close)
        self._producer = EosProducer({**login, "transactional.id": job.transactional_id})
        self._ending.callback(self._producer.close)
        self.within = lambda: None
        self._consumer.subscribe([job.source])
        self._producer.init_transactions()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ending.close()

    def copy_some(self):
        with self._producer.transaction(self._consumer) as txn:
            for message in self._consumer.consume(100, 0.1):
                self.within()
                txn.produce(self._job.sink, message.value())

    def copy_all(self):
        wait_for(lambda: self._job.committed() == self._job.loaded, "all inputs committed", self.copy_some)


def block_losses():
    for lost in NEEDED:
        within = [pytest.mark.soak] if lost in {"read the group", "write the output"} else []
        yield pytest.param(lost, KIP_848, True, id=f"kip848, within-{lost}", marks=within)
        yield pytest.param(lost, KIP_848, False, id=f"kip848, between-{lost}", marks=pytest.mark.soak)
    cooperative = COOPERATIVE | SHORT_CLASSIC_SESSION
    yield pytest.param("read the group", cooperative, True, id="cooperative, within-read the group")
    between = "cooperative, between-read the group"
    yield pytest.param("read the group", cooperative, False, id=between, marks=pytest.mark.soak)


@pytest.mark.parametrize(("lost", "protocol", "in_a_block"), list(block_losses()))
def test_a_permission_that_is_taken_away_leaves_the_block_with_its_resource_and_nothing_is_lost(
    lost, protocol, in_a_block, job, secured_broker
):
    secured_broker.grant(job.user, *(each for permissions in NEEDED.values() for each in permissions(job)))
    to_take_away = list(NEEDED[lost](job))

    def take_away():
        while to_take_away:
            secured_broker.take_away(job.user, to_take_away.pop())

    job.load(20)
    with Blocks(job, secured_broker, protocol) as blocks:
        blocks.copy_all()
        if in_a_block:
            blocks.within = take_away
        else:
            take_away()
        job.load(20)
        with pytest.raises(EosError) as refused:
            blocks.copy_all()
        secured_broker.grant(job.user, *NEEDED[lost](job))  # so that a classic member can leave its group
    assert_refused(job, refused.value, lost)
    with Blocks(job, secured_broker, protocol) as blocks:
        blocks.copy_all()
    job.assert_exactly_once()


REFUSED_BY_GROUP = [
    pytest.param(KIP_848, True, id="kip848, given up"),
    pytest.param(KIP_848, False, id="kip848", marks=pytest.mark.soak),
    pytest.param(COOPERATIVE | SHORT_CLASSIC_SESSION, False, id="cooperative"),
]


def reading(job, broker, protocol):
    login = broker.login("OAUTHBEARER", job.user)
    consumer = EosConsumer({**login, **protocol, "group.id": job.group, "auto.offset.reset": "earliest"})
    consumer.subscribe([job.source])
    return consumer


def read_until(consumer, count, got=None):
    """The next records until `got` are `count`; raises the first error event that comes in their place."""
    got = [] if got is None else got

    def read():
        for message in consumer.consume(1, 0.2):
            if message.error() is not None:
                raise KafkaException(message.error(), message.topic())
            got.append(message)

    wait_for(lambda: len(got) >= count, f"{count} records", read)
    return got


@pytest.mark.parametrize(("protocol", "notices"), REFUSED_BY_GROUP)
def test_a_plain_consumer_that_may_not_read_its_group_any_more_names_it(protocol, notices, job, secured_broker):
    """`notices`: a heartbeat was refused before the commit, which librdkafka does not say to the commit."""
    secured_broker.grant(job.user, *NEEDED["read the input"](job), *NEEDED["read the group"](job))
    job.load(20)
    with closing(reading(job, secured_broker, protocol)) as consumer:
        first = read_until(consumer, 10)
        consumer.commit(asynchronous=False)
        read_until(consumer, 5)
        secured_broker.take_away(job.user, *NEEDED["read the group"](job))
        if notices:
            wait_for(lambda: is_given_up(consumer.adapter.library.raw), "the member is given up")

        def go_on_committing():
            with suppress(CommitRefusedError):
                consumer.commit(asynchronous=False)
            consumer.consume(1, 0.2)

        with pytest.raises(EosError) as refused:
            wait_for(lambda: False, "the refusal", go_on_committing)
        assert_refused(job, refused.value, "read the group")
        assert job.committed() == 10
        secured_broker.grant(job.user, *NEEDED["read the group"](job))  # so that a classic member can leave it
    with closing(reading(job, secured_broker, protocol)) as consumer:
        again = read_until(consumer, 10)
        consumer.commit(asynchronous=False)
    assert job.committed() == 20
    assert len({message.value() for message in first + again}) == 20


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_plain_consumer_that_may_not_read_its_topic_any_more_hears_which(protocol, job, secured_broker):
    secured_broker.grant(job.user, *NEEDED["read the input"](job), *NEEDED["read the group"](job))
    job.load(20)
    with closing(reading(job, secured_broker, protocol)) as consumer:
        got = read_until(consumer, 20)
        secured_broker.take_away(job.user, *NEEDED["read the input"](job))
        job.load(20)
        with pytest.raises(KafkaException) as refused:
            read_until(consumer, 41, got)  # a request that was let in before may bring some of them
        error, topic = refused.value.args
        assert (error.name(), topic) == ("TOPIC_AUTHORIZATION_FAILED", job.source)
        with pytest.raises(ClusterUnfitError, match=f"Allow this client to read topic '{job.source}'"):
            consumer.commit(asynchronous=False)
        secured_broker.grant(job.user, *NEEDED["read the input"](job))

        def read():
            got.extend(message for message in consumer.consume(20, 0.2) if message.error() is None)

        wait_for(lambda: len(got) >= 40, "the records", read)
        consumer.commit(asynchronous=False)
    assert job.committed() == 40
    assert len({message.value() for message in got}) == len(got) == 40


def test_a_plain_producer_that_may_not_write_its_topic_any_more_names_it(job, secured_broker):
    """The delivery report has the topic; once librdkafka knows, `produce` itself is refused."""
    secured_broker.grant(job.user, *NEEDED["write the output"](job))
    login = secured_broker.login("OAUTHBEARER", job.user)
    reports: list[Any] = []

    def write(value):
        producer.produce(job.sink, value, on_delivery=lambda *report: reports.append(report))
        producer.flush(WAIT_S)
        error, message = reports.pop()
        assert (message.topic(), message.value(), reports) == (job.sink, value, [])
        return error

    with closing(EosProducer(login)) as producer:
        assert write(b"1") is None
        secured_broker.take_away(job.user, *NEEDED["write the output"](job))
        assert write(b"2").name() == "TOPIC_AUTHORIZATION_FAILED"
        with pytest.raises(ClusterUnfitError, match=job.sink) as refused:
            wait_for(lambda: False, "the refusal", lambda: write(b"2"))
        assert refused.value.args[0].name() == "TOPIC_AUTHORIZATION_FAILED"
    secured_broker.grant(job.user, *NEEDED["write the output"](job))
    with closing(EosProducer(login)) as producer:
        assert write(b"2") is None
    assert job.values() == [b"1", b"2"]


@pytest.mark.parametrize(
    "in_a_transaction", [pytest.param(True, id="within"), pytest.param(False, id="between", marks=pytest.mark.soak)]
)
def test_a_dead_letter_topic_that_may_not_be_written_any_more_is_named_and_no_record_is_lost(
    in_a_transaction, job, secured_broker
):
    dead = job.more_topics("dead")
    on_dead = on_topic(dead, Op.WRITE)
    secured_broker.grant(job.user, *on_dead, *(each for permissions in NEEDED.values() for each in permissions(job)))
    to_take_away: list[Permission] = []

    def transform(record):
        while to_take_away:
            secured_broker.take_away(job.user, to_take_away.pop())
        if int(record.value()) % 4 == 0:
            raise ValueError("no price")
        return [record.value()]

    options = {"transform": transform, "on_error": "dead_letter", "dead_letter_topic": dead}
    job.load(20)
    running = start(job, secured_broker, **options)
    job.await_committed()
    if in_a_transaction:
        to_take_away += on_dead
    else:
        secured_broker.take_away(job.user, *on_dead)
    job.load(20)
    error = running.ended()
    assert isinstance(error, ClusterUnfitError), repr(error)
    assert dead in str(error)
    secured_broker.grant(job.user, *on_dead)
    again = start(job, secured_broker, **options)
    wait_for(lambda: again.error or job.committed() == job.loaded, "all inputs committed")
    again.stop()
    assert job.values(dead) == [b"%d" % number for number in range(0, 40, 4)]
    assert job.values() == [b"%d" % number for number in range(40) if number % 4]
