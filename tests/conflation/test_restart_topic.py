"""A topic restarts in another epoch: subscriptions stay, and get a snapshot of the new records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conflation.sessions.test_history import Shelf
from tests.support.manual_driver import ManualDriver, described, make_frames
from tests.support.rules import rule
from tidegate.conflation.errors import BookmarkExpired, TopicUnknown
from tidegate.conflation.frame import RestoredTopic
from tidegate.conflation.outputs import RecordsExpired
from tidegate.keys.text.bookmark import Bookmark

pytestmark = rule("cluster-2")


def restart(
    driver: ManualDriver, records: str = "", *, epoch: str = "e2", first: int = 1, **former: int
) -> None:
    """Restart the topic with these records; `former` epochs continue up to these offsets."""
    frames = make_frames(records, first)
    head = frames[-1].offset if frames else 0
    kept = RestoredTopic(head, frames, journal=frames, dropped_through=first - 1, former=former)
    driver.engine.restart_topic("px", epoch, kept, driver.now, 0)


@pytest.mark.parametrize("options", ["conflation=none", "conflation=1s", "conflation=1s,oof"])
@pytest.mark.parametrize("command", ["subscribe", "sow_and_subscribe"])
def test_subscribers_get_the_remaining_records_as_a_snapshot(options: str, command: str) -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b1")
    driver.subscribe(options, command=command)
    driver.wait("1s")
    driver.received()
    restart(driver, "a1")
    assert driver.received() == [
        "resumed by snapshot, gap None",
        "group of 1",
        "snapshot: a1",
        "group ends at e2-1",
    ]
    driver.publish("c1")
    driver.wait("1s")
    assert driver.received() == ["c1"]


@rule("cluster-16", "resume-2")
@pytest.mark.parametrize(
    ("command", "options", "mode"),
    [
        ("sow_and_subscribe", "", "snapshot"),
        ("subscribe", "oof", "snapshot"),
        ("subscribe", "", "replay"),
    ],
)
def test_a_reader_that_holds_records_gets_them_again_in_an_epoch_that_continues(
    command: str, options: str, mode: str
) -> None:
    """It may have got rows of a flush without its id, and those may be lost."""
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b1")
    restart(driver, "a1 b1", e1=2)
    driver.publish("b2")
    driver.subscribe(options, command=command, resume="e1-2")
    assert driver.received()[0] == f"resumed by {mode}, gap 1"


@rule("cluster-16")
def test_a_reader_to_which_nothing_was_sent_yet_continues_after_its_id() -> None:
    """It came while the gateway still had what is lost."""
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b1 c1")
    driver.subscribe("conflation=none", resume="e1-1")
    restart(driver, "a1 b1", e1=2)
    assert driver.received() == ["resumed by replay, gap 1", "b1"]
    driver.publish("d1")
    restart(driver, "a1 b1", epoch="e3", e2=2, e1=2)
    assert driver.received()[0] == "resumed by snapshot, gap None"


@rule("cluster-16")
def test_a_reader_to_which_an_archive_has_sent_rows_is_told() -> None:
    shelf = Shelf()
    shelf.driver.subscribe("conflation=none", command="subscribe", resume="e1-5")
    shelf.received()
    shelf.bring(8)
    shelf.publish("e9")  # the replay goes on with what came meanwhile
    assert described(shelf.driver.engine.take("s", 1 << 20)) == ["a6 c7 d8"]
    frames = shelf.frames[:7]
    kept = RestoredTopic(7, frames, journal=frames, former={"e1": 7})
    shelf.driver.engine.restart_topic("px", "e2", kept, shelf.driver.now, 0)
    assert shelf.received()[0] == "resumed by snapshot, gap None"


def test_a_restart_without_records_sends_an_empty_group() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1")
    driver.subscribe()
    driver.received()
    restart(driver)
    expected = ["resumed by snapshot, gap None", "group of 0", "group ends at e2-0"]
    assert driver.received() == expected
    driver.publish("a2")
    driver.flush()
    assert driver.received() == ["a2"]


def test_rows_held_or_queued_of_the_old_epoch_are_not_sent() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s")
    driver.subscribe()
    driver.publish("a1 a2")
    restart(driver, "a1")
    driver.wait("5s")
    assert [line for line in driver.received() if "a2" in line] == []
    stats = driver.engine.topic_stats("px")
    assert stats.matched == stats.delivered + stats.conflated + stats.dropped + stats.waiting
    assert dict(stats.dropped_by)["RENEWED"] > 0


def test_a_pending_change_of_options_still_applies() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=1s")
    driver.publish("a1")
    driver.change(name, "conflation=100ms")
    restart(driver, "a1")
    driver.received()
    driver.publish("a2")
    driver.wait("100ms")
    assert driver.received() == ["a2"]


def test_a_paused_subscription_gets_the_new_snapshot_when_it_resumes() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=1s")
    wanted = driver.request("conflation=1s")
    driver.engine.change("s", name, replace(wanted, paused=True), driver.now)
    restart(driver, "a1")
    assert driver.received() == []
    driver.engine.change("s", name, wanted, driver.now)
    assert "snapshot: a1" in driver.received()


def test_a_restart_in_the_middle_of_a_snapshot_sends_another_one() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b1")
    driver.subscribe("batch_size=1", command="sow_and_subscribe")
    assert driver.received(bytes_max=1)[:2] == ["group of 2", "snapshot: a1"]
    restart(driver, "b1")
    assert driver.received() == [
        "resumed by snapshot, gap None",
        "group of 1",
        "snapshot: b1",
        "group ends at e2-1",
    ]


def test_bookmarks_of_the_old_epoch_get_a_snapshot() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b1")
    restart(driver, "a1 b1")
    driver.subscribe("conflation=1s", resume="e1-2")
    assert driver.received()[0] == "resumed by snapshot, gap None"
    driver.subscribe("conflation=1s", resume="e2-1")
    assert driver.received() == ["resumed by changes, gap 1", "b1"]


@pytest.mark.parametrize("options", ["conflation=none", "conflation=1s", "conflation=1s,oof"])
def test_a_restart_that_continues_the_epoch_only_changes_its_name(options: str) -> None:
    driver = ManualDriver()
    driver.topic(expiration="10s")
    driver.publish("a1")
    driver.subscribe(options)
    driver.received()
    driver.publish("a2 b1")  # held, or queued
    restart(driver, "a2 b1", first=2, e1=3)
    driver.publish("a3")
    driver.wait("1s")
    assert " ".join(driver.received()) == ("a2 b1 a3" if "none" in options else "b1 a3")
    assert driver.engine.topic("px").epoch == "e2"
    assert str(driver.engine.topic("px").bookmark(4)) == "e2-4"
    driver.wait("10s")
    expired = [event for event in driver.announcements() if isinstance(event, RecordsExpired)]
    assert {event.epoch for event in expired} == {"e2"}


def test_bookmarks_of_a_continued_epoch_are_continued_up_to_what_both_have() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b1 c1")
    restart(driver, "a1 b1", e0=1, e1=2)  # e1 had three messages, of which two remain
    driver.publish("d1")
    for resume, said in (
        ("e0-1", "resumed by replay, gap 2"),
        ("e0-2", "resumed by snapshot, gap None"),
        ("e1-2", "resumed by replay, gap 1"),
        ("e1-3", "resumed by snapshot, gap None"),
        ("e2-2", "resumed by replay, gap 1"),
    ):
        driver.subscribe("conflation=none", resume=resume)
        assert driver.received()[0] == said, resume
    topic = driver.engine.topic("px")
    assert [frame.offset for frame in topic.since(Bookmark("e1", 1), 10)] == [2, 3]
    with pytest.raises(BookmarkExpired, match="no such epoch"):
        topic.since(Bookmark("e1", 3), 10)


def test_with_an_interval_what_was_sent_beyond_an_id_of_an_earlier_epoch_is_corrected() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b1 a2")  # a2 can have been sent ahead of b1, whose id is still to come
    restart(driver, "a1 b1", e1=2)
    driver.subscribe("conflation=1s,pace=key", resume="e1-1")
    assert driver.received() == [
        "resumed by snapshot, gap 1",
        "group of 2",
        "snapshot: a1 b1",
        "group ends at e2-2",
    ]
    driver.subscribe("conflation=1s,pace=key", resume="e2-1")
    assert driver.received()[0] == "resumed by changes, gap 1"


def test_a_gap_in_the_received_messages_restarts_within_the_epoch() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1")
    driver.subscribe()
    driver.flush()
    driver.received()
    restart(driver, "a9", epoch="e1", first=7)
    assert driver.received()[-1] == "group ends at e1-7"


def test_records_expire_by_their_new_offsets_and_once() -> None:
    driver = ManualDriver()
    driver.topic(expiration="10s")
    driver.publish("a1 b1")
    restart(driver, "a1")
    driver.wait("10s")
    assert [event for event in driver.announcements() if isinstance(event, RecordsExpired)] == [
        RecordsExpired("px", "e2", 1)
    ]


def test_messages_before_the_restart_still_count() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 a2")
    restart(driver, "a1")
    driver.publish("a3")
    assert driver.engine.topic_stats("px").messages_in == 3


def test_a_missing_topic_cannot_restart() -> None:
    with pytest.raises(TopicUnknown):
        restart(ManualDriver())
