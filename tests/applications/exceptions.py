"""The exceptions by which an application, its signal handlers and its processes end what they do."""

from __future__ import annotations


class Oops(Exception):  # noqa: N818  # the application's own
    """What the application itself raises."""


class HookOops(Exception):  # noqa: N818
    """What the application's hook raises, which nobody ever hears of."""


class Interrupt(BaseException):
    """What a signal handler of the application raises."""


class Killed(BaseException):
    """The process dies here."""


class Hang(BaseException):
    """It has taken longer than anything here may take."""


class Restart(Exception):  # noqa: N818  # nothing went wrong
    """The application closes its clients and builds new ones."""
