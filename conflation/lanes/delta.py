"""Deltas: RFC 7396 merge patches between what was sent and what is now (CONTRACT 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from tidegate.conflation.frame import Frame, Receipt, Row, receipt_of
from tidegate.conflation.lanes.part import PendingPart
from tidegate.conflation.lanes.pending import Pending
from tidegate.conflation.operators.filter import Change
from tidegate.conflation.subscription import LaneId
from tidegate.keys import patch as patches


class DeltaWriter:
    """Makes the patches of one lane.

    A patch has the key fields; a value is sent if that is as short. With `no_empties` a message
    that changes nothing is not sent; the next row of its key stands for it as well. `unreported`
    has the receipts of such messages.
    """

    def __init__(self, lane_id: LaneId) -> None:
        self._select = lane_id.select
        self._key_paths = lane_id.feed.key_spec.paths
        self._no_empties = lane_id.no_empties
        self.unreported: dict[str, Receipt] = {}

    def shown(self, payload: bytes) -> bytes:
        """Return the fields that were selected."""
        return payload if self._select is None else self._select.apply(payload)

    def change_of(self, change: Change) -> bytes | None:
        """Return the patch of one message, without key fields; None: its value must be sent."""
        if change.replaced is None:
            return None
        # Only of the selected fields: a change of other fields is an empty delta.
        return patches.diff(self.shown(change.replaced.payload), self.shown(change.frame.payload))

    def finished(self, patch: bytes | None, payload: bytes, record: bytes) -> bytes | None:
        """Return a patch as it is sent; None where the value is as short.

        The key fields are those of the whole record, selected or not.
        """
        if patch is None:
            return None
        # A client finds the record by them, as with deltas of AMPS.
        complete = patches.with_fields(patch, record, self._key_paths)
        return complete if len(complete) < len(payload) else None

    def pop_unreported(self) -> dict[str, Receipt]:
        """Remove and return the messages that the next row of each key would count, too."""
        unreported, self.unreported = self.unreported, {}
        return unreported

    def rows(self, change: Change) -> list[Frame]:
        """Return the rows of one message sent without an interval: one, or none."""
        frame = change.frame
        patch = self.change_of(change)
        count = receipt_of(frame).after(self.unreported.get(frame.key))
        if self._no_empties and patch is not None and patches.is_empty(patch):
            self.unreported[frame.key] = count
            return []
        self.unreported.pop(frame.key, None)
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
    """Suppresses entries without news, and keeps them until the key's next entry stands for them.

    An entry has no news if its key came and went. With `no_empties` (then `delta` is given) it has
    none either if its value equals the one that was sent last.
    """

    def __init__(self, delta: DeltaWriter | None) -> None:
        self._delta = delta
        self._sent: dict[str, bytes] = {}
        self._unreported: dict[str, Sequence[PendingPart]] = {}

    def record_base(self, change: Change) -> None:
        """Record the value that was sent last of a key of which nothing is held yet."""
        if self._delta is not None and change.replaced is not None:
            # Only the message that opens an entry replaces this value on the board; later ones
            # replace values that were never sent.
            base = self._delta.shown(change.replaced.payload)
            self._sent.setdefault(change.board_key, base)

    def pop_unreported(self, board_key: str) -> Sequence[PendingPart]:
        """Remove and return the parts that a key's next entry stands for."""
        return self._unreported.pop(board_key, ())

    def kept(self) -> Iterator[PendingPart]:
        """Return all parts that are suppressed."""
        return chain.from_iterable(self._unreported.values())

    @property
    def is_empty(self) -> bool:
        """True while nothing is suppressed."""
        return not self._unreported

    def unseen(self) -> list[Pending]:
        """Return keys that came and went, as entries."""
        return [
            Pending(
                board_key,
                parts[-1],
                due=0,
                send_order=parts[-1].frame.offset,
                first_offset=parts[0].frame.offset,
                older=tuple(parts[:-1]),
            )
            for board_key, parts in self._unreported.items()
            if parts[-1].gone is not None
        ]

    def lets_pass(self, entry: Pending, payload_of: Callable[[PendingPart], bytes]) -> bool:
        """Return True if an entry that is due has a row for any member.

        An entry without news has one only for members that joined while it was held: they have the
        value at their join, and not the one that was sent last.
        """
        # An earlier entry of this flush may have been suppressed.
        if not entry.sealed:
            entry.stand_for(self.pop_unreported(entry.board_key))
        if self._has_news(entry, payload_of):
            return True
        # For the other members the messages wait for the key's next row.
        self._unreported[entry.board_key] = entry.unreported_parts()
        entry.suppressed = True
        return entry.was_joined

    def _has_news(self, entry: Pending, payload_of: Callable[[PendingPart], bytes]) -> bool:
        """Return True if an entry is news to members that have everything before it.

        Its value is recorded as sent. A sealed entry always is news.
        """
        part = entry.whole()
        assert part is not None
        if part.is_unseen:
            return False
        if self._delta is None:
            return True
        if part.gone is not None:
            # Clients hold nothing of the key now, so the next value is news even if it is equal.
            self._sent.pop(entry.board_key, None)
            return True
        payload = payload_of(part)
        # Members that joined since the record left do not have it. And after `flush_on` the base
        # may be the value of this entry itself.
        sent = None if part.is_new else self._sent.get(entry.board_key)
        patch = None if sent is None else patches.diff(sent, payload)
        if patch is not None and patches.is_empty(patch) and not entry.sealed:
            return False
        self._sent[entry.board_key] = payload
        return True
