"""What the scope of a request has of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from fastapi import Request
from starlette.types import Scope

from tidegate.app.access.grants import Grants, Subject
from tidegate.app.streams.connection import Connection

if TYPE_CHECKING:
    from tidegate.app.gateway import Gateway

TRANSPORT_EXTENSION: Final = "tidegate.transport"
FOREIGN: Final = "tidegate.foreign"
"""Marks the scope of a probe whose Host is none of ours."""
SUBJECT: Final = "tidegate.subject"
"""The place of the subject in a request's scope, where the guard puts it."""


def gateway_of(request: Request) -> Gateway:
    """Return the gateway that serves a request."""
    return cast("Gateway", request.app.state.gateway)


def subject_in(scope: Scope) -> Subject | None:
    """Return the subject of a request; None without authentication."""
    found: Subject | None = scope.get(SUBJECT)
    return found


def grants_in(scope: Scope) -> Grants | None:
    """Return the grants of a request's subject; None without authentication."""
    found = subject_in(scope)
    return None if found is None else found.grants


def connection_of(scope: Scope) -> Connection | None:
    """Return the connection under a request; None under a server that is not ours."""
    connection: Connection | None = scope.get("extensions", {}).get(TRANSPORT_EXTENSION)
    return connection
