"""Going over to other options: what is held is kept (CONTRACT 5.1)."""

import itertools
from dataclasses import replace

import pytest

from tests.support.rules import rule
from tests.support.world import World, batches, counts, ids, tokens, told
from tidegate.conflation.errors import SubscriptionUnknown
from tidegate.conflation.frame import Frame
from tidegate.keys.text.duration import SECOND

LANES = ("conflation=1s", "conflation=1s,pace=key", "conflation=none", "conflation=60s")


def joined(options: str) -> tuple[World, str]:
    """A topic, and one subscription of it: its name."""
    world = World()
    world.topic()
    return world, world.subscribe(options)


def arrivals(world: World) -> list[tuple[float, str]]:
    """Every deadline served: its instant in seconds, and the rows that came."""
    came = []
    while (due := world.engine.next_deadline()) is not None:
        world.now = max(due, world.now)
        world.flush()
        came += [(world.now / SECOND, tokens(each.frames)) for each in batches(world.take())]
    return came


def rows_of(world: World) -> list[Frame]:
    return [frame for batch in batches(world.take()) for frame in batch.frames]


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(LANES, 2)))
def test_a_move_loses_and_repeats_nothing(before: str, after: str) -> None:
    world, name = joined(before)
    world.say("a1 b1")
    world.sleep("100ms")
    world.say("a2")
    world.sleep("100ms")
    world.change(name, after)
    world.sleep("300ms")
    world.say("b2 c1")
    rows = [row for _, batch in arrivals(world) for row in batch.split()]
    assert {row[0]: row for row in rows} == {"a": "a2", "b": "b2", "c": "c1"}
    assert len(rows) == len(set(rows))
    stats = world.engine.session_stats("s").subscriptions[0]
    assert (stats.matched, stats.waiting) == (5, 0)
    assert stats.delivered == len(rows)
    assert stats.conflated == 5 - len(rows)


def test_what_is_held_goes_at_the_new_interval_if_that_is_earlier() -> None:
    world, name = joined("conflation=10s")
    world.say("a1")
    world.wait("200ms")
    world.change(name, "conflation=1s")
    assert arrivals(world) == [(1.2, "a1")]


def test_what_is_held_goes_at_the_old_deadline_if_that_is_earlier() -> None:
    world, name = joined("conflation=10s")
    world.say("a1")
    world.wait("9s")
    world.change(name, "conflation=60s")
    world.wait("500ms")
    world.say("b1")
    assert arrivals(world) == [(10, "a1 b1")]


def test_a_change_to_every_message_sends_at_once_what_is_held() -> None:
    world, name = joined("conflation=10s,pace=key")
    world.say("a1 b1")
    world.wait("1s")
    world.say("a2")
    world.wait("1s")
    world.change(name, "conflation=none")
    assert world.hears() == ["b1 a2"]
    world.wait("1s")
    world.say("a3 a4")
    assert arrivals(world) == [(3, "a3 a4")]


def test_no_id_is_given_while_older_rows_are_owed() -> None:
    world, name = joined("conflation=10s")
    world.subscribe("conflation=1s", session="other")
    world.wait("8s")
    world.say("a1")
    world.wait("1500ms")
    world.take("other")
    world.say("b1")
    world.wait("100ms")
    world.change(name, "conflation=1s")  # a1 and b1 are owed until 10.6
    world.wait("100ms")
    world.say("c1")
    world.wait("899ms")
    assert world.take() == []
    world.wait("1ms")
    rows = world.take()
    assert (told(rows), ids(rows)) == (["a1 b1 c1"], [3])
    assert arrivals(world) == []


def test_a_second_move_keeps_what_the_first_carried() -> None:
    world, name = joined("conflation=10s")
    world.say("a1")
    world.wait("1s")
    world.change(name, "conflation=5s")
    world.wait("1s")
    world.say("b1")
    world.wait("1s")
    world.change(name, "conflation=1s,pace=key")
    assert arrivals(world) == [(4, "a1 b1")]


def test_the_same_lane_is_no_move() -> None:
    world, name = joined("conflation=10s")
    world.say("a1")
    world.wait("1s")
    world.change(name, "conflation=10s,conflation_key=[/k],pace=batch")
    assert arrivals(world) == [(10, "a1")]


def test_a_subscription_that_is_not_there_cannot_move() -> None:
    world, _ = joined("conflation=10s")
    with pytest.raises(SubscriptionUnknown):
        world.change("other", "conflation=1s")


@rule("change-2")
def test_a_new_filter_brings_in_what_the_old_one_hid_and_takes_out_what_it_showed() -> None:
    world = World()
    world.topic()
    world.say("a1 b5 c9")
    name = world.subscribe("oof", wanted="/v > 4", command="sow_and_subscribe")
    world.take()
    world.change(name, "oof", wanted="/v < 6", command="sow_and_subscribe")
    assert world.hears() == ["-c9 a1"]
    world.say("c2 b8")
    world.flush()
    assert world.hears() == ["c2 -b8"]


