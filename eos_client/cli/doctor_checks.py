"""The doctor's checks: facts about a cluster and a configuration in, findings out, without Kafka.

Every check is one function of :data:`CHECKS` and yields a finding for what it checked, with a remedy where that is not
ok.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from eos_client.cli.transactions import Survey, abort_command, shown_age
from eos_client.config.client_settings import group_protocol
from eos_client.confluent.admin.cluster_admin import ClusterDescription, GroupDescription
from eos_client.core.hanging_transactions import TransactionStatus
from eos_client.core.internal_logs import INTERNAL_LOGS, judge_internal_log, takes_no_writes, whole_number
from eos_client.core.model import TopicDescription
from eos_client.core.output_topics import why_never_written, why_unfit_settings
from eos_client.core.transaction_timeout import BROKERS_LIMIT, TIMEOUT_WAY_OUT, is_timeout_allowed


class Level(str, Enum):
    """Severity of a finding. Only FAIL means "do not run exactly-once here"."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report; ``way_out`` (the remedy) is empty where nothing needs to be done."""

    level: Level
    subject: str
    text: str
    way_out: str = ""


_ok, _warn, _fail = (partial(Finding, level) for level in Level)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A requested topic; ``description`` is ``None`` when it does not exist or may not be seen.

    ``needs``: what a job must be permitted on it, by Kafka's names (``READ``); ``operations``: what this user is
    permitted, none where it may not even see the topic, ``None`` where no broker says so. ``meant``: asks for the topic
    that has a similar name, where this one does not exist.
    """

    name: str
    description: TopicDescription | None
    settings: Mapping[str, str]
    needs: frozenset[str] = frozenset()
    operations: frozenset[str] | None = None
    meant: str = ""

    @property
    def is_output(self) -> bool:
        """Whether the job writes it."""
        return "WRITE" in self.needs


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the checks look at. ``config``: the client settings in force, ours and the user's.

    ``may_use_id`` says whether transactions may be run under ``transactional_id``; where it is ``None``, ``id_unknown``
    says why. ``internal_topics`` lacks those that this user may not see. ``survey`` is of the open transactions;
    without one, ``no_survey`` says why. ``longest_pause_s``: how long a job may be without a record, or stopped.
    """

    cluster: ClusterDescription
    broker: Mapping[str, str]
    config: Mapping[str, str]
    topics: tuple[TopicFacts, ...] = ()
    patterns: tuple[str, ...] = ()
    internal_topics: Mapping[str, TopicDescription | None] = field(default_factory=dict)
    group_id: str | None = None
    group: GroupDescription | None = None
    group_operations: frozenset[str] | None = None
    transactional_id: str | None = None
    may_use_id: bool | None = None
    id_unknown: str = ""
    longest_pause_s: float = 0.0
    survey: Survey | None = None
    no_survey: str = ""


def examine(facts: Facts) -> list[Finding]:
    """Return the findings of every check, in the order of a report."""
    return [finding for check in CHECKS for finding in check(facts)]


def check_brokers(facts: Facts) -> Iterator[Finding]:
    """Check the number of brokers: with one, nothing survives the loss of its disk."""
    count = len(facts.cluster.brokers)
    addresses = ", ".join(facts.cluster.brokers.values())
    if count >= 3:  # noqa: PLR2004  the least number that keeps a majority when one is gone
        yield _ok("brokers", f"{count}: {addresses}")
    else:
        text = f"{count} ({addresses}): what was committed is lost with a broker's disk"
        yield _warn(
            "brokers", text, "fine for development; use 3 brokers and replication factor 3 where records matter"
        )


def check_version(facts: Facts) -> Iterator[Finding]:
    """Check the brokers' version: with KIP-1251 a retained partition's commit at an older epoch is accepted."""
    newest = next((version for version, key in _VERSION_MARKS if key in facts.broker), None)
    protocol = group_protocol(facts.config)
    if newest is None:
        text = "older than 4.1, or its settings cannot be read"
        way_out = "brokers 4.1 and newer are tested; 4.3 and newer refuse the fewest commits"
        yield _warn("broker version", text, way_out)
    elif newest < _KIP_1251_VERSION:
        text = f"at least {newest}, below {_KIP_1251_VERSION}: {_REFUSALS}"
        way_out = f"brokers >= {_KIP_1251_VERSION} with group.protocol=consumer refuse no commit in a rebalance"
        yield _warn("broker version", text, way_out)
    elif protocol != "consumer":
        text = f"{protocol} on brokers >= {_KIP_1251_VERSION}: {_REFUSALS}"
        way_out = "set group.protocol=consumer (KIP-848) if refused commits cost you: pauses are longer then"
        yield _warn("group.protocol", text, way_out)
    else:
        yield _ok("broker version", f"at least {newest}, with group.protocol=consumer")


