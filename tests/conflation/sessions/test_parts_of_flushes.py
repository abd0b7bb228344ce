"""No part of a flush does more than its share of the work."""

from __future__ import annotations

from string import ascii_lowercase

import pytest

from tests.conflation.sessions.large import (
    AT_ONCE,
    LETTERS,
    driver,
    every,
    flush_in_turns,
)
from tests.support.calls import counted
from tests.support.manual_driver import ManualDriver, batches
from tidegate.conflation.boards import board
from tidegate.conflation.lanes.delta import ChangeSuppression
from tidegate.conflation.operators import group_by
from tidegate.keys.projection import Column
from tidegate.keys.select import Select

pytestmark = pytest.mark.usefixtures("few_rows_are_many")


def most_in_a_call(made: ManualDriver, calls: list[int]) -> int:
    """Advance until nothing is due; return the calls of a method in the longest step."""
    most = 0
    while (due := made.engine.next_deadline()) is not None and due <= made.now:
        calls[0] = 0
        made.engine.advance(made.now)
        most = max(most, calls[0])
    return most


@pytest.mark.parametrize("options", ["", ",oof", ",receipt,timestamp", ",select=[-/,+/k,+/v]"])
def test_a_part_says_that_the_flush_goes_on(options: str) -> None:
    """Also where a reader is behind, and is sent the flush in pieces."""
    made = driver()
    made.subscribe(f"conflation=1s{options}")
    made.publish("aX1")
    made.sleep("1s")
    assert [batch.has_more for batch in flush_in_turns(made)] == [False]
    made.publish(every(1))
    made.sleep("1s")
    parts = flush_in_turns(made)
    assert sum(len(batch.frames) for batch in parts) == len(LETTERS)
    *others, last = [batch.has_more for batch in parts]
    assert others == [True] * (len(parts) - 1)
    assert len(parts) > 1
    assert not last


def test_messages_of_a_queue_go_each_for_itself() -> None:
    made = driver()
    made.subscribe("conflation=none")
    made.publish(every(1))
    assert not any(batch.has_more for batch in flush_in_turns(made))


def test_rows_without_news_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush that sends nothing has looked at each key all the same."""
    made = driver()
    made.subscribe("conflation=1s,no_empties", command="delta_subscribe")
    made.publish(every(1))
    made.sleep("1s")
    flush_in_turns(made)
    made.publish(every(1))
    made.sleep("1s")
    calls = counted(monkeypatch, ChangeSuppression, "lets_pass")
    assert 0 < most_in_a_call(made, calls) <= AT_ONCE
    assert batches(made.take()) == []


def test_the_fields_of_a_flush_are_selected_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """In steps of two records here; members that are up to date still share one batch."""
    monkeypatch.setattr(board, "ROWS_AT_ONCE", 5_000)
    made = driver()
    made.subscribe("conflation=1s,select=[-/,+/k,+/v]")
    made.publish(every(1))
    made.sleep("1s")
    calls = counted(monkeypatch, Select, "apply")
    assert 0 < most_in_a_call(made, calls) <= 2
    [batch] = batches(made.take())
    assert batch.frames[0].payload == b'{"k":"a","v":1}'
    assert len(batch.frames) == len(LETTERS)


def test_a_key_that_changes_while_fields_are_selected_is_sent_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(board, "ROWS_AT_ONCE", 5_000)
    made = driver()
    made.subscribe("conflation=1s,select=[-/,+/k,+/v]")
    made.publish(every(1))
    made.sleep("1s")
    made.engine.advance(made.now)
    made.publish("aX2")
    [batch] = flush_in_turns(made)
    assert sorted(row.payload for row in batch.frames)[:2] == [
        b'{"k":"a","v":2}',
        b'{"k":"b","v":1}',
    ]
    made.sleep("1s")
    assert flush_in_turns(made) == []


def test_what_large_groups_put_off_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush does not read all records of a group that have changed since the last one."""
    monkeypatch.setattr(group_by, "STALE_MAX", 4)
    made = driver()
    texts = [f"{letter}X1" for letter in ascii_lowercase]
    for text in texts:
        made.publish(text)
    made.subscribe(
        "projection=[/g,SUM(/v) AS /v],grouping=[/g],conflation=1s", command="sow_and_subscribe"
    )
    cells = counted(monkeypatch, Column, "cell")
    most = 0
    while made.engine.has_openings:
        cells[0] = 0
        made.engine.open_step(made.now)
        most = max(most, cells[0])
    # A step takes in two records, and makes up for some more.
    assert 0 < most <= 4 * group_by.CAUGHT_UP_AT_ONCE
    made.take()
    for text in texts:
        cells[0] = 0
        made.publish(text.replace("X1", "X2"))
        assert cells[0] <= 2 * 2 * group_by.CAUGHT_UP_AT_ONCE
    made.sleep("1s")
    assert most_in_a_call(made, cells) <= 2 * (4 + 2)
    [batch] = batches(made.take())
    assert [row.payload for row in batch.frames] == [b'{"g":"X","v":52}']
