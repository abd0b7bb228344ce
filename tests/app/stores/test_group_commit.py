"""Group commit: one transaction for many requests, answers after it, independent failures."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tidegate.app.refusals import Refused
from tidegate.app.stores.group_commit import CHECK_FILES_EVERY_S, GroupCommit
from tidegate.app.stores.store import HeadMoved


class Notebook:
    """A database of one table, the thread that writes it, and how often it was taken back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("CREATE TABLE notes (number INTEGER PRIMARY KEY, text TEXT)")
        self.commits = 0
        self.connection.set_trace_callback(self._note)
        self.rollbacks = 0
        self.missing: str | None = None
        self.group = GroupCommit(self.connection, self._rolled_back, lambda: self.missing)
        self.gate, self.at_gate = threading.Event(), threading.Event()

    async def write(self, number: int, text: str = "") -> int:
        def work(connection: sqlite3.Connection) -> int:
            connection.execute("INSERT INTO notes VALUES (?, ?)", (number, text))
            return number

        return await self.group.run(work)

    async def hold(self) -> asyncio.Task[bool]:
        """Hold the thread up until the gate opens: what is asked meanwhile is one group."""

        def work(_: sqlite3.Connection) -> bool:
            self.at_gate.set()
            return self.gate.wait()

        held = asyncio.create_task(self.group.run(work))
        await asyncio.to_thread(self.at_gate.wait)
        return held

    def seen(self) -> list[int]:
        """What somebody else finds in the file."""
        with closing(sqlite3.connect(self.path)) as other:
            return [number for (number,) in other.execute("SELECT number FROM notes")]

    def _note(self, statement: str) -> None:
        self.commits += statement == "COMMIT"

    def _rolled_back(self) -> None:
        self.rollbacks += 1


@pytest.fixture
async def notebook(tmp_path: Path) -> AsyncIterator[Notebook]:
    made = Notebook(tmp_path / "x.db")
    yield made
    made.gate.set()
    await made.group.aclose()
    made.connection.close()


async def together(
    notebook: Notebook, *asked: Coroutine[Any, Any, int]
) -> list[int | BaseException]:
    """Answers to what is asked while the thread is held up."""
    held = await notebook.hold()
    tasks = [asyncio.create_task(one) for one in asked]
    await asyncio.sleep(0)
    notebook.gate.set()
    await held
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_is_answered_is_committed(notebook: Notebook) -> None:
    assert await notebook.write(1) == 1
    assert notebook.seen() == [1]


async def test_what_was_asked_meanwhile_is_one_transaction(notebook: Notebook) -> None:
    asked = [notebook.write(number) for number in range(50)]
    assert await together(notebook, *asked) == list(range(50))
    assert notebook.commits == 2
    assert notebook.seen() == list(range(50))


async def test_who_refuses_refuses_for_itself(notebook: Notebook) -> None:
    def refuse(_: sqlite3.Connection) -> int:
        raise HeadMoved

    asked = [notebook.write(1), notebook.group.run(refuse), notebook.write(2)]
    first, second, third = await together(notebook, *asked)
    assert (first, third) == (1, 2)
    assert isinstance(second, HeadMoved)
    assert notebook.rollbacks == 0


async def test_nobody_fails_for_what_another_wrote(notebook: Notebook) -> None:
    asked = [notebook.write(number) for number in (1, 2, 1, 3)]
    first, second, again, third = await together(notebook, *asked)
    assert (first, second, third) == (1, 2, 3)
    assert isinstance(again, Refused)
    assert again.code == "bus-unavailable"
    assert notebook.rollbacks >= 1
    assert notebook.seen() == [1, 2, 3]


async def test_a_mistake_is_told_where_it_was_made(notebook: Notebook) -> None:
    with pytest.raises(ZeroDivisionError):
        await notebook.group.run(lambda _: 1 // 0)
    assert await notebook.write(1) == 1


async def test_a_full_disk_is_a_problem_until_there_is_room(notebook: Notebook) -> None:
    pages = notebook.connection.execute("PRAGMA page_count").fetchone()[0]
    await notebook.group.run(lambda it: it.execute(f"PRAGMA max_page_count = {pages}"))
    with pytest.raises(Refused, match="bus-unavailable") as out:
        await notebook.write(1, "x" * 100_000)
    assert "database or disk is full" in out.value.detail
    await notebook.group.run(lambda it: it.execute(f"PRAGMA max_page_count = {1 << 20}"))
    assert await notebook.write(1, "x" * 100_000) == 1
    assert notebook.seen() == [1]


async def test_small_writes_that_still_fit_do_not_make_it_well(
    notebook: Notebook, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says once that the store is out, and once that it is back."""
    pages = notebook.connection.execute("PRAGMA page_count").fetchone()[0]
    notebook.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    for number in range(3):
        with pytest.raises(Refused, match="bus-unavailable") as out:
            await notebook.write(number, "x" * 100_000)
        assert out.value.retry_after_s == 1
        assert await notebook.write(number, "x") == number
        assert "full" in str(await notebook.group.fault())
    notebook.connection.execute("PRAGMA max_page_count = 100000")
    assert await notebook.write(9) == 9
    assert await notebook.group.fault() is None
    told = [record.getMessage() for record in caplog.records if record.name == "tidegate.store"]
    assert [text.partition(":")[0] for text in told] == ["the store is out", "the store is back"]


async def test_what_was_asked_before_the_end_is_done(notebook: Notebook) -> None:
    asked = [asyncio.create_task(notebook.write(number)) for number in range(5)]
    await asyncio.sleep(0)
    await notebook.group.aclose()
    assert await asyncio.gather(*asked) == list(range(5))
    assert notebook.seen() == list(range(5))


async def test_who_has_gone_is_not_answered_and_its_work_is_done(notebook: Notebook) -> None:
    held = await notebook.hold()
    asked = asyncio.create_task(notebook.write(1))
    await asyncio.sleep(0)
    asked.cancel()
    notebook.gate.set()
    await held
    await notebook.write(2)
    assert asked.cancelled()
    assert notebook.seen() == [1, 2]


async def test_nothing_is_committed_to_a_file_that_nobody_finds_again(notebook: Notebook) -> None:
    await notebook.write(1)
    notebook.missing = "notes.db"
    await asyncio.to_thread(time.sleep, CHECK_FILES_EVERY_S)  # the thread reads the machine's clock
    for number in (2, 3):
        with pytest.raises(Refused, match=r"the file notes.db was removed or replaced") as refused:
            await notebook.write(number)
        assert refused.value.code == "bus-unavailable"
    fault = await notebook.group.fault()
    assert fault == "the store cannot be written: the file notes.db was removed or replaced"
    assert notebook.seen() == [1]
    notebook.missing = None  # it was moved back
    assert await notebook.group.fault() is None
    await notebook.write(2)
    assert notebook.seen() == [1, 2]


async def test_a_missing_file_is_found_without_a_write(notebook: Notebook) -> None:
    assert await notebook.group.fault() is None
    notebook.missing = "notes.db"
    assert "notes.db" in str(await notebook.group.fault())
