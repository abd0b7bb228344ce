"""Tidegate: a conflating subscription gateway, its client, and its Spark pipeline.

`from tidegate import Gateway` is the Python client; `__all__` names the rest of it. The packages
are folders at the top of the repository (`app conflation keys pipeline clients`); the links beside
this file make them one import name, so that an installed Tidegate can never meet a package `app` or
`keys` of its user's own.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.clients.aio.gateway import AsyncGateway
    from tidegate.clients.aio.live import AsyncLive
    from tidegate.clients.aio.publisher import AsyncPublisher
    from tidegate.clients.aio.session import AsyncSession
    from tidegate.clients.aio.subscription import AsyncSubscription
    from tidegate.clients.answers import Published
    from tidegate.clients.errors import (
        AnswerInvalid,
        CertificateUnusable,
        GatewayError,
        GatewayProblem,
        GatewayUnreachable,
        PublisherStopped,
        StreamLost,
        TokenUnusable,
    )
    from tidegate.clients.gateway import Gateway
    from tidegate.clients.live.live import Live
    from tidegate.clients.live.notebook import LiveView
    from tidegate.clients.publishing.outbox import Limits
    from tidegate.clients.publishing.publisher import Publisher
    from tidegate.clients.replica import Changes, Row
    from tidegate.clients.retry import Retry
    from tidegate.clients.session import Session
    from tidegate.clients.sse import Event
    from tidegate.clients.subscription import Subscription

__version__ = "0.1.0"
HOME = Path(__file__).resolve().parents[1]
"""The folder from which Python imports `tidegate`: what PYTHONPATH of a child process must hold."""

_MODULES = {
    "AnswerInvalid": "errors",
    "AsyncGateway": "aio.gateway",
    "AsyncLive": "aio.live",
    "AsyncPublisher": "aio.publisher",
    "AsyncSession": "aio.session",
    "AsyncSubscription": "aio.subscription",
    "CertificateUnusable": "errors",
    "Changes": "replica",
    "Event": "sse",
    "Gateway": "gateway",
    "GatewayError": "errors",
    "GatewayProblem": "errors",
    "GatewayUnreachable": "errors",
    "Limits": "publishing.outbox",
    "Live": "live.live",
    "LiveView": "live.notebook",
    "Published": "answers",
    "Publisher": "publishing.publisher",
    "PublisherStopped": "errors",
    "Retry": "retry",
    "Row": "replica",
    "Session": "session",
    "StreamLost": "errors",
    "Subscription": "subscription",
    "TokenUnusable": "errors",
}
"""The module below `tidegate.clients` that has each name."""

__all__ = [
    "AnswerInvalid",
    "AsyncGateway",
    "AsyncLive",
    "AsyncPublisher",
    "AsyncSession",
    "AsyncSubscription",
    "CertificateUnusable",
    "Changes",
    "Event",
    "Gateway",
    "GatewayError",
    "GatewayProblem",
    "GatewayUnreachable",
    "Limits",
    "Live",
    "LiveView",
    "Published",
    "Publisher",
    "PublisherStopped",
    "Retry",
    "Row",
    "Session",
    "StreamLost",
    "Subscription",
    "TokenUnusable",
]


def __getattr__(name: str) -> Any:
    """Import a part of the client at its first use: the engine and the keys need none of it."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    return getattr(import_module(f"tidegate.clients.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
