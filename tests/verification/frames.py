"""Builds Kafka frames byte by byte, for tests of the decoder that need no broker."""

from __future__ import annotations

import struct


def string(text: str | None, *, compact: bool = False) -> bytes:
    """A (compact) nullable string; lengths below 127 only."""
    body = b"" if text is None else text.encode()
    if compact:
        return bytes([0 if text is None else len(body) + 1]) + body
    return struct.pack(">h", -1 if text is None else len(body)) + body


def request(
    api_key: int, version: int, correlation_id: int, body: bytes, *, flexible: bool, client_id: str = "rdkafka"
) -> bytes:
    """A request frame with its size."""
    head = struct.pack(">hhi", api_key, version, correlation_id) + string(client_id)
    frame = head + (b"\x00" if flexible else b"") + body
    return struct.pack(">i", len(frame)) + frame


def response(correlation_id: int, body: bytes, *, flexible: bool) -> bytes:
    """A response frame with its size."""
    frame = struct.pack(">i", correlation_id) + (b"\x00" if flexible else b"") + body
    return struct.pack(">i", len(frame)) + frame


def txn_offset_commit(
    correlation_id: int, *, transactional_id: str, group: str, generation: int, member_id: str
) -> bytes:
    """TxnOffsetCommit v3 for offset 7 of partition 2 of topic 'in'."""
    body = string(transactional_id, compact=True) + string(group, compact=True)
    body += struct.pack(">qhi", 4000, 0, generation) + string(member_id, compact=True) + string(None, compact=True)
    partition = struct.pack(">iqi", 2, 7, -1) + string("", compact=True) + b"\x00"
    body += b"\x02" + string("in", compact=True) + b"\x02" + partition + b"\x00" + b"\x00"
    return request(28, 3, correlation_id, body, flexible=True)


def txn_offset_commit_answer(correlation_id: int, *errors: int) -> bytes:
    """Its response: one topic, one partition per error."""
    partitions = b"".join(struct.pack(">ih", index, error) + b"\x00" for index, error in enumerate(errors))
    body = struct.pack(">i", 0) + b"\x02" + string("in", compact=True) + bytes([len(errors) + 1]) + partitions
    return response(correlation_id, body + b"\x00\x00", flexible=True)


def add_offsets(correlation_id: int, *, transactional_id: str, group: str) -> bytes:
    """AddOffsetsToTxn v0."""
    body = string(transactional_id) + struct.pack(">qh", 4000, 0) + string(group)
    return request(25, 0, correlation_id, body, flexible=False)


def end_txn(correlation_id: int, *, transactional_id: str, commits: bool) -> bytes:
    """EndTxn v1."""
    body = string(transactional_id) + struct.pack(">qh?", 4000, 0, commits)
    return request(26, 1, correlation_id, body, flexible=False)


def throttle_and_error(correlation_id: int, error: int) -> bytes:
    """The response of AddOffsetsToTxn, EndTxn, Heartbeat v1+."""
    return response(correlation_id, struct.pack(">ih", 0, error), flexible=False)


def consumer_heartbeat(correlation_id: int, *, group: str, member_id: str, epoch: int) -> bytes:
    """ConsumerGroupHeartbeat v1, the fields after the epoch null or empty."""
    body = string(group, compact=True) + string(member_id, compact=True) + struct.pack(">i", epoch)
    body += b"\x00\x00" + struct.pack(">i", -1) + b"\x00\x00\x00\x00\x00"
    return request(68, 1, correlation_id, body, flexible=True)


def consumer_heartbeat_answer(correlation_id: int, *, member_id: str | None, epoch: int, error: int = 0) -> bytes:
    """Its response, without an assignment."""
    body = struct.pack(">ih", 0, error) + string(None, compact=True) + string(member_id, compact=True)
    return response(correlation_id, body + struct.pack(">ii", epoch, 500) + b"\xff\x00", flexible=True)


def join_group(correlation_id: int, *, group: str, member_id: str) -> bytes:
    """JoinGroup v5."""
    body = string(group) + struct.pack(">ii", 6000, 60000) + string(member_id) + string(None)
    return request(11, 5, correlation_id, body + string("consumer") + struct.pack(">i", 0), flexible=False)


def join_group_answer(correlation_id: int, *, generation: int, member_id: str, error: int = 0) -> bytes:
    """Its response, for a member that does not lead."""
    body = struct.pack(">ihi", 0, error, generation) + string("range") + string("leader") + string(member_id)
    return response(correlation_id, body + struct.pack(">i", 0), flexible=False)


def heartbeat(correlation_id: int, *, group: str, generation: int, member_id: str) -> bytes:
    """Heartbeat v3."""
    body = string(group) + struct.pack(">i", generation) + string(member_id) + string(None)
    return request(12, 3, correlation_id, body, flexible=False)


def leave_group(correlation_id: int, *, group: str, member_id: str) -> bytes:
    """LeaveGroup v1."""
    return request(13, 1, correlation_id, string(group) + string(member_id), flexible=False)
