"""Strict reading of requests: path, query, headers and body.

The framework is lenient (`1_000` is an int, `%ff` is a character, the last of two parameters
counts); here everything has one spelling and the rest is a problem.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from fastapi import Request
from starlette.types import Scope

from tidegate.app.names import (
    TopicPattern,
    checked_session_id,
    checked_topic_name,
    checked_writable_name,
)
from tidegate.app.refusals import Refused
from tidegate.app.texts import listed, weights

NDJSON = "application/x-ndjson"
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
TEXT = "text/plain"
BYTES = "application/octet-stream"
MEDIA_TYPES = (JSON, NDJSON, MERGE_PATCH, TEXT, BYTES)
REQUEST_BYTES_MAX = 64 << 10
CHANGES = (MERGE_PATCH, JSON)
"""Media types of a PATCH."""
LIVE = b"live"
"""The parameter with which a polling request waits, or gets events."""
LONG_POLL = "long-poll"
PLACE = "last_event_id"
POLYFILL_PLACE = "lastEventId"
"""The name under which polyfills of EventSource add the place to an address when they reconnect."""

TOPICS_PATH = b"/v1/topics/"
_TOPICS = TOPICS_PATH.decode()
SESSIONS_PATH = b"/v1/sessions/"
PATHS_MAX = 256
"""Paths of which is kept what they name: most requests have one of a few."""
_ENCODED = re.compile(rb"%(2a|3e)", re.IGNORECASE)


async def has_left(request: Request) -> bool:
    """Return whether the client of a stream has closed its connection.

    It may have done so long before its request was read, and its end of file is read after it.
    """
    for _ in range(2):  # one iteration reads the end of file, the next one sees its effect
        await asyncio.sleep(0)
    return await request.is_disconnected()


def topic_name(scope: Scope) -> str:
    """Return the topic in the path `/v1/topics/{topic}/…`, read before percent-decoding.

    Raises:
        Refused: topic-invalid.
    """
    return topic_in(raw_path(scope))


@lru_cache(maxsize=PATHS_MAX)
def topic_in(path: bytes) -> str:
    """Return the topic in a path, as `topic_name` does."""
    # A name needs no percent sign, so one is a trick: %2f would be a slash to another server.
    tail = path.removeprefix(TOPICS_PATH)
    return checked_topic_name(tail.split(b"/", 1)[0].decode("latin-1"))


def topic_or_pattern(scope: Scope) -> str | TopicPattern:
    """Parse the topic of the path `/v1/topics/{topic}/…`; `*` and `>` may be percent-encoded.

    Raises:
        Refused: topic-invalid.
    """
    return target_in(raw_path(scope))


@lru_cache(maxsize=PATHS_MAX)
def target_in(path: bytes) -> str | TopicPattern:
    """Return the topic or the pattern in a path, as `topic_or_pattern` does."""
    part = path.removeprefix(TOPICS_PATH).split(b"/", 1)[0]
    text = _ENCODED.sub(lambda code: b"*" if code[1].lower() == b"2a" else b">", part)
    name = text.decode("latin-1")
    if "*" in name or ">" in name:
        return TopicPattern.parse(name)
    return checked_topic_name(name)


def polled_topic_in(path: bytes) -> str:
    """Return the topic in the path of a request to poll, which is one.

    Raises:
        Refused: topic-invalid; of a pattern with what to do instead.
    """
    found = target_in(path)
    if isinstance(found, str):
        return found
    detail = "A position is of one topic. Poll each topic of the pattern, or subscribe to it."
    raise Refused("topic-invalid", detail)


def writable_topic_name(scope: Scope) -> str:
    """Return the topic in the path of a request that changes something.

    Raises:
        Refused: topic-invalid, or topic-read-only for the gateway's own topics.
    """
    return _writable_in(raw_path(scope))


@lru_cache(maxsize=PATHS_MAX)
def _writable_in(path: bytes) -> str:
    return checked_writable_name(topic_in(path))


def session_id(scope: Scope) -> str:
    """Return the session in the path `/v1/sessions/{session}/…`.

    Raises:
        Refused: session-unknown, as no session has such an id.
    """
    name = raw_path(scope).removeprefix(SESSIONS_PATH).split(b"/", 1)[0].decode("latin-1")
    return checked_session_id(name, "session-unknown", "There is no such session.")


def raw_path(scope: Scope) -> bytes:
    """Return the path as the client sent it."""
    # A server that does not give it has decoded the path already.
    raw: bytes | None = scope.get("raw_path")
    return scope["path"].encode("utf-8") if raw is None else raw.split(b"?", 1)[0]


def query_values(scope: Scope, allowed: Mapping[str, str]) -> dict[str, str]:
    """Return the query parameters, each at most once, decoded strictly.

    Args:
        scope: the request's scope.
        allowed: name of each parameter -> code of the problem when its value cannot be read.

    Raises:
        Refused: options-invalid for an unknown parameter; the parameter's own code when it
            comes twice or is no UTF-8.
    """
    values: dict[str, str] = {}
    for pair in scope["query_string"].split(b"&"):
        if not pair:
            continue
        raw_name, _, raw_value = pair.partition(b"=")
        name = _decoded(raw_name, "options-invalid", "A query parameter's name")
        code = allowed.get(PLACE if name == POLYFILL_PLACE else name)
        if code is None:
            raise Refused("options-invalid", f"Unknown query parameter; known: {listed(allowed)}.")
        if name in values:
            raise Refused(code, f"The query parameter {name} may be given once.")
        values[name] = _decoded(raw_value, code, f"The query parameter {name}")
    if POLYFILL_PLACE in values:  # newer than what the address had when it was opened
        values[PLACE] = values.pop(POLYFILL_PLACE)
    return values


def has_ending(path: str, endings: str | tuple[str, ...]) -> bool:
    """Return True for a path with one of these endings.

    The address of a topic has none of them, also of one that is called `events`.
    """
    if not path.endswith(endings):
        return False
    return not path.startswith(_TOPICS) or path.count("/") > _TOPICS.count("/")


@lru_cache(maxsize=PATHS_MAX)
def live_in(query: bytes) -> str:
    """Return the parameter `live` of a query, however it is encoded; empty without one."""
    pairs = (pair.partition(b"=") for pair in query.split(b"&"))
    values = (value for name, _, value in pairs if unquote_to_bytes(name) == LIVE)
    return unquote_to_bytes(next(values, b"")).decode("latin-1")


def header_value(
    scope: Scope, name: str, code: str, characters_max: int = 4096, expected: str | None = None
) -> str | None:
    """Return a header that may come once, as printable ASCII; None without one.

    Args:
        scope: the request's scope.
        name: the header's name, in lower case.
        code: the problem's code if the header comes twice, is too long, or holds anything else.
        characters_max: longest value taken.
        expected: the sentence of the refusal, where less than any printable ASCII is right.

    Raises:
        Refused: with `code`.
    """
    found = [value for key, value in scope["headers"] if key == name.encode("ascii")]
    if not found:
        return None
    value: bytes = found[0].strip(b" \t")  # space around it is none of it (RFC 9110, 5.5)
    if len(found) > 1:
        raise Refused(code, f"The header {name} may be given once.")
    if len(value) > characters_max or not all(0x20 <= byte < 0x7F for byte in value):
        detail = f"The header {name} takes at most {characters_max} of printable ASCII."
        raise Refused(code, expected or detail)
    return value.decode("ascii")


def require_accept(scope: Scope, *media_types: str) -> None:
    """Check that the client takes one of the media types; no Accept header takes everything.

    Raises:
        Refused: not-acceptable.
    """
    if preferred(scope, media_types) is None:
        names = " or ".join(media_types)
        raise Refused("not-acceptable", f"The answer is {names}, which Accept leaves out.")


def preferred(scope: Scope, media_types: tuple[str, ...]) -> str | None:
    """Return the media type that Accept weighs most; None if it takes none of them.

    Of equal weights a type that is named wins over one that a wildcard takes, and then the first.
    """
    fields = [value for name, value in scope["headers"] if name == b"accept"]
    return _preferred(b",".join(fields), media_types) if fields else media_types[0]


@lru_cache(maxsize=256)  # most clients send one of a few
def _preferred(accept: bytes, media_types: tuple[str, ...]) -> str | None:
    ranges = weights(accept.decode("latin-1"))
    weighed = {each: _weight_of(ranges, each) for each in media_types}
    best = max(media_types, key=weighed.__getitem__)
    weight, _ = weighed[best]
    return best if weight > 0 else None


def _weight_of(ranges: Mapping[str, float], media_type: str) -> tuple[float, int]:
    """Return the weight of a media type, and how closely a range names it.

    The closest range counts (RFC 9110, 12.5.1).
    """
    for closeness, name in ((2, media_type), (1, media_type.split("/", 1)[0] + "/*"), (0, "*/*")):
        if name in ranges:
            return ranges[name], closeness
    return 0.0, 0


def content_type(scope: Scope, taken: tuple[str, ...]) -> str:
    """Return the request's media type, which is one of `taken`, in UTF-8 and not encoded.

    Raises:
        Refused: unsupported-media-type or unsupported-encoding.
    """
    fields = [value for name, value in scope["headers"] if name == b"content-type"]
    media_type = _media_type_in(b",".join(fields))
    if media_type not in taken:
        raise Refused("unsupported-media-type", f"Content-Type is {listed(taken)}, in UTF-8.")
    require_no_encoding(scope)
    return media_type


@lru_cache(maxsize=256)  # most clients send one of a few
def _media_type_in(field: bytes) -> str:
    """Return the media type of Content-Type; "" if it has another encoding than UTF-8."""
    name, *parameters = (part.strip().lower() for part in field.decode("latin-1").split(";"))
    charsets = [each for each in parameters if each.startswith("charset")]
    is_utf8 = all(each in {"charset=utf-8", 'charset="utf-8"'} for each in charsets)
    return name if is_utf8 else ""


def require_no_encoding(scope: Scope) -> None:
    """Refuse a compressed body.

    Raises:
        Refused: unsupported-encoding.
    """
    # A body that is never inflated can never be a decompression bomb.
    for key, value in scope["headers"]:
        if key == b"content-encoding" and value.strip().lower() != b"identity":
            raise Refused("unsupported-encoding", "A request's body comes without encoding.")


async def read_body(
    request: Request, bytes_max: int, check: Callable[[], None] | None = None
) -> bytes:
    """Return the whole body; refuse it once it is larger than `bytes_max`, or `check` does.

    Raises:
        Refused: message-too-large; and what `check` raises.
    """
    # A body may come in chunks, with no length declared, so what arrives is counted as well.
    lengths = (value for name, value in request.scope["headers"] if name == b"content-length")
    declared = next(lengths, b"0").strip(b" \t")  # space around it is none of it (RFC 9110, 5.5)
    if not declared.isdigit() or int(declared[:20]) > bytes_max:
        raise _too_large(bytes_max)
    chunks: list[bytes] = []
    size_bytes = 0
    async for chunk in request.stream():
        size_bytes += len(chunk)
        if size_bytes > bytes_max:
            raise _too_large(bytes_max)
        if check is not None and chunks and chunk:  # an empty one is the end
            check()
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(bytes_max: int) -> Refused:
    return Refused("message-too-large", f"The body has at most {bytes_max} bytes.")


def _decoded(raw: bytes, code: str, what: str) -> str:
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError:
        raise Refused(code, f"{what} is not valid UTF-8.") from None


async def posted_body(
    request: Request, media_types: tuple[str, ...] = (JSON,), *, may_be_empty: bool = False
) -> bytes:
    """Return a request's JSON body, not yet parsed.

    Raises:
        Refused: it cannot be read, its type is another one, or the query has parameters.
    """
    query_values(request.scope, {})
    if not may_be_empty:
        content_type(request.scope, media_types)
    body = await read_body(request, REQUEST_BYTES_MAX)
    # A form without fields has a type, and is as empty as a request without one.
    if body and may_be_empty:
        content_type(request.scope, media_types)
    return body
