"""Registered functions: found by name, and isolated so that a fault in one harms no other work."""

from __future__ import annotations

import math
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest

from tests.support.rules import rule
from tidegate.keys.merging import Matcher, Merger, Verdict

OLD, NEW, HUGE = b'{"v": 1}', b'{"v": 2}', b'{"v":1e400}'


class Color(StrEnum):
    RED = "red"


def surrogate(current: Any, new: Any) -> Any:
    return "\ud800"


def deep(current: Any, new: Any) -> Any:
    value: list[Any] = []
    for _ in range(100):
        value = [value]
    return value


def an_object(current: Any, new: Any) -> Any:
    return object()


def endless(current: Any, new: Any) -> Any:
    return endless(current, new)


def broken(current: Any, new: Any) -> Any:
    raise KeyError(current["v"])


def test_two_of_one_name_are_one_so_that_their_subscribers_share_a_lane() -> None:
    assert Merger("m:f", lambda current, new: new) == Merger("m:f", lambda current, new: current)
    assert hash(Matcher("m:f", lambda held, new: True)) == hash(Matcher("m:f", lambda a, b: False))
    assert Merger("m:f", lambda current, new: new) != Merger("m:g", lambda current, new: new)
    assert (str(Merger("m:f", max)), str(Matcher("m:g", max))) == ("m:f", "m:g")


def test_there_are_three_answers_beside_a_merged_value() -> None:
    assert [verdict.value for verdict in Verdict] == ["keep current", "keep new", "no conflation"]


@rule("merge-6")
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"both": 1}, b'{"both":1}'),
        ({"price": Decimal("1.50"), "both": (1, 2.5)}, b'{"price":1.50,"both":[1,2.5]}'),
        (None, b"null"),
        (Verdict.KEEP_CURRENT, OLD),
        (Verdict.KEEP_NEW, NEW),
        (Verdict.NO_CONFLATION, None),
    ],
)
def test_kept_messages_are_as_they_were_published(answer: Any, text: bytes | None) -> None:
    assert Merger("m:f", lambda current, new: answer).merged(OLD, NEW) == text


@rule("merge-9")
@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        Decimal("NaN"),
        Decimal("1e400"),
        -(10**309),
        {1, 2},
        Verdict,
        Color.RED,
        b"x",
        {1: "a"},
        {"a": [b"x"]},
    ],
    ids=repr,
)
def test_a_value_that_json_does_not_have_counts_as_no_conflation(value: Any) -> None:
    failures: list[str] = []
    merger = Merger("m:f", lambda current, new: value, lambda name, _: failures.append(name))
    assert (merger.merged(OLD, NEW), failures) == (None, ["m:f"])


@rule("merge-9")
@pytest.mark.parametrize("function", [surrogate, deep, an_object, endless, broken])
def test_a_failing_merger_is_reported_and_counts_as_no_conflation(function: Any) -> None:
    failures: list[tuple[str, Exception]] = []
    merger = Merger("m:f", function, lambda *told: failures.append(told))
    assert merger.merged(OLD, NEW) is None
    assert [name for name, _ in failures] == ["m:f"]
    assert Merger("m:f", function).merged(OLD, NEW) is None


@rule("merge-9")
def test_a_matcher_that_fails_matches_nothing() -> None:
    failures: list[tuple[str, Exception]] = []
    matcher = Matcher("m:f", lambda a, b: a["v"] == b["v"], lambda *told: failures.append(told))
    assert matcher.matches(OLD, OLD) is True
    assert matcher.matches(OLD, NEW) is False
    assert failures == []
    assert matcher.matches(OLD, b"7") is False
    assert len(failures) == 1


@pytest.mark.parametrize("pair", [(HUGE, NEW), (OLD, HUGE)])
def test_a_message_without_a_value_is_conflated_with_nothing(pair: tuple[bytes, bytes]) -> None:
    """A text that was stored before such were refused may hold a number that has no value."""
    failures: list[Any] = []
    assert Merger("m:f", lambda _, new: new, lambda *_: failures.append(0)).merged(*pair) is None
    assert Matcher("m:f", lambda *_: True, lambda *_: failures.append(0)).matches(*pair) is False
    assert failures == []
