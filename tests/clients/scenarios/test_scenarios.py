"""Scenarios that every client has to pass against real gateways."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.scenarios.drivers import (
    JAVASCRIPT,
    PYTHON,
    Driver,
    InChromium,
    JavaScript,
)
from tests.clients.support.wire import wire_to
from tests.support.buses import BusServer
from tests.support.commands import address_of, start
from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port
from tests.support.rules import rule
from tests.support.tokens import claims, grant, public_jwk, signed, write_keys
from tidegate.app.access.tokens import SKEW_S
from tidegate.clients.errors import GatewayProblem
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.system

BIG = 9007199254740993
QUICK = "conflation=20ms"
LASTS = itertools.count()
"""Numbers the records of `await_last`: a client may still hold an earlier one."""

Connect = Callable[..., Driver]
ConnectJS = Callable[..., JavaScript]


def serve(*words: str, **variables: str) -> subprocess.Popen[str]:
    """Start a gateway for pages of any origin: it does not serve those of the JavaScript client."""
    return start("serve", *words, TIDEGATE_ALLOWED_ORIGINS="*", **variables)


@contextlib.contextmanager
def serving(*words: str) -> Iterator[str]:
    """Run such a gateway during the block; yield its address."""
    process = serve(*words)
    try:
        yield address_of(process)
    finally:
        process.terminate()
        process.communicate(timeout=HANGS_S)


IN_BROWSER = pytest.param("chromium", marks=[pytest.mark.browser, pytest.mark.nightly])


@pytest.fixture(params=[*PYTHON, "node", IN_BROWSER])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """A function that creates the client under test, for some addresses."""
    with contextlib.ExitStack() as stack:
        kind = (PYTHON | JAVASCRIPT)[request.param]
        yield lambda *addresses, token_file=None: kind(list(addresses), token_file, stack)


@pytest.fixture(params=["node", IN_BROWSER])
def connect_js(request: pytest.FixtureRequest) -> Iterator[ConnectJS]:
    """A function that creates the JavaScript client; options are texts of JavaScript."""
    with contextlib.ExitStack() as stack:
        kind = JAVASCRIPT[request.param]
        yield lambda address, token_file=None, **options: kind(
            [address], token_file, stack, **options
        )


@pytest.fixture
def first_tab(admin: Gateway) -> Iterator[InChromium]:
    """A page with the client."""
    with contextlib.ExitStack() as stack:
        yield InChromium([admin.base_url], None, stack)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A gateway that all scenarios share; those that stop one start their own."""
    with serving("--port", "0") as address:
        yield address


@pytest.fixture
def admin(address: str) -> Iterator[Gateway]:
    """The Python client with which scenarios publish, at the shared gateway."""
    with Gateway(address) as gateway:
        gateway.put_topic("px", {"key": ["/id"]})
        yield gateway
        for topic in list(gateway.topics()):
            gateway.delete_topic(topic["topic"])


def publish(gateway: Gateway, *messages: Any, topic: str = "px") -> None:
    gateway.publish(topic, [json.dumps(message).encode() for message in messages])


@contextlib.contextmanager
def repeating(work: Callable[[], None]) -> Iterator[None]:
    """Call `work` repeatedly while the block runs."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.1):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def remove(gateway: Gateway, key: Any) -> None:
    gateway.delete_records("px", record_key=key)


def world(gateway: Gateway, **query: Any) -> list[Any]:
    """The state of the world in order of keys, as a list that a client's records equal."""
    return sorted((json.loads(row) for row in gateway.sow("px", **query)), key=_by_id)


def _by_id(record: dict[str, Any]) -> str:
    return str(record["id"])


def await_last(client: Driver, gateway: Gateway) -> list[Any]:
    """Publish a record; return what a client holds with it: everything earlier has arrived."""
    last = {"id": "zz-last", "n": next(LASTS)}
    publish(gateway, last)
    held = client.await_held(lambda held: last in held)
    return sorted(held, key=_by_id)


