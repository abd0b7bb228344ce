"""What every store must do. A store that survives the process joins `STORES`."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.buses import BusServer
from tests.support.rules import rule
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.definitions import Definitions
from tidegate.app.cluster.redis_store import RedisStore
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.refusals import Refused
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.items import Item, Message, Removal
from tidegate.app.stores.memory import STAGE_MS, MemoryStore
from tidegate.app.stores.sqlite import SqliteStore
from tidegate.app.stores.store import (
    Appended,
    Bounds,
    Fill,
    HeadMoved,
    Producer,
    Publication,
    Retry,
    Staged,
    Store,
    TopicRecord,
)
from tidegate.conflation.frame import RemovalReason

STORES: dict[str, Callable[[pytest.FixtureRequest, Settings], Store]] = {
    "memory": lambda _, settings: MemoryStore(Bounds.of(settings)),
    "sqlite": lambda request, settings: SqliteStore(
        request.getfixturevalue("tmp_path"), limits=Bounds.of(settings)
    ),
    "redis": lambda request, settings: on_bus("redis_bus", request, settings),
    "valkey": lambda request, settings: on_bus("valkey_bus", request, settings),
}
"""A store by its name, empty at first."""
EACH_STORE = [
    "memory",
    "sqlite",
    pytest.param("redis", marks=pytest.mark.redis),
    pytest.param("valkey", marks=[pytest.mark.redis, pytest.mark.nightly]),
]
PLAIN = TopicDefinition()
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
STORE_NUMBERS = itertools.count()


def on_bus(fixture: str, request: pytest.FixtureRequest, settings: Settings) -> Store:
    server: BusServer = request.getfixturevalue(fixture)
    connection = BusConnection(server.url, f"store-{next(STORE_NUMBERS)}")
    return RedisStore(connection, settings, Definitions(connection, Mergers()))


async def append(
    store: Store, topic: str, items: Sequence[Item], producer: Producer | None = None
) -> Appended:
    return await store.append(topic, Publication(items, NOW_MS, producer))


async def items_of(store: Store, *stages: str, at_ms: int = NOW_MS) -> list[Item]:
    staged = await store.staged("a", stages, at_ms)
    assert staged is not None
    return staged.items


@pytest.fixture(params=EACH_STORE)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    made = STORES[request.param](request, Settings())
    await made.open()
    yield made
    await made.aclose()


@pytest.fixture(params=EACH_STORE)
async def narrow(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store in which there is little room for what is known of senders."""
    settings = Settings(stages_max=2, staged_bytes_max=1_024, retry_keys_max=2, producers_max=2)
    made = STORES[request.param](request, settings)
    await made.open()
    await made.put_topic(TopicRecord("a", PLAIN, "e1"))
    yield made
    await made.aclose()


async def test_a_new_store_is_empty(store: Store) -> None:
    assert list(await store.records()) == []


async def test_topics_are_kept_as_they_were_put(store: Store) -> None:
    first = TopicRecord("a", PLAIN, "e1")
    second = TopicRecord("b", TopicDefinition.parse(b'{"key":["/k"],"description":"d"}'), "e2")
    await store.put_topic(first)
    await store.put_topic(second)
    assert sorted(await store.records(), key=lambda record: record.name) == [first, second]


