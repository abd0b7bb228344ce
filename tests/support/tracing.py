"""A driver with one subscription that is traced, its decisions written as short lines.

`replaced a @3 for 2 x2 due 100` is message 3 of key a, in the place of message 2, standing for two,
due at 100 ms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tests.support.manual_driver import ManualDriver
from tidegate.conflation.tracing.decisions import Decision
from tidegate.conflation.tracing.recorder import Call, Taken, TraceRecorder, begin_recording
from tidegate.conflation.tracing.replay import Trace, fresh, replay, same
from tidegate.keys.text.duration import MILLISECOND


class TracedDriver(ManualDriver):
    """`trace` begins, `lines` tells what was decided since the last look."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.running: TraceRecorder | None = None
        self._trace = Trace()

    def trace(self, name: str, *, session: str = "s", topic: str = "px") -> TraceRecorder:
        subscriber = self.engine.session(session).subscribers.get((name, topic))
        assert subscriber is not None
        self.running = begin_recording(self.engine.watchers, subscriber, self.now, lambda: None)
        return self.running

    def subscribed(self, options: str = "", **more: Any) -> str:
        """A subscription that is traced from the start."""
        name = self.subscribe(options, **more)
        self.trace(name)
        return name

    @property
    def ended(self) -> str | None:
        """Why the trace is over."""
        return self._trace.ended

    def lines(self) -> list[str]:
        assert self.running is not None
        calls = self.running.take_calls()
        self.calls += calls
        return [line(decision) for call in calls for decision in self._trace.decisions(fresh(call))]

    def check_replay(self) -> None:
        """Rule trace-1."""
        given = [out for call in self.calls if isinstance(call, Taken) for out in call.outputs]
        assert given, "nothing was taken"
        assert same(replay(self.calls), given)


def line(decision: Decision) -> str:
    """A decision in short."""
    parts: list[str] = [decision.what]
    if decision.board_key:
        parts.append("".join(str(part) for part in msgspec.json.decode(decision.board_key)))
    marks: Iterable[tuple[str, object]] = (
        ("@", decision.offset),
        ("for ", decision.earlier),
        ("x", decision.messages),
        ("rows ", decision.rows),
        ("due ", None if decision.due is None else decision.due // MILLISECOND),
    )
    parts += [f"{mark}{value}" for mark, value in marks if value is not None]
    return " ".join([*parts, *([f"({decision.why})"] if decision.why else [])])
