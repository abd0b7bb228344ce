"""Every operation of /openapi.json by every kind of subject: who gets in, and who does not.

The table is written here a second time, in other words than the gateway's own rules.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from tests.app.access.test_authorization import ROOT, guarded
from tests.support.gateways import Running
from tests.support.rules import rule
from tests.support.servers import edge_settings
from tests.support.tokens import bearer, claims, grant, signed, token_of, unsigned
from tidegate.app.http.application import create_app
from tidegate.app.http.problems import STREAMS

ALL = grant("read,write,admin,observe >")
STRANGERS: Final[dict[str, dict[str, str]]] = {
    "anonymous": {},
    "expired": bearer(signed(claims("root", ALL, exp=int(time.time()) - 60))),
    "other-audience": bearer(signed(claims("root", ALL, aud="other"))),
    "other-issuer": bearer(signed(claims("root", ALL, iss="other"))),
    "other-algorithm": bearer(signed(claims("root", ALL), "HS512")),
    "none": bearer(unsigned(claims("root", ALL))),
    "other-key": bearer(signed(claims("root", ALL), number=7)),
}
"""Whom the gateway does not know, whatever their tokens say."""

SUBJECTS: Final[dict[str, dict[str, str]]] = {
    "N": token_of("nia"),
    "R": token_of("ray", "read prices.>"),
    "W": token_of("wes", "write prices.>"),
    "A": token_of("ada", "admin prices.>"),
    "O": token_of("obi", "observe >"),
    "F": token_of("fay", grant("read prices.>", filter="/desk = 'a'")),
    "L": token_of("liz", grant("read prices.>", select="[-/,+/k]")),
    "X": token_of("max", "read,write,admin,observe other.>"),
    "T": token_of("tom", ALL),
    "E": ROOT,
}
"""Subjects by a letter: none, read, write, admin, observe, filtered, limited, elsewhere, every.

