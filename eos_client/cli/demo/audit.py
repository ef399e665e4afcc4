"""Compares what the demo loaded with what a ``read_committed`` reader sees, without Kafka.

A record's identity is its input partition and offset, carried in the output's headers: equal lines are legal input.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eos_client.cli.demo.job.invoice import OFFSET_HEADER, PARTITION_HEADER, invoice_of

_EXAMPLES_MAX = 5


@dataclass
class Findings:
    """Counts of the defects of an output topic; all zero means every input once, in order, unaltered."""

    inputs: int = 0
    outputs: int = 0
    missing: int = 0
    doubled: int = 0
    out_of_order: int = 0
    altered: int = 0
    of_unknown_origin: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def are_once(self) -> bool:
        """Whether every input has one output, and every output an input."""
        return not (self.missing or self.doubled or self.of_unknown_origin)

    @property
    def figures(self) -> str:
        """The figures behind ``are_once``."""
        wrong = f"{self.missing:,} missing, {self.doubled:,} doubled, {self.of_unknown_origin:,} of unknown origin"
        return f"{self.outputs:,} visible; {wrong}"


class OutputAudit:
    """Takes every input, then every visible output, and counts what does not match.

    :param promised: maps an input line to the expected output; it is compared with what ``essence`` returns.
    :param origin_headers: the headers in which an output carries its input's partition and offset.
    :param by_key: order is promised to records of one key only, not to an input partition.
    """

    def __init__(
        self,
        promised: Callable[[bytes], bytes] = invoice_of,
        essence: Callable[[bytes], bytes] = bytes,
        origin_headers: tuple[str, str] = (PARTITION_HEADER, OFFSET_HEADER),
        *,
        by_key: bool = False,
    ) -> None:
        self._promised, self._essence = promised, essence
        self._origin_headers = origin_headers
        self._by_key = by_key
        self._findings = Findings()
        self._digests: dict[int, array[int]] = {}
        self._seen: dict[int, bytearray] = {}
        self._newest: dict[tuple[int, int, bytes | None], int] = {}

    def expect(self, partition: int, offset: int, line: bytes) -> None:
        """Expect one input record; offsets of a partition must come in order from 0 without a gap."""
        digests = self._digests.setdefault(partition, array("I"))
        if offset != len(digests):
            raise ValueError(f"input partition {partition} goes from offset {len(digests) - 1} to {offset}")
        digests.append(zlib.crc32(self._promised(line)))
        self._seen.setdefault(partition, bytearray()).append(0)
        self._findings.inputs += 1

    def see(self, output_partition: int, headers: Mapping[str, bytes], value: bytes, key: bytes | None = None) -> None:
        """Check one visible output, in the order of its partition."""
        self._findings.outputs += 1
        origin = self._origin(headers)
        if origin is None:
            self._findings.of_unknown_origin += 1
            self._example(f"output partition {output_partition}: a record with headers {dict(headers)}")
            return
        partition, offset = origin
        seen = self._seen[partition]
        if seen[offset]:
            self._findings.doubled += 1
            self._example(f"input {partition}@{offset} is visible again")
        seen[offset] = 1
        if key is not None or not self._by_key:
            self._check_order((partition, output_partition, key if self._by_key else None), offset)
        if zlib.crc32(self._essence(value)) != self._digests[partition][offset]:
            self._findings.altered += 1
            self._example(f"the output of input {partition}@{offset} is not what the transform makes of it")

    def _check_order(self, path: tuple[int, int, bytes | None], offset: int) -> None:
        if offset < self._newest.get(path, -1):
            partition = path[0]
            self._findings.out_of_order += 1
            self._example(f"input {partition}@{offset} comes after {partition}@{self._newest[path]}")
        self._newest[path] = max(offset, self._newest.get(path, -1))

    def _origin(self, headers: Mapping[str, bytes]) -> tuple[int, int] | None:
        try:
            partition, offset = (int(headers[name]) for name in self._origin_headers)
        except (KeyError, ValueError):
            return None
        known = self._seen.get(partition)
        return (partition, offset) if known is not None and 0 <= offset < len(known) else None

    def findings(self) -> Findings:
        """Return the counts, once all inputs and outputs were given."""
        findings = self._findings
        findings.missing = sum(seen.count(0) for seen in self._seen.values())
        for partition, seen in self._seen.items():
            if (offset := seen.find(0)) >= 0:
                self._example(f"input {partition}@{offset} has no visible output")
        return findings

    def _example(self, text: str) -> None:
        if len(self._findings.examples) < _EXAMPLES_MAX:
            self._findings.examples.append(text)
