"""Members of confluent-kafka's own that leave without freezing the process that the tests run in."""

from __future__ import annotations

from confluent_kafka import Consumer

from eos_client.confluent.consumer.safe_close import serve_before_close


def leave(member: Consumer) -> None:
    """Close a subscribed consumer."""
    serve_before_close(member, unsubscribe=True, is_classic=False)
    member.close()
