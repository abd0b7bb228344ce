"""News: whether a slot that is due has anything to tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from conflation.boards.screen import Change
from conflation.lanes.delta import DeltaWriter
from conflation.lanes.slot import Part, Slot
from keys import patch as patches


class News:
    """Keeps what nobody is told of, until the key's next slot stands for it too.

    That is a key which came and went, and with `no_empties` (then `delta` is given) a value which
    is what was last sent.
    """

    def __init__(self, delta: DeltaWriter | None) -> None:
        self._delta = delta
        self._sent: dict[str, bytes] = {}
        self._untold: dict[str, Sequence[Part]] = {}

    def note_base(self, change: Change) -> None:
        """What was last sent of a key that nothing is held of yet."""
        if self._delta is not None and change.replaced is not None:
            base = self._delta.shown(change.replaced.payload)
            self._sent.setdefault(change.board_key, base)

    def untold(self, board_key: str) -> Sequence[Part]:
        """The parts that a key's next slot takes over."""
        return self._untold.pop(board_key, ())

    def is_news(self, slot: Slot, payload_of: Callable[[Part], bytes]) -> bool:
        """Whether anybody is to be told of a slot that is due.

        Who joined while it was held may have to be told what for the others is nothing.
        """
        part = slot.whole()
        assert part is not None
        if part.is_unseen:
            self._untold[slot.board_key] = slot.untold_parts()
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
            self._untold[slot.board_key] = slot.parts
            return False
        self._sent[slot.board_key] = payload
        return True
