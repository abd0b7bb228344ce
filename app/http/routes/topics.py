"""`/v1/topics`: the topics, their definitions and figures, and their administration."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field

from tidegate.app.access.grants import Grants
from tidegate.app.definitions.topic import TopicDefinition, TopicNotUsable, Unusable
from tidegate.app.gateway import Gateway
from tidegate.app.http.answers import json_answer
from tidegate.app.http.entity_tags import entity_tags, names_entity_tag
from tidegate.app.http.openapi import ETAG, answer, json_body, name_of, problems, ref
from tidegate.app.http.parameters import STRICT, TOPIC_TEXT, Headers, TopicPath, WritableTopicPath
from tidegate.app.http.requests import (
    CHANGES,
    content_type,
    read_body,
)
from tidegate.app.http.routes.models.topics import (
    Topic,
    TopicPatch,
    Topics,
    UnusableTopic,
)
from tidegate.app.http.scope import gateway_of, grants_in, subject_in
from tidegate.app.parameters import Parameters, line, text, whole
from tidegate.app.refusals import Refused
from tidegate.app.streams.scheduler import in_turns
from tidegate.app.topics.registry import CatalogTopic, Precondition
from tidegate.conflation.steps import in_pieces
from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import check_json
from tidegate.keys.patch import apply

PAGE_MAX = 1_000
DESCRIBED_AT_ONCE = 20  # topics whose figures are counted in one iteration
# A schema may be long, but its compilation blocks the loop, so a definition is no place for a
# megabyte.
DOCUMENT_BYTES_MAX = 256 << 10

router = APIRouter(tags=["topics"], dependencies=STRICT, generate_unique_id_function=name_of)


class Match(Headers):
    """Conditions on the topic, else 412."""

    if_match: Annotated[
        str | None, line("precondition-failed"), Field(description="The topic's ETag, or `*`")
    ] = None
    if_none_match: Annotated[
        str | None,
        line("precondition-failed"),
        Field(description="`*`: the topic must not exist yet"),
    ] = None

    def precondition(self) -> Precondition:
        """Return the precondition as the catalog takes it."""
        return Precondition(entity_tags(self.if_match), entity_tags(self.if_none_match))


class Listed(Parameters):
    """The page of topics to list."""

    prefix: Annotated[str, text(), Field(description="Only names that begin with this")] = ""
    limit: Annotated[int, whole("limit", 1, PAGE_MAX), Field(description="At most this many")] = 100
    after: Annotated[str | None, TOPIC_TEXT, Field(description="Only names after this one")] = None


class KnownVersion(Headers):
    """The version that the client already has."""

    if_none_match: Annotated[
        str | None,
        line("precondition-failed"),
        Field(description="The ETag of an earlier answer, or `*`"),
    ] = None


_DEFINED = (
    "topic-invalid", "key-invalid", "policy-invalid", "options-invalid", "filter-invalid",
    "topic-read-only", "topic-conflict", "topic-in-use", "source-cycle", "topic-unknown",
    "precondition-failed", "unsupported-media-type", "unsupported-encoding", "message-too-large",
)  # fmt: skip


@router.put(
    "/v1/topics/{topic}",
    summary="Create a topic or replace its definition",
    responses={
        200: answer("The topic, redefined", ref(Topic), headers=ETAG),
        201: answer("The topic is new", ref(Topic), headers=ETAG),
        **problems(*_DEFINED),
    },
    openapi_extra=json_body(TopicDefinition),
)
async def put_topic(
    request: Request, topic: WritableTopicPath, match: Annotated[Match, Header()]
) -> Response:
    """Define a topic: 201 for a new one, else 200; the same definition changes nothing."""
    gateway = gateway_of(request)
    # Before the body is read, which may be slow to come.
    content_type(request.scope, ("application/json",))
    body = await _json_body(request)
    document = _parsed(gateway, body)
    _check_source(grants_in(request.scope), document)
    subject = subject_in(request.scope)
    catalog, quotas = gateway.catalog, gateway.quotas
    is_there = catalog.exists(topic)
    with contextlib.nullcontext() if is_there else quotas.creating_topic(subject, catalog.exists):
        entry, is_new = await catalog.put(topic, document, match.precondition())
        if is_new:
            quotas.note_topic(subject, topic)
    # Also where nothing has changed: the request may repeat one that was refused here.
    await gateway.store.settle()
    return _answer(description(gateway, entry), 201 if is_new else 200, entry)


@router.patch(
    "/v1/topics/{topic}",
    summary="Change parts of a topic's definition",
    responses={
        200: answer("The topic as it is then", ref(Topic), headers=ETAG),
        **problems(*_DEFINED),
    },
    openapi_extra=json_body(TopicPatch, CHANGES),
)
async def patch_topic(
    request: Request, topic: WritableTopicPath, match: Annotated[Match, Header()]
) -> Response:
    """Change a definition by a JSON Merge Patch; null restores a default."""
    gateway = gateway_of(request)
    content_type(request.scope, CHANGES)
    patch = await _json_body(request)
    grants = grants_in(request.scope)

    # The catalog calls this when no other change can come in between.
    def patched(document: TopicDefinition) -> TopicDefinition:
        # The whole document is parsed again: a patch may break a rule between fields that it does
        # not name.
        found = _parsed(gateway, apply(msgspec.json.encode(document.document()), patch))
        _check_source(grants, found)
        return found

    entry = await gateway.catalog.patch(topic, patched, match.precondition())
    await gateway.store.settle()
    return _answer(description(gateway, entry), 200, entry)


@router.get(
    "/v1/topics/{topic}",
    summary="A topic's definition and live figures",
    responses={
        200: answer("The topic", {"anyOf": [ref(Topic), ref(UnusableTopic)]}, headers=ETAG),
        **problems("topic-unknown", "topic-invalid"),
    },
)
async def get_topic(request: Request, topic: TopicPath) -> Response:
    """Return the definition with the topic's live figures."""
    gateway = gateway_of(request)
    await gateway.catalog.refresh()
    with contextlib.suppress(TopicNotUsable):  # its answer shows the reason
        await gateway.catalog.seek(topic)
    # An unusable topic is shown, as its administrator needs the reason and the definition.
    entry = gateway.catalog.unusable(topic) or gateway.catalog.get(topic)
    return _answer(description(gateway, entry), 200, entry)


