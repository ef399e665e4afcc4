"""Applications that once broke a rule, as small as the shrinker made them."""

from __future__ import annotations

from dataclasses import replace

from tests.applications.program import Act, Callback, Event, Odd, Program, Setting, Turn, Write

TAKES = (Turn((Act("consume", 50, 0.3),)),)

ASSIGNED_AGAIN = Program(
    seed=42856,
    style="block",
    setting=Setting(static=True, policy="block"),
    turns=TAKES,
    events=(
        Event(0.47, "kill"),
        Event(1.526, "lose", member=2),
        Event(1.592, "interrupt"),
        Event(2.538, "restart"),
    ),
    members=3,
)

ASSIGNED_UNHEARD = Program(
    seed=500935,
    style="block",
    setting=Setting(protocol="consumer", request_timeout_s=1.0),
    writes=(Write(1.934, 0, 1),),
    turns=(
        Turn((Act("poll"), Act("sleep", seconds=2.0))),
        Turn((Act("consume", 1, 0.05), Act("close_producer"))),
    ),
    callbacks=(Callback("stats_cb", 2, "raise"),),
    events=(
        Event(1.449, "interrupt"),
        Event(3.073, "kill"),
        Event(4.316, "lose_reply", "InitProducerId"),
        Event(4.326, "outage", number=1.0),
    ),
    members=2,
    goes_on=True,
    until_s=6.0,
)

ASSIGNED_UNHEARD_AND_RESTARTED = replace(
    ASSIGNED_UNHEARD,
    writes=(Write(0.511, 0, 1),),
    turns=(
        Turn((Act("poll"), Act("sleep", seconds=2.0))),
        Turn((Act("consume", 1, 0.05), Act("restart"))),
    ),
    events=(
        Event(1.449, "interrupt"),
        Event(3.073, "kill"),
        Event(4.21, "lose_reply", "InitProducerId"),
        Event(4.326, "outage", number=1.0),
    ),
)

LOST_ANSWERS_OF_A_COMMIT = Program(
    seed=501,
    style="block",
    setting=Setting(request_timeout_s=1.0, recovery_timeout_s=0.5),
    partitions=1,
    writes=(Write(0.0, 0, 1),),
    turns=(Turn((Act("consume", 1),)),),
    events=(Event(0.003, "lose_reply", "EndTxn"), Event(0.003, "lose_reply", "InitProducerId")),
    goes_on=True,
)

OUTAGE_LONGER_THAN_A_RECOVERY = Program(
    seed=1586,
    style="block",
    setting=Setting(commit_timeout_s=4.0, recovery_timeout_s=1.0),
    partitions=3,
    writes=(Write(5.626, 0, 1),),
    turns=(Turn((Act("consume", 50),)),),
    events=(Event(5.255, "lose_reply", "EndTxn"), Event(6.255, "outage", number=4.0)),
    goes_on=True,
    until_s=6.0,
)

OUTPUTS_WRITTEN_LATE_AFTER_AN_UNANSWERED_COMMIT = Program(
    seed=1726,
    style="block",
    partitions=1,
    writes=(Write(0.0, 0, 20),),
    turns=(Turn((Act("consume", 3),), late=True),),
    events=(Event(0.204, "lose_reply", "EndTxn"), Event(0.204, "lose_reply", "InitProducerId")),
    goes_on=True,
)

SIGNAL_BEFORE_THE_OFFSETS = Program(
    seed=546,
    style="block",
    writes=(Write(0.0, 0, 5),),
    turns=(Turn((Act("poll", seconds=0.1),)),),
    events=(Event(0.125, "strike_call", "before", "send_offsets_to_transaction"),),
    until_s=1.5,
)

SIGNAL_AFTER_THE_COMMIT = Program(
    seed=1,
    style="block",
    writes=(Write(0.0, 0, 5), Write(0.5, 1, 3)),
    turns=TAKES,
    events=(
        Event(0.002, "strike_call", "after", "commit_transaction"),
        Event(0.4, "strike_call", "after", "commit_transaction"),
    ),
    until_s=1.5,
)

CLOSED_INSIDE = Program(
    seed=563,
    style="block",
    writes=(Write(2.471, 1, 1),),
    turns=(Turn((Act("poll", seconds=0.3), Act("close_producer"))),),
    goes_on=True,
    until_s=6.0,
)

