import io
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console

from eos_client.cli.demo.display import Display
from eos_client.cli.demo.scenario import Scenario
from eos_client.cli.demo.worker import Worker

PARTITIONS = 6


class InstantFeed:
    """A feed whose records are loaded and committed at once."""

    total = released = loaded = 100
    partition_count = PARTITIONS

    def release(self, share: float) -> None:
        pass

    def advance(self) -> None:
        pass


class ScriptedWorker(Worker):
    """A worker without a process, whose shares are told by the test."""

    def start(self) -> int:
        return 0

    def kill(self) -> None:
        self.partitions = 0

    def show(self, partitions: int) -> None:
        self.rebalances += self.partitions != partitions
        self.partitions = partitions


def play(shares: Iterator[tuple[int, int, int]], monkeypatch: Any) -> list[tuple[str, list[int]]]:
    """Play the scenario while the workers own ``shares`` in turn; return what was done to w3, and who owned what."""
    workers = [ScriptedWorker(f"w{number}", ()) for number in (1, 2, 3)]
    display = Display(Console(file=io.StringIO()), workers, total=100, committed=100)
    done: list[tuple[str, list[int]]] = []

    def until(reached: Callable[[], bool], _look: Callable[[], None]) -> None:
        while not reached():
            for worker, share in zip(workers, next(shares), strict=True):
                worker.show(share)

    monkeypatch.setattr(display, "until", until)
    monkeypatch.setattr("eos_client.cli.demo.scenario._RESTART_AFTER_S", 0)
    for name in ("suspend", "resume"):
        monkeypatch.setattr(workers[2], name, lambda name=name: done.append((name, [w.partitions for w in workers])))
    Scenario(InstantFeed(), display, lambda: 100, None, lambda: 0, has_zombie=True).play()  # type: ignore[arg-type]
    return done


def test_a_worker_becomes_a_zombie_only_after_the_group_expelled_it(monkeypatch: Any) -> None:
    """While w2 is still being given its share back, the others' shares grow without w3 being expelled."""
    shares = [(3, 0, 3), (2, 2, 2), (2, 1, 2), (2, 2, 2), (3, 2, 2), (3, 3, 2), (3, 3, 0), (2, 2, 2)]
    assert play(iter(shares), monkeypatch) == [("suspend", [2, 2, 2]), ("resume", [3, 3, 2])]
