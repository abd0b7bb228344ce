"""Logins at a certified OpenID provider, by a client that does what a browser does."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
import pytest

from tests.support.external.openid_provider import (
    CLIENT,
    PASSWORD,
    PUBLIC_CLIENT,
    SECRET,
    Issuer,
    running_provider,
)
from tests.support.gateways import Running, Stream, running_gateway
from tests.support.rules import rule
from tests.support.subject_streams import soon
from tidegate.app.access import keys

POLICY = """
claim = "groups"
[[grants.traders]]
topics = "prices.>"
can = ["read", "admin"]
"""
pytestmark = pytest.mark.system
PENDING = "__Host-tidegate-login"
SESSION = "__Host-tidegate"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    with running_provider(tmp_path_factory.mktemp("provider")) as issuer:
        yield issuer


@contextlib.asynccontextmanager
async def gateway(issuer: Issuer, folder: Path, **more: Any) -> AsyncIterator[Running]:
    """A gateway whose users log in at the provider."""
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    settings = issuer.settings(auth_policy=str(policy))
    async with running_gateway(**{**settings, **more}) as running:
        if issuer.process.poll() is None:
            issuer.redirect_to(running.address)
            issuer.be_wrong()
        yield running


class Visitor:
    """A browser without scripts: it keeps cookies, and goes where it is sent one step at a time."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.cookies: dict[str, str] = {}

    async def get(self, path: str, method: str = "GET", **headers: str) -> httpx2.Response:
        """Ask the gateway, and keep the cookies that it sets."""
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = {"Accept": "text/html", **({"Cookie": cookie} if cookie else {}), **headers}
        answer = await self.running.http.request(method, path, headers=headers)
        for line in answer.headers.get_list("set-cookie"):
            pair, *flags = line.split("; ")
            assert {"Path=/", "Secure", "HttpOnly"} <= set(flags), line
            name, _, value = pair.partition("=")
            self.cookies[name] = value
            if "Max-Age=0" in flags:
                del self.cookies[name]
        self.running.http.cookies.clear()
        return answer

    async def begin(self, path: str = "/") -> str:
        """Begin a login; the address at the provider."""
        answer = await self.get(f"/v1/login/start?return={quote(path, safe='')}")
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    async def come_back(self, address: str, name: str = "ann") -> str:
        """Log in at the provider; the path of the callback with its query."""
        async with httpx2.AsyncClient() as http:
            form = await http.get(address)
            found = re.search(r'name="token" value="([^"]+)"', form.text)
            assert found, form.text
            fields = {"token": found[1], "username": name, "password": PASSWORD}
            answer = await http.post(f"{address.split('/authorization')[0]}/verify", data=fields)
            assert answer.status_code == 303, answer.text
            parts = urlsplit(answer.headers["location"])
            assert f"{parts.scheme}://{parts.netloc}" == self.running.address
            return f"{parts.path}?{parts.query}"

    async def log_in(self, name: str = "ann", path: str = "/") -> httpx2.Response:
        """All of it; the last answer."""
        return await self.get(await self.come_back(await self.begin(path), name))


def leads_to(answer: httpx2.Response) -> str:
    """Where the page after a login goes."""
    found = re.search(r'http-equiv="refresh" content="0;url=([^"]*)"', answer.text)
    assert found, answer.text
    return unescape(found[1])


def refusal(answer: httpx2.Response) -> tuple[int, str]:
    """Status and sentence of a page that refuses a login."""
    assert answer.headers["content-type"].startswith("text/html"), answer.text
    found = re.search(r"<p>(.*)</p>", answer.text)
    assert found, answer.text
    assert not any(it.startswith(SESSION + "=") for it in answer.headers.get_list("set-cookie"))
    return answer.status_code, unescape(found[1])


