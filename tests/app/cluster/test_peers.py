"""Neighbours: sessions that are asked for from elsewhere, taken along, and left behind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.support.deadlines import HANGS_S
from tests.support.rooms import Room
from tests.support.rules import rule
from tests.support.servers import edge_settings
from tidegate.app.calls import Call, Reply
from tidegate.app.cluster import membership as rolls
from tidegate.app.cluster import peers as module
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.peers import Peers
from tidegate.app.cluster.session_locations import SessionLocation
from tidegate.app.gateway import Gateway
from tidegate.app.http.application import create_app
from tidegate.app.refusals import Refused, Unavailable
from tidegate.app.streams.session import Session, State

pytestmark = pytest.mark.redis
runs = itertools.count()


class Node(Room):
    """A gateway on the bus, without a socket."""

    def __init__(self, gateway: Gateway, bus: BusConnection) -> None:
        super().__init__(gateway)
        self.bus = bus

    @property
    def peers(self) -> Peers:
        assert self.gateway.peers is not None
        return self.gateway.peers

    async def asks(self, session: str, method: str = "GET", body: object = None) -> Reply | None:
        """What is answered about a session of somebody else."""
        headers = [(b"content-type", b"application/json")]
        text = b"" if body is None else json.dumps(body).encode()
        path = f"/v1/sessions/{session}".encode()
        return await self.peers.forward(session, Call(method, path, b"", headers, text))


@contextlib.asynccontextmanager
async def nodes(redis_url: str, count: int = 2, **given: Any) -> AsyncIterator[list[Node]]:
    """Gateways that share a bus and no messages."""
    prefix = f"neighbours-test-{next(runs)}"
    async with contextlib.AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(node(redis_url, prefix, **given)) for _ in range(count)
        ]
        for each in made:
            await each.peers.membership.heartbeat()
        yield made


@contextlib.asynccontextmanager
async def node(redis_url: str, prefix: str, **given: Any) -> AsyncIterator[Node]:
    bus = BusConnection(redis_url, prefix)
    gateway: Gateway = create_app(edge_settings(**given), bus=bus).state.gateway
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(bus.aclose)
        stack.push_async_callback(gateway.aclose)
        await gateway.open()
        yield Node(gateway, bus)


async def brought(
    node: Node, session: Session, number: int | None = None, sub: str | None = None
) -> bool:
    asked_ms = node.gateway.driver.wall_ms()
    return await node.peers.bring_here(session.id, number, sub, asked_ms)


async def test_a_session_s_id_begins_with_its_gateway_s(redis_url: str) -> None:
    async with nodes(redis_url, 1) as [one]:
        session = one.kept()
        assert session.id.startswith(f"{one.gateway.id}.s")
        assert len(f"{session.id}-{10**17}") < 128


async def test_a_request_is_answered_where_the_session_is(redis_url: str) -> None:
    async with nodes(redis_url) as (one, two):
        session = one.kept()
        reply = await two.asks(session.id, "PATCH", {"conflated": False})
        assert reply is not None
        assert (reply.status, json.loads(reply.body)["conflated"]) == (200, False)
        assert not session.conflated
        refused = await two.asks(session.id, "PATCH", {"limits": 5})
        assert refused is not None
        problem = json.loads(refused.body)
        assert (refused.status, problem["pointer"]) == (400, "/limits")
        assert (b"content-type", b"application/problem+json") in refused.headers


@pytest.mark.parametrize("name", ["s1", "gone.s1", "{own}.s1", "{other}.s1"])
async def test_what_is_nowhere_is_answered_here(redis_url: str, name: str) -> None:
    async with nodes(redis_url) as (one, two):
        session = name.format(own=one.gateway.id, other=two.gateway.id)
        assert await one.asks(session) is None
        assert await one.peers.bring_here(session, None, None, one.gateway.driver.wall_ms())
        assert session not in one.gateway.sessions
        assert not await one.peers.is_elsewhere("s1")


@rule("cluster-10")
async def test_a_session_that_its_claimant_could_not_import_is_not_lost(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claimant has lost the reply, or its bus was out at that moment."""
    async with nodes(redis_url) as (one, two):
        session = one.kept(limits=None)
        locations = two.peers.locations
        claim = locations.claim

        async def claim_in_vain(session: str) -> SessionLocation:
            location = await claim(session)
            if location.transfer:
                raise Unavailable
            return location

        monkeypatch.setattr(locations, "claim", claim_in_vain)
        with pytest.raises(Refused, match="bus-unavailable"):
            await brought(two, session)
        monkeypatch.undo()
        reply = await one.asks(session.id)
        assert reply is not None
        assert reply.status == 200
        assert await brought(one, session)
        assert one.peers.has(session.id)


