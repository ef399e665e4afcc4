"""What the client library's log says against a commit or a handle, and who gets to see it.

The lines are as librdkafka 2.14.0, 2.15.0 and 2.16.0 wrote them. `client_versions.sh` drops connections of each.
"""

import logging

import pytest

from eos_client.confluent.client_log import ClientLog
from eos_client.core.error_codes import TOPIC_FORBIDDEN
from eos_client.core.lost_connections import LostConnections

CLOSED = (
    "[thrd:TxnCoordinator]: TxnCoordinator: 127.0.0.1:9092: Disconnected: connection closed by peer: receive 0 after "
    "POLLIN (after 1534ms in state UP)"
)
REPEATED = CLOSED[:-1] + ", 1 identical error(s) suppressed)"
SUPPRESSED = (
    "[thrd:TxnCoordinator]: TxnCoordinator/1: 127.0.0.1:9092: Disconnected: connection closed by peer: receive 0 after "
    "POLLIN (after 1521ms in state UP) (_TRANSPORT): identical to last error: error log suppressed"
)
REFUSED = (
    "[thrd:a:9092/1]: a:9092/1: Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)"
)
DOWN = "[thrd:TxnCoordinator]: TxnCoordinator: Broker changed state UP -> DOWN"
CONNECTED = "[thrd:a:9092/1]: a:9092/1: Broker changed state APIVERSION_QUERY -> UP"
DECOMMISSIONED = "[thrd:a:9092/1]: a:9092/1: Decommissioning this broker (after 5ms in state UP) (_DESTROY_BROKER)"
BOOTSTRAP_LEFT = (
    "[thrd:a:9092/bootstrap]: a:9092/bootstrap: Decommissioning this broker (after 2ms in state UP) (_DESTROY_BROKER)"
)
MOVED = (
    "[thrd:TxnCoordinator]: TxnCoordinator/2: a:9093: Closing connection due to nodename change (after {}) (_TRANSPORT)"
)
IDLE = (
    "[thrd:a:9092/1]: a:9092/1: Connection max idle time exceeded (5000ms since last activity) (after 5003ms in state "
    "UP) (_TRANSPORT)"
)
IMPLIED = "[thrd:a:9092/1]: a:9092/1: out [0] 1 message(s) implicitly acked by subsequent batch success (msgids 1..1)"
TIMED_OUT = "[thrd:TxnCoordinator]: TxnCoordinator: Timed out EndTxnRequest in flight (after 60021ms, timeout #0)"
TIMEOUTS = "[thrd:a:9092/1]: a:9092/1: Timed out {} in-flight, 0 retry-queued, {} out-queue, 0 partially-sent requests"


class Logger:
    def __init__(self):
        self.lines = []

    def log(self, level, text, *arguments):
        self.lines.append((level, text % arguments))


def tell(log, level, facility, line):
    log.log(level, "%s [%s] %s", facility, "rdkafka#producer-1", line)


def heard(level, facility, line, settings):
    """Whether the line is taken for a lost connection, and how many lines the application's logger got."""
    theirs = Logger()
    log = ClientLog({"logger": theirs, **settings})
    tell(log, level, facility, line)
    return log.losses == 1, len(theirs.lines)


def is_loss(facility, line):
    return heard(logging.DEBUG, facility, line, {})[0]


@pytest.mark.parametrize("line", [CLOSED, REPEATED, SUPPRESSED, DECOMMISSIONED, MOVED.format("9ms in state UP"), IDLE])
def test_every_end_of_an_established_connection_is_a_loss_suppressed_or_planned(line):
    assert is_loss("FAIL", line)


@pytest.mark.parametrize(
    "line",
    [
        REFUSED,
        BOOTSTRAP_LEFT,
        MOVED.format("505ms in state TRY_CONNECT"),
        MOVED.format("0ms in state APIVERSION_QUERY"),
    ],
)
def test_a_connection_that_was_not_established_or_only_asked_for_metadata_has_carried_nothing(line):
    assert not is_loss("FAIL", line)


@pytest.mark.parametrize("prefix", ["", "[thrd:TxnCoordinator]: ", "[thrd:[::1]:9092/1]: "])
@pytest.mark.parametrize("before", ["UP", "REAUTH"])
def test_a_broker_that_goes_down_is_a_loss_with_or_without_the_threads_name(prefix, before):
    assert is_loss("STATE", f"{prefix}TxnCoordinator: Broker changed state {before} -> DOWN")
    assert not is_loss("STATE", f"{prefix}[::1]:9092/bootstrap: Broker changed state {before} -> DOWN")


@pytest.mark.parametrize(
    "change",
    [
        "INIT -> TRY_CONNECT",
        "TRY_CONNECT -> CONNECT",
        "CONNECT -> SSL_HANDSHAKE",
        "SSL_HANDSHAKE -> APIVERSION_QUERY",
        "APIVERSION_QUERY -> AUTH_HANDSHAKE",
        "AUTH_HANDSHAKE -> AUTH_REQ",
        "AUTH_REQ -> DOWN",
        "APIVERSION_QUERY -> DOWN",
        "AUTH_REQ -> UP",
        "UP -> REAUTH",
        "DOWN -> INIT",
    ],
)
def test_connecting_and_authenticating_are_no_losses(change):
    assert not is_loss("STATE", f"[thrd:sasl_ssl://a:9092/1]: sasl_ssl://a:9092/1: Broker changed state {change}")


