"""Reads input and output of the stream back, without Spark, and says whether each record came out once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eos_client.cli.demo.audit import Findings, OutputAudit
from eos_client.cli.demo_spark.receipt import checksum_in, receipt_of
from eos_client.cli.demo_spark.stream import SOURCE_HEADERS
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.admin.topic_records import read_topic


@dataclass(frozen=True)
class StreamVerdict:
    """The result of reading the cluster back. ``hidden``: outputs in the log that belong to aborted transactions."""

    findings: Findings
    lines: int
    hidden: int
    name: str

    @property
    def checks(self) -> tuple[tuple[str, bool, str], ...]:
        """Each claim, whether it holds, and the figures behind it."""
        found = self.findings
        wrong = f"{found.missing:,} missing, {found.doubled:,} doubled, {found.of_unknown_origin:,} of unknown origin"
        once = found.inputs == self.lines and not (found.missing or found.doubled or found.of_unknown_origin)
        return (
            (f"{self.name} exactly once", once, f"{self.lines:,} in, {found.outputs:,} visible; {wrong}"),
            (f"{self.name} in order", not found.out_of_order, f"per key: {found.out_of_order:,} out of order"),
            (f"{self.name} unaltered", not found.altered, f"{found.altered:,} with a wrong checksum"),
        )

    @property
    def is_exactly_once(self) -> bool:
        """Whether every claim holds."""
        return all(holds for _claim, holds, _figures in self.checks)


def judge_stream(  # noqa: PLR0913  keyword-only, each with a default
    admin: ClusterAdmin,
    bootstrap_servers: str,
    *,
    input_topic: str,
    output_topic: str,
    partition_count: int,
    lines: int,
    config: Mapping[str, Any] | None = None,
    between: Callable[[bytes], bytes] | None = None,
    origin_headers: tuple[str, str] = SOURCE_HEADERS,
    name: str = "every record",
) -> StreamVerdict:
    """Compare the input topic with the output that a ``read_committed`` reader sees.

    :param between: what other stages make of an input before the stream gets it; they carry its place on in
        ``origin_headers``.
    :raises ClusterUnavailableError: the output cannot be read to its end, for example behind an open transaction.
    """
    made = between or (lambda value: value)
    audit = OutputAudit(lambda line: receipt_of(made(line)), checksum_in, origin_headers, by_key=True)
    input_ends = admin.end_offsets(input_topic, partition_count)
    for record in read_topic(bootstrap_servers, input_topic, input_ends, config):
        audit.expect(record.partition, record.offset, record.value)
    output_ends = admin.end_offsets(output_topic, partition_count)
    for record in read_topic(bootstrap_servers, output_topic, output_ends, config):
        audit.see(record.partition, record.headers, record.value, record.key)
    everything = read_topic(bootstrap_servers, output_topic, output_ends, config, committed_only=False)
    written = sum(1 for _record in everything)
    findings = audit.findings()
    return StreamVerdict(findings, lines, written - findings.outputs, name)
