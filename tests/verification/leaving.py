"""Members of confluent-kafka's own that leave without freezing the process that the tests run in."""

from __future__ import annotations

from confluent_kafka import Consumer

from eos_client.confluent.consumer.safe_close import serve_before_close
from eos_client.confluent.group_metadata import decode


def leave(member: Consumer) -> None:
    """Close a consumer that has subscribed, or that has assigned its partitions itself.

    What was assigned without a group is given back here: no rebalance takes it away, and nothing is to be waited for.
    """
    generation = decode(member.consumer_group_metadata())
    if generation is not None and generation.generation_id < 0:
        member.unassign()
    serve_before_close(member, unsubscribe=True, is_classic=False)
    member.close()
