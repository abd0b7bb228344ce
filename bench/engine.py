"""The cost of the engine's hot path, without sockets: a message, a lane, a flush."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from tidegate.conflation.boards.board import Board
from tidegate.conflation.definition import Definition, History
from tidegate.conflation.engine import Engine
from tidegate.conflation.frame import Frame
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.keys.jsontext import check_json
from tidegate.keys.spec import KeySpec, record_key
from tidegate.keys.text.duration import SECOND

MESSAGES = 100_000
KEYS = 1_000
SPEC = KeySpec.of(["/tickerId"])

Request = tuple[str, str, str]
"""Options, filter and command of a subscription."""


def _intervals(count: int, more: str = "", command: str = "subscribe") -> list[Request]:
    return [(f"conflation={n + 1}s{more}", "", command) for n in range(count)]


AUDIENCES: dict[str, list[Request]] = {
    "no lane": [],
    "1 interval lane": _intervals(1),
    "10 interval lanes": _intervals(10),
    "100 interval lanes": _intervals(100),
    "1 lane of every message": [("", "", "subscribe")],
    "1 lane with receipts": _intervals(1, ",receipt"),
    "1 lane by key": _intervals(1, ",pace=key"),
    "1 lane of deltas": _intervals(1, command="delta_subscribe"),
    "1 filter": [("conflation=1s", "/bid > 250", "subscribe")],
    "100 filters of equality": [
        ("conflation=1s", f"/tickerId = 'T{n:04d}'", "subscribe") for n in range(100)
    ],
}


def payloads() -> list[bytes]:
    """Return messages of about 150 bytes with 1,000 keys."""
    return [
        b'{"tickerId":"T%04d","exchange":"P","type":"quote","bid":%d.25,"bidSize":25200,'
        b'"ask":%d.75,"askSize":7900,"ts":%d,"note":"as long as a real one is"}'
        % (i % KEYS, i % 500, i % 500, i)
        for i in range(MESSAGES)
    ]


def ns_each(work: Callable[[], object], count: int, repeats: int = 3) -> float:
    """Return the nanoseconds of one of `count` pieces of work, the best of some runs."""
    # The best run: whatever else the machine does only adds time.
    times: list[float] = []
    for _ in range(repeats):
        started = time.perf_counter_ns()
        work()
        times.append((time.perf_counter_ns() - started) / count)
    return min(times)


def figures() -> Iterator[tuple[str, float, str]]:
    """Yield name, value and unit of each figure."""
    texts = payloads()
    key_of = record_key(SPEC)
    yield (
        "strict check of a message",
        ns_each(lambda: deque(map(check_json, texts), 0), MESSAGES),
        "ns",
    )
    yield "key of a message", ns_each(lambda: [key_of(t) for t in texts], MESSAGES), "ns"
    frames = [Frame(i, text, key_of(text)) for i, text in enumerate(texts, start=1)]
    yield "board put", ns_each(lambda: _fill(frames), MESSAGES), "ns"
    for name, requests in AUDIENCES.items():
        cost = ns_each(lambda r=requests: _publish(frames, r), MESSAGES)  # type: ignore[misc]  # mypy cannot type its default
        yield f"publish with {name}", cost, "ns"
    board = _fill(frames)
    yield (
        "flush, a changed key",
        ns_each(lambda: [board.rows(MESSAGES - KEYS) for _ in range(100)], 100 * KEYS),
        "ns",
    )


def _fill(frames: list[Frame]) -> Board:
    board = Board()
    for frame in frames:
        board.put(frame.key, frame)
    return board


def engine_of(requests: list[Request]) -> Engine:
    """Return an engine with a keyed topic `t`, and these subscriptions of it."""
    definition = Definition(History(1_000), SPEC)
    engine = Engine(sessions_max=1_000, subscriptions_max=1)
    engine.define_topic("t", definition, "e")
    for number, (options, filter_text, command) in enumerate(requests):
        engine.open_session(f"s{number}", QueueLimits(1_000, 1 << 20))
        parsed = Options.parse(options)
        granted = decide("t", definition, parsed, command=command, filter_text=filter_text)
        engine.subscribe(f"s{number}", "s1", granted, 0)
    return engine


def _publish(frames: list[Frame], requests: list[Request]) -> None:
    engine = engine_of(requests)
    for start in range(0, len(frames), 1_000):
        engine.publish("t", frames[start : start + 1_000], start * SECOND // len(frames))
