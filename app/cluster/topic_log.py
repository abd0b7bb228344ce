"""A topic in Redis: its keys, the arguments of an append, and loading its content."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from tidegate.app.cluster import scripts
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.membership import fence_key
from tidegate.app.stores.items import Item, Message, pack, to_frames, unpack
from tidegate.app.stores.store import Bounds, Publication, TopicRecord
from tidegate.conflation.definition import History
from tidegate.conflation.frame import Frame, RestoredTopic, Tombstone
from tidegate.keys.text.bookmark import continued

logger = logging.getLogger("tidegate.bus")

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[bytes, bool]).decode


def newest_items(items: Sequence[Item]) -> dict[str, tuple[int, Item]]:
    """Return each record's newest item in a request, with the item's index."""
    return {item.record_key: (index, item) for index, item in enumerate(items)}


def pack_record(message: Message) -> bytes:
    """Encode a record without its offset and time, which the script prepends (`7 17574000 …`)."""
    return _pack((message.payload, message.exempt))


def record_frame(record_key: str, value: bytes) -> Frame:
    """Decode a record into a frame."""
    offset, timestamp_ms, rest = value.split(b" ", 2)
    payload, exempt = _unpack(rest)
    return Frame(int(offset), payload, record_key, int(timestamp_ms), exempt)


ENTRIES_AT_ONCE = 200
RECORDS_AT_ONCE = 2_000
FOLLOW_S = 0.5
"""How often the stream is read while records are scanned."""
LOADS_MAX = 5
"""A load is repeated while others trim what it has not read yet, as behind a slow connection."""
PARTS: Final = ("state", "stream", "sow", "producers", "retries", "refused")


def topic_keys(connection: BusConnection, topic: str) -> list[str]:
    """Return a topic's keys in the order that the scripts expect."""
    return [connection.topic_key(topic, part) for part in PARTS]


