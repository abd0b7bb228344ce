"""A certified OpenID provider (idpyoidc) as a process on loopback, with a page to log in.

The library answers every request of the protocol. What is added here is HTTP, and what tests need:
new keys, and ID tokens that are wrong in one claim and signed well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from urllib.request import Request, urlopen

import dev
from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port

SERVER = "idpyoidc.server."  # where the classes of the library are
CLIENT = "tidegate-pages"
SECRET = "0123456789-abcdefghijklmnopqrstuv"
PUBLIC_CLIENT = "tidegate-public"
PASSWORD = "correct horse"
USERS = {
    "ann": {"groups": ["traders"], "email": "ann@desk.example"},
    "eve": {"groups": ["visitors"], "email": "eve@desk.example"},
    "max": {"groups": [f"group-{number:04}" for number in range(400)]},
}
"""Of these, max has more groups than a cookie holds."""
FORM = """<!doctype html><title>Provider</title><h1>Log in at the provider</h1>
<form method="post" action="{{ action }}"><input type="hidden" name="token" value="{{ token }}">
<label>Name <input name="username"></label>
<label>Password <input name="password" type="password"></label>
<button>Log in</button></form>"""


def configuration(issuer: str, folder: Path, lifetime_s: int) -> dict[str, Any]:
    """What the library is told; files of the provider go into the folder."""
    (folder / "form.jinja2").write_text(FORM)
    (folder / "users.json").write_text(json.dumps(USERS))
    (folder / "passwords.json").write_text(json.dumps(dict.fromkeys(USERS, PASSWORD)))
    secrets = [{"type": "OCT", "use": [use], "kid": use} for use in ("enc", "sig")]
    return {
        "issuer": issuer,
        "template_dir": str(folder),
        "key_conf": {"key_defs": [{"type": "RSA", "use": ["sig"]}], "uri_path": "jwks"},
        "add_on": {
            "pkce": {
                "function": SERVER + "oauth2.add_on.pkce.add_support",
                "kwargs": {"essential": True, "code_challenge_methods": {"S256": None}},
            }
        },
        "authentication": {"user": _password_login(folder)},
        "authz": _grants(),
        "capabilities": {
            "subject_types_supported": ["public"],
            "grant_types_supported": ["authorization_code"],
        },
        "claims_interface": {"class": SERVER + "session.claims.ClaimsInterface", "kwargs": {}},
        "cookie_handler": {
            "class": SERVER + "cookie_handler.CookieHandler",
            "kwargs": {
                "keys": {"key_defs": secrets},
                "name": {"session": "op", "register": "rp", "session_management": "sman"},
            },
        },
        "endpoint": _endpoints(),
        "token_handler_args": {
            "key_conf": {"key_defs": secrets},
            "code": {"lifetime": 600},
            "token": {
                "class": SERVER + "token.jwt_token.JWTToken",
                "kwargs": {"lifetime": 600, "alg": "RS256"},
            },
            "id_token": {
                "class": SERVER + "token.id_token.IDToken",
                "kwargs": {"lifetime": lifetime_s, "base_claims": {"groups": {"essential": True}}},
            },
        },
        "userinfo": {
            "class": SERVER + "user_info.UserInfo",
            "kwargs": {"db_file": str(folder / "users.json")},
        },
    }


def _password_login(folder: Path) -> dict[str, Any]:
    return {
        "acr": "urn:oasis:names:tc:SAML:2.0:ac:classes:InternetProtocolPassword",
        "class": SERVER + "user_authn.user.UserPassJinja2",
        "kwargs": {
            "verify_endpoint": "verify",
            "template": "form.jinja2",
            "db": {
                "class": SERVER + "util.JSONDictDB",
                "kwargs": {"filename": str(folder / "passwords.json")},
            },
        },
    }


def _grants() -> dict[str, Any]:
    minted = {"supports_minting": ["access_token", "id_token"], "max_usage": 1}
    rules = {"authorization_code": minted, "access_token": {}}
    config = {"usage_rules": rules, "expires_in": 43200}
    return {"class": SERVER + "authz.AuthzHandling", "kwargs": {"grant_config": config}}


def _endpoints() -> dict[str, Any]:
    return {
        "provider_config": {
            "path": ".well-known/openid-configuration",
            "class": SERVER + "oidc.provider_config.ProviderConfiguration",
            "kwargs": {"client_authn_method": None},
        },
        "authorization": {
            "path": "authorization",
            "class": SERVER + "oidc.authorization.Authorization",
            "kwargs": {"client_authn_method": None, "response_types_supported": ["code"]},
        },
        "token": {
            "path": "token",
            "class": SERVER + "oidc.token.Token",
            "kwargs": {"client_authn_method": ["client_secret_basic", "public"]},
        },
    }


class Provider:
    """The library's server with its clients."""

    def __init__(self, issuer: str, folder: Path, life_s: int) -> None:
        from idpyoidc.server import Server
        from idpyoidc.server.configure import OPConfiguration

        conf = OPConfiguration(configuration(issuer, folder, life_s), base_path=str(folder))
        self.server = Server(conf, cwd=str(folder))
        self.context = self.server.context
        common = {
            "redirect_uris": [],
            "response_types_supported": ["code"],
            "allowed_scopes": ["openid"],
            "id_token_signed_response_alg": "RS256",
        }
        self.context.cdb[CLIENT] = {
            **common, "client_secret": SECRET, "client_authn_method": ["client_secret_basic"],
        }  # fmt: skip
        self.context.cdb[PUBLIC_CLIENT] = {**common, "client_authn_method": ["public"]}
        self.context.keyjar.add_symmetric(CLIENT, SECRET)
        self.wrong: dict[str, Any] = {}

    def redirect_to(self, address: str) -> None:
        """Let both clients be sent back to this address."""
        for client in (CLIENT, PUBLIC_CLIENT):
            self.context.cdb[client]["redirect_uris"].append((address, {}))

    def rotate(self) -> None:
        """Sign with a new key, and publish the old one no more."""
        from cryptojwt.key_bundle import build_key_bundle

        issuer = self.context.issuer
        bundle = build_key_bundle([{"type": "RSA", "use": ["sig"], "kid": "rotated"}])
        for owner in ("", issuer):
            self.context.keyjar[owner].set([bundle])

    def altered(self, answer: str) -> str:
        """The token's answer, its ID token with the claims that a test wants to be wrong."""
        from cryptojwt.jws.jws import JWS, factory

        document = json.loads(answer)
        if not self.wrong or "id_token" not in document:
            return answer
        claims = {**factory(document["id_token"]).jwt.payload(), **self.wrong}
        claims = {name: value for name, value in claims.items() if value is not None}
        [key] = self.context.keyjar.get_signing_key("RSA")
        document["id_token"] = JWS(claims, alg="RS256").sign_compact([key])
        return json.dumps(document)