@rule("change-2")
def test_without_a_snapshot_a_new_filter_is_for_new_messages() -> None:
    """AMPS does not query again."""
    world = World()
    world.topic()
    world.say("a1 b5")
    name = world.subscribe("", wanted="/v > 4")
    world.change(name, "", wanted="/v < 6")
    assert world.hears() == []
    world.say("a2 b9")
    world.flush()
    assert world.hears() == ["a2"]


@rule("change-1")
def test_a_move_sums_up_what_rows_stand_for() -> None:
    world = World()
    world.topic()
    name = world.subscribe("conflation=10s,receipt", counted=True)
    world.say("a1 a2 b1")
    world.change(name, "conflation=1s,receipt", counted=True)
    world.say("a3 c1")
    world.wait("1s")
    assert counts(world.take()) == [("b1", 1, 3), ("a3", 3, 1), ("c1", 1, 5)]


@rule("change-3")
def test_a_paused_subscription_takes_nothing_and_is_behind_afterwards() -> None:
    world = World()
    world.topic()
    name = world.subscribe("conflation=1s")
    wish = world.wish("conflation=1s")
    world.engine.change("s", name, replace(wish, paused=True), world.now)
    world.say("a1 b1")
    world.wait("1s")
    world.say("a2")
    world.wait("1s")
    assert world.hears() == []
    world.engine.change("s", name, wish, world.now)
    assert world.hears() == ["b1 a2"]


@rule("account-1", "change-1")
def test_what_was_held_at_a_move_follows_a_snapshot_that_was_not_taken_yet() -> None:
    world = World()
    world.topic()
    name = world.subscribe("conflation=1s,pace=key", command="sow_and_subscribe")
    world.say("a1")
    world.change(name, "conflation=100ms", command="sow_and_subscribe")
    world.wait("2s")
    assert world.hears() == ["group of 0", "group ends at e1-0", "a1"]


@rule("change-1")
def test_until_what_is_held_goes_the_old_options_hold() -> None:
    world = World()
    world.topic()
    name = world.subscribe("conflation=10s,select=[-/v]")
    world.say("a1")
    world.change(name, "conflation=1s")
    world.say("b1")
    world.wait("1s")
    assert [row.payload for row in rows_of(world)] == [b'{"k":"a"}', b'{"k":"b"}']
    world.say("c1")
    world.wait("1s")
    assert world.hears() == ["c1"]


@rule("change-1")
def test_from_one_plain_interval_to_another_only_a_position_goes_along() -> None:
    """A slow subscriber gets the newest rows here as well, none of them twice."""
    world = World()
    world.topic()
    name = world.subscribe("conflation=1s")
    world.say("a1 b1")
    world.wait("1s")
    world.say("a2 c1")
    world.change(name, "conflation=100ms")
    world.wait("100ms")
    world.say("c2")
    world.wait("100ms")
    world.change(name, "conflation=5s")
    assert world.hears() == ["b1 a2 c2"]
    world.say("b2")
    world.wait("5s")
    assert world.hears() == ["b2"]


@rule("interval-10", "change-1")
def test_what_a_move_lets_go_is_taken_as_it_is_by_then() -> None:
    world = World()
    world.topic()
    name = world.subscribe("conflation=1s")
    world.say("a1 b1")
    world.change(name, "conflation=100ms")
    world.wait("100ms")
    world.say("b2")
    assert world.hears() == ["a1 b2"]
    world.wait("100ms")
    assert world.hears() == []


@rule("interval-10", "change-1")
@pytest.mark.parametrize(
    ("options", "rest"),
    [
        pytest.param("conflation=100ms", ["b2", "c1", "a2"], id="a position"),
        pytest.param("conflation=100ms,pace=key", ["b1", "c1", "b2", "a2"], id="rows"),
        pytest.param("conflation=none", ["b1", "c1", "b2", "a2"], id="every message from now on"),
    ],
)
def test_a_move_in_the_midst_of_a_round(options: str, rest: list[str]) -> None:
    """What was still to come of it does, and nothing twice."""
    world = World()
    world.topic()
    name = world.subscribe("conflation=1s")
    world.say("a1 b1 c1")
    world.wait("1s")
    assert told(world.take_once(1)) == ["a1"]
    world.change(name, options)
    world.say("b2 a2")
    world.wait("1s")
    assert world.hears(bytes_max=1) == rest