@router.delete(
    "/v1/topics/{topic}",
    status_code=204,
    summary="Delete a topic",
    response_class=Response,
    response_description="It is gone",
    responses=problems("topic-unknown", "topic-read-only", "topic-in-use", "precondition-failed"),
)
async def delete_topic(
    request: Request, topic: WritableTopicPath, match: Annotated[Match, Header()]
) -> Response:
    """Delete a topic; 204. Its subscriptions end with REMOVED."""
    gateway = gateway_of(request)
    try:
        await gateway.catalog.delete(topic, match.precondition())
    except Refused as refusal:
        if refusal.code == "topic-unknown":  # this is kept, too, before somebody relies on it
            await gateway.store.settle()
        raise
    await gateway.store.settle()
    return Response(status_code=204)


@router.get(
    "/v1/topics",
    summary="Topics by name",
    responses={
        200: answer("A page", ref(Topics), headers=ETAG),
        304: answer("The definitions are those of If-None-Match", headers=ETAG),
        **problems("options-invalid", "topic-invalid"),
    },
)
async def list_topics(
    request: Request, asked: Annotated[Listed, Query()], known: Annotated[KnownVersion, Header()]
) -> Response:
    """List `{"topics": [...], "next": address or null}`.

    Its ETag is of the definitions: in `If-None-Match` it gives 304 while they are the same.
    """
    gateway = gateway_of(request)
    await gateway.catalog.refresh()
    prefix, limit = asked.prefix, asked.limit
    # One more than the page has tells of a next page.
    grants = grants_in(request.scope)
    shown = None if grants is None else grants.may_define
    entries = gateway.catalog.listed_all(prefix, asked.after or "", limit + 1, shown)
    following = None
    if len(entries) > limit:
        # By name and not by position, so that a topic deleted between two pages moves no other.
        after = entries[limit - 1].name
        query = {"prefix": prefix, "limit": limit, "after": after}
        following = "/v1/topics?" + urlencode({k: v for k, v in query.items() if v})
    etag = _list_etag(entries)
    if names_entity_tag(known.if_none_match or "", etag):
        return Response(status_code=304, headers={"ETag": etag})

    def described(piece: Sequence[CatalogTopic | Unusable]) -> list[dict[str, Any]]:
        # One that was deleted or has changed meanwhile is shown as it is now, or not at all.
        catalog = gateway.catalog
        now = [catalog.unusable(each.name) or catalog.served(each.name) for each in piece]
        return [description(gateway, entry) for entry in now if entry is not None]

    listed = await in_turns(in_pieces(entries[:limit], DESCRIBED_AT_ONCE, described))
    answer = _answer({"topics": listed, "next": following}, 200)
    answer.headers["ETag"] = etag
    return answer