class Handler(BaseHTTPRequestHandler):
    """HTTP around the library."""

    provider: Provider
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        match parts.path:
            case "/jwks":
                self.answer(200, self.provider.context.keyjar.export_jwks_as_json(), "json")
            case "/.well-known/openid-configuration":
                self.ask("provider_config", dict(parse_qsl(parts.query)))
            case "/authorization":
                self.ask("authorization", dict(parse_qsl(parts.query)))
            case _:
                self.answer(404, "nothing here")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        match self.path:
            case "/token":
                self.ask("token", dict(parse_qsl(body)))
            case "/verify":
                self.verify(dict(parse_qsl(body)))
            case "/test/redirect":
                self.provider.redirect_to(body)
                self.answer(204, "")
            case "/test/rotate":
                self.provider.rotate()
                self.answer(204, "")
            case "/test/wrong":
                self.provider.wrong = json.loads(body)
                self.answer(204, "")
            case _:
                self.answer(404, "nothing here")

    def ask(self, name: str, sent: dict[str, str]) -> None:
        """One request of the protocol."""
        endpoint = self.provider.server.get_endpoint(name)
        cookies = SimpleCookie(self.headers.get("Cookie", ""))
        http_info = {
            "headers": {key.lower(): value for key, value in self.headers.items()},
            "method": self.command,
            "url": self.provider.context.issuer + self.path,
            "cookie": [{"name": it.key, "value": it.value} for it in cookies.values()],
        }
        try:
            request = endpoint.parse_request(sent, http_info=http_info)
            if "error" in request:
                self.answer(400, request.to_json(), "json")
                return
            args = endpoint.process_request(request, http_info=http_info)
        except Exception as error:  # the library raises what it likes for what clients send
            self.answer(401, json.dumps({"error": "invalid_client", "why": str(error)}), "json")
            return
        if "http_response" in args:
            self.answer(200, args["http_response"], "html")
        elif "error" in args:
            self.answer(400, json.dumps({"error": args["error"]}), "json")
        else:
            self.respond(endpoint, request, args)

    def respond(self, endpoint: Any, request: Any, args: Any) -> None:
        info = endpoint.do_response(request=request, **args)
        cookies = info.get("cookie", [])
        if info.get("response_placement", endpoint.response_placement) == "body":
            text = info["response"]
            if endpoint.name == "token":
                text = self.provider.altered(text)
            self.answer(200, text, "json", cookies)
        else:
            self.answer(303, "", "html", cookies, info["response"])

    def verify(self, form: dict[str, str]) -> None:
        """The form of the login, sent."""
        from idpyoidc.message.oidc import AuthorizationRequest
        from idpyoidc.server.exception import FailedAuthentication

        method = self.provider.context.authn_broker.get_method_by_id("user")
        try:
            user = method.verify(**form)
        except (FailedAuthentication, KeyError):
            self.answer(403, "wrong name or password")
            return
        begun = method.unpack_token(form["token"])
        request = AuthorizationRequest().from_urlencoded(begun["query"])
        endpoint = self.provider.server.get_endpoint("authorization")
        session = endpoint.create_session(
            request, user, begun["authn_class_ref"], begun["iat"], method
        )
        self.respond(endpoint, request, endpoint.authz_part2(request=request, session_id=session))

    def answer(
        self,
        status: int,
        text: str,
        kind: str = "html",
        cookies: list[dict[str, Any]] | None = None,
        location: str = "",
    ) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if kind == "json" else "text/html")
        self.send_header("Content-Length", str(len(body)))
        for each in cookies or []:
            self.send_header(
                "Set-Cookie", f"{each['name']}={each['value']}; Path=/; HttpOnly; SameSite=Lax"
            )
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing: the tests read what the gateway says."""


class Issuer:
    """A running provider, as tests see it."""

    def __init__(self, address: str, process: subprocess.Popen[str]) -> None:
        self.address = address
        self.process = process

    def settings(self, **more: str) -> dict[str, str]:
        """Settings of a gateway whose users log in here."""
        return {
            "auth_keys": f"{self.address}/jwks",
            "auth_issuer": self.address,
            "auth_oidc_client_id": PUBLIC_CLIENT,
            **more,
        }

    def redirect_to(self, gateway: str) -> None:
        """Let this gateway's logins come back to it."""
        self._post("redirect", f"{gateway}/v1/login/callback")

    def rotate(self) -> None:
        """Sign with a new key from now on, and forget the old one."""
        self._post("rotate", "")

    def be_wrong(self, **claims: Any) -> None:
        """Put these claims into ID tokens from now on; None leaves one out."""
        self._post("wrong", json.dumps(claims))

    def _post(self, verb: str, body: str) -> None:
        with urlopen(Request(f"{self.address}/test/{verb}", body.encode()), timeout=HANGS_S):
            pass


@contextmanager
def running_provider(folder: Path, life_s: int = 300, port: int = 0) -> Iterator[Issuer]:
    """A provider on loopback whose ID tokens hold for so long; ended with the block."""
    command = [sys.executable, "-P", "-m", __name__]
    process = subprocess.Popen(
        [*command, str(port or lasting_port()), str(folder), str(life_s)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(dev.ROOT)},
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "the provider has ended"
        yield Issuer(address, process)
    finally:
        process.kill()
        process.communicate(timeout=HANGS_S)


def main(port: str, folder: str, life_s: str) -> None:
    # Names of the library warn that a form with passwords in a file is for tests, as here.
    warnings.simplefilter("ignore")
    issuer = f"http://127.0.0.1:{port}"
    Handler.provider = Provider(issuer, Path(folder), int(life_s))
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
    server.daemon_threads = True
    sys.stdout.write(f"{issuer}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
