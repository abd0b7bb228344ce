"""What a subscription begins with, and how a replay changes to live rows."""

from __future__ import annotations

from tests.support.manual_driver import ManualDriver, described
from tests.support.rules import rule


def replay(options: str, text: str = "a1 b1 c1 d1", **definition: object) -> ManualDriver:
    driver = ManualDriver()
    driver.topic(**definition)  # type: ignore[arg-type]  # checked by topic
    driver.publish(text)
    driver.subscribe(f"bookmark=epoch,{options}", command=None)
    return driver


@rule("resume-9")
def test_a_replay_goes_at_its_speed_and_wakes_its_session() -> None:
    driver = replay("rate=2")
    assert described(driver.take()) == ["resumed by replay, gap 4", "a1"]
    driver.announcements()
    driver.wait("499ms")
    assert (driver.announced(), driver.received()) == ([], [])
    driver.wait("1ms")
    assert (driver.announced(), driver.received()) == (["s"], ["b1"])
    driver.wait("10s")
    driver.flush()
    assert driver.received() == ["c1", "d1"]


@rule("resume-8")
def test_what_is_published_meanwhile_follows_then_the_live_rows() -> None:
    driver = replay("rate=1", "a1 b1")
    driver.take()
    driver.publish("c1")
    driver.wait("1s")
    assert driver.received() == ["b1"]
    driver.wait("1s")
    assert driver.received() == ["c1"]
    driver.publish("d1")
    driver.flush()
    assert driver.received() == ["d1"]


@rule("resume-8")
def test_a_journal_trimmed_under_a_replay_is_announced() -> None:
    """Never a silent gap."""
    driver = replay("rate=1", "a1 b1", history=2)
    driver.take()
    driver.wait("1s")
    driver.publish("c1 d1 e1 f1")
    assert driver.received() == [
        "b1",
        "resumed by snapshot, gap 4",
        "group of 6",
        "snapshot: a1 b1 c1 d1 e1 f1",
        "group ends at e1-6",
    ]


@rule("change-3")
def test_a_replay_can_begin_paused() -> None:
    driver = replay("pause")
    assert driver.received() == []
    driver.change("sub1", "bookmark=epoch", command=None)
    assert driver.received() == ["resumed by replay, gap 4", "a1 b1 c1 d1"]


def test_snapshot_rows_stand_in_the_order_asked_for_and_so_many_at_a_time() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b3 c2")
    driver.subscribe("batch_size=2", order="/v DESC", command="sow_and_subscribe")
    assert driver.received() == [
        "group of 3",
        "snapshot: b3 c2",
        "snapshot: a1",
        "group ends at e1-3",
    ]
