"""The table of bad requests, each with the answer that it must get.

The names begin with the row of the bad-input catalogue that they stand for, where there is one.
`zzq` marks what a client sent: it must not come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

MESSAGE_BYTES_MAX = 2_048
REQUEST_BYTES_MAX = 16_384
NDJSON = "application/x-ndjson"
JSON = "application/json"
PATCH = "application/merge-patch+json"
TEXT = "text/plain"
BYTES = "application/octet-stream"


@dataclass(frozen=True)
class Bad:
    """A request, and the answer that it must get."""

    name: str
    raw: bytes
    status: int
    code: str
    fields: dict[str, Any]


def bad(
    name: str, method: str, target: str, status: int, code: str, *,
    body: bytes | str | None = None, media_type: str | None = None, headers: tuple[str, ...] = (),
    host: str | None = "localhost", **fields: Any,
) -> Bad:  # fmt: skip
    """A case; `fields` are what else the problem must say."""
    content = body.encode() if isinstance(body, str) else body
    lines = [f"{method} {target} HTTP/1.1", "Connection: close", *headers]
    lines += [] if host is None else [f"Host: {host}"]
    lines += [] if media_type is None else [f"Content-Type: {media_type}"]
    lines += [] if content is None else [f"Content-Length: {len(content)}"]
    raw = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (content or b"")
    return Bad(name, raw, status, code, fields)


def option(name: str, text: str, position: int | None, topic: str = "keyed") -> Bad:
    target = f"/v1/topics/{topic}/subscribe?options={quote(text, safe='')}"
    fields: dict[str, Any] = {} if position is None else {"position": position}
    return bad(f"{name} {text[:40]}", "GET", target, 400, "options-invalid", **fields)


def parameter(name: str, query: str, code: str, topic: str = "keyed", **fields: Any) -> Bad:
    return bad(name, "GET", f"/v1/topics/{topic}/subscribe?{query}", 400, code, **fields)


def posted(name: str, body: bytes | str, status: int, code: str, **more: Any) -> Bad:
    target = f"/v1/topics/{more.pop('topic', 'keyed')}/messages{more.pop('query', '')}"
    media_type = more.pop("media_type", NDJSON)
    return bad(name, "POST", target, status, code, body=body, media_type=media_type, **more)


def put(name: str, body: bytes | str, status: int, code: str, **more: Any) -> Bad:
    target = f"/v1/topics/{more.pop('topic', 'made')}"
    media_type = more.pop("media_type", JSON)
    return bad(name, "PUT", target, status, code, body=body, media_type=media_type, **more)


def path(name: str, topic: str, code: str = "topic-invalid", status: int = 400) -> Bad:
    return bad(
        name, "POST", f"/v1/topics/{topic}/messages", status, code, body=b"1", media_type=JSON
    )


def header(name: str, *headers: str, status: int = 400, code: str = "message-invalid") -> Bad:
    return posted(name, '{"k":1}', status, code, headers=headers)


FROM_KEYED = '{"topic":"keyed","interval":"1s"}'
SOURCE = '{"source":{"topic":"%s","interval":"1s","engine":"spark"}}'

OPTIONS = [
    option("B1", "conflation=", 11),
    option("B1", "conflation", 10),
    option("B2", "conflation=0", 11),
    option("B2", "conflation=0ms", 11),
    option("B3", "conflation=-1s", 11),
    option("B3", "conflation=+5s", 11),
    option("B4", "conflation=2", 11),
    option("B5", "conflation=NaN", 11),
    option("B5", "conflation=inf", 11),
    option("B5", "conflation=1e3s", 11),
    option("B5", "conflation=1_000ms", 11),
    option("B5", "conflation=0x10s", 11),
    option("B5", "conflation=1.5s", 11),
    option("B6", "conflation=\u0662s", 11),
    option("B6", "conflation=\uff12s", 11),
    option("B7", "conflation=999us", 11),
    option("B8", "conflation=25h", 11),
    option("B8", "conflation=" + "9" * 400 + "s", 11),
    option("B9", "conflation=2 s", 11),
    option("B9", "conflation=2s\u00a0", 11),
    option("B9", "CONFLATION=2s", 0),
    option("B10", "conflation=1s,conflation=2s", 14),
    option("B10", "conflation=1s, conflation=1s", 15),
    option("B11", "conflaton=1s", 0),
    option("B11", "conflation=1s,zzq=1", 14),
    option("B12", ",,", 0),
    option("B12", "=1s", 0),
    option("B12", "conflation=1s,,pace=key", 14),
    option("B12 not yet", "conflation=1s,oof", 14),
    option("B12 not yet", "conflation=auto", 11),
    option("B12 not yet", "bookmark=epoch", 0),
    option("B13", "conflation=1s," + "z" * 4_096, None),
    option("B14", "conflation=1s,conflation_key=[", 29),
    option("B14", "conflation=1s,conflation_key=[]", None),
    option("B14", "conflation=1s,conflation_key=/a", 29),
    option("B14", "conflation=1s,conflation_key=[/a,/a]", 33),
    option("B14", "conflation=1s,conflation_key=[/a, zzq]", 34),
    option("B14", "conflation=1s,conflation_key=[/a,]", 33),
    option("B15", "conflation=1s,conflation_key=[" + "/a" * 65 + "]", 30),
    option("B15", "conflation=1s,conflation_key=[/a//b]", 32),
    option("B15", "conflation=1s,conflation_key=[/../x]", None),
    option("B15", "conflation=1s,conflation_key=[$..zzq]", None),
    option("B17 pace alone", "pace=key", 0),
    option("B17 key alone", "conflation=none,conflation_key=[/k]", 16),
    option("B17 no key", "conflation=1s", 0, topic="plain"),
    option("pace", "conflation=1s,pace=zzq", 19),
]

PARAMETERS = [
    parameter("B19 twice", "options=pace%3Dkey&options=zzq", "options-invalid"),
    parameter("B20 unknown", "zzq=1", "options-invalid"),
    parameter("B20 an upper-case name", "Options=", "options-invalid"),
    parameter("B22 filter not yet", "filter=%2Fzzq+%3D+1", "filter-invalid", position=0),
    parameter("order_by not yet", "order_by=%2Fzzq", "options-invalid"),
    parameter("a filter too long", "filter=" + "z" * 5_000, "filter-invalid"),
    parameter("not UTF-8", "options=%ff", "options-invalid"),
    parameter("format", "format=zzq", "options-invalid"),
    parameter("format not a list", "format=value,batch", "options-invalid"),
    parameter("command", "command=zzq", "options-invalid"),
    parameter("command not yet", "command=delta_subscribe", "options-invalid"),
    parameter("sow without a key", "command=sow", "options-invalid", topic="plain"),
    parameter("B71 colon", "last_event_id=a:b", "bookmark-invalid"),
    parameter("B71 NUL", "last_event_id=a%00", "bookmark-invalid"),
    parameter("B71 long", "last_event_id=" + "z" * 129, "bookmark-invalid"),
]

STREAM = "/v1/topics/keyed/subscribe"
STREAMS = [
    bad("B71 header", "GET", STREAM, 400, "bookmark-invalid", headers=("Last-Event-ID: $zzq",)),
    bad("B71 é", "GET", STREAM, 400, "bookmark-invalid", headers=("Last-Event-ID: \xe9",)),
    bad(
        "B72 two", "GET", STREAM, 400, "bookmark-invalid",
        headers=("Last-Event-ID: a-1", "Last-Event-ID: a-2"),
    ),
    bad("B75", "GET", STREAM, 406, "not-acceptable", headers=("Accept: application/json",)),
    bad("B75 q=0", "GET", STREAM, 406, "not-acceptable", headers=("Accept: */*;q=0",)),
    bad("B42 unknown", "GET", "/v1/topics/zzq/subscribe", 404, "topic-unknown"),
    bad("B76 PUT", "PUT", STREAM, 405, "method-not-allowed"),
    bad("B76 TRACE", "TRACE", STREAM, 405, "method-not-allowed"),
    *(
        bad(f"POST {body[:30]}", "POST", STREAM, 400, "options-invalid",
            body=body, media_type=JSON, **fields)
        for body, fields in (
            ('{"options":', {"position": 11}),
            ("[]", {}),
            ('{"zzq":""}', {}),
            ('{"options":1}', {"pointer": "/options"}),
            ('{"options":null}', {"pointer": "/options"}),
            ('{"options":"pace=zzq"}', {"position": 5}),
            ('{"format":"zzq"}', {}),
        )
    ),
    bad("POST form", "POST", STREAM, 415, "unsupported-media-type", body="options=zzq",
        media_type="application/x-www-form-urlencoded"),
    bad("POST with a query", "POST", STREAM + "?options=", 400, "options-invalid", body="{}",
        media_type=JSON),
]  # fmt: skip

NAMES = [
    path("B37 empty", ""),
    path("B37 long", "z" * 256),
    path("B37 space", "a%20b"),
    path("B38 dots", "%2e%2e"),
    path("B38 slash", "a%2Fb"),
    path("B38 twice encoded", "%252e"),
    path("B38 a dot first", ".a"),
    path("B39 NUL", "a%00"),
    path("B39 CRLF", "a%0d%0aX:zzq"),
    path("B39 not UTF-8", "a%ff"),
    path("B39 surrogate", "a%ED%A0%80"),
    path("B40 star", "*"),
    path("B40 rest", "%3E"),
    path("B40 colon", "a:meta"),
    path("B40 braces", "%7Bslot%7D"),
    path("B40 SYS", "$SYS"),
    path("B40 underscore", "_internal"),
    path("B40 ours", "tidegate.sessions", "topic-read-only", 403),
    path("B41 é", "%C3%A9"),
    path("B41 Cyrillic", "%D0%BErders"),
    bad("B38 elsewhere", "GET", "/v1/topics/keyed/%2e%2e/messages", 404, "not-found"),
    bad("B38 static", "GET", "/static/%2e%2e/main.py", 404, "not-found"),
    bad("B38 static plain", "GET", "/static/../main.py", 404, "not-found"),
    bad("B42 delete", "DELETE", "/v1/topics/zzq", 404, "topic-unknown"),
    bad("B42 sow", "GET", "/v1/topics/zzq/sow", 404, "topic-unknown"),
    bad("B42 journal", "GET", "/v1/topics/zzq/messages", 404, "topic-unknown"),
]

BODIES = [
    posted("B47 empty", b"", 400, "message-invalid"),
    posted("B47 empty JSON", b"", 400, "message-invalid", media_type=JSON),
    posted("B47 not an object", "1\n[]", 422, "key-missing", line=1),
    posted("B48 after the end", '{"k":1} zzq', 400, "message-invalid", line=1),
    posted("B48 comma", '{"k":1}\n{"k":1,}', 400, "message-invalid", line=2),
    posted("B48 quotes", "{'k':1}", 400, "message-invalid", line=1, position=1),
    posted("B48 comment", '{"k":1}//zzq', 400, "message-invalid", line=1),
    posted("B48 two documents", '{"k":1}{"k":2}', 400, "message-invalid", media_type=JSON),
    posted("B49 NaN", '{"k":1,"v":NaN}', 400, "message-invalid", line=1),
    posted("B49 Infinity", '{"k":1,"v":-Infinity}', 400, "message-invalid", line=1),
    posted("B51 lone surrogate", '{"k":1,"v":"\\ud800"}', 400, "message-invalid", line=1),
    posted("B51 wrong order", '{"k":1,"v":"\\udc00\\ud800"}', 400, "message-invalid", line=1),
    posted("B51 raw", b'{"k":"\xed\xa0\x80"}', 400, "message-invalid", line=1, position=6),
    posted("B52 not UTF-8", b'{"k":1}\n{"k":"\xc0\xaf"}', 400, "message-invalid", line=2),
    posted("B52 BOM", b'\xef\xbb\xbf{"k":1}', 400, "message-invalid", line=1),
    posted("B52 UTF-16", '{"k":1}'.encode("utf-16"), 400, "message-invalid", line=1),
    posted("B52 charset", '{"k":1}', 415, "unsupported-media-type",
           media_type="application/json; charset=latin1"),
    posted("B53 deep", '{"k":1}\n' + "[" * 65 + "]" * 65, 400, "message-invalid", line=2),
    posted("B53 open", "[" * 1_500, 400, "message-invalid", line=1),
    posted("B54 beyond 64 bits", '{"k":18446744073709551616}', 422, "key-invalid", line=1),
    posted("B54 5,000 digits", '{"k":' + "9" * 1_500 + "}", 422, "key-invalid", line=1),
    posted("B55 too large", b" " * (REQUEST_BYTES_MAX + 1), 413, "message-too-large"),
    posted("B56 gzip", b"\x1f\x8bzzq", 415, "unsupported-encoding",
           headers=("Content-Encoding: gzip",)),
    posted("B57 text", "zzq", 415, "unsupported-media-type", media_type="text/plain"),
    posted("B57 none", '{"k":1}', 415, "unsupported-media-type", media_type=None),
    posted("B57 like JSON", '{"k":1}', 415, "unsupported-media-type",
           media_type="application/jsonx"),
    posted("B58 control", b'{"k":"a\x01zzq"}', 400, "message-invalid", line=1),
    posted("B59 missing", '{"k":1}\n{"zzq":1}', 422, "key-missing", line=2),
    posted("B59 null", '{"k":null}', 422, "key-invalid", line=1),
    posted("B59 object", '{"k":{"zzq":1}}', 422, "key-invalid", line=1),
    posted("B59 array", '{"k":[1]}', 422, "key-invalid", line=1),
    posted("B64 the last of many", '{"k":1}\n' * 5 + "zzq", 400, "message-invalid", line=6),
    posted("B64 too many", '{"k":1}\n' * 101, 413, "message-too-large"),
    posted("B67 a large message", '{"k":"' + "z" * MESSAGE_BYTES_MAX + '"}', 413,
           "message-too-large", line=1),
    posted("auto-created by nothing bad", '{"k":', 400, "message-invalid", line=1, topic="zzq"),
    posted("read-only", '{"k":1}', 403, "topic-read-only", topic="filled"),
    posted("ack", '{"k":1}', 400, "options-invalid", query="?ack=zzq"),
    posted("ack that cannot be kept", '{"k":1}', 400, "options-invalid", query="?ack=persisted"),
    posted("delta", '{"k":1}', 400, "options-invalid", query="?delta=yes"),
    posted("a patch that is none", '{"k":1}', 400, "options-invalid", query="?delta=false",
           media_type=PATCH),
    posted("a delta of bytes", "zzq", 400, "options-invalid", query="?delta=true",
           media_type=BYTES, topic="bytes"),
    posted("a delta without records", '{"zzq":1}', 400, "message-invalid", media_type=PATCH,
           topic="plain"),
    posted("a delta to nobody", '{"zzq":1}', 400, "message-invalid", media_type=PATCH,
           topic="zzq"),
    posted("a delta without its key", '{"k":1}\n{"zzq":1}', 422, "key-missing",
           query="?delta=true", line=2),
    posted("a delta that is no object", "[1]", 422, "key-missing", media_type=PATCH),
    posted("a delta that breaks the schema", '{"k":1,"v":"zzq"}', 422, "schema-violation",
           media_type=PATCH, topic="checked", pointer="/v"),
    posted("a delta to a filled topic", '{"k":1}', 403, "topic-read-only", media_type=PATCH,
           topic="slow"),
    posted("schema", '{"k":1}\n{"k":2,"v":"zzq"}', 422, "schema-violation", topic="checked",
           line=2, pointer="/v"),
    posted("no text", b"a\xffzzq", 400, "message-invalid", media_type=TEXT, topic="text",
           position=1),
    posted("a large text", "z" * (MESSAGE_BYTES_MAX + 1), 413, "message-too-large",
           media_type=TEXT, topic="text"),
    posted("JSON for text", '{"k":1}', 415, "unsupported-media-type", topic="text"),
    posted("text for bytes", "zzq", 415, "unsupported-media-type", media_type=TEXT,
           topic="bytes"),
    posted("bytes for nobody", "zzq", 415, "unsupported-media-type", media_type=BYTES,
           topic="zzq"),
    posted("into a conflated topic", '{"k":1}', 403, "topic-read-only", topic="slow"),
    posted("unknown parameter", '{"k":1}', 400, "options-invalid", query="?zzq=1"),
]  # fmt: skip

PRODUCERS = [
    header("B65 not yet", "Idempotency-Key: zzq"),
    header("stages not yet", "Tidegate-Stage: zzq"),
    header("Tidegate-Conflate", "Tidegate-Conflate: zzq"),
    header("Tidegate-Conflate in capitals", "Tidegate-Conflate: Never"),
    header("Tidegate-Conflate twice", "Tidegate-Conflate: never", "Tidegate-Conflate: never"),
    header("B66 number alone", "Tidegate-Sequence: 1"),
    header("B66 name alone", "Tidegate-Producer: zzq"),
    header("B66 empty name", "Tidegate-Producer: ", "Tidegate-Sequence: 1"),
    header("B66 negative", "Tidegate-Producer: p", "Tidegate-Sequence: -1"),
    header("B66 too large", "Tidegate-Producer: p", f"Tidegate-Sequence: {2**63}"),
    header("B66 text", "Tidegate-Producer: p", "Tidegate-Sequence: zzq"),
    header("B66 underscore", "Tidegate-Producer: p", "Tidegate-Sequence: 1_0"),
    header("B66 twice", "Tidegate-Producer: p", "Tidegate-Sequence: 1", "Tidegate-Sequence: 2"),
    header("B66 long name", "Tidegate-Producer: " + "z" * 256, "Tidegate-Sequence: 1"),
    header("B66 é", "Tidegate-Producer: \xe9", "Tidegate-Sequence: 1"),
]

DOCUMENTS = [
    put("B47 empty", b"", 400, "topic-invalid"),
    put("B47 array", "[]", 400, "topic-invalid"),
    put("B48", '{"key":[]} zzq', 400, "topic-invalid"),
    put("B51", '{"description":"\\ud800"}', 400, "topic-invalid"),
    put("B57", "{}", 415, "unsupported-media-type", media_type="text/plain"),
    put("B62 unknown field", '{"zzq":1}', 400, "topic-invalid"),
    put("B63 type", '{"key":"/zzq"}', 422, "key-invalid", pointer="/key"),
    put("B14 path", '{"key":["zzq"]}', 422, "key-invalid", pointer="/key"),
    put("B16 policy", '{"conflation":"zzq"}', 422, "policy-invalid", pointer="/conflation"),
    put("B16 not yet", '{"conflation":"always"}', 422, "policy-invalid", pointer="/conflation"),
    put("B16 a series", '{"type":"series","conflation":"conflate"}', 422, "policy-invalid",
        pointer="/conflation"),
    put("type", '{"type":"zzq"}', 400, "topic-invalid", pointer="/type"),
    put("a text with a key", '{"type":"text","key":["/zzq"]}', 400, "topic-invalid",
        pointer="/key"),
    put("options", '{"options":"oof,zzq=1"}', 400, "options-invalid", pointer="/options",
        position=4),
    put("options of a series", '{"type":"series","options":"conflation=1s"}', 400,
        "options-invalid", pointer="/options", position=0),
    put("placement", '{"placement":"zzq"}', 400, "topic-invalid", pointer="/placement"),
    put("match", '{"match":"zzq:zzq"}', 400, "topic-invalid", pointer="/match"),
    put("merge", '{"merge":"os:system"}', 400, "topic-invalid", pointer="/merge"),
    put("a reducer", '{"merge":{"/px":"zzq"}}', 400, "topic-invalid", pointer="/merge"),
    put("retain", '{"retain":"zzq"}', 400, "topic-invalid", pointer="/retain"),
    put("priority", '{"priority":"zzq"}', 400, "topic-invalid", pointer="/priority"),
    put("B68 expiration", '{"expiration":"-1s"}', 400, "topic-invalid", pointer="/expiration"),
    put("schema", '{"schema":{"type":"zzq"}}', 400, "topic-invalid", pointer="/schema/type"),
    put("a schema elsewhere", '{"schema":{"$ref":"http://127.0.0.1:1/zzq"}}', 400,
        "topic-invalid", pointer="/schema"),
    put("source filter", '{"source":{"topic":"keyed","interval":"1s","filter":"/zzq ="}}', 400,
        "filter-invalid", pointer="/source/filter", position=6),
    put("source projection",
        '{"source":{"topic":"keyed","interval":"1s","grouping":["/a"],"projection":["zzq"]}}', 400,
        "topic-invalid", pointer="/source/projection"),
    put("source interval", '{"source":{"topic":"keyed","interval":"99ms"}}', 400, "topic-invalid",
        pointer="/source/interval"),
    put("source engine", '{"source":{"topic":"keyed","interval":"1s","engine":"zzq"}}', 400,
        "topic-invalid", pointer="/source/engine"),
    put("another key than its source", '{"key":["/zzq"],"source":' + FROM_KEYED + "}", 400,
        "topic-invalid", pointer="/key"),
    put("no key at all", '{"source":{"topic":"plain","interval":"1s"}}', 400, "topic-invalid",
        pointer="/key"),
    put("a source of text", '{"key":["/k"],"source":{"topic":"text","interval":"1s"}}', 400,
        "topic-invalid", pointer="/source/topic"),
    put("a gateway's circle", '{"source":{"topic":"slow","interval":"1s"}}', 409, "source-cycle",
        topic="keyed", pointer="/source/topic"),
    put("another type", '{"type":"series"}', 409, "topic-conflict", topic="plain",
        pointer="/type"),
    put("B68 history", '{"history":{"age":"-1s"}}', 400, "topic-invalid", pointer="/history/age"),
    put("B63 history", '{"history":{"messages":"1000"}}', 400, "topic-invalid",
        pointer="/history/messages"),
    put("no such source", SOURCE % "zzq", 404, "topic-unknown", pointer="/source/topic"),
    put("its own source", SOURCE % "made", 409, "source-cycle", pointer="/source/topic"),
    put("a circle", SOURCE % "filled", 409, "source-cycle", topic="keyed",
        pointer="/source/topic"),
    put("B43 another key", '{"key":["/zzq"]}', 409, "topic-conflict", topic="plain",
        pointer="/key"),
    put("B43 another key of a source", '{"key":["/zzq"]}', 409, "topic-in-use", topic="keyed",
        pointer="/key"),
    put("B44 stale", '{"key":["/k"]}', 412, "precondition-failed", topic="keyed",
        headers=('If-Match: "zzq"',)),
    put("B44 none there", "{}", 412, "precondition-failed", headers=("If-Match: *",)),
    put("B44 there already", '{"key":["/k"]}', 412, "precondition-failed", topic="keyed",
        headers=("If-None-Match: *",)),
    put("ours", "{}", 403, "topic-read-only", topic="tidegate.zzq"),
    bad("in use", "DELETE", "/v1/topics/keyed", 409, "topic-in-use"),
    bad("B44 delete", "DELETE", "/v1/topics/plain", 412, "precondition-failed",
        headers=('If-Match: "zzq"',)),
    bad("patch nobody", "PATCH", "/v1/topics/zzq", 404, "topic-unknown", body="{}",
        media_type=PATCH),
    bad("patch to no object", "PATCH", "/v1/topics/keyed", 400, "topic-invalid", body="[]",
        media_type=PATCH),
    bad("patch what is not there", "PATCH", "/v1/topics/keyed", 400, "topic-invalid",
        body='{"zzq":1}', media_type=PATCH),
    bad("patch with a comma", "PATCH", "/v1/topics/keyed", 400, "topic-invalid", body="{,}",
        media_type=PATCH),
    bad("patch a field", "PATCH", "/v1/topics/keyed", 422, "policy-invalid",
        body='{"conflation":"zzq"}', media_type=PATCH, pointer="/conflation"),
    bad("patch in text", "PATCH", "/v1/topics/keyed", 415, "unsupported-media-type", body="{}",
        media_type=TEXT),
    bad("patch stale", "PATCH", "/v1/topics/keyed", 412, "precondition-failed", body="{}",
        media_type=PATCH, headers=('If-Match: "zzq"',)),
    bad("patch ours", "PATCH", "/v1/topics/tidegate.zzq", 403, "topic-read-only", body="{}",
        media_type=PATCH),
]  # fmt: skip

READS = [
    bad("limit 0", "GET", "/v1/topics?limit=0", 400, "options-invalid"),
    bad("limit 1_0", "GET", "/v1/topics?limit=1_0", 400, "options-invalid"),
    bad("limit 10^20", "GET", "/v1/topics?limit=1" + "0" * 20, 400, "options-invalid"),
    bad("list zzq", "GET", "/v1/topics?zzq=1", 400, "options-invalid"),
    bad("get with a query", "GET", "/v1/topics/keyed?zzq=1", 400, "options-invalid"),
    bad("B71 from", "GET", "/v1/topics/keyed/messages?from=zzq", 400, "bookmark-invalid"),
    bad("B71 from -", "GET", "/v1/topics/keyed/messages?from=a-01", 400, "bookmark-invalid"),
    bad("B73 epoch", "GET", "/v1/topics/keyed/messages?from=zzq-1", 410, "bookmark-expired"),
    bad("journal limit", "GET", "/v1/topics/keyed/messages?limit=-1", 400, "options-invalid"),
    bad("sow filter", "GET", "/v1/topics/keyed/sow?filter=zzq", 400, "filter-invalid",
        position=0),
    bad("a sow filter too long", "GET", "/v1/topics/keyed/sow?filter=" + "z" * 5_000, 400,
        "filter-invalid"),
    bad("a sow filter on text", "GET", "/v1/topics/text/sow?filter=TRUE", 400, "filter-invalid"),
    bad("sow order", "GET", "/v1/topics/keyed/sow?order_by=/a,zzq", 400, "options-invalid",
        position=3),
    bad("sow select", "GET", "/v1/topics/keyed/sow?select=zzq", 400, "options-invalid",
        position=0),
    bad("sow top_n", "GET", "/v1/topics/keyed/sow?top_n=0", 400, "options-invalid"),
    bad("sow skip_n", "GET", "/v1/topics/keyed/sow?top_n=1&skip_n=-1", 400, "options-invalid"),
    bad("sow skip_n alone", "GET", "/v1/topics/keyed/sow?skip_n=1", 400, "options-invalid"),
    bad("a record with a filter", "GET", "/v1/topics/keyed/sow/%5B1%5D?filter=TRUE", 400,
        "options-invalid"),
    bad("sow format", "GET", "/v1/topics/keyed/sow?format=zzq", 400, "options-invalid"),
    bad("sow key", "GET", "/v1/topics/keyed/sow/zzq", 422, "key-invalid"),
    bad("sow no key", "GET", "/v1/topics/keyed/sow/", 422, "key-invalid"),
    bad("sow nested", "GET", "/v1/topics/keyed/sow/%5B%5B1%5D%5D", 422, "key-invalid"),
    bad("sow not UTF-8", "GET", "/v1/topics/keyed/sow/%ff", 422, "key-invalid"),
    bad("sow surrogate", "GET", "/v1/topics/keyed/sow/%5B%22%5Cud800%22%5D", 422, "key-invalid"),
    bad("no record", "GET", "/v1/topics/keyed/sow/%5B%22zzq%22%5D", 404, "record-unknown"),
    bad("no record of 1 and 2", "GET", "/v1/topics/keyed/sow/%5B1,2%5D", 404, "record-unknown"),
    bad("sow without a key", "GET", "/v1/topics/plain/sow", 400, "options-invalid"),
    bad("delete nothing said", "DELETE", "/v1/topics/keyed/sow", 400, "options-invalid"),
    bad("delete both said", "DELETE", "/v1/topics/keyed/sow?key=%5B1%5D&filter=TRUE", 400,
        "options-invalid"),
    bad("delete by zzq", "DELETE", "/v1/topics/keyed/sow?zzq=1", 400, "options-invalid"),
    bad("delete a bad key", "DELETE", "/v1/topics/keyed/sow?key=zzq", 422, "key-invalid"),
    bad("delete a bad filter", "DELETE", "/v1/topics/keyed/sow?filter=/k+%3D", 400,
        "filter-invalid", position=4),
    bad("delete an empty filter", "DELETE", "/v1/topics/keyed/sow?filter=", 400,
        "filter-invalid"),
    bad("delete of a plain topic", "DELETE", "/v1/topics/plain/sow?filter=TRUE", 400,
        "options-invalid"),
    bad("delete of nobody", "DELETE", "/v1/topics/zzq/sow?filter=TRUE", 404, "topic-unknown"),
    bad("delete of a filled topic", "DELETE", "/v1/topics/slow/sow?filter=TRUE", 403,
        "topic-read-only"),
    bad("delete of ours", "DELETE", "/v1/topics/tidegate.x/sow?filter=TRUE", 403,
        "topic-read-only"),
    bad("delete one by path", "DELETE", "/v1/topics/keyed/sow/%5B1%5D", 405,
        "method-not-allowed"),
]  # fmt: skip

REQUESTS = [
    bad("nowhere", "GET", "/zzq", 404, "not-found"),
    bad("a slash too many", "GET", "/healthz/", 404, "not-found"),
    bad("B76 method", "DELETE", "/healthz", 405, "method-not-allowed"),
    bad("B77 another host", "GET", "/v1/topics", 421, "host-not-allowed", host="zzq.example"),
    bad("B77 a longer host", "GET", "/v1/topics", 421, "host-not-allowed",
        host="localhost.zzq.example"),
    bad("B77 a user", "GET", "/v1/topics", 421, "host-not-allowed", host="127.0.0.1:1@zzq"),
    bad("B77 none", "GET", "/v1/topics", 400, "host-not-allowed", host=None),
    bad("B77 two", "GET", "/v1/topics", 400, "host-not-allowed", headers=("Host: zzq",)),
    bad("B77 target", "GET", "http://zzq.example/v1/topics", 400, "host-not-allowed"),
    bad("B79 two lengths", "POST", "/v1/topics/keyed/messages", 400, "message-invalid",
        body='{"k":1}', media_type=NDJSON, headers=("Transfer-Encoding: chunked",)),
    bad("B80 many headers", "GET", "/v1/topics", 431, "headers-too-large",
        headers=tuple(f"X-{n}: zzq" for n in range(101))),
    bad("B80 a large header", "GET", "/v1/topics", 431, "headers-too-large",
        headers=("X: " + "z" * 17_000,)),
    bad("B80 a long target", "GET", "/v1/topics?prefix=" + "z" * 9_000, 414, "uri-too-long"),
]  # fmt: skip

GROUPS = {
    "options": OPTIONS, "parameter": PARAMETERS, "stream": STREAMS, "name": NAMES,
    "body": BODIES, "producer": PRODUCERS, "document": DOCUMENTS, "read": READS,
    "request": REQUESTS,
}  # fmt: skip
