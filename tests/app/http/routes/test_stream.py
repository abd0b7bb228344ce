"""A topic read position by position."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pytest

from tests.app.access.test_authorization import ROOT, guarded
from tests.support.buses import BusServer
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, eventually, running_gateway
from tests.support.rules import rule
from tests.support.tokens import grant, token_of
from tests.support.wire import connected
from tidegate.app.refusals import Refused
from tidegate.app.stores.store import TopicRecord
from tidegate.app.streams import polled, polled_pages
from tidegate.app.streams.poll_request import PollTexts
from tidegate.conflation.frame import Frame, RestoredTopic, Tombstone

STREAM = "/v1/topics/px/stream"


class Poller:
    """A client of the State Protocol: it keeps what it has read, and where it is."""

    def __init__(self, running: Running, **asked: str) -> None:
        self.running = running
        self.asked = asked
        self.offset = "-1"
        self.cursor = ""
        self.records: dict[str, Any] = {}
        self.rows: list[Any] = []

    async def poll(self, live: str = "") -> httpx2.Response:
        """Ask once, and take in what comes."""
        asked = {**self.asked, "offset": self.offset}
        if live:
            asked |= {"live": live}
            if self.cursor:
                asked |= {"cursor": self.cursor}
        answer = await self.running.http.get(STREAM, params=asked)
        assert answer.status_code in (200, 204), answer.text
        self.offset = answer.headers["stream-next-offset"]
        self.cursor = answer.headers.get("stream-cursor", self.cursor)
        self.rows = [] if answer.status_code == 204 else answer.json()
        for row in self.rows:
            self.take(row)
        return answer

    def take(self, row: dict[str, Any]) -> None:
        """Do to the records what a row says."""
        if row["headers"].get("control") == "reset":
            self.records.clear()
        elif row["headers"]["operation"] == "delete":
            self.records.pop(row["key"], None)
        else:
            self.records[row["key"]] = row["value"]


@rule("polling-1")
async def test_the_beginning_is_a_snapshot() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "v": 1}, {"k": 2, "v": 1}, {"k": 1, "v": 2})
        poller = Poller(running)
        answer = await poller.poll()
        assert answer.headers["stream-up-to-date"] == "true"
        assert answer.headers["content-type"] == "application/json"
        assert poller.rows == [
            {
                "type": "px",
                "key": "[2]",
                "value": {"k": 2, "v": 1},
                "headers": {"operation": "insert"},
            },
            {
                "type": "px",
                "key": "[1]",
                "value": {"k": 1, "v": 2},
                "headers": {"operation": "insert"},
            },
        ]


@rule("polling-2")
async def test_a_flush_answers_who_waits() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "v": 1}, {"k": 2, "v": 1})
        poller = Poller(running, options="conflation=2s")
        await poller.poll()
        began = asyncio.get_running_loop().time()
        waiting = asyncio.create_task(poller.poll("long-poll"))
        await asyncio.sleep(0.1)
        await running.publish({"k": 1, "v": 2}, {"k": 3, "v": 1})
        await running.publish({"k": 1, "v": 3})
        await waiting
        assert 2.0 <= asyncio.get_running_loop().time() - began < 2.3
        told = [(row["key"], row["headers"]["operation"], row["value"]) for row in poller.rows]
        assert told == [("[3]", "insert", {"k": 3, "v": 1}), ("[1]", "update", {"k": 1, "v": 3})]


@rule("polling-5")
async def test_nothing_new_is_204_after_20_seconds() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        poller = Poller(running)
        await poller.poll()
        before = poller.offset
        began = asyncio.get_running_loop().time()
        answer = await poller.poll("long-poll")
        assert answer.status_code == 204
        assert poller.offset == before
        assert 19.9 < asyncio.get_running_loop().time() - began < 20.5
        assert answer.headers["cache-control"] == "public, max-age=1"


@rule("polling-1")
async def test_a_removal_is_a_delete() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1}, {"k": 2})
        poller = Poller(running)
        await poller.poll()
        await running.http.delete("/v1/topics/px/sow", params={"key": "[1]"})
        await poller.poll("long-poll")
        assert poller.rows == [{"type": "px", "key": "[1]", "headers": {"operation": "delete"}}]


@rule("polling-1")
async def test_who_is_behind_gets_each_changed_key_once() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "v": 0}, {"k": 2, "v": 0})
        slow, fast = Poller(running), Poller(running)
        await slow.poll()
        await fast.poll()
        for number in range(1, 4):
            waiting = asyncio.create_task(fast.poll("long-poll"))
            await asyncio.sleep(0.1)
            await running.publish({"k": 1, "v": number})
            await waiting
        await slow.poll()
        assert [row["value"]["v"] for row in slow.rows] == [3]
        assert (slow.records, slow.offset) == (fast.records, fast.offset)


@rule("polling-2")
async def test_between_two_flushes_a_reader_gets_nothing_twice() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "v": 0})
        poller = Poller(running, options="conflation=10s")
        await poller.poll()
        await running.publish({"k": 1, "v": 1})
        for _ in range(5):
            await asyncio.sleep(1)
            await poller.poll()
            assert poller.rows == []
        await asyncio.sleep(6)
        await poller.poll()
        assert [row["value"]["v"] for row in poller.rows] == [1]


@rule("polling-6")
async def test_equal_requests_get_the_same_bytes_and_tag() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        answers = [await running.http.get(STREAM) for _ in range(2)]
        assert answers[0].content == answers[1].content
        tag = answers[0].headers["etag"]
        assert answers[1].headers["etag"] == tag
        assert answers[0].headers["cache-control"] == "public, max-age=1"
        again = await running.http.get(STREAM, headers={"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b"")


async def test_an_answer_may_be_compressed() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": n, "text": "the same again"} for n in range(100)])
        plain = await running.http.get(STREAM, headers={"Accept-Encoding": "identity"})
        for coding in ("gzip", "zstd"):
            coded = await running.http.get(STREAM, headers={"Accept-Encoding": coding})
            assert coded.headers["content-encoding"] == coding
            assert coded.headers["vary"] == "Accept, Accept-Encoding"
            assert coded.headers["etag"] != plain.headers["etag"]
            assert int(coded.headers["content-length"]) < len(plain.content) / 4
            assert coded.json() == plain.json()


@rule("polling-3")
async def test_another_epoch_is_said_and_followed_by_a_snapshot() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1}, {"k": 2})
        poller = Poller(running)
        await poller.poll()
        await running.http.delete("/v1/topics/px")
        await running.topic()
        await running.publish({"k": 3})
        await poller.poll()
        assert poller.rows[0] == {"headers": {"control": "reset"}}
        assert poller.records == {"[3]": {"k": 3}}


@rule("polling-3")
async def test_values_of_another_epoch_are_refused() -> None:
    async with running_gateway() as running:
        await running.topic()
        answer = await running.http.get(STREAM, params={"format": "value", "offset": "other_7"})
        assert (answer.status_code, answer.json()["code"]) == (410, "bookmark-expired")


async def test_a_filter_lets_go_what_stops_to_match() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "v": 5}, {"k": 2, "v": 1})
        poller = Poller(running, filter="/v > 3")
        await poller.poll()
        assert poller.records == {"[1]": {"k": 1, "v": 5}}
        waiting = asyncio.create_task(poller.poll("long-poll"))
        await asyncio.sleep(0.1)
        await running.publish({"k": 1, "v": 2}, {"k": 3, "v": 9})
        await waiting
        assert poller.records == {"[3]": {"k": 3, "v": 9}}


async def test_a_window_is_followed() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": n, "v": n} for n in range(5)])
        poller = Poller(running, options="top_n=2", order_by="/v DESC")
        await poller.poll()
        assert sorted(poller.records) == ["[3]", "[4]"]
        waiting = asyncio.create_task(poller.poll("long-poll"))
        await asyncio.sleep(0.1)
        await running.publish({"k": 0, "v": 10})
        await waiting
        assert sorted(poller.records) == ["[0]", "[4]"]


async def test_selected_fields_are_shown() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "v": 1, "w": 2})
        poller = Poller(running, options="select=[-/,+/k,+/w]")
        await poller.poll()
        assert poller.records == {"[1]": {"k": 1, "w": 2}}


@rule("polling-8")
async def test_a_topic_without_a_key_is_read_as_its_journal() -> None:
    async with running_gateway() as running:
        await running.topic(key=())
        await running.publish({"v": 1}, {"v": 2})
        first = await running.http.get(STREAM)
        assert first.json() == [{"v": 1}, {"v": 2}]
        offset = first.headers["stream-next-offset"]
        asked = {"offset": offset, "live": "long-poll"}
        waiting = asyncio.create_task(running.http.get(STREAM, params=asked))
        await asyncio.sleep(0.1)
        await running.publish({"v": 3})
        assert (await waiting).json() == [{"v": 3}]
        refused = await running.http.get(STREAM, params={"format": "state"})
        assert refused.json()["code"] == "options-invalid"


@rule("polling-4")
async def test_a_long_snapshot_comes_in_pages() -> None:
    async with running_gateway() as running:
        await running.topic()
        for start in range(0, 12_000, 1_000):
            await running.publish(*[{"k": n, "v": 0} for n in range(start, start + 1_000)])
        poller = Poller(running)
        answer = await poller.poll()
        assert "stream-up-to-date" not in answer.headers
        # What changes, comes and leaves meanwhile is told as well.
        await running.publish({"k": 0, "v": 1}, {"k": 11_000, "v": 1}, {"k": 12_000, "v": 1})
        for key in (1, 11_001):
            await running.http.delete("/v1/topics/px/sow", params={"key": f"[{key}]"})
        pages = 1
        while "stream-up-to-date" not in answer.headers:
            answer = await poller.poll()
            pages += 1
        assert pages == 3
        expected = {f"[{n}]": {"k": n, "v": int(n in (0, 11_000, 12_000))} for n in range(12_001)}
        del expected["[1]"], expected["[11001]"]
        assert poller.records == expected


@rule("polling-1")
async def test_now_begins_at_the_end() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        answer = await running.http.get(STREAM, params={"offset": "now"})
        assert (answer.content, answer.headers["cache-control"]) == (b"[]", "no-store")
        head = await running.http.head(STREAM)
        assert head.headers["stream-next-offset"] == answer.headers["stream-next-offset"]
        assert head.content == b""


async def test_who_gets_the_same_flush_gets_the_same_cursor_sooner_or_later() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        asked = {"options": "conflation=10s", "offset": "-1", "live": "long-poll"}
        cursors = set()
        for _ in range(3):
            cursors.add((await running.http.get(STREAM, params=asked)).headers["stream-cursor"])
            await asyncio.sleep(0.3)
        assert len(cursors) == 1


async def test_cursors_rise() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        asked = {"offset": "-1", "live": "long-poll"}
        first = int((await running.http.get(STREAM, params=asked)).headers["stream-cursor"])
        for cursor in (first, first + 10**9):
            answer = await running.http.get(STREAM, params={**asked, "cursor": str(cursor)})
            assert int(answer.headers["stream-cursor"]) > cursor


@rule("polling-9")
async def test_events_last_for_a_minute() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        asked = {"offset": "-1", "live": "sse"}
        began = asyncio.get_running_loop().time()
        events: list[tuple[str, Any]] = []
        name = ""
        async with running.http.stream("GET", STREAM, params=asked) as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            assert answer.headers["cache-control"] == "no-store, no-cache"
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data:"):
                    events.append((name, json.loads(line.removeprefix("data:"))))
                    if len(events) == 2:
                        await running.publish({"k": 2})
        assert [name for name, _ in events] == ["data", "control", "data", "control"]
        assert [row["key"] for row in events[2][1]] == ["[2]"]
        assert events[1][1]["upToDate"] is True
        assert events[1][1]["streamNextOffset"] < events[3][1]["streamNextOffset"]
        assert 59 < asyncio.get_running_loop().time() - began < 61


@pytest.mark.parametrize("pattern", ["px.*", "%3E"])
async def test_a_pattern_is_refused_with_what_to_do_instead(pattern: str) -> None:
    async with running_gateway() as running:
        answer = await running.http.get(f"/v1/topics/{pattern}/stream")
        assert (answer.status_code, answer.json()["code"]) == (400, "topic-invalid")
        assert "or subscribe to it" in answer.json()["detail"]


async def test_rows_and_the_position_behind_them_are_written_at_once() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        asked = {"offset": "-1", "live": "sse"}
        async with running.http.stream("GET", STREAM, params=asked) as answer:
            first = await anext(aiter(answer.aiter_raw()))
        assert [b"event: data\ndata:[{" in first, b"event: control\ndata:{" in first] == [True] * 2


@rule("polling-5")
async def test_who_waits_is_answered_when_the_topic_goes() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        poller = Poller(running)
        await poller.poll()
        waiting = asyncio.create_task(poller.poll("long-poll"))
        await asyncio.sleep(0.1)
        await running.http.delete("/v1/topics/px")
        assert (await waiting).status_code == 204
        assert (await running.http.get(STREAM)).status_code == 404


@rule("polling-7")
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"options": "conflation=auto"}, "options-invalid"),
        ({"options": "conflation=none"}, "options-invalid"),
        ({"options": "pace=key,conflation=1s"}, "options-invalid"),
        ({"options": "conflation=1s,max_age=3s"}, "options-invalid"),
        ({"options": "conflation=1s,conflation_key=[/v]"}, "options-invalid"),
        ({"options": "bookmark=epoch"}, "options-invalid"),
        ({"options": "conflation=1s,reduce=[/v:sum]"}, "options-invalid"),
        ({"options": "nonsense"}, "options-invalid"),
        ({"filter": "/v >"}, "filter-invalid"),
        ({"format": "rows"}, "options-invalid"),
        ({"live": "long-poll"}, "options-invalid"),
        ({"live": "push", "offset": "-1"}, "options-invalid"),
        ({"offset": "7"}, "bookmark-invalid"),
        ({"offset": ""}, "bookmark-invalid"),
        ({"offset": "-1", "cursor": "x"}, "options-invalid"),
        ({"unknown": "1"}, "options-invalid"),
    ],
)
async def test_what_makes_no_sense_is_refused(asked: dict[str, str], code: str) -> None:
    async with running_gateway() as running:
        await running.topic()
        answer = await running.http.get(STREAM, params=asked)
        assert (answer.status_code, answer.json()["code"]) == (400, code)


async def test_a_series_is_its_journal_even_with_a_key() -> None:
    async with running_gateway() as running:
        await running.topic(key=("/k",), type="series")
        values = [{"k": 1, "v": number} for number in range(3)]
        await running.publish(*values)
        assert (await running.http.get(STREAM)).json() == values


@rule("polling-8")
@pytest.mark.parametrize(("own", "asked"), [("", ""), ("oof", ""), ("top_n=1", "oof")])
async def test_a_series_is_all_of_its_values_and_no_removal(own: str, asked: str) -> None:
    async with running_gateway() as running:
        await running.topic(key=("/k",), type="series", options=own)
        values = [{"k": 1, "v": 1}, {"k": 2, "v": 2}, {"k": 2, "v": 3}]
        await running.publish(*values)
        params = {"options": asked} if asked else {}
        first = await running.http.get(STREAM, params=params)
        assert first.json() == values
        await running.http.delete("/v1/topics/px/sow", params={"key": "[2]"})
        params["offset"] = first.headers["stream-next-offset"]
        after = await running.http.get(STREAM, params=params)
        assert after.json() == []
        await running.publish({"k": 3})
        params["offset"] = after.headers["stream-next-offset"]
        assert (await running.http.get(STREAM, params=params)).json() == [{"k": 3}]


@rule("polling-8")
async def test_the_expiry_of_the_newest_message_is_no_message() -> None:
    async with running_gateway() as running:
        await running.topic(key=(), retain=True, expiration="1s")
        await running.publish({"v": 1})
        await asyncio.sleep(3)
        assert (await running.http.get("/v1/topics/px/sow")).text == ""
        assert (await running.http.get(STREAM)).json() == [{"v": 1}]


@rule("polling-7")
@pytest.mark.parametrize("options", ["top_n=1", "projection=[/k],grouping=[/k]"])
async def test_a_journal_has_no_windows_and_no_groups(options: str) -> None:
    async with running_gateway() as running:
        await running.topic(key=("/k",), type="series")
        refused = await running.http.get(STREAM, params={"options": options})
        assert refused.json()["code"] == "options-invalid"
        assert refused.json()["position"] == 0


@rule("polling-6")
async def test_from_now_on_is_another_place_for_each_who_asks() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        await running.http.get(STREAM)
        asked = {"offset": "now", "live": "long-poll"}
        waiting = asyncio.create_task(running.http.get(STREAM, params=asked))
        await asyncio.sleep(0.1)
        await running.publish({"k": 2})
        answer = await waiting
        assert [row["key"] for row in answer.json()] == ["[2]"]
        assert answer.headers["cache-control"] == "no-store"


@rule("polling-1", "polling-3")
@pytest.mark.parametrize("form", ["value", "state"])
@pytest.mark.parametrize("live", ["", "long-poll"])
async def test_a_first_reader_goes_on_from_now(form: str, live: str) -> None:
    """It is the first of a filter, and asks for no snapshot."""
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "v": "B"})
        asked = {"filter": "/v = 'A'", "format": form, "offset": "now"}
        if live:
            asked["live"] = live
            following = asyncio.create_task(running.http.get(STREAM, params=asked))
            await asyncio.sleep(0.1)
            await running.publish({"k": 2, "v": "A"})
            answer = await following
        else:
            end = await running.http.get(STREAM, params=asked)
            await running.publish({"k": 2, "v": "A"})
            asked |= {"offset": end.headers["stream-next-offset"], "live": "long-poll"}
            answer = await running.http.get(STREAM, params=asked)
        assert answer.status_code == 200
        rows = [row.get("value", row) for row in answer.json()]
        assert rows == [{"k": 2, "v": "A"}]


async def test_sessions_and_lanes_of_readers_who_do_not_ask_go_to_others() -> None:
    limits = {"sessions_max": 2, "lanes_max": 2, "subscriptions_max": 2}
    async with running_gateway(**limits) as running:
        await running.topic()
        await running.publish({"k": 1})
        for seconds in (1, 2):
            options = {"options": f"conflation={seconds}s"}
            assert (await running.http.get(STREAM, params=options)).is_success
        async with (
            running.subscribe("conflation=3s") as one,
            running.subscribe("conflation=4s") as other,
        ):
            assert (await one.next()).name == "group_begin"
            assert (await other.next()).name == "group_begin"
            assert len(running.gateway.polled) == 0


@rule("polling-3")
async def test_who_waits_for_rare_messages_is_never_behind_the_journal() -> None:
    """Of more than the journal keeps, none was for it."""
    async with running_gateway() as running:
        await running.topic(key=(), history={"messages": 20_000})
        asked = {"filter": "/v = 1", "offset": "-1", "live": "long-poll"}
        first = await running.http.get(STREAM, params=asked)
        asked["offset"] = first.headers["stream-next-offset"]
        waiting = asyncio.create_task(running.http.get(STREAM, params=asked))
        for _ in range(6):
            await asyncio.sleep(1)
            for _ in range(3):
                await running.publish(*[{"v": 0}] * 4_000)
        await running.publish({"v": 1})
        answer = await waiting
        for _ in range(3):  # parts, of which only the last one has a row
            assert answer.status_code == 200
            if answer.json():
                break
            asked["offset"] = answer.headers["stream-next-offset"]
            answer = await running.http.get(STREAM, params=asked)
        assert answer.json() == [{"v": 1}]


@pytest.mark.parametrize("live", ["sse", "long-poll"])
async def test_a_page_of_another_site_waits_for_nothing(live: str) -> None:
    async with running_gateway() as running:
        await running.topic()
        for field in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            asked = {"offset": "-1", "live": live}
            answer = await running.http.get(STREAM, params=asked, headers=field)
            assert (answer.status_code, answer.json()["code"]) == (403, "origin-not-allowed")


async def test_a_stream_that_nobody_reads_is_closed() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        await Poller(running).poll()
        polled = running.gateway.polled
        assert len(polled) == 1
        await asyncio.sleep(200)
        assert len(polled) == 0


async def test_different_streams_are_lanes_of_which_there_may_be_so_many() -> None:
    async with running_gateway(lanes_max=2) as running:
        await running.topic()

        async def ask(seconds: int, **more: str) -> httpx2.Response:
            asked = {"options": f"conflation={seconds}s", **more}
            return await running.http.get(STREAM, params=asked)

        waiting = [
            asyncio.create_task(ask(seconds, offset="now", live="long-poll")) for seconds in (1, 2)
        ]
        await asyncio.sleep(0.1)
        refused = await ask(3)
        assert (refused.status_code, refused.json()["code"]) == (429, "limit-reached")
        await asyncio.gather(*waiting)
        assert (await ask(3)).is_success  # in place of one at which nobody waits any more
        assert len(running.gateway.polled) == 2


@rule("polling-5", "polling-6")
async def test_a_subject_is_asked_for_its_token_again_soon(tmp_path: Path) -> None:
    reader = token_of("ann", "read prices.>")
    path = "/v1/topics/prices.eu/stream"
    async with guarded(tmp_path) as running:
        first = await running.http.get(path, headers=reader)
        assert first.headers["cache-control"] == "private, max-age=1"
        assert "Authorization" in first.headers["vary"]
        began = asyncio.get_running_loop().time()
        asked = {"offset": first.headers["stream-next-offset"], "live": "long-poll"}
        assert (await running.http.get(path, params=asked, headers=reader)).status_code == 204
        assert asyncio.get_running_loop().time() - began < 4.5
        assert (await running.http.get(path)).status_code == 401
        other = token_of("bob", "read other.>")
        assert (await running.http.get(path, headers=other)).status_code == 403


@rule("polling-9", "access-9")
async def test_events_with_a_token_end_soon_whatever_comes(tmp_path: Path) -> None:
    reader = token_of("ann", "read prices.>")
    path = "/v1/topics/prices.eu/"
    asked = {"offset": "now", "live": "sse", "options": "conflation=200ms"}
    async with guarded(tmp_path) as running:

        async def publish() -> None:
            for number in range(300):
                await running.http.post(f"{path}messages", json={"k": number}, headers=ROOT)
                await asyncio.sleep(0.2)

        publishing = asyncio.create_task(publish())
        began = asyncio.get_running_loop().time()
        async with running.http.stream(
            "GET", f"{path}stream", params=asked, headers=reader
        ) as answer:
            lines = [line async for line in answer.aiter_lines()]
        assert asyncio.get_running_loop().time() - began < 5
        assert sum(line == "event: data" for line in lines) > 5
        publishing.cancel()


async def test_rows_and_fields_that_are_hidden_are_in_no_answer(tmp_path: Path) -> None:
    rows = token_of("fay", grant("read prices.>", filter="/desk = 'a'", select="[-/,+/k]"))
    async with guarded(tmp_path) as running:
        lines = '{"k": 1, "desk": "a", "v": 7}\n{"k": 2, "desk": "b", "v": 7}'
        headers = {**ROOT, "Content-Type": "application/x-ndjson"}
        await running.http.post("/v1/topics/prices.eu/messages", content=lines, headers=headers)
        answer = await running.http.get("/v1/topics/prices.eu/stream", headers=rows)
        assert [row["value"] for row in answer.json()] == [{"k": "canary"}, {"k": 1}]
        lines = '{"k": 1, "desk": "b", "v": 8}'
        await running.http.post("/v1/topics/prices.eu/messages", content=lines, headers=headers)
        asked = {"offset": answer.headers["stream-next-offset"], "live": "long-poll"}
        answer = await running.http.get("/v1/topics/prices.eu/stream", params=asked, headers=rows)
        assert answer.json() == [
            {"type": "prices.eu", "key": "[1]", "headers": {"operation": "delete"}}
        ]


async def test_who_takes_nothing_has_no_long_answer_kept_for_it() -> None:
    """A page of 1 MiB for each of thousands of connections would be all memory there is."""
    count, grown_max = 20, 512 << 10
    async with running_gateway(write_timeout="1h") as running, contextlib.AsyncExitStack() as stack:
        await running.topic()
        await running.publish(*[{"k": key, "v": "x" * 500} for key in range(2_000)])
        await running.http.get(STREAM)
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(count):
            wire = await stack.enter_async_context(connected(running.address))
            wire.freeze()
            await wire.send(f"GET {STREAM} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await asyncio.sleep(1)
        assert (tracemalloc.get_traced_memory()[0] - before) / count < grown_max


@rule("polling-5")
async def test_204_leads_past_what_was_not_for_the_reader() -> None:
    """A reader that stays behind is refused once removals are forgotten, and has missed nothing."""
    async with running_gateway() as running:
        await running.topic(history={"messages": 10})
        await running.publish(*[{"k": number} for number in range(30)])
        asked = {"format": "value", "live": "long-poll"}
        end = {"format": "value"}
        asked["offset"] = (await running.http.head(STREAM, params=end)).headers[
            "stream-next-offset"
        ]
        waiting = asyncio.create_task(running.http.get(STREAM, params=asked))
        for number in range(15):
            await asyncio.sleep(1)
            await running.http.delete("/v1/topics/px/sow", params={"key": f"[{number}]"})
        answer = await waiting
        assert (answer.status_code, answer.headers["stream-up-to-date"]) == (204, "true")
        head = await running.http.head(STREAM, params=end)
        assert answer.headers["stream-next-offset"] == head.headers["stream-next-offset"]


@pytest.mark.parametrize(
    ("key", "asked"), [((), {"filter": "/v = 1"}), (("/k",), {"format": "value"})]
)
@rule("polling-4")
async def test_who_waits_gets_past_parts_without_a_row(key: tuple[str, ...], asked: Any) -> None:
    """Of 12,000 messages or removals none is a row: what follows them is."""
    async with running_gateway() as running:
        await running.topic(key=key)
        asked = {**asked, "live": "long-poll"}
        for start in range(0, 12_000, 4_000):
            await running.publish(*[{"k": start + n, "v": 0} for n in range(4_000)])
        if key:
            head = await running.http.head(STREAM, params={"format": "value"})
            offset = head.headers["stream-next-offset"]
            await running.http.delete("/v1/topics/px/sow", params={"filter": "/v = 0"})
        else:
            answer = await running.http.get(STREAM, params={**asked, "offset": "-1"})
            offset = answer.headers["stream-next-offset"]
        await running.publish({"k": 1, "v": 1})
        await asyncio.sleep(2)
        rows: list[Any] = []
        for _ in range(4):
            answer = await running.http.get(STREAM, params={**asked, "offset": offset})
            assert answer.status_code == 200
            rows += answer.json()
            offset = answer.headers["stream-next-offset"]
            if "stream-up-to-date" in answer.headers:
                break
        assert rows == [{"k": 1, "v": 1}]


@rule("polling-4")
async def test_who_has_read_parts_learns_at_once_that_it_is_at_the_end() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": n} for n in range(5_000)])
        poller = Poller(running)
        assert "stream-up-to-date" not in (await poller.poll()).headers
        began = asyncio.get_running_loop().time()
        answer = await poller.poll("long-poll")
        assert (answer.status_code, answer.headers["stream-up-to-date"]) == (200, "true")
        assert asyncio.get_running_loop().time() - began < 1


@contextlib.asynccontextmanager
async def waiting_reader(running: Running) -> AsyncIterator[None]:
    """A client that waits at the end of a stream, and leaves."""
    polled = running.gateway.polled
    target = "/v1/topics/prices.eu/stream?offset=now&live=long-poll"
    fields = "".join(f"{name}: {value}\r\n" for name, value in ROOT.items())
    async with connected(running.address) as wire:
        await wire.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode())
        await eventually(lambda: polled.positions == 1, "it waits")
        yield
    await eventually(lambda: polled.positions == 0, "it is forgotten")


@rule("polling-5")
@pytest.mark.parametrize("is_guarded", [False, True])
@pytest.mark.parametrize("is_hot", [False, True])
async def test_nothing_is_kept_of_clients_that_leave(
    is_guarded: bool, is_hot: bool, tmp_path: Path
) -> None:
    """Of one that the application serves, such as one with a cookie, the task ends as well."""
    async with contextlib.AsyncExitStack() as stack:
        gateway = guarded(tmp_path) if is_guarded else running_gateway()
        running = await stack.enter_async_context(gateway)
        if not is_guarded:
            await running.topic("prices.eu")
        app: Any = running.server.config.app
        if not is_hot:
            app.state.hot_path.kind_of = lambda exchange: None
        began, tasks = asyncio.get_running_loop().time(), len(asyncio.all_tasks())
        for _ in range(3):
            async with waiting_reader(running):
                assert is_hot == (len(asyncio.all_tasks()) == tasks)
            await eventually(lambda: len(asyncio.all_tasks()) == tasks, "its tasks have ended")
        assert asyncio.get_running_loop().time() - began < 2


@rule("connection-1", "polling-5")
@pytest.mark.parametrize("is_hot", [False, True])
@pytest.mark.parametrize("is_early", [False, True])
async def test_who_closes_its_side_while_it_waits_is_answered(is_hot: bool, is_early: bool) -> None:
    """In HTTP a half-closed connection does not say that its client wants no answer."""
    async with running_gateway() as running:
        await running.topic()
        app: Any = running.server.config.app
        if not is_hot:
            app.state.hot_path.kind_of = lambda exchange: None
        end = (await running.http.head(STREAM)).headers["stream-next-offset"]
        polled = running.gateway.polled
        async with connected(running.address) as wire:
            target = f"{STREAM}?live=long-poll&offset={end}"
            await wire.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            if not is_early:
                await eventually(lambda: polled.positions == 1, "it waits")
            wire.writer.write_eof()
            began = asyncio.get_running_loop().time()
            answer = await wire.read_answer()
            assert (answer.status, answer.headers["stream-next-offset"]) == (204, end)
            assert await wire.read_to_end() == b""
        assert asyncio.get_running_loop().time() - began < 2
        assert polled.positions == 0


@pytest.mark.parametrize("is_lost", [False, True])
async def test_for_a_client_that_left_before_the_wait_nothing_waits(
    is_lost: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_gateway() as running:
        await running.topic()
        app: Any = running.server.config.app
        app.state.hot_path.kind_of = lambda exchange: None
        tasks, connections = len(asyncio.all_tasks()), running.server.server_state.connections
        others = set(connections)
        began, has_left = asyncio.Event(), asyncio.Event()

        async def seek(name: str) -> None:
            began.set()
            await has_left.wait()

        monkeypatch.setattr(running.gateway.catalog, "seek", seek)
        async with connected(running.address) as wire:
            target = f"{STREAM}?live=long-poll&offset=now"
            await wire.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            async with asyncio.timeout(HANGS_S):
                await began.wait()
            if is_lost:
                [connection] = connections - others
                connection.transport.abort()
                await eventually(lambda: connection not in connections, "the gateway knows")
        has_left.set()
        began_s = asyncio.get_running_loop().time()
        await eventually(lambda: len(asyncio.all_tasks()) == tasks, "its task has ended")
        assert asyncio.get_running_loop().time() - began_s < 2
        assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.redis
@rule("polling-5")
async def test_on_redis_too_a_poll_ends_with_its_client(redis_bus: BusServer) -> None:
    shared = {"redis": redis_bus.url, "redis_prefix": f"polled-test-{os.getpid()}"}
    async with running_gateway(**shared) as running:
        await running.topic("prices.eu")
        await running.publish({"k": 1}, topic="prices.eu")
        began = asyncio.get_running_loop().time()
        async with waiting_reader(running):
            pass
        assert asyncio.get_running_loop().time() - began < 10


async def test_with_a_token_the_answer_is_that_of_the_application(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        app: Any = running.server.config.app
        hot_path = app.state.hot_path
        kind_of, answers = hot_path.kind_of, list[Any]()
        rows = token_of("fay", grant("read prices.>", filter="/desk = 'a'"))
        for kind in (kind_of, lambda exchange: None):
            hot_path.kind_of = kind
            for headers in (rows, ROOT, token_of("bob", "read other.>"), {}):
                answer = await running.http.get("/v1/topics/prices.eu/stream", headers=headers)
                fields = [field for field in answer.headers.raw if field[0] != b"date"]
                answers.append((answer.status_code, fields, answer.content))
        assert answers[:4] == answers[4:]
        assert [status for status, _, _ in answers[:4]] == [200, 200, 403, 401]


@rule("polling-8")
async def test_who_keeps_asking_for_rare_messages_is_never_behind_the_journal() -> None:
    async with running_gateway() as running:
        await running.topic(key=(), history={"messages": 20})
        asked = {"filter": "/v = 1", "offset": "now"}
        rows: list[Any] = []
        for number in range(40):
            answer = await running.http.get(STREAM, params=asked)
            assert answer.status_code == 200
            rows += answer.json()
            asked["offset"] = answer.headers["stream-next-offset"]
            await running.publish(*[{"v": 0}] * 10)
            if number % 10 == 9:
                await running.publish({"v": 1, "n": number}, {"v": 0})
            await asyncio.sleep(1)
        rows += (await running.http.get(STREAM, params=asked)).json()
        assert rows == [{"v": 1, "n": number} for number in (9, 19, 29, 39)]


async def test_head_is_the_end_whatever_the_position() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        poller = Poller(running)
        await poller.poll()
        await running.publish({"k": 2})
        head = await running.http.head(STREAM, params={"offset": poller.offset})
        assert head.headers["stream-next-offset"] > poller.offset


@rule("polling-6")
async def test_other_options_of_the_topic_are_another_tag() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "v": 1})
        tag = (await running.http.get(STREAM)).headers["etag"]
        weak = await running.http.get(STREAM, headers={"If-None-Match": f'"x", W/{tag}'})
        assert weak.status_code == 304
        suffixed = tag.removesuffix('"') + '-gzip"'  # by Apache
        again = await running.http.get(STREAM, headers={"If-None-Match": suffixed})
        assert again.status_code == 304
        some = await running.http.get(STREAM, headers={"If-None-Match": "*"})
        assert (some.status_code, some.headers["etag"]) == (304, tag)
        await running.topic(options="select=[-/v]")
        answer = await running.http.get(STREAM, headers={"If-None-Match": tag})
        assert answer.status_code == 200
        assert [row["value"] for row in answer.json()] == [{"k": 1}]


@rule("polling-8")
@pytest.mark.parametrize("retain", [False, True])
async def test_a_journal_has_an_interval(retain: bool) -> None:
    async with running_gateway() as running:
        await running.topic(key=(), retain=retain)
        await running.publish({"k": 1}, {"k": 2})
        asked = {"options": "conflation=5s", "offset": "-1", "live": "long-poll"}
        first = await running.http.get(STREAM, params=asked)
        assert first.json() == [{"k": 1}, {"k": 2}]
        assert first.headers["cache-control"] == "public, max-age=5"
        began = asyncio.get_running_loop().time()
        asked["offset"] = first.headers["stream-next-offset"]
        waiting = asyncio.create_task(running.http.get(STREAM, params=asked))
        await asyncio.sleep(0.1)
        await running.publish({"k": 3})
        await running.publish({"k": 3})
        assert (await waiting).json() == [{"k": 3}, {"k": 3}]
        assert asyncio.get_running_loop().time() - began > 4


async def test_positions_that_somebody_makes_up_take_no_more_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(polled, "KEPT_BYTES_MAX", 10 << 10)
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": n} for n in range(50)])
        asked = {"filter": "/k < 0", "options": "conflation=1h"}
        place = (await running.http.get(STREAM, params=asked)).headers["stream-next-offset"]
        epoch = place.partition("_")[0]
        for offset in range(49):
            await running.http.get(STREAM, params={**asked, "offset": f"{epoch}_{offset}_0"})
        (stream,) = running.gateway.polled._streams.values()
        assert 1 < len(stream._pages) <= 10


async def test_a_stream_that_is_closed_under_a_reader_is_no_topic_that_is_gone() -> None:
    """A client of the protocol ends for good where it is told 404."""
    async with running_gateway() as running:
        await running.topic()
        await running.http.get(STREAM)
        polled = running.gateway.polled
        stream = polled.stream(polled.granted("px", PollTexts(), None), None)
        stream.close()
        with pytest.raises(Refused, match="not-ready"):
            await stream.page(None)
        assert (await running.http.get(STREAM)).is_success
        await running.http.delete("/v1/topics/px")
        with pytest.raises(Refused, match="topic-unknown"):
            await stream.page(None)


@rule("polling-3")
async def test_other_options_of_the_topic_are_told_to_who_is_at_the_end() -> None:
    """No record has changed, and all of them are others."""
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "v": 1}, {"k": 2, "v": 2})
        poller = Poller(running)
        await poller.poll()
        values = {"format": "value", "offset": "-1"}
        answer = await running.http.get(STREAM, params=values)
        values["offset"] = answer.headers["stream-next-offset"]
        await running.topic(options="select=[-/v]")
        began = asyncio.get_running_loop().time()
        await poller.poll("long-poll")
        assert asyncio.get_running_loop().time() - began < 1
        assert poller.rows[0] == {"headers": {"control": "reset"}}
        assert poller.records == {"[1]": {"k": 1}, "[2]": {"k": 2}}
        await poller.poll()
        assert poller.rows == []
        refused = await running.http.get(STREAM, params=values)
        assert (refused.status_code, refused.json()["code"]) == (410, "bookmark-expired")


@rule("polling-3")
@pytest.mark.parametrize("key", [["/k"], []])
async def test_other_grants_are_told_to_who_is_at_the_end(tmp_path: Path, key: list[str]) -> None:
    path = "/v1/topics/prices.desks"
    async with guarded(tmp_path) as running:
        await running.http.put(path, json={"key": key}, headers=ROOT)
        for row in ({"k": 1, "desk": "a"}, {"k": 2, "desk": "b"}):
            await running.http.post(f"{path}/messages", json=row, headers=ROOT)
        one, other = (
            token_of("fay", grant("read prices.>", filter=f"/desk = '{desk}'")) for desk in "ab"
        )
        first = await running.http.get(f"{path}/stream", headers=one)
        asked = {"offset": first.headers["stream-next-offset"], "live": "long-poll"}
        answer = await running.http.get(f"{path}/stream", params=asked, headers=other)
        if key:
            reset, row = answer.json()
            assert reset == {"headers": {"control": "reset"}}
            assert row["value"] == {"k": 2, "desk": "b"}
        else:
            assert (answer.status_code, answer.json()["code"]) == (410, "bookmark-expired")
        again = await running.http.get(f"{path}/stream", params=asked, headers=one)
        assert again.status_code == 204


@rule("polling-3")
async def test_who_goes_on_from_a_bookmark_is_told_of_other_options_from_there_on() -> None:
    async with running_gateway() as running:
        await running.topic()
        published = await running.publish({"k": 1, "v": 1})
        poller = Poller(running)
        poller.offset = published["last"]
        await poller.poll()
        assert poller.rows == []
        await running.topic(options="select=[-/v]")
        await poller.poll()
        assert poller.records == {"[1]": {"k": 1}}


@rule("polling-3", "resume-6")
@pytest.mark.parametrize("live", ["", "long-poll"])
async def test_who_goes_on_from_a_bookmark_is_told_of_all_removals_since(live: str) -> None:
    """A reader of events may have got rows from behind its last id."""
    async with running_gateway() as running:
        await running.topic()
        poller = Poller(running)
        poller.offset = (await running.publish({"k": 1}))["last"]
        await running.publish({"k": 2})
        poller.records = {"[1]": {"k": 1}, "[2]": {"k": 2}}
        await running.http.delete("/v1/topics/px/sow", params={"key": "[2]"})
        await poller.poll(live)
        assert poller.records == {"[1]": {"k": 1}}
        await poller.poll()
        assert poller.rows == []


@rule("polling-3", "polling-4", "cluster-16")
@pytest.mark.parametrize("left", [3, 4])
async def test_a_snapshot_in_parts_goes_on_where_an_epoch_continues_all_that_it_left_out(
    monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    monkeypatch.setattr(polled_pages, "ROWS_AT_ONCE", 2)
    async with running_gateway() as running:
        gateway = running.gateway
        await running.topic()
        await running.publish({"k": 1}, {"k": 2}, {"k": 3}, {"k": 4})
        poller = Poller(running)
        await poller.poll()
        topic = gateway.driver.engine.topic("px")
        frames = topic.journal.after(0, until=left)
        kept = RestoredTopic(left, frames, journal=frames, former={topic.epoch: left})
        gateway.catalog.renew(TopicRecord("px", gateway.catalog.get("px").document, "e2"), kept)
        removal, news = Tombstone(left + 1, b"", "[1]"), Frame(left + 2, b'{"k": 5}', "[5]")
        await gateway.driver.publish("px", [removal, news])
        await poller.poll()
        assert (poller.rows[0]["headers"].get("control") == "reset") == (left < 4)
        while (await poller.poll()).headers.get("stream-up-to-date") != "true":
            pass
        assert poller.records == {json.dumps([row["k"]]): row for row in await running.sow()}


@rule("polling-3", "cluster-16")
async def test_who_goes_on_from_a_bookmark_of_another_epoch_begins_again() -> None:
    """A reader of events may have got rows from behind its last id, which are lost."""
    async with running_gateway() as running:
        gateway = running.gateway
        await running.topic()
        bookmark, ahead = Poller(running), Poller(running)
        bookmark.offset = (await running.publish({"k": 1}))["last"]
        await ahead.poll()
        bookmark.records = {"[1]": {"k": 1}, "[2]": {"k": 2}}
        epoch = gateway.driver.engine.topic("px").epoch
        record = TopicRecord("px", gateway.catalog.get("px").document, "e2")
        gateway.catalog.renew(record, RestoredTopic(former={epoch: 1}))
        for poller in (bookmark, ahead):
            await poller.poll()
            assert poller.records == {"[1]": {"k": 1}}
        assert ahead.rows == []


@rule("polling-3")
async def test_another_interval_reads_the_same_rows() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "v": 1})
        poller = Poller(running, options="conflation=1s")
        await poller.poll()
        poller.asked = {"options": "conflation=5s"}
        await poller.poll()
        assert poller.rows == []


ROWS_OF = {"format": "value"}
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"


@rule("polling-10")
async def test_rows_come_in_the_format_that_accept_asks_for() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1, "v": "a"}, {"k": 2, "v": "b,c"})
        plain = await running.http.get(STREAM, params=ROWS_OF)
        tags = {plain.headers["etag"]}
        for accept in ("application/x-ndjson", CSV, ARROW):
            answer = await running.http.get(STREAM, params=ROWS_OF, headers={"Accept": accept})
            assert answer.status_code == 200, answer.text
            assert answer.headers["content-type"].startswith(accept)
            for name in ("stream-next-offset", "stream-up-to-date", "cache-control", "vary"):
                assert answer.headers[name] == plain.headers[name]
            assert answer.headers["vary"] == "Accept, Accept-Encoding"
            tags.add(answer.headers["etag"])
            if accept == CSV:
                assert answer.text == '"k","v"\r\n1,"a"\r\n2,"b,c"\r\n'
            elif accept == ARROW:
                with pa.ipc.open_stream(answer.content) as reader:
                    assert reader.read_all().to_pylist() == plain.json()
            else:
                assert [json.loads(line) for line in answer.text.splitlines()] == plain.json()
            asked = {**ROWS_OF, "offset": answer.headers["stream-next-offset"]}
            rest = await running.http.get(STREAM, params=asked, headers={"Accept": accept})
            assert (rest.status_code, rest.headers["stream-up-to-date"]) == (200, "true")
        assert len(tags) == 4
        asked = {"If-None-Match": answer.headers["etag"], "Accept": ARROW}
        assert (await running.http.get(STREAM, params=ROWS_OF, headers=asked)).status_code == 304


@rule("polling-10")
async def test_changes_come_as_lines_too() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1}, {"k": 2})
        plain = (await running.http.get(STREAM)).json()
        lines = await running.http.get(STREAM, headers={"Accept": "application/x-ndjson"})
        assert running.gateway.polled.counts.requests == 2
        assert [json.loads(line) for line in lines.text.splitlines()] == plain


@rule("polling-10")
async def test_a_long_answer_in_another_format_is_compressed_too() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": n, "text": "the same again"} for n in range(100)])
        headers = {"Accept": CSV, "Accept-Encoding": "gzip"}
        answer = await running.http.get(STREAM, params=ROWS_OF, headers=headers)
        assert answer.headers["content-encoding"] == "gzip"
        assert len(answer.text.splitlines()) == 101


@rule("polling-10")
@pytest.mark.parametrize(
    ("asked", "accept"),
    [
        ({}, CSV),
        ({}, ARROW),
        ({**ROWS_OF, "offset": "now", "live": "long-poll"}, CSV),
        ({"offset": "-1", "live": "long-poll"}, "application/x-ndjson"),
        ({"offset": "-1", "live": "sse"}, "application/json"),
        (ROWS_OF, "text/html"),
    ],
)
async def test_a_format_that_makes_no_sense_is_refused(asked: dict[str, str], accept: str) -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        answer = await running.http.get(STREAM, params=asked, headers={"Accept": accept})
        assert (answer.status_code, answer.json()["code"]) == (406, "not-acceptable")
        assert len(running.gateway.polled) == 0
        either = f"{accept}, application/json;q=0.1, text/event-stream;q=0.1"
        asked = {**asked, "offset": asked.get("offset", "-1").replace("now", "-1")}
        if asked.get("live") != "sse":
            answer = await running.http.get(STREAM, params=asked, headers={"Accept": either})
            assert answer.headers["content-type"] == "application/json"
