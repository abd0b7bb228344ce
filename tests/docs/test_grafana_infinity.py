"""The example for Grafana's Infinity: the plugin's own requests get what the panels show.

No Grafana runs here. The requests are those that the plugin makes (`pkg/infinity/request.go` and
`headers.go` of grafana-infinity-datasource 3.x): the address of the data source before that of the
query, the query's parameters sorted and encoded as Go does it, and these headers.
"""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from ruamel.yaml import YAML

from dev import ROOT
from tests.support.commands import serving
from tests.support.deadlines import HANGS_S
from tests.support.tokens import public_jwk, token_of, write_keys
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.nightly

EXAMPLE = ROOT / "examples" / "grafana-infinity"
SOURCE = YAML(typ="safe").load(EXAMPLE / "datasource.yaml")["datasources"][0]
DASHBOARD = json.loads((EXAMPLE / "prices.json").read_text())
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}
HEADERS = {
    "User-Agent": "Go-http-client/1.1",
    "Accept": "application/json;q=0.9,text/plain",
    "Accept-Encoding": "gzip",
    "Traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
}
TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "number": (int, float)}
PRICES = [("IBM", 151.1, 500), ("AIG", 7.5, 100), ("low", 1.25, 900), ("GE", 20.0, 400)]


def asked(query: dict[str, Any]) -> str:
    """Return the address of a query below that of the data source."""
    parts = urlsplit(query["url"])
    each = [(it["key"], it["value"]) for it in query["url_options"]["params"]]
    # `url.Values.Encode` of Go: by name, a space as a plus.
    return f"{parts.path}?{urlencode(sorted(parse_qsl(parts.query) + each, key=lambda it: it[0]))}"


def answer(address: str, path: str, headers: dict[str, str]) -> tuple[int, Any]:
    """Ask as the plugin does, which unpacks gzip by itself."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=HANGS_S)
    connection.request("GET", path, headers={**HEADERS, **headers})
    got = connection.getresponse()
    body = got.read()
    connection.close()
    if got.headers["Content-Encoding"] == "gzip":
        body = gzip.decompress(body)
    return got.status, json.loads(body)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with serving() as address, Gateway(address) as gateway:
        fill(gateway)
        yield gateway


def fill(gateway: Gateway) -> None:
    gateway.put_topic("prices", {"key": ["/symbol"]})
    rows = [{"symbol": symbol, "price": price, "size": size} for symbol, price, size in PRICES]
    gateway.publish("prices", [json.dumps(row).encode() for row in rows])


@pytest.mark.parametrize(
    ("title", "symbols"),
    [
        ("The ten dearest", ["IBM", "GE", "AIG", "low"]),
        ("Sizes above 300", ["IBM", "GE"]),
        ("IBM", ["IBM"]),
    ],
)
def test_a_panel_gets_its_rows(gateway: Gateway, title: str, symbols: list[str]) -> None:
    [query] = PANELS[title]["targets"]
    status, rows = answer(gateway.base_url, asked(query), {})
    assert status == 200
    assert [row["symbol"] for row in rows] == symbols
    for column in query["columns"]:
        assert all(isinstance(row[column["selector"]], TYPES[column["type"]]) for row in rows)


def test_the_dashboard_is_of_that_data_source(gateway: Gateway) -> None:
    assert {panel["datasource"]["uid"] for panel in PANELS.values()} == {SOURCE["uid"]}
    assert {panel["datasource"]["type"] for panel in PANELS.values()} == {SOURCE["type"]}
    health = SOURCE["jsonData"]["customHealthCheckUrl"]
    assert health.startswith(SOURCE["url"])
    assert SOURCE["jsonData"]["allowedHosts"] == [SOURCE["url"]]
    assert answer(gateway.base_url, urlsplit(health).path, {})[0] == 200


def test_the_token_of_the_data_source_reads_its_topic_only(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    root = token_of("root", "read,write,admin >")["Authorization"].removeprefix("Bearer ")
    [query] = PANELS["IBM"]["targets"]
    with serving("--auth-keys", keys) as address, Gateway(address, token=root) as gateway:
        fill(gateway)
        assert answer(address, asked(query), {})[0] == 401
        grafana = token_of("grafana", "read prices")
        assert answer(address, asked(query), grafana)[0] == 200
        other = asked({**query, "url": "/v1/topics/orders/sow"})
        assert answer(address, other, grafana)[0] == 403
