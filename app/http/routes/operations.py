"""Health, readiness, metrics, and the lanes of the engine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from prometheus_client.core import Metric
from pydantic import Field

from tidegate.app.access.grants import OBSERVE, Grants, forbidden
from tidegate.app.figures import ConnectionFigures
from tidegate.app.gateway import Gateway
from tidegate.app.http.answers import json_answer
from tidegate.app.http.internal_call import MARK
from tidegate.app.http.openapi import answer, name_of, problems, ref
from tidegate.app.http.parameters import STRICT, TOPIC_TEXT
from tidegate.app.http.routes.models.operations import Alive, Lanes, Past, Ready
from tidegate.app.http.scope import FOREIGN, gateway_of, grants_in
from tidegate.app.metrics.exposition import (
    CONTENT_TYPE,
    call_of,
    check_worker_group,
    exposition,
    merge_workers,
)
from tidegate.app.metrics.families import (
    gateway_families,
    polling_families,
    server_families,
    session_families,
    store_families,
)
from tidegate.app.metrics.history import PERIOD_S, History
from tidegate.app.metrics.topics import topic_families, topic_table
from tidegate.app.parameters import Parameters
from tidegate.app.refusals import Refused
from tidegate.app.streams.scheduler import in_turns
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.options.grant import lane_text
from tidegate.conflation.steps import in_pieces
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.duration import MILLISECOND, Instant

FAULTS_SHOWN_MAX = 100
TOPICS_AT_ONCE = 20  # examined in one iteration; each may have 500 lanes
router = APIRouter(tags=["operations"], generate_unique_id_function=name_of)


@router.get("/healthz", summary="Alive", responses={200: answer("Alive", ref(Alive)), **problems()})
# It asks no store: a restart does not help a process whose store is out.
async def healthz() -> Response:
    """Answer 200 as long as the process does."""
    return json_answer({"status": "alive"})


@router.get(
    "/readyz",
    summary="Ready",
    responses={200: answer("Ready", ref(Ready)), **problems("not-ready")},
)
async def readyz(request: Request) -> Response:
    """Answer 200 while the store takes writes, else 503 with the reason.

    `topics`: those that cannot be used or filled while all others are served, with the reasons.
    `bus`: entries under its keys that no gateway wrote, which are ignored. With
    authentication, both are shown only as far as the token of the request grants.
    """
    gateway = gateway_of(request)
    reason = await gateway.unready()
    if reason is not None:
        raise Refused("not-ready", f"The gateway is not ready: {reason}.")
    state: dict[str, Any] = {"status": "ready"}
    # Ready all the same: one topic at fault must not take the traffic of all others away.
    found = gateway.catalog.faults()
    foreign = {} if gateway.bus is None else gateway.bus.connection.foreign
    if not found and not foreign:
        return json_answer(state)
    is_open, grants = await _asker(request)
    if found:
        # A reason tells of the definition: it is for those who may see that.
        shown = [fault for fault in found if is_open or grants.may_define(fault.topic)]
        if shown:
            state["topics"] = [fault._asdict() for fault in shown[:FAULTS_SHOWN_MAX]]
        state["topics_at_fault"] = len(found)
    # Its keys name topics, which `observe` shows in the metrics, too.
    if foreign and (is_open or grants.observes_all):
        found_there = [f"{key}: {what}" for key, what in foreign.items()]
        state["bus"] = found_there[:FAULTS_SHOWN_MAX]
    return json_answer(state)


async def _asker(request: Request) -> tuple[bool, Grants]:
    """Return True if everybody may know all, else the grants of the request's subject."""
    access = request.app.state.access
    if access is None or FOREIGN in request.scope:
        return access is None and FOREIGN not in request.scope, Grants()
    # Its libraries are not there without authentication.
    from tidegate.app.http.guard import subject_of

    # The guard lets everybody ask for readiness: a probe has no token, and a bad one counts as
    # none, so that a token that is over takes no traffic away.
    try:
        return False, (await subject_of(request.scope, access)).grants
    except Refused:
        return False, Grants()


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={
        200: answer("Text", content={CONTENT_TYPE: {"schema": {"type": "string"}}}),
        **problems(),
    },
)
async def metrics(request: Request) -> Response:
    """Return counters that reconcile, of all workers where there are several.

    Looking changes nothing of what is sent.
    """
    grants = grants_in(request.scope)
    if grants is not None and not grants.observes_all:
        # Most figures are sums over topics: what is granted cannot be taken out of them.
        raise forbidden(f"{OBSERVE} of all topics (>)")
    # A worker that another one asks answers for itself: else they would ask each other for ever.
    gateway = gateway_of(request)
    is_inner = MARK in request.scope
    headers = (
        check_worker_group(gateway.worker_group, request.scope["query_string"]) if is_inner else {}
    )
    # The text of 10,000 topics takes more than a second. A thread does not block the loop.
    found = await families(gateway, getattr(request.app.state, "figures", None))
    text = await asyncio.to_thread(exposition, found)
    if gateway.worker_group is not None and not is_inner:
        asked = (
            {}
            if gateway.peers is None
            else await gateway.peers.broadcast(call_of(gateway.worker_group))
        )
        text = await merge_workers(gateway.worker_group, text, asked)
    return Response(text, headers=headers, media_type=CONTENT_TYPE)


