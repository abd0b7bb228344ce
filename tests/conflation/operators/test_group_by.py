"""Aggregated subscriptions: a row for each group of the records as they are now."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.support.rules import rule
from tests.support.world import World, batches

TOTALS = "projection=[/g,SUM(/v) AS /v,COUNT(/k) AS /n],grouping=[/g]"


def grouped(options: str = TOTALS) -> World:
    world = World()
    world.topic()
    world.say("aX1 bX2 cY5")
    world.subscribe(options, command="sow_and_subscribe")
    return world


def rows(world: World) -> list[Any]:
    """Every row as JSON; a removal as its key in a list."""
    taken = [row for batch in batches(world.take()) for row in batch.frames]
    return [[row.key] if row.removed else msgspec.json.decode(row.payload) for row in taken]


@rule("view-2")
def test_a_snapshot_has_a_row_for_each_group() -> None:
    assert rows(grouped()) == [{"g": "X", "v": 3, "n": 2}, {"g": "Y", "v": 5, "n": 1}]


@rule("view-2")
def test_a_record_that_changes_its_group_leaves_the_old_one() -> None:
    world = grouped(f"{TOTALS},oof")
    rows(world)
    world.say("bY7")
    world.flush()
    assert rows(world) == [{"g": "X", "v": 1, "n": 1}, {"g": "Y", "v": 12, "n": 2}]
    world.say("aY1")
    world.flush()
    assert rows(world) == [['["X"]'], {"g": "Y", "v": 13, "n": 3}]


@rule("view-2")
def test_with_an_interval_a_row_is_made_when_it_is_flushed() -> None:
    world = grouped(f"{TOTALS},conflation=1s")
    rows(world)
    world.say("aX10 bX20 aX30")
    world.wait("1s")
    assert rows(world) == [{"g": "X", "v": 50, "n": 2}]
    world.wait("9s")
    assert rows(world) == []


@rule("view-2", "account-3")
def test_without_one_each_message_makes_its_groups_rows() -> None:
    world = grouped()
    rows(world)
    world.say("aX10 bX20")
    world.flush()
    assert [row["v"] for row in rows(world)] == [12, 30]
    assert world.engine.session_stats("s").subscriptions[0].matched == 2


def test_a_deleted_record_counts_no_more() -> None:
    world = grouped(f"{TOTALS},oof")
    rows(world)
    world.remove("b0")
    world.remove("c0")
    world.flush()
    assert rows(world) == [{"g": "X", "v": 1, "n": 1}, ['["Y"]']]
