"""Receipts and what no receipt counts sum up to what matched (rules delta-6 and account-5)."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tests.support.world import World, batches, counts
from tidegate.conflation.frame import receipt_of
from tidegate.keys.merging import Merger, Verdict

pytestmark = rule("delta-6", "account-5")


OPTIONS = "conflation=300ms,receipt,oof"


def reported(world: World) -> int:
    """The sum of the receipts of everything that can be taken, removals included."""
    return sum(receipt_of(row).messages for batch in batches(world.take()) for row in batch.frames)


def figures(world: World) -> tuple[int, int, int]:
    """What matched, what waits, and what no receipt counts."""
    (row,) = world.engine.session_stats("s").subscriptions
    return row.matched, row.waiting, row.unreported


@rule("removal-2", "account-5")
def test_a_key_that_came_and_went_is_unreported_until_it_comes_again() -> None:
    world = World()
    world.topic()
    world.subscribe(OPTIONS)
    world.say("a1 a2 a3 a4 a5")
    world.remove("a0")
    world.wait("300ms")
    assert reported(world) == 0
    assert figures(world) == (5, 0, 5)
    world.say("a6")
    world.wait("300ms")
    assert reported(world) == 6
    assert figures(world) == (6, 0, 0)


@rule("account-5")
@pytest.mark.parametrize("after", ["conflation=200ms,receipt,oof", "conflation=none,receipt,oof"])
@pytest.mark.parametrize("is_held", [False, True])
def test_what_came_and_went_is_counted_over_a_move(after: str, *, is_held: bool) -> None:
    world = World()
    world.topic()
    name = world.subscribe(OPTIONS)
    world.say("a1 a2 a3")
    world.remove("a0")
    world.wait("100ms" if is_held else "300ms")
    world.change(name, after)
    world.wait("300ms")
    assert reported(world) == 0
    assert figures(world) == (3, 0, 3)
    world.say("a4")
    world.wait("300ms")
    assert counts(world.take()) == [("a4", 4, 1)]
    assert figures(world) == (4, 0, 0)


@rule("merge-6", "account-5")
def test_what_came_and_went_goes_into_sums_over_a_move() -> None:
    world = World()
    world.topic()
    name = world.subscribe(f"{OPTIONS},reduce=[/v:sum]")
    world.say("a1 a2")
    world.remove("a0")
    world.wait("300ms")
    world.change(name, "conflation=100ms,receipt,oof,reduce=[/v:sum]")
    world.say("a4")
    world.wait("300ms")
    assert counts(world.take()) == [("a7", 3, 1)]


@rule("merge-2", "account-5")
def test_flush_on_between_coming_and_going_loses_no_count() -> None:
    world = World()
    world.topic()
    world.subscribe(f"{OPTIONS},flush_on=[/v = 2]")
    for word in ("a1", "-", "a2", "-"):
        world.remove("a0") if word == "-" else world.say(word)
    world.wait("300ms")
    world.say("a3")
    world.wait("300ms")
    assert counts(world.take()) == [("a3", 3, 1)]


@rule("removal-2", "account-5")
def test_the_removal_of_a_key_never_sent_leaves_its_messages_to_the_next_row() -> None:
    world = World()
    world.topic()
    world.say("a1")
    world.subscribe(OPTIONS)
    world.say("a2")
    world.remove("a0")
    world.wait("300ms")
    assert reported(world) == 0
    assert figures(world) == (1, 0, 1)
    world.say("a3")
    world.wait("300ms")
    assert counts(world.take()) == [("a3", 2, 2)]


@rule("delta-4", "account-5")
def test_an_empty_delta_is_unreported() -> None:
    world = World()
    world.topic()
    name = world.subscribe("conflation=300ms,no_empties,receipt", command="delta_subscribe")
    world.say("a1")
    world.wait("300ms")
    assert reported(world) == 1
    world.say("a1")
    world.wait("300ms")
    assert figures(world) == (2, 0, 1)
    world.change(name, "conflation=none,no_empties,receipt", command="delta_subscribe")
    world.wait("300ms")
    assert figures(world) == (2, 0, 1)
    world.say("a2")
    world.flush()
    assert counts(world.take()) == [("a2", 2, 2)]


@rule("merge-1", "account-5")
def test_with_never_and_a_reader_that_is_behind_all_is_counted() -> None:
    world = World()
    world.topic()
    world.subscribe(f"{OPTIONS},never=[/v = 2]")
    world.say("a1")
    world.wait("300ms")
    for text in ("a2 a3", "b1", "a1 b2"):
        world.say(text)
        world.remove("a0 b0")
        world.wait("300ms")
    matched, _, _ = figures(world)
    assert reported(world) + figures(world)[2] == matched


@rule("account-5")
def test_who_is_in_step_shares_rows_though_a_message_of_his_is_unreported() -> None:
    """Only the key's next row is one of his own."""
    world = World()
    world.topic()
    for session in ("s", "other"):
        world.subscribe("conflation=100ms,receipt,oof", session=session)
    name = world.subscribe(OPTIONS, session="moved")
    world.say("a1")
    world.remove("a0")
    world.wait("300ms")
    world.change(name, "conflation=100ms,receipt,oof", session="moved")
    world.say("b1")
    world.wait("100ms")
    shared = {id(batches(world.take(session))[0]) for session in ("s", "other", "moved")}
    assert len(shared) == 1


@rule("change-2", "account-5")
def test_a_record_that_a_filter_brought_in_counts_nothing_that_came_and_went() -> None:
    world = World()
    world.topic()
    name = world.subscribe(OPTIONS, wanted="/v > 4", command="sow_and_subscribe")
    world.take()
    world.say("a5")
    world.remove("a0")
    world.say("a1")
    world.wait("300ms")
    world.change(name, OPTIONS, command="sow_and_subscribe")
    assert counts(world.take()) == [("a1", 0, 3)]
    assert figures(world) == (1, 0, 1)


@rule("queue-4", "account-5")
@pytest.mark.parametrize("command", ["subscribe", "sow_and_delta_subscribe"])
def test_a_full_queue_counts_what_came_and_went(command: str) -> None:
    world = World()
    world.topic()
    world.session(messages_max=4)
    world.subscribe("conflation=none,receipt,oof", command=command)
    world.take()
    world.say("a1 a2 b1")
    world.remove("a0")
    world.say("b2 b3 b4")
    world.flush()
    assert reported(world) == 4
    assert figures(world) == (6, 0, 2)
    world.say("a3")
    world.flush()
    assert reported(world) == 3
    assert figures(world) == (7, 0, 0)


@rule("merge-6", "account-5")
def test_what_a_merger_declines_after_a_removal_is_counted() -> None:
    """Somebody joined in between, so the parts are put together late."""
    merger = Merger(
        "tests:declines", lambda old, new: Verdict.NO_CONFLATION if new["v"] == 3 else new
    )
    world = World()
    world.topic(merge=merger)
    world.say("a1")
    world.subscribe(OPTIONS, command="sow_and_subscribe")
    world.take()
    world.say("a2")
    world.subscribe(OPTIONS, session="late")
    world.remove("a0")
    world.say("a3")
    world.wait("300ms")
    assert counts(world.take()) == [("a3", 2, 2)]