@pytest.mark.nightly
@pytest.mark.parametrize("deltas", [False, True], ids=["whole", "deltas"])
def test_the_dict_is_the_state_of_the_world(connect: Connect, admin: Gateway, deltas: bool) -> None:
    wide = {"pad": "x" * 60, "nested": {"a": 1, "b": [1, 2]}}
    publish(admin, *({"id": f"k{n}", "n": 0, **wide} for n in range(5)))
    client = connect(admin.base_url)
    client.follow("px", options=QUICK, deltas=deltas)
    for n in range(40):
        publish(admin, {"id": f"k{n % 7}", "n": n, **wide, "nested": {"a": 1, "c": n}})
        if n % 10 == 9:
            remove(admin, f"k{n % 7}")
    remove(admin, "k1")
    assert await_last(client, admin) == world(admin)
    client.await_removed(lambda keys: "k1" in keys)


DEEP = 60  # a message may have 64 levels, and the drivers wrap it in some more
AWKWARD = [
    *("1.7976931348623157e308", "1.7976931348623158e308", "-1.7976931348623157E+308", "5e-324"),
    *("1e-400", "0e999", "-0", "-0.0", "1.0", "9007199254740993", "12345678901234567890"),
    *("-98765432109876543210", "0.1234567890123456789", "1" + "0" * 308, "9" * 250 + "e-60"),
    *('"\\u0000"', '"\\u2028\u2028\u2029"', '"\\ud83d\\ude00"', '"\x7f\ufeff\uffff"', '"\\/\\""'),
    *('"1e400, 9"', '{"":1}', '{"a":1,"a":2}', '{"__proto__":{"x":1}}', '{"constructor":null}'),
    *('{"toJSON":1}', '{"1":1,"0":2}', "[]", "[[],{}]", "null", "[" * DEEP + "]" * DEEP),
    '{"a":' * DEEP + "1" + "}" * DEEP,
]
REFUSED = [
    *("1e309", "-1e400", "9" * 309, "9" * 4_301, "1.7976931348623159e308", "9" * 250 + "e60"),
    *('"\\ud800"', '"\\udc00\\ud800"', "NaN", "Infinity", "-", "01", "[" * 64 + "]" * 64),
]


@rule("key-3")
def test_every_accepted_value_is_read_by_every_client(connect: Connect, admin: Gateway) -> None:
    """A value is refused when it is published, or all clients read it alike."""
    for text in REFUSED:
        with pytest.raises(GatewayProblem, match="message-invalid"):
            admin.publish("px", [b'{"id":0,"v":%s}' % text.encode()])
    lines = [f'{{"id":{at},"v":{text}}}'.encode() for at, text in enumerate(AWKWARD)]
    admin.publish("px", lines[::2])
    client = connect(admin.base_url)
    client.follow("px", options=QUICK)
    admin.publish("px", lines[1::2])
    held = client.await_held(lambda held: len(held) == len(AWKWARD))
    found = {record["id"]: record["v"] for record in held}
    for at, text in enumerate(AWKWARD):
        assert found[at] == json.loads(text), text


@pytest.mark.nightly
def test_integers_above_two_to_the_53_are_exact(connect: Connect, admin: Gateway) -> None:
    client = connect(admin.base_url)
    client.follow("px", options=QUICK)
    client.publish("px", {"id": BIG, "n": BIG + 1}, {"id": BIG - 1, "n": -BIG})
    held = client.await_held(lambda held: len(held) == 2)
    assert held == [{"id": BIG - 1, "n": -BIG}, {"id": BIG, "n": BIG + 1}]
    assert world(admin) == held


@pytest.mark.nightly
def test_every_message_arrives_in_order(connect: Connect, admin: Gateway) -> None:
    publish(admin, 0, topic="log")
    client = connect(admin.base_url)
    client.log("log")
    for start_at in range(1, 301, 10):
        client.publish("log", *range(start_at, start_at + 10))
    assert client.logged(300) == list(range(1, 301))


@pytest.mark.nightly
def test_records_leave_by_filter_and_come_back(connect: Connect, admin: Gateway) -> None:
    publish(admin, *({"id": f"k{n}", "n": n} for n in range(10)))
    client = connect(admin.base_url)
    client.follow("px", options=QUICK, filter="/n >= 5")
    assert [record["n"] for record in client.held()] == [5, 6, 7, 8, 9]
    publish(admin, {"id": "k9", "n": 1}, {"id": "k2", "n": 20})
    client.await_held(lambda held: [record["n"] for record in held] == [20, 5, 6, 7, 8])
    publish(admin, {"id": "k9", "n": 9})
    client.await_held(lambda held: [record["n"] for record in held] == [20, 5, 6, 7, 8, 9])
    client.await_removed(lambda keys: keys == ["k9"])


