"""Bugs to plant: what breaks, the machine that finds it, the file, its line, what stands there."""

from __future__ import annotations

from tests.support.planted.lanes import ENGINE, FOCUS, LANES, SLOTTED, STATEFUL, Planted
from tests.support.planted.queues import POLICIES, QUEUES
from tests.support.planted.sums import CONSERVED, RECEIPTS, SUMS

WINDOWS = "test_state_machine_windows:WindowMachine"
GROUPS = "test_state_machine_windows:GroupMachine"
CHANGES = "test_state_machine_changes:ChangeMachine"
REPLAY = "test_state_machine_replay:ReplayMachine"
RESUME = "test_state_machine_replay:ResumeMachine"
EXPIRY = "test_state_machine_replay:ExpiryMachine"

BOARDS: dict[str, Planted] = {
    "an answer begins one row too early": (
        ENGINE,
        "conflation/boards/board.py",
        "            if row[1].offset <= since:",
        "            if row[1].offset < since:",
    ),
    "spans are forgotten when a key comes back": (
        FOCUS,
        "conflation/boards/board.py",
        "        spans = _merged((*self._departed.get(board_key, ()), (entered, removal.offset)))",
        "        spans = ((entered, removal.offset),)",
    ),
    "an exempt message is replaced": (
        FOCUS,
        "conflation/boards/board.py",
        "            self._exempt.append(replaced)",
        "            pass",
    ),
    "a record that stops to match stays": (
        FOCUS,
        "conflation/operators/filter.py",
        "            return [(frame.key or THE_RECORD, no_longer_matching(frame))]",
        "            return ()",
    ),
    "a record that left is found by its new value only": (
        FOCUS,
        "conflation/topics/index.py",
        "                tokens = (*tokens, *tokens_of(before.payload))",
        "                tokens = (*tokens,)",
    ),
    "a window is one row too long": (
        WINDOWS,
        "conflation/operators/top_n.py",
        "        self._start, self._end = window.skip_n, window.skip_n + window.top_n",
        "        self._start, self._end = window.skip_n, window.skip_n + window.top_n + 1",
    ),
    "a window does not look where a record was": (
        WINDOWS,
        "conflation/operators/top_n.py",
        "            self._take_out(known.place, left, came)",
        "            self._take_out(known.place, set(), set())",
    ),
    "a change inside a window is not seen": (
        WINDOWS,
        "conflation/operators/top_n.py",
        "        if frame.key in left and frame.key in came:",
        "        if frame.key in left and frame.key not in came:",
    ),
    "a record stays in the group that it left": (
        GROUPS,
        "conflation/operators/group_by.py",
        "            self._note(before, record_key, self._groups[before].pop(record_key))",
        "            self._note(before, record_key, self._groups[before].get(record_key))",
    ),
    "the group that a record left is not made anew": (
        GROUPS,
        "conflation/operators/group_by.py",
        "            self._put_off(before, frame)",
        "            pass",
    ),
    "a lane that listens hears only its first message": (
        ENGINE,
        "conflation/topics/feed.py",
        "            if not lane.sees_every_message:",
        "            if True:",
    ),
    "a nearer deadline is not noted": (
        STATEFUL,
        "conflation/topics/feed.py",
        "            if lane.deadline != before:",
        "            if before is None and lane.deadline is not None:",
    ),
    "a new board is not filled": (
        WINDOWS,
        "conflation/topics/topic.py",
        "                found.seed(self.sow.board.live())",
        "                pass",
    ),
}

