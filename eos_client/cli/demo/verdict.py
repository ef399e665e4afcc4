"""Reads topics and committed offsets back from the cluster and says whether each record counted once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eos_client.cli.demo.audit import Findings, OutputAudit
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.admin.topic_records import GroupOffsets, read_topic


@dataclass(frozen=True)
class Job:
    """The workers' group and its two topics, each with ``partition_count`` partitions."""

    group_id: str
    input_topic: str
    output_topic: str
    partition_count: int


@dataclass(frozen=True)
class Verdict:
    """What was read back from the cluster, whatever the workers reported.

    ``lines``: how many there were to load. ``loaded``: how many the cluster confirmed to the loader. ``hidden``:
    outputs that are in the log but belong to aborted transactions. ``behind``: partitions whose committed offset is
    not the end, as (committed, end).
    """

    findings: Findings
    lines: int
    loaded: int
    hidden: int
    behind: Mapping[int, tuple[int, int]]

    @property
    def checks(self) -> tuple[tuple[str, bool, str], ...]:
        """Each claim, whether it holds, and the figures behind it."""
        found = self.findings
        loaded = f"{self.lines:,} lines, {self.loaded:,} confirmed, {found.inputs:,} read"
        wrong = f"{found.missing:,} missing, {found.doubled:,} doubled, {found.of_unknown_origin:,} of unknown origin"
        once = not (found.missing or found.doubled or found.of_unknown_origin)
        behind = ", ".join(f"{partition}: {at} of {end}" for partition, (at, end) in sorted(self.behind.items()))
        return (
            ("every line was loaded", self.lines == self.loaded == found.inputs, loaded),
            ("every input exactly once", once, f"{found.inputs:,} in, {found.outputs:,} visible; {wrong}"),
            ("order kept per partition", not found.out_of_order, f"{found.out_of_order:,} out of order"),
            ("every output unaltered", not found.altered, f"{found.altered:,} differ from the transform's result"),
            ("group offsets at the end", not self.behind, behind or "all partitions"),
        )

    @property
    def is_exactly_once(self) -> bool:
        """Whether every claim holds."""
        return all(holds for _claim, holds, _figures in self.checks)


def reach_verdict(
    admin: ClusterAdmin, bootstrap_servers: str, config: Mapping[str, Any], job: Job, *, lines: int, loaded: int
) -> Verdict:
    """Read everything back: the input, the output with ``read_committed`` and without, and the group's offsets.

    :raises ClusterUnavailableError: the output cannot be read to its end, for example behind an open transaction.
    """
    audit = OutputAudit()
    input_ends = admin.end_offsets(job.input_topic, job.partition_count)
    for record in read_topic(bootstrap_servers, job.input_topic, input_ends, config):
        audit.expect(record.partition, record.offset, record.value)
    output_ends = admin.end_offsets(job.output_topic, job.partition_count)
    for record in read_topic(bootstrap_servers, job.output_topic, output_ends, config):
        audit.see(record.partition, record.headers, record.value)
    everything = read_topic(bootstrap_servers, job.output_topic, output_ends, config, committed_only=False)
    written = sum(1 for _record in everything)
    findings = audit.findings()
    with GroupOffsets(bootstrap_servers, job.group_id, config, stable=True) as offsets:
        committed = offsets.read(job.input_topic, job.partition_count)
    behind = {p: (committed.get(p, 0), end) for p, end in input_ends.items() if committed.get(p, 0) != end}
    return Verdict(findings, lines, loaded, written - findings.outputs, behind)
