"""Law 1: a publish costs the boards that match it, which are found and not tried."""

from __future__ import annotations

import pytest

from tests.support.world import World
from tidegate.conflation.topics.feed import Feed


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The filters of the feeds that a publish reached."""
    reached: list[str] = []
    publish = Feed.publish

    def noted(self: Feed, *arguments: object) -> object:
        reached.append(str(self.id.filter))
        return publish(self, *arguments)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(Feed, "publish", noted)
    return reached


def test_a_publish_reaches_the_boards_that_ask_for_its_value(tried: list[str]) -> None:
    world = World(sessions_max=1_000)
    world.topic()
    for letter in "abcdefgh":
        world.subscribe("conflation=1s", wanted=f"/k = '{letter}'", session=letter)
    world.say("c1")
    assert tried == ["/k = 'c'", "None"]
    world.wait("1s")
    assert world.hears("c") == ["c1"]


def test_a_record_that_leaves_is_found_by_the_value_it_had(tried: list[str]) -> None:
    world = World()
    world.topic()
    world.say("aX1")
    world.subscribe("conflation=1s,oof", wanted="/g = 'X'", command="sow_and_subscribe")
    world.take()
    tried.clear()
    world.say("aY2 aY3")
    assert tried == ["/g = 'X'", "None"]
    world.wait("1s")
    assert world.hears() == ["-aX1"]


def test_a_forgotten_feed_is_not_reached(tried: list[str]) -> None:
    world = World()
    world.topic()
    name = world.subscribe("conflation=1s", wanted="/k = 'a'")
    world.subscribe("conflation=1s")
    world.engine.unsubscribe("s", name)
    world.say("a1")
    assert tried == ["None"]
