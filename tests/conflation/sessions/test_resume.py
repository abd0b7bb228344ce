"""By which way a bookmark is continued where more than the newest value is asked for."""

from __future__ import annotations

import pytest

from conflation.errors import BookmarkExpired
from conflation.frame import Gone
from conflation.language.grant import decide
from conflation.language.options import Options
from conflation.outputs import Resumed
from conflation.sessions.resume import overflows
from conflation.sessions.session import QueueLimits
from tests.support.world import World, counts


def world_of(text: str, **definition: object) -> World:
    world = World()
    world.topic(**definition)  # type: ignore[arg-type]  # checked by topic
    world.say(text)
    return world


@pytest.mark.parametrize(
    ("options", "wanted", "mode"),
    [
        ("conflation=1s,oof", "", "changes"),
        ("conflation=1s", "/v > 0", "changes"),
        ("conflation=1s,oof", "/v > 0", "snapshot"),
        ("oof", "/v > 0", "snapshot"),
        ("conflation=1s,never=[/v = 1]", "", "replay"),
        ("conflation=1s,reduce=[/v:sum]", "", "replay"),
        ("conflation=1s,receipt", "", "changes"),
        ("top_n=3", "", "snapshot"),
        ("projection=[/k,COUNT(/v) AS /n],grouping=[/k]", "", "snapshot"),
    ],
)
def test_the_first_way_that_fits(options: str, wanted: str, mode: str) -> None:
    """Rule 32, for the whole language."""
    world = world_of("a1 b1 a2")
    world.subscribe(options, wanted=wanted, resume="e1-1", command="sow_and_subscribe")
    assert world.hears()[0] == f"resumed by {mode}, gap 2"


def test_removals_are_told_to_who_may_hold_the_key_and_asks_for_them() -> None:
    """Rule 202: the row of c may have arrived, although its id has not."""
    world = world_of("a1 b1")
    world.say("c1")
    world.remove("a0", reason=Gone.DELETED)
    world.remove("c0")
    world.subscribe("conflation=1s,oof", resume="e1-2", command="sow_and_subscribe")
    assert world.hears()[1:] == ["-a1 -c1"]
    world.subscribe("conflation=1s", resume="e1-2", session="other")
    assert world.hears("other")[1:] == ["c1"]


def test_a_replay_counts_what_its_rows_stand_for() -> None:
    """Rules 212 and 251."""
    world = world_of("a1 a2 b1 a3", key="")
    world.subscribe("conflation=1s,conflation_key=[/k],receipt", resume="e1-1", counted=True)
    assert counts(world.take()) == [("b1", 1, 3), ("a3", 2, 2)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("bookmark=epoch", ["resumed by replay, gap 3", "a1 b1 a2"]),
        ("bookmark=e1-2", ["resumed by replay, gap 1", "a2"]),
        ("bookmark=e1-9,bookmark_not_found=epoch", ["resumed by replay, gap None", "a1 b1 a2"]),
        ("bookmark=epoch,conflation=1s", ["resumed by replay, gap 3", "b1 a2"]),
    ],
)
def test_a_bookmark_subscription_tells_every_message_since(
    options: str, expected: list[str]
) -> None:
    """Rule 251."""
    world = world_of("a1 b1 a2")
    world.subscribe(options, command=None)
    assert world.hears() == expected
    world.say("c1")
    world.wait("1s")
    assert world.hears() == ["c1"]


LOST = [
    ("bookmark=e1-9", "[/k]", "None", "b1 a2"),
    ("bookmark=e9-1", "[/k]", "None", "b1 a2"),
    ("bookmark=e1-1", "[/k]", "2", "b1 a2"),
    ("bookmark=e1-1,conflation=1s", "[/k]", "2", "b1 a2"),
    ("bookmark=e9-1", "", "None", ""),
]


@pytest.mark.parametrize(("options", "key", "gap", "records"), LOST)
def test_a_bookmark_that_is_not_found_has_a_snapshot_in_its_place(
    options: str, key: str, gap: str, records: str
) -> None:
    """Rule 600: then what is published follows."""
    world = world_of("a1 b1 a2", key=key, history=1)
    world.subscribe(options, command=None)
    group = [f"snapshot: {records}"] if records else []
    told = [f"resumed by snapshot, gap {gap}", f"group of {len(records.split())}", *group]
    assert world.hears() == [*told, "group ends at e1-3"]
    world.say("c1")
    world.wait("1s")
    assert world.hears() == ["c1"]


def test_a_bookmark_that_must_be_found_and_is_not() -> None:
    """Rule 251."""
    world = world_of("a1")
    with pytest.raises(BookmarkExpired):
        world.subscribe("bookmark=e9-1,bookmark_not_found=fail", command=None)


def test_a_continuation_without_rows_says_where_it_stands() -> None:
    """Rule 41: else a client that leaves before the next row would come back with nothing."""
    world = world_of("a1 b1 a2")
    world.subscribe("conflation=1s", resume="e1-3")
    world.subscribe("bookmark=e1-3", command=None, session="other")
    assert [output.bookmark for output in world.take() if isinstance(output, Resumed)] == ["e1-3"]
    (resumed,) = world.take("other")
    assert isinstance(resumed, Resumed)
    assert resumed.bookmark == "e1-3"


def test_changes_count_what_the_journal_knows_of() -> None:
    """Rule 212: and say how much time was missed."""
    world = world_of("a1 b1 a2 a3")
    world.subscribe("conflation=1s,receipt", resume="e1-1", counted=True)
    taken = world.take()
    assert counts(taken) == [("b1", 1, 2), ("a3", 2, 3)]
    (resumed,) = (output for output in taken if isinstance(output, Resumed))
    assert (resumed.gap_messages, resumed.gap_ms) == (3, 3)


LONG = [
    ("conflate", "[/k]", "", True, False),
    ("conflate", "[/k]", "", False, True),
    ("conflate", "", "", True, True),
    ("off", "[/k]", "", True, True),
    ("off", "[/k]", "conflation=1s", True, False),
    ("unsubscribe", "[/k]", "", True, True),
]


@pytest.mark.parametrize(("policy", "key", "options", "conflated", "wanted"), LONG)
def test_a_replay_that_cannot_be_conflated_may_be_more_than_may_wait(
    policy: str, key: str, options: str, conflated: bool, wanted: bool
) -> None:
    """Rule 294."""
    world = world_of("a1 a2 a3 a4", key=key, policy=policy)
    topic = world.engine.topic("px")
    subscription = decide("px", topic.definition, Options.parse(options), resume=topic.bookmark(1))
    for messages_max, is_above in ((3, False), (2, wanted)):
        limits = QueueLimits(messages_max, 1 << 20)
        assert overflows(topic, subscription, limits, conflated=conflated) is is_above
