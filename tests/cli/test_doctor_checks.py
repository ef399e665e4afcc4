from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from eos_client.cli import doctor
from eos_client.cli.doctor_checks import Facts, Level, TopicFacts, examine
from eos_client.cli.transactions import Survey
from eos_client.confluent.admin.cluster_admin import ClusterDescription, GroupDescription
from eos_client.core.hanging_transactions import KnownTransaction, OpenTransaction, TransactionStatus
from eos_client.core.model import TopicDescription
from eos_client.errors import ClusterUnfitError

ORDERS = TopicDescription("orders", 6, 3, 3, ())
FIT = Facts(
    cluster=ClusterDescription("id", {1: "a:9092", 2: "b:9092", 3: "c:9092"}),
    broker={
        "group.consumer.assignment.interval.ms": "0",
        "group.streams.initial.rebalance.delay.ms": "3000",
        "group.streams.session.timeout.ms": "45000",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "offsets.topic.replication.factor": "3",
        "min.insync.replicas": "2",
        "transaction.max.timeout.ms": "900000",
        "transactional.id.expiration.ms": "604800000",
        "offsets.retention.minutes": "10080",
        "authorizer.class.name": "",
    },
    config={"group.protocol": "consumer", "transaction.timeout.ms": "10000"},
    topics=(
        TopicFacts(
            "orders",
            ORDERS,
            {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"},
        ),
    ),
    internal_topics={
        "__transaction_state": TopicDescription("__transaction_state", 50, 3, 3, ()),
        "__consumer_offsets": TopicDescription("__consumer_offsets", 50, 3, 3, ()),
    },
    group_id="billing",
    group=GroupDescription("stable", "consumer", 2),
    longest_pause_s=72 * 3600,
    survey=Survey((), (), {}, 0),
)


def broker(**changes: Any) -> Any:
    settings = {**FIT.broker, **{key.replace("_", "."): value for key, value in changes.items()}}
    return {key: value for key, value in settings.items() if value is not None}


def topic(**changes: Any) -> Any:
    settings = dict(FIT.topics[0].settings)
    for key in [key for key in changes if "." in key]:
        settings[key] = changes.pop(key)
    return (TopicFacts("orders", replace(ORDERS, **changes), settings),)


AUTHORIZED = replace(
    FIT,
    broker=broker(authorizer_class_name="StandardAuthorizer"),
    topics=(replace(FIT.topics[0], needs=frozenset({"READ", "WRITE"}), operations=frozenset({"READ", "WRITE"})),),
    group_operations=frozenset({"READ", "DESCRIBE"}),
    transactional_id="billing-0",
    may_use_id=True,
)


WRITTEN = frozenset({"WRITE"})


def output(**changes: str) -> Any:
    (described,) = topic(**{key.replace("_", "."): value for key, value in changes.items()})
    return (replace(described, needs=WRITTEN),)


def classic(**changes: str) -> Any:
    config = {"group.protocol": "classic", **{key.replace("_", "."): value for key, value in changes.items()}}
    bounds = {"group.min.session.timeout.ms": "6000", "group.max.session.timeout.ms": "1800000"}
    return replace(FIT, config=config, broker={**FIT.broker, **bounds})


def assignor(ours: str, *, brokers: str = "uniform,range") -> Any:
    config = {**FIT.config, "group.remote.assignor": ours}
    return replace(FIT, config=config, broker=broker(group_consumer_assignors=brokers))


def permitted(*operations: str) -> Any:
    return replace(AUTHORIZED, topics=(replace(AUTHORIZED.topics[0], operations=frozenset(operations)),))


UNSEEN = TopicFacts("orders", None, {}, operations=frozenset())
LATE = OpenTransaction("orders", 1, 4001, 0, 2, 17, last_timestamp_ms=0)


def found(status: TransactionStatus) -> Any:
    return replace(FIT, survey=Survey((), ((LATE, status),), {}, 7_200_000))


def worst(facts: Any, subject: Any) -> Any:
    """The level and text of the worst finding about ``subject``, which must come with a way out unless it is ok."""
    findings = [finding for finding in examine(facts) if finding.subject == subject]
    assert all(bool(finding.way_out) == (finding.level is not Level.OK) for finding in findings)
    order = [Level.OK, Level.WARN, Level.FAIL]
    found = max(findings, key=lambda finding: order.index(finding.level))
    return found.level, found.text + " " + found.way_out


def test_a_fit_cluster_has_only_good_findings() -> None:
    assert {finding.level for finding in examine(FIT)} == {Level.OK}
    assert {finding.level for finding in examine(AUTHORIZED)} == {Level.OK}
    assert len(examine(AUTHORIZED)) == len(examine(FIT)) + 2  # for each resource instead of one


def test_where_no_answer_says_whether_an_id_may_be_used_its_reason_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = mock.Mock(side_effect=ClusterUnfitError("no answer"))
    monkeypatch.setattr(doctor, "may_use_transactional_id", asked)
    options = doctor.DoctorOptions(bootstrap_servers="nowhere:1", output_topics=["invoices"])
    facts = doctor._with_permission_of_id(replace(AUTHORIZED, may_use_id=None), options)
    assert (facts.may_use_id, facts.id_unknown) == (None, "no answer")


def test_open_transactions_that_end_by_themselves_are_counted_with_the_age_of_the_oldest() -> None:
    known = [
        KnownTransaction(str(n), 1, n, "Ongoing", 0, 60_000, started_ms) for n, started_ms in ((1, 5000), (2, 9000))
    ]
    own = replace(LATE, producer_id=1)
    facts = replace(FIT, survey=Survey(tuple(known), ((own, TransactionStatus.ONGOING),), {}, 65_000))
    assert worst(facts, "hanging transactions") == (Level.OK, "none; 2 open, the oldest for 60 s ")


NO_INTERNAL_TOPICS = {"__transaction_state": None, "__consumer_offsets": None}
ONE_BROKER = ClusterDescription("id", {1: "a:9092"})
TWO_BROKERS = ClusterDescription("id", {1: "a:9092", 2: "b:9092"})
NO_4_3 = broker(group_consumer_assignment_interval_ms=None)
NO_4_1 = {key: value for key, value in FIT.broker.items() if not key.startswith("group.")}

CASES = {
    "one broker": (replace(FIT, cluster=ONE_BROKER), "brokers", Level.WARN, "use 3 brokers"),
    "classic protocol on 4.3": (replace(FIT, config={}), "group.protocol", Level.WARN, "set group.protocol=consumer"),
    "brokers of 4.2": (replace(FIT, broker=NO_4_3), "broker version", Level.WARN, "at least 4.2, below 4.3"),
    "brokers before 4.1": (replace(FIT, broker=NO_4_1), "broker version", Level.WARN, "older than 4.1"),
    "transaction log wants more brokers than there are": (
        replace(FIT, cluster=ONE_BROKER, internal_topics=NO_INTERNAL_TOPICS),
        "__transaction_state",
        Level.FAIL,
        "init_transactions ends in a time-out set transaction.state.log.replication.factor=1",
    ),
    "offsets topic wants more brokers than there are": (
        replace(FIT, cluster=ONE_BROKER, internal_topics=NO_INTERNAL_TOPICS),
        "__consumer_offsets",
        Level.FAIL,
        "set offsets.topic.replication.factor=1",
    ),
    "logs that may not be seen while a broker is down": (
        replace(FIT, cluster=TWO_BROKERS, internal_topics={}),
        "__transaction_state",
        Level.WARN,
        "whether it exists is not known allow Describe on it",
    ),
    "transaction log lost its replicas": (
        replace(FIT, internal_topics={"__transaction_state": TopicDescription("t", 50, 3, 1, ())}),
        "__transaction_state",
        Level.FAIL,
        "takes no writes",
    ),
    "min.isr above the replication factor": (
        replace(FIT, broker=broker(transaction_state_log_min_isr="4"), internal_topics=NO_INTERNAL_TOPICS),
        "__transaction_state",
        Level.OK,
        "replication factor 3, min in-sync replicas 4",
    ),
    "transaction log on one disk": (
        replace(
            FIT,
            broker=broker(transaction_state_log_min_isr="1"),
            internal_topics={"__transaction_state": TopicDescription("t", 50, 1, 1, ())},
        ),
        "__transaction_state",
        Level.WARN,
        "replication factor 1",
    ),
    "settings of the broker are hidden": (
        replace(FIT, broker={}),
        "__transaction_state",
        Level.WARN,
        "allow DescribeConfigs",
    ),
    "settings of the topic are hidden": (
        replace(FIT, topics=(TopicFacts("orders", ORDERS, {}),)),
        "topic orders",
        Level.WARN,
        "allow DescribeConfigs on the topic",
    ),
    "transaction timeout above the broker's limit": (
        replace(FIT, config={"transaction.timeout.ms": "900001"}),
        "transaction.timeout.ms",
        Level.FAIL,
        "init_transactions is refused",
    ),
    "transaction timeout above Kafka's own limit, where the brokers' cannot be read": (
        replace(FIT, broker={}, config={"transaction.timeout.ms": "900001"}),
        "transaction.timeout.ms",
        Level.WARN,
        "cannot be read",
    ),
    "pattern": (replace(FIT, patterns=("^orders-.*",)), "topic ^orders-.*", Level.WARN, "found out by a job"),
    "missing topic": (replace(FIT, topics=(TopicFacts("orders", None, {}),)), "topic orders", Level.FAIL, "not exist"),
    "misspelt topic": (
        replace(FIT, topics=(TopicFacts("orderz", None, {}, meant="; did you mean 'orders'?"),)),
        "topic orderz",
        Level.FAIL,
        "create it, or correct the name; did you mean 'orders'?",
    ),
    "partition without a leader": (
        replace(FIT, topics=topic(leaderless=(4,))),
        "topic orders",
        Level.FAIL,
        "leader: 4",
    ),
    "too few in sync": (
        replace(FIT, topics=topic(insync_replicas_min=1)),
        "topic orders",
        Level.FAIL,
        "no acks=all write is accepted",
    ),
    "more in sync than there are": (
        replace(FIT, topics=topic(**{"min.insync.replicas": "4"})),
        "topic orders",
        Level.WARN,
        "set min.insync.replicas=3",
    ),
    "an output topic that brokers create": (
        replace(
            FIT, broker=broker(auto_create_topics_enable="true"), topics=(TopicFacts("orders", None, {}, WRITTEN),)
        ),
        "topic orders",
        Level.WARN,
        "the brokers create it",
    ),
    "an output topic that this user may not have created": (
        replace(
            AUTHORIZED,
            broker={**AUTHORIZED.broker, "auto.create.topics.enable": "true"},
            topics=(TopicFacts("orders", None, {}, WRITTEN),),
        ),
        "topic orders",
        Level.FAIL,
        "does not exist",
    ),
    "an output topic that brokers create for who may": (
        replace(
            AUTHORIZED,
            cluster=replace(FIT.cluster, operations=frozenset({"CREATE"})),
            broker={**AUTHORIZED.broker, "auto.create.topics.enable": "true"},
            topics=(TopicFacts("orders", None, {}, WRITTEN),),
        ),
        "topic orders",
        Level.WARN,
        "the brokers create it",
    ),
    "an input topic that nobody creates": (
        replace(
            FIT,
            broker=broker(auto_create_topics_enable="true"),
            topics=(TopicFacts("orders", None, {}, frozenset({"READ"})),),
        ),
        "topic orders",
        Level.FAIL,
        "does not exist",
    ),
    "an output topic of Kafka's own": (
        replace(FIT, topics=(TopicFacts("__consumer_offsets", ORDERS, {}, WRITTEN),)),
        "topic __consumer_offsets",
        Level.FAIL,
        "one of Kafka's own topics",
    ),
    "an output topic without room for a marker": (
        replace(FIT, topics=output(max_message_bytes="77")),
        "topic orders",
        Level.FAIL,
        "78 bytes",
    ),
    "an output topic with little room": (
        replace(FIT, topics=output(max_message_bytes="999999")),
        "topic orders",
        Level.WARN,
        "is below message.max.bytes=1000000",
    ),
    "an output topic with room for all that is sent": (
        replace(FIT, config={**FIT.config, "message.max.bytes": "1000"}, topics=output(max_message_bytes="1000")),
        "topic orders",
        Level.OK,
        "min.insync.replicas 2",
    ),
    "a session that the brokers allow": (classic(), "session.timeout.ms", Level.OK, "ours 45000 ms"),
    "a session that is too long": (
        classic(session_timeout_ms="1800001"),
        "session.timeout.ms",
        Level.FAIL,
        "the group admits no member",
    ),
    "a session that is too short": (
        classic(session_timeout_ms="5999"),
        "session.timeout.ms",
        Level.FAIL,
        "bounds 6000 and 1800000 ms",
    ),
    "an assignor that the brokers have": (assignor("range"), "group.remote.assignor", Level.OK, "ours range"),
    "an assignor that the brokers lack": (assignor("nosuch"), "group.remote.assignor", Level.FAIL, "uniform, range"),
    "an assignor that may be among the brokers' classes": (
        assignor("own", brokers="uniform,com.example.Own"),
        "group.remote.assignor",
        Level.WARN,
        "has this name",
    ),
    "a new group that may not start anywhere": (
        replace(FIT, group=None, config={**FIT.config, "auto.offset.reset": "error"}),
        "group billing",
        Level.FAIL,
        "allows no other start",
    ),
    "unclean election of a single replica": (
        replace(
            FIT,
            cluster=ONE_BROKER,
            topics=topic(
                replicas_min=1,
                insync_replicas_min=1,
                **{"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
            ),
        ),
        "topic orders",
        Level.OK,
        "replication factor 1",
    ),
    "unclean election": (
        replace(FIT, topics=topic(**{"unclean.leader.election.enable": "true"})),
        "topic orders",
        Level.FAIL,
        "drop committed records",
    ),
    "one replica among three brokers": (
        replace(FIT, topics=topic(replicas_min=1, insync_replicas_min=1, **{"min.insync.replicas": "1"})),
        "topic orders",
        Level.WARN,
        "recreate it with replication factor 3",
    ),
    "one copy is enough for an acknowledgement": (
        replace(FIT, topics=topic(**{"min.insync.replicas": "1"})),
        "topic orders",
        Level.WARN,
        "set min.insync.replicas=2",
    ),
    "group of the other protocol": (
        replace(FIT, group=GroupDescription("stable", "classic", 2)),
        "group billing",
        Level.WARN,
        "set group.protocol=classic",
    ),
    "empty group of the other protocol": (
        replace(FIT, group=GroupDescription("empty", "classic", 0)),
        "group billing",
        Level.OK,
        "empty, classic protocol",
    ),
    "permission to read an input is missing": (
        permitted("WRITE", "DESCRIBE"),
        "permissions on topic orders",
        Level.FAIL,
        "missing: Read allow Read on it to this user",
    ),
    "all permissions on a topic are missing": (
        replace(permitted(), topics=(replace(UNSEEN, needs=frozenset({"READ", "WRITE"})),)),
        "permissions on topic orders",
        Level.FAIL,
        "missing: Read and Write",
    ),
    "a topic of no role may not be seen": (
        replace(AUTHORIZED, topics=(UNSEEN,)),
        "topic orders",
        Level.FAIL,
        "may not be seen by this user",
    ),
    "permission to read as the group is missing": (
        replace(AUTHORIZED, group=None, group_operations=frozenset()),
        "permissions on group billing",
        Level.FAIL,
        "allow Read on it",
    ),
    "the brokers do not say permissions": (
        replace(AUTHORIZED, group_operations=None),
        "permissions on group billing",
        Level.WARN,
        "see that this user has Read on it",
    ),
    "permission to write as the transactional id is missing": (
        replace(AUTHORIZED, may_use_id=False),
        "permissions on transactional id billing-0",
        Level.FAIL,
        "allow Write on it",
    ),
    "the permission on the transactional id is not known": (
        replace(AUTHORIZED, may_use_id=None, id_unknown="no answer"),
        "permissions on transactional id billing-0",
        Level.WARN,
        "not known: no answer",
    ),
    "ids are forgotten in the longest pause": (
        replace(FIT, longest_pause_s=7 * 86400),
        "transactional.id.expiration.ms",
        Level.WARN,
        "the first one after it is aborted and repeated; the longest pause is 7 days",
    ),
    "offsets are forgotten in the longest pause": (
        replace(FIT, broker=broker(offsets_retention_minutes="4320")),
        "offsets.retention.minutes",
        Level.WARN,
        "auto.offset.reset then decides what is read; the longest pause is 3 days",
    ),
    "a transaction hangs": (
        found(TransactionStatus.HANGING),
        "transaction at orders[1]@17",
        Level.FAIL,
        "wait before it eos-client txn abort --topic orders --partition 1 --start-offset 17",
    ),
    "a transaction may hang": (
        found(TransactionStatus.HIDDEN),
        "transaction at orders[1]@17",
        Level.WARN,
        "user may see has its producer id; its last record is 2 h old",
    ),
    "transactions were not looked for": (
        replace(FIT, survey=None, no_survey="kafka-python is not installed"),
        "hanging transactions",
        Level.WARN,
        "not looked for: kafka-python is not installed",
    ),
    "a topic was not looked at": (
        replace(FIT, survey=Survey((), (), {"orders": "TOPIC_AUTHORIZATION_FAILED"}, 0)),
        "hanging transactions",
        Level.WARN,
        "not looked for on orders: TOPIC_AUTHORIZATION_FAILED",
    ),
    "new group": (replace(FIT, group=None), "group billing", Level.OK, "new"),
}


@pytest.mark.parametrize(("facts", "subject", "level", "text"), CASES.values(), ids=CASES.keys())
def test_each_condition_is_found_with_its_level_and_way_out(facts: Any, subject: Any, level: Any, text: Any) -> None:
    found_level, found_text = worst(facts, subject)
    assert found_level is level
    assert text in found_text
