"""The parts of /openapi.json that FastAPI does not read from the routes' signatures.

Answers are declared and never checked at run time: every route returns a finished response.
"""

from __future__ import annotations

import asyncio
import http
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import Field, TypeAdapter
from pydantic.json_schema import JsonSchemaMode
from typing_extensions import TypedDict

from tidegate.app.http.problems import MEDIA_TYPE
from tidegate.app.http.requests import JSON, NDJSON
from tidegate.app.refusals import CODES

Responses = dict[int | str, dict[str, Any]]
Content = dict[str, Any]

EVENT_STREAM = "text/event-stream"
REF = "#/components/schemas/{model}"

EVERYWHERE = ("not-acceptable", "limit-reached", "bus-unavailable", "internal")
"""Codes that any operation under /v1 may answer with."""


class Problem(TypedDict):
    """A refusal, per RFC 9457."""

    type: Annotated[str, Field(description="urn:tidegate:problem: and the code")]
    title: Annotated[str, Field(description="What the code means")]
    status: Annotated[int, Field(description="The HTTP status")]
    detail: Annotated[str, Field(description="One sentence for a person")]
    code: Annotated[
        str, Field(description="Stable, for programs", json_schema_extra={"enum": [*CODES]})
    ]
    position: NotRequired[
        Annotated[int, Field(ge=0, description="0-based character in the text at fault")]
    ]
    line: NotRequired[Annotated[int, Field(ge=1, description="1-based line of an NDJSON body")]]
    pointer: NotRequired[Annotated[str, Field(description="JSON pointer into the body")]]


def header(meaning: str, **schema: Any) -> dict[str, Any]:
    """Describe a header of an answer."""
    return {"description": meaning, "required": True, "schema": {"type": "string", **schema}}


ETAG = {"ETag": header("Tag of the definition, for If-Match and If-None-Match")}
LOCATION = {"Location": header("URL of the created resource")}
BOOKMARK = {"Tidegate-Bookmark": header("Bookmark of the last message that the response includes")}
RETRY_AFTER = {"Retry-After": {**header("Seconds", pattern="^[0-9]+$"), "required": False}}


def name_of(route: APIRoute) -> str:
    """Return the operation's id, which is the name of its function."""
    return route.name


def ref(model: Any) -> dict[str, str]:
    """Refer to a model's schema, which `Api` keeps as a component."""
    return {"$ref": REF.format(model=model.__name__)}


def answer(
    meaning: str,
    schema: Mapping[str, Any] | None = None,
    *,
    headers: Mapping[str, Any] | None = None,
    content: Content | None = None,
) -> dict[str, Any]:
    """Describe one response: JSON with a schema, other content, or none."""
    response: dict[str, Any] = {"description": meaning}
    if headers:
        response["headers"] = dict(headers)
    if schema is not None:
        response["content"] = {JSON: {"schema": dict(schema)}}
    return response | ({"content": content} if content else {})


def lines_of(schema: Mapping[str, Any]) -> Content:
    """Describe NDJSON whose lines have the schema; `itemSchema` is of OpenAPI 3.2."""
    # Both: tools that know only OpenAPI 3.1 see a text.
    return {NDJSON: {"schema": {"type": "string"}, "itemSchema": dict(schema)}}


def events_of(events: Mapping[str, Mapping[str, Any]], unnamed: Mapping[str, Any]) -> Content:
    """Describe server-sent events: the named ones by the schema of their data, and the others."""
    plain = {
        "type": "object",
        "required": ["data"],
        "properties": {"data": _event_data(unnamed)},
    }
    named = [
        {
            "type": "object",
            "required": ["event", "data"],
            "properties": {"event": {"const": name}, "data": _event_data(schema)},
        }
        for name, schema in events.items()
    ]
    items = {"oneOf": [*named, *([plain] if unnamed else [])]}
    return {EVENT_STREAM: {"schema": {"type": "string"}, "itemSchema": items}}


def _event_data(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "string", "contentMediaType": JSON, "contentSchema": dict(schema)}


SUBSCRIBE_CODES = (
    "topic-unknown", "topic-invalid", "options-invalid", "filter-invalid", "bookmark-invalid",
    "bookmark-expired",
)  # fmt: skip
"""Codes of the problems of every request that subscribes."""


def problems(*codes: str) -> Responses:
    """Describe refusals with these codes and those of every operation, by status."""
    # OpenAPI has one answer a status, and several codes share one.
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys((*codes, *EVERYWHERE)):
        by_status.setdefault(CODES[code][0], []).append(code)
    found: Responses = {
        status: {
            "description": f"{http.HTTPStatus(status).phrase}: {', '.join(each)}",
            "content": _PROBLEM,
            **({"headers": RETRY_AFTER} if status in (429, 503) else {}),
        }
        for status, each in sorted(by_status.items())
    }
    # Middleware refuses before any route does: Host, Origin, the size of headers.
    return found | {"4XX": {"description": "Any other refusal", "content": _PROBLEM}}


_PROBLEM: Content = {MEDIA_TYPE: {"schema": ref(Problem)}}


def body(content: Content, *, required: bool = True) -> dict[str, Any]:
    """Describe a request's body, for `openapi_extra`; the route reads it by itself."""
    return {"requestBody": {"required": required, "content": content}}


def json_body(
    model: Any, media_types: Sequence[str] = (JSON,), *, required: bool = True
) -> dict[str, Any]:
    """Describe a body of one schema in any of the media types."""
    return body({name: {"schema": ref(model)} for name in media_types}, required=required)


class Api(FastAPI):
    """FastAPI, whose document has the schemas that routes only refer to."""

    components: Iterable[tuple[Any, JsonSchemaMode]] = ()

    def setup(self) -> None:
        """Serve the document; FastAPI's pages for it load their scripts from another host."""
        text: bytes | None = None

        async def document(request: Request) -> Response:
            nonlocal text
            if text is None:  # in a thread: it takes 0.1 s, which would block streams
                text = await asyncio.to_thread(lambda: msgspec.json.encode(self.openapi()))
            return Response(text, media_type=JSON)

        self.add_route("/openapi.json", document, include_in_schema=False)

    def openapi(self) -> dict[str, Any]:
        """Return the document, which is made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            inputs = [(model, mode, TypeAdapter(model)) for model, mode in self.components]
            _, made = TypeAdapter.json_schemas(inputs, ref_template=REF)
            schemas |= made["$defs"]
            self.openapi_schema = _without_null_defaults(document)
        assert self.openapi_schema is not None
        return self.openapi_schema


def _without_null_defaults(part: Any) -> Any:
    """Return a part of the document without defaults that are null."""
    # Pydantic gives fields that may be left out the default null, which a request may not send.
    if isinstance(part, dict):
        return {
            name: _without_null_defaults(value)
            for name, value in part.items()
            if not (name == "default" and value is None)
        }
    return [_without_null_defaults(each) for each in part] if isinstance(part, list) else part


ANSWERED: Literal["serialization"] = "serialization"
SENT: Literal["validation"] = "validation"
