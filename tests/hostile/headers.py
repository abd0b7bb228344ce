"""Hostile header fields: of each operation, of any request, of the transfer, and of nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.hostile.case import Hostile, hostile
from tests.hostile.operations import BYTES, CSV, JSON, REMOVAL, STEPS, TEXT, TOPIC, Operation
from tidegate.app.http.wire import HEALTH_PATHS

HEADER_BYTES: Final = 17 << 10
TOPIC_CHANGES: Final = {("PUT", TOPIC), ("PATCH", TOPIC), ("DELETE", TOPIC)}
ENCODINGS: Final = ("gzip", "br", "zstd", "deflate", "gzip, gzip", "identity, gzip", "zzq")
MEDIA_TYPES: Final = {
    "none": None, "form": "application/x-www-form-urlencoded", "multipart": "multipart/form-data",
    "like JSON": "application/jsonx", "latin1": "application/json; charset=latin1",
    "utf-7": "application/json;charset=utf-7", "utf-16": 'application/json; charset="utf-16"',
    "HTML": "text/html", "nothing": " ", "two": "application/json, text/plain", "zzq": "zzq",
    "a wildcard": "*/*",
}  # fmt: skip
EVENT_IDS: Final = ("a:zzq", "$", "+", "\xe9", "z" * 129, "a b", '"zzq"', "%00", "a,b")
TAGS: Final = ("zzq", '"zzq', 'W/"zzq', '"a" "zzq"', "*,*", '*, "zzq"', '"zzq\xe9"', "*zzq", ",")
SEQUENCES: Final = ("", "-1", "1.0", "1e3", "9223372036854775808", "zzq", "+1", "0x1", "1_0")
RETRY_KEYS: Final = ("", "zzq zzq", "z" * 256, "\xe9zzq", "a\tb")


def headers(operation: Operation) -> Iterator[Hostile]:
    """Header fields of the operation, of any request, and of the transfer."""
    yield from _negotiation(operation)
    yield from _fields_of(operation)
    yield from _framing(operation)
    yield from _senders(operation)


def _negotiation(operation: Operation) -> Iterator[Hostile]:
    if operation.body is not None:
        for name, media_type in MEDIA_TYPES.items():
            raw = operation.request(media_type=media_type)
            yield hostile(f"B57 {name}", raw, "unsupported-media-type")
        for coding in ENCODINGS:
            raw = operation.request(f"Content-Encoding: {coding}")
            yield hostile(f"B56 {coding}", raw, "unsupported-encoding")
        raw = operation.request("Content-Encoding: identity", "Content-Encoding: gzip")
        yield hostile("B56 twice", raw, "unsupported-encoding")
    if operation.path.endswith("/messages") and operation.method == "POST":
        for media_type in (TEXT, BYTES):
            yield hostile(f"B57 {media_type}", operation.request(media_type=media_type),
                          "unsupported-media-type")  # fmt: skip
    if operation.is_stream:
        for accept in (JSON, "text/html", "*/*;q=0", "text/event-stream;q=0", "zzq"):
            yield hostile(f"B75 {accept}", operation.request(f"Accept: {accept}"),
                          "not-acceptable")  # fmt: skip
    if CSV in operation.answers:
        for accept in ("text/html", "text/csv;q=0", "*/*;q=0", "text/csvx", "zzq"):
            yield hostile(f"B75 {accept}", operation.request(f"Accept: {accept}"), "not-acceptable")


def _fields_of(operation: Operation) -> Iterator[Hostile]:
    if "Last-Event-ID" in operation.headers:
        yield from _event_ids(operation)
    if operation.place in TOPIC_CHANGES:
        yield from _preconditions(operation)
    if operation.path.endswith("/messages") and operation.method == "POST":
        yield from _publishing(operation)
    if operation.path.endswith("/commits") or operation.place == REMOVAL:
        target = operation.target() + ("" if operation.body else f"?key={STEPS['record_key']}")
        raw = operation.request("Idempotency-Key: zzq", target=target)
        yield hostile("B65 a key without effect", raw, "message-invalid")


def _event_ids(operation: Operation) -> Iterator[Hostile]:
    for text in EVENT_IDS:
        raw = operation.request(f"Last-Event-ID: {text}")
        yield hostile(f"B71 {text[:9]}", raw, "bookmark-invalid")
    raw = operation.request("Last-Event-ID: a-1", "Last-Event-ID: a-2")
    yield hostile("B72 two ids", raw, "bookmark-invalid")


def _preconditions(operation: Operation) -> Iterator[Hostile]:
    for name in ("If-Match", "If-None-Match"):
        for tag in TAGS:
            # A condition that cannot be read is not met, and none of them means "any".
            raw = operation.request(f"{name}: {tag}")
            codes = ("precondition-failed", "message-invalid")
            yield hostile(f"B44 {name} {tag}", raw, *codes)
    yield hostile("B44 stale", operation.request('If-Match: "zzq"'), "precondition-failed")


def _publishing(operation: Operation) -> Iterator[Hostile]:
    for name in ("Idempotency-Key", "Tidegate-Stage"):
        for key in RETRY_KEYS:
            raw = operation.request(f"{name}: {key}")
            yield hostile(f"B65 {name} {key[:9]}", raw, "message-invalid")
        raw = operation.request(f"{name}: a", f"{name}: a")
        yield hostile(f"B65 {name} twice", raw, "message-invalid")
    for number in SEQUENCES:
        raw = operation.request("Tidegate-Producer: p", f"Tidegate-Sequence: {number}")
        yield hostile(f"B66 {number}", raw, "message-invalid")
    yield hostile("B66 alone", operation.request("Tidegate-Sequence: 1"), "message-invalid")
    for text in ("", "zzq", "never, never", "NEVER"):
        raw = operation.request(f"Tidegate-Conflate: {text}")
        yield hostile(f"conflate {text}", raw, "message-invalid")


def _framing(operation: Operation) -> Iterator[Hostile]:
    yield hostile("B80 many fields", operation.request(*[f"X-{n}: zzq" for n in range(101)]),
                  "headers-too-large")  # fmt: skip
    raw = operation.request("X: " + "z" * HEADER_BYTES)
    yield hostile("B80 a large field", raw, "headers-too-large")
    for name, line in (
        ("B79 a length and chunks", "Transfer-Encoding: chunked"),
        ("B79 two codings", "Transfer-Encoding: gzip, chunked"),
        ("B79 another coding", "Transfer-Encoding: zzq"),
        ("B79 a negative length", "Content-Length: -1"),
        ("B79 a plus", "Content-Length: +5"),
        ("B79 a space before the colon", "X : zzq"),
        ("B79 a folded line", "X: a\r\n zzq"),
        ("B79 NUL", "X: a\0zzq"),
        ("B79 no colon", "zzq"),
    ):
        raw = operation.request(line, body=b"{}" if operation.body else b"")
        yield hostile(name, raw, "message-invalid")
    yield hostile("HTTP/2", operation.request().replace(b"HTTP/1.1", b"HTTP/2.0", 1),
                  "message-invalid")  # fmt: skip
    yield hostile("HTTP/0.9", operation.request().replace(b" HTTP/1.1", b"", 1), "message-invalid")


def _senders(operation: Operation) -> Iterator[Hostile]:
    if operation.path in HEALTH_PATHS:  # probes ask by address, and learn no names
        return
    for host in ("zzq.example", "localhost.zzq", "127.0.0.1:1@zzq", "localhost:zzq", "[::1]zzq"):
        raw = operation.request(host=host)
        yield hostile(f"B77 {host}", raw, "host-not-allowed")
    yield hostile("B77 two hosts", operation.request("Host: localhost"), "host-not-allowed")
    raw = operation.request().replace(b"Host: localhost\r\n", b"", 1)
    yield hostile("B77 none", raw, "host-not-allowed")
    raw = operation.request(target="http://zzq.example" + operation.target())
    yield hostile("B77 another target", raw, "host-not-allowed")
    if operation.method == "GET":
        return
    for origin in ("null", "http://zzq.example", "http://localhost.zzq", "file://zzq", ""):
        raw = operation.request(f"Origin: {origin}")
        yield hostile(f"B78 {origin}", raw, "origin-not-allowed")
    raw = operation.request("Sec-Fetch-Site: cross-site")
    yield hostile("B78 a page that hides its origin", raw, "origin-not-allowed")


def credentials(operation: Operation) -> Iterator[Hostile]:
    """Requests of nobody: sent without the token that all others have."""
    for name, lines in (
        ("B87 none", ()),
        ("B87 Bearer alone", ("Authorization: Bearer",)),
        ("B87 Basic", ("Authorization: Basic zzq",)),
        ("B87 two", ("Authorization: Bearer zzq", "Authorization: Bearer zzq")),
        ("B93 no token", ("Authorization: Bearer zzq",)),
        ("B93 five parts", ("Authorization: Bearer a.b.c.d.e",)),
        ("B93 long", ("Authorization: Bearer " + "z" * 9_000,)),
        ("B93 no ASCII", ("Authorization: Bearer \xe9.\xe9.\xe9",)),
        ("B88 none", ("Authorization: Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ6enEifQ.",)),
        ("a cookie", ("Cookie: __Host-tidegate=zzq",)),
        ("two cookies", ("Cookie: __Host-tidegate=a; __Host-tidegate=b",)),
    ):
        yield hostile(name, operation.request(*lines), "unauthenticated")
    for name, query in (("B95 access_token", "access_token=zzq"), ("B97 ticket", "ticket=zzq")):
        target = f"{operation.target()}?{query}"
        yield hostile(name, operation.request(target=target), "unauthenticated")
