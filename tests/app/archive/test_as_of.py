"""The state of the world as of a past time, held against all that was ever published."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.app.archive.archived import keep
from tests.support.gateways import Running, running_gateway
from tests.support.rules import rule
from tidegate.app.archive.as_of import time_of
from tidegate.app.refusals import Refused
from tidegate.app.topics.registry import CatalogTopic
from tidegate.conflation.frame import RestoredTopic
from tidegate.keys.archived import Part
from tidegate.pipeline.archive.folder import TopicFolder, compact

NOON_MS = 1_795_262_400_000
STEPS = 40
CHANCE = 7


class Chronicle:
    """What was published, and what the world looked like after each step."""

    def __init__(self, running: Running) -> None:
        self.now_ms = NOON_MS
        self.states: list[tuple[int, dict[str, Any]]] = [(0, {})]
        self._running = running
        running.gateway.driver.wall_ms = lambda: self.now_ms

    async def publish(self, name: str, n: int) -> None:
        await self._running.publish({"k": name, "n": n})
        self._note({**self.states[-1][1], name: n})

    async def remove(self, name: str) -> None:
        await self._running.http.delete("/v1/topics/px/sow", params={"key": f'["{name}"]'})
        state = dict(self.states[-1][1])
        state.pop(name, None)
        self._note(state)

    def at(self, time_ms: int) -> dict[str, Any]:
        return [state for at_ms, state in self.states if at_ms <= time_ms][-1]

    def _note(self, state: dict[str, Any]) -> None:
        self.states.append((self.now_ms, state))


async def as_of(running: Running, time: object, **params: str) -> dict[str, Any] | str:
    """The records by name, or the code of a refusal."""
    asked = {"as_of": str(time), **params}
    answer = await running.http.get("/v1/topics/px/sow", params=asked)
    if answer.status_code != 200:
        code: str = answer.json()["code"]
        return code
    records = [json.loads(line) for line in answer.text.splitlines()]
    return {record["k"]: record["n"] for record in records}


@asynccontextmanager
async def shown(
    folder: Path | None, messages: int, *, seed: int = CHANCE
) -> AsyncIterator[tuple[Running, Chronicle]]:
    """A topic with so long a journal, some changes of few keys, a step every second."""
    chance = random.Random(seed)
    given = {} if folder is None else {"archive": str(folder)}
    async with running_gateway(**given) as running:
        await running.topic(history={"messages": messages})
        chronicle = Chronicle(running)
        for n in range(STEPS):
            chronicle.now_ms += 1_000
            name = chance.choice("abcdefgh")
            if name in chronicle.states[-1][1] and chance.random() < 0.3:
                await chronicle.remove(name)
            else:
                await chronicle.publish(name, n)
            if folder is not None and n % 3 == 2 and n < STEPS - 5:
                await keep(running, folder)
        yield running, chronicle


TIMES = [NOON_MS + 500 * at for at in range(1, 2 * STEPS + 4, 5)]


@rule("archive-6")
async def test_a_whole_journal_answers_for_every_time() -> None:
    async with shown(None, 1_000) as (running, chronicle):
        for time_ms in TIMES:
            assert await as_of(running, time_ms) == chronicle.at(time_ms)


@rule("archive-6")
@pytest.mark.parametrize("compacted", [False, True])
async def test_journal_and_archive_together_tell_of_every_time(
    tmp_path: Path, compacted: bool
) -> None:
    """From the archive alone, from both, from the journal."""
    async with shown(tmp_path, 12) as (running, chronicle):
        if compacted:
            assert compact(TopicFolder(tmp_path, "px")) > 0
        for time_ms in TIMES:
            assert await as_of(running, time_ms) == chronicle.at(time_ms)


@rule("archive-6")
async def test_a_topic_that_is_read_again_from_the_bus_meanwhile_answers_anew() -> None:
    async with shown(None, 1_000) as (running, chronicle):
        gateway = running.gateway
        time_ms = NOON_MS + 500
        assert await as_of(running, time_ms) == chronicle.at(time_ms)

        async def read_again(entry: CatalogTopic, time_ms: int) -> None:
            gateway.catalog.renew(entry.record, RestoredTopic())

        with mock.patch.object(gateway.writer, "close_past", read_again):
            assert await as_of(running, time_ms) == {}


@rule("archive-6")
async def test_without_an_archive_an_unknown_time_is_refused() -> None:
    """Either exactly or not at all."""
    async with shown(None, 12) as (running, chronicle):
        found = [(time_ms, await as_of(running, time_ms)) for time_ms in TIMES]
        answered = {time_ms for time_ms, state in found if state != "bookmark-expired"}
        assert TIMES[-1] in answered
        assert TIMES[0] not in answered
        for time_ms, state in found:
            assert state in (chronicle.at(time_ms), "bookmark-expired")


@rule("archive-6")
async def test_an_archive_that_does_not_reach_back_is_refused_too(tmp_path: Path) -> None:
    async with shown(tmp_path, 12) as (running, chronicle):
        folder = TopicFolder(tmp_path, "px")
        folder.file(folder.parts()[0]).unlink()
        for time_ms in TIMES:
            assert await as_of(running, time_ms) in (chronicle.at(time_ms), "bookmark-expired")
        assert await as_of(running, NOON_MS + 20_000) == "bookmark-expired"
        assert await as_of(running, NOON_MS - 1) == "bookmark-expired"
        folder.file(folder.parts()[3]).write_bytes(b"PAR1 no PAR1")
        assert await as_of(running, NOON_MS + 20_000) == "bookmark-expired"


@rule("archive-6")
async def test_an_archive_that_ends_before_the_journal_begins_leaves_a_hole(tmp_path: Path) -> None:
    async with shown(tmp_path, 12) as (running, chronicle):
        for n in range(20):
            chronicle.now_ms += 1_000
            await chronicle.publish("z", n)
        lost_ms = NOON_MS + 1_000 * (STEPS + 2)
        assert await as_of(running, lost_ms) == "bookmark-expired"
        assert await as_of(running, NOON_MS + 20_000) == chronicle.at(NOON_MS + 20_000)
        assert await as_of(running, chronicle.now_ms) == chronicle.at(chronicle.now_ms)


@rule("archive-6")
async def test_a_gap_is_refused_whatever_another_epoch_has_there(tmp_path: Path) -> None:
    """The epoch before has a file that begins where the hole of this one does."""
    async with running_gateway(archive=str(tmp_path)) as running:
        chronicle = Chronicle(running)
        for kept in (4, 3):
            await running.topic(history={"messages": 2})
            for n in range(kept):
                chronicle.now_ms += 1_000
                await running.publish({"k": "abcd"[n], "n": n})
                await keep(running, tmp_path)
            await running.http.delete("/v1/topics/px")
        await running.topic(history={"messages": 2})
        folder = TopicFolder(tmp_path, "px")
        assert [part.first for part in folder.parts()] == [1, 2, 3, 4, 1, 2, 3]
        folder.file(folder.parts()[5]).unlink()
        assert await as_of(running, NOON_MS + 5_500) == "bookmark-expired"
        assert await as_of(running, NOON_MS + 4_500) == {"a": 0, "b": 1, "c": 2, "d": 3}


@rule("archive-1")
async def test_a_file_that_becomes_a_part_of_another_meanwhile_is_found_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule archive-1, for the place and for the state."""
    async with shown(tmp_path, 12) as (running, chronicle):
        archive, folder = running.gateway.archive, TopicFolder(tmp_path, "px")
        assert archive is not None
        listed = archive.parts

        async def parts(name: str) -> dict[Part, Path]:
            found = await listed(name)
            compact(folder)
            return found

        monkeypatch.setattr(archive, "parts", parts)
        assert await as_of(running, NOON_MS + 20_000) == chronicle.at(NOON_MS + 20_000)