MEMBERS: dict[str, Planted] = {
    "a removal is told to who was never told of the key": (
        FOCUS,
        "conflation/lanes/member.py",
        "            return frame if self.sent is None or frame.key in self.sent else None",
        "            return frame",
    ),
    "a member without snapshot never forgets a key": (
        CHANGES,
        "conflation/lanes/member.py",
        "            keys.discard(frame.key)",
        "            pass",
    ),
    "a large answer loses a row between its pieces": (
        STATEFUL,
        "conflation/sessions/rows.py",
        "        since, self.sent = self.sent, self.sent + len(rows)",
        "        since, self.sent = self.sent, min(self.sent + len(rows) + 1, len(self.rows))",
    ),
    "what is held stays behind": (
        CHANGES,
        "conflation/sessions/lane_change.py",
        "    pairs = yield from _put_after(subscriber, earlier, old, rows, rows_max)",
        "    pairs = yield from _put_after(subscriber, earlier, old, [], rows_max)",
    ),
    "a position is not taken along": (
        CHANGES,
        "conflation/sessions/lane_change.py",
        "        member.position, member.cut, member.released = since, cut, new.board.head",
        "        member.cut, member.released = cut, new.board.head",
    ),
    "a change waits for the later deadline": (
        CHANGES,
        "conflation/sessions/lane_change.py",
        "    due = min(held_until, now + interval_ns) if waits and held_until is not None else now",
        "    due = max(held_until, now + interval_ns) if waits and held_until is not None else now",
    ),
    "a second change forgets the deadline of the first": (
        CHANGES,
        "conflation/sessions/lane_change.py",
        "        held_until, before.deadline = before.deadline, None",
        "        before.deadline = None",
    ),
    "a removal is owed without the value that it takes away": (
        CHANGES,
        "conflation/sessions/rows.py",
        "        self._append(board_key, row)",
        (
            "        for place in list(self._places.get(board_key, ())):\n"
            "            self._pop(board_key, place)\n"
            "        self._append(board_key, row)"
        ),
    ),
    "what another filter hides is not taken back": (
        CHANGES,
        "conflation/sessions/lane_change.py",
        "        rows += yield from in_pieces(before, rows_max, hidden)",
        "        rows += []",
    ),
    "a pause takes": (
        CHANGES,
        "conflation/sessions/subscriber.py",
        "        if self.paused:",
        "        if False:",
    ),
    "what waited at the end is not counted as dropped": (
        ENGINE,
        "conflation/sessions/accounting.py",
        ('        sums.update({"dropped": last.waiting, f"{DROPPED}{reason}": last.waiting})'),
        '        sums.update({"dropped": 0})',
    ),
    "a queue may be one too long": (
        ENGINE,
        "conflation/sessions/session.py",
        "        over_messages = 100 * messages > percent * self.messages_max",
        "        over_messages = 100 * (messages - 1) > percent * self.messages_max",
    ),
    "a lane due this very moment stays": (
        ENGINE,
        "conflation/schedule.py",
        "        while self._heap and self._heap[0][0] <= now:",
        "        while self._heap and self._heap[0][0] < now:",
    ),
    "a session is never announced again": (
        ENGINE,
        "conflation/engine.py",
        "        self._registry.taken(session, has_found=bool(outputs))",
        "        self._registry.taken(session, has_found=True)",
    ),
    "a conflation key is its first field": (
        ENGINE,
        "keys/spec.py",
        "        return join_key([_or_null(text) for text in fields_of(payload)])",
        "        return join_key([_or_null(text) for text in fields_of(payload)][:1])",
    ),
}

BEGINNINGS: dict[str, Planted] = {
    "a resume of changes forgets the filter": (
        RESUME,
        "conflation/sessions/backfill_rows.py",
        "            if not row.removed and (matches is None or matches(row.payload, row.key))",
        "            if not row.removed",
    ),
    "a resume of removals under a filter goes by changes": (
        RESUME,
        "conflation/sessions/backfill.py",
        (
            "    return lane_id.feed.shape is not None or "
            "(lane_id.oof and lane_id.feed.filter is not None)"
        ),
        "    return lane_id.feed.shape is not None",
    ),
    "a resume skips a message": (
        RESUME,
        "conflation/sessions/backfill_rows.py",
        "        return replayed(topic, lane_id, offset, rows_max)",
        "        return replayed(topic, lane_id, offset + 1, rows_max)",
    ),
    "a replay ends where it began": (
        REPLAY,
        "conflation/sessions/backfill.py",
        "    if before.through == topic.head:",
        "    if True:",
    ),
    "a replay that goes on has no speed": (
        REPLAY,
        "conflation/sessions/backfill.py",
        "    cursor.pacing = before.pacing",
        "    cursor.pacing = None",
    ),
    "a replay makes up for all it missed": (
        REPLAY,
        "conflation/sessions/rows.py",
        "        self._last = max(self.due(row), now - BURST_NS)",
        "        self._last = self.due(row)",
    ),
    "a replay waits for its own row's bytes": (
        REPLAY,
        "conflation/sessions/rows.py",
        "            gap_ns = len(before.payload) * SECOND // rate.bytes_per_s",
        "            gap_ns = len(row.payload) * SECOND // rate.bytes_per_s",
    ),
    "records expire up to the newest": (
        EXPIRY,
        "conflation/schedule.py",
        "            through = self._due.popleft()[1]",
        "            through = self._due.popleft()[1] + 1",
    ),
    "expiry is announced once": (
        EXPIRY,
        "conflation/schedule.py",
        "        self.deadline = self._due[0][0] if self._due else None",
        "        self.deadline = None",
    ),
}

PLANTED = LANES | SLOTTED | BOARDS | MEMBERS | BEGINNINGS | QUEUES | SUMS
MACHINES = (
    ENGINE,
    FOCUS,
    STATEFUL,
    WINDOWS,
    GROUPS,
    CHANGES,
    REPLAY,
    RESUME,
    EXPIRY,
    POLICIES,
    CONSERVED,
    RECEIPTS,
)

# Seeds of examples among which a rare bug is found within seconds. The usual ones take a minute.
FOUND_FROM = {
    "a cohort counts as delivered what others were sent before": 2,
    "a second change forgets the deadline of the first": 0,
    "a removal is owed without the value that it takes away": 0,
    "a position is not taken along": 7,
    "flushes are joined where somebody stands between": 0,
    "a member without snapshot never forgets a key": 5,
    "what was taken from a backlog comes again": 8,
    "a replay waits for its own row's bytes": 2,
    "a replay makes up for all it missed": 2,
    "a piece of a backlog is a position": 27,
    "a full queue forgets what came and went": 9,
    "a resume skips a message": 0,
    "a low priority is served while a high one waits": 0,
    "the removal of a key never sent takes its messages with it": 0,
    "an empty delta is sent": 1,
    "rows of other rules are put together over a move": 4,
}
