"""Subscribing over HTTP: commands, formats, snapshots, resumes."""

from __future__ import annotations

import json

from tests.support.gateways import JSON, Stream, eventually, names, running_gateway
from tests.support.rules import rule


async def test_a_keyed_topic_begins_with_its_snapshot() -> None:
    async with running_gateway() as running:
        await running.topic()
        last = (await running.publish({"k": 1}, {"k": 2}, {"k": 1}))["last"]
        async with running.subscribe() as stream:
            events = await stream.until("group_end")
            assert names(events) == ["group_begin", "message", "message", "group_end"]
            assert json.loads(events[0].text) == {"sub": "s1", "topic": "px", "rows": 2}
            assert [event.id for event in events] == ["", "", "", last]
            await running.publish({"k": 3})
            assert await stream.values(1) == [{"k": 3}]


async def test_a_plain_topic_begins_with_the_next_message() -> None:
    async with running_gateway() as running:
        await running.topic(key=())
        await running.publish(1)
        async with running.subscribe() as stream:
            await running.publish(2, "x", None)
            assert await stream.values(3) == [2, "x", None]


async def test_a_sow_ends_by_itself_and_its_return_finds_nothing() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        async with running.subscribe(command="sow") as stream:
            events = await stream.rest()
        assert names(events) == ["group_begin", "message", "group_end", "goodbye"]
        assert json.loads(events[-1].text) == {"reason": "UNSUBSCRIBED", "reconnect": False}
        back = await running.http.get(
            "/v1/topics/px/subscribe?command=sow", headers={"Last-Event-ID": stream.last_id}
        )
        assert (back.status_code, back.content) == (204, b"")


async def test_a_snapshot_larger_than_a_piece_has_one_id() -> None:
    async with running_gateway() as running:
        await running.topic()
        last = (await running.publish(*[{"k": n, "pad": "x" * 1_000} for n in range(350)]))["last"]
        async with running.subscribe("conflation=1h", command="sow") as stream:
            events = await stream.rest()
        assert len(events) == 353
        assert [event.id for event in events if event.id] == [last, last]  # group_end, goodbye


async def test_formats() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with (
            running.subscribe("conflation=50ms", command="subscribe", format="envelope") as each,
            running.subscribe("conflation=50ms", command="subscribe", format="batch") as all_,
        ):
            published = await running.publish({"k": 1, "v": 1}, {"k": 1, "v": 2}, {"k": 2})
            rows = await each.values(2)
            [batch] = await all_.values(1)
        assert [row["value"] for row in rows] == [{"k": 1, "v": 2}, {"k": 2}]
        assert rows[0]["bookmark"] == published["first"]  # of the first message it stands for
        assert batch == {"topic": "px", "rows": rows}


async def test_posting_the_parameters_is_the_same() -> None:
    async with running_gateway() as running:
        await running.topic()
        body = b'{"options":"conflation=50ms","command":"subscribe","format":"batch"}'
        path = "/v1/topics/px/subscribe"
        async with running.http.stream("POST", path, content=body, headers=JSON) as answer:
            stream = Stream(answer)
            assert (await stream.next()).name == "hello"
            await running.publish({"k": 1})
            [batch] = await stream.values(1)
        assert len(batch["rows"]) == 1


async def test_a_subscription_that_is_refused_leaves_nothing_behind() -> None:
    async with running_gateway() as running:
        await running.topic()
        answer = await running.http.get("/v1/topics/px/subscribe?options=conflation%3Dx")
        assert answer.status_code == 400
        engine = running.gateway.driver.engine
        assert (engine.stats().sessions, engine.topic_stats("px").lanes) == (0, 0)
        assert running.gateway.sessions.listed("", 10) == []


async def test_the_header_wins_over_the_query() -> None:
    async with running_gateway() as running:
        await running.topic()
        first = (await running.publish({"k": 1}))["last"]
        newest = (await running.publish({"k": 2}))["last"]
        async with running.subscribe(last_id=newest, last_event_id=first) as stream:
            resumed = await stream.next()
            assert json.loads(resumed.text)["gap_messages"] == 0
        async with running.subscribe(last_event_id=first) as stream:
            resumed = await stream.next()
            assert json.loads(resumed.text)["gap_messages"] == 1
            assert await stream.values(1) == [{"k": 2}]


async def test_equal_subscriptions_share_a_lane() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=1s"), running.subscribe("conflation=1000ms"):
            assert running.hellos[0]["subscriptions"] == running.hellos[1]["subscriptions"]
            assert running.gateway.driver.engine.topic_stats("px").lanes == 1
        await eventually(
            lambda: running.gateway.driver.engine.topic_stats("px").lanes == 0, "the lane ends"
        )


async def test_an_id_that_no_sow_had_gets_the_sow() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        for strange in ("unknown-5", f"{running.gateway.catalog.get('px').record.epoch}-9"):
            async with running.subscribe(command="sow", last_event_id=strange) as stream:
                assert names(await stream.rest())[-3:] == ["message", "group_end", "goodbye"]


@rule("session-10")
async def test_the_session_of_a_pattern_waits_for_its_reader() -> None:
    async with running_gateway() as running:
        await running.topic("px.a")
        async with running.subscribe(topic="px.*") as stream:
            session = running.hellos[-1]["session"]
            assert stream.hello_id == f"{session}-0"
            await stream.until("group_end")
        found = running.gateway.sessions.get(session)
        await eventually(lambda: found.reader is None, "it leaves")
        assert found.state == "away"
        for topic, last_id, status in (
            ("px.*", stream.last_id, 200), ("fx.*", stream.last_id, 404), ("px.*", "zzq-1", 404)
        ):  # fmt: skip
            address = f"/v1/topics/{topic}/subscribe"
            headers = {"Last-Event-ID": last_id}
            async with running.http.stream("GET", address, headers=headers) as answer:
                assert answer.status_code == status


async def test_a_query_of_a_pattern_is_finished_only_for_who_has_it_all() -> None:
    async with running_gateway() as running:
        await running.topic("px.a")
        await running.publish({"k": 1}, topic="px.a")
        async with running.subscribe(topic="px.*", command="sow") as stream:
            begun_at = stream.last_id
            await stream.rest()
        for last_id, status in ((stream.last_id, 204), (begun_at, 404)):
            answer = await running.http.get(
                "/v1/topics/px.*/subscribe?command=sow", headers={"Last-Event-ID": last_id}
            )
            assert answer.status_code == status
