"""A session of the client's: subscriptions that come and go, a replica of each, the way back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from tests.clients.support.streams import broken_stream, plain, scripted, stream
from tests.support.commands import serving_here
from tests.support.deadlines import HANGS_S
from tidegate.clients.aio.gateway import AsyncGateway
from tidegate.clients.errors import GatewayProblem
from tidegate.clients.gateway import Gateway
from tidegate.clients.replica import SessionEvent
from tidegate.clients.session import Session

JSON = "application/json"
OPENED = json.dumps({"session": "abc", "events": "/v1/sessions/abc/events"}).encode()
HELLO = b'event: hello\nid: abc-0\ndata: {"session":"abc","heartbeat_ms":20000}\n\n'
GOODBYE = b'event: goodbye\ndata: {"reason":"CLOSED_BY_ADMIN","reconnect":false}\n\n'


def batch(number: int, sub: str, *rows: dict[str, object]) -> bytes:
    body = json.dumps({"topic": "t", "rows": [{"topic": "t", **row} for row in rows]})
    return f'id: abc-{number}\ndata: {{"sub":"{sub}",\ndata: {body[1:]}\n\n'.encode()


def put(key: object, value: object) -> dict[str, object]:
    return {"op": "publish", "key": [key], "value": value}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving_here() as address:
        yield address


def until(session: Session, wanted: str) -> list[SessionEvent]:
    """What is heard up to the first event of this name."""
    heard = list[SessionEvent]()
    for each in session:
        heard.append(each)
        if each.event.name == wanted:
            return heard
    raise AssertionError(f"no {wanted}")


def test_each_subscription_has_a_replica_of_its_own() -> None:
    events = stream(HELLO, batch(1, "s1", put(1, 5)), batch(2, "s2", put(1, 6)), GOODBYE)
    opened = plain(201, OPENED, JSON)
    with scripted(opened, events, plain(204)) as fake, Gateway(fake.address) as gateway:
        session = gateway.open_session(conflated=False, limits={"messages": 5})
        heard = list(session)
        session.close()
    assert json.loads(fake.bodies[0]) == {"conflated": False, "limits": {"messages": 5}}
    assert [(each.event.name, each.sub) for each in heard] == [
        ("hello", None), ("message", "s1"), ("message", "s2"), ("goodbye", None)
    ]  # fmt: skip
    assert {name: dict(each.values) for name, each in session.replicas.items()} == {
        "s1": {("t", "[1]"): 5}, "s2": {("t", "[1]"): 6}
    }  # fmt: skip


def test_a_lost_connection_is_continued_by_the_sessions_own_id() -> None:
    scripts = (
        plain(201, OPENED, JSON),
        broken_stream(HELLO, batch(1, "s1", put(1, 5))),
        stream(HELLO, batch(4, "s1", put(1, 7)), GOODBYE),
    )
    with scripted(*scripts) as fake, Gateway(fake.address) as gateway:
        session = gateway.open_session()
        assert [each.rows[0].value for each in session if each.rows] == [5, 7]
        assert [after for after, _ in fake.requests] == [None, None, "abc-1"]


def test_a_session_that_is_gone_is_the_callers_to_know() -> None:
    gone = b'{"title":"There is no such session","status":404,"code":"session-unknown"}'
    scripts = (
        plain(201, OPENED, JSON), broken_stream(HELLO), plain(404, gone, "application/problem+json")
    )  # fmt: skip
    with scripted(*scripts) as fake, Gateway(fake.address) as gateway:
        with pytest.raises(GatewayProblem) as refused:
            list(gateway.open_session())
        assert refused.value.code == "session-unknown"


def test_subscriptions_come_change_and_go_on_a_real_gateway(address: str) -> None:
    with Gateway(address) as gateway, gateway.open_session(for_s=30) as session:
        gateway.put_topic("px", {"key": ["/k"]})
        gateway.publish("px", [b'{"k":1,"v":1}', b'{"k":2,"v":2}'])
        name = session.subscribe("px", options="conflation=50ms", filter="/v = 1")
        until(session, "group_end")
        assert list(session.replicas[name].values.values()) == [{"k": 1, "v": 1}]
        granted = session.change(name, filter="/v > 0", conflation="60ms")
        assert granted["options"].startswith("conflation=60ms")
        [changed] = [each for each in until(session, "message") if each.rows]
        assert changed.rows[0].value == {"k": 2, "v": 2}
        with pytest.raises(GatewayProblem):
            session.change(name, filter="/v >")
        assert session.tune(conflated=False)["conflated"] is False
        assert session.show()["subscriptions"][0]["filter"] == "/v > 0"
        session.end(name)
        until(session, "unsubscribed")
        assert dict(session.replicas[name].values) == {}
        gateway.delete_topic("px")


def test_a_reader_is_stopped_from_another_thread_and_the_session_stays(address: str) -> None:
    with Gateway(address) as gateway:
        session = gateway.open_session()
        reading = threading.Thread(target=lambda: list(session))
        reading.start()
        session.stop()
        reading.join(HANGS_S)
        assert not reading.is_alive()
        assert session.show()["state"] in {"attached", "away"}
        session.close()
        assert session.show()["state"] == "ended"


async def test_for_an_event_loop_it_is_the_same(address: str) -> None:
    async with AsyncGateway(address) as gateway:
        await gateway.put_topic("aio", {"key": ["/id"]})
        await gateway.publish("aio", [b'{"id":1,"n":1}'])
        async with await gateway.open_session(for_s=HANGS_S) as session:
            name = await session.subscribe("aio", format="batch")
            async for each in session:
                if each.event.name == "group_end":
                    break
            assert list(session.replicas[name].values.values()) == [{"id": 1, "n": 1}]
            await session.change(name, conflation="2s")
            shown = await session.show()
            assert [each["interval_ms"] for each in shown["subscriptions"]] == [2_000]
            assert (await session.tune(conflated=False))["conflated"] is False
            listed = [each["session"] async for each in gateway.administration.sessions()]
            assert listed == [session.id]
            await session.end(name)
            assert (await gateway.administration.session(session.id))["subscriptions"] == []
        with pytest.raises(GatewayProblem) as refused:
            await gateway.administration.delete_topic("nowhere")
        assert refused.value.code == "topic-unknown"


def test_a_record_that_cannot_be_read_is_reported_and_the_session_goes_on() -> None:
    row = '{"topic":"t","op":"publish","key":[1],"value":1e400}'
    bad = f'id: abc-1\ndata: {{"sub":"s1","topic":"t","rows":[{row}]}}\n\n'.encode()
    events = stream(HELLO, bad, batch(2, "s1", put(2, {"v": 2})), GOODBYE)
    told: list[str] = []
    with (
        scripted(plain(201, OPENED, JSON), events) as fake,
        Gateway(fake.address) as gateway,
    ):
        session = gateway.open_session(trouble=told.append)
        heard = list(session)
    assert told == ["record [1] of t cannot be read: Number out of range"]
    assert [len(each.unreadable) for each in heard if each.event.name == "message"] == [1, 0]
    assert list(session.replicas["s1"].values.values()) == [{"v": 2}]
