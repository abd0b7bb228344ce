"""Which positions are of one history: the epochs of a topic, and what each continues."""

from __future__ import annotations

from typing import NamedTuple

EVERYTHING = 1 << 62


class Position(NamedTuple):
    """An offset of an epoch, as a bookmark names it."""

    epoch: str
    offset: int

    @classmethod
    def of(cls, bookmark: str) -> Position:
        """Parse a bookmark; an empty one is before everything."""
        epoch, _, offset = bookmark.rpartition("-")
        return cls(epoch, int(offset or 0))

    def __str__(self) -> str:
        return f"{self.epoch}-{self.offset}"


class Lineage:
    """All that was seen of a topic's epochs: what each of them continues, and up to where."""

    def __init__(self) -> None:
        self._continued: dict[str, dict[str, int]] = {}

    @property
    def epochs(self) -> int:
        """How many epochs were seen."""
        return len(self._continued)

    def note(self, epoch: str, continued: dict[str, int]) -> None:
        """Note what a gateway says that an epoch continues."""
        self._continued.setdefault(epoch, {}).update(continued)

    def note_chain(self, epoch: str, former: str) -> None:
        """Note what a server's state says: each epoch with what it and the next have in common."""
        if not epoch:
            return
        through, found = EVERYTHING, dict[str, int]()
        for pair in reversed(former.split()):
            name, _, last = pair.rpartition(":")
            through = min(through, int(last))
            found[name] = through
        self.note(epoch, found)

    def through(self, epoch: str, other: str) -> int | None:
        """Return the last offset that two epochs have in common, -1 if they have none.

        None: nobody has seen what the first one continues.
        """
        if epoch == other:
            return EVERYTHING
        if epoch not in self._continued:
            return None
        chain, others = self._chain(epoch), self._chain(other)
        return max((min(chain[name], others[name]) for name in chain.keys() & others), default=-1)

    def continues(self, epoch: str, position: Position) -> bool:
        """Return whether an epoch says that it continues another one, and beyond a position."""
        return position.offset <= self._chain(epoch).get(position.epoch, -1)

    def has(self, epoch: str, position: Position) -> bool:
        """Return whether a position is of the history that an epoch has."""
        through = self.through(epoch, position.epoch)
        return through is not None and position.offset <= through

    def _chain(self, epoch: str) -> dict[str, int]:
        """Return all that an epoch continues, with itself, and up to where."""
        seen, waiting = {epoch: EVERYTHING}, [epoch]
        while waiting:
            at = waiting.pop()
            for name, last in self._continued.get(at, {}).items():
                found = min(last, seen[at])
                if found > seen.get(name, -1):
                    seen[name] = found
                    waiting.append(name)
        return seen
