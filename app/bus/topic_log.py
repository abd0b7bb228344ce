"""A topic in Redis: what one append asks of the script, and what is kept of the topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.bus import packing
from app.bus.connection import BusConnection
from app.stores.bounds import Bounds
from app.stores.packing import frames_of, pack, unpack
from app.stores.store import Kept, Message, Publication, TopicRecord
from conflation.frame import Frame
from conflation.log import History

ENTRIES_AT_ONCE = 200
RECORDS_AT_ONCE = 2_000
PARTS: Final = ("state", "stream", "sow", "producers", "retries")


@dataclass(frozen=True, slots=True)
class TopicLog:
    """Where a topic is, in this epoch; `history` is what its stream keeps."""

    connection: BusConnection
    record: TopicRecord
    history: History
    bounds: Bounds

    @property
    def keys(self) -> list[str]:
        """All that makes the topic, in the order of the scripts."""
        return [self.connection.topic_key(self.record.name, part) for part in PARTS]

    @property
    def stream(self) -> str:
        """The stream of its requests."""
        return self.connection.topic_key(self.record.name, "stream")

    def aside(self, stage: str) -> str:
        """The key of a stage, which is forgotten with its time or with the epoch."""
        return self.connection.topic_key(self.record.name, f"{self.record.epoch}:stage:{stage}")

    @property
    def staged(self) -> str:
        """The key of what is known of its stages: how large each is, and all of them."""
        return self.connection.topic_key(self.record.name, f"{self.record.epoch}:staged")

    def append_keys(self, publication: Publication) -> list[str]:
        """The keys of an append."""
        retry = publication.retry
        asked = self.connection.topic_key(
            self.record.name, f"retry:{'' if retry is None else retry.name}"
        )
        return [*self.keys, asked, self.staged, *map(self.aside, publication.stages)]

    def append_words(self, publication: Publication, *, syncs: bool, seen: int) -> list[bytes]:
        """The arguments of an append, in the order of the script."""
        items, producer, retry = publication.items, publication.producer, publication.retry
        payload_bytes = sum(len(item.payload) for item in items if isinstance(item, Message))
        words: list[object] = [
            self.record.epoch, int(syncs), seen,
            publication.timestamp_ms, len(items), payload_bytes, pack(items),
            *((producer.name, producer.run, producer.sequence) if producer else ("", 0, 0)),
            "" if retry is None else retry.digest.hex(),
            publication.expected_head, publication.fence,
            self.history.messages_max, self.history.bytes_max, self.history.age_ms,
            self.bounds.retry_keys_max, self.bounds.producers_max,
            *self._records(publication),
        ]  # fmt: skip
        return [_word(word) for word in words]

    async def kept(self) -> Kept:
        """What is kept of it, as of one moment while others write."""
        while True:
            head = await self.head()
            records = await self._scanned()
            frames = await self.frames_after(0)
            through = frames[-1].offset if frames else head
            dropped = frames[0].offset - 1 if frames else head
            if through >= head and dropped <= head:
                break  # else it was trimmed faster than it was read
        for frame in frames:
            known = records.get(frame.key)
            if self.record.document.retains and (known is None or known.offset < frame.offset):
                records[frame.key] = frame
        rows = sorted(records.values(), key=lambda row: row.offset)
        exempt = max((frame.offset for frame in frames if frame.exempt), default=dropped)
        return Kept(
            through, rows, horizon=dropped, exempt_through=max(exempt, dropped),
            journal=frames, dropped_through=dropped,
        )  # fmt: skip

    async def head(self) -> int:
        """The last offset that was given."""
        found = await self.connection.ask("HGET", self.keys[0], "head")
        return int(found or 0)

    async def frames_after(self, offset: int) -> list[Frame]:
        """Everything that the stream has after an offset."""
        frames: list[Frame] = []
        while True:
            through = frames[-1].offset if frames else offset
            entries = await self.connection.entries(self.stream, through, ENTRIES_AT_ONCE)
            for _, fields in entries:
                frames += entry_frames(fields)
            if len(entries) < ENTRIES_AT_ONCE:
                return frames

    def _records(self, publication: Publication) -> list[object]:
        """What becomes of records: how many are put, each of them, then those that leave."""
        if not self.record.document.retains:
            return [0]
        put: list[object] = []
        gone: list[object] = []
        newest = packing.newest_of_each(publication.items)
        for record_key, (index, item) in newest.items():
            if isinstance(item, Message):
                put += record_key, index, packing.pack_record(item, publication.timestamp_ms)
            else:
                gone.append(record_key)
        return [len(put) // 3, *put, *gone]

    async def _scanned(self) -> dict[str, Frame]:
        if not self.record.document.retains:
            return {}
        records: dict[str, Frame] = {}
        scan = self.connection.writer.hscan_iter(self.keys[2], count=RECORDS_AT_ONCE)
        async for name, value in scan:
            record_key = name.decode()
            records[record_key] = packing.record_frame(record_key, value)
        return records


def entry_frames(fields: dict[bytes, bytes]) -> list[Frame]:
    """The frames of a stream's entry."""
    return frames_of(unpack(fields[b"i"]), int(fields[b"f"]), int(fields[b"t"]))


def _word(word: object) -> bytes:
    if isinstance(word, bytes):
        return word
    return b"" if word is None else str(word).encode()
