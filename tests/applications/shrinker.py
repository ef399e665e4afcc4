"""Makes a program that breaks a rule smaller for as long as it breaks the same rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from tests.applications.program import Program, Setting, Turn

RUNS_MAX = 400
TAKES = frozenset({"consume", "poll"})
"""An application that takes no records would not end."""


def shrink(program: Program, breaks: Callable[[Program], bool], runs_max: int = RUNS_MAX) -> Program:
    """Return the smallest program found that still ``breaks``; at most ``runs_max`` are tried."""
    runs, progress = 0, True
    while progress:
        progress = False
        for smaller in _smaller(program):
            if runs >= runs_max:
                return program
            runs += 1
            if breaks(smaller):
                program, progress = smaller, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    if program.members > 1:
        yield replace(program, members=1)
        yield replace(program, members=program.members - 1)
    for name in ("events", "callbacks", "odds", "turns", "writes"):
        parts = getattr(program, name)
        if len(parts) > 1:
            half = len(parts) // 2
            yield _with(program, name, parts[:half])
            yield _with(program, name, parts[half:])
        for each in range(len(parts)):
            if name != "turns" or len(parts) > 1:
                yield _with(program, name, (*parts[:each], *parts[each + 1 :]))
    yield from _smaller_turns(program)
    yield from _smaller_settings(program)
    for index, write in enumerate(program.writes):
        if write.count > 1:
            less = replace(write, count=write.count // 2)
            yield replace(program, writes=(*program.writes[:index], less, *program.writes[index + 1 :]))
    for name in ("as_bytes", "batches", "replaces", "commits_first"):
        if value := getattr(program, name):
            yield _with(program, name, value=type(value)())


def _with(program: Program, name: str, value: Any) -> Program:
    changed: dict[str, Any] = {name: value}
    return replace(program, **changed)


def _smaller_turns(program: Program) -> Iterator[Program]:
    for index, turn in enumerate(program.turns):
        smaller = [Turn(turn.acts)] if turn.swallows else []
        if len(turn.acts) > 1:
            smaller += [
                replace(turn, acts=(*turn.acts[:each], *turn.acts[each + 1 :])) for each in range(len(turn.acts))
            ]
        for less in smaller:
            names = {act.name for act in less.acts}
            if not names & TAKES or (program.style == "plain" and not any(each.startswith("commit") for each in names)):
                continue
            yield replace(program, turns=(*program.turns[:index], less, *program.turns[index + 1 :]))


def _smaller_settings(program: Program) -> Iterator[Program]:
    usual = Setting()
    if program.setting != usual:
        yield replace(program, setting=usual)
    for each in fields(Setting):
        if getattr(program.setting, each.name) != getattr(usual, each.name):
            yield replace(program, setting=replace(program.setting, **{each.name: getattr(usual, each.name)}))
