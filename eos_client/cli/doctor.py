"""``eos-client doctor``: gathers facts about a cluster and a configuration, and prints what the checks find."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from rich.console import Console
from rich.text import Text

from eos_client.cli.doctor_checks import Facts, Finding, Level, TopicFacts, examine, is_open_to_all
from eos_client.cli.printable import did_you_mean, printable
from eos_client.cli.settings import ClusterAccess
from eos_client.cli.transactions import survey, transactions_admin
from eos_client.config import EosConfig
from eos_client.config.client_settings import LOG_LEVEL_CRITICAL, for_producer
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.admin.transactional_ids import LONGEST_TIMEOUT_MS, may_use_transactional_id
from eos_client.core.internal_logs import INTERNAL_LOGS, OFFSETS_LOG, whole_number
from eos_client.core.model import is_pattern
from eos_client.core.transaction_timeout import BROKERS_LIMIT
from eos_client.errors import ClusterUnfitError, ConfigurationError, EosError, text_of
from eos_client.loop import ExactlyOnceLoop

_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(ClusterAccess):
    """The options of ``eos-client doctor``. ``longest_pause_s``: how long a job may be without a record, or stopped."""

    group_id: str | None = None
    topics: Sequence[str] = ()
    input_topics: Sequence[str] = ()
    output_topics: Sequence[str] = ()
    transactional_id: str | None = None
    longest_pause_s: float = 72 * 3600.0


@contextmanager
def errors_as_findings() -> Iterator[None]:
    """Print an error that ends the body as a finding in JSON, too: a program reads one object a line in every case."""
    try:
        yield
    except Exception as error:
        text = str(error) if isinstance(error, EosError) else f"unexpected {text_of(error)}"
        print(json.dumps(asdict(Finding(Level.FAIL, "doctor", text))))
        raise


def diagnose(options: DoctorOptions) -> list[Finding]:
    """Ask the cluster and return all findings.

    :raises ConfigurationError: the configuration alone would break exactly-once.
    :raises ClusterUnavailableError: nobody answers.
    """
    config = EosConfig(
        {"log_level": LOG_LEVEL_CRITICAL, **options.settings, "bootstrap.servers": options.bootstrap_servers},
        group_id=options.group_id or "eos-client-doctor",
        transactional_id=options.transactional_id,
    )
    with ClusterAdmin(options.bootstrap_servers, options.settings) as admin:
        return [_configuration(config), *examine(_gather(admin, config, options))]


def _configuration(config: EosConfig) -> Finding:
    """Build a loop, which runs nothing, for what it refuses at its start."""
    try:
        ExactlyOnceLoop(config, ["any"], lambda _record: None, hook=lambda _event: None).close()
    except ConfigurationError as error:
        return Finding(Level.FAIL, "configuration", str(error), "correct the named setting: no loop starts with it")
    return Finding(Level.OK, "configuration", "nothing in it breaks exactly-once")


def _gather(admin: ClusterAdmin, config: EosConfig, options: DoctorOptions) -> Facts:
    cluster = admin.cluster()
    try:
        internal_topics = admin.topics(INTERNAL_LOGS)
    except ClusterUnfitError:
        internal_topics = {}
    broker = admin.broker_settings(min(cluster.brokers))
    in_force = {**config.consumer_config(), **config.producer_config()}
    names = dict.fromkeys([*options.topics, *options.input_topics, *options.output_topics])
    facts = Facts(
        cluster=cluster,
        broker=broker,
        config={key: str(value) for key, value in in_force.items()},
        topics=tuple(_topic_facts(admin, name, options) for name in names if not is_pattern(name)),
        patterns=tuple(filter(is_pattern, names)),
        internal_topics=internal_topics,
        group_id=options.group_id,
        longest_pause_s=options.longest_pause_s,
    )
    if options.group_id:
        operations = admin.group_operations(options.group_id)
        group = None if operations == frozenset() else admin.group(options.group_id)
        facts = replace(facts, group=group, group_operations=operations)
    return _with_open_transactions(_with_permission_of_id(facts, options), admin, options)


def _topic_facts(admin: ClusterAdmin, name: str, options: DoctorOptions) -> TopicFacts:
    roles = {"READ": name in options.input_topics, "WRITE": name in options.output_topics}
    needs = frozenset(operation for operation, is_needed in roles.items() if is_needed)
    operations = admin.topic_operations(name)
    described = None if operations == frozenset() else admin.topics([name])[name]
    settings = {} if described is None else admin.topic_settings(name)
    meant = "" if described is not None else did_you_mean(name, admin.partition_counts())
    return TopicFacts(name, described, settings, needs, operations, meant)


def _with_permission_of_id(facts: Facts, options: DoctorOptions) -> Facts:
    if is_open_to_all(facts) or not options.output_topics:
        return facts
    name = options.transactional_id or f"eos-{uuid.uuid4()}"  # as it is generated for a job that pins none
    facts = replace(facts, transactional_id=name)
    limit_ms = whole_number(facts.broker, BROKERS_LIMIT) or LONGEST_TIMEOUT_MS
    if options.transactional_id and limit_ms >= LONGEST_TIMEOUT_MS:
        return replace(facts, id_unknown="asking could fence a running job, as transaction.max.timeout.ms is not known")
    settings = for_producer(options.settings)
    try:
        may = may_use_transactional_id(options.bootstrap_servers, settings, name)
    except ClusterUnfitError as error:
        return replace(facts, id_unknown=str(error))
    return replace(facts, may_use_id=may)


def _with_open_transactions(facts: Facts, admin: ClusterAdmin, options: DoctorOptions) -> Facts:
    topics = [topic.name for topic in facts.topics if topic.description]
    if topics and OFFSETS_LOG not in topics and facts.internal_topics.get(OFFSETS_LOG):
        topics.append(OFFSETS_LOG)
    try:
        with transactions_admin(options) as transactions:
            return replace(facts, survey=survey(admin, transactions, topics))
    except EosError as error:  # the finding says that, and why, nothing was looked for
        return replace(facts, no_survey=str(error))


def report(findings: Sequence[Finding], console: Console, *, as_json: bool = False) -> None:
    """Print one line for each finding, and its remedy below it; or each finding as one line of JSON.

    :raises ClusterUnfitError: a finding is a failure.
    """
    if as_json:
        for finding in findings:
            print(json.dumps(asdict(finding)))
    else:
        for finding in findings:
            level = (f"{finding.level.value:<5}", _STYLES[finding.level])
            console.print(Text.assemble(level, printable(f"{finding.subject}: {finding.text}")), soft_wrap=True)
            if finding.way_out:
                console.print(Text(f"      -> {printable(finding.way_out)}"), soft_wrap=True)
    failed = [finding.subject for finding in findings if finding.level is Level.FAIL]
    if failed:
        way_out = "Each has its way_out" if as_json else "The remedies are above"
        raise ClusterUnfitError(f"not fit for exactly-once: {printable(', '.join(failed))}. {way_out}")
    if not as_json:
        console.print(Text("fit for exactly-once", style="green"))
