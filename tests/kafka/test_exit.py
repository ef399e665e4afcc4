"""A program that ends while a block is open, or that closes nothing at all: the process ends, too."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.loop_support import Job
from tests.support.protocols import BY_COORDINATOR
from tests.support.waiting import wait_for

ANSWER_S = 90.0

PROGRAM = """
import contextlib, sys
from eos_client import EosConsumer, EosProducer

servers, group, source, sink, holder = sys.argv[1:]
consumer = EosConsumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
producer = EosProducer({"bootstrap.servers": servers, "transactional.id": group, "log_level": 0})
consumer.subscribe([source])
producer.init_transactions()

def records():
    with producer.transaction(consumer) as txn:
        while True:
            for message in consumer.consume(5, 1.0):
                txn.produce(sink, message.value())
                yield message

@contextlib.contextmanager
def unit():
    with producer.transaction(consumer) as txn:
        yield txn

if holder == "generator":
    held = records()
    next(held)
elif holder == "context manager":
    held = unit()
    txn = held.__enter__()
    while not (batch := consumer.consume(5, 1.0)):
        pass
    for message in batch:
        txn.produce(sink, message.value())
else:
    def closing():
        try:
            yield 1
        finally:
            consumer.close()
    held = closing()
    next(held)
print("the program ends", flush=True)
"""


UNCLOSED = """
import sys, time
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from eos_client import EosConsumer

servers, group, source, how, protocol = sys.argv[1:]
admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
settings = {"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol, "log_level": 0}

def has_partitions(consumer):
    try:
        members = admin.describe_consumer_groups([group])[group].result(60).members
    except KafkaException:  # the group is not there yet
        return False
    return any(each.assignment.topic_partitions for each in members if each.member_id == consumer.memberid())

def member():
    consumer = EosConsumer(settings)
    consumer.subscribe([source])
    while not has_partitions(consumer):  # of which nobody has asked the consumer yet
        time.sleep(0.05)
    return consumer

if how == "dropped":
    for _ in range(2):
        dropped = member()
        del dropped
consumer = member()
del admin
print("the program ends", flush=True)
raise ArithmeticError
"""


@pytest.mark.parametrize(("how", "protocol"), zip(("kept", "dropped"), BY_COORDINATOR, strict=True))
def test_the_process_of_members_that_nobody_closes_ends_and_they_leave_the_group(
    kafka_broker: Any, how: str, protocol: str
) -> None:
    with Job(kafka_broker) as job:
        job.load(8)
        command = [sys.executable, "-c", UNCLOSED, job.bootstrap, job.group, job.source, how, protocol]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=ANSWER_S)
        assert "the program ends" in done.stdout, done.stderr
        assert done.returncode == 1, done.stderr
        assert "ArithmeticError" in done.stderr
        wait_for(lambda: members_of(job) == [], "every member to have left")


def members_of(job: Job) -> list[Any]:
    admin = AdminClient({"bootstrap.servers": job.bootstrap})
    return list(admin.describe_consumer_groups([job.group])[job.group].result(ANSWER_S).members)


@pytest.mark.parametrize(
    "holder",
    [
        "generator",
        pytest.param("context manager", marks=pytest.mark.soak),
        "generator that closes the consumer",
    ],
)
def test_the_process_ends_and_nothing_of_the_block_is_committed(kafka_broker: Any, holder: str) -> None:
    with Job(kafka_broker) as job:
        job.load(8)
        command = [sys.executable, "-c", PROGRAM, job.bootstrap, job.group, job.source, job.sink, holder]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=ANSWER_S)
        assert "the program ends" in done.stdout, done.stderr
        assert done.returncode == 0, done.stderr
        # A close() that comes so late finds that the end of the process has closed the consumer.
        assert ("the interpreter is shutting down" in done.stderr) is ("closes" not in holder)
        assert job.committed() == 0
        assert job.values() == []
