"""Decodes the generation from librdkafka's opaque group metadata; the only place that knows the layout.

Layout (not a published contract, pinned by a test against the installed library): ``CGMDv2:``, int32 generation or
member epoch in host byte order, group id NUL, member id NUL, int8 "no instance id", and else instance id NUL.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from eos_client.core.model import GroupGeneration

_MAGIC = b"CGMDv2:"
_HEAD = struct.Struct("=i")


def decode(metadata: object) -> GroupGeneration | None:
    """Decode ``Consumer.consumer_group_metadata()``; None when the layout is not the known one."""
    if not isinstance(metadata, bytes) or not metadata.startswith(_MAGIC):
        return None
    start = len(_MAGIC) + _HEAD.size
    parts = metadata[start:].split(b"\0", 2)
    if len(metadata) < start or len(parts) != 3:  # noqa: PLR2004  # group id, member id, the rest
        return None
    group_id, member_id, rest = parts
    instance_id = _instance_id(rest)
    if instance_id is None:
        return None
    (generation_id,) = _HEAD.unpack_from(metadata, len(_MAGIC))
    try:
        return GroupGeneration(generation_id, member_id.decode(), group_id.decode(), instance_id.decode() or None)
    except UnicodeDecodeError:
        return None


def _instance_id(rest: bytes) -> bytes | None:
    if rest == b"\1":
        return b""
    if rest.startswith(b"\0") and rest.endswith(b"\0") and rest.count(b"\0") == 2:  # noqa: PLR2004
        return rest[1:-1]
    return None


class GenerationReader:
    """Turns metadata into generations, also when the layout is unknown.

    Then each new byte string counts as a new generation, and a member id that the bytes do not contain counts as no
    member id: changes are still seen and anonymous metadata is still refused, at the price of a few more skips.
    """

    def __init__(self) -> None:
        self._last: object = None
        self._ordinal = 0

    def read(self, metadata: object, memberid: Callable[[], str | None]) -> GroupGeneration:
        """Return the generation in ``metadata``; ``memberid`` asks the client, only where the bytes do not tell."""
        decoded = decode(metadata)
        if decoded is not None:
            return decoded
        if metadata != self._last:
            self._last = metadata
            self._ordinal += 1
        member_id = memberid() or ""
        inside = bool(member_id) and member_id.encode() in (metadata if isinstance(metadata, bytes) else b"")
        return GroupGeneration(self._ordinal, member_id if inside else "", comparable=False)