_REFUSALS = "a commit under way in a rebalance may be refused (aborted and repeated: nothing is lost or doubled)"
_KIP_1251_VERSION = "4.3"
_VERSION_MARKS = (
    ("4.3", "group.consumer.assignment.interval.ms"),
    ("4.2", "group.streams.initial.rebalance.delay.ms"),
    ("4.1", "group.streams.session.timeout.ms"),
)
"""Broker settings that first appeared in a release, newest first (compared from 4.0.1 to 4.3.1): the admin API
reports no version."""


def check_internal_logs(facts: Facts) -> Iterator[Finding]:
    """Check the internal topics: without enough replicas ``init_transactions`` would only say "timed out"."""
    for log in INTERNAL_LOGS:
        verdict = judge_internal_log(log, facts.broker, len(facts.cluster.brokers), facts.internal_topics)
        level = Level.WARN if verdict.way_out else Level.OK
        yield Finding(Level.FAIL if verdict.is_usable is False else level, verdict.log, verdict.text, verdict.way_out)


def check_transaction_timeout(facts: Facts) -> Iterator[Finding]:
    """Check transaction.timeout.ms against the brokers' limit."""
    limit_ms = whole_number(facts.broker, BROKERS_LIMIT)
    ours_ms = whole_number(facts.config, "transaction.timeout.ms")
    if ours_ms is None:
        return
    subject, limit = "transaction.timeout.ms", "cannot be read" if limit_ms is None else f"{limit_ms} ms"
    text = f"ours {ours_ms} ms, the brokers' limit {limit}"
    if is_allowed := is_timeout_allowed(ours_ms, limit_ms):
        yield _ok(subject, text)
    else:
        finding, refused = (_warn, "may be") if is_allowed is None else (_fail, "is")
        yield finding(subject, f"{text}: init_transactions {refused} refused", TIMEOUT_WAY_OUT)


def check_topics(facts: Facts) -> Iterator[Finding]:
    """Check the topics' replicas: a committed record that is lost with a broker breaks exactly-once."""
    for pattern in facts.patterns:
        text = "a pattern: which topics it matches is found out by a job that runs"
        yield _warn(f"topic {pattern}", text, "name topics that it should match, to have them checked")
    for topic in facts.topics:
        subject = f"topic {topic.name}"
        if topic.is_output and (why := why_never_written(topic.name)):
            yield _fail(subject, f"cannot be an output: {why}", "name another topic")
        elif topic.description is not None:
            yield from _output(subject, topic, facts.config)
            yield from _topic(subject, topic.description, topic.settings, len(facts.cluster.brokers))
        elif topic.operations is None and topic.is_output and _creates_topics(facts):
            text = "does not exist: the brokers create it, as their own settings say, when a job starts"
            yield _warn(subject, text, f"create it, with the partitions and replicas that it needs{topic.meant}")
        elif topic.operations is None:
            yield _fail(subject, "does not exist", f"create it, or correct the name{topic.meant}")
        elif not topic.needs:  # else check_permissions reports it
            yield _fail(subject, "may not be seen by this user", "allow Describe on it to this user")


def _creates_topics(facts: Facts) -> bool:
    may_create = is_open_to_all(facts) or "CREATE" in facts.cluster.operations
    return may_create and facts.broker.get("auto.create.topics.enable") == "true"


def _output(subject: str, topic: TopicFacts, config: Mapping[str, str]) -> Iterator[Finding]:
    """Check whether an output topic takes what a producer of ``config`` may send."""
    if not topic.is_output:
        return
    taken = whole_number(topic.settings, "max.message.bytes")
    sent = whole_number(config, "message.max.bytes") or _MESSAGE_MAX_BYTES
    if why := why_unfit_settings(topic.settings):
        yield _fail(subject, why, "raise it on the topic")
    elif taken is not None and taken < sent:
        text = f"max.message.bytes={taken} is below message.max.bytes={sent} of this client: larger batches are refused"
        yield _warn(subject, text, "raise it on the topic, or lower message.max.bytes of this client")


_MESSAGE_MAX_BYTES = 1_000_000  # librdkafka's default


