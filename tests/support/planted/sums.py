"""Bugs by which messages are lost or told twice; the columns are those of bugs.py."""

from __future__ import annotations

from tests.support.planted.lanes import Planted

CONSERVED = "test_state_machine_conserved:ConservedMachine"
RECEIPTS = "test_state_machine_conserved:ReceiptMachine"

SUMS: dict[str, Planted] = {
    "a combined value that was not sent is replaced over a move": (
        CONSERVED,
        "conflation/lanes/accumulate.py",
        "        accumulator = self.accumulator.join(later.accumulator)",
        "        accumulator = later.accumulator",
    ),
    "rows of other rules are put together over a move": (
        CONSERVED,
        "conflation/sessions/rows.py",
        "    return not isinstance(older, CombinedRow) and not isinstance(newer, CombinedRow)",
        "    return True",
    ),
    "a queue's messages are replaced where the new rules combine": (
        CONSERVED,
        "conflation/lanes/accumulate.py",
        "    return combined_row(frame, receipt_of(frame), rules, frame.payload, accumulator)",
        "    return frame",
    ),
    "what may not meet is put together over a move": (
        CONSERVED,
        "conflation/lanes/accumulate.py",
        "        return match_of(self.published) == match_of(later.published)",
        "        return True",
    ),
    "what was combined is told as the delta of its messages": (
        CONSERVED,
        "conflation/options/grant.py",
        "    has_deltas = command.is_delta and merge is None",
        "    has_deltas = command.is_delta",
    ),
    "a merger that declines is not listened to over a move": (
        CONSERVED,
        "conflation/sessions/rows.py",
        "                return row",
        "                joined = row",
    ),
    "what came and went is forgotten if the key comes and goes again at once": (
        RECEIPTS,
        "conflation/lanes/delta.py",
        "            entry.stand_for(self.take_unreported(entry.board_key))",
        "            pass",
    ),
    "a move forgets what came and went": (
        RECEIPTS,
        "conflation/sessions/lane_change.py",
        "        member.miss(row_key, messages)",
        "        pass",
    ),
    "the removal of a key never sent takes its messages with it": (
        RECEIPTS,
        "conflation/lanes/member.py",
        "                self.miss(frame.key, unreported_of(frame))",
        "                pass",
    ),
    "a member behind forgets what came and went": (
        RECEIPTS,
        "conflation/lanes/missed.py",
        "            member.miss(row_key, unreported)",
        "            pass",
    ),
    "a full queue forgets what came and went": (
        RECEIPTS,
        "conflation/lanes/every_message.py",
        "            member.miss(row_key, unreported)",
        "            pass",
    ),
    "a row counts again what was counted for its key before": (
        RECEIPTS,
        "conflation/lanes/member.py",
        "        return self.unreported.pop(row.key).on(row)",
        "        return self.unreported[row.key].on(row)",
    ),
}
