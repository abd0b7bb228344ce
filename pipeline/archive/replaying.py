"""A replay into a topic: request after request, each of which takes effect once."""

from __future__ import annotations

import base64
import math
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tidegate.clients import BODY_BYTES_MAX
from tidegate.clients.errors import GatewayProblem
from tidegate.clients.gateway import Gateway
from tidegate.clients.requests import NDJSON
from tidegate.keys.text.rate import Rate
from tidegate.keys.text.time import time_text
from tidegate.pipeline.archive.folder import TopicShape
from tidegate.pipeline.archive.recorded import BEGINNING, History, Recorded, RecordedPlace, Window
from tidegate.pipeline.atomic_files import lock, write
from tidegate.pipeline.connection import pipeline_error
from tidegate.pipeline.errors import (
    ArchiveUnusable,
    CheckpointUnusable,
    GatewayRefused,
    HistoryInvalid,
    InUse,
)
from tidegate.pipeline.operations.shutdown import Stop
from tidegate.pipeline.operations.status import counted

# --- pacing: when messages are due, and which of them share a request
#
# The clock is an argument, so that a test replays a day in a moment.

MESSAGES_PER_REQUEST = 1_000
TICK_S = 0.02  # messages due within one tick share a request, at its end
ROUNDING = 1e-6  # of a tick, by which sums of gaps may be off
BURST_S = 1.0
"""How much of a delay a replay may make up for by exceeding its speed."""


class Clock:
    """The real clock; a signal ends its waits."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def now_s(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Return after so long, or at once when asked to stop."""
        self._stop.wait(seconds)

    @property
    def stopped(self) -> bool:
        """True if a signal has come."""
        return self._stop.asked


class Pacing:
    """Says when each message is due, one after the other; without a rate at once.

    A silence, recorded or following from the rate, lasts at most `gap_s_max`. The recorded clock
    never runs back.
    """

    def __init__(self, rate: Rate | None, gap_s_max: float | None, begun_s: float) -> None:
        self._gap_s = _gap_of(rate)
        self._gap_s_max = gap_s_max
        self._begun_s = self._last_s = begun_s
        self._before: Recorded | None = None

    def due_s(self, message: Recorded) -> float:
        """Return when this message may be sent, as the next one after the last that was sent."""
        if self._before is None:
            return self._last_s
        gap_s = self._gap_s(self._before, message)
        return self._last_s + (gap_s if self._gap_s_max is None else min(gap_s, self._gap_s_max))

    def tick_s(self, message: Recorded) -> float:
        """Return the end of the tick in which this message is due: a little later, never sooner."""
        # Without ROUNDING a sum of gaps that is off by a bit would miss its own tick by a whole
        # one.
        ticks = (self.due_s(message) - self._begun_s) / TICK_S
        return self._begun_s + math.ceil(ticks - ROUNDING) * TICK_S

    def went(self, message: Recorded, now_s: float) -> None:
        """Record that a message is sent."""
        # Catch up at most BURST_S: after a long outage a replay must not flood the topic.
        self._last_s = max(self.due_s(message), now_s - BURST_S)
        self._before = message


def requests(
    messages: Iterable[Recorded],
    pacing: Pacing,
    clock: Clock,
    messages_max: int = MESSAGES_PER_REQUEST,
) -> Iterator[list[Recorded]]:
    """Yield the messages of each request when it is due; end early when asked to stop."""
    held: list[Recorded] = []
    held_bytes = 0
    for message in messages:
        due_s = pacing.tick_s(message)
        full = len(held) >= messages_max or held_bytes + message.size > BODY_BYTES_MAX
        if held and (full or due_s > clock.now_s()):
            yield held
            held, held_bytes = [], 0
        while (wait_s := due_s - clock.now_s()) > 0 and not clock.stopped:
            clock.wait(wait_s)
        if clock.stopped:
            break
        pacing.went(message, clock.now_s())
        held.append(message)
        held_bytes += message.size
    if held:
        yield held


def _gap_of(rate: Rate | None) -> Callable[[Recorded, Recorded], float]:
    """Return a function: two successive messages -> the seconds between them."""
    if rate is None:
        return lambda before, message: 0.0
    if rate.messages_per_s is not None:
        steady_s = 1 / rate.messages_per_s
        return lambda before, message: steady_s
    if rate.bytes_per_s is not None:
        per_byte_s = 1 / rate.bytes_per_s
        return lambda before, message: before.size * per_byte_s
    per_ms_s = 1 / 1000 / (rate.times or 1.0)
    return lambda before, message: (message.clock_ms - before.clock_ms) * per_ms_s


