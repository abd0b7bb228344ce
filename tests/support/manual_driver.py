"""An engine under a clock that stands still until told, for tests that read as stories.

Messages are written as tokens: `a1` is `{"k":"a","v":1}`, `aX1` has a group field as well,
`{"k":"a","g":"X","v":1}`. What comes out is written the same way, a string for each output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tests.support.announced import announced_by
from tidegate.conflation import steps
from tidegate.conflation.definition import Definition, History, QueuePolicy
from tidegate.conflation.engine import Engine
from tidegate.conflation.frame import Batch, Frame, RemovalReason, Row, Tombstone, receipt_of
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import (
    Announcement,
    Goodbye,
    GroupBegin,
    GroupEnd,
    Output,
    Resumed,
    Rows,
    Subscribed,
    Unsubscribed,
)
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.subscription import Subscription
from tidegate.keys.spec import KeySpec, record_key
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import MILLISECOND, parse_duration

PLENTY = 1 << 30
_TOKEN = re.compile(r"([a-z])([A-Z]?)(\d+)")


def payload(token: str) -> bytes:
    """The message that a token stands for."""
    found = _TOKEN.fullmatch(token)
    assert found is not None, f"not a token: {token}"
    group = f'"g":"{found[2]}",' if found[2] else ""
    return f'{{"k":"{found[1]}",{group}"v":{found[3]}}}'.encode()


def token(frame: Frame) -> str:
    """The token of a frame's message; a removal has a minus in front, a delta a tilde."""
    fields = msgspec.json.decode(frame.payload)
    mark = "-" if frame.removed else "~" if isinstance(frame, Row) and frame.patch else ""
    return f"{mark}{fields.get('k', '')}{fields.get('g', '')}{fields.get('v', '')}"


def tokens(frames: Iterable[Frame]) -> str:
    """Tokens of frames, in their order."""
    return " ".join(token(frame) for frame in frames)


def make_frames(text: str, first: int = 1, key: str = "[/k]") -> list[Frame]:
    """Frames of the tokens in a text, numbered from `first`, keyed by these fields."""
    key_of = record_key(KeySpec.parse(key)) if key else lambda _: ""
    return [
        Frame(offset, payload(word), key_of(payload(word)), timestamp_ms=offset)
        for offset, word in enumerate(text.split(), first)
    ]


def described(outputs: Iterable[Output]) -> list[str]:
    """Outputs as a story: rows as tokens, the rest as words."""
    return [_described(output) for output in outputs]


def _described(output: Output) -> str:
    match output:
        case Rows(op="publish", batch=batch):
            return tokens(batch.frames)
        case Rows(op=op, batch=batch):
            return f"{op}: {tokens(batch.frames)}"
        case GroupBegin(rows=rows):
            return f"group of {rows}"
        case GroupEnd(bookmark=bookmark):
            return f"group ends at {bookmark}"
        case Resumed(mode=mode, gap_messages=gap):
            return f"resumed by {mode}, gap {gap}"
        case Subscribed(topic=topic):
            return f"subscribed to {topic}"
        case Unsubscribed(topic=topic, reason=reason):
            return f"unsubscribed from {topic}: {reason}"
        case Goodbye(reason=reason):
            return f"goodbye {reason}"


def counts(outputs: Iterable[Output]) -> list[tuple[str, int, int]]:
    """Each row with the messages that it stands for and the offset of the first."""
    rows = [frame for batch in batches(outputs) for frame in batch.frames]
    return [(token(row), receipt_of(row).messages, receipt_of(row).first) for row in rows]


def batches(outputs: Iterable[Output]) -> list[Batch]:
    """The batches of all rows."""
    return [output.batch for output in outputs if isinstance(output, Rows)]


def ids(outputs: Iterable[Output]) -> list[int | None]:
    """The low-water mark of each batch, as an offset."""
    return [batch.low_water for batch in batches(outputs)]


