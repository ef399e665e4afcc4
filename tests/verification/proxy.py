"""A TCP proxy on a broker's advertised port: adds round-trip time and keeps a record of what commits said.

Give the embedded broker `advertised_port=proxy.port` and every client connection comes through here. Requests are
time-stamped when they arrive from the client and responses when they are handed back to it, both on the client's
side of the added delay: so the record tells what a client could know when it sent something. Bytes pass unchanged.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, cast

from tests.verification.held_requests import FrameValve, HeldRequest, Matches, Passage
from tests.verification.wire import (
    REQUEST_HEAD_BYTES,
    RESPONSE_HEAD_BYTES,
    Api,
    FrameScanner,
    RequestFields,
    ResponseFields,
    decode_request,
    decode_response,
    request_head,
    response_head,
)

if TYPE_CHECKING:
    from typing_extensions import Self

QUEUED_BYTES_MAX = 16 * 1024 * 1024
START_TIMEOUT_S = 10.0
_DECODED = frozenset(int(api) for api in Api if api is not Api.PRODUCE)


@dataclass(slots=True)
class Exchange:
    """One recorded request and, once it was handed to the client, its response. Times are time.monotonic()."""

    connection: int
    api: Api
    version: int
    sent_s: float
    request: RequestFields
    answered_s: float | None = None
    response: ResponseFields | None = None


class _Recorder:
    """Pairs the frames of one connection by correlation id and appends them to the shared record."""

    def __init__(self, connection: int, record: list[Exchange], undecoded: list[str]) -> None:
        self._connection = connection
        self._record = record
        self._undecoded = undecoded
        self._open: dict[int, Exchange] = {}
        self.requests = FrameScanner(REQUEST_HEAD_BYTES, self._wants_request, self._on_request)
        self.responses = FrameScanner(RESPONSE_HEAD_BYTES, self._wants_response, self._on_response)

    def _wants_request(self, head: bytes) -> bool:
        return request_head(head)[0] in _DECODED

    def _wants_response(self, head: bytes) -> bool:
        return response_head(head) in self._open

    def _on_request(self, frame: bytes) -> None:
        now = time.monotonic()
        try:
            api, version, fields = decode_request(frame)
        except ValueError as error:
            self._undecoded.append(f"request {request_head(frame)}: {error}")
            return
        exchange = Exchange(self._connection, api, version, now, fields)
        self._open[request_head(frame)[2]] = exchange
        self._record.append(exchange)

    def _on_response(self, frame: bytes) -> None:
        exchange = self._open.pop(response_head(frame))
        try:
            exchange.response = decode_response(exchange.api, exchange.version, frame)
        except ValueError as error:
            self._undecoded.append(f"response to {exchange.api.name} v{exchange.version}: {error}")
            return
        exchange.answered_s = time.monotonic()


class _DelayLine:
    """Hands chunks on in order, each `delay_s` after it was pushed; the bytes inside are counted, to be bounded."""

    def __init__(self, delay_s: float, deliver: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._delay_s = delay_s
        self._deliver = deliver
        self._queue: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._when_empty: Callable[[], None] | None = None
        self.queued_bytes = 0

    def push(self, chunk: bytes) -> None:
        if not self._delay_s:
            self._deliver(chunk)
            return
        due = self._loop.time() + self._delay_s
        self._queue.append((due, chunk))
        self.queued_bytes += len(chunk)
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._release)

    def _release(self) -> None:
        now = self._loop.time()
        while self._queue and self._queue[0][0] <= now:
            _, chunk = self._queue.popleft()
            self.queued_bytes -= len(chunk)
            self._deliver(chunk)
        self._timer = self._loop.call_at(self._queue[0][0], self._release) if self._queue else None
        if self._when_empty is not None and not self._queue:
            self._when_empty()

    def finish(self, when_empty: Callable[[], None]) -> None:
        """Call back once all that is on its way has arrived: a network does not swallow a closing client's bytes."""
        if self._queue:
            self._when_empty = when_empty
        else:
            when_empty()


