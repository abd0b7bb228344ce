"""A few crashes of a real gateway; and a store that forgets is found out."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.stages.stage import embedded
from tests.faults.stages.waiting import happens
from tests.faults.voyage import Voyage, crash_of
from tidegate.app.stores.schema import DATABASE

LOAD_S = (0.05, 0.3)


@pytest.mark.slow
async def test_crashes_cost_nothing() -> None:
    async with embedded(seed=3) as stage:
        voyage = Voyage(stage.gateway.address, crash_of(stage.gateway), seed=3)
        tally = await voyage.sail(2, LOAD_S, lambda: None)
    assert tally.findings == []
    assert tally.runs == 2
    assert tally.sums["messages acknowledged as persisted"] > 0


@pytest.mark.slow
async def test_a_store_that_forgets_is_found_out() -> None:
    async with embedded(seed=4) as stage:

        async def crash(_: random.Random) -> float:
            ledger = voyage._ledgers["long"]
            assert await happens(lambda: ledger.sums()["requests acknowledged"] > 20, 30)
            await stage.gateway.kill()
            forget_the_newest(stage.folder / "store" / DATABASE)
            return await stage.gateway.start()

        # A watcher that saw what was then forgotten may wait for ever: a finding as good as others.
        voyage = Voyage(stage.gateway.address, crash, seed=4, catch_up_s_max=5)
        tally = await voyage.sail(1, LOAD_S, lambda: None)
    assert tally.sums["lost"] > 0


def forget_the_newest(database: Path) -> None:
    """Of each journal the newer half."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "DELETE FROM journal WHERE last > "
            "(SELECT max(last) / 2 FROM journal AS whole WHERE whole.topic = journal.topic)"
        )
