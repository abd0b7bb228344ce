"""The login of browsers at the issuer: OpenID Connect by authorization code with PKCE.

A gateway keeps nothing of a login that has begun: the browser's cookie does. So a browser may begin
at one gateway and come back to another one.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http
import logging
import re
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import jwt
import msgspec

from tidegate.app.access.keys import KeysInvalid, read_file
from tidegate.app.access.outbound import Unreachable, fetch, is_safe
from tidegate.app.access.tokens import unauthenticated
from tidegate.app.logs import event
from tidegate.app.refusals import RETRY_LATER_S, Refused
from tidegate.app.settings.settings import Settings

logger = logging.getLogger("tidegate.access")

LOGIN_S_MAX: Final = 600
"""Time for a person to log in: passwords and second factors take a while."""
RETURN_CHARACTERS_MAX: Final = 1024
EXCHANGES_MAX: Final = 32
"""Codes exchanged at once: anybody can make one up, and each costs the issuer a request."""
STATES_MAX: Final = 10_000
METADATA_S: Final = 3600.0
RETRY_S: Final = 2.0

# No backslash, which browsers read as a slash, no space and no control character.
_PATH = re.compile(r"/(?!/)[\x21-\x5b\x5d-\x7e]*", re.ASCII)
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_ERROR = re.compile(r"[a-z_]{1,64}", re.ASCII)


def is_own_path(path: str) -> bool:
    """Return True for a path of this origin; `//host` is an address of another one."""
    return len(path) <= RETURN_CHARACTERS_MAX and _PATH.fullmatch(path) is not None


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """A login that a browser has begun.

    `secret` is in the browser's cookie and nowhere else. State, nonce and PKCE verifier are made of
    it, each by itself: the state travels in addresses, and must not tell the verifier.
    """

    secret: str
    return_to: str

    @classmethod
    def begin(cls, return_to: str) -> PendingLogin:
        """Return a new login, which ends at this path.

        Raises:
            Refused: options-invalid, for what is no path of this origin.
        """
        if not is_own_path(return_to):
            raise Refused("options-invalid", "return is a path of this gateway, such as /docs.")
        return cls(secrets.token_urlsafe(32), return_to)

    @classmethod
    def parse(cls, cookie: str) -> PendingLogin | None:
        """Return the login that a cookie holds; None for a cookie that holds none."""
        secret, _, encoded = cookie.partition(".")
        try:
            return_to = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode("ascii")
        except ValueError:
            return None
        is_ours = _SECRET.fullmatch(secret) is not None and is_own_path(return_to)
        return cls(secret, return_to) if is_ours else None

    def cookie(self) -> str:
        """Return the value of the cookie."""
        return f"{self.secret}.{_text(self.return_to.encode())}"

    @property
    def state(self) -> str:
        """What the issuer sends back: it binds the answer to this browser."""
        return self._derived(b"state")

    @property
    def nonce(self) -> str:
        """What the ID token repeats: it binds the token to this login."""
        return self._derived(b"nonce")

    @property
    def verifier(self) -> str:
        """What only this login can show: it makes the code worthless to others (RFC 7636)."""
        return self._derived(b"verifier")

    @property
    def challenge(self) -> str:
        """The digest of the verifier, which the issuer gets first."""
        return _text(hashlib.sha256(self.verifier.encode()).digest())

    def _derived(self, purpose: bytes) -> str:
        return _text(hmac.digest(self.secret.encode(), b"tidegate login " + purpose, "sha256"))


class Provider:
    """A client of the OpenID provider."""

    def __init__(self, settings: Settings) -> None:
        assert settings.auth_oidc_client_id is not None
        self.client_id = settings.auth_oidc_client_id
        self._issuer = settings.auth_issuer
        self._scope = settings.auth_oidc_scope
        self._logs_out_at_issuer = settings.auth_oidc_logout
        self._secret_file = settings.auth_oidc_secret_file
        self._metadata: Mapping[str, Any] | None = None
        self._asked_s = float("-inf")
        self._asking = asyncio.Lock()
        self._exchanging = 0
        # In the order in which they came: a state that comes again is a replay.
        self._seen_states: OrderedDict[str, None] = OrderedDict()

    async def login_address(self, login: PendingLogin, redirect_uri: str) -> str:
        """Return where the browser goes to log in.

        Raises:
            Refused: not-ready, while the issuer cannot be asked.
        """
        endpoint = (await self._discovered())["authorization_endpoint"]
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._scope,
            "state": login.state,
            "nonce": login.nonce,
            "code_challenge": login.challenge,
            "code_challenge_method": "S256",
        }
        return _with_query(endpoint, query)

    async def logout_address(self, back: str) -> str | None:
        """Return the issuer's URL to log out, which returns to `back`; None for a local logout."""
        if not self._logs_out_at_issuer:
            return None
        try:
            endpoint = (await self._discovered()).get("end_session_endpoint")
        except Refused:
            return None  # a logout here needs nobody else
        if not isinstance(endpoint, str) or not is_safe(endpoint):
            return None
        # No `id_token_hint`: the token would stand in an address. The issuer asks the person then.
        query = {"client_id": self.client_id, "post_logout_redirect_uri": back}
        return _with_query(endpoint, query)

    async def verify_callback(self, login: PendingLogin, answer: Mapping[str, str]) -> str:
        """Return the code in the issuer's answer, once for each login.

        Args:
            login: the login of the browser that brings the answer.
            answer: the query that the issuer had it bring.

        Raises:
            Refused: unauthenticated; not-ready, while the issuer cannot be asked.
        """
        given, wanted = answer.get("state", ""), login.state
        if not hmac.compare_digest(given.encode(), wanted.encode()):
            raise unauthenticated(
                "This login was begun elsewhere, or a newer one has superseded it."
            )
        # RFC 9207: a response that names another issuer was meant for that one. A missing `iss` is
        # refused as well if the issuer advertises that it sends it.
        is_named = (await self._discovered()).get("authorization_response_iss_parameter_supported")
        if answer.get("iss", None if is_named is True else self._issuer) != self._issuer:
            raise unauthenticated("The answer is of another identity provider.")
        if wanted in self._seen_states:
            raise unauthenticated("This login has been used.")
        self._seen_states[wanted] = None
        if len(self._seen_states) > STATES_MAX:
            self._seen_states.popitem(last=False)
        if "code" not in answer:
            raise unauthenticated(f"The identity provider refused: {_named(answer.get('error'))}.")
        return answer["code"]

    async def exchange(self, login: PendingLogin, code: str, redirect_uri: str) -> str:
        """Return the ID token for a code; its signature and claims are not verified yet.

        Raises:
            Refused: unauthenticated, for a code that is rejected; limit-reached; not-ready.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": login.verifier,
        }
        endpoint = (await self._discovered())["token_endpoint"]
        credentials = self._credentials()
        if credentials is None:
            form["client_id"] = self.client_id
        if self._exchanging >= EXCHANGES_MAX:
            raise Refused("limit-reached", "Too many logins at once.", retry_after_s=RETRY_LATER_S)
        self._exchanging += 1
        try:
            status, body = await fetch(endpoint, form, credentials)
        except Unreachable as error:
            raise _unavailable(str(error)) from None
        finally:
            self._exchanging -= 1
        document = _object(body)
        if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            raise _unavailable(f"it answered {status}")
        token = document.get("id_token")
        if status != http.HTTPStatus.OK or not isinstance(token, str):
            reason = _named(document.get("error"))
            logger.warning("a login was refused: %s", reason, extra=event("login-refused"))
            raise unauthenticated(f"The identity provider did not take the login: {reason}.")
        return token

    def check(self, login: PendingLogin, token: str) -> None:
        """Refuse an ID token that was not made for this login (OpenID Connect Core, 3.1.3.7).

        Args:
            login: the one that it has to be for.
            token: whose signature, issuer and times have been verified.

        Raises:
            Refused: unauthenticated.
        """
        claims = jwt.decode(token, options={"verify_signature": False})
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if self.client_id not in audiences:
            raise unauthenticated("The ID token is for another client.")
        if claims.get("azp", self.client_id if len(audiences) == 1 else None) != self.client_id:
            raise unauthenticated("The ID token was issued to another client.")
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(
            nonce.encode(errors="replace"), login.nonce.encode()
        ):
            raise unauthenticated("The ID token is of another login.")

    def _credentials(self) -> tuple[str, str] | None:
        """Return what the client authenticates with; None for a public client."""
        if self._secret_file is None:
            return None
        try:
            # At each login: the secret can be renewed while the gateway runs.
            secret = read_secret(self._secret_file)
        except KeysInvalid as error:
            logger.error("auth_oidc_secret_file: %s", error, extra=event("login-refused"))
            raise Refused("not-ready", "The gateway's own secret cannot be read.") from None
        # RFC 6749, 2.3.1: both are encoded as in a form before they are put together.
        return quote_plus(self.client_id), quote_plus(secret)

    async def _discovered(self) -> Mapping[str, Any]:
        """Return what the issuer publishes about itself; the last good one while it is out.

        Raises:
            Refused: not-ready.
        """
        # One asks, and the others wait for its answer.
        async with self._asking:
            since_s = time.monotonic() - self._asked_s
            if since_s > (RETRY_S if self._metadata is None else METADATA_S):
                try:
                    self._metadata = await self._discover()
                except Unreachable as error:
                    logger.warning(
                        "the identity provider is out: %s", error, extra=event("issuer-out")
                    )
                self._asked_s = time.monotonic()
        if self._metadata is None:
            raise _unavailable("its configuration cannot be had")
        return self._metadata

    async def _discover(self) -> Mapping[str, Any]:
        address = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        status, body = await fetch(address)
        if status != http.HTTPStatus.OK:
            raise Unreachable(f"it answered {status}")
        document = _object(body)
        # OpenID Connect Discovery, 4.3: else one issuer could speak for another.
        if document.get("issuer") != self._issuer:
            raise Unreachable("its configuration is of another issuer")
        for name in ("authorization_endpoint", "token_endpoint"):
            endpoint = document.get(name)
            if not isinstance(endpoint, str) or not is_safe(endpoint):
                raise Unreachable(f"its {name} is not an https address")
        return document


def read_secret(path: str) -> str:
    """Return the one line of a file.

    Raises:
        KeysInvalid: it cannot be read, or holds something else.
    """
    try:
        secret = read_file(Path(path)).decode("utf-8").strip()
    except UnicodeDecodeError:
        secret = ""
    if not secret or "\n" in secret:
        raise KeysInvalid(f"{Path(path).name} holds no secret, which is one line")
    return secret


def _unavailable(reason: str) -> Refused:
    return Refused("not-ready", f"The identity provider does not answer: {reason}.")


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _named(error: object) -> str:
    """Return an error's name; nothing else that others wrote goes into an answer."""
    is_name = isinstance(error, str) and _ERROR.fullmatch(error) is not None
    return str(error) if is_name else "it gave no reason"


def _with_query(endpoint: str, query: Mapping[str, str]) -> str:
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def _text(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()
