"""The judge: ledger, gateways and readers held against each other when all is at rest.

What it can find, each seen with a product that was broken on purpose: an answer that does not wait
for Redis to write, or for its first whole file (`lost`, `world`); an epoch that is not bound to
one life of Redis, so that a position is taken for an identity (`two histories`, `backward`, `gap`,
`value`); an epoch that says to continue what it lacks (`differs`, `two histories`, `reader`,
`reset`); a removal that is answered and not written (`removal`, `world`), and one that leaves the
record in Redis (`backward`).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from tests.campaign.faults import Loss
from tests.campaign.held import Entry, Held
from tests.campaign.ledger import Ident, Ledger, Request, Verb
from tests.campaign.lineage import Lineage, Position
from tests.campaign.reader import digest_of
from tests.campaign.writer import OK, Mark
from tidegate.clients.replica import patched

LAGS_S, LED_S = 3.0, 1.0
"""How far a replica may be behind, and how long after a failover an answer may still arrive."""


class Kind(StrEnum):
    """How a promise was broken."""

    LOST = "lost"
    """Acknowledged, and not there, although Redis has not lost it by itself."""
    MOVED = "moved"
    """Not at the position that was acknowledged."""
    DOUBLED = "doubled"
    """In the journal more than once."""
    TORN = "torn"
    """A request that is there in part, or not in one piece."""
    REORDERED = "reordered"
    """Before what was acknowledged before it was sent."""
    INVENTED = "invented"
    """Nobody has sent it."""
    HOLE = "hole"
    """Offsets that do not count on."""
    VALUE = "value"
    """Not the value that messages and patches come to."""
    REMOVAL = "removal"
    """An acknowledged removal that is not there, or one that nobody asked for."""
    WORLD = "world"
    """Records that do not follow from the journal, or are older than acknowledged."""
    DIFFERS = "differs"
    """Gateways that hold different things."""
    HISTORIES = "two histories"
    """One position that was two messages."""
    BACKWARD = "backward"
    """A reader whose record went back to an older version within a history."""
    TWICE = "twice"
    """A reader of every message who was sent one twice."""
    GAP = "gap"
    """A reader of every message who was not sent one."""
    SILENT = "silent"
    """A reader who saw what is gone, and was not told of another epoch."""
    RESET = "reset"
    """A reader who saw nothing that is gone, and was told that it did."""
    READER = "reader"
    """A reader who does not come to hold what the gateways hold."""
    CONDITION = "condition"
    """Two changes that were both made on one condition."""
    DEFINITION = "definition"
    """A topic that is not defined as was acknowledged last."""
    REFUSED = "refused"
    """An answer that the request cannot rightly get."""
    ENDED = "ended"
    """A gateway that ended, failed or hangs by itself."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken promise: what, when about, and of which topic and key."""

    kind: Kind
    what: str
    at_s: float = 0.0
    topic: str = ""
    key: str = ""


@dataclass(slots=True, eq=False)
class Case:
    """What is known of one topic."""

    topic: str
    ledger: Ledger
    lineage: Lineage
    losses: Sequence[Loss]
    held: Held
    deaths: Sequence[tuple[float, float]] = ()
    unready: Sequence[Sequence[tuple[float, float]]] = ()

    def has(self, position: Position) -> bool:
        """Return whether a position is of the history that there is now."""
        return self.lineage.has(self.held.head.epoch, position)

    def finding(
        self, kind: Kind, what: str, request: Request | None = None, key: str = ""
    ) -> Finding:
        """Make a finding about a request, or about the topic."""
        at_s = request.answered_at_s or request.sent_at_s if request else 0.0
        return Finding(kind, what, at_s, self.topic, key)

    def may_be_lost(self, request: Request) -> bool:
        """Return whether Redis has lost an acknowledged request by itself."""
        offset = request.last.offset if request.last else None
        for loss in self.losses:
            if loss.covers(request, offset) and (
                offset is not None or not self._was_kept(request, loss)
            ):
                return True
        return False

    def _was_kept(self, request: Request, loss: Loss) -> bool:
        """Return whether something later has outlived a loss, and so has the request."""
        kept = loss.kept.get(self.topic, 0)
        return any(
            other.last is not None
            and other.sent_at_s > request.answered_at_s
            and other.last.offset <= kept
            and self.has(other.last)
            for other in self.ledger.of(self.topic)
        )


