"""Ingest: a request's body becomes numbered messages, all of them or none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.refusals import Refused, Unavailable
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.items import Item, Message, MessageBlock, Removal
from tidegate.app.stores.store import Appended, HeadMoved, Producer, Retry, TopicRecord
from tidegate.app.streams.driver import Driver
from tidegate.app.topics.bodies import Delta, Envelope, merged, read_envelope
from tidegate.app.topics.registry import CatalogTopic, check_filler, check_newest
from tidegate.app.topics.writer import Writer
from tidegate.conflation.definition import Kind
from tidegate.keys.errors import KeyInvalid, KeysError, Refusal
from tidegate.keys.jsontext import check_json, decoded, one_line

CHECKED_BYTES_AT_ONCE = 16 << 10
CHECKED_ITEMS_AT_ONCE = 200
COUNTED_AT_ONCE = 10_000
COMMIT_TRIES_MAX = 10
JSON_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class BodyForm:
    """The form of a publish request's body.

    `lined`: NDJSON, and a refusal names the line. `delta`: merge patches. `exempt`: messages that
    must never be conflated. `enveloped`: messages and removals in envelopes. `may_remove`: removals
    among them are allowed.
    """

    lined: bool = False
    delta: bool = False
    exempt: bool = False
    enveloped: bool = False
    may_remove: bool = True


class Redefined(Exception):
    """The topic's schema has changed since it was used to check messages."""


