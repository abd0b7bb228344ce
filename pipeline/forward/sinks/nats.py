"""Subjects of a NATS JetStream stream: a message for each row."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
from nats.aio.msg import Msg
from nats.errors import MaxPayloadError

from tidegate.keys.jsontext import NULL
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import EndpointRefused, EndpointUnavailable
from tidegate.pipeline.forward.sinks.shared import KEY_PART, filled, payload_of, read_is_whole
from tidegate.pipeline.forward.target import DELETE, RESET, Patience, Refusal, Row
from tidegate.pipeline.nats_server import NatsConnection, NatsServer

SUBJECT = re.compile(r"[^\s.*>{}]+(\.[^\s.*>{}]+)*", re.ASCII)
# The others have a meaning in subjects, but for %: so that no two keys are one subject.
_PLAIN = "".join(chr(at) for at in range(33, 127) if chr(at) not in ".*>{}%")
REMOVED = {"KV-Operation": "DEL"}
"""How key-value buckets mark a deleted key."""
IN_FLIGHT_MAX = 200
EXPECTED_STREAM = "Nats-Expected-Stream"
MESSAGE_ID = "Nats-Msg-Id"
"""A stream stores one message of an id within its `duplicate_window`."""
SUBJECT_BYTES_MAX = 4_000
"""By default a server takes lines of 4,096 bytes, which have the subject and the answer's."""
HEADER_BYTES = len("NATS/1.0\r\n\r\n")
FIELD_BYTES = len(": \r\n")
MESSAGE_TOO_LARGE = 10054
"""JetStream's code for a message above the stream's `max_msg_size`."""
BAD_REQUEST = 400
Answer = TypeVar("Answer")


class PublishError(msgspec.Struct):
    """Why JetStream has not stored a message."""

    code: int
    err_code: int = 0
    description: str = ""


class PublishAnswer(msgspec.Struct):
    """What JetStream answers for a message."""

    error: PublishError | None = None


NO_STREAM = PublishAnswer(PublishError(BAD_REQUEST, description="no stream has it"))
"""An answer without content is that of the server, where no stream takes the subject."""


@dataclass(frozen=True, slots=True)
class NatsSink:
    """The table `sink` of kind nats; `is_whole` if a payload is the envelope, else its value."""

    server: NatsServer
    subject: str
    is_whole: bool
    kind: ClassVar[str] = "nats"
    keeps_position: ClassVar[bool] = False
    knows_message_ids: ClassVar[bool] = True

    @property
    def label(self) -> str:
        """The server without user and password, the stream and the subject."""
        return f"nats {self.server.host} stream {self.server.stream} {self.subject}"

    def target(self, name: str, patience: Patience) -> NatsTarget:
        """Return a target that is not connected yet."""
        return NatsTarget(self, f"tidegate-forward-{name}")


def read_sink(table: TomlTable, folder: Path) -> NatsSink:
    """Read the table; relative paths are below `folder`."""
    server = NatsServer.read(table, folder)
    expected = 'a subject such as "prices.{key/0}", without * and >'
    return NatsSink(server, table.checked("subject", _is_subject, expected), read_is_whole(table))


def _is_subject(text: str) -> bool:
    return SUBJECT.fullmatch(KEY_PART.sub("part", text)) is not None


