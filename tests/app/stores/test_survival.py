"""What a store that survives the process must restore, however the process ended.

A crash is a copy of all files, taken while the store is open.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.refusals import Refused
from tidegate.app.stores.items import Item, Message, Removal
from tidegate.app.stores.sqlite import SqliteStore
from tidegate.app.stores.store import (
    Appended,
    Checkpoint,
    Fill,
    Producer,
    Publication,
    Retry,
    Store,
    TopicRecord,
)
from tidegate.conflation.frame import Frame, RemovalReason, RestoredTopic, Tombstone

Again = Callable[[], AbstractAsyncContextManager[Store]]

NOW_MS = 1_700_000_000_000
KEYED = TopicRecord("px", TopicDefinition.parse(b'{"key":["/k"],"description":"d"}'), "e1")
PLAIN = TopicRecord("plain", TopicDefinition(), "e2")
RETRY = Retry("r", b"digest")
NOTHING = RestoredTopic(records=[], journal=[])


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Store]:
    store = SqliteStore(folder)
    await store.open()
    try:
        yield store
    finally:
        await store.aclose()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(tmp_path / "store") as made:
        await made.put_topic(KEYED)
        await made.put_topic(PLAIN)
        yield made


@pytest.fixture(params=["ended", "crashed"])
def again(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> Again:
    """The store as another process finds it."""

    @asynccontextmanager
    async def after() -> AsyncIterator[Store]:
        folder = tmp_path / "store"
        if request.param == "crashed":
            folder = shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True)
        else:
            await store.aclose()
        async with opened(folder) as made:
            yield made

    return after


async def append(
    store: Store,
    items: Sequence[Item],
    producer: Producer | None = None,
    *,
    topic: str = "px",
    at_ms: int = NOW_MS,
) -> Appended:
    return await store.append(topic, Publication(items, at_ms, producer))


def checkpoint(through: int, changes: Sequence[Frame] = (), **more: int) -> Checkpoint:
    return Checkpoint(
        "e1", changes, through, **{"journal_through": 0, "horizon": 0, **more}
    )  # fmt: skip


ITEMS: list[Item] = [
    Message(b"1", "[1]"), Message(b"2", "[2]", exempt=True),
    Removal("[1]", RemovalReason.EXPIRED, b"1"),
]  # fmt: skip
FRAMES = [
    Frame(1, b"1", "[1]", NOW_MS),
    Frame(2, b"2", "[2]", NOW_MS, exempt=True),
    Tombstone(3, b"1", "[1]", NOW_MS, reason=RemovalReason.EXPIRED),
]
GONE = Tombstone(
    3, b"1", "[1]", NOW_MS, reason=RemovalReason.EXPIRED, put_offset=1, put_ms=NOW_MS
)  # fmt: skip


async def test_definitions_are_there(again: Again) -> None:
    async with again() as later:
        assert list(await later.records()) == [KEYED, PLAIN]
        assert await later.load("px") == NOTHING


async def test_the_journal_is_there_with_all_that_a_message_has(store: Store, again: Again) -> None:
    assert await append(store, ITEMS) == Appended(1, 3)
    await append(store, [Message(b"4")], topic="plain")
    async with again() as later:
        assert await later.load("px") == RestoredTopic(3, [], 0, FRAMES)
        assert [it.payload for it in (await later.load("plain")).journal] == [b"4"]
        assert await append(later, [Message(b"5", "[5]")]) == Appended(4, 4)


async def test_records_and_removals_are_those_of_the_checkpoint(store: Store, again: Again) -> None:
    await append(store, ITEMS)
    await store.checkpoint("px", checkpoint(3, [FRAMES[1], GONE], exempt_through=1))
    await append(store, [Message(b"3", "[3]")], at_ms=NOW_MS + 1)
    async with again() as later:
        kept = await later.load("px")
        assert list(kept.records) == [FRAMES[1], GONE]
        assert (kept.head, kept.through, kept.exempt_through) == (4, 3, 1)
        assert kept.journal == [*FRAMES, Frame(4, b"3", "[3]", NOW_MS + 1)]


async def test_a_checkpoint_goes_on_from_the_one_before(store: Store, again: Again) -> None:
    await append(store, ITEMS)
    await store.checkpoint("px", checkpoint(3, [FRAMES[1], GONE]))
    await append(store, [Message(b"3", "[2]")])
    changed = Frame(4, b"3", "[2]", NOW_MS)
    await store.checkpoint("px", checkpoint(4, [changed]))
    async with again() as later:
        assert list((await later.load("px")).records) == [GONE, changed]


async def test_tombstones_behind_the_horizon_are_forgotten(store: Store, again: Again) -> None:
    await append(store, ITEMS)
    await store.checkpoint("px", checkpoint(3, [FRAMES[1], GONE]))
    await store.checkpoint("px", checkpoint(3, horizon=3))
    async with again() as later:
        kept = await later.load("px")
        assert (list(kept.records), kept.horizon) == ([FRAMES[1]], 3)


async def test_only_what_nobody_asks_for_leaves_the_journal(store: Store, again: Again) -> None:
    for number in range(4):
        await append(store, [Message(b"%d" % number, "[1]")] * 10)
    await store.checkpoint("px", checkpoint(25, journal_through=40))
    assert [it.offset for it in (await store.load("px")).journal] == list(range(21, 41))
    await store.checkpoint("px", checkpoint(40, journal_through=15))
    assert (await store.load("px")).dropped_through == 20
    await store.checkpoint("px", checkpoint(40, journal_through=40))
    async with again() as later:
        kept = await later.load("px")
        assert (kept.head, list(kept.journal), kept.dropped_through) == (40, [], 40)
        assert await append(later, [Message(b"4", "[1]")]) == Appended(41, 41)


async def test_a_checkpoint_of_a_topic_that_was_made_anew_is_nothing(
    store: Store, again: Again
) -> None:
    await append(store, ITEMS)
    await store.put_topic(TopicRecord("px", KEYED.document, "e3"))
    await store.checkpoint("px", checkpoint(3, FRAMES[:2]))
    await store.delete_topic("plain")
    await store.checkpoint("plain", checkpoint(3, FRAMES[:2]))
    async with again() as later:
        assert await later.load("px") == NOTHING
        assert [record.name for record in await later.records()] == ["px"]


async def test_producers_are_known(store: Store, again: Again) -> None:
    await append(store, [Message(b"1")], Producer("p", 5, run=2))
    async with again() as later:
        assert (await append(later, [Message(b"1")], Producer("p", 5, run=2))).duplicate
        with pytest.raises(Refused, match="producer-fenced"):
            await append(later, [Message(b"1")], Producer("p", 6, run=1))
        assert await append(later, [Message(b"2")], Producer("p", 6, run=2)) == Appended(2, 2)


async def test_a_producer_whose_number_came_without_items_is_known(
    store: Store, again: Again
) -> None:
    await append(store, [], Producer("p", 5, run=2))
    async with again() as later:
        assert (await append(later, [Message(b"1")], Producer("p", 5, run=2))).duplicate
        assert await append(later, [Message(b"1")], Producer("p", 6, run=2)) == Appended(1, 1)


async def test_retries_are_known(store: Store, again: Again) -> None:
    asked = Publication([Message(b"1")], NOW_MS, retry=RETRY)
    assert await store.append("px", asked) == Appended(1, 1)
    async with again() as later:
        assert await later.append("px", asked) == Appended(1, 1, duplicate=True)


async def test_stages_wait(store: Store, again: Again) -> None:
    await store.stage("px", "s", ITEMS, NOW_MS)
    async with again() as later:
        staged = await later.staged("px", ["s"], NOW_MS)
        assert staged is not None
        assert staged.items == ITEMS
        published = Publication(ITEMS, NOW_MS, stages=staged.stages)
        assert await later.append("px", published) == Appended(1, 3)
        assert await later.staged("px", ["s"], NOW_MS) is None


async def test_what_is_deleted_stays_deleted(store: Store, again: Again) -> None:
    await append(store, ITEMS)
    await store.checkpoint("px", checkpoint(3, FRAMES[:2]))
    await store.stage("px", "s", ITEMS, NOW_MS)
    await store.delete_topic("px")
    async with again() as later:
        await later.put_topic(KEYED)
        assert await later.load("px") == NOTHING
        assert await later.staged("px", ["s"], NOW_MS) is None


async def test_how_far_a_derived_topic_is_filled(store: Store, again: Again) -> None:
    await store.append("px", Publication([Message(b"1", "[1]")], NOW_MS, fill=Fill("", "m1")))
    async with again() as later:
        assert await later.filled("px") == "m1"
