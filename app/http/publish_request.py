"""Publish requests: headers, query parameters, and the body of a commit."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, FailFast, Field, WithJsonSchema, field_validator
from starlette.types import Scope

from tidegate.app.documents import Strict, invalid, read
from tidegate.app.http.parameters import Headers, query_of
from tidegate.app.http.requests import (
    BYTES,
    JSON,
    MEDIA_TYPES,
    MERGE_PATCH,
    NDJSON,
    TEXT,
    content_type,
    header_value,
    topic_name,
    writable_topic_name,
)
from tidegate.app.http.scope import subject_in
from tidegate.app.names import REVOKED
from tidegate.app.parameters import Parameters, Read, flag, line, word
from tidegate.app.refusals import Refused
from tidegate.app.stores.store import Producer, Retry, Store
from tidegate.app.texts import integer
from tidegate.app.topics.ingest import BodyForm
from tidegate.app.topics.registry import PIPELINE_PREFIX
from tidegate.app.topics.system_topics import PIPELINES

NUMBER_MAX = 2**63 - 1
NAME_CHARACTERS_MAX = 255
DIGESTED_AT_ONCE = 1 << 20  # a millisecond or two, in which streams wait

_NAME = re.compile(f"[!-~]{{1,{NAME_CHARACTERS_MAX}}}", re.ASCII)
_PRODUCER = re.compile(r"[!-~](?:[ -~]{0,253}[!-~])?", re.ASCII)


def _is_name(header: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not is_name(text):
            raise Refused("message-invalid", _expected(header))
        return text

    return read


def _expected(header: str) -> str:
    return f"{header} is 1 to {NAME_CHARACTERS_MAX} of printable ASCII without spaces."


def _name_line(header: str) -> Read:
    return line(
        "message-invalid", _expected(header), _is_name(header),
        pattern=f"^[!-~]{{1,{NAME_CHARACTERS_MAX}}}$",
    )  # fmt: skip


def _sequence(text: str) -> int:
    what = "Tidegate-Sequence"
    return integer(text, least=0, most=NUMBER_MAX, code="message-invalid", what=what)


def _never(text: str) -> str:
    if text != "never":
        raise Refused("message-invalid", "Tidegate-Conflate is never.")
    return text


class Ack(Parameters):
    """The promise of an answer to a publish or a commit."""

    ack: Annotated[
        str | None,
        word("ack", ("processed", "persisted")),
        Field(description="persisted survives the process; every answer is both where it can be"),
    ] = None

    def check(self, store: Store) -> None:
        """Refuse an `ack` that promises more than the store can keep.

        An answered message is stored as safely as the store can, and processed, by either `ack`.

        Raises:
            Refused: options-invalid.
        """
        if self.ack == "persisted" and not store.survives_process:
            raise Refused("options-invalid", "This gateway keeps nothing, so ack is processed.")


class PublishQuery(Ack):
    """The parameters that say how messages are read."""

    delta: Annotated[
        bool | None,
        flag("delta"),
        Field(description="true: each is merged into the record that its key fields name"),
    ] = None
    format: Annotated[
        str,
        word("format", ("value", "envelope")),
        Field(description="envelope: each is {value}, or {key, reason} for a removal"),
    ] = "value"


class PublishHeaders(Headers):
    """The headers that name the publisher and the treatment of its messages."""

    idempotency_key: Annotated[
        str | None,
        _name_line("idempotency-key"),
        Field(description="Makes a retry safe for 24 hours: it is answered as the first time"),
    ] = None
    tidegate_producer: Annotated[
        str | None,
        line("message-invalid", maxLength=NAME_CHARACTERS_MAX),
        Field(description="Name of a numbered producer, or of whoever keeps a stage"),
    ] = None
    tidegate_sequence: Annotated[
        int | None,
        line("message-invalid", None, _sequence, type="integer", minimum=0, maximum=NUMBER_MAX),
        Field(description="Its number; one not above its highest publishes nothing"),
    ] = None
    tidegate_stage: Annotated[
        str | None,
        _name_line("tidegate-stage"),
        Field(description="Keep the messages aside under this name until a commit (201)"),
    ] = None
    tidegate_conflate: Annotated[
        str | None,
        line("message-invalid", None, _never, enum=["never"]),
        Field(description="never: these messages are not to be conflated"),
    ] = None


_HEADERS = frozenset(name.lower().encode("ascii") for name in PublishHeaders.reads)


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """The checked head of a publish: form of the body, sender, and treatment.

    `retry_key` is the `Idempotency-Key`. With `stage` the messages are kept aside under that name;
    `producer` then stands alone, its number being that of the commit.
    """

    media_type: str
    form: BodyForm
    producer: str | None
    sequence: int | None
    retry_key: str | None
    stage: str | None

    @classmethod
    def read(cls, scope: Scope, store: Store) -> PublishRequest:
        """Read the head of a publish; `store` decides which `ack` there is.

        Raises:
            Refused: unsupported-media-type, options-invalid or message-invalid.
        """
        media_type = content_type(scope, MEDIA_TYPES)
        asks_nothing = not scope["query_string"] and _HEADERS.isdisjoint(dict(scope["headers"]))
        if asks_nothing and media_type in PLAIN:
            return PLAIN[media_type]
        query, headers = query_of(PublishQuery, scope), PublishHeaders.read(scope)
        delta = _is_delta(query.delta, media_type)
        query.check(store)
        stage, retry_key = headers.tidegate_stage, headers.idempotency_key
        # A stage replaces itself, so that a retry needs no key; one would promise more than that.
        if stage is not None and retry_key is not None:
            raise Refused("message-invalid", "A stage may be sent again without Idempotency-Key.")
        if stage is not None and delta:
            detail = "A stage has whole messages: records may change until its commit."
            raise Refused("message-invalid", detail)
        enveloped = _is_enveloped(query.format, media_type, delta=delta)
        form = BodyForm(
            media_type == NDJSON, delta, headers.tidegate_conflate is not None, enveloped
        )
        producer, sequence = _producer(headers, is_stage=stage is not None)
        return cls(media_type, form, producer, sequence, retry_key, stage)

    def numbered(self, sub: str | None = None) -> Producer | None:
        """Return the numbered producer that sends it, if one does; it is the subject's own."""
        if self.producer is None or self.sequence is None:
            return None
        return Producer(own_name(sub, self.producer), self.sequence)

    async def retry(self, body: bytes, sub: str | None = None) -> Retry | None:
        """Return the digest that distinguishes requests under one key; None without a key.

        `sub`: of the subject that asks, whose own the key is; None without authentication.
        """
        if self.retry_key is None:
            return None
        name = own_name(sub, self.retry_key)
        # A delta counts as its patch, not by what came of it: the record changes between retries.
        if len(body) <= DIGESTED_AT_ONCE:
            return Retry(name, self._digest(body))
        return Retry(name, await asyncio.to_thread(self._digest, body))

    def _digest(self, body: bytes) -> bytes:
        form = self.form
        asked: tuple[object, ...] = (
            self.media_type, form.delta, form.exempt, self.producer, self.sequence,
        )  # fmt: skip
        # Kept digests outlive an upgrade: what a version before has noted must stay the same.
        if form.enveloped:
            asked = (*asked, "envelope")
        digest = hashlib.blake2b(repr(asked).encode(), digest_size=32)
        digest.update(b"\n")
        digest.update(body)
        return digest.digest()


