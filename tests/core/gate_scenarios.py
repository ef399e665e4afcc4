"""What one group member goes through, protocol by protocol, with the gate's answer at every turn.

Generations in callbacks as measured (docs/decisions/membership-and-generations.md): KIP-848 shows the old epoch in
``on_revoke`` and moves about 0.1 s later; classic cooperative already shows the new generation, stays there and moves
again after the follow-up rejoin; classic eager shows the old one until the next assignment.
"""

from __future__ import annotations

from eos_client.core.commit_gate import (
    CommitDecision,
    GateAssigned,
    GateLost,
    GateScope,
    GateSettings,
    HoldEnded,
    RevocationEnded,
    RevocationStarted,
    RuleName,
    WorkEnded,
)
from eos_client.core.model import UNJOINED
from tests.core.gate_language import HOLD_LIMIT_S, P0, P1, P2, Ask, Scenario, classic, epoch, parts

COMMIT, SKIP, ABORT = CommitDecision.COMMIT, CommitDecision.SKIP, CommitDecision.ABORT
SERVE = CommitDecision.SERVE_CALLBACKS
NOTHING = parts()

MEMBER_EPOCHS = (
    Scenario(
        "KIP-848: commit at the old epoch in on_revoke, skip until the epoch moves, then commit",
        (
            GateAssigned(parts(P0, P1, P2)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: epoch(5), P1: epoch(5)}, epoch(5)),
            WorkEnded(),
            RevocationStarted(parts(P2)),
            Ask(COMMIT, RuleName.INSIDE_REVOKE, {P0: epoch(5), P2: epoch(5)}, epoch(5)),
            WorkEnded(),
            RevocationEnded(parts(P2), epoch(5)),
            GateAssigned(NOTHING),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P0: epoch(5)}, epoch(5)),
            Ask(
                SKIP,
                RuleName.REVOCATION_GENERATION,
                {P0: epoch(5), P1: epoch(5)},
                epoch(5),
                served=True,
                held_for_s=0.1,
            ),
            Ask(SERVE, RuleName.CALLBACKS_PENDING, {P0: epoch(5), P1: epoch(5)}, epoch(6), held_for_s=0.2),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: epoch(5), P1: epoch(5)}, epoch(6), served=True, held_for_s=0.2),
            WorkEnded(),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: epoch(6), P1: epoch(6)}, epoch(6)),
        ),
    ),
    Scenario(
        "KIP-848: the epoch had moved before an assignment was told and taken back: the hold limit ends the revocation",
        (
            GateAssigned(parts(P0, P1)),
            RevocationStarted(parts(P1)),
            RevocationEnded(parts(P1), epoch(8)),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P0: epoch(8)}, epoch(8), served=True),
            Ask(ABORT, RuleName.HELD_TOO_LONG, {P0: epoch(8)}, epoch(8), served=True, held_for_s=HOLD_LIMIT_S + 0.1),
            WorkEnded(),
            HoldEnded(),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: epoch(8)}, epoch(8), served=True),
            Ask(ABORT, RuleName.NOT_OURS, {P0: epoch(8), P1: epoch(8)}, epoch(8), served=True),
            RevocationStarted(parts(P0)),
            RevocationEnded(parts(), epoch(8)),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P0: epoch(8)}, epoch(8), served=True),
        ),
    ),
    Scenario(
        "KIP-848: the epoch moves without any callback (another member's rebalance): serve callbacks, then commit",
        (
            GateAssigned(parts(P0, P1)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: epoch(5)}, epoch(5)),
            Ask(SERVE, RuleName.CALLBACKS_PENDING, {P0: epoch(5)}, epoch(6)),
            Ask(SERVE, RuleName.CALLBACKS_PENDING, {P0: epoch(5), P1: epoch(6)}, epoch(6)),
            Ask(SERVE, RuleName.CALLBACKS_PENDING, {P0: epoch(6), P1: epoch(5)}, epoch(6)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: epoch(5), P1: epoch(6)}, epoch(6), served=True),
        ),
    ),
    Scenario(
        "KIP-848: lost and rejoined before on_lost has run: the new epoch must not commit the old work",
        (
            GateAssigned(parts(P0, P1)),
            Ask(SERVE, RuleName.CALLBACKS_PENDING, {P0: epoch(5), P1: epoch(5)}, epoch(8)),
            GateLost(parts(P0, P1), parts(P0, P1)),
            Ask(ABORT, RuleName.LOST_WORK, {P0: epoch(5), P1: epoch(5)}, epoch(8), served=True),
            GateAssigned(parts(P0)),
            Ask(ABORT, RuleName.LOST_WORK, {P0: epoch(5)}, epoch(8), served=True),
            WorkEnded(),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: epoch(8)}, epoch(8), served=True),
        ),
    ),
    Scenario(
        "KIP-848: a revoke callback before which the epoch moved commits only what is proven to be ours still",
        (
            GateAssigned(parts(P0, P1)),
            RevocationStarted(parts(P1)),
            Ask(ABORT, RuleName.NOT_OURS, {P2: epoch(5)}, epoch(6)),
            Ask(ABORT, RuleName.EPOCH_MOVED_BEFORE_REVOKE, {P0: epoch(6), P1: epoch(5)}, epoch(6)),
            Ask(COMMIT, RuleName.INSIDE_REVOKE, {P0: epoch(6), P1: epoch(5)}, epoch(6), served=True),
            Ask(COMMIT, RuleName.INSIDE_REVOKE, {P0: epoch(6), P1: epoch(6)}, epoch(6)),
        ),
    ),
    Scenario(
        "KIP-848: fenced, the epoch is 0 until the member has rejoined: nothing is committed",
        (
            GateAssigned(parts(P0)),
            Ask(ABORT, RuleName.NOT_A_MEMBER, {P0: epoch(5)}, epoch(0)),
            Ask(ABORT, RuleName.NOT_A_MEMBER, {P0: epoch(5)}, epoch(0), served=True),
            GateLost(parts(P0), parts(P0)),
            Ask(ABORT, RuleName.NOT_A_MEMBER, {P0: epoch(5)}, epoch(0), served=True),
            WorkEnded(),
            Ask(COMMIT, RuleName.OUTPUTS_ONLY, {}, epoch(0)),
        ),
    ),
    Scenario(
        "KIP-848: a member that lost everything is not held for a revocation of before",
        (
            GateAssigned(parts(P0, P1)),
            RevocationStarted(parts(P1)),
            RevocationEnded(parts(P1), epoch(5)),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P0: epoch(5)}, epoch(5)),
            GateLost(parts(P0)),
            GateAssigned(parts(P0)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: epoch(5)}, epoch(5)),
        ),
    ),
)

