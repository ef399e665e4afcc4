"""The driver's lease: the newest driver wins, an older one ends for good, and nobody takes it back."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.ledger.lease_member import LeaseMember
from eos_client.confluent.ledger.ledger_topic import LedgerTopic
from eos_client.core.batch_ledger import LedgerEntry, SinkIdentity
from eos_client.core.commit_gate import CommitGate, GateLost, RuleName
from eos_client.errors import ClusterUnavailableError, RunFencedError
from eos_client.integration.spark import lease as lease_module
from eos_client.integration.spark.lease import Lease
from eos_client.integration.spark.settings import SinkSettings
from tests.support.interception import Intercepted
from tests.support.manual_clock import ManualClock
from tests.support.stderr_file import stderr_in
from tests.support.waiting import wait_for

MARKER = {0: LedgerEntry(1, SinkIdentity("q", 2, 1, "out"), run=1)}
SESSION_S = 45.0  # a process that stands still for so long has lost its lease: longer than any test takes
SHORT_SESSION_S = 6.0  # for tests in which a session has to pass; no broker grants less
ROOT = Path(__file__).parents[2]


@pytest.fixture
def session_s():
    return SESSION_S


@pytest.fixture
def settings(kafka_broker, session_s):
    servers = kafka_broker.bootstrap_servers
    sink_id = f"lease-{os.urandom(4).hex()}"
    config = {"session.timeout.ms": int(session_s * 1000), "heartbeat.interval.ms": 500}
    with ClusterAdmin(servers, timeout_s=60) as admin:
        LedgerTopic(admin, f"{sink_id}-ledger").ensure(2)
    return SinkSettings(servers, "out", sink_id, 2, f"{sink_id}-ledger", config)


@pytest.fixture
def make_lease(settings):
    made = []

    def make(**options):
        lease = Lease(settings, **options)
        made.append(lease)
        lease.acquire()
        return lease

    yield make
    for lease in made:
        lease.release()


def test_the_lease_names_a_fenced_membership(make_lease):
    snapshot = make_lease().require_membership()
    assert snapshot.generation.is_active_member
    assert isinstance(snapshot.group_metadata, bytes)


def test_the_newest_driver_wins_and_the_older_one_never_comes_back(make_lease):
    older = make_lease()
    older.commit(MARKER)
    began_at = time.monotonic()
    newer = make_lease()
    newer.require_membership()
    assert time.monotonic() - began_at < SESSION_S - 5
    with pytest.raises(RunFencedError):
        older.commit(MARKER)
    assert older.has_ended()
    assert older.is_superseded
    for _ in range(3):
        with pytest.raises(RunFencedError, match="let this query end"):
            older.require_membership()
    newer.commit(MARKER)
    time.sleep(1.0)
    newer.require_membership()
    newer.commit(MARKER)


def test_a_fenced_driver_learns_it_from_its_heartbeat_too(make_lease):
    older = make_lease()
    make_lease()
    assert wait_for(lambda: older.ended, "the end of the older lease", timeout_s=30.0)


@pytest.mark.parametrize("session_s", [SHORT_SESSION_S])
def test_the_lease_survives_a_batch_that_takes_longer_than_the_session(make_lease, session_s):
    lease = make_lease()
    time.sleep(session_s + 1.0)
    lease.require_membership()
    lease.commit(MARKER)


def test_a_driver_that_stood_still_for_longer_than_its_session_ends_before_any_callback(make_lease):
    clock = ManualClock()
    lease = make_lease(clock=clock)

    def stand_still():  # more than once: the lease's thread may be about to ask what time it is after acquire()
        clock.now_s += SESSION_S + 1
        time.sleep(0.3)

    assert "was stopped for longer" in wait_for(
        lambda: lease.ended, "the end of the lease", stand_still, timeout_s=20.0
    )
    with pytest.raises(RunFencedError):
        lease.require_membership()


def test_a_released_lease_is_over(make_lease):
    lease = make_lease()
    lease.release()
    with pytest.raises(RunFencedError, match="was released"):
        lease.require_membership()


@pytest.mark.parametrize(
    "ask", [Lease.require_membership, lambda lease: lease.commit(MARKER)], ids=["membership", "commit"]
)
def test_a_closed_gate_ends_the_lease(make_lease, ask):
    lease = make_lease()
    assigned = lease.gate.state.assigned
    assert len(assigned) == 3
    lease.gate.tell(GateLost(assigned, uncommitted=assigned))
    with pytest.raises(RunFencedError, match=r"commit gate is closed \(rule lost_work\)"):
        ask(lease)


def test_a_membership_that_has_moved_on_ends_the_lease(make_lease):
    lease = make_lease()
    ours = lease.generation
    lease.generation = replace(ours, generation_id=ours.generation_id + 1)
    with pytest.raises(RunFencedError, match=r"\(rule membership_moved_on\): the membership moved on from generation"):
        lease.require_membership()
    assert lease.gate.counters.by_rule[RuleName.MEMBERSHIP_MOVED_ON] == 1


FROZEN_DRIVER = """
import sys, time
from eos_client.core.commit_gate import GateLost
from eos_client.core.batch_ledger import LedgerEntry, SinkIdentity
from eos_client.errors import ClusterUnavailableError, RunFencedError
from eos_client.integration.spark import lease as lease_module
from eos_client.integration.spark.lease import Lease
from eos_client.integration.spark.settings import SinkSettings