PLAIN = {
    JSON: PublishRequest(JSON, BodyForm(), None, None, None, None),
    NDJSON: PublishRequest(NDJSON, BodyForm(lined=True), None, None, None, None),
}
"""What most requests are, by media type. They are published in one iteration, where nothing has to
be waited for."""


def own_name(sub: str | None, name: str) -> str:
    """Return the name under which a store keeps a subject's key, producer or stage.

    Another subject's equal one must not find it: the answer would tell of a request, or refuse one;
    its numbers would void those of the other, and its stages replace them.
    """
    # A digest, as a `sub` has any length and is nobody's business in the store. It comes last: a
    # pipeline's producer is known by how its name begins.
    if sub is None:
        return name
    return f"{name} {hashlib.blake2b(sub.encode(), digest_size=16).hexdigest()}"


def is_name(text: str) -> bool:
    """Return True for a name of a stage or an `Idempotency-Key`: printable ASCII, no spaces."""
    return _NAME.fullmatch(text) is not None


def is_producer(text: str) -> bool:
    """Return True for a name of a producer: printable ASCII, with spaces inside at most."""
    return _PRODUCER.fullmatch(text) is not None


def refuse_retry_key(scope: Scope, because: str) -> None:
    """Refuse an `Idempotency-Key` where it would have no effect.

    Raises:
        Refused: message-invalid.
    """
    if header_value(scope, "idempotency-key", "message-invalid") is not None:
        raise Refused("message-invalid", f"Idempotency-Key is for publishing: {because}.")


def _is_delta(asked: bool | None, media_type: str) -> bool:
    code = "options-invalid"
    is_patch = media_type == MERGE_PATCH
    delta = is_patch if asked is None else asked
    # A contradiction is refused, not guessed at.
    if is_patch and not delta:
        raise Refused(code, "A merge patch is a delta.")
    if delta and media_type in (TEXT, BYTES):
        raise Refused(code, "Text and bytes have no deltas.")
    return delta


