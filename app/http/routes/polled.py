"""`/v1/polled`: what polling readers read, and how far they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from tidegate.app.access.grants import OBSERVE
from tidegate.app.http.answers import json_answer
from tidegate.app.http.internal_call import MARK, call_of
from tidegate.app.http.openapi import answer, name_of, problems, ref
from tidegate.app.http.parameters import STRICT
from tidegate.app.http.routes.models.polled import PolledStreams
from tidegate.app.http.scope import gateway_of, grants_in
from tidegate.app.streams.polled import PolledStream
from tidegate.app.streams.polled_view import polled_view
from tidegate.app.timers import in_turns
from tidegate.conflation.steps import in_pieces

VIEWED_AT_ONCE = 20
"""Streams whose positions are counted in one iteration; each may have a thousand."""

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
        views = [polled_view(each) for each in piece if not each.is_over]
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
