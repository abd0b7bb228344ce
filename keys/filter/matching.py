"""LIKE and REGEXP_...: RE2 on texts of values, within the filter's allowance (rule filter-4)."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.keys.filter.comparing import null
from tidegate.keys.filter.fields import Value
from tidegate.keys.filter.functions import template
from tidegate.keys.filter.patterns import (
    Allowance,
    Pattern,
    Scope,
    compiled,
    finder,
    lines_finder,
    scope_of,
)
from tidegate.keys.filter.values import SEPARATOR, Array, Scalar, narrow, text, widened


def searcher(pattern: str, allowed: Allowance) -> Callable[[Value], bool | None]:
    """Return `value -> whether the pattern is found in an element's text`, None for NULL."""
    found_in, found_in_any = finder(pattern), _array_searcher(pattern, allowed.pattern_texts)

    def found(value: Value) -> bool | None:
        if null(value):
            return None
        if isinstance(value, Array):
            return found_in_any(value) if len(value.joined) <= allowed.pattern_bytes else None
        whole = text(value)  # type: ignore[arg-type]  # no object: not null
        return None if len(whole) > allowed.pattern_bytes else found_in(_utf8(whole))

    return found


def _array_searcher(pattern: str, texts_max: int) -> Callable[[Array], bool | None]:
    """Search all texts at once where that gives the same answer, else one by one."""
    found_in, scope = finder(pattern), scope_of(pattern)
    found_in_line = lines_finder(pattern) if scope is Scope.LINE else found_in

    def found(value: Array) -> bool | None:
        texts = value.joined[1:-1]
        if scope is Scope.ANYWHERE:
            return found_in(texts.encode("latin-1"))
        if scope is Scope.LINE and "\n" not in texts:
            return found_in_line(_utf8(texts.replace(SEPARATOR, "\n")))
        each = texts.split(SEPARATOR)
        return any(map(found_in, map(_utf8, each))) if len(each) <= texts_max else None

    return found


def _utf8(whole: str) -> bytes:
    return widened(whole).encode()


def replacer(pattern: str, allowed: Allowance) -> Callable[[Scalar, Scalar | None], str | None]:
    """Return `text, replacement -> text with every match replaced` (rule filter-15)."""
    expression, bytes_max = compiled(pattern), allowed.text_bytes

    def replaced(value: Scalar, new: Scalar | None) -> str | None:
        whole, form = text(value), "" if new is None else text(new)
        if len(whole) > min(allowed.pattern_bytes, bytes_max) or len(form) > bytes_max:
            return None
        return _replaced(expression, widened(whole), form, bytes_max)

    return replaced


def _replaced(expression: Pattern, whole: str, form: str, bytes_max: int) -> str | None:
    pieces: list[str] = []
    done = length = 0
    for match in expression.finditer(whole):
        if match.start() == match.end() == done and done > 0:
            continue
        groups = (match.group(), *match.groups(""))
        pieces += narrow(whole[done : match.start()]), template(form, tuple(map(narrow, groups)))
        length += len(pieces[-1]) + len(pieces[-2])
        if length > bytes_max:
            return None
        done = match.end()
    found = "".join(pieces) + narrow(whole[done:])
    return found if len(found) <= bytes_max else None