@pytest.mark.nightly
def test_a_window_holds_the_first_records_in_order(connect: Connect, admin: Gateway) -> None:
    publish(admin, *({"id": f"k{n}", "n": n} for n in range(10)))
    client = connect(admin.base_url)
    client.follow("px", options=f"{QUICK},top_n=3", order_by="/n DESC")
    assert [record["n"] for record in client.held()] == [9, 8, 7]
    publish(admin, {"id": "k2", "n": 8.5}, {"id": "k9", "n": 0})
    client.await_held(lambda held: [record["n"] for record in held] == [8.5, 8, 7])


@pytest.mark.nightly
def test_topics_of_a_pattern_come_and_go(connect: Connect, admin: Gateway) -> None:
    admin.put_topic("q.a", {"key": ["/id"]})
    publish(admin, {"id": "x", "of": "a"}, topic="q.a")
    client = connect(admin.base_url)
    client.follow("q.*", options=QUICK)
    admin.put_topic("q.b", {"key": ["/id"]})
    publish(admin, {"id": "x", "of": "b"}, topic="q.b")
    client.await_held(lambda held: len(held) == 2)
    admin.delete_topic("q.a")
    client.await_held(lambda held: held == [{"id": "x", "of": "b"}])


def test_nothing_is_missed_over_a_cut(connect: Connect, admin: Gateway) -> None:
    """Messages, changes and removals during a cut of the connection arrive afterwards."""
    publish(admin, 0, topic="log")
    publish(admin, {"id": "a", "n": 1}, {"id": "b", "n": 1})
    with wire_to(admin.base_url) as wire:
        client = connect(wire.address)
        client.follow("px", options=QUICK, deltas=True)
        client.log("log")
        publish(admin, 1, topic="log")
        assert client.logged(1) == [1]
        wire.cut()
        publish(admin, {"id": "b", "n": 2}, {"id": "c", "n": 3})
        publish(admin, 2, 3, topic="log")
        remove(admin, "a")
        wire.join()
        assert await_last(client, admin) == world(admin)
        client.await_removed(lambda keys: keys == ["a"])
        assert client.logged(2) == [2, 3]


@rule("resume-10")
@pytest.mark.parametrize("fails", [False, True])
def test_messages_that_are_missing_for_good_are_reported(
    connect: Connect, admin: Gateway, fails: bool
) -> None:
    """Trimmed during a cut: a sentence, or with `fail` the end of the subscription."""
    admin.put_topic("log", {"history": {"messages": 2}})
    publish(admin, 0, topic="log")
    with wire_to(admin.base_url) as wire:
        client = connect(wire.address)
        client.log("log", must_find=fails)
        publish(admin, 1, topic="log")
        assert client.logged(2 if fails else 1)[-1] == 1
        wire.cut()
        publish(admin, 2, 3, 4, 5, topic="log")
        wire.join()
        if fails:
            with pytest.raises(Exception, match="The journal does not go on from there"):
                client.logged(1)
        else:
            with repeating(lambda: publish(admin, 6, topic="log")):  # one after it has reconnected
                assert client.logged(1) == [6]
            [sentence] = [each for each in client.troubles() if "missing" in each]
            assert re.match("log: up to [0-9]+ messages are missing for good", sentence)


@pytest.mark.nightly
def test_nothing_is_missed_once_granted(connect_js: ConnectJS, tmp_path: Path) -> None:
    """Also where the gateway stops before the stream has an event of the subscription."""
    command = ["--port", str(lasting_port()), "--data", str(tmp_path)]
    with wire_to(f"http://127.0.0.1:{command[1]}") as wire:
        with serving(*command) as address, Gateway(address) as admin:
            publish(admin, 0, topic="log")
            client = connect_js(wire.address)
            client.run("await state.gateway.subscribe('log').ready")  # its stream is open
            wire.loses_streams = True
            client.log("log")
            wire.cut()
        with serving(*command) as address, Gateway(address) as admin:
            publish(admin, 1, 2, topic="log")
            wire.join()
            assert client.logged(2) == [1, 2]


