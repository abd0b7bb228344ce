"""`/v1/topics`: what there is, and its administration."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Request, Response

from app.entry import Entry
from app.gateway import Gateway, gateway_of
from app.openapi import described
from app.precondition import Precondition
from app.problems import Problem
from app.query import (
    checked_topic_name,
    content_type,
    header_value,
    integer,
    query_values,
    read_body,
    topic_name,
    writable_topic_name,
)
from app.topic_document import TopicDocument
from app.topic_fields import check_options
from keys.errors import JsonInvalid
from keys.jsontext import check_json
from keys.patch import apply

PAGE_MAX = 1_000
DOCUMENT_BYTES_MAX = 256 << 10
MERGE_PATCH = "application/merge-patch+json"

router = APIRouter(tags=["topics"])


_MATCH = {"If-Match": "The topic's ETag, or *", "If-None-Match": "* for a topic that is new"}


@router.put(
    "/v1/topics/{topic}",
    summary="Create a topic or replace its definition",
    openapi_extra=described(header=_MATCH, body=["application/json"]),
)
async def put_topic(request: Request) -> Response:
    """201 for a new topic, 200 for one that was there; the same definition changes nothing."""
    gateway, name = gateway_of(request), writable_topic_name(request.scope)
    query_values(request.scope, {})
    content_type(request.scope, ("application/json",))
    body = await _json_body(request)
    document = _parsed(gateway, body)
    entry, is_new = await gateway.catalog.put(name, document, _precondition(request))
    return _answer(description(gateway, entry), 201 if is_new else 200, entry)


@router.patch(
    "/v1/topics/{topic}",
    summary="Change parts of a topic's definition",
    openapi_extra=described(header=_MATCH, body=[MERGE_PATCH, "application/json"]),
)
async def patch_topic(request: Request) -> Response:
    """200; the body is a JSON Merge Patch on the definition, null restores a default."""
    gateway, name = gateway_of(request), writable_topic_name(request.scope)
    query_values(request.scope, {})
    content_type(request.scope, (MERGE_PATCH, "application/json"))
    patch = await _json_body(request)

    def patched(document: TopicDocument) -> TopicDocument:
        return _parsed(gateway, apply(msgspec.json.encode(document.document()), patch))

    entry = await gateway.catalog.patch(name, patched, _precondition(request))
    return _answer(description(gateway, entry), 200, entry)


@router.get(
    "/v1/topics/{topic}",
    summary="A topic's definition and live figures",
    openapi_extra=described(),
)
async def get_topic(request: Request) -> Response:
    """The definition, with what has come in and what it came to."""
    gateway = gateway_of(request)
    query_values(request.scope, {})
    name = topic_name(request.scope)
    await gateway.catalog.seek(name)
    entry = gateway.catalog.get(name)
    return _answer(description(gateway, entry), 200, entry)


@router.delete(
    "/v1/topics/{topic}",
    status_code=204,
    summary="Delete a topic",
    openapi_extra=described(header=_MATCH),
)
async def delete_topic(request: Request) -> Response:
    """204; its subscriptions end with REMOVED."""
    gateway, name = gateway_of(request), writable_topic_name(request.scope)
    query_values(request.scope, {})
    await gateway.catalog.delete(name, _precondition(request))
    return Response(status_code=204)


@router.get(
    "/v1/topics",
    summary="Topics by name",
    openapi_extra=described(
        path={},
        header={"If-None-Match": "The ETag of an earlier answer: 304 if definitions are the same"},
        query={
            "prefix": "Only names that begin so",
            "limit": "At most so many, 1 to 1,000; default 100",
            "after": "Names behind this one",
        },
    ),
)
async def list_topics(request: Request) -> Response:
    """`{"topics": [...], "next": address or null}`.

    Its ETag is of the definitions; with it in `If-None-Match` 304 says that they are the same.
    """
    gateway = gateway_of(request)
    values = query_values(
        request.scope, dict.fromkeys(("prefix", "limit", "after"), "options-invalid")
    )
    limit = integer(
        values.get("limit", "100"), least=1, most=PAGE_MAX, code="options-invalid", what="limit"
    )
    prefix = values.get("prefix", "")
    behind = checked_topic_name(values["after"]) if "after" in values else ""
    entries = list(gateway.catalog.listed(prefix, behind, limit + 1))
    following = None
    if len(entries) > limit:
        after = entries[limit - 1].record.name
        query = {"prefix": prefix, "limit": limit, "after": after}
        following = "/v1/topics?" + urlencode({k: v for k, v in query.items() if v})
    etag = _list_etag(entries)
    if etag == header_value(request.scope, "if-none-match", "precondition-failed"):
        return Response(status_code=304, headers={"ETag": etag})
    listed = [description(gateway, entry) for entry in entries[:limit]]
    answer = _answer({"topics": listed, "next": following}, 200)
    answer.headers["ETag"] = etag
    return answer


def description(gateway: Gateway, entry: Entry) -> dict[str, Any]:
    """A topic's definition with its live figures beside it."""
    name = entry.record.name
    topic = gateway.driver.engine.topic(name)
    figures = gateway.driver.engine.topic_stats(name)
    first = topic.journal.first
    return {
        "topic": name,
        **entry.document.document(),
        "epoch": topic.epoch,
        "messages_in": figures.messages_in,
        "bytes_in": figures.bytes_in,
        "keys": figures.keys,
        "bytes": topic.journal.payload_bytes,
        "subscriptions": figures.subscriptions,
        "lanes": figures.lanes,
        "delivered": figures.delivered,
        "conflated": figures.conflated,
        "conflation_ratio": round(figures.conflated / figures.matched, 6) if figures.matched else 0,
        "journal": {
            "first": None if first is None else str(topic.bookmark(first.offset)),
            "last": str(topic.bookmark(topic.head)) if topic.head else None,
            "messages": len(topic.journal),
        },
    }


def _parsed(gateway: Gateway, body: bytes) -> TopicDocument:
    document = TopicDocument.parse(body, gateway.mergers)
    check_options(document.options, gateway.settings.options_characters_max)
    return document


async def _json_body(request: Request) -> bytes:
    body = await read_body(request, DOCUMENT_BYTES_MAX)
    try:
        check_json(body)
    except JsonInvalid as error:
        raise Problem("topic-invalid", f"{error.detail}.", position=error.position) from None
    return body


def _list_etag(entries: Sequence[Entry]) -> str:
    """Weak: it changes with topics and their definitions, and not with their figures."""
    pairs = [(entry.record.name, entry.etag) for entry in entries]
    return f'W/"{hashlib.blake2b(msgspec.json.encode(pairs), digest_size=8).hexdigest()}"'


def _precondition(request: Request) -> Precondition:
    return Precondition(
        header_value(request.scope, "if-match", "precondition-failed"),
        header_value(request.scope, "if-none-match", "precondition-failed"),
    )


def _answer(document: object, status: int, entry: Entry | None = None) -> Response:
    headers = {"ETag": entry.etag} if entry is not None else {}
    return Response(msgspec.json.encode(document), status, headers, "application/json")
