"""Deltas: RFC 7396 merge patches between what was sent and what is now (CONTRACT 5.1)."""

from __future__ import annotations

from tidegate.conflation.frame import Frame, Receipt, Row, receipt_of
from tidegate.conflation.lane_id import LaneId
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
