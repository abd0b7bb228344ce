"""A NATS server, as definition files name it, and a client of it."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.errors import Error
from nats.js.errors import NotFoundError

from tidegate.pipeline.definitions.toml import TomlTable, hosts_of, read_file
from tidegate.pipeline.errors import EndpointRefused, EndpointUnavailable

ADDRESS = re.compile(r"(nats|tls)://([^\s/@]*@)?[^\s/@]+/?")
STREAM = re.compile(r"[^\s.*>/\\]{1,255}")
ANSWER_SECONDS_MAX = 10.0
CLOSE_SECONDS_MAX = 2.0

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class NatsServer:
    """The fields of a table that name a server, and the stream that is read or written.

    `credentials` is a file with a user's JWT and seed, `ca` one of authorities for `tls://`, None
    for those of the system.
    """

    address: str
    stream: str
    credentials: Path | None
    ca: Path | None

    @classmethod
    def read(cls, table: TomlTable, folder: Path) -> NatsServer:
        """Take the fields from a table; relative paths are below `folder`."""
        expected = "an address such as nats://USER:PASSWORD@127.0.0.1:4222"
        address = table.secret("address", ADDRESS, expected)
        try:
            _ = urlsplit(address).port
        except ValueError:
            raise table.wrong("address", expected, "a port that is none") from None
        return cls(
            address=address,
            stream=table.checked("stream", STREAM.fullmatch, "the name of a stream"),
            credentials=read_file(table, "credentials", folder),
            ca=read_file(table, "ca", folder),
        )

    @property
    def host(self) -> str:
        """The server without user and password."""
        return hosts_of(self.address)


class NatsConnection:
    """A client that does not reconnect by itself; `client` belongs to the caller's event loop."""

    def __init__(self, server: NatsServer, name: str) -> None:
        self.client = Client()
        self._server = server
        self._name = name
        self._failure: Exception | None = None
        self._has_begun = False

    async def connect(self) -> None:
        """Connect.

        Raises:
            EndpointUnavailable: the server does not answer.
            EndpointRefused: it refuses the client.
        """
        await self.within(self._connect())

    async def close(self) -> None:
        """Close the connection, if there is one: the client fails if it was never connected.

        It first sends what it has, for which a server that hangs is not waited for.
        """
        if self._has_begun:
            with suppress(TimeoutError):
                await _in_time(self.client.close(), CLOSE_SECONDS_MAX)

    async def within(self, asked: Coroutine[Any, Any, Answer]) -> Answer:
        """Wait for an answer for a bounded time; raise what the client says as a sentence.

        Raises:
            EndpointUnavailable: there is none.
            EndpointRefused: the server refuses, or has no such stream.
        """
        host = self._server.host
        try:
            return await _in_time(asked, ANSWER_SECONDS_MAX)
        except NotFoundError:
            raise EndpointRefused(f"NATS at {host} has no stream {self._server.stream}") from None
        except (Error, OSError, TimeoutError) as error:
            cause = self._failure or error
            said = getattr(cause, "strerror", None) or str(cause).removeprefix("nats: ")
            said = said or type(cause).__name__
            # What a server refuses, it says in words; those name no password.
            if "uthorization" in said or "uthentication" in said or "ermissions" in said:
                raise EndpointRefused(f"NATS at {host} refuses the client: {said}") from None
            raise EndpointUnavailable(f"NATS at {host}: {said}") from None

    async def _connect(self) -> None:
        server = self._server
        options: dict[str, Any] = {"user_credentials": str(server.credentials or "") or None}
        if server.address.startswith("tls:"):
            options["tls"] = ssl.create_default_context(cafile=server.ca)

        async def keep(error: Exception) -> None:
            self._failure = error

        self._has_begun = True
        await self.client.connect(
            server.address,
            error_cb=keep,
            name=self._name,
            allow_reconnect=False,
            reconnect_time_wait=0,
            max_reconnect_attempts=1,
            **options,
        )


async def _in_time(asked: Coroutine[Any, Any, Answer], seconds: float) -> Answer:
    """Wait for so many seconds.

    `asyncio.wait_for` would wait until the cancelled call has ended, and the client continues after
    a cancellation while the server reads nothing.

    Raises:
        TimeoutError: it takes longer.
    """
    task = asyncio.create_task(asked)
    done, _ = await asyncio.wait([task], timeout=seconds)
    if done:
        return task.result()
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    task.cancel()
    raise TimeoutError
