"""Inner calls: what the application answers over a socket it answers to another gateway."""

from __future__ import annotations

import msgspec
import pytest
from starlette.types import Receive, Scope, Send

from tests.support.servers import edge_settings
from tidegate.app.calls import Call, Reply
from tidegate.app.http.application import create_app
from tidegate.app.http.internal_call import call_of, perform

BODY = b'{"subscriptions": []}'
TYPED = [(b"content-type", b"application/json")]


def test_what_matters_of_a_request_is_taken_along() -> None:
    scope = {
        "method": "PATCH",
        "path": "/v1/sessions/a",
        "raw_path": b"/v1/sessions/a?x=1",
        "query_string": b"x=1",
        "headers": [(b"host", b"evil"), (b"accept", b"*/*"), (b"content-length", b"3"), *TYPED],
    }
    call = call_of(scope, b"{}")
    assert call == Call("PATCH", b"/v1/sessions/a", b"x=1", [(b"accept", b"*/*"), *TYPED], b"{}")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(call), type=Call) == call


@pytest.mark.parametrize(
    ("call", "status", "found"),
    [
        (Call("POST", b"/v1/sessions", b"", TYPED, BODY), 201, b'"events"'),
        (Call("POST", b"/v1/sessions", b"", TYPED, b"{"), 400, b"options-invalid"),
        (Call("GET", b"/v1/sessions/none", b"", []), 404, b"session-unknown"),
        (Call("GET", b"/v1/sessions/%61", b"", []), 404, b"not-found"),
        (Call("PUT", b"/v1/sessions", b"", []), 405, b"method-not-allowed"),
    ],
)
async def test_the_whole_application_answers(call: Call, status: int, found: bytes) -> None:
    app = create_app(edge_settings())
    async with app.router.lifespan_context(app):
        reply = await perform(app, call)
    assert (reply.status, found in reply.body) == (status, True)
    kinds = {value for name, value in reply.headers if name == b"content-type"}
    assert kinds == {b"application/json" if status == 201 else b"application/problem+json"}
    assert not [name for name, _ in reply.headers if name == b"content-length"]


async def test_an_error_is_a_problem() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["body"] == b"x"
        assert (await receive())["type"] == "http.disconnect"
        raise RuntimeError("on purpose")

    reply = await perform(broken, Call("GET", b"/", b"", [], b"x"))
    assert isinstance(reply, Reply)
    assert (reply.status, b'"internal"' in reply.body) == (500, True)
