"""What pages of allowed origins may read: answers, problems, preflights and streams."""

from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio

from tests.support.gateways import Running, running_gateway
from tests.support.rules import rule
from tests.support.wire import exchange, parse_answer, request
from tidegate.app.http.wire import cors_fields, too_many_connections

DESK = "https://desk.example"
EVIL = "https://desk.example.evil"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(name="running", scope="module", loop_scope="module")
async def running_fixture() -> AsyncIterator[Running]:
    """A gateway that allows the pages of the desk."""
    async with running_gateway(allowed_origins=[DESK]) as running:
        await running.topic("stream")
        yield running


def seen(answer: httpx2.Response) -> tuple[str | None, str | None]:
    headers = answer.headers
    return (
        headers.get("access-control-allow-origin"),
        headers.get("access-control-allow-credentials"),
    )


@rule("connection-4")
@pytest.mark.parametrize("path", ["/v1/topics", "/v1/topics/none", "/healthz", "/openapi.json"])
async def test_a_page_of_an_allowed_origin_reads_every_answer_problems_too(
    running: Running, path: str
) -> None:
    answer = await running.http.get(path, headers={"Origin": DESK})
    assert seen(answer) == (DESK, "true")
    exposed = answer.headers["access-control-expose-headers"]
    assert {"ETag", "Location", "Retry-After", "Tidegate-Gateway"} <= set(exposed.split(", "))
    assert answer.headers["vary"] == "Origin"


@rule("connection-4")
@pytest.mark.parametrize("origin", [EVIL, "null", "http://desk.example", None])
async def test_other_pages_get_no_permission_and_caches_know_why(
    running: Running, origin: str | None
) -> None:
    headers = {} if origin is None else {"Origin": origin}
    answer = await running.http.get("/v1/topics", headers=headers)
    assert seen(answer)[0] is None
    assert answer.headers["vary"] == "Origin"


async def test_without_allowed_origins_no_answer_speaks_of_them() -> None:
    async with running_gateway() as running:
        answer = await running.http.get("/v1/topics", headers={"Origin": DESK})
        assert seen(answer) == (None, None)
        assert "vary" not in answer.headers
        asked = {"Origin": DESK, "Access-Control-Request-Method": "PUT"}
        assert (await running.http.options("/v1/topics/px", headers=asked)).status_code == 405


@rule("connection-4")
async def test_a_stream_can_be_read_by_a_page_of_an_allowed_origin(running: Running) -> None:
    path = "/v1/topics/stream/subscribe"
    async with running.http.stream("GET", path, headers={"Origin": DESK}) as answer:
        assert seen(answer) == (DESK, "true")
        assert answer.headers["vary"] == "Accept-Encoding, Origin"


@rule("connection-4")
@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "POST"])
async def test_a_preflight_permits_what_the_api_takes(running: Running, method: str) -> None:
    asked = {
        "Origin": DESK,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization,content-type,if-match",
    }
    answer = await running.http.options("/v1/topics/px", headers=asked)
    assert answer.status_code == 200
    assert seen(answer) == (DESK, "true")
    assert method in answer.headers["access-control-allow-methods"]


@rule("connection-4")
@pytest.mark.parametrize(
    "asked",
    [
        {"Origin": EVIL, "Access-Control-Request-Method": "PUT"},
        {"Origin": "null", "Access-Control-Request-Method": "PUT"},
        {"Origin": DESK, "Access-Control-Request-Method": "TRACE"},
        {
            "Origin": DESK,
            "Access-Control-Request-Method": "PUT",
            "Access-Control-Request-Headers": "x-other",
        },
    ],
)
async def test_a_preflight_of_anything_else_is_a_problem(
    running: Running, asked: dict[str, str]
) -> None:
    answer = await running.http.options("/v1/topics/px", headers=asked)
    assert (answer.status_code, answer.json()["code"]) == (403, "origin-not-allowed")
    assert seen(answer) == (None, None)


@rule("connection-4")
async def test_every_origin_is_allowed_only_without_credentials() -> None:
    async with running_gateway(allowed_origins=["*"]) as running:
        answer = await running.http.get("/v1/topics", headers={"Origin": EVIL})
        assert seen(answer) == ("*", None)
        # It may write as well: a list of origins is what keeps pages out.
        answer = await running.http.put("/v1/topics/px", json={}, headers={"Origin": EVIL})
        assert answer.status_code == 201


async def test_a_page_of_another_port_that_hides_its_origin_changes_nothing() -> None:
    async with running_gateway() as running:
        headers = ("Sec-Fetch-Site: same-site", "Content-Type: application/json")
        raw = request("/v1/topics/px", *headers, "Content-Length: 2", method="PUT") + b"{}"
        answer = await exchange(running.address, raw)
        assert (answer.status, answer.code) == (403, "origin-not-allowed")


@rule("connection-4")
@pytest.mark.parametrize(
    ("fields", "body", "status"),
    [
        ([f"X-{number}: a" for number in range(200)], b"", 431),
        (["Transfer-Encoding: chunked"], b"no size\r\n", 400),
    ],
)
async def test_a_page_reads_a_refusal_below_the_application(
    running: Running, fields: list[str], body: bytes, status: int
) -> None:
    raw = request("/v1/topics/px", f"Origin: {DESK}", *fields, method="PUT") + body
    answer = await exchange(running.address, raw)
    assert (answer.status, answer.headers["vary"]) == (status, "Origin")
    assert answer.headers["access-control-allow-origin"] == DESK
    assert answer.headers["access-control-allow-credentials"] == "true"


async def test_a_page_reads_that_a_full_gateway_asks_it_to_come_again() -> None:
    fields = [(b"host", b"localhost"), (b"origin", DESK.encode())]
    for accept in (b"text/event-stream", b"application/json"):
        cors = cors_fields((DESK,), fields)
        answer = parse_answer(
            too_many_connections("connections_max", b"/v1/topics", [accept], cors)
        )
        assert answer.headers["access-control-allow-origin"] == DESK
        assert answer.headers["access-control-allow-credentials"] == "true"


async def test_answers_below_the_application_permit_as_the_others_do() -> None:
    evil = [(b"origin", EVIL.encode())]
    assert cors_fields((), evil) == {}
    assert cors_fields((DESK,), evil) == {"vary": "Origin"}
    assert cors_fields(("*",), evil)["access-control-allow-origin"] == "*"
