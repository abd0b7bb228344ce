"""What a subscriber is owed when it joins: a snapshot, or what it missed."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tests.support.world import World, batches, ids, sizes, told
from tidegate.conflation.subscription import BATCH_SIZE

SNAPSHOT = "sow_and_subscribe"


def keyed(text: str, **definition: object) -> World:
    world = World()
    world.topic(**definition)  # type: ignore[arg-type]  # checked by topic
    world.say(text)
    return world


@rule("resume-1")
def test_a_snapshot_is_the_state_at_the_cut_oldest_row_first() -> None:
    world = keyed("a1 b1 a2 c1")
    world.subscribe(command=SNAPSHOT)
    assert world.hears() == ["group of 3", "snapshot: b1 a2 c1", "group ends at e1-4"]


def test_an_empty_topic_has_an_empty_group() -> None:
    world = World()
    world.topic()
    world.subscribe(command=SNAPSHOT)
    assert world.hears() == ["group of 0", "group ends at e1-0"]


def test_an_empty_topic_has_its_group_though_the_first_take_had_no_room_for_it() -> None:
    world = keyed("a1 b1")
    world.topic("other")
    world.subscribe(command=SNAPSHOT)
    world.subscribe(command=SNAPSHOT, topic="other")
    assert told(world.take_once(1)) == ["group of 2", "snapshot: a1"]
    assert sorted(told(world.take())) == [
        "group ends at e1-0", "group ends at e1-2", "group of 0", "snapshot: b1",
    ]  # fmt: skip


@rule("resume-1")
def test_a_snapshot_is_exact_whatever_is_published_while_it_is_taken() -> None:
    """Live rows follow it without gap or overlap."""
    world = keyed("a1 b1 c1")
    world.subscribe("conflation=1s", command=SNAPSHOT)
    first = world.take_once(1)
    world.say("a2 c2 d1")
    world.wait("1s")
    rest = world.take()
    assert told(first) == ["group of 3", "snapshot: a1"]
    assert told(rest) == ["snapshot: b1 c1", "group ends at e1-3", "a2 c2 d1"]
    assert ids([*first, *rest]) == [None, None, 6]


@rule("queue-1")
def test_a_snapshot_trips_no_limit() -> None:
    world = keyed("a1 b1 c1 d1")
    world.session(messages_max=1)
    world.subscribe("conflation=none", command=SNAPSHOT)
    world.say("e1")
    assert world.engine.session_stats("s").queued_messages == 1
    world.flush()
    assert world.hears()[-1] == "e1"


def test_many_rows_come_a_hundred_at_a_time() -> None:
    world = World()
    world.topic(key="[/v]")
    world.say(" ".join(f"a{number}" for number in range(BATCH_SIZE * 2 + 1)))
    world.subscribe(command=SNAPSHOT)
    assert [len(batch.frames) for batch in batches(world.take())] == [BATCH_SIZE, BATCH_SIZE, 1]


@rule("session-8")
def test_a_sow_ends_its_session_with_its_last_row() -> None:
    world = keyed("a1 b1")
    world.subscribe(command="sow")
    assert world.hears(bytes_max=1) == [
        "group of 2",
        "snapshot: a1",
        "snapshot: b1",
        "group ends at e1-2",
        "goodbye UNSUBSCRIBED",
    ]


@rule("resume-2", "resume-4")
@pytest.mark.parametrize(
    ("options", "resume", "expected"),
    [
        ("conflation=1s", "e1-2", ["resumed by changes, gap 4", "bX2 aX3 aY2"]),
        ("conflation=1s", "e1-6", ["resumed by changes, gap 0"]),
        ("conflation=1s,conflation_key=[/k]", "e1-2", ["resumed by changes, gap 4", "bX2 aY2"]),
        ("conflation=1s,conflation_key=[/g,/k]", "e1-4", ["resumed by changes, gap 2", "aX3 aY2"]),
        ("conflation=1s,conflation_key=[/v]", "e1-2", ["resumed by replay, gap 4", "aX3 aY2"]),
        ("conflation=none", "e1-2", ["resumed by replay, gap 4", "aX2 bX2 aX3 aY2"]),
        ("conflation=none", "e1-0", ["resumed by replay, gap 6", "aX1 bX1 aX2 bX2 aX3 aY2"]),
    ],
)
def test_a_resume_continues_from_the_bookmark(
    options: str, resume: str, expected: list[str]
) -> None:
    world = keyed("aX1 bX1 aX2 bX2 aX3 aY2", key="[/k,/g]")
    world.subscribe(options, resume=resume)
    assert world.hears() == expected


@rule("resume-2")
@pytest.mark.parametrize(
    ("options", "resume", "gap"),
    [
        ("conflation=1s", "strange-1", None),
        ("conflation=none", "strange-1", None),
        ("conflation=1s", "e1-9", None),
        ("conflation=none", "e1-9", None),
        ("conflation=1s,conflation_key=[/v]", "e1-0", 3),
        ("conflation=none", "e1-0", 3),
    ],
)
def test_a_resume_that_cannot_continue_begins_anew(
    options: str, resume: str, gap: int | None
) -> None:
    """Another epoch, the future, a journal too short."""
    world = keyed("a1 b1 a2", history=2)
    world.subscribe(options, resume=resume)
    assert world.hears() == [
        f"resumed by snapshot, gap {gap}",
        "group of 2",
        "snapshot: b1 a2",
        "group ends at e1-3",
    ]


@rule("resume-2")
def test_changes_outlive_the_journal() -> None:
    world = keyed("a1 b1 a2 c1", history=1)
    world.subscribe("conflation=1s", resume="e1-1")
    assert world.hears() == ["resumed by changes, gap 3", "b1 a2 c1"]


@rule("resume-4")
@pytest.mark.parametrize(("policy", "expected"), [("conflate", "b1 a3"), ("off", "b1 a2 a3")])
@pytest.mark.parametrize("limit", ["messages", "bytes"])
def test_a_replay_beyond_the_limits_is_conflated_where_the_topic_allows_it(
    policy: str, expected: str, limit: str
) -> None:
    world = keyed("a1 b1 a2 a3", policy=policy)
    if limit == "messages":
        world.session(messages_max=2)
    else:
        world.session(bytes_max=sizes(["a1", "a2"]))
    world.subscribe("conflation=none", resume="e1-1")
    assert world.hears()[-1] == expected


@rule("resume-5")
def test_a_plain_topic_has_nothing_to_begin_anew_with() -> None:
    world = keyed("a1 b1 c1", key="", history=1)
    world.subscribe("conflation=1s,conflation_key=[/k]", resume="e1-1")
    assert world.hears() == [
        "resumed by snapshot, gap 2",
        "group of 0",
        "group ends at e1-3",
    ]


@rule("resume-4")
def test_a_plain_topic_is_continued_from_its_journal() -> None:
    """With an interval, conflated by the messages' own times."""
    world = keyed("a1 b1 a2 b2", key="")
    world.subscribe("conflation=1s,conflation_key=[/k]", resume="e1-1")
    assert world.hears() == ["resumed by replay, gap 3", "a2 b2"]


@rule("account-1", "resume-6")
def test_resumed_rows_end_with_the_cut_as_their_id_and_count_as_no_delivery() -> None:
    world = keyed("a1 b1 c1")
    world.subscribe("conflation=1s", resume="e1-1")
    assert ids(world.take(bytes_max=1)) == [None, 3]
    (row,) = world.engine.session_stats("s").subscriptions
    assert (row.matched, row.delivered) == (0, 0)
