"""Reads input and output of the stream back, without Spark, and says whether each record came out once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from eos_client.cli.demo.audit import Findings, OutputAudit
from eos_client.cli.demo.verdict import Check, ClusterReader
from eos_client.cli.demo_spark.stream import SOURCE_HEADERS


@dataclass(frozen=True)
class StreamVerdict:
    """The result of reading the cluster back. ``hidden``: outputs in the log that belong to aborted transactions."""

    findings: Findings
    lines: int
    hidden: int
    name: str

    @property
    def checks(self) -> tuple[Check, ...]:
        """Each claim, whether it holds, and the figures behind it."""
        found = self.findings
        once = found.inputs == self.lines and found.are_once
        return (
            (f"{self.name} exactly once", once, f"{self.lines:,} in, {found.figures}"),
            (f"{self.name} in order", not found.out_of_order, f"per key: {found.out_of_order:,} out of order"),
            (f"{self.name} unaltered", not found.altered, f"{found.altered:,} with a wrong checksum"),
        )


def judge_stream(
    reader: ClusterReader,
    input_topic: str,
    output_topic: str,
    lines: int,
    *,
    between: Callable[[bytes], bytes] = bytes,
    origin_headers: tuple[str, str] = SOURCE_HEADERS,
    name: str = "every record",
) -> StreamVerdict:
    """Compare the input topic with the output that a ``read_committed`` reader sees.

    :param between: what other stages make of an input before the stream gets it; they carry its place on in
        ``origin_headers``.
    :raises ClusterUnavailableError: as ``ClusterReader.audited``.
    """
    audit = OutputAudit(lambda line: receipt_of(between(line)), checksum_in, origin_headers, by_key=True)
    findings, hidden, _ = reader.audited(audit, input_topic, output_topic)
    return StreamVerdict(findings, lines, hidden, name)


def receipt_of(value: bytes) -> bytes:
    """Return the checksum that the receipt of a record must have."""
    return hashlib.sha256(value).hexdigest().encode()


def checksum_in(receipt: bytes) -> bytes:
    """Return the checksum in a receipt; empty if the value is no receipt."""
    try:
        return str(json.loads(receipt)["sha256"]).encode()
    except (ValueError, KeyError, TypeError):
        return b""
