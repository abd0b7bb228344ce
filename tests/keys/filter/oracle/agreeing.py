"""The shipped evaluator beside the oracle; where they differ, the smallest case that still does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.keys.filter.oracle.evaluating import Oracle
from tests.keys.filter.oracle.reading import Refused, tokens
from tidegate.keys.filter import Expression, Filter, FilterInvalid

TOPIC, RECORD = "orders", '["IBM",7]'
Differs = Callable[[str, bytes], bool]


def expected(text: str) -> Oracle | None:
    """The oracle's meaning of a text, None if it refuses it."""
    try:
        return Oracle.parse(text)
    except Refused:
        return None


class Shipped:
    """A text as the product reads it: as a filter, as its canonical spelling, as an expression."""

    def __init__(self, text: str) -> None:
        parsed = Filter.parse(text)
        self.matcher = parsed.matcher(TOPIC)
        self.canonical_matcher = Filter.parse(str(parsed)).matcher(TOPIC)
        self.evaluator = Expression.parse(text).evaluator(TOPIC)

    @classmethod
    def parse(cls, text: str) -> Shipped | None:
        """None if it is refused."""
        try:
            return cls(text)
        except FilterInvalid:
            return None

    def answers(self, payload: bytes) -> tuple[Any, Any, Any]:
        """What the three say; an exception that should not be is an answer too."""
        return (
            _called(self.matcher, payload, RECORD),
            _called(self.canonical_matcher, payload, RECORD),
            _called(self.evaluator, payload),
        )


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:  # whatever it is, it is the finding
        return error


def agree(oracle: Oracle, shipped: Shipped, payload: bytes) -> bool:
    """Whether all answers about one message are the same, of the same type."""
    matches, value = oracle.answers(payload, TOPIC, RECORD)
    if oracle.asks_record:  # an expression knows of none
        value = oracle.answers(payload, TOPIC).value
    match, canonical_match, found = shipped.answers(payload)
    return (
        (match is matches and canonical_match is matches)
        and type(found) is type(value)
        and repr(found) == repr(value)  # which tells -0.0 from 0.0, and knows NaN
    )


def differ(text: str, payload: bytes) -> bool:
    """Whether the two disagree about a text or, where both take it, about this message."""
    oracle, shipped = expected(text), Shipped.parse(text)
    if oracle is None or shipped is None:
        return (oracle is None) != (shipped is None)
    return not agree(oracle, shipped, payload)


def report(text: str, payload: bytes) -> str:
    """A disagreement as found and shrunk, with what each side says."""
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
    """The message with every part left out that the disagreement does not need."""
    if not differ(text, b"{}"):
        value = json.loads(payload)
        if not differ(text, _written(value)):
            return payload  # it is about the spelling
        while smaller := next((v for v in _smaller(value) if differ(text, _written(v))), None):
            value = smaller
        return _written(value)
    return b"{}"


def _written(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("Infinity", "1e999").encode()


def _smaller(value: Any) -> Iterator[Any]:
    """The value with one member or element left out, at any depth."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield {n: m for n, m in value.items() if n != name}
            yield from ({**value, name: less} for less in _smaller(member))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield [*value[:index], *value[index + 1 :]]
            yield from ([*value[:index], less, *value[index + 1 :]] for less in _smaller(element))


def shrunk_text(text: str, payload: bytes) -> str:
    """The text without the runs of words that the disagreement does not need."""
    if expected(text) is None or Shipped.parse(text) is None:
        return text  # any other refused text would do as well
    while smaller := next(
        (t for t in _shorter(text) if _both_take(t) and differ(t, payload)), None
    ):
        text = smaller
    return text


def _both_take(text: str) -> bool:
    return expected(text) is not None and Shipped.parse(text) is not None


def _shorter(text: str) -> Iterator[str]:
    words = tokens(text)
    for length in (1, 2, 3, 5, 8, 13, 21, 34):
        for begin in range(len(words) - length + 1):
            run = words[begin : begin + length]
            yield (text[: run[0].start] + text[run[-1].end :]).strip()
