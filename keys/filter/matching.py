"""LIKE and REGEXP_...: RE2 on the texts of values, within the filter's budget (rule 104)."""

from __future__ import annotations

from collections.abc import Callable

from keys.filter.arrays import Array
from keys.filter.comparing import null
from keys.filter.fields import Value
from keys.filter.functions_text import TEXT_BYTES_MAX, template
from keys.filter.numbers import Scalar, narrow, text, widened
from keys.filter.patterns import Pattern, compiled
from keys.filter.tree import Call, Like, Literal, Node, walk

WORK_MAX = 1_000_000
_REPLACING_COST = 2_000


def text_bytes_max(tree: Node) -> int:
    """The longest text that the regular expressions of a filter look at."""
    patterns: set[str] = set()
    instructions = 0
    for node in walk(tree):
        match node:
            case Like(_, pattern) | Call("REGEXP_MATCH", (_, Literal(str(pattern)))):
                patterns.add(pattern)
            case Call("REGEXP_REPLACE", (_, Literal(str(pattern)), _)):
                patterns.add(pattern)
                instructions += _REPLACING_COST
    for pattern in patterns:
        instructions += compiled(pattern).programsize
    return WORK_MAX // max(instructions, 1)


def searcher(pattern: str, bytes_max: int) -> Callable[[Value], bool | None]:
    """`value -> whether the pattern is found in the text of an element`, None for NULL."""
    search = compiled(pattern).search

    def found(value: Value) -> bool | None:
        if isinstance(value, Array):
            if null(value) or value.outweighs(bytes_max):
                return None
            return any(search(widened(each)) is not None for each in value.texts)
        if null(value):
            return None
        whole = text(value)  # type: ignore[arg-type]  # no object: not null
        return None if len(whole) > bytes_max else search(widened(whole)) is not None

    return found


def replacer(pattern: str, bytes_max: int) -> Callable[[Scalar, Scalar | None], str | None]:
    """`text, replacement -> text with every match replaced` (rule 107)."""
    expression = compiled(pattern)

    def replaced(value: Scalar, new: Scalar | None) -> str | None:
        whole, form = text(value), "" if new is None else text(new)
        if len(whole) > min(bytes_max, TEXT_BYTES_MAX) or len(form) > TEXT_BYTES_MAX:
            return None
        return _replaced(expression, widened(whole), form)

    return replaced


def _replaced(expression: Pattern, whole: str, form: str) -> str | None:
    pieces: list[str] = []
    done = length = 0
    for match in expression.finditer(whole):
        if match.start() == match.end() == done and done > 0:
            continue
        groups = (match.group(), *match.groups(""))
        pieces += narrow(whole[done : match.start()]), template(form, tuple(map(narrow, groups)))
        length += len(pieces[-1]) + len(pieces[-2])
        if length > TEXT_BYTES_MAX:
            return None
        done = match.end()
    found = "".join(pieces) + narrow(whole[done:])
    return found if len(found) <= TEXT_BYTES_MAX else None