def _is_enveloped(asked: str, media_type: str, *, delta: bool) -> bool:
    if asked == "value":
        return False
    if delta or media_type not in (JSON, NDJSON):
        raise Refused("options-invalid", "Envelopes are JSON or NDJSON, and have whole messages.")
    return True


def _producer(headers: PublishHeaders, *, is_stage: bool) -> tuple[str | None, int | None]:
    """Return a producer with its number; for a stage its name alone."""
    # The number of a stage is that of its commit.
    name, number = headers.tidegate_producer, headers.tidegate_sequence
    if is_stage and number is not None:
        raise Refused("message-invalid", "Tidegate-Sequence is not for a stage, but its commit.")
    if not is_stage and (name is None) != (number is None):
        raise Refused("message-invalid", "Tidegate-Producer and Tidegate-Sequence come together.")
    if name is not None and not is_producer(name):
        detail = f"Tidegate-Producer is a name of at most {NAME_CHARACTERS_MAX} characters."
        raise Refused("message-invalid", detail)
    return name, number


# As many as a store keeps for a topic by default.
STAGES_MAX = 10_000
# Names of 255 characters for every stage fit, with room to spare.
DOCUMENT_BYTES_MAX = 4 << 20


def _producer_name(name: str) -> str:
    if not is_producer(name):
        raise ValueError(f"is a name of at most {NAME_CHARACTERS_MAX} characters")
    return name


def _stage(name: str) -> str:
    if not is_name(name):
        raise ValueError(f"is 1 to {NAME_CHARACTERS_MAX} of printable ASCII, no spaces")
    return name


# What the stores can keep is a signed number of 64 bits.
Number = Annotated[int, Field(ge=0, le=NUMBER_MAX)]


class CommitDocument(Strict):
    """The stages to publish, in this order, as one numbered request of a producer's run.

    Without stages only the producer's number rises.
    """

    code = "message-invalid"

    producer: Annotated[
        str,
        AfterValidator(_producer_name),
        WithJsonSchema({"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS_MAX}),
    ]
    run: Annotated[Number, Field(description="A run above it fences it")]
    sequence: Annotated[Number, Field(description="Rises from commit to commit, also over runs")]
    stages: Annotated[
        list[Annotated[str, AfterValidator(_stage)]],
        Field(max_length=STAGES_MAX),
        FailFast(),  # the answer has one refusal; a check of all stages could make ten thousand
    ]
    epoch: Annotated[
        str | None, Field(description="Publish only if the topic is in this epoch (else 412)")
    ] = None

    @field_validator("stages")
    @classmethod
    def _check_once(cls, names: list[str]) -> list[str]:
        """Refuse a stage that is named again."""
        seen: set[str] = set()
        for at, name in enumerate(names):
            if name in seen:
                raise invalid(cls.code, "A stage is named once.", f"/{at}")
            seen.add(name)
        return names


class Commit(NamedTuple):
    """A numbered producer of a run, and the stages that it wants published, in this order.

    With `epoch` only if that is the topic's.
    """

    producer: Producer
    stages: tuple[str, ...]
    epoch: str | None = None


def commit_of(body: bytes, sub: str | None = None) -> Commit:
    """Parse the body of `POST /v1/topics/{topic}/commits`, whose names are the subject's own.

    Raises:
        Refused: message-invalid, with the pointer to what is wrong.
    """
    asked = read(CommitDocument, body)
    producer = Producer(own_name(sub, asked.producer), asked.sequence, asked.run)
    return Commit(producer, tuple(own_name(sub, name) for name in asked.stages), asked.epoch)


def publishable_topic_name(scope: Scope) -> str:
    """Check a name like `writable_topic_name`, but allow the topics that clients write.

    Raises:
        Refused: topic-invalid, topic-read-only, or message-invalid for a header given twice.
    """
    # By the name of the producer, as the topic is open to pipelines alone.
    producer = header_value(scope, "tidegate-producer", "message-invalid") or ""
    if producer.startswith(PIPELINE_PREFIX) and topic_name(scope) == PIPELINES:
        return PIPELINES
    return removable_topic_name(scope)


def removable_topic_name(scope: Scope) -> str:
    """Check a name like `writable_topic_name`, but allow to revoke, and to take that back.

    Raises:
        Refused: topic-invalid or topic-read-only.
    """
    if subject_in(scope) is not None and topic_name(scope) == REVOKED:
        return REVOKED
    return writable_topic_name(scope)
