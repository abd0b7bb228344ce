"""What others have made of their topics holds here, fillers included."""

from __future__ import annotations

import pytest

from app.followed import Followed
from app.stores.store import TopicRecord
from conflation.errors import EngineError
from conflation.kept import Kept
from tests.support.gateways import eventually
from tests.support.place import Place, parsed


def record(name: str, epoch: str = "e1", **document: object) -> TopicRecord:
    return TopicRecord(name, parsed(**document), epoch)


SLOW = record("slow", key=["/k"], source={"topic": "px", "interval": "100ms"})


async def test_a_topic_is_adopted_redefined_and_forgotten() -> None:
    place = Place()
    followed = Followed(place.catalog)
    async with place.catalog.changing:
        await followed.adopt(record("px", key=["/k"]), Kept())
        entry = place.catalog.get("px")
        await followed.redefine(entry, parsed(key=["/k"], description="d"))
        assert place.catalog.get("px") is entry
        assert (entry.document.description, entry.record.epoch) == ("d", "e1")
        await followed.forget(entry)
    assert place.catalog.find("px") is None
    assert place.catalog.has_ended("e1")


async def test_a_filled_topic_is_filled_by_who_has_the_duty() -> None:
    place = Place()
    await place.put("px", key=["/k"])
    await place.say("px", {"k": 1})
    await place.store.put_topic(SLOW)
    async with place.catalog.changing:
        await Followed(place.catalog).adopt(SLOW, Kept())
    await eventually(lambda: place.sow("slow") == [{"k": 1}], "it is filled")
    await place.fillers.aclose()


async def test_what_cannot_be_filled_is_not_there_either() -> None:
    """So that it is tried again whole."""
    place = Place()
    for _ in range(2):
        async with place.catalog.changing:
            with pytest.raises(EngineError):
                await Followed(place.catalog).adopt(SLOW, Kept())
        assert place.catalog.find("slow") is None
