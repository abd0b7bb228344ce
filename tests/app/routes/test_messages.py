"""Publishing and the journal over HTTP."""

from __future__ import annotations

import json

from tests.support.gateways import JSON, NDJSON, running_gateway


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


async def test_a_repeated_number_is_told_and_publishes_nothing() -> None:
    async with running_gateway() as running:
        await running.topic()
        numbered = {"Tidegate-Producer": "p", "Tidegate-Sequence": "7"}
        assert (await running.publish({"k": 1}, headers=numbered))["duplicate"] is False
        assert await running.publish({"k": 2}, headers=numbered) == {
            "topic": "px", "messages": 0, "first": None, "last": None, "duplicate": True
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


async def test_a_message_travels_as_it_was_published() -> None:
    """Numbers beyond 64 bits, names twice, escapes and spaces: none of ours to change."""
    text = '{"k":1,"k":2, "n":123456789012345678901234567890, "e":1e400,"s":"\\u00e9\\/"}'
    async with running_gateway() as running:
        await running.topic()
        await running.publish_lines(text.encode())
        assert (await running.http.get("/v1/topics/px/sow")).text == text + "\n"
        assert (await running.http.get("/v1/topics/px/sow/%5B2%5D")).text == text


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
