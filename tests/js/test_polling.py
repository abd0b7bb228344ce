"""The JavaScript client behind a proxy that keeps event streams back, before a real gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.js.node import Node, running_node
from tests.support.commands import serving_here
from tests.support.network.buffering import BufferingProxy, buffering_proxy
from tidegate.clients.gateway import Gateway

SHORTER = """
const later = globalThis.setTimeout;
const shorter = (ms) => (ms === 15_000 || (ms >= 120_000 && ms < 200_000) ? 2_000 : ms);
globalThis.setTimeout = (end, ms, ...rest) => later(end, shorter(ms), ...rest);
"""
"""The client waits 15 s for the first event, and minutes before it tries the stream again."""


@pytest.fixture
def proxy() -> Iterator[BufferingProxy]:
    with serving_here() as address, buffering_proxy(address) as proxy:
        yield proxy


@pytest.fixture
def gateway(proxy: BufferingProxy) -> Iterator[Gateway]:
    with Gateway(proxy.address) as client:
        client.put_topic("px", {"key": ["/id"]})
        yield client


@pytest.fixture
def node(proxy: BufferingProxy, gateway: Gateway) -> Iterator[Node]:
    with running_node() as node:
        node.run(SHORTER + f"state.gateway = connect({json.dumps(proxy.address)})")
        yield node


def publish(gateway: Gateway, *records: dict[str, Any]) -> None:
    gateway.publish("px", list(records))


def held(node: Node) -> dict[str, Any]:
    values = node.run("return [...state.rows.rows.values()].map((row) => row.value)")
    return {value["id"]: value for value in values}


@pytest.mark.system
def test_records_follow_by_polling_until_the_stream_gets_through(
    proxy: BufferingProxy, gateway: Gateway, node: Node
) -> None:
    publish(gateway, *({"id": f"k{n:04}", "desk": n % 2, "n": n} for n in range(6000)))
    node.run(
        "state.rows = state.gateway.subscribe('px', {interval: 50});"
        "state.top = state.gateway.subscribe('px', {interval: 50, orderBy: '/n DESC', topN: 2});"
        "state.desks = state.gateway.subscribe('px', {interval: 50,"
        " options: 'projection=[/desk,COUNT(/id) AS /n],grouping=[/desk]'});"
        "state.every = state.gateway.subscribe('px', {interval: 'none'});"
        "state.others = state.gateway.subscribe('*', {interval: 50});"
        "state.states = []; state.gateway.addEventListener('state',"
        " ({detail}) => state.states.push(detail.state));"
        "for (const each of [state.rows, state.top, state.desks]) await each.ready"
    )
    polled = "return [state.gateway, state.rows, state.top, state.desks].map(({state}) => state)"
    assert node.run(polled) == ["polling"] * 4
    assert node.run("return state.rows.rows.size") == 6000
    publish(gateway, {"id": "k0001", "n": 9999}, {"id": "new", "n": -1})
    gateway.delete_records("px", record_key="k0000")
    node.run("await until(() => state.rows.get('new') && !state.rows.get('k0000'))")
    node.run("await until(() => state.rows.get('k0001').value.n === 9999)")
    node.run("await until(() => state.top.inOrder()[0].value.n === 9999)")
    node.run("await until(() => state.desks.get(0)?.value.n === 2999)")
    assert node.run("return state.every.state + ': ' + state.every.reason") == (
        "lost: no event of the stream gets through, and polling cannot replace it: "
        "every message is asked for, and polling brings the newest of each key"
    )
    assert node.run("return state.others.state") == "lost"
    tried = proxy.streams
    node.run("state.late = state.gateway.subscribe('px', {interval: 50, filter: '/n < 0'})")
    node.run("await state.late.ready; await until(() => state.late.rows.size === 1)")
    assert node.run("return (await state.late.granted).options").startswith("conflation=50ms")
    node.run("await until(() => state.gateway.state === 'polling')")
    proxy.keeps_back = False
    each = "[state.rows, state.top, state.desks, state.every, state.others, state.late]"
    node.run(f"await until(() => {each}.every(({{state}}) => state === 'live'))")
    assert proxy.streams > tried
    publish(gateway, {"id": "k0002", "n": 10_000})
    node.run("await until(() => state.top.inOrder()[0].value.n === 10_000)")
    node.run("await until(() => state.rows.get('k0002').value.n === 10_000)")
    assert held(node) == {row["id"]: row for row in map(json.loads, gateway.sow("px"))}
    assert node.run("return state.desks.rows.size") == 3
    assert node.run("return state.gateway.state") == "live"