async def test_messages_are_numbered_from_one_without_holes(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    assert await append(store, "a", [Message(b"1"), Message(b"2")]) == Appended(1, 2)
    assert await append(store, "a", [Message(b"3")]) == Appended(3, 3)


async def test_a_removal_has_its_place_among_the_messages(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    items: list[Item] = [
        Message(b"1", "[1]"),
        Removal("[1]", RemovalReason.DELETED),
        Message(b"2", "[2]"),
    ]
    assert await append(store, "a", items) == Appended(1, 3)


async def test_each_topic_has_its_own_numbers(store: Store) -> None:
    for name in ("a", "b"):
        await store.put_topic(TopicRecord(name, PLAIN, "e1"))
        assert await append(store, name, [Message(b"1")]) == Appended(1, 1)


async def test_a_new_document_leaves_the_numbers_alone(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    await append(store, "a", [Message(b"1")], Producer("p", 4))
    described = TopicRecord("a", TopicDefinition(description="d"), "e1")
    await store.put_topic(described)
    assert list(await store.records()) == [described]
    assert await append(store, "a", [Message(b"2")]) == Appended(2, 2)
    assert (await append(store, "a", [Message(b"x")], Producer("p", 4))).duplicate


async def test_a_new_epoch_begins_at_one(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    await append(store, "a", [Message(b"1"), Message(b"2")], Producer("p", 1))
    await store.put_topic(TopicRecord("a", PLAIN, "e2"))
    assert await append(store, "a", [Message(b"1")], Producer("p", 1)) == Appended(1, 1)


async def test_a_deleted_topic_is_gone_with_its_messages_and_producers(store: Store) -> None:
    for name in ("a", "ab"):
        await store.put_topic(TopicRecord(name, PLAIN, "e1"))
        await append(store, name, [Message(b"1")], Producer("p", 1))
    await store.delete_topic("a")
    assert [record.name for record in await store.records()] == ["ab"]
    await store.put_topic(TopicRecord("a", PLAIN, "e2"))
    assert await append(store, "a", [Message(b"1")], Producer("p", 1)) == Appended(1, 1)
    assert (await append(store, "ab", [Message(b"1")], Producer("p", 1))).duplicate


async def test_a_number_not_above_the_highest_publishes_nothing(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    assert await append(store, "a", [Message(b"1")], Producer("p", 0)) == Appended(1, 1)
    assert await append(store, "a", [Message(b"2")], Producer("p", 7)) == Appended(2, 2)
    known = Appended(0, 0, duplicate=True, highest=7)
    for old in (7, 6, 0):
        assert await append(store, "a", [Message(b"x")], Producer("p", old)) == known
    assert await append(store, "a", [Message(b"3")], Producer("p", 8)) == Appended(3, 3)


@rule("publish-5")
async def test_a_number_of_no_items_counts_and_takes_no_offset(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    assert await append(store, "a", [], Producer("p", 3, run=2)) == Appended(1, 0)
    known = Appended(0, 0, duplicate=True, highest=3)
    assert await append(store, "a", [Message(b"x")], Producer("p", 3, run=2)) == known
    with pytest.raises(Refused, match="producer-fenced"):
        await append(store, "a", [Message(b"x")], Producer("p", 4, run=1))
    assert await append(store, "a", [Message(b"1")], Producer("p", 4, run=2)) == Appended(1, 1)
    assert await append(store, "a", [], Producer("p", 5, run=2)) == Appended(2, 1)
    assert await append(store, "a", [Message(b"2")], Producer("p", 6, run=2)) == Appended(2, 2)


@rule("publish-5")
@pytest.mark.parametrize("highest", [2**53, 2**63 - 2, 9, 99])
async def test_numbers_are_compared_exactly(store: Store, highest: int) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    await append(store, "a", [Message(b"1")], Producer("p", highest, run=highest))
    known = Appended(0, 0, duplicate=True, highest=highest)
    for again in (highest, highest - 1):
        assert await append(store, "a", [Message(b"x")], Producer("p", again, highest)) == known
    assert not (
        await append(store, "a", [Message(b"2")], Producer("p", highest + 1, highest))
    ).duplicate
    with pytest.raises(Refused, match="producer-fenced"):
        await append(store, "a", [Message(b"x")], Producer("p", highest + 1, highest - 1))
    assert (await append(store, "a", [Message(b"3")], Producer("p", 1, highest + 1))).duplicate
    with pytest.raises(Refused, match="producer-fenced"):
        await append(store, "a", [Message(b"x")], Producer("p", highest + 1, highest))


async def test_producers_count_for_themselves_in_each_topic(store: Store) -> None:
    for name in ("a", "b"):
        await store.put_topic(TopicRecord(name, PLAIN, "e1"))
    await append(store, "a", [Message(b"1")], Producer("p", 9))
    assert not (await append(store, "a", [Message(b"2")], Producer("q", 1))).duplicate
    assert not (await append(store, "b", [Message(b"1")], Producer("p", 1))).duplicate


async def test_a_retry_is_told_what_the_first_was_told(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    await append(store, "a", [Message(b"0")])
    for duplicate in (False, True, True):
        asked = Publication([Message(b"1"), Message(b"2")], NOW_MS, retry=Retry("r", b"digest"))
        assert await store.append("a", asked) == Appended(2, 3, duplicate=duplicate)
    assert await append(store, "a", [Message(b"3")]) == Appended(4, 4)


async def test_a_retry_that_asks_for_something_else_is_refused(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    await store.append("a", Publication([Message(b"1")], NOW_MS, retry=Retry("r", b"one")))
    with pytest.raises(Refused, match="idempotency-conflict"):
        await store.append("a", Publication([Message(b"2")], NOW_MS, retry=Retry("r", b"two")))
    assert await append(store, "a", [Message(b"3")]) == Appended(2, 2)


async def test_a_day_later_it_is_another_request(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    for number, at_ms in enumerate((NOW_MS, NOW_MS + DAY_MS), 1):
        asked = Publication([Message(b"1")], at_ms, retry=Retry("r", b"digest"))
        assert await store.append("a", asked) == Appended(number, number)


async def test_what_an_older_run_sends_is_refused(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    assert await append(store, "a", [Message(b"1")], Producer("p", 5, run=1)) == Appended(1, 1)
    assert (await append(store, "a", [Message(b"1")], Producer("p", 5, run=2))).duplicate
    with pytest.raises(Refused, match="producer-fenced"):
        await append(store, "a", [Message(b"2")], Producer("p", 6, run=1))
    assert await append(store, "a", [Message(b"2")], Producer("p", 6, run=2)) == Appended(2, 2)


async def test_stages_wait_aside_and_are_read_in_any_order(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    gone = Removal("[1]", RemovalReason.DELETED)
    await store.stage("a", "s1", [Message(b"old")], NOW_MS)
    await store.stage("a", "s1", [Message(b"1", "[1]", exempt=True)], NOW_MS)
    await store.stage("a", "s2", [gone], NOW_MS)
    assert await items_of(store, "s2", "s1") == [gone, Message(b"1", "[1]", True)]
    assert await store.staged("a", ["s1", "s3"], NOW_MS) is None
    items, stages = await store.staged("a", ["s1"], NOW_MS) or Staged([], {})
    assert await store.append("a", Publication(items, NOW_MS, stages=stages)) == Appended(1, 1)
    assert await store.staged("a", ["s1"], NOW_MS) is None
    assert await items_of(store, "s2") == [gone]


async def test_a_stage_waits_for_an_hour(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    await store.stage("a", "s", [Message(b"1")], NOW_MS)
    assert await items_of(store, "s", at_ms=NOW_MS + HOUR_MS - 1) == [Message(b"1")]
    assert await store.staged("a", ["s"], NOW_MS + HOUR_MS) is None


async def test_it_is_written_only_behind_the_head_that_was_looked_at(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    asked = Publication([Message(b"1")], NOW_MS, expected_head=0)
    with pytest.raises(HeadMoved):
        await store.append("a", replace(asked, epoch="e0"))
    assert await store.append("a", replace(asked, epoch="e1")) == Appended(1, 1)
    with pytest.raises(HeadMoved):
        await store.append("a", asked)
    assert await append(store, "a", [Message(b"2")]) == Appended(2, 2)


async def test_a_derived_topic_goes_from_mark_to_mark_once(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    assert await store.filled("a") == ""
    await store.append("a", Publication([], NOW_MS, fill=Fill("", "m1")))
    asked = Publication([Message(b"1")], NOW_MS, fill=Fill("m1", "m2"))
    assert await store.append("a", asked) == Appended(1, 1)
    for fill in (Fill("m1", "m2"), Fill("m1", "late"), Fill("", "later")):
        with pytest.raises(HeadMoved):
            await store.append("a", replace(asked, fill=fill))
    assert await append(store, "a", [Message(b"2")]) == Appended(2, 2), "of no fill"
    await store.put_topic(TopicRecord("a", TopicDefinition(description="d"), "e1"))
    assert await store.filled("a") == "m2"
    await store.put_topic(TopicRecord("a", PLAIN, "e1"), "m3")
    assert await store.filled("a") == "m3"
    await store.put_topic(TopicRecord("a", PLAIN, "e2"))
    assert await store.filled("a") == "", "another topic of that name"
    await store.put_topic(TopicRecord("b", PLAIN, "e1"), "m1")
    assert await store.filled("b") == "m1"


async def test_what_was_refused_has_left_nothing_behind(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    moved = Publication(
        [Message(b"1")], NOW_MS, Producer("p", 1), Retry("r", b"digest"), expected_head=7
    )
    with pytest.raises(HeadMoved):
        await store.append("a", moved)
    again = Publication([Message(b"1")], NOW_MS, Producer("p", 1), Retry("r", b"digest"))
    assert await store.append("a", again) == Appended(1, 1)


async def test_a_number_that_is_known_leaves_the_stages(store: Store) -> None:
    """They may be new ones of the same names, for the next commit."""
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    await append(store, "a", [Message(b"1")], Producer("p", 1))
    await store.stage("a", "s", [Message(b"1")], NOW_MS)
    again = Publication([Message(b"1")], NOW_MS, Producer("p", 1), stages={"s": ""})
    assert (await store.append("a", again)).duplicate
    assert await items_of(store, "s") == [Message(b"1")]


async def test_what_is_known_is_known_wherever_the_head_is(store: Store) -> None:
    """An impossible head asks whether a request is known, and publishes nothing."""
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    for producer, retry in ((Producer("p", 1), None), (None, Retry("r", b"digest"))):
        asked = Publication([], NOW_MS, producer, retry, expected_head=-1)
        with pytest.raises(HeadMoved):
            await store.append("a", asked)
        await store.append("a", Publication([Message(b"1")], NOW_MS, producer, retry))
        assert (await store.append("a", asked)).duplicate
    assert await append(store, "a", [Message(b"3")]) == Appended(3, 3)


@rule("publish-6")
async def test_there_are_only_so_many_stages_and_bytes_in_them(narrow: Store) -> None:
    for name in ("s1", "s2", "s2"):  # the same again takes no more room
        await narrow.stage("a", name, [Message(b"x" * 300)], NOW_MS)
    with pytest.raises(Refused, match="limit-reached"):
        await narrow.stage("a", "s3", [Message(b"x")], NOW_MS)
    with pytest.raises(Refused, match="limit-reached"):
        await narrow.stage("a", "s2", [Message(b"x" * 800)], NOW_MS)
    assert await items_of(narrow, "s2") == [Message(b"x" * 300)], "it stays"
    used_up = {"s1": "", "s2": ""}
    await narrow.append("a", Publication([Message(b"1")], NOW_MS, stages=used_up))
    for name in ("s3", "s4"):
        await narrow.stage("a", name, [Message(b"x" * 300)], NOW_MS)
    later_ms = NOW_MS + HOUR_MS
    for name in ("s5", "s6"):  # what has waited for an hour takes no room
        await narrow.stage("a", name, [Message(b"x" * 300)], later_ms)
    with pytest.raises(Refused, match="limit-reached"):
        await narrow.stage("a", "s7", [Message(b"x")], later_ms)


@rule("publish-6")
async def test_there_are_only_so_many_requests_that_may_come_again(narrow: Store) -> None:
    async def ask(name: str, at_ms: int = NOW_MS) -> Appended:
        return await narrow.append(
            "a", Publication([Message(b"1")], at_ms, retry=Retry(name, b"d"))
        )

    for name in ("r1", "r2"):
        await ask(name)
    with pytest.raises(Refused, match="limit-reached"):
        await ask("r3")
    assert (await ask("r2")).duplicate
    assert (await append(narrow, "a", [Message(b"1")])).first == 3, "nothing was published"
    assert (await ask("r3", NOW_MS + DAY_MS + HOUR_MS)).first == 4


@rule("publish-6")
async def test_there_are_only_so_many_producers(narrow: Store) -> None:
    for number in range(1, 4):
        for name in ("p1", "p2"):
            await append(narrow, "a", [Message(b"1")], Producer(name, number))
    with pytest.raises(Refused, match="limit-reached"):
        await append(narrow, "a", [Message(b"1")], Producer("p3", 1))
    assert (await append(narrow, "a", [Message(b"1")], Producer("p1", 3))).duplicate
    assert (await append(narrow, "a", [Message(b"1")], Producer("p1", 4))).first == 7


@rule("cluster-5")
async def test_a_topic_that_was_seen_further_goes_on_in_another_epoch(store: Store) -> None:
    """With all that it has. A store without an earlier life has nothing to go back to."""
    await store.put_topic(TopicRecord("px", PLAIN, "e1"))
    await append(store, "px", [Message(b"1"), Message(b"2")])
    assert await store.confirm_epoch("px", 2) == "e1"
    epoch = await store.confirm_epoch("px", 3)
    assert (epoch != "e1") == store.survives_process
    if isinstance(store, SqliteStore):
        assert (await append(store, "px", [Message(b"3")])).last == 3
        assert [record.epoch for record in await store.records()] == [epoch]


@rule("publish-6")
async def test_stages_of_all_topics_share_their_bytes(tmp_path: Path) -> None:
    limits = Bounds(staged_bytes_max=1_000)
    stores: list[Store] = [MemoryStore(limits), SqliteStore(tmp_path, limits=limits)]
    for store in stores:
        await store.open()
        for name in ("a", "b"):
            await store.put_topic(TopicRecord(name, PLAIN, f"of-{name}"))
        half = [Message(b"x" * 600)]
        await store.stage("a", "one", half, 0)
        with pytest.raises(Refused, match="limit-reached"):
            await store.stage("b", "two", half, 0)
        # A stage makes room for itself, and one that is over for all.
        await store.stage("a", "one", half, 0)
        await store.stage("b", "two", half, STAGE_MS)
        await store.aclose()