class _Side(asyncio.Protocol):
    """One of the two sockets of a connection: what it reads goes through its delay line and its valve to the other one.

    `farewell`: called instead of closing the other one, once this one is closed and all it has read has been handed on.
    """

    def __init__(
        self,
        delay_s: float,
        valve: FrameValve,
        *,
        scan_in: FrameScanner | None = None,
        scan_out: FrameScanner | None = None,
        farewell: Callable[[], None] | None = None,
    ) -> None:
        self._valve = valve
        self._scan_in = scan_in
        self._scan_out = scan_out
        self._farewell = farewell
        self._line = _DelayLine(delay_s, self._hand_over)
        self._transport: asyncio.Transport | None = None
        self._peer: _Side | None = None
        self._early: list[bytes] = []
        self._paused = False
        self._peer_is_full = False
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def pair(self, peer: _Side) -> None:
        """Join the two sockets; what was read before the other one stood goes out now."""
        self._peer = peer
        early, self._early = self._early, []
        for chunk in early:
            self._hand_over(chunk)
        if self.closed:
            self._line.finish(self._leave)

    def data_received(self, data: bytes) -> None:
        if self._scan_in is not None:
            self._scan_in.feed(data)
        self._line.push(data)
        self._balance()

    def _hand_over(self, chunk: bytes) -> None:
        if self._peer is None:
            self._early.append(chunk)
            return
        self.forward(self._valve.feed(chunk))
        self._balance()

    def forward(self, chunk: bytes) -> None:
        """Write to the other socket what has passed the valve."""
        if self._peer is not None and self._peer.write(chunk) and self._scan_out is not None:
            self._scan_out.feed(chunk)

    def write(self, chunk: bytes) -> bool:
        if self._transport is None or self.closed:
            return False
        self._transport.write(chunk)
        return True

    def pause_writing(self) -> None:
        if self._peer is not None:
            self._peer.hold(peer_is_full=True)

    def resume_writing(self) -> None:
        if self._peer is not None:
            self._peer.hold(peer_is_full=False)

    def hold(self, *, peer_is_full: bool) -> None:
        self._peer_is_full = peer_is_full
        self._balance()

    def _balance(self) -> None:
        """Stop reading while the other side cannot take more or the delay line is at its limit."""
        if self._transport is None or self.closed:
            return
        full = self._peer_is_full or self._line.queued_bytes > QUEUED_BYTES_MAX
        if full and not self._paused:
            self._transport.pause_reading()
        elif self._paused and not full:
            self._transport.resume_reading()
        self._paused = full

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._peer is not None:
            self._line.finish(self._leave)

    def _leave(self) -> None:
        self.forward(self._valve.rest())
        if self._farewell is not None:
            self._farewell()
        elif self._peer is not None:
            self._peer.close()

    def close(self) -> None:
        if not self.closed and self._transport is not None:
            self._transport.close()


class KafkaProxy:
    """The proxy, in a thread of its own; a context manager.

    `target_port` is the broker's real port on 127.0.0.1; `port` is where clients connect (0: a free one);
    `added_rtt_s` is split evenly over both directions. Raises OSError when the port is taken.
    """

    def __init__(self, target_port: int, *, port: int = 0, added_rtt_s: float = 0.0) -> None:
        self.target_port = target_port
        self.port = port
        self.added_rtt_s = added_rtt_s
        self.exchanges: list[Exchange] = []
        self.undecoded: list[str] = []
        self._armed: list[HeldRequest] = []
        self._connections = itertools.count(1)
        self._sides: set[_Side] = set()
        self._clients: list[_Side] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="kafka-proxy", daemon=True)

    def start(self) -> Self:
        """Listen; returns once connections are taken."""
        self._thread.start()
        if not self._started.wait(START_TIMEOUT_S):
            raise TimeoutError(f"proxy on port {self.port} did not start within {START_TIMEOUT_S} s")
        if self._failure is not None:
            raise OSError(f"proxy cannot listen on port {self.port}: {self._failure}") from self._failure
        return self

    def stop(self) -> None:
        """Close all connections and end the thread."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(START_TIMEOUT_S)

    def reset(self, *, added_rtt_s: float | None = None) -> None:
        """Forget what was recorded; new connections get the new round-trip time, if one is given."""
        self.exchanges.clear()
        self.undecoded.clear()
        if added_rtt_s is not None:
            self.added_rtt_s = added_rtt_s

    def cut_off_clients(self) -> None:
        """Close every connection that a client has now, whether anything is under way on it or not."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._close_clients)

    def _close_clients(self) -> None:
        clients, self._clients = self._clients, []
        for client in clients:
            client.close()

    def hold_next(self, api: Api, matches: Matches = lambda _: True, *, cuts_off: bool = False) -> HeldRequest:
        """Keep back the next request of that kind that matches, until `deliver` or `discard`; see `HeldRequest`."""
        return self._arm(HeldRequest(api, matches, passes=False, cuts_off=cuts_off))

    def lose_next_answer(self, api: Api, matches: Matches = lambda _: True) -> HeldRequest:
        """Let the next such request through, and nothing back to its client from its answer on."""
        return self._arm(HeldRequest(api, matches, passes=True))

    def misdirect_next(
        self, api: Api, matches: Matches, misdirection: tuple[bytes, bytes], *, holds: bool = False
    ) -> HeldRequest:
        """Let the broker read the next such request with other bytes, as many, in the place of some.

        `holds`: it is kept back, too, until `deliver`.
        """
        return self._arm(HeldRequest(api, matches, passes=not holds, misdirection=misdirection))

    def _arm(self, held: HeldRequest) -> HeldRequest:
        self._armed.append(held)
        return held

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await self._loop.create_server(self._accept, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        for side in tuple(self._sides):
            side.close()

    def _accept(self) -> _Side:
        recorder = _Recorder(next(self._connections), self.exchanges, self.undecoded)
        one_way_s = self.added_rtt_s / 2
        passage = Passage(self._armed)
        client = _Side(one_way_s, passage.requests, scan_in=recorder.requests, farewell=passage.client_left)
        broker = _Side(one_way_s, passage.responses, scan_out=recorder.responses)
        passage.connect(client.forward, broker.close, client.close)
        self._clients = [each for each in self._clients if not each.closed] + [client]
        task = asyncio.get_running_loop().create_task(self._connect(client, broker))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return client

    async def _connect(self, client: _Side, broker: _Side) -> None:
        self._sides = {side for side in self._sides if not side.closed} | {client, broker}
        try:
            await asyncio.get_running_loop().create_connection(lambda: broker, "127.0.0.1", self.target_port)
        except OSError:
            client.close()
            return
        broker.pair(client)
        client.pair(broker)
