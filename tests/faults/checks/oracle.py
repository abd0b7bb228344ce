"""The oracle: what a topic holds after recovery, held against the ledger.

What is found is a sentence with its kind in front; a right system gives none.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from tests.faults.checks.ledger import Ident, Ledger, Request


class Kind(StrEnum):
    """How a promise was broken.

    lost: acknowledged, and not there. doubled: there more than once. reordered: before something
    that was acknowledged before it was sent. torn: a part of a request, or not in one piece.
    moved: not at the place that was acknowledged. invented: never asked for. hole: offsets that
    do not count on. world: the state of the world is not what the journal says.
    """

    LOST = "lost"
    DOUBLED = "doubled"
    REORDERED = "reordered"
    TORN = "torn"
    MOVED = "moved"
    INVENTED = "invented"
    HOLE = "hole"
    WORLD = "world"


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken promise."""

    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the journal; without `ident` it is the removal of a record."""

    offset: int
    key: str
    ident: Ident | None


World = Mapping[str, Ident]
"""The state of the world: each record's newest message."""


def judge_journal(
    ledger: Ledger, epoch: str, journal: Sequence[Entry], since_s: float = 0.0
) -> list[Finding]:
    """What is wrong with a topic's whole journal, read after recovery.

    What was acknowledged before `since_s` may be lost: that was announced.
    """
    return [
        *_holes(journal),
        *_strangers(ledger, journal),
        *_requests(ledger, epoch, journal, since_s),
        *_removals(ledger, journal, since_s),
    ]


def judge_world(journal: Sequence[Entry], world: World) -> list[Finding]:
    """Whether the state of the world is what the journal comes to.

    Where the journal does not go back to the first message, records may be older than it.
    """
    is_whole = bool(journal) and journal[0].offset == 1
    in_journal = {entry.key for entry in journal}
    world = {record: ident for record, ident in world.items() if is_whole or record in in_journal}
    folded: dict[str, Ident] = {}
    for entry in journal:
        if entry.ident is None:
            folded.pop(entry.key, None)
        else:
            folded[entry.key] = entry.ident
    different = sorted(set(folded.items()) ^ set(world.items()), key=str)
    return [
        Finding(
            Kind.WORLD,
            f"record {record}: the journal says {folded.get(record)}, "
            f"the state of the world {world.get(record)}",
        )
        for record in dict.fromkeys(record for record, _ in different)
    ]


def judge_records(
    ledger: Ledger, world: World, since_s: float = 0.0, epoch: str = ""
) -> list[Finding]:
    """Whether each record is at least as new as promised, where the journal was trimmed.

    A record is written by one writer, so its requests have an order; but what was not answered
    may have come later than what was sent after it.
    """
    newest: dict[str, list[tuple[Request, Ident | None]]] = defaultdict(list)
    for request in ledger.requests:
        for ident, record in zip(request.idents(), request.keys, strict=True):
            newest[record].append((request, None if request.removes else ident))
    findings = [
        Finding(Kind.INVENTED, f"record {record} is there, and nobody wrote it")
        for record in world
        if record not in newest
    ]
    for record, history in newest.items():
        promised = [
            at for at, (request, _) in enumerate(history) if request.is_owed(since_s, epoch)
        ]
        since = promised[-1] if promised else 0
        may_be = [ident for _, ident in history[since:]]
        may_be += [ident for request, ident in history[:since] if request.answer is None]
        if not promised:
            may_be.append(None)
        if world.get(record) not in may_be:
            text = f"record {record} is {world.get(record)}, promised was {may_be[0]}"
            findings.append(Finding(Kind.LOST, text))
    return findings


def _holes(journal: Sequence[Entry]) -> Iterator[Finding]:
    for before, entry in pairwise(journal):
        if entry.offset != before.offset + 1:
            yield Finding(Kind.HOLE, f"{entry.offset} follows {before.offset}")


def _strangers(ledger: Ledger, journal: Sequence[Entry]) -> Iterator[Finding]:
    times = Counter(entry.ident for entry in journal if entry.ident is not None)
    asked = {
        ident for request in ledger.requests if not request.removes for ident in request.idents()
    }
    for ident, count in times.items():
        if ident not in asked:
            yield Finding(Kind.INVENTED, f"{ident} was never asked for")
        elif count > 1:
            yield Finding(Kind.DOUBLED, f"{ident} is there {count} times")


