"""`/v1/lanes`: what equal subscriptions share, and how many share it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from tidegate.app.gateway import gateway_of
from tidegate.app.http.openapi import answer, problems, ref
from tidegate.app.http.parameters import STRICT, TOPIC_TEXT, Parameters
from tidegate.app.routes.models.operations import Lanes
from tidegate.app.routes.sessions import json_answer
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.options.print import lane_text
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.duration import MILLISECOND, Instant

router = APIRouter(tags=["operations"], dependencies=STRICT)


class Wanted(Parameters):
    """Which lanes."""

    topic: Annotated[str | None, TOPIC_TEXT, Field(description="Only this topic's")] = None


@router.get(
    "/v1/lanes",
    summary="The lanes, each shared by equal subscriptions",
    responses={200: answer("The lanes", ref(Lanes)), **problems("topic-unknown", "topic-invalid")},
)
async def lanes(request: Request, asked: Annotated[Wanted, Query()]) -> Response:
    """Every lane, by topic; `due_ms` is how long until its next flush, null while it is idle."""
    gateway = gateway_of(request)
    if asked.topic is not None:
        await gateway.catalog.seek(asked.topic)
        names = [gateway.catalog.get(asked.topic).record.name]
    else:
        entries = gateway.catalog.listed("", "", gateway.settings.topics_max)
        names = [entry.record.name for entry in entries]
    driver = gateway.driver
    now = driver.now()
    topics = [driver.engine.topic(name) for name in names]
    told = [_told(topic, lane, now) for topic in topics for lane in _lanes(topic)]
    return json_answer({"lanes": told}, 200)


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
