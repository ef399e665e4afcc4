"""How long a transaction may stay open with a consumer is known when the two are joined; nothing is sent before."""

import contextlib

import pytest

from eos_client import EosConsumer, EosProducer
from eos_client.core.commit_gate import GateSettings
from eos_client.core.model import ProducerLimits
from eos_client.errors import ConfigurationError

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
LIMITS = ProducerLimits(commit_timeout_s=4.0)


@pytest.fixture
def joined():
    """A producer and a consumer that never reach a broker."""
    with contextlib.ExitStack() as closing:

        def join(hold_limit_s=5.0, limits=LIMITS, **settings):
            producer = closing.enter_context(EosProducer({**NOWHERE, **settings}, limits=limits, generate_id=True))
            consumer = EosConsumer({**NOWHERE, "group.id": "g"}, gate=GateSettings(hold_limit_s=hold_limit_s))
            closing.callback(consumer.close)
            return producer, consumer

        yield join


@pytest.mark.parametrize("join_by", ["transaction", "session"])
def test_a_time_out_that_ends_before_the_gate_and_the_commit_may_is_refused(joined, join_by):
    producer, consumer = joined(**{"transaction.timeout.ms": 8999})
    with pytest.raises(ConfigurationError) as refused:
        getattr(producer, join_by)(consumer)
    for part in ('"transaction.timeout.ms"=8999', "hold it for 5 s", "take 4 s", "to 9000 or more"):
        assert part in str(refused.value)


def test_a_time_out_that_is_just_long_enough_is_taken(joined):
    producer, consumer = joined(**{"transaction.timeout.ms": 9000})
    producer.transaction(consumer)


def test_what_is_left_out_is_long_enough_for_the_usual_gate_and_the_limits_given(joined):
    producer, consumer = joined(limits=ProducerLimits(commit_timeout_s=30.0))
    producer.transaction(consumer)
    assert producer.adapter.library.transaction_timeout_s == 35.0


def test_a_longer_gate_needs_a_longer_time_out_and_the_message_says_which(joined):
    producer, consumer = joined(hold_limit_s=60.0)
    with pytest.raises(ConfigurationError, match="to 64000 or more"):
        producer.transaction(consumer)
