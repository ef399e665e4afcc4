"""The ``eos-client`` program: run, demo, broker, topic, tail, txn, doctor.

typer and rich come with the extra ``[cli]``. Nothing here imports them before :func:`main` has looked for them, so
that a plain install answers with one line instead of a traceback.
"""

from __future__ import annotations

import sys

from eos_client.cli.failures import ExitCode

_EXTRA_MODULES = frozenset({"typer", "rich"})


def main() -> None:
    """Run the command line and end the process with one of :class:`~eos_client.cli.failures.ExitCode`."""
    try:
        from eos_client.cli.app import app  # noqa: PLC0415  the extra may be missing
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _EXTRA_MODULES:
            raise
        print(
            f"eos-client: the command line needs {missing.name}, which is not installed: pip install 'eos-client[cli]'",
            file=sys.stderr,
        )
        sys.exit(ExitCode.EXTRA_MISSING)
    app(prog_name="eos-client")
