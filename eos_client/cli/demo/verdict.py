"""Compares what the demo loaded with what a ``read_committed`` reader sees: whether each record counted once.

A record's identity is its input partition and offset, carried in the output's headers: equal lines are legal input.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eos_client.cli.demo.job.invoice import OFFSET_HEADER, PARTITION_HEADER, invoice_of
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.admin.topic_records import GroupOffsets, read_topic

Check = tuple[str, bool, str]
"""A claim, whether it holds, and the figures behind it."""

INVOICE_HEADERS = (PARTITION_HEADER, OFFSET_HEADER)
RECEIPT_HEADERS = ("source.partition", "source.offset")
"""Headers of the Spark program's outputs with the partition and offset of their input."""

_EXAMPLES_MAX = 5


@dataclass
class Findings:
    """Counts of the defects of an output topic; all zero means every input once, in order, unaltered.

    ``hidden``: outputs that are in the log but belong to aborted transactions, which is no defect; None in a database.
    """

    inputs: int = 0
    outputs: int = 0
    missing: int = 0
    doubled: int = 0
    out_of_order: int = 0
    altered: int = 0
    of_unknown_origin: int = 0
    hidden: int | None = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_exactly_once(self) -> bool:
        """Whether every input has one output, and every output an input."""
        return not (self.missing or self.doubled or self.of_unknown_origin)

    @property
    def figures(self) -> str:
        """The figures behind ``is_exactly_once``."""
        wrong = f"{self.missing:,} missing, {self.doubled:,} doubled, {self.of_unknown_origin:,} of unknown origin"
        return f"{self.outputs:,} visible; {wrong}"

    def worker_checks(self, lines: int, loaded: int, behind: Mapping[int, tuple[int, int]]) -> list[Check]:
        """Return what is claimed of the workers.

        :param lines: how many there were to load; ``loaded``: how many the cluster confirmed.
        :param behind: partitions whose committed offset is not the end, as (committed, end).
        """
        unread = ", ".join(f"{partition}: {at} of {end}" for partition, (at, end) in sorted(behind.items()))
        read = f"{lines:,} lines, {loaded:,} confirmed, {self.inputs:,} read"
        return [
            ("every line was loaded", lines == loaded == self.inputs, read),
            ("every input exactly once", self.is_exactly_once, f"{self.inputs:,} in, {self.figures}"),
            ("order kept per partition", not self.out_of_order, f"{self.out_of_order:,} out of order"),
            ("every output unaltered", not self.altered, f"{self.altered:,} differ from the transform's result"),
            ("group offsets at the end", not behind, unread or "all partitions"),
        ]

    def stream_checks(self, name: str, lines: int) -> list[Check]:
        """Return what is claimed of the Spark stream, under ``name``; ``lines``: how many there were to load."""
        once = self.inputs == lines and self.is_exactly_once
        return [
            (f"{name} exactly once", once, f"{lines:,} in, {self.figures}"),
            (f"{name} in order", not self.out_of_order, f"per key: {self.out_of_order:,} out of order"),
            (f"{name} unaltered", not self.altered, f"{self.altered:,} with a wrong checksum"),
        ]