def _topic(subject: str, described: TopicDescription, settings: Mapping[str, str], brokers: int) -> Iterator[Finding]:
    min_isr = whole_number(settings, "min.insync.replicas") or 1
    factor = described.replicas_min
    shape = f"{described.partition_count} partitions, replication factor {factor}, min.insync.replicas {min_isr}"
    problems: list[Finding] = []
    if not settings:
        way_out = "allow DescribeConfigs on the topic to this user"
        problems.append(_warn(subject, f"{described.partition_count} partitions; its settings cannot be read", way_out))
    if described.leaderless:
        partitions = ", ".join(map(str, described.leaderless))
        problems.append(_fail(subject, f"partitions without a leader: {partitions}", "bring back their brokers"))
    if takes_no_writes(in_sync := described.insync_replicas_min, factor, min_isr):
        text = f"{shape}, {in_sync} in sync: no acks=all write is accepted"
        way_out = f"lower min.insync.replicas to at most {in_sync}, or bring back the missing replicas"
        problems.append(_fail(subject, text, way_out))
    if min_isr > factor:
        text = f"{shape}: brokers ask for no more in-sync replicas than there are"
        problems.append(_warn(subject, text, f"set min.insync.replicas={factor}, or recreate it with more replicas"))
    if factor > 1 and settings.get("unclean.leader.election.enable") == "true":
        text = "unclean.leader.election.enable=true: a stale replica may become leader and drop committed records"
        problems.append(_fail(subject, text, "set unclean.leader.election.enable=false on the topic"))
    if factor < min(brokers, 3):
        way_out = f"recreate it with replication factor {min(brokers, 3)}"
        problems.append(_warn(subject, f"{shape} on {brokers} brokers: too few copies", way_out))
    elif settings and factor > 1 and min_isr < 2:  # noqa: PLR2004  two copies of each acknowledged record
        text = f"{shape}: an acknowledged record may have one copy only"
        problems.append(_warn(subject, text, "set min.insync.replicas=2 on the topic"))
    yield from problems or [_ok(subject, shape)]


def check_group(facts: Facts) -> Iterator[Finding]:
    """Check the group's protocol: a group of another protocol admits members only while it is empty or upgrading."""
    if facts.group_id is None or (facts.group is None and facts.group_operations == frozenset()):
        return  # check_permissions reports a group that may not be seen
    subject = f"group {facts.group_id}"
    if facts.group is None:
        yield from _new_group(subject, facts.config.get("auto.offset.reset", ""))
        return
    text = f"{facts.group.state}, {facts.group.protocol} protocol, {facts.group.member_count} members"
    ours = group_protocol(facts.config)
    if facts.group.member_count and facts.group.protocol != ours:
        way_out = f"set group.protocol={facts.group.protocol}, or roll all its members over to {ours}"
        yield _warn(subject, f"{text}, but this configuration says group.protocol={ours}", way_out)
    else:
        yield _ok(subject, text)


def _new_group(subject: str, reset: str) -> Iterator[Finding]:
    if reset == "error":
        text = "new: no offset is committed, and auto.offset.reset=error allows no other start"
        yield _fail(subject, text, "commit an offset for the group, or set auto.offset.reset to earliest or latest")
    else:
        yield _ok(subject, "new: it will be created when its first member joins")


def check_membership(facts: Facts) -> Iterator[Finding]:
    """Check what the group's coordinator refuses of a member, which its start says before anything else."""
    if group_protocol(facts.config) == "consumer":
        yield from _assignor(facts)
        return
    ours_ms = whole_number(facts.config, _SESSION) or _SESSION_TIMEOUT_MS
    least_ms, most_ms = (whole_number(facts.broker, f"group.{end}.{_SESSION}") for end in ("min", "max"))
    if least_ms is None or most_ms is None:
        return
    text = f"ours {ours_ms} ms, the brokers' bounds {least_ms} and {most_ms} ms"
    if least_ms <= ours_ms <= most_ms:
        yield _ok(_SESSION, text)
    else:
        way_out = f"set it within them, or change group.min.{_SESSION} or group.max.{_SESSION} on the brokers"
        yield _fail(_SESSION, f"{text}: the group admits no member", way_out)


def _assignor(facts: Facts) -> Iterator[Finding]:
    ours = facts.config.get("group.remote.assignor")
    theirs = [each.strip() for each in facts.broker.get("group.consumer.assignors", "").split(",")]
    if not ours or not any(theirs):
        return
    text = f"ours {ours}, the brokers' {', '.join(theirs)}"
    if ours in theirs:
        yield _ok("group.remote.assignor", text)
    elif any("." in each for each in theirs):  # a class, whose name for clients is known to it alone
        yield _warn("group.remote.assignor", text, "see that one of these classes has this name")
    else:
        yield _fail(
            "group.remote.assignor", f"{text}: the group admits no member", "set one of theirs, or leave it out"
        )


