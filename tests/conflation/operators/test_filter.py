"""Which records a filter puts on a board, and which leave it again: `oof`."""

from __future__ import annotations

import pytest

from tests.support.manual_driver import ManualDriver, batches
from tests.support.rules import rule
from tidegate.conflation.frame import RemovalReason

ABOVE = "/v > 4"


def reasons(driver: ManualDriver) -> list[tuple[str, str]]:
    """The removals that a session takes: key and reason."""
    rows = [row for batch in batches(driver.take()) for row in batch.frames]
    return [(row.key, row.reason) for row in rows if row.removed]  # type: ignore[attr-defined]  # tombstones have one


def filtered(options: str, command: str = "sow_and_subscribe") -> ManualDriver:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a5 b1 c9")
    driver.subscribe(options, wanted=ABOVE, command=command)
    return driver


def test_a_snapshot_shows_what_matches() -> None:
    driver = filtered("conflation=1s,oof")
    assert driver.received() == ["group of 2", "snapshot: a5 c9", "group ends at e1-3"]


@rule("removal-1")
def test_what_no_longer_matches_leaves_with_its_last_matching_value() -> None:
    driver = filtered("conflation=1s,oof")
    driver.take()
    driver.publish("a6 a2 b7")
    driver.wait("1s")
    assert driver.received() == ["-a6 b7"]


@rule("removal-1")
def test_without_an_interval_the_removal_brings_the_record_as_it_is_now() -> None:
    """AMPS's `match`."""
    driver = filtered("oof")
    driver.take()
    driver.publish("a6 a2 b7")
    driver.flush()
    assert driver.received() == ["a6 -a2 b7"]


@rule("removal-2")
def test_out_and_back_is_a_value_and_in_and_out_is_nothing() -> None:
    driver = filtered("conflation=1s,oof")
    driver.take()
    driver.publish("a1 a7 b8 b2")
    driver.wait("1s")
    assert driver.received() == ["a7"]


@rule("removal-4")
def test_without_oof_what_was_held_is_still_sent() -> None:
    driver = filtered("conflation=1s")
    driver.take()
    driver.publish("a6 a2")
    driver.wait("1s")
    assert driver.received() == ["a6"]
    driver.publish("c1")
    driver.wait("1s")
    assert driver.received() == []


@rule("removal-2")
@pytest.mark.parametrize("options", ["conflation=1s,oof", "oof", "conflation=1s,oof,pace=key"])
def test_a_key_that_was_never_sent_is_not_taken_back(options: str) -> None:
    driver = filtered(options, command="subscribe")
    driver.publish("a1 c8")
    driver.wait("2s")
    assert driver.received() == ["c8"]
    driver.publish("c1")
    driver.wait("2s")
    assert reasons(driver) == [('["c"]', "match")]


@rule("removal-1")
@pytest.mark.parametrize("options", ["conflation=1s,oof", "oof", "conflation=1s,oof,pace=key"])
def test_a_removal_says_why(options: str) -> None:
    driver = filtered(options)
    driver.take()
    driver.remove("a0")
    driver.remove("c0", reason=RemovalReason.EXPIRED)
    driver.wait("2s")
    assert reasons(driver) == [('["a"]', "deleted"), ('["c"]', "expired")]


@rule("removal-1")
def test_a_removal_stands_in_the_journal_with_what_it_took_away() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a5")
    driver.remove("a0")
    topic = driver.engine.topic("px")
    value, removal = topic.since(topic.bookmark(topic.beginning), 10)
    assert (value.removed, removal.removed) == (False, True)
    assert removal.payload == value.payload
    assert driver.engine.topic("px").sow.board.live() == []  # type: ignore[union-attr]  # a keyed topic has one


@rule("merge-1")
def test_an_exempt_message_is_sent_beside_the_newest() -> None:
    """On a plain interval."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s")
    driver.publish("a1")
    driver.publish("a2", exempt=True)
    driver.publish("a3")
    driver.wait("1s")
    assert driver.received() == ["a2 a3"]


@rule("removal-2", "merge-1")
def test_an_exempt_message_that_is_taken_back_is_taken_back_from_all() -> None:
    """It was sent, so its removal is told."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,oof", command="sow_and_subscribe")
    driver.take()
    driver.publish("a1", exempt=True)
    driver.remove("a0")
    driver.wait("1s")
    assert driver.received() == ["a1 -a1"]
