"""The lane of `conflation=none`: every message, in order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain

import msgspec

from tidegate.conflation.boards.board import THE_RECORD, Board, Pair
from tidegate.conflation.frame import Batch, Frame, Tombstone, prefix_within, receipt_of, sent_bytes
from tidegate.conflation.journal import Log
from tidegate.conflation.lanes.accumulate import Merges, Unreported
from tidegate.conflation.lanes.delta import DeltaWriter
from tidegate.conflation.lanes.lane import (
    COMBINING_COST,
    HeldRow,
    Lane,
    all_shown,
    grouped,
    whole,
)
from tidegate.conflation.lanes.member import Backlog, Member
from tidegate.conflation.operators.filter import Change
from tidegate.conflation.subscription import LaneId
from tidegate.keys.text.duration import Instant


class EveryMessageLane(Lane):
    """A list shared by its members, flushed as soon as the caller advances.

    A member that falls behind has no list of its own: the shared one reaches back to the slowest
    member. When a queue overflows, `conflate_queue` drops the member's part of the list and keeps
    its position. What it missed is then read from the board (Diffusion's `conflate`), or from a
    backlog of its own where the board does not know it. That counts towards the limits, too.
    """

    def __init__(self, lane_id: LaneId, board: Board) -> None:
        super().__init__(lane_id, board, position=board.head)
        # Limits count the bytes that would be sent: a delta's patch, not its value.
        self.log = Log(sent_bytes if lane_id.delta else None)
        self._delta = DeltaWriter(lane_id) if lane_id.delta else None
        self._merges: Merges | None = None
        self._merged_through = 0

    @property
    def sends_in_pieces(self) -> bool:
        return True

    @property
    def message_cost(self) -> int:
        is_read = self._delta is not None or self._shown is not None
        return COMBINING_COST // 2 if is_read else 1

    def accept(self, changes: Sequence[Change], now: Instant) -> None:
        self.log.extend(row for change in changes for row in self._rows_of(change))
        # Due at once; the messages of one `publish` still leave in one flush.
        if self.deadline is None:
            self.deadline = now

    def flush(self, now: Instant) -> bool:
        self.deadline = None
        self._trim()
        frames = self.log.after(self.position)
        since, self.position = self.position, self.board.head
        self.batch = Batch(frames, since, self.position, self.position)
        return True

    def in_step(self, member: Member, batch: Batch) -> bool:
        # A row of the shared batch would not count the messages in `owed`.
        caught_up = member.conflated_to <= member.position and not member.owed
        return caught_up and batch.since == member.position

    def may_join_cohort(self, member: Member) -> bool:
        # In a delta lane, `join` gives each member its own count of messages without changes.
        is_alone = self._delta is not None or member.owed or member.backlog is not None
        is_conflated = member.conflated_to > member.position
        return not is_alone and not is_conflated and super().may_join_cohort(member)

    def join(self, member: Member) -> None:
        # Only rows of the present members may count the empty deltas so far.
        unreported = self._delta.pop_unreported() if self._delta is not None else {}
        for row_key, count in unreported.items():
            for other in self.members.values():
                other.add_owed(row_key, count)
        member.position = self.board.head

    def pending(self, member: Member) -> list[Pair]:
        return [(row.key, row) for row in whole(self._rows(member, until=self.board.head))]

    def waiting(self, member: Member) -> int:
        return sum(not row.removed for row in self._rows(member, until=self.board.head))

    def by_backlog(self) -> Iterable[Sequence[Member]]:
        def kin(member: Member) -> Hashable:
            if member.backlog is not None:
                return member.place
            return member.position, max(member.position, member.conflated_to)

        return grouped(self.members.values(), kin)

    def held(self, board_key: str | None = None) -> list[HeldRow]:
        # Of one key only the row of the newest message: searching the list would take too long.
        since = self.position if board_key is None else self.board.head - 1
        return [
            HeldRow(
                row.key, row.offset, row.offset, self.deadline, row.payload, removed=row.removed
            )
            for row in self.log.after(max(since, self.position))
            if board_key in (None, THE_RECORD, row.key)
        ]

    def unreported(self, member: Member) -> list[tuple[str, Unreported]]:
        # Conflated messages and empty deltas, unless a row of their key is queued and reports them.
        owed = dict(member.owed or {})
        for row in self._rows(member, until=self.board.head) if owed else ():
            if row.key in owed and owed[row.key].first <= row.offset and not row.exempt:
                del owed[row.key]
        empty = {} if self._delta is None else self._delta.unreported
        counts = chain(owed.items(), empty.items())
        return [(row_key, Unreported(count)) for row_key, count in counts]

    def low_water(self) -> int:
        return self.position

    def queued(self, member: Member) -> tuple[int, int]:
        messages, size = self.log.backlog(max(member.position, member.conflated_to))
        kept = self._conflated_rows(member, until=member.conflated_to)
        return messages + len(kept), size + sum(map(sent_bytes, kept))

    def unconflated(self, member: Member) -> list[Frame]:
        return self.log.after(max(member.position, member.conflated_to))

    def conflate_queue(self, member: Member, rules: LaneId, through: int | None = None) -> None:
        """Conflate a member's queue by its topic's rules, all of it or up to an offset."""
        through = self.board.head if through is None else through
        listed = self.log.after(max(member.position, member.conflated_to), until=through)
        # A board has the newest message of each key, but not what rules have combined.
        if member.backlog is None and rules.asks_board:
            self._add_owed(member, listed)
        else:
            self._add_to_backlog(member, rules, listed)
        member.conflated_to = through

    def _rows_of(self, change: Change) -> Iterable[Frame]:
        """Yield the row of a change, if it has one: a value, a delta or a removal."""
        frame = change.frame
        if isinstance(frame, Tombstone):
            if self.id.oof:
                # Every message is sent here, so the client is shown the record as it is now.
                removal = msgspec.structs.replace(frame, payload=frame.record or frame.payload)
                yield removal if self._shown is None else self._shown(removal)
        elif self._delta is not None:
            yield from self._delta.rows(change)
        else:
            yield frame if self._shown is None else self._shown(frame)

    def _own_answer(self, member: Member, bytes_max: int) -> Batch:
        rows = self._rows(member, until=self.position)
        piece = rows if self._is_whole(member) else rows[: prefix_within(rows, bytes_max)]
        is_all = len(piece) == len(rows)
        since, position = member.position, self.position if is_all else piece[-1].offset
        if member.backlog is not None:
            position = self._from_backlog(member, piece, position)
        known = piece if member.accepts_shared(piece) else member.personalize(piece)
        _drop_owed(member, piece)
        low_water = max(self.low_water(), member.cut) if is_all else None
        return Batch(known, since, position, low_water)

    def _is_whole(self, member: Member) -> bool:
        """Return True if no part of the answer ends at a position: a board's rows with removals."""
        by_board = member.backlog is None and member.conflated_to > member.position
        return by_board and self.id.oof

    def _from_backlog(self, member: Member, piece: Sequence[Frame], position: int) -> int:
        """Drop the rows of a piece from the backlog; the position moves when it is empty."""
        assert member.backlog is not None
        kept = len(member.backlog.rows())
        member.backlog.drop_sent(len(piece))
        if len(piece) < kept:
            return member.position
        member.backlog = None
        return max(position, member.conflated_to)

    def _rows(self, member: Member, until: int) -> list[Frame]:
        """Return the rows of the conflated queue, and then those of the list."""
        listed_after = max(member.position, member.conflated_to)
        kept = self._conflated_rows(member, until)
        listed = self.log.after(listed_after, until=until)
        return [*kept, *listed] if not member.owed else _with_owed(member, kept, listed)

    def _conflated_rows(self, member: Member, until: int) -> Sequence[Frame]:
        if member.conflated_to <= member.position:
            return []
        if member.backlog is not None:
            return member.backlog.rows()
        last = min(member.conflated_to, until)
        rows = self.board.rows(member.position, last, oof=self.id.oof)
        return all_shown(self._shown, (row for _, row in rows))

    def _add_to_backlog(self, member: Member, rules: LaneId, listed: Sequence[Frame]) -> None:
        """Add rows to the member's backlog; a new one begins with the rows of the board."""
        kept: Sequence[Frame] = ()
        if member.backlog is None:
            kept = self._conflated_rows(member, until=member.conflated_to)
            member.backlog = Backlog(rules, self._merges_of(rules))
        rows = [*kept, *listed] if not member.owed else _with_owed(member, kept, listed)
        _drop_owed(member, rows)
        member.backlog.absorb(rows, self.board.held_at)
        self._merged_through = self.board.head
        for row_key, unreported in member.backlog.pop_unseen():
            member.add_unreported(row_key, unreported)

    def _merges_of(self, rules: LaneId) -> Merges | None:
        if self._merges is None or self._merges.merger != rules.merge:
            self._merges = Merges.of(rules.merge)
        return self._merges

    def _add_owed(self, member: Member, listed: Sequence[Frame]) -> None:
        """Add this part of the list, which is dropped, to what each key's next row counts."""
        for row in listed:
            if not row.exempt:
                member.add_owed(row.key, receipt_of(row))

    def _trim(self) -> None:
        """Drop the part of the list that no member will ask for."""
        members = self.members.values()
        listed_after = (max(member.position, member.conflated_to) for member in members)
        slowest = min(listed_after, default=self.position)
        self.log.drop_through(slowest)
        # No queue has a message left that was merged, so the answers are not needed any more.
        if self._merges is not None and slowest >= self._merged_through:
            self._merges.forget()


def _with_owed(member: Member, kept: Sequence[Frame], listed: Sequence[Frame]) -> list[Frame]:
    """Return rows that count the messages owed of their keys; no delta without a sent base."""
    owed = dict(member.owed or {})
    rows: list[Frame] = []
    for at, row in enumerate((*kept, *listed)):
        earlier = owed.get(row.key)
        if earlier is None or earlier.first > row.offset or row.exempt:
            rows.append(row)
            continue
        del owed[row.key]
        rows.append((earlier if at < len(kept) else earlier.then(receipt_of(row))).on(row))
    return rows


def _drop_owed(member: Member, rows: Iterable[Frame]) -> None:
    """Drop the owed messages that these rows count."""
    owed = member.owed or {}
    for row in rows:
        if row.key in owed and owed[row.key].first <= row.offset and not row.exempt:
            del owed[row.key]