@dataclass(frozen=True, slots=True)
class TopicLog:
    """A topic's data in one epoch; `history` limits what its stream keeps.

    `definition` is the digest of the definition by which appends were checked.
    """

    connection: BusConnection
    record: TopicRecord
    definition: str
    history: History
    limits: Bounds

    @property
    def keys(self) -> list[str]:
        """Return the topic's keys in the order that the scripts expect."""
        return topic_keys(self.connection, self.record.name)

    @property
    def stream(self) -> str:
        """Return the key of the stream of requests."""
        return self.connection.topic_key(self.record.name, "stream")

    def stage_key(self, stage: str) -> str:
        """Return the key of a stage. The key contains the epoch, so a new epoch has no stages."""
        return self.connection.topic_key(self.record.name, f"{self.record.epoch}:stage:{stage}")

    @property
    def stages_key(self) -> str:
        """Return the key of the stages' sizes and totals."""
        return self.connection.topic_key(self.record.name, f"{self.record.epoch}:staged")

    def append_keys(self, publication: Publication) -> list[str]:
        """Return the keys of an append."""
        retry = publication.retry
        retry_key = self.connection.topic_key(
            self.record.name, f"retry:{'' if retry is None else retry.name}"
        )
        fence = fence_key(self.connection)
        stages = map(self.stage_key, publication.stages)
        return [*self.keys, retry_key, self.stages_key, fence, *stages]

    def append_arguments(self, publication: Publication, seen: int) -> list[bytes]:
        """Return the arguments of an append in the order that the script expects."""
        items, producer, retry = publication.items, publication.producer, publication.retry
        payload_bytes = sum(len(item.payload) for item in items if isinstance(item, Message))
        arguments: list[object] = [
            self.record.epoch, seen,
            publication.timestamp_ms, len(items), payload_bytes, pack(items),
            *((producer.name, producer.run, producer.sequence) if producer else ("", 0, 0)),
            "" if retry is None else retry.digest.hex(),
            publication.expected_head, publication.fence,
            self.history.messages_max, self.history.bytes_max, self.history.age_ms,
            self.limits.retry_keys_max, self.limits.producers_max, self.definition,
            ",".join(publication.stages.values()),
            *(publication.fill or ("", "")),
            *self._records(publication),
        ]  # fmt: skip
        return [_encode(argument) for argument in arguments]

    async def load(self) -> RestoredTopic | None:
        """Load the topic, consistent at one offset although others write meanwhile.

        Return None if they trim the stream each time before it is read.
        """
        for _ in range(LOADS_MAX):
            # In this order: what is written while the records are scanned is in the stream.
            head = await self.head()
            records, followed = await self._scan_records(head)
            frames = _after_last_gap(await self.frames_after(0))
            if frames and frames[-1].offset < head and await self.head() == head:
                self.connection.report_foreign(self.stream, "its last entries are missing")
                frames = []
            through = frames[-1].offset if frames else head
            dropped = frames[0].offset - 1 if frames else head
            if (through >= head and dropped <= followed) or self.stream in self.connection.foreign:
                break
        else:
            logger.warning("%s is trimmed faster than it can be read", self.stream)
            return None
        frames = _completed(frames, is_whole=not dropped)
        # The records were scanned before the stream was read, so the stream may have newer ones.
        if self.record.document.retains:
            _take_newer(records, frames)
        known = (row for row in records.values() if row.offset > dropped or not row.removed)
        rows = sorted(known, key=lambda row: row.offset)
        exempt = max((frame.offset for frame in frames if frame.exempt), default=dropped)
        return RestoredTopic(
            through, rows, horizon=dropped, exempt_through=max(exempt, dropped),
            journal=frames, dropped_through=dropped, former=await self.former(),
        )  # fmt: skip

    async def former(self) -> dict[str, int]:
        """Return the epochs that the topic's epoch continues, with the last offset of both."""
        former = await self.connection.execute("HGET", self.keys[0], "former")
        return continued((former or b"").decode())

    async def is_current(self) -> bool:
        """Return whether the topic is in this epoch, in the present life of the server."""
        epoch, _ = await self.connection.run_script(scripts.HEAD, self.keys[:1], [])
        return bool((epoch or b"").decode() == self.record.epoch)

    async def head(self) -> int:
        """Return the last offset."""
        return await read_head(self.connection, self.record.name)

    async def frames_after(self, offset: int) -> list[Frame]:
        """Return all frames of the stream after an offset."""
        self.connection.foreign.pop(self.stream, None)
        frames: list[Frame] = []
        while True:
            entries = await self.connection.read_stream(self.stream, offset, ENTRIES_AT_ONCE)
            for number, fields in entries:
                try:
                    frames += parse_entry(fields).frames
                except ForeignEntry as foreign:
                    self.connection.report_foreign(self.stream, f"entry {number}: {foreign}")
                offset = number
            if len(entries) < ENTRIES_AT_ONCE:
                return frames

    def _records(self, publication: Publication) -> list[object]:
        """Return a request's effect on records: the number of puts, the puts, the removed keys."""
        if not self.record.document.retains:
            return [0]
        puts: list[object] = []
        removed: list[object] = []
        # Only the newest item of a key changes its record; the script need not see the others.
        newest = newest_items(publication.items)
        for record_key, (index, item) in newest.items():
            if isinstance(item, Message):
                puts += record_key, index, pack_record(item)
            else:
                removed.append(record_key)
        return [len(puts) // 3, *puts, *removed]

    async def _scan_records(self, head: int) -> tuple[dict[str, Frame], int]:
        """Return the records, and the offset up to which they miss nothing that follows `head`.

        What is written meanwhile is read from the stream now and then: the scan may take longer
        than the stream keeps a message.
        """
        records, through = dict[str, Frame](), head
        if not self.record.document.retains:
            return records, through
        # A scan may return a record twice or leave out one that changes meanwhile; the stream has
        # those.
        sow, clock_s = self.keys[2], asyncio.get_running_loop().time
        self.connection.foreign.pop(sow, None)
        follow_at_s = clock_s() + FOLLOW_S
        async for name, value in self.connection.writer.hscan_iter(sow, count=RECORDS_AT_ONCE):
            try:
                _take_newer(records, [record_frame(name.decode(), value)])
            except (ValueError, msgspec.MsgspecError):
                self.connection.report_foreign(sow, "a record cannot be parsed")
            if clock_s() >= follow_at_s:
                for frame in await self.frames_after(through):
                    if frame.offset != through + 1:
                        break  # some are trimmed already: the stream is not enough
                    _take_newer(records, [frame])
                    through = frame.offset
                follow_at_s = clock_s() + FOLLOW_S
        return records, through


def _take_newer(records: dict[str, Frame], frames: Iterable[Frame]) -> None:
    """Put frames in the place of older ones of their keys."""
    for frame in frames:
        known = records.get(frame.key)
        if known is None or known.offset < frame.offset:
            records[frame.key] = frame


async def read_head(connection: BusConnection, topic: str) -> int:
    """Return a topic's last offset."""
    found = await connection.execute("HGET", connection.topic_key(topic, "state"), "head")
    return int(found or 0)


def _after_last_gap(frames: list[Frame]) -> list[Frame]:
    """Return the frames that nothing is missing between: others trim a stream while it is read."""
    start = 0
    for at, (before, frame) in enumerate(pairwise(frames), 1):
        if frame.offset != before.offset + 1:
            start = at
    return frames[start:]


def _completed(frames: Sequence[Frame], *, is_whole: bool) -> list[Frame]:
    """Return frames whose removals have the value that they take away.

    A gateway that was behind has written a removal with the value that it knew. Where the journal
    has nothing of the record before, only that is known, unless the journal `is_whole`.
    """
    newest: dict[str, bytes] = {}
    found: list[Frame] = []
    for frame in frames:
        if isinstance(frame, Tombstone):
            payload = newest.get(frame.key, b"" if is_whole else frame.payload)
            frame = msgspec.structs.replace(frame, payload=payload)
        newest[frame.key] = b"" if frame.removed else frame.payload
        found.append(frame)
    return found


class ForeignEntry(Exception):
    """A stream entry that no gateway wrote."""


class LogEntry(NamedTuple):
    """One publication in the log: its epoch, first offset and frames."""

    epoch: str
    first: int
    frames: list[Frame]


def parse_entry(fields: dict[bytes, bytes]) -> LogEntry:
    """Parse a stream entry.

    Raises:
        ForeignEntry: the entry is not a publication.
    """
    try:
        epoch, first = fields[b"e"].decode(), int(fields[b"f"])
        frames = to_frames(unpack(fields[b"i"]), first, int(fields[b"t"]))
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise ForeignEntry(f"the entry is not a publication ({type(error).__name__})") from None
    return LogEntry(epoch, first, frames)


def _encode(argument: object) -> bytes:
    if isinstance(argument, bytes):
        return argument
    return b"" if argument is None else str(argument).encode()
