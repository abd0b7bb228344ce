"""A topic is filled by the definition in force, whatever changes fail or succeed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.gateways import eventually
from tests.support.place import Place, parsed
from tests.support.rules import rule
from tidegate.app.definitions.topic import Unusable

SLOW = {"topic": "px", "interval": "100ms"}


async def filled() -> Place:
    place = Place()
    for name in ("px", "other"):
        await place.put(name, key=["/k"])
    await place.put("slow", key=["/k"], source=SLOW)
    return place


async def follows(place: Place, source: str, value: int) -> None:
    """What is published there comes to the topic that is filled."""
    await place.say(source, {"k": 1, "v": value})
    await eventually(lambda: {"k": 1, "v": value} in place.sow("slow"), f"{source} fills it")


@pytest.mark.parametrize("source", [SLOW | {"interval": "200ms"}, SLOW | {"topic": "other"}])
async def test_a_change_that_fails_leaves_it_filled_as_it_was(source: dict[str, str]) -> None:
    place = await filled()
    document = parsed(key=["/k"], source=source)
    with pytest.raises(OSError, match="the store"):
        async with place.catalog.filling.refilled(place.catalog.get("slow"), document):
            raise OSError("the store")
    await follows(place, "px", 1)
    await place.derived_topics.aclose()


@rule("topic-16")
@pytest.mark.parametrize("source", [SLOW | {"interval": "200ms"}, SLOW | {"topic": "other"}])
async def test_a_change_that_fails_leaves_it_to_be_filled_as_soon_as_it_can_be(
    source: dict[str, str],
) -> None:
    place = await filled()
    catalog, filling = place.catalog, place.catalog.filling
    epoch = catalog.get("px").record.epoch
    catalog.set_aside(Unusable("px", b'{"key":["/k"],"merge":"no:such"}', epoch, "No such merger."))
    entry, document = catalog.get("slow"), parsed(key=["/k"], source=source)
    reasons = {"slow": "its source px is not served here"}
    await eventually(lambda: filling.reasons == reasons, "it has the reason")
    with pytest.raises(OSError, match="the store"):
        async with filling.refilled(entry, document):
            raise OSError("the store")
    await eventually(lambda: filling.reasons == reasons, "it has the reason still")
    await place.put("px", key=["/k"])
    await follows(place, "px", 1)
    await place.derived_topics.aclose()


async def test_a_change_that_holds_fills_it_from_the_other_source() -> None:
    place = await filled()
    entry, document = (
        place.catalog.get("slow"),
        parsed(key=["/k"], source=SLOW | {"topic": "other"}),
    )
    async with place.catalog.filling.refilled(entry, document):
        entry.redefine(replace(entry.record, document=document))
    await follows(place, "other", 2)
    await place.derived_topics.aclose()


async def test_a_topic_that_was_not_filled_for_a_while_goes_on() -> None:
    place = await filled()
    await place.derived_topics.aclose()
    await place.say("px", {"k": 1, "v": 1})
    place.catalog.start_filling()
    await follows(place, "px", 2)
    await place.derived_topics.aclose()
