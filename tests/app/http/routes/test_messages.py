"""Publishing and the journal over HTTP."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Router

from tests.support.gateways import JSON, NDJSON, running_gateway
from tests.support.rules import rule
from tidegate.app.stores.memory import RETRY_MS
from tidegate.app.stores.store import Appended
from tidegate.app.topics.ingest import Ingest
from tidegate.keys import jsontext, lines


async def test_publishing_answers_with_the_place_of_the_messages() -> None:
    async with running_gateway() as running:
        await running.topic()
        epoch = running.gateway.catalog.get("px").record.epoch
        assert await running.publish({"k": 1}, {"k": 2}) == {
            "topic": "px", "messages": 2, "first": f"{epoch}-1", "last": f"{epoch}-2",
            "duplicate": False,
        }  # fmt: skip
        one = await running.http.post("/v1/topics/px/messages", content=b'{"k":3}', headers=JSON)
        assert one.json()["first"] == one.json()["last"] == f"{epoch}-3"


async def test_publishing_goes_past_the_framework_s_routing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its way to a route takes a quarter of a publish of one message."""
    async with running_gateway() as running:
        await running.topic()
        await running.topic("py")
        await running.publish({"k": 1})  # the first one shows which route it is
        monkeypatch.delattr(Router, "__call__")
        for topic in ("px", "py"):
            await running.publish({"k": 1}, topic=topic, headers={"Tidegate-Conflate": "never"})
        refused = await running.http.post("/v1/topics/px/messages", content=b"{", headers=JSON)
        assert refused.json()["code"] == "message-invalid"
        other = await running.http.get("/v1/topics/px/messages")
        assert other.status_code == 500  # the test would see a request that goes there


async def test_a_repeated_number_is_a_duplicate_and_publishes_nothing() -> None:
    async with running_gateway() as running:
        await running.topic()
        numbered = {"Tidegate-Producer": "p", "Tidegate-Sequence": "7"}
        assert (await running.publish({"k": 1}, headers=numbered))["duplicate"] is False
        assert await running.publish({"k": 2}, headers=numbered) == {
            "topic": "px", "messages": 0, "first": None, "last": None, "duplicate": True,
            "sequence": 7,
        }  # fmt: skip
        assert await running.sow() == [{"k": 1}]


async def test_what_is_processed_is_seen_at_once() -> None:
    async with running_gateway() as running:
        await running.topic()
        answer = await running.http.post(
            "/v1/topics/px/messages?ack=processed", content=b'{"k":1}', headers=NDJSON
        )
        assert answer.status_code == 200
        assert await running.sow() == [{"k": 1}]