REPEATED_COMMIT_OF_A_FORGOTTEN_ID = Program(
    seed=303,
    style="loop",
    setting=Setting(request_timeout_s=1.0, max_records=1, commit_timeout_s=4.0),
    partitions=3,
    writes=(Write(0.0, 1, 80),),
    events=(
        Event(0.8, "lose_reply", "EndTxn"),
        Event(1.649, "delay", "EndTxn", number=1.3),
        Event(2.401, "delay", "EndTxn", number=1.3),
        Event(2.894, "expire", number=2.0),
    ),
)

FENCED_IN_A_BLOCK = Program(
    seed=962,
    style="block",
    partitions=1,
    turns=(Turn((Act("consume", 3, 0.3),)),),
    events=(Event(0.386, "fence"),),
)

COMMITS_WHILE_IT_LEAVES_AN_UNKNOWN_COMMIT = Program(
    seed=236422,
    style="block",
    writes=(Write(1.737, 0, 1),),
    turns=(Turn((Act("consume", 3),), late=True),),
    callbacks=(Callback("on_revoke", 1, "commit"),),
    events=(
        Event(1.737, "strike_call", "after", "send_offsets_to_transaction"),
        Event(1.737, "strike_call", "after", "init_transactions"),
    ),
    goes_on=True,
    until_s=6.0,
)

COMMITS_WHILE_IT_LEAVES_A_BROKEN_OFF_BLOCK = Program(
    seed=218087,
    style="block",
    setting=Setting(recovery_timeout_s=0.5),
    partitions=3,
    writes=(Write(0.2, 0, 1),),
    turns=(Turn((Act("sleep", seconds=0.5), Act("consume", 2, 0.05))),),
    callbacks=(Callback("on_revoke", 1, "commit"),),
    events=(Event(0.456, "strike_call", "before", "commit_transaction"), Event(0.84, "interrupt")),
    goes_on=True,
    until_s=1.5,
)

WRITTEN_WHILE_THE_START_IS_ASKED_FOR = Program(
    seed=2007905,
    style="block",
    setting=Setting(reset="latest"),
    writes=(Write(0.003, 1, 1),),
    turns=(Turn((Act("consume", 50, 0.3),)),),
)

CLOSED_AND_POLLED_INSIDE = Program(
    seed=2001307,
    style="block",
    partitions=3,
    writes=(Write(0.0, 0, 1),),
    turns=(Turn((Act("poll", seconds=0.1), Act("close_consumer"), Act("poll"))),),
)

CLOSED_INSIDE_AFTER_A_SWALLOWED_FAILURE = Program(
    seed=2002634,
    style="block",
    partitions=1,
    writes=(Write(0.0, 0, 1),),
    turns=(
        Turn(
            (
                Act("poll", seconds=0.3),
                Act("consume", 1),
                Act("consume", 10, 0.3),
                Act("close_consumer"),
            ),
            swallows=True,
        ),
    ),
    members=3,
)

OFFSET_DELETED_BEFORE_A_REBALANCE = Program(
    seed=2001283,
    style="block",
    setting=Setting(assignor="cooperative-sticky", reset="error"),
    partitions=3,
    writes=(Write(0.0, 1, 20), Write(0.0, 2, 2)),
    turns=(Turn((Act("consume", 2, 0.05), Act("raise"))),),
    events=(
        Event(0.0, "set_offset", number=1.0),
        Event(0.0, "set_offset", number=2.0),
        Event(1.263, "revoke"),
        Event(2.945, "delete_records", detail="half", number=2.0),
    ),
    goes_on=True,
)

OFFSET_DELETED_BEFORE_A_DRAIN = Program(
    seed=2005096,
    style="block",
    setting=Setting(protocol="consumer", reset="error"),
    partitions=3,
    writes=(Write(0.0, 1, 5), Write(0.0, 2, 2)),
    turns=(Turn((Act("consume", 2, 0.05), Act("sleep", seconds=0.5))),),
    callbacks=(Callback("stats_cb", 2, "raise"),),
    events=(Event(1.003, "delete_records", detail="half", number=2.0),),
    goes_on=True,
)

