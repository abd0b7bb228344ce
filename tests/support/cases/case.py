"""A bad request and the answer that it must get, and short words to write one down.

The names begin with the row of the bad-input catalogue that they stand for, where there is one.
`zzq` marks what a client sent: it must not come back, but in the pointer to an unknown field and in
the sentences of `NAMING`.
"""

from __future__ import annotations

import json
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
NAMING = ("there is no topic zzq.", "unknown option zzq")
"""Details that repeat a name: of letters, digits, `.`, `_` and `-`, or of lower-case letters."""


def without_names(problem: str) -> str:
    """Return the text of a problem, in lower case, without the sentences of `NAMING`."""
    for sentence in NAMING:
        problem = problem.replace(sentence, "")
    return problem


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


def committed(
    name: str, changed: dict[str, Any], status: int = 400, code: str = "message-invalid", *,
    topic: str = "keyed", **fields: Any,
) -> Bad:  # fmt: skip
    """A commit with fields changed, those that are None left out."""
    sound = {"producer": "p", "run": 1, "sequence": 1, "stages": ["none"]}
    document = {name: value for name, value in (sound | changed).items() if value is not None}
    return bad(
        f"commit: {name}", "POST", f"/v1/topics/{topic}/commits", status, code,
        body=json.dumps(document), media_type=JSON, **fields,
    )  # fmt: skip


def path(name: str, topic: str, code: str = "topic-invalid", status: int = 400) -> Bad:
    return bad(
        name, "POST", f"/v1/topics/{topic}/messages", status, code, body=b"1", media_type=JSON
    )


def header(name: str, *headers: str, status: int = 400, code: str = "message-invalid") -> Bad:
    return posted(name, '{"k":1}', status, code, headers=headers)
