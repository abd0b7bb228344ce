"""`tidegate pipeline replay PATH --topic T`: recorded messages, published again at some speed."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from keys.errors import PathInvalid
from keys.path import FieldPath
from pipeline.archive.histories import open_history
from pipeline.archive.mark import Mark, Noted
from pipeline.archive.pacing import Clock, Pacing, requests
from pipeline.archive.recorded import BEGINNING, History, Place, Recorded, Window
from pipeline.columns.times import TimeField, Unit
from pipeline.definitions.duration import duration_ms
from pipeline.definitions.moment import moment_ms, moment_text
from pipeline.definitions.names import TOPIC
from pipeline.definitions.rate import Rate, parse_rate
from pipeline.errors import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    ArchiveUnusable,
    GatewayRefused,
    PipelineError,
    UsageInvalid,
)
from pipeline.gateway import Gateway
from pipeline.operations.stop import Stop
from pipeline.streams.run import PROGRESS_EVERY_S

JSON_KINDS = ("json", "series")

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """The command's arguments as they are given."""

    path: Path
    topic: str
    source_topic: str | None
    gateway: str
    rate: str | None
    max_gap: str | None
    from_time: str | None
    until_time: str | None
    time_field: str | None
    time_unit: str
    checkpoint: Path | None


@dataclass(frozen=True, slots=True)
class Totals:
    """Messages and removals published since the start, and the recorded time of the last.

    `repeated` of them an earlier run had published; `passed` removals had no record to remove.
    """

    messages: int = 0
    repeated: int = 0
    passed: int = 0
    clock_ms: int = 0


