"""Messages of a WebSocket server; what it sends while there is no connection is lost."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidProxy, InvalidURI
from websockets.sync.client import ClientConnection, connect
from websockets.uri import parse_uri

from tidegate.pipeline.definitions.toml import TomlTable, place_of
from tidegate.pipeline.errors import DefinitionInvalid, EndpointRefused, EndpointUnavailable
from tidegate.pipeline.ingest.connector import (
    BYTES_MAX,
    RECORDS_MAX,
    SourceBatch,
    SourceRecord,
    Through,
)

ADDRESS = re.compile(r"wss?://[^\s]+")
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
CONNECT_SECONDS_MAX = 10.0
PONG_SECONDS_MAX = 120.0  # longer than the gateway is waited for, when nothing is read
CLOSE_SECONDS_MAX = 1.0


@dataclass(frozen=True, slots=True)
class WebSocketSource:
    """The table `source` of kind websocket; `subscribe` are texts that are sent first."""

    address: str
    subscribe: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    kind: ClassVar[str] = "websocket"
    separator: ClassVar[str] = "/"

    @property
    def label(self) -> str:
        """The address without user, password and query, where tokens are."""
        return f"websocket {urlsplit(self.address).scheme}://{place_of(self.address)}"

    def connector(self, name: str) -> WebSocketConnector:
        """Return a connector that is not connected yet."""
        return WebSocketConnector(self)


def read_source(table: TomlTable, folder: Path) -> WebSocketSource:
    """Read the table."""
    named = "an address such as wss://feed.example/prices"
    refuses = (InvalidURI, ValueError)
    address = table.secret("address", ADDRESS, named, parse_uri, refuses)
    expected = 'texts, such as [\'{"op":"subscribe"}\']'
    return WebSocketSource(
        address=address,
        subscribe=tuple(table.texts("subscribe", expected)) if table.has("subscribe") else (),
        headers=_headers(table),
    )


def _headers(table: TomlTable) -> tuple[tuple[str, str], ...]:
    headers = table.raw("headers")
    if headers is None:
        return ()
    # Do not show the value: it may be a token.
    if not isinstance(headers, dict) or not all(isinstance(it, str) for it in headers.values()):
        expected = 'texts, such as {Authorization = "Bearer …"}'
        raise DefinitionInvalid(f"{table.where('headers')}: expected {expected}")
    return tuple(headers.items())


class WebSocketConnector:
    """Reads messages as they arrive (a `Connector`); they have no numbers."""

    def __init__(self, source: WebSocketSource) -> None:
        self._source = source
        self._connection: ClientConnection | None = None
        self._opened = ExitStack()

    def open(self, through: Through) -> None:
        """Connect, and send what subscribes.

        Raises:
            EndpointUnavailable: the server does not answer.
            EndpointRefused: it refuses the connection.
        """
        source = self._source
        try:
            self._connection = self._opened.enter_context(
                connect(
                    source.address,
                    additional_headers=dict(source.headers),
                    open_timeout=CONNECT_SECONDS_MAX,
                    ping_timeout=PONG_SECONDS_MAX,
                    close_timeout=CLOSE_SECONDS_MAX,
                    max_size=MESSAGE_BYTES_MAX,
                )
            )
            for text in source.subscribe:
                self._connection.send(text)
        except (InvalidProxy, InvalidURI) as error:  # whose texts have addresses with passwords
            raise EndpointRefused(f"cannot reach {source.label}: {error.msg}") from None
        except InvalidHandshake as error:
            raise EndpointRefused(f"{source.label} refuses the connection: {error}") from error
        except (OSError, ConnectionClosed) as error:
            raise EndpointUnavailable(f"cannot reach {source.label}: {error}") from error

    def read(self, seconds: float) -> SourceBatch | None:
        """Return what has arrived, once there is something.

        Raises:
            EndpointUnavailable: the connection is lost.
        """
        records: list[SourceRecord] = []
        size, wait_s = 0, seconds
        while len(records) < RECORDS_MAX and size < BYTES_MAX:
            try:
                payload = self._next(wait_s)
            except EndpointUnavailable:
                if not records:
                    raise
                break  # what came before the end counts; the next call raises it again
            if payload is None:
                break
            records.append(SourceRecord(payload, None, ""))
            size += len(payload)
            wait_s = 0.0
        return SourceBatch(records) if records else None

    def acknowledge(self, batch: SourceBatch) -> None:
        """Do nothing: a WebSocket has no acknowledgments."""

    def close(self) -> None:
        """Close the connection."""
        self._opened.close()

    def _next(self, seconds: float) -> bytes | None:
        assert self._connection is not None, "it is open"
        try:
            received = self._connection.recv(seconds)
        except TimeoutError:
            return None
        except ConnectionClosed as error:
            raise EndpointUnavailable(f"{self._source.label} has ended: {error}") from error
        return received.encode() if isinstance(received, str) else received