CLASSIC_COOPERATIVE = (
    Scenario(
        "classic cooperative: on_revoke already shows g+1 and commits, g+1 is skipped, g+2 commits",
        (
            GateAssigned(parts(P0, P1)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(4), P1: classic(4)}, classic(4)),
            Ask(SERVE, RuleName.CALLBACKS_PENDING, {P0: classic(4), P1: classic(4)}, classic(5)),
            RevocationStarted(parts(P1)),
            Ask(COMMIT, RuleName.INSIDE_REVOKE, {P0: classic(4), P1: classic(4)}, classic(5)),
            WorkEnded(),
            RevocationEnded(parts(P1), classic(5)),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P0: classic(5)}, classic(5), served=True),
            Ask(SERVE, RuleName.CALLBACKS_PENDING, {P0: classic(5)}, classic(6), held_for_s=0.5),
            GateAssigned(NOTHING),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(5)}, classic(6), served=True, held_for_s=0.5),
        ),
    ),
    Scenario(
        "classic cooperative: a second revocation at the same generation still commits in its callback",
        (
            GateAssigned(parts(P0, P1, P2)),
            RevocationStarted(parts(P2)),
            RevocationEnded(parts(P2), classic(5)),
            RevocationStarted(parts(P1)),
            Ask(COMMIT, RuleName.INSIDE_REVOKE, {P0: classic(5), P1: classic(5)}, classic(5)),
            WorkEnded(),
            RevocationEnded(parts(P1), classic(5)),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P0: classic(5)}, classic(5)),
        ),
    ),
    Scenario(
        "classic cooperative: work of a revoked partition that was not committed in its callback dies",
        (
            GateAssigned(parts(P0, P1)),
            RevocationStarted(parts(P1)),
            RevocationEnded(parts(P1), classic(5), parts(P1)),
            Ask(ABORT, RuleName.NOT_OURS, {P0: classic(4), P1: classic(4)}, classic(5), served=True),
            Ask(ABORT, RuleName.NOT_OURS, {P1: classic(4)}, classic(6), served=True),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(6)}, classic(6), served=True),
            GateAssigned(parts(P1)),
            Ask(ABORT, RuleName.NOT_OURS, {P1: classic(4)}, classic(7), served=True),
            WorkEnded(),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(6), P1: classic(7)}, classic(7), served=True),
        ),
    ),
)

