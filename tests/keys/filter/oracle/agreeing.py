"""Compares the evaluator with the oracle and shrinks each disagreement."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.keys.filter.oracle.evaluating import Oracle
from tests.keys.filter.oracle.reading import Refused, tokens
from tidegate.keys.filter import Expression, Filter, FilterInvalid

TOPIC, RECORD = "orders", '["IBM",7]'


def expected(text: str) -> Oracle | None:
    """Parse a text with the oracle; return None if the oracle refuses it."""
    try:
        return Oracle.parse(text)
    except Refused:
        return None


class Shipped:
    """A text parsed by the product: as a filter, as its canonical text, and as an expression."""

    def __init__(self, text: str) -> None:
        parsed = Filter.parse(text)
        self.matcher = parsed.matcher(TOPIC)
        self.canonical_matcher = Filter.parse(str(parsed)).matcher(TOPIC)
        self.evaluator = Expression.parse(text).evaluator(TOPIC)

    @classmethod
    def parse(cls, text: str) -> Shipped | None:
        """Parse a text with the product; return None if the product refuses it."""
        try:
            return cls(text)
        except FilterInvalid:
            return None

    def answers(self, payload: bytes) -> tuple[Any, Any, Any]:
        """Return the results of the three. An unexpected exception counts as a result."""
        return (
            _called(self.matcher, payload, RECORD),
            _called(self.canonical_matcher, payload, RECORD),
            _called(self.evaluator, payload),
        )


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:  # an unexpected exception is the finding
        return error


def agree(oracle: Oracle, shipped: Shipped, payload: bytes) -> bool:
    """Return whether all results for one message are equal and of the same type."""
    matches, value = oracle.answers(payload, TOPIC, RECORD)
    if oracle.asks_record:  # expressions have no record key
        value = oracle.answers(payload, TOPIC).value
    match, canonical_match, found = shipped.answers(payload)
    return (
        (match is matches and canonical_match is matches)
        and type(found) is type(value)
        and repr(found) == repr(value)  # distinguishes -0.0 from 0.0, and NaN equals NaN
    )


def differ(text: str, payload: bytes) -> bool:
    """Return whether the two disagree about a text, or about a message if both accept it."""
    oracle, shipped = expected(text), Shipped.parse(text)
    if oracle is None or shipped is None:
        return (oracle is None) != (shipped is None)
    return not agree(oracle, shipped, payload)


def report(text: str, payload: bytes) -> str:
    """Describe a disagreement as found and as shrunk, with the results of both sides."""
    small = shrunk_message(text, payload)
    small_text = shrunk_text(text, small)
    small = shrunk_message(small_text, small)
    lines = []
    for spelling, message in ((text, payload), (small_text, small)):
        oracle, shipped = expected(spelling), Shipped.parse(spelling)
        lines += [
            f"{spelling!r} on {message.decode()!r}",
            f"  oracle  {oracle and oracle.answers(message, TOPIC, RECORD)}",
            f"  shipped {shipped and shipped.answers(message)}",
        ]
    return "\n".join(lines)


def shrunk_message(text: str, payload: bytes) -> bytes:
    """Return the smallest message that still shows the disagreement."""
    if differ(text, b"{}"):
        return b"{}"
    value = json.loads(payload)
    if not differ(text, _encode(value)):
        return payload  # the disagreement depends on the JSON spelling
    while smaller := next((v for v in _smaller(value) if differ(text, _encode(v))), None):
        value = smaller
    return _encode(value)


def _encode(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("Infinity", "1e999").encode()  # JSON has no infinity


def _smaller(value: Any) -> Iterator[Any]:
    """Yield copies of a value that lack one field or element, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield {n: v for n, v in value.items() if n != name}
            yield from ({**value, name: less} for less in _smaller(inner))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield [*value[:index], *value[index + 1 :]]
            yield from ([*value[:index], less, *value[index + 1 :]] for less in _smaller(element))


def shrunk_text(text: str, payload: bytes) -> str:
    """Return the shortest text, made by removing words, that still shows the disagreement."""
    if expected(text) is None or Shipped.parse(text) is None:
        return text  # one side refuses the text: any shorter text might be refused, too
    while smaller := next(
        (t for t in _shorter(text) if _is_accepted_by_both(t) and differ(t, payload)), None
    ):
        text = smaller
    return text


def _is_accepted_by_both(text: str) -> bool:
    return expected(text) is not None and Shipped.parse(text) is not None


def _shorter(text: str) -> Iterator[str]:
    """Yield copies of a text that lack a run of words."""
    words = tokens(text)
    for length in (1, 2, 3, 5, 8, 13, 21, 34):
        for begin in range(len(words) - length + 1):
            run = words[begin : begin + length]
            yield (text[: run[0].start] + text[run[-1].end :]).strip()
