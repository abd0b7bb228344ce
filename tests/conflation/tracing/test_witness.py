"""What a witness says of each message; lines as in tests/support/tracing.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rules import rule
from tests.support.tracing import TracedWorld
from tests.support.world import PLENTY
from tidegate.keys.merging import Merger, Verdict


@rule("trace-3", "trace-4")
def test_a_plain_interval_from_message_to_row() -> None:
    world = TracedWorld()
    world.topic()
    world.subscribed("conflation=100ms")
    world.say("a1 b1 a2")
    assert world.lines() == [
        "accepted a @1", "held a @1 x1 due 100",
        "accepted b @2", "held b @2 x1 due 100",
        "accepted a @3", "replaced a @3 for 1 x2 due 100",
    ]  # fmt: skip
    world.wait("100ms")
    assert world.lines() == ["flushed @3 rows 2"]
    world.take()
    assert world.lines() == ["taken @3 rows 2 (in step)", "delivered b @2 x1", "delivered a @3 x1"]
    world.check_replay()


@rule("trace-3")
@pytest.mark.parametrize(
    ("more", "said", "lines"),
    [
        ({"wanted": "/v > 1"}, "a1", ["filtered a @1 (filter)"]),
        (
            {"wanted": "/v > 1"},
            "a2 a1",
            [
                "accepted a @1",
                "held a @1 x1 due 100",
                "accepted a @2 (match)",
                "suppressed a @2 (no oof)",
            ],
        ),
        (
            {"options": ",top_n=1", "order": "/v", "command": "sow_and_subscribe"},
            "a1 b2",
            ["accepted a @1", "held a @1 x1 due 100", "filtered b @2 (outside the window)"],
        ),
    ],
)
def test_what_does_not_come_onto_the_board(
    more: dict[str, str], said: str, lines: list[str]
) -> None:
    world = TracedWorld()
    world.topic()
    options = "conflation=100ms" + more.get("options", "")
    rest = {name: value for name, value in more.items() if name != "options"}
    world.subscribed(options, **rest)
    world.say(said)
    assert world.lines() == lines


@rule("trace-3")
def test_the_removal_of_nothing_is_no_row() -> None:
    world = TracedWorld()
    world.topic()
    world.subscribed("conflation=100ms,oof")
    world.remove("a1")
    assert world.lines() == ["filtered a @1 (no row)"]


def verdict(current: Any, new: Any) -> Any:
    answers = {2: Verdict.KEEP_CURRENT, 3: Verdict.KEEP_NEW, 4: Verdict.NO_CONFLATION}
    return answers.get(new["v"], {**new, "sum": current["v"] + new["v"]})


@rule("trace-3")
@pytest.mark.parametrize(
    ("said", "last"),
    [
        ("a1 a2", "merged a @2 for 1 x2 due 100 (keep current)"),
        ("a1 a3", "merged a @2 for 1 x2 due 100 (keep new)"),
        ("a1 a5", "merged a @2 for 1 x2 due 100 (merged)"),
        ("a1 a4", "held a @2 x1 due 100 (apart)"),
    ],
)
def test_what_a_merger_says(said: str, last: str) -> None:
    world = TracedWorld()
    world.topic(merge=Merger("tests:verdict", verdict))
    world.subscribed("conflation=100ms")
    world.say(said)
    assert world.lines()[-1] == last
    world.wait("100ms")
    world.take()
    world.lines()
    world.check_replay()


@rule("trace-3")
def test_reducers_and_deltas_put_messages_together() -> None:
    world = TracedWorld()
    world.topic()
    world.subscribed("conflation=100ms,reduce=[/v:sum]")
    world.say("a1 a2")
    assert world.lines()[-1] == "merged a @2 for 1 x2 due 100 (reduced)"
    world.trace(world.subscribe("conflation=100ms", command="delta_subscribe"))
    world.lines()
    world.say("b1 b2")
    assert world.lines()[-1] == "merged b @4 for 3 x2 due 100 (delta)"


@rule("trace-3")
def test_what_flush_on_let_go_and_what_came_behind_it() -> None:
    """A row that its reader was too late for is replaced."""
    world = TracedWorld()
    world.topic()
    world.subscribed("conflation=100ms,pace=key,flush_on=[/v > 8]")
    world.say("a1 a9")
    assert world.lines()[-1] == "held a @2 x1 due 100"
    world.wait("100ms")
    assert world.lines() == [
        "flushed @1 rows 1", "flushed @2 rows 1", "replaced a @2 for 1 (behind)"
    ]  # fmt: skip
    world.take()
    assert world.lines() == ["taken @2 rows 1 (behind)", "delivered a @2 for 1 x2"]
    world.check_replay()


@rule("trace-3")
def test_came_and_went() -> None:
    world = TracedWorld()
    world.topic()
    world.subscribed("conflation=100ms,oof,pace=key")
    world.say("a1")
    world.remove("a1")
    world.wait("100ms")
    assert world.lines()[2:] == [
        "accepted a @2 (deleted)", "replaced a @2 for 1 x1 due 100",
        "flushed @2 rows 0", "suppressed a @2 x1 (came and went)",
    ]  # fmt: skip


@rule("trace-3")
def test_no_change() -> None:
    """An empty delta."""
    world = TracedWorld()
    world.topic()
    world.say("a1")
    world.subscribed("conflation=100ms,no_empties", command="sow_and_delta_subscribe")
    world.take()
    world.say("a2 a1")
    world.wait("100ms")
    assert world.lines()[-2:] == ["flushed @3 rows 0", "suppressed a @3 x2 (no change)"]


@rule("trace-3")
def test_an_empty_delta_without_an_interval() -> None:
    world = TracedWorld()
    world.topic()
    world.say("a1")
    world.subscribed("no_empties", command="sow_and_delta_subscribe")
    world.say("a1")
    assert world.lines() == ["accepted a @2", "suppressed a @2 (no change)"]


@rule("trace-3")
def test_never_sent() -> None:
    """The removal of a key that this subscription knows nothing of."""
    world = TracedWorld()
    world.topic()
    world.say("a1")
    world.subscribed("conflation=100ms,oof")
    world.remove("a1")
    world.wait("100ms")
    world.take()
    assert world.lines()[-2:] == ["taken rows 0 (in step)", "suppressed a @2 (never sent)"]


@rule("trace-3", "interval-10")
def test_sent_before_it_was_flushed() -> None:
    """Who comes late has the newer value when it is flushed."""
    world = TracedWorld()
    world.topic()
    world.subscribed("conflation=100ms")
    world.say("a1")
    world.wait("100ms")
    world.say("b1")
    world.wait("100ms")
    world.say("a2")
    world.lines()
    world.take()
    assert world.lines() == ["taken @3 rows 2 (behind)", "delivered b @2 x1", "delivered a @3 x1"]
    world.wait("100ms")
    assert world.lines() == ["flushed @3 rows 1", "suppressed a @3 (sent before)"]
    world.check_replay()


@rule("trace-3")
def test_before_its_cut() -> None:
    """What a lane held for others is nothing to who joined since."""
    world = TracedWorld()
    world.topic()
    world.subscribe("conflation=100ms", session="other")
    world.say("a1 b1")
    world.subscribed("conflation=100ms")
    world.say("c1")
    world.wait("100ms")
    world.take()
    assert world.lines() == [
        "accepted c @3", "held c @3 x1 due 100", "flushed @3 rows 3",
        "taken @3 rows 1 (behind)", "delivered c @3 x1",
        "suppressed a @1 (before its cut)", "suppressed b @2 (before its cut)",
    ]  # fmt: skip
    world.check_replay()


@rule("trace-3", "trace-4")
def test_every_message_waits_for_its_turn_until_the_queue_is_conflated() -> None:
    world = TracedWorld()
    world.topic()
    world.session(messages_max=2)
    world.subscribed()
    world.say("a1")
    world.say("a2")
    world.say("a3")
    world.say("b1")
    assert world.lines() == [
        "accepted a @1", "held a @1 x1 due 0",
        "accepted a @2", "held a @2 x1 due 0",
        "accepted a @3", "held a @3 x1 due 0", "conflated x3 rows 1",
        "accepted b @4", "held b @4 x1 due 0",
    ]  # fmt: skip
    world.flush()
    world.take()
    assert world.lines() == [
        "flushed @4 rows 1",
        "taken @4 rows 2 (behind)", "delivered a @3 for 1 x3", "delivered b @4 x1",
    ]  # fmt: skip
    world.check_replay()


@rule("trace-4")
def test_a_snapshot_comes_first_and_in_pieces() -> None:
    world = TracedWorld()
    world.topic()
    world.say("a1 b1")
    world.subscribed("conflation=100ms", command="sow_and_subscribe")
    world.take(bytes_max=1)
    assert world.lines() == [
        "taken rows 1 (opening)", "delivered a @1 x1",
        "taken rows 1 (opening)", "delivered b @2 x1",
    ]  # fmt: skip
    world.check_replay()


@rule("trace-3")
def test_a_replay_tells_messages_in_their_turn() -> None:
    """Once it has caught up it moves to its lane."""
    world = TracedWorld()
    world.topic()
    world.say("a1")
    world.subscribed("bookmark=epoch")
    world.say("b1")
    assert world.lines() == ["held b @2 (replay)"]
    world.take()
    assert world.lines() == [
        "taken @1 rows 1 (opening)", "delivered a @1 x1",
        "taken @2 rows 1 (opening)", "delivered b @2 x1",
        "moved rows 0 (conflation=none)",
    ]  # fmt: skip
    world.check_replay()


@rule("trace-3", "trace-5")
def test_after_a_query_nothing_is_for_it() -> None:
    world = TracedWorld()
    world.topic()
    world.say("a1 b1")
    world.subscribed(command="sow")
    world.say("c1")
    world.take(bytes_max=PLENTY)
    assert world.lines() == [
        "filtered c @3 (after the query)",
        "taken rows 2 (opening)", "delivered a @1 x1", "delivered b @2 x1",
        "unsubscribed (FINISHED)",
    ]  # fmt: skip
    assert world.ended == "FINISHED"


@rule("trace-3")
def test_groups_are_accepted_as_their_rows() -> None:
    world = TracedWorld()
    world.topic()
    name = world.subscribe(
        "conflation=100ms,grouping=[/g],projection=[/g,SUM(/v) AS /v]", command="sow_and_subscribe"
    )
    world.trace(name)
    world.say("aX1 bX2")
    assert world.lines() == [
        "accepted X @1", "held X @1 x1 due 100",
        "accepted X @2", "replaced X @2 for 1 x2 due 100",
    ]  # fmt: skip


@rule("trace-1", "trace-3", "view-2")
def test_a_group_that_comes_and_goes_before_its_row_is_made() -> None:
    """Rules trace-1 and trace-3, about rule view-2: nobody makes its row only to look at it."""
    world = TracedWorld()
    world.topic()
    name = world.subscribe(
        "conflation=100ms,grouping=[/g],projection=[/g,SUM(/v) AS /v]", command="sow_and_subscribe"
    )
    world.take()
    world.say("aX1")
    world.trace(name)
    world.say("aY2 bZ3")
    assert world.lines() == [
        "accepted X @2", "held X @2 x1 due 100", "accepted Y @2", "held Y @2 x1 due 100",
        "accepted Z @3", "held Z @3 x1 due 100",
    ]  # fmt: skip
    world.wait("100ms")
    assert world.lines() == ["flushed @3 rows 2", "suppressed X @2 x1 (came and went)"]
    world.take()
    assert world.lines()[1:] == ["delivered Y @2 x1", "delivered Z @3 x1"]
    world.check_replay()


@rule("trace-1")
def test_a_look_at_groups_is_part_of_the_record() -> None:
    """Whoever asks for figures has the rows made."""
    world = TracedWorld()
    world.topic()
    world.subscribed(
        "conflation=100ms,grouping=[/g],projection=[/g,SUM(/v) AS /v]", command="sow_and_subscribe"
    )
    world.take()
    world.say("aX1")
    world.engine.stats()
    world.say("aY2")
    world.wait("100ms")
    world.take()
    world.lines()
    assert "Settled" in [type(call).__name__ for call in world.calls]
    world.check_replay()
