"""A store that was put back by hand, unnoticed: what a reader has seen shows it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.gateways import Running, names, running_gateway
from tests.support.rules import rule
from tests.support.tokens import public_jwk, token_of, write_keys


async def epoch_of(running: Running, topic: str = "px") -> str:
    return str((await running.http.get(f"/v1/topics/{topic}")).json()["epoch"])


async def events_after(running: Running, last_id: str) -> list[str]:
    async with running.subscribe("conflation=10ms", last_id=last_id) as stream:
        return names(await stream.until("group_end"))


@pytest.fixture
async def seen(tmp_path: Path) -> tuple[Path, str]:
    """A folder that was put back, and the id of a message that it has no more."""
    folder, copy = tmp_path / "store", tmp_path / "copy"
    async with running_gateway(data=str(folder)) as running:
        await running.topic()
        await running.publish({"k": "a"})
    shutil.copytree(folder, copy)
    async with running_gateway(data=str(folder)) as running:
        last = (await running.publish({"k": "b"}, {"k": "c"}))["last"]
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    return folder, last


@rule("cluster-5")
async def test_a_place_that_nobody_can_have_given_has_the_topic_begin_again(
    seen: tuple[Path, str],
) -> None:
    """Who comes later with such a place does not take another history for it."""
    folder, last = seen
    async with running_gateway(data=str(folder)) as running:
        before = await epoch_of(running)
        assert last.startswith(before), "nothing has shown it so far"
        async with running.subscribe("conflation=10ms") as present:
            await present.until("group_end")
            assert await events_after(running, last) == [
                "resumed",
                "group_begin",
                "message",
                "group_end",
            ]
            assert "resumed" in names(await present.until("group_end"))
            after = await epoch_of(running)
            assert after != before
            await running.publish({"k": "x"}, {"k": "y"}, {"k": "z"})
            assert [row["k"] for row in await present.values(3)] == ["x", "y", "z"]
        assert "group_begin" in await events_after(running, last)
    async with running_gateway(data=str(folder)) as running:
        assert await epoch_of(running) == after
        assert await running.sow() == [{"k": key} for key in "axyz"]


@rule("cluster-5")
@pytest.mark.parametrize("path", ["subscribe?options=bookmark={}", "messages?from={}"])
async def test_a_bookmark_shows_it_as_an_id_does(seen: tuple[Path, str], path: str) -> None:
    folder, last = seen
    async with running_gateway(data=str(folder)) as running:
        before = await epoch_of(running)
        async with running.http.stream("GET", "/v1/topics/px/" + path.format(last)) as answer:
            assert answer.status_code in {200, 410}
        assert await epoch_of(running) != before


@rule("cluster-5")
async def test_places_of_an_epoch_made_since_the_start_are_believed_by_nobody(
    seen: tuple[Path, str],
) -> None:
    """Whoever invents ids has a topic begin again once a start, and no oftener."""
    folder, last = seen
    async with running_gateway(data=str(folder)) as running:
        await running.topic("new")
        for topic in ("px", "new"):
            await running.http.get(f"/v1/topics/{topic}/messages?from={last}")
            epoch = await epoch_of(running, topic)
            await running.http.get(f"/v1/topics/{topic}/messages?from={epoch}-99")
            assert await epoch_of(running, topic) == epoch


@rule("cluster-5")
@pytest.mark.parametrize("path", ["subscribe?options=bookmark={}", "messages?from={}"])
async def test_a_reader_that_may_change_nothing_begins_no_topic_anew(
    seen: tuple[Path, str], tmp_path: Path, path: str
) -> None:
    folder, last = seen
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    async with running_gateway(data=str(folder), auth_keys=keys) as running:

        async def epoch_after(*grants: str) -> str:
            headers = token_of("ann", *grants)
            target = "/v1/topics/px/" + path.format(last)
            async with running.http.stream("GET", target, headers=headers) as answer:
                assert answer.status_code in {200, 410}
            return running.gateway.driver.engine.topic("px").epoch

        before = running.gateway.driver.engine.topic("px").epoch
        assert await epoch_after("read >") == before
        assert await epoch_after("read >", "write other") == before
        assert await epoch_after("read >", "write px") != before
