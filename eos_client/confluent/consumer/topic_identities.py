"""Notices that a topic was deleted and another one of its name was created, from the client library's log.

librdkafka goes on reading the new topic at the old topic's position and does not report that: no error, event or call
shows a topic's id. Only a line of its log does (``debug=metadata``). The poll that serves the records serves that line
too, and before the first record of the new topic: a fetch names the topic's id (brokers since 3.1), so nothing of the
new topic can be read before its id is known. With older brokers the line comes with the next look at the cluster's
metadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from eos_client.confluent.client_log import ClientLog

_CONTEXT = "metadata"
_NO_ID = "A" * 22  # sixteen zero bytes: what a broker before 2.8 answers
_CHANGED = re.compile(r"Topic (?P<topic>\S+) changed id from \S+ to (?P<id>\S+)$")


class TopicIdentities:
    """Collects the ids of topics from the client's log, and passes each line on as the application's settings ask."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._application_log = ClientLog(dict(settings))
        self._debug = str(settings.get("debug") or "")
        self._ids: dict[str, list[str]] = {}
        self._replaced: set[str] = set()

    def added_to(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``settings`` with this log in them, and with the debug context that it needs."""
        return {**settings, "logger": self, "debug": ",".join(filter(None, (self._debug, _CONTEXT)))}

    @property
    def replaced(self) -> frozenset[str]:
        """The topics that were replaced by others of their names, until `acknowledge`."""
        return frozenset(self._replaced)

    def acknowledge(self, topics: frozenset[str]) -> None:
        """Forget the replacement of ``topics``."""
        self._replaced -= topics

    def log(self, level: int, text: str, *arguments: Any) -> None:
        """Record a line; called while the consumer is polled."""
        changed = _CHANGED.search(str(arguments[-1]))
        if changed is not None and changed["id"] != _NO_ID:
            known = self._ids.setdefault(changed["topic"], [])
            # A broker with stale metadata may report an older id again.
            if changed["id"] not in known:
                if known:
                    self._replaced.add(changed["topic"])
                known.append(changed["id"])
        self._application_log.log(level, text, *arguments)
