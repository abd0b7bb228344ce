"""`/v1/explain`: what subscribing would do, without doing it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from fastapi import APIRouter, Request, Response

from tidegate.app.access.grants import Grants, check_reading
from tidegate.app.gateway import Gateway
from tidegate.app.http.answers import json_answer
from tidegate.app.http.openapi import answer, json_body, name_of, problems, ref
from tidegate.app.http.parameters import STRICT, posted_parameters
from tidegate.app.http.routes.models.operations import Explained
from tidegate.app.http.routes.models.sessions import Explaining
from tidegate.app.http.scope import gateway_of, grants_in
from tidegate.app.streams.decisions import granted_to
from tidegate.app.streams.subscribe_request import SubscribeRequest
from tidegate.conflation.definition import effective_lane
from tidegate.conflation.options.grant import granted, lane_text
from tidegate.conflation.options.syntax import assignments
from tidegate.conflation.options.table import Options
from tidegate.conflation.sessions.backfill import resume_mode
from tidegate.conflation.subscription import Command, LaneId, Subscription, Window
from tidegate.conflation.topics.recorded import Estimate, estimate
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.projection import Projection
from tidegate.keys.text.duration import duration_text

# Bounds on the work of one answer, as anybody may ask as often as they like.
JOURNALLED_MAX = 10_000
GROUPED_MAX = 500
"""Messages for a projection, each of which may cost as much as its whole group."""
RECORDS_MAX = 100_000

NOTHING_JOURNALLED = "the journal holds no messages"
NO_TIME_PASSED = "the journaled messages are all of one moment"
ONE_SHOT = "a sow is sent once"
TOO_MANY_RECORDS = f"the topic holds more than {RECORDS_MAX} records to look for a window in"

# One thread: estimates are worth no more than one core, however many are asked for.
_ESTIMATES = ThreadPoolExecutor(max_workers=1, thread_name_prefix="explain")


async def explained(
    gateway: Gateway, asked: Explaining, grants: Grants | None = None
) -> dict[str, object]:
    """Return the answer of `POST /v1/explain`.

    Raises:
        Refusal: what subscribing would raise.
    """
    context = gateway.sessions.context
    context.catalog.get(asked.topic)  # is refused before what the request says
    most = gateway.settings.options_characters_max
    request = SubscribeRequest.parse(asked, most, grants=grants)
    # The same call as in subscribing, so an explanation cannot differ from what a stream gets.
    subscription, _, warnings = granted_to(context, asked.topic, request)
    topic = gateway.driver.engine.topic(asked.topic)
    is_live = subscription.command is not Command.SOW
    normal = granted(subscription)
    feed = subscription.lane_id.feed
    return {
        "topic": topic.name,
        "command": subscription.command,
        "options": normal,
        "filter": None if feed.filter is None else str(feed.filter),
        "order_by": None if subscription.order is None else str(subscription.order),
        "defaults": _defaults(normal, asked, subscription.command),
        "warnings": warnings,
        "lane": lane_text(subscription.lane_id) if is_live else None,
        "subscribers": _subscribers(topic, subscription) if is_live else 0,
        "resume": _resume(topic, subscription.lane_id) if is_live else None,
        **await _estimates(topic, subscription),
    }


def _defaults(normal: str, asked: Explaining, command: Command) -> dict[str, object]:
    """Return what holds although the request does not name it; True for a flag."""
    # By name and not by text: a granted value may be spelled in another way than it was asked for.
    options = Options.parse(asked.options or "")
    named = {} if asked.command is not None else {"command": str(command)}
    # `no_defaults` says which options do not hold.
    skipped = {*options.positions, Options.no_defaults.name}
    parts = [part for part in assignments(normal) if part.name not in skipped]
    return named | {part.name: True if part.value is None else part.value for part in parts}


def _subscribers(topic: Topic, subscription: Subscription) -> int:
    lane_id = effective_lane(subscription, topic.definition, conflated=True)
    feed = topic.feeds.get(lane_id.feed)
    lane = None if feed is None else feed.lanes.get(lane_id)
    return 0 if lane is None else len(lane.members)


def _resume(topic: Topic, lane_id: LaneId) -> str:
    """Return how a subscriber that left now would be continued, coming back soon."""
    return resume_mode(topic, lane_id, topic.bookmark(topic.head), too_long=False)


async def _estimates(topic: Topic, subscription: Subscription) -> dict[str, object]:
    if subscription.command is Command.SOW:
        return _without_estimates(ONE_SHOT)
    lane_id = subscription.lane_id
    shape = lane_id.feed.shape
    messages_max = GROUPED_MAX if isinstance(shape, Projection) else JOURNALLED_MAX
    frames = topic.journal.after(max(0, topic.head - messages_max))
    if not frames:
        return _without_estimates(NOTHING_JOURNALLED)
    board = topic.sow.board if topic.sow and isinstance(shape, Window) else None
    if board is not None and len(board) > RECORDS_MAX:
        return _without_estimates(TOO_MANY_RECORDS)
    records = [] if board is None else board.live()
    # Frames never change, so the thread may read them while the engine goes on.
    compute = partial(estimate, frames, records, lane_id, topic.definition.key_spec, topic.name)
    found = await asyncio.get_running_loop().run_in_executor(_ESTIMATES, compute)
    if found is None:
        return _without_estimates(NO_TIME_PASSED)
    return _with_estimates(found, len(frames), lane_id)


def _without_estimates(reason: str) -> dict[str, object]:
    return {"estimates": None, "reason": reason}


def _with_estimates(found: Estimate, journalled: int, lane_id: LaneId) -> dict[str, object]:
    interval_ns = lane_id.interval_ns
    estimates = {
        "messages_per_s": round(found.rows_per_s, 3),
        "bytes_per_s": round(found.bytes_per_s, 3),
        "interval": duration_text(interval_ns) if interval_ns else "none",
        "journalled": journalled,
    }
    return {"estimates": estimates, "reason": None}


router = APIRouter(tags=["subscribing"], dependencies=STRICT, generate_unique_id_function=name_of)


@router.post(
    "/v1/explain",
    summary="What subscribing would do: options as granted, lane, resume mode, estimates",
    responses={
        200: answer("What the subscription would get", ref(Explained)),
        **problems("topic-unknown", "topic-invalid", "options-invalid", "filter-invalid"),
    },
    openapi_extra=json_body(Explaining),
)
async def explain(request: Request) -> Response:
    """Explain the parameters of a subscription and its `topic`, a JSON object of texts."""
    asked = await posted_parameters(Explaining, request)
    gateway, grants = gateway_of(request), grants_in(request.scope)
    check_reading(grants, asked.topic)
    # As subscribing does: the topic may have just been made at another gateway. Raises unless it
    # exists.
    await gateway.catalog.seek(asked.topic)
    return json_answer(await explained(gateway, asked, grants))
