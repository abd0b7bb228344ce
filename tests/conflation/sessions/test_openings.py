"""Openings in steps: what is sent is what an opening at once sends at the moment of its end."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.manual_driver import ManualDriver, described
from tests.support.profiles import examples
from tidegate.conflation.errors import SessionUnknown
from tidegate.conflation.frame import Frame
from tidegate.conflation.outputs import Subscribed
from tidegate.conflation.topics.feed import Feed
from tidegate.keys.text.duration import SECOND

SUMS = "projection=[/g,SUM(/v) AS /v,COUNT(/k) AS /k],grouping=[/g]"
SHAPES = (
    {"wanted": "/v > 3"},
    {"options": "top_n=3,oof", "order": "/v DESC"},
    {"options": "top_n=2,skip_n=2,oof", "order": "/v"},
    {"options": "conflation=1s,top_n=3,oof", "order": "/v DESC"},
    {"options": f"{SUMS},oof"},
    {"options": f"{SUMS},conflation=1s,oof,receipt"},
    {"options": "conflation=1s,conflation_key=[/g]", "wanted": "/v < 8"},
)
BEFORE = "aX1 bX5 cY3 dY4 eX9 fZ2 gZ7 hY6"


def driver(records_max: int | None) -> ManualDriver:
    made = ManualDriver(items_at_once=records_max)
    made.topic()
    made.publish(BEFORE)
    return made


def open_all(made: ManualDriver) -> int:
    """Do all steps; how many they were."""
    steps = 0
    while made.engine.has_openings:
        made.engine.open_step(made.now)
        steps += 1
    return steps


WITHOUT_INTERVAL = partial(re.sub, r"conflation=1s,(conflation_key=[^,]*)?|,conflation=1s", "")
LETTERS = "abcdefghij"
STEPS = st.lists(
    st.one_of(
        st.just("step"),
        st.builds(
            "{}{}{}".format, st.sampled_from(LETTERS), st.sampled_from("XYZ"), st.integers(0, 9)
        ),
        st.builds("-{}".format, st.sampled_from(LETTERS)),
    ),
    max_size=25,
)


def do(made: ManualDriver, call: str) -> None:
    """Publish a message, or remove a record that is there."""
    if not call.startswith("-"):
        made.publish(call)
    elif any(f'["{call[1]}"]' == frame.key for frame in live(made)):
        made.remove(f"{call[1]}0")


def do_and_flush(calls: Iterable[str], *drivers: ManualDriver) -> None:
    """Make the calls, steps aside, at each driver, and let an interval end."""
    for made in drivers:
        for call in calls:
            if call != "step":
                do(made, call)
        made.wait("1s")
        made.flush()


def live(made: ManualDriver) -> list[Frame]:
    sow = made.engine.topic("px").sow
    assert sow is not None
    return sow.board.live()


@pytest.mark.parametrize("command", ["sow_and_subscribe", "sow"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@examples(8)
@given(calls=STEPS, after=STEPS)
def test_it_is_an_opening_at_the_moment_of_its_end(
    shape: dict[str, Any], command: str, calls: list[str], after: list[str]
) -> None:
    if command == "sow":
        shape = {**shape, "options": WITHOUT_INTERVAL(shape.get("options", ""))}
    stepwise, at_once = driver(2), driver(None)
    name = stepwise.subscribe(**shape, command=command)

    def has_begun(made: ManualDriver) -> bool:
        subscriber = made.engine.session("s").subscribers.get((name, "px"))
        return subscriber is None or subscriber.backfill is not None

    for call in calls:
        if call == "step":
            stepwise.engine.open_step(stepwise.now)
            continue
        if has_begun(stepwise):
            break
        do(stepwise, call)
        do(at_once, call)
    open_all(stepwise)
    at_once.subscribe(**shape, command=command)
    said, wanted = described(stepwise.take()), described(at_once.take())
    # A window that was there for a message has other offsets, by which a snapshot without an
    # order of its own is sorted; its rows are the same.
    assert [sorted(one.split()) for one in said] == [sorted(one.split()) for one in wanted]
    do_and_flush(after, stepwise, at_once)
    if command != "sow":
        assert described(stepwise.take()) == described(at_once.take())
        assert counts(stepwise) == counts(at_once)
    assert stepwise.engine.topic_stats("px").boards == at_once.engine.topic_stats("px").boards


ROWS: tuple[dict[str, Any], ...] = (
    {"order": "/v DESC", "command": "sow_and_subscribe"},
    {"options": "conflation=1s,oof", "order": "/v", "command": "sow_and_subscribe"},
    {"order": "/v DESC", "command": "sow"},
    {"options": "bookmark=epoch"},
    {"options": "bookmark=epoch,conflation=1s"},
    {"options": "conflation=1s,receipt,oof", "resume": "e1-3", "counted": True},
    {"resume": "e1-3"},
)


@pytest.mark.parametrize("asked", ROWS, ids=str)
@examples(8)
@given(calls=STEPS, after=STEPS)
def test_rows_made_in_steps_are_those_of_the_cut(
    asked: dict[str, Any], calls: list[str], after: list[str]
) -> None:
    stepwise, at_once = driver(2), driver(None)
    for made in (stepwise, at_once):
        made.subscribe(**asked)
    if stepwise.engine.has_openings:
        assert not [one for one in stepwise.take() if not isinstance(one, Subscribed)]
    for call in calls:
        if call == "step":
            stepwise.engine.open_step(stepwise.now)
        else:
            do(stepwise, call)
            do(at_once, call)
    open_all(stepwise)
    assert taken(stepwise) == taken(at_once)
    do_and_flush(after, stepwise, at_once)
    assert taken(stepwise) == taken(at_once)
    if asked.get("command") != "sow":
        assert counts(stepwise) == counts(at_once)


def taken(made: ManualDriver) -> list[str]:
    """All that is taken, with the steps of what follows a replay."""
    said: list[str] = []
    with contextlib.suppress(SessionUnknown):  # it ends with its last query
        while (outputs := made.take()) or made.engine.has_openings:
            said += described(outputs)
            open_all(made)
    return said


def test_equal_replays_in_steps_share_their_rows() -> None:
    made = driver(2)
    for number in range(4):
        made.subscribe("bookmark=epoch", session=f"s{number}")
    assert open_all(made) == 4  # of two messages each, for all four of them together
    heard = [made.received(f"s{number}") for number in range(4)]
    assert heard == [["resumed by replay, gap 8", BEFORE]] * 4


def test_who_leaves_while_rows_are_made_costs_no_more() -> None:
    made = driver(2)
    made.session(lasts=True)
    name = made.subscribe("", order="/v", command="sow_and_subscribe")
    made.engine.unsubscribe("s", name)
    assert open_all(made) == 1
    assert made.received() == ["unsubscribed from px: REQUESTED"]


def counts(made: ManualDriver) -> object:
    return made.engine.session_stats("s")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each part had that a board took in."""
    parts: list[int] = []
    seed_part: Callable[..., None] = Feed.seed_part

    def noted(feed: Feed, frames: object) -> None:
        part = list(frames)  # type: ignore[call-overload]  # the feed's own argument, an iterable
        parts.append(len(part))
        seed_part(feed, part)

    monkeypatch.setattr(Feed, "seed_part", noted)
    return parts


