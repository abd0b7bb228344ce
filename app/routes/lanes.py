"""`/v1/lanes`: what equal subscriptions share, and how many share it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request

from app.gateway import gateway_of
from app.openapi import described
from app.query import checked_topic_name, query_values
from conflation.duration import MILLISECOND, Instant
from conflation.lanes.lane import Lane
from conflation.language.normal import lane_text
from conflation.topics.topic import Topic

router = APIRouter(tags=["operations"])


@router.get(
    "/v1/lanes",
    summary="The lanes, each shared by equal subscriptions",
    openapi_extra=described(path={}, query={"topic": "Only this topic's"}),
)
async def lanes(request: Request) -> dict[str, list[dict[str, Any]]]:
    """Every lane, by topic; `due_ms` is how long until its next flush, null while it is idle."""
    gateway = gateway_of(request)
    wanted = query_values(request.scope, {"topic": "topic-invalid"}).get("topic")
    if wanted is not None:
        await gateway.catalog.seek(checked_topic_name(wanted))
        names = [gateway.catalog.get(wanted).record.name]
    else:
        entries = gateway.catalog.listed("", "", gateway.settings.topics_max)
        names = [entry.record.name for entry in entries]
    driver = gateway.driver
    now = driver.now()
    topics = [driver.engine.topic(name) for name in names]
    return {"lanes": [_told(topic, lane, now) for topic in topics for lane in _lanes(topic)]}


def _lanes(topic: Topic) -> Iterator[Lane]:
    for feed in topic.feeds.values():
        yield from feed.lanes.values()


def _told(topic: Topic, lane: Lane, now: Instant) -> dict[str, Any]:
    due = lane.deadline
    return {
        "topic": topic.name,
        "lane": lane_text(lane.id),
        "subscriptions": len(lane.members),
        "interval_ms": lane.id.interval_ns // MILLISECOND,
        "position": str(topic.bookmark(lane.low_water())),
        "due_ms": None if due is None else max(0, due - now) // MILLISECOND,
    }