servers, sink_id, session_ms = sys.argv[1:]
config = {"session.timeout.ms": int(session_ms), "heartbeat.interval.ms": 500}
lease = Lease(SinkSettings(servers, "out", sink_id, 2, f"{sink_id}-ledger", config))
lease.acquire()
print("held", flush=True)
sys.stdin.readline()
time.sleep(1.5)
try:
    lease.commit({0: LedgerEntry(1, SinkIdentity("q", 2, 1, "out"), run=1)})
    print("committed", flush=True)
except RunFencedError as error:
    print("fenced", error, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("drivers_session_s", "frozen_s"), [(SESSION_S, 1.0), (SHORT_SESSION_S, SHORT_SESSION_S + 2.0)]
)
def test_a_thawed_driver_does_not_take_the_lease_back(settings, make_lease, drivers_session_s, frozen_s):
    driver: Any = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(FROZEN_DRIVER),
            settings.bootstrap_servers,
            settings.sink_id,
            str(int(drivers_session_s * 1000)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert driver.stdout.readline() == "held\n"
        driver.send_signal(signal.SIGSTOP)
        successor = make_lease()
        time.sleep(frozen_s)
        driver.send_signal(signal.SIGCONT)
        driver.stdin.write("go\n")
        driver.stdin.flush()
        assert driver.stdout.readline().startswith("fenced")
        successor.require_membership()
        successor.commit(MARKER)
        time.sleep(1.0)
        successor.commit(MARKER)
    finally:
        driver.kill()
        driver.wait()
        driver.stdin.close()
        driver.stdout.close()


class RefusingConsumer:
    """The client library of a member whose commits are refused; it has nothing else to say."""

    def __init__(self, code):
        self.code = code
        self.commits = 0

    def commit(self, **_):
        self.commits += 1
        raise KafkaException(KafkaError(self.code, "refused"))

    def poll(self, _):
        return None


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._FATAL,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.GROUP_ID_NOT_FOUND,
    ],
)
def test_a_refused_marker_ends_the_lease_at_once_whatever_the_refusal_is_called(settings, code):
    member = LeaseMember(settings.kafka, settings.group_id, settings.sink_id, settings.ledger_topic, CommitGate())
    member.close()
    raw: Any = RefusingConsumer(code)
    member._raw = raw
    with pytest.raises(RunFencedError, match="newer driver"):
        member.commit(MARKER, 60.0)
    assert raw.commits == 1
    assert member.ended is not None


def test_an_assignment_that_came_too_late_is_told_before_the_librarys_close(settings, monkeypatch, tmp_path):
    monkeypatch.setattr("eos_client.confluent.ledger.lease_member._JOIN_SLICE_S", 0.0)
    gate, held = CommitGate(), []
    with_log = {**settings.kafka, "debug": "cgrp"}
    with stderr_in(tmp_path / "stderr") as said:
        member = LeaseMember(with_log, settings.group_id, settings.sink_id, settings.ledger_topic, gate)
        with pytest.raises(ClusterUnavailableError, match="not granted within 0 s"):
            member.join(0)
        # A client that can be asked nothing without telling it writes into its log that it has an assignment.
        wait_for(lambda: re.search("delegating assign of [1-9]", said()), "an assignment that is due")

    def close(client):
        held.append(len(gate.state.assigned))
        client.close()

    raw: Any = Intercepted(member._raw, {"close": close})
    member._raw = raw
    member.close()
    assert held == [3]


def test_a_commit_that_got_no_answer_is_repeated_and_then_called_unavailable(settings):
    clock, gate = ManualClock(), CommitGate()
    member = LeaseMember(settings.kafka, settings.group_id, settings.sink_id, settings.ledger_topic, gate, clock=clock)
    member.close()
    raw: Any = RefusingConsumer(KafkaError.COORDINATOR_NOT_AVAILABLE)
    member._raw = raw
    with pytest.raises(ClusterUnavailableError, match=r"within 60 s: COORDINATOR_NOT_AVAILABLE"):
        member.commit(MARKER, 60.0)
    assert raw.commits > 100
    assert 60.0 <= clock.now_s < 61.0
    assert member.ended is None


def test_a_lease_whose_member_cannot_be_built_is_over_and_says_why(monkeypatch):
    def refuse(*_, **__):
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "no such CA file"))

    monkeypatch.setattr(lease_module, "LeaseMember", refuse)
    lease = Lease(SinkSettings("127.0.0.1:1", "out", "sink", 2, "sink-ledger"))
    with pytest.raises(KafkaException, match="no such CA file"):
        lease.acquire()
    with pytest.raises(RunFencedError, match="no such CA file"):
        lease.require_membership()
