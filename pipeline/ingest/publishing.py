"""Publishes the batches of one source: each record once, in order, and what is none as dead letter.

The highest number that the gateway has of a partition is the source's committed position. It is
asked for at the start; that also fences an earlier run of the same source, whose last request may
still be on its way. Lines are staged and then committed under the number of the batch's last
record, so a commit that is repeated publishes nothing. A batch without lines is a commit without
stages: dead letters are not read again.
"""

from __future__ import annotations

import base64
import hashlib
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

import msgspec

from tidegate.clients import BODY_BYTES_MAX
from tidegate.clients.answers import Published
from tidegate.clients.errors import GatewayProblem
from tidegate.clients.gateway import Gateway
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.connection import STAGE_MESSAGES_MAX, Line, body_of
from tidegate.pipeline.errors import KeyMismatch
from tidegate.pipeline.ingest.connector import SourceBatch, SourceRecord
from tidegate.pipeline.ingest.definition import IngestDefinition
from tidegate.pipeline.ingest.payloads import PayloadForm, PayloadReader, RecordInvalid
from tidegate.pipeline.operations.status import BatchCount

LINE_AT_FAULT = frozenset({400, 413, 422})
"""The statuses of a refusal that is about one line."""
DEAD_PAYLOAD_BYTES_MAX = 256 * 1024
DEAD_TEXT_BYTES_MAX = 384 * 1024
"""Of a payload as a text of JSON, where a control character has six bytes; else it is base64."""
RUN_BITS = 20  # a run in milliseconds leaves 63 bits room for 2^20 numbers a millisecond
RUN_MAX = (1 << 63 - RUN_BITS) - 1
AHEAD_FIRST_MS = 1_000


class RecordEnvelope(msgspec.Struct):
    """What is read of the envelope of a record."""

    value: msgspec.Raw


_envelope = msgspec.json.Decoder(RecordEnvelope).decode


