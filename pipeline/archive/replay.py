"""`tidegate pipeline replay PATH --topic T`: recorded messages, published again at some speed."""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from keys.errors import PathInvalid
from keys.path import FieldPath
from pipeline.archive.histories import open_history
from pipeline.archive.mark import Mark
from pipeline.archive.pacing import Clock, Pacing, requests
from pipeline.archive.progress import Progress, Report, Stopped, ToldWaiting
from pipeline.archive.recorded import Window
from pipeline.archive.replaying import Replaying, Totals
from pipeline.columns.times import TimeField, Unit
from pipeline.definitions.duration import duration_ms
from pipeline.definitions.moment import moment_ms
from pipeline.definitions.names import TOPIC
from pipeline.definitions.rate import Rate, parse_rate
from pipeline.errors import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    ArchiveUnusable,
    PipelineError,
    UsageInvalid,
)
from pipeline.gateway import Gateway
from pipeline.operations.stop import Stop
from pipeline.operations.terminal import complain, say
from pipeline.patience import IN_SILENCE, Waiting


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


def replay(wish: Wish) -> int:
    """Publish until the end or told to stop; returns the exit code of the command line.

    0: at the end, or stopped by SIGTERM; 130: by SIGINT; else 1, 2, 3 or 78 after one line on
    standard error. Whoever stops it early goes on with the same command.

    Raises:
        CutOff: a second signal has come, while a request was under way.
    """
    stop = Stop()
    try:
        with stop.listening(), suppress(Stopped), stop.cutting_off(signals=2):
            publish(wish, StopClock(stop), say, ToldWaiting(stop, complain))
    except PipelineError as error:
        complain(str(error))
        return error.exit_code
    except OSError as error:
        complain(f"{wish.path}: {error.strerror or error}")
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


def publish(wish: Wish, clock: Clock, report: Report, waiting: Waiting = IN_SILENCE) -> Totals:
    """As `replay`, with errors raised and lines given to `report`; `waiting` for the gateway.

    Raises:
        PipelineError: what ended it, as one sentence, with what was published before.
        Stopped: `waiting` has ended it before it began.
    """
    if not TOPIC.fullmatch(wish.topic) or wish.topic.startswith("tidegate."):
        raise UsageInvalid(f"--topic: {wish.topic[:100]!r} is no topic to publish to")
    rate, gap_s = _rate(wish.rate), _gap_s(wish.max_gap)
    window = Window(_moment("--from", wish.from_time), _moment("--until", wish.until_time))
    history = open_history(wish.path, wish.topic, wish.source_topic, _time(wish))
    if not history.has_times and ((rate and rate.times) or window != Window()):
        raise UsageInvalid("--time-field is missing, such as --time-field /ts")
    mark, progress = mark_of(wish), Progress(report, clock.now_s)
    with mark.held() as noted, Gateway(wish.gateway, waiting=waiting) as gateway:
        replaying = Replaying(gateway, wish.topic, mark, noted)
        try:
            replaying.send_again(history, window)
            messages = history.messages(replaying.noted.through, window)
            pacing = Pacing(rate, gap_s, clock.now_s())
            for request in requests(messages, pacing, clock, replaying.messages_max):
                replaying.send(request)
                progress.look(replaying.line)
        except PipelineError as error:
            raise type(error)(f"{error} ({replaying.line()})") from error
        except Stopped:
            pass  # what is noted is sent again the next time
        if not clock.stopped:
            mark.forget()
        progress.say(replaying.line())
    return replaying.totals


def mark_of(wish: Wish) -> Mark:
    """Where a replay notes how far it is: of the same source, place and beginning."""
    of = f"{wish.path.resolve()} {wish.source_topic or ''} to {wish.topic} at {wish.gateway}"
    if wish.from_time is not None:
        of += f" from {wish.from_time}"
    digest = hashlib.blake2b(of.encode(), digest_size=4).hexdigest()
    return Mark(wish.checkpoint or Path("checkpoints") / f"replay-{wish.topic}-{digest}", of)


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