CLASSIC_EAGER = (
    Scenario(
        "classic eager: on_revoke shows g and commits, everything returns at g+1",
        (
            GateAssigned(parts(P0, P1)),
            RevocationStarted(parts(P0, P1)),
            Ask(COMMIT, RuleName.INSIDE_REVOKE, {P0: classic(4), P1: classic(4)}, classic(4)),
            WorkEnded(),
            RevocationEnded(parts(P0, P1), classic(4)),
            Ask(COMMIT, RuleName.OUTPUTS_ONLY, {}, classic(4)),
            Ask(ABORT, RuleName.NOT_OURS, {P0: classic(4)}, classic(4)),
            GateAssigned(parts(P0)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(5)}, classic(5)),
            Ask(ABORT, RuleName.NOT_OURS, {P0: classic(5), P1: classic(4)}, classic(5), served=True),
        ),
    ),
    Scenario(
        "classic eager: while the old generation still shows, even returned partitions wait",
        (
            GateAssigned(parts(P0, P1)),
            RevocationStarted(parts(P0, P1)),
            RevocationEnded(parts(P0, P1), classic(4)),
            GateAssigned(parts(P0)),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P0: classic(4)}, classic(4)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(5)}, classic(5)),
        ),
    ),
    Scenario(
        "classic eager: assigned again in the generation of the revocation (the round was lost with its coordinator)",
        (
            GateAssigned(parts(P0, P1)),
            RevocationStarted(parts(P0, P1)),
            RevocationEnded(parts(P0, P1), classic(4)),
            GateAssigned(parts(P0, P1)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(4)}, classic(4)),
            WorkEnded(),
            RevocationStarted(parts(P0, P1)),
            RevocationEnded(parts(P0, P1), classic(4), parts(P0)),
            GateAssigned(parts(P0, P1)),
            Ask(ABORT, RuleName.NOT_OURS, {P0: classic(4)}, classic(4)),
            WorkEnded(),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(4), P1: classic(4)}, classic(4)),
        ),
    ),
    Scenario(
        "classic: another member id at the same number is another membership",
        (
            GateAssigned(parts(P0, P1)),
            RevocationStarted(parts(P1)),
            RevocationEnded(parts(P1), classic(5, "m1")),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P0: classic(5, "m1")}, classic(5, "m1")),
            Ask(SERVE, RuleName.CALLBACKS_PENDING, {P0: classic(5, "m1")}, classic(5, "m2")),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(5, "m2")}, classic(5, "m2")),
        ),
    ),
)

