"""What a call of a client fails with. Apart from the backends, whose processes of members start without pytest."""

import pytest
from confluent_kafka import KafkaException


def failure_of(call, *arguments):
    """The name of the error with which the call fails, and what it asks for."""
    with pytest.raises(KafkaException) as caught:
        call(*arguments)
    error = caught.value.args[0]
    demands = {"fatal": error.fatal(), "retriable": error.retriable(), "abort": error.txn_requires_abort()}
    return (error.name(), *[name for name, demanded in demands.items() if demanded])
