"""The few Kafka requests that decide whether a commit is refused, decoded from raw frames.

A frame is a 4-byte size, then for a request api key, api version, correlation id and client id, for a response the
correlation id. Only the fields a verdict needs are read; layouts follow Kafka's published message definitions
(clients/src/main/resources/common/message/*.json), for the versions librdkafka 2.16 sends and their neighbours.
Nothing here imports the client under test.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from dataclasses import dataclass


class Api(enum.IntEnum):
    """The API keys whose requests are decoded; every other frame is only counted through."""

    PRODUCE = 0
    LIST_OFFSETS = 2
    OFFSET_COMMIT = 8
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    INIT_PRODUCER_ID = 22
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    CONSUMER_GROUP_HEARTBEAT = 68


FIRST_FLEXIBLE_VERSION = {
    Api.PRODUCE: 9,
    Api.LIST_OFFSETS: 6,
    Api.OFFSET_COMMIT: 8,
    Api.JOIN_GROUP: 6,
    Api.HEARTBEAT: 4,
    Api.LEAVE_GROUP: 4,
    Api.SYNC_GROUP: 4,
    Api.INIT_PRODUCER_ID: 2,
    Api.ADD_OFFSETS_TO_TXN: 3,
    Api.END_TXN: 3,
    Api.TXN_OFFSET_COMMIT: 3,
    Api.CONSUMER_GROUP_HEARTBEAT: 0,
}

REQUEST_HEAD_BYTES = 8
RESPONSE_HEAD_BYTES = 4


class TruncatedFrameError(ValueError):
    """A frame ended before the field that was to be read from it."""


@dataclass(frozen=True, slots=True)
class RequestFields:
    """What one request says; an absent field keeps its default."""

    client_id: str = ""
    group: str = ""
    member_id: str = ""
    generation: int | None = None
    transactional_id: str = ""
    offsets: tuple[tuple[str, int, int], ...] = ()
    commits: bool | None = None
    producer_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ResponseFields:
    """What one response says: its error codes (0 is success) and the generation or epoch it hands to the member."""

    errors: tuple[int, ...] = ()
    member_id: str = ""
    generation: int | None = None


class _Cursor:
    """Reads Kafka's primitive types one after the other; `flexible` selects the compact encodings (KIP-482)."""

    def __init__(self, body: bytes, *, flexible: bool) -> None:
        self._body = body
        self._at = 0
        self._flexible = flexible

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._body):
            raise TruncatedFrameError(f"{count} bytes wanted at {self._at} of a frame of {len(self._body)}")
        taken = self._body[self._at : end]
        self._at = end
        return taken

    def integer(self, width: int) -> int:
        return int.from_bytes(self._take(width), "big", signed=True)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self) -> str:
        """A string or nullable string; null reads as empty."""
        length = self.uvarint() - 1 if self._flexible else self.integer(2)
        return self._take(length).decode("utf-8", "replace") if length > 0 else ""

    def array_length(self) -> int:
        return max(0, self.uvarint() - 1 if self._flexible else self.integer(4))

    def tagged_fields(self) -> None:
        if not self._flexible:
            return
        for _ in range(self.uvarint()):
            self.uvarint()
            self._take(self.uvarint())


def request_head(head: bytes) -> tuple[int, int, int]:
    """Api key, api version and correlation id: the first eight bytes of every request."""
    api_key, api_version, correlation_id = struct.unpack(">hhi", head[:REQUEST_HEAD_BYTES])
    return api_key, api_version, correlation_id


def response_head(head: bytes) -> int:
    """The correlation id: the first four bytes of every response."""
    return int.from_bytes(head[:RESPONSE_HEAD_BYTES], "big", signed=True)


def decode_request(frame: bytes) -> tuple[Api, int, RequestFields]:
    """Api, version and fields of one whole request frame (without its size)."""
    api_key, version, _ = request_head(frame)
    api = Api(api_key)
    flexible = version >= FIRST_FLEXIBLE_VERSION[api]
    # The client id keeps its old encoding in the flexible header, too.
    client_id_cursor = _Cursor(frame[REQUEST_HEAD_BYTES:], flexible=False)
    client_id = client_id_cursor.string()
    body_at = REQUEST_HEAD_BYTES + 2 + len(client_id.encode())
    cursor = _Cursor(frame[body_at:], flexible=flexible)
    cursor.tagged_fields()
    return api, version, _REQUESTS[api](cursor, version, client_id)


