"""A morning of the market through a real gateway: every subscriber ends with the newest values."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytest

from tests.support.children import serving
from tests.support.deadlines import LOOPS_S
from tests.support.gateways import Remote, Stream, client_of
from tests.support.outside import require_ticks

KEY = ("tickerId", "exchange", "type")
LINES_PER_REQUEST = 1_000

Key = tuple[Any, ...]
Rows = dict[Key, Any]


def key_of(row: dict[str, Any], fields: tuple[str, ...] = KEY) -> Key:
    return tuple(row[name] for name in fields)


def newest(rows: list[dict[str, Any]], fields: tuple[str, ...]) -> Rows:
    """The last row of each key, in file order."""
    return {key_of(row, fields): row for row in rows}


@dataclass
class Follower:
    """A subscriber's replica, and how often each key was sent."""

    name: str
    fields: tuple[str, ...]
    interval_s: float
    expected: Rows
    replica: Rows = field(default_factory=dict)
    updates: Counter[Key] = field(default_factory=Counter)
    seen: list[dict[str, Any]] = field(default_factory=list)

    async def follow(self, stream: Stream) -> None:
        """Until the replica is what it must become."""
        async with asyncio.timeout(LOOPS_S):
            while self.replica != self.expected:
                event = await stream.next()
                if event.name == "message":
                    row = json.loads(event.text)
                    self.replica[key_of(row, self.fields)] = row
                    self.updates[key_of(row, self.fields)] += 1
                    self.seen.append(row)


@pytest.mark.nightly
async def test_every_subscriber_ends_with_the_newest_tick_of_each_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = gzip.decompress(require_ticks().read_bytes()).splitlines()
    ticks = [json.loads(line) for line in lines]
    by_key = newest(ticks, KEY)
    followers = [Follower(f"500ms {n}", KEY, 0.5, by_key) for n in (1, 2, 3)]
    followers.append(Follower("2s by ticker", KEY[:1], 2.0, newest(ticks, KEY[:1])))
    every = Follower("none", KEY, 0.0, by_key)
    async with serving() as (_, address), client_of(address) as remote:
        await remote.topic("ticks", key=[f"/{name}" for name in KEY])
        by_ticker = "conflation=2s,conflation_key=[/tickerId]"
        async with (
            remote.subscribe("conflation=500ms", "ticks") as first,
            remote.subscribe("conflation=500ms", "ticks") as second,
            remote.subscribe("conflation=500ms", "ticks") as third,
            remote.subscribe(by_ticker, "ticks", command="subscribe") as tickers,
            remote.subscribe("conflation=none", "ticks", command="subscribe") as all_ticks,
        ):
            began_at = time.monotonic()
            streams = (first, second, third, tickers, all_ticks)
            following = [
                asyncio.create_task(follower.follow(stream))
                for follower, stream in zip([*followers, every], streams, strict=True)
            ]
            await publish_all(remote, lines)
            await asyncio.gather(*following)
            duration_s = time.monotonic() - began_at
    for follower in followers:
        assert follower.replica == follower.expected, follower.name
        most = math.ceil(duration_s / follower.interval_s) + 1
        assert max(follower.updates.values()) <= most, follower.name
    assert every.replica == by_key
    complete = every.seen == ticks[: len(every.seen)]
    rows = ", ".join(f"{f.name}: {len(f.seen)} rows" for f in [*followers, every])
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(lines)} ticks, {len(by_key)} keys, {duration_s:.1f} s; {rows}"
            f" ({'every tick' if complete else 'conflated'})\n"
        )


async def publish_all(remote: Remote, lines: list[bytes]) -> None:
    """In requests of 1,000 lines, one after another."""
    rest = iter(lines)
    while request := list(islice(rest, LINES_PER_REQUEST)):
        await remote.publish_lines(b"\n".join(request), topic="ticks")