def test_no_step_takes_in_more_than_it_may(steps: list[int]) -> None:
    made = driver(3)
    made.subscribe("top_n=2", order="/v", command="sow_and_subscribe")
    assert steps == []
    assert made.received() == []
    assert open_all(made) == 6  # three parts, the window, the subscriber, the end
    assert steps == [3, 3, 2]
    assert made.received() == ["group of 2", "snapshot: aX1 fZ2", "group ends at e1-8"]


def test_equal_openings_share_one_board(steps: list[int]) -> None:
    made = driver(3)
    for number in range(4):
        made.subscribe("", wanted="/v > 5", session=f"s{number}", command="sow_and_subscribe")
    made.publish("iX8")
    open_all(made)
    assert sum(steps) == 8
    heard = [made.received(f"s{number}") for number in range(4)]
    assert heard == [["group of 4", "snapshot: eX9 gZ7 hY6 iX8", "group ends at e1-9"]] * 4
    assert made.engine.topic_stats("px").boards == 2


def test_a_board_that_is_there_is_used_at_once(steps: list[int]) -> None:
    made = driver(3)
    made.subscribe("", wanted="/v > 5", session="s1", command="sow_and_subscribe")
    open_all(made)
    made.subscribe("", wanted="/v > 5", session="s2", command="sow_and_subscribe")
    assert not made.engine.has_openings
    assert made.received("s2")[0] == "group of 3"


