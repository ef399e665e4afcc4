"""Strikes a process of a Spark application at a named step; travels with the sink to wherever the step is taken.

A fault happens once in all processes and all restarts: whoever makes its file first strikes.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from eos_client.testing.process_session import members_of, send_signal
from tests.spark.rig.settings import Action, Fault

POLL_S = 0.01


@dataclass(frozen=True)
class Striker:
    """The sink's `on_step` (step, slot, batch_id); through `on_driver_step` also its driver's."""

    faults: tuple[Fault, ...]
    directory: Path

    def __call__(self, step: str, slot: int, batch_id: int) -> None:
        for fault in self.faults:
            if fault.step == step and fault.batch_id == batch_id and fault.slot in {None, slot} and self._claim(fault):
                self._strike(fault)

    def _claim(self, fault: Fault) -> bool:
        try:
            struck_file(self.directory, fault).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _strike(self, fault: Fault) -> None:
        place = struck_file(self.directory, fault)
        if fault.action is not Action.FREEZE_APPLICATION:
            place.write_text(str(os.getpid()))
            strike(fault.action)
            return
        # Who looks on freezes the rest, this process too, once told. Were it frozen before it has frozen the others, it
        # would do so after the thaw.
        freeze_all_others()
        place.write_text(str(os.getpid()))
        while not thawed_file(self.directory, fault).exists():
            time.sleep(POLL_S)


@dataclass(frozen=True)
class DriverStriker:
    """The sink's `on_driver_step` (step, batch_id)."""

    striker: Striker

    def __call__(self, step: str, batch_id: int) -> None:
        self.striker(step, -1, batch_id)


def struck_file(directory: Path, fault: Fault) -> Path:
    """The file that holds the id of the process that was struck; empty while the strike is only on its way."""
    return directory / f"struck-{fault.name}"


def thawed_file(directory: Path, fault: Fault) -> Path:
    """The file that lets a frozen application go on, once it is thawed."""
    return directory / f"thawed-{fault.name}"


def strike(action: Action) -> None:
    """Do it to this process and those it belongs to: a worker's parent is the daemon, whose parent is the JVM."""
    match action:
        case Action.KILL_EXECUTOR | Action.FREEZE_EXECUTOR:
            parents = {each.pid: each.parent for each in members_of(os.getsid(0))}
            daemon = parents[os.getpid()]
            number = signal.SIGKILL if action is Action.KILL_EXECUTOR else signal.SIGSTOP
            send_signal(number, [parents[daemon], daemon])
            _strike_here(number)
        case Action.KILL_WORKER:
            _strike_here(signal.SIGKILL)
        case Action.FREEZE:
            _strike_here(signal.SIGSTOP)


def freeze_all_others() -> None:
    """SIGSTOP for all processes of this session but this one."""
    send_signal(signal.SIGSTOP, [each.pid for each in members_of(os.getsid(0)) if each.pid != os.getpid()])


def _strike_here(number: int) -> None:
    """Strike this process through this very thread, which could otherwise go on until another takes the signal."""
    signal.pthread_kill(threading.get_ident(), number)
