"""Requests that a network delivers late or never, answers that it loses, and requests that are misdirected.

What is held is kept in the proxy until told otherwise.

Nothing overtakes a held request on its own connection; all other connections go on. When its client gives up and
closes, the broker's end stays open, because what is on its way arrives all the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

from tests.support.waiting import wait_for
from tests.verification.wire import (
    REQUEST_HEAD_BYTES,
    RESPONSE_HEAD_BYTES,
    Api,
    RequestFields,
    ResponseFields,
    decode_request,
    decode_response,
    request_head,
    response_head,
)

WAIT_S = 60.0
_SIZE_BYTES = 4

Matches = Callable[[RequestFields], bool]


class HeldRequest:
    """One request that the proxy is to catch: kept back, or let through with its answer lost. For the test's thread.

    `cuts_off`: its client's end of the connection is closed as soon as it has come; it stays on its way.
    `misdirection`: bytes in it, and those of the same length that the broker reads instead, also when it was kept back
    first; its answer is not lost.
    """

    def __init__(
        self,
        api: Api,
        matches: Matches,
        *,
        passes: bool,
        cuts_off: bool = False,
        misdirection: tuple[bytes, bytes] | None = None,
    ) -> None:
        self.api = api
        self.matches = matches
        self.passes = passes
        self.cuts_off = cuts_off
        self.misdirection = misdirection
        self.request: RequestFields | None = None
        self.response: ResponseFields | None = None
        self._passage: Passage | None = None
        self._caught = threading.Event()
        self._answered = threading.Event()

    @property
    def loses_answer(self) -> bool:
        """Whether nothing reaches its client from its answer on."""
        return self.passes and self.misdirection is None

    def passing(self, frame: bytes) -> bytes | None:
        """What goes on to the broker in the place of `frame` now; None when it is kept."""
        return self.misdirected(frame) if self.passes else None

    def misdirected(self, frame: bytes) -> bytes:
        """What the broker is to read in the place of `frame`, whenever it gets it."""
        return frame if self.misdirection is None else frame.replace(*self.misdirection)

    @property
    def is_caught(self) -> bool:
        """Whether the request has come."""
        return self._caught.is_set()

    def wait_until_caught(self, timeout_s: float = WAIT_S) -> RequestFields:
        """Wait for the request and return it; raises TimeoutError."""
        if not self._caught.wait(timeout_s) or self.request is None:
            raise TimeoutError(f"no {self.api.name} that matches was sent within {timeout_s} s")
        return self.request

    def wait_until_followed(self, count: int, timeout_s: float = WAIT_S) -> None:
        """Wait until its client has sent that many more requests of its kind behind it; raises TimeoutError."""
        self.wait_until_caught(timeout_s)
        wait_for(
            lambda: self._passage is None or self._passage.count_behind(self.api) >= count,
            f"{count} {self.api.name} behind the held one",
            timeout_s=timeout_s,
        )

    def deliver(self) -> None:
        """Let it go on to the broker, and after it what its client has sent since."""
        self._tell(lambda passage: passage.deliver())

    def discard(self) -> None:
        """Lose it: both ends of its connection are closed, as by a network that has failed."""
        self._tell(lambda passage: passage.discard())

    def wait_for_answer(self, timeout_s: float = WAIT_S) -> ResponseFields:
        """Wait for what the broker answered and return it; raises TimeoutError."""
        if not self._answered.wait(timeout_s) or self.response is None:
            raise TimeoutError(f"the broker did not answer {self.api.name} within {timeout_s} s")
        return self.response

    def _tell(self, act: Callable[[Passage], None]) -> None:
        self.wait_until_caught()
        passage = self._passage
        if passage is not None:
            passage.loop.call_soon_threadsafe(act, passage)

    def caught(self, passage: Passage, request: RequestFields) -> None:
        """Take note of the request; called by the proxy."""
        self._passage, self.request = passage, request
        self._caught.set()

    def answered(self, response: ResponseFields) -> None:
        """Take note of the broker's answer; called by the proxy."""
        self.response = response
        self._answered.set()


