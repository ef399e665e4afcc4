"""Reads from librdkafka's log what it reports nowhere else, as far as a recovery depends on it.

A lost connection: librdkafka sends EndTxn and TxnOffsetCommit again on the next one, with the same epoch, and reports
success (`LostConnections.may_have_sent_twice`).

Implicitly acknowledged batches (``IMPLICITACK``): librdkafka counts a batch as written because a later one of its
partition was acknowledged. A newly elected leader may have refused the first and accepted the second
(confluent-kafka-go #921).

Repeated epoch bumps (``GETPID``): the coordinator's log does not hold the epoch before a bump. One that was loaded
since the first request refuses the second as an older producer's (KIP-360).
"""

from __future__ import annotations

import logging
import re
from typing import Any

from confluent_kafka import KafkaError

from eos_client.config.client_settings import is_on
from eos_client.core.lost_connections import LostConnections
from eos_client.observe import LOGGER

_INFO = 6
_DEBUG = 7
_IMPLIED = "IMPLICITACK"
_PARTITIONS_ADDED, _REGISTERED = "ADDPARTS", " registered with transaction"
_IDENTITY, _BUMP_REQUESTED, _IDENTITY_CAME = "GETPID", "Requesting ProducerId bump for ", "Acquired PID{"
_CONTEXTS = ("eos", "broker")
# Retries that any start may need: librdkafka warns of them. One that does not end fails init_transactions() with the
# same reason.
_PASSES = "|".join(
    re.escape(KafkaError(code).str())
    for code in (
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.CONCURRENT_TRANSACTIONS,
    )
)
_IDENTITY_RETRIED = re.compile(rf": (?:{_PASSES}): retrying$")

# librdkafka's own line about a lost connection is not reliable: it suppresses a repetition of a broker's last error for
# 30 s, and writes none for planned closes. A broker's changes of state under debug=broker are all written.
# A line about a connection must match its facility's pattern: what is not understood counts as a loss.
_BROKER = r"^(?:\[thrd:.*?\]: )?(?P<broker>\S+): "
_CHANGED = re.compile(_BROKER + r"Broker changed state (?P<before>\w+) -> (?P<after>\w+)$")
_FAILED = re.compile(_BROKER + r".*\(after \d+ms in state (?P<before>\w+)[,)]")
_ONLY_QUEUED = re.compile(r": Timed out 0 in-flight, \d+ retry-queued, \d+ out-queue, 0 partially-sent requests$")
_AUTHENTICATING = frozenset({"AUTH_LEGACY", "AUTH_HANDSHAKE", "AUTH_REQ"})
_CONNECTED = frozenset({"UP", "REAUTH"}) | _AUTHENTICATING
_NOT_ESTABLISHED = frozenset({"INIT", "DOWN", "TRY_CONNECT", "CONNECT", "SSL_HANDSHAKE", "APIVERSION_QUERY"})
_BOOTSTRAP = "/bootstrap"  # asked for metadata only, and left as soon as the brokers' own addresses are known
_NOT_ADDED = "Failed to add partition "  # of ADDPARTS: the only place that names the refused partition
_NOT_ATTEMPTED = "Broker: Operation not attempted"  # because of another partition, to which another line belongs
_TRANSACTION_FAILED = "TXNERR"  # the next produce() says only _STATE, and not always does a report say more
_CODE_AT_END = re.compile(r"\((\w+)(?:, requires epoch bump)?\)$")
# librdkafka's log levels (syslog) as Python's, in their order; confluent_kafka translates them so.
_PYTHON_LEVELS = (logging.CRITICAL,) * 3 + (logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)


class ClientLog:
    """Stands in for the application's ``logger``, and passes on what the application's settings ask for.

    Without a logger of the application's, lines go to the logger ``eos_client`` of the standard library.
    ``losses`` counts the lines about a lost connection, since the handle was built, ``bump_requests`` those about a
    request for the next epoch, since the last one came. ``has_registered``: the coordinator has confirmed partitions of
    the transaction. ``understood``: the log has reported a connection in the known format. Every handle that was used
    has one, unless the format has changed.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.losses = self.bump_requests = 0
        self.understood = self._reauthenticates = False
        self.has_registered = False
        self.implicit_ack = self.failed = self.partition_refusal = ""
        self._application_logger = settings.get("logger")
        self._debug = str(settings.get("debug") or "")
        level = str(settings.get("log_level", _INFO))
        # The client library refuses what is no level, and takes "debug" for the highest.
        given = min(_DEBUG, int(level)) if level.isdigit() else _INFO
        self._lowest = _PYTHON_LEVELS[_DEBUG if self._debug else given]
        self._closes = is_on(settings, "log.connection.close", default=True)

    def added_to(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return ``settings`` with this log in them, and with the debug contexts that it needs."""
        added = {**settings, "logger": self, "debug": ",".join(filter(None, (self._debug, *_CONTEXTS)))}
        if not self._closes:
            added["log.connection.close"] = True
        return added

    @property
    def failed_code(self) -> str:
        """The code with which the transaction has failed, as its line in the log ends; empty where there is none."""
        found = _CODE_AT_END.search(self.failed)
        return "" if found is None else found[1]

    @property
    def connections(self) -> LostConnections:
        """What it has told of the handle's connections."""
        return LostConnections(self.losses, self.understood)

    def begin_transaction(self) -> None:
        """Forget what the log said about the last transaction."""
        self.implicit_ack = self.failed = self.partition_refusal = ""
        self.has_registered = False

    def log(self, level: int, text: str, *arguments: Any) -> None:
        """Record a line; called while the handle is polled."""
        facility, line = str(arguments[0]), str(arguments[-1])
        lost = self._reports_loss(facility, line)
        self.losses += lost
        if facility == _PARTITIONS_ADDED and line.endswith(_REGISTERED):
            self.has_registered = True
        if facility == _IDENTITY:
            self._record_identity(line)
        if facility == _IMPLIED:
            self.implicit_ack = self.implicit_ack or line
        if _NOT_ADDED in line and _NOT_ATTEMPTED not in line:
            self.partition_refusal = self.partition_refusal or line[line.index(_NOT_ADDED) :]
        if facility == _TRANSACTION_FAILED:
            self.failed = self.failed or line.rpartition("]: ")[2]
        if level < self._lowest or (lost and level <= logging.INFO and not self._closes):
            return
        if facility == _IDENTITY and _IDENTITY_RETRIED.search(line):
            level = logging.DEBUG
        if self._application_logger is not None:
            self._application_logger.log(level, text, *arguments)
        else:
            LOGGER.log(level, "%s %s: %s", facility, arguments[1], line)

    def _record_identity(self, line: str) -> None:
        if _BUMP_REQUESTED in line:
            self.bump_requests += 1
        elif _IDENTITY_CAME in line:
            self.bump_requests = 0

    def _reports_loss(self, facility: str, line: str) -> bool:
        if facility == "STATE":
            changed = _CHANGED.search(line)
            return changed is None or self._lost_by(changed["broker"], changed["before"], changed["after"])
        if facility == "FAIL":
            failed = _FAILED.search(line)
            return failed is None or self._lost_by(failed["broker"], failed["before"], "DOWN")
        return facility == "REQTMOUT" and _ONLY_QUEUED.search(line) is None

    def _lost_by(self, broker: str, before: str, after: str) -> bool:
        self.understood = self.understood or after == "UP"
        self._reauthenticates = self._reauthenticates or after == "REAUTH"
        if broker.endswith(_BOOTSTRAP) or after in _CONNECTED:
            return False
        if before in _AUTHENTICATING:
            return self._reauthenticates
        return before not in _NOT_ESTABLISHED
