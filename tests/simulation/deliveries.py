"""What one connection received, as rows with their place in the ledger and their times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.client import Connection
from tests.simulation.events import EventParser, ReceivedEvent
from tests.simulation.ledger import Entry, EpochLedger
from tests.simulation.link import Sent


class Broken(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


def require(holds: object, invariant: str, what: str) -> None:
    """Whether it does.

    Raises:
        Broken: it does not.
    """
    if not holds:
        raise Broken(invariant, what)


@dataclass(slots=True, eq=False)
class Delivery:
    """One row: what it tells of, when it was taken for sending, whether it arrived."""

    entry: Entry
    own: str
    op: str
    live: bool
    asked_ns: int
    arrived: bool


@dataclass(slots=True, eq=False)
class Opened:
    """One connection that said hello. `cut`: what is newer came live; None while unknown."""

    connection: Connection
    ledger: EpochLedger
    session: str
    rows: list[Delivery] = field(default_factory=list)
    mode: str = ""
    cut: int | None = None
    goodbye: Sent | None = None

    @property
    def sents(self) -> list[Sent]:
        """What the gateway sent, or tried to."""
        return self.connection.socket.sents

    @staticmethod
    def events_of(connection: Connection) -> Iterator[tuple[ReceivedEvent, Sent]]:
        """Every event that was sent, received or not: the client's are the first of them."""
        received = iter(connection.received)
        parser = EventParser(connection.last_id)
        for sent in connection.socket.sents:
            for event in parser.feed(sent.text, 0):
                arrived = next(received, None)
                same = arrived is None or (arrived.name, arrived.text) == (event.name, event.text)
                require(same, "I15", "what was received is not what was sent")
                yield event if arrived is None else arrived, sent

    def blocked(self) -> list[tuple[int, int]]:
        """When the stream waited for its socket."""
        end = self.connection.ended_ns
        last = 1 << 62 if end is None else end
        waits = (
            (sent.asked_ns, last if sent.wrote_ns is None else sent.wrote_ns) for sent in self.sents
        )
        return [(start, stop) for start, stop in waits if stop > start]
