"""What a sink is to the rest: rows in, refused rows out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import msgspec

from tidegate.pipeline.operations.supervisor import Say

DELETE = "delete"
RESET = "reset"
"""The operation of a row before a snapshot: the target's records are those that follow."""

ROWS_MAX = 5_000
BYTES_MAX = 4 * 1024 * 1024
"""A batch that has so much is written before more is read."""

Fields = dict[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a topic, an envelope as the stream has it.

    Attributes:
        op: `snapshot`, `publish`, `delta`, `delete` for a removal, or `reset`.
        fields: the fields of the envelope with their JSON texts, `op` among them.
        message_id: the same when the row is written again, if its sink `knows_message_ids`.
    """

    op: str
    fields: Fields
    message_id: str = ""

    @property
    def text(self) -> bytes:
        """The envelope as one line of JSON."""
        return msgspec.json.encode(self.fields)


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """Rows in their order, perhaps none, and the event id to resume after once they are written."""

    rows: list[Row]
    after: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that the target will never take, and its reason."""

    row: Row
    reason: str


@dataclass(frozen=True, slots=True)
class Patience:
    """How a target waits for what it writes to.

    Attributes:
        pause: waits so many seconds; raises `Stopped` when the run is to end.
        say: prints a line, such as the beginning of an outage.
    """

    pause: Callable[[float], None]
    say: Say


class Target(Protocol):
    """Writes rows; all methods are called by one thread, from `open` to `close`.

    Each start makes a new target. What its methods raise ends it: a `PipelineError` whose
    `may_pass` is true is followed by another start after a pause, and others are final.
    """

    def open(self) -> None:
        """Connect."""

    def write(self, rows: Sequence[Row]) -> list[Refusal]:
        """Return once the target has the rows, in their order, but for those returned."""

    def close(self) -> None:
        """Close the connection."""


class Position(Protocol):
    """How far a target is, in a file or in the target itself."""

    def resume(self, identity: str) -> str:
        """Return the event id to resume after; empty to begin.

        Args:
            identity: what the position belongs to; that of another one counts as none.
        """

    def note(self, after: str) -> None:
        """Replace the position: the target has every row up to this event id.

        Where the target keeps the position, this also makes the rows of the last `write` visible,
        in the same step. It may do both later, and is called again while nothing arrives.
        """

    def close(self) -> None:
        """Let another process use the position."""


@runtime_checkable
class PositionedTarget(Target, Position, Protocol):
    """A target that stores its position with its rows, so that each row arrives exactly once."""


@runtime_checkable
class DeclaredTarget(Target, Protocol):
    """A target that needs the types of the fields that it writes."""

    def declare(self, schema: object) -> None:
        """Take the topic's JSON Schema, None if it has none; called once, after `open`."""


class SinkDefinition(Protocol):
    """The table `sink` of a definition.

    Attributes:
        kind: as the table names it.
        keeps_position: its target is a `PositionedTarget`.
        knows_message_ids: its target stores one row of a `message_id`, as long as it knows that id.
    """

    kind: ClassVar[str]
    keeps_position: ClassVar[bool]
    knows_message_ids: ClassVar[bool]

    @property
    def label(self) -> str:
        """The target in logs, without passwords, such as `redis 127.0.0.1:6379/0 stream prices`.

        It identifies the position: another label begins with a snapshot.
        """

    def target(self, name: str, patience: Patience) -> Target:
        """Return a target, not connected yet, for the definition of this name."""