@router.get(
    "/v1/history",
    dependencies=STRICT,
    summary="The last hour in rates",
    responses={200: answer("The points", ref(Past)), **problems()},
)
async def history(request: Request) -> Response:
    """Return a point for each half minute of the last hour, oldest first, of this process."""
    grants = grants_in(request.scope)
    if grants is not None and not grants.observes_all:
        raise forbidden(f"{OBSERVE} of all topics (>)")
    found: History = request.app.state.history
    return json_answer({"period_ms": int(1_000 * PERIOD_S), "points": found.points})


async def families(gateway: Gateway, connections: ConnectionFigures | None = None) -> list[Metric]:
    """Return all families of a gateway, with the server's where `connections` is given."""
    driver, sessions = gateway.driver, gateway.sessions
    table = await topic_table(gateway.catalog, driver, gateway.settings.metrics_topics_max)
    of_topics = await asyncio.to_thread(lambda: list(topic_families(table)))
    unsent_bytes = await in_turns(sessions.unsent_bytes())
    is_ready = await gateway.unready() is None
    # Everything that waits stands above: what is counted from here on is of one moment.
    return [
        *gateway_families(
            gateway.settings,
            driver,
            gateway.mergers,
            topics=table.topics,
            at_fault=Counter(fault.state for fault in gateway.catalog.faults()),
            is_ready=is_ready,
        ),
        *of_topics,
        *session_families(driver, sessions.states(), unsent_bytes),
        *polling_families(gateway.polled),
        *store_families(gateway.store, driver.figures),
        *(() if connections is None else server_families(connections)),
    ]


class WantedLanes(Parameters):
    """The topic whose lanes to list."""

    topic: Annotated[str | None, TOPIC_TEXT, Field(description="Only lanes of this topic")] = None


@router.get(
    "/v1/lanes",
    dependencies=STRICT,
    summary="The lanes, each shared by equal subscriptions",
    responses={200: answer("The lanes", ref(Lanes)), **problems("topic-unknown", "topic-invalid")},
)
async def lanes(request: Request, asked: Annotated[WantedLanes, Query()]) -> Response:
    """Return every lane, by topic; `due_ms` is the time to its next flush, null while idle."""
    gateway = gateway_of(request)
    grants = grants_in(request.scope)
    if asked.topic is not None:
        if grants is not None:
            grants.require(OBSERVE, asked.topic)
        await gateway.catalog.seek(asked.topic)
        names = [gateway.catalog.get(asked.topic).record.name]
    else:
        entries = gateway.catalog.listed("", "", gateway.settings.topics_max)
        names = [entry.record.name for entry in entries]
        names = [name for name in names if grants is None or grants.may(OBSERVE, name)]
    driver = gateway.driver
    # One time for all lanes, so that their deadlines can be compared.
    now = driver.now()
    topics = [driver.engine.topic(name) for name in names]
    lanes_of = partial(_lane_views, now)
    return json_answer({"lanes": await in_turns(in_pieces(topics, TOPICS_AT_ONCE, lanes_of))})


def _lane_views(now: Instant, topics: Sequence[Topic]) -> list[dict[str, Any]]:
    feeds = [(topic, feed) for topic in topics for feed in topic.feeds.values()]
    return [_view(topic, lane, now) for topic, feed in feeds for lane in feed.lanes.values()]


def _view(topic: Topic, lane: Lane, now: Instant) -> dict[str, Any]:
    due = lane.deadline
    return {
        "topic": topic.name,
        "lane": lane_text(lane.id),
        "subscriptions": len(lane.members),
        "interval_ms": lane.id.interval_ns // MILLISECOND,
        "position": str(topic.bookmark(lane.low_water())),
        # A deadline may have passed while the driver is busy; a client has no use for a negative
        # time.
        "due_ms": None if due is None else max(0, due - now) // MILLISECOND,
    }
