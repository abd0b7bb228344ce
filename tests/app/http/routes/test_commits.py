"""Stages and commits over HTTP: stored, then published in one step."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from tests.support.gateways import NDJSON, Running, running_gateway
from tests.support.rules import rule
from tidegate.app.stores.memory import STAGE_MS


async def stage(
    running: Running, name: str, *messages: object, topic: str = "px", **headers: str
) -> httpx2.Response:
    lines = b"\n".join(json.dumps(message).encode() for message in messages)
    return await running.http.post(
        f"/v1/topics/{topic}/messages",
        content=lines,
        headers={**NDJSON, "Tidegate-Stage": name, **headers},
    )


async def commit(
    running: Running,
    *stages: str,
    sequence: int = 1,
    run: int = 1,
    producer: str = "p",
    topic: str = "px",
    **more: str,
) -> httpx2.Response:
    document = {"producer": producer, "run": run, "sequence": sequence, "stages": list(stages)}
    document |= more
    return await running.http.post(f"/v1/topics/{topic}/commits", json=document)


async def journal(running: Running, topic: str = "px") -> list[dict[str, Any]]:
    answer = await running.http.get(f"/v1/topics/{topic}/messages")
    return [json.loads(line) for line in answer.text.splitlines()]


@rule("publish-3", "publish-4")
async def test_stages_are_published_in_one_step_in_the_order_of_the_commit() -> None:
    """That is neither the order of the names nor that in which they were staged."""
    async with running_gateway() as running:
        await running.topic()
        kept = await stage(running, "b", {"k": 4})
        assert (kept.status_code, kept.json()) == (
            201, {"topic": "px", "stage": "b", "messages": 1},
        )  # fmt: skip
        await stage(running, "a", {"k": 9})
        await stage(running, "a", {"k": 1}, {"k": 2})
        await stage(running, "c", {"k": 3})
        assert await running.sow() == []
        assert await journal(running) == []
        await running.publish({"k": 0})
        epoch = running.gateway.catalog.get("px").record.epoch
        answer = await commit(running, "a", "c", "b")
        assert (answer.status_code, answer.json()) == (200, {
            "topic": "px", "messages": 4, "first": f"{epoch}-2", "last": f"{epoch}-5",
            "duplicate": False,
        })  # fmt: skip
        rows = await journal(running)
        assert [row["value"]["k"] for row in rows] == [0, 1, 2, 3, 4]
        assert len({row["timestamp"] for row in rows[1:]}) == 1


@rule("publish-5")
async def test_a_known_number_publishes_nothing_and_leaves_the_stages() -> None:
    """A new stage of the same name is for the next commit, also if the last is repeated late."""
    async with running_gateway() as running:
        await running.topic()
        await stage(running, "a", {"k": 1})
        assert (await commit(running, "a", sequence=5)).status_code == 200
        duplicate = {"topic": "px", "messages": 0, "first": None, "last": None, "duplicate": True,
                     "sequence": 5}  # fmt: skip
        assert (await commit(running, "a", sequence=5)).json() == duplicate
        await stage(running, "a", {"k": 2})
        assert (await commit(running, "a", sequence=5)).json() == duplicate
        assert (await commit(running, "a", sequence=4, run=2)).json() == duplicate
        assert await running.sow() == [{"k": 1}]
        assert (await commit(running, "a", sequence=6, run=2)).json()["messages"] == 1
        assert await running.sow() == [{"k": 1}, {"k": 2}]


@rule("publish-5")
async def test_a_commit_without_stages_moves_the_number() -> None:
    """Its source had nothing to publish up to there."""
    async with running_gateway() as running:
        await running.topic()
        nothing = {"topic": "px", "messages": 0, "first": None, "last": None, "duplicate": False}
        assert (await commit(running, sequence=5, run=2)).json() == nothing
        assert await journal(running) == []
        assert (await commit(running, sequence=5, run=2)).json() == {
            **nothing,
            "duplicate": True,
            "sequence": 5,
        }
        assert (await commit(running, sequence=6, run=1)).json()["code"] == "producer-fenced"
        await stage(running, "a", {"k": 1})
        assert (await commit(running, "a", sequence=6, run=2)).json()["messages"] == 1
        assert (await commit(running, sequence=7, run=2)).json() == nothing


@rule("publish-4")
async def test_a_commit_for_another_epoch_publishes_nothing() -> None:
    """A topic that was made again may lack what its writer has published before."""
    async with running_gateway() as running:
        await running.topic()
        epoch = running.gateway.catalog.get("px").record.epoch
        await stage(running, "a", {"k": 1})
        assert (await commit(running, "a", epoch=epoch)).json()["messages"] == 1
        await running.http.delete("/v1/topics/px")
        await running.topic()
        await stage(running, "a", {"k": 1})
        for names in (["a"], []):
            refused = await commit(running, *names, sequence=2, epoch=epoch)
            assert refused.status_code == 412
            problem = refused.json()
            assert (problem["code"], problem["pointer"]) == ("precondition-failed", "/epoch")
        assert await journal(running) == []
        assert (await commit(running, "a", sequence=2)).json()["messages"] == 1


@rule("publish-5")
async def test_an_older_run_is_fenced_and_its_stages_stay() -> None:
    async with running_gateway() as running:
        await running.topic()
        await stage(running, "old", {"k": "old"})
        await stage(running, "new", {"k": "new"})
        assert (await commit(running, "new", run=2)).status_code == 200
        fenced = await commit(running, "old", run=1, sequence=2)
        assert (fenced.status_code, fenced.json()["code"]) == (409, "producer-fenced")
        numbered = {"Tidegate-Producer": "p", "Tidegate-Sequence": "9"}
        plain = await running.http.post(
            "/v1/topics/px/messages", content=b'{"k":1}', headers={**NDJSON, **numbered}
        )
        assert plain.json()["code"] == "producer-fenced"
        assert await running.sow() == [{"k": "new"}]
        assert (await commit(running, "old", run=3, sequence=2)).json()["messages"] == 1


@rule("publish-5")
async def test_a_newer_run_that_repeats_a_known_batch_is_the_one_that_counts() -> None:
    """The driver that was taken for dead does not commit between its batches."""
    async with running_gateway() as running:
        await running.topic()
        for name in ("a", "a2", "b"):
            await stage(running, name, {"k": name})
        assert (await commit(running, "a", sequence=1, run=1)).status_code == 200
        assert (await commit(running, "a2", sequence=1, run=2)).json()["duplicate"]
        late = await commit(running, "b", sequence=2, run=1)
        assert (late.status_code, late.json()["code"]) == (409, "producer-fenced")
        assert await running.sow() == [{"k": "a"}]
        assert (await commit(running, "b", sequence=2, run=2)).json()["messages"] == 1


@rule("publish-4")
async def test_a_commit_is_whole_or_nothing() -> None:
    async with running_gateway(topic_keys_max=3, request_messages_max=5) as running:
        await running.topic()
        await stage(running, "a", {"k": 1}, {"k": 2})
        missing = await commit(running, "a", "b")
        assert (missing.status_code, missing.json()["pointer"]) == (412, "/stages")
        await stage(running, "b", {"k": 3}, {"k": 4})
        full = await commit(running, "a", "b")
        assert (full.status_code, full.json()["code"]) == (429, "limit-reached")
        await stage(running, "c", {"k": 1}, {"k": 1})
        many = await commit(running, "a", "b", "c")
        assert (many.status_code, many.json()["code"]) == (413, "message-too-large")
        assert await running.sow() == []
        assert (await commit(running, "a", "c")).json()["messages"] == 4
        assert (await commit(running, "b", sequence=2)).status_code == 429


async def test_a_stage_is_gone_after_an_hour() -> None:
    async with running_gateway() as running:
        await running.topic()
        driver = running.gateway.driver
        now_ms = driver.wall_ms()
        driver.wall_ms = lambda: now_ms
        await stage(running, "a", {"k": 1})
        driver.wall_ms = lambda: now_ms + STAGE_MS
        assert (await commit(running, "a")).json()["code"] == "precondition-failed"


@rule("publish-3")
async def test_a_stage_is_its_topics_and_goes_with_its_epoch() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.topic("other")
        await stage(running, "a", {"k": 1})
        assert (await commit(running, "a", topic="other")).status_code == 412
        await running.http.delete("/v1/topics/px")
        await running.topic(key=("/other",))
        assert (await commit(running, "a")).status_code == 412


@rule("publish-3", "publish-4")
async def test_a_commit_is_checked_by_the_schema_that_holds_by_then() -> None:
    """Nothing is published, and the stages stay."""
    async with running_gateway() as running:
        await running.topic()
        await stage(running, "a", {"k": 1, "v": "text"})
        await running.topic(schema={"properties": {"v": {"type": "number"}}})
        refused = await commit(running, "a")
        assert (refused.status_code, refused.json()["code"]) == (422, "schema-violation")
        assert await running.sow() == []
        await running.topic()
        assert (await commit(running, "a")).json()["messages"] == 1


async def test_a_stage_makes_its_topic_where_that_is_allowed() -> None:
    async with running_gateway() as running:
        assert (await stage(running, "a", 1, topic="new")).status_code == 201
        assert (await commit(running, "a", topic="new")).json()["messages"] == 1
    async with running_gateway(auto_create_topics=False) as running:
        assert (await stage(running, "a", 1, topic="new")).json()["code"] == "topic-unknown"


async def test_texts_bytes_and_series_are_staged_too() -> None:
    async with running_gateway() as running:
        for kind, media_type, bodies, values in (
            ("text", "text/plain", ["é\n".encode(), b""], ["é\n", ""]),
            ("binary", "application/octet-stream", [b"\x00\xff", b"a"], ["AP8=", "YQ=="]),
            ("series", "application/json", [b"1", b'{"a": 2}'], [1, {"a": 2}]),
        ):
            await running.topic(kind, key=(), type=kind)
            for number, body in enumerate(bodies):
                headers = {"Content-Type": media_type, "Tidegate-Stage": str(number)}
                answer = await running.http.post(
                    f"/v1/topics/{kind}/messages", content=body, headers=headers
                )
                assert (answer.status_code, answer.json()["messages"]) == (201, 1)
            assert (await commit(running, "0", "1", topic=kind)).json()["messages"] == 2
            assert [row["value"] for row in await journal(running, kind)] == values


async def test_messages_not_to_be_conflated_stay_so_in_a_stage() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=100ms", command="subscribe") as stream:
            never = {"Tidegate-Conflate": "never"}
            await stage(running, "a", {"k": 1, "v": 1}, {"k": 1, "v": 2}, **never)
            await commit(running, "a")
            assert [value["v"] for value in await stream.values(2)] == [1, 2]


async def test_the_pipeline_stages_and_commits_where_only_it_may_write() -> None:
    async with running_gateway() as running:
        await running.topic("raw")
        source = {"topic": "raw", "interval": "1s", "engine": "spark"}
        await running.topic(source=source)
        name = "tidegate.pipeline.s.0a"
        assert (await stage(running, "a", {"k": 1})).json()["code"] == "topic-read-only"
        own = {"Tidegate-Producer": name}
        assert (await stage(running, "a", {"k": 1}, **own)).status_code == 201
        assert (await commit(running, "a")).json()["code"] == "topic-read-only"
        assert (await commit(running, "a", producer=name)).json()["messages"] == 1


@rule("topic-8")
@pytest.mark.parametrize("form", ["values", "envelopes"])
async def test_what_fills_a_topic_is_checked_neither_by_its_schema_nor_for_size(form: str) -> None:
    async with running_gateway(message_bytes_max=1_024) as running:
        await running.topic("raw")
        source = {"topic": "raw", "interval": "1s", "engine": "spark"}
        schema = {"properties": {"v": {"type": "number"}}}
        await running.topic(source=source, schema=schema)
        unfit, large = {"k": 1, "v": "1"}, {"k": 2, "v": "x" * 1_024}
        enveloped = form == "envelopes"
        own = {"Tidegate-Producer": "tidegate.pipeline.s.0a"}
        shown = [{"value": value} if enveloped else value for value in (unfit, large)]
        path = "px/messages?format=envelope" if enveloped else "px/messages"
        lines = b"\n".join(json.dumps(line).encode() for line in shown)
        headers = {**NDJSON, "Tidegate-Stage": "a", **own}
        kept = await running.http.post(f"/v1/topics/{path}", content=lines, headers=headers)
        assert kept.status_code == 201
        assert (await commit(running, "a", producer="tidegate.pipeline.s.0a")).status_code == 200
        assert await running.sow() == [unfit, large]
        # Filled no more it takes what anybody publishes, and checks it.
        await running.topic(schema=schema)
        assert (await stage(running, "b", unfit)).json()["code"] == "schema-violation"
        assert (await stage(running, "b", large)).json()["code"] == "message-too-large"


@rule("pipeline-14")
@pytest.mark.parametrize("producer", ["tidegate.pipeline.s.0a", "tidegate.ingest.s.0a"])
async def test_the_pipeline_and_ingest_do_not_make_a_topic_that_is_gone(producer: str) -> None:
    async with running_gateway() as running:
        own = {"Tidegate-Producer": producer}
        assert (await stage(running, "a", {"k": 1}, **own)).json()["code"] == "topic-unknown"
        assert (await stage(running, "a", {"k": 1})).status_code == 201


async def test_commits_at_once_publish_once() -> None:
    async with running_gateway() as running:
        await running.topic()
        await stage(running, "a", {"k": 1})
        answers = await asyncio.gather(*(commit(running, "a") for _ in range(8)))
        assert sorted(answer.json()["duplicate"] for answer in answers) == [False, *[True] * 7]
        assert len(await journal(running)) == 1


async def test_a_batch_of_many_stages_goes_in_slices_past_a_healthy_subscriber() -> None:
    """More messages than its queue holds, and more than a request may have."""
    stages, each = 12, 250
    narrow = {"queue_messages_max": 500, "request_messages_max": 2_900}
    async with running_gateway(journal_messages_max=stages * each, **narrow) as running:
        await running.topic("px", key=(), type="series")
        async with running.subscribe(topic="px", format="batch") as stream:
            for at in range(stages):
                lines = b"".join(b"%d\n" % (at * each + n) for n in range(each))
                headers = {**NDJSON, "Tidegate-Stage": f"s{at}"}
                await running.http.post("/v1/topics/px/messages", content=lines, headers=headers)
            committing = asyncio.create_task(commit(running, *(f"s{at}" for at in range(stages))))
            values: list[int] = []
            while len(values) < stages * each:
                rows = json.loads((await stream.next()).text)["rows"]
                values += [row["value"] for row in rows]
            assert values == list(range(stages * each))
            assert (await committing).json()["messages"] == stages * each


@rule("publish-8")
async def test_stages_take_removals_as_envelopes() -> None:
    """What is there at the commit goes, though it was not there when it was staged."""
    async with running_gateway() as running:
        await running.topic()
        kept = await running.http.post(
            "/v1/topics/px/messages?format=envelope", headers={**NDJSON, "Tidegate-Stage": "a"},
            content=b'{"key":[1],"reason":"deleted"}\n{"value":{"k":3}}\n',
        )  # fmt: skip
        assert (kept.status_code, kept.json()["messages"]) == (201, 2)
        await running.publish({"k": 1}, {"k": 2})
        assert (await commit(running, "a")).json()["messages"] == 2
        assert await running.sow() == [{"k": 2}, {"k": 3}]
        assert [row["op"] for row in await journal(running)] == ["publish"] * 2 + ["oof", "publish"]


@rule("publish-8")
async def test_removals_that_find_no_record_are_counted_in_the_answer() -> None:
    """Those of a record that came before them in the request find it."""
    async with running_gateway() as running:
        await running.topic()
        lines = [{"key": [at], "reason": "deleted"} for at in (1, 2, 3, 3)]
        body = "\n".join(json.dumps(line) for line in [{"value": {"k": 3}}, *lines])
        path = "/v1/topics/px/messages?format=envelope"
        await running.publish({"k": 1})
        answer = await running.http.post(path, content=body, headers={**NDJSON})
        assert answer.json()["unmatched_removals"] == 2
        staged = {**NDJSON, "Tidegate-Stage": "a"}
        await running.http.post(path, content=json.dumps(lines[0]), headers=staged)
        assert (await commit(running, "a")).json()["unmatched_removals"] == 1
        assert "unmatched_removals" not in (await commit(running, "a")).json()
