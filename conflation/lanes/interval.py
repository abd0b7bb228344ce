"""The lane of a plain interval: `pace=batch`, the newest of each key, from the board alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from tidegate.conflation.boards.board import Board, Pair
from tidegate.conflation.frame import MADE_AT_ONCE, ROWS_AT_ONCE, Batch, Frame
from tidegate.conflation.lanes.catch_up import CatchUp, without
from tidegate.conflation.lanes.lane import HeldRow, Lane, Undelivered, all_shown, grouped
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.operators.filter import Change
from tidegate.conflation.subscription import LaneId
from tidegate.keys.text.duration import Instant


class IntervalLane(Lane):
    """One interval for all keys: the first message of an idle lane opens it (CONTRACT 5.1)."""

    is_stateless = True

    def __init__(self, lane_id: LaneId, board: Board) -> None:
        super().__init__(lane_id, board, position=board.head)
        # Of the flush that is due: by key a row and its shown form; all rows; how many of them
        # have been prepared.
        self._prepared: dict[str, tuple[Frame, Frame]] = {}
        self._to_prepare: Sequence[Pair] | None = None
        self._prepared_rows = 0

    @property
    def sees_every_message(self) -> bool:
        return False  # only the first message of an interval arms the deadline

    @property
    def sends_in_pieces(self) -> bool:
        return True

    def accept(self, changes: Sequence[Change], now: Instant) -> None:
        if self.deadline is None:
            self.deadline = now + self.id.interval_ns

    def prepare(self, rows_max: int) -> bool:
        shown = self._shown
        if shown is None or self.board.has_many(self.position):
            return True
        if self._to_prepare is None:
            # As of now: the flush selects the fields of keys that change later, which are few.
            self._to_prepare = self.board.rows(self.position, oof=self.id.oof)
            self._prepared_rows = 0
        part = self._to_prepare[self._prepared_rows : self._prepared_rows + rows_max]
        self._prepared_rows += len(part)
        self._prepared |= {known: (row, shown(row)) for known, row in part}
        return len(part) < rows_max

    def flush(self, now: Instant) -> bool:
        self.deadline = None
        since, self.position = self.position, self.board.head
        self.batch = None
        # Very many rows are no batch: each cohort is sent them in pieces, as a slow one is.
        if not self.board.has_many(since):
            changed = self.board.rows(since, oof=self.id.oof)
            self.batch = Batch(map(self._row, changed), since, self.position, self.position)
        self._prepared, self._to_prepare = {}, None
        return self.position > since

    def flushed(self, since: int) -> Sequence[Frame]:
        if self.batch is not None:
            return self.batch.frames
        return all_shown(self._shown, (row for _, row in self.board.rows(since, oof=self.id.oof)))

    def join(self, member: Member) -> None:
        member.position = self.board.head

    def ready(self, member: Member) -> bool:
        # Rows that were released to this member alone, when it changed lanes, wait for no flush.
        return member.is_catching_up or member.position < max(self.position, member.released)

    def has_sent(self, member: Member, row: Frame) -> bool:
        """Return True if a member that took late has a row of a flush already."""
        return member.cut < row.offset <= member.position and not member.is_catching_up

    def in_step(self, member: Member, batch: Batch) -> bool:
        # During a catch-up the position is where it began, though rows after it were sent.
        return member.catch_up is None and batch.since == member.position

    def pending(self, member: Member) -> list[Pair]:
        return self._as_shown(self._due(member))

    def undelivered(self, member: Member) -> Undelivered:
        return self._left(self._due(member), [], self._shown and self._as_shown)

    def _as_shown(self, rows: Sequence[Pair]) -> list[Pair]:
        shown = self._shown
        return list(rows) if shown is None else [(known, shown(row)) for known, row in rows]

    def _due(self, member: Member) -> list[Pair]:
        """Return the rows that the member was not sent, as they are on the board."""
        going = member.catch_up
        rest = [] if going is None else going.rest(self.board)
        ahead = {} if going is None else {**going.ahead, **{known: it.offset for known, it in rest}}
        missed = self.board.rows(member.position, oof=self.id.oof)
        rows = [*rest, *without(missed, ahead)]
        return [(board_key, row) for board_key, row in rows if row.offset > member.cut]

    def waiting(self, member: Member) -> int:
        # This runs for each subscription that ends, so rows are counted without making them.
        going, board = member.catch_up, self.board
        since = max(member.position, member.cut)
        changed = board.count_since(since)
        if changed is None or (going is not None and (going.appends or since > going.position)):
            return super().waiting(member)
        if going is None:
            return changed
        # A key that has changed again is sent once, and not at all if its newest value was sent.
        if not going.is_over and going.rows[going.sent][1].offset <= member.cut:
            return super().waiting(member)
        keys = going.values_left()
        keys.update(known for known, _ in board.rows(since))
        return len(keys) - sum(
            (row := board.get(known)) is not None and row.offset == sent
            for known, sent in going.ahead.items()
        )

    def by_backlog(self) -> Iterable[Sequence[Member]]:
        def kin(member: Member) -> Hashable:
            if member.catch_up is not None:
                return member.place  # it may be anywhere within its rows
            return member.position, max(member.position, member.cut)

        return grouped(self.members.values(), kin)

    def held(self, board_key: str | None = None) -> list[HeldRow]:
        oof = self.id.oof
        if board_key is None:
            rows = self.board.rows(self.position, oof=oof)
        else:
            row = self.board.row(board_key, self.position, oof=oof)
            rows = [] if row is None else [(board_key, row)]
        return [
            HeldRow(known, 0, row.offset, self.deadline, row.payload, removed=row.removed)
            for known, row in rows
        ]

    def low_water(self) -> int:
        return self.position

    def _own_answer(self, member: Member, bytes_max: int) -> Batch:
        """Return a piece of a catch-up: all that has changed up to now, flushed or not.

        A catch-up to the lane's position would leave out keys that changed since. One that changes
        constantly would never be sent. And with `oof` a member that skipped a change would hold
        something else than its position says.
        """
        going = member.catch_up
        if going is None or going.is_over:
            earlier = {} if going is None else going.ahead
            missed = self.board.rows(member.position, oof=self.id.oof)
            if len(missed) <= ROWS_AT_ONCE:  # else `next_rows` leaves them out, piece by piece
                missed, earlier = without(missed, earlier), {}
            going = CatchUp(missed, self.board.head, self.id.queues, earlier=earlier)
            member.catch_up = going
        rows_max = ROWS_AT_ONCE if self._shown is None else MADE_AT_ONCE
        piece = all_shown(self._shown, going.next_rows(self.board, bytes_max, rows_max))
        # While rows are left, no event may have an id that includes them.
        has_drained = going.is_over and not (going.appends and self.board.head > going.position)
        low_water = max(going.position, member.cut) if has_drained else None
        batch = Batch(piece, member.position, going.position, low_water, has_more=not has_drained)
        if going.is_over and not going.ahead:
            member.catch_up = None
        return batch if member.accepts_shared(batch.frames) else self._personalized(member, batch)

    def _row(self, changed: Pair) -> Frame:
        """Return a row of a flush in its shown form."""
        board_key, row = changed
        if self._shown is None:
            return row
        prepared = self._prepared.get(board_key)
        if prepared is None or prepared[0] is not row:
            return self._shown(row)
        return prepared[1]
