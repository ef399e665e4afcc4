"""At one seam confluent_kafka's errors become ours: named for what to do, and still what they were."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import traceback
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from eos_client import EosProducer, errors
from eos_client.confluent.callback_guard import CallbackGuard, built
from eos_client.confluent.failures.client_failures import configuration_refused, lacks_credentials, misplaced_call
from eos_client.confluent.failures.consumer_failures import (
    commit_refused,
    consumer_errors,
    event_code,
    input_error,
)
from eos_client.confluent.failures.kafka_errors import kafka_error, make_kafka_error
from eos_client.confluent.failures.position_failures import beyond_the_end, forbidden_reset, log_truncated
from eos_client.confluent.failures.producer_failures import (
    ERROR_CLASSES,
    WAYS_OUT,
    action_of,
    must_abort,
    overdue_error,
    producer_error,
    with_error,
)
from eos_client.core.error_codes import OVERDUE, REFUSED_BY_GROUP
from eos_client.core.leader_epochs import Misplacement
from eos_client.core.model import InputPartition
from eos_client.core.producer_recovery import ProducerFailure, RecoveryAction, TransactionalRequest
from eos_client.core.producer_states import Began

R = TransactionalRequest
ABORTABLE = {"txn_requires_abort": True}


def failure(request: TransactionalRequest, **known: object) -> ProducerFailure:
    return ProducerFailure(request, OVERDUE, **known)  # type: ignore[arg-type]


def named(request: TransactionalRequest, code: int, *, flags=None, **known: object) -> errors.EosError:
    error = KafkaError(code, "the broker says why", **(flags or {}))
    return producer_error(with_error(failure(request, **known), error), error, "b-0")


@pytest.mark.parametrize(
    ("request_", "code", "flags"),
    [
        (R.COMMIT, KafkaError._TIMED_OUT, {"retriable": True}),
        (R.ABORT, KafkaError._FENCED, {"fatal": True}),
        (R.SEND_OFFSETS, KafkaError.ILLEGAL_GENERATION, {"txn_requires_abort": True}),
    ],
)
def test_what_has_happened_is_told_without_what_the_caller_must_do(request_, code, flags):
    error = named(request_, code, flags=flags, generated_id=True)
    (way_out,) = [text for action, text in WAYS_OUT.items() if action is action_of(error)]
    assert f". {way_out}: " in str(error)
    happened = errors.what_happened(error)
    assert way_out not in happened
    assert str(error).partition(way_out)[0].rstrip() in happened
    assert happened[len(str(error).partition(way_out)[0])].isupper()


def test_an_error_that_says_no_more_is_told_whole():
    assert errors.what_happened(errors.ClientClosedError("it is closed")) == "it is closed"


def test_a_truncation_that_the_library_reports_is_no_missing_offset():
    """librdkafka 2.16 reports it, for auto.offset.reset=error, with the code of a missing offset and without one."""
    text = "Partition log truncation detected at offset 7 (leader epoch 0): Local: Partition log truncation detected"
    event = SimpleNamespace(error=lambda: KafkaError(KafkaError._AUTO_OFFSET_RESET, text), offset=lambda: None)
    refusal = forbidden_reset(InputPartition("orders", 2), event)
    assert text in str(refusal)
    assert "set it to where the new records are to be read from" in str(refusal)
    assert (refusal.topic, refusal.partition, refusal.offset) == ("orders", 2, None)


@pytest.mark.parametrize(
    "error",
    [
        must_abort("the group has a new generation"),
        misplaced_call("begin_transaction() twice"),
        producer_error(failure(R.COMMIT), KafkaError(KafkaError._TIMED_OUT, "no answer", False, True), "b-0"),
        beyond_the_end(InputPartition("orders", 2), 7, 5),
        log_truncated(InputPartition("orders", 2), Misplacement(7, 0, 5, 1)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_out_of_another_process_as_it_went_in(error):
    """A new process knows none of the classes yet that are made of an error of ours and a KafkaException."""
    program = "import pickle, sys; sys.stdout.buffer.write(pickle.dumps(pickle.load(sys.stdin.buffer)))"
    answered = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(error), capture_output=True, check=True
    )
    for copied in (copy.copy(error), pickle.loads(answered.stdout)):
        assert type(copied) is type(error)
        assert isinstance(copied, KafkaException)
        assert str(copied) == str(error)
        assert vars(copied) == vars(error)
        kept = [
            (e.code(), e.str(), e.fatal(), e.retriable(), e.txn_requires_abort())
            for e in (copied.args[0], error.args[0])
        ]
        assert kept[0] == kept[1]


@pytest.mark.parametrize("code", sorted(REFUSED_BY_GROUP))
def test_a_refused_heartbeat_of_a_kip_848_member_is_named_for_what_the_broker_said(code):
    """The text is as librdkafka 2.16 passes it on (tests/kafka/test_permissions.py has it from a broker)."""
    said = KafkaError(getattr(KafkaError, code)).str()
    text = f"Fatal error: {said}: ConsumerGroupHeartbeat fatal error: {said}"
    error = KafkaError(KafkaError._FATAL, text)
    assert event_code(error) == code
    refusal = input_error(error, group_id="billing")
    assert isinstance(refusal, errors.ClusterUnfitError)
    is_forbidden = code == "GROUP_AUTHORIZATION_FAILED"
    failed = "the input cannot be read" if is_forbidden else "group 'billing' does not admit this consumer"
    assert str(refusal).startswith(f"{failed}: {code}: Fatal error")
    assert "group 'billing'" in str(refusal)


@pytest.mark.parametrize(
    ("code", "way_out"),
    [
        ("FENCED_INSTANCE_ID", "Another running consumer has its group.instance.id: give each an id of its own"),
        ("UNRELEASED_INSTANCE_ID", "by a former process that ended without close(), until its session is over"),
    ],
)
def test_an_instance_id_that_another_consumer_has_is_told_with_the_way_out(code, way_out):
    """Those of a classic member that was fenced, and of a KIP-848 one that comes second (librdkafka 2.16)."""
    error = KafkaError(KafkaError._FATAL, f"Fatal error: {KafkaError(getattr(KafkaError, code)).str()}")
    told = input_error(error, group_id="billing")
    assert isinstance(told, errors.FatalClientError)
    assert way_out in str(told)


def test_a_fatal_event_of_another_reason_keeps_its_code():
    assert event_code(KafkaError(KafkaError._FATAL, "Fatal error: Local: Bad message format")) == "_FATAL"
    assert event_code(KafkaError(KafkaError.FENCED_INSTANCE_ID)) == "FENCED_INSTANCE_ID"


@pytest.mark.parametrize(("age_s", "is_told"), [(15.0, True), (9.0, False)])
def test_a_transaction_that_was_open_for_too_long_is_told_as_that(age_s: float, is_told: bool) -> None:
    known = {"transaction_age_s": age_s, "transaction_timeout_s": 10.0, "transaction_open": True}
    error = named(R.PRODUCE, KafkaError._FENCED, flags={"fatal": True}, **known)
    assert ("was open for 15.0 s, longer than transaction.timeout.ms=10000" in str(error)) is is_told


BECOMES = [
    (R.SEND_OFFSETS, KafkaError.ILLEGAL_GENERATION, ABORTABLE, errors.CommitRefusedError, "Abort, rewind"),
    (R.SEND_OFFSETS, KafkaError.UNKNOWN_MEMBER_ID, ABORTABLE, errors.CommitRefusedError, "Abort, rewind"),
    (R.SEND_OFFSETS, KafkaError.STALE_MEMBER_EPOCH, ABORTABLE, errors.CommitRefusedError, "Abort, rewind"),
    (R.SEND_OFFSETS, KafkaError.REBALANCE_IN_PROGRESS, ABORTABLE, errors.CommitRefusedError, "Abort, rewind"),
    (R.SEND_OFFSETS, KafkaError.FENCED_INSTANCE_ID, ABORTABLE, errors.AbortableError, "Abort, rewind"),
    (R.COMMIT, KafkaError.INVALID_PRODUCER_ID_MAPPING, ABORTABLE, errors.AbortableError, "go on"),
    (R.COMMIT, KafkaError._TIMED_OUT, {"retriable": True}, errors.UnknownOutcomeError, "Do not abort"),
    (R.COMMIT, KafkaError.INVALID_TXN_STATE, {"fatal": True}, errors.UnknownOutcomeError, "committed offsets"),
    (R.ABORT, KafkaError._TIMED_OUT, {"retriable": True}, errors.RebuildProducerError, "init_transactions()"),
    (R.SEND_OFFSETS, KafkaError.INVALID_PRODUCER_ID_MAPPING, ABORTABLE, errors.AbortableError, "Abort, rewind"),
    (R.SEND_OFFSETS, KafkaError.INVALID_PRODUCER_ID_MAPPING, {"fatal": True}, errors.RebuildProducerError, "same id"),
    (R.INIT, KafkaError._TIMED_OUT, {"retriable": True}, errors.RetriableError, "Call it again"),
    (R.INIT, KafkaError._NOT_CONFIGURED, {}, errors.FatalClientError, "End the process"),
    (R.BEGIN, KafkaError._STATE, {}, errors.TransactionStateError, "order of the calls"),
    (R.COMMIT, KafkaError._FENCED, {"fatal": True}, errors.ProducerFencedError, "Stop this instance"),
    (
        R.INIT,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        {"fatal": True},
        errors.ClusterUnfitError,
        "Repair the permissions or the name",
    ),
    (R.PRODUCE, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, {"fatal": True}, errors.RebuildProducerError, "same id"),
    (R.PRODUCE, KafkaError.MSG_SIZE_TOO_LARGE, {}, errors.OutputRefusedError, "Write less"),
    (R.PRODUCE, KafkaError._UNKNOWN_PARTITION, {}, errors.OutputRefusedError, "Correct it"),
    (R.PRODUCE, KafkaError.INVALID_MSG, {}, errors.OutputRefusedError, "Correct it"),
    (R.PRODUCE, KafkaError._INVALID_ARG, {}, errors.OutputRefusedError, "Correct it"),
    (R.PRODUCE, KafkaError._UNKNOWN_PARTITION, {}, errors.OutputRefusedError, "Correct it"),
    (R.PRODUCE, KafkaError._UNKNOWN_TOPIC, {}, errors.ClusterUnfitError, "Create it, or repair the name"),
    (R.FLUSH, KafkaError.MSG_SIZE_TOO_LARGE, ABORTABLE, errors.AbortableError, "Abort, rewind"),
]
IDS = [f"{request.name} {KafkaError(code).name()}" for request, code, *_ in BECOMES]
CASES = pytest.mark.parametrize(("request_", "code", "flags", "kind", "way_out"), BECOMES, ids=IDS)


@CASES
def test_an_error_becomes_the_class_that_is_named_for_what_to_do(request_, code, flags, kind, way_out):
    error = named(request_, code, flags=flags)
    assert isinstance(error, kind)
    if kind is errors.AbortableError:
        assert not isinstance(error, errors.CommitRefusedError)
    assert way_out in str(error)


@CASES
def test_a_mapped_error_is_still_a_kafka_exception_with_the_kafka_error_inside(request_, code, flags, kind, way_out):
    error = named(request_, code, flags=flags)
    assert isinstance(error, KafkaException)
    inside = error.args[0]
    assert isinstance(inside, KafkaError)
    assert (inside.code(), inside.str()) == (code, "the broker says why")
    assert inside.fatal() is flags.get("fatal", False)
    assert inside.retriable() is flags.get("retriable", False)
    assert inside.txn_requires_abort() is flags.get("txn_requires_abort", False)


@CASES
def test_a_mapped_errors_message_names_the_code_and_the_brokers_text(request_, code, flags, kind, way_out):
    message = str(named(request_, code, flags=flags))
    assert KafkaError(code).name() in message
    assert "the broker says why" in message


@pytest.mark.parametrize("request_", [each for each in R if each is not R.PRODUCE])
def test_a_mapped_errors_message_names_the_call_and_the_transactional_id(request_):
    message = str(named(request_, KafkaError._TRANSPORT, flags=ABORTABLE))
    assert f"{request_.value} of transactional.id 'b-0' failed with _TRANSPORT" in message


def test_a_clause_that_is_known_besides_ends_the_sentence_of_what_happened():
    error = KafkaError(KafkaError._TRANSPORT, "the broker says why", txn_requires_abort=True)
    message = str(producer_error(with_error(failure(R.COMMIT), error), error, "b-0", "; the client last reported X"))
    assert "_TRANSPORT: the broker says why; the client last reported X. Abort, rewind" in message


# As librdkafka 2.16 tells them.
CONNECTIONS_LOST = [
    (
        KafkaError._AUTHENTICATION,
        "SASL authentication error: Authentication failed: Invalid username or password",
        True,
    ),
    (KafkaError._SSL, "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed", True),
    (KafkaError._TRANSPORT, "error:0A000086:SSL routines::certificate verify failed (after 6ms)", True),
    (
        KafkaError._TRANSPORT,
        "Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert number 42 (after 1ms)",
        True,
    ),
    (KafkaError._TRANSPORT, "Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms)", False),
    (KafkaError._TRANSPORT, "SSL handshake failed: Disconnected: SSL connection closed by peer", False),
    (KafkaError._TRANSPORT, "Receive failed: error:0A000126:SSL routines::unexpected eof while reading", False),
    (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down", False),
]


@pytest.mark.parametrize(("code", "text", "because_of_them"), CONNECTIONS_LOST)
def test_a_connection_that_credentials_have_closed_is_told_from_one_that_was_lost(code, text, because_of_them):
    assert lacks_credentials(KafkaError(code, text)) is because_of_them


def test_every_class_of_ours_can_come_out_of_the_seam():
    kinds = {kind for *_, kind, _ in BECOMES}
    assert kinds == {
        errors.AbortableError,
        errors.ClusterUnfitError,
        errors.CommitRefusedError,
        errors.FatalClientError,
        errors.OutputRefusedError,
        errors.ProducerFencedError,
        errors.RebuildProducerError,
        errors.RetriableError,
        errors.TransactionStateError,
        errors.UnknownOutcomeError,
    }


def test_a_record_refused_by_a_finished_producer_is_not_the_records_fault():
    error = named(R.PRODUCE, KafkaError._INVALID_ARG, flags={"fatal": True})
    assert isinstance(error, errors.RebuildProducerError)


@pytest.mark.parametrize(
    "explained", [{"generated_id": True}, {"transaction_age_s": 11.0, "transaction_timeout_s": 10.0}]
)
def test_a_fence_that_a_timeout_explains_is_recovered_from(explained):
    error = named(R.SEND_OFFSETS, KafkaError._FENCED, flags={"fatal": True}, **explained)
    assert isinstance(error, errors.RebuildProducerError)
    assert isinstance(
        named(R.COMMIT, KafkaError._FENCED, flags={"fatal": True}, **explained), errors.UnknownOutcomeError
    )


def test_the_flags_are_read_from_the_error_and_the_rest_is_kept():
    known = failure(R.COMMIT, transaction_age_s=3.0, transaction_timeout_s=9.0, generated_id=True)
    error = KafkaError(KafkaError._TIMED_OUT, "slow", fatal=True, retriable=True, txn_requires_abort=True)
    assert with_error(known, error) == ProducerFailure(
        R.COMMIT,
        "_TIMED_OUT",
        fatal=True,
        abortable=True,
        retriable=True,
        transaction_age_s=3.0,
        transaction_timeout_s=9.0,
        generated_id=True,
    )


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (R.COMMIT, errors.UnknownOutcomeError),
        (R.ABORT, errors.RebuildProducerError),
        (R.SEND_OFFSETS, errors.RebuildProducerError),
        (R.INIT, errors.RebuildProducerError),
    ],
)
def test_a_call_that_did_not_return_is_named_with_its_budget(request_, kind):
    error = overdue_error(failure(request_), 4.5, "b-0")
    assert isinstance(error, kind)
    assert isinstance(error, KafkaException)
    assert error.args[0].code() == KafkaError._TIMED_OUT
    assert f"{request_.value} did not return within 4.5 s" in str(error)
    assert "'b-0'" in str(error)


@pytest.mark.parametrize(
    ("raised", "kind", "code", "abort"),
    [
        (commit_refused("not ours"), errors.CommitRefusedError, KafkaError.ILLEGAL_GENERATION, False),
        (must_abort("not ours"), errors.AbortableError, KafkaError._STATE, True),
        (misplaced_call("not ours"), errors.TransactionStateError, KafkaError._STATE, False),
    ],
)
def test_refusals_of_our_own_can_be_caught_like_the_librarys(raised, kind, code, abort):
    assert isinstance(raised, kind)
    assert isinstance(raised, KafkaException)
    assert (raised.args[0].code(), raised.args[0].txn_requires_abort()) == (code, abort)
    assert str(raised) == raised.args[0].str() == "not ours"


class TestKafkaErrorInside:
    def test_the_kafka_error_of_an_exception_is_found(self):
        error = KafkaError(KafkaError._TRANSPORT, "gone")
        assert kafka_error(KafkaException(error)) is error

    @pytest.mark.parametrize("exception", [KafkaException(), KafkaException("just text")])
    def test_an_exception_without_a_kafka_error_becomes_unknown_with_its_text(self, exception):
        error = kafka_error(exception)
        assert error.code() == KafkaError.UNKNOWN
        assert error.str() == str(exception)


class TestConsumerErrors:
    def raised(self, code, **flags):
        original = KafkaException(KafkaError(code, "the broker says why", **flags))
        with pytest.raises(KafkaException) as caught, consumer_errors("commit()"):
            raise original
        return original, caught.value

    def test_a_fatal_error_ends_the_process(self):
        original, error = self.raised(KafkaError.FENCED_INSTANCE_ID, fatal=True)
        assert isinstance(error, errors.FatalClientError)
        assert error.__cause__ is original
        assert "commit() failed with FENCED_INSTANCE_ID: the broker says why. End the process" in str(error)

    @pytest.mark.parametrize(
        "code",
        [
            KafkaError.ILLEGAL_GENERATION,
            KafkaError.UNKNOWN_MEMBER_ID,
            KafkaError.STALE_MEMBER_EPOCH,
            KafkaError.REBALANCE_IN_PROGRESS,
        ],
    )
    def test_a_refused_commit_says_whose_the_records_are_now(self, code):
        original, error = self.raised(code)
        assert isinstance(error, errors.CommitRefusedError)
        assert error.__cause__ is original
        assert error.args[0].code() == code
        assert "belong to another member" in str(error)

    @pytest.mark.parametrize(
        ("code", "forbidden"),
        [
            (KafkaError.GROUP_AUTHORIZATION_FAILED, "group 'billing'"),
            (KafkaError.TOPIC_AUTHORIZATION_FAILED, "topic 'a', 'b'"),
        ],
    )
    def test_a_missing_permission_is_named_with_its_resource(self, code, forbidden):
        original = KafkaException(KafkaError(code, "the broker says why"))
        translated = consumer_errors("commit()", "billing", ["b", "a", "b"])
        with (
            pytest.raises(errors.ClusterUnfitError, match=f"Allow this client to read {forbidden}") as caught,
            translated,
        ):
            raise original
        assert isinstance(caught.value, KafkaException)
        assert caught.value.args[0].code() == code

    @pytest.mark.parametrize("code", sorted(REFUSED_BY_GROUP))
    def test_a_call_of_a_consumer_that_its_group_has_refused_says_that_the_cluster_is_to_be_repaired(self, code):
        """librdkafka gives such a consumer up: its commits say only that, and the event before has the reason."""
        given_up = KafkaError(KafkaError._FATAL, f"Fatal error: {KafkaError(getattr(KafkaError, code)).str()}")
        refused = KafkaException(KafkaError(KafkaError._FATAL, "Commit failed: Local: Fatal error"))
        translated = consumer_errors("commit()", "billing", given_up=given_up)
        with pytest.raises(errors.ClusterUnfitError, match=code) as caught, translated:
            raise refused
        assert f": commit() failed with {code}: Fatal error: Broker: " in str(caught.value)
        assert "input" not in str(caught.value)
        assert caught.value.__cause__ is refused

    def test_a_call_that_names_only_the_failure_of_a_consumer_whose_reason_is_not_known_yet_ends_the_process(self):
        with pytest.raises(errors.FatalClientError, match="_FATAL: Commit failed"), consumer_errors("commit()"):
            raise KafkaException(KafkaError(KafkaError._FATAL, "Commit failed: Local: Fatal error"))

    def test_everything_else_goes_through_as_it_was(self):
        original, error = self.raised(KafkaError._TIMED_OUT)
        assert error is original

    def test_exceptions_other_than_kafkas_pass_unchanged(self):
        with pytest.raises(RuntimeError, match="closed"), consumer_errors("poll()"):
            raise RuntimeError("closed")


class TestConfigurationErrors:
    def test_what_a_constructor_refuses_is_a_configuration_error_that_names_the_property(self):
        original = KafkaException(KafkaError(KafkaError._INVALID_ARG, 'No such configuration property: "lingre.ms"'))
        with pytest.raises(errors.ConfigurationError) as caught, CallbackGuard().building("producer"):
            raise original
        error = caught.value
        assert isinstance(error, KafkaException)
        assert isinstance(error, ValueError)
        assert error.__cause__ is original
        assert 'the producer refuses its configuration: No such configuration property: "lingre.ms"' in str(error)

    def test_an_existing_handler_for_kafka_exceptions_keeps_working(self):
        with pytest.raises(KafkaException) as caught, CallbackGuard().building("consumer"):
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "no"))
        assert caught.value.args[0].code() == KafkaError._INVALID_ARG


def test_the_cause_is_shown_in_the_traceback():
    try:
        with consumer_errors("commit()"):
            raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION, "the broker says why"))
    except errors.CommitRefusedError as error:
        shown = "".join(traceback.format_exception(error))
        assert "ILLEGAL_GENERATION" in shown
        assert "direct cause" in shown


@pytest.mark.parametrize(("key", "given"), [("session.timeout.ms", ", given as 'planted'"), ("sasl.password", "")])
def test_a_refused_setting_is_named_with_its_value_unless_that_is_a_secret(key, given):
    refused = KafkaException(KafkaError(KafkaError._INVALID_ARG, f'Invalid value for configuration property "{key}"'))
    assert str(configuration_refused(refused, "consumer", {key: "planted"})).endswith(f"named property{given}.")


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        ({"linger.ms": "abc"}, '"queue.buffering.max.ms".*named property, here "linger.ms", given as \'abc\'[.]'),
        ({"delivery.timeout.ms": "abc"}, '"message.timeout.ms".*here "delivery.timeout.ms", given as \'abc\'[.]'),
        ({"retries": "abc"}, '"message.send.max.retries".*here "retries", given as \'abc\'[.]'),
        ({"compression.type": "abc"}, '"compression.codec".*here "compression.type", given as \'abc\'[.]'),
        ({"queue.buffering.max.ms": "abc"}, "\"queue.buffering.max.ms\".*named property, given as 'abc'[.]"),
    ],
)
def test_a_setting_that_the_library_names_by_another_name_is_named_as_it_was_given(settings, given):
    with pytest.raises(errors.ConfigurationError, match=given):
        built("producer", Producer, {"bootstrap.servers": "localhost:1", **settings})


@pytest.mark.parametrize(
    ("reported", "named_for"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, errors.ClusterUnfitError),
        (KafkaError._MSG_TIMED_OUT, errors.AbortableError),
    ],
)
@pytest.mark.parametrize(
    ("request_", "refused"),
    [
        (R.COMMIT, KafkaError(KafkaError._INCONSISTENT, "1 message(s) failed delivery", **ABORTABLE)),
        (R.PRODUCE, KafkaError(KafkaError._STATE, "Unable to produce message")),
    ],
)
def test_a_call_that_is_refused_for_an_undelivered_output_is_named_for_why_it_was_not_delivered(
    request_, refused, reported, named_for
):
    """What another transaction could not write either is not tried again."""
    message = SimpleNamespace(topic=lambda: "out", partition=lambda: 0)
    with EosProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "transactional.id": "id"}) as producer:
        adapter = producer.adapter
        adapter.library.last_errors.watching_deliveries(None)(KafkaError(reported), message)
        adapter.calls.tell(Began(0.0))
        error = adapter.calls.record_failure(request_, KafkaException(refused))
    assert isinstance(error, named_for)
    assert "the last undelivered output, to out[0]" in str(error)


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        (errors.UnknownOutcomeError, RecoveryAction.RESOLVE_UNKNOWN),
        (errors.RebuildProducerError, RecoveryAction.REBUILD_PRODUCER),
        (errors.CommitRefusedError, RecoveryAction.ABORT_AND_CONTINUE),
        (errors.LeaveBlockError, RecoveryAction.ABORT_AND_CONTINUE),
        *((kind, action) for action, kind in ERROR_CLASSES.items()),
    ],
)
def test_an_error_stands_for_the_action_that_gave_it_its_class(kind, action):
    assert action_of(kind("why")) is action
    assert action_of(make_kafka_error(kind, KafkaError._STATE, "why")) is action
