"""Topics: made, replaced, refused, deleted; each change whole or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.place import Place, parsed
from tests.support.rules import rule
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.refusals import Refused, Unavailable
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.store import TopicRecord
from tidegate.app.topics.registry import Precondition
from tidegate.conflation.errors import TopicUnknown


class SlowStore(MemoryStore):
    """A store that lets others run before a topic is stored, as one with a disk does."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def put_topic(self, record: TopicRecord, mark: str = "") -> None:
        self.asked.set()
        await self.go_on.wait()
        await super().put_topic(record, mark)


def refused(code: str, pointer: str | None = None) -> pytest.RaisesExc[Refused]:
    def fits(problem: Refused) -> bool:
        return (problem.code, problem.pointer) == (code, pointer)

    return pytest.RaisesExc(Refused, check=fits)


def spark(topic: str) -> dict[str, object]:
    return {"topic": topic, "interval": "1s", "engine": "spark"}


async def test_a_topic_is_made_once_and_found() -> None:
    place = Place()
    entry, is_new = await place.put("px", key=["/k"])
    assert is_new
    assert place.catalog.get("px") is place.catalog.find("px") is entry
    assert place.driver.engine.topic("px").definition.key_spec == entry.document.key_spec


@rule("cluster-7")
async def test_a_definition_that_changes_nothing_is_refused_while_the_store_is_out() -> None:
    """Another gateway may have deleted the topic."""
    place = Place()
    entry, _ = await place.put("px", key=["/k"])

    async def out() -> None:
        raise Unavailable

    place.catalog.catch_up = out
    with refused("bus-unavailable"):
        await place.put("px", key=["/k"])
    with refused("bus-unavailable"):
        await place.catalog.patch("px", lambda document: document, Precondition())
    again, is_new = await place.put("px", key=["/k"], description="d")
    assert (again, is_new, entry.document.description) == (entry, False, "d")


async def test_the_same_definition_twice_changes_nothing() -> None:
    place = Place()
    entry, _ = await place.put("px", key=["/k"])
    record = entry.record
    again, is_new = await place.put("px", key=["$.k"], description="")
    assert (again, is_new) == (entry, False)
    assert again.record is record


async def test_another_definition_keeps_messages_and_epoch() -> None:
    place = Place()
    entry, _ = await place.put("px", key=["/k"])
    await place.say("px", {"k": 1})
    epoch, etag = entry.record.epoch, entry.etag
    replaced, is_new = await place.put("px", key=["/k"], conflation="off", description="d")
    assert not is_new
    assert replaced.record.epoch == epoch
    assert replaced.etag != etag
    assert place.driver.engine.topic("px").head == 1
    assert place.driver.engine.topic("px").definition.policy == "off"
    kept = [record for record in await place.store.records() if isinstance(record, TopicRecord)]
    assert [record.document for record in kept] == [replaced.document]


async def test_a_key_changes_while_there_are_no_messages() -> None:
    place = Place()
    before, _ = await place.put("px", key=["/k"])
    after, _ = await place.put("px", key=["/other"])
    assert after.record.epoch != before.record.epoch
    await place.say("px", {"other": 1})
    topic = place.driver.engine.topic("px")
    assert topic.epoch == after.record.epoch
    assert topic.sow is not None
    assert topic.sow.board.get("[1]") is not None


async def test_a_key_stays_once_there_are_messages() -> None:
    place = Place()
    await place.put("px", key=["/k"])
    await place.say("px", {"k": 1})
    with refused("topic-conflict", "/key"):
        await place.put("px", key=["/other"])
    assert place.catalog.get("px").document == parsed(key=["/k"])


async def test_a_key_changes_also_when_there_is_no_room_for_another_topic() -> None:
    place = Place(topics_max=1)
    await place.put("px", key=["/k"])
    await place.put("px", key=["/other"])
    await place.say("px", {"other": 1})
    assert place.catalog.get("px").document == parsed(key=["/other"])


async def test_there_are_only_so_many_topics() -> None:
    place = Place(topics_max=1)
    await place.put("a")
    with refused("limit-reached") as error:
        await place.put("b")
    assert error.value.retry_after_s
    await place.catalog.delete("a")
    await place.put("b")


async def test_an_unknown_topic_is_a_problem() -> None:
    place = Place()
    assert place.catalog.find("px") is None
    with refused("topic-unknown"):
        place.catalog.get("px")
    with refused("topic-unknown"):
        await place.catalog.delete("px")


@rule("topic-3")
@pytest.mark.parametrize(
    ("other", "pointer"), [({"type": "series"}, "/type"), ({"retain": True}, "/retain")]
)
async def test_type_and_retain_stay_once_there_are_messages(
    other: dict[str, Any], pointer: str
) -> None:
    place = Place()
    await place.put("px")
    await place.say("px", 1)
    with refused("topic-conflict", pointer):
        await place.put("px", **other)
    await place.put("empty")
    assert not (await place.put("empty", **other))[1]


@rule("topic-3")
async def test_what_another_is_filled_from_keeps_its_key() -> None:
    place = Place()
    await place.put("px", key=["/k"])
    await place.put("slow", source=spark("px"))
    with refused("topic-in-use", "/key"):
        await place.put("px", key=["/other"])
    await place.put("px", key=["/k"], description="new")


