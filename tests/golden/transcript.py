"""Transcripts: the calls of a seed on the product, and each answer as lines of text."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any

from tests.golden import words
from tests.golden.calls import PLENTY, Call, make_calls
from tests.golden.history import History
from tests.golden.product import REFUSALS, AutoInterval, Product, refusal

WALL_MS = 1_700_000_000_000
SETTLE_NS = 5_000_000_000
TAKES_MAX = 300
DEADLINES_MAX = 400
FLOOD_PIECE = 500


class Transcriber:
    """One product, the histories of its topics, and the time."""

    def __init__(self, *, shares: bool = False) -> None:
        self.product = Product(sessions_max=12, subscriptions_max=9, shares=shares)
        self.now = 0
        self.histories: dict[str, History] = {}
        self.sessions: dict[str, None] = {}
        self.wanted: list[dict[str, Any]] = []
        self.epochs = 0

    def transcribe(self, calls: Iterable[Call]) -> Iterator[str]:
        """The transcript."""
        for verb, arguments in calls:
            yield f"> {verb} {json.dumps(arguments)}"
            yield from self.answered(verb, arguments)
        yield from self.settle()

    def answered(self, verb: str, arguments: dict[str, Any]) -> Iterator[str]:
        """What a call answers, then what has happened and when to come again."""
        method = getattr(self, verb, None)
        try:
            answer = getattr(self.product, verb) if method is None else method
            yield from answer(**arguments)
        except REFUSALS as error:
            yield refusal(error)
        yield from self.look()

    def look(self) -> Iterator[str]:
        """Announcements, and the next deadline; what expired is removed, as the gateway does."""
        for word, event in self.product.announcements():
            yield f"! {word} {json.dumps(event)}"
            if word == "past":
                self.wanted.append(event)
            if word == "expired":
                rows = self.histories[event["topic"]].expired(event["through"])
                yield from self.publish(event["topic"], rows)
        yield f"@ {self.now} next {self.product.next_deadline}"

    @property
    def now_ms(self) -> int:
        return WALL_MS + self.now // 1_000_000

    # Topics

    def define(self, topic: str, definition: dict[str, Any]) -> Iterator[str]:
        if topic not in self.histories:
            self.histories[topic] = History(self.epoch(), definition["retains"])
        yield from self.product.define(topic, definition, self.histories[topic].epoch)

    def epoch(self) -> str:
        self.epochs += 1
        return f"e{self.epochs}"

    def drop(self, topic: str) -> Iterator[str]:
        yield from self.product.drop(topic)
        del self.histories[topic]

    def renew(self, topic: str, journal: int, tombstones: int, shift_ms: int) -> Iterator[str]:
        """In another epoch, with what was kept; positions go on."""
        history = self.histories.get(topic)
        if history is None:
            yield "no such topic"
            return
        history.epoch = self.epoch()
        kept = history.kept(journal, tombstones)
        now_ms = self.now_ms + shift_ms
        yield from self.product.renew(topic, history.epoch, kept, self.now, now_ms)

    def restart(
        self, topic: str, definition: dict[str, Any], journal: int, tombstones: int, shift_ms: int
    ) -> Iterator[str]:
        history = self.histories[topic]
        yield from self.product.drop(topic)
        yield from self.product.define(topic, definition, history.epoch)
        kept = history.kept(journal, tombstones)
        yield from self.product.restore(topic, kept, self.now, self.now_ms + shift_ms)

    def checkpoint(self, topic: str, back: int) -> Iterator[str]:
        history = self.histories.get(topic)
        head = 0 if history is None else history.head
        yield from self.product.checkpoint(topic, max(0, head - back))

    def archive(self, topic: str, first: int, back: int) -> Iterator[str]:
        history = self.histories.get(topic)
        if history is None or history.head - back <= first:
            yield "nothing to archive"
            return
        there = history.messages[first : len(history.messages) - back]
        stamps = [[one.at_ms, one.offset] for one in there[::3]]
        last = there[-1].offset
        yield from self.product.archive(topic, there[0].offset, last, stamps)

    def bring(self, most: int) -> Iterator[str]:
        """To the one that has waited for the longest."""
        if not self.wanted:
            yield "nothing is wanted"
            return
        wanted = self.wanted.pop(0)
        history = self.histories.get(wanted["topic"])
        is_there = history is not None and history.epoch == wanted["epoch"]
        piece = history.after(wanted["after"], most) if history and is_there else []
        yield f"bring {json.dumps(wanted)} {len(piece)}"
        yield from self.product.bring(wanted, piece, self.now)

    def history(self, topic: str, back: int | None, most: int) -> Iterator[str]:
        history = self.histories.get(topic)
        offset = None if back is None or history is None else max(0, history.head - back)
        yield from self.product.history(topic, offset, most)

    def publish(self, topic: str, rows: list[dict[str, Any]]) -> Iterator[str]:
        history = self.histories.get(topic) or History("none", keeps_records=True)
        messages = history.make(rows, self.now_ms)
        if messages or topic not in self.histories:
            yield from self.product.publish(topic, messages, self.now)
        history.add(messages)

    def flood(self, topic: str, brings: str, rows: int) -> Iterator[str]:
        """In pieces, each its own call."""
        for start in range(0, rows, FLOOD_PIECE):
            made = list(words.flood(brings, range(start, start + FLOOD_PIECE)))
            yield from self.publish(topic, made)
            self.now += 1_000_000
            yield from self.product.advance(self.now)

    def records(self, topic: str, back: int) -> Iterator[str]:
        history = self.histories.get(topic)
        head = 0 if history is None else history.head
        yield from self.product.records(topic, max(0, head - back))

    # Sessions

    def open(
        self, session: str, limits: list[int], *, lasts: bool, conflated: bool
    ) -> Iterator[str]:
        self.sessions[session] = None
        yield from self.product.open(session, limits, lasts=lasts, conflated=conflated)

    def conflate_idle(self) -> Iterator[str]:
        yield from self.product.conflate_idle(self.now)

    def topic_stats(self, topic: str) -> Iterator[str]:
        yield from self.product.topic_stats(topic, list(self.sessions))

    # Subscriptions

    def subscribe(
        self, session: str, name: str, topic: str, asked: dict[str, Any]
    ) -> Iterator[str]:
        place, resume = asked["start"], asked["resume"]
        if place is not None:
            options = asked["options"].replace("bookmark=@", f"bookmark={self.start(topic, place)}")
            asked = {**asked, "options": options}
        if resume is not None:
            asked = {**asked, "resume": self.start(topic, resume)}
        yield from self.product.subscribe(session, name, topic, asked, self.now)

    def start(self, topic: str, place: dict[str, Any]) -> str:
        """A place in a topic, as text."""
        if "word" in place:
            return str(place["word"])
        if "ago_ms" in place:
            return iso_time(self.now_ms - place["ago_ms"])
        history = self.histories.get(topic)
        epoch = place.get("epoch") or ("none" if history is None else history.epoch)
        head = 0 if history is None else history.head
        return f"{epoch}-{max(0, head - place['back'])}"

    def change(self, session: str, name: str, topic: str, asked: dict[str, Any]) -> Iterator[str]:
        yield from self.product.change(session, name, topic, asked, self.now)

    def trace(self, session: str, name: str, topic: str) -> Iterator[str]:
        yield from self.product.trace(session, name, topic, self.now)

    # Time and what goes out

    def advance(self, step_ns: int) -> Iterator[str]:
        self.now += step_ns
        yield from self.product.advance(self.now)

    def serve(self, step_ns: int) -> Iterator[str]:
        """Every deadline at its time."""
        until = self.now + step_ns
        for _ in range(DEADLINES_MAX):
            due = self.product.next_deadline
            if due is None or due > until:
                break
            self.now = max(self.now, due)
            yield from self.product.advance(self.now)
            yield from self.look()
        self.now = until
        yield from self.product.advance(self.now)

    def take(self, session: str, bytes_max: int, *, whole: bool) -> Iterator[str]:
        for _ in range(TAKES_MAX if whole else 1):
            lines, goes_on = self.product.take(session, bytes_max)
            yield from lines
            if not goes_on:
                break

    def take_all(self, sessions: list[str]) -> Iterator[str]:
        yield from self.product.take_all(sessions)

    def settle(self) -> Iterator[str]:
        """Everybody takes all that is left, and time goes on until nothing is held."""
        yield "> settle"
        for _ in range(3):
            while self.wanted:
                yield from self.answered("bring", {"most": 7})
            for session in self.sessions:
                yield from self.answered(
                    "take", {"session": session, "bytes_max": PLENTY, "whole": True}
                )
            yield from self.answered("serve", {"step_ns": SETTLE_NS})
        yield from self.product.read_traces()
        for session in self.sessions:
            yield from self.answered("session_stats", {"session": session})
        yield from self.product.stats()


def iso_time(ms: int) -> str:
    """A time as the options language reads it; the transcriber's times lie within some hours."""
    seconds, rest = divmod(ms - WALL_MS, 1_000)
    total = 22 * 3_600 + 13 * 60 + 20 + seconds  # 1.7e9 s is 2023-11-14T22:13:20Z
    hours, left = divmod(total, 3_600)
    minutes, left = divmod(left, 60)
    return f"2023-11-14T{hours:02}:{minutes:02}:{left:02}.{rest:03}Z"


