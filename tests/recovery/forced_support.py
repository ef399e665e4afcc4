"""What forces an error for real and watches it happen: the transaction coordinator's own words.

The few requests that no client library exposes are written and read here by hand, to a broker that is alone and
therefore every coordinator and leader. Layouts: Kafka's published message definitions.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.support.interception import intercepting
from tests.support.waiting import WAIT_S, wait_for

if TYPE_CHECKING:
    from typing_extensions import Self

_T = TypeVar("_T")

ANSWER_S = 30.0
LAST_EPOCH = 32766
"""The highest epoch a producer is given; 32767 is kept for fencing it (`TransactionMetadata.isEpochExhausted`)."""

_INIT_PRODUCER_ID = 22, 4
_DESCRIBE_PRODUCERS = 61, 0
_DESCRIBE_TRANSACTIONS = 65, 0
_NOT_FOUND = 105
_PASSING = frozenset({14, 15, 16, 51})  # loading, not available, not coordinator, concurrent transactions
_IN_FLIGHT = 200


class _Answer:
    """Reads the fields of one response, in the compact encodings (KIP-482)."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._at = 0
        self.correlation_id = self.integer(4)
        self.tags()

    def integer(self, width: int) -> int:
        self._at += width
        return int.from_bytes(self._frame[self._at - width : self._at], "big", signed=True)

    def length(self) -> int:
        """The length of an array or a string; 0 for null."""
        value = shift = 0
        while True:
            byte = self._frame[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return max(0, value - 1)
            shift += 7

    def string(self) -> str:
        length = self.length()
        self._at += length
        return self._frame[self._at - length : self._at].decode()

    def tags(self) -> None:
        assert self.length() == 0, "an answer with tagged fields"


def _string(text: str) -> bytes:
    assert len(text) < 0x7F
    return bytes([len(text) + 1]) + text.encode()


@dataclass(frozen=True, slots=True)
class TransactionView:
    """What the coordinator knows of one transactional.id."""

    state: str
    producer_id: int
    epoch: int

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.epoch


class CoordinatorLine:
    """One connection to a lone broker."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), ANSWER_S)
        self._sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def transaction(self, transactional_id: str) -> TransactionView | None:
        """The transactional.id as its coordinator has it; None when it has none, because it has expired."""

        def ask() -> tuple[int, TransactionView]:
            answer = self._ask(_DESCRIBE_TRANSACTIONS, b"\x02" + _string(transactional_id))
            answer.integer(4)
            assert answer.length() == 1
            error = answer.integer(2)
            answer.string()
            state = answer.string()
            answer.integer(4)
            answer.integer(8)
            return error, TransactionView(state, answer.integer(8), answer.integer(2))

        error, view = self._settled(ask)
        assert error in {0, _NOT_FOUND}, f"DescribeTransactions was answered with error {error}"
        return None if error else view

    def producers(self, topic: str, partition: int = 0) -> set[int]:
        """The producer ids whose state the partition's leader keeps."""

        def ask() -> tuple[int, set[int]]:
            body = b"\x02" + _string(topic) + b"\x02" + struct.pack(">i", partition) + b"\x00"
            answer = self._ask(_DESCRIBE_PRODUCERS, body)
            answer.integer(4)
            assert answer.length() == 1
            answer.string()
            assert answer.length() == 1
            answer.integer(4)
            error = answer.integer(2)
            answer.string()
            found = set()
            for _ in range(answer.length()):
                found.add(answer.integer(8))
                for width in (4, 4, 8, 4, 8):
                    answer.integer(width)
                answer.tags()
            return error, found

        error, found = self._settled(ask)
        assert not error, f"DescribeProducers was answered with error {error}"
        return found

    def drive_epoch(self, transactional_id: str, epoch: int) -> None:
        """Initialise the id over and over, as that many new instances would, until it is at `epoch`."""
        view = self.transaction(transactional_id)
        assert view is not None, f"{transactional_id} is unknown: initialise it once first"
        body = _string(transactional_id) + struct.pack(">iqh", 60_000, -1, -1)
        left, answered = epoch - view.epoch, view.epoch
        assert left >= 0
        while left:
            count = min(left, _IN_FLIGHT)
            for _ in range(count):
                self._send(_INIT_PRODUCER_ID, body)
            for _ in range(count):
                answer = self._receive()
                answer.integer(4)
                error = answer.integer(2)
                answer.integer(8)
                answered = answer.integer(2)
                assert not error, f"InitProducerId was answered with error {error} after epoch {answered}"
            left -= count
        assert answered == epoch

    def _settled(self, ask: Callable[[], tuple[int, _T]]) -> tuple[int, _T]:
        deadline = time.monotonic() + ANSWER_S
        while True:
            error, found = ask()
            if error not in _PASSING or time.monotonic() > deadline:
                return error, found
            time.sleep(0.05)

    def _ask(self, request: tuple[int, int], body: bytes) -> _Answer:
        self._send(request, body)
        return self._receive()

    def _send(self, request: tuple[int, int], body: bytes) -> None:
        self._sent += 1
        name = b"tests"
        head = struct.pack(">hhih", *request, self._sent, len(name)) + name + b"\x00"
        self._socket.sendall(struct.pack(">i", len(head) + len(body) + 1) + head + body + b"\x00")

    def _receive(self) -> _Answer:
        (size,) = struct.unpack(">i", self._exactly(4))
        return _Answer(self._exactly(size))

    def _exactly(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            chunk = self._socket.recv(count - len(got))
            assert chunk, "the broker closed the connection"
            got += chunk
        return bytes(got)


def await_state(line: CoordinatorLine, transactional_id: str, *states: str | None) -> None:
    """Wait until the transactional.id is in one of the states; None is for one that has expired."""

    def is_there() -> bool:
        view = line.transaction(transactional_id)
        return (None if view is None else view.state) in states

    wait_for(is_there, lambda: f"{transactional_id} is {states}: {line.transaction(transactional_id)}")


@contextlib.contextmanager
def coordinator(broker: Any) -> Iterator[CoordinatorLine]:
    """A line to the broker, whatever object or address stands for it."""
    with CoordinatorLine(broker if isinstance(broker, str) else broker.bootstrap_servers) as line:
        yield line


class InterruptedCommit:
    """A commit during which the broker goes: before EndTxn reaches it, or after it took effect without an answer."""

    def __init__(self, broker: Any, *, kills: bool, after: bool) -> None:
        self._broker = broker
        self._kills = kills
        self._after = after
        self._armed = False
        self._returning: threading.Thread | None = None
        self.transactional_id = ""
        self.factory = intercepting(Producer, commit_transaction=self._commit)

    def next(self) -> None:
        self._armed = True

    def _commit(self, raw: Any, *arguments: Any) -> None:
        armed, self._armed = self._armed, False
        if armed and self._after:
            raw.commit_transaction(*arguments)
            with coordinator(self._broker) as line:
                await_state(line, self.transactional_id, "CompleteCommit")
        if armed:
            self._take_broker_away()
        if armed and self._after:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the answer was lost", retriable=True))
        if not armed or not self._after:
            raw.commit_transaction(*arguments)

    def _take_broker_away(self) -> None:
        if self._kills:
            self._broker.kill()
        self._returning = threading.Thread(target=self._broker.restart, daemon=True)
        self._returning.start()
        wait_for(lambda: not answers(self._broker), "the broker to be gone")

    def returned(self) -> None:
        assert self._returning is not None
        self._returning.join(3 * WAIT_S)
        assert not self._returning.is_alive()


def answers(broker: Any) -> bool:
    with contextlib.suppress(OSError), coordinator(broker):
        return True
    return False