# --- the bodies of requests, by the type of the topic
#
# A topic of JSON takes envelopes, many in a request. Texts and bytes go as they are, one in a
# request. An archive has a text as a JSON string, and bytes as base64 in one.

_MEDIA_TYPES = {"text": "text/plain", "binary": "application/octet-stream"}


def media_type_of(kind: str) -> str:
    """Return the media type of requests to a topic of a type."""
    return _MEDIA_TYPES.get(kind, NDJSON)


def messages_max_of(kind: str) -> int:
    """Return the most messages that a request to a topic of a type carries."""
    return 1 if kind in _MEDIA_TYPES else MESSAGES_PER_REQUEST


def body_of(kind: str, messages: Sequence[Recorded]) -> bytes:
    """Return the body of a request to a topic of a type, with at most its number of messages.

    Raises:
        HistoryInvalid: a message is none for a topic of texts or bytes.
    """
    match kind:
        case "text":
            return _string(kind, messages[0]).encode()
        case "binary":
            return _bytes(messages[0])
        case _:
            return b"\n".join(map(_envelope, messages)) + b"\n"


def _envelope(message: Recorded) -> bytes:
    """Return the envelope of a message or removal on one line.

    Valid JSON has line breaks only between tokens, so a blank may replace each.
    """
    if message.value is not None:
        return b'{"value":%b}' % message.value.replace(b"\n", b" ").replace(b"\r", b" ")
    key_text, reason = message.key_text or "null", msgspec.json.encode(message.reason)
    return b'{"key":%b,"reason":%b}' % (key_text.encode(), reason)


def _string(kind: str, message: Recorded) -> str:
    try:
        return msgspec.json.decode(message.value or b"", type=str)
    except msgspec.DecodeError:
        raise HistoryInvalid(
            f"{message.location}: a topic of type {kind} takes strings, and this is none"
        ) from None


def _bytes(message: Recorded) -> bytes:
    try:
        return base64.b64decode(_string("binary", message), validate=True)
    except ValueError:
        raise HistoryInvalid(
            f"{message.location}: a topic of type binary takes base64, and this is none"
        ) from None


# --- the checkpoint: a kill neither loses nor doubles
#
# Before a request is sent, its number and its stretch of messages are noted. After a kill exactly
# that stretch is sent again under that number, and the gateway knows whether it has it.

PRODUCER_PREFIX = "tidegate.replay."


class ReplayState(msgspec.Struct, frozen=True):
    """Request `sequence` of `producer` has the messages after `after` up to `through`.

    `of` is what is replayed to where: another replay has its own file.
    """

    of: str
    producer: str
    sequence: int = 0
    after: RecordedPlace = BEGINNING
    through: RecordedPlace = BEGINNING