@pytest.mark.nightly
@pytest.mark.parametrize("signal", ["terminate", "kill"])
def test_subscriptions_resume_after_a_restart(
    connect: Connect, tmp_path: Path, signal: str
) -> None:
    command = ["--port", str(lasting_port()), "--data", str(tmp_path)]
    process = serve(*command)
    try:
        with Gateway(address_of(process)) as admin:
            admin.put_topic("px", {"key": ["/id"]})
            publish(admin, 0, topic="log")
            publish(admin, {"id": "a", "n": 1}, {"id": "b", "n": 1})
            client = connect(admin.base_url)
            client.follow("px", options=QUICK)
            client.log("log")
            getattr(process, signal)()
            process.communicate(timeout=HANGS_S)
            process = serve(*command)
            address_of(process)
            publish(admin, {"id": "b", "n": 2})
            publish(admin, 1, 2, topic="log")
            remove(admin, "a")
            assert await_last(client, admin) == world(admin)
            client.await_removed(lambda keys: keys == ["a"])
            assert client.logged(2) == [1, 2]
    finally:
        _end(process)


@pytest.mark.nightly
def test_it_goes_on_once_its_topic_is_as_it_was(connect: Connect) -> None:
    """After the restart of a gateway in memory a publisher recreates the topic without its key."""
    command = ["--port", str(lasting_port()), "--data", ":memory:"]
    with serving(*command) as address, Gateway(address) as admin:
        admin.put_topic("px", {"key": ["/id"]})
        publish(admin, {"id": "a", "n": 1}, {"id": "b", "n": 1})
        client = connect(address)
        client.follow("px", options=QUICK)
    with serving(*command) as address, Gateway(address) as admin:
        client.await_refusal("topic-unknown")
        publish(admin, {"id": "a", "n": 2})
        client.await_refusal("options-invalid")
        assert len(client.held()) == 2
        admin.delete_topic("px")
        admin.put_topic("px", {"key": ["/id"]})
        publish(admin, {"id": "a", "n": 3})
        client.await_removed(lambda keys: keys == ["b"])
        assert await_last(client, admin) == world(admin)
        assert client.refusal() == ""


@pytest.mark.nightly
@pytest.mark.redis
@pytest.mark.parametrize("signal", ["terminate", "kill"])
def test_subscriptions_resume_at_another_gateway(
    connect: Connect, redis_bus: BusServer, signal: str, request: pytest.FixtureRequest
) -> None:
    prefix = request.node.callspec.id
    command = ["--port", "0", "--redis", redis_bus.url]
    processes = [serve(*command, TIDEGATE_REDIS_PREFIX=prefix) for _ in range(2)]
    try:
        addresses = [address_of(process) for process in processes]
        with Gateway(addresses[1]) as admin:
            admin.put_topic("px", {"key": ["/id"]})
            publish(admin, {"id": "a", "n": 1}, {"id": "b", "n": 1})
            client = connect(*addresses)
            client.follow("px", options=QUICK)
            # The other gateway may still have been empty when the client connected to it.
            client.await_held(lambda held: len(held) == 2)
            getattr(processes[0], signal)()
            processes[0].communicate(timeout=HANGS_S)
            publish(admin, {"id": "b", "n": 2})
            remove(admin, "a")
            assert await_last(client, admin) == world(admin)
            client.await_removed(lambda keys: keys == ["a"])
            client.publish("px", {"id": "c", "n": 3})
            client.await_held(lambda held: {"id": "c", "n": 3} in held)
    finally:
        for process in processes:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=HANGS_S)


