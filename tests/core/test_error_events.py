"""What each error event among the records means, row by row."""

import pytest

from eos_client.core.error_events import EVENT_RULES, ErrorEvent, EventMeaning, meaning_of

CASES = [
    (ErrorEvent("_PARTITION_EOF"), EventMeaning.IGNORE),
    (ErrorEvent("_FATAL", fatal=True), EventMeaning.STOP_FATAL),
    (ErrorEvent("FENCED_INSTANCE_ID", fatal=True), EventMeaning.STOP_FATAL),
    (ErrorEvent("TOPIC_AUTHORIZATION_FAILED"), EventMeaning.STOP_UNFIT),
    (ErrorEvent("GROUP_AUTHORIZATION_FAILED", is_named=False), EventMeaning.STOP_UNFIT),
    (ErrorEvent("GROUP_AUTHORIZATION_FAILED", fatal=True), EventMeaning.STOP_UNFIT),
    (ErrorEvent("GROUP_MAX_SIZE_REACHED", fatal=True), EventMeaning.STOP_UNFIT),
    (ErrorEvent("INVALID_SESSION_TIMEOUT"), EventMeaning.STOP_UNFIT),
    (ErrorEvent("INCONSISTENT_GROUP_PROTOCOL"), EventMeaning.STOP_UNFIT),
    (ErrorEvent("UNKNOWN_TOPIC_OR_PART"), EventMeaning.STOP_UNFIT),
    (ErrorEvent("_UNKNOWN_TOPIC"), EventMeaning.STOP_UNFIT),
    (ErrorEvent("UNKNOWN_TOPIC_OR_PART", is_named=False), EventMeaning.REPORT),
    (ErrorEvent("UNKNOWN_TOPIC_OR_PART", fatal=True), EventMeaning.STOP_FATAL),
    (ErrorEvent("GROUP_ID_NOT_FOUND", fatal=True), EventMeaning.STOP_UNFIT),
    (ErrorEvent("GROUP_ID_NOT_FOUND"), EventMeaning.REPORT),
    (ErrorEvent("_TRANSPORT"), EventMeaning.REPORT),
    (ErrorEvent("_MAX_POLL_EXCEEDED"), EventMeaning.REPORT),
]


@pytest.mark.parametrize(("event", "meaning"), CASES, ids=str)
def test_each_error_event_has_the_expected_meaning(event, meaning):
    assert meaning_of(event) is meaning


@pytest.mark.parametrize("removed", EVENT_RULES, ids=lambda rule: rule.reason)
def test_each_row_is_reached_and_answers_what_no_other_row_would(removed):
    rest = [rule for rule in EVENT_RULES if rule is not removed]
    reached = [event for event, _ in CASES if next(rule for rule in EVENT_RULES if rule.applies(event)) is removed]
    changed = [e for e in reached if next((r.meaning for r in rest if r.applies(e)), None) is not removed.meaning]
    assert changed, reached