class ReplayCheckpoint:
    """The file that stores a `ReplayState`; locked by one process."""

    def __init__(self, folder: Path, of: str) -> None:
        self._folder = folder
        self._path = folder / "replay.json"
        self._of = of

    @contextmanager
    def held(self) -> Iterator[ReplayState]:
        """Lock the file and yield what was noted last, or a new beginning.

        Raises:
            InUse: another process has locked it.
            CheckpointUnusable: it is of another replay, or cannot be read.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            held = lock(self._folder / "lock")
        except BlockingIOError:
            raise InUse(f"{self._folder}: another process replays this") from None
        except OSError as error:
            raise CheckpointUnusable(f"{self._folder}: {error.strerror or error}") from None
        try:
            yield self._last()
        finally:
            os.close(held)

    def note(self, noted: ReplayState) -> None:
        """Write the state to the disk.

        Raises:
            CheckpointUnusable: it cannot be written.
        """
        try:
            write(self._path, msgspec.json.encode(noted))
        except OSError as error:
            raise CheckpointUnusable(f"{self._path}: {error.strerror or error}") from None

    def forget(self) -> None:
        """Remove the file after the end; the same replay then starts over."""
        self._path.unlink(missing_ok=True)

    def _last(self) -> ReplayState:
        if not self._path.exists():
            return ReplayState(self._of, PRODUCER_PREFIX + secrets.token_hex(8))
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=ReplayState)
        except msgspec.MsgspecError:
            raise CheckpointUnusable(f"{self._path} cannot be read: remove it") from None
        if found.of != self._of:
            raise CheckpointUnusable(
                f"{self._path} is of another replay ({found.of[:200]}): choose another --checkpoint"
            )
        return found


@dataclass(frozen=True, slots=True)
class Totals:
    """Messages and removals published since the start, and the recorded time of the last.

    `repeated` of them an earlier run had published; `passed` removals had no record to remove.
    """

    messages: int = 0
    repeated: int = 0
    passed: int = 0
    clock_ms: int = 0


class Replaying:
    """Publishes to one topic, and notes before each request what is in it.

    Attributes:
        totals: what was published so far.
        noted: the last request.
        made: a sentence about the topic if it was not there, else nothing.
    """

    def __init__(
        self,
        gateway: Gateway,
        topic: str,
        checkpoint: ReplayCheckpoint,
        noted: ReplayState,
        shape: TopicShape | None = None,
    ) -> None:
        """Read the topic's type; create a missing topic with the given shape.

        Without a shape the first message creates it, of JSON without a key.

        Raises:
            GatewayProblem: it may not be created.
        """
        self.totals = Totals()
        self.noted = noted
        self._gateway = gateway
        self._topic = topic
        self._checkpoint = checkpoint
        self.made = ""
        found = gateway.find_topic(topic)
        if found is None:
            found = self._make(shape)
        self._kind: str = found.get("type", "json")
        self._removes = bool(found.get("key"))

    def _make(self, shape: TopicShape | None) -> dict[str, Any]:
        if shape is None:
            self.made = f"{self._topic}: is made without a key, so without records; see --key"
            return {}
        definition: dict[str, Any] = msgspec.to_builtins(shape)
        self._gateway.put_topic(self._topic, definition)
        key = f"the key {','.join(shape.key)}" if shape.key else "no key"
        self.made = f"{self._topic}: made with {key}"
        return definition

    @property
    def messages_max(self) -> int:
        """How many messages a request carries at most."""
        return messages_max_of(self._kind)

    def send_again(self, history: History, window: Window) -> None:
        """Send what was noted last under its number: the gateway knows whether it has it.

        All of it, also where the window ends earlier by now: it may have been published.

        Raises:
            ArchiveUnusable: the archive no longer has it.
            HistoryInvalid, GatewayRefused, GatewayUnreachable: as `send`.
        """
        noted = self.noted
        if noted.through == BEGINNING:
            return
        stretch: list[Recorded] = []
        for message in history.messages(noted.after, Window(window.from_ms)):
            stretch.append(message)
            if message.place == noted.through:
                self._publish(stretch)
                return
        raise ArchiveUnusable(f"position {noted.through.position}, the last one sent, is gone")

    def send(self, messages: Sequence[Recorded]) -> None:
        """Publish what follows, as one request: all of it or nothing, and once.

        Raises:
            HistoryInvalid: one is no message for such a topic.
            GatewayRefused: the text names the file and the place of the refused message.
            GatewayUnreachable: the gateway does not answer.
        """
        last, before = messages[-1].place, self.noted
        self.noted = ReplayState(
            before.of, before.producer, before.sequence + 1, before.through, RecordedPlace(*last)
        )
        self._checkpoint.note(self.noted)
        self._publish(messages)

    def line(self) -> str:
        """Return a line that says what was done so far."""
        done = self.totals
        line = f"{self._topic}: {counted(done.messages, 'message')} published"
        if done.repeated:
            line += f", {done.repeated:,} of them by an earlier run"
        if done.passed:
            line += f", {counted(done.passed, 'removal')} passed over: the topic has no key"
        return line + (f", up to {time_text(done.clock_ms)}" if done.clock_ms else "")

    def _publish(self, messages: Sequence[Recorded]) -> None:
        sent = [each for each in messages if each.value is not None or self._removes]
        is_new = self._post(sent) if sent else True
        done = self.totals
        self.totals = Totals(
            done.messages + len(sent),
            done.repeated + (0 if is_new else len(sent)),
            done.passed + len(messages) - len(sent),
            messages[-1].clock_ms,
        )

    def _post(self, sent: Sequence[Recorded]) -> bool:
        """Publish under the number that is noted; False if it had been published."""
        noted, body = self.noted, body_of(self._kind, sent)
        media_type = media_type_of(self._kind)
        try:
            done = self._gateway.publish_body(
                self._topic, body, noted.producer, noted.sequence, media_type
            )
        except GatewayProblem as error:
            line = error.line or (1 if len(sent) == 1 else 0)
            if 1 <= line <= len(sent):
                error.line = None  # the sentence names the line of the file instead
            refusal = pipeline_error(error, self._gateway.base_url)
            if not 1 <= line <= len(sent) or not isinstance(refusal, GatewayRefused):
                raise
            raise type(refusal)(f"{sent[line - 1].location}: {refusal}") from error
        return not done.duplicate
