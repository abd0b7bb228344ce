"""A session's cursor: one row of numbers for what a reader has of several subscriptions. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from app.query import SESSION_ID
from conflation.bookmark import Bookmark
from conflation.sessions.session import SeatId

STEPS_MAX = 10_000

Mark = Bookmark | None
"""Up to where a reader has a subscription's topic; None: it has nothing that could be continued."""

Step = tuple[int | None, str | None, bool]
"""A step as it travels: which of the seats, the mark's text, whether the seat has ended."""

_CURSOR = re.compile(rf"({SESSION_ID})-(0|[1-9][0-9]{{0,17}})(?:~[A-Za-z0-9]+-[0-9]+)?", re.ASCII)


def parse_cursor(text: str) -> tuple[str, int] | None:
    """Session and number of an event's id; None if it is no cursor."""
    found = _CURSOR.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))


class PackedCursor(msgspec.Struct, frozen=True, array_like=True):
    """A cursor on its way to another gateway: all that it knows, each seat told once."""

    confirmed: int
    base_number: int
    seats: list[tuple[str, str]]
    base: list[Step]
    steps: list[Step]
    anew: list[tuple[int, int]]


class Cursor:
    """Numbers that are handed out as ids, and the marks that each of them stands for.

    A number stands for all steps up to it. The last ten thousand are remembered one by one, what
    went before them as a sum. `confirmed`: the peer has acknowledged all up to this one.
    """

    def __init__(self, session: str) -> None:
        self.confirmed = 0
        self._session = session
        self._base: dict[SeatId, Mark] = {}
        self._base_number = 0
        self._steps: deque[_Step] = deque()
        self._anew: dict[SeatId, int] = {}

    @property
    def number(self) -> int:
        """The latest number."""
        return self._base_number + len(self._steps)

    @property
    def text(self) -> str:
        """The latest number as an event's id."""
        return f"{self._session}-{self.number}"

    def move(self, seat: SeatId, mark: Mark) -> str:
        """A reader that sees what is told now has so much of a seat; the id to tell it with.

        The mark stands in it: a reader whose session is gone has its places in the topics.
        """
        text = self._step(_Step(seat, mark))
        return text if mark is None else f"{text}~{mark}"

    def end(self, seat: SeatId) -> str:
        """A reader that sees what is told now knows that a seat has ended."""
        return self._step(_Step(seat, None, is_end=True))

    def note(self) -> str:
        """Something is told that is about no seat's rows."""
        return self._step(_Step(None, None))

    def begin_anew(self, seat: SeatId) -> None:
        """What a reader has of this seat up to now is of no use to continue from."""
        self.move(seat, None)
        self._anew[seat] = self.number

    def marks(self, number: int) -> Mapping[SeatId, Mark] | None:
        """What a reader has that has seen this number; None: that is not known any more."""
        if not self._base_number <= number <= self.number:
            return None
        marks = dict(self._base)
        for step in islice(self._steps, number - self._base_number):
            step.apply(marks)
        return marks | {seat: None for seat, since in self._anew.items() if number < since}

    def rewind(self, marks: Mapping[SeatId, Mark]) -> None:
        """A reader is back and has this of the session's seats, no more."""
        latest = self.marks(self.number) or {}
        for seat, mark in marks.items():
            if seat not in latest or latest[seat] != mark:
                self.move(seat, mark)

    def packed(self) -> PackedCursor:
        """All that it knows, for another gateway."""
        steps = [*(_Step(seat, mark) for seat, mark in self._base.items()), *self._steps]
        told = {step.seat: None for step in steps if step.seat is not None}
        numbers = {
            seat: number for number, seat in enumerate({**told, **dict.fromkeys(self._anew)})
        }
        texts = [step.told(numbers) for step in steps]
        at = len(self._base)
        return PackedCursor(
            self.confirmed,
            self._base_number,
            list(numbers),
            texts[:at],
            texts[at:],
            [(numbers[seat], since) for seat, since in self._anew.items()],
        )

    @classmethod
    def unpacked(cls, session: str, packed: PackedCursor) -> Cursor:
        """The cursor as it was.

        Raises:
            BookmarkInvalid, IndexError: it never was one.
        """
        cursor = cls(session)
        cursor.confirmed, cursor._base_number = packed.confirmed, packed.base_number
        for step in packed.base:
            _Step.read(step, packed.seats).apply(cursor._base)
        cursor._steps.extend(_Step.read(step, packed.seats) for step in packed.steps)
        cursor._anew = {packed.seats[number]: since for number, since in packed.anew}
        return cursor

    def _step(self, step: _Step) -> str:
        self._steps.append(step)
        if len(self._steps) > STEPS_MAX:
            self._fold()
        return self.text

    def _fold(self) -> None:
        step = self._steps.popleft()
        self._base_number += 1
        step.apply(self._base)
        if step.seat is not None and self._anew.get(step.seat) == self._base_number:
            del self._anew[step.seat]


class _Step(NamedTuple):
    seat: SeatId | None
    mark: Mark
    is_end: bool = False

    def told(self, numbers: Mapping[SeatId, int]) -> Step:
        """As it travels."""
        seat = None if self.seat is None else numbers[self.seat]
        return seat, None if self.mark is None else str(self.mark), self.is_end

    @classmethod
    def read(cls, step: Step, seats: Sequence[SeatId]) -> _Step:
        """As it was."""
        number, text, is_end = step
        seat = None if number is None else seats[number]
        return cls(seat, None if text is None else Bookmark.parse(text), is_end)

    def apply(self, marks: dict[SeatId, Mark]) -> None:
        if self.seat is None:
            return
        if self.is_end:
            marks.pop(self.seat, None)
        else:
            marks[self.seat] = self.mark
