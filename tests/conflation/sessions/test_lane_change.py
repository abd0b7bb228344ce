"""Going over to other options: what is held is kept (CONTRACT 5.1)."""

import itertools
from dataclasses import replace

import pytest

from tests.support.rules import rule
from tests.support.world import World, batches, counts, told
from tidegate.conflation.definition import Definition, History
from tidegate.conflation.engine import Engine
from tidegate.conflation.errors import SubscriptionUnknown
from tidegate.conflation.frame import Frame
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import Rows
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.subscription import Subscription
from tidegate.keys.spec import KeySpec, record_key
from tidegate.keys.text.duration import SECOND

SPEC = KeySpec.of(["/t"])
KEY_OF = record_key(SPEC)
DEFINITION = Definition(History(100), SPEC)
LANES = ("conflation=1s", "conflation=1s,pace=key", "conflation=none", "conflation=60s")


class Room:
    """One engine, one topic, one session `a` that has joined with some options."""

    def __init__(self, options: str) -> None:
        self.engine = Engine(sessions_max=9, subscriptions_max=9)
        self.engine.define_topic("p", Definition(History(100), SPEC), "e")
        self.offset = 0
        self.sit("a", options)

    def sit(self, session: str, options: str) -> None:
        self.engine.open_session(session, QueueLimits(100, 1 << 20))
        self.engine.subscribe(session, "s", self.wish(options), self.engine._now)
        self.take(session)

    def wish(self, options: str) -> Subscription:
        return decide(
            "p", Definition(History(100), SPEC), Options.parse(options), command="subscribe"
        )

    def publish(self, at: float, *texts: str) -> None:
        frames = []
        for text in texts:
            self.offset += 1
            payload = b'{"t":"%s","v":%s}' % (text[:1].encode(), text[1:].encode())
            frames.append(Frame(self.offset, payload, KEY_OF(payload)))
        self.engine.publish("p", frames, round(at * SECOND))

    def move(self, at: float, options: str, session: str = "a") -> None:
        self.engine.change(session, "s", self.wish(options), round(at * SECOND))

    def take(self, session: str = "a") -> list[Rows]:
        taken = iter(lambda: self.engine.take(session, 1 << 20), [])
        return [out for outputs in taken for out in outputs if isinstance(out, Rows)]

    def run(self, session: str = "a") -> list[tuple[float, list[str]]]:
        """Advance from deadline to deadline; instants in seconds with what came."""
        came = []
        while (due := self.engine.next_deadline()) is not None:
            now = max(due, self.engine._now)
            self.engine.advance(now)
            came += [(now / SECOND, shown(rows)) for rows in self.take(session)]
        return came


def shown(rows: Rows) -> list[str]:
    fields = [frame.payload.decode() for frame in rows.batch.frames]
    return [text[6:7] + text[13:-1] for text in fields]


def rows_of(world: World) -> list[Frame]:
    return [frame for batch in batches(world.take()) for frame in batch.frames]


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(LANES, 2)))
def test_a_move_loses_and_repeats_nothing(before: str, after: str) -> None:
    room = Room(before)
    room.publish(0, "A1", "B1")
    room.publish(0.1, "A2")
    room.move(0.2, after)
    room.publish(0.5, "B2", "C1")
    rows = [row for _, batch in room.run() for row in batch]
    assert {row[0]: row for row in rows} == {"A": "A2", "B": "B2", "C": "C1"}
    assert len(rows) == len(set(rows))
    stats = room.engine.session_stats("a").subscriptions[0]
    assert (stats.matched, stats.waiting) == (5, 0)
    assert stats.delivered == len(rows)
    assert stats.conflated == 5 - len(rows)


def test_what_is_held_goes_at_the_new_interval_if_that_is_earlier() -> None:
    room = Room("conflation=10s")
    room.publish(0, "A1")
    room.move(0.2, "conflation=1s")
    assert room.run() == [(1.2, ["A1"])]


def test_what_is_held_goes_at_the_old_deadline_if_that_is_earlier() -> None:
    room = Room("conflation=10s")
    room.publish(0, "A1")
    room.move(9, "conflation=60s")
    room.publish(9.5, "B1")
    assert room.run() == [(10, ["A1", "B1"])]


def test_what_is_held_goes_at_once_to_who_now_wants_every_message() -> None:
    room = Room("conflation=10s,pace=key")
    room.publish(0, "A1", "B1")
    room.publish(1, "A2")
    room.move(2, "conflation=none")
    assert [shown(rows) for rows in room.take()] == [["B1", "A2"]]
    room.publish(3, "A3", "A4")
    assert room.run() == [(3, ["A3", "A4"])]


def test_no_id_is_given_while_older_rows_are_owed() -> None:
    room = Room("conflation=10s")
    room.sit("b", "conflation=1s")
    room.publish(8, "A1")
    room.engine.advance(9 * SECOND)
    room.take("b")
    room.publish(9.5, "B1")
    room.move(9.6, "conflation=1s")  # A1 and B1 are owed until 10.6
    room.publish(9.7, "C1")
    ids = []
    while (due := room.engine.next_deadline()) is not None:
        room.engine.advance(due)
        ids += [(due / SECOND, shown(rows), rows.batch.low_water) for rows in room.take()]
    assert ids == [(10.6, ["A1", "B1", "C1"], 3)]


def test_a_second_move_keeps_what_the_first_carried() -> None:
    room = Room("conflation=10s")
    room.publish(0, "A1")
    room.move(1, "conflation=5s")
    room.publish(2, "B1")
    room.move(3, "conflation=1s,pace=key")
    assert room.run() == [(4, ["A1", "B1"])]


def test_the_same_lane_is_no_move() -> None:
    room = Room("conflation=10s")
    room.publish(0, "A1")
    room.move(1, "conflation=10s,conflation_key=[/t],pace=batch")
    assert room.run() == [(10, ["A1"])]


def test_a_subscription_that_is_not_there_cannot_move() -> None:
    room = Room("conflation=10s")
    with pytest.raises(SubscriptionUnknown):
        room.engine.change("a", "other", room.wish("conflation=1s"), 0)


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
    """Whoever is slow gets the newest then too, and no row twice."""
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
def test_other_fields_are_told_of_all_records() -> None:
    """What the new options show otherwise, to who began with a snapshot."""
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
def test_every_message_is_still_told_in_order_where_each_is_asked_for() -> None:
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
    room = Room(options)
    room.publish(0, "a1")
    room.engine.open_session("r", QueueLimits(100, 1 << 20))
    replay = f"{options},bookmark=epoch"
    paused = room.wish(f"{replay},pause")
    room.engine.subscribe("r", "s", paused, 0)
    room.move(0, replay, "r")  # it goes on
    assert [out.frames[0].payload for out in batches(room.take("r"))] == [b'{"t":"a","v":1}']
    room.publish(1, "a2")
    room.engine.advance(2 * SECOND)
    assert [out.frames[0].payload for out in batches(room.take("r"))] == [b'{"t":"a","v":2}']
    room.engine.unsubscribe("r", "s")


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
