"""Topics by name: what is done to an entry is done in the engine in the same step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.place import Place, parsed
from tidegate.app.definitions.topic import Unusable
from tidegate.app.stores.store import TopicRecord
from tidegate.app.topics.registry import ENDED_EPOCHS_MAX, TopicRegistry
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.frame import RestoredTopic


def topics_of(place: Place) -> TopicRegistry:
    return TopicRegistry(place.driver, place.settings)


def record(name: str, epoch: str = "e1", **document: object) -> TopicRecord:
    return TopicRecord(name, parsed(**document), epoch)


async def test_one_that_is_admitted_is_in_the_engine_until_it_is_dropped() -> None:
    place = Place()
    topics = topics_of(place)
    entry = topics.admit(record("px", key=["/k"]))
    assert topics.get("px") is topics.find("px") is entry
    assert topics.document("px") == parsed(key=["/k"])
    assert place.driver.engine.topic("px").epoch == "e1"
    topics.define(entry, record("px", key=["/k"], conflation="off"))
    assert place.driver.engine.topic("px").definition.policy == "off"
    topics.drop(entry)
    assert (topics.find("px"), topics.document("px"), topics.has_ended("e1")) == (None, None, True)
    with pytest.raises(TopicUnknown):
        place.driver.engine.topic("px")


async def test_a_topic_that_is_served_again_has_not_ended() -> None:
    """A failover may lose a deletion: the topic is back in its epoch, and in one that follows."""
    topics = topics_of(Place())
    topics.drop(topics.restore(record("px", "e2"), RestoredTopic(former={"e1": 3})))
    assert topics.has_ended("e1")
    assert topics.has_ended("e2")
    topics.drop(topics.admit(record("other", "e9")))
    topics.restore(record("px", "e2"), RestoredTopic(former={"e1": 3}))
    assert not topics.has_ended("e1")
    assert not topics.has_ended("e2")
    topics.drop(topics.get("px"))
    topics.admit(record("px", "e3"))
    topics.renew(record("px", "e4"), RestoredTopic(former={"e1": 3, "e2": 3, "e3": 0}))
    assert [each for each in ("e1", "e2", "e3", "e4") if topics.has_ended(each)] == []
    assert topics.has_ended("e9")


async def test_the_oldest_ended_epochs_are_forgotten() -> None:
    topics = topics_of(Place())
    for number in range(ENDED_EPOCHS_MAX + 1):
        topics.drop(topics.admit(record("px", f"e{number}")))
    assert not topics.has_ended("e0")
    assert topics.has_ended("e1")


async def test_listeners_hear_of_a_topic_that_takes_a_name_over() -> None:
    place, heard = Place(), list[str]()
    topics = topics_of(place)
    topics.listen(heard.append)
    before = topics.admit(record("px"))
    after = topics.supersede(record("px", "e2", key=["/k"]))
    assert topics.entries() == [after] != [before]
    assert place.driver.engine.topic("px").epoch == "e2"
    topics.unlisten(heard.append)
    topics.restore(record("later"), RestoredTopic())
    assert heard == ["px", "px"]


async def test_one_begins_again_under_its_entry() -> None:
    place = Place()
    topics = topics_of(place)
    entry = topics.admit(record("px"))
    topics.renew(record("px", "e2"), RestoredTopic())
    assert entry.record.epoch == place.driver.engine.topic("px").epoch == "e2"
    topics.renew(record("gone", "e2"), RestoredTopic())
    assert topics.find("gone") is None


async def test_there_is_room_beside_the_gateway_s_own() -> None:
    topics = topics_of(Place(topics_max=1))
    topics.admit(record("tidegate.sessions", key=["/session"]))
    assert topics.has_room()
    topics.admit(record("px"))
    topics.set_aside(Unusable("bad", b"{", "e1", "It is not JSON."))
    assert not topics.has_room()
    topics.drop_unusable(*topics.all_unusable())
    assert not topics.has_room()
    assert [it.record.name for it in topics.listed("", "", 9)] == ["px"]
    assert [it.record.name for it in topics.listed("tidegate.", "", 9)] == ["tidegate.sessions"]
    assert not topics.is_source("px")


async def test_while_there_is_much_room_no_name_is_looked_at() -> None:
    class Looked(str):
        looks = 0

        def startswith(self, *args: Any) -> bool:
            Looked.looks += 1
            return super().startswith(*args)

    topics = topics_of(Place(topics_max=9))
    for number in range(8):
        topics.admit(record(Looked(f"t{number}")))
    Looked.looks = 0
    assert topics.has_room()
    assert Looked.looks == 0
    topics.admit(record(Looked("t8")))
    assert not topics.has_room()
    assert Looked.looks > 0
