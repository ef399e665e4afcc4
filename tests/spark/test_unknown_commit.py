"""A slot's commit without an answer, and no cluster to ask: nobody knows, so nothing is aborted or said to be lost."""

import pytest

from eos_client.confluent.ledger.slot_producer import SlotProducer
from eos_client.core.batch_ledger import LedgerEntry, SinkIdentity
from eos_client.errors import ClusterUnavailableError, UnknownOutcomeError
from eos_client.integration.spark import task
from eos_client.integration.spark.settings import SinkSettings
from eos_client.integration.spark.task import SlotTask
from eos_client.integration.spark.worker_clients import READERS
from eos_client.testing.simulator import SimulatedCluster
from tests.clients.spark_story import simulated_slot

IDENTITY = SinkIdentity("q", 1, 1, "out")
SETTINGS = SinkSettings("nowhere:1", "out", "sink", 1, "sink-ledger")
AWAY = "no usable answer from bootstrap.servers 'nowhere:1' within 1 s; this call has committed nothing."


class Ledger:
    """Reads what the driver has begun, and then nothing any more."""

    def __init__(self):
        self.reads = 0

    def marker(self, _timeout_s):
        return LedgerEntry(0, IDENTITY, run=1)

    def slot_and_marker(self, _slot, _timeout_s):
        self.reads += 1
        if self.reads > 1:
            raise ClusterUnavailableError("the ledger in topic 'sink-ledger' could not be read within 30 s")
        return LedgerEntry(0, IDENTITY), LedgerEntry(0, IDENTITY, run=1)

    def close(self):
        """Nothing to give up."""


def brokers_away(_):
    raise ClusterUnavailableError(AWAY)


@pytest.mark.parametrize("rebuild", [brokers_away, SlotProducer.rebuild], ids=["no new handle", "no ledger"])
def test_an_attempt_that_cannot_find_out_says_so_and_aborts_nothing(monkeypatch, rebuild):
    cluster, ledger, aborts = SimulatedCluster(seed=1), Ledger(), []
    cluster.create_topic("out")
    cluster.delay("EndTxn", 100.0)
    monkeypatch.setattr(SlotProducer, "send_entry", lambda producer, *_: producer.produce("out", b"row"))
    monkeypatch.setattr(SlotProducer, "rebuild", rebuild)
    monkeypatch.setattr(SlotProducer, "abort_transaction", lambda *_: aborts.append("aborted"))
    monkeypatch.setattr(task, "SlotProducer", lambda *_, **__: simulated_slot(cluster, 0))
    monkeypatch.setattr(task, "new_reader", lambda _: ledger)
    monkeypatch.setattr(READERS, "take", lambda _: None)
    monkeypatch.setattr(READERS, "put", lambda *_: None)
    attempt = SlotTask(SETTINGS, IDENTITY, 0, 1, b"", (0,), ("",))
    with pytest.raises(ClusterUnavailableError) as raised:
        attempt.write(0, iter(()))
    assert "committed nothing" not in str(raised.value)
    assert "outcome of the last commit is unknown" in str(raised.value)
    assert "the ledger decides" in str(raised.value)
    silence = raised.value.__cause__
    assert silence is not None
    assert isinstance(silence.__context__, UnknownOutcomeError)
    assert aborts == []
