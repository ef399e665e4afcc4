"""Finds out why the first contact with a cluster failed.

``init_transactions`` says "timed out" whether the address is wrong, the password is, or the transaction log cannot be
created on a small cluster (confluent-kafka-python #842). This asks the cluster and names the real reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.failures.client_failures import (
    HOW_TO_AUTHENTICATE,
    HOW_TO_REACH_BROKERS,
    lacks_credentials,
    refusal_among,
)
from eos_client.confluent.failures.kafka_errors import kafka_error, make_kafka_error
from eos_client.confluent.last_errors import LastErrors
from eos_client.confluent.listener_probe import how_to_speak
from eos_client.core.internal_logs import INTERNAL_LOGS, LogFinding, judge_internal_log
from eos_client.core.model import TopicDescription
from eos_client.errors import AuthenticationError, ClusterUnavailableError, ClusterUnfitError, EosError

_PROBE_S = 3.0
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
        return unreachable(settings, limit_s, last, f"; {cause}", cause, simulated=True)
    try:
        found = _unusable_logs(settings)
    except AuthenticationError:
        return unreachable(settings, limit_s, last, "", cause, simulated=False, refused=True)
    except ClusterUnfitError:
        pass  # brokers answer, and refuse the questions of this client
    except EosError as error:
        clause = "; asked directly: " + str(error).rpartition(". ")[0]
    else:
        certain = [verdict for verdict in found if verdict.prevents_init]
        reason = "; ".join(f"{verdict.log} {verdict.text}; {verdict.way_out}" for verdict in certain or found)
        if certain:
            not_available = KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE, reason)
            message = f"init_transactions got no answer within {limit_s:g} s: {reason}"
            return make_kafka_error(ClusterUnfitError, not_available, message)
        clause += f"; {reason}" if reason else ""
    return unreachable(settings, limit_s, last, clause, cause, simulated=False)


def unreachable(
    settings: Mapping[str, Any],
    limit_s: float,
    last: LastErrors,
    clause: str = "",
    cause: EosError | None = None,
    *,
    simulated: bool,
    refused: bool = False,
) -> ClusterUnavailableError:
    """Return the error for a bootstrap server that did not answer within ``limit_s`` seconds.

    The port of a ``simulated`` one is not asked what it speaks. ``refused``: because of the credentials, which ``last``
    may say as well.
    """
    refused = refused or lacks_credentials(last.last)
    asked = settings.get("bootstrap.servers", ""), settings.get("security.protocol", "plaintext")
    way_out = "" if simulated or last.last is None else how_to_speak(*asked)
    way_out = way_out or (HOW_TO_AUTHENTICATE if refused else HOW_TO_REACH_BROKERS)
    message = (
        f"no usable answer from bootstrap.servers {str(settings.get('bootstrap.servers', ''))!r} within {limit_s:g} s"
        f"{last.clause(refusal_among(last.by_code) if refused else None)}{clause.rstrip('.')}. {way_out}; "
        f"{_NOTHING_WAS_COMMITTED}"
    )
    return _with_code_of(cause, message, refused=refused)


def never_answered(cause: EosError, limit_s: float) -> ClusterUnavailableError:
    """Return the error for what has failed with ``cause`` until ``limit_s`` seconds were over."""
    message = f"{str(cause).rstrip('.')}; it was asked for {limit_s:g} s; {_NOTHING_WAS_COMMITTED}"
    return _with_code_of(cause, message, refused=False)


def _with_code_of(cause: EosError | None, message: str, *, refused: bool) -> ClusterUnavailableError:
    """Return the error with the code of confluent_kafka's own exception: applications repeat calls because of it."""
    code, retriable = KafkaError._ALL_BROKERS_DOWN, False
    if isinstance(cause, KafkaException):
        code, retriable = kafka_error(cause).code(), kafka_error(cause).retriable()
    kind = AuthenticationError if refused else ClusterUnavailableError
    return make_kafka_error(kind, code, message, retriable=retriable)


def outcome_stays_unknown(error: ClusterUnavailableError, way_out: str = _THE_GROUP_DECIDES) -> ClusterUnavailableError:
    """Return ``error`` as one that says: the outcome of the last commit is unknown, and ``way_out``."""
    what = str(error).removesuffix(_NOTHING_WAS_COMMITTED).rstrip("; .")
    message = f"{what}; the outcome of the last commit is unknown, and {way_out}"
    unknown = _with_code_of(error, message, refused=isinstance(error, AuthenticationError))
    unknown.outcome_is_unknown = True
    return unknown


def asking(settings: Mapping[str, Any]) -> ClusterAdmin:
    """Return a client that asks the cluster of a client with ``settings``, and waits a few seconds at most."""
    own = {k: v for k, v in settings.items() if k.startswith(_SECURITY)}
    return ClusterAdmin(str(settings.get("bootstrap.servers", "")), own, timeout_s=_PROBE_S)


def _unusable_logs(settings: Mapping[str, Any]) -> list[LogFinding]:
    """Return what keeps, or may keep, the internal logs from being used.

    Raises ClusterUnavailableError when the cluster is unreachable, and ClusterUnfitError when it refuses to describe
    itself to this client.
    """
    logs: dict[str, TopicDescription | None] = {}
    with asking(settings) as admin:
        brokers = admin.cluster().brokers
        broker_config = admin.broker_settings(next(iter(brokers)))
        with suppress(ClusterUnfitError):  # the brokers do not describe the logs to this client
            logs = admin.topics(INTERNAL_LOGS)
    verdicts = [judge_internal_log(log, broker_config, len(brokers), logs) for log in INTERNAL_LOGS]
    return [verdict for verdict in verdicts if not verdict.is_usable]
