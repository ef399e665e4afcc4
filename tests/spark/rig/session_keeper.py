"""Runs a command in a session of its own and ends all of that session when its starter is gone, or after a time.

    python session_keeper.py LIFETIME_S LOG COMMAND...

It says the command's process id, then `exited CODE`, on standard output. The end of its input means that nobody
needs the session any more; frozen processes end, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from eos_client.testing.process_session import members_of, send_signal

POLL_S = 0.05


def main(lifetime_s: float, log_path: str, command: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # whoever ends the starter may end its whole process group
    deadline_s = time.monotonic() + lifetime_s
    with Path(log_path).open("ab") as log:
        kept = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    say(str(kept.pid))
    told = False
    try:
        while time.monotonic() < deadline_s:
            if not told and kept.poll() is not None:
                say(f"exited {kept.returncode}")
                told = True
            if select.select([0], [], [], POLL_S)[0] and not os.read(0, 1):
                return
    finally:
        while members := members_of(kept.pid):
            send_signal(signal.SIGKILL, [each.pid for each in members])
            kept.poll()
            time.sleep(POLL_S)


def say(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the starter is gone, which the next poll finds out
        os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], sys.argv[3:])
