"""A ledger that cannot be read: how long the reader asks, on the clock that it was given."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client.confluent.ledger.ledger_reader import LedgerReader
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError
from tests.support.manual_clock import ManualClock


class RefusingConsumer:
    """The client library of a reader whose every question is answered with one error."""

    def __init__(self, code):
        self.code = code
        self.limits_s: list[float] = []

    def committed(self, _, limit_s):
        self.limits_s.append(limit_s)
        raise KafkaException(KafkaError(self.code, "refused"))


def reader_of(raw, clock):
    reader = LedgerReader({"bootstrap.servers": "127.0.0.1:1"}, "sink-ledger", "sink-ledger", clock=clock)
    reader.close()
    reader._raw = raw
    return reader


def test_a_ledger_without_an_answer_is_asked_for_its_limit_on_the_given_clock():
    clock, raw = ManualClock(), RefusingConsumer(KafkaError._TIMED_OUT)
    double: Any = raw
    with pytest.raises(ClusterUnavailableError, match=r"within 30 s: _TIMED_OUT"):
        reader_of(double, clock).marker(30.0)
    assert 30.0 < clock.now_s < 31.0
    assert raw.limits_s[0] == 5.0
    assert raw.limits_s[-1] == 0.1


def test_a_ledger_that_may_not_be_read_is_asked_once():
    clock, raw = ManualClock(), RefusingConsumer(KafkaError.GROUP_AUTHORIZATION_FAILED)
    double: Any = raw
    with pytest.raises(ClusterUnfitError, match="GROUP_AUTHORIZATION_FAILED"):
        reader_of(double, clock).marker(30.0)
    assert (clock.now_s, len(raw.limits_s)) == (0.0, 1)
