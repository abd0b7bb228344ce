"""Conflated topics inside a FastAPI, Starlette or other ASGI application (docs/embedding.md).

Needs the extra `embed`.
"""

from __future__ import annotations

from tidegate.app.embed.conflated_topic import ConflatedTopic
from tidegate.app.embed.driven_topic import TopicLimits
from tidegate.app.embed.topic_rows import Row, SubscriptionClosed
from tidegate.keys.errors import Refusal

__all__ = ["ConflatedTopic", "Refusal", "Row", "SubscriptionClosed", "TopicLimits"]