async def test_an_unknown_topic_is_made_where_allowed() -> None:
    async with running_gateway() as running:
        await running.publish(1, topic="new")
        assert (await running.http.get("/v1/topics/new")).json()["key"] == []
    async with running_gateway(auto_create_topics=False) as running:
        answer = await running.http.post("/v1/topics/new/messages", content=b"1", headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (404, "topic-unknown")


@pytest.mark.parametrize("auto_create", [True, False])
async def test_a_topic_that_is_deleted_during_a_publish_is_made_again_where_allowed(
    monkeypatch: pytest.MonkeyPatch, auto_create: bool
) -> None:
    async with running_gateway(auto_create_topics=auto_create) as running:
        await running.topic()
        publish, deletions = Ingest.publish, iter((True,))

        async def deleted_before(ingest: Ingest, *arguments: Any, **more: Any) -> Appended:
            for _ in deletions:
                await running.http.delete("/v1/topics/px")
            return await publish(ingest, *arguments, **more)

        monkeypatch.setattr(Ingest, "publish", deleted_before)
        answer = await running.http.post(
            "/v1/topics/px/messages",
            content=b'{"k":"a"}',
            headers={**JSON, "Tidegate-Conflate": "never"},
        )
        assert answer.status_code == (200 if auto_create else 404)
        if auto_create:
            journal = (await running.http.get("/v1/topics/px/messages")).text
            assert journal.count("value") == 1


async def test_a_message_travels_as_it_was_published() -> None:
    """Numbers beyond 64 bits, names twice, escapes and spaces: none of ours to change."""
    text = '{"k":1,"k":2, "n":123456789012345678901234567890, "e":1.50e300,"s":"\\u00e9\\/"}'
    async with running_gateway() as running:
        await running.topic()
        await running.publish_lines(text.encode())
        assert (await running.http.get("/v1/topics/px/sow")).text == text + "\n"
        assert (await running.http.get("/v1/topics/px/sow/%5B2%5D")).text == text


async def test_a_number_beyond_a_double_that_was_stored_before_is_served_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '{"k":1,"v":1e400}'
    async with running_gateway(data=str(tmp_path)) as running:
        await running.topic()
        with monkeypatch.context() as patch:
            # As an earlier version took it.
            patch.setattr(jsontext, "may_exceed_double", lambda _: False)
            patch.setattr(lines, "may_exceed_double", lambda _: False)
            await running.publish_lines(text.encode())
        answer = await running.http.post(
            "/v1/topics/px/messages", content=f'{{"k":2}}\n{text}', headers=NDJSON
        )
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (400, "message-invalid")
        assert (problem["line"], problem["position"]) == (2, 11)
    async with running_gateway(data=str(tmp_path)) as running:
        assert (await running.http.get("/v1/topics/px/sow")).text == text + "\n"
        async with running.subscribe(command="sow_and_subscribe") as stream:
            assert (await stream.until("message"))[-1].text == text
        await running.publish({"k": 1, "v": 2})
        assert await running.sow() == [{"k": 1, "v": 2}]


async def test_the_journal_is_read_from_its_beginning_or_after_a_bookmark() -> None:
    async with running_gateway() as running:
        await running.topic()
        published = await running.publish(*[{"k": n} for n in range(5)])
        whole = await running.http.get("/v1/topics/px/messages")
        assert whole.headers["content-type"] == "application/x-ndjson"
        assert whole.headers["tidegate-bookmark"] == published["last"]
        rows = [json.loads(line) for line in whole.text.splitlines()]
        assert [row["value"]["k"] for row in rows] == list(range(5))
        assert [row["key"] for row in rows] == [[n] for n in range(5)]
        assert rows[0].keys() == {"topic", "op", "key", "bookmark", "timestamp", "value"}
        start = rows[1]["bookmark"]
        part = await running.http.get(f"/v1/topics/px/messages?from={start}&limit=2")
        assert [json.loads(line)["bookmark"] for line in part.text.splitlines()] == [
            row["bookmark"] for row in rows[2:4]
        ]
        assert part.headers["tidegate-bookmark"] == rows[3]["bookmark"]
        end = await running.http.get(f"/v1/topics/px/messages?from={published['last']}")
        assert (end.text, end.headers["tidegate-bookmark"]) == ("", published["last"])


async def test_the_journal_is_read_since_a_time_and_its_newest_messages() -> None:
    async with running_gateway() as running:
        await running.topic(history={"messages": 3})
        times = [1_800_000_000_000 + 1_000 * n for n in range(4)]
        for n, time_ms in enumerate(times):
            running.gateway.driver.wall_ms = partial(int, time_ms)
            await running.publish({"k": n})

        async def read(query: str) -> list[int]:
            answer = await running.http.get(f"/v1/topics/px/messages?{query}")
            assert answer.status_code == 200, answer.text
            return [json.loads(line)["value"]["k"] for line in answer.text.splitlines()]

        assert await read(f"from={times[2]}") == [2, 3]
        assert await read(f"from={times[0] + 1}&limit=1") == [1]
        assert await read(f"from={times[3] + 1}") == []
        assert await read("from=2099-01-01") == []
        assert [await read(f"last={n}") for n in (1, 2, 100)] == [[3], [2, 3], [1, 2, 3]]
        for query, code in (
            (f"from={times[0]}", "bookmark-expired"),  # the message of that time was trimmed
            ("from=last-100", "bookmark-expired"),
            ("from=-1h", "bookmark-invalid"),
            ("last=2&limit=1", "options-invalid"),
            ("last=2&from=epoch", "options-invalid"),
            ("last=0", "options-invalid"),
        ):
            answer = await running.http.get(f"/v1/topics/px/messages?{query}")
            assert answer.json()["code"] == code, query


async def test_an_empty_journal_has_a_place_to_go_on_from() -> None:
    async with running_gateway() as running:
        await running.topic()
        bookmark = (await running.http.get("/v1/topics/px/messages")).headers["tidegate-bookmark"]
        await running.publish({"k": 1})
        rest = await running.http.get(f"/v1/topics/px/messages?from={bookmark}")
        assert len(rest.text.splitlines()) == 1


async def test_a_trimmed_bookmark_is_gone() -> None:
    async with running_gateway() as running:
        await running.topic(history={"messages": 2})
        first = (await running.publish({"k": 1}))["last"]
        await running.publish({"k": 2}, {"k": 3}, {"k": 4})
        answer = await running.http.get(f"/v1/topics/px/messages?from={first}")
        assert (answer.status_code, answer.json()["code"]) == (410, "bookmark-expired")
        begin = await running.http.get("/v1/topics/px/messages?from=epoch")
        assert [json.loads(line)["value"]["k"] for line in begin.text.splitlines()] == [3, 4]


async def test_a_delta_is_seen_as_the_whole_record() -> None:
    patch = {"Content-Type": "application/merge-patch+json"}
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "a": 1, "b": 2})
        answer = await running.http.post(
            "/v1/topics/px/messages", content=b'{"k":1,"a":null,"c":3}', headers=patch
        )
        assert answer.json()["messages"] == 1
        lines = b'{"k":1,"b":4}\n{"k":2,"d":5}'
        answer = await running.http.post(
            "/v1/topics/px/messages?delta=true", content=lines, headers=NDJSON
        )
        assert answer.json()["messages"] == 2
        assert await running.sow() == [{"k": 1, "b": 4, "c": 3}, {"k": 2, "d": 5}]
        journal = (await running.http.get("/v1/topics/px/messages")).text
        assert [json.loads(line)["value"] for line in journal.splitlines()] == [
            {"k": 1, "a": 1, "b": 2}, {"k": 1, "b": 2, "c": 3}, *await running.sow()
        ]  # fmt: skip