_SESSION = "session.timeout.ms"
_SESSION_TIMEOUT_MS = 45_000  # librdkafka's default


def check_permissions(facts: Facts) -> Iterator[Finding]:
    """Check what a job needs: Read on inputs and group, Write on outputs and the transactional id."""
    if is_open_to_all(facts):
        yield _ok("permissions", "the brokers have no authorizer: everyone may do everything")
        return
    for topic in facts.topics:
        if topic.description is not None or topic.operations is not None:
            yield from _permitted(f"permissions on topic {topic.name}", topic.needs, topic.operations)
    if facts.group_id is not None:
        yield from _permitted(f"permissions on group {facts.group_id}", frozenset({"READ"}), facts.group_operations)
    if facts.transactional_id is not None:
        subject = f"permissions on transactional id {facts.transactional_id}"
        if facts.may_use_id is None:
            way_out = "a job finds out when it starts: it ends with the name of what it may not use"
            yield _warn(subject, f"not known: {facts.id_unknown}", way_out)
        else:
            yield from _permitted(subject, frozenset({"WRITE"}), frozenset({"WRITE"} if facts.may_use_id else ()))


def is_open_to_all(facts: Facts) -> bool:
    """Tell whether the brokers are known to have no authorizer."""
    return facts.broker.get("authorizer.class.name") == ""


def _permitted(subject: str, needs: frozenset[str], operations: frozenset[str] | None) -> Iterator[Finding]:
    names = " and ".join(sorted(name.title() for name in needs))
    if not needs:
        return
    if operations is None:
        yield _warn(subject, "the brokers do not say", f"see that this user has {names} on it")
    elif needs <= operations:
        yield _ok(subject, names)
    else:
        lacking = " and ".join(sorted(name.title() for name in needs - operations))
        yield _fail(subject, f"missing: {lacking}", f"allow {lacking} on it to this user")


def check_expiry(facts: Facts) -> Iterator[Finding]:
    """Check that what brokers remember of a job outlives its longest pause."""
    pause = shown_age(round(facts.longest_pause_s))
    for key, unit_ms, what, consequence in _EXPIRIES:
        if (limit := whole_number(facts.broker, key)) is None:
            continue
        limit_s = limit * unit_ms / 1000
        text = f"{what} forgotten after {shown_age(round(limit_s))} without {consequence}; the longest pause is {pause}"
        if facts.longest_pause_s < limit_s:
            yield _ok(key, text)
        else:
            way_out = f"raise {key} on the brokers above the longest pause, or give a shorter --longest-pause"
            yield _warn(key, text, f"{way_out} if that is too long")


_EXPIRIES = (
    ("transactional.id.expiration.ms", 1, "an id is", "a transaction: the first one after it is aborted and repeated"),
    (
        "offsets.retention.minutes",
        60_000,
        "a group's offsets are",
        "a member: auto.offset.reset then decides what is read",
    ),
)


def check_open_transactions(facts: Facts) -> Iterator[Finding]:
    """Check for transactions that nobody will end (KIP-664): readers with read_committed wait before them for good."""
    if facts.survey is None:
        if facts.no_survey:
            way_out = "look with eos-client txn list, as a user who may read the topics"
            yield _warn(_HANGING, f"not looked for: {facts.no_survey}", way_out)
        return
    yield from (
        _warn(_HANGING, f"not looked for on {topic}: {reason}", "look as a user who may read it")
        for topic, reason in facts.survey.unread.items()
    )
    unlisted = [(each, status) for each, status in facts.survey.found if status is not TransactionStatus.ONGOING]
    for each, status in unlisted:
        age = shown_age((facts.survey.now_ms - each.last_timestamp_ms) // 1000)
        subject = f"transaction at {each.topic}[{each.partition}]@{each.start_offset}"
        text = f"{status.value}; its last record is {age} old, and read_committed readers wait before it"
        if status is TransactionStatus.HANGING:
            yield _fail(subject, text, abort_command(each.topic, each.partition, each.start_offset))
        else:
            yield _warn(subject, text, "look again with eos-client txn list, as a user who may see all ids")
    if not unlisted:
        ages_s = [(facts.survey.now_ms - each.started_ms) // 1000 for each in facts.survey.known if each.started_ms]
        oldest = f", the oldest for {shown_age(max(ages_s))}" if ages_s else ""
        yield _ok(_HANGING, f"none; {len(ages_s)} open{oldest}")


_HANGING = "hanging transactions"


CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    check_brokers,
    check_version,
    check_internal_logs,
    check_transaction_timeout,
    check_topics,
    check_group,
    check_membership,
    check_permissions,
    check_expiry,
    check_open_transactions,
)
