"""Places in several topics as one text."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.support.gateways import running_gateway
from tests.support.rules import rule
from tests.support.wire import connected, get
from tidegate.app.refusals import Refused
from tidegate.app.streams.subscribe_request import (
    PLACES_AT_ONCE,
    PLACES_MAX,
    UNKNOWN,
    place_in,
    places_of,
)
from tidegate.conflation.steps import finished
from tidegate.keys.text.bookmark import Bookmark


def test_each_topic_has_its_place() -> None:
    places = finished(places_of("px.eur=e1-7, px-2=e2-0"))
    assert places == {"px.eur": Bookmark("e1", 7), "px-2": Bookmark("e2", 0)}


def test_what_is_no_bookmark_is_a_place_that_nobody_knows() -> None:
    assert finished(places_of("px=unknown-0,fx=?,cx=")) == dict.fromkeys(
        ("px", "fx", "cx"), UNKNOWN
    )


@pytest.mark.parametrize(
    "text", ["", "px", "=e1-1", "p x=e1-1", "px=e1-1,px=e1-2", "px=e1-1,", "px.*=e1-1",
             ",".join(f"t{at}=e1-1" for at in range(PLACES_MAX + 1))]
)  # fmt: skip
def test_what_is_no_list_of_places_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        finished(places_of(text))
    assert refused.value.code == "bookmark-invalid"


@rule("session-11")
def test_a_topic_that_is_not_named_is_new_to_its_reader() -> None:
    places = finished(places_of("px=e1-7"))
    assert place_in(places, "px", "e9") == Bookmark("e1", 7)
    assert place_in(places, "fx", "e9") == Bookmark("e9", 0)


def test_many_are_read_in_steps() -> None:
    text = ",".join(f"t{at}=e1-1" for at in range(4 * PLACES_AT_ONCE))
    assert len(list(places_of(text))) == 4


async def test_many_are_looked_for_in_steps() -> None:
    """Each is a look at the catalog; a stream with hundreds of them held the loop."""
    iterations, looks = 0, Counter[int]()
    text = ",".join(f"t{at}=e1-1" for at in range(3 * PLACES_AT_ONCE))
    asked = get(first=f"GET /v1/topics/%3E/subscribe?bookmarks={text} HTTP/1.1".encode())

    async def count() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    async with running_gateway() as running, connected(running.address) as wire:
        seek = running.gateway.catalog.seek

        async def counted(name: str) -> Any:
            looks[iterations] += 1
            return await seek(name)

        running.gateway.catalog.seek = counted  # type: ignore[method-assign]  # counts
        counting = asyncio.create_task(count())
        await wire.send(asked)
        await wire.read_until(f"t{3 * PLACES_AT_ONCE - 1}".encode())
        counting.cancel()
    assert sum(looks.values()) == 3 * PLACES_AT_ONCE
    assert max(looks.values()) == PLACES_AT_ONCE
