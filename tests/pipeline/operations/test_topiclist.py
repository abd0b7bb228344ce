"""The list of topics crosses the wire where it has changed."""

from __future__ import annotations

import pytest

from tests.pipeline.journals import Journals
from tests.support.rules import rule
from tidegate.pipeline.connection import AT_ONCE, PATIENT
from tidegate.pipeline.errors import GatewayUnreachable
from tidegate.pipeline.operations import topic_watcher as topiclist
from tidegate.pipeline.operations.topic_watcher import TopicList


@rule("pipeline-14")
def test_pages_are_read_to_the_end_and_known_ones_are_kept(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topiclist, "FIRST_PAGE", "/v1/topics?limit=2")
    for name in "abc":
        journals.topic(name)
    listed = TopicList(journals.address)
    assert [topic["topic"] for topic in listed.read(PATIENT)] == ["a", "b", "c"]
    first = listed.read(AT_ONCE)
    assert listed.read(AT_ONCE)[0] is first[0]
    journals.topic("d")
    again = listed.read(AT_ONCE)
    assert [topic["topic"] for topic in again] == ["a", "b", "c", "d"]
    assert again[0] is first[0]
    assert again[2] is not first[2]
    assert journals.lists == 8


def test_nobody_answers() -> None:
    with pytest.raises(GatewayUnreachable):
        TopicList("http://127.0.0.1:9").read(AT_ONCE)
