"""`tidegate pipeline replay PATH --topic T`: recorded messages, published again at some speed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidegate.clients.retry import Retry
from tidegate.keys.errors import KeysError, TextInvalid
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import SECOND, parse_interval
from tidegate.keys.text.rate import Rate, parse_rate
from tidegate.keys.text.time import parse_time
from tidegate.pipeline.archive.folder import TopicShape
from tidegate.pipeline.archive.histories import open_history
from tidegate.pipeline.archive.recorded import Window
from tidegate.pipeline.archive.replaying import (
    Clock,
    Pacing,
    ReplayCheckpoint,
    Replaying,
    Totals,
    requests,
)
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.connection import PATIENT, as_pipeline_errors, gateway_at, reported_retry
from tidegate.pipeline.definitions.toml import TOPIC
from tidegate.pipeline.errors import PipelineError, UsageInvalid
from tidegate.pipeline.operations.shutdown import (
    Stop,
    Stopped,
    print_error,
    print_line,
    until_stopped,
)
from tidegate.pipeline.operations.status import PROGRESS_EVERY_S
from tidegate.pipeline.operations.supervisor import Say


@dataclass(frozen=True, slots=True)
class ReplayArguments:
    """The command's arguments as they are given."""

    path: Path
    topic: str
    keys: list[str]
    source_topic: str | None
    gateway: str
    rate: str | None
    max_gap: str | None
    from_time: str | None
    until_time: str | None
    time_field: str | None
    time_unit: str
    checkpoint: Path | None


def replay(arguments: ReplayArguments) -> int:
    """Publish until the end or until stopped; return the exit code, as `until_stopped` does.

    After an early stop the same command continues.

    Raises:
        CutOff: a second signal has come, while a request was under way.
    """

    def run(stop: Stop) -> None:
        retry = reported_retry(arguments.gateway, print_error, stop.pause)
        # The first signal ends a replay after the request under way, the second at once: the next
        # run then sends that request again under its number.
        with stop.cutting_off(signals=2):
            publish(arguments, Clock(stop), print_line, retry)

    return until_stopped(run, arguments.path)


class Progress:
    """Prints how far a replay is: a line every few seconds, none twice in a row."""

    def __init__(self, report: Say, now_s: Callable[[], float]) -> None:
        """Begin; `now_s` returns monotonic seconds."""
        self._report = report
        self._now_s = now_s
        self._next_s = now_s() + PROGRESS_EVERY_S
        self._said = ""

    def say_if_due(self, line: Callable[[], str]) -> None:
        """Print the line if the last one is some seconds old."""
        if self._now_s() >= self._next_s:
            self._next_s = self._now_s() + PROGRESS_EVERY_S
            self.say(line())

    def say(self, line: str) -> None:
        """Print the line, unless it was the last one."""
        if line != self._said:
            self._said = line
            self._report(line)


def publish(
    arguments: ReplayArguments, clock: Clock, report: Say, retry: Retry = PATIENT
) -> Totals:
    """Publish as `replay` does, with errors raised and lines given to `report`.

    `retry` is how the gateway is asked again.

    Raises:
        PipelineError: what ended it, as one sentence, with what was published before.
        Stopped: a pause of `retry` has ended it before it began.
    """
    if not TOPIC.fullmatch(arguments.topic) or arguments.topic.startswith("tidegate."):
        raise UsageInvalid(f"--topic: {arguments.topic[:100]!r} is not a topic to publish to")
    key = _key(arguments.keys)
    rate, gap_s = _rate(arguments.rate), _gap_s(arguments.max_gap)
    window = Window(
        _time_of("--from", arguments.from_time), _time_of("--until", arguments.until_time)
    )
    time = TimeField.of_options(arguments.time_field, arguments.time_unit)
    history = open_history(arguments.path, arguments.topic, arguments.source_topic, time)
    if not history.has_times and ((rate and rate.times) or window != Window()):
        raise UsageInvalid("--time-field is missing, such as --time-field /ts")
    checkpoint, progress = checkpoint_of(arguments), Progress(report, clock.now_s)
    with checkpoint.held() as noted, gateway_at(arguments.gateway, retry) as gateway:
        shape = TopicShape(key) if key else history.shape
        replaying = Replaying(gateway, arguments.topic, checkpoint, noted, shape)
        if replaying.made:
            report(replaying.made)
        try:
            with as_pipeline_errors(arguments.gateway):
                replaying.send_again(history, window)
                messages = history.messages(replaying.noted.through, window)
                pacing = Pacing(rate, gap_s, clock.now_s())
                for request in requests(messages, pacing, clock, replaying.messages_max):
                    replaying.send(request)
                    progress.say_if_due(replaying.line)
        except PipelineError as error:
            # The type stays the same, because it decides the exit code.
            raise type(error)(f"{error} ({replaying.line()})") from error
        except Stopped:
            pass  # what is noted is sent again the next time
        if not clock.stopped:
            checkpoint.forget()
        progress.say(replaying.line())
    return replaying.totals


def checkpoint_of(arguments: ReplayArguments) -> ReplayCheckpoint:
    """Return the checkpoint that replays of equal source, topic, gateway and beginning share."""
    identity = f"{arguments.path.resolve()} {arguments.source_topic or ''}"
    identity += f" to {arguments.topic} at {arguments.gateway}"
    # Another beginning is another replay: its places count from elsewhere. --until may change.
    if arguments.from_time is not None:
        identity += f" from {arguments.from_time}"
    digest = hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()
    return ReplayCheckpoint(
        arguments.checkpoint or Path("checkpoints") / f"replay-{arguments.topic}-{digest}", identity
    )


def _key(texts: list[str]) -> list[str]:
    """Return the paths of a key in a topic's spelling, such as of `/account,/orderId`."""
    fields = [field.strip() for text in texts for field in text.split(",")]
    try:
        return [str(path) for path in KeySpec.of(fields).paths] if fields else []
    except KeysError as error:
        raise UsageInvalid(f"--key is fields such as /symbol,/venue: {error.detail}") from None


def _rate(text: str | None) -> Rate | None:
    if text is None:
        return None
    try:
        return parse_rate(text)
    except TextInvalid:
        raise UsageInvalid(
            f"--rate is such as 10x, 1000 (a second) or 500KB, not {text[:50]!r}"
        ) from None


def _gap_s(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_interval(text) / SECOND
    except TextInvalid:
        raise UsageInvalid(
            f"--max-gap: expected 1ms to 1d, such as 2s, not {text[:50]!r}"
        ) from None


def _time_of(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_time(text)
    except TextInvalid:
        raise UsageInvalid(
            f"{option}: expected 2026-11-21T21:37:10Z or ms, not {text[:50]!r}"
        ) from None
