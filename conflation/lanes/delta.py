"""Deltas: RFC 7396 merge patches between what was sent and what is now (CONTRACT 5.1)."""

from __future__ import annotations

from conflation.boards.screen import Change
from conflation.count import Count, count_of
from conflation.frame import Frame, Row
from conflation.lane_id import LaneId
from keys import patch as patches


class DeltaWriter:
    """Makes the patches of one lane: key fields are always in, a longer one is not worth it.

    With `no_empties` a message that changes nothing is not told; the next row of its key stands
    for it as well.
    """

    def __init__(self, lane_id: LaneId) -> None:
        self._select = lane_id.select
        self._key_paths = lane_id.feed.key_spec.paths
        self._no_empties = lane_id.no_empties
        self._untold: dict[str, Count] = {}

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

    def give_untold(self) -> dict[str, Count]:
        """What the next rows would stand for beyond themselves, handed over."""
        untold, self._untold = self._untold, {}
        return untold

    def rows(self, change: Change) -> list[Frame]:
        """One message as it is told without an interval: at most one row."""
        frame = change.frame
        patch = self.change_of(change)
        if self._no_empties and patch is not None and patches.is_empty(patch):
            untold = self._untold.get(frame.key)
            now = count_of(frame)
            self._untold[frame.key] = now if untold is None else untold.then(now)
            return []
        untold = self._untold.pop(frame.key, None)
        count = count_of(frame) if untold is None else untold.then(count_of(frame))
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
