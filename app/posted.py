"""A posted request: the parameters as a JSON object of texts."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request

from app.problems import Problem, unknown_field
from app.publish_request import MERGE_PATCH
from app.query import content_type, query_values, read_body
from keys.errors import JsonInvalid
from keys.jsontext import check_json, decoded

REQUEST_BYTES_MAX = 64 << 10
JSON = "application/json"
CHANGES = (MERGE_PATCH, JSON)
"""Media types of a PATCH."""


async def posted_texts(request: Request, parameters: Mapping[str, str]) -> dict[str, str]:
    """The fields of a request's body, all of them texts; the query has none.

    Args:
        request: of type application/json.
        parameters: name of each field -> code of the problem when it is no text.

    Raises:
        Problem: options-invalid, a field's own code with a pointer to it, or what stands against
            reading the body at all.
    """
    return texts_of(await posted_body(request), parameters)


async def posted_body(
    request: Request, media_types: tuple[str, ...] = (JSON,), *, may_be_empty: bool = False
) -> bytes:
    """A request's JSON body, unread; the query has nothing.

    Raises:
        Problem: it cannot be read, or is no JSON by its type; one that may be empty needs no type.
    """
    query_values(request.scope, {})
    has_type = any(name == b"content-type" for name, _ in request.scope["headers"])
    if has_type or not may_be_empty:
        content_type(request.scope, media_types)
    body = await read_body(request, REQUEST_BYTES_MAX)
    if body and not has_type:
        content_type(request.scope, media_types)
    return body


def texts_of(body: bytes, parameters: Mapping[str, str]) -> dict[str, str]:
    """The fields of a strict JSON object, all of them texts.

    Raises:
        Problem: as `posted_texts`.
    """
    try:
        check_json(body)
        document = decoded(body)
    except JsonInvalid as error:
        raise Problem("options-invalid", f"{error.detail}.", position=error.position) from None
    if not isinstance(document, dict):
        raise Problem("options-invalid", "The request is a JSON object.")
    for name, value in document.items():
        if name not in parameters:
            raise unknown_field("options-invalid", document, parameters)
        if not isinstance(value, str):
            raise Problem(parameters[name], f"{name} is a text.", pointer=f"/{name}")
    return document
