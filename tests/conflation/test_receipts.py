"""Receipts and what no receipt counts sum up to what matched (rules delta-6 and account-5)."""

from __future__ import annotations

import pytest

from tests.support.manual_driver import ManualDriver, batches, counts
from tests.support.rules import rule
from tidegate.conflation.frame import receipt_of
from tidegate.keys.merging import Merger, Verdict

pytestmark = rule("delta-6", "account-5")


OPTIONS = "conflation=300ms,receipt,oof"


def reported(driver: ManualDriver) -> int:
    """The sum of the receipts of everything that can be taken, removals included."""
    return sum(receipt_of(row).messages for batch in batches(driver.take()) for row in batch.frames)


def figures(driver: ManualDriver) -> tuple[int, int, int]:
    """What matched, what waits, and what no receipt counts."""
    (row,) = driver.engine.session_stats("s").subscriptions
    return row.matched, row.waiting, row.unreported


@rule("removal-2", "account-5")
def test_a_key_that_came_and_went_is_unreported_until_it_comes_again() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(OPTIONS)
    driver.publish("a1 a2 a3 a4 a5")
    driver.remove("a0")
    driver.wait("300ms")
    assert reported(driver) == 0
    assert figures(driver) == (5, 0, 5)
    driver.publish("a6")
    driver.wait("300ms")
    assert reported(driver) == 6
    assert figures(driver) == (6, 0, 0)


@rule("account-5")
@pytest.mark.parametrize("after", ["conflation=200ms,receipt,oof", "conflation=none,receipt,oof"])
@pytest.mark.parametrize("is_held", [False, True])
def test_what_came_and_went_is_counted_over_a_move(after: str, *, is_held: bool) -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe(OPTIONS)
    driver.publish("a1 a2 a3")
    driver.remove("a0")
    driver.wait("100ms" if is_held else "300ms")
    driver.change(name, after)
    driver.wait("300ms")
    assert reported(driver) == 0
    assert figures(driver) == (3, 0, 3)
    driver.publish("a4")
    driver.wait("300ms")
    assert counts(driver.take()) == [("a4", 4, 1)]
    assert figures(driver) == (4, 0, 0)


@rule("merge-6", "account-5")
def test_what_came_and_went_goes_into_sums_over_a_move() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe(f"{OPTIONS},reduce=[/v:sum]")
    driver.publish("a1 a2")
    driver.remove("a0")
    driver.wait("300ms")
    driver.change(name, "conflation=100ms,receipt,oof,reduce=[/v:sum]")
    driver.publish("a4")
    driver.wait("300ms")
    assert counts(driver.take()) == [("a7", 3, 1)]


@rule("merge-2", "account-5")
def test_flush_on_between_coming_and_going_loses_no_count() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(f"{OPTIONS},flush_on=[/v = 2]")
    for word in ("a1", "-", "a2", "-"):
        driver.remove("a0") if word == "-" else driver.publish(word)
    driver.wait("300ms")
    driver.publish("a3")
    driver.wait("300ms")
    assert counts(driver.take()) == [("a3", 3, 1)]


@rule("removal-2", "account-5")
def test_the_removal_of_a_key_never_sent_leaves_its_messages_to_the_next_row() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1")
    driver.subscribe(OPTIONS)
    driver.publish("a2")
    driver.remove("a0")
    driver.wait("300ms")
    assert reported(driver) == 0
    assert figures(driver) == (1, 0, 1)
    driver.publish("a3")
    driver.wait("300ms")
    assert counts(driver.take()) == [("a3", 2, 2)]


@rule("delta-4", "account-5")
def test_an_empty_delta_is_unreported() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=300ms,no_empties,receipt", command="delta_subscribe")
    driver.publish("a1")
    driver.wait("300ms")
    assert reported(driver) == 1
    driver.publish("a1")
    driver.wait("300ms")
    assert figures(driver) == (2, 0, 1)
    driver.change(name, "conflation=none,no_empties,receipt", command="delta_subscribe")
    driver.wait("300ms")
    assert figures(driver) == (2, 0, 1)
    driver.publish("a2")
    driver.flush()
    assert counts(driver.take()) == [("a2", 2, 2)]


@rule("merge-1", "account-5")
def test_with_never_and_a_reader_that_is_behind_all_is_counted() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(f"{OPTIONS},never=[/v = 2]")
    driver.publish("a1")
    driver.wait("300ms")
    for text in ("a2 a3", "b1", "a1 b2"):
        driver.publish(text)
        driver.remove("a0 b0")
        driver.wait("300ms")
    matched, _, _ = figures(driver)
    assert reported(driver) + figures(driver)[2] == matched


@rule("account-5")
def test_who_is_in_step_shares_rows_though_a_message_of_his_is_unreported() -> None:
    """Only the key's next row is one of his own."""
    driver = ManualDriver()
    driver.topic()
    for session in ("s", "other"):
        driver.subscribe("conflation=100ms,receipt,oof", session=session)
    name = driver.subscribe(OPTIONS, session="moved")
    driver.publish("a1")
    driver.remove("a0")
    driver.wait("300ms")
    driver.change(name, "conflation=100ms,receipt,oof", session="moved")
    driver.publish("b1")
    driver.wait("100ms")
    shared = {id(batches(driver.take(session))[0]) for session in ("s", "other", "moved")}
    assert len(shared) == 1


@rule("change-2", "account-5")
def test_a_record_that_a_filter_brought_in_counts_nothing_that_came_and_went() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe(OPTIONS, wanted="/v > 4", command="sow_and_subscribe")
    driver.take()
    driver.publish("a5")
    driver.remove("a0")
    driver.publish("a1")
    driver.wait("300ms")
    driver.change(name, OPTIONS, command="sow_and_subscribe")
    assert counts(driver.take()) == [("a1", 0, 3)]
    assert figures(driver) == (1, 0, 1)


@rule("queue-4", "account-5")
@pytest.mark.parametrize("command", ["subscribe", "sow_and_delta_subscribe"])
def test_a_full_queue_counts_what_came_and_went(command: str) -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session(messages_max=4)
    driver.subscribe("conflation=none,receipt,oof", command=command)
    driver.take()
    driver.publish("a1 a2 b1")
    driver.remove("a0")
    driver.publish("b2 b3 b4")
    driver.flush()
    assert reported(driver) == 4
    assert figures(driver) == (6, 0, 2)
    driver.publish("a3")
    driver.flush()
    assert reported(driver) == 3
    assert figures(driver) == (7, 0, 0)


@rule("merge-6", "account-5")
def test_what_a_merger_declines_after_a_removal_is_counted() -> None:
    """Somebody joined in between, so the parts are put together late."""
    merger = Merger(
        "tests:declines", lambda old, new: Verdict.NO_CONFLATION if new["v"] == 3 else new
    )
    driver = ManualDriver()
    driver.topic(merge=merger)
    driver.publish("a1")
    driver.subscribe(OPTIONS, command="sow_and_subscribe")
    driver.take()
    driver.publish("a2")
    driver.subscribe(OPTIONS, session="late")
    driver.remove("a0")
    driver.publish("a3")
    driver.wait("300ms")
    assert counts(driver.take()) == [("a3", 2, 2)]
