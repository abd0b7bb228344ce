"""Every operation of /openapi.json, with a sound request that hostile ones are made of.

The gateway of these tests has a topic `keyed` with the record `["a"]`, and a session `known` with
the subscription `s1`. `zzq` marks what a client sent: no answer may repeat it, but in the pointer
to an unknown field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from tests.support.servers import edge_settings
from tidegate.app.http.application import create_app

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
PATCH: Final = "application/merge-patch+json"
TEXT: Final = "text/plain"
BYTES: Final = "application/octet-stream"
CSV: Final = "text/csv"

TOPIC: Final = "/v1/topics/{topic}"
SESSION: Final = "/v1/sessions/{session}"
SUBSCRIPTION: Final = SESSION + "/subscriptions/{sub}"
REMOVAL: Final = ("DELETE", TOPIC + "/sow")
STEPS: Final = {
    "topic": "keyed",
    "record_key": "%5B%22a%22%5D",
    "session": "known",
    "sub": "s1",
}
"""The steps in the path of a sound request, by name."""

BODIES: Final[Mapping[tuple[str, str], Any]] = {
    ("PUT", TOPIC): {"key": ["/k"]},
    ("PATCH", TOPIC): {"description": "x"},
    ("POST", TOPIC + "/messages"): {"k": "a"},
    ("POST", TOPIC + "/commits"): {"producer": "p", "run": 1, "sequence": 1, "stages": ["s"]},
    ("POST", TOPIC + "/subscribe"): {"options": ""},
    ("POST", "/v1/sessions"): {"subscriptions": [{"topic": "keyed"}]},
    ("PATCH", SESSION): {"conflated": False},
    ("POST", SESSION + "/subscriptions"): {"topic": "keyed"},
    ("PATCH", SUBSCRIPTION): {"paused": True},
    ("POST", "/v1/explain"): {"topic": "keyed"},
    ("POST", "/v1/login"): {"token": "zzq"},
}
EMPTY_BODIES: Final = {("POST", "/v1/sessions"), ("POST", "/v1/tickets")}
"""Operations that may come without a body."""


@dataclass(frozen=True)
class Operation:
    """One operation of the document; `media_types` of its body, `answers` those of its answer."""

    method: str
    path: str
    queries: Mapping[str, Mapping[str, Any]]
    headers: Sequence[str]
    media_types: Sequence[str]
    answers: Sequence[str]
    statuses: frozenset[str]
    name: str = field(default="", compare=False)

    @property
    def place(self) -> tuple[str, str]:
        """Method and path, as the tables have them."""
        return self.method, self.path

    @property
    def steps(self) -> list[str]:
        """The names of the parameters in the path."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @property
    def is_stream(self) -> bool:
        """True if it answers with events."""
        return self.path.endswith(("/subscribe", "/events", "/trace"))

    @property
    def body(self) -> bytes | None:
        """A sound body."""
        found = BODIES.get(self.place)
        return None if found is None else json.dumps(found).encode()

    def target(self, **steps: str) -> str:
        """The path with its steps, sound ones where none is given."""
        return self.path.format(**(STEPS | steps))

    def request(
        self,
        *lines: str,
        target: str | None = None,
        body: bytes | None = None,
        media_type: str | None = "",
        method: str | None = None,
        host: str = "localhost",
    ) -> bytes:
        """A request, sound but for what is given; no Content-Type with `media_type` None."""
        content = self.body if body is None else body
        if media_type == "":
            media_type = self.media_types[0] if content is not None and self.media_types else None
        verb = self.method if method is None else method
        head = [f"{verb} {target or self.target()} HTTP/1.1"]
        head += [f"Host: {host}", "Connection: close", *lines]
        head += [] if media_type is None else [f"Content-Type: {media_type}"]
        head += [] if content is None else [f"Content-Length: {len(content)}"]
        return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + (content or b"")


@cache
def document() -> dict[str, Any]:
    """The gateway's description of itself."""
    return create_app(edge_settings()).openapi()


@cache
def operations() -> tuple[Operation, ...]:
    """All operations, in the order of the document."""
    found = []
    for path, methods in document()["paths"].items():
        for method, each in methods.items():
            parameters = each.get("parameters", [])
            found.append(
                Operation(
                    method.upper(),
                    path,
                    {it["name"]: it["schema"] for it in parameters if it["in"] == "query"},
                    tuple(it["name"] for it in parameters if it["in"] == "header"),
                    tuple(each.get("requestBody", {}).get("content", {})),
                    tuple(each["responses"].get("200", {}).get("content", {})),
                    frozenset(each["responses"]),
                    each["operationId"],
                )
            )
    return tuple(found)
