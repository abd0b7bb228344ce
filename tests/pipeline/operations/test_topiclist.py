"""The list of topics crosses the wire where it has changed."""

from __future__ import annotations

import pytest

from pipeline.errors import GatewayUnreachable
from pipeline.operations import topiclist
from pipeline.operations.topiclist import TopicList
from pipeline.patience import PATIENCE_S
from tests.pipeline.journals import Journals


def test_pages_are_read_to_the_end_and_known_ones_are_kept(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 647."""
    monkeypatch.setattr(topiclist, "FIRST_PAGE", "/v1/topics?limit=2")
    for name in "abc":
        journals.topic(name)
    listed = TopicList(journals.address)
    assert [topic["topic"] for topic in listed.read(PATIENCE_S)] == ["a", "b", "c"]
    first = listed.read(0.0)
    assert listed.read(0.0)[0] is first[0]
    journals.topic("d")
    again = listed.read(0.0)
    assert [topic["topic"] for topic in again] == ["a", "b", "c", "d"]
    assert again[0] is first[0]
    assert again[2] is not first[2]
    assert journals.lists == 8


def test_nobody_answers() -> None:
    with pytest.raises(GatewayUnreachable):
        TopicList("http://127.0.0.1:9").read(0.0)
