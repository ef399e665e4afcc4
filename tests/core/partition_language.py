"""The words in which the rules of the table of partitions are told."""

from __future__ import annotations

from eos_client.core.leader_epochs import Misplacement
from eos_client.core.model import CommittedOffset
from eos_client.core.partition_events import (
    Assigned,
    AssignedByHand,
    Committed,
    Fetched,
    HandedOver,
    Processed,
    StartsFound,
)
from eos_client.core.partition_row import ResetPolicy
from eos_client.core.partition_states import ConsumerState, next_state
from eos_client.core.record_runs import Run
from tests.core.gate_language import P0, P1, classic

G4, G5 = classic(4), classic(5)
BOTH = frozenset({P0, P1})
ONLY = frozenset({P0})
END = -1
"""The logical offset of the end of a log, as librdkafka numbers it."""

EARLIEST, LATEST, ERROR = ResetPolicy.EARLIEST, ResetPolicy.LATEST, ResetPolicy.ERROR
TRUNCATION = Misplacement(20, 1, 10, 2)


def after(*happened, state=None, policy=EARLIEST):
    """The state after all that has ``happened``."""
    state = state or ConsumerState(reset_policy=policy)
    for event in happened:
        state = next_state(state, event)
    return state


def run(partition, first, following, epoch=None, gaps=()):
    return Run(partition, tuple(range(first, following)), first, following, ((first, epoch),), gaps)


def error_event(partition, *, leaves=False):
    """An error event; ``leaves``: the end of the partition."""
    return Run(partition, ("event",), is_error=True, leaves_with_partition=leaves)


def handed(*runs, waiting=(), generation=G4):
    return HandedOver(runs, waiting, generation)


def committed(offset, partition=P0, epoch=None):
    return StartsFound({partition: CommittedOffset(offset, "", epoch)})


def started(*partitions, at=10):
    """What happens until ``partitions`` wait for their first record, which is to be the one ``at`` an offset."""
    return (Assigned(frozenset(partitions)), *(committed(at, each) for each in partitions))


def reading(*partitions, until=20, waiting_until=None):
    """A state in which the records 10 to before ``until`` are handed over, and others wait."""
    state = after(*started(*partitions))
    for each in partitions:
        state = after(Fetched((run(each, 10, until),)), state=state)
    state = after(handed(*state.waiting), state=state)
    if waiting_until is not None:
        state = after(Fetched(tuple(run(each, until, waiting_until) for each in partitions)), state=state)
    return state


def settled(*partitions, until=20):
    """A state in which everything before ``until`` is committed."""
    return after(Processed(), Committed(dict.fromkeys(partitions, until)), state=reading(*partitions, until=until))


def withheld(policy=EARLIEST):
    """A state in which the start of one partition must be known before anything is fetched of it."""
    return after(Assigned(ONLY), Fetched((run(P0, 10, 12),)), policy=policy)


def by_hand(*partitions, replaces=True, without_group=True):
    return AssignedByHand(frozenset(partitions), replaces, without_group)
