"""Pages of a polled stream: readers who follow positions end with the records, whatever they got.

A cache may answer with any page that was ever made for a position, and readers come and go.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgspec
import pytest

from tests.support.profiles import NIGHTLY, SEARCHED_FOR_EACH, SEED
from tests.support.rules import rule
from tidegate.app.refusals import Refused
from tidegate.app.streams import polled_pages
from tidegate.app.streams.polled_pages import Page, Position, RecordPages, RowForm, mark_of
from tidegate.conflation.definition import Definition, History, Kind
from tidegate.conflation.frame import Frame, Tombstone
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.subscription import Command
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.select import Select
from tidegate.keys.spec import KeySpec

DEFINITION = Definition(History(messages_max=100), KeySpec.parse("[/k]"))
KEYS = 6


def row_payload(key: int, value: int) -> bytes:
    """The message of a key; values rise with time."""
    return msgspec.json.encode({"k": key, "v": value})


@dataclass
class Reader:
    """Follows a stream; `records` is what it shows."""

    position: Position | None = None
    records: dict[str, Any] = field(default_factory=dict)
    is_current: bool = False

    def follow(self, page: Page) -> None:
        """Take in a page that begins where the reader is."""
        assert page.since == self.position
        for row in msgspec.json.decode(page.body):
            self._take(row)
        self.position, self.is_current = page.next, page.is_last

    def _take(self, row: dict[str, Any]) -> None:
        if row["headers"].get("control") == "reset":
            self.records.clear()
            return
        key, operation = row["key"], row["headers"]["operation"]
        if operation == "delete":
            self.records.pop(key, None)
            return
        before = self.records.get(key)
        assert before is None or before["v"] <= row["value"]["v"], "a key has gone back"
        self.records[key] = row["value"]


class World:
    """A topic that changes, its pages, and a cache that has kept some of them."""

    def __init__(self, random: Random, filter_text: str) -> None:
        self.random = random
        self.topic = Topic("px", DEFINITION, "e1")
        options = Options.of(conflation=1_000_000_000, oof=True)
        subscription = decide(
            "px", DEFINITION, options, command=Command.SUBSCRIBE, filter_text=filter_text
        )
        self.feed_id = subscription.lane_id.feed
        self.topic.lane(subscription.lane_id)
        self.lane_id = subscription.lane_id
        self.pages = RecordPages(subscription, RowForm.STATE, Kind.JSON)
        self.filter = self.feed_id.filter
        self.kept: dict[Position | None, list[Page]] = {}
        self.time = 0
        self.page(None)

    def publish(self) -> None:
        """Publish a few messages and removals."""
        frames: list[Frame] = []
        for _ in range(self.random.randint(1, 4)):
            self.time += 1
            key = self.random.randrange(KEYS)
            offset = self.topic.head + len(frames) + 1
            if self.random.random() < 0.3:
                frames.append(Tombstone(offset, b"", f"[{key}]", self.time))
            else:
                frames.append(Frame(offset, row_payload(key, self.time), f"[{key}]", self.time))
        self.topic.publish(frames, self.time)

    def forget(self) -> None:
        """Let the board forget its removals, as one does that has very many."""
        self.topic.feeds[self.feed_id].board.trim(self.topic.head)

    def restart(self) -> None:
        """Begin another epoch with nothing in it."""
        self.topic = self.topic.successor(f"e{self.time + 2}")
        self.topic.lane(self.lane_id)
        self.kept.clear()  # positions of another epoch have other addresses

    def page(self, since: Position | None) -> Page:
        """A fresh page, which the cache keeps."""
        page = self.pages.page(self.topic, since)
        self.kept.setdefault(since, []).append(page)
        return page

    def answer(self, since: Position | None) -> Page:
        """A page that is fresh, or as old as the cache has one."""
        kept = self.kept.get(since)
        return self.random.choice(kept) if kept and self.random.random() < 0.5 else self.page(since)

    def records(self) -> dict[str, Any]:
        """What a reader has to show."""
        assert self.topic.sow is not None
        live = self.topic.sow.board.live()
        matches = (lambda payload, key: True) if self.filter is None else self.filter.matcher("px")
        return {
            frame.key: msgspec.json.decode(frame.payload)
            for frame in live
            if matches(frame.payload, frame.key)
        }


@rule("polling-1", "polling-3", "polling-4", "polling-6")
@pytest.mark.parametrize("filter_text", ["", "/v % 3 != 0"])
@pytest.mark.parametrize("rows_at_once", [1, 2, 50])
def test_whoever_follows_positions_ends_with_the_records(
    filter_text: str, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small pages, so that a snapshot is read while the topic changes.
    monkeypatch.setattr(polled_pages, "ROWS_AT_ONCE", rows_at_once)
    for seed in range(SEED, SEED + (SEARCHED_FOR_EACH if NIGHTLY else 1) * 20):
        follow_positions(seed, filter_text)


def follow_positions(seed: int, filter_text: str) -> None:
    """Play one history; every reader must end with the records."""
    random = Random(seed)
    world = World(random, filter_text)
    readers = [Reader() for _ in range(4)]
    for _ in range(120):
        act = random.random()
        if act < 0.4:
            world.publish()
        elif act < 0.43:
            world.forget()
        elif act < 0.45:
            world.restart()
        elif act < 0.5:
            readers[random.randrange(len(readers))] = Reader()
        else:
            reader = random.choice(readers)
            reader.follow(world.answer(reader.position))
    for reader in readers:
        for _ in range(200):
            reader.follow(world.page(reader.position))
            if reader.is_current:
                break
        assert reader.records == world.records(), f"seed {seed}"


@rule("polling-3")
def test_values_alone_cannot_say_that_removals_are_forgotten() -> None:
    world = World(Random(1), "")
    pages = RecordPages(
        decide("px", DEFINITION, Options.of(conflation=1, oof=True), command=Command.SUBSCRIBE),
        RowForm.VALUE,
        Kind.JSON,
    )
    world.publish()
    with pytest.raises(Refused, match="bookmark-expired"):
        pages.page(world.topic, Position("e0", 1))


def test_positions_of_an_epoch_are_in_the_order_of_their_texts() -> None:
    places = [
        Position("e1", 9, 12),
        Position("e1", 10, 12),
        Position("e1", 12),
        Position("e1", 100),
    ]
    marked = [replace(place, mark="0123456789") for place in places]
    assert sorted(marked, key=str) == marked
    assert [Position.parse(str(place)) for place in marked] == marked
    assert sorted(places, key=str) == places
    assert [Position.parse(str(place)) for place in places] == places
    assert Position.parse("e1-7") == Position("e1", 7)


@rule("polling-3")
def test_a_mark_tells_apart_what_is_read_and_nothing_else() -> None:
    def marked(filter_text: str = "", form: RowForm = RowForm.STATE, **options: Any) -> str:
        wanted = Options.of(**{"conflation": 1_000_000_000, "oof": True, **options})
        command = None if "top_n" in options else Command.SUBSCRIBE
        found = decide("px", DEFINITION, wanted, command=command, filter_text=filter_text)
        return mark_of(found, form, Kind.JSON)

    # As written down: all gateways of a topic, and later versions, know each other's positions.
    assert marked() == "6792299241"
    assert marked(conflation=5_000_000_000) == marked()
    assert marked("/v > 1") == marked("(/v>1)")
    others = [
        marked("/v > 1"),
        marked("/v > 2"),
        marked(form=RowForm.VALUE),
        marked(select=Select.parse("[-/v]")),
        marked(top_n=3),
        marked(top_n=4),
        marked(top_n=3, skip_n=1),
    ]
    assert len({marked(), *others}) == 1 + len(others)
