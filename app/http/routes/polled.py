"""`/v1/polled`: what polling readers read, and how far they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response

from tidegate.app.access.grants import OBSERVE
from tidegate.app.http.answers import json_answer
from tidegate.app.http.internal_call import MARK, call_of
from tidegate.app.http.openapi import answer, name_of, problems, ref
from tidegate.app.http.parameters import STRICT
from tidegate.app.http.routes.models.polled import PolledStreams
from tidegate.app.http.scope import gateway_of, grants_in
from tidegate.app.streams.poll_request import ONE_KEY
from tidegate.app.streams.polled import PolledStream
from tidegate.app.streams.scheduler import in_turns
from tidegate.conflation.options.grant import granted
from tidegate.conflation.steps import in_pieces
from tidegate.conflation.subscription import Window
from tidegate.keys.text.duration import MILLISECOND

VIEWED_AT_ONCE = 20
"""Streams whose positions are counted in one iteration; each may have a thousand."""

STANDS_IN: Final = f"conflation_key={ONE_KEY},"
"""Of a topic without a key: nobody asked for it, and nobody may."""

router = APIRouter(tags=["polling"], dependencies=STRICT, generate_unique_id_function=name_of)


class _Document(msgspec.Struct, frozen=True):
    streams: list[dict[str, Any]]


@router.get(
    "/v1/polled",
    summary="The polled streams, each read by equal requests",
    responses={200: answer("The streams", ref(PolledStreams)), **problems()},
)
async def list_polled(request: Request) -> Response:
    """List the polled streams of topics that may be observed, by topic, of all gateways.

    `missing` names those that did not answer.
    """
    gateway, grants = gateway_of(request), grants_in(request.scope)
    found = gateway.polled.listed()
    if grants is not None:
        found = [each for each in found if grants.may(OBSERVE, each.subscription.topic)]

    def viewed(piece: Sequence[PolledStream]) -> list[dict[str, Any]]:
        # Its topic may go while others are viewed.
        views = [_view(each) for each in piece if not each.is_over]
        return [{**each, "gateway": gateway.sessions.context.gateway_id} for each in views]

    streams = await in_turns(in_pieces(found, VIEWED_AT_ONCE, viewed))
    document: dict[str, Any] = {"streams": streams}
    # A peer that asks wants this gateway's own streams.
    if gateway.peers is not None and MARK not in request.scope:
        replies = await gateway.peers.broadcast(call_of(request.scope))
        missing = []
        for name, reply in replies.items():
            if reply is None or reply.status != 200:
                missing.append(name)
            else:
                streams += msgspec.json.decode(reply.body, type=_Document).streams
        streams.sort(key=lambda each: each["topic"])
        document["missing"] = missing
    return json_answer(document)


def _view(stream: PolledStream) -> dict[str, Any]:
    """Return the view of a polled stream whose topic is there."""
    subscription = stream.subscription
    feed = subscription.lane_id.feed
    positions = stream.read_positions()
    epoch = stream.position.epoch
    inside = [each for each in positions if each is not None and each.epoch == epoch]
    offsets = sorted(inside, key=lambda each: each.offset)
    return {
        "topic": subscription.topic,
        "options": granted(subscription).replace(STANDS_IN, ""),
        "filter": None if feed.filter is None else str(feed.filter),
        "order_by": str(feed.shape.order) if isinstance(feed.shape, Window) else None,
        "format": stream.form,
        "interval_ms": subscription.lane_id.interval_ns // MILLISECOND,
        "opened_ms": stream.opened_ms,
        "requests": stream.requests,
        "answers": stream.answers,
        "sent_bytes": stream.sent_bytes,
        "waiting": stream.waiting,
        "positions": len(positions),
        "newest_age_ms": stream.age_ms(offsets[-1]) if offsets else None,
        "oldest_age_ms": stream.age_ms(offsets[0]) if offsets else None,
    }