ANONYMOUS = (
    Scenario(
        "anonymous metadata carries no fence: work is aborted, whatever else is the case",
        (
            Ask(COMMIT, RuleName.OUTPUTS_ONLY, {}, UNJOINED),
            Ask(ABORT, RuleName.NOT_A_MEMBER, {P0: UNJOINED}, UNJOINED),
            GateAssigned(parts(P0, P1)),
            Ask(ABORT, RuleName.NOT_A_MEMBER, {P0: classic(4)}, UNJOINED),
            Ask(ABORT, RuleName.NOT_A_MEMBER, {P0: classic(4)}, UNJOINED, served=True),
            Ask(ABORT, RuleName.NOT_A_MEMBER, {P0: classic(4)}, classic(-1), served=True),
            Ask(ABORT, RuleName.NOT_A_MEMBER, {P0: classic(4)}, classic(4, ""), served=True),
            RevocationStarted(parts(P1)),
            Ask(ABORT, RuleName.NOT_A_MEMBER, {P0: classic(4), P1: classic(4)}, UNJOINED),
            RevocationEnded(parts(P1), UNJOINED, parts(P1)),
            Ask(ABORT, RuleName.NOT_A_MEMBER, {P0: UNJOINED}, UNJOINED),
            GateLost(parts(P0), parts(P0)),
            Ask(ABORT, RuleName.NOT_A_MEMBER, {P0: classic(4)}, UNJOINED),
            Ask(ABORT, RuleName.LOST_WORK, {P0: classic(4)}, classic(5), served=True),
        ),
    ),
)

HOLDING = (
    Scenario(
        "a hold ends: skipped up to the limit, aborted beyond it, committed if the generation moves first",
        (
            GateAssigned(parts(P0, P1)),
            RevocationStarted(parts(P1)),
            RevocationEnded(parts(P1), classic(5)),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P0: classic(4)}, classic(5), served=True),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P0: classic(4)}, classic(5), held_for_s=HOLD_LIMIT_S),
            Ask(
                ABORT,
                RuleName.HELD_TOO_LONG,
                {P0: classic(5)},
                classic(5),
                served=True,
                held_for_s=HOLD_LIMIT_S + 0.001,
            ),
            Ask(ABORT, RuleName.HELD_TOO_LONG, {P0: classic(4)}, classic(5), held_for_s=HOLD_LIMIT_S + 0.001),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(5)}, classic(6), served=True, held_for_s=100 * HOLD_LIMIT_S),
        ),
    ),
    Scenario(
        "a hold of its own length",
        (
            GateAssigned(parts(P0, P1)),
            RevocationStarted(parts(P1)),
            RevocationEnded(parts(P1), classic(5)),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P0: classic(5)}, classic(5), held_for_s=0.4),
            Ask(ABORT, RuleName.HELD_TOO_LONG, {P0: classic(5)}, classic(5), held_for_s=0.6),
        ),
        GateSettings(hold_limit_s=0.5),
    ),
)