EVICTED_UNHEARD_WITH_ALL_IN_HAND = Program(
    seed=3004203,
    style="block",
    setting=Setting(assignor="cooperative-sticky", commit_timeout_s=4.0, recovery_timeout_s=3.0),
    writes=(
        Write(0.0, 0, 10),
        Write(0.0, 1, 10),
        Write(0.394, 0, 1),
        Write(0.563, 1, 2),
        Write(2.07, 0, 2),
        Write(5.336, 0, 1),
    ),
    turns=(Turn((Act("poll", seconds=0.1),)), Turn((Act("consume", 3),)), Turn((Act("poll"),))),
    events=(
        Event(2.08, "lose_request", "EndTxn"),
        Event(4.622, "revoke", number=1.0),
        Event(6.536, "outage", number=4.0),
    ),
    goes_on=True,
    until_s=6.0,
)

LOST_AND_KEPT = Program(
    seed=4056167,
    style="plain",
    setting=Setting(assignor="cooperative-sticky", max_poll_ms=60000),
    writes=(Write(0.0, 0, 1), Write(3.096, 0, 1)),
    turns=(Turn((Act("consume", 1, 0.3), Act("commit_message"))),),
    events=(
        Event(0.003, "lose_request", "OffsetCommit"),
        Event(2.618, "lose_request", "Fetch"),
        Event(4.363, "revoke", number=1.0),
    ),
    until_s=6.0,
)

LOST_INSIDE_A_COMMIT = Program(
    seed=5007391,
    style="plain",
    setting=Setting(protocol="consumer"),
    partitions=3,
    writes=(Write(0.2, 0, 1), Write(0.37, 2, 3)),
    turns=(Turn((Act("consume", 1, 0.3), Act("sleep", seconds=0.5), Act("commit_async"))),),
    callbacks=(Callback("stats_cb", 2, "interrupt"),),
    events=(
        Event(0.886, "lose"),
        Event(0.896, "interrupt"),
        Event(1.401, "refuse", "OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
    ),
)

STRUCK_WHILE_A_START_IS_COMMITTED = Program(
    seed=7001784,
    style="block",
    setting=Setting(protocol="consumer", reset="latest"),
    turns=(Turn((Act("poll", seconds=0.3),)),),
    callbacks=(Callback("on_assign", 0, "go_to_committed"),),
    events=(Event(0.005, "strike_call", "before", "flush"),),
)

START_HELD_BY_THE_GATE = Program(
    seed=9424564,
    style="block",
    setting=Setting(protocol="consumer", reset="latest", request_timeout_s=1.0, commit_timeout_s=4.0),
    turns=(Turn((Act("consume", 2, 0.05), Act("raise"))),),
    events=(
        Event(0.002, "delay", "TxnOffsetCommit", number=1.8),
        Event(0.403, "delay", "TxnOffsetCommit", number=1.8),
        Event(1.503, "outage", number=1.0),
    ),
    members=2,
    goes_on=True,
)

LOST_AND_BACK_AND_PUT_BACK = Program(
    seed=8300234,
    style="loop",
    setting=Setting(reset="error", on_error="dead_letter"),
    writes=(Write(0.0, 0, 3), Write(0.0, 1, 10), Write(0.2, 0, 3), Write(0.4, 0, 3)),
    odds=(Odd("wrong_type", 0, 0),),
    callbacks=(Callback("stats_cb", 1, "interrupt"),),
    events=(Event(0.723, "delay", "EndTxn", number=1.3), Event(1.25, "lose")),
)

DELETED_WHAT_A_BLOCK_HAD_IN_HAND = Program(
    seed=8501067,
    style="block",
    partitions=3,
    writes=(Write(0.0, 1, 2), Write(1.203, 0, 1)),
    turns=(
        Turn((Act("poll", seconds=0.3), Act("raise")), then="commit_message", reopens=True, keeps_alive=True),
        Turn((Act("consume", 50, 0.3), Act("stall", seconds=0.5)), then="commit_message_async", reopens=True),
    ),
    callbacks=(Callback("on_assign", 0, "go_to_committed"), Callback("on_assign", 1, "sleep", number=2.0)),
    events=(Event(0.474, "delete_records", detail="half", number=1.0), Event(2.62, "error_cb")),
)
