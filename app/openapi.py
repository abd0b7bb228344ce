"""What OpenAPI says of a route whose request is read strictly by ourselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.problems import MEDIA_TYPE

TOPIC = {"topic": "Name of the topic: 1 to 255 of A-Z a-z 0-9 . _ -"}
PROBLEM_CONTENT = {
    MEDIA_TYPE: {
        "schema": {
            "type": "object",
            "required": ["type", "title", "status", "detail", "code"],
            "properties": {
                "type": {"type": "string"},
                "title": {"type": "string"},
                "status": {"type": "integer"},
                "detail": {"type": "string"},
                "code": {"type": "string"},
                "position": {"type": "integer"},
                "line": {"type": "integer"},
                "pointer": {"type": "string"},
            },
        }
    }
}


def described(
    *,
    path: Mapping[str, str] = TOPIC,
    query: Mapping[str, str] | None = None,
    header: Mapping[str, str] | None = None,
    body: Sequence[str] = (),
) -> dict[str, Any]:
    """Parameters (name -> meaning) and the media types of a body, as `openapi_extra`."""
    places = (("path", path), ("query", query or {}), ("header", header or {}))
    extra: dict[str, Any] = {
        "parameters": [
            {
                "name": name,
                "in": place,
                "required": place == "path",
                "description": meaning,
                "schema": {"type": "string"},
            }
            for place, parameters in places
            for name, meaning in parameters.items()
        ],
        "responses": {"4XX": {"description": "A problem", "content": PROBLEM_CONTENT}},
    }
    if body:
        content: dict[str, Any] = {media_type: {"schema": {}} for media_type in body}
        extra["requestBody"] = {"required": True, "content": content}
    return extra
