"""The table of rules names every route, and no other."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tests.support.servers import edge_settings
from tidegate.app.access.rules import RULES, Need, is_known, rule_of
from tidegate.app.main import create_app

PAGES = {"/", "/docs", "/client.js"}
FILES = {"/static/{file:path}", "/client/{file:path}"}
OPEN = {"/healthz", "/readyz", "/v1/login", *PAGES, *FILES}
"""What asks for no token, written down twice so that no rule opens a route by mistake."""


def routes() -> set[tuple[str, str]]:
    """Every method and path of the application, documented or not."""
    app = create_app(edge_settings())
    documented = {
        (method.upper(), path)
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }
    return documented | {("GET", path) for path in (*PAGES, "/openapi.json")}


def test_every_route_has_a_rule_and_every_rule_a_route() -> None:
    named = {(it.method, it.path.replace(":path", "")) for it in RULES if it.path not in FILES}
    assert named == routes()


def test_every_route_that_is_not_documented_is_known() -> None:
    shown = {path for _, path in routes()}
    mounted = {"/static", "/static/swagger", "/client", "/client/adapters"}
    app = create_app(edge_settings())
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


def test_a_path_is_known_for_any_method() -> None:
    assert is_known("/v1/topics/px/sow")
    assert not is_known("/v1/topics/px/other")
