"""Patterns: which topics they match, and how they are written in a path."""

from __future__ import annotations

import pytest

from tidegate.app.http.requests import topic_or_pattern
from tidegate.app.names import TopicPattern
from tidegate.app.refusals import Refused

TAKEN = [
    ("px.*", "px.eur", True),
    ("px.*", "px.eur.usd", False),
    ("px.*", "px", False),
    ("px.*", "px.", False),
    ("px.*", "pxx.eur", False),
    ("px.*.eu", "px.a-b_1.eu", True),
    ("px.*.eu", "px.a.b.eu", False),
    ("*", "px", True),
    ("*", "px.eur", False),
    ("*.*", "a.b", True),
    ("px.>", "px.a", True),
    ("px.>", "px.a.b.c", True),
    ("px.>", "px", False),
    ("px.*.>", "px.a", False),
    ("px.*.>", "px.a.b.c", True),
    (">", "px.a.b", True),
    (">", "tidegate.sessions", False),
    ("*.sessions", "tidegate.sessions", False),
    ("tidegate.>", "tidegate.sessions", True),
    ("PX.*", "px.a", False),
]


@pytest.mark.parametrize(("pattern", "topic", "taken"), TAKEN)
def test_a_pattern_takes(pattern: str, topic: str, taken: bool) -> None:
    assert TopicPattern.parse(pattern).matches(topic) is taken


@pytest.mark.parametrize("text", ["px*", "px.a*", "px.>.a", ">x", "**", "px.* ", "é.*", "*.%20"])
def test_no_pattern(text: str) -> None:
    with pytest.raises(Refused) as refused:
        TopicPattern.parse(text)
    assert refused.value.code == "topic-invalid"


def test_a_pattern_has_a_length() -> None:
    with pytest.raises(Refused):
        TopicPattern.parse("*." + "x" * 254)


def scope(part: str) -> dict[str, object]:
    return {"raw_path": f"/v1/topics/{part}/subscribe".encode()}


@pytest.mark.parametrize(
    ("part", "text"), [("px.*", "px.*"), ("px.%2A", "px.*"), ("px.%2a.%3E", "px.*.>"), (">", ">")]
)
def test_a_path_has_a_pattern_encoded_or_not(part: str, text: str) -> None:
    found = topic_or_pattern(scope(part))
    assert isinstance(found, TopicPattern)
    assert found.text == text


def test_a_path_has_a_name() -> None:
    assert topic_or_pattern(scope("px.eur")) == "px.eur"


@pytest.mark.parametrize("part", ["p%78", "p%252A", "", ".px"])
def test_anything_else_in_a_name_is_a_trick(part: str) -> None:
    with pytest.raises(Refused):
        topic_or_pattern(scope(part))


@pytest.mark.parametrize(
    ("pattern", "other", "is_covered"),
    [
        (">", "px.>", True),
        (">", "*", True),
        ("px.>", "px.*.eu", True),
        ("px.>", "px.eu", True),
        ("px.*", "px.*", True),
        ("*.eu", "*.eu", True),
        ("px.*", "px.>", False),
        ("*", ">", False),
        ("px.>", ">", False),
        ("px.>", "px", False),
        ("px.eu", "px.*", False),
        ("px.*.>", "px.>", False),
        (">", "tidegate.>", False),
        ("tidegate.>", "tidegate.*", True),
    ],
)
def test_a_pattern_covers_another(pattern: str, other: str, is_covered: bool) -> None:
    assert TopicPattern.parse(pattern).covers(other) is is_covered
