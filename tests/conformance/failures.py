"""What a call of a client fails with. Apart from the backends, whose processes of members start without pytest."""

import pytest
from confluent_kafka import KafkaException

_LIMITS_S = (0.8, 1.8, 3.8, 7.8)  # librdkafka asks twice a second: the last time early enough


def failure_of(call, *arguments):
    """The name of the error with which the call fails, and what it asks for.

    Where confluent_kafka serves another callback after the event of the error, a SystemError caused by it comes out.
    """
    with pytest.raises((KafkaException, SystemError)) as caught:
        call(*arguments)
    failure = caught.value.__cause__ if isinstance(caught.value, SystemError) else caught.value
    assert isinstance(failure, KafkaException), caught.value
    error = failure.args[0]
    demands = {"fatal": error.fatal(), "retriable": error.retriable(), "abort": error.txn_requires_abort()}
    return (error.name(), *[name for name, demanded in demands.items() if demanded])


def failure_once_answered(producer, attempt):
    """What `attempt(limit_s)` in a new transaction fails with when the brokers' last answer was there in time.

    They are asked again and again until the call's time is over. If a question is open then, it says that alone.
    """
    failure = attempt(_LIMITS_S[0])
    for limit_s in _LIMITS_S[1:]:
        if failure[0] != "_TIMED_OUT":
            break
        producer.abort_transaction(_LIMITS_S[-1])
        failure = attempt(limit_s)
    return failure
