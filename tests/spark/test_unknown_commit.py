"""A slot's commit without an answer, and no cluster to ask: nobody knows, so nothing is aborted or said to be lost."""

import pytest

from eos_client.core.batch_ledger import LedgerEntry, SinkIdentity
from eos_client.errors import ClusterUnavailableError, UnknownOutcomeError
from eos_client.integration.spark import task
from eos_client.integration.spark.settings import SinkSettings
from eos_client.integration.spark.task import SlotTask
from eos_client.integration.spark.worker_clients import READERS

IDENTITY = SinkIdentity("q", 1, 1, "out")
SETTINGS = SinkSettings("nowhere:1", "out", "sink", 1, "sink-ledger")
AWAY = "no usable answer from bootstrap.servers 'nowhere:1' within 1 s; this call has committed nothing."


class SilentProducer:
    """A slot's producer whose commit is not answered; ``rebuild`` says whether the brokers come back."""

    def __init__(self, rebuild):
        self.name = "handle"
        self.calls = []
        self._rebuild = rebuild
        self.ownership = self

    def __getattr__(self, name):
        return lambda *_, **__: self.calls.append(name)

    def commit_transaction(self):
        self.calls.append("commit_transaction")
        raise UnknownOutcomeError("no answer")

    def rebuild(self):
        self.calls.append("rebuild")
        self._rebuild()


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


def brokers_away():
    raise ClusterUnavailableError(AWAY)


@pytest.mark.parametrize("rebuild", [brokers_away, lambda: None], ids=["no new handle", "no ledger"])
def test_an_attempt_that_cannot_find_out_says_so_and_aborts_nothing(monkeypatch, rebuild):
    producer, ledger = SilentProducer(rebuild), Ledger()
    monkeypatch.setattr(task, "SlotProducer", lambda *_, **__: producer)
    monkeypatch.setattr(task, "new_reader", lambda _: ledger)
    monkeypatch.setattr(READERS, "take", lambda _: None)
    monkeypatch.setattr(READERS, "put", lambda *_: None)
    attempt = SlotTask(SETTINGS, IDENTITY, 0, 1, b"", (0,), ("",))
    with pytest.raises(ClusterUnavailableError) as raised:
        attempt.write(0, iter(()))
    assert "committed nothing" not in str(raised.value)
    assert "outcome of the last commit is unknown" in str(raised.value)
    assert "the ledger decides" in str(raised.value)
    assert producer.calls[-3:] == ["commit_transaction", "rebuild", "close"]
