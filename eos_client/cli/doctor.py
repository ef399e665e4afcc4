"""``eos-client doctor``: gathers facts about a cluster and a configuration, and prints what the checks find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from eos_client.cli.doctor_checks import (
    OFFSETS_LOG,
    TRANSACTION_LOG,
    Facts,
    Finding,
    Level,
    TopicFacts,
    examine,
)
from eos_client.config import EosConfig
from eos_client.confluent.admin.cluster_admin import ClusterAdmin, TopicDescription
from eos_client.errors import ClusterUnfitError

_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """The options of ``eos-client doctor``. ``timeout_s`` bounds each request to the cluster."""

    bootstrap_servers: str
    group_id: str | None = None
    topics: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0


def diagnose(options: DoctorOptions) -> list[Finding]:
    """Ask the cluster and return all findings.

    :raises ConfigurationError: the configuration alone would break exactly-once.
    :raises ClusterUnavailableError: nobody answers.
    """
    config = EosConfig(
        {**options.settings, "bootstrap.servers": options.bootstrap_servers},
        group_id=options.group_id or "eos-client-doctor",
    )
    admin = ClusterAdmin(options.bootstrap_servers, options.settings, timeout_s=options.timeout_s)
    accepted = Finding(Level.OK, "configuration", "nothing in it breaks exactly-once")
    return [accepted, *examine(_gather(admin, config, options))]


def _gather(admin: ClusterAdmin, config: EosConfig, options: DoctorOptions) -> Facts:
    cluster = admin.cluster()
    topics = admin.topics(options.topics)
    in_force = {**config.consumer_config(), **config.producer_config()}
    return Facts(
        cluster=cluster,
        broker=admin.broker_settings(min(cluster.brokers)),
        config={key: str(value) for key, value in in_force.items()},
        topics=tuple(
            TopicFacts(name, topic, admin.topic_settings(name) if topic else {}) for name, topic in topics.items()
        ),
        internal_topics=_internal_topics(admin),
        group_id=options.group_id,
        group=admin.group(options.group_id) if options.group_id else None,
    )


def _internal_topics(admin: ClusterAdmin) -> dict[str, TopicDescription | None]:
    try:
        return admin.topics([TRANSACTION_LOG, OFFSETS_LOG])
    except ClusterUnfitError:
        return {}


def report(findings: Sequence[Finding], console: Console) -> None:
    """Print one line for each finding, and its remedy below it.

    :raises ClusterUnfitError: a finding is a failure.
    """
    for finding in findings:
        line = Text.assemble(
            (f"{finding.level.value:<5}", _STYLES[finding.level]), f"{finding.subject}: {finding.text}"
        )
        console.print(line, soft_wrap=True)
        if finding.way_out:
            console.print(Text(f"      -> {finding.way_out}"), soft_wrap=True)
    failed = [finding.subject for finding in findings if finding.level is Level.FAIL]
    if failed:
        raise ClusterUnfitError(f"not fit for exactly-once: {', '.join(failed)}. The remedies are above")
    console.print(Text("fit for exactly-once", style="green"))
