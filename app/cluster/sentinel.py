"""Connections to the primary that Sentinels name, by `redis+sentinel://HOST,HOST/SERVICE`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost

from tidegate.app.cluster.redis_compat import reporting_lost_writes

SCHEMES = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
PORT = 26_379
_SENTINEL_WORDS = {"sentinel_username": "username", "sentinel_password": "password"}


class PrimaryPool(SentinelConnectionPool, BlockingConnectionPool):
    """Connections to the current primary; whoever needs one above the limit waits for it.

    A connection asks the Sentinels when it is opened. Sentinels close all connections to a primary
    that they make a replica, so that clients ask again.
    """

    async def get_master_address(self) -> Any:
        """Return host and port of the primary, as the Sentinels say.

        Raises:
            ConnectionError: of redis-py, in a few words.
        """
        try:
            return await super().get_master_address()  # type: ignore[no-untyped-call]  # redis-py
        except MasterNotFoundError:
            raise ConnectionLost(f"no Sentinel names a primary of {self.service_name}") from None

    async def aclose(self) -> None:
        """Close all connections, those to the Sentinels too."""
        await super().aclose()
        await self.sentinel_manager.aclose()


def is_sentinel_url(url: str) -> bool:
    """Return whether an address names Sentinels, and not a server itself."""
    return url.partition("://")[0].lower() in SCHEMES


def primary_pool(url: str, options: Mapping[str, Any]) -> PrimaryPool:
    """Return the pool of an address, without connecting.

    Args:
        url: `redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/SERVICE/DB`, `rediss+sentinel://`
            with TLS to the Sentinels and the primary. User, password and the query are those of
            `redis://` and for the primary; `sentinel_username` and `sentinel_password` are for the
            Sentinels.
        options: of the pool and its connections, over those of the address; `timeout` among them
            is how long a caller waits at the limit of the pool, and for a Sentinel.

    Raises:
        ValueError: malformed.
        TypeError: redis-py does not know a word of the query.
    """
    # Not `urlsplit`, which takes brackets for one address of IPv6 and refuses a list.
    scheme, _, rest = url.partition("://")
    place, _, words = rest.partition("?")
    servers, _, path = place.partition("/")
    credentials, at, hosts = servers.rpartition("@")
    if "@" in credentials:
        raise ValueError("user and password stand once, before the first Sentinel, with %40 for @")
    service, _, database = unquote(path).partition("/")
    if not service:
        raise ValueError("the address of Sentinels ends with the name of the service, /mymaster")
    if database and not database.isdecimal():
        raise ValueError("what follows the name of the service is the number of a database")
    query = dict(parse_qsl(words, keep_blank_values=True))
    login = {word: query.pop(name) for name, word in _SENTINEL_WORDS.items() if name in query}
    for name in query:
        if not name.startswith("ssl_"):
            raise ValueError(
                f"the query has no {name[:40]}, but {', '.join(_SENTINEL_WORDS)}, ssl_…"
            )
    url_of_primary = urlunsplit(
        (SCHEMES[scheme.lower()], f"{credentials}{at}primary", database, urlencode(query), "")
    )
    given = {**parse_url(url_of_primary), **options}
    del given["host"]
    tls = {name: value for name, value in given.items() if name.startswith("ssl_")}
    has_tls = given.pop("connection_class", None) is SSLConnection
    sentinels = Sentinel(  # type: ignore[no-untyped-call]  # redis-py's
        [_address(host) for host in hosts.split(",")],
        sentinel_kwargs={
            "socket_timeout": options["timeout"],
            "socket_connect_timeout": options["timeout"],
            "retry": Retry(NoBackoff(), 0),  # the next Sentinel is asked instead
            "ssl": has_tls,
            **tls,
            **login,
        },
    )
    connection = SentinelManagedSSLConnection if has_tls else SentinelManagedConnection
    given["connection_class"] = reporting_lost_writes(connection)
    return PrimaryPool(service, sentinels, **given)  # type: ignore[no-untyped-call]  # redis-py


def _address(host: str) -> tuple[str, int]:
    """Return host and port of one Sentinel.

    Raises:
        ValueError: malformed.
    """
    parts = urlsplit(f"//{host}")
    if not parts.hostname or any(map(str.isspace, host)) or parts.port == 0:
        raise ValueError("the address of Sentinels begins with theirs, HOST:PORT,HOST:PORT")
    return parts.hostname, parts.port or PORT
