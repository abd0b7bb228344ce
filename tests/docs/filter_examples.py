"""Examples of filters in docs/semantics: `EXPRESSION  =>  VALUE  on MESSAGE`, a line each."""

from __future__ import annotations

import json
import math
import re
from typing import NamedTuple

from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter import Expression

_LINE = re.compile(r"(.*?)  =>  (.*?)(?:  on (.*))?")


class Example(NamedTuple):
    """An expression, its value as text, and the message that it looks at."""

    text: str
    value: str
    message: str

    def __str__(self) -> str:
        return self.text


def examples(page: str) -> list[Example]:
    """Return every line of the fenced blocks named `filter`."""
    blocks = re.findall(r"```filter\n(.*?)```", page, re.DOTALL)
    return [example_of(line) for block in blocks for line in block.splitlines()]


def example_of(line: str) -> Example:
    """Split a line into its three parts."""
    found = _LINE.fullmatch(line)
    assert found is not None, f"not an example: {line}"
    return Example(found[1], found[2], found[3] or "{}")


def answer(example: Example) -> str:
    """Evaluate an example and write the value as the page does."""
    try:
        expression = Expression.parse(example.text)
    except FilterInvalid as error:
        return f"refused at {error.position}"
    value = expression.evaluator("orders")(example.message.encode())
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value).replace("nan", "NaN").replace("inf", "Infinity")
    return json.dumps(value, ensure_ascii=False)
