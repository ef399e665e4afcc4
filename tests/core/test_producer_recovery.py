"""The recovery table: each row has a failure that reaches it, and none could go without changing an answer."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from eos_client.core import error_codes
from eos_client.core.error_codes import INTERRUPTED, OVERDUE
from eos_client.core.producer_recovery import (
    RECOVERY_RULES,
    ProducerFailure,
    RecoveryAction,
    RecoveryRule,
    TransactionalRequest,
    clock_is_at_fault,
    is_of_matched_topics,
    recovery_for,
)

R, A = TransactionalRequest, RecoveryAction
WRONG_CLOCK = {"clock_is_at_fault": True}
MAY_NOT_WRITE = {"undelivered_code": "TOPIC_AUTHORIZATION_FAILED"}
HAS_NO_TOPIC = {"undelivered_code": "UNKNOWN_TOPIC_OR_PART"}
TWICE = {"may_have_been_sent_twice": True}

# What was seen on librdkafka 2.16: the request, the error, its flags; and what must be done.
SEEN: list[tuple[TransactionalRequest, str, dict[str, Any], RecoveryAction]] = [
    # producing and delivery
    (R.FLUSH, "UNKNOWN_PRODUCER_ID", {"abortable": True}, A.ABORT_AND_CONTINUE),
    (R.PRODUCE, "OUT_OF_ORDER_SEQUENCE_NUMBER", {"fatal": True}, A.REBUILD_PRODUCER),
    (R.PRODUCE, "OUT_OF_ORDER_SEQUENCE_NUMBER", {"abortable": True}, A.ABORT_AND_CONTINUE),
    (R.PRODUCE, "_MSG_TIMED_OUT", {"abortable": True}, A.ABORT_AND_CONTINUE),
    (R.PRODUCE, "_QUEUE_FULL", {}, A.ABORT_AND_CONTINUE),
    (R.PRODUCE, "TOPIC_AUTHORIZATION_FAILED", {"abortable": True}, A.STOP_UNFIT),
    (R.PRODUCE, "_STATE", {"transaction_open": True, **WRONG_CLOCK}, A.STOP_UNFIT),
    (R.COMMIT, "_INCONSISTENT", {"abortable": True, **WRONG_CLOCK}, A.STOP_UNFIT),
    (R.SEND_OFFSETS, "INVALID_TIMESTAMP", {"abortable": True, **WRONG_CLOCK}, A.STOP_UNFIT),
    (R.SEND_OFFSETS, "INVALID_TIMESTAMP", {"abortable": True}, A.ABORT_AND_CONTINUE),
    (R.ABORT, "_TIMED_OUT", {"retriable": True, **WRONG_CLOCK}, A.REBUILD_PRODUCER),
    # the delivery report says why: no other transaction could write it either
    (R.PRODUCE, "_STATE", {"transaction_open": True, **MAY_NOT_WRITE}, A.STOP_UNFIT),
    (R.COMMIT, "_INCONSISTENT", {"abortable": True, **MAY_NOT_WRITE}, A.STOP_UNFIT),
    (R.COMMIT, "_INCONSISTENT", {"abortable": True, **HAS_NO_TOPIC}, A.STOP_UNFIT),
    (R.PRODUCE, "_STATE", {"transaction_open": True, **HAS_NO_TOPIC}, A.STOP_UNFIT),
    (R.ABORT, "INVALID_TXN_STATE", {"fatal": True, **MAY_NOT_WRITE}, A.REBUILD_PRODUCER),
    # the coordinator had confirmed partitions, and has lost them when it moved
    (R.ABORT, "INVALID_TXN_STATE", {"fatal": True, "was_registered": True}, A.STOP_UNFIT),
    (R.COMMIT, "INVALID_TXN_STATE", {"fatal": True, "was_registered": True}, A.STOP_UNFIT),
    (R.SEND_OFFSETS, "INVALID_TXN_STATE", {"abortable": True, "was_registered": True}, A.ABORT_AND_CONTINUE),
    (
        R.COMMIT,
        "_INCONSISTENT",
        {"abortable": True, "undelivered_code": "_UNKNOWN_PARTITION"},
        A.ABORT_AND_CONTINUE,
    ),
    (R.COMMIT, "_INCONSISTENT", {"abortable": True, "undelivered_code": "MSG_SIZE_TOO_LARGE"}, A.ABORT_AND_CONTINUE),
    (R.COMMIT, "_TIMED_OUT", {"retriable": True, **MAY_NOT_WRITE}, A.RESOLVE_UNKNOWN),
    (R.PRODUCE, "MSG_SIZE_TOO_LARGE", {}, A.CORRECT_OUTPUT),
    (R.PRODUCE, "_UNKNOWN_PARTITION", {}, A.CORRECT_OUTPUT),
    (R.PRODUCE, "_INVALID_ARG", {"fatal": True}, A.REBUILD_PRODUCER),
    (R.PRODUCE, "_UNKNOWN_PARTITION", {"abortable": True}, A.STOP_UNFIT),
    (R.PRODUCE, "_STATE", {}, A.CORRECT_CALL),
    (R.PRODUCE, "_STATE", {"transaction_open": True}, A.ABORT_AND_CONTINUE),
    (R.SEND_OFFSETS, "_STATE", {"transaction_open": True}, A.CORRECT_CALL),
    # sending offsets
    (R.SEND_OFFSETS, "ILLEGAL_GENERATION", {"abortable": True}, A.ABORT_AND_CONTINUE),
    (R.SEND_OFFSETS, "UNKNOWN_MEMBER_ID", {"abortable": True}, A.ABORT_AND_CONTINUE),
    (R.SEND_OFFSETS, "FENCED_INSTANCE_ID", {"abortable": True}, A.ABORT_AND_CONTINUE),
    (R.SEND_OFFSETS, "INVALID_PRODUCER_ID_MAPPING", {"abortable": True}, A.ABORT_AND_CONTINUE),
    (R.SEND_OFFSETS, "INVALID_PRODUCER_ID_MAPPING", {"abortable": True, "is_repeated": True}, A.REBUILD_PRODUCER),
    (R.SEND_OFFSETS, "INVALID_PRODUCER_ID_MAPPING", {"abortable": True, "generated_id": True}, A.REBUILD_PRODUCER),
    (R.SEND_OFFSETS, "INVALID_PRODUCER_ID_MAPPING", {"fatal": True}, A.REBUILD_PRODUCER),
    (R.SEND_OFFSETS, "INVALID_TXN_STATE", {"fatal": True}, A.REBUILD_PRODUCER),
    (R.SEND_OFFSETS, "GROUP_AUTHORIZATION_FAILED", {"abortable": True}, A.STOP_UNFIT),
    (R.SEND_OFFSETS, "UNKNOWN_TOPIC_OR_PART", {"abortable": True}, A.STOP_UNFIT),
    (R.SEND_OFFSETS, "UNKNOWN_TOPIC_OR_PART", {"abortable": True, "topics_may_leave": True}, A.ABORT_AND_CONTINUE),
    (R.SEND_OFFSETS, "OFFSET_METADATA_TOO_LARGE", {"abortable": True}, A.STOP_UNFIT),
    (R.SEND_OFFSETS, "UNSUPPORTED_VERSION", {"abortable": True}, A.STOP_UNFIT),
    (R.SEND_OFFSETS, OVERDUE, {}, A.REBUILD_PRODUCER),
    (R.SEND_OFFSETS, "_TIMED_OUT", {"abortable": True}, A.REBUILD_PRODUCER),
    (R.SEND_OFFSETS, "_TIMED_OUT", {"retriable": True}, A.REBUILD_PRODUCER),
    (R.SEND_OFFSETS, "_TRANSPORT", {"abortable": True}, A.REBUILD_PRODUCER),
    # committing
    (R.COMMIT, "INVALID_PRODUCER_ID_MAPPING", {"abortable": True}, A.ABORT_AND_CONTINUE),
    (R.COMMIT, "INVALID_PRODUCER_ID_MAPPING", {"abortable": True, "offsets_carry_fence": False}, A.STOP_FATAL),
    (R.COMMIT, "INVALID_PRODUCER_ID_MAPPING", {"abortable": True, **TWICE}, A.RESOLVE_UNKNOWN),
    (R.COMMIT, "INVALID_PRODUCER_ID_MAPPING", {"abortable": True, "generated_id": True, **TWICE}, A.RESOLVE_UNKNOWN),
    (R.COMMIT, "INVALID_PRODUCER_ID_MAPPING", {"abortable": True, "offsets_carry_fence": False, **TWICE}, A.STOP_FATAL),
    (R.COMMIT, "_INCONSISTENT", {"abortable": True}, A.ABORT_AND_CONTINUE),
    (R.COMMIT, "_INCONSISTENT", {"abortable": True, **TWICE}, A.ABORT_AND_CONTINUE),
    (R.COMMIT, "_TIMED_OUT", {"retriable": True}, A.RESOLVE_UNKNOWN),
    (R.COMMIT, "REQUEST_TIMED_OUT", {"abortable": True}, A.RESOLVE_UNKNOWN),
    (R.COMMIT, "UNKNOWN", {"abortable": True}, A.RESOLVE_UNKNOWN),
    (R.COMMIT, OVERDUE, {}, A.RESOLVE_UNKNOWN),
    (R.COMMIT, INTERRUPTED, {}, A.RESOLVE_UNKNOWN),
    # not seen: requests of a connection that is closed because it does not authenticate anew
    (R.COMMIT, "_AUTHENTICATION", {"abortable": True}, A.RESOLVE_UNKNOWN),
    (R.SEND_OFFSETS, "_AUTHENTICATION", {"abortable": True}, A.REBUILD_PRODUCER),
    (R.COMMIT, "_STATE", {}, A.CORRECT_CALL),
    (R.COMMIT, "_STATE", {"fatal": True}, A.RESOLVE_UNKNOWN),
    (R.COMMIT, "INVALID_TXN_STATE", {"fatal": True}, A.RESOLVE_UNKNOWN),
    # aborting
    (R.ABORT, "_TIMED_OUT", {"retriable": True}, A.REBUILD_PRODUCER),
    (R.ABORT, "UNKNOWN", {"abortable": True}, A.REBUILD_PRODUCER),
    (R.ABORT, OVERDUE, {}, A.REBUILD_PRODUCER),
    (R.ABORT, "COORDINATOR_NOT_AVAILABLE", {}, A.REBUILD_PRODUCER),
    # starting
    (R.INIT, "_TIMED_OUT", {"retriable": True}, A.RETRY),
    (R.INIT, "CONCURRENT_TRANSACTIONS", {"retriable": True}, A.RETRY),
    (R.INIT, OVERDUE, {}, A.REBUILD_PRODUCER),
    (R.BEGIN, INTERRUPTED, {}, A.REBUILD_PRODUCER),
    (R.SEND_OFFSETS, INTERRUPTED, {}, A.REBUILD_PRODUCER),
    (R.ABORT, INTERRUPTED, {}, A.REBUILD_PRODUCER),
    (R.INIT, "_TIMED_OUT", {"retriable": True, "fatal": True}, A.REBUILD_PRODUCER),
    (R.INIT, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", {"fatal": True}, A.STOP_UNFIT),
    (R.INIT, "INVALID_TRANSACTION_TIMEOUT", {"fatal": True}, A.STOP_UNFIT),
    (R.INIT, "_NOT_CONFIGURED", {}, A.STOP_FATAL),
    (R.BEGIN, "_NOT_CONFIGURED", {}, A.STOP_FATAL),
    (R.BEGIN, "_STATE", {}, A.CORRECT_CALL),
]


@pytest.mark.parametrize(("request_", "code", "flags", "action"), SEEN)
def test_each_observed_failure_gets_its_recovery_action(request_, code, flags, action):
    rule = recovery_for(ProducerFailure(request_, code, **flags))
    assert rule.action is action, rule.reason


@pytest.mark.parametrize(
    ("request_", "code", "flags", "expected"),
    [
        (R.COMMIT, "INVALID_PRODUCER_ID_MAPPING", {"abortable": True}, True),
        (R.COMMIT, "INVALID_TIMESTAMP", {"abortable": True, **WRONG_CLOCK}, True),
        (R.COMMIT, "_INCONSISTENT", {"abortable": True, **TWICE}, True),
        (R.COMMIT, "UNSUPPORTED_VERSION", {"abortable": True, **TWICE}, False),
        (R.COMMIT, "REQUEST_TIMED_OUT", {"abortable": True}, False),
        (R.COMMIT, "CLUSTER_AUTHORIZATION_FAILED", {"fatal": True}, False),
        (R.COMMIT, OVERDUE, {}, False),
        (R.FLUSH, "INVALID_TIMESTAMP", WRONG_CLOCK, True),
    ],
)
def test_a_failed_commit_took_no_effect_where_its_only_copy_was_refused_or_none_was_sent(
    request_, code, flags, expected
):
    assert ProducerFailure(request_, code, **flags).commit_took_no_effect is expected


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        ("Failed to commit offsets: orders(0), named[1]", False),
        ("Failed to commit offsets: orders(0), orders[3]", True),
        ("Failed to commit offsets: named(0)", False),
        ("Failed to commit offsets: my-orders(0)", True),
        ("Failed to commit offsets: my.named[0], orders[1]", True),
        ("Unknown topic or partition", True),
    ],
)
def test_refused_offsets_are_of_matched_topics_where_no_named_one_is_listed(refusal: str, expected: bool) -> None:
    by_pattern_alone = {"orders": True, "named": False}
    assert is_of_matched_topics(by_pattern_alone, refusal) is expected


def test_refused_offsets_of_named_topics_are_never_those_of_matched_ones() -> None:
    assert not is_of_matched_topics({"orders": False}, "Unknown topic or partition")


@pytest.mark.parametrize(
    ("said", "times_given", "expected"),
    [
        ("ProduceRequest for out [0] with 2 message(s) failed: why (INVALID_TIMESTAMP)", set(), True),
        ("ProduceRequest for out [0] with 2 message(s) failed: why (INVALID_TIMESTAMP)", {"other"}, True),
        ("ProduceRequest for out [0] with 2 message(s) failed: why (INVALID_TIMESTAMP)", {"out"}, False),
        ("ProduceRequest for out [0] with 2 message(s) failed: why (MSG_SIZE_TOO_LARGE)", set(), False),
        ("", set(), False),
    ],
)
def test_the_clock_is_at_fault_where_only_its_times_can_have_been_refused(said, times_given, expected):
    assert clock_is_at_fault(said, times_given) is expected


FENCES = ["_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"]


@pytest.mark.parametrize("code", FENCES)
@pytest.mark.parametrize("request_", R)
def test_a_pinned_id_fenced_within_its_timeout_stops_so_that_two_instances_never_fight(code, request_):
    for age_s in (1.0, 10.0):
        failure = ProducerFailure(request_, code, fatal=True, transaction_age_s=age_s, transaction_timeout_s=10.0)
        assert recovery_for(failure).action is A.STOP_FENCED


@pytest.mark.parametrize("code", FENCES)
@pytest.mark.parametrize(
    "explained",
    [
        {"generated_id": True},
        {"transaction_age_s": 10.001},
        {"transaction_age_s": 11.0},
        {"init_abandoned": True},
        {"bump_repeated": True},
    ],
)
def test_a_fence_that_something_of_our_own_can_explain_is_recovered_from(code, explained):
    known = {"fatal": True, "transaction_timeout_s": 10.0, **explained}
    for request_ in R:
        wanted = A.RESOLVE_UNKNOWN if request_ is R.COMMIT else A.REBUILD_PRODUCER
        assert recovery_for(ProducerFailure(request_, code, **known)).action is wanted, request_


@pytest.mark.parametrize("request_", R)
def test_an_id_that_the_coordinator_has_forgotten_is_taken_again_only_where_no_zombie_could_write(request_):
    """KAFKA-18019: after the expiry nobody can tell an older instance from a newer one."""
    for offsets_carry_fence, generated_id in itertools.product((False, True), repeat=2):
        failure = ProducerFailure(
            request_,
            "INVALID_PRODUCER_ID_MAPPING",
            abortable=True,
            offsets_carry_fence=offsets_carry_fence,
            generated_id=generated_id,
        )
        allowed = {A.ABORT_AND_CONTINUE, A.REBUILD_PRODUCER} if offsets_carry_fence or generated_id else {A.STOP_FATAL}
        assert recovery_for(failure).action in allowed, failure


def every_failure():
    """Every request, codes that rows name and one that none does, every flag, young and old, any id, fenced or not."""
    codes = {"ILLEGAL_GENERATION", "_STATE", OVERDUE, "INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_TOPIC_OR_PART", "_FENCED"}
    codes |= {"REQUEST_TIMED_OUT", "_TIMED_OUT", "UNSUPPORTED_VERSION", "OFFSET_METADATA_TOO_LARGE", "_INCONSISTENT"}
    codes |= {"INVALID_TRANSACTION_TIMEOUT", "MSG_SIZE_TOO_LARGE", "TOPIC_AUTHORIZATION_FAILED"}
    truth = (False, True)
    for request_, code, fatal, abortable, retriable, generated_id, is_open in itertools.product(
        R, sorted(codes), truth, truth, truth, truth, truth
    ):
        if code == OVERDUE and (fatal or abortable or retriable):
            continue  # our own code: the library has not answered, so it has set no flag
        for age_s, offsets_carry_fence, twice, may_leave in itertools.product(
            (0.0, 61.0),
            truth,
            truth if request_ is R.COMMIT else [False],
            truth if request_ is R.SEND_OFFSETS else [False],
        ):
            yield ProducerFailure(
                request_,
                code,
                fatal=fatal,
                abortable=abortable,
                retriable=retriable,
                transaction_age_s=age_s,
                transaction_timeout_s=60.0,
                generated_id=generated_id,
                transaction_open=is_open,
                offsets_carry_fence=offsets_carry_fence,
                may_have_been_sent_twice=twice,
                topics_may_leave=may_leave,
            )
    for request_ in (R.FLUSH, R.SEND_OFFSETS, R.COMMIT):
        yield ProducerFailure(request_, "INVALID_TIMESTAMP", abortable=True, clock_is_at_fault=True)
    for request_ in (R.SEND_OFFSETS, R.COMMIT, R.ABORT):
        yield ProducerFailure(request_, "INVALID_TXN_STATE", fatal=True, was_registered=True)


def answer(failure: ProducerFailure, rules: list[RecoveryRule]) -> RecoveryAction | None:
    return next((rule.action for rule in rules if rule.applies(failure)), None)


def test_each_row_is_reached_and_answers_what_no_other_row_would():
    failures = list(every_failure())
    table = {}
    for index, removed in enumerate(RECOVERY_RULES):
        rest = [rule for rule in RECOVERY_RULES if rule is not removed]
        reached = [f for f in failures if recovery_for(f) is removed]
        changed = [f for f in reached if answer(f, rest) is not removed.action]
        table[f"{index + 1} {removed.action.name}: {removed.reason}"] = (len(reached), len(changed))
    for name, (reaching, changing) in table.items():
        print(f"{changing:>5} of {reaching:>5} answers change without row {name}")
    assert all(changing for _, changing in table.values()), table


def test_each_row_is_reached_by_something_that_was_seen():
    seen = {recovery_for(ProducerFailure(request_, code, **flags)) for request_, code, flags, _ in SEEN}
    fenced = recovery_for(ProducerFailure(R.PRODUCE, "_FENCED", fatal=True))
    assert seen | {fenced} == set(RECOVERY_RULES)


MAY_HAVE_COMMITTED = {A.RESOLVE_UNKNOWN, A.STOP_FENCED, A.STOP_UNFIT, A.STOP_FATAL, A.CORRECT_CALL}


def test_what_may_have_taken_effect_is_never_aborted_retried_or_forgotten():
    for failure in every_failure():
        if failure.request is R.COMMIT and (not failure.abortable or failure.code == "REQUEST_TIMED_OUT"):
            assert recovery_for(failure).action in MAY_HAVE_COMMITTED, failure


def test_the_table_leaves_a_commit_open_exactly_where_it_may_have_taken_effect():
    """KAFKA-17754. Rows before those of RESOLVE_UNKNOWN end the process or refuse the call: nothing is aborted."""
    named = [value for name, value in vars(error_codes).items() if name.isupper()]
    codes = frozenset().union(*(value if isinstance(value, frozenset) else {value} for value in named))
    for request_, code, *flags in itertools.product(R, sorted(codes), *[(False, True)] * 8):
        abortable, twice, fatal, retriable, generated_id, offsets_carry_fence, is_old, is_open = flags
        failure = ProducerFailure(
            request_,
            code,
            fatal=fatal,
            abortable=abortable,
            retriable=retriable,
            transaction_age_s=61.0 if is_old else 0.0,
            generated_id=generated_id,
            transaction_open=is_open,
            offsets_carry_fence=offsets_carry_fence,
            may_have_been_sent_twice=twice,
        )
        is_refused = abortable and code not in error_codes.OUTCOME_AMBIGUOUS
        may_have_committed = request_ is R.COMMIT and not (is_refused and (not twice or code == "_INCONSISTENT"))
        assert failure.commit_took_no_effect is not may_have_committed, failure
        action = recovery_for(failure).action
        assert action in MAY_HAVE_COMMITTED if may_have_committed else action is not A.RESOLVE_UNKNOWN, failure


def test_a_refusal_that_may_be_of_a_second_copy_is_no_proof_about_the_first():
    """KAFKA-18019: only what the client library never sent was certainly not committed."""
    for failure in every_failure():
        if failure.may_have_been_sent_twice and failure.code != "_INCONSISTENT":
            assert recovery_for(failure).action in MAY_HAVE_COMMITTED, failure


def test_offsets_that_were_not_answered_are_never_followed_by_another_transaction_at_their_epoch():
    """KAFKA-17754: if they arrive late, they count as the next transaction's."""
    for failure in every_failure():
        if failure.request is R.SEND_OFFSETS and failure.code in {"_TIMED_OUT", OVERDUE}:
            assert recovery_for(failure).action is A.REBUILD_PRODUCER, failure


def test_a_finished_handle_is_never_used_again():
    for failure in every_failure():
        if failure.fatal or failure.code == OVERDUE:
            assert recovery_for(failure).action not in {A.RETRY, A.ABORT_AND_CONTINUE, A.CORRECT_CALL}, failure


def test_each_row_gives_a_reason_of_its_own():
    assert len({rule.reason for rule in RECOVERY_RULES}) == len(RECOVERY_RULES)
