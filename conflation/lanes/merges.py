"""Merges of queued messages: each pair is merged once, however many sessions have it queued."""

from __future__ import annotations

from tidegate.keys.merging import Merger, Verdict
from tidegate.keys.reducers import Reduce

BYTES_MAX = 32 << 20
"""What the merges of one lane may take up; beyond that the oldest are made again."""

_ENTRY_BYTES = 200


class Merges:
    """Answers of a registered merger, by the two messages that it was asked about.

    Diffusion caches them, too: "merges of identical message pairs are not repeated for different
    clients". Queues that do not begin with the same message share no pair. Failures are answers
    as well, and are reported once.
    """

    def __init__(self, merger: Merger) -> None:
        self.merger = merger
        self._bytes = 0
        self._answers: dict[tuple[bytes, bytes], bytes | Verdict] = {}

    def __len__(self) -> int:
        return len(self._answers)

    @classmethod
    def of(cls, merge: Reduce | Merger | None) -> Merges | None:
        """Of a registered merger; reducers are cheap, and asked each time."""
        return cls(merge) if isinstance(merge, Merger) else None

    def __deepcopy__(self, memo: object) -> Merges:
        return self  # an answer is the same for whoever asks

    def answer(self, current: bytes, new: bytes) -> bytes | Verdict:
        """What the merger says of two messages, the older one first."""
        known = self._answers.get((current, new))
        if known is None:
            known = self._answers[current, new] = self.merger.answer(current, new)
            self._bytes += _size(new, known)
            while self._bytes > BYTES_MAX:
                self._drop_oldest()
        return known

    def forget(self) -> None:
        """Drop all answers: no queue has any of these messages left to merge."""
        self._answers.clear()
        self._bytes = 0

    def _drop_oldest(self) -> None:
        pair = next(iter(self._answers))
        self._bytes -= _size(pair[1], self._answers.pop(pair))


def _size(new: bytes, answer: bytes | Verdict) -> int:
    """The older message of a pair is an earlier answer, and counted there."""
    return _ENTRY_BYTES + len(new) + (0 if isinstance(answer, Verdict) else len(answer))