OWNERSHIP = (
    Scenario(
        "only what is assigned is committed, inside the callback too",
        (
            Ask(ABORT, RuleName.NOT_OURS, {P0: classic(4)}, classic(4)),
            GateAssigned(parts(P0)),
            GateAssigned(parts(P1)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(4), P1: classic(4)}, classic(4)),
            Ask(ABORT, RuleName.NOT_OURS, {P0: classic(4), P2: classic(4)}, classic(4), served=True),
            RevocationStarted(parts(P1)),
            Ask(ABORT, RuleName.NOT_OURS, {P1: classic(4), P2: classic(4)}, classic(4), served=True),
            Ask(COMMIT, RuleName.INSIDE_REVOKE, {P1: classic(4)}, classic(4)),
        ),
    ),
    Scenario(
        "a revocation whose callback was interrupted is over with the next loss, and with the next assignment",
        (
            GateAssigned(parts(P0, P1)),
            RevocationStarted(parts(P1)),
            GateLost(parts(P1), parts(P1)),
            Ask(SERVE, RuleName.CALLBACKS_PENDING, {P0: classic(4)}, classic(5)),
            RevocationStarted(parts(P0)),
            GateAssigned(parts(P0)),
            Ask(SERVE, RuleName.CALLBACKS_PENDING, {P0: classic(4)}, classic(5)),
        ),
    ),
    Scenario(
        "a partition that was lost without work may be committed when it is ours again, not before",
        (
            GateAssigned(parts(P0, P1)),
            GateLost(parts(P1)),
            Ask(ABORT, RuleName.NOT_OURS, {P1: classic(4)}, classic(5), served=True),
            GateAssigned(parts(P1)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P1: classic(5)}, classic(5)),
        ),
    ),
    Scenario(
        "uncommitted work counts against the partitions that left, not against those that stayed",
        (
            GateAssigned(parts(P0, P1, P2)),
            RevocationStarted(parts(P1)),
            RevocationEnded(parts(P1), classic(5), parts(P0, P1)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(6)}, classic(6)),
            GateLost(parts(P2), parts(P0, P2)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(6)}, classic(6)),
            GateAssigned(parts(P2)),
            Ask(ABORT, RuleName.LOST_WORK, {P0: classic(6), P2: classic(6)}, classic(6)),
        ),
    ),
    Scenario(
        "losses and failed revocations add up until the work is settled",
        (
            GateAssigned(parts(P0, P1, P2)),
            GateLost(parts(P0), parts(P0)),
            GateLost(parts(P1), parts(P1)),
            GateAssigned(parts(P0, P1)),
            Ask(ABORT, RuleName.LOST_WORK, {P0: classic(4)}, classic(5), served=True),
            RevocationStarted(parts(P2)),
            RevocationEnded(parts(P2), classic(5), parts(P2)),
            RevocationStarted(parts(P1)),
            RevocationEnded(parts(P1), classic(6), parts(P1)),
            GateAssigned(parts(P2)),
            Ask(ABORT, RuleName.NOT_OURS, {P2: classic(5)}, classic(7), served=True),
            Ask(ABORT, RuleName.LOST_WORK, {P0: classic(5), P2: classic(5)}, classic(7), served=True),
            WorkEnded(),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(7), P2: classic(7)}, classic(7)),
        ),
    ),
)

SCOPES = (
    Scenario(
        "scope member: a revocation closes the gate for every partition",
        (
            GateAssigned(parts(P0, P1)),
            RevocationStarted(parts(P1)),
            RevocationEnded(parts(P1), epoch(5)),
            GateAssigned(parts(P1)),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P0: epoch(5)}, epoch(5)),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P1: epoch(5)}, epoch(5)),
        ),
        GateSettings(scope=GateScope.MEMBER),
    ),
    Scenario(
        "scope partition: a revocation closes the gate for what it touched",
        (
            GateAssigned(parts(P0, P1)),
            RevocationStarted(parts(P1)),
            RevocationEnded(parts(P1), epoch(5)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: epoch(5)}, epoch(5)),
            Ask(ABORT, RuleName.NOT_OURS, {P0: epoch(5), P1: epoch(5)}, epoch(5)),
            GateAssigned(parts(P1)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: epoch(5)}, epoch(5)),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P1: epoch(5)}, epoch(5)),
            Ask(SKIP, RuleName.REVOCATION_GENERATION, {P0: epoch(5), P1: epoch(5)}, epoch(5)),
            Ask(ABORT, RuleName.HELD_TOO_LONG, {P0: epoch(5), P1: epoch(5)}, epoch(5), held_for_s=HOLD_LIMIT_S + 1),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: epoch(5)}, epoch(5), held_for_s=HOLD_LIMIT_S + 1),
        ),
        GateSettings(scope=GateScope.PARTITION),
    ),
)

