"""Connections to Redis: clients built from an address, key names, and error translation.

By default redis-py retries a write whose reply was lost, which duplicates the write, and aborts a
blocking read after the socket timeout. So the writer never retries, and the reader has no timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from typing import Any, Self, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript
from redis.exceptions import ReadOnlyError, RedisError

from tidegate.app.cluster.redis_compat import reporting_lost_writes
from tidegate.app.cluster.sentinel import is_sentinel_url, primary_pool
from tidegate.app.refusals import Unavailable
from tidegate.app.timers import wall_ms

WRITER_CONNECTIONS_MAX = 16
READER_CONNECTIONS_MAX = 8
REPLY_S_MAX = 5.0
"""Time limit of a command that does not block; beyond it Redis counts as unavailable."""

SERVER_SCHEMES = ("redis", "rediss", "unix")
ADDRESS_FORMS = (
    "redis://HOST:PORT, rediss://HOST:PORT, unix:///SOCKET, "
    "or redis+sentinel://HOST:PORT,HOST:PORT/SERVICE"
)

SEQUENCE_MAX = (1 << 64) - 1

logger = logging.getLogger("tidegate.bus")

Result = TypeVar("Result")

StreamEntry = tuple[int, dict[bytes, bytes]]
"""One stream entry: the first part of its id, and its fields."""


class BusClock:
    """The time of Redis, which all gateways go by, as the clocks of their machines may differ.

    A reply tells it to within half of the time that it took. So a later reply moves the clock only
    if it shows that the clock is off: a slow reply does not.

    Args:
        wall_ms: the clock of this machine, in milliseconds of the epoch.
    """

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self.wall_ms = wall_ms
        self._offset_ms = 0

    def now_ms(self) -> int:
        """Return the time, in milliseconds of the epoch."""
        return self.wall_ms() + self._offset_ms

    def learn(self, redis_ms: int, asked_ms: int) -> None:
        """Take the time of a reply that has just come; `asked_ms` is the `wall_ms` of asking."""
        came_ms = self.wall_ms()
        offset_ms = redis_ms - (asked_ms + came_ms) // 2
        error_ms = (came_ms - asked_ms) // 2 + 1
        if abs(offset_ms - self._offset_ms) > error_ms:
            self._offset_ms = offset_ms


class BusConnection:
    """Two clients of one Redis or Valkey (RESP2, bytes) and the names of the keys there.

    `writer` never retries. `reader` has no time limit of its own: wrap its calls in `with_timeout`.
    `clock` has the time of the server, once `read_clock` or a heartbeat has read it.
    `foreign` describes, by key, data that no gateway wrote, as last seen. `place` is the address
    without its credentials.
    """

    def __init__(
        self, url: str, prefix: str = "tidegate", wall_ms: Callable[[], int] = wall_ms
    ) -> None:
        """Build the clients without connecting.

        Args:
            url: `redis://`, `rediss://` or `unix://`, or that of Sentinels (see `primary_pool`).
            prefix: the start of every key name.
            wall_ms: the clock of this machine, in milliseconds of the epoch.

        Raises:
            ValueError: the address or the prefix is malformed.
        """
        if "{" in prefix or "}" in prefix:
            raise ValueError("a prefix must not contain braces, which mark the hash slot")
        self.prefix = prefix
        # For sentences, so without a user and a password.
        self.place = url.partition("://")[2].rpartition("@")[2].partition("?")[0]
        self.writer = _client(url, WRITER_CONNECTIONS_MAX, reply_s_max=REPLY_S_MAX)
        self.reader = _client(url, READER_CONNECTIONS_MAX, reply_s_max=None)
        self.clock = BusClock(wall_ms)
        self.foreign: dict[str, str] = {}
        self._scripts: dict[str, AsyncScript] = {}

    def set_client_name(self, name: str) -> None:
        """Set the client name, without spaces, of every connection opened from now on."""
        for client in (self.writer, self.reader):
            client.connection_pool.connection_kwargs["client_name"] = name

    async def read_clock(self) -> None:
        """Read the time of the server."""
        asked_ms = self.clock.wall_ms()
        seconds, microseconds = await self.execute("TIME")
        self.clock.learn(int(seconds) * 1_000 + int(microseconds) // 1_000, asked_ms)

    async def client_names(self) -> frozenset[str]:
        """Return the names of all client connections of the server, also of other programs."""
        clients = await self.execute("CLIENT LIST")
        return frozenset(client["name"] for client in clients)

    def report_foreign(self, redis_key: str, finding: str) -> None:
        """Record data under our keys that no gateway wrote, and log each new finding once."""
        if self.foreign.get(redis_key) != finding:
            logger.warning("%s: %s; no gateway wrote it, so it is ignored", redis_key, finding)
        self.foreign[redis_key] = finding

    def shared_key(self, *parts: str) -> str:
        """Return a key that belongs to no topic (`{tidegate}:leases`); all share one hash slot."""
        return ":".join((f"{{{self.prefix}}}", *parts))

    def topic_key(self, topic: str, part: str) -> str:
        """Return a key of a topic (`{tidegate:ticks}:stream`); a topic's keys share one slot."""
        return f"{{{self.prefix}:{topic}}}:{part}"

    async def execute(self, *arguments: object) -> Any:
        """Execute a command on the writer and return redis-py's reply."""
        client: Any = self.writer  # redis-py's types also cover RESP3
        async with self._leaving_replicas():
            return await client.execute_command(*arguments)

    @asynccontextmanager
    async def pinned(self) -> AsyncIterator[Self]:
        """Yield a view of one network connection, which leads to one server until it fails.

        In a failover, those of the pool may lead to several.
        """
        async with self.writer.client() as client:
            view = copy(self)
            view.writer = client
            yield view

    async def execute_blocking(self, *arguments: object) -> Any:
        """Execute a blocking command on the reader; wrap the call in `with_timeout`."""
        client: Any = self.reader
        return await client.execute_command(*arguments)

    async def read_stream(self, stream: str, after: int, count: int) -> list[StreamEntry]:
        """Read at most `count` stream entries after the one with id `<after>-0`."""
        found = await self.execute("XRANGE", stream, f"({id_after(after)}", "+", "COUNT", count)
        return [(entry_number(entry_id), fields) for entry_id, fields in found]

    async def run_script(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run a Lua script in Redis, which executes it atomically."""
        registered = self._scripts.get(script)
        if registered is None:
            registered = self._scripts[script] = self.writer.register_script(script)
        async with self._leaving_replicas():
            return await registered(keys=list(keys), args=list(arguments), client=self.writer)

    @asynccontextmanager
    async def _leaving_replicas(self) -> AsyncIterator[None]:
        """Close the writer's idle connections if the server refuses a write as a replica.

        A primary that is made a replica keeps its connections. The address, or the proxy behind it,
        may lead new ones to the primary that there is now.
        """
        try:
            yield
        except ReadOnlyError:
            await self.writer.connection_pool.disconnect(inuse_connections=False)
            raise

    async def aclose(self) -> None:
        """Close all connections."""
        await self.writer.aclose()
        await self.reader.aclose()


def id_after(number: int) -> str:
    """Return an id after every entry with this number; ids of ours are `<number>-0`."""
    return f"{number}-{SEQUENCE_MAX}"


def entry_number(entry_id: bytes) -> int:
    """Return the number that an id of our streams starts with."""
    return int(entry_id.partition(b"-")[0])


async def with_timeout(reply: Awaitable[Result], blocking_s: float = 0.0) -> Result:
    """Await a blocking reply, at most `blocking_s` plus the limit of an ordinary command.

    The kernel may keep a dead peer's connection for minutes; this limit detects the peer's death.

    Raises:
        TimeoutError: the connection is no longer usable.
    """
    async with asyncio.timeout(blocking_s + REPLY_S_MAX):
        return await reply


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate Redis and socket errors in the block into `Unavailable`.

    Raises:
        Refused: bus-unavailable.
    """
    try:
        yield
    except (RedisError, OSError) as error:
        raise Unavailable("The bus did not accept the request; try again.") from error


def _client(url: str, connections_max: int, *, reply_s_max: float | None) -> Redis:
    """Return a client of an address, without connecting.

    Raises:
        ValueError: the address is malformed, or its query has a word that redis-py does not know.
    """
    # These options win over the query of the address, which redis-py would prefer.
    options: dict[str, Any] = {
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": reply_s_max,
        "socket_connect_timeout": REPLY_S_MAX,
        "socket_keepalive": True,
        "socket_read_size": 1 << 18,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "retry_on_error": [],
        "health_check_interval": 0,
        "max_connections": connections_max,
        "timeout": REPLY_S_MAX,
    }
    try:
        pool = primary_pool(url, options) if is_sentinel_url(url) else _pool(url, options)
        pool.make_connection()  # type: ignore[no-untyped-call]  # it would fail at the first use
    except TypeError:
        raise ValueError("the query of the address has a word that is not known") from None
    return Redis.from_pool(pool)


def _pool(url: str, options: Mapping[str, Any]) -> BlockingConnectionPool:
    scheme, separator, _ = url.partition("://")
    if not separator or scheme.lower() not in SERVER_SCHEMES:
        raise ValueError(f"expected {ADDRESS_FORMS}")
    given = {**parse_url(url), **options}
    # redis-py would ask this machine instead.
    if not given.get("host") and not given.get("path"):
        raise ValueError(f"the address names no server; expected {ADDRESS_FORMS}")
    if "path" in given:  # a Unix socket rejects TCP options
        del given["socket_keepalive"], given["socket_connect_timeout"]
    given["connection_class"] = reporting_lost_writes(given.get("connection_class", Connection))
    return BlockingConnectionPool(**given)
