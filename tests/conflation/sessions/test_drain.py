"""What is queued for a subscription that ends is told before its end is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rules import rule
from tests.support.world import World


def world_with(**more: Any) -> tuple[World, str]:
    """A session that lasts, with messages queued for a subscription."""
    world = World()
    world.topic(**more)
    world.session(messages_max=4, lasts=True)
    name = world.subscribe()
    world.say("a1 b1 a2")
    world.flush()
    return world, name


def sums(world: World) -> tuple[int, int, int, int, int]:
    found = world.engine.topic_stats("px")
    assert found.matched == found.delivered + found.conflated + found.waiting + found.dropped
    return found.matched, found.delivered, found.conflated, found.waiting, found.dropped


@rule("queue-10")
def test_what_is_queued_goes_first() -> None:
    world, name = world_with()
    world.engine.unsubscribe("s", name)
    assert sums(world) == (3, 0, 0, 3, 0)
    assert world.hears(bytes_max=1) == ["a1", "b1", "a2", "unsubscribed from px: REQUESTED"]
    assert sums(world) == (3, 3, 0, 0, 0)


@rule("account-2")
def test_a_topic_that_tidies_up_drops_it() -> None:
    world, name = world_with(tidies=True)
    world.engine.unsubscribe("s", name)
    assert world.hears() == ["unsubscribed from px: REQUESTED"]
    assert sums(world) == (3, 0, 0, 0, 3)
    assert world.engine.topic_stats("px").dropped_by == (("REQUESTED", 3),)


def test_the_operator_may_end_it_so_too() -> None:
    world, name = world_with()
    world.engine.unsubscribe("s", name, "CONTROL")
    assert world.hears() == ["a1 b1 a2", "unsubscribed from px: CONTROL"]


def test_the_last_subscription_is_told_before_the_goodbye() -> None:
    world = World()
    world.topic()
    name = world.subscribe()
    world.say("a1")
    world.flush()
    world.engine.unsubscribe("s", name)
    assert world.hears() == ["a1", "unsubscribed from px: REQUESTED", "goodbye UNSUBSCRIBED"]


def test_an_interval_is_dropped() -> None:
    world = World()
    world.topic()
    world.session(lasts=True)
    name = world.subscribe("conflation=1s")
    world.say("a1")
    world.wait("1s")
    world.engine.unsubscribe("s", name)
    assert world.hears() == ["unsubscribed from px: REQUESTED"]


def test_deltas_are_told_as_values() -> None:
    world = World()
    world.topic()
    world.session(lasts=True)
    name = world.subscribe(command="sow_and_delta_subscribe")
    world.take()
    world.say("aX1 aX2 aX3")
    world.flush()
    world.engine.unsubscribe("s", name)
    assert world.hears() == ["aX1 aX2 aX3", "unsubscribed from px: REQUESTED"]


def test_whoever_subscribes_again_hears_the_end_of_the_first_before() -> None:
    world, name = world_with()
    world.engine.unsubscribe("s", name)
    world.engine.subscribe("s", name, world.wish(), world.now, announced=True)
    world.say("c1")
    world.flush()
    assert world.hears(bytes_max=20) == [
        "a1", "b1", "a2", "unsubscribed from px: REQUESTED", "subscribed to px", "c1",
    ]  # fmt: skip


@rule("queue-10")
@pytest.mark.parametrize("how", ["paused", "in its snapshot"])
def test_nothing_more_goes_to_who_is_paused_or_still_in_its_snapshot(how: str) -> None:
    world = World()
    world.topic()
    world.say("a1")
    world.session(lasts=True)
    name = world.subscribe(command="sow_and_subscribe")
    if how == "paused":
        world.take()
        world.change(name, "bookmark=now,pause")
    world.say("a2")
    world.flush()
    world.engine.unsubscribe("s", name)
    assert world.hears() == ["unsubscribed from px: REQUESTED"]
    assert sums(world) == (1, 0, 0, 0, 1)


@rule("queue-10")
@pytest.mark.parametrize(
    ("policy", "story"),
    [
        ("conflate", ["b1 a2", "unsubscribed from px: REQUESTED", "c2"]),
        ("unsubscribe", ["unsubscribed from px: REQUESTED", "unsubscribed from px: BACK_PRESSURE"]),
        ("off", ["unsubscribed from px: REQUESTED", "goodbye MESSAGE_QUEUE_LIMIT_REACHED"]),
    ],
)
def test_it_counts_towards_the_limits_and_its_policy_applies(policy: str, story: list[str]) -> None:
    world, name = world_with(policy=policy)
    world.engine.unsubscribe("s", name)
    world.subscribe()
    world.say("c1")
    assert sums(world)[3] == 4
    world.say("c2")
    world.flush()
    sums(world)
    assert world.hears() == story
    sums(world)
