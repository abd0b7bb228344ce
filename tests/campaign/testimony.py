"""What readers saw, held against the history that there is, and against one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.campaign.faults import Loss
from tests.campaign.held import Entry, Held
from tests.campaign.judge import Case, Finding, Kind
from tests.campaign.ledger import Ident, Ledger
from tests.campaign.lineage import Lineage, Position
from tests.campaign.reader import Reader, Return, Seen, What, digest_of

SETTLED_S = 15.0
"""How long after a failover a gateway may not know of it."""
KNOWN_S = 1.0
"""How long after it is ready again a reader may be sent what it did before."""


@dataclass(slots=True, eq=False)
class Testimony:
    """One reader, event by event.

    Attributes:
        frontier: the newest position that it has seen of anything.
        versions: of each key.
        last: of a reader of every message the position before the next row.
        place: where it was when it came. What it had seen beyond, of an answer that broke off, a
            gateway cannot know, and one that has read less may send it older.
        has_arrived: nothing has come since it came, which a gateway decides by its place alone.
    """

    reader: Reader
    lineage: Lineage
    held: Held
    losses: Sequence[Loss]
    deaths: Sequence[tuple[float, float]] = ()
    unready: Sequence[Sequence[tuple[float, float]]] = ()
    entries: Mapping[int, Entry] = field(init=False)
    frontier: Position | None = None
    versions: dict[str, Position] = field(default_factory=dict)
    last: Position | None = None
    place: Position = field(default_factory=lambda: Position.of(""))
    is_told: bool = False
    in_group: bool = False
    has_arrived: bool = False

    def __post_init__(self) -> None:
        """Index the journal."""
        self.entries = {entry.offset: entry for entry in self.held.journal}

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong with what the reader was sent."""
        for what in self.reader.wrong:
            yield Finding(Kind.REFUSED, f"{self.reader.name}: {what}", topic=self.reader.topic)
        for seen in self.reader.seen:
            match seen.what:
                case What.VISIT:
                    self._visit(seen)
                case What.RESUMED:
                    yield from self._resumed(seen)
                case What.GROUP_BEGIN:
                    self.in_group = True
                case What.GROUP_END:
                    self.in_group = self.is_told = False
                    self.last = self.frontier = seen.at
                case What.ROW:
                    self.has_arrived = False
                    yield from self._row(seen)

    def _finding(self, kind: Kind, what: str, seen: Seen) -> Finding:
        text = f"{self.reader.name} at gateway {seen.gateway}: {what}"
        return Finding(kind, text, seen.at_s, self.reader.topic, seen.key)

    def _visit(self, seen: Seen) -> None:
        self.is_told = self.in_group = False
        self.has_arrived = True
        self.last = seen.at if seen.at.epoch else None
        self.place = seen.at
        self.versions = {
            key: at for key, at in self.versions.items() if at.offset <= seen.at.offset
        }
        if self.reader.returns is Return.ANEW:
            self.frontier, self.versions = None, {}
            self.is_told = True

    def _resumed(self, seen: Seen) -> Iterator[Finding]:
        has_arrived, self.has_arrived = self.has_arrived, False
        if seen.mode != "snapshot":
            return
        self.is_told = True
        # A filter with removals, or a trimmed journal, always continues by a snapshot.
        if not self.reader.is_of_every_message or self.held.first > 1:
            return
        is_there = seen.at.epoch and self.lineage.continues(self.held.head.epoch, seen.at)
        outages = [(loss.began_at_s, loss.ended_at_s) for loss in self.losses]
        # A gateway that has read more than is left begins anew, with the readers that it has.
        outages += () if has_arrived else self.deaths
        if is_there and not any(
            began_at_s - 1 < seen.at_s < self._settled_at_s(seen.gateway, ended_at_s)
            for began_at_s, ended_at_s in outages
        ):
            yield self._finding(Kind.RESET, f"a snapshot after {seen.at}", seen)

    def _settled_at_s(self, gateway: int, ended_at_s: float) -> float:
        """Return when a gateway knows at the latest what a Redis that is back has.

        Where it is not ready meanwhile, as on a busy machine, that is when it is ready again.
        """
        settled_at_s = ended_at_s + SETTLED_S
        spans = self.unready[gateway] if self.unready else ()
        ready_at_s = (until_s + KNOWN_S for since_s, until_s in spans if since_s < settled_at_s)
        return max([settled_at_s, *ready_at_s])

    def _row(self, seen: Seen) -> Iterator[Finding]:
        yield from self._announced(seen)
        yield from self._version(seen)
        if self.reader.is_of_every_message and not self.in_group:
            yield from self._order(seen)
        yield from self._truth(seen)
        self.versions[seen.key] = seen.at
        if self.frontier is None or self.frontier.epoch != seen.at.epoch:
            since = 0 if self.frontier is None or self.is_told else self.frontier.offset
            self.frontier = Position(seen.at.epoch, max(since, seen.at.offset))
        elif seen.at.offset > self.frontier.offset:
            self.frontier = seen.at
        self.last = seen.at

    def _announced(self, seen: Seen) -> Iterator[Finding]:
        """Whoever has seen what another epoch does not have is told before its first row."""
        before = self.frontier
        if before is None or self.is_told or self.in_group or before.epoch == seen.at.epoch:
            return
        through = self.lineage.through(seen.at.epoch, before.epoch)
        if through is not None and before.offset > through:
            what = f"{seen.at} follows {before}, which the epoch has up to {through}"
            yield self._finding(Kind.SILENT, what, seen)

    def _version(self, seen: Seen) -> Iterator[Finding]:
        before = self.versions.get(seen.key)
        if before is None or seen.at.offset >= before.offset:
            return
        # Where servers split, a gateway may know nothing of the other's epoch, and be behind it.
        if self.lineage.continues(seen.at.epoch, before):
            what = f"{seen.mode} {seen.at} follows {before}; it came with {self.place}"
            yield self._finding(Kind.BACKWARD, what, seen)

    def _order(self, seen: Seen) -> Iterator[Finding]:
        if self.last is None:
            return
        if seen.at.offset <= self.last.offset:
            if self.lineage.continues(seen.at.epoch, self.last):
                yield self._finding(Kind.TWICE, f"{seen.at} follows {self.last}", seen)
            return
        if not self.lineage.has(self.held.head.epoch, seen.at):
            return
        missed = [
            offset
            for offset in range(self.last.offset + 1, seen.at.offset)
            if (entry := self.entries.get(offset)) is not None and entry.ident is not None
        ]
        if missed:
            what = f"{seen.at} follows {self.last}, and {missed[0]} is a message"
            yield self._finding(Kind.GAP, what, seen)

    def _truth(self, seen: Seen) -> Iterator[Finding]:
        """A row of the history that there is says what the journal says."""
        entry = self.entries.get(seen.at.offset)
        if entry is None or not self.lineage.has(self.held.head.epoch, seen.at):
            return
        if seen.mode == "oof":
            if seen.reason == "deleted" and (entry.ident is not None or entry.key != seen.key):
                what = f"the removal {seen.at}; the journal has {entry.ident}"
                yield self._finding(Kind.HISTORIES, what, seen)
        elif (entry.key, entry.ident) != (seen.key, seen.ident):
            what = f"{seen.mode} {seen.at} is {seen.ident}; the journal has {entry.ident}"
            yield self._finding(Kind.HISTORIES, what, seen)
        elif entry.digest != seen.digest:
            yield self._finding(Kind.VALUE, f"{seen.mode} {seen.at} has another value", seen)


