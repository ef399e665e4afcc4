"""The options of ``eos-client demo``; what the demo itself needs is loaded when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class GroupProtocol(str, Enum):
    """Which rebalance protocol the demo's workers speak."""

    CONSUMER = "consumer"
    CLASSIC = "classic"


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The options of ``eos-client demo``. ``bootstrap_servers=None``: start an embedded Kafka.

    ``writes_rows``: the workers write into a database, at ``database_url`` or in an SQLite file of the demo's own.
    """

    bootstrap_servers: str | None = None
    input_name: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    group_protocol: GroupProtocol | None = None
    partition_count: int = 6
    feed_s: float = 20.0
    keep_topics: bool = False
    with_spark: bool = True
    writes_rows: bool = False
    database_url: str | None = None

    @property
    def protocol(self) -> GroupProtocol:
        """The requested protocol, or the one under which a killed worker is noticed soon.

        Under KIP-848 the session timeout is the broker's (45 s unless set), so a caller's cluster gets classic.
        """
        embedded = self.bootstrap_servers is None
        return self.group_protocol or (GroupProtocol.CONSUMER if embedded else GroupProtocol.CLASSIC)
