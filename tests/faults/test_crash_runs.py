"""A few crashes of a real gateway; and a store that forgets is found out."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.crash_runs import CrashRuns, crash_of
from tests.faults.setups.gateway import on_sqlite
from tests.faults.setups.waiting import happens
from tests.support.deadlines import HANGS_S
from tidegate.app.stores.folder import DATABASE

LOAD_S = (0.05, 0.3)


@pytest.mark.system
async def test_crashes_cost_nothing() -> None:
    async with on_sqlite(seed=3) as setup:
        crash_runs = CrashRuns(setup.gateway.address, crash_of(setup.gateway), seed=3)
        tally = await crash_runs.run(2, LOAD_S, lambda: None)
    assert tally.findings == []
    assert tally.runs == 2
    assert tally.sums["messages acknowledged as persisted"] > 0


@pytest.mark.nightly
async def test_a_store_that_forgets_is_found_out() -> None:
    async with on_sqlite(seed=4) as setup:

        async def crash(_: random.Random) -> float:
            ledger = crash_runs._ledgers["long"]
            assert await happens(lambda: ledger.sums()["requests acknowledged"] > 20, HANGS_S)
            await setup.gateway.kill()
            forget_the_newest(setup.folder / "store" / DATABASE)
            return await setup.gateway.start()

        # A subscriber that saw what is forgotten may wait for ever, which is a finding as well.
        crash_runs = CrashRuns(setup.gateway.address, crash, seed=4, catch_up_s_max=5)
        tally = await crash_runs.run(1, LOAD_S, lambda: None)
    assert tally.sums["lost"] > 0


def forget_the_newest(database: Path) -> None:
    """Of each journal the newer half."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "DELETE FROM journal WHERE last > "
            "(SELECT max(last) / 2 FROM journal AS whole WHERE whole.topic = journal.topic)"
        )