class ManualDriver:
    """An engine and its clock; verbs with short words and telling defaults."""

    def __init__(
        self,
        *,
        sessions_max: int = 100,
        subscriptions_max: int = 16,
        items_at_once: int | None = None,
    ) -> None:
        """`items_at_once`: of each step for the rest of the test; None: there are no steps."""
        if items_at_once is not None:
            steps.ITEMS_AT_ONCE = items_at_once
        self.engine = Engine(
            sessions_max=sessions_max,
            subscriptions_max=subscriptions_max,
            in_steps=items_at_once is not None,
        )
        self.now = 0
        self._subscribed = 0

    def topic(
        self,
        name: str = "px",
        key: str = "[/k]",
        *,
        policy: str = "conflate",
        history: int = 1_000,
        epoch: str = "e1",
        expiration: str | None = None,
        **more: Any,
    ) -> None:
        """Define a topic; an empty `key` makes a plain one. `more` are the definition's fields."""
        spec = KeySpec.parse(key) if key else KeySpec()
        definition = Definition(
            History(history),
            spec,
            QueuePolicy(policy),
            expiration_ns=None if expiration is None else parse_duration(expiration),
            **more,
        )
        self.engine.define_topic(name, definition, epoch)

    def session(
        self,
        name: str = "s",
        *,
        messages_max: int = 1_000,
        bytes_max: int = PLENTY,
        conflated: bool = True,
        lasts: bool = False,
    ) -> None:
        """Open a session."""
        limits = QueueLimits(messages_max, bytes_max)
        self.engine.open_session(name, limits, conflated=conflated, lasts=lasts)

    def subscribe(
        self,
        options: str = "",
        *,
        topic: str = "px",
        session: str = "s",
        command: str | None = "subscribe",
        resume: str | None = None,
        counted: bool = False,
        wanted: str = "",
        order: str = "",
    ) -> str:
        """Subscribe, opening the session if need be; returns the subscription's name."""
        try:
            self.engine.session_stats(session)
        except ValueError:
            self.session(session)
        self._subscribed += 1
        name = f"sub{self._subscribed}"
        request = self.request(
            options,
            topic=topic,
            command=command,
            resume=resume,
            counted=counted,
            wanted=wanted,
            order=order,
        )
        self.engine.subscribe(session, name, request, self.now)
        return name

    def request(
        self,
        options: str = "",
        *,
        topic: str = "px",
        command: str | None = "subscribe",
        resume: str | None = None,
        counted: bool = False,
        wanted: str = "",
        order: str = "",
    ) -> Subscription:
        """A request, decided as the gateway decides it."""
        return decide(
            topic,
            self.engine.topic(topic).definition,
            Options.parse(options),
            command=command,
            filter_text=wanted,
            order_text=order,
            resume=None if resume is None else Bookmark.parse(resume),
            counted=counted,
        )

    def change(self, name: str, options: str = "", *, session: str = "s", **more: Any) -> None:
        """Give a subscription new options."""
        self.engine.change(session, name, self.request(options, **more), self.now)

    def remove(
        self,
        text: str,
        *,
        topic: str = "px",
        reason: RemovalReason = RemovalReason.DELETED,
        key: str = "[/k]",
    ) -> None:
        """Delete the records that the tokens of a text name."""
        found = self.engine.topic(topic)
        removals = [
            Tombstone(frame.offset, b"", frame.key, frame.timestamp_ms, reason=reason)
            for frame in make_frames(text, found.head + 1, key)
        ]
        self.engine.publish(topic, removals, self.now)

    def publish(self, text: str, *, topic: str = "px", exempt: bool = False) -> None:
        """Publish the tokens of a text in one call."""
        found = self.engine.topic(topic)
        key = str(found.definition.key_spec) if found.definition.key_spec else ""
        frames = [
            Frame(frame.offset, frame.payload, frame.key, frame.timestamp_ms, exempt)
            for frame in make_frames(text, found.head + 1, key)
        ]
        self.engine.publish(topic, frames, self.now)

    def publish_documents(self, *documents: dict[str, object], topic: str = "px") -> None:
        """Publish JSON objects in one call, stamped with the clock's time."""
        found = self.engine.topic(topic)
        spec = found.definition.key_spec
        key_of = record_key(spec) if spec else lambda _: ""
        payloads = [msgspec.json.encode(document) for document in documents]
        frames = [
            Frame(offset, payload, key_of(payload), self.now // MILLISECOND)
            for offset, payload in enumerate(payloads, found.head + 1)
        ]
        self.engine.publish(topic, frames, self.now)

    def wait(self, duration: str) -> None:
        """Let time pass as a driver does: from deadline to deadline, each one served on time."""
        end = self.now + parse_duration(duration)
        while (deadline := self.engine.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.engine.advance(self.now)
        self.now = end

    def sleep(self, duration: str) -> None:
        """Let time pass without the engine being called: a driver that is late."""
        self.now += parse_duration(duration)

    def flush(self) -> None:
        """Advance without letting time pass, as a driver does at the end of its turn."""
        self.engine.advance(self.now)

    def take(self, session: str = "s", bytes_max: int = PLENTY) -> list[Output]:
        """Everything that a session can take, in pieces of `bytes_max`."""
        taken: list[Output] = []
        while outputs := self.engine.take(session, bytes_max):
            taken += outputs
            if any(isinstance(output, Goodbye) for output in outputs):
                break
        return taken

    def take_once(self, bytes_max: int, session: str = "s") -> list[Output]:
        """One piece."""
        return self.engine.take(session, bytes_max)

    def received(self, session: str = "s", bytes_max: int = PLENTY) -> list[str]:
        """Everything that a session can take, told as a story."""
        return described(self.take(session, bytes_max))

    def announcements(self) -> list[Announcement]:
        """What the engine has announced."""
        return self.engine.announcements()

    def announced(self) -> list[str]:
        """The sessions that were told to take."""
        return [session for event in self.announcements() for session in announced_by(event)]


def sizes(words: Sequence[str]) -> int:
    """Payload bytes of some tokens."""
    return sum(len(payload(word)) for word in words)
