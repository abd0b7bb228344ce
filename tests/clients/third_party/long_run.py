"""Clients of the Durable Streams protocol follow recorded ticks for long, through nginx's cache.

    python -m tests.clients.third_party.long_run --minutes 30 --speed 10

All the time records change and are removed. After a quarter the gateway is started again, after the
half it is away for a minute, after three quarters it begins a new epoch. Each client is compared
with the state of the world before the new epoch and at the end. The last lines are a table.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from tests.clients.third_party.test_durable_streams import (
    CLIENTS,
    NOTHING,
    PATH,
    TOPIC,
    Following,
    differing,
    key_of,
    put,
    records_of,
    serving,
)
from tests.integration.test_polling_caches import cache_before
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_ticks
from tests.support.ports import lasting_port
from tidegate.clients.gateway import Gateway

DAY: Final = "ticks-20131008-day.ndjson.gz"
FOLLOWERS: Final = ("npm", "StreamDB", "PyPI")
FAILS_AT_RESET: Final = "StreamDB"
STEP_S: Final = 0.1
REMOVAL_S: Final = 1.0
EQUAL_S_MAX: Final = HANGS_S
"""How long after the last message a client may differ; HTTP clients wait longer after failures."""


@dataclass
class Figures:
    """What a run has counted."""

    messages: int = 0
    removals: int = 0
    requests: int = 0
    answers: int = 0
    sent_bytes: int = 0
    played_s: float = 0.0
    begun_anew: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FOLLOWERS, 0))
    equal_after_s: dict[str, float] = field(default_factory=dict)


class LongRun:
    """Ticks as they were recorded, faster, and the clients that follow them.

    Args:
        minutes: of the recording.
        speed: so many times faster.
        away_s: how long the gateway is away.
        place: a folder for what the gateway and nginx keep.
    """

    def __init__(self, minutes: float, speed: float, away_s: float, place: Path) -> None:
        self.figures = Figures()
        self.followers: dict[str, Following] = {}
        self._ms = minutes * 60_000
        self._speed = speed
        self._away_s = away_s
        self._place = place
        self._ticks = recorded()
        self._next = next(self._ticks)
        self._began_at = int(self._next["ts"])
        self._published_at = 0.0
        self._random = random.Random(1)

    def run(self) -> None:
        """Play it all; fails where a client does not end with the records."""
        port = lasting_port()
        with contextlib.ExitStack() as stack:
            cache = stack.enter_context(cache_before(f"http://127.0.0.1:{port}", self._place))
            with serving(port, self._place) as gateway:
                self._play(gateway, 0.02)
                for name in FOLLOWERS:
                    command = CLIENTS[name](cache + PATH, "long-poll", self._place)
                    follower = self.followers[name] = Following(command)
                    stack.callback(follower.close)
                self._play(gateway, 0.25)
            with serving(port, self._place) as gateway:
                self._play(gateway, 0.5)
            time.sleep(self._away_s)
            with serving(port, self._place) as gateway:
                self._play(gateway, 0.75)
                self._await_equal(gateway)
            shutil.rmtree(self._place / "data")
            with serving(port, self._place) as gateway:
                self._play(gateway, 1.0)
                self._await_equal(gateway)

    def _play(self, gateway: Gateway, through: float) -> None:
        """Publish the ticks up to a part of all at their times, and remove records meanwhile."""
        begun, first_ms = time.monotonic(), int(self._next["ts"]) - self._began_at
        removed_at = begun
        while int(self._next["ts"]) - self._began_at < through * self._ms:
            now = time.monotonic()
            due_ms = min(first_ms + 1_000 * (now - begun) * self._speed, through * self._ms)
            due = list(self._due(due_ms))
            put(gateway, due)
            self._published_at = time.monotonic()
            self.figures.messages += len(due)
            if now - removed_at >= REMOVAL_S:
                removed_at = now
                self._remove(gateway)
                self._published_at = time.monotonic()
            self._take()
            time.sleep(STEP_S)
        self.figures.played_s += time.monotonic() - begun
        with urlopen(f"{gateway.base_url}/v1/polled", timeout=HANGS_S) as answer:
            for stream in json.load(answer)["streams"]:
                self.figures.requests += stream["requests"]
                self.figures.answers += stream["answers"]
                self.figures.sent_bytes += stream["sent_bytes"]

    def _due(self, until_ms: float) -> Iterator[bytes]:
        while int(self._next["ts"]) - self._began_at < until_ms:
            yield json.dumps({**NOTHING, **self._next}).encode()
            self._next = next(self._ticks)

    def _remove(self, gateway: Gateway) -> None:
        rows = list(map(json.loads, gateway.sow(TOPIC)))
        if rows:
            gateway.delete_records(TOPIC, record_key=tuple(key_of(self._random.choice(rows))))
            self.figures.removals += 1

    def _take(self) -> None:
        for name, follower in self.followers.items():
            follower.take()
            if follower.errors and name == FAILS_AT_RESET:
                follower.again()
                self.figures.begun_anew[name] += 1
            assert not follower.errors, (name, follower.errors)

    def _await_equal(self, gateway: Gateway) -> None:
        expected = records_of(gateway)
        assert expected
        waited_for = set(FOLLOWERS)
        while waited_for:
            self._take()
            waited_s = time.monotonic() - self._published_at
            for name in list(waited_for):
                shown = self.followers[name].records
                if shown == expected:
                    waited_for.remove(name)
                    self.figures.equal_after_s[name] = waited_s
                assert waited_s < EQUAL_S_MAX, (name, differing(shown, expected))
            time.sleep(STEP_S)


def recorded() -> Iterator[dict[str, Any]]:
    """Yield the recorded ticks of a day."""
    with gzip.open(require_ticks(DAY)) as file:
        for line in file:
            yield json.loads(line)


def table(run: LongRun) -> str:
    """Return what each client did, as Markdown."""
    columns: Mapping[str, Mapping[str, object]] = {
        "rows read": {
            name: f"{each.rows:,}" if each.rows else "-" for name, each in run.followers.items()
        },
        "resets": {name: each.resets for name, each in run.followers.items()},
        "begun anew": run.figures.begun_anew,
        "equal after the last message": {
            name: f"{seconds:.1f} s" for name, seconds in run.figures.equal_after_s.items()
        },
    }
    head = [f"| client | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    rows = [
        f"| {name} | {' | '.join(str(each[name]) for each in columns.values())} |"
        for name in FOLLOWERS
    ]
    return "\n".join(head + rows)


def main(words: list[str]) -> int:
    """Run it once, and print what it counted."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients.third_party.long_run")
    parser.add_argument("--minutes", type=float, default=30, help="of the recording (30)")
    parser.add_argument("--speed", type=float, default=10, help="so many times faster (10)")
    parser.add_argument("--away", type=float, default=60, help="seconds without a gateway (60)")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="tidegate-long-run-") as place:
        run = LongRun(given.minutes, given.speed, given.away, Path(place))
        run.run()
    figures = run.figures
    print(
        f"{figures.messages:,} messages, {figures.removals} removals, {figures.played_s:.0f} s;"
        f" {figures.requests:,} requests at the gateway, {figures.answers:,} answers with rows,"
        f" {figures.sent_bytes:,} bytes"
    )
    print(table(run))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
