"""Where a path in an expression ends, and what it names."""

from __future__ import annotations

import re

from keys.errors import FilterInvalid
from keys.path import NAME, STEPS_MAX, FieldPath, Step

_INDEX = re.compile(r"\[([0-9]{1,9})\]")
_BRACKETED = re.compile(r"\[/([^\]]*)\]")
_JSON_STEP = re.compile(
    r"\.(?P<name>[A-Za-z_@][A-Za-z0-9_@-]*)"
    r"|\[(?P<index>[0-9]{1,9})\]"
    r"|\[(?P<quoted>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\]",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def scan_path(text: str, at: int, position: int) -> tuple[FieldPath, int]:
    """The path that begins at `at` with `/`, `[/` or `$`, and where the text goes on.

    It takes as much as a path can take. `position` is where `text` stands in the text around it.

    Raises:
        FilterInvalid: not a path, or more than 64 steps.
    """
    steps: list[Step] = []
    if text[at] == "$":
        end = _json_steps(text, at + 1, steps)
    elif text[at] == "[":
        end = _bracketed_steps(text, at, position, steps)
    else:
        end = _slash_steps(text, at, position, steps)
    if not steps:
        raise FilterInvalid("a field path names at least one field", position + at)
    if "*" in steps:
        raise FilterInvalid("a field path names one place", position + at)
    if len(steps) > STEPS_MAX:
        raise FilterInvalid(f"a field path has at most {STEPS_MAX} steps", position + at)
    return FieldPath(tuple(steps)), end


def _slash_steps(text: str, at: int, position: int, steps: list[Step]) -> int:
    while text.startswith("/", at):
        name = NAME.match(text, at + 1)
        if name is None:
            raise FilterInvalid("expected a name after /", position + at)
        steps.append(name.group())
        at = _indexes(text, name.end(), steps)
    return at


def _bracketed_steps(text: str, at: int, position: int, steps: list[Step]) -> int:
    whole = _BRACKETED.match(text, at)
    if whole is None:
        raise FilterInvalid("this [ is not closed", position + at)
    names = whole.group(1).split("/")
    if "" in names:
        raise FilterInvalid("expected a name after /", position + at)
    steps.extend(names)
    return _indexes(text, whole.end(), steps)


def _indexes(text: str, at: int, steps: list[Step]) -> int:
    while index := _INDEX.match(text, at):
        steps.append(int(index.group(1)))
        at = index.end()
    return at


def _json_steps(text: str, at: int, steps: list[Step]) -> int:
    while step := _JSON_STEP.match(text, at):
        if step["name"]:
            steps.append(step["name"])
        elif step["index"]:
            steps.append(int(step["index"]))
        else:
            steps.append(_ESCAPE.sub(r"\1", step["quoted"][1:-1]))
        at = step.end()
    return at
