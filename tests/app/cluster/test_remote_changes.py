"""What others have made of their topics holds here, fillers included."""

from __future__ import annotations

import pytest

from tests.support.gateways import eventually
from tests.support.place import Place, parsed
from tests.support.rules import rule
from tidegate.app.definitions.topic import Unusable
from tidegate.app.refusals import Refused
from tidegate.app.stores.store import TopicRecord
from tidegate.conflation.frame import RestoredTopic


def record(name: str, epoch: str = "e1", **document: object) -> TopicRecord:
    return TopicRecord(name, parsed(**document), epoch)


SLOW = record("slow", key=["/k"], source={"topic": "px", "interval": "100ms"})


async def has_reason(place: Place, reason: str) -> None:
    """Wait until the topic is unfilled for this reason."""
    await eventually(lambda: place.catalog.filling.reasons == {"slow": reason}, reason)


async def test_a_topic_is_adopted_redefined_and_forgotten() -> None:
    place = Place()
    async with place.catalog.changing:
        place.catalog.add_stored(record("px", key=["/k"]), RestoredTopic())
        entry = place.catalog.get("px")
        await place.catalog.adopt_definition(entry, parsed(key=["/k"], description="d"))
        assert place.catalog.get("px") is entry
        assert (entry.document.description, entry.record.epoch) == ("d", "e1")
        await place.catalog.adopt_deletion(entry)
    assert place.catalog.find("px") is None
    assert place.catalog.has_ended("e1")


async def test_a_filled_topic_is_filled_by_who_has_the_duty() -> None:
    place = Place()
    await place.put("px", key=["/k"])
    await place.say("px", {"k": 1})
    await place.store.put_topic(SLOW)
    async with place.catalog.changing:
        place.catalog.add_stored(SLOW, RestoredTopic())
    await eventually(lambda: place.sow("slow") == [{"k": 1}], "it is filled")
    await place.derived_topics.aclose()


@rule("topic-16")
async def test_what_cannot_be_filled_yet_is_there_and_is_filled_as_soon_as_it_can_be() -> None:
    place = Place()
    await place.store.put_topic(SLOW)
    async with place.catalog.changing:
        place.catalog.add_stored(SLOW, RestoredTopic())
    assert place.catalog.get("slow").document == SLOW.document
    await has_reason(place, "its source px is not served here")
    await place.put("px", key=["/k"])
    await place.say("px", {"k": 1})
    await eventually(lambda: place.sow("slow") == [{"k": 1}], "it is filled")
    assert place.catalog.filling.reasons == {}
    await place.derived_topics.aclose()


@rule("topic-16")
async def test_another_source_holds_also_where_it_cannot_fill_the_topic_yet() -> None:
    place = Place()
    await place.put("px", key=["/k"])
    await place.put("slow", source={"topic": "px", "interval": "100ms"})
    entry = place.catalog.get("slow")
    source = {"topic": "other", "interval": "100ms"}
    async with place.catalog.changing:
        await place.catalog.adopt_definition(entry, parsed(key=["/k"], source=source))
    assert entry.document.gateway_source == parsed(key=["/k"], source=source).gateway_source
    await has_reason(place, "its source other is not served here")
    await place.put("other", key=["/k"])
    await place.say("other", {"k": 1})
    await eventually(lambda: place.sow("slow") == [{"k": 1}], "it is filled")
    assert place.catalog.filling.reasons == {}
    await place.derived_topics.aclose()


async def test_another_source_holds_at_a_gateway_that_does_not_fill_topics() -> None:
    place = Place()
    place.leadership.give_up()
    await place.put("px", key=["/k"])
    await place.put("slow", source={"topic": "px", "interval": "100ms"})
    entry = place.catalog.get("slow")
    wanted = parsed(key=["/k"], source={"topic": "other", "interval": "100ms"})
    async with place.catalog.changing:
        await place.catalog.adopt_definition(entry, wanted)
    assert entry.document == wanted
    assert place.catalog.filling.reasons == {}


@rule("topic-14", "topic-16")
async def test_a_topic_that_cannot_be_used_any_more_leaves_the_others_alone() -> None:
    place = Place()
    await place.put("px", key=["/k"])
    await place.put("slow", source={"topic": "px", "interval": "1s"})
    epoch = place.catalog.get("px").record.epoch
    unusable = Unusable("px", b'{"key":["/k"],"merge":"no:such"}', epoch, "No such merger.")
    async with place.catalog.changing:
        await place.catalog.adopt_unusable(unusable)
    for use in (place.catalog.get, place.catalog.find, place.catalog.document):
        with pytest.raises(Refused, match="not-ready"):
            use("px")
    with pytest.raises(Refused, match="not-ready"):
        await place.catalog.get_or_create("px")
    with pytest.raises(Refused, match="not-ready"):
        await place.put("other", source={"topic": "px", "interval": "1s"})
    with pytest.raises(Refused, match="topic-in-use"):
        await place.catalog.delete("px")
    assert place.catalog.served("slow") is not None
    await has_reason(place, "its source px is not served here")
    assert not place.catalog.has_ended(epoch)
    await place.put("px", key=["/k"])
    assert place.catalog.get("px").record.epoch == epoch
    await eventually(lambda: not place.catalog.filling.reasons, "it is filled again")
    await place.derived_topics.aclose()
