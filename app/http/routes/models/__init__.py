"""Shapes of requests and answers: the schemas of /openapi.json, one module a resource.

Pydantic's, as FastAPI makes its document of them. Answers are typed dictionaries: what a route
writes is checked in the tests against the document, and costs nothing at run time.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import JsonSchemaMode

from tidegate.app.http.openapi import ANSWERED, SENT, Problem
from tidegate.app.http.routes.models import (
    access,
    events,
    messages,
    operations,
    polled,
    sessions,
    topics,
)

COMPONENTS: tuple[tuple[Any, JsonSchemaMode], ...] = (
    *((model, SENT) for model in (*topics.SENT, *messages.SENT, *sessions.SENT, *access.SENT)),
    (Problem, ANSWERED),
    *(
        (model, ANSWERED)
        for module in (topics, messages, sessions, polled, operations, events, access)
        for model in module.ANSWERED
    ),
)
"""Each model, and whether it is what a client sends or what it is answered."""
