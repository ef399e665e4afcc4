"""A call from a thread that does not own the client fails at once; no call ever waits for another thread's poll."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from unittest import mock

import pytest

from eos_client.confluent.thread_ownership import ThreadOwnership, owned
from eos_client.errors import EosError, WrongThreadError
from tests.confluent.threads import PATIENCE_S, Elsewhere, elsewhere


class Client:
    """A client whose ``poll`` lasts until it is released, as the real one's lasts until its timeout."""

    def __init__(self) -> None:
        self._ownership = ThreadOwnership("Client")
        self.entered = threading.Event()
        self.release = threading.Event()
        self.inside = 0
        self.most_inside = 0

    @owned(claims=True)
    def poll(self, callback=None):
        """Serve one callback, then wait."""
        with self._counted():
            answer = callback() if callback else None
            self.entered.set()
            assert self.release.wait(PATIENCE_S)
        return answer

    @owned(claims=True)
    def poll_nothing(self):
        with self._counted():
            return "nothing"

    @owned()
    def memberid(self, *, suffix="", raises=None):
        """The member's id."""
        with self._counted():
            if raises is not None:
                raise raises
            return "m" + suffix

    @owned()
    def list_topics(self):
        with self._counted():
            self.entered.set()
            assert self.release.wait(PATIENCE_S)
        return "topics"

    @owned()
    def described(self):
        return f"member {self.memberid()}"

    @owned()
    def close(self):
        self._ownership.disown()

    @contextmanager
    def _counted(self):
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            yield
        finally:
            self.inside -= 1


@pytest.fixture
def client():
    made = Client()
    yield made
    made.release.set()


@contextmanager
def polling(client, name="poller"):
    """Another thread is inside ``poll`` meanwhile."""
    client.entered.clear()
    client.release.clear()
    poller = Elsewhere(client.poll, name)
    assert client.entered.wait(PATIENCE_S)
    try:
        yield poller
        assert poller.thread.is_alive(), "the call waited until the other thread's poll was over"
    finally:
        client.release.set()
        poller.outcome()


def test_a_call_while_another_thread_polls_fails_at_once(client):
    with polling(client), pytest.raises(WrongThreadError):
        client.memberid()
    assert client.most_inside == 1


def test_a_poll_from_another_thread_fails_at_once(client):
    with polling(client), pytest.raises(WrongThreadError):
        client.poll_nothing()


def test_the_error_names_both_threads_the_call_the_danger_and_the_way_out(client):
    with polling(client, "billing-loop"), pytest.raises(WrongThreadError) as refused:
        client.memberid()
    message = str(refused.value)
    for words in (
        "Client.memberid()",
        threading.current_thread().name,
        "'billing-loop'",
        "hang the whole process",
        "queue",
    ):
        assert words in message
    assert isinstance(refused.value, EosError)
    assert isinstance(refused.value, RuntimeError)


def test_between_two_polls_the_client_still_belongs_to_the_thread_that_polls(client):
    client.poll_nothing()
    with pytest.raises(WrongThreadError):
        elsewhere(client.memberid)
    with pytest.raises(WrongThreadError):
        elsewhere(client.poll_nothing)
    assert client.memberid() == "m"


def test_the_owner_may_call_from_within_its_callbacks(client):
    client.release.set()
    assert client.poll(callback=lambda: (client.memberid(), client.poll_nothing())) == ("m", "nothing")


def test_a_first_poll_may_call_back_into_the_client(client):
    client.release.set()
    assert elsewhere(lambda: client.poll(callback=client.memberid)) == "m"


def test_before_anybody_polls_one_call_may_make_another(client):
    assert client.described() == "member m"
    assert elsewhere(client.described) == "member m"


def test_before_anybody_polls_any_thread_may_call_one_after_the_other(client):
    assert elsewhere(client.memberid) == "m"
    assert client.memberid() == "m"
    assert elsewhere(client.memberid) == "m"
    assert elsewhere(client.poll_nothing) == "nothing"


def test_before_anybody_polls_two_threads_at_once_are_one_too_many(client):
    first = Elsewhere(client.list_topics)
    assert client.entered.wait(PATIENCE_S)
    for call in (client.memberid, client.poll_nothing):
        with pytest.raises(WrongThreadError, match="in use by another thread"):
            call()
    assert first.thread.is_alive()
    client.release.set()
    assert first.outcome() == "topics"
    assert client.memberid() == "m"


def test_ownership_passes_on_when_the_owners_thread_has_ended(client):
    assert elsewhere(client.poll_nothing) == "nothing"
    assert client.memberid() == "m"
    assert client.poll_nothing() == "nothing"
    with pytest.raises(WrongThreadError):
        elsewhere(client.memberid)


def test_an_owner_that_python_takes_for_ended_is_the_owner_as_long_as_it_runs(client):
    """In 3.11 an exception that strikes inside ``is_alive()`` marks the thread as stopped for good."""
    client.poll_nothing()
    with (
        mock.patch.object(threading.current_thread(), "is_alive", return_value=False),
        pytest.raises(WrongThreadError),
    ):
        elsewhere(client.memberid)


def test_a_thread_that_happens_to_get_an_ended_owners_id_is_an_owner_like_any_other(client):
    # Thread ids are used again, mostly by the very next thread.
    for _ in range(100):
        first = Elsewhere(client.poll_nothing)
        first.outcome()
        with polling(client) as second:
            if second.thread.ident != first.thread.ident:
                continue
            with pytest.raises(WrongThreadError):
                client.memberid()
            assert client.most_inside == 1
            return
    pytest.skip("this system does not use thread ids again")


def test_a_call_that_fails_leaves_the_client_free(client):
    with pytest.raises(ValueError, match="no"):
        elsewhere(lambda: client.memberid(raises=ValueError("no")))
    assert client.memberid() == "m"


def test_refused_calls_change_nothing_for_the_owner(client):
    client.poll_nothing()
    for _ in range(3):
        with pytest.raises(WrongThreadError):
            elsewhere(client.memberid)
    assert client.poll_nothing() == "nothing"
    assert client.memberid() == "m"


def test_the_owner_can_hand_the_client_over(client):
    client.poll_nothing()
    client.close()
    assert elsewhere(client.poll_nothing) == "nothing"


def test_the_guarded_method_keeps_its_name_its_words_and_its_arguments(client):
    assert Client.memberid.__name__ == "memberid"
    assert Client.memberid.__doc__ == "The member's id."
    assert client.memberid(suffix="-1") == "m-1"


def test_many_threads_at_once_never_get_in_together(client):
    start = threading.Barrier(8)

    def storm():
        start.wait(PATIENCE_S)
        for _ in range(200):
            with suppress(WrongThreadError):
                client.poll_nothing()

    threads = [Elsewhere(storm) for _ in range(8)]
    for thread in threads:
        thread.outcome()
    assert client.most_inside == 1
