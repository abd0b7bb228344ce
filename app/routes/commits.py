"""`/v1/topics/{topic}/commits`: publishing what was kept aside, in one step."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.commit_document import DOCUMENT_BYTES_MAX, commit_of
from app.entry import Entry
from app.gateway import gateway_of
from app.openapi import described
from app.publish_request import JSON, check_ack, refuse_retry_key
from app.query import content_type, query_values, read_body, writable_topic_name
from app.routes.messages import ACK, published

router = APIRouter(tags=["messages"])


@router.post(
    "/v1/topics/{topic}/commits",
    summary="Publish stages in one step, in the order of their names",
    openapi_extra=described(query={"ack": ACK}, body=[JSON]),
)
async def commit(request: Request) -> Response:
    """`{"producer", "run", "sequence", "stages"}`; answers as publishing does.

    A sequence not above the producer's highest publishes nothing and forgets the stages; the commit
    of an older run is refused.
    """
    gateway, name = gateway_of(request), writable_topic_name(request.scope)
    content_type(request.scope, (JSON,))
    check_ack(query_values(request.scope, {"ack": "options-invalid"}).get("ack"), gateway.store)
    refuse_retry_key(request.scope, "a commit has its sequence")
    asked = commit_of(await read_body(request, DOCUMENT_BYTES_MAX))
    await gateway.catalog.seek(name)

    async def committed(entry: Entry) -> Response:
        return published(entry, await gateway.ingest.commit(entry, asked.producer, asked.stages))

    return await gateway.catalog.by_what_holds(gateway.catalog.get(name), committed)