@rule("cluster-8")
async def test_a_session_that_has_ended_does_not_come_back(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its new gateway could not tell Redis at once that it has it."""
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    async with nodes(redis_url) as (one, two):
        session, locations, sessions = one.kept(), two.peers.locations, two.gateway.sessions
        confirm, failures = locations.confirm, iter([Unavailable()] * 3)

        async def confirm_late(session: str) -> None:
            for failure in failures:
                raise failure
            await confirm(session)

        monkeypatch.setattr(locations, "confirm", confirm_late)
        assert await brought(two, session)
        sessions.discard(sessions.get(session.id))
        async with asyncio.timeout(HANGS_S):
            while (await locations.read(session.id)).transfer:
                await asyncio.sleep(0.01)
        assert await brought(two, session)
        assert session.id not in sessions


@rule("cluster-8")
async def test_a_request_from_before_the_present_reader_takes_no_session(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client gave it up at a gateway that is slow, and came back here."""
    async with nodes(redis_url) as (one, two):
        session = one.kept(limits=None)
        driver = two.gateway.driver
        asked_ms = driver.wall_ms() - 1_000
        reader, _ = one.read(session)
        monkeypatch.setattr(driver, "wall_ms", lambda: asked_ms)
        with pytest.raises(Refused, match="bus-unavailable"):
            await brought(two, session)
        assert one.told(reader) == []
        monkeypatch.undo()
        assert await brought(two, session)
        assert one.told(reader) == ["goodbye REPLACED"]


@rule("cluster-8")
@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["here", "elsewhere"])
async def test_a_request_that_waits_takes_no_session_from_a_later_reader(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, is_elsewhere: bool
) -> None:
    """Its client gave it up while the gateway caught up, and asked again."""
    async with nodes(redis_url) as (one, two):
        for each in (one, two):
            await each.topic()
        session = one.kept(limits=None)
        one.ask(session, command="subscribe")
        reader, _ = one.read(session)
        await one.say({"k": "a"})
        assert one.told(reader)[-1] == 's1: {"k":"a"}'
        has_arrived, goes_on = asyncio.Event(), asyncio.Event()

        async def catch_up_late(gateway: Gateway, *_: object, **__: object) -> None:
            if gateway is two.gateway:
                has_arrived.set()
                await goes_on.wait()

        monkeypatch.setattr(Gateway, "catch_up", catch_up_late)
        older = asyncio.create_task(two.gateway.bring(session.id, None, None))
        await has_arrived.wait()
        await asyncio.sleep(2 * module.CLOCKS_MS / 1_000)
        later = one if is_elsewhere else two
        assert await later.gateway.bring(session.id, None, None)
        reader, _ = later.read(later.gateway.sessions.get(session.id))
        goes_on.set()
        with pytest.raises(Refused, match="bus-unavailable"):
            await older
        assert "goodbye REPLACED" not in later.told(reader)


@rule("cluster-8")
async def test_a_session_goes_where_its_reader_is(redis_url: str) -> None:
    async with nodes(redis_url, 3) as (one, two, three):
        session = one.kept(limits=None)
        reader, _ = one.read(session)
        assert await brought(two, session)
        assert one.told(reader) == ["goodbye REPLACED"]
        assert session.id not in one.gateway.sessions
        assert two.gateway.sessions.get(session.id).state is State.AWAY
        assert two.peers.has(session.id)
        for other in (one, three):
            assert await other.peers.is_elsewhere(session.id)
            reply = await other.asks(session.id)
            assert reply is not None
            assert reply.status == 200
        assert await brought(three, session)
        assert await brought(one, session)
        homes = [each for each in (one, two, three) if session.id in each.gateway.sessions]
        assert homes == [one]


@rule("cluster-8")
async def test_who_was_replaced_does_not_take_it_back(redis_url: str) -> None:
    async with nodes(redis_url) as (one, two):
        session = one.kept()
        one.read(session)
        one.read(session)
        assert session.cursor is not None
        [number] = session.cursor.replaced
        assert not await brought(two, session, number)
        assert session.id in one.gateway.sessions


async def test_one_that_ends_with_its_stream_stays(redis_url: str) -> None:
    async with nodes(redis_url) as (one, two):
        session = one.gateway.sessions.open()
        assert await brought(two, session)
        assert session.id not in two.gateway.sessions
        reply = await two.asks(session.id, "DELETE")
        assert reply is not None
        assert (reply.status, session.has_ended) == (204, True)


async def test_many_that_look_at_once_find_one(redis_url: str) -> None:
    async with nodes(redis_url, 3) as (one, two, three):
        session = one.kept()
        looking = [brought(each, session) for each in (two, three) * 5]
        asking = [each.asks(session.id) for each in (one, two, three) * 5]
        shown = await asyncio.gather(*looking, *asking, return_exceptions=True)
        problems = [each for each in shown if isinstance(each, BaseException)]
        assert all(isinstance(each, Refused) for each in problems), problems
        homes = [each for each in (one, two, three) if session.id in each.gateway.sessions]
        assert len(homes) == 1
        reply = await one.asks(session.id)
        assert homes == [one] if reply is None else reply.status == 200


