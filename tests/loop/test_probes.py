"""The probes' endpoint: which status on which path, and the health as JSON."""

import http.client
import json
import socket
import struct
import threading

import pytest

from eos_client.core.loop_health import LoopHealth
from eos_client.errors import ConfigurationError
from eos_client.integration.probes import ProbeServer
from tests.support.waiting import wait_for

READY = LoopHealth(ready=True, live=True)
LIVE = LoopHealth(ready=False, live=True, reasons=("run() has not been called yet.",))
DEAD = LoopHealth(ready=False, live=False, reasons=("not polled.",))


def ask(server, path, method="GET"):
    connection = http.client.HTTPConnection(server.address[0], server.address[1], timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, json.loads(body) if answer.getheader("Content-Type") == "application/json" else body


@pytest.mark.parametrize(("health", "live", "ready"), [(READY, 200, 200), (LIVE, 200, 503), (DEAD, 503, 503)])
def test_a_probe_is_answered_with_a_status_and_with_the_whole_health(health, live, ready):
    told = {"ready": health.ready, "live": health.live, "reasons": list(health.reasons)}
    with ProbeServer(lambda: health, 0, "127.0.0.1") as server:
        assert ask(server, "/livez") == (live, told)
        assert ask(server, "/readyz") == (ready, told)
        assert ask(server, "/readyz?verbose") == (ready, told)


def test_the_health_is_asked_for_each_time():
    found = [LIVE, READY]
    with ProbeServer(lambda: found.pop(0), 0, "127.0.0.1") as server:
        assert [ask(server, "/readyz")[0] for _ in range(2)] == [503, 200]


def test_another_path_is_told_which_there_are():
    with ProbeServer(lambda: READY, 0, "127.0.0.1") as server:
        assert ask(server, "/") == (404, {"paths": ["/livez", "/readyz"]})


def test_a_client_that_says_nothing_keeps_no_other_one_waiting():
    with ProbeServer(lambda: READY, 0, "127.0.0.1") as server, socket.create_connection(server.address):
        assert ask(server, "/livez")[0] == 200


def reset(connection):
    """Close ``connection`` as a probe does that has given up: the other side gets RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def is_answering():
    return any("process_request_thread" in thread.name for thread in threading.enumerate())


def test_a_probe_that_gives_up_before_the_answer_leaves_no_trace_on_stderr(capsys):
    asked, may_answer = threading.Event(), threading.Event()

    def health():
        asked.set()
        may_answer.wait(60)
        return READY

    with ProbeServer(health, 0, "127.0.0.1") as server:
        connection = socket.create_connection(server.address)
        connection.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert asked.wait(60)
        reset(connection)
        may_answer.set()
        wait_for(lambda: not is_answering(), "the end of the answer")
        assert ask(server, "/livez")[0] == 200
    assert capsys.readouterr().err == ""


def test_an_error_of_the_health_itself_is_shown(capsys):
    def health():
        raise ZeroDivisionError

    with ProbeServer(health, 0, "127.0.0.1") as server, pytest.raises(http.client.RemoteDisconnected):
        ask(server, "/livez")
    wait_for(lambda: not is_answering(), "the end of the answer")
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_it_listens_on_any_address_of_the_machine_unless_a_host_is_given():
    with ProbeServer(lambda: READY, 0) as server:
        assert server.address[0] == "0.0.0.0"


def test_nothing_answers_any_more_once_it_is_left():
    with ProbeServer(lambda: READY, 0, "127.0.0.1") as server:
        address = server.address
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=10)


def test_a_port_that_is_taken_is_named_with_the_way_out():
    with ProbeServer(lambda: READY, 0, "127.0.0.1") as server:
        port = server.address[1]
        with pytest.raises(ConfigurationError, match=rf"host '127\.0\.0\.1', port {port}: .*Choose another port"):
            ProbeServer(lambda: READY, port, "127.0.0.1")


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 0), ("127.0.0.1", 70_000)])
def test_an_address_that_cannot_be_listened_on_is_named(host, port):
    with pytest.raises(ConfigurationError, match=f"host '{host}', port {port}"):
        ProbeServer(lambda: READY, port, host)


def test_a_server_that_is_entered_twice_says_that_it_serves_once():
    server = ProbeServer(lambda: READY, 0, "127.0.0.1")
    with server:
        with pytest.raises(ConfigurationError, match="entered before"), server:
            pass
        assert ask(server, "/livez")[0] == 200
    with pytest.raises(ConfigurationError, match="entered before"), server:
        pass