async def test_a_part_of_a_definition_is_changed_as_it_is_just_then() -> None:
    place = Place()
    entry, _ = await place.put("px", key=["/k"])

    def described(document: TopicDefinition) -> TopicDefinition:
        return document.model_copy(update={"description": document.description + "d"})

    for _ in range(2):
        await place.catalog.patch("px", described, Precondition(wanted=[entry.etag]))
    assert place.catalog.get("px").document == parsed(key=["/k"], description="dd")
    with refused("precondition-failed"):
        await place.catalog.patch("px", described, Precondition(wanted=['"other"']))
    with refused("topic-unknown"):
        await place.catalog.patch("zzq", described, Precondition())


async def test_a_source_must_be_there_and_must_not_come_back_to_the_topic() -> None:
    place = Place()
    with refused("topic-unknown", "/source/topic"):
        await place.put("slow", source=spark("px"))
    with refused("source-cycle", "/source/topic"):
        await place.put("px", source=spark("px"))
    await place.put("px", key=["/k"])
    await place.put("slow", source=spark("px"))
    await place.put("slower", source=spark("slow"))
    with refused("source-cycle", "/source/topic"):
        await place.put("px", source=spark("slower"))
    assert place.catalog.get("px").document.source is None


async def test_a_source_stays_while_it_is_in_use() -> None:
    place = Place()
    await place.put("px", key=["/k"])
    await place.put("slow", source=spark("px"))
    with refused("topic-in-use"):
        await place.catalog.delete("px")
    await place.catalog.delete("slow")
    await place.catalog.delete("px")
    with pytest.raises(TopicUnknown):
        place.driver.engine.topic("px")
    assert list(await place.store.records()) == []


async def test_a_topic_made_again_has_a_new_epoch() -> None:
    place = Place()
    first, _ = await place.put("px")
    await place.catalog.delete("px")
    second, is_new = await place.put("px")
    assert is_new
    assert second.record.epoch != first.record.epoch
    assert second.etag != first.etag


async def test_a_deleted_topic_is_remembered_by_its_epoch() -> None:
    place = Place()
    entry, _ = await place.put("px")
    assert not place.catalog.has_ended(entry.record.epoch)
    await place.catalog.delete("px")
    assert place.catalog.has_ended(entry.record.epoch)


async def test_a_change_wants_the_definition_that_it_names() -> None:
    place = Place()
    with refused("precondition-failed"):
        await place.put("px", Precondition(wanted=["*"]))
    entry, _ = await place.put("px")
    stale = entry.etag
    await place.put("px", Precondition(wanted=['"other"', stale]), description="1")
    with refused("precondition-failed"):
        await place.put("px", Precondition(wanted=[stale]), description="2")
    with refused("precondition-failed"):
        await place.catalog.delete("px", Precondition(wanted=[stale]))
    assert entry.document.description == "1"
    await place.put("px", Precondition(wanted=["*"]), description="3")
    await place.catalog.delete("px", Precondition(wanted=[entry.etag]))


async def test_a_change_that_wants_none_makes_and_never_replaces() -> None:
    place = Place()
    await place.put("px", Precondition(unwanted=["*"]))
    with refused("precondition-failed"):
        await place.put("px", Precondition(unwanted=["*"]), description="2")
    assert place.catalog.get("px").document == parsed()


async def test_plain_topics_are_made_for_publishers_where_allowed() -> None:
    entry = await Place().catalog.get_or_create("px")
    assert entry.document == parsed()
    with refused("topic-unknown"):
        await Place(auto_create_topics=False).catalog.get_or_create("px")


async def test_a_publisher_takes_a_definition_that_is_just_being_made() -> None:
    store = SlowStore()
    place = Place(store)
    making = asyncio.create_task(place.put("px", key=["/k"]))
    await store.asked.wait()
    publishing = asyncio.create_task(place.catalog.get_or_create("px"))
    await asyncio.sleep(0)  # it has asked for the topic, which is not there yet
    store.go_on.set()
    await making
    assert (await publishing).document == parsed(key=["/k"])


async def test_topics_are_listed_by_name() -> None:
    place = Place()
    for name in ("b", "a.2", "a.1", "c"):
        await place.put(name)

    def listed(prefix: str, after: str, limit: int) -> list[str]:
        return [entry.record.name for entry in place.catalog.listed(prefix, after, limit)]

    assert listed("", "", 10) == ["a.1", "a.2", "b", "c"]
    assert listed("a.", "", 10) == ["a.1", "a.2"]
    assert listed("", "a.2", 1) == ["b"]


async def test_listeners_hear_of_each_new_topic() -> None:
    place, heard = Place(), list[str]()
    await place.put("before")
    place.catalog.listen(heard.append)
    await place.put("px")
    await place.put("px", key=["/k"])  # another key is another topic
    await place.put("px", key=["/k"], description="the same topic")
    await place.catalog.get_or_create("auto")
    place.catalog.unlisten(heard.append)
    await place.put("after")
    assert heard == ["px", "px", "auto"]


async def test_what_the_store_has_is_taken_over() -> None:
    store = MemoryStore()
    await store.put_topic(TopicRecord("px", parsed(key=["/k"]), "e7"))
    place = Place(store)
    await place.catalog.open()
    assert place.catalog.get("px").record.epoch == "e7"
    assert place.driver.engine.topic("px").epoch == "e7"