def auto_lines(seed: int) -> Iterator[str]:
    """A socket, quick and slow by turns, and the decisions of `conflation=auto` about it."""
    chance = random.Random(seed)
    shortest, longest = chance.choice(((50, 30_000), (50, 500), (200, 2_000), (100, 10_000)))
    auto = AutoInterval(shortest * 1_000_000, longest * 1_000_000)
    now = unsent = 0
    for _ in range(chance.randint(3, 9)):
        drained = chance.choice((1.0, 1.0, 0.9, 0.6, 0.2, 0.0))
        jitter, is_full = chance.choice((0, 0, 5_000_000)), chance.random() < 0.15
        for _ in range(chance.choice((5, 30, 150))):
            now += auto.interval_ns // chance.choice((1, 1, 1, 3)) + chance.randint(0, jitter)
            unsent -= int(unsent * drained)
            flush_bytes = 0 if chance.random() < 0.1 else chance.choice((90, 900, 9_000))
            seen = {
                "flush_bytes": flush_bytes,
                "unsent_bytes": unsent,
                "round_trip_ns": chance.choice((0, 1_000_000, 40_000_000)),
                "is_full": is_full,
            }
            yield f"> socket {now} {json.dumps(seen)}"
            yield from auto.observe(now, seen)
            unsent += flush_bytes
            if chance.random() < 0.6:
                now += chance.choice((1, 10, 30)) * 1_000_000
                unsent -= int(unsent * drained)
                look = {**seen, "flush_bytes": 0, "unsent_bytes": unsent}
                yield f"> look {now} {json.dumps(look)}"
                yield from auto.observe(now, look)


def transcript(seed: int) -> Iterator[str]:
    """All lines of a seed; one in ten has a socket beside the engine."""
    yield from Transcriber().transcribe(make_calls(seed))
    if seed % 10 == 0:
        yield from auto_lines(seed)
