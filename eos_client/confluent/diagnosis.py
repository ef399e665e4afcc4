"""Finds out why the first contact with a cluster failed.

``init_transactions`` says "timed out" whether the address is wrong, the password is, or the transaction log cannot be
created on a small cluster (confluent-kafka-python #842). This asks the cluster and names the real reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.failures import (
    HOW_TO_AUTHENTICATE,
    HOW_TO_REACH_BROKERS,
    kafka_error,
    lacks_credentials,
    of_kafka,
)
from eos_client.core.error_codes import ALL_BROKERS_DOWN, DELIVERY_REFUSED, REFUSED_WITH_ANOTHER
from eos_client.errors import AuthenticationError, ClusterUnavailableError, ClusterUnfitError, EosError

_PROBE_S = 3.0
_NOTHING_WAS_COMMITTED = "this call has committed nothing."
_THE_GROUP_DECIDES = (
    "the group's committed offsets decide: the next call of the same clients asks for them, and new clients of the "
    "group go on at them."
)
_TOO_LARGE_HINT = (
    " (where no single output is too large, its batch is: set batch.size below the topic's max.message.bytes, or raise "
    "that)"
)
_SECURITY = ("security.", "sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.", "oauth_cb", "broker.address.family")


class LastErrors:
    """An ``error_cb`` that remembers the last error and passes it on to the application's own."""

    def __init__(self, theirs: Callable[[KafkaError], Any] | None) -> None:
        self._theirs = theirs
        self.last: KafkaError | None = None
        self._watches = False
        self._undelivered = self._refused = ""

    def begin_transaction(self) -> None:
        """Forget the failed deliveries of the last transaction."""
        self._undelivered = self._refused = ""

    def __call__(self, error: KafkaError) -> None:
        """Take note of ``error`` and hand it on."""
        if self.last is None or error.name() != ALL_BROKERS_DOWN:  # those before say why
            self.last = error
        if self._theirs is not None:
            self._theirs(error)

    def watching_deliveries(self, theirs: Callable[..., Any] | None) -> Callable[..., Any]:
        """Return a delivery callback that remembers the transaction's failures and passes every report on."""
        self._watches = True

        def on_delivery(error: KafkaError | None, message: Any) -> None:
            if error is not None and not error.name().startswith("_PURGE"):
                self._note_undelivered(error, message)
            if theirs is not None:
                theirs(error, message)

        return on_delivery

    def _note_undelivered(self, error: KafkaError, message: Any) -> None:
        hint = _TOO_LARGE_HINT if error.name() == "MSG_SIZE_TOO_LARGE" else ""
        reason = f"{message.topic()}[{message.partition()}]: {error.name()}: {error.str()}{hint}"
        if not self._undelivered or error.name() != REFUSED_WITH_ANOTHER:
            self._undelivered = reason
        if error.name() in DELIVERY_REFUSED:
            self._refused = self._refused or reason

    def take_refused_delivery(self) -> str:
        """Return to where and why an output of the last transaction was refused for good, once; empty if none was."""
        reason, self._refused = self._refused, ""
        return reason

    @property
    def awaits_undelivered(self) -> bool:
        """Whether a failed delivery would be told here, and was not since the transaction began."""
        return self._watches and not self._undelivered

    def delivery_clause(self) -> str:
        """Return the transaction's last failed delivery as the end of a sentence, or nothing."""
        return f"; the last undelivered output, to {self._undelivered}" if self._undelivered else ""

    def clause(self) -> str:
        """Return the last error as the end of a sentence, or nothing."""
        return "" if self.last is None else f"; the client last reported {self.last.name()}: {self.last.str()}"


def why_init_failed(
    settings: Mapping[str, Any], last: LastErrors, limit_s: float, cause: EosError, *, simulated: bool
) -> EosError:
    """Return the error to raise instead of ``init_transactions``' time-out; simulated brokers are not asked."""
    clause = f"; brokers answer, the transaction coordinator does not: {cause}"
    if simulated:
        return unreachable(settings, limit_s, last, f"; {cause}", cause)
    try:
        unfit = _unfit_transaction_log(settings)
    except AuthenticationError:
        return unreachable(settings, limit_s, last, "", cause, refused=True)
    except EosError as error:
        clause = "; asked directly: " + str(error).removesuffix(f". {HOW_TO_REACH_BROKERS}")
    else:
        if unfit:
            not_available = KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE, unfit)
            return of_kafka(
                ClusterUnfitError, not_available, f"init_transactions got no answer within {limit_s:g} s: {unfit}"
            )
    return unreachable(settings, limit_s, last, clause, cause)


def unreachable(
    settings: Mapping[str, Any],
    limit_s: float,
    last: LastErrors,
    clause: str = "",
    cause: EosError | None = None,
    *,
    refused: bool = False,
) -> ClusterUnavailableError:
    """Return the error for a bootstrap server that did not answer within ``limit_s`` seconds.

    ``refused``: because of the credentials, which ``last`` may tell as well.
    """
    refused = refused or lacks_credentials(last.last)
    message = (
        f"no usable answer from bootstrap.servers {str(settings.get('bootstrap.servers', ''))!r} within {limit_s:g} s"
        f"{last.clause()}{clause}. {HOW_TO_AUTHENTICATE if refused else HOW_TO_REACH_BROKERS}; {_NOTHING_WAS_COMMITTED}"
    )
    return _with_code_of(cause, message, refused=refused)


def _with_code_of(cause: EosError | None, message: str, *, refused: bool) -> ClusterUnavailableError:
    """Return the error with the code of confluent_kafka's own exception: applications repeat calls because of it."""
    code, retriable = KafkaError._ALL_BROKERS_DOWN, False  # noqa: SLF001  # a public local code
    if isinstance(cause, KafkaException):
        code, retriable = kafka_error(cause).code(), kafka_error(cause).retriable()
    kind = AuthenticationError if refused else ClusterUnavailableError
    return of_kafka(kind, code, message, retriable=retriable)


def outcome_stays_unknown(error: ClusterUnavailableError, way_out: str = _THE_GROUP_DECIDES) -> ClusterUnavailableError:
    """Return ``error``, which kept us from finding out what became of a commit, saying so and what ``way_out`` is."""
    what = str(error).removesuffix(_NOTHING_WAS_COMMITTED).rstrip("; .")
    message = f"{what}; the outcome of the last commit is unknown, and {way_out}"
    return _with_code_of(error, message, refused=isinstance(error, AuthenticationError))


def _unfit_transaction_log(settings: Mapping[str, Any]) -> str:
    """Return why the cluster cannot host the transaction log; empty when it can. Raises EosError when unreachable."""
    own = {k: v for k, v in settings.items() if k.startswith(_SECURITY)}
    admin = ClusterAdmin(str(settings.get("bootstrap.servers", "")), own, timeout_s=_PROBE_S)
    cluster = admin.cluster()
    broker_config = admin.broker_settings(next(iter(cluster.brokers)))
    brokers = len(cluster.brokers)
    for key, log in (
        ("transaction.state.log.replication.factor", "transaction log"),
        ("transaction.state.log.min.isr", "transaction log"),
        ("offsets.topic.replication.factor", "group offsets"),
    ):
        wanted = int(broker_config.get(key, 0))
        if wanted > brokers:
            return (
                f"the cluster has {brokers} broker(s), but {key}={wanted}: the {log} cannot be kept. Start more "
                f"brokers, or on a development cluster set {key}=1 on the broker."
            )
    return ""
