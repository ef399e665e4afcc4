"""Judges whether transactions can use the brokers' internal logs: the transaction log and the group offsets.

A broker creates an internal log for its first user, with as many replicas as its settings say; with too few brokers
that user gets no answer. The number of brokers that are up says nothing about a log that exists, and a user who may not
describe it does not know whether it exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial

from eos_client.core.model import TopicDescription

TRANSACTION_LOG = "__transaction_state"
OFFSETS_LOG = "__consumer_offsets"

_SETTINGS = {
    TRANSACTION_LOG: ("transaction.state.log.replication.factor", "transaction.state.log.min.isr"),
    OFFSETS_LOG: ("offsets.topic.replication.factor", "min.insync.replicas"),
}
INTERNAL_LOGS = tuple(_SETTINGS)


@dataclass(frozen=True, slots=True)
class LogFinding:
    """Whether ``log`` can be used; ``way_out`` (the remedy) is empty where nothing needs to be done.

    ``is_usable``: None where that depends on whether it exists, which is not known. ``is_missing``: it does not exist.
    ``prevents_init``: init_transactions gets no answer before the settings or the number of brokers change.
    """

    log: str
    is_missing: bool
    text: str
    way_out: str = ""
    _: KW_ONLY
    is_usable: bool | None = True
    prevents_init: bool = False


def judge_internal_log(
    log: str, settings: Mapping[str, str], brokers: int, logs: Mapping[str, TopicDescription | None]
) -> LogFinding:
    """Judge one of `INTERNAL_LOGS` by the brokers' number and ``settings``, of which this user may be shown none.

    ``logs`` maps a log to None where it does not exist, and lacks those that this user may not describe.
    """
    factor_key, min_isr_key = _SETTINGS[log]
    factor, min_isr, existing = whole_number(settings, factor_key), whole_number(settings, min_isr_key), logs.get(log)
    is_missing = log in logs and existing is None
    judged = partial(LogFinding, log, is_missing)
    too_few = f"the cluster has {brokers} broker(s), but {factor_key}={factor}"
    lacks_brokers = not existing and factor is not None and brokers < factor
    if existing:
        factor, copies = existing.replicas_min, existing.insync_replicas_min
        has, where = f"a partition with {copies} of {factor} replicas", f"{copies} in sync"
    else:
        copies, where = min(brokers, factor or brokers), f"{brokers} brokers"
        has = f"at most {copies} replicas"
    if lacks_brokers and log in logs:
        text = f"cannot be created: {too_few}, so init_transactions ends in a time-out"
        way_out = f"set {factor_key}={brokers} on the brokers, or add brokers"
        return judged(text, way_out, is_usable=False, prevents_init=True)
    if takes_no_writes(copies, factor or copies, min_isr):
        text = f"has {has} in sync, but {min_isr_key}={min_isr}: it takes no writes, so transactions end in time-outs"
        way_out = f"lower the min in-sync replicas to at most {copies}, or bring back the missing brokers"
        return judged(text, way_out, is_usable=False)
    if lacks_brokers:
        text = f"could not be created now: {too_few}, and whether it exists is not known"
        return judged(text, "allow Describe on it to this user", is_usable=None)
    if factor is None or min_isr is None:
        return judged("its settings cannot be read", "allow DescribeConfigs on the cluster to this user")
    figures = f"replication factor {factor}, min in-sync replicas {min_isr}, {where}"
    if factor == 1:
        text = f"{figures}: there is a single copy, on one broker's disk"
        return judged(text, f"raise {factor_key} to 3 where records matter")
    return judged(figures)


def takes_no_writes(in_sync: int, replicas: int, required: int | None) -> bool:
    """Whether a partition refuses ``acks=all``, for its min.insync.replicas are ``required`` (NOT_ENOUGH_REPLICAS).

    Brokers ask for no more of them than the partition has ``replicas`` (seen with Kafka 4.0.0, 4.1.2 and 4.3.1).
    """
    return required is not None and in_sync < min(required, replicas)


def whole_number(settings: Mapping[str, str], key: str) -> int | None:
    """Return a setting that is a number; None where it is not shown."""
    return int(value) if (value := settings.get(key, "")).isdecimal() else None
