"""Headers of a record whose names are no UTF-8, which confluent_kafka cannot hand out."""

from __future__ import annotations

from typing import Any

UNREADABLE_NAME = "\N{REPLACEMENT CHARACTER}"


def readable_headers(message: Any) -> Any:
    """Return ``message.headers()``, where a name that is no UTF-8 is U+FFFD, and leave them so in ``message``.

    confluent_kafka (2.16) raises SystemError when such headers are read for the first time, and afterwards hands out
    pairs that lack the name: the process ends where it is read. The Java client also puts U+FFFD for what is no UTF-8.
    """
    try:
        return message.headers()
    except SystemError:
        repaired = [(UNREADABLE_NAME, pair[1]) if _lacks_name(pair) else pair for pair in message.headers()]
        message.set_headers(repaired)
        return repaired


def _lacks_name(pair: tuple[str, bytes | None]) -> bool:
    return repr(pair).startswith("(<NULL>,")  # the only look at a missing name that Python survives
