"""What a loop must be allowed (docs/how-to/secure-clusters.md), and how it ends without that: nothing is lost."""

import re
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Message

from eos_client import EosConsumer, EosProducer
from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.failures import exit_code_of
from eos_client.errors import ClusterUnfitError
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


@pytest.mark.parametrize("missing", NEEDED)
def test_a_permission_that_is_missing_at_the_start_is_told_with_its_resource(missing, job, secured_broker):
    secured_broker.grant(job.user, *(each for name in NEEDED if name != missing for each in NEEDED[name](job)))
    job.load(20)
    assert_refused(job, start(job, secured_broker).ended(), missing)
    assert job.values() == []
    assert job.committed() == 0
    go_on(job, secured_broker, *NEEDED[missing](job))


def losses():
    """Each permission at each moment; the other protocol changes only what is asked of the group."""
    cooperative = COOPERATIVE | SHORT_CLASSIC_SESSION
    for lost in NEEDED:
        yield pytest.param(lost, KIP_848, False, id=f"kip848, between-{lost}")
        yield pytest.param(lost, KIP_848, True, id=f"kip848, within-{lost}")
        marks = [] if lost == "read the group" else [pytest.mark.soak]
        yield pytest.param(lost, cooperative, True, id=f"cooperative, within-{lost}", marks=marks)


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


@pytest.mark.parametrize("protocol", [KIP_848, COOPERATIVE | SHORT_CLASSIC_SESSION], ids=["kip848", "cooperative"])
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
    """A refused output aborts the transaction; librdkafka refuses the seeks that go back, and its event says why."""
    secured_broker.grant(job.user, *(each for permissions in NEEDED.values() for each in permissions(job)))
    loops: list[Any] = []

    def transform(_record):
        library = loops[0].loop._consumer.member.library
        secured_broker.take_away(job.user, *NEEDED["read the group"](job))
        wait_for(lambda: is_given_up(library.raw), "the member is given up")
        return [b"0" * 2_000_000]

    loops.append(start(job, secured_broker, transform=transform))
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
