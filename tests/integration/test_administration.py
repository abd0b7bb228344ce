"""Definitions change under load as if everything came one after the other (I23)."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateways import Running, running_gateway
from tests.support.models.linearizable import Operation, State, linearizable
from tests.support.rules import rule
from tidegate.app.stores.items import Item
from tidegate.app.stores.store import TopicRecord
from tidegate.app.topics.ingest import BodyForm, Ingest
from tidegate.app.topics.registry import CatalogTopic

Step = Callable[[Any], State | None]


def definition(number: int) -> dict[str, Any]:
    """Every field says the number, or whether it is odd; so does the schema."""
    return {
        "key": ["/k"],
        "description": str(number),
        "history": {"messages": 1_000 + number},
        "conflation": ("off", "conflate")[number % 2],
        "priority": ("low", "high")[number % 2],
        "schema": {"properties": {"odd": {"const": bool(number % 2)}}},
    }


@dataclass
class History:
    """What was asked and answered. A state is the topic's number and the last value published."""

    running: Running
    operations: list[Operation] = field(default_factory=list)
    etags: dict[int, set[str]] = field(default_factory=dict)
    _moments: itertools.count[int] = field(default_factory=itertools.count)

    async def note(self, name: str, asked: Awaitable[Step]) -> None:
        begun = next(self._moments)
        step = await asked
        self.operations.append(Operation(begun, next(self._moments), step, name))

    async def change(self, number: int) -> Step:
        """Read, then change if nobody else has."""
        shown = await self.running.http.get("/v1/topics/px")
        was = self.number(shown)
        answer = await self.running.http.patch(
            "/v1/topics/px", json=definition(number), headers={"If-Match": shown.headers["etag"]}
        )
        if answer.status_code == 412:
            return lambda state: state if state[0] != was else None
        assert self.number(answer) == number
        return lambda state: (number, state[1]) if state[0] == was else None

    async def replace(self, number: int) -> Step:
        """Replace whatever is there."""
        answer = await self.running.http.put("/v1/topics/px", json=definition(number))
        assert self.number(answer) == number
        return lambda state: (number, state[1])

    async def read(self) -> Step:
        number = self.number(await self.running.http.get("/v1/topics/px"))
        return lambda state: state if state[0] == number else None

    async def publish(self, value: int, *, odd: bool) -> Step:
        answer = await self._post({"v": value, "odd": odd}, {"v": value, "odd": odd})
        if answer.status_code == 422:
            return lambda state: state if state[0] % 2 != odd else None
        assert answer.status_code == 200, answer.text
        return lambda state: (state[0], value) if state[0] % 2 == odd else None

    async def publish_both(self, *, odd: bool) -> Step:
        """Messages of which some fit one definition and some the next: none fits them all."""
        answer = await self._post({"v": -1, "odd": odd}, {"v": -1, "odd": not odd})
        assert answer.status_code == 422
        return lambda state: state

    async def _post(self, first: dict[str, Any], second: dict[str, Any]) -> Any:
        """So many messages that checking them takes turns with other requests."""
        lines = [
            json.dumps({"k": 1, **each, "pad": "x" * 1_000})
            for each in (first,) * 99 + (second,) * 99
        ]
        return await self.running.http.post(
            "/v1/topics/px/messages",
            content="\n".join(lines),
            headers={"Content-Type": "application/x-ndjson"},
        )

    async def sow(self) -> Step:
        value = (await self.running.sow())[0]["v"]
        return lambda state: state if state[1] == value else None

    def number(self, answer: Any) -> int:
        """Which definition an answer shows, in all of its fields."""
        shown = answer.json()
        number = int(shown["description"])
        assert definition(number).items() <= shown.items(), "old and new mixed"
        self.etags.setdefault(number, set()).add(answer.headers["etag"])
        return number


def takes_turns(running: Running) -> None:
    """Let others run before a definition is stored, as a store with a disk does."""
    put = running.gateway.store.put_topic

    async def put_topic(record: TopicRecord, mark: str = "") -> None:
        for _ in range(random.Random(record.document.description).randrange(30)):
            await asyncio.sleep(0)
        await put(record, mark)

    running.gateway.store.put_topic = put_topic  # type: ignore[method-assign]  # a slower one


@rule("topic-11")
@pytest.mark.parametrize(
    ("seed", "keeps"),
    [
        (0, False),
        pytest.param(0, True, marks=pytest.mark.system),
        *(
            pytest.param(seed, keeps, marks=pytest.mark.nightly)
            for seed in range(1, 5)
            for keeps in (False, True)
        ),
    ],
)
async def test_a_history_of_definitions_and_messages_is_linearizable(
    seed: int, keeps: bool, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    numbers = itertools.count(1)
    async with running_gateway(data=str(tmp_path) if keeps else ":memory:") as running:
        history = History(running)
        await running.topic("px", **definition(0))
        await running.publish({"k": 1, "v": 0, "odd": False})
        takes_turns(running)
        asks: list[Callable[[], Awaitable[Step]]] = [
            lambda: history.change(next(numbers)),
            lambda: history.replace(next(numbers)),
            history.read,
            lambda: history.publish(next(numbers), odd=True),
            lambda: history.publish(next(numbers), odd=False),
            lambda: history.publish_both(odd=chance.random() < 0.5),
            history.sow,
        ]

        async def client() -> None:
            for _ in range(12):
                ask = chance.choice(asks)
                await history.note(getattr(ask, "__name__", ""), ask())

        await asyncio.gather(*(client() for _ in range(5)))
    assert all(len(etags) == 1 for etags in history.etags.values()), "one definition, one tag"
    assert len(set.union(*history.etags.values())) == len(history.etags)
    assert linearizable(history.operations, (0, 0))


class SlowCheck:
    """Lets others run in the midst of a check, as a large request does."""

    def __init__(self, ingest: Ingest, change: Callable[[], Awaitable[object]]) -> None:
        self._check = ingest.check
        self._change = change
        self.checks = 0

    async def check(self, entry: CatalogTopic, body: bytes, form: BodyForm) -> Sequence[Item]:
        self.checks += 1
        messages = await self._check(entry, body, form)
        if self.checks == 1:
            await self._change()
        return messages


@rule("topic-11")
@pytest.mark.parametrize(("changed", "status"), [("schema", 422), ("description", 200)])
async def test_messages_fit_the_schema_that_holds_when_they_are_published(
    changed: str, status: int
) -> None:
    async with running_gateway() as running:
        await running.topic("px", **definition(0))
        slow = SlowCheck(
            running.gateway.ingest,
            lambda: running.http.patch("/v1/topics/px", json={changed: definition(1)[changed]}),
        )
        running.gateway.ingest.check = slow.check  # type: ignore[method-assign]  # a slower one
        answer = await running.http.post("/v1/topics/px/messages", json={"k": 1, "odd": False})
        assert answer.status_code == status
        assert slow.checks > 1, "what was checked before the change is checked after it"
        assert len(await running.sow()) == (status == 200)


def test_a_stale_answer_is_found_out() -> None:
    """A read may be of before or after what runs beside it, and of nothing else."""

    def says(number: int) -> Step:
        return lambda state: state if state == number else None

    write = Operation(0, 10, lambda state: 2 if state == 1 else None)
    assert linearizable([write, Operation(1, 3, says(1)), Operation(4, 6, says(2))], 1)
    assert not linearizable([write, Operation(1, 3, says(2)), Operation(4, 6, says(1))], 1)
    assert not linearizable([write, Operation(11, 12, says(1))], 1)
    assert not linearizable([write, Operation(1, 11, lambda s: 3 if s == 1 else None)], 1)
