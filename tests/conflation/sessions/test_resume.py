"""By which way a bookmark is continued where more than the newest value is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.manual_driver import ManualDriver, counts, described, ids
from tests.support.rules import rule
from tidegate.conflation.errors import BookmarkExpired
from tidegate.conflation.frame import RemovalReason
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import Resumed
from tidegate.conflation.sessions.backfill import overflows
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.subscription import NotFound
from tidegate.keys.merging import Merger
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec


def driver_of(text: str, **definition: object) -> ManualDriver:
    driver = ManualDriver()
    driver.topic(**definition)  # type: ignore[arg-type]  # checked by topic
    driver.publish(text)
    return driver


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
    driver = driver_of("a1 b1 a2")
    driver.subscribe(options, wanted=wanted, resume="e1-1", command="sow_and_subscribe")
    assert driver.received()[0] == f"resumed by {mode}, gap 2"


@rule("removal-2")
def test_removals_go_to_clients_that_may_hold_the_key_and_ask_for_them() -> None:
    """The row of c may have arrived, although its id has not."""
    driver = driver_of("a1 b1")
    driver.publish("c1")
    driver.remove("a0", reason=RemovalReason.DELETED)
    driver.remove("c0")
    driver.subscribe("conflation=1s,oof", resume="e1-2", command="sow_and_subscribe")
    assert driver.received()[1:] == ["-a1 -c1"]
    driver.subscribe("conflation=1s", resume="e1-2", session="other")
    assert driver.received("other")[1:] == ["c1"]


@rule("resume-6", "cluster-16")
@pytest.mark.parametrize(
    ("options", "found"),
    [("batch_size=1", [None, None, 6]), ("conflation=1s,batch_size=1", [4, 5, 6])],
)
def test_pieces_of_changes_have_ids_only_with_an_interval(
    options: str, found: list[int | None]
) -> None:
    """A reader that returns to another epoch with an interval is sent all records."""
    driver = driver_of("a1 b1 c1")
    driver.publish("a2 b2 c2")
    driver.session("few", messages_max=2)
    driver.subscribe(options, resume="e1-3", session="few", command="sow_and_subscribe")
    outputs = driver.take("few")
    assert described(outputs)[0] == "resumed by changes, gap 3"
    assert ids(outputs) == found


@rule("delta-6", "resume-8")
def test_a_replay_counts_what_its_rows_stand_for() -> None:
    driver = driver_of("a1 a2 b1 a3", key="")
    driver.subscribe("conflation=1s,conflation_key=[/k],receipt", resume="e1-1", counted=True)
    assert counts(driver.take()) == [("b1", 1, 3), ("a3", 2, 2)]


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
def test_a_bookmark_subscription_sends_every_message_since(
    options: str, expected: list[str]
) -> None:
    driver = driver_of("a1 b1 a2")
    driver.subscribe(options, command=None)
    assert driver.received() == expected
    driver.publish("c1")
    driver.wait("1s")
    assert driver.received() == ["c1"]


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
    driver = driver_of("a1 b1 a2", key=key, history=1)
    driver.subscribe(options, command=None)
    group = [f"snapshot: {records}"] if records else []
    told = [f"resumed by snapshot, gap {gap}", f"group of {len(records.split())}", *group]
    assert driver.received() == [*told, "group ends at e1-3"]
    driver.publish("c1")
    driver.wait("1s")
    assert driver.received() == ["c1"]


TIMES = [  # messages at 1, 2 and 3 ms; the first one is dropped from a history of 2
    ("00:00:00Z", 9, None, "resumed by replay, gap 3"),
    ("00:00:00Z", 2, NotFound.EPOCH, "resumed by replay, gap None"),
    ("00:00:00.001Z", 2, NotFound.EPOCH, "resumed by replay, gap None"),
    ("00:00:00.002Z", 2, None, "resumed by replay, gap 2"),
]


@rule("resume-3")
@pytest.mark.parametrize(("time", "history", "not_found", "said"), TIMES)
def test_a_time_that_the_journal_does_not_reach_back_to(
    time: str, history: int, not_found: NotFound | None, said: str
) -> None:
    """All that is kept follows, and the reader is told; or it is refused."""
    driver = driver_of("a1 b1 a2", history=history)
    driver.subscribe(f"bookmark=1970-01-01T{time}", command=None)
    (resumed, *_) = outputs = driver.take()
    assert isinstance(resumed, Resumed)
    assert resumed.not_found is not_found
    assert described(outputs) == [said, "a1 b1 a2" if history == 9 else "b1 a2"]
    fails = f"bookmark=1970-01-01T{time},bookmark_not_found=fail"
    if not_found is None:
        driver.subscribe(fails, command=None, session="other")
    else:
        with pytest.raises(BookmarkExpired, match="does not reach back to this time"):
            driver.subscribe(fails, command=None, session="other")


@rule("resume-3")
@pytest.mark.parametrize(
    ("options", "not_found"),
    [
        ("bookmark=e9-1", NotFound.NOW),
        ("bookmark=e9-1,bookmark_not_found=epoch", NotFound.EPOCH),
        ("bookmark=e1-1", None),
        ("bookmark=epoch", None),
    ],
)
def test_resumed_says_what_stands_in_for_a_bookmark(
    options: str, not_found: NotFound | None
) -> None:
    driver = driver_of("a1 b1")
    driver.subscribe(options, command=None)
    resumed = driver.take()[0]
    assert isinstance(resumed, Resumed)
    assert resumed.not_found is not_found


@rule("resume-8")
def test_a_bookmark_that_must_be_found_and_is_not() -> None:
    driver = driver_of("a1")
    with pytest.raises(BookmarkExpired):
        driver.subscribe("bookmark=e9-1,bookmark_not_found=fail", command=None)


@rule("resume-6")
def test_a_continuation_without_rows_says_where_it_stands() -> None:
    """Else a client that leaves before the next row would come back with nothing."""
    driver = driver_of("a1 b1 a2")
    driver.subscribe("conflation=1s", resume="e1-3")
    driver.subscribe("bookmark=e1-3", command=None, session="other")
    assert [output.bookmark for output in driver.take() if isinstance(output, Resumed)] == ["e1-3"]
    (resumed,) = driver.take("other")
    assert isinstance(resumed, Resumed)
    assert resumed.bookmark == "e1-3"


@rule("delta-6")
def test_changes_count_what_the_journal_knows_of() -> None:
    """And say how much time was missed."""
    driver = driver_of("a1 b1 a2 a3")
    driver.subscribe("conflation=1s,receipt", resume="e1-1", counted=True)
    taken = driver.take()
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
    driver = driver_of("a1 a2 a3 a4", key=key, policy=policy)
    topic = driver.engine.topic("px")
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
    driver = driver_of("a1 b1 a2 c1 b2 a3", merge=merge, policy=policy)
    driver.session(messages_max=3)
    driver.subscribe("receipt", resume="e1-1")
    taken = driver.take()
    assert described(taken) == ["resumed by replay, gap 5", "c1 b3 a5"]
    assert counts(taken) == [("c1", 1, 4), ("b3", 2, 2), ("a5", 2, 3)]
    assert ids(taken) == [6]
    driver.publish("a4")
    driver.flush()
    assert driver.received() == ["a4"]


def test_within_the_limits_and_of_deltas_nothing_is_merged() -> None:
    driver = driver_of("a1 a2 a3 b1", merge=SUM)
    driver.session("wide", messages_max=3)
    driver.subscribe(resume="e1-1", session="wide")
    assert driver.received("wide") == ["resumed by replay, gap 3", "a2 a3 b1"]
    driver.session(messages_max=2)
    driver.subscribe(resume="e1-1", command="delta_subscribe")
    assert driver.received() == ["resumed by changes, gap 3", "a3 b1"]


@rule("resume-4", "queue-9")
def test_what_was_missed_is_matched_and_shown_as_a_queue_is() -> None:
    driver = driver_of("aX1 aY2 aX3 aY4", match=KeySpec.of(["/g"]))
    driver.session(messages_max=2)
    driver.subscribe(resume="e1-1")
    assert driver.received() == ["resumed by replay, gap 3", "aX3 aY4"]
    seen: list[Any] = []

    def noting(current: Any, new: Any) -> Any:
        seen.append(current)
        return {**new, "g": "Q"}

    merger = Merger("m:noting", noting)
    other = driver_of("aX1 aY2 aX3 aY4", merge=merger)
    other.session(messages_max=2)
    other.subscribe("select=[-/,+/k,+/v]", resume="e1-1")
    assert other.received() == ["resumed by replay, gap 3", "aQ4"]
    assert seen[0] == {"k": "a", "v": 2}


@rule("removal-2")
def test_removals_are_put_together_with_what_was_missed() -> None:
    """The row of c may have arrived, although its id has not."""
    driver = driver_of("a1 b1 a2", merge=SUM)
    driver.publish("c1 c2")
    driver.remove("a0")
    driver.remove("c0")
    driver.session(messages_max=2)
    driver.subscribe("oof", resume="e1-2")
    assert driver.received() == ["resumed by replay, gap 5", "-a2 -c2"]


@rule("session-4")
def test_what_can_be_merged_is_not_more_than_may_wait() -> None:
    driver = driver_of("a1 a2 a3 a4", merge=SUM)
    topic = driver.engine.topic("px")
    subscription = decide("px", topic.definition, Options.parse(""), resume=topic.bookmark(1))
    limits = QueueLimits(2, 1 << 20)
    assert overflows(topic, subscription, limits, conflated=True) is False
    assert overflows(topic, subscription, limits, conflated=False) is True
