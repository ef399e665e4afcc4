"""Every module can be imported where the standard library has nothing of POSIX, as on Windows."""

import sys

from tests.packaging.environments import REPOSITORY, run

IMPORT_WITHOUT_POSIX = """
import importlib, os, pkgutil, signal, sys
# What others import of POSIX is loaded first, so that only the modules of this package meet its absence.
import asyncio, concurrent.futures, http.server, multiprocessing, shutil, socketserver, subprocess, tempfile, zipfile
import confluent_kafka.admin, filelock, pytest, rich.console, structlog, tenacity, typer

sys.modules.update(dict.fromkeys(["fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"]))
SIGNALS = ["alarm", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait", "SIGALRM", "SIGCHLD", "SIGCONT",
           "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGUSR1", "SIGUSR2"]
CALLS = ["fork", "geteuid", "getpgid", "getuid", "killpg", "mkfifo", "pipe2", "register_at_fork", "setpgid", "setsid",
         "sched_getaffinity", "uname", "wait4", "waitid"]
for module, names in ((signal, SIGNALS), (os, CALLS)):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

import eos_client
count = 0
for found in pkgutil.walk_packages(eos_client.__path__, "eos_client."):
    if "spark" not in found.name and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
        count += 1
print(count)
"""


def test_every_module_but_sparks_is_imported():
    assert int(run(sys.executable, "-c", IMPORT_WITHOUT_POSIX, cwd=REPOSITORY)) > 100
