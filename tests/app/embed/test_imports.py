"""What an embedded topic loads, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.packaging.test_extras import run
from tests.support.commands import environment
from tests.support.deadlines import HANGS_S

GATEWAYS = {
    *("fastapi", "uvicorn", "redis", "hiredis", "pydantic", "pydantic_core", "pydantic_settings"),
    *("httptools", "prometheus_client", "jsonschema_rs", "cryptography", "jwt", "click", "httpx2"),
}
"""What only the gateway, its command line and its clients need."""

WEB = {"starlette", "sse_starlette", "anyio"}

LOADED = """
import json, sys
import tidegate.embed
first = sorted({name.partition(".")[0] for name in sys.modules})
from starlette.requests import Request
scope = {"type": "http", "method": "GET", "headers": [], "query_string": b""}
tidegate.embed.ConflatedTopic(key=["/k"]).response(Request(scope))
print(json.dumps([first, sorted({name.partition(".")[0] for name in sys.modules})]))
"""

PUBLISHED = """
import asyncio
from tidegate.embed import ConflatedTopic

async def main():
    topic = ConflatedTopic(key=["/k"])
    await topic.publish({"k": 1})
    sent = []
    async def send(message): sent.append(message.get("body", b""))
    async def receive(): await asyncio.sleep(3600)
    from starlette.requests import Request
    scope = {"type": "http", "method": "GET", "headers": [], "query_string": b""}
    await topic.response(Request(scope), command="sow")(scope, receive, send)
    print(b"".join(sent).count(b'data: {"k":1}'))

asyncio.run(main())
"""


def test_an_import_loads_no_part_of_the_gateway_and_no_web_framework() -> None:
    ended = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", LOADED],
        capture_output=True,
        env=environment(),
        timeout=HANGS_S,
        check=True,
    )
    imported, with_response = map(set, json.loads(ended.stdout))
    assert not imported & (GATEWAYS | WEB)
    # sse-starlette loads uvicorn where it is installed, to hear of its shutdown.
    assert not with_response & (GATEWAYS - {"uvicorn", "click", "httptools"})


@pytest.mark.nightly
def test_the_extra_is_all_that_a_response_needs() -> None:
    ended = run(("embed",), PUBLISHED, [])
    assert (ended.code, ended.err, ended.out) == (0, "", "1\n")
