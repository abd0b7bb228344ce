"""Readers disconnect, lose what was on its way, and reconnect: no row is ever lost.

The client is what it has read of the events, and it may lose the tail of those of its connection.
Its replicas must come to what the topics hold, its logs to every message in order.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rooms import PLENTY, RETRY_MS, Room, room
from tidegate.app.streams.cursor import parse_cursor
from tidegate.app.streams.reader import Reader
from tidegate.app.streams.session import Session
from tidegate.clients.sse import Event, Parser
from tidegate.conflation.frame import RemovalReason
from tidegate.keys.text.duration import SECOND

FILTERS = ("", "/k > 1", "/k < 3")
QUERY, REMOVALS, EVERY = "conflation=50ms", "conflation=50ms,oof", "conflation=none"


@dataclass
class Client:
    """What has been read: records by subscription, every message by subscription, the last id."""

    rows: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    logs: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    last_id: str = ""

    def read(self, event: Event) -> None:
        told = json.loads(event.text)
        if event.name == "message":
            for row in told["rows"]:
                self._row(told["sub"], row)
        elif event.name == "group_begin":
            self.rows[told["sub"]].clear()
        self.last_id = event.id

    def _row(self, sub: str, row: dict[str, Any]) -> None:
        [k] = row["key"]
        if row["op"] == "oof":
            self.rows[sub].pop(k, None)
            return
        self.rows[sub][k] = row["value"]["v"]
        self.logs[sub].append(row["value"]["v"])


class Play:
    """One session, its client, and what was published."""

    def __init__(self, here: Room) -> None:
        self.here = here
        self.now = 0
        self.session: Session = here.kept()
        self.subs: dict[str, tuple[str, str, int]] = {}
        self.published: list[tuple[int, int]] = []
        self.records: dict[int, int] = {}
        self.client = Client()
        self.states: list[Client] = []
        self.reader: Reader | None = None

    async def say(self, k: int) -> None:
        v = len(self.published) + 1
        self.published.append((k, v))
        self.records[k] = v
        await self.here.say({"k": k, "v": v})

    async def delete(self, k: int) -> None:
        entry = self.here.gateway.catalog.get("px")
        sow = self.here.gateway.driver.engine.topic("px").sow
        assert sow is not None
        found = [frame for frame in sow.board.live() if frame.key == f"[{k}]"]
        await self.here.gateway.writer.remove(entry, found, RemovalReason.DELETED)
        self.records.pop(k, None)

    def ask(self, kind: str, wanted: str) -> None:
        if len(self.subs) < 5:
            command = {"command": "subscribe"} if kind == EVERY else {}
            wanted = "" if kind == REMOVALS else wanted
            name = self.here.ask(self.session, options=kind, filter=wanted, **command)
            self.subs[name] = kind, wanted, len(self.published)

    def change(self, which: int, wanted: str) -> None:
        """Only of those with a snapshot: the others get new messages only."""
        names = [name for name, (kind, _, _) in self.subs.items() if kind == QUERY]
        if names:
            name = names[which % len(names)]
            request = self.session.asked[name].request.changed(filter_text=wanted)
            self.session.change(name, request, paused=None)
            self.subs[name] = QUERY, wanted, 0
            for each in (self.client, *self.states):
                each.rows[name] = {k: v for k, v in each.rows[name].items() if passes(k, wanted)}

    def end(self, which: int) -> None:
        if self.subs:
            name = list(self.subs)[which % len(self.subs)]
            self.session.unsubscribe(name)
            del self.subs[name]

    def join(self) -> None:
        """A reader comes, or takes another's place."""
        found = parse_cursor(self.client.last_id)
        number = None if found is None else found[1]
        self.reader, hello = self.here.read(self.session, number)
        self.client.last_id = hello["id"]
        self.states = [deepcopy(self.client)]

    def take(self, bytes_max: int) -> None:
        if self.reader is None:
            self.join()
        assert self.reader is not None
        self.here.gateway.driver.engine.advance(self.here.gateway.driver.now())
        parser = Parser(self.client.last_id)
        text = self.reader.consumer.notices()
        text += self.reader.encoded(self.reader.consumer.take(bytes_max), RETRY_MS)
        for event in parser.feed(text):
            self.client.read(event)
            self.states.append(deepcopy(self.client))
        self.reader.confirm()

    def lose(self, events: int, *, is_replaced: bool) -> None:
        """The connection ends; of its last events so many were not read, but for `hello`."""
        if self.reader is not None:
            kept = max(0, len(self.states) - 1 - events)
            self.client = deepcopy(self.states[kept])
            if not is_replaced:
                self.reader.close()
                self.reader = None
            else:
                self.join()

    def check(self) -> None:
        for name, (kind, wanted, since) in self.subs.items():
            matching = {k: v for k, v in self.records.items() if passes(k, wanted)}
            held = self.client.rows[name]
            if kind == EVERY:
                expected = [v for k, v in self.published[since:] if passes(k, wanted)]
                assert list(dict.fromkeys(self.client.logs[name])) == expected, name
            elif kind == REMOVALS:
                assert held == matching, name
            else:
                assert matching.items() <= held.items(), (name, held, matching)


def passes(k: int, wanted: str) -> bool:
    return {"": True, "/k > 1": k > 1, "/k < 3": k < 3}[wanted]


KINDS, WANTED = st.sampled_from((QUERY, REMOVALS, EVERY)), st.sampled_from(FILTERS)
STEPS = st.one_of(
    st.tuples(st.just("say"), st.integers(0, 4)),
    st.tuples(st.just("say"), st.integers(0, 4)),
    st.tuples(st.just("delete"), st.integers(0, 4)),
    st.tuples(st.just("take"), st.sampled_from((1, 30, PLENTY))),
    st.tuples(st.just("take"), st.sampled_from((1, 30, PLENTY))),
    st.tuples(st.just("pass")),
    st.tuples(st.just("ask"), KINDS, WANTED),
    st.tuples(st.just("change"), st.integers(0, 1), WANTED),
    st.tuples(st.just("change"), st.just(0), WANTED),
    st.tuples(st.just("end"), st.integers(0, 4)),
    st.tuples(st.just("lose"), st.integers(0, 6), st.booleans()),
    st.tuples(st.just("lose"), st.integers(0, 6), st.booleans()),
)


async def played(steps: Iterable[tuple[Any, ...]]) -> None:
    now = [0]
    async with room(clock=lambda: now[0]) as here:
        await here.topic()
        play = Play(here)
        for kind, wanted in ((QUERY, "/k > 1"), (QUERY, ""), (EVERY, "")):
            play.ask(kind, wanted)
        for name, *given_ in steps:
            match name:
                case "say":
                    await play.say(*given_)
                case "delete":
                    await play.delete(*given_)
                case "take":
                    play.take(*given_)
                case "pass":
                    play.now += SECOND
                case "ask":
                    play.ask(*given_)
                case "change":
                    play.change(*given_)
                case "end":
                    play.end(*given_)
                case "lose":
                    play.lose(given_[0], is_replaced=given_[1])
            now[0] = play.now
        before = -1
        while before != len(play.states):
            before = len(play.states)
            play.now += SECOND
            now[0] = play.now
            play.take(PLENTY)
        play.check()


@given(steps=st.lists(STEPS, min_size=20, max_size=60))
@examples(15)
def test_nothing_is_lost_however_a_reader_comes_and_goes(steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(played(steps))
