"""The requests in docs/semantics get the answers that are written after them.

A line is `METHOD path {"body"}  Header: value   →   status code-or-JSON`. Each block has a gateway
with the topic `orders`, one record in it, and a session `{id}` with the subscription `s1`.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import pytest

from tests.docs.rules import rules
from tests.support.gateways import JSON, Running, running_gateway

RECORD = {"id": 7, "px": 100, "qty": 100}
_LINE = re.compile(
    r"(?P<method>[A-Z]+) (?P<path>/[^{]*?(?:\{id\}.*?)?)(?: (?P<body>\{\".*?\}))?"
    r"(?P<headers>(?:  [\w-]+: \S+)*)   →   (?P<status>\d+)(?: (?P<said>.*))?"
)


class Request(NamedTuple):
    """A request and its answer, as a page writes them."""

    method: str
    path: str
    body: str | None
    headers: dict[str, str]
    status: int
    said: str | None


def request_of(line: str) -> Request:
    """Split a line into its parts."""
    found = _LINE.fullmatch(line)
    assert found is not None, f"not a request: {line}"
    headers = dict(header.split(": ") for header in found["headers"].split("  ")[1:])
    return Request(
        *(found["method"], found["path"], found["body"], headers),
        *(int(found["status"]), found["said"]),
    )


BLOCKS = [
    pytest.param(block, id=f"{rule.id}, block {number}")
    for rule in rules()
    for number, block in enumerate(re.findall(r"```http\n(.*?)```", rule.body, re.DOTALL), 1)
]


async def answered(running: Running, request: Request, session: str) -> tuple[int, str | None]:
    """Send a request; answer with the status and what the page shows of the rest."""
    path, _, query = request.path.replace("{id}", session).partition("?")
    merges = request.method == "PATCH"
    kind = {"Content-Type": "application/merge-patch+json"} if merges else JSON
    answer = await running.http.request(
        request.method,
        path,
        params=dict(part.split("=", 1) for part in query.split("&")) if query else None,
        content=request.body,
        headers={**(kind if request.body else {}), **request.headers},
    )
    if request.said is None:
        return answer.status_code, None
    if request.said.startswith("{"):
        same = answer.json() == json.loads(request.said)
        return answer.status_code, request.said if same else answer.text
    return answer.status_code, answer.json().get("code")


@pytest.mark.parametrize("block", BLOCKS)
async def test_requests_are_answered_as_the_page_says(block: str) -> None:
    async with running_gateway() as running:
        await running.topic("orders", key=("/id",))
        await running.publish(RECORD, topic="orders")
        document = {"subscriptions": [{"topic": "orders", "options": "conflation=1s"}]}
        opened = await running.http.post("/v1/sessions", json=document)
        for line in block.splitlines():
            request = request_of(line)
            found = await answered(running, request, opened.json()["session"])
            assert found == (request.status, request.said), line


def test_there_are_requests() -> None:
    assert len(BLOCKS) > 10


def test_a_request_is_read() -> None:
    line = 'PUT /v1/a?b=c {"d": 1}  If-Match: "0"   →   412 precondition-failed'
    assert request_of(line) == Request(
        "PUT", "/v1/a?b=c", '{"d": 1}', {"If-Match": '"0"'}, 412, "precondition-failed"
    )