async def test_texts_and_bytes_are_published_as_they_are() -> None:
    async with running_gateway() as running:
        for kind, media_type, body, value in (
            ("text", "text/plain; charset=utf-8", 'é\n"'.encode(), 'é\n"'),
            ("text", "text/plain", b"", ""),
            ("binary", "application/octet-stream", b"\x00\xff", "AP8="),
        ):
            await running.topic(kind, key=(), type=kind, retain=True)
            answer = await running.http.post(
                f"/v1/topics/{kind}/messages", content=body, headers={"Content-Type": media_type}
            )
            assert answer.status_code == 200, answer.text
            assert await running.sow(kind) == [value]
            journal = (await running.http.get(f"/v1/topics/{kind}/messages")).text
            assert json.loads(journal.splitlines()[-1])["value"] == value


async def test_a_series_takes_json() -> None:
    async with running_gateway() as running:
        await running.topic("log", key=(), type="series")
        assert (await running.publish(1, {"a": 2}, topic="log"))["messages"] == 2
        assert (await running.http.get("/v1/topics/log/sow")).status_code == 400


async def test_what_is_never_to_be_conflated_arrives_one_by_one() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=100ms", command="subscribe") as stream:
            never = {"Tidegate-Conflate": "never"}
            await running.publish({"k": 1, "v": 1}, {"k": 1, "v": 2}, headers=never)
            assert [value["v"] for value in await stream.values(2)] == [1, 2]