@dataclass(slots=True)  # not frozen, for the reason that a SourceRecord is not
class NumberedLine:
    """A line, its number, and the record that it comes from."""

    record: SourceRecord
    number: int
    line: Line


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that is no message, its number, and the reason."""

    record: SourceRecord
    number: int
    reason: str


@dataclass(slots=True)
class PartitionProducer:
    """The producer of one partition; `through` is None before its first commit."""

    name: str
    through: int | None

    def has(self, number: int) -> bool:
        """Return whether the gateway has this number, or a higher one."""
        return self.through is not None and number <= self.through


class TopicPublisher:
    """Publishes one source to its topic; one run of it, from a start to its end.

    Args:
        definition: of the source.
        gateway: the topic's.
        run: number of the run, above those of earlier ones.

    Raises:
        GatewayProblem: from every method: the gateway refuses.
        GatewayUnreachable: from every method: it does not answer.
    """

    def __init__(self, definition: IngestDefinition, gateway: Gateway, run: int) -> None:
        self._definition = definition
        self._gateway = gateway
        self._run = run
        new_decoder = definition.mapping.new_decoder
        self._decode = None if new_decoder is None else new_decoder()
        self._reader = PayloadReader(definition.mapping, definition.spec or KeySpec())
        self._producers: dict[str, PartitionProducer] = {}
        self._epoch: str | None = None
        self._keeps_records = False
        self._is_starting = True
        self._stages = 0
        self._keeps_dead_letters = False
        self._next_number = 0  # of records without positions

    def close(self) -> None:
        """Close the connection to a registry of schemas."""
        if self._decode is not None:
            self._decode.close()

    def prepare(self) -> bool:
        """Create the topic if it does not exist; else take its key.

        Returns whether the topic was created.

        Raises:
            KeyMismatch: the topic has another key than the definition.
        """
        definition = self._definition
        found = self._gateway.find_topic(definition.topic)
        is_new = found is None
        wanted = None if definition.spec is None else list(map(str, definition.spec.paths))
        if found is None:
            made = {"key": wanted or [], "description": definition.description}
            self._gateway.put_topic(definition.topic, made)
            found = self._gateway.topic(definition.topic)
        has = found.get("key") or []
        if wanted is not None and has != wanted:
            raise KeyMismatch(
                f"topic {definition.topic} exists with key {has}, the definition's is {wanted}: "
                "name another topic, or delete this one"
            )
        self._epoch = found.get("epoch")
        self._keeps_records = bool(found.get("retain"))
        self._reader = PayloadReader(
            definition.mapping, KeySpec.of(has), definition.source.separator, self._decode
        )
        return is_new

    def check_fence(self) -> None:
        """Ask the gateway whether a newer run has taken over; a source that is idle asks nothing.

        Raises:
            GatewayProblem: it has (`producer-fenced`), or the topic has begun another epoch
                (`precondition-failed`).
        """
        # One partition tells: a newer run has asked for all of them.
        for producer in self._producers.values():
            if producer.through is not None:
                self._commit(producer, [], producer.through)
                return

    def finish_start(self) -> None:
        """End the start: from now on a newer run is another process, which has taken over."""
        self._is_starting = False

    def through(self, partition: str) -> int | None:
        """Return the highest number of a partition that the gateway has; None before the first."""
        return self._producer(partition).through

    def messages(self) -> Iterator[bytes]:
        """Yield the newest message of each record, if the topic keeps records."""
        if not self._keeps_records:
            return
        for piece in self._gateway.records(self._definition.topic):
            for line in piece.splitlines():
                yield bytes(_envelope(line).value)

    def publish(self, batch: SourceBatch) -> BatchCount:
        """Publish a batch and keep its dead letters; then the source may forget it.

        Records up to the number that the gateway has are skipped; they count as repeated. Removals
        of Debezium do not count as unmatched: it follows each one with a tombstone that removes the
        same record.
        """
        producer = self._producer(batch.partition)
        numbered = [(each, self._number_of(each)) for each in batch.records]
        new = [(record, number) for record, number in numbered if not producer.has(number)]
        lines, dead = self._read(new)
        published, refused, unmatched = 0, 0, 0
        newest = max((number for _, number in new), default=0)
        while lines or dead:
            # The first commit of a producer goes alone. Only from then on is an earlier run fenced,
            # which may have died with a commit on its way. If that commit was first, this one
            # publishes nothing, and is answered with the number of the other.
            is_first = producer.through is None
            part = _of_first_number(lines) if is_first else lines
            names, kept, refused_lines = self._stage(producer, part)
            dead += refused_lines
            # Before the commit: after a kill in between, the records are read again.
            refused += self._keep(dead)
            dead = []
            if kept:
                # Later commits have the number of the batch's last record, also if it is no line.
                number = part[-1].number if is_first else newest
                done = self._commit(producer, names, number)
                # A repetition with this very number is our own: the first answer was lost.
                published += len(kept) if producer.through == number else 0
                if self._definition.mapping.form is not PayloadForm.DEBEZIUM:
                    unmatched += done.unmatched_removals
            lines = [each for each in lines[len(part) :] if not producer.has(each.number)]
        # Past records that are no lines: else each start would keep their dead letters again.
        if new and not producer.has(newest):
            self._commit(producer, [], newest)
        repeated = len(numbered) - len(new)
        return BatchCount(len(numbered), published, repeated, refused, unmatched)

    def _producer(self, partition: str) -> PartitionProducer:
        if partition not in self._producers:
            name = ".".join(filter(None, (self._definition.producer, partition)))
            through = self._highest_number(name)
            self._producers[partition] = PartitionProducer(name, through)
            # Above all that earlier runs have reached, and this one can.
            self._next_number = max(self._next_number, self._run << RUN_BITS, through or 0)
        return self._producers[partition]

    def _highest_number(self, name: str) -> int | None:
        """Return the highest number of a producer; a start goes above the run that has it.

        That one may have a higher number although it is an earlier one: the clock was set back, or
        it is that of another machine. The gateway says only that there is one.
        """
        ahead_ms = AHEAD_FIRST_MS
        while True:
            try:
                return self._gateway.highest_sequence(self._definition.topic, name, self._run)
            except GatewayProblem as problem:
                is_above = problem.code == "producer-fenced" and self._run < RUN_MAX
                if not (is_above and self._is_starting):
                    raise
            self._run = min(self._run + ahead_ms, RUN_MAX)
            ahead_ms *= 2

    def _number_of(self, record: SourceRecord) -> int:
        if record.number is not None:
            return record.number
        self._next_number += 1
        return self._next_number

    def _read(
        self, numbered: Sequence[tuple[SourceRecord, int]]
    ) -> tuple[list[NumberedLine], list[DeadLetter]]:
        unchecked = self._reader.unchecked([record for record, _ in numbered])
        if unchecked is None:
            return self._checked(numbered)
        pairs = zip(numbered, unchecked, strict=True)
        return [NumberedLine(record, number, line) for (record, number), line in pairs], []

    def _checked(
        self, numbered: Iterable[tuple[SourceRecord, int]]
    ) -> tuple[list[NumberedLine], list[DeadLetter]]:
        lines: list[NumberedLine] = []
        dead: list[DeadLetter] = []
        for record, number in numbered:
            try:
                line = self._reader.read(record)
            except RecordInvalid as error:
                dead.append(DeadLetter(record, number, str(error)))
            else:
                if line is not None:
                    lines.append(NumberedLine(record, number, line))
        return lines, dead

    # Stages and commits

    def _stage(
        self, producer: PartitionProducer, lines: Sequence[NumberedLine]
    ) -> tuple[list[str], list[NumberedLine], list[DeadLetter]]:
        """Stage lines; return the names of the stages, the lines in them, and those refused."""
        names: list[str] = []
        left, kept, dead = list(lines), list[NumberedLine](), list[DeadLetter]()
        topic, most = self._definition.topic, STAGE_MESSAGES_MAX
        while left:
            part = left[: min(most, _count_that_fits([each.line.text for each in left[:most]]))]
            name = f"{producer.name}.{self._run}.{self._stages}"
            body, enveloped = body_of([each.line for each in part])
            try:
                self._gateway.stage(topic, [body], name, producer.name, enveloped=enveloped)
            except GatewayProblem as problem:
                fault = _line_at_fault(problem, len(part))
                if fault is None:
                    raise
                sound, invalid = self._checked((each.record, each.number) for each in part)
                if invalid:  # the gateway was the first to check: take all of them out at once
                    left = sound + left[len(part) :]
                    dead += invalid
                    continue
                refused = left.pop(fault)
                dead.append(DeadLetter(refused.record, refused.number, str(problem)))
                # What is before the line at fault is fine; what follows is tried in larger parts
                # again, so that no line is sent many times.
                most = max(fault, 1)
                continue
            self._stages += 1
            names.append(name)
            kept += part
            left = left[len(part) :]
            most = min(2 * most, STAGE_MESSAGES_MAX)
        return names, kept, dead

    def _commit(self, producer: PartitionProducer, names: Sequence[str], number: int) -> Published:
        """Publish stages under a number; without stages only the number rises.

        Only in the epoch whose numbers are known: another one may lack what was published. It is
        refused, and the next start asks for the new numbers and reads the source from there.
        """
        topic = self._definition.topic
        done = self._gateway.commit(
            topic, producer.name, self._run, number, names, epoch=self._epoch
        )
        producer.through = number if done.sequence is None else done.sequence
        return done

    # Dead letters

    def _keep(self, dead: Sequence[DeadLetter]) -> int:
        """Publish dead letters to their topic; return how many there are."""
        topic = self._definition.dead_letters
        if dead and not self._keeps_dead_letters:
            if self._gateway.find_topic(topic) is None:
                described = f"Records that the ingest {self._definition.name} could not publish"
                self._gateway.put_topic(topic, {"description": described})
            self._keeps_dead_letters = True
        left = list(dead)
        letters = [self._letter(each) for each in left]
        while left:
            count = _count_that_fits(letters)
            # The same dead letters have the same name after a kill. The producer's numbers, which
            # only rise, would not do: a record may be refused after a later one.
            name = f"{self._definition.producer} {[each.number for each in left[:count]]}"
            digest = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
            self._gateway.publish(topic, letters[:count], idempotency_key=digest)
            left, letters = left[count:], letters[count:]
        return len(dead)

    def _letter(self, dead: DeadLetter) -> bytes:
        record = dead.record
        payload, is_base64 = _text(record.payload)
        return msgspec.json.encode(
            {
                "ingest": self._definition.name,
                "source": self._definition.source.label,
                "position": record.position,
                "channel": record.channel,
                "key": _text(record.broker_key)[0],
                "timestamp_ms": record.timestamp_ms,
                "reason": dead.reason,
                "payload": payload,
                "base64": is_base64,
                "bytes": None if record.payload is None else len(record.payload),
            }
        )


def _of_first_number(lines: Sequence[NumberedLine]) -> list[NumberedLine]:
    return list(takewhile(lambda each: each.number == lines[0].number, lines))


def _count_that_fits(texts: Sequence[bytes]) -> int:
    """Return how many of the first texts fit into one request, at least one."""
    size = 0
    for at, text in enumerate(texts[:STAGE_MESSAGES_MAX]):
        size += len(text) + 1
        if at and size > BODY_BYTES_MAX:
            return at
    return min(len(texts), STAGE_MESSAGES_MAX)


def _line_at_fault(problem: GatewayProblem, lines: int) -> int | None:
    """Return the 0-based line that a refusal is about; None if it is about the whole request."""
    if problem.status not in LINE_AT_FAULT:
        return None
    if lines == 1:
        return 0
    return None if problem.line is None or problem.line > lines else problem.line - 1


def _text(content: bytes | None) -> tuple[str | None, bool]:
    """Return bytes as a text of bounded length, and whether it is base64."""
    if content is None:
        return None, False
    beginning = content[:DEAD_PAYLOAD_BYTES_MAX]
    is_whole = len(beginning) == len(content)  # else the last character may be cut
    with suppress(UnicodeDecodeError):
        text = getincrementaldecoder("utf-8")().decode(beginning, final=is_whole)
        if len(msgspec.json.encode(text)) <= DEAD_TEXT_BYTES_MAX:
            return text, False
    return base64.b64encode(beginning).decode(), True
