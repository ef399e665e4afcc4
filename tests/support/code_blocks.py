"""The fenced code blocks of a page, in its order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class CodeBlock:
    """One block; ``saved_as`` is the file that the sentence before it names, if any: "Save this as `billing.py`"."""

    language: str
    code: str
    saved_as: str | None


def code_blocks(page: Path, *languages: str) -> list[CodeBlock]:
    """Return the blocks of ``page`` in ``languages``, or in all."""
    return [
        block
        for block in _blocks(page.read_text(encoding="utf-8"))
        if block.language in (languages or (block.language,))
    ]


def _blocks(text: str) -> Iterator[CodeBlock]:
    read = 0
    for fenced in _FENCED.finditer(text):
        paragraph = text[read : fenced.start()].strip().rpartition("\n\n")[2]
        name = re.search(r"Save this as `([\w.]+)`", paragraph)
        yield CodeBlock(fenced[1], fenced[2], name and name[1])
        read = fenced.end()
