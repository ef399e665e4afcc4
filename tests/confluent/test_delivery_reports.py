"""What reports say against a commit, and which of them the application gets."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError

from eos_client.confluent.delivery_reports import DeliveryReports

REFUSED = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large")
PURGED = KafkaError(KafkaError._PURGE_QUEUE)


@dataclass
class Message:
    place: int | None = 0

    def topic(self):
        return "out"

    def partition(self):
        return 3

    def offset(self):
        return self.place


@pytest.fixture
def reports():
    return DeliveryReports()


@pytest.fixture
def told():
    return []


def callback_of(reports, told, **settings):
    """What librdkafka calls for each record of a producer whose application notes in `told`."""
    made = reports.added_to({"on_delivery": lambda error, message: told.append((error, message.offset())), **settings})
    return made["on_delivery"]


def test_success_with_an_offset_says_nothing_against_a_commit(reports, told):
    callback_of(reports, told)(None, Message(0))
    assert reports.why_unconfirmed() == reports.undelivered_clause() == ""
    assert told == [(None, 0)]


@pytest.mark.parametrize(("count", "outputs"), [(1, "1 output "), (2, "2 outputs ")])
def test_success_without_an_offset_does_until_the_next_transaction(reports, told, count, outputs):
    report = callback_of(reports, told)
    for _ in range(count):
        report(None, Message(None))
    assert reports.why_unconfirmed().startswith(f"{outputs}(the first for out[3])")
    assert told == [(None, None)] * count
    reports.forget()
    assert reports.why_unconfirmed() == ""


def test_a_failed_delivery_is_named_once_and_a_purge_is_none(reports, told):
    report = callback_of(reports, told)
    report(REFUSED, Message(None))
    report(PURGED, Message(None))
    clause = reports.undelivered_clause()
    assert "out[3]: MSG_SIZE_TOO_LARGE: too large" in clause
    assert reports.undelivered_clause() == reports.why_unconfirmed() == ""
    assert [error for error, _ in told] == [REFUSED, PURGED]


@pytest.mark.parametrize("flag", [True, "true", "T", "1"])
def test_an_application_that_wants_errors_only_gets_no_more_but_all_are_looked_at(reports, told, flag):
    settings = {"delivery.report.only.error": flag, "linger.ms": 5}
    made = reports.added_to(settings)
    assert made == {"linger.ms": 5, "on_delivery": made["on_delivery"]}
    assert settings == {"delivery.report.only.error": flag, "linger.ms": 5}
    for report in (callback_of(reports, told, **settings), reports.guarded(lambda *given: told.append(given))):
        report(None, Message(None))
    assert told == []
    assert reports.why_unconfirmed().startswith("2 outputs")
    callback_of(reports, told, **settings)(REFUSED, Message(None))
    assert told == [(REFUSED, None)]


@pytest.mark.parametrize(
    ("in_flight", "kept"),
    [
        ({"max.in.flight": 1}, True),
        ({"max.in.flight.requests.per.connection": "1"}, True),
        ({"max.in.flight": 1, "max.in.flight.requests.per.connection": 5}, False),
        ({"max.in.flight": 2}, False),
    ],
)
def test_successes_need_no_report_where_no_batch_is_overtaken(reports, in_flight, kept):
    made = reports.added_to({"delivery.report.only.error": True, **in_flight})
    assert ("delivery.report.only.error" in made) is kept


def test_nothing_is_passed_on_of_a_handle_that_was_left(reports, told):
    report = callback_of(reports, told)
    reports.leave()
    report(None, Message(0))
    report(REFUSED, Message(None))
    assert told == []