T, the twin, may all that E may, and owns nothing: the session is E's.
"""

EVERYBODY: Final = "NRWAOFLXTE"
TOPIC: Final = "/v1/topics/{topic}"
SESSION: Final = "/v1/sessions/{session}"
SUBSCRIPTION: Final = SESSION + "/subscriptions/{sub}"
OPEN: Final = {
    ("GET", "/healthz"), ("GET", "/readyz"), ("POST", "/v1/login"), ("DELETE", "/v1/login"),
    ("GET", "/v1/login/start"), ("GET", "/v1/login/callback"),
}  # fmt: skip
MAY: Final[dict[tuple[str, str], str]] = {
    ("GET", "/v1/topics"): EVERYBODY,
    ("GET", TOPIC): "RATE",
    ("PUT", TOPIC): "ATE",
    ("PATCH", TOPIC): "ATE",
    ("DELETE", TOPIC): "ATE",
    ("POST", TOPIC + "/messages"): "WTE",
    ("GET", TOPIC + "/messages"): "RTE",
    ("POST", TOPIC + "/commits"): "WTE",
    ("GET", TOPIC + "/sow"): "RFLTE",
    ("GET", TOPIC + "/sow/{record_key}"): "RFLTE",
    ("DELETE", TOPIC + "/sow"): "TE",
    ("GET", TOPIC + "/stream"): "RFLTE",
    ("GET", TOPIC + "/subscribe"): "RFLTE",
    ("POST", TOPIC + "/subscribe"): "RFLTE",
    ("GET", "/v1/sessions"): EVERYBODY,
    ("POST", "/v1/sessions"): EVERYBODY,
    ("GET", SESSION): "OTE",
    ("PATCH", SESSION): "E",
    ("DELETE", SESSION): "E",
    ("GET", SESSION + "/events"): "E",
    ("GET", SESSION + "/subscriptions"): "OTE",
    ("POST", SESSION + "/subscriptions"): "E",
    ("GET", SUBSCRIPTION): "OTE",
    ("PATCH", SUBSCRIPTION): "E",
    ("DELETE", SUBSCRIPTION): "E",
    ("GET", SUBSCRIPTION + "/auto"): "OTE",
    ("GET", SUBSCRIPTION + "/trace"): "TE",
    ("POST", "/v1/explain"): "RFLTE",
    ("GET", "/v1/lanes"): "OXTE",
    ("GET", "/v1/polled"): "OXTE",
    ("GET", "/metrics"): "OTE",
    ("GET", "/v1/history"): "OTE",
    ("GET", "/v1/login"): EVERYBODY,
    ("POST", "/v1/tickets"): EVERYBODY,
}
BODIES: Final[dict[tuple[str, str], Any]] = {
    ("PUT", TOPIC): {"key": ["/k"]},
    ("PATCH", TOPIC): {"description": "x"},
    ("POST", TOPIC + "/messages"): {"k": 1},
    ("POST", TOPIC + "/commits"): {"producer": "p", "run": 1, "sequence": 1, "stages": ["s"]},
    ("POST", TOPIC + "/subscribe"): {},
    ("POST", "/v1/sessions"): {},
    ("PATCH", SESSION): {"conflated": True},
    ("POST", SESSION + "/subscriptions"): {"topic": "prices.eu"},
    ("PATCH", SUBSCRIPTION): {"paused": False},
    ("POST", "/v1/explain"): {"topic": "prices.eu"},
    ("POST", "/v1/login"): {"token": "x"},
}
QUERIES: Final = {("DELETE", TOPIC + "/sow"): '?key=["nosuch"]'}
COOKIE: Final = {"Cookie": f"__Host-tidegate={ROOT['Authorization'].removeprefix('Bearer ')}"}
REFUSALS: Final = {"forbidden", "session-unknown"}


def operations() -> set[tuple[str, str]]:
    """Every operation that the gateway documents."""
    paths = create_app(edge_settings()).openapi()["paths"]
    return {(method.upper(), path) for path, methods in paths.items() for method in methods}


def test_the_table_names_every_operation() -> None:
    assert set(MAY) | OPEN == operations()


async def asked(
    running: Running,
    operation: tuple[str, str],
    headers: dict[str, str],
    session: str,
    query: str = "",
) -> tuple[int, str]:
    """Status and code of a request that would be answered, but for its subject."""
    method, path = operation
    target = path.format(topic="prices.eu", record_key='["canary"]', session=session, sub="s1")
    target += query or QUERIES.get(operation, "")
    body = BODIES.get(operation)
    media_type = {"Content-Type": "application/json"} if body is not None else {}
    async with running.http.stream(
        method, target, json=body, headers={**headers, **media_type}
    ) as answer:
        is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
        if is_stream or answer.is_success:
            return answer.status_code, ""
        await answer.aread()
        assert "canary" not in answer.text
        return answer.status_code, str(answer.json()["code"])


async def logged_out(running: Running) -> dict[str, str]:
    """The token of a login of root that has ended."""
    token = signed(claims("root", ALL, jti="over"))
    cookie = {"Cookie": f"__Host-tidegate={token}"}
    assert (await running.http.delete("/v1/login", headers=cookie)).status_code == 204
    return bearer(token)


async def session_of(running: Running) -> str:
    """A session of root with one subscription."""
    body = {"subscriptions": [{"topic": "prices.eu"}]}
    opened = await running.http.post("/v1/sessions", json=body, headers=ROOT)
    return str(opened.json()["session"])


@rule("access-4")
async def test_who_gets_in(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        strangers = {**STRANGERS, "logged-out": await logged_out(running)}
        for operation in sorted(MAY):
            session = await session_of(running)
            for name, headers in strangers.items():
                found_out = await asked(running, operation, headers, session)
                assert found_out == (401, "unauthenticated"), (operation, name)
            method, path = operation
            if method != "GET":
                # Whatever its subject may do: a page of another site could have sent it.
                found_out = await asked(running, operation, COOKIE, session)
                assert found_out == (403, "csrf"), operation
            elif not path.endswith(STREAMS):
                ticket = (await running.http.post("/v1/tickets", headers=ROOT)).json()["ticket"]
                assert await asked(running, operation, {}, session, f"?ticket={ticket}") == (
                    401,
                    "unauthenticated",
                ), operation
            assert await let_in(running, operation, session) == MAY[operation], operation
            await running.http.delete(f"/v1/sessions/{session}", headers=ROOT)


async def let_in(running: Running, operation: tuple[str, str], session: str) -> str:
    """The letters of those who are let through."""
    found = ""
    # Every last: some operations take away what others need.
    for letter, headers in SUBJECTS.items():
        status, code = await asked(running, operation, headers, session)
        if code not in REFUSALS:
            # Whatever else is wrong with the request, its subject was let through.
            assert status not in {401, 403, 500}, (operation, letter, status, code)
            found += letter
        if operation == ("DELETE", TOPIC) and code not in REFUSALS:
            await running.http.put("/v1/topics/prices.eu", json={"key": ["/k"]}, headers=ROOT)
    return found


async def test_what_is_open_asks_for_nothing(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        session = await session_of(running)
        for operation in sorted(OPEN):
            for headers in (*STRANGERS.values(), *SUBJECTS.values()):
                status, code = await asked(running, operation, headers, session)
                if operation == ("POST", "/v1/login"):
                    assert (status, code) == (401, "unauthenticated")
                elif operation[1].startswith("/v1/login/"):
                    assert (status, code) == (404, "not-found")  # there is no provider here
                else:
                    assert status < 300, operation
