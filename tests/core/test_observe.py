"""Events are plain facts with stable names; the default hook logs each under its name and at its level."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import re
import subprocess
import sys
from typing import Any

import pytest
import structlog

from eos_client import observe
from eos_client.core.commit_gate import RuleName
from eos_client.core.model import GroupGeneration, InputPartition
from eos_client.observe import Counters, Event, log_event

G5 = GroupGeneration(5, "m", "billing")
PARTITIONS = frozenset({InputPartition("orders", 2), InputPartition("orders", 0)})
EXAMPLES = [
    (
        observe.LoopStarted(group_id="billing", transactional_id="b-0", topics=("orders", "refunds")),
        "loop_started",
        "info",
    ),
    (observe.LoopStopped(reason="SIGTERM"), "loop_stopped", "info"),
    (observe.PartitionsAssigned(partitions=PARTITIONS, generation=G5), "partitions_assigned", "info"),
    (
        observe.PartitionsRevoked(partitions=PARTITIONS, generation=G5, uncommitted=frozenset()),
        "partitions_revoked",
        "info",
    ),
    (observe.PartitionsLost(partitions=PARTITIONS, uncommitted=PARTITIONS), "partitions_lost", "warning"),
    (
        observe.PartitionsStartedAtEnd(offsets_before=dict.fromkeys(PARTITIONS, 3)),
        "partitions_started_at_end",
        "warning",
    ),
    (
        observe.TransactionCommitted(
            records_in=3, records_out=4, duration_s=0.1, generation=G5, inside_revoke=True, poll_to_commit_s=0.4
        ),
        "transaction_committed",
        "debug",
    ),
    (
        observe.CommitSkipped(generation=G5, revocation_generation=G5, held_for_s=0.2, reason="closed"),
        "commit_skipped",
        "info",
    ),
    (observe.CommitRefused(partitions=PARTITIONS, rule=RuleName.NOT_OURS, reason="gone"), "commit_refused", "warning"),
    (
        observe.TransactionAborted(reason="gone", rule=RuleName.LOST_WORK, records_in=7),
        "transaction_aborted",
        "warning",
    ),
    (observe.LoopFenced(transactional_id="b-0"), "loop_fenced", "error"),
    (observe.OutcomeResolved(outcome="committed", reason="no answer"), "outcome_resolved", "warning"),
    (
        observe.ProducerRebuilt(
            transactional_id="b-0", reason="fenced", duration_s=0.3, transaction_age_s=0.1, old_producer="1000/4"
        ),
        "producer_rebuilt",
        "warning",
    ),
    (
        observe.ProducerRecovered(
            transactional_id="b-0",
            action="rebuild_producer",
            reason="fenced",
            outcome="aborted",
            failures=1,
            transaction_age_s=0.1,
            to_commit_s=0.4,
            old_producer="1000/4",
            new_producer="1000/6",
        ),
        "producer_recovered",
        "warning",
    ),
    (observe.LagMeasured(records={InputPartition("orders", 2): 17}), "lag_measured", "debug"),
    (observe.ClientReported(client="consumer", error="_TRANSPORT"), "client_reported", "warning"),
    (
        observe.SparkRunStarted(
            sink_id="i", query_id="q", run=2, slots=4, ledger="ready", generation=G5, duration_s=0.4
        ),
        "spark_run_started",
        "info",
    ),
    (
        observe.SparkBatchWritten(
            sink_id="i",
            batch_id=7,
            rows=9,
            slots_written=3,
            slots_skipped=1,
            handles_started=2,
            tasks_repeated=1,
            commits_resolved=1,
            duration_s=0.2,
            seconds={"job": 0.1, "task_committed": 0.05},
        ),
        "spark_batch_written",
        "info",
    ),
    (observe.SparkLeaseRenewed(sink_id="i", run=2, batch_id=7, reason="lost"), "spark_lease_renewed", "warning"),
    (observe.SparkRunFenced(sink_id="i", run=2, reason="newer"), "spark_run_fenced", "error"),
    (
        observe.RecordSkipped(topic="orders", partition=1, offset=9, error="ValueError: no"),
        "record_skipped",
        "error",
    ),
    (
        observe.RecordDeadLettered(
            topic="orders", partition=1, offset=9, error="ValueError: no", dead_letter_topic="dead"
        ),
        "record_dead_lettered",
        "error",
    ),
]
NAMED = pytest.mark.parametrize(("event", "name", "level"), EXAMPLES, ids=[name for _, name, _ in EXAMPLES])


def test_there_is_an_example_of_every_event():
    events = {each for _, each in inspect.getmembers(observe, inspect.isclass) if issubclass(each, Event)}
    assert {type(event) for event, _, _ in EXAMPLES} == events - {Event}


@NAMED
def test_structlog_logs_an_event_under_its_name_at_its_level_with_all_its_fields(event, name, level, caplog):
    with structlog.testing.capture_logs() as logged:
        log_event(event)
    assert caplog.records == []
    fields = {field.name for field in dataclasses.fields(event)}
    (line,) = logged
    assert (line["event"], line["log_level"]) == (name, level)
    assert set(line) == fields | {"event", "log_level"}


@pytest.fixture
def no_structlog():
    """An application that has not configured structlog."""
    structlog.reset_defaults()


@NAMED
@pytest.mark.usefixtures("no_structlog")
def test_without_structlog_the_standard_logger_gets_an_event_as_a_logfmt_line(event, name, level, caplog, capsys):
    caplog.set_level(logging.DEBUG, "eos_client")
    log_event(event)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("eos_client", level.upper())
    assert record.getMessage().startswith(f"event={name} ")
    assert record.eos_event == {"event": name, **event.as_dict()}
    assert capsys.readouterr() == ("", "")


LOGFMT = re.compile(r'([^\s="]+)(?:=("(?:[^"\\]|\\.)*"|[^\s"]*))?(?: |$)')


def logfmt_fields(line):
    """The fields of a logfmt line; the line holds nothing else."""
    assert "".join(found[0] for found in LOGFMT.finditer(line)) == line
    return {key: value.strip('"') for key, value in LOGFMT.findall(line)}


@NAMED
@pytest.mark.usefixtures("no_structlog")
def test_no_field_of_a_logfmt_line_holds_a_mapping_or_a_sequence(event, name, level, caplog):
    caplog.set_level(logging.DEBUG, "eos_client")
    log_event(event)
    for value in logfmt_fields(caplog.records[0].getMessage()).values():
        assert not re.match(r"[{(\[]", value)


@pytest.mark.parametrize(
    ("name", "logged"),
    [
        ("spark_batch_written", {"seconds_job": "0.1", "seconds_task_committed": "0.05", "duration_s": "0.2"}),
        ("lag_measured", {"records_orders[2]": "17"}),
        ("partitions_started_at_end", {"offsets_before_orders[0]": "3", "offsets_before_orders[2]": "3"}),
        ("loop_started", {"topics": "orders refunds"}),
    ],
)
@pytest.mark.usefixtures("no_structlog")
def test_each_entry_of_a_mapping_is_a_logfmt_field_of_its_own(name, logged, caplog):
    caplog.set_level(logging.DEBUG, "eos_client")
    (event,) = [event for event, each, _ in EXAMPLES if each == name]
    log_event(event)
    assert logged.items() <= logfmt_fields(caplog.records[0].getMessage()).items()


@pytest.mark.usefixtures("no_structlog")
def test_without_structlog_an_event_below_the_level_of_the_logger_costs_no_fields(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "eos_client")
    event = next(event for event, _, level in EXAMPLES if level == "debug")
    monkeypatch.setattr(Event, "as_dict", lambda _self: pytest.fail("the fields were collected"))
    log_event(event)
    assert caplog.records == []


def test_the_library_configures_no_logging():
    script = (
        "import logging, structlog, eos_client.clients, eos_client.loop, eos_client.observe\n"
        "assert logging.getLogger().handlers == logging.getLogger('eos_client').handlers == []\n"
        "assert logging.getLogger('eos_client').level == logging.NOTSET\n"
        "assert not structlog.is_configured()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=240)


@NAMED
def test_its_fields_are_such_that_any_renderer_takes_them(event, name, level):
    assert json.loads(json.dumps(event.as_dict())).keys() == event.as_dict().keys()


@NAMED
def test_an_event_cannot_be_changed_by_the_hook_that_gets_it(event, name, level):
    field = dataclasses.fields(event)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(event, field, None)


@NAMED
def test_an_event_is_made_with_names_only(event, name, level):
    values = [getattr(event, field.name) for field in dataclasses.fields(event)]
    with pytest.raises(TypeError):
        type(event)(*values)


def test_generations_are_logged_as_numbers():
    assert EXAMPLES[2][0].as_dict() == {"partitions": "orders[0,2]", "generation": 5}


@pytest.mark.parametrize(
    ("partitions", "logged"),
    [
        ([], ""),
        ([("orders", 3)], "orders[3]"),
        ([("orders", n) for n in (3, 1, 2, 0, 7)], "orders[0-3,7]"),
        ([("orders", n) for n in (2, 10, 11)], "orders[2,10-11]"),
        ([("refunds", 0), ("orders", 0), ("orders", 1)], "orders[0-1] refunds[0]"),
        ([("orders", n) for n in range(500)], "orders[0-499]"),
    ],
)
def test_partitions_are_logged_in_order_and_briefly_however_many_there_are(partitions, logged):
    event = observe.PartitionsLost(
        partitions=frozenset(InputPartition(*each) for each in partitions), uncommitted=frozenset()
    )
    assert event.as_dict() == {"partitions": logged, "uncommitted": ""}


def test_a_skipped_commit_is_logged_with_both_generations():
    event = observe.CommitSkipped(
        generation=GroupGeneration(6, "m"), revocation_generation=G5, held_for_s=0.2, reason="closed"
    )
    assert event.as_dict() == {
        "generation": 6,
        "revocation_generation": 5,
        "held_for_s": 0.2,
        "reason": "closed",
    }


def test_counters_start_at_nothing_and_are_listed_by_name():
    counters = Counters()
    counts = counters.as_dict()
    assert counts.pop("generation_id") == -1
    assert set(counts.values()) == {0}
    counters.committed += 2
    assert counters.as_dict()["committed"] == 2
    assert set(counters.as_dict()) == {field.name for field in dataclasses.fields(Counters)}


@pytest.mark.usefixtures("no_structlog")
def test_a_logfmt_line_leaves_out_what_has_no_value_and_rounds_fractions(caplog):
    caplog.set_level(logging.DEBUG, "eos_client")
    (revoked,) = [event for event, name, _ in EXAMPLES if name == "partitions_revoked"]
    recovered: Any = next(event for event, name, _ in EXAMPLES if name == "producer_recovered")
    log_event(revoked)
    log_event(dataclasses.replace(recovered, to_commit_s=0.0009999999999999694, new_producer=None))
    assert "uncommitted" not in logfmt_fields(caplog.records[0].getMessage())
    assert caplog.records[0].eos_event["uncommitted"] == ""
    fields = logfmt_fields(caplog.records[1].getMessage())
    assert fields["to_commit_s"] == "0.001"
    assert "new_producer" not in fields
