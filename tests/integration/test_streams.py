"""What subscriptions show over the wire: deltas, removals, receipts, windows, groups, kinds."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
from typing import Any

import pytest

from tests.support.deadlines import LOOPS_S
from tests.support.gateways import Running, Stream, eventually, names, running_gateway
from tests.support.rules import rule
from tidegate.clients.replica import Replica, patched
from tidegate.clients.sse import Event, Parser
from tidegate.conflation.frame import Frame

FAST = "conflation=20ms"
HOUR_MS = 3_600_000


async def replicated(stream: Stream, replica: Replica, until: Any) -> list[Event]:
    """Feed a replica with what comes until one of its records is `until`."""
    events: list[Event] = []
    while until not in replica.values.values():
        events.append(await stream.next())
        assert replica.take(events[-1]).is_whole
    return events


def rows(events: list[Event]) -> list[dict[str, Any]]:
    documents = [json.loads(event.text) for event in events if event.name == "message"]
    return [row for document in documents for row in document.get("rows", [document])]


async def removed(running: Running, key: object, topic: str = "px") -> None:
    params = {"key": json.dumps([key])}
    answer = await running.http.delete(f"/v1/topics/{topic}/sow", params=params)
    assert answer.json() == {"deleted": 1}, answer.text


@pytest.mark.parametrize(
    "options", ["conflation=none", FAST, f"{FAST},pace=key", f"{FAST},receipt"]
)
async def test_deltas_add_up_to_the_state_of_the_world(options: str) -> None:
    chance = random.Random(7)
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe(
            options, command="sow_and_delta_subscribe", format="batch"
        ) as stream:
            replica, events = Replica(), list[Event]()
            for turn in range(30):
                wide = {"pad": "x" * 40, "v": chance.randrange(3), "turn": turn}
                nested = {"k": chance.randrange(3), "in": {"a": chance.randrange(2), "b": 1}}
                await running.publish({**wide, **nested}, {"k": 9, "end": turn})
                events += await replicated(stream, replica, {"k": 9, "end": turn})
            held = {json.dumps(value, sort_keys=True) for value in replica.values.values()}
            assert held == {json.dumps(value, sort_keys=True) for value in await running.sow()}
    assert {row["op"] for row in rows(events)} >= {"publish", "delta"}


async def test_a_delta_is_a_named_event_in_values() -> None:
    async with running_gateway() as running:
        await running.topic()
        record = {"k": 1, "pad": "x" * 40, "v": 1, "gone": True}
        await running.publish(record)
        async with running.subscribe(command="sow_and_delta_subscribe") as stream:
            await stream.until("group_end")
            await running.publish({"k": 1, "pad": "x" * 40, "v": 2})
            delta = await stream.next()
    assert (delta.name, json.loads(delta.text)) == ("delta", {"k": 1, "v": 2, "gone": None})
    assert patched(record, json.loads(delta.text)) == {"k": 1, "pad": "x" * 40, "v": 2}


@pytest.mark.parametrize("options", ["oof", f"{FAST},oof", f"{FAST},pace=key,oof"])
async def test_removals_and_their_reasons(options: str) -> None:
    async with running_gateway() as running:
        await running.topic(expiration="1h")
        await running.publish({"k": 1, "v": 1}, {"k": 2, "v": 1})
        async with running.subscribe(options, filter="/v = 1") as stream:
            await stream.until("group_end")
            await running.publish({"k": 1, "v": 2})
            left = await stream.next()
            assert left.name == "oof"
            row_fields = json.loads(left.text)
            assert (row_fields["reason"], row_fields["key"]) == ("match", [1])
            assert row_fields["value"] == {"k": 1, "v": 2 if options == "oof" else 1}
            await removed(running, 2)
            left = await stream.next()
            assert json.loads(left.text) == {
                "reason": "deleted",
                "key": [2],
                "value": {"k": 2, "v": 1},
            }


async def test_a_record_that_expires_is_sent_as_oof() -> None:
    async with running_gateway() as running:
        await running.topic(expiration="100ms")
        async with running.subscribe("oof", command="subscribe", format="envelope") as stream:
            await running.publish({"k": 1})
            [row, gone] = await stream.values(2)
    assert (row["op"], gone["op"], gone["reason"], gone["key"]) == (
        "publish",
        "oof",
        "expired",
        [1],
    )


async def test_without_oof_no_removal_is_sent() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe() as stream:
            await stream.until("group_end")
            await running.publish({"k": 1})
            await stream.values(1)
            await removed(running, 1)
            await running.publish({"k": 2})
            assert await stream.values(1) == [{"k": 2}]


async def test_receipts_add_up_to_what_was_published() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe(f"{FAST},receipt", command="subscribe") as stream:
            for n in range(200):
                await running.publish({"k": n % 7, "v": n}, {"k": n % 3, "v": n})
            last = (await running.publish({"k": "end"}))["last"]
            row_fields = await stream.values(1)
            while row_fields[-1]["last"] != last:
                row_fields += await stream.values(1)
    assert sum(row["conflated"] for row in row_fields) == 401
    places = [tuple(int(row[end].split("-")[1]) for end in ("first", "last")) for row in row_fields]
    assert all(first <= last for first, last in places)
    assert all(row["first"] == row["bookmark"] for row in row_fields)


async def test_receipts_add_up_when_a_queue_is_conflated() -> None:
    async with running_gateway(queue_messages_max=100) as running:
        await running.topic()
        async with running.subscribe("receipt", command="subscribe") as stream:
            for n in range(20):
                await running.publish(*[{"k": k, "v": n} for k in range(60)])
            await running.publish({"k": "end"})
            row_fields = await stream.values(1)
            while row_fields[-1]["key"] != ["end"]:
                row_fields += await stream.values(1)
    assert sum(row["conflated"] for row in row_fields) == 1_201


async def test_what_envelopes_show() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with (
            running.subscribe("timestamp", command="subscribe") as stamped,
            running.subscribe("send_keys", command="subscribe") as with_keys,
            running.subscribe("no_sowkey", command="subscribe", format="envelope") as without,
        ):
            published = await running.publish({"k": 1})
            [with_time], [with_key] = await stamped.values(1), await with_keys.values(1)
            [without_key] = await without.values(1)
        [journalled] = (await running.http.get("/v1/topics/px/messages")).text.splitlines()
    assert with_time["timestamp"] == json.loads(journalled)["timestamp"]
    assert with_key == {
        "topic": "px",
        "op": "publish",
        "key": [1],
        "bookmark": published["last"],
        "value": {"k": 1},
    }
    assert without_key == {name: with_key[name] for name in with_key if name != "key"}


async def test_selected_fields_alone_are_sent() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "a": 1, "b": 2})
        async with running.subscribe("select=[-/,+/k,+/b]") as stream:
            [_, row, _] = await stream.until("group_end")
            assert json.loads(row.text) == {"k": 1, "b": 2}
            await running.publish({"k": 2, "a": 1})
            assert await stream.values(1) == [{"k": 2}]


async def test_a_window_sends_what_enters_and_what_leaves() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": k, "v": k} for k in range(5)])
        async with running.subscribe(
            "top_n=2,oof,conflation=20ms", order_by="/v DESC", format="envelope"
        ) as stream:
            replica = Replica()
            for event in await stream.until("group_end"):
                replica.take(event)
            assert list(replica.values.values()) == [{"k": 4, "v": 4}, {"k": 3, "v": 3}]
            await running.publish({"k": 0, "v": 9})
            await replicated(stream, replica, {"k": 0, "v": 9})
            if len(replica.values) > 2:
                replica.take(await stream.next())
            assert {value["k"] for value in replica.values.values()} == {0, 4}


async def test_each_group_is_sent_as_one_row() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "g": "a", "v": 2}, {"k": 2, "g": "a", "v": 3})
        options = "projection=[/g,SUM(/v) AS /total],grouping=[/g],conflation=20ms"
        async with running.subscribe(options, format="envelope") as stream:
            [_, row, _] = await stream.until("group_end")
            row_fields = json.loads(row.text)
            assert (row_fields["key"], row_fields["value"]) == (["a"], {"g": "a", "total": 5})
            await running.publish({"k": 1, "g": "a", "v": 10})
            [changed] = await stream.values(1)
            assert changed["value"] == {"g": "a", "total": 13}


async def test_text_and_binary_topics() -> None:
    async with running_gateway() as running:
        await running.topic("text", key=(), type="text")
        await running.topic("binary", key=(), type="binary")
        async with (
            running.subscribe(topic="text") as text,
            running.subscribe(topic="text", format="envelope") as text_rows,
            running.subscribe(topic="binary") as binary,
            running.subscribe(topic="binary", format="batch") as binary_rows,
        ):
            for topic, media_type, body in (
                ("text", "text/plain", "one\ntwo é"),
                ("binary", "application/octet-stream", b"\x00\n\xff"),
            ):
                path, headers = f"/v1/topics/{topic}/messages", {"Content-Type": media_type}
                answer = await running.http.post(path, content=body, headers=headers)
                assert answer.status_code == 200, answer.text
            assert (await text.next()).text == "one\ntwo é"
            [row] = await text_rows.values(1)
            assert row["value"] == "one\ntwo é"
            assert base64.b64decode((await binary.next()).text) == b"\x00\n\xff"
            [batch] = await binary_rows.values(1)
            assert base64.b64decode(batch["rows"][0]["value"]) == b"\x00\n\xff"


async def test_a_pause_without_a_bookmark_is_refused() -> None:
    async with running_gateway() as running:
        await running.topic()
        answer = await running.http.get("/v1/topics/px/subscribe?options=pause")
    assert answer.status_code == 400
    assert answer.json()["code"] == "options-invalid"
    assert answer.json()["position"] == 0


async def test_a_bookmark_that_must_be_found() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        options = "bookmark=strange-1,bookmark_not_found=fail"
        answer = await running.http.get(f"/v1/topics/px/subscribe?options={options}")
        assert (answer.status_code, answer.json()["code"]) == (410, "bookmark-expired")
        assert "no such epoch" in answer.json()["detail"]
        assert running.gateway.driver.engine.stats().sessions == 0
        async with running.subscribe("bookmark=epoch") as stream:
            assert names(await stream.until("message"))[0] == "resumed"


@rule("resume-3")
async def test_a_bookmark_of_another_epoch_is_a_snapshot() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        async with running.subscribe("bookmark=strange-1") as stream:
            events = await stream.until("group_end")
            await running.publish({"k": 2})
            assert await stream.values(1) == [{"k": 2}]
    assert names(events) == ["resumed", "group_begin", "message", "group_end"]
    assert json.loads(events[0].text)["mode"] == "snapshot"


async def test_late_rows_are_announced() -> None:
    """What comes from another gateway may be old on arrival."""
    async with running_gateway() as running:
        await running.topic()
        driver = running.gateway.driver
        async with running.subscribe("conflation=20ms,max_age=1h", command="subscribe") as stream:
            await running.publish({"k": 1})
            assert await stream.values(1) == [{"k": 1}], "an hour is not over"
            stamped_ms = driver.wall_ms() - 5 * HOUR_MS
            await driver.publish("px", [Frame(2, b'{"k":2}', "[2]", stamped_ms)])
            assert await stream.values(1) == [{"k": 2}]
            late = await stream.next()
            assert late.name == "late"
            row_fields = json.loads(late.text)
            assert (row_fields["sub"], row_fields["cause"]) == ("s1", "source")
            assert 5 * HOUR_MS <= row_fields["age_ms"] < 6 * HOUR_MS


async def test_a_peer_that_reads_late_gets_a_notice() -> None:
    async with running_gateway() as running:
        await running.topic()
        options = "conflation=20ms,max_age=50ms"
        async with running.frozen(options, query="&command=subscribe") as wire:
            wire.thaw()
            parser, causes = Parser(), list[str]()
            async with asyncio.timeout(LOOPS_S):
                while "client" not in causes:  # it takes less than there is, so some is not taken
                    await running.publish(*[{"k": k, "pad": "x" * 50_000} for k in range(10)])
                    row_fields = parser.feed(await wire.reader.read(1 << 16))
                    causes += [json.loads(e.text)["cause"] for e in row_fields if e.name == "late"]
                    await asyncio.sleep(0.02)


async def test_a_write_that_blocks_is_late_because_of_the_peer() -> None:
    """Also if it began with room: the first flush is larger than what the socket takes."""
    async with running_gateway() as running:
        await running.topic()
        options = "conflation=20ms,max_age=500ms"
        async with running.frozen(options, query="&command=subscribe") as wire:
            await running.publish(*[{"k": k, "pad": "x" * 400_000} for k in range(8)])
            await asyncio.sleep(3)
            wire.thaw()
            parser, late = Parser(), list[dict[str, Any]]()
            async with asyncio.timeout(LOOPS_S):
                while not late:
                    found = parser.feed(await wire.reader.read(1 << 16))
                    late += [json.loads(each.text) for each in found if each.name == "late"]
            assert late[0]["cause"] == "client"
            assert late[0]["age_ms"] >= 2_500


async def test_progress_is_sent_where_no_row_could_show_it() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("progress", command="subscribe", filter="/v > 5") as stream:
            hidden = (await running.publish({"k": 1, "v": 1}))["last"]
            progress = await stream.next()
            assert (progress.name, progress.id) == ("progress", hidden)
            assert json.loads(progress.text)["bookmark"] == hidden
        async with running.subscribe(
            "progress", command="subscribe", filter="/v > 5", last_id=stream.last_id
        ) as again:
            assert json.loads((await again.next()).text)["gap_messages"] == 0


async def test_fifty_equal_streams_share_one_lane() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(50):
                await stack.enter_async_context(running.subscribe("conflation=1s"))
            [lane] = (await running.http.get("/v1/lanes")).json()["lanes"]
            assert lane["subscriptions"] == 50
            assert lane["lane"] == running.hellos[0]["subscriptions"][0]["lane"]
        await eventually(lambda: not running.gateway.driver.engine.stats().sessions, "all leave")
        assert (await running.http.get("/v1/lanes")).json() == {"lanes": []}
