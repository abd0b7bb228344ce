"""Connections to the primary that Sentinels name, by `redis+sentinel://HOST,HOST/SERVICE`."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff

from tidegate.app.cluster.writing import failing_at_write

SCHEMES = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
PORT = 26_379
_SENTINEL_WORDS = {"sentinel_username": "username", "sentinel_password": "password"}


class PrimaryPool(SentinelConnectionPool, BlockingConnectionPool):
    """Connections to the current primary; whoever needs one above the limit waits for it.

    A connection asks the Sentinels when it is opened. Sentinels close all connections to a primary
    that they make a replica, so that clients ask again.
    """

    async def aclose(self) -> None:
        """Close all connections, those to the Sentinels too."""
        await super().aclose()
        await self.sentinel_manager.aclose()


def is_sentinel_url(url: str) -> bool:
    """Return whether an address names Sentinels, and not a server itself."""
    return urlsplit(url).scheme in SCHEMES


def primary_pool(url: str, connections_max: int, timeout_s: float, **options: Any) -> PrimaryPool:
    """Return the pool of an address, without connecting.

    Args:
        url: `redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/SERVICE/DB`, `rediss+sentinel://`
            with TLS to the Sentinels and the primary. User, password and the query are those of
            `redis://` and for the primary; `sentinel_username` and `sentinel_password` are for the
            Sentinels.
        connections_max: the limit of the pool.
        timeout_s: how long a caller waits at the limit, and for a Sentinel.
        options: of the connections, over those of the address.

    Raises:
        ValueError: malformed.
    """
    parts = urlsplit(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    service, _, database = parts.path.removeprefix("/").partition("/")
    if not service:
        raise ValueError("the address of Sentinels ends with the name of the service, /mymaster")
    query = dict(parse_qsl(parts.query))
    login = {word: query.pop(name) for name, word in _SENTINEL_WORDS.items() if name in query}
    url_of_primary = urlunsplit(
        (SCHEMES[parts.scheme], f"{credentials}{at}primary", database, urlencode(query), "")
    )
    given = {**parse_url(url_of_primary), **options}
    del given["host"]
    tls = {name: value for name, value in given.items() if name.startswith("ssl_")}
    has_tls = given.pop("connection_class", None) is SSLConnection
    sentinels = Sentinel(  # type: ignore[no-untyped-call]  # redis-py's
        [_address(host) for host in hosts.split(",")],
        sentinel_kwargs={
            "socket_timeout": timeout_s,
            "socket_connect_timeout": timeout_s,
            "retry": Retry(NoBackoff(), 0),  # the next Sentinel is asked instead
            "ssl": has_tls,
            **tls,
            **login,
        },
    )
    connection = SentinelManagedSSLConnection if has_tls else SentinelManagedConnection
    given["connection_class"] = failing_at_write(connection)
    return PrimaryPool(  # type: ignore[no-untyped-call]
        service, sentinels, max_connections=connections_max, timeout=timeout_s, **given
    )


def _address(host: str) -> tuple[str, int]:
    """Return host and port of one Sentinel.

    Raises:
        ValueError: malformed.
    """
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ValueError("the address of Sentinels begins with theirs, HOST:PORT,HOST:PORT")
    return parts.hostname, parts.port or PORT
