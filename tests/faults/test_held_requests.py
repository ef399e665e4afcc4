"""Holding, delivering and losing what passes the proxy, against a scripted peer, byte by byte."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.faults.test_proxy import ScriptedBroker, read_exactly
from tests.support.waiting import wait_for
from tests.verification import frames
from tests.verification.held_requests import FrameValve
from tests.verification.proxy import KafkaProxy
from tests.verification.wire import REQUEST_HEAD_BYTES, Api, RequestFields, ResponseFields, request_head

COMMIT = frames.end_txn(1, transactional_id="t", commits=True)
ABORT = frames.end_txn(2, transactional_id="t", commits=False)
OFFSETS = frames.add_offsets(3, transactional_id="t", group="g")
BEAT = frames.heartbeat(4, group="g", generation=3, member_id="m")
ANSWER_TO_COMMIT = frames.throttle_and_error(1, 47)
SILENCE_S = 0.2


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    scripted = ScriptedBroker()
    scripted.answer = lambda _: b""
    yield scripted
    scripted.close()


@pytest.fixture
def proxy(broker: ScriptedBroker) -> Iterator[KafkaProxy]:
    with KafkaProxy(broker.port) as running:
        yield running


@pytest.fixture
def client(proxy: KafkaProxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        yield connection


def commits(request: RequestFields) -> bool:
    return bool(request.commits)


def has_received(broker: ScriptedBroker, *expected: bytes) -> bool:
    return bool(wait_for(lambda: bytes(broker.received) == b"".join(expected), "what the broker receives"))


def answers_nothing(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE_S)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return True


def test_a_held_request_waits_and_nothing_overtakes_it_but_on_other_connections(
    broker: ScriptedBroker, proxy: KafkaProxy, client: socket.socket
) -> None:
    held = proxy.hold_next(Api.END_TXN, commits)
    client.sendall(OFFSETS + COMMIT + ABORT)
    caught = held.wait_until_caught()
    assert (caught.transactional_id, caught.producer_epoch) == ("t", 0)
    assert has_received(broker, OFFSETS)
    client.sendall(BEAT)
    with socket.create_connection(("127.0.0.1", proxy.port)) as other:
        other.sendall(BEAT)
        assert has_received(broker, OFFSETS, BEAT)
    held.deliver()
    assert has_received(broker, OFFSETS, BEAT, COMMIT, ABORT, BEAT)


def test_the_answer_to_a_late_request_reaches_the_client_that_still_waits(
    broker: ScriptedBroker, proxy: KafkaProxy, client: socket.socket
) -> None:
    broker.answer = lambda _: ANSWER_TO_COMMIT
    held = proxy.hold_next(Api.END_TXN, commits)
    client.sendall(COMMIT)
    held.wait_until_caught()
    assert held.response is None
    held.deliver()
    assert read_exactly(client, len(ANSWER_TO_COMMIT)) == ANSWER_TO_COMMIT
    assert held.wait_for_answer() == ResponseFields((47,))
    wait_for(lambda: proxy.exchanges[0].response == ResponseFields((47,)), "the answer on record")


def test_a_request_is_caught_once_and_only_if_it_matches(
    broker: ScriptedBroker, proxy: KafkaProxy, client: socket.socket
) -> None:
    held = proxy.hold_next(Api.END_TXN, commits)
    client.sendall(ABORT)
    assert has_received(broker, ABORT)
    assert not held.is_caught
    client.sendall(COMMIT)
    held.wait_until_caught()
    held.deliver()
    client.sendall(COMMIT)
    assert has_received(broker, ABORT, COMMIT, COMMIT)


@pytest.mark.parametrize("cuts_off", [False, True], ids=["by itself", "cut off"])
def test_a_held_request_reaches_the_broker_though_its_client_has_left(
    broker: ScriptedBroker, proxy: KafkaProxy, client: socket.socket, cuts_off: bool
) -> None:
    broker.answer = lambda chunk: ANSWER_TO_COMMIT if COMMIT in chunk else b""
    held = proxy.hold_next(Api.END_TXN, commits, cuts_off=cuts_off)
    client.sendall(COMMIT + OFFSETS)
    held.wait_until_caught()
    if cuts_off:
        client.settimeout(30)
        assert client.recv(1) == b""
    else:
        client.close()
    assert not broker.closed.wait(SILENCE_S)
    held.deliver()
    assert held.wait_for_answer() == ResponseFields((47,))
    assert has_received(broker, COMMIT, OFFSETS)
    assert broker.closed.wait(30)


def test_a_discarded_request_never_arrives_and_its_connection_is_gone(
    broker: ScriptedBroker, proxy: KafkaProxy, client: socket.socket
) -> None:
    held = proxy.hold_next(Api.END_TXN)
    client.sendall(OFFSETS + COMMIT + BEAT)
    held.discard()
    assert broker.closed.wait(30)
    client.settimeout(30)
    assert client.recv(1) == b""
    assert bytes(broker.received) == OFFSETS


def test_a_lost_answer_and_all_after_it_stay_away_from_the_client(
    broker: ScriptedBroker, proxy: KafkaProxy, client: socket.socket
) -> None:
    before, after = frames.throttle_and_error(3, 0), frames.throttle_and_error(4, 0)
    broker.answer = lambda _: before + ANSWER_TO_COMMIT + after
    lost = proxy.lose_next_answer(Api.END_TXN, commits)
    client.sendall(OFFSETS + COMMIT + BEAT)
    assert has_received(broker, OFFSETS, COMMIT, BEAT)
    assert read_exactly(client, len(before)) == before
    assert lost.wait_for_answer() == ResponseFields((47,))
    assert answers_nothing(client)
    client.close()
    assert broker.closed.wait(30)


def test_what_is_never_sent_is_an_error_that_names_it(proxy: KafkaProxy) -> None:
    held = proxy.hold_next(Api.TXN_OFFSET_COMMIT)
    with pytest.raises(TimeoutError, match="TXN_OFFSET_COMMIT"):
        held.wait_until_caught(0.01)
    with pytest.raises(TimeoutError, match="TXN_OFFSET_COMMIT"):
        held.wait_for_answer(0.01)


def test_a_misdirected_request_reaches_the_broker_with_other_bytes_and_is_answered(
    broker: ScriptedBroker, proxy: KafkaProxy, client: socket.socket
) -> None:
    broker.answer = lambda _: ANSWER_TO_COMMIT
    misdirected = proxy.misdirect_next(Api.END_TXN, commits, (b"t", b"u"))
    client.sendall(COMMIT)
    assert read_exactly(client, len(ANSWER_TO_COMMIT)) == ANSWER_TO_COMMIT
    assert misdirected.wait_for_answer() == ResponseFields((47,))
    client.sendall(COMMIT)
    assert has_received(broker, frames.end_txn(1, transactional_id="u", commits=True), COMMIT)


def test_a_misdirected_request_can_wait_until_others_of_its_kind_are_behind_it(
    broker: ScriptedBroker, proxy: KafkaProxy, client: socket.socket
) -> None:
    held = proxy.misdirect_next(Api.END_TXN, commits, (b"t", b"u"), holds=True)
    client.sendall(COMMIT + OFFSETS + COMMIT)
    held.wait_until_followed(1)
    with pytest.raises(TimeoutError, match="2 END_TXN"):
        held.wait_until_followed(2, 0.01)
    client.sendall(ABORT)
    held.wait_until_followed(2)
    assert bytes(broker.received) == b""
    held.deliver()
    assert has_received(broker, frames.end_txn(1, transactional_id="u", commits=True), OFFSETS, COMMIT, ABORT)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 11, 12, 13, 40, 1000])
def test_the_valve_keeps_the_same_frame_however_the_stream_is_cut(size: int) -> None:
    kept: list[bytes] = []

    def lets_through(frame: bytes) -> bytes | None:
        kept.append(frame)
        return frame if request_head(frame)[2] != 1 else None

    valve = FrameValve(REQUEST_HEAD_BYTES, lambda head: request_head(head)[0] == Api.END_TXN, lets_through)
    stream = OFFSETS + ABORT + BEAT + COMMIT + BEAT + COMMIT + OFFSETS
    through = b"".join(valve.feed(stream[at : at + size]) for at in range(0, len(stream), size))
    assert through == OFFSETS + ABORT + BEAT
    assert valve.is_shut
    assert valve.reopen() == COMMIT + BEAT
    assert valve.is_shut
    assert valve.reopen() == COMMIT + OFFSETS
    assert not valve.is_shut
    assert [b"".join((len(frame).to_bytes(4, "big"), frame)) for frame in kept] == [ABORT, COMMIT, COMMIT]


def test_the_valve_gives_out_the_beginning_of_a_frame_that_ends_there() -> None:
    valve = FrameValve(REQUEST_HEAD_BYTES, lambda _: True, lambda _: None)
    assert valve.feed(COMMIT[:20]) == b""
    assert valve.rest() == COMMIT[:20]