@rule("cluster-9")
async def test_who_leaves_leaves_its_sessions(redis_url: str) -> None:
    async with nodes(redis_url) as (one, two):
        left, ended = one.kept(), one.kept()
        one.gateway.sessions.close(ended)
        await one.peers.aclose()
        assert not one.gateway.sessions.movable()
        assert await two.asks(left.id) is None, "it is here by now"
        assert two.gateway.sessions.get(left.id).state is State.AWAY
        assert await brought(two, ended)
        assert two.gateway.sessions.get(ended.id).has_ended
        await two.peers.membership.heartbeat()
        assert two.peers.membership.others == []


async def test_who_is_full_leaves_it_to_others(redis_url: str) -> None:
    async with nodes(redis_url, 3, sessions_max=1) as (one, two, three):
        session = one.kept()
        two.kept()
        with pytest.raises(Refused, match="limit-reached"):
            await brought(two, session)
        assert await brought(three, session)
        assert session.id in three.gateway.sessions


async def test_on_its_way_it_is_nobody_s(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HAND_OVER_S_MAX", 0.05)
    async with nodes(redis_url) as (one, two):
        session = one.kept()
        held = asyncio.Event()
        park = one.peers.locations.store

        async def late(*given: Any) -> None:
            await held.wait()
            await park(*given)

        monkeypatch.setattr(one.peers.locations, "store", late)
        moving = asyncio.create_task(brought(two, session))
        while one.peers.has(session.id):
            await asyncio.sleep(0)
        with pytest.raises(Refused, match="moving"):
            await one.asks(session.id)
        call = Call("GET", f"/v1/sessions/{session.id}".encode(), b"", [])
        with pytest.raises(Refused, match="moving"):  # what it changed would be lost
            await one.peers._handle_call(msgspec.msgpack.encode((session.id, call)))
        held.set()
        assert await moving
        reply = await one.asks(session.id)
        assert reply is not None
        assert reply.status == 200


async def dies(node: Node) -> None:
    """As of `kill -9`: it says nothing any more, and its connections end."""
    await node.peers._messages.aclose()
    for task in node.peers._running:
        task.cancel()
    await asyncio.gather(*node.peers._running, return_exceptions=True)
    await node.bus.aclose()


async def test_no_session_is_given_up_while_redis_takes_them(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HAND_OVER_S_MAX", 2.0)
    monkeypatch.setattr(module, "HANDED_OVER_AT_ONCE", 1)
    async with nodes(redis_url) as (one, two):
        left = [one.kept() for _ in range(6)]
        park = one.peers.locations.store

        async def slow(*given: Any) -> None:
            await asyncio.sleep(0.5)
            await park(*given)

        monkeypatch.setattr(one.peers.locations, "store", slow)
        await one.peers.aclose()
        for session in left:
            await brought(two, session)
        assert all(session.id in two.gateway.sessions for session in left)


@rule("cluster-10")
async def test_who_waits_for_a_gateway_that_dies_hears_that_there_is_no_such_session(
    redis_url: str,
) -> None:
    async with nodes(redis_url) as (one, two):
        session = one.kept()
        asking = asyncio.create_task(two.asks(session.id))
        bringing = asyncio.create_task(brought(two, session))
        await dies(one)
        assert await asking is None
        assert await bringing
        assert session.id not in two.gateway.sessions
        assert two.peers.membership.others == []


@rule("cluster-11")
async def test_lists_are_of_all_and_who_is_silent_is_named(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(redis_url, 3) as (one, two, three):
        ids = [each.kept().id for each in (one, two, three)]
        ask = one.peers._messages.request

        async def asked(gateway: str, subject: str, body: bytes, _: float) -> bytes:
            """Of whom nothing comes not much is waited for."""
            is_silent = gateway == three.gateway.id
            return await ask(gateway, subject, body, 0.1 if is_silent else HANGS_S)

        monkeypatch.setattr(one.peers._messages, "request", asked)
        await dies(three)
        replies = await one.peers.broadcast(Call("GET", b"/v1/sessions", b"", []))
        assert replies.keys() == {two.gateway.id, three.gateway.id}
        assert replies[three.gateway.id] is None
        answered = replies[two.gateway.id]
        assert answered is not None
        assert [each["session"] for each in json.loads(answered.body)["sessions"]] == [ids[1]]


@rule("cluster-11")
async def test_who_has_just_come_is_on_lists(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No beat lies between its coming and the question."""
    monkeypatch.setattr(rolls, "HEARTBEAT_S", 3_600.0)
    prefix = f"neighbours-test-{next(runs)}"
    async with node(redis_url, prefix) as one, node(redis_url, prefix) as two:
        replies = await one.peers.broadcast(Call("GET", b"/v1/sessions", b"", []))
        assert replies.keys() == {two.gateway.id}
        assert replies[two.gateway.id] is not None


async def test_lists_are_of_those_known_last_while_the_bus_is_out(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def out() -> None:
        raise Unavailable("The bus is out.")

    async with nodes(redis_url) as (one, two):
        monkeypatch.setattr(one.peers.membership, "heartbeat", out)
        replies = await one.peers.broadcast(Call("GET", b"/v1/sessions", b"", []))
        assert replies.keys() == {two.gateway.id}