def decode_response(api: Api, version: int, frame: bytes) -> ResponseFields:
    """Fields of one whole response frame (without its size) to a request of that api and version."""
    cursor = _Cursor(frame[RESPONSE_HEAD_BYTES:], flexible=version >= FIRST_FLEXIBLE_VERSION[api])
    cursor.tagged_fields()
    return _RESPONSES[api](cursor, version)


def _transactional_id_request(cursor: _Cursor, version: int, client_id: str) -> RequestFields:
    return RequestFields(client_id, transactional_id=cursor.string())


def _offsets(cursor: _Cursor, *, leader_epoch: bool) -> tuple[tuple[str, int, int], ...]:
    found = []
    for _ in range(cursor.array_length()):
        topic = cursor.string()
        for _ in range(cursor.array_length()):
            found.append((topic, cursor.integer(4), cursor.integer(8)))
            if leader_epoch:
                cursor.integer(4)
            cursor.string()
            cursor.tagged_fields()
        cursor.tagged_fields()
    return tuple(found)


def _txn_offset_commit_request(cursor: _Cursor, version: int, client_id: str) -> RequestFields:
    transactional_id, group = cursor.string(), cursor.string()
    cursor.integer(8)
    cursor.integer(2)
    generation, member_id = -1, ""
    if version >= 3:
        generation, member_id = cursor.integer(4), cursor.string()
        cursor.string()
    offsets = _offsets(cursor, leader_epoch=version >= 2)
    return RequestFields(client_id, group, member_id, generation, transactional_id, offsets)


def _offset_commit_request(cursor: _Cursor, version: int, client_id: str) -> RequestFields:
    group = cursor.string()
    generation, member_id = (cursor.integer(4), cursor.string()) if version >= 1 else (-1, "")
    if version >= 7:
        cursor.string()
    if 2 <= version <= 4:
        cursor.integer(8)
    return RequestFields(client_id, group, member_id, generation, offsets=_offsets(cursor, leader_epoch=version >= 6))


def _add_offsets_request(cursor: _Cursor, version: int, client_id: str) -> RequestFields:
    transactional_id = cursor.string()
    cursor.integer(8)
    cursor.integer(2)
    return RequestFields(client_id, cursor.string(), transactional_id=transactional_id)


def _end_txn_request(cursor: _Cursor, version: int, client_id: str) -> RequestFields:
    transactional_id = cursor.string()
    cursor.integer(8)
    epoch, commits = cursor.integer(2), cursor.integer(1) != 0
    return RequestFields(client_id, transactional_id=transactional_id, commits=commits, producer_epoch=epoch)


def _generation_then_member_request(cursor: _Cursor, version: int, client_id: str) -> RequestFields:
    group, generation, member_id = cursor.string(), cursor.integer(4), cursor.string()
    return RequestFields(client_id, group, member_id, generation)


def _join_group_request(cursor: _Cursor, version: int, client_id: str) -> RequestFields:
    group = cursor.string()
    cursor.integer(4)
    if version >= 1:
        cursor.integer(4)
    return RequestFields(client_id, group, cursor.string())


def _leave_group_request(cursor: _Cursor, version: int, client_id: str) -> RequestFields:
    group = cursor.string()
    if version >= 3 and cursor.array_length() == 0:
        return RequestFields(client_id, group)
    return RequestFields(client_id, group, cursor.string())


def _consumer_heartbeat_request(cursor: _Cursor, version: int, client_id: str) -> RequestFields:
    group, member_id = cursor.string(), cursor.string()
    return RequestFields(client_id, group, member_id, cursor.integer(4))


def _per_partition_response(cursor: _Cursor, version: int, throttle_since: int) -> ResponseFields:
    if version >= throttle_since:
        cursor.integer(4)
    errors = []
    for _ in range(cursor.array_length()):
        cursor.string()
        for _ in range(cursor.array_length()):
            cursor.integer(4)
            errors.append(cursor.integer(2))
            cursor.tagged_fields()
        cursor.tagged_fields()
    return ResponseFields(tuple(errors))


def _produce_response(cursor: _Cursor, version: int) -> ResponseFields:
    """The error of the only partition: librdkafka sends one batch in a request."""
    cursor.array_length()
    cursor.string()
    cursor.array_length()
    cursor.integer(4)
    return ResponseFields((cursor.integer(2),))


