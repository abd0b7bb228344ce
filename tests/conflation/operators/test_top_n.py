"""Live windows: the first so many by an order."""

from __future__ import annotations

from tests.support.manual_driver import ManualDriver, batches
from tests.support.rules import rule


def window(options: str, order: str = "/v DESC") -> ManualDriver:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b5 c3 d4")
    driver.subscribe(options, order=order, command="sow_and_subscribe")
    return driver


@rule("view-1")
def test_a_snapshot_is_the_window_in_its_order() -> None:
    assert window("top_n=2,oof").received() == [
        "group of 2",
        "snapshot: b5 d4",
        "group ends at e1-4",
    ]
    assert window("top_n=2,skip_n=1").received()[1] == "snapshot: d4 c3"


@rule("view-1")
def test_who_comes_in_pushes_somebody_out() -> None:
    driver = window("top_n=2,oof")
    driver.take()
    driver.publish("a9")
    driver.flush()
    assert driver.received() == ["-d4 a9"]
    driver.publish("b0")
    driver.flush()
    assert driver.received() == ["-b0 d4"]
    driver.remove("a0")
    driver.flush()
    assert driver.received() == ["-a9 c3"]


def test_below_the_window_nothing_is_told() -> None:
    driver = window("top_n=2,oof")
    driver.take()
    driver.publish("a2 c1")
    driver.flush()
    assert driver.received() == []
    assert driver.engine.session_stats("s").subscriptions[0].matched == 0


@rule("removal-2", "view-1")
def test_an_interval_tells_how_the_window_is_at_its_end() -> None:
    """B was out and is back."""
    driver = window("top_n=2,oof,conflation=1s")
    driver.take()
    driver.publish("a9 c8 a0")
    driver.wait("1s")
    assert driver.received() == ["-d4 c8 b5"]


@rule("view-1")
def test_without_an_order_records_stand_by_their_key() -> None:
    assert window("top_n=2", order="").received()[1] == "snapshot: a1 b5"


@rule("resume-6")
def test_rows_moved_by_one_message_are_never_taken_apart() -> None:
    """A piece of an answer is a position, and so is a message."""
    driver = window("top_n=2,oof")
    driver.take(bytes_max=1)
    driver.publish("a9")
    driver.flush()
    (batch,) = batches(driver.take_once(1))
    assert len(batch.frames) == 2