class NatsTarget:
    """Publishes rows under their message ids, and waits until the stream has each (a `Target`).

    The client runs in a thread of its own, so that it answers the server's pings while there is
    nothing to write.
    """

    def __init__(self, sink: NatsSink, client_name: str) -> None:
        self._sink = sink
        self._connection = NatsConnection(sink.server, client_name)
        self._loop = asyncio.new_event_loop()
        run = self._loop.run_forever
        self._thread = threading.Thread(target=run, name=client_name, daemon=True)
        self._thread.start()
        self._inbox = self._connection.client.new_inbox()
        self._asked = 0
        self._waiting: dict[str, asyncio.Future[PublishAnswer]] = {}

    def open(self) -> None:
        """Connect.

        Raises:
            EndpointUnavailable: the server does not answer.
            EndpointRefused: it refuses the client, or has no such stream.
        """
        self._run(self._connection.connect())
        self._run(self._connection.within(self._prepare()))

    def write(self, rows: Sequence[Row]) -> list[Refusal]:
        """Publish a message for each row, in order.

        Raises:
            EndpointUnavailable: the server does not answer.
            EndpointRefused: the stream does not take the subject.
        """
        refused: list[Refusal] = []
        for part in _parts(rows):
            refused += self._run(self._connection.within(self._publish(part)))
        return refused

    def close(self) -> None:
        """Close the connection."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, asked: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result()

    async def _end(self) -> None:
        await self._connection.close()
        for left in asyncio.all_tasks() - {asyncio.current_task()}:  # of a server that hangs
            left.cancel()
        await asyncio.sleep(0)

    async def _prepare(self) -> None:
        client = self._connection.client
        await client.jetstream().stream_info(self._sink.server.stream)
        await client.subscribe(f"{self._inbox}.*", cb=self._on_answer)

    async def _on_answer(self, message: Msg) -> None:
        waiting = self._waiting.pop(message.subject, None)
        if waiting is not None and not waiting.done():
            decode = msgspec.json.decode
            found = decode(message.data, type=PublishAnswer) if message.data else NO_STREAM
            waiting.set_result(found)

    async def _publish(self, rows: Sequence[Row]) -> list[Refusal]:
        sink = self._sink
        refused: list[Refusal] = []
        sent: list[tuple[Row, str]] = []
        answers: list[asyncio.Future[PublishAnswer]] = []
        for row in rows:
            if row.op == RESET:
                continue  # which subjects are to be removed is not known
            subject = subject_of(sink.subject, row)
            if subject is None:
                refused.append(Refusal(row, f"its key does not fill {sink.subject}"))
                continue
            try:
                answers.append(await self._ask(subject, row))
            except MaxPayloadError:
                refused.append(Refusal(row, "it is above the max_payload of the server"))
                continue
            sent.append((row, subject))
        for (row, subject), answer in zip(sent, await asyncio.gather(*answers), strict=True):
            error = answer.error
            if error is None:
                continue
            if error.err_code == MESSAGE_TOO_LARGE:
                refused.append(Refusal(row, f"the stream refuses it: {error.description}"))
                continue
            place = f"NATS at {sink.server.host}: stream {sink.server.stream}"
            if error.code == BAD_REQUEST:
                raise EndpointRefused(f"{place} does not take {subject}: {error.description}")
            raise EndpointUnavailable(f"{place}: {error.description}")
        return refused

    async def _ask(self, subject: str, row: Row) -> asyncio.Future[PublishAnswer]:
        """Send a row; the answer comes later, so that rows are in the order of the calls.

        The client's own `publish_async` never answers where JetStream refuses.

        Raises:
            MaxPayloadError: it is too large for the server, which would disconnect.
        """
        sink = self._sink
        headers = {EXPECTED_STREAM: sink.server.stream, MESSAGE_ID: row.message_id}
        payload = b""
        if row.op == DELETE:
            headers |= REMOVED
        else:
            payload = payload_of(row, sink.is_whole)
        client = self._connection.client
        # The client does not count the header, and the server does.
        fields = sum(len(name) + len(text) + FIELD_BYTES for name, text in headers.items())
        if HEADER_BYTES + fields + len(payload) > client.max_payload:
            raise MaxPayloadError
        self._asked += 1
        inbox = f"{self._inbox}.{self._asked}"
        waiting = self._waiting[inbox] = self._loop.create_future()
        await client.publish(subject, payload, reply=inbox, headers=headers)
        return waiting


def _parts(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield rows in parts that may be on their way at once; a key is in each of them once.

    The stream may refuse a row and take later ones, as when it is full for a moment. A row that is
    sent again after that would be behind newer values of its key.
    """
    part: list[Row] = []
    keys: set[bytes] = set()
    for row in rows:
        key = bytes(row.fields.get("key", NULL))
        if len(part) == IN_FLIGHT_MAX or key in keys:
            yield part
            part, keys = [], set()
        part.append(row)
        if key != NULL:
            keys.add(key)
    yield part


def subject_of(pattern: str, row: Row) -> str | None:
    """Return the subject of a row; None if its key has fewer parts than the pattern names.

    A part that is an empty text makes no subject either, nor does a key that is too long for one.
    """
    subject = filled(pattern, row, _PLAIN)
    if subject is None or len(subject.encode()) > SUBJECT_BYTES_MAX:
        return None
    return subject if SUBJECT.fullmatch(subject) else None