def test_a_connection_that_is_lost_while_it_authenticates_again_may_have_carried_a_request():
    log = ClientLog({})
    for change in ("AUTH_REQ -> UP", "UP -> REAUTH", "REAUTH -> AUTH_HANDSHAKE", "AUTH_HANDSHAKE -> AUTH_REQ"):
        tell(log, logging.DEBUG, "STATE", f"[thrd:a:9092/1]: a:9092/1: Broker changed state {change}")
    assert log.losses == 0
    tell(log, logging.DEBUG, "STATE", "[thrd:a:9092/1]: a:9092/1: Broker changed state AUTH_REQ -> DOWN")
    assert log.losses == 1


@pytest.mark.parametrize(
    ("facility", "line"),
    [
        ("STATE", "[thrd:a:9092/1]: a:9092/1: Broker is down"),
        ("STATE", "[thrd:a:9092/1]: a:9092/1: Broker changed state CONNECTED -> DOWN"),
        ("STATE", "[thrd:a:9092/1]: a:9092/1: Broker changed state UP -> CLOSED"),
        ("FAIL", "[thrd:a:9092/1]: a:9092/1: Disconnected"),
        ("FAIL", "[thrd:a:9092/1]: a:9092/1: Disconnected (after 9ms in state SERVING)"),
        ("REQTMOUT", "[thrd:a:9092/1]: a:9092/1: EndTxn took too long"),
    ],
)
def test_a_line_in_an_unknown_form_is_taken_for_a_loss(facility, line):
    assert is_loss(facility, line)


@pytest.mark.parametrize(
    ("line", "lost"), [(TIMED_OUT, True), (TIMEOUTS.format(1, 0), True), (TIMEOUTS.format(0, 2), False)]
)
def test_a_request_that_timed_out_is_on_its_way_unless_it_was_never_sent(line, lost):
    assert is_loss("REQTMOUT", line) is lost


def test_other_lines_are_no_losses():
    assert not is_loss("TXNERR", CLOSED)


def test_the_output_that_could_not_be_added_to_a_transaction_is_known_until_the_next_one_begins():
    log = ClientLog({})
    reason = 'Failed to add partition "out" [0] to transaction: Broker: Topic authorization failed'
    beside = 'Failed to add partition "a" [0] to transaction: Broker: Operation not attempted'
    tell(log, logging.ERROR, "ADDPARTS", f"[thrd:main]: TxnCoordinator/1: {beside}")
    tell(log, logging.ERROR, "ADDPARTS", f"[thrd:main]: TxnCoordinator/1: {reason}")
    assert log.partition_refusal == reason
    log.begin_transaction()
    assert not log.partition_refusal


def test_a_partition_that_the_coordinator_has_confirmed_is_known_until_the_next_transaction_begins():
    """Lines of librdkafka 2.16.0."""
    log = ClientLog({})
    tell(log, logging.DEBUG, "ADDPARTS", "[thrd:main]: TxnCoordinator/1: Adding partitions to transaction")
    assert not log.has_registered
    tell(log, logging.DEBUG, "ADDPARTS", "[thrd:main]: out [0] registered with transaction")
    assert log.has_registered
    log.begin_transaction()
    assert not log.has_registered


def test_requests_for_the_next_epoch_are_counted_until_it_comes():
    """Lines of librdkafka 2.16.0."""
    log = ClientLog({})
    request = "[thrd:main]: TxnCoordinator/1: Requesting ProducerId bump for PID{Id:0,Epoch:0}"
    for count in (1, 2):
        tell(log, logging.DEBUG, "GETPID", request)
        tell(log, logging.WARNING, "GETPID", "[thrd:main]: Failed to acquire transactional PID from broker: retrying")
        assert log.bump_requests == count
    tell(log, logging.DEBUG, "GETPID", "[thrd:main]: Acquired PID{Id:0,Epoch:1} (previous PID{Id:0,Epoch:0})")
    assert log.bump_requests == 0


ADDING = "Current transaction failed in state InTransaction: Failed to add partition(s) to transaction on broker a/1: "


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (f"{ADDING}Broker: Topic authorization failed (after 0 ms) (TOPIC_AUTHORIZATION_FAILED)", TOPIC_FORBIDDEN),
        (
            "skipped sequence numbers (OUT_OF_ORDER_SEQUENCE_NUMBER, requires epoch bump)",
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
        ),
        ("a line of another format", ""),
    ],
)
def test_the_code_with_which_a_transaction_has_failed_is_known_until_the_next_one_begins(line, code):
    log = ClientLog({})
    tell(log, logging.ERROR, "TXNERR", f"[thrd:main]: {line}")
    assert (log.failed, log.failed_code) == (line, code)
    log.begin_transaction()
    assert not log.failed_code


