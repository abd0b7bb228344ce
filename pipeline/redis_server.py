"""A Redis or Valkey, asked with patience: the one place of the pipeline that knows redis-py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self
from urllib.parse import urlsplit

from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.exceptions import (
    AuthenticationError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry as RedisRetry

from tidegate.clients.retry import Retry
from tidegate.pipeline.connection import PATIENT
from tidegate.pipeline.definitions.toml import hosts_of
from tidegate.pipeline.errors import DefinitionInvalid, GatewayRefused, GatewayUnreachable

# As the client of a gateway has them: both sources show an outage after the same time.
ANSWER_SECONDS_MAX = 60.0
CONNECT_SECONDS_MAX = 5.0


class RedisServer:
    """One address, and a connection that ends with the `with` block. Answers are bytes (RESP2).

    A command is sent again when Redis does not answer, so send only commands that may be
    repeated.
    """

    def __init__(self, address: str, retry: Retry = PATIENT) -> None:
        """Connect to nothing yet.

        Args:
            address: `redis://`, `rediss://` or `unix://`.
            retry: how it is asked again.

        Raises:
            DefinitionInvalid: not such an address.
        """
        self.label = _label(address)
        self._retry = retry
        self._redis = _client(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()

    def ask(self, *words: object) -> Any:
        """Send a command; return the answer in redis-py's shape for it.

        Raises:
            GatewayRefused: Redis refused the command.
            GatewayUnreachable: Redis does not answer.
        """
        [answer] = self.ask_together(words)
        return answer

    def ask_together(self, *commands: Sequence[object]) -> list[Any]:
        """Send commands in one transaction, so that all see one state of the server."""
        return self._retry.call(lambda: self._asked(commands), _may_be_over_soon)

    def _asked(self, commands: Sequence[Sequence[object]]) -> list[Any]:
        try:
            # MULTI and EXEC only around several commands: one command is a transaction anyway.
            with self._redis.pipeline(transaction=len(commands) > 1) as made:
                step: Any = made  # its own types leave out what RESP2 settles
                for words in commands:
                    step.execute_command(*words)
                return list(step.execute())
        except (ResponseError, AuthenticationError) as error:
            raise GatewayRefused(f"{self.label} refused: {error}") from error
        except (RedisError, OSError) as error:
            said = str(error) or type(error).__name__
            raise GatewayUnreachable(f"cannot reach {self.label}: {said}") from error


def _may_be_over_soon(error: Exception) -> bool:
    """Return whether a retry may help: no answer, or a replica about to become the primary."""
    return isinstance(error, GatewayUnreachable) or isinstance(error.__cause__, ReadOnlyError)


def _client(address: str) -> Redis:
    try:
        given: dict[str, Any] = {**parse_url(address)}  # type: ignore[no-untyped-call]  # redis-py's
    except ValueError:  # what it says may hold a part of a password that is not escaped
        raise DefinitionInvalid(
            "not the address of a Redis, such as redis://USER:PASSWORD@127.0.0.1:6379/0, in which "
            "a password has %2F for / and %23 for #"
        ) from None
    given |= {
        # RESP2: the answers of XRANGE and XINFO have one shape in all versions of the server.
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": ANSWER_SECONDS_MAX,
        # Our own retry asks again, with one sentence; redis-py's would multiply it.
        "retry": RedisRetry(NoBackoff(), 0),
        "health_check_interval": 0,
    }
    if "path" not in given:
        given["socket_connect_timeout"] = CONNECT_SECONDS_MAX
    pool = ConnectionPool(**given)
    try:
        pool.make_connection()  # it connects to nothing yet
    except TypeError as error:  # it ends with the name of an option that no connection has
        option = str(error).rpartition(" ")[2]
        raise DefinitionInvalid(f"the address of a Redis has no option {option}") from None
    return Redis(connection_pool=pool)


def _label(address: str) -> str:
    """Return the address without user and password."""
    parts = urlsplit(address)
    where = parts.path if parts.scheme == "unix" else hosts_of(address)
    return f"the Redis at {where}"