FACTS = (
    Scenario(
        "a generation that keeps moving holds work until the limit",
        (
            GateAssigned(parts(P0, P1)),
            Ask(SKIP, RuleName.GENERATION_UNSTABLE, {P0: epoch(5)}, epoch(6), facts={"generation_unstable": True}),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: epoch(6)}, epoch(6), facts={"generation_unstable": True}),
            Ask(
                SKIP,
                RuleName.GENERATION_UNSTABLE,
                {P0: epoch(5)},
                epoch(7),
                held_for_s=HOLD_LIMIT_S,
                facts={"generation_unstable": True},
            ),
            Ask(SERVE, RuleName.CALLBACKS_PENDING, {P0: epoch(5)}, epoch(8), held_for_s=HOLD_LIMIT_S + 1),
            Ask(
                ABORT,
                RuleName.GENERATION_KEEPS_MOVING,
                {P0: epoch(5)},
                epoch(9),
                held_for_s=HOLD_LIMIT_S + 1,
                facts={"generation_unstable": True},
            ),
            RevocationStarted(parts(P1)),
            RevocationEnded(parts(P1), epoch(9)),
            Ask(
                ABORT,
                RuleName.HELD_TOO_LONG,
                {P0: epoch(5)},
                epoch(9),
                held_for_s=HOLD_LIMIT_S + 1,
                facts={"generation_unstable": True},
            ),
        ),
    ),
    Scenario(
        "a member that may have been evicted and readmitted: what its callbacks do not clear up is aborted",
        (
            GateAssigned(parts(P0, P1)),
            Ask(SERVE, RuleName.CALLBACKS_PENDING, {P0: epoch(5)}, epoch(7), facts={"may_be_readmitted": True}),
            Ask(
                ABORT,
                RuleName.MAY_BE_READMITTED,
                {P0: epoch(5)},
                epoch(7),
                served=True,
                facts={"may_be_readmitted": True},
            ),
            RevocationStarted(parts(P1)),
            Ask(COMMIT, RuleName.INSIDE_REVOKE, {P0: epoch(7)}, epoch(7)),
        ),
    ),
    Scenario(
        "what was to be committed left while callbacks were served: abort, whatever is ours by now",
        (
            GateAssigned(parts(P0, P1)),
            Ask(ABORT, RuleName.LEFT_WHILE_SERVING, {P0: epoch(5)}, epoch(5), facts={"departed": parts(P1)}),
            Ask(ABORT, RuleName.LEFT_WHILE_SERVING, {}, epoch(5), facts={"departed": parts(P1)}),
            Ask(ABORT, RuleName.LEFT_WHILE_SERVING, {}, UNJOINED, facts={"departed": parts(P1)}),
        ),
    ),
    Scenario(
        "a transaction with records of a topic that was deleted and created again: abort, whatever else is in it",
        (
            GateAssigned(parts(P0, P1)),
            Ask(ABORT, RuleName.TOPIC_REPLACED, {P0: epoch(5)}, epoch(5), facts={"replaced_topic": "orders"}),
            Ask(ABORT, RuleName.TOPIC_REPLACED, {}, epoch(5), facts={"replaced_topic": "orders"}),
            Ask(
                ABORT,
                RuleName.LEFT_WHILE_SERVING,
                {P0: epoch(5)},
                epoch(5),
                facts={"departed": parts(P1), "replaced_topic": "orders"},
            ),
            RevocationStarted(parts(P1)),
            Ask(ABORT, RuleName.TOPIC_REPLACED, {P0: epoch(5)}, epoch(5), facts={"replaced_topic": "orders"}),
        ),
    ),
    Scenario(
        "an attempt that is bound to one membership passes under no other",
        (
            GateAssigned(parts(P0)),
            Ask(COMMIT, RuleName.ALWAYS_OURS, {P0: classic(5)}, classic(5), facts={"required_membership": classic(5)}),
            Ask(
                ABORT,
                RuleName.MEMBERSHIP_MOVED_ON,
                {P0: classic(5)},
                classic(6),
                True,
                facts={"required_membership": classic(5)},
            ),
            Ask(ABORT, RuleName.MEMBERSHIP_MOVED_ON, {}, classic(5, "m2"), facts={"required_membership": classic(5)}),
            Ask(
                ABORT,
                RuleName.MEMBERSHIP_MOVED_ON,
                {P0: classic(5)},
                classic(6),
                facts={"required_membership": classic(5), "departed": parts(P0)},
            ),
        ),
    ),
)

SCENARIOS = (
    *MEMBER_EPOCHS,
    *CLASSIC_COOPERATIVE,
    *CLASSIC_EAGER,
    *ANONYMOUS,
    *HOLDING,
    *OWNERSHIP,
    *SCOPES,
    *FACTS,
)
