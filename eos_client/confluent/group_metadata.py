"""Decodes the generation from librdkafka's opaque group metadata; the only place that knows the layout.

Layout (not a published contract, pinned by a test against the installed library): ``CGMDv2:``, int32 generation or
member epoch in host byte order, group id NUL, member id NUL, int8 "no instance id", and else instance id NUL.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from eos_client.core.model import GroupGeneration

_LAYOUT = re.compile(
    rb"CGMDv2:(?P<generation>.{4})(?P<group>[^\0]*)\0(?P<member>[^\0]*)\0(?:\x01|\0(?P<instance>[^\0]*)\0)", re.DOTALL
)


def decode(metadata: object) -> GroupGeneration | None:
    """Decode ``Consumer.consumer_group_metadata()``; None when the layout is not the known one."""
    found = _LAYOUT.fullmatch(metadata) if isinstance(metadata, bytes) else None
    if found is None:
        return None
    (generation_id,) = struct.unpack("=i", found["generation"])
    try:
        group_id, member_id, _ = ((found[name] or b"").decode() for name in ("group", "member", "instance"))
    except UnicodeDecodeError:
        return None
    return GroupGeneration(generation_id, member_id, group_id)


class GenerationReader:
    """Turns metadata into generations, also when the layout is unknown.

    Then each new byte string counts as a new generation, and a member id that the bytes do not contain counts as no
    member id: changes are still seen and anonymous metadata is still refused, at the price of a few more skips.
    """

    def __init__(self) -> None:
        self._last: object = None
        self._ordinal = 0

    def read(self, metadata: object, memberid: Callable[[], str | None]) -> GroupGeneration:
        """Return the generation in ``metadata``; ``memberid`` asks the client, only where the bytes lack the id."""
        decoded = decode(metadata)
        if decoded is not None:
            return decoded
        if metadata != self._last:
            self._last = metadata
            self._ordinal += 1
        member_id = memberid() or ""
        inside = bool(member_id) and member_id.encode() in (metadata if isinstance(metadata, bytes) else b"")
        return GroupGeneration(self._ordinal, member_id if inside else "")
