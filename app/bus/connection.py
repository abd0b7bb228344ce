"""Connections to the bus: clients made from its address, and the names of its keys.

redis-py repeats a write whose answer was lost, which doubles it, and gives up a read that waits
longer than its socket may. So writers never repeat, and readers wait as long as they say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from app.problems import Problem

WRITERS_MAX = 16
READERS_MAX = 8
ANSWER_S_MAX = 5.0
"""A write, or the answer to a look, takes no longer than this: then the bus is out."""

Result = TypeVar("Result")

Entry = tuple[int, dict[bytes, bytes]]
"""Of a stream: the number that its id begins with, and its fields."""


class BusConnection:
    """Two clients of one Redis or Valkey, RESP2 and bytes, and the names of keys there.

    `writer` repeats nothing. `reader` has no limit of its own: use `patiently` around it.
    """

    def __init__(self, url: str, prefix: str = "tidegate") -> None:
        """Nothing is reached yet.

        Args:
            url: `redis://`, `rediss://` or `unix://`.
            prefix: what the names of all keys begin with.

        Raises:
            ValueError: not such an address, or not such a prefix.
        """
        if "{" in prefix or "}" in prefix:
            raise ValueError("a prefix has no braces, which tell slots apart")
        self.prefix = prefix
        self.writer = _client(url, WRITERS_MAX, answer_s_max=ANSWER_S_MAX)
        self.reader = _client(url, READERS_MAX, answer_s_max=None)
        self._scripts: dict[str, AsyncScript] = {}

    def sign(self, name: str) -> None:
        """Have the server know connections that are made from now on by a name without spaces."""
        for client in (self.writer, self.reader):
            client.connection_pool.connection_kwargs["client_name"] = name

    async def names(self) -> frozenset[str]:
        """The names of all connections that the server has, of whomever they are."""
        clients = await self.ask("CLIENT LIST")
        return frozenset(client["name"] for client in clients)

    def shared_key(self, *parts: str) -> str:
        """A key that belongs to no topic, such as `{tidegate}:leases`: all are in one slot."""
        return ":".join((f"{{{self.prefix}}}", *parts))

    def topic_key(self, topic: str, part: str) -> str:
        """A key of a topic: `{tidegate:ticks}:stream`. All of one topic are in one slot."""
        return f"{{{self.prefix}:{topic}}}:{part}"

    async def ask(self, *words: object) -> Any:
        """What a command is answered, in redis-py's shape of the command."""
        client: Any = self.writer  # its own types leave out what RESP2 settles
        return await client.execute_command(*words)

    async def read(self, *words: object) -> Any:
        """The same from a connection on which one may wait: use `patiently` around it."""
        client: Any = self.reader
        return await client.execute_command(*words)

    async def entries(self, stream: str, after: int, count: int) -> list[Entry]:
        """Entries of a stream behind one whose id is `<after>-0`, at most so many."""
        found = await self.ask("XRANGE", stream, f"({after}-0", "+", "COUNT", count)
        return [(number_of(entry_id), fields) for entry_id, fields in found]

    async def run(self, script: str, keys: Sequence[str], words: Sequence[Any]) -> Any:
        """What a script answers that runs inside Redis, in one step for everybody."""
        known = self._scripts.get(script)
        if known is None:
            known = self._scripts[script] = self.writer.register_script(script)
        return await known(keys=list(keys), args=list(words))

    async def aclose(self) -> None:
        """Let all connections go."""
        await self.writer.aclose()
        await self.reader.aclose()


def number_of(entry_id: bytes) -> int:
    """The number that ids of our streams begin with."""
    return int(entry_id.partition(b"-")[0])


async def patiently(answer: Awaitable[Result], waiting_s: float = 0.0) -> Result:
    """What a reader is answered, if it is within the time it asked to wait and a little more.

    So a peer that is gone without a word is found, however long the kernel believes in it.

    Raises:
        TimeoutError: the connection is of no use any more.
    """
    async with asyncio.timeout(waiting_s + ANSWER_S_MAX):
        return await answer


@contextmanager
def reaching() -> Iterator[None]:
    """Whatever keeps the bus from doing its part is told as the problem `bus-unavailable`.

    Raises:
        Problem: bus-unavailable.
    """
    try:
        yield
    except (RedisError, OSError) as error:
        detail = "The bus did not take it; what was sent may be tried again."
        raise Problem("bus-unavailable", detail, headers={"Retry-After": "1"}) from error


def _client(url: str, connections_max: int, *, answer_s_max: float | None) -> Redis:
    # Given here and not in the URL's query, which would win over what must not be changed.
    given: dict[str, Any] = {
        **parse_url(url),
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": answer_s_max,
        "socket_connect_timeout": ANSWER_S_MAX,
        "socket_keepalive": True,
        "socket_read_size": 1 << 18,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "retry_on_error": [],
        "health_check_interval": 0,
    }
    if "path" in given:  # a socket file: nothing to keep alive
        del given["socket_keepalive"], given["socket_connect_timeout"]
    return Redis.from_pool(BlockingConnectionPool(connections_max, ANSWER_S_MAX, **given))
