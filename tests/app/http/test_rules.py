"""The table of rules names every route, and no other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from tests.support.gateways import running_gateway
from tests.support.rules import rule
from tests.support.servers import edge_settings
from tests.support.tokens import public_jwk, token_of, write_keys
from tidegate.app.http import application
from tidegate.app.http.rules import RULES, Need, methods_of, rule_of

PAGES = {"/", "/console", "/docs", "/client.js"}
FILES = {"/static/{file:path}", "/client/{file:path}"}
LOGIN = {"/v1/login", "/v1/login/start", "/v1/login/callback"}
OPEN = {"/healthz", "/readyz", *LOGIN, *PAGES, *FILES}
"""What asks for no token, written down twice so that no rule opens a route by mistake."""


def routes() -> set[tuple[str, str]]:
    """Every method and path of the application, documented or not."""
    app = application.create_app(edge_settings())
    documented = {
        (method.upper(), path)
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }
    # Those that the document leaves out are served all the same.
    served = {
        (method, each.path.replace(":path", ""))
        for each in app.routes
        if isinstance(each, APIRoute)
        for method in each.methods or ()
        if method != "HEAD"
    }
    assert documented <= served
    return served | {("GET", path) for path in (*PAGES, "/openapi.json")}


def test_every_route_has_a_rule_and_every_rule_a_route() -> None:
    named = {(it.method, it.path.replace(":path", "")) for it in RULES if it.path not in FILES}
    assert named == routes()


def test_every_route_that_is_not_documented_is_known() -> None:
    shown = {path for _, path in routes()}
    mounted = {"/static", "/static/swagger", "/static/vendor", "/client", "/client/adapters"}
    app = application.create_app(edge_settings())
    paths = {getattr(each, "path", None) for each in app.routes} - {None}
    assert {path.replace(":path", "") for path in paths if path} - mounted <= shown


def test_no_rule_opens_a_route_by_mistake() -> None:
    assert {it.path for it in RULES if it.need is Need.NOTHING} <= OPEN


@rule("access-4")
@pytest.mark.parametrize(
    ("method", "path", "need"),
    [
        ("GET", "/v1/topics", Need.SUBJECT),
        ("HEAD", "/v1/topics/px/sow", Need.READ),
        ("GET", "/v1/topics/px/sow/%5B%22a%2Fb%22%5D", Need.READ),
        ("GET", "/v1/topics/px/sow/a/b\n/c", Need.READ),
        ("POST", "/v1/topics/px/messages", Need.WRITE),
        ("GET", "/v1/topics/px.%3E/subscribe", Need.READ),
        ("GET", "/static/swagger/x.js", Need.NOTHING),
        ("GET", "/openapiXjson", None),
        ("GET", "/v1/topics/", None),
        ("GET", "//v1/topics", None),
        ("GET", "/healthz/", None),
        ("GET", "/metrics/x", None),
        ("TRACE", "/v1/topics", None),
    ],
)
def test_the_rule_of_a_request(method: str, path: str, need: Need | None) -> None:
    found = rule_of(method, path)
    assert (None if found is None else found.need) is need


def test_the_methods_of_a_path_are_those_of_its_rules() -> None:
    assert methods_of("/v1/topics/px/sow") == "DELETE, GET, HEAD"
    assert methods_of("/v1/topics/px/subscribe") == "GET, POST"
    assert methods_of("/v1/topics/px/other") == ""


@rule("access-4")
@pytest.mark.parametrize(
    ("method", "path", "is_documented"),
    [("GET", "/v1/planted", True), ("DELETE", "/v1/lanes", False)],
)
async def test_a_route_without_a_rule_is_noticed_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, path: str, is_documented: bool
) -> None:
    planted = APIRouter()

    @planted.api_route(path, methods=[method], include_in_schema=is_documented)
    async def answer() -> str:
        return "planted"

    with monkeypatch.context() as patch:
        patch.setattr(application, "ROUTES", (*application.ROUTES, SimpleNamespace(router=planted)))
        assert (method, path) in routes()
        with pytest.raises(AssertionError):
            test_every_route_has_a_rule_and_every_rule_a_route()
        keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
        async with running_gateway(auth_keys=keys) as running:
            everything = token_of("root", "read,write,admin,observe >")
            found = await running.http.request(method, path, headers=everything)
            assert "planted" not in found.text
            expected = (404, None) if path == "/v1/planted" else (405, "GET, HEAD")
            assert (found.status_code, found.headers.get("allow")) == expected
