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
    (ErrorEvent("_TRANSPORT"), EventMeaning.REPORT),
    (ErrorEvent("_MAX_POLL_EXCEEDED"), EventMeaning.REPORT),
]


@pytest.mark.parametrize(("event", "meaning"), CASES, ids=str)
def test_each_error_event_has_the_expected_meaning(event, meaning):
    assert meaning_of(event) is meaning


def test_every_row_of_the_table_is_reached():
    reached = {next(i for i, rule in enumerate(EVENT_RULES) if rule.applies(event)) for event, _ in CASES}
    assert reached == set(range(len(EVENT_RULES)))
