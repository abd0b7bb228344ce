"""Internal calls: an HTTP request that another gateway has accepted, answered here."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Scope

from tidegate.app.access.certificate import CERTIFICATE_FIELD, ClientCertificate
from tidegate.app.calls import Call, Headers, Reply
from tidegate.app.http.problems import body_of, headers_of, refusal_of
from tidegate.app.http.scope import connection_of

MARK = "tidegate.inner"
"""Marks the scope of an internal call: it is answered here, whichever gateway owns its session."""

# The header fields that an answer depends on. Host and origin were checked on arrival.
HEADERS_TAKEN = frozenset(
    name.encode()
    for name in (
        "accept",
        "authorization",
        "content-encoding",
        "content-type",
        "cookie",
        "if-match",
    )
)
# These belong to the connection to this gateway; the one that answers the client sets its own.
HEADERS_LEFT = frozenset((b"content-length", b"connection", b"date", b"transfer-encoding"))
HOST = (b"host", b"localhost")


def call_of(scope: Scope, body: bytes = b"") -> Call:
    """Copy a request, with the header fields that matter."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8")
    headers = [pair for pair in scope["headers"] if pair[0] in HEADERS_TAKEN]
    certificate = certificate_of(scope)
    if certificate is not None:
        headers.append(certificate.field())
    return Call(scope["method"], raw.split(b"?", 1)[0], scope["query_string"], headers, body)


def certificate_of(scope: Scope) -> ClientCertificate | None:
    """Return the certificate of a request's client, shown here or to the gateway that forwards."""
    if MARK in scope:
        named = [value for name, value in scope["headers"] if name == CERTIFICATE_FIELD]
        return ClientCertificate.of_field(named[0]) if named else None
    connection = connection_of(scope)
    if connection is None:
        return None
    found: ClientCertificate | None = connection.info("tidegate.certificate")
    return found


async def perform(app: ASGIApp, call: Call) -> Reply:
    """Let the application answer a call as if it had come over a socket; not for streams.

    An exception of the application is answered as a problem.
    """
    answer = _Answer()
    sent = False

    async def receive() -> Message:
        nonlocal sent
        # As a socket does after the body: a route that waits for a disconnect gets one.
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": call.body, "more_body": False}

    try:
        await app(_scope(call), receive, answer.send)
    except Exception as error:
        # The caller is another gateway, not a server: nobody else would turn the exception into an
        # answer.
        problem = refusal_of(error)
        headers = {"content-type": "application/problem+json", **headers_of(problem)}
        return Reply(problem.status, _encoded(headers), body_of(problem))
    return answer.reply()


def _scope(call: Call) -> Scope:
    length = (b"content-length", str(len(call.body)).encode())
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": call.method,
        "scheme": "http",
        "path": call.path.decode("latin-1"),
        "raw_path": call.path,
        "query_string": call.query,
        "root_path": "",
        "headers": [HOST, length, *call.headers],
        # The address is known to the gateway that accepted the request, and logged there.
        "client": None,
        "server": None,
        "extensions": {},
        MARK: True,
    }


class _Answer:
    """Collects what an application sends."""

    def __init__(self) -> None:
        self._status = 500
        self._headers: Headers = []
        self._body: list[bytes] = []

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = [
                (bytes(name), bytes(value))
                for name, value in message.get("headers", [])
                if bytes(name).lower() not in HEADERS_LEFT
            ]
        elif message["type"] == "http.response.body":
            self._body.append(message.get("body", b""))

    def reply(self) -> Reply:
        return Reply(self._status, self._headers, b"".join(self._body))


def _encoded(headers: Mapping[str, str]) -> Headers:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
