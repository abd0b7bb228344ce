"""A topic: numbering, journal, feeds that come and go."""

from __future__ import annotations

import pytest

from tests.support.manual_driver import ManualDriver, make_frames, tokens
from tidegate.conflation.definition import Definition, History
from tidegate.conflation.errors import BookmarkExpired
from tidegate.conflation.frame import Tombstone
from tidegate.conflation.subscription import FeedId
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark


def topic_of(text: str, kept: int = 100) -> Topic:
    topic = Topic("px", Definition(History(kept), KeySpec.parse("[/k]")), "e1")
    topic.publish(make_frames(text), 0)
    return topic


def test_messages_are_counted_and_numbered_without_holes() -> None:
    topic = topic_of("a1 b1")
    assert (topic.head, topic.messages_in, topic.bytes_in) == (2, 2, 2 * len(b'{"k":"a","v":1}'))
    with pytest.raises(AssertionError, match="holes"):
        topic.publish(make_frames("c1", first=4), 0)


def test_the_journal_is_read_from_its_beginning_or_from_a_bookmark() -> None:
    topic = topic_of("a1 b1 c1 d1", kept=3)
    assert tokens(topic.since(topic.bookmark(topic.beginning), 10)) == "b1 c1 d1"
    assert tokens(topic.since(topic.bookmark(topic.beginning), 2)) == "b1 c1"
    assert tokens(topic.since(topic.bookmark(1), 10)) == "b1 c1 d1"
    assert tokens(topic.since(topic.bookmark(2), 1)) == "c1"
    assert tokens(topic.since(topic.bookmark(4), 10)) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [("e1-0", "does not reach back"), ("e1-5", "ahead of the topic"), ("e2-3", "no such epoch")],
)
def test_a_bookmark_that_the_journal_does_not_reach_has_expired(text: str, why: str) -> None:
    topic = topic_of("a1 b1 c1 d1", kept=3)
    with pytest.raises(BookmarkExpired) as refused:
        topic.since(Bookmark.parse(text), 10)
    assert refused.value.code == "bookmark-expired"
    assert why in refused.value.detail


def test_the_state_of_the_world_stays_when_nobody_listens() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,conflation_key=[/v]")
    driver.engine.close_session("s")
    assert list(driver.engine.topic("px").feeds) == [FeedId(KeySpec.parse("[/k]"))]


def test_a_plain_topic_keeps_no_records() -> None:
    driver = ManualDriver()
    driver.topic(key="")
    driver.subscribe("conflation=none")
    driver.publish("a1")
    assert driver.engine.topic("px").sow is None
    assert driver.engine.topic_stats("px").keys == 0
    driver.engine.close_session("s")
    assert driver.engine.topic("px").feeds == {}


def test_the_second_removal_of_a_record_takes_no_value_away() -> None:
    (put,) = make_frames("a1")
    removals = [Tombstone(offset, b"", put.key) for offset in (2, 3)]
    topic = Topic("px", Definition(History(100), KeySpec.parse("[/k]")), "e1")
    topic.publish([put, *removals], 0)
    assert [frame.payload for frame in topic.since(topic.bookmark(topic.beginning), 10)] == [
        put.payload,
        put.payload,
        b"",
    ]