@rule("access-12")
@pytest.mark.parametrize("client", [CLIENT, PUBLIC_CLIENT])
async def test_a_login_at_the_provider_is_a_login_here(
    provider: Issuer, tmp_path: Path, client: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    more = {"auth_oidc_secret_file": str(secret)} if client == CLIENT else {}
    async with gateway(provider, tmp_path, auth_oidc_client_id=client, **more) as running:
        visitor = Visitor(running)
        assert (await visitor.get("/v1/login", Accept="*/*")).status_code == 401
        address = await visitor.begin("/#topic=prices.eu")
        asked = {name: each[0] for name, each in parse_qs(urlsplit(address).query).items()}
        assert asked["code_challenge_method"] == "S256"
        assert (asked["client_id"], asked["scope"]) == (client, "openid")
        assert asked["redirect_uri"] == f"{running.address}/v1/login/callback"
        pending = visitor.cookies[PENDING]
        for name in ("state", "nonce", "code_challenge"):
            assert asked[name] not in pending
        answer = await visitor.get(await visitor.come_back(address))
        assert (answer.status_code, leads_to(answer)) == (200, "/#topic=prices.eu")
        assert visitor.cookies.keys() == {SESSION}
        shown = (await visitor.get("/v1/login", Accept="*/*")).json()
        assert [grant["can"] for grant in shown["grants"]] == [["admin", "read"]]
        put = await visitor.get("/v1/topics/prices.eu", "PUT", **{"Tidegate-CSRF": shown["csrf"]})
        assert put.status_code == 415  # it was let in, and has no body
        put = await visitor.get("/v1/topics/prices.eu", "PUT")
        assert put.json()["code"] == "csrf"
        token = visitor.cookies[SESSION]
        await visitor.get("/v1/login", "DELETE")
        assert visitor.cookies == {}
        # An ID token is no key to the API, and a login may not be made of one by hand.
        bearer = {"Authorization": f"Bearer {token}"}
        answer = await running.http.get("/v1/topics", headers=bearer)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        answer = await running.http.post("/v1/login", json={"token": token})
        assert answer.status_code == 401


@rule("access-12")
async def test_an_answer_counts_once_and_in_its_own_browser(
    provider: Issuer, tmp_path: Path
) -> None:
    async with gateway(provider, tmp_path) as running:
        visitor, other = Visitor(running), Visitor(running)
        callback = await visitor.come_back(await visitor.begin())
        # Login CSRF: another browser is led to the answer of the attacker's login.
        assert refusal(await other.get(callback))[0] == 401
        await other.begin()
        status, sentence = refusal(await other.get(callback))
        assert (status, "begun elsewhere" in sentence) == (401, True)
        assert other.cookies == {}
        pending = visitor.cookies[PENDING]
        assert (await visitor.get(callback)).status_code == 200
        visitor.cookies = {PENDING: pending}
        status, sentence = refusal(await visitor.get(callback))
        assert (status, "has been used" in sentence) == (401, True)
        assert visitor.cookies == {}
        # A gateway that has not seen it: the provider does not take the code again.
        async with gateway(provider, tmp_path) as second:
            replayed = Visitor(second)
            replayed.cookies = {PENDING: pending}
            status, sentence = refusal(await replayed.get(callback))
            assert (status, "invalid" in sentence) == (401, True)


WRONG_CLAIMS: list[tuple[dict[str, Any], str]] = [
    ({"nonce": "another"}, "of another login"),
    ({"nonce": None}, "of another login"),
    ({"aud": ["somebody"]}, "another audience"),
    ({"aud": "tidegate"}, "another client"),
    ({"aud": [PUBLIC_CLIENT, "somebody"]}, "another client"),
    ({"aud": [PUBLIC_CLIENT, "somebody"], "azp": "somebody"}, "another client"),
    ({"azp": "somebody"}, "another client"),
    ({"iss": "http://127.0.0.1:1"}, "another issuer"),
    ({"exp": 1}, "expired"),
    ({"sub": None}, "lacks one of"),
]


@rule("access-12")
async def test_an_id_token_that_was_not_made_for_this_login_is_none(
    provider: Issuer, tmp_path: Path
) -> None:
    async with gateway(provider, tmp_path) as running:
        for wrong, reason in WRONG_CLAIMS:
            provider.be_wrong(**wrong)
            visitor = Visitor(running)
            status, sentence = refusal(await visitor.log_in())
            assert (status, reason in sentence) == (401, True), (wrong, sentence)
            assert visitor.cookies == {}


async def test_two_audiences_are_fine_where_the_token_was_issued_to_us(
    provider: Issuer, tmp_path: Path
) -> None:
    async with gateway(provider, tmp_path) as running:
        provider.be_wrong(aud=[PUBLIC_CLIENT, "somebody"], azp=PUBLIC_CLIENT)
        assert (await Visitor(running).log_in()).status_code == 200


OTHER_PLACES = (
    "//evil.example", "/\\evil.example", "https://evil.example", "evil.example", "", "/\t/evil",
    "/%0d%0aSet-Cookie: a=b\r\n", "javascript:alert(1)", "/" + "a" * 2_000, "\\/evil.example",
    "/é", " /", "/\n//evil",
)  # fmt: skip


@rule("access-12")
async def test_a_login_leads_nowhere_else(provider: Issuer, tmp_path: Path) -> None:
    async with gateway(provider, tmp_path) as running:
        for path in OTHER_PLACES:
            answer = await Visitor(running).get(f"/v1/login/start?return={quote(path, safe='')}")
            assert refusal(answer)[0] == 400, path
            assert "location" not in answer.headers, path


async def test_a_cookie_made_by_hand_leads_nowhere_else(provider: Issuer, tmp_path: Path) -> None:
    from tidegate.app.access.login.oidc import PendingLogin

    async with gateway(provider, tmp_path) as running:
        visitor = Visitor(running)
        callback = await visitor.come_back(await visitor.begin())
        login = PendingLogin.parse(visitor.cookies[PENDING])
        assert login is not None
        visitor.cookies[PENDING] = PendingLogin(login.secret, "//evil.example").cookie()
        assert refusal(await visitor.get(callback))[0] == 401


async def test_markup_in_a_path_stays_text(provider: Issuer, tmp_path: Path) -> None:
    path = '/"><script>alert(1)</script>'
    async with gateway(provider, tmp_path) as running:
        answer = await Visitor(running).log_in(path=path)
        assert "<script" not in answer.text
        assert leads_to(answer) == path
        assert "script-src 'self'" in answer.headers["content-security-policy"]


async def test_a_token_too_long_for_a_cookie_is_said_to_be(
    provider: Issuer, tmp_path: Path
) -> None:
    async with gateway(provider, tmp_path) as running:
        status, sentence = refusal(await Visitor(running).log_in("max"))
        assert (status, "4096" in sentence) == (413, True)


async def test_a_wrong_secret_is_named(provider: Issuer, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("another secret")
    more = {"auth_oidc_client_id": CLIENT, "auth_oidc_secret_file": str(secret)}
    async with gateway(provider, tmp_path, **more) as running:
        status, sentence = refusal(await Visitor(running).log_in())
        assert (status, "invalid_client" in sentence) == (401, True)
        secret.unlink()
        status, sentence = refusal(await Visitor(running).log_in())
        assert status == 503
        assert "another secret" not in sentence


async def test_what_the_provider_refuses_is_named(provider: Issuer, tmp_path: Path) -> None:
    async with gateway(provider, tmp_path) as running:
        for error, shown in (("access_denied", "access_denied"), ("<b>", "it gave no reason")):
            visitor = Visitor(running)
            state = parse_qs(urlsplit(await visitor.begin()).query)["state"][0]
            path = f"/v1/login/callback?state={state}&error={quote(error)}&error_description=x"
            status, sentence = refusal(await visitor.get(path))
            assert (status, shown in sentence, "<b>" in sentence) == (401, True, False)
        for query in ("state=a&state=b", "state=%ff", "code=x", ""):
            visitor = Visitor(running)
            await visitor.begin()
            assert refusal(await visitor.get(f"/v1/login/callback?{query}"))[0] in {400, 401}
        visitor = Visitor(running)
        callback = await visitor.come_back(await visitor.begin())
        answer = await visitor.get(f"{callback}&iss=https%3A%2F%2Fevil.example")
        # The library names itself already, and no parameter comes twice.
        assert refusal(answer)[0] in {400, 401}


async def test_programs_get_problems(provider: Issuer, tmp_path: Path) -> None:
    async with gateway(provider, tmp_path) as running:
        answer = await running.http.get("/v1/login/callback")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_without_a_provider_there_is_no_place_to_log_in(
    provider: Issuer, tmp_path: Path
) -> None:
    async with running_gateway(auth_keys=f"{provider.address}/jwks") as running:
        for path in ("/v1/login/start", "/v1/login/callback"):
            answer = await running.http.get(path)
            assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


async def test_a_provider_that_is_out_is_said_to_be(tmp_path: Path) -> None:
    with running_provider(tmp_path) as issuer:
        pass
    async with gateway(issuer, tmp_path) as running:
        status, sentence = refusal(await Visitor(running).get("/v1/login/start"))
        assert (status, "does not answer" in sentence) == (503, True)
    with running_provider(tmp_path, port=urlsplit(issuer.address).port or 0) as issuer:
        async with gateway(issuer, tmp_path) as running:
            visitor = Visitor(running)
            callback = await visitor.come_back(await visitor.begin())
            issuer.process.kill()
            issuer.process.wait()
            assert refusal(await visitor.get(callback))[0] == 503
            # What it published is known, and the browser finds out by itself.
            assert (await visitor.begin()).startswith(issuer.address)


async def test_a_configuration_of_another_issuer_is_not_taken(
    provider: Issuer, tmp_path: Path
) -> None:
    other = provider.address.replace("127.0.0.1", "localhost")
    async with gateway(provider, tmp_path, auth_issuer=other) as running:
        assert refusal(await Visitor(running).get("/v1/login/start"))[0] == 503


@rule("access-9")
async def test_new_keys_of_the_provider_let_new_logins_in_and_end_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "RETRY_S", 0.0)
    with running_provider(tmp_path) as issuer:
        async with gateway(issuer, tmp_path) as running:
            before = Visitor(running)
            await before.log_in()
            proof = (await before.get("/v1/login", Accept="*/*")).json()["csrf"]
            cookie = {"Cookie": f"{SESSION}={before.cookies[SESSION]}", "Tidegate-CSRF": proof}
            answer = await running.http.put("/v1/topics/prices.eu", json={}, headers=cookie)
            assert answer.status_code == 201, answer.text
            at = "/v1/topics/prices.eu/subscribe"
            async with running.http.stream("GET", at, headers=cookie) as answer:
                stream = Stream(answer)
                await stream.until("hello")
                issuer.rotate()
                after = Visitor(running)
                assert (await after.log_in()).status_code == 200
                async with soon():
                    said = json.loads((await stream.until("goodbye"))[-1].text)
                assert said["reason"] == "REVOKED"
            assert (await before.get("/v1/login", Accept="*/*")).status_code == 401
            assert (await after.get("/v1/login", Accept="*/*")).status_code == 200


@rule("access-14")
async def test_logins_and_their_refusals_are_audited(provider: Issuer, tmp_path: Path) -> None:
    """The one is a GET, and the others are pages for people."""
    file = tmp_path / "audit"
    async with gateway(provider, tmp_path, audit_log=str(file)) as running:
        visitor = Visitor(running)
        await visitor.log_in()
        kept = visitor.cookies[SESSION]
        sub = (await visitor.get("/v1/login")).json()["sub"]
        assert refusal(await visitor.get("/v1/login/callback?code=x&state=y"))[0] == 401
        # Whoever begins another login has ended this one, in copies of its cookie, too.
        await visitor.begin()
        copy = {"Cookie": f"{SESSION}={kept}"}
        assert (await running.http.get("/v1/login", headers=copy)).status_code == 401
        await running.gateway.audit.write()
        events = [json.loads(line) for line in file.read_text().splitlines()]
        seen = {(it["event"], it.get("code", ""), it.get("sub", "")) for it in events}
        # The provider's keys may have been read meanwhile.
        assert seen - {("access-changed", "", "")} == {
            ("login", "", sub), ("refused", "unauthenticated", ""),
        }  # fmt: skip