def judge_topic(case: Case) -> Iterator[Finding]:
    """Yield what is wrong with a topic's journal and records, at the gateway of the case."""
    yield from _holes(case)
    yield from _strangers(case)
    yield from _acknowledged(case)
    yield from _pieces(case)
    yield from _reordered(case)
    yield from _values(case)
    yield from _removals(case)
    yield from _world(case)
    yield from _records(case)


def judge_gateways(topic: str, held: Sequence[Held], server: tuple[str, int]) -> Iterator[Finding]:
    """Yield where gateways differ from one another, and from Redis."""
    since = max(each.first for each in held)
    first = held[0]
    expected = _facts(first, since)
    for at, each in enumerate(held):
        if (each.head.epoch, each.head.offset) != server:
            what = f"gateway {at} is at {each.head}, Redis at {server[0]}-{server[1]}"
            yield Finding(Kind.DIFFERS, what, topic=topic)
        if each.continues != first.continues:
            what = f"gateway {at} continues {each.continues}, gateway 0 {first.continues}"
            yield Finding(Kind.DIFFERS, what, topic=topic)
        facts = _facts(each, since)
        for name in sorted(expected.keys() | facts.keys(), key=str)[:100_000]:
            if expected.get(name) != facts.get(name):
                what = f"{name} is {facts.get(name)} at gateway {at}, {expected.get(name)} at 0"
                yield Finding(Kind.DIFFERS, what, topic=topic, key=str(name))


def _facts(held: Held, since: int) -> dict[int | str, object]:
    facts: dict[int | str, object] = {
        entry.offset: (entry.key, entry.ident, entry.digest)
        for entry in held.journal
        if entry.offset >= since
    }
    facts |= {key: digest_of(row) for key, row in held.world.items()}
    return facts


def _holes(case: Case) -> Iterator[Finding]:
    journal = case.held.journal
    for before, entry in pairwise(journal):
        if entry.offset != before.offset + 1:
            yield case.finding(Kind.HOLE, f"{entry.offset} follows {before.offset}")
    if journal and journal[-1].offset != case.held.head.offset:
        yield case.finding(Kind.HOLE, f"the journal ends at {journal[-1].offset}")


def _strangers(case: Case) -> Iterator[Finding]:
    asked = {ident for request in case.ledger.of(case.topic) for ident in request.idents()}
    at: dict[Ident, int] = {}
    for entry in case.held.journal:
        if entry.ident is None:
            continue
        if entry.ident not in asked:
            yield case.finding(Kind.INVENTED, f"{entry.ident} at {entry.offset}", key=entry.key)
        if entry.ident in at:
            what = f"{entry.ident} is at {at[entry.ident]} and at {entry.offset}"
            yield case.finding(Kind.DOUBLED, what, key=entry.key)
        at[entry.ident] = entry.offset


def _acknowledged(case: Case) -> Iterator[Finding]:
    """Each acknowledged message is at its position, unless Redis has lost it by itself."""
    entries = {entry.offset: entry for entry in case.held.journal}
    there = {entry.ident for entry in case.held.journal}
    for request in case.ledger.of(case.topic):
        if not request.is_acknowledged or request.verb in {Verb.REMOVE, Verb.REMOVE_MATCHING}:
            continue
        idents: list[Ident | None] = list(request.idents()) or [None]
        is_there = set(idents) <= there
        key = request.keys[0]
        if request.first is None:
            if case.held.first > 1 or is_there or case.may_be_lost(request):
                continue
            yield case.finding(Kind.LOST, f"{request}", request, key)
        elif not case.has(request.last or request.first):
            if not case.may_be_lost(request) and (idents == [None] or not is_there):
                yield case.finding(Kind.LOST, f"{request}, of another epoch", request, key)
        else:
            for offset, ident in enumerate(idents, request.first.offset):
                if offset < case.held.first:
                    continue
                found = entries.get(offset)
                if found is None or found.ident != ident:
                    kind = Kind.MOVED if ident is not None and ident in there else Kind.LOST
                    what = f"{request}: {offset} is {found and found.ident}, not {ident}"
                    yield case.finding(kind, what, request, key)


def _pieces(case: Case) -> Iterator[Finding]:
    at = {entry.ident: entry.offset for entry in case.held.journal}
    for request in case.ledger.of(case.topic):
        offsets = [at[ident] for ident in request.idents() if ident in at]
        if not offsets or offsets[0] == case.held.first:
            continue
        if offsets != list(range(offsets[0], offsets[0] + len(request.rows))):
            what = f"{request} has {len(request.rows)} messages, at {offsets}"
            yield case.finding(Kind.TORN, what, request, request.keys[0])