@rule("change-2")
def test_a_change_of_fields_sends_all_records_anew() -> None:
    """A subscription that began with a snapshot gets its rows as the new options show them."""
    world = World()
    world.topic()
    world.say("a1 b5")
    name = world.subscribe("conflation=1s,select=[-/v]", command="sow_and_subscribe")
    world.take()
    world.change(name, "conflation=1s", command="sow_and_subscribe")
    assert world.hears() == ["a1 b5"]
    (row,) = world.engine.session_stats("s").subscriptions
    assert (row.matched, row.delivered, row.conflated) == (0, 0, 0)


@rule("delta-6", "change-2")
def test_what_a_change_brings_in_stands_for_no_message() -> None:
    """Receipts still sum up to what matched."""
    world = World()
    world.topic()
    world.say("a1 b5")
    options = "conflation=1s,receipt"
    name = world.subscribe(options, wanted="/v > 4", command="sow_and_subscribe", counted=True)
    world.take()
    world.say("b6 b7")
    world.change(name, options, command="sow_and_subscribe", counted=True)
    assert counts(world.take()) == [("b7", 2, 3), ("a1", 0, 1)]


@rule("change-2")
def test_after_another_filter_deltas_without_a_snapshot_begin_with_values() -> None:
    """The value that the record has now was never sent."""
    world = World()
    world.topic()
    name = world.subscribe("conflation=1s", wanted="/v < 4", command="delta_subscribe")
    pad = "x" * 40
    world.publish({"k": "a", "v": 1, "pad": pad})
    world.wait("1s")
    world.publish({"k": "a", "v": 5, "w": 1, "pad": pad})
    world.change(name, "conflation=1s", wanted="/v < 9", command="delta_subscribe")
    world.publish({"k": "a", "v": 6, "w": 1, "pad": pad})
    world.wait("1s")
    first, second = rows_of(world)
    assert getattr(first, "patch", None) is None
    assert getattr(second, "patch", None) is None, "of w the client knows nothing"
    assert b'"w":1' in second.payload


@rule("change-1", "merge-1")
def test_a_new_filter_keeps_every_message_in_order() -> None:
    world = World()
    world.topic()
    name = world.subscribe("")
    world.say("a1 a2 b1")
    world.change(name, "", wanted="/v < 9")
    world.say("a3 a9")
    world.flush()
    assert world.hears() == ["a1 a2 b1", "a3"]


def test_a_change_during_a_replay_comes_when_it_is_over() -> None:
    world = World()
    world.topic()
    world.say("a1 b7 a2")
    name = world.subscribe("bookmark=epoch,conflation=1s")
    world.change(name, "conflation=1s", wanted="/v > 4")
    assert world.hears()[1:] == ["b7 a2"]
    world.say("a3 b8")
    world.wait("1s")
    assert world.hears() == ["b8"]


def test_what_a_move_lets_go_ends_where_its_board_does() -> None:
    """Messages that do not match are none to wait for."""
    world = World()
    world.topic()
    name = world.subscribe("conflation=1s,oof", wanted="/v < 4", command="sow_and_subscribe")
    world.take()
    world.say("a1 b9")
    world.change(name, "conflation=100ms,oof", wanted="/v < 4", command="sow_and_subscribe")
    world.wait("1s")
    assert world.hears() == ["a1"]


@rule("change-1")
def test_of_what_was_taken_in_part_and_what_is_held_each_key_goes_once() -> None:
    world = World()
    world.topic()
    name = world.subscribe("conflation=100ms,pace=key")
    world.say("b1 a1")
    world.wait("105ms")
    assert told(world.take_once(1)) == ["b1"]
    world.say("a2")
    world.change(name, "conflation=100ms")
    world.wait("1s")
    assert world.hears() == ["a2"]


@pytest.mark.parametrize("options", ["conflation=none", "conflation=1s"])
def test_a_change_during_a_replay_to_the_lane_it_will_join_keeps_the_place(options: str) -> None:
    world, _ = joined(options)
    world.say("a1")
    replay = f"{options},bookmark=epoch"
    name = world.subscribe(f"{replay},pause", session="replaying")
    world.change(name, replay, session="replaying")  # it goes on
    assert world.hears("replaying")[1:] == ["a1"]
    world.wait("1s")
    world.say("a2")
    world.wait("1s")
    assert world.hears("replaying") == ["a2"]
    world.engine.unsubscribe("replaying", name)


def test_a_change_waits_for_the_end_of_a_replay_that_has_a_rate() -> None:
    world = World()
    world.topic()
    world.say("a1 b7 a2")
    name = world.subscribe("bookmark=epoch,rate=1")
    world.change(name, "conflation=1s", wanted="/v > 4")
    assert world.hears()[1:] == ["a1"]
    for row in ("b7", "a2"):
        world.wait("1s")
        assert world.hears() == [row]
    world.say("a3 b8")
    world.wait("1s")
    assert world.hears() == ["b8"]
