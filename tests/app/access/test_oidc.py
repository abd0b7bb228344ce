"""A login that has begun, and what is asked of a provider, without one."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.support.gateways import running_gateway
from tests.support.rules import rule
from tests.support.servers import edge_settings
from tests.support.tokens import bearer, claims, grant, public_jwk, signed, write_keys
from tidegate.app.access.access import Access
from tidegate.app.access.login import oidc
from tidegate.app.access.login.oidc import EXCHANGES_MAX, PendingLogin, Provider
from tidegate.app.access.outbound import Unreachable, is_safe
from tidegate.app.refusals import Refused
from tidegate.app.settings.settings import SettingsInvalid
from tidegate.app.topics.catalog import Catalog
from tidegate.app.topics.registry import Fault

ISSUER = "https://id.example/realms/desk"
METADATA = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/auth?kind=x",
    "token_endpoint": f"{ISSUER}/token",
}
BACK = "https://gateway.example/v1/login/callback"


class Fake:
    """What `fetch` answers, and what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.metadata: Mapping[str, Any] | None = METADATA
        self.asked: list[tuple[str, Any, Any]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        monkeypatch.setattr(oidc, "fetch", self.fetch)

    async def fetch(self, address: str, form: Any = None, credentials: Any = None) -> Any:
        self.asked.append((address, form, credentials))
        if form is not None:
            await self.may_answer.wait()
            return 200, b'{"id_token": "a.b.c"}'
        if self.metadata is None:
            raise Unreachable("ConnectError")
        return 200, json.dumps(self.metadata).encode()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(monkeypatch)


def provider(folder: Path, **more: Any) -> Provider:
    keys = write_keys(folder / "keys.json", public_jwk("RS256"))
    given = {"auth_keys": keys, "auth_issuer": ISSUER, "auth_oidc_client_id": "a client"}
    return Provider(edge_settings(**{**given, **more}))


def test_what_travels_does_not_tell_the_secret_nor_the_verifier() -> None:
    login = PendingLogin.begin("/docs")
    assert PendingLogin.parse(login.cookie()) == login
    made = {login.state, login.nonce, login.verifier, login.challenge, login.secret}
    assert len(made) == 5
    digest = hashlib.sha256(login.verifier.encode()).digest()
    assert login.challenge == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    assert 43 <= len(login.verifier) <= 128
    assert PendingLogin.begin("/docs").state != login.state
    for cookie in ("", ".", "a.Lw", login.secret, f"{login.secret}.Ly9ldmls", f"{login.secret}.*"):
        assert PendingLogin.parse(cookie) is None


async def test_the_address_of_a_login_keeps_the_query_of_the_endpoint(
    tmp_path: Path, fake: Fake
) -> None:
    login = PendingLogin.begin("/")
    address = await provider(tmp_path).login_address(login, BACK)
    assert address.startswith(f"{ISSUER}/auth?kind=x&response_type=code&client_id=a+client&")
    assert login.verifier not in address


async def test_the_last_good_configuration_stays(
    tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = provider(tmp_path)
    login = PendingLogin.begin("/")
    first = await asking.login_address(login, BACK)
    await asking.login_address(login, BACK)
    assert len(fake.asked) == 1
    monkeypatch.setattr(oidc, "METADATA_S", -1.0)
    for broken in (
        None, {**METADATA, "issuer": "https://evil.example"}, {"issuer": ISSUER},
        {**METADATA, "token_endpoint": "http://id.example/token"},
        {**METADATA, "token_endpoint": "https://me:pw@id.example/token"},
    ):  # fmt: skip
        fake.metadata = broken
        assert await asking.login_address(login, BACK) == first
        monkeypatch.setattr(oidc, "RETRY_S", -1.0)
        with pytest.raises(Refused, match="not-ready"):
            await provider(tmp_path).login_address(login, BACK)
    assert len(fake.asked) == 11


async def test_name_and_secret_are_encoded_as_in_a_form(tmp_path: Path, fake: Fake) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a:b+c/d \n")
    login = PendingLogin.begin("/")
    asking = provider(tmp_path, auth_oidc_secret_file=str(secret))
    assert await asking.exchange(login, "code", BACK) == "a.b.c"
    address, form, credentials = fake.asked[-1]
    assert (address, credentials) == (f"{ISSUER}/token", ("a+client", "a%3Ab%2Bc%2Fd"))
    assert form["code_verifier"] == login.verifier
    assert "client_id" not in form
    for text in (b"", b"a\nb", b"\xff"):
        secret.write_bytes(text)
        with pytest.raises(Refused, match="not-ready"):
            await asking.exchange(login, "code", BACK)
    public = provider(tmp_path)
    await public.exchange(login, "code", BACK)
    assert (fake.asked[-1][1]["client_id"], fake.asked[-1][2]) == ("a client", None)


async def test_few_codes_are_exchanged_at_once(tmp_path: Path, fake: Fake) -> None:
    asking = provider(tmp_path)
    login = PendingLogin.begin("/")
    fake.may_answer.clear()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(EXCHANGES_MAX):
            tasks.create_task(asking.exchange(login, "code", BACK))
        await asyncio.sleep(0.01)
        with pytest.raises(Refused, match="limit-reached"):
            await asking.exchange(login, "code", BACK)
        fake.may_answer.set()
    assert await asking.exchange(login, "code", BACK) == "a.b.c"


async def test_states_that_were_used_are_few(
    tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "STATES_MAX", 2)
    asking = provider(tmp_path)
    logins = [PendingLogin.begin("/") for _ in range(3)]
    answers = [{"state": each.state, "code": "c"} for each in logins]
    for login, answer in zip(logins, answers, strict=True):
        assert await asking.verify_callback(login, answer) == "c"
    with pytest.raises(Refused, match="unauthenticated"):
        await asking.verify_callback(logins[2], answers[2])
    # The oldest is forgotten; the provider knows its code as used.
    assert await asking.verify_callback(logins[0], answers[0]) == "c"


async def test_another_issuer_in_the_answer_is_refused(tmp_path: Path, fake: Fake) -> None:
    login = PendingLogin.begin("/")
    answer = {"state": login.state, "code": "c"}
    with pytest.raises(Refused, match="unauthenticated"):
        await provider(tmp_path).verify_callback(login, {**answer, "iss": "https://evil.example"})
    assert await provider(tmp_path).verify_callback(login, answer) == "c"
    # An issuer that gives its name always: without it the answer is another's (RFC 9207, 2.4).
    fake.metadata = {**METADATA, "authorization_response_iss_parameter_supported": True}
    with pytest.raises(Refused, match="unauthenticated"):
        await provider(tmp_path).verify_callback(login, answer)
    assert await provider(tmp_path).verify_callback(login, {**answer, "iss": ISSUER}) == "c"


async def test_a_logout_leads_to_the_provider_where_that_is_wanted(
    tmp_path: Path, fake: Fake
) -> None:
    back = "https://gateway.example/"
    assert await provider(tmp_path, auth_oidc_logout=True).logout_address(back) is None
    fake.metadata = {**METADATA, "end_session_endpoint": f"{ISSUER}/logout"}
    assert await provider(tmp_path).logout_address(back) is None
    query = "client_id=a+client&post_logout_redirect_uri=https%3A%2F%2Fgateway.example%2F"
    address = await provider(tmp_path, auth_oidc_logout=True).logout_address(back)
    assert address == f"{ISSUER}/logout?{query}"
    for broken in ("http://id.example/logout", "javascript:alert(1)", 7):
        fake.metadata = {**METADATA, "end_session_endpoint": broken}
        assert await provider(tmp_path, auth_oidc_logout=True).logout_address(back) is None
    fake.metadata = None
    assert await provider(tmp_path, auth_oidc_logout=True).logout_address(back) is None


async def test_a_page_is_shown_where_to_log_out(tmp_path: Path, fake: Fake) -> None:
    fake.metadata = {**METADATA, "end_session_endpoint": f"{ISSUER}/logout"}
    keys = write_keys(tmp_path / "keys.json", public_jwk("RS256"))
    given = {"auth_keys": keys, "auth_issuer": ISSUER, "auth_oidc_client_id": "a client"}
    token = signed(claims("ann", iss=ISSUER), "RS256")
    async with running_gateway(**given, auth_oidc_logout=True) as running:
        cookie = {"Cookie": f"__Host-tidegate={token}"}
        shown = (await running.http.get("/v1/login", headers=cookie)).json()
        query = {"client_id": "a client", "post_logout_redirect_uri": f"{running.address}/"}
        assert shown["logout"] == f"{ISSUER}/logout?{urlencode(query)}"
        assert token not in shown["logout"]
        # A program has no session at the provider.
        shown = (await running.http.get("/v1/login", headers=bearer(token))).json()
        assert "logout" not in shown


async def test_a_logout_voids_an_id_token(tmp_path: Path, fake: Fake) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("RS256"))
    given = {"auth_keys": keys, "auth_issuer": ISSUER, "auth_oidc_client_id": "a client"}
    cookie = {"Cookie": f"__Host-tidegate={signed(claims(iss=ISSUER, aud='a client'), 'RS256')}"}
    async with running_gateway(**given) as running:
        for status in (200, 401):
            assert (await running.http.get("/v1/login", headers=cookie)).status_code == status
            assert (await running.http.delete("/v1/login", headers=cookie)).status_code == 204


@rule("access-5")
async def test_who_has_logged_in_there_sees_which_topics_are_at_fault(
    tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("RS256"))
    given = {"auth_keys": keys, "auth_issuer": ISSUER, "auth_oidc_client_id": "a client"}
    token = signed(claims("ann", grant("read prices.>"), iss=ISSUER, aud="a client"), "RS256")
    faults = [Fault(name, "unusable", "r") for name in ("prices.eu", "secret")]
    async with running_gateway(**given) as running:
        monkeypatch.setattr(Catalog, "faults", lambda _: faults)
        for headers, names in (
            ({"Cookie": f"__Host-tidegate={token}"}, ["prices.eu"]),
            (bearer(token), []),  # an ID token counts in the cookie alone
        ):
            state = (await running.http.get("/readyz", headers=headers)).json()
            assert [each["topic"] for each in state.get("topics", ())] == names


@pytest.mark.parametrize(
    "address",
    [
        "http://id.example", "ftp://id.example", "https://", "https://a@id.example", "//id.example",
        "https://[::1", "file:///etc/passwd", "http://127.0.0.1.example",
    ],
)  # fmt: skip
def test_addresses_that_are_not_asked(address: str) -> None:
    assert not is_safe(address)


@pytest.mark.parametrize(
    "given",
    [
        {"auth_oidc_client_id": "a"},
        {"auth_oidc_client_id": "a", "auth_issuer": "https://id.example", "auth_keys": None},
        {"auth_oidc_client_id": "a", "auth_issuer": ISSUER, "auth_oidc_scope": "profile"},
        {"auth_oidc_secret_file": "x"},
        {"auth_oidc_client_id": "a", "auth_issuer": "http://id.example"},
    ],
)
def test_settings_that_fit_no_provider_are_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("RS256"))
    with pytest.raises((ValueError, SettingsInvalid), match="auth_"):
        Access(edge_settings(**{"auth_keys": keys, **given}))