def _reordered(case: Case) -> Iterator[Finding]:
    at = {entry.ident: entry.offset for entry in case.held.journal}
    there = []
    for request in case.ledger.of(case.topic):
        offsets = [at[ident] for ident in request.idents() if ident in at]
        if offsets:
            there.append((request, offsets[0], offsets[-1]))
    answered: list[tuple[float, int]] = []
    highest = 0
    for request, first, last in sorted(there, key=lambda each: each[0].sent_at_s):
        while answered and answered[0][0] < request.sent_at_s:
            highest = max(highest, heapq.heappop(answered)[1])
        if first < highest:
            what = f"{request} at {first} was sent after what is at {highest} was acknowledged"
            yield case.finding(Kind.REORDERED, what, request, request.keys[0])
        # What a split has lost may stand at a later place, where another attempt has brought it.
        if request.is_acknowledged and (request.last is None or case.has(request.last)):
            heapq.heappush(answered, (request.answered_at_s, last))


def _values(case: Case) -> Iterator[Finding]:
    """Each value is what was sent, or what a patch makes of the value before it."""
    sent = {
        ident: (request.verb, row)
        for request in case.ledger.of(case.topic)
        for ident, row in zip(request.idents(), request.rows, strict=True)
    }
    is_whole = case.held.first == 1
    held: dict[str, Mapping[str, object]] = {}
    known = set[str]()
    for entry in case.held.journal:
        if entry.ident is None:
            held.pop(entry.key, None)
        elif entry.ident in sent:
            verb, row = sent[entry.ident]
            before = held.get(entry.key)
            value = row if verb is Verb.PUBLISH else patched(before, row)
            is_known = verb is Verb.PUBLISH or is_whole or entry.key in known
            if is_known and digest_of(value) != entry.digest:
                what = f"{entry.ident} at {entry.offset} is {entry.value}, not {value}"
                yield case.finding(Kind.VALUE, what, key=entry.key)
            held[entry.key] = entry.value or {}
        known.add(entry.key)


def _removals(case: Case) -> Iterator[Finding]:
    """Each acknowledged removal of a record that was there stands after that record's message.

    Keys that one writer owns are looked at: only there is known what a removal has found.
    """
    if case.held.first > 1:
        return
    places: dict[str, list[Entry]] = defaultdict(list)
    for entry in case.held.journal:
        places[entry.key].append(entry)
    at = {entry.ident: entry.offset for entry in case.held.journal}
    asked: dict[str, list[Request]] = defaultdict(list)
    for request in case.ledger.of(case.topic):
        for key in dict.fromkeys(request.keys):
            asked[key].append(request)
    for key, requests in asked.items():
        if "-shared-" in key:
            continue
        gone = [entry.offset for entry in places[key] if entry.ident is None]
        wanted = sum(request.attempts for request in requests if not request.writes)
        if len(gone) > wanted:
            yield case.finding(Kind.REMOVAL, f"{len(gone)} of {wanted} asked for", key=key)
        yield from _missing(case, key, requests, gone, at)


def _missing(
    case: Case,
    key: str,
    requests: Sequence[Request],
    gone: Sequence[int],
    at: Mapping[Ident | None, int],
) -> Iterator[Finding]:
    before: tuple[Request, int] | None = None
    for place, request in enumerate(requests):
        if request.writes:
            idents = [ident for ident, row in _of_key(request, key)]
            # What was not acknowledged may come to be at any time, after a removal too.
            before = (
                (request, at[idents[-1]]) if request.is_acknowledged and idents[-1] in at else None
            )
            continue
        if before is None or not request.is_acknowledged:
            before = before if request.is_acknowledged else None
            continue
        later = (
            at[ident]
            for each in requests[place + 1 :]
            for ident, _ in _of_key(each, key)
            if ident in at
        )
        until = min(later, default=1 << 62)
        if not any(before[1] < offset < until for offset in gone) and not case.may_be_lost(request):
            what = f"{request} has deleted {request.deleted}; {before[0]} is still there"
            yield case.finding(Kind.REMOVAL, what, request, key)
        before = None


def _of_key(request: Request, key: str) -> list[tuple[Ident, Mapping[str, object]]]:
    pairs = zip(request.idents(), request.rows, strict=True)
    return [(ident, row) for ident, row in pairs if row["k"] == key]