@pytest.mark.nightly
def test_a_token_that_expires_is_renewed(connect: Connect, tmp_path: Path) -> None:
    """The stream ends with its token and continues with the next one; nothing is missed."""
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    held = tmp_path / "token"
    root = signed(claims("root", grant("read,write,admin,observe >")))
    reads = grant("read px")
    with (
        serving("--port", "0", "--auth-keys", keys) as address,
        Gateway(address, token=root) as admin,
    ):
        admin.put_topic("px", {"key": ["/id"]})
        publish(admin, {"id": "a", "n": 1})
        client = connect(address, token_file=str(held))
        # Signed only after the client has started, which takes a browser seconds.
        held.write_text(signed(claims("ann", reads, exp=int(time.time()) - SKEW_S + 6)))
        client.follow("px", options=QUICK)
        held.write_text(signed(claims("ann", reads)))
        time.sleep(7)  # until the first token has expired, which no client can tell beforehand
        publish(admin, {"id": "a", "n": 2})
        assert await_last(client, admin) == world(admin)
        assert client.removed() == []


@pytest.mark.nightly
def test_an_expired_ticket_is_replaced(connect_js: ConnectJS, tmp_path: Path) -> None:
    """The stream opens with the next ticket, also to reconnect after the first one has expired."""
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    held = tmp_path / "token"
    root = signed(claims("root", grant("read,write,admin,observe >")))
    held.write_text(signed(claims("ann", grant("read px"))))
    with (
        serving("--port", "0", "--auth-keys", keys) as address,
        Gateway(address, token=root) as admin,
        wire_to(address) as wire,
    ):
        admin.put_topic("px", {"key": ["/id"]})
        publish(admin, {"id": "a", "n": 1})
        # Every first ticket is one that the gateway does not know, as after 30 s.
        ticket = """async () => {
            state.asked = (state.asked ?? 0) + 1;
            if (state.asked % 2 === 1) return "expired";
            return (await state.gateway.request("POST", "/v1/tickets")).ticket;
        }"""
        client = connect_js(wire.address, token_file=str(held), ticket=ticket)
        client.follow("px", options=QUICK)
        assert client.run("return state.asked") == 2
        wire.cut()
        publish(admin, {"id": "a", "n": 2})
        wire.join()
        assert await_last(client, admin) == world(admin)
        assert client.run("return state.asked") == 4
        assert client.removed() == []


@pytest.mark.nightly
@pytest.mark.browser
def test_a_hidden_tab_is_sent_less_and_misses_nothing(
    first_tab: InChromium, admin: Gateway
) -> None:
    publish(admin, {"id": "a", "n": 1}, {"id": "b", "n": 1})
    first_tab.follow("px", options=QUICK)
    assert intervals(admin) == [20]
    first_tab.hide(True)
    await_that(lambda: intervals(admin) == [5_000])
    publish(admin, *({"id": "a", "n": n} for n in range(100)))
    remove(admin, "b")
    first_tab.hide(False)
    assert await_last(first_tab, admin) == world(admin)
    assert intervals(admin) == [20]
    first_tab.await_removed(lambda keys: keys == ["b"])


@pytest.mark.nightly
@pytest.mark.browser
def test_six_tabs_have_one_stream_and_outlive_the_first(
    first_tab: InChromium, admin: Gateway
) -> None:
    """A stream for each would occupy the six connections of a browser to one gateway."""
    publish(admin, {"id": "a", "n": 1}, {"id": "b", "n": 1})
    tabs = [first_tab, *(first_tab.tab() for _ in range(5))]
    for tab in tabs:
        tab.follow("px", options=QUICK)
    assert len(intervals(admin)) == 1
    for number, tab in enumerate(tabs):
        tab.publish("px", {"id": "of", "n": number})
        await_last(tab, admin)
    first_tab.page.close()
    publish(admin, {"id": "a", "n": 2})
    remove(admin, "b")
    for tab in tabs[1:]:
        assert await_last(tab, admin) == world(admin)
        tab.await_removed(lambda keys: "b" in keys)
    await_that(lambda: len(intervals(admin)) == 1)


def intervals(gateway: Gateway) -> list[int]:
    """The intervals of all subscriptions of attached sessions, in ms."""
    each = gateway.administration
    attached = [it for it in each.sessions() if it["state"] == "attached"]
    shown = [each.session(it["session"])["subscriptions"] for it in attached]
    return [it["interval_ms"] for subscriptions in shown for it in subscriptions]


def await_that(is_so: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    ends_at = time.monotonic() + HANGS_S
    while not is_so():
        assert time.monotonic() < ends_at
        time.sleep(0.02)
