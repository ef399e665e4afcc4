"""Whether each number came out once: read back with read_committed, judged by the checker of the other runs."""

from __future__ import annotations

from dataclasses import dataclass

from tests.verification.checker import History, Rule, Status, Stored, Verdict, check
from tests.verification.topics import await_stable_end, read_all

STABLE_TIMEOUT_S = 75.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is in the topic after a run. `reordered` counts per key and output partition."""

    verdict: Verdict

    @property
    def lost(self) -> int:
        return self.verdict.count(Rule.LOST)

    @property
    def doubled(self) -> int:
        return self.verdict.count(Rule.DOUBLED)

    @property
    def reordered(self) -> int:
        return self.verdict.count(Rule.REORDERED)

    @property
    def inconclusive(self) -> bool:
        return self.verdict.status is Status.INCONCLUSIVE

    @property
    def exactly_once(self) -> bool:
        return not (self.lost or self.doubled or self.verdict.count(Rule.INVENTED) or self.inconclusive)

    def __str__(self) -> str:
        return str(self.verdict)


def judge(bootstrap: str, topic: str, partitions: int, total: int, keys: int, broker_log: str = "") -> Outcome:
    """The numbers 0 to `total` are the oracle; a key's numbers must come in order within an output partition."""
    await_stable_end(bootstrap, topic, partitions, timeout_s=STABLE_TIMEOUT_S)
    inputs = [Stored(number % keys, number, str(number).encode()) for number in range(total)]
    outputs = read_all(bootstrap, topic, partitions)
    return Outcome(check(History(inputs, outputs, {}, {}, broker_log=broker_log.splitlines())))
