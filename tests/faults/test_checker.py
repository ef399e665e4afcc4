"""Checker power: one hand-written bad history per rule, and a good one that passes."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from tests.verification import checker, segments, wire
from tests.verification.checker import History, Rule, Status, Stored, check
from tests.verification.topics import halves_of

INPUTS = (Stored(0, 0, b"a"), Stored(0, 1, b"b"), Stored(0, 2, b"c"), Stored(1, 0, b"x"), Stored(1, 1, b"y"))
OUTPUTS = (Stored(0, 0, b"a"), Stored(0, 1, b"x"), Stored(0, 3, b"b"), Stored(1, 5, b"y"), Stored(1, 6, b"c"))
GOOD = History(
    inputs=INPUTS,
    outputs=OUTPUTS,
    input_ends={0: 3, 1: 2, 2: 0},
    committed={0: 3, 1: 2, 2: None},
    watched=OUTPUTS[:3],
    aborted=frozenset({(0, 2), (1, 4)}),
    broker_log=("[2026-01-01] INFO started",),
)

BAD = {
    "an input without output": (Rule.LOST, replace(GOOD, outputs=OUTPUTS[:-1]), 1),
    "the same input twice in one partition": (
        Rule.DOUBLED,
        replace(GOOD, outputs=(*OUTPUTS, Stored(0, 4, b"b"))),
        1,
    ),
    "the same input in two partitions": (Rule.DOUBLED, replace(GOOD, outputs=(*OUTPUTS, Stored(1, 9, b"a"))), 1),
    "the same input three times": (
        Rule.DOUBLED,
        replace(GOOD, outputs=(*OUTPUTS, Stored(0, 4, b"b"), Stored(0, 5, b"b"))),
        2,
    ),
    "an output nobody sent": (Rule.INVENTED, replace(GOOD, outputs=(*OUTPUTS, Stored(0, 9, b"?"))), 1),
    "a later input before an earlier one": (
        Rule.REORDERED,
        replace(GOOD, outputs=(Stored(0, 0, b"b"), Stored(0, 3, b"a"), *OUTPUTS[1:2], *OUTPUTS[3:]), watched=()),
        1,
    ),
    "a visible record of an aborted transaction": (
        Rule.ABORTED_VISIBLE,
        replace(GOOD, aborted=frozenset({(0, 3)})),
        1,
    ),
    "a record seen once and gone at the end": (
        Rule.ABORTED_VISIBLE,
        replace(GOOD, watched=(Stored(0, 2, b"b"),)),
        1,
    ),
    "a transaction that never ended": (Rule.UNFINISHED, replace(GOOD, unfinished=frozenset({(1, 7)})), 1),
    "an offset short of the end": (Rule.OFFSETS, replace(GOOD, committed={0: 2, 1: 2}), 1),
    "an offset beyond the end": (Rule.OFFSETS, replace(GOOD, committed={0: 4, 1: 2}), 1),
    "an offset never committed": (Rule.OFFSETS, replace(GOOD, committed={0: 3, 1: None}), 1),
}


def test_a_good_history_holds() -> None:
    verdict = check(GOOD)
    assert verdict.status is Status.HOLDS
    assert verdict.violations == ()
    assert (verdict.inputs, verdict.outputs) == (5, 5)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_breaks_exactly_its_rule(name: str) -> None:
    rule, history, count = BAD[name]
    verdict = check(history)
    assert verdict.status is Status.VIOLATED
    assert [(violation.rule, violation.count) for violation in verdict.violations] == [(rule, count)]


def test_every_rule_has_a_bad_history() -> None:
    assert {rule for rule, _, _ in BAD.values()} == set(Rule)


def test_interleaving_of_different_input_partitions_is_no_disorder() -> None:
    outputs = (Stored(0, 0, b"x"), Stored(0, 1, b"a"), Stored(0, 2, b"y"), Stored(0, 3, b"b"), Stored(0, 4, b"c"))
    assert check(replace(GOOD, outputs=outputs, watched=(), aborted=frozenset())).status is Status.HOLDS


@pytest.mark.parametrize("history", [GOOD, BAD["the same input in two partitions"][1]])
def test_the_brokers_own_atomicity_hole_makes_a_run_inconclusive(history: History) -> None:
    line = (
        "WARN [Transaction Marker Channel Manager 1]: Couldn't find leader endpoint for partitions Set(out-0) while "
        "trying to send transaction markers for w, these partitions are likely deleted already and hence can be skipped"
    )
    verdict = check(replace(history, broker_log=("INFO started", line)))
    assert verdict.status is Status.INCONCLUSIVE
    assert "without markers" in verdict.reason


def starting(log: int, epoch: int, offset: int) -> str:
    return (
        f"INFO state.change.logger - [Broker id=1] Leader __transaction_state-{log} with topic id Some(x) starts at "
        f"leader epoch {epoch} from offset {offset} with partition epoch 322, high watermark 335, ISR [1,2,3]"
    )


def test_a_coordinator_whose_log_was_cut_off_after_it_had_begun_excuses_a_run_that_breaks_a_rule() -> None:
    cut_off = (starting(1, 162, 335), starting(0, 161, 900), starting(1, 161, 336), "INFO started")
    _, broken, _ = BAD["the same input in two partitions"]
    verdict = check(replace(broken, broker_log=cut_off))
    assert verdict.status is Status.INCONCLUSIVE
    assert "began at offset 336 (leader epoch 161), the next one at 335" in verdict.reason
    assert check(replace(GOOD, broker_log=cut_off)).status is Status.HOLDS
    assert check(replace(broken, broker_log=cut_off[:2])).status is Status.VIOLATED


def test_many_cases_are_counted_but_only_a_few_are_told() -> None:
    inputs = tuple(Stored(0, offset, b"%d" % offset) for offset in range(1000))
    verdict = check(History(inputs=inputs, outputs=(), input_ends={0: 1000}, committed={0: 1000}))
    assert verdict.count(Rule.LOST) == 1000
    assert len(verdict.violations[0].samples) == checker.SAMPLES_MAX


@pytest.mark.parametrize("module", [checker, segments, wire])
def test_the_judges_import_neither_the_client_nor_a_kafka_library(module: object) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text())  # type: ignore[attr-defined]
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in names if name.split(".")[0] in {"eos_client", "confluent_kafka"}}


def test_of_two_outputs_of_an_input_the_one_that_is_missing_is_lost() -> None:
    """Whatever id the loader gave it twice while leaders moved: its place is its name."""
    inputs = (Stored(0, 0, b"same"), Stored(0, 1, b"same"))
    whole = halves_of(inputs)
    outputs = [replace(each, offset=offset) for offset, each in enumerate(whole)]
    good = History(inputs=whole, outputs=outputs, input_ends={0: 2}, committed={0: 2})
    assert check(good).status is Status.HOLDS
    torn = check(replace(good, outputs=outputs[:-1]))
    assert [(violation.rule, violation.count) for violation in torn.violations] == [(Rule.LOST, 1)]
    assert "0:1:b" in str(torn)
