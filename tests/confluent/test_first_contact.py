"""A first contact ends soon where the credentials are refused; any other silence is waited out, and any later one."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from eos_client.confluent import first_contact
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.diagnosis import unreachable
from eos_client.confluent.first_contact import REFUSED_WAIT_S, FirstContact
from eos_client.confluent.last_errors import LastErrors
from eos_client.errors import AuthenticationError, ClusterUnavailableError
from eos_client.testing.simulator import SimulatedClock

REFUSED = KafkaError(KafkaError._AUTHENTICATION, "wrong password")
DOWN = KafkaError(KafkaError._TRANSPORT, "connection refused")


def waited(limit_s: float, error: KafkaError | None, *, was_answered: bool = False) -> float:
    """For how long, by the clock, with ``error`` reported in the first second."""
    errors, clock = LastErrors(None), SimulatedClock()
    contact, began_at = FirstContact(errors, limit_s, clock, was_answered=was_answered), clock()
    while not contact.is_over():
        clock.sleep(min(0.5, contact.left_s))
        if error is not None:
            errors(error)
    assert contact.left_s == 0.0
    assert contact.waited_s == clock() - began_at
    return clock() - began_at


def test_refused_credentials_are_tried_a_little_longer_and_no_more() -> None:
    assert waited(10.0, REFUSED) == 0.5 + REFUSED_WAIT_S
    assert waited(1.0, REFUSED) == 1.0


def test_the_error_of_another_address_does_not_hide_refused_credentials() -> None:
    errors, clock = LastErrors(None), SimulatedClock()
    contact = FirstContact(errors, 10.0, clock)
    errors(REFUSED)
    errors(DOWN)
    assert not contact.is_over()
    assert contact.is_refused
    found = unreachable({"bootstrap.servers": "a:1,b:1"}, 2.0, errors, simulated=True, refused=contact.is_refused)
    assert isinstance(found, AuthenticationError)
    assert "wrong password" in str(found)
    assert "connection refused" not in str(found)


@pytest.mark.parametrize("error", [None, DOWN])
def test_any_other_silence_is_waited_out(error: KafkaError | None) -> None:
    assert waited(10.0, error) == 10.0


def test_refused_credentials_of_a_client_that_was_answered_before_are_waited_out() -> None:
    assert waited(10.0, REFUSED, was_answered=True) == 10.0


@pytest.mark.parametrize(("tells", "text"), [(False, ": wrong password"), (True, "")])
def test_what_the_applications_callback_has_told_is_not_said_again(tells: bool, text: str) -> None:
    def error_cb(_error: KafkaError) -> None:
        pass

    error_cb.tells_errors = tells  # type: ignore[attr-defined]
    errors = LastErrors(error_cb)
    errors(REFUSED)
    assert errors.clause() == f"; the client last reported _AUTHENTICATION{text}"


class Refusing:
    """The client of a cluster that answers once, or never, and refuses the credentials."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self.admin = ClusterAdmin("127.0.0.1:1", timeout_s=0.2)
        self.admin._client = cast("AdminClient", self)

    def poll(self, _timeout_s: float) -> None:
        self.admin._errors(REFUSED)

    def describe_cluster(self, **_: Any) -> Future[Any]:
        future = Future[Any]()
        if self._answers:
            self._answers -= 1
            future.set_result(SimpleNamespace(cluster_id="id", nodes=(), authorized_operations=None))
        return future


def test_a_command_whose_credentials_are_refused_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_contact, "REFUSED_WAIT_S", 0.0)
    with pytest.raises(AuthenticationError, match=r"refuse this client.* within [\d.]+ s .*wrong password") as refused:
        Refusing(answers=0).admin.cluster()
    assert isinstance(refused.value, ClusterUnavailableError)


def test_a_command_that_was_answered_waits_its_whole_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eos_client.confluent.admin.cluster_admin._ANSWER_GRACE_S", 0.3)
    monkeypatch.setattr(first_contact, "REFUSED_WAIT_S", 0.0)
    client = Refusing(answers=1)
    client.admin.cluster()
    with pytest.raises(AuthenticationError, match=r"within (0\.[5-9]|[1-9][\d.]*) s"):
        client.admin.cluster()