LATE: tuple[dict[str, Any], ...] = (
    {"wanted": "/v > 3"},
    {"options": "oof", "wanted": "/v > 3"},
    {"options": "conflation=1s,oof", "wanted": "/v > 3"},
    {"options": "conflation=1s,conflation_key=[/g]", "wanted": "/v > 3"},
    {"resume": "e1-3", "wanted": "/v > 2"},
    {"options": "bookmark=epoch", "wanted": "/v > 3"},
)


@pytest.mark.parametrize("asked", LATE, ids=str)
@examples(8)
@given(calls=STEPS, after=STEPS)
def test_without_a_snapshot_nothing_after_the_cut_is_missed(
    asked: dict[str, Any], calls: list[str], after: list[str]
) -> None:
    stepwise, at_once = driver(2), driver(None)
    for made in (stepwise, at_once):
        made.subscribe(**asked)
    for call in calls:
        if call == "step":
            stepwise.engine.open_step(stepwise.now)
            continue
        for made in (stepwise, at_once):
            do(made, call)
            if "conflation" not in asked.get("options", ""):
                continue
            made.wait("1s")  # each message in a flush of its own: recorded times are equal here
            made.flush()
    open_all(stepwise)
    do_and_flush([], stepwise, at_once)
    shown: dict[str, str] = {}
    assert view(stepwise, shown) == view(at_once, {})
    do_and_flush(after, stepwise, at_once)
    assert described(stepwise.take()) == described(at_once.take())


def test_a_message_between_the_end_of_a_build_and_a_beginning_is_not_missed() -> None:
    for steps in range(9):
        made = driver(2)
        made.subscribe(wanted="/v > 3")
        for _ in range(steps):
            made.engine.open_step(made.now)
        made.publish("aX4")
        open_all(made)
        do_and_flush([], made)
        assert taken(made) == ["aX4"]


def test_live_rows_follow_messages_of_an_opening_that_are_not_for_its_reader() -> None:
    for steps in range(9):
        made = driver(2)
        made.subscribe(wanted="/v > 3")
        for _ in range(steps):
            made.engine.open_step(made.now)
        made.publish("aX0")
        open_all(made)
        made.publish("bX7")
        do_and_flush([], made)
        assert taken(made) == ["bX7"], steps


def view(made: ManualDriver, shown: dict[str, str]) -> dict[str, str]:
    """What a client shows after all that it is sent: the newest row of each key."""
    for line in taken(made):
        for row in () if line.startswith("resumed") else line.split():
            key = row.lstrip("-")[:1]
            shown.pop(key, None)
            if not row.startswith("-"):
                shown[key] = row
    return shown


CHANGES = (("", "/v > 3"), ("conflation=1s,oof", "/v > 6"), ("conflation=1s,oof", ""))


