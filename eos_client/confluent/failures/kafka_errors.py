"""Errors that are ours and confluent_kafka's at once, and the translation of exceptions into them.

Each is named for what the caller must do, and is a ``KafkaException`` whose ``args[0]`` is the ``KafkaError``, so that
code written for confluent_kafka keeps working.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException

from eos_client import errors
from eos_client.core.error_codes import FATAL_UNNAMED

E = TypeVar("E", bound=errors.EosError)


class FromKafka(KafkaException, errors.EosError):
    """Keeps the KafkaError in ``args[0]`` and says what to do in words."""

    def __init__(self, error: KafkaError, message: str) -> None:
        super().__init__(error)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        for kind, both in _CLASSES.items():
            if both is type(self):
                return _copy_of, (kind, self.args), self.__dict__
        return super().__reduce__()


_CLASSES: dict[type[errors.EosError], type[FromKafka]] = {}


def make_kafka_error(kind: type[E], error: KafkaError | int, message: str, **flags: bool) -> E:
    """Return an error of ``kind`` that is a KafkaException too: of ``error``, or, with ``flags``, of a code of ours."""
    given = KafkaError(error, message, **flags) if isinstance(error, int) else error
    return cast("E", _class_of(kind)(given, message))


def _class_of(kind: type[errors.EosError]) -> type[FromKafka]:
    # The name that the pages have: of both classes, it is the one that says what to do.
    as_public = {"__doc__": kind.__doc__, "__module__": kind.__module__}
    return _CLASSES.get(kind) or _CLASSES.setdefault(kind, type(kind.__name__, (FromKafka, kind), as_public))


def _copy_of(kind: type[errors.EosError], arguments: tuple[Any, ...]) -> errors.EosError:
    return errors.copy_of(cast("type[errors.EosError]", _class_of(kind)), arguments)


class NamedError(KafkaException):
    """Raised by a client library of ours, for a failure that it has ``named`` itself."""

    def __init__(self, named: errors.EosError) -> None:
        super().__init__(named.args[0])
        self.named = named


def kafka_error(exception: KafkaException) -> KafkaError:
    """Return the KafkaError inside ``exception``; an unknown one when there is none."""
    first = exception.args[0] if exception.args else None
    return first if isinstance(first, KafkaError) else KafkaError(KafkaError.UNKNOWN, str(exception))


def is_fatal(error: KafkaError) -> bool:
    """Whether the client failed for good. A consumer's event and its refused calls have the code without the flag."""
    return bool(error.fatal()) or error.name() == FATAL_UNNAMED


def with_cause(error: E, cause: KafkaException) -> E:
    """Set ``cause`` as the ``__cause__`` of ``error``, and return ``error``."""
    error.__cause__ = cause
    return error


class ErrorTranslation:
    """Raises what ``translate`` makes of an exception that leaves the block; None leaves it as it is.

    No generator: an asynchronous exception may strike before one is entered, and leave it to be closed later.
    """

    def __init__(self, translate: Callable[[BaseException], BaseException | None]) -> None:
        self._translate = translate

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, exception: BaseException | None, _trace: object) -> None:
        error = None if exception is None else self._translate(exception)
        if error is not None:
            raise error
