"""A replay that begins before the journal: pieces of an archive, the journal, live rows."""

from __future__ import annotations

import pytest

from tests.support.manual_driver import ManualDriver, described, ids
from tests.support.rules import rule
from tidegate.conflation.frame import Frame
from tidegate.conflation.outputs import Announcement, HistoryWanted
from tidegate.conflation.topics.topic import Archived
from tidegate.conflation.tracing.recorder import copy_of

TEXT = "a1 b2 a3 c4 b5 a6 c7 d8"


class Shelf:
    """A driver whose journal has two messages left, and an archive of all of them."""

    def __init__(self, text: str = TEXT, *, last: int | None = None, **definition: object) -> None:
        self.driver = ManualDriver()
        self.driver.topic(history=2, **definition)  # type: ignore[arg-type]  # checked by topic
        self.frames: list[Frame] = []
        self._keep = self.driver.engine.publish
        self.topic = self.driver.engine.topic("px")
        for word in text.split():
            self.publish(word)
        self.topic.archived = Archived(1, last or len(self.frames), ((0, 1), (4, 4)))
        self.wanted: list[HistoryWanted] = []

    def publish(self, text: str) -> None:
        """Publish, and archive what was."""
        self.driver.publish(text)
        self.frames += self.topic.journal.after(len(self.frames))

    def announcements(self) -> list[Announcement]:
        found = self.driver.engine.announcements()
        self.wanted += [event for event in found if isinstance(event, HistoryWanted)]
        return found

    def bring(self, count: int = 3) -> None:
        """The next piece, if one is wanted."""
        self.announcements()
        wanted = self.wanted.pop(0)
        piece = self.frames[wanted.after : wanted.after + count]
        self.driver.engine.supply_history(wanted, piece, self.driver.now)

    def received(self) -> list[str]:
        return self.driver.received()


def replay(options: str = "bookmark=epoch", **given: object) -> Shelf:
    shelf = Shelf(**given)  # type: ignore[arg-type]  # as Shelf has them
    shelf.driver.subscribe(options, command=None)
    return shelf


@rule("archive-5")
def test_a_replay_goes_from_the_archive_into_the_journal_and_on() -> None:
    """No gap and no repeat at the seam."""
    shelf = replay()
    assert shelf.received() == ["resumed by replay, gap 8"]
    shelf.bring()
    assert shelf.received() == ["a1 b2 a3"]
    shelf.publish("e9")
    shelf.bring()
    assert shelf.received() == ["c4 b5 a6"]
    shelf.bring(1)
    assert shelf.received() == ["c7 d8 e9"]
    shelf.publish("f1")
    shelf.driver.flush()
    assert shelf.received() == ["f1"]
    assert not shelf.wanted


def test_each_piece_has_an_id_that_can_be_resumed_from() -> None:
    shelf = replay()
    shelf.driver.take()
    shelf.bring()
    assert ids(shelf.driver.take()) == [3]
    shelf.driver.session("again")
    shelf.driver.subscribe("conflation=none", session="again", resume="e1-3")
    assert described(shelf.driver.take("again")) == ["resumed by replay, gap 5"]
    shelf.announcements()
    shelf.wanted = [each for each in shelf.wanted if each.session == "again"]
    shelf.bring(2)
    assert described(shelf.driver.take("again")) == ["c4 b5"]


@rule("resume-4", "archive-5")
def test_an_interval_is_measured_over_all_pieces_and_the_journal() -> None:
    """The pieces cannot be seen."""
    whole = ManualDriver()
    whole.topic()
    whole.publish(TEXT)
    whole.subscribe("bookmark=epoch,conflation=3ms", command=None)
    expected = " ".join(whole.received()[1:])
    for size in (1, 2, 3, 6):
        shelf = replay("bookmark=epoch,conflation=3ms")
        heard = shelf.received()[1:]
        while shelf.announcements() or shelf.wanted:
            if shelf.wanted:
                shelf.bring(size)
            heard += shelf.received()
        assert " ".join(heard) == expected


def test_a_piece_without_a_matching_row_is_followed_by_the_next() -> None:
    shelf = Shelf()
    shelf.driver.subscribe("bookmark=epoch", command=None, wanted="/k = 'c'")
    shelf.received()
    shelf.bring()
    assert shelf.received() == []
    shelf.bring(1)
    assert shelf.received() == ["c4"]
    shelf.bring()
    assert shelf.received() == ["c7"]


@rule("archive-5")
def test_a_time_begins_in_the_archive() -> None:
    """With the first message that is not older."""
    shelf = replay("bookmark=1970-01-01T00:00:00.005Z")
    assert shelf.received() == ["resumed by replay, gap None"]
    heard: list[str] = []
    while shelf.announcements() or shelf.wanted:
        if shelf.wanted:
            shelf.bring()
        heard += shelf.received()
    assert shelf.received() == []
    assert " ".join(heard) == "b5 a6 c7 d8"


@rule("archive-5")
def test_a_gap_in_the_archive_is_announced() -> None:
    """Never a silent gap."""
    shelf = replay()
    shelf.driver.take()
    shelf.bring()
    shelf.received()
    shelf.bring(0)
    assert shelf.received()[:2] == ["resumed by snapshot, gap 5", "group of 4"]
    shelf.publish("e9")
    shelf.driver.flush()
    assert shelf.received() == ["e9"]


@pytest.mark.parametrize("last", [5, 3])
def test_an_archive_that_ends_before_the_journal_begins_is_none(last: int) -> None:
    shelf = replay("bookmark=e1-1", last=last)
    assert shelf.received()[0] == "resumed by snapshot, gap 7"
    assert replay("bookmark=epoch", last=last).received() == ["resumed by replay, gap 2", "c7 d8"]


def test_a_piece_that_nobody_waits_for_is_passed_over() -> None:
    shelf = replay()
    shelf.driver.take()
    shelf.announcements()
    shelf.driver.engine.close_session("s")
    shelf.bring()
    shelf = replay()
    shelf.driver.take()
    shelf.announcements()
    late = shelf.wanted[0]
    shelf.bring()
    shelf.driver.engine.supply_history(late, shelf.frames[:3], shelf.driver.now)
    assert shelf.received() == ["a1 b2 a3"]


def test_a_rate_holds_over_the_pieces() -> None:
    shelf = replay("bookmark=epoch,rate=2")
    shelf.driver.take()
    shelf.bring()
    assert shelf.received() == ["a1"]
    shelf.driver.wait("500ms")
    assert shelf.received() == ["b2"]
    shelf.driver.wait("500ms")
    assert shelf.received() == ["a3"]
    shelf.bring()
    assert shelf.received() == []
    shelf.driver.wait("500ms")
    assert shelf.received() == ["c4"]


def test_a_twin_asks_for_nothing_in_the_place_of_the_original() -> None:
    shelf = replay()
    subscriber = shelf.driver.engine.session("s").subscribers.get(("sub1", "px"))
    assert subscriber is not None
    twin = copy_of(subscriber)
    assert twin.backfill is not None
    assert twin.history is not None
    twin.history.asked = True
    shelf.driver.take()
    shelf.bring()
    assert shelf.received() == ["a1 b2 a3"]
