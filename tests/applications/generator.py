"""Draws legal applications from a seed. What may occur in them is a set of named ingredients."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from random import Random

from tests.applications.program import Act, Callback, Event, Odd, Program, Setting, Turn, Write
from tests.support.protocols import CONSUMER, COOPERATIVE, EAGER, protocol_and_assignor

INGREDIENTS = frozenset(
    {
        "async_exceptions",
        "batches",
        "broker_refusals",
        "callbacks_go_to_committed",
        "callbacks_raise",
        "callbacks_seek",
        "closes_inside",
        "commit_callback_raises",
        "commit_in_callbacks",
        "commits_after_blocks",
        "commits_before_blocks",
        "delivery_raises",
        "end_events",
        "error_callback_raises",
        "failed_commits",
        "faults",
        "generated_ids",
        "gives_back",
        "given_offsets",
        "groups",
        "hooks_raise",
        "keeps_alive",
        "kills",
        "late_copies",
        "late_outputs",
        "latest",
        "log_callback_raises",
        "log_start_moves",
        "long_transforms",
        "misuse",
        "near_limit_letters",
        "no_reset",
        "odd_numbers",
        "outages",
        "patterns",
        "pauses",
        "producer_callbacks_raise",
        "refused_outputs",
        "replaces_producers",
        "rows_of_refusals",
        "several_polls",
        "slow_transforms",
        "stalls",
        "stats_callback_raises",
        "stored_offsets",
        "strikes_at_the_end",
        "swallowed_errors",
        "throttle_callback_raises",
        "unknown_topics",
        "wrong_clocks",
    }
)

LOOP_REFUSED = ("wrong_type", "too_large", "bad_partition")
_FAULTS = ("lose_reply", "lose_request", "duplicate", "delay", "refuse")
DRAWN_APART = frozenset(
    {"batches", "commits_before_blocks", "gives_back", "replaces_producers", "unknown_topics", "wrong_clocks"}
)
_COORDINATOR = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
LONG_ROW = 70
"""More records in a row than a loop could find one by one before it gives up."""
ENDS_MAX = 12
"""So many processes that end after long transforms are over before the environment gives up waiting."""
REFUSALS = {
    "EndTxn": (*_COORDINATOR, "CONCURRENT_TRANSACTIONS", "UNKNOWN_SERVER_ERROR", "REQUEST_TIMED_OUT"),
    "TxnOffsetCommit": (*_COORDINATOR, "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "REQUEST_TIMED_OUT"),
    "AddOffsetsToTxn": (*_COORDINATOR, "CONCURRENT_TRANSACTIONS", "INVALID_PRODUCER_ID_MAPPING"),
    "AddPartitionsToTxn": (*_COORDINATOR, "CONCURRENT_TRANSACTIONS", "INVALID_PRODUCER_ID_MAPPING"),
    "Produce": ("NOT_LEADER_FOR_PARTITION", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT", "OUT_OF_ORDER_SEQUENCE_NUMBER"),
    "InitProducerId": (*_COORDINATOR, "CONCURRENT_TRANSACTIONS"),
    "OffsetFetch": (*_COORDINATOR, "UNSTABLE_OFFSET_COMMIT"),
    "OffsetCommit": (*_COORDINATOR, "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REQUEST_TIMED_OUT"),
    "Fetch": ("NOT_LEADER_FOR_PARTITION",),
    "ListOffsets": ("NOT_LEADER_FOR_PARTITION",),
    "JoinGroup": _COORDINATOR,
    "SyncGroup": ("REBALANCE_IN_PROGRESS",),
    "Heartbeat": ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "NOT_COORDINATOR"),
    "ConsumerGroupHeartbeat": ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "NOT_COORDINATOR"),
}
ENDING_CALLS = ("flush", "send_offsets_to_transaction", "commit_transaction", "abort_transaction", "init_transactions")
THEN = ("commit", "commit_async", "commit_message", "commit_message_async", "commit_message_async")
STEPS_MAX = 3_000
"""An ending has about so many steps; the number varies."""
_PROTOCOLS = [protocol_and_assignor(protocol) for protocol in (EAGER, COOPERATIVE, CONSUMER)]
CLOCK_AHEAD_S = 7_200.0
"""By more than the hour that brokers allow."""
_VALIDATIONS = ("assignment_epoch", "exact", "assignment_epoch", "revocation_epoch_member")


def draw(seed: int, ingredients: frozenset[str] = INGREDIENTS) -> Program:
    """Return the application of ``seed``; the same seed and ingredients give the same one."""
    return _Draw(seed, ingredients).program()


def _with_events(drawn: Program, *events: Event) -> Program:
    return replace(drawn, events=tuple(sorted((*drawn.events, *events), key=lambda event: event.at_s)))


class _Draw:
    """One application in the making."""

    def __init__(self, seed: int, ingredients: frozenset[str]) -> None:
        self.random = Random(f"application {seed}")
        self.seed = seed
        self._wanted = ingredients
        dice = self.random.random()
        self.style = "loop" if dice < 0.4 else "block" if dice < 0.85 else "plain"
        # Each program has some of what is allowed, so that rare things also meet an otherwise quiet environment.
        share = self.random.choice((0.15, 0.4, 0.8))
        together = sorted(INGREDIENTS - DRAWN_APART)
        self.has = {each for each in together if self.random.random() < share} & ingredients
        self.partitions = self.random.choice((1, 2, 2, 3))
        self.until_s = self.random.choice((1.5, 3.0, 3.0, 6.0))
        self._busy_s = [0.002]

    def apart(self, ingredient: str, share: float) -> bool:
        """Draw something that was not thought of before, and leave all else of a seed's application as it was."""
        return ingredient in self._wanted and Random(f"{ingredient} {self.seed}").random() < share

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def time(self) -> float:
        """Any moment, or one at which records are on their way to the application."""
        near = self.random.choice(self._busy_s)
        if self.chance(0.5) and near < self.until_s:
            soon_s = self.random.choice((0.0, 0.001, 0.003, 0.01, 0.05, 0.1, 0.2))
            return round(min(near + soon_s, self.until_s - 0.001), 3)
        return round(self.random.uniform(0.0, self.until_s), 3)

    def program(self) -> Program:
        random = self.random
        members = random.choice((1, 2, 3)) if "groups" in self.has else 1
        setting = self.setting(members)
        writes = self.writes()
        drawn = Program(
            seed=self.seed,
            style=self.style,
            setting=setting,
            partitions=self.partitions,
            writes=writes,
            odds=self.odds(writes, setting.on_error) if self.style != "plain" else (),
            turns=tuple(self.turn() for _ in range(random.randint(1, 3))) if self.style != "loop" else (),
            callbacks=self.callbacks(setting.reset),
            events=tuple(sorted(self.events(setting, members), key=lambda event: event.at_s)),
            members=members,
            as_bytes=self.style == "loop" and self.chance(0.3),
            goes_on="outages" in self.has and self.style == "block",
            gives_back=self.style == "plain" and self.apart("gives_back", 0.5),
            batches=self.style == "loop" and self.apart("batches", 0.4),
            replaces=self.style == "block" and self.apart("replaces_producers", 0.5),
            until_s=self.until_s,
        )
        return self.with_commits_first(self.with_wrong_clock(self.with_unknown_topic(drawn)))

    def with_commits_first(self, drawn: Program) -> Program:
        """Let each process commit plainly, by a consumer that no block takes then: another one goes on."""
        # An on_revoke that commits would count the record that shows where to go on as processed.
        commits_in_callbacks = any(callback.does == "commit" for callback in drawn.callbacks)
        if self.style != "block" or commits_in_callbacks or not self.apart("commits_before_blocks", 0.5):
            return drawn
        random = Random(f"commits before blocks {self.seed}")
        delays = [Event(0.0, "delay", "OffsetCommit", number=random.choice((0.4, 1.3, 1.8)))] * random.choice((0, 1, 2))
        return _with_events(replace(drawn, commits_first=random.choice(("commit", "commit_async"))), *delays)

    def with_unknown_topic(self, drawn: Program) -> Program:
        """Let the brokers refuse offsets once as those of a topic that is gone, which a matched topic may be."""
        is_by_pattern = drawn.setting.topic_kind == "pattern" and self.style != "plain"
        if not (is_by_pattern and self.apart("unknown_topics", 0.7)):
            return drawn
        random = Random(f"unknown topic {self.seed}")
        at_s = round(random.uniform(0.0, self.until_s), 3)
        return _with_events(drawn, Event(at_s, "unknown_topic", member=random.randrange(drawn.members)))

    def with_wrong_clock(self, drawn: Program) -> Program:
        """Let the clock of a member's host be wrong for a while."""
        if self.style == "plain" or not self.apart("wrong_clocks", 0.5):
            return drawn
        random = Random(f"wrong clock {self.seed}")
        member, at_s = random.randrange(drawn.members), round(random.uniform(-0.5, self.until_s), 3)
        for_s = random.choice((0.3, 1.0, 3.0))
        clock = [Event(max(0.0, at_s), "wrong_clock", member=member, number=CLOCK_AHEAD_S)]
        clock += [Event(round(max(0.0, at_s) + for_s, 3), "wrong_clock", member=member)]
        return replace(_with_events(drawn, *clock), odds=(*drawn.odds, *self.own_times(random, drawn)))

    def own_times(self, random: Random, drawn: Program) -> list[Odd]:
        """Draw records, often in rows, that have outputs with times of the application's own."""
        taken = {(odd.partition, odd.first + each) for odd in drawn.odds for each in range(odd.count)}
        odds = []
        for _ in range(random.randrange(5)):
            kind, partition = random.choice(("stamped", "stamped", "bad_time")), random.randrange(self.partitions)
            written = sum(write.count for write in drawn.writes if write.partition == partition)
            free = [each for each in range(written) if (partition, each) not in taken]
            if free:
                first, many = random.choice((free[0], random.choice(free))), random.choice((1, 1, 5, ENDS_MAX))
                row = range(first, first + (many if kind == "stamped" else 1))
                count = sum(1 for _ in takewhile(set(free).__contains__, row))
                taken.update((partition, first + each) for each in range(count))
                odds.append(Odd(kind, partition, first, count))
        return odds

    def setting(self, members: int) -> Setting:
        random = self.random
        reset = "latest" if "latest" in self.has and self.chance(0.6) else "earliest"
        # Only of a group without members can somebody set the offsets that are missing.
        reset = "error" if "no_reset" in self.has and members == 1 and self.chance(0.7) else reset
        protocol, assignor = random.choice(_PROTOCOLS)
        is_loop = self.style == "loop"
        drawn = Setting(
            protocol=protocol,
            assignor=assignor,
            validation=random.choice(_VALIDATIONS) if protocol == "consumer" else "assignment_epoch",
            reset=reset,
            static=self.chance(0.15) and reset != "error",
            end_events="end_events" in self.has and self.chance(0.5),
            max_poll_ms=300_000 if "long_transforms" in self.has else random.choice((300_000, 60_000, 10_000)),
            request_timeout_s=1.0 if "late_copies" in self.has else random.choice((60.0, 60.0, 5.0, 1.0)),
            commit_interval_s=random.choice((0.1, 0.1, 0.5, 0.02)),
            max_records=random.choice((100_000, 100_000, 7, 1)),
            batch_size=random.choice((500, 500, 3, 1)),
            commit_timeout_s=random.choice((2.0, 4.0)),
            hold_limit_s=random.choice((3.0, 5.0, 0.5)),
            scope=random.choice(("member", "member", "partition")),
            policy=random.choice(("skip", "skip", "hold", "block")),
            transaction_timeout_ms=10_000 if "long_transforms" in self.has and is_loop else None,
            recovery_timeout_s=random.choice((0.5, 1.0, 3.0)) if "outages" in self.has and not is_loop else 30.0,
            on_error=random.choice(("stop", "skip", "dead_letter")) if is_loop else "stop",
            attempts_max=random.choice((1, 1, 3)) if is_loop else 1,
            topic_kind="pattern" if "patterns" in self.has and self.chance(0.6) else "named",
            generated_id="generated_ids" in self.has and self.style != "plain",
            stores=random.choice(("messages", "offsets")) if self._stores_offsets else "",
        )
        # Where such a member exceeds its interval while a rebalance callback waits for its poll, librdkafka (2.16) lets
        # its heartbeats go on without a member id, which the group takes for an older instance: the process ends.
        is_classic_static = drawn.static and protocol == "classic"
        return replace(drawn, max_poll_ms=300_000) if is_classic_static else drawn

    def writes(self) -> tuple[Write, ...]:
        random = self.random
        many = 80 if "rows_of_refusals" in self.has and self.style == "loop" else 40
        first = [Write(0.0, p, random.choice((0, 3, 10, 20, many))) for p in range(self.partitions)]
        later = [
            Write(
                round(random.uniform(0.0, self.until_s), 3), random.randrange(self.partitions), random.choice((1, 2, 6))
            )
            for _ in range(random.randrange(7))
        ]
        if "late_copies" in self.has:
            later += [Write(round(each / 5, 3), 0, 3) for each in range(1, round(self.until_s * 5))]
        self._busy_s += [write.at_s for write in later]
        return tuple(sorted((w for w in (*first, *later) if w.count), key=lambda write: write.at_s))

    # -- what is odd about records -------------------------------------------------------------------------------

    def odds(self, writes: tuple[Write, ...], on_error: str) -> tuple[Odd, ...]:
        random = self.random
        kinds = ["none", "two", "flaky", "raises"]
        kinds += ["slow"] * (2 * ("slow_transforms" in self.has))
        kinds += ["very_slow"] * (3 * ("long_transforms" in self.has and self.style == "loop"))
        kinds += LOOP_REFUSED if "refused_outputs" in self.has else ()
        kinds += ("huge_partition", "huge_timestamp") if "odd_numbers" in self.has else ()
        kinds += ("broker_refuses",) * 2 if "broker_refusals" in self.has else ()
        kinds += ("large_and_raises",) * 3 if "near_limit_letters" in self.has else ()
        ends = {p: sum(w.count for w in writes if w.partition == p) for p in range(self.partitions)}
        if "rows_of_refusals" in self.has and on_error != "stop" and ends[0] > LONG_ROW:
            return (Odd(random.choice((*LOOP_REFUSED, "broker_refuses")), 0, random.randrange(5), LONG_ROW),)
        taken: set[tuple[int, int]] = set()
        odds = []
        for _ in range(random.randrange(5)):
            partition = random.randrange(self.partitions)
            if not ends[partition]:
                continue
            kind, first = random.choice(kinds), random.randrange(ends[partition])
            long = "rows_of_refusals" in self.has and kind in (*LOOP_REFUSED, "raises", "broker_refuses")
            count = min(random.choice((1, 1, 2, 70) if long else (1, 1, 2)), ends[partition] - first)
            if on_error == "stop" and "very_slow" in kinds:
                count = min(count, ENDS_MAX)
            places = {(partition, first + each) for each in range(count)}
            if not places & taken:
                taken |= places
                odds.append(Odd(kind, partition, first, count))
        return tuple(odds)

    # -- what the application does -------------------------------------------------------------------------------

    def turn(self) -> Turn:
        several = "several_polls" in self.has
        if self.style == "block" and "late_copies" in self.has and self.chance(0.7):
            acts = self.lingering()
        elif self.style == "block" and several and self.chance(0.5):
            acts = self.gathering()
        else:
            acts = self.acts(several=several)
        # A second attempt with nothing done in between is taken for the block of a process that was interrupted.
        first_nested = acts.index(Act("nested")) if Act("nested") in acts else len(acts)
        acts = [act for place, act in enumerate(acts) if act != Act("nested") or place == first_nested]
        if self.style == "plain":
            acts += self.commits()
        return Turn(
            tuple(acts),
            swallows="swallowed_errors" in self.has and self.chance(0.4),
            late="late_outputs" in self.has and self.style == "block" and self.chance(0.6),
            then=self.random.choice(THEN) if self._commits_after_blocks else "",
            reopens=self._commits_after_blocks and self.chance(0.7),
            keeps_alive="keeps_alive" in self.has and self.style == "block" and self.chance(0.7),
        )

    @property
    def _commits_after_blocks(self) -> bool:
        return "commits_after_blocks" in self.has and self.style == "block"

    @property
    def _stores_offsets(self) -> bool:
        return "stored_offsets" in self.has and self.style == "plain"

    def commits(self) -> list[Act]:
        """How a round of plain use ends; where commits fail, often by asking whether the last one got through."""
        if "failed_commits" in self.has and self.chance(0.5):
            return [Act("commit_async"), Act("sleep", seconds=self.random.choice((0.01, 0.5))), Act("commit")]
        if "given_offsets" in self.has and self.chance(0.6):
            return [self.random.choice((Act("commit_offsets"), Act("commit_offsets_async")))]
        return [self.random.choice((Act("commit"), Act("commit"), Act("commit_async"), Act("commit_message")))]

    def acts(self, *, several: bool) -> list[Act]:
        more = self.random.choice((0, 1, 2, 3)) if several else self.random.choice((0, 0, 1, 2))
        return [self.taking(), *(self.act(several=several) for _ in range(more))]

    def gathering(self) -> list[Act]:
        """A block that waits for more records with some in hand, so that a rebalance is served meanwhile."""
        taking = Act("consume", self.random.choice((1, 3, 10)), 0.05)
        waiting = [Act("poll", seconds=0.3) for _ in range(self.random.choice((1, 2)))]
        return [taking, *waiting, *([Act("raise")] if self.chance(0.5) else [])]

    def lingering(self) -> list[Act]:
        """A transaction that is open for a while with outputs, and then often aborted."""
        acts = [Act("consume", 2, 0.05), Act("sleep", seconds=0.5), Act("consume", 2, 0.05)]
        return [*acts, *([Act("raise")] if self.chance(0.5) else [])]

    def taking(self) -> Act:
        random = self.random
        if self.chance(0.3):
            return Act("poll", seconds=random.choice((0.0, 0.1, 0.3)))
        return Act("consume", random.choice((1, 3, 10, 50)), random.choice((0.0, 0.05, 0.3)))

    def act(self, *, several: bool) -> Act:
        random = self.random
        choices = [Act("sleep", seconds=random.choice((0.01, 0.5, 2.0)))]
        if several:
            choices += [self.taking(), self.taking(), self.taking()]
        if "stalls" in self.has:
            choices.append(Act("stall", seconds=random.choice((0.5, 4.0, 12.0))))
        if "pauses" in self.has:
            choices += [Act("pause", random.randrange(3)), Act("resume")]
        if "callbacks_seek" in self.has:
            choices.append(Act("seek_back", random.choice((1, 3))))
        if "misuse" in self.has and self.style == "block":
            misuses = ("nested", "commit_inside", "produce_after", "assign_by_hand", "second_transaction")
            choices.append(Act(random.choice(misuses)))
        if "closes_inside" in self.has and self.style == "block":
            choices.append(Act(random.choice(("close_producer", "close_consumer"))))
        if self.chance(0.25):
            choices.append(Act("raise"))
        if self.chance(0.1):
            choices.append(Act("restart"))
        return random.choice(choices)

    def callbacks(self, reset: str) -> tuple[Callback, ...]:
        random, does = self.random, list[Callback]()
        wheres = ["on_assign", "on_revoke", "on_lost"]
        if self.style == "loop":
            wheres = []
        if "callbacks_raise" in self.has:
            does += [Callback(where, random.randint(1, 3), "raise") for where in wheres if self.chance(0.5)]
        if "callbacks_seek" in self.has and wheres and self.style == "plain" and reset == "earliest":
            does.append(Callback("on_assign", random.randint(1, 3), "seek"))
        if "callbacks_go_to_committed" in self.has and self.style == "block":
            does.append(Callback("on_assign", 0, "go_to_committed"))
        if "pauses" in self.has and wheres:
            does.append(Callback("on_assign", random.randint(1, 3), "pause"))
        if "commit_in_callbacks" in self.has and wheres:
            does.append(Callback("on_revoke", random.randint(1, 3), "commit"))
        if wheres and self.chance(0.2):
            does.append(Callback(random.choice(wheres), random.randint(1, 3), "sleep", random.choice((0.3, 2.0))))
        if "hooks_raise" in self.has:
            does.append(Callback("hook", random.randint(1, 12), "raise"))
        return (*does, *self.client_callbacks())

    def client_callbacks(self) -> list[Callback]:
        """What the callbacks raise that tell of commits, deliveries, statistics and the client library's log."""
        random, does = self.random, list[Callback]()
        if "stats_callback_raises" in self.has:
            does.append(Callback("stats_cb", random.randint(1, 6), random.choice(("raise", "interrupt"))))
        if "commit_callback_raises" in self.has and self.style == "plain":
            does += [Callback("on_commit", random.randint(1, 3), "raise") for _ in range(random.choice((1, 2)))]
        if self.style == "plain":
            return does
        if "delivery_raises" in self.has:
            does.append(Callback("on_delivery", random.randint(1, 20), "raise"))
        if "producer_callbacks_raise" in self.has:
            raised = random.choice(("raise", "raise", "interrupt"))
            does.append(Callback("producer_stats_cb", random.randint(1, 6), raised))
        if "log_callback_raises" in self.has:
            does.append(Callback("logger", random.randint(1, 2), "raise"))
        return does

    # -- what happens around it ----------------------------------------------------------------------------------

    def events(self, setting: Setting, members: int) -> list[Event]:
        random, events = self.random, list[Event]()
        if "faults" in self.has:
            events += [self.fault(setting, members) for _ in range(random.choice((1, 2, 5)))]
        if "several_polls" in self.has:
            events += [self.revoke() for _ in range(random.choice((0, 1, 3)))]
        if "failed_commits" in self.has and self.style == "plain":
            events += [self.failed_commit() for _ in range(random.choice((1, 2, 4)))]
        if setting.reset == "error":
            known = [partition for partition in range(self.partitions) if self.chance(0.4)]
            events += [Event(0.0, "set_offset", number=float(partition)) for partition in known]
        if "outages" in self.has:
            events += self.outage()
        if "log_start_moves" in self.has:
            partition = random.randrange(self.partitions)
            events.append(Event(self.time(), "delete_records", number=float(partition), detail="half"))
        if self.style != "plain":
            events += self.transactional_events(members)
        return events + self.process_events(members)

    def process_events(self, members: int) -> list[Event]:
        random, names = self.random, list[str]()
        if "async_exceptions" in self.has:
            names += ["interrupt"] * random.randint(1, 3)
        if "error_callback_raises" in self.has:
            names.append("error_cb")
        if "throttle_callback_raises" in self.has:
            names.append("throttle")
        if "producer_callbacks_raise" in self.has and self.style != "plain":
            names += ["producer_error_cb"] * random.randint(1, 2)
        if "kills" in self.has:
            names.append("kill")
        if self.style == "loop" and self.chance(0.3):
            names.append("stop")
        return [Event(self.time(), name, member=random.randrange(members)) for name in names]

    def transactional_events(self, members: int) -> list[Event]:
        random, events = self.random, list[Event]()
        if "late_copies" in self.has:
            request, seconds = random.choice(("EndTxn", "EndTxn", "TxnOffsetCommit")), random.choice((1.1, 1.3, 1.8))
            events += [Event(self.time(), "delay", request, number=seconds) for _ in range(3)]
        if "strikes_at_the_end" in self.has and self.style == "block":
            events += self.strikes(members)
        return events

    def failed_commit(self) -> Event:
        if self.chance(0.3):
            return Event(self.time(), self.random.choice(("lose_request", "lose_reply")), "OffsetCommit")
        return Event(self.time(), "refuse", "OffsetCommit", self.random.choice(REFUSALS["OffsetCommit"]))

    def revoke(self) -> Event:
        return Event(self.time(), "revoke", number=float(self.random.randrange(self.partitions)))

    def strikes(self, members: int) -> list[Event]:
        """Signals while blocks end, also of blocks that follow each other."""
        random, at_s, member = self.random, self.time(), self.random.randrange(members)
        if self.chance(0.4):
            return [Event(at_s, "strike_step", member=member, number=float(random.randrange(STEPS_MAX)))]
        calls = [random.choice(ENDING_CALLS) for _ in range(random.choice((1, 1, 2, 3)))]
        return [Event(at_s, "strike_call", random.choice(("before", "after")), call, member) for call in calls]

    def outage(self) -> list[Event]:
        """A commit that takes effect without an answer, and brokers that cannot be asked for a while."""
        random, at_s = self.random, self.time()
        events = [Event(at_s, "lose_reply", "EndTxn")] if self.chance(0.8) else []
        events += [Event(at_s, "lose_reply", "InitProducerId") for _ in range(random.choice((0, 1, 2)))]
        if self.chance(0.7):
            soon_s = round(at_s + random.choice((0.0, 0.01, 0.1, 1.0)), 3)
            events.append(Event(soon_s, "outage", number=random.choice((1.0, 4.0, 10.0))))
        return events

    def fault(self, setting: Setting, members: int) -> Event:
        random, at_s, member = self.random, self.time(), self.random.randrange(members)
        if self.chance(0.45):
            name = random.choice(
                ("rebalance", "revoke", "revoke", "give_back", "lose", "lose", "expire", "fence", "restart")
            )
            return Event(at_s, name, member=member, number=float(random.randrange(self.partitions)))
        name = random.choice(_FAULTS)
        requests = sorted(REFUSALS)
        unknown = (
            {"ConsumerGroupHeartbeat"} if setting.protocol == "classic" else {"JoinGroup", "SyncGroup", "Heartbeat"}
        )
        unknown |= {"EndTxn", "TxnOffsetCommit", "Produce"} if self.style == "plain" else {"OffsetCommit"}
        request = random.choice([each for each in requests if each not in unknown])
        if request == "OffsetCommit" and name == "delay":
            name = "lose_reply"  # on one connection, a commit is never overtaken by the next
        detail = random.choice(REFUSALS[request]) if name == "refuse" else ""
        seconds = random.choice((0.05, 0.4, 1.5, 5.0)) if name == "delay" else 0.0
        if request == "JoinGroup" and setting.assignor == "cooperative-sticky":
            # Served after a newer one, it claims partitions that its sender has just revoked, and the leader waits for
            # a second round that nobody asks for (KIP-429): the group stands still until its next rebalance.
            seconds = min(seconds, 0.4)
        return Event(at_s, name, request, detail, member, seconds)
