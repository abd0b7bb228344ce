"""A gateway with an archive reads there what the journal no longer has, and answers the same."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.app.archive.archived import keep, kept_in_steps
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, Stream, running_gateway
from tests.support.rules import rule
from tidegate.app.archive import parquet
from tidegate.app.archive.archive import Archive, ArchiveLost
from tidegate.app.gateway import Gateway
from tidegate.app.settings.settings import Settings, SettingsInvalid
from tidegate.conflation.definition import Kind
from tidegate.pipeline.archive.folder import TopicFolder, compact

SHORT: dict[str, Any] = {"history": {"messages": 2}}
EIGHT = [{"k": "abc"[n % 3], "n": n} for n in range(1, 9)]


async def read(
    running: Running, start: str, **params: Any
) -> tuple[int, list[dict[str, Any]], str]:
    answer = await running.http.get("/v1/topics/px/messages", params={"from": start, **params})
    if answer.status_code != 200:
        return answer.status_code, [], answer.json()["code"]
    lines = [json.loads(line) for line in answer.text.splitlines()]
    return answer.status_code, lines, answer.headers["Tidegate-Bookmark"]


def epoch_of(running: Running) -> str:
    return running.gateway.catalog.get("px").record.epoch


def numbers(lines: list[dict[str, Any]]) -> list[int]:
    return [line["value"]["n"] for line in lines]


async def heard(stream: Stream, count: int) -> list[int]:
    """Numbers of the next messages, whatever else is sent."""
    found: list[int] = []
    while len(found) < count:
        event = await stream.next()
        if event.name == "message":
            found.append(json.loads(event.text)["n"])
    return found


@rule("archive-5")
async def test_messages_since_a_time_and_the_newest_come_from_the_archive(tmp_path: Path) -> None:
    async with running_gateway(archive=str(tmp_path)) as running:
        await running.topic(**SHORT)
        await kept_in_steps(running, tmp_path, *EIGHT)
        _, whole, _ = await read(running, "epoch")
        for line in whole:
            _, lines, _ = await read(running, str(line["timestamp"]))
            assert lines == [it for it in whole if it["timestamp"] >= line["timestamp"]]
        answer = await running.http.get("/v1/topics/px/messages?last=5")
        assert numbers([json.loads(line) for line in answer.text.splitlines()]) == [4, 5, 6, 7, 8]


@rule("archive-5")
async def test_the_journal_reaches_back_into_the_archive(tmp_path: Path) -> None:
    """In pages of any size, contiguous over the seam."""
    async with running_gateway(archive=str(tmp_path)) as running:
        await running.topic(**SHORT)
        await kept_in_steps(running, tmp_path, *EIGHT)
        epoch = epoch_of(running)
        status, lines, last = await read(running, "epoch")
        assert (status, numbers(lines), last) == (200, list(range(1, 9)), f"{epoch}-8")
        assert [line["bookmark"] for line in lines] == [f"{epoch}-{n}" for n in range(1, 9)]
        assert lines[0].keys() == lines[-1].keys()
        _, lines, last = await read(running, f"{epoch}-2", limit=3)
        assert (numbers(lines), last) == ([3, 4, 5], f"{epoch}-5")
        _, lines, last = await read(running, last, limit=2)
        assert (numbers(lines), last) == ([6, 7], f"{epoch}-7")
        assert (await read(running, f"{epoch}-8"))[1] == []
        assert (await read(running, f"{epoch}-9"))[::2] == (410, "bookmark-expired")
        assert (await read(running, "zz-1"))[::2] == (410, "bookmark-expired")


@rule("archive-5")
async def test_an_archive_that_does_not_reach_the_journal_is_none(tmp_path: Path) -> None:
    """As without it."""
    async with running_gateway(archive=str(tmp_path)) as running:
        await running.topic(**SHORT)
        await kept_in_steps(running, tmp_path, *EIGHT[:4])
        await running.publish(*EIGHT[4:])
        epoch = epoch_of(running)
        assert (await read(running, f"{epoch}-2"))[::2] == (410, "bookmark-expired")
        assert numbers((await read(running, "epoch"))[1]) == [7, 8]


@rule("archive-3")
async def test_removals_and_texts_come_out_of_the_archive_as_they_went_in(tmp_path: Path) -> None:
    """But for what a removal took away."""
    async with running_gateway(archive=str(tmp_path)) as running:
        await running.topic(**SHORT)
        await running.publish(*EIGHT[:1])
        await running.http.delete("/v1/topics/px/sow", params={"key": '["b"]'})
        await keep(running, tmp_path)
        await kept_in_steps(running, tmp_path, *EIGHT[2:4])
        _, lines, _ = await read(running, "epoch")
        assert [line["op"] for line in lines] == ["publish", "oof", "publish", "publish"]
        assert (lines[1]["key"], lines[1]["value"], lines[1]["reason"]) == (["b"], None, "deleted")
        await running.topic("texts", key=(), type="text", **SHORT)
        for text in ("a", "b\n", "c", "d"):
            await running.http.post(
                "/v1/topics/texts/messages", content=text, headers={"Content-Type": "text/plain"}
            )
            await keep(running, tmp_path, "texts")
        answer = await running.http.get("/v1/topics/texts/messages", params={"from": "epoch"})
        found = [json.loads(line)["value"] for line in answer.text.splitlines()]
        assert found == ["a", "b\n", "c", "d"]


@rule("archive-5")
async def test_a_subscription_begins_in_the_archive_and_goes_on_live(tmp_path: Path) -> None:
    async with running_gateway(archive=str(tmp_path)) as running:
        await running.topic(**SHORT)
        await kept_in_steps(running, tmp_path, *EIGHT)
        options = f"bookmark={epoch_of(running)}-3,conflation=none"
        async with running.subscribe(options) as stream:
            resumed = json.loads((await stream.next()).text)
            assert (resumed["mode"], resumed["gap_messages"]) == ("replay", 5)
            assert await heard(stream, 5) == [4, 5, 6, 7, 8]
            await running.publish({"k": "a", "n": 9})
            assert await heard(stream, 1) == [9]
            assert stream.last_id == f"{epoch_of(running)}-9"


@rule("archive-5")
async def test_who_comes_back_with_an_id_of_the_archive_goes_on_there(tmp_path: Path) -> None:
    """Where it would be answered by a replay; as without it elsewhere."""
    async with running_gateway(archive=str(tmp_path)) as running:
        await running.topic(key=(), **SHORT)
        await kept_in_steps(running, tmp_path, *EIGHT)
        async with running.subscribe("conflation=none", last_id=f"{epoch_of(running)}-2") as stream:
            assert json.loads((await stream.next()).text)["mode"] == "replay"
            assert await heard(stream, 6) == [3, 4, 5, 6, 7, 8]


async def test_a_subscription_of_a_session_begins_there_too(tmp_path: Path) -> None:
    async with running_gateway(archive=str(tmp_path)) as running:
        await running.topic(**SHORT)
        await kept_in_steps(running, tmp_path, *EIGHT)
        opened = (await running.http.post("/v1/sessions", json={})).json()
        path = f"/v1/sessions/{opened['session']}/subscriptions"
        asked = {"topic": "px", "options": f"bookmark={epoch_of(running)}-5,conflation=none"}
        assert (await running.http.post(path, json=asked)).status_code == 201
        async with running.http.stream("GET", opened["events"]) as answer:
            stream = Stream(answer)
            found: list[int] = []
            while len(found) < 3:
                event = await stream.next()
                if event.name == "message":
                    found += [row["value"]["n"] for row in json.loads(event.text)["rows"]]
        assert found == [6, 7, 8]


@rule("archive-1")
async def test_files_that_are_put_together_while_they_are_read_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "PIECE_ROWS_MAX", 1)
    async with running_gateway(archive=str(tmp_path)) as running:
        await running.topic(**SHORT)
        folder = await kept_in_steps(running, tmp_path, *EIGHT)
        archive, topic = running.gateway.archive, running.gateway.driver.engine.topic("px")
        assert archive is not None
        found: list[int] = []
        async for frames in archive.messages(topic, Kind.JSON, 0, 8):
            found += [frame.offset for frame in frames]
            compact(folder)
        assert found == list(range(1, 9))


async def test_what_is_gone_while_it_is_sent_ends_the_answer_unfinished(tmp_path: Path) -> None:
    async with running_gateway(archive=str(tmp_path)) as running:
        await running.topic(**SHORT)
        folder = await kept_in_steps(running, tmp_path, *EIGHT)
        topic = running.gateway.driver.engine.topic("px")
        archive = running.gateway.archive
        assert archive is not None
        await archive.refresh("px")
        damage(folder)
        with pytest.raises(ArchiveLost, match="position 3 of px is gone"):
            async for _ in archive.messages(topic, Kind.JSON, 0, 8):
                pass
        with pytest.raises(httpx2.TransportError):
            await read(running, "epoch")


async def test_what_is_gone_before_anything_is_sent_is_refused(tmp_path: Path) -> None:
    async with running_gateway(archive=str(tmp_path)) as running:
        await running.topic(**SHORT)
        damage(await kept_in_steps(running, tmp_path, *EIGHT))
        epoch = running.gateway.driver.engine.topic("px").epoch
        answer = await running.http.get("/v1/topics/px/messages", params={"from": f"{epoch}-2"})
        assert (answer.status_code, answer.json()["code"]) == (410, "bookmark-expired")
        assert "the archive cannot be read" in answer.json()["detail"]


@rule("archive-5")
async def test_a_replay_whose_archive_is_damaged_gets_a_snapshot(tmp_path: Path) -> None:
    """Never a silent gap."""
    async with running_gateway(archive=str(tmp_path)) as running:
        await running.topic(**SHORT)
        damage(await kept_in_steps(running, tmp_path, *EIGHT))
        async with running.subscribe("bookmark=epoch,conflation=none") as stream:
            assert json.loads((await stream.next()).text)["mode"] == "replay"
            assert await heard(stream, 2) == [1, 2]
            assert json.loads((await stream.next()).text)["mode"] == "snapshot"
            assert sorted(await heard(stream, 3)) == [6, 7, 8]


def damage(folder: TopicFolder) -> None:
    folder.file(folder.parts()[1]).write_bytes(b"PAR1 of another kind PAR1")


async def test_the_archive_is_looked_at_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.app.archive.archive.REFRESH_S", 0.01)
    async with running_gateway(archive=str(tmp_path)) as running:
        await running.topic(**SHORT)
        await kept_in_steps(running, tmp_path, *EIGHT)
        topic = running.gateway.driver.engine.topic("px")
        async with asyncio.timeout(HANGS_S):
            while topic.archived is None or topic.archived.last < 8:
                await asyncio.sleep(0)
        assert topic.archived.first == 1


async def test_a_folder_that_cannot_be_read_holds_nothing_up(tmp_path: Path) -> None:
    """As without an archive; and it is looked at again."""
    async with running_gateway(archive=str(tmp_path)) as running:
        await running.topic(**SHORT)
        await running.publish(*EIGHT)
        (tmp_path / "topic=px").write_bytes(b"no folder")
        archive = running.gateway.archive
        assert archive is not None
        assert await archive.parts("px") == {}
        topic = running.gateway.driver.engine.topic("px")
        assert await archive.piece("px", topic.epoch, 0, 6, Kind.JSON) == []
        assert numbers((await read(running, "epoch"))[1]) == [7, 8]
        (tmp_path / "topic=px").unlink()
        await keep(running, tmp_path)
        (tmp_path / "topic=px" / "date=2020-01-01").write_bytes(b"no folder")
        assert len(await archive.parts("px")) == 1


def test_an_archive_that_cannot_be_read_keeps_the_gateway_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsInvalid, match=r"archive: there is no folder .*none"):
        Gateway.build(Settings(data=":memory:", archive=str(tmp_path / "none")))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SettingsInvalid, match=r"archive: needs pyarrow.* extra archive"):
        Gateway.build(Settings(data=":memory:", archive=str(tmp_path)))
    assert Gateway.build(Settings(data=":memory:")).archive is None


def test_nothing_of_parquet_is_loaded_before_it_is_needed() -> None:
    assert "parquet" not in vars(__import__("tidegate.app.archive.archive", fromlist=["Archive"]))
    assert Archive.__module__ == "tidegate.app.archive.archive"