class Ingest:
    """Checks published messages, and has the writer store and deliver them."""

    def __init__(self, writer: Writer, driver: Driver, settings: Settings) -> None:
        self._writer = writer
        self._driver = driver
        self._settings = settings

    async def check(self, entry: CatalogTopic, body: bytes, form: BodyForm) -> Sequence[Item]:
        """Check every message of a request; a large one leaves the loop room to breathe.

        Raises:
            Refused: message-invalid, message-too-large, key-missing, key-invalid,
                schema-violation, or forbidden for a removal.
        """
        if form.delta and not entry.document.retains:
            detail = "The topic keeps no records, so there is nothing to merge a delta into."
            raise Refused("message-invalid", detail)
        if entry.document.kind in (Kind.TEXT, Kind.BINARY):
            return [self._as_it_is(entry, body, form)]
        if form.lined:
            return await self._check_lines(entry, body, form)
        message = self._checked(entry, body, None, form)
        await entry.yield_after_work()
        await asyncio.sleep(0)  # as after lines: a publisher of many requests leaves turns too
        return [message]

    async def check_plain(self, body: bytes, form: BodyForm) -> None:
        """Check a request for a topic that is still to be made: a plain one."""
        await self.check(CatalogTopic(TopicRecord("", TopicDefinition(), "")), body, form)

    async def take(
        self,
        entry: CatalogTopic,
        body: bytes,
        form: BodyForm,
        producer: Producer | None,
        retry: Retry | None,
    ) -> Appended:
        """Check and publish a request's body.

        A retry, or a number that is known, gets the answer of a duplicate, even if the topic would
        refuse the request by now.

        Raises:
            TopicUnknown, Refused: as `check` and `publish`.
        """
        try:
            while True:
                record = entry.record
                messages = await self.check(entry, body, form)
                with contextlib.suppress(Redefined):
                    return await self.publish(entry, messages, producer, retry, record)
        except Refusal as refusal:
            may_be_known = retry is not None or producer is not None
            if not may_be_known or isinstance(refusal, Unavailable):
                raise
            # Only the store knows whether this is a repetition.
            async with entry.writing:
                earlier = await self._writer.earlier(entry, producer, retry=retry)
            if earlier is None:
                raise
            return earlier

    def check_at_once(
        self, entry: CatalogTopic, body: bytes, form: BodyForm
    ) -> Sequence[Item] | None:
        """Check a request of plain JSON in one step; return None where `take` has to decide.

        Raises:
            Refused: as `check`.
        """
        document = entry.document
        if (
            entry.schema is not None  # it may take long
            or document.source is not None
            or document.kind in (Kind.TEXT, Kind.BINARY)
        ):
            return None
        items: Sequence[Item] = ()
        if not form.lined:
            items = [self._checked(entry, body, None, form)]
        elif entry.reader is not None:
            read = entry.reader.read(body, self._settings.message_bytes_max)
            items = () if read is None else MessageBlock(*read)
        count = len(items)
        if not 0 < count <= self._settings.request_messages_max:
            return None
        sow = self._driver.engine.topic(entry.record.name).sow
        has_room = sow is None or len(sow.board) + count <= self._settings.topic_keys_max
        return items if has_room else None

    async def publish(
        self,
        entry: CatalogTopic,
        messages: Sequence[Item],
        producer: Producer | None,
        retry: Retry | None = None,
        record: TopicRecord | None = None,
    ) -> Appended:
        """Store and deliver checked messages, in one order for store and engine.

        `record`: the definition they were checked by, if it may have changed since.

        Raises:
            Redefined: it has, and they have to be checked again.
            TopicUnknown: it was deleted meanwhile.
            Refused: topic-read-only, limit-reached, producer-fenced, idempotency-conflict;
                of deltas also what their records are refused for.
        """
        check_filler(entry, None if producer is None else producer.name)

        async def check_again() -> None:
            # Checked without `writing`, so that a large request holds up no other publisher; the
            # schema may have changed since.
            if record is not None and record.document.schema_checked is not entry.schema:
                raise Redefined
            await self._check_room(entry, messages)

        async def decide() -> Sequence[Item]:
            await check_again()
            return await self._records(entry, messages)

        if isinstance(messages, MessageBlock) or not any(
            isinstance(message, Delta) for message in messages
        ):
            async with entry.writing:
                await check_again()
                return await self._writer.write(entry, messages, producer, retry=retry)
        appended = await self._writer.write_decided(entry, decide, producer, retry=retry)
        assert appended is not None, "a request has messages"
        return appended

    async def stage(
        self, entry: CatalogTopic, messages: Sequence[Item], stage: str, producer: str | None
    ) -> None:
        """Keep checked messages aside until a commit names the stage; an older one is forgotten.

        Raises:
            TopicUnknown: it was deleted meanwhile.
            Refused: topic-read-only.
        """
        check_filler(entry, producer)
        async with entry.writing:
            await self._writer.stage(entry, stage, messages)

    async def commit(
        self,
        entry: CatalogTopic,
        producer: Producer,
        stages: Sequence[str],
        epoch: str | None = None,
    ) -> Appended:
        """Publish what stages hold in one step, in the order of `stages`.

        Without stages only the producer's number rises: what its source had up to there was
        nothing to publish. With `epoch` only if that is the topic's: another one may lack what
        the producer has published before.

        Raises:
            TopicUnknown: it was deleted meanwhile.
            Refused: precondition-failed, a stage is not there, or the topic is in another epoch;
                producer-fenced, limit-reached,
                message-too-large, topic-read-only, schema-violation (the schema may have
                changed since they were staged). Then the stages stay.
        """
        check_filler(entry, producer.name)
        async with entry.writing:
            for _ in range(COMMIT_TRIES_MAX):
                current = entry.record.epoch
                if epoch not in (None, current):
                    detail = f"The topic has begun another epoch, {current}."
                    raise Refused("precondition-failed", detail, pointer="/epoch")
                check_newest(entry, producer)
                earlier = await self._writer.earlier(entry, producer)
                if earlier is not None:
                    return earlier
                staged = await self._writer.staged(entry, stages)
                if staged is None:
                    # Another gateway may have published them by the same commit just now.
                    earlier = await self._writer.earlier(entry, producer)
                    if earlier is not None:
                        return earlier
                    raise _no_stage()
                self._check_commit(staged.items)
                await self._check_room(entry, staged.items)
                await _check_schema(entry, staged.items)
                # Another gateway may have replaced a stage meanwhile, or published it.
                with contextlib.suppress(HeadMoved):
                    return await self._writer.write(
                        entry, staged.items, producer, stages=staged.stages, epoch=current
                    )
            raise Unavailable("Other gateways replace these stages all the time; try again.")

    async def _check_lines(
        self, entry: CatalogTopic, body: bytes, form: BodyForm
    ) -> Sequence[Item]:
        """Check NDJSON in pieces: each read at once where that is possible, else line by line."""
        is_plain = not form.delta and not form.enveloped
        messages: MessageBlock | list[Item] = []
        if is_plain:
            messages = MessageBlock([], [], exempt=form.exempt)
        # A schema names the line that breaks it, and costs more than reading by line does.
        reader = entry.reader if is_plain and entry.schema is None else None
        bytes_max = self._settings.message_bytes_max
        line, counted = 1, 0
        for start, piece in _pieces(body):
            read = None if reader is None else reader.read(piece, bytes_max)
            if read is not None:
                messages.extend(MessageBlock(*read))
            else:
                # Breaks are counted only here: mostly no line is bad, and none needs a number.
                line, counted = line + body.count(b"\n", counted, start), start
                messages.extend(await self._checked_by_line(entry, piece, line, form))
            if len(messages) > self._settings.request_messages_max:
                limit = self._settings.request_messages_max
                raise Refused("message-too-large", f"A request has at most {limit} messages.")
            await asyncio.sleep(0)  # between pieces streams write
        if not messages:
            raise Refused("message-invalid", "The request holds no message.")
        return messages

    async def _checked_by_line(
        self, entry: CatalogTopic, piece: bytes, first_line: int, form: BodyForm
    ) -> list[Item]:
        """Check lines one by one; only here does a bad one get its refusal."""
        messages: list[Item] = []
        # Many empty lines would take as long to examine as full ones.
        for line, text in enumerate(
            piece.split(b"\n") if piece.strip(JSON_SPACE) else (), first_line
        ):
            if text.strip(JSON_SPACE):
                # A return is the line's end: a text that breaks off breaks off before it.
                messages.append(self._checked(entry, text.removesuffix(b"\r"), line, form))
                await entry.yield_after_work()
        return messages

    def _checked(self, entry: CatalogTopic, text: bytes, line: int | None, form: BodyForm) -> Item:
        try:
            if form.enveloped:
                return self._unfolded(entry, text, line, form)
            self._check_size(entry, text, line)
            check_json(text)
            payload = one_line(text)
            record_key = entry.key_of(payload) if entry.key_of else ""
        except KeysError as error:
            raise Refused(
                error.code, f"{error.detail}.", line=line, position=error.position
            ) from None
        if form.delta:
            return Delta(payload, record_key, form.exempt, line=line)
        if entry.schema is not None:
            entry.check_schema(payload, line)
        return Message(payload, record_key, form.exempt)

    def _unfolded(self, entry: CatalogTopic, text: bytes, line: int | None, form: BodyForm) -> Item:
        envelope = read_envelope(text)
        if envelope.reason is not None:
            # Before anything that depends on the topic, whose definition may be hidden.
            if not form.may_remove:
                detail = "A removal needs read of the whole topic, too, which the token lacks."
                raise Refused("forbidden", detail, line=line)
            return self._removal(entry, envelope, line)
        self._check_size(entry, envelope.value, line)
        record_key = entry.key_of(envelope.value) if entry.key_of else ""
        # A key is allowed as well as a value, because envelopes are sent on as they were read.
        if envelope.record_key not in (None, record_key):
            raise KeyInvalid("the key is not the one that the value says")
        entry.check_schema(envelope.value, line)
        return Message(envelope.value, record_key, form.exempt)

    def _removal(self, entry: CatalogTopic, envelope: Envelope, line: int | None) -> Removal:
        spec, record_key = entry.document.key_spec, envelope.record_key
        assert record_key is not None, "a removal names a record"
        assert envelope.reason is not None, "it has a reason"
        if not (spec and entry.document.retains):
            raise KeyInvalid("the topic keeps no records by key, so none can be removed")
        self._check_size(entry, record_key.encode(), line)
        if len(decoded(record_key.encode())) != len(spec.paths):
            raise KeyInvalid(f"the topic's key has {len(spec.paths)} fields")
        return Removal(record_key, envelope.reason)

    def _as_it_is(self, entry: CatalogTopic, body: bytes, form: BodyForm) -> Message:
        """Return the body as one message, text or bytes; text must be UTF-8."""
        self._check_size(entry, body, None)
        if entry.document.kind is Kind.TEXT:
            try:
                body.decode()
            except UnicodeDecodeError as error:
                raise Refused(
                    "message-invalid", "The text is not valid UTF-8.", position=error.start
                ) from None
        return Message(body, "", form.exempt)

    def _check_size(self, entry: CatalogTopic, text: bytes, line: int | None) -> None:
        """Refuse a message that is too large; a source's rows are not checked (rule topic-8)."""
        is_filled = entry.document.source is not None
        if len(text) > self._settings.message_bytes_max and not is_filled:
            limit = self._settings.message_bytes_max
            raise Refused("message-too-large", f"A message has at most {limit} bytes.", line=line)

    async def _records(self, entry: CatalogTopic, messages: Sequence[Item]) -> Sequence[Item]:
        """Return deltas as the records that they make, other messages unchanged."""
        deltas = [message for message in messages if isinstance(message, Delta)]
        sow = self._driver.engine.topic(entry.record.name).sow
        if not deltas or sow is None:
            return messages
        settings = self._settings
        return await merged(
            entry, sow.board, deltas, settings.message_bytes_max, settings.request_bytes_max
        )

    def _check_commit(self, items: Sequence[Item]) -> None:
        """Refuse more keys than fit into one commit."""
        limit = max(self._settings.topic_keys_max, self._settings.request_messages_max)
        if len(items) > limit:
            detail = f"A commit has at most {limit} messages."
            raise Refused("message-too-large", detail, pointer="/stages")

    async def _check_room(self, entry: CatalogTopic, items: Sequence[Item]) -> None:
        sow = self._driver.engine.topic(entry.record.name).sow
        keys_max = self._settings.topic_keys_max
        # As if every key were new: nearly all requests fit, so their keys need no check.
        if sow is None or len(sow.board) + len(items) <= keys_max:
            return
        new: set[str] = set()
        for start in range(0, len(items), COUNTED_AT_ONCE):
            piece = items[start : start + COUNTED_AT_ONCE]
            coming = (
                piece.record_keys
                if isinstance(piece, MessageBlock)
                else [item.record_key for item in piece if isinstance(item, Message)]
            )
            new.update(it for it in coming if sow.board.get(it) is None)
            await asyncio.sleep(0)
        # Known keys always fit, also where the limit was lowered since (rule topic-17).
        if new and len(sow.board) + len(new) > keys_max:
            raise Refused(
                "limit-reached", f"A topic has at most {keys_max} keys (topic_keys_max).",
                retry_after_s=60,
            )  # fmt: skip


def _no_stage() -> Refused:
    detail = "One of the stages is not there: never was, is used up, or too old."
    return Refused("precondition-failed", detail, pointer="/stages")


async def _check_schema(entry: CatalogTopic, items: Sequence[Item]) -> None:
    """Check staged messages by the present schema; many yield to the loop.

    Raises:
        Refused: schema-violation.
    """
    for number, item in enumerate(items if entry.schema else (), 1):
        if isinstance(item, Message):
            entry.check_schema(item.payload, None)
            await entry.yield_after_work()
        if number % CHECKED_ITEMS_AT_ONCE == 0:
            await asyncio.sleep(0)


def _pieces(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of a few KiB, each of whole lines, with the place where it starts."""
    # One `split` of the whole body would block the loop, and copy the body at once.
    start = 0
    while start < len(body):
        end = body.find(b"\n", start + CHECKED_BYTES_AT_ONCE)
        end = len(body) if end < 0 else end
        yield start, body[start:end]
        start = end + 1
