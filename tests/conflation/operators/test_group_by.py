"""Aggregated subscriptions: a row for each group of the records as they are now."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.support.manual_driver import ManualDriver, batches
from tests.support.rules import rule

TOTALS = "projection=[/g,SUM(/v) AS /v,COUNT(/k) AS /n],grouping=[/g]"


def grouped(options: str = TOTALS) -> ManualDriver:
    driver = ManualDriver()
    driver.topic()
    driver.publish("aX1 bX2 cY5")
    driver.subscribe(options, command="sow_and_subscribe")
    return driver


def rows(driver: ManualDriver) -> list[Any]:
    """Every row as JSON; a removal as its key in a list."""
    taken = [row for batch in batches(driver.take()) for row in batch.frames]
    return [[row.key] if row.removed else msgspec.json.decode(row.payload) for row in taken]


@rule("view-2")
def test_a_snapshot_has_a_row_for_each_group() -> None:
    assert rows(grouped()) == [{"g": "X", "v": 3, "n": 2}, {"g": "Y", "v": 5, "n": 1}]


@rule("view-2")
def test_a_record_that_changes_its_group_leaves_the_old_one() -> None:
    driver = grouped(f"{TOTALS},oof")
    rows(driver)
    driver.publish("bY7")
    driver.flush()
    assert rows(driver) == [{"g": "X", "v": 1, "n": 1}, {"g": "Y", "v": 12, "n": 2}]
    driver.publish("aY1")
    driver.flush()
    assert rows(driver) == [['["X"]'], {"g": "Y", "v": 13, "n": 3}]


@rule("view-2")
def test_with_an_interval_a_row_is_made_when_it_is_flushed() -> None:
    driver = grouped(f"{TOTALS},conflation=1s")
    rows(driver)
    driver.publish("aX10 bX20 aX30")
    driver.wait("1s")
    assert rows(driver) == [{"g": "X", "v": 50, "n": 2}]
    driver.wait("9s")
    assert rows(driver) == []


@rule("view-2", "account-3")
def test_without_one_each_message_makes_its_groups_rows() -> None:
    driver = grouped()
    rows(driver)
    driver.publish("aX10 bX20")
    driver.flush()
    assert [row["v"] for row in rows(driver)] == [12, 30]
    assert driver.engine.session_stats("s").subscriptions[0].matched == 2


def test_a_deleted_record_counts_no_more() -> None:
    driver = grouped(f"{TOTALS},oof")
    rows(driver)
    driver.remove("b0")
    driver.remove("c0")
    driver.flush()
    assert rows(driver) == [{"g": "X", "v": 1, "n": 1}, ['["Y"]']]
