"""A session's cursor: one sequence of ids, from which a reader of several topics resumes."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from tidegate.app.names import SESSION_ID
from tidegate.conflation.outputs import Unsubscribed
from tidegate.conflation.sessions.subscriber import SubscriberId
from tidegate.keys.text.bookmark import Bookmark

STEPS_MAX = 10_000
"""Steps that are kept one by one: a reader may resume from each of these numbers."""

ENDINGS_MAX = 256  # ends of subscriptions that are kept for a reader that comes back

Mark = Bookmark | None
"""Up to where a reader has a subscription's topic; None: it cannot resume there."""

Step = tuple[int | None, str | None, bool]
"""A step in transfer: the subscriber's number, the mark's text, and whether it has ended."""

_CURSOR = re.compile(rf"({SESSION_ID})-(0|[1-9][0-9]{{0,17}})(?:~([A-Za-z0-9]+-[0-9]+))?", re.ASCII)


class EventId(NamedTuple):
    """An event's id of a session, as a reader returns it; `place`: the mark in it, "" without."""

    session: str
    number: int
    place: str = ""


def parse_cursor(text: str) -> EventId | None:
    """Return the parts of an event's id; None if it is no cursor."""
    found = _CURSOR.fullmatch(text)
    return None if found is None else EventId(found[1], int(found[2]), found[3] or "")


class PackedCursor(msgspec.Struct, frozen=True, array_like=True):
    """A cursor in transfer to another gateway; each subscriber is written once."""

    confirmed: int
    base_number: int
    subscribers: list[tuple[str, str]]
    base: list[Step]
    steps: list[Step]
    anew: list[tuple[int, int]]


class Cursor:
    """Hands out numbers as ids, and keeps the marks that each of them stands for.

    A number includes all steps before it. The last ten thousand steps are kept one by one, earlier
    ones as the marks that they have led to.

    Attributes:
        confirmed: the peer has acknowledged everything up to this number.
        endings: the ends of subscriptions that readers may not have seen, by number.
        replaced: the numbers of goodbyes to readers that were replaced.
    """

    def __init__(self, session: str) -> None:
        self.confirmed = 0
        # Both are replaced, not changed, so that most sessions share the empty ones.
        self.endings: Sequence[tuple[int, Unsubscribed]] = ()
        self.replaced: tuple[int, ...] = ()
        self._session = session
        self._base: dict[SubscriberId, Mark] = {}
        self._base_number = 0
        self._steps: deque[_Step] = deque()
        self._anew: dict[SubscriberId, int] = {}

    @property
    def number(self) -> int:
        """The latest number."""
        return self._base_number + len(self._steps)

    @property
    def text(self) -> str:
        """The latest number as an event's id."""
        return f"{self._session}-{self.number}"

    def move(self, subscriber: SubscriberId, mark: Mark) -> str:
        """Record that the next event moves a subscriber to this mark; return the event's id.

        The id contains the mark, from which a reader can resume even if the session is gone.
        """
        text = self._step(_Step(subscriber, mark))
        return text if mark is None else f"{text}~{mark}"

    def end(self, subscriber: SubscriberId) -> str:
        """Record that the next event ends a subscriber; return its id."""
        return self._step(_Step(subscriber, None, is_end=True))

    def next_id(self) -> str:
        """Return an id for an event that is about no subscriber's rows."""
        return self._step(_Step(None, None))

    def note_goodbye(self) -> str:
        """Return an id for the goodbye to a replaced reader; no reader is admitted with it."""
        id_text = self.next_id()
        self.replaced = (*self.replaced, self.number)[-ENDINGS_MAX:]
        return id_text

    def note_end(self, end: Unsubscribed) -> str:
        """Keep the end of a subscription for readers that have not seen it; return its id."""
        id_text = self.next_id()
        self.endings = [*self.endings[1 - ENDINGS_MAX :], (self.number, end)]
        return id_text

    def drop_mark(self, subscriber: SubscriberId) -> None:
        """Drop a subscriber's mark: no reader can resume from rows that were sent so far."""
        self.move(subscriber, None)
        self._anew[subscriber] = self.number

    def marks(self, number: int, place: str = "") -> Mapping[SubscriberId, Mark] | None:
        """Return the marks of a reader that has seen this number; None: not known.

        An id whose `place` is not that of its number was given by another copy of the session: a
        failover that has lost a move leaves one at each gateway, and each counts on.
        """
        if not self._base_number <= number <= self.number:
            return None
        if place and number > self._base_number:
            mark = self._steps[number - self._base_number - 1].mark
            if str(mark) != place:
                return None
        # Computed at each attach: a reader comes back far less often than an event is sent.
        marks = dict(self._base)
        for step in islice(self._steps, number - self._base_number):
            step.apply(marks)
        return marks | {
            subscriber: None for subscriber, since in self._anew.items() if number < since
        }

    def rewind(self, marks: Mapping[SubscriberId, Mark]) -> None:
        """Set the marks of the subscribers to those of a reader that is back."""
        latest = self.marks(self.number) or {}
        for subscriber, mark in marks.items():
            if subscriber not in latest or latest[subscriber] != mark:  # each step costs an id
                self.move(subscriber, mark)

    def packed(self) -> PackedCursor:
        """Return the cursor as a document for another gateway."""
        steps = [
            *(_Step(subscriber, mark) for subscriber, mark in self._base.items()),
            *self._steps,
        ]
        subscribers = {step.subscriber: None for step in steps if step.subscriber is not None}
        numbers = {
            subscriber: number
            for number, subscriber in enumerate({**subscribers, **dict.fromkeys(self._anew)})
        }
        texts = [step.packed(numbers) for step in steps]
        at = len(self._base)
        return PackedCursor(
            self.confirmed,
            self._base_number,
            list(numbers),
            texts[:at],
            texts[at:],
            [(numbers[subscriber], since) for subscriber, since in self._anew.items()],
        )

    @classmethod
    def unpacked(cls, session: str, packed: PackedCursor) -> Cursor:
        """Restore a cursor that was packed by another gateway.

        Raises:
            BookmarkInvalid, IndexError: it never was one.
        """
        cursor = cls(session)
        cursor.confirmed, cursor._base_number = packed.confirmed, packed.base_number
        for step in packed.base:
            _Step.read(step, packed.subscribers).apply(cursor._base)
        cursor._steps.extend(_Step.read(step, packed.subscribers) for step in packed.steps)
        cursor._anew = {packed.subscribers[number]: since for number, since in packed.anew}
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
        if step.subscriber is not None and self._anew.get(step.subscriber) == self._base_number:
            del self._anew[step.subscriber]


class _Step(NamedTuple):
    subscriber: SubscriberId | None
    mark: Mark
    is_end: bool = False

    def packed(self, numbers: Mapping[SubscriberId, int]) -> Step:
        """Serialize the step."""
        subscriber = None if self.subscriber is None else numbers[self.subscriber]
        return subscriber, None if self.mark is None else str(self.mark), self.is_end

    @classmethod
    def read(cls, step: Step, subscribers: Sequence[SubscriberId]) -> _Step:
        """Restore a step."""
        number, text, is_end = step
        subscriber = None if number is None else subscribers[number]
        return cls(subscriber, None if text is None else Bookmark.parse(text), is_end)

    def apply(self, marks: dict[SubscriberId, Mark]) -> None:
        if self.subscriber is None:
            return
        if self.is_end:
            marks.pop(self.subscriber, None)
        else:
            marks[self.subscriber] = self.mark