def _single_error_response(cursor: _Cursor, version: int, throttle_since: int) -> ResponseFields:
    if version >= throttle_since:
        cursor.integer(4)
    return ResponseFields((cursor.integer(2),))


def _join_group_response(cursor: _Cursor, version: int) -> ResponseFields:
    if version >= 2:
        cursor.integer(4)
    error, generation = cursor.integer(2), cursor.integer(4)
    if version >= 7:
        cursor.string()
    cursor.string()
    cursor.string()
    if version >= 9:
        cursor.integer(1)
    return ResponseFields((error,), cursor.string(), generation)


def _consumer_heartbeat_response(cursor: _Cursor, version: int) -> ResponseFields:
    cursor.integer(4)
    error = cursor.integer(2)
    cursor.string()
    return ResponseFields((error,), cursor.string(), cursor.integer(4))


_REQUESTS: dict[Api, Callable[[_Cursor, int, str], RequestFields]] = {
    Api.PRODUCE: _transactional_id_request,
    Api.LIST_OFFSETS: lambda _cursor, _version, client_id: RequestFields(client_id),
    Api.OFFSET_COMMIT: _offset_commit_request,
    Api.JOIN_GROUP: _join_group_request,
    Api.HEARTBEAT: _generation_then_member_request,
    Api.LEAVE_GROUP: _leave_group_request,
    Api.SYNC_GROUP: _generation_then_member_request,
    Api.INIT_PRODUCER_ID: _transactional_id_request,
    Api.ADD_OFFSETS_TO_TXN: _add_offsets_request,
    Api.END_TXN: _end_txn_request,
    Api.TXN_OFFSET_COMMIT: _txn_offset_commit_request,
    Api.CONSUMER_GROUP_HEARTBEAT: _consumer_heartbeat_request,
}
_RESPONSES: dict[Api, Callable[[_Cursor, int], ResponseFields]] = {
    Api.PRODUCE: _produce_response,
    Api.LIST_OFFSETS: lambda _cursor, _version: ResponseFields(),
    Api.OFFSET_COMMIT: lambda cursor, version: _per_partition_response(cursor, version, 3),
    Api.JOIN_GROUP: _join_group_response,
    Api.HEARTBEAT: lambda cursor, version: _single_error_response(cursor, version, 1),
    Api.LEAVE_GROUP: lambda cursor, version: _single_error_response(cursor, version, 1),
    Api.SYNC_GROUP: lambda cursor, version: _single_error_response(cursor, version, 1),
    Api.INIT_PRODUCER_ID: lambda cursor, version: _single_error_response(cursor, version, 0),
    Api.ADD_OFFSETS_TO_TXN: lambda cursor, version: _single_error_response(cursor, version, 0),
    Api.END_TXN: lambda cursor, version: _single_error_response(cursor, version, 0),
    Api.TXN_OFFSET_COMMIT: lambda cursor, version: _per_partition_response(cursor, version, 0),
    Api.CONSUMER_GROUP_HEARTBEAT: _consumer_heartbeat_response,
}


class FrameScanner:
    """Cuts a byte stream into frames; collects only those whose head is wanted and skips the others uncopied.

    `wants(head)` sees the first `head_bytes` bytes after the size; `on_frame(frame)` gets each wanted frame whole,
    without its size.
    """

    def __init__(self, head_bytes: int, wants: Callable[[bytes], bool], on_frame: Callable[[bytes], None]) -> None:
        self._head_length = 4 + head_bytes
        self._wants = wants
        self._on_frame = on_frame
        self._pending = bytearray()
        self._needed = self._head_length
        self._skip = 0
        self._in_body = False

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        at, end = 0, len(chunk)
        while at < end:
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
            else:
                step = min(self._needed - len(self._pending), end - at)
                self._pending += chunk[at : at + step]
                if len(self._pending) == self._needed:
                    self._advance()
            at += step

    def _advance(self) -> None:
        if not self._in_body:
            length = 4 + int.from_bytes(self._pending[:4], "big")
            if not self._wants(bytes(self._pending[4:])):
                self._skip = length - len(self._pending)
                self._pending.clear()
                return
            self._in_body, self._needed = True, length
            if len(self._pending) < length:
                return
        frame = bytes(self._pending[4:])
        self._pending.clear()
        self._in_body, self._needed = False, self._head_length
        self._on_frame(frame)
