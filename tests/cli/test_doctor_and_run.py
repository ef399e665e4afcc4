"""One table of set-ups: what the doctor says of each, and what a run then does, agree.

A run that cannot write says so, with the name and the remedy, before a minute of aborts is over.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from eos_client import EosConfig, ExactlyOnceLoop, OutputRecord
from eos_client.cli.doctor import DoctorOptions, diagnose
from eos_client.cli.doctor_checks import Level
from eos_client.errors import EosError
from eos_client.observe import TransactionCommitted
from tests.support.secured_broker import USER, Op, Permission, SecuredBroker, on_cluster, on_group, on_id, on_topic
from tests.verification.topics import await_topics

SAYS_WITHIN_S = 10.0
ENDS_WITHIN_S = 120.0
ANSWER_S = 60.0
READ, WRITE = [Op.READ], [Op.WRITE]
KIP_848 = {"group.protocol": "consumer"}
ID = "eos-table"


@dataclass(frozen=True, kw_only=True)
class SetUp:
    """A cluster and a configuration. ``says``: what the error of a run names, which cannot work.

    ``topic``: the settings of the output topic, which does not exist where that is None; ``sink``: a name of its own.
    ``names_topic``: each output names it, so that the loop does not know it at its start.
    ``login``: how the user logs in to the secured broker; the lists say what they may do there.
    """

    says: str = ""
    topic: Mapping[str, str] | None = field(default_factory=dict)
    sink: str = ""
    source: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    has_key: bool = False
    names_topic: bool = False
    login: str | None = None
    user: str = ""
    on_input: list[Any] = field(default_factory=lambda: READ)
    on_output: list[Any] = field(default_factory=lambda: WRITE)
    on_group: list[Any] = field(default_factory=lambda: READ)
    on_id: list[Any] = field(default_factory=lambda: WRITE)
    on_cluster: list[Any] = field(default_factory=list)


def user(**changes: Any) -> SetUp:
    """A user who has what a job needs, but for ``changes``."""
    return SetUp(login="OAUTHBEARER", **changes)


def of_client(says: str = "", /, **changes: str) -> SetUp:
    return SetUp(says=says, settings={key.replace("_", "."): value for key, value in changes.items()})


def of_topic(says: str = "", /, **changes: str) -> SetUp:
    return SetUp(says=says, topic={key.replace("_", "."): value for key, value in changes.items()})


DENIED = r"{sink}.*[Aa]uthorization.*Repair the permissions or the name"
MARKER = r"'{sink}' is unfit: max.message.bytes={limit} .* Raise it on the topic"

TABLE: dict[str, SetUp] = {
    # -- the output topic
    "a plain topic": SetUp(),
    "more in-sync replicas than there are": of_topic(min_insync_replicas="2"),
    "no room for a marker": of_topic(MARKER.replace("{limit}", "10"), max_message_bytes="10"),
    "a byte too little for a marker": of_topic(MARKER.replace("{limit}", "77"), max_message_bytes="77"),
    "room for small records": of_topic(max_message_bytes="200"),
    "unclean elections of a single replica": of_topic(unclean_leader_election_enable="true"),
    "times of the broker": of_topic(message_timestamp_type="LogAppendTime"),
    "compressed by the broker": of_topic(compression_type="zstd"),
    "kept for a moment": of_topic(retention_ms="1000"),
    "compacted, with keys": SetUp(topic={"cleanup.policy": "compact"}, has_key=True),
    "the group offsets": SetUp(says="'{sink}' cannot be written: .*Name another topic", sink="__consumer_offsets"),
    "the transaction log": SetUp(says="'{sink}' cannot be written: .*Name another topic", sink="__transaction_state"),
    "the share groups": SetUp(says="'{sink}' cannot be written: .*Name another topic", sink="__share_group_state"),
    "no name of a topic": SetUp(says="'{sink}' cannot be written: .*Name another topic", sink="all invoices"),
    "a name too long": SetUp(says="'{sink}' cannot be written: .*Name another topic", sink="x" * 250),
    "created by the broker": SetUp(topic=None),
    "the input itself": SetUp(sink="{source}"),
    # -- the input
    "no such input": SetUp(says="'no-such-input' does not exist", source="no-such-input"),
    # -- settings of the client
    "a session that is too long": of_client(
        "INVALID_SESSION_TIMEOUT.*Set a session.timeout.ms",
        session_timeout_ms="3000000",
        max_poll_interval_ms="3000000",
    ),
    "a session that is too short": of_client(
        "INVALID_SESSION_TIMEOUT.*Set a session.timeout.ms", session_timeout_ms="9"
    ),
    "a session longer than between polls": of_client("max.poll.interval.ms", session_timeout_ms="3000000"),
    "the shortest session": of_client(session_timeout_ms="1000", heartbeat_interval_ms="300"),
    "KIP-848": of_client(group_protocol="consumer"),
    "KIP-848 with a session": of_client("session.timeout.ms", group_protocol="consumer", session_timeout_ms="45000"),
    "KIP-848 with an assignor": of_client(group_protocol="consumer", group_remote_assignor="range"),
    "KIP-848 with an unknown assignor": of_client(
        "group.remote.assignor", group_protocol="consumer", group_remote_assignor="nosuch"
    ),
    "cooperative": of_client(partition_assignment_strategy="cooperative-sticky"),
    "an unknown assignor": of_client("partition.assignment.strategy", partition_assignment_strategy="nosuch"),
    "a static member": of_client(group_instance_id="desk-{unique}"),
    "no start without an offset": of_client("auto.offset.reset=error", auto_offset_reset="error"),
    "the longest transaction": of_client(transaction_timeout_ms="900000"),
    "a transaction that is too long": of_client("transaction.max.timeout.ms", transaction_timeout_ms="900001"),
    "a transaction that is too short": of_client("transaction.timeout.ms", transaction_timeout_ms="200"),
    "commits by itself": of_client("enable.auto.commit", enable_auto_commit="true"),
    "reads what is uncommitted": of_client("isolation.level", isolation_level="read_uncommitted"),
    "not idempotent": of_client("enable.idempotence", enable_idempotence="false"),
    "one acknowledgement": of_client("acks", acks="1"),
    "all acknowledgements": of_client(acks="all"),
    "an unknown setting": of_client("no.such.setting", no_such_setting="1"),
    "a number that is none": of_client("linger.ms", linger_ms="soon"),
    "compressed": of_client(compression_type="lz4"),
    "small messages": of_client(message_max_bytes="1000"),
    "a pinned id": SetUp(options={"transactional_id": ID}),
    # -- credentials
    "a password": SetUp(login="PLAIN", user=USER),
    "a wrong password": SetUp(
        says="Invalid username or password.*Correct the user name",
        login="PLAIN",
        user=USER,
        settings={"sasl.password": "wr0ng-passw0rd"},
    ),
    "an unknown user": SetUp(says="invalid credentials.*Correct the user name", login="SCRAM-SHA-512"),
    "a mechanism that the brokers lack": SetUp(says="Unsupported SASL mechanism", login="SCRAM-SHA-256"),
    # -- permissions
    "everything that is needed": user(),
    "everything, under KIP-848": user(settings=KIP_848),
    "everything, with a pinned id": user(options={"transactional_id": ID}),
    "the output may not be seen": user(
        says="'{sink}' does not exist on this cluster, or may not be seen", on_output=[]
    ),
    "the output may only be seen": user(says=DENIED, on_output=[Op.DESCRIBE]),
    "the output may only be read": user(says=DENIED, on_output=[Op.READ]),
    "the input may not be seen": user(says="'{source}' does not exist .* or may not be seen", on_input=[]),
    "the input may only be seen": user(says="Allow this client to read topic '{source}'", on_input=[Op.DESCRIBE]),
    "the group may not be seen": user(says="Allow this client to read group '{group}'", on_group=[]),
    "the group may only be seen": user(says="Allow this client to read group '{group}'", on_group=[Op.DESCRIBE]),
    "the id may not be used": user(says="transactional.id 'eos-.*Repair the permissions", on_id=[]),
    "the id may only be seen": user(says="transactional.id 'eos-.*Repair the permissions", on_id=[Op.DESCRIBE]),
    "a pinned id that may not be used": user(
        says=f"transactional.id '{ID}.*Repair the permissions",
        on_id=[],
        on_cluster=[Op.DESCRIBE_CONFIGS],  # else the doctor says that it cannot know
        options={"transactional_id": ID},
    ),
    "an output that may not be written, named by each": user(says=DENIED, on_output=[Op.DESCRIBE], names_topic=True),
    "the same, where failed records are skipped": user(
        says=DENIED, on_output=[Op.DESCRIBE], names_topic=True, options={"on_error": "skip"}
    ),
    "an output that does not exist, named by each": user(says="{sink}.*Create it", topic=None, names_topic=True),
    "an output that nobody creates": user(says="'{sink}' does not exist", topic=None),
    "an output whose settings are hidden": user(topic={"min.insync.replicas": "2"}),
    "settings that may be read": user(on_output=[Op.WRITE, Op.DESCRIBE_CONFIGS], topic={"max.message.bytes": "200"}),
    "no room for a marker, which the user may see": user(
        says=MARKER.replace("{limit}", "20"),
        on_output=[Op.WRITE, Op.DESCRIBE_CONFIGS],
        topic={"max.message.bytes": "20"},
    ),
}


# Each kind of finding once; a soak run has the table whole.
IN_EACH_RUN = frozenset(
    {
        "a plain topic",
        "more in-sync replicas than there are",
        "a byte too little for a marker",
        "room for small records",
        "compacted, with keys",
        "the group offsets",
        "created by the broker",
        "no such input",
        "a session that is too long",
        "KIP-848",
        "KIP-848 with an unknown assignor",
        "a static member",
        "no start without an offset",
        "a transaction that is too long",
        "small messages",
        "a wrong password",
        "an unknown user",
        "a mechanism that the brokers lack",
        "everything, under KIP-848",
        "the output may not be seen",
        "the output may only be seen",
        "the input may only be seen",
        "the group may not be seen",
        "the id may not be used",
        "a pinned id that may not be used",
        "an output that may not be written, named by each",
        "an output that nobody creates",
        "no room for a marker, which the user may see",
    }
)


class Rig:
    """The topics and the group of one set-up on a broker, with some input."""

    def __init__(self, made: SetUp, kafka_broker: Any, secured: SecuredBroker) -> None:
        self.made, unique = made, uuid4().hex[:8]
        self.broker = kafka_broker.bootstrap_servers if made.login is None else secured.plain
        self._admin = AdminClient({"bootstrap.servers": self.broker})
        existing = f"in-{unique}"
        self._create(existing, {})
        self.source = made.source or existing
        self.sink = (made.sink or f"out-{unique}").format(source=self.source)
        if made.topic is not None and not made.sink:
            self._create(self.sink, made.topic)
        self.group = f"group-{unique}"
        self.names = {"source": self.source, "sink": self.sink, "group": self.group}
        self.settings = {key: value.format(unique=unique) for key, value in made.settings.items()}
        self.bootstrap = self.broker
        if made.login is not None:
            user = made.user or unique
            self.settings = secured.login(made.login, user) | self.settings
            self.bootstrap = self.settings.pop("bootstrap.servers")
            secured.grant(user, *self._permissions())
        loader = Producer({"bootstrap.servers": self.broker})
        for number in range(5):
            loader.produce(existing, b"%d" % number, key=b"k")
        assert loader.flush(ANSWER_S) == 0

    def _permissions(self) -> list[Permission]:
        made = self.made
        return [
            *on_topic(self.source, *made.on_input),
            *on_topic(self.sink, *made.on_output),
            *on_group(self.group, *made.on_group),
            *on_id("eos-", *made.on_id, is_prefix=True),
            *on_cluster(*made.on_cluster),
        ]

    def _create(self, topic: str, config: Mapping[str, str]) -> None:
        self._admin.create_topics([NewTopic(topic, 1, 1, config=dict(config))])[topic].result(ANSWER_S)
        await_topics(self._admin, {topic: 1})

    def diagnosed(self) -> list[str]:
        """What the doctor finds unfit."""
        options = DoctorOptions(
            bootstrap_servers=self.bootstrap,
            settings=self.settings,
            group_id=self.group,
            input_topics=[self.source],
            output_topics=[self.sink],
            transactional_id=self.made.options.get("transactional_id"),
        )
        try:
            return [str(finding) for finding in diagnose(options) if finding.level is Level.FAIL]
        except EosError as error:
            return [str(error)]

    def ran(self) -> tuple[EosError | None, float]:
        """What a run ended with, None for the first commit, and after how many seconds."""

        def hear(event: Any) -> None:
            if isinstance(event, TransactionCommitted) and event.records_in:
                loop.stop()

        def transform(record: Any) -> list[OutputRecord]:
            topic, key = self.sink if self.made.names_topic else None, record.key() if self.made.has_key else None
            return [OutputRecord(topic, value=record.value(), key=key)]

        began_at = time.monotonic()
        kafka = {"log_level": "0", **self.settings, "bootstrap.servers": self.bootstrap}
        try:
            config = EosConfig(kafka, group_id=self.group, **self.made.options)
            output_topic = None if self.made.names_topic else self.sink
            loop = ExactlyOnceLoop(config, [self.source], transform, output_topic=output_topic, hook=hear)
            overdue = threading.Timer(ENDS_WITHIN_S, loop.stop)
            overdue.start()
            try:
                loop.run()
            finally:
                overdue.cancel()
        except EosError as error:
            return error, time.monotonic() - began_at
        assert loop.counters.committed, "stopped because nothing was committed"
        return None, time.monotonic() - began_at


@pytest.mark.kafka
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in IN_EACH_RUN else pytest.mark.soak) for name in TABLE]
)
def test_the_doctor_says_of_a_set_up_what_a_run_does(
    name: str, kafka_broker: Any, secured_broker: SecuredBroker
) -> None:
    rig = Rig(TABLE[name], kafka_broker, secured_broker)
    unfit = rig.diagnosed()
    error, took_s = rig.ran()
    assert bool(unfit) == bool(TABLE[name].says), (unfit, error)
    assert bool(error) == bool(TABLE[name].says), (unfit, error)
    if error is not None:
        wanted = TABLE[name].says
        for key, value in rig.names.items():
            wanted = wanted.replace(f"{{{key}}}", re.escape(value))
        assert re.search(wanted, str(error)), str(error)
        assert took_s < SAYS_WITHIN_S
