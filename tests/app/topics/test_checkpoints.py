"""Checkpoints: a start after one finds what was there, and the journal is no longer than asked for.

The gateways here are real and talked to over HTTP; a crash is a copy of the folder as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateways import Running, running_gateway
from tests.support.place import Place
from tidegate.app.refusals import Unavailable
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.sqlite import SqliteStore
from tidegate.app.stores.store import Checkpoint, TopicRecord
from tidegate.app.topics.checkpoints import Checkpoints, checkpoint_of
from tidegate.conflation.frame import RemovalReason, RestoredTopic


class Shelf(MemoryStore):
    """Wants checkpoints, and remembers them."""

    checkpoints = True

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, Checkpoint]] = []
        self.is_out = False
        self.at_once = self.at_once_max = 0

    async def checkpoint(self, topic: str, checkpoint: Checkpoint) -> None:
        if self.is_out:
            raise Unavailable("out")
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        await asyncio.sleep(0)
        self.at_once -= 1
        self.made.append((topic, checkpoint))


async def placed() -> tuple[Shelf, Place, Checkpoints]:
    store = Shelf()
    place = Place(store)
    await place.put("px", key=["/k"])
    await place.put("plain")
    return store, place, Checkpoints(store, place.catalog, place.driver)


async def test_each_brings_what_has_changed_since_the_last() -> None:
    store, place, checkpoints = await placed()
    await place.say("px", {"k": 1}, {"k": 2}, {"k": 1})
    await checkpoints.write()
    await checkpoints.write()
    await place.say("px", {"k": 3})
    await place.writer.remove(place.catalog.get("px"), place.live("px")[:1], RemovalReason.DELETED)
    await checkpoints.write()
    changes = [[(it.key, it.removed) for it in made.changes] for _, made in store.made]
    assert changes == [[("[2]", False), ("[1]", False)], [("[3]", False), ("[2]", True)]]
    assert [made.through for _, made in store.made] == [3, 5]


async def test_a_topic_without_records_tells_where_its_journal_begins() -> None:
    store, place, checkpoints = await placed()
    await place.put("plain", history={"messages": 2})
    await place.say("plain", 1, 2, 3)
    await checkpoints.write()
    ((name, made),) = store.made
    assert (name, list(made.changes), made.through, made.journal_through) == ("plain", [], 3, 1)


async def test_only_topics_with_so_many_messages_are_due() -> None:
    store, place, checkpoints = await placed()
    await place.say("px", {"k": 1}, {"k": 2})
    await place.say("plain", 1)
    await checkpoints.write(2)
    assert [name for name, _ in store.made] == ["px"]


async def test_many_topics_share_commits() -> None:
    store, place, checkpoints = await placed()
    for number in range(250):
        await place.put(f"t{number}")
        await place.say(f"t{number}", 1)
    await checkpoints.write()
    assert len({name for name, _ in store.made}) == len(store.made) == 250
    assert store.at_once_max == 100


async def test_while_the_store_is_out_nothing_is_taken_for_written() -> None:
    store, place, checkpoints = await placed()
    await place.say("px", {"k": 1})
    store.is_out = True
    await checkpoints.write()
    assert place.catalog.get("px").checkpoint_offset == 0
    store.is_out = False
    await checkpoints.write()
    assert [made.through for _, made in store.made] == [1]


async def test_a_topic_made_anew_begins_anew() -> None:
    store, place, checkpoints = await placed()
    await place.say("px", {"k": 1})
    await checkpoints.write()
    await place.catalog.delete("px")
    await place.put("px", key=["/k"])
    await place.say("px", {"k": 2})
    await checkpoints.write()
    first, second = (made for _, made in store.made)
    assert first.epoch != second.epoch
    assert [it.key for it in second.changes] == ["[2]"]


async def test_a_topic_that_begins_again_meanwhile_is_written_from_there() -> None:
    store, place, checkpoints = await placed()
    await place.say("px", {"k": 1}, {"k": 2})
    entry, journal = place.catalog.get("px"), place.live("px")
    writing = asyncio.create_task(checkpoints.write())
    while not store.at_once:  # the store is just writing
        await asyncio.sleep(0)
    renewed = TopicRecord("px", entry.document, "e2")
    place.catalog.renew(renewed, RestoredTopic(2, journal=journal))
    await writing
    assert entry.checkpoint_offset == 0
    await checkpoints.write()
    assert [(made.epoch, len(made.changes)) for _, made in store.made][1:] == [("e2", 2)]


async def test_what_has_left_is_not_forgotten_before_it_was_written() -> None:
    _, place, checkpoints = await placed()
    await place.say("px", {"k": 1})
    await checkpoints.write()
    feed = place.driver.engine.topic("px").sow
    assert feed is not None
    count = 12_000
    await place.say("px", *({"k": k} for k in range(2, count)))
    await place.writer.remove(place.catalog.get("px"), place.live("px"), RemovalReason.DELETED)
    assert feed.board.horizon <= 1
    made = checkpoint_of(place.driver.engine.topic("px"), 1)
    assert sum(it.removed for it in made.changes) == count - 1


# Over a restart


@contextlib.asynccontextmanager
async def gateway(folder: Path, **given: Any) -> AsyncIterator[Running]:
    async with running_gateway(data=str(folder), **given) as running:
        yield running


async def spoken(running: Running, *, checkpointed: bool) -> None:
    """Records that came, changed and went, half of them before a checkpoint."""
    await running.topic(history={"messages": 6})
    await running.publish({"k": "a", "v": 1}, {"k": "b", "v": 1}, {"k": "c", "v": 1})
    await running.publish({"k": "d", "v": 1}, headers={"Tidegate-Conflate": "never"})
    await removed(running, "c")
    if checkpointed:
        await running.gateway.checkpoints.write()
    await running.publish({"k": "b", "v": 2}, {"k": "e", "v": 1})
    await removed(running, "a")
    await running.topic("plain", ())
    await running.publish(1, 2, 3, topic="plain")


async def removed(running: Running, name: str) -> None:
    path = "/v1/topics/px/sow"
    answer = await running.http.delete(path, params={"key": json.dumps([name])})
    assert answer.json() == {"deleted": 1}


async def seen(running: Running) -> dict[str, str]:
    """Everything about the topics that can be asked for."""
    paths = [
        "px/sow?format=envelope", "px/messages", "plain/messages", "px/messages?limit=2", "px",
    ]  # fmt: skip
    answers = {path: await running.http.get(f"/v1/topics/{path}") for path in paths}
    assert {answer.status_code for answer in answers.values()} == {200}
    texts = {path: answer.text for path, answer in answers.items() if path != "px"}
    return {**texts, "etag": answers["px"].headers["etag"]}


async def resumed(running: Running, options: str, position: int) -> list[tuple[str, Any]]:
    """How a subscriber goes on that saw everything up to a position."""
    epoch = running.gateway.driver.engine.topic("px").epoch
    async with running.subscribe(options, last_id=f"{epoch}-{position}", format="envelope") as back:
        await running.publish({"k": "z"})
        events = []
        while True:
            event = await back.next()
            if event.name == "hello":
                continue
            document = json.loads(event.text)
            if event.name == "message" and document["value"] == {"k": "z"}:
                break
            document.pop("sub", None)
            events.append((event.name, document))
    await removed(running, "z")
    return events


WAYS = [
    ("conflation=50ms,oof", 4, "changes"),
    ("conflation=50ms", 4, "changes"),
    ("conflation=none,oof", 4, "replay"),
    ("conflation=none", 1, "snapshot"),
]


@pytest.mark.parametrize("checkpointed", [False, True], ids=["journal", "checkpoint"])
@pytest.mark.parametrize("crashed", [False, True], ids=["ended", "crashed"])
async def test_everything_is_there_after_a_restart(
    tmp_path: Path, *, checkpointed: bool, crashed: bool
) -> None:
    folder, copy = tmp_path / "one", tmp_path / "two"
    async with gateway(folder) as running:
        await spoken(running, checkpointed=checkpointed)
        before = await seen(running)
        if crashed:
            shutil.copytree(folder, copy)
    async with gateway(copy if crashed else folder) as running:
        assert await seen(running) == before
        await running.publish({"k": "f"})
        assert running.gateway.driver.engine.topic("px").head == 9


@pytest.mark.parametrize(("options", "position", "mode"), WAYS)
async def test_a_bookmark_of_before_is_continued_as_without_the_restart(
    tmp_path: Path, options: str, position: int, mode: str
) -> None:
    folder, copy = tmp_path / "one", tmp_path / "two"
    async with gateway(folder) as running:
        await spoken(running, checkpointed=True)
        shutil.copytree(folder, copy)
        resumes = [await resumed(running, options, position)]
    async with gateway(copy) as running:
        resumes.append(await resumed(running, options, position))
    modes = [next(doc["mode"] for name, doc in it if name == "resumed") for it in resumes]
    assert modes == [mode, mode]
    assert resumes[0] == resumes[1]


async def test_records_expire_as_if_there_had_been_no_restart(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        await running.topic(expiration="1h")
        await running.publish({"k": 1})
    store = SqliteStore(tmp_path)
    place = Place(store)
    place.driver.wall_ms = lambda: 1 << 62  # the far future
    await store.open()
    await place.catalog.open()
    assert (place.driver.engine.next_deadline() or 0) <= place.driver.now()
    await store.aclose()


async def test_own_topics_begin_anew(tmp_path: Path) -> None:
    epochs = []
    for _ in range(2):
        async with gateway(tmp_path) as running:
            topic = running.gateway.driver.engine.topic("tidegate.sessions")
            epochs.append((topic.epoch, topic.head))
    assert epochs[0][0] != epochs[1][0]
    assert epochs[1][1] == 0


async def test_a_whole_round_is_noted_and_one_that_failed_is_not() -> None:
    store, place, checkpoints = await placed()
    noted: list[int | None] = []
    await place.say("px", {"k": 1})
    for messages_min, is_out in ((50_000, False), (1, True), (1, False)):
        store.is_out = is_out
        await checkpoints.write(messages_min)
        noted.append(place.driver.figures.checkpointed_ms)
    assert noted[:2] == [None, None]
    assert noted[2] is not None
