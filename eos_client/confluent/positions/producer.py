"""A client library's producer whose transactions are those of a store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from eos_client.confluent.positions.claims import Claims
from eos_client.core.model import UNJOINED as _NO_GENERATION
from eos_client.core.model import InputPartition, InputPosition
from eos_client.core.offset_claims import Move
from eos_client.ports import OutputRecord, input_partition
from eos_client.position_store import StoreError, StoreRefusedError, StoreUnavailableError

_ANY_PARTITION = -1
DeliveryCallback = Callable[[Any, Any], Any]


class PositionedProducer:
    """The methods of a transactional producer, performed in the store: each handle is a connection of its own.

    What it "produces" are dead letters, one row each. It has no event queue and no requests in flight, so `flush` and
    `poll` have nothing to wait for. Errors carry the codes of a broker in the same situation, which
    ``core/producer_recovery.py`` then judges: a refused request is abortable, and a COMMIT without an answer is
    ``_TIMED_OUT``, whose outcome is read from the rows.
    """

    def __init__(self, settings: Mapping[str, Any], claims: Claims) -> None:
        self._settings = dict(settings)
        self._claims = claims
        self._moves: dict[InputPartition, Move] = {}
        self._is_closed = False

    # -- transactions ----------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float = -1) -> None:  # noqa: ARG002  # the store bounds its own requests
        """Make sure that the store answers; what an earlier handle has left open is rolled back."""
        self._claims.close()
        if (logger := self._settings.get("logger")) is not None:
            # By this line ClientLog knows that its format is understood. Nothing is sent twice: no handle is suspect.
            logger.log(logging.DEBUG, "%s [%s] %s", "STATE", "store", "store/0: Broker changed state CONNECT -> UP")
        try:
            self._claims.store.prepare()
        except StoreUnavailableError as error:
            raise _failure(KafkaError._TRANSPORT, error, retriable=True) from error  # noqa: SLF001
        except StoreError as error:
            raise _failure(KafkaError._UNSUPPORTED_FEATURE, error) from error  # noqa: SLF001

    def begin_transaction(self) -> None:
        """Begin a transaction of the store."""
        try:
            self._claims.begin()
        except StoreError as error:
            raise _failure(KafkaError._TRANSPORT, error, txn_requires_abort=True) from error  # noqa: SLF001

    def send_offsets_to_transaction(self, positions: list[Any], _metadata: Any, timeout: float = -1, /) -> None:  # noqa: ARG002
        """Move the rows of ``positions``, if each still shows what this member has claimed."""
        sent = {input_partition(each): each for each in positions}
        offsets = {p: InputPosition(each.offset, each.offset, _NO_GENERATION, _epoch(each)) for p, each in sent.items()}
        attempt = next((each.metadata for each in positions), "") or ""
        try:
            self._moves = self._claims.move(offsets, attempt)
        except StoreRefusedError as error:
            raise self._refused(error, sent) from error
        except StoreError as error:
            raise _failure(KafkaError._TRANSPORT, error, txn_requires_abort=True) from error  # noqa: SLF001

    def _refused(self, error: StoreRefusedError, sent: Mapping[InputPartition, Any]) -> KafkaException:
        if not self._claims.record_refused(sent.keys()):
            return _failure(KafkaError.ILLEGAL_GENERATION, error, txn_requires_abort=True)
        text = (
            f"{error}, once more, though the group still gives it to this member: another process writes the same rows "
            "of the offsets table. Stop it, or give each application a group of its own, and start this one again"
        )
        return KafkaException(KafkaError(KafkaError._FATAL, text, fatal=True))  # noqa: SLF001

    def commit_transaction(self, timeout: float = -1) -> None:  # noqa: ARG002
        """Commit. Where the answer is lost the error is retriable, and the outcome unknown."""
        moves, self._moves = self._moves, {}
        try:
            self._claims.commit(moves)
        except StoreRefusedError as error:
            raise _failure(KafkaError.TRANSACTION_ABORTABLE, error, txn_requires_abort=True) from error
        except StoreError as error:
            raise _failure(KafkaError._TIMED_OUT, error) from error

    def abort_transaction(self, timeout: float = -1) -> None:  # noqa: ARG002
        """Roll back; a connection on which that fails is closed, which ends its transaction as well."""
        self._moves = {}
        self._claims.close()

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
        if self._claims.transaction is None:
            raise KafkaException(KafkaError(KafkaError._STATE, "no transaction of the database is open"))
        record = OutputRecord(
            topic, value=value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp or None
        )
        try:
            self._claims.transaction.write(topic, record)
        except StoreError as error:
            raise _failure(KafkaError._TRANSPORT, error, txn_requires_abort=True) from error  # noqa: SLF001

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
        if not self._is_closed:
            self._is_closed = True
            self._claims.close()
        return True


def _epoch(offset: Any) -> int | None:
    epoch = getattr(offset, "leader_epoch", None)
    return epoch if epoch is not None and epoch >= 0 else None


def _failure(code: int, error: StoreError, **flags: bool) -> KafkaException:
    return KafkaException(KafkaError(code, str(error), **flags))
