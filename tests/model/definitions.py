"""Definitions of topics on Redis servers that take over, as gateways change and follow them.

A definition is a number that is used once. A server has the id and the version of its definitions,
as `app/cluster/scripts.py` keeps them, and a log of changes; a gateway has seen an id up to a
version (`app/cluster/definitions.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.model.search import Violation

TOPICS = ("a", "b")

Named = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Server:
    """A process with definitions; `own` is the life that their id belongs to."""

    life: int
    own: int
    id: int
    changes: Named = ()

    @property
    def definitions(self) -> Named:
        return tuple(sorted(dict(self.changes).items()))


@dataclass(frozen=True)
class Gateway:
    """What a gateway knows: of which id, up to which version, and the definitions."""

    server: int
    id: int
    version: int = 0
    known: Named = ()


@dataclass(frozen=True)
class World:
    """All servers, the newest last, and two gateways."""

    servers: tuple[Server, ...]
    gateways: tuple[Gateway, ...]
    changes: int = 0
    faults: int = 0
    ids: int = 1

    def with_server(self, at: int, server: Server) -> World:
        return replace(self, servers=(*self.servers[:at], server, *self.servers[at + 1 :]))

    def with_gateway(self, at: int, gateway: Gateway) -> World:
        return replace(self, gateways=(*self.gateways[:at], gateway, *self.gateways[at + 1 :]))


FIRST = World((Server(life=1, own=1, id=1),), (Gateway(0, 1), Gateway(0, 1)))


@dataclass(frozen=True)
class Definitions:
    """The steps of the model; `ids_of_lives`: definitions have another id in each life."""

    ids_of_lives: bool = True
    changes: int = 4
    faults: int = 2

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield what can happen next.

        Raises:
            Violation: a definition is replaced that the gateway has not seen, or is missed.
        """
        for at, gateway in enumerate(world.gateways):
            server = world.servers[gateway.server]
            name = f"gateway {at}"
            is_current = server.own == server.life or not self.ids_of_lives
            same_id = is_current and server.id == gateway.id
            if same_id and gateway.version == len(server.changes):
                if gateway.known != server.definitions:
                    raise Violation(f"{name} has seen all, and lacks a definition")
                if world.changes < self.changes:
                    yield from self._changes(world, at, gateway, server, name)
            elif same_id and gateway.version < len(server.changes):
                yield from self._follows(world, at, gateway, server, name)
            else:
                yield from self._opens(world, at, gateway, server, name)
            if gateway.server != len(world.servers) - 1:
                led = replace(gateway, server=len(world.servers) - 1)
                yield f"{name} is led to the newest server", world.with_gateway(at, led)
        if world.faults < self.faults:
            yield from self._faults(world)

    def _changes(
        self, world: World, at: int, gateway: Gateway, server: Server, name: str
    ) -> Iterator[tuple[str, World]]:
        for topic in TOPICS:
            changed = replace(server, changes=(*server.changes, (topic, world.changes + 1)))
            after = world.with_server(gateway.server, changed)
            seen = replace(gateway, version=gateway.version + 1, known=changed.definitions)
            after = replace(after.with_gateway(at, seen), changes=world.changes + 1)
            yield f"{name} defines {topic}", after

    def _follows(
        self, world: World, at: int, gateway: Gateway, server: Server, name: str
    ) -> Iterator[tuple[str, World]]:
        topic, definition = server.changes[gateway.version]
        known = tuple(sorted({**dict(gateway.known), topic: definition}.items()))
        read = replace(gateway, version=gateway.version + 1, known=known)
        yield f"{name} reads a change of {topic}", world.with_gateway(at, read)

    def _opens(
        self, world: World, at: int, gateway: Gateway, server: Server, name: str
    ) -> Iterator[tuple[str, World]]:
        """Begin another id where the life is another one, and read all definitions."""
        if self.ids_of_lives and server.own != server.life:
            server = replace(server, own=server.life, id=world.ids + 1)
            world = replace(world.with_server(gateway.server, server), ids=world.ids + 1)
        read = Gateway(gateway.server, server.id, len(server.changes), server.definitions)
        yield f"{name} reads all definitions", world.with_gateway(at, read)

    def _faults(self, world: World) -> Iterator[tuple[str, World]]:
        server, life = world.servers[-1], 2 + world.faults
        for kept in range(len(server.changes) + 1):
            replica = replace(server, life=life, changes=server.changes[:kept])
            yield (
                f"a replica that has {kept} changes takes over",
                replace(world, servers=(*world.servers, replica), faults=world.faults + 1),
            )
