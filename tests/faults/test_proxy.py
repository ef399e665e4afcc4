"""The proxy against a scripted peer, byte by byte."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.waiting import wait_for
from tests.verification import frames
from tests.verification.proxy import KafkaProxy
from tests.verification.wire import Api

Answer = Callable[[bytes], bytes]


class ScriptedBroker:
    """Answers every chunk by a function of it; keeps what it got."""

    def __init__(self) -> None:
        self.answer: Answer = lambda chunk: chunk
        self.received = bytearray()
        self.closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            while chunk := connection.recv(1 << 16):
                self.received += chunk
                if reply := self.answer(chunk):
                    connection.sendall(reply)
        self.closed.set()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    scripted = ScriptedBroker()
    yield scripted
    scripted.close()


def read_exactly(connection: socket.socket, count: int) -> bytes:
    connection.settimeout(30)
    collected = bytearray()
    while len(collected) < count:
        chunk = connection.recv(1 << 16)
        if not chunk:
            break
        collected += chunk
    return bytes(collected)


@pytest.mark.parametrize("added_rtt_s", [0.0, 0.5])
def test_adds_the_round_trip_time_it_was_given(broker: ScriptedBroker, added_rtt_s: float) -> None:
    with KafkaProxy(broker.port, added_rtt_s=added_rtt_s) as proxy:
        client = socket.create_connection(("127.0.0.1", proxy.port))
        frame = frames.end_txn(1, transactional_id="t", commits=True)
        took_s = []
        for _ in range(5):
            started_s = time.monotonic()
            client.sendall(frame)
            assert read_exactly(client, len(frame)) == frame
            took_s.append(time.monotonic() - started_s)
        assert added_rtt_s <= min(took_s) < added_rtt_s + 0.4
        client.close()


def test_passes_megabytes_unchanged_and_in_order(broker: ScriptedBroker) -> None:
    payload = b"".join(
        frames.request(0, 7, index, bytes([index % 251]) * 40_000, flexible=False) for index in range(800)
    )
    with KafkaProxy(broker.port, added_rtt_s=0.02) as proxy:
        client = socket.create_connection(("127.0.0.1", proxy.port))
        sender = threading.Thread(target=client.sendall, args=(payload,))
        sender.start()
        assert read_exactly(client, len(payload)) == payload
        sender.join()
        client.close()
    assert proxy.exchanges == []


def test_latency_does_not_pile_up_over_many_small_requests(broker: ScriptedBroker) -> None:
    frame = frames.end_txn(1, transactional_id="t", commits=True)
    with KafkaProxy(broker.port, added_rtt_s=0.4) as proxy:
        client = socket.create_connection(("127.0.0.1", proxy.port))
        started_s = time.monotonic()
        for _ in range(200):
            client.sendall(frame)
            time.sleep(0.001)  # else several would travel as one
        read_exactly(client, 200 * len(frame))
        assert time.monotonic() - started_s < 200 * 0.2 / 2
        client.close()


def test_records_request_and_response_at_the_clients_end_of_the_delay(broker: ScriptedBroker) -> None:
    may_answer = threading.Event()
    at_broker_s: list[float] = []

    def answer(_: bytes) -> bytes:
        at_broker_s.append(time.monotonic())
        may_answer.wait(30)
        at_broker_s.append(time.monotonic())
        return frames.txn_offset_commit_answer(77, 0, 22)

    broker.answer = answer
    with KafkaProxy(broker.port, added_rtt_s=0.1) as proxy:
        client = socket.create_connection(("127.0.0.1", proxy.port))
        sent_s = time.monotonic()
        client.sendall(frames.txn_offset_commit(77, transactional_id="t", group="g", generation=3, member_id="m"))
        wait_for(lambda: proxy.exchanges, "the request")
        assert proxy.exchanges[0].response is None
        may_answer.set()
        assert read_exactly(client, 1)
        (exchange,) = proxy.exchanges
        wait_for(lambda: exchange.answered_s is not None, "the answer")
        client.close()
    assert exchange.api is Api.TXN_OFFSET_COMMIT
    assert (exchange.request.group, exchange.request.generation, exchange.request.member_id) == ("g", 3, "m")
    assert exchange.response is not None
    assert exchange.response.errors == (0, 22)
    arrived_s, replied_s = at_broker_s
    assert sent_s <= exchange.sent_s <= arrived_s - 0.05
    assert exchange.answered_s is not None
    assert exchange.answered_s >= replied_s + 0.05


def test_a_response_that_never_comes_leaves_the_request_on_record(broker: ScriptedBroker) -> None:
    broker.answer = lambda _: b""
    with KafkaProxy(broker.port) as proxy:
        client = socket.create_connection(("127.0.0.1", proxy.port))
        client.sendall(frames.add_offsets(1, transactional_id="t", group="g"))
        wait_for(lambda: len(proxy.exchanges) == 1, "the request")
        client.close()
    assert proxy.exchanges[0].answered_s is None


def test_a_frame_it_cannot_read_is_passed_on_and_named(broker: ScriptedBroker) -> None:
    broken = frames.request(28, 3, 9, b"\x7f", flexible=True)
    with KafkaProxy(broker.port) as proxy:
        client = socket.create_connection(("127.0.0.1", proxy.port))
        client.sendall(broken)
        assert read_exactly(client, len(broken)) == broken
        client.close()
    assert len(proxy.undecoded) == 1
    assert "28, 3, 9" in proxy.undecoded[0]


def test_what_a_closing_client_has_sent_still_arrives(broker: ScriptedBroker) -> None:
    broker.answer = lambda _: b""  # an answer to a closed socket would only come back as a reset
    frame = frames.leave_group(1, group="g", member_id="m")
    with KafkaProxy(broker.port, added_rtt_s=0.2) as proxy:
        client = socket.create_connection(("127.0.0.1", proxy.port))
        client.sendall(frame)
        client.close()
        assert broker.closed.wait(30)
    assert bytes(broker.received) == frame


def test_a_broker_that_is_down_shows_as_a_closed_connection() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can meanwhile
        with KafkaProxy(unheard.getsockname()[1]) as proxy:
            client = socket.create_connection(("127.0.0.1", proxy.port))
            client.settimeout(30)
            assert client.recv(10) == b""
            client.close()


def test_a_port_in_use_is_an_error_that_names_it(broker: ScriptedBroker) -> None:
    with pytest.raises(OSError, match=str(broker.port)):
        KafkaProxy(1, port=broker.port).start()
