"""Bugs planted in lanes and pending entries; the columns are those of bugs.py."""

from __future__ import annotations

ENGINE = "test_state_machine:EngineMachine"
FOCUS = "test_state_machine_focus:FocusMachine"
STATEFUL = "test_state_machine_stateful:StatefulMachine"

Planted = tuple[str, str, str, str]

LANES: dict[str, Planted] = {
    "an interval of a lane is twice as long": (
        ENGINE,
        "conflation/lanes/interval.py",
        "            self.deadline = now + self.id.interval_ns",
        "            self.deadline = now + 2 * self.id.interval_ns",
    ),
    "what a round sent ahead comes again": (
        ENGINE,
        "conflation/lanes/lane_progress.py",
        "                    self.ahead[board_key] = newest.offset",
        "                    pass",
    ),
    "a key that never rests is never reached": (
        ENGINE,
        "conflation/lanes/interval.py",
        "            going = CatchUp(missed, self.board.head, self.id.queues, earlier=earlier)",
        "            going = CatchUp(missed, self.board.head, True, earlier=earlier)",
    ),
    "a round sends what was there when it began": (
        ENGINE,
        "conflation/lanes/lane_progress.py",
        "    return newest",
        "    return row",
    ),
    "rows held at the join come from the lane as well": (
        ENGINE,
        "conflation/lanes/interval.py",
        "        member.position = self.board.head",
        "        member.position = self.position",
    ),
    "a piece of a backlog promises the whole": (
        ENGINE,
        "conflation/lanes/interval.py",
        "        low_water = max(going.position, member.cut) if has_drained else None",
        "        low_water = max(going.position, member.cut)",
    ),
    "a deadline is rounded down to the tick": (
        ENGINE,
        "conflation/lanes/stateful.py",
        "            return -(-due // self._tick_ns) * self._tick_ns",
        "            return due // self._tick_ns * self._tick_ns",
    ),
    "an id promises the key that is held": (
        ENGINE,
        "conflation/lanes/stateful.py",
        "        return min(opened) - 1 if opened else self.board.head",
        "        return min(opened) if opened else self.board.head",
    ),
    "rows of the snapshot come again by key": (
        ENGINE,
        "conflation/lanes/stateful.py",
        "        return fresh and started and batch.since == member.position",
        "        return batch.since == member.position",
    ),
    "a key of its own time hears of a removal as a value": (
        FOCUS,
        "conflation/lanes/stateful.py",
        "                if self.id.oof:",
        "                if not self.id.oof:",
    ),
    "flush_on lets nothing go": (
        STATEFUL,
        "conflation/lanes/stateful.py",
        "            self._released.append((next(self._groups), entries))",
        "            pass",
    ),
    "a leading key goes at once always": (
        STATEFUL,
        "conflation/lanes/stateful.py",
        "            if last is None or now - last >= self.id.interval_ns:",
        "            if last is None or now - last >= 0:",
    ),
    "what matches never is conflated": (
        STATEFUL,
        "conflation/lanes/stateful.py",
        "        sealed = not frame.removed and (frame.exempt or never)",
        "        sealed = not frame.removed and frame.exempt",
    ),
    "the lane of every message skips its last": (
        ENGINE,
        "conflation/lanes/every_message.py",
        "        frames = self.log.after(self.position)",
        "        frames = self.log.after(self.position)[:-1]",
    ),
    "a full queue is not conflated": (
        ENGINE,
        "conflation/lanes/every_message.py",
        "        member.conflated_to = through",
        "        member.conflated_to = member.position",
    ),
    "a removal at once shows the record as it was": (
        FOCUS,
        "conflation/lanes/every_message.py",
        (
            "                removal = msgspec.structs.replace("
            "frame, payload=frame.record or frame.payload)"
        ),
        "                removal = msgspec.structs.replace(frame, payload=frame.payload)",
    ),
    "what was not selected is seen": (
        FOCUS,
        "conflation/lanes/interval.py",
        "            return self._shown(row)",
        "            return row",
    ),
}

SLOTTED: dict[str, Planted] = {
    "an entry is not moved to its newest message": (
        STATEFUL,
        "conflation/lanes/pending.py",
        "                entry.send_order = part.frame.offset",
        "                entry.send_order = entry.first_offset",
    ),
    "match is not looked at": (
        STATEFUL,
        "conflation/lanes/pending.py",
        "        return self._match_of is None or entry.match == self._match(part)",
        "        return True",
    ),
    "parts from before a join are told again": (
        STATEFUL,
        "conflation/lanes/pending.py",
        "            if part.joins < since_join:",
        "            if part.joins < since_join - 1:",
    ),
    "an entry counts its newest message alone": (
        ENGINE,
        "conflation/lanes/part.py",
        "    return older.then(newer)",
        "    return newer",
    ),
    "a key that came and went is told": (
        FOCUS,
        "conflation/lanes/part.py",
        "        return self.gone is not None and self.is_new",
        "        return False",
    ),
    "reducers see the last message only": (
        STATEFUL,
        "conflation/lanes/part.py",
        "            accumulator = self.accumulator.join(later.accumulator)",
        "            accumulator = later.accumulator",
    ),
    "a delta is that of the last message": (
        STATEFUL,
        "conflation/lanes/part.py",
        "            patch = patches.compose(self.patch, later.patch)",
        "            patch = later.patch",
    ),
    "flushes forget one flush too many": (
        ENGINE,
        "conflation/lanes/flushes.py",
        "            if oldest is None or flush.position <= oldest:",
        "            if oldest is None or flush.position <= oldest + 1:",
    ),
    "flushes are joined where somebody stands between": (
        ENGINE,
        "conflation/lanes/flushes.py",
        "            is_next = bool(kept) and kept[-1].position not in positions",
        "            is_next = bool(kept)",
    ),
    "an empty delta is sent": (
        STATEFUL,
        "conflation/lanes/delta.py",
        "        if is_empty and not entry.sealed and not entry.was_joined:",
        "        if is_empty and entry.sealed and not entry.was_joined:",
    ),
    "a delta is sent though it is longer": (
        FOCUS,
        "conflation/lanes/delta.py",
        "        return complete if len(complete) < len(payload) else None",
        "        return complete",
    ),
    "a delta compares what is not selected": (
        STATEFUL,
        "conflation/lanes/delta.py",
        "        return payload if self._select is None else self._select.apply(payload)",
        "        return payload",
    ),
    "the first message of a row is the later one": (
        ENGINE,
        "conflation/frame.py",
        "        oldest = self if self.first <= other.first else other",
        "        oldest = other",
    ),
    "a merger keeps the new for the current": (
        STATEFUL,
        "conflation/lanes/accumulate.py",
        "                return self",
        "                return MergerAccumulator(self.merger, payload)",
    ),
    "a message that a merger keeps moves to the end": (
        STATEFUL,
        "conflation/lanes/pending.py",
        "            if not self._replaces and not joined.keeps_place(earlier):",
        "            if not self._replaces:",
    ),
    "a cohort counts as delivered what others were sent before": (
        ENGINE,
        "conflation/lanes/member.py",
        "        self.delivered_before = self.delivered - progress.delivered",
        "        self.delivered_before = 0",
    ),
}
