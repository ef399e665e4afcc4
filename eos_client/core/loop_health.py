"""The answer to a supervisor's probes: whether a loop is live and ready, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

from eos_client.core.commit_gate import CommitAttempt, CommitDecision, GateSettings, GateState, Question, decide
from eos_client.core.model import UNJOINED, GroupGeneration, InputPosition


@dataclass(frozen=True, slots=True)
class LoopHealth:
    """What a supervisor asks of a loop.

    ``live``: the loop polls, so a restart would gain nothing. ``ready``: it is live, and would commit what it processes
    now. ``reasons``: why it is not live or not ready, in full sentences; empty where it is both.
    """

    ready: bool
    live: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopVitals:
    """What is known of a loop at ``now_s``; times are seconds of the loop's clock.

    ``polled_at_s``: when the loop last began to poll, or ``run()`` began; None before that. ``poll_limit_s``: how long
    ago that may be. ``stop_reason``: why the loop stops or has stopped; ``has_ended``: it has left the group.
    ``is_forked_copy``: the asking process was forked later than the loop was built, and does not run it.
    ``is_assigned``: the group has given this member its assignment, which may be empty, and has not taken all of it
    back. ``generation``: the newest one for which no rebalance callback can be waiting; ``needs_sync``: there is a
    newer one, for which that is not known yet. ``missing_topics``: named topics that a broker did not know any more.
    """

    now_s: float
    _: KW_ONLY
    polled_at_s: float | None = None
    poll_limit_s: float
    stop_reason: str | None = None
    has_ended: bool = False
    is_forked_copy: bool = False
    is_assigned: bool = False
    generation: GroupGeneration = UNJOINED
    needs_sync: bool = False
    missing_topics: frozenset[str] = frozenset()
    gate: GateState
    gate_settings: GateSettings


def health_of(vitals: LoopVitals) -> LoopHealth:
    """Judge a loop by its ``vitals``."""
    not_live = tuple(_why_not_live(vitals))
    not_ready = tuple(_why_not_ready(vitals))
    return LoopHealth(ready=not (not_live or not_ready), live=not not_live, reasons=not_live + not_ready)


def _why_not_live(vitals: LoopVitals) -> Iterator[str]:
    if vitals.has_ended:
        yield f"The loop has ended: {vitals.stop_reason or 'closed'}."
    elif vitals.is_forked_copy:
        yield "The loop does not run in this process, which was forked after it was built: ask the parent."
    elif vitals.polled_at_s is not None and (age_s := vitals.now_s - vitals.polled_at_s) > vitals.poll_limit_s:
        yield (
            f"The loop has not polled for {age_s:.1f} s, longer than liveness_limit_s={vitals.poll_limit_s:g}: its "
            "transform, or a call to the cluster, does not return."
        )


def _why_not_ready(vitals: LoopVitals) -> Iterator[str]:
    """Yield what keeps the loop from committing; the gate is asked as if all assigned partitions had open work."""
    if vitals.has_ended or vitals.is_forked_copy:
        return
    if vitals.polled_at_s is None:
        yield "run() has not been called yet."
    elif vitals.stop_reason is not None:
        yield f"The loop is stopping: {vitals.stop_reason}."
    elif vitals.missing_topics:
        names = ", ".join(map(repr, sorted(vitals.missing_topics)))
        yield f"The input topic {names} does not exist any more, or may not be seen; the cluster is asked once more."
    elif not vitals.is_assigned:
        yield "The group has not assigned partitions to this member yet, or has taken all of them back."
    elif vitals.needs_sync:
        yield "The member epoch has moved, and rebalance callbacks of it may be waiting to be served."
    else:
        position = InputPosition(0, 0, vitals.generation)
        attempt = CommitAttempt(
            dict.fromkeys(vitals.gate.assigned, position), vitals.generation, generation_is_synced=True
        )
        ruling = decide(Question(vitals.gate, attempt, vitals.gate_settings))
        if ruling.decision is not CommitDecision.COMMIT:
            yield f"The gate would not let a commit pass ({ruling.rule}): {ruling.reason}."
