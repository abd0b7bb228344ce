"""What a seat gets first: a snapshot, or what was missed since a bookmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from conflation.bookmark import Bookmark
from conflation.duration import Instant
from conflation.frame import Batch, Frame, prefix_within
from conflation.outputs import GroupBegin, GroupEnd, Output, Resumed, Rows
from conflation.sessions.pacing import Pacing
from conflation.sessions.past import Past
from conflation.subscription import BATCH_SIZE


@dataclass(slots=True, eq=False)
class Opening:
    """Rows kept as references, an exact cut; pulled as the socket drains, never queued.

    In a group they are snapshot rows and replace what the client holds; else they continue
    from its bookmark. `pacing` holds a replay back: `deadline` is then when more may go. With a
    `past` further rows are to be brought; without an interval `cut` is then how far these go.
    """

    name: str
    topic: str
    epoch: str
    rows: Sequence[Frame]
    cut: int
    group: bool = False
    resumed: Resumed | None = None
    batch_size: int = BATCH_SIZE
    shown: Callable[[Frame], Frame] | None = None
    pacing: Pacing | None = None
    past: Past | None = None
    deadline: Instant | None = None
    sent: int = 0
    begun: bool = False
    done: bool = False

    def take(self, bytes_max: int, now: Instant) -> list[Output]:
        """The next outputs, about `bytes_max` of payload; `done` once the last is out."""
        outputs = [] if self.begun else self._begin()
        self.begun = True
        rows = self._due(self.rows[self.sent : self.sent + self.batch_size], now)
        rows = rows[: prefix_within(rows, bytes_max)]
        self._went(rows, now)
        since, self.sent = self.sent, self.sent + len(rows)
        is_out = self.sent == len(self.rows)
        self.done = is_out and self.past is None
        if rows:
            low_water = self.cut if is_out and not self.group else None
            told = rows if self.shown is None else [self.shown(row) for row in rows]
            op = "snapshot" if self.group else "publish"
            batch = Batch(told, since, self.sent, low_water)
            outputs.append(Rows(self.name, self.topic, self.epoch, op, batch))
        if self.done and self.group:
            bookmark = str(Bookmark(self.epoch, self.cut))
            outputs.append(GroupEnd(self.name, self.topic, len(self.rows), bookmark))
        return outputs

    @property
    def wants_past(self) -> bool:
        """Whether all that has come from an archive is out, and nobody was asked for more."""
        return self.past is not None and not self.past.asked and self.sent == len(self.rows)

    def _begin(self) -> list[Output]:
        resumed = self.resumed
        if resumed is not None and not self.rows and not self.group and self.past is None:
            resumed = replace(resumed, bookmark=str(Bookmark(self.epoch, self.cut)))
        outputs: list[Output] = [resumed] if resumed is not None else []
        if self.group:
            outputs.append(GroupBegin(self.name, self.topic, len(self.rows)))
        return outputs

    def _due(self, rows: Sequence[Frame], now: Instant) -> Sequence[Frame]:
        """The first of these that may go; one at a time, as each depends on the one before."""
        self.deadline = None
        if self.pacing is None or not rows:
            return rows
        due = self.pacing.due(rows[0])
        if due > now:
            self.deadline = due
            return ()
        return rows[:1]

    def _went(self, rows: Sequence[Frame], now: Instant) -> None:
        if self.pacing is not None:
            for row in rows:
                self.pacing.went(row, now)
