"""The range of a topic that an archive has, as the engine knows it."""

from __future__ import annotations

import pytest

from tests.support.manual_driver import ManualDriver
from tests.support.rules import rule
from tidegate.conflation.topics.topic import Archived
from tidegate.keys.text.bookmark import Bookmark

STAMPS = ((100, 1), (200, 11), (300, 21))


@pytest.mark.parametrize(
    ("time_ms", "offset_before"), [(50, 0), (100, 0), (101, 0), (200, 0), (201, 10), (999, 20)]
)
def test_start_at_returns_the_offset_before_the_first_message_not_older(
    time_ms: int, offset_before: int
) -> None:
    assert Archived(1, 30, STAMPS).start_at(time_ms) == offset_before


@rule("archive-5")
@pytest.mark.parametrize(
    ("archived", "beginning"),
    [
        (None, 4),
        (Archived(2, 4), 1),
        (Archived(2, 6), 1),
        (Archived(4, 4), 3),
        (Archived(2, 3), 4),  # a gap between archive and journal
        (Archived(5, 6), 4),
    ],
)
def test_an_archive_extends_the_beginning_only_without_a_gap(
    archived: Archived | None, beginning: int
) -> None:
    driver = ManualDriver()
    driver.topic(history=2)
    driver.publish("a1 b2 c3 d4 e5 f6")
    topic = driver.engine.topic("px")
    topic.archived = archived
    assert topic.beginning == beginning
    assert topic.reaches(Bookmark(topic.epoch, beginning))
    assert not topic.reaches(Bookmark(topic.epoch, beginning - 1))
    assert not topic.reaches(Bookmark("another", beginning))
    assert not topic.reaches(Bookmark(topic.epoch, 7))
