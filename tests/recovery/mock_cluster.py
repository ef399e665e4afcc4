"""librdkafka's own mock cluster as a context manager: brokers inside the process that answer with the errors pushed.

It speaks the wire protocol on loopback, so the client under test is the real one. Reached through the functions that
the librdkafka inside confluent_kafka's wheel exports; confluent_kafka has no names for them.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import Counter
from collections.abc import Iterator
from enum import IntEnum

from confluent_kafka import KafkaError, cimpl

_PRODUCER = 0
_CONF_OK = 0


class ApiKey(IntEnum):
    """The requests of a transactional producer, by their numbers in the protocol."""

    PRODUCE = 0
    METADATA = 3
    FIND_COORDINATOR = 10
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


def _librdkafka() -> ctypes.CDLL:
    # The extension module is linked to the wheel's library: this finds the very copy that confluent_kafka uses.
    library = ctypes.CDLL(cimpl.__file__)
    pointer, text, number, number16, size = (
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_int32,
        ctypes.c_int16,
        ctypes.c_size_t,
    )
    for name, result, arguments in (
        ("conf_new", pointer, []),
        ("conf_set", ctypes.c_int, [pointer, text, text, text, size]),
        ("new", pointer, [ctypes.c_int, pointer, text, size]),
        ("destroy", None, [pointer]),
        ("mock_cluster_new", pointer, [pointer, ctypes.c_int]),
        ("mock_cluster_destroy", None, [pointer]),
        ("mock_cluster_bootstraps", text, [pointer]),
        ("mock_topic_create", ctypes.c_int, [pointer, text, ctypes.c_int, ctypes.c_int]),
        ("mock_partition_set_leader", ctypes.c_int, [pointer, text, number, number]),
        ("mock_coordinator_set", ctypes.c_int, [pointer, text, text, number]),
        ("mock_broker_push_request_error_rtts", ctypes.c_int, [pointer, number, number16, size]),  # and pairs of ints
        ("mock_broker_error_stack_cnt", ctypes.c_int, [pointer, number, number16, ctypes.POINTER(size)]),
        ("mock_group_initial_rebalance_delay_ms", None, [pointer, number]),
        ("mock_broker_set_down", ctypes.c_int, [pointer, number]),
        ("mock_broker_set_up", ctypes.c_int, [pointer, number]),
        ("mock_start_request_tracking", None, [pointer]),
        ("mock_clear_requests", None, [pointer]),
        ("mock_get_requests", ctypes.POINTER(pointer), [pointer, ctypes.POINTER(size)]),
        ("mock_request_api_key", number16, [pointer]),
        ("mock_request_destroy_array", None, [ctypes.POINTER(pointer), size]),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library


_LIBRDKAFKA = _librdkafka()


class MockCluster:
    """Brokers that live as long as ``mock_cluster``'s block; each pushed error answers one request."""

    def __init__(self, cluster: int) -> None:
        self._cluster = cluster
        self.bootstrap: str = _LIBRDKAFKA.rd_kafka_mock_cluster_bootstraps(cluster).decode()
        _LIBRDKAFKA.rd_kafka_mock_start_request_tracking(cluster)
        _LIBRDKAFKA.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 0)

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic with one replica."""
        _accepted(_LIBRDKAFKA.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1))

    def fail_next(self, request: ApiKey, *codes: int, broker: int = 1) -> None:
        """Let ``broker`` answer the next requests of this kind with ``codes``, one each; 0 answers as usual."""
        for code in codes:
            _accepted(
                _LIBRDKAFKA.rd_kafka_mock_broker_push_request_error_rtts(self._cluster, broker, request, 1, code, 0)
            )

    def unanswered(self, request: ApiKey, broker: int = 1) -> int:
        """Return how many of the codes given to ``fail_next`` no request has met yet."""
        count = ctypes.c_size_t()
        _accepted(_LIBRDKAFKA.rd_kafka_mock_broker_error_stack_cnt(self._cluster, broker, request, ctypes.byref(count)))
        return count.value

    def move_coordinator(self, kind: str, key: str, broker: int) -> None:
        """Make ``broker`` (from 1) the coordinator of a ``kind`` ("transaction" or "group") named ``key``."""
        _accepted(
            _LIBRDKAFKA.rd_kafka_mock_coordinator_set(self._cluster, kind.encode(), key.encode(), broker),
        )

    def move_leader(self, topic: str, broker: int, partition: int = 0) -> None:
        """Make ``broker`` the leader of a partition."""
        _accepted(
            _LIBRDKAFKA.rd_kafka_mock_partition_set_leader(self._cluster, topic.encode(), partition, broker),
        )

    def stop(self, broker: int) -> None:
        """Close the connections of ``broker`` and refuse new ones."""
        _accepted(_LIBRDKAFKA.rd_kafka_mock_broker_set_down(self._cluster, broker))

    def start(self, broker: int) -> None:
        """Let ``broker`` accept connections again."""
        _accepted(_LIBRDKAFKA.rd_kafka_mock_broker_set_up(self._cluster, broker))

    def requests(self) -> Counter[int]:
        """Count the requests that arrived since the last ``forget_requests``, by API key."""
        count = ctypes.c_size_t()
        found = _LIBRDKAFKA.rd_kafka_mock_get_requests(self._cluster, ctypes.byref(count))
        try:
            return Counter(_LIBRDKAFKA.rd_kafka_mock_request_api_key(found[i]) for i in range(count.value))
        finally:
            _LIBRDKAFKA.rd_kafka_mock_request_destroy_array(found, count)

    def forget_requests(self) -> None:
        """Start counting anew."""
        _LIBRDKAFKA.rd_kafka_mock_clear_requests(self._cluster)


def _accepted(code: int) -> None:
    if code:
        raise RuntimeError(f"the mock cluster refused the call: {KafkaError(code)}")


@contextlib.contextmanager
def mock_cluster(brokers: int = 1) -> Iterator[MockCluster]:
    """Run a mock cluster of ``brokers`` for the block. Close every client of it inside the block."""
    reason = ctypes.create_string_buffer(512)
    conf = _LIBRDKAFKA.rd_kafka_conf_new()
    if _LIBRDKAFKA.rd_kafka_conf_set(conf, b"log_level", b"0", reason, len(reason)) != _CONF_OK:
        raise RuntimeError(reason.value.decode())
    owner = _LIBRDKAFKA.rd_kafka_new(_PRODUCER, conf, reason, len(reason))
    if not owner:
        raise RuntimeError(reason.value.decode())
    cluster = _LIBRDKAFKA.rd_kafka_mock_cluster_new(owner, brokers)
    try:
        yield MockCluster(cluster)
    finally:
        _LIBRDKAFKA.rd_kafka_mock_cluster_destroy(cluster)
        _LIBRDKAFKA.rd_kafka_destroy(owner)
