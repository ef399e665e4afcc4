"""Reads topics and committed offsets back from the cluster and says whether each record counted once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eos_client.cli.demo.audit import Findings, OutputAudit
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.admin.topic_records import GroupOffsets, read_topic

Check = tuple[str, bool, str]
"""A claim, whether it holds, and the figures behind it."""


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
    def checks(self) -> tuple[Check, ...]:
        """Each claim, whether it holds, and the figures behind it."""
        found = self.findings
        loaded = f"{self.lines:,} lines, {self.loaded:,} confirmed, {found.inputs:,} read"
        behind = ", ".join(f"{partition}: {at} of {end}" for partition, (at, end) in sorted(self.behind.items()))
        return (
            ("every line was loaded", self.lines == self.loaded == found.inputs, loaded),
            ("every input exactly once", found.are_once, f"{found.inputs:,} in, {found.figures}"),
            ("order kept per partition", not found.out_of_order, f"{found.out_of_order:,} out of order"),
            ("every output unaltered", not found.altered, f"{found.altered:,} differ from the transform's result"),
            ("group offsets at the end", not self.behind, behind or "all partitions"),
        )


@dataclass(frozen=True)
class ClusterReader:
    """Reads topics of ``partition_count`` partitions to the end that they have when they are read."""

    admin: ClusterAdmin
    bootstrap_servers: str
    config: Mapping[str, Any]
    partition_count: int

    def audited(
        self, audit: OutputAudit, input_topic: str, output_topic: str
    ) -> tuple[Findings, int, Mapping[int, int]]:
        """Give ``audit`` all inputs, and the outputs that a ``read_committed`` reader sees.

        Returns its findings, how many outputs in the log no such reader sees, and where the partitions of the input
        end. Raises ClusterUnavailableError where the output cannot be read to its end, for example behind an open
        transaction.
        """
        input_ends = self.admin.end_offsets(input_topic, self.partition_count)
        for record in read_topic(self.bootstrap_servers, input_topic, input_ends, self.config):
            audit.expect(record.partition, record.offset, record.value)
        output_ends = self.admin.end_offsets(output_topic, self.partition_count)
        for record in read_topic(self.bootstrap_servers, output_topic, output_ends, self.config):
            audit.see(record.partition, record.headers, record.value, record.key)
        everything = read_topic(self.bootstrap_servers, output_topic, output_ends, self.config, committed_only=False)
        written = sum(1 for _record in everything)
        findings = audit.findings()
        return findings, written - findings.outputs, input_ends


def reach_verdict(
    admin: ClusterAdmin, bootstrap_servers: str, config: Mapping[str, Any], job: Job, *, lines: int, loaded: int
) -> Verdict:
    """Read everything back: the input, the output with ``read_committed`` and without, and the group's offsets.

    :raises ClusterUnavailableError: the output cannot be read to its end, for example behind an open transaction.
    """
    reader = ClusterReader(admin, bootstrap_servers, config, job.partition_count)
    findings, hidden, input_ends = reader.audited(OutputAudit(), job.input_topic, job.output_topic)
    with GroupOffsets(bootstrap_servers, job.group_id, config, stable=True) as offsets:
        committed = offsets.read(job.input_topic, job.partition_count)
    behind = {p: (committed.get(p, 0), end) for p, end in input_ends.items() if committed.get(p, 0) != end}
    return Verdict(findings, lines, loaded, hidden, behind)
