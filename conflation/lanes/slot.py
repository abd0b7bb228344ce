"""Slots: what a lane holds of a key beside the board, in parts that can be put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import msgspec

from conflation.count import Count
from conflation.duration import Instant
from conflation.frame import Frame, Row, Tombstone
from conflation.lanes.fold import Fold
from keys import patch as patches


class Part(msgspec.Struct, frozen=True, gc=False):
    """Messages of one key, one after the other, as one: parts in a row join to one part.

    `joins` is the lane's count of joins when it began: a member that joined later than that has
    it in its snapshot. `is_new`: the key was not there before. `gone`: it is not there after.
    `patch` is what the messages changed; None where only the value will do. `count` is None
    where there was nothing but a removal.
    """

    joins: int
    frame: Frame
    count: Count | None
    is_new: bool
    gone: Tombstone | None = None
    patch: bytes | None = None
    fold: Fold | None = None

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def then(self, later: Part) -> Part | None:
        """Both, this one the older; None if a merger will not have them as one."""
        fold = self.fold
        if later.fold is not None:
            fold = later.fold if fold is None else fold.join(later.fold)
            if fold is None:
                return None
        patch = None
        if later.patch is not None and self.patch is not None:
            patch = patches.compose(self.patch, later.patch)
        count = _together(self.count, later.count)
        return Part(self.joins, later.frame, count, self.is_new, later.gone, patch, fold)

    def untold(self, *, is_new: bool) -> Part:
        """As it counts with the key's next row, nobody having been told of it."""
        fold = None if self.fold is None else self.fold.untold()
        return msgspec.structs.replace(self, is_new=is_new, fold=fold)

    @property
    def is_unseen(self) -> bool:
        """Whether the key came and went, so that there is nothing to tell."""
        return self.gone is not None and self.is_new

    def row(self, payload: bytes, patch: bytes | None, *, exempt: bool = False) -> Frame | None:
        """As it is sent; None for a key that came and went."""
        if self.gone is not None:
            if self.is_unseen:
                return None
            return self.gone if self.count is None else self.count.on(self.gone)
        assert self.count is not None
        frame = self.frame
        return Row(
            frame.offset,
            payload,
            frame.key,
            frame.timestamp_ms,
            exempt,
            first=self.count.first,
            first_ms=self.count.first_ms,
            messages=self.count.messages,
            patch=patch,
        )


def _together(older: Count | None, newer: Count | None) -> Count | None:
    if older is None or newer is None:
        return newer if older is None else older
    return older.then(newer)


@dataclass(slots=True, eq=False)
class Slot:
    """A place in a lane's queue: parts of one key, due together.

    `sealed`: never conflated with anything. `order` is its place: the offset of its newest
    message, or with `placement=replace` of its first; `opened` is the first one's, `began` the
    lane's count of joins then. `match` is
    the value of the fields that tell which messages of a key may conflate. `unseen`: the key
    came and went, so that only who joined in between has something to be told. `takes_back`: it
    began with a removal, which has a slot of its own only where several rows go before it.
    """

    board_key: str
    parts: list[Part]
    due: Instant
    order: int
    opened: int
    began: int = 0
    sealed: bool = False
    match: str = ""
    is_held: bool = True
    unseen: bool = False
    takes_back: bool = False

    def __deepcopy__(self, memo: object) -> Slot:
        return Slot(
            self.board_key, list(self.parts), self.due, self.order, self.opened, self.began,
            self.sealed, self.match, self.is_held, self.unseen, self.takes_back,
        )  # fmt: skip

    @property
    def newest(self) -> Part:
        """The part that is still open."""
        return self.parts[-1]

    @property
    def was_joined(self) -> bool:
        """Whether somebody joined while it was held."""
        return self.newest.joins > self.began

    def untold_parts(self) -> list[Part]:
        """Its parts for those who were here from its beginning; who joined since is told now."""
        older = [part for part in self.parts if part.joins < self.began]
        own = self.whole(self.began)
        assert own is not None
        return [*older, own]

    def stand_for(self, untold: Sequence[Part]) -> None:
        """Take over parts that nobody was told of; whether the key is new is known by now."""
        if not untold:
            return
        own = self.parts[0]
        older = [part.untold(is_new=own.is_new) for part in untold]
        together = older[-1].then(own) if older[-1].joins == self.began else None
        self.parts[:1] = [*older, own] if together is None else [*older[:-1], together]

    def whole(self, since_join: int = 0) -> Part | None:
        """All parts as one; only those that began after a join."""
        found: Part | None = None
        for part in self.parts:
            if part.joins >= since_join:
                found = part if found is None else found.then(part) or part
        return found
