"""A client library's producer whose transactions are those of a store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NoReturn

from confluent_kafka import KafkaError

from eos_client import errors
from eos_client.confluent.failures.kafka_errors import NamedError, make_kafka_error
from eos_client.confluent.positions.claims import Claims
from eos_client.core.model import UNJOINED as _NO_GENERATION
from eos_client.core.model import InputPartition, InputPosition
from eos_client.core.offset_claims import Move
from eos_client.ports import OutputRecord, input_partition
from eos_client.position_store import (
    StoreChangedError,
    StoreError,
    StoreMisusedError,
    StoreRefusedError,
    StoreTransaction,
    StoreUnfitError,
)

_ANY_PARTITION = -1
_COME_AGAIN = "Nothing of the transaction is visible, and its records are consumed again"
DeliveryCallback = Callable[[Any, Any], Any]


class PositionedProducer:
    """The methods of a transactional producer, performed in the store: each transaction has a connection of its own.

    What it "produces" are dead letters, one row each. It has no event queue and no requests in flight, so `flush` and
    `poll` have nothing to wait for. What fails is raised as a `NamedError`: the package's error, in the words of
    databases. A COMMIT without an answer is an UnknownOutcomeError, and its outcome is read from the rows.
    """

    def __init__(self, settings: Mapping[str, Any], claims: Claims) -> None:
        self._settings = dict(settings)
        self._claims = claims
        # Its own: a call of a handle that was given up must never reach the transaction of the next one.
        self._transaction: StoreTransaction | None = None
        self._moves: dict[InputPartition, Move] = {}

    # -- transactions ----------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float = -1) -> None:  # noqa: ARG002  # the store bounds its own requests
        """Make sure that the store answers; what an earlier handle has left open is rolled back."""
        self._claims.close()
        if (logger := self._settings.get("logger")) is not None:
            # By this line ClientLog knows that its format is understood. Nothing is sent twice: no handle is suspect.
            logger.log(logging.DEBUG, "%s [%s] %s", "STATE", "store", "store/0: Broker changed state CONNECT -> UP")
        try:
            self._claims.store.prepare()
        except StoreUnfitError as error:
            _raise(errors.ClusterUnfitError, KafkaError._INVALID_ARG, f"{error}. Correct it, then start again", error)
        except StoreError as error:
            text = f"the database does not answer as it should: {error}"
            _raise(errors.RetriableError, KafkaError._TRANSPORT, text, error)  # noqa: SLF001

    def begin_transaction(self) -> None:
        """Begin a transaction of the store."""
        self._transaction, self._moves = None, {}
        try:
            self._transaction = self._claims.begin()
        except StoreError as error:
            _raise_abortable(error)

    def send_offsets_to_transaction(self, positions: list[Any], _metadata: Any, timeout: float = -1, /) -> None:  # noqa: ARG002
        """Move the rows of ``positions``, if each still shows what this member has claimed."""
        sent = {input_partition(each): each for each in positions}
        offsets = {p: InputPosition(each.offset, each.offset, _NO_GENERATION, _epoch(each)) for p, each in sent.items()}
        attempt = next((each.metadata for each in positions), "") or ""
        try:
            moves = self._claims.moves_of(offsets, attempt)
            self._open().move(moves)
        except StoreChangedError as error:
            self._raise_changed(error, sent)
        except StoreMisusedError as error:
            _raise_misused(error)
        except StoreError as error:
            _raise_abortable(error)
        self._moves = moves

    def _raise_changed(self, error: StoreChangedError, sent: Mapping[InputPartition, Any]) -> NoReturn:
        if not self._claims.record_changed(sent.keys()):
            message = f"{error}: its records may have a new owner. {_COME_AGAIN}, as far as they are this member's"
            _raise(errors.CommitRefusedError, KafkaError.ILLEGAL_GENERATION, message, error)
        text = (
            f"{error}, once more, though the group still gives it to this member: another process writes the same rows "
            "of the offsets table. Stop it, or give each application a group of its own, and start this one again"
        )
        _raise(errors.FatalClientError, KafkaError._FATAL, text, error)  # noqa: SLF001

    def commit_transaction(self, timeout: float = -1) -> None:  # noqa: ARG002
        """Commit. Where the answer is lost the outcome is unknown."""
        moves, self._moves = self._moves, {}
        try:
            self._claims.commit(self._open(), moves)
        except StoreMisusedError as error:
            _raise_misused(error)
        except StoreRefusedError as error:
            _raise_abortable(error)
        except StoreError as error:
            message = f"{error}. It may have taken effect: the rows of the offsets table show whether it has"
            _raise(errors.UnknownOutcomeError, KafkaError._TIMED_OUT, message, error)

    def abort_transaction(self, timeout: float = -1) -> None:  # noqa: ARG002
        """Roll back; a connection on which that fails is closed, which ends its transaction as well."""
        self._close()

    # -- dead letters ----------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = _ANY_PARTITION,
        callback: DeliveryCallback | None = None,  # noqa: ARG002  # only failures are reported, and those are raised
        on_delivery: DeliveryCallback | None = None,  # noqa: ARG002
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Insert a row into the dead-letter table ``topic``."""
        record = OutputRecord(
            topic, value=value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp or None
        )
        try:
            self._open().write(topic, record)
        except StoreError as error:
            _raise_abortable(error)

    # -- the handle ------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> int:  # noqa: ARG002
        """Serve nothing: there are no events."""
        return 0

    def flush(self, timeout: float = -1) -> int:  # noqa: ARG002
        """Wait for nothing: each row is written when `produce` returns."""
        return 0

    def purge(self, *_: Any, **__: Any) -> None:
        """Drop nothing: no row waits."""

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:  # noqa: ARG002
        """Describe the dead-letter table ``topic`` as a topic, which `init_transactions` has made sure of."""
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Do nothing: the store has credentials of its own."""

    def close(self, *_: Any) -> bool:
        """Roll back what is open."""
        self._close()
        return True

    def _close(self) -> None:
        self._moves = {}
        if self._transaction is not None:
            self._transaction.close()
            self._transaction = None

    def _open(self) -> StoreTransaction:
        if self._transaction is None:
            raise StoreRefusedError("no transaction of the database is open")
        return self._transaction


def _epoch(offset: Any) -> int | None:
    epoch = getattr(offset, "leader_epoch", None)
    return epoch if epoch is not None and epoch >= 0 else None


def _raise_abortable(error: StoreError) -> NoReturn:
    _raise(errors.AbortableError, KafkaError.TRANSACTION_ABORTABLE, f"{error}. {_COME_AGAIN}", error)


def _raise_misused(error: StoreError) -> NoReturn:
    _raise(errors.TransactionStateError, KafkaError._STATE, str(error), error)


def _raise(kind: type[errors.EosError], code: int, message: str, cause: StoreError) -> NoReturn:
    retriable = {"retriable": True} if kind is errors.RetriableError else {}
    raise NamedError(make_kafka_error(kind, code, f"{message}.", **retriable)) from cause
