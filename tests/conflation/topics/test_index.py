"""Law 1: a publish costs the boards that match it, which are found and not tried."""

from __future__ import annotations

import pytest

from tests.support.manual_driver import ManualDriver
from tidegate.conflation.topics.feed import Feed


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The filters of the feeds that a publish reached."""
    reached: list[str] = []
    publish = Feed.publish

    def noted(self: Feed, *arguments: object, **named: object) -> object:
        reached.append(str(self.id.filter))
        return publish(self, *arguments, **named)  # type: ignore[arg-type]  # the arguments that `publish` was called with

    monkeypatch.setattr(Feed, "publish", noted)
    return reached


def test_a_publish_reaches_the_boards_that_ask_for_its_value(tried: list[str]) -> None:
    driver = ManualDriver(sessions_max=1_000)
    driver.topic()
    for letter in "abcdefgh":
        driver.subscribe("conflation=1s", wanted=f"/k = '{letter}'", session=letter)
    driver.publish("c1")
    assert tried == ["/k = 'c'", "None"]
    driver.wait("1s")
    assert driver.received("c") == ["c1"]


def test_a_record_that_leaves_is_found_by_the_value_it_had(tried: list[str]) -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("aX1")
    driver.subscribe("conflation=1s,oof", wanted="/g = 'X'", command="sow_and_subscribe")
    driver.take()
    tried.clear()
    driver.publish("aY2 aY3")
    assert tried == ["/g = 'X'", "None"]
    driver.wait("1s")
    assert driver.received() == ["-aX1"]


def test_a_forgotten_feed_is_not_reached(tried: list[str]) -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=1s", wanted="/k = 'a'")
    driver.subscribe("conflation=1s")
    driver.engine.unsubscribe("s", name)
    driver.publish("a1")
    assert tried == ["None"]
