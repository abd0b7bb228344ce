"""Flushes, changes and endings of very many rows go in parts, and nothing of them is lost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import pytest

from tests.conflation.sessions.large import (
    AT_ONCE,
    LETTERS,
    SUMS,
    driver,
    every,
    flush_in_turns,
    newest,
    open_all,
    records,
)
from tests.support.manual_driver import ManualDriver, batches
from tidegate.conflation.frame import Batch, Frame
from tidegate.conflation.operators.group_by import GroupByOperator

pytestmark = pytest.mark.usefixtures("few_rows_are_many")

Calls = Callable[[ManualDriver], None]


def messages(found: list[Batch]) -> int:
    return sum(getattr(row, "messages", 1) for row in chain(*(batch.frames for batch in found)))


LANES = [
    "conflation=1s",
    "conflation=1s,oof",
    "conflation=1s,receipt",
    "conflation=1s,receipt,pace=key",
    "conflation=1s,reduce=[/v:max]",
]


@pytest.mark.parametrize("options", LANES)
def test_a_large_flush_goes_in_parts(options: str) -> None:
    made = driver()
    made.subscribe(options)
    made.publish(every(1))
    made.sleep("1s")
    found = flush_in_turns(made)
    assert len(found) >= len(LETTERS) / AT_ONCE
    assert max(len(batch.frames) for batch in found) <= AT_ONCE
    assert newest(found) == records(made)
    assert sum(len(batch.frames) for batch in found) == len(LETTERS)
    # Only the last part may say that all is there.
    assert [batch.low_water for batch in found][-1] == made.engine.topic("px").head
    head = made.engine.topic("px").head
    assert all(batch.low_water is None or batch.low_water < head for batch in found[:-1])


@pytest.mark.parametrize("options", LANES)
@pytest.mark.parametrize("takes", [True, False])
def test_what_is_published_between_two_parts_is_sent_once(options: str, *, takes: bool) -> None:
    made = driver()
    made.subscribe(options)
    made.publish(every(1))
    made.sleep("1s")
    published = iter(every(2).split())

    def publish() -> None:
        for text in [*published][:1]:
            made.publish(text)

    found = flush_in_turns(made, publish, takes=takes)
    made.sleep("2s")
    found += flush_in_turns(made, takes=takes)
    assert newest(found) == records(made)
    if "receipt" in options:
        assert messages(found) == made.engine.topic("px").messages_in
    stats = made.engine.topic_stats("px")
    assert stats.waiting == 0
    assert stats.matched == stats.delivered + stats.conflated


def test_a_row_is_sent_again_no_earlier_than_an_interval_later() -> None:
    made = driver()
    made.subscribe("conflation=1s,receipt")
    made.publish(every(1))
    made.sleep("1s")
    made.engine.advance(made.now)
    first = batches(made.take())
    made.publish("aX2")  # of the part that has gone
    found = flush_in_turns(made)
    assert (
        sum(row.key == '["a"]' for row in chain(*(each.frames for each in [*first, *found]))) == 1
    )
    made.sleep("1s")
    assert newest(flush_in_turns(made)) == {'["a"]': records(made)['["a"]']}


@pytest.mark.parametrize("sent", range(12))
def test_waiting_rows_are_counted_without_being_made(sent: int) -> None:
    """As many as are sent if nothing more is published."""
    made = driver()
    made.subscribe("conflation=1s")
    made.publish(every(1))
    made.sleep("1s")
    made.engine.advance(made.now)
    for _ in range(sent % 4):
        made.engine.take("s", 1 << 20)
    made.publish(" ".join(f"{letter}X{sent}" for letter in LETTERS[:sent]))
    waiting = made.engine.session_stats("s").subscriptions[0].waiting
    found = flush_in_turns(made)
    made.sleep("1s")
    found += flush_in_turns(made)
    assert waiting == sum(len(batch.frames) for batch in found)


@pytest.mark.parametrize("command", ["sow_and_subscribe"])
def test_very_many_groups_are_made_in_steps(command: str) -> None:
    made = driver()
    made.publish(every(1))
    made.subscribe(f"{SUMS},conflation=1s", command=command)
    open_all(made)
    made.take()
    made.publish(every(2))
    made.sleep("1s")
    made.engine.advance(made.now)
    assert not batches(made.take())  # the first part of the rows is made, and none is sent
    made.publish(every(3, "ab"))
    found = flush_in_turns(made)
    sums = newest(found)
    assert len(sums) == len(LETTERS)
    assert b'"v":3' in sums['["a"]']
    assert b'"v":2' in sums['["j"]']
    assert sum(len(batch.frames) for batch in found) == len(LETTERS)


def test_each_part_makes_what_came_since_and_a_step_more() -> None:
    """So it ends, however much is published meanwhile."""
    made = driver(2 * GroupByOperator.row_cost)
    made.publish(every(1))
    made.subscribe(f"{SUMS},conflation=1s", command="sow_and_subscribe")
    open_all(made)
    made.take()
    made.publish(every(2))
    made.sleep("1s")
    feed = next(each for each in made.engine.topic("px").feeds.values() if each.id.shape)
    left = []
    while feed.deferred_rows:
        made.engine.advance(made.now)
        left.append(feed.deferred_rows)
        if feed.deferred_rows:
            made.publish(every(3, "hij"))
    assert left == [8, 6, 4, 2, 0]


def test_a_snapshot_of_groups_that_have_changed_waits_for_their_rows() -> None:
    made = driver()
    made.publish(every(1))
    made.subscribe(f"{SUMS},conflation=1s", command="sow_and_subscribe")
    open_all(made)
    made.publish(every(2))
    made.subscribe(f"{SUMS},conflation=1s", session="other", command="sow_and_subscribe")
    assert made.engine.has_openings
    assert not batches(made.engine.take("other", 1 << 20))
    made.publish(every(3, "a"))
    open_all(made)
    found = []
    while taken := batches(made.engine.take("other", 1 << 20)):
        found += taken
    assert b'"v":3' in newest(found)['["a"]']
    assert b'"v":2' in newest(found)['["j"]']
    topic = made.engine.topic("px")
    feed = next(each for each in topic.feeds.values() if each.id.shape)
    assert feed.accepted == len(LETTERS)  # each row was made once
    for session in ("s", "other"):
        made.engine.close_session(session)
    open_all(made)
    assert list(topic.feeds.values()) == [topic.sow]  # nobody holds the other one


def client_after(
    calls: Callable[[ManualDriver], None], records_max: int | None
) -> dict[str, bytes]:
    """What a client has after a change of filter, with these calls while it is made."""
    made = driver(records_max)
    made.publish(" ".join(f"{letter}X{at}" for at, letter in enumerate(LETTERS)))
    name = made.subscribe("oof", wanted="/v < 5", command="sow_and_subscribe")
    for at, other in enumerate(("/v > 2", "/v > 6")):  # the boards are there
        made.subscribe("oof", wanted=other, session=f"keeper{at}")
    open_all(made)
    had: dict[str, bytes] = {}
    apply(had, batches(made.take()))
    made.change(name, "oof", wanted="/v > 2", command="sow_and_subscribe")
    calls(made)
    open_all(made, lambda: made.publish("bX9"))
    made.flush()
    apply(had, batches(made.take()))
    wanted = {key: value for key, value in records(made).items() if value_of(value) > 2}
    assert had == wanted
    stats = made.engine.topic_stats("px")
    assert stats.matched == stats.delivered + stats.conflated + stats.waiting
    return had


def value_of(payload: bytes) -> int:
    return int(payload.split(b'"v":')[1].rstrip(b"}"))


def apply(had: dict[str, bytes], found: list[Batch]) -> None:
    row: Frame
    for row in chain(*(batch.frames for batch in found)):
        if row.removed:
            had.pop(row.key, None)
        else:
            had[row.key] = row.payload


def nothing(made: ManualDriver) -> None:
    pass


def step_and_publish(made: ManualDriver) -> None:
    made.engine.open_step(made.now)
    assert not batches(made.take()), "nothing goes before the rows of the change"
    made.publish("cX8 dX0 kX7")
    made.engine.open_step(made.now)
    made.remove("eX0")


def change_twice(made: ManualDriver) -> None:
    made.change("sub1", "oof", wanted="/v > 6", command="sow_and_subscribe")
    made.engine.open_step(made.now)
    made.change("sub1", "oof", wanted="/v > 2", command="sow_and_subscribe")
    made.publish("cX8")


@pytest.mark.parametrize("calls", [nothing, step_and_publish, change_twice])
@pytest.mark.parametrize("records_max", [1, 2, 3, None])
def test_a_change_of_filter_is_compared_in_steps(calls: Calls, records_max: int | None) -> None:
    if records_max is None and calls is step_and_publish:
        return  # at once there is nothing in between
    assert client_after(calls, records_max)


def test_a_change_takes_several_steps() -> None:
    made = driver()
    made.publish(every(1))
    name = made.subscribe("oof", wanted="/v < 5", command="sow_and_subscribe")
    made.subscribe("oof", wanted="/v > 2", session="keeper")
    open_all(made)
    made.take()
    made.change(name, "oof", wanted="/v > 2")
    assert not batches(made.take())
    assert open_all(made) > 2
    assert all(row.removed for batch in batches(made.take()) for row in batch.frames)


def test_an_end_of_a_subscription_forgets_the_rows_of_its_change() -> None:
    made = driver()
    made.publish(every(1))
    name = made.subscribe("oof", wanted="/v < 5", command="sow_and_subscribe")
    made.subscribe("oof", wanted="/v > 2", session="keeper")
    open_all(made)
    made.change(name, "oof", wanted="/v > 2")
    made.engine.close_session("s")
    open_all(made)
    assert made.engine.topic_stats("px").subscriptions == 1
