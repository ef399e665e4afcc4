"""Error codes as confluent_kafka's errors."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException


def require_code(code: str) -> None:
    """Raise ValueError unless ``code`` is the name of a broker's error in confluent_kafka."""
    if code.startswith("_") or not isinstance(getattr(KafkaError, code, None), int):
        raise ValueError(
            f"{code!r} is no error of a broker; confluent_kafka.KafkaError lists them (NOT_COORDINATOR, ...)"
        )


def kafka_error(
    code: str, why: str = "", *, fatal: bool = False, retriable: bool = False, abortable: bool = False
) -> KafkaError:
    """Return the KafkaError named ``code`` (``ILLEGAL_GENERATION``, or ``_TIMED_OUT`` for the library's own codes)."""
    number = getattr(KafkaError, code, None)
    if number is None:
        number, why = KafkaError.UNKNOWN, f"{code}: {why}"
    return KafkaError(number, why or code, fatal=fatal, retriable=retriable, txn_requires_abort=abortable)


def kafka_exception(
    code: str, why: str = "", *, fatal: bool = False, retriable: bool = False, abortable: bool = False
) -> KafkaException:
    """Return the exception that confluent_kafka raises for ``code``."""
    return KafkaException(kafka_error(code, why, fatal=fatal, retriable=retriable, abortable=abortable))
