"""The requests of KIP-664: which transactions are open, who knows them, and the end of one that nobody will end.

librdkafka has none of them. Everything else about a cluster is asked for by `ClusterAdmin`, which is to reach the
cluster first: why it cannot be reached, or does not accept the credentials, is reported there.
"""

# pyright: reportAttributeAccessIssue=false
# It reads its own stubs of kafka-python, which are of an older version.

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from kafka import TopicPartition
from kafka.admin import AbortTransactionSpec, KafkaAdminClient
from kafka.errors import (
    BrokerResponseError,
    KafkaError,
    RetriableError,
    TransactionalIdAuthorizationFailedError,
    TransactionalIdNotFoundError,
    UnknownBrokerIdError,
)
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from eos_client.core.hanging_transactions import KnownTransaction, OpenTransaction
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError
from eos_client.kafka_python.security import security_settings

_T = TypeVar("_T")
_RETRY_INTERVAL_S = 0.1
_NO_TRANSACTION = -1
"""What a partition says where a producer has no open transaction."""


class TransactionsAdmin(AbstractContextManager["TransactionsAdmin"]):
    """Asks one cluster about transactions, and ends one on one partition; a context manager.

    :param config: librdkafka settings, of which those about security count.
    :param timeout_s: how long a broker may take to answer, and how long a coordinator or leader may be moving.
    :raises ConfigurationError: a security setting that kafka-python does not have.
    :raises ClusterUnavailableError: the brokers do not answer.
    """

    def __init__(self, bootstrap_servers: str, config: Mapping[str, Any], *, timeout_s: float = 10.0) -> None:
        # Failures reach the caller as errors; and at its debug level it logs its settings, the password among them.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self._timeout_s = timeout_s
        timeout_ms = round(timeout_s * 1000)
        settings = {"request_timeout_ms": timeout_ms, "bootstrap_timeout_ms": timeout_ms, **security_settings(config)}
        self._client = self._answer(
            "serve requests about transactions",
            lambda: KafkaAdminClient(bootstrap_servers=bootstrap_servers, **settings),
        )

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def known(self) -> list[KnownTransaction]:
        """Return every transactional id that this user may see, with its transaction where it has an open one."""

        def list_and_describe() -> list[KnownTransaction]:
            found = [
                KnownTransaction(each.transactional_id, coordinator_id, each.producer_id, each.state.value)
                for coordinator_id, listed in self._client.list_transactions().items()
                for each in listed
            ]
            described = self._described([each.transactional_id for each in found if each.is_open])
            return [described.get(each.transactional_id, each) for each in found]

        return self._with_retries("list transactions", list_and_describe)

    def describe(self, transactional_id: str) -> KnownTransaction | None:
        """Return what its coordinator knows of one transactional id; None where it knows none of that name."""
        intent = f"describe transactional id {transactional_id!r}"
        try:
            return self._with_retries(intent, lambda: self._described([transactional_id]))[transactional_id]
        except ClusterUnfitError as error:
            if isinstance(error.__cause__, TransactionalIdNotFoundError):
                return None
            raise

    def _described(self, transactional_ids: Collection[str]) -> dict[str, KnownTransaction]:
        return {
            name: KnownTransaction(
                transactional_id=name,
                coordinator_id=found.coordinator_id,
                producer_id=found.producer_id,
                state=found.state.value,
                producer_epoch=found.producer_epoch,
                timeout_ms=found.transaction_timeout_ms,
                started_ms=found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
                partitions=frozenset((at.topic, at.partition) for at in found.topic_partitions),
            )
            for name, found in self._client.describe_transactions(transactional_ids).items()
        }

    def sees_all_ids(self) -> bool:
        """Return whether this user may describe every transactional id.

        A listing silently omits ids that the user may not see. An unused id is "not found" only for a user who may see
        all of them.
        """
        try:
            self.describe(f"eos-client-{uuid.uuid4()}")
        except ClusterUnfitError as error:
            if isinstance(error.__cause__, TransactionalIdAuthorizationFailedError):
                return False
            raise
        return True

    def open_on(self, partition_counts: Mapping[str, int]) -> tuple[list[OpenTransaction], dict[str, str]]:
        """Return the transactions that are open on topics, and why some of these topics could not be looked at.

        :param partition_counts: how many partitions each topic has.
        """
        try:
            return self._open_on(partition_counts), {}
        except ClusterUnfitError as error:
            if len(partition_counts) == 1:
                return [], dict.fromkeys(partition_counts, str(error))
        found, unread = list[OpenTransaction](), dict[str, str]()
        for topic, count in partition_counts.items():
            found_here, unread_here = self.open_on({topic: count})
            found += found_here
            unread.update(unread_here)
        return found, unread

    def _open_on(self, partition_counts: Mapping[str, int]) -> list[OpenTransaction]:
        places = [TopicPartition(topic, partition) for topic, n in partition_counts.items() for partition in range(n)]
        intent = f"say which transactions are open on {', '.join(partition_counts)}"
        described = self._with_retries(intent, lambda: self._client.describe_producers(places))
        found = [
            OpenTransaction(
                topic=place.topic,
                partition=place.partition,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                coordinator_epoch=producer.coordinator_epoch,
                start_offset=producer.current_transaction_start_offset,
                last_timestamp_ms=producer.last_timestamp,
            )
            for place, state in described.items()
            for producer in state.active_producers
            if producer.current_transaction_start_offset != _NO_TRANSACTION
        ]
        return sorted(found, key=lambda each: (each.topic, each.partition, each.start_offset))

    def abort_on_partition(self, transaction: OpenTransaction) -> None:
        """Write the marker that ends ``transaction`` on its partition; what it wrote there stays invisible.

        :raises ClusterUnfitError: the partition's leader refuses the marker.
        :raises ClusterUnavailableError: there was no answer, and the marker may be written or not.
        """
        place = TopicPartition(transaction.topic, transaction.partition)
        marker = AbortTransactionSpec(
            place, transaction.producer_id, transaction.producer_epoch, max(transaction.coordinator_epoch, 0)
        )
        intent = f"end the transaction on {transaction.topic}[{transaction.partition}]"
        self._answer(intent, lambda: self._client.abort_transaction(marker))

    def _with_retries(self, intent: str, ask: Callable[[], _T]) -> _T:
        stop, wait = stop_after_delay(self._timeout_s), wait_fixed(_RETRY_INTERVAL_S)
        attempts = Retrying(retry=retry_if_exception_type(RetriableError), stop=stop, wait=wait, reraise=True)
        return self._answer(intent, lambda: attempts(ask))

    def _answer(self, intent: str, ask: Callable[[], _T]) -> _T:
        try:
            return ask()
        except BrokerResponseError as error:
            raise ClusterUnfitError(f"the cluster would not {intent}: {error.message}") from error
        except UnknownBrokerIdError as error:
            raise ClusterUnfitError(f"the cluster cannot {intent}: a partition has no leader") from error
        except KafkaError as error:
            message = f"the brokers did not {intent} within {self._timeout_s:g} s: {error}"
            raise ClusterUnavailableError(message) from error
