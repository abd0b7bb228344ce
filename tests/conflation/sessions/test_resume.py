"""By which way a bookmark is continued where more than the newest value is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rules import rule
from tests.support.world import World, counts, ids, told
from tidegate.conflation.errors import BookmarkExpired
from tidegate.conflation.frame import RemovalReason
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import Resumed
from tidegate.conflation.sessions.backfill import overflows
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.keys.merging import Merger
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec


def world_of(text: str, **definition: object) -> World:
    world = World()
    world.topic(**definition)  # type: ignore[arg-type]  # checked by topic
    world.say(text)
    return world


@rule("resume-2")
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
    """Rule resume-2, for the whole language."""
    world = world_of("a1 b1 a2")
    world.subscribe(options, wanted=wanted, resume="e1-1", command="sow_and_subscribe")
    assert world.hears()[0] == f"resumed by {mode}, gap 2"


@rule("removal-2")
def test_removals_are_told_to_who_may_hold_the_key_and_asks_for_them() -> None:
    """The row of c may have arrived, although its id has not."""
    world = world_of("a1 b1")
    world.say("c1")
    world.remove("a0", reason=RemovalReason.DELETED)
    world.remove("c0")
    world.subscribe("conflation=1s,oof", resume="e1-2", command="sow_and_subscribe")
    assert world.hears()[1:] == ["-a1 -c1"]
    world.subscribe("conflation=1s", resume="e1-2", session="other")
    assert world.hears("other")[1:] == ["c1"]


@rule("delta-6", "resume-8")
def test_a_replay_counts_what_its_rows_stand_for() -> None:
    world = world_of("a1 a2 b1 a3", key="")
    world.subscribe("conflation=1s,conflation_key=[/k],receipt", resume="e1-1", counted=True)
    assert counts(world.take()) == [("b1", 1, 3), ("a3", 2, 2)]


@rule("resume-8")
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


@rule("resume-3")
@pytest.mark.parametrize(("options", "key", "gap", "records"), LOST)
def test_a_bookmark_that_is_not_found_has_a_snapshot_in_its_place(
    options: str, key: str, gap: str, records: str
) -> None:
    """Then what is published follows."""
    world = world_of("a1 b1 a2", key=key, history=1)
    world.subscribe(options, command=None)
    group = [f"snapshot: {records}"] if records else []
    told = [f"resumed by snapshot, gap {gap}", f"group of {len(records.split())}", *group]
    assert world.hears() == [*told, "group ends at e1-3"]
    world.say("c1")
    world.wait("1s")
    assert world.hears() == ["c1"]


@rule("resume-8")
def test_a_bookmark_that_must_be_found_and_is_not() -> None:
    world = world_of("a1")
    with pytest.raises(BookmarkExpired):
        world.subscribe("bookmark=e9-1,bookmark_not_found=fail", command=None)


@rule("resume-6")
def test_a_continuation_without_rows_says_where_it_stands() -> None:
    """Else a client that leaves before the next row would come back with nothing."""
    world = world_of("a1 b1 a2")
    world.subscribe("conflation=1s", resume="e1-3")
    world.subscribe("bookmark=e1-3", command=None, session="other")
    assert [output.bookmark for output in world.take() if isinstance(output, Resumed)] == ["e1-3"]
    (resumed,) = world.take("other")
    assert isinstance(resumed, Resumed)
    assert resumed.bookmark == "e1-3"


@rule("delta-6")
def test_changes_count_what_the_journal_knows_of() -> None:
    """And say how much time was missed."""
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


@rule("session-4")
@pytest.mark.parametrize(("policy", "key", "options", "conflated", "wanted"), LONG)
def test_a_replay_that_cannot_be_conflated_may_be_more_than_may_wait(
    policy: str, key: str, options: str, conflated: bool, wanted: bool
) -> None:
    world = world_of("a1 a2 a3 a4", key=key, policy=policy)
    topic = world.engine.topic("px")
    subscription = decide("px", topic.definition, Options.parse(options), resume=topic.bookmark(1))
    for messages_max, is_above in ((3, False), (2, wanted)):
        limits = QueueLimits(messages_max, 1 << 20)
        assert overflows(topic, subscription, limits, conflated=conflated) is is_above


SUM = Reduce.of({"/v": "sum"})
TOTAL = Merger("m:total", lambda current, new: {**new, "v": current["v"] + new["v"]})


@rule("resume-4")
@pytest.mark.parametrize("merge", [SUM, TOTAL])
@pytest.mark.parametrize("policy", ["conflate", "always"])
def test_what_was_missed_above_the_limits_is_merged_as_a_queue_is(merge: Any, policy: str) -> None:
    """The newest values alone would lose what the older ones add."""
    world = world_of("a1 b1 a2 c1 b2 a3", merge=merge, policy=policy)
    world.session(messages_max=3)
    world.subscribe("receipt", resume="e1-1")
    taken = world.take()
    assert told(taken) == ["resumed by replay, gap 5", "c1 b3 a5"]
    assert counts(taken) == [("c1", 1, 4), ("b3", 2, 2), ("a5", 2, 3)]
    assert ids(taken) == [6]
    world.say("a4")
    world.flush()
    assert world.hears() == ["a4"]


def test_within_the_limits_and_of_deltas_nothing_is_merged() -> None:
    world = world_of("a1 a2 a3 b1", merge=SUM)
    world.session("wide", messages_max=3)
    world.subscribe(resume="e1-1", session="wide")
    assert world.hears("wide") == ["resumed by replay, gap 3", "a2 a3 b1"]
    world.session(messages_max=2)
    world.subscribe(resume="e1-1", command="delta_subscribe")
    assert world.hears() == ["resumed by changes, gap 3", "a3 b1"]


@rule("resume-4", "queue-9")
def test_what_was_missed_is_matched_and_shown_as_a_queue_is() -> None:
    world = world_of("aX1 aY2 aX3 aY4", match=KeySpec.of(["/g"]))
    world.session(messages_max=2)
    world.subscribe(resume="e1-1")
    assert world.hears() == ["resumed by replay, gap 3", "aX3 aY4"]
    seen: list[Any] = []

    def noting(current: Any, new: Any) -> Any:
        seen.append(current)
        return {**new, "g": "Q"}

    merger = Merger("m:noting", noting)
    other = world_of("aX1 aY2 aX3 aY4", merge=merger)
    other.session(messages_max=2)
    other.subscribe("select=[-/,+/k,+/v]", resume="e1-1")
    assert other.hears() == ["resumed by replay, gap 3", "aQ4"]
    assert seen[0] == {"k": "a", "v": 2}


@rule("removal-2")
def test_removals_are_put_together_with_what_was_missed() -> None:
    """The row of c may have arrived, although its id has not."""
    world = world_of("a1 b1 a2", merge=SUM)
    world.say("c1 c2")
    world.remove("a0")
    world.remove("c0")
    world.session(messages_max=2)
    world.subscribe("oof", resume="e1-2")
    assert world.hears() == ["resumed by replay, gap 5", "-a2 -c2"]


@rule("session-4")
def test_what_can_be_merged_is_not_more_than_may_wait() -> None:
    world = world_of("a1 a2 a3 a4", merge=SUM)
    topic = world.engine.topic("px")
    subscription = decide("px", topic.definition, Options.parse(""), resume=topic.bookmark(1))
    limits = QueueLimits(2, 1 << 20)
    assert overflows(topic, subscription, limits, conflated=True) is False
    assert overflows(topic, subscription, limits, conflated=False) is True
