"""What a witness says of each message; lines as in tests/support/tracing.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.manual_driver import PLENTY
from tests.support.rules import rule
from tests.support.tracing import TracedDriver
from tidegate.conflation.frame import MADE_AT_ONCE
from tidegate.keys.merging import Merger, Verdict


@rule("trace-3", "trace-4")
def test_a_plain_interval_from_message_to_row() -> None:
    driver = TracedDriver()
    driver.topic()
    driver.subscribed("conflation=100ms")
    driver.publish("a1 b1 a2")
    assert driver.lines() == [
        "accepted a @1", "held a @1 x1 due 100",
        "accepted b @2", "held b @2 x1 due 100",
        "accepted a @3", "replaced a @3 for 1 x2 due 100",
    ]  # fmt: skip
    driver.wait("100ms")
    assert driver.lines() == ["flushed @3 rows 2"]
    driver.take()
    assert driver.lines() == ["taken @3 rows 2 (in step)", "delivered b @2 x1", "delivered a @3 x1"]
    driver.check_replay()


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
    driver = TracedDriver()
    driver.topic()
    options = "conflation=100ms" + more.get("options", "")
    rest = {name: value for name, value in more.items() if name != "options"}
    driver.subscribed(options, **rest)
    driver.publish(said)
    assert driver.lines() == lines


@rule("trace-3")
def test_the_removal_of_nothing_is_no_row() -> None:
    driver = TracedDriver()
    driver.topic()
    driver.subscribed("conflation=100ms,oof")
    driver.remove("a1")
    assert driver.lines() == ["filtered a @1 (no row)"]


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
    driver = TracedDriver()
    driver.topic(merge=Merger("tests:verdict", verdict))
    driver.subscribed("conflation=100ms")
    driver.publish(said)
    assert driver.lines()[-1] == last
    driver.wait("100ms")
    driver.take()
    driver.lines()
    driver.check_replay()


@rule("trace-3")
def test_reducers_and_deltas_put_messages_together() -> None:
    driver = TracedDriver()
    driver.topic()
    driver.subscribed("conflation=100ms,reduce=[/v:sum]")
    driver.publish("a1 a2")
    assert driver.lines()[-1] == "merged a @2 for 1 x2 due 100 (reduced)"
    driver.trace(driver.subscribe("conflation=100ms", command="delta_subscribe"))
    driver.lines()
    driver.publish("b1 b2")
    assert driver.lines()[-1] == "merged b @4 for 3 x2 due 100 (delta)"


@rule("trace-3")
def test_what_flush_on_let_go_and_what_came_behind_it() -> None:
    """A row that its reader was too late for is replaced."""
    driver = TracedDriver()
    driver.topic()
    driver.subscribed("conflation=100ms,pace=key,flush_on=[/v > 8]")
    driver.publish("a1 a9")
    assert driver.lines()[-1] == "held a @2 x1 due 100"
    driver.wait("100ms")
    assert driver.lines() == [
        "flushed @1 rows 1", "flushed @2 rows 1", "replaced a @2 for 1 (behind)"
    ]  # fmt: skip
    driver.take()
    assert driver.lines() == ["taken @2 rows 1 (behind)", "delivered a @2 for 1 x2"]
    driver.check_replay()


@rule("trace-3")
def test_came_and_went() -> None:
    driver = TracedDriver()
    driver.topic()
    driver.subscribed("conflation=100ms,oof,pace=key")
    driver.publish("a1")
    driver.remove("a1")
    driver.wait("100ms")
    assert driver.lines()[2:] == [
        "accepted a @2 (deleted)", "replaced a @2 for 1 x1 due 100",
        "flushed @2 rows 0", "suppressed a @2 x1 (came and went)",
    ]  # fmt: skip


@rule("trace-3")
def test_no_change() -> None:
    """An empty delta."""
    driver = TracedDriver()
    driver.topic()
    driver.publish("a1")
    driver.subscribed("conflation=100ms,no_empties", command="sow_and_delta_subscribe")
    driver.take()
    driver.publish("a2 a1")
    driver.wait("100ms")
    assert driver.lines()[-2:] == ["flushed @3 rows 0", "suppressed a @3 x2 (no change)"]


@rule("trace-3")
@pytest.mark.parametrize(
    ("options", "command", "removes", "row"),
    [
        ("no_empties", "sow_and_delta_subscribe", False, "a @3 x1"),
        ("oof,receipt", "sow_and_subscribe", True, "a @2 (deleted)"),
    ],
)
def test_what_only_this_member_is_sent_is_not_suppressed(
    options: str, command: str, removes: bool, row: str
) -> None:
    """It joined while the key was held, and for the others nothing has changed."""
    driver = TracedDriver()
    driver.topic()
    if not removes:
        driver.publish("a1")
    driver.subscribe(f"conflation=100ms,{options}", command=command, session="early")
    driver.publish("a1")
    driver.subscribed(f"conflation=100ms,{options}", command=command)
    driver.take()
    if removes:
        driver.remove("a0")
    else:
        driver.publish("a1")
    driver.wait("100ms")
    driver.take()
    lines = driver.lines()
    assert not [line for line in lines if line.startswith("suppressed")]
    assert lines[-1] == f"delivered {row}"


@rule("trace-3")
def test_rows_of_the_next_part_of_a_large_flush_are_not_suppressed() -> None:
    driver = TracedDriver()
    driver.topic()
    driver.subscribed("conflation=100ms,receipt")
    records: list[dict[str, object]] = [{"k": number} for number in range(2 * MADE_AT_ONCE)]
    driver.publish_documents(*records)
    driver.lines()
    driver.wait("100ms")
    driver.take()
    decided = [line.split()[0] for line in driver.lines()]
    assert set(decided) == {"flushed", "taken", "delivered"}
    assert decided.count("delivered") == 2 * MADE_AT_ONCE


@rule("trace-3")
def test_an_empty_delta_without_an_interval() -> None:
    driver = TracedDriver()
    driver.topic()
    driver.publish("a1")
    driver.subscribed("no_empties", command="sow_and_delta_subscribe")
    driver.publish("a1")
    assert driver.lines() == ["accepted a @2", "suppressed a @2 (no change)"]


@rule("trace-3")
def test_never_sent() -> None:
    """The removal of a key that this subscription knows nothing of."""
    driver = TracedDriver()
    driver.topic()
    driver.publish("a1")
    driver.subscribed("conflation=100ms,oof")
    driver.remove("a1")
    driver.wait("100ms")
    driver.take()
    assert driver.lines()[-2:] == ["taken rows 0 (in step)", "suppressed a @2 (never sent)"]


@rule("trace-3", "interval-10")
def test_sent_before_it_was_flushed() -> None:
    """Who comes late has the newer value when it is flushed."""
    driver = TracedDriver()
    driver.topic()
    driver.subscribed("conflation=100ms")
    driver.publish("a1")
    driver.wait("100ms")
    driver.publish("b1")
    driver.wait("100ms")
    driver.publish("a2")
    driver.lines()
    driver.take()
    assert driver.lines() == ["taken @3 rows 2 (behind)", "delivered b @2 x1", "delivered a @3 x1"]
    driver.wait("100ms")
    assert driver.lines() == ["flushed @3 rows 1", "suppressed a @3 (sent before)"]
    driver.check_replay()


@rule("trace-3")
def test_before_its_cut() -> None:
    """What a lane held for others is nothing to who joined since."""
    driver = TracedDriver()
    driver.topic()
    driver.subscribe("conflation=100ms", session="other")
    driver.publish("a1 b1")
    driver.subscribed("conflation=100ms")
    driver.publish("c1")
    driver.wait("100ms")
    driver.take()
    assert driver.lines() == [
        "accepted c @3", "held c @3 x1 due 100", "flushed @3 rows 3",
        "taken @3 rows 1 (behind)", "delivered c @3 x1",
        "suppressed a @1 (before its cut)", "suppressed b @2 (before its cut)",
    ]  # fmt: skip
    driver.check_replay()


@rule("trace-3", "trace-4")
def test_every_message_waits_for_its_turn_until_the_queue_is_conflated() -> None:
    driver = TracedDriver()
    driver.topic()
    driver.session(messages_max=2)
    driver.subscribed()
    driver.publish("a1")
    driver.publish("a2")
    driver.publish("a3")
    driver.publish("b1")
    assert driver.lines() == [
        "accepted a @1", "held a @1 x1 due 0",
        "accepted a @2", "held a @2 x1 due 0",
        "accepted a @3", "held a @3 x1 due 0", "conflated x3 rows 1",
        "accepted b @4", "held b @4 x1 due 0",
    ]  # fmt: skip
    driver.flush()
    driver.take()
    assert driver.lines() == [
        "flushed @4 rows 1",
        "taken @4 rows 2 (behind)", "delivered a @3 for 1 x3", "delivered b @4 x1",
    ]  # fmt: skip
    driver.check_replay()


@rule("trace-4")
def test_a_snapshot_comes_first_and_in_pieces() -> None:
    driver = TracedDriver()
    driver.topic()
    driver.publish("a1 b1")
    driver.subscribed("conflation=100ms", command="sow_and_subscribe")
    driver.take(bytes_max=1)
    assert driver.lines() == [
        "taken rows 1 (opening)", "delivered a @1 x1",
        "taken rows 1 (opening)", "delivered b @2 x1",
    ]  # fmt: skip
    driver.check_replay()


@rule("trace-3")
def test_the_trace_of_a_replay_has_messages_in_their_turn() -> None:
    """Once it has caught up it moves to its lane."""
    driver = TracedDriver()
    driver.topic()
    driver.publish("a1")
    driver.subscribed("bookmark=epoch")
    driver.publish("b1")
    assert driver.lines() == ["held b @2 (replay)"]
    driver.take()
    assert driver.lines() == [
        "taken @1 rows 1 (opening)", "delivered a @1 x1",
        "taken @2 rows 1 (opening)", "delivered b @2 x1",
        "moved rows 0 (conflation=none)",
    ]  # fmt: skip
    driver.check_replay()


@rule("trace-3", "trace-5")
def test_after_a_query_nothing_is_for_it() -> None:
    driver = TracedDriver()
    driver.topic()
    driver.publish("a1 b1")
    driver.subscribed(command="sow")
    driver.publish("c1")
    driver.take(bytes_max=PLENTY)
    assert driver.lines() == [
        "filtered c @3 (after the query)",
        "taken rows 2 (opening)", "delivered a @1 x1", "delivered b @2 x1",
        "unsubscribed (FINISHED)",
    ]  # fmt: skip
    assert driver.ended == "FINISHED"


@rule("trace-3")
def test_groups_are_accepted_as_their_rows() -> None:
    driver = TracedDriver()
    driver.topic()
    name = driver.subscribe(
        "conflation=100ms,grouping=[/g],projection=[/g,SUM(/v) AS /v]", command="sow_and_subscribe"
    )
    driver.trace(name)
    driver.publish("aX1 bX2")
    assert driver.lines() == [
        "accepted X @1", "held X @1 x1 due 100",
        "accepted X @2", "replaced X @2 for 1 x2 due 100",
    ]  # fmt: skip


@rule("trace-1", "trace-3", "view-2")
def test_a_group_that_comes_and_goes_before_its_row_is_made() -> None:
    """Rules trace-1 and trace-3, about rule view-2: nobody makes its row only to look at it."""
    driver = TracedDriver()
    driver.topic()
    name = driver.subscribe(
        "conflation=100ms,grouping=[/g],projection=[/g,SUM(/v) AS /v]", command="sow_and_subscribe"
    )
    driver.take()
    driver.publish("aX1")
    driver.trace(name)
    driver.publish("aY2 bZ3")
    assert driver.lines() == [
        "accepted X @2", "held X @2 x1 due 100", "accepted Y @2", "held Y @2 x1 due 100",
        "accepted Z @3", "held Z @3 x1 due 100",
    ]  # fmt: skip
    driver.wait("100ms")
    assert driver.lines() == ["flushed @3 rows 2", "suppressed X @2 x1 (came and went)"]
    driver.take()
    assert driver.lines()[1:] == ["delivered Y @2 x1", "delivered Z @3 x1"]
    driver.check_replay()


@rule("trace-1")
def test_a_look_at_groups_is_part_of_the_record() -> None:
    """Whoever asks for figures has the rows made."""
    driver = TracedDriver()
    driver.topic()
    driver.subscribed(
        "conflation=100ms,grouping=[/g],projection=[/g,SUM(/v) AS /v]", command="sow_and_subscribe"
    )
    driver.take()
    driver.publish("aX1")
    driver.engine.stats()
    driver.publish("aY2")
    driver.wait("100ms")
    driver.take()
    driver.lines()
    assert "Settled" in [type(call).__name__ for call in driver.calls]
    driver.check_replay()
