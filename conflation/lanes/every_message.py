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

    A member that falls behind costs nothing: the list reaches back to the slowest one. When a
    queue overflows, `give_up` drops the member's part of the list and keeps the position; from
    there the board answers (Diffusion's `conflate`), or where it cannot, a backlog of the
    member's own. What is kept for it counts towards the limits all the same.
    """

    def __init__(self, lane_id: LaneId, board: Board) -> None:
        super().__init__(lane_id, board, position=board.head)
        # Limits count what would be sent: of a delta its patch, not its value.
        self.log = Log(sent_bytes if lane_id.delta else None)
        self._delta = DeltaWriter(lane_id) if lane_id.delta else None
        self._merges: Merges | None = None
        self._merged_through = 0

    @property
    def cuts(self) -> bool:
        return True

    @property
    def message_cost(self) -> int:
        is_read = self._delta is not None or self._shown is not None
        return COMBINING_COST // 2 if is_read else 1

    def accept(self, changes: Sequence[Change], now: Instant) -> None:
        self.log.extend(row for change in changes for row in self._rows_of(change))
        # Due at once; what one call of the engine publishes leaves in one flush all the same.
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
        # A row of the shared batch would not count what this member is owed.
        caught_up = member.conflated_to <= member.position and not member.owed
        return caught_up and batch.since == member.position

    def may_join_cohort(self, member: Member) -> bool:
        # A delta lane owes each member the messages without news at the join of another.
        is_alone = self._delta is not None or member.owed or member.backlog is not None
        is_conflated = member.conflated_to > member.position
        return not is_alone and not is_conflated and super().may_join_cohort(member)

    def join(self, member: Member) -> None:
        # Empty deltas so far are counted by the rows of those who are here already.
        unreported = self._delta.give_unreported() if self._delta is not None else {}
        for row_key, count in unreported.items():
            for other in self.members.values():
                other.owe(row_key, count)
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
        # Of one key only what the newest message brought: searching a list would cost its length.
        since = self.position if board_key is None else self.board.head - 1
        return [
            HeldRow(
                row.key, row.offset, row.offset, self.deadline, row.payload, removed=row.removed
            )
            for row in self.log.after(max(since, self.position))
            if board_key in (None, THE_RECORD, row.key)
        ]

    def unreported(self, member: Member) -> list[tuple[str, Unreported]]:
        # Given up messages and empty deltas; a queued row of their key would report them.
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
        kept = self._kept(member, until=member.conflated_to)
        return messages + len(kept), size + sum(map(sent_bytes, kept))

    def unconflated(self, member: Member) -> list[Frame]:
        """Return the messages of a member's queue that `give_up` has not conflated yet."""
        return self.log.after(max(member.position, member.conflated_to))

    def give_up(self, member: Member, rules: LaneId, through: int | None = None) -> None:
        """Conflate a member's queue by its topic's rules, all of it or up to an offset."""
        through = self.board.head if through is None else through
        listed = self.log.after(max(member.position, member.conflated_to), until=through)
        # A board has the newest of each key; what rules combine it cannot give back.
        if member.backlog is None and rules.asks_board:
            self._note_owed(member, listed)
        else:
            self._keep(member, rules, listed)
        member.conflated_to = through

    def _rows_of(self, change: Change) -> Iterable[Frame]:
        """Yield the row of a change, if it has one: a value, a delta or a removal."""
        frame = change.frame
        if isinstance(frame, Tombstone):
            if self.id.oof:
                # Every message is sent here, so the value is the record as it is now.
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
        known = piece if member.knows(piece) else member.as_known(piece)
        _settle_owed(member, piece)
        low_water = max(self.low_water(), member.cut) if is_all else None
        return Batch(known, since, position, low_water)

    def _is_whole(self, member: Member) -> bool:
        """Return True if a part of the answer is no position: a board's rows with removals."""
        by_board = member.backlog is None and member.conflated_to > member.position
        return by_board and self.id.oof

    def _from_backlog(self, member: Member, piece: Sequence[Frame], position: int) -> int:
        """Take a piece's rows out; the position moves when all of them are out."""
        assert member.backlog is not None
        kept = len(member.backlog.rows())
        member.backlog.took(len(piece))
        if len(piece) < kept:
            return member.position
        member.backlog = None
        return max(position, member.conflated_to)

    def _rows(self, member: Member, until: int) -> list[Frame]:
        """Return what is kept of a conflated queue, then the list."""
        listed_after = max(member.position, member.conflated_to)
        kept = self._kept(member, until)
        listed = self.log.after(listed_after, until=until)
        return [*kept, *listed] if not member.owed else _with_owed(member, kept, listed)

    def _kept(self, member: Member, until: int) -> Sequence[Frame]:
        if member.conflated_to <= member.position:
            return []
        if member.backlog is not None:
            return member.backlog.rows()
        last = min(member.conflated_to, until)
        rows = self.board.rows(member.position, last, oof=self.id.oof)
        return all_shown(self._shown, (row for _, row in rows))

    def _keep(self, member: Member, rules: LaneId, listed: Sequence[Frame]) -> None:
        """Add rows to the member's backlog; a new one begins with what the board kept."""
        kept: Sequence[Frame] = ()
        if member.backlog is None:
            kept = self._kept(member, until=member.conflated_to)
            member.backlog = Backlog(rules, self._merges_of(rules))
        rows = [*kept, *listed] if not member.owed else _with_owed(member, kept, listed)
        _settle_owed(member, rows)
        member.backlog.absorb(rows, self.board.held_at)
        self._merged_through = self.board.head
        for row_key, unreported in member.backlog.take_unseen():
            member.miss(row_key, unreported)

    def _merges_of(self, rules: LaneId) -> Merges | None:
        if self._merges is None or self._merges.merger != rules.merge:
            self._merges = Merges.of(rules.merge)
        return self._merges

    def _note_owed(self, member: Member, listed: Sequence[Frame]) -> None:
        """Note what each key's next row will stand for, as this part of the list is dropped."""
        for row in listed:
            if not row.exempt:
                member.owe(row.key, receipt_of(row))

    def _trim(self) -> None:
        """Drop the part of the list that no member will ask for."""
        members = self.members.values()
        listed_after = (max(member.position, member.conflated_to) for member in members)
        slowest = min(listed_after, default=self.position)
        self.log.drop_through(slowest)
        # No queue has a message left that was merged: the answers are of no more use.
        if self._merges is not None and slowest >= self._merged_through:
            self._merges.forget()


def _with_owed(member: Member, kept: Sequence[Frame], listed: Sequence[Frame]) -> list[Frame]:
    """Return rows with what is owed of their keys; no delta where its base was not sent."""
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


def _settle_owed(member: Member, rows: Iterable[Frame]) -> None:
    """Drop what was owed of keys: these rows stand for it."""
    owed = member.owed or {}
    for row in rows:
        if row.key in owed and owed[row.key].first <= row.offset and not row.exempt:
            del owed[row.key]
