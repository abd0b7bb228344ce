"""What a folder of definitions would change, and that it is all or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.place import Place, parsed
from tests.support.rules import rule
from tests.support.servers import edge_settings
from tidegate.app.definitions.files import Declared, TopicFilesInvalid, in_order
from tidegate.app.definitions.mergers import NO_MERGERS
from tidegate.app.refusals import Unavailable
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.topics.plan import Step, carry_out, plan_beside


class PxHasMessages(MemoryStore):
    async def head(self, name: str) -> int:
        return int(name == "px")


def declared(**documents: dict[str, Any]) -> list[Declared]:
    return in_order(
        {name: Declared(name, parsed(**each), "a.toml") for name, each in documents.items()}
    )


def filled(source: str) -> dict[str, Any]:
    return {"source": {"topic": source, "interval": "1s"}}


async def steps(place: Place, **documents: dict[str, Any]) -> list[Step]:
    return await plan_beside(
        place.store, declared(**documents), edge_settings(topics_max=5), NO_MERGERS
    )


@rule("topic-12")
async def test_what_is_new_what_changes_and_what_is_left() -> None:
    place = Place()
    await place.put("same", key=["/k"])
    await place.put("other", key=["/k"])
    await place.put("unnamed")
    await place.put("slow", **filled("same"))
    planned = await steps(
        place,
        same={"key": ["$.k"], "retain": True},
        other={"key": ["/k"], "description": "new", "history": {"messages": 1}},
        new=filled("same"),
        slow=filled("same"),
    )
    assert [str(step) for step in planned] == [
        "leave same",
        "create new",
        "change other: history, description",
        "leave slow",
    ]
    await place.derived_topics.aclose()


@rule("topic-12")
async def test_what_is_planned_is_carried_out_and_then_nothing_is_left_to_do() -> None:
    place = Place()
    await place.put("unnamed", description="stays")
    wanted: dict[str, dict[str, Any]] = {"a": filled("z"), "z": {"key": ["/k"]}}
    await carry_out(await steps(place, **wanted), place.catalog)
    etags = [place.catalog.get(name).etag for name in ("a", "z", "unnamed")]
    assert [str(step) for step in await steps(place, **wanted)] == ["leave z", "leave a"]
    await carry_out(await steps(place, **wanted), place.catalog)
    assert [place.catalog.get(name).etag for name in ("a", "z", "unnamed")] == etags
    await place.derived_topics.aclose()


@rule("topic-12")
@pytest.mark.parametrize(
    ("documents", "said"),
    [
        (
            {"px": {"key": ["/o"]}},
            "topic px, field key: The topic holds messages, so its key ([/k]) stays",
        ),
        ({"used": {"key": ["/o"]}}, "topic used, field key: Another topic is filled from this one"),
        ({"used": filled("slow")}, "topic used, field source/topic: The topic would be filled"),
        ({"new": filled("none")}, "topic new, field source/topic: The source topic is not there"),
        ({"new": filled("plain")}, "topic new, field key: The source has no key"),
        ({"more": {}, "new": {}}, "topic new: There are 5 topics already"),
    ],
)
async def test_a_plan_names_refusals_before_anything_is_done(
    documents: dict[str, dict[str, Any]], said: str
) -> None:
    place = Place(PxHasMessages())
    for name in ("px", "used"):
        await place.put(name, key=["/k"])
    await place.put("plain")
    await place.put("slow", **filled("used"))
    with pytest.raises(TopicFilesInvalid) as wrong:
        await steps(place, **documents)
    assert str(wrong.value).startswith(f"a.toml: {said}")
    await place.derived_topics.aclose()


@rule("topic-12", "topic-3")
async def test_a_topic_that_holds_messages_is_not_declared_to_be_filled() -> None:
    place = Place(PxHasMessages())
    await place.put("px", key=["/k"])
    await place.put("fx", key=["/k"])
    filled_px = {"key": ["/k"], **filled("fx")}
    with pytest.raises(TopicFilesInvalid, match="source"):
        await steps(place, px=filled_px)
    assert [str(step) for step in await steps(place, fx={"key": ["/k"], **filled("px")})] == [
        "change fx: source"
    ]


class Away(MemoryStore):
    async def head(self, name: str) -> int:
        raise Unavailable


async def test_a_store_that_is_away_is_no_fault_of_the_file() -> None:
    place = Place(Away())
    await place.put("px", key=["/k"])
    with pytest.raises(Unavailable):
        await steps(place, px={"key": ["/other"]})
