"""The bytes in which confluent_kafka passes the group metadata from a consumer to a producer."""

from __future__ import annotations

import struct

from eos_client.testing.simulator.brokers.model import Membership

_MAGIC = b"CGMDv2:"
_HEAD = struct.Struct("=i")
_NO_INSTANCE = b"\1"
_INSTANCE = b"\0"


def encode(group_id: str, membership: Membership) -> bytes:
    """Return the metadata of ``membership``, as ``Consumer.consumer_group_metadata()`` does."""
    instance_id = membership.instance_id
    instance = _NO_INSTANCE if instance_id is None else _INSTANCE + instance_id.encode() + b"\0"
    names = group_id.encode() + b"\0" + membership.member_id.encode() + b"\0"
    return _MAGIC + _HEAD.pack(membership.generation) + names + instance


def decode(metadata: bytes) -> tuple[str, Membership]:
    """Return the group id and the membership in ``metadata``; raises ValueError for bytes of another layout."""
    start = len(_MAGIC) + _HEAD.size
    parts = metadata[start:].split(b"\0", 2)
    if not metadata.startswith(_MAGIC) or len(parts) != 3:  # noqa: PLR2004  # group id, member id, instance
        raise ValueError(f"not group metadata: {metadata!r}")
    (generation,) = _HEAD.unpack_from(metadata, len(_MAGIC))
    instance_id = None if parts[2] == _NO_INSTANCE else parts[2][1:-1].decode()
    return parts[0].decode(), Membership(generation, parts[1].decode(), instance_id)
