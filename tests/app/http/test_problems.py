"""Refusals and errors as problem documents, over the real server."""

import json
import logging
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from tests.support.network.edge_app import edge_app
from tests.support.rules import rule
from tests.support.servers import edge_settings, running_server
from tests.support.wire import connected, exchange, parse_answer, request
from tidegate.app.http.middleware import install_middleware
from tidegate.app.http.problems import CODE_OF_STATUS, body_of
from tidegate.app.http.wire import problem_bytes
from tidegate.app.refusals import CODES, Refused, unknown_field

pytestmark = pytest.mark.asyncio(loop_scope="module")

# As the contract lists them.
CONTRACT_CODES = """
topic-unknown topic-conflict topic-invalid topic-read-only topic-in-use source-cycle policy-invalid
key-invalid key-missing options-invalid filter-invalid message-invalid message-too-large
schema-violation bookmark-invalid bookmark-expired record-unknown session-unknown
subscription-unknown limit-reached idempotency-conflict producer-fenced unauthenticated forbidden
csrf precondition-failed unsupported-media-type unsupported-encoding not-acceptable uri-too-long
headers-too-large request-timeout host-not-allowed origin-not-allowed bus-unavailable not-ready
method-not-allowed not-found
"""


class Definition(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    ratio: float = 1.0


def app_with_bodies() -> FastAPI:
    settings = edge_settings()
    app = edge_app(settings)

    @app.put("/definition")
    async def definition(definition: Definition) -> Definition:
        return definition

    install_middleware(app, settings)
    return app


@pytest_asyncio.fixture(name="address", scope="module", loop_scope="module")
async def address_fixture() -> AsyncIterator[str]:
    async with running_server(app_with_bodies()) as address:
        yield address


async def test_every_code_of_the_contract_has_a_status_and_a_title() -> None:
    assert set(CODES) == {*CONTRACT_CODES.split(), "internal"}
    for code, (status, title) in CODES.items():
        is_ours = code in {"internal", "bus-unavailable", "not-ready"}
        assert status in (range(500, 504) if is_ours else range(400, 500)), code
        assert title
    assert set(CODE_OF_STATUS.values()) <= set(CODES)


async def test_a_problem_says_where_it_found_what() -> None:
    problem = Refused("options-invalid", "Expected ].", position=0, line=3, pointer="/a~1b")
    assert json.loads(body_of(problem)) == {
        "type": "urn:tidegate:problem:options-invalid",
        "title": "Not valid options",
        "status": 400,
        "detail": "Expected ].",
        "code": "options-invalid",
        "position": 0,
        "line": 3,
        "pointer": "/a~1b",
    }


@rule("connection-3")
async def test_the_pointer_to_an_unknown_field_names_it_shortened() -> None:
    """The first one, as JSON Pointer has it, and never at length."""
    problem = unknown_field("topic-invalid", ["key", "a/b~\ud800", "c"], ["key"], "/source")
    assert problem.pointer == "/source/a~1b~0\ud800"
    assert problem.document()["pointer"] == "/source/a~1b~0\\ud800"
    assert problem.detail == "Unknown field; known: key."
    long = unknown_field("topic-invalid", ["x" * 1_000], [])
    assert long.pointer == "/" + "x" * 64


async def test_a_code_that_does_not_exist_is_our_mistake() -> None:
    with pytest.raises(KeyError):
        Refused("no-such-code", "")


async def test_a_surrogate_in_a_detail_can_be_written() -> None:
    """B51: no encoder takes one."""
    document = json.loads(body_of(Refused("key-invalid", "\ud800", pointer="/\udfff")))
    assert (document["detail"], document["pointer"]) == ("\\ud800", "/\\udfff")


async def test_a_whole_answer_below_the_application() -> None:
    answer = parse_answer(problem_bytes(Refused("limit-reached", "x", retry_after_s=1)))
    assert (answer.status, answer.code) == (429, "limit-reached")
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["connection"] == "close"
    assert int(answer.headers["content-length"]) == len(answer.body)


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        pytest.param(request("/nothing"), 404, "not-found", id="unknown-path"),
        pytest.param(request("//"), 404, "not-found", id="double-slash"),
        pytest.param(request("/", method="TRACE"), 405, "method-not-allowed", id="B76-trace"),
        pytest.param(request("/", method="PUT"), 405, "method-not-allowed", id="B76-put"),
        pytest.param(request("/refused"), 429, "limit-reached", id="raised-in-a-route"),
        pytest.param(request("/number?n=abc"), 400, "options-invalid", id="query-type"),
        pytest.param(request("/number?n=%00%ff"), 400, "options-invalid", id="query-no-text"),
        pytest.param(request("/number"), 400, "options-invalid", id="query-missing"),
    ],
)
async def test_a_refusal_is_a_problem(address: str, raw: bytes, status: int, code: str) -> None:
    answer = await exchange(address, raw)
    assert (answer.status, answer.code) == (status, code)


async def test_a_refusal_keeps_its_headers(address: str) -> None:
    assert (await exchange(address, request("/refused"))).headers["retry-after"] == "3"
    wrong_method = await exchange(address, request("/", method="DELETE"))
    assert wrong_method.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"ratio": NaN}', id="B49-nan"),
        pytest.param(b'{"ratio": Infinity}', id="B49-infinity"),
        pytest.param(b'{"ratio": 1e999}', id="B49-overflow"),
        pytest.param(b'{"ratio": "\\ud800"}', id="B51-surrogate"),
        pytest.param(b'{"\\ud800secret": 1}', id="B51-surrogate-in-name"),
        pytest.param(b'{"ratio": "secret"}', id="B63-type"),
        pytest.param(b'{"secret": 1}', id="B62-unknown-field"),
        pytest.param(b'{"ratio": "secret\xff"}', id="B52-no-utf8"),
        pytest.param(b"secret", id="B47-no-json"),
        pytest.param(b"", id="B47-empty"),
        pytest.param(b"[" * 100_000, id="B53-depth"),
        pytest.param(b'{"ratio": %b}' % (b"9" * 5000), id="B54-digits"),
    ],
)
async def test_a_body_that_does_not_fit_is_never_an_error_of_ours_and_never_echoed(
    address: str, body: bytes
) -> None:
    length = f"Content-Length: {len(body)}"
    raw = request("/definition", "Content-Type: application/json", length, method="PUT") + body
    answer = await exchange(address, raw)
    assert (answer.status, answer.code) == (400, "message-invalid")
    assert b"secret" not in answer.body
    assert b"NaN" not in answer.body


async def test_an_unforeseen_error_is_logged_and_not_sent(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = await exchange(address, request("/broken?a=1"))
    assert (answer.status, answer.code) == (500, "internal")
    assert b"secret" not in answer.body
    [record] = caplog.records
    assert record.getMessage() == "unexpected error in GET /broken"
    assert record.exc_info


async def test_an_error_in_the_middle_of_an_answer_breaks_it_off(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A complete-looking half would be worse."""
    with caplog.at_level(logging.ERROR):
        async with connected(address) as wire:
            await wire.send(request("/half/"))
            raw = await wire.read_to_end()
    assert b"half of it" in raw
    assert not raw.endswith(b"0\r\n\r\n")
    assert len(caplog.records) == 1
