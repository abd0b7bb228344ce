"""What a publish request asks for beside its messages: the words of its header and its query."""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass

from starlette.types import Scope

from app.ingest import Form
from app.problems import Problem
from app.query import boolean, content_type, header_value, integer, one_of, query_values
from app.stores.store import Producer, Retry, Store

NDJSON = "application/x-ndjson"
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
TEXT = "text/plain"
BYTES = "application/octet-stream"
MEDIA_TYPES = (JSON, NDJSON, MERGE_PATCH, TEXT, BYTES)

QUERY = ("ack", "delta", "format")
NUMBER_MAX = 2**63 - 1
NAME_CHARACTERS_MAX = 255
DIGESTED_AT_ONCE = 1 << 20

_NAME = re.compile(f"[!-~]{{1,{NAME_CHARACTERS_MAX}}}", re.ASCII)
_PRODUCER = re.compile(r"[!-~](?:[ -~]{0,253}[!-~])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """A checked head: how the body is to be read, who sends it, and what is to become of it.

    `retry_key` is the `Idempotency-Key`. With `stage` the messages are kept aside under that name;
    `producer` then stands alone, its number being that of the commit.
    """

    media_type: str
    form: Form
    producer: str | None
    sequence: int | None
    retry_key: str | None
    stage: str | None

    @classmethod
    def read(cls, scope: Scope, store: Store) -> PublishRequest:
        """Of `POST /v1/topics/{topic}/messages`; `store` decides which `ack` there is.

        Raises:
            Problem: unsupported-media-type, options-invalid or message-invalid.
        """
        media_type = content_type(scope, MEDIA_TYPES)
        values = query_values(scope, dict.fromkeys(QUERY, "options-invalid"))
        delta = _is_delta(values.get("delta"), media_type)
        check_ack(values.get("ack"), store)
        stage = named(scope, "tidegate-stage")
        retry_key = named(scope, "idempotency-key")
        if stage is not None and retry_key is not None:
            raise Problem("message-invalid", "A stage may be sent again without Idempotency-Key.")
        if stage is not None and delta:
            detail = "A stage has whole messages: records may change until its commit."
            raise Problem("message-invalid", detail)
        enveloped = _is_enveloped(values.get("format"), media_type, delta=delta)
        form = Form(media_type == NDJSON, delta, _is_exempt(scope), enveloped)
        producer, sequence = _producer(scope, is_stage=stage is not None)
        return cls(media_type, form, producer, sequence, retry_key, stage)

    @property
    def numbered(self) -> Producer | None:
        """The numbered producer that sends it, if one does."""
        if self.producer is None or self.sequence is None:
            return None
        return Producer(self.producer, self.sequence)

    async def retry(self, body: bytes) -> Retry | None:
        """What tells this request from others under its key: all that it asks of the topic.

        Of a delta it is the patch, not what came of it. How long the answer waits is no part.
        """
        if self.retry_key is None:
            return None
        if len(body) <= DIGESTED_AT_ONCE:
            return Retry(self.retry_key, self._digest(body))
        return Retry(self.retry_key, await asyncio.to_thread(self._digest, body))

    def _digest(self, body: bytes) -> bytes:
        form = self.form
        asked: tuple[object, ...] = (
            self.media_type, form.delta, form.exempt, self.producer, self.sequence,
        )  # fmt: skip
        if form.enveloped:  # what a gateway before this one has noted of others stays the same
            asked = (*asked, "envelope")
        digest = hashlib.blake2b(repr(asked).encode(), digest_size=32)
        digest.update(b"\n")
        digest.update(body)
        return digest.digest()


def is_name(text: str) -> bool:
    """Whether it may name a stage, or be an `Idempotency-Key`: printable ASCII without spaces."""
    return _NAME.fullmatch(text) is not None


def is_producer(text: str) -> bool:
    """Whether it may name a producer: printable ASCII, with spaces inside at most."""
    return _PRODUCER.fullmatch(text) is not None


def named(scope: Scope, header: str) -> str | None:
    """A header that is a name, or None.

    Raises:
        Problem: message-invalid.
    """
    expected = f"{header} is 1 to {NAME_CHARACTERS_MAX} of printable ASCII without spaces."
    text = header_value(scope, header, "message-invalid", expected=expected)
    if text is not None and not is_name(text):
        raise Problem("message-invalid", expected)
    return text


def check_ack(ack: str | None, store: Store) -> None:
    """Whether the store can keep what `ack` promises.

    What is answered has been stored as safely as the store can, and is processed, whichever of the
    two was asked for.

    Raises:
        Problem: options-invalid.
    """
    code = "options-invalid"
    wanted = one_of(ack or "processed", ("processed", "persisted"), code=code, what="ack")
    if wanted == "persisted" and not store.survives_process:
        raise Problem(code, "This gateway keeps nothing, so ack is processed.")


def refuse_retry_key(scope: Scope, because: str) -> None:
    """Refuse an `Idempotency-Key` where it would have no effect.

    Raises:
        Problem: message-invalid.
    """
    if header_value(scope, "idempotency-key", "message-invalid") is not None:
        raise Problem("message-invalid", f"Idempotency-Key is for publishing: {because}.")


def _is_delta(asked: str | None, media_type: str) -> bool:
    code = "options-invalid"
    is_patch = media_type == MERGE_PATCH
    delta = is_patch if asked is None else boolean(asked, code=code, what="delta")
    if is_patch and not delta:
        raise Problem(code, "A merge patch is a delta.")
    if delta and media_type in (TEXT, BYTES):
        raise Problem(code, "Text and bytes have no deltas.")
    return delta


def _is_enveloped(asked: str | None, media_type: str, *, delta: bool) -> bool:
    code = "options-invalid"
    if one_of(asked or "value", ("value", "envelope"), code=code, what="format") == "value":
        return False
    if delta or media_type not in (JSON, NDJSON):
        raise Problem(code, "Envelopes are JSON or NDJSON, and have whole messages.")
    return True


def _is_exempt(scope: Scope) -> bool:
    never = header_value(scope, "tidegate-conflate", "message-invalid")
    if never not in (None, "never"):
        raise Problem("message-invalid", "Tidegate-Conflate is never.")
    return never is not None


def _producer(scope: Scope, *, is_stage: bool) -> tuple[str | None, int | None]:
    """A producer with its number; of a stage the name alone, as the commit has the number."""
    name = header_value(scope, "tidegate-producer", "message-invalid")
    number = header_value(scope, "tidegate-sequence", "message-invalid")
    if is_stage and number is not None:
        raise Problem("message-invalid", "Tidegate-Sequence is not for a stage, but its commit.")
    if not is_stage and (name is None) != (number is None):
        raise Problem("message-invalid", "Tidegate-Producer and Tidegate-Sequence come together.")
    if name is not None and not is_producer(name):
        detail = f"Tidegate-Producer is a name of at most {NAME_CHARACTERS_MAX} characters."
        raise Problem("message-invalid", detail)
    if number is None:
        return name, None
    what = "Tidegate-Sequence"
    return name, integer(number, least=0, most=NUMBER_MAX, code="message-invalid", what=what)
