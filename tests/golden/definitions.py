"""Definitions and messages of the product, from the plain values of a transcript."""

from __future__ import annotations

from typing import Any

from tests.golden.history import Message
from tidegate.conflation.definition import Definition, History, Kind, Priority, QueuePolicy
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone
from tidegate.keys.merging import Matcher, Merger, Verdict
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec


def merged(current: Any, new: Any) -> Any:
    """All four verdicts of a registered merger, by what the new message says."""
    match new.get("n"):
        case 0 | 4:
            return {**current, **new, "sum": current.get("sum", 0) + 1}
        case 1:
            return Verdict.KEEP_CURRENT
        case 2:
            return Verdict.KEEP_NEW
    return Verdict.NO_CONFLATION


def matches(current: Any, new: Any) -> bool:
    """Values of one sign."""
    return bool((current.get("n") or 0) > 1) == bool((new.get("n") or 0) > 1)


MERGER = Merger("golden:merged", merged)
MATCHER = Matcher("golden:matches", matches)


def definition_of(given: dict[str, Any]) -> Definition:
    """A topic's definition from plain values."""
    merge, match = given["merge"], given["match"]
    expiration_ms = given["expiration_ms"]
    return Definition(
        History(*given["history"]),
        KeySpec.of(f"/{name}" for name in given["key"]),
        QueuePolicy(given["policy"]),
        Kind(given["kind"]),
        retains=given["retains"],
        values_only=given["values_only"],
        merge=MERGER if merge == "merger" else Reduce.parse(merge) if merge else None,
        match=MATCHER if match == "matcher" else KeySpec.parse(match) if match else None,
        replaces=given["replaces"],
        expiration_ns=None if expiration_ms is None else expiration_ms * 1_000_000,
        priority=Priority(given["priority"]),
        tidies=given["tidies"],
    )


def frame_of(message: Message, *, removes: bool = True) -> Frame:
    """A message as it is published; a removal says why."""
    if message.gone and removes:
        return Tombstone(
            message.offset, b"", message.key, message.at_ms, reason=RemovalReason(message.gone)
        )
    return Frame(message.offset, message.payload, message.key, message.at_ms, exempt=message.exempt)
