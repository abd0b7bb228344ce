"""The application as a whole: what it answers where nothing else does."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from fastapi import FastAPI

from dev import ROOT
from tests.support.gateways import running_gateway
from tests.support.servers import edge_settings, running_server
from tests.support.wire import exchange, request
from tidegate import __version__
from tidegate.app.http import application
from tidegate.app.http.application import create_app
from tidegate.conflation.errors import BookmarkExpired, OptionsInvalid
from tidegate.keys.errors import KeyInvalid

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = {
    "/v1/topics": {"get"},
    "/v1/topics/{topic}": {"delete", "get", "patch", "put"},
    "/v1/topics/{topic}/commits": {"post"},
    "/v1/topics/{topic}/messages": {"get", "post"},
    "/v1/topics/{topic}/sow": {"delete", "get"},
    "/v1/topics/{topic}/sow/{record_key}": {"get"},
    "/v1/topics/{topic}/stream": {"get"},
    "/v1/topics/{topic}/subscribe": {"get", "post"},
    "/v1/sessions": {"get", "post"},
    "/v1/sessions/{session}": {"delete", "get", "patch"},
    "/v1/sessions/{session}/events": {"get"},
    "/v1/sessions/{session}/subscriptions": {"get", "post"},
    "/v1/sessions/{session}/subscriptions/{sub}": {"delete", "get", "patch"},
    "/v1/sessions/{session}/subscriptions/{sub}/auto": {"get"},
    "/v1/sessions/{session}/subscriptions/{sub}/trace": {"get"},
    "/v1/login": {"get", "post", "delete"},
    "/v1/login/start": {"get"},
    "/v1/login/callback": {"get"},
    "/v1/tickets": {"post"},
    "/v1/explain": {"post"},
    "/v1/lanes": {"get"},
    "/v1/polled": {"get"},
    "/v1/history": {"get"},
    "/healthz": {"get"},
    "/readyz": {"get"},
    "/metrics": {"get"},
}


@pytest_asyncio.fixture(name="address", scope="module", loop_scope="module")
async def address_fixture() -> AsyncIterator[str]:
    async with running_server(create_app(edge_settings())) as address:
        yield address


async def test_the_openapi_document_has_every_route() -> None:
    async with running_gateway() as running:
        document = (await running.http.get("/openapi.json")).json()
    assert {path: set(methods) for path, methods in document["paths"].items()} == ROUTES
    assert document["info"]["version"] == __version__


REFUSALS: list[tuple[Exception, int, dict[str, Any]]] = [
    (OptionsInvalid("no such option", 7), 400, {"code": "options-invalid", "position": 7}),
    (BookmarkExpired("too old"), 410, {"code": "bookmark-expired"}),
    (KeyInvalid("not a scalar"), 422, {"code": "key-invalid"}),
]


@pytest.mark.parametrize(("error", "status", "fields"), REFUSALS, ids=["options", "old", "key"])
async def test_what_engine_and_keys_refuse_is_a_problem(
    error: Exception, status: int, fields: dict[str, Any]
) -> None:
    app: FastAPI = create_app(edge_settings())

    @app.get("/refusing")
    async def refusing() -> None:
        raise error

    async with running_server(app, edge_settings()) as address:
        answer = await exchange(address, request("/refusing"))
    assert answer.status == status
    assert fields.items() <= answer.problem.items()
    assert answer.problem["detail"].endswith(".")


@pytest.mark.parametrize("path", ["/healthz/", "/v1/topics/px/", "/v1/", "/nowhere", "/static/"])
async def test_a_path_that_is_not_there_is_not_guessed_at(address: str, path: str) -> None:
    """No redirect either: it would repeat the Host header, and drop the body of a publish."""
    answer = await exchange(address, request(path))
    assert (answer.status, answer.code) == (404, "not-found")


async def test_the_console_is_served_where_it_is_installed(address: str) -> None:
    answer = await exchange(address, request("/"))
    if (application.STATIC / "index.html").is_file():
        assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")


@pytest.mark.parametrize(
    "path",
    [
        "/client.js", "/client/gateway.js", "/client/adapters/react.js", "/static/page.js",
        "/static/console/main.js", "/static/console/kit/dom.js",
    ],
)  # fmt: skip
async def test_modules_are_served_as_what_a_browser_runs(address: str, path: str) -> None:
    answer = await exchange(address, request(path))
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_browsers_keep_files_of_others_and_nothing_else(address: str) -> None:
    kept = await exchange(address, request("/static/vendor/uplot-1.6.32/uPlot.esm.js"))
    own = await exchange(address, request("/static/console/main.js"))
    assert kept.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert kept.headers["x-content-type-options"] == "nosniff"
    assert own.headers["cache-control"] == "no-store"


async def test_the_console_is_a_page_under_the_policy_of_pages(address: str) -> None:
    answer = await exchange(address, request("/console"))
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "script-src 'self'; style-src 'self';" in answer.headers["content-security-policy"]


async def test_the_console_links_to_the_documentation_of_the_project(address: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    answer = await exchange(address, request("/static/console/main.js"))
    assert f'"{project["urls"]["Documentation"]}"' in answer.body.decode()


@pytest.mark.parametrize(
    "path", ["/client/../client.py", "/client/package.json", "/client/adapters/", "/client"]
)
async def test_nothing_beside_the_client_is_served(address: str, path: str) -> None:
    answer = await exchange(address, request(path))
    assert (answer.status, answer.code) == (404, "not-found")


async def test_without_a_console_there_is_nothing_at_the_root(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(application, "STATIC", tmp_path)
    async with running_server(create_app(edge_settings())) as address:
        answer = await exchange(address, request("/"))
    assert (answer.status, answer.code) == (404, "not-found")


async def test_a_gateway_opens_and_closes_with_the_server() -> None:
    app = create_app(edge_settings())
    async with running_server(app):
        assert app.state.gateway.ready
    assert not app.state.gateway.ready