async def test_a_removal_stands_in_the_journal_with_what_it_took_away() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "v": 1})
        await running.http.delete("/v1/topics/px/sow?key=[1]")
        journal = (await running.http.get("/v1/topics/px/messages")).text
        last = json.loads(journal.splitlines()[-1])
        assert (last["op"], last["reason"], last["value"]) == ("oof", "deleted", {"k": 1, "v": 1})
        assert last["bookmark"].endswith("-2")


RETRIED = {**NDJSON, "Idempotency-Key": "once"}


async def test_a_retry_is_answered_as_the_first_time_and_publishes_nothing() -> None:
    async with running_gateway() as running:
        await running.topic()
        first = await running.publish({"k": 1}, {"k": 2}, headers=RETRIED)
        await running.publish({"k": 3})
        for query in ("", "?ack=processed"):
            again = await running.http.post(
                f"/v1/topics/px/messages{query}", content=b'{"k": 1}\n{"k": 2}', headers=RETRIED
            )
            assert again.json() == {**first, "duplicate": True}
        assert await running.sow() == [{"k": 1}, {"k": 2}, {"k": 3}]


@rule("publish-1")
async def test_a_used_key_is_for_no_other_request() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.topic("other")
        await running.publish({"k": 1}, headers=RETRIED)
        other = await running.http.post(
            "/v1/topics/px/messages", content=b'{"k": 2}', headers=RETRIED
        )
        assert (other.status_code, other.json()["code"]) == (409, "idempotency-conflict")
        assert await running.sow() == [{"k": 1}]
        elsewhere = await running.publish({"k": 2}, topic="other", headers=RETRIED)
        assert elsewhere["duplicate"] is False


@rule("publish-1")
async def test_a_key_is_known_for_a_day() -> None:
    async with running_gateway() as running:
        await running.topic("log", key=())
        driver = running.gateway.driver
        begun_ms = driver.wall_ms()
        for later_ms, duplicate in ((0, False), (RETRY_MS - 1, True), (RETRY_MS, False)):
            driver.wall_ms = partial(int, begun_ms + later_ms)
            answer = await running.publish(1, topic="log", headers=RETRIED)
            assert answer["duplicate"] is duplicate


@pytest.mark.parametrize("body", [b'{"k":1,"n":1}', b'{"k":1}\n' * 50_000], ids=["small", "large"])
async def test_of_requests_at_once_with_one_key_one_publishes(body: bytes) -> None:
    async with running_gateway() as running:
        await running.topic("log", key=(), type="series")
        answers = await asyncio.gather(
            *(running.publish_lines(body, "log", headers=RETRIED) for _ in range(6))
        )
        assert sorted(answer["duplicate"] for answer in answers) == [False, *[True] * 5]
        assert len({(answer["first"], answer["last"]) for answer in answers}) == 1
        assert running.gateway.driver.engine.topic("log").head == answers[0]["messages"]


@rule("publish-1")
async def test_a_delta_that_comes_again_is_not_merged_again() -> None:
    """The record has changed since, and stays as it is."""
    async with running_gateway() as running:
        await running.topic()
        patch = {"Content-Type": "application/merge-patch+json", "Idempotency-Key": "d"}

        async def publish_delta() -> dict[str, object]:
            answer = await running.http.post(
                "/v1/topics/px/messages", content=b'{"k":1,"a":1}', headers=patch
            )
            return dict(answer.json())

        first = await publish_delta()
        await running.publish({"k": 1, "a": 2, "b": 3})
        assert await publish_delta() == {**first, "duplicate": True}
        assert await running.sow() == [{"k": 1, "a": 2, "b": 3}]


