"""From recorded traffic to the question that counts: which refused commits could the client have avoided?

A refusal is *avoidable* when the client had already been handed a newer generation (or the news that it is out of the
group) before the first request of that commit left it: AddOffsetsToTxn, or TxnOffsetCommit where none was sent.
Otherwise the generation moved while the commit was in flight, and no client can know. A commit with generation < 0 or
an empty member id is *anonymous*: brokers accept it without any fence, so it never shows as a refusal.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.verification.wire import Api

if TYPE_CHECKING:
    from tests.verification.proxy import Exchange

UNKNOWN_MEMBER_ID = 25
ILLEGAL_GENERATION = 22
REBALANCE_IN_PROGRESS = 27
FENCED_INSTANCE_ID = 82
FENCED_MEMBER_EPOCH = 110
STALE_MEMBER_EPOCH = 113
REFUSALS = frozenset(
    {
        ILLEGAL_GENERATION,
        UNKNOWN_MEMBER_ID,
        REBALANCE_IN_PROGRESS,
        FENCED_INSTANCE_ID,
        FENCED_MEMBER_EPOCH,
        STALE_MEMBER_EPOCH,
    }
)
EXPULSIONS = frozenset({ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH})
OUT_OF_THE_GROUP = -1
COMMITS = (Api.TXN_OFFSET_COMMIT, Api.OFFSET_COMMIT)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused commit. `known_for_s`: how long the client had held the newer generation when the commit's first
    request left; None where it held none, which makes the refusal unavoidable."""

    sent_s: float
    member_id: str
    generation: int
    error: int
    known_for_s: float | None

    @property
    def avoidable(self) -> bool:
        return self.known_for_s is not None

    def __str__(self) -> str:
        known = "no newer known" if self.known_for_s is None else f"newer known {self.known_for_s * 1000:.1f} ms"
        return f"{self.member_id} at generation {self.generation}: error {self.error}, {known}"


@dataclass(slots=True)
class RefusalReport:
    """Counts over one run; `rebalances` are the distinct generations handed to members, less the first."""

    commits: int = 0
    transactions_committed: int = 0
    transactions_aborted: int = 0
    anonymous: int = 0
    rebalances: int = 0
    refusals: list[Refusal] = field(default_factory=list)
    errors: Counter[int] = field(default_factory=Counter)

    @property
    def avoidable(self) -> list[Refusal]:
        return [refusal for refusal in self.refusals if refusal.avoidable]

    @property
    def unavoidable(self) -> list[Refusal]:
        return [refusal for refusal in self.refusals if not refusal.avoidable]

    def __str__(self) -> str:
        return (
            f"{self.commits} commits, {self.rebalances} rebalances, {len(self.refusals)} refused, "
            f"{len(self.avoidable)} of them avoidable, {self.anonymous} anonymous, errors {dict(self.errors)}"
        )

    def per_100_commits(self) -> float:
        return 100 * len(self.refusals) / self.commits if self.commits else 0.0

    def per_100_rebalances(self) -> float:
        return 100 * len(self.refusals) / self.rebalances if self.rebalances else 0.0


class _Knowledge:
    """What each member had been handed, and when: (group, member) -> times and generations, in order of time."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._handed: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
        self._generations: dict[str, set[int]] = defaultdict(set)
        for exchange in exchanges:
            self._learn(exchange)
        for handed in self._handed.values():
            handed.sort()

    def _learn(self, exchange: Exchange) -> None:
        group, request, response = exchange.request.group, exchange.request, exchange.response
        if exchange.api is Api.LEAVE_GROUP or (
            exchange.api is Api.CONSUMER_GROUP_HEARTBEAT and (request.generation or 0) < 0
        ):
            self._handed[group, request.member_id].append((exchange.sent_s, OUT_OF_THE_GROUP))
        elif response is None or exchange.answered_s is None:
            return
        elif exchange.api in (Api.JOIN_GROUP, Api.CONSUMER_GROUP_HEARTBEAT) and response.errors == (0,):
            member, generation = response.member_id or request.member_id, response.generation
            if generation is not None:
                self._handed[group, member].append((exchange.answered_s, generation))
                self._generations[group].add(generation)
        elif exchange.api not in COMMITS and EXPULSIONS.intersection(response.errors):
            self._handed[group, request.member_id].append((exchange.answered_s, OUT_OF_THE_GROUP))

    def held_newer_for_s(self, group: str, member: str, generation: int, at_s: float) -> float | None:
        """For how long the member, at that time, had held something other than `generation`; None: it had not."""
        handed = self._handed.get((group, member), [])
        last = bisect.bisect_left(handed, (at_s, -(2**31))) - 1
        if last < 0 or handed[last][1] == generation:
            return None
        while last > 0 and handed[last - 1][1] != generation:
            last -= 1
        return at_s - handed[last][0]

    def rebalances(self) -> int:
        return sum(max(0, len(generations - {0}) - 1) for generations in self._generations.values())


def analyse(exchanges: Sequence[Exchange]) -> RefusalReport:
    """Judge every commit in the record."""
    in_order = sorted(exchanges, key=lambda exchange: exchange.sent_s)
    knowledge = _Knowledge(in_order)
    report = RefusalReport(rebalances=knowledge.rebalances())
    first_request_s: dict[str, float] = {}
    for exchange in in_order:
        transaction = exchange.request.transactional_id
        if exchange.api is Api.ADD_OFFSETS_TO_TXN:
            first_request_s.setdefault(transaction, exchange.sent_s)
        elif exchange.api is Api.END_TXN:
            first_request_s.pop(transaction, None)
            _count_end(report, exchange)
        elif exchange.api in COMMITS:
            started_s = first_request_s.get(transaction, exchange.sent_s) if transaction else exchange.sent_s
            _judge(report, knowledge, exchange, started_s)
    return report


def _count_end(report: RefusalReport, exchange: Exchange) -> None:
    if exchange.response is not None and exchange.response.errors == (0,):
        if exchange.request.commits:
            report.transactions_committed += 1
        else:
            report.transactions_aborted += 1


def _judge(report: RefusalReport, knowledge: _Knowledge, exchange: Exchange, started_s: float) -> None:
    request = exchange.request
    generation = -1 if request.generation is None else request.generation
    if generation < 0 or not request.member_id:
        report.anonymous += 1
    errors = set(exchange.response.errors) if exchange.response is not None else set()
    refused = errors & REFUSALS
    if refused or errors <= {0}:
        report.commits += 1
    report.errors.update(errors - {0})
    if refused:
        known_for_s = knowledge.held_newer_for_s(request.group, request.member_id, generation, started_s)
        report.refusals.append(Refusal(exchange.sent_s, request.member_id, generation, min(refused), known_for_s))
