"""A signal handler that closes the clients at any moment, on a real broker: no SIGABRT, no loss, no false outcome.

``confluent_kafka`` ends the process where a client is called inside a call of its own (``CallState_get: Assertion``).
"""

from __future__ import annotations

import pytest

from tests.kafka.kafka_support import FreezableProgram

EACH = 3_000
ROUNDS = 6

CLOSING = """
import signal
from eos_client import EosConsumer, EosProducer, Outcome
from eos_client.errors import EosError, TransactionStateError

REFUSALS = "inside another call", "inside a call of its consumer", "a block begins or ends"

class Round:
    def __init__(self, number, which):
        self.consumer = EosConsumer(SETTINGS["consumer"], hook=lambda _: None)
        self.producer = EosProducer(SETTINGS["producer"], hook=lambda _: None, generate_id=True)
        self.clients = {"c": [self.consumer], "p": [self.producer], "b": [self.producer, self.consumer]}[which]
        self.is_closed, self.refused, self.told, self.delay_s = False, 0, 0, 0.0007 * (number + 1)

    def handler(self, *_):
        try:
            for client in self.clients:
                client.close()
        except TransactionStateError as error:
            assert any(words in str(error) for words in REFUSALS), error
            self.refused += 1
        else:
            self.is_closed = True
            signal.setitimer(signal.ITIMER_REAL, 0)

    def run(self):
        self.consumer.subscribe([SETTINGS["source"]])
        self.producer.init_transactions()
        signal.signal(signal.SIGALRM, self.handler)
        while not self.is_closed:
            written, txn = 0, None
            try:
                with self.producer.transaction(self.consumer) as txn:
                    for message in self.consumer.consume(20, 0.05):
                        self.producer.produce(SETTINGS["sink"], message.value(), on_delivery=lambda *_: None)
                        written += 1
                    if self.told and not self.refused and not self.is_closed:
                        signal.setitimer(signal.ITIMER_REAL, self.delay_s, 0.0011)
            except (EosError, RuntimeError):
                if not self.is_closed and not self.refused:
                    raise
            if txn is not None and txn.outcome is Outcome.COMMITTED:
                self.told += written
            assert txn is None or not written or txn.outcome is not None, txn.reason
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.producer.close()
        self.consumer.close()
        return self.told, self.refused

told, refused = 0, 0
for number, which in enumerate(SETTINGS["rounds"]):
    more, others = Round(number % 8, which).run()
    told, refused = told + more, refused + others
say([told, refused])
await_go()
"""


@pytest.mark.parametrize(
    "which",
    [
        pytest.param("c", id="consumer", marks=pytest.mark.soak),
        pytest.param("p", id="producer", marks=pytest.mark.soak),
        pytest.param("b", id="both"),
    ],
)
def test_a_handler_that_closes_clients_is_refused_inside_their_calls(stage, which):
    stage.load(EACH)
    member = FreezableProgram(stage, CLOSING.replace('SETTINGS["rounds"]', repr(which * ROUNDS)))
    told, refused = member.said()
    member.go()
    assert member.process.wait(30) == 0
    assert refused > ROUNDS
    assert sum(offset or 0 for offset in stage.committed().values()) == told
    written = stage.outputs()
    assert len(written) == len(set(written)) == told