@pytest.mark.parametrize(("options", "wanted"), CHANGES)
@examples(8)
@given(calls=STEPS, after=STEPS)
def test_a_change_of_filter_is_made_at_the_moment_of_its_end(
    options: str, wanted: str, calls: list[str], after: list[str]
) -> None:
    stepwise, at_once = driver(2), driver(None)
    names = {
        made: made.subscribe("oof", wanted="/v < 7", command="sow_and_subscribe")
        for made in (stepwise, at_once)
    }
    open_all(stepwise)
    assert taken(stepwise) == taken(at_once)
    change = partial(ManualDriver.change, wanted=wanted, command="sow_and_subscribe")
    change(stepwise, names[stepwise], options)
    for call in calls:
        if call == "step":
            stepwise.engine.open_step(stepwise.now)
            continue
        # Not `has_openings`: an opening whose last subscriber has begun ends with its next turn.
        if stepwise.engine.session("s").subscribers[names[stepwise], "px"].change is None:
            break
        do(stepwise, call)
        do(at_once, call)
    open_all(stepwise)
    change(at_once, names[at_once], options)
    assert taken(stepwise) == taken(at_once)
    do_and_flush(after, stepwise, at_once)
    assert taken(stepwise) == taken(at_once)
    assert counts(stepwise) == counts(at_once)


def test_who_ends_while_waiting_costs_no_more(steps: list[int]) -> None:
    made = driver(3)
    made.session(lasts=True)
    name = made.subscribe("", wanted="/v > 5", command="sow_and_subscribe")
    made.engine.open_step(0)
    made.engine.unsubscribe("s", name)
    assert open_all(made) == 1
    assert sum(steps) == 3
    assert made.engine.topic_stats("px").boards == 1
    assert made.received() == ["unsubscribed from px: REQUESTED"]


def test_a_change_while_waiting_holds_once_it_is_open() -> None:
    made = driver(3)
    name = made.subscribe("", wanted="/v > 5", command="sow_and_subscribe")
    made.engine.open_step(0)
    made.change(name, "oof", wanted="/v > 8", command="sow_and_subscribe")
    open_all(made)
    assert made.received() == [
        "group of 3",
        "snapshot: eX9 gZ7 hY6",
        "group ends at e1-8",
        "-gZ7 -hY6",
    ]


def test_openings_take_turns() -> None:
    made = driver(1)
    made.subscribe("", wanted="/v > 5", session="slow", command="sow_and_subscribe")
    for _ in range(4):
        made.engine.open_step(0)
    made.subscribe("", wanted="/v > 6", session="late", command="sow_and_subscribe")
    for _ in range(13):
        made.engine.open_step(0)
    assert made.received("slow")
    assert not made.received("late")
    open_all(made)
    assert made.received("late")


def test_a_topic_that_begins_anew_does_not_wait_for_the_old_one() -> None:
    made = driver(3)
    made.subscribe("", wanted="/v > 5", command="sow_and_subscribe")
    made.engine.drop_topic("px")
    open_all(made)
    assert made.received() == ["unsubscribed from px: REMOVED", "goodbye UNSUBSCRIBED"]


def test_lanes_that_are_due_together_are_flushed_in_steps() -> None:
    made = driver(3)
    for number in range(6):
        made.subscribe(f"conflation=1s,conflation_key=[/k,/x{number}]", session=f"s{number}")
    made.publish("aX1 bX2")
    made.now += SECOND
    # A lane costs 5, the two rows that it makes and sends, and 1: more than a step of 3.
    for number in range(6):
        assert made.engine.next_deadline() is not None
        made.engine.advance(made.now)
        heard = [made.received(f"s{other}") for other in range(6)]
        assert heard == [["aX1 bX2"] if other == number else [] for other in range(6)]
    assert made.engine.next_deadline() is None


def test_a_session_is_told_once_its_rows_are_made() -> None:
    made = driver(2)
    made.subscribe("bookmark=epoch")
    made.take()
    made.announced()
    told = []
    while made.engine.has_openings:
        made.engine.open_step(made.now)
        told.append(made.announced())
    assert told == [[], [], [], ["s"]]
