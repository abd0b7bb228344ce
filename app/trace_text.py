"""A trace as the bytes of server-sent events: the calls that were made, the decisions in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from app.envelope import json_value
from app.sse import event
from conflation.count import count_of
from conflation.decision import Decision
from conflation.definition import Kind
from conflation.duration import MILLISECOND, Instant
from conflation.frame import Frame, Tombstone
from conflation.language.normal import granted, lane_text
from conflation.outputs import Output, Rows
from conflation.sessions.recorder import (
    Advanced,
    Call,
    Changed,
    Conflated,
    Ended,
    Joined,
    Published,
    Redefined,
    Seated,
    Settled,
    Taken,
)
from conflation.sessions.session import Seat
from conflation.subscription import Subscription
from conflation.trace import Trace

PIECE = 200
"""How many decisions are told in one write."""


class TraceText:
    """Writes one trace; times are milliseconds since `began`."""

    def __init__(self, kind: Kind, began: Instant) -> None:
        self._kind = kind
        self._began = began

    def events(self, trace: Trace, call: Call) -> Iterator[bytes]:
        """A call, the decisions in it, and how it ended, if it did; in pieces."""
        text = b"" if isinstance(call, Ended) else event("call", self.call(call))
        decisions = trace.tell(call)
        while piece := list(islice(decisions, PIECE)):
            yield text + b"".join(event("decision", self.decision(each)) for each in piece)
            text = b""
        if trace.ended is not None:
            text += event("end", {"at_ms": self._at_ms(call.now), "reason": trace.ended})
        if text:
            yield text

    def call(self, call: Call) -> dict[str, Any]:
        """What was done."""
        return {"at_ms": self._at_ms(call.now), **self._call(call)}

    def decision(self, decision: Decision) -> dict[str, Any]:
        """What became of it; what there is nothing to say of is left out."""
        told: dict[str, Any] = {
            "at_ms": self._at_ms(decision.now),
            "decision": decision.what,
            "key": _key(decision.board_key),
            "offset": decision.offset,
            "earlier": decision.earlier,
            "messages": decision.messages,
            "rows": decision.rows,
            "due_ms": None if decision.due is None else self._at_ms(decision.due),
            "why": decision.why or None,
        }
        return {name: value for name, value in told.items() if value is not None}

    def _call(self, call: Call) -> Mapping[str, Any]:
        match call:
            case Seated(_, seat):
                return {"call": "seated", **_seat(seat)}
            case Published(_, frames, _):
                return {"call": "published", "messages": [self._message(f) for f in frames]}
            case Advanced():
                return {"call": "advanced"}
            case Taken(_, bytes_max, outputs):
                return {"call": "taken", "bytes_max": bytes_max, "rows": _rows(outputs)}
            case Changed(_, subscription):
                return {"call": "changed", **_subscription(subscription)}
            case Redefined(_, definition):
                return {"call": "redefined", "policy": definition.policy}
            case Settled():
                return {"call": "settled"}
            case Joined():
                return {"call": "joined"}
            case Conflated(_, messages_max):
                return {"call": "conflated", "messages_max": messages_max}
        return {}

    def _message(self, frame: Frame) -> dict[str, Any]:
        told: dict[str, Any] = {"offset": frame.offset, "key": _key(frame.key or None)}
        if isinstance(frame, Tombstone):
            return {**told, "removed": frame.reason}
        told["value"] = msgspec.Raw(json_value(frame, self._kind))
        return {**told, "exempt": True} if frame.exempt else told

    def _at_ms(self, now: Instant) -> float:
        return max(0, now - self._began) / MILLISECOND


def _key(board_key: str | None) -> msgspec.Raw | None:
    return None if not board_key else msgspec.Raw(board_key.encode())


def _rows(outputs: Sequence[Output]) -> list[dict[str, Any]]:
    return [
        {"offset": row.offset, "messages": count_of(row).messages}
        for output in outputs
        if isinstance(output, Rows)
        for row in output.batch.frames
    ]


def _seat(seat: Seat) -> dict[str, Any]:
    definition = seat.topic.definition
    return {
        "session": seat.member.session,
        "sub": seat.member.name,
        "topic": seat.topic.name,
        "bookmark": str(seat.topic.bookmark(seat.topic.head)),
        "definition": {
            "key": [str(path) for path in definition.key_spec.paths],
            "type": definition.kind,
            "conflation": definition.policy,
        },
        **_subscription(seat.member.subscription),
        "held": 0 if seat.lane is None else len(seat.lane.held()),
        "waiting": seat.waiting(),
    }


def _subscription(subscription: Subscription) -> dict[str, Any]:
    return {
        "command": subscription.command,
        "options": granted(subscription),
        "lane": lane_text(subscription.lane_id),
        "paused": subscription.paused,
    }
