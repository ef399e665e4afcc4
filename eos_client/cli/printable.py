"""Makes foreign text (names, records) safe to print on a terminal, or in a command that is shown for copying."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable


def printable(text: str) -> str:
    """Return ``text`` on one line; what cannot be printed is escaped as Python escapes it."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def escaped(content: bytes | str) -> str:
    """Return ``content`` as `printable` does, with its own backslashes doubled."""
    encoded = content.encode() if isinstance(content, str) else content
    return printable(encoded.replace(b"\\", b"\\\\").decode(errors="backslashreplace"))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'orders'?`` for the name in ``known`` that is most like ``name``, or nothing."""
    alike = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {alike[0]!r}?" if alike else ""


def shell_word(text: str) -> str:
    """Return ``text`` as one printable word of a shell command: ``$'...'`` where it cannot be printed as it is."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_shell_character, text)) + "'"


def _shell_character(character: str) -> str:
    is_plain = character.isprintable() and character not in "\\'"
    return character if is_plain else "".join(f"\\x{byte:02x}" for byte in _bytes_of(character))


def _bytes_of(character: str) -> bytes:
    try:
        return character.encode(errors="surrogateescape")  # a byte of an argument that is no UTF-8
    except UnicodeEncodeError:
        return character.encode(errors="surrogatepass")