def description(gateway: Gateway, entry: CatalogTopic | Unusable) -> dict[str, Any]:
    """Return a topic's definition with its live figures, or why it cannot be used here."""
    name = entry.name
    if isinstance(entry, Unusable):
        state = {"topic": name, "state": "unusable", "reason": entry.reason}
        return {**state, **entry.fields, "epoch": entry.epoch}
    unfilled = gateway.catalog.filling.reasons.get(name)
    state = {"state": "unfilled", "reason": unfilled} if unfilled else {"state": "served"}
    topic = gateway.driver.engine.topic(name)
    figures = gateway.driver.engine.topic_stats(name)
    first, last = topic.journal.first, topic.journal.last
    return {
        "topic": name,
        **state,
        **entry.document.document(),
        "epoch": topic.epoch,
        "continues": topic.continues,
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
            "first_ms": None if first is None else first.timestamp_ms,
            "last_ms": None if last is None else last.timestamp_ms,
            "messages": len(topic.journal),
        },
    }


def _parsed(gateway: Gateway, body: bytes) -> TopicDefinition:
    document = TopicDefinition.parse(body, gateway.mergers)
    # A stored definition is not held to this setting, as it may have been longer before.
    document.check_options(gateway.settings.options_characters_max)
    return document


def _check_source(grants: Grants | None, document: TopicDefinition) -> None:
    """Refuse to fill a topic from one that is not granted whole: it would show what that hides.

    Raises:
        Refused: forbidden.
    """
    if grants is not None and document.source is not None:
        grants.require_whole(document.source.topic)


async def _json_body(request: Request) -> bytes:
    body = await read_body(request, DOCUMENT_BYTES_MAX)
    try:
        check_json(body)
    except JsonInvalid as error:
        raise Refused("topic-invalid", f"{error.detail}.", position=error.position) from None
    return body


def _list_etag(entries: Sequence[CatalogTopic | Unusable]) -> str:
    """Return a tag that changes with topics and their definitions, and not with their figures."""
    # Two answers with one tag differ in their figures, so the tag is weak (RFC 9110, 8.8.1).
    states = [(each.name, each.etag, isinstance(each, Unusable)) for each in entries]
    return f'W/"{hashlib.blake2b(msgspec.json.encode(states), digest_size=8).hexdigest()}"'


def _answer(
    document: object, status: int, entry: CatalogTopic | Unusable | None = None
) -> Response:
    headers = {"ETag": entry.etag} if entry is not None else {}
    return json_answer(document, status, headers)
