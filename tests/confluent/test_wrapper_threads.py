"""No method of the real wrappers waits for another thread: each is refused while the owner is inside ``poll``."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from eos_client import EosConsumer, EosProducer
from eos_client.errors import WrongThreadError
from tests.confluent.threads import PATIENCE_S, elsewhere

REPOSITORY = Path(__file__).parents[2]
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
HERE = TopicPartition("orders", 0, 0)
POLL_S = 60.0
CONSUMER_CALLS: dict[str, tuple[Any, ...]] = {
    "assign": ([],),
    "assignment": (),
    "close": (),
    "cluster_id": (0.01,),
    "commit": (),
    "committed": ([HERE], 0.01),
    "consume": (2, 0.01),
    "consumer_group_metadata": (),
    "get_watermark_offsets": (HERE, 0.01),
    "incremental_assign": ([],),
    "incremental_unassign": ([],),
    "list_topics": (None, 0.01),
    "memberid": (),
    "offsets_for_times": ([HERE], 0.01),
    "pause": ([HERE],),
    "poll": (0.01,),
    "position": ([HERE],),
    "resume": ([HERE],),
    "seek": (HERE,),
    "set_sasl_credentials": ("user", "secret"),
    "store_offsets": (None, [HERE]),
    "subscribe": (["orders"],),
    "unassign": (),
    "unsubscribe": (),
}
MEMBER_CALLS: dict[str, tuple[Any, ...]] = {
    "close": (),
    "list_topics": (None, 0.01),
    "put_back": ([],),
    "serve_errors": (),
    "snapshot": (),
}
FETCHING_CALLS: dict[str, tuple[Any, ...]] = {
    "prefetch": (),
    "rewind": (),
    "serve_callbacks": (),
    "wait_while_paused": (0.01,),
}
PRODUCER_CALLS: dict[str, tuple[Any, ...]] = {
    "abort_transaction": (0.01,),
    "begin_transaction": (),
    "close": (),
    "cluster_id": (0.01,),
    "commit_transaction": (0.01,),
    "flush": (0.01,),
    "init_transactions": (0.01,),
    "list_topics": (None, 0.01),
    "poll": (0.01,),
    "produce": ("orders", b"v"),
    "produce_batch": ("orders", []),
    "purge": (),
    "send_offsets_to_transaction": ([], b"", 0.01),
    "set_sasl_credentials": ("user", "secret"),
}
ADAPTER_CALLS: dict[str, tuple[Any, ...]] = {
    "abort_transaction": (0.01,),
    "begin_transaction": (),
    "close": (),
    "commit_transaction": (0.01,),
    "flush_outputs": (0.01,),
    "init_transactions": (0.01,),
    "poll": (0.01,),
    "produce": ("orders", b"v"),
}


@pytest.mark.parametrize(
    ("library", "calls"), [(confluent_kafka.Consumer, CONSUMER_CALLS), (confluent_kafka.Producer, PRODUCER_CALLS)]
)
def test_every_method_of_the_librarys_client_is_tried(library, calls):
    methods = {name for name in dir(library) if not name.startswith("_") and callable(getattr(library, name))}
    assert methods - set(calls) == set()


def call_all_while_another_thread_polls() -> None:
    """Say each call before it is made, and how it went if it got through. Runs in a process of its own, and ends it."""
    consumer = EosConsumer({**NOWHERE, "group.id": "billing"})
    polling = threading.Event()

    def poll() -> None:
        consumer.poll(0)  # from now on this thread has it
        polling.set()
        while True:
            consumer.poll(POLL_S)

    threading.Thread(target=poll, daemon=True).start()
    assert polling.wait(PATIENCE_S)
    time.sleep(0.05)
    face = [(consumer, *call) for call in CONSUMER_CALLS.items()]
    member = [(consumer.adapter, *call) for call in MEMBER_CALLS.items()]
    fetching = [(consumer.adapter.fetching, *call) for call in FETCHING_CALLS.items()]
    for part, name, arguments in [*face, *member, *fetching]:
        print(f"calling {name}", flush=True)
        began_at = time.monotonic()
        try:
            getattr(part, name)(*arguments)
        except WrongThreadError:
            if time.monotonic() - began_at > POLL_S / 2:
                print(f"WAITED {name}", flush=True)
        except Exception as error:  # noqa: BLE001  # it got through to the client library
            print(f"LET IN {name}: {error!r}", flush=True)
        else:
            print(f"LET IN {name}", flush=True)
    print("done", flush=True)
    os._exit(0)  # nobody waits for the poll to end


def test_while_the_owner_polls_every_call_to_the_consumer_is_refused_at_once():
    # A call that gets in may hold the GIL for as long as the poll lasts, and then nothing in this process can end it.
    code = "from tests.confluent.test_wrapper_threads import call_all_while_another_thread_polls as c; c()"
    try:
        ran = subprocess.run(
            [sys.executable, "-c", code],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=2 * POLL_S,
            check=False,
        )
    except subprocess.TimeoutExpired as hung:
        pytest.fail(f"the process hangs after: {(hung.stdout or b'').decode().splitlines()[-1:]}")
    said = ran.stdout.splitlines()
    assert [line for line in said if line.startswith(("LET IN", "WAITED"))] == [], ran.stderr
    assert said[-1] == "done", ran.stderr


def test_every_call_to_a_producer_from_another_thread_is_refused_at_once():
    producer = EosProducer({**NOWHERE, "transactional.id": "billing-0"})
    with pytest.raises(confluent_kafka.KafkaException):
        producer.begin_transaction()  # not initialised, but this thread has it now
    let_in = [
        name
        for part, calls in ((producer, PRODUCER_CALLS), (producer.adapter, ADAPTER_CALLS))
        for name, arguments in calls.items()
        if not is_refused_elsewhere(part, name, arguments)
    ]
    producer.close()
    assert let_in == []


def is_refused_elsewhere(producer: Any, name: str, arguments: tuple[Any, ...]) -> bool:
    try:
        elsewhere(lambda: getattr(producer, name)(*arguments))
    except WrongThreadError:
        return True
    except Exception:  # noqa: BLE001  # it got through to the client library
        return False
    return False
