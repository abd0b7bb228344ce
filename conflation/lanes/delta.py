"""Deltas: RFC 7396 merge patches between what was sent and what is now (CONTRACT 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from tidegate.conflation.frame import Frame, Receipt, Row, receipt_of
from tidegate.conflation.lane_id import LaneId
from tidegate.conflation.lanes.accumulate import PendingPart
from tidegate.conflation.lanes.pending import Pending
from tidegate.conflation.operators.filter import Change
from tidegate.keys import patch as patches


class DeltaWriter:
    """Makes the patches of one lane: key fields are always in, a longer one is not worth it.

    With `no_empties` a message that changes nothing is not told; the next row of its key stands
    for it as well. Such messages are in `unreported`.
    """

    def __init__(self, lane_id: LaneId) -> None:
        self._select = lane_id.select
        self._key_paths = lane_id.feed.key_spec.paths
        self._no_empties = lane_id.no_empties
        self.unreported: dict[str, Receipt] = {}

    def shown(self, payload: bytes) -> bytes:
        """The fields that were selected."""
        return payload if self._select is None else self._select.apply(payload)

    def change_of(self, change: Change) -> bytes | None:
        """The patch of one message, without key fields; None: its value must be sent."""
        if change.replaced is None:
            return None
        return patches.diff(self.shown(change.replaced.payload), self.shown(change.frame.payload))

    def finished(self, patch: bytes | None, payload: bytes, record: bytes) -> bytes | None:
        """A patch as it is sent; None where the value is as short.

        The key fields are those of the whole record, selected or not.
        """
        if patch is None:
            return None
        told = patches.with_fields(patch, record, self._key_paths)
        return told if len(told) < len(payload) else None

    def give_unreported(self) -> dict[str, Receipt]:
        """What the next rows would stand for beyond themselves, handed over."""
        unreported, self.unreported = self.unreported, {}
        return unreported

    def rows(self, change: Change) -> list[Frame]:
        """One message as it is told without an interval: at most one row."""
        frame = change.frame
        patch = self.change_of(change)
        if self._no_empties and patch is not None and patches.is_empty(patch):
            unreported = self.unreported.get(frame.key)
            now = receipt_of(frame)
            self.unreported[frame.key] = now if unreported is None else unreported.then(now)
            return []
        unreported = self.unreported.pop(frame.key, None)
        count = receipt_of(frame) if unreported is None else unreported.then(receipt_of(frame))
        payload = self.shown(frame.payload)
        return [
            Row(
                frame.offset,
                payload,
                frame.key,
                frame.timestamp_ms,
                first=count.first,
                first_ms=count.first_ms,
                messages=count.messages,
                patch=self.finished(patch, payload, frame.payload),
            )
        ]


class ChangeSuppression:
    """Keeps what nobody is told of, until the key's next slot stands for it too.

    That is a key which came and went, and with `no_empties` (then `delta` is given) a value which
    is what was last sent.
    """

    def __init__(self, delta: DeltaWriter | None) -> None:
        self._delta = delta
        self._sent: dict[str, bytes] = {}
        self._unreported: dict[str, Sequence[PendingPart]] = {}

    def note_base(self, change: Change) -> None:
        """What was last sent of a key that nothing is held of yet."""
        if self._delta is not None and change.replaced is not None:
            base = self._delta.shown(change.replaced.payload)
            self._sent.setdefault(change.board_key, base)

    def unreported(self, board_key: str) -> Sequence[PendingPart]:
        """The parts that a key's next slot takes over."""
        return self._unreported.pop(board_key, ())

    def kept(self) -> Iterator[PendingPart]:
        """Everything that nobody was told of."""
        return chain.from_iterable(self._unreported.values())

    def unseen(self) -> list[Pending]:
        """Keys that came and went, as slots."""
        return [
            Pending(board_key, list(parts), 0, parts[-1].frame.offset, parts[0].frame.offset)
            for board_key, parts in self._unreported.items()
            if parts[-1].gone is not None
        ]

    def is_news(self, slot: Pending, payload_of: Callable[[PendingPart], bytes]) -> bool:
        """Whether anybody is to be told of a slot that is due.

        Who joined while it was held may have to be told what for the others is nothing.
        """
        if not slot.sealed:  # the slot before it of this very flush may have left something
            slot.stand_for(self.unreported(slot.board_key))
        part = slot.whole()
        assert part is not None
        if part.is_unseen:
            self._unreported[slot.board_key] = slot.unreported_parts()
            slot.unseen = True
            return slot.was_joined
        if self._delta is None:
            return True
        if part.gone is not None:
            self._sent.pop(slot.board_key, None)
            return True
        payload = payload_of(part)
        sent = self._sent.get(slot.board_key)
        patch = None if sent is None else patches.diff(sent, payload)
        is_empty = patch is not None and patches.is_empty(patch)
        if is_empty and not slot.sealed and not slot.was_joined:
            self._unreported[slot.board_key] = slot.parts
            return False
        self._sent[slot.board_key] = payload
        return True
