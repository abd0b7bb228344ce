"""A topic on Redis servers that restart, lag and take over, as gateways and a reader see it.

Two gateways share one topic. Each is led to one server; a server has the topic's log and state, as
`app/cluster/scripts.py` keeps them, and `app/cluster/log_reader.py` and `app/topics/writer.py` do
what the gateways do. An entry is a number that is used once, so histories can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from tests.model.search import Violation

Former = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Protocol:
    """What gateways check; without one of these a promise is broken."""

    epochs_of_lives: bool = True
    """An epoch belongs to one life of a server."""
    writes_of_lives: bool = True
    """An answer counts only what the server that took the message has written."""
    decides_at_head: bool = True
    """That there is nothing to delete is decided at the head of the log."""
    refuses_when_behind: bool = True
    """A reader who has seen more than the gateway is refused."""
    follows_in_life: bool = True
    """An epoch that another gateway began is followed only in the life that it belongs to."""


@dataclass(frozen=True)
class Bounds:
    """How much happens."""

    entries: int = 3
    faults: int = 2
    """Restarts and takeovers."""


@dataclass(frozen=True)
class Server:
    """A process with the topic's log: pairs of an epoch and an entry.

    `unwritten` counts the entries at the end that a death takes along; `own` is the life that the
    state names. `former` has the epochs before, each with the last offset that the next one has.
    """

    life: int
    own: int
    epoch: int
    log: tuple[tuple[int, int], ...] = ()
    unwritten: int = 0
    former: Former = ()

    @property
    def entries(self) -> tuple[int, ...]:
        return tuple(entry for _, entry in self.log)


@dataclass(frozen=True)
class Append:
    """A message whose publisher waits; `delayed`: the server had still to write it."""

    epoch: int
    offset: int
    entry: int
    life: int
    delayed: bool


@dataclass(frozen=True)
class Gateway:
    """What it has read, in which epoch, and from which server."""

    server: int
    epoch: int
    history: tuple[int, ...] = ()
    former: Former = ()
    append: Append | None = None

    def has(self, epoch: int, offset: int) -> bool:
        """Whether a position is of its epoch, or of one that its epoch continues."""
        return epoch == self.epoch or offset <= dict(self.former).get(epoch, -1)


@dataclass(frozen=True)
class Reader:
    """The last id that it has, and all that it has seen."""

    epoch: int
    offset: int
    seen: tuple[int, ...]


@dataclass(frozen=True)
class World:
    """All servers, the newest last, and who looks at them."""

    servers: tuple[Server, ...]
    gateways: tuple[Gateway, ...]
    reader: Reader | None = None
    answered: frozenset[int] = frozenset()
    entries: int = 0
    faults: int = 0
    epochs: int = 1

    def with_server(self, at: int, server: Server) -> World:
        return replace(self, servers=(*self.servers[:at], server, *self.servers[at + 1 :]))

    def with_gateway(self, at: int, gateway: Gateway) -> World:
        return replace(self, gateways=(*self.gateways[:at], gateway, *self.gateways[at + 1 :]))


FIRST = World((Server(life=1, own=1, epoch=1),), (Gateway(0, 1), Gateway(0, 1)))


class History:
    """The steps of the model.

    Args:
        protocol: what gateways check.
        bounds: how much happens.
    """

    def __init__(self, protocol: Protocol, bounds: Bounds) -> None:
        self._protocol = protocol
        self._bounds = bounds

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield what can happen next.

        Raises:
            Violation: what has happened breaks a promise.
        """
        _check(world)
        for at, gateway in enumerate(world.gateways):
            server = world.servers[gateway.server]
            name = f"gateway {at}"
            yield from self._appends(world, at, gateway, server, name)
            yield from self._reads(world, at, gateway, server, name)
            yield from self._confirms(world, at, gateway, server, name)
            yield from self._answers(world, at, gateway, server, name)
            yield from self._serves(world, at, gateway, name)
            self._deletes(world, gateway, server)
            if gateway.server != len(world.servers) - 1:
                led = replace(gateway, server=len(world.servers) - 1)
                yield f"{name} is led to the newest server", world.with_gateway(at, led)
        yield from self._faults(world)

    # --- Gateways

    def _is_current(self, server: Server) -> bool:
        return server.own == server.life or not self._protocol.epochs_of_lives

    def _appends(
        self, world: World, at: int, gateway: Gateway, server: Server, name: str
    ) -> Iterator[tuple[str, World]]:
        is_behind = len(server.log) < len(gateway.history)
        is_valid = server.epoch == gateway.epoch and not is_behind and self._is_current(server)
        if not is_valid or gateway.append is not None or world.entries == self._bounds.entries:
            return
        entry = world.entries + 1
        log = (*server.log, (gateway.epoch, entry))
        for delayed in (False, True):
            append = Append(gateway.epoch, len(log), entry, server.life, delayed)
            taken = replace(server, log=log, unwritten=server.unwritten + 1 if delayed else 0)
            after = world.with_server(gateway.server, taken)
            after = after.with_gateway(at, replace(gateway, append=append))
            how = ", to be written" if delayed else ""
            yield f"{name} appends {entry}{how}", replace(after, entries=entry)

    def _reads(
        self, world: World, at: int, gateway: Gateway, server: Server, name: str
    ) -> Iterator[tuple[str, World]]:
        offset = len(gateway.history) + 1
        if offset > len(server.log):
            return
        epoch, entry = server.log[offset - 1]
        if gateway.has(epoch, offset):
            read = replace(gateway, history=(*gateway.history, entry))
            yield f"{name} reads {entry}", world.with_gateway(at, read)

    def _confirms(
        self, world: World, at: int, gateway: Gateway, server: Server, name: str
    ) -> Iterator[tuple[str, World]]:
        """Check the continuity of the topic, and go on in the epoch that is valid."""
        head = len(server.log)
        is_followed = any(epoch == gateway.epoch for epoch, _ in server.former)
        if self._protocol.follows_in_life:
            is_followed = is_followed and self._is_current(server)
        is_valid = server.epoch == gateway.epoch and head >= len(gateway.history)
        if is_valid and self._is_current(server):
            return
        if not is_followed or server.epoch == gateway.epoch:
            former = (*server.former, (server.epoch, head))
            number = world.epochs + 1
            server = replace(server, epoch=number, own=server.life, former=former)
            world = replace(world.with_server(gateway.server, server), epochs=number)
        # Nothing is loaded in an epoch of another life, so the gateway would ask for ever.
        if not self._is_current(server):
            raise Violation(f"{name} cannot go on in epoch {server.epoch}, of another life")
        former = _least(server.former)
        if len(gateway.history) > dict(former).get(gateway.epoch, -1):
            gateway = replace(gateway, history=server.entries)
        gateway = replace(gateway, epoch=server.epoch, former=former)
        yield f"{name} goes on in epoch {server.epoch}", world.with_gateway(at, gateway)

    def _answers(
        self, world: World, at: int, gateway: Gateway, server: Server, name: str
    ) -> Iterator[tuple[str, World]]:
        append = gateway.append
        if append is None:
            return
        refused = world.with_gateway(at, replace(gateway, append=None))
        if append.delayed and self._protocol.writes_of_lives and server.life != append.life:
            yield f"{name} refuses {append.entry}", refused
            return
        if append.delayed and server.unwritten:
            return
        if not gateway.has(append.epoch, append.offset):
            yield f"{name} refuses {append.entry}", refused
            return
        if len(gateway.history) < append.offset:
            return
        if gateway.history[append.offset - 1] != append.entry:
            raise Violation(f"{name} answers {append.entry}, which is not at its place")
        if append.delayed and not _has_written(world, append):
            raise Violation(f"{name} answers {append.entry}, which its server never wrote")
        answered = world.answered | {append.entry}
        yield f"{name} answers {append.entry}", replace(refused, answered=answered)

    def _deletes(self, world: World, gateway: Gateway, server: Server) -> None:
        """Decide that there is nothing to delete; it changes nothing, so it is only checked."""
        if self._protocol.decides_at_head:
            is_valid = server.epoch == gateway.epoch and self._is_current(server)
            if not is_valid or len(server.log) > len(gateway.history):
                return
        missed = (world.answered & {*server.entries}) - {*gateway.history}
        if missed:
            raise Violation(f"a gateway finds nothing to delete, and there is {min(missed)}")

    def _serves(
        self, world: World, at: int, gateway: Gateway, name: str
    ) -> Iterator[tuple[str, World]]:
        """Let the reader come with its last id, or see what the gateway has."""
        reader, head = world.reader, len(gateway.history)
        if reader is not None and gateway.has(reader.epoch, reader.offset):
            if reader.offset > head:
                if self._protocol.refuses_when_behind:
                    return
                raise Violation(f"{name} takes the reader back within an epoch")
            if gateway.history[: reader.offset] != reader.seen:
                raise Violation(f"{name} continues a reader who has seen another history")
        seen = Reader(gateway.epoch, head, gateway.history)
        if seen != reader:
            yield f"{name} serves the reader", replace(world, reader=seen)

    # --- Faults

    def _faults(self, world: World) -> Iterator[tuple[str, World]]:
        newest = len(world.servers) - 1
        for at, server in enumerate(world.servers):
            if server.unwritten:
                written = world.with_server(at, replace(server, unwritten=0))
                yield f"server {at} writes", written
        if world.faults == self._bounds.faults:
            return
        server = world.servers[newest]
        after = replace(world, faults=world.faults + 1)
        life = 2 + world.faults
        for lost in range(server.unwritten + 1):
            log = server.log[: len(server.log) - lost]
            again = replace(server, life=life, log=log, unwritten=0)
            yield (
                f"server {newest} dies with {lost} entries and starts",
                after.with_server(newest, again),
            )
        began = max((through for _, through in server.former), default=0)
        for kept in range(began, len(server.log) + 1):
            replica = replace(server, life=life, log=server.log[:kept], unwritten=0)
            yield (
                f"a replica that has {kept} entries takes over",
                replace(after, servers=(*world.servers, replica)),
            )


def _least(former: Former) -> Former:
    """What each epoch has in common with the newest one."""
    found, through = [], 1 << 30
    for epoch, last in reversed(former):
        through = min(through, last)
        found.append((epoch, through))
    return tuple(found)


def _has_written(world: World, append: Append) -> bool:
    """Whether the server that took a message has it in its file."""
    for server in world.servers:
        if server.life == append.life:
            return append.entry in server.entries[: len(server.log) - server.unwritten]
    return False


def _check(world: World) -> None:
    """Positions of one epoch mean one history, to gateways and to the reader.

    Raises:
        Violation: they do not.
    """
    seen = [(gateway.epoch, gateway.history) for gateway in world.gateways]
    if world.reader is not None:
        seen.append((world.reader.epoch, world.reader.seen))
    for at, (epoch, history) in zip(count(1), seen, strict=False):
        for other_epoch, other in seen[at:]:
            both = min(len(history), len(other))
            if epoch == other_epoch and history[:both] != other[:both]:
                raise Violation(f"epoch {epoch} is two histories: {history} and {other}")
