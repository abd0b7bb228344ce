"""Streams of equal requests share their subscription; a change of one does not reach the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio

from tests.support.gateways import Running, Stream, running_gateway
from tidegate.app.access.limits.lane_use import LaneUse
from tidegate.app.streams.session import Session


@pytest_asyncio.fixture(name="running")
async def running_fixture() -> AsyncIterator[Running]:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1}, {"k": 2})
        yield running


async def opened(
    stack: AsyncExitStack, running: Running, options: str = "conflation=20ms", **given: str
) -> tuple[Stream, Session]:
    stream = await stack.enter_async_context(running.subscribe(options, **given))
    return stream, running.gateway.sessions.get(running.hellos[-1]["session"])


def reader_styles(session: Session) -> object:
    assert session.reader is not None
    return session.reader.styles


def lanes(running: Running) -> LaneUse:
    return running.gateway.quotas.lanes


async def change(running: Running, session: Session, **given: object) -> None:
    path = f"/v1/sessions/{session.id}/subscriptions/s1"
    answer = await running.http.patch(path, json=given)
    assert answer.status_code == 200, answer.text


async def options_of(running: Running, session: Session) -> str:
    answer = await running.http.get(f"/v1/sessions/{session.id}/subscriptions/s1")
    found: str = answer.json()["options"]
    return found


async def test_equal_requests_share_what_was_asked_for_and_its_style(running: Running) -> None:
    async with AsyncExitStack() as stack:
        _, one = await opened(stack, running)
        await running.publish({"k": 3})  # the next one begins elsewhere
        _, other = await opened(stack, running)
        _, unlike = await opened(stack, running, "conflation=30ms")
        assert one.asked is other.asked
        assert reader_styles(one) is reader_styles(other)
        assert one.asked is not unlike.asked


async def test_those_that_come_back_with_one_id_share_too(running: Running) -> None:
    async with AsyncExitStack() as stack:
        stream, _ = await opened(stack, running, command="subscribe")
        last = stream.hello_id
        back = [(await opened(stack, running, last_id=last))[1] for _ in range(2)]
        assert back[0].asked is back[1].asked
        await running.publish({"k": 1})
        _, elsewhere = await opened(stack, running, last_id=last[:-1] + "3")
        assert elsewhere.asked is not back[0].asked


async def test_options_that_look_at_each_write_are_not_shared(running: Running) -> None:
    async with AsyncExitStack() as stack:
        for options in (
            "conflation=auto",
            "conflation=20ms,progress",
            "conflation=20ms,max_age=1s",
        ):
            found = [(await opened(stack, running, options))[1] for _ in range(2)]
            assert found[0].asked["s1"] is not found[1].asked["s1"], options
            assert reader_styles(found[0]) is not reader_styles(found[1]), options


async def test_a_change_of_one_does_not_reach_the_other(running: Running) -> None:
    async with AsyncExitStack() as stack:
        one_stream, one = await opened(stack, running, command="subscribe")
        other_stream, other = await opened(stack, running, command="subscribe")
        wanted, granted = other.asked["s1"].request, other.asked["s1"].topics["px"]
        await change(running, one, options="conflation=40ms,max_age=1h", filter="/k = 7")
        assert "conflation=40ms" in await options_of(running, one)
        assert "conflation=20ms" in await options_of(running, other)
        assert (other.asked["s1"].request, other.asked["s1"].topics["px"]) == (wanted, granted)
        assert one.asked["s1"].topics["px"] != granted
        await running.publish({"k": 3}, {"k": 7})
        await one_stream.until("conflation")
        assert await one_stream.values(1) == [{"k": 7}]
        assert await other_stream.values(2) == [{"k": 3}, {"k": 7}]
        _, third = await opened(stack, running, command="subscribe")
        assert third.asked is other.asked, "the change is not what equal requests get"


async def test_a_style_that_is_copied_has_the_cut_of_its_own_stream(running: Running) -> None:
    async with AsyncExitStack() as stack:
        await opened(stack, running, command="subscribe")
        await running.publish({"k": 3}, {"k": 4})
        _, other = await opened(stack, running, command="subscribe")
        await change(running, other, options="progress")
        assert other.reader is not None
        assert other.reader.styles["s1", "px"].cut.offset == 4


async def test_an_interval_that_becomes_automatic_moves_for_one_alone(running: Running) -> None:
    async with AsyncExitStack() as stack:
        stream, one = await opened(stack, running, command="subscribe")
        _, other = await opened(stack, running, command="subscribe")
        await change(running, one, options="conflation=auto")
        await stream.until("conflation")
        await running.publish({"k": 3})
        await stream.values(1)
        assert one.asked["s1"].auto is not None, "its stream observes its own subscription"
        assert other.asked["s1"].auto is None


async def test_an_end_of_one_leaves_the_other(running: Running) -> None:
    async with AsyncExitStack() as stack:
        one_stream, one = await opened(stack, running, command="subscribe")
        other_stream, other = await opened(stack, running, command="subscribe")
        await running.http.delete(f"/v1/sessions/{one.id}/subscriptions/s1")
        assert (await one_stream.rest())[-1].name == "goodbye"
        assert list(other.asked["s1"].topics) == ["px"]
        await running.publish({"k": 5})
        assert await other_stream.values(1) == [{"k": 5}]


async def test_each_stream_counts_as_used_until_it_ends(running: Running) -> None:
    assert lanes(running).subscriptions == 0
    async with AsyncExitStack() as stack:
        _, one = await opened(stack, running)
        await opened(stack, running)
        assert (lanes(running).subscriptions, len(lanes(running)._held)) == (2, 1)
        await change(running, one, options="conflation=40ms")
        assert (lanes(running).subscriptions, len(lanes(running)._held)) == (2, 2)
        await change(running, one, options="conflation=20ms")
        assert (lanes(running).subscriptions, len(lanes(running)._held)) == (2, 1)
    async with asyncio.timeout(10):
        while lanes(running).subscriptions:
            await asyncio.sleep(0.01)
    assert not lanes(running)._held
