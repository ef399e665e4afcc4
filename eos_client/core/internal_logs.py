"""Judges whether transactions can use the brokers' internal logs: the transaction log and the group offsets.

A broker creates an internal log for its first user, with as many replicas as its settings say; with too few brokers
that user gets no answer. The number of brokers that are up says nothing about a log that exists, and a user who may not
describe it does not know whether it exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from eos_client.core.model import TopicDescription

TRANSACTION_LOG = "__transaction_state"
OFFSETS_LOG = "__consumer_offsets"

_SETTINGS = {
    TRANSACTION_LOG: ("transaction.state.log.replication.factor", "transaction.state.log.min.isr"),
    OFFSETS_LOG: ("offsets.topic.replication.factor", "min.insync.replicas"),
}


class Usability(Enum):
    """Whether a log can be used."""

    USABLE = "usable"
    SINGLE_COPY = "usable, but kept on one broker only"
    HIDDEN = "its settings cannot be read"
    PERHAPS_MISSING = "it could not be created now, and whether it exists is not known"
    NOT_WRITABLE = "it takes no writes"
    UNFIT = "it does not exist, and cannot be created or would take no writes"


@dataclass(frozen=True, slots=True)
class LogVerdict:
    """Whether ``log`` can be used; ``way_out`` (the remedy) is empty where nothing needs to be done."""

    log: str
    usability: Usability
    text: str
    way_out: str = ""


def judge_internal_logs(
    settings: Mapping[str, str], broker_count: int, logs: Mapping[str, TopicDescription | None]
) -> list[LogVerdict]:
    """Judge both logs by the brokers' ``settings``, of which this user may be shown none.

    ``logs`` maps a log to None where it does not exist, and lacks those that this user may not describe.
    """
    return [
        _judge_existing(log, settings, existing)
        if (existing := logs.get(log))
        else _judge_unseen(log, settings, broker_count, is_missing=log in logs)
        for log in _SETTINGS
    ]


def _judge_existing(log: str, settings: Mapping[str, str], existing: TopicDescription) -> LogVerdict:
    min_isr, factor, in_sync = _setting(settings, log, 1), existing.replicas_min, existing.insync_replicas_min
    if min_isr is not None and min_isr > in_sync:
        has = f"a partition with {in_sync} of {factor} replicas in sync"
        return _not_writable(log, Usability.NOT_WRITABLE, has, min_isr, in_sync)
    return _judge_copies(log, factor, min_isr, f"{in_sync} in sync")


def _judge_unseen(log: str, settings: Mapping[str, str], brokers: int, *, is_missing: bool) -> LogVerdict:
    """Judge a log that does not exist, or, unless it ``is_missing``, of which that is not known."""
    factor, min_isr = _setting(settings, log, 0), _setting(settings, log, 1)
    usable, key = min(brokers, factor or brokers), _SETTINGS[log][0]
    cause = f"the cluster has {brokers} broker(s), but {key}={factor}"
    if is_missing and usable < (factor or 0):
        text = f"cannot be created: {cause}, so init_transactions ends in a time-out"
        return LogVerdict(log, Usability.UNFIT, text, f"set {key}={brokers} on the brokers, or add brokers")
    if min_isr is not None and min_isr > usable:
        usability = Usability.UNFIT if is_missing else Usability.NOT_WRITABLE
        return _not_writable(log, usability, f"at most {usable} replicas in sync", min_isr, usable)
    if usable < (factor or 0):
        text = f"could not be created now: {cause}, and whether it exists is not known"
        return LogVerdict(log, Usability.PERHAPS_MISSING, text, "allow Describe on it to this user")
    return _judge_copies(log, factor, min_isr, f"{brokers} brokers")


def _not_writable(log: str, usability: Usability, has: str, min_isr: int, usable: int) -> LogVerdict:
    text = f"has {has}, but {_SETTINGS[log][1]}={min_isr}: it takes no writes, so transactions end in time-outs"
    way_out = f"lower the min in-sync replicas to at most {usable}, or bring back the missing brokers"
    return LogVerdict(log, usability, text, way_out)


def _judge_copies(log: str, factor: int | None, min_isr: int | None, where: str) -> LogVerdict:
    """Judge a log that can be used as far as its settings show."""
    if factor is None or min_isr is None:
        way_out = "allow DescribeConfigs on the cluster to this user"
        return LogVerdict(log, Usability.HIDDEN, Usability.HIDDEN.value, way_out)
    figures = f"replication factor {factor}, min in-sync replicas {min_isr}, {where}"
    if factor == 1:
        text = f"{figures}: there is a single copy, on one broker's disk"
        return LogVerdict(log, Usability.SINGLE_COPY, text, f"raise {_SETTINGS[log][0]} to 3 where records matter")
    return LogVerdict(log, Usability.USABLE, figures)


def _setting(settings: Mapping[str, str], log: str, which: int) -> int | None:
    value = settings.get(_SETTINGS[log][which], "")
    return int(value) if value.isdecimal() else None
