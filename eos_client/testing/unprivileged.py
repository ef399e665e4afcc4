"""Runs a server that refuses root, or an account without a name, as an ordinary user.

Started as a script, it becomes that user and then the command. In a user namespace, files keep their owner, whom the
server sees as itself; where that is forbidden, as in many containers, root gives up its rights and the data change
their owner.

Arguments: ``namespace`` or ``drop``, then the command.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_NOBODY = 65_534
_CLONE_NEWUSER = 0x1000_0000
_PR_SET_PDEATHSIG = 1
_TRIAL_TIMEOUT_S = 30.0
_NAMESPACE, _DROP = "namespace", "drop"


@dataclass(frozen=True)
class ServerUser:
    """A user: what a command begins with to run as them, and who must own its files (None: they stay as they are)."""

    command: tuple[str, ...] = ()
    owner: int | None = None


def ordinary_user() -> ServerUser | None:
    """Return the user for a server that refuses root and accounts without a name; None if there is none."""
    if os.geteuid() != 0 and _has_name():
        return ServerUser()
    in_namespace = _command(_NAMESPACE)
    if _runs(in_namespace):
        return ServerUser(in_namespace)
    return ServerUser(_command(_DROP), _NOBODY) if os.geteuid() == 0 else None


def _has_name() -> bool:
    import pwd  # noqa: PLC0415  POSIX alone has it

    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True


def _command(way: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(Path(__file__)), way)


def _runs(command: tuple[str, ...]) -> bool:
    trial = [*command, sys.executable, "-I", "-S", "-c", "pass"]
    try:
        return subprocess.run(trial, capture_output=True, timeout=_TRIAL_TIMEOUT_S, check=False).returncode == 0  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False


def main(way: str, *command: str) -> None:
    """Become the user, and then the command."""
    if way == _NAMESPACE:
        _enter_namespace(os.geteuid(), os.getegid())
    else:
        os.chdir("/")
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
    # The system forgets this at a change of credentials.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.execvp(command[0], command)  # noqa: S606  the starter's command


def _enter_namespace(user: int, group: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "no user namespace")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{_NOBODY} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{_NOBODY} {group} 1")


if __name__ == "__main__":
    main(*sys.argv[1:])