@rule("publish-1")
async def test_a_retry_is_answered_where_the_topic_would_refuse_it_by_now() -> None:
    """Another request under the key is still a conflict."""
    async with running_gateway(topic_keys_max=2) as running:
        await running.topic()
        first = await running.publish({"k": 1, "v": "x"}, headers=RETRIED)
        await running.http.delete("/v1/topics/px/sow?key=[1]")
        await running.publish({"k": 2}, {"k": 3})
        again = await running.publish({"k": 1, "v": "x"}, headers=RETRIED)  # no room for its key
        assert again == {**first, "duplicate": True}
        await running.topic(schema={"properties": {"v": {"type": "number"}}})
        again = await running.publish({"k": 1, "v": "x"}, headers=RETRIED)
        assert again == {**first, "duplicate": True}
        other = await running.http.post(
            "/v1/topics/px/messages", content=b'{"k": 1, "v": "y"}', headers=RETRIED
        )
        assert other.json()["code"] == "idempotency-conflict"


@rule("publish-1")
async def test_a_refused_request_leaves_its_key_free() -> None:
    async with running_gateway() as running:
        await running.topic()
        bad = await running.http.post("/v1/topics/px/messages", content=b"{}", headers=RETRIED)
        assert bad.status_code == 422
        assert (await running.publish({"k": 1}, headers=RETRIED))["duplicate"] is False


async def test_texts_and_bytes_are_retried_too() -> None:
    async with running_gateway() as running:
        for kind, media_type in (("text", "text/plain"), ("binary", "application/octet-stream")):
            await running.topic(kind, key=(), type=kind)
            headers = {"Content-Type": media_type, "Idempotency-Key": "k"}
            for duplicate in (False, True):
                answer = await running.http.post(
                    f"/v1/topics/{kind}/messages", content=b"", headers=headers
                )
                assert answer.json()["duplicate"] is duplicate


@rule("publish-2")
async def test_what_is_answered_is_seen_whatever_was_asked_for() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        assert await running.sow() == [{"k": 1}]


@rule("publish-7")
async def test_removals_and_commits_are_not_retried_by_a_key() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        removal = await running.http.delete(
            "/v1/topics/px/sow?key=[1]", headers={"Idempotency-Key": "k"}
        )
        commit = await running.http.post(
            "/v1/topics/px/commits", json={}, headers={"Idempotency-Key": "k"}
        )
        assert removal.json()["code"] == commit.json()["code"] == "message-invalid"
        assert await running.sow() == [{"k": 1}]


@rule("publish-8")
async def test_a_journal_can_be_sent_to_another_topic_as_it_stands() -> None:
    """Removals with it, be the record there or not."""
    async with running_gateway() as running:
        await running.topic()
        await running.topic("copy")
        await running.publish({"k": 1, "v": 1}, {"k": 2})
        await running.http.delete("/v1/topics/px/sow", params={"key": "[1]"})
        lines = (await running.http.get("/v1/topics/px/messages")).content
        envelopes = lines + b'{"key":[7],"reason":"deleted"}\n'
        answer = await running.http.post(
            "/v1/topics/copy/messages?format=envelope", content=envelopes, headers=NDJSON
        )
        assert (answer.status_code, answer.json()["messages"]) == (200, 4)
        assert await running.sow("copy") == [{"k": 2}]
        shown = (await running.http.get("/v1/topics/copy/messages")).text.splitlines()
        rows = [json.loads(line) for line in shown]
        assert [(row["op"], row["key"], row["value"]) for row in rows] == [
            ("publish", [1], {"k": 1, "v": 1}),
            ("publish", [2], {"k": 2}),
            ("oof", [1], {"k": 1, "v": 1}),
            ("oof", [7], None),
        ]
        assert rows[-1]["reason"] == "deleted"


@rule("publish-8")
async def test_a_subscriber_gets_a_removal_that_was_published() -> None:
    """Of a record that he has, and of no other."""
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        async with running.subscribe("oof,send_keys") as stream:
            await stream.until("group_end")
            await running.http.post(
                "/v1/topics/px/messages?format=envelope", headers=NDJSON,
                content=b'{"key":[7],"reason":"deleted"}\n{"key":[1],"reason":"match"}\n'
                b'{"value":{"k":2}}\n',
            )  # fmt: skip
            rows = await stream.values(2)
            assert [(row["op"], row["key"]) for row in rows] == [("oof", [1]), ("publish", [2])]
            assert rows[0]["reason"] == "match"
