"""The size of a regular expression with its repetitions written out."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[a-zA-Z-]*:|\(\?P?<\w+>|\(\?[a-zA-Z-]+\)"
    r"|\{\d*(?:,\d*)?\}|.",
    re.DOTALL,
)
_REPEAT = re.compile(r"\{(\d*)(?:(,)(\d*))?\}")
# Syntax that engines read differently, or with spaces between: these patterns are counted as if
# all their repetitions were nested.
_UNCERTAIN = re.compile(r"\[\]|\[\^\]|\[[^\]]*\[|\(\?[a-zA-Z-]*x")
_CLASSES = ("\\w", "\\W", "\\d", "\\D", "\\s", "\\S", "\\p", "\\P")


def expanded(pattern: str, per_class: int, limit: int) -> int:
    """Count a pattern's characters and classes, each as often as its repetitions say.

    A matcher can have to follow that many places at once for every byte of a text, whatever the
    engine. `per_class` is what a class counts; beyond `limit` the count need not be exact.
    """
    if _UNCERTAIN.search(pattern):
        return _at_most(pattern, per_class, limit)
    groups: list[tuple[int, int]] = [(0, 0)]  # what a group has so far, and its last item
    for token in _TOKEN.findall(pattern):
        done, last = groups[-1]
        repeat = _REPEAT.fullmatch(token)
        if repeat is not None:
            groups[-1] = (done, min(last * _times(repeat), limit + 1))
        elif token[0] == "(" and not token.endswith(")"):
            groups.append((0, 0))
        elif token == ")" and len(groups) > 1:
            inner = groups.pop()
            done, last = groups[-1]
            groups[-1] = (min(done + last, limit + 1), min(sum(inner) + 1, limit + 1))
        elif token not in ("*", "+", "?", "|"):
            groups[-1] = (min(done + last, limit + 1), per_class if _is_class(token) else 1)
    return min(sum(map(sum, groups)) + 1, limit + 1)


def _times(repeat: re.Match[str]) -> int:
    low = int(repeat[1][:9] or 0)
    high = int(repeat[3][:9]) if repeat[3] else low + (1 if repeat[2] else 0)
    return max(low, high, 1)


def _at_most(pattern: str, per_class: int, limit: int) -> int:
    count = len(pattern) * per_class + 1
    for figure in re.findall(r"\d+", pattern):
        count = min(count * max(int(figure[:9]), 1), limit + 1)
    return count


def _is_class(token: str) -> bool:
    """Return True if a token matches a large part of Unicode."""
    return (
        token == "." or token in _CLASSES or (token[0] == "[" and ("\\" in token or "^" in token))
    )
