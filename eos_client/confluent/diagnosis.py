"""Finds out why the first contact with a cluster failed.

``init_transactions`` says "timed out" whether the address is wrong, the password is, or the transaction log cannot be
created on a small cluster (confluent-kafka-python #842). This asks the cluster and names the real reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from eos_client.confluent.admin.cluster_admin import OFFSETS_LOG, TRANSACTION_LOG, ClusterAdmin, TopicDescription
from eos_client.confluent.failures.client_failures import HOW_TO_AUTHENTICATE, HOW_TO_REACH_BROKERS, lacks_credentials
from eos_client.confluent.failures.kafka_errors import kafka_error, make_kafka_error
from eos_client.confluent.last_errors import LastErrors
from eos_client.errors import AuthenticationError, ClusterUnavailableError, ClusterUnfitError, EosError

_PROBE_S = 3.0
_MIN_ISR = "transaction.state.log.min.isr"
_NOTHING_WAS_COMMITTED = "this call has committed nothing."
_THE_GROUP_DECIDES = (
    "the group's committed offsets decide: the next call of the same clients asks for them, and new clients of the "
    "group go on at them."
)
_SECURITY = ("security.", "sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.", "oauth_cb", "broker.address.family")


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
    except ClusterUnfitError:
        pass  # brokers answer, and refuse the questions of this client
    except EosError as error:
        clause = "; asked directly: " + str(error).removesuffix(f". {HOW_TO_REACH_BROKERS}")
    else:
        if unfit:
            not_available = KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE, unfit)
            return make_kafka_error(
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

    ``refused``: because of the credentials, which ``last`` may say as well.
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
    return make_kafka_error(kind, code, message, retriable=retriable)


def outcome_stays_unknown(error: ClusterUnavailableError, way_out: str = _THE_GROUP_DECIDES) -> ClusterUnavailableError:
    """Return ``error`` with a message that says: the outcome of the last commit is unknown, and ``way_out``."""
    what = str(error).removesuffix(_NOTHING_WAS_COMMITTED).rstrip("; .")
    message = f"{what}; the outcome of the last commit is unknown, and {way_out}"
    return _with_code_of(error, message, refused=isinstance(error, AuthenticationError))


def _unfit_transaction_log(settings: Mapping[str, Any]) -> str:
    """Return why the cluster cannot make the transaction log or the group offsets; empty when it can, or has them.

    The number of brokers says nothing of a log that exists: one of them may be down.
    Raises ClusterUnavailableError when the cluster is unreachable, or the transaction log takes no writes now, and
    ClusterUnfitError when it refuses to describe itself to this client.
    """
    own = {k: v for k, v in settings.items() if k.startswith(_SECURITY)}
    with ClusterAdmin(str(settings.get("bootstrap.servers", "")), own, timeout_s=_PROBE_S) as admin:
        cluster = admin.cluster()
        broker_config = admin.broker_settings(next(iter(cluster.brokers)))
        logs = admin.topics([TRANSACTION_LOG, OFFSETS_LOG])
    brokers = len(cluster.brokers)
    for key, topic, log in (
        ("transaction.state.log.replication.factor", TRANSACTION_LOG, "transaction log"),
        (_MIN_ISR, TRANSACTION_LOG, "transaction log"),
        ("offsets.topic.replication.factor", OFFSETS_LOG, "group offsets"),
    ):
        wanted = int(broker_config.get(key, 0))
        if wanted > brokers and logs[topic] is None:
            return (
                f"the cluster has {brokers} broker(s), but {key}={wanted}: the {log} cannot be kept. Start more "
                f"brokers, or on a development cluster set {key}=1 on the broker."
            )
    _require_in_sync(logs[TRANSACTION_LOG], int(broker_config.get(_MIN_ISR, 0)))
    return ""


def _require_in_sync(log: TopicDescription | None, min_isr: int) -> None:
    """Raise ClusterUnavailableError when the transaction ``log`` takes no writes until brokers come back."""
    if log is not None and log.insync_replicas_min < min_isr:
        raise ClusterUnavailableError(
            f"{log.name} has a partition with {log.insync_replicas_min} of {log.replicas_min} replicas in sync, but "
            f"{_MIN_ISR}={min_isr}: it takes no writes until brokers are back"
        )