def test_a_log_counts_as_understood_once_it_has_told_of_a_connection():
    log = ClientLog({})
    tell(log, logging.DEBUG, "STATE", "[thrd:a:9092/1]: a:9092/1: Broker changed state CONNECT -> APIVERSION_QUERY")
    assert log.connections == LostConnections(losses=0, is_understood=False)
    tell(log, logging.DEBUG, "STATE", CONNECTED)
    assert log.connections == LostConnections(losses=0, is_understood=True)
    tell(log, logging.DEBUG, "STATE", DOWN)
    assert log.connections == LostConnections(losses=1, is_understood=True)


@pytest.mark.parametrize(
    ("settings", "level", "passed_on"),
    [
        ({}, logging.INFO, 1),
        ({}, logging.DEBUG, 0),
        ({"log_level": 7}, logging.DEBUG, 1),
        ({"log_level": "3"}, logging.WARNING, 0),
        ({"log_level": 3}, logging.ERROR, 1),
        ({"log_level": 0}, logging.ERROR, 0),
        ({"log_level": 0}, logging.CRITICAL, 1),
        ({"debug": "broker"}, logging.DEBUG, 1),
        ({"debug": "broker", "log_level": 3}, logging.DEBUG, 1),
        ({"log.connection.close": "false"}, logging.INFO, 0),
        ({"log.connection.close": False}, logging.ERROR, 1),
    ],
)
def test_the_application_hears_what_its_own_settings_ask_for(settings, level, passed_on):
    assert heard(level, "FAIL", CLOSED, settings) == (True, passed_on)


PID_RETRIED = "[thrd:main]: Failed to acquire transactional PID from broker TxnCoordinator/1: Broker: {}: retrying"
CONCURRENT = (
    "Producer attempted to update a transaction while another concurrent operation on the same transaction was ongoing"
)


@pytest.mark.parametrize(
    ("reason", "level"),
    [
        ("Coordinator load in progress", logging.DEBUG),
        ("Coordinator not available", logging.DEBUG),
        ("Not coordinator", logging.DEBUG),
        (CONCURRENT, logging.DEBUG),
        ("Coordinator load in progress: retrying, but no more", logging.WARNING),
        ("Unknown server error", logging.WARNING),
    ],
)
def test_only_retries_that_every_start_may_need_are_no_warnings(reason, level, caplog):
    caplog.set_level(logging.DEBUG, "eos_client")
    line = PID_RETRIED.format(reason)
    theirs = Logger()
    for log in (ClientLog({}), ClientLog({"logger": theirs})):
        tell(log, logging.WARNING, "GETPID", line)
    assert caplog.record_tuples == [("eos_client", level, f"GETPID rdkafka#producer-1: {line}")]
    assert [each for each, _ in theirs.lines] == [level]


def test_a_warning_of_the_same_words_about_something_else_stays_one(caplog):
    tell(ClientLog({}), logging.WARNING, "TXNERR", PID_RETRIED.format("Coordinator load in progress"))
    assert [level for _, level, _ in caplog.record_tuples] == [logging.WARNING]


def test_the_log_settings_it_needs_are_added_and_the_others_kept():
    settings = {"log_level": 2, "log.connection.close": False, "linger.ms": 5}
    log = ClientLog(settings)
    added = log.added_to(settings)
    assert added == {"log_level": 2, "log.connection.close": True, "linger.ms": 5, "logger": log, "debug": "eos,broker"}
    for others in ({"log_level": 7}, {"log_level": "loud"}, {"log.connection.close": "perhaps"}, {}):
        log = ClientLog(others)
        assert log.added_to(others) == {**others, "logger": log, "debug": "eos,broker"}
    assert ClientLog({"debug": "cgrp,msg"}).added_to({})["debug"] == "cgrp,msg,eos,broker"


def test_the_first_line_of_outputs_taken_for_written_is_kept_until_the_next_transaction():
    theirs = Logger()
    log = ClientLog({"logger": theirs})
    for line in (IMPLIED, "another"):
        tell(log, logging.DEBUG, "IMPLICITACK", line)
    tell(log, logging.DEBUG, "TXNAPI", "yet another")
    assert (log.implicit_ack, log.losses, theirs.lines) == (IMPLIED, 0, [])
    log.begin_transaction()
    assert log.implicit_ack == ""


def test_a_loss_is_not_forgotten_with_the_transaction():
    log = ClientLog({})
    tell(log, logging.DEBUG, "STATE", DOWN)
    log.begin_transaction()
    assert log.losses == 1


def test_without_a_logger_lines_go_to_the_packages_logger_and_nowhere_else(caplog, capfd):
    log = ClientLog({})
    tell(log, logging.ERROR, "FAIL", REFUSED)
    assert caplog.record_tuples == [("eos_client", logging.ERROR, f"FAIL rdkafka#producer-1: {REFUSED}")]
    assert capfd.readouterr() == ("", "")
