"""`/v1/polled`: what polling readers read, and how far they are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.app.access.test_authorization import ROOT, guarded
from tests.app.http.routes.test_stream import STREAM, Poller
from tests.support.gateways import Running, eventually, running_gateway
from tests.support.tokens import token_of
from tidegate.app.streams import polled


async def shown(running: Running) -> list[dict[str, Any]]:
    answer = await running.http.get("/v1/polled")
    assert answer.status_code == 200, answer.text
    return list(answer.json()["streams"])


async def test_a_stream_shows_what_it_is_and_how_it_is_read() -> None:
    async with running_gateway() as running:
        await running.topic()
        assert await shown(running) == []
        await running.publish({"k": 1}, {"k": 2})
        asked = {"options": "conflation=2s", "filter": "/k > 1"}
        first, second = Poller(running, **asked), Poller(running, **asked)
        answer = await first.poll()
        await second.poll()
        waiting = [asyncio.create_task(each.poll("long-poll")) for each in (first, second)]
        await asyncio.sleep(0.1)
        [stream] = await shown(running)
        assert stream.pop("opened_ms") > 1_600_000_000_000
        assert stream.pop("gateway")
        assert stream == {
            "topic": "px",
            "options": "conflation=2s,conflation_key=[/k],pace=batch,oof",
            "filter": "/k > 1",
            "order_by": None,
            "format": "state",
            "interval_ms": 2_000,
            "requests": 4,
            "answers": 2,
            "sent_bytes": 2 * len(answer.content),
            "waiting": 2,
            "positions": 2,  # the beginning, and the end at which both wait
            "newest_age_ms": 0,
            "oldest_age_ms": 0,
        }
        await running.publish({"k": 2})
        await asyncio.gather(*waiting)
        [stream] = await shown(running)
        assert (stream["requests"], stream["answers"], stream["waiting"]) == (4, 4, 0)


async def test_positions_that_are_behind_are_as_old_as_what_follows_them() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        fast, slow = Poller(running), Poller(running)
        await fast.poll()
        await slow.poll()
        await asyncio.sleep(5)
        await running.publish({"k": 2})
        await asyncio.sleep(5)
        await fast.poll()
        await running.publish({"k": 3})
        await asyncio.sleep(2)
        await asyncio.gather(fast.poll(), slow.poll())
        [stream] = await shown(running)
        assert stream["positions"] == 2
        assert 1_900 <= stream["newest_age_ms"] <= 2_100
        assert 6_900 <= stream["oldest_age_ms"] <= 7_100
        await asyncio.sleep(1.5)
        [stream] = await shown(running)
        assert (stream["positions"], stream["newest_age_ms"]) == (0, None)


async def test_a_position_before_the_journal_has_no_age() -> None:
    async with running_gateway() as running:
        await running.topic(history={"messages": 2})
        await running.publish({"k": 1})
        poller = Poller(running)
        await poller.poll()
        await running.publish(*[{"k": n} for n in range(5)])
        await poller.poll()
        [stream] = await shown(running)
        assert (stream["newest_age_ms"], stream["oldest_age_ms"]) == (None, None)


async def test_what_is_shown_of_a_journal_can_be_asked_for() -> None:
    async with running_gateway() as running:
        await running.http.put("/v1/topics/px", json={"retain": False})
        await running.http.get(STREAM, params={"options": "conflation=5s"})
        [stream] = await shown(running)
        assert (stream["format"], stream["interval_ms"]) == ("value", 5_000)
        again = await running.http.get(STREAM, params={"options": stream["options"]})
        assert again.status_code == 200, again.text
        [stream] = await shown(running)
        assert stream["requests"] == 2


async def test_events_are_answers_too() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        asked = {"offset": "-1", "live": "sse"}
        async with running.http.stream("GET", STREAM, params=asked):
            [stream] = await shown(running)
            assert (stream["requests"], stream["answers"]) == (1, 1)
            assert stream["sent_bytes"] > 10


async def test_a_request_that_is_refused_counts_once() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        asked = {"format": "value"}
        answer = await running.http.get(STREAM, params=asked)
        of_other_rows = answer.headers["stream-next-offset"].partition(".")[0] + "." + "0" * 10
        answer = await running.http.get(STREAM, params={**asked, "offset": of_other_rows})
        assert (answer.status_code, answer.json()["code"]) == (410, "bookmark-expired")
        [stream] = await shown(running)
        assert (stream["requests"], stream["answers"]) == (2, 1)


async def test_positions_that_somebody_makes_up_are_not_all_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(polled, "POSITIONS_MAX", 20)
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": n} for n in range(50)])
        answer = await running.http.get(STREAM)
        epoch = answer.headers["stream-next-offset"].rpartition("_")[0]
        for offset in range(49):
            await running.http.get(STREAM, params={"offset": f"{epoch}_{offset}"})
        [stream] = await shown(running)
        assert 10 <= stream["positions"] <= 20
        [kept] = running.gateway.polled.listed()
        assert len(kept._asked) <= 20


async def test_a_stream_of_a_topic_that_has_gone_is_not_shown_and_its_counts_stay() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        await running.http.get(STREAM)
        await running.http.delete("/v1/topics/px")
        await eventually(lambda: not running.gateway.polled.listed(), "the stream ends")
        assert await shown(running) == []
        await running.topic()
        await running.http.get(STREAM)
        counts = running.gateway.polled.counts
        assert (counts.requests, counts.answers) == (2, 1)


async def test_only_streams_of_topics_that_may_be_observed_are_shown(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        for topic in ("prices.eu", "secret"):
            answer = await running.http.get(f"/v1/topics/{topic}/stream", headers=ROOT)
            assert answer.status_code == 200, answer.text
        observer = token_of("olga", "observe prices.>")
        answer = await running.http.get("/v1/polled", headers=observer)
        assert [each["topic"] for each in answer.json()["streams"]] == ["prices.eu"]
        reader = token_of("rhea", "read prices.>")
        assert (await running.http.get("/v1/polled", headers=reader)).status_code == 403
