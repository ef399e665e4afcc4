"""What the client library's log says against a commit or a handle, and who gets to see it."""

import logging

import pytest

from eos_client.confluent.client_log import ClientLog

CLOSED = (
    "[thrd:TxnCoordinator]: TxnCoordinator/1: 127.0.0.1:9092/1: Disconnected: Connection reset (after 9ms in state UP)"
)
REFUSED = (
    "[thrd:a:9092/bootstrap]: a:9092/bootstrap: Connect to ipv4#a:9092 failed: refused (after 0ms in state CONNECT)"
)
IMPLIED = "[thrd:a:9092/1]: a:9092/1: out [0] 1 message(s) implicitly acked by subsequent batch success (msgids 1..1)"
TIMED_OUT = "[thrd:a:9092/1]: a:9092/1: Timed out EndTxnRequest in flight (after 60021ms, timeout #0)"


class Logger:
    def __init__(self):
        self.lines = []

    def log(self, level, text, *arguments):
        self.lines.append((level, text % arguments))


def heard(level, facility, line, settings):
    """Whether the line is taken for a lost connection, and how many lines the application's logger got."""
    theirs = Logger()
    log = ClientLog({"logger": theirs, **settings})
    log.log(level, "%s [%s] %s", facility, "rdkafka#producer-1", line)
    return log.lost_connection, len(theirs.lines)


@pytest.mark.parametrize(
    ("facility", "line", "lost"),
    [("FAIL", CLOSED, True), ("REQTMOUT", TIMED_OUT, True), ("FAIL", REFUSED, False), ("TXNERR", CLOSED, False)],
)
def test_only_an_established_connection_can_have_carried_a_request(facility, line, lost):
    assert heard(logging.INFO, facility, line, {}) == (lost, 1)


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


def test_what_is_needed_is_set_and_the_rest_left_alone():
    settings = {"log_level": 2, "log.connection.close": False, "linger.ms": 5}
    log = ClientLog(settings)
    added = log.added_to(settings)
    assert added == {"log_level": 2, "log.connection.close": True, "linger.ms": 5, "logger": log, "debug": "eos"}
    for others in ({"log_level": 7}, {"log_level": "loud"}, {"log.connection.close": "perhaps"}, {}):
        log = ClientLog(others)
        assert log.added_to(others) == {**others, "logger": log, "debug": "eos"}
    assert ClientLog({"debug": "broker,msg"}).added_to({})["debug"] == "broker,msg,eos"


def test_the_first_line_of_outputs_taken_for_written_is_kept_until_the_next_transaction():
    theirs = Logger()
    log = ClientLog({"logger": theirs})
    for line in (IMPLIED, "another"):
        log.log(logging.DEBUG, "%s [%s] %s", "IMPLICITACK", "rdkafka#producer-1", line)
    log.log(logging.DEBUG, "%s [%s] %s", "TXNAPI", "rdkafka#producer-1", "yet another")
    assert (log.implied, log.lost_connection, theirs.lines) == (IMPLIED, False, [])
    log.forget()
    assert log.implied == ""


def test_without_a_logger_lines_go_where_the_client_library_puts_them(capsys):
    log = ClientLog({})
    log.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#producer-1", REFUSED)
    written = capsys.readouterr().err
    assert written.startswith("%3|")
    assert written.endswith(f"|FAIL|rdkafka#producer-1| {REFUSED}\n")