@dataclass
class OutputAudit:
    """Takes every input, then every visible output, and counts what does not match.

    :param expected: maps an input line to the expected output; it is compared with what ``comparable`` returns.
    :param origin_headers: the headers in which an output carries its input's partition and offset.
    :param by_key: order is promised to records of one key only, not to an input partition.
    """

    expected: Callable[[bytes], bytes] = invoice_of
    comparable: Callable[[bytes], bytes] = bytes
    origin_headers: tuple[str, str] = INVOICE_HEADERS
    by_key: bool = False
    _findings: Findings = field(default_factory=Findings)
    _digests: dict[int, array[int]] = field(default_factory=dict)
    _seen: dict[int, bytearray] = field(default_factory=dict)
    _newest: dict[tuple[int, int, bytes | None], int] = field(default_factory=dict)

    def expect(self, partition: int, offset: int, line: bytes) -> None:
        """Expect one input record; offsets of a partition must come in order from 0 without a gap."""
        digests = self._digests.setdefault(partition, array("I"))
        if offset != len(digests):
            raise ValueError(f"input partition {partition} goes from offset {len(digests) - 1} to {offset}")
        digests.append(zlib.crc32(self.expected(line)))
        self._seen.setdefault(partition, bytearray()).append(0)
        self._findings.inputs += 1

    def check_output(
        self, output_partition: int, headers: Mapping[str, bytes], value: bytes, key: bytes | None = None
    ) -> None:
        """Check one visible output, in the order of its partition."""
        found = self._findings
        found.outputs += 1
        try:
            partition, offset = (int(headers[name]) for name in self.origin_headers)
        except (KeyError, ValueError):
            partition = offset = -1
        seen = self._seen.get(partition, b"")
        if not 0 <= offset < len(seen):
            found.of_unknown_origin += 1
            self._example(f"output partition {output_partition}: a record with headers {dict(headers)}")
            return
        if seen[offset]:
            found.doubled += 1
            self._example(f"input {partition}@{offset} is visible again")
        self._seen[partition][offset] = 1
        if key is not None or not self.by_key:
            path = (partition, output_partition, key if self.by_key else None)
            if offset < (newest := self._newest.get(path, -1)):
                found.out_of_order += 1
                self._example(f"input {partition}@{offset} comes after {partition}@{newest}")
            self._newest[path] = max(offset, newest)
        if zlib.crc32(self.comparable(value)) != self._digests[partition][offset]:
            found.altered += 1
            self._example(f"the output of input {partition}@{offset} is not what the transform makes of it")

    def findings(self) -> Findings:
        """Return the counts, once all inputs and outputs were given."""
        self._findings.missing = sum(seen.count(0) for seen in self._seen.values())
        for partition, seen in self._seen.items():
            if (offset := seen.find(0)) >= 0:
                self._example(f"input {partition}@{offset} has no visible output")
        return self._findings

    def _example(self, text: str) -> None:
        if len(self._findings.examples) < _EXAMPLES_MAX:
            self._findings.examples.append(text)


def receipt_audit(
    between: Callable[[bytes], bytes] = bytes, origin_headers: tuple[str, str] = RECEIPT_HEADERS
) -> OutputAudit:
    """Return the audit of the Spark program's receipts.

    :param between: what other stages make of an input before Spark gets it; they carry its place on in
        ``origin_headers``.
    """
    return OutputAudit(lambda line: receipt_of(between(line)), checksum_in, origin_headers, by_key=True)


def receipt_of(value: bytes) -> bytes:
    """Return the checksum that the receipt of a record must have."""
    return hashlib.sha256(value).hexdigest().encode()


def checksum_in(receipt: bytes) -> bytes:
    """Return the checksum in a receipt; empty if the value is no receipt."""
    try:
        return str(json.loads(receipt)["sha256"]).encode()
    except (ValueError, KeyError, TypeError):
        return b""


@dataclass(frozen=True)
class ClusterReader:
    """Reads topics of ``partition_count`` partitions back to the end that they have now, whatever the workers reported.

    What a method asks raises ClusterUnavailableError where it cannot be read, for example behind an open transaction.
    """

    admin: ClusterAdmin
    bootstrap_servers: str
    config: Mapping[str, Any]
    partition_count: int

    def audited(self, audit: OutputAudit, input_topic: str, output_topic: str) -> Findings:
        """Give ``audit`` all inputs, and the outputs that a ``read_committed`` reader sees."""
        self.expect_inputs(audit, input_topic)
        output_ends = self.admin.end_offsets(output_topic, self.partition_count)
        for record in read_topic(self.bootstrap_servers, output_topic, output_ends, self.config):
            audit.check_output(record.partition, record.headers, record.value, record.key)
        everything = read_topic(self.bootstrap_servers, output_topic, output_ends, self.config, committed_only=False)
        findings = audit.findings()
        findings.hidden = sum(1 for _record in everything) - findings.outputs
        return findings

    def expect_inputs(self, audit: OutputAudit, input_topic: str) -> None:
        """Give ``audit`` all inputs."""
        input_ends = self.admin.end_offsets(input_topic, self.partition_count)
        for record in read_topic(self.bootstrap_servers, input_topic, input_ends, self.config):
            audit.expect(record.partition, record.offset, record.value)

    def behind(self, group_id: str, topic: str) -> dict[int, tuple[int, int]]:
        """Return the partitions whose committed offset is not the end, as (committed, end)."""
        with GroupOffsets(self.bootstrap_servers, group_id, self.config, stable=True) as offsets:
            committed = offsets.read(topic, self.partition_count)
        ends = self.admin.end_offsets(topic, self.partition_count)
        return {p: (committed[p], end) for p, end in ends.items() if committed[p] != end}
