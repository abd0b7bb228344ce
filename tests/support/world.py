"""An engine under a clock that stands still until told, for tests that read as stories.

Messages are written as tokens: `a1` is `{"k":"a","v":1}`, `aX1` has a group field as well,
`{"k":"a","g":"X","v":1}`. What comes out is written the same way, a string for each output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from conflation.bookmark import Bookmark
from conflation.definition import Definition, QueuePolicy
from conflation.duration import parse_duration
from conflation.engine import Engine
from conflation.frame import Batch, Frame
from conflation.log import History
from conflation.options import Options
from conflation.outputs import (
    Event,
    Goodbye,
    GroupBegin,
    GroupEnd,
    Output,
    Resumed,
    Rows,
    SessionReady,
    Unsubscribed,
)
from conflation.session import QueueLimits
from conflation.subscription import decide
from keys.extract import record_key
from keys.spec import KeySpec

PLENTY = 1 << 30
_TOKEN = re.compile(r"([a-z])([A-Z]?)(\d+)")


def payload(token: str) -> bytes:
    """The message that a token stands for."""
    found = _TOKEN.fullmatch(token)
    assert found is not None, f"not a token: {token}"
    group = f'"g":"{found[2]}",' if found[2] else ""
    return f'{{"k":"{found[1]}",{group}"v":{found[3]}}}'.encode()


def token(frame: Frame) -> str:
    """The token of a frame's message; a tombstone has a minus in front."""
    fields = msgspec.json.decode(frame.payload)
    return f"{'-' if frame.removed else ''}{fields['k']}{fields.get('g', '')}{fields['v']}"


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


def told(outputs: Iterable[Output]) -> list[str]:
    """Outputs as a story: rows as tokens, the rest as words."""
    return [_told(output) for output in outputs]


def _told(output: Output) -> str:
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
        case Unsubscribed(topic=topic, reason=reason):
            return f"unsubscribed from {topic}: {reason}"
        case Goodbye(reason=reason):
            return f"goodbye {reason}"


def batches(outputs: Iterable[Output]) -> list[Batch]:
    """The batches of all rows."""
    return [output.batch for output in outputs if isinstance(output, Rows)]


def ids(outputs: Iterable[Output]) -> list[int | None]:
    """The low-water mark of each batch, as an offset."""
    return [batch.low_water for batch in batches(outputs)]


class World:
    """An engine and its clock; verbs with short words and telling defaults."""

    def __init__(self, *, sessions_max: int = 100, subscriptions_max: int = 16) -> None:
        self.engine = Engine(sessions_max=sessions_max, subscriptions_max=subscriptions_max)
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
    ) -> None:
        """Define a topic; an empty `key` makes a plain one."""
        spec = KeySpec.parse(key) if key else KeySpec()
        definition = Definition(History(history), spec, QueuePolicy(policy))
        self.engine.define_topic(name, definition, epoch)

    def session(
        self, name: str = "s", *, messages_max: int = 1_000, bytes_max: int = PLENTY
    ) -> None:
        """Open a session."""
        self.engine.open_session(name, QueueLimits(messages_max, bytes_max))

    def subscribe(
        self,
        options: str = "",
        *,
        topic: str = "px",
        session: str = "s",
        command: str | None = "subscribe",
        resume: str | None = None,
        tells_first: bool = False,
    ) -> str:
        """Subscribe, opening the session if need be; returns the subscription's name."""
        try:
            self.engine.session_stats(session)
        except ValueError:
            self.session(session)
        self._subscribed += 1
        name = f"sub{self._subscribed}"
        sow_spec = self.engine.topic(topic).definition.key_spec
        bookmark = None if resume is None else Bookmark.parse(resume)
        wish = decide(
            topic,
            sow_spec,
            Options.parse(options),
            command=command,
            resume=bookmark,
            tells_first=tells_first,
        )
        self.engine.subscribe(session, name, wish)
        return name

    def say(self, text: str, *, topic: str = "px") -> None:
        """Publish the tokens of a text in one call."""
        found = self.engine.topic(topic)
        key = str(found.definition.key_spec) if found.definition.key_spec else ""
        self.engine.publish(topic, make_frames(text, found.head + 1, key), self.now)

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

    def hears(self, session: str = "s", bytes_max: int = PLENTY) -> list[str]:
        """Everything that a session can take, told as a story."""
        return told(self.take(session, bytes_max))

    def events(self) -> list[Event]:
        """What the engine has announced."""
        return self.engine.events()

    def announced(self) -> list[str]:
        """The sessions that were told to take."""
        return [event.session for event in self.events() if isinstance(event, SessionReady)]


def sizes(words: Sequence[str]) -> int:
    """Payload bytes of some tokens."""
    return sum(len(payload(word)) for word in words)
