"""Messages that can no longer be sent: the reader gets an event, or its subscription ends."""

from __future__ import annotations

import pytest

from tests.support.manual_driver import ManualDriver
from tests.support.rules import rule
from tidegate.conflation.errors import BookmarkExpired
from tidegate.conflation.frame import RestoredTopic
from tidegate.conflation.outputs import Resumed
from tidegate.conflation.subscription import NotFound

FAILS = "bookmark=epoch,bookmark_not_found=fail"


def driver_of(text: str, **definition: object) -> ManualDriver:
    driver = ManualDriver()
    driver.topic(**definition)  # type: ignore[arg-type]  # checked by topic
    driver.publish(text)
    return driver


@rule("resume-10")
@pytest.mark.parametrize(
    ("options", "key", "not_found"),
    [
        ("", "", NotFound.NOW),
        ("conflation=1s,conflation_key=[/k]", "", NotFound.NOW),
        ("", "[/k]", NotFound.NOW),
        ("conflation=1s", "[/k]", None),  # the snapshot has the newest value of each key
        ("bookmark=epoch", "[/k]", NotFound.NOW),
        ("bookmark=e9-1,bookmark_not_found=epoch", "[/k]", NotFound.EPOCH),
    ],
)
def test_resumed_says_that_messages_are_missing(
    options: str, key: str, not_found: NotFound | None
) -> None:
    driver = driver_of("a1 a2 a3", key=key, history=1)
    driver.subscribe(options, resume="e9-1", command="subscribe")
    resumed = driver.take()[0]
    assert isinstance(resumed, Resumed)
    assert resumed.not_found is not_found


@rule("resume-10")
def test_a_subscription_with_a_snapshot_misses_nothing() -> None:
    driver = driver_of("a1 a2 a3", history=1)
    driver.subscribe("", resume="e1-1", command="sow_and_subscribe")
    resumed = driver.take()[0]
    assert isinstance(resumed, Resumed)
    assert resumed.not_found is None


@rule("resume-10")
@pytest.mark.parametrize("bookmark", ["e1-1", "e9-1"])
def test_who_comes_back_too_late_is_refused_with_fail(bookmark: str) -> None:
    driver = driver_of("a1 a2 a3", key="", history=1)
    with pytest.raises(BookmarkExpired):
        driver.subscribe(FAILS, resume=bookmark, command="subscribe")
    driver.subscribe(FAILS, resume="e1-2", command="subscribe", session="in-time")
    assert driver.received("in-time") == ["resumed by replay, gap 1", "a3"]


@rule("resume-10")
def test_a_replay_that_the_journal_overtakes_ends_with_fail() -> None:
    driver = driver_of("a1 a2", key="", history=2)
    driver.subscribe(FAILS, command=None)
    driver.publish("a3 a4 a5 a6")
    assert driver.received() == [
        "resumed by replay, gap 2",
        "a1 a2",
        "unsubscribed from px: BOOKMARK_EXPIRED",
        "goodbye UNSUBSCRIBED",
    ]


@rule("resume-10")
def test_a_new_epoch_ends_a_subscription_with_fail() -> None:
    driver = driver_of("a1", key="")
    driver.subscribe(FAILS, command=None)
    driver.received()
    driver.engine.restart_topic("px", "e2", RestoredTopic(0, ()), driver.now, 0)
    assert driver.received() == ["unsubscribed from px: BOOKMARK_EXPIRED", "goodbye UNSUBSCRIBED"]