class FrameValve:
    """One direction of a connection, cut into frames where that matters; shuts at the frame it is told to keep.

    `wants(head)` sees the first `head_bytes` bytes after the size; `lets_through(frame)` gets each wanted frame whole,
    without its size, and returns what goes on, as long as it was, or None to keep it.
    """

    def __init__(
        self, head_bytes: int, wants: Callable[[bytes], bool], lets_through: Callable[[bytes], bytes | None]
    ) -> None:
        self._head_length = _SIZE_BYTES + head_bytes
        self._wants = wants
        self._lets_through = lets_through
        self._pending = bytearray()
        self._needed = self._head_length
        self._passing = 0
        self._in_body = False
        self._kept = bytearray()
        self._behind = bytearray()
        self.is_shut = False

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes of the stream; returns those that may go on now."""
        if self._passing >= len(chunk) and not self.is_shut:
            self._passing -= len(chunk)
            return chunk
        through = bytearray()
        at, end = 0, len(chunk)
        while at < end and not self.is_shut:
            if self._passing:
                step = min(self._passing, end - at)
                self._passing -= step
                through += chunk[at : at + step]
            else:
                step = min(self._needed - len(self._pending), end - at)
                self._pending += chunk[at : at + step]
                if len(self._pending) == self._needed:
                    through += self._decide()
            at += step
        self._behind += chunk[at:]
        return bytes(through)

    def heads_behind(self) -> Iterator[bytes]:
        """The heads of all frames that have come behind the kept one."""
        behind, at = bytes(self._behind), 0
        while at + self._head_length <= len(behind):
            yield behind[at + _SIZE_BYTES : at + self._head_length]
            at += _SIZE_BYTES + int.from_bytes(behind[at : at + _SIZE_BYTES], "big")

    def reopen(self, changed: Callable[[bytes], bytes] = bytes) -> bytes:
        """Return the kept frame, `changed`, and what came after it, up to the next one to be kept."""
        first, behind = changed(bytes(self._kept)), bytes(self._behind)
        self._kept.clear()
        self._behind.clear()
        self.is_shut = False
        return first + self.feed(behind)

    def rest(self) -> bytes:
        """Return the beginning of a frame that will not be completed any more."""
        rest = bytes(self._pending)
        self._pending.clear()
        return rest

    def _decide(self) -> bytes:
        if not self._in_body:
            length = _SIZE_BYTES + int.from_bytes(self._pending[:_SIZE_BYTES], "big")
            if not self._wants(bytes(self._pending[_SIZE_BYTES:])):
                self._passing = length - len(self._pending)
                return self.rest()
            self._in_body, self._needed = True, length
            if len(self._pending) < length:
                return b""
        self._in_body, self._needed = False, self._head_length
        frame = self.rest()
        passing = self._lets_through(frame[_SIZE_BYTES:])
        if passing is not None:
            return frame[:_SIZE_BYTES] + passing
        self._kept += frame
        self.is_shut = True
        return b""


class Passage:
    """What one connection lets through, in both directions. Lives in the proxy's thread.

    `armed`: the requests that are to be caught, shared by all connections; each is caught once.
    """

    def __init__(self, armed: list[HeldRequest]) -> None:
        self.loop = asyncio.get_running_loop()
        self.requests = FrameValve(REQUEST_HEAD_BYTES, self._wants_request, self._lets_request_through)
        self.responses = FrameValve(RESPONSE_HEAD_BYTES, self._wants_response, self._lets_response_through)
        self._armed = armed
        self._awaited: dict[int, tuple[HeldRequest, int]] = {}
        self._misdirected: Callable[[bytes], bytes] = bytes
        self._to_broker: Callable[[bytes], None] = lambda _: None
        self._close_broker: Callable[[], None] = lambda: None
        self.close_client: Callable[[], None] = lambda: None
        self._client_is_gone = False

    def connect(
        self, to_broker: Callable[[bytes], None], close_broker: Callable[[], None], close_client: Callable[[], None]
    ) -> None:
        """Say how to reach both ends."""
        self._to_broker = to_broker
        self._close_broker = close_broker
        self.close_client = close_client

    def client_left(self) -> None:
        """Close the broker's end, too, once nothing that was caught is on its way any more."""
        self._client_is_gone = True
        self._close_when_done()

    def deliver(self) -> None:
        """Let what is held go on."""
        if self.requests.is_shut:
            self._to_broker(self.requests.reopen(self._misdirected))

    def count_behind(self, api: Api) -> int:
        """How many requests of that kind have come behind the one that is held; for any thread."""
        return sum(request_head(head)[0] == api for head in self.requests.heads_behind())

    def discard(self) -> None:
        """Lose what is held, and the connection."""
        self.close_client()
        self._close_broker()

    def _close_when_done(self) -> None:
        if self._client_is_gone and not self.requests.is_shut and not self._awaited:
            self._close_broker()

    def _wants_request(self, head: bytes) -> bool:
        api_key = request_head(head)[0]
        return any(held.api == api_key for held in self._armed)

    def _lets_request_through(self, frame: bytes) -> bytes | None:
        try:
            api, version, request = decode_request(frame)
        except ValueError:
            return frame
        held = next((held for held in self._armed if held.api is api and held.matches(request)), None)
        if held is None:
            return frame
        self._armed.remove(held)
        self._awaited[request_head(frame)[2]] = (held, version)
        held.caught(self, request)
        if held.cuts_off:
            self.loop.call_soon(self.close_client)
        self._misdirected = held.misdirected
        return held.passing(frame)

    def _wants_response(self, head: bytes) -> bool:
        return response_head(head) in self._awaited

    def _lets_response_through(self, frame: bytes) -> bytes | None:
        held, version = self._awaited.pop(response_head(frame))
        held.answered(decode_response(held.api, version, frame))
        self._close_when_done()
        return None if held.loses_answer else frame