def _requests(
    ledger: Ledger, epoch: str, journal: Sequence[Entry], since_s: float
) -> Iterator[Finding]:
    at = {entry.ident: entry.offset for entry in journal if entry.ident is not None}
    there: list[tuple[Request, int, int]] = []
    for request in ledger.requests:
        if request.removes:
            continue
        offsets = [at[ident] for ident in request.idents() if ident in at]
        name = f"request {request.sequence} of {request.writer}"
        if not offsets:
            if request.is_owed(since_s, epoch):
                yield Finding(Kind.LOST, f"{name}, {len(request.keys)} messages")
            continue
        first, last = offsets[0], offsets[-1]
        if len(offsets) < len(request.keys):
            kind = Kind.LOST if request.is_promised else Kind.TORN
            yield Finding(kind, f"{name}: {len(offsets)} of {len(request.keys)} messages")
        elif offsets != list(range(first, last + 1)):
            yield Finding(Kind.TORN, f"{name} is not in one piece: {offsets}")
        elif _is_moved(request, epoch, first, last):
            yield Finding(Kind.MOVED, f"{name} is at {first} to {last}, said was {request.answer}")
        there.append((request, first, last))
    yield from _reordered(there)


def _is_moved(request: Request, epoch: str, first: int, last: int) -> bool:
    """Whether what was said of its place is wrong, in the epoch in which it was said."""
    answer = request.answer
    if answer is None or answer.first is None or not answer.first.startswith(f"{epoch}-"):
        return False
    return (answer.first, answer.last) != (f"{epoch}-{first}", f"{epoch}-{last}")


def _reordered(there: Sequence[tuple[Request, int, int]]) -> Iterator[Finding]:
    """What stands before something that was acknowledged before it was sent."""
    answered: list[tuple[float, int]] = []
    highest = 0
    for request, first, last in sorted(there, key=lambda each: each[0].sent_at_s):
        while answered and answered[0][0] < request.sent_at_s:
            highest = max(highest, heapq.heappop(answered)[1])
        if first < highest:
            text = f"request {request.sequence} of {request.writer} at {first} was sent later than"
            yield Finding(Kind.REORDERED, f"{text} what is at {highest} was acknowledged")
        if request.answer is not None:
            heapq.heappush(answered, (request.answer.at_s, last))


def _removals(ledger: Ledger, journal: Sequence[Entry], since_s: float) -> Iterator[Finding]:
    """Each removal stands between the messages of its record that were asked for around it."""
    at = {entry.ident: entry.offset for entry in journal if entry.ident is not None}
    gone: dict[str, list[int]] = defaultdict(list)
    for entry in journal:
        if entry.ident is None:
            gone[entry.key].append(entry.offset)
    asked: dict[str, list[Request]] = defaultdict(list)
    for request in ledger.requests:
        for record in set(request.keys):
            asked[record].append(request)
    for record in gone.keys() | asked.keys():
        claimed = 0
        for removal, after, before in _windows(record, asked[record], at):
            offsets = gone[record]
            count = bisect_left(offsets, before) - bisect_right(offsets, after)
            claimed += count
            if count > 1:
                yield Finding(Kind.DOUBLED, f"record {record} left {count} times for one request")
            if not count and removal.is_owed(since_s) and removal.answer and removal.answer.deleted:
                yield Finding(Kind.LOST, f"the removal of {record}")
        if claimed < len(gone[record]):
            yield Finding(Kind.INVENTED, f"record {record} left, and nobody asked for it")


def _windows(
    record: str, asked: Sequence[Request], at: Mapping[Ident, int]
) -> Iterator[tuple[Request, int, float]]:
    """Each removal of a record, and the offsets between which it has its place."""
    offsets = [
        [
            at[ident]
            for ident, written in zip(request.idents(), request.keys, strict=True)
            if written == record and not request.removes and ident in at
        ]
        for request in asked
    ]
    for place, request in enumerate(asked):
        if request.removes:
            after = max((each[-1] for each in offsets[:place] if each), default=0)
            before = next((each[0] for each in offsets[place:] if each), float("inf"))
            yield request, after, before