async def test_a_damaged_file_that_has_the_time_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with shown(tmp_path, 12) as (running, _):
        folder = TopicFolder(tmp_path, "px")
        damaged = folder.file(folder.parts()[3])
        damaged.write_bytes(b"PAR1 no PAR1")
        assert await as_of(running, NOON_MS + 12_000) == "bookmark-expired"
        assert f"the archive of px cannot be read: {damaged.name}" in caplog.text


@rule("archive-6")
async def test_what_was_before_the_topic_began_again_is_its_epochs(tmp_path: Path) -> None:
    async with shown(tmp_path, 12) as (running, chronicle):
        then_ms, before = NOON_MS + 25_000, chronicle.at(NOON_MS + 25_000)
        epoch = running.gateway.catalog.get("px").record.epoch
        await running.http.delete("/v1/topics/px")
        await running.topic(history={"messages": 2})
        chronicle.now_ms += 5_000
        for n in range(4):
            await running.publish({"k": "new", "n": n})
            await keep(running, tmp_path)
        assert await as_of(running, then_ms) == before
        answer = await running.http.get("/v1/topics/px/sow", params={"as_of": str(then_ms)})
        assert answer.headers["Tidegate-Bookmark"] == f"{epoch}-25"
        assert await as_of(running, chronicle.now_ms) == {"new": 3}


