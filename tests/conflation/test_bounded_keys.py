"""What a subscription keeps of keys and lists has a bound, however long it lasts."""

from __future__ import annotations

import json

import pytest

from tidegate.conflation.definition import Definition, History
from tidegate.conflation.engine import Engine
from tidegate.conflation.frame import Frame
from tidegate.conflation.lanes import pending
from tidegate.conflation.lanes.accumulate import LISTS_BYTES_MAX
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import Rows, Unsubscribed
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.topics import feed
from tidegate.keys.text.duration import SECOND

TOPIC = Definition(History(10))
PLENTY = 1 << 40
FORGOTTEN_AT = 200
"""So many keys on a board make it look for keys to forget; the product waits for 10,000."""


@pytest.fixture(autouse=True)
def forget_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "FORGOTTEN_AT", FORGOTTEN_AT)
    monkeypatch.setattr(feed, "DEFERRED_MAX", FORGOTTEN_AT // 10)


class Place:
    """An engine with a topic without key, whose messages are of ever new ids."""

    def __init__(self, *options: str, keys_max: int = 100_000) -> None:
        self.engine = Engine(sessions_max=10, subscriptions_max=1, keys_max=keys_max)
        self.engine.define_topic("t", TOPIC, "e")
        self.now = self.count = 0
        for number, text in enumerate(options):
            self.engine.open_session(f"s{number}", QueueLimits(100, PLENTY), lasts=True)
            granted = decide("t", TOPIC, Options.parse(text), command="subscribe")
            self.engine.subscribe(f"s{number}", "s1", granted, 0)

    def publish(self, *payloads: bytes) -> None:
        frames = [Frame(self.count + n, text, "") for n, text in enumerate(payloads, 1)]
        self.count += len(payloads)
        self.engine.publish("t", frames, self.now)

    def publish_ids(self, count: int) -> None:
        self.publish(*(b'{"id":%d}' % (self.count + n) for n in range(count)))

    def passes(self, seconds: float = 1.0) -> None:
        self.now += int(seconds * SECOND)
        self.engine.advance(self.now)

    def taken(self, session: str) -> list[Rows | Unsubscribed]:
        found: list[Rows | Unsubscribed] = []
        while outputs := self.engine.take(session, PLENTY):
            found += [it for it in outputs if isinstance(it, Rows | Unsubscribed)]
        return found

    def members(self) -> list[Member]:
        """The members of all lanes."""
        lanes = [lane for it in self.engine.topic("t").feeds.values() for lane in it.lanes.values()]
        return [it for lane in lanes for it in lane.members.values()]

    def keys(self) -> int:
        """All keys that boards of the topic have."""
        return sum(len(it.board) for it in self.engine.topic("t").feeds.values())


def rows(outputs: list[Rows | Unsubscribed]) -> list[bytes]:
    return [it.payload for out in outputs if isinstance(out, Rows) for it in out.batch.frames]


@pytest.mark.parametrize("more", ["", ",receipt", ",pace=key"])
def test_a_healthy_reader_of_ever_new_ids_costs_what_is_new(more: str) -> None:
    place = Place(f"conflation=1s,conflation_key=[/id]{more}")
    got: list[bytes] = []
    for _ in range(20):
        place.publish_ids(FORGOTTEN_AT // 4)
        place.passes(2)
        got += rows(place.taken("s0"))
    assert len(got) == len(set(got)) == place.count == 5 * FORGOTTEN_AT
    assert place.keys() <= 2 * FORGOTTEN_AT


def test_what_a_reader_behind_still_needs_is_not_forgotten() -> None:
    place = Place("conflation=1s,conflation_key=[/id]", "conflation=3s,conflation_key=[/id]")
    for _ in range(8):
        place.publish_ids(FORGOTTEN_AT // 2)
        place.passes(4)
        place.taken("s0")
    assert len(rows(place.taken("s1"))) == place.count == 4 * FORGOTTEN_AT


def test_a_key_that_was_forgotten_comes_again_as_any_other() -> None:
    place = Place("conflation=1s,conflation_key=[/id]")
    place.publish(b'{"id":-1}')
    place.publish_ids(2 * FORGOTTEN_AT)
    place.passes()
    place.taken("s0")
    place.publish_ids(2 * FORGOTTEN_AT)
    place.passes()
    place.taken("s0")
    place.publish(b'{"id":-1}')
    place.passes()
    assert rows(place.taken("s0")) == [b'{"id":-1}']


def test_a_reader_for_which_too_many_keys_wait_is_ended_and_no_other() -> None:
    keys_max = 3 * FORGOTTEN_AT
    each = "conflation=1s,conflation_key=[/id]"
    place = Place(each, each, keys_max=keys_max)
    while place.count < 2 * keys_max:
        place.publish_ids(FORGOTTEN_AT // 2)
        place.passes(2)
        place.taken("s0")
        if place.count <= keys_max:
            assert "s1" in [it.session for it in place.members()]
    [end] = [it for it in place.taken("s1") if isinstance(it, Unsubscribed)]
    assert end.reason == "BACK_PRESSURE"
    assert [it.session for it in place.members()] == ["s0"]
    assert place.keys() <= keys_max


def test_an_interval_of_a_day_has_the_same_bound() -> None:
    keys_max = 2 * FORGOTTEN_AT
    place = Place("conflation=1d,conflation_key=[/id]", keys_max=keys_max)
    for _ in range(10):
        place.publish_ids(FORGOTTEN_AT // 2)
    assert [it.reason for it in place.taken("s0") if isinstance(it, Unsubscribed)] == [
        "BACK_PRESSURE"
    ]


def test_a_stateful_lane_lets_go_of_the_keys_of_a_long_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending, "HELD_KEYS_MAX", 10)
    monkeypatch.setattr(feed, "DEFERRED_MAX", 0)  # else up to a thousand more rows are deferred
    place = Place("conflation=1d,conflation_key=[/id],receipt")
    place.publish_ids(10)
    assert place.engine.next_deadline() == 24 * 3600 * SECOND
    place.publish_ids(1)
    place.passes(0)
    assert len(rows(place.taken("s0"))) == 10


@pytest.mark.parametrize("reducer", ["append", "union"])
def test_a_row_of_lists_is_sent_before_it_is_too_large(reducer: str) -> None:
    place = Place(f"conflation=1d,conflation_key=[/k],reduce=[/a:{reducer}]")
    for number in range(9):
        place.publish(json.dumps({"k": 1, "a": [f"{number}" * (LISTS_BYTES_MAX // 3)]}).encode())
        place.passes(0)
    got = rows(place.taken("s0"))
    assert all(len(each) < LISTS_BYTES_MAX + 100 for each in got)
    found = [it[0] for each in got for it in json.loads(each)["a"]]
    # In order and once each: what is not sent yet is held.
    assert found == [str(number) for number in range(len(found))]
    assert len(found) >= 6


def test_a_reader_that_never_takes_gets_lists_in_rows_of_a_bounded_size() -> None:
    place = Place("conflation=1s,conflation_key=[/k],reduce=[/a:append]")
    for number in range(9):
        place.publish(json.dumps({"k": 1, "a": [f"{number}" * (LISTS_BYTES_MAX // 3)]}).encode())
        place.passes(2)
    got = rows(place.taken("s0"))
    assert all(len(each) < LISTS_BYTES_MAX + 100 for each in got)
    found = [it[0] for each in got for it in json.loads(each)["a"]]
    assert found == [str(number) for number in range(9)]
