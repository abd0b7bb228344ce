"""What a subscriber is owed when it joins: a snapshot, or what it missed."""

from __future__ import annotations

import pytest

from tests.support.manual_driver import ManualDriver, batches, described, ids, sizes
from tests.support.rules import rule
from tidegate.conflation.subscription import BATCH_SIZE

SNAPSHOT = "sow_and_subscribe"


def keyed(text: str, **definition: object) -> ManualDriver:
    driver = ManualDriver()
    driver.topic(**definition)  # type: ignore[arg-type]  # checked by topic
    driver.publish(text)
    return driver


@rule("resume-1")
def test_a_snapshot_is_the_state_at_the_cut_oldest_row_first() -> None:
    driver = keyed("a1 b1 a2 c1")
    driver.subscribe(command=SNAPSHOT)
    assert driver.received() == ["group of 3", "snapshot: b1 a2 c1", "group ends at e1-4"]


def test_an_empty_topic_has_an_empty_group() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(command=SNAPSHOT)
    assert driver.received() == ["group of 0", "group ends at e1-0"]


def test_an_empty_topic_has_its_group_though_the_first_take_had_no_room_for_it() -> None:
    driver = keyed("a1 b1")
    driver.topic("other")
    driver.subscribe(command=SNAPSHOT)
    driver.subscribe(command=SNAPSHOT, topic="other")
    assert described(driver.take_once(1)) == ["group of 2", "snapshot: a1"]
    assert sorted(described(driver.take())) == [
        "group ends at e1-0", "group ends at e1-2", "group of 0", "snapshot: b1",
    ]  # fmt: skip


@rule("resume-1")
def test_a_snapshot_is_exact_whatever_is_published_while_it_is_taken() -> None:
    """Live rows follow it without gap or overlap."""
    driver = keyed("a1 b1 c1")
    driver.subscribe("conflation=1s", command=SNAPSHOT)
    first = driver.take_once(1)
    driver.publish("a2 c2 d1")
    driver.wait("1s")
    rest = driver.take()
    assert described(first) == ["group of 3", "snapshot: a1"]
    assert described(rest) == ["snapshot: b1 c1", "group ends at e1-3", "a2 c2 d1"]
    assert ids([*first, *rest]) == [None, None, 6]


@rule("queue-1")
def test_a_snapshot_trips_no_limit() -> None:
    driver = keyed("a1 b1 c1 d1")
    driver.session(messages_max=1)
    driver.subscribe("conflation=none", command=SNAPSHOT)
    driver.publish("e1")
    assert driver.engine.session_stats("s").queued_messages == 1
    driver.flush()
    assert driver.received()[-1] == "e1"


def test_many_rows_come_a_hundred_at_a_time() -> None:
    driver = ManualDriver()
    driver.topic(key="[/v]")
    driver.publish(" ".join(f"a{number}" for number in range(BATCH_SIZE * 2 + 1)))
    driver.subscribe(command=SNAPSHOT)
    assert [len(batch.frames) for batch in batches(driver.take())] == [BATCH_SIZE, BATCH_SIZE, 1]


@rule("session-8")
def test_a_sow_ends_its_session_with_its_last_row() -> None:
    driver = keyed("a1 b1")
    driver.subscribe(command="sow")
    assert driver.received(bytes_max=1) == [
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
    driver = keyed("aX1 bX1 aX2 bX2 aX3 aY2", key="[/k,/g]")
    driver.subscribe(options, resume=resume)
    assert driver.received() == expected


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
    driver = keyed("a1 b1 a2", history=2)
    driver.subscribe(options, resume=resume)
    assert driver.received() == [
        f"resumed by snapshot, gap {gap}",
        "group of 2",
        "snapshot: b1 a2",
        "group ends at e1-3",
    ]


@rule("resume-2")
def test_changes_outlive_the_journal() -> None:
    driver = keyed("a1 b1 a2 c1", history=1)
    driver.subscribe("conflation=1s", resume="e1-1")
    assert driver.received() == ["resumed by changes, gap 3", "b1 a2 c1"]


@rule("resume-4")
@pytest.mark.parametrize(("policy", "expected"), [("conflate", "b1 a3"), ("off", "b1 a2 a3")])
@pytest.mark.parametrize("limit", ["messages", "bytes"])
def test_a_replay_beyond_the_limits_is_conflated_where_the_topic_allows_it(
    policy: str, expected: str, limit: str
) -> None:
    driver = keyed("a1 b1 a2 a3", policy=policy)
    if limit == "messages":
        driver.session(messages_max=2)
    else:
        driver.session(bytes_max=sizes(["a1", "a2"]))
    driver.subscribe("conflation=none", resume="e1-1")
    assert driver.received()[-1] == expected


@rule("resume-5")
def test_a_plain_topic_has_nothing_to_begin_anew_with() -> None:
    driver = keyed("a1 b1 c1", key="", history=1)
    driver.subscribe("conflation=1s,conflation_key=[/k]", resume="e1-1")
    assert driver.received() == [
        "resumed by snapshot, gap 2",
        "group of 0",
        "group ends at e1-3",
    ]


@rule("resume-4")
def test_a_plain_topic_is_continued_from_its_journal() -> None:
    """With an interval, conflated by the messages' own times."""
    driver = keyed("a1 b1 a2 b2", key="")
    driver.subscribe("conflation=1s,conflation_key=[/k]", resume="e1-1")
    assert driver.received() == ["resumed by replay, gap 3", "a2 b2"]


@rule("resume-6")
@pytest.mark.parametrize(
    ("options", "policy", "found"),
    [
        ("conflation=none,bookmark=epoch", "off", [1, 2, 3]),
        ("conflation=none,bookmark=epoch", "conflate", [None, None, 3]),
        ("conflation=1s,bookmark=epoch", "off", [None, None, 3]),
        ("conflation=none,bookmark=epoch,rate=1000000", "off", [None]),
    ],
)
def test_each_piece_of_a_replay_has_an_id_where_the_rest_is_a_replay(
    options: str, policy: str, found: list[int | None]
) -> None:
    driver = keyed("a1 b1 c1", policy=policy)
    driver.subscribe(options)
    assert ids(driver.take(bytes_max=1)) == found


@rule("account-1", "resume-6")
def test_resumed_rows_have_ids_of_their_own_and_count_as_no_delivery() -> None:
    driver = keyed("a1 b1 c1 d1 b2")
    driver.subscribe("conflation=1s", resume="e1-1")
    assert ids(driver.take(bytes_max=1)) == [3, 4, 5]
    (row,) = driver.engine.session_stats("s").subscriptions
    assert (row.matched, row.delivered) == (0, 0)