@rule("archive-6")
async def test_a_topic_in_a_new_epoch_with_a_whole_journal_answers_for_before(
    tmp_path: Path,
) -> None:
    """Also while it has no message at all."""
    async with shown(tmp_path, 12) as (running, chronicle):
        then_ms = NOON_MS + 25_000
        await running.http.delete("/v1/topics/px")
        await running.topic()
        chronicle.now_ms += 5_000
        assert await as_of(running, then_ms) == chronicle.at(then_ms)
        await running.publish({"k": "new", "n": 1})
        assert await as_of(running, then_ms) == chronicle.at(then_ms)
        assert await as_of(running, NOON_MS - 1) == {}
        assert await as_of(running, chronicle.now_ms) == {"new": 1}


async def test_a_topic_that_is_not_archived_had_nothing_before_its_first_message(
    tmp_path: Path,
) -> None:
    async with running_gateway(archive=str(tmp_path)) as running:
        await running.topic()
        await running.publish({"k": "a", "n": 1})
        assert await as_of(running, NOON_MS - 10**11) == {}


async def test_a_query_and_a_format_go_with_it() -> None:
    async with shown(None, 1_000) as (running, chronicle):
        then_ms = NOON_MS + 35_000
        state = chronicle.at(then_ms)
        asked = {"filter": "/n > 10", "order_by": "/n DESC", "top_n": "2"}
        expected = sorted((n for n in state.values() if n > 10), reverse=True)[:2]
        found = await as_of(running, "2026-11-21T12:00:35Z", **asked)
        assert isinstance(found, dict)
        assert list(found.values()) == expected
        params = {"as_of": str(then_ms), "format": "envelope"}
        answer = await running.http.get("/v1/topics/px/sow", params=params)
        rows = [json.loads(line) for line in answer.text.splitlines()]
        assert {row["op"] for row in rows} == {"snapshot"}
        assert [int(row["bookmark"].rpartition("-")[2]) for row in rows] == sorted(
            int(row["bookmark"].rpartition("-")[2]) for row in rows
        )


async def test_a_time_to_come_is_the_present_and_another_text_is_refused() -> None:
    async with shown(None, 1_000) as (running, chronicle):
        assert await as_of(running, chronicle.now_ms + 10**9) == chronicle.states[-1][1]
        assert await as_of(running, "yesterday") == "options-invalid"
    async with running_gateway() as running:
        await running.topic(history={"messages": 1})
        assert await as_of(running, NOON_MS) == {}


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [("1795262400000", NOON_MS), ("2026-11-21T12:00:00Z", NOON_MS), ("20261121T1200Z", NOON_MS)],
)
def test_times_are_iso_or_milliseconds(text: str, time_ms: int) -> None:
    assert time_of(text) == time_ms


@pytest.mark.parametrize("text", ["", "now", "-1", "12"])
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(Refused):
        time_of(text)
