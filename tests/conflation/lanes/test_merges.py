"""Merges that several queues share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rules import rule
from tests.support.world import World
from tidegate.conflation.lanes import merges as merges_module
from tidegate.conflation.lanes.every_message import EveryMessageLane
from tidegate.conflation.lanes.merges import Merges
from tidegate.keys.merging import Merger, Verdict


class Summing:
    """A merger that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, current: Any, new: Any) -> Any:
        self.calls += 1
        return {**new, "v": current["v"] + new["v"]}


def queues(
    clients: int, summing: Summing, messages_max: int = 20, policy: str = "conflate"
) -> World:
    """A topic with a counting merger, and sessions that do not read."""
    world = World()
    world.topic(policy=policy, merge=Merger("m:sum", summing))
    for number in range(clients):
        world.session(f"s{number}", messages_max=messages_max)
        world.subscribe(session=f"s{number}")
    return world


def lane_of(world: World) -> EveryMessageLane:
    (feed,) = world.engine.topic("px").feeds.values()
    (lane,) = feed.lanes.values()
    assert isinstance(lane, EveryMessageLane)
    return lane


def kept(lane: EveryMessageLane) -> int:
    assert lane._merges is not None
    return len(lane._merges)


def calls_for(clients: int, policy: str) -> int:
    summing = Summing()
    world = queues(clients, summing, policy=policy)
    for number in range(100):
        world.say(f"a{number} b1 c1")
        world.flush()
    told = [world.hears(f"s{number}") for number in range(clients)]
    rows = " ".join(told[0]).split()
    assert sum(int(row[1:]) for row in rows if row[0] == "a") == sum(range(100))
    assert sum(int(row[1:]) for row in rows if row[0] != "a") == 200
    assert all(each == told[0] for each in told)
    return summing.calls


@rule("queue-9")
@pytest.mark.parametrize("policy", ["conflate", "always"])
def test_a_pair_of_messages_is_merged_once_for_all_equal_clients(policy: str) -> None:
    """Diffusion does not repeat merges of identical pairs for different clients."""
    alone = calls_for(1, policy)
    assert alone > 200
    assert [calls_for(clients, policy) for clients in (2, 4, 8)] == [alone, alone, alone]


def test_queues_of_other_lengths_share_what_they_have_in_common() -> None:
    summing = Summing()
    world = queues(1, summing, messages_max=10)
    world.session("longer", messages_max=25)
    world.subscribe(session="longer")
    world.say(" ".join(f"a{number}" for number in range(26)))
    world.flush()
    assert world.hears("s0") == world.hears("longer") == [f"a{sum(range(26))}"]
    assert summing.calls == 25


def test_merges_are_kept_while_another_queue_has_the_messages_and_no_longer() -> None:
    world = queues(1, Summing(), messages_max=5)
    world.session("longer", messages_max=50)
    world.subscribe(session="longer")
    world.say("a1 a2 a3 a4 a5 a6")
    world.flush()
    assert kept(lane_of(world)) == 5
    world.take("longer")
    world.say("b1")
    world.flush()
    assert kept(lane_of(world)) == 0


def test_merges_take_up_no_more_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merges_module, "BYTES_MAX", 1_000)
    merges = Merges(Merger("m", lambda current, new: current + new))
    for number in range(100):
        assert merges.answer(b"1", b"%d" % number) == b"%d" % (1 + number)
    assert len(merges) == 4
    merges.forget()
    assert len(merges) == 0


def test_a_failure_is_reported_once_and_is_an_answer() -> None:
    failures: list[str] = []
    merger = Merger("m", lambda current, new: 1 / 0, lambda name, error: failures.append(name))
    merges = Merges(merger)
    assert {merges.answer(b"1", b"2") for _ in range(3)} == {Verdict.NO_CONFLATION}
    assert failures == ["m"]
