"""`tidegate.pipelines`: how the queries of pipelines stand, as they tell it themselves.

It is a topic of the gateway's own, but for one thing: whoever calls himself a pipeline may publish
there, and nobody else.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.types import Scope

from app.catalog import Catalog
from app.ingest import PIPELINE_PREFIX
from app.query import header_value, topic_name, writable_topic_name
from app.topic_document import TopicDocument

PIPELINES = "tidegate.pipelines"
STATES = ("starting", "running", "waiting", "failed", "ended")
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_MAYBE: dict[str, Any] = {"type": ["integer", "null"], "minimum": 0}
_RATE: dict[str, Any] = {"type": "number", "minimum": 0}
_FIELDS: dict[str, Any] = {
    "pipeline": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,263}$"},
    "state": {"enum": list(STATES)},
    "batch": _MAYBE,
    "batches": _COUNT,
    "messages": _COUNT,
    "published": _COUNT,
    "dead_letters": _COUNT,
    "rows_per_s": _RATE,
    "batch_s": _RATE,
    "lag": _MAYBE,
    "held_keys": _MAYBE,
    "restarts": _COUNT,
    "error": {"type": "string", "maxLength": 1000},
    "at_ms": _COUNT,
}
_DOCUMENT = TopicDocument.parse(
    msgspec.json.encode(
        {
            "key": ["/pipeline"],
            "schema": {
                "type": "object",
                "properties": _FIELDS,
                "required": list(_FIELDS),
                "additionalProperties": False,
            },
            "history": {"messages": 10_000},
            "description": "How pipelines stand; the newest message of each tells its state.",
        }
    )
)


async def open_pipelines(catalog: Catalog) -> None:
    """Make the topic where it is not there yet."""
    await catalog.put(PIPELINES, _DOCUMENT)


def told_topic_name(scope: Scope) -> str:
    """Like `writable_topic_name`, but that a pipeline may tell how it stands.

    Raises:
        Problem: topic-invalid, topic-read-only, or message-invalid for a header given twice.
    """
    producer = header_value(scope, "tidegate-producer", "message-invalid") or ""
    if producer.startswith(PIPELINE_PREFIX) and topic_name(scope) == PIPELINES:
        return PIPELINES
    return writable_topic_name(scope)