def judge_reader(reader: Reader, case: Case) -> Iterator[Finding]:
    """Yield what is wrong with what a reader was sent."""
    yield from Testimony(
        reader, case.lineage, case.held, case.losses, case.deaths, case.unready
    ).findings()


def judge_positions(topic: str, ledger: Ledger, readers: Sequence[Reader]) -> Iterator[Finding]:
    """Yield positions that were two messages, also of epochs that are gone."""
    known: dict[Position, tuple[Ident, str]] = {}
    for request in ledger.of(topic):
        if request.first is not None:
            for offset, ident in enumerate(request.idents(), request.first.offset):
                known.setdefault(Position(request.first.epoch, offset), (ident, request.writer))
    for reader in readers:
        for seen in reader.seen:
            if reader.topic != topic or seen.what is not What.ROW or seen.ident is None:
                continue
            ident, who = known.setdefault(seen.at, (seen.ident, reader.name))
            if ident != seen.ident:
                what = f"{seen.at} is {seen.ident} to {reader.name}, {ident} to {who}"
                yield Finding(Kind.HISTORIES, what, seen.at_s, topic, seen.key)


def differences(reader: Reader, held: Held) -> list[str]:
    """Return where a reader does not hold what a gateway holds."""
    rows = held.world
    if reader.filter_text:
        rows = {key: row for key, row in rows.items() if row["own"] == 1}
    expected = {key: digest_of(row) for key, row in rows.items()}
    world = reader.world()
    if not reader.sees_removals:  # it holds what is gone, too
        world = {key: digest for key, digest in world.items() if key in expected}
    return [
        key for key in sorted(expected.keys() | world.keys()) if expected.get(key) != world.get(key)
    ]
