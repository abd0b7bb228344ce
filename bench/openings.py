"""The CPU time of openings over a large board.

The engine alone, without sockets. No opening finds a board that another one has made; what is
measured ends with the last row of its snapshot. The longest step is what an opening in steps, as
the gateway makes it, keeps everybody else waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tidegate.conflation.definition import Definition, History
from tidegate.conflation.engine import Engine
from tidegate.conflation.frame import Frame
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.keys.spec import KeySpec, record_key

KEYS = 100_000
REPLAYS = 50
SPEC = KeySpec.of(["/k"])
KEY_OF = record_key(SPEC)
TAKEN_BYTES = 1 << 20

Request = dict[str, Any]
"""Options, filter, order and command of a subscription."""

OPENINGS: dict[str, Request] = {
    "open a snapshot in order": {"order_text": "/n DESC"},
    "open top_n=100": {"options": "top_n=100", "order_text": "/n DESC"},
    "open top_n=10000": {"options": "top_n=10000", "order_text": "/n DESC"},
    "open top_n=10000 by text": {"options": "top_n=10000", "order_text": "/s DESC"},
    "open top_n=100,skip_n=50000": {"options": "top_n=100,skip_n=50000", "order_text": "/n DESC"},
    "open a filter": {"filter_text": "/s LIKE '9'"},
    "open a grouping, a record in each": {
        "options": "projection=[/n,SUM(/k) AS /s],grouping=[/n]",
    },
    "fill a view of 100 groups": {
        "options": "projection=[/g,SUM(/k) AS /s],grouping=[/g],conflation=1s,oof",
    },
}


def payload(number: int) -> bytes:
    """Return a message of about 100 bytes."""
    return b'{"k":%d,"n":%d,"g":%d,"s":"%d","note":"as long as a message really is in a topic"}' % (
        number,
        number * 7_919 % 100_003,
        number % 100,
        number * 7_919 % 100_003,
    )


class Stage:
    """An engine with one topic."""

    def __init__(self, messages_max: int = 1_000, *, in_steps: bool = False) -> None:
        self.engine = Engine(sessions_max=20_000, subscriptions_max=1, in_steps=in_steps)
        self.longest_s = 0.0
        self._definition = Definition(History(messages_max), SPEC)
        self.engine.define_topic("t", self._definition, "e")
        self._sessions = self._head = 0

    def publish(self, numbers: range, step: int = 1_000) -> None:
        """Publish these messages, so many in a call, at time 0."""
        texts = [payload(number) for number in numbers]
        frames = [Frame(self._head + at, text, KEY_OF(text)) for at, text in enumerate(texts, 1)]
        self._head += len(frames)
        for start in range(0, len(frames), step):
            self.engine.publish("t", frames[start : start + step], 0)

    def open(
        self,
        options: str = "",
        command: str = "sow_and_subscribe",
        filter_text: str = "",
        order_text: str = "",
        *,
        takes: bool = True,
    ) -> None:
        """Subscribe in a new session, and take all that it begins with if it `takes`."""
        self._sessions += 1
        session = f"s{self._sessions}"
        granted = decide(
            "t",
            self._definition,
            Options.parse(options),
            command=command,
            filter_text=filter_text,
            order_text=order_text,
        )
        self.engine.open_session(session, QueueLimits(1 << 30, 1 << 40))
        self._note(cpu_s(lambda: self.engine.subscribe(session, "s1", granted, 0)))
        while self.engine.has_openings:
            self._note(cpu_s(lambda: self.engine.open_step(0)))
        while takes and self.engine.take(session, TAKEN_BYTES):
            pass

    def _note(self, seconds: float) -> None:
        self.longest_s = max(self.longest_s, seconds)

    def close(self) -> None:
        """Close the session that was opened last; nobody may profit from its board."""
        self.engine.close_session(f"s{self._sessions}")


def cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU seconds of a piece of work."""
    started = time.process_time()
    work()
    return time.process_time() - started


def figures() -> Iterator[tuple[str, float, str]]:
    """Yield name, value and unit of each figure."""
    full = Stage(KEYS)
    full.publish(range(KEYS))
    for name, request in OPENINGS.items():
        yield name, cpu_s(partial(full.open, **request)), "s CPU"
        full.close()
    stepwise = Stage(KEYS, in_steps=True)
    stepwise.publish(range(KEYS))
    for name, request in OPENINGS.items():
        stepwise.longest_s = 0.0
        stepwise.open(**request)
        stepwise.close()
        yield f"longest step: {name}", stepwise.longest_s * 1_000, "ms CPU"
    yield "50 conflated replays", cpu_s(lambda: _replays(full)), "s CPU"


def _replays(stage: Stage) -> None:
    for _ in range(REPLAYS):
        # All at once, as after a restart: nobody has taken anything when the next one asks.
        stage.open("bookmark=epoch,conflation=1s,conflation_key=[/n]", "subscribe", takes=False)