def replay(wish: Wish) -> int:
    """Publish until the end or told to stop; returns the exit code of the command line.

    0: at the end, or stopped by SIGTERM; 130: by SIGINT; else 1, 2, 3 or 78 after one line on
    standard error. Whoever stops it early goes on with the same command.
    """
    stop = Stop()
    try:
        with stop.listening():
            publish(wish, StopClock(stop), _say)
    except PipelineError as error:
        sys.stderr.write(f"tidegate: {error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"tidegate: {wish.path}: {error.strerror or error}\n")
        return ArchiveUnusable.exit_code
    return EXIT_INTERRUPTED if stop.interrupted else EXIT_DONE


class StopClock:
    """The real clock; who waits for it is woken by a signal."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def now_s(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Return after so long, or at once when asked to stop."""
        self._stop.wait(seconds)

    @property
    def stopped(self) -> bool:
        """Whether a signal has come."""
        return self._stop.asked


def publish(wish: Wish, clock: Clock, report: Report) -> Totals:
    """As `replay`, with errors raised and lines given to `report`.

    Raises:
        PipelineError: what ended it, as one sentence.
    """
    if not TOPIC.fullmatch(wish.topic) or wish.topic.startswith("tidegate."):
        raise UsageInvalid(f"--topic: {wish.topic[:100]!r} is no topic to publish to")
    rate, gap_s = _rate(wish.rate), _gap_s(wish.max_gap)
    window = Window(_moment("--from", wish.from_time), _moment("--until", wish.until_time))
    history = open_history(wish.path, wish.topic, wish.source_topic, _time(wish))
    if not history.has_times and ((rate and rate.times) or window != Window()):
        raise UsageInvalid("--time-field is missing, such as --time-field /ts")
    mark = mark_of(wish)
    with mark.held() as noted, Gateway(wish.gateway) as gateway:
        replaying = Replaying(gateway, wish.topic, mark, noted)
        replaying.send_again(history, window)
        messages = history.messages(replaying.noted.through, window)
        next_report_s = clock.now_s() + PROGRESS_EVERY_S
        for request in requests(messages, Pacing(rate, gap_s, clock.now_s()), clock):
            replaying.send(request)
            if clock.now_s() >= next_report_s:
                next_report_s = clock.now_s() + PROGRESS_EVERY_S
                report(replaying.line())
        if not clock.stopped:
            mark.forget()
    report(replaying.line())
    return replaying.totals


def mark_of(wish: Wish) -> Mark:
    """Where a replay notes how far it is: of the same source, place and beginning."""
    of = f"{wish.path.resolve()} {wish.source_topic or ''} to {wish.topic} at {wish.gateway}"
    if wish.from_time is not None:
        of += f" from {wish.from_time}"
    digest = hashlib.blake2b(of.encode(), digest_size=4).hexdigest()
    return Mark(wish.checkpoint or Path("checkpoints") / f"replay-{wish.topic}-{digest}", of)


class Replaying:
    """A replay on its way into a topic."""

    def __init__(self, gateway: Gateway, topic: str, mark: Mark, noted: Noted) -> None:
        """Look what the topic takes.

        Raises:
            GatewayRefused: something else than JSON.
        """
        self.totals = Totals()
        self.noted = noted
        self._gateway = gateway
        self._topic = topic
        self._mark = mark
        found = gateway.topic(topic) or {}
        if found.get("type", "json") not in JSON_KINDS:
            raise GatewayRefused(f"topic {topic} is of type {found['type']}: only JSON is replayed")
        self._removes = bool(found.get("key"))

    def send_again(self, history: History, window: Window) -> None:
        """Send what was noted last under its number: the gateway knows whether it has it."""
        noted = self.noted
        if noted.through == BEGINNING:
            return
        stretch: list[Recorded] = []
        for message in history.messages(noted.after, window):
            stretch.append(message)
            if message.place == noted.through:
                self._publish(stretch)
                return
        raise ArchiveUnusable(f"position {noted.through.position}, the last one sent, is gone")

    def send(self, messages: Sequence[Recorded]) -> None:
        """Publish what follows, as one request: all of it or nothing, and once."""
        last, before = messages[-1].place, self.noted
        self.noted = Noted(
            before.of, before.producer, before.sequence + 1, before.through, Place(*last)
        )
        self._mark.note(self.noted)
        self._publish(messages)

    def line(self) -> str:
        """What was done so far."""
        done = self.totals
        line = f"{self._topic}: {done.messages:,} messages published"
        if done.repeated:
            line += f", {done.repeated:,} of them by an earlier run"
        if done.passed:
            line += f", {done.passed:,} removals passed over: the topic has no key"
        return line + (f", up to {moment_text(done.clock_ms)}" if done.clock_ms else "")

    def _publish(self, messages: Sequence[Recorded]) -> None:
        sent = [each for each in messages if each.value is not None or self._removes]
        is_new = True
        if sent:
            body = b"\n".join(map(_envelope, sent)) + b"\n"
            is_new = self._gateway.publish(
                self._topic, body, self.noted.producer, self.noted.sequence
            )
        done = self.totals
        self.totals = Totals(
            done.messages + len(sent),
            done.repeated + (0 if is_new else len(sent)),
            done.passed + len(messages) - len(sent),
            messages[-1].clock_ms if messages else done.clock_ms,
        )


def _envelope(message: Recorded) -> bytes:
    """As a gateway takes messages and removals; JSON has line breaks only between its tokens."""
    if message.value is not None:
        return b'{"value":%b}' % message.value.replace(b"\n", b" ").replace(b"\r", b" ")
    key_text, reason = message.key_text or "null", msgspec.json.encode(message.reason)
    return b'{"key":%b,"reason":%b}' % (key_text.encode(), reason)


def _rate(text: str | None) -> Rate | None:
    rate = None if text is None else parse_rate(text)
    if text is not None and rate is None:
        raise UsageInvalid(f"--rate is such as 10x, 1000 (a second) or 500KB, not {text[:50]!r}")
    return rate


def _gap_s(text: str | None) -> float | None:
    gap_ms = None if text is None else duration_ms(text)
    if text is not None and gap_ms is None:
        raise UsageInvalid(f"--max-gap: expected 1ms to 1d, such as 2s, not {text[:50]!r}")
    return None if gap_ms is None else gap_ms / 1000


def _moment(option: str, text: str | None) -> int | None:
    time_ms = None if text is None else moment_ms(text)
    if text is not None and time_ms is None:
        raise UsageInvalid(f"{option}: expected 2026-11-21T21:37:10Z or ms, not {text[:50]!r}")
    return time_ms


def _time(wish: Wish) -> TimeField | None:
    if wish.time_field is None:
        return None
    try:
        return TimeField(FieldPath.parse(wish.time_field), Unit(wish.time_unit))
    except PathInvalid as error:
        raise UsageInvalid(f"--time-field {wish.time_field}: {error.detail}") from None
    except ValueError:
        raise UsageInvalid(f"--time-unit: expected auto, ms or s, not {wish.time_unit!r}") from None


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
