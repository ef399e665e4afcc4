"""A client belongs to one thread: any other gets an error at once, and the process goes on."""

import contextlib
import subprocess
import sys

import pytest
from confluent_kafka import Consumer

from tests.kafka.kafka_support import FreezableProgram

CALLS = {
    "assign": "[]",
    "assignment": "",
    "close": "",
    "cluster_id": "1",
    "commit": "asynchronous=False",
    "committed": "[], 1",
    "consume": "1, 0",
    "consumer_group_metadata": "",
    "get_watermark_offsets": "TopicPartition('t', 0), 1",
    "incremental_assign": "[]",
    "incremental_unassign": "[]",
    "list_topics": "timeout=1",
    "memberid": "",
    "offsets_for_times": "[], 1",
    "pause": "[]",
    "poll": "0",
    "position": "[]",
    "resume": "[]",
    "seek": "TopicPartition('t', 0, 0)",
    "set_sasl_credentials": "'u', 'p'",
    "store_offsets": "offsets=[]",
    "subscribe": "['t']",
    "unassign": "",
    "unsubscribe": "",
}
PROGRAM = """
import threading, time
from confluent_kafka import TopicPartition
from eos_client import EosConsumer
from eos_client.errors import WrongThreadError
consumer = EosConsumer(SETTINGS["consumer"], hook=lambda event: None)
consumer.subscribe([SETTINGS["source"]])
def poll():
    consumer.poll(0)
    polls.set()
    consumer.poll(30)
polls = threading.Event()
threading.Thread(target=poll, name="poller", daemon=True).start()
polls.wait()
"""


def test_the_list_of_calls_is_complete():
    assert set(CALLS) == {name for name in dir(Consumer) if not name.startswith("_")}


def test_a_call_from_another_thread_while_one_polls_is_an_error_at_once_for_every_method(stage):
    calls = "\n".join(
        f"""
say(["{name}", "no answer: the process hangs", 0])
began = time.monotonic()
try:
    consumer.{name}({arguments})
    say(["{name}", "no error", time.monotonic() - began])
except Exception as error:
    say(["{name}", type(error).__name__, time.monotonic() - began])
"""
        for name, arguments in CALLS.items()
    )
    # The polling thread becomes the owner: nobody else has polled in this process before.
    program = PROGRAM + f"{calls}\nsay('done')"
    found = {}
    with (
        FreezableProgram(stage, program) as member,
        contextlib.suppress(AssertionError),
    ):  # a hanging member says no more
        while (said := member.said()) != "done":
            name, error, took_s = said
            found[name] = error
            assert took_s < 10.0, said  # the owner stays in its call for 30 s
    assert found == dict.fromkeys(CALLS, "WrongThreadError")


def test_the_error_names_the_call_the_threads_and_the_way_out(stage):
    program = PROGRAM + ("try:\n    consumer.position([])\nexcept WrongThreadError as error:\n    say(str(error))\n")
    with FreezableProgram(stage, program) as member:
        message = member.said()
    for part in ("position()", "'MainThread'", "'poller'", "queue"):
        assert part in message


def test_without_the_wrapper_such_a_call_hangs_the_process(stage):
    """The trap itself: when this no longer holds, the rule of one thread may be relaxed."""
    program = f"""
import threading, time
from confluent_kafka import Consumer
consumer = Consumer({stage.consumer_settings()!r})
consumer.subscribe([{stage.source!r}])
threading.Thread(target=consumer.poll, args=(30,), daemon=True).start()
time.sleep(0.5)
consumer.position(consumer.assignment())
"""
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", program], timeout=4, check=False)


def test_a_producer_is_handed_over_only_when_its_thread_has_ended(stage):
    program = """
import threading
from eos_client import EosProducer
from eos_client.errors import WrongThreadError
producer = EosProducer(SETTINGS["producer"])
go, gone = threading.Event(), threading.Event()
def own():
    producer.init_transactions(60)
    go.set()
    gone.wait()
owner = threading.Thread(target=own)
owner.start()
go.wait()
for call in (producer.begin_transaction, producer.commit_transaction, producer.flush, lambda: producer.poll(0)):
    try:
        call()
        say("no error")
    except WrongThreadError:
        say("refused")
gone.set()
owner.join()
producer.begin_transaction()
producer.produce(SETTINGS["sink"], b"handed over")
producer.commit_transaction(20)
say("committed")
"""
    with FreezableProgram(stage, program) as member:
        assert [member.said() for _ in range(5)] == ["refused"] * 4 + ["committed"]
    assert stage.outputs() == ["handed over"]
