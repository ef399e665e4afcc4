"""The decoder against hand-made frames, and the scanner against every way a stream can be cut."""

from __future__ import annotations

import struct

import pytest

from tests.verification import frames
from tests.verification.wire import (
    REQUEST_HEAD_BYTES,
    Api,
    FrameScanner,
    RequestFields,
    ResponseFields,
    decode_request,
    decode_response,
    request_head,
)


def body(frame: bytes) -> bytes:
    return frame[4:]


def test_reads_generation_member_and_offsets_of_a_transactional_commit() -> None:
    frame = frames.txn_offset_commit(5, transactional_id="t", group="g", generation=12, member_id="m")
    assert decode_request(body(frame)) == (
        Api.TXN_OFFSET_COMMIT,
        3,
        RequestFields("rdkafka", "g", "m", 12, "t", (("in", 2, 7),)),
    )


def test_a_transactional_commit_too_old_to_carry_a_generation_reads_as_anonymous() -> None:
    topic = frames.string("in") + struct.pack(">i", 1) + struct.pack(">iqi", 0, 1, -1) + frames.string(None)
    fields = frames.string("t") + frames.string("g") + struct.pack(">qhi", 1, 0, 1) + topic
    _, version, request = decode_request(body(frames.request(28, 2, 1, fields, flexible=False)))
    assert (version, request.generation, request.member_id) == (2, -1, "")
    assert request.offsets == (("in", 0, 1),)


def test_reads_every_partitions_error_of_a_commit() -> None:
    answer = decode_response(Api.TXN_OFFSET_COMMIT, 3, body(frames.txn_offset_commit_answer(5, 0, 22)))
    assert answer == ResponseFields((0, 22))


def test_reads_the_epoch_a_heartbeat_hands_over() -> None:
    frame = frames.consumer_heartbeat(1, group="g", member_id="m", epoch=3)
    assert decode_request(body(frame))[2] == RequestFields("rdkafka", "g", "m", 3)
    answer = frames.consumer_heartbeat_answer(1, member_id="m", epoch=4)
    assert decode_response(Api.CONSUMER_GROUP_HEARTBEAT, 1, body(answer)) == ResponseFields((0,), "m", 4)


def test_reads_the_generation_a_join_hands_over() -> None:
    frame = frames.join_group(1, group="g", member_id="m")
    assert decode_request(body(frame))[2] == RequestFields("rdkafka", "g", "m")
    answer = frames.join_group_answer(1, generation=9, member_id="m-1")
    assert decode_response(Api.JOIN_GROUP, 5, body(answer)) == ResponseFields((0,), "m-1", 9)


def test_reads_heartbeat_leave_and_the_ends_of_transactions() -> None:
    beat = frames.heartbeat(1, group="g", generation=4, member_id="m")
    assert decode_request(body(beat))[2] == RequestFields("rdkafka", "g", "m", 4)
    assert decode_response(Api.HEARTBEAT, 3, body(frames.throttle_and_error(1, 27))) == ResponseFields((27,))
    leave = frames.leave_group(1, group="g", member_id="m")
    assert decode_request(body(leave))[2] == RequestFields("rdkafka", "g", "m")
    add = frames.add_offsets(1, transactional_id="t", group="g")
    assert decode_request(body(add))[2] == RequestFields("rdkafka", "g", transactional_id="t")
    end = frames.end_txn(1, transactional_id="t", commits=True)
    assert decode_request(body(end))[2].commits is True


@pytest.mark.parametrize(
    ("version", "flexible", "between"),
    [
        (2, False, struct.pack(">q", -1)),
        (7, False, frames.string(None)),
        (9, True, frames.string(None, compact=True)),
    ],
)
def test_reads_a_plain_commit_in_its_old_and_its_compact_form(version: int, flexible: bool, between: bytes) -> None:
    fields = frames.string("g", compact=flexible) + struct.pack(">i", 6) + frames.string("m", compact=flexible)
    one = b"\x02" if flexible else struct.pack(">i", 1)
    tags = b"\x00" if flexible else b""
    partition = struct.pack(">iq", 3, 44) + (struct.pack(">i", -1) if version >= 6 else b"")
    partition += frames.string(None, compact=flexible) + tags
    topics = one + frames.string("in", compact=flexible) + one + partition + tags
    frame = frames.request(8, version, 1, fields + between + topics + tags, flexible=flexible)
    assert decode_request(body(frame))[2] == RequestFields("rdkafka", "g", "m", 6, offsets=(("in", 3, 44),))


def test_a_frame_that_ends_early_is_an_error_not_a_guess() -> None:
    frame = body(frames.txn_offset_commit(5, transactional_id="t", group="g", generation=1, member_id="m"))
    with pytest.raises(ValueError, match="of a frame of"):
        decode_request(frame[:-12])


@pytest.mark.parametrize("step", [1, 2, 3, 7, 11, 64, 10_000])
def test_finds_the_wanted_frames_however_the_stream_is_cut(step: int) -> None:
    produce = frames.request(0, 7, 1, bytes(range(256)) * 3, flexible=False)
    end = frames.end_txn(2, transactional_id="t", commits=True)
    commit = frames.txn_offset_commit(3, transactional_id="t", group="g", generation=1, member_id="m")
    stream = produce + end + produce + commit + produce + end
    seen: list[bytes] = []
    scanner = FrameScanner(REQUEST_HEAD_BYTES, lambda head: request_head(head)[0] != 0, seen.append)
    for at in range(0, len(stream), step):
        scanner.feed(stream[at : at + step])
    assert seen == [body(end), body(commit), body(end)]
