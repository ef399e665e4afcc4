"""Each part of a client owns its state: the others only read it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import eos_client

PACKAGE = Path(eos_client.__file__).parent
WRITTEN_ALL_THE_SAME = {
    "self._table.state",  # assigning it is the last step of a call that hands records over
    "self.table.state",  # two events of one call in one assignment
    "marks.stack",  # by each call that leaves a mark
    "position.offset",  # of the library's TopicPartition
}


def written_from_outside(path: Path) -> Iterator[str]:
    """Assignments to an attribute of anything but the object itself."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not is_own and ast.unparse(node) not in WRITTEN_ALL_THE_SAME:
                yield f"{path.name}:{node.lineno} {ast.unparse(node)}"


@pytest.mark.parametrize("name", ["confluent_consumer", "fetching", "membership"])
def test_no_part_changes_the_state_of_another(name):
    assert list(written_from_outside(PACKAGE / "confluent" / "consumer" / f"{name}.py")) == []


@pytest.mark.parametrize("name", ["consumer", "open_work", "plain_commit"])
def test_a_consumers_face_changes_the_state_of_no_part(name):
    assert list(written_from_outside(PACKAGE / "clients" / f"{name}.py")) == []
