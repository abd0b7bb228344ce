"""The JavaScript client in Node, against a real gateway: its records are the state of the world."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from tests.js.node import Node, running_node
from tests.support.buses import BusServer
from tests.support.commands import address_of, serving, start
from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port
from tidegate.clients.gateway import Gateway

BIG = 9007199254740993


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """The address of one gateway for all tests that leave it running."""
    with serving() as address:
        yield address


@pytest.fixture
def gateway(served: str) -> Iterator[Gateway]:
    """That gateway, with an empty topic `px` and no other."""
    with Gateway(served) as client:
        for topic in list(client.topics()):
            if not topic["topic"].startswith("tidegate."):
                client.delete_topic(topic["topic"])
        client.put_topic("px", {"key": ["/id"]})
        yield client


@pytest.fixture
def node(gateway: Gateway) -> Iterator[Node]:
    with running_node() as node:
        node.run(f"state.gateway = connect({json.dumps(gateway.base_url)})")
        yield node


def publish(gateway: Gateway, *messages: dict[str, Any]) -> None:
    gateway.publish("px", [json.dumps(message).encode() for message in messages])


def remove(gateway: Gateway, key: str) -> None:
    query = urlencode({"key": json.dumps([key])})
    url = f"{gateway.base_url}/v1/topics/px/sow?{query}"
    with urlopen(Request(url, method="DELETE"), timeout=HANGS_S) as answer:
        assert answer.status == 200


def world(gateway: Gateway, **query: Any) -> dict[Any, Any]:
    rows = (json.loads(row) for row in gateway.sow("px", **query))
    return {row["id"]: row for row in rows}


def held(node: Node, name: str = "rows") -> dict[Any, Any]:
    values = node.run(f"return [...state.{name}.rows.values()].map((row) => row.value)")
    return {value["id"]: value for value in values}


def await_last(node: Node, gateway: Gateway, name: str = "rows") -> None:
    """Wait until a record that is published now has arrived, and so all earlier ones."""
    publish(gateway, {"id": "last", "n": 1})
    node.run(f"await until(() => state.{name}.get('last'))")


@pytest.mark.parametrize(
    "wish",
    [
        pytest.param("{interval: 20, deltas: true}", marks=pytest.mark.system),
        pytest.param("{interval: 20}", marks=pytest.mark.nightly),
        pytest.param("{interval: 'none'}", marks=pytest.mark.nightly),
    ],
)
def test_records_are_the_state_of_the_world(gateway: Gateway, node: Node, wish: str) -> None:
    publish(gateway, {"id": BIG, "n": 0}, {"id": "gone", "n": 0}, {"id": "kept", "n": 0})
    node.run(f"state.rows = state.gateway.subscribe('px', {wish}); await state.rows.ready")
    for number in range(40):
        text = "x" * 100
        publish(gateway, {"id": f"k{number % 7}", "n": number, "big": BIG + number, "text": text})
        if number % 10 == 9:
            remove(gateway, f"k{number % 7}")
    remove(gateway, "gone")
    await_last(node, gateway)
    assert held(node) == world(gateway)
    assert BIG in held(node)
    assert "gone" not in held(node)


@pytest.mark.system
def test_a_filter_and_a_window_follow_what_leaves_them(gateway: Gateway, node: Node) -> None:
    publish(gateway, *({"id": f"k{n}", "n": n} for n in range(10)))
    node.run(
        "state.some = state.gateway.subscribe('px', {interval: 20, filter: '/n >= 5'});"
        "state.top = state.gateway.subscribe('px', {interval: 20, orderBy: '/n DESC', topN: 3})"
    )
    publish(gateway, {"id": "k9", "n": 1}, {"id": "k2", "n": 20})
    node.run("await until(() => state.some.get('k2') && !state.some.get('k9'))")
    assert held(node, "some") == world(gateway, filter="/n >= 5")
    node.run("await until(() => state.top.inOrder()[0]?.value.n === 20)")
    node.run("await until(() => state.top.rows.size === 3)")
    in_order = node.run("return state.top.inOrder().map((row) => row.value.n)")
    assert in_order == [20, 8, 7]


@pytest.mark.system
def test_a_pattern_includes_topics_that_are_created_later(gateway: Gateway, node: Node) -> None:
    gateway.put_topic("q.a", {"key": ["/id"]})
    node.run("state.rows = state.gateway.subscribe('q.*', {interval: 20}); await state.rows.ready")
    gateway.put_topic("q.b", {"key": ["/id"]})
    for topic in ("q.a", "q.b"):
        gateway.publish(topic, [b'{"id":"x"}'])
    node.run("await until(() => state.rows.rows.size === 2)")
    gateway.delete_topic("q.a")
    node.run("await until(() => state.rows.rows.size === 1)")
    assert node.run("return [...state.rows.rows.keys()]") == ['q.b ["x"]']


@pytest.mark.system
def test_a_subscription_changes_while_it_runs(gateway: Gateway, node: Node) -> None:
    publish(gateway, {"id": "a", "n": 1}, {"id": "b", "n": 2})
    node.run("state.rows = state.gateway.subscribe('px', {interval: 20}); await state.rows.ready")
    assert node.run("return state.rows.rows.size") == 2
    node.run("await state.rows.change({filter: '/n > 1', interval: 50})")
    node.run("await until(() => state.rows.rows.size === 1)")
    assert held(node) == {"b": {"id": "b", "n": 2}}
    refused = node.run("return state.rows.change({filter: '/n >'}).catch((error) => error.code)")
    assert refused == "filter-invalid"
    node.run("await state.rows.change({filter: undefined, deltas: true})")
    node.run("await until(() => state.rows.rows.size === 2)")


@pytest.mark.system
def test_a_large_snapshot_and_a_large_flush_are_one_change_each(
    gateway: Gateway, node: Node
) -> None:
    publish(gateway, *({"id": n, "n": 0} for n in range(2_500)))
    node.run(
        # Longer than a busy gateway takes for all of the messages.
        "state.rows = state.gateway.subscribe('px', {interval: 2000}); state.sizes = [];"
        "state.rows.addEventListener('change',"
        " ({added, changed}) => state.sizes.push([added.length, changed.length]));"
        "await state.rows.ready"
    )
    assert node.run("return state.sizes") == [[2_500, 0]]
    publish(gateway, *({"id": n, "n": 1} for n in range(2_500)))
    node.run("await until(() => state.sizes.length > 1)")
    assert node.run("return state.sizes[1]") == [0, 2_500]


@pytest.mark.system
def test_messages_of_a_topic_without_key_arrive_in_order(gateway: Gateway, node: Node) -> None:
    gateway.publish("log", [b"0"])
    node.run(
        "state.log = state.gateway.subscribe('log'); state.messages = state.log.messages();"
        "await state.log.ready"
    )
    gateway.publish("log", [str(number).encode() for number in range(1, 201)])
    code = "const got = []; for (let n = 0; n < 200; n += 1)"
    code += " got.push((await state.messages.next()).value.value); return got"
    assert node.run(code) == list(range(1, 201))


@pytest.mark.system
def test_a_reader_resumes_at_its_place_or_learns_that_it_has_expired(
    gateway: Gateway, node: Node
) -> None:
    gateway.put_topic("trades", {"history": {"messages": 3}})
    gateway.publish("trades", [b"1", b"2"])
    node.run(
        "state.kept = new Map(); state.storage = {"
        " getItem: (name) => state.kept.get(name) ?? null,"
        " setItem: (name, text) => state.kept.set(name, text) };"
        "state.read = async (count) => { const read = [];"
        " const wish = { place: 'mine', storage: state.storage };"
        " for await (const row of state.gateway.follow('trades', wish))"
        "  if (read.push(row.value) === count) break;"
        " return read; }"
    )
    assert node.run("return state.read(2)") == [1, 2]
    assert node.run("return [...state.kept.keys()]") == ["tidegate mine"]
    gateway.publish("trades", [b"3"])
    assert node.run("return state.read(2)") == [2, 3]
    gateway.publish("trades", [b"4", b"5", b"6", b"7", b"8"])
    assert node.run("return state.read(1).catch(({code}) => code)") == "bookmark-expired"


@pytest.mark.system
def test_a_repeated_publish_counts_once_and_a_refusal_names_the_line(
    gateway: Gateway, node: Node
) -> None:
    node.run("state.key = await state.gateway.publish('px', {id: 9007199254740993n, n: 1})")
    assert world(gateway) == {BIG: {"id": BIG, "n": 1}}
    numbered = "state.producer ??= state.gateway.producer('feed', 1);"
    assert not node.run(numbered + "return (await state.producer.publish('px', {id: 1})).duplicate")
    again = "return (await state.gateway.producer('feed', 1).publish('px', {id: 1})).duplicate"
    assert node.run(again)
    line = "return state.gateway.publish('px', [{id: 1}, {n: 1}]).catch((error) => error.line)"
    assert node.run(line) == 2
    assert node.run("return (await state.gateway.sow('px', {filter: '/n = 1'})).length") == 1


@pytest.mark.system
def test_a_session_that_an_administrator_closes_is_closed_at_the_client(
    gateway: Gateway, node: Node
) -> None:
    node.run("state.rows = state.gateway.subscribe('px'); await state.rows.ready")
    node.run("await until(() => state.gateway.state === 'live')")
    node.run(
        "const {sessions} = await state.gateway.request('GET', '/v1/sessions');"
        "for (const {session} of sessions)"
        " await state.gateway.request('DELETE', `/v1/sessions/${session}`)"
    )
    node.run("await until(() => state.gateway.state === 'closed')")
    assert node.run("return state.rows.end") == "CLOSED_BY_ADMIN"


@pytest.mark.parametrize(
    "signal",
    [
        pytest.param("terminate", marks=pytest.mark.nightly),
        pytest.param("kill", marks=pytest.mark.system),
    ],
)
def test_subscriptions_resume_after_a_restart(tmp_path: Path, signal: str) -> None:
    """The client also receives what was changed and deleted while it had no stream."""
    port = str(lasting_port())
    command = ["serve", "--port", port, "--data", str(tmp_path)]
    process = start(*command)
    try:
        with Gateway(address_of(process)) as gateway, running_node() as node:
            gateway.put_topic("px", {"key": ["/id"]})
            gateway.publish("log", [b"0"])
            publish(gateway, {"id": "a", "n": 1}, {"id": "b", "n": 1})
            node.run(
                f"state.gateway = connect('{gateway.base_url}');"
                "state.rows = state.gateway.subscribe('px', {interval: 20});"
                "state.log = state.gateway.subscribe('log'); state.messages = state.log.messages();"
                "await state.rows.ready; await state.log.ready;"
                "await until(() => state.rows.rows.size === 2);"
                "state.gone = []; state.rows.addEventListener('change',"
                " ({removed}) => state.gone.push(...removed.map((row) => row.key[0])))"
            )
            getattr(process, signal)()
            process.communicate(timeout=HANGS_S)
            node.run("await until(() => state.gateway.state === 'lost')")
            process = start(*command)
            address_of(process)
            publish(gateway, {"id": "b", "n": 2})
            gateway.publish("log", [b"1", b"2"])
            remove(gateway, "a")
            node.run("await until(() => state.gateway.state === 'live')")
            node.run("await until(() => state.rows.get('b').value.n === 2 && !state.rows.get('a'))")
            await_last(node, gateway)
            assert held(node) == world(gateway)
            assert node.run("return state.gone") == ["a"]
            read = "return (await state.messages.next()).value.value"
            assert [node.run(read), node.run(read)] == [1, 2]
    finally:
        process.kill()
        process.communicate(timeout=HANGS_S)


@pytest.mark.nightly
@pytest.mark.redis
@pytest.mark.parametrize("signal", ["terminate", "kill"])
def test_subscriptions_resume_at_another_gateway(redis_bus: BusServer, signal: str) -> None:
    """A gateway that stops hands its session over; with one that is killed, the session is lost."""
    with running_node() as node:
        command = ["serve", "--port", "0", "--redis", redis_bus.url]
        first, second = (start(*command, TIDEGATE_REDIS_PREFIX=f"js-{signal}") for _ in range(2))
        try:
            addresses = [address_of(first), address_of(second)]
            with Gateway(addresses[1]) as gateway:
                gateway.put_topic("px", {"key": ["/id"]})
                publish(gateway, {"id": "a", "n": 1}, {"id": "b", "n": 1})
                node.run(
                    f"state.gateway = connect({json.dumps(addresses)});"
                    "state.rows = state.gateway.subscribe('px', {interval: 20});"
                    "state.changed = []; state.rows.addEventListener('change', ({changed}) =>"
                    " state.changed.push(...changed.map((row) => row.key[0])));"
                    "state.resumed = []; state.rows.addEventListener('resumed', ({detail}) =>"
                    " state.resumed.push(detail.mode));"
                    "await until(() => state.rows.rows.size === 2)"
                )
                getattr(first, signal)()
                first.communicate(timeout=HANGS_S)
                publish(gateway, {"id": "b", "n": 2})
                remove(gateway, "a")
                await_last(node, gateway)
                assert held(node) == world(gateway)
                assert node.run("return state.changed") == ["b"]
                was_resumed = signal == "terminate"
                assert node.run("return state.resumed") == (["changes"] if was_resumed else [])
        finally:
            for process in (first, second):
                process.kill()
                process.communicate(timeout=HANGS_S)


@pytest.mark.nightly
def test_publishers_and_a_slow_reader_end_in_the_same_state(gateway: Gateway, node: Node) -> None:
    """A slow reader gets several flushes as one change; the sum of its changes is the state."""
    node.run(
        "state.rows = state.gateway.subscribe('px', {interval: 10}); await state.rows.ready;"
        "state.mine = new Map(); state.changes = 0; (async () => {"
        " for await (const {added, changed, removed} of state.rows) {"
        "  state.changes += 1;"
        "  for (const row of [...added, ...changed]) state.mine.set(row.id, row.value);"
        "  for (const row of removed) state.mine.delete(row.id);"
        "  await new Promise((resolve) => setTimeout(resolve, 60));"
        " } })()"
    )

    def run(first: int) -> None:
        with Gateway(gateway.base_url) as own:
            for number in itertools.islice(itertools.count(first, 2), 60):
                publish(own, {"id": f"k{number % 11}", "n": number})
                if number % 5 == 0:
                    remove(own, f"k{number % 11}")

    threads = [threading.Thread(target=run, args=(first,)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    await_last(node, gateway)
    node.run("await until(() => state.mine.has('[\"last\"]'))")
    mine = node.run("return [...state.mine.values()]")
    assert {value["id"]: value for value in mine} == world(gateway)
