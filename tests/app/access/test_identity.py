"""Which tokens are taken: families, claims, headers; and what everything else is answered."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.deadlines import HANGS_S, LOOPS_S
from tests.support.gateways import Running, Stream, running_gateway
from tests.support.rules import rule
from tests.support.tokens import (
    bearer,
    claims,
    grant,
    private_key,
    public_jwk,
    signed,
    token_of,
    unsigned,
    write_keys,
)
from tidegate.app.access import keys as key_sets
from tidegate.app.access import outbound
from tidegate.app.access.keys import KeySet, KeysInvalid, KeySource
from tidegate.app.settings.settings import SettingsInvalid

FAMILIES = ["HS256", "HS384", "HS512", "RS256", "PS384", "ES256", "ES384", "ES512", "EdDSA"]
READS = grant("read px")
NOW = int(time.time())


def keys_of(folder: Path, algorithm: str = "HS256", **more: Any) -> str:
    return write_keys(folder / "keys.json", public_jwk(algorithm, **more))


async def status(running: Running, headers: dict[str, str] | list[tuple[str, str]]) -> int:
    answer = await running.http.get("/v1/topics", headers=headers)
    if answer.status_code == 401:
        assert answer.json()["code"] == "unauthenticated"
        assert answer.headers["www-authenticate"].startswith('Bearer realm="tidegate"')
    return answer.status_code


@rule("access-1")
@pytest.mark.parametrize("algorithm", FAMILIES)
async def test_a_token_of_any_family_is_taken(tmp_path: Path, algorithm: str) -> None:
    async with running_gateway(auth_keys=keys_of(tmp_path, algorithm)) as running:
        token = signed(claims("ann", READS), algorithm)
        assert await status(running, bearer(token)) == 200
        assert await status(running, bearer(token)) == 200  # remembered
        assert await status(running, bearer(token[:-8] + "AAAAAAAA")) == 401
        other = signed(claims("ann", READS), algorithm, number=2)
        assert await status(running, bearer(other)) == 401


# Its times are of the import: only what lies an hour away can be trusted to.
REFUSED: dict[str, Any] = {
    "expired": {"exp": NOW - 31},
    "without-exp": {"exp": None},
    "exp-a-text": {"exp": str(NOW + 99_999)},
    "exp-a-bool": {"exp": True},
    "exp-a-list": {"exp": [NOW]},
    "exp-beyond-milliseconds": {"exp": 1e308},
    "exp-beyond-any-number": {"exp": 10**400},
    "exp-beyond-the-calendar": {"exp": 253_402_300_800},
    "exp-no-number": {"exp": float("nan")},
    "not-before": {"nbf": NOW + 99_999},
    "issued-later": {"iat": NOW + 99_999},
    "other-audience": {"aud": "other"},
    "other-audiences": {"aud": ["other", "another"]},
    "without-audience": {"aud": None},
    "other-issuer": {"iss": "https://evil.example"},
    "without-issuer": {"iss": None},
    "without-sub": {"sub": None},
    "sub-a-number": {"sub": 7},
    "sub-empty": {"sub": ""},
    "sub-of-two-lines": {"sub": "ann\r\nX: y"},
    "sub-a-surrogate": {"sub": "ann\ud800"},
    "sub-written-backwards": {"sub": "\u202ennA"},
    "sub-with-a-mark-of-byte-order": {"sub": "\ufeffann"},
    "sub-isolated": {"sub": "a\u2067nn"},
    "sub-too-long": {"sub": "a" * 256},
    "sub-of-a-certificate": {"sub": "certificate:feed-1.example"},
    "claim-a-list": {"tidegate": ["read"]},
    "grants-an-object": {"tidegate": {"grants": {}}},
    "grant-unknown-verb": {"tidegate": {"grants": [{"topics": ">", "can": ["all"]}]}},
    "grant-unknown-field": {"tidegate": {"grants": [{**READS, "filtre": "/a = 1"}]}},
    "grant-bad-filter": {"tidegate": {"grants": [{**READS, "filter": "/a ="}]}},
    "grant-a-surrogate": {"tidegate": {"grants": [{**READS, "filter": "/a = '\ud800'"}]}},
    "grant-bad-select": {"tidegate": {"grants": [{**READS, "select": "[-/secret]"}]}},
    "grant-bad-topics": {"tidegate": {"grants": [{"topics": "a>", "can": ["read"]}]}},
}


@rule("access-1")
async def test_a_token_whose_claims_do_not_fit_is_refused(tmp_path: Path) -> None:
    async with running_gateway(auth_keys=keys_of(tmp_path)) as running:
        for name, more in REFUSED.items():
            payload = {**claims("ann", READS), **more}
            payload = {key: value for key, value in payload.items() if value is not None}
            # PyJWT signs no sub that is no text, so it is signed below it.
            text = json.dumps(payload).encode()
            token = jwt.PyJWS().encode(text, private_key("HS256"), "HS256", {"kid": "k1"})
            assert await status(running, bearer(token)) == 401, name
        assert await status(running, bearer(signed(claims("ann", READS)))) == 200
        now = int(time.time())
        late = claims("ann", exp=now - 10, nbf=now + 10)  # within what clocks may differ
        assert await status(running, bearer(signed(late))) == 200


@rule("access-1")
async def test_a_token_that_says_how_it_wants_to_be_verified_is_refused(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.json", public_jwk("RS256"))
    payload = claims("eve", grant("read,write,admin,observe >"))
    pem = (
        private_key("RS256")
        .public_key()
        .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    async with running_gateway(auth_keys=path) as running:
        for algorithm in ("none", "None", "nOnE", ""):
            assert await status(running, bearer(unsigned(payload, algorithm) + "")) == 401
            assert await status(running, bearer(unsigned(payload, algorithm, b"x"))) == 401
        # The public key as a secret: known to everybody.
        head = unsigned(payload, "HS256").rsplit(".", 1)[0]
        digest = hmac.digest(pem, head.encode(), hashlib.sha256)
        forged = f"{head}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
        assert await status(running, bearer(forged)) == 401
        assert await status(running, bearer(signed(payload, "PS256"))) == 401
        for more in (
            {"kid": "../../dev/null"},
            {"kid": "k" * 3000},
            {"jku": "http://127.0.0.1:1/keys", "kid": "new"},
            {"jwk": public_jwk("RS256", "evil", 2), "kid": "evil"},
            {"crit": ["exp"], "exp": 1},
            {"typ": "logout+jwt"},
        ):
            named = {"kid": "k1", **more}
            key = private_key("RS256", 2 if "jwk" in more else 1)
            assert await status(running, bearer(jwt.encode(payload, key, "RS256", named))) == 401
        good = jwt.encode(payload, private_key("RS256"), "RS256", {"kid": "k1"})
        assert await status(running, bearer(good)) == 200
        # Its key is in the set, and it names another one beside it.
        for name, value in (
            ("jku", "https://issuer.example/keys"),
            ("jwk", public_jwk("RS256")),
            ("x5u", "https://issuer.example/chain"),
            ("x5c", ["AAAA"]),
        ):
            token = jwt.encode(payload, private_key("RS256"), "RS256", {"kid": "k1", name: value})
            assert await status(running, bearer(token)) == 401, name
            answer = await running.http.post("/v1/login", json={"token": token})
            assert answer.status_code == 401, name


@rule("access-1")
async def test_a_token_that_no_answer_can_show_is_no_login(tmp_path: Path) -> None:
    async with running_gateway(auth_keys=keys_of(tmp_path)) as running:
        text = json.dumps(claims("ann\ud800")).encode()
        token = jwt.PyJWS().encode(text, private_key("HS256"), "HS256", {"kid": "k1"})
        answer = await running.http.post("/v1/login", json={"token": token})
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        # The token itself, too: an answer of 400, not of 500.
        content = b'{"token": "a\\ud800"}'
        headers = {"Content-Type": "application/json"}
        answer = await running.http.post("/v1/login", content=content, headers=headers)
        assert answer.status_code in {400, 401}


@rule("access-1")
async def test_headers_that_carry_no_single_token_are_refused(tmp_path: Path) -> None:
    async with running_gateway(auth_keys=keys_of(tmp_path)) as running:
        good = signed(claims("ann", READS))
        assert await status(running, {"Authorization": f"bearer {good}"}) == 200
        for value in ("Bearer", "Basic YTpi", good, f"Bearer {good} {good}", "Bearer a.b"):
            assert await status(running, {"Authorization": value}) == 401, value
        two = [("Authorization", f"Bearer {good}"), ("Authorization", f"Bearer {good}")]
        assert await status(running, two) == 401
        assert await status(running, {}) == 401
        # A token in the address would be in every log on its way.
        answer = await running.http.get(f"/v1/topics?access_token={good}")
        assert answer.status_code == 401
        assert good not in answer.text


def test_a_set_that_is_not_safe_is_refused() -> None:
    short = {"kty": "oct", "k": base64.urlsafe_b64encode(b"x" * 31).rstrip(b"=").decode()}
    for keys, said in (
        ([short], "at least 32 bytes"),
        ([{**short, "alg": "HS512", "k": "A" * 60}], "at least 64 bytes"),
        ([public_jwk("HS256"), public_jwk("RS256")], "one family"),
        ([public_jwk("RS256"), public_jwk("PS256")], "one family"),
        ([], "no key"),
        ([{"kty": "new"}], "no key"),
        ([{**public_jwk("RS256"), "use": "enc"}], "no key"),
        ([{**public_jwk("EdDSA"), "d": "AAAA"}], "private"),
        (["x"], "a JSON object"),
    ):
        with pytest.raises(KeysInvalid, match=said):
            KeySet.parse(json.dumps({"keys": keys}).encode())
    for text in (b"", b"[]", b"{}", b"nonsense", b"[" * 2_000):
        with pytest.raises(KeysInvalid):
            KeySet.parse(text)


def test_an_address_that_is_not_safe_is_refused() -> None:
    for place in ("http://keys.example/jwks", "ftp://x/y", "https://me:secret@keys.example/"):
        with pytest.raises(KeysInvalid, match="https"):
            KeySource(place)
    assert KeySource("https://keys.example/jwks").is_remote
    assert KeySource("http://127.0.0.1:1/jwks").is_remote


async def test_keys_that_cannot_be_read_end_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match=r"auth_keys: none\.json cannot be read"):
        async with running_gateway(auth_keys=str(tmp_path / "none.json")):
            pass
    policy = tmp_path / "policy.toml"
    policy.write_text("claim = 1")
    with pytest.raises(SettingsInvalid, match="auth_policy: claim"):
        async with running_gateway(auth_keys=keys_of(tmp_path), auth_policy=str(policy)):
            pass


@rule("access-2")
async def test_new_keys_are_taken_and_a_bad_set_leaves_the_last_good_one(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    async with running_gateway(auth_keys=keys_of(tmp_path)) as running:
        old, new = signed(claims("ann")), signed(claims("ann"), kid="k2", number=2)
        path.write_text("nonsense")
        await asyncio.sleep(1.2)
        assert await status(running, bearer(old)) == 200
        write_keys(path, public_jwk("HS256", "k2", 2))
        async with asyncio.timeout(HANGS_S):
            while await status(running, bearer(new)) != 200:
                await asyncio.sleep(0.1)
        assert await status(running, bearer(old)) == 401


class KeyServer:
    """An issuer's key set at an address, with what goes wrong there."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.body = json.dumps({"keys": keys}).encode()
        self.head = b""
        self.status, self.asked, self.delay_s = 200, 0, 0.0
        self.may_answer = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        self.may_answer = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.delay_s):
                await self.may_answer.wait()
        head = f"HTTP/1.1 {self.status} X\r\nContent-Length: {len(self.body)}\r\n".encode()
        writer.write(head + self.head + b"Connection: close\r\n\r\n" + self.body)
        # A gateway that has waited long enough is gone.
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Its address."""
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/jwks"


@rule("access-2")
async def test_keys_at_an_address_are_fetched_and_kept_while_it_is_out() -> None:
    issuer = KeyServer(public_jwk("ES256"))
    issuer.head = b"Location: /other\r\n"
    async with issuer.serving() as at, running_gateway(auth_keys=at) as running:
        good = bearer(signed(claims("ann"), "ES256"))
        assert await status(running, good) == 200
        issuer.status = 503
        unknown = bearer(signed(claims("ann"), "ES256", "k9", 9))
        for _ in range(20):
            assert await status(running, unknown) == 401
        assert issuer.asked <= 2  # made-up keys do not become requests
        assert await status(running, good) == 200


@rule("access-2")
async def test_all_who_come_with_a_new_key_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    issuer = KeyServer(public_jwk("ES256"))
    async with issuer.serving() as at, running_gateway(auth_keys=at) as running:
        assert await status(running, bearer(signed(claims("ann"), "ES256"))) == 200
        issuer.body = json.dumps({"keys": [public_jwk("ES256", "k2", 2)]}).encode()
        issuer.delay_s = 0.3
        monkeypatch.setattr(key_sets, "RETRY_S", 1.0)
        await asyncio.sleep(1.0)
        new = [bearer(signed(claims(f"ann{each}"), "ES256", "k2", 2)) for each in range(8)]
        assert set(await asyncio.gather(*(status(running, it) for it in new))) == {200}


@rule("access-9")
async def test_a_slow_issuer_keeps_no_revoked_subject_going(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("revoked = []")
    monkeypatch.setattr(outbound, "ANSWER_S_MAX", LOOPS_S)  # longer than the test waits
    issuer = KeyServer(public_jwk("ES256"))
    async with (
        issuer.serving() as at,
        running_gateway(auth_keys=at, auth_policy=str(policy)) as running,
    ):
        ann = bearer(signed(claims("ann", grant("read,admin px")), "ES256"))
        put = await running.http.put("/v1/topics/px", json={"key": ["/k"]}, headers=ann)
        assert put.status_code == 201
        async with running.http.stream("GET", "/v1/topics/px/subscribe", headers=ann) as answer:
            stream = Stream(answer)
            await stream.until("hello")
            before = issuer.asked
            issuer.delay_s = LOOPS_S  # it takes the request, and does not answer
            monkeypatch.setattr(key_sets, "REFRESH_S", 0.0)
            async with asyncio.timeout(HANGS_S):
                while issuer.asked == before:
                    await asyncio.sleep(0.01)
            policy.write_text("revoked = ['ann']")
            async with asyncio.timeout(HANGS_S):
                assert "REVOKED" in (await stream.until("goodbye"))[-1].text
            issuer.delay_s = 0.0
            issuer.may_answer.set()


async def test_a_compressed_key_set_is_not_unpacked() -> None:
    issuer = KeyServer(public_jwk("ES256"))
    issuer.head = b"Content-Encoding: gzip\r\n"
    issuer.body = gzip.compress(issuer.body)
    async with issuer.serving() as at:
        assert (await outbound.fetch(at)) == (200, issuer.body)


async def test_without_keys_yet_the_gateway_is_not_ready() -> None:
    async with running_gateway(auth_keys="http://127.0.0.1:1/jwks") as running:
        answer = await running.http.get("/v1/topics", headers=token_of("ann"))
        assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")


async def test_without_authentication_a_token_means_nothing() -> None:
    async with running_gateway() as running:
        await running.topic()
        assert await status(running, {"Authorization": "Bearer x"}) == 200
