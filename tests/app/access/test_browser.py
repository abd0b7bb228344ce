"""A browser's ways to show its token: the cookie with its proof, and tickets for streams."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.app.access.test_authorization import NOBODY, READER, guarded
from tests.support.gateways import Running, Stream
from tests.support.rules import rule
from tests.support.tokens import claims, grant, signed, token_of
from tidegate.app.access.tickets import (
    LIFE_MS,
    TICKETS_PER_SUBJECT_MAX,
    USED_MAX,
    USED_PER_SUBJECT_MAX,
    Tickets,
)
from tidegate.app.access.tokens import TokenInvalid
from tidegate.app.refusals import Refused

TOKEN = signed(claims("ann", grant("read,write,admin prices.>")))


async def logged_in(running: Running) -> tuple[dict[str, str], str]:
    """The header of the cookie, and the proof."""
    answer = await running.http.post("/v1/login", json={"token": TOKEN})
    assert answer.status_code == 200, answer.text
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-tidegate=")
    for flag in ("Secure", "HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="):
        assert "Max-Age=0" not in cookie
        assert flag in cookie
    assert "Domain" not in cookie
    running.http.cookies.clear()
    return {"Cookie": cookie.split(";")[0]}, answer.json()["csrf"]


@rule("access-7")
async def test_a_change_by_cookie_needs_the_proof_of_the_login(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        cookie, proof = await logged_in(running)
        shown = (await running.http.get("/v1/login", headers=cookie)).json()
        assert (shown["sub"], shown["csrf"]) == ("ann", proof)
        assert (await running.http.get("/v1/topics/prices.eu/sow", headers=cookie)).is_success

        async def put(**more: str) -> httpx2.Response:
            headers = {**cookie, **more}
            return await running.http.put("/v1/topics/prices.new", json={}, headers=headers)

        for more in ({}, {"Tidegate-CSRF": ""}, {"Tidegate-CSRF": proof[:-1] + "A" + proof[-1]}):
            answer = await put(**more)
            assert (answer.status_code, answer.json()["code"]) == (403, "csrf")
        assert (await put(**{"Tidegate-CSRF": proof})).status_code == 201
        # A header goes before the cookie, and needs no proof: no page of another site can send it.
        answer = await put(**READER)
        assert answer.json()["code"] == "forbidden"
        two = {"Cookie": f"{cookie['Cookie']}; {cookie['Cookie']}"}
        assert (await running.http.get("/v1/topics", headers=two)).status_code == 401


async def test_a_bad_token_is_no_login_and_a_logout_needs_none(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        answer = await running.http.post("/v1/login", json={"token": "x"})
        assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
        for body in ({}, {"token": 7}, {"token": "a" * 9000}, {"token": TOKEN, "more": 1}):
            assert (await running.http.post("/v1/login", json=body)).status_code == 400
        long = signed(claims("ann", more="x" * 4_000))
        answer = await running.http.post("/v1/login", json={"token": long})
        assert (answer.status_code, "set-cookie" in answer.headers) == (413, False)
        answer = await running.http.delete("/v1/login")
        assert answer.status_code == 204
        assert "Max-Age=0" in answer.headers["set-cookie"]


async def test_without_authentication_there_is_no_login() -> None:
    from tests.support.gateways import running_gateway

    async with running_gateway() as running:
        for method, path in (("POST", "/v1/login"), ("GET", "/v1/login"), ("POST", "/v1/tickets")):
            answer = await running.http.request(method, path, json={"token": "x"})
            assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


async def ticket_of(running: Running, headers: dict[str, str] = READER) -> str:
    answer = await running.http.post("/v1/tickets", headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["ticket"])


async def test_a_form_without_fields_is_an_empty_body(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        form = {**READER, "Content-Type": "application/x-www-form-urlencoded"}
        await ticket_of(running, form)
        refused = await running.http.post("/v1/tickets", headers=form, content=b"a=1")
        assert (refused.status_code, refused.json()["code"]) == (415, "unsupported-media-type")


@rule("access-8")
async def test_a_ticket_opens_one_stream_and_nothing_else(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        ticket = await ticket_of(running)
        at = "/v1/topics/prices.eu/subscribe"

        async def status(path: str, **more: Any) -> int:
            async with running.http.stream("GET", path, **more) as answer:
                return answer.status_code

        assert await status(f"/v1/topics/prices.eu/sow?ticket={ticket}") == 401
        assert await status(f"{at}?ticket={ticket}&ticket={ticket}") == 401
        assert await status(f"{at}?ticket={ticket}x") == 401
        assert await status(f"/v1/topics/secret/subscribe?ticket={await ticket_of(running)}") == 403
        async with running.http.stream("GET", f"{at}?ticket={ticket}") as answer:
            assert answer.status_code == 200
            stream = Stream(answer)
            await stream.until("group_end")
        # The same address may come again, as EventSource sends it; another one may not.
        headers = {"Last-Event-ID": stream.last_id}
        assert await status(f"{at}?ticket={ticket}", headers=headers) == 200
        assert await status(f"{at}?ticket={ticket}&filter=/k=1") == 401
        assert await status(f"/v1/topics/prices.us/subscribe?ticket={ticket}") == 401


@rule("access-8")
async def test_a_ticket_is_in_no_log_and_in_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tidegate")
    async with guarded(tmp_path, log_requests=True) as running:
        ticket = await ticket_of(running)
        path = f"/v1/topics/prices.eu/subscribe?ticket={ticket}"
        async with running.http.stream("GET", path) as answer:
            await Stream(answer).next()
        refused = await running.http.get(f"{path}&nonsense=1")
        assert refused.status_code == 401
        assert ticket not in refused.text
        await asyncio.sleep(0.05)
        assert [record for record in caplog.records if record.name == "tidegate.requests"]
        assert ticket not in caplog.text
        assert TOKEN not in caplog.text


def subject(sub: str = "ann", expires_ms: int = 10**15) -> Any:
    from tidegate.app.access.grants import Grants, Subject

    return Subject(sub, expires_ms, Grants())


def test_a_ticket_that_is_not_used_is_void_soon() -> None:
    tickets = Tickets()
    text, until_ms = tickets.issue(subject(), 1_000)
    assert until_ms == 1_000 + LIFE_MS
    with pytest.raises(TokenInvalid):
        tickets.redeem(text, b"/a?", until_ms)
    text, _ = tickets.issue(subject(), 1_000)
    assert tickets.redeem(text, b"/a?", until_ms - 1).sub == "ann"
    assert tickets.redeem(text, b"/a?", until_ms + 10_000).sub == "ann"
    with pytest.raises(TokenInvalid):
        tickets.redeem(text, b"/b?", until_ms - 1)
    short, until_ms = tickets.issue(subject(expires_ms=2_000), 1_000)
    assert until_ms == 2_000
    tickets.redeem(short, b"/a?", 1_500)
    with pytest.raises(TokenInvalid):
        tickets.redeem(short, b"/a?", 2_000)


def test_tickets_of_one_subject_are_few() -> None:
    tickets = Tickets()
    for _ in range(TICKETS_PER_SUBJECT_MAX):
        tickets.issue(subject(), 0)
    with pytest.raises(Refused, match="limit-reached"):
        tickets.issue(subject(), 0)
    tickets.issue(subject("bob"), 0)
    tickets.issue(subject(), LIFE_MS)  # the others are void by now


@rule("access-8")
def test_used_tickets_do_not_count() -> None:
    tickets = Tickets()
    texts = [tickets.issue(subject(), 0)[0] for _ in range(TICKETS_PER_SUBJECT_MAX)]
    tickets.redeem(texts[0], b"/a?", 0)
    tickets.issue(subject(), 0)
    tickets.redeem(texts[0], b"/a?", 0)  # again: it counts no more than once
    with pytest.raises(Refused, match="limit-reached"):
        tickets.issue(subject(), 0)


def used(tickets: Tickets, sub: str) -> str:
    text, _ = tickets.issue(subject(sub), 0)
    tickets.redeem(text, b"/a?", 0)
    return text


def test_tickets_used_longest_ago_are_forgotten() -> None:
    tickets = Tickets()
    bob = used(tickets, "bob")
    first, second = used(tickets, "ann"), used(tickets, "ann")
    for _ in range(USED_PER_SUBJECT_MAX - 2):
        used(tickets, "ann")
    tickets.redeem(first, b"/a?", 0)  # a return is a use
    used(tickets, "ann")
    with pytest.raises(TokenInvalid):
        tickets.redeem(second, b"/a?", 0)
    for text in (first, bob):
        tickets.redeem(text, b"/a?", 0)


def test_used_tickets_of_all_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.app.access.tickets.USED_MAX", 3)
    assert USED_MAX > USED_PER_SUBJECT_MAX
    tickets = Tickets()
    texts = [used(tickets, f"s{number}") for number in range(4)]
    with pytest.raises(TokenInvalid):
        tickets.redeem(texts[0], b"/a?", 0)
    tickets.redeem(texts[1], b"/a?", 0)


@rule("access-8")
async def test_a_ticket_is_a_parameter_and_not_a_text_in_another(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        ticket = await ticket_of(running)
        at = "/v1/topics/prices.eu/subscribe"

        async def status(query: str, **more: Any) -> int:
            async with running.http.stream("GET", f"{at}?{query}", **more) as answer:
                return answer.status_code

        assert await status("filter=/ticket=5", headers=READER) == 200
        assert await status("filter=/ticket=5") == 401
        assert await status(f"filter=/ticket=5&ticket={ticket}") == 200
        assert await status(f"filter=/ticket=5&ticket={ticket}") == 200
        # The same parameters in another order are another address.
        assert await status(f"ticket={ticket}&filter=/ticket=5") == 401


async def test_a_ticket_needs_a_subject(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        assert (await running.http.post("/v1/tickets")).status_code == 401
        assert await ticket_of(running, NOBODY)
        assert await ticket_of(running, token_of("ann"))
