"""Ingest: a request's body becomes numbered messages, all of them or none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.catalog import Entry
from app.driver import Driver
from app.problems import Problem
from app.settings import Settings
from app.store import Appended, Producer, Store, TopicRecord
from app.topic_document import SPARK, TopicDocument
from conflation.frame import Frame
from keys.errors import KeysError
from keys.jsontext import check_json, one_line

PIPELINE_PREFIX = "tidegate.pipeline."
CHECKED_BYTES_AT_ONCE = 16 << 10
JSON_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Message:
    """A checked message: its JSON text on one line, and its SOW key ("" on a plain topic)."""

    payload: bytes
    record_key: str


class Ingest:
    """Checks messages, has the store number them, hands them to the driver in that order."""

    def __init__(self, store: Store, driver: Driver, settings: Settings) -> None:
        self._store = store
        self._driver = driver
        self._settings = settings

    async def check(self, entry: Entry, body: bytes, *, lined: bool) -> list[Message]:
        """Check every message of a request; a large one leaves the loop room to breathe.

        Args:
            entry: the topic.
            body: one JSON text, or with `lined` one a line, blank lines passed over.
            lined: whether it is NDJSON, and a problem names the line.

        Raises:
            Problem: message-invalid, message-too-large, key-missing or key-invalid.
        """
        messages: list[Message] = []
        for first_line, texts in _pieces(body) if lined else [(1, [body])]:
            for number, text in enumerate(texts, first_line):
                if not lined or text.strip(JSON_SPACE):
                    messages.append(self._checked(entry, text, number if lined else None))
            if len(messages) > self._settings.request_messages_max:
                limit = self._settings.request_messages_max
                raise Problem("message-too-large", f"A request has at most {limit} messages.")
            await asyncio.sleep(0)
        if not messages:
            raise Problem("message-invalid", "The request holds no message.")
        return messages

    async def check_plain(self, body: bytes, *, lined: bool) -> None:
        """Check a request for a topic that is still to be made: a plain one."""
        record = TopicRecord("", TopicDocument(), "")
        await self.check(Entry(record, None), body, lined=lined)

    async def publish(
        self, entry: Entry, messages: Sequence[Message], producer: Producer | None
    ) -> Appended:
        """Store and deliver checked messages in one order for store and engine.

        Raises:
            Problem: topic-read-only, topic-unknown if it was deleted meanwhile, limit-reached.
        """
        self._check_filler(entry, producer)
        name = entry.record.name
        async with entry.writing:
            topic = self._driver.engine.topic(name)
            if topic.epoch != entry.record.epoch:
                raise Problem("topic-unknown", "The topic was deleted meanwhile.")
            self._check_room(entry, messages)
            payloads = [message.payload for message in messages]
            appended = await self._store.append(name, payloads, producer)
            if not appended.duplicate:
                now_ms = time.time_ns() // 1_000_000
                frames = [
                    Frame(offset, message.payload, message.record_key, now_ms)
                    for offset, message in enumerate(messages, start=appended.first)
                ]
                await self._driver.publish(name, frames)
        return appended

    def _checked(self, entry: Entry, text: bytes, line: int | None) -> Message:
        if len(text) > self._settings.message_bytes_max:
            limit = self._settings.message_bytes_max
            raise Problem("message-too-large", f"A message has at most {limit} bytes.", line=line)
        try:
            check_json(text)
            payload = one_line(text)
            return Message(payload, entry.key_of(payload) if entry.key_of else "")
        except KeysError as error:
            raise Problem(
                error.code, f"{error.detail}.", line=line, position=error.position
            ) from None

    def _check_filler(self, entry: Entry, producer: Producer | None) -> None:
        source = entry.document.source
        if source is None:
            return
        filler = producer is not None and producer.name.startswith(PIPELINE_PREFIX)
        if source.engine != SPARK or not filler:
            raise Problem("topic-read-only", "The topic is filled from another; publish there.")

    def _check_room(self, entry: Entry, messages: Sequence[Message]) -> None:
        sow = self._driver.engine.topic(entry.record.name).sow
        keys_max = self._settings.topic_keys_max
        if sow is None or len(sow.board) + len(messages) <= keys_max:
            return
        new = {m.record_key for m in messages if sow.board.get(m.record_key) is None}
        if len(sow.board) + len(new) > keys_max:
            raise Problem(
                "limit-reached", f"A topic has at most {keys_max} keys.",
                headers={"Retry-After": "60"},
            )  # fmt: skip


def _pieces(body: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Lines in pieces of a few KiB, each with the number of its first line."""
    start, line = 0, 1
    while start < len(body):
        end = body.find(b"\n", start + CHECKED_BYTES_AT_ONCE)
        end = len(body) if end < 0 else end
        piece = body[start:end]
        yield line, piece.split(b"\n") if piece.strip(JSON_SPACE) else []
        start, line = end + 1, line + piece.count(b"\n") + 1