def _world(case: Case) -> Iterator[Finding]:
    """The records are what the journal comes to, as far as it goes back."""
    folded: dict[str, str | None] = {}
    for entry in case.held.journal:
        folded[entry.key] = None if entry.ident is None else entry.digest
    for key, row in case.held.world.items():
        if case.held.first == 1:
            folded.setdefault(key, None)
        if key in folded and folded[key] != digest_of(row):
            yield case.finding(
                Kind.WORLD, f"the record is {row}, the journal says otherwise", key=key
            )
    for key, digest in folded.items():
        if digest is not None and key not in case.held.world:
            yield case.finding(Kind.WORLD, "the record is missing, the journal has it", key=key)


def _records(case: Case) -> Iterator[Finding]:
    """Each record that one writer owns is as new as was acknowledged, also without the journal."""
    newest: dict[str, list[tuple[Request, Ident | None]]] = defaultdict(list)
    for request in case.ledger.of(case.topic):
        for key in dict.fromkeys(request.keys):
            idents = [ident for ident, _ in _of_key(request, key)]
            newest[key].append((request, idents[-1] if idents else None))
    for key, history in newest.items():
        if "-shared-" in key:
            continue
        owed = [at for at, (request, _) in enumerate(history) if _is_owed(case, request)]
        since = owed[-1] if owed else 0
        may_be = [ident for _, ident in history[since:]]
        may_be += [
            ident
            for request, ident in history[:since]
            if not request.is_acknowledged or _was_repeated(request)
        ]
        if not owed:
            may_be.append(None)
        row = case.held.world.get(key)
        found = None if row is None else Ident.of(row)
        if found not in may_be:
            request, ident = history[since]
            what = f"the record is {found}; acknowledged was {ident} by {request}"
            yield case.finding(Kind.WORLD, what, request, key)


def _is_owed(case: Case, request: Request) -> bool:
    if not request.is_acknowledged:
        return False
    if request.last is not None:
        return case.has(request.last) or not case.may_be_lost(request)
    return not case.may_be_lost(request)


def _was_repeated(request: Request) -> bool:
    """Return whether an attempt that nobody waits for may still have come to be.

    A request that says which one it is has been published once, whatever came later.
    """
    return request.attempts > 1 and Mark.PLAIN in request.writer


def judge_definitions(
    ledger: Ledger, defined: Sequence[Mapping[str, tuple[str, str]]], losses: Sequence[Loss]
) -> Iterator[Finding]:
    """Yield where topics are not as was acknowledged, or differ between gateways."""
    for at, each in enumerate(defined):
        for name in each.keys() | defined[0].keys():
            if each.get(name) != defined[0].get(name):
                what = f"{each.get(name)} at gateway {at}, {defined[0].get(name)} at gateway 0"
                yield Finding(Kind.DIFFERS, f"the definition is {what}", topic=name)
    yield from _conditions(ledger, losses)
    yield from _newest_definitions(ledger, defined[0], losses)


def _may_be_lost(sent_at_s: float, answered_at_s: float, losses: Sequence[Loss]) -> bool:
    """Return whether Redis may have lost a change of a topic by itself."""
    return any(
        sent_at_s < loss.ended_at_s + LED_S and answered_at_s > loss.began_at_s - LAGS_S
        for loss in losses
    )


def _conditions(ledger: Ledger, losses: Sequence[Loss]) -> Iterator[Finding]:
    tags: dict[str, list[float]] = defaultdict(list)
    for request in ledger.definitions:
        if request.tag and request.status == OK:
            tags[request.tag] += request.sent_at_s, request.answered_at_s
    for tag, times in tags.items():
        if len(times) > 2 and not _may_be_lost(min(times), max(times), losses):
            what = f"{len(times) // 2} changes on the condition {tag}"
            yield Finding(Kind.CONDITION, what, max(times))


def _newest_definitions(
    ledger: Ledger, defined: Mapping[str, tuple[str, str]], losses: Sequence[Loss]
) -> Iterator[Finding]:
    newest = {
        request.topic: request
        for request in ledger.definitions
        if not request.tag and not request.is_refused
    }
    for topic, request in newest.items():
        if not request.is_done or _may_be_lost(request.sent_at_s, request.answered_at_s, losses):
            continue
        found = defined.get(topic)
        if (found and found[0]) != request.text:
            what = f"acknowledged was {request.text!r}, there is {found}"
            yield Finding(Kind.DEFINITION, what, request.answered_at_s, topic)
