from __future__ import annotations

import pytest

from tidegate.pipeline.definitions.terms import STREAM, TOPIC


@pytest.mark.parametrize("name", ["a", "ticks-1s", "A_b", "9", "a" * 63])
def test_streams_have_short_plain_names(name: str) -> None:
    assert STREAM.fullmatch(name)


@pytest.mark.parametrize("name", ["", "-a", "a b", "a.b", "a" * 64, "é", "a\n"])
def test_others_are_refused(name: str) -> None:
    assert not STREAM.fullmatch(name)


@pytest.mark.parametrize("name", ["a", "ticks.1s", "a_b-c", "a" * 255])
def test_topics_may_have_dots(name: str) -> None:
    assert TOPIC.fullmatch(name)


@pytest.mark.parametrize("name", ["", ".a", "_a", "a/b", "a" * 256])
def test_other_topics_are_refused(name: str) -> None:
    assert not TOPIC.fullmatch(name)
